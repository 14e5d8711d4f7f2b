"""The MLP gate and its kernel: gradients, training, objective, losses, threads, cache."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

from localma.equations import empirical_risk, global_average, local_average
from localma.errors import FileFormatError, InvalidInputError
from localma.gates import GlobalGate, Job, Labelled, MLPGate
from localma.gates.fused.chunks import Chunks
from localma.gates.fused.engine import block_size, compile_loss
from localma.gates.fused.networks import Network
from localma.gates.fused.trainer import Progress, Training, Visit
from localma.gates.mlp import PAPER_DECAY
from localma.losses import LOSSES, Loss, get_loss

SQUARED = get_loss("squared_error")
PROBABILITIES = ("cross_entropy", "brier", "bernoulli")


def problem(n=120, p=3, M=3, K=1, seed=0):
    """The best candidate of a row depends on its first input."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    truth = rng.normal(size=(n, 1, K))
    distance = np.abs(X[:, :1] - np.linspace(-1, 1, M))[:, :, np.newaxis]
    P = truth + distance * rng.choice([-1.0, 1.0], size=(n, M, K))
    y = truth[:, 0] + 0.1 * rng.normal(size=(n, K))
    return X, P, y


def positive_problem(n=60, seed=0):
    """Targets and predictions that every loss of the registry accepts."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.uniform(0.2, 0.8, size=(n, 3, 1)), np.ones((n, 1))


def kernel_gradient(network, theta, X, P, y, *, loss=SQUARED, weight=None, bound=None):
    """Gradient of the mean loss by the kernel, for candidates in the order given."""
    data = Labelled.of(X, P, y, loss=loss, sample_weight=weight)
    block = block_size(network, P.shape[2])
    chunks = Chunks.of(data, None, block, standardize=False, whole=True)
    order = chunks.layout.candidates
    start = network.reorder_candidates(theta, np.argsort(order))
    progress = Progress.at(start, np.zeros_like(theta))
    gate = MLPGate(logit_bound=bound, tol=0.0)
    gate.loss_scale_ = 1.0
    training = Training(gate, 0, network, chunks, None, progress, np.zeros(1, dtype=np.float32))
    training.run(Visit.of_all_rows(chunks, 1), compile_loss(loss.derivative))
    after, gradient = (
        network.reorder_candidates(padded[: len(theta)], order)
        for padded in (progress.theta, progress.gradient)
    )
    np.testing.assert_array_equal(after, theta)
    return gradient


def numpy_weights(network, theta, X, bound=None):
    """The network written out in double precision."""
    units = X
    *hidden, (weights, biases) = network.layers(theta.astype(np.float64))
    for a, b in hidden:
        units = units @ a.T + b
        units = np.where(units > 0, units, network.leak * units)
    logits = units @ weights.T + biases
    logits = logits if bound is None else bound * np.tanh(logits / bound)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def one_threaded_torch():
    """PyTorch, or skip; its threads would only wait for each other on arrays as small as these."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


def torch_risk(torch, network, theta, X, P, y, share, bound=None):
    """Mean squared error as a function that autograd sees through; theta is a float64 tensor."""
    units, at = torch.tensor(X), 0
    for a, b in zip(network.sizes[:-2], network.sizes[1:-1], strict=True):
        units = units @ theta[at : at + a * b].reshape(a, b) + theta[at + a * b : at + (a + 1) * b]
        units = torch.nn.functional.leaky_relu(units, network.leak)
        at += (a + 1) * b
    a, b = network.sizes[-2:]
    logits = units @ theta[at : at + a * b].reshape(b, a).T + theta[at + a * b :]
    logits = logits if bound is None else bound * torch.tanh(logits / bound)
    mixture = torch.einsum("nm,nmk->nk", torch.softmax(logits, dim=1), torch.tensor(P))
    return ((mixture - torch.tensor(y)) ** 2).mean(dim=1) @ torch.tensor(share)


class TestGradient:
    @pytest.mark.parametrize("bound", [None, 0.7])
    @pytest.mark.parametrize("K", [1, 3])
    @pytest.mark.parametrize(
        "network",
        [
            Network((5, 3)),
            Network((5, 16, 3)),
            Network((1, 7, 5, 2)),
            Network((4, 6, 9, 3, 4)),
            Network((3, 8, 8, 8, 8, 5)),
            Network((4, 3, 6), leak=1.0),
        ],
    )
    def test_equals_autograd(self, network, K, bound):
        torch = one_threaded_torch()
        rng = np.random.default_rng(1)
        for n in (1, 17, 500):  # less than a vector, less than a block, several blocks
            X, P, y = problem(n, network.sizes[0], network.sizes[-1], K)
            theta, weight = 2 * network.random(rng), rng.uniform(size=n)
            tensor = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
            torch_risk(torch, network, tensor, X, P, y, weight / weight.sum(), bound).backward()
            expected = tensor.grad.numpy()
            received = kernel_gradient(network, theta, X, P, y, weight=weight, bound=bound)
            assert np.abs(received - expected).max() <= 1e-4 * np.abs(expected).max()

    @pytest.mark.parametrize("name", sorted(LOSSES))
    def test_equals_finite_differences_for_every_loss(self, name):
        loss, network = get_loss(name), Network((2, 5, 3))
        X, P, y = positive_problem()
        theta = network.random(np.random.default_rng(2))
        direction = np.random.default_rng(3).normal(size=theta.shape)

        def risk(step):
            weights = numpy_weights(network, theta + step * direction, X)
            return empirical_risk(loss, y, local_average(weights, P))

        slope = (risk(1e-5) - risk(-1e-5)) / 2e-5
        received = kernel_gradient(network, theta, X, P, y, loss=loss) @ direction
        assert received == pytest.approx(slope, rel=1e-3)

    def test_of_identical_outputs_is_that_of_one(self):
        X, P, y = problem(K=1)
        network = Network((3, 4, 3))
        theta = network.random(np.random.default_rng(0))
        one = kernel_gradient(network, theta, X, P, y)
        many = kernel_gradient(network, theta, X, np.repeat(P, 3, axis=2), np.repeat(y, 3, axis=1))
        np.testing.assert_allclose(many, one, rtol=1e-4, atol=1e-6)


class TestTraining:
    @pytest.mark.parametrize("bound", [None, 3.0])
    def test_paper_equals_an_ordinary_pytorch_loop(self, bound):
        torch = one_threaded_torch()
        X, P, y = problem(n=200, p=5)
        data = Labelled.of(X, P, y, loss=SQUARED)
        network = Network((5, 16, 3))
        gate = MLPGate.paper(logit_bound=bound, random_state=3)
        gate.set_params(n_steps=100, standardize=False, relative_decay=0.05).fit(data)
        rng = np.random.default_rng(3).spawn(1)[0]
        layout = Chunks.of(data, None, 64, standardize=False, whole=True).layout
        order = layout.candidates
        start = network.reorder_candidates(network.random(rng), order)
        theta = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        variance = np.mean((P - P.mean(axis=1, keepdims=True)) ** 2)
        decay = 0.05 * variance * (300 / 200) ** 0.25
        adam = torch.optim.Adam([theta], lr=0.01, weight_decay=decay)
        for _ in range(100):
            adam.zero_grad()
            share = np.full(200, 1 / 200)
            torch_risk(torch, network, theta, X, P, y, share, bound=bound).backward()
            adam.step()
        np.testing.assert_allclose(gate.parameters_[0], theta.detach().numpy(), atol=1e-3)

    def test_relative_decay_is_weight_decay_in_units_of_the_disagreement(self):
        X, P, y = problem(n=200, K=2)
        data = Labelled.of(X, P, y, loss=SQUARED)
        variance = np.mean((P - P.mean(axis=1, keepdims=True)) ** 2)
        fixed = MLPGate(weight_decay=0.02 * variance * 1.5**0.25, random_state=0).fit(data)
        relative = MLPGate(relative_decay=0.02, random_state=0).fit(data)
        np.testing.assert_allclose(relative.parameters_, fixed.parameters_, atol=1e-6)

    @pytest.mark.parametrize("name", sorted(PROBABILITIES))
    def test_relative_decay_of_probabilities_is_finite(self, name):
        X, P, _ = problem(M=2)
        P = 1.0 / (1.0 + np.exp(-P))
        y = np.ones((len(X), 1))
        P[0, 0] = 0.0  # the logarithm of this one is not finite
        gate = MLPGate(relative_decay=0.005, n_steps=50, random_state=0)
        weights = gate.fit(Labelled.of(X, P, y, loss=get_loss(name))).predict_weights(X)
        assert np.isfinite(weights).all()
        assert weights.std(axis=0).max() > 1e-3

    @pytest.mark.parametrize("batch_size", ["all", 32])
    def test_progress_is_reported_and_changes_nothing(self, batch_size, monkeypatch, caplog):
        X, P, y = problem()
        data = Labelled.of(X, P, y, loss=SQUARED)
        gate = MLPGate((4, 4), n_steps=90, n_restarts=2, batch_size=batch_size, random_state=0)
        quiet = clone(gate).fit(data)
        assert caplog.messages == []
        for name in ("QUIET_SECONDS", "LOG_SECONDS"):
            monkeypatch.setattr(f"localma.progress.{name}", 0.0)
        products = len(X) * quiet.parameters_.shape[1]
        monkeypatch.setattr("localma.gates.fused.trainer.REPORTED_PRODUCTS", 40 * products)
        with caplog.at_level("INFO", "localma"):
            reported = clone(gate).fit(data)
        np.testing.assert_array_equal(reported.parameters_, quiet.parameters_)
        done = [
            int(re.search(r"Training the gate: (\d+) of 180 in", m)[1]) for m in caplog.messages
        ]
        assert done[-1] == 180
        if batch_size == "all":
            assert done[:3] == [80, 160, 180]

    def test_convergence_ends_a_reported_training(self, monkeypatch):
        X, P, y = problem()
        data = Labelled.of(X, P, y, loss=SQUARED)
        gate = MLPGate((), shrinkage=0.1, tol=1e-3, random_state=0)
        whole = clone(gate).fit(data)
        assert whole.n_steps_[0] < 800
        products = len(X) * whole.parameters_.shape[1]
        at_the_end = (int(whole.n_steps_[0]) - 1) * products
        monkeypatch.setattr("localma.gates.fused.trainer.REPORTED_PRODUCTS", at_the_end)
        reported = clone(gate).fit(data)
        assert reported.n_steps_ == whole.n_steps_
        np.testing.assert_array_equal(reported.parameters_, whole.parameters_)

    def test_objective_falls_and_more_steps_lower_it(self):
        X, P, y = problem()
        values = [
            MLPGate(n_steps=n_steps, tol=0, random_state=0)
            .fit(Labelled.of(X, P, y, loss=SQUARED))
            .objective(Labelled.of(X, P, y, loss=SQUARED))[0]
            for n_steps in (1, 50, 800)
        ]
        assert values[0] > values[1] > values[2]

    def test_objective_is_risk_plus_shrinkage(self):
        X, P, y = problem()
        gate = MLPGate(shrinkage=0.1, n_steps=20, random_state=0).fit(
            Labelled.of(X, P, y, loss=SQUARED)
        )
        risk = empirical_risk(SQUARED, y, local_average(gate.predict_weights(X), P))
        global_risk = empirical_risk(SQUARED, y, global_average(gate.global_weights_, P))
        norm = (gate.parameters_[0, :-3].astype(float) ** 2).sum()
        assert gate.loss_scale_ == pytest.approx(global_risk)
        value = gate.objective(Labelled.of(X, P, y, loss=SQUARED))
        assert value == pytest.approx([risk / global_risk + 0.1 * norm], rel=1e-5)

    def test_more_shrinkage_is_less_local_and_infinite_is_global(self):
        X, P, y = problem()
        jobs = [Job(None, s, 0) for s in (0.0, 0.01, 0.1, 1.0, np.inf)]
        gates = MLPGate().fit_jobs(Labelled.of(X, P, y, loss=SQUARED), jobs)
        global_ = GlobalGate().fit(Labelled.of(X, P, y, loss=SQUARED)).weights_
        spread = [gate.predict_weights(X).std(axis=0).sum() for gate in gates]
        assert all(np.diff(spread) <= 1e-6)
        assert spread[0] > 2 * spread[2] > 10 * spread[3]
        np.testing.assert_array_equal(gates[-1].predict_weights(X), np.tile(global_, (len(X), 1)))
        np.testing.assert_allclose(gates[-2].predict_weights(X)[0], global_, atol=0.02)

    def test_shrinkage_is_free_of_the_unit_of_the_target(self):
        X, P, y = problem()
        metres, millimetres = (
            MLPGate(random_state=0)
            .fit(Labelled.of(X, c * P, c * y, loss=SQUARED))
            .predict_weights(X)
            for c in (1.0, 1024.0)
        )
        np.testing.assert_allclose(millimetres, metres, atol=1e-3)

    @pytest.mark.parametrize("unit", [2.0**-60, 2.0**60, 1e-20, 0.01, 7.3, 1e20])
    def test_unit_of_the_target_does_not_matter_to_the_paper(self, unit):
        X, P, y = problem()
        one, other = (
            MLPGate.paper(random_state=0)
            .fit(Labelled.of(X, c * P, c * y, loss=SQUARED))
            .predict_weights(X)
            for c in (1.0, unit)
        )
        assert one.std(axis=0).max() > 0.1
        if np.log2(unit).is_integer():  # changes no digit
            np.testing.assert_array_equal(other, one)
        # 800 steps at a rate that never falls magnify other rounding.
        np.testing.assert_allclose(other, one, atol=0.03)

    def test_weight_decay_is_in_the_unit_of_the_loss(self):
        X, P, y = problem()
        gate = MLPGate.paper(logit_bound=None, random_state=0)
        gate.set_params(weight_decay=0.05, relative_decay=0.0)
        large, larger, small, smaller = (
            clone(gate).fit(Labelled.of(X, c * P, c * y, loss=SQUARED)).predict_weights(X)
            for c in (1e8, 1e20, 1e-8, 1e-20)
        )
        np.testing.assert_allclose(larger, large, atol=0.03)  # its learning rate never falls
        np.testing.assert_allclose(small, 1 / 3, atol=1e-3)
        np.testing.assert_allclose(smaller, 1 / 3, atol=1e-3)

    @pytest.mark.parametrize("name", [name for name in LOSSES if name not in PROBABILITIES])
    @pytest.mark.parametrize("batch_size", ["all", 64])
    @pytest.mark.parametrize("relative_decay", [0.0, 0.005])
    def test_the_unit_of_the_target_does_not_matter_to_any_loss(
        self, name, batch_size, relative_decay
    ):
        X, P, y = problem()
        P, y = np.abs(P) + 1.0, np.abs(y) + 1.0
        loss, floored = get_loss(name), name in ("poisson", "gamma", "inverse_gaussian", "tweedie")
        gate = MLPGate(
            batch_size=batch_size, relative_decay=relative_decay, n_steps=100, random_state=0
        )
        one = clone(gate).fit(Labelled.of(X, P, y, loss=loss)).predict_weights(X)
        for unit in (1e-6, 1e8, 1e20) if floored else (1e-20, 1e-6, 1e8, 1e20):
            same = get_loss("huber", delta=1.35 * unit) if name == "huber" else loss
            other = (
                clone(gate).fit(Labelled.of(X, unit * P, unit * y, loss=same)).predict_weights(X)
            )
            np.testing.assert_allclose(other, one, atol=2e-3)

    def test_the_unit_of_the_target_does_not_matter_to_a_loss_of_ones_own(self):
        X, P, y = problem()
        loss = Loss("own", lambda y, mu: (mu - y) ** 4, lambda y, mu: 4 * (mu - y) ** 3)
        one, other = (
            MLPGate(n_steps=100, random_state=0)
            .fit(Labelled.of(X, c * P, c * y, loss=loss))
            .predict_weights(X)
            for c in (1.0, 1e20)
        )
        np.testing.assert_allclose(other, one, atol=1e-3)

    def test_starts_between_the_global_and_equal_weights(self):
        X, P, y = problem()
        weights = np.array([0.7, 0.3, 0.0])
        for bound in (None, 8.0):
            gate = MLPGate(learning_rate=1e-12, n_steps=1, logit_bound=bound)
            gate.fit(Labelled.of(X, P, y, loss=SQUARED), global_weights=weights)
            expected = np.tile(0.7 * weights + 0.1, (len(X), 1))
            np.testing.assert_allclose(gate.predict_weights(X), expected, atol=1e-5)

    def test_bound_on_the_logits_holds(self):
        X, P, y = problem()
        gate = MLPGate(logit_bound=0.5, shrinkage=0.0, random_state=0).fit(
            Labelled.of(X, P, y, loss=SQUARED)
        )
        logits = gate.logits(100 * X)
        assert (logits[:, -1] == 0).all()
        assert 0.9 < np.abs(logits).max() <= 1.0 + 1e-5  # of a difference of two

    def test_restarts_are_averaged(self):
        X, P, y = problem()
        gate = MLPGate(n_restarts=3, n_steps=50, random_state=0).fit(
            Labelled.of(X, P, y, loss=SQUARED)
        )
        assert gate.parameters_.shape == (3, Network((3, 16, 3)).n_parameters)
        single = [
            numpy_weights(Network((3, 16, 3)), t, (X - gate.mean_) / gate.scale_)
            for t in gate.parameters_
        ]
        np.testing.assert_allclose(gate.predict_weights(X), np.mean(single, axis=0), atol=1e-5)
        assert np.abs(single[0] - single[1]).max() > 1e-3

    def test_tolerance_ends_each_training_alone(self):
        X, P, y = problem()
        jobs = [Job(None, s, 0) for s in (0.01, 0.1)]
        early = MLPGate(tol=0.01).fit_jobs(Labelled.of(X, P, y, loss=SQUARED), jobs)
        full = MLPGate(tol=0.0).fit_jobs(Labelled.of(X, P, y, loss=SQUARED), jobs)
        alone = MLPGate(tol=0.01, shrinkage=0.1, random_state=0).fit(
            Labelled.of(X, P, y, loss=SQUARED)
        )
        np.testing.assert_array_equal(alone.parameters_, early[1].parameters_)
        for short, long in zip(early, full, strict=True):
            assert short.n_steps_[0] < long.n_steps_[0] == 800
            values = [
                gate.objective(Labelled.of(X, P, y, loss=SQUARED))[0] for gate in (short, long)
            ]
            assert values[0] == pytest.approx(values[1], abs=1e-3)

    def test_divergence_is_an_error(self):
        X, P, y = problem()
        broken = Loss("broken", lambda y, mu: mu - y, lambda y, mu: (mu - y) / (mu - mu))
        with pytest.raises(InvalidInputError, match=r"must stay finite.*Lower learning_rate"):
            MLPGate().fit(Labelled.of(X, P, y, loss=broken), global_weights=np.full(3, 1 / 3))


class TestSample:
    def test_weights_equal_repetition(self):
        X, P, y = problem(n=60)
        counts = np.random.default_rng(0).integers(0, 4, size=60)
        gate = MLPGate(shrinkage=0.01, random_state=0)
        weighted = clone(gate).fit(Labelled.of(X, P, y, loss=SQUARED, sample_weight=counts))
        rows = np.repeat(np.arange(60), counts)
        repeated = clone(gate).fit(Labelled.of(X[rows], P[rows], y[rows], loss=SQUARED))
        np.testing.assert_allclose(
            weighted.predict_weights(X), repeated.predict_weights(X), atol=1e-3
        )

    def test_jobs_equal_fits_of_their_rows(self):
        X, P, y = problem()
        rows, weight = np.arange(0, 120, 2), np.random.default_rng(0).uniform(size=120)
        gate = MLPGate(n_steps=30, n_restarts=2)
        jobs = [Job(rows, 0.01, 5), Job(None, 0.1, 6, np.array([0.2, 0.3, 0.5])), Job(rows, 0.1, 7)]
        together = gate.fit_jobs(Labelled.of(X, P, y, loss=SQUARED, sample_weight=weight), jobs)
        alone = super(MLPGate, gate).fit_jobs(
            Labelled.of(X, P, y, loss=SQUARED, sample_weight=weight), jobs
        )
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_array_equal(one.parameters_, other.parameters_)
            np.testing.assert_array_equal(one.global_weights_, other.global_weights_)
        assert gate.fit_jobs(Labelled.of(X, P, y, loss=SQUARED), []) == []

    def test_identical_outputs_equal_one(self):
        X, P, y = problem()
        one = MLPGate(random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        two = MLPGate(random_state=0).fit(
            Labelled.of(X, np.repeat(P, 2, axis=2), np.repeat(y, 2, axis=1), loss=SQUARED)
        )
        np.testing.assert_allclose(one.predict_weights(X), two.predict_weights(X), atol=1e-3)

    def test_order_of_rows_and_candidates_does_not_matter(self):
        X, P, y = problem()
        rng = np.random.default_rng(0)
        rows, columns = rng.permutation(len(X)), rng.permutation(3)
        weights = np.array([0.2, 0.3, 0.5])
        one = MLPGate.paper(random_state=0).fit(
            Labelled.of(X, P, y, loss=SQUARED), global_weights=weights
        )
        other = MLPGate.paper(random_state=0).fit(
            Labelled.of(X[rows], P[rows][:, columns], y[rows], loss=SQUARED),
            global_weights=weights[columns],
        )
        moved = Network((3, 16, 3)).reorder_candidates(one.parameters_[0], np.argsort(columns))
        np.testing.assert_allclose(other.parameters_[0], moved, atol=1e-5)

    def test_units_of_inputs_do_not_matter_and_constant_inputs_do_no_harm(self):
        X, P, y = problem()
        constant = np.full((len(X), 1), 3.7)
        one = MLPGate(random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        other = MLPGate(random_state=0).fit(Labelled.of(1e3 * X - 5.0, P, y, loss=SQUARED))
        np.testing.assert_allclose(
            other.predict_weights(1e3 * X - 5.0), one.predict_weights(X), atol=1e-3
        )
        wide = MLPGate(random_state=0).fit(
            Labelled.of(np.hstack([X, constant]), P, y, loss=SQUARED)
        )
        assert wide.scale_[-1] == 1.0
        far = wide.predict_weights(np.hstack([X, constant + 1e300]))
        assert np.isfinite(far).all()

    def test_one_candidate_needs_no_network(self):
        X, P, y = problem(M=1)
        gate = MLPGate().fit(Labelled.of(X, P, y, loss=SQUARED))
        assert gate.parameters_.shape[0] == 0
        np.testing.assert_array_equal(gate.predict_weights(X), np.ones((len(X), 1)))

    def test_no_inputs_give_constant_weights(self):
        X, P, y = problem()
        weights = (
            MLPGate((4,)).fit(Labelled.of(X[:, :0], P, y, loss=SQUARED)).predict_weights(X[:, :0])
        )
        np.testing.assert_allclose(weights, np.tile(weights[:1], (len(X), 1)))

    @pytest.mark.parametrize("perfect", ["one", "all"])
    def test_a_perfect_candidate_is_no_division_by_zero(self, perfect):
        X, P, y = problem()
        P[:, 0 if perfect == "one" else slice(None)] = y[:, np.newaxis] if perfect == "all" else y
        gate = MLPGate(random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        mixture = local_average(gate.predict_weights(X), P)
        assert empirical_risk(SQUARED, y, mixture) < 1e-4


class TestOwnLoss:
    """Losses of one's own: compiled where Numba can, called where it cannot; the same result."""

    @staticmethod
    def fitted(derivative):
        X, P, y = problem(n=50)
        loss = Loss("own", lambda y, mu: (mu - y) ** 2, derivative)
        return MLPGate(n_steps=60, n_restarts=2, random_state=0).fit(
            Labelled.of(X, P, y, loss=loss)
        )

    def test_compiled(self):
        X, P, y = problem(n=50)
        expected = MLPGate(n_steps=60, n_restarts=2, random_state=0).fit(
            Labelled.of(X, P, y, loss=SQUARED)
        )
        plain = self.fitted(lambda y, mu: 2.0 * (mu - y))
        np.testing.assert_allclose(plain.parameters_, expected.parameters_, atol=1e-4)

    def test_with_parameters(self):
        def scaled(y, mu, power, *, factor=1.0):
            return factor * (mu - y) ** power

        def scaled_first(factor, y, mu):
            return factor * (mu - y)

        expected = self.fitted(lambda y, mu: 2.0 * (mu - y))
        for derivative in (partial(scaled, power=1.0, factor=2.0), partial(scaled_first, 2.0)):
            received = self.fitted(derivative)
            np.testing.assert_allclose(received.parameters_, expected.parameters_, atol=1e-4)

    def test_not_compilable(self):
        class Callable:
            def __call__(self, y, mu):
                return 2.0 * (mu - y)

        def unjittable(y, mu):
            return np.stack([2.0 * (a - b) for a, b in zip(mu, y, strict=True)])

        expected = self.fitted(lambda y, mu: 2.0 * (mu - y))
        for derivative in (Callable(), unjittable):
            received = self.fitted(derivative)
            np.testing.assert_allclose(received.parameters_, expected.parameters_, atol=1e-4)

    def test_its_error_reaches_the_user(self):
        def failing(y, mu):
            raise RuntimeError(f"no derivative for {len(y)} rows")

        X, P, y = problem(n=50)
        loss = Loss("failing", lambda y, mu: (mu - y) ** 2, failing)
        with pytest.raises(RuntimeError, match="no derivative for"):
            MLPGate().fit(Labelled.of(X, P, y, loss=loss), global_weights=np.full(3, 1 / 3))

    def test_functions_of_the_same_code_and_values_are_compiled_once(self):
        def times(factor):
            return lambda y, mu: factor * (mu - y)

        assert compile_loss(times(2.0)).block is compile_loss(times(2.0)).block
        assert compile_loss(times(2.0)).block is not compile_loss(times(3.0)).block
        assert compile_loss(times(2)).block is not compile_loss(times(2.0)).block

    def test_a_value_that_has_changed_is_seen(self, monkeypatch):
        monkeypatch.setitem(globals(), "FACTOR", 2.0)
        derivative = lambda y, mu: FACTOR * (mu - y)  # noqa: E731, F821
        once = self.fitted(derivative)
        monkeypatch.setitem(globals(), "FACTOR", 1e-3)
        again = self.fitted(derivative)
        assert np.abs(again.parameters_ - once.parameters_).max() > 0.01

    def test_all_values_of_a_parameter_share_the_compiled_code(self):
        blocks = [compile_loss(get_loss("huber", delta=d).derivative) for d in (0.5, 1.0, 2.0)]
        assert len({id(one.block) for one in blocks}) == 1
        assert [one.parameters.tolist() for one in blocks] == [[0.5], [1.0], [2.0]]

    @pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
    @pytest.mark.parametrize(
        ("derivative", "most"),
        [
            ("lambda y, mu: 2 * (mu - y)", 10),
            ("partial(scaled, factor=2.0 + k)", 10),
            ("lambda y, mu: np.array([a for a in mu - y])", 10),
            ("(lambda c: lambda y, mu: c * (mu - y))(2.0 + k)", 80),
        ],
    )
    def test_many_fits_take_no_more_memory_than_one(self, derivative, most):
        code = f"""
import gc
from functools import partial
import numpy as np
from localma.gates import Labelled, MLPGate
from localma.losses import Loss

def scaled(y, mu, factor):
    return factor * (mu - y)

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

X, y, weights = np.linspace(0, 1, 40)[:, None], np.ones((40, 1)), np.array([0.5, 0.5])
P = np.stack([y, 2 * y], axis=1)
for k in range(60):
    loss = Loss("own", lambda y, mu: (mu - y) ** 2, {derivative})
    MLPGate(n_steps=3).fit(Labelled.of(X, P, y, loss=loss), global_weights=weights)
    if k == 4:
        before = resident()
print(resident() - before)
"""
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert float(run.stdout) < most


class TestPrediction:
    def test_equals_the_network_written_out(self):
        X, P, y = problem(n=300)
        for hidden in ((), (5,), (16, 3)):
            gate = MLPGate(hidden, n_steps=40, random_state=0).fit(
                Labelled.of(X, P, y, loss=SQUARED)
            )
            network = Network((3, *hidden, 3))
            expected = numpy_weights(network, gate.parameters_[0], (X - gate.mean_) / gate.scale_)
            received = gate.predict_weights(X)
            np.testing.assert_allclose(received, expected, atol=1e-5)
            np.testing.assert_allclose(received.sum(axis=1), 1.0, atol=1e-12)
            np.testing.assert_allclose(gate.predict_weights(X[7:8]), received[7:8], atol=1e-6)

    def test_many_rows_in_threads(self):
        X, P, y = problem()
        gate = MLPGate(n_steps=20, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        many = np.random.default_rng(0).normal(size=(40_000, 3))
        one, two = (gate.set_params(n_jobs=k).predict_weights(many) for k in (1, 2))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one[-5:], gate.predict_weights(many[-5:]))
        np.testing.assert_allclose(gate.predict_weights(many.astype(np.float32)), one, atol=1e-5)
        assert gate.predict_weights(many[:0]).shape == (0, 3)

    def test_logits_are_those_of_the_weights(self):
        X, P, y = problem()
        gate = MLPGate(n_steps=20, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        logits, weights = gate.logits(X), gate.predict_weights(X)
        np.testing.assert_allclose(logits, np.log(weights / weights[:, -1:]), atol=1e-12)

    def test_one_row_is_cheap(self):
        X, P, y = problem()
        gate = MLPGate(n_steps=20, random_state=0).fit(Labelled.of(X, P, y, loss=SQUARED))
        row, best = X[:1].copy(), np.inf
        for _ in range(50):  # the best of several: other processes may be at work
            start = time.perf_counter()
            gate.predict_weights(row)
            best = min(best, time.perf_counter() - start)
        assert best < 100e-6


class TestProcesses:
    def test_same_bits_on_any_number_of_threads(self):
        X, P, y = problem()
        jobs = [Job(None, s, seed) for s in (0.0, 0.01) for seed in range(3)]
        one, two, all_ = (
            MLPGate(n_steps=50, n_jobs=k).fit_jobs(Labelled.of(X, P, y, loss=SQUARED), jobs)
            for k in (1, 2, -1)
        )
        for a, b, c in zip(one, two, all_, strict=True):
            np.testing.assert_array_equal(a.parameters_, b.parameters_)
            np.testing.assert_array_equal(a.parameters_, c.parameters_)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    def test_fits_in_a_forked_child(self):
        X, P, y = problem()
        gate = MLPGate(n_steps=50, n_restarts=2, n_jobs=2, random_state=0)
        parent = gate.fit(Labelled.of(X, P, y, loss=SQUARED)).parameters_.tobytes()
        child = os.fork()
        if child == 0:
            same = gate.fit(Labelled.of(X, P, y, loss=SQUARED)).parameters_.tobytes() == parent
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_compiles_once_and_says_so(self, tmp_path):
        code = (
            "import numpy as np, time, logging\n"
            "from localma.gates import Labelled, MLPGate\n"
            "from localma.losses import get_loss\n"
            "X, y = np.zeros((20, 1)), np.ones((20, 1))\n"
            "P = np.stack([y, 2 * y], axis=1)\n"
            "start = time.process_time()\n"
            "data = Labelled.of(X, P, y, loss=get_loss('squared_error'))\n"
            "MLPGate(n_steps=5).fit(data).predict_weights(X)\n"
            "print(time.process_time() - start)\n"
        )
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        runs = [
            subprocess.run(
                [sys.executable, "-c", code],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            for _ in range(2)
        ]
        first, second = (float(run.stdout) for run in runs)
        assert runs[0].stderr.count("compiles its kernel, once on this machine") == 1
        assert runs[1].stderr == ""
        assert second < first / 2
        assert first < 15


class TestParameters:
    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"shrinkage": -1}, "shrinkage of MLPGate must be at least 0 .*received -1"),
            ({"shrinkage": np.nan}, "shrinkage of MLPGate must be at least 0 .*received nan"),
            ({"learning_rate": 0}, "learning_rate of MLPGate must be a positive number"),
            ({"n_steps": 0}, "n_steps of MLPGate must be a positive integer, or None; received 0"),
            (
                {"n_steps": 1.5},
                "n_steps of MLPGate must be a positive integer, or None; received 1.5",
            ),
            ({"weight_decay": -0.1}, "weight_decay of MLPGate must be at least 0"),
            ({"relative_decay": -0.1}, "relative_decay of MLPGate must be at least 0"),
            (
                {"logit_bound": 0},
                "logit_bound of MLPGate must be a positive number, or None; received 0",
            ),
            ({"n_restarts": 0}, "n_restarts of MLPGate must be a positive integer"),
            ({"tol": -1}, "tol of MLPGate must be at least 0"),
            ({"n_jobs": 0}, "n_jobs of MLPGate must be None or an integer that is not 0"),
            ({"hidden": (16, 0)}, r"positive integers, such as \(16,\) .*; received \(16, 0\)"),
            ({"schedule": "cos"}, "Unknown schedule 'cos'; did you mean 'cosine'"),
            ({"start": "zero"}, "Unknown start 'zero'. Known: 'global', 'random'"),
            ({"activation": "rely"}, "Unknown activation 'rely'; did you mean 'relu'"),
        ],
    )
    def test_bad_ones_are_refused(self, parameters, words):
        X, P, y = problem(n=10)
        with pytest.raises(InvalidInputError, match=words):
            MLPGate(**parameters).fit(Labelled.of(X, P, y, loss=SQUARED))

    def test_are_stored_untouched(self):
        hidden = [4, 4]
        assert MLPGate(hidden).hidden is hidden

    def test_of_the_paper(self):
        gate = MLPGate.paper(hidden=(32,), random_state=1)
        expected = {"hidden": (32,), "logit_bound": 3.0, "random_state": 1}
        expected |= {"weight_decay": 0.0, "relative_decay": PAPER_DECAY}
        expected |= {"learning_rate": 0.01, "n_steps": 800, "shrinkage": 0.0, "start": "random"}
        assert expected.items() <= gate.get_params().items()

    def test_random_state_may_be_an_instance_or_none(self):
        X, P, y = problem()
        gate = MLPGate(n_steps=5, random_state=np.random.RandomState(0))
        first, second = (
            gate.fit(Labelled.of(X, P, y, loss=SQUARED)).parameters_.copy() for _ in range(2)
        )
        assert not np.array_equal(first, second)
        again = MLPGate(n_steps=5, random_state=np.random.RandomState(0))
        np.testing.assert_array_equal(
            again.fit(Labelled.of(X, P, y, loss=SQUARED)).parameters_, first
        )
        MLPGate(n_steps=5).fit(Labelled.of(X, P, y, loss=SQUARED))

    def test_wrong_shapes_are_refused(self):
        X, P, y = problem(n=10)
        with pytest.raises(InvalidInputError, match=r"y \(10,\). Give a single output an axis"):
            MLPGate().fit(Labelled.of(X, P, y[:, 0], loss=SQUARED))
        with pytest.raises(InvalidInputError, match=r"sample_weight must have shape \(10,\)"):
            MLPGate().fit(Labelled.of(X, P, y, loss=SQUARED, sample_weight=np.zeros(10)))
        with pytest.raises(InvalidInputError, match="at least one row of positive weight"):
            MLPGate().fit_jobs(Labelled.of(X, P, y, loss=SQUARED), [Job(np.arange(0), 0.1, 0)])
        gate = MLPGate(n_steps=2).fit(Labelled.of(X, P, y, loss=SQUARED))
        with pytest.raises(InvalidInputError, match=r"fitted on 3 inputs; .*shape \(10, 2\)"):
            gate.predict_weights(X[:, :2])

    @pytest.mark.parametrize("spoilt", ["mean", "parameters", "n_steps", "loss_scale"])
    def test_restore_checks_shapes(self, spoilt):
        X, P, y = problem(n=10)
        arrays = MLPGate(n_steps=2).fit(Labelled.of(X, P, y, loss=SQUARED)).arrays()
        arrays[spoilt] = np.zeros((7, 7))
        with pytest.raises(FileFormatError, match=r"hidden=\(16,\) is restored from .*\(7, 7\)"):
            MLPGate().restore(arrays)
        with pytest.raises(FileFormatError, match=r"received \{\}"):
            MLPGate().restore({})
