"""The path from constant to local weights: held-out risk against shrinkage, and the gain."""

from __future__ import annotations

from math import ceil, floor, log10, sqrt
from typing import Any

from localma.report.numbers import decimals_for, fixed, number, percent, place, with_error
from localma.report.scales import Scale, around, room_for, ticks, whisker

SERIES = {
    "linear": {"colour": "c1", "mark": "m1", "dash": "d1", "k": "1"},
    "local": {"colour": "c0", "mark": "m0", "dash": "d0", "k": "0"},
}
OTHER = {"colour": "c2", "mark": "m2", "dash": "d2", "k": "2"}
SMALLEST = 1e-12
APART = 1.6
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
CONSTANT_DASHES = {"equal": "d2", "best": "d1", "global": "d4"}


def path_chart(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """Lines of risk along the shrinkage, levels of constant weights, and everything as a table."""
    if part is None:
        return None
    points = _points(part)
    local = [point for point in points if point["shrinkage"] is not None]
    constant = [point for point in points if point["shrinkage"] is None]
    risks = around([end for point in points for end in _ends(point)])
    y_ticks = ticks(risks)
    return {
        "gain": _gain(part["gain"]),
        "y_ticks": y_ticks,
        "left": room_for(tick["label"] for tick in y_ticks),
        "chart": _chart(local, risks) if local else None,
        "constants": [_level(point, risks) for point in constant if point["risk"] is not None],
        "table": _table(points),
    }


def _points(part: dict[str, Any]) -> list[dict[str, Any]]:
    columns = ("gate", "shrinkage", "risk", "standard_error", "weight")
    return [
        dict(zip(columns, values, strict=True))
        for values in zip(*(part[column] for column in columns), strict=True)
    ]


def _ends(point: dict[str, Any]) -> list[float | None]:
    risk, error = point["risk"], point["standard_error"]
    if risk is None or point["shrinkage"] is None:
        return [risk]
    return [risk - (error or 0.0), risk + (error or 0.0)]


def _gain(gain: dict[str, Any]) -> list[dict[str, str]]:
    value, error = with_error(gain, 2)
    clear = "clear" if gain["is_clear"] else "not clear"
    if gain["is_clear"] and not gain["is_local"] and gain["value"] > 0:
        clear = "clear, but not beside other constant weights"
    is_idle = gain.get("is_idle", False)
    if is_idle:
        clear = "not claimed: a constant prediction does as well"
    tiles = [
        (value, "locality gain, held out", f"{error}, {clear}" if error else clear),
        (number(gain["global_risk"]), "held-out risk of global weights", ""),
        (number(gain["risk"]), "held-out risk of this model", ""),
    ]
    if gain["global_risk"] and gain["global_risk"] > 0 and not is_idle:
        tiles.append((percent(gain["value"] / gain["global_risk"]), "of that risk saved", ""))
    return [{"value": value, "label": label, "note": note} for value, label, note in tiles]


def _chart(points: list[dict[str, Any]], risks: Scale) -> dict[str, Any]:
    # From much shrinkage, on the left, to little: the further right, the more local.
    along = around([-_size(point) for point in points], share=0.06)
    names = dict.fromkeys(point["gate"] for point in points)
    return {
        "ticks": _shrinkage_ticks(points, along),
        "series": [
            {"style": {"name": f"{name} gate", **SERIES.get(name, OTHER)}}
            | _line(
                [point for point in points if point["gate"] == name],
                along,
                risks,
                # Beside each other where they have the same shrinkage.
                APART * (turn - (len(names) - 1) / 2),
            )
            for turn, name in enumerate(names)
        ],
    }


def _size(point: dict[str, Any]) -> float:
    """Powers of ten: shrinkages span many."""
    return log10(max(point["shrinkage"], SMALLEST))


def _shrinkage_ticks(points: list[dict[str, Any]], along: Scale) -> list[dict[str, str]]:
    """Powers of ten between the ends; the shrinkages themselves where there is at most one."""
    powers = range(ceil(-along.high), floor(-along.low) + 1)
    if len(powers) > 1:
        step = ceil(len(powers) / 6)
        labels = [(float(power), f"10{str(power).translate(RAISED)}") for power in powers[::step]]
    else:
        sizes = {_size(point): number(point["shrinkage"], 2) for point in points}
        labels = [(end, sizes[end]) for end in sorted({min(sizes), max(sizes)})]
    return [{"at": place(along.at(-power)), "label": label} for power, label in labels]


def _line(points: list[dict[str, Any]], along: Scale, risks: Scale, aside: float) -> dict[str, Any]:
    drawn = [_mark(point, along, risks, aside) for point in points if point["risk"] is not None]
    return {"points": drawn, "line": " ".join(f"{mark['x']},{mark['y']}" for mark in drawn)}


def _mark(point: dict[str, Any], along: Scale, risks: Scale, aside: float) -> dict[str, Any]:
    low, high = whisker(risks, point["risk"], point["standard_error"])
    return {
        "x": place(along.at(-_size(point)) + aside),
        "y": place(100 - risks.at(point["risk"])),
        "low": place(100 - float(low)),
        "high": place(100 - float(high)),
        "is_chosen": (point["weight"] or 0.0) >= 0.005,
        "radius": place(6.5 + 7 * sqrt(point["weight"] or 0.0)),
        "says": f"{point['gate']}, shrinkage {number(point['shrinkage'])}: risk "
        f"{number(point['risk'])}, weight {percent(point['weight'])}",
    }


def _level(point: dict[str, Any], risks: Scale) -> dict[str, str]:
    words = {"equal": "equal weights", "best": "best candidate", "global": "global weights"}
    return {
        "name": words.get(point["gate"], point["gate"]),
        "dash": CONSTANT_DASHES.get(point["gate"], "d3"),
        "y": place(100 - risks.at(point["risk"])),
        "risk": number(point["risk"]),
    }


def _table(points: list[dict[str, Any]]) -> list[dict[str, str]]:
    decimals = decimals_for(
        (point["standard_error"] for point in points), (point["risk"] for point in points)
    )
    return [
        {
            "gate": point["gate"],
            "shrinkage": "constant" if point["shrinkage"] is None else number(point["shrinkage"]),
            "risk": number(point["risk"]),
            "error": fixed(point["standard_error"], decimals),
            "weight": percent(point["weight"]),
        }
        for point in points
    ]
