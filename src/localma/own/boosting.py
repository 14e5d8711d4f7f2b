"""Boosted trees that correct scores, as many as rows held out ask for, perhaps none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localma._types import AnyArray, Array, Float64, Rows
from localma.errors import FileFormatError
from localma.folds import evenly_spaced
from localma.gates.base import Arrays, arrays_below, check_arrays
from localma.own.recalibration import inner_folds
from localma.own.scales import Objective
from localma.trees.boosting import Bins, Growth, Trees, boost

ROUNDS = (0, 1, 2, 4, 8, 13, 18, 25, 40, 60, 80, 110, 160)
"""Numbers of trees that are compared."""
SMALL, LARGE = 200, 2_000
"""Numbers of rows from which trees are larger."""
MOST_BINS = 32
MOST_ROWS = 200_000
"""Trees this small hardly gain from more rows."""
INNER_FOLDS = 3
SHIFTS = 8
"""Newton steps to the best constant shift of the scores."""


@dataclass(frozen=True)
class Boosted:
    """A constant shift of the scores and a sum of trees.

    Parameters
    ----------
    shift : (S,) array
        What is added to each score.
    trees : Trees
        What depends on the inputs.
    """

    shift: Float64
    trees: Trees

    def __call__(self, start: Array, X: Array) -> Float64:
        """Correct scores (n, S) of rows with inputs (n, p): (n, S)."""
        return start + self.shift + self.trees.predict(X)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the numbers by name."""
        return {"shift": self.shift} | {f"trees.{k}": a for k, a in self.trees.arrays().items()}

    @classmethod
    def restore(cls, arrays: Arrays, n_inputs: int, n_scores: int) -> Boosted:
        """Restore the shift and the trees; refuse those of other shapes."""
        own = {name: array for name, array in arrays.items() if not name.startswith("trees.")}
        check_arrays(own, {"shift": ("f", (n_scores,))}, "Boosted trees")
        trees = Trees.restore(arrays_below(arrays, "trees."))
        if trees.n_inputs != n_inputs or trees.n_scores != n_scores:
            raise FileFormatError(
                f"Trees of an own model must take {n_inputs} inputs and give {n_scores} scores; "
                f"received {trees.n_inputs} and {trees.n_scores}."
            )
        return cls(np.asarray(own["shift"], dtype=np.float64), trees)


def growth_for(n: int) -> Growth:
    """How trees grow on n rows: each on other rows and inputs, since that makes their sum smoother.

    >>> growth_for(100).n_leaves, growth_for(10_000).n_leaves
    (4, 16)
    """
    n_leaves, depth = 16, 6
    if n < SMALL:
        n_leaves, depth = 4, 3
    elif n < LARGE:
        n_leaves, depth = 8, 5
    return Growth(
        n_leaves=n_leaves, depth=depth, least_weight=5.0, learning_rate=0.1,
        row_share=0.7, column_share=0.5,
    )  # fmt: skip


@dataclass(frozen=True)
class _Boosting:
    """Rows to boost on: inputs X (n, p), targets y, scores and their weights."""

    objective: Objective
    X: Array
    y: Array
    start: Array
    weight: Array

    def take(self, rows: Rows) -> _Boosting:
        """Select rows."""
        arrays = (values[rows] for values in (self.X, self.y, self.start, self.weight))
        return _Boosting(self.objective, *arrays)

    def fit(self, n_rounds: int, growth: Growth, bins: Bins) -> Boosted:
        """Boost from the best constant shift."""
        shift = self._best_shift()
        unit = self._unit_of_curvature(shift)

        def derivatives(scores: Float64) -> tuple[Array, Array]:
            slope, curvature = self.objective.derivatives(self.y, scores)
            return slope / unit, curvature / unit

        trees = boost(
            self.X,
            self.start + shift,
            derivatives,
            n_rounds=n_rounds,
            growth=growth,
            sample_weight=self.weight,
            bins=bins,
        )
        return Boosted(shift, trees)

    def _best_shift(self) -> Float64:
        """Constant (S,) that lowers the loss most, by Newton's method."""
        shift: Float64 = np.zeros(self.y.shape[1])
        for _ in range(SHIFTS):
            slope, curvature = self.objective.derivatives(self.y, self.start + shift)
            total = self.weight @ curvature
            shift = shift - (self.weight @ slope) / np.maximum(total, np.finfo(np.float64).tiny)
        return shift

    def _unit_of_curvature(self, shift: Array) -> Float64:
        """Mean curvature (S,). Derivatives are divided by it, so that penalties have no unit."""
        _, curvature = self.objective.derivatives(self.y, self.start + shift)
        return np.maximum(self.weight @ curvature / self.weight.sum(), np.finfo(np.float64).tiny)


def fit_boosted(
    objective: Objective,
    X: Array,
    y: Array,
    start: Array,
    weight: Array,
    groups: Rows | None = None,
    n_rounds: int | None = None,
) -> Boosted:
    """Boost scores with the number of trees that predicts held-out rows best.

    Parameters
    ----------
    objective : what is minimised
    X : (n, p) inputs of the trees
    y : (n, S) targets
    start : (n, S) scores to correct
    weight : (n,) weights of the rows
    groups : (n,) numbers of groups that are held out whole, if rows are dependent
    n_rounds : the number of trees, if it is known

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> from localma.own.scales import Link, Objective
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y, start = np.where(X > 0.5, 5.0, 3.0), np.zeros((200, 1))
    >>> link = Link.of(squared_error(), y, np.ones(200), is_classification=False)
    >>> objective = Objective.of(squared_error(), link, y, start)
    >>> boosted = fit_boosted(objective, X, y, start, np.ones(200))
    >>> boosted(np.zeros((2, 1)), np.array([[0.1], [0.9]])).round(1).tolist()
    [[3.0], [5.0]]
    """
    rows = evenly_spaced(np.flatnonzero(weight > 0), MOST_ROWS)
    sample = _Boosting(objective, X, y, start, weight / weight[rows].mean()).take(rows)
    bins, growth = Bins.of(sample.X, sample.weight, MOST_BINS), growth_for(len(rows))
    if n_rounds is None:
        folds = inner_folds(len(rows), None if groups is None else groups[rows], INNER_FOLDS)
        n_rounds = _best_number(sample, folds, growth, bins)
    return sample.fit(n_rounds, growth, bins)


def _best_number(sample: _Boosting, folds: Rows, growth: Growth, bins: Bins) -> int:
    """Number of trees with the smallest loss of held-out rows."""
    risks = np.zeros(len(ROUNDS))
    for fold in range(folds.max() + 1):
        train, test = (sample.take(np.flatnonzero(rows)) for rows in (folds != fold, folds == fold))
        if not len(train.y) or not len(test.y):
            continue
        boosted = train.fit(ROUNDS[-1], growth, bins)
        staged = test.start + boosted.shift + boosted.trees.staged(test.X, ROUNDS)
        risks += [test.weight @ sample.objective.values(test.y, scores) for scores in staged]
    return ROUNDS[int(np.argmin(np.nan_to_num(risks, nan=np.inf)))]
