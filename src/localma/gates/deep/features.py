"""Gates on texts and images: a network reads the rows, and is either frozen or trained.

The features of a frozen network are computed once per row, and a gate such as `MLPGate` learns the
weights from them. Otherwise `TorchGate` trains the whole network.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import partial
from os import PathLike
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Float32, RandomState
from localma.errors import FileFormatError, InvalidInputError
from localma.gates.base import Folds, Gate, Job, arrays_below
from localma.gates.deep.torch_ import MakeModule, TorchGate
from localma.gates.labelled import Labelled, RowSource, plain_arrays
from localma.gates.mlp import MLPGate
from localma.progress import track
from localma.storage.cache import MAX_BYTES, Shelf
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from torch import Tensor, nn

CHUNK_ROWS = 1024
"""Number of rows after which features are written to the disk."""
MEMORY_BYTES = 2**30
"""Memory for the features of one network; the oldest features are dropped."""

R = TypeVar("R")
ReadRows = TypeVar("ReadRows", contravariant=True)


class Encoder(Protocol[ReadRows]):
    """A network, and how rows become its input."""

    network: nn.Module
    """From the tensors of `batch` to features (rows, d)."""

    def digests(self, X: ReadRows) -> list[bytes]:
        """Digest of the content of each row, 16 bytes."""

    def length(self, X: ReadRows, row: int) -> int:
        """Length of a row; rows of similar length share a batch."""

    def batch(self, X: ReadRows, rows: Sequence[int]) -> dict[str, Tensor]:
        """Arguments of the network for these rows."""


class FeatureCache:
    """The features of one network, in memory and optionally on disk.

    Parameters
    ----------
    shelf : Shelf or None
        Where features are stored on disk; None for memory only.

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
        self._in_memory: dict[bytes, Float32] = {}
        self._bytes = 0

    def find(self, digests: Sequence[bytes], compute: Callable[[list[int]], Float32]) -> Float32:
        """Features (n, d) of rows by their digests of 16 bytes; missing ones are computed, once.

        compute : numbers of rows -> their features.
        """
        features = {d: self._in_memory[d] for d in digests if d in self._in_memory}
        row_of = {digest: row for row, digest in enumerate(digests) if digest not in features}
        features |= self._read(list(row_of))
        # Rounding depends on the rows of a batch, so sort by content instead of by position.
        missing = [row_of[digest] for digest in sorted(row_of.keys() - features.keys())]
        starts = range(0, len(missing), CHUNK_ROWS)
        # Show no progress for a single chunk.
        progress = None if len(starts) > 1 else False
        for start in track(starts, "Computing features", progress=progress):
            rows = missing[start : start + CHUNK_ROWS]
            features |= self._write([digests[row] for row in rows], compute(rows))
        return np.stack([features[digest] for digest in digests])

    def _read(self, digests: list[bytes]) -> dict[bytes, Float32]:
        if self.shelf is None or not digests:
            return {}
        stored = self.shelf.read(_keys(digests))
        stored_digests = [digests[index] for index in stored.index]
        return self._remember(stored_digests, stored.predictions.astype(np.float32))

    def _write(self, digests: list[bytes], features: Float32) -> dict[bytes, Float32]:
        if self.shelf is not None:
            self.shelf.write(_keys(digests), features.astype(np.float64))
        return self._remember(digests, features)

    def _remember(self, digests: list[bytes], features: Float32) -> dict[bytes, Float32]:
        # Copies, since a view of one row would keep its whole batch in memory.
        by_digest = {d: row.copy() for d, row in zip(digests, features, strict=True)}
        self._in_memory |= by_digest
        self._bytes += features.nbytes
        while self._bytes > MEMORY_BYTES:
            oldest = next(iter(self._in_memory))
            self._bytes -= self._in_memory.pop(oldest).nbytes
        return by_digest


def _keys(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(digests), 2)


@dataclass(eq=False)
class FrozenFeatures(Generic[R]):
    """The features of rows under a network that is not trained: X -> (n, d).

    Parameters
    ----------
    encoder : Encoder
        The network, and how it reads rows.
    shelf : Shelf or None
        Where features are stored on disk; None for memory only.
    batch_size : int
        Number of rows in a batch of the network.
    device : str or None
        As in `TorchGate`.
    """

    encoder: Encoder[R]
    shelf: Shelf | None
    batch_size: int
    device: str | None

    def __post_init__(self) -> None:
        self.cache = FeatureCache(self.shelf)

    def __call__(self, X: R) -> Float32:
        """Features of each row: (n, d); rows that are in the cache are not computed again."""
        return self.cache.find(self.encoder.digests(X), partial(self._compute, X))

    def _compute(self, X: R, rows: list[int]) -> Float32:
        from localma.gates.deep.training import make_accelerator

        device = make_accelerator(self.device, None).device
        network = self.encoder.network.to(device).eval()
        by_length = sorted(rows, key=partial(self.encoder.length, X))
        features: dict[int, Float32] = {}
        for start in range(0, len(rows), self.batch_size):
            batch_rows = by_length[start : start + self.batch_size]
            batch = {k: v.to(device) for k, v in self.encoder.batch(X, batch_rows).items()}
            features |= zip(batch_rows, _checked(_run(network, batch), batch_rows), strict=True)
        return np.stack([features[row] for row in rows])


def _run(network: nn.Module, batch: dict[str, Tensor]) -> Float32:
    import torch

    from localma.gates.deep.networks import FAILURES

    try:
        with torch.inference_mode():
            return network(**batch).float().cpu().numpy()
    except FAILURES as error:
        shapes = [tuple(value.shape) for value in batch.values()]
        raise InvalidInputError(
            f"A frozen network must accept the rows; it failed on rows of shape {shapes} "
            f"({type(error).__name__}: {shorten(str(error), 200, placeholder='...')}). Pass the "
            "size of image or the length of text for which the network was designed. If memory is "
            "short, lower batch_size."
        ) from error


def _checked(features: Float32, rows: Sequence[int]) -> Float32:
    if features.ndim != 2 or len(features) != len(rows):
        raise InvalidInputError(
            "A frozen network must return one vector of features per row, shape "
            f"({len(rows)}, d); it returned {features.shape}. Pool or flatten its output."
        )
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        raise InvalidInputError(
            f"Features must be finite; those of row {rows[int(np.argmin(finite))]} are not. Check "
            "that row and the weights of the network."
        )
    return features


_opened: WeakValueDictionary[tuple[str, Path | None, int, str | None], FrozenFeatures[Any]] = (
    WeakValueDictionary()
)
"""Frozen networks in use, by fingerprint, cache folder, batch size and device."""


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class EncodedGate(Gate, Generic[R]):
    """A gate whose inputs are read by a network. `inner_` is the gate that learns the weights.

    Subclasses describe the parameters, and have defaults for those without one.
    """

    raw_inputs = True
    unsaved_parameters = (*Gate.unsaved_parameters, "cache", "checkpoint")

    _: KW_ONLY
    frozen: bool = False
    head: Gate | None = None
    cache: str | PathLike[str] | None = None
    shrinkage: float = 0.003
    n_epochs: int
    batch_size: int
    learning_rate: float
    validation_fraction: float = 0.1
    patience: int
    device: str | None = None
    mixed_precision: str | None = None
    checkpoint: str | PathLike[str] | None = None
    progress: bool | None = None
    random_state: RandomState = None

    @abstractmethod
    def _rows(self, X: RowSource, *, fitting: bool) -> R:
        """X as the network reads it; a fit also records what later rows must agree with."""

    @abstractmethod
    def _open_encoder(self) -> Encoder[R]:
        """The frozen network, and how it reads rows."""

    @abstractmethod
    def _trained_gate(self, *, restoring: bool) -> TorchGate:
        """The gate that trains the network; for restoring, its parameters may be random."""

    @abstractmethod
    def _fingerprint(self) -> str:
        """Hexadecimal digest of everything that predictions need and `arrays` does not contain."""

    @abstractmethod
    def _described(self) -> str:
        """Where the network comes from, for messages."""

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Learn the weights.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Not used.

        Returns
        -------
        Gate
            The fitted gate.
        """
        encoded = self._encode(data)
        self.inner_ = self._new_inner().fit(encoded, global_weights=global_weights)
        return self

    def fit_jobs(self, data: Labelled, jobs: Sequence[Job]) -> list[Self]:
        """Train one copy of this gate per job; a frozen network reads the rows once for all.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        jobs : sequence of Job
            The rows, shrinkage and seed of each training.

        Returns
        -------
        list of Gate
            The fitted gates, in the order of the jobs.
        """
        encoded = self._encode(data)
        n_copies = encoded.n_rows // data.n_rows
        inner = self._new_inner().fit_jobs(encoded, _on_copies(jobs, data.n_rows, n_copies))
        return [self._twin(job, gate) for job, gate in zip(jobs, inner, strict=True)]

    def predict_weights(self, X: RowSource) -> Array:
        """Return the weights of each row.

        Parameters
        ----------
        X : n inputs
            Texts or images.

        Returns
        -------
        (n, M) array
            The weights: non-negative, with sum one in each row.
        """
        check_is_fitted(self)
        X, *_ = plain_arrays(X)
        if n_rows(X) == 0:
            return np.empty((0, len(self.global_weights_)))
        return self.inner_.predict_weights(self._inputs(self._rows(X, fitting=False)))

    @property
    def global_weights_(self) -> Array:
        """The weights to which shrinkage pulls: (M,)."""
        return self.inner_.global_weights_

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state for `restore`. A frozen network is not part of it.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        check_is_fitted(self)
        fingerprint = np.frombuffer(bytes.fromhex(self.fingerprint_), dtype=np.uint8)
        inner = {f"inner.{name}": array for name, array in self.inner_.arrays().items()}
        return {"encoder": fingerprint} | inner

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Restore the fitted state, checking that the network is the one of the fit.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays` of a fitted gate with the same parameters.

        Returns
        -------
        Gate
            The fitted gate.
        """
        self._check_parameters()
        self.fingerprint_ = arrays["encoder"].tobytes().hex()
        self._check_unchanged()
        inner = arrays_below(arrays, "inner.")
        self._check_sizes(inner)
        self.inner_ = self._new_inner(restoring=True).restore(inner)
        return self

    def _check_sizes(self, arrays: dict[str, AnyArray]) -> None:
        """Raise an error if the network does not have parameters of these shapes."""
        return

    def __sklearn_clone__(self) -> Self:
        # Modules and functions are never changed, so a copy of the gate may share them.
        parameters = self.get_params(deep=False)
        return type(self)(**parameters | {"head": clone(self.head, safe=False)})

    def __getstate__(self) -> dict[str, object]:
        """Leave the open network out of copies and pickles; it is opened again when needed."""
        return {name: v for name, v in super().__getstate__().items() if name != "_features"}

    def _encode(self, data: Labelled) -> Labelled:
        """Begin a fit: return the sample that the inner gate gets, with any copies of rows."""
        self._check_parameters()
        self.fingerprint_ = self._fingerprint()
        if self.frozen:
            self._features = self._open_features()
        sample = self._with_copies(replace(data, X=self._rows(data.X, fitting=True)))
        return replace(sample, X=self._inputs(sample.X))

    def _with_copies(self, data: Labelled) -> Labelled:
        """The rows to train on, which may be followed by augmented copies of all of them."""
        return data

    def _check_unchanged(self) -> None:
        if self._fingerprint() != self.fingerprint_:
            name = type(self).__name__
            raise FileFormatError(
                f"This {name} must read its inputs as it did when it was fitted, but "
                f"{self._described()} has changed since. Restore what it was, pass "
                f"load(path, gate={name}(...)) with the original, or fit again."
            )

    def _open_features(self) -> FrozenFeatures[R]:
        """Open the frozen network; all gates over the same network share one."""
        fingerprint, folder = self._fingerprint(), None
        if self.cache is not None:
            folder = Path(os.path.abspath(self.cache))
        key = (fingerprint, folder, self.batch_size, self.device)
        features = _opened.get(key)
        if features is None:
            shelf = None
            if folder is not None:
                entry = {"candidate": self._described(), "task": "features"}
                shelf = Shelf(folder, fingerprint[:32], entry, MAX_BYTES)
            features = FrozenFeatures(self._open_encoder(), shelf, self.batch_size, self.device)
            _opened[key] = features
        return features

    def _new_inner(self, *, restoring: bool = False) -> Gate:
        gate = self._new_head() if self.frozen else self._trained_gate(restoring=restoring)
        return gate.set_params(shrinkage=self.shrinkage, random_state=self.random_state)

    def _new_head(self) -> Gate:
        if self.head is None:
            return MLPGate((32,))
        if not self.head._can_shrink:
            raise InvalidInputError(
                f"head of {type(self).__name__} must be a gate with the parameters shrinkage and "
                f"random_state, such as MLPGate((16,)); received {self.head!r}."
            )
        return clone(self.head)

    def _torch_gate(self, module: MakeModule, shrink_to: str, **options: Any) -> TorchGate:
        """A `TorchGate` with the parameters that it has in common with this gate."""
        names = {field.name for field in fields(TorchGate)} & set(self.get_params(deep=False))
        parameters = {name: getattr(self, name) for name in names}
        return TorchGate(module, shrink_to=shrink_to, **parameters | options)

    def _inputs(self, rows: R) -> Any:
        """Inputs of the inner gate: features (n, d) of a frozen network, or the rows themselves."""
        if not self.frozen:
            return rows
        if "_features" not in vars(self):
            self._check_unchanged()
            self._features = self._open_features()
        return self._features(rows).astype(np.float64)

    def _twin(self, job: Job, inner: Gate) -> Self:
        """A fitted copy of this gate, which shares the open network with it."""
        twin = copy(self).set_params(shrinkage=job.shrinkage, random_state=job.random_state)
        twin.inner_ = inner
        if self.frozen:
            twin._features = self._features
        return twin


def _on_copies(jobs: Sequence[Job], n: int, n_copies: int) -> list[Job]:
    """The same jobs on rows that are followed by copies of all of them."""
    # Jobs on the same rows must share one array, so that the fused kernel trains them together.
    tiled = {
        id(job.rows): np.concatenate([job.rows + k * n for k in range(n_copies)])
        for job in jobs
        if job.rows is not None
    }
    return [replace(job, rows=tiled.get(id(job.rows))) for job in jobs]
