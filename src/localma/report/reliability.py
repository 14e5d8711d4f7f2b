"""Reliability: what happened against what was predicted, for local and for global weights."""

from __future__ import annotations

from typing import Any

from localma.report.numbers import fixed, percent, place
from localma.report.scales import Scale, ticks, whisker

SHARE = Scale(0.0, 1.0)
SERIES = {
    "local": {"colour": "c0", "mark": "m0", "dash": "d0", "k": "0"},
    "global": {"colour": "c1", "mark": "m1", "dash": "d1", "k": "1"},
}


def reliability(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """Two curves beside the diagonal, where a probability is a frequency."""
    if part is None:
        return None
    of = (
        f"probability of {part['positive']}"
        if part["kind"] == "positive"
        else "probability of the predicted class"
    )
    return {
        "sentence": part["sentence"],
        "of": of,
        "ticks": ticks(SHARE),
        "curves": [_curve(curve) for curve in part["curves"]],
    }


def _curve(curve: dict[str, Any]) -> dict[str, Any]:
    points = [
        _point(*values)
        for values in zip(
            curve["predicted"],
            curve["observed"],
            curve["standard_error"],
            curve["counts"],
            strict=True,
        )
    ]
    return {
        "style": {"name": curve["name"], **SERIES[curve["kind"]]},
        "ece": percent(curve["ece"]),
        "brier": fixed(curve["brier"], 4),
        "points": points,
        "line": " ".join(f"{point['x']},{point['y']}" for point in points),
    }


def _point(predicted: float, observed: float, error: float | None, count: int) -> dict[str, Any]:
    low, high = whisker(SHARE, observed, error)
    return {
        "x": place(SHARE.at(predicted)),
        "y": place(100 - SHARE.at(observed)),
        "low": place(100 - float(low)),
        "high": place(100 - float(high)),
        "predicted": fixed(predicted, 3),
        "observed": fixed(observed, 3),
        "error": "" if error is None else f"± {fixed(error, 3)}",
        "n": f"{count:,}",
    }
