"""Features and the weights: importance, means along a feature, a map over two features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from localma._optional import optional
from localma._types import AnyArray, Array, Float64, Rows
from localma.candidates.outputs import Table
from localma.errors import unknown_name
from localma.formatting import number, short
from localma.inspection import display
from localma.inspection.display import Display, ListDisplay
from localma.inspection.features import (
    MILLISECONDS_PER_DAY,
    Bins,
    Feature,
    Kind,
    make_bins,
    shuffle_column,
)
from localma.inspection.observed import Model, Observed, observe
from localma.records import Columns, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPEATS = 3
MOST_FEATURES = 100
"""Features that are shuffled; if there are more, those that correlate most with the weights."""
MOST_BARS = 20
EFFECT_BINS = 12
MAP_BINS = 8
LONGEST_LABEL = 20

Weights = list[list[float | None]]
"""[C][B], the weight of each candidate in each bin."""


@dataclass(frozen=True)
class FeatureImportance(Record):
    """Importance of one feature.

    Parameters
    ----------
    feature : str
        Name of the feature.
    value : float
        Share of the weight that changes if the feature is shuffled.
    standard_error : float or None
        Standard error of `value`, from repeated shuffles.
    relative : float
        The value divided by the sum of the values of all features.

    Examples
    --------
    >>> FeatureImportance("area", value=0.4, standard_error=0.01, relative=0.8).to_dict()
    {'feature': 'area', 'value': 0.4, 'standard_error': 0.01, 'relative': 0.8}
    """

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
        X: Table,
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


@dataclass(frozen=True)
class WeightEffect(Record):
    """Mean weights in B bins of one feature.

    Parameters
    ----------
    feature : str
        Name of the feature.
    kind : {"numeric", "categorical", "date"}
        Kind of its values.
    candidates : list of str
        C names, with the sum of the others last.
    n_others : int
        Number of the other candidates.
    labels : list of str
        [B], label of each bin.
    centres : list of float or None
        [B], mean of the feature in each bin, with None for missing values. None for categories.
    counts : list of int
        [B], number of rows in each bin.
    weights : list of list of float
        [C][B], mean weight of each candidate in each bin. The items are None in bins without sample
        weight.
    low : list of list of float or None
        [C][B], mean lower end of the band of the weights. None if the gate has no band.
    high : list of list of float or None
        [C][B], mean upper end of the band of the weights. None if the gate has no band.

    Examples
    --------
    >>> effect = WeightEffect("area", "numeric", ["a", "b"], 0, ["1", "2"], [1.0, 2.0], [5, 5],
    ...                       [[0.25, 0.75], [0.75, 0.25]], None, None)
    >>> print(effect)
    area  rows     a     b
    1        5  0.25  0.75
    2        5  0.75  0.25
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
        """Bins with a position on a line: neither categories nor missing values."""
        return [b for b, centre in enumerate(self.centres or []) if centre is not None]

    def _columns(self) -> Columns:
        """Return a row per bin."""
        table: Columns = {self.feature: [*self.labels], "rows": [*self.counts]}
        return table | {n: [*w] for n, w in zip(self.candidates, self.weights, strict=True)}


@dataclass(frozen=True)
class WeightEffectDisplay(ListDisplay[WeightEffect]):
    """Mean weight of each candidate along one or more features.

    Parameters
    ----------
    effects : list of WeightEffect
        One per feature; empty if the weights are the same for every row.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes or list of Axes
        The axes of the last plot; a list if there are several features.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

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
        X: Table,
        *,
        features: Sequence[str | int] | None = None,
        sample_weight: ArrayLike | None = None,
        ax: Axes | Sequence[Axes] | None = None,
        random_state: int = 0,
    ) -> WeightEffectDisplay:
        """Compute the effects of features, and draw them.

        Parameters
        ----------
        model : LocalMARegressor or LocalMAClassifier
            A fitted model.
        X : table or array
            The n rows, as in `model.predict`.
        features : list of str or int, optional
            Names, or positions in X. By default the four most important features.
        sample_weight : array of shape (n,), optional
            The weight of each row. By default all weights are one.
        ax : matplotlib.axes.Axes or list of Axes, optional
            Where to draw; a list if there are several features.
        random_state : int, default=0
            Seed of the random samples.

        Returns
        -------
        WeightEffectDisplay
            The effects, drawn.
        """
        rows = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        return weight_effects(rows, choose_features(rows, features, 4)).plot(ax=ax)

    def _columns(self) -> Columns:
        """Return a row per feature and bin."""
        bins = [(effect, b) for effect in self.effects for b in range(len(effect.labels))]
        table: Columns = {
            "feature": [effect.feature for effect, _ in bins],
            "bin": [effect.labels[b] for effect, b in bins],
            "rows": [effect.counts[b] for effect, b in bins],
        }
        for c, name in enumerate(self.effects[0].candidates if self.effects else []):
            table[name] = [effect.weights[c][b] for effect, b in bins]
        return table

    def plot(self, *, ax: Axes | Sequence[Axes] | None = None) -> Self:
        """Draw one panel per feature.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or list of Axes, optional
            Where to draw; a list if there are several features.

        Returns
        -------
        WeightEffectDisplay
            The record itself, with the attributes `ax_` and `figure_`.
        """
        if not self.effects:
            raise display.nothing_to_draw()
        if ax is None:
            panels = self._new_panels()
        else:
            panels = np.ravel(np.asarray(ax, dtype=object)).tolist()
        self._start_plot(panels[0], 0, 0)
        self._set("_owns_figure", ax is None)
        # A legend of lines shows more than one of points: take it from the last panel with lines.
        legend = panels[0]
        for panel, effect in zip(panels, self.effects, strict=True):
            if effect.centres is None:
                _draw_categories(panel, effect)
            else:
                _draw_lines(panel, effect)
                legend = panel
            panel.set_title(display.name_text(effect.feature, 40), fontsize="medium")
        self._draw_legend(*legend.get_legend_handles_labels())
        if len(panels) > 1:
            self._set("ax_", panels)
        return self

    def _new_panels(self) -> list[Axes]:
        n = len(self.effects)
        columns = min(2, n)
        rows = ceil(n / columns)
        categories = [len(effect.labels) for effect in self.effects if effect.centres is None]
        height = max(3.2, 1.0 + 0.34 * max(categories, default=0))
        panels = self._new_axes(5.2 * columns + 1, height * rows + 0.7, rows, columns)
        for unused in panels[n:]:
            unused.remove()
        return panels[:n]


def _draw_lines(ax: Axes, effect: WeightEffect) -> None:
    """Draw lines over numbers or dates; missing values are counted below."""
    bins = effect.centred_bins
    x: AnyArray = _numbers(effect.centres or [], bins)
    if effect.kind == "date":
        x = (x * MILLISECONDS_PER_DAY).astype("datetime64[ms]")
        ax.tick_params(axis="x", rotation=30)
    shade = min(0.15, 0.4 / len(effect.candidates))
    for c, (label, low, weights, high) in enumerate(_series(effect, bins)):
        style = display.series_style(c)
        if effect.low is not None:
            ax.fill_between(x, low, high, color=style.colour, alpha=shade, linewidth=0)
        ax.plot(x, weights, c=style.colour, ls=style.line, marker=style.marker, ms=4, label=label)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("mean weight")
    n_missing = sum(effect.counts) - sum(effect.counts[b] for b in bins)
    if n_missing:
        ax.set_xlabel(f"{n_missing} missing values are not shown")


def _draw_categories(ax: Axes, effect: WeightEffect) -> None:
    """Draw points next to each category; bands are thin lines."""
    bins, n = range(len(effect.labels)), len(effect.candidates)
    for c, (label, low, weights, high) in enumerate(_series(effect, bins)):
        style = display.series_style(c)
        y = np.array(bins) + (c - (n - 1) / 2) * 0.7 / n
        if effect.low is not None:
            ax.hlines(y, low, high, color=style.colour, linewidth=1, alpha=0.6)
        ax.plot(weights, y, c=style.colour, ls="none", marker=style.marker, ms=5, label=label)
    ax.set_yticks(bins, [display.name_text(label, 24) for label in effect.labels])
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(len(bins) - 0.5, -0.5)
    ax.set_xlabel("mean weight")
    for edge in bins[1:]:
        ax.axhline(edge - 0.5, color="0.9", linewidth=0.6, zorder=0)


def _series(
    effect: WeightEffect, bins: Sequence[int]
) -> Iterator[tuple[str, Float64, Float64, Float64]]:
    """Yield the label of each candidate, and its low, mean and high weight in some bins."""
    sides = (effect.low or effect.weights, effect.weights, effect.high or effect.weights)
    for c, name in enumerate(effect.candidates):
        low, weights, high = (_numbers(side[c], bins) for side in sides)
        yield display.name_text(name), low, weights, high


def _numbers(values: Sequence[float | None], bins: Sequence[int]) -> Float64:
    return np.array([values[b] for b in bins], dtype=np.float64)


def weight_effects(
    observed: Observed, features: Sequence[Feature], *, n_bins: int = EFFECT_BINS
) -> WeightEffectDisplay:
    """Compute the mean weight of the rows in each bin of each feature.

    These are means over the rows as they are, not over rows with one value replaced: two correlated
    features show the same effect. Empty if the weights are the same for every row.
    """
    if not observed.weights_vary:
        return WeightEffectDisplay([])
    return WeightEffectDisplay([_effect(observed, feature, n_bins) for feature in features])


def _effect(observed: Observed, feature: Feature, n_bins: int) -> WeightEffect:
    bins = make_bins(feature, n_bins)
    low, high, centres = None, None, None
    if observed.band is not None:
        low, high = (_bin_means(observed, bins, side) for side in observed.band)
    if bins.centres is not None:
        centres = bins.centres.tolist()
    return WeightEffect(
        feature=feature.name,
        kind=feature.kind,
        candidates=list(observed.named.labels),
        n_others=observed.named.n_others,
        labels=list(bins.labels),
        centres=centres,
        counts=bins.counts().tolist(),
        weights=_bin_means(observed, bins, observed.weights),
        low=low,
        high=high,
    )


def _bin_means(observed: Observed, bins: Bins, weights: Array) -> Weights:
    return bins.means(observed.named.select(weights), observed.sample_weight).T.tolist()


def choose_features(
    observed: Observed, features: Sequence[str | int] | None, n_features: int
) -> list[Feature]:
    """Return features by name or position in X; by default the most important ones."""
    if features is None:
        features = importance(observed).features[:n_features]
    elif isinstance(features, str | int):
        features = [features]
    by_key: dict[str | int, Feature] = {f.position: f for f in observed.features}
    by_key |= {feature.name: feature for feature in observed.features}
    for key in features:
        if key not in by_key:
            raise unknown_name("feature of the gate", key, [f.name for f in observed.features])
    return [by_key[key] for key in features]


@dataclass(frozen=True)
class WeightMapDisplay(Display):
    """Mean weights in each cell of two features; a stronger colour is a larger weight.

    Parameters
    ----------
    features, kinds : list of str
        Name and kind of the features on the x axis and the y axis.
    candidates : list of str
        C names, with the sum of the others last.
    n_others : int
        Number of the other candidates.
    labels, centres : list of list
        Labels and means of the bins on both axes; centres are None for categories.
    counts : list of list of int
        [By][Bx], number of rows in each cell.
    weights : list of list of list of float
        [C][By][Bx], None in cells without rows.
    most_trusted : list of list of int
        [By][Bx], the position of a candidate in the pool, None in cells without rows.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> weight_map = WeightMapDisplay(
    ...     ["area", "rooms"], ["numeric", "numeric"], ["a", "b"], 0, [["20", "90"], ["1"]],
    ...     [[20.0, 90.0], [1.0]], [[5, 4]], [[[0.9, 0.2]], [[0.1, 0.8]]], [[0, 1]])
    >>> print(weight_map)
    area  rooms  rows    a    b
    20        1     5  0.9  0.1
    90        1     4  0.2  0.8
    """

    features: list[str]
    kinds: list[Kind]
    candidates: list[str]
    n_others: int
    labels: list[list[str]]
    centres: list[list[float | None] | None]
    counts: list[list[int]]
    weights: list[list[list[float | None]]]
    most_trusted: list[list[int | None]]

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Table,
        *,
        features: tuple[str | int, str | int] | None = None,
        candidate: str | None = None,
        sample_weight: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> WeightMapDisplay:
        """Compute the map over two features, and draw it.

        Parameters
        ----------
        model : LocalMARegressor or LocalMAClassifier
            A fitted model.
        X : table or array
            The n rows, as in `model.predict`.
        features : tuple of str or int, optional
            Two names, or positions in X. By default the two most important features.
        candidate : str, optional
            Draw the weight of this candidate instead of the most trusted one.
        sample_weight : array of shape (n,), optional
            The weight of each row. By default all weights are one.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.
        random_state : int, default=0
            Seed of the random samples.

        Returns
        -------
        WeightMapDisplay
            The map, drawn.
        """
        rows = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        if not rows.weights_vary:
            raise display.nothing_to_draw()
        return weight_map(rows, *choose_features(rows, features, 2)).plot(
            candidate=candidate, ax=ax
        )

    def _columns(self) -> Columns:
        """Return a row per cell that has rows."""
        cells = [
            (j, i)
            for j, row in enumerate(self.most_trusted)
            for i, leader in enumerate(row)
            if leader is not None
        ]
        table: Columns = {
            self.features[0]: [self.labels[0][i] for _, i in cells],
            self.features[1]: [self.labels[1][j] for j, _ in cells],
            "rows": [self.counts[j][i] for j, i in cells],
        }
        for name, weights in zip(self.candidates, self.weights, strict=True):
            table[name] = [weights[j][i] for j, i in cells]
        return table

    def weight_of(self, name: str, row: int, column: int) -> float:
        """Return the weight of a candidate in a cell.

        Parameters
        ----------
        name : str
            A candidate. If it is not in `candidates`, the sum of the others is
            returned.
        row, column : int
            The cell.

        Returns
        -------
        float
            The weight.
        """
        c = self.candidates.index(name) if name in self.candidates else -1
        return self.weights[c][row][column] or 0.0

    def short_labels(self, axis: int) -> list[str]:
        """Return short labels of one axis.

        Parameters
        ----------
        axis : int
            0 for x, 1 for y.

        Returns
        -------
        list of str
            The mean of each bin with few digits, or the category.
        """
        labels, centres = self.labels[axis], self.centres[axis]
        if centres is None or self.kinds[axis] == "date":
            return [short(label, LONGEST_LABEL) for label in labels]
        numbers = {centre for centre in centres if centre is not None}
        digits = next(
            (d for d in range(2, 9) if len({number(c, d) for c in numbers}) == len(numbers)), 9
        )
        return [
            short(label, LONGEST_LABEL) if centre is None else number(centre, digits)
            for label, centre in zip(labels, centres, strict=True)
        ]

    def plot(self, *, candidate: str | None = None, ax: Axes | None = None) -> Self:
        """Draw the most trusted candidate of each cell.

        Parameters
        ----------
        candidate : str, optional
            Draw the weight of this candidate instead of the most trusted one.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.

        Returns
        -------
        WeightMapDisplay
            The record itself, with the attributes `ax_` and `figure_`.
        """
        width, height = len(self.labels[0]), len(self.labels[1])
        ax = self._start_plot(ax, 2.6 + 0.62 * width, 2.2 + 0.42 * height)
        weights = np.array(self.weights, dtype=np.float64)
        if candidate is None:
            self._draw_leaders(weights)
        else:
            self._draw_candidate(weights, candidate)
        across, up = ([display.name_text(label, 26) for label in labels] for labels in self.labels)
        ax.set_xticks(range(len(across)), across, fontsize="small")
        if max(map(len, across)) > 4:
            for label in ax.get_xticklabels():
                label.set(rotation=40, ha="right")
        ax.set_yticks(range(len(up)), up, fontsize="small")
        ax.set_xlabel(display.name_text(self.features[0], 40))
        ax.set_ylabel(display.name_text(self.features[1], 40))
        return self

    def _draw_candidate(self, weights: Float64, candidate: str) -> None:
        if candidate not in self.candidates:
            raise unknown_name("candidate of this map", candidate, self.candidates)
        image = self.ax_.imshow(
            np.ma.masked_invalid(weights[self.candidates.index(candidate)]),
            origin="lower",
            vmin=0,
            vmax=1,
            cmap="cividis",
            aspect="auto",
        )
        self.figure_.colorbar(image, ax=self.ax_, label=f"weight of {display.name_text(candidate)}")

    def _draw_leaders(self, weights: Float64) -> None:
        patches = optional("matplotlib.patches", extra="plot")
        colours = optional("matplotlib.colors", extra="plot")
        leaders = np.where(np.isnan(weights[0]), -1, np.nan_to_num(weights, nan=-1).argmax(axis=0))
        picture = np.ones((*leaders.shape, 3))
        for row, column in np.argwhere(leaders >= 0):
            c = int(leaders[row, column])
            strength = 0.15 + 0.85 * weights[c, row, column]
            cell = strength * np.array(colours.to_rgb(display.series_style(c).colour)) + (
                1 - strength
            )
            picture[row, column] = cell
            ink = "white" if cell @ (0.3, 0.59, 0.11) < 0.55 else "black"
            self.ax_.text(column, row, str(c + 1), ha="center", va="center", color=ink, fontsize=9)
        self.ax_.imshow(picture, origin="lower", aspect="auto")
        present = np.unique(leaders[leaders >= 0]).tolist()
        handles = [patches.Patch(color=display.series_style(c).colour) for c in present]
        self._draw_legend(
            handles, [f"{c + 1}  {display.name_text(self.candidates[c])}" for c in present]
        )
        self.ax_.set_title("Most trusted candidate", fontsize="medium")


def weight_map(
    observed: Observed, across: Feature, up: Feature, *, n_bins: int = MAP_BINS
) -> WeightMapDisplay:
    """Compute the mean weights in each cell of a feature along x and one along y."""
    axes = [make_bins(feature, n_bins) for feature in (across, up)]
    width, height = (len(bins.labels) for bins in axes)
    shape: tuple[int, ...] = (-1, height, width)
    cell_of_row = axes[1].bin_of_row * width + axes[0].bin_of_row
    cells = Bins(("",) * (width * height), None, cell_of_row)
    means = cells.means(observed.weights, observed.sample_weight)
    leaders: list[int | None] = np.nan_to_num(means, nan=-1.0).argmax(axis=1).tolist()
    leaders = [None if np.isnan(mean) else m for m, mean in zip(leaders, means[:, 0], strict=True)]
    return WeightMapDisplay(
        features=[across.name, up.name],
        kinds=[across.kind, up.kind],
        candidates=list(observed.named.labels),
        n_others=observed.named.n_others,
        labels=[list(bins.labels) for bins in axes],
        centres=[None if bins.centres is None else bins.centres.tolist() for bins in axes],
        counts=cells.counts().reshape(height, width).tolist(),
        weights=observed.named.select(means).T.reshape(shape).tolist(),
        most_trusted=[leaders[k : k + width] for k in range(0, width * height, width)],
    )
