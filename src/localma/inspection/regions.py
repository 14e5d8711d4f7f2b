"""Regions, where each candidate is trusted most, and the losses in each region.

A shallow tree on the weights draws the regions. Categories are ordered by the weights of their
rows, so that one split can divide them into two sets. Bounds are rounded to few digits, and the
rows are divided by the rounded bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.tree import DecisionTreeRegressor

from localma._types import Array, RowMask, Rows
from localma.candidates.outputs import Table
from localma.errors import InvalidInputError
from localma.formatting import mean_loss, percent
from localma.inspection import display
from localma.inspection.comparison import Kind, Method, make_methods
from localma.inspection.display import Display
from localma.inspection.effects import features_in_use
from localma.inspection.features import MISSING, Feature
from localma.inspection.observed import Measured, Model, Observed, Predictions, observe
from localma.records import Columns, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAF_NUMBERS = (1, 2, 3, 4, 6, 8)
DEPTH = 3
GOOD_ENOUGH = 0.05
"""The fewest regions are taken whose R2 on held-out rows is within this of the best."""

LEAST_ROWS = 20
"""With fewer rows there is one region, since no row could be held out."""

TIE = 1e-6
MOST_LISTED = 4
"""Categories that a condition lists; the remaining ones are counted."""

FEW_VALUES = 12

GREYS = {"equal": "0.7", "global": "0.45", "local": "0.0"}
FILLED = {"equal": "<", "global": ">", "local": "o"}

SAME_FOR_ALL = "The weights are the same for every row."


@dataclass(frozen=True)
class Condition(Record):
    """A property of the rows of a region.

    Parameters
    ----------
    feature : str
        Name of the feature.
    text : str
        The condition in words, such as "area > 80".

    Examples
    --------
    >>> print(Condition("area", "area > 80"))
    field        value
    feature       area
    text     area > 80
    """

    feature: str
    text: str


@dataclass(frozen=True)
class Axis:
    """One column that the tree may split: the values of a feature, or whether they are missing.

    ranks : for a categorical feature, the rank of each category on the axis, then that of missing
    values; fill : replaces missing numbers; one_hot : (feature, category) if the column is an
    indicator of one category.
    """

    feature: Feature
    ranks: Array | None = None
    fill: float = 0.0
    is_indicator: bool = False
    one_hot: tuple[str, str] | None = None

    def values(self, features: Sequence[Feature]) -> Array:
        """Values on this axis of the same feature in any rows: (n,)."""
        feature = next(each for each in features if each.position == self.feature.position)
        if self.is_indicator:
            return feature.missing.astype(np.float64)
        if self.ranks is not None:
            return self.ranks[feature.codes]
        return np.where(feature.missing, self.fill, feature.values)

    def condition(self, low: float, high: float) -> Condition:
        """Describe the rows with low < value <= high."""
        return Condition(self.feature.name, self._text(low, high))

    def _text(self, low: float, high: float) -> str:
        feature, name = self.feature, self.feature.name
        if self.is_indicator:
            return f"{name} is {'known' if low < 0 else MISSING}"
        if self.ranks is not None:
            return self._category_text(self.ranks, low, high)
        if self.one_hot is not None:
            return " is not ".join(self.one_hot) if low < 0 else " is ".join(self.one_hot)
        present = feature.present
        within = present[(present > low) & (present <= high)]
        if len(within) == 1 and feature.is_whole and len(present) <= FEW_VALUES:
            return f"{name} = {feature.show(within[0])}"
        if np.isinf(low):
            return f"{name} <= {self._bound(high)}"
        if np.isinf(high):
            return f"{name} > {self._bound(low)}"
        return f"{self._bound(low)} < {name} <= {self._bound(high)}"

    def _bound(self, value: float) -> str:
        if self.feature.kind == "date":
            return self.feature.show(value)
        return f"{value:.12g}"

    def _category_text(self, ranks: Array, low: float, high: float) -> str:
        names = zip((*self.feature.categories, MISSING), ranks, strict=True)
        present = [(name, low < rank <= high) for name, rank in names if rank == round(rank)]
        inside = [name for name, is_inside in present if is_inside]
        outside = [name for name, is_inside in present if not is_inside]
        if len(inside) <= len(outside) or not outside:
            return f"{self.feature.name} is {_either(inside)}"
        return f"{self.feature.name} is not {_either(outside)}"


Bounds = dict[int, tuple[float, float]]
"""Position of an axis -> bounds, low < value <= high."""


@dataclass(frozen=True)
class Regions:
    """Boxes in the space of the features that divide all rows.

    r2, agreement : how well they describe the weights of n_held_out rows.
    """

    axes: list[Axis]
    bounds: list[Bounds]
    r2: float = float("nan")
    agreement: float = float("nan")
    n_held_out: int = 0

    def region_of_row(self, observed: Observed) -> Rows:
        """Index of the region of each row: (n,)."""
        if len(self.bounds) == 1:
            return np.zeros(len(observed), dtype=np.intp)
        values = _on_axes(self.axes, observed.features)
        return np.argmax([_inside(values, bounds) for bounds in self.bounds], axis=0)

    def conditions(self, region: int) -> list[Condition]:
        """The common properties of the rows of a region, one condition per axis."""
        return [self.axes[k].condition(*ends) for k, ends in self.bounds[region].items()]

    def where(self, region: int) -> str:
        """The conditions of a region in one phrase; empty if there is only one region."""
        return " and ".join(condition.text for condition in self.conditions(region))


EVERYWHERE = Regions([], [{}])


@dataclass(frozen=True)
class Region(Record):
    """One region in words.

    Parameters
    ----------
    sentence : str
        The most trusted candidate and the conditions, in words.
    where : str
        The conditions in one phrase, such as "area > 80 and rooms <= 3".
    conditions : list of Condition
        The conditions one by one.
    n : int
        Number of rows.
    share : float
        Share of the rows, by sample weight.
    most_trusted : str
        Name of the candidate with the largest mean weight.
    weights : list of float
        [C], mean weight of each candidate in `RegionsDisplay.candidates`.

    Examples
    --------
    >>> conditions = [Condition("area", "area > 80")]
    >>> region = Region("a is trusted most where area > 80", "area > 80", conditions, 9, 1.0, "a",
    ...                 [0.75, 0.25])
    >>> print(region.sentence)
    a is trusted most where area > 80
    """

    sentence: str
    where: str
    conditions: list[Condition]
    n: int
    share: float
    most_trusted: str
    weights: list[float]


@dataclass(frozen=True)
class Faithfulness(Record):
    """How well regions describe the weights of rows that were not used to draw them.

    Parameters
    ----------
    r2 : float or None
        Share of the variation of the weights that the regions explain. None without held-out rows.
    agreement : float or None
        Share of rows whose most trusted candidate is that of their region. None without held-out
        rows.
    n_held_out : int
        Number of held-out rows.

    Examples
    --------
    >>> Faithfulness(r2=0.9, agreement=1.0, n_held_out=30).to_dict()
    {'r2': 0.9, 'agreement': 1.0, 'n_held_out': 30}
    """

    r2: float | None
    agreement: float | None
    n_held_out: int


@dataclass(frozen=True)
class RegionsDisplay(Display):
    """Regions of the rows, with the mean weights in each.

    Parameters
    ----------
    candidates : list of str
        C names, with the sum of the others last.
    n_others : int
        Number of the other candidates.
    regions : list of Region
        Empty if the weights are the same for every row.
    faithfulness : Faithfulness
        How well the regions describe the weights.
    sentence : str
        The same in words.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> conditions = [Condition("area", "area > 80")]
    >>> region = Region("a is trusted most where area > 80", "area > 80", conditions, 9, 1.0, "a",
    ...                 [0.75, 0.25])
    >>> print(RegionsDisplay(["a", "b"], 0, [region], Faithfulness(0.9, 1.0, 3), "R2 is 0.9."))
    region     rows  share  most_trusted     a     b
    area > 80     9      1             a  0.75  0.25
    R2 is 0.9.
    """

    candidates: list[str]
    n_others: int
    regions: list[Region]
    faithfulness: Faithfulness
    sentence: str

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Table,
        *,
        sample_weight: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> RegionsDisplay:
        """Find the regions of a model over some rows, and draw them.

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
        RegionsDisplay
            The regions, drawn.
        """
        sample = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        regions = find_regions(sample, random_state=random_state)
        return describe_regions(sample, regions).plot(ax=ax)

    def _columns(self) -> Columns:
        """Return a row per region."""
        table: Columns = {
            "region": [region.where for region in self.regions],
            "rows": [region.n for region in self.regions],
            "share": [region.share for region in self.regions],
            "most_trusted": [region.most_trusted for region in self.regions],
        }
        for c, name in enumerate(self.candidates):
            table[name] = [region.weights[c] for region in self.regions]
        return table

    def _notes(self) -> list[str]:
        """Return how well the regions describe the weights."""
        return [self.sentence]

    def _draw(self, ax: Axes | None) -> None:
        """Draw one bar per region; the title says how faithful the regions are."""
        if not self.regions:
            raise display.nothing_to_draw()
        ax = self._start_plot(ax, 8.4, 1.7 + 0.62 * len(self.regions))
        ends = np.zeros(len(self.regions))
        for c, name in enumerate(self.candidates):
            widths = np.array([region.weights[c] for region in self.regions])
            ax.barh(
                np.arange(len(self.regions)),
                widths,
                left=ends,
                height=0.72,
                color=display.series_style(c).colour,
                hatch=display.series_style(c).hatch,
                edgecolor="white",
                linewidth=0.5,
                label=display.name_text(name),
            )
            ends += widths
        labels = [
            f"{display.wrapped(region.where, 38)}\n({percent(region.share)} of rows)"
            for region in self.regions
        ]
        self._label_rows(labels, fontsize="small")
        ax.set(xlim=(0, 1), xlabel="share of the weight")
        self._set_title(self.sentence)
        self._draw_legend()


def find_regions(observed: Observed, *, random_state: int = 0) -> Regions:
    """Draw the fewest regions that describe the weights nearly as well as eight would.

    Only features that the gate uses have conditions, not features that correlate with them.
    """
    if len(observed) < LEAST_ROWS or not observed.features or not observed.weights_vary:
        return EVERYWHERE
    positions = {f.position for f in features_in_use(observed, random_state=random_state)}
    if not positions:
        return EVERYWHERE
    order = np.random.default_rng(random_state).permutation(len(observed))
    cut = len(observed) * 2 // 3
    train, test = (observed.take(np.sort(rows)) for rows in (order[:cut], order[cut:]))
    trials = [_draw_regions(train, positions, n_leaves) for n_leaves in LEAF_NUMBERS]
    scores = [_faithfulness(trial, train, test) for trial in trials]
    enough = max(r2 for r2, _ in scores) - GOOD_ENOUGH
    chosen = next(k for k, (r2, _) in enumerate(scores) if r2 >= enough)
    r2, agreement = scores[chosen]
    regions = _draw_regions(observed, positions, LEAF_NUMBERS[chosen])
    return replace(regions, r2=r2, agreement=agreement, n_held_out=len(test))


def describe_regions(observed: Observed, regions: Regions) -> RegionsDisplay:
    """Describe the regions and their weights; none if the weights are the same for every row."""
    described, sentence = [], SAME_FOR_ALL
    if observed.weights_vary:
        region_of_row = regions.region_of_row(observed)
        sentence = _sentence(regions)
        for k in range(len(regions.bounds)):
            described.append(_region(observed, regions, k, np.flatnonzero(region_of_row == k)))
    return RegionsDisplay(
        candidates=list(observed.named.labels),
        n_others=observed.named.n_others,
        regions=described,
        faithfulness=Faithfulness(regions.r2, regions.agreement, regions.n_held_out),
        sentence=sentence,
    )


def _region(observed: Observed, regions: Regions, k: int, rows: Rows) -> Region:
    weights, sample_weight = _mean_weights(observed, rows), observed.sample_weight
    leader = observed.names[int(np.argmax(weights))]
    subject = f"{leader} is trusted most"
    if len(weights) > 1 and np.ptp(weights) <= TIE:
        subject = "all candidates are trusted alike"
    where = regions.where(k)
    return Region(
        sentence=f"{subject} where {where}" if where else f"{subject} on average",
        where=where or "on average",
        conditions=regions.conditions(k),
        n=len(rows),
        share=float(sample_weight[rows].sum() / sample_weight.sum()),
        most_trusted=leader,
        weights=observed.named.select(weights).tolist(),
    )


def _draw_regions(observed: Observed, positions: set[int], n_leaves: int) -> Regions:
    """Fit a tree of some leaves on the features at these positions; the largest leaf is first."""
    if n_leaves == 1:
        return EVERYWHERE
    features = [feature for feature in observed.features if feature.position in positions]
    axes = _make_axes(features, observed)
    values = _on_axes(axes, observed.features)
    tree = DecisionTreeRegressor(
        max_depth=DEPTH,
        max_leaf_nodes=n_leaves,
        min_samples_leaf=max(3, len(observed) // 50),
        random_state=0,
    )
    # Ranks divide the rows as values do, and single precision, which trees use, can hold them.
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in values.T], axis=1)
    tree.fit(ranks, observed.weights, sample_weight=observed.sample_weight)
    bounds = _leaf_bounds(tree, values)
    return Regions(axes, sorted(bounds, key=lambda box: -int(_inside(values, box).sum())))


def _faithfulness(regions: Regions, train: Observed, test: Observed) -> tuple[float, float]:
    """R2 of the weights, and share of rows whose most trusted candidate is that of the region."""
    of_train, of_test = regions.region_of_row(train), regions.region_of_row(test)
    means = np.stack(
        [_mean_weights(train, np.flatnonzero(of_train == k)) for k in range(len(regions.bounds))]
    )
    expected = means[of_test]
    misses = test.mean(((test.weights - expected) ** 2).sum(axis=1))
    total = test.mean(((test.weights - test.mean(test.weights)) ** 2).sum(axis=1))
    agreement = float(test.mean(expected.argmax(axis=1) == test.weights.argmax(axis=1)))
    if total == 0:
        return 0.0, agreement
    return 1.0 - float(misses / total), agreement


def _mean_weights(observed: Observed, rows: Rows) -> Array:
    weight = observed.sample_weight[rows]
    if not weight.any():  # rows with zero sample weight still have weights
        weight = np.ones(len(rows))
    return np.average(observed.weights[rows], axis=0, weights=weight)


def _sentence(regions: Regions) -> str:
    """Say how well the regions describe the weights."""
    if not regions.n_held_out:
        return "There are too few rows, or no features, to draw regions from."
    n, explained = len(regions.bounds), percent(max(regions.r2, 0.0))
    explain, name = ("s explain", "name") if n > 1 else (" explains", "names")
    return (
        f"{n} region{explain} {explained} of the variation of the weights, and {name} the most "
        f"trusted candidate correctly in {percent(regions.agreement)} of "
        f"{regions.n_held_out:,} held-out rows."
    )


def _make_axes(features: Sequence[Feature], observed: Observed) -> list[Axis]:
    """Make the axes that describe the weights of the observed rows."""
    one_hot = one_hot_columns(observed.features)
    axes = []
    for feature in features:
        missing = feature.missing
        if feature.kind == "categorical":
            axes.append(Axis(feature, ranks=_ranks(feature, observed.weights)))
            continue
        if missing.any():
            axes.append(Axis(feature, is_indicator=True))
        if not missing.all():
            fill = float(np.median(feature.values[~missing]))
            axes.append(Axis(feature, fill=fill, one_hot=one_hot.get(feature.position)))
    return axes


def one_hot_columns(features: Sequence[Feature]) -> dict[int, tuple[str, str]]:
    """Find the columns of one-hot encodings: position -> (feature, category).

    They share their name up to the last "=" or "_", contain 0 and 1, and one 1 in every row.

    >>> columns = np.eye(3)[[0, 1, 2, 1]].T
    >>> names = ["city_Rome", "city_Oslo", "city_Bern"]
    >>> one_hot_columns([Feature(n, k, "numeric", columns[k]) for k, n in enumerate(names)])[1]
    ('city', 'Oslo')
    """
    groups: dict[str, list[tuple[Feature, str]]] = {}
    for feature in features:
        mark = "=" if "=" in feature.name else "_"
        stem, _, category = feature.name.rpartition(mark)
        if stem and category and np.isin(feature.values, (0.0, 1.0)).all():
            groups.setdefault(stem, []).append((feature, category))
    return {
        feature.position: (stem, category)
        for stem, group in groups.items()
        if len(group) > 1
        and (np.sum([feature.values for feature, _ in group], axis=0) == 1.0).all()
        for feature, category in group
    }


def _ranks(feature: Feature, weights: Array) -> Array:
    """Rank each category, and missing values, along the main direction of their mean weights."""
    n_codes = len(feature.categories) + 1
    counts = np.bincount(feature.codes, minlength=n_codes)
    sums = np.stack([np.bincount(feature.codes, column, n_codes) for column in weights.T], axis=1)
    present = counts > 0
    means = sums[present] / counts[present, np.newaxis]
    centred = (means - means.mean(axis=0)) * np.sqrt(counts[present, np.newaxis])
    main = np.linalg.svd(centred, full_matrices=False)[2][0]
    # Categories without rows are in the middle, between two whole ranks.
    ranks = np.full(n_codes, (present.sum() - 1) / 2 + 0.25)
    ranks[present] = np.argsort(np.argsort(means @ main, kind="stable"), kind="stable")
    return ranks


def _on_axes(axes: Sequence[Axis], features: Sequence[Feature]) -> Array:
    """Values of the rows on the axes: (n, A)."""
    return np.stack([axis.values(features) for axis in axes], axis=1)


def _leaf_bounds(tree: DecisionTreeRegressor, values: Array) -> list[Bounds]:
    """Rounded bounds of each leaf, from left to right, in the order of the splits."""
    nodes = tree.tree_

    def leaves_below(node: int, bounds: Bounds) -> list[Bounds]:
        if nodes.children_left[node] < 0:
            return [bounds]
        axis = int(nodes.feature[node])
        low, high = bounds.get(axis, (-np.inf, np.inf))
        distinct = np.unique(values[:, axis])
        rank = int(nodes.threshold[node])  # the rank of the last value on the left
        cut = shortest_cut(values[:, axis], distinct[rank] / 2 + distinct[rank + 1] / 2)
        left = {**bounds, axis: (low, min(high, cut))}
        right = {**bounds, axis: (max(low, cut), high)}
        return [
            *leaves_below(nodes.children_left[node], left),
            *leaves_below(nodes.children_right[node], right),
        ]

    return leaves_below(0, {})


def shortest_cut(values: Array, cut: float) -> float:
    """Round a cut to the fewest digits that move at most 1 in 200 values to the other side.

    >>> shortest_cut(np.array([60.0, 79.9, 80.35, 90.0]), 80.12)
    80.0
    """
    n_below = (values <= cut).sum()
    for digits in range(-6, 13):
        rounded = round(float(cut), digits) + 0.0  # never minus zero
        if abs((values <= rounded).sum() - n_below) * 200 <= len(values):
            return rounded
    return cut


def _inside(values: Array, bounds: Bounds) -> RowMask:
    """Rows (n, A) that lie within bounds: (n,)."""
    within = np.ones(len(values), dtype=bool)
    for axis, (low, high) in bounds.items():
        within &= (values[:, axis] > low) & (values[:, axis] <= high)
    return within


def _either(names: list[str]) -> str:
    """Join alternatives: "a", "a or b", "a, b, c or 5 others"."""
    if len(names) > MOST_LISTED:
        names = [*names[: MOST_LISTED - 1], f"{len(names) - MOST_LISTED + 1} others"]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


@dataclass(frozen=True)
class EntryName(Record):
    """An entry: a candidate, or equal, global or local weights."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class RegionLosses(Record):
    """Mean losses of E entries in one region.

    A number that does not exist is None, such as a standard error from one row.

    Parameters
    ----------
    where : str
        The conditions of the region in one phrase.
    n : int
        Number of rows with positive sample weight.
    best : int
        Position of the entry with the smallest loss.
    loss : list of float or None
        [E], mean loss of each entry.
    standard_error : list of float or None
        [E], standard error of each loss.
    to_model : list of float or None
        [E], loss of each entry minus that of the model, paired by row.
    to_model_error : list of float or None
        [E], standard error of each difference.

    Examples
    --------
    >>> region = RegionLosses("area > 80", 9, 0, [0.5, 0.7], [0.1, 0.1], [-0.2, 0.0], [0.1, 0.0])
    >>> print(region.losses[region.best])
    0.50 ± 0.10
    """

    where: str
    n: int
    best: int
    loss: list[float | None]
    standard_error: list[float | None]
    to_model: list[float | None]
    to_model_error: list[float | None]

    @property
    def losses(self) -> list[Measured]:
        """Loss of each entry with its standard error."""
        return [Measured(*pair) for pair in zip(self.loss, self.standard_error, strict=True)]


@dataclass(frozen=True)
class ErrorByRegionDisplay(Display):
    """Loss of the candidates and of equal, global and local weights in each region.

    Parameters
    ----------
    loss : str
        Name of the loss.
    entries : list of EntryName
        The most trusted candidates, then equal, global and local weights.
    regions : list of RegionLosses
        Losses of all entries in each region.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> region = RegionLosses("area > 80", 9, 0, [0.5, 0.7], [0.1, 0.1], [-0.2, 0.0], [0.1, 0.0])
    >>> entries = [EntryName("candidate", "a"), EntryName("local", "local weights")]
    >>> print(ErrorByRegionDisplay("squared_error", entries, [region]))
    region     rows           name  squared_error  standard_error
    area > 80     9              a            0.5             0.1
    area > 80     9  local weights            0.7             0.1
    """

    loss: str
    entries: list[EntryName]
    regions: list[RegionLosses]

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Table,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions = None,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> ErrorByRegionDisplay:
        """Find the regions, measure all losses in each, and draw them.

        Parameters
        ----------
        model : LocalMARegressor or LocalMAClassifier
            A fitted model.
        X : table or array
            The n rows, as in `model.predict`.
        y : array of shape (n,) or (n, K)
            Targets or labels.
        sample_weight : array of shape (n,), optional
            The weight of each row. By default all weights are one.
        predictions : dict or array, optional
            The candidates' predictions for X. By default the candidates are run.
        groups : array of shape (n,), optional
            The group of each row. Standard errors are then at least those between groups.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.
        random_state : int, default=0
            Seed of the random samples.

        Returns
        -------
        ErrorByRegionDisplay
            The losses, drawn.
        """
        rows = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        sample = rows.sample(random_state=random_state)
        if not sample.weights_vary:
            raise display.nothing_to_draw()
        return region_errors(rows, find_regions(sample, random_state=random_state)).plot(ax=ax)

    def _columns(self) -> Columns:
        """Return a row per region and entry."""
        cells = [(region, e) for region in self.regions for e in range(len(self.entries))]
        return {
            "region": [region.where for region, _ in cells],
            "rows": [region.n for region, _ in cells],
            "name": [self.entries[e].name for _, e in cells],
            self.loss: [region.loss[e] for region, e in cells],
            "standard_error": [region.standard_error[e] for region, e in cells],
        }

    def _draw(self, ax: Axes | None) -> None:
        """Draw one group per region; mixtures are grey and black, candidates coloured."""
        height = max(0.7, 0.13 * len(self.entries))
        ax = self._start_plot(ax, 8.4, 1.8 + height * len(self.regions))
        for e in range(len(self.entries)):
            self._draw_entry(e)
        labels = [
            f"{display.wrapped(region.where, 38)}\n({region.n} rows)" for region in self.regions
        ]
        self._label_rows(labels, fontsize="small")
        for row in range(1, len(self.regions)):
            ax.axhline(row - 0.5, color="0.85", linewidth=0.8, zorder=0)
        ax.set_xlabel(f"{mean_loss(self.loss)}, with two standard errors")
        self._draw_legend()

    def _draw_entry(self, e: int) -> None:
        entry, n = self.entries[e], len(self.entries)
        losses = [region.losses[e] for region in self.regions]
        self.ax_.errorbar(
            np.array([loss.value for loss in losses], dtype=np.float64),
            np.arange(len(losses)) + (e - (n - 1) / 2) * 0.74 / n,
            xerr=display.two_errors([loss.standard_error for loss in losses]),
            linestyle="none",
            color=GREYS.get(entry.kind, display.series_style(e).colour),
            marker=FILLED.get(entry.kind, display.series_style(e).marker),
            markerfacecolor={"candidate": "white"}.get(entry.kind),
            markersize=5,
            linewidth=1,
            label=display.name_text(entry.name),
        )


def region_errors(observed: Observed, regions: Regions) -> ErrorByRegionDisplay:
    """Compute the losses of all entries in every region, paired with the model."""
    if observed.y is None:
        raise InvalidInputError("Errors by region need the targets of the rows; y is None. Pass y.")
    methods = make_methods(observed)
    named = [methods[m] for m in observed.named.positions] + methods[len(observed.names) :]
    region_of_row = regions.region_of_row(observed)
    losses = []
    for k in range(len(regions.bounds)):
        rows = np.flatnonzero((region_of_row == k) & (observed.sample_weight > 0))
        if len(rows):
            losses.append(_region_losses(observed, named, rows, regions.where(k) or "everywhere"))
    return ErrorByRegionDisplay(
        loss=observed.model.loss_.name,
        entries=[EntryName(method.kind, method.name) for method in named],
        regions=losses,
    )


def _region_losses(
    observed: Observed, methods: list[Method], rows: Rows, where: str
) -> RegionLosses:
    losses = np.array([method.losses[rows] for method in methods])
    risks, errors = zip(*(observed.mean_and_error(each, rows) for each in losses), strict=True)
    gaps = [observed.mean_and_error(each - losses[-1], rows) for each in losses]
    return RegionLosses(
        where=where,
        n=len(rows),
        best=int(np.argmin(risks)),
        loss=list(risks),
        standard_error=list(errors),
        to_model=[gap for gap, _ in gaps],
        to_model_error=[error for _, error in gaps],
    )
