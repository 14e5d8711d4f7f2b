"""Newton's method for the mean loss over the simplex, with a certificate.

Squared errors need one pass over the predictions. Since weights sum to one, the risk is ``w'Gw``,
where ``G`` is the Gram matrix of the candidates' errors. All other losses are minimised by Newton's
method: the quadratic solver is applied to the second-order model of the risk at each point, and a
line search follows that does not read the predictions again. A loss with kinks is replaced by its
mean over windows, which narrow until the certificate holds. A loss that is not convex is minimised
from several starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from localma._types import Array, Float64, Integers
from localma.errors import InvalidInputError
from localma.gates.simplex.quadratic import least_curvature, minimise_quadratic
from localma.gates.simplex.row_blocks import RowBlocks
from localma.losses import Interval, Loss, squared_error

_EPS = float(np.finfo(np.float64).eps)
_BEYOND = 1e-5  # one more Newton step costs little and settles many digits of the weights
_PATIENCE = 12  # Newton steps after which a convex loss is treated as one with kinks
_STANDSTILL = 5  # Newton steps that lower neither risk nor gap before a search ends
_SINGLE_STARTS = 4  # candidates from which a loss that is not convex is minimised as well
_MAX_BACKTRACKS = 40
_DIFFERENCE = 1e-7  # step of a difference quotient, relative to the scale of errors
_ARMIJO = 1e-4  # least share of the predicted decrease that a step must achieve
_OVERSHOOT = 0.1  # largest slope at the end of a step, relative to the slope at its start
_HIDDEN = 1e-6  # share of a mean loss that cancellation may hide
_TAIL = ((1.0, 1.0), (4.0, 4.0**-2), (16.0, 16.0**-2), (64.0, 64.0**-2))


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

    @property
    def convex(self) -> bool:
        """Whether no curvature is negative."""
        return self.loss.convex

    def risk(self, mixture: Float64) -> float:
        """Mean loss of a mixture (n, K)."""
        return float(np.vdot(self.share, self.loss.value(self.y, mixture)))

    def slope(self, mixture: Float64) -> Float64:
        """Derivative by each prediction, times the share of its row: (n, K) -> (n, K)."""
        return self.share * self.loss.derivative(self.y, mixture)

    def curvature(self, mixture: Float64) -> Float64:
        """Difference quotient of the derivative, times the share: (n, K) -> (n, K)."""
        scale = mean_distance(self.y, mixture, self.share)
        low, high = _window(self.loss.prediction, mixture, _DIFFERENCE * scale, 1e-4)
        rise = self.loss.derivative(self.y, high) - self.loss.derivative(self.y, low)
        return self.share * rise / (high - low)

    def descends(self, mixture: Float64, move: Float64, slope: float) -> bool:
        """Whether the move (n, K), with the given slope at its start, descends enough.

        This is Armijo's rule. If rounding hides the decrease of the mean, slopes are compared.
        """
        before, after = self.risk(mixture), self.risk(mixture + move)
        if after <= before + _ARMIJO * slope:
            return True
        end_slope = abs(float(np.vdot(self.slope(mixture + move), move)))
        return end_slope <= _OVERSHOOT * abs(slope) and after <= before + _HIDDEN * abs(before)


@dataclass(frozen=True)
class Solution:
    """Weights on the simplex and how good they are.

    weights : (M,). risk : mean loss. gap : the certificate. n_iter : Newton steps, all starts.
    target : the largest accepted gap, or the rounding error of the gap if that is larger.
    """

    weights: Float64
    risk: float
    gap: float
    target: float
    n_iter: int


@dataclass(frozen=True)
class Tolerance:
    """The largest accepted gap, relative to the risk of equal weights.

    The search itself continues until the gap is small relative to the risk *reached*, since one
    very poor candidate makes the risk of equal weights useless as a scale.
    """

    relative: float
    equal_risk: float
    max_iter: int

    @property
    def target(self) -> float:
        """The largest accepted gap."""
        return self.relative * abs(self.equal_risk)

    def aim(self, risk: float) -> float:
        """The gap at which a search with this risk may end."""
        return self.relative * min(abs(self.equal_risk), abs(risk))


def minimise(problem: Problem, *, tol: float, max_iter: int) -> Solution:
    """Minimise a mean loss over the simplex.

    tol : largest accepted gap, relative to the risk of equal weights.
    max_iter : Newton steps from each start.
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


_VANISHING = 1e-290
"""Squared errors below this have lost digits, and count as zero."""


def _minimise_squares(problem: Problem, tol: float) -> Solution | None:
    """Solve one quadratic; None if rounding of its Gram matrix makes the certificate unsafe."""
    gram = problem.blocks.gram(problem.share, problem.y)
    gram[np.abs(gram) < _VANISHING] = 0.0
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
    """Use Newton's method; first with windows if a convex loss bends too sharply for it."""
    short = replace(tolerance, max_iter=min(_PATIENCE, tolerance.max_iter))
    solution = _newton(problem, problem.equal_weights, short)
    exhausted = solution.n_iter == short.max_iter and solution.gap > tolerance.aim(solution.risk)
    if solution.gap <= solution.target and not exhausted:
        return solution
    windowed = _minimise_kinked(problem, tolerance)
    polished = _newton(problem, windowed.weights, tolerance)
    best = min((solution, windowed, polished), key=lambda each: each.gap)
    return replace(best, n_iter=solution.n_iter + windowed.n_iter + polished.n_iter)


def _minimise_not_convex(problem: Problem, tolerance: Tolerance) -> Solution:
    """Best of Newton's method from equal weights and from each of the best candidates."""
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
    """Starts with all weight on one candidate, for each of the best candidates."""
    risks = problem.blocks.risks(problem.loss.value, problem.y, problem.share)
    best = np.argsort(risks, kind="stable")[:_SINGLE_STARTS]
    return [(np.arange(len(risks)) == m).astype(np.float64) for m in best]


def _minimise_kinked(problem: Problem, tolerance: Tolerance) -> Solution:
    """Newton's method on a windowed loss; windows narrow as soon as they limit the gap.

    The lines that support the loss of each row bound every risk from below. Their mean is
    smallest at a single candidate. So the gap is the shortfall of the lines plus that of the
    weights.
    """
    equal = problem.equal_weights
    width = mean_distance(problem.y, problem.blocks.mixture(equal), problem.share)
    narrowest = _EPS * width
    windowed = WindowedProblem(**vars(problem), width=width)
    point = _point(windowed, equal)
    best, best_shortfall = (windowed, point), np.inf
    n_iter = 0
    while True:
        shortfall, aim = windowed.shortfall(point.mixture), tolerance.aim(point.risk)
        if point.gap + shortfall < best[1].gap + best_shortfall:
            best, best_shortfall = (windowed, point), shortfall
        finished = point.gap + shortfall <= aim or windowed.width <= narrowest
        if finished or n_iter == tolerance.max_iter:
            break
        n_iter += 1
        following = None
        if point.gap > max(0.5 * shortfall, 0.25 * aim):
            following = _newton_step(windowed, point)
        if following is None:
            windowed = _narrower(windowed, point, shortfall, aim)
            following = _point(windowed, point.weights, point.mixture)
        point = following
    return _solution(*best, tolerance, n_iter, best_shortfall)


def _narrower(
    problem: WindowedProblem, point: _Point, shortfall: float, aim: float
) -> WindowedProblem:
    """Narrow the windows for half of the accepted gap, but to no less than a fifth at once."""
    factor = 0.5
    if shortfall > 0.0:
        factor = float(np.clip(np.sqrt(0.5 * aim / shortfall), 0.2, 0.5))
    scale = mean_distance(problem.y, point.mixture, problem.share)
    return replace(problem, width=min(factor * problem.width, scale))


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
    """A point of Newton's method.

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


def _point(problem: Problem, weights: Float64, mixture: Float64 | None = None) -> _Point:
    if mixture is None:
        mixture = problem.blocks.mixture(weights)
    gradient = problem.blocks.moments(problem.slope(mixture), mixture)
    return _Point(weights, mixture, gradient, problem.risk(mixture))


def _newton(problem: Problem, start: Float64, tolerance: Tolerance) -> Solution:
    """Step until the gap is far below its aim, or rounding errors stop it from falling."""
    point = _point(problem, start)
    n_iter = standstill = 0
    while point.gap > _BEYOND * tolerance.aim(point.risk) and n_iter < tolerance.max_iter:
        following = _newton_step(problem, point)
        if following is None:
            break
        n_iter += 1
        fallen = point.risk - following.risk > 4.0 * _EPS * abs(point.risk)
        standstill += 1
        if fallen or following.gap < point.gap:
            standstill = 0
        if standstill > _STANDSTILL * (point.gap > tolerance.aim(point.risk)):
            break
        point = following
    return _solution(problem, point, tolerance, n_iter)


def _solution(
    problem: Problem, point: _Point, tolerance: Tolerance, n_iter: int, shortfall: float = 0.0
) -> Solution:
    gap, target = point.gap + shortfall, tolerance.target
    if gap > target:
        # No gap can be smaller than the effect of rounding the mixture, whose terms may cancel.
        terms = problem.blocks.mixture(point.weights, absolute=True)
        mixture = point.mixture + 4.0 * _EPS * terms
        shaken = _point(problem, point.weights, mixture)
        target = max(target, abs(shaken.gap - point.gap), abs(shaken.risk - point.risk))
    return Solution(point.weights, point.risk, gap, target, n_iter)


def _newton_step(problem: Problem, point: _Point) -> _Point | None:
    """Minimise the second-order model over the simplex and go there; None without progress.

    The model covers the candidates that have weight or whose weight should grow.
    """
    columns = np.flatnonzero((point.weights > 0.0) | (point.gradient < 0.0))
    hessian = _convex_hessian(problem, point.mixture, columns)
    hessian += least_curvature(hessian)  # same minimiser, but regular along the weights
    start, weights = point.weights[columns], np.zeros_like(point.weights)
    linear = point.gradient[columns] - hessian @ start
    weights[columns] = minimise_quadratic(hessian, linear, start)
    slope = float(point.gradient @ (weights - point.weights))
    if slope >= 0.0:
        return None
    mixture = problem.blocks.mixture(weights)
    length = _step_length(problem, point.mixture, mixture - point.mixture, slope)
    if length == 1.0:
        return _point(problem, weights, mixture)
    if length == 0.0:
        return None
    between = (1.0 - length) * point.weights + length * weights
    return _point(problem, between / between.sum())


def _step_length(problem: Problem, mixture: Float64, move: Float64, slope: float) -> float:
    """Shorten the step until it descends; 0 if it never does."""
    length = 1.0
    for _ in range(_MAX_BACKTRACKS):
        if problem.descends(mixture, length * move, length * slope):
            return length
        end_slope = float(np.vdot(problem.slope(mixture + length * move), move))
        factor = 0.5
        if end_slope > 0:  # the slope vanishes there if it is linear in the length
            factor = float(np.clip(slope / (slope - end_slope), 0.1, 0.9))
        length *= factor
    return 0.0


def _convex_hessian(problem: Problem, mixture: Float64, columns: Integers) -> Float64:
    """Convex part of the Hessian ``sum_ik curvature_ik (P_ia - mu_i)(P_ib - mu_i)``."""
    curvature, blocks = problem.curvature(mixture), problem.blocks
    upward = blocks.gram(np.maximum(curvature, 0.0), mixture, columns)
    if problem.convex or not (curvature < 0.0).any():
        return upward
    downward = blocks.gram(np.maximum(-curvature, 0.0), mixture, columns)
    ridge = 1e-9 * np.diag(np.diagonal(upward))
    for share in (1.0, 0.75, 0.5, 0.25):
        hessian = upward - share * downward + ridge
        if lapack.dpotrf(hessian)[1] == 0:
            return hessian
    return upward


# Losses with kinks.


@dataclass(frozen=True)
class WindowedProblem(Problem):
    """The same mean, but slope and curvature are those of the loss averaged over windows.

    The mean of a loss over ``[a, b]`` has the slope ``(loss(b) - loss(a)) / (b - a)`` and the
    curvature ``(loss'(b) - loss'(a)) / (b - a)``. Windows of four widths are averaged, with
    weights that fall with the square of the width. The wide windows add little to the loss, but
    show Newton's method the kinks beyond the narrow one.

    width : half the width of the narrowest window.
    """

    width: float

    @property
    def convex(self) -> bool:
        """Whether no curvature is negative: only convex losses have windows."""
        return True

    def slope(self, mixture: Float64) -> Float64:
        """Slope of the windowed loss, times the share."""
        return self._mean_rise(self.loss.value, mixture)

    def curvature(self, mixture: Float64) -> Float64:
        """Curvature of the windowed loss, times the share."""
        return self._mean_rise(self.loss.derivative, mixture)

    def _mean_rise(self, function: Callable[[Array, Array], Array], mixture: Float64) -> Float64:
        """Difference quotient over each window, averaged over windows, times the share."""
        total = np.zeros_like(mixture)
        for low, high, share in self._windows(mixture):
            total += share * (function(self.y, high) - function(self.y, low)) / (high - low)
        return self.share * total

    def descends(self, mixture: Float64, move: Float64, slope: float) -> bool:
        """Whether the slope at the end of the move is at most slightly upwards."""
        return bool(np.vdot(self.slope(mixture + move), move) <= _OVERSHOOT * abs(slope))

    def shortfall(self, mixture: Float64) -> float:
        """Mean distance of the loss from supporting lines with the slopes of the windows.

        The tangents at both ends of a window ``[a, b]`` support a convex loss from below. So does
        the combination of the two with the slope of the window.
        """
        total = np.zeros_like(mixture)
        for low, high, share in self._windows(mixture):
            total += share * self._supporting_line(mixture, low, high)
        return max(0.0, float(np.vdot(self.share, self.loss.value(self.y, mixture) - total)))

    def _supporting_line(self, mixture: Float64, low: Float64, high: Float64) -> Float64:
        value_low, value_high = self.loss.value(self.y, low), self.loss.value(self.y, high)
        slope_low, slope_high = (self.loss.derivative(self.y, end) for end in (low, high))
        turn = slope_high - slope_low
        drop = slope_high - (value_high - value_low) / (high - low)
        at_low = np.clip(np.divide(drop, turn, out=np.full_like(drop, 0.5), where=turn > 0), 0, 1)
        tangent_low = value_low + slope_low * (mixture - low)
        tangent_high = value_high + slope_high * (mixture - high)
        return at_low * tangent_low + (1.0 - at_low) * tangent_high

    def _windows(self, mixture: Float64) -> list[tuple[Float64, Float64, float]]:
        total = sum(share for _, share in _TAIL)
        return [
            (*_window(self.loss.prediction, mixture, multiple * self.width, 0.5), share / total)
            for multiple, share in _TAIL
        ]


def mean_distance(y: Float64, mixture: Float64, share: Float64) -> float:
    """Mean distance of predictions from targets, the scale of errors; one if it is zero."""
    return float(np.vdot(share, np.abs(y - mixture))) or 1.0


def _window(
    domain: Interval, centre: Float64, half_width: float, share: float
) -> tuple[Float64, Float64]:
    """Ends of a window around each prediction, at most a share of the way to the domain's ends."""
    # So wide that the ends do not round to the same number.
    least = 4.0 * _EPS * np.abs(centre)
    if np.isinf(domain.low) and np.isinf(domain.high):
        return centre - half_width, centre + np.maximum(half_width, least)
    to_low = np.maximum(centre - domain.low, 0.0)
    to_high = np.maximum(domain.high - centre, 0.0)
    # At an end of the domain the window opens to one side only.
    room = np.where((to_low > 0.0) & (to_high > 0.0), np.minimum(to_low, to_high), to_low + to_high)
    half = np.minimum(half_width, share * room)
    return centre - np.minimum(half, to_low), centre + np.maximum(np.minimum(half, to_high), least)
