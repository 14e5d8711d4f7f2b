"""Timing of tasks that take turns, so that other load on the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, sleep
from typing import Any

PAUSE = 0.5
"""Seconds before each of several parallel tasks. Threads of OpenMP and JAX keep spinning for some
time after their task, which would slow down the next one."""


@dataclass
class Timing:
    """Seconds of every repeat of one task, and the result of the last repeat."""

    seconds: list[float] = field(default_factory=list)
    result: Any = None

    @property
    def median(self) -> float:
        return median(self.seconds)


def interleave(
    works: Mapping[str, Callable[[], Any]], repeats: int, pause: float = 0.0
) -> dict[str, Timing]:
    """Run every task once per round. The caller has warmed them up.

    pause : seconds before each task.

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
