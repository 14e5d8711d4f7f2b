"""Local weights from trees: derivatives, shrinkage, shared trainings, the path, and files."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from localma.equations import row_losses, softmax
from localma.errors import FileFormatError, InvalidInputError
from localma.gates import GlobalGate, Job, Labelled, MLPGate, ShrunkGate, TreeGate
from localma.gates.tree import mixture_derivatives
from localma.losses import LOSSES, get_loss

LOSS = get_loss("squared_error")


def stripe(X):
    return np.sin(9 * X[:, 0]) > 0


def steps(n=400, seed=0):
    """The first candidate is right in every other stripe of one input, else the second."""
    rng = np.random.default_rng(seed)
    X, noise = rng.uniform(-1, 1, size=(n, 3)), rng.normal(size=(n, 2))
    P = np.stack([noise[:, 0], noise[:, 1]], axis=1)
    y = np.where(stripe(X), P[:, 0], P[:, 1]) + 0.2 * rng.normal(size=n)
    return X, P[:, :, np.newaxis], y[:, np.newaxis]


def data(n=400, seed=0, loss=LOSS, **options):
    return Labelled.of(*steps(n, seed), loss=loss, **options)


def risk(gate, seed=1):
    X, P, y = steps(2000, seed)
    return ((gate.average(X, P) - y) ** 2).mean()


def positive(name, n=6, M=3, K=2):
    """Targets and predictions in the domain of every loss."""
    rng = np.random.default_rng(2)
    y, P = rng.uniform(0.2, 0.8, size=(n, K)), rng.uniform(0.1, 0.9, size=(n, M, K))
    if name == "cross_entropy":
        y = np.ones_like(y)
    return y, P


class TestDerivatives:
    @pytest.mark.parametrize("name", LOSSES)
    def test_gradient_is_that_of_the_loss_of_the_mixture(self, name):
        loss, (y, P) = get_loss(name), positive(name)
        scores = np.random.default_rng(3).normal(size=P.shape[:2])
        gradient, _ = mixture_derivatives(loss, y, P, 2.0)(scores)
        for m in range(P.shape[1]):
            ends = []
            for step in (1e-6, -1e-6):
                moved = scores.copy()
                moved[:, m] += step
                mixture = np.einsum("nm,nmk->nk", softmax(moved), P)
                ends.append(row_losses(loss, y, mixture) / 2.0)
            np.testing.assert_allclose(gradient[:, m], (ends[0] - ends[1]) / 2e-6, atol=1e-6)

    @pytest.mark.parametrize("name", LOSSES)
    def test_curvature_is_finite_and_not_negative(self, name):
        y, P = positive(name)
        _, curvature = mixture_derivatives(get_loss(name), y, P, 1.0)(np.zeros(P.shape[:2]))
        assert np.isfinite(curvature).all()
        assert (curvature >= 0).all()

    def test_curvature_of_the_squared_error_by_hand(self):
        # Weights .5, mixture 2, distances 1: .5 * 2 * 1.
        P, y = np.array([[[1.0], [3.0]]]), np.array([[5.0]])
        _, curvature = mixture_derivatives(LOSS, y, P, 1.0)(np.zeros((1, 2)))
        np.testing.assert_allclose(curvature, [[1.0, 1.0]])


class TestGate:
    def test_finds_what_no_constant_weights_can(self):
        sample = data()
        assert risk(TreeGate(random_state=0).fit(sample)) < 0.6 * risk(GlobalGate().fit(sample))

    @pytest.mark.parametrize("name", LOSSES)
    def test_lowers_the_loss_of_its_sample(self, name):
        rng = np.random.default_rng(0)
        X, good = rng.uniform(size=(200, 1)), rng.uniform(0.3, 0.9, size=200)
        left = X[:, 0] < 0.5
        P = np.stack([np.where(left, good, 0.1), np.where(left, 0.1, good)], axis=1)
        y = np.ones(200) if name == "cross_entropy" else good
        loss = get_loss(name)
        sample = Labelled.of(X, P[:, :, np.newaxis], y[:, np.newaxis], loss=loss)
        gates = TreeGate(random_state=0).fit(sample), GlobalGate().fit(sample)
        local, constant = (
            row_losses(loss, sample.y, gate.average(sample.X, sample.P)).mean() for gate in gates
        )
        assert local < 0.9 * constant

    def test_without_trees_it_is_the_global_gate(self):
        sample, X = data(), steps(50, 1)[0]
        gate = TreeGate(shrinkage=np.inf).fit(sample)
        assert gate.trees_.n_rounds == 0
        np.testing.assert_array_equal(
            gate.predict_weights(X), GlobalGate().fit(sample).predict_weights(X)
        )

    @pytest.mark.parametrize(
        ("shrinkage", "n_trees"), [(0.0, 300), (0.02, 50), (0.5, 2), (1.9, 1), (3.0, 0)]
    )
    def test_shrinkage_is_one_over_the_number_of_trees(self, shrinkage, n_trees):
        assert TreeGate(shrinkage=shrinkage).n_trees == n_trees

    def test_jobs_share_one_training(self):
        sample, rows = data(), np.arange(300)
        anchor = np.array([0.4, 0.6])
        jobs = [Job(rows, 1 / rounds, 0, anchor) for rounds in (3, 10, 1)]
        together = TreeGate().fit_jobs(sample, jobs)
        for job, gate in zip(jobs, together, strict=True):
            alone = TreeGate(shrinkage=job.shrinkage, random_state=0)
            alone.fit(sample.take(rows), global_weights=anchor)
            np.testing.assert_array_equal(
                gate.predict_weights(sample.X), alone.predict_weights(sample.X)
            )
        assert np.shares_memory(together[0].trees_.values, together[1].trees_.values)

    def test_missing_values_decide_if_they_tell(self):
        X, P, y = steps()
        X = np.where(stripe(X)[:, np.newaxis], np.nan, X[:, 2:])
        gate = TreeGate(random_state=0).fit(Labelled.of(X, P, y, loss=LOSS))
        weights = gate.predict_weights(np.array([[np.nan], [0.5]]))
        assert weights[0, 0] > 0.8
        assert weights[1, 0] < 0.2

    def test_unit_of_the_weights_does_not_matter(self):
        weight = np.random.default_rng(0).uniform(0.5, 2.0, 400)
        gates = [TreeGate(random_state=0).fit(data(sample_weight=u * weight)) for u in (1, 1e-6)]
        X = steps(50, 1)[0]
        np.testing.assert_allclose(*(gate.predict_weights(X) for gate in gates), rtol=1e-6)

    def test_large_samples_are_thinned(self):
        sample = data(2000)
        few = TreeGate(most_rows=100, least_rows=60, random_state=0).fit(sample)
        assert (few.trees_.feature < 0).all()  # no split leaves 60 of 100 rows on both sides

    @pytest.mark.parametrize(
        "parameters", [{"n_leaves": 0}, {"l2": -1.0}, {"row_share": 1.5}, {"shrinkage": -1}]
    )
    def test_wrong_parameters_are_refused(self, parameters):
        name = next(iter(parameters))
        with pytest.raises(InvalidInputError, match=f"{name} of TreeGate must be"):
            TreeGate(**parameters).fit(data(20))


class TestFiles:
    def test_restored_weights_are_the_same(self):
        gate, X = TreeGate(random_state=0).fit(data()), steps(50, 1)[0]
        again = clone(gate).restore(gate.arrays())
        np.testing.assert_array_equal(again.predict_weights(X), gate.predict_weights(X))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("trees.values", np.full((1, 2), 1e300)),
            ("trees.values", np.zeros((1, 3))),
            ("loss_scale", np.array(-1.0)),
            ("global_weights", np.array([0.5, 0.6])),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, name, value):
        gate = TreeGate(n_leaves=1, shrinkage=1.0).fit(data())
        with pytest.raises(FileFormatError):
            clone(gate).restore(gate.arrays() | {name: value})


class TestPath:
    def test_auto_uses_trees_where_they_are_ahead(self):
        auto, without = (
            ShrunkGate(trees=trees, random_state=0).fit(data(600)) for trees in (True, False)
        )
        names, weights = auto.path_["gate"], auto.path_["weight"]
        assert names.count("trees") == 3
        assert sum(w for name, w in zip(names, weights, strict=True) if name == "trees") > 0.5
        assert "trees" not in without.path_["gate"]
        assert risk(auto) < 0.9 * risk(without)

    def test_one_pass_is_the_sum_of_the_gates(self):
        gate = ShrunkGate(trees=True, random_state=0).fit(data(600))
        assert {type(member) for member in gate.answer_.gates} >= {TreeGate}
        X, P, _ = steps(40, 1)
        X[0] = 50.0  # outside the sample
        mixed, fading = gate.answer_, gate._fading()
        by_hand = fading(mixed.predict_weights(fading.support.clip(X)), X)
        np.testing.assert_allclose(gate.predict_weights(X), by_hand, atol=1e-6)
        average = np.einsum("nm,nmk->nk", by_hand, P)
        np.testing.assert_allclose(gate.average(X, P), average, atol=1e-5)

    def test_many_rows_in_threads_are_those_of_few(self):
        gate, X = ShrunkGate(trees=True, random_state=0).fit(data(600)), steps(40_000, 2)[0]
        weights = gate.predict_weights(X)
        np.testing.assert_allclose(weights[-50:], gate.predict_weights(X[-50:]), atol=1e-6)

    def test_a_base_of_trees_is_a_kind_of_its_own(self):
        base = TreeGate(n_leaves=3)
        gate = ShrunkGate(base, strengths=(400.0, 40.0), random_state=0).fit(data())
        assert gate.path_["gate"].count("local") == 2
        assert gate.path_["shrinkage"][-2:] == pytest.approx([1.0, 0.1])
        chosen = {id(member): member for member in gate.answer_.gates}.values()
        assert all(isinstance(member, TreeGate | MLPGate) for member in chosen)

    def test_the_gate_restores_itself(self):
        gate, X = ShrunkGate(trees=True, random_state=0).fit(data(600)), steps(50, 1)[0]
        again = clone(gate).restore(gate.arrays())
        np.testing.assert_array_equal(again.predict_weights(X), gate.predict_weights(X))
