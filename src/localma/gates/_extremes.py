"""The outermost rows of each column and its standard deviation, of a sample read part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.gates._parts import add_moments, row_slices

Float64 = NDArray[np.float64]


def outermost(
    X: Any, used: NDArray[np.bool_] | None, count: int
) -> tuple[Float64, Float64, Float64]:
    """Smallest and largest numbers of each column, the outermost first, and standard deviations.

    X : (n, p); used : (n,) rows that count, all if None -> (count, p), (count, p), (p,).

    >>> low, high, deviation = outermost(np.array([[1.0], [2.0], [4.0], [5.0]]), None, 2)
    >>> low[:, 0].tolist(), high[:, 0].tolist(), deviation.round(3).tolist()
    ([1.0, 2.0], [5.0, 4.0], [1.581])
    """
    p = X.shape[1]
    lowest, highest = np.full((count, p), np.inf), np.full((count, p), np.inf)
    moments = (0.0, np.zeros(p), np.zeros(p))
    for part in row_slices(len(X), None, p):
        x = np.asarray(X[part], dtype=np.float64)
        if used is not None:
            x = x[used[part]]
        if len(x):
            _lower(lowest, x)
            _lower(highest, -x)
            moments = add_moments(moments, x, np.ones(len(x)))
    return lowest, -highest, np.sqrt(moments[2] / moments[0])


def _lower(lowest: Float64, x: Float64) -> None:
    """Let the rows of x take the places of larger numbers in `lowest`."""
    last = lowest[-1]
    for k in np.flatnonzero(x.min(axis=0) < last).tolist():
        column = x[:, k]
        joined = np.concatenate([lowest[:, k], column[column < last[k]]])
        lowest[:, k] = np.sort(joined)[: len(lowest)]
