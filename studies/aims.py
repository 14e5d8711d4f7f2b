"""How `auto` is judged in the studies of regression on real data: paired differences, and aims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from studies.findings import Finding, NotRunError, Results
from studies.pairs import beside_best, difference
from studies.regressing import CONTROLLED, LABELS

Keys = Mapping[str, Any]

JUDGED = ("auto", "auto_own")
"""The methods of which the aims speak."""

COMPARED = ("paper", "paper_scaled", "gw", "ewma", "direct", "best_test", "best_sample")
"""Methods of which the best is put beside those; the home candidate knows what others do not."""


def cells_run(results: Results, metric: str, method: str, **where: Any) -> list[dict[str, Any]]:
    """Cells with some keys in which a method has run; at least one."""
    cells = [
        keys
        for name, found, keys in results.entries()
        if (name, found) == (method, metric) and where.items() <= keys.items()
    ]
    if not cells:
        raise NotRunError(f"No replicate of {method}:{metric} in {where} has been run.")
    return cells


def never_behind(
    results: Results, metric: str, method: str, others: Sequence[str], **where: Any
) -> bool:
    """Whether a method is behind none of the others by more than is allowed, in any cell."""
    return all(
        difference(results, metric, method, other, **keys).is_allowed
        for keys in cells_run(results, metric, method, **where)
        for other in others
    )


def ahead_on_average(
    results: Results, metric: str, method: str, others: Sequence[str], **where: Any
) -> bool:
    """Whether the difference to each of the others, in parts of the risk, is below zero."""
    cells = cells_run(results, metric, method, **where)

    def mean_excess(other: str) -> float:
        found = [difference(results, metric, method, other, **keys) for keys in cells]
        return float(np.mean([one.mean / one.risk for one in found]))

    return all(mean_excess(other) < 0 for other in others)


def ahead_of_control(results: Results, metric: str, control: str) -> bool:
    """Whether `auto` on the candidates is clearly better than on a control, in every cell."""
    found = [
        difference(results, metric, "auto", f"auto_{control}", **keys)
        for keys in cells_run(results, metric, f"auto_{control}")
    ]
    return all(one.is_clear for one in found)


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
    """One line per panel: a method beside the best of some others, along a key."""
    return [
        line
        for panel in panels
        for line in beside_best(results, metric, method, others, LABELS, over, **panel)
    ]
