"""Importance of features: the share of the weight that changes if one is shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from localma._types import Array, Rows
from localma.inspection import display
from localma.inspection.display import Columns, ListDisplay, Record
from localma.inspection.features import Feature, shuffle_column
from localma.inspection.observed import Model, Observed, observe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPEATS = 3
MOST_FEATURES = 100
"""Features that are shuffled; if there are more, those that correlate most with the weights."""
MOST_BARS = 20


@dataclass(frozen=True)
class FeatureImportance(Record):
    """Importance of one feature; `relative` sums to one over features."""

    feature: str
    value: float
    standard_error: float | None
    relative: float


@dataclass(frozen=True)
class ImportanceDisplay(ListDisplay[FeatureImportance]):
    """Share of the weight that changes if a feature is shuffled, largest first.

    Parameters
    ----------
    rows : list of FeatureImportance
        One per feature; empty if the weights are the same for every row.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> print(ImportanceDisplay([FeatureImportance("area", 0.4, 0.01, 1.0)]))
    feature  importance  standard_error  relative
    area            0.4            0.01         1
    """

    rows: list[FeatureImportance]

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Any,
        *,
        sample_weight: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> ImportanceDisplay:
        """Measure the importance of each feature for the gate, and draw it.

        Parameters
        ----------
        model : LocalMARegressor or LocalMAClassifier
            A fitted model.
        X : table or array
            The n rows, as in `model.predict`.
        sample_weight : array of shape (n,), optional
            The weight of each row. By default all weights are one.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.
        random_state : int, default=0
            Seed of the random samples.

        Returns
        -------
        ImportanceDisplay
            The importance, drawn.
        """
        rows = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        return importance(rows, random_state=random_state).plot(ax=ax)

    @property
    def features(self) -> list[str]:
        """Names of the features, the most important one first."""
        return [row.feature for row in self.rows]

    def _columns(self) -> Columns:
        """Return a row per feature."""
        return {
            "feature": [row.feature for row in self.rows],
            "importance": [row.value for row in self.rows],
            "standard_error": [row.standard_error for row in self.rows],
            "relative": [row.relative for row in self.rows],
        }

    def _draw(self, ax: Axes | None) -> None:
        """Draw the twenty most important features."""
        if not self.rows:
            raise display.nothing_to_draw()
        rows = self.rows[:MOST_BARS]
        ax = self._start_plot(ax, 6.4, 1.2 + 0.3 * max(len(rows), 2))
        ax.barh(
            np.arange(len(rows)),
            [row.value for row in rows],
            xerr=[row.standard_error or 0.0 for row in rows],
            color=display.COLOURS[0],
            ecolor="0.3",
            height=0.7,
        )
        self._label_rows([display.name_text(row.feature) for row in rows])
        ax.set_xlabel("share of the weight that changes if shuffled")
        ax.set_xlim(0, None)
        if len(rows) < len(self.rows):
            n_hidden = len(self.rows) - len(rows)
            ax.set_title(f"{n_hidden} less important features are not shown", fontsize="small")


def importance(observed: Observed, *, random_state: int = 0) -> ImportanceDisplay:
    """``mean_i 1/2 sum_m |w_m(x_i) - w_m(x_i, shuffled)|`` of each feature.

    It is 0 if the feature has no effect, and 1 if all the weight moves to other candidates. Columns
    of X are shuffled, not their encodings. No target is needed. Empty if the weights are the same
    for every row.
    """
    if not observed.weights_vary:
        return ImportanceDisplay([])
    rng = np.random.default_rng(random_state)
    orders = [rng.permutation(len(observed)) for _ in range(REPEATS)]
    features = _screened(observed)
    moved = np.array(
        [[_moved(observed, feature, order) for order in orders] for feature in features]
    )
    values = moved.reshape(len(features), REPEATS).mean(axis=1)
    total = values.sum()
    rows = [
        FeatureImportance(
            feature=feature.name,
            value=float(value),
            standard_error=float(np.std(repeats, ddof=1) / np.sqrt(REPEATS)),
            relative=float(value / (total or 1.0)),
        )
        for feature, value, repeats in zip(features, values, moved, strict=True)
    ]
    return ImportanceDisplay(sorted(rows, key=lambda row: -row.value))


def features_in_use(observed: Observed, *, random_state: int = 0) -> list[Feature]:
    """Return the features that change some weight if they are shuffled once."""
    order = np.random.default_rng(random_state).permutation(len(observed))
    return [feature for feature in _screened(observed) if _moved(observed, feature, order) > 0]


def _moved(observed: Observed, feature: Feature, order: Rows) -> float:
    if len(feature.present) + bool(feature.missing.any()) < 2:
        return 0.0  # the column is constant
    shuffled = shuffle_column(observed.X, feature.position, order)
    inputs = observed.model.gate_features_.transform(shuffled)
    weights = observed.model.gate_.predict_weights(inputs)
    return float(observed.mean(np.abs(weights - observed.weights).sum(axis=1) / 2))


def _screened(observed: Observed) -> list[Feature]:
    """Return the features to shuffle, in the order of X."""
    if len(observed.features) <= MOST_FEATURES:
        return observed.features
    values = np.stack([np.nan_to_num(feature.values) for feature in observed.features], axis=1)
    scores = np.abs(_standardised(values).T @ _standardised(observed.weights)).max(axis=1)
    return [
        observed.features[k] for k in np.sort(np.argsort(-scores, kind="stable")[:MOST_FEATURES])
    ]


def _standardised(columns: Array) -> Array:
    centred = columns - columns.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 0, scale, 1.0)
