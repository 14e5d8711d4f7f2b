"""Large samples: batches, the halved path, inputs read in parts, and the memory of a fit."""

from __future__ import annotations

import itertools
import tracemalloc
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks import memory
from localma import Column, LocalMARegressor, load
from localma.equations import local_average
from localma.errors import InvalidInputError
from localma.folds import make_folds
from localma.gates import Job, Labelled, MLPGate, ShrunkGate
from localma.gates.constant import anchor_and_scale
from localma.gates.fused.chunks import Chunks
from localma.gates.fused.policy import budget, judging_folds
from localma.gates.fused.trainer import advance, block_of_batch
from localma.gates.labelled import mean_and_scale
from localma.gates.mlp import begin
from localma.gates.path import HalvingPath
from localma.gates.sample import outermost
from localma.gates.support import Support
from localma.losses import LOSSES, get_loss
from localma.tables.frames import LARGE_ROWS, ArrowRows, drop_columns

SQUARED = get_loss("squared_error")
N = LARGE_ROWS + 3


def local_truth(n=N, p=3, seed=0, noise=0.3):
    """|x| from -x, x and 0: the weights must depend on the sign of the first input."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)).astype(np.float32)
    P = np.stack([-X[:, 0], X[:, 0], np.zeros(n, dtype=np.float32)], axis=1)
    y = (np.abs(X[:, 0]) + noise * rng.normal(size=n)).astype(np.float32)
    return X, P, y


def as_gate_sees(X, P, y):
    return X.astype(float), P.astype(float)[:, :, None], y.astype(float)[:, None]


def small(n=1000, **more):
    return as_gate_sees(*local_truth(n, **more))


def quick_path(**more):
    """A path whose trainings are short."""
    return ShrunkGate(
        MLPGate((8,), n_steps=80, learning_rate=0.05, **more),
        strengths=(1.0, 0.1),
        linear=False,
        random_state=0,
    )


def fit(gate, data, **more):
    return gate.fit(Labelled.of(*data, loss=SQUARED, **more))


def learnt(gate):
    return [member.parameters_ for member in gate.answer_.gates]


class TestMiniBatches:
    def test_reach_the_objective_of_the_whole_sample(self):
        data = small(3000)
        how = {"shrinkage": 1e-4, "learning_rate": 0.02, "random_state": 0}
        whole = fit(MLPGate((8,), batch_size="all", n_steps=3000, **how), data)
        parts = fit(MLPGate((8,), batch_size=192, n_steps=3000, **how), data)
        start = fit(MLPGate((8,), n_steps=1, **how), data).objective(
            Labelled.of(*data, loss=SQUARED)
        )
        reached, aim = (gate.objective(Labelled.of(*data, loss=SQUARED)) for gate in (parts, whole))
        assert start > 3 * aim
        assert reached == pytest.approx(aim, rel=0.01)

    def test_same_seed_same_result(self):
        data = small()
        one, again, other = (
            fit(MLPGate((4,), batch_size=64, n_steps=50, random_state=seed), data).parameters_
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one, again)
        assert np.abs(one - other).max() > 0.01

    def test_threads_change_nothing(self):
        data = small()
        one, many = (
            fit(
                MLPGate((4,), batch_size=64, n_steps=50, n_restarts=3, n_jobs=jobs, random_state=1),
                data,
            ).parameters_
            for jobs in (1, 3)
        )
        np.testing.assert_array_equal(one, many)

    def test_every_job_can_be_done_again_alone(self):
        X, P, y = small()
        gate = MLPGate((4,), batch_size=64, n_steps=50)
        rows, weights = np.arange(0, 1000, 3), np.array([0.5, 0.25, 0.25])
        jobs = [
            Job(part, shrinkage, seed, weights)
            for part in (rows, None)
            for shrinkage in (0.0, 0.1)
            for seed in (0, 1)
        ]
        together = gate.fit_jobs(Labelled.of(X, P, y, loss=SQUARED), jobs)
        for job, fitted in zip(jobs, together, strict=True):
            (alone,) = gate.fit_jobs(Labelled.of(X, P, y, loss=SQUARED), [job])
            np.testing.assert_array_equal(alone.parameters_, fitted.parameters_)
            assert fitted.n_steps_.tolist() == [50]

    def test_batches_begin_where_samples_are_large(self):
        gate = MLPGate()
        assert gate.batch_rows(LARGE_ROWS - 1) is None
        assert gate.batch_rows(LARGE_ROWS) == 384
        assert MLPGate.paper().batch_rows(10**9) is None
        assert MLPGate(batch_size=100).batch_rows(100) is None
        assert MLPGate(batch_size=100).batch_rows(101) == 100

    def test_a_batch_of_everything_is_the_whole_sample(self):
        """The two ends of one trainer: batches as large as the sample, and all rows at once."""
        data = Labelled.of(*small(304), loss=SQUARED)  # a multiple of the kernel's lanes
        gate = MLPGate((4,), batch_size="all", n_steps=20, tol=0.0, random_state=0)
        whole = gate.fit(data)
        chunks = Chunks.of(data, None, 304, standardize=True, whole=False)
        twin = MLPGate((4,), batch_size=303, n_steps=20, random_state=0)
        (training,) = begin(twin, chunks, *anchor_and_scale(data, None, None), 0)
        assert training.batch == 303
        advance([training], 1.0, seed=(0,), n_jobs=1)
        training.store()
        np.testing.assert_allclose(twin.parameters_, whole.parameters_, atol=1e-4)
        as_many = MLPGate((4,), batch_size=304, n_steps=20, tol=0.0, random_state=0).fit(data)
        np.testing.assert_array_equal(as_many.parameters_, whole.parameters_)

    @pytest.mark.parametrize("largest", [64, 128, 192])
    @pytest.mark.parametrize("batch", [1, 16, 100, 192, 200, 384, 1000, 4096])
    def test_blocks_fill_a_batch(self, largest, batch):
        block = block_of_batch(largest, batch)
        assert block % 16 == 0
        assert 16 <= block <= largest
        blocks = max(1, round(batch / block))
        assert abs(blocks * block - batch) <= max(16, 0.1 * batch)

    def test_number_of_steps(self, monkeypatch):
        monkeypatch.setattr("localma.gates.mlp.BATCH_STEPS", 7)
        data = small(1000)
        assert fit(MLPGate((2,), batch_size=500), data).n_steps_.tolist() == [7]
        assert fit(MLPGate((2,), batch_size=100), data).n_steps_.tolist() == [20]  # two passes
        assert fit(MLPGate((2,), batch_size=100, n_steps=3), data).n_steps_.tolist() == [3]
        assert fit(MLPGate((2,), n_steps=None), data).n_steps_.max() <= 800

    def test_weights_of_rows(self):
        X, P, y = small(1000)
        weight = np.random.default_rng(0).integers(0, 3, size=1000).astype(float)
        gate = MLPGate((4,), batch_size=64, n_steps=60, random_state=0)
        plain = fit(gate, (X, P, y), sample_weight=weight).parameters_
        scaled = fit(gate, (X, P, y), sample_weight=1e6 * weight).parameters_
        np.testing.assert_allclose(scaled, plain, atol=1e-3)
        spoilt = np.where(weight[:, None] == 0, 1e3, y)
        np.testing.assert_array_equal(
            fit(gate, (X, P, spoilt), sample_weight=weight).parameters_, plain
        )
        assert np.abs(fit(gate, (X, P, y)).parameters_ - plain).max() > 1e-2

    def test_several_outputs_and_a_bound_on_the_logits(self):
        X, P, y = small(1000)
        both = (np.concatenate([P, -P], axis=2), np.concatenate([y, -y], axis=1))
        how = {"batch_size": 64, "n_steps": 400, "learning_rate": 0.02, "random_state": 0}
        one, two = fit(MLPGate((4,), **how), (X, P, y)), fit(MLPGate((4,), **how), (X, *both))
        np.testing.assert_allclose(two.predict_weights(X), one.predict_weights(X), atol=0.05)
        bounded = fit(MLPGate((4,), logit_bound=0.5, **how), (X, P, y)).predict_weights(X)
        assert bounded.max() <= np.exp(1.0) / (np.exp(1.0) + 2.0) + 1e-6

    def test_what_overflows_is_refused(self):
        X, P, y = small(200)
        gate = MLPGate((4,), batch_size=64, n_steps=20, learning_rate=1e38)
        with pytest.raises(InvalidInputError, match="must stay finite, but its parameters did not"):
            fit(gate, (X, P, y))

    @pytest.mark.parametrize("batch_size", [0, -1, 1.5, "some"])
    def test_bad_sizes_are_refused(self, batch_size):
        with pytest.raises(InvalidInputError, match="batch_size of MLPGate must be a positive int"):
            fit(MLPGate(batch_size=batch_size), small(20))


class TestChunks:
    def unpacked(self, chunks, p):
        """Rows (n, p) of all chunks, with their weights."""
        rows, weights = [], []
        for number in range(len(chunks.chunks)):
            sample = chunks.packed(number)
            n, block = len(sample.weight), sample.block
            for first in range(0, n, block):
                width = min(block, n - first)
                rows.append(sample.X[first * p : (first + width) * p].reshape(p, width).T)
            weights.append(sample.weight)
        return np.concatenate(rows), np.concatenate(weights)

    @pytest.mark.parametrize("kept", [True, False])
    @pytest.mark.parametrize("n", [1, 100, 1000, 4096, 5000])
    def test_hold_every_row_once(self, monkeypatch, n, kept):
        monkeypatch.setattr("localma.gates.fused.chunks.CHUNK_NUMBERS", 1024 * 7)
        monkeypatch.setattr("localma.gates.fused.chunks.KEPT_BYTES", 2**28 if kept else 0)
        X = np.arange(3.0 * n).reshape(n, 3)
        data = Labelled.of(X, np.zeros((n, 2, 1)), np.zeros((n, 1)), loss=SQUARED)
        chunks = Chunks.of(data, None, 96, standardize=False, whole=False)
        rows, weights = self.unpacked(chunks, 3)
        counted = rows[weights > 0]
        np.testing.assert_array_equal(counted[np.argsort(counted[:, 0])], X)
        np.testing.assert_allclose(weights[weights > 0], 1.0)
        assert len(chunks.chunks) in (-(-n // 1024), 1 + n // 1024)
        if n > 1000:
            assert (counted == X).mean() < 0.1

    def test_some_rows_and_further_ones(self):
        X, weight = np.arange(500.0)[:, None], np.arange(500.0) % 3
        P, y = np.zeros((500, 2, 1)), np.zeros((500, 1))
        data = Labelled.of(X, P, y, loss=SQUARED, sample_weight=weight)
        chunks = Chunks.of(data, np.arange(300), 64, standardize=True, whole=False)
        whole = chunks.joined(np.arange(300, 500), seed=1)
        rows, weights = self.unpacked(whole, 1)
        back = rows[:, 0] * chunks.layout.scale[0] + chunks.layout.mean[0]
        order = np.argsort(back[weights > 0])
        np.testing.assert_allclose(back[weights > 0][order], np.flatnonzero(weight > 0), atol=1e-3)
        np.testing.assert_allclose(
            weights[weights > 0][order], weight[weight > 0] / chunks.layout.unit_weight, rtol=1e-6
        )
        assert whole.mean_weight == pytest.approx(weights.mean())

    def test_moments_are_those_of_the_whole(self):
        rng = np.random.default_rng(0)
        X, weight = rng.normal(5.0, 3.0, size=(70_000, 2)), rng.uniform(size=70_000)
        mean, scale = mean_and_scale(X, None, weight)
        by_hand = np.average(X, axis=0, weights=weight)
        np.testing.assert_allclose(mean, by_hand, rtol=1e-12)
        variance = np.average((X - by_hand) ** 2, axis=0, weights=weight)
        np.testing.assert_allclose(scale, np.sqrt(variance), rtol=1e-12)
        rows = np.arange(0, 70_000, 7)
        some, spread = mean_and_scale(X.astype(np.float32), rows, np.ones(len(rows)))
        np.testing.assert_allclose(some, X[rows].mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(spread, X[rows].std(axis=0), rtol=1e-6)
        assert mean_and_scale(np.full((9, 1), 3.3), None, np.ones(9))[1].tolist() == [1.0]

    def test_no_row_of_weight_is_refused(self):
        weight = np.array([1.0] + [0.0] * 8)
        P, y = np.zeros((9, 2, 1)), np.zeros((9, 1))
        data = Labelled.of(np.zeros((9, 1)), P, y, loss=SQUARED, sample_weight=weight)
        with pytest.raises(InvalidInputError, match="at least one row of positive weight"):
            Chunks.of(data, np.arange(1, 9), 64, standardize=True, whole=False)


class TestSupport:
    def test_parts_give_what_the_whole_gives(self):
        X = np.random.default_rng(0).normal(size=(30_000, 3))
        used = np.arange(30_000) % 4 > 0
        low, high, deviation = outermost(X, used, 5)
        ordered = np.sort(X[used], axis=0)
        np.testing.assert_array_equal(low, ordered[:5])
        np.testing.assert_array_equal(high, ordered[::-1][:5])
        np.testing.assert_allclose(deviation, X[used].std(axis=0), rtol=1e-12)

    def test_of_used_rows_is_that_of_them_alone(self):
        X = np.random.default_rng(0).normal(size=(N + 1000, 2))
        used = np.arange(len(X)) >= 1000
        expected = Support.of(X[used]).arrays()
        for name, array in Support.of(X, used).arrays().items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-12)


class TestFolds:
    def test_the_first_is_the_first_of_all(self):
        y = np.arange(103.0)
        (first,) = make_folds(5, y, random_state=3, most=1)
        whole = make_folds(5, y, random_state=3)
        assert len(whole) == 5
        for part, other in zip(first, whole[0], strict=True):
            np.testing.assert_array_equal(part, other)


@pytest.fixture(scope="module")
def local():
    X, P, y = local_truth()
    return LocalMARegressor(random_state=0).fit(X, y, predictions=P)


class TestHalvingPath:
    def test_local_truth(self, local):
        X, P, _ = local_truth(2000, seed=9)
        error = local.predict(X, predictions=P) - np.abs(X[:, 0])
        assert np.mean(error**2) < 1e-3
        assert local.verdict_.startswith("Use local weights.")
        assert local.locality_gain_.global_risk - local.locality_gain_.risk > 0.3

    def test_the_path_is_whole_and_half_of_it_was_dropped(self, local):
        gate = local.gate_
        assert local.path_["gate"] == [
            *("equal", "best", "global"), *["linear"] * 4, *["local"] * 4,
        ]  # fmt: skip
        assert len(gate.fold_answers_) == 1
        assert {tuple(member.hidden) for member in gate.answer_.gates} <= {(32, 32), (4,)}
        _, members = fold_members(gate)
        assert {member.n_steps_[0] for member in members} <= {750, 3000}

    def test_final_fit_goes_on_from_the_path_and_starts_anew(self, local):
        gates, points = local.gate_.answer_.gates, local.gate_.answer_.points
        path = dict(zip(*fold_members(local.gate_), strict=True))
        for k in np.unique(points):
            warm, fresh = (gates[g] for g in np.flatnonzero(points == k))
            assert fresh.n_steps_.tolist() == [3000]
            assert warm.n_steps_[0] == path[k].n_steps_[0] + 1500
            assert np.abs(warm.parameters_ - fresh.parameters_).max() > 0.01

    def test_constant_truth_stays_constant(self):
        rng = np.random.default_rng(0)
        X, P = rng.normal(size=(30_000, 3)), rng.normal(size=(30_000, 3))
        y = P.mean(axis=1) + 0.5 * rng.normal(size=30_000)
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
        assert sum(model.path_["weight"][:3]) > 0.5
        distance = np.abs(model.predict_weights(X) - 1 / 3)
        assert distance.mean() < 0.002
        assert distance.max() < 0.05  # in the row that lies farthest out
        assert not (model.locality_gain_.is_clear and model.locality_gain_.value < 0)

    def test_same_seed_and_any_number_of_threads(self):
        data = as_gate_sees(*local_truth())
        one, many = (fit(quick_path(n_jobs=jobs), data) for jobs in (1, 3))
        assert one.path_ == many.path_
        for ours, theirs in zip(learnt(one), learnt(many), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_saved_and_read_back(self, local, tmp_path):
        local.save(tmp_path / "large.localma")
        X, P, _ = local_truth(50, seed=4)
        again = load(tmp_path / "large.localma", candidates={})
        np.testing.assert_array_equal(
            again.predict(X, predictions=P), local.predict(X, predictions=P)
        )
        assert again.path_ == local.path_

    def test_certain_folds_are_all_used(self):
        data = as_gate_sees(*local_truth())
        gate = quick_path().set_params(cv=3)
        assert len(fit(gate, data).fold_answers_) == 3
        assert gate.locality_gain_.is_clear

    def test_a_base_that_wants_all_rows_gets_them(self):
        gate = fit(quick_path(batch_size="all").set_params(n_restarts=1), small(N))
        assert len(gate.fold_answers_) == 1
        assert all(member.n_steps_.max() <= 80 for member in gate.answer_.gates)

    def test_a_base_with_networks_of_its_own(self):
        gate = fit(quick_path(n_restarts=2), small(N))
        assert {len(member.parameters_) for member in gate.answer_.gates} == {2}

    def test_few_of_many_rows_judge(self, monkeypatch):
        monkeypatch.setattr("localma.gates.points.JUDGING_ROWS", 500)
        monkeypatch.setattr("localma.gates.points.ANCHOR_ROWS", 1000)
        few = fit(quick_path(), small(N))
        assert few.locality_gain_.is_clear
        assert few.locality_gain_.standard_error > 0.01

    def test_few_rows_with_weight(self, monkeypatch):
        monkeypatch.setattr("localma.gates.points.JUDGING_ROWS", 500)
        X, P, y = small(N)
        weight = (np.arange(N) % 100 == 0).astype(float)
        gate = fit(quick_path(), (X, P, y), sample_weight=weight)
        assert gate.n_effective_ == weight.sum()
        assert np.isfinite(gate.path_["risk"]).all()

    def test_sample_weight(self):
        X, P, y = small(N)
        right = (X[:, 0] > 0).astype(float)
        gate = fit(quick_path(), (X, P, y), sample_weight=right)
        np.testing.assert_allclose(gate.global_weights_, [0.0, 1.0, 0.0], atol=0.02)
        assert gate.support(np.array([[-3.0, 0.0, 0.0]])) == 0.0
        mixture = local_average(gate.predict_weights(X), P)[right > 0]
        assert np.mean((mixture - np.abs(X[right > 0, :1])) ** 2) < 1e-3

    @pytest.mark.parametrize("name", sorted(LOSSES))
    def test_every_loss(self, name):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(N, 1))
        P = rng.uniform(0.1, 0.9, size=(N, 2))
        y = np.ones(N) if name == "cross_entropy" else P[np.arange(N), (X[:, 0] > 0).astype(int)]
        gate = quick_path().fit(Labelled.of(X, P[:, :, None], y[:, None], loss=get_loss(name)))
        assert np.isfinite(gate.predict_weights(X)).all()
        if name != "cross_entropy":
            assert gate.locality_gain_.is_clear
            assert gate.locality_gain_.value > 0


def fold_members(gate):
    (fold,) = gate.fold_answers_
    return fold.points.tolist(), fold.gates


def same_model(one, other):
    assert one.path_ == other.path_
    for ours, theirs in zip(learnt(one.gate_), learnt(other.gate_), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def plain():
    X, P, y = local_truth()
    model = LocalMARegressor(gate=quick_path(), random_state=0)
    return model.fit(X.astype(float), y.astype(float), predictions=P.astype(float))


class TestInputs:
    def test_mapped_float32(self, plain, tmp_path):
        arrays = []
        for name, array in zip("XPy", local_truth(), strict=True):
            np.save(tmp_path / f"{name}.npy", array)
            arrays.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
        X, P, y = arrays
        model = LocalMARegressor(gate=quick_path(), random_state=0).fit(X, y, predictions=P)
        same_model(model, plain)

    @pytest.mark.parametrize("first", [True, False])
    def test_prediction_columns(self, plain, first):
        X, P, y = local_truth()
        both = np.concatenate([P, X] if first else [X, P], axis=1)
        candidates = {f"c{m}": Column(m if first else m + 3) for m in range(3)}
        model = LocalMARegressor(candidates, gate=quick_path(), random_state=0).fit(both, y)
        same_model(model, plain)
        hidden = [0, 1, 2] if first else [3, 4, 5]
        assert np.shares_memory(drop_columns(both, hidden), both)

    @pytest.mark.parametrize("kind", ["ipc", "parquet"])
    def test_arrow(self, plain, tmp_path, kind):
        pa = pytest.importorskip("pyarrow")
        X, P, y = local_truth()
        table = pa.table({f"x{k}": X[:, k] for k in range(3)})
        if kind == "ipc":
            with (
                pa.OSFile(str(tmp_path / "t"), "wb") as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_table(table, max_chunksize=999)
            table = pa.ipc.open_file(pa.memory_map(str(tmp_path / "t"))).read_all()
        else:
            parquet = pytest.importorskip("pyarrow.parquet")
            parquet.write_table(table, tmp_path / "t", row_group_size=1500)
            table = parquet.read_table(tmp_path / "t")
        model = LocalMARegressor(gate=quick_path(), random_state=0).fit(table, y, predictions=P)
        same_model(model, plain)
        assert model.predict(table, predictions=P).shape == (N,)

    @pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
    def test_arrow_that_is_not_finite_numbers_is_refused(self):
        import pyarrow as pa

        X, P, y = local_truth()
        spoilt = X[:, 0].copy()
        spoilt[7] = np.nan
        model = LocalMARegressor(gate=quick_path(), random_state=0)
        words = f"column 'a' is missing or infinite in 1 of {N} rows"
        with pytest.raises(InvalidInputError, match=words):
            model.fit(pa.table({"a": spoilt}), y, predictions=P)
        with pytest.raises(InvalidInputError, match="column 'b' holds values such as 'text'"):
            model.fit(pa.table({"a": X[:, 0], "b": ["text"] * N}), y, predictions=P)

    @pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
    def test_arrow_rows(self):
        import pyarrow as pa

        a, b = np.arange(10, dtype=np.int16), np.arange(10) / 4.0
        table = pa.concat_tables(
            [pa.table({"a": a[:4], "b": b[:4]}), pa.table({"a": a[4:], "b": b[4:]})]
        )
        rows, whole = ArrowRows.of(table), np.stack([a, b], axis=1)
        assert (rows.shape, len(rows), rows.dtype) == ((10, 2), 10, np.float64)
        for wanted in (slice(2, 7), np.array([9, 0, 4, 4]), whole[:, 0] > 5, np.array([], int)):
            np.testing.assert_array_equal(rows[wanted], whole[wanted])
        np.testing.assert_array_equal(np.asarray(rows), whole)
        assert ArrowRows.of(pa.table({"a": a, "t": [None] * 10})) is None
        assert ArrowRows.of(pa.table({"a": np.zeros(3, np.float32)})).dtype == np.float32

    def test_large_predictions_stay_where_they_are(self):
        from localma.candidates import Pool

        P = np.zeros((N, 2), dtype=np.float32)
        _, read = Pool.from_predictions(P, n_rows=N, task="regression")
        assert np.shares_memory(read, P)
        _, few = Pool.from_predictions(P[:9], n_rows=9, task="regression")
        assert few.dtype == np.float64


class TestMemory:
    def test_nothing_of_the_size_of_the_sample_is_copied(self, tmp_path, monkeypatch):
        """Below a third of a float32 copy of the input; n x hidden would be twice the input."""
        monkeypatch.setattr("localma.gates.fused.chunks.KEPT_BYTES", 0)
        monkeypatch.setattr("localma.gates.fused.chunks.CHUNK_NUMBERS", 2**18)
        monkeypatch.setattr("localma.gates.points.JUDGING_ROWS", 5_000)
        monkeypatch.setattr("localma.gates.points.ANCHOR_ROWS", 20_000)
        n, p = 150_000, 60
        X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (n, p))
        rng = np.random.default_rng(0)
        X[...] = rng.normal(size=(n, p))
        P = np.stack([-X[:, 0], X[:, 0]], axis=1)
        y = np.abs(X[:, 0]).astype(float)
        model = LocalMARegressor(gate=quick_path(), random_state=0)
        model.fit(X[:N], y[:N], predictions=P[:N])  # compiles
        tracemalloc.start()
        model.fit(X, y, predictions=P)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert model.locality_gain_.is_clear
        assert peak < X.nbytes / 3

    @pytest.mark.slow
    @pytest.mark.parametrize("n", [1_000_000, 10_000_000])
    def test_a_gibibyte_is_enough(self, n):
        peak = memory.measure(n, 20, 5)
        assert peak["peak_beyond_input_mib"] < 1024


def test_the_number_of_rows_says_how_gates_are_trained_not_their_weights():
    X, P, y = as_gate_sees(*local_truth())
    gate = ShrunkGate(random_state=0)
    weight = np.where(np.arange(len(y)) == 0, 1.5, 1.0)
    gate.fit(Labelled.of(X, P, y, loss=SQUARED, sample_weight=weight))
    assert gate.n_effective_ < len(y) == gate.n_rows_
    assert {member.hidden for member in gate.answer_.gates} & {(32, 32)}
    again = ShrunkGate(random_state=0).restore(gate.arrays())
    np.testing.assert_array_equal(again.predict_weights(X[:50]), gate.predict_weights(X[:50]))


def test_the_final_fit_sees_rows_that_neither_trained_nor_judged():
    X, P, y = as_gate_sees(*local_truth())
    data = Labelled.of(X, P, y, loss=SQUARED)
    fold = (np.arange(8000), np.arange(8000, 12000))
    points = ShrunkGate()._points(budget(len(y), X.shape[1]), X.shape[1], P.shape[1], len(y))
    path = HalvingPath(data, [fold], points, seed=0)
    for chunks in path._chunks_of_all_rows().values():
        assert chunks.n_rows == len(y)
        rows = np.concatenate([chunk._sample_rows() for chunk in chunks.chunks])
        np.testing.assert_array_equal(np.sort(rows), np.arange(len(y)))


def test_targets_that_are_tiny_train_too():
    X, P, y = as_gate_sees(*local_truth())
    gate, tiny = (
        quick_path().fit(Labelled.of(X, c * P, c * y, loss=SQUARED)) for c in (1.0, 2.0**-73)
    )
    np.testing.assert_allclose(tiny.predict_weights(X[:10]), gate.predict_weights(X[:10]))


class TestPolicy:
    SIZES = (50, 100, 300, 1000, 1001, 2000, 3000, 5000, 7000, 9999, 10_000, 13_000, 20_000, 10**6)

    def work(self, n):
        """Rows met in all folds, times the layers that they pass."""
        plan = budget(n, 20)
        return plan.n_folds * plan.n_steps * plan.batch * len(plan.hidden)

    def test_work_never_falls_as_the_sample_grows(self):
        for smaller, larger in itertools.pairwise(self.SIZES):
            if smaller != 1000:  # where a batch of all rows is the last one
                assert self.work(larger) > 0.98 * self.work(smaller)

    def test_folds_fall_one_by_one(self):
        folds = [judging_folds(n) for n in range(100, 30_000, 50)]
        assert folds[0] == 5
        assert folds[-1] == 1
        assert set(np.diff(folds).tolist()) == {0, -1}

    def test_few_groups_are_judged_by_all_folds(self):
        assert judging_folds(10**6, 49) == 5
        assert judging_folds(10**6, 50) == 1

    def test_wide_inputs_take_fewer_steps(self):
        assert budget(5000, 768).n_steps < 0.5 * budget(5000, 20).n_steps

    def test_a_very_large_sample_is_met_twice(self):
        plan = budget(10**7, 20)
        assert plan.n_steps * plan.batch >= 2 * 10**7

    @pytest.mark.parametrize("n", [400, 3000])
    def test_order_of_rows_does_not_matter(self, n):
        data = small(n)
        rows = np.random.default_rng(1).permutation(n)
        place = np.argsort(rows)
        folds = make_folds(5, data[2], random_state=0)
        moved = [(place[train], place[test]) for train, test in folds]
        gate = ShrunkGate(random_state=0).fit(Labelled.of(*data, loss=SQUARED), folds=folds)
        again = ShrunkGate(random_state=0).fit(
            Labelled.of(*(part[rows] for part in data), loss=SQUARED), folds=moved
        )
        np.testing.assert_allclose(
            gate.predict_weights(data[0]), again.predict_weights(data[0]), atol=1e-5
        )
