"""Common measures of prediction, each with its standard error.

A standard error comes from the rows: that of the mean of a row's influence on the measure; see
`localma.evidence.mean_and_error`, which takes the groups that rows belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localma.evidence import mean_and_error
from localma.inspection.record import Record
from localma.losses import cross_entropy

Array = NDArray[np.floating]
Groups = NDArray[np.intp] | None
Measure = Callable[..., tuple[float, float]]
"""(y, mixture, sample_weight, groups=groups) -> a value and its standard error."""


@dataclass(frozen=True)
class Measured(Record):
    """A mean over rows and its standard error; None if it does not exist."""

    value: float | None
    standard_error: float | None

    @classmethod
    def of(cls, pair: tuple[float, float]) -> Self:
        """From a value and its standard error."""
        return cls(*pair)


@dataclass(frozen=True)
class Difference(Measured):
    """A difference of two mean losses.

    is_clear : whether it is more than two standard errors and more than 0.1 % of the loss.
    """

    is_clear: bool


def rmse(
    y: Array, mixture: Array, sample_weight: Array, groups: Groups = None
) -> tuple[float, float]:
    """``sqrt(mean (y - f)^2)`` over rows and outputs, and its standard error: (n, K) each.

    >>> rmse(np.array([[0.0], [0.0]]), np.array([[3.0], [3.0]]), np.ones(2))
    (3.0, 0.0)
    """
    mean, error = mean_and_error(((y - mixture) ** 2).mean(axis=1), sample_weight, groups=groups)
    root = float(np.sqrt(mean))
    return root, error / (2 * root) if root > 0 else 0.0


def mae(
    y: Array, mixture: Array, sample_weight: Array, groups: Groups = None
) -> tuple[float, float]:
    """``mean |y - f|`` over rows and outputs, and its standard error: (n, K) each."""
    return mean_and_error(np.abs(y - mixture).mean(axis=1), sample_weight, groups=groups)


def r2(
    y: Array, mixture: Array, sample_weight: Array, groups: Groups = None
) -> tuple[float, float]:
    """``1 - mean (y - f)^2 / var(y)``, the mean over outputs: (n, K) each; NaN for constant y."""
    share = sample_weight / sample_weight.sum()
    spread = (y - share @ y) ** 2
    variance = share @ spread
    if not (variance > 0).all():
        return float("nan"), float("nan")
    misses = (y - mixture) ** 2
    unexplained = share @ misses / variance
    influence = (unexplained * spread - misses) / variance
    _, error = mean_and_error(influence.mean(axis=1), sample_weight, groups=groups)
    return float(1 - unexplained.mean()), error


def accuracy(
    observed: Array, p: Array, sample_weight: Array, groups: Groups = None
) -> tuple[float, float]:
    """Share of rows whose most probable class is the observed one: one-hot and p, (n, K) each."""
    hits = observed.argmax(axis=1) == p.argmax(axis=1)
    return mean_and_error(hits.astype(np.float64), sample_weight, groups=groups)


def log_loss(
    observed: Array, p: Array, sample_weight: Array, groups: Groups = None
) -> tuple[float, float]:
    """``mean -log p`` of the observed class: one-hot and p, (n, K) each; finite for p = 0 too."""
    of_observed = (observed * p).sum(axis=1)
    return mean_and_error(
        cross_entropy().value(np.ones_like(of_observed), of_observed), sample_weight, groups=groups
    )


def brier(
    observed: Array, p: Array, sample_weight: Array, groups: Groups = None
) -> tuple[float, float]:
    """Mean squared difference of indicator and probability over rows and classes."""
    return mean_and_error(((observed - p) ** 2).mean(axis=1), sample_weight, groups=groups)


REGRESSION: dict[str, Measure] = {"rmse": rmse, "mae": mae, "r2": r2}
CLASSIFICATION: dict[str, Measure] = {"accuracy": accuracy, "log_loss": log_loss, "brier": brier}
