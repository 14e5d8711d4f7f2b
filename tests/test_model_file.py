"""Saving and loading: whole or not at all, no pickle, every field checked, trust asked for."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from datetime import date, datetime, timedelta

import narwhals
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import localma
from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor
from localma.errors import (
    ChangedCandidateError,
    FileFormatError,
    InvalidInputError,
    UntrustedFileError,
)
from localma.gates import MLPGate
from localma.gates.fused.engine import evaluate as evaluate_stack
from localma.gates.mlp import stacked
from localma.inspection import evaluate
from localma.losses import Loss, squared_error
from localma.storage import array_file
from tests import format_files

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


def rewrite(path, change_description=None, change_arrays=None):
    """Write the file again, changed and with a right checksum, as an attacker or a bug would."""
    file = array_file.read(path)
    if change_description is not None:
        change_description(file.description)
    if change_arrays is not None:
        change_arrays(file.arrays)
    path.write_bytes(array_file.to_bytes(file.description, file.arrays))


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
    assert header["__metadata__"]["format_version"] == "3"
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
        with pytest.raises(InvalidInputError, match=r"Your own loss .*load\(path, loss="):
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
        self.refuse(path, "is not a localma model file")

    def test_cut_short(self, path):
        path.write_bytes(path.read_bytes()[:-50])
        self.refuse(path, "is damaged: its SHA-256 should be")
        path.write_bytes(path.read_bytes()[:100])
        self.refuse(path, "is not a localma model file, or it was cut short")

    def test_absent(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            localma.load(tmp_path / "nowhere.localma")

    def test_somebody_elses(self, path):
        save_file({"a": np.zeros(2)}, path)
        self.refuse(path, "localma did not write it")

    def test_newer_format(self, path, monkeypatch):
        with monkeypatch.context() as later:
            later.setattr(array_file, "FORMAT_VERSION", 99)
            rewrite(path)
        self.refuse(path, "format version '99'; this localma reads 3")

    def test_field_missing(self, path):
        rewrite(path, lambda d: d.pop("loss"))
        self.refuse(path, "description must have fields")

    def test_field_of_wrong_type(self, path):
        rewrite(path, lambda d: d.update(candidates="north"))
        self.refuse(path, "field 'candidates' of the description has the wrong type")

    def test_unknown_estimator(self, path):
        rewrite(path, lambda d: d.update(estimator="os.system"))
        self.refuse(path, "Unknown estimator 'os.system'")

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
    with pytest.raises(FileFormatError, match=r"The classes \[1000, 2000\] are not of type "):
        localma.load(tmp_path / "m.localma", candidates={"model": model})


PATHS = {
    "hub": {"kind": "TextGate", "known": True, "parameters": {"encoder": "somebody/encoder"}},
    "folder": {"kind": "TextGate", "known": True, "parameters": {"encoder": {"$path": "../.."}}},
    "weights": {
        "kind": "ImageGate",
        "known": True,
        "parameters": {"network": "test_efficientnet", "weights": "/etc/passwd"},
    },
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("recipe", PATHS.values(), ids=PATHS)
def test_paths_of_gates_need_trust(tmp_path, columns, recipe, nested):
    if nested:
        recipe = {"kind": "ShrunkGate", "known": True, "parameters": {"base": {"$gate": recipe}}}
    path = tmp_path / "model.localma"
    columns.save(path)
    rewrite(path, lambda description: description.update(gate=recipe))
    with pytest.raises(UntrustedFileError, match=r"Gate of this file opens (weights|encoder)="):
        localma.load(path)


@pytest.mark.parametrize("name", ["cache", "checkpoint"])
def test_folders_that_only_a_fit_needs_are_never_taken_from_a_file(tmp_path, columns, name):
    path = tmp_path / "model.localma"
    columns.save(path)
    parameters = {"network": "cnn", name: str(tmp_path / "written")}
    gate = {"kind": "ImageGate", "known": True, "parameters": parameters}
    rewrite(path, lambda description: description.update(gate=gate))
    with pytest.raises(FileFormatError, match=rf"The parameter '{name}' of ImageGate is never sav"):
        localma.load(path, trust=True)
    assert not (tmp_path / "written").exists()


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


class TestFormats:
    """Files of released formats are read, and predict what they predicted then."""

    @pytest.mark.parametrize("path", sorted(format_files.FOLDER.glob("*.localma")), ids=str)
    def test_released_files_predict_what_they_did(self, path):
        expected = json.loads(path.with_suffix(".json").read_text())
        model = localma.load(path)
        np.testing.assert_allclose(format_files.predictions(model), expected, rtol=1e-5)
        assert model.verdict_

    def test_every_format_that_is_read_has_files(self):
        kept = {path.name.split("-")[0] for path in format_files.FOLDER.glob("*.localma")}
        assert kept == {str(version) for version in array_file.READ_VERSIONS}
        assert array_file.FORMAT_VERSION in array_file.READ_VERSIONS

    def test_safetensors_reads_the_file_and_saving_again_gives_the_same_bytes(
        self, tmp_path, columns
    ):
        first, second = tmp_path / "a.localma", tmp_path / "b.localma"
        columns.save(first)
        localma.load(first).save(second)
        arrays = array_file.read(first).arrays
        for name, array in load_file(first).items():
            np.testing.assert_array_equal(array, arrays[name])
            assert array.dtype == arrays[name].dtype
        columns.save(second)
        assert first.read_bytes() == second.read_bytes()


class TestChecksum:
    def test_every_damaged_byte_is_noticed(self, tmp_path, columns):
        path = tmp_path / "model.localma"
        columns.save(path)
        content = path.read_bytes()
        assert localma.model_file.inspect(path).sha256 == array_file.read(path).sha256
        places = range(0, len(content), 7)
        for place in places:
            damaged = bytearray(content)
            damaged[place] ^= 4
            path.write_bytes(damaged)
            with pytest.raises(FileFormatError):
                localma.load(path)
        path.write_bytes(content + b"\0")
        with pytest.raises(FileFormatError, match="is damaged"):
            localma.load(path)

    def test_names_types_and_shapes_are_in_it(self, tmp_path, columns):
        path = tmp_path / "model.localma"
        columns.save(path)
        content = path.read_bytes()
        for old, new in [
            (b"gate.mean", b"gate.maen"),
            (b'"dtype":"F64"', b'"dtype":"I64"'),
            (b'\\"n_features_in\\": 3', b'\\"n_features_in\\": 4'),
        ]:
            assert old in content
            path.write_bytes(content.replace(old, new, 1))
            with pytest.raises(FileFormatError, match="is damaged"):
                localma.load(path)

    def test_a_file_without_one_is_refused(self, tmp_path, columns):
        path = tmp_path / "model.localma"
        columns.save(path)
        content = path.read_bytes()
        path.write_bytes(content.replace(b'"sha256":"', b'"sha257":"', 1))
        with pytest.raises(FileFormatError, match="has no checksum"):
            localma.load(path)


def evidence(**fields):
    known = {
        "cautions": [],
        "dependence": None,
        "constant_prediction": None,
        "sample_losses": None,
    }
    return {"evidence": known | fields}


HOSTILE_GATES = {
    "negative layers": ("hidden", {"$list": [-1, -8, 0, -1, 8, 0, 4]}),
    "huge layer": ("hidden", {"$tuple": [10**12]}),
    "layer of half a unit": ("hidden", {"$tuple": [4.5]}),
    "no layers": ("hidden", None),
    "threads": ("n_jobs", "two"),
    "bound": ("logit_bound", [3.0]),
    "batch": ("batch_size", {"$float": "nan"}),
    "shrinkage": ("shrinkage", {"$float": "nan"}),
    "activation": ("activation", ["relu"]),
    "restarts": ("n_restarts", True),
}


class TestHostileFiles:
    """With a right checksum, as somebody makes them on purpose."""

    @pytest.fixture
    def path(self, tmp_path, columns):
        columns.save(tmp_path / "model.localma")
        return tmp_path / "model.localma"

    def refuse(self, path, match, error=FileFormatError):
        with pytest.raises(error, match=match) as caught:
            localma.load(path)
        links = [caught.value, caught.value.__cause__, caught.value.__context__]
        assert max(len(str(link)) for link in links if link is not None) <= 1_000

    @pytest.mark.parametrize(("name", "value"), HOSTILE_GATES.values(), ids=HOSTILE_GATES)
    def test_gate_parameters(self, path, name, value):
        rewrite(path, lambda d: d["gate"]["parameters"].update({name: value}))
        self.refuse(path, rf"{name} of MLPGate must|MLPGate with hidden=|Unknown {name}")

    def test_layers_that_have_the_right_number_of_parameters_in_all(self, path):
        """Minus one unit twice makes as many parameters; no kernel may see it."""

        def change(arrays):
            sizes = (1, -1, -8, 0, -1, 8, 0, 4, 2)
            count = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
            arrays["gate.parameters"] = np.zeros((1, count), dtype=np.float32)

        hidden = {"$list": [-1, -8, 0, -1, 8, 0, 4]}
        rewrite(path, lambda d: d["gate"]["parameters"].update(hidden=hidden), change)
        self.refuse(path, "hidden of MLPGate must be a sequence of positive integers")

    @pytest.mark.parametrize(
        ("name", "value", "match"),
        [
            ("gate.global_weights", np.zeros(2), "non-negative weights .* that sum to one"),
            ("gate.global_weights", np.array([20.5, 0.5]), "that sum to one.*sum 21"),
            ("global_weights", np.array([20.5, 0.5]), "that sum to one.*sum 21"),
            ("global_weights", np.array([0.5107, 0.4895], "f2"), "that sum to one.*sum 1.0002"),
            ("global_weights", np.array([0.5, 0.25, 0.25]), "names 2 candidates and has 3 weights"),
            ("gate.scale", np.zeros(1), "must be positive"),
            ("gate.mean", np.array([np.nan]), "not finite"),
            ("gate.n_steps", np.array([1.0]), "must not have the type float64"),
            ("evil", np.zeros(1), "unknown array 'evil'"),
            ("x" * 10**6, np.zeros(1), "unknown array 'xxx"),
        ],
    )
    def test_arrays(self, path, name, value, match):
        rewrite(path, change_arrays=lambda arrays: arrays.update({name: value}))
        self.refuse(path, match)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            ({"candidates": [{"name": "a", "recipe": None}] * 2}, "Names of candidates must diff"),
            ({"candidates": [{"name": ["a"], "recipe": None}] * 2}, "'name' of the candidate has"),
            ({"n_features_in": True}, "field 'n_features_in' of the description has the wrong"),
            ({"feature_names_in": ["a", "a", "b"]}, "names of 3 columns must be as many different"),
            (
                {"feature_names_in": [["a"], "b", "c"]},
                "names of 3 columns must be as many different strings",
            ),
            ({"gate_features": {"kind": ["all"], "hidden": []}}, "inputs of the gate have an unk"),
            ({"gate_features": {"kind": "all", "hidden": [[1]]}}, "must be a list of columns"),
            ({"notes": {"a": 1}}, "Notes must be texts"),
            (evidence(cautions=[{"kind": "x" * 10**6}]), "caution must have fields"),
            (evidence(constant_prediction=[1.0, 2.0]), "constant prediction is 1 numbers"),
            (evidence(constant_prediction=["1"]), "constant prediction is 1 numbers"),
            ({"evidence": {"cautions": []}}, "evidence must have fields"),
            (evidence(dependence={"kind": "order"}), "dependence of rows must have fields"),
            (
                evidence(dependence={"kind": "no", "correlation": 0.5, "reach": 3, "column": None}),
                "unknown dependence of rows: 'no'",
            ),
            (
                evidence(
                    dependence={"kind": "order", "correlation": 0.5, "reach": -3, "column": None}
                ),
                "unknown dependence of rows: 'order', -3 rows",
            ),
            ({"loss": {"name": "x" * 10**7, "parameters": {}, "own": False}}, "cannot be made"),
            ({"estimator": "\x1b[2J"}, r"Unknown estimator '\\x1b\[2J'"),
        ],
    )
    def test_description(self, path, change, match):
        rewrite(path, lambda description: description.update(change))
        self.refuse(path, match, (FileFormatError, InvalidInputError))

    @pytest.mark.parametrize("depth", [500, 5_000, 200_000])
    def test_deep_nesting(self, path, depth):
        header = '{"__metadata__":{"format":"localma","format_version":"3","sha256":"%s",%s}}'
        nested = json.dumps("[" * depth + "]" * depth)
        content = (header % ("0" * 64, f'"description":{nested}')).encode()
        path.write_bytes(array_file.seal(len(content).to_bytes(8, "little") + content))
        self.refuse(path, "cannot be read as JSON|must be a JSON object")

    @pytest.mark.parametrize(
        ("entry", "match"),
        [
            ({"dtype": "BF16"}, "has the type 'BF16'; known are"),
            ({"dtype": "F8_E4M3"}, "has the type 'F8_E4M3'"),
            ({"dtype": ["F64"]}, "has the type"),
            ({"shape": [1] * 65 + [2]}, "unknown form"),
            ({"shape": [-2]}, "unknown form"),
            ({"shape": [2.0]}, "unknown form"),
            ({"shape": [10**30]}, "unknown form"),
            ({"shape": [0, 2**40]}, "does not take"),
            ({"data_offsets": [8, 24]}, "gap or overlap|should have"),
            ({"data_offsets": [0, 2**40]}, "does not take"),
        ],
    )
    def test_header(self, path, entry, match):
        content = path.read_bytes()
        stop = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:stop])
        header["global_weights"] |= entry
        text = json.dumps(header, separators=(",", ":")).encode()
        changed = len(text).to_bytes(8, "little") + text + content[stop:]
        path.write_bytes(array_file.seal(changed))
        self.refuse(path, match)

    def test_a_moved_support_fades_to_weights_on_the_simplex(self, saved, tmp_path):
        path = tmp_path / "model.localma"
        path.write_bytes(saved.read_bytes())

        def move(arrays):
            for side in ("low", "high"):
                arrays[f"gate.support.{side}"] = arrays[f"gate.support.{side}"] + 1e6
            arrays["gate.global_weights"] = np.array([0.0, 1.0])

        rewrite(path, change_arrays=move)
        X = np.array([[0.5, 1.0, 2.0]])
        np.testing.assert_allclose(localma.load(path).predict_weights(X), [[0.0, 1.0]], atol=1e-6)
        reaches = {f"gate.support.{side}_reach": np.array([0.0]) for side in ("low", "high")}
        rewrite(path, change_arrays=lambda arrays: arrays.update(reaches))
        self.refuse(path, "positive lengths")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("scale", [-1.0]),
            ("use", [0.0]),
            ("low", [1e9]),
            ("landmarks", np.zeros((60, 2))),
            ("spacing", [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
            ("directions", np.zeros((2, 1))),
            ("gaps", np.zeros((1, 3))),
        ],
    )
    def test_a_support_that_cannot_be_used_is_refused(self, saved, tmp_path, name, value):
        path = tmp_path / "model.localma"
        path.write_bytes(saved.read_bytes())
        changed = {f"gate.support.{name}": np.asarray(value, dtype=float)}
        if name == "gaps":
            changed = {"gate.support.gaps": np.ones((1, 3)), "gate.support.gap_at": np.array([9])}
        rewrite(path, change_arrays=lambda arrays: arrays.update(changed))
        self.refuse(path, "The support of ShrunkGate")

    @pytest.mark.parametrize("bound", [None, 1e-300, 1e300])
    def test_networks_that_overflow_give_weights_on_the_simplex(self, path, bound):
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(1, 18))
        huge = {"gate.parameters": (3e38 * signs).astype(np.float32)}
        rewrite(
            path,
            lambda description: description["gate"]["parameters"].update(logit_bound=bound),
            lambda arrays: arrays.update(huge),
        )
        model = localma.load(path)
        X = np.array([[1e300, 1.0, 2.0], [-1.0, 1.0, 2.0], [0.0, 1.0, 2.0]])
        weights = model.predict_weights(X)
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
        assert np.isfinite(model.predict(X)).all()


def test_the_kernel_is_not_called_with_networks_that_do_not_fit(columns):
    gate = columns.gate_
    X = np.zeros((4, 1))
    stack = stacked(np.zeros(2), [gate], [1.0])
    beyond = {
        "networks": stack.networks + np.array([0, 0, 0, 10**6]),
        "sizes": np.array([1, -4, 2]),
        "thetas": stack.thetas[:3],
        "standards": np.zeros((1, 2, 7)),
        "settings": stack.settings[:, :1],
    }
    for name, array in beyond.items():
        with pytest.raises(InvalidInputError, match="networks of a gate do not fit 1 inputs and 2"):
            evaluate_stack(dataclasses.replace(stack, **{name: array}), X)
    with pytest.raises(InvalidInputError, match="do not fit 2 inputs"):
        evaluate_stack(stack, np.zeros((4, 2)))


MEMORY = """
import json, resource, sys
import numpy as np
import localma
from pathlib import Path
localma.load(sys.argv[1])  # imports what is imported at use
pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
path = Path(sys.argv[2])
limit = pages + 64 * 2**20 + 50 * path.stat().st_size
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    localma.load(path, candidates={})
except localma.errors.LocalMAError as error:
    link = error
    while link is not None:
        assert not isinstance(link, MemoryError), error
        link = link.__cause__
    print(str(error)[:100])
"""


def large_dtype(description, arrays):
    description.update(estimator="LocalMAClassifier", classes=["a", "b"])
    description.update(classes_dtype="<U250000000")


def long_label(description, arrays):
    labels = [str(k) for k in range(20_000)] + ["x" * 20_000]
    description.update(estimator="LocalMAClassifier", classes=labels, classes_dtype="<U20000")


def many_candidates(description, arrays):
    description["gate"] = {"kind": "EqualGate", "known": True, "parameters": {}}
    for name in list(arrays):
        if name.startswith("gate."):
            del arrays[name]
    arrays["gate.n_candidates"] = np.array(10**9)


def wide_layers(description, arrays):
    description["gate"]["parameters"]["hidden"] = {"$tuple": [10**6, 10**6]}
    width = 2 * 10**6 + (10**6 + 1) * 10**6 + (10**6 + 1) * 2
    arrays["gate.parameters"] = np.zeros((0, width), dtype=np.float32)
    arrays["gate.n_steps"] = np.zeros(0, dtype=np.int64)


def empty_lists(description, arrays):
    description.update(evidence(cautions=[[] for _ in range(10**6)]))


def empty_objects(description, arrays):
    description["gate"]["parameters"] = {f"{k:x}": {} for k in range(300_000)}


def wide_text(description, arrays):
    description["notes"] = {"\U0001f600": "a" * 3_000_000, "b": [1]}


def large_image(description, arrays):
    description["gate"] = {"kind": "ImageGate", "known": True, "parameters": {"network": "cnn"}}
    arrays["gate.size"] = np.array([16_000, 16_000])
    arrays["gate.encoder"] = np.zeros(32, dtype=np.uint8)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it")
@pytest.mark.parametrize(
    "change",
    [
        large_dtype, long_label, many_candidates, wide_layers, empty_lists, empty_objects,
        wide_text, large_image,
    ],
)  # fmt: skip
def test_memory_is_in_proportion_to_the_file(tmp_path, columns, change):
    """At most 64 MiB and 50 times the size of the file; the limit is the operating system's."""
    good, path = tmp_path / "good.localma", tmp_path / "model.localma"
    columns.save(good)
    file = array_file.read(good)
    change(file.description, file.arrays)
    path.write_bytes(array_file.to_bytes(file.description, file.arrays))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(good), str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


class TestProbes:
    """Candidates are recognised by their predictions for made-up inputs."""

    @pytest.fixture
    def trained(self, sample):
        X, y = sample
        line = LinearRegression().fit(X, y)
        tree = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, y)
        return {"line": line, "tree": tree}

    @pytest.fixture
    def path(self, tmp_path, sample, trained):
        LocalMARegressor(trained, gate=QUICK).fit(*sample).save(tmp_path / "model.localma")
        return tmp_path / "model.localma"

    def test_swapped_and_retrained_candidates_are_refused_by_name(self, path, sample, trained):
        X, y = sample
        localma.load(path, candidates=trained)
        swapped = {"line": trained["tree"], "tree": trained["line"]}
        with pytest.raises(
            ChangedCandidateError, match="Candidate 'line' is not the model that was s"
        ):
            localma.load(path, candidates=swapped)
        again = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X[:30], y[:30])
        with pytest.raises(
            ChangedCandidateError, match=r"Candidate 'tree'.*fit again with this one"
        ):
            localma.load(path, candidates=trained | {"tree": again})
        model = localma.load(path, candidates=swapped, probes=False)
        assert model.candidate_names_ == ("line", "tree")

    def test_a_copy_that_rounds_otherwise_is_accepted(self, path, sample, trained):
        rounded = localma.as_candidate(
            lambda X: trained["line"].predict(X).astype(np.float32).astype(float)
        )
        localma.load(path, candidates=trained | {"line": rounded})

    def test_a_candidate_that_fails_on_them_is_refused(self, path, sample, trained):
        X, y = sample
        other = LinearRegression().fit(X[:, :2], y)
        with pytest.raises(ChangedCandidateError, match=r"'line'.*it fails on them .*2 features"):
            localma.load(path, candidates=trained | {"line": other})

    def test_without_probes_nothing_is_saved_and_nothing_checked(self, path, sample, trained):
        LocalMARegressor(trained, gate=QUICK).fit(*sample).save(path, probes=False)
        file = array_file.read(path)
        assert file.description["probes"] is None
        assert not [name for name in file.arrays if name.startswith("probes.")]
        localma.load(path, candidates={"line": trained["tree"], "tree": trained["line"]})

    def test_no_row_of_the_sample_is_saved(self, path, sample):
        X, _ = sample
        inputs = array_file.read(path).arrays["probes.inputs"]
        assert inputs.shape == (16, 3)
        assert not np.isin(inputs, X).any()
        assert ((X.min(axis=0) <= inputs) & (inputs <= X.max(axis=0))).all()

    def test_random_and_failing_candidates_are_saved_without(self, tmp_path, sample, trained):
        X, y = sample
        rng = np.random.default_rng(0)

        def picky(X):
            if len(X) < 60:
                raise ValueError("too few rows")
            return X[:, 0]

        pool = {"line": trained["line"], "noise": lambda X: rng.normal(size=len(X)), "picky": picky}
        path = tmp_path / "model.localma"
        LocalMARegressor(pool, gate="global").fit(X, y).save(path)
        assert array_file.read(path).description["probes"]["candidates"] == ["line"]
        localma.load(path, candidates=pool)

    def test_saving_what_was_loaded_keeps_them(self, path, sample, trained):
        localma.load(path, candidates=trained).save(path)
        with pytest.raises(ChangedCandidateError, match="Candidate 'line' is not"):
            localma.load(path, candidates={"line": trained["tree"], "tree": trained["line"]})

    def test_a_cross_fitted_candidate_is_recognised(self, tmp_path, sample):
        X, y = sample
        own = {"line": CrossFitted(LinearRegression()), "right": Column(2)}
        model = LocalMARegressor(own, gate="global", cv=2, random_state=0).fit(X, y)
        model.save(tmp_path / "model.localma")
        fitted = model.pool_.candidates[0]
        localma.load(tmp_path / "model.localma", candidates={"line": fitted})
        other = LinearRegression().fit(X, -y)
        with pytest.raises(ChangedCandidateError, match="Candidate 'line' is not"):
            localma.load(tmp_path / "model.localma", candidates={"line": other})

    def test_classifiers_are_compared_by_probability(self, tmp_path, sample):
        X, y = sample
        labels = np.where(y > 1, "high", "low")
        one, two = (LogisticRegression(C=c).fit(X, labels) for c in (1.0, 0.01))
        model = LocalMAClassifier({"one": one, "two": two}, gate="global").fit(X, labels)
        model.save(tmp_path / "model.localma")
        localma.load(tmp_path / "model.localma", candidates={"one": one, "two": two})
        with pytest.raises(ChangedCandidateError, match="Candidate 'one' is not"):
            localma.load(tmp_path / "model.localma", candidates={"one": two, "two": one})

    @pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
    def test_data_frames(self, tmp_path, library):
        pytest.importorskip(library)
        frame = make_frame(library)
        seen = []

        def by_city(table):
            seen.append(table)
            city = np.asarray(table["city"].to_numpy())
            return np.asarray(table["area"].to_numpy()) * np.where(city == "Bern", 2.0, 3.0)

        def by_area(table):
            return np.asarray(table["area"].to_numpy(), dtype=float)

        pool = {"city": by_city, "area": by_area}
        path = tmp_path / "model.localma"
        y = np.linspace(0, 1, 60)
        LocalMARegressor(pool, gate="global").fit(frame, y).save(path)
        made = narwhals.from_native(seen[-1], eager_only=True)
        assert made.schema == narwhals.from_native(frame, eager_only=True).schema
        assert set(made["city"].to_list()) == {"Bern", "Basel"}
        assert b"Ada" not in path.read_bytes()  # a rare text is nobody's business
        localma.load(path, candidates=pool)
        with pytest.raises(ChangedCandidateError, match="Candidate 'city' is not"):
            localma.load(path, candidates={"city": by_area, "area": by_city})

    def test_texts_have_none(self, tmp_path):
        texts = ["a text", "another", "third"] * 5
        pool = {"a": lambda X: np.array([len(t) for t in X], float), "b": lambda X: np.ones(len(X))}
        model = LocalMARegressor(pool, gate="global").fit(texts, np.arange(15.0))
        assert model.probes_ is None
        model.save(tmp_path / "model.localma")
        localma.load(tmp_path / "model.localma", candidates=pool)


def make_frame(library):
    columns = {
        "area": np.linspace(20.0, 150.0, 60),
        "rooms": list(range(1, 7)) * 10,
        "new": [True, False] * 30,
        "city": ["Bern", "Basel"] * 29 + ["Ada", "Zug"],
        "day": [date(2024, 1, 1) + timedelta(days=k) for k in range(60)],
        "at": [datetime(2024, 1, 1) + timedelta(hours=k) for k in range(60)],
    }
    if library == "pandas":
        columns.pop("day")  # which pandas has as objects
    return narwhals.from_dict(columns, backend=library).to_native()


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


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        ({"mean": [1.0], "standard_error": [0.1], "n": 60}, "sample are 2 numbers and"),
        ({"mean": [1.0, "2"], "standard_error": [0.1, None], "n": 60}, "sample are 2 numbers and"),
        ({"mean": [1.0, 2.0], "standard_error": [0.1, 0.1], "n": 0}, "sample are 2 numbers and"),
        ({"mean": [1.0, 2.0]}, "The sample_losses must have fields"),
        ([1.0, 2.0], "The field 'sample_losses' of the evidence has the wrong type"),
    ],
)
def test_losses_on_the_sample_that_are_wrong(tmp_path, columns, saved, words):
    columns.save(tmp_path / "m.localma")
    rewrite(
        tmp_path / "m.localma",
        lambda description: description.update(evidence(sample_losses=saved)),
    )
    with pytest.raises(FileFormatError, match=words):
        localma.load(tmp_path / "m.localma")


def test_losses_on_the_sample_come_back_if_they_are_known(tmp_path, columns, sample):
    columns.save(tmp_path / "m.localma")
    again = localma.load(tmp_path / "m.localma")
    for one in ("mean", "standard_error"):
        expected = getattr(columns.sample_losses_, one)
        np.testing.assert_array_equal(getattr(again.sample_losses_, one), expected)
    columns.sample_losses_ = None  # as in a model that an earlier version fitted and pickled
    columns.save(tmp_path / "m.localma")
    older = localma.load(tmp_path / "m.localma")
    assert older.sample_losses_ is None
    assert evaluate(older, *sample, control=False).gaps == []
