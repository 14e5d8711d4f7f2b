"""Reliability: what happened against what was predicted, for local and for global weights."""

from __future__ import annotations

from typing import Any

from localma.inspection.reliability import ReliabilityCurve, ReliabilityDisplay
from localma.report.scales import Scale, coordinate, ticks, whisker
from localma.report.styles import numbered_style
from localma.wording import fixed, percent

SHARE = Scale(0.0, 1.0)
COLOURS = {"local": 0, "global": 1}


def reliability(part: ReliabilityDisplay | None) -> dict[str, Any] | None:
    """Two curves beside the diagonal, where a probability is a frequency."""
    if part is None:
        return None
    of = (
        f"probability of {part.positive}"
        if part.kind == "positive"
        else "probability of the predicted class"
    )
    return {
        "sentence": part.sentence,
        "of": of,
        "ticks": ticks(SHARE),
        "curves": [_curve(curve) for curve in part.curves],
    }


def _curve(curve: ReliabilityCurve) -> dict[str, Any]:
    points = [
        _point(*values)
        for values in zip(
            curve.predicted,
            curve.observed,
            curve.standard_error,
            curve.counts,
            strict=True,
        )
    ]
    return {
        "style": numbered_style(curve.name, COLOURS[curve.kind]),
        "ece": percent(curve.ece),
        "brier": fixed(curve.brier, 4),
        "points": points,
        "line": " ".join(f"{point['x']},{point['y']}" for point in points),
    }


def _point(predicted: float, observed: float, error: float | None, count: int) -> dict[str, Any]:
    low, high = whisker(SHARE, observed, error)
    return {
        "x": coordinate(SHARE.at(predicted)),
        "y": coordinate(100 - SHARE.at(observed)),
        "low": coordinate(100 - float(low)),
        "high": coordinate(100 - float(high)),
        "predicted": fixed(predicted, 3),
        "observed": fixed(observed, 3),
        "error": "" if error is None else f"± {fixed(error, 3)}",
        "n": f"{count:,}",
    }
