"""ONNX files as candidates."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.candidates import OnnxCandidate, from_recipe
from localma.errors import CandidateError, InvalidInputError

pytest.importorskip("onnxruntime", reason="needs the extra onnx")
onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
skl2onnx = pytest.importorskip("skl2onnx", reason="models are converted by skl2onnx")

random = np.random.default_rng(0)
X = random.normal(size=(80, 3))
SINGLE = X.astype(np.float32)
Y = X[:, 0] - X[:, 1] ** 2
CLASSES = ["low", "mid", "top"]
LABELS = np.array(CLASSES)[np.digitize(X[:, 0], [-0.5, 0.5])]
SECOND = (X[:, 0] > 0).astype(int)


def written(path: Path, model: Any, **options: Any) -> Path:
    """A fitted model as an ONNX file; inputs of single precision unless stated."""
    if "initial_types" not in options:
        options["X"] = SINGLE[:1]
    path.write_bytes(skl2onnx.to_onnx(model, **options).SerializeToString())
    return path


def graph(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Path:
    """A small file made by hand."""
    made = onnx.helper.make_graph(nodes, "made", inputs, outputs)
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(made, opset_imports=[opset], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def tensor(name: str, kind: str, shape: list[Any]) -> Any:
    return onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), shape)


# --- equal to the model that was converted -----------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(),
        GradientBoostingRegressor(n_estimators=10, random_state=0),
        make_pipeline(StandardScaler(), LinearRegression()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_converted_regressor_predicts_as_before(model: Any, tmp_path: Path) -> None:
    fitted = model.fit(SINGLE, Y)
    candidate = as_candidate(written(tmp_path / "north.onnx", fitted))
    assert isinstance(candidate, OnnxCandidate)
    assert candidate.label == "north"
    assert_allclose(candidate.predict(X, "regression"), fitted.predict(SINGLE), atol=1e-5)


def test_two_outputs(tmp_path: Path) -> None:
    fitted = LinearRegression().fit(X, np.column_stack([Y, -Y]))
    candidate = as_candidate(written(tmp_path / "two.onnx", fitted))
    assert_allclose(candidate.predict(X, "regression"), fitted.predict(X), atol=1e-5)


@pytest.mark.parametrize("zipmap", [True, False, "columns"])
def test_a_converted_classifier_predicts_as_before(zipmap: Any, tmp_path: Path) -> None:
    fitted = RandomForestClassifier(5, random_state=0).fit(SINGLE, LABELS)
    path = written(tmp_path / "forest.onnx", fitted, options={"zipmap": zipmap})
    if zipmap == "columns":  # an output per class, of which none says enough
        with pytest.raises(
            CandidateError,
            match=r"the file has the outputs 'output_label' \(tensor\(string\)\), .*'stop' .* and "
            r"not exactly one of them has real numbers: choose one with output=\.",
        ):
            as_candidate(path, classes=CLASSES).predict(X, "classification")
        return
    predictions = as_candidate(path, classes=CLASSES).predict(X, "classification")
    assert_allclose(predictions, fitted.predict_proba(SINGLE), atol=1e-6)


def test_dicts_by_class_are_read_by_class_and_can_be_renamed(tmp_path: Path) -> None:
    fitted = LogisticRegression().fit(SINGLE, LABELS)
    path = written(tmp_path / "dicts.onnx", fitted)
    other = as_candidate(path, classes=["top", "low", "mid"]).predict(X, "classification")
    assert_allclose(other, fitted.predict_proba(X)[:, [2, 0, 1]], atol=1e-6)
    renamed = as_candidate(path, classes=["a", "b", "c"]).predict(X, "classification")
    assert_allclose(renamed, fitted.predict_proba(X), atol=1e-6)


def test_numbers_as_classes(tmp_path: Path) -> None:
    fitted = LogisticRegression().fit(SINGLE, SECOND)
    candidate = as_candidate(written(tmp_path / "two.onnx", fitted), classes=[0, 1])
    predictions = candidate.predict(X, "classification")
    assert_allclose(predictions, fitted.predict_proba(X), atol=1e-6)


def test_labels_have_probability_one(tmp_path: Path) -> None:
    fitted = LogisticRegression().fit(SINGLE, LABELS)
    path = written(tmp_path / "labels.onnx", fitted)
    candidate = OnnxCandidate(path, output="output_label", classes=CLASSES)
    predictions = candidate.predict(X, "classification")
    assert_array_equal(np.array(CLASSES)[predictions.argmax(axis=1)], fitted.predict(SINGLE))
    assert set(predictions.ravel()) == {0.0, 1.0}
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north': Unknown output 'label'; did you mean 'output_label'\? Known: "
        r"'output_label', 'output_probability'\. The model is in '.*labels\.onnx'\.",
    ):
        OnnxCandidate(path, output="label", classes=CLASSES).predict(
            X, "classification", name="north"
        )


CONVERTED = {
    "LogisticRegression": LogisticRegression(),
    "RandomForest": RandomForestClassifier(3, random_state=0),
    "SVC": SVC(),
    "GaussianNB": GaussianNB(),
    "NearestNeighbours": KNeighborsClassifier(),
    "Pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "OneVsRest": OneVsRestClassifier(LogisticRegression()),  # of classifiers of 0 and 1
    "Stacking": StackingClassifier([("a", GaussianNB()), ("b", LogisticRegression())]),
}


@pytest.mark.filterwarnings("ignore:Attribute `prob._` was deprecated:FutureWarning")
@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("numbers", [True, False], ids=["numbers", "words"])
@pytest.mark.parametrize("name", CONVERTED)
def test_classes_are_read_from_the_file(
    name: str, numbers: bool, zipmap: bool, tmp_path: Path
) -> None:
    labels = 10 * np.searchsorted(CLASSES, LABELS) if numbers else LABELS
    fitted = CONVERTED[name].fit(SINGLE, labels)
    path = written(tmp_path / "three.onnx", fitted, options={"zipmap": zipmap})
    candidate = as_candidate(path)
    assert candidate.classes is not None
    assert candidate.classes.tolist() == fitted.classes_.tolist()
    if hasattr(fitted, "predict_proba"):
        predictions = candidate.predict(X, "classification")
        assert_allclose(predictions, fitted.predict_proba(SINGLE), atol=1e-5)


@pytest.mark.parametrize("zipmap", [True, False])
def test_classes_stated_in_another_order_are_those_of_the_file(
    zipmap: bool, tmp_path: Path
) -> None:
    fitted = LogisticRegression().fit(SINGLE, LABELS)
    path = written(tmp_path / "three.onnx", fitted, options={"zipmap": zipmap})
    candidate = as_candidate(path, classes=["top", "low", "mid"])
    expected = fitted.predict_proba(SINGLE)[:, [2, 0, 1]]
    assert_allclose(candidate.predict(X, "classification"), expected, atol=1e-6)
    renamed = as_candidate(path, classes=["c", "a", "b"])
    in_order = fitted.predict_proba(SINGLE)
    assert_allclose(renamed.predict(X, "classification"), in_order, atol=1e-6)
    output = "label" if zipmap is False else "output_label"
    hard = OnnxCandidate(path, output=output, classes=["c", "a", "b"])
    assert_array_equal(
        hard.predict(X, "classification").argmax(axis=1),
        fitted.predict_proba(SINGLE).argmax(axis=1),
    )


def test_a_file_without_labels_asks_for_classes(tmp_path: Path) -> None:
    same = onnx.helper.make_node("Identity", ["x"], ["y"])
    ends = [tensor("x", "INT64", ["n", 3])], [tensor("y", "INT64", ["n", 3])]
    for path in (
        written(tmp_path / "line.onnx", LinearRegression().fit(SINGLE, Y)),
        graph(tmp_path / "same.onnx", [same], *ends),
    ):
        with pytest.raises(InvalidInputError, match=r"which must state the classes of its columns"):
            as_candidate(path).check_task("classification", "north")


def test_a_probability_of_a_classifier_may_be_averaged_in_a_regression(tmp_path: Path) -> None:
    fitted = LogisticRegression().fit(SINGLE, LABELS)
    path = written(tmp_path / "columns.onnx", fitted, options={"zipmap": "columns"})
    candidate = OnnxCandidate(path, output="stop")
    candidate.check_task("regression", "top")
    expected = fitted.predict_proba(SINGLE)[:, 2]
    assert_allclose(candidate.predict(X, "regression"), expected, atol=1e-6)
    stated = OnnxCandidate(path, output="stop", classes=["other", "top"])
    assert_allclose(stated.predict(X, "classification")[:, 1], expected, atol=1e-6)
    with pytest.raises(InvalidInputError, match="which a regression does not have"):
        stated.check_task("regression", "top")


def test_a_pool_of_files_needs_no_classes(tmp_path: Path) -> None:
    models = [LogisticRegression().fit(SINGLE, LABELS), GaussianNB().fit(SINGLE, LABELS)]
    for name, fitted in zip("ab", models, strict=True):
        written(tmp_path / f"{name}.onnx", fitted, options={"zipmap": name == "a"})
    pool = {name: tmp_path / f"{name}.onnx" for name in "ab"}
    model = LocalMAClassifier(pool, gate="global").fit(X, LABELS)
    assert model.classes_.tolist() == CLASSES
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", trust=True)
    assert_array_equal(restored.predict_proba(X), model.predict_proba(X))


def test_logits_become_probabilities_and_are_calibrated(tmp_path: Path) -> None:
    torch_like = LinearRegression().fit(X, 9 * np.eye(3)[np.digitize(X[:, 0], [-0.5, 0.5])])
    path = written(tmp_path / "logits.onnx", torch_like)
    candidate = OnnxCandidate(path, classes=CLASSES, activation="softmax")
    noisy = np.where(random.uniform(size=80) < 0.3, random.permutation(LABELS), LABELS)
    fitted = candidate.calibrated(X, noisy)
    assert fitted.temperature > 1.0
    sharp, flat = (c.predict(X, "classification").max(axis=1) for c in (candidate, fitted))
    assert (flat < sharp).all()


# --- inputs ------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Any, Any, Path]:
    """A pipeline over two numbers, a whole number and a word, and its file with four inputs."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "area": X[:, 0],
            "height": X[:, 1],
            "rooms": random.integers(1, 5, size=80),
            "district": np.array(["north", "south"])[SECOND],
        }
    )
    numbers = ["area", "height", "rooms"]
    parts = [("n", StandardScaler(), numbers), ("w", OneHotEncoder(), ["district"])]
    model = make_pipeline(ColumnTransformer(parts), LinearRegression()).fit(frame, Y)
    types = skl2onnx.common.data_types
    kinds = [types.DoubleTensorType, types.DoubleTensorType, types.Int64TensorType]
    initial = [
        (name, kind([None, 1]))
        for name, kind in zip(frame, [*kinds, types.StringTensorType], strict=True)
    ]
    return frame, model, written(tmp_path / "mixed.onnx", model, initial_types=initial)


def test_several_inputs_are_columns(mixed: Any) -> None:
    frame, model, path = mixed
    candidate = as_candidate(path)
    expected = model.predict(frame)
    assert_allclose(candidate.predict(frame, "regression"), expected, atol=1e-5)
    shuffled = frame[["rooms", "district", "height", "area"]].assign(more=1.0)
    assert_allclose(candidate.predict(shuffled, "regression"), expected, atol=1e-5)
    in_order = frame.to_numpy(dtype=object)
    assert_allclose(candidate.predict(in_order, "regression"), expected, atol=1e-5)
    polars = pytest.importorskip("polars")
    other = polars.DataFrame({name: frame[name].tolist() for name in frame})
    assert_allclose(candidate.predict(other, "regression"), expected, atol=1e-5)


def test_inputs_that_do_not_fit_are_named(mixed: Any) -> None:
    frame, _, path = mixed
    with pytest.raises(
        CandidateError,
        match=r"the file takes several inputs, 'area' \[None, 1\], .*, but rows of shape \[3\] "
        r"have neither columns of those names nor as many columns as the inputs take together: "
        r"select the columns with inputs=, or return a dict of arrays from preprocess=\.",
    ):
        as_candidate(path).predict(frame.drop(columns="rooms"), "regression")
    with pytest.raises(
        CandidateError, match=r"its input 'rooms' takes whole numbers, but received 2\.5: select"
    ):
        as_candidate(path).predict(frame.assign(rooms=2.5), "regression")
    with pytest.raises(
        CandidateError, match=r"its input 'area' takes numbers, but received values such as 'wide'"
    ):
        as_candidate(path).predict(frame.assign(area="wide"), "regression")
    wrong = OnnxCandidate(path, preprocess=lambda frame: {"area": frame["area"]})
    with pytest.raises(
        CandidateError, match=r"the file takes the inputs \['area', .*; preprocess returned \['ar"
    ):
        wrong.predict(frame, "regression")


def test_a_wrong_number_of_columns_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "narrow.onnx", LinearRegression().fit(SINGLE, Y))
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north': its input 'X' takes rows of shape \[3\]; received rows of shape "
        r"\[2\]: select its columns with inputs=\. The model is in '.*narrow\.onnx'\.",
    ):
        as_candidate(path).predict(X[:5, :2], "regression", name="north")


@pytest.mark.parametrize("kind", ["FLOAT16", "FLOAT", "DOUBLE", "INT32", "INT64", "UINT8"])
def test_types_of_inputs(kind: str, tmp_path: Path) -> None:
    cast = onnx.helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT)
    inputs, outputs = [tensor("x", kind, ["n", 2])], [tensor("y", "FLOAT", ["n", 2])]
    candidate = as_candidate(graph(tmp_path / "cast.onnx", [cast], inputs, outputs))
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    for values in (rows, rows.astype(int), rows.astype(object), rows.tolist()):
        assert_array_equal(candidate.predict(values, "regression"), rows)


def test_an_input_of_one_dimension(tmp_path: Path) -> None:
    same = onnx.helper.make_node("Identity", ["x"], ["y"])
    inputs, outputs = [tensor("x", "FLOAT", ["n"])], [tensor("y", "FLOAT", ["n"])]
    candidate = as_candidate(graph(tmp_path / "flat.onnx", [same], inputs, outputs))
    assert_array_equal(candidate.predict(SINGLE[:, :1], "regression"), SINGLE[:, 0])


def test_images_keep_their_dimensions(tmp_path: Path) -> None:
    mean = onnx.helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)
    inputs, outputs = [tensor("x", "FLOAT", ["n", 3, 4, 4])], [tensor("y", "FLOAT", ["n", 3])]
    candidate = as_candidate(graph(tmp_path / "mean.onnx", [mean], inputs, outputs))
    images = random.normal(size=(5, 3, 4, 4))
    assert_allclose(candidate.predict(images, "regression"), images.mean(axis=(2, 3)), atol=1e-6)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_a_fixed_number_of_rows_is_filled_up(n: int, tmp_path: Path) -> None:
    total = onnx.helper.make_node("Add", ["x", "z"], ["y"])
    shapes = [tensor(name, "FLOAT", [4, 1]) for name in "xz"]
    path = graph(tmp_path / "four.onnx", [total], shapes, [tensor("y", "FLOAT", [4, 1])])
    candidate = as_candidate(path, inputs=[0, 1])
    assert_allclose(candidate.predict(X[:n], "regression"), X[:n, :2].sum(axis=1), atol=1e-6)


def test_an_input_that_no_array_can_be_is_refused(tmp_path: Path) -> None:
    element = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["n", 3])
    kind = onnx.helper.make_sequence_type_proto(element)
    node = onnx.helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
    inputs = [onnx.helper.make_value_info("x", kind)]
    path = graph(tmp_path / "list.onnx", [node], inputs, [tensor("y", "FLOAT", ["n", 3])])
    with pytest.raises(
        CandidateError,
        match=r"its input 'x' has the type seq\(tensor\(float\)\), which arrays do not have: "
        r"convert the model with tensors as inputs\.",
    ):
        as_candidate(path).predict(X, "regression")


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_named(
    share: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "cut.onnx", LinearRegression().fit(SINGLE, Y))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north': onnxruntime cannot open '.*cut\.onnx' \(.*\): the file was cut "
        r"short, is not an ONNX file, or needs another version or provider of onnxruntime\. "
        r"Convert",
    ):
        as_candidate(path).predict(X, "regression", name="north")
    assert capfd.readouterr().err == ""


def test_a_wrong_number_of_classes_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "three.onnx", LogisticRegression().fit(SINGLE, LABELS))
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north' returned shape \(80, 3\); expected \(80, 2\), one column of "
        r"probabilities for each of its classes 'no', 'yes'.*The model is in '.*three\.onnx'\.",
    ):
        as_candidate(path, classes=["no", "yes"]).predict(X, "classification", name="north")


def test_a_file_that_changes_under_a_candidate_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "north.onnx", LinearRegression().fit(SINGLE, Y))
    candidate = as_candidate(path)
    candidate.predict(X, "regression")
    dumped = pickle.dumps(candidate)
    written(path, LinearRegression().fit(SINGLE, -Y))
    with pytest.raises(CandidateError, match=r"is not the file that was used before: its sha256"):
        pickle.loads(dumped).predict(X, "regression")


def test_a_candidate_is_pickled_without_its_session(tmp_path: Path) -> None:
    candidate = as_candidate(written(tmp_path / "north.onnx", LinearRegression().fit(SINGLE, Y)))
    expected = candidate.predict(X, "regression")
    dumped = pickle.dumps(candidate)
    assert len(dumped) < 2000
    assert_array_equal(pickle.loads(dumped).predict(X, "regression"), expected)


def test_the_recipe_has_every_option(tmp_path: Path) -> None:
    path = written(tmp_path / "three.onnx", LogisticRegression().fit(SINGLE, LABELS))
    candidate = OnnxCandidate(
        path,
        output="output_probability",
        classes=CLASSES,
        preprocess=np.asarray,
        inputs=[0, 1, 2],
        cost=2,
        batch_size="64 KiB",
    )
    recipe = candidate.recipe()
    assert recipe is not None
    rebuilt = from_recipe(recipe)
    assert rebuilt.recipe() == recipe
    assert_array_equal(rebuilt.predict(X, "classification"), candidate.predict(X, "classification"))
    assert OnnxCandidate(path, preprocess=lambda rows: rows).recipe() is None


def test_saved_models_come_back_whole(tmp_path: Path) -> None:
    for name, sign in (("up", 1), ("down", -1)):
        written(tmp_path / f"{name}.onnx", LinearRegression().fit(SINGLE, sign * Y))
    files = [tmp_path / "up.onnx", tmp_path / "down.onnx"]
    model = LocalMARegressor(candidates=files, gate="global").fit(X, Y)
    assert list(model.candidate_names_) == ["up", "down"]
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", trust=True)
    assert_array_equal(restored.predict(X), model.predict(X))
    assert str(tmp_path).encode() not in (tmp_path / "model.localma").read_bytes()


def test_a_saved_classifier_comes_back_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "three.onnx", LogisticRegression().fit(SINGLE, LABELS))
    candidates = {
        "network": as_candidate(path, classes=CLASSES),
        "forest": RandomForestClassifier(3, random_state=0).fit(X, LABELS),
    }
    model = LocalMAClassifier(candidates=candidates, gate="global").fit(X, LABELS)
    model.save(tmp_path / "model.localma")
    forest = {"forest": candidates["forest"]}
    restored = load(tmp_path / "model.localma", forest, trust=True)
    assert_array_equal(restored.predict_proba(X), model.predict_proba(X))


FORK = """
import os, sys, time, numpy as np
from localma import as_candidate
candidate = as_candidate(sys.argv[1])
X = np.ones((1000, 3))
before = candidate.predict(X, "regression")
child = os.fork()
if child == 0:
    same = (candidate.predict(X, "regression") == before).all()
    os._exit(0 if same else 1)
for _ in range(600):
    found, code = os.waitpid(child, os.WNOHANG)
    if found:
        raise SystemExit(code)
    time.sleep(0.1)
os.kill(child, 9)
raise SystemExit("the forked process waits for threads that it does not have")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_opens_its_own_session(tmp_path: Path) -> None:
    path = written(tmp_path / "north.onnx", LinearRegression().fit(SINGLE, Y))
    subprocess.run([sys.executable, "-c", FORK, str(path)], check=True)


def test_a_missing_file_is_refused_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"There is no file or folder 'nowhere\.onnx'"):
        OnnxCandidate("nowhere.onnx")
