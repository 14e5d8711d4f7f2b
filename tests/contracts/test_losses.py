"""The contract of losses: every property over every loss of the registry."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import textwrap
from dataclasses import replace
from math import inf, log

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special
from scipy.optimize import brentq
from sklearn import metrics

from localma.checks.losses import check_predictions, check_targets, try_loss
from localma.errors import InvalidInputError
from localma.losses import (
    ALIASES,
    LOSSES,
    NOT_LOSSES,
    POSITIVE,
    PROBABILITY_FLOOR,
    Interval,
    Loss,
    absolute_error,
    bernoulli,
    brier,
    cross_entropy,
    gamma,
    get_loss,
    huber,
    inverse_gaussian,
    is_registered,
    pinball,
    poisson,
    squared_error,
    tweedie,
)

CASES = [make() for make in LOSSES.values()]
CASES += [huber(delta=0.3), huber(delta=10), pinball(quantile=0.1), pinball(quantile=0.95)]
CASES += [tweedie(power=power) for power in (-1.5, 0, 1, 1.05, 1.95, 2, 2.5, 3, 4)]

# All but the one whose target is always the end of its domain.
scalar_losses = [loss for loss in CASES if loss.name != "cross_entropy"]

every_loss = pytest.mark.parametrize("loss", CASES, ids=repr)


def points(domain: Interval) -> np.ndarray:
    """Values inside a domain, away from its ends; the end itself where there is no inside."""
    if domain.low == domain.high:
        return np.array([float(domain.low)])
    if domain.high == 1:
        return np.array([0.02, 0.2, 0.45, 0.7, 0.97])
    positive = np.array([0.05, 0.4, 1.3, 6.0, 90.0])
    return positive if domain.low == 0 else np.concatenate([-positive, positive])


def pairs(loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """Every target with every prediction, shifted so that no pair sits on a kink."""
    y, mu = np.meshgrid(points(loss.target), points(loss.prediction) * 1.001)
    return y.ravel(), mu.ravel()


def slope(loss: Loss, y: np.ndarray, mu: np.ndarray, step: np.ndarray) -> np.ndarray:
    return (loss.value(y, mu + step) - loss.value(y, mu - step)) / (2 * step)


# Values.


@pytest.mark.parametrize(
    ("loss", "y", "mu", "expected"),
    [
        (squared_error(), 3, 1, 4),  # (3 - 1)^2, without a half
        (absolute_error(), 3, 1, 2),
        (huber(delta=1), 0, 0.5, 0.125),  # 0.5^2 / 2
        (huber(delta=1), 3, 0, 2.5),  # 1 (3 - 1/2)
        (pinball(quantile=0.9), 3, 1, 1.8),  # 0.9 * 2
        (pinball(quantile=0.9), 1, 3, 0.2),  # 0.1 * 2
        (cross_entropy(), 1, 0.25, log(4)),
        (brier(), 1, 0.25, 0.5625),  # 0.75^2
        (poisson(), 2, 1, 4 * log(2) - 2),  # 2 [2 log 2 - 2 + 1]
        (poisson(), 0, 3, 6),  # 0 log 0 = 0 leaves 2 mu
        (gamma(), 2, 1, 2 - 2 * log(2)),  # 2 [log(1/2) + 2 - 1]
        (inverse_gaussian(), 2, 1, 0.5),  # 1^2 / (2 * 1^2)
        (tweedie(power=1.5), 4, 1, 4),  # 2 [2/(-1/4) - 4/(-1/2) + 1/(1/2)] = 2 [-8 + 8 + 2]
        (tweedie(power=1.5), 0, 4, 8),  # 2 * 4^(1/2) / (1/2)
        (tweedie(power=-1), 2, 1, 4 / 3),  # 2 [8/6 - 2/2 + 1/3]
        (tweedie(power=-1), -2, 1, 8 / 3),  # 2 [0 + 2/2 + 1/3]
        (bernoulli(), 1, 0.5, 2 * log(2)),
        (bernoulli(), 0.5, 0.25, log(2) + log(2 / 3)),  # 2 [log(2)/2 + log(.5/.75)/2]
    ],
)
def test_values_by_hand(loss, y, mu, expected):
    value = loss.value(np.array([float(y)]), np.array([float(mu)]))
    np.testing.assert_allclose(value, [expected], rtol=1e-13)


@pytest.mark.parametrize("power", [-1.5, 0, 1, 1.2, 1.5, 1.9, 2, 2.5, 3, 5])
def test_tweedie_is_scikit_learns_deviance(power):
    rng = np.random.default_rng(0)
    y, mu = rng.gamma(1.5, 3, size=(2, 200))
    expected = metrics.mean_tweedie_deviance(y, mu, power=power)
    assert tweedie(power).value(y, mu).mean() == pytest.approx(expected, rel=1e-10)


def test_named_deviances_are_scikit_learns():
    rng = np.random.default_rng(1)
    counts, (amounts, mu) = rng.poisson(2, 300).astype(float), rng.gamma(1.5, 3, size=(2, 300))
    for loss, y, expected in [
        (squared_error(), amounts, metrics.mean_squared_error(amounts, mu)),
        (absolute_error(), amounts, metrics.mean_absolute_error(amounts, mu)),
        (pinball(0.3), amounts, metrics.mean_pinball_loss(amounts, mu, alpha=0.3)),
        (poisson(), counts, metrics.mean_poisson_deviance(counts, mu)),
        (gamma(), amounts, metrics.mean_gamma_deviance(amounts, mu)),
        (inverse_gaussian(), amounts, metrics.mean_tweedie_deviance(amounts, mu, power=3)),
    ]:
        assert loss.value(y, mu).mean() == pytest.approx(expected, rel=1e-12), loss


def test_probability_losses_are_scikit_learns():
    rng = np.random.default_rng(2)
    labels, probabilities = rng.integers(3, size=100), rng.dirichlet(np.ones(3), size=100)
    observed = probabilities[np.arange(100), labels]
    mean = cross_entropy().value(np.ones(100), observed).mean()
    assert mean == pytest.approx(metrics.log_loss(labels, probabilities), rel=1e-12)
    binary, p = (labels > 0).astype(float), probabilities[:, 0]
    one_hot, both = np.stack([1 - binary, binary], 1), np.stack([1 - p, p], 1)
    expected = metrics.brier_score_loss(binary, p)
    assert brier().value(one_hot, both).mean(axis=1).mean() == pytest.approx(expected, rel=1e-12)


def test_robust_and_divergence_losses_are_scipys():
    rng = np.random.default_rng(3)
    y, mu = rng.normal(size=(2, 100)) * 3
    np.testing.assert_allclose(huber(0.8).value(y, mu), special.huber(0.8, y - mu), rtol=1e-12)
    y, mu = rng.uniform(size=(2, 100))
    both = special.rel_entr(y, mu) + special.rel_entr(1 - y, 1 - mu)
    np.testing.assert_allclose(bernoulli().value(y, mu), 2 * both, atol=1e-14)
    np.testing.assert_allclose(poisson().value(y, mu), 2 * special.kl_div(y, mu), atol=1e-14)


def test_bernoulli_of_a_label_is_twice_the_cross_entropy_of_the_observed_class():
    mu = np.array([0.2, 0.2])
    observed = cross_entropy().value(np.ones(2), np.array([0.8, 0.2]))
    np.testing.assert_allclose(bernoulli().value(np.array([0.0, 1.0]), mu), 2 * observed)


# Derivatives, minima, curvature.


@every_loss
def test_derivative_is_the_slope_of_the_value(loss):
    y, mu = pairs(loss)
    step = 1e-5 * np.minimum(np.abs(mu), loss.prediction.high - mu)
    rounding = 1e-15 * (np.abs(y) + loss.value(y, mu)).max() / step
    error = np.abs(loss.derivative(y, mu) - slope(loss, y, mu, step))
    assert (error <= 1e-6 * np.abs(loss.derivative(y, mu)) + rounding).all()


floored_losses = [loss for loss in CASES if "floor" in getattr(loss.derivative, "keywords", {})]


@pytest.mark.parametrize("loss", floored_losses, ids=repr)
def test_derivative_below_the_floor_is_the_slope_of_the_value(loss):
    floor = loss.derivative.keywords["floor"]
    y = points(loss.target)
    mu = np.full_like(y, 0.4 * floor)
    expected = slope(loss, y, mu, np.full_like(y, 0.2 * floor))
    np.testing.assert_allclose(loss.derivative(y, mu), expected, rtol=1e-3)


@every_loss
def test_minimum_is_at_the_truth(loss):
    for y in points(loss.target):
        if not loss.prediction.contains(y):
            continue
        others = points(loss.prediction)
        others = others[others != y]
        least = loss.value(np.array([y]), np.array([y]))
        there = loss.value(np.full_like(others, y), others)
        assert least == pytest.approx(0, abs=1e-14 * (1 + there.max()))
        assert (there > least).all()
        if loss.name != "cross_entropy":  # its minimum is the end of its domain
            slope_there = loss.derivative(np.array([y]), np.array([y]))
            assert slope_there == pytest.approx(0, abs=1e-12)


def chords_above(loss: Loss) -> np.ndarray:
    """How far the middle of each chord in mu lies above the loss, relative to the loss there."""
    grid = np.concatenate([points(loss.prediction), points(loss.prediction) * 0.3])
    y, left, right = (
        axis.ravel() for axis in np.meshgrid(points(loss.target), grid, grid, indexing="ij")
    )
    middle = loss.value(y, (left + right) / 2)
    return ((loss.value(y, left) + loss.value(y, right)) / 2 - middle) / (1 + middle)


@every_loss
def test_convex_is_true_exactly_where_every_chord_lies_above(loss):
    assert (chords_above(loss).min() >= -1e-12) == loss.convex


@pytest.mark.parametrize("loss", scalar_losses, ids=repr)
def test_smooth_is_true_exactly_where_the_derivative_is_continuous_at_the_target(loss):
    y = points(loss.target)
    y = y[loss.prediction.contains(y) & (y < loss.prediction.high)]
    jump = loss.derivative(y, y * (1 + 1e-9)) - loss.derivative(y, y * (1 - 1e-9))
    assert (np.abs(jump) < 1e-3).all() == loss.smooth


@every_loss
def test_location_is_true_exactly_where_the_value_depends_on_the_difference_alone(loss):
    y, mu = np.meshgrid(points(loss.target), points(loss.prediction))
    with np.errstate(all="ignore"):  # zero is outside of some domains
        moved = loss.value(y - y, mu - y)
    assert np.allclose(loss.value(y, mu), moved, equal_nan=False) == loss.location


# What a loss elicits.


def discrete_distribution(loss: Loss) -> tuple[np.ndarray, np.ndarray, float]:
    """Support, probabilities and mean of a discrete target, so that expectations are exact."""
    support = points(loss.target)
    support = support[support > 0]
    probabilities = np.arange(1.0, len(support) + 1) / np.arange(1, len(support) + 1).sum()
    return support, probabilities, float(probabilities @ support)


def expected_loss(loss: Loss, support, probabilities, f: np.ndarray) -> np.ndarray:
    return probabilities @ loss.value(*np.broadcast_arrays(support[:, None], f))


@pytest.mark.parametrize("loss", scalar_losses, ids=repr)
def test_remark_1_holds_exactly_for_losses_that_elicit_the_mean(loss):
    # E loss(Y, f) - loss(f0, f) = E loss(Y, f0) for every f: the paper's delta, free of f.
    support, probabilities, f0 = discrete_distribution(loss)
    f = np.append(points(loss.prediction), f0)
    risk = expected_loss(loss, support, probabilities, f)
    excess = risk - loss.value(np.full_like(f, f0), f)
    constant = np.allclose(excess, risk[-1], rtol=0, atol=1e-10 * np.abs(risk).max())
    assert constant == (loss.elicits == "mean")


def test_remark_1_for_cross_entropy_over_classes():
    # Rows are probabilities f of three classes; -sum_k f0_k log f_k is E loss(Y, f) itself.
    f0 = np.array([0.5, 0.3, 0.2])
    f = np.random.default_rng(4).dirichlet(np.ones(3), size=20)
    loss = cross_entropy()
    risk = (f0 * loss.value(np.ones_like(f), f)).sum(axis=1)
    np.testing.assert_allclose(
        risk - loss.value(np.tile(f0, (20, 1)), f).sum(axis=1), 0, atol=1e-14
    )
    least = (f0 * loss.value(np.ones(3), f0)).sum()
    assert (risk > least).all()


@pytest.mark.parametrize("loss", scalar_losses, ids=repr)
def test_what_is_elicited_minimises_the_expected_loss(loss):
    support, probabilities, mean = discrete_distribution(loss)
    cumulated = probabilities.cumsum()
    if loss.elicits == "mean":
        best = mean
    elif loss.elicits == "huber location":
        best = huber_location(loss, support, probabilities)
    else:
        best = support[np.searchsorted(cumulated, loss.parameters.get("quantile", 0.5))]
    others = best + (support[-1] - support[0]) * np.linspace(-0.2, 0.2, 41)
    others = others[loss.prediction.contains(others)]
    risk = expected_loss(loss, support, probabilities, others)
    least = expected_loss(loss, support, probabilities, np.array([best]))
    assert len(others) > 15
    assert (risk >= least - 1e-12).all()
    assert risk[[0, -1]].min() > least + 1e-6


def huber_location(loss, support, probabilities):
    def slope_at(f):
        return probabilities @ loss.derivative(support, np.full_like(support, f))

    return brentq(slope_at, support[0], support[-1], xtol=1e-12)


def test_huber_location_goes_from_the_median_to_the_mean():
    support, probabilities = np.array([0.0, 1.0, 8.0]), np.array([0.3, 0.4, 0.3])
    near_median, near_mean = (
        huber_location(huber(delta), support, probabilities) for delta in (1e-3, 100)
    )
    assert near_median == pytest.approx(1, abs=1e-3)
    assert near_mean == pytest.approx(2.8)


# Tweedie limits.


def test_tweedie_at_a_named_power_is_that_loss():
    y, mu = np.array([0.5, 2.0, 7.0]), np.array([1.0, 1.5, 30.0])
    for power, named in [(0, squared_error), (1, poisson), (2, gamma), (3, inverse_gaussian)]:
        loss = tweedie(power)
        np.testing.assert_array_equal(loss.value(y, mu), named().value(y, mu))
        np.testing.assert_array_equal(loss.derivative(y, mu), named().derivative(y, mu))
        assert (loss.target, loss.prediction) == (named().target, named().prediction)
        assert loss.convex == named().convex


@pytest.mark.parametrize("distance", [1e-4, 1e-8, 1e-13])
@pytest.mark.parametrize(
    ("limit", "sides"), [(1, [1]), (2, [-1, 1]), (3, [-1, 1])], ids=["poisson", "gamma", "ig"]
)
def test_tweedie_tends_to_its_limits(limit, sides, distance):
    # scikit-learn's formula divides by 1 - p and 2 - p, and loses all digits at 1e-13.
    y, mu = np.array([0.5, 2.0, 7.0]), np.array([1.0, 1.5, 30.0])
    for side in sides:
        near = tweedie(limit + side * distance)
        np.testing.assert_allclose(
            near.value(y, mu), tweedie(limit).value(y, mu), rtol=20 * distance + 1e-12
        )
        np.testing.assert_allclose(
            near.derivative(y, mu), tweedie(limit).derivative(y, mu), rtol=20 * distance + 1e-12
        )


# Ends of the domains, extremes, number types.


@every_loss
def test_finite_where_a_candidate_may_predict_the_end_of_a_domain(loss):
    ends = [
        end for end in (loss.prediction.low, loss.prediction.high) if loss.prediction.contains(end)
    ]
    target_ends = [e for e in (loss.target.low, loss.target.high) if loss.target.contains(e)]
    targets = np.append(points(loss.target), target_ends)
    for mu in [*ends, *(end + 1e-7 for end in ends if end == 1)]:
        predictions = np.full_like(targets, mu)
        assert np.isfinite(loss.value(targets, predictions)).all()
        assert np.isfinite(loss.derivative(targets, predictions)).all()


def test_which_losses_let_a_candidate_predict_zero():
    accepted = [repr(loss) for loss in CASES if loss.prediction.contains(0.0)]
    refused = [repr(loss) for loss in CASES if not loss.prediction.contains(0.0)]
    assert {"<Loss poisson()>", "<Loss tweedie(power=1.95)>", "<Loss bernoulli()>"} <= set(accepted)
    assert set(refused) == {"<Loss gamma()>", "<Loss inverse_gaussian()>"} | {
        f"<Loss tweedie(power={power:g})>" for power in (-1.5, 2, 2.5, 3, 4)
    }


def test_zero_probability_costs_the_documented_amount():
    y, q = np.ones(2), np.array([0.0, PROBABILITY_FLOOR])
    at_zero, at_floor = cross_entropy().value(y, q)
    assert at_floor == pytest.approx(50 * log(2))
    assert at_zero == pytest.approx(50 * log(2) + 1)
    np.testing.assert_array_equal(cross_entropy().derivative(y, q), [-(2.0**50), -(2.0**50)])


def test_zero_mean_and_zero_count_agree():
    zero = np.zeros(1)
    assert poisson().value(zero, zero) == 0
    assert poisson().derivative(zero, zero) == 2  # 2 mu rises from there
    assert bernoulli().value(zero, zero) == 0
    assert bernoulli().value(1 - zero, 1 - zero) == 0


def test_rounding_of_a_mixture_is_not_magnified():
    # Weights in single precision sum to 1 + 1e-7; all candidates say 1, the target is 0.
    above, at = bernoulli().value(np.zeros(2), np.array([1 + 1e-7, 1.0]))
    assert above == pytest.approx(at)


def within(domain: Interval, low: float, high: float, dtype) -> st.SearchStrategy[float]:
    """Numbers of a domain between two magnitudes, and its closed ends."""
    if domain.low == domain.high:
        return st.just(domain.low)
    width = np.finfo(dtype).bits
    ends = [end for end in (domain.low, domain.high) if domain.contains(end)]
    low, high = (float(dtype(bound)) for bound in (low, min(high, domain.high)))
    inside = st.floats(low, high, width=width)
    if domain.low == -inf:
        inside = st.floats(-high, high, width=width)
    return st.one_of(inside, st.sampled_from(ends)) if ends else inside


def drawn(data, loss: Loss, dtype, tiny: float, small: float, large: float):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=2, max_side=4))
    y = data.draw(hnp.arrays(dtype, shape, elements=within(loss.target, small, large, dtype)))
    mu = data.draw(hnp.arrays(dtype, shape, elements=within(loss.prediction, tiny, large, dtype)))
    return y, mu


@every_loss
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_finite_and_elementwise_everywhere_in_double_precision(loss, data):
    y, mu = drawn(data, loss, np.float64, 1e-300, 1e-9, 1e12)
    for result in (loss.value(y, mu), loss.derivative(y, mu)):
        assert result.shape == y.shape
        assert result.dtype == np.float64
        assert np.isfinite(result).all()


@every_loss
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_finite_in_single_precision(loss, data):
    # Warnings are errors: an overflow would show.
    y, mu = drawn(data, loss, np.float32, 1e-30, 1e-3, 1e5)
    for result in (loss.value(y, mu), loss.derivative(y, mu)):
        assert result.dtype == np.float32
        assert np.isfinite(result).all()


@every_loss
def test_single_precision_agrees_with_double(loss):
    y, mu = (array.astype(np.float32) for array in pairs(loss))
    expected = loss.derivative(y.astype(np.float64), mu.astype(np.float64))
    np.testing.assert_allclose(loss.derivative(y, mu), expected, rtol=1e-4, atol=1e-3)


def plain_function(function):
    return getattr(function, "func", function), dict(getattr(function, "keywords", {}))


@every_loss
def test_derivative_is_written_with_plain_operators(loss):
    function, _ = plain_function(loss.derivative)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    forbidden = (ast.Call, ast.Attribute, ast.IfExp, ast.If, ast.BoolOp)
    assert not [node for node in ast.walk(tree) if isinstance(node, forbidden)]


@every_loss
def test_derivative_compiles_in_numba(loss):
    function, keywords = plain_function(loss.derivative)
    compiled = numba.njit(function)
    y, mu = (array.astype(np.float32) for array in pairs(loss))
    keywords = {name: np.float32(value) for name, value in keywords.items()}
    result = [compiled(*pair, **keywords) for pair in zip(y, mu, strict=True)]
    np.testing.assert_allclose(result, loss.derivative(y, mu), rtol=1e-4, atol=1e-3)


@every_loss
def test_derivative_of_tensors_is_that_of_arrays(loss):
    torch = pytest.importorskip("torch")
    y, mu = pairs(loss)
    ends = [e for e in (loss.prediction.low, loss.prediction.high) if loss.prediction.contains(e)]
    y, mu = np.append(y, [y[0]] * len(ends)), np.append(mu, ends)
    for dtype in (torch.float64, torch.float32):
        targets, mixture = torch.tensor(y, dtype=dtype), torch.tensor(mu, dtype=dtype)
        result = loss.derivative(targets, mixture)
        assert result.dtype == dtype
        assert not result.requires_grad
        expected = loss.derivative(targets.numpy(), mixture.numpy())
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


# Identity, names, parameters.


@every_loss
def test_losses_survive_pickling_and_compare_by_name_and_parameters(loss):
    for same in (
        pickle.loads(pickle.dumps(loss)),
        copy.deepcopy(loss),
        get_loss(loss.name, **loss.parameters),
    ):
        assert same == loss
        assert hash(same) == hash(loss)
        y, mu = pairs(loss)
        np.testing.assert_array_equal(same.value(y, mu), loss.value(y, mu))
    assert is_registered(loss)


def test_different_losses_differ():
    assert len(set(CASES)) == len(CASES) == len({repr(loss) for loss in CASES})
    assert huber(1.0) != huber(2.0)
    assert tweedie(1) != poisson()
    assert huber().value != "huber"


def test_a_users_loss_is_not_registered_whatever_its_name():
    mine = Loss("poisson", squared_error().value, squared_error().derivative)
    assert not is_registered(mine)
    assert not is_registered(Loss("mine", mine.value, mine.derivative))
    assert not is_registered(Loss("huber", mine.value, mine.derivative, parameters={"c": 1.0}))


def test_get_loss_takes_names_aliases_and_losses():
    for name, make in LOSSES.items():
        assert get_loss(name) == make()
        assert make().name == name
        assert "``" in make.__doc__  # the equation
    for alias, name in ALIASES.items():
        assert alias not in LOSSES
        assert get_loss(alias) == LOSSES[name]()
    own = Loss("mine", np.subtract, np.subtract)
    assert get_loss(own) is own
    assert get_loss("quantile", quantile=0.9) == pinball(0.9)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("mse", "squared_error"),
        ("MSE", "squared_error"),
        ("l2", "squared_error"),
        ("mae", "absolute_error"),
        ("l1", "absolute_error"),
        ("mean-absolute-error", "absolute_error"),
        ("log_loss", "cross_entropy"),
        ("LogLoss", "cross_entropy"),
        ("cross-entropy", "cross_entropy"),
        ("Inverse Gaussian", "inverse_gaussian"),
    ],
)
def test_get_loss_takes_common_names(typed, name):
    assert get_loss(typed) == LOSSES[name]()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            "mape",
            r"'mape' cannot be used as a loss: it favours predictions that are too low, .*"
            r"'absolute_error'; with row weights of 1 / \|target\|",
        ),
        ("RMSE", "'RMSE' cannot be used as a loss: it is not a mean over rows. Use 'squared_err"),
        ("r2", "Use 'squared_error': the same weights are best for both"),
        ("deviance", "each distribution has its own. Use 'poisson', 'gamma'"),
        ("auc", "Use 'cross_entropy' or 'brier'"),
    ],
)
def test_get_loss_says_why_a_measure_is_no_loss(typed, words):
    with pytest.raises(InvalidInputError, match=words):
        get_loss(typed)


def test_no_measure_that_is_refused_is_a_loss():
    assert not set(NOT_LOSSES) & {*LOSSES, *ALIASES}


@pytest.mark.parametrize(
    ("arguments", "parameters", "words"),
    [
        (["squared_eror"], {}, "Unknown loss 'squared_eror'; did you mean 'squared_error'?"),
        (["gama"], {}, "Unknown loss 'gama'; did you mean 'gamma'?"),
        (["nothing"], {}, "Unknown loss 'nothing'. Known: 'absolute_error'"),
        ([None], {}, "Unknown loss None. Known: 'absolute_error', 'bernoulli', 'brier'"),
        ([["poisson"]], {}, r"Unknown loss \['poisson'\]"),
        (["poisson"], {"power": 1.0}, r"has the parameters: none; received \['power'\]. Leave"),
        (["huber"], {"d": 1.0}, r"has the parameters: 'delta'; received \['d'\]"),
        ([poisson()], {"power": 1.0}, r"already; received <Loss poisson\(\)> and .* or a Loss al"),
    ],
)
def test_get_loss_refuses(arguments, parameters, words):
    with pytest.raises(InvalidInputError, match=words):
        get_loss(*arguments, **parameters)


@pytest.mark.parametrize(
    ("make", "parameter", "words"),
    [
        (tweedie, 0.5, "between 0 and 1; received power=0.5. Use a power <= 0 or >= 1"),
        (tweedie, np.nan, "power must be a finite number; received nan. Pass a float"),
        (tweedie, "1.5", "power must be a finite number; received '1.5'"),
        (tweedie, True, "power must be a finite number; received True"),
        (huber, 0, "delta of the Huber loss must be > 0; received 0. Pass the size of error"),
        (huber, inf, "delta must be a finite number; received inf"),
        (pinball, 1, r"must lie in \(0, 1\); received 1. Pass 0.5 for the median"),
        (pinball, None, "quantile must be a finite number; received None"),
    ],
)
def test_parameters_outside_their_range_are_refused(make, parameter, words):
    with pytest.raises(InvalidInputError, match=words):
        make(parameter)


def test_a_loss_needs_two_functions():
    with pytest.raises(InvalidInputError, match="pair of functions; derivative of loss 'mine' is"):
        Loss("mine", np.subtract, None)


def test_parameters_are_stored_as_floats_so_that_single_precision_is_kept():
    loss = tweedie(np.float64(1.5))
    assert type(loss.parameters["power"]) is float
    one = np.ones(1, dtype=np.float32)
    assert loss.derivative(one, one).dtype == np.float32


# Domains.


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(), "(-inf, inf)"),
        (Interval(0, low_closed=True), "[0, inf)"),
        (Interval(0, 0.5, high_closed=True), "(0, 0.5]"),
    ],
)
def test_interval_says_what_it_is(interval, text):
    assert str(interval) == text


def test_interval_contains():
    values = [-inf, -0.1, 0.0, 0.5, 1.0, 1.1, inf, np.nan]
    half_open = Interval(0, 1, high_closed=True)
    assert half_open.contains(values).tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    assert half_open.contains(values, slack=0.2).tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert Interval().contains(values).tolist() == [0, 1, 1, 1, 1, 1, 0, 0]


@every_loss
def test_targets_and_predictions_inside_the_domains_pass(loss):
    check_targets(loss, points(loss.target))
    check_predictions(loss, np.stack([points(loss.prediction)] * 2, axis=1))


@every_loss
@pytest.mark.parametrize("bad", [np.nan, inf, -inf])
def test_what_is_not_finite_is_refused_by_every_loss(loss, bad):
    y = np.append(points(loss.target), bad)
    with pytest.raises(InvalidInputError, match=f"in row {len(y) - 1} .*Drop or complete the rows"):
        check_targets(loss, y)
    with pytest.raises(InvalidInputError, match=r"Correct that candidate or leave it out\.$"):
        check_predictions(loss, np.array([[points(loss.prediction)[0], bad]]))


@every_loss
def test_values_outside_a_bounded_domain_are_refused(loss):
    y, mu = points(loss.target), points(loss.prediction)
    if loss.target.low > -inf:
        rule = f"Loss '{loss.name}' takes targets in {loss.target}; received -1 in row 1"
        with pytest.raises(InvalidInputError) as caught:
            check_targets(loss, np.array([y[0], -1.0, -2.0]))
        assert rule in str(caught.value)
        assert "(2 of 3 values lie outside)" in str(caught.value)
        assert "accepts them: 'squared_error', 'absolute_error'" in str(caught.value)
    if loss.prediction.low > -inf:
        rule = f"takes predictions in {loss.prediction}; candidate 'b' predicts -1 in row 0"
        with pytest.raises(InvalidInputError) as caught:
            check_predictions(loss, np.array([[mu[0], -1.0]]), names=["a", "b"])
        assert rule in str(caught.value)
        assert "(1 of 2 values lies outside)" in str(caught.value)
        assert "or use a loss that accepts its predictions: 'squared_error'" in str(caught.value)


def test_way_out_names_only_losses_that_accept_the_values():
    with pytest.raises(InvalidInputError) as caught:
        check_targets(gamma(), np.array([[1.0, 2.0], [3.0, 0.0]]))
    message = str(caught.value)
    assert "takes targets in (0, inf); received 0 in row 1, output 1" in message
    assert "'poisson'" in message
    assert "'tweedie'" in message
    assert "'inverse_gaussian'" not in message
    assert "'bernoulli'" not in message


def test_labels_of_zero_and_one_are_led_from_cross_entropy_to_bernoulli():
    words = r"takes targets in \[1, 1\]; received 0 in row 0 .*accepts them: .*'bernoulli'"
    with pytest.raises(InvalidInputError, match=words):
        check_targets(cross_entropy(), np.array([0.0, 1.0]))


def test_predictions_with_several_outputs_and_no_names():
    P = np.ones((3, 2, 2))
    P[2, 1, 0] = 1.5
    with pytest.raises(InvalidInputError, match=r"candidate 1 predicts 1\.5 in row 2, output 0"):
        check_predictions(brier(), P)


def test_probabilities_may_overstep_by_rounding_but_means_may_not():
    check_predictions(cross_entropy(), np.array([[1 + 1e-7, -1e-7]]))
    with pytest.raises(InvalidInputError, match=r"predicts 1\.001"):
        check_predictions(cross_entropy(), np.array([[1.001]]))
    with pytest.raises(InvalidInputError, match="predicts -1e-07"):
        check_predictions(poisson(), np.array([[-1e-7]]))


# A user's own loss.


def test_a_loss_that_wrongly_says_that_it_is_of_the_difference_is_refused():
    relative = Loss(
        "relative",
        lambda y, mu: ((mu - y) / y) ** 2,
        lambda y, mu: 2 * (mu - y) / y**2,
        location=True,
    )
    with pytest.raises(InvalidInputError, match=r"depend on mu - y alone; .*Leave location= out"):
        try_loss(relative, np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 4.0]))
    try_loss(replace(relative, location=False), np.array([1.0, 2.0]), np.array([2.0, 2.0]))


Y, MIXTURE = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 2.5, 1.0, 4.0])


def own(value, derivative, **fields) -> Loss:
    return Loss("mine", value, derivative, **fields)


def squared(y, mu):
    return (y - mu) ** 2


def squared_slope(y, mu):
    return 2 * (mu - y)


@every_loss
def test_every_loss_of_the_registry_passes_the_trial(loss):
    y, mu = pairs(loss)
    for start in range(len(y) - 2):
        try_loss(loss, y[start : start + 3], mu[start : start + 3])
    inside = points(loss.prediction)[:2]
    try_loss(loss, np.full((2, 1), points(loss.target)[0]), inside.repeat(2)[:2, None])


@every_loss
def test_the_trial_holds_at_the_ends_of_the_domain(loss):
    for end in (loss.prediction.low, loss.prediction.high):
        if loss.prediction.contains(end):
            try_loss(loss, points(loss.target)[:1], np.array([end]))


def poisson_likelihood(y, mu):
    return mu - y * np.log(mu)


def test_a_loss_counts_from_a_perfect_prediction():
    shifted = own(lambda y, mu: squared(y, mu) + 100.0, squared_slope)
    with pytest.raises(InvalidInputError, match=r"zero for a perfect .* y=1, mu=1 it is 100\. Ret"):
        try_loss(shifted, Y, MIXTURE)
    likelihood = own(poisson_likelihood, lambda y, mu: 1 - y / mu, prediction=POSITIVE)
    with pytest.raises(InvalidInputError, match=r"Return value\(y, mu\) - value\(y, y\) instead"):
        try_loss(likelihood, Y, MIXTURE)
    # The first, middle and last row are zero, where the likelihood of mu = y is not defined.
    with pytest.raises(InvalidInputError, match=r"at y=3, mu=3 it is"):
        try_loss(likelihood, np.array([0.0, 3.0, 0.0, 0.0]), np.ones(4))

    def counted(y, mu):
        return poisson_likelihood(y, mu) - poisson_likelihood(y, y)

    try_loss(replace(likelihood, value=counted), Y, MIXTURE)


def test_a_loss_is_not_asked_about_targets_that_are_no_predictions():
    def strict(y, mu):
        if (mu <= 0).any():
            raise ValueError("mu must be positive")
        return mu - y + np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / mu), 0.0)

    counts = own(strict, lambda y, mu: 1 - y / mu, prediction=POSITIVE)
    try_loss(counts, np.array([0.0, 3.0, 0.0]), np.ones(3))
    try_loss(counts, np.zeros(3), np.ones(3))


def test_a_loss_may_be_rounded_off_at_its_kink():
    def rounded_off(y, mu):
        return np.sqrt((mu - y) ** 2 + 1e-6)

    try_loss(own(rounded_off, lambda y, mu: (mu - y) / rounded_off(y, mu)), Y, MIXTURE)


def test_a_good_loss_of_ones_own_passes_with_several_outputs_and_few_rows():
    try_loss(own(squared, squared_slope), Y, MIXTURE)
    try_loss(own(squared, squared_slope), Y.reshape(2, 2), MIXTURE.reshape(2, 2))
    try_loss(own(squared, squared_slope), 1e6 * Y, np.zeros(4))
    kinked = own(lambda y, mu: abs(y - mu), lambda y, mu: np.where(mu >= y, 1, -1), smooth=False)
    try_loss(kinked, Y, Y)  # 1 is a subgradient at the kink


def fail(y, mu):
    raise KeyError("rows")


@pytest.mark.parametrize(
    ("value", "derivative", "words"),
    [
        (
            lambda y, mu: squared(y, mu).mean(),
            squared_slope,
            r"value must be .* returned shape \(\)",
        ),
        (
            squared,
            lambda y, mu: np.zeros(2),
            r"derivative must be elementwise, of shape \(3,\) her",
        ),
        (squared, fail, "its derivative must map two arrays .* it raised KeyError: 'rows'. Try it"),
        (
            lambda y, mu: y / (mu - 0.5),
            squared_slope,
            "value must be finite; it is inf at y=1, mu=0",
        ),
        (squared, lambda y, mu: np.log(mu - y), "derivative must be finite; it is nan at y=1"),
        (squared, lambda y, mu: mu - y, "at y=1, mu=0.5 it is -0.5, but .* slope -1. Correct its"),
        (squared, lambda y, mu: -squared_slope(y, mu), "must be that of the value in its second"),
        (lambda y, mu: 1e-9 * squared(y, mu), lambda y, mu: 1e-9 * (mu - y), "changes with slope"),
    ],
)
def test_a_bad_loss_of_ones_own_is_refused(value, derivative, words):
    with pytest.raises(InvalidInputError, match="^Loss 'mine': .*" + words):
        try_loss(own(value, derivative), Y, MIXTURE)


def test_an_error_inside_a_loss_is_kept_as_the_cause():
    with pytest.raises(InvalidInputError) as caught:
        try_loss(own(fail, squared_slope), Y, MIXTURE)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_wrong_derivative_is_found_at_large_targets_and_small_predictions():
    with pytest.raises(InvalidInputError, match="slope -2e"):
        try_loss(own(squared, lambda y, mu: mu - y), 1e6 * np.ones(3), np.zeros(3))


def test_the_trial_stays_inside_the_declared_domain():
    log_loss = own(
        lambda y, mu: -np.log(1 - mu), lambda y, mu: 1 / (1 - mu), prediction=Interval(0, 1)
    )
    try_loss(log_loss, np.zeros(3), np.array([1e-9, 0.5, 1 - 1e-9]))
