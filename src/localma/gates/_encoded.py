"""Gates over raw rows, such as texts and images: a network reads them, and is frozen or trained.

Frozen, its features are computed once and the fused network of `MLPGate` learns the weights on top.
Otherwise `TorchGate` trains the whole network.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from localma.errors import FileFormatError, InvalidInputError
from localma.folds import Fold
from localma.gates._frozen import FrozenFeatures
from localma.gates.base import Gate, Job, arrays_below
from localma.gates.labelled import Labelled, plain_arrays
from localma.gates.mlp import MLPGate
from localma.gates.module import TorchGate
from localma.tables.frames import n_rows

Array = NDArray[np.floating]
Arrays = dict[str, NDArray[Any]]


class EncodedGate(Gate):
    """A gate whose inputs a network reads. What it learns is in `inner_`, a gate of its own.

    Subclasses have at least the parameters `frozen`, `head`, `shrinkage` and `random_state`.
    """

    unsaved_parameters: ClassVar[tuple[str, ...]] = (
        *Gate.unsaved_parameters,
        "cache",
        "checkpoint",
    )

    frozen: bool
    head: Gate | None
    shrinkage: float
    random_state: Any

    @property
    def raw_inputs(self) -> bool:
        """True: inputs are texts or images."""
        return True

    @abstractmethod
    def _check_parameters(self) -> None:
        """Refuse parameters that break a rule."""

    @abstractmethod
    def _rows(self, X: Any, *, fitting: bool) -> Any:
        """X as the network reads it; in fitting, what later rows must agree with is recorded."""

    @abstractmethod
    def _open_features(self) -> FrozenFeatures:
        """The frozen network, and the features that it has computed so far."""

    @abstractmethod
    def _trained_whole(self, *, restoring: bool) -> TorchGate:
        """The gate that trains the network; in restoring it need not know where training began."""

    @abstractmethod
    def _fingerprint(self) -> str:
        """Hexadecimal digest of all that predictions depend on and `arrays` does not hold."""

    @abstractmethod
    def _described(self) -> str:
        """Where the network comes from, for messages."""

    def fit(
        self,
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Learn the weights; `folds` play no part. See `Gate.fit`."""
        encoded = self._encode(data)
        self.inner_ = self._inner().fit(encoded, global_weights=global_weights)
        return self

    def fit_jobs(self, data: Labelled, jobs: Sequence[Job]) -> list[Self]:
        """Train one copy of this gate per job; a frozen network reads the rows once for all."""
        encoded = self._encode(data)
        n_copies = encoded.n_rows // data.n_rows
        inner = self._inner().fit_jobs(encoded, _on_copies(jobs, data.n_rows, n_copies))
        return [self._twin(job, gate) for job, gate in zip(jobs, inner, strict=True)]

    def predict_weights(self, X: Any) -> Array:
        """Weights of each row: (n, M), non-negative, summing to one."""
        check_is_fitted(self)
        X, *_ = plain_arrays(X)
        if n_rows(X) == 0:
            return np.empty((0, len(self.global_weights_)))
        return self.inner_.predict_weights(self._inputs(self._rows(X, fitting=False)))

    def support(self, X: Any) -> Array:
        """One in each row: the local part is used everywhere."""
        return np.ones(n_rows(X))

    @property
    def global_weights_(self) -> Array:
        """The weights to which shrinkage pulls: (M,)."""
        weights: Array = self.inner_.global_weights_
        return weights

    def arrays(self) -> Arrays:
        """The fitted state: what `restore` takes. A frozen network is not in it."""
        check_is_fitted(self)
        own = np.frombuffer(bytes.fromhex(self.fingerprint_), dtype=np.uint8)
        return {"encoder": own} | {f"inner.{k}": v for k, v in self.inner_.arrays().items()}

    def restore(self, arrays: Arrays) -> Self:
        """Take the fitted state back, checking that the network is the one that was used."""
        self._check_parameters()
        self.fingerprint_ = arrays["encoder"].tobytes().hex()
        self._check_unchanged()
        own = arrays_below(arrays, "inner.")
        self._check_sizes(own)
        self.inner_ = self._inner(restoring=True).restore(own)
        return self

    def _check_sizes(self, arrays: Arrays) -> None:
        """Refuse arrays of an inner gate that a network, made at their size, would not take."""
        return

    def __sklearn_clone__(self) -> Self:
        # Modules and functions are never changed, so a copy of the gate may share them.
        own = self.get_params(deep=False)
        return type(self)(**{k: v if callable(v) else clone(v, safe=False) for k, v in own.items()})

    def __getstate__(self) -> dict[str, Any]:
        """Leave the opened network out of copies and pickles: it is opened again where needed."""
        return {k: v for k, v in super().__getstate__().items() if k != "_opened"}

    def _encode(self, data: Labelled) -> Labelled:
        """Begin a fit: the sample as the inner gate sees it, copies of its rows included.

        A network that was opened before stays only if no parameter has changed.
        """
        self._check_parameters()
        self.fingerprint_ = self._fingerprint()
        if self.frozen:
            self._opened = self._open_features()
        sample = self._with_copies(replace(data, X=self._rows(data.X, fitting=True)))
        return replace(sample, X=self._inputs(sample.X))

    def _with_copies(self, data: Labelled) -> Labelled:
        """The rows to train on; changed copies of all of them may follow."""
        return data

    def _check_unchanged(self) -> None:
        if self._fingerprint() != self.fingerprint_:
            raise FileFormatError(
                f"This {type(self).__name__} must read its inputs as it did when it was fitted, "
                f"and {self._described()} has changed since. Put back what it was, pass "
                f"load(path, gate={type(self).__name__}(...)) with one that has not, or fit again."
            )

    def _inner(self, *, restoring: bool = False) -> Any:
        gate: Gate = self._new_head() if self.frozen else self._trained_whole(restoring=restoring)
        return gate.set_params(shrinkage=self.shrinkage, random_state=self.random_state)

    def _new_head(self) -> Gate:
        if self.head is None:
            return MLPGate((32,))
        if not {"shrinkage", "random_state"} <= set(self.head.get_params(deep=False)):
            raise InvalidInputError(
                f"head of {type(self).__name__} must be a gate with the parameters shrinkage and "
                f"random_state, such as MLPGate((16,)); received {self.head!r}."
            )
        return clone(self.head)

    def _inputs(self, rows: Any) -> Any:
        """Inputs of the inner gate: features (n, d) of a frozen network, or the rows themselves."""
        if not self.frozen:
            return rows
        if "_opened" not in vars(self):
            self._check_unchanged()
            self._opened = self._open_features()
        return self._opened(rows).astype(np.float64)

    def _twin(self, job: Job, inner: Gate) -> Self:
        """A fitted copy of this gate, which shares the opened network with it."""
        same = self.get_params(deep=False)
        twin = type(self)(**same | {"shrinkage": job.shrinkage, "random_state": job.random_state})
        twin.__dict__.update({k: v for k, v in vars(self).items() if k not in same})
        twin.inner_ = inner
        return twin


def _on_copies(jobs: Sequence[Job], n: int, n_copies: int) -> list[Job]:
    """The same jobs on rows that are followed by copies of all of them."""
    if n_copies == 1:
        return list(jobs)
    # Jobs on the same rows keep sharing one array, which the fused kernel makes use of.
    tiled = {
        id(job.rows): np.concatenate([job.rows + k * n for k in range(n_copies)])
        for job in jobs
        if job.rows is not None
    }
    return [replace(job, rows=None if job.rows is None else tiled[id(job.rows)]) for job in jobs]
