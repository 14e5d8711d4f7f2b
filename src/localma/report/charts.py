"""Geometry and style of the page's charts: scales, ticks, colours and marks.

Lengths are in percent of the chart. Colours are those of the plots of `localma.inspection`, with
lighter ones for dark mode. Colour is never the only cue: lines have dashes and marks, and areas
contain the number of the candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil, floor, log10
from typing import TypeAlias

from localma.formatting import fixed, number, tick_label
from localma.inspection.comparison import Entry
from localma.inspection.display import COLOURS, DARK
from localma.inspection.effects import WeightEffect, WeightMapDisplay
from localma.inspection.path import LocalityPathDisplay, PathPoint
from localma.inspection.regions import EntryName, RegionsDisplay
from localma.inspection.summary import SampledRows, Summary

Named: TypeAlias = WeightEffect | WeightMapDisplay | RegionsDisplay | SampledRows
"""A part of the summary that names the most trusted candidates."""

EPOCH = date(1970, 1, 1)
LOWEST_SHRINKAGE = 1e-12
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

OTHERS = len(COLOURS) - 1

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
"""Outlines of the marks, centred at the origin."""


@dataclass(frozen=True)
class Tick:
    """A label on an axis; at : its position in percent."""

    at: str
    label: str


def coordinate(value: float) -> str:
    """Write a coordinate or a length in a chart.

    >>> coordinate(12.3456), coordinate(50.0)
    ('12.35', '50')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Scale:
    """Maps values to percent; values beyond the ends are drawn at the ends.

    >>> Scale(0.0, 4.0).at(1.0), Scale(1.0, 100.0, log=True).at(10.0), Scale(0.0, 1.0).at(7.0)
    (25.0, 50.0, 100.0)
    """

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Percent from the low end."""
        ends = (self.low, self.high, value)
        if self.log:
            ends = (log10(self.low), log10(self.high), log10(max(value, 1e-300)))
        low, high, position = ends
        return 100.0 * min(1.0, max(0.0, (position - low) / (high - low)))

    def x(self, value: float) -> str:
        """Coordinate from the left."""
        return coordinate(self.at(value))

    def y(self, value: float) -> str:
        """Coordinate from the top, if the low end is at the bottom."""
        return coordinate(100 - self.at(value))

    def is_beyond(self, value: float) -> bool:
        """Whether a value is larger than the high end."""
        return value > self.high


UNIT = Scale(0.0, 1.0)


def around(values: Iterable[float | None], *, log: bool = False, share: float = 0.04) -> Scale:
    """Make a scale over all values, with a margin at the ends."""
    numbers = [value for value in values if value is not None] or [0.0, 1.0]
    low, high = min(numbers), max(numbers)
    if log:
        margin = max((high / low) ** share, 1.05)
        return Scale(low / margin, high * margin, log=True)
    margin = (high - low) * share or abs(high) * 0.1 or 1.0
    return Scale(low - margin, high + margin)


def for_losses(
    values: Sequence[float | None], errors: Sequence[float | None] | None = None
) -> Scale:
    """Make a scale over losses, from zero if that leaves little empty space.

    A huge loss is drawn beyond the end, so that the other losses stay visible.

    errors : standard errors; the bar of a loss is two of them to either side.

    >>> for_losses([0.1, 0.2, 0.15, 1e6]).is_beyond(1e6)
    True
    >>> for_losses([1.0, 2.0], [0.1, 0.5]).is_beyond(3.0)
    False
    """
    bars = sorted(
        (value, 2 * (error or 0.0))
        for value, error in zip(values, errors or [None] * len(values), strict=True)
        if value is not None
    )
    if not bars:
        return UNIT
    losses = [value for value, _ in bars]
    typical = losses[(3 * (len(losses) - 1)) // 4]
    high = losses[-1]
    if typical > 0:
        high = min(high, 6 * typical)
    # Bars are shown in full, unless they are so long that the losses could not be distinguished.
    reach = max(value + bar for value, bar in bars if value <= high)
    if high > 0:
        reach = min(reach, 2 * high)
    if 0 <= losses[0] <= 0.6 * reach:
        return Scale(0.0, reach * 1.04 or 1.0)
    return around([min(value - bar for value, bar in bars), reach])


def is_skewed(values: Sequence[float]) -> bool:
    """Whether a logarithmic scale is better: positive values with a long tail to the right."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return ordered[0] > 0 and ordered[-1] - middle > 4 * (middle - ordered[0]) > 0


def ticks(scale: Scale, n_ticks: int = 5) -> list[Tick]:
    """Place round numbers along a scale.

    >>> [tick.label for tick in ticks(Scale(0.0, 1.0))]
    ['0', '0.25', '0.5', '0.75', '1']
    """
    if scale.log:
        values = _powers(scale, n_ticks)
    else:
        values = _round_numbers(scale.low, scale.high, n_ticks)
    return [Tick(scale.x(value), tick_label(value)) for value in values]


def date_ticks(scale: Scale, n_ticks: int = 4) -> list[Tick]:
    """Place dates along a scale of days since 1970.

    >>> [tick.label for tick in date_ticks(Scale(0.0, 1461.0), 3)]
    ['1970-01', '1972-01', '1974-01']
    """
    span = scale.high - scale.low
    form = "%Y-%m" if span > 200 else "%Y-%m-%d"
    days = [scale.low + span * k / (n_ticks - 1) for k in range(n_ticks)]
    return [Tick(scale.x(day), (EPOCH + timedelta(days=day)).strftime(form)) for day in days]


def label_ticks(labels: Sequence[str]) -> list[Tick]:
    """Place labels in the middle of equal intervals."""
    return [
        Tick(coordinate(100 * (k + 0.5) / len(labels)), label) for k, label in enumerate(labels)
    ]


def _round_numbers(low: float, high: float, n_ticks: int) -> list[float]:
    power = 10.0 ** floor(log10((high - low) / n_ticks))
    for factor in (1, 2, 2.5, 5, 10, 20):
        step = factor * power
        multiples = range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
        if len(multiples) <= n_ticks:
            break
    return [k * step for k in multiples]


def _powers(scale: Scale, n_ticks: int) -> list[float]:
    """List 1, 2, 5, 10, ... between the ends, or fewer of them if they are many."""
    powers = range(floor(log10(scale.low)), ceil(log10(scale.high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [factor * 10.0**power for power in powers for factor in factors]
        values = [value for value in values if scale.low <= value <= scale.high]
        if len(values) <= n_ticks:
            break
    return values[:: ceil(len(values) / n_ticks)] if values else [scale.low, scale.high]


def room_for(labels: Iterable[str], limits: Sequence[int] = (5, 9)) -> str:
    """Return the size of the margin for labels: "s", "m", "l" or "xl".

    >>> room_for(["0", "0.25"]), room_for(["a long category"])
    ('s', 'l')
    """
    longest = max(map(len, labels), default=0)
    return ("s", "m", "l", "xl")[sum(longest > limit for limit in limits)]


def polyline(
    x: Scale, xs: Sequence[float | None], y: Scale, ys: Sequence[float | None]
) -> list[tuple[str, str]]:
    """Return the coordinates of the points of a line, without those that are missing."""
    return [
        (x.x(a), y.y(b)) for a, b in zip(xs, ys, strict=True) if a is not None and b is not None
    ]


class PathChart:
    """Scales of the chart of a path: risk upwards, and less shrinkage to the right."""

    def __init__(self, path: LocalityPathDisplay) -> None:
        points = [point for point in path.points if point.risk is not None]
        self.constant = [point for point in points if point.shrinkage is None]
        self.local = [point for point in points if point.shrinkage is not None]
        self.gates = list(dict.fromkeys(point.gate for point in self.local))
        ends = [(point.risk or 0.0) for point in self.constant]
        for sign in (-1, 1):
            ends += [(p.risk or 0.0) + sign * (p.standard_error or 0.0) for p in self.local]
        self.risks = around(ends)
        self.shrinkages = around([-_power(point) for point in self.local], share=0.06)

    def x(self, point: PathPoint) -> str:
        """Coordinate of a point; gates with the same shrinkage are drawn side by side."""
        aside = 1.6 * (self.gates.index(point.gate) - (len(self.gates) - 1) / 2)
        return coordinate(self.shrinkages.at(-_power(point)) + aside)

    def ticks(self) -> list[Tick]:
        """Powers of ten; the smallest and largest shrinkage if there is at most one power."""
        scale = self.shrinkages
        powers = range(ceil(-scale.high), floor(-scale.low) + 1)
        if len(powers) > 1:
            powers = powers[:: ceil(len(powers) / 6)]
            labels = {float(p): f"10{str(p).translate(SUPERSCRIPTS)}" for p in powers}
        else:
            by_power = {_power(point): number(point.shrinkage, 2) for point in self.local}
            labels = {end: by_power[end] for end in (min(by_power), max(by_power))}
        return [Tick(scale.x(-power), label) for power, label in labels.items()]


def _power(point: PathPoint) -> float:
    return log10(max(point.shrinkage or 0.0, LOWEST_SHRINKAGE))


@dataclass(frozen=True)
class Style:
    """Look of a candidate or another entry; k : index of its colour, empty for black or white."""

    name: str
    number: str = ""
    k: str = ""
    colour: str = ""
    mark: str = ""
    dash: str = "d0"

    @classmethod
    def numbered(cls, name: str, colour: int, number: str = "") -> Style:
        """Make the style of one of the colours."""
        return cls(name, number, str(colour), f"c{colour}", f"m{colour}", f"d{colour}")


class Styles:
    """The style of every candidate of a summary.

    If there are more candidates than colours, those that some part names share the colours, and
    the others are grey.
    """

    def __init__(self, summary: Summary) -> None:
        self.names = [candidate.name for candidate in summary.model.candidates]
        self.positions = {name: m for m, name in enumerate(self.names)}
        named, n_colours = set(self.names), len(COLOURS)
        if len(self.names) > n_colours:
            optional = (summary.map, summary.regions, summary.rows)
            parts: list[Named] = [*summary.effects, *(part for part in optional if part)]
            named, n_colours = {name for part in parts for name in part.candidates}, OTHERS
        order = [name for name in self.names if name in named]
        self.colours = {name: k % n_colours for k, name in enumerate(order)}

    def at(self, position: int) -> Style:
        """Return the style of the candidate at a position of the pool."""
        name = self.names[position]
        return Style.numbered(name, self.colours.get(name, OTHERS), str(position + 1))

    def of(self, part: Named) -> list[Style]:
        """Return the styles of the candidates of a part, with the sum of the others last."""
        n_named = len(part.candidates) - bool(part.n_others)
        styles = [self.at(self.positions[name]) for name in part.candidates[:n_named]]
        return styles + [Style.numbered(name, OTHERS, "+") for name in part.candidates[n_named:]]

    def entries(self, entries: Sequence[EntryName]) -> list[Style]:
        """Return the style of each entry."""
        return [self.entry(entry) for entry in entries]

    def entry(self, entry: Entry | EntryName) -> Style:
        """Return the style of an entry: mixtures and the control are black, with special marks."""
        if entry.kind == "candidate":
            return self.at(self.positions[entry.name])
        return Style(entry.name, colour=f"k-{entry.kind}", mark=entry.kind)


@dataclass(frozen=True)
class Piece:
    """A piece of a stacked bar: the weight of one candidate."""

    start: float
    size: float
    style: Style

    @property
    def number(self) -> str:
        """The number of the candidate, if there is space for it."""
        return self.style.number * (self.size >= 4.0 + 2.5 * len(self.style.number))

    @property
    def text(self) -> str:
        """The weight in words."""
        return f"{self.style.name}: {fixed(self.size / 100, 2)}"


def stacked(weights: Sequence[float | None], styles: Sequence[Style]) -> list[Piece]:
    """Divide a bar among the candidates; pieces that are too thin to show are left out.

    >>> stacked([0.25, 0.0], [Style("a", "1"), Style("b", "2")])[0].text
    'a: 0.25'
    """
    pieces, start = [], 0.0
    for weight, style in zip(weights, styles, strict=True):
        pieces.append(Piece(start, 100.0 * (weight or 0.0), style))
        start += pieces[-1].size
    return [piece for piece in pieces if piece.size >= 0.05]


def strip(rows: SampledRows, styles: Sequence[Style]) -> list[str]:
    """Draw the bars of all rows side by side: the SVG path of each candidate's pieces."""
    paths = dict.fromkeys(styles, "")
    for x, row in enumerate(rows.order):
        for piece in stacked(rows.weights[row], styles):
            top, height = coordinate(piece.start), coordinate(piece.size)
            paths[piece.style] += f"M{x} {top}h1v{height}h-1z"
    return list(paths.values())


def region_starts(rows: SampledRows) -> list[Tick]:
    """Mark the beginning of each region on the strip; a wide region has its number as label."""
    regions = [rows.region[row] or 0 for row in rows.order]
    n = len(regions)
    return [
        Tick(
            coordinate(100 * regions.index(region) / n),
            str(region + 1) * (regions.count(region) >= n / 40),
        )
        for region in dict.fromkeys(regions)
    ]


def palette() -> str:
    """Write the CSS of the colours: a variable for each, and one for readable text on it."""
    classes = "".join(
        f".c{k}{{--c:var(--c{k});--on:var(--on{k})}}"
        f"body[data-pick='{k}'] [data-k]:not([data-k='{k}']){{opacity:.13}}\n"
        for k in range(len(COLOURS))
    )
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    return f":root{{{_variables(COLOURS)}}}\n{dark}\n{classes}"


def _variables(colours: Sequence[str]) -> str:
    return "".join(
        f"--c{k}:{colour};--on{k}:{readable_on(colour)};" for k, colour in enumerate(colours)
    )


def readable_on(colour: str) -> str:
    """Return black or white, whichever has more contrast with a colour.

    >>> readable_on("#0072B2"), readable_on("#E69F00")
    ('#fff', '#000')
    """
    light = luminance(colour) + 0.05
    return "#fff" if 1.05 / light > light / 0.05 else "#000"


def luminance(colour: str) -> float:
    """Return the relative luminance, as the accessibility guidelines (WCAG) define it."""
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
