"""The labelled sample that gates are fitted on, and moments of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from localma._types import AnyArray, Array, Float64, RowMask, Rows
from localma.equations import row_losses
from localma.errors import InvalidInputError
from localma.evidence import Baseline, effective_number
from localma.folds import count_groups, number_groups
from localma.losses import Loss
from localma.tables.frames import LARGE_ROWS, ArrowRows, n_rows, take_rows, without_mask


class Table(Protocol):
    """Numbers (n, p): an array, or an object that reads rows when they are indexed."""

    ndim: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | Rows | RowMask, /) -> Float64: ...


class RowSource(Protocol):
    """Rows of any kind: an array, a tensor, a list, a series or a data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


Inputs: TypeAlias = AnyArray | ArrowRows | Sequence[str] | RowSource
"""Inputs of a gate: a table of numbers, or texts, images and the like."""


@dataclass(frozen=True)
class Labelled:
    """A labelled sample and the candidates' predictions of it. Make one with `Labelled.of`.

    Parameters
    ----------
    X : n inputs
        Inputs of the gate: an array (n, p), or texts, images and the like.
    P : (n, M, K) array
        Predictions of the candidates.
    y : (n, K) array
        Targets.
    sample_weight : (n,) array
        Weights of the rows.
    loss : Loss
        The loss to minimise, on the scale of the predictions.
    groups : (n,) array of int, optional
        The number of the group of each row, from 0. By default rows are independent.
    baseline : Baseline, optional
        Constant predictions to compare with. By default there is no comparison.
    is_ordered : bool
        Whether rows are sorted by content, so that training need not sort them again.

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> X, P, y = np.zeros((3, 2)), np.zeros((3, 4, 1)), np.ones((3, 1))
    >>> data = Labelled.of(X, P, y, loss=squared_error())
    >>> data.n_rows, data.n_inputs, data.n_candidates
    (3, 2, 4)
    """

    X: Any
    P: Array
    y: Array
    sample_weight: Array
    loss: Loss
    groups: Rows | None = None
    baseline: Baseline | None = None
    is_ordered: bool = False

    @classmethod
    def of(
        cls,
        X: Inputs,
        P: Array,
        y: Array,
        *,
        loss: Loss,
        sample_weight: Array | None = None,
        groups: Sequence[str | int] | AnyArray | None = None,
        baseline: Baseline | None = None,
    ) -> Labelled:
        """Check a sample and collect it in one record.

        Parameters
        ----------
        X : n inputs
            Inputs of the gate: an array (n, p), or texts, images and the like.
        P : (n, M, K) array
            Predictions of the candidates.
        y : (n, K) array
            Targets.
        loss : Loss
            The loss to minimise.
        sample_weight : (n,) array, optional
            Weights of the rows. By default all rows have the same weight.
        groups : sequence of str or int, optional
            Name or number of the group of each row, such as a patient. By default rows are
            independent.
        baseline : Baseline, optional
            Constant predictions to compare with.

        Returns
        -------
        Labelled
            The sample.

        Examples
        --------
        >>> from localma.losses import squared_error
        >>> X, P, y = np.zeros((3, 2)), np.zeros((3, 4, 1)), np.ones((3, 1))
        >>> data = Labelled.of(X, P, y, loss=squared_error(), groups=["b", "a", "b"])
        >>> data.n_candidates, data.groups.tolist(), data.take(np.array([0, 2])).n_rows
        (4, [1, 0, 1], 2)
        """
        X, P, y, sample_weight = plain_arrays(X, P, y, sample_weight)
        P, y = np.asarray(P), np.asarray(y)
        _check_shapes(X, P, y)
        _check_output_weight(loss, y.shape[1])
        weight = check_weight(sample_weight, len(y))
        numbers = None
        if groups is not None:
            numbers = number_groups(groups, len(y))
        return cls(X, P, y, weight, loss, numbers, baseline)

    def take(self, rows: Rows) -> Labelled:
        """Select rows of the sample.

        Parameters
        ----------
        rows : (n_rows,) array of int
            The rows.

        Returns
        -------
        Labelled
            The sample of these rows.
        """
        baseline = self.baseline and self.baseline.take(rows)
        return replace(self.without_inputs(rows), X=take_rows(self.X, rows), baseline=baseline)

    def without_inputs(self, rows: Rows | None = None) -> Labelled:
        """Select rows without reading X; the inputs then have no columns.

        Parameters
        ----------
        rows : (n_rows,) array of int, optional
            The rows. By default all of them.

        Returns
        -------
        Labelled
            The sample of these rows.
        """
        index, groups = row_index(rows), self.groups
        if groups is not None:
            groups = groups[index]
        P, y, weight = self.P[index], self.y[index], self.sample_weight[index]
        return Labelled(np.empty((len(y), 0)), P, y, weight, self.loss, groups)

    @property
    def table(self) -> Table:
        """The inputs of a gate that needs a table of numbers."""
        return cast(Table, self.X)

    @property
    def n_rows(self) -> int:
        """Number n of rows."""
        return len(self.y)

    @property
    def n_inputs(self) -> int:
        """Number p of inputs; 0 if they are not a table of numbers."""
        return count_inputs(self.X)

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
        """Number of equally weighted rows that carry as much information."""
        return effective_number(self.sample_weight)

    def with_weight(self, rows: Rows) -> Rows:
        """Drop the rows whose weight is zero.

        Parameters
        ----------
        rows : (n_rows,) array of int
            The rows.

        Returns
        -------
        array of int
            Those that have weight.
        """
        return rows[self.sample_weight[rows] > 0.0]

    def best_candidate(self, rows: Rows | None) -> int:
        """Find the candidate with the smallest mean loss.

        Parameters
        ----------
        rows : (n_rows,) array of int or None
            The rows to compare on; None for all rows.

        Returns
        -------
        int
            Index of the candidate.
        """
        index = row_index(rows)
        weight, y = self.sample_weight[index], self.y[index]
        risks = [
            weighted_sum(weight, row_losses(self.loss, y, self.P[index, m]))
            for m in range(self.n_candidates)
        ]
        return int(np.argmin(risks))


def count_inputs(X: Inputs) -> int:
    """Count the columns of a table of numbers; 0 for other inputs.

    >>> count_inputs(np.zeros((2, 3))), count_inputs(["a text"])
    (3, 0)
    """
    if not isinstance(X, np.ndarray | ArrowRows) or X.dtype.kind not in "biuf" or X.ndim != 2:
        return 0
    return int(X.shape[1])


def row_index(rows: Rows | None) -> slice | Rows:
    """Index of some rows; of all rows if `rows` is None."""
    return slice(None) if rows is None else rows


def plain_arrays(X: Any, P: Any = None, y: Any = None, sample_weight: Any = None) -> list[Any]:
    """Return the arguments as plain arrays; refuse masks that hide values."""
    arrays = {"X": X, "P": P, "y": y, "sample_weight": sample_weight}
    return [without_mask(values, name) for name, values in arrays.items()]


def _check_shapes(X: Inputs, P: Array, y: Array) -> None:
    """Refuse inputs, predictions and targets that do not fit together."""
    n = n_rows(X)
    if P.ndim != 3 or n != len(P) or y.shape != (P.shape[0], P.shape[2]):
        raise InvalidInputError(
            "A labelled sample has n inputs X, predictions P of shape (n, M, K) and targets y of "
            f"shape (n, K); received {n} inputs, P {P.shape} and y {y.shape}. Give a single output "
            "an axis of length one, and every row of X its predictions."
        )


def _check_output_weight(loss: Loss, n_outputs: int) -> None:
    """Refuse weights of outputs that are not one positive number each."""
    weight = np.array(loss.output_weight)
    if weight.size not in (0, n_outputs) or not (weight > 0.0).all():
        raise InvalidInputError(
            f"output_weight of a loss must have one positive number for each of the {n_outputs} "
            f"outputs; received {loss.output_weight}. Use the method standardized() to have it set."
        )


def check_weight(sample_weight: Array | None, n: int) -> Float64:
    """Weights of n rows, checked; ones for None."""
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


# Sums over the rows of a sample that is read slice by slice.

SLICE_NUMBERS = 2**18
"""Numbers that are read at once: two megabytes in double precision."""


def row_slices(n: int, rows: Rows | None, width: int) -> Sequence[slice | Rows]:
    """Cut n rows into slices of a moderate size; if `rows` (n,) are given, cut those.

    width : numbers in a row.

    >>> row_slices(5, None, SLICE_NUMBERS // 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, SLICE_NUMBERS // max(1, width))
    slices = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    if rows is None:
        return slices
    return [rows[index] for index in slices]


@dataclass(frozen=True)
class Moments:
    """Weighted moments of columns: total weight, mean (p,), sum of squares around it (p,)."""

    total: float
    mean: Float64
    squares: Float64

    @classmethod
    def empty(cls, n_columns: int) -> Moments:
        """Moments of no rows."""
        return cls(0.0, np.zeros(n_columns), np.zeros(n_columns))

    def add(self, x: Float64, weight: Array) -> Moments:
        """Add rows (n, p) with weights (n,) (Chan, Golub and LeVeque, 1979)."""
        added = float(weight.sum())
        if added == 0.0:
            return self
        mean = weighted_sum(weight, x) / added
        squares = weighted_sum(weight, (x - mean) ** 2)
        distance, total = mean - self.mean, self.total + added
        between = distance**2 * (self.total * added / total)
        return Moments(
            total, self.mean + distance * (added / total), self.squares + squares + between
        )


def mean_and_scale(X: Table, rows: Rows | None, weight: Array) -> tuple[Float64, Float64]:
    """Weighted mean and standard deviation of each column, in one pass: (p,), (p,).

    A constant column has scale 1.

    X : (n, p); rows : those to read, all if None; weight : their weights.
    """
    n_columns = X.shape[1]
    moments, start, unit = Moments.empty(n_columns), 0, np.ones(n_columns)
    for index in row_slices(len(weight), rows, n_columns):
        x = np.asarray(X[index], dtype=np.float64)
        if start == 0:
            unit = column_units(x)
        moments = moments.add(x / unit, weight[start : start + len(x)])
        start += len(x)
    scale = np.sqrt(moments.squares / moments.total)
    constant = scale <= 1e-10 * np.abs(moments.mean)  # rounding errors of a constant column
    deviation = scale * unit  # zero if a column is constant, or smaller than any number
    return moments.mean * unit, np.where(constant | (deviation == 0.0), 1.0, deviation)


def column_units(x: Array) -> Float64:
    """Power of two near the largest number of each column: (n, p) -> (p,).

    Columns that are divided by it have squares that neither overflow nor vanish. No digit changes.

    >>> column_units(np.array([[3.0, 1e20], [-5.0, 2e20]])).tolist() == [4.0, 2.0**67]
    True
    """
    _, exponents = np.frexp(np.abs(x).max(axis=0, initial=0.0))
    return np.ldexp(1.0, exponents - 1)


def weighted_sum(weight: Array, values: Array) -> Float64:
    """``sum_i w_i v_i``: (n,), (n, ...) -> (...). It uses one thread, unlike a matrix product."""
    return np.einsum("n,n...->...", weight, values)
