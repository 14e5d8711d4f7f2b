"""Paired differences of this software to other methods, over all studies on real data.

A difference is divided by the risk of the other method, so that cells of all studies can be
averaged. For classification the risk is the error rate. A study with more cells has more weight.
The last row is the mean over all cells. Standard errors treat cells as independent draws of the
sample. They do not include what cells share: candidates, and the test images of CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from studies.findings import Results
from studies.harness import Study
from studies.markdown import table
from studies.pairs import Difference, difference, mean_over

OTHERS = {"gw": "GW", "ewma": "EWMA", "direct": "DirectModel"}
CONSTANT = ("gw", "ewma")
BEST = "best other"


def render_together(found: Sequence[tuple[Study, Results]]) -> str:
    """Table of the studies with a comparison, and how often constant weights are clearly ahead."""
    compared = [(study, results) for study, results in found if study.comparison is not None]
    parts = []
    for words, role in (("LocalMA (auto)", "auto"), ("LocalMA (auto) + own model", "own")):
        found_by = (
            (study.title, differences_of(study, results, role)) for study, results in compared
        )
        by_study = {title: columns for title, columns in found_by if columns[BEST]}
        if by_study:
            parts.append(_table(words, by_study))
    return "\n\n".join(parts)


def differences_of(study: Study, results: Results, role: str) -> dict[str, list[Difference]]:
    """Differences of a method to the best other and to fixed others, in each cell.

    role : "auto", or "own" for auto with a model of the sample as candidate.
    """
    comparison = study.comparison
    assert comparison is not None
    method: str = getattr(comparison, role)
    columns: dict[str, list[Difference]] = {BEST: [], **{other: [] for other in OTHERS}}
    for _, cell in comparison.cells(results, method):
        best = comparison.to_best(results, method, cell)
        if best is not None:
            columns[BEST].append(best[1])
        for other in OTHERS:
            if results.has_run(other, comparison.metric, **cell):
                pair = difference(results, comparison.metric, method, other, **cell)
                columns[other].append(pair)
    return columns


def _table(words: str, by_study: Mapping[str, Mapping[str, list[Difference]]]) -> str:
    together = {
        name: [one for columns in by_study.values() for one in columns[name]]
        for name in (BEST, *OTHERS)
    }
    rows = {**by_study, "all": together}
    body = [
        [title, str(len(columns[BEST])), *(_mean(columns[name]) for name in (BEST, *OTHERS))]
        for title, columns in rows.items()
    ]
    head = ["study", "cells", *(f"to {OTHERS.get(name, name)}" for name in (BEST, *OTHERS))]
    judged = [one for name in CONSTANT for one in together[name] if one.replicates > 1]
    behind = sum(not one.is_allowed for one in judged)
    return (
        f"**{words}: mean over cells of its risk minus that of another method, in % of the "
        f"other's** (the best other is chosen after the fact)\n\n{table(head, body)}\n\n"
        f"Behind GW or EWMA by more than 1 % of the risk and three paired standard errors: "
        f"{behind} of {len(judged)} comparisons."
    )


def _mean(found: Sequence[Difference]) -> str:
    return mean_over(found, relative=True).words(relative=True) if found else ""
