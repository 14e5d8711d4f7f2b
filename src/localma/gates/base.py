"""The interface of a gate: a function from inputs to the simplex.

Most gates take tables of numbers. Gates with `raw_inputs` also take texts, images and data sets.
In classification, a gate receives one output per row: the probability of the observed class.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from localma._tasks import run_parts
from localma._types import AnyArray, Array, Float64, Integers, RandomState, RowMask, Rows
from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError, unknown_name
from localma.evidence import LocalityGain
from localma.folds import Fold
from localma.gates.labelled import Inputs, Labelled, plain_arrays

if TYPE_CHECKING:
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
    rows : (n_rows,) array of int or None
        Rows of the sample to train on; None for all rows.
    shrinkage : float
        Strength of the pull to the global weights.
    random_state : int
        Seed of the training.
    global_weights : (M,) array, optional
        The weights to which shrinkage pulls. By default they are computed from the rows.

    Examples
    --------
    >>> Job(np.arange(50), shrinkage=0.01, random_state=0).shrinkage
    0.01
    """

    rows: Rows | None
    shrinkage: float
    random_state: int
    global_weights: Array | None = None


@dataclass(frozen=True)
class Earlier:
    """A fitted gate that weighs some of the same candidates.

    Parameters
    ----------
    gate : Gate
        The fitted gate.
    candidates : (M,) array of int
        For each candidate of the new gate, its position in the fitted gate; -1 for a new one.

    Examples
    --------
    >>> from localma.gates import EqualGate
    >>> Earlier.without(EqualGate(), np.array([True, False, True])).candidates.tolist()
    [0, 2]
    """

    gate: Gate
    candidates: Integers

    @classmethod
    def without(cls, gate: Gate, kept: RowMask) -> Self:
        """Keep some of the candidates of a gate: kept (M,)."""
        return cls(gate, np.flatnonzero(kept))


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


def is_count(value: object) -> bool:
    """Whether a value is a positive integer.

    >>> is_count(3), is_count(0), is_count(True), is_count(2.0)
    (True, False, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def is_number(value: object) -> bool:
    """Whether a value is a real number: infinity is allowed, NaN and booleans are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


@dataclass(frozen=True)
class Rule:
    """A test of a parameter, and the test in words.

    >>> COUNT.or_none().text, COUNT.or_none().passes(None), COUNT.passes(0)
    ('a positive integer, or None', True, False)
    """

    passes: Callable[[Any], bool]
    text: str

    def or_none(self) -> Rule:
        """Extend the rule, so that None passes too."""
        return Rule(lambda value: value is None or self.passes(value), f"{self.text}, or None")

    def each(self, text: str, lengths: Container[int] = range(sys.maxsize)) -> Rule:
        """Extend the rule to sequences of some lengths, all of whose items must obey it."""

        def passes(value: Any) -> bool:
            is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
            return is_list and len(value) in lengths and all(map(self.passes, value))

        return Rule(passes, text)


COUNT = Rule(is_count, "a positive integer")
FLAG = Rule(lambda value: isinstance(value, bool | np.bool_), "True or False")
REAL = Rule(lambda value: is_number(value) and abs(value) < np.inf, "a finite number")
POSITIVE = Rule(lambda value: is_number(value) and 0.0 < value < np.inf, "a positive number")
FINITE = Rule(lambda value: is_number(value) and 0.0 <= value < np.inf, "at least 0 and finite")
SHRINKAGE = Rule(
    lambda value: is_number(value) and value >= 0.0, "at least 0 (infinity is the global gate)"
)


class Evidence(Protocol):
    """Evidence of a gate that judges itself on held-out rows. See `ShrunkGate`."""

    path_: dict[str, list[Any]]
    locality_gain_: LocalityGain

    @property
    def verdict_(self) -> str:
        """The recommendation, with its evidence."""

    def describe(self, names: Sequence[str] | None = None, loss: str | None = None) -> str:
        """Write the verdict with the names of the candidates and of the loss."""

    @property
    def has_band(self) -> bool:
        """Whether enough folds judged for a band of the weights."""

    def weight_band(self, X: Inputs, level: float = 0.9) -> tuple[Array, Array]:
        """Band of the weights of each row: (n, p) -> two arrays (n, M)."""

    def predict_interval(self, X: Inputs, P: Array, level: float = 0.9) -> tuple[Array, Array]:
        """Ends of an interval of each target: (n, p), (n, M, ...) -> two arrays (n, ...)."""

    def predict_set(self, X: Inputs, P: Array, level: float = 0.9) -> RowMask:
        """Classes of each row: (n, p), (n, M, K) -> (n, K)."""


class Gate(BaseEstimator, ABC):
    """A function ``x -> w(x)`` on the simplex. Subclasses are final.

    A gate that can be shrunk has the parameters `shrinkage` and `random_state`.

    Examples
    --------
    >>> from localma.gates import MLPGate
    >>> isinstance(MLPGate(), Gate)
    True
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
    parameters_of_older_files: ClassVar[Mapping[str, Any]] = {}
    """Values of parameters in files that were written before the parameters existed."""
    state: ClassVar[tuple[Saved, ...]] = ()
    """The arrays of the fitted state, from which `arrays` and `restore` follow."""
    _choices: ClassVar[Mapping[str, tuple[str | None, ...]]] = {}
    """For some parameters, the values that they may have."""
    _rules: ClassVar[Mapping[str, Rule]] = {}
    """For some parameters, the rule that they must obey."""

    @property
    def raw_inputs(self) -> bool:
        """Whether inputs may be lists, tensors or data sets instead of a table of numbers.

        A frame or a numeric array of two dimensions is checked as a table for every gate.
        """
        return False

    def reads_in_parts(self, n_rows: int, n_groups: int | None = None) -> bool:
        """Tell whether a sample of this size may be an object that reads rows when indexed.

        Such an object has `shape`, `dtype` and a length, and ``X[rows]`` is an array.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_groups : int, optional
            Number of groups; None if rows are independent.

        Returns
        -------
        bool
            Whether the gate takes such an object.
        """
        return False

    def judging_folds(self, n_rows: int, n_groups: int | None = None) -> int | None:
        """Return the number of folds that judge a sample of this size.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_groups : int, optional
            Number of groups; None if rows are independent.

        Returns
        -------
        int or None
            Number of folds; None if all do.
        """
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
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Pairs of arrays of rows, for gates that choose by held-out rows.

        Returns
        -------
        Gate
            The fitted gate.
        """

    def fit_after(
        self,
        earlier: Earlier,
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Folds = None,
    ) -> Self:
        """Learn the weights, starting from an earlier gate if that saves time.

        Parameters
        ----------
        earlier : Earlier
            A fitted gate of this class, which weighs some of the candidates.
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Pairs of arrays of rows, for gates that choose by held-out rows.

        Returns
        -------
        Gate
            The fitted gate.
        """
        return self.fit(data, global_weights=global_weights, folds=folds)

    @abstractmethod
    def predict_weights(self, X: Inputs) -> Array:
        """Return the weights of each row.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        (n, M) array
            The weights: non-negative, with sum one in each row.
        """

    def average(self, X: Inputs, P: Array) -> Array:
        """Average predictions with the weights of each row.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.
        P : (n, M) or (n, M, K) array
            Predictions of the candidates.

        Returns
        -------
        (n,) or (n, K) array
            The averages.
        """
        X, P, *_ = plain_arrays(X, P)
        return local_average(self.predict_weights(X), P)

    def support(self, X: Inputs) -> Array:
        """Return the share of the local weights that is used in each row.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        (n,) array
            Numbers from 0 to 1.
        """
        return np.ones(len(X))

    def weights_and_support(self, X: Inputs) -> tuple[Array, Array]:
        """Return what `predict_weights` and `support` return, in one pass if that is faster.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        ((n, M) array, (n,) array)
            The weights and the support.
        """
        return self.predict_weights(X), self.support(X)

    def outside(self, X: Inputs) -> Outside | None:
        """Describe the rows without local weights.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        Outside or None
            Their share, and the input that puts most of them there; None if there are none.
        """
        return None

    def fit_jobs(self, data: Labelled, jobs: Sequence[Job]) -> list[Self]:
        """Train one copy of this gate per job, on shared data.

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
        return run_parts(_fit_job, (self, data), [(job,) for job in jobs])

    @property
    def _can_shrink(self) -> bool:
        """Whether the gate has the parameters `shrinkage` and `random_state`."""
        return {"shrinkage", "random_state"} <= set(self.get_params(deep=False))

    @property
    def n_candidates(self) -> int:
        """Number M of candidates that the fitted gate weighs."""
        return len(self.global_weights_)

    def _check_parameters(self) -> None:
        """Refuse parameters that break a rule, before a fit and in `restore`."""
        for name, allowed in self._choices.items():
            value = getattr(self, name)
            if not isinstance(value, str | None) or value not in allowed:
                names = [choice for choice in allowed if choice is not None]
                raise unknown_name(name, value, names)
        for name, rule in self._rules.items():
            value = getattr(self, name)
            if not rule.passes(value):
                raise InvalidInputError(
                    f"{name} of {type(self).__name__} must be {rule.text}; received {value!r}. "
                    "Leave it out for the default."
                )

    def _check_state(self) -> None:
        """Refuse restored attributes that break a rule, and set those that follow from them."""
        return

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state as named arrays, all that `restore` needs.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        check_is_fitted(self)
        return {saved.name: np.asarray(getattr(self, saved.name + "_")) for saved in self.state}

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Set the fitted state from named arrays.

        The arrays may come from an untrusted file. So the parameters are checked as in a fit, then
        names, types, shapes and values of the arrays. Afterwards the weights are on the simplex
        for any finite input.

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


def integer_seed(seed: RandomState) -> int:
    """Return the seed itself, or one that the generator draws.

    >>> integer_seed(7)
    7
    """
    if isinstance(seed, int | np.integer):
        return int(seed)
    return int(check_random_state(seed).randint(2**31))


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
        on_simplex = (precise >= 0.0).all() and abs(precise.sum() - 1.0) <= 1e-6
        if weights.ndim == 1 and weights.size and on_simplex:
            return precise
    total = np.real(weights).sum(dtype=np.float64)
    raise FileFormatError(
        f"The array {name!r} must hold non-negative weights of shape (M,) that sum to one; "
        f"received shape {weights.shape}, type {weights.dtype}, sum {total:g}."
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


def _fit_job(shared: tuple[Gate, Labelled], job: Job) -> Gate:
    """Train a copy of a gate on the rows of a job."""
    gate, data = shared
    gate = clone(gate).set_params(shrinkage=job.shrinkage, random_state=job.random_state)
    sample = data if job.rows is None else data.take(job.rows)
    return gate.fit(sample, global_weights=job.global_weights)
