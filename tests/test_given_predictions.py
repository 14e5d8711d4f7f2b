"""Bare predictions: array, dict or data frame, ordered by name and aligned by label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from localma import LocalMAClassifier, LocalMARegressor, load
from localma.candidates import Pool
from localma.candidates.outputs import OutputNames, names_of_outputs
from localma.errors import CandidateError, InvalidInputError

P = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
FRAMES = pytest.mark.parametrize("kind", ["pandas", "polars"])


def read(predictions: Any, **options: Any) -> tuple[tuple[str, ...], np.ndarray]:
    return Pool.from_predictions(predictions, **{"n_rows": 3, "task": "regression"} | options)


def frame(kind: str, **columns: Any) -> Any:
    return pytest.importorskip(kind).DataFrame(columns)


def test_arrays() -> None:
    names, values = read(P)
    assert names == ("candidate_0", "candidate_1")
    assert_array_equal(values, P)
    names, values = read(P.tolist(), names=["north", "south"])
    assert names == ("north", "south")
    assert_array_equal(values, P)


def test_arrays_with_several_outputs() -> None:
    cube = np.arange(12.0).reshape(3, 2, 2)
    assert_array_equal(read(cube)[1], cube)
    assert_array_equal(read(P[:, :, None])[1], P)


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(["a", "b", "c", "d"]), K=st.integers(1, 3))
def test_dicts_are_ordered_by_name(order: list[str], K: int) -> None:
    cube = np.arange(12.0 * K).reshape(3, 4, K)
    by_name = {name: cube[:, "abcd".index(name)] for name in order}
    names, values = read(by_name, names=list("abcd"))
    assert names == ("a", "b", "c", "d")
    assert_array_equal(values, cube[:, :, 0] if K == 1 else cube)
    assert read(by_name)[0] == tuple(order)


@FRAMES
def test_frames_are_ordered_by_name(kind: str) -> None:
    data = frame(kind, south=P[:, 1], north=P[:, 0])
    assert read(data)[0] == ("south", "north")
    names, values = read(data, names=("north", "south"))
    assert names == ("north", "south")
    assert_array_equal(values, P)


@FRAMES
def test_a_dict_of_frames_holds_several_outputs(kind: str) -> None:
    data = {"north": frame(kind, y1=P[:, 0], y2=P[:, 1])}
    assert_array_equal(read(data)[1], P[:, None, :])


@FRAMES
def test_named_outputs_are_aligned_by_name(kind: str) -> None:
    north, south = frame(kind, u=P[:, 0], v=P[:, 1]), frame(kind, v=P[:, 1], u=P[:, 0])
    bare, cube = P[:, ::-1], np.stack([P, P], axis=1)
    assert_array_equal(read({"north": north, "south": south})[1], cube)
    assert_array_equal(read({"south": south, "north": north})[1], cube[:, :, ::-1])
    names = OutputNames(("u", "v"), "y")
    assert_array_equal(read({"south": south}, outputs=names)[1][:, 0], P)
    assert_array_equal(read({"bare": bare, "s": south}, outputs=names)[1][:, 0], bare)


@FRAMES
def test_outputs_of_other_names_are_refused(kind: str) -> None:
    given = {"a": frame(kind, u=P[:, 0], v=P[:, 1]), "b": frame(kind, u=P[:, 0], w=P[:, 1])}
    words = (
        r"^The outputs of predictions of candidate 'b' are named 'u', 'w', and those of "
        r"predictions of candidate 'a' 'u', 'v'\. Named outputs are matched by name: rename "
        r"the columns, or pass an array with its columns in the order 'u', 'v'\.$"
    )
    with pytest.raises(InvalidInputError, match=words):
        read(given)
    with pytest.raises(InvalidInputError, match=r"named 'u', 'v', and those of y 'u', 'w', 'z'\."):
        read(given, outputs=OutputNames(("u", "w", "z"), "y"))


def test_names_that_are_numbers_or_of_one_column_say_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    given = {"a": pandas.DataFrame(P), "b": pandas.DataFrame(P, columns=[1, 0])}
    assert_array_equal(read(given)[1], np.stack([P, P], axis=1))
    single = {"a": frame("pandas", rent=P[:, 0]), "b": frame("pandas", price=P[:, 1])}
    assert_array_equal(read(single)[1], P)


def test_an_output_named_twice_is_refused() -> None:
    twice = pytest.importorskip("pandas").DataFrame(P, columns=["u", "u"])
    with pytest.raises(InvalidInputError, match=r"candidate 'a' .*'u' occurs more than once: ren"):
        read({"a": twice})


class TestNamedOutputsOfAModel:
    """Frames with the outputs in any order, at fit and at predict."""

    @pytest.fixture(params=["pandas", "polars"])
    def kind(self, request: Any) -> str:
        pytest.importorskip(request.param)
        return str(request.param)

    @pytest.fixture
    def numbers(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(0)
        Y = random.normal(loc=[0.0, 50.0], size=(60, 2))
        said = {
            name: Y + s * random.normal(size=Y.shape) for name, s in {"a": 0.5, "b": 0.1}.items()
        }
        return {"X": random.normal(size=(60, 2)), "Y": Y, **said}

    def swapped(self, kind: str, values: np.ndarray) -> Any:
        return frame(kind, v=values[:, 1], u=values[:, 0])

    def test_the_order_is_that_of_y(self, kind: str, numbers: Any, tmp_path: Any) -> None:
        X, Y, a, b = numbers.values()
        plain = LocalMARegressor(gate="global").fit(X, Y, predictions={"a": a, "b": b})
        assert plain.output_names_ is None
        y = frame(kind, u=Y[:, 0], v=Y[:, 1])
        given = {"a": self.swapped(kind, a), "b": self.swapped(kind, b)}
        model = LocalMARegressor(gate="global").fit(X, y, predictions=given)
        assert model.output_names_ == ("u", "v")
        assert_array_equal(model.global_weights_, plain.global_weights_)
        expected = plain.predict(X, predictions={"a": a, "b": b})
        assert_array_equal(model.predict(X, predictions=given), expected)
        assert_array_equal(model.predict(X, predictions={"a": a, "b": given["b"]}), expected)
        score = plain.score(X, Y, predictions={"a": a, "b": b})
        assert model.score(X, self.swapped(kind, Y), predictions=given) == pytest.approx(score)
        model.save(tmp_path / "m.localma")
        again = load(tmp_path / "m.localma", candidates={})
        assert again.output_names_ == ("u", "v")
        assert_array_equal(again.predict(X, predictions=given), expected)

    def test_or_that_of_the_first_frame(self, kind: str, numbers: Any) -> None:
        X, Y, a, b = numbers.values()
        given = {"a": frame(kind, u=a[:, 0], v=a[:, 1]), "b": self.swapped(kind, b)}
        model = LocalMARegressor(gate="global").fit(X, Y, predictions=given)
        assert model.output_names_ == ("u", "v")
        expected = model.predict(X, predictions={"a": a, "b": b})
        both = {"a": self.swapped(kind, a), "b": given["b"]}
        assert_array_equal(model.predict(X, predictions=both), expected)

    def test_others_at_predict_are_refused(self, kind: str, numbers: Any) -> None:
        X, Y, a, b = numbers.values()
        model = LocalMARegressor(gate="global")
        model.fit(X, frame(kind, u=Y[:, 0], v=Y[:, 1]), predictions={"a": a, "b": b})
        other = {"a": frame(kind, u=a[:, 0], w=a[:, 1]), "b": b}
        with pytest.raises(InvalidInputError, match=r"named 'u', 'w', and those of the fit 'u', "):
            model.predict(X, predictions=other)

    def test_candidates_that_return_frames(self, kind: str, numbers: Any) -> None:
        _, Y, a, b = numbers.values()
        pool = {
            "a": lambda X: frame(kind, u=X[:, 0], v=X[:, 1]),
            "b": lambda X: frame(kind, v=X[:, 3], u=X[:, 2]),
        }
        data = np.column_stack([a, b])
        plain = LocalMARegressor(gate="global").fit(data, Y, predictions={"a": a, "b": b})
        backwards = Y[:, ::-1]
        model = LocalMARegressor(pool, gate="global").fit(data, Y)
        assert model.output_names_ == ("u", "v")
        assert_array_equal(model.global_weights_, plain.global_weights_)
        model.fit(data, self.swapped(kind, Y))
        assert model.output_names_ == ("v", "u")
        assert_array_equal(model.candidate_predictions(data)[:, 1], b[:, ::-1])
        np.testing.assert_allclose(model.predict(data), backwards, atol=0.5)
        with pytest.raises(CandidateError, match=r"of candidate 'a' are named 'u', 'v', and .* y "):
            model.fit(data, frame(kind, u=Y[:, 0], w=Y[:, 1]))


@pytest.mark.parametrize(
    ("predictions", "options", "words"),
    [
        (
            P[:2],
            {},
            r"predictions must have the rows of X in the same order; X has 3 rows and pred",
        ),
        ({"a": P[:2, 0]}, {}, r"predictions of candidate 'a' must have the rows of X in the same "),
        (
            P[:, 0],
            {},
            r"predictions must have shape \(n, M\) or \(n, M, K\); received \(3,\): make",
        ),
        ([[1.0], [1.0, 2.0], [3.0]], {}, r"received rows of unequal length .*: make one column"),
        (3.0, {}, r"predictions must be an array, a dict from name to array or a data frame; rec"),
        (None, {}, r"predictions must be an array.*received NoneType\."),
        ({}, {}, r"predictions must hold at least one candidate; received none\."),
        ({1: P[:, 0]}, {}, r"Names of candidates must be strings that are not empty; received 1"),
        (
            P,
            {"names": ["a", "b", "c"]},
            r"predictions must have one column for each of the 3 candidates 'a', 'b', 'c'; "
            r"received 2 columns\.",
        ),
        (
            {"north": P[:, 0]},
            {"names": ["north", "south"]},
            r"predictions must have every candidate; without predictions: 'south'\. Add the "
            r"predictions of these candidates, or fit again without them\.",
        ),
        (
            {"north": P[:, 0], "suoth": P[:, 1]},
            {"names": ["north", "south"]},
            r"Unknown candidate 'suoth'; did you mean 'south'\?",
        ),
        (P, {"task": "rank"}, r"task must be 'regression' or 'classification'; received 'rank'\."),
        (P, {"task": "classification"}, r"Bare predictions of probabilities need the classes of"),
    ],
)
def test_bad_predictions_are_refused(predictions: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        read(predictions, **options)


@pytest.mark.parametrize(
    ("predictions", "words"),
    [
        (P * [1.0, np.nan], r"Candidate 'candidate_1' returned NaN in 3 of the 3 rows"),
        ({"a": ["x", "y", "z"]}, r"Candidate 'a' returned values of dtype <U1"),
        (
            {"a": np.zeros((3, 1, 1))},
            r"Candidate 'a' returned shape \(3, 1, 1\); expected \(3,\) or",
        ),
    ],
)
def test_bad_values_are_refused_by_name(predictions: Any, words: str) -> None:
    with pytest.raises(CandidateError, match=words):
        read(predictions)


def test_outputs_must_agree() -> None:
    words = r"candidate 'a' has 1 and candidate 'b' has 2\. Remove one of them"
    with pytest.raises(InvalidInputError, match=words):
        read({"a": P[:, 0], "b": P})


# --- classification ----------------------------------------------------------------------------

PROBABILITIES = np.array([[[0.9, 0.1]], [[0.2, 0.8]], [[0.5, 0.5]]])


def classify(predictions: Any, classes: Any = ("no", "yes"), **options: Any) -> np.ndarray:
    return read(predictions, task="classification", classes=list(classes), **options)[1]


def test_probabilities_of_all_or_of_the_second_class() -> None:
    assert_array_equal(classify(PROBABILITIES), PROBABILITIES)
    np.testing.assert_allclose(classify(PROBABILITIES[:, :, 1]), PROBABILITIES, rtol=1e-12)
    np.testing.assert_allclose(classify({"a": PROBABILITIES[:, 0, 1]}), PROBABILITIES, rtol=1e-12)


def test_the_last_axis_must_be_the_classes() -> None:
    words = r"must have the 3 classes 'a', 'b', 'c'; received 2\..*with the classes as columns"
    with pytest.raises(InvalidInputError, match=words):
        classify(PROBABILITIES, classes="abc")
    with pytest.raises(CandidateError, match=r"expected \(3, 3\), one column of probabilities"):
        classify({"a": PROBABILITIES[:, 0]}, classes="abc")


@FRAMES
@pytest.mark.parametrize("labels", [("ant", "bee", "cat"), (0, 1, 2)])
def test_a_class_that_the_sample_lacks_is_known_by_its_column(kind: str, labels: Any) -> None:
    P = {"a": frame(kind, **{str(label): np.full(6, 1 / 3) for label in labels})}
    X, y = np.arange(6.0)[:, None], np.array([labels[0], labels[2]] * 3)
    model = LocalMAClassifier(gate="global").fit(X, y, predictions=P)
    assert model.classes_.tolist() == list(labels)
    np.testing.assert_allclose(model.predict_proba(X, P), 1 / 3)


@FRAMES
def test_a_column_that_cannot_be_a_class_is_refused_by_its_name(kind: str) -> None:
    P = {"a": frame(kind, **{"0": np.full(4, 0.5), "1": np.full(4, 0.5), "id": np.zeros(4)})}
    with pytest.raises(InvalidInputError, match=r"'id', which is not among the classes 0, 1"):
        LocalMAClassifier(gate="global").fit(np.zeros((4, 1)), [0, 1, 0, 1], predictions=P)


@FRAMES
def test_frames_are_aligned_by_label(kind: str) -> None:
    swapped = {"a": frame(kind, yes=PROBABILITIES[:, 0, 1], no=PROBABILITIES[:, 0, 0])}
    assert_array_equal(classify(swapped), PROBABILITIES)
    numbers = {"a": frame(kind, **{"1": PROBABILITIES[:, 0, 1], "0": PROBABILITIES[:, 0, 0]})}
    assert_array_equal(classify(numbers, classes=[0, 1]), PROBABILITIES)


@FRAMES
def test_a_class_without_a_column_is_zero_with_one_warning(kind: str) -> None:
    half = np.full(3, 0.5)
    given = {"a": frame(kind, yes=half, no=half), "b": frame(kind, maybe=half, no=half)}
    with pytest.warns(UserWarning, match="does not know") as caught:
        values = classify(given, classes=["maybe", "no", "yes"])
    assert [str(w.message) for w in caught] == [
        "Candidate 'a' does not know the class 'maybe'; candidate 'b' does not know the class "
        "'yes': a class that a candidate does not know gets probability zero from it."
    ]
    assert_array_equal(values[0], [[0.0, 0.5, 0.5], [0.5, 0.5, 0.0]])


@FRAMES
def test_a_column_that_is_no_class_is_refused(kind: str) -> None:
    given = {"a": frame(kind, p_no=np.full(3, 0.5), yes=np.full(3, 0.5))}
    with pytest.raises(
        InvalidInputError,
        match=r"predictions of candidate 'a' have a column 'p_no', which is not among the classes "
        r"'no', 'yes': name the columns after the classes\.",
    ):
        classify(given)


@FRAMES
def test_a_frame_of_two_classes_holds_the_probability_of_the_second(kind: str) -> None:
    given = frame(kind, south=PROBABILITIES[:, 0, 0], north=PROBABILITIES[:, 0, 1])
    values = classify(given, names=["north", "south"])
    np.testing.assert_allclose(values[:, 0], PROBABILITIES[:, 0], rtol=1e-12)


def test_names_that_nobody_gave_are_none():
    polars = pytest.importorskip("polars")
    values = np.arange(6.0).reshape(3, 2)
    assert names_of_outputs(polars.DataFrame(values), "y") is None
    assert names_of_outputs(polars.DataFrame(values, schema=["0", "1"]), "y") is None
    assert names_of_outputs(polars.DataFrame(values, schema=["column_1", "column_0"]), "y")
