"""Formulas of the paper, each function named after its equation.

Axes are always in the order sample n, candidate M, output K.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from localma._types import Array

if TYPE_CHECKING:
    from localma.losses import Loss


def softmax(logits: Array) -> Array:
    """Map logits g(x) to weights: ``w_m = exp(g_m) / sum_j exp(g_j)``.

    logits : (..., M) -> weights : (..., M), non-negative, summing to one.

    >>> softmax(np.array([[0.0, 0.0], [np.log(3.0), 0.0]])).tolist()
    [[0.5, 0.5], [0.75, 0.25]]
    """
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def pin_last(logits: Array) -> Array:
    """Shift logits so that ``g_M = 0``, the paper's condition for identifiability.

    logits : (..., M) -> (..., M) with the same softmax.

    >>> pin_last(np.array([3.0, 2.0])).tolist()
    [1.0, 0.0]
    """
    return logits - logits[..., -1:]


def local_average(weights: Array, predictions: Array) -> Array:
    """Average with input-dependent weights: ``f(x) = sum_m w_m(x) f_m(x)``.

    weights : (n, M), predictions : (n, M) or (n, M, K) -> (n,) or (n, K).

    >>> local_average(np.array([[0.25, 0.75]]), np.array([[4.0, 8.0]])).tolist()
    [7.0]
    """
    return np.einsum("nm,nm...->n...", weights, predictions)


def global_average(weights: Array, predictions: Array) -> Array:
    """Average with constant weights: ``f(x) = sum_m w_m f_m(x)``.

    weights : (M,), predictions : (n, M) or (n, M, K) -> (n,) or (n, K).

    >>> global_average(np.array([0.5, 0.5]), np.array([[4.0, 8.0]])).tolist()
    [6.0]
    """
    return np.einsum("m,nm...->n...", weights, predictions)


def row_losses(loss: Loss, y: Array, mixture: Array) -> Array:
    """Loss of each row; with several outputs, their mean.

    y, mixture : (n,) or (n, K) -> (n,).
    """
    value = loss.value(y, mixture)
    if value.ndim == 1:
        return value
    return value.mean(axis=1)


def empirical_risk(
    loss: Loss, y: Array, mixture: Array, sample_weight: Array | None = None
) -> float:
    """Mean loss of the sample: ``L_n = (1/n) sum_i loss(y_i, f(x_i))``, the training objective.

    y, mixture : (n,) or (n, K); sample_weight : (n,), normalised to mean one.
    """
    return float(np.average(row_losses(loss, y, mixture), weights=sample_weight))
