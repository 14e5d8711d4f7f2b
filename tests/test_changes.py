"""A fitted model from which candidates are dropped, or to which one is added."""

from __future__ import annotations

import copy
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.errors import FileFormatError, InvalidInputError, LocalMAWarning
from localma.gates import Labelled, MLPGate, ReducedGate, ShrunkGate
from localma.gates.base import Earlier
from localma.gates.constant import find_global_weights
from localma.gates.heirs import Heirs
from localma.losses import get_loss
from localma.production.changes import Change
from tests.contracts.test_gates import GATES, assert_on_simplex, fitted, problem

pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")

NAMED = ("equal", "global", "local", "paper", "trees", "auto")


def left(X):
    return -np.asarray(X)[:, 0]


def right(X):
    return np.asarray(X)[:, 0]


def half(X):
    return 0.5 * np.asarray(X)[:, 0]


CANDIDATES = {"left": left, "right": right, "half": half}


def sample(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.abs(X[:, 0]) + 0.1 * rng.normal(size=n)


def regression(candidates=CANDIDATES, **parameters):
    return LocalMARegressor(candidates, random_state=0, **parameters).fit(*sample())


def risk(model, X, y):
    return float(np.mean((model.predict(X) - y) ** 2))


def labels_of(X):
    return np.where(np.asarray(X)[:, 0] > 0, "yes", "no")


def chances(sign):
    return as_candidate(
        lambda X: 1 / (1 + np.exp(-sign * 3 * np.asarray(X)[:, 0])), classes=["no", "yes"]
    )


# Heirs.


def heirs_of(gate, data):
    rows = np.arange(data.n_rows)
    W = gate.predict_weights(data.X)
    return Heirs.of(gate, data, rows, W), W


@pytest.mark.parametrize("name", GATES)
def test_heirs_give_weights_on_the_simplex_for_every_gate(name):
    X, P, y = problem()
    gate = fitted(name, X, P, y)
    heirs, W = heirs_of(gate, Labelled.of(X, P, y, loss=get_loss("squared_error")))
    if heirs is None:
        assert not gate.learns
        return
    for m in range(3):
        V = heirs.weights(m, X, W)
        assert_on_simplex(V, len(X), 3)
        assert not V[:, m].any()


@pytest.mark.parametrize("name", GATES)
def test_every_gate_can_be_reduced_saved_and_continued(name):
    X, P, y = problem(M=4)
    data = Labelled.of(X, P, y, loss=get_loss("squared_error"))
    gate = fitted(name, X, P, y)
    heirs, _ = heirs_of(gate, data)
    reduced = ReducedGate.of(gate, 1, heirs, find_global_weights(data))
    assert_on_simplex(reduced.predict_weights(X), len(X), 3)
    twice = ReducedGate.of(reduced, 0, None, reduced.global_weights_)
    assert_on_simplex(twice.predict_weights(X), len(X), 2)
    assert twice.kept.tolist() == [False, False, True, True]
    again = clone(twice).restore(twice.arrays())
    np.testing.assert_array_equal(again.predict_weights(X), twice.predict_weights(X))
    earlier = Earlier(gate, np.array([0, -1, 2]))
    follower = clone(GATES[name]).fit_after(earlier, Labelled.of(X, P[:, :3], y, loss=data.loss))
    assert_on_simplex(follower.predict_weights(X), len(X), 3)


def test_the_heir_of_a_copy_is_its_original():
    """Without one of two equal candidates, the other gets its weight, and nothing is lost."""
    X, P, y = problem(200, M=2, seed=1)
    P = P[:, [0, 1, 0]]
    data = Labelled.of(X, P, y, loss=get_loss("squared_error"))
    gate = ShrunkGate(cv=2, random_state=0).fit(data)
    heirs, W = heirs_of(gate, data)
    before = np.mean((np.einsum("nm,nm->n", W, P[..., 0]) - y[:, 0]) ** 2)
    without = heirs.weights(2, X, W)
    after = np.mean((np.einsum("nm,nm->n", without, P[..., 0]) - y[:, 0]) ** 2)
    assert after <= 1.02 * before


def test_global_weights_without_a_candidate_are_those_of_a_new_fit():
    X, P, y = problem(M=4)
    gate = fitted("global", X, P, y)
    data = Labelled.of(X, P, y, loss=get_loss("squared_error"))
    heirs, W = heirs_of(gate, data)
    for m in range(4):
        others = np.arange(4) != m
        expected = fitted("global", X, P[:, others], y).weights_
        np.testing.assert_allclose(heirs.weights(m, X, W)[0, others], expected, atol=1e-6)


def test_heirs_of_many_candidates_are_quick_and_complete():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    P = y[:, None] + rng.normal(size=(60, 40, 1))
    gate = fitted("global", X, P, y)
    heirs, W = heirs_of(gate, Labelled.of(X, P, y, loss=get_loss("squared_error")))
    for m in (0, 39):
        assert_on_simplex(heirs.weights(m, X, W), 60, 40)


@pytest.mark.parametrize(
    "change",
    [
        {"shares": lambda a: a * 2},
        {"shares": lambda a: -a},
        {"constants": lambda a: a[:, ::-1]},
        {"trained": lambda a: a + 50},
        {"point": lambda a: a + 99},
        {"shares": lambda a: a[:1]},
    ],
)
def test_a_damaged_file_of_heirs_is_refused(change):
    X, P, y = problem(M=3)
    gate = ShrunkGate(cv=2, n_restarts=1, random_state=0).fit(
        data := Labelled.of(X, P, y, loss=get_loss("squared_error"))
    )
    heirs, _ = heirs_of(gate, data)
    assert heirs.gates  # some network was trained without a candidate
    arrays = heirs.arrays()
    Heirs.restore(arrays, gate)
    ((name, damage),) = change.items()
    with pytest.raises(FileFormatError):
        Heirs.restore(arrays | {name: damage(arrays[name])}, gate)


@pytest.mark.parametrize("dropped", [(0, 0), (0, 1, 2), (7,), ()])
def test_impossible_positions_are_refused(dropped):
    X, P, y = problem(M=3)
    gate = fitted("global", X, P, y)
    reduced = ReducedGate.of(gate, 1, None, gate.weights_)
    damaged = ReducedGate(clone(gate), dropped=dropped)
    with pytest.raises(FileFormatError, match="were dropped"):
        damaged.restore(reduced.arrays())


# Starts of trainings.


def test_a_network_continues_with_the_same_weights_until_it_is_trained():
    """With all steps left out, the earlier network comes back, for inputs in another unit."""
    from localma.gates.constant import anchor_and_scale
    from localma.gates.mlp import begin, chunks_for, resume

    X, P, y = problem(120, M=3)
    loss = get_loss("squared_error")
    old = MLPGate((6,), n_steps=50, random_state=0).fit(Labelled.of(X, P, y, loss=loss))
    data = Labelled.of(X[:60], P[:60][:, [2, 0, 1]], y[:60], loss=loss)
    gate = MLPGate((6,), n_steps=50, random_state=1)
    trainings = begin(gate, chunks_for([gate], data, None), *anchor_and_scale(data, None, None), 0)
    for training in trainings:
        resume(training, Earlier(old, np.array([2, 0, 1])), 1.0)
        training.store()
    expected = old.predict_weights(X)[:, [2, 0, 1]]
    np.testing.assert_allclose(gate.predict_weights(X), expected, atol=1e-5)


def test_a_wider_network_continues_too_and_a_different_one_starts_anew():
    X, P, y = problem(120, M=3)
    data = Labelled.of(X, P, y, loss=get_loss("squared_error"))
    old = MLPGate((4,), n_steps=60, random_state=0).fit(data)
    wider = MLPGate((7,), n_steps=60, random_state=0).fit_after(Earlier(old, np.arange(3)), data)
    assert wider.n_steps_.tolist() == [30]
    deeper = MLPGate((4, 4), n_steps=60, random_state=0)
    assert deeper.fit_after(Earlier(old, np.arange(3)), data).n_steps_.tolist() == [60]


# Drop.


@pytest.mark.parametrize("gate", NAMED)
def test_a_dropped_candidate_is_gone_and_the_old_model_is_as_before(gate):
    model, (X, _) = regression(gate=gate), sample(50, 1)
    before = model.predict(X)
    reduced = model.drop("half")
    assert reduced.candidate_names_ == ("left", "right") == reduced.pool_.names
    assert_on_simplex(reduced.predict_weights(X), 50, 2)
    assert reduced.predict_weights(X).shape == reduced.candidate_predictions(X).shape
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.candidate_names_ == ("left", "right", "half")
    assert model.changes_ == ()
    (change,) = reduced.changes_
    assert (change.kind, change.candidate, change.rows) == ("dropped", "half", None)


@pytest.mark.parametrize("robust", [False, True])
def test_a_drop_is_about_as_good_as_a_new_fit(robust):
    X, y = sample(2_000, 7)
    model = regression(robust=robust)
    for name in CANDIDATES:
        others = {other: one for other, one in CANDIDATES.items() if other != name}
        assert risk(model.drop(name), X, y) <= 1.02 * risk(regression(others), X, y)


def test_candidates_can_be_dropped_until_one_is_left():
    model, (X, _) = regression(), sample(20, 1)
    one = model.drop("half").drop("left")
    np.testing.assert_allclose(one.predict(X), right(X))
    assert [change.candidate for change in one.changes_] == ["half", "left"]
    with pytest.raises(InvalidInputError, match="'right' is the last candidate"):
        one.drop("right")


def test_the_verdict_is_marked_as_stale_and_intervals_are_refused():
    model = regression()
    reduced, (X, _) = model.drop("half"), sample(20, 1)
    assert reduced.verdict_.startswith("Stale: 'half' was dropped after the fit")
    assert model.verdict_ in reduced.verdict_
    assert reduced.path_ == model.path_
    assert "Stale" not in model.verdict_
    with pytest.raises(InvalidInputError, match="A prediction interval needs held-out errors"):
        reduced.predict_interval(X)
    with pytest.raises(InvalidInputError, match="A band of the weights needs"):
        reduced.weight_band(X)
    assert "were dropped" in reduced.drop("left").verdict_


def test_a_gate_without_evidence_has_none_after_a_drop_either():
    with pytest.raises(AttributeError, match="judges its weights on held-out rows"):
        _ = regression(gate="global").drop("half").verdict_


def test_an_unknown_candidate_is_named():
    with pytest.raises(InvalidInputError, match="Unknown candidate 'rihgt'; did you mean 'right'"):
        regression(gate="equal").drop("rihgt")


def test_a_candidate_that_others_take_as_input_is_not_dropped_alone():
    X, y = sample()
    model = LocalMARegressor(CANDIDATES, own=["recalibrated"], random_state=0, cv=3).fit(X, y)
    with pytest.raises(InvalidInputError, match="'own: recalibrated' takes the predictions of"):
        model.drop("left")
    reduced = model.drop("own: recalibrated")
    assert reduced.own is None
    assert reduced.drop("left").candidate_names_ == ("right", "half")


def test_a_class_that_only_one_candidate_knows_keeps_it():
    X = np.random.default_rng(0).uniform(-1, 1, (90, 1))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.3, 0.3])]
    two = as_candidate(lambda X: np.full((len(X), 2), 0.5), classes=["a", "b"])
    three = as_candidate(lambda X: np.full((len(X), 3), 1 / 3), classes=["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LocalMAClassifier({"two": two, "three": three}, gate="global").fit(X, y)
    with pytest.raises(InvalidInputError, match="Only 'three' knows the class 'c'"):
        model.drop("three")
    assert model.drop("two").predict(X[:1]).tolist()[0] in ("a", "b", "c")


def test_classes_outputs_weights_and_groups_survive_changes():
    X, y = sample(200)
    y = np.abs(y)
    names = {"down": chances(-1), "up": chances(1), "flat": chances(0)}
    model = LocalMAClassifier(names, random_state=0).fit(X, labels_of(X), sample_weight=y)
    reduced = model.drop("down")
    assert reduced.predict_proba(X[:3]).shape == (3, 2)
    assert reduced.score(X, labels_of(X)) > 0.9
    groups = np.arange(200) % 40
    more = reduced.add("down", chances(-1), X, labels_of(X), sample_weight=y, groups=groups)
    assert more.score(X, labels_of(X)) > 0.9
    assert more.predict_set(X[:2], level=0.8).shape == (2, 2)
    pairs = {
        name: (lambda X, f=f: np.column_stack([f(X), -f(X)])) for name, f in CANDIDATES.items()
    }
    several = LocalMARegressor(pairs, random_state=0).fit(X, np.column_stack([y, -y]))
    assert several.drop("half").predict(X[:3]).shape == (3, 2)
    added = several.drop("half").add("half", pairs["half"], X, np.column_stack([y, -y]))
    assert added.predict(X[:3]).shape == (3, 2)
    with pytest.raises(InvalidInputError, match="y must have 2 columns"):
        several.add("again", pairs["half"], X, y)


def test_a_model_fitted_on_predictions_alone():
    X, y = sample()
    P = {name: f(X) for name, f in CANDIDATES.items()}
    model = LocalMARegressor(random_state=0).fit(X, y, predictions=P)
    reduced = model.drop("left")
    others = {name: P[name] for name in ("right", "half")}
    assert reduced.predict(X, predictions=others).shape == (300,)
    by_name = reduced.add("left", None, X, y, predictions=P)
    in_order = reduced.add(
        "left", None, X, y, predictions=np.column_stack([*others.values(), P["left"]])
    )
    assert by_name.candidate_names_ == ("left", "right", "half")
    assert in_order.candidate_names_ == ("right", "half", "left")
    with pytest.raises(InvalidInputError, match="Pass None as the candidate, and predictions="):
        reduced.add("left", left, X, y)
    with pytest.raises(InvalidInputError, match="without predictions: 'left'"):
        reduced.add("left", None, X, y, predictions=others)
    with pytest.raises(InvalidInputError, match=r"received shape \(300, 1\)"):
        reduced.add("left", None, X, y, predictions=P["left"][:, None])


# Add.


@pytest.mark.parametrize("gate", NAMED)
def test_an_added_candidate_is_the_last_and_the_old_model_is_as_before(gate):
    X, y = sample()
    two = {"left": left, "half": half}
    model = LocalMARegressor(two, random_state=0, gate=gate).fit(X, y)
    before, weights = copy.copy(vars(model)), model.predict_weights(X)
    more = model.add("right", right, X, y)
    assert more.candidate_names_ == ("left", "half", "right")
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict_weights(X), weights)
    assert str(more.changes_[-1]).endswith("with 300 labelled rows.")


def test_an_addition_is_about_as_good_as_a_new_fit_and_judged_anew():
    new = sample(2_000, 7)
    model = regression({"left": left, "half": half})
    more = model.add("right", right, *sample())
    assert risk(more, *new) <= 1.02 * risk(regression(), *new)
    assert "Stale" not in more.verdict_
    assert more.locality_gain_.value != model.locality_gain_.value
    assert len(more.gate_.fold_answers_) == 1
    low, high = more.predict_interval(new[0][:5])
    assert (low < high).all()


def test_an_addition_after_a_drop_continues_the_networks_of_the_fit():
    model = regression()
    more = model.drop("left").add("left again", left, *sample())
    assert [change.kind for change in more.changes_] == ["dropped", "added"]
    assert not isinstance(more.gate_, ReducedGate)
    assert risk(more, *sample(2_000, 7)) <= 1.05 * risk(model, *sample(2_000, 7))


def test_continued_networks_take_half_of_the_steps():
    X, y = sample()
    two = {"left": left, "half": half}
    model = LocalMARegressor(two, random_state=0, gate=MLPGate(n_steps=100)).fit(X, y)
    assert model.add("right", right, X, y).gate_.n_steps_.tolist() == [50]


def test_own_models_and_crossfitted_candidates_are_fitted_again():
    X, y = sample()
    candidates = {"left": left, "line": CrossFitted(LinearRegression())}
    model = LocalMARegressor(candidates, own=["recalibrated"], random_state=0, cv=3).fit(X, y)
    more = model.add("right", right, X, y)
    assert set(more.candidate_names_) == {"left", "line", "right", "own: recalibrated"}
    taken = more.pool_.candidates[more.candidate_names_.index("own: recalibrated")]
    assert "right" in taken.columns.candidates
    line = more.candidate_names_.index("line")
    assert more.pool_.candidates[line] is not model.pool_.candidates[1]


def test_a_column_of_predictions_is_hidden_from_the_gate():
    X, y = sample()
    wide = np.column_stack([X, left(X)])
    model = LocalMARegressor({"p": Column(2), "half": half}, random_state=0).fit(wide, y)
    wider = np.column_stack([wide, right(X)])
    more = model.add("q", Column(3), wider, y)
    assert more.gate_.n_features_in_ == 2
    assert more.n_features_in_ == 4
    with pytest.raises(InvalidInputError, match="the gate was fitted on 2 inputs, and received 3"):
        model.add("q", right, wider, y)


@pytest.mark.parametrize(
    ("name", "candidate", "rows", "words"),
    [
        ("left", right, slice(None), "Names of candidates must differ; 'left' occurs 2 times"),
        ("", right, slice(None), "must be strings that are not empty"),
        ("new", None, slice(None), "The model of 'new' is missing"),
        ("new", "left.txt", slice(None), "A candidate is a fitted model or a function"),
        ("new", right, slice(10), "must have the same number of rows"),
    ],
)
def test_a_wrong_addition_changes_nothing(name, candidate, rows, words):
    X, y = sample()
    model = regression({"left": left, "half": half}, gate="global")
    before = copy.copy(vars(model))
    with pytest.raises(InvalidInputError, match=words):
        model.add(name, candidate, X, y[rows])
    assert vars(model) == before


def test_labels_that_no_candidate_knows_are_refused():
    X, _ = sample(60)
    model = LocalMAClassifier({"up": chances(1)}, gate="global").fit(X, labels_of(X))
    with pytest.raises(InvalidInputError, match="Every label in y must be known"):
        model.add("down", chances(-1), X, np.where(X[:, 0] > 0, "yes", "perhaps"))


# Files.


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("gate", ["auto", "local", "trees", "global", "equal"])
def test_changed_models_are_saved_with_their_history(tmp_path, gate, robust):
    model, (X, _) = regression(gate=gate, robust=robust), sample(30, 1)
    reduced = model.drop("half")
    for changed in (model, reduced, reduced.drop("left"), reduced.add("half", half, *sample())):
        changed.save(tmp_path / "m.localma")
        attached = {name: CANDIDATES[name] for name in changed.candidate_names_}
        again = load(tmp_path / "m.localma", attached)
        np.testing.assert_array_equal(again.predict(X), changed.predict(X))
        assert again.changes_ == changed.changes_
        if len(attached) > 1:
            name = changed.candidate_names_[0]
            np.testing.assert_array_equal(
                again.drop(name).predict(X), changed.drop(name).predict(X)
            )


def test_a_loaded_model_can_be_extended(tmp_path):
    regression().drop("half").save(tmp_path / "m.localma")
    again = load(tmp_path / "m.localma", {"left": left, "right": right})
    more = again.add("half", half, *sample())
    assert [change.kind for change in more.changes_] == ["dropped", "added"]
    assert risk(more, *sample(500, 7)) < 0.02


def test_a_file_from_before_this_feature_is_renormalised(tmp_path):
    model, (X, _) = regression(), sample(30, 1)
    model.heirs_ = None  # such a file has none
    model.save(tmp_path / "m.localma")
    again = load(tmp_path / "m.localma", CANDIDATES)
    assert again.heirs_ is None
    assert again.changes_ == ()
    W = again.predict_weights(X)[:, :2]
    expected = W / W.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(again.drop("half").predict_weights(X), expected, atol=1e-6)


def test_a_file_never_holds_labelled_rows(tmp_path):
    from localma.storage.array_file import read

    regression().drop("half").save(tmp_path / "m.localma")
    arrays = read(tmp_path / "m.localma").arrays
    _, y = sample()
    for name, array in arrays.items():
        stored = np.clip(array, -1e9, 1e9).astype(np.float32)
        assert np.isin(y.astype(np.float32), stored).sum() < 5, name


def test_unknown_changes_in_a_file_are_refused(tmp_path):
    model = regression(gate="global").drop("half")
    model.changes_ = (Change("renamed", "half", "2026-01-01"),)
    model.save(tmp_path / "m.localma")
    with pytest.raises(FileFormatError, match="unknown change"):
        load(tmp_path / "m.localma", {"left": left, "right": right})


@pytest.mark.skipif(not find_spec("onnx"), reason="needs onnx")
def test_a_reduced_gate_is_not_exported(tmp_path):
    from localma import export_onnx

    with pytest.raises(InvalidInputError, match="received a ReducedGate"):
        export_onnx(regression(gate="global").drop("half"), tmp_path / "g.onnx")


def test_no_warning_repeats_for_a_clean_addition():
    with warnings.catch_warnings():
        warnings.simplefilter("error", LocalMAWarning)
        regression({"left": left, "right": right}).add("half", half, *sample())
