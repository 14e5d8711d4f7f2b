"""Which candidates run in a row: those that change the answer least if the others are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from localma._types import Array, Float64, RowMask
from localma.errors import InvalidInputError
from localma.production.options import Options, checked_costs

MOST_ENUMERATED = 12
"""Number of candidates up to which all subsets are compared; beyond it they are added greedily."""
SLICE_NUMBERS = 2**20
TIE = 1e-9


@dataclass(frozen=True)
class Allowance:
    """How many candidates may run in a row, and which.

    If candidates D are left out, the answer changes by ``w_D (mean of D - mean of the others)``,
    with means under the weights. Predictions are not known before candidates run. So the subset
    with the largest remaining weight is kept.

    Parameters
    ----------
    costs : (M,) cost of a row for each candidate
    min_weight : candidates with less weight do not run, except the one with the largest weight
    max_candidates : the largest number of candidates in a row
    budget : the largest cost of a row
    """

    costs: Float64
    min_weight: float = 0.0
    max_candidates: int | None = None
    budget: float | None = None

    @classmethod
    def of(cls, options: Options, costs: Float64, names: Sequence[str]) -> Allowance:
        """Check the budget against the costs of the candidates: (M,)."""
        if options.costs is not None:
            costs = checked_costs(options.costs, names)
        budget = options.budget
        if budget is not None and budget < costs.min():
            cheapest = int(costs.argmin())
            raise InvalidInputError(
                f"No candidate fits a budget of {budget:g} per row; the cheapest one, "
                f"{names[cheapest]!r}, costs {costs[cheapest]:g}. Raise the budget.",
                python_hint="Or pass other costs=.",
            )
        return cls(costs, options.min_weight, options.max_candidates, budget)

    def select(self, W: Array, available: RowMask, reference: Array) -> RowMask:
        """Choose the candidates of each row: (n, M) -> (n, M).

        Parameters
        ----------
        W : (n, M) weights
        available : (n, M) candidates that have not failed
        reference : (M,) weights that decide between candidates without weight

        Examples
        --------
        >>> allowance = Allowance(np.array([1.0, 1.0, 3.0]), budget=2.0)
        >>> W = np.array([[0.3, 0.2, 0.5]])
        >>> allowance.select(W, W > 0, np.ones(3)).tolist()
        [[True, True, False]]
        """
        largest = W.max(axis=1, keepdims=True)
        kept = np.where((self.min_weight <= W) | (largest == W), W, 0.0)
        kept = np.where(available, kept + TIE * (reference + 1.0 / W.shape[1]), 0.0)
        chosen = available & (np.minimum(self.min_weight, largest) <= W)
        if self.max_candidates is not None or self.budget is not None:
            if len(self.costs) <= MOST_ENUMERATED:
                chosen = available & self._best_subsets(kept)
            else:
                chosen = available & self._greedy_subsets(kept)
        # A candidate without weight runs only if no other one is left.
        weighted = chosen & (W > 0.0) & (np.minimum(self.min_weight, largest) <= W)
        return np.where(weighted.any(axis=1, keepdims=True), weighted, chosen)

    def _best_subsets(self, kept: Array) -> RowMask:
        """The feasible subset with the largest kept weight, in each row: (n, M)."""
        subsets = _largest_subsets(tuple(self.costs.tolist()), self.max_candidates, self.budget)
        step = max(1, SLICE_NUMBERS // len(subsets))
        best = [
            np.argmax(kept[start : start + step] @ subsets.T, axis=1)
            for start in range(0, len(kept), step)
        ]
        return subsets[np.concatenate(best)]

    def _greedy_subsets(self, kept: Array) -> RowMask:
        """Add candidates by weight per cost, or take one alone if it has more weight: (n, M)."""
        rows = np.arange(len(kept))
        budget = np.inf if self.budget is None else self.budget * (1.0 + TIE)
        order = np.argsort(-kept / np.maximum(self.costs, TIE), axis=1, kind="stable")
        chosen = np.zeros(kept.shape, dtype=bool)
        spent, count = np.zeros(len(kept)), np.zeros(len(kept), dtype=np.intp)
        for column in order.T:
            fits = (spent + self.costs[column] <= budget) & (kept[rows, column] > 0.0)
            if self.max_candidates is not None:
                fits &= count < self.max_candidates
            chosen[rows[fits], column[fits]] = True
            spent[fits] += self.costs[column[fits]]
            count[fits] += 1
        alone = np.where(self.costs <= budget, kept, 0.0)
        single = alone.argmax(axis=1)
        better = alone[rows, single] > (kept * chosen).sum(axis=1)
        chosen[better] = np.eye(len(self.costs), dtype=bool)[single[better]]
        return chosen


@lru_cache(maxsize=64)
def _largest_subsets(
    costs: tuple[float, ...], max_candidates: int | None, budget: float | None
) -> RowMask:
    """Subsets within the limits to which no further candidate can be added: (subsets, M).

    >>> _largest_subsets((1.0, 1.0, 3.0), None, 2.0).tolist()
    [[True, True, False]]
    """
    M = len(costs)
    bits = 1 << np.arange(M)
    numbers = np.arange(2**M)
    masks = (numbers[:, np.newaxis] & bits) > 0
    fits = np.ones(len(numbers), dtype=bool)
    if max_candidates is not None:
        fits &= masks.sum(axis=1) <= max_candidates
    if budget is not None:
        fits &= masks @ np.array(costs) <= budget * (1.0 + TIE)
    can_grow = (fits[numbers[:, np.newaxis] | bits] & ~masks).any(axis=1)
    largest: RowMask = masks[fits & ~can_grow]
    return largest
