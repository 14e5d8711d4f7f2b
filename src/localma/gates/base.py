"""The interface of a gate: a function from inputs to the simplex.

Most gates take tables of numbers. Gates with `raw_inputs` also take texts, images and data sets.
In classification, a gate receives one output per row: the probability of the observed class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Float64, Rows
from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError, unknown_name
from localma.evidence import LocalityGain
from localma.folds import Fold
from localma.gates.labelled import Inputs, Labelled, plain_arrays
from localma.gates.support import Outside

Folds: TypeAlias = Sequence[Fold] | None
"""Pairs of training and test rows; None if the gate may make its own."""

Arrays: TypeAlias = Mapping[str, AnyArray]
ArrayTypes: TypeAlias = Mapping[str, tuple[str, tuple[int, ...]]]
"""For each array, the kinds that its type may have, as in ``dtype.kind``, and its shape."""


@dataclass(frozen=True)
class Job:
    """One training of a gate.

    Parameters
    ----------
    rows : (n_rows,) indices into the data; None for all rows
    shrinkage : strength of the pull to the global weights
    random_state : seed of the training
    global_weights : (M,) the weights to which shrinkage pulls; computed from `rows` if None
    """

    rows: Rows | None
    shrinkage: float
    random_state: int
    global_weights: Array | None = None


@dataclass(frozen=True)
class Saved:
    """One array of a fitted state: how files store it and how attributes hold it.

    Parameters
    ----------
    name : name of the array; that of the attribute has an underscore at the end
    axes : one letter per axis; axes with the same letter have the same length
    dtype : type of the attribute, which is a single number without any axes
    on_simplex : whether the numbers are weights that sum to one
    """

    name: str
    axes: str = ""
    dtype: type[np.generic] = np.float64
    on_simplex: bool = False

    @property
    def kinds(self) -> str:
        """Kinds of types that a stored array may have, as in ``dtype.kind``."""
        return "f" if issubclass(self.dtype, np.floating) else "iu"

    def attribute(self, array: AnyArray) -> AnyArray | float:
        """Convert a stored array to the value of the attribute."""
        if self.on_simplex:
            return simplex_weights(array, self.name)
        values = np.asarray(array, dtype=self.dtype)
        return values if self.axes else values.item()


class Evidence(Protocol):
    """Evidence of a gate that judges itself on held-out rows. See `ShrunkGate`."""

    path_: dict[str, list[Any]]
    locality_gain_: LocalityGain

    @property
    def verdict_(self) -> str:
        """The recommendation, with its evidence."""

    def describe(self, names: Sequence[str] | None = None, loss: str | None = None) -> str:
        """Write the verdict with the names of the candidates and of the loss."""

    def weight_band(self, X: Inputs, level: float = 0.9) -> tuple[Array, Array]:
        """Band of the weights of each row: (n, p) -> two arrays (n, M)."""


class Gate(BaseEstimator, ABC):
    """A function ``x -> w(x)`` on the simplex. Subclasses are final.

    A gate that can be shrunk has the parameters `shrinkage` and `random_state`.
    """

    needs_folds: ClassVar[bool] = False
    """Whether the gate chooses by held-out rows; the estimator then passes its folds."""
    needs_inputs: ClassVar[bool] = True
    """Whether weights depend on the inputs; if not, X may have no columns."""
    learns: ClassVar[bool] = True
    """Whether weights depend on the sample."""
    is_global: ClassVar[bool] = False
    """Whether the weights are the global ones."""
    code_parameters: ClassVar[tuple[str, ...]] = ()
    """Parameters with code that predictions need: saved by import name, or passed to `load`."""
    path_parameters: ClassVar[tuple[str, ...]] = ()
    """Parameters that name files or folders which predictions need; followed only with trust."""
    unsaved_parameters: ClassVar[tuple[str, ...]] = ("cv", "random_state")
    """Parameters that predictions do not need and files do not store."""
    state: ClassVar[tuple[Saved, ...]] = ()
    """The arrays of the fitted state, from which `arrays` and `restore` follow."""

    @property
    def raw_inputs(self) -> bool:
        """Whether inputs may be lists, tensors or data sets instead of a table of numbers.

        A frame or a numeric array of two dimensions is checked as a table for every gate.
        """
        return False

    def reads_in_parts(self, n_rows: int, n_groups: int | None = None) -> bool:
        """Whether a sample of this size may be an object that reads rows when they are indexed.

        It has `shape`, `dtype` and a length, and ``X[rows]`` is an array.
        """
        return False

    def judging_folds(self, n_rows: int, n_groups: int | None = None) -> int | None:
        """Number of folds that judge a sample of this size; None if all do."""
        return None

    @property
    def evidence(self) -> Evidence | None:
        """Evidence from held-out rows; None if the gate does not judge itself."""
        return None

    @property
    def is_constant(self) -> bool:
        """Whether the fitted weights are known to be the same for every input."""
        return False

    @property
    def fades(self) -> bool:
        """Whether local weights fade to the global ones for inputs unlike the sample."""
        return False

    @property
    def members(self) -> Sequence[Gate]:
        """The fitted gates that give the local weights: this gate, or those that it averages."""
        return [self]

    @abstractmethod
    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Learn the weights.

        Parameters
        ----------
        data : the labelled sample, such as ``Labelled.of(X, P, y, loss=loss)``
        global_weights : (M,) the weights to which shrinkage pulls; computed if None
        folds : (train, test) pairs of rows, for gates that choose by held-out rows
        """

    @abstractmethod
    def predict_weights(self, X: Inputs) -> Array:
        """Weights of each row: (n, p) -> (n, M), non-negative, summing to one."""

    def average(self, X: Inputs, P: Array) -> Array:
        """Predictions averaged with the weights of each row: (n, p), (n, M[, K]) -> (n[, K])."""
        X, P, *_ = plain_arrays(X, P)
        return local_average(self.predict_weights(X), P)

    def support(self, X: Inputs) -> Array:
        """Share of the local weights that is used in each row: (n, p) -> (n,), from 0 to 1."""
        return np.ones(len(X))

    def outside(self, X: Inputs) -> Outside | None:
        """Describe the rows (n, p) without local weights; None if there are none."""
        return None

    def fit_jobs(self, data: Labelled, jobs: Sequence[Job]) -> list[Self]:
        """Train one copy of this gate per job, on shared data."""
        fitted = []
        for job in jobs:
            gate = clone(self).set_params(shrinkage=job.shrinkage, random_state=job.random_state)
            sample = data
            if job.rows is not None:
                sample = data.take(job.rows)
            fitted.append(gate.fit(sample, global_weights=job.global_weights))
        return fitted

    @property
    def n_candidates(self) -> int:
        """Number M of candidates that the fitted gate weighs."""
        return len(self.global_weights_)

    def _check_parameters(self) -> None:
        """Refuse parameters that break a rule, before a fit and in `restore`."""
        return

    def _check_state(self) -> None:
        """Refuse restored attributes that break a rule, and set those that follow from them."""
        return

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state as named arrays, all that `restore` needs."""
        check_is_fitted(self)
        return {saved.name: np.asarray(getattr(self, saved.name + "_")) for saved in self.state}

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Set the fitted state from named arrays.

        The arrays may come from an untrusted file. So the parameters are checked as in a fit, then
        names, types, shapes and values of the arrays. Afterwards the weights are on the simplex
        for any finite input.
        """
        self._check_parameters()
        lengths = self._lengths(arrays)
        for name, value in read_state(arrays, self.state, self._state_owner, **lengths).items():
            setattr(self, name + "_", value)
        self._check_state()
        return self

    def _lengths(self, arrays: Arrays) -> dict[str, int]:
        """Lengths of axes of the state, by letter, that follow from other arrays."""
        return {}

    @property
    def _state_owner(self) -> str:
        """Name of this gate in errors."""
        return type(self).__name__


def read_state(
    arrays: Arrays, state: Sequence[Saved], owner: str, **lengths: int
) -> dict[str, Any]:
    """Check named arrays and convert each to the value of its attribute.

    Parameters
    ----------
    owner : name of the object in errors
    lengths : length of an axis by its letter; an axis without one has that of the arrays

    Examples
    --------
    >>> read_state({"gap": np.array(0.5)}, [Saved("gap")], "GlobalGate")
    {'gap': 0.5}
    """
    for saved in state:
        shape = np.shape(arrays.get(saved.name, ()))
        lengths = dict(zip(saved.axes, shape, strict=False)) | lengths
    expected = {
        saved.name: (saved.kinds, tuple(lengths.get(axis, 0) for axis in saved.axes))
        for saved in state
    }
    check_arrays(arrays, expected, owner)
    return {saved.name: saved.attribute(arrays[saved.name]) for saved in state}


def arrays_below(arrays: Arrays, prefix: str) -> dict[str, AnyArray]:
    """Select arrays by a prefix of their names, and remove it.

    >>> list(arrays_below({"gate.mean": np.zeros(2), "size": np.zeros(1)}, "gate."))
    ['mean']
    """
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def check_numbers(X: AnyArray) -> None:
    """Refuse inputs that are not numbers, such as dates, which NumPy would convert silently."""
    if X.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"Inputs of a gate must be real numbers; received dtype {X.dtype}. Convert them first, "
            "for example with TableEncoder."
        )


def check_table(X: AnyArray) -> None:
    """Refuse inputs of a fit that are not a table (n, p) of numbers."""
    check_numbers(X)
    if X.ndim != 2:
        raise InvalidInputError(
            f"This gate takes inputs X of shape (n, p); received an array of shape {X.shape}. Give "
            "a single input an axis of length one."
        )


def numbered_arrays(arrays: Arrays, prefix: str) -> list[dict[str, AnyArray]]:
    """Collect arrays named ``<prefix><k>.<name>`` into one dict for each k = 0, 1, ...

    >>> numbered_arrays({"gate.0.mean": np.zeros(2), "gate.1.mean": np.ones(2)}, "gate.")[1]
    {'mean': array([1., 1.])}
    """
    by_number: dict[str, dict[str, AnyArray]] = {}
    for numbered_name, array in arrays_below(arrays, prefix).items():
        number, _, name = numbered_name.partition(".")
        by_number.setdefault(number, {})[name] = array
    numbers = [str(k) for k in range(len(by_number))]
    if set(numbers) != set(by_number):
        raise FileFormatError(
            f"Arrays named '{prefix}0', '{prefix}1', ... must be numbered without a gap."
        )
    return [by_number[number] for number in numbers]


def check_arrays(arrays: Arrays, expected: ArrayTypes, owner: str) -> None:
    """Refuse arrays with unexpected names, shapes or types; owner : its name in errors."""
    shapes = {name: array.shape for name, array in arrays.items()}
    expected_shapes = {name: shape for name, (_, shape) in expected.items()}
    if shapes != expected_shapes:
        raise FileFormatError(
            f"{owner} is restored from arrays of the shapes {expected_shapes}; received {shapes}. "
            "Pass the result of arrays() of a fitted gate with the same parameters."
        )
    for name, (kinds, _) in expected.items():
        if arrays[name].dtype.kind not in kinds:
            raise FileFormatError(
                f"The array {name!r} of {owner} must not have the type {arrays[name].dtype}."
            )


def simplex_weights(weights: AnyArray, name: str) -> Float64:
    """Restore weights (M,); refuse weights that are not finite, non-negative and of sum one."""
    if weights.dtype.kind == "f":
        precise: Float64 = weights.astype(np.float64)  # half precision could hide a wrong sum
        if weights.ndim == 1 and is_on_simplex(precise):
            return precise
    total = np.real(weights).sum(dtype=np.float64)
    raise FileFormatError(
        f"The array {name!r} must hold non-negative weights of shape (M,) that sum to one; "
        f"received shape {weights.shape}, type {weights.dtype}, sum {total:g}."
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
    """Whether a value is a real number: infinity is allowed, NaN and booleans are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def is_positive(value: Any) -> bool:
    """Whether a value is a positive, finite number."""
    return is_number(value) and 0.0 < value < np.inf


def is_finite_size(value: Any) -> bool:
    """Whether a value is a finite number, zero or more."""
    return is_number(value) and 0.0 <= value < np.inf


def is_flag(value: Any) -> bool:
    """Whether a value is True or False."""
    return isinstance(value, bool | np.bool_)


def or_none(passes: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Extend a test, so that None passes too.

    >>> or_none(is_count)(None), or_none(is_count)(0)
    (True, False)
    """
    return lambda value: value is None or passes(value)


Rules: TypeAlias = Sequence[tuple[str, Callable[[Any], bool], str]]
"""For each parameter its name, a test, and the test in words."""


def check_rules(gate: Gate, choices: Mapping[str, tuple[str | None, ...]], rules: Rules) -> None:
    """Refuse parameters of a gate that are not among their choices, or break a rule."""
    for name, allowed in choices.items():
        value = getattr(gate, name)
        if not isinstance(value, str | None) or value not in allowed:
            raise unknown_name(name, value, [choice for choice in allowed if choice is not None])
    for name, passes, rule in rules:
        value = getattr(gate, name)
        if not passes(value):
            raise InvalidInputError(
                f"{name} of {type(gate).__name__} must be {rule}; received {value!r}. Leave it out "
                "for the default."
            )


def check_inputs(gate: Gate, X: AnyArray) -> None:
    """Refuse inputs that have not as many columns as those of the fit."""
    check_numbers(X)
    p = gate.n_features_in_
    if X.ndim != 2 or X.shape[1] != p:
        raise InvalidInputError(
            f"This {type(gate).__name__} was fitted on {p} inputs; received an array of shape "
            f"{X.shape}. Pass X of shape (n, {p})."
        )
