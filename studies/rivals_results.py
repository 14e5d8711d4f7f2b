"""Comparisons of the study of rivals: table, counts, failures and picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from studies import markdown
from studies.aims import cells_run
from studies.drawing import COLOURS, MARKERS, save, subplots
from studies.findings import Finding, NotDecidedError, NotRunError, Results
from studies.pairs import ERRORS, Difference, difference, mean_over

LABELS = {
    "auto_own": "auto + own",
    "sklearn": "scikit-learn stacking",
    "lightgbm": "LightGBM on [X, P]",
    "deslib": "DESlib",
    "autogluon": "AutoGluon",
    "bayesblend": "BayesBlend",
    "regularized_neural_ensemblers": "Regularized Neural Ensemblers",
}
OURS = ("auto", "auto_own")
FAILED = "failed: "
"""Prefix of the metric of a replicate in which a method failed; the message follows."""
TICKS = (-50, -10, 0, 10, 50, 500)

Compared = dict[tuple[str, int], Difference]


def label(method: str) -> str:
    """The name of a method on the pages."""
    return LABELS.get(method, method)


def compared(results: Results, method: str, rival: str, **where: Any) -> Compared:
    """The difference to a rival in each cell that has at least two replicates of both.

    where : keys that the cells must have.
    """
    found = {}
    for cell in cells_run(results, "risk", rival, **where):
        if results.has_run(method, "risk", **cell):
            one = difference(results, "risk", method, rival, **cell)
            if one.replicates > 1:
                found[cell["data"], cell["n"]] = one
    if not found:
        raise NotRunError(f"No cell has two replicates of {method} and {rival}.")
    return found


def rivals_run(results: Results, rivals: Sequence[str]) -> list[str]:
    """The rivals that are compared in at least one cell."""
    there = []
    for rival in rivals:
        try:
            compared(results, "auto_own", rival)
        except NotRunError:
            continue
        there.append(rival)
    return there


def is_clearly_behind(one: Difference) -> bool:
    """Whether a method has more risk, beyond three standard errors."""
    return Difference(-one.mean, one.error, one.risk, one.replicates).is_clear


def summary_table(results: Results, rivals: Sequence[str]) -> str:
    """Mean, median and extreme differences to each rival over cells, and counts of clear ones."""
    body = []
    for rival in rivals_run(results, rivals):
        for method in OURS:
            found = list(compared(results, method, rival).values())
            shares = [100.0 * one.mean / one.risk for one in found]
            counts = {one.replicates for one in found}
            body.append(
                [
                    label(rival),
                    label(method),
                    str(len(found)),
                    " to ".join(str(count) for count in sorted({min(counts), max(counts)})),
                    mean_over(found, relative=True).words(relative=True),
                    f"{np.median(shares):+.2f}",
                    f"{min(shares):+.1f} to {max(shares):+.1f}",
                    f"{sum(share < 0 for share in shares)}",
                    str(sum(one.is_clear for one in found)),
                    str(sum(is_clearly_behind(one) for one in found)),
                ]
            )
    if not body:
        return ""
    head = [
        "rival", "method", "cells", "replicates", "mean, %", "median, %", "range, %",
        "ahead", "clearly ahead", "clearly behind",
    ]  # fmt: skip
    return markdown.table(head, body)


def table_of(results: Results, rivals: Sequence[str], order: Sequence[str]) -> str:
    """The difference of `auto_own` to each rival, for each data set; the mean over its sizes."""
    columns = {rival: by_data(results, "auto_own", rival) for rival in rivals_run(results, rivals)}
    body = [
        [name, *(_words(found.get(name)) for found in columns.values())]
        for name in order
        if any(name in found for found in columns.values())
    ]
    return markdown.table(["data", *(label(rival) for rival in columns)], body) if body else ""


def by_data(results: Results, method: str, rival: str) -> dict[str, Difference]:
    """The relative difference to a rival for each data set, the mean over its sizes."""
    found = compared(results, method, rival)
    return {
        name: mean_over([one for (data, _), one in found.items() if data == name], relative=True)
        for name, _ in found
    }


def _words(one: Difference | None) -> str:
    return "" if one is None else one.words(relative=True)


def of_half(results: Results, rivals: Sequence[str], half: str) -> list[str]:
    """One line per method of this package: its mean difference to each rival in one half."""
    lines = []
    for method in OURS:
        means = []
        for rival in rivals:
            with suppress(NotRunError):
                found = compared(results, method, rival, half=half)
                mean = mean_over(list(found.values()), relative=True)
                means.append(f"{mean.words(relative=True)} % to {label(rival)}")
        if means:
            lines.append(
                f"{label(method)}, mean over the cells of the {half} half: {', '.join(means)}"
            )
    return lines


def failures(results: Results) -> list[str]:
    """One line per method and message: how many replicates failed, and on which data sets."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for method, metric, keys in results.entries():
        if metric.startswith(FAILED):
            counts = found.setdefault((method, metric.removeprefix(FAILED)), {})
            number = len(results.values(method, metric, **keys))
            counts[keys["data"]] = counts.get(keys["data"], 0) + number
    return [
        f"{label(method)} failed in {sum(counts.values())} replicates of {', '.join(counts)}: "
        f"`{message}`"
        for (method, message), counts in found.items()
    ]


def replacements(results: Results) -> list[str]:
    """One line per method: in how many replicates some predictions were not positive."""
    found: dict[str, list[float]] = {}
    for method, metric, keys in results.entries():
        if metric == "replaced":
            shares = found.setdefault(method, [])
            shares += results.values(method, metric, **keys).tolist()
    return [
        f"{label(method)} predicted means of counts or amounts that are not positive in "
        f"{len(shares)} replicates, for up to {max(shares):.1%} of the test rows. The smallest "
        "prediction of a candidate replaces them."
        for method, shares in found.items()
    ]


def findings_of(rivals: Sequence[str]) -> tuple[Finding, ...]:
    """Two statements for each method of this package and each rival."""
    return tuple(
        Finding(f"{label(method)} {words}", "aim", _held(holds, method, rival), label(rival))
        for method in OURS
        for words, holds in STATEMENTS.items()
        for rival in rivals
    )


def _held(holds: Callable[[Compared], bool], method: str, rival: str) -> Callable[[Results], bool]:
    return lambda results: holds(compared(results, method, rival))


def _ahead_on_average(found: Compared) -> bool:
    mean = mean_over(list(found.values()), relative=True)
    if abs(mean.mean) <= ERRORS * mean.error:
        raise NotDecidedError("The mean is within three standard errors of zero.")
    return mean.mean < 0


def _never_behind(found: Compared) -> bool:
    return not any(is_clearly_behind(one) for one in found.values())


STATEMENTS = {
    "is ahead on average over cells, by three standard errors": _ahead_on_average,
    "is clearly behind in no cell": _never_behind,
}


def draw(results: Results, folder: Path, rivals: Sequence[str], order: Sequence[str]) -> list[Path]:
    """Draw the mean difference to each rival for each data set, with its standard error."""
    there = rivals_run(results, rivals)
    names = [name for name in order if any(name in by_data(results, "auto", r) for r in there)]
    figure, grid = subplots(2, 4, sharex=True, sharey=True)
    figure.set_size_inches(15, 17)
    heights = {name: -k for k, name in enumerate(names)}
    for axes, rival in zip(grid.flat, there, strict=False):
        for k, method in enumerate(OURS):
            _draw_dots(axes, by_data(results, method, rival), heights, k, label(method))
        axes.axvline(0.0, color="0.4", linewidth=1, zorder=0)
        axes.set_xscale("symlog", linthresh=10, linscale=1.5)
        axes.set_yticks(list(heights.values()), list(heights))
        axes.set(title=label(rival), xlabel="difference of the risk, %", ylim=(-len(names), 1))
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    low, high = grid.flat[0].get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    for axes in grid.flat[: len(there)]:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.tick_params(labelbottom=True)
    for axes in grid.flat[len(there) :]:
        axes.set_axis_off()
    handles, words = grid.flat[0].get_legend_handles_labels()
    place = grid.flat[-1] if len(there) < grid.size else figure
    place.legend(handles, [f"{word} - rival" for word in words], loc="center", fontsize=12)
    return save(figure, folder, "rivals")


def _draw_dots(
    axes: Any, found: dict[str, Difference], heights: dict[str, int], number: int, words: str
) -> None:
    names = [name for name in heights if name in found]
    axes.errorbar(
        [100 * found[name].mean for name in names],
        [heights[name] - 0.3 * number + 0.15 for name in names],
        xerr=[100 * found[name].error for name in names],
        fmt=MARKERS[number], color=COLOURS[number], ms=4, linewidth=1, label=words,
    )  # fmt: skip
