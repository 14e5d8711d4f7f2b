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

    Parameters
    ----------
    logits : array of shape (..., M)
        Any numbers.

    Returns
    -------
    array of shape (..., M)
        Weights, non-negative and summing to one.

    Examples
    --------
    >>> softmax(np.array([[0.0, 0.0], [np.log(3.0), 0.0]])).tolist()
    [[0.5, 0.5], [0.75, 0.25]]
    """
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def pin_last(logits: Array) -> Array:
    """Shift logits so that ``g_M = 0``, the paper's condition for identifiability.

    Parameters
    ----------
    logits : array of shape (..., M)
        Any numbers.

    Returns
    -------
    array of shape (..., M)
        Logits with the same softmax.

    Examples
    --------
    >>> pin_last(np.array([3.0, 2.0])).tolist()
    [1.0, 0.0]
    """
    return logits - logits[..., -1:]


def local_average(weights: Array, predictions: Array) -> Array:
    """Average with input-dependent weights: ``f(x) = sum_m w_m(x) f_m(x)``.

    Parameters
    ----------
    weights : array of shape (n, M)
        Weights of each row.
    predictions : array of shape (n, M) or (n, M, K)
        Predictions of the candidates.

    Returns
    -------
    array of shape (n,) or (n, K)
        The averages.

    Examples
    --------
    >>> local_average(np.array([[0.25, 0.75]]), np.array([[4.0, 8.0]])).tolist()
    [7.0]
    """
    return np.einsum("nm,nm...->n...", weights, predictions)


def global_average(weights: Array, predictions: Array) -> Array:
    """Average with constant weights: ``f(x) = sum_m w_m f_m(x)``.

    Parameters
    ----------
    weights : array of shape (M,)
        Weights of all rows.
    predictions : array of shape (n, M) or (n, M, K)
        Predictions of the candidates.

    Returns
    -------
    array of shape (n,) or (n, K)
        The averages.

    Examples
    --------
    >>> global_average(np.array([0.5, 0.5]), np.array([[4.0, 8.0]])).tolist()
    [6.0]
    """
    return np.einsum("m,nm...->n...", weights, predictions)


def row_losses(loss: Loss, y: Array, mixture: Array) -> Array:
    """Loss of each row; with several outputs, their mean, weighted by `loss.output_weight`.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : array of shape (n,) or (n, K)
        The targets.
    mixture : array of the same shape
        The averaged predictions.

    Returns
    -------
    array of shape (n,)
        The losses.

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> row_losses(squared_error(), np.array([[1.0, 2.0]]), np.array([[3.0, 2.0]])).tolist()
    [2.0]
    """
    value = loss.value(y, mixture)
    if value.ndim == 1:
        return value
    if loss.output_weight:
        value = value * np.array(loss.output_weight)
    return value.mean(axis=1)


def empirical_risk(
    loss: Loss, y: Array, mixture: Array, sample_weight: Array | None = None
) -> float:
    """Mean loss of the sample: ``L_n = (1/n) sum_i loss(y_i, f(x_i))``, the training objective.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : array of shape (n,) or (n, K)
        The targets.
    mixture : array of the same shape
        The averaged predictions.
    sample_weight : array of shape (n,), optional
        Weights of the rows, which are normalised to mean one.

    Returns
    -------
    float
        The mean loss.

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> empirical_risk(squared_error(), np.array([1.0, 2.0]), np.array([3.0, 2.0]))
    2.0
    """
    return float(np.average(row_losses(loss, y, mixture), weights=sample_weight))
