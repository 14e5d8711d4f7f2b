"""An exact active-set method for convex quadratics over the simplex.

The Hessian may be singular (identical candidates, more candidates than rows). Each subproblem
therefore has a tiny proximal ridge around the current weights. It is solved again around its own
solution until the certificate of the problem *without* the ridge is at the level of rounding.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, lapack

from localma._types import Float64 as Matrix
from localma._types import Float64 as Vector
from localma._types import RowMask as Mask

_EPS = float(np.finfo(np.float64).eps)
_RIDGE = 1e-12  # relative to the diagonal; a Cholesky factor in float64 needs about 1e-14
_MAX_PROXIMAL_STEPS = 30
_MAX_WARM_FACES = 12


def minimise_quadratic(hessian: Matrix, linear: Vector, start: Vector) -> Vector:
    """Solve ``min_w 1/2 w'Hw + c'w`` subject to ``w >= 0, sum w = 1``.

    A constant added to all entries of H does not move the minimiser. If H was centred at the
    start, it is singular along it, and a constant of the size of its entries keeps digits.

    Parameters
    ----------
    hessian : (M, M) symmetric, positive semi-definite.
    linear : (M,) the vector c.
    start : (M,) weights on the simplex. If there are many minimisers, one near it is found.

    Returns
    -------
    weights : (M,) with exact zeros off the optimal face, summing to one.

    Examples
    --------
    >>> minimise_quadratic(np.eye(3), np.array([0.0, 0.0, 9.0]), np.ones(3) / 3).tolist()
    [0.5, 0.5, 0.0]
    """
    linear = linear - linear.min()  # a constant does not move the minimiser on the simplex
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
    if not diagonal.any():
        return 0.0
    return float(diagonal.min(where=diagonal > 0.0, initial=np.inf))


def _on_ridge(hessian: Matrix, linear: Vector, centre: Vector, ridge: Vector) -> Vector:
    """Minimise the quadratic plus ``1/2 sum_m ridge_m (w_m - centre_m)^2``."""
    for _ in range(4):
        try:
            return _active_set(hessian + np.diag(ridge), linear - ridge * centre, centre)
        except LinAlgError:
            ridge = 100.0 * ridge
    return centre


def _active_set(hessian: Matrix, linear: Vector, start: Vector) -> Vector:
    """Walk from the start, or from the best single candidate if that takes too long.

    A dense start far from the minimiser loses one candidate at a time; growing a face is faster.
    """
    weights, arrived = _walk(hessian, linear, start, _MAX_WARM_FACES)
    if not arrived:
        vertex = np.zeros_like(start)
        vertex[np.argmin(0.5 * np.diagonal(hessian) + linear)] = 1.0
        weights, _ = _walk(hessian, linear, vertex, 20 * len(start) + 100)
    return _cleaned(weights)


def _walk(hessian: Matrix, linear: Vector, start: Vector, max_faces: int) -> tuple[Vector, bool]:
    """Walk over faces of the simplex, downhill, until no multiplier is negative.

    A face is a set of candidates with positive weight. On the way to the minimiser of a face the
    walk stops at its boundary and drops candidates. At the minimiser it adds those whose gradient
    is lowest. The second result tells whether the walk ended within `max_faces`.
    """
    weights, face = start, start > 0.0
    settled = np.zeros_like(face)  # the face whose minimiser was reached last
    barred = np.zeros_like(face)  # added and dropped without a step: excluded until progress
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
    """Minimise over ``sum w = 1`` on one face, of any sign; also the gradient's common level.

    The system is solved for the change from `base`: the closer it is, the more digits are right.
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
        raise LinAlgError("a Hessian close to zero leaves no digits of the minimiser")
    return target, common + float(level)


def _drop_many(hessian: Matrix, linear: Vector, weights: Vector, target: Vector) -> Vector | None:
    """Drop several candidates at once and lower the value; None if that fails.

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
    excess = hessian @ weights + linear - level + 4.0 * rounding
    excess[excluded] = 0.0
    lowest = np.argsort(excess, kind="stable")[: max(1, int(excluded.sum()) // 2)]
    entering = np.zeros_like(excluded)
    entering[lowest] = excess[lowest] < 0.0
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
    """Set weights that are only rounding errors to zero; the sum is one."""
    weights = np.where(weights > _EPS, weights, 0.0)
    return weights / weights.sum()
