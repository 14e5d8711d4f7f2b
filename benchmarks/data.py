"""Simulated data with candidates that are each right somewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localma.equations import local_average, row_losses, softmax
from localma.gates import Labelled
from localma.losses import Loss, cross_entropy, squared_error

Array = NDArray[np.floating]
NOISE = 0.5
_BLOCK = 100_000  # rows drawn together, so that drawing needs little memory


@dataclass(frozen=True)
class Sample:
    """Inputs X (n, p), predictions P (n, M, K) and targets y (n, K) of a gate."""

    X: Array
    P: Array
    y: Array
    loss: Loss

    def risk(self, weights: Array) -> float:
        """Mean loss of the average under weights (n, M)."""
        return float(row_losses(self.loss, self.y, local_average(weights, self.P)).mean())

    def labelled(self) -> Labelled:
        """The same sample as a `Labelled` record."""
        return Labelled.of(self.X, self.P, self.y, loss=self.loss)

    def head(self, n: int) -> Sample:
        return Sample(self.X[:n], self.P[:n], self.y[:n], self.loss)


@dataclass(frozen=True)
class Problem:
    """A labelled sample, and held-out rows."""

    train: Sample
    test: Sample


def candidate_functions(n_inputs: int, n_candidates: int) -> Array:
    """Coefficients of the candidates: ``f_m(x) = x b_m + 2 sin(x c_m)``; (2, p, M)."""
    rng = np.random.default_rng(n_candidates)
    return rng.normal(size=(2, n_inputs, n_candidates)) / np.sqrt(n_inputs)


def predict(coefficients: Array, X: Array) -> Array:
    """Predictions of the candidates: (n, p) -> (n, M)."""
    return X @ coefficients[0] + 2.0 * np.sin(X @ coefficients[1])


def regression(n: int, p: int, M: int, seed: int, n_test: int = 2000) -> Problem:
    """Draw y as a local average of the candidates with linear logits, plus noise."""
    return Problem(_regression(n, p, M, 2 * seed), _regression(n_test, p, M, 2 * seed + 1))


def _regression(n: int, p: int, M: int, seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    coefficients = candidate_functions(p, M)
    logits = 2.0 * np.random.default_rng(p).normal(size=(p, M)) / np.sqrt(p)
    X, P, y = np.empty((n, p)), np.empty((n, M, 1)), np.empty((n, 1))
    for first in range(0, n, _BLOCK):
        rows = slice(first, first + _BLOCK)
        X[rows] = rng.normal(size=X[rows].shape)
        P[rows, :, 0] = predict(coefficients, X[rows])
        mean = local_average(softmax(X[rows] @ logits), P[rows])
        y[rows] = mean + NOISE * rng.normal(size=mean.shape)
    return Sample(X, P, y, squared_error())


@dataclass(frozen=True)
class Labels:
    """A labelled sample of a classification: X (n, p), P (n, M, C) probabilities, y (n,) labels."""

    X: Array
    P: Array
    y: NDArray[np.intp]

    def observed(self) -> Sample:
        """The sample of a gate under cross-entropy: probabilities of the observed class."""
        P = np.take_along_axis(self.P, self.y[:, None, None], axis=2)
        return Sample(self.X, P, np.ones((len(self.y), 1)), cross_entropy())


def classification(n: int, p: int, M: int, n_classes: int, seed: int) -> Labels:
    """Draw labels from a local average of the candidates' probabilities."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(n_classes)
    X = rng.normal(size=(n, p))
    P = np.empty((n, M, n_classes))
    for m in range(M):
        P[:, m] = softmax(3.0 * X @ fixed.normal(size=(p, n_classes)) / np.sqrt(p))
    mean = local_average(softmax(2.0 * X @ fixed.normal(size=(p, M)) / np.sqrt(p)), P)
    drawn = (mean.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1)
    y = np.minimum(drawn, n_classes - 1)
    y[:n_classes] = np.arange(n_classes)[:n]  # every class occurs
    return Labels(X, P, y)
