"""The best constant prediction of a loss, which a useful combination must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from localma.equations import row_losses
from localma.losses import Loss, is_registered

Array = NDArray[np.floating]
Rows = NDArray[np.intp]

LEARNING_ROWS = 100_000
"""At most this many rows, evenly spaced, determine a constant."""

SEARCH_ROWS = 2_000
SEARCH_POINTS = 65
"""Rows and starting points of the search for a loss whose minimiser has no formula."""


@dataclass(frozen=True)
class Baseline:
    """Constant predictions for a labelled sample: learnt from some rows, judged on others.

    Parameters
    ----------
    loss : Loss
    targets : (n, K), as the loss takes them
    sample_weight : (n,)
    labels : (n,) number of the class of each row; None for a regression
    n_classes : number of classes; 0 for a regression

    Examples
    --------
    >>> from localma.losses import absolute_error
    >>> y = np.array([[1.0], [2.0], [9.0]])
    >>> baseline = Baseline(absolute_error(), y, np.ones(3))
    >>> baseline.learn().tolist(), baseline.losses(baseline.learn()).tolist()
    ([2.0], [1.0, 0.0, 7.0])
    """

    loss: Loss
    targets: Array
    sample_weight: Array
    labels: Rows | None = None
    n_classes: int = 0

    @property
    def name(self) -> str:
        """What the constant is called in a sentence."""
        if self.labels is not None:
            return "the shares of the classes"
        names = {"mean": "the mean", "median": "the median"}
        known = is_registered(self.loss) and self.loss.elicits in names
        name = names[self.loss.elicits] if known else "the best constant"
        return name if self.targets.shape[1] == 1 else f"{name} of each output"

    @property
    def weighing_rows(self) -> Rows:
        """Rows of positive weight."""
        return np.flatnonzero(self.sample_weight > 0)

    def weights_of(self, rows: Rows) -> Array:
        """Weights of some rows: (rows,)."""
        return np.asarray(self.sample_weight[rows], dtype=np.float64)

    def take(self, rows: Rows) -> Baseline:
        """Constant predictions of some rows of the sample."""
        labels = None if self.labels is None else self.labels[rows]
        weight = self.sample_weight[rows]
        return Baseline(self.loss, self.targets[rows], weight, labels, self.n_classes)

    def learn(self, rows: Rows | None = None) -> Array:
        """Best constant on some rows: a number per output (K,), or the shares of the classes."""
        rows = self.weighing_rows if rows is None else rows[self.sample_weight[rows] > 0]
        rows = rows[:: max(1, -(-len(rows) // LEARNING_ROWS))]
        weight = self.weights_of(rows)
        if self.labels is not None:
            return _shares(self.labels[rows], weight, self.n_classes)
        columns = self.targets[rows].T
        return np.array([_best_constant(self.loss, column, weight) for column in columns])

    def predictions(self, constant: Array, rows: Rows | None = None) -> Array:
        """The constant as a prediction of each row, on the scale of the loss: (rows, K)."""
        chosen = slice(None) if rows is None else rows
        if self.labels is not None and self.loss.name == "cross_entropy":
            return constant[self.labels[chosen]][:, np.newaxis]
        targets = self.targets[chosen]
        return np.broadcast_to(constant, targets.shape)

    def losses(self, constant: Array, rows: Rows | None = None) -> Array:
        """Loss of each row if the prediction is the constant: (rows,)."""
        chosen = slice(None) if rows is None else rows
        return row_losses(self.loss, self.targets[chosen], self.predictions(constant, rows))


def _shares(labels: Rows, weight: Array, n_classes: int) -> Array:
    """Shares of the classes: (n_classes,). Half a row more of each, so that none is impossible."""
    counts = np.bincount(labels, weights=weight / weight.mean(), minlength=n_classes) + 0.5
    return counts / counts.sum()


def _best_constant(loss: Loss, y: Array, weight: Array) -> float:
    """Minimiser of the mean loss: the mean, a quantile, or what a search finds."""
    if not is_registered(loss) or loss.elicits not in ("mean", "median", "quantile"):
        return _searched(loss, y, weight)
    if loss.elicits == "mean":
        return float(np.average(y, weights=weight))
    return _weighted_quantile(y, weight, loss.parameters.get("quantile", 0.5))


def _weighted_quantile(y: Array, weight: Array, quantile: float) -> float:
    order = np.argsort(y)
    cumulated = np.cumsum(weight[order])
    place = np.searchsorted(cumulated, quantile * cumulated[-1])
    return float(y[order[min(int(place), len(y) - 1)]])


def _searched(loss: Loss, y: Array, weight: Array) -> float:
    """Best point of a grid of quantiles, refined between its neighbours; NaN if there is none."""
    every = -(-len(y) // SEARCH_ROWS)
    y, weight = y[::every], weight[::every]
    points = np.unique(np.append(np.quantile(y, np.linspace(0, 1, SEARCH_POINTS)), y.mean()))
    points = points[loss.prediction.contains(points)]
    if not len(points):
        return float("nan")

    def risk(constant: float) -> float:
        with np.errstate(all="ignore"):
            losses = loss.value(y, np.full_like(y, constant))
        return float(np.average(losses, weights=weight))

    best = int(np.argmin([risk(point) for point in points]))
    low, high = points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)]
    if low == high:
        return float(low)
    refined = minimize_scalar(risk, bounds=(low, high), method="bounded")
    return float(refined.x if refined.fun < risk(points[best]) else points[best])
