"""Models of one's own: out of fold for the gate, on all rows for new rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, TimeSeriesSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from localma.candidates import CrossFitted
from localma.candidates.crossfitted import weight_argument
from localma.errors import CandidateError, InvalidInputError

random = np.random.default_rng(0)
X = random.normal(size=(30, 2))
Y = X[:, 0] ** 2 + random.normal(size=30)


class Nearest(RegressorMixin, BaseEstimator):
    """Remembers its rows: predicts the target of the very row, or -1 if it never saw it."""

    def fit(self, X: Any, y: Any) -> Nearest:
        self.seen_ = dict(zip(map(tuple, X), y, strict=True))
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.array([self.seen_.get(tuple(row), -1.0) for row in X])


def test_no_row_is_predicted_by_a_model_that_saw_it() -> None:
    own = CrossFitted(Nearest())
    candidate, predictions, covered = own.fit_out_of_fold(X, Y, task="regression", cv=5)
    assert_array_equal(predictions, -1.0)
    assert covered.all()
    assert_array_equal(candidate.predict(X, "regression"), Y)


def test_the_given_estimator_stays_unfitted() -> None:
    estimator = RandomForestRegressor(3)
    before = pickle.dumps(estimator)
    CrossFitted(estimator).fit_out_of_fold(X, Y, task="regression", cv=3, random_state=0)
    assert pickle.dumps(estimator) == before


def test_own_folds_go_before_those_of_the_whole_model() -> None:
    own = CrossFitted(LinearRegression(), cv=KFold(2))
    by_two = own.fit_out_of_fold(X, Y, task="regression", cv=KFold(5))[1]
    expected = CrossFitted(LinearRegression()).fit_out_of_fold(
        X, Y, task="regression", cv=KFold(2)
    )[1]
    assert_array_equal(by_two, expected)


def test_rows_that_no_fold_tests_are_not_covered() -> None:
    own = CrossFitted(LinearRegression())
    _, predictions, covered = own.fit_out_of_fold(X, Y, task="regression", cv=TimeSeriesSplit(2))
    assert_array_equal(covered, np.arange(30) >= 10)
    assert_array_equal(np.isnan(predictions), ~covered)


def test_rows_that_several_folds_test_have_the_mean() -> None:
    folds = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    own = CrossFitted(LinearRegression())
    predictions = own.fit_out_of_fold(X, Y, task="regression", cv=folds)[1]
    expected = np.zeros(30)
    for train, test in folds.split(X):
        expected[test] += LinearRegression().fit(X[train], Y[train]).predict(X[test]) / 2
    assert_allclose(predictions, expected)


def test_groups_reach_the_splitter() -> None:
    groups = np.arange(30) % 3
    own = CrossFitted(LinearRegression())
    predictions = own.fit_out_of_fold(X, Y, task="regression", cv=GroupKFold(3), groups=groups)[1]
    for group in range(3):
        train = groups != group
        expected = LinearRegression().fit(X[train], Y[train]).predict(X[~train])
        assert_allclose(predictions[~train], expected)


def test_several_outputs() -> None:
    target = np.column_stack([Y, -Y])
    own = CrossFitted(LinearRegression())
    candidate, predictions, _ = own.fit_out_of_fold(X, target, task="regression", cv=3)
    assert predictions.shape == (30, 2)
    assert_allclose(predictions[:, 0], -predictions[:, 1])
    assert candidate.predict(X, "regression").shape == (30, 2)


@pytest.mark.parametrize("classifier", [LogisticRegression(), RidgeClassifier()])
def test_a_class_that_a_fold_lacks_is_zero_there(classifier: Any) -> None:
    labels = np.repeat(["a", "b", "c"], 10)
    rows = np.arange(30)
    folds = [(rows[:20], rows[20:]), (rows[20:][:0:-1].tolist() + rows[5:20].tolist(), rows[:5])]
    own = CrossFitted(classifier, cv=folds)
    candidate, predictions, covered = own.fit_out_of_fold(X, labels, task="classification")
    assert candidate.classes.tolist() == ["a", "b", "c"]
    assert_array_equal(predictions[20:, 2], 0.0)
    assert_allclose(predictions[covered].sum(axis=1), 1.0)


def test_labels_are_stratified_by_default() -> None:
    labels = np.repeat([0, 1, 2], 10)
    own = CrossFitted(LogisticRegression())
    predictions = own.fit_out_of_fold(X, labels, task="classification", cv=5)[1]
    assert predictions.min() > 0.0  # sorted labels in plain folds would leave classes out


def test_texts() -> None:
    texts = ["good", "bad"] * 10
    labels = np.array([1, 0] * 10)
    own = CrossFitted(make_pipeline(CountVectorizer(), LogisticRegression()))
    candidate, predictions, _ = own.fit_out_of_fold(texts, labels, task="classification", cv=4)
    assert_array_equal(predictions.argmax(axis=1), labels)
    assert candidate.predict(["good"], "classification").argmax() == 1


@pytest.mark.parametrize("inputs", [[1], lambda X: X[:, [1]]])
def test_inputs_of_its_own(inputs: Any) -> None:
    own = CrossFitted(LinearRegression(), inputs=inputs)
    how: Any = {"task": "regression", "cv": KFold(3)}
    candidate, predictions, _ = own.fit_out_of_fold(X, Y, **how)
    part = CrossFitted(LinearRegression()).fit_out_of_fold(X[:, [1]], Y, **how)
    assert_array_equal(predictions, part[1])
    assert_array_equal(candidate.predict(X, "regression"), part[0].predict(X[:, [1]], "regression"))


# --- randomness --------------------------------------------------------------------------------


def test_random_state_seeds_what_the_user_left_open() -> None:
    forest = make_pipeline(StandardScaler(), RandomForestRegressor(3))
    first, second, third = (
        CrossFitted(forest).fit_out_of_fold(X, Y, task="regression", cv=3, random_state=seed)[1]
        for seed in (0, 0, 1)
    )
    assert_array_equal(first, second)
    assert not np.array_equal(first, third)


def test_a_seed_of_the_users_own_is_kept() -> None:
    own = CrossFitted(RandomForestRegressor(3, random_state=7))
    candidate = own.fit_out_of_fold(X, Y, task="regression", cv=3, random_state=0)[0]
    assert candidate.model.random_state == 7


# --- sample weights ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap", [lambda line: line, lambda line: make_pipeline(StandardScaler(), line)]
)
def test_sample_weights_reach_the_fit(wrap: Any) -> None:
    weight = (np.arange(30) % 2).astype(float)
    own = CrossFitted(wrap(LinearRegression()))
    candidate = own.fit_out_of_fold(X, Y, task="regression", cv=3, sample_weight=weight)[0]
    odd = LinearRegression().fit(X[1::2], Y[1::2])
    assert_allclose(candidate.predict(X, "regression"), odd.predict(X))


def test_estimators_without_weights_are_fitted_without() -> None:
    weight = np.arange(1.0, 31.0)
    own = CrossFitted(KNeighborsRegressor(2))
    how: Any = {"task": "regression", "cv": KFold(3)}
    weighted = own.fit_out_of_fold(X, Y, **how, sample_weight=weight)[1]
    assert_array_equal(weighted, own.fit_out_of_fold(X, Y, **how)[1])


def test_names_of_the_weight_argument() -> None:
    inner = Pipeline([("scale", StandardScaler()), ("line", LinearRegression())])
    assert weight_argument(LinearRegression()) == "sample_weight"
    assert weight_argument(Pipeline([("inner", inner)])) == "inner__line__sample_weight"
    assert weight_argument(KNeighborsRegressor()) is None
    assert weight_argument(make_pipeline(KNeighborsRegressor())) is None
    assert weight_argument(make_pipeline(StandardScaler(), "passthrough")) is None
    assert weight_argument(FunctionTransformer()) is None


def test_metadata_routing_decides_for_pipelines() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        silent = make_pipeline(StandardScaler(), LinearRegression())
        asking = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            LinearRegression().set_fit_request(sample_weight=True),
        )
        assert weight_argument(silent) is None
        assert weight_argument(asking) == "sample_weight"
        weight = (np.arange(30) % 2).astype(float)
        fit = CrossFitted(asking).fit_out_of_fold
        candidate = fit(X, Y, task="regression", cv=3, sample_weight=weight)[0]
    odd = LinearRegression().fit(X[1::2], Y[1::2])
    assert_allclose(candidate.predict(X, "regression"), odd.predict(X))


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (LinearRegression, r"CrossFitted takes an instance of a scikit-learn estimator, with fit"),
        (np.ravel, r"with fit, predict and get_params; received <function ravel"),
        (None, r"with fit, predict and get_params; received None\."),
        (StandardScaler(), r"predict and get_params; received StandardScaler\(\)\."),
        (
            FrozenEstimator(LinearRegression()),
            r"CrossFitted fits its estimator in every fold, and a FrozenEstimator is never "
            r"refitted: pass the FrozenEstimator itself as the candidate\.",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused(estimator: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        CrossFitted(estimator)


def test_a_fit_that_fails_is_named_with_its_fold() -> None:
    labels = np.repeat(["a", "b"], 15)
    own = CrossFitted(LogisticRegression(), cv=KFold(2))
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'own' raised ValueError when fitted on fold 0 \(15 rows\): .*class.* A "
        r"CrossFitted estimator must fit on every training fold: correct it, or give it other "
        r"folds with cv=\.",
    ) as caught:
        own.fit_out_of_fold(X, labels, task="classification", name="own")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(
        CandidateError, match=r"'linearregression' raised ValueError when fitted on all"
    ):
        CrossFitted(LinearRegression()).fit_out_of_fold(X * np.nan, Y, task="regression", cv=3)


def test_folds_must_be_there() -> None:
    with pytest.raises(InvalidInputError, match=r"cv must give at least one fold; .* gave none\."):
        CrossFitted(LinearRegression(), cv=[]).fit_out_of_fold(X, Y, task="regression")


# --- folds given as a number ---------------------------------------------------------------------


class Folds(BaseEstimator):
    """Predicts the mean of the numbers of the rows that it was fitted on."""

    def fit(self, X: Any, y: Any) -> Folds:
        self.mean_ = float(X[:, 0].mean())
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.full(len(X), self.mean_)


NUMBERED = np.arange(30.0)[:, np.newaxis]


def test_a_number_of_folds_keeps_groups_together() -> None:
    groups = np.repeat(np.arange(10), 3)
    for own, cv in ((CrossFitted(Folds(), cv=5), None), (CrossFitted(Folds()), 5)):
        _, predictions, _ = own.fit_out_of_fold(
            NUMBERED, Y, task="regression", cv=cv, groups=groups, random_state=0
        )
        for group in range(10):
            assert len(set(predictions[groups == group])) == 1
        assert len(set(predictions)) > 2


def test_a_number_of_folds_means_shuffled_ones() -> None:
    own = CrossFitted(Folds(), cv=3)
    _, predictions, _ = own.fit_out_of_fold(NUMBERED, Y, task="regression", random_state=0)
    unshuffled = [19.5, 14.5, 9.5]
    assert set(predictions) != set(unshuffled)
    again = own.fit_out_of_fold(NUMBERED, Y, task="regression", random_state=0)[1]
    assert_array_equal(predictions, again)
