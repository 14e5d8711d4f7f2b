"""The band of the weights: its coverage, its width, where it is refused, and files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from localma import LocalMAClassifier, LocalMARegressor, load
from localma.errors import FileFormatError, InvalidInputError
from localma.folds import make_folds
from localma.gates import Labelled, ShrunkGate
from localma.gates.band import Band, _best_network, _confirmed_share
from localma.gates.points import HeldOut, Point
from localma.inspection import explain, summarize
from localma.losses import absolute_error, squared_error
from localma.report import render
from studies import bands
from studies.findings import Results

LOSS = squared_error()
LEVELS = (0.01, 0.5, 0.8, 0.9, 0.99, 0.999999)


def draw(n, seed=0, truth="linear logit"):
    """Inputs, predictions, targets and optimal weights of a truth of the study."""
    X, P, y = bands.TRUTHS[truth].draw(n, np.random.default_rng(seed))
    return X, P[:, :, None], y[:, None], bands.TRUTHS[truth].weight(X)


def fitted(n=200, seed=0, truth="linear logit", **parameters):
    data = Labelled.of(*draw(n, seed, truth)[:3], loss=LOSS)
    return ShrunkGate(random_state=seed, **parameters).fit(data)


def hold_out_one_fold_from(monkeypatch, n_rows):
    """Let one fold judge samples of this size and larger."""
    monkeypatch.setattr("localma.gates.fused.policy.LARGE", n_rows)
    monkeypatch.setattr("localma.gates.fused.policy.MEDIUM", n_rows // 10)


@pytest.fixture(scope="module")
def gate():
    return fitted()


class TestCoverage:
    @pytest.mark.parametrize("truth", ["linear logit", "cosine"])
    def test_of_the_optimal_weight(self, truth):
        X, _, _, optimal = draw(500, seed=10**6, truth=truth)
        inside = []
        for seed in range(16):
            low, high = fitted(100, seed, truth).weight_band(X)
            inside.append(((low[:, 0] <= optimal) & (optimal <= high[:, 0])).mean())
        assert 0.8 < np.mean(inside) < 0.99

    def test_bands_of_larger_samples_are_narrower(self, gate):
        X = draw(200, seed=5)[0]
        widths = [np.subtract(*fitted(n).weight_band(X)[::-1]).mean() for n in (50, 2000)]
        own = np.subtract(*gate.weight_band(X)[::-1]).mean()
        assert widths[1] < 0.6 * own
        assert own < widths[0]


class TestContract:
    @settings(max_examples=25, deadline=None)
    @given(levels=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=2, max_size=2))
    def test_levels_are_nested_around_the_weights(self, gate, levels):
        X = np.r_[draw(50, seed=5)[0], np.full((1, 3), 1e6)]
        weights = gate.predict_weights(X)
        (low, high), (lower, higher) = (gate.weight_band(X, level) for level in sorted(levels))
        assert (lower >= 0).all()
        assert (lower <= low).all()
        assert (low <= weights).all()
        assert (weights <= high).all()
        assert (high <= higher).all()
        assert (higher <= 1).all()

    def test_a_row_does_not_depend_on_the_other_rows(self, gate):
        X = draw(20, seed=5)[0]
        together = np.stack(gate.weight_band(X))
        alone = np.stack([np.concatenate(gate.weight_band(row[None])) for row in X], axis=1)
        np.testing.assert_allclose(together, alone, atol=1e-6)

    def test_ends_of_two_candidates_mirror_each_other(self, gate):
        low, high = gate.weight_band(draw(20, seed=5)[0])
        np.testing.assert_allclose(low[:, 0], 1 - high[:, 1], atol=1e-6)

    @pytest.mark.parametrize("level", [0, 1, 90, -0.5, float("nan")])
    def test_level_out_of_range(self, gate, level):
        with pytest.raises(InvalidInputError, match="level of a band must be between 0 and 1"):
            gate.weight_band(draw(5)[0], level)

    @pytest.mark.parametrize(
        "cv",
        [
            3,
            10,
            TimeSeriesSplit(4),
            RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
            ShuffleSplit(3, random_state=0),
        ],
        ids=str,
    )
    def test_any_folds(self, cv):
        X = draw(60)[0]
        low, high = fitted(60, cv=cv).weight_band(X)
        assert np.isfinite([low, high]).all()
        assert (high - low).min() > 0

    def test_folds_that_train_on_all_rows(self):
        data = Labelled.of(*draw(60)[:3], loss=LOSS)
        folds = [(np.arange(60), np.arange(k, 60, 3)) for k in range(3)]
        gate = ShrunkGate(random_state=0).fit(data, folds=folds)
        assert np.isfinite(gate.weight_band(data.X)).all()

    @pytest.mark.parametrize("rule", ["best", "one_standard_error"])
    def test_any_rule(self, rule):
        low, high = fitted(60, rule=rule).weight_band(draw(60)[0])
        assert (high - low).min() > 0

    def test_one_candidate_has_weight_one(self):
        X, P, y, _ = draw(60)
        low, high = ShrunkGate().fit(Labelled.of(X, P[:, :1], y, loss=LOSS)).weight_band(X)
        assert (low == 1).all()
        assert (high == 1).all()

    @pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")
    def test_any_loss(self):
        X, P, y, _ = draw(90)
        median = ShrunkGate(random_state=0).fit(Labelled.of(X, P, y, loss=absolute_error()))
        chances = 1 / (1 + np.exp(-P[:, :, 0]))
        model = LocalMAClassifier(random_state=0)
        model.fit(X, y[:, 0] > 0, predictions=np.stack([1 - chances, chances], axis=2))
        for low, high in (median.weight_band(X), model.weight_band(X)):
            assert (high - low).min() > 0


class TestWidth:
    def test_not_all_folds_need_to_judge(self):
        """With three of five folds the variance is that of leaving out a fifth of the rows."""
        data = Labelled.of(*draw(100)[:3], loss=LOSS)
        folds = make_folds(5, data.y, random_state=0)
        gates = [ShrunkGate(random_state=0).fit(data, folds=folds[:count]) for count in (3, 5)]
        assert [gate.band_.factor for gate in gates] == pytest.approx([16 / 5, 16 / 5])

    def test_row_and_mean_share_the_variance(self):
        folds = np.array([0.4, 0.5, 0.6])[:, None, None]
        band = Band(floor=np.array([0.0]), factor=4.0)
        assert band.reach(folds, 0.9).item() == pytest.approx(
            2.1318 * np.sqrt(0.25 * 4 * 0.01), 1e-4
        )
        assert Band(np.array([0.04]), 4.0).reach(0 * folds, 0.5).item() == pytest.approx(
            0.1481, 1e-3
        )

    @pytest.mark.parametrize(
        ("target", "share"), [(0.25, 0.25), (0.0, 0.0), (-0.5, -0.5), (1.0, 1.0), (3.0, 1.0)]
    )
    def test_held_out_rows_confirm_a_share_of_the_distance(self, target, share):
        """The average predicts 0 and the network 1; the targets say how far to go."""
        points = [Point("global", 0.5), Point("local", 0.25), Point("local", 0.25)]
        mixtures = np.array([0.0, 99.0, 1.0])[:, None, None] * np.ones((1, 8, 1))
        data = Labelled.of(
            np.zeros((8, 1)), np.zeros((8, 2, 1)), np.full((8, 1), target), loss=LOSS
        )
        rows = np.arange(8)
        held_out = HeldOut(data, mixtures, rows, rows % 2, [], 1.0)
        assert _best_network(held_out, points) == 2
        assert _confirmed_share(held_out, np.array([1.0, 0.0, 0.0]), 2) == pytest.approx(share)

    def test_points_that_predict_the_same_confirm_nothing(self):
        data = Labelled.of(np.zeros((8, 1)), np.zeros((8, 2, 1)), np.ones((8, 1)), loss=LOSS)
        rows = np.arange(8)
        held_out = HeldOut(data, np.zeros((2, 8, 1)), rows, rows % 2, [], 1.0)
        assert _confirmed_share(held_out, np.array([1.0, 0.0]), 1) == 0.0


class TestRefusal:
    def test_of_large_samples_unless_folds_are_asked_for(self, monkeypatch):
        hold_out_one_fold_from(monkeypatch, 150)
        X = draw(5)[0]
        gate = fitted(1200)
        assert not gate.has_band
        message = "needs at least 3 folds .* This model has 1 folds and 1,200 rows. .* cv=5"
        with pytest.raises(InvalidInputError, match=message):
            gate.weight_band(X)
        asked = fitted(1200, cv=5)
        assert asked.has_band
        assert (asked.weight_band(X)[1] > asked.weight_band(X)[0]).all()

    def test_of_two_folds(self):
        with pytest.raises(InvalidInputError, match="This model has 2 folds and 60 rows"):
            fitted(60, cv=2).weight_band(draw(5)[0])

    def test_of_many_rows(self, monkeypatch):
        monkeypatch.setattr("localma.gates.band.MOST_ROWS", 60)
        assert fitted(60).has_band
        with pytest.raises(InvalidInputError, match="This model has 5 folds and 61 rows"):
            fitted(61).weight_band(draw(5)[0])

    def test_explanations_and_the_report_do_without(self):
        pytest.importorskip("jinja2")
        X, P, y, _ = draw(200, truth="tanh step")
        predictions = dict(zip("ab", P[:, :, 0].T, strict=True))
        pages = {}
        for cv in (2, 3):
            model = LocalMARegressor(cv=cv, random_state=0).fit(X, y[:, 0], predictions=predictions)
            told = explain(model, X, 0, predictions=predictions)
            summary = summarize(model, X, y[:, 0], predictions=predictions)
            assert [c.low is None for c in told.candidates] == [cv == 2] * 2
            assert {effect.low is None for effect in summary.effects.effects} == {cv == 2}
            pages[cv] = render(summary)
        assert "The weights have no bands, because the sample has more than 2,000 rows" in pages[2]
        assert "Shaded: the mean band" not in pages[2]
        assert "have no bands" not in pages[3]
        assert "Shaded: the mean band of the weights, at level 90 %" in pages[3]


class TestFiles:
    @pytest.mark.parametrize("cv", [None, 2])
    def test_a_loaded_model_has_the_same_band(self, tmp_path, cv):
        X, P, y, _ = draw(80)
        model = LocalMARegressor(cv=cv, random_state=0).fit(X, y[:, 0], predictions=P[:, :, 0])
        model.save(tmp_path / "m.localma")
        again = load(tmp_path / "m.localma", candidates={})
        assert again.gate_.has_band == model.gate_.has_band == (cv is None)
        for level in LEVELS[: 6 if cv is None else 0]:
            for ours, theirs in zip(
                model.weight_band(X, level), again.weight_band(X, level), strict=True
            ):
                np.testing.assert_array_equal(ours, theirs)

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"band.floor": np.array([0.1, -0.1])}, "floor of at least 0"),
            ({"band.factor": np.array(0.0)}, "positive factor"),
            ({"band.floor": np.array([0.1])}, "band of ShrunkGate"),
            ({"band.floor": None}, "band of ShrunkGate"),
        ],
    )
    def test_wrong_bands_are_refused(self, gate, changed, message):
        arrays = {k: v for k, v in (gate.arrays() | changed).items() if v is not None}
        with pytest.raises(FileFormatError, match=message):
            ShrunkGate().restore(arrays)

    def test_few_folds_have_no_band_in_a_file(self):
        gate = fitted(60, cv=2)
        with pytest.raises(FileFormatError, match="band of ShrunkGate with few folds"):
            ShrunkGate().restore(gate.arrays() | {"band.factor": np.array(1.0)})


class TestEstimator:
    def test_gates_without_evidence_have_no_band(self):
        X, P, y, _ = draw(80)
        model = LocalMARegressor(random_state=0).fit(X, y[:, 0], predictions=P[:, :, 0])
        assert model.weight_band(X)[0].shape == (80, 2)
        with pytest.raises(AttributeError, match="Only gate='auto'"):
            LocalMARegressor(gate="global").fit(X, y[:, 0], predictions=P[:, :, 0]).weight_band(X)


class TestStudy:
    @pytest.mark.parametrize("truth", bands.TRUTHS.values(), ids=list(bands.TRUTHS))
    def test_truths_are_optimal_weights(self, truth):
        X, P, y = truth.draw(200_000, np.random.default_rng(0))
        weight = truth.weight(X)
        assert X.shape[1] == truth.n_inputs <= 5
        assert ((weight > 0) & (weight < 1)).all()
        residual = y - weight * P[:, 0] - (1 - weight) * P[:, 1]
        slope = residual * (P[:, 0] - P[:, 1])  # zero on average given x, in every half
        for half in (X[:, 0] < 0, X[:, 0] >= 0):
            assert abs(slope[half].mean()) < 5 * slope[half].std() / np.sqrt(half.sum())
        assert residual.std() == pytest.approx(truth.noise, rel=0.02)

    def test_a_replicate(self):
        metrics = bands.STUDY.replicate({"truth": "slope", "n": 100}, 0, tuple(bands.LEVELS))
        widths = [metrics[f"{level}:width"] for level in bands.LEVELS]
        assert widths == sorted(widths)
        assert all(0 <= metrics[f"{level}:coverage"] <= 1 for level in bands.LEVELS)

    def test_aims_and_notes(self):
        assert bands.notes(Results([])) == []
        assert {f.verdict(Results([])) for f in bands.STUDY.findings} == {"not run yet"}
        rows = [
            ({"truth": truth, "n": 100}, {"90 %:coverage": value})
            for truth, value in (("sine", 0.86), ("bump", 0.94), ("saddle", 0.96))
        ]
        verdicts = [finding.verdict(Results(rows)) for finding in bands.STUDY.findings]
        assert verdicts[:5:4] == ["agrees", "does not agree"]
        assert bands.notes(Results(rows))[1] == (
            "other truths, n=100: coverage 96.0% to 96.0%, mean 96.0%; 0 of 1 between 85 and 95 %"
        )
