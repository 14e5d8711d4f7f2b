"""The path from constant to local weights: held-out risk against shrinkage, and the gain."""

from __future__ import annotations

from math import ceil, floor, log10, sqrt
from typing import Any, NamedTuple

from localma.inspection.path import CONSTANT_NAMES, LocalityGainRecord, LocalityPathDisplay
from localma.report.scales import Scale, Tick, around, coordinate, room_for, ticks, whisker
from localma.report.styles import numbered_style
from localma.wording import decimals_for, fixed, number, percent, with_error

COLOURS = {"local": 0, "linear": 1}
SMALLEST = 1e-12
APART = 1.6
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CONSTANT_DASHES = {"equal": "d2", "best": "d1", "global": "d4"}


class Point(NamedTuple):
    """A gate on the path."""

    gate: str
    shrinkage: float | None
    risk: float | None
    standard_error: float | None
    weight: float


def path_chart(part: LocalityPathDisplay | None) -> dict[str, Any] | None:
    """Lines of risk along the shrinkage, levels of constant weights, and everything as a table."""
    if part is None:
        return None
    points = _points(part)
    local = [point for point in points if point.shrinkage is not None]
    constant = [point for point in points if point.shrinkage is None]
    risks = around([end for point in points for end in _ends(point)])
    y_ticks = ticks(risks)
    return {
        "gain": _gain(part.gain),
        "y_ticks": y_ticks,
        "left": room_for(tick.label for tick in y_ticks),
        "chart": _chart(local, risks) if local else None,
        "constants": [_level(point, risks) for point in constant if point.risk is not None],
        "table": _table(points),
    }


def _points(part: LocalityPathDisplay) -> list[Point]:
    columns = (part.gate, part.shrinkage, part.risk, part.standard_error, part.weight)
    return [Point(*values) for values in zip(*columns, strict=True)]


def _ends(point: Point) -> list[float | None]:
    risk, error = point.risk, point.standard_error
    if risk is None or point.shrinkage is None:
        return [risk]
    return [risk - (error or 0.0), risk + (error or 0.0)]


def _gain(gain: LocalityGainRecord) -> list[dict[str, str]]:
    value, error = with_error(gain.value, gain.standard_error, 2)
    clear = "clear" if gain.is_clear else "not clear"
    if gain.is_clear and not gain.is_local and (gain.value or 0.0) > 0:
        clear = "clear, but not beside other constant weights"
    if gain.is_idle:
        clear = "not claimed: a constant prediction does as well"
    tiles = [
        (value, "locality gain, held out", f"{error}, {clear}" if error else clear),
        (number(gain.global_risk), "held-out risk of global weights", ""),
        (number(gain.risk), "held-out risk of this model", ""),
    ]
    if gain.global_risk and gain.global_risk > 0 and not gain.is_idle:
        tiles.append((percent((gain.value or 0.0) / gain.global_risk), "of that risk saved", ""))
    return [{"value": value, "label": label, "note": note} for value, label, note in tiles]


def _chart(points: list[Point], risks: Scale) -> dict[str, Any]:
    # From much shrinkage, on the left, to little: the further right, the more local.
    along = around([-_size(point) for point in points], share=0.06)
    names = dict.fromkeys(point.gate for point in points)
    return {
        "ticks": _shrinkage_ticks(points, along),
        "series": [
            {"style": numbered_style(f"{name} gate", COLOURS.get(name, 2))}
            | _line(
                [point for point in points if point.gate == name],
                along,
                risks,
                # Beside each other where they have the same shrinkage.
                APART * (turn - (len(names) - 1) / 2),
            )
            for turn, name in enumerate(names)
        ],
    }


def _size(point: Point) -> float:
    """Powers of ten: shrinkages span many."""
    return log10(max(point.shrinkage or 0.0, SMALLEST))


def _shrinkage_ticks(points: list[Point], along: Scale) -> list[Tick]:
    """Powers of ten between the ends; the shrinkages themselves where there is at most one."""
    powers = range(ceil(-along.high), floor(-along.low) + 1)
    if len(powers) > 1:
        step = ceil(len(powers) / 6)
        labels = [(float(power), f"10{str(power).translate(RAISED)}") for power in powers[::step]]
    else:
        sizes = {_size(point): number(point.shrinkage, 2) for point in points}
        labels = [(end, sizes[end]) for end in sorted({min(sizes), max(sizes)})]
    return [Tick(coordinate(along.at(-power)), label) for power, label in labels]


def _line(points: list[Point], along: Scale, risks: Scale, aside: float) -> dict[str, Any]:
    drawn = [_mark(point, along, risks, aside) for point in points if point.risk is not None]
    return {"points": drawn, "line": " ".join(f"{mark['x']},{mark['y']}" for mark in drawn)}


def _mark(point: Point, along: Scale, risks: Scale, aside: float) -> dict[str, Any]:
    low, high = whisker(risks, point.risk or 0.0, point.standard_error)
    return {
        "x": coordinate(along.at(-_size(point)) + aside),
        "y": coordinate(100 - risks.at(point.risk or 0.0)),
        "low": coordinate(100 - float(low)),
        "high": coordinate(100 - float(high)),
        "is_chosen": (point.weight or 0.0) >= 0.005,
        "radius": coordinate(6.5 + 7 * sqrt(point.weight or 0.0)),
        "says": f"{point.gate}, shrinkage {number(point.shrinkage)}: risk "
        f"{number(point.risk)}, weight {percent(point.weight)}",
    }


def _level(point: Point, risks: Scale) -> dict[str, str]:
    return {
        "name": CONSTANT_NAMES.get(point.gate, point.gate),
        "dash": CONSTANT_DASHES.get(point.gate, "d3"),
        "y": coordinate(100 - risks.at(point.risk or 0.0)),
        "risk": number(point.risk),
    }


def _table(points: list[Point]) -> list[dict[str, str]]:
    decimals = decimals_for(
        (point.standard_error for point in points), (point.risk for point in points)
    )
    return [
        {
            "gate": point.gate,
            "shrinkage": "constant" if point.shrinkage is None else number(point.shrinkage),
            "risk": number(point.risk),
            "error": fixed(point.standard_error, decimals),
            "weight": percent(point.weight),
        }
        for point in points
    ]
