"""Where a value stands in a picture, in percent of its width or height, and the ticks beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil, floor, log10

EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Tick:
    """A label on an axis; at : where, in percent."""

    at: str
    label: str


def coordinate(value: float) -> str:
    """Write a coordinate or a length in a picture.

    >>> coordinate(12.3456), coordinate(50.0)
    ('12.35', '50')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Scale:
    """From a value to percent; values beyond the ends stand at the ends.

    >>> Scale(0.0, 4.0).at(1.0), Scale(1.0, 100.0, log=True).at(10.0), Scale(0.0, 1.0).at(7.0)
    (25.0, 50.0, 100.0)
    """

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Percent from the low end."""
        low, high, here = (
            (log10(v) for v in (self.low, self.high, max(value, 1e-300)))
            if self.log
            else (self.low, self.high, value)
        )
        return 100.0 * min(1.0, max(0.0, (here - low) / (high - low)))

    def is_beyond(self, value: float) -> bool:
        """Whether a value is off the end."""
        return value > self.high


def around(values: Iterable[float | None], *, log: bool = False, share: float = 0.04) -> Scale:
    """A scale over all values, with some room at the ends."""
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if log:
        room = max((high / low) ** share, 1.05)
        return Scale(low / room, high * room, log=True)
    room = (high - low) * share or abs(high) * 0.1 or 1.0
    return Scale(low - room, high + room)


def for_losses(
    values: Sequence[float | None], errors: Sequence[float | None] | None = None
) -> Scale:
    """A scale over losses, from zero where that wastes no room; one huge loss hides no other.

    errors : standard errors, two of which are drawn to either side of a loss.

    >>> for_losses([0.1, 0.2, 0.15, 1e6]).is_beyond(1e6)
    True
    >>> for_losses([1.0, 2.0], [0.1, 0.5]).is_beyond(3.0)
    False
    """
    errors = [None] * len(values) if errors is None else errors
    ends = sorted(
        (value, 2 * (error or 0.0))
        for value, error in zip(values, errors, strict=True)
        if value is not None
    )
    if not ends:
        return Scale(0.0, 1.0)
    known = [value for value, _ in ends]
    typical = known[(3 * (len(known) - 1)) // 4]
    high = min(known[-1], 6 * typical) if typical > 0 else known[-1]
    # Bars are seen whole, unless they are so long that losses would not be told apart.
    reach = max(value + bar for value, bar in ends if value <= high)
    low, high = min(value - bar for value, bar in ends), min(reach, 2 * high) if high > 0 else reach
    if 0 <= known[0] <= 0.6 * high:
        return Scale(0.0, high * 1.04 or 1.0)  # no loss is below
    return around([low, high])


def is_skewed(values: Sequence[float]) -> bool:
    """Whether a logarithmic scale shows these better: positive, with a long tail to the right."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return ordered[0] > 0 and ordered[-1] - middle > 4 * (middle - ordered[0]) > 0


def ticks(scale: Scale, most: int = 5) -> list[Tick]:
    """Round numbers along a scale: {at, label} each.

    >>> [tick.label for tick in ticks(Scale(0.0, 1.0))]
    ['0', '0.25', '0.5', '0.75', '1']
    """
    values = _powers(scale, most) if scale.log else _round_numbers(scale.low, scale.high, most)
    return [Tick(coordinate(scale.at(value)), _label(value)) for value in values]


def date_ticks(scale: Scale, most: int = 4) -> list[Tick]:
    """Dates along a scale of days since 1970.

    >>> [tick.label for tick in date_ticks(Scale(0.0, 1461.0), 3)]
    ['1970-01', '1972-01', '1974-01']
    """
    days = [scale.low + (scale.high - scale.low) * k / (most - 1) for k in range(most)]
    form = "%Y-%m" if scale.high - scale.low > 200 else "%Y-%m-%d"
    return [
        Tick(coordinate(scale.at(day)), (EPOCH + timedelta(days=day)).strftime(form))
        for day in days
    ]


def _round_numbers(low: float, high: float, most: int) -> list[float]:
    span = high - low
    power = 10.0 ** floor(log10(span / most))
    step = next(
        step
        for factor in (1, 2, 2.5, 5, 10, 20)
        if floor(high / (step := factor * power) + 1e-9) - ceil(low / step - 1e-9) < most
    )
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _powers(scale: Scale, most: int) -> list[float]:
    """1, 2, 5, 10, ... between the ends, thinned out where they are many."""
    first, last = floor(log10(scale.low)), ceil(log10(scale.high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [
            factor * 10.0**power
            for power in range(first, last + 1)
            for factor in factors
            if scale.low <= factor * 10.0**power <= scale.high
        ]
        if len(values) <= most:
            break
    return values[:: ceil(len(values) / most)] if values else [scale.low, scale.high]


def _label(value: float) -> str:
    size = abs(value)
    if size and not 1e-4 <= size < 1e6:
        return f"{value:.3g}".replace("-", "−").replace("e−0", "e−").replace("e+0", "e")
    text = f"{value:,.7f}".rstrip("0").rstrip(".")
    return text.replace("-", "−") if text not in ("-0", "") else "0"


def whisker(scale: Scale, value: float, error: float | None, times: float = 1.0) -> tuple[str, str]:
    """The ends of an interval of one standard error, or more, about a value."""
    size = times * (error or 0.0)
    return coordinate(scale.at(value - size)), coordinate(scale.at(value + size))


def room_for(labels: Iterable[str]) -> str:
    """How much room labels beside a picture need: "s", "m" or "l".

    >>> room_for(["0", "0.25"]), room_for(["a long category"])
    ('s', 'l')
    """
    longest = max(map(len, labels), default=0)
    return "s" if longest <= 5 else "m" if longest <= 9 else "l"
