"""Comparisons of the safety study: bars, tables and the figure, for each half of the data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from studies import markdown
from studies.aims import cells_run
from studies.drawing import COLOURS, MARKERS, save, subplots
from studies.findings import Finding, NotRunError, Results
from studies.pairs import Best, Difference, best_other, mean_over
from studies.stacking import CHOSEN_FROM

HALVES = ("selection", "confirmation")

LABELS = {
    "auto_own": "auto + own",
    "lightgbm": "LightGBM on [X, P]",
    "direct": "own model",
    "best": "best candidate",
    "ridge": "ridge stack",
}

TICKS = (-50, -10, -5, 0, 5, 10, 100, 1000)
TIMED_SIZE, ALLOWED_TIME = 1000, 3.0
MEAN_OF_CHOICE, WORST_CELL = -0.02, 0.05


@dataclass(frozen=True)
class Rivalry:
    """A method, the others with which it is compared, and the words for both."""

    method: str
    others: tuple[str, ...]
    words: str

    def compared(self, results: Results, **keys: Any) -> dict[tuple[str, int], Best]:
        """The best of the others in each cell, by its mean risk, and the difference to it."""
        found = {}
        for cell in cells_run(results, "risk", self.method, **keys):
            best = best_other(results, "risk", self.method, self.others, **cell)
            if best is not None and _all_have_run(results, self.others, cell):
                found[cell["data"], cell["n"]] = best
        if not found:
            raise NotRunError(f"No cell of {keys} has {self.method} and all of {self.others}.")
        return found


def _all_have_run(results: Results, methods: Sequence[str], cell: dict[str, Any]) -> bool:
    return all(results.has_run(method, "risk", **cell) for method in methods)


CONSTANT = Rivalry("auto", ("global", "equal"), "auto - better of global, equal")
BEST_OF_SIX = Rivalry("auto_own", CHOSEN_FROM, "auto + own - best of six")
CHOICE = Rivalry("auto_own", ("choice",), "auto + own - choice")
WITHOUT_OWN = Rivalry("auto", CHOSEN_FROM, "auto - best of six")
RIVALRIES = (CONSTANT, BEST_OF_SIX, CHOICE, WITHOUT_OWN)


def mean_of(results: Results, rivalry: Rivalry, **keys: Any) -> Difference:
    """Mean over cells of the relative differences."""
    found = rivalry.compared(results, **keys).values()
    return mean_over([difference for _, difference in found], relative=True)


def relative_differences(results: Results, rivalry: Rivalry, **keys: Any) -> list[float]:
    """The difference of each cell, divided by the other's risk."""
    found = rivalry.compared(results, **keys).values()
    return [difference.mean / difference.risk for _, difference in found]


def median_of(results: Results, rivalry: Rivalry, **keys: Any) -> float:
    """Median over cells of the relative differences."""
    return float(np.median(relative_differences(results, rivalry, **keys)))


def worst_of(results: Results, rivalry: Rivalry, **keys: Any) -> float:
    """The largest relative difference of a cell."""
    return max(relative_differences(results, rivalry, **keys))


def is_safe(results: Results, half: str) -> bool:
    """Whether `auto` is within the allowed distance of constant weights in every cell."""
    found = CONSTANT.compared(results, half=half).values()
    return all(difference.is_allowed for _, difference in found)


@dataclass(frozen=True)
class Claims:
    """Verdicts of `auto` that claim more than two standard errors, and those that were wrong."""

    clear: int
    wrong: int
    fits: int


def claims_of(results: Results, **keys: Any) -> Claims:
    """Count the verdicts of the cells with these keys."""
    clear = wrong = fits = 0
    for cell in cells_run(results, "gain", "auto", **keys):
        gain = results.values("auto", "gain", **cell)
        is_clear = np.abs(gain) > 2 * results.values("auto", "gain_error", **cell)
        truth = np.sign(results.values("auto", "true_gain", **cell))
        clear += int(is_clear.sum())
        wrong += int((is_clear & (np.sign(gain) != truth)).sum())
        fits += len(gain)
    return Claims(clear, wrong, fits)


def time_ratio(results: Results, method: str, half: str) -> float:
    """Processor time of a method by that of `lightgbm` at n = 1,000, the median over fits."""
    ratios: list[float] = []
    for cell in cells_run(results, "processor", method, half=half, n=TIMED_SIZE):
        if results.has_run("lightgbm", "processor", **cell):
            ours, theirs = results.paired(method, "lightgbm", "processor", **cell)
            ratios += (ours / theirs).tolist()
    if not ratios:
        raise NotRunError(f"No replicate of {half} has both {method} and lightgbm.")
    return float(np.median(ratios))


def summary_lines(results: Results, half: str) -> list[str]:
    """Verdicts and times of one half, as sentences."""
    lines = []
    try:
        claims = claims_of(results, half=half)
        lines.append(
            f"{half}: {claims.clear} of {claims.fits} verdicts of auto are clear, "
            f"{claims.wrong} of them wrong"
        )
        for method in ("auto", "auto_own"):
            ratio = time_ratio(results, method, half)
            lines.append(
                f"{half}: processor time of {LABELS.get(method, method)} at n = {TIMED_SIZE:,}: "
                f"{ratio:.1f} x LightGBM on [X, P] with five folds (median)"
            )
    except NotRunError:
        pass
    return lines


def table_of(results: Results, half: str, order: Sequence[str]) -> str:
    """Differences of every cell of a half in per cent, and their means; empty if nothing has run.

    order : names of the data sets.
    """
    columns = {}
    for rivalry in RIVALRIES:
        try:
            columns[rivalry] = rivalry.compared(results, half=half)
        except NotRunError:
            continue
    if not columns:
        return ""
    cells = sorted(set().union(*columns.values()), key=lambda cell: (order.index(cell[0]), cell[1]))
    body = [
        [data, f"{n:,}", *(_words(found.get((data, n))) for found in columns.values())]
        for data, n in cells
    ]
    means = [mean_of(results, rivalry, half=half) for rivalry in columns]
    body.append(["mean", "", *(mean.words(relative=True) for mean in means)])
    medians = [median_of(results, rivalry, half=half) for rivalry in columns]
    body.append(["median", "", *(f"{100 * one:+.2f}" for one in medians)])
    worst = [worst_of(results, rivalry, half=half) for rivalry in columns]
    body.append(["worst", "", *(f"{100 * one:+.2f}" for one in worst)])
    head = ["data", "n", *(rivalry.words for rivalry in columns)]
    title = f"**Differences of the risk in % of the other's risk, {half} half**"
    return f"{title}\n\n{markdown.table(head, body)}"


def _words(best: Best | None) -> str:
    if best is None:
        return ""
    other, difference = best
    return f"{difference.words(relative=True)} {LABELS.get(other, other)}"


def findings_of(half: str) -> tuple[Finding, ...]:
    """The bars, for one half."""

    def finding(words: str, holds: Any) -> Finding:
        return Finding(words, "aim", holds, panel=f"{half} half")

    return (
        finding(
            "In no cell is auto behind the better of global and equal by more than 1 % of the risk "
            "or three standard errors.",
            lambda results: is_safe(results, half),
        ),
        finding(
            "The mean over cells of auto's difference to the better of global and equal is not "
            "positive.",
            lambda results: mean_of(results, CONSTANT, half=half).mean <= 0,
        ),
        finding(
            "Compared with the best of six rivals, chosen after the fact, auto + own is not behind "
            "on average over cells.",
            lambda results: mean_of(results, BEST_OF_SIX, half=half).mean <= 0,
        ),
        finding(
            "In no cell is auto + own behind the best of six rivals by more than 5 %.",
            lambda results: worst_of(results, BEST_OF_SIX, half=half) <= WORST_CELL,
        ),
        finding(
            "Compared with the cross-validated choice among the six, auto + own is ahead by at "
            "least 2 % on average over cells.",
            lambda results: mean_of(results, CHOICE, half=half).mean <= MEAN_OF_CHOICE,
        ),
        finding(
            "At n = 1,000 auto + own takes at most 3 x the processor time of LightGBM on [X, P] "
            "with five folds.",
            lambda results: time_ratio(results, "auto_own", half) <= ALLOWED_TIME,
        ),
        finding(
            "If a verdict claims more than two standard errors, the test part agrees.",
            lambda results: claims_of(results, half=half).wrong == 0,
        ),
    )


def draw(results: Results, folder: Path, order: Sequence[str]) -> list[Path]:
    """Draw the mean difference of each data set over its sizes, with its standard error."""
    figure, grid = subplots(2, 2)
    figure.set_size_inches(11, 12)
    shown = {CONSTANT: 0, BEST_OF_SIX: 1, CHOICE: 1}
    for row, half in enumerate(HALVES):
        for number, (rivalry, column) in enumerate(shown.items()):
            _draw_dots(grid[row][column], results, rivalry, half, order, number)
        for axes in grid[row]:
            axes.axvline(0.0, color="0.6", linewidth=1, zorder=0)
            axes.set(title=f"{half} half", xlabel="difference of the risk, %")
            # One data set in which a candidate fails would hide all others on a plain scale.
            axes.set_xscale("symlog", linthresh=10)
            low, high = axes.get_xlim()
            ticks = [tick for tick in TICKS if low <= tick <= high]
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    return save(figure, folder, "safety")


def _draw_dots(
    axes: Any, results: Results, rivalry: Rivalry, half: str, order: Sequence[str], number: int
) -> None:
    try:
        found = rivalry.compared(results, half=half)
    except NotRunError:
        return
    names = [name for name in order if any(data == name for data, _ in found)]
    means = [
        mean_over([one for (data, _), (_, one) in found.items() if data == name], relative=True)
        for name in names
    ]
    heights = np.arange(len(names))[::-1] - 0.2 * (number == 2)
    axes.errorbar(
        [100 * mean.mean for mean in means], heights, xerr=[100 * mean.error for mean in means],
        fmt=MARKERS[number], color=COLOURS[number], ms=4, linewidth=1, label=rivalry.words,
    )  # fmt: skip
    axes.set_yticks(np.arange(len(names))[::-1], names)
