"""Weights as one bar: a piece per candidate, as long as its weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localma.report.numbers import fixed, place


def stacked(weights: Sequence[float | None], styles: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Pieces {x, width, middle, style, number, says} of a bar, and the bar in words.

    >>> style = {"name": "a", "number": "1", "colour": "c0"}
    >>> bar = stacked([0.25], [style])
    >>> bar["label"], bar["pieces"][0]["width"]
    ('a 0.25', '25')
    """
    pieces: list[dict[str, Any]] = []
    start = 0.0
    for weight, style in zip(weights, styles, strict=True):
        size = 100.0 * (weight or 0.0)
        if size >= 0.05:
            pieces.append(_piece(start, size, style))
        start += size
    named = sorted(zip(weights, styles, strict=True), key=lambda pair: -(pair[0] or 0.0))
    said = [f"{style['name']} {fixed(weight, 2)}" for weight, style in named[:4] if weight]
    return {"pieces": pieces, "label": ", ".join(said)}


def _piece(start: float, size: float, style: dict[str, str]) -> dict[str, Any]:
    room = 4.0 + 2.5 * len(style["number"])
    return {
        "x": place(start),
        "width": place(size),
        "middle": place(start + size / 2),
        "style": style,
        "number": style["number"] if size >= room else "",
        "says": f"{style['name']}: {fixed(size / 100, 2)}",
    }
