"""Sums over blocks of periods, which can be added in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from localma._types import AnyArray, Integers
from localma.production.sequential import block_starts

Tables = Mapping[str, AnyArray]


@dataclass(frozen=True)
class Blocks:
    """Sums of several tables, in J blocks of periods.

    Counts are integers, so their sums do not depend on the order. Sums of other numbers do, by
    rounding.

    Parameters
    ----------
    first, last : the first and the last period
    tables : name -> sums, each of shape (J, ...)

    Examples
    --------
    >>> one = Blocks.of(np.array([0, 0, 1]), {"rows": np.ones(3, dtype=np.int64)})
    >>> both = one.added(Blocks.of(np.array([1]), {"rows": np.ones(1, dtype=np.int64)}))
    >>> both.starts.tolist(), both.tables["rows"].tolist()
    ([0, 1], [2, 2])
    """

    first: int
    last: int
    tables: Tables

    @classmethod
    def of(cls, periods: Integers, values: Tables) -> Self:
        """Sum the values (n, ...) of n rows over the blocks of their periods (n,)."""
        first, last = int(periods.min()), int(periods.max())
        starts = block_starts(last, first)
        at = np.searchsorted(starts, periods, side="right") - 1
        return cls(first, last, {name: _summed(v, at, len(starts)) for name, v in values.items()})

    @property
    def starts(self) -> Integers:
        """Start of each block: (J,)."""
        return block_starts(self.last, self.first)

    def added(self, other: Blocks) -> Self:
        """Add the sums of another record with the same tables."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        starts = block_starts(last, first)
        tables = {
            name: np.zeros((len(starts), *v.shape[1:]), v.dtype) for name, v in self.tables.items()
        }
        for blocks in (self, other):
            # Blocks that begin before the first period belong to the block that contains it.
            at = np.searchsorted(starts, np.maximum(blocks.starts, first), side="right") - 1
            for name, values in blocks.tables.items():
                tables[name] += _summed(values, at, len(starts))
        return type(self)(first, last, tables)


def _summed(values: AnyArray, at: Integers, n: int) -> AnyArray:
    sums = np.zeros((n, *values.shape[1:]), dtype=values.dtype)
    np.add.at(sums, at, values)
    return sums
