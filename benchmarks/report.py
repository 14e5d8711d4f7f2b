"""Results of a benchmark: timed rows, figures made of them, and reasons for missing figures.

A row counts only if the held-out risk of the timed fit is within 1 % of a float64 reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

TOLERANCE = 0.01


@dataclass
class Row:
    """One timed task.

    seconds : time of every repeat; scale : their factor, if only a part was timed.
    risk, reference : held-out risk of the timed fit, and of the float64 reference; None if
        there is none, for example for a peer with another method.
    reference_is_weaker : the reference had fewer rows, so only a risk above it is a fault.
    """

    work: str
    name: str
    seconds: Sequence[float]
    risk: float | None = None
    reference: float | None = None
    scale: float = 1.0
    reference_is_weaker: bool = False
    note: str = ""

    @property
    def median(self) -> float:
        return self.scale * median(self.seconds)

    @property
    def counts(self) -> bool | None:
        """Whether the risk is close to the reference; None if there is no reference."""
        if self.risk is None or self.reference is None:
            return None
        excess = self.risk / self.reference - 1.0
        return excess <= TOLERANCE and (self.reference_is_weaker or excess >= -TOLERANCE)

    def as_dict(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "name": self.name,
            "seconds": self.median,
            "fastest": self.scale * min(self.seconds),
            "slowest": self.scale * max(self.seconds),
            "repeats": len(self.seconds),
            "risk": self.risk,
            "reference": self.reference,
            "within_1_percent": self.counts,
            "note": self.note,
        }

    def __str__(self) -> str:
        verdict = {True: "within 1 %", False: "NOT within 1 %: does not count", None: "-"}
        risk, reference = ("-" if x is None else f"{x:.5g}" for x in (self.risk, self.reference))
        return (
            f"{self.work:34} {self.name:26} {self.median:12.6f} s   risk {risk:>9}   "
            f"float64 {reference:>9}   {verdict[self.counts]}"
            + (f"   ({self.note})" * bool(self.note))
        )


@dataclass
class Report:
    """Rows and figures of one benchmark, printed as they are added."""

    rows: list[Row] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row) -> Row:
        self.rows.append(row)
        print(row, flush=True)
        return row

    def figure(self, key: str, value: Any) -> None:
        self.figures[key] = value
        print(f"  {key} = {value if not isinstance(value, float) else f'{value:.4g}'}", flush=True)

    def store(self, key: str, value: Any) -> None:
        """Record the data of a plot, without printing them."""
        self.figures[key] = value

    def missing(self, key: str, reason: str) -> None:
        """Record that a figure is missing, and the reason."""
        self.figures[key], self.reasons[key] = None, reason
        print(f"  {key} is missing: {reason}", flush=True)

    def ratio(self, key: str, above: Row, below: Row, factor: float = 1.0) -> None:
        """Record the ratio of two medians, unless one of them timed a wrong fit."""
        self.from_rows(key, factor * above.median / below.median, above, below)

    def from_rows(self, key: str, value: Any, *rows: Row) -> None:
        """Record a figure made of rows, unless one of them timed a wrong fit."""
        wrong = [f"{row.name} ({row.work})" for row in rows if row.counts is False]
        if wrong:
            self.missing(key, f"not within 1 % of the float64 reference: {', '.join(wrong)}")
        else:
            self.figure(key, value)

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.figures,
            "reasons": self.reasons,
            "rows": [row.as_dict() for row in self.rows],
        }
