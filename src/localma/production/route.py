"""One candidate per row: the one with the largest weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localma.candidates.outputs import Table
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.inspection.observed import observe
from localma.inspection.regions import describe_regions, find_regions
from localma.records import Columns, Record


@dataclass(frozen=True)
class Route(Record):
    """The candidate with the largest weight in each of n rows.

    Parameters
    ----------
    candidate : list of str
        [n], name of the candidate.
    weight : list of float
        [n], its weight.
    rule : list of str
        [n], the rule of the region of the row in words: which candidate is trusted most there on
        average, and what the rows of the region have in common.

    Examples
    --------
    >>> print(Route(["a", "b"], [0.75, 1.0], ["a is trusted most where area > 80"] * 2))
    candidate  weight                               rule
    a            0.75  a is trusted most where area > 80
    b               1  a is trusted most where area > 80
    """

    candidate: list[str]
    weight: list[float]
    rule: list[str]

    def _columns(self) -> Columns:
        """Return a row per row."""
        return {
            "candidate": list(self.candidate),
            "weight": list(self.weight),
            "rule": list(self.rule),
        }


def route(model: LocalMARegressor | LocalMAClassifier, X: Table) -> Route:
    """Route the rows X, as `LocalMARegressor.route` describes."""
    observed = observe(model, X)
    regions = find_regions(observed.sample(random_state=0))
    described = describe_regions(observed, regions).regions
    rules = [region.sentence for region in described]
    if not rules:
        leader = observed.names[int(np.argmax(observed.mean(observed.weights)))]
        rules = [f"{leader} is trusted most in every row"]
    region_of_row = regions.region_of_row(observed)
    best = observed.weights.argmax(axis=1)
    return Route(
        candidate=[observed.names[m] for m in best.tolist()],
        weight=observed.weights.max(axis=1).tolist(),
        rule=[rules[k] for k in region_of_row.tolist()],
    )
