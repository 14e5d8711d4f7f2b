"""Minimise a mean loss over the simplex, with a certificate of how near the minimum is.

Squared errors need one pass over the predictions: since weights sum to one, the risk is
``w'Gw``, ``G`` the Gram matrix of the candidates' *errors*. Every other loss is met by
Newton's method on the simplex: the same quadratic solver, applied to the second-order
model of the risk at each point, and a line search that reads no prediction again. For a
loss with kinks, windows narrow around it until the certificate holds; a loss that is not
convex is minimised from several starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from localma.errors import InvalidInputError
from localma.gates._criteria import Criterion, SmoothCriterion, WindowedCriterion, mean_distance
from localma.gates._row_blocks import RowBlocks
from localma.gates._simplex_qp import least_curvature, minimise_quadratic
from localma.losses import Loss, squared_error

Float64 = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_BEYOND = 1e-5  # the last Newton step is cheap for its worth: weights settle to many digits
_PATIENCE = 12  # Newton steps after which a convex loss is taken to have all but kinks
_STANDSTILL = 5  # Newton steps that lower neither risk nor gap before a search ends
_SINGLE_STARTS = 4  # candidates from which a loss that is not convex is minimised as well
_MAX_BACKTRACKS = 40


@dataclass(frozen=True)
class Problem:
    """A mean loss as a function of the weights: ``sum_ik share_ik loss(y_ik, sum_m w_m P_imk)``.

    blocks : predictions (n, M, K). y, share : (n, K), shares positive and summing to one.
    """

    blocks: RowBlocks
    y: Float64
    share: Float64
    loss: Loss

    @property
    def equal_weights(self) -> Float64:
        """(M,), where every search begins."""
        n_candidates = self.blocks.predictions.shape[1]
        return np.full(n_candidates, 1.0 / n_candidates)

    def risk(self, mixture: Float64) -> float:
        """Mean loss of a mixture (n, K)."""
        return float(np.vdot(self.share, self.loss.value(self.y, mixture)))


@dataclass(frozen=True)
class Solution:
    """Weights on the simplex and how good they are.

    weights : (M,). risk : mean loss. gap : the certificate. n_iter : Newton steps, all starts.
    target : the gap asked for, or the rounding error of the gap where that is larger.
    """

    weights: Float64
    risk: float
    gap: float
    target: float
    n_iter: int


@dataclass(frozen=True)
class Tolerance:
    """How small a gap must be: a part of the risk of equal weights.

    The search itself goes on until the gap is that part of the risk *reached*, for a pool with
    one awful candidate has a risk of equal weights by which nothing else should be measured.
    """

    part: float
    equal_risk: float
    max_iter: int

    @property
    def target(self) -> float:
        """The gap that is asked for."""
        return self.part * abs(self.equal_risk)

    def aim(self, risk: float) -> float:
        """The gap at which a search with this risk may end."""
        return self.part * min(abs(self.equal_risk), abs(risk))


def minimise(problem: Problem, *, tol: float, max_iter: int) -> Solution:
    """Minimise a mean loss over the simplex.

    tol : gap asked for, as a part of the risk of equal weights. max_iter : Newton steps a start.
    """
    if problem.loss.derivative is squared_error().derivative:
        solution = _minimise_squares(problem, tol)
        if solution is not None:
            return solution
    equal_risk = _finite(problem.risk(problem.blocks.mixture(problem.equal_weights)), problem.loss)
    tolerance = Tolerance(tol, equal_risk, max_iter)
    if len(problem.equal_weights) == 1:
        return Solution(problem.equal_weights, equal_risk, 0.0, tolerance.target, 0)
    if not problem.loss.smooth:
        return _minimise_kinked(problem, tolerance)
    if not problem.loss.convex:
        return _minimise_not_convex(problem, tolerance)
    return _minimise_smooth(problem, tolerance)


def _minimise_squares(problem: Problem, tol: float) -> Solution | None:
    """One Gram matrix and one quadratic; None if its rounding leaves the certificate in doubt."""
    gram = problem.blocks.gram(problem.share, problem.y)
    equal = problem.equal_weights
    target = tol * _finite(float(equal @ gram @ equal), problem.loss)
    weights = minimise_quadratic(2.0 * gram, np.zeros(len(gram)), equal)
    products = gram @ weights
    risk = float(weights @ products)
    gaps = 2.0 * (risk - products)
    size = np.sqrt(np.diagonal(gram))
    doubt = 16.0 * _EPS * size * float(weights @ size)
    if (gaps + doubt).max() > target:
        return None
    return Solution(weights, risk, max(0.0, float(gaps.max())), target, 1)


def _minimise_smooth(problem: Problem, tolerance: Tolerance) -> Solution:
    """Newton's method; windows first, where a convex loss bends too sharply for it."""
    first = replace(tolerance, max_iter=min(_PATIENCE, tolerance.max_iter))
    solution = _newton(problem, problem.equal_weights, first)
    exhausted = solution.n_iter == first.max_iter and solution.gap > tolerance.aim(solution.risk)
    if solution.gap <= solution.target and not exhausted:
        return solution
    near = _minimise_kinked(problem, tolerance)
    again = _newton(problem, near.weights, tolerance)
    best = min((solution, near, again), key=lambda each: each.gap)
    return replace(best, n_iter=solution.n_iter + near.n_iter + again.n_iter)


def _minimise_not_convex(problem: Problem, tolerance: Tolerance) -> Solution:
    """Newton's method from equal weights and from each of the best candidates; the best result."""
    solutions = [
        _newton(problem, start, tolerance)
        for start in (problem.equal_weights, *_best_candidates(problem))
    ]
    best = solutions[0]
    for solution in solutions[1:]:
        if solution.risk < best.risk - tolerance.aim(best.risk):
            best = solution
    return replace(best, n_iter=sum(solution.n_iter for solution in solutions))


def _best_candidates(problem: Problem) -> list[Float64]:
    """All weight on one of the best candidates, each in turn."""
    risks = problem.blocks.risks(problem.loss.value, problem.y, problem.share)
    best = np.argsort(risks, kind="stable")[:_SINGLE_STARTS]
    return [(np.arange(len(risks)) == m).astype(np.float64) for m in best]


def _minimise_kinked(problem: Problem, tolerance: Tolerance) -> Solution:
    """Newton's method on a windowed loss; windows narrow as soon as they are what matters most.

    The lines that support the loss of each row bound every risk from below, and their mean is
    smallest at a single candidate. So the gap is the shortfall of the lines plus that of the
    weights.
    """
    equal = problem.equal_weights
    width = mean_distance(problem.y, problem.blocks.mixture(equal), problem.share)
    narrowest = _EPS * width
    criterion = WindowedCriterion(problem.loss, problem.y, problem.share, width)
    point = _point(problem, criterion, equal)
    best, best_shortfall = (criterion, point), np.inf
    n_iter = 0
    while True:
        shortfall, aim = criterion.shortfall(point.mixture), tolerance.aim(point.risk)
        if point.gap + shortfall < best[1].gap + best_shortfall:
            best, best_shortfall = (criterion, point), shortfall
        finished = point.gap + shortfall <= aim or criterion.width <= narrowest
        if finished or n_iter == tolerance.max_iter:
            break
        n_iter += 1
        following = None
        if point.gap > max(0.5 * shortfall, 0.25 * aim):
            following = _newton_step(problem, criterion, point)
        if following is None:
            criterion = _narrower(criterion, point, shortfall, aim)
            following = _point(problem, criterion, point.weights, point.mixture)
        point = following
    return _solution(problem, *best, tolerance, n_iter, best_shortfall)


def _narrower(
    criterion: WindowedCriterion, point: _Point, shortfall: float, aim: float
) -> WindowedCriterion:
    """Windows narrow enough for half the gap asked for, but not much narrower at once."""
    part = float(np.clip(np.sqrt(0.5 * aim / shortfall), 0.2, 0.5)) if shortfall > 0.0 else 0.5
    scale = mean_distance(criterion.y, point.mixture, criterion.share)
    return replace(criterion, width=min(part * criterion.width, scale))


def _finite(risk: float, loss: Loss) -> float:
    if not np.isfinite(risk):
        raise InvalidInputError(
            f"The mean loss {loss.name!r} of equal weights must be finite; it is {risk}. Look "
            "for predictions or targets that are not finite, or so large that the loss overflows."
        )
    return risk


# Newton's method on the simplex.


@dataclass(frozen=True)
class _Point:
    """Where Newton's method stands.

    weights, gradient : (M,), the gradient shifted so that its mean under the weights is zero.
    mixture : (n, K). risk : the mean loss.
    """

    weights: Float64
    mixture: Float64
    gradient: Float64
    risk: float

    @property
    def gap(self) -> float:
        """``max_m <gradient, w - e_m>``."""
        return max(0.0, float(self.weights @ self.gradient - self.gradient.min()))


def _point(
    problem: Problem, criterion: Criterion, weights: Float64, mixture: Float64 | None = None
) -> _Point:
    if mixture is None:
        mixture = problem.blocks.mixture(weights)
    gradient = problem.blocks.moments(criterion.slope(mixture), mixture)
    return _Point(weights, mixture, gradient, problem.risk(mixture))


def _newton(problem: Problem, start: Float64, tolerance: Tolerance) -> Solution:
    """Step until the gap is far below its aim, or falls no more for all that rounding shows."""
    criterion = SmoothCriterion(problem.loss, problem.y, problem.share)
    point = _point(problem, criterion, start)
    n_iter = standstill = 0
    while point.gap > _BEYOND * tolerance.aim(point.risk) and n_iter < tolerance.max_iter:
        following = _newton_step(problem, criterion, point)
        if following is None:
            break
        n_iter += 1
        fallen = point.risk - following.risk > 4.0 * _EPS * abs(point.risk)
        standstill = 0 if fallen or following.gap < point.gap else standstill + 1
        if standstill > (0 if point.gap <= tolerance.aim(point.risk) else _STANDSTILL):
            break
        point = following
    return _solution(problem, criterion, point, tolerance, n_iter)


def _solution(
    problem: Problem,
    criterion: Criterion,
    point: _Point,
    tolerance: Tolerance,
    n_iter: int,
    shortfall: float = 0.0,
) -> Solution:
    gap, target = point.gap + shortfall, tolerance.target
    if gap > target:
        # Less than what a change in the last digits of the mixture makes cannot be asked for; they
        # are those of its terms, which may cancel.
        terms = problem.blocks.mixture(point.weights, absolute=True)
        mixture = point.mixture + 4.0 * _EPS * terms
        shaken = _point(problem, criterion, point.weights, mixture)
        target = max(target, abs(shaken.gap - point.gap), abs(shaken.risk - point.risk))
    return Solution(point.weights, point.risk, gap, target, n_iter)


def _newton_step(problem: Problem, criterion: Criterion, point: _Point) -> _Point | None:
    """Minimise the second-order model over the simplex and go there; None if that leads nowhere.

    The model covers candidates that have weight or would gain from it; the others wait.
    """
    columns = np.flatnonzero((point.weights > 0.0) | (point.gradient < 0.0))
    hessian = _convex_hessian(problem.blocks, criterion, point.mixture, columns)
    hessian += least_curvature(hessian)  # no other minimiser, but regular along the weights
    start, weights = point.weights[columns], np.zeros_like(point.weights)
    linear = point.gradient[columns] - hessian @ start
    weights[columns] = minimise_quadratic(hessian, linear, start)
    slope = float(point.gradient @ (weights - point.weights))
    if slope >= 0.0:
        return None
    mixture = problem.blocks.mixture(weights)
    length = _step_length(criterion, point.mixture, mixture - point.mixture, slope)
    if length == 1.0:
        return _point(problem, criterion, weights, mixture)
    if length == 0.0:
        return None
    between = (1.0 - length) * point.weights + length * weights
    return _point(problem, criterion, between / between.sum())


def _step_length(criterion: Criterion, mixture: Float64, move: Float64, slope: float) -> float:
    """First of ever shorter steps that descends; 0 if none does."""
    length = 1.0
    for _ in range(_MAX_BACKTRACKS):
        if criterion.descends(mixture, length * move, length * slope):
            return length
        end_slope = float(np.vdot(criterion.slope(mixture + length * move), move))
        # Where the slope would vanish if it were linear in the length, within reason.
        length *= float(np.clip(slope / (slope - end_slope), 0.1, 0.9)) if end_slope > 0 else 0.5
    return 0.0


def _convex_hessian(
    blocks: RowBlocks, criterion: Criterion, mixture: Float64, columns: NDArray[np.intp]
) -> Float64:
    """Hessian ``sum_ik curvature_ik (P_ia - mu_i)(P_ib - mu_i)``, less what is not convex in it."""
    curvature = criterion.curvature(mixture)
    upward = blocks.gram(np.maximum(curvature, 0.0), mixture, columns)
    if criterion.convex or not (curvature < 0.0).any():
        return upward
    downward = blocks.gram(np.maximum(-curvature, 0.0), mixture, columns)
    ridge = 1e-9 * np.diag(np.diagonal(upward))
    for part in (1.0, 0.75, 0.5, 0.25):
        hessian = upward - part * downward + ridge
        if lapack.dpotrf(hessian)[1] == 0:
            return hessian
    return upward
