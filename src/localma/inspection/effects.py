"""Weight effects: the mean weight of each candidate along a feature, with its band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from localma._optional import optional
from localma.errors import unknown_name
from localma.inspection.bins import Bins, make_bins
from localma.inspection.columns import Feature, Kind
from localma.inspection.drawing import (
    COLOURS,
    LINES,
    MARKERS,
    legend_below,
    name_text,
    nothing_to_draw,
    place,
)
from localma.inspection.importance import importance
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Display, Record
from localma.inspection.shown import Shown, most_trusted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EFFECT_BINS = 12
MILLISECONDS = 86_400_000
"""Of a day."""

Weights = list[list[float | None]]
"""[C][B], of each candidate in each bin."""


@dataclass(frozen=True)
class WeightEffect(Record):
    """Mean weights in B bins of one feature.

    candidates : C names, the sum of n_others last; labels : B; centres : B means, None for
    categories; low, high : the means of the rows' bands, None if the gate has none.
    """

    feature: str
    kind: Kind
    candidates: list[str]
    n_others: int
    labels: list[str]
    centres: list[float | None] | None
    counts: list[int]
    weights: Weights
    low: Weights | None
    high: Weights | None

    @property
    def centred_bins(self) -> list[int]:
        """Bins with a place on a line: not the categories, nor the missing values."""
        return [b for b, centre in enumerate(self.centres or []) if centre is not None]

    def columns(self) -> Columns:
        """A row per bin."""
        table: Columns = {
            self.feature: [str(label) for label in self.labels],
            "rows": list(self.counts),
        }
        for name, weights in zip(self.candidates, self.weights, strict=True):
            table[name] = list(weights)
        return table


@dataclass(frozen=True)
class WeightEffectDisplay(Display):
    """Mean weight of each candidate along one or more features.

    Attributes
    ----------
    effects : one per feature; empty if the weights are the same for every row
    figure_ : of the plot
    ax_ : the axes of the plot; a list of them if there are several features

    Examples
    --------
    >>> effect = WeightEffect("area", "numeric", ["a", "b"], 0, ["1", "2"], [1.0, 2.0], [5, 5],
    ...                       [[0.25, 0.75], [0.75, 0.25]], None, None)
    >>> print(WeightEffectDisplay([effect]))
    feature  bin  rows     a     b
    area       1     5  0.25  0.75
    area       2     5  0.75  0.25
    """

    effects: list[WeightEffect]

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Any,
        *,
        features: Sequence[str | int] | None = None,
        sample_weight: ArrayLike | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        random_state: int = 0,
    ) -> WeightEffectDisplay:
        """Draw the effects of features, by default of the four most important ones."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        ranked = importance(seen).features if features is None else []
        return weight_effects(seen, pick_features(seen, features, ranked, 4)).plot(ax=ax)

    def __len__(self) -> int:
        return len(self.effects)

    def __iter__(self) -> Iterator[WeightEffect]:
        return iter(self.effects)

    def __getitem__(self, position: int) -> WeightEffect:
        return self.effects[position]

    def to_plain(self) -> Any:
        """The list of effects."""
        return self.to_dict()["effects"]

    def columns(self) -> Columns:
        """A row per feature and bin."""
        table: Columns = {"feature": [], "bin": [], "rows": []}
        names = dict.fromkeys(name for effect in self.effects for name in effect.candidates)
        table |= {name: [] for name in names}
        for effect in self.effects:
            table["feature"] += [effect.feature] * len(effect.labels)
            table["bin"] += effect.labels
            table["rows"] += effect.counts
            for name, weights in zip(effect.candidates, effect.weights, strict=True):
                table[name] += weights
        return table

    def plot(self, *, ax: Axes | Sequence[Axes] | None = None) -> Self:
        """Draw one panel per feature; `ax` is one of the axes for one feature, else a list."""
        if not self.effects:
            raise nothing_to_draw()
        axes = self._new_axes() if ax is None else np.ravel(np.asarray(ax, dtype=object)).tolist()
        for panel, effect in zip(axes, self.effects, strict=True):
            if effect.centres is not None:
                _draw_along(panel, effect)
            else:
                _draw_categories(panel, effect)
            panel.set_title(name_text(effect.feature, 40), fontsize="medium")
        self._draw_on(axes[0])
        if len(axes) > 1:
            object.__setattr__(self, "ax_", axes)
        # A legend of lines shows more than one of points: take it from a panel that has them.
        with_lines = [
            panel
            for panel, effect in zip(axes, self.effects, strict=True)
            if effect.centres is not None
        ]
        handles, labels = (with_lines or axes)[0].get_legend_handles_labels()
        if ax is None:
            legend_below(self.figure_, handles, labels)
        else:
            axes[0].legend(handles, labels, frameon=False, fontsize="small")
        return self

    def _new_axes(self) -> list[Axes]:
        pyplot = optional("matplotlib.pyplot", extra="plot")
        columns = min(2, len(self.effects))
        rows = ceil(len(self.effects) / columns)
        categories = [len(effect.labels) for effect in self.effects if effect.centres is None]
        height = max(3.2, 1.0 + 0.34 * max(categories, default=0))
        _, axes = pyplot.subplots(
            rows,
            columns,
            figsize=(5.2 * columns + 1, height * rows + 0.7),
            layout="constrained",
            squeeze=False,
        )
        panels = axes.ravel().tolist()
        for unused in panels[len(self.effects) :]:
            unused.remove()
        return panels[: len(self.effects)]


def _draw_along(ax: Axes, effect: WeightEffect) -> None:
    """Lines over numbers or dates; the number of missing values stands below."""
    bins = effect.centred_bins
    x = _numbers(effect.centres or [], bins)
    if effect.kind == "date":
        x = (x * MILLISECONDS).astype("datetime64[ms]")
    shade = min(0.15, 0.4 / len(effect.candidates))
    for c, name in enumerate(effect.candidates):
        colour = place(c, COLOURS)
        if effect.low is not None and effect.high is not None:
            low, high = _numbers(effect.low[c], bins), _numbers(effect.high[c], bins)
            ax.fill_between(x, low, high, color=colour, alpha=shade, linewidth=0)
        ax.plot(
            x,
            _numbers(effect.weights[c], bins),
            color=colour,
            linestyle=place(c, LINES),
            marker=place(c, MARKERS),
            markersize=4,
            label=name_text(name),
        )
    missing = sum(effect.counts) - sum(effect.counts[b] for b in bins)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("mean weight")
    if missing:
        ax.set_xlabel(f"{missing} missing values are not shown")
    if effect.kind == "date":
        ax.tick_params(axis="x", rotation=30)


def _draw_categories(ax: Axes, effect: WeightEffect) -> None:
    """Points next to each category; bands are thin lines."""
    rows = np.arange(len(effect.labels))
    n = len(effect.candidates)
    for c, name in enumerate(effect.candidates):
        y = rows + (c - (n - 1) / 2) * 0.7 / n
        colour = place(c, COLOURS)
        if effect.low is not None and effect.high is not None:
            low, high = _numbers(effect.low[c], rows), _numbers(effect.high[c], rows)
            ax.hlines(y, low, high, color=colour, linewidth=1, alpha=0.6)
        ax.plot(
            _numbers(effect.weights[c], rows),
            y,
            color=colour,
            linestyle="none",
            marker=place(c, MARKERS),
            markersize=5,
            label=name_text(name),
        )
    ax.set_yticks(rows, [name_text(label, 24) for label in effect.labels])
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel("mean weight")
    for edge in rows[1:]:
        ax.axhline(edge - 0.5, color="0.9", linewidth=0.6, zorder=0)


def _numbers(
    values: Sequence[float | None], bins: Sequence[int] | NDArray[np.intp]
) -> NDArray[Any]:
    return np.array([values[b] for b in bins], dtype=np.float64)


def weight_effects(
    seen: Observed, features: Sequence[Feature], *, bins: int = EFFECT_BINS
) -> WeightEffectDisplay:
    """Mean weight of the rows in each bin of each feature.

    These are means over the rows as they are, not over rows with one value replaced: two features
    that go together show the same effect. Empty if the weights are the same for every row.
    """
    if not seen.weights_vary:
        return WeightEffectDisplay([])
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    return WeightEffectDisplay([_effect(seen, feature, shown, bins) for feature in features])


def _effect(seen: Observed, feature: Feature, shown: Shown, most: int) -> WeightEffect:
    bins = make_bins(feature, most)
    low, high = None, None
    if seen.band is not None:
        low, high = (_along(seen, shown, bins, side) for side in seen.band)
    return WeightEffect(
        feature=feature.name,
        kind=feature.kind,
        candidates=list(shown.labels),
        n_others=shown.n_others,
        labels=list(bins.labels),
        centres=None if bins.centres is None else bins.centres.tolist(),
        counts=bins.counts().tolist(),
        weights=_along(seen, shown, bins, seen.weights),
        low=low,
        high=high,
    )


def _along(seen: Observed, shown: Shown, bins: Bins, weights: NDArray[np.floating]) -> Weights:
    return bins.means(shown.of(weights), seen.sample_weight).T.tolist()


def pick_features(
    seen: Observed, wanted: Sequence[str | int] | None, ranked: Sequence[str], most: int
) -> list[Feature]:
    """Features by name or by position in X; by default the most important ones."""
    by_name = {feature.name: feature for feature in seen.features}
    if wanted is None:
        return [by_name[name] for name in ranked[:most]]
    by_position = {feature.position: feature for feature in seen.features}
    keys = [wanted] if isinstance(wanted, str | int) else wanted
    return [_picked(key, by_name, by_position) for key in keys]


def _picked(
    key: str | int, by_name: dict[str, Feature], by_position: dict[int, Feature]
) -> Feature:
    found = by_name.get(key) if isinstance(key, str) else by_position.get(int(key))
    if found is None:
        raise unknown_name("feature of the gate", key, by_name)
    return found
