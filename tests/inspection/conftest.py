"""Models whose weights are known exactly."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from localma import LocalMAClassifier, LocalMARegressor, as_candidate
from localma.gates import Gate


class StepGate(Gate):
    """All weight on the first candidate where the first input is at most zero, else the second."""

    def __init__(self, high=1.0):
        self.high = high

    def fit(self, data, **how):
        self.n_candidates_ = data.n_candidates
        return self

    def predict_weights(self, X):
        weights = np.zeros((len(X), self.n_candidates_))
        weights[:, 0] = np.where(X[:, 0] <= 0, self.high, 1 - self.high)
        weights[:, 1] = 1 - weights[:, 0]
        return weights

    def arrays(self):
        return {}

    def restore(self, arrays):
        return self


@pytest.fixture
def pd():
    """Pandas, where it is installed."""
    return pytest.importorskip("pandas")


@pytest.fixture
def step_gate():
    return StepGate


@pytest.fixture
def step():
    """Weights split at x0 = 0; the first candidate is right on the left, the second on the right.

    Errors of the wrong candidate are 2, of the right one 0.
    """
    X = np.column_stack([np.linspace(-1, 1, 101)[np.arange(101) != 50], np.tile([5.0, 7.0], 50)])
    y = np.where(X[:, 0] <= 0, 0.0, 2.0)
    model = LocalMARegressor(
        {"low": lambda X: np.zeros(len(X)), "high": lambda X: np.full(len(X), 2.0)},
        gate=StepGate(),
    ).fit(X, y)
    return SimpleNamespace(model=model, X=X, y=y)


@pytest.fixture(scope="session")
def classifier():
    """Three classes, two candidates, gate="auto"."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2))
    y = np.array(["bird", "cat", "dog"])[(X[:, 0] > -0.4).astype(int) + (X[:, 0] > 0.4)]

    def guess(sharpness):
        def probabilities(X):
            x = sharpness * np.clip(X[:, 0], -9, 9)
            logits = np.stack([-x, 0 * x, x], axis=1)
            return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

        return as_candidate(probabilities, classes=["bird", "cat", "dog"])

    candidates = {"mild": guess(0.5), "bold": guess(6.0), "wrong": guess(-1.0)}
    model = LocalMAClassifier(candidates, cv=3, random_state=0).fit(X[:120], y[:120])
    return SimpleNamespace(model=model, X=X[120:], y=y[120:])
