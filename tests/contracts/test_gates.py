"""The contract of every gate: one suite, run over all of them."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone

from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError
from localma.folds import make_folds
from localma.gates import (
    EqualGate,
    GlobalGate,
    ImageGate,
    Labelled,
    MLPGate,
    ShrunkGate,
    TextGate,
    TorchGate,
    TreeGate,
)
from localma.losses import get_loss
from tests.tiny_models import as_images, as_texts, tiny_body, tiny_encoder


def small_network(n_candidates):
    """Takes any number of inputs: it learns how many there are from the first batch."""
    from torch import nn

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Lazy modules are a new feature", UserWarning)
        return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, n_candidates))


def torch_gates():
    """Gates that need PyTorch and accelerate, where these are installed."""
    if not (find_spec("torch") and find_spec("accelerate")):
        return {}
    base = TorchGate(small_network, batch_size=128, n_epochs=30, learning_rate=0.05)
    return {
        "torch": TorchGate(small_network, n_epochs=30, learning_rate=0.03, random_state=0),
        "shrunk_torch": ShrunkGate(base, cv=2, strengths=(0.1,), n_restarts=1, random_state=0),
    }


class NumbersAsImages(ImageGate):
    """An ImageGate for tables: each number becomes a stripe of an image."""

    def _rows(self, X, *, fitting):
        return super()._rows(as_images(X), fitting=fitting)


class NumbersAsTexts(TextGate):
    """A TextGate for tables: each number becomes repetitions of a word."""

    def _rows(self, X, *, fitting):
        return super()._rows(as_texts(X), fitting=fitting)

    def _folder(self):
        return tiny_encoder()  # made only where a test needs it


def raw_gates():
    """Gates over images and texts, where what they need is installed."""
    if not (find_spec("torch") and find_spec("accelerate")):
        return {}
    steps = {"n_epochs": 15, "learning_rate": 0.02, "patience": 15, "random_state": 0}
    head = MLPGate((8,), n_steps=60)
    images = {
        "image": NumbersAsImages(tiny_body, **steps),
        "image_frozen": NumbersAsImages(tiny_body, frozen=True, head=head, random_state=0),
    }
    if not find_spec("transformers"):
        return images
    return images | {
        "text": NumbersAsTexts("tiny", **steps),
        "text_frozen": NumbersAsTexts("tiny", frozen=True, head=head, random_state=0),
    }


GATES = {
    "equal": EqualGate(),
    "global": GlobalGate(),
    "linear": MLPGate(hidden=(), n_steps=60, random_state=0),
    "mlp": MLPGate(hidden=(8,), n_steps=60, random_state=0),
    "mlp_deep": MLPGate(hidden=(8, 4), n_steps=40, n_restarts=2, random_state=0),
    "paper": MLPGate.paper(random_state=0),
    "trees": TreeGate(shrinkage=0.05, random_state=0),
    "shrunk": ShrunkGate(cv=2, n_restarts=2, random_state=0),
    "shrunk_base": ShrunkGate(MLPGate((4, 3), n_steps=60), cv=2, linear=False, random_state=0),
    **torch_gates(),
    **raw_gates(),
}
LEARNING = [name for name in GATES if name != "equal"]
LOCAL = [name for name in LEARNING if name != "global"]
SHRINKABLE = [name for name in LOCAL if name != "paper" and not name.startswith("shrunk")]
IN_TORCH = ("torch", "image", "text")
NETWORKS = [n for n in [*SHRINKABLE, "paper"] if n != "trees" and not n.startswith(IN_TORCH)]
EVERY_GATE = pytest.mark.parametrize("name", GATES)


def problem(n=80, p=3, M=3, K=1, seed=0):
    """Candidates that are right in different places, so that weights have something to learn."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    truth = np.stack([X[:, 0] + k for k in range(K)], axis=1)
    error = np.stack([np.abs(X[:, 0] - c)[:, None] for c in np.linspace(-1, 1, M)], axis=1)
    P = truth[:, None, :] + error * rng.choice([-1.0, 1.0], size=(n, M, 1))
    y = truth + 0.1 * rng.normal(size=(n, K))
    return X, P, y


def fitted(name, X, P, y, loss="squared_error", sample_weight=None, folds=None):
    data = Labelled.of(X, P, y, loss=get_loss(loss), sample_weight=sample_weight)
    return clone(GATES[name]).fit(data, folds=folds)


def assert_on_simplex(W, n, M):
    assert W.shape == (n, M)
    assert np.isfinite(W).all()
    assert (W >= 0).all()
    np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-6)


@EVERY_GATE
@pytest.mark.parametrize(
    ("n", "p", "M", "K"), [(2, 1, 1, 1), (40, 3, 4, 1), (30, 2, 3, 2), (5, 9, 7, 1)]
)
def test_weights_are_on_the_simplex(name, n, p, M, K):
    X, P, y = problem(n, p, M, K)
    gate = fitted(name, X, P, y)
    assert_on_simplex(gate.predict_weights(X), n, M)
    assert_on_simplex(gate.predict_weights(X[:1]), 1, M)


@EVERY_GATE
def test_finite_far_away(name):
    X, P, y = problem()
    gate = fitted(name, X, P, y)
    for size in (1e6, -1e6):
        assert_on_simplex(gate.predict_weights(np.full((2, 3), size)), 2, 3)


@EVERY_GATE
def test_deterministic_under_random_state(name):
    X, P, y = problem()
    first, second = (fitted(name, X, P, y).predict_weights(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@EVERY_GATE
def test_order_of_rows_does_not_matter(name):
    X, P, y = problem()
    order = np.random.default_rng(1).permutation(len(X))
    folds = make_folds(3, y, random_state=0)
    place = np.argsort(order)
    moved = [(place[train], place[test]) for train, test in folds]
    straight = fitted(name, X, P, y, folds=folds).predict_weights(X)
    shuffled = fitted(name, X[order], P[order], y[order], folds=moved).predict_weights(X)
    np.testing.assert_allclose(straight, shuffled, atol=1e-4)


@EVERY_GATE
def test_order_of_candidates_permutes_the_weights(name):
    X, P, y = problem()
    order = np.array([2, 0, 1])
    straight = fitted(name, X, P, y)
    permuted = fitted(name, X, P[:, order], y)
    np.testing.assert_allclose(
        straight.predict_weights(X)[:, order], permuted.predict_weights(X), atol=1e-4
    )


@EVERY_GATE
def test_one_candidate_gets_everything(name):
    X, P, y = problem(M=1)
    np.testing.assert_allclose(fitted(name, X, P, y).predict_weights(X), 1.0)


@EVERY_GATE
def test_identical_candidates_leave_the_prediction_unchanged(name):
    X, P, y = problem(M=1)
    twins = np.repeat(P, 3, axis=1)
    mixture = local_average(fitted(name, X, twins, y).predict_weights(X), twins)
    np.testing.assert_allclose(mixture, P[:, 0], rtol=1e-6, atol=1e-6)


@EVERY_GATE
def test_rows_without_weight_do_not_matter(name):
    X, P, y = problem()
    weight = np.r_[np.ones(60), np.zeros(20)]
    spoilt = y.copy()
    spoilt[60:] = 1e3
    kept = fitted(name, X, P, y, sample_weight=weight).predict_weights(X)
    np.testing.assert_allclose(
        fitted(name, X, P, spoilt, sample_weight=weight).predict_weights(X), kept, atol=1e-5
    )


@EVERY_GATE
def test_scale_of_sample_weight_does_not_matter(name):
    X, P, y = problem()
    weight = np.random.default_rng(2).uniform(0.5, 2, len(X))
    one = fitted(name, X, P, y, sample_weight=weight).predict_weights(X)
    for scale in (10.0, 1e-200, 1e155):
        other = fitted(name, X, P, y, sample_weight=scale * weight).predict_weights(X)
        np.testing.assert_allclose(one, other, atol=1e-3)


@EVERY_GATE
def test_level_of_the_target_does_not_matter(name):
    """Weights sum to one, so a loss of the difference sees no level: seconds since 1970 do."""
    X, P, y = problem()
    near = fitted(name, X, P, y).predict_weights(X)
    far = fitted(name, X, P + 2.0**31, y + 2.0**31).predict_weights(X)
    np.testing.assert_allclose(far, near, atol=5e-3)


@EVERY_GATE
@pytest.mark.parametrize("unit", [1e-20, 1e-8, 1e8, 1e20])
def test_unit_of_the_target_does_not_matter(name, unit):
    X, P, y = problem()
    one = fitted(name, X, P, y).predict_weights(X)
    other = fitted(name, X, unit * P, unit * y).predict_weights(X)
    # The learning rate of the paper's gate never falls, which magnifies rounding.
    tolerance = 0.03 if name == "paper" else 1e-3
    np.testing.assert_allclose(other, one, atol=tolerance)


@EVERY_GATE
def test_state_survives_arrays_and_restore(name):
    X, P, y = problem()
    gate = fitted(name, X, P, y)
    again = clone(gate).restore(gate.arrays())
    np.testing.assert_array_equal(gate.predict_weights(X), again.predict_weights(X))


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", "poisson", "gamma"])
def test_learning_beats_equal_weights_on_its_own_sample(name, loss):
    X, P, y = problem(n=200)
    P, y = np.abs(P) + 0.5, np.abs(y) + 0.5

    def risk(gate_name):
        weights = fitted(gate_name, X, P, y, loss=loss).predict_weights(X)
        return get_loss(loss).value(y, local_average(weights, P)).mean()

    assert risk(name) < risk("equal")


@pytest.mark.parametrize("name", LOCAL)
def test_local_beats_global_where_truth_is_local(name):
    X, P, y = problem(n=300)

    def risk(gate_name):
        weights = fitted(gate_name, X, P, y).predict_weights(X)
        return ((y - local_average(weights, P)) ** 2).mean()

    assert risk(name) < 0.8 * risk("global")


@pytest.mark.parametrize("name", SHRINKABLE)
def test_infinite_shrinkage_is_the_global_gate(name):
    X, P, y = problem()
    gate = clone(GATES[name]).set_params(shrinkage=np.inf)
    gate.fit(Labelled.of(X, P, y, loss=get_loss("squared_error")))
    constant = fitted("global", X, P, y)
    np.testing.assert_array_equal(gate.predict_weights(X), constant.predict_weights(X))


@pytest.mark.parametrize("name", NETWORKS)
def test_same_to_the_bit_on_one_and_two_threads(name):
    X, P, y = problem()
    one, two = (
        clone(GATES[name])
        .set_params(n_jobs=n, n_restarts=3)
        .fit(Labelled.of(X, P, y, loss=get_loss("squared_error")))
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.predict_weights(X), two.predict_weights(X))


def _weights_in_child(name, queue):
    X, P, y = problem()
    queue.put(fitted(name, X, P, y).predict_weights(X))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on this platform")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@EVERY_GATE
def test_same_to_the_bit_after_a_fork(name):
    X, P, y = problem()
    here = fitted(name, X, P, y).predict_weights(X)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_weights_in_child, args=(name, queue))
    child.start()
    there = queue.get(timeout=120)
    child.join(timeout=30)
    np.testing.assert_array_equal(here, there)


@EVERY_GATE
@settings(max_examples=12, deadline=None)
@given(
    X=arrays(np.float64, (6, 2), elements=st.floats(-1e6, 1e6)),
    P=arrays(np.float64, (6, 3, 1), elements=st.floats(-1e6, 1e6)),
    y=arrays(np.float64, (6, 1), elements=st.floats(-1e6, 1e6)),
)
def test_extremes_stay_on_the_simplex(name, X, P, y):
    gate = clone(GATES[name])
    if name in NETWORKS:
        gate.set_params(n_steps=10)
    if name.startswith(IN_TORCH):
        gate.set_params(n_epochs=10)
    weights = gate.fit(Labelled.of(X, P, y, loss=get_loss("squared_error"))).predict_weights(X)
    assert_on_simplex(weights, 6, 3)


@EVERY_GATE
def test_answers_about_itself_hold(name):
    """Who asks a gate need not know its class."""
    X, P, y = problem()
    gate = fitted(name, X, P, y)
    weights = gate.predict_weights(X)
    assert (gate.evidence is not None) == gate.needs_folds
    assert gate.is_global == (name == "global")
    assert gate.learns == (name != "equal")
    assert gate.outside(X) is None
    if gate.is_constant:
        np.testing.assert_array_equal(weights, np.tile(weights[:1], (len(X), 1)))
    if gate.fades:
        assert (gate.support(np.full((1, 3), 1e6)) < 0.01).all()
    if gate.evidence is None:
        assert list(gate.members) == [gate]
    else:
        assert not gate.evidence.has_band
        with pytest.raises(InvalidInputError, match="needs at least 3 folds that judge"):
            gate.evidence.weight_band(X)


@pytest.mark.parametrize("name", [name for name, gate in GATES.items() if gate.state])
def test_arrays_are_those_of_the_declared_state(name):
    gate = fitted(name, *problem())
    arrays = gate.arrays()
    assert list(arrays) == [saved.name for saved in gate.state]
    for saved in gate.state:
        assert arrays[saved.name].ndim == len(saved.axes)
        assert arrays[saved.name].dtype == saved.dtype
        without = {key: array for key, array in arrays.items() if key != saved.name}
        with pytest.raises(FileFormatError, match="is restored from arrays of the shapes"):
            clone(GATES[name]).restore(without)
