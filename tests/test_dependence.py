"""Dependent rows: found where they are, not found where they are not, and held out whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold

from localma import CrossFitted, LocalMAClassifier, LocalMARegressor, TableEncoder, load
from localma.dependence import (
    SIZE,
    Blocks,
    Dependence,
    find_blocks,
    find_copies,
    intraclass,
    is_clock,
    is_sorted,
    normal_scores,
    number_columns,
    row_numbers,
    serial_correlation,
)
from localma.losses import squared_error


def ar1(rng, n, phi, k):
    """Columns of AR(1) series with variance one: (n, k)."""
    shocks = rng.normal(size=(n, k)) * np.sqrt(1 - phi**2)
    shocks[0] /= np.sqrt(1 - phi**2)
    return lfilter([1.0], [1.0, -phi], shocks, axis=0)


def sample(rng, n, phi=0.0, phi_inputs=0.0):
    """Inputs (n, 3), predictions (n, 3) with AR(1) errors of different sizes, and targets (n,)."""
    X, errors = ar1(rng, n, phi_inputs, 3), ar1(rng, n, phi, 3)
    truth = X[:, 0] + X[:, 1]
    return X, truth[:, None] + errors * [1.0, 1.2, 1.5], truth + 0.5 * rng.normal(size=n)


def blocks_of(X, P, y, **options):
    n = len(y)
    shaped = np.asarray(P).reshape(n, -1, 1), np.asarray(y, dtype=float).reshape(n, 1)
    inputs = X if isinstance(X, np.ndarray) else X.select_dtypes("number").to_numpy(float)
    return find_blocks(X, inputs, *shaped, squared_error(), np.ones(n), **options)


def kind_of(*arguments):
    blocks = blocks_of(*arguments)
    return None if blocks is None else blocks.dependence.kind


class TestSerialTest:
    @pytest.mark.parametrize("n", [50, 200, 1_000])
    def test_its_size_is_the_stated_one(self, n):
        rng = np.random.default_rng(0)
        found = [serial_correlation(normal_scores(rng.normal(size=(n, 4)))) for _ in range(1_500)]
        share = np.mean([result is not None for result in found])
        assert share <= SIZE + 3 * np.sqrt(SIZE / 1_500)

    def test_heavy_tails_do_not_raise_it(self):
        rng = np.random.default_rng(1)
        draws = [normal_scores(rng.standard_cauchy(size=(200, 4))) for _ in range(500)]
        assert np.mean([serial_correlation(draw) is not None for draw in draws]) <= 0.03

    @pytest.mark.parametrize(("phi", "low", "high"), [(0.3, 1, 7), (0.6, 3, 31), (0.9, 15, 127)])
    def test_correlation_and_reach_of_a_known_series(self, phi, low, high):
        found = serial_correlation(normal_scores(ar1(np.random.default_rng(2), 2_000, phi, 2)))
        assert found.correlation == pytest.approx(phi, abs=0.06)
        assert low <= found.reach <= high

    def test_a_weak_correlation_of_long_reach_is_found(self):
        rng = np.random.default_rng(3)
        weak = 0.4 * ar1(rng, 2_000, 0.99, 1) + rng.normal(size=(2_000, 1))
        found = serial_correlation(normal_scores(weak))
        assert found is not None
        assert found.reach > 30


class TestWhatIsFound:
    @pytest.mark.parametrize("seed", range(3))
    def test_independent_rows_are_not_dependent(self, seed):
        assert kind_of(*sample(np.random.default_rng(seed), 300)) is None

    @pytest.mark.parametrize("phi", [0.6, 0.9])
    def test_series_are_found(self, phi):
        assert kind_of(*sample(np.random.default_rng(0), 200, phi, phi)) == "order"

    def test_series_in_another_order_are_found_by_a_column_of_moments(self):
        rng = np.random.default_rng(0)
        X, P, y = sample(rng, 400, 0.9, 0.9)
        X = np.column_stack([X, np.arange(400)])
        rows = rng.permutation(400)[:300]
        blocks = blocks_of(X[rows], P[rows], y[rows])
        assert blocks.dependence.kind == "order"
        assert (np.argsort(blocks.places) == np.argsort(rows)).all()
        assert kind_of(X[rows, :3], P[rows], y[rows]) is None

    @pytest.mark.parametrize("n", [200, 1_000])
    def test_so_are_those_with_a_time_in_days(self, n):
        rng = np.random.default_rng(0)
        X, P, y = sample(rng, n, 0.9, 0.9)
        X = np.column_stack([X, 17.5 + np.arange(n) / 24])
        rows = rng.permutation(n)[: 3 * n // 4]
        assert kind_of(X[rows], P[rows], y[rows]) == "order"

    @pytest.mark.parametrize("noise", [0.0, 0.5])
    def test_a_grid_in_random_order_is_not_a_series(self, noise):
        rng = np.random.default_rng(0)
        x = rng.permutation(np.linspace(-2, 2, 300))
        y = np.abs(x) + noise * rng.normal(size=300)
        assert kind_of(x[:, None], np.stack([-x, x], axis=1), y) is None

    def test_dates_give_the_order(self):
        pd = pytest.importorskip("pandas")
        rng = np.random.default_rng(0)
        X, P, y = sample(rng, 400, 0.9, 0.9)
        frame = pd.DataFrame(X, columns=list("abc"))
        frame["when"] = pd.date_range("2024-01-01", periods=400, freq="h")
        rows = rng.permutation(400)
        frame = frame.iloc[rows].reset_index(drop=True)
        assert kind_of(frame, P[rows], y[rows]) == "order"
        assert kind_of(frame.drop(columns="when"), P[rows], y[rows]) is None

    @pytest.mark.parametrize(
        "by", ["an input", "the target", "an input, downwards", "a rounded input"]
    )
    @pytest.mark.parametrize("n", [200, 2_000])
    def test_sorted_tables_are_not_series(self, by, n):
        rng = np.random.default_rng(0)
        X, P, y = sample(rng, n)
        P = P + np.array([1.0, 0.0, -1.0]) * X[:, :1]  # errors that depend on the sorted input
        key = {
            "an input": X[:, 0],
            "the target": y,
            "an input, downwards": -X[:, 0],
            "a rounded input": X[:, 0].round(1),
        }[by]
        rows = np.argsort(key, kind="stable")
        if by == "a rounded input":
            X[:, 0] = key
        assert kind_of(X[rows], P[rows], y[rows]) is None

    def test_a_grid_without_noise_is_not_a_series(self):
        x = np.linspace(-2, 2, 200)
        assert kind_of(x[:, None], np.stack([-x, x], axis=1), np.abs(x)) is None

    def test_a_jump_without_noise_is_not_a_series(self):
        x = np.linspace(-2, 2, 200)
        P = np.stack([np.where(x < 0, 0.0, 1.0), np.where(x < 0, 2.0, 0.0)], axis=1)
        assert kind_of(x[:, None], P, np.zeros(200)) is None

    def test_a_series_with_the_row_number_is_a_series(self):
        X, P, y = sample(np.random.default_rng(0), 300, 0.6, 0.6)
        assert kind_of(np.column_stack([X, np.arange(300)]), P, y) == "order"

    @pytest.mark.parametrize("column", ["patient_id", "measured", "code"])
    def test_clusters_are_found_by_a_column(self, column):
        pd = pytest.importorskip("pandas")
        rng = np.random.default_rng(0)
        cluster = rng.integers(20, size=300)
        X, P, y = sample(rng, 300)
        P = P + rng.normal(size=(20, 3))[cluster]
        frame = pd.DataFrame(X, columns=list("abc"))
        frame[column] = {
            "patient_id": np.array([f"p{k}" for k in cluster]),
            "measured": rng.normal(size=20)[cluster],
            "code": cluster.astype(float),
        }[column]
        frame["weather"] = rng.normal(size=20)[cluster]
        blocks = blocks_of(frame, P, y)
        assert blocks.dependence.kind == "column"
        assert len(np.unique(blocks.numbers)) == 20
        assert kind_of(frame.drop(columns=column), P, y) is None

    def test_numbers_that_determine_no_other_input_describe_rows(self):
        """Sizes of disks: errors may jump from one to the next, and new rows have the same."""
        rng = np.random.default_rng(0)
        size = np.array([80, 85, 107, 170, 210, 212, 245, 250, 340, 420, 425, 528, 540, 1000.0])
        level = rng.integers(len(size), size=400)
        X, P, y = sample(rng, 400)
        P = P + rng.normal(size=(len(size), 3))[level]
        assert kind_of(np.column_stack([X, size[level]]), P, y) is None

    def test_districts_describe_rows(self):
        pd = pytest.importorskip("pandas")
        rng = np.random.default_rng(0)
        district = rng.integers(20, size=400)
        X, P, y = sample(rng, 400)
        P = P + rng.normal(size=(20, 3))[district]
        frame = pd.DataFrame(X, columns=list("abc"))
        frame["district"] = [f"d{k}" for k in district]
        assert kind_of(frame, P, y) is None

    def test_smooth_effects_of_whole_numbers_are_no_clusters(self):
        rng = np.random.default_rng(0)
        hour = rng.integers(24, size=600)
        X, P, y = sample(rng, 600)
        P = P + np.sin(2 * np.pi * hour / 24)[:, None] * [1.0, 0.0, -1.0]
        assert kind_of(np.column_stack([X, hour]), P, y) is None

    @pytest.mark.parametrize(("n", "levels"), [(100, 40), (300, 140), (1_000, 300)])
    def test_the_size_of_the_test_of_clusters_is_the_stated_one(self, n, levels):
        rng = np.random.default_rng(0)
        p = np.empty(300)
        for k in range(len(p)):
            column = rng.integers(levels, size=(n, 1)).astype(float)
            weather = rng.normal(size=levels)[column[:, 0].astype(int)]
            found, _ = number_columns(np.column_stack([column, weather]))
            p[k] = intraclass(normal_scores(rng.normal(size=(n, 4))), found.numbers, found.n_waves)[
                1
            ]
        assert np.mean(p < SIZE) <= SIZE + 3 * np.sqrt(SIZE / len(p))

    def test_amounts_with_thousands_of_levels_are_no_clusters(self):
        rng = np.random.default_rng(0)
        X, P, y = sample(rng, 20_000)
        amounts = [rng.integers(8_000, size=20_000), np.log(rng.integers(1, 3_000, size=20_000))]
        assert kind_of(np.column_stack([X, *amounts]), P, y) is None


class TestCopies:
    @pytest.mark.parametrize("times", [2, 3])
    def test_copies_are_found(self, times):
        rng = np.random.default_rng(0)
        rows = rng.permutation(np.repeat(np.arange(100), times))
        X, P, y = sample(rng, 100)
        blocks = blocks_of(X[rows], P[rows], y[rows])
        assert blocks.dependence.kind == "copies"
        assert blocks.dependence.correlation == pytest.approx(1 - 1 / times)
        for train, test in blocks.folds(5, y[rows], 0):
            assert not set(rows[train]) & set(rows[test])

    @pytest.mark.parametrize("n", [100, 2_000])
    @pytest.mark.parametrize("classes", [False, True])
    def test_copies_up_to_rounding_are_found(self, n, classes):
        rng = np.random.default_rng(0)
        rows = rng.permutation(np.repeat(np.arange(n // 2), 2))
        X = rng.normal(size=(n // 2, 4))
        y = X[:, :1] + rng.normal(size=(n // 2, 1))
        y = (y > 0).astype(float) if classes else y
        X = X[rows] * (1 + 1e-6 * rng.normal(size=(n, 4)))
        numbers = find_copies(X, X[:, :2, None], y[rows])
        together = [len(np.unique(numbers[rows == row])) for row in range(n // 2)]
        assert np.mean(np.array(together) == 1) > 0.99
        assert len(np.unique(numbers)) > 0.99 * n / 2

    @pytest.mark.parametrize("inputs", [1, 2, 5])
    @pytest.mark.parametrize("target", ["noisy", "exact", "classes"])
    def test_dense_rows_are_no_copies(self, inputs, target):
        rng = np.random.default_rng(0)
        for n in (300, 5_000):
            X = rng.normal(size=(n, inputs))
            y = X[:, :1] + (rng.normal(size=(n, 1)) if target == "noisy" else 0.0)
            y = (y > 0).astype(float) if target == "classes" else y
            assert find_copies(X, np.stack([X[:, :1], -X[:, :1]], axis=1), y) is None

    def test_numbers_that_are_not_finite_are_no_copies_of_others(self):
        X = np.random.default_rng(0).normal(size=(200, 2))
        X[:20, 0], X[20:40, 1], y = np.nan, np.inf, X[:, :1].copy()
        assert find_copies(X, X[:, :1, None], y * 1e300) is None

    def test_equal_rows_of_discrete_inputs_are_no_copies(self):
        rng = np.random.default_rng(0)
        X = rng.integers(2, size=(400, 4)).astype(float)
        P = np.stack([X[:, 0], X[:, 1]], axis=1)
        assert find_copies(X, P[:, :, None], rng.integers(2, size=(400, 1)).astype(float)) is None

    def test_few_distinct_rows_stay_in_ordinary_folds(self):
        x = np.tile([0.0, 1.0, 2.0], 50)
        assert find_copies(x[:, None], x[:, None, None], x[:, None]) is None

    def test_copies_in_a_series_stay_together(self):
        X, P, y = sample(np.random.default_rng(0), 300, 0.9, 0.9)
        rows = np.concatenate([np.arange(300), np.arange(0, 300, 3)])
        blocks = blocks_of(X[rows], P[rows], y[rows])
        assert blocks.dependence.kind == "order"
        for train, test in blocks.folds(5, y[rows], 0):
            assert not set(rows[train]) & set(rows[test])

    @given(
        rows=st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([0.0, -0.0, 0.5, np.inf]))),
    )
    @settings(max_examples=60, deadline=None)
    def test_numbers_of_rows_are_those_of_a_dict(self, rows):
        if not rows:
            return
        first: dict[tuple[float, float], int] = {}
        expected = [first.setdefault(row, len(first)) for row in rows]
        values = np.array(rows, dtype=np.float64)
        assert row_numbers([values[:, :1], values[:, 1]]).tolist() == expected


class TestBlocks:
    @given(
        n=st.integers(40, 200),
        n_blocks=st.integers(2, 20),
        n_folds=st.integers(2, 6),
        gap=st.integers(0, 12),
        seed=st.integers(0, 9),
    )
    @settings(max_examples=60, deadline=None)
    def test_folds_are_consecutive_with_a_gap(self, n, n_blocks, n_folds, gap, seed):
        places = np.random.default_rng(seed).permutation(n)
        numbers = places * n_blocks // n
        blocks = Blocks(Dependence("order", 0.5, gap), numbers, places, gap)
        folds = blocks.folds(n_folds, np.zeros(n), 0)
        assert sorted(np.concatenate([test for _, test in folds])) == list(range(n))
        for train, test in folds:
            tested, trained = places[test], places[train]
            assert np.ptp(tested) == len(tested) - 1
            distance = np.abs(trained[:, None] - tested).min(axis=1, initial=n)
            assert (distance > gap).all()
            near = set(range(tested.min() - gap, tested.max() + gap + 1))
            assert set(trained) == set(range(n)) - near

    def test_there_are_at_least_ten_blocks_and_at_most_forty(self):
        rng = np.random.default_rng(0)
        for phi, n in [(0.3, 2_000), (0.999, 400), (0.9, 60)]:
            X, P, y = sample(rng, n, phi, phi)
            blocks = blocks_of(X, P, y, always=True)
            assert 10 <= len(np.unique(blocks.numbers)) <= 40

    def test_large_samples_are_looked_at_in_stretches(self):
        X, P, y = sample(np.random.default_rng(0), 120_000, 0.9)
        assert kind_of(X, P, y) == "order"
        X, P, y = sample(np.random.default_rng(0), 120_000)
        assert kind_of(X, P, y) is None


@pytest.mark.parametrize(
    ("column", "expected"),
    [([1, 2, 2, 3], True), ([3, 1, 0, 0], True), ([1, 1, 1, 1], False), ([0, 1, 0, 1], False)],
)
def test_is_sorted(column, expected):
    assert is_sorted(np.array(column, dtype=float)) is expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [([4, 2, 3], True), ([0, 2, 5], True), ([0, 0, 1], False), ([0, 100, 1000], False)],
)
def test_is_clock(column, expected):
    assert is_clock(np.array(column, dtype=float)) is expected


class TestEstimator:
    def fit(self, n=200, phi=0.9, **options):
        X, P, y = sample(np.random.default_rng(0), n, phi, phi)
        return LocalMARegressor(random_state=0, **options).fit(X, y, predictions=P)

    def test_a_series_is_said_everywhere(self, tmp_path):
        model = self.fit()
        sentence = str(model.dependence_)
        assert sentence.startswith("Neighbouring rows are alike (correlation 0.")
        assert model.verdict_.endswith(sentence)
        assert model.path_["held_out"][0].endswith("groups of rows")
        model.save(tmp_path / "model.localma")
        loaded = load(tmp_path / "model.localma")
        assert loaded.dependence_ == model.dependence_
        assert loaded.verdict_ == model.verdict_
        assert loaded.path_ == model.path_

    def test_shuffled_folds_are_fooled_and_the_default_is_not(self):
        claims = dict.fromkeys(("auto", "shuffled"), 0)
        for seed in range(4):
            X, P, y = sample(np.random.default_rng(seed), 400, 0.95, 0.95)
            for folds in claims:
                model = LocalMARegressor(folds=folds, random_state=0).fit(X, y, predictions=P)
                claims[folds] += model.verdict_.startswith("Use local weights.")
        assert claims["shuffled"] >= 3
        assert claims["auto"] == 0

    def test_what_the_user_says_wins(self):
        X, P, y = sample(np.random.default_rng(0), 200, 0.9, 0.9)
        groups = np.arange(200) // 20
        assert self.fit(folds="shuffled").dependence_ is None
        assert self.fit(cv=KFold(5)).dependence_ is None
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=P, groups=groups)
        assert model.dependence_ is None
        assert self.fit(cv=4).dependence_ is not None
        assert self.fit(phi=0.0).dependence_ is None
        blocks = self.fit(phi=0.0, folds="blocks").dependence_
        assert str(blocks) == "Blocks of consecutive rows were held out, as you chose."

    def test_independent_rows_are_split_as_before(self):
        X, P, y = sample(np.random.default_rng(0), 200)
        fits = [
            LocalMARegressor(folds=folds, random_state=0).fit(X, y, predictions=P)
            for folds in ("auto", "shuffled")
        ]
        assert fits[0].path_ == fits[1].path_
        np.testing.assert_array_equal(*(model.predict_weights(X) for model in fits))

    def test_own_models_are_fitted_outside_of_blocks(self):
        X, P, y = sample(np.random.default_rng(0), 200, 0.9, 0.9)
        trained = []

        class Recorder(LinearRegression):
            def fit(self, X, y):
                trained.append(len(y))
                return super().fit(X, y)

        calls = []

        def fixed(X):
            calls.append(len(X))
            return P[:, 0][: len(X)]

        pool = {"fixed": fixed, "own": CrossFitted(Recorder())}
        model = LocalMARegressor(pool, random_state=0).fit(X, y)
        assert model.dependence_.kind == "order"
        assert sorted(trained)[-1] == 200
        assert min(trained) < 160  # a gap on each side of the held-out rows
        assert calls.count(200) == 1

    def test_own_models_alone(self):
        X, _, y = sample(np.random.default_rng(0), 200, 0.0, 0.95)
        pool = {"a": CrossFitted(LinearRegression()), "b": CrossFitted(LinearRegression())}
        assert LocalMARegressor(pool, random_state=0).fit(X, y).dependence_.kind == "order"

    def test_classes(self):
        rng = np.random.default_rng(0)
        X, errors = ar1(rng, 600, 0.95, 2), ar1(rng, 600, 0.95, 2)
        y = np.where(X[:, 0] + rng.logistic(size=600) > 0, "yes", "no")
        P = 1 / (1 + np.exp(-X[:, :1] - 2 * errors))
        model = LocalMAClassifier(random_state=0)
        assert model.fit(X, y, predictions=P).dependence_.kind == "order"
        rows = np.argsort(y, kind="stable")
        X = rng.normal(size=(600, 2))
        P = np.where(y == "yes", 0.3, 0.1)[:, None] + rng.uniform(0.0, 0.6, size=(600, 2))
        assert model.fit(X[rows], y[rows], predictions=P[rows]).dependence_ is None

    def test_weights_of_zero_do_not_count(self):
        X, P, y = sample(np.random.default_rng(0), 300)
        weight = np.ones(300)
        weight[100:] = 0
        y[100:] = np.linspace(-50, 50, 200)
        model = LocalMARegressor(random_state=0)
        assert model.fit(X, y, predictions=P, sample_weight=weight).dependence_ is None

    def test_names_of_columns_are_said(self):
        pd = pytest.importorskip("pandas")
        rng = np.random.default_rng(0)
        cluster = rng.integers(20, size=300)
        X, P, y = sample(rng, 300)
        P = P + rng.normal(size=(20, 3))[cluster]
        frame = pd.DataFrame(X, columns=list("abc"))
        frame["pressure"] = rng.normal(size=20)[cluster]
        frame["wind"] = 0.1 * rng.normal(size=20)[cluster]
        model = LocalMARegressor(gate_features=TableEncoder(), random_state=0)
        model.fit(frame, y, predictions=P)
        assert str(model.dependence_).startswith(
            (
                "Rows with the same value of 'pressure' are alike",
                "Rows with the same value of 'wind' are alike",
            )
        )

    def test_an_unknown_choice_is_refused(self):
        with pytest.raises(ValueError, match="Pass 'auto', 'shuffled' or 'blocks'"):
            self.fit(folds="random")
