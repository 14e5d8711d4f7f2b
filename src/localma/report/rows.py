"""Some rows one by one: a strip of thin bars to move along, and what is known about each."""

from __future__ import annotations

from typing import Any

from localma.inspection.record import Output
from localma.inspection.regions import Region
from localma.inspection.summary import SampledRows, Summary
from localma.report.scales import coordinate
from localma.report.styles import Style, Styles
from localma.wording import fixed, number, percent, short

MOST_FEATURES = 12
LONGEST_VALUE = 120


def rows(summary: Summary, styles: Styles) -> dict[str, Any] | None:
    """The strip, the table and the data for the script, ordered by region and weight."""
    part = summary.rows
    if part is None or not part.index:
        return None
    series = styles.of(part)
    order = sorted(range(len(part.index)), key=lambda i: _order(part, i))
    features = _features(summary)
    return {
        "series": series,
        "n": len(order),
        "strip": [_areas(part.weights, order, c) for c in range(len(series))],
        "groups": _groups(part.region, order),
        "table": [_table_row(part, i, series) for i in order],
        "has_prediction": part.prediction is not None,
        "has_target": part.target is not None,
        "data": {
            "series": series,
            "features": [short(name, LONGEST_VALUE) for name in features],
            "regions": [short(region.sentence, 400) for region in _regions(summary)],
            "rows": [_datum(part, i, features) for i in order],
        },
    }


def _order(part: SampledRows, i: int) -> tuple[int, int, float, int]:
    weights = [weight or 0.0 for weight in part.weights[i]]
    leader = max(range(len(weights)), key=lambda c: weights[c])
    return part.region[i] or 0, leader, -weights[leader], i


def _features(summary: Summary) -> list[str]:
    """The features to tell about a row: those that move the weights most."""
    ranked = summary.importance.features
    known = [] if summary.rows is None else list(summary.rows.features)
    rest = [name for name in known if name not in set(ranked)]
    return [name for name in [*ranked, *rest] if name in known][:MOST_FEATURES]


def _regions(summary: Summary) -> list[Region]:
    return summary.regions.regions if summary.regions else []


def _areas(weights: list[list[float]], order: list[int], c: int) -> str:
    """Outline of one candidate's pieces of all bars, as the path of an SVG; y from 0 to 100."""
    pieces = []
    for x, i in enumerate(order):
        size = 100 * (weights[i][c] or 0.0)
        if size >= 0.05:
            above = 100 * sum(weight or 0.0 for weight in weights[i][:c])
            pieces.append(f"M{x} {coordinate(above)}h1v{coordinate(size)}h-1z")
    return "".join(pieces)


def _groups(region: list[int | None], order: list[int]) -> list[dict[str, str]]:
    """Where each region begins on the strip, and its number."""
    found = [region[i] or 0 for i in order]
    starts = [k for k in range(len(found)) if k == 0 or found[k] != found[k - 1]]
    ends = [*starts[1:], len(found)]
    return [
        {
            "at": coordinate(100 * start / len(found)),
            "number": str(found[start] + 1) if end - start >= len(found) / 40 else "",
        }
        for start, end in zip(starts, ends, strict=True)
    ]


def _table_row(part: SampledRows, i: int, series: list[Style]) -> dict[str, Any]:
    weights = [weight or 0.0 for weight in part.weights[i]]
    leader = max(range(len(weights)), key=lambda c: weights[c])
    return {
        "index": part.index[i],
        "leader": series[leader],
        "weight": fixed(weights[leader], 2),
        "region": _ordinal(part.region[i]),
        "support": percent(part.support[i]),
        "support_sort": part.support[i],
        "prediction": _cell(part.prediction, i),
        "target": _cell(part.target, i),
    }


def _ordinal(region: int | None) -> int | str:
    """The number of a region as people count."""
    return "" if region is None else region + 1


def _datum(part: SampledRows, i: int, features: list[str]) -> dict[str, Any]:
    return {
        "index": str(part.index[i]),
        "weights": [round(weight or 0.0, 6) for weight in part.weights[i]],
        "region": part.region[i],
        "support": percent(part.support[i]),
        "prediction": _said(part.prediction, i),
        "target": _said(part.target, i),
        "features": [short(part.features[name][i], LONGEST_VALUE) for name in features],
    }


def _cell(values: list[Output] | None, i: int) -> dict[str, Any]:
    value = None if values is None else values[i]
    sort = "" if value is None or isinstance(value, list) else value
    return {"text": _said(values, i), "sort": sort}


def _said(values: list[Output] | None, i: int) -> str:
    return "" if values is None else short(number(values[i], 4), LONGEST_VALUE)
