"""The scale on which own models add corrections: identity, log, logit or softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import expit, log_expit, logit, logsumexp

from localma._types import Array, Float64, Rows
from localma.losses import PROBABILITY, Interval, Loss

LinkName = Literal["identity", "log", "logit", "softmax"]
LINKS: tuple[LinkName, ...] = get_args(LinkName)

LEAST_PROBABILITY = 1e-3
"""Smaller probabilities of candidates count as this one, because their logits are infinite."""
LEAST_MEAN = 1e-2
"""Smaller predictions count as this share of the mean target, because a logarithm is infinite."""
LARGEST_SCORE = 700.0
"""Exponentials of larger numbers overflow."""

_STEP = 1e-4
"""Relative step of differences of derivatives."""
_LEAST_CURVATURE = 0.05
"""Curvature of a row is at least this share of the mean, for losses that are flat or not convex."""


@dataclass(frozen=True)
class Link:
    """A map from predictions to scores, to which corrections are added, and back.

    Parameters
    ----------
    name : {"identity", "log", "logit", "softmax"}
        The map. "softmax" takes the probabilities of K classes, all others act elementwise.
    floor : (K,) array
        Smallest prediction of each output that a logarithm takes.
    bounds : (2, K) array
        Smallest and largest prediction of each output.

    Examples
    --------
    >>> link = Link("log", np.array([0.1]), np.array([[0.0], [np.finfo(float).max]]))
    >>> link.means(link.scores(np.array([[2.0], [0.0]]))).round(6).tolist()
    [[2.0], [0.1]]
    """

    name: LinkName
    floor: Float64
    bounds: Float64

    @classmethod
    def of(cls, loss: Loss, y: Array, weight: Array, *, is_classification: bool) -> Link:
        """Choose the map by the predictions that a loss allows.

        loss : the loss; y : (n, K) targets; weight : (n,) weights of the rows.
        """
        K, limits = y.shape[1], _bounds(loss.prediction)
        bounds = np.repeat(limits[:, np.newaxis], K, axis=1)
        if is_classification and K > 1:
            return cls("softmax", np.full(K, LEAST_PROBABILITY), bounds)
        if is_classification or loss.prediction == PROBABILITY:
            return cls("logit", np.full(K, LEAST_PROBABILITY), bounds)
        if limits[0] >= 0.0 and loss.prediction.high == np.inf:
            mean = np.average(np.abs(y), axis=0, weights=weight)
            return cls("log", np.maximum(LEAST_MEAN * mean, np.finfo(np.float64).tiny), bounds)
        return cls("identity", np.zeros(K), bounds)

    def take(self, columns: Rows) -> Link:
        """Select outputs."""
        return Link(self.name, self.floor[columns], self.bounds[:, columns])

    def within(self, scores: Array, n: float) -> Link:
        """Bound predictions by what n rows with these scores (n, K) can support.

        A small sample may separate the classes, and an exponential function of the inputs grows
        fast beyond them. So each of C classes keeps a probability of ``1 / (C (n + 1))``, as if one
        more row were spread over all of them, and logarithmic links stay within the predictions
        for the sample.
        """
        if self.name == "identity":
            return self
        means = self.means(scores)
        bounds = np.stack([means.min(axis=0), means.max(axis=0)])
        if self.name != "log":
            least = 1.0 / (max(means.shape[1], 2) * (n + 1.0))
            bounds = np.broadcast_to(np.array([[least], [1.0 - least]]), bounds.shape)
        return Link(self.name, self.floor, np.ascontiguousarray(bounds))

    def scores(self, P: Array) -> Float64:
        """Map predictions (..., K) to scores of the same shape."""
        values: Float64 = np.asarray(P, dtype=np.float64)
        if self.name == "identity":
            return values
        floored = np.maximum(values, self.floor)
        if self.name == "logit":
            return np.asarray(logit(np.minimum(floored, 1.0 - self.floor)))
        return np.log(floored)

    def means(self, scores: Array) -> Float64:
        """Map scores (..., K) to predictions of the same shape."""
        values: Float64 = np.asarray(scores, dtype=np.float64)
        if self.name == "log":
            values = np.exp(np.clip(values, -LARGEST_SCORE, LARGEST_SCORE))
        elif self.name == "logit":
            values = np.asarray(expit(values))
        elif self.name == "softmax":
            values = np.exp(values - logsumexp(values, axis=-1, keepdims=True))
        values = np.clip(values, *self.bounds)
        if self.name == "softmax":
            values = values / values.sum(axis=-1, keepdims=True)
        return values


def _bounds(domain: Interval) -> Float64:
    """Smallest and largest finite number of an interval: (2,)."""
    limits = np.finfo(np.float64)
    low, high = np.clip([domain.low, domain.high], limits.min, limits.max)
    if not domain.low_closed and np.isfinite(domain.low):
        low = np.nextafter(low, np.inf) if low else limits.tiny
    if not domain.high_closed and np.isfinite(domain.high):
        high = np.nextafter(high, -np.inf) if high else -limits.tiny
    return np.array([low, high])


@dataclass(frozen=True)
class Objective:
    """What own models minimise, as a function of scores.

    It is the loss itself, except for probabilities. There it is the negative logarithm of the
    likelihood, which has the same minimiser as every proper loss and is convex in the scores. A
    loss with kinks is replaced by its mean over an interval around the prediction.

    Parameters
    ----------
    loss : the loss
    link : the map from scores to predictions
    width : half the length of that interval, one number for each of the K outputs
    """

    loss: Loss
    link: Link
    width: Float64

    @classmethod
    def of(cls, loss: Loss, link: Link, y: Array, scores: Array) -> Objective:
        """Choose the width from the spread of the errors.

        y : (n, K) targets; scores : (n, K) scores from which corrections start.
        """
        spread = np.zeros(y.shape[1])
        if link.name == "identity":
            errors = y - scores
            spread = np.median(np.abs(errors - np.median(errors, axis=0)), axis=0)
            spread = np.where(spread > 0, spread, np.abs(errors).mean(axis=0))
        return cls(loss, link, np.where(spread > 0, 0.5 * spread, 1.0))

    def take(self, columns: Rows) -> Objective:
        """Select outputs."""
        return Objective(self.loss, self.link.take(columns), self.width[columns])

    def values(self, y: Array, scores: Array) -> Float64:
        """Loss of each row: (n, K), (n, K) -> (n,)."""
        if self.link.name == "softmax":
            return np.asarray(logsumexp(scores, axis=1) - (y * scores).sum(axis=1))
        if self.link.name == "logit":
            return -(y * log_expit(scores) + (1.0 - y) * log_expit(-scores)).mean(axis=1)
        return self.loss.value(y, self.link.means(scores)).mean(axis=1)

    def derivatives(self, y: Array, scores: Array) -> tuple[Float64, Float64]:
        """First derivative and positive curvature in each score: (n, K), (n, K) -> two (n, K)."""
        mu = self.link.means(scores)
        if self.link.name in ("softmax", "logit"):
            return mu - y, np.maximum(mu * (1.0 - mu), 1e-6)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if self.link.name == "log":
                slope, curvature = self._on_log_scale(y, mu)
            else:
                slope, curvature = self._on_scale_of_target(y, mu)
        curvature = np.nan_to_num(curvature, nan=0.0, posinf=0.0)
        least = _LEAST_CURVATURE * np.maximum(curvature, 0.0).mean(axis=0)
        return np.nan_to_num(slope), np.maximum(curvature, np.where(least > 0, least, 1.0))

    def _on_log_scale(self, y: Array, mu: Array) -> tuple[Array, Array]:
        """Derivatives in log(mu); the curvature is the expected one, at ``y = mu``."""
        above, below = mu * (1.0 + _STEP), mu * (1.0 - _STEP)
        rise = self.loss.derivative(mu, above) - self.loss.derivative(mu, below)
        return self.loss.derivative(y, mu) * mu, rise * mu / (2.0 * _STEP)

    def _on_scale_of_target(self, y: Array, mu: Array) -> tuple[Array, Array]:
        """Derivatives in mu; those of the mean over an interval if the loss has kinks."""
        above, below = mu + self.width, mu - self.width
        rise = self.loss.derivative(y, above) - self.loss.derivative(y, below)
        curvature = rise / (2.0 * self.width)
        if self.loss.smooth:
            return self.loss.derivative(y, mu), curvature
        difference = self.loss.value(y, above) - self.loss.value(y, below)
        return difference / (2.0 * self.width), curvature
