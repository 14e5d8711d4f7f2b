"""Reliability: whether combined probabilities are frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.inspection.comparison import name_of_model
from localma.inspection.metrics import brier
from localma.inspection.observed import Observed
from localma.inspection.plain import plain

Array = NDArray[np.floating]

RELIABILITY_BINS = 10


def reliability(seen: Observed, *, bins: int = RELIABILITY_BINS) -> dict[str, Any]:
    """Calibration of local and of global weights; the part "reliability" of a summary.

    With two classes, of the probability of the second; with more, of the probability of the most
    probable one (its confidence). Bins hold equally many rows. ECE is ``sum_b share_b
    |observed_b - predicted_b|``.
    """
    if seen.y is None or not seen.is_classification:
        raise InvalidInputError("Reliability is that of a classifier on rows with labels.")
    two = len(seen.model.classes_) == 2
    curves = [
        _curve(seen, probabilities, bins) | {"kind": kind, "name": name}
        for kind, name, probabilities in (
            ("local", name_of_model(seen), seen.mixture),
            ("global", "global weights", seen.global_mixture),
        )
    ]
    first = curves[0]
    return plain(
        {
            "kind": "positive" if two else "confidence",
            "positive": seen.model.classes_[1] if two else None,
            "curves": curves,
            "sentence": (
                f"Probabilities of {first['name']} differ from frequencies by {first['ece']:.1%} "
                "on average (expected calibration error)."
            ),
        }
    )


def _curve(seen: Observed, probabilities: Array, most: int) -> dict[str, Any]:
    predicted, happened = _events(seen, probabilities)
    inner = np.quantile(predicted, np.linspace(0, 1, most + 1)[1:-1])
    place = np.searchsorted(np.unique(inner), predicted, side="right")
    weight = seen.sample_weight
    # Bins without weight say nothing.
    used = [b for b in np.unique(place) if weight[place == b].any()]
    means = [seen.mean_and_error(happened[place == b], np.flatnonzero(place == b)) for b in used]
    centres = [np.average(predicted[place == b], weights=weight[place == b]) for b in used]
    shares = [weight[place == b].sum() / weight.sum() for b in used]
    gaps = [abs(mean - centre) for (mean, _), centre in zip(means, centres, strict=True)]
    one_hot = np.eye(len(seen.model.classes_))[seen.observed_classes]
    return {
        "predicted": centres,
        "observed": [mean for mean, _ in means],
        "standard_error": [error for _, error in means],
        "counts": [int((place == b).sum()) for b in used],
        "ece": float(np.dot(shares, gaps)),
        "brier": brier(one_hot, probabilities, weight)[0],
    }


def _events(seen: Observed, probabilities: Array) -> tuple[Array, Array]:
    """Probability of an event and whether it happened: (n,) each."""
    if probabilities.shape[1] == 2:
        return probabilities[:, 1], (seen.observed_classes == 1).astype(np.float64)
    hits = probabilities.argmax(axis=1) == seen.observed_classes
    return probabilities.max(axis=1), hits.astype(np.float64)
