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
    runs : (M, M) the candidates that run if candidate j runs: itself, and those whose predictions
        it takes; only itself by default
    """

    costs: Float64
    min_weight: float = 0.0
    max_candidates: int | None = None
    budget: float | None = None
    runs: RowMask | None = None

    @classmethod
    def of(
        cls,
        options: Options,
        costs: Float64,
        names: Sequence[str],
        runs: RowMask | None = None,
    ) -> Allowance:
        """Check the budget against the costs of the candidates: (M,)."""
        if options.costs is not None:
            costs = checked_costs(options.costs, names)
        budget = options.budget
        whole = costs if runs is None else runs @ costs
        if budget is not None and budget < whole.min():
            cheapest = int(whole.argmin())
            raise InvalidInputError(
                f"No candidate fits a budget of {budget:g} per row; the cheapest one, "
                f"{names[cheapest]!r}, costs {whole[cheapest]:g}. Raise the budget.",
                python_hint="Or pass other costs=.",
            )
        return cls(costs, options.min_weight, options.max_candidates, budget, runs)

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
        costs, runs = tuple(self.costs.tolist()), tuple(map(tuple, self._runs.tolist()))
        subsets = _largest_subsets(costs, runs, self.max_candidates, self.budget)
        step = max(1, SLICE_NUMBERS // len(subsets))
        best = [
            np.argmax(kept[start : start + step] @ subsets.T, axis=1)
            for start in range(0, len(kept), step)
        ]
        return subsets[np.concatenate(best)]

    @property
    def _runs(self) -> RowMask:
        return np.eye(len(self.costs), dtype=bool) if self.runs is None else self.runs

    def _greedy_subsets(self, kept: Array) -> RowMask:
        """Add candidates by weight per cost, or take one alone if it has more weight: (n, M)."""
        rows, costs, size = np.arange(len(kept)), self._runs @ self.costs, self._runs.sum(axis=1)
        budget = np.inf if self.budget is None else self.budget * (1.0 + TIE)
        most = len(costs) if self.max_candidates is None else self.max_candidates
        order = np.argsort(-kept / np.maximum(costs, TIE), axis=1, kind="stable")
        chosen = np.zeros(kept.shape, dtype=bool)
        spent, count = np.zeros(len(kept)), np.zeros(len(kept), dtype=np.intp)
        for column in order.T:
            fits = (spent + costs[column] <= budget) & (count + size[column] <= most)
            fits &= kept[rows, column] > 0.0
            chosen[rows[fits], column[fits]] = True
            spent[fits] += costs[column[fits]]
            count[fits] += size[column[fits]]
        alone = np.where((costs <= budget) & (size <= most), kept, 0.0)
        single = alone.argmax(axis=1)
        better = alone[rows, single] > (kept * chosen).sum(axis=1)
        chosen[better] = np.eye(len(costs), dtype=bool)[single[better]]
        return chosen


@lru_cache(maxsize=64)
def _largest_subsets(
    costs: tuple[float, ...],
    runs: tuple[tuple[bool, ...], ...],
    max_candidates: int | None,
    budget: float | None,
) -> RowMask:
    """Subsets within the limits to which no further candidate can be added: (subsets, M).

    >>> alone = ((True, False, False), (False, True, False), (False, False, True))
    >>> _largest_subsets((1.0, 1.0, 3.0), alone, None, 2.0).tolist()
    [[True, True, False]]
    """
    M = len(costs)
    bits = 1 << np.arange(M)
    numbers = np.arange(2**M)
    masks = (numbers[:, np.newaxis] & bits) > 0
    running = (masks.astype(np.intp) @ np.array(runs, dtype=np.intp)) > 0
    fits = np.ones(len(numbers), dtype=bool)
    if max_candidates is not None:
        fits &= running.sum(axis=1) <= max_candidates
    if budget is not None:
        fits &= running @ np.array(costs) <= budget * (1.0 + TIE)
    can_grow = (fits[numbers[:, np.newaxis] | bits] & ~masks).any(axis=1)
    largest: RowMask = masks[fits & ~can_grow]
    return largest
