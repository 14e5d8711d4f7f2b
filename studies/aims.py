"""How `auto` is judged in the studies of regression on real data: paired differences, and aims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studies.findings import Finding, NotRunError, Results
from studies.regressing import CONTROLLED, LABELS
from studies.safety import ERRORS, TOLERANCE

Keys = Mapping[str, Any]

JUDGED = ("auto", "auto_own")
"""The methods of which the aims speak."""

COMPARED = ("paper", "paper_scaled", "gw", "ewma", "direct", "best_test", "best_sample")
"""Methods of which the best is put beside those; the home candidate knows what others do not."""


@dataclass(frozen=True)
class Difference:
    """Mean risk of a method minus that of another, paired by replicate, with its standard error.

    risk : mean risk of the other.
    """

    mean: float
    error: float
    risk: float

    @property
    def allowed(self) -> bool:
        """Whether it is at most 1 % of the risk, or three standard errors."""
        return self.mean <= max(TOLERANCE * self.risk, ERRORS * self.error)


def difference(results: Results, metric: str, method: str, other: str, keys: Keys) -> Difference:
    """Compare two methods in the replicates of a cell that both have run in."""
    ours, theirs = results.paired(method, other, metric, **keys)
    if len(ours) < 2:
        raise NotRunError(f"{method} and {other} must have run in two replicates of {keys}.")
    paired = ours - theirs
    error = float(paired.std(ddof=1) / np.sqrt(len(paired)))
    return Difference(float(paired.mean()), error, float(theirs.mean()))


def cells_run(results: Results, metric: str, method: str) -> list[dict[str, Any]]:
    """Cells in which a method has run; at least one."""
    cells = [k for m, found, k in results.entries() if (m, found) == (method, metric)]
    if not cells:
        raise NotRunError(f"No replicate of {method}:{metric} has been run.")
    return cells


def never_behind(results: Results, metric: str, method: str, others: Sequence[str]) -> bool:
    """Whether a method is behind none of the others by more than is allowed, in any cell."""
    return all(
        difference(results, metric, method, other, keys).allowed
        for keys in cells_run(results, metric, method)
        for other in others
    )


def ahead_on_average(results: Results, metric: str, method: str, others: Sequence[str]) -> bool:
    """Whether the difference to each of the others, in parts of the risk, is below zero."""
    cells = cells_run(results, metric, method)

    def mean_excess(other: str) -> float:
        found = [difference(results, metric, method, other, keys) for keys in cells]
        return float(np.mean([one.mean / one.risk for one in found]))

    return all(mean_excess(other) < 0 for other in others)


def ahead_of_control(results: Results, metric: str, control: str) -> bool:
    """Whether `auto` on the candidates is clearly better than on a control, in every cell."""
    found = [
        difference(results, metric, "auto", f"auto_{control}", keys)
        for keys in cells_run(results, metric, f"auto_{control}")
    ]
    return all(one.mean < -ERRORS * one.error for one in found)


def aims(metric: str) -> tuple[Finding, ...]:
    """What this software sets itself in a study on real data."""
    constant = ("gw", "ewma")
    found = []
    for method in JUDGED:
        found += [
            Finding(
                f"{LABELS[method]} is in no cell behind GW or EWMA by more than 1 % of the risk or "
                "three paired standard errors",
                "aim",
                lambda results, method=method: never_behind(results, metric, method, constant),
            ),
            Finding(
                f"{LABELS[method]} is ahead of GW and of EWMA on average over cells",
                "aim",
                lambda results, method=method: ahead_on_average(results, metric, method, constant),
            ),
        ]
    found.append(
        Finding(
            f"{LABELS['auto_own']} is in no cell behind DirectModel by more than 1 % of the risk "
            "or three paired standard errors",
            "aim",
            lambda results: never_behind(results, metric, "auto_own", ("direct",)),
        )
    )
    return (*found, *_control_aims(metric))


def _control_aims(metric: str) -> tuple[Finding, ...]:
    words = {"constants": "two constants", "shuffled": "shuffled candidates"}
    return tuple(
        Finding(
            f"LocalMA (auto) is better on its candidates than on {words[control]}, by three paired "
            "standard errors in every cell with that control",
            "aim",
            lambda results, control=control: ahead_of_control(results, metric, control),
        )
        for control in CONTROLLED
    )


def against_best(
    results: Results,
    metric: str,
    over: str,
    panels: Sequence[Keys],
    method: str,
    others: Sequence[str] = COMPARED,
) -> list[str]:
    """One line per panel: a method's difference to the best of some others, along a key."""
    lines = []
    for panel in panels:
        cells = [
            keys
            for found, m, keys in results.entries()
            if (found, m) == (method, metric) and panel.items() <= keys.items()
        ]
        cells.sort(key=lambda keys: keys[over])
        points = [
            f"{keys[over]:,}: {words}"
            for keys in cells
            if (words := _beside_best(results, metric, method, others, keys))
        ]
        if points:
            place = ", ".join(map(str, panel.values()))
            lines.append(
                f"{place}: {LABELS[method]} minus the best other method, in % of its risk, at "
                f"{over} = {'; '.join(points)}"
            )
    return lines


def _beside_best(
    results: Results, metric: str, method: str, others: Sequence[str], keys: Keys
) -> str | None:
    try:
        best = min(others, key=lambda other: results.mean(other, metric, **keys))
        found = difference(results, metric, method, best, keys)
    except NotRunError:
        return None
    percent, error = 100 * found.mean / found.risk, 100 * found.error / found.risk
    return f"{percent:+.2f} ± {error:.2f} ({LABELS[best]})"
