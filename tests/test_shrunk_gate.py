"""Safe locality: the path, its verdict, the shift guard, and hard samples."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from localma import CrossFitted, LocalMAClassifier, LocalMARegressor, load
from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError
from localma.evidence import locality_gain, smallest_risk
from localma.folds import make_folds, number_groups
from localma.gates import EqualGate, GlobalGate, Labelled, MLPGate, ShrunkGate
from localma.gates.fused.engine import rows_outside
from localma.gates.fused.policy import budget
from localma.gates.points import HeldOut
from localma.gates.support import Support
from localma.losses import squared_error

LOSS = squared_error()


def local_truth(n=200, seed=0, noise=0.1, p=2):
    """|x| from -x and x: the weights must depend on the sign of the first input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, p))
    P = np.stack([-X[:, 0], X[:, 0]], axis=1)[:, :, None]
    return X, P, (np.abs(X[:, 0]) + noise * rng.normal(size=n))[:, None]


def constant_truth(n=200, seed=0):
    """The mean of two noisy candidates: no weights but equal ones are right, anywhere."""
    rng = np.random.default_rng(seed)
    X, f = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    return X, f[:, :, None], (f.mean(axis=1) + 0.5 * rng.normal(size=n))[:, None]


def crowded_truth(n, seed, p=400):
    """Candidates say -1 and 1; where between them the truth is depends on a sum of all inputs."""
    slope = np.random.default_rng(99).normal(size=p) / np.sqrt(p)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.tanh(2 * X @ slope) + 0.7 * rng.normal(size=n)
    return X, np.tile([[[-1.0], [1.0]]], (n, 1, 1)), y[:, None]


@pytest.fixture(scope="module")
def local():
    return ShrunkGate(random_state=0).fit(Labelled.of(*local_truth(), loss=LOSS))


@pytest.fixture(scope="module")
def constant():
    return ShrunkGate(random_state=0).fit(Labelled.of(*constant_truth(), loss=LOSS))


def hold_out_one_fold_from(monkeypatch, n_rows):
    """Let one fold judge samples of this size and larger."""
    monkeypatch.setattr("localma.gates.fused.policy.LARGE", n_rows)
    monkeypatch.setattr("localma.gates.fused.policy.MEDIUM", n_rows // 10)


class TestPath:
    @pytest.mark.parametrize(
        ("n_candidates", "n", "equal"),
        [(3, 1000.0, 0.112), (16, 100.0, 1.0), (1, 100.0, 0.1)],
    )
    def test_equal_weights_are_likelier_with_more_candidates_per_row(self, n_candidates, n, equal):
        points = ShrunkGate()._points(budget(100, 4), 4, n_candidates, n)
        prior = {point.name: point.prior for point in points}
        assert prior["equal"] == pytest.approx(equal)
        assert (prior["global"], prior["best"]) == (0.5, 0.05)

    def test_many_exchangeable_candidates_get_nearly_equal_weights(self):
        """Global weights of 16 candidates from 60 rows cost a twelfth of the risk."""
        behind = {"auto": [], "global": []}
        for seed in range(6):
            rng = np.random.default_rng(seed)
            X, truth = rng.normal(size=(560, 2)), rng.normal(size=(560, 1))
            P = truth[:, np.newaxis] + rng.normal(size=(560, 16, 1))
            y = truth + rng.normal(size=(560, 1))
            data = Labelled.of(X[:60], P[:60], y[:60], loss=squared_error())
            equal = np.mean((P[60:].mean(axis=1) - y[60:]) ** 2)
            for name, gate in (("auto", ShrunkGate(random_state=0)), ("global", GlobalGate())):
                mixture = gate.fit(data).average(X[60:], P[60:])
                behind[name].append(np.mean((mixture - y[60:]) ** 2) / equal - 1.0)
        assert np.mean(behind["global"]) > 0.05
        assert np.mean(behind["auto"]) < 0.01

    def test_is_a_table(self, local):
        lengths = {len(column) for column in local.path_.values()}
        assert set(local.path_) == {
            "gate", "shrinkage", "risk", "standard_error", "weight", "held_out",
        }  # fmt: skip
        assert set(local.path_["held_out"]) == {"rows"}
        assert lengths == {11}
        assert local.path_["gate"][:3] == ["equal", "best", "global"]
        assert local.path_["shrinkage"][:3] == [np.inf] * 3
        assert sum(local.path_["weight"]) == pytest.approx(1.0)

    def test_local_truth_uses_local_gates(self, local):
        constant_share = sum(local.path_["weight"][:3])
        assert constant_share == 0.0
        assert min(local.path_["risk"][3:]) < 0.2 * local.path_["risk"][2]

    def test_constant_truth_stays_constant(self, constant):
        X, _, _ = constant_truth(seed=1)
        spread = constant.predict_weights(X).std(axis=0)
        assert sum(constant.path_["weight"][:3]) > 0.5
        assert spread.max() < 0.05

    def test_risk_of_the_global_point_is_cross_fitted_by_hand(self):
        X, P, y = constant_truth()
        folds = make_folds(4, y, random_state=1)
        gate = ShrunkGate(random_state=0).fit(Labelled.of(X, P, y, loss=LOSS), folds=folds)
        by_hand = np.empty(len(y))
        for train, test in folds:
            weights = (
                GlobalGate().fit(Labelled.of(X[train], P[train], y[train], loss=LOSS)).weights_
            )
            by_hand[test] = (y[test, 0] - P[test, :, 0] @ weights) ** 2
        assert gate.path_["risk"][2] == pytest.approx(by_hand.mean(), rel=1e-9)
        assert gate.locality_gain_.global_risk == pytest.approx(by_hand.mean(), rel=1e-9)

    @pytest.mark.parametrize("rule", ["best", "one_standard_error"])
    def test_rules_that_select_choose_one_point(self, rule):
        for problem in (local_truth, constant_truth):
            gate = ShrunkGate(rule=rule, random_state=0).fit(Labelled.of(*problem(), loss=LOSS))
            assert sorted(gate.path_["weight"])[-2:] == [0.0, 1.0]

    def test_one_standard_error_is_at_least_as_constant(self):
        data = constant_truth(seed=3)
        shares = [
            sum(
                ShrunkGate(rule=rule, random_state=0)
                .fit(Labelled.of(*data, loss=LOSS))
                .path_["weight"][:3]
            )
            for rule in ("best", "one_standard_error")
        ]
        assert shares[1] >= shares[0]
        assert shares[1] == 1.0

    def test_wraps_any_shrinkable_gate(self):
        X, P, y = local_truth()
        gate = ShrunkGate(
            MLPGate((8, 4), n_steps=100),
            linear=False,
            trees=False,
            strengths=(1.0, 0.01),
            random_state=0,
        )
        gate.fit(Labelled.of(X, P, y, loss=LOSS))
        assert len(gate.path_["gate"]) == 5
        assert gate.locality_gain_.value > 0

    @pytest.mark.parametrize(("p", "crowd"), [(2, 1.0), (32, 1.0), (96, 3.0)])
    def test_shrinkage_grows_with_many_inputs(self, p, crowd):
        X, P, y = local_truth(n=60, p=p)
        gate = ShrunkGate(strengths=(1.0, 0.1), linear=False, trees=False, random_state=0)
        gate.fit(Labelled.of(X, P, y, loss=LOSS))
        assert gate.path_["shrinkage"][3:] == pytest.approx([crowd / 60, 0.1 * crowd / 60])

    def test_many_inputs_that_all_matter_a_little(self):
        X, P, y = crowded_truth(1000, seed=1)
        gate = ShrunkGate(random_state=0).fit(Labelled.of(*crowded_truth(600, seed=0), loss=LOSS))
        local, constant = (((y - f) ** 2).mean() for f in (gate.average(X, P), P.mean(axis=1)))
        assert gate.locality_gain_.is_clear
        assert local < 0.83 * constant

    def test_large_sample_holds_out_one_fold(self, monkeypatch):
        hold_out_one_fold_from(monkeypatch, 150)
        gate = ShrunkGate(random_state=0).fit(Labelled.of(*local_truth(), loss=LOSS))
        assert len(gate.fold_answers_) == 1
        assert gate.locality_gain_.is_clear
        asked = ShrunkGate(cv=ShuffleSplit(3, random_state=0), random_state=0)
        assert len(asked.fit(Labelled.of(*local_truth(), loss=LOSS)).fold_answers_) == 3

    def test_two_halves_of_one_fold_say_no_more_than_their_rows(self, monkeypatch):
        judged = []

        def gain(*losses, **how):
            judged.append((losses, how))
            return locality_gain(*losses, **how)

        monkeypatch.setattr("localma.gates.auto.locality_gain", gain)
        hold_out_one_fold_from(monkeypatch, 150)
        gate = ShrunkGate(random_state=0).fit(Labelled.of(*local_truth(), loss=LOSS))
        (((before, _, after, weight), how),) = judged
        rows = (before - after).std(ddof=1) / np.sqrt(len(weight))
        assert gate.locality_gain_.standard_error == pytest.approx(how["overlap"] * rows)


class TestVerdict:
    def test_local_truth(self, local):
        gain = local.locality_gain_
        assert gain.is_clear
        assert gain.value == pytest.approx(gain.global_risk - gain.risk)
        assert local.verdict_.startswith("Use local weights. They lower the mean loss on held-out")
        assert "with fixed weights to" in local.verdict_

    def test_constant_truth_makes_no_claim_for_locality(self):
        claims = []
        for seed in range(8):
            gate = ShrunkGate(random_state=seed).fit(
                Labelled.of(*constant_truth(80, seed), loss=LOSS)
            )
            claims.append(gate.locality_gain_.is_clear and gate.locality_gain_.value > 0.05)
        assert sum(claims) == 0

    def test_no_clear_gain_sentence(self):
        gate = ShrunkGate(random_state=0).fit(Labelled.of(*constant_truth(80, seed=4), loss=LOSS))
        assert gate.verdict_.startswith("Keep this model, or use fixed weights. Local weights show")

    def test_gain_without_local_gates_is_not_called_local(self):
        """Noisy twins: equal weights beat fitted ones, and nothing local is kept."""
        rng = np.random.default_rng(0)
        truth = rng.normal(size=(60, 1))
        P = (truth + rng.normal(size=(60, 40)))[:, :, None]
        gate = ShrunkGate(random_state=0).fit(
            Labelled.of(rng.normal(size=(60, 3)), P, truth, loss=LOSS)
        )
        assert gate.locality_gain_.is_clear
        assert not gate.answer_.gates
        assert gate.verdict_.startswith("Use fixed weights. No local weights are used. The mean")

    def test_gain_of_equal_weights_is_not_called_local(self):
        """Twins again: local gates have a say, but what is gained equal weights gain."""
        rng = np.random.default_rng(390)
        truth = rng.normal(size=(100, 1))
        P = (truth + rng.normal(size=(100, 6)))[:, :, None]
        gate = ShrunkGate(random_state=0).fit(
            Labelled.of(rng.normal(size=(100, 2)), P, truth, loss=LOSS)
        )
        gain = gate.locality_gain_
        assert gate.answer_.gates
        assert gain.is_clear
        assert gain.value > 0
        assert not gain.is_local
        assert gate.verdict_.startswith("Use fixed weights. With local weights the mean loss on")
        assert "equal weights or a single candidate it changes by only" in gate.verdict_

    def test_gain_over_constant_weights_where_none_of_them_are_right(self, local):
        gain = local.locality_gain_
        assert gain.over_constant == pytest.approx(gain.value, rel=0.1)
        assert gain.is_local

    def test_a_block_is_predicted_by_what_others_choose_among_what_may_be_chosen(self):
        """The first point is right in block 0, the second in block 1, the third everywhere."""
        y, blocks = np.zeros((6, 1)), np.repeat([0, 1], 3)
        mixtures = np.stack([blocks, 1 - blocks, np.zeros(6)])[:, :, None].astype(float)
        data = Labelled.of(np.empty((6, 0)), np.empty((6, 2, 1)), y, loss=LOSS)
        held_out = HeldOut(data, mixtures, np.arange(6), blocks, [[], []], 1.0)
        for prior, expected in ([0.5, 0.5, 0.0], 1.0), ([0.3, 0.3, 0.4], 0.0):
            nested = held_out.nested_losses(held_out.losses(), smallest_risk, np.array(prior))
            assert nested.tolist() == [expected] * 6

    def test_repeated_folds_are_no_more_evidence(self):
        X, P, y = constant_truth(100, seed=0)
        largest, errors = [], []
        for repeats in (1, 10):
            cv = RepeatedKFold(n_splits=5, n_repeats=repeats, random_state=0)
            base = MLPGate(n_steps=30)
            gate = ShrunkGate(base, cv=cv, linear=False, strengths=(1.0, 0.1), random_state=0)
            largest.append(max(gate.fit(Labelled.of(X, P, y, loss=LOSS)).path_["weight"]))
            errors.append(gate.path_["standard_error"][0])
        assert largest[1] < largest[0] + 0.1
        assert errors[1] > 0.85 * errors[0]

    def test_what_is_chosen_has_the_smallest_risk_of_the_path_however_often_rows_are_judged(self):
        for seed in range(4):
            X, P, y = constant_truth(60, seed)
            base, cv = MLPGate(n_steps=30), ShuffleSplit(6, test_size=0.2, random_state=seed)
            gate = ShrunkGate(base, cv=cv, linear=False, rule="best", random_state=0)
            path = gate.fit(Labelled.of(X, P, y, loss=LOSS)).path_
            assert np.argmax(path["weight"]) == np.argmin(path["risk"])

    def test_gain_can_be_negative(self):
        """Nested, so not the minimum over a path that contains the global gate."""
        gains = [
            ShrunkGate(rule="best", random_state=seed)
            .fit(Labelled.of(*constant_truth(40, seed), loss=LOSS))
            .locality_gain_.value
            for seed in range(6)
        ]
        assert min(gains) < 0

    def test_sample_weight_enters(self):
        X, P, y = local_truth()
        doubled = ShrunkGate(random_state=0).fit(
            Labelled.of(X, P, y, loss=LOSS, sample_weight=np.full(len(y), 2.0))
        )
        plain = ShrunkGate(random_state=0).fit(Labelled.of(X, P, y, loss=LOSS))
        assert doubled.locality_gain_.value == pytest.approx(plain.locality_gain_.value, rel=1e-3)
        one_side = (X[:, 0] > 0).astype(float)
        right = ShrunkGate(random_state=0).fit(
            Labelled.of(X, P, y, loss=LOSS, sample_weight=one_side)
        )
        assert right.global_weights_.tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
        assert right.locality_gain_.value < 0.1


class TestGuard:
    def test_far_away_is_global(self, local):
        far = np.array([[50.0, 0.0], [-50.0, -50.0], [1e6, 1e6]])
        np.testing.assert_allclose(
            local.predict_weights(far), np.tile(local.global_weights_, (3, 1)), atol=1e-12
        )
        assert local.support(far).tolist() == [0.0, 0.0, 0.0]

    def test_an_input_that_the_gate_hardly_uses_may_drift(self, local):
        X, _, _ = local_truth()
        drifted = X + np.array([0.0, 20.0])
        assert local.support(drifted).mean() > 0.95
        change = np.abs(local.predict_weights(drifted) - local.predict_weights(X))
        assert change.mean() < 0.1

    def test_inside_is_untouched(self, local):
        X, _, _ = local_truth()
        assert (local.support(X) == 1.0).all()
        np.testing.assert_allclose(
            local.predict_weights(X), local.answer_.predict_weights(X), atol=1e-12
        )

    def test_without_guard_the_sure_gate_stays_sure(self):
        gate = ShrunkGate(guard=False, random_state=0).fit(Labelled.of(*local_truth(), loss=LOSS))
        assert gate.predict_weights(np.array([[50.0, 0.0]]))[0, 1] > 0.99
        assert gate.support(np.array([[50.0, 0.0]])).tolist() == [1.0]

    def test_estimator_returns_support(self):
        X, P, y = local_truth()
        model = LocalMARegressor(random_state=0).fit(X, y[:, 0], predictions=P[:, :, 0])
        weights, support = model.predict_weights(np.r_[X[:2], [[99.0, 0.0]]], return_support=True)
        assert support.tolist() == [1.0, 1.0, 0.0]
        np.testing.assert_allclose(weights[2], model.global_weights_, atol=1e-12)


class TestSplits:
    @pytest.mark.parametrize(
        "cv",
        [
            TimeSeriesSplit(4),
            RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
            ShuffleSplit(3, random_state=0),
        ],
        ids=["time", "repeated", "shuffle"],
    )
    def test_splits_that_are_no_partition(self, cv):
        X, P, y = local_truth()
        model = LocalMARegressor(cv=cv, random_state=0).fit(X, y[:, 0], predictions=P[:, :, 0])
        assert model.locality_gain_.is_clear
        assert model.locality_gain_.value > 0

    def test_groups(self):
        X, P, y = local_truth()
        groups = np.arange(200) % 9
        for cv in (3, GroupKFold(3)):
            model = LocalMARegressor(cv=cv, random_state=0)
            model.fit(X, y[:, 0], predictions=P[:, :, 0], groups=groups)
            assert model.locality_gain_.is_clear
        with pytest.raises(
            InvalidInputError, match=r"2 groups cannot be split into 5 folds.*Pass cv=2"
        ):
            LocalMARegressor(cv=5).fit(X, y[:, 0], predictions=P[:, :, 0], groups=groups % 2)

    # Nothing that is learnt from groups helps in new ones, so a constant may be ahead.
    @pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")
    @pytest.mark.parametrize(("n", "n_groups"), [(600, 20), (20_000, 10), (20_000, 200)])
    def test_rows_of_a_group_are_no_independent_draws(self, n, n_groups):
        # The candidates are as good as each other in truth; a group favours one by chance.
        rng = np.random.default_rng(1)
        groups = np.sort(np.arange(n) % n_groups)
        shift = rng.normal(size=n_groups)[groups]
        X = np.column_stack([rng.normal(size=n_groups)[groups], rng.normal(size=n)])
        P = np.column_stack([np.ones(n), -np.ones(n)])
        y = shift + 0.1 * rng.normal(size=n)
        told = LocalMARegressor(random_state=0).fit(X, y, predictions=P, groups=groups)
        found = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
        untold = LocalMARegressor(folds="shuffled", random_state=0).fit(X, y, predictions=P)
        assert untold.locality_gain_.is_clear  # it knows the groups again by their inputs
        assert untold.locality_gain_.value > 0
        for gain in (told.locality_gain_, found.locality_gain_):
            assert gain.value < 2 * gain.standard_error

    # In these data sets the same points are chosen whether groups are known or not.
    @pytest.mark.parametrize(("n", "seed"), [(600, 1), (20_000, 2)])
    def test_standard_errors_are_between_groups(self, n, seed):
        rng = np.random.default_rng(seed)
        groups = np.arange(n) // (n // 100)
        X = np.column_stack([rng.normal(size=100)[groups], rng.normal(size=n)])
        P = np.stack([np.ones(n), -np.ones(n)], axis=1)[:, :, np.newaxis]
        y = (X[:, 0] + rng.normal(size=100)[groups])[:, np.newaxis]
        folds = list(GroupKFold(5).split(X, groups=groups))
        told, untold = (
            ShrunkGate(trees=False, random_state=0).fit(
                Labelled.of(X, P, y, loss=LOSS, groups=given), folds=folds
            )
            for given in (groups, None)
        )
        gains = told.locality_gain_, untold.locality_gain_
        assert gains[0].value == pytest.approx(gains[1].value, rel=0.1)
        # Folds of whole groups vary as groups do, but for chance; one fold cannot tell.
        assert gains[0].standard_error > (1.0 if n == 600 else 3.0) * gains[1].standard_error

    @pytest.mark.parametrize("weighing", [3, 6])
    def test_groups_without_weight_do_not_count(self, monkeypatch, weighing):
        hold_out_one_fold_from(monkeypatch, 2000)
        X, P, y = local_truth(3000)
        groups = np.arange(3000) % 60
        weight = (groups < weighing).astype(float)
        whole = ShrunkGate(random_state=0).fit(Labelled.of(X, P, y, loss=LOSS))
        gate = ShrunkGate(random_state=0)
        assert gate.judging_folds(3000, 60) == 1
        assert gate.judging_folds(3000, weighing) == 5
        gate.fit(Labelled.of(X, P, y, loss=LOSS, sample_weight=weight, groups=groups))
        assert len(gate.fold_answers_) > 1
        assert gate.locality_gain_.value == pytest.approx(whole.locality_gain_.value, rel=0.1)
        assert gate.locality_gain_.is_clear

    def test_few_groups_leave_no_trace_in_a_saved_model(self, monkeypatch, tmp_path):
        hold_out_one_fold_from(monkeypatch, 200)
        X, P, y = local_truth()
        model = LocalMARegressor(random_state=0)
        model.fit(X, y[:, 0], predictions=P[:, :, 0], groups=np.arange(200) % 9)
        assert len(model.gate_.fold_answers_) == 5
        model.save(tmp_path / "m.localma")
        assert load(tmp_path / "m.localma", candidates={}).gate_.judging_folds(10**6) == 1

    def test_a_single_group_leaves_the_verdict_open(self):
        X, P, y = local_truth()
        model = LocalMARegressor(cv=KFold(3), random_state=0)
        with pytest.warns(UserWarning, match="ignored by KFold"):
            model.fit(X, y[:, 0], predictions=P[:, :, 0], groups=np.zeros(200))
        assert np.isnan(model.locality_gain_.standard_error)
        assert not model.locality_gain_.is_clear
        assert model.verdict_.startswith("No recommendation is possible: only one row or one group")

    def test_many_groups_by_name_are_split_fast(self):
        names = np.array([f"patient {k}" for k in range(40_000)], dtype=object)
        start = time.perf_counter()
        folds = make_folds(None, np.zeros(80_000), np.tile(names, 2), random_state=0)
        assert time.perf_counter() - start < 10  # a comparison of each row with each name: minutes
        for train, test in folds:
            assert not set(train % 40_000) & set(test % 40_000)

    def test_objects_are_told_apart_by_what_they_are(self):
        mixed = np.array([1, "1", 1.0, "b", "1"], dtype=object)
        assert number_groups(mixed, 5).tolist() == [0, 1, 0, 2, 1]
        assert number_groups(np.array(["b", "a", "b"], dtype=object), 3).tolist() == [1, 0, 1]

    def test_names_of_groups_are_as_good_as_numbers(self):
        X, P, y = local_truth()
        numbers = np.arange(200) % 9
        gains = [
            LocalMARegressor(random_state=0)
            .fit(X, y[:, 0], predictions=P[:, :, 0], groups=groups)
            .locality_gain_
            for groups in (numbers, [f"ward {k}" for k in numbers], list(map(str, numbers)))
        ]
        assert gains[0] == gains[1] == gains[2]

    @pytest.mark.parametrize(
        ("groups", "words"),
        [
            ([1, 2], r"for each of the 200 rows; received an array of shape \(2,\)"),
            ([None, *range(199)], "1 of 200 rows have none, the first is row 0"),
            ([*range(198), np.nan, np.nan], "2 of 200 rows have none, the first is row 198"),
        ],
    )
    def test_rows_without_a_group(self, groups, words):
        X, P, y = local_truth()
        with pytest.raises(InvalidInputError, match=words):
            LocalMARegressor().fit(X, y[:, 0], predictions=P[:, :, 0], groups=groups)

    def test_too_few_rows(self):
        X, P, y = local_truth(3)
        with pytest.raises(
            InvalidInputError, match=r"3 rows cannot be split into 5 folds.*Pass cv=3"
        ):
            LocalMARegressor().fit(X, y[:, 0], predictions=P[:, :, 0])
        LocalMARegressor(cv=3, random_state=0).fit(X, y[:, 0], predictions=P[:, :, 0])

    @pytest.mark.filterwarnings(
        "ignore::localma.errors.WorseThanConstantWarning"
    )  # of random probabilities
    def test_folds_that_leave_a_class_out(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(30, 2))
        y = np.array(["a"] * 14 + ["b"] * 14 + ["rare"] * 2)
        P = rng.dirichlet(np.ones(3), size=(30, 2))
        with pytest.warns(UserWarning, match="least populated class"):
            model = LocalMAClassifier(random_state=0).fit(X, y, predictions=P)
        assert np.isfinite(model.predict_proba(X, predictions=P)).all()

    def test_folds_without_weight_are_left_out_or_named(self):
        X, P, y = local_truth(40)
        early = (np.arange(40) < 10).astype(float)
        late = 1.0 - early
        model = LocalMARegressor(cv=TimeSeriesSplit(4), random_state=0)
        model.fit(X, y[:, 0], sample_weight=late, predictions=P[:, :, 0])
        assert len(model.gate_.fold_answers_) == 3
        with pytest.raises(InvalidInputError, match="none of the 4 folds has"):
            model.fit(X, y[:, 0], sample_weight=early * (np.arange(40) < 5), predictions=P[:, :, 0])

    def test_overlapping_parts_are_refused(self):
        X, P, y = local_truth(20)
        rows = np.arange(20)
        with pytest.raises(
            InvalidInputError, match="rows that it was trained on; fold 0 of cv has 20 rows"
        ):
            LocalMARegressor(cv=[(rows, rows)]).fit(X, y[:, 0], predictions=P[:, :, 0])


class TestHardSamples:
    def fit(self, X, P, y):
        gate = ShrunkGate(random_state=0).fit(Labelled.of(X, P, y, loss=LOSS))
        weights = gate.predict_weights(X)
        assert np.isfinite(weights).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-6)
        assert np.isfinite(gate.locality_gain_.value)
        assert gate.verdict_
        return gate

    def test_constant_features(self):
        X, P, y = local_truth()
        self.fit(np.c_[X, np.ones(len(X))], P, y)
        gate = self.fit(np.ones_like(X), P, y)
        assert not gate.locality_gain_.is_clear

    def test_duplicate_rows(self):
        X, P, y = local_truth(20)
        self.fit(X.repeat(5, 0), P.repeat(5, 0), y.repeat(5, 0))

    def test_perfect_candidate(self):
        X, P, y = local_truth()
        gate = self.fit(X, np.concatenate([P, y[:, :, None]], axis=1), y)
        mixture = local_average(gate.predict_weights(X), np.concatenate([P, y[:, :, None]], axis=1))
        assert np.mean((mixture - y) ** 2) < 1e-6

    def test_constant_candidate(self):
        X, P, y = local_truth()
        self.fit(X, np.concatenate([P, np.zeros_like(P[:, :1])], axis=1), y)

    def test_more_candidates_than_rows(self):
        rng = np.random.default_rng(0)
        self.fit(rng.normal(size=(20, 2)), rng.normal(size=(20, 50, 1)), rng.normal(size=(20, 1)))

    def test_one_candidate(self):
        X, P, y = local_truth(30)
        gate = self.fit(X, P[:, :1], y)
        assert (gate.predict_weights(X) == 1.0).all()

    def test_one_feature_of_huge_scale(self):
        X, P, y = local_truth()
        gate = self.fit(X * [1e8, 1e-8], P, y)
        assert gate.locality_gain_.is_clear

    def test_own_model_on_the_path(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(120, 3))
        y = X @ [1.0, 2.0, 0.0] + 0.1 * rng.normal(size=120)
        candidates = {"own": CrossFitted(LinearRegression()), "poor": lambda X: X[:, 0]}
        model = LocalMARegressor(candidates, random_state=0).fit(X, y)
        direct = LinearRegression().fit(X, y)
        new = rng.normal(size=(500, 3))
        truth = new @ [1.0, 2.0, 0.0]
        error, direct_error = (np.mean((m.predict(new) - truth) ** 2) for m in (model, direct))
        assert error < direct_error + 0.01


class TestBadParameters:
    @pytest.mark.parametrize(
        ("parameters", "match"),
        [
            ({"rule": "bset"}, "Unknown rule 'bset'; did you mean 'best'"),
            ({"strengths": ()}, "at least one"),
            ({"strengths": (-1.0,)}, "zero or more"),
            ({"base": EqualGate()}, "EqualGate does not"),
            ({"strengths": 0.5}, "must be a list of finite numbers"),
            ({"strengths": "abc"}, "must be a list of finite numbers"),
            ({"n_restarts": 0}, "a positive integer, or None; received 0"),
            ({"n_restarts": 1.5}, "a positive integer, or None; received 1.5"),
        ],
    )
    def test_refused(self, parameters, match):
        with pytest.raises(InvalidInputError, match=match):
            ShrunkGate(**parameters).fit(Labelled.of(*local_truth(20), loss=LOSS))

    def test_restore_checks_shapes(self, local):
        for name in ("size", "gain", "path.risk", "mixed.0.constant", "support.low"):
            arrays = local.arrays() | {name: np.zeros((7, 7))}
            with pytest.raises(FileFormatError, match="shape"):
                ShrunkGate().restore(arrays)


def guard_of(X):
    support = Support.of(X)
    return support.including(rows_outside(support, X, np.ones(len(X), dtype=bool)))


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "correlated", "clusters", "skewed"])
def test_no_labelled_row_of_a_large_sample_lies_outside(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 4))
    X = {
        "normal": X,
        "heavy tails": rng.standard_t(2, X.shape),
        "correlated": X @ np.array([[1, 0.9, 0, 0], [0, 0.3, 0, 0], [0, 0, 1, 2], [0, 0, 0, 0.1]]),
        "clusters": X + 30.0 * (rng.uniform(size=(len(X), 1)) < 5e-4),
        "skewed": np.exp(2 * X),
    }[kind]
    assert guard_of(X)(X).min() > 0.999


def test_a_fit_to_a_large_sample_has_its_rows_inside():
    rng = np.random.default_rng(0)
    x = rng.standard_t(3, (5_000, 3))
    P = np.stack([-x[:, 0], x[:, 0]], axis=1)
    model = LocalMARegressor(random_state=0).fit(x, np.abs(x[:, 0]), predictions=P)
    assert (Support.of(x)(x) < 0.999).any()
    assert model.gate_.support(x).min() > 0.999


def test_the_share_of_new_rows_outside_falls_with_the_sample():
    rng = np.random.default_rng(1)
    new = rng.standard_normal((100_000, 5))
    outside = []
    for n in (300, 3_000, 30_000):
        support = guard_of(rng.standard_normal((n, 5)))
        outside.append((support(new) < 0.999).mean())
    assert outside[0] > 1e-3
    assert max(outside[1:]) < 1e-4


def test_a_large_sample_still_has_an_outside():
    rng = np.random.default_rng(2)
    angle = rng.uniform(0, 2 * np.pi, 20_000)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.standard_normal((20_000, 2))
    support = guard_of(ring)
    assert support(np.array([[0.0, 0.0], [3.0, 0.0]])).max() < 0.1
    columns = np.column_stack([rng.choice([0.0, 1.0], 20_000), rng.standard_normal(20_000)])
    assert guard_of(columns)(np.array([[0.5, 0.0]])) < 0.1


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, bool])
def test_the_guard_measures_small_integers_rightly(dtype):
    X = np.random.default_rng(0).integers(0, 2 if dtype is bool else 120, size=(300, 2))
    X = X.astype(dtype)
    found, expected = Support.of(X), Support.of(X.astype(float))
    np.testing.assert_array_equal(found.measured.high, expected.measured.high)
    np.testing.assert_array_equal(found(X.astype(float)), np.ones(300))


def test_the_folds_of_the_estimator_are_asked_for_whoever_makes_the_gate():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(120, 1))
    splitter = TimeSeriesSplit(3)
    model = LocalMARegressor(gate=ShrunkGate(), cv=splitter, random_state=0)
    model.fit(x, np.abs(x[:, 0]), predictions=np.column_stack([-x[:, 0], x[:, 0]]))
    assert len(model.gate_.fold_answers_) == 3
    assert model.gate_.cv is not None


class TestSupportOfJointShifts:
    @staticmethod
    def gaussian(n=300, p=3, seed=0):
        return np.random.default_rng(seed).normal(size=(n, p))

    def test_inputs_that_depend_on_each_other_come_apart(self):
        X = self.gaussian()
        X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
        support = Support.of(X)
        assert (support(X) == 1.0).all()
        assert support(np.array([[2.0, -2.0, 0.0], [2.0, 2.0, 0.0]])).round(6).tolist() == [0, 1]

    def test_the_centre_of_a_ring_is_outside(self):
        angle = np.linspace(0, 2 * np.pi, 400)
        support = Support.of(np.column_stack([np.cos(angle), np.sin(angle)]))
        assert support(np.array([[0.0, 0.0], [1.0, 0.0]])).round(6).tolist() == [0, 1]
        assert support.outside(np.zeros((5, 2))).columns in {(0, 1), (1, 0)}

    def test_new_categories_codes_and_constants_have_no_support(self):
        level = np.arange(300) % 5
        X = np.column_stack([np.eye(5)[level], 2.0 * level, np.full(300, 7.0)])
        support = Support.of(X)
        new = np.tile(X[0], (3, 1))
        new[0, 0], new[1, 5], new[2, 6] = 0.0, 1.0, 7.5
        assert support(new).tolist() == [0.0, 0.0, 0.0]
        assert (support(X.astype(np.float32)) == 1.0).all()
        found = support.outside(new[[1]])
        assert (found.columns, found.in_gap, found.low, found.high) == ((5,), True, 0.0, 2.0)

    @pytest.mark.parametrize(("n", "p"), [(1, 2), (2, 1), (30, 50), (60, 60), (300, 1)])
    def test_any_shape_has_its_own_rows_inside(self, n, p):
        X = self.gaussian(n, p)
        X = np.column_stack([X, X[:, 0], np.zeros(n)])
        support = Support.of(X)
        np.testing.assert_array_equal(support(X), np.ones(n))
        assert support(X + 1e6).tolist() == [0.0] * n
        again = Support.restore(support.arrays(), p + 2)
        np.testing.assert_array_equal(again(3.0 * X), support(3.0 * X))
