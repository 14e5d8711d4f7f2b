"""Which features the gate looks at: how much weight moves when one of them is shuffled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.inspection.columns import Feature, shuffle_column
from localma.inspection.observed import Observed
from localma.inspection.plain import plain

Array = NDArray[np.floating]

REPEATS = 3
MOST_FEATURES = 100
"""Features that are shuffled; of more, those that go most with the weights."""


def importance(seen: Observed, *, random_state: int = 0) -> list[dict[str, Any]]:
    """``mean_i 1/2 sum_m |w_m(x_i) - w_m(x_i, shuffled)|``; the part "importance" of a summary.

    Between 0, the feature plays no part, and 1, all the weight goes to other candidates. Columns
    of X are shuffled, not their encodings; no target is needed. Empty if the weights are the same
    for every row.
    """
    if not seen.weights_vary:
        return []
    rng = np.random.default_rng(random_state)
    orders = [rng.permutation(len(seen)) for _ in range(REPEATS)]
    found: list[dict[str, Any]] = []
    for feature in _screened(seen):
        moved = [_moved(seen, feature, order) for order in orders]
        error = float(np.std(moved, ddof=1) / np.sqrt(REPEATS))
        found.append({"feature": feature.name, "value": np.mean(moved), "standard_error": error})
    total = sum(row["value"] for row in found)
    for row in found:
        row["relative"] = row["value"] / total if total > 0 else 0.0
    return plain(sorted(found, key=lambda row: -row["value"]))


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
