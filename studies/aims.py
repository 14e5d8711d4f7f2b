"""Paired comparisons and aims of the regression studies on real data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from studies.findings import Finding, NotDecidedError, NotRunError, Results
from studies.pairs import ERRORS, Comparison, Difference, all_clear, difference, mean_over
from studies.regressing import CONTROLLED, LABELS

Keys = Mapping[str, Any]

JUDGED = ("auto", "auto_own")
"""The methods that the aims are about."""

COMPARED = ("paper", "gw", "ewma", "direct", "best_test", "best_sample")
"""The best of these is compared with them. The home candidate knows more than the others do."""


def cells_run(results: Results, metric: str, method: str, **where: Any) -> list[dict[str, Any]]:
    """Cells with these keys in which a method has run; at least one."""
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
    """Whether a method is within the allowed distance of all others, in every cell."""
    return all(
        difference(results, metric, method, other, **keys).is_allowed
        for keys in cells_run(results, metric, method, **where)
        for other in others
    )


def mean_difference(
    results: Results, metric: str, method: str, other: str, **where: Any
) -> Difference:
    """Mean over cells of the difference to another method, relative to its risk."""
    cells = cells_run(results, metric, method, **where)
    found = [difference(results, metric, method, other, **keys) for keys in cells]
    return mean_over(found, relative=True)


def ahead_on_average(
    results: Results, metric: str, method: str, others: Sequence[str], **where: Any
) -> bool:
    """Whether a method is ahead of each of the others on average over cells, by three errors.

    Not decided if it is neither ahead nor behind by that much.
    """
    means = [mean_difference(results, metric, method, other, **where) for other in others]
    if any(one.mean > ERRORS * one.error for one in means):
        return False
    if any(one.mean >= -ERRORS * one.error for one in means):
        raise NotDecidedError(f"{method} is level with another method on average.")
    return True


def mean_lines(results: Results, metric: str, others: Sequence[str]) -> list[str]:
    """One line per judged method: its mean difference to some others over all cells."""
    lines = []
    for method in JUDGED:
        with suppress(NotRunError):
            words = [
                f"{mean_difference(results, metric, method, other).words(relative=True)} % to "
                f"{LABELS[other]}"
                for other in others
            ]
            lines.append(
                f"{LABELS[method]}: mean over all cells of the paired difference in risk, relative "
                f"to the other method: {', '.join(words)}"
            )
    return lines


def ahead_of_control(results: Results, metric: str, control: str) -> bool:
    """Whether `auto` on the candidates is clearly better than on a control, in every cell."""
    found = [
        difference(results, metric, "auto", f"auto_{control}", **keys)
        for keys in cells_run(results, metric, f"auto_{control}")
    ]
    return all_clear(found)


def aims(metric: str) -> tuple[Finding, ...]:
    """The aims of this software in a study on real data."""
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
                f"{LABELS[method]} is ahead of GW and of EWMA on average over cells, by three "
                "standard errors",
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
            f"LocalMA (auto) is clearly better on its candidates than on {words[control]} in every "
            "cell with that control",
            "aim",
            lambda results, control=control: ahead_of_control(results, metric, control),
        )
        for control in CONTROLLED
    )


def against_best(
    metric: str, over: str, panels: Sequence[Keys], others: Sequence[str] = COMPARED
) -> Comparison:
    """Compare the judged methods with the best of some others in every cell."""
    named = {", ".join(panel.values()): panel for panel in panels}
    return Comparison(metric, JUDGED, tuple(others), LABELS, over, named)
