"""A large sample read part by part: what takes the parts, and sums over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Float64 = NDArray[np.float64]
Rows = NDArray[np.intp]

PART_NUMBERS = 2**18
"""Numbers that are read at once: two megabytes in double precision."""


def row_slices(n: int, rows: Rows | None, width: int) -> Sequence[Any]:
    """What takes all of n rows, or the given ones, out of an array, in parts of a fair size.

    width : numbers of a row.

    >>> row_slices(5, None, PART_NUMBERS // 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, PART_NUMBERS // max(1, width))
    parts = [slice(first, min(first + step, n)) for first in range(0, n, step)]
    return parts if rows is None else [rows[part] for part in parts]


def moments(X: Any, rows: Rows | None, weight: Array) -> tuple[Float64, Float64]:
    """Weighted mean and standard deviation of each column, in one pass; a constant one has scale 1.

    X : (n, p), of which some rows; weight : (rows,) theirs.
    """
    known: Moments = (0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
    at, unit = 0, np.ones(X.shape[1])
    for part in row_slices(len(weight), rows, X.shape[1]):
        x = np.asarray(X[part], dtype=np.float64)
        if at == 0:
            unit = column_units(x)
        x = x / unit
        known = add_moments(known, x, weight[at : at + len(x)])
        at += len(x)
    total, mean, squares = known
    return mean * unit, standard_scale(mean, squares / total, unit)


def column_units(x: Array) -> Float64:
    """Power of two near the largest number of each column: (n, p) -> (p,).

    Squares of what is divided by it neither overflow nor vanish, and no digit changes.

    >>> column_units(np.array([[3.0, 1e20], [-5.0, 2e20]])).tolist() == [4.0, 2.0**67]
    True
    """
    _, exponents = np.frexp(np.abs(x).max(axis=0, initial=0.0))
    return np.ldexp(1.0, exponents - 1)


def standard_scale(mean: Float64, variance: Float64, unit: Float64) -> Float64:
    """Standard deviations, given moments in a unit; one for a constant column: (p,)."""
    scale = np.sqrt(variance)
    constant = scale <= 1e-10 * np.abs(mean)  # what rounding leaves of a constant column
    return np.where(constant | (scale == 0.0), 1.0, scale * unit)


Moments = tuple[float, Float64, Float64]
"""Total weight, mean (p,), and weighted sum of squares around it (p,)."""


def add_moments(known: Moments, x: Float64, weight: Array) -> Moments:
    """Add rows (n, p) to what is known of others (Chan, Golub and LeVeque, 1979)."""
    total, mean, squares = known
    added = float(weight.sum())
    if added == 0.0:
        return known
    own_mean = weighted_sum(weight, x) / added
    distance = own_mean - mean
    own_squares = weighted_sum(weight, (x - own_mean) ** 2)
    between = distance**2 * (total * added / (total + added))
    return (
        total + added,
        mean + distance * (added / (total + added)),
        squares + own_squares + between,
    )


def weighted_sum(weight: Array, values: Array) -> Any:
    """``sum_i w_i v_i``: (n,), (n, ...) -> (...), by no thread but this one."""
    return np.einsum("n,n...->...", weight, values)
