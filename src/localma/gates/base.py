"""What a gate is: a function from inputs to the simplex, learnt from predictions.

Most gates see tables of numbers only; those with `raw_inputs` take texts, images and data sets
too. Classification reaches them already reduced: under cross-entropy the one output of a row is the
probability of its observed class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError, unknown_name
from localma.folds import Fold
from localma.losses import Loss
from localma.tables.frames import take_rows, without_mask

Array = NDArray[np.floating]
ArrayTypes = Mapping[str, tuple[str, tuple[int, ...]]]
"""For each array the kinds that its type may have, as in ``dtype.kind``, and its shape."""


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
    path_parameters: ClassVar[tuple[str, ...]] = ()
    """Parameters that name files or folders which predictions need: followed only with trust."""
    unsaved_parameters: ClassVar[tuple[str, ...]] = ("cv", "random_state")
    """Parameters that predictions do not need; a saved model has none of them."""

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

    @property
    def n_candidates(self) -> int:
        """Number M of candidates that the fitted gate weighs."""
        return len(self.global_weights_)

    def _check_parameters(self) -> None:
        """Refuse parameters that break a rule, before a fit and in `restore`."""
        return

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The fitted state as named arrays, everything that `restore` needs."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> Self:
        """Take the fitted state back from named arrays.

        The arrays may come from somebody else's file. So check the gate's parameters as a fit
        does, then names, types, shapes and values; after that, weights must be on the simplex for
        any finite input.
        """


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


def numbered_arrays(
    arrays: Mapping[str, NDArray[Any]], prefix: str
) -> list[dict[str, NDArray[Any]]]:
    """Arrays named ``<prefix><k>.<name>``, one dict for each k = 0, 1, ..., in one pass.

    >>> numbered_arrays({"gate.0.mean": np.zeros(2), "gate.1.mean": np.ones(2)}, "gate.")[1]
    {'mean': array([1., 1.])}
    """
    by_number: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays_below(arrays, prefix).items():
        number, _, rest = name.partition(".")
        by_number.setdefault(number, {})[rest] = array
    numbers = [str(k) for k in range(len(by_number))]
    if set(numbers) != set(by_number):
        raise FileFormatError(
            f"Arrays named '{prefix}0', '{prefix}1', ... must be numbered without a gap."
        )
    return [by_number[number] for number in numbers]


def check_arrays(arrays: Mapping[str, NDArray[Any]], expected: ArrayTypes, who: str) -> None:
    """Refuse arrays that are not those expected; who : the gate and its parameters, for errors."""
    shapes = {name: array.shape for name, array in arrays.items()}
    wanted = {name: shape for name, (_, shape) in expected.items()}
    if shapes != wanted:
        raise FileFormatError(
            f"{who} is restored from arrays of the shapes {wanted}; received {shapes}. Pass what "
            "arrays() of a fitted gate with the same parameters returned."
        )
    for name, (kinds, _) in expected.items():
        array = arrays[name]
        if array.dtype.kind not in kinds:
            raise FileFormatError(
                f"The array {name!r} of {who} must not have the type {array.dtype}."
            )


def simplex_weights(weights: Any, name: str) -> NDArray[np.float64]:
    """Restore weights (M,); refuse what is not finite, non-negative and of sum one."""
    weights = np.asarray(weights)
    if weights.dtype.kind == "f":
        weights = weights.astype(np.float64)  # in which half precision cannot hide a wrong sum
        if weights.ndim == 1 and is_on_simplex(weights):
            return weights
    raise FileFormatError(
        f"The array {name!r} must hold non-negative weights of shape (M,) that sum to one; "
        f"received shape {weights.shape}, type {weights.dtype}, sum {weights.sum():g}."
    )


def is_on_simplex(weights: Array) -> bool:
    """Whether weights are non-negative and sum to one, up to rounding; False for none."""
    return bool(weights.size and (weights >= 0.0).all() and abs(weights.sum() - 1.0) <= 1e-6)


def is_count(value: Any) -> bool:
    """Whether a value is a positive integer.

    >>> is_count(3), is_count(0), is_count(True), is_count(2.0)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def is_number(value: Any) -> bool:
    """Whether a value is a real number; infinity is one, NaN and truth values are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


Rules = Sequence[tuple[str, Callable[[Any], bool], str]]
"""Of a parameter its name, what it must pass, and that in words."""


def check_rules(gate: Gate, choices: Mapping[str, tuple[Any, ...]], rules: Rules) -> None:
    """Refuse parameters of a gate that are not among their choices, or break a rule."""
    for name, known in choices.items():
        value = getattr(gate, name)
        if not isinstance(value, str | None) or value not in known:
            raise unknown_name(name, value, [choice for choice in known if choice is not None])
    for name, passes, rule in rules:
        value = getattr(gate, name)
        if not passes(value):
            raise InvalidInputError(
                f"{name} of {type(gate).__name__} must be {rule}; received {value!r}. Leave it out "
                "for the default."
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
