"""The paper's simulated data: three candidates, true weights or none, standard normal inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localma.equations import local_average, softmax

Array = NDArray[np.floating]

N_INPUTS = 5


def candidates(X: Array) -> Array:
    """Regression functions of the three companies: (n, 5) -> (n, 3)."""
    x1, x2, x3, x4, x5 = X.T
    common = 3.0 * x1**2 + 2.0 * np.sin(x2)
    return np.stack(
        [
            common + 2.0 * x3 - x4 + 0.5 * x5,
            -2.0 * x1 + x2 - 1.5 * x3 + np.cos(x4) + 2.0 * x5**2,
            common - 2.0 * x3 + x4 * x5,
        ],
        axis=1,
    )


def s1_coefficients(n_candidates: int) -> Array:
    """Coefficients of the true logits in S1, the last candidate's zero: (5, M).

    ``theta_mj = (-1)^(m+j) sqrt(2 m) / j^2``
    """
    m, j = np.arange(1, n_candidates), np.arange(1, N_INPUTS + 1)[:, np.newaxis]
    theta = (-1.0) ** (m + j) * np.sqrt(2.0 * m) / j**2
    return np.hstack([theta, np.zeros((N_INPUTS, 1))])


def true_weights(setting: str, X: Array) -> Array | None:
    """True weights of a setting: (n, 5) -> (n, M), or None where the truth is no average."""
    if setting == "S1":
        return softmax(X @ s1_coefficients(3))
    if setting == "S1, M=2":
        return softmax(X @ s1_coefficients(2))
    if setting == "S2":
        return np.full((len(X), 3), 1.0 / 3.0)
    if setting == "S3":
        return np.tile(softmax(-np.arange(1.0, 4.0)), (len(X), 1))
    return None


def scenario_2_truth(X: Array) -> Array:
    """Regression function of scenario 2, which no average of the candidates equals."""
    x1, x2, x3, x4, x5 = X.T
    return 3.0 * x1**2 + 2.0 * np.sin(x2) - 2.0 * x3 + np.cos(x4) + 2.0 * x5**2


@dataclass(frozen=True)
class Points:
    """Inputs, what the candidates say of them, the truth and the true weights, if there are any.

    X : (n, 5), P : (n, M), truth : (n,), weights : (n, M) or None.
    """

    X: Array
    P: Array
    truth: Array
    weights: Array | None

    def mse(self, weights: Array) -> float:
        """Mean squared error against the truth of the average with some weights (n, M)."""
        return float(np.mean((local_average(weights, self.P) - self.truth) ** 2))

    def c1(self, weights: Array) -> float:
        """Mean L1 distance ``C1(w)`` of some weights (n, M) to the true ones."""
        return float(np.abs(weights - self.weights).sum(axis=1).mean())

    def infimum(self) -> float:
        """Mean squared error below which no weight function goes: that of the best, point by point.

        An average lies between the smallest and the largest candidate; nearest to the truth is its
        projection onto that interval.
        """
        nearest = np.clip(self.truth, self.P.min(axis=1), self.P.max(axis=1))
        return float(np.mean((nearest - self.truth) ** 2))


def draw(setting: str, n: int, rng: np.random.Generator) -> Points:
    """Draw n points of a setting: "S1", "S1, M=2", "S2", "S3" or "scenario 2"."""
    X = rng.standard_normal((n, N_INPUTS))
    P, weights = candidates(X), true_weights(setting, X)
    if weights is None:
        return Points(X, P, scenario_2_truth(X), None)
    P = P[:, : weights.shape[1]]
    return Points(X, P, local_average(weights, P), weights)
