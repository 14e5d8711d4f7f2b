"""A fitted model with some rows: the input of every part of a summary.

Weights, bands and predictions are computed once, when a part first needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from localma._types import AnyArray, Array, Float64, Integers, RowMask, Rows
from localma.candidates.outputs import Table, check_no_label_missing, listed, unknown_classes
from localma.checks.losses import check_predictions, check_targets
from localma.equations import global_average, local_average, row_losses
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.estimators.inputs import check_inputs
from localma.estimators.predictions import all_predictions
from localma.evidence import Baseline, mean_and_error
from localma.folds import count_groups, number_groups
from localma.formatting import decimals_for, with_error
from localma.inspection.features import Feature, read_features
from localma.production.completed import Completed, completed
from localma.records import Record
from localma.tables.frames import n_rows, take_rows, unmasked, without_mask

Predictions = ArrayLike | Mapping[str, ArrayLike] | None
"""The candidates' predictions, by name or in the order of the pool; None to run the candidates."""
Scalar = TypeVar("Scalar", bound=np.generic)
Model = LocalMARegressor | LocalMAClassifier

SAME_WEIGHTS = 1e-3
"""Weights are the same for every row if no row moves a larger share of weight from the mean."""

MOST_ROWS = 5000
"""Size of the random sample that describes the weights; more rows would not change a plot."""

MOST_NAMED = 8
"""Candidates that are named one by one, as many as there are distinct colours."""


@dataclass(frozen=True)
class Measured(Record):
    """A measure over rows, such as a mean loss, and its standard error.

    Parameters
    ----------
    value : float or None
        The measure. None if it does not exist.
    standard_error : float or None
        Standard error of `value`. None if it does not exist, such as with a single row.

    Examples
    --------
    >>> print(Measured(0.5, 0.02))
    0.500 ± 0.020
    >>> Measured(0.5, None).to_dict()
    {'value': 0.5, 'standard_error': None}
    """

    value: float | None
    standard_error: float | None

    def __str__(self) -> str:
        decimals = decimals_of_column([self])
        return " ".join(with_error(self.value, self.standard_error, decimals)).rstrip()


def decimals_of_column(pairs: Iterable[Measured]) -> int:
    """Return the decimals of a column, which follow from its errors or values."""
    values, errors = zip(*((pair.value, pair.standard_error) for pair in pairs), strict=True)
    return decimals_for(errors, values)


@dataclass(frozen=True)
class Difference(Measured):
    """A difference of two mean losses.

    Parameters
    ----------
    value : float or None
        The difference. None if it does not exist.
    standard_error : float or None
        Standard error of `value`. None if it does not exist, such as with a single row.
    is_clear : bool
        Whether the difference is larger than two standard errors and than 0.1 % of the loss.

    Examples
    --------
    >>> difference = Difference(-0.5, 0.02, is_clear=True)
    >>> print(difference, "|", difference.size)
    −0.500 ± 0.020 | 0.500 ± 0.020
    """

    is_clear: bool

    @property
    def size(self) -> Measured:
        """The difference without its sign."""
        return Measured(abs(self.value or 0.0), self.standard_error)


@dataclass(frozen=True)
class NamedCandidates:
    """The most trusted candidates, by name, and the number of the others.

    positions : indices in the pool; labels : C names, and "3 others" at the end.
    """

    positions: Integers
    labels: tuple[str, ...]
    n_others: int

    def select(self, weights: Array) -> Array:
        """Weights of the named candidates and the sum of the others: (..., M) -> (..., C)."""
        named = weights[..., self.positions]
        if not self.n_others:
            return named
        remaining = np.delete(weights, self.positions, axis=-1).sum(axis=-1, keepdims=True)
        return np.concatenate([named, np.clip(remaining, 0.0, 1.0)], axis=-1)


def most_trusted(
    names: Sequence[str], mean_weights: Array, n_named: int = MOST_NAMED
) -> NamedCandidates:
    """Name the candidates of largest mean weight, in the order of the pool.

    >>> named = most_trusted(["a", "b", "c", "d"], np.array([0.1, 0.6, 0.05, 0.25]), n_named=2)
    >>> named.labels, named.select(np.array([0.1, 0.6, 0.05, 0.25])).round(6).tolist()
    (('b', 'd', '2 others'), [0.6, 0.25, 0.15])
    """
    M = len(names)
    if n_named + 1 >= M:  # "1 others" would need as much space as the name
        return NamedCandidates(np.arange(M), tuple(names), 0)
    positions = np.sort(np.argsort(-mean_weights, kind="stable")[:n_named])
    labels = (*(names[m] for m in positions), f"{M - n_named} others")
    return NamedCandidates(positions, labels, M - n_named)


@dataclass
class Observed:
    """A fitted model with n rows and, if known, their targets.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X : table or array
        The n rows, as in `model.predict`.
    y : array of shape (n,) or (n, K), or None
        Targets or labels.
    sample_weight : array of shape (n,)
        The weight of each row.
    weighted : bool
        Whether the user passed sample weights.
    groups : array of shape (n,), or None
        Numbers of the groups, from 0.
    supplied : array of shape (n, M) or (n, M, K), or None
        Predictions that the user passed; None if the candidates must be run.
    index : array of shape (n,)
        Positions of the rows in the X that the user passed.

    Examples
    --------
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> candidates = {"a": lambda X: X[:, 0], "b": lambda X: X[:, 0] ** 3}
    >>> model = LocalMARegressor(candidates, gate="equal").fit(X, X[:, 0] ** 2)
    >>> observed = observe(model, X, X[:, 0] ** 2)
    >>> observed.names, observed.weights[0].tolist(), observed.losses_of(1).max().round(3).item()
    (('a', 'b'), [0.5, 0.5], 0.022)
    """

    model: Model
    X: Table
    y: AnyArray | None
    sample_weight: Array
    weighted: bool
    groups: Rows | None
    supplied: Array | None
    index: Rows

    def __len__(self) -> int:
        return len(self.sample_weight)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the M candidates."""
        return self.model.candidate_names_

    @property
    def is_classification(self) -> bool:
        """Whether the model predicts classes."""
        return isinstance(self.model, LocalMAClassifier)

    @cached_property
    def weights_and_support(self) -> tuple[Array, Array]:
        """Weights (n, M) and support (n,), computed together from the inputs of the gate."""
        weights, support = self.model.predict_weights(self.X, return_support=True)
        return np.asarray(weights, dtype=np.float64), np.asarray(support)

    @property
    def weights(self) -> Array:
        """Weight of each candidate in each row: (n, M)."""
        return self.weights_and_support[0]

    @cached_property
    def weights_vary(self) -> bool:
        """Whether the weights differ between rows, by more than a thousandth of all weight."""
        if len(self) < 2:
            return True  # one row is not evidence that all rows have the same weights
        moved = np.abs(self.weights - self.mean(self.weights)).sum(axis=1) / 2
        return bool(moved.max() > SAME_WEIGHTS)

    @cached_property
    def named(self) -> NamedCandidates:
        """The candidates that tables and plots name."""
        return most_trusted(self.names, self.mean(self.weights))

    @property
    def support(self) -> Array:
        """Share of the local weights that is used in each row: (n,)."""
        return self.weights_and_support[1]

    @cached_property
    def band(self) -> tuple[Array, Array] | None:
        """Band of the weights, two arrays (n, M), or None if the gate has no band."""
        evidence = self.model.gate_.evidence
        if evidence is None or not evidence.has_band:
            return None
        low, high = self.model.weight_band(self.X)
        return np.asarray(low), np.asarray(high)

    @cached_property
    def features(self) -> list[Feature]:
        """Columns of X that the gate may see."""
        names = getattr(self.model, "feature_names_in_", ())
        return read_features(self.X, self.model.gate_features_, [str(name) for name in names])

    @cached_property
    def completed(self) -> Completed | None:
        """Completed predictions, if the model allows that some are missing; else None."""
        if self.model.missing == "error":
            return None
        X = check_inputs(self.model, self.X)
        return completed(self.model, X, self.model.gate_features_.transform(X), self.supplied)

    @property
    def incomplete(self) -> str | None:
        """The number of rows with missing predictions, in words; None if there are none."""
        return None if self.completed is None else self.completed.describe(self.names)

    @property
    def known(self) -> RowMask:
        """Which predictions are not missing: (n, M)."""
        if self.completed is None:
            return np.ones((len(self), len(self.names)), dtype=bool)
        return self.completed.known

    @cached_property
    def used_weights(self) -> Array:
        """The weights of the answers, zero for missing predictions: (n, M)."""
        if self.completed is None:
            return self.weights
        return np.where(self.completed.has_any[:, np.newaxis], self.completed.weights, self.weights)

    @cached_property
    def predictions(self) -> Array:
        """The candidates' predictions, without gaps: (n, M) or (n, M, K)."""
        if self.completed is not None:
            return self.completed.P
        if self.supplied is not None:
            return self.supplied
        rows = self.index.tolist()
        return np.asarray(self.model.candidate_predictions(self.X, rows=rows), dtype=np.float64)

    @property
    def has_predictions(self) -> bool:
        """Whether predictions were passed, or candidates can make them."""
        pool = self.model.pool_
        return self.supplied is not None or (pool is not None and not pool.supplied_names)

    @cached_property
    def mixture(self) -> Array:
        """The localized average: (n,) or (n, K)."""
        return local_average(self.used_weights, self.predictions)

    @property
    def answers(self) -> AnyArray:
        """Predictions of the model: numbers (n,) or (n, K), or labels (n,); NaN or None if none."""
        mixture = self.mixture if self.completed is None else self.completed.averages
        if not isinstance(self.model, LocalMAClassifier):
            return mixture
        return self.model._labels(mixture)

    @cached_property
    def global_mixture(self) -> Array:
        """The average under the global weights: (n,) or (n, K)."""
        return global_average(self.model.global_weights_, self.predictions)

    @cached_property
    def observed_classes(self) -> Rows:
        """Index of the class of each row: (n,)."""
        return np.searchsorted(self.model.classes_, np.asarray(self.y)).astype(np.intp)

    @cached_property
    def targets(self) -> Array:
        """Targets on the scale on which the loss acts: (n, K)."""
        if not self.is_classification:
            return np.asarray(self.y, dtype=np.float64).reshape(len(self), -1)
        if self.is_cross_entropy:
            return np.ones((len(self), 1))
        return self.class_indicator

    @property
    def class_indicator(self) -> Array:
        """One for the observed class of each row, zero for the others: (n, K)."""
        return np.eye(len(self.model.classes_))[self.observed_classes]

    @property
    def is_cross_entropy(self) -> bool:
        """Whether the loss needs only the probability of the observed class."""
        return self.is_classification and self.model.loss_.name == "cross_entropy"

    @cached_property
    def baseline(self) -> Baseline:
        """Constant predictions of these rows."""
        baseline = Baseline(self.model.loss_, self.targets, self.sample_weight)
        if not self.is_classification:
            return baseline
        return replace(baseline, labels=self.observed_classes, n_classes=len(self.model.classes_))

    @cached_property
    def outputs(self) -> Array:
        """Predictions on the scale on which the loss acts: (n, M, K)."""
        P = self.predictions
        if self.is_cross_entropy:
            P = np.take_along_axis(P, self.observed_classes[:, np.newaxis, np.newaxis], axis=2)
        elif P.ndim == 2:
            P = P[:, :, np.newaxis]
        if P.shape[2] != self.targets.shape[1]:
            raise InvalidInputError(
                "Predictions and y must have the same number of outputs: the candidates have "
                f"{P.shape[2]}, y has {self.targets.shape[1]}. Pass a y with all outputs."
            )
        check_predictions(self.model.loss_, P, self.names)
        return P

    def losses(self, weights: Array) -> Array:
        """Return the loss of each row under some weights.

        Parameters
        ----------
        weights : array of shape (n, M) or (M,)
            The weights of the candidates.

        Returns
        -------
        array of shape (n,)
            The losses.
        """
        average = local_average if weights.ndim == 2 else global_average
        return row_losses(self.model.loss_, self.targets, average(weights, self.outputs))

    def losses_of(self, candidate: int) -> Array:
        """Return the loss of each row if one candidate has all the weight.

        Parameters
        ----------
        candidate : int
            Its position in the pool.

        Returns
        -------
        array of shape (n,)
            The losses.
        """
        return row_losses(self.model.loss_, self.targets, self.outputs[:, candidate])

    def mean(self, values: Array | RowMask) -> Float64:
        """Return the weighted mean over rows.

        Parameters
        ----------
        values : array of shape (n, ...)
            Values of each row.

        Returns
        -------
        array of shape (...)
            The mean.
        """
        return np.asarray(np.average(values, axis=0, weights=self.sample_weight))

    @property
    def n_groups(self) -> int | None:
        """Number of groups with positive weight; None without groups."""
        return count_groups(self.groups, self.sample_weight)

    def mean_and_error(self, values: Array, rows: Rows | None = None) -> tuple[float, float]:
        """Return the weighted mean over rows, and its standard error, between groups if any.

        Parameters
        ----------
        values : array of shape (n,)
            A value of each row.
        rows : array of int, optional
            The rows that the values belong to. By default all rows.

        Returns
        -------
        tuple of float
            The mean and its standard error.
        """
        if rows is None:
            rows = np.arange(len(self))
        return mean_and_error(values, self.sample_weight[rows], groups=_taken(self.groups, rows))

    def take(self, rows: Rows) -> Observed:
        """Select some rows; values that were already computed are not computed again.

        Parameters
        ----------
        rows : array of int
            Positions of the rows.

        Returns
        -------
        Observed
            The same model with these rows.
        """
        supplied = self.supplied
        if self.model.missing == "error":
            supplied = vars(self).get("predictions", supplied)
        selected = Observed(
            self.model,
            take_rows(self.X, rows),
            _taken(self.y, rows),
            self.sample_weight[rows],
            self.weighted,
            _taken(self.groups, rows),
            _taken(supplied, rows),
            self.index[rows],
        )
        if "weights_and_support" in vars(self):
            vars(selected)["weights_and_support"] = (self.weights[rows], self.support[rows])
        if vars(self).get("completed") is not None:
            vars(selected)["completed"] = vars(self)["completed"].take(rows)
        # Categories keep their indices, so that regions found in some rows apply to all rows.
        vars(selected)["features"] = [feature.take(rows) for feature in self.features]
        return selected

    def sample(self, n_rows: int = MOST_ROWS, *, random_state: int = 0) -> Observed:
        """Draw rows at random, and keep their order.

        Parameters
        ----------
        n_rows : int, default=5000
            The largest number of rows.
        random_state : int, default=0
            Seed of the sample.

        Returns
        -------
        Observed
            The same model with these rows.
        """
        if len(self) <= n_rows:
            return self
        rows = np.random.default_rng(random_state).choice(len(self), n_rows, replace=False)
        return self.take(np.sort(rows))


def _taken(values: NDArray[Scalar] | None, rows: Rows) -> NDArray[Scalar] | None:
    if values is None:
        return None
    return values[rows]


def observe(
    model: Model,
    X: Table,
    y: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    predictions: Predictions = None,
    groups: ArrayLike | None = None,
) -> Observed:
    """Combine a fitted model with some rows.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X : table or array
        The n rows, as in `model.predict`.
    y : array of shape (n,) or (n, K), optional
        Targets or labels.
    sample_weight : array of shape (n,), optional
        The weight of each row. By default all weights are one.
    predictions : dict or array, optional
        The candidates' predictions for X. By default the candidates are run.
    groups : array of shape (n,), optional
        The group of each row.

    Returns
    -------
    Observed
        The input of all functions of `localma.inspection`.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="equal").fit(X, X[:, 0] ** 3)
    >>> observe(model, X).weights.shape
    (20, 1)
    """
    check_is_fitted(model)
    X = unmasked(X)
    n = n_rows(X)
    if n == 0:
        raise InvalidInputError("There is nothing to inspect: X has 0 rows; pass at least one.")
    if isinstance(X, list | tuple) and isinstance(X[0], list | tuple):
        X = np.asarray(X)
    supplied = target = numbers = None
    if predictions is not None:
        allow_missing = model.missing != "error"
        supplied = all_predictions(model, X, predictions, allow_missing=allow_missing)
    if y is not None:
        target = checked_target(model, y, n)
    if groups is not None:
        numbers = number_groups(groups, n)
    weight, weighted = _weight(sample_weight, n), sample_weight is not None
    rows = Observed(model, X, target, weight, weighted, numbers, supplied, np.arange(n))
    if y is not None and rows.has_predictions and rows.completed is not None:
        rows.sample_weight = weight * rows.completed.has_any  # others cannot be judged
    return rows


def _weight(sample_weight: ArrayLike | None, n: int) -> Array:
    if sample_weight is None:
        return np.ones(n)
    sample_weight = without_mask(sample_weight, "sample_weight")
    if not np.any(sample_weight):
        raise InvalidInputError(
            f"Some row must have a positive sample weight; all {n} are zero. Omit sample_weight "
            "to give all rows the same weight."
        )
    checked = _check_sample_weight(sample_weight, np.empty((n, 1)), ensure_non_negative=True)
    return np.asarray(checked, dtype=np.float64)


def checked_target(model: Model, y: ArrayLike, n: int) -> AnyArray:
    """Check the targets of n new rows: labels that the model knows, or numbers (n,) or (n, K)."""
    y = without_mask(y, "y")
    target = np.asarray(model._outputs().arranged(y, "y"))
    check_consistent_length(np.empty(n), target)
    if isinstance(model, LocalMAClassifier):
        check_no_label_missing(y)
        unknown = unknown_classes(model.classes_.tolist(), np.unique(target))
        if unknown:
            raise InvalidInputError(
                f"Every label in y must be among the model's classes {listed(model.classes_)}; "
                f"received {listed(unknown)}. Leave out those rows."
            )
        return target
    if target.ndim not in (1, 2) or target.dtype.kind not in "biufO":
        raise InvalidInputError(
            "y of a regression must be numbers of shape (n,) or (n, K); received shape "
            f"{target.shape} of dtype {target.dtype}. Labels need a LocalMAClassifier."
        )
    target = target.astype(np.float64)
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    check_targets(model.loss_, target)
    return target
