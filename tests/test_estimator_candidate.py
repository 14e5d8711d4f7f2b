"""Estimators of scikit-learn as candidates: what they are called with, and what that changes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeCV,
    TweedieRegressor,
)

from localma.candidates.estimator import FEW_ROWS, EstimatorCandidate, linear_predictions
from localma.errors import CandidateError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3 * FEW_ROWS, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0] + RNG.normal(size=len(X))


class TestFewRowsOfLinearModels:
    @pytest.mark.parametrize(
        "model",
        [
            *(LinearRegression(), LinearRegression(fit_intercept=False), Ridge(), Lasso(0.1)),
            *(ElasticNet(0.1), RidgeCV(), LassoCV(), ElasticNetCV()),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("n", [1, 7, FEW_ROWS, FEW_ROWS + 1])
    def test_bit_by_bit(self, model, n):
        model.fit(X, Y)
        candidate = EstimatorCandidate(model)
        for rows in (X[:n], np.asfortranarray(X[:n]), X[::2][:n], np.hstack([X, X])[:n, ::2]):
            expected = model.predict(rows)
            np.testing.assert_array_equal(candidate.predict(rows, "regression"), expected)
            direct = linear_predictions(model, rows)
            assert (direct is None) == (n > FEW_ROWS)
            if direct is not None:
                np.testing.assert_array_equal(direct, expected)

    def test_several_outputs(self):
        model = Ridge().fit(X, np.column_stack([Y, -Y]))
        np.testing.assert_array_equal(linear_predictions(model, X[:5]), model.predict(X[:5]))

    def test_coefficients_of_today(self):
        """They are read at each call, as `predict` does."""
        model = Ridge().fit(X, Y)
        candidate = EstimatorCandidate(model)
        model.coef_ = 2.0 * model.coef_
        np.testing.assert_array_equal(candidate.predict(X[:3], "regression"), model.predict(X[:3]))

    @pytest.mark.parametrize(
        "model", [TweedieRegressor(), LogisticRegression(), HuberRegressor()], ids=repr
    )
    def test_other_models(self, model):
        model.fit(X, np.exp(Y) > 1.0)
        assert linear_predictions(model, X[:1]) is None

    def test_models_that_are_not_of_scikit_learn(self):
        class Doubled(Ridge):
            def _decision_function(self, X):
                return 2.0 * super()._decision_function(X)

        model = Doubled().fit(X, Y)
        assert linear_predictions(model, X[:1]) is None
        expected = model.predict(X[:1])
        assert EstimatorCandidate(model).predict(X[:1], "regression") == expected

    def test_a_model_whose_predict_was_replaced(self):
        model = Ridge().fit(X, Y)
        model.predict = lambda X: np.zeros(len(X))
        assert EstimatorCandidate(model).predict(X[:1], "regression").tolist() == [0.0]

    @pytest.mark.parametrize(
        ("rows", "reason"),
        [
            (np.array([[1.0, np.nan, 0.0, 0.0]]), "NaN"),
            (np.array([[1.0, np.inf, 0.0, 0.0]]), "infinity"),
            (np.ones((1, 3)), "3 features"),
            (np.ones(4), "1D array"),
        ],
        ids=["missing", "infinite", "narrow", "flat"],
    )
    def test_rows_that_scikit_learn_refuses(self, rows, reason):
        candidate = EstimatorCandidate(Ridge().fit(X, Y))
        with pytest.raises(CandidateError, match=reason):
            candidate.predict(rows, "regression")

    def test_other_numbers_are_converted_by_scikit_learn(self):
        model = Ridge().fit(X, Y)
        for rows in (X[:2].astype(np.float32), X[:2].astype(int), X[:2].astype(object)):
            assert linear_predictions(model, rows) is None
            np.testing.assert_array_equal(
                EstimatorCandidate(model).predict(rows, "regression"), model.predict(rows)
            )
