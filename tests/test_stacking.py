"""The rivals of local weights: each on data where the best answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from localma.losses import get_loss
from studies.safety_data import Part
from studies.stacking import (
    CHOSEN_FROM,
    N_FOLDS,
    Problem,
    Rivals,
    _refitted,
    boosting_parameters,
    rows_of,
    scaled_predictions,
)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def counts_and_amounts(loss, n=600):
    """Two candidates that share an error: both have the wrong level and the wrong spread."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    mean = np.exp(0.5 * X[:, 0] + 1.0)
    y = rng.poisson(mean) * 1.0 if loss == "poisson" else mean * rng.gamma(20.0, 1 / 20.0, n)
    P = np.column_stack([3.0 * mean**2, 2.5 * mean**2])
    return Part(X, P, y, None), mean


def classes(n_classes, n=800):
    """Two overconfident candidates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, n_classes))
    truth = softmax(X)
    y = (rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    sharp = softmax(4.0 * X)
    return Part(X, np.stack([sharp, softmax(5.0 * X)], axis=1), y, None), truth


def risk_of(name, problem, part):
    half = len(part.y) // 2
    sample, test = rows_of(part, np.arange(half)), rows_of(part, np.arange(half, len(part.y)))
    predictions = Rivals(problem, sample, 0).learn(name).predict(test)
    return problem.risk(test, predictions)


def test_the_ridge_stack_corrects_a_shared_offset_and_scale():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(400)
    P = (3.0 + 2.0 * truth)[:, None] + 0.01 * rng.standard_normal((400, 2))
    part = Part(truth[:, None], P, truth, np.linspace(0.5, 1.5, 400))
    problem = Problem("squared_error")
    assert risk_of("ridge", problem, part) < 1e-3
    assert risk_of("equal", problem, part) > 5.0


def test_the_ridge_stack_of_absolute_errors_has_the_median_as_level():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 1))
    part = Part(X, np.column_stack([X, X]), X[:, 0] + rng.exponential(1.0, 2000), None)
    learned = Rivals(Problem("absolute_error"), part, 0).learn("ridge")
    assert np.median(part.y - learned.predict(part)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_the_ridge_stack_is_linear_in_logarithms_for_counts_and_amounts(loss):
    part, mean = counts_and_amounts(loss)
    problem = Problem(loss)
    ideal = problem.risk(part, mean)
    assert risk_of("ridge", problem, part) < 1.1 * ideal
    assert risk_of("equal", problem, part) > 1.5 * ideal


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_ridge_stack_cools_overconfident_probabilities(n_classes):
    part, truth = classes(n_classes)
    problem = Problem("cross_entropy", n_classes)
    ideal = problem.risk(part, truth)
    assert risk_of("ridge", problem, part) < 1.1 * ideal
    assert risk_of("equal", problem, part) > 1.2 * ideal


def test_probabilities_are_centred_logarithms():
    P = np.array([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]])
    scores = scaled_predictions(Problem("brier", 3), P)
    assert scores.shape == (1, 6)
    assert scores[0, 0] - scores[0, 1] == pytest.approx(np.log(2.0))
    assert np.isfinite(scores).all()
    assert scaled_predictions(Problem("brier", 2), P[:, :, :2]).shape == (1, 2)


@pytest.mark.parametrize(
    ("loss", "n_classes"), [("cross_entropy", 2), ("cross_entropy", 3), ("brier", 3)]
)
def test_row_losses_are_those_of_the_loss(loss, n_classes):
    part, truth = classes(n_classes, 20)
    found = Problem(loss, n_classes).row_losses(part.y, truth)
    observed = np.eye(n_classes)[part.y]
    if loss == "brier":
        expected = get_loss("brier").value(observed, truth).mean(axis=1)
    else:
        expected = -np.log((observed * truth).sum(axis=1))
    np.testing.assert_allclose(found, expected)


def test_held_out_predictions_come_from_fits_without_the_fold():
    X = np.arange(50.0)[:, None]
    part = Part(X, np.column_stack([X, X]), X[:, 0], None)
    rivals = Rivals(Problem("squared_error"), part, 0)

    def fit(sample):
        def predict(rows):
            return np.isin(rows.y, sample.y).astype(float)  # 1 for rows of the fit

        return predict

    assert len(rivals.folds) == N_FOLDS
    assert _refitted(rivals, fit).held_out.max() == 0.0


def test_the_best_candidate_has_the_smallest_loss_on_the_sample():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(40)
    part = Part(y[:, None], np.column_stack([y + 1.0, y + 0.1, y - 2.0]), y, None)
    learned = Rivals(Problem("squared_error"), part, 0).learn("best")
    np.testing.assert_array_equal(learned.predict(part), part.P[:, 1])
    np.testing.assert_array_equal(learned.held_out, part.P[:, 1])


class TestBoosting:
    @pytest.fixture(autouse=True)
    def _lightgbm(self):
        pytest.importorskip("lightgbm")

    @pytest.mark.parametrize(
        "loss", ["squared_error", "absolute_error", "huber", "poisson", "gamma"]
    )
    def test_it_learns_from_inputs_and_predictions(self, loss):
        part, _ = counts_and_amounts("poisson" if loss == "poisson" else "gamma")
        problem = Problem(loss)
        boosted, equal = (risk_of(name, problem, part) for name in ("lightgbm", "equal"))
        assert boosted < 0.5 * equal

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_probabilities_sum_to_one(self, n_classes):
        part, _ = classes(n_classes, 200)
        learned = Rivals(Problem("cross_entropy", n_classes), part, 0).learn("lightgbm")
        for predictions in (learned.held_out, learned.predict(part)):
            assert predictions.shape == (200, n_classes)
            np.testing.assert_allclose(predictions.sum(axis=1), 1.0, atol=1e-9)

    def test_held_out_losses_are_larger_than_those_of_the_fit(self):
        part, _ = counts_and_amounts("gamma", 200)
        problem = Problem("gamma")
        learned = Rivals(problem, part, 0).learn("lightgbm")
        assert problem.risk(part, learned.held_out) > 1.2 * problem.risk(
            part, learned.predict(part)
        )

    def test_huber_uses_the_delta_of_the_loss(self):
        part, _ = counts_and_amounts("gamma", 100)
        parameters = boosting_parameters(Rivals(Problem("huber"), part, 0))
        assert parameters["alpha"] == get_loss("huber").value.keywords["delta"]

    def test_the_own_model_does_not_see_the_predictions(self):
        part, _ = counts_and_amounts("gamma", 100)
        rivals = Rivals(Problem("gamma"), part, 0)
        other = Part(part.X, part.P[::-1] * 7.0, part.y, None)
        predict = rivals.learn("direct").predict
        np.testing.assert_array_equal(predict(part), predict(other))

    def test_the_choice_has_the_smallest_held_out_loss_and_costs_all_six(self):
        part, _ = counts_and_amounts("poisson", 200)
        rivals = Rivals(Problem("poisson"), part, 0)
        chosen = rivals.learn("choice")
        risks = {
            name: rivals.problem.risk(part, rivals.learn(name).held_out) for name in CHOSEN_FROM
        }
        assert rivals.problem.risk(part, chosen.held_out) == min(risks.values())
        total = sum(rivals.watches[name].processor_seconds for name in CHOSEN_FROM)
        assert rivals.watches["choice"].processor_seconds == total
