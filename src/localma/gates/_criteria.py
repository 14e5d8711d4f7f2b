"""What Newton's method sees of a loss: its slope, its curvature, and whether a step descends.

A smooth loss is seen as it is. One with kinks has no curvature to see, so its mean over
a window around each prediction stands in for it, and the narrower the window, the closer
the two. All that is taken from a loss is its value and its derivative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localma.losses import Interval, Loss

Float64 = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_DIFFERENCE = 1e-7  # step of a difference quotient, as a part of the scale of errors
_ARMIJO = 1e-4  # least part of the promised decrease that a step must bring
_OVERSHOOT = 0.1  # slope at the end of a step, at most this part of the slope at its start
_HIDDEN = 1e-6  # part of a mean that a loss may lose to cancellation
_TAIL = ((1.0, 1.0), (4.0, 4.0**-2), (16.0, 16.0**-2), (64.0, 64.0**-2))


class Criterion(Protocol):
    """A function of the mixture (n, K), the mean over rows of something elementwise."""

    @property
    def convex(self) -> bool:
        """Whether no curvature is negative."""

    def slope(self, mixture: Float64) -> Float64:
        """Derivative by each prediction, times the share of its row: (n, K) -> (n, K)."""

    def curvature(self, mixture: Float64) -> Float64:
        """Second derivative by each prediction, times the share of its row: (n, K) -> (n, K)."""

    def descends(self, mixture: Float64, move: Float64, slope: float) -> bool:
        """Say whether the move (n, K), of the given slope at its start, descends enough."""


@dataclass(frozen=True)
class SmoothCriterion:
    """The mean of a smooth loss: ``sum_ik share_ik loss(y_ik, mu_ik)``.

    y, share : (n, K).
    """

    loss: Loss
    y: Float64
    share: Float64

    @property
    def convex(self) -> bool:
        """Whether no curvature is negative."""
        return self.loss.convex

    def slope(self, mixture: Float64) -> Float64:
        """Derivative of the loss, times the share."""
        return self.share * self.loss.derivative(self.y, mixture)

    def curvature(self, mixture: Float64) -> Float64:
        """Difference quotient of the derivative, times the share."""
        scale = mean_distance(self.y, mixture, self.share)
        low, high = _window(self.loss.prediction, mixture, _DIFFERENCE * scale, 1e-4)
        rise = self.loss.derivative(self.y, high) - self.loss.derivative(self.y, low)
        return self.share * rise / (high - low)

    def descends(self, mixture: Float64, move: Float64, slope: float) -> bool:
        """Armijo's rule; or its like for slopes, where rounding hides the decrease of the mean."""
        before, after = self._mean(mixture), self._mean(mixture + move)
        if after <= before + _ARMIJO * slope:
            return True
        end_slope = abs(float(np.vdot(self.slope(mixture + move), move)))
        return end_slope <= _OVERSHOOT * abs(slope) and after <= before + _HIDDEN * abs(before)

    def _mean(self, mixture: Float64) -> float:
        return float(np.vdot(self.share, self.loss.value(self.y, mixture)))


@dataclass(frozen=True)
class WindowedCriterion:
    """The mean of a loss over windows around each prediction, and over rows.

    The mean of a loss over ``[a, b]`` has the slope ``(loss(b) - loss(a)) / (b - a)`` and the
    curvature ``(loss'(b) - loss'(a)) / (b - a)``. Windows of a few widths are averaged, with
    weights that fall with their square: the wide ones add little to the loss, but show
    Newton's method the kinks that lie beyond the narrow one.

    y, share : (n, K). width : half the width of the narrowest window.
    """

    loss: Loss
    y: Float64
    share: Float64
    width: float

    convex = True

    def slope(self, mixture: Float64) -> Float64:
        """Slope of the windowed loss, times the share."""
        total = np.zeros_like(mixture)
        for low, high, part in self._windows(mixture):
            rise = self.loss.value(self.y, high) - self.loss.value(self.y, low)
            total += part * rise / (high - low)
        return self.share * total

    def curvature(self, mixture: Float64) -> Float64:
        """Curvature of the windowed loss, times the share."""
        total = np.zeros_like(mixture)
        for low, high, part in self._windows(mixture):
            rise = self.loss.derivative(self.y, high) - self.loss.derivative(self.y, low)
            total += part * rise / (high - low)
        return self.share * total

    def descends(self, mixture: Float64, move: Float64, slope: float) -> bool:
        """The slope along the move must not have turned upwards by much at its end."""
        return bool(np.vdot(self.slope(mixture + move), move) <= _OVERSHOOT * abs(slope))

    def shortfall(self, mixture: Float64) -> float:
        """Mean distance of the loss from lines that support it from below and have our slopes.

        Of each window ``[a, b]`` the tangents at both ends support a convex loss; so does the
        combination of the two whose slope is that of the window.
        """
        total = np.zeros_like(mixture)
        for low, high, part in self._windows(mixture):
            total += part * self._supporting_line(mixture, low, high)
        return max(0.0, float(np.vdot(self.share, self.loss.value(self.y, mixture) - total)))

    def _supporting_line(self, mixture: Float64, low: Float64, high: Float64) -> Float64:
        value_low, value_high = self.loss.value(self.y, low), self.loss.value(self.y, high)
        slope_low, slope_high = (
            self.loss.derivative(self.y, low),
            self.loss.derivative(self.y, high),
        )
        turn = slope_high - slope_low
        rest = slope_high - (value_high - value_low) / (high - low)
        at_low = np.clip(np.divide(rest, turn, out=np.full_like(rest, 0.5), where=turn > 0), 0, 1)
        tangent_low = value_low + slope_low * (mixture - low)
        tangent_high = value_high + slope_high * (mixture - high)
        return at_low * tangent_low + (1.0 - at_low) * tangent_high

    def _windows(self, mixture: Float64) -> list[tuple[Float64, Float64, float]]:
        total = sum(part for _, part in _TAIL)
        return [
            (*_window(self.loss.prediction, mixture, multiple * self.width, 0.5), part / total)
            for multiple, part in _TAIL
        ]


def mean_distance(y: Float64, mixture: Float64, share: Float64) -> float:
    """Mean distance of predictions from targets, the scale of errors; one if it is zero."""
    return float(np.vdot(share, np.abs(y - mixture))) or 1.0


def _window(
    domain: Interval, centre: Float64, half_width: float, part: float
) -> tuple[Float64, Float64]:
    """Ends of a window around each prediction, at most a part of the way to the domain's ends."""
    # Never so narrow that both ends round to one number.
    least = 4.0 * _EPS * np.abs(centre)
    if np.isinf(domain.low) and np.isinf(domain.high):
        return centre - half_width, centre + np.maximum(half_width, least)
    below = np.maximum(centre - domain.low, 0.0)
    above = np.maximum(domain.high - centre, 0.0)
    # On an end of the domain the window opens to the other side alone.
    room = np.where((below > 0.0) & (above > 0.0), np.minimum(below, above), below + above)
    half = np.minimum(half_width, part * room)
    return centre - np.minimum(half, below), centre + np.maximum(np.minimum(half, above), least)
