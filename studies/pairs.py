"""Paired differences of the risks of two methods, and the best method of each cell.

The risk of a method is its error. If a metric counts successes ("accuracy", in per cent), its sign
is changed. So a negative difference always favours the method that is named first.

Standard errors are over replicates. They show how a difference varies with the split or the draw of
the sample. They do not include other candidates, or other test rows if all replicates share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localma.evidence import few_blocks
from studies.findings import NotDecidedError, NotRunError, Results, standard_error
from studies.markdown import table

TOLERANCE, ERRORS = 0.01, 3.0
"""A method may be behind another by this share of the risk or this many standard errors."""
RIGHT = "accuracy"
"""Prefix of the metrics that count successes."""


@dataclass(frozen=True)
class Difference:
    """Mean risk of a method minus that of another, paired by replicate, with its standard error.

    risk : mean risk of the other; replicates : number of replicates that both have run.
    """

    mean: float
    error: float
    risk: float
    replicates: int

    @property
    def is_allowed(self) -> bool:
        """Whether it is at most 1 % of the risk or three standard errors."""
        self._needs_an_error()
        return self.mean <= max(TOLERANCE * self.risk, ERRORS * self.error)

    @property
    def is_clear(self) -> bool:
        """Whether it is below zero by three standard errors, or by more with few replicates.

        A standard error from few replicates is imprecise. Student's distribution gives the limit
        that has the same error rate as three standard errors with many replicates.
        """
        self._needs_an_error()
        return self.mean < -ERRORS * few_blocks(self.replicates, ERRORS) * self.error

    def words(self, *, relative: bool) -> str:
        """As text, in per cent of the risk or absolute; no standard error for a single replicate.

        >>> Difference(-0.5, 0.1, 20.0, 5).words(relative=True)
        '-2.50 ± 0.50'
        >>> Difference(-0.5, float("nan"), 20.0, 1).words(relative=False)
        '-0.50'
        """
        scale = 100.0 / self.risk if relative else 1.0
        error = f" ± {scale * self.error:.2f}" if self.replicates > 1 else ""
        return f"{scale * self.mean:+.2f}{error}"

    def _needs_an_error(self) -> None:
        if self.replicates < 2:
            raise NotRunError("A comparison needs two replicates that both methods have run.")


def difference(results: Results, metric: str, method: str, other: str, **keys: Any) -> Difference:
    """Compare two methods in the replicates of a cell that both have run."""
    paired = results.paired(method, other, metric, **keys)
    ours, theirs = (100.0 - part if metric.startswith(RIGHT) else part for part in paired)
    error = standard_error(ours - theirs)
    return Difference(float((ours - theirs).mean()), error, float(theirs.mean()), len(ours))


def differences(
    results: Results, metric: str, method: str, other: str, over: str, **keys: Any
) -> dict[Any, Difference]:
    """Compare two methods along a key, in its order, in the cells that both have run."""
    found = {
        cell[over]: difference(results, metric, method, other, **cell)
        for cell in results.cells_along(over, method, metric, **keys)
        if results.has_run(other, metric, **cell)
    }
    if not found:
        raise NotRunError(f"No replicate of {method} and {other} in {keys} has been run.")
    return found


def clearly_better(
    results: Results, metric: str, method: str, other: str, over: str, **keys: Any
) -> bool:
    """Whether a method is clearly better than another along a whole key; may be undecided."""
    return all_clear(list(differences(results, metric, method, other, over, **keys).values()))


def all_clear(found: Sequence[Difference]) -> bool:
    """Whether all are clear; not decided if all are below zero, but not all clearly."""
    if all(one.is_clear for one in found):
        return True
    if all(one.mean < 0 for one in found):
        raise NotDecidedError("Better everywhere, but not clearly.")
    return False


def mean_over(found: Sequence[Difference], *, relative: bool) -> Difference:
    """Mean of the differences of several cells, which are independent draws.

    relative : whether each is divided by its risk; the mean is then relative, too.

    >>> parts = [Difference(-1.0, 0.3, 10.0, 5), Difference(0.5, 0.4, 10.0, 4)]
    >>> mean_over(parts, relative=True).words(relative=True)
    '-2.50 ± 2.50'
    """
    scale = np.array([1.0 / one.risk if relative else 1.0 for one in found])
    mean = float(np.mean([one.mean for one in found] * scale))
    error = float(np.linalg.norm([one.error for one in found] * scale) / len(found))
    risk = 1.0 if relative else float(np.mean([one.risk for one in found]))
    return Difference(mean, error, risk, min(one.replicates for one in found))


Best = tuple[str, Difference]
"""The best of some methods, and the difference to it."""


def best_other(
    results: Results, metric: str, method: str, others: Sequence[str], **keys: Any
) -> Best | None:
    """The best of some others in a cell, and the difference to it; None if none has run."""
    found = {
        other: difference(results, metric, method, other, **keys)
        for other in others
        if other != method and results.has_run(other, metric, **keys)
    }
    return max(found.items(), key=lambda item: item[1].mean) if found else None


@dataclass(frozen=True)
class Comparison:
    """The methods of a study that are compared, the others, and the cells.

    judged : the methods that are compared with the best of the `others`; auto, own : the judged
    methods that represent this software, without and with a model of the sample as candidate.
    panels : name of a row -> keys of its cells, which differ by the key `over`.
    """

    metric: str
    judged: tuple[str, ...]
    others: tuple[str, ...]
    labels: Mapping[str, str]
    over: str
    panels: Mapping[str, Mapping[str, Any]]
    auto: str = "auto"
    own: str = "auto_own"

    def cells(self, results: Results, method: str) -> list[tuple[str, dict[str, Any]]]:
        """Cells in which a method has run, each with the panel that it belongs to."""
        return [
            (panel, cell)
            for panel, keys in self.panels.items()
            for cell in results.cells_along(self.over, method, self.metric, **keys)
        ]

    def to_best(self, results: Results, method: str, cell: Mapping[str, Any]) -> Best | None:
        """The best other method of a cell, and the difference to it; None if none has run."""
        return best_other(results, self.metric, method, self.others, **cell)


def table_against_best(results: Results, comparison: Comparison) -> str:
    """A table of the judged methods, compared with the best other method in every cell.

    Its title has the mean over cells. Empty if nothing has run.
    """
    relative, labels = not comparison.metric.startswith(RIGHT), comparison.labels
    rows: dict[tuple[str, str], dict[Any, str]] = {}
    lines = []
    for method in comparison.judged:
        all_found = []
        for name, cell in comparison.cells(results, method):
            pair = comparison.to_best(results, method, cell)
            if pair is not None:
                all_found.append(pair[1])
                words = f"{pair[1].words(relative=relative)} {labels[pair[0]]}"
                rows.setdefault((method, name), {})[cell[comparison.over]] = words
        if all_found:
            words = mean_over(all_found, relative=relative).words(relative=relative)
            lines.append(f"{labels[method]} {words} over {len(all_found)} cells")
    if not rows:
        return ""
    places = sorted({place for row in rows.values() for place in row})
    body = [
        [labels[method], name, *(row.get(place, "") for place in places)]
        for (method, name), row in rows.items()
    ]
    what, unit = ("Risk", "% of its risk") if relative else ("Error rate", "points")
    title = (
        f"**{what} minus that of the best other method of the cell, in {unit}** (on average "
        f"{'; '.join(lines)}; the best is chosen after the fact)"
    )
    head = ["method", "cells", *(f"{comparison.over} = {place:,}" for place in places)]
    return f"{title}\n\n{table(head, body)}"
