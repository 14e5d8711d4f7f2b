"""Global and equal weights: certificates recomputed, oracles, degenerate pools, size, messages."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize, nnls
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from threadpoolctl import threadpool_info, threadpool_limits

from localma.equations import empirical_risk, global_average
from localma.errors import FileFormatError, InvalidInputError
from localma.gates import Labelled
from localma.gates.constant import EqualGate, GlobalGate
from localma.gates.simplex.quadratic import minimise_quadratic, quadratic_gap
from localma.gates.simplex.row_blocks import RowBlocks, one_blas_thread
from localma.losses import LOSSES, Loss, get_loss, huber, pinball, squared_error, tweedie

CONVEX = {
    "squared_error": squared_error(),
    "brier": get_loss("brier"),
    "huber": huber(),
    "narrow huber": huber(0.02),
    "cross_entropy": get_loss("cross_entropy"),
    "bernoulli": get_loss("bernoulli"),
    "poisson": get_loss("poisson"),
    "tweedie 0": tweedie(0.0),
    "tweedie 1": tweedie(1.0),
}
KINKED = {
    "absolute_error": get_loss("absolute_error"),
    "pinball": pinball(0.9),
    "extreme pinball": pinball(0.02),
}
NOT_CONVEX = {
    "gamma": get_loss("gamma"),
    "inverse_gaussian": get_loss("inverse_gaussian"),
    "tweedie -1": tweedie(-1.0),
    "tweedie 1.5": tweedie(1.5),
    "tweedie 2.5": tweedie(2.5),
}
EVERY_LOSS = CONVEX | KINKED | NOT_CONVEX
SIZES = {"random": (300, 6), "correlated": (300, 8), "duplicates": (200, 7), "M > n": (15, 40)}

every_loss = pytest.mark.parametrize("loss", EVERY_LOSS.values(), ids=EVERY_LOSS)
every_problem = pytest.mark.parametrize("kind", SIZES)


def problem(loss, kind="random", seed=0):
    """Predictions (n, M, 1) and targets (n, 1) inside the domains of a loss."""
    n, M = SIZES[kind]
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((n, 1))
    errors = rng.standard_normal((n, M)) * rng.uniform(0.4, 1.5, M)
    if kind == "correlated":
        errors = rng.standard_normal((n, 1)) + 0.05 * errors
    scores = signal + 0.7 * errors
    if kind == "duplicates":
        scores[:, M // 2 :] = scores[:, : M - M // 2]
    noisy = signal + 0.5 * rng.standard_t(3, (n, 1))
    if loss.prediction.high == 1:
        P, y = 1 / (1 + np.exp(-scores)), (noisy > 0).astype(float)
        if loss.target.low == 1:  # cross-entropy sees the probability of the observed class
            P, y = np.where(y > 0, P, 1 - P), np.ones_like(y)
    elif loss.prediction.low == 0:
        P, y = np.exp(0.6 * scores), np.exp(0.6 * noisy)
    else:
        P, y = scores, noisy
    return P[:, :, np.newaxis], y


def fit(P, y, loss, sample_weight=None, **parameters):
    gate = GlobalGate(**parameters)
    return gate.fit(
        Labelled.of(np.zeros((len(y), 1)), P, y, loss=loss, sample_weight=sample_weight)
    )


def gap_by_definition(P, y, loss, weights, sample_weight=None):
    """``max_m <grad L, w - e_m>`` of the mean loss, straight from its formula."""
    slope = loss.derivative(y, global_average(weights, P))
    gradient = np.average(np.einsum("nk,nmk->nm", slope, P), axis=0, weights=sample_weight)
    return (weights @ gradient - gradient).max() / y.shape[1]


def risk_of(P, y, loss, weights):
    return empirical_risk(loss, y, global_average(weights, P))


def equal_risk(P, y, loss):
    return risk_of(P, y, loss, np.full(P.shape[1], 1 / P.shape[1]))


def assert_on_simplex(weights):
    assert weights.dtype == np.float64
    assert (weights >= 0).all()
    assert abs(weights.sum() - 1) <= 1e-12


def smallest_kinked_risk(P, y, quantile, scale=1.0):
    """Minimum of the mean pinball loss, as a linear programme of its own."""
    n, M = P.shape[:2]
    cost = np.r_[np.zeros(M), np.full(n, quantile), np.full(n, 1 - quantile)] * scale / n
    equalities = np.vstack(
        [np.hstack([P[:, :, 0], np.eye(n), -np.eye(n)]), np.r_[np.ones(M), np.zeros(2 * n)]]
    )
    return linprog(cost, A_eq=equalities, b_eq=np.r_[y[:, 0], 1.0], method="highs").fun


# Certificates.


def test_every_loss_of_the_registry_is_tried_here():
    assert {loss.name for loss in EVERY_LOSS.values()} == set(LOSSES)


@every_problem
@pytest.mark.parametrize("loss", CONVEX.values(), ids=CONVEX)
def test_certificate_of_smooth_convex_losses(loss, kind):
    P, y = problem(loss, kind)
    gate = fit(P, y, loss)
    assert_on_simplex(gate.weights_)
    assert gap_by_definition(P, y, loss, gate.weights_) <= 1e-8 * equal_risk(P, y, loss)
    assert 0 <= gate.gap_ <= 1e-8 * equal_risk(P, y, loss)
    assert gate.risk_ == pytest.approx(risk_of(P, y, loss, gate.weights_), rel=1e-10)


@every_problem
@pytest.mark.parametrize("loss", NOT_CONVEX.values(), ids=NOT_CONVEX)
def test_losses_that_are_not_convex_end_where_nothing_nearby_is_better(loss, kind):
    P, y = problem(loss, kind)
    gate = fit(P, y, loss)
    assert_on_simplex(gate.weights_)
    assert gap_by_definition(P, y, loss, gate.weights_) <= 1e-8 * equal_risk(P, y, loss)
    singles = [risk_of(P, y, loss, single) for single in np.eye(P.shape[1])]
    assert gate.risk_ <= min(equal_risk(P, y, loss), *singles) * (1 + 1e-9)


@every_problem
@pytest.mark.parametrize("loss", KINKED.values(), ids=KINKED)
def test_certificate_of_losses_with_kinks_against_a_linear_programme(loss, kind):
    P, y = problem(loss, kind)
    gate = fit(P, y, loss)
    assert_on_simplex(gate.weights_)
    quantile, scale = loss.parameters.get("quantile", 0.5), 1.0 if loss.parameters else 2.0
    excess = gate.risk_ - smallest_kinked_risk(P, y, quantile, scale)
    assert -1e-9 <= excess <= gate.gap_ + 1e-9
    assert gate.gap_ <= 1e-4 * equal_risk(P, y, loss)
    assert gate.risk_ == pytest.approx(risk_of(P, y, loss, gate.weights_), rel=1e-10)


@pytest.mark.parametrize("loss", NOT_CONVEX.values(), ids=NOT_CONVEX)
def test_best_of_several_starts_against_a_grid(loss):
    shares = np.linspace(0, 1, 1001)
    grid = np.stack([shares, 1 - shares], axis=1)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        P = np.exp(1.5 * rng.standard_normal((12, 2)))[:, :, np.newaxis]
        y = np.exp(1.5 * rng.standard_normal((12, 1)))
        risks = [risk_of(P, y, loss, weights) for weights in grid]
        assert fit(P, y, loss).risk_ <= min(risks) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("name", ["huber", "cross_entropy", "bernoulli", "poisson"])
def test_against_slsqp(name):
    loss = CONVEX[name]
    P, y = problem(loss, seed=3)
    oracle = minimize(
        lambda weights: risk_of(P, y, loss, weights),
        np.full(6, 1 / 6),
        jac=lambda weights: (
            np.einsum("nk,nmk->m", loss.derivative(y, global_average(weights, P)), P) / len(y)
        ),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    gate = fit(P, y, loss)
    assert gate.risk_ <= oracle.fun + 1e-10
    np.testing.assert_allclose(gate.weights_, oracle.x, atol=1e-4)


def test_squared_error_against_nnls():
    P, y = problem(squared_error(), seed=5)
    # A heavy row asks for the sum of one; its weight bounds the accuracy of the oracle.
    heavy = 1e5
    rows = np.vstack([P[:, :, 0] - y, np.full(6, heavy)])
    oracle, _ = nnls(rows, np.r_[np.zeros(len(y)), heavy])
    np.testing.assert_allclose(fit(P, y, squared_error()).weights_, oracle, atol=1e-6)


def test_a_loss_with_kinks_of_ones_own():
    def value(y, mu):
        return np.maximum(np.abs(y - mu) - 0.5, 0)

    def derivative(y, mu):
        return np.sign(mu - y) * (np.abs(mu - y) > 0.5)

    insensitive = Loss("insensitive", value, derivative, smooth=False)
    P, y = problem(squared_error(), seed=6)
    gate = fit(P, y, insensitive)
    assert gate.gap_ <= 1e-4 * equal_risk(P, y, insensitive)
    rng = np.random.default_rng(0)
    others = rng.dirichlet(np.full(6, 0.3), size=2000)
    assert gate.risk_ - gate.gap_ <= min(risk_of(P, y, insensitive, other) for other in others)


def test_a_smooth_loss_of_ones_own():
    fourth = Loss("fourth", lambda y, mu: (mu - y) ** 4, lambda y, mu: 4 * (mu - y) ** 3)
    P, y = problem(fourth, seed=7)
    gate = fit(P, y, fourth)
    assert gap_by_definition(P, y, fourth, gate.weights_) <= 1e-8 * equal_risk(P, y, fourth)


def test_a_loss_that_borrows_the_name_of_squared_error_is_itself():
    impostor = Loss("squared_error", lambda y, mu: (mu - y) ** 4, lambda y, mu: 4 * (mu - y) ** 3)
    P, y = problem(impostor, seed=7)
    weights = fit(P, y, impostor).weights_
    assert gap_by_definition(P, y, impostor, weights) <= 1e-8 * equal_risk(P, y, impostor)
    assert np.abs(weights - fit(P, y, squared_error()).weights_).max() > 1e-3


# What the weights are.


@pytest.mark.parametrize("name", ["squared_error", "huber", "absolute_error"])
def test_candidates_without_a_say_have_exactly_zero(name):
    rng = np.random.default_rng(0)
    y = rng.standard_normal((400, 1))
    good = y + 0.05 + 0.1 * rng.standard_normal((400, 2))
    biased = y + 5.0 + rng.standard_normal((400, 4))
    weights = fit(np.hstack([good, biased])[:, :, np.newaxis], y, EVERY_LOSS[name]).weights_
    assert (weights[:2] > 0.1).all()
    np.testing.assert_array_equal(weights[2:], 0.0)


@every_loss
def test_order_of_rows_and_candidates(loss):
    P, y = problem(loss, seed=1)
    rows = np.random.default_rng(0).permutation(len(y))
    columns = np.array([3, 0, 5, 1, 4, 2])
    weights = fit(P, y, loss).weights_
    moved = fit(P[rows][:, columns], y[rows], loss).weights_
    np.testing.assert_allclose(moved, weights[columns], atol=1e-9)


@every_loss
def test_one_candidate_has_everything(loss):
    P, y = problem(loss)
    gate = fit(P[:, :1], y, loss)
    np.testing.assert_array_equal(gate.weights_, [1.0])
    assert gate.gap_ == 0.0


@every_loss
def test_a_perfect_candidate_has_everything(loss):
    P, y = problem(loss)
    P[:, 3] = y
    gate = fit(P, y, loss)
    np.testing.assert_allclose(gate.weights_, np.eye(6)[3], atol=1e-9)


@every_loss
def test_identical_candidates_keep_equal_weights(loss):
    P, y = problem(loss)
    gate = fit(np.repeat(P[:, :1], 4, axis=1), y, loss)
    np.testing.assert_allclose(gate.weights_, 0.25, atol=1e-12)


def test_all_candidates_perfect():
    y = np.linspace(1, 2, 30)[:, np.newaxis]
    for loss in (squared_error(), get_loss("absolute_error"), get_loss("gamma")):
        gate = fit(np.repeat(y[:, np.newaxis], 3, axis=1), y, loss)
        assert_on_simplex(gate.weights_)
        assert gate.risk_ == pytest.approx(0.0, abs=1e-15)


@every_loss
def test_sample_weight_is_repetition(loss):
    P, y = problem(loss, seed=2)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = fit(P, y, loss, sample_weight=0.1 * times)
    repeated = fit(np.repeat(P, times, axis=0), np.repeat(y, times, axis=0), loss)
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, atol=1e-8)
    assert weighted.risk_ == pytest.approx(repeated.risk_, rel=1e-10)


def test_rows_without_weight_are_not_even_looked_at():
    P, y = problem(get_loss("gamma"))
    weight = np.r_[np.zeros(50), np.ones(250)]
    clean = fit(P, y, get_loss("gamma"), sample_weight=weight).weights_
    P[:50], y[:50] = np.nan, -np.inf
    spoilt = fit(P, y, get_loss("gamma"), sample_weight=weight).weights_
    np.testing.assert_array_equal(clean, spoilt)


@pytest.mark.parametrize("name", ["squared_error", "huber", "absolute_error"])
def test_several_outputs_are_more_rows(name):
    loss = EVERY_LOSS[name]
    P, y = problem(loss, seed=4)
    P, y = P[:, :, 0].reshape(150, 2, 6).transpose(0, 2, 1), y.reshape(150, 2)
    stacked = P.transpose(0, 2, 1).reshape(300, 6, 1)
    together = fit(P, y, loss)
    np.testing.assert_allclose(
        together.weights_, fit(stacked, y.reshape(300, 1), loss).weights_, atol=1e-9
    )
    assert together.risk_ == pytest.approx(risk_of(P, y, loss, together.weights_))


@pytest.mark.parametrize("name", ["squared_error", "poisson", "gamma", "absolute_error"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter(name, scale):
    loss = EVERY_LOSS[name]
    P, y = problem(loss, seed=8)
    np.testing.assert_allclose(
        fit(scale * P, scale * y, loss).weights_, fit(P, y, loss).weights_, atol=1e-7
    )


@pytest.mark.parametrize("name", ["squared_error", "huber", "absolute_error"])
def test_a_large_common_level_costs_few_digits(name):
    loss = EVERY_LOSS[name]
    P, y = problem(loss, seed=9)
    np.testing.assert_allclose(
        fit(1e6 + P, 1e6 + y, loss).weights_, fit(P, y, loss).weights_, atol=1e-6
    )


@pytest.mark.parametrize("name", ["squared_error", "huber", "absolute_error", "poisson"])
def test_an_awful_candidate_does_not_blur_the_others(name):
    loss = EVERY_LOSS[name]
    P, y = problem(loss, seed=10)
    gate = fit(np.hstack([P, np.abs(P[:, :1]) * 1e7 + 1e7]), y, loss)
    without = fit(P, y, loss)
    assert gate.weights_[-1] < 1e-6
    assert gate.risk_ <= without.risk_ * (1 + 1e-3)


def test_probabilities_of_zero_stay_finite():
    rng = np.random.default_rng(0)
    P = rng.uniform(0.05, 1, (200, 4))
    P[:20] = 0.0  # a class that no candidate expects: nothing to be done
    P[20:40, 0] = 0.0  # candidates that are wrong for certain
    P[40:60, 1] = 0.0
    loss, y = get_loss("cross_entropy"), np.ones((200, 1))
    gate = fit(P[:, :, np.newaxis], y, loss)
    assert np.isfinite(gate.risk_)
    assert_on_simplex(gate.weights_)
    possible = fit(P[20:, :, np.newaxis], y[20:], loss)
    np.testing.assert_allclose(gate.weights_, possible.weights_, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 30), M=st.integers(1, 12))
@example(seed=301, n=1, M=12)  # equal weights are right but for the rounding of terms that cancel
def test_squared_error_of_any_shape(seed, n, M):
    rng = np.random.default_rng(seed)
    P = rng.integers(-2, 3, (n, M, 1)).astype(float)  # ties, duplicates and collinear candidates
    y = rng.integers(-2, 3, (n, 1)).astype(float)
    gate = fit(P, y, squared_error())
    assert_on_simplex(gate.weights_)
    tolerance = 1e-8 * equal_risk(P, y, squared_error()) + 1e-14
    assert gap_by_definition(P, y, squared_error(), gate.weights_) <= tolerance


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 25), rank=st.integers(1, 25))
def test_quadratics_over_the_simplex(seed, size, rank):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((rank, size)) * 10 ** rng.uniform(-3, 3, size)
    hessian, linear = factor.T @ factor, rng.standard_normal(size)
    weights = minimise_quadratic(hessian, linear, np.full(size, 1 / size))
    assert_on_simplex(weights)
    assert quadratic_gap(hessian, linear, weights) <= 1e-8 * (
        1 + quadratic_gap(hessian, linear, np.full(size, 1 / size))
    )


# Size and machinery.


def test_a_thousand_candidates():
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((2000, 1))
    P = signal + rng.standard_normal((2000, 1000)) * rng.uniform(0.5, 3, 1000)
    y = signal + 0.3 * rng.standard_normal((2000, 1))
    for loss in (squared_error(), huber()):
        gate = fit(P[:, :, np.newaxis], y, loss)
        gap = gap_by_definition(P[:, :, np.newaxis], y, loss, gate.weights_)
        assert gap <= 1e-8 * equal_risk(P[:, :, np.newaxis], y, loss)


@pytest.mark.parametrize("name", ["squared_error", "cross_entropy", "absolute_error"])
def test_a_hundred_thousand_rows_in_little_memory(name):
    rng = np.random.default_rng(0)
    P = rng.uniform(0.01, 0.99, (100_000, 20, 1)).astype(np.float32)
    y = np.ones((100_000, 1))
    tracemalloc.start()
    gate = fit(P, y, EVERY_LOSS[name])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_on_simplex(gate.weights_)
    in_double_precision = 8 * P.size
    assert peak < 1.5 * in_double_precision


@pytest.mark.parametrize("name", ["squared_error", "poisson", "absolute_error"])
def test_single_precision_and_memory_order_do_not_matter(name):
    loss = EVERY_LOSS[name]
    P, y = problem(loss, seed=11)
    single = P.astype(np.float32)
    reference = fit(single.astype(np.float64), y, loss).weights_
    np.testing.assert_allclose(fit(single, y, loss).weights_, reference, atol=1e-9)
    np.testing.assert_allclose(
        fit(np.asfortranarray(single), y, loss).weights_, reference, atol=1e-9
    )
    np.testing.assert_allclose(fit(single[::-1][::-1], y, loss).weights_, reference, atol=1e-9)


@pytest.mark.parametrize("name", ["squared_error", "huber", "absolute_error"])
def test_same_to_the_bit_on_any_number_of_threads(name):
    rng = np.random.default_rng(0)
    P, y = rng.standard_normal((40_000, 12, 1)), rng.standard_normal((40_000, 1))
    weights = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads, user_api="blas"):
            weights.append(fit(P, y, EVERY_LOSS[name]).weights_)
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])


def test_fits_in_several_threads_leave_blas_as_it_was():
    P, y = problem(squared_error())
    before = [library["num_threads"] for library in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        fits = [pool.submit(fit, P, y, huber()) for _ in range(16)]
        weights = [each.result().weights_ for each in fits]
    assert [library["num_threads"] for library in threadpool_info()] == before
    for each in weights:
        np.testing.assert_array_equal(each, weights[0])


def test_sums_over_blocks_are_sums():
    with one_blas_thread():
        check_sums_over_blocks()


def check_sums_over_blocks():
    rng = np.random.default_rng(0)
    P = rng.standard_normal((3000, 70, 2)).astype(np.float32)
    blocks = RowBlocks(P, threads=2)
    weights, factor, centre = rng.random(70), rng.random((3000, 2)), rng.random((3000, 2))
    centred = P.astype(np.float64) - centre[:, np.newaxis]
    np.testing.assert_allclose(blocks.mixture(weights), global_average(weights, P), rtol=1e-9)
    np.testing.assert_allclose(
        blocks.moments(factor, centre), np.einsum("nk,nmk->m", factor, centred), rtol=1e-9
    )
    some = np.array([3, 60, 7])
    np.testing.assert_allclose(
        blocks.gram(factor, centre, some),
        np.einsum("nk,nak,nbk->ab", factor, centred[:, some], centred[:, some]),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        blocks.risks(np.subtract, centre, factor),
        np.einsum("nk,nmk->m", -factor, centred),
        rtol=1e-9,
    )


def test_predict_weights_repeats_the_weights():
    P, y = problem(squared_error())
    gate = fit(P, y, squared_error())
    weights = gate.predict_weights(np.zeros((3, 1)))
    assert weights.shape == (3, 6)
    np.testing.assert_array_equal(weights, np.tile(gate.weights_, (3, 1)))
    weights[0] = 0  # a copy: the gate does not change
    assert gate.weights_.sum() == pytest.approx(1)


def test_arrays_and_restore():
    P, y = problem(huber())
    gate = fit(P, y, huber())
    again = GlobalGate().restore(gate.arrays())
    np.testing.assert_array_equal(again.weights_, gate.weights_)
    assert (again.risk_, again.gap_, again.n_iter_) == (gate.risk_, gate.gap_, gate.n_iter_)
    equal = EqualGate().fit(Labelled.of(np.zeros((300, 1)), P, y, loss=huber()))
    np.testing.assert_array_equal(
        EqualGate().restore(equal.arrays()).predict_weights(np.zeros((2, 1))),
        np.full((2, 6), 1 / 6),
    )


# Messages.


def test_a_gap_that_is_not_reached_warns():
    P, y = problem(huber())
    with pytest.warns(
        ConvergenceWarning,
        match=r"stopped at a gap of \S+ for loss 'huber'; the target was \S+\. Raise max_iter=1",
    ):
        gate = fit(P, y, huber(), max_iter=1)
    assert gate.gap_ > 1e-8 * equal_risk(P, y, huber())
    assert_on_simplex(gate.weights_)


def test_a_looser_tolerance_is_enough():
    P, y = problem(get_loss("absolute_error"))
    loose = fit(P, y, get_loss("absolute_error"), tol=1e-2)
    tight = fit(P, y, get_loss("absolute_error"), tol=1e-6)
    assert loose.n_iter_ < tight.n_iter_
    assert tight.gap_ <= 1e-6 * equal_risk(P, y, get_loss("absolute_error"))


@pytest.mark.parametrize("tol", [0.0, -1e-8, np.nan])
def test_tolerance_is_positive(tol):
    P, y = problem(huber())
    with pytest.raises(
        InvalidInputError, match=r"tol of GlobalGate must be > 0, or None; received .*Leave"
    ):
        fit(P, y, huber(), tol=tol)


def test_shapes_are_checked():
    P, y = problem(huber())
    message = r"P of shape \(n, M, K\).*inputs, P \(300, 6\) and y \(300, 1\)\. Give a single"
    with pytest.raises(InvalidInputError, match=message):
        fit(P[:, :, 0], y, huber())
    with pytest.raises(InvalidInputError, match=r"P \(300, 6, 1\) and y \(300,\)"):
        fit(P, y[:, 0], huber())


@pytest.mark.parametrize(
    "weight", [np.ones(5), np.zeros(300), np.r_[-1.0, np.ones(299)], np.full(300, np.nan)]
)
def test_sample_weight_is_checked(weight):
    P, y = problem(huber())
    message = r"sample_weight must have shape \(300,\), be finite and non-negative.*Leave it out"
    with pytest.raises(InvalidInputError, match=message):
        fit(P, y, huber(), sample_weight=weight)


@pytest.mark.parametrize("name", ["squared_error", "huber"])
def test_a_loss_that_is_not_finite_is_refused(name):
    P, y = problem(squared_error())
    P[0, 0] = np.nan
    message = rf"The mean loss '{name}' of equal weights must be finite; it is nan\. Look for"
    with pytest.raises(InvalidInputError, match=message):
        fit(P, y, EVERY_LOSS[name])


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.array([0.7, 0.7])},
        {"weights": np.array([1.5, -0.5])},
        {"weights": np.ones((1, 1))},
        {"gap": np.zeros(2)},
        {"more": np.zeros(2)},
    ],
)
def test_restore_checks_its_arrays(change):
    arrays = {"weights": np.array([0.5, 0.5])} | dict.fromkeys(["risk", "gap"], np.array(0.1))
    arrays |= {"n_iter": np.array(3)}
    assert GlobalGate().restore(arrays).n_iter_ == 3
    with pytest.raises(
        FileFormatError, match=r"GlobalGate is restored from arrays|'weights' must hold"
    ):
        GlobalGate().restore(arrays | change)


@pytest.mark.parametrize("count", [np.array(0), np.array([3]), np.array(1.5)])
def test_restore_of_equal_weights_checks_its_array(count):
    with pytest.raises(
        FileFormatError, match=r"EqualGate (is restored from|must weigh)|type float64"
    ):
        EqualGate().restore({"n_candidates": count})


@pytest.mark.parametrize("gate", [EqualGate(), GlobalGate()])
def test_gates_must_be_fitted(gate):
    with pytest.raises(NotFittedError):
        clone(gate).predict_weights(np.zeros((1, 1)))
