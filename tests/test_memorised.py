"""Candidates that were trained on the labelled rows are named; clean ones and toys are not."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

import localma
from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor, as_candidate
from localma.candidates.estimator import EstimatorCandidate
from localma.checks.training_rows import SampleLosses, find_gaps, moved_rows, recognised_rows
from localma.errors import LocalMAWarning, TrainedOnSampleWarning
from localma.inspection import evaluate, summarize

FORESTS = {
    "forest": lambda: RandomForestRegressor(50, random_state=0),
    "extra": lambda: ExtraTreesRegressor(50, random_state=0),
    "boosting": lambda: GradientBoostingRegressor(random_state=0),
    "tree": lambda: DecisionTreeRegressor(random_state=0),
}
STORING = {
    "neighbours": KNeighborsRegressor(),
    "scaled neighbours": make_pipeline(StandardScaler(), KNeighborsRegressor()),
    "process": GaussianProcessRegressor(alpha=1.0),
    "kernel": KernelRidge(kernel="rbf"),
    "vectors": SVR(),
    "search": GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [3, 5]}, cv=2),
    "tree": DecisionTreeRegressor(max_depth=4, random_state=0),
    "forest": RandomForestRegressor(10, max_depth=4, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=5, random_state=0),
}


def draw(seed, n=500, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + noise * rng.normal(size=n)


def as_function(model):
    return lambda X: model.predict(np.asarray(X))


def named(model):
    found = [caution for caution in model.cautions_ if caution.kind == "trained_on_sample"]
    return {name for caution in found for name in caution.names}


def fit_global(pool, X, y, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LocalMAWarning)
        return LocalMARegressor(pool, gate="global").fit(X, y, **how)


@pytest.mark.parametrize("seed", range(4))
def test_black_boxes_that_were_trained_on_the_rows_are_told_from_clean_ones(seed):
    X, y = draw(seed)
    rows, new = slice(0, 250), slice(250, None)
    pool = {name: as_function(make().fit(X[rows], y[rows])) for name, make in FORESTS.items()}
    pool["line"] = as_function(Ridge().fit(X[rows], y[rows]))  # smooth: it cannot be seen
    assert named(fit_global(pool, X[rows], y[rows])) == set(FORESTS)
    assert not named(fit_global(pool, X[new], y[new]))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_targets_with_little_noise_are_no_leak(noise):
    X, _ = draw(0)
    y = (X[:, 0] > 0) + (X[:, 1] > 0.5) + noise * np.random.default_rng(1).normal(size=len(X))
    pool = {name: make().fit(X[:250], y[:250]) for name, make in FORESTS.items()}
    assert not named(fit_global(pool, X[250:], y[250:]))


def test_the_warning_and_the_verdict_name_the_candidate():
    X, y = draw(0)
    forest = as_function(RandomForestRegressor(50, random_state=0).fit(X[:250], y[:250]))
    line = LinearRegression().fit(X[250:], y[250:])
    model = LocalMARegressor({"forest": forest, "line": line}, random_state=0)
    with pytest.warns(TrainedOnSampleWarning, match="'forest' seems to have been trained on"):
        model.fit(X[:250], y[:250])
    (caution,) = model.cautions_
    assert caution.kind == "trained_on_sample"
    assert caution.names == ("forest",)
    assert "times as large" in caution.sentence
    assert model.verdict_.startswith(caution.sentence)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_with_words_and_codes_are_moved_in_fractions_only(library):
    frames = pytest.importorskip(library)
    X, y = draw(0)
    asked = []
    forest = RandomForestRegressor(50, random_state=0).fit(X[:250], y[:250])

    def predict(table):
        asked.append(table)
        return forest.predict(np.asarray(table[list("abcde")]))

    columns = {name: X[:250, k] for k, name in enumerate("abcde")}
    columns |= {"word": ["u", "v"] * 125, "code": np.arange(250) % 4, "count": np.arange(250.0)}
    table = frames.DataFrame(columns)
    line = LinearRegression().fit(X[250:], y[250:])
    pool = {"forest": predict, "line": lambda t: line.predict(np.asarray(t[list("abcde")]))}
    with pytest.warns(TrainedOnSampleWarning):
        model = LocalMARegressor(pool, gate="global").fit(table, y[:250])
    assert named(model) == {"forest"}
    moved = asked[-1]
    assert sorted({str(kind) for kind in table.dtypes}) == sorted({str(k) for k in moved.dtypes})
    for name in ("word", "code", "count"):
        assert set(moved[name]) <= set(table[name])
    for name in "abcde":
        assert not set(moved[name]) <= set(table[name])
        assert min(table[name]) <= min(moved[name]) <= max(moved[name]) <= max(table[name])


def test_a_forest_of_classes():
    X, _ = draw(0)
    y = np.where(X[:, 0] + np.random.default_rng(1).normal(size=len(X)) > 0, "yes", "no")
    forest = RandomForestClassifier(50, random_state=0).fit(X[:250], y[:250])
    line = LogisticRegression().fit(X[:250], y[:250])
    pool = {"forest": forest, "line": line}
    with pytest.warns(TrainedOnSampleWarning, match="'forest'"):
        model = LocalMAClassifier(pool, gate="global").fit(X[50:300], y[50:300])
    assert named(model) == {"forest"}
    assert not named(LocalMAClassifier(pool, gate="global").fit(X[250:], y[250:]))


def test_probabilities_that_bend_near_one_are_no_memory():
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    train, new = rows[:284], rows[284:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        line = LogisticRegression().fit(X[train], y[train])
    forest = RandomForestClassifier(50, random_state=0).fit(X[train], y[train])
    pool = {"line": line, "forest": forest}
    assert not named(LocalMAClassifier(pool, gate="global").fit(X[new], y[new]))


@pytest.mark.parametrize("name", STORING)
def test_stored_rows_and_leaves_are_recognised(name):
    X, y = draw(0)
    model = STORING[name].fit(X[:250], y[:250])
    candidate = EstimatorCandidate(model)
    found = recognised_rows(candidate, X[:250])
    assert found == (len(model.support_) if name == "vectors" else 250)
    assert not recognised_rows(candidate, X[250:])


def test_four_of_many_rows_are_recognised():
    X, y = draw(0)
    candidate = EstimatorCandidate(KNeighborsRegressor().fit(X[:100], y[:100]))
    assert recognised_rows(candidate, X[96:236]) == 4


def test_rows_that_repeat_by_nature_are_no_sign():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(600, 2)).astype(float)
    candidate = EstimatorCandidate(KNeighborsRegressor().fit(X[:300], X[:300, 0]))
    assert recognised_rows(candidate, X[300:]) == 0


def test_models_that_cannot_tell():
    X, y = draw(0)
    assert recognised_rows(EstimatorCandidate(Ridge().fit(X, y)), X) is None
    assert recognised_rows(as_candidate(lambda X: X[:, 0]), X) is None
    neighbours = EstimatorCandidate(KNeighborsRegressor().fit(X, y))
    assert recognised_rows(neighbours, np.full((5, 5), "word")) is None


def test_toys_are_not_named():
    x = np.linspace(-2, 2, 200)
    exact = {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}
    assert not named(fit_global(exact, x[:, None], np.abs(x)))
    step = {"step": lambda X: np.sign(X[:, 0]), "wave": lambda X: np.sin(X[:, 0])}
    y = np.where(x > 1, np.sin(x), np.sign(x))
    assert not named(fit_global(step, x[:, None], y))


def test_who_is_not_asked():
    """Out-of-fold models, columns, given predictions, equal weights, and slow functions."""
    X, y = draw(0, n=100)
    forest = RandomForestRegressor(20, random_state=0)
    honest = {"ours": CrossFitted(forest), "column": Column(0)}
    assert not named(fit_global(honest, X, y))
    leaked = {"forest": forest.fit(X, y)}
    out_of_fold = np.random.default_rng(0).normal(size=(100, 1))
    assert not named(fit_global(leaked, X, y, predictions=out_of_fold))
    assert not named(LocalMARegressor(leaked, gate="equal").fit(X, y))
    calls = []

    def costly(X):
        calls.append(len(X))
        time.sleep(0.2)
        return forest.predict(X)

    assert not named(fit_global({"costly": costly}, X, y))
    assert calls == [100, 10]


def test_a_candidate_that_fits_exactly_is_named_once():
    X, y = draw(0)
    tree = DecisionTreeRegressor(random_state=0).fit(X, y)
    line = LinearRegression().fit(X, y)
    for candidate in (tree, as_function(tree)):
        model = fit_global({"tree": candidate, "line": line}, X, y)
        assert [caution.kind for caution in model.cautions_] == ["trained_on_sample"]


def test_a_function_that_knows_only_its_rows_is_left_alone():
    X, y = draw(0, n=100)
    guesses = {row.tobytes(): value for row, value in zip(X, y, strict=True)}
    pool = {"table": lambda X: [guesses[row.tobytes()] + 1 for row in X]}
    assert not named(fit_global(pool, X, y))


def test_no_column_moves_if_all_hold_codes():
    codes = np.arange(60.0).reshape(30, 2)
    assert moved_rows(codes, np.arange(30)) is None
    assert moved_rows(codes.astype(int), np.arange(30)) is None
    assert moved_rows(["a text"] * 30, np.arange(30)) is None


def leaked_pool():
    X, y = draw(3, n=900)
    train = slice(0, 300)
    pool = {
        "forest": RandomForestRegressor(50, random_state=0).fit(X[train], y[train]),
        "line": LinearRegression().fit(X[300:600], y[300:600]),
    }
    with pytest.warns(TrainedOnSampleWarning):
        model = LocalMARegressor(pool, gate="global").fit(X[train], y[train])
    return model, X[600:], y[600:]


def test_evaluate_asks_about_a_gap(tmp_path):
    model, X, y = leaked_pool()
    with pytest.warns(TrainedOnSampleWarning, match="Was it trained on them"):
        found = evaluate(model, X, y, control=False)
    (gap,) = found.gaps
    assert gap.name == "forest"
    assert gap.is_apart
    assert gap.here.value > 3 * gap.sample.value
    assert gap.here.value == found.entries[0].loss.value
    assert gap.sentence in found.sentence
    model.save(tmp_path / "model.localma")
    again = localma.load(tmp_path / "model.localma", candidates=model.candidates)
    with pytest.warns(TrainedOnSampleWarning):
        assert evaluate(again, X, y, control=False).gaps == found.gaps


def test_the_page_asks_about_a_gap():
    pytest.importorskip("jinja2")
    from localma.report import render

    model, X, y = leaked_pool()
    with pytest.warns(TrainedOnSampleWarning):
        page = render(summarize(model, X, y, control=False))
    assert "Was it trained on them?" in page


def test_clean_candidates_show_no_gap():
    """At most one in a hundred pools of four, with long tails and samples of unequal size."""
    rng = np.random.default_rng(0)
    asked = 0
    for trial in range(400):
        sizes = [(60, 60), (100, 1000), (1000, 100), (300, 300)][trial % 4]
        old, new = (
            SampleLosses.of(rng.standard_t(4, size=(4, n)) ** 2, np.ones(n), None) for n in sizes
        )
        asked += bool(find_gaps("abcd", old, new))
    assert asked <= 4


def test_harder_rows_are_another_question_and_other_rows_none():
    sample = SampleLosses(np.array([1.0, 2.0]), np.array([0.1, 0.2]), 200)
    harder = SampleLosses(np.array([2.0, 4.0]), np.array([0.2, 0.4]), 200)
    gaps = find_gaps(["a", "b"], sample, harder)
    assert [str(gap) for gap in gaps] == [
        "a: 1 on the labelled rows, 2 here. Was it trained on them, or are these rows harder?",
        "b: 2 on the labelled rows, 4 here. Was it trained on them, or are these rows harder?",
    ]
    elsewhere = SampleLosses(np.array([3.0, 0.5]), np.array([0.2, 0.1]), 200)
    assert not find_gaps(["a", "b"], sample, elsewhere)  # one region of the inputs
    unknown = SampleLosses(np.array([9.0, 9.0]), np.array([np.nan, np.nan]), 200)
    assert not find_gaps(["a", "b"], sample, unknown)
    assert not find_gaps(["a", "b"], sample, SampleLosses(harder.mean, harder.standard_error, 5))
