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
    """Coefficients of the true logits in S1, zero for the last candidate: (5, M).

    ``theta_mj = (-1)^(m+j) sqrt(2 m) / j^2``
    """
    m, j = np.arange(1, n_candidates), np.arange(1, N_INPUTS + 1)[:, np.newaxis]
    theta = (-1.0) ** (m + j) * np.sqrt(2.0 * m) / j**2
    return np.hstack([theta, np.zeros((N_INPUTS, 1))])


def true_weights(setting: str, X: Array) -> Array | None:
    """True weights of a setting: (n, 5) -> (n, M), or None if the truth is not an average."""
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
    """Regression function of scenario 2, which is not an average of the candidates."""
    x1, x2, x3, x4, x5 = X.T
    return 3.0 * x1**2 + 2.0 * np.sin(x2) - 2.0 * x3 + np.cos(x4) + 2.0 * x5**2


@dataclass(frozen=True)
class Points:
    """Inputs, predictions of the candidates, the truth, and the true weights if they exist.

    X : (n, 5), P : (n, M), truth : (n,), weights : (n, M) or None.
    """

    X: Array
    P: Array
    truth: Array
    weights: Array | None

    def mse(self, weights: Array) -> float:
        """Mean squared error of the average under weights (n, M), against the truth."""
        return float(np.mean((local_average(weights, self.P) - self.truth) ** 2))

    def c1(self, weights: Array) -> float:
        """Mean L1 distance ``C1(w)`` between weights (n, M) and the true weights."""
        return float(np.abs(weights - self.weights).sum(axis=1).mean())

    def infimum(self) -> float:
        """Lowest mean squared error of any weight function.

        An average lies between the smallest and the largest candidate. The best average is the
        projection of the truth onto that interval, point by point.
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
