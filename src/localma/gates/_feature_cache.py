"""Features of rows by the digest of their content: in memory, and on the disk where asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from localma.progress import track
from localma.storage.cache import Shelf

Float32 = NDArray[np.float32]

CHUNK_ROWS = 1024
"""Rows after which features go to the disk: at most so much work is lost."""
MEMORY_BYTES = 2**30
"""What one network's features may take in memory; the oldest make room."""


class FeatureCache:
    """The features of one network.

    Parameters
    ----------
    shelf : where they are kept beyond this process; None for nowhere.

    Examples
    --------
    >>> cache = FeatureCache(None)
    >>> a, b = b"a" * 16, b"b" * 16
    >>> cache.find([a, b, a], lambda rows: np.float32([[row] for row in rows])).tolist()
    [[2.0], [1.0], [2.0]]
    >>> cache.find([b], lambda rows: 1 / 0).tolist()
    [[1.0]]
    """

    def __init__(self, shelf: Shelf | None) -> None:
        self.shelf = shelf
        self._known: dict[bytes, Float32] = {}
        self._bytes = 0

    def find(self, digests: Sequence[bytes], compute: Callable[[list[int]], Float32]) -> Float32:
        """Features (n, d) of rows by their digests of 16 bytes; unknown ones are computed, once.

        compute : numbers of rows -> their features.
        """
        found = {digest: self._known[digest] for digest in digests if digest in self._known}
        places = {digest: row for row, digest in enumerate(digests) if digest not in found}
        found |= self._from_disk(list(places))
        # Rounding depends on the rows of a batch: their content orders them, not their places.
        rows = [places[digest] for digest in sorted(places.keys() - found.keys())]
        parts = [rows[first : first + CHUNK_ROWS] for first in range(0, len(rows), CHUNK_ROWS)]
        for part in track(parts, "Computing features") if len(parts) > 1 else parts:
            fresh = [digests[row] for row in part]
            features = compute(part)
            if self.shelf is not None:
                self.shelf.write(_keys(fresh), features.astype(np.float64))
            found |= self._remember(fresh, features)
        return np.stack([found[digest] for digest in digests])

    def _from_disk(self, digests: list[bytes]) -> dict[bytes, Float32]:
        if self.shelf is None or not digests:
            return {}
        there = self.shelf.read(_keys(digests))
        return self._remember(
            [digests[place] for place in there.places], there.predictions.astype(np.float32)
        )

    def _remember(self, digests: Sequence[bytes], features: Float32) -> dict[bytes, Float32]:
        # Copies, since a view of one row would keep its whole batch alive.
        fresh = {d: row.copy() for d, row in zip(digests, features, strict=True)}
        self._known |= fresh
        self._bytes += features.nbytes
        while self._bytes > MEMORY_BYTES:
            oldest = next(iter(self._known))
            self._bytes -= self._known.pop(oldest).nbytes
        return fresh


def _keys(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(digests), 2)
