"""What a local gate is shrunk to: the global weights, and the scale of the loss around them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localma.equations import global_average, row_losses
from localma.gates._parts import row_slices, weighted_sum
from localma.gates.global_ import find_global_weights
from localma.gates.labelled import Labelled

Array = NDArray[np.floating]
Float64 = NDArray[np.float64]
Rows = NDArray[np.intp]

WEIGHT_FLOOR = 0.01
"""Part of the start that equal weights have, so that the logarithm of a zero weight is finite."""


def anchor_and_scale(
    data: Labelled, rows: Rows | None, global_weights: Array | None
) -> tuple[Float64, float]:
    """Global weights (M,), found if None is given, and the scale of the loss: their risk.

    If they fit (all but) perfectly, the scale is a millionth of the risk of equal weights; if
    these do too, it is one. Predictions are read slice by slice.
    """
    M, K = data.P.shape[1:]
    equal: Float64 = np.full(M, 1.0 / M)
    weights = global_weights if M > 1 else equal
    if weights is None:
        weights = find_global_weights(data, rows)
    sums = np.zeros(3)
    n = len(data.y) if rows is None else len(rows)
    for some in row_slices(n, rows, M * K):
        P, y, weight = data.P[some], data.y[some], data.sample_weight[some]
        risks = [
            weighted_sum(weight, row_losses(data.loss, y, global_average(w, P)))
            for w in (weights, equal)
        ]
        sums += [*risks, weight.sum()]
    risk, equal_risk = np.abs(sums[:2] / sums[2])
    return np.asarray(weights, dtype=np.float64), loss_scale(float(risk), float(equal_risk))


def loss_scale(risk: float, equal_risk: float) -> float:
    """Scale of a loss, of its risks under the global and under equal weights.

    >>> loss_scale(0.5, 2.0), loss_scale(0.0, 2.0), loss_scale(0.0, 0.0)
    (0.5, 2e-06, 1.0)
    """
    scale = max(risk, 1e-6 * equal_risk)
    return scale if scale > 0.0 else 1.0


def floored(weights: Array) -> Array:
    """Weights (M,) drawn to equal ones by `WEIGHT_FLOOR`, so that all are positive.

    >>> floored(np.array([1.0, 0.0])).tolist()
    [0.995, 0.005]
    """
    return (1.0 - WEIGHT_FLOOR) * weights + WEIGHT_FLOOR / len(weights)
