"""The labelled sample that gates are fitted on: one frozen record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.equations import row_losses
from localma.errors import InvalidInputError
from localma.evidence import Baseline, effective_number
from localma.folds import count_groups, number_groups
from localma.losses import Loss
from localma.tables.frames import LARGE_ROWS, ArrowRows, n_rows, take_rows, without_mask

Array = NDArray[np.floating]
Float64 = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Labelled:
    """A labelled sample and the candidates' predictions of it. Make one with `Labelled.of`.

    X : inputs of the gate, n rows: an array (n, p), or texts, images and the like.
    P : (n, M, K) predictions of the candidates.
    y : (n, K) targets.
    sample_weight : (n,) weights of the rows.
    loss : the loss to minimise, on the scale of the predictions.
    groups : (n,) the number of the group of each row, from 0; None if rows are independent.
    baseline : constant predictions to compare with; None if they are not compared.
    """

    X: Any
    P: Array
    y: Array
    sample_weight: Array
    loss: Loss
    groups: Rows | None = None
    baseline: Baseline | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        P: Array,
        y: Array,
        *,
        loss: Loss,
        sample_weight: Array | None = None,
        groups: Any = None,
        baseline: Baseline | None = None,
    ) -> Labelled:
        """Collect a sample and check it: masks that hide values, shapes, weights, groups.

        sample_weight : (n,), or None if all rows weigh one.
        groups : (n,) names or numbers of groups, such as patients; None if rows are independent.

        >>> from localma.losses import squared_error
        >>> X, P, y = np.zeros((3, 2)), np.zeros((3, 4, 1)), np.ones((3, 1))
        >>> data = Labelled.of(X, P, y, loss=squared_error(), groups=["b", "a", "b"])
        >>> data.n_candidates, data.groups.tolist(), data.take(np.array([0, 2])).n_rows
        (4, [1, 0, 1], 2)
        """
        X, P, y, sample_weight = plain_arrays(X, P, y, sample_weight)
        P, y = np.asarray(P), np.asarray(y)
        _check_shapes(X, P, y)
        weight = check_weight(sample_weight, len(y))
        numbers = None if groups is None else number_groups(groups, len(y))
        return cls(X, P, y, weight, loss, numbers, baseline)

    def take(self, rows: Rows) -> Labelled:
        """Some rows of the sample, of all that it holds."""
        without = self.without_inputs(rows)
        baseline = None if self.baseline is None else self.baseline.take(rows)
        return replace(without, X=take_rows(self.X, rows), baseline=baseline)

    def without_inputs(self, rows: Rows | None = None) -> Labelled:
        """Some rows, or all, with inputs of no column; nothing of X is read."""
        P, y, weight, groups = self.P, self.y, self.sample_weight, self.groups
        if rows is not None:
            P, y, weight = P[rows], y[rows], weight[rows]
            groups = None if groups is None else groups[rows]
        return Labelled(np.empty((len(y), 0)), P, y, weight, self.loss, groups)

    @property
    def n_rows(self) -> int:
        """Number n of rows."""
        return len(self.y)

    @property
    def n_inputs(self) -> int:
        """Number p of inputs; 0 if they are not a table of numbers."""
        numbers = isinstance(self.X, np.ndarray | ArrowRows) and self.X.dtype.kind in "biuf"
        return int(self.X.shape[1]) if numbers and self.X.ndim == 2 else 0

    @property
    def n_candidates(self) -> int:
        """Number M of candidates."""
        return int(self.P.shape[1])

    @property
    def n_groups(self) -> int | None:
        """Number of groups that have weight; None if rows are independent."""
        return count_groups(self.groups, self.sample_weight)

    @property
    def n_effective(self) -> float:
        """Number of equal rows that the weighted rows amount to."""
        return effective_number(self.sample_weight)

    def baseline_losses(self, learnt: Rows, judged: Rows) -> Array | None:
        """Losses on some rows of the best constant of other rows: (judged,)."""
        if self.baseline is None:
            return None
        return self.baseline.losses(self.baseline.learn(learnt), judged)

    def best_candidate(self, rows: Rows | None) -> int:
        """The candidate of smallest mean loss on some rows."""
        chosen = slice(None) if rows is None else rows
        weight, y = self.sample_weight[chosen], self.y[chosen]
        risks = [
            weight @ row_losses(self.loss, y, self.P[chosen, m]) for m in range(self.n_candidates)
        ]
        return int(np.argmin(risks))


def plain_arrays(X: Any, P: Any = None, y: Any = None, sample_weight: Any = None) -> list[Any]:
    """The same as plain arrays; refuse masks that hide values, which a gate would read."""
    arrays = {"X": X, "P": P, "y": y, "sample_weight": sample_weight}
    return [without_mask(values, name) for name, values in arrays.items()]


def _check_shapes(X: Any, P: Array, y: Array) -> None:
    """Refuse inputs, predictions and targets that do not fit together."""
    n = n_rows(X)
    if P.ndim != 3 or n != len(P) or y.shape != (P.shape[0], P.shape[2]):
        raise InvalidInputError(
            "A labelled sample has n inputs X, predictions P of shape (n, M, K) and targets y of "
            f"shape (n, K); received {n} inputs, P {P.shape} and y {y.shape}. Give a single output "
            "an axis of length one, and every row of X its predictions."
        )


def check_weight(sample_weight: Array | None, n: int) -> Float64:
    """Weights of n rows, checked; ones if there are none."""
    if sample_weight is None and n < LARGE_ROWS:
        return np.ones(n)
    if sample_weight is None:
        return np.broadcast_to(1.0, n)  # takes no memory
    weight: Float64 = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,) or not (weight >= 0.0).all() or not 0 < weight.sum() < np.inf:
        raise InvalidInputError(
            f"sample_weight must have shape ({n},), be finite and non-negative, and not all "
            f"zero; received shape {weight.shape}, values from {weight.min(initial=np.inf):g} to "
            f"{weight.max(initial=-np.inf):g}. Leave it out for equal weights of rows."
        )
    return weight
