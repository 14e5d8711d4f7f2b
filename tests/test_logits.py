"""Logits become probabilities, and their temperature is fitted on request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from localma.candidates.outputs import HOTTEST, fit_temperature, probabilities
from localma.errors import InvalidInputError


def sample(n: int, classes: int, temperature: float, seed: int = 0) -> tuple[Any, Any]:
    """Logits that are too sharp by a factor: labels are drawn from softmax(z / temperature)."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(n, classes)) * 3.0
    chances = probabilities(logits, "softmax", temperature)
    return logits, (chances.cumsum(axis=1) > random.uniform(size=(n, 1))).argmax(axis=1)


def cross_entropy(logits: Any, labels: Any, temperature: float) -> float:
    scores = log_softmax(logits / temperature, axis=1)
    return float(-scores[np.arange(len(labels)), labels].mean())


def test_softmax_and_sigmoid_agree_on_two_classes() -> None:
    logits = np.array([-3.0, 0.0, 0.5, 800.0])
    second = probabilities(logits, "sigmoid", 2.0)
    both = probabilities(np.column_stack([np.zeros(4), logits]), "softmax", 2.0)
    assert_allclose(both[:, 1], second, rtol=1e-12)
    assert_allclose(probabilities(logits[:, None], "sigmoid", 2.0), second)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(2, 6), st.floats(0.05, 50.0), st.integers(0, 100))
def test_probabilities_sum_to_one_and_keep_the_order(
    n: int, classes: int, temperature: float, seed: int
) -> None:
    logits = np.random.default_rng(seed).normal(size=(n, classes)) * 10
    found = probabilities(logits.astype(np.float32), "softmax", temperature)
    assert found.dtype == np.float64
    assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    assert (found.argmax(axis=1) == logits.argmax(axis=1)).all()


@pytest.mark.parametrize(
    ("shape", "activation"), [((3, 2), "sigmoid"), ((3,), "softmax"), ((3, 1), "softmax")]
)
def test_the_other_activation_is_named(shape: tuple[int, ...], activation: Any) -> None:
    with pytest.raises(
        InvalidInputError,
        match=rf"'sigmoid' one logit per row, \(n,\) or \(n, 1\); '{activation}' received shape .*"
        "choose the other, or None if the outputs are not logits",
    ):
        probabilities(np.zeros(shape), activation)


@pytest.mark.parametrize("true", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_temperature_that_made_the_labels_is_found(true: float, classes: int) -> None:
    logits, labels = sample(20_000, classes, true)
    assert fit_temperature(logits, labels) == pytest.approx(true, rel=0.05)


def test_no_other_temperature_has_less_cross_entropy() -> None:
    logits, labels = sample(300, 4, 1.7, seed=3)
    fitted = fit_temperature(logits, labels)
    other = minimize_scalar(
        lambda t: cross_entropy(logits, labels, t), bounds=(0.1, 20), options={"xatol": 1e-8}
    )
    assert fitted == pytest.approx(other.x, rel=1e-5)
    assert cross_entropy(logits, labels, fitted) <= other.fun + 1e-12


def test_one_logit_is_that_of_the_second_class() -> None:
    logits, labels = sample(500, 2, 2.0)
    difference = logits[:, 1] - logits[:, 0]
    assert fit_temperature(difference, labels) == pytest.approx(fit_temperature(logits, labels))
    assert fit_temperature(difference[:, None], labels == 1) == fit_temperature(difference, labels)


def test_what_all_classes_share_does_not_matter() -> None:
    logits, labels = sample(200, 3, 1.5)
    shifted = logits + np.linspace(-1e5, 1e5, 200)[:, None]
    assert fit_temperature(shifted, labels) == pytest.approx(
        fit_temperature(logits, labels), rel=1e-6
    )


def test_logits_that_say_nothing_are_flattened() -> None:
    logits, labels = sample(200, 3, 1.0)
    assert fit_temperature(-logits, labels) == HOTTEST


def test_logits_that_are_never_wrong_have_no_temperature() -> None:
    logits = np.eye(3) * 5
    with pytest.raises(
        InvalidInputError,
        match=r"The cross-entropy of these 3 rows has no minimum, because the logits are right on "
        r"all of them.* Pass more rows, and rows that the network was not trained on\.",
    ):
        fit_temperature(logits, [0, 1, 2])


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (np.zeros((2, 3)), [0, 3], r"whole numbers from 0 to K - 1; .*count the classes from zero"),
        (np.zeros((2, 3)), [-1, 0], r"whole numbers from 0 to K - 1"),
        (np.zeros((2, 3)), [0.0, 1.0], r"received logits of shape \(2, 3\) and labels .* float64"),
        (np.zeros((2, 3)), [0], r"labels of shape \(1,\)"),
        (np.zeros((0, 3)), np.zeros(0, dtype=int), r"received logits of shape \(0, 3\)"),
        (np.zeros((2, 3, 4)), [0, 1], r"received logits of shape \(2, 3, 4\)"),
        ([[0.0, np.nan]], [0], r"takes finite logits; some are NaN or infinite"),
    ],
)
def test_samples_are_checked(logits: Any, labels: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        fit_temperature(logits, labels)
