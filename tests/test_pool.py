"""The pool: names, classes, prediction columns, and P in one piece."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import KFold, TimeSeriesSplit
from sklearn.tree import DecisionTreeClassifier

from localma.candidates import Column, CrossFitted, Pool, as_candidate
from localma.errors import CandidateError, InvalidInputError

random = np.random.default_rng(0)
X = random.normal(size=(30, 3))
Y = X[:, 0] - X[:, 1]
LINE = LinearRegression().fit(X, Y)


def north(X: Any) -> np.ndarray:
    return np.asarray(X)[:, 0]


def south(X: Any) -> np.ndarray:
    return -np.asarray(X)[:, 0]


def certain(label: str, classes: list[str]) -> Any:
    """A candidate that is sure of one label."""
    row = np.array([float(label == known) for known in classes])
    return as_candidate(lambda X: np.tile(row, (len(X), 1)), classes=classes)


# --- names -------------------------------------------------------------------------------------


def test_three_forms_of_candidates() -> None:
    by_dict = Pool({"a": north, "b": LINE}, task="regression")
    by_pairs = Pool([("a", north), ("b", LINE)], task="regression")
    by_list = Pool([north, LINE], task="regression")
    assert by_dict.names == by_pairs.names == ("a", "b")
    assert by_list.names == ("north", "linearregression")
    for pool in (by_pairs, by_list):
        assert_array_equal(pool.predict(X), by_dict.predict(X))


def test_names_are_made_up_and_unique() -> None:
    others = [Ridge().fit(X, Y), Ridge(2.0).fit(X, Y), FrozenEstimator(LINE)]
    made = [*others, lambda X: X[:, 0], north, Column(1), Column([0, "b"]), LINE.predict]
    assert Pool([*made, CrossFitted(Ridge())], task="regression").names == (
        "ridge-1",
        "ridge-2",
        "linearregression",
        "function",
        "north",
        "column_1",
        "column_0+b",
        "predict",
        "ridge-3",
    )


def test_costs_stand_in_the_order_of_names() -> None:
    pool = Pool({"a": as_candidate(north, cost=3), "b": south}, task="regression")
    assert pool.costs.tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ({}, r"candidates must hold at least one model; received none: pass for example "),
        ([], r"candidates must hold at least one model; received none: pass for example "),
        (None, r"list of \(name, model\) pairs or a list of models; received NoneType\."),
        (LINE, r"candidates must be a dict from name to model.*received LinearRegression\."),
        ([("a", north), south], r"all \(name, model\) pairs or all models; received 1 pairs among"),
        ([("a", north), ("a", south)], r"Names of candidates must differ; 'a' occurs 2 times"),
        ({3: north}, r"Names of candidates must be strings that are not empty; received 3 \(int\)"),
        ({"": north}, r"must be strings that are not empty; received '' \(str\)"),
        ({"a": None}, r"Candidate 'a': A candidate is a fitted model with a method predict"),
        ({"a": Ridge()}, r"Candidate 'a': .*this Ridge is not: wrap it in CrossFitted"),
    ],
)
def test_bad_candidates_are_refused(candidates: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Pool(candidates, task="regression")


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(
        InvalidInputError, match=r"task must be 'regression' or 'classification'; received 'rank'"
    ):
        Pool([north], task="rank")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (north, north),
        (LINE, LINE),
        (LINE, as_candidate(LINE)),
        (LINE.predict, LINE.predict),
        (Column(1), Column(1)),
        (as_candidate(north, inputs=[0]), as_candidate(north, inputs=[0])),
    ],
)
def test_one_candidate_twice_is_refused(one: Any, same: Any) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"Candidates 'a' and 'b' are the same .*\. Leave one out, or give them different "
        r"inputs=\.",
    ):
        Pool({"a": one, "b": same}, task="regression")


def test_one_model_on_two_inputs_is_two_candidates() -> None:
    one = {"a": as_candidate(north, inputs=[0]), "b": as_candidate(north, inputs=[1]), "c": north}
    assert_array_equal(Pool(one, task="regression").predict(X), X[:, [0, 1, 0]])


def test_a_pool_is_pickled_with_its_models() -> None:
    other = Pool({"a": as_candidate(LINE, inputs=[0, 1, 2]), "b": Column(1)}, task="regression")
    assert_array_equal(pickle.loads(pickle.dumps(other)).predict(X), other.predict(X))


# --- predictions -------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 6), M=st.integers(1, 5), K=st.integers(1, 4))
def test_shape_of_predictions(n: int, M: int, K: int) -> None:
    rows = np.arange(n * K, dtype=float).reshape(n, K)
    pool = Pool([(f"c{m}", lambda X, m=m: X + m) for m in range(M)], task="regression")
    P = pool.predict(rows)
    assert P.shape == ((n, M) if K == 1 else (n, M, K))
    for m in range(M):
        assert_array_equal(P[:, m], (rows + m).squeeze(axis=1) if K == 1 else rows + m)


def test_candidates_must_agree_on_the_outputs() -> None:
    pool = Pool({"a": north, "b": lambda X: X[:, :2]}, task="regression")
    with pytest.raises(
        InvalidInputError,
        match=r"All candidates must have the same number of outputs; candidate 'a' has 1 and "
        r"candidate 'b' has 2\.",
    ):
        pool.predict(X)


def test_the_failing_candidate_is_named() -> None:
    pool = Pool({"good": north, "bad": lambda X: X[:, 7]}, task="regression")
    with pytest.raises(
        CandidateError, match=r"Candidate 'bad' raised IndexError on rows 0 to 29 of"
    ):
        pool.predict(X)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.coo_array])
def test_sparse_inputs(container: Any) -> None:
    seen: list[Any] = []
    whole = as_candidate(lambda X: seen.append(X) or np.zeros(X.shape[0]))
    part = as_candidate(lambda X: X.toarray()[:, 0], inputs=[2])
    S = container(X)
    P = Pool({"whole": whole, "part": part}, task="regression").predict(S)
    assert seen[0] is S
    assert_array_equal(P[:, 1], X[:, 2])
    P = Pool({"column": Column(1), "line": as_candidate(LINE, inputs=[0, 1, 2])}, task="regression")
    assert_allclose(P.predict(S), np.column_stack([X[:, 1], LINE.predict(X)]))


def test_texts_reach_the_candidates_as_they_are() -> None:
    texts = ["a", "bb", "ccc"]
    pool = Pool(
        [("length", as_candidate(lambda X: [len(x) for x in X], batch_size=2))], task="regression"
    )
    assert pool.predict(texts).tolist() == [[1.0], [2.0], [3.0]]


class TestOnly:
    calls: list[int]

    @pytest.fixture
    def pool(self) -> Pool:
        self.calls = []

        def counted(X: np.ndarray) -> np.ndarray:
            self.calls.append(len(X))
            return X[:, 1]

        return Pool({"north": north, "counted": counted}, task="regression")

    @pytest.mark.parametrize("only", [["north"], {"north"}, np.array([True, False]), [True, False]])
    def test_a_candidate_left_out_does_not_run(self, pool: Pool, only: Any) -> None:
        P = pool.predict(X, only=only)
        assert self.calls == []
        assert_array_equal(P, np.column_stack([X[:, 0], np.zeros(30)]))

    def test_rows_left_out_are_zero(self, pool: Pool) -> None:
        only = np.ones((30, 2), dtype=bool)
        only[5:, 1] = False
        P = pool.predict(X, only=only)
        assert self.calls == [5]
        assert_array_equal(P, np.column_stack([X[:, 0], np.where(only[:, 1], X[:, 1], 0.0)]))

    def test_nobody_is_asked(self, pool: Pool) -> None:
        assert_array_equal(pool.predict(X, only=[]), np.zeros((30, 2)))

    def test_bad_masks_and_names_are_refused(self, pool: Pool) -> None:
        with pytest.raises(
            InvalidInputError,
            match=r"only must be names of candidates, or a mask of shape \(2,\) or \(30, 2\); "
            r"received values of dtype int\d+ and shape \(2,\)\.",
        ):
            pool.predict(X, only=[0, 1])
        with pytest.raises(
            InvalidInputError, match=r"mask of shape .* dtype bool and shape \(3,\)"
        ):
            pool.predict(X, only=[True, False, True])
        with pytest.raises(
            InvalidInputError, match=r"Unknown candidate 'nort'; did you mean 'north'"
        ):
            pool.predict(X, only=["nort"])

    def test_probabilities_of_rows_left_out_are_zero(self) -> None:
        pool = Pool(
            {"a": certain("x", ["x", "y"]), "b": certain("y", ["x", "y"])}, task="classification"
        )
        only = np.array([[True, False], [True, True]])
        expected = [[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]
        assert pool.predict(X[:2], only=only).tolist() == expected


def test_given_predictions_take_their_place() -> None:
    pool = Pool({"north": north, "south": south}, task="regression")
    given = {"south": np.full(30, np.nan)}
    P = pool.predict(X, given=given)
    assert_array_equal(P, np.column_stack([X[:, 0], given["south"]]))
    with pytest.raises(
        InvalidInputError, match=r"Unknown candidate 'sout'; did you mean 'south'\?"
    ):
        pool.predict(X, given={"sout": given["south"]})


# --- prediction columns ------------------------------------------------------------------------


def frame(kind: str, **columns: Any) -> Any:
    return pytest.importorskip(kind).DataFrame(columns)


FRAMES = pytest.mark.parametrize("kind", ["pandas", "polars"])


@FRAMES
def test_globs_expand_to_one_candidate_per_column(kind: str) -> None:
    data = frame(kind, pred_a=[1.0, 2.0], x=[0.0, 0.0], pred_b=[3.0, 4.0])
    pool = Pool({"line": north, "many": Column("pred_*", cost=2.0)}, task="regression")
    expanded = pool.expand(data)
    assert expanded.names == ("line", "pred_a", "pred_b")
    assert expanded.costs.tolist() == [1.0, 2.0, 2.0]
    assert expanded.predict(data).tolist() == [[0.0, 1.0, 3.0], [0.0, 2.0, 4.0]]
    assert expanded.prediction_columns(data) == {"pred_a", "pred_b"}


@FRAMES
def test_a_name_with_a_bracket_is_a_name_first(kind: str) -> None:
    data = frame(kind, **{"rent [EUR]": [1.0, 2.0], "rent R": [0.0, 0.0]})
    pool = Pool({"rent": Column("rent [EUR]")}, task="regression").expand(data)
    assert pool.names == ("rent",)
    assert pool.predict(data).tolist() == [[1.0], [2.0]]


def test_globs_carry_their_classes() -> None:
    data = frame("pandas", p_a=[0.25], p_b=[0.5])
    pool = Pool([Column("p_*", classes=["no", "yes"])], task="classification").expand(data)
    assert pool.predict(data).tolist() == [[[0.75, 0.25], [0.5, 0.5]]]


def test_globs_without_a_match_are_refused() -> None:
    pool = Pool({"many": Column("perd_*")}, task="regression")
    with pytest.raises(
        InvalidInputError, match=r"X has no column 'perd_\*'; did you mean 'pred_a'\?"
    ):
        pool.expand(frame("pandas", pred_a=[1.0]))
    with pytest.raises(
        InvalidInputError,
        match=r"Column\('perd_\*'\) is a glob over column names, and a ndarray has none: pass a "
        r"data frame, or state columns by position\.",
    ):
        pool.expand(X)


def test_a_glob_may_not_repeat_a_column() -> None:
    data = frame("pandas", pred_a=[1.0])
    with pytest.raises(InvalidInputError, match=r"Candidates 'a' and 'pred_a' are the same"):
        Pool({"a": Column("pred_a"), "many": Column("pred_*")}, task="regression").expand(data)


def test_a_pool_without_globs_is_its_own_expansion() -> None:
    pool = Pool({"a": Column(1)}, task="regression")
    assert pool.expand(X) is pool


@FRAMES
def test_other_candidates_do_not_see_prediction_columns(kind: str) -> None:
    data = frame(kind, a=[1.0, 2.0], guess=[5.0, 6.0], b=[3.0, 4.0])
    seen: list[Any] = []
    spy = as_candidate(lambda X: seen.append(list(X.columns)) or np.zeros(len(X)))
    stated = as_candidate(lambda X: np.asarray(X)[:, 0], inputs=["guess"])
    fitted = LinearRegression().fit(frame(kind, guess=[1.0, 2.0]), [2.0, 4.0])
    pool = Pool(
        {"spy": spy, "guess": Column("guess"), "stated": stated, "fitted": fitted},
        task="regression",
    )
    assert_allclose(pool.predict(data)[:, 1:], [[5.0, 5.0, 10.0], [6.0, 6.0, 12.0]])
    assert seen == [["a", "b"]]


def test_positions_hide_columns_of_arrays() -> None:
    seen: list[Any] = []
    spy = as_candidate(lambda X: seen.append(X) or np.zeros(len(X)))
    pool = Pool({"spy": spy, "last": Column(-1)}, task="regression")
    assert pool.prediction_columns(X) == {2}
    pool.predict(X)
    assert_array_equal(seen[0], X[:, :2])


@FRAMES
def test_positions_in_a_frame_are_reported_by_name(kind: str) -> None:
    data = frame(kind, a=[1.0], guess=[5.0])
    assert Pool([Column(1)], task="regression").prediction_columns(data) == {"guess"}


def test_without_prediction_columns_x_is_the_very_same_object() -> None:
    data = frame("pandas", a=[1.0, 2.0])
    seen: list[Any] = []
    pool = Pool([as_candidate(lambda X: seen.append(X) or np.zeros(len(X)))], task="regression")
    pool.predict(data)
    assert pool.prediction_columns(data) == set()
    assert seen[0] is data


# --- classes -----------------------------------------------------------------------------------


def test_probabilities_are_aligned_by_label() -> None:
    forwards = certain("yes", ["no", "yes"])
    backwards = certain("yes", ["yes", "no"])
    pool = Pool({"f": forwards, "b": backwards}, task="classification")
    assert pool.classes.tolist() == ["no", "yes"]
    assert_array_equal(pool.predict(X)[:, 0], pool.predict(X)[:, 1])
    assert_array_equal(pool.predict(X[:1])[0], [[0.0, 1.0], [0.0, 1.0]])


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_alignment_puts_each_probability_at_its_label(data: Any) -> None:
    labels = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)
    own = data.draw(st.lists(labels, min_size=1, max_size=4))
    sure = [data.draw(st.sampled_from(classes)) for classes in own]
    pool = Pool(
        [(f"c{m}", certain(s, c)) for m, (s, c) in enumerate(zip(sure, own, strict=True))],
        task="classification",
    )
    assert pool.classes.tolist() == sorted(set().union(*own))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        P = pool.predict(X[:2])
    assert pool.classes[P.argmax(axis=2)].tolist() == [sure, sure]


def test_an_unknown_class_is_zero_with_one_warning() -> None:
    pool = Pool(
        {
            "all": certain("a", ["a", "b", "c"]),
            "two": certain("b", ["c", "b"]),
            "one": as_candidate(lambda X: np.ones((len(X), 1)), classes=["c"]),
        },
        task="classification",
    )
    with pytest.warns(UserWarning, match="does not know") as caught:
        P = pool.predict(X[:1])
    assert [str(w.message) for w in caught] == [
        "Candidate 'two' does not know the class 'a'; candidate 'one' does not know the classes "
        "'a', 'b': a class that a candidate does not know gets probability zero from it."
    ]
    assert P[0].tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    pool.predict(X[:1])  # a second warning would be an error here


def test_the_warning_is_not_repeated_by_a_copy() -> None:
    few = DecisionTreeClassifier().fit(X, np.where(Y > 0, "yes", "no"))
    many = DecisionTreeClassifier().fit(X, np.where(Y > 0, "yes", "maybe"))
    pool = Pool({"few": few, "many": many}, task="classification")
    with pytest.warns(UserWarning, match="'few' does not know the class 'maybe'; candidate 'many'"):
        pool.predict(X)
    pickle.loads(pickle.dumps(pool)).predict(X)


def test_labels_of_two_kinds_are_refused() -> None:
    words = LogisticRegression().fit(X, np.where(Y > 0, "yes", "no"))
    numbers = LogisticRegression().fit(X, (Y > 0).astype(int))
    with pytest.raises(
        InvalidInputError,
        match=r"The classes of all candidates must be strings, or all must be numbers; "
        r"candidate 'words' has 'no', 'yes' and candidate 'numbers' has 0, 1: rename the "
        r"classes of one of them with as_candidate\(model, classes=\[\.\.\.\]\)\.",
    ):
        Pool({"words": words, "numbers": numbers}, task="classification")
    renamed = as_candidate(numbers, classes=["no", "yes"])
    pool = Pool({"words": words, "numbers": renamed}, task="classification")
    assert_allclose(pool.predict(X)[:, 0], pool.predict(X)[:, 1])


def test_a_label_that_nobody_knows_is_named() -> None:
    pool = Pool({"a": certain("x", ["x", "y"])}, task="classification")
    pool.check_labels(np.array(["x", "y", "x"]))
    with pytest.raises(
        InvalidInputError,
        match=r"Every label in y must be known to some candidate; none knows 'z', and together "
        r"they know 'x', 'y': leave out those rows, or add a candidate that knows the label, such "
        r"as CrossFitted\(\.\.\.\)\.",
    ):
        pool.check_labels(np.array(["x", "z"]))
    with pytest.raises(
        InvalidInputError, match=r"none knows 0, 1, and together they know 'x', 'y'"
    ):
        pool.check_labels(np.array([0, 1]))
    with pytest.raises(InvalidInputError, match=r"'x', 'y': leave out those rows, or add"):
        pool.check_labels(np.array([1, 2]))
    own = Pool([certain("x", ["x", "y"]), CrossFitted(LogisticRegression())], task="classification")
    own.check_labels(np.array(["x", "z"]))


@pytest.mark.parametrize("own", [[], [CrossFitted(LogisticRegression())]])
def test_labels_that_a_tool_has_numbered_are_told(own: list[Any]) -> None:
    pool = Pool([certain("x", ["x", "y"]), *own], task="classification")
    with pytest.raises(
        InvalidInputError,
        match=r"none knows 0, 1, and together they know 'x', 'y': cross_val_predict\("
        r"method='predict_proba'\), CalibratedClassifierCV\(ensemble=False\), VotingClassifier "
        r"and StackingClassifier of scikit-learn number the labels\. With these, use integers "
        r"everywhere: y as 0, 1, 2, \.\.\. in the sorted order of the labels, and each "
        r"candidate as as_candidate\(model, classes=\[0, 1, 2, \.\.\.\]\), the "
        r"numbers of its labels\.$",
    ):
        pool.check_labels(np.array([0, 1, 1]))


def test_candidates_that_cannot_do_the_task_are_refused_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"Candidate 'north' is a function\. A function"):
        Pool([north], task="classification")
    with pytest.raises(InvalidInputError, match=r"Candidate 'a' \(Ridge\) is not a classifier"):
        Pool({"a": CrossFitted(Ridge())}, task="classification")
    with pytest.raises(InvalidInputError, match=r"Candidate 'a' \(LogisticRegression\) is a class"):
        Pool({"a": CrossFitted(LogisticRegression())}, task="regression")


# --- fitting -----------------------------------------------------------------------------------


def test_fit_without_own_models_changes_nothing() -> None:
    pool = Pool([north], task="regression")
    fitted, out_of_fold, covered = pool.fit(X, Y)
    assert fitted is pool
    assert not pool.has_own_models
    assert out_of_fold == {}
    assert covered.all()


def test_fit_replaces_own_models_and_predicts_out_of_fold() -> None:
    pool = Pool(
        {"north": north, "own": CrossFitted(LinearRegression(), cost=2.0)}, task="regression"
    )
    assert pool.has_own_models
    fitted, out_of_fold, covered = pool.fit(X, Y, cv=KFold(3))
    assert not fitted.has_own_models
    assert fitted.candidates[0] is pool.candidates[0]
    assert fitted.costs.tolist() == [1.0, 2.0]
    assert covered.all()
    assert list(out_of_fold) == ["own"]
    expected = np.empty(30)
    for train, test in KFold(3).split(X):
        expected[test] = LinearRegression().fit(X[train], Y[train]).predict(X[test])
    P = fitted.predict(X, given=out_of_fold)
    assert_allclose(P, np.column_stack([X[:, 0], expected]))
    assert_allclose(fitted.predict(X)[:, 1], LINE.predict(X))


def test_an_unfitted_pool_does_not_predict() -> None:
    pool = Pool({"own": CrossFitted(LinearRegression())}, task="regression")
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'own': a CrossFitted predicts only after it was fitted on the sample\.",
    ):
        pool.predict(X)


def test_own_models_do_not_see_prediction_columns() -> None:
    pool = Pool({"guess": Column(2), "own": CrossFitted(LinearRegression())}, task="regression")
    fitted, _, _ = pool.fit(X, Y, cv=3)
    assert fitted.candidates[1].model.n_features_in_ == 2
    assert fitted.predict(X).shape == (30, 2)


@FRAMES
def test_own_models_of_a_frame(kind: str) -> None:
    data = frame(kind, a=X[:, 0], guess=X[:, 2], b=X[:, 1])
    pool = Pool(
        {"guess": Column("guess"), "own": CrossFitted(LinearRegression())}, task="regression"
    )
    fitted, out_of_fold, _ = pool.fit(data, Y, cv=3)
    assert fitted.candidates[1].model.feature_names_in_.tolist() == ["a", "b"]
    assert_allclose(fitted.predict(data)[:, 1], Y, atol=1e-10)
    assert out_of_fold["own"].shape == (30,)


def test_out_of_fold_probabilities_are_aligned_to_the_pool() -> None:
    labels = np.where(Y > 0, "yes", "no")
    other = certain("maybe", ["yes", "maybe"])
    pool = Pool({"other": other, "own": CrossFitted(LogisticRegression())}, task="classification")
    fitted, out_of_fold, _ = pool.fit(X, labels, cv=3)
    assert fitted.classes.tolist() == ["maybe", "no", "yes"]
    assert out_of_fold["own"].shape == (30, 3)
    assert_array_equal(out_of_fold["own"][:, 0], 0.0)
    with pytest.warns(UserWarning, match=r"Candidate 'other' does not know the class 'no'; cand"):
        P = fitted.predict(X, given=out_of_fold)
    assert_array_equal(P[:, 1], out_of_fold["own"])


def test_covered_rows_are_those_of_every_own_model() -> None:
    late = CrossFitted(LinearRegression(), cv=TimeSeriesSplit(2))
    pool = Pool({"late": late, "all": CrossFitted(Ridge())}, task="regression")
    _, out_of_fold, covered = pool.fit(X, Y, cv=3)
    assert_array_equal(covered, np.arange(30) >= 10)
    assert_array_equal(np.isfinite(out_of_fold["late"]), covered)
    assert np.isfinite(out_of_fold["all"]).all()


def test_some_row_must_be_covered_by_all() -> None:
    rows = np.arange(30)
    first = CrossFitted(LinearRegression(), cv=[(rows[15:], rows[:15])])
    second = CrossFitted(Ridge(), cv=[(rows[:15], rows[15:])])
    pool = Pool({"first": first, "second": second}, task="regression")
    with pytest.raises(
        InvalidInputError,
        match=r"At least one row must have an out-of-fold prediction of every CrossFitted "
        r"candidate, and no row has one from all of 'first', 'second': give them the same cv=\.",
    ):
        pool.fit(X, Y)


def test_a_generator_of_folds_serves_every_own_model() -> None:
    pool = Pool(
        {"a": CrossFitted(LinearRegression()), "b": CrossFitted(Ridge())}, task="regression"
    )
    _, out_of_fold, covered = pool.fit(X, Y, cv=KFold(3).split(X))
    assert covered.all()
    assert set(out_of_fold) == {"a", "b"}


def test_rows_in_errors_are_those_of_x_where_only_some_are_asked() -> None:
    def fails(X: Any) -> Any:
        if (X[:, 0] == 7).any():
            raise RuntimeError("no connection")
        return X[:, 0]

    rows = np.arange(12.0)[:, np.newaxis]
    mask = np.ones((12, 2), dtype=bool)
    mask[::2, 0] = False
    for size, words in ((None, "rows 1, 3, 5, 7, 9 and 1 more, the last 11"), (3, "rows 7, 9, 11")):
        pool = Pool({"a": as_candidate(fails, batch_size=size), "b": north}, task="regression")
        with pytest.raises(CandidateError, match=rf"'a' raised RuntimeError on {words}"):
            pool.predict(rows, only=mask)
