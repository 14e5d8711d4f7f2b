"""One pass of the kernel over all networks, guard and average: the numbers of one after another."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from localma import LocalMAClassifier, LocalMARegressor, load
from localma.equations import local_average, softmax
from localma.errors import FileFormatError, InvalidInputError
from localma.gates import EqualGate, GlobalGate, Labelled, MLPGate, ShrunkGate
from localma.gates.fused import engine
from localma.gates.fused.engine import evaluate
from localma.gates.fused.networks import Ensemble, Network, Stack
from localma.gates.points import MixedGates
from localma.gates.support import Fading, Support
from localma.losses import squared_error

SQUARED = squared_error()
BASE = MLPGate((8,), n_steps=40, learning_rate=0.05)


def draw(n, p, M, K=1, noise=0.1, seed=0):
    """Candidates that are right on different sides, so that local weights pay."""
    rng = np.random.default_rng(seed)
    X, P = rng.normal(size=(n, p)), rng.normal(size=(n, M, K))
    right = np.zeros(n, dtype=int) if p == 0 else (X[:, 0] > 0).astype(int) % M
    return X, P, P[np.arange(n), right] + noise * rng.normal(size=(n, K))


def near_and_far(X):
    """Rows within the sample, around its edge, and far beyond."""
    return np.concatenate([X[:40], 1.5 * X[:40], 3.0 * X[:40], 1e3 * X[:40], -1e300 * X[:3]])


def one_by_one(gate, mixed, X):
    """The weights of each gate by itself, averaged and faded in NumPy."""
    fading = gate._fading()
    if fading is None:
        return mixed.predict_weights(X)
    return fading(mixed.predict_weights(fading.support.clip(X)), X)


@pytest.fixture(scope="module")
def auto():
    X, P, y = draw(200, 3, 3, noise=1.0)  # in which no point of the path stands out
    return ShrunkGate(random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED)), X


class TestShrunkGate:
    def test_default(self, auto):
        gate, X = auto
        new = near_and_far(X)
        stack = gate.answer_.stack
        assert (len(stack.shapes), len(stack.standards)) == (2, 1)  # linear gates, and networks
        weights, support = gate.predict_weights(new), gate.support(new)
        np.testing.assert_allclose(weights, one_by_one(gate, gate.answer_, new), atol=1e-6)
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
        assert (weights >= 0.0).all()
        assert ((support > 0.01) & (support < 0.99)).any()
        assert {0.0, 1.0} <= set(support)

    @pytest.mark.parametrize("guard", [True, False])
    @pytest.mark.parametrize("p", [0, 1, 4])
    @pytest.mark.parametrize("M", [1, 2, 5])
    def test_sizes(self, M, p, guard):
        X, P, y = draw(80, p, M)
        gate = ShrunkGate(BASE, guard=guard, cv=2, n_restarts=2, random_state=0)
        new = near_and_far(gate.fit(Labelled.of(X, P, y, loss=SQUARED)) and X)
        expected = one_by_one(gate, gate.answer_, new)
        np.testing.assert_allclose(gate.predict_weights(new), expected, atol=1e-6)
        for K in (1, 4):
            P_new = draw(len(new), p, M, K)[1]
            mixture = local_average(expected, P_new)
            np.testing.assert_allclose(gate.average(new, P_new), mixture, atol=1e-5)
        np.testing.assert_allclose(gate.average(new, P_new[:, :, 3]), mixture[:, 3], atol=1e-5)

    def test_bands_are_of_the_faded_folds(self, auto):
        gate, X = auto
        new = near_and_far(X)
        folds = [one_by_one(gate, fold, new) for fold in gate.fold_answers_]
        for fold, expected in zip(gate.fold_answers_, folds, strict=True):
            np.testing.assert_allclose(gate._evaluate(fold, new), expected, atol=1e-6)
        low, high = gate.weight_band(new)
        weights = gate.predict_weights(new)
        assert ((low <= weights) & (weights <= high)).all()
        assert (high - low)[gate.support(new) == 1.0].max() > 0.0

    def test_the_stack_is_in_no_pickle(self, auto):
        gate, X = auto
        gate.predict_weights(X)
        again = pickle.loads(pickle.dumps(gate))
        assert "stack" in vars(gate.answer_)
        assert "stack" not in vars(again.answer_)
        np.testing.assert_array_equal(again.predict_weights(X), gate.predict_weights(X))

    def test_other_gates_go_their_own_way(self):
        """A base that the kernel does not know is asked itself."""

        class Shy(EqualGate):
            def __init__(self, shrinkage=1.0, random_state=None):
                self.shrinkage = shrinkage
                self.random_state = random_state

        X, P, _ = draw(60, 2, 2)
        gate = ShrunkGate(Shy(), cv=2, linear=False, random_state=0)
        gate.fit(Labelled.of(X, P, P.mean(axis=1), loss=SQUARED))
        assert gate.answer_.stack is None
        new = near_and_far(X)
        weights, P_new = one_by_one(gate, gate.answer_, new), draw(len(new), 2, 2)[1]
        np.testing.assert_array_equal(gate.predict_weights(new), weights)
        np.testing.assert_array_equal(gate.average(new, P_new), local_average(weights, P_new))

    def test_inputs_of_another_width_are_refused(self, auto):
        with pytest.raises(
            InvalidInputError, match=r"ShrunkGate was fitted on 3 inputs; .*\(1, 4\)"
        ):
            auto[0].predict_weights(np.zeros((1, 4)))

    def test_a_damaged_file_is_refused(self, auto):
        arrays = auto[0].arrays()
        prefix = next(name for name in arrays if name.endswith(".mean")).removesuffix("mean")
        narrow = clone(auto[0].answer_.gates[0]).fit(Labelled.of(*draw(20, 2, 3), loss=SQUARED))
        arrays |= {prefix + name: array for name, array in narrow.arrays().items()}
        with pytest.raises(FileFormatError, match=r"the 3 inputs of ShrunkGate; .* takes 2"):
            ShrunkGate().restore(arrays)


class TestMLPGate:
    @pytest.mark.parametrize(
        "options",
        [
            {"hidden": (8, 4)},
            {"hidden": ()},
            {"logit_bound": 2.0},
            {"n_restarts": 3},
            {"standardize": False},
            {"shrinkage": np.inf},
        ],
        ids=str,
    )
    def test_beside_another(self, options):
        """Gates of different shapes and standards in one stack."""
        X, P, y = draw(120, 2, 3)
        X = 5.0 + 3.0 * X
        gates = [MLPGate(n_steps=20, random_state=1, **options), MLPGate((8,), n_steps=20)]
        for gate in gates:
            gate.fit(Labelled.of(X, P, y, loss=SQUARED))
        mixed = MixedGates(np.full(3, 0.1), gates, np.array([0, 1]), np.array([0.5, 0.2]))
        assert len(mixed.stack.standards) == 2 - (options != {"standardize": False})
        np.testing.assert_allclose(evaluate(mixed.stack, X), mixed.predict_weights(X), atol=1e-6)
        average = local_average(gates[0].predict_weights(X), P)
        np.testing.assert_allclose(gates[0].average(X, P), average, atol=1e-12)

    def test_a_new_fit_is_seen(self):
        X, P, y = draw(60, 2, 2)
        gate = MLPGate(n_steps=20, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        before = gate.predict_weights(X)
        gate.fit(Labelled.of(X, P[:, ::-1], y, loss=SQUARED))
        np.testing.assert_allclose(gate.predict_weights(X), before[:, ::-1], atol=1e-6)


def random_part(rng, sizes, n_networks):
    network = Network(sizes, leak=float(rng.integers(2)))
    thetas = np.stack([network.random(rng) for _ in range(n_networks)])
    mean, scale = rng.normal(size=sizes[0]), rng.uniform(0.5, 2.0, size=sizes[0])
    return Ensemble(network, 2 * thetas, mean, scale, rng.choice([None, 3.0]), share=1.0)


def plain_weights(part, X):
    """Mean over the networks of a part, in plain NumPy and double precision."""
    total = np.zeros((len(X), part.network.sizes[-1]))
    for theta in part.thetas.astype(np.float64):
        units = (X - part.mean) / part.scale
        *hidden, (W, b) = part.network.layers(theta)
        for weights, biases in hidden:
            z = units @ weights.T + biases
            units = np.maximum(z, part.network.leak * z)
        logits, bound = units @ W.T + b, part.logit_bound
        total += softmax(logits if bound is None else bound * np.tanh(logits / bound))
    return total / len(part.thetas)


class TestKernel:
    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_any_shapes(self, data):
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
        sizes = {"p": (0, 20), "M": (1, 40), "K": (1, 5), "n": (0, 400)}
        p, M, K, n = (data.draw(st.integers(*ends), label=k) for k, ends in sizes.items())
        layers = st.lists(st.integers(1, 40), max_size=3)
        hidden = data.draw(st.lists(layers, max_size=3), label="hidden layers")
        shares = rng.dirichlet(np.ones(len(hidden) + 1))
        parts = [
            replace(random_part(rng, (p, *units, M), int(rng.integers(1, 4))), share=share)
            for units, share in zip(hidden, shares[:-1], strict=True)
        ]
        constant = shares[-1] * rng.dirichlet(np.ones(M))
        X, P = 2.0 * rng.normal(size=(n, p)), rng.normal(size=(n, M, K))
        expected = constant + sum(
            (part.share * plain_weights(part, X) for part in parts), np.zeros((n, M))
        )
        fading = None
        if p and data.draw(st.booleans(), label="guard"):
            rounded = np.round(rng.normal(size=(60, p)), data.draw(st.integers(0, 9)))
            fading = Fading(Support.of(rounded), np.eye(M)[0], 0.01)
            clipped = fading.support.clip(X)
            expected = constant + sum(
                (part.share * plain_weights(part, clipped) for part in parts), np.zeros((n, M))
            )
            expected = fading(expected, X)
        stack = Stack.of(constant, parts)
        received = evaluate(stack, X, fading)
        np.testing.assert_allclose(received, expected, atol=1e-5)
        np.testing.assert_allclose(received.sum(axis=1), 1.0, atol=1e-12)
        average = evaluate(stack, X, fading, P)
        np.testing.assert_allclose(average, local_average(received, P), atol=1e-12)

    def test_threads_change_nothing(self, auto):
        gate, X = auto
        many = np.resize(near_and_far(X), (40_000, 3))
        P = np.random.default_rng(0).normal(size=(40_000, 3, 2))
        one, two = (
            evaluate(gate.answer_.stack, many, gate._fading(), P, n_jobs=jobs) for jobs in (1, 2)
        )
        np.testing.assert_array_equal(one, two)

    @pytest.mark.parametrize("shape", [(5,), (4, 3), (5, 2), (5, 3, 1, 1)])
    def test_predictions_of_another_shape_are_refused(self, auto, shape):
        with pytest.raises(InvalidInputError, match=r"must have shape \(5, 3\) or \(5, 3, K\)"):
            auto[0].average(np.zeros((5, 3)), np.zeros(shape))

    def test_networks_that_do_not_fit_together_are_refused(self):
        parts = [random_part(np.random.default_rng(0), (p, 4, 2), 1) for p in (2, 3)]
        with pytest.raises(FileFormatError, match=r"received networks .* \[\(2, 2\), \(3, 2\)\]"):
            Stack.of(np.zeros(2), parts)
        with pytest.raises(FileFormatError, match="weigh its 3 candidates"):
            Stack.of(np.zeros(3), parts[:1])


CANDIDATES = {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}


@pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")  # of toys
class TestEstimators:
    @pytest.mark.parametrize("gate", ["auto", "local", "global", "equal", "paper"])
    def test_given_predictions_are_averaged_as_the_pool_is(self, gate, tmp_path):
        X = np.random.default_rng(0).normal(size=(150, 2))
        model = LocalMARegressor(CANDIDATES, gate=gate, random_state=0).fit(X, np.abs(X[:, 0]))
        new = near_and_far(X)[:-3]
        P = model.candidate_predictions(new)
        expected = local_average(model.predict_weights(new), P)
        for mixture in (model.predict(new), model.predict(new, predictions=P)):
            np.testing.assert_allclose(mixture, expected, atol=1e-9)
        np.testing.assert_allclose(model.predict(new[7:8]), expected[7:8], atol=1e-6)
        model.save(tmp_path / "model.localma")
        again = load(tmp_path / "model.localma", candidates=CANDIDATES)
        np.testing.assert_array_equal(
            again.predict(new, predictions=P), model.predict(new, predictions=P)
        )

    def test_probabilities(self):
        rng = np.random.default_rng(0)
        X, P = rng.normal(size=(120, 2)), rng.dirichlet(np.ones(3), size=(120, 4))
        y = np.array(["a", "b", "c"])[np.arange(120) % 3]
        model = LocalMAClassifier(random_state=0).fit(X, y, predictions=P)
        expected = local_average(model.predict_weights(X), P)
        np.testing.assert_allclose(model.predict_proba(X, predictions=P), expected, atol=1e-9)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, bool, object])
    def test_inputs_of_every_kind_reach_the_gate_as_numbers(self, dtype):
        X = np.random.default_rng(0).integers(0, 2, size=(60, 3)).astype(dtype)
        model = LocalMARegressor(gate="local", random_state=0)
        model.fit(X, np.arange(60.0), predictions=np.ones((60, 2)))
        assert model.gate_features_.transform(X.astype(float)).dtype == np.float64
        assert model.predict_weights(X).shape == (60, 2)

    def test_global_weights_are_solved_once(self, monkeypatch):
        fits, fit = [], GlobalGate.fit
        monkeypatch.setattr(GlobalGate, "fit", lambda *a, **k: fits.append(a[1]) or fit(*a, **k))
        X = np.random.default_rng(0).normal(size=(50, 2))
        model = LocalMARegressor(CANDIDATES, gate="global").fit(X, X[:, 0])
        M = len(CANDIDATES)
        assert [data.n_candidates for data in fits] == [M, *[M - 1] * M]  # then without each
        np.testing.assert_array_equal(model.global_weights_, model.gate_.weights_)
        assert isinstance(model.gate_, GlobalGate)


def test_few_calls_lie_between_the_user_and_the_kernel(monkeypatch):
    """Frames from `fit` and from `predict` to the kernel, both included."""
    kernel, depths = engine.kernel(), {}

    def counting(name, function):
        def count(*args):
            frame, depth = sys._getframe(1), 0
            while frame.f_code.co_name != "test_few_calls_lie_between_the_user_and_the_kernel":
                frame, depth = frame.f_back, depth + 1
            depths[name] = max(depths.get(name, 0), depth)
            return function(*args)

        return count

    for name in ("train", "evaluate"):
        monkeypatch.setattr(kernel, name, counting(name, getattr(kernel, name)))
    monkeypatch.setattr(engine.joblib, "cpu_count", lambda: 1)  # threads have stacks of their own
    X = np.random.default_rng(0).normal(size=(80, 2))
    model = LocalMARegressor(CANDIDATES, random_state=0).fit(X, np.abs(X[:, 0]))
    assert depths["train"] <= 10  # parts of a fit may also run elsewhere
    assert depths.pop("evaluate") <= 13  # networks without a candidate, for `drop`
    model.predict(X)
    assert depths["evaluate"] <= 5
