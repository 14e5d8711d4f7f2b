"""Timing: works take turns, so that whatever else the machine does befalls all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, sleep
from typing import Any

PAUSE = 0.5
"""Seconds after which the next of several parallel works begins: the threads of OpenMP and of JAX
go on spinning for a while when their work is done, at the cost of whoever is next."""


@dataclass
class Timing:
    """Seconds of every repeat of one work, and what the last repeat returned."""

    seconds: list[float] = field(default_factory=list)
    result: Any = None

    @property
    def median(self) -> float:
        return median(self.seconds)


def interleave(
    works: Mapping[str, Callable[[], Any]], repeats: int, pause: float = 0.0
) -> dict[str, Timing]:
    """Run every work once a round; whoever calls has warmed them up.

    pause : seconds before each.

    >>> len(interleave({"a": lambda: 1, "b": lambda: 2}, repeats=3)["b"].seconds)
    3
    """
    timings = {name: Timing() for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            sleep(pause)
            begin = perf_counter()
            timings[name].result = work()
            timings[name].seconds.append(perf_counter() - begin)
    return timings
