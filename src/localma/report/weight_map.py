"""The map over two features: who is trusted most in each cell; the fuller, the further."""

from __future__ import annotations

from typing import Any

from localma.inspection.weight_map import WeightMapDisplay
from localma.report.scales import Tick, coordinate, room_for
from localma.report.styles import Style, Styles
from localma.wording import fixed, number, short

WIDEST = 20
"""Characters of a label beside the map; the rest is cut."""


def weight_map(part: WeightMapDisplay | None, styles: Styles) -> dict[str, Any] | None:
    """Cells with their style and strength, the labels of both axes, and the data for the script."""
    if part is None:
        return None
    series = styles.of(part)
    across, up = (_labels(part, axis) for axis in (0, 1))
    longest = max(len(label) for label in across)
    return {
        "features": part.features,
        "series": series,
        "cells": _cells(part, styles),
        "across": _ticks(across),
        "up": _ticks(up),
        "turned": longest > 4,
        "bottom": "s" if longest <= 4 else "m" if longest <= 7 else "l" if longest <= 12 else "xl",
        "left": room_for(up),
        "height": 34 * len(up),
        "head": part.labels[0],
        "table": _table(part, styles),
        "data": _data(part, series),
    }


def _labels(part: WeightMapDisplay, axis: int) -> list[str]:
    """Categories by name; numbers by the mean of their bin, with as few digits as tell apart."""
    labels, centres = part.labels[axis], part.centres[axis]
    if centres is None or part.kinds[axis] == "date":
        return [short(label, WIDEST) for label in labels]
    known = [centre for centre in centres if centre is not None]
    digits = next(
        (d for d in range(2, 9) if len({number(c, d) for c in known}) == len(set(known))), 9
    )
    return [
        short(label if centre is None else _trimmed(number(centre, digits)), WIDEST)
        for label, centre in zip(labels, centres, strict=True)
    ]


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _ticks(labels: list[str]) -> list[Tick]:
    return [
        Tick(coordinate(100 * (k + 0.5) / len(labels)), label) for k, label in enumerate(labels)
    ]


def _cells(part: WeightMapDisplay, styles: Styles) -> list[dict[str, Any]]:
    width, height = len(part.labels[0]), len(part.labels[1])
    cells = []
    for j in range(height):
        for i in range(width):
            leader = part.most_trusted[j][i]
            cells.append(
                {
                    "x": coordinate(100 * i / width),
                    "y": coordinate(100 * (height - 1 - j) / height),
                    "middle": coordinate(100 * (i + 0.5) / width),
                    "centre": coordinate(100 * (height - 0.5 - j) / height),
                    "style": None if leader is None else styles.at(leader),
                    "strength": _strength(part, leader, j, i, styles),
                    "says": _says(part, j, i, styles),
                }
            )
    size = {"width": coordinate(100 / width), "height": coordinate(100 / height)}
    return [cell | size for cell in cells]


def _strength(part: WeightMapDisplay, leader: int | None, j: int, i: int, styles: Styles) -> str:
    """How full the colour is: the weight of the most trusted candidate."""
    if leader is None:
        return "0"
    return coordinate(0.15 + 0.85 * _weight_of(part, leader, j, i, styles))


def _weight_of(part: WeightMapDisplay, leader: int, j: int, i: int, styles: Styles) -> float:
    name = styles.names[leader]
    # One of the others: what is known is the sum of their weights.
    c = part.candidates.index(name) if name in part.candidates else -1
    return float(part.weights[c][j][i] or 0.0)


def _says(part: WeightMapDisplay, j: int, i: int, styles: Styles) -> str:
    first, second = part.features
    where = f"{first} {part.labels[0][i]}, {second} {part.labels[1][j]}"
    leader = part.most_trusted[j][i]
    if leader is None:
        return f"{where}: no rows"
    rows = f"{part.counts[j][i]:,} rows"
    weight = fixed(_weight_of(part, leader, j, i, styles), 2)
    return f"{where} ({rows}): {styles.names[leader]} {weight}"


def _table(part: WeightMapDisplay, styles: Styles) -> list[dict[str, Any]]:
    """The map in words: a row per bin of the second feature, the highest first, as drawn."""
    table = []
    for j, label in reversed(list(enumerate(part.labels[1]))):
        leaders = part.most_trusted[j]
        cells = [
            ""
            if leader is None
            else f"{styles.names[leader]} {fixed(_weight_of(part, leader, j, i, styles), 2)}"
            for i, leader in enumerate(leaders)
        ]
        table.append({"label": label, "cells": cells})
    return table


def _data(part: WeightMapDisplay, series: list[Style]) -> dict[str, Any]:
    """What the script needs to show one candidate's weight: [C][cell], as cells are."""
    return {
        "series": [{"name": style.name, "k": style.k} for style in series],
        "weights": [
            [None if weight is None else round(weight, 6) for row in weights for weight in row]
            for weights in part.weights
        ],
    }
