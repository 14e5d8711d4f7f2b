"""What a local gate is shrunk to: the global weights, and the scale of the loss around them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localma.equations import empirical_risk, global_average
from localma.gates.global_ import GlobalGate
from localma.gates.labelled import Labelled
from localma.losses import Loss

Array = NDArray[np.floating]

WEIGHT_FLOOR = 0.01
"""Part of the start that equal weights have, so that the logarithm of a zero weight is finite."""


def anchor_and_scale(
    P: Array, y: Array, weight: Array | None, loss: Loss, global_weights: Array | None
) -> tuple[NDArray[np.float64], float]:
    """Global weights (M,), found if None is given, and the scale of the loss: their risk.

    Where they fit (all but) perfectly, the scale is a millionth of the risk of equal weights; where
    these do too, it is one.
    """
    equal: Array = np.full(P.shape[1], 1.0 / P.shape[1])
    weights = global_weights if len(equal) > 1 else equal
    if weights is None:
        no_inputs = np.empty((len(y), 0))
        data = Labelled.of(no_inputs, P, y, loss=loss, sample_weight=weight)
        weights = GlobalGate().fit(data).weights_
    risk, equal_risk = (
        abs(empirical_risk(loss, y, global_average(w, P), weight)) for w in (weights, equal)
    )
    return np.asarray(weights, dtype=np.float64), loss_scale(risk, equal_risk)


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
