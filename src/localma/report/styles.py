"""Which colour, line, mark and number a candidate has, everywhere on the page.

Colours are those of the pictures of `localma.inspection`, with lighter ones for dark mode. Nothing
is told by colour alone: lines have dashes and marks, areas have the candidate's number in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from localma.inspection.drawing import COLOURS
from localma.inspection.effects import WeightEffect
from localma.inspection.regions import RegionsDisplay
from localma.inspection.summary import SampledRows, Summary
from localma.inspection.weight_map import WeightMapDisplay

Named: TypeAlias = WeightEffect | WeightMapDisplay | RegionsDisplay | SampledRows
"""Parts that name the most trusted candidates."""

OTHERS = len(COLOURS) - 1
DARK = (
    "#3D9BE9",
    "#F0813A",
    "#22B88C",
    "#E596C2",
    "#F2B632",
    "#A3DDFF",
    "#F4F4F4",
    "#C65D94",
    "#9A9FA8",
)
"""The same colours on a dark page: bright enough to show, in the same order."""

MARKS = {
    "m0": "M0-4.5a4.5 4.5 0 1 0 .01 0z",
    "m1": "M-4-4h8v8h-8z",
    "m2": "M0-5.2 4.8 3.8h-9.6z",
    "m3": "M0-5.4 5.4 0 0 5.4-5.4 0z",
    "m4": "M0 5.2 4.8-3.8h-9.6z",
    "m5": "M-1.8-5h3.6v3.2H5v3.6H1.8V5h-3.6V1.8H-5v-3.6h3.2z",
    "m6": "M-5-2.7-2.7-5 0-2.3 2.7-5 5-2.7 2.3 0 5 2.7 2.7 5 0 2.3-2.7 5-5 2.7-2.3 0z",
    "m7": "M0-6 1.5-2 5.7-1.9 2.4.8 3.5 4.9 0 2.5-3.5 4.9-2.4.8-5.7-1.9-1.5-2z",
    "m8": "M0-5 4.3-2.5v5L0 5-4.3 2.5v-5z",
    "local": "M0-6.2 6.2 0 0 6.2-6.2 0z",
    "global": "M-4.5-4.5h9v9h-9z",
    "equal": "M0-5.6 5.2 4.2H-5.2z",
    "control": "M-5-5 5 5M5-5-5 5",
    "beyond": "M-4-5 4 0-4 5z",
}
"""Outlines of the marks, about the origin; circle, square, triangle ... in inspection's order."""


@dataclass(frozen=True)
class Style:
    """How a candidate, or another entry, looks; k : number of its colour, empty for ink."""

    name: str
    number: str = ""
    k: str = ""
    colour: str = ""
    mark: str = ""
    dash: str = "d0"


class Styles:
    """The style of every candidate of a summary, by its place in the pool.

    Where there are more candidates than colours, those that some part names share the colours,
    and the rest is grey.

    """

    def __init__(self, summary: Summary) -> None:
        self.names = [candidate.name for candidate in summary.model.candidates]
        self.places = {name: place for place, name in enumerate(self.names)}
        many = len(self.names) > len(COLOURS)
        named = sorted(self._named(summary)) if many else list(range(len(self.names)))
        most = OTHERS if many else len(COLOURS)
        self.colours = {place: turn % most for turn, place in enumerate(named)}

    def at(self, place: int) -> Style:
        """Style of the candidate at a place of the pool."""
        return _style(self.names[place], str(place + 1), self.colours.get(place, OTHERS))

    def of(self, part: Named) -> list[Style]:
        """Styles of what a part lists as its candidates, the sum of the others last."""
        names = part.candidates
        n_named = len(names) - bool(part.n_others)
        styles = [self.at(self.places[name]) for name in names[:n_named]]
        return styles + [_style(name, "+", OTHERS) for name in names[n_named:]]

    def _named(self, summary: Summary) -> set[int]:
        parts: list[Named | None] = [
            *summary.effects.effects,
            summary.map,
            summary.regions,
            summary.rows,
        ]
        return {
            self.places[name]
            for part in parts
            if part
            for name in part.candidates[: -1 if part.n_others else None]
        }


def kind_style(kind: str, name: str) -> Style:
    """Style of equal, global and local weights and of the control: ink, with a mark of its own."""
    return Style(name, colour=f"k-{kind}", mark=kind)


def palette() -> str:
    """CSS of the colours: a variable for each and one for the ink that can be read on it."""
    light = _variables(COLOURS)
    dark = _variables(DARK)
    classes = "".join(
        f".c{k}{{--c:var(--c{k});--on:var(--on{k})}}"
        f"body[data-pick='{k}'] [data-k]:not([data-k='{k}']){{opacity:.13}}\n"
        for k in range(len(COLOURS))
    )
    in_the_dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return f":root{{{light}}}\n{in_the_dark}\n{classes}"


def _style(name: str, number: str, colour: int) -> Style:
    return numbered_style(name, colour, number)


def numbered_style(name: str, colour: int, number: str = "") -> Style:
    """The style of one of the colours."""
    return Style(name, number, str(colour), f"c{colour}", f"m{colour}", f"d{colour}")


def _variables(colours: tuple[str, ...]) -> str:
    return "".join(
        f"--c{k}:{colour};--on{k}:{readable_on(colour)};" for k, colour in enumerate(colours)
    )


def readable_on(colour: str) -> str:
    """Black or white, whichever has more contrast to a colour.

    >>> readable_on("#0072B2"), readable_on("#E69F00")
    ('#fff', '#000')
    """
    light = _luminance(colour)
    return "#fff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "#000"


def _luminance(colour: str) -> float:
    """Relative luminance, as the guidelines for accessible pages define it."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
