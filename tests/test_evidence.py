"""Evidence: weights of path points and standard errors, against values by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from localma.evidence import (
    RULES,
    SINGLE_PRECISION,
    LocalityGain,
    exponential_weights,
    few_blocks,
    locality_gain,
    mean_and_error,
    once_a_row,
    one_standard_error,
    smallest_risk,
    verdict,
)


def test_exponential_weights_by_hand():
    # Risks 1 and 1.04 from 100 rows, T = 4: log ratio of weights = -100 * 0.04 / 4 = -1.
    L = np.array([[1.0] * 100, [1.04] * 100])
    weights = exponential_weights(L, np.ones(100), np.array([0.5, 0.5]))
    assert weights[1] / weights[0] == pytest.approx(np.exp(-1.0))


def test_prior_multiplies():
    L = np.ones((2, 10))
    assert exponential_weights(L, np.ones(10), np.array([0.8, 0.2])).tolist() == pytest.approx(
        [0.8, 0.2]
    )


def test_perfect_point_takes_all():
    L = np.array([[0.0, 0.0], [1e-12, 0.0]])
    assert exponential_weights(L, np.ones(2), np.ones(2)).tolist() == [1.0, 0.0]


def test_negligible_points_are_dropped():
    L = np.array([[1.0] * 100, [1.2] * 100])  # weight exp(-5) of the first
    assert exponential_weights(L, np.ones(100), np.ones(2)).tolist() == [1.0, 0.0]


@given(
    L=arrays(np.float64, (4, 7), elements=st.floats(0, 1e12)),
    weight=arrays(np.float64, 7, elements=st.floats(0.1, 10)),
)
def test_every_rule_gives_weights_on_the_simplex(L, weight):
    for rule in (exponential_weights, smallest_risk, one_standard_error):
        shares = rule(L, weight, np.full(4, 0.25))
        assert (shares >= 0).all()
        assert shares.sum() == pytest.approx(1.0)


def test_one_standard_error_prefers_the_larger_prior_when_near():
    best = np.random.default_rng(0).uniform(1, 2, size=50)
    L = np.stack([best, best + 0.01 + np.tile([0.1, -0.1], 25), best + 9.0])  # 0.01 +- 0.014
    prior = np.array([0.1, 0.8, 0.1])
    assert smallest_risk(L, np.ones(50), prior).tolist() == [1.0, 0.0, 0.0]
    assert one_standard_error(L, np.ones(50), prior).tolist() == [0.0, 1.0, 0.0]


def test_mean_and_error_against_numpy():
    values = np.random.default_rng(0).normal(size=40)
    mean, error = mean_and_error(values, np.ones(40))
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(40))


def test_blocks_that_agree_within_widen_the_error():
    blocks = np.repeat(np.arange(5), 20)
    values = np.random.default_rng(0).normal(size=5)[blocks]
    alone = mean_and_error(values, np.ones(100))[1]
    together = mean_and_error(values, np.ones(100), folds=blocks)[1]
    assert together == pytest.approx(values[::20].std(ddof=1) / np.sqrt(5))
    assert together > 2 * alone


def test_the_error_is_the_largest_of_rows_folds_and_groups():
    rng = np.random.default_rng(0)
    groups, folds = rng.integers(0, 30, size=90), np.arange(90) % 3
    values = rng.normal(size=30)[groups] + rng.normal(size=90)
    weight = rng.uniform(0, 2, size=90) * (groups > 0)
    kinds = ({}, {"groups": groups}, {"folds": folds})
    errors = [mean_and_error(values, weight, **kind)[1] for kind in kinds]
    assert mean_and_error(values, weight, folds=folds, groups=groups)[1] == max(errors)
    assert errors[1] > 1.2 * errors[0]
    # The only group that counts says nothing of how groups differ.
    single = mean_and_error(values, weight * (groups == 7), groups=groups)
    assert np.isnan(single[1])
    assert not np.isnan(single[0])


def test_errors_between_blocks_are_those_of_leaving_one_out():
    rng = np.random.default_rng(1)
    groups, values, weight = rng.integers(0, 12, 60), rng.normal(size=60), rng.uniform(size=60)

    def mean(kept):
        return np.average(values[kept], weights=weight[kept])

    left_out = np.array([mean(groups != g) for g in np.unique(groups)])
    G = len(left_out)
    jackknife = np.sqrt((G - 1) / G * np.sum((left_out - mean(groups >= 0)) ** 2))
    rows = mean_and_error(values, weight)[1]
    wide = few_blocks(G) * jackknife
    assert mean_and_error(values, weight, groups=groups)[1] == pytest.approx(max(rows, wide))


@pytest.mark.parametrize("n_groups", [2, 5, 20])
@pytest.mark.parametrize("unequal", [False, True])
def test_two_standard_errors_are_exceeded_as_rarely_however_few_groups_there_are(n_groups, unequal):
    rng = np.random.default_rng(0)
    exceeded = 0
    for _ in range(1000):
        sizes = np.ceil(rng.lognormal(2, 1, n_groups)) if unequal else np.full(n_groups, 8)
        groups = np.repeat(np.arange(n_groups), sizes.astype(int))
        values = rng.normal(size=n_groups)[groups] + 0.5 * rng.normal(size=len(groups))
        mean, error = mean_and_error(values, np.ones(len(groups)), groups=groups)
        exceeded += abs(mean) > 2 * error
    # 4.6 % by the normal distribution; sizes that differ much are forgiven some.
    assert exceeded < (110 if unequal else 65)


@pytest.mark.parametrize("n", [2, 4, 8, 29, 30])
def test_two_standard_errors_are_exceeded_as_rarely_however_few_rows_there_are(n):
    draws = np.random.default_rng(0).normal(size=(2000, n))
    exceeded = sum(abs(mean) > 2 * e for mean, e in (mean_and_error(d, np.ones(n)) for d in draws))
    assert 60 < exceeded < 150  # 4.6 % by the normal distribution, 5.5 % at 30 rows


def test_gain_is_paired():
    losses = np.random.default_rng(0).normal(size=30) ** 2
    gain = locality_gain(losses + 1.0, losses + 0.25, losses, np.ones(30))
    assert gain.value == pytest.approx(1.0)
    assert gain.over_constant == pytest.approx(0.25)
    # Paired differences are equal up to rounding; the weights are in single precision.
    least = SINGLE_PRECISION * gain.global_risk
    assert gain.standard_error == gain.over_constant_error == pytest.approx(least)
    assert str(gain).startswith("1 ±")


@pytest.mark.parametrize(
    ("value", "over_constant", "local"),
    [(1.0, 1.0, True), (1.0, 0.1, False), (0.1, 1.0, False), (-1.0, 1.0, False)],
)
def test_a_gain_is_local_if_no_constant_weights_have_it(value, over_constant, local):
    gain = LocalityGain(value, 0.1, 2.0, 2.0 - value, over_constant, 0.1)
    assert gain.is_local == local


def test_a_gain_that_was_saved_without_that_over_constant_weights_is_taken_as_it_is():
    assert LocalityGain(1.0, 0.1, 2.0, 1.0).is_local
    assert not LocalityGain(1.0, 0.8, 2.0, 1.0).is_local
    assert not LocalityGain(1.0, 0.1, 2.0, 1.0).is_of_constants


@pytest.mark.parametrize(
    ("over_constant", "begins", "ends"),
    [
        (
            0.32,
            "Keep this model, or use fixed weights. Local weights show no clear benefit here (90%",
            "it changes by only -0.32 ± 0.25.",
        ),
        (0.05, "Use fixed weights. With local weights the mean loss on held-out rows", "0.25."),
    ],
)
def test_whose_a_gain_is_that_is_not_clearly_local(over_constant, begins, ends):
    words = verdict(LocalityGain(0.5, 0.24, 2.0, 1.5, over_constant, 0.25), 0.9)
    assert words.startswith(begins)
    assert words.endswith(ends)


def test_a_loss_names_the_better_weights_in_words_of_no_program():
    words = verdict(LocalityGain(-0.5, 0.1, 2.0, 2.5, -0.5, 0.1), 0.9)
    assert words.startswith("Use fixed weights. With local weights the mean loss on held-out rows")
    assert words.endswith("changes by 0.5 ± 0.1 from 2 with fitted fixed weights.")


def test_a_candidate_with_all_weight_is_recommended_alone():
    words = verdict(LocalityGain(0.0, 0.1, 2.0, 2.0, 0.0, 0.1), None, alone="'north'")
    assert words.startswith("Use candidate 'north' alone. No local weights are used.")


def test_a_combination_that_a_constant_matches_is_not_recommended():
    gain = LocalityGain(0.5, 0.1, 2.0, 1.5, 0.4, 0.1, 1.4, -0.1, 0.05)
    words = verdict(gain, 1.0, loss="poisson")
    assert words.startswith("Do not use this combination. A constant prediction is as good")
    assert "mean Poisson deviance on held-out rows is 1.4 with the constant and 1.5" in words
    assert words.endswith("or train your own model.")


def test_only_squared_error_is_given_in_the_unit_of_the_target():
    gain = LocalityGain(0.5, 0.1, 2.0, 1.5, 0.4, 0.1)
    assert "root mean squared error falls from 1.41 to 1.22" in verdict(
        gain, 1.0, loss="squared_error"
    )
    assert "root" not in verdict(gain, 1.0, loss="absolute_error")


def test_a_row_that_is_judged_ten_times_is_one_piece_of_evidence():
    L, prior = np.random.default_rng(0).uniform(0.9, 1.1, size=(3, 40)), np.full(3, 1 / 3)
    weight, rows = (
        np.random.default_rng(1).uniform(size=40),
        np.random.default_rng(2).permutation(40),
    )
    often = (np.tile(L, 10), np.tile(weight, 10), np.tile(rows, 10))
    for rule in RULES.values():
        once = rule(*once_a_row(L, weight, rows), prior)
        assert rule(*once_a_row(*often), prior) == pytest.approx(once)
    assert once_a_row(L, weight, rows)[0] is L
