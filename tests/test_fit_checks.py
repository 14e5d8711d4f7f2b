"""Wrong models are named: worse than a constant, columns and candidates that hold the target."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from localma import LocalMAClassifier, LocalMARegressor, TableEncoder, as_candidate, load
from localma.checks.fit import over_constant, tells_classes, tells_number
from localma.errors import (
    LeakageWarning,
    LocalMAWarning,
    OutsideSampleWarning,
    WorseThanConstantWarning,
)
from localma.evidence import Baseline, BaselineGap, LocalityGain, baseline_gap
from localma.gates import Labelled, MLPGate, ShrunkGate
from localma.inspection import evaluate, summarize
from localma.losses import LOSSES, Interval, Loss, get_loss

GATES = ["auto", "equal", "global", MLPGate(n_steps=100)]


def draw(n=200, seed=0, r2=0.8):
    """A labelled sample, and candidates that were built on other rows: one per half, and a tree."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 400, 3)) * [10.0, 1.0, 3.0] + [50.0, 0.0, 20.0]
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    signal = z[:, 0] + z[:, 1] * (z[:, 0] > 0)
    y = 20 + 3 * (np.sqrt(r2) * signal / signal.std() + np.sqrt(1 - r2) * rng.normal(size=len(X)))
    built = np.arange(n, n + 400)
    left = z[built, 0] < 0
    candidates = {
        "left": LinearRegression().fit(X[built[left]], y[built[left]]),
        "right": LinearRegression().fit(X[built[~left]], y[built[~left]]),
        "tree": DecisionTreeRegressor(max_depth=4, random_state=0).fit(X[built], y[built]),
    }
    P = np.stack([model.predict(X[:n]) for model in candidates.values()], axis=1)
    return SimpleNamespace(X=X[:n], y=y[:n], P=P, candidates=candidates, rng=rng)


def draw_classes(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 400, 3))
    chance = 1 / (1 + np.exp(-2 * X[:, 0] - X[:, 1]))
    y = np.where(rng.uniform(size=len(X)) < chance, "yes", "no")
    built = slice(n, None)
    models = [LogisticRegression().fit(X[built, :k], y[built]) for k in (1, 3)]
    P = {f"m{k}": m.predict_proba(X[:n, : m.n_features_in_])[:, 1] for k, m in enumerate(models)}
    return SimpleNamespace(X=X[:n], y=y[:n], P=P, rng=rng)


def mistake(data, name):
    """X, y and predictions of a labelled sample with one mistake."""
    X, y, P = data.X, data.y, data.P
    if name == "log":
        return X, np.log(y), P
    if name == "shuffled":
        return X, data.rng.permutation(y), P
    if name == "reversed":
        return X, y, P[::-1]
    scaled = StandardScaler().fit_transform(X)
    return scaled, y, np.stack([m.predict(scaled) for m in data.candidates.values()], axis=1)


# Worse than a constant


@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("name", ["log", "shuffled", "reversed", "scaler"])
def test_a_mistake_is_said_first_and_nothing_is_claimed(name, gate):
    X, y, P = mistake(draw(), name)
    model = LocalMARegressor(gate=gate, random_state=0)
    with pytest.warns(WorseThanConstantWarning, match="worse than a constant: on .* rows its mean"):
        model.fit(X, y, predictions=P)
    assert [caution.kind for caution in model.cautions_] == ["worse_than_constant"]
    if gate == "auto":
        assert model.verdict_.startswith("The combined prediction is worse than a constant: on hel")
        assert model.verdict_.endswith("Do not use this combination.")
        assert "pay" not in model.verdict_
        assert not model.locality_gain_.is_local
        assert model.locality_gain_.beside_baseline.is_worse


@pytest.mark.parametrize("name", ["log", "scaler"])
def test_another_scale_is_recognised_by_the_means(name):
    X, y, P = mistake(draw(), name)
    with pytest.warns(WorseThanConstantWarning, match="targets average .* on different scales"):
        LocalMARegressor(gate="global").fit(X, y, predictions=P)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", "pinball"])
def test_clean_fits_do_not_warn(seed, loss):
    data = draw(100, seed)
    model = LocalMARegressor(loss=loss, random_state=0).fit(data.X, data.y, predictions=data.P)
    assert model.cautions_ == ()
    assert model.locality_gain_.over_baseline > 0


@pytest.mark.parametrize("what", ["weak", "noise and the mean", "noise and near the mean"])
def test_useless_but_harmless_candidates_do_not_alarm(what):
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(50, 2))
        P = np.stack([0.14 * X[:, 0], 0.1 * X[:, 1]], axis=1)
        y = rng.normal(size=50) + (0.14 * X[:, 0] if what == "weak" else 0)  # R2 of 2 %
        if what != "weak":
            P = P * (0.0 if what.endswith("and the mean") else 0.3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WorseThanConstantWarning)
            model = LocalMARegressor(gate="global").fit(X, y, predictions=P)
        alarms += bool(model.cautions_)
    assert alarms <= 1


def test_warnings_point_to_the_line_of_the_caller():
    X = np.linspace(-1, 1, 700)[:, None]
    y = np.where(X[:, 0] > 0, "yes", "no")
    P = {"optimist": np.full(700, 0.9), "pessimist": np.full(700, 0.1)}
    model = LocalMAClassifier(gate=ShrunkGate(cv=2, n_restarts=1), random_state=0)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        model.fit(X, y, predictions=P)
        model.predict(X + 1e6, predictions=P)
        model._warned_outside = False
        model.predict_proba(X + 1e6, predictions=P)
    kinds = [warning.category for warning in issued]
    assert kinds == [LeakageWarning, OutsideSampleWarning, OutsideSampleWarning]
    assert {warning.filename for warning in issued} == {__file__}


def test_the_warning_can_be_filtered():
    X, y, P = mistake(draw(), "shuffled")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", WorseThanConstantWarning)
        model = LocalMARegressor(gate="global").fit(X, y, predictions=P)
    assert model.cautions_


@pytest.mark.parametrize("loss", ["cross_entropy", "brier"])
def test_inverted_probabilities_are_named(loss):
    data = draw_classes()
    inverted = {name: 1 - p for name, p in data.P.items()}
    model = LocalMAClassifier(loss=loss, random_state=0)
    with pytest.warns(WorseThanConstantWarning, match=r"'m0' and 'm1' would beat .*--positive"):
        model.fit(data.X, data.y, predictions=inverted)
    assert model.cautions_[0].names == ("m0", "m1")
    assert "the shares of the classes" in model.verdict_
    assert not model.locality_gain_.is_local
    clean = LocalMAClassifier(loss=loss, random_state=0).fit(data.X, data.y, predictions=data.P)
    assert clean.cautions_ == ()


def test_inverted_probabilities_of_a_regression_are_named():
    data = draw_classes()
    P = np.column_stack([1 - p for p in data.P.values()])
    with pytest.warns(WorseThanConstantWarning, match="as 1 - p"):
        LocalMARegressor(loss="bernoulli", gate="equal").fit(
            data.X, (data.y == "yes").astype(float), predictions=P
        )


def test_shuffled_labels():
    data = draw_classes(400)
    y = data.rng.permutation(data.y)
    with pytest.warns(WorseThanConstantWarning, match="columns of other classes"):
        LocalMAClassifier(random_state=0).fit(data.X, y, predictions=data.P)


def test_a_point_estimate_below_a_constant_claims_nothing_but_is_no_alarm():
    gain = LocalityGain(0.5, 0.1, 2.0, 1.5, 0.5, 0.1, 1.49, -0.01, 0.05)
    assert gain.is_clear
    assert not gain.is_local
    assert gain.beside_baseline.is_idle
    assert not gain.beside_baseline.is_worse


@pytest.mark.parametrize(
    ("value", "error", "worse"),
    [
        (-0.3, 0.1, True),  # 5 % and 1.64 standard errors: 0.264
        (-0.2, 0.1, False),
        (-0.06, 0.01, True),  # 5 standard errors
        (-0.001, 0.0001, False),  # less than 0.1 % of the risk
        (0.3, 0.1, False),
        (-9.0, float("nan"), False),
    ],
)
def test_what_is_clearly_worse(value, error, worse):
    assert BaselineGap(value, error, 2.0, 2.0 - value).is_worse == worse


def test_new_rows_are_compared_with_the_constant_of_the_sample():
    data = draw(400)
    half = slice(200, None)
    model = LocalMARegressor(random_state=0)
    model.fit(data.X[:200], data.y[:200], predictions=data.P[:200])
    table = evaluate(model, data.X[half], data.y[half], predictions=data.P[half], control=False)
    assert model.constant_prediction_ == pytest.approx([data.y[:200].mean()])
    assert table.constant.prediction == model.constant_prediction_.tolist()
    expected = np.mean((data.y[half] - data.y[:200].mean()) ** 2)
    assert table.constant.loss.value == pytest.approx(expected)
    assert not table.constant.is_idle
    assert table.cautions == []
    shuffled = data.rng.permutation(data.y[half])
    with pytest.warns(WorseThanConstantWarning, match="on these 200 rows"):
        table = evaluate(model, data.X[half], shuffled, predictions=data.P[half], control=False)
    assert table.sentence.startswith("The combined prediction is worse than a constant")
    assert table.sentence.endswith("No gain is claimed.")
    assert table.constant.is_worse
    with pytest.warns(WorseThanConstantWarning):
        summary = summarize(model, data.X[half], shuffled, predictions=data.P[half], control=False)
    assert summary.verdict.startswith("The combined prediction is worse than a constant")
    assert summary.cautions[0].kind == "worse_than_constant"


def test_a_saved_model_keeps_its_cautions_and_its_constant(tmp_path):
    X, y, P = mistake(draw(), "reversed")
    with pytest.warns(WorseThanConstantWarning):
        model = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
    model.save(tmp_path / "m.localma")
    again = load(tmp_path / "m.localma", candidates={})
    assert again.cautions_ == model.cautions_
    assert again.verdict_ == model.verdict_
    assert again.locality_gain_ == model.locality_gain_
    np.testing.assert_array_equal(again.constant_prediction_, model.constant_prediction_)


def test_a_gate_without_its_estimator_is_not_compared():
    data = draw(100)
    gate = ShrunkGate(random_state=0)
    gate.fit(
        Labelled.of(data.X, data.P[:, :, None], data.y[:, None], loss=get_loss("squared_error"))
    )
    assert np.isnan(gate.locality_gain_.over_baseline)
    assert not gate.locality_gain_.beside_baseline.is_idle
    assert np.isnan(ShrunkGate().restore(gate.arrays()).locality_gain_.over_baseline)


def test_a_loss_may_have_no_constant_to_compare_with():
    """Targets lie outside of what may be predicted, as zeros do under a logarithm."""
    above = Loss(
        "above",
        lambda y, mu: (y - mu) ** 2,
        lambda y, mu: 2 * (mu - y),
        target=Interval(0, 1, low_closed=True),
        prediction=Interval(2, 3, low_closed=True),
    )
    rng = np.random.default_rng(0)
    P = rng.uniform(2, 3, (50, 2))
    model = LocalMARegressor(loss=above, gate="global")
    model.fit(rng.normal(size=(50, 2)), rng.uniform(size=50), predictions=P)
    assert model.cautions_ == ()
    assert model.constant_prediction_ is None


# The best constant


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"cross_entropy", "brier"}))
def test_no_other_constant_has_a_smaller_risk(name):
    loss = get_loss(name)
    rng = np.random.default_rng(0)
    y = rng.uniform(0.05, 0.95, (301, 1))
    weight = rng.integers(0, 3, 301).astype(float)
    baseline = Baseline(loss, y, weight)
    (constant,) = baseline.learn()

    def risk(value):
        return np.average(baseline.losses(np.array([value])), weights=weight)

    others = np.linspace(0.05, 0.95, 500)
    assert risk(constant) <= min(map(risk, others)) * (1 + 1e-6)


def test_the_constant_of_an_own_loss_is_searched():
    fourth = Loss("fourth", lambda y, mu: (y - mu) ** 4, lambda y, mu: 4 * (mu - y) ** 3)
    y = np.random.default_rng(0).exponential(size=(500, 1))
    baseline = Baseline(fourth, y, np.ones(500))
    (constant,) = baseline.learn()
    assert constant > y.mean()  # which is the minimiser of the square only
    slope = np.mean(fourth.derivative(y[:, 0], np.full(500, constant)))
    assert abs(slope) < 1e-3


def test_the_constant_of_classes_is_their_shares():
    labels = np.array([0, 0, 0, 1])
    baseline = Baseline(get_loss("cross_entropy"), np.ones((4, 1)), np.ones(4), labels, 3)
    np.testing.assert_allclose(baseline.learn(), [3.5 / 5.5, 1.5 / 5.5, 0.5 / 5.5])
    np.testing.assert_allclose(
        baseline.losses(baseline.learn()), -np.log([3.5 / 5.5] * 3 + [1.5 / 5.5])
    )


def test_constants_are_judged_on_rows_that_they_did_not_learn_from():
    y = np.zeros((10, 1))
    y[0] = 10.0
    baseline = Baseline(get_loss("squared_error"), y, np.ones(10))
    gap = over_constant(np.zeros(10), baseline, np.arange(10))
    # Without rows 0 and 5 the mean is 0, without two others 10 / 8.
    assert gap.baseline_risk == pytest.approx((100 + 8 * 1.25**2) / 10)


def test_groups_widen_the_error_of_the_gap():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(10), 20)
    losses = rng.normal(size=10)[groups]
    alone = baseline_gap(losses, np.zeros(200), np.ones(200))
    together = baseline_gap(losses, np.zeros(200), np.ones(200), groups)
    assert together.standard_error > 3 * alone.standard_error


# Equal or nearly equal candidates


@pytest.mark.parametrize("nudge", [0.0, 1e-9, 1e-5])
def test_equal_candidates_claim_no_gain(nudge):
    data = draw()
    P = np.stack([data.P[:, 2], data.P[:, 2] * (1 + nudge * np.sign(data.X[:, 0]))], axis=1)
    model = LocalMARegressor(random_state=0).fit(data.X, data.y, predictions=P)
    assert not model.locality_gain_.is_clear
    assert "pay" not in model.verdict_
    table = evaluate(model, data.X, data.y, predictions=P, control=False)
    assert not any(entry.to_best.is_clear for entry in table.entries)
    assert " below " not in table.claim


@pytest.mark.parametrize(
    ("value", "error", "claimed"),
    [(1.4e-10, 1e-12, False), (0.001, 1e-9, False), (0.01, 1e-9, True)],
)
def test_a_gain_below_a_thousandth_of_the_risk_is_not_claimed(value, error, claimed):
    gain = LocalityGain(value, error, 2.0, 2.0 - value, value, error)
    assert gain.is_clear == gain.is_local == claimed
    assert gain.is_negligible != claimed


def test_a_gain_below_rounding_is_not_claimed():
    gain = LocalityGain(5e-13, 1e-14, 1e-12, 5e-13, 5e-13, 1e-14, 1.0, 1.0, 0.1)
    assert not gain.is_clear


# Leaks


def test_a_candidate_that_is_the_target_is_named():
    data = draw()
    P = {"honest": data.P[:, 0], "copy": data.y}
    model = LocalMARegressor(random_state=0)
    with pytest.warns(LeakageWarning, match="Candidate 'copy' is identical to the target"):
        model.fit(data.X, data.y, predictions=P)
    assert model.cautions_[0].names == ("copy",)
    assert model.verdict_.startswith("Candidate 'copy' is identical to the target")
    table = evaluate(model, data.X, data.y, predictions=P, control=False)
    assert table.sentence.startswith("Candidate 'copy' is identical to the target")


@pytest.mark.parametrize(("noise", "named"), [(1e-3, True), (1e-2, False), (0.1, False)])
def test_an_excellent_candidate_is_no_leak(noise, named):
    data = draw()
    near = data.y + noise * data.y.std() * data.rng.normal(size=len(data.y))  # R2 of 99 % at 0.1
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        LocalMARegressor(gate="global").fit(
            data.X, data.y, predictions={"honest": data.P[:, 0], "near": near}
        )
    assert [w.category for w in issued] == [LeakageWarning] * named


def test_a_classifier_that_is_the_target_is_named():
    data = draw_classes()
    P = {**data.P, "copy": (data.y == "yes").astype(float)}
    with pytest.warns(LeakageWarning, match="Candidate 'copy' is identical to the target"):
        LocalMAClassifier(gate="global").fit(data.X, data.y, predictions=P)


LEAKS = {
    "copy": lambda y, rng: y,
    "other unit": lambda y, rng: -1.8 * y + 32,
    "logarithm": lambda y, rng: np.log(y),
    "rounded": lambda y, rng: np.round(y, 2),
    "little noise": lambda y, rng: y + 0.01 * rng.normal(size=len(y)),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_column_that_tells_the_target_is_named(leak):
    data = draw()
    X = np.column_stack([data.X, LEAKS[leak](data.y, data.rng)])
    with pytest.warns(LeakageWarning, match="Column 'x3' alone tells the target") as issued:
        model = LocalMARegressor(random_state=0).fit(X, data.y, predictions=data.P)
    assert len(issued) == 1
    assert model.verdict_.startswith("Column 'x3'")


CLASS_LEAKS = {
    "number": lambda y, rng: (y == "yes").astype(float),
    "noisy number": lambda y, rng: (y == "yes") + 0.02 * rng.normal(size=len(y)),
    "amount": lambda y, rng: np.where(y == "yes", rng.exponential(size=len(y)) + 0.01, 0.0),
}


@pytest.mark.parametrize("leak", CLASS_LEAKS)
def test_a_column_that_tells_the_class_is_named(leak):
    data = draw_classes(300)
    X = np.column_stack([data.X, CLASS_LEAKS[leak](data.y, data.rng)])
    with pytest.warns(LeakageWarning, match="Column 'x3' alone tells the target"):
        LocalMAClassifier(gate=MLPGate(n_steps=20)).fit(X, data.y, predictions=data.P)


@pytest.mark.parametrize("n", [300, 1500])
def test_limits_that_separate_classes_tell_only_in_many_rows(n):
    x = np.random.default_rng(0).normal(size=n)
    labels = np.digitize(x, [-0.5, 0.5])
    assert tells_classes(x[:, None], labels).tolist() == [n >= 600]
    labels[0] = (labels[0] + 1) % 3
    assert not tells_classes(x[:, None], labels).any()


@pytest.mark.parametrize("unit", [1e-150, 1e-20, 1e20, 1e150])
def test_units_do_not_matter(unit):
    rng = np.random.default_rng(0)
    y, other = rng.normal(size=(2, 40))
    assert tells_number(unit * np.stack([y, other], axis=1), y).tolist() == [True, False]
    assert tells_number(np.stack([y, other], axis=1), unit * y).tolist() == [True, False]


def test_a_rare_event_that_goes_with_a_rare_value_is_no_leak():
    y = np.zeros(200)
    y[7] = 1.0
    assert not tells_number(y[:, None], y).any()
    assert not tells_classes(y[:, None], y.astype(int)).any()


def test_classes_with_a_row_each_are_no_leak():
    labels = np.append(np.arange(1, 12), np.zeros(30, dtype=int))
    assert not tells_classes(np.random.default_rng(0).normal(size=(41, 5)), labels).any()


def test_strong_but_honest_columns_are_no_leak():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(200, 60))
    x = y + 0.1 * rng.normal(size=y.shape)  # R2 of 99 %
    for n in (20, 60, 200):
        told = [tells_number(x[:n, [k]], y[:n, k]).any() for k in range(60)]
        assert not any(told)


def test_columns_are_named_as_people_know_them():
    pd = pytest.importorskip("pandas")
    data = draw_classes(150)
    animals = np.array(["ant", "bee", "cat"])[data.rng.integers(0, 3, 150)]
    P = np.full((150, 1, 3), 1 / 3)
    frame = pd.DataFrame({"a": data.X[:, 0], "code": animals, "b": data.X[:, 1]})
    model = LocalMAClassifier(gate=MLPGate(n_steps=20), gate_features=TableEncoder())
    with pytest.warns(LeakageWarning, match="Column 'code' alone"):
        model.fit(frame, animals, predictions=P)
    numbers = frame.assign(code=data.y == "yes", twice=2.0 * (data.y == "yes"))
    transformer = make_column_transformer((StandardScaler(), ["a", "twice"]))
    for features, name in ((["b", "code"], "'code'"), (transformer, "'standardscaler__twice'")):
        model = LocalMAClassifier(gate=MLPGate(n_steps=20), gate_features=features)
        with pytest.warns(LeakageWarning, match=f"Column {name} alone"):
            model.fit(numbers, data.y, predictions=data.P)
    unnamed = FunctionTransformer(lambda X: X[["twice"]].to_numpy())
    model = LocalMAClassifier(gate=MLPGate(n_steps=20), gate_features=unnamed)
    with pytest.warns(LeakageWarning, match="Column 'input 0' alone"):
        model.fit(numbers, data.y, predictions=data.P)
    hidden = LocalMAClassifier(gate=MLPGate(n_steps=20), gate_features=["a", "b"])
    assert hidden.fit(numbers, data.y, predictions=data.P).cautions_ == ()


def test_several_outputs_are_looked_at_one_by_one():
    data = draw()
    Y = np.column_stack([data.y, data.rng.normal(size=len(data.y))])
    P = {"a": np.column_stack([data.P[:, 0], np.zeros(len(Y))])}
    with pytest.warns(LeakageWarning, match="Column 'x3' alone"):
        LocalMARegressor(gate=MLPGate(n_steps=20)).fit(
            np.column_stack([data.X, Y[:, 1]]), Y, predictions=P
        )


def test_texts_and_gates_without_inputs_are_not_looked_at():
    data = draw(60)
    X = np.column_stack([data.X, data.y])
    assert LocalMARegressor(gate="global").fit(X, data.y, predictions=data.P).cautions_ == ()


def test_the_toys_of_the_documentation_do_not_warn():
    X = np.linspace(-2, 2, 200)[:, None]
    lines = {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}
    assert LocalMARegressor(lines, random_state=0).fit(X, np.abs(X[:, 0])).cautions_ == ()
    guesses = {
        name: as_candidate(lambda X, p=p: np.full(len(X), p), classes=["no", "yes"])
        for name, p in {"o": 0.9, "p": 0.1}.items()
    }
    labels = np.where(X[:, 0] > 0, "yes", "no")
    assert LocalMAClassifier(guesses, random_state=0).fit(X, labels).cautions_ == ()


def test_all_warnings_have_one_root():
    assert issubclass(WorseThanConstantWarning, LocalMAWarning)
    assert issubclass(LeakageWarning, LocalMAWarning)
    assert issubclass(LocalMAWarning, UserWarning)
    mean = DummyRegressor().fit(np.zeros((5, 1)), np.arange(5.0))
    X = np.arange(12.0)[:, None]
    model = LocalMARegressor({"far": mean}, gate="global")
    with pytest.warns(LocalMAWarning) as issued:
        model.fit(X, 1e6 + X[:, 0] ** 2)
    assert issued[0].filename == __file__  # the warning points to the caller's line
