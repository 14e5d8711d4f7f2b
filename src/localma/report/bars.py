"""Weights as one bar: a piece per candidate, as long as its weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localma.report.scales import coordinate
from localma.report.styles import Style
from localma.wording import fixed


def stacked(weights: Sequence[float | None], styles: Sequence[Style]) -> dict[str, Any]:
    """Pieces {x, width, middle, style, number, says} of a bar, and the bar in words.

    >>> bar = stacked([0.25], [Style("a", "1")])
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
    said = [f"{style.name} {fixed(weight, 2)}" for weight, style in named[:4] if weight]
    return {"pieces": pieces, "label": ", ".join(said)}


def _piece(start: float, size: float, style: Style) -> dict[str, Any]:
    room = 4.0 + 2.5 * len(style.number)
    return {
        "x": coordinate(start),
        "width": coordinate(size),
        "middle": coordinate(start + size / 2),
        "style": style,
        "number": style.number if size >= room else "",
        "says": f"{style.name}: {fixed(size / 100, 2)}",
    }
