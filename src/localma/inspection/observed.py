"""One look at a fitted model over some rows: every part of a summary is a function of it.

Weights, bands and predictions are computed when a part first asks for them, and once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

from localma.candidates.outputs import check_no_label_missing, listed, unknown_classes
from localma.candidates.pool import check_same_index
from localma.checks.losses import check_predictions, check_targets
from localma.equations import global_average, local_average, row_losses
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.evidence import Baseline, mean_and_error
from localma.folds import count_groups, number_groups
from localma.inspection.columns import Feature, read_features
from localma.tables.frames import n_rows, take_rows, unmasked, without_mask

Array = NDArray[np.floating]
Rows = NDArray[np.intp]
Model = LocalMARegressor | LocalMAClassifier

SAME_WEIGHTS = 1e-3
"""Weights are the same for every row if no row moves a larger share of weight from the mean."""

MOST_ROWS = 5000
"""Rows, drawn at random, from which weights are described; more would not change a picture."""


@dataclass
class Observed:
    """A fitted model, n rows and, where known, their targets.

    X : n rows; y : (n,) or (n, K) or None; sample_weight : (n,); weighted : whether it was given;
    groups : (n,) numbers, from 0, of what rows belong to, or None;
    given : P of shape (n, M) or (n, M, K), or None where the candidates are to be run;
    index : (n,) positions of the rows among those that were first looked at.
    """

    model: Model
    X: Any
    y: NDArray[Any] | None
    sample_weight: Array
    weighted: bool
    groups: Rows | None
    given: Array | None
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
        """Both at once, since they share the inputs of the gate: (n, M) and (n,)."""
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
            return True  # a single row does not say that others have its weights
        moved = np.abs(self.weights - self.mean(self.weights)).sum(axis=1) / 2
        return bool(moved.max() > SAME_WEIGHTS)

    @property
    def support(self) -> Array:
        """How much of the local part is used in each row: (n,)."""
        return self.weights_and_support[1]

    @cached_property
    def band(self) -> tuple[Array, Array] | None:
        """Band of the weights, two arrays (n, M), where the gate has one."""
        if self.model.gate_.evidence is None:
            return None
        low, high = self.model.weight_band(self.X)
        return np.asarray(low), np.asarray(high)

    @cached_property
    def features(self) -> list[Feature]:
        """Columns of X that the gate may see."""
        names = getattr(self.model, "feature_names_in_", None)
        known = None if names is None else [str(name) for name in names]
        return read_features(self.X, self.model.gate_features_, known)

    @cached_property
    def predictions(self) -> Array:
        """What each candidate says: (n, M) or (n, M, K)."""
        if self.given is not None:
            return self.given
        rows = self.index.tolist()
        return np.asarray(self.model.candidate_predictions(self.X, rows=rows), dtype=np.float64)

    @property
    def has_predictions(self) -> bool:
        """Whether the predictions can be had: given, or made by candidates."""
        return self.given is not None or self.model.pool_ is not None

    @cached_property
    def mixture(self) -> Array:
        """The localized average: (n,) or (n, K)."""
        return local_average(self.weights, self.predictions)

    @property
    def answers(self) -> NDArray[Any]:
        """What the model answers: numbers (n,) or (n, K), or labels (n,)."""
        if not self.is_classification:
            return self.mixture
        return np.asarray(self.model.classes_[self.mixture.argmax(axis=1)])

    @cached_property
    def global_mixture(self) -> Array:
        """The average under the global weights: (n,) or (n, K)."""
        return global_average(self.model.global_weights_, self.predictions)

    @cached_property
    def observed_classes(self) -> Rows:
        """Places of the labels of y among the model's classes: (n,)."""
        return np.searchsorted(self.model.classes_, np.asarray(self.y)).astype(np.intp)

    @cached_property
    def targets(self) -> Array:
        """Targets on the scale on which the loss acts: (n, K)."""
        y: Any = self.y
        if not self.is_classification:
            return y if y.ndim == 2 else y[:, np.newaxis]
        if self.model.loss_.name == "cross_entropy":
            return np.ones((len(self), 1))
        return np.eye(len(self.model.classes_))[self.observed_classes]

    @cached_property
    def baseline(self) -> Baseline:
        """Constant predictions of these rows."""
        labels = self.observed_classes if self.is_classification else None
        n_classes = len(self.model.classes_) if self.is_classification else 0
        return Baseline(self.model.loss_, self.targets, self.sample_weight, labels, n_classes)

    @cached_property
    def outputs(self) -> Array:
        """Predictions on the scale on which the loss acts: (n, M, K)."""
        P = self.predictions
        if self.is_classification and self.model.loss_.name == "cross_entropy":
            P = np.take_along_axis(P, self.observed_classes[:, np.newaxis, np.newaxis], axis=2)
        elif P.ndim == 2:
            P = P[:, :, np.newaxis]
        if P.shape[2] != self.targets.shape[1]:
            raise InvalidInputError(
                "Predictions and y must have as many outputs: the candidates give "
                f"{P.shape[2]}, y has {self.targets.shape[1]}. Pass the y of every output."
            )
        check_predictions(self.model.loss_, P, self.names)
        return P

    def losses(self, weights: Array) -> Array:
        """Loss of each row under weights (n, M) or (M,): (n,)."""
        average = local_average if weights.ndim == 2 else global_average
        return row_losses(self.model.loss_, self.targets, average(weights, self.outputs))

    def losses_of(self, candidate: int) -> Array:
        """Loss of each row where one candidate has all the weight: (n,)."""
        return row_losses(self.model.loss_, self.targets, self.outputs[:, candidate])

    def mean(self, values: Array) -> Any:
        """Weighted mean over rows: (n, ...) -> (...)."""
        return np.average(values, axis=0, weights=self.sample_weight)

    @property
    def n_groups(self) -> int | None:
        """Number of groups that have weight; None where rows stand for themselves."""
        return count_groups(self.groups, self.sample_weight)

    def groups_of(self, rows: Rows) -> Rows | None:
        """Groups of some rows, if there are any."""
        return None if self.groups is None else self.groups[rows]

    def mean_and_error(self, values: Array, rows: Rows) -> tuple[float, float]:
        """Weighted mean of what some rows have, and its standard error, between groups if any."""
        return mean_and_error(values, self.sample_weight[rows], groups=self.groups_of(rows))

    def take(self, rows: Rows) -> Observed:
        """Look at some rows only; what was computed already is not computed again."""
        given = self.predictions if "predictions" in vars(self) else self.given
        part = Observed(
            self.model,
            take_rows(self.X, rows),
            None if self.y is None else self.y[rows],
            self.sample_weight[rows],
            self.weighted,
            self.groups_of(rows),
            None if given is None else given[rows],
            self.index[rows],
        )
        if "weights_and_support" in vars(self):
            vars(part)["weights_and_support"] = (self.weights[rows], self.support[rows])
        # Categories keep their places, so that regions found in a part can be looked up in all.
        vars(part)["features"] = [feature.take(rows) for feature in self.features]
        return part

    def sample(self, most: int = MOST_ROWS, *, random_state: int = 0) -> Observed:
        """Take at most so many rows, drawn at random, in their order."""
        if len(self) <= most:
            return self
        drawn = np.random.default_rng(random_state).choice(len(self), most, replace=False)
        return self.take(np.sort(drawn))


def observe(
    model: Model,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    predictions: Any = None,
    groups: Any = None,
) -> Observed:
    """Look at a fitted model over some rows.

    Parameters
    ----------
    model : a fitted LocalMARegressor or LocalMAClassifier
    X : n rows, as in `model.predict`
    y : (n,) or (n, K) targets or labels, optional
    sample_weight : (n,), optional
    predictions : what the candidates say about X, where they are not to be run here
    groups : (n,) what each row belongs to, optional

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
        raise InvalidInputError("There is nothing to look at: X has 0 rows; pass at least one.")
    if isinstance(X, list | tuple) and isinstance(X[0], list | tuple):
        X = np.asarray(X)
    given = None
    if predictions is not None:
        check_same_index(predictions, X)
        given = model._given(predictions, n, getattr(model, "classes_", None), model._outputs())
    target = None if y is None else _target(model, y, n)
    weight = np.ones(n) if sample_weight is None else _weight(sample_weight, n)
    numbers = None if groups is None else number_groups(groups, n)
    weighted = sample_weight is not None
    return Observed(model, X, target, weight, weighted, numbers, given, np.arange(n))


def _weight(sample_weight: Any, n: int) -> Array:
    sample_weight = without_mask(sample_weight, "sample_weight")
    if not np.any(sample_weight):
        raise InvalidInputError(
            f"Some row must have a positive sample weight; all {n} are zero. Leave it out for "
            "equal weights of rows."
        )
    checked = _check_sample_weight(sample_weight, np.empty((n, 1)), ensure_non_negative=True)
    return np.asarray(checked, dtype=np.float64)


def _target(model: Model, y: Any, n: int) -> NDArray[Any]:
    y = without_mask(y, "y")
    target = np.asarray(model._outputs().arranged(y, "y"))
    check_consistent_length(np.empty(n), target)
    if isinstance(model, LocalMAClassifier):
        check_no_label_missing(y)
        strange = unknown_classes(model.classes_.tolist(), np.unique(target))
        if strange:
            raise InvalidInputError(
                f"Every label in y must be among the model's classes {listed(model.classes_)}; "
                f"received {listed(strange)}: leave out those rows."
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
