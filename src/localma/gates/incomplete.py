"""Fits on predictions of which some are missing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from localma._types import Array, Float64, RowMask
from localma.gates.left_out import renormalized

ROUNDS = 10
"""Times that the global weights are found again; fewer if they no longer change."""
SETTLED = 1e-3


def fill_missing(P: Array, find_weights: Callable[[Array], Array]) -> tuple[Array, RowMask]:
    """Replace missing predictions by the average of the others in the row, under global weights.

    ``p_im = sum_j u_j p_ij / sum_j u_j`` over the candidates j that predict row i, where u are the
    global weights. The mixture under u is then the same as if the weights of the others were
    renormalised. The weights depend on the replaced predictions, so they are found again until
    they settle.

    Parameters
    ----------
    P : (n, M) or (n, M, K) predictions; a missing one is NaN
    find_weights : finds the global weights (M,) of complete predictions

    Returns
    -------
    P : the complete predictions; a row without any has the mean of the other rows
    has_any : (n,) whether some candidate predicts the row

    Examples
    --------
    >>> P = np.array([[1.0, 3.0], [2.0, np.nan]])
    >>> fill_missing(P, lambda complete: np.array([0.5, 0.5]))[0].tolist()
    [[1.0, 3.0], [2.0, 2.0]]
    """
    known = known_predictions(P)
    has_any = np.asarray(known.any(axis=1))
    if known.all():
        return P, has_any
    weights = equal_weights(P)
    filled = replaced(P, known, weights)
    for _ in range(ROUNDS):
        found = find_weights(filled)
        change = np.abs(found - weights).max()
        weights = np.asarray(found, dtype=np.float64)
        filled = replaced(P, known, weights)
        if change < SETTLED:
            break
    return filled, has_any


def equal_weights(P: Array) -> Float64:
    """Equal weights of the candidates: (M,)."""
    return np.full(P.shape[1], 1.0 / P.shape[1])


def known_predictions(P: Array) -> RowMask:
    """Which predictions are not missing: (n, M, ...) -> (n, M)."""
    return np.asarray(~np.isnan(P.reshape(*P.shape[:2], -1)).any(axis=2))


def replaced(P: Array, known: RowMask, weights: Float64) -> Array:
    """Replace missing predictions by the average of the known ones in the row: (n, M, ...).

    Parameters
    ----------
    P : (n, M) or (n, M, K) predictions; a missing one is NaN
    known : (n, M) which predictions are not missing
    weights : (M,) global weights of the average

    Examples
    --------
    >>> P = np.array([[1.0, np.nan]])
    >>> replaced(P, known_predictions(P), np.array([0.5, 0.5])).tolist()
    [[1.0, 1.0]]
    """
    n, M = known.shape
    present = known.reshape(n, M, *[1] * (P.ndim - 2))
    values = np.where(present, P, 0.0)
    shares = renormalized(np.broadcast_to(weights, (n, M)), known, weights)
    averages = np.einsum("nm,nm...->n...", shares, values)
    has_any = known.any(axis=1)
    if has_any.any():
        averages[~has_any] = averages[has_any].mean(axis=0)
    return np.where(present, values, averages[:, np.newaxis])
