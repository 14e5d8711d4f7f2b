"""Weight effects: the mean weight of each candidate along a feature, with its band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localma.errors import unknown_name
from localma.inspection.bins import make_bins
from localma.inspection.columns import Feature
from localma.inspection.observed import Observed
from localma.inspection.plain import plain
from localma.inspection.shown import Shown, most_trusted

EFFECT_BINS = 12


def weight_effects(
    seen: Observed, features: Sequence[Feature], *, bins: int = EFFECT_BINS
) -> list[dict[str, Any]]:
    """Mean weight of the rows in each bin of each feature; the part "effects" of a summary.

    These are means over the rows as they are, not over rows with one value replaced: two features
    that go together show the same effect. Empty if the weights are the same for every row.
    """
    if not seen.weights_vary:
        return []
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    return [_effect(seen, feature, shown, bins) for feature in features]


def _effect(seen: Observed, feature: Feature, shown: Shown, most: int) -> dict[str, Any]:
    bins = make_bins(feature, most)

    def along(weights: Any) -> Any:
        return bins.means(shown.of(weights), seen.sample_weight).T

    low, high = (None, None) if seen.band is None else map(along, seen.band)
    return plain(
        {
            "feature": feature.name,
            "kind": feature.kind,
            "candidates": shown.labels,
            "n_others": shown.n_others,
            "labels": bins.labels,
            "centres": bins.centres,
            "counts": bins.counts(),
            "weights": along(seen.weights),
            "low": low,
            "high": high,
        }
    )


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
