"""Every kind of candidate keeps the same promises."""

from __future__ import annotations

import atexit
import copy
import json
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from localma.candidates import (
    Cached,
    Candidate,
    Column,
    CrossFitted,
    EstimatorCandidate,
    FunctionCandidate,
    HttpCandidate,
    OnnxCandidate,
    Recipe,
    SkopsCandidate,
    TimmCandidate,
    TorchCandidate,
    TransformersCandidate,
    as_candidate,
    from_recipe,
)
from localma.candidates.outputs import OutputNames
from localma.errors import CandidateError, FileFormatError, InvalidInputError
from tests.loopback import Service, running
from tests.tiny_candidates import ARCHITECTURE, write_image_weights, write_text_classifier
from tests.tiny_models import as_images, as_texts

NAMES = ["a", "b", "c", "p", "q"]  # three features, a probability, and one minus it
FEATURES = [0, 1, 2]
random = np.random.default_rng(0)
DATA = np.column_stack([random.normal(size=(40, 3)), random.uniform(size=40)])
DATA = np.column_stack([DATA, 1.0 - DATA[:, 3]])
TARGET = DATA[:, 0] + DATA[:, 1] ** 2
LABEL = np.array(["no", "yes"])[(DATA[:, 0] > 0).astype(int)]
THREE = np.array(["low", "mid", "top"])[np.digitize(DATA[:, 0], [-0.5, 0.5])]


def contain(kind: str, values: np.ndarray, names: list[str]) -> Any:
    if kind == "numpy":
        return values
    module = pytest.importorskip(kind)
    return module.DataFrame({name: values[:, m] for m, name in enumerate(names)})


def features(kind: str) -> Any:
    return contain(kind, DATA[:, :3], NAMES[:3])


def key(kind: str, name: str) -> str | int:
    return NAMES.index(name) if kind == "numpy" else name


def values_of(X: Any) -> np.ndarray:
    return np.asarray(X)


def estimator(model: Any, y: np.ndarray) -> Callable[[str], Candidate]:
    """Fitted on the features alone: frames are cut by name, arrays by stated inputs."""

    def make(kind: str) -> Candidate:
        fitted = copy.deepcopy(model).fit(features(kind), y)
        return as_candidate(fitted, inputs=FEATURES if kind == "numpy" else None)

    return make


def frozen(kind: str) -> Candidate:
    fitted = FrozenEstimator(LinearRegression().fit(features(kind), TARGET))
    return as_candidate(fitted, inputs=FEATURES if kind == "numpy" else None)


def crossfitted(model: Any, y: np.ndarray, task: Any) -> Callable[[str], Candidate]:
    def make(kind: str) -> Candidate:
        own = CrossFitted(model, inputs=[key(kind, name) for name in NAMES[:3]])
        return own.fit_out_of_fold(contain(kind, DATA, NAMES), y, task=task, cv=3)[0]

    return make


def function(function: Any, inputs: list[str], classes: Any = None) -> Callable[[str], Candidate]:
    return lambda kind: as_candidate(
        function, inputs=[key(kind, name) for name in inputs], classes=classes
    )


def softmax_of_three(X: Any) -> np.ndarray:
    powers = np.exp(values_of(X))
    return powers / powers.sum(axis=1, keepdims=True)


FOLDER = tempfile.TemporaryDirectory()
THREE_CLASSES = ["low", "mid", "top"]


def path_of(name: str) -> Path:
    return Path(FOLDER.name) / name


def feature_columns(kind: str) -> list[str | int]:
    return [key(kind, name) for name in NAMES[:3]]


def network(outputs: int) -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs))


def torch_module(outputs: int, **options: Any) -> Callable[[str], Candidate]:
    return lambda kind: TorchCandidate(network(outputs), inputs=feature_columns(kind), **options)


def torch_file(kind: str) -> Candidate:
    torch = pytest.importorskip("torch")
    rows = {0: torch.export.Dim.AUTO}
    program = torch.export.export(network(2), (torch.zeros(4, 3),), dynamic_shapes=(rows,))
    torch.export.save(program, path_of("network.pt2"))
    return TorchCandidate(path_of("network.pt2"), inputs=feature_columns(kind))


def onnx_file(model: Any, y: np.ndarray, **options: Any) -> Callable[[str], Candidate]:
    def make(kind: str) -> Candidate:
        pytest.importorskip("onnxruntime")
        convert = pytest.importorskip("skl2onnx").to_onnx
        path = path_of(f"{type(model).__name__}.onnx")
        fitted = copy.deepcopy(model).fit(DATA[:, :3], y)
        path.write_bytes(convert(fitted, DATA[:1, :3].astype(np.float32)).SerializeToString())
        return OnnxCandidate(path, inputs=feature_columns(kind), **options)

    return make


def skops_file(model: Any, y: np.ndarray) -> Callable[[str], Candidate]:
    def make(kind: str) -> Candidate:
        path = path_of(f"{type(model).__name__}_{kind}.skops")
        fitted = copy.deepcopy(model).fit(features(kind), y)
        pytest.importorskip("skops.io").dump(fitted, path)
        return SkopsCandidate(path, inputs=FEATURES if kind == "numpy" else None)

    return make


@cache
def web_service() -> str:
    """A server on loopback that adds up each row, until the process ends."""
    service = running(Service())
    atexit.register(service.__exit__, None, None, None)
    return service.__enter__().url


def web_address(kind: str) -> Candidate:
    return HttpCandidate(web_service(), inputs=feature_columns(kind), batch_size=5, retries=0)


def features_as_texts(X: Any) -> list[str]:
    return as_texts(values_of(X)[:, :3])


def features_as_images(X: Any) -> np.ndarray:
    return as_images(values_of(X)[:, :3])


def text_folder(kind: str) -> Candidate:
    pytest.importorskip("transformers")
    folder = write_text_classifier(path_of(f"texts_{kind}"), THREE_CLASSES, length=64)
    return TransformersCandidate(folder, inputs=features_as_texts)


def image_weights(kind: str) -> Candidate:
    if find_spec("timm") is None:
        pytest.skip("needs timm, of the extra vision")
    path = write_image_weights(path_of(f"images_{kind}.safetensors"))
    options = {"classes": THREE_CLASSES, "size": 32, "inputs": features_as_images}
    return TimmCandidate(ARCHITECTURE, path, **options)


@dataclass(frozen=True)
class Case:
    make: Callable[[str], Candidate]
    task: Any = "regression"
    shape: tuple[int, ...] = ()
    rounding: float = 1e-12  # networks compute in single precision


REGRESSION = "regression"
CLASSES = "classification"
TWO_TARGETS = np.column_stack([TARGET, -TARGET])
CASES = {
    "lambda": Case(function(lambda X: values_of(X)[:, 0] * 2, ["b"])),
    "function of one column": Case(function(np.ravel, ["c"])),
    "function returning (n, 1)": Case(function(values_of, ["c"])),
    "function with two outputs": Case(function(values_of, ["a", "b"]), shape=(2,)),
    "linear": Case(estimator(LinearRegression(), TARGET)),
    "forest": Case(estimator(RandomForestRegressor(5, random_state=0), TARGET)),
    "pipeline": Case(estimator(make_pipeline(StandardScaler(), LinearRegression()), TARGET)),
    "frozen": Case(frozen),
    "two outputs": Case(estimator(LinearRegression(), TWO_TARGETS), shape=(2,)),
    "column": Case(lambda kind: Column(key(kind, "p"))),
    "column by position": Case(lambda kind: Column(-2)),
    "two columns": Case(lambda kind: Column([key(kind, "p"), key(kind, "a")]), shape=(2,)),
    "crossfitted": Case(crossfitted(LinearRegression(), TARGET, REGRESSION)),
    "logistic": Case(estimator(LogisticRegression(), THREE), CLASSES, (3,)),
    "forest classifier": Case(
        estimator(RandomForestClassifier(5, random_state=0), LABEL), CLASSES, (2,)
    ),
    "hard labels": Case(estimator(RidgeClassifier(), THREE), CLASSES, (3,)),
    "frozen classifier": Case(
        lambda kind: as_candidate(
            FrozenEstimator(LogisticRegression().fit(features(kind), THREE)),
            inputs=FEATURES if kind == "numpy" else None,
        ),
        CLASSES,
        (3,),
    ),
    "pipeline classifier": Case(
        estimator(make_pipeline(StandardScaler(), LogisticRegression()), LABEL), CLASSES, (2,)
    ),
    "function of classes": Case(
        function(softmax_of_three, ["a", "b", "c"], ["x", "y", "z"]), CLASSES, (3,)
    ),
    "function of the second class": Case(function(np.ravel, ["p"], ["no", "yes"]), CLASSES, (2,)),
    "column of the second class": Case(
        lambda kind: Column(key(kind, "p"), classes=["no", "yes"]), CLASSES, (2,)
    ),
    "column per class": Case(
        lambda kind: Column({"yes": key(kind, "p"), "no": key(kind, "q")}), CLASSES, (2,)
    ),
    "crossfitted classifier": Case(
        crossfitted(LogisticRegression(), THREE, CLASSES), CLASSES, (3,)
    ),
    "torch module": Case(torch_module(1), rounding=1e-5),
    "torch logits": Case(
        torch_module(3, classes=THREE_CLASSES, activation="softmax", temperature=2.0),
        CLASSES,
        (3,),
        rounding=1e-5,
    ),
    "torch logit of the second class": Case(
        torch_module(1, classes=["no", "yes"], activation="sigmoid"), CLASSES, (2,), rounding=1e-5
    ),
    "torch file": Case(torch_file, shape=(2,), rounding=1e-5),
    "onnx file": Case(onnx_file(LinearRegression(), TARGET), rounding=1e-5),
    "onnx classifier": Case(
        onnx_file(LogisticRegression(), THREE, classes=THREE_CLASSES), CLASSES, (3,), rounding=1e-5
    ),
    "web address": Case(web_address),
    "transformers folder": Case(text_folder, CLASSES, (3,), rounding=1e-4),
    "timm weights": Case(image_weights, CLASSES, (3,), rounding=1e-4),
    "skops file": Case(skops_file(LinearRegression(), TARGET)),
    "skops classifier": Case(skops_file(LogisticRegression(), THREE), CLASSES, (3,)),
}
# Made once for the whole suite, which a candidate that kept state would not survive.
CASES = {name: replace(case, make=cache(case.make)) for name, case in CASES.items()}
KINDS = ["numpy", "pandas", "polars"]
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_case
@every_kind
@pytest.mark.parametrize("n", [1, 2, 7])
def test_shape_and_dtype(case: Case, kind: str, n: int) -> None:
    predictions = case.make(kind).predict(contain(kind, DATA[:n], NAMES), case.task)
    assert predictions.shape == (n, *case.shape)
    assert predictions.dtype == np.float64
    if case.task == CLASSES:
        assert_allclose(predictions.sum(axis=1), 1.0, atol=case.rounding)


@every_case
@every_kind
def test_batches_do_not_change_the_predictions(case: Case, kind: str) -> None:
    X = contain(kind, DATA[:7], NAMES)
    candidate = case.make(kind)
    whole = candidate.predict(X, case.task)
    for size in (1, 3, 7, 100):
        batched = copy.copy(candidate)
        batched.batch_size = size
        assert_allclose(
            batched.predict(X, case.task), whole, rtol=case.rounding, atol=case.rounding / 100
        )


@every_case
@every_kind
def test_predictions_follow_the_order_of_rows(case: Case, kind: str) -> None:
    order = np.random.default_rng(1).permutation(len(DATA))
    candidate = case.make(kind)
    straight = candidate.predict(contain(kind, DATA, NAMES), case.task)
    shuffled = candidate.predict(contain(kind, DATA[order], NAMES), case.task)
    assert_allclose(shuffled, straight[order], rtol=case.rounding, atol=case.rounding / 100)


@every_case
@every_kind
def test_neither_the_model_nor_x_is_changed(case: Case, kind: str) -> None:
    candidate = case.make(kind)
    model = getattr(candidate, "model", None)
    before = pickle.dumps(model)
    X = contain(kind, DATA.copy(), NAMES)
    candidate.predict(X, case.task)
    assert getattr(candidate, "model", None) is model
    assert pickle.dumps(model) == before
    assert_array_equal(values_of(X), DATA)


@every_case
def test_frames_and_arrays_agree(case: Case) -> None:
    by_array = case.make("numpy").predict(DATA, case.task)
    for kind in KINDS[1:]:
        by_frame = case.make(kind).predict(contain(kind, DATA, NAMES), case.task)
        assert_allclose(by_frame, by_array, rtol=1e-6, atol=1e-9)


@every_case
def test_candidates_are_pickled_with_their_models(case: Case) -> None:
    candidate = case.make("numpy")
    if getattr(getattr(candidate, "function", None), "__name__", "") == "<lambda>":
        pytest.skip("a lambda cannot be pickled")
    restored = pickle.loads(pickle.dumps(candidate))
    assert_array_equal(restored.predict(DATA, case.task), candidate.predict(DATA, case.task))


@every_case
def test_recipes_are_json_and_rebuild_the_candidate(case: Case) -> None:
    candidate = case.make("numpy")
    recipe = candidate.recipe()
    if recipe is None:
        assert not isinstance(candidate, Column)
        assert not (isinstance(candidate, FunctionCandidate) and candidate.function is np.ravel)
        return
    rebuilt = from_recipe(Recipe.from_json(json.loads(json.dumps(recipe.to_json()))))
    assert type(rebuilt) is type(candidate)
    assert recipe.needs_trust is not isinstance(candidate, Column)
    assert rebuilt.recipe() == recipe
    assert_array_equal(rebuilt.predict(DATA, case.task), candidate.predict(DATA, case.task))


@every_case
def test_repr_names_the_kind(case: Case) -> None:
    candidate = case.make("numpy")
    assert repr(candidate) == f"{type(candidate).__name__}({candidate.label!r})"


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 9),
    outputs=st.integers(1, 4),
    batch_size=st.one_of(st.none(), st.integers(1, 10)),
    flat=st.booleans(),
)
def test_shapes_of_functions(n: int, outputs: int, batch_size: int | None, flat: bool) -> None:
    def columns(X: np.ndarray) -> np.ndarray:
        return X[:, 0] if flat else X[:, :outputs]

    X = np.arange(n * 4.0).reshape(n, 4)
    predictions = as_candidate(columns, batch_size=batch_size).predict(X, "regression")
    single = flat or outputs == 1
    assert_array_equal(predictions, X[:, 0] if single else X[:, :outputs])


@settings(max_examples=60, deadline=None)
@given(shape=st.lists(st.integers(0, 4), min_size=0, max_size=3).map(tuple), n=st.integers(1, 4))
def test_every_other_shape_is_refused(shape: tuple[int, ...], n: int) -> None:
    good = shape == (n,) or (len(shape) == 2 and shape[0] == n and shape[1] > 0)
    candidate = as_candidate(lambda X: np.ones(shape))
    if good:
        assert candidate.predict(np.zeros((n, 1)), "regression").shape[0] == n
        return
    with pytest.raises(CandidateError) as caught:
        candidate.predict(np.zeros((n, 1)), "regression", name="north")
    assert str(caught.value) == (
        f"Candidate 'north' returned shape {shape}; expected ({n},) or ({n}, 1), or ({n}, K) "
        "for K outputs."
    )


# --- what a candidate may be -------------------------------------------------------------------


def test_functions_estimators_and_candidates_are_told_apart() -> None:
    fitted = LinearRegression().fit(DATA, TARGET)
    column = Column("p")
    assert isinstance(as_candidate(np.ravel), FunctionCandidate)
    assert isinstance(as_candidate(fitted), EstimatorCandidate)
    assert isinstance(as_candidate(fitted.predict), FunctionCandidate)
    assert as_candidate(column) is column


def test_a_candidate_passes_through_without_options_only() -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"Column\('p'\) is a candidate already; state inputs, classes, cost and batch_size "
        r"where you create it\.",
    ):
        as_candidate(Column("p"), cost=2.0)


def test_an_unfitted_estimator_is_refused() -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"A candidate must be fitted already, and this LinearRegression is not: "
        r"wrap it in CrossFitted\(\.\.\.\) or fit it\.",
    ) as caught:
        as_candidate(LinearRegression())
    assert isinstance(caught.value.__cause__, NotFittedError)


@pytest.mark.parametrize(
    "unfitted",
    [make_pipeline(StandardScaler(), LinearRegression()), FrozenEstimator(LinearRegression())],
)
def test_unfitted_wrappers_are_refused(unfitted: BaseEstimator) -> None:
    with pytest.raises(InvalidInputError, match="is not: wrap it in CrossFitted"):
        as_candidate(unfitted)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            LinearRegression,
            r"A candidate is a fitted model, and LinearRegression is a class: pass a fitted "
            r"instance, or CrossFitted\(LinearRegression\(\)\)\.",
        ),
        (
            "north",
            r"received the string 'north': for a column of X that holds predictions write "
            r"Column\('north'\)\.",
        ),
        (None, r"a function of X, a Column or a CrossFitted; received NoneType: for bare"),
        (np.zeros(3), r"received ndarray: for bare predictions pass fit\(X, y, predictions="),
    ],
)
def test_what_is_no_model_is_refused(model: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        as_candidate(model)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cost": -1.0}, r"cost must be a finite number, zero or more; received -1\.0\."),
        ({"cost": np.nan}, r"cost must be a finite number, zero or more; received nan\."),
        ({"cost": "dear"}, r"cost must be a finite number, zero or more; received 'dear'\."),
        (
            {"batch_size": 0},
            r"batch_size must be None, a whole number of one .*; received 0",
        ),
        ({"batch_size": 2.5}, r"batch_size must be None, a whole number.*received 2\.5"),
        ({"inputs": [1.5]}, r"inputs must be a list of columns \(names or integer positions\)"),
        ({"inputs": [True, False]}, r"a function of X; received \[True, False\]\."),
        ({"classes": "yes"}, r"classes must be a list of labels, all strings or all numbers; "),
        ({"classes": []}, r"classes must be a list of labels.*received \[\]"),
        ({"classes": ["a", "a"]}, r"classes must name each label once; received \['a', 'a'\]"),
        ({"classes": [0, "a"]}, r"classes must be all strings or all numbers; received \[0, 'a'"),
        ({"classes": [None, "a"]}, r"all strings or all numbers; received \[None, 'a'\]"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        as_candidate(np.ravel, **options)


def test_labels_of_any_sequence_are_understood() -> None:
    words = np.array(["no", "yes"], dtype=object)
    numbers = np.array([0, 1], dtype=object)
    assert as_candidate(np.ravel, classes=words).classes.dtype.kind == "U"
    assert as_candidate(np.ravel, classes=numbers).classes.dtype.kind == "i"


# --- inputs of its own -------------------------------------------------------------------------


@every_kind
def test_inputs_by_name_position_and_function(kind: str) -> None:
    X = contain(kind, DATA, NAMES)
    take = {"by position": [1, -2], "by function": lambda X: values_of(X)[:, [1, 3]]}
    if kind != "numpy":
        take["by name"] = ["b", "p"]
    for inputs in take.values():
        candidate = as_candidate(lambda X: values_of(X).sum(axis=1), inputs=inputs)
        assert_allclose(candidate.predict(X, "regression"), DATA[:, 1] + DATA[:, 3])


def test_one_column_need_not_be_a_list() -> None:
    assert as_candidate(np.ravel, inputs=2).inputs == [2]
    assert as_candidate(np.ravel, inputs="p").inputs == ["p"]


@every_kind
def test_inputs_keep_the_kind_of_frame(kind: str) -> None:
    X = contain(kind, DATA, NAMES)
    seen: list[Any] = []
    candidate = as_candidate(lambda X: seen.append(X) or np.zeros(len(X)), inputs=[2, 0])
    candidate.predict(X, "regression")
    assert type(seen[0]) is type(X)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_estimator_gets_its_fitted_columns_in_their_order(kind: str) -> None:
    fitted = LinearRegression().fit(features(kind), TARGET)
    X = contain(kind, DATA[:, ::-1], NAMES[::-1])
    assert_allclose(
        as_candidate(fitted).predict(X, "regression"), fitted.predict(features(kind)), rtol=1e-9
    )


def test_x_is_passed_untouched() -> None:
    texts = ["a text", "another text"]
    seen: list[Any] = []
    candidate = as_candidate(lambda X: seen.append(X) or [len(text) for text in X])
    assert candidate.predict(texts, "regression").tolist() == [6.0, 12.0]
    assert seen[0] is texts


def test_missing_inputs_are_named_with_the_nearest() -> None:
    X = contain("pandas", DATA, ["rent", "area", "rooms", "guess", "other"])
    with pytest.raises(
        CandidateError, match=r"Candidate 'north': X has no column 'room'; did you mean 'rooms'\?"
    ) as caught:
        as_candidate(np.ravel, inputs=["room"]).predict(X, "regression", name="north")
    assert isinstance(caught.value.__cause__, InvalidInputError)


# --- what a candidate may return ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (np.zeros((3, 1, 1)), r"Candidate 'north' returned shape \(3, 1, 1\); expected \(3,\) or"),
        (np.zeros(2), r"Candidate 'north' returned shape \(2,\); expected \(3,\) or \(3, 1\)"),
        (1.0, r"Candidate 'north' returned shape \(\); expected \(3,\)"),
        (
            [1.0, np.nan, np.nan],
            r"Candidate 'north' returned NaN in 2 of the 3 rows it was given, first in row 1; "
            r"predictions must be finite: fill or remove those rows, or remove the candidate",
        ),
        ([[1.0, 2.0], [1.0, -np.inf], [0.0, 0.0]], r"returned infinity in 1 of the 3 rows"),
        (
            ["a", "b", "c"],
            r"Candidate 'north' returned values of dtype <U1, such as .*'a'.*; predictions must be "
            r"real numbers\. Convert them, for example with \.astype\(float\)\.",
        ),
        (np.array([1.0, 2.0, None]), r"returned values of dtype object, such as 1\.0"),
        (np.array([1j, 2, 3]), r"returned values of dtype complex128, such as"),
        (None, r"returned values of dtype object, such as None"),
        (
            [[1.0], [1.0, 2.0], []],
            r"returned a list that cannot be read as an array .* \(.*\); return",
        ),
    ],
)
def test_bad_outputs_are_refused(returned: Any, words: str) -> None:
    candidate = as_candidate(lambda X: returned)
    with pytest.raises(CandidateError, match=words) as caught:
        candidate.predict(np.zeros((3, 1)), "regression", name="north")
    assert caught.value.candidate == "north"


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            np.full((2, 3), 1 / 3),
            r"Candidate 'north' returned shape \(2, 3\); expected \(2, 2\), one column of "
            r"probabilities for each of its classes 'no', 'yes', or \(2,\) for the probability of "
            r"'yes'\.",
        ),
        (
            [[0.5, 0.5], [-0.5, 1.5]],
            r"Candidate 'north' returned -0\.5 as a probability in row 1 of the 2 it was given; "
            r"probabilities lie between 0 and 1: turn scores into probabilities first",
        ),
        ([0.5, 1.2], r"returned 1\.2 as a probability in row 1"),
        (
            [[0.5, 0.5], [0.4, 0.4]],
            r"Candidate 'north' returned probabilities that sum to 0\.8 in row 1 of the 2 it was "
            r"given; over its classes 'no', 'yes' they must sum to one \(within 0\.001\): divide "
            r"each row by its sum\.",
        ),
        ([[0.5, 0.5], [np.nan, 0.5]], r"returned NaN in 1 of the 2 rows"),
        ([0.5, np.inf], r"returned infinity in 1 of the 2 rows"),
    ],
)
def test_bad_probabilities_are_refused(returned: Any, words: str) -> None:
    candidate = as_candidate(lambda X: returned, classes=["no", "yes"])
    with pytest.raises(CandidateError, match=words):
        candidate.predict(np.zeros((2, 1)), "classification", name="north")


def test_rounding_of_probabilities_is_forgiven() -> None:
    returned = np.array([[1.0 + 1e-7, -1e-7], [0.5002, 0.5002]])
    candidate = as_candidate(lambda X: returned, classes=["no", "yes"])
    predictions = candidate.predict(np.zeros((2, 1)), "classification")
    assert predictions.tolist() == [[1.0, 0.0], [0.5002, 0.5002]]
    assert returned[0, 1] == -1e-7


def test_three_classes_need_three_columns() -> None:
    candidate = as_candidate(lambda X: np.ones(len(X)), classes=[1, 2, 3])
    with pytest.raises(CandidateError, match=r"for each of its classes 1, 2, 3\.$"):
        candidate.predict(np.zeros((2, 1)), "classification")


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_returned_frame_is_read_by_label(kind: str) -> None:
    frame = contain(kind, np.array([[0.9, 0.1]]), ["yes", "no"])
    by_label = as_candidate(lambda X: frame, classes=["no", "yes"])
    assert by_label.predict(np.zeros((1, 1)), "classification").tolist() == [[0.1, 0.9]]
    other_names = contain(kind, np.array([[0.9, 0.1]]), ["first", "second"])
    in_order = as_candidate(lambda X: other_names, classes=["no", "yes"])
    assert in_order.predict(np.zeros((1, 1)), "classification").tolist() == [[0.9, 0.1]]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_named_outputs_keep_one_order_over_batches(kind: str) -> None:
    turns = iter(["uv", "vu", "uv", "vu"])

    def either_way(X: Any) -> Any:
        order = next(turns)
        return contain(kind, X[:, ["uv".index(name) for name in order]], [*order])

    candidate = as_candidate(either_way, batch_size=20)
    assert_array_equal(candidate.predict(DATA, "regression"), DATA[:, :2])
    names = OutputNames(("v", "u"), "y")
    assert_array_equal(candidate.predict(DATA, "regression", outputs=names), DATA[:, [1, 0]])


def test_named_outputs_of_an_own_model_are_aligned() -> None:
    pandas = pytest.importorskip("pandas")

    class Named(LinearRegression):
        def predict(self, X: Any) -> Any:
            return pandas.DataFrame(super().predict(X), columns=["u", "v"])

    target, names = DATA[:, :2], OutputNames(("v", "u"), "y")
    how: Any = {"task": "regression", "cv": 3, "outputs": names}
    _, predictions, _ = CrossFitted(Named()).fit_out_of_fold(DATA, target, **how)
    assert_allclose(predictions, target[:, ::-1], atol=1e-9)


def test_a_cache_knows_the_names_of_outputs(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    asked: list[int] = []

    def named(X: Any) -> Any:
        asked.append(len(X))
        return pandas.DataFrame(X[:, :2], columns=["u", "v"])

    def cached() -> Candidate:
        return Cached(named, tmp_path, key="named")

    assert_array_equal(cached().predict(DATA[:30], "regression"), DATA[:30, :2])
    for rows in (30, 40):  # all in the cache, and some of them
        names = OutputNames(("v", "u"), "y")
        values = cached().predict(DATA[:rows], "regression", outputs=names)
        assert_array_equal(values, DATA[:rows, [1, 0]])
        learnt = OutputNames()
        cached().predict(DATA[:rows], "regression", outputs=learnt)
        assert learnt.names == ("u", "v")
    assert asked == [30, 10]


def test_a_candidate_that_raises_is_named_with_its_rows() -> None:
    def fails_late(X: np.ndarray) -> np.ndarray:
        if X[0, 0] >= 4:
            raise ZeroDivisionError("no rent")
        return X[:, 0]

    candidate = as_candidate(fails_late, batch_size=2)
    with pytest.raises(CandidateError) as caught:
        candidate.predict(np.arange(7.0)[:, None], "regression", name="vendor")
    assert str(caught.value) == (
        "Candidate 'vendor' raised ZeroDivisionError on rows 4 to 5 of 7: no rent. A candidate "
        "must predict every row that it receives: fix it, or remove those rows."
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert pickle.loads(pickle.dumps(caught.value)).candidate == "vendor"


def test_batches_must_agree_on_the_outputs() -> None:
    candidate = as_candidate(lambda X: np.zeros((len(X), len(X) + 1)), batch_size=2)
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north' returned a different number of outputs from one batch of rows "
        r"to the next: \[\(2,\), \(3,\)\]; return the same columns for all rows\.",
    ):
        candidate.predict(np.zeros((3, 1)), "regression", name="north")


def test_no_rows_are_refused() -> None:
    with pytest.raises(
        InvalidInputError, match=r"Candidate 'ravel' needs at least one row; X has none\."
    ):
        as_candidate(np.ravel).predict(np.zeros((0, 1)), "regression")


# --- classes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("candidate", [as_candidate(np.ravel), as_candidate(lambda X: X)])
def test_a_function_must_state_its_classes(candidate: Candidate) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"Candidate 'north' is a function\. A function that returns probabilities must "
        r"state its classes: as_candidate\(function, classes=\['no', 'yes'\]\)\.",
    ):
        candidate.predict(DATA, "classification", name="north")


def test_a_column_must_state_its_classes() -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"Candidate 'north' is a column of probabilities that does not state its classes: "
        r"write Column\('p_yes', classes=\['no', 'yes'\]\)",
    ):
        Column("p").check_task("classification", "north")


@pytest.mark.parametrize(
    "candidate", [Column("p", classes=["no", "yes"]), as_candidate(np.ravel, classes=["no", "yes"])]
)
def test_regression_has_no_classes(candidate: Candidate) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"Candidate 'north' states classes \['no', 'yes'\], which a regression does not "
        r"have: leave out classes=, or use LocalMAClassifier\.",
    ):
        candidate.check_task("regression", "north")


def test_a_regressor_cannot_classify_nor_a_classifier_regress() -> None:
    regressor = as_candidate(LinearRegression().fit(DATA, TARGET))
    with pytest.raises(
        InvalidInputError,
        match=r"Candidate 'north' \(LinearRegression\) has no classes_, which a candidate for "
        r"classification needs: pass a fitted classifier, or a function that returns",
    ):
        regressor.check_task("classification", "north")
    classifier = as_candidate(LogisticRegression().fit(DATA, LABEL))
    with pytest.raises(
        InvalidInputError,
        match=r"Candidate 'north' \(LogisticRegression\) is a classifier, and this is a "
        r"regression: use LocalMAClassifier, or pass a function such as lambda X: "
        r"model\.predict_proba\(X\)\[:, 1\]\.",
    ):
        classifier.check_task("regression", "north")


def test_classes_of_a_classifier_can_be_renamed() -> None:
    coded = (LABEL == "yes").astype(int)
    for model in (LogisticRegression(), RidgeClassifier()):
        plain = as_candidate(model.fit(DATA, coded))
        renamed = as_candidate(model, classes=["no", "yes"])
        assert renamed.classes.tolist() == ["no", "yes"]
        assert_array_equal(
            renamed.predict(DATA, "classification"), plain.predict(DATA, "classification")
        )
    with pytest.raises(
        InvalidInputError,
        match=r"classes= must rename the 2 classes of this RidgeClassifier, \[0, 1\], in the same "
        r"order; received \['a', 'b', 'c'\]\.",
    ):
        as_candidate(model, classes=["a", "b", "c"])


def test_any_object_with_probabilities_may_state_its_classes() -> None:
    class Vendor:
        def predict(self, X: Any) -> Any:
            raise AssertionError("probabilities are asked for first")

        def predict_proba(self, X: Any) -> Any:
            return np.tile([0.25, 0.75], (len(X), 1))

    candidate = as_candidate(Vendor(), classes=["no", "yes"])
    assert candidate.predict(DATA[:1], "classification").tolist() == [[0.25, 0.75]]


def test_hard_labels_are_zero_and_one() -> None:
    model = RidgeClassifier().fit(DATA, THREE)
    predictions = as_candidate(model).predict(DATA, "classification")
    assert_array_equal(model.classes_[predictions.argmax(axis=1)], model.predict(DATA))
    assert set(np.unique(predictions)) == {0.0, 1.0}


class Booster:
    """A model that, as those of LightGBM, knows no classes and predicts their probabilities."""

    def __init__(self, K: int) -> None:
        self.K = K

    def predict(self, X: Any) -> Any:
        if self.K == 2:
            return np.full(len(X), 0.75)
        return np.tile([0.5, 0.25, 0.25], (len(X), 1))


def test_predictions_of_a_model_without_classes_may_be_probabilities() -> None:
    for labels in (["no", "yes"], [0, 1], [1, 2]):
        two = as_candidate(Booster(2), classes=labels).predict(DATA[:1], "classification")
        assert two.tolist() == [[0.25, 0.75]]
    three = as_candidate(Booster(3), classes=["a", "b", "c"]).predict(DATA[:1], "classification")
    assert three.tolist() == [[0.5, 0.25, 0.25]]


def test_an_empty_array_of_classes_is_that_of_a_regressor() -> None:
    class Boosted(LinearRegression):
        """As CatBoost's regressors."""

        classes_ = np.array([], dtype=object)

    model = Boosted().fit(DATA, TARGET)
    assert_array_equal(as_candidate(model).predict(DATA, "regression"), model.predict(DATA))
    with pytest.raises(InvalidInputError, match="has no classes_"):
        as_candidate(model).check_task("classification", "north")


def test_a_label_outside_the_classes_is_refused() -> None:
    candidate = as_candidate(LinearRegression().fit(DATA, TARGET), classes=[0, 1])
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north': it predicted the label .*, which is not among its classes "
        r"\[0, 1\]: fit it on the labels",
    ):
        candidate.predict(DATA, "classification", name="north")


def test_labels_of_another_kind_are_outside_the_classes() -> None:
    class Vendor:
        def predict(self, X: Any) -> Any:
            return np.zeros(len(X), dtype=int)

    candidate = as_candidate(Vendor(), classes=["no", "yes"])
    with pytest.raises(CandidateError, match=r"it predicted the label 0, which is not among its"):
        candidate.predict(DATA, "classification")


def test_several_labels_per_row_are_refused() -> None:
    model = RandomForestClassifier(2).fit(DATA, np.column_stack([LABEL, THREE]))
    with pytest.raises(
        InvalidInputError,
        match=r"A candidate must predict one label per row, and this RandomForestClassifier "
        r"predicts 2: make one model for each output\.",
    ):
        as_candidate(model)


# --- columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1.5, True, [], None, ["a", 2.5], {}])
def test_column_takes_columns_only(columns: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"Column takes a column name, an integer position, a glob, a list"
    ):
        Column(columns)


def test_column_rules_about_classes() -> None:
    with pytest.raises(InvalidInputError, match=r"Column takes each column once; received \['a'"):
        Column(["a", "a"])
    with pytest.raises(
        InvalidInputError,
        match=r"Column needs one column per class, or for two classes one column with the "
        r"probability of the second; received 1 for the classes \[1, 2, 3\]\.",
    ):
        Column("p", classes=[1, 2, 3])
    with pytest.raises(
        InvalidInputError,
        match=r"A Column that maps class labels to columns takes no classes=; received classes=",
    ):
        Column({"no": "p"}, classes=["no"])


def test_a_column_of_an_array_that_also_holds_strings() -> None:
    X = np.array([["north", 1.5], ["south", 2.5]], dtype=object)
    assert Column(1).predict(X, "regression").tolist() == [1.5, 2.5]
    with pytest.raises(CandidateError, match=r"values of dtype object, such as 'north'"):
        Column(0).predict(X, "regression")


def test_missing_columns_are_named() -> None:
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'column_7': X has no column at position 7; it has 5 columns, whose "
        r"positions are 0 to 4\.",
    ):
        Column(7).predict(DATA, "regression")
    with pytest.raises(
        CandidateError,
        match=r"X has no column 'p', since a ndarray has no column names: state the column by its "
        r"position, or pass a data frame\.",
    ):
        Column("p").predict(DATA, "regression")
    with pytest.raises(
        CandidateError, match=r"Columns can be picked from an array or data frame of two .*a list"
    ):
        Column(0).predict(["a", "b"], "regression")


def test_a_glob_alone_does_not_predict() -> None:
    with pytest.raises(
        CandidateError,
        match=r"Column\('p\*'\) is a glob, which stands for one candidate per matching column; "
        r"expand the pool on X first\.",
    ):
        Column("p*").predict(contain("pandas", DATA, NAMES), "regression")


# --- recipes -----------------------------------------------------------------------------------


def test_recipe_of_a_function() -> None:
    candidate = as_candidate(np.ravel, inputs=json.loads, cost=3, batch_size=10)
    recipe = candidate.recipe()
    assert recipe.to_json() == {
        "kind": "function",
        "import": "numpy:ravel",
        "inputs": "json:loads",
        "classes": None,
        "cost": 3.0,
        "batch_size": 10,
    }
    assert from_recipe(recipe).inputs is json.loads


def test_a_recipe_names_everything_that_it_follows() -> None:
    candidate = HttpCandidate(
        "https://rent.example/predict", request=json.dumps, response=json.loads, inputs=np.ravel
    )
    recipe = candidate.recipe()
    assert recipe is not None
    functions = ["numpy:ravel", "json:dumps", "json:loads"]
    assert sorted(recipe.sources()) == sorted([*functions, "https://rent.example/predict"])
    column = Column("guess", classes=None).recipe()
    assert column is not None
    assert column.sources() == []
    with pytest.raises(FrozenInstanceError):
        recipe.cost = 2.0  # type: ignore[attr-defined]


def test_what_cannot_be_imported_has_no_recipe() -> None:
    fitted = LinearRegression().fit(DATA, TARGET)
    for model in (lambda X: X, fitted, fitted.predict, CrossFitted(LinearRegression())):
        assert as_candidate(model).recipe() is None
    assert as_candidate(np.ravel, inputs=lambda X: X).recipe() is None


GOOD = {
    "kind": "function",
    "import": "numpy:ravel",
    "inputs": None,
    "classes": None,
    "cost": 1.0,
    "batch_size": None,
}


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"kind": "functio"}, r"Unknown kind of candidate 'functio'; known: .*'function'"),
        ("function", r"Unknown kind of candidate None"),
        ({"kind": "column"}, r"The recipe of a column must have the fields \['classes', 'columns'"),
        (GOOD | {"more": 1}, r"The recipe of a function must have the fields .*'more'"),
        (GOOD | {"import": 3}, r"The field 'import' in the recipe of a function must be str; rec"),
        (GOOD | {"cost": True}, r"The field 'cost' .* must be int or float; received True"),
        (GOOD | {"inputs": 3}, r"The field 'inputs' .* must be list or str or null; received"),
        (GOOD | {"cost": -1.0}, r"cannot be followed: cost must be a finite number"),
        (GOOD | {"import": "numpy"}, r"An import name has the form 'package\.module:name'; rec"),
        (GOOD | {"import": "numpy:nothing"}, r"'numpy:nothing' cannot be imported here .*install"),
        (GOOD | {"import": "nowhere:at_all"}, r"'nowhere:at_all' cannot be imported here"),
        (GOOD | {"inputs": "a"}, r"the form 'package\.module:name'; received 'a'"),
        (GOOD | {"import": "numpy:pi"}, r"FunctionCandidate takes a function; received float\."),
    ],
)
def test_bad_recipes_are_refused(recipe: Any, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        from_recipe(Recipe.from_json(recipe))


@pytest.mark.parametrize("documented", [Candidate, Column, CrossFitted, as_candidate])
def test_the_documentation_says_what_costs_are_for(documented: Any) -> None:
    words = " ".join((documented.__doc__ or "").split())
    assert "Only budgets use it: `budget=` in `predict` and `answer`, and `frontier`." in words


def test_messages_show_no_type_of_numpy() -> None:
    with pytest.raises(InvalidInputError, match=r"received -1\.0\."):
        as_candidate(np.ravel, cost=np.float64(-1.0))
    with pytest.raises(InvalidInputError, match=r"received \[0, 1\.5\]\. Make positions"):
        as_candidate(np.ravel, inputs=[np.int64(0), np.float64(1.5)])
    with pytest.raises(InvalidInputError, match=r"received \['a', True\]\."):
        as_candidate(np.ravel, classes=[np.str_("a"), np.bool_(True)])
    words = as_candidate(lambda X: np.full(len(X), "a (b)"))
    with pytest.raises(CandidateError, match=r"such as 'a \(b\)'; predictions must be"):
        words.predict(DATA, "regression")


@pytest.mark.parametrize("how", ["gradient", "bfloat16", "both"])
def test_tensors_are_read(how: str) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra torch")

    def network(X: Any) -> Any:
        output = torch.tensor([0.5, -2.0]).repeat(len(X) // 2)
        output = output.to(torch.bfloat16) if how != "gradient" else output
        return output.requires_grad_() if how != "bfloat16" else output

    candidate = as_candidate(network)
    assert candidate.predict(DATA[:2], "regression").tolist() == [0.5, -2.0]
