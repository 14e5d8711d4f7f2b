"""A shallow tree on the weights, as a list of regions that can be said in words.

Categories are put in the order of the weights that their rows have, so that one split can part
them into two sets. Bounds are rounded, and the rows parted by the rounded ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeRegressor

from localma.inspection.columns import MISSING, Feature
from localma.inspection.record import Record

Array = NDArray[np.floating]

MOST_NAMED = 4
"""Categories that a condition lists before it counts the rest."""

FEW_VALUES = 12


@dataclass(frozen=True)
class Axis:
    """One column that the tree may split: a feature's numbers, or whether they are missing.

    ranks : for a categorical feature, the rank of each category on the axis, missing ones last.
    fill : what stands for a missing number; of no effect where `is_indicator`.
    one_hot : (feature, category) where a column of 0 and 1 stands for one category.
    """

    feature: Feature
    ranks: Array | None = None
    fill: float = 0.0
    is_indicator: bool = False
    one_hot: tuple[str, str] | None = None

    def of(self, feature: Feature) -> Array:
        """Values on this axis of a feature in whatever rows: (n,)."""
        missing = np.isnan(feature.values)
        if self.is_indicator:
            return missing.astype(np.float64)
        if self.ranks is None:
            return np.where(missing, self.fill, feature.values)
        codes = np.where(missing, len(feature.categories), feature.values).astype(np.intp)
        return self.ranks[codes]


Bounds = dict[int, tuple[float, float]]
"""Place of an axis -> bounds, low < value <= high."""


def make_axes(
    features: Sequence[Feature], weights: Array, parts: dict[int, tuple[str, str]]
) -> list[Axis]:
    """The axes of some features, in the rows whose weights (n, M) are to be told.

    parts : as from `one_hot_parts`.
    """
    axes = []
    for feature in features:
        missing = np.isnan(feature.values)
        if feature.kind == "categorical":
            axes.append(Axis(feature, ranks=_ranks(feature, weights)))
            continue
        if missing.any():
            axes.append(Axis(feature, is_indicator=True))
        if not missing.all():
            fill = float(np.median(feature.values[~missing]))
            axes.append(Axis(feature, fill=fill, one_hot=parts.get(feature.position)))
    return axes


def one_hot_parts(features: Sequence[Feature]) -> dict[int, tuple[str, str]]:
    """Columns that are parts of a one-hot encoding: position -> (feature, category).

    They share their name up to the last "=" or "_", hold 0 and 1, and one 1 in every row.

    >>> columns = np.eye(3)[[0, 1, 2, 1]].T
    >>> names = ["city_Rome", "city_Oslo", "city_Bern"]
    >>> one_hot_parts([Feature(n, k, "numeric", columns[k]) for k, n in enumerate(names)])[1]
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
    """Rank of each category, and of a missing one, along the main direction of their weights."""
    n_codes = len(feature.categories) + 1
    missing = np.isnan(feature.values)
    codes = np.where(missing, n_codes - 1, feature.values).astype(np.intp)
    counts = np.bincount(codes, minlength=n_codes)
    sums = np.stack([np.bincount(codes, column, n_codes) for column in weights.T], axis=1)
    met = counts > 0
    means = sums[met] / counts[met, np.newaxis]
    centred = (means - means.mean(axis=0)) * np.sqrt(counts[met, np.newaxis])
    main = np.linalg.svd(centred, full_matrices=False)[2][0]
    # Categories that were not met stand in the middle, between two whole ranks.
    ranks = np.full(n_codes, (met.sum() - 1) / 2 + 0.25)
    ranks[met] = np.argsort(np.argsort(means @ main, kind="stable"), kind="stable")
    return ranks


def on_axes(axes: Sequence[Axis], features: Sequence[Feature]) -> Array:
    """Values of rows on the axes: (n, A)."""
    by_name = {feature.position: feature for feature in features}
    return np.stack([axis.of(by_name[axis.feature.position]) for axis in axes], axis=1)


def fit_tree(
    values: Array, weights: Array, sample_weight: Array, *, leaves: int, depth: int, smallest: int
) -> DecisionTreeRegressor:
    """Least squares on the weights of all candidates at once, over the ranks of the values.

    Ranks part the rows as values do, and single precision, in which trees work, holds them.
    """
    tree = DecisionTreeRegressor(
        max_depth=depth, max_leaf_nodes=leaves, min_samples_leaf=smallest, random_state=0
    )
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in values.T], axis=1)
    return tree.fit(ranks, weights, sample_weight=sample_weight)


def leaves_of(tree: DecisionTreeRegressor, values: Array) -> list[Bounds]:
    """Bounds of each leaf, from left to right, rounded; the first split comes first."""
    inner = tree.tree_

    def below(node: int, bounds: Bounds) -> list[Bounds]:
        if inner.children_left[node] < 0:
            return [bounds]
        axis = int(inner.feature[node])
        low, high = bounds.get(axis, (-np.inf, np.inf))
        met = np.unique(values[:, axis])
        below_cut = int(inner.threshold[node])  # the rank of the last value on the left
        cut = shortest_cut(values[:, axis], met[below_cut] / 2 + met[below_cut + 1] / 2)
        left = {**bounds, axis: (low, min(high, cut))}
        right = {**bounds, axis: (max(low, cut), high)}
        return below(inner.children_left[node], left) + below(inner.children_right[node], right)

    return below(0, {})


def shortest_cut(values: Array, cut: float) -> float:
    """The number of fewest digits that parts the values as the cut does, but for 1 in 200.

    >>> shortest_cut(np.array([60.0, 79.9, 80.35, 90.0]), 80.12)
    80.0
    """
    below = (values <= cut).sum()
    for digits in range(-6, 13):
        rounded = round(float(cut), digits) + 0.0  # never minus zero
        if abs((values <= rounded).sum() - below) * 200 <= len(values):
            return rounded
    return cut


def inside(values: Array, bounds: Bounds) -> NDArray[np.bool_]:
    """Which rows (n, A) lie within bounds: (n,)."""
    within = np.ones(len(values), dtype=bool)
    for axis, (low, high) in bounds.items():
        within &= (values[:, axis] > low) & (values[:, axis] <= high)
    return within


@dataclass(frozen=True)
class Condition(Record):
    """A property of the rows of a region, in words, such as "area > 80"."""

    feature: str
    text: str


def conditions(axes: Sequence[Axis], bounds: Bounds) -> list[Condition]:
    """The common properties of rows within bounds, one condition per axis."""
    return [
        Condition(axes[position].feature.name, _condition(axes[position], low, high))
        for position, (low, high) in bounds.items()
    ]


def _condition(axis: Axis, low: float, high: float) -> str:
    name = axis.feature.name
    if axis.is_indicator:
        return f"{name} is {MISSING if low >= 0 else 'known'}"
    if axis.ranks is not None:
        return _category_condition(axis, low, high)
    if axis.one_hot is not None:
        stem, category = axis.one_hot
        return f"{stem} is {category}" if low >= 0 else f"{stem} is not {category}"
    feature, present = axis.feature, axis.feature.present
    within = present[(present > low) & (present <= high)]
    if len(within) == 1 and feature.is_whole and len(present) <= FEW_VALUES:
        return f"{name} = {feature.show(within[0])}"
    if np.isinf(low):
        return f"{name} <= {_bound(axis, high)}"
    if np.isinf(high):
        return f"{name} > {_bound(axis, low)}"
    return f"{_bound(axis, low)} < {name} <= {_bound(axis, high)}"


def _bound(axis: Axis, value: float) -> str:
    if axis.feature.kind == "date":
        return axis.feature.show(value)
    return f"{value:.12g}"


def _category_condition(axis: Axis, low: float, high: float) -> str:
    feature = axis.feature
    ranks = axis.ranks if axis.ranks is not None else np.empty(0)
    words = (*feature.categories, MISSING)
    met = [code for code in range(len(words)) if ranks[code] == round(ranks[code])]
    chosen = [words[code] for code in met if low < ranks[code] <= high]
    others = [words[code] for code in met if not low < ranks[code] <= high]
    if len(chosen) <= len(others) or len(others) == 0:
        return f"{feature.name} is {_either(chosen)}"
    return f"{feature.name} is not {_either(others)}"


def _either(words: list[str]) -> str:
    """Alternatives: "a", "a or b", "a, b, c or 5 others"."""
    if len(words) > MOST_NAMED:
        words = [*words[: MOST_NAMED - 1], f"{len(words) - MOST_NAMED + 1} others"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
