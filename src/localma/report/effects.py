"""Weight effects: lines along numbers and dates, bars over categories, and the same as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localma.inspection.effects import WeightEffect
from localma.report.bars import stacked
from localma.report.scales import Scale, around, coordinate, date_ticks, is_skewed, ticks
from localma.report.styles import Style, Styles
from localma.wording import fixed

FEWEST_POINTS = 4
WEIGHT = Scale(0.0, 1.0)


def effects(part: list[WeightEffect], styles: Styles) -> list[dict[str, Any]]:
    """A figure per feature, the most important first."""
    return [_figure(effect, styles.of(effect)) for effect in part]


def _figure(effect: WeightEffect, series: list[Style]) -> dict[str, Any]:
    known = effect.centred_bins
    # Few values are told better one by one than by a line between them.
    along = len(known) >= FEWEST_POINTS
    return {
        "feature": effect.feature,
        "series": series,
        "table": _table(effect),
        "lines": _lines(effect, series, known) if along else None,
        "bars": None if along else _bars(effect, series, range(len(effect.labels))),
        # What a line cannot show: rows without a value.
        "missing": _bars(effect, series, sorted(set(range(len(effect.labels))) - set(known)))
        if along
        else [],
        "has_bands": along and effect.low is not None,
    }


def _lines(effect: WeightEffect, series: list[Style], known: list[int]) -> dict[str, Any]:
    centres = [centre for centre in effect.centres or [] if centre is not None]
    is_date = effect.kind == "date"
    log = not is_date and is_skewed(centres)
    scale = around(centres, log=log, share=0.02)
    return {
        "ticks": date_ticks(scale) if is_date else ticks(scale),
        "y_ticks": ticks(WEIGHT),
        "is_log": log,
        "lines": [
            {
                "style": style,
                "points": _points(scale, effect, known, effect.weights[c]),
                "line": _polyline(scale, effect, known, effect.weights[c]),
                "band": _band(scale, effect, known, c),
            }
            for c, style in enumerate(series)
        ],
    }


def _points(
    scale: Scale, effect: WeightEffect, known: list[int], weights: list[float | None]
) -> list[dict[str, str]]:
    return [
        {
            "x": coordinate(scale.at((effect.centres or [])[b] or 0.0)),
            "y": coordinate(100 - WEIGHT.at(weights[b] or 0.0)),
            "says": f"{effect.labels[b]}: {fixed(weights[b], 2)}",
        }
        for b in known
        if weights[b] is not None
    ]


def _polyline(
    scale: Scale, effect: WeightEffect, known: list[int], weights: list[float | None]
) -> str:
    points = _points(scale, effect, known, weights)
    return " ".join(f"{point['x']},{point['y']}" for point in points)


def _band(scale: Scale, effect: WeightEffect, known: list[int], c: int) -> str:
    """The outline of the band: along its lower side, and back along its upper one."""
    if effect.low is None or effect.high is None:
        return ""
    there = _polyline(scale, effect, known, effect.low[c])
    back = _polyline(scale, effect, known[::-1], effect.high[c])
    return f"{there} {back}"


def _bars(effect: WeightEffect, series: list[Style], bins: Iterable[int]) -> list[dict[str, Any]]:
    return [
        {
            "label": effect.labels[b],
            "n": f"{effect.counts[b]:,}",
            "bar": stacked([weights[b] for weights in effect.weights], series),
        }
        for b in bins
    ]


def _table(effect: WeightEffect) -> list[dict[str, Any]]:
    """A row per bin: its label, rows, and the weight of each candidate with its band."""
    return [
        {
            "label": label,
            "n": f"{effect.counts[b]:,}",
            "weights": [_weight(effect, c, b) for c in range(len(effect.candidates))],
        }
        for b, label in enumerate(effect.labels)
    ]


def _weight(effect: WeightEffect, c: int, b: int) -> str:
    weight = fixed(effect.weights[c][b], 2)
    if effect.low is None or effect.high is None or effect.low[c][b] is None:
        return weight
    return f"{weight} ({fixed(effect.low[c][b], 2)} to {fixed(effect.high[c][b], 2)})"
