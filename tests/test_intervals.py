"""Prediction intervals and sets: coverage, arithmetic, groups, weights, files, command line."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold, RepeatedKFold, TimeSeriesSplit

import localma
from localma import Column, LocalMAClassifier, LocalMARegressor
from localma.errors import FileFormatError, InvalidInputError, OutsideSampleWarning
from localma.gates import Labelled, MLPGate, ShrunkGate
from localma.gates.intervals import (
    LARGEST,
    MOST_SCORES,
    Calibration,
    HeldRows,
    _thinned,
    features,
    hinges,
    n_features,
)
from localma.losses import Interval as Domain
from localma.losses import Loss, get_loss, squared_error


def local_truth(n, seed=0, noise=0.3, p=2):
    """|x| from -x and x, with an error that grows with the second input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, p))
    P = np.stack([-X[:, 0], X[:, 0]], axis=1)
    return X, P, np.abs(X[:, 0]) + noise * np.exp(X[:, 1]) * rng.normal(size=n)


def class_truth(n, seed=0):
    """Three classes; each candidate knows one side of the first input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    logits = np.stack([2 * X[:, 0], np.zeros(n), 2 * X[:, 1]], axis=1)
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (truth.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1).clip(0, 2)
    flat = np.full((n, 3), 1 / 3)
    left = np.where(X[:, :1] < 0, truth, flat)
    right = np.where(X[:, :1] < 0, flat, truth)
    return X, np.stack([left, right], axis=1), np.array(["a", "b", "c"])[y]


def fitted(n=200, seed=0, **options):
    X, P, y = local_truth(n, seed)
    return LocalMARegressor(random_state=0, **options).fit(X, y, predictions=P)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture(scope="module")
def classifier():
    X, P, y = class_truth(300)
    return LocalMAClassifier(random_state=0).fit(X, y, predictions=P)


class TestCoverage:
    @pytest.mark.parametrize("level", [0.8, 0.9])
    def test_intervals_cover_their_level(self, level):
        covered = []
        for seed in range(8):
            X, P, y = local_truth(4000, 100 + seed)
            low, high = fitted(200, seed).predict_interval(X, level, predictions=P)
            covered.append(np.mean((low <= y) & (y <= high)))
        assert abs(np.mean(covered) - level) < 0.025

    def test_regions_are_covered_where_errors_differ(self):
        """A constant width would cover 1.00 and 0.74 of the two halves."""
        X, P, y = local_truth(4000, 1)
        low, high = fitted(1000).predict_interval(X, predictions=P)
        inside = (low <= y) & (y <= high)
        for half in (X[:, 1] < 0, X[:, 1] >= 0):
            assert abs(inside[half].mean() - 0.9) < 0.04

    def test_a_single_fold_is_split_conformal_prediction(self, monkeypatch):
        monkeypatch.setattr("localma.gates.auto.judging_folds", lambda n, groups=None: 1)
        model = fitted(2000)
        assert model.gate_.calibration_.answers.tolist() == [1, 1]
        X, P, y = local_truth(4000, 1)
        low, high = model.predict_interval(X, predictions=P)
        assert abs(np.mean((low <= y) & (y <= high)) - 0.9) < 0.03

    @pytest.mark.parametrize("loss", ["cross_entropy", "brier"])
    def test_sets_cover_their_level(self, loss):
        covered = []
        for seed in range(4):
            model = LocalMAClassifier(loss=loss, random_state=0)
            X, P, y = class_truth(300, seed)
            model.fit(X, y, predictions=P)
            X, P, y = class_truth(3000, 50 + seed)
            sets = model.predict_set(X, 0.9, predictions=P)
            covered.append(np.mean(sets[np.arange(len(y)), np.searchsorted(model.classes_, y)]))
        assert abs(np.mean(covered) - 0.9) < 0.03


def by_hand(scores, *, level, centres=0.0, scales=1.0):
    """Interval of one row from parts with these scores. Each part has its own candidate."""
    parts = [np.sort(np.asarray(part, dtype=float)) for part in scores]
    C, n = len(parts), sum(map(len, parts))
    q = n_features(C, 0)
    coefficients = np.zeros((C, 1, 1 + 2 * q))
    coefficients[:, 0, 0] = np.log(np.broadcast_to(scales, C))
    record = Calibration(
        scores=np.concatenate(parts)[:, None],
        mass=np.full((n, 1), 1.0 / n),
        parts=np.repeat(np.arange(C), [len(part) for part in parts]),
        answers=np.arange(C),
        unit=np.ones(1),
        knots=np.zeros((1, 3, q)),
        coefficients=coefficients,
        limits=np.array([-LARGEST, LARGEST]),
        n_effective=float(n),
    )
    P = np.broadcast_to(centres, C).astype(float)[None, :, None]
    low, high = record.interval([np.eye(C)[[c]] for c in range(C)], P, None, level)
    return float(low[0, 0]), float(high[0, 0])


class TestArithmetic:
    def test_every_rank_is_covered_as_often_as_the_level_says(self):
        """Ten exchangeable errors, each of which may be the new one: nine are covered."""
        values = np.random.default_rng(0).normal(size=10)
        covered = 0
        for new in range(10):
            low, high = by_hand([np.abs(np.delete(values, new))], level=0.9)
            covered += low <= values[new] <= high
        assert covered == 9

    @settings(max_examples=60, deadline=None)
    @given(
        data=st.lists(
            st.tuples(
                st.lists(st.floats(0, 100), min_size=1, max_size=8),
                st.floats(-50, 50),
                st.floats(0.01, 20),
            ),
            min_size=1,
            max_size=4,
        ),
        level=st.floats(0.05, 0.95),
    )
    def test_ends_are_quantiles_over_all_folds(self, data, level):
        scores, centres, scales = zip(*data, strict=True)
        n = sum(map(len, scores))
        rank = level * (n + 1)
        if rank > n:
            return
        if abs(rank - round(rank)) < 1e-6:  # either order statistic is right
            return
        values = [
            (c - s * score, c + s * score)
            for part, c, s in zip(scores, centres, scales, strict=True)
            for score in part
        ]
        lower, upper = map(sorted, zip(*values, strict=True))
        low, high = by_hand(scores, level=level, centres=centres, scales=scales)
        place = int(np.ceil(rank)) - 1
        assert high == pytest.approx(upper[place], rel=1e-5, abs=1e-4)
        assert low == pytest.approx(lower[n - 1 - place], rel=1e-5, abs=1e-4)

    def test_cv_plus_keeps_its_guarantee_with_few_rows(self):
        """Means of the other folds as predictions: coverage is at least 1 - 2a, with 10 rows."""
        rng, covered = np.random.default_rng(0), []
        for _ in range(400):
            y = rng.standard_cauchy(11)
            folds = np.arange(10) % 5
            centres = [y[:10][folds != k].mean() for k in range(5)]
            scores = [np.abs(y[:10][folds == k] - centres[k]) for k in range(5)]
            low, high = by_hand(scores, level=0.8, centres=centres)
            covered.append(low <= y[10] <= high)
        assert np.mean(covered) > 0.75

    def test_quantiles_of_many_scores_never_shorten_an_interval(self):
        rng = np.random.default_rng(0)
        scores, mass = rng.exponential(size=(7000, 2)), rng.uniform(size=7000)
        kept, shares = _thinned(scores, mass)
        assert kept.shape == shares.shape == (MOST_SCORES, 2)
        np.testing.assert_allclose(shares.sum(axis=0), mass.sum())
        for k in range(2):
            order = np.argsort(scores[:, k])
            cumulated = np.cumsum(mass[order])
            for share in (0.5, 0.9, 0.99):
                exact = scores[order, k][np.searchsorted(cumulated, share * mass.sum())]
                place = np.searchsorted(np.cumsum(shares[:, k]), share * mass.sum() * (1 - 1e-12))
                assert exact <= kept[place, k] <= 1.02 * exact

    def test_hinges_stay_within_one_for_any_numbers(self):
        raw = np.array([-1e308, 0.0, 1e308])[:, None, None]
        knots = np.array([[[-1e308], [0.0], [1e308]]])
        np.testing.assert_array_equal(hinges(raw, knots)[:, 0], [[-1, 0], [0, 0], [0, 1]])
        assert not hinges(raw, np.zeros((1, 3, 1))).any()

    def test_many_columns_are_left_out_of_the_scale(self):
        W, P = np.full((4, 40), 1 / 40), np.zeros((4, 40, 2))
        raw = features(W, P, np.zeros((4, 33)), np.ones(2))
        assert raw.shape == (4, 2, n_features(40, 33)) == (4, 2, 2)


class TestInterval:
    def test_contains_the_prediction_and_grows_with_the_level(self, model):
        X, P, _ = local_truth(300, 1)
        prediction = model.predict(X, predictions=P)
        ends = [model.predict_interval(X, level, predictions=P) for level in (0.1, 0.5, 0.9, 0.99)]
        for low, high in ends:
            assert ((low <= prediction) & (prediction <= high)).all()
        for (low, high), (lower, higher) in pairwise(ends):
            assert ((lower <= low) & (high <= higher)).all()

    @pytest.mark.parametrize("unit", [1e-20, 1e-3, 1e20])
    def test_the_unit_of_the_target_is_that_of_the_interval(self, unit):
        X, P, y = local_truth(200)  # with 100 rows two scales of the errors are nearly tied
        one, other = (
            LocalMARegressor(random_state=0)
            .fit(X, scale * y, predictions=scale * P)
            .predict_interval(X, predictions=scale * P)
            for scale in (1.0, unit)
        )
        for end, scaled in zip(one, other, strict=True):
            np.testing.assert_allclose(scaled / unit, end, atol=2e-2)

    @pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")
    def test_perfect_and_single_candidates_are_no_problem(self):
        X, _, y = local_truth(60)
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=y[:, None])
        low, high = model.predict_interval(X, predictions=y[:, None])
        np.testing.assert_allclose(high - low, 0.0, atol=1e-9)

    def test_several_outputs_have_intervals_of_their_own(self):
        X, P, y = local_truth(300)
        P, Y = np.stack([P, -50 * P], axis=2), np.stack([y, -50 * y], axis=1)
        model = LocalMARegressor(random_state=0).fit(X, Y, predictions=P)
        low, high = model.predict_interval(X, predictions=P)
        assert low.shape == high.shape == (300, 2)
        width = (high - low).mean(axis=0)
        assert width[1] == pytest.approx(50 * width[0], rel=0.05)
        assert ((low <= Y) & (high >= Y)).mean() == pytest.approx(0.9, abs=0.04)

    @pytest.mark.parametrize(
        ("loss", "least", "most"),
        [("poisson", 0.0, np.inf), ("gamma", 0.0, np.inf), ("bernoulli", 0.0, 1.0),
         ("absolute_error", -np.inf, np.inf)],
    )  # fmt: skip
    @pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")
    def test_ends_are_targets_that_the_loss_allows(self, loss, least, most):
        X, P, y = local_truth(200, noise=1.0)
        P, y = np.clip(np.abs(P) / 4 + 0.05, 0, 1), np.clip(np.abs(y) / 4 + 0.01, 0, 1)
        model = LocalMARegressor(loss=loss, random_state=0).fit(X, y, predictions=P)
        low, high = model.predict_interval(X, 0.95, predictions=P)
        assert low.min() >= least
        assert high.max() <= most
        assert np.isfinite(low).all()
        assert np.isfinite(high).all()

    def test_the_limits_of_your_own_loss_are_saved(self, tmp_path):
        square = get_loss("squared_error")
        loss = Loss("own", square.value, square.derivative, target=Domain(0.5, 2.0, True, True))
        X, P, y = local_truth(200)
        model = LocalMARegressor(loss=loss, random_state=0)
        model.fit(X, np.clip(y, 0.5, 2.0), predictions=P)
        model.save(tmp_path / "own.localma")
        for one in (model, localma.load(tmp_path / "own.localma")):
            low, _ = one.predict_interval(X, 0.99, predictions=np.clip(P, 0.6, 1.9))
            assert low.min() >= 0.5

    def test_candidates_run_if_no_predictions_are_passed(self):
        X, P, y = local_truth(150)
        model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
        model.set_params(random_state=0).fit(X, y)
        for ran, given_ in zip(
            model.predict_interval(X[:9]),
            model.predict_interval(X[:9], predictions=P[:9]),
            strict=True,
        ):
            np.testing.assert_allclose(ran, given_)

    def test_rows_outside_the_sample_are_warned_of(self):
        X, P, y = local_truth(200)
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
        with pytest.warns(OutsideSampleWarning):
            model.predict_interval(X + 1000, predictions=P)

    @pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")
    def test_only_auto_has_intervals(self):
        with pytest.raises(AttributeError, match="Only gate='auto'"):
            fitted(50, gate="global").predict_interval(np.zeros((1, 2)), predictions=[[0.0, 0.0]])

    @pytest.mark.parametrize("level", [0.0, 1.0, 90, -0.5, float("nan")])
    def test_a_level_is_between_zero_and_one(self, model, level):
        with pytest.raises(InvalidInputError, match="level must be between 0 and 1"):
            model.predict_interval(np.zeros((1, 2)), level, predictions=[[0.0, 0.0]])

    def test_few_rows_refuse_a_high_level(self):
        X, P, y = local_truth(10)
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
        assert model.predict_interval(X, 0.9, predictions=P)[0].shape == (10,)
        with pytest.raises(InvalidInputError, match=r"at least 19 held-out.*at most 0.909"):
            model.predict_interval(X, 0.95, predictions=P)

    def test_another_number_of_outputs_is_refused(self, model):
        with pytest.raises(InvalidInputError, match="Intervals are known for 1 outputs"):
            model.gate_.predict_interval(np.zeros((1, 2)), np.zeros((1, 2, 3)))

    def test_rows_are_predicted_in_slices(self, model, monkeypatch):
        X, P, _ = local_truth(50, 1)
        whole = model.predict_interval(X, predictions=P)
        monkeypatch.setattr("localma.gates.labelled.SLICE_NUMBERS", 500)
        np.testing.assert_allclose(model.predict_interval(X, predictions=P), whole, rtol=1e-12)

    def test_numbers_have_no_sets_and_classes_no_intervals(self, model, classifier):
        X, P = np.zeros((1, 2)), np.full((1, 2, 3), 1 / 3)
        with pytest.raises(InvalidInputError, match="Use intervals"):
            model.gate_.predict_set(X, P)
        with pytest.raises(InvalidInputError, match="For classes use sets"):
            classifier.gate_.predict_interval(X, P[..., 0])


class TestFoldsGroupsAndWeights:
    def test_the_order_of_the_rows_does_not_matter(self):
        X, P, y = local_truth(120)
        order = np.random.default_rng(1).permutation(120)
        ends = []
        for rows in (np.arange(120), order):
            place = np.argsort(rows)
            folds = [(place[train], place[test]) for train, test in KFold(4).split(X)]
            model = LocalMARegressor(cv=folds, random_state=0)
            model.fit(X[rows], y[rows], predictions=P[rows])
            ends.append(model.predict_interval(X, predictions=P))
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-3)

    def test_a_row_counts_once_in_repeated_folds(self):
        model = fitted(60, cv=RepeatedKFold(n_splits=3, n_repeats=4, random_state=0))
        record = model.gate_.calibration_
        assert len(record.scores) == 240
        assert record.n_effective == pytest.approx(60)

    def test_each_group_counts_once(self):
        X, P, y = local_truth(200)
        groups = np.repeat(np.arange(21), [180, *[1] * 20])
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=P, groups=groups)
        record = model.gate_.calibration_
        assert record.n_effective == 21
        assert np.isclose(np.sort(record.mass[:, 0])[-20:], 1 / 21).all()
        assert record.mass.sum() == pytest.approx(1.0)

    def test_few_groups_refuse_a_high_level(self):
        X, P, y = local_truth(200)
        model = LocalMARegressor(random_state=0)
        model.fit(X, y, predictions=P, groups=np.arange(200) % 8)
        with pytest.raises(InvalidInputError, match="groups if you passed any; this model has 8"):
            model.predict_interval(X, 0.9, predictions=P)

    def test_new_groups_are_covered(self):
        """Rows of a group share most of their error."""
        covered = []
        for seed in range(8):
            rng = np.random.default_rng(seed)
            X, P, y = local_truth(500, seed, noise=0.1)
            groups = np.repeat(np.arange(50), 10)
            y = y + rng.normal(size=50)[groups]
            old = groups < 30
            model = LocalMARegressor(random_state=0)
            model.fit(X[old], y[old], predictions=P[old], groups=groups[old])
            low, high = model.predict_interval(X[~old], predictions=P[~old])
            covered.append(np.mean((low <= y[~old]) & (y[~old] <= high)))
        assert 0.86 < np.mean(covered) < 0.97

    def test_first_folds_of_a_time_series_only_lend_their_errors(self):
        model = fitted(180, cv=TimeSeriesSplit(5))
        record = model.gate_.calibration_
        assert record.answers.tolist() == [0, 0, 3, 4, 5]
        assert len(record.scores) == 150

    def test_rows_without_weight_do_not_matter(self):
        X, P, y = local_truth(150)
        weight = np.where(np.arange(150) < 120, 1.0, 0.0)
        spoilt = np.where(weight > 0, y, 1e3)
        one, other = (
            LocalMARegressor(random_state=0)
            .fit(X, target, weight, predictions=P)
            .predict_interval(X, predictions=P)
            for target in (y, spoilt)
        )
        np.testing.assert_allclose(one, other, atol=1e-3)

    def test_weights_are_shares_of_the_errors(self):
        """Rows with large errors weigh more, so intervals are wider."""
        X, P, y = local_truth(400)
        noisy = np.random.default_rng(3).uniform(size=400) < 0.5
        y = np.abs(X[:, 0]) + np.where(noisy, 2.0, 0.1) * np.random.default_rng(4).normal(size=400)
        widths = []
        for weight in (1.0, 20.0):
            model = LocalMARegressor(random_state=0)
            model.fit(X, y, np.where(noisy, weight, 1.0), predictions=P)
            low, high = model.predict_interval(X, predictions=P)
            widths.append(np.mean(high - low))
        assert widths[1] > 1.15 * widths[0]


class TestSets:
    def test_contain_the_prediction_and_grow_with_the_level(self, classifier):
        X, P, _ = class_truth(300, 1)
        sets = [classifier.predict_set(X, level, predictions=P) for level in (0.2, 0.6, 0.9, 0.99)]
        for chosen in sets:
            assert chosen.dtype == bool
            assert chosen.shape == (300, 3)
            labels = classifier.predict(X, predictions=P)
            assert chosen[np.arange(300), np.searchsorted(classifier.classes_, labels)].all()
        for smaller, larger in pairwise(sets):
            assert (smaller <= larger).all()
        assert sets[2].sum(axis=1).mean() < 2.5

    def test_columns_of_a_frame_are_the_classes(self, classifier):
        pandas = pytest.importorskip("pandas")
        X, P, _ = class_truth(5, 1)
        twin = localma.LocalMAClassifier(random_state=0)
        twin.fit(*class_truth(60)[::2], predictions=class_truth(60)[1])
        frame = twin.set_output(transform="pandas").predict_set(X, predictions=P)
        assert isinstance(frame, pandas.DataFrame)
        assert list(frame.columns) == ["a", "b", "c"]


HOSTILE = {
    "negative score": ("scores", lambda a: -a),
    "unsorted scores": ("scores", lambda a: a[::-1].copy()),
    "infinite score": ("scores", lambda a: np.full_like(a, np.inf)),
    "negative share": ("mass", lambda a: -a),
    "shares beyond one": ("mass", lambda a: 2 * a),
    "unknown part": ("parts", lambda a: a + 1),
    "parts out of order": ("parts", lambda a: a[::-1].copy()),
    "unknown answer": ("answers", lambda a: a + 100),
    "negative answer": ("answers", lambda a: a - 100),
    "no unit": ("unit", lambda a: 0 * a),
    "NaN knots": ("knots", lambda a: np.nan * a),
    "knots out of order": ("knots", lambda a: a[:, ::-1].copy()),
    "infinite coefficients": ("coefficients", lambda a: a + np.inf),
    "limits out of order": ("limits", lambda a: a[::-1].copy()),
    "no rows": ("n_effective", lambda a: 0 * a),
    "fewer features": ("knots", lambda a: a[..., 1:]),
    "no features": ("knots", lambda a: a[..., :0]),
    "texts": ("scores", lambda a: a.astype(str)),
    "fewer parts": ("answers", lambda a: a[1:]),
    "none": ("scores", lambda a: a[:0]),
}


class TestFiles:
    @pytest.mark.parametrize("kind", ["model", "classifier"])
    def test_a_loaded_model_gives_the_same(self, kind, request, tmp_path):
        model = request.getfixturevalue(kind)
        model.save(tmp_path / "saved.localma")
        again = localma.load(tmp_path / "saved.localma")
        X, P, _ = local_truth(50, 1) if kind == "model" else class_truth(50, 1)
        method = "predict_interval" if kind == "model" else "predict_set"
        np.testing.assert_array_equal(
            getattr(model, method)(X, predictions=P), getattr(again, method)(X, predictions=P)
        )

    def test_the_stored_size_is_bounded(self):
        n, W = 20_000, np.ones((20_000, 1))
        data = Labelled.of(
            np.zeros((n, 1)), np.zeros((n, 1, 1)), np.ones((n, 1)), loss=squared_error()
        )
        parts = [HeldRows(1, np.arange(n)[k::5], W[k::5]) for k in range(5)]
        record = Calibration.of(data, parts)
        assert len(record.scores) == 5 * MOST_SCORES
        assert sum(array.nbytes for array in record.arrays().values()) < 150_000

    @pytest.mark.parametrize("name", HOSTILE)
    def test_hostile_arrays_are_refused(self, model, name):
        array, change = HOSTILE[name]
        arrays = model.gate_.arrays()
        arrays[f"errors.{array}"] = change(arrays[f"errors.{array}"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(FileFormatError, match="calibration of ShrunkGate"):
                ShrunkGate(random_state=0).restore(arrays)

    @pytest.mark.parametrize("array", list(Calibration.__dataclass_fields__))
    def test_every_array_is_needed(self, model, array):
        arrays = model.gate_.arrays()
        del arrays[f"errors.{array}"]
        with pytest.raises(FileFormatError, match="is restored from arrays of the shapes"):
            ShrunkGate(random_state=0).restore(arrays)


def test_a_base_without_the_kernel_has_intervals():
    torch_free = ShrunkGate(MLPGate((4,), n_steps=40), cv=3, linear=False, random_state=0)
    X, P, y = local_truth(100)
    model = LocalMARegressor(gate=torch_free, random_state=0).fit(X, y, predictions=P)
    low, high = model.predict_interval(X, predictions=P)
    assert np.mean((low <= y) & (y <= high)) > 0.8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("typer")
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("interval")
    X, P, y = local_truth(300)
    table = np.column_stack([X, P, y])
    for name, rows in {"train.csv": slice(200), "new.csv": slice(200, 300)}.items():
        np.savetxt(folder / name, table[rows], "%.6g", ",", header="x,z,l,r,y", comments="")
    columns = {"l": Column("l", classes=["no", "yes"]), "r": Column("r", classes=["no", "yes"])}
    import pandas

    frame = pandas.DataFrame({"x": X[:, 0], "l": (2 - X[:, 0]) / 4, "r": (2 + X[:, 0]) / 4})
    labels = np.where(X[:, 0] + y / 2 > 0.5, "yes", "no")
    model = LocalMAClassifier(columns, gate_features=["x"], random_state=0)
    model.fit(frame, labels).save(folder / "classes.localma")
    frame.to_csv(folder / "frame.csv", index=False)
    return folder


class TestCommandLine:
    def call(self, *arguments, code=0):
        from typer.testing import CliRunner

        from localma.cli import app

        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == code, result.output
        return result

    def read(self, path):
        import pandas

        return pandas.read_csv(path)

    def fit(self, folder, *options):
        out = folder / f"{len(options)}.localma"
        named = ("--target", "y", "--predictions", "l,r", "--out", out)
        self.call("fit", folder / "train.csv", *named, *options)
        return out

    def test_low_and_high_are_columns(self, folder):
        model, out = self.fit(folder), folder / "out.csv"
        self.call("predict", model, folder / "new.csv", "--out", out, "--interval", 0.9)
        table, new = self.read(out), self.read(folder / "new.csv")
        assert list(table.columns[:3]) == ["prediction", "low", "high"]
        expected = localma.load(model).predict_interval(new.drop(columns="y"))
        np.testing.assert_allclose(table[["low", "high"]].to_numpy().T, expected, rtol=1e-6)
        assert ((table.low <= new.y) & (new.y <= table.high)).mean() > 0.8

    def test_a_set_is_written_as_text(self, folder):
        out = folder / "sets.csv"
        files = (folder / "classes.localma", folder / "frame.csv")
        self.call("predict", *files, "--out", out, "--interval", 0.99)
        table = self.read(out)
        assert list(table.columns[:2]) == ["prediction", "set"]
        assert set(table["set"]) <= {"no", "yes", "no;yes"}
        assert "no;yes" in set(table["set"])

    @pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")
    def test_wrong_levels_and_gates_are_refused(self, folder):
        model = self.fit(folder)
        options = (folder / "new.csv", "--out", folder / "x.csv", "--interval")
        assert (
            "--interval must be between 0 and 1"
            in self.call("predict", model, *options, 90, code=2).output
        )
        constant = self.fit(folder, "--gate", "global")
        assert "--gate auto" in self.call("predict", constant, *options, 0.9, code=2).output

    def test_time_folds_use_the_errors_of_later_rows(self, folder):
        record = localma.load(self.fit(folder, "--time", "z")).gate_.calibration_
        assert 0 in record.answers
        assert len(record.scores) < 200
