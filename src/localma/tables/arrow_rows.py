"""Numeric columns of an Arrow table as rows, read where they lie and only when asked for."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import DTypeLike, NDArray

Rows = NDArray[np.intp]

_PART = 2**16  # rows looked at at once


class ArrowRows:
    """A table (n, p) of finite numbers, of which rows are taken as arrays.

    Every column is a list of pieces, as Arrow reads them from a file; none is copied.

    Parameters
    ----------
    pieces : of each column, its arrays one after another.
    """

    ndim = 2

    def __init__(self, pieces: list[list[NDArray[Any]]]) -> None:
        self.pieces = pieces
        self.ends = [[0, *accumulate(len(piece) for piece in column)] for column in pieces]
        single = all(np.can_cast(column[0].dtype, np.float32) for column in pieces if column)
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.shape = (self.ends[0][-1], len(pieces))

    @classmethod
    def of(cls, table: Any) -> ArrowRows | None:
        """Read an Arrow table; None if it is none, or holds anything but finite numbers.

        >>> ArrowRows.of(np.zeros((2, 2))) is None
        True
        """
        if not nw.dependencies.is_pyarrow_table(table) or table.num_columns == 0:
            return None
        numeric = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)}
        numeric |= {"float", "double"}
        if any(str(c.type) not in numeric or c.null_count for c in table.columns):
            return None
        rows = cls(
            [
                [chunk.to_numpy(zero_copy_only=True) for chunk in column.chunks if len(chunk)]
                for column in table.columns
            ]
        )
        return rows if len(rows) and rows._is_finite() else None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Rows | NDArray[np.bool_]) -> NDArray[np.floating]:
        """Some rows, by a slice, a mask or indices: (rows, p)."""
        if isinstance(rows, slice):
            wanted = np.arange(*rows.indices(len(self)), dtype=np.intp)
        else:
            wanted = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.intp)
        if (np.diff(wanted) < 0).any():
            order = np.argsort(wanted, kind="stable")
            taken = np.empty((len(wanted), self.shape[1]), dtype=self.dtype)
            taken[order] = self._in_order(wanted[order])
            return taken
        return self._in_order(wanted)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def _in_order(self, rows: Rows) -> NDArray[np.floating]:
        taken = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        for k, (pieces, ends) in enumerate(zip(self.pieces, self.ends, strict=True)):
            cuts = np.searchsorted(rows, ends)
            for place in np.flatnonzero(np.diff(cuts)).tolist():
                part = slice(cuts[place], cuts[place + 1])
                taken[part, k] = pieces[place][rows[part] - ends[place]]
        return taken

    def _is_finite(self) -> bool:
        return all(
            bool(np.isfinite(piece[first : first + _PART]).all())
            for column in self.pieces
            for piece in column
            if piece.dtype.kind == "f"
            for first in range(0, len(piece), _PART)
        )
