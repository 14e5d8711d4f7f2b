"""Regions: who is trusted most where, in words, and how faithful the words are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.inspection.columns import Feature
from localma.inspection.importance import features_in_use
from localma.inspection.observed import Observed
from localma.inspection.plain import plain
from localma.inspection.region_tree import (
    Axis,
    Bounds,
    conditions,
    fit_tree,
    inside,
    leaves_of,
    make_axes,
    on_axes,
    one_hot_parts,
)
from localma.inspection.shown import most_trusted

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

    def conditions(self, place: int) -> list[dict[str, str]]:
        """What the rows of a region have in common, in words."""
        return conditions(self.axes, self.bounds[place])

    def where(self, place: int) -> str:
        """The conditions of a region in one phrase; empty for the only one."""
        return " and ".join(condition["text"] for condition in self.conditions(place))


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


def describe_regions(seen: Observed, found: Regions) -> dict[str, Any]:
    """Put the regions in words, with the weights there; the part "regions" of a summary.

    There are none if the weights are the same for every row.
    """
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    place = found.of(seen.features, len(seen))
    regions = []
    for k in range(len(found.bounds) if seen.weights_vary else 0):
        rows = np.flatnonzero(place == k)
        weights = _mean_weights(seen, rows)
        leader, subject = _leader(seen.names, weights)
        where = found.where(k)
        regions.append(
            {
                "sentence": f"{subject} where {where}" if where else f"{subject} on average",
                "where": where or "on average",
                "conditions": found.conditions(k),
                "n": len(rows),
                "share": seen.sample_weight[rows].sum() / seen.sample_weight.sum(),
                "most_trusted": leader,
                "weights": shown.of(weights),
            }
        )
    return plain(
        {
            "candidates": shown.labels,
            "n_others": shown.n_others,
            "regions": regions,
            "faithfulness": {
                "r2": found.r2,
                "agreement": found.agreement,
                "n_held_out": found.n_held_out,
            },
            "sentence": _sentence(found) if seen.weights_vary else SAME_FOR_ALL,
        }
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
