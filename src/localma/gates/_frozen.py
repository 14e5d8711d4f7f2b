"""Features of a fixed network: rows of any kind to vectors of numbers, each row computed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.progress import track
from localma.storage.cache import MAX_BYTES, Shelf

if TYPE_CHECKING:
    from torch import nn

Float32 = NDArray[np.float32]

CHUNK_ROWS = 1024
"""Rows after which features go to the disk: at most so much work is lost."""
MEMORY_BYTES = 2**30
"""What one network's features may take in memory; the oldest make room."""


class Encoder(Protocol):
    """A network, and how rows become its input."""

    @property
    def network(self) -> nn.Module:
        """From what `batch` gives to features (rows, d)."""

    def digests(self, X: Any) -> list[bytes]:
        """Digest of the content of each row."""

    def length(self, X: Any, row: int) -> int:
        """How long a row is, so that rows of a batch are alike."""

    def batch(self, X: Any, rows: Sequence[int]) -> dict[str, Any]:
        """Arguments of the network for some rows: tensors by name."""


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
            [digests[place] for place in there.index], there.predictions.astype(np.float32)
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


class FrozenFeatures:
    """What a network that stays as it is says of rows: X -> (n, d).

    Parameters
    ----------
    encoder : the network and its way of reading rows.
    shelf : where features are kept; None for memory only.
    batch_size : rows that the network sees at once.
    device : as in `TorchGate`.
    """

    def __init__(
        self, encoder: Encoder, shelf: Shelf | None, batch_size: int, device: str | None
    ) -> None:
        self.encoder = encoder
        self.cache = FeatureCache(shelf)
        self.batch_size = batch_size
        self.device = device

    @classmethod
    def shared(
        cls,
        fingerprint: str,
        open_encoder: Callable[[], Encoder],
        folder: str | PathLike[str] | None,
        batch_size: int,
        device: str | None,
        described: str,
    ) -> FrozenFeatures:
        """Features by their fingerprint: all gates of a path over the same network share them.

        folder : a cache as that of candidates' predictions; described : its entry there.
        """
        root = None if folder is None else Path(os.path.abspath(folder))
        key = (fingerprint, root, batch_size, device)
        found = _opened.get(key)
        if found is None:
            about = {"candidate": described, "task": "features"}
            shelf = None if root is None else Shelf(root, fingerprint[:32], about, MAX_BYTES)
            found = _opened[key] = cls(open_encoder(), shelf, batch_size, device)
        return found

    def __call__(self, X: Any) -> Float32:
        """Features of each row: (n, d); those seen before are not computed again."""
        return self.cache.find(self.encoder.digests(X), partial(self._compute, X))

    def _compute(self, X: Any, rows: list[int]) -> Float32:
        import torch

        from localma.gates._torch_inputs import FAILURES
        from localma.gates._torch_training import make_accelerator

        device = make_accelerator(self.device, None).device
        network = self.encoder.network.to(device).eval()
        by_length = sorted(rows, key=partial(self.encoder.length, X))
        found: dict[int, Float32] = {}
        for first in range(0, len(rows), self.batch_size):
            part = by_length[first : first + self.batch_size]
            batch = {name: value.to(device) for name, value in self.encoder.batch(X, part).items()}
            try:
                with torch.inference_mode():
                    features = network(**batch).float().cpu().numpy()
            except FAILURES as error:
                raise InvalidInputError(
                    "A frozen network must read its rows; it failed on rows of shape "
                    f"{[tuple(value.shape) for value in batch.values()]} ({type(error).__name__}: "
                    f"{' '.join(str(error).split())[:200]}). Give it the size of image or length "
                    "of text that it was made for; where memory is short, lower batch_size."
                ) from error
            found |= dict(zip(part, _checked(features, part), strict=True))
        return np.stack([found[row] for row in rows])


_opened: WeakValueDictionary[Any, FrozenFeatures] = WeakValueDictionary()


def _checked(features: Float32, rows: Sequence[int]) -> Float32:
    if features.ndim != 2 or len(features) != len(rows):
        raise InvalidInputError(
            "A frozen network must give one vector of features per row, shape "
            f"({len(rows)}, d); it gave {features.shape}. Pool or flatten its output."
        )
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        row = rows[int(np.argmin(finite))]
        raise InvalidInputError(
            f"Features must be finite, and those of row {row} are not. Look at that row and at "
            "the weights of the network."
        )
    return features
