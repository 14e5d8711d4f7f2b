"""What a gate is: a function from inputs to the simplex, learnt from predictions.

Most gates see tables of numbers only; those with `raw_inputs` take texts, images and data sets
too. Classification reaches them already reduced: under cross-entropy the one output of a row is the
probability of its observed class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from localma.combine import local_average
from localma.errors import InvalidInputError
from localma.folds import Fold
from localma.frames import take_rows, without_mask
from localma.losses import Loss

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Job:
    """One training of a gate on one data set: which rows, how much shrinkage, which seed.

    rows : (n_rows,) indices into the data, or None for all of them.
    global_weights : (M,) the weights to which shrinkage pulls; computed from `rows` if None.
    """

    rows: NDArray[np.intp] | None
    shrinkage: float
    random_state: int
    global_weights: Array | None = None


class Gate(BaseEstimator, ABC):
    """A function ``x -> w(x)`` on the simplex. Subclasses are final.

    A gate that can be shrunk has the parameters `shrinkage` and `random_state`. One that
    chooses by held-out rows sets `needs_folds`, and is given the folds of the estimator, and the
    numbers `groups` (n,) of what rows belong to where there are such. One whose weights are the
    same everywhere unsets `needs_inputs`: X may have no column for it to see.
    """

    needs_folds: ClassVar[bool] = False
    needs_inputs: ClassVar[bool] = True
    code_parameters: ClassVar[tuple[str, ...]] = ()
    """Parameters that hold code which predictions need: saved by import name, or given again."""

    @property
    def raw_inputs(self) -> bool:
        """Whether inputs need not be a table of numbers: lists, tensors, data sets come as given.

        A frame or a numeric array of two dimensions is checked as a table for every gate.
        """
        return False

    def reads_in_parts(self, n_rows: int, n_groups: int | None = None) -> bool:
        """Whether a sample of this size may be an object that gives rows only when asked for them.

        It has `shape`, `dtype` and a length, and ``X[rows]`` is an array.
        """
        return False

    @abstractmethod
    def fit(
        self,
        X: Array,
        P: Array,
        y: Array,
        *,
        loss: Loss,
        sample_weight: Array | None = None,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Learn the weights.

        Parameters
        ----------
        X : (n, p) inputs of the gate.
        P : (n, M, K) predictions of the candidates.
        y : (n, K) targets.
        loss : the loss to minimise, on the scale of the predictions.
        sample_weight : (n,) or None.
        global_weights : (M,) the weights to which shrinkage pulls; computed if None.
        folds : (train, test) pairs of rows, for gates that choose by held-out rows.
        """

    @abstractmethod
    def predict_weights(self, X: Array) -> Array:
        """Weights of each row: (n, p) -> (n, M), non-negative, summing to one."""

    def average(self, X: Array, P: Array) -> Array:
        """Predictions averaged with the weights of each row: (n, p), (n, M[, K]) -> (n[, K])."""
        X, P, *_ = plain_arrays(X, P)
        return local_average(self.predict_weights(X), P)

    def support(self, X: Array) -> Array:
        """How much of the local part is used in each row: (n, p) -> (n,), between 0 and 1."""
        return np.ones(len(X))

    def fit_jobs(
        self,
        X: Array,
        P: Array,
        y: Array,
        *,
        loss: Loss,
        jobs: Sequence[Job],
        sample_weight: Array | None = None,
    ) -> list[Self]:
        """Train one copy of this gate per job, on shared data; an engine may do them at once."""
        fitted = []
        for job in jobs:
            rows = slice(None) if job.rows is None else job.rows
            gate = clone(self).set_params(shrinkage=job.shrinkage, random_state=job.random_state)
            weight = None if sample_weight is None else sample_weight[rows]
            gate.fit(
                X if job.rows is None else take_rows(X, job.rows),
                P[rows],
                y[rows],
                loss=loss,
                sample_weight=weight,
                global_weights=job.global_weights,
            )
            fitted.append(gate)
        return fitted

    def fetches(self) -> str | None:
        """What restoring it would fetch from elsewhere, which only a trusted file may ask for."""
        return None

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The fitted state as named arrays, everything that `restore` needs."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> Self:
        """Take the fitted state back from named arrays, checking shapes."""


def arrays_below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Arrays whose names begin with the prefix, under the rest of their names.

    >>> list(arrays_below({"gate.mean": np.zeros(2), "size": np.zeros(1)}, "gate."))
    ['mean']
    """
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def plain_arrays(X: Any, P: Any = None, y: Any = None, sample_weight: Any = None) -> list[Any]:
    """The same as plain arrays; refuse those whose masks hide values, which a gate would read."""
    arrays = {"X": X, "P": P, "y": y, "sample_weight": sample_weight}
    return [without_mask(values, name) for name, values in arrays.items()]


def check_numbers(X: Any) -> None:
    """Refuse inputs that are no numbers, such as dates, which NumPy would convert silently."""
    if X.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"Inputs of a gate must be real numbers; received dtype {X.dtype}. Convert them first, "
            "for example with TableEncoder."
        )


def check_inputs(gate: Gate, X: Array) -> None:
    """Refuse inputs of another width than those on which the gate was fitted."""
    check_numbers(X)
    p = gate.n_features_in_
    if X.ndim != 2 or X.shape[1] != p:
        raise InvalidInputError(
            f"This {type(gate).__name__} was fitted on {p} inputs; received an array of shape "
            f"{X.shape}. Pass X of shape (n, {p})."
        )
