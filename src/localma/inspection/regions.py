"""Regions: who is trusted most where, in words, and how faithful the words are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from localma.inspection.columns import Feature
from localma.inspection.drawing import (
    COLOURS,
    HATCHES,
    draw_legend,
    name_text,
    new_axes,
    nothing_to_draw,
    place,
    say_above,
    wrapped,
)
from localma.inspection.importance import features_in_use
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Display, Record
from localma.inspection.region_tree import (
    Axis,
    Bounds,
    Condition,
    conditions,
    fit_tree,
    inside,
    leaves_of,
    make_axes,
    on_axes,
    one_hot_parts,
)
from localma.inspection.shown import Shown, most_trusted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.floating]
Rows = NDArray[np.intp]

LEAF_NUMBERS = (1, 2, 3, 4, 6, 8)
DEPTH = 3
GOOD_ENOUGH = 0.05
"""The fewest regions are taken whose R2 on held-out rows is this near to the best."""

LEAST_ROWS = 20
"""With fewer rows there is one region: no row could be held out."""

TIE = 1e-6

SAME_FOR_ALL = "The weights are the same for every row."


@dataclass(frozen=True)
class Regions:
    """Boxes in the space of the features that part all rows.

    axes : what bounds speak of; bounds : of each region.
    r2, agreement : how faithful they are on n_held_out rows that they were not drawn from.
    """

    axes: list[Axis]
    bounds: list[Bounds]
    r2: float = float("nan")
    agreement: float = float("nan")
    n_held_out: int = 0

    def of(self, features: Sequence[Feature], n: int) -> Rows:
        """The region of each row: (n,)."""
        if len(self.bounds) == 1:
            return np.zeros(n, dtype=np.intp)
        values = on_axes(self.axes, features)
        return np.argmax([inside(values, bounds) for bounds in self.bounds], axis=0)

    def conditions(self, region: int) -> list[Condition]:
        """The common properties of the rows of a region, in words."""
        return conditions(self.axes, self.bounds[region])

    def where(self, region: int) -> str:
        """The conditions of a region in one phrase; empty for the only one."""
        return " and ".join(condition.text for condition in self.conditions(region))


@dataclass(frozen=True)
class Region(Record):
    """One region in words.

    where : the sentence without its subject, such as "area > 80 and rooms <= 3"; n, share : of
    the rows; most_trusted : a name; weights : [C].
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
    """How well regions describe the weights of rows that they were not drawn from."""

    r2: float | None
    agreement: float | None
    n_held_out: int


@dataclass(frozen=True)
class RegionsDisplay(Display):
    """Regions of the rows, with the mean weights in each.

    Attributes
    ----------
    candidates : C names, the sum of n_others last
    regions : empty if the weights are the same for every row
    faithfulness, sentence : how well the regions describe the weights, and the same in words
    ax_, figure_ : of the plot
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
        X: Any,
        *,
        sample_weight: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> RegionsDisplay:
        """Find the regions of a model over some rows, and draw them."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        found = find_regions(seen, random_state=random_state)
        return describe_regions(seen, found).plot(ax=ax)

    def columns(self) -> Columns:
        """A row per region."""
        table: Columns = {
            "region": [region.where for region in self.regions],
            "rows": [region.n for region in self.regions],
            "share": [region.share for region in self.regions],
            "most_trusted": [region.most_trusted for region in self.regions],
        }
        for c, name in enumerate(self.candidates):
            table[name] = [region.weights[c] for region in self.regions]
        return table

    def notes(self) -> list[str]:
        """How well the regions describe the weights."""
        return [self.sentence]

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw one bar per region; the title says how faithful the regions are."""
        if not self.regions:
            raise nothing_to_draw()
        is_new = ax is None
        if ax is None:
            ax = new_axes(8.4, 1.7 + 0.62 * len(self.regions))
        self._draw_on(ax)
        rows = np.arange(len(self.regions))
        ends = np.zeros(len(self.regions))
        for c, name in enumerate(self.candidates):
            widths = np.array([region.weights[c] for region in self.regions])
            ax.barh(
                rows,
                widths,
                left=ends,
                height=0.72,
                color=place(c, COLOURS),
                hatch=place(c, HATCHES),
                edgecolor="white",
                linewidth=0.5,
                label=name_text(name),
            )
            ends += widths
        labels = [
            f"{wrapped(region.where, 38)}\n({region.share:.0%} of rows)" for region in self.regions
        ]
        ax.set_yticks(rows, labels, fontsize="small")
        ax.set(xlim=(0, 1), ylim=(len(self.regions) - 0.5, -0.5), xlabel="share of the weight")
        say_above(ax, self.sentence, own=is_new)
        draw_legend(ax, is_new)
        return self


def find_regions(seen: Observed, *, random_state: int = 0) -> Regions:
    """Draw the fewest regions that tell the weights nearly as well as eight would.

    Only features that the gate uses have a part in it, not others that go together with them.
    """
    everywhere = Regions([], [{}])
    if len(seen) < LEAST_ROWS or not seen.features or not seen.weights_vary:
        return everywhere
    used = {f.position for f in features_in_use(seen, random_state=random_state)}
    if not used:
        return everywhere
    order = np.random.default_rng(random_state).permutation(len(seen))
    cut = len(seen) * 2 // 3
    drawn, judged = seen.take(np.sort(order[:cut])), seen.take(np.sort(order[cut:]))
    trials = [_drawn(drawn, used, leaves) for leaves in LEAF_NUMBERS]
    scores = [_faithfulness(trial, drawn, judged) for trial in trials]
    enough = max(r2 for r2, _ in scores) - GOOD_ENOUGH
    chosen = next(k for k, (r2, _) in enumerate(scores) if r2 >= enough)
    final = _drawn(seen, used, LEAF_NUMBERS[chosen])
    return Regions(final.axes, final.bounds, *scores[chosen], len(judged))


def describe_regions(seen: Observed, found: Regions) -> RegionsDisplay:
    """Put the regions in words, with the weights there.

    There are none if the weights are the same for every row.
    """
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    regions, sentence = [], SAME_FOR_ALL
    if seen.weights_vary:
        region_of_row = found.of(seen.features, len(seen))
        sentence = _sentence(found)
        for k in range(len(found.bounds)):
            rows = np.flatnonzero(region_of_row == k)
            regions.append(_region(seen, found, k, rows, shown))
    return RegionsDisplay(
        candidates=list(shown.labels),
        n_others=shown.n_others,
        regions=regions,
        faithfulness=Faithfulness(found.r2, found.agreement, found.n_held_out),
        sentence=sentence,
    )


def _region(seen: Observed, found: Regions, k: int, rows: Rows, shown: Shown) -> Region:
    weights = _mean_weights(seen, rows)
    leader, subject = _leader(seen.names, weights)
    where = found.where(k)
    return Region(
        sentence=f"{subject} where {where}" if where else f"{subject} on average",
        where=where or "on average",
        conditions=found.conditions(k),
        n=len(rows),
        share=float(seen.sample_weight[rows].sum() / seen.sample_weight.sum()),
        most_trusted=leader,
        weights=shown.of(weights).tolist(),
    )


def _drawn(seen: Observed, used: set[int], leaves: int) -> Regions:
    if leaves == 1:
        return Regions([], [{}])
    features = [feature for feature in seen.features if feature.position in used]
    axes = make_axes(features, seen.weights, one_hot_parts(seen.features))
    values = on_axes(axes, seen.features)
    tree = fit_tree(
        values,
        seen.weights,
        seen.sample_weight,
        leaves=leaves,
        depth=DEPTH,
        smallest=max(3, len(seen) // 50),
    )
    bounds = leaves_of(tree, values)
    sizes = [-int(inside(values, box).sum()) for box in bounds]
    return Regions(axes, [bounds[k] for k in np.argsort(sizes, kind="stable")])


def _faithfulness(found: Regions, drawn: Observed, judged: Observed) -> tuple[float, float]:
    """R2 of the weights, and share of rows whose most trusted candidate is that of the region."""
    here = found.of(drawn.features, len(drawn))
    there = found.of(judged.features, len(judged))
    means = np.stack(
        [_mean_weights(drawn, np.flatnonzero(here == k)) for k in range(len(found.bounds))]
    )
    misses = ((judged.weights - means[there]) ** 2).sum(axis=1)
    spread = ((judged.weights - judged.mean(judged.weights)) ** 2).sum(axis=1)
    total = float(judged.mean(spread))
    r2 = 1.0 - float(judged.mean(misses)) / total if total > 0 else 0.0
    agrees = means[there].argmax(axis=1) == judged.weights.argmax(axis=1)
    return r2, float(judged.mean(agrees.astype(np.float64)))


def _mean_weights(seen: Observed, rows: Rows) -> Array:
    weight = seen.sample_weight[rows]
    if not weight.any():  # rows that do not count still have weights
        weight = np.ones(len(rows))
    return np.average(seen.weights[rows], axis=0, weights=weight)


def _leader(names: Sequence[str], weights: Array) -> tuple[str, str]:
    """The most trusted candidate, and the beginning of a sentence about it."""
    leader = names[int(np.argmax(weights))]
    if len(names) > 1 and np.ptp(weights) <= TIE:
        return leader, "all candidates are trusted alike"
    return leader, f"{leader} is trusted most"


def _sentence(found: Regions) -> str:
    """How far the words can be believed."""
    if not found.n_held_out:
        return "There are too few rows, or no features, to draw regions from."
    explained = max(found.r2, 0.0)
    return (
        f"{len(found.bounds)} region{'s' if len(found.bounds) > 1 else ''} explain"
        f"{'' if len(found.bounds) > 1 else 's'} {explained:.0%} of how the weights vary, and "
        f"name{'' if len(found.bounds) > 1 else 's'} the most trusted candidate of "
        f"{found.agreement:.0%} of rows rightly, on {found.n_held_out} rows that "
        f"{'they were' if len(found.bounds) > 1 else 'it was'} not drawn from."
    )
