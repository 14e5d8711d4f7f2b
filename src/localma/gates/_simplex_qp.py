"""Minimise a convex quadratic over the simplex, exactly, by an active-set method.

The Hessian may be singular (identical candidates, more candidates than rows).
Each subproblem therefore carries a minute proximal ridge around the current
weights, and the subproblem is solved again around its own answer until the
certificate of the *unridged* problem is down to rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, lapack

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

_EPS = float(np.finfo(np.float64).eps)
_RIDGE = 1e-12  # relative to the diagonal; a Cholesky factor in float64 needs about 1e-14
_MAX_PROXIMAL_STEPS = 30
_MAX_WARM_FACES = 12


def minimise_quadratic(hessian: Matrix, linear: Vector, start: Vector) -> Vector:
    """Solve ``min_w 1/2 w'Hw + c'w`` subject to ``w >= 0, sum w = 1``.

    A constant added to all entries of H moves no minimiser. Where H was centred at the start, and
    so is singular along it, a constant of the size of its entries keeps digits.

    Parameters
    ----------
    hessian : (M, M) symmetric, positive semi-definite.
    linear : (M,) the vector c.
    start : (M,) weights on the simplex. Where there are many minimisers, one near it is taken.

    Returns
    -------
    weights : (M,) with exact zeros off the optimal face, summing to one.

    Examples
    --------
    >>> minimise_quadratic(np.eye(3), np.array([0.0, 0.0, 9.0]), np.ones(3) / 3).tolist()
    [0.5, 0.5, 0.0]
    """
    linear = linear - linear.min()  # a constant moves no minimiser on the simplex
    weights, gap = start, quadratic_gap(hessian, linear, start)
    # Candidates without curvature take the scale of the least there is, or of the linear part.
    scale = 1e-3 * least_curvature(hessian) + float(linear @ start)
    ridge = _RIDGE * (np.diagonal(hessian) + scale) + np.finfo(np.float64).tiny
    for _ in range(_MAX_PROXIMAL_STEPS):
        if gap <= _rounding(hessian, linear, weights):
            break
        trial = _on_ridge(hessian, linear, weights, ridge)
        trial_gap = quadratic_gap(hessian, linear, trial)
        if trial_gap >= gap:
            break
        weights, gap, improvement = trial, trial_gap, trial_gap / gap
        if improvement > 0.9:
            break
    return weights


def quadratic_gap(hessian: Matrix, linear: Vector, weights: Vector) -> float:
    """Certificate ``max_m <Hw + c, w - e_m>``, which bounds the excess over the minimum."""
    gradient = hessian @ weights + linear
    return max(0.0, float(weights @ gradient - gradient.min()))


def _rounding(hessian: Matrix, linear: Vector, weights: Vector) -> float:
    """Size of the rounding error in the certificate: below it, more digits are noise."""
    root = np.sqrt(np.diagonal(hessian))
    return _EPS * float((weights @ root) ** 2 + weights @ linear)


def least_curvature(hessian: Matrix) -> float:
    """Smallest positive entry of the diagonal; 0 if there is none."""
    diagonal = np.diagonal(hessian)
    return float(diagonal.min(where=diagonal > 0.0, initial=np.inf)) if diagonal.any() else 0.0


def _on_ridge(hessian: Matrix, linear: Vector, centre: Vector, ridge: Vector) -> Vector:
    """Minimise the quadratic plus ``1/2 sum_m ridge_m (w_m - centre_m)^2``."""
    for _ in range(4):
        try:
            return _active_set(hessian + np.diag(ridge), linear - ridge * centre, centre)
        except LinAlgError:
            ridge = 100.0 * ridge
    return centre


def _active_set(hessian: Matrix, linear: Vector, start: Vector) -> Vector:
    """Walk from the start, or, where that takes too long, from the best single candidate.

    A dense start near no minimiser is left one candidate at a time; a face is grown much faster.
    """
    weights, arrived = _walk(hessian, linear, start, _MAX_WARM_FACES)
    if not arrived:
        vertex = np.zeros_like(start)
        vertex[np.argmin(0.5 * np.diagonal(hessian) + linear)] = 1.0
        weights, _ = _walk(hessian, linear, vertex, 20 * len(start) + 100)
    return _cleaned(weights)


def _walk(hessian: Matrix, linear: Vector, start: Vector, max_faces: int) -> tuple[Vector, bool]:
    """Walk over faces of the simplex, downhill, until no multiplier is negative.

    A face is a set of candidates with positive weight. On the way to the
    minimiser of a face the walk stops at its boundary and leaves candidates
    behind; at the minimiser it takes in those whose gradient is lowest.
    Also says whether it arrived within the number of faces allowed.
    """
    weights, face = start, start > 0.0
    settled = np.zeros_like(face)  # the face whose minimiser was reached last
    barred = np.zeros_like(face)  # entered, and left again without a step: wait for progress
    for _ in range(max_faces):
        target, level = _face_minimiser(hessian, linear, weights, face)
        if target[face].min() > 0.0:
            barred &= np.array_equal(face, settled)
            weights, settled = target, face
            entering = _entering(hessian, linear, weights, level, face | barred)
            if not entering.any():
                return weights, True
            face = face | entering
            continue
        lower = _drop_many(hessian, linear, weights, target)
        if lower is not None:
            weights, face = lower, lower > 0.0
            barred[:] = False
            continue
        step, leaving = _to_boundary(weights, target, face)
        if step > 0.0:
            weights = np.where(leaving, 0.0, weights + step * (target - weights))
            barred[:] = False
        barred |= leaving
        face = face & ~leaving
    return weights, False


def _face_minimiser(
    hessian: Matrix, linear: Vector, base: Vector, face: Mask
) -> tuple[Vector, float]:
    """Minimise over ``sum w = 1`` on one face, signs free; also the gradient's common level.

    What is solved for is the change from `base`, and from its level: the nearer it is, the more
    digits are right.
    """
    chosen = np.flatnonzero(face)
    inner, start = hessian[np.ix_(chosen, chosen)], base[chosen]
    gradient = inner @ start + linear[chosen]
    common = float(start @ gradient) / max(float(start.sum()), _EPS)
    sides = np.array([common - gradient, np.ones(len(chosen))])
    _, solved, info = lapack.dposv(inner, sides.T)
    if info != 0:
        raise LinAlgError(f"leading minor {info} is not positive definite")
    free, ones = solved.T
    level = (1.0 - start.sum() - free.sum()) / ones.sum()
    target = np.zeros_like(linear)
    target[chosen] = start + (free + level * ones)
    if not target.max() > 0.0:
        raise LinAlgError("the digits of the minimiser are lost to a Hessian that is all but zero")
    return target, common + float(level)


def _drop_many(hessian: Matrix, linear: Vector, weights: Vector, target: Vector) -> Vector | None:
    """Weights of lower value with several candidates fewer; None if none are found.

    One boundary after the other would take as many steps as there are candidates to drop.
    """
    bound = _value(hessian, linear, weights)
    landed = target
    while landed.min() < 0.0:
        landed, _ = _face_minimiser(hessian, linear, landed, landed > 0.0)
    if _value(hessian, linear, landed) < bound:
        return landed
    for step in (0.5, 0.1, 0.02, 0.004):
        clipped = np.maximum(weights + step * (target - weights), 0.0)
        clipped /= clipped.sum()
        fewer = np.count_nonzero(clipped) < np.count_nonzero(weights)
        if fewer and _value(hessian, linear, clipped) < bound:
            return clipped
    return None


def _value(hessian: Matrix, linear: Vector, weights: Vector) -> float:
    return float(weights @ (0.5 * (hessian @ weights) + linear))


def _entering(
    hessian: Matrix, linear: Vector, weights: Vector, level: float, excluded: Mask
) -> Mask:
    """Candidates whose gradient lies below the face's level, the lowest several at once."""
    if excluded.all():
        return ~excluded
    root = np.sqrt(np.diagonal(hessian))
    rounding = _EPS * (root * (weights @ root) + np.abs(linear) + abs(level))
    below = hessian @ weights + linear - level + 4.0 * rounding
    below[excluded] = 0.0
    lowest = np.argsort(below, kind="stable")[: max(1, int(excluded.sum()) // 2)]
    entering = np.zeros_like(excluded)
    entering[lowest] = below[lowest] < 0.0
    return entering


def _to_boundary(weights: Vector, target: Vector, face: Mask) -> tuple[float, Mask]:
    """Longest feasible step to the target, and the candidates that reach zero there."""
    falling = face & (target <= 0.0)
    steps = np.full_like(weights, np.inf)
    steps[falling] = weights[falling] / np.maximum(
        weights[falling] - target[falling], np.finfo(np.float64).tiny
    )
    step = float(steps.min())
    return step, falling & (steps <= step)


def _cleaned(weights: Vector) -> Vector:
    """Zero what is only rounding, and sum to one."""
    kept = np.where(weights > _EPS, weights, 0.0)
    return kept / kept.sum()
