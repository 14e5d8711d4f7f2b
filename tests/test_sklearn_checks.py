"""scikit-learn's own checks, for both estimators and every named gate."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from localma import CrossFitted, LocalMAClassifier, LocalMARegressor
from localma.gates import MLPGate

# Float32 training, and folds by row, cannot meet 1e-7; `test_weight_is_repetition` asks for 1e-3.
INEXACT = "check_sample_weight_equivalence_on_dense_data"


def expected_failures(estimator):
    exact = estimator.gate == "global" or isinstance(estimator, LocalMARegressor)
    return {} if exact else {INEXACT: "float32 training and folds by row cannot give 1e-7"}


def regressor(gate):
    candidates = {
        "ridge": CrossFitted(Ridge()),
        "tree": CrossFitted(DecisionTreeRegressor(max_depth=3, random_state=0)),
        "mean": CrossFitted(DummyRegressor()),
    }
    return LocalMARegressor(candidates, gate=gate, random_state=0)


def classifier(gate):
    candidates = {
        "logistic": CrossFitted(LogisticRegression()),
        "bayes": CrossFitted(GaussianNB()),
        "prior": CrossFitted(DummyClassifier()),
    }
    return LocalMAClassifier(candidates, gate=gate, random_state=0)


ESTIMATORS = [
    make(gate) for make in (regressor, classifier) for gate in ("global", "local", "auto")
]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "gate", ["global", MLPGate(n_steps=200, random_state=0)], ids=["global", "local"]
)
@pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")  # of global weights
def test_weight_is_repetition(gate):
    """A row of weight k counts as k rows, to 1e-3; with fitted candidates no folds interfere."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=60)
    weight = rng.integers(0, 4, size=60)
    candidates = {
        "left": lambda X: -X[:, 0],
        "right": lambda X: X[:, 0],
        "zero": lambda X: 0 * X[:, 0],
    }
    weighted = LocalMARegressor(candidates, gate=gate).fit(X, y, sample_weight=weight)
    repeated = LocalMARegressor(candidates, gate=gate).fit(X.repeat(weight, 0), y.repeat(weight))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-3)
