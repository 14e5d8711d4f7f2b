"""How many candidates have a say, how far they disagree, and whether rows are like the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from localma.inspection.observed import Observed
from localma.inspection.plain import plain
from localma.wording import readable

Array = NDArray[np.floating]


def effective_number(weights: Array) -> Array:
    """``exp(-sum_m w_m log w_m)``: from one, where one has all the weight, to M: (..., M) -> (...).

    >>> effective_number(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).round(6).tolist()
    [2.0, 1.0]
    """
    return np.exp(-xlogy(weights, weights).sum(axis=-1))


def spread(seen: Observed) -> dict[str, Any]:
    """Effective number of candidates and their disagreement; the part "spread" of a summary."""
    numbers = effective_number(seen.weights)
    counted = numbers[seen.sample_weight > 0]
    return plain(
        {
            "effective": {
                "mean": seen.mean(numbers),
                "low": np.quantile(counted, 0.1),
                "median": np.median(counted),
                "high": np.quantile(counted, 0.9),
                "of_global": effective_number(seen.model.global_weights_),
                "n_candidates": len(seen.names),
            },
            "disagreement": disagreement(seen) if seen.has_predictions else None,
        }
    )


def disagreement(seen: Observed) -> dict[str, Any]:
    """How far candidates differ about a row.

    Regression: ``sqrt(mean_i sum_m w_m(x_i) (f_m(x_i) - f(x_i))^2)``, so a candidate without a say
    does not count. Classification: share of rows whose most probable class is not the same for
    all candidates.
    """
    if seen.is_classification:
        labels = seen.predictions.argmax(axis=2)
        share = float(seen.mean((labels != labels[:, :1]).any(axis=1).astype(np.float64)))
        said = f"Not all candidates name the same class in {share:.0%} of rows."
        return {"kind": "share_of_rows", "value": share, "outputs": None, "sentence": said}
    P = seen.predictions if seen.predictions.ndim == 3 else seen.predictions[:, :, np.newaxis]
    f = seen.mixture if seen.mixture.ndim == 2 else seen.mixture[:, np.newaxis]
    variance = seen.mean((seen.weights[:, :, np.newaxis] * (P - f[:, np.newaxis]) ** 2).sum(axis=1))
    deviation = float(np.sqrt(variance.mean()))
    return {
        "kind": "standard_deviation",
        "value": deviation,
        "outputs": np.sqrt(variance) if len(variance) > 1 else None,
        "sentence": f"Candidates with a say differ by {readable(deviation)} from their average.",
    }


def support(seen: Observed) -> dict[str, Any]:
    """Share of rows away from the labelled sample; the part "support" of a summary."""
    guarded = getattr(seen.model.gate_, "support_", None) is not None
    outside = seen.support < 0.5
    if not guarded:
        said = "This gate does not look whether a row is like the labelled sample."
    elif outside.any():
        said = (
            f"{outside.sum()} of {len(seen)} rows lie outside the labelled sample, where the "
            "weights are those of the global gate."
        )
    else:
        said = "All rows lie within the labelled sample, or near it."
    return plain(
        {
            "guarded": guarded,
            "mean": seen.mean(seen.support),
            "outside": seen.mean(outside.astype(np.float64)),
            "partly": seen.mean((seen.support < 0.99).astype(np.float64)),
            "sentence": said,
        }
    )
