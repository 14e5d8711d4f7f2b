"""Paired differences of this software to other methods, over all studies on real data.

A difference is divided by the risk of the other method, so that cells of all studies can be
averaged. For classification the risk is the error rate. A study with more cells has more weight in
the mean over all cells, and the same weight as others in the mean of the studies. Standard errors
treat cells as independent draws of the sample. They do not include what cells share: candidates,
and the test images of CIFAR-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studies.findings import Results
from studies.harness import Study
from studies.markdown import table
from studies.pairs import Difference, difference, mean_over

OTHERS = {"gw": "GW", "ewma": "EWMA", "direct": "DirectModel"}
CONSTANT = ("gw", "ewma")
BEST = "best other"


@dataclass(frozen=True)
class Together:
    """Differences of a method to others, by study.

    by_study : title of a study -> other method -> differences of its cells.
    """

    by_study: dict[str, dict[str, list[Difference]]]

    @classmethod
    def of(cls, found: Sequence[tuple[Study, Results]], role: str) -> Together:
        """Compare in all studies with a comparison; role : see `differences_of`."""
        compared = {
            study.title: differences_of(study, results, role)
            for study, results in found
            if study.comparison is not None
        }
        return cls({title: columns for title, columns in compared.items() if columns[BEST]})

    def differences(self, other: str) -> list[Difference]:
        """Differences of all cells to another method."""
        return [one for columns in self.by_study.values() for one in columns[other]]

    def mean(self, other: str) -> Difference:
        """Mean over all cells, relative to the risk of the other."""
        return mean_over(self.differences(other), relative=True)

    def mean_of_studies(self, other: str) -> Difference:
        """Mean of the studies, each of which counts once."""
        parts = [columns[other] for columns in self.by_study.values() if columns[other]]
        return mean_over([mean_over(part, relative=True) for part in parts], relative=True)

    @property
    def against_constant(self) -> list[Difference]:
        """Differences to constant weights that have a standard error."""
        found = [one for other in CONSTANT for one in self.differences(other)]
        return [one for one in found if one.replicates > 1]

    @property
    def times_behind(self) -> int:
        """How often it is behind constant weights by 1 % and three standard errors."""
        return sum(not one.is_allowed for one in self.against_constant)


def render_together(found: Sequence[tuple[Study, Results]]) -> str:
    """Table of the studies with a comparison, and how often constant weights are clearly ahead."""
    roles = (("LocalMA (auto)", "auto"), ("LocalMA (auto) + own models", "own"))
    parts = [(words, Together.of(found, role)) for words, role in roles]
    return "\n\n".join(_table(words, together) for words, together in parts if together.by_study)


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


def _table(words: str, together: Together) -> str:
    columns = (BEST, *OTHERS)
    body = [
        [title, str(len(found[BEST])), *(_mean(found[name]) for name in columns)]
        for title, found in together.by_study.items()
    ]
    n_cells = str(len(together.differences(BEST)))
    means = {"all cells": together.mean, "mean of the studies": together.mean_of_studies}
    body += [
        [title, n_cells, *(mean(name).words(relative=True) for name in columns)]
        for title, mean in means.items()
    ]
    head = ["study", "cells", *(f"to {OTHERS.get(name, name)}" for name in columns)]
    return (
        f"**{words}: mean over cells of its risk minus that of another method, in % of the "
        f"other's** (the best other is chosen after the fact)\n\n{table(head, body)}\n\n"
        f"Behind GW or EWMA by more than 1 % of the risk and three paired standard errors: "
        f"{together.times_behind} of {len(together.against_constant)} comparisons."
    )


def _mean(found: Sequence[Difference]) -> str:
    return mean_over(found, relative=True).words(relative=True) if found else ""
