"""Intervals, inspection and reports of rows in which some predictions are missing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression, LogisticRegression

from localma import CrossFitted, LocalMAClassifier, LocalMARegressor, as_candidate
from localma.equations import local_average
from localma.errors import CandidateError, NoAnswerError
from localma.gates.left_out import renormalized
from localma.inspection import ComparisonDisplay, evaluate, explain, summarize

N = 600
random = np.random.default_rng(0)
X = random.uniform(-2, 2, size=(N, 2))
Y = np.abs(X[:, 0]) + 0.2 * random.normal(size=N)
WHOLE = np.column_stack([-X[:, 0], X[:, 0], np.ones(N)])
NEW, NEW_Y = X[300:], Y[300:]


def gaps(whole: np.ndarray = WHOLE, share: float = 0.3, empty: int = 0) -> np.ndarray:
    """Predictions with gaps; the last rows have none, and all others have at least one."""
    P = whole.copy()
    P[np.random.default_rng(1).uniform(size=P.shape[:2]) < share] = np.nan
    every = np.isnan(P.reshape(len(P), 3, -1)).all(axis=(1, 2))
    P[every] = whole[every]
    P[len(P) - empty :] = np.nan
    return P


@pytest.fixture(scope="module")
def model() -> LocalMARegressor:
    model = LocalMARegressor(random_state=0, missing="renormalize")
    return model.fit(X[:300], Y[:300], predictions=gaps()[:300])


def fails(X: Any) -> Any:
    raise ConnectionError("no route to host")


def broken_pool(**options: Any) -> LocalMARegressor:
    functions = {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0], "one": np.ones_like}
    functions["one"] = lambda X: np.ones(len(X))
    model = LocalMARegressor(functions, random_state=0, missing="renormalize", **options)
    model.fit(X[:300], Y[:300])
    model.pool_.candidates[0].function = fails
    return model


# --- intervals and sets --------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_intervals_cover_and_hold_the_prediction(model: LocalMARegressor, share: float) -> None:
    P = gaps(share=share)[300:]
    low, high = model.predict_interval(NEW, 0.9, P)
    predicted = model.predict(NEW, P)
    assert ((low <= predicted) & (predicted <= high)).all()
    assert 0.84 < ((low <= NEW_Y) & (high >= NEW_Y)).mean() < 0.99


def test_intervals_of_complete_rows_are_unchanged(model: LocalMARegressor) -> None:
    P = WHOLE[300:]
    strict = LocalMARegressor().set_params(**model.get_params())
    vars(strict).update(vars(model))
    strict.missing = "error"
    for ours, theirs in zip(
        model.predict_interval(NEW, 0.8, P), strict.predict_interval(NEW, 0.8, P), strict=True
    ):
        assert_allclose(ours, theirs)


def test_intervals_of_rows_without_any_prediction(model: LocalMARegressor) -> None:
    P = gaps(empty=3)[300:]
    with pytest.raises(NoAnswerError, match="No candidate is left in 3 of 300 rows"):
        model.predict_interval(NEW, 0.9, P)
    model.missing = "nan"
    try:
        low, high = model.predict_interval(NEW, 0.9, P)
    finally:
        model.missing = "renormalize"
    assert_array_equal(np.isnan(low), np.arange(300) >= 297)
    assert_array_equal(np.isnan(high), np.isnan(low))


@pytest.mark.parametrize("robust", [False, True])
def test_intervals_if_a_candidate_fails(robust: bool) -> None:
    model = broken_pool(robust=robust)
    low, high = model.predict_interval(NEW, 0.9)
    predicted = model.predict(NEW)
    assert ((low <= predicted) & (predicted <= high)).all()
    model.missing = "error"
    with pytest.raises(CandidateError, match="'left' raised ConnectionError"):
        model.predict_interval(NEW, 0.9)


def classes() -> tuple[np.ndarray, np.ndarray]:
    chance = 1 / (1 + np.exp(-3 * X))
    P = np.stack([chance[:, 0], chance[:, 1], np.full(N, 0.5)], axis=1)
    y = np.where(np.random.default_rng(2).uniform(size=N) < chance[:, 0], "yes", "no")
    return np.stack([1 - P, P], axis=2), y


def test_sets_of_classes() -> None:
    P, y = classes()
    P = gaps(P, empty=2)
    model = LocalMAClassifier(random_state=0, missing="nan")
    model.fit(X[:300], y[:300], predictions=P[:300])
    sets = model.predict_set(NEW, 0.9, P[300:])
    column = np.searchsorted(model.classes_, y[300:])
    assert sets[np.arange(300), column].mean() > 0.84
    assert sets[-2:].all()
    labels = model.predict(NEW, P[300:])
    assert (labels[-2:] == None).all()  # noqa: E711 - each element
    chosen = np.searchsorted(model.classes_, labels[:-2].astype(str))
    assert sets[np.arange(298), chosen].all()
    assert 0.0 < sets[:-2].all(axis=1).mean() < 1.0


# --- inspection ----------------------------------------------------------------------------------


def test_a_comparison_counts_the_incomplete_rows(model: LocalMARegressor) -> None:
    P = gaps(empty=4)[300:]
    compared = evaluate(model, NEW, NEW_Y, predictions=P, control=False)
    rows = np.isnan(P).any(axis=1).sum()
    assert f"Predictions are missing in {rows} of 300 rows" in compared.incomplete
    assert "4 rows without any prediction did not count." in compared.incomplete
    assert compared.incomplete in str(compared)
    judged = slice(0, 296)
    risk = np.mean((model.predict(NEW[judged], P[judged]) - NEW_Y[judged]) ** 2)
    assert_allclose(compared.model.loss.value, risk)
    known, reference = ~np.isnan(P[judged]), model.global_weights_
    w = renormalized(np.broadcast_to(reference, known.shape), known, reference)
    mixture = np.nansum(w * P[judged], axis=1)
    [of_global] = [entry for entry in compared.entries if entry.kind == "global"]
    assert_allclose(of_global.loss.value, np.mean((mixture - NEW_Y[judged]) ** 2))
    again = ComparisonDisplay.from_dict(json.loads(json.dumps(compared.to_dict())))
    assert again == compared


def test_complete_rows_are_not_mentioned(model: LocalMARegressor) -> None:
    compared = evaluate(model, NEW, NEW_Y, predictions=WHOLE[300:], control=False)
    assert compared.incomplete is None
    older = compared.to_dict()
    del older["incomplete"]
    assert ComparisonDisplay.from_dict(older) == compared


def test_a_comparison_names_the_candidate_that_fails() -> None:
    model = broken_pool()
    compared = evaluate(model, NEW, NEW_Y, control=False)
    assert "Candidate 'left' raised ConnectionError: no route to host" in compared.incomplete
    assert_allclose(compared.model.loss.value, np.mean((model.predict(NEW) - NEW_Y) ** 2))


def test_an_explanation_sums_to_the_prediction(model: LocalMARegressor) -> None:
    P = gaps(empty=1)[300:]
    row = int(np.flatnonzero(np.isnan(P).any(axis=1))[0])
    explained = explain(model, NEW, row, predictions=P)
    assert_allclose(explained.prediction, model.predict(NEW[row : row + 1], P[row : row + 1])[0])
    for share, value in zip(explained.candidates, P[row], strict=True):
        assert (share.prediction is None) == np.isnan(value)
        assert (share.weight == 0.0) or not np.isnan(value)
    contributions = [share.contribution or 0.0 for share in explained.candidates]
    assert_allclose(sum(contributions), explained.prediction)
    missing = [share.name for share in explained.candidates if share.prediction is None]
    assert f"No prediction: {', '.join(missing)}." in str(explained)
    with pytest.raises(NoAnswerError, match="No candidate has a prediction in row 299"):
        explain(model, NEW, -1, predictions=P)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_summary_of_incomplete_rows(model: LocalMARegressor, labelled: bool) -> None:
    P = gaps(empty=4)[300:]
    summary = summarize(model, NEW, NEW_Y if labelled else None, predictions=P, control=False)
    assert (summary.comparison is not None) == labelled
    index, numbers = summary.rows.index, np.array(summary.rows.prediction, dtype=float)
    answers = model.answer(NEW, P, missing="nan").prediction
    assert_allclose(numbers, answers[index])
    json.dumps(summary.to_dict(), allow_nan=False)


def test_a_report_mentions_the_incomplete_rows(model: LocalMARegressor) -> None:
    pytest.importorskip("jinja2")
    from localma.report import render

    summary = summarize(model, NEW, NEW_Y, predictions=gaps()[300:], control=False)
    assert summary.comparison.incomplete in render(summary)


def test_a_summary_of_incomplete_classes() -> None:
    P, y = classes()
    P = gaps(P, empty=2)
    model = LocalMAClassifier(random_state=0, missing="nan")
    model.fit(X[:300], y[:300], predictions=P[:300])
    summary = summarize(model, NEW, y[300:], predictions=P[300:], control=False)
    assert "2 rows without any prediction did not count" in summary.comparison.incomplete
    assert summary.rows.prediction[-1] is None
    assert summary.reliability is not None


def test_a_frontier_of_incomplete_rows(model: LocalMARegressor) -> None:
    P = gaps()[300:]
    frontier = model.frontier(NEW, NEW_Y, predictions=P)
    [whole] = [point for point in frontier.points if point.setting == "all"]
    assert_allclose(whole.risk, np.mean((model.predict(NEW, P) - NEW_Y) ** 2))
    [two] = [p for p in frontier.points if (p.setting, p.value) == ("max_candidates", 2)]
    averages = model.predict(NEW, P, max_candidates=2)
    assert_allclose(two.risk, np.mean((averages - NEW_Y) ** 2))


def test_the_command_line_names_incomplete_rows(tmp_path: Any, monkeypatch: Any) -> None:
    pytest.importorskip("typer")
    csv = pytest.importorskip("pyarrow.csv")
    import pyarrow
    from typer.testing import CliRunner

    from localma.cli import app

    P = gaps(empty=2)
    columns = {"a": X[:, 0], "b": X[:, 1], "y": Y}
    columns |= {f"p_{m}": pyarrow.array(P[:, m], from_pandas=True) for m in range(3)}
    table = pyarrow.table(columns)
    monkeypatch.chdir(tmp_path)
    csv.write_csv(table.slice(0, 300), "train.csv")
    csv.write_csv(table.slice(300), "new.csv")

    def call(name: str, *options: str, code: int = 0) -> Any:
        called = CliRunner().invoke(app, [name, *options])
        assert called.exit_code == code, called.output
        return called

    fit = ["train.csv", "--target", "y", "--predictions", "p_*", "--out", "m.localma"]
    call("fit", *fit, "--missing", "renormalize")
    told = call("evaluate", "m.localma", "new.csv", "--target", "y", "--no-control")
    assert "Predictions are missing in" in told.stdout
    call("explain", "m.localma", "new.csv", "--row", "0")
    refused = str(call("explain", "m.localma", "new.csv", "--row", "299", code=1).exception)
    assert "No candidate has a prediction in line 301 of new.csv" in refused
    refused = str(call("predict", "m.localma", "new.csv", "--out", "s.csv", code=1).exception)
    assert "No candidate has a prediction in lines 300 and 301 of new.csv" in refused
    assert "add --missing nan" in refused
    options = ["new.csv", "--out", "s.csv", "--missing", "nan", "--interval", "0.9"]
    call("predict", "m.localma", *options)
    scored = csv.read_csv("s.csv")
    assert [scored[name].null_count for name in ("prediction", "low", "high")] == [2, 2, 2]


# --- own candidates ------------------------------------------------------------------------------


def columns(own: Any = None, **models: Any) -> LocalMARegressor:
    """A pool of columns of X, of which some have gaps."""
    from localma import Column

    pool = {"a": Column(2), "b": Column(3), "c": Column(4), **models}
    return LocalMARegressor(pool, own=own, random_state=0, missing="renormalize")


@pytest.mark.parametrize("own", ["auto", None])
def test_own_candidates_of_incomplete_predictions(own: Any) -> None:
    models = {}
    if own is None:
        models["stack"] = CrossFitted(LinearRegression(), predictions=True)
    y = Y + 0.7 * X[:, 1]
    table = np.column_stack([X, gaps()])
    model = columns(own, **models).fit(table[:300], y[:300])
    predicted = model.predict(table[300:])
    assert np.isfinite(predicted).all()
    assert np.mean((predicted - y[300:]) ** 2) < 0.7 * np.var(y)
    low, high = model.predict_interval(table[300:], 0.8)
    assert 0.7 < ((low <= y[300:]) & (y[300:] <= high)).mean() < 0.95
    compared = evaluate(model, table[300:], y[300:], control=False)
    assert_allclose(compared.model.loss.value, np.mean((predicted - y[300:]) ** 2))
    assert "Predictions are missing in" in compared.incomplete


def test_a_classifier_that_takes_incomplete_predictions() -> None:
    P, y = classes()

    def chance(m: int) -> Any:
        def probabilities(rows: np.ndarray) -> np.ndarray:
            p = 1 / (1 + np.exp(-3 * rows[:, m]))
            p = np.where(np.sin(1e4 * rows[:, 0]) > 0.8, np.nan, p) if m == 0 else p
            return np.column_stack([1 - p, p])

        return as_candidate(probabilities, classes=["no", "yes"])

    pool = {
        "first": chance(0),
        "second": chance(1),
        "stack": CrossFitted(LogisticRegression(), predictions=True),
    }
    model = LocalMAClassifier(pool, random_state=0, missing="renormalize").fit(X[:300], y[:300])
    proba = model.predict_proba(NEW)
    assert_allclose(proba.sum(axis=1), 1.0)
    assert model.score(NEW, y[300:]) > 0.75
    assert P.shape[2] == proba.shape[1]


def test_the_average_of_completed_predictions() -> None:
    """Global weights: the completed mixture is the renormalised one."""
    from localma.production.completed import completed

    P = gaps()
    model = LocalMARegressor(gate="global", missing="renormalize")
    model.fit(X, 2 * X[:, 0], predictions=P)
    whole = completed(model, X, X, P)
    weights = np.broadcast_to(model.global_weights_, P.shape)
    assert_allclose(local_average(weights, whole.P), model.predict(X, P))
