"""Results by method, metric and cell, and statements about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Entry = tuple[str, str, frozenset[tuple[str, Any]]]


class NotRunError(LookupError):
    """No replicate of the requested figure has been run."""


class NotDecidedError(LookupError):
    """The results neither support nor contradict a statement."""


class Results:
    """The replicates of a study, by method, metric and keys of a cell."""

    def __init__(self, rows: Iterable[tuple[Mapping[str, Any], Mapping[str, float]]]) -> None:
        """Take one row per replicate and cell; a replicate that has not run has no metrics."""
        self._values: dict[Entry, dict[int, float]] = {}
        counts: Counter[frozenset[tuple[str, Any]]] = Counter()
        for keys, metrics in rows:
            where = frozenset(keys.items())
            for name, value in metrics.items():
                method, _, metric = name.partition(":")
                self._values.setdefault((method, metric, where), {})[counts[where]] = value
            counts[where] += 1

    def values(self, method: str, metric: str, **keys: Any) -> Array:
        """Values of a metric over the replicates: (R,)."""
        return np.array(list(self._by_replicate(method, metric, keys).values()))

    def paired(self, method: str, other: str, metric: str, **keys: Any) -> tuple[Array, Array]:
        """Values of two methods in the replicates that both have run: (R,) each."""
        ours, theirs = (self._by_replicate(name, metric, keys) for name in (method, other))
        both = [number for number in ours if number in theirs]
        if not both:
            raise NotRunError(f"No replicate of {keys} has both {method} and {other}.")
        return np.array([ours[n] for n in both]), np.array([theirs[n] for n in both])

    def mean(self, method: str, metric: str, **keys: Any) -> float:
        """Mean of a metric over the replicates."""
        return float(self.values(method, metric, **keys).mean())

    def series(
        self, method: str, metric: str, over: str, *, at: Iterable[Any] = (), **keys: Any
    ) -> dict[Any, float]:
        """Means along one key, in increasing order of that key; `at` lists required values."""
        cells = self.cells_along(over, method, metric, **keys)
        points = {cell[over]: self.mean(method, metric, **cell) for cell in cells}
        missing = [position for position in at if position not in points]
        if len(points) < 2 or missing:
            raise NotRunError(
                f"No series of {method}:{metric} over {over} in {keys} has been run"
                + (f" at {missing}." if missing else ".")
            )
        return points

    def cells_along(self, over: str, method: str, metric: str, **keys: Any) -> list[dict[str, Any]]:
        """Keys of the cells that have been run and differ only by one key, in increasing order."""
        found = [
            cell
            for name, measured, cell in self.entries()
            if (name, measured) == (method, metric)
            and over in cell
            and cell == keys | {over: cell[over]}
        ]
        return sorted(found, key=lambda cell: cell[over])

    def has_run(self, method: str, metric: str, **keys: Any) -> bool:
        """Whether there is a replicate of a metric."""
        return (method, metric, frozenset(keys.items())) in self._values

    def _by_replicate(self, method: str, metric: str, keys: Mapping[str, Any]) -> dict[int, float]:
        if not self.has_run(method, metric, **keys):
            raise NotRunError(f"No replicate of {method}:{metric} in {keys} has been run.")
        return self._values[method, metric, frozenset(keys.items())]

    def entries(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Every (method, metric, keys) that has been run."""
        return [(method, metric, dict(where)) for method, metric, where in self._values]


@dataclass(frozen=True)
class Finding:
    """A statement about results, and a function that checks it.

    source : its place in the paper; "aim" marks an aim of this software.
    panel : the part of the study that it is about, if several parts share the statement.
    """

    words: str
    source: str
    holds: Callable[[Results], bool]
    panel: str = ""

    def verdict(self, results: Results) -> str:
        """Return "agrees", "does not agree", "not decided" or "not run yet"."""
        try:
            return "agrees" if self.holds(results) else "does not agree"
        except NotDecidedError:
            return "not decided"
        except NotRunError:
            return "not run yet"


def standard_error(values: Array) -> float:
    """Standard error of a mean over replicates; NaN for a single replicate.

    >>> round(standard_error(np.array([1.0, 2.0, 3.0, 6.0])), 4), standard_error(np.array([1.0]))
    (1.0801, nan)
    """
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def decreasing(series: Mapping[Any, float]) -> bool:
    """Whether a series falls at every step.

    >>> decreasing({100: 0.4, 300: 0.1}), decreasing({100: 0.1, 300: 0.1})
    (True, False)
    """
    return bool(np.all(np.diff(list(series.values())) < 0))


def log_log_slope(series: Mapping[float, float]) -> float:
    """Slope of the least-squares line through the logarithms of positions and values.

    >>> round(log_log_slope({10: 1.0, 100: 0.1, 1000: 0.01}), 6)
    -1.0
    """
    return float(np.polyfit(np.log(list(series)), np.log(list(series.values())), 1)[0])
