"""Timing: works take turns, so that whatever else the machine does befalls all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any


@dataclass
class Timing:
    """Seconds of every repeat of one work, and what the last repeat returned."""

    seconds: list[float] = field(default_factory=list)
    result: Any = None

    @property
    def median(self) -> float:
        return median(self.seconds)


def interleave(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Run every work once a round; whoever calls has warmed them up.

    >>> len(interleave({"a": lambda: 1, "b": lambda: 2}, repeats=3)["b"].seconds)
    3
    """
    timings = {name: Timing() for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            begin = perf_counter()
            timings[name].result = work()
            timings[name].seconds.append(perf_counter() - begin)
    return timings
