"""Saving and loading: whole or not at all, no pickle, every field checked, trust asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import localma
from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor
from localma.errors import FileFormatError, InvalidInputError, UntrustedFileError
from localma.gates import MLPGate
from localma.inspection import evaluate
from localma.losses import Loss, squared_error

# The toys are exact: a candidate may be the target, and constant weights worse than a constant.
pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")

QUICK = MLPGate(n_steps=30, hidden=(4,), random_state=0)


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 60)
    return np.c_[x, -x, x], np.abs(x)


@pytest.fixture
def columns(sample):
    X, y = sample
    return LocalMARegressor({"left": Column(1), "right": Column(2)}, gate=QUICK).fit(X, y)


def rewrite(path, change_description=None, change_arrays=None, **header):
    """Write the file again with a changed description, as an attacker or a bug would."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(path)
    description = json.loads(metadata["description"])
    if change_description is not None:
        change_description(description)
    if change_arrays is not None:
        change_arrays(arrays)
    save_file(arrays, path, metadata={**metadata, "description": json.dumps(description), **header})


@pytest.mark.parametrize(
    "gate",
    ["equal", "global", "local", "paper", "auto", QUICK, MLPGate(hidden=(), shrinkage=np.inf)],
)
def test_round_trip(tmp_path, sample, gate):
    X, y = sample
    model = LocalMARegressor(
        {"left": Column(1), "right": Column(2)}, gate=gate, random_state=0
    ).fit(X, y)
    model.save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_weights(X), model.predict_weights(X))
    assert again.candidate_names_ == model.candidate_names_
    assert again.n_features_in_ == 3


def test_classifier_round_trip(tmp_path):
    X = np.linspace(-1, 1, 60)[:, None]
    y = np.where(X[:, 0] > 0, "yes", "no")
    candidates = {
        "one": LogisticRegression().fit(X, y),
        "two": LogisticRegression(C=0.01).fit(X, y),
    }
    model = LocalMAClassifier(candidates, gate=QUICK, loss="brier").fit(X, y)
    model.save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma", candidates=candidates)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.classes_.tolist() == ["no", "yes"]
    one, two = (LogisticRegression().fit(X, np.where(y == "yes", "oui", "non")) for _ in range(2))
    with pytest.raises(
        InvalidInputError, match="must know the classes that the model was fitted with"
    ):
        localma.load(tmp_path / "model.localma", candidates={"one": one, "two": two})


def test_file_is_safetensors_with_json_and_no_pickle(tmp_path, columns):
    columns.save(tmp_path / "model.localma")
    content = (tmp_path / "model.localma").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert header["__metadata__"]["schema"] == "2"
    assert b"pickle" not in content
    assert os.listdir(tmp_path) == ["model.localma"]


def test_candidates_without_recipe_are_attached_by_name(tmp_path, sample):
    X, y = sample
    left, right = (lambda X: -X[:, 0]), (lambda X: X[:, 0])
    model = LocalMARegressor({"left": left, "right": right}, gate=QUICK).fit(X, y)
    path = tmp_path / "model.localma"
    model.save(path)
    with pytest.raises(
        InvalidInputError, match=r"Candidates 'left', 'right' are not saved.*'right': model\}"
    ):
        localma.load(path)
    with pytest.raises(InvalidInputError, match=r"'middle'.*it knows \['left', 'right'\]"):
        localma.load(path, candidates={"left": left, "middle": right})
    again = localma.load(path, candidates={"right": right, "left": left})
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    bare = localma.load(path, candidates={})
    P = {"left": left(X), "right": right(X)}
    np.testing.assert_array_equal(bare.predict(X, predictions=P), model.predict(X))


def test_import_recipes_are_followed_only_when_trusted(tmp_path, sample):
    X, y = sample
    largest = localma.as_candidate(np.ravel, inputs=[0])  # a function with an import name
    model = LocalMARegressor({"first": largest, "right": Column(2)}, gate=QUICK).fit(X, y)
    path = tmp_path / "model.localma"
    model.save(path)
    with pytest.raises(
        UntrustedFileError, match=r"Candidate 'first' is made from 'numpy:ravel', .*trust=True"
    ):
        localma.load(path)
    again = localma.load(path, trust=True)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    again = localma.load(path, candidates={"first": largest})
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_gate_features_by_recipe_or_attached(tmp_path, sample):
    X, y = sample
    path = tmp_path / "model.localma"
    candidates = {"left": Column(1), "right": Column(2)}
    model = LocalMARegressor(candidates, gate=QUICK, gate_features=[0]).fit(X, y)
    model.save(path)
    np.testing.assert_array_equal(localma.load(path).predict(X), model.predict(X))
    model = LocalMARegressor(candidates, gate=QUICK, gate_features=StandardScaler()).fit(X, y)
    model.save(path)
    with pytest.raises(
        InvalidInputError, match=r"StandardScaler\(\), which is not saved.*gate_features="
    ):
        localma.load(path)
    scaler = model.gate_features_.transformer
    np.testing.assert_array_equal(
        localma.load(path, gate_features=scaler).predict(X), model.predict(X)
    )
    model = LocalMARegressor(candidates, gate=QUICK, gate_features=np.cbrt).fit(X, y)
    model.save(path)
    again = localma.load(path, gate_features=np.cbrt)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_own_loss_predicts_but_says_it_is_lost(tmp_path, sample):
    X, y = sample
    mine = Loss("mine", value=lambda y, mu: (y - mu) ** 2, derivative=lambda y, mu: 2 * (mu - y))
    model = LocalMARegressor({"left": Column(1), "right": Column(2)}, gate=QUICK, loss=mine).fit(
        X, y
    )
    model.save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    for use in (again.fit, lambda X, y: evaluate(again, X, y)):
        with pytest.raises(InvalidInputError, match=r"A loss of one's own .*load\(path, loss="):
            use(X, y)
    whole = localma.load(tmp_path / "model.localma", loss=mine)
    assert str(evaluate(whole, X, y)) == str(evaluate(model, X, y))
    whole.fit(X, y)
    with pytest.raises(InvalidInputError, match="the file has 'mine'"):
        localma.load(tmp_path / "model.localma", loss=squared_error())
    LocalMARegressor({"a": Column(1)}, gate="equal").fit(X, y).save(tmp_path / "known.localma")
    with pytest.raises(InvalidInputError, match="'squared_error', which comes back by itself"):
        localma.load(tmp_path / "known.localma", loss=mine)


@pytest.mark.parametrize("cv", [3, [(np.arange(30), np.arange(30, 60))]])
def test_folds_and_seeds_are_set_again_before_a_refit(tmp_path, sample, cv):
    X, y = sample
    candidates = {"left": Column(1), "right": Column(2)}
    LocalMARegressor(candidates, cv=cv, random_state=0).fit(X, y).save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma")
    assert again.gate.cv is None
    fits = [again.set_params(cv=4, random_state=k).fit(X, y).predict(X) for k in (1, 1, 2)]
    assert len(again.gate_.fold_answers_) == 4
    np.testing.assert_array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])


def test_labels_in_objects_come_back(tmp_path):
    y = np.array(["no", "yes"] * 3, dtype=object)  # what a column of a pandas frame is
    X, P = np.zeros((6, 1)), {"a": np.full(6, 0.25), "b": np.full(6, 0.75)}
    model = LocalMAClassifier(gate="equal").fit(X, y, predictions=P)
    model.save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma", candidates={})
    np.testing.assert_array_equal(again.classes_, ["no", "yes"])
    np.testing.assert_array_equal(again.predict(X, P), model.predict(X, P))


def test_columns_of_the_gate_may_come_in_an_array(tmp_path, sample):
    X, y = sample
    model = LocalMARegressor(
        {"left": Column(1), "right": Column(2)}, gate=QUICK, gate_features=np.array([0])
    )
    model.fit(X, y).save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(InvalidInputError, match=r"positions of a mask with np.flatnonzero"):
        model.set_params(gate_features=[True, False, False]).fit(X, y)


def test_what_cannot_come_back_is_not_saved(tmp_path, columns, sample):
    X, y = sample

    class Nameless(MLPGate):
        pass

    class Mine(LocalMARegressor):
        pass

    candidates = {"left": Column(1), "right": Column(2)}
    with pytest.raises(InvalidInputError, match="must be importable to be saved"):
        LocalMARegressor(candidates, gate=Nameless(n_steps=5)).fit(X, y).save(tmp_path / "a")
    with pytest.raises(InvalidInputError, match="can be saved; received a Mine"):
        Mine(candidates, gate="equal").fit(X, y).save(tmp_path / "a")
    with pytest.raises(ValueError, match="not fitted"):
        LocalMARegressor(candidates).save(tmp_path / "a")
    columns.save(tmp_path / "model.localma")
    with pytest.raises(InvalidInputError, match="must come back fitted"):
        localma.load(tmp_path / "model.localma", {"left": CrossFitted(LogisticRegression())})
    with pytest.raises(InvalidInputError, match="must be a dict from name to model"):
        localma.load(tmp_path / "model.localma", [1])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    x = np.random.default_rng(0).uniform(-2, 2, 60)
    path = tmp_path_factory.mktemp("auto") / "model.localma"
    model = LocalMARegressor({"left": Column(1), "right": Column(2)}, cv=2, random_state=0)
    model.fit(np.c_[x, -x, x], np.abs(x)).save(path)
    return path


class TestBrokenAuto:
    """One field of a saved auto model changed at a time: refused, and never a raw error."""

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("gate.support.low", None),
            ("gate.size", np.array([np.nan, 80.0])),
            ("gate.size", np.array([2.0, 0.0])),
            ("gate.global_weights", np.array(0.5)),
            ("global_weights", np.array(0.5)),
            ("gate.mixed.0.points", np.array([3.5])),
            ("gate.mixed.0.shares", np.array([np.nan])),
            ("gate.mixed.0.constant", np.array([5.0, 5.0])),
            ("gate.gain", np.zeros(3)),
        ],
    )
    def test_array(self, saved, tmp_path, name, value):
        path = tmp_path / "model.localma"
        path.write_bytes(saved.read_bytes())
        rewrite(
            path, change_arrays=lambda a: a.pop(name) if value is None else a.update({name: value})
        )
        with pytest.raises(FileFormatError):
            localma.load(path)

    @pytest.mark.parametrize(
        "change",
        [
            lambda d: d["gate"]["parameters"].update(strengths="abc"),
            lambda d: d["gate"]["parameters"].update(base=3),
            lambda d: d["gate"]["parameters"].update(strengths={"$float": "abc"}),
            lambda d: d["gate"]["parameters"].update(strengths={"$tuple": 5}),
            lambda d: d["gate_features"].update(kind=["x"]),
        ],
    )
    def test_description(self, saved, tmp_path, change):
        path = tmp_path / "model.localma"
        path.write_bytes(saved.read_bytes())
        rewrite(path, change)
        with pytest.raises(FileFormatError):
            localma.load(path)


class TestBrokenFiles:
    @pytest.fixture
    def path(self, tmp_path, columns):
        columns.save(tmp_path / "model.localma")
        return tmp_path / "model.localma"

    def refuse(self, path, match, error=FileFormatError):
        with pytest.raises(error, match=match):
            localma.load(path)

    def test_not_a_safetensors_file(self, path):
        path.write_bytes(b"not a model")
        self.refuse(path, "is no safetensors file")

    def test_cut_short(self, path):
        path.write_bytes(path.read_bytes()[:-50])
        self.refuse(path, "is no safetensors file, or was cut short")

    def test_absent(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            localma.load(tmp_path / "nowhere.localma")

    def test_somebody_elses(self, path):
        save_file({"a": np.zeros(2)}, path)
        self.refuse(path, "localma did not write it")

    def test_newer_schema(self, path):
        rewrite(path, schema="99")
        self.refuse(path, "schema version '99'; this localma reads 2")

    def test_field_missing(self, path):
        rewrite(path, lambda d: d.pop("loss"))
        self.refuse(path, "description must have fields")

    def test_field_of_wrong_type(self, path):
        rewrite(path, lambda d: d.update(candidates="north"))
        self.refuse(path, "field 'candidates' of the description has the wrong type")

    def test_unknown_estimator(self, path):
        rewrite(path, lambda d: d.update(estimator="os.system"))
        self.refuse(path, "unknown estimator 'os.system'")

    def test_unknown_gate(self, path):
        rewrite(path, lambda d: d["gate"].update(kind="Popen"))
        self.refuse(path, "Unknown gate 'Popen'")

    def test_gate_by_import_needs_trust(self, path):
        rewrite(path, lambda d: d["gate"].update(kind="os:system", known=False))
        self.refuse(path, "importing 'os:system', which may run any code", UntrustedFileError)

    def test_unknown_gate_parameter(self, path):
        rewrite(path, lambda d: d["gate"]["parameters"].update(hiden=3))
        self.refuse(path, "parameters of the gate 'MLPGate' do not fit")

    def test_unknown_loss(self, path):
        rewrite(path, lambda d: d["loss"].update(name="poison"))
        self.refuse(path, "did you mean 'poisson'")

    def test_missing_array(self, path):
        rewrite(path, change_arrays=lambda a: a.pop("global_weights"))
        self.refuse(path, "array 'global_weights' is missing")

    def test_wrong_number_of_candidates(self, path):
        rewrite(path, lambda d: d["candidates"].pop())
        self.refuse(path, "names 1 candidates and has 2 weights")

    @pytest.mark.parametrize("gate", ["equal", "global", QUICK])
    def test_wrong_shapes_in_the_gate(self, tmp_path, sample, gate):
        X, y = sample
        path = tmp_path / "model.localma"
        LocalMARegressor({"left": Column(1), "right": Column(2)}, gate=gate).fit(X, y).save(path)
        names = [name for name in load_file(path) if name.startswith("gate.")]
        assert names
        for name in names:
            LocalMARegressor({"left": Column(1), "right": Column(2)}, gate=gate).fit(X, y).save(
                path
            )
            rewrite(
                path, change_arrays=lambda a, name=name: a.update({name: np.zeros((2, 3, 5, 7))})
            )
            self.refuse(path, "shape|number|must")


def test_a_failed_save_leaves_the_old_file(tmp_path, columns, monkeypatch):
    path = tmp_path / "model.localma"
    columns.save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        columns.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.localma"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on this platform")
def test_killed_while_saving_leaves_a_whole_file(tmp_path, columns, sample):
    """A real process that saves without end, killed: what is there can be loaded."""
    path = tmp_path / "model.localma"
    columns.save(path)
    code = (
        "import sys, localma\n"
        "model = localma.load(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "while True: model.save(sys.argv[1])\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout.readline().strip() == b"ready"
    time.sleep(0.3)
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    child.stdout.close()
    X, _ = sample
    np.testing.assert_array_equal(localma.load(path).predict(X), columns.predict(X))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, bool, np.float32, np.int64, "U3"])
def test_labels_keep_their_type(tmp_path, dtype):
    X = np.random.default_rng(0).normal(size=(40, 2))
    labels = np.array([0, 1])[(X[:, 0] > 0).astype(int)].astype(dtype)
    model = LogisticRegression().fit(X, labels)
    fitted = LocalMAClassifier({"model": model}, gate="equal").fit(X, labels)
    fitted.save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma", candidates={"model": model})
    assert again.classes_.dtype == fitted.classes_.dtype == labels.dtype
    assert again.predict(X).dtype == labels.dtype
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


@pytest.mark.parametrize("dtype", [None, "O", "<M8[s]", "|i1", "strange"])
def test_labels_of_another_type_are_refused(tmp_path, dtype):
    X = np.random.default_rng(0).normal(size=(40, 2))
    labels = np.where(X[:, 0] > 0, 1000, 2000)
    model = LogisticRegression().fit(X, labels)
    LocalMAClassifier({"model": model}, gate="equal").fit(X, labels).save(tmp_path / "m.localma")
    rewrite(tmp_path / "m.localma", lambda description: description.update(classes_dtype=dtype))
    with pytest.raises(FileFormatError, match=r"The classes \[1000, 2000\] are no "):
        localma.load(tmp_path / "m.localma", candidates={"model": model})


def test_a_gate_that_would_be_fetched_needs_trust():
    from localma.persistence import _make_gate

    text = {"kind": "TextGate", "known": True, "parameters": {"encoder": "somebody/encoder"}}
    path = {"kind": "ShrunkGate", "known": True, "parameters": {"base": {"$gate": text}}}
    for description in (text, path):
        with pytest.raises(UntrustedFileError, match="would be fetched from elsewhere"):
            _make_gate(description, False, None)


def test_a_model_of_predictions_alone_comes_back_without_candidates(tmp_path, sample):
    X, y = sample
    P = {"left": -X[:, 0], "right": X[:, 0]}
    model = LocalMARegressor(gate=QUICK).fit(X, y, predictions=P)
    path = tmp_path / "model.localma"
    model.save(path)
    for candidates in (None, {}):
        again = localma.load(path, candidates=candidates)
        assert again.pool_ is None
        np.testing.assert_array_equal(again.predict(X, P), model.predict(X, P))
    again.save(path)
    assert localma.load(path).candidate_names_ == ("left", "right")
    attached = localma.load(path, candidates={"left": Column(1), "right": Column(2)})
    np.testing.assert_array_equal(attached.predict(X), model.predict(X, P))


def test_files_without_the_newer_fields_are_read(tmp_path, sample, columns):
    X, y = sample
    path = tmp_path / "model.localma"
    columns.save(path)
    assert localma.load(path).n_outputs_ == 1
    rewrite(path, forget_newer_fields)
    again = localma.load(path)
    np.testing.assert_array_equal(again.predict(X), columns.predict(X))
    assert not hasattr(again, "n_outputs_")
    assert again.output_names_ is None
    bare = LocalMARegressor(gate=QUICK).fit(X, y, predictions={"left": -X[:, 0], "right": X[:, 0]})
    bare.save(path)
    rewrite(path, forget_newer_fields)
    with pytest.raises(InvalidInputError, match=r"'left', 'right' are not saved in the file"):
        localma.load(path)
    assert localma.load(path, candidates={}).candidate_names_ == ("left", "right")


def forget_newer_fields(description):
    for name in ("n_outputs", "output_names", "without_candidates", "constant_prediction"):
        del description[name]


@pytest.mark.parametrize(
    "change",
    [
        {"n_outputs": "two"},
        {"n_outputs": 0},
        {"output_names": "uv"},
        {"output_names": ["u", 1], "n_outputs": 2},
        {"output_names": ["u", "u"], "n_outputs": 2},
        {"output_names": ["u", "v"], "n_outputs": 3},
        {"without_candidates": 1},
    ],
)
def test_wrong_outputs_are_refused(tmp_path, columns, change):
    columns.save(tmp_path / "model.localma")
    rewrite(tmp_path / "model.localma", lambda description: description.update(change))
    with pytest.raises(FileFormatError):
        localma.load(tmp_path / "model.localma")


def test_a_folder_that_is_not_there_is_named(tmp_path, columns):
    path = tmp_path / "absent" / "model.localma"
    with pytest.raises(FileNotFoundError, match=r"no folder '.*absent'; make it first") as caught:
        columns.save(path)
    assert caught.value.filename == str(path)
    assert str(path) in str(caught.value)
    assert ".model.localma." not in str(caught.value)
    (tmp_path / "absent").write_text("a file")
    with pytest.raises(NotADirectoryError) as caught:
        columns.save(path)
    assert caught.value.filename == str(path)


def test_all_missing_candidates_are_named(tmp_path, sample):
    X, y = sample
    path = tmp_path / "model.localma"
    pool = {"left": lambda X: X[:, 1], "right": Column(2), "far": lambda X: 0 * X[:, 0]}
    LocalMARegressor(pool, gate="global").fit(X, y).save(path)
    with pytest.raises(
        InvalidInputError,
        match=r"Candidates 'left', 'far' are not saved in the file\. Pass the models again: "
        r"load\(path, candidates=\{'left': model, 'far': model\}\)",
    ):
        localma.load(path)
    with pytest.raises(InvalidInputError, match=r"Candidate 'far' is not saved in the file"):
        localma.load(path, candidates={"left": pool["left"]})


def test_all_candidates_that_need_trust_are_named(tmp_path, sample):
    X, y = sample
    path = tmp_path / "model.localma"
    pool = {"one": localma.as_candidate(np.ravel, inputs=[0]), "two": Column(1)}
    pool["three"] = localma.as_candidate(np.ravel, inputs=[2])
    LocalMARegressor(pool, gate="global").fit(X, y).save(path)
    with pytest.raises(
        UntrustedFileError,
        match=r"Candidates 'one', 'three' are made from 'numpy:ravel', 'numpy:ravel', which may "
        r"run any code\. Pass trust=True .*candidates=\{'one': model, 'three': model\}",
    ):
        localma.load(path)


def test_a_model_loaded_without_candidates_says_so(tmp_path, sample, columns):
    X, _ = sample
    path = tmp_path / "model.localma"
    columns.save(path)
    bare = localma.load(path, candidates={})
    with pytest.raises(
        InvalidInputError,
        match=r"or loaded with candidates=\{\}\. Pass predictions= of 'left', 'right', or load it "
        r"with its candidates\.",
    ):
        bare.predict(X)
