"""One file of cached predictions: Arrow's file format, rows in the order of their keys.

Its columns are the two halves of the key, a checksum of key and prediction, and the prediction. It
is mapped into memory, so that looking for a few rows among millions reads little more than these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.candidates.outputs import Array
from localma.candidates.row_keys import Keys, as_words, hash_words

SCHEMA = "localma predictions 1"


class SpoiltFileError(Exception):
    """What is in a file is not what was written there: proof that it is damaged."""


class ForeignFileError(Exception):
    """A file that may be in order, and is not for us to read."""


@dataclass(frozen=True)
class Found:
    """Rows that a cache has: places (m,) among the keys asked for, predictions (m,) or (m, K)."""

    places: NDArray[np.intp]
    predictions: Array


@dataclass(frozen=True)
class CachedRows:
    """Keys in ascending order, as halves (n,) and (n,); predictions (n,) or (n, K); checks (n,)."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    checks: NDArray[np.uint64]
    predictions: Array

    @classmethod
    def of(cls, keys: Keys, predictions: Array) -> CachedRows:
        """Rows in the order of their keys (n, 2), each key once."""
        order, new = sorted_keys(keys)
        order = order[new]
        keys, predictions = keys[order], predictions[order]
        high, low = keys.T.copy()
        return cls(high, low, _checks(keys, predictions), predictions)

    @property
    def keys(self) -> Keys:
        """The keys in one piece: (n, 2)."""
        return np.column_stack([self.high, self.low])

    def find(self, keys: Keys) -> Found:
        """The rows with these keys (m, 2), copied out of the file and checked."""
        place = np.searchsorted(self.high, keys[:, 0])
        place[place == len(self.high)] = 0
        hit = (self.high[place] == keys[:, 0]) & (self.low[place] == keys[:, 1])
        here = np.flatnonzero(hit)
        predictions = self.predictions[place[here]]
        _compare(_checks(keys[here], predictions), self.checks[place[here]])
        return Found(here, predictions)

    def checked(self) -> CachedRows:
        """All rows, copied out of the file and checked."""
        predictions = self.predictions.copy()
        _compare(_checks(self.keys, predictions), self.checks)
        return CachedRows(self.high.copy(), self.low.copy(), self.checks.copy(), predictions)

    def write(self, file: BinaryIO, about: Mapping[str, str]) -> None:
        """Write all rows, and words about them, into an open file."""
        arrow = optional("pyarrow", extra="cache")
        n, flat = len(self.high), self.predictions.reshape(-1)
        outputs = ",".join(str(length) for length in self.predictions.shape[1:])
        batch = arrow.RecordBatch.from_pydict(
            {
                "key_high": arrow.array(self.high),
                "key_low": arrow.array(self.low),
                "check": arrow.array(self.checks),
                "prediction": arrow.FixedSizeListArray.from_arrays(flat, len(flat) // n),
            }
        )
        metadata = {**about, "schema": SCHEMA, "rows": str(n), "outputs": outputs}
        schema = batch.schema.with_metadata(metadata)
        with optional("pyarrow.ipc", extra="cache").new_file(file, schema) as writer:
            writer.write_batch(batch)


@contextmanager
def reading(path: Path, shelf: str) -> Iterator[CachedRows]:
    """Open a file of a shelf.

    Raises
    ------
    SpoiltFileError : the file is damaged.
    ForeignFileError : another version, or another candidate, wrote the file.
    OSError, MemoryError : the file cannot be read now, which says nothing about its content.
    """
    arrow = optional("pyarrow", extra="cache")
    with arrow.memory_map(str(path)) as source:
        try:
            yield _rows(source, shelf)
        except (MemoryError, arrow.ArrowCancelled):
            raise
        except OSError as error:
            if error.errno is not None:
                raise  # the system failed; an error of Arrow about the content has no number
            raise SpoiltFileError(str(error)) from error
        except (arrow.ArrowException, ValueError, KeyError, TypeError, IndexError) as error:
            raise SpoiltFileError(str(error)) from error


def description(path: Path) -> dict[str, str] | None:
    """What a file says about itself; None if it cannot be read."""
    arrow = optional("pyarrow", extra="cache")
    try:
        with arrow.memory_map(str(path)) as source:
            return _about(optional("pyarrow.ipc", extra="cache").open_file(source))
    except (OSError, ForeignFileError, arrow.ArrowException, ValueError):
        return None


def sorted_keys(keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The order (n,) that sorts keys (n, 2), and which of the sorted ones (n,) are new.

    >>> order, new = sorted_keys(np.array([[2, 1], [1, 5], [2, 1]], dtype=np.uint64))
    >>> order.tolist(), new.tolist()
    ([1, 0, 2], [True, True, False])
    """
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, new


def _rows(source: Any, shelf: str) -> CachedRows:
    """The rows of an open file, which stay in the file until they are looked at."""
    reader = optional("pyarrow.ipc", extra="cache").open_file(source)
    about = _about(reader)
    if about["shelf"] != shelf:
        raise ForeignFileError("it was written for another candidate")
    batch = reader.get_batch(0)
    batch.validate()
    n = int(about["rows"])
    shape = (n, *[int(length) for length in about["outputs"].split(",") if length])
    high, low, checks, flat = (
        column.to_numpy(zero_copy_only=True)
        for column in (*batch.columns[:3], batch.column("prediction").values)
    )
    kinds = [column.dtype for column in (high, low, checks, flat)]
    if kinds != [np.uint64] * 3 + [np.float64] or not len(high) == len(low) == len(checks) == n > 0:
        raise SpoiltFileError(f"its columns are not those of {n} rows")
    return CachedRows(high, low, checks, flat.reshape(shape))


def _about(reader: Any) -> dict[str, str]:
    metadata: Mapping[bytes, bytes] = reader.schema.metadata or {}
    about = {key.decode(): value.decode() for key, value in metadata.items()}
    if about.get("schema") != SCHEMA:
        raise ForeignFileError("it was written by another version, or by another program")
    return about


def _checks(keys: Keys, predictions: Array) -> NDArray[np.uint64]:
    """Checksums of rows: (n,)."""
    if not len(keys):
        return np.empty(0, dtype=np.uint64)
    return hash_words([as_words(keys), as_words(predictions)], "cached row")[:, 0]


def _compare(found: NDArray[np.uint64], written: NDArray[np.uint64]) -> None:
    if (found != written).any():
        raise SpoiltFileError("a checksum does not match")
