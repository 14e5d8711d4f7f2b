"""Importance of features: the share of weight that moves when one of them is shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from localma.inspection.columns import Feature, shuffle_column
from localma.inspection.drawing import COLOURS, name_text, new_axes, nothing_to_draw
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Display, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.floating]

REPEATS = 3
MOST_FEATURES = 100
"""Features that are shuffled; of more, those that go most with the weights."""
MOST_BARS = 20


@dataclass(frozen=True)
class FeatureImportance(Record):
    """Importance of one feature; `relative` sums to one over features."""

    feature: str
    value: float
    standard_error: float | None
    relative: float


@dataclass(frozen=True)
class ImportanceDisplay(Display):
    """Share of the weight that moves when a feature is shuffled, largest first.

    Attributes
    ----------
    rows : empty if the weights are the same for every row
    ax_, figure_ : of the plot
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
        """Measure the importance of each feature for the gate, and draw it."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        return importance(seen, random_state=random_state).plot(ax=ax)

    @property
    def features(self) -> list[str]:
        """Names of the features, the most important one at the beginning."""
        return [row.feature for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[FeatureImportance]:
        return iter(self.rows)

    def __getitem__(self, position: int) -> FeatureImportance:
        return self.rows[position]

    def to_plain(self) -> Any:
        """The list of rows."""
        return self.to_dict()["rows"]

    def columns(self) -> Columns:
        """A row per feature."""
        return {
            "feature": [row.feature for row in self.rows],
            "importance": [row.value for row in self.rows],
            "standard_error": [row.standard_error for row in self.rows],
            "relative": [row.relative for row in self.rows],
        }

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw the twenty most important features."""
        if not self.rows:
            raise nothing_to_draw()
        rows = self.rows[:MOST_BARS]
        if ax is None:
            ax = new_axes(6.4, 1.2 + 0.3 * max(len(rows), 2))
        self._draw_on(ax)
        positions = np.arange(len(rows))
        ax.barh(
            positions,
            [row.value for row in rows],
            xerr=[row.standard_error or 0.0 for row in rows],
            color=COLOURS[0],
            ecolor="0.3",
            height=0.7,
        )
        ax.set_yticks(positions, [name_text(row.feature) for row in rows])
        ax.set_xlabel("share of the weight that moves when shuffled")
        ax.set_xlim(0, None)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        n_hidden = len(self.rows) - len(rows)
        if n_hidden:
            ax.set_title(f"{n_hidden} less important features are not shown", fontsize="small")
        return self


def importance(seen: Observed, *, random_state: int = 0) -> ImportanceDisplay:
    """``mean_i 1/2 sum_m |w_m(x_i) - w_m(x_i, shuffled)|`` of each feature.

    Between 0, the feature plays no part, and 1, all the weight goes to other candidates. Columns
    of X are shuffled, not their encodings; no target is needed. Empty if the weights are the same
    for every row.
    """
    if not seen.weights_vary:
        return ImportanceDisplay([])
    rng = np.random.default_rng(random_state)
    orders = [rng.permutation(len(seen)) for _ in range(REPEATS)]
    features = _screened(seen)
    moved = np.array([[_moved(seen, feature, order) for order in orders] for feature in features])
    values = moved.reshape(len(features), REPEATS).mean(axis=1)
    total = values.sum()
    rows = [
        FeatureImportance(
            feature=feature.name,
            value=float(value),
            standard_error=float(np.std(repeats, ddof=1) / np.sqrt(REPEATS)),
            relative=float(value / total) if total > 0 else 0.0,
        )
        for feature, value, repeats in zip(features, values, moved, strict=True)
    ]
    return ImportanceDisplay(sorted(rows, key=lambda row: -row.value))


def features_in_use(seen: Observed, *, random_state: int = 0) -> list[Feature]:
    """Features that move some weight when they are shuffled, once."""
    order = np.random.default_rng(random_state).permutation(len(seen))
    return [feature for feature in _screened(seen) if _moved(seen, feature, order) > 0]


def _moved(seen: Observed, feature: Feature, order: NDArray[np.intp]) -> float:
    if len(feature.present) + bool(np.isnan(feature.values).any()) < 2:
        return 0.0  # nothing to shuffle
    shuffled = shuffle_column(seen.X, feature.position, order)
    inputs = seen.model.gate_features_.transform(shuffled)
    weights = seen.model.gate_.predict_weights(inputs)
    return float(seen.mean(np.abs(weights - seen.weights).sum(axis=1) / 2))


def _screened(seen: Observed) -> list[Feature]:
    if len(seen.features) <= MOST_FEATURES:
        return seen.features
    values = np.stack([np.nan_to_num(feature.values) for feature in seen.features], axis=1)
    scores = np.abs(_standardised(values).T @ _standardised(seen.weights)).max(axis=1)
    kept = set(np.argsort(-scores, kind="stable")[:MOST_FEATURES].tolist())
    return [feature for place, feature in enumerate(seen.features) if place in kept]


def _standardised(columns: Array) -> Array:
    centred = columns - columns.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 0, scale, 1.0)
