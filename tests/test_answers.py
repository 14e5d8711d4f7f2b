"""Answers in production: missing and failing candidates, budgets, routing, and their records."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.candidates import Pool
from localma.errors import CandidateError, InvalidInputError, NoAnswerError
from localma.production import Answer, Breaker
from localma.production.answer import run_all
from localma.production.budget import MOST_ENUMERATED, Allowance
from localma.production.options import Options

pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")

random = np.random.default_rng(0)
X = random.uniform(-2, 2, size=(300, 2))
Y = np.abs(X[:, 0]) + 0.1 * random.normal(size=300)


class Switch:
    """A function of X that can be broken."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.rows: list[int] = []
        self.broken: Any = lambda X: None

    def __call__(self, X: np.ndarray) -> np.ndarray:
        self.rows.append(len(X))
        instead = self.broken(X)
        return self.function(X) if instead is None else instead


def raises(X: Any) -> None:
    raise ConnectionError("no route to host")


def switches() -> dict[str, Switch]:
    functions = {
        "left": lambda X: -X[:, 0],
        "right": lambda X: X[:, 0],
        "flat": lambda X: np.ones(len(X)),
    }
    return {name: Switch(function) for name, function in functions.items()}


def fitted(gate: str = "auto", **options: Any) -> tuple[LocalMARegressor, dict[str, Switch]]:
    candidates = switches()
    model = LocalMARegressor(candidates, gate=gate, random_state=0, **options).fit(X, Y)
    for switch in candidates.values():
        switch.rows.clear()
    return model, candidates


@pytest.fixture(scope="module")
def local() -> tuple[LocalMARegressor, dict[str, Switch]]:
    return fitted()


@pytest.fixture
def model(local: tuple[LocalMARegressor, dict[str, Switch]]) -> Any:
    """The model that all tests share, with whole candidates and closed breakers."""
    shared, candidates = local
    for switch in candidates.values():
        switch.broken = lambda X: None
        switch.rows.clear()
    shared.pool_ = Pool(candidates, task="regression")
    return shared


def candidates_of(model: Any) -> dict[str, Any]:
    return {
        name: candidate.function
        for name, candidate in zip(model.pool_.names, model.pool_.candidates, strict=True)
    }


def renormalised(model: Any, out: list[int], rows: np.ndarray = X) -> np.ndarray:
    """The averages without some candidates, by hand."""
    W, P = model.predict_weights(rows), model.candidate_predictions(rows)
    W = np.delete(W, out, axis=1)
    return (W * np.delete(P, out, axis=1)).sum(axis=1) / W.sum(axis=1)


# --- the record --------------------------------------------------------------------------------


def test_an_answer_without_trouble_is_the_prediction(model: Any) -> None:
    answer = model.answer(X)
    assert_array_equal(answer.prediction, model.predict(X))
    weights, support = model.predict_weights(X, return_support=True)
    assert_array_equal(answer.weights, weights)
    assert_array_equal(answer.support, support)
    assert_array_equal(answer.asked, weights > 0)
    assert answer.cost == answer.asked.sum()
    assert (answer.failures, answer.change_bound.max()) == ([], 0.0)
    assert 0 < answer.candidate_seconds.sum() <= answer.seconds


def test_given_predictions_need_no_candidate(model: Any) -> None:
    P = model.candidate_predictions(X)
    calls = candidates_of(model)["left"].rows.copy()
    answer = model.answer(X, P)
    assert_allclose(answer.prediction, model.predict(X, P), rtol=1e-6)
    assert (answer.asked.any(), answer.cost) == (False, 0.0)
    assert candidates_of(model)["left"].rows == calls


def test_the_record_prints_as_a_table_and_goes_through_json(model: Any) -> None:
    candidates_of(model)["left"].broken = raises
    answer = model.answer(X, missing="renormalize")
    printed = str(answer)
    assert "Candidate 'left' raised ConnectionError: no route to host (300 rows)." in printed
    assert "<td>left</td>" in answer._repr_html_()
    again = Answer.from_dict(json.loads(json.dumps(answer.to_dict())))
    assert_array_equal(again.prediction, answer.prediction)
    assert_array_equal(again.asked, answer.asked)
    assert again.failures == answer.failures
    assert str(again) == printed


def test_the_table_as_a_frame(model: Any) -> None:
    pytest.importorskip("pandas")
    frame = model.answer(X).to_frame()
    assert frame["candidate"].tolist() == ["left", "right", "flat"]
    assert frame["rows_failed"].tolist() == [0, 0, 0]


# --- missing and failing candidates ------------------------------------------------------------


def nan_in_some(X: np.ndarray) -> np.ndarray:
    return np.where(X[:, 1] > 0, np.nan, -X[:, 0])


@pytest.mark.parametrize(
    ("broken", "reason", "is_missing"),
    [
        (raises, "error", np.ones(300, dtype=bool)),
        (lambda X: np.full(len(X), np.nan), "missing", np.ones(300, dtype=bool)),
        (nan_in_some, "missing", X[:, 1] > 0),
        (lambda X: np.full(len(X), np.inf), "missing", np.ones(300, dtype=bool)),
        (lambda X: np.ones((len(X), 2)), "error", np.ones(300, dtype=bool)),
    ],
)
def test_the_others_answer_for_a_missing_candidate(
    model: Any, broken: Any, reason: str, is_missing: np.ndarray
) -> None:
    whole, without = model.predict(X), renormalised(model, [0])
    had_weight = model.predict_weights(X)[:, 0] > 0
    candidates_of(model)["left"].broken = broken
    answer = model.answer(X, missing="renormalize")
    assert_allclose(answer.prediction, np.where(is_missing & had_weight, without, whole))
    [failure] = answer.failures
    assert (failure.candidate, failure.reason) == ("left", reason)
    assert failure.rows == np.flatnonzero(is_missing & had_weight).tolist()
    assert_allclose(answer.weights.sum(axis=1), 1.0)


def test_by_default_a_missing_candidate_is_an_error(model: Any) -> None:
    candidates_of(model)["left"].broken = raises
    for ask in (model.predict, model.answer):
        with pytest.raises(CandidateError, match="'left' raised ConnectionError"):
            ask(X)
    candidates_of(model)["left"].broken = lambda X: hang()
    with pytest.raises(CandidateError, match=r"did not answer within .* With missing='renorm"):
        model.answer(X, timeout=0.05)


def hang() -> None:
    from threading import Event

    Event().wait(30)


def test_the_bound_holds(model: Any) -> None:
    whole = model.predict(X)
    candidates_of(model)["right"].broken = raises
    answer = model.answer(X, missing="renormalize")
    change = np.abs(answer.prediction - whole)
    assert (change <= answer.change_bound + 1e-9).all()
    assert change.max() > 0.1 * answer.change_bound.max()


def test_rows_without_any_candidate(model: Any) -> None:
    for switch in candidates_of(model).values():
        switch.broken = lambda X: np.where(X[:, 1] > 1, np.nan, 0.5)
    dead = np.flatnonzero(X[:, 1] > 1)
    with pytest.raises(
        NoAnswerError, match=rf"No candidate is left in {len(dead)} of 300"
    ) as error:
        model.predict(X, missing="renormalize")
    assert error.value.rows == tuple(dead)
    assert pickle.loads(pickle.dumps(error.value)).rows == tuple(dead)
    prediction = model.predict(X, missing="nan")
    assert_array_equal(np.flatnonzero(np.isnan(prediction)), dead)
    assert_allclose(np.delete(prediction, dead), 0.5)


def test_candidates_without_weight_are_asked_if_all_others_fail() -> None:
    model, candidates = fitted("global")
    model.gate_.weights_ = np.array([1.0, 0.0, 0.0])
    model.global_weights_ = np.array([0.8, 0.2, 0.0])
    candidates["left"].broken = raises
    answer = model.answer(X, missing="renormalize")
    assert_array_equal(answer.prediction, X[:, 0])
    assert candidates["flat"].rows == []
    candidates["right"].broken = raises
    assert_array_equal(model.answer(X, missing="renormalize").prediction, np.ones(300))


def test_absent_predictions_may_be_given(model: Any) -> None:
    P = model.candidate_predictions(X)
    given = {"right": P[:, 1], "flat": P[:, 2]}
    with pytest.raises(InvalidInputError, match="without predictions: 'left'"):
        model.predict(X, given)
    assert_allclose(model.predict(X, given, missing="renormalize"), renormalised(model, [0]))
    answer = model.answer(X, given, missing="renormalize")
    assert [failure.text for failure in answer.failures] == ["has no prediction"]
    with pytest.raises(InvalidInputError, match="Unknown candidate 'up'"):
        model.predict(X, given | {"up": P[:, 0]}, missing="renormalize")


def probability(classes: list[str], function: Any) -> Any:
    return as_candidate(Switch(function), classes=classes)


def test_classes() -> None:
    labels = np.where(X[:, 0] > 0, "yes", "no")
    candidates = {
        "steep": probability(["no", "yes"], lambda X: 1 / (1 + np.exp(-3 * X[:, 0]))),
        "flat": probability(["no", "yes"], lambda X: np.full(len(X), 0.5)),
    }
    model = LocalMAClassifier(candidates, gate="equal", missing="nan").fit(X, labels)
    answer = model.answer(X)
    assert_array_equal(answer.prediction, model.predict(X))
    assert_array_equal(answer.probabilities, model.predict_proba(X))
    candidates["steep"].function.broken = raises
    assert_allclose(model.predict_proba(X), 0.5)
    candidates["flat"].function.broken = lambda X: np.where(X[:, 1] > 0, np.nan, 0.9)
    answer = model.answer(X)
    assert (answer.prediction[X[:, 1] > 0] == None).all()  # noqa: E711
    assert (answer.prediction[X[:, 1] <= 0] == "yes").all()
    assert np.isnan(answer.probabilities[X[:, 1] > 0]).all()
    assert (np.nan_to_num(answer.change_bound) <= 1.0).all()


def test_retries_find_the_rows_that_fail(model: Any) -> None:
    bad = X[:, 1] > 1.9

    def broken(rows: np.ndarray) -> None:
        if (rows[:, 1] > 1.9).any():
            raise ValueError("out of range")

    whole, without = model.predict(X), renormalised(model, [1])
    weights = model.predict_weights(X)[:, 1] > 0
    candidates_of(model)["right"].broken = broken
    answer = model.answer(X, missing="renormalize", retries={"right": 500})
    assert_allclose(answer.prediction, np.where(bad & weights, without, whole))
    [failure] = answer.failures
    assert failure.rows == np.flatnonzero(bad & weights).tolist()
    calls = candidates_of(model)["right"].rows
    calls.clear()
    model.answer(X, missing="renormalize", retries=3)
    assert len(calls) == 4


def test_a_single_row_is_tried_again(model: Any) -> None:
    failures = iter([True, True, False])

    def broken(rows: np.ndarray) -> None:
        if next(failures):
            raise TimeoutError("busy")

    candidates_of(model)["right"].broken = broken
    answer = model.answer([[1.0, 0.0]], missing="renormalize", retries=2)
    assert answer.failures == []
    assert answer.weights[0, 1] > 0


# --- fits ----------------------------------------------------------------------------------------


def incomplete(share: float) -> np.ndarray:
    P = np.column_stack([-X[:, 0], X[:, 0], np.ones(len(X))])
    P[np.random.default_rng(1).uniform(size=P.shape) < share] = np.nan
    return P


def test_fits_on_incomplete_predictions() -> None:
    P = incomplete(0.3)
    with pytest.raises(CandidateError, match="returned NaN"):
        LocalMARegressor(random_state=0).fit(X, Y, predictions=P)
    model = LocalMARegressor(random_state=0, missing="nan").fit(X, Y, predictions=P)
    whole = np.column_stack([-X[:, 0], X[:, 0], np.ones(len(X))])
    assert np.mean((model.predict(X, whole) - Y) ** 2) < 0.05
    has_any = ~np.isnan(P).all(axis=1)
    assert_array_equal(~np.isnan(model.predict(X, P)), has_any)


def test_global_weights_of_incomplete_predictions_minimise_the_renormalised_loss() -> None:
    """With rows weighted by the share of weight that is known, the fit is stationary."""
    P = incomplete(0.4)
    P = P[~np.isnan(P).all(axis=1)]
    y = Y[: len(P)] + P[:, 2].mean(where=~np.isnan(P[:, 2]))
    model = LocalMARegressor(gate="global", missing="renormalize")
    w = model.fit(np.zeros((len(P), 1)), y, predictions=P).global_weights_
    known = ~np.isnan(P)
    mass = known @ w
    mixture = np.nansum(w * P, axis=1) / np.where(mass > 0, mass, np.nan)
    usable = mass > 0
    residual = (mixture - y)[usable, None]
    slope = np.nansum(residual * np.where(known, P - mixture[:, None], 0.0)[usable], axis=0)
    free = w > 1e-6
    assert np.ptp(slope[free]) < 0.02 * np.abs(residual).sum()
    assert (slope[~free] >= slope[free].min() - 0.02 * np.abs(residual).sum()).all()


def test_columns_of_a_table_may_have_gaps() -> None:
    pandas = pytest.importorskip("pandas")
    from localma import Column

    frame = pandas.DataFrame(X, columns=["a", "b"])
    frame["north"], frame["south"] = np.where(X[:, 1] > 0, np.nan, -X[:, 0]), X[:, 0]
    pool = {name: Column(name) for name in ("north", "south")}
    model = LocalMARegressor(pool, gate="equal", missing="renormalize").fit(frame, Y)
    expected = np.where(X[:, 1] > 0, X[:, 0], 0.0)
    assert_allclose(model.predict(frame), expected)


def test_a_fit_without_any_prediction_is_refused() -> None:
    model = LocalMARegressor(gate="equal", missing="renormalize")
    with pytest.raises(InvalidInputError, match="all predictions of the 300 rows are missing"):
        model.fit(X, Y, predictions=np.full((300, 2), np.nan))


def test_missing_inputs_of_the_gate_are_still_refused() -> None:
    gaps = X.copy()
    gaps[3, 1] = np.nan
    model = LocalMARegressor(switches(), random_state=0, missing="renormalize")
    with pytest.raises(ValueError, match=r"(?i)nan"):
        model.fit(gaps, Y)


@pytest.mark.parametrize("gate", ["auto", "local", "global", "equal"])
def test_robust_weights_leave_out_the_candidate(gate: str, tmp_path: Any) -> None:
    model, candidates = fitted(gate, robust=True)
    inputs, W = X[:50], model.predict_weights(X[:50])
    for m in range(3):
        weights = model.left_out_.weights(m, inputs, W)
        assert_allclose(weights.sum(axis=1), 1.0)
        assert (weights[:, m] == 0).all()
        assert (weights >= 0).all()
    candidates["left"].broken = raises
    expected = model.answer(X, missing="renormalize")
    model.save(tmp_path / "m.localma", probes=False)
    again = load(tmp_path / "m.localma", candidates=candidates, probes=False)
    assert_array_equal(again.predict(X, missing="renormalize"), expected.prediction)
    assert again.left_out_ is not None
    assert_allclose(again.answer(X, missing="nan").change_bound, expected.change_bound)


def test_robust_weights_are_better_than_renormalised_ones() -> None:
    """Where the best candidate fails, its neighbour should take over, not the other side."""
    x = np.random.default_rng(2).uniform(0, 3, size=(600, 1))
    truth = np.floor(x[:, 0])
    candidates = {str(k): Switch(lambda X, k=k: np.full(len(X), float(k))) for k in range(3)}
    candidates["near"] = Switch(lambda X: np.floor(X[:, 0]) + 0.3)
    risks = {}
    for robust in (False, True):
        model = LocalMARegressor(candidates, random_state=0, robust=robust).fit(x, truth)
        P = model.candidate_predictions(x)
        P[:, 3] = np.nan
        predicted = model.predict(x, P, missing="renormalize")
        risks[robust] = np.mean((predicted - truth) ** 2)
    assert risks[True] < 0.5 * risks[False]


def test_two_failures_of_a_robust_model() -> None:
    model, candidates = fitted(robust=True)
    candidates["left"].broken = candidates["right"].broken = raises
    assert_allclose(model.predict(X, missing="renormalize"), 1.0)


def test_parameters_are_checked_and_cloned() -> None:
    model = LocalMARegressor(switches(), missing="renormalize", robust=True)
    assert clone(model).get_params()["missing"] == "renormalize"
    for wrong in ({"missing": "skip"}, {"robust": "yes"}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            LocalMARegressor(switches(), **wrong).fit(X, Y)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("robust", [False, True])
def test_own_candidates_without_a_prediction_that_they_take(robust: bool, given: bool) -> None:
    candidates = switches()
    model = LocalMARegressor(
        candidates, own=["direct"], random_state=0, robust=robust, missing="renormalize"
    ).fit(X, Y + 0.5 * X[:, 1])
    [own] = model.pool_.stacked_names
    assert_allclose(model.predict(X), model.answer(X).prediction)
    assert_allclose(model.answer(X, missing="error").prediction, model.predict(X))
    P = {name: switch(X) for name, switch in candidates.items()}
    assert_allclose(model.predict(X, P), model.predict(X), rtol=1e-4)
    if given:
        answer = model.answer(X, P | {"left": np.full(300, np.nan)})
    else:
        candidates["left"].broken = raises
        answer = model.answer(X)
    assert np.isfinite(answer.prediction).all()
    assert (answer.weights[:, 0] == 0).all()
    weight = answer.weights[:, model.candidate_names_.index(own)]
    lost = model.predict_weights(X)[:, 0] > 0
    assert (weight[lost] == 0).all() == robust
    candidates["left"].broken = lambda X: np.full(len(X), np.nan)
    missing = np.isnan(run_all(model, X, Options()).with_gaps()).all(axis=0)
    assert missing.tolist() == [name == "left" for name in model.candidate_names_]
    costs = dict.fromkeys(model.candidate_names_, 1.0)
    cheap = model.answer(X, P, budget=1.0, costs=costs)
    assert (cheap.weights[:, -1] == 0).all()  # it needs three others


# --- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits", [{"budget": 3.0}, {"max_candidates": 2}, {"budget": 4.5, "max_candidates": 2}]
)
def test_the_subset_with_the_largest_weight_is_kept(limits: dict[str, Any]) -> None:
    generator = np.random.default_rng(3)
    costs = np.array([1.0, 2.5, 0.5, 3.0, 1.5])
    W = generator.dirichlet(np.full(5, 0.5), size=40)
    chosen = Allowance(costs, **limits).select(W, np.ones(W.shape, dtype=bool), np.ones(5))
    for w, mask in zip(W, chosen, strict=True):
        best = max(
            w[list(subset)].sum()
            for size in range(1, 6)
            for subset in combinations(range(5), size)
            if costs[list(subset)].sum() <= limits.get("budget", np.inf)
            and size <= limits.get("max_candidates", 5)
        )
        assert w[mask].sum() == pytest.approx(best)
        assert costs[mask].sum() <= limits.get("budget", np.inf)


def test_many_candidates_are_chosen_greedily() -> None:
    M = MOST_ENUMERATED + 5
    generator = np.random.default_rng(4)
    W, costs = generator.dirichlet(np.full(M, 0.3), size=50), generator.uniform(1, 3, size=M)
    allowance = Allowance(costs, budget=6.0, max_candidates=4)
    chosen = allowance.select(W, np.ones(W.shape, dtype=bool), np.ones(M))
    assert (chosen @ costs <= 6.0 + 1e-6).all()
    assert (chosen.sum(axis=1) <= 4).all()
    assert (W * chosen).sum(axis=1).mean() > 0.5
    assert ((W * chosen).sum(axis=1) >= W.max(axis=1) - 1e-6).all()


@pytest.mark.parametrize("M", [5, MOST_ENUMERATED + 1])
def test_candidates_that_others_need_count(M: int) -> None:
    generator = np.random.default_rng(5)
    W, costs = generator.dirichlet(np.ones(M), size=60), generator.uniform(1, 2, size=M)
    runs = np.eye(M, dtype=bool)
    runs[0, 1:3] = True  # the first candidate takes the predictions of two others
    allowance = Allowance(costs, budget=4.0, max_candidates=3, runs=runs)
    chosen = allowance.select(W, np.ones(W.shape, dtype=bool), np.ones(M))
    running = (chosen @ runs.astype(int)) > 0
    assert (running @ costs <= 4.0 + 1e-6).all()
    assert (running.sum(axis=1) <= 3).all()
    assert chosen.any(axis=1).all()


def test_a_candidate_runs_only_where_it_is_chosen(model: Any) -> None:
    answer = model.answer(X, max_candidates=1)
    assert (answer.asked.sum(axis=1) == 1).all()
    assert_array_equal(answer.asked.argmax(axis=1), model.predict_weights(X).argmax(axis=1))
    ran = [sum(switch.rows) for switch in candidates_of(model).values()]
    assert ran == answer.asked.sum(axis=0).tolist()
    assert answer.cost == 300
    P = model.candidate_predictions(X)
    assert_array_equal(answer.prediction, P[np.arange(300), answer.asked.argmax(axis=1)])


def test_small_weights_are_dropped(model: Any) -> None:
    W = model.predict_weights(X)
    answer = model.answer(X, min_weight=0.3)
    assert_array_equal(answer.asked, (W >= 0.3) | (W.max(axis=1, keepdims=True) == W))
    change = np.abs(answer.prediction - model.predict(X))
    assert (change <= answer.change_bound + 1e-9).all()


def test_another_candidate_replaces_a_chosen_one_that_fails(model: Any) -> None:
    candidates_of(model)["left"].broken = raises
    answer = model.answer(X, max_candidates=1, missing="renormalize")
    assert (answer.weights[:, 0] == 0).all()
    assert (answer.weights.max(axis=1) == 1.0).all()


def test_costs_are_measured_and_used(model: Any) -> None:
    costs = model.pool_.measure_costs(X)
    assert costs.shape == (3,)
    assert (costs > 0).all()
    by_name = dict(zip(model.candidate_names_, costs.tolist(), strict=True))
    answer = model.answer(X, budget=float(costs.sum()), costs=by_name)
    assert_allclose(answer.prediction, model.predict(X))
    assert answer.cost == pytest.approx(float((answer.asked * costs).sum()))
    with pytest.raises(InvalidInputError, match="repeats must be 1 or more"):
        model.pool_.measure_costs(X, repeats=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 0.5}, "No candidate fits a budget of 0.5 per row; the cheapest one, 'left'"),
        ({"budget": float("nan")}, "budget must be a finite number above 0"),
        ({"costs": [1.0, np.nan, 1.0]}, "candidate 'right' has nan"),
        ({"costs": {"left": 1.0}}, "without a cost: 'right', 'flat'"),
        ({"costs": {"lift": 1.0}}, "Unknown candidate 'lift'; did you mean 'left'"),
        ({"costs": [1.0]}, "one number for each of the 3 candidates"),
        ({"costs": ["a", "b", "c"]}, "costs must be numbers"),
        ({"timeout": {"lift": 1.0}}, "timeout: Unknown candidate 'lift'"),
        ({"timeout": 0.0}, "timeout must be a number of seconds above 0"),
        ({"retries": -1}, "retries must be a whole number of 0 or more"),
        ({"deadline": 0}, "deadline must be a finite number above 0"),
        ({"max_candidates": 1.5}, "max_candidates must be a whole number"),
        ({"min_weight": 1.0}, "min_weight must be a number from 0"),
        ({"missing": "skip"}, "Unknown way to treat missing predictions 'skip'"),
        ({"breaker": 5}, "breaker must be a localma.production.Breaker"),
    ],
)
def test_wrong_options_are_refused_and_nothing_changes(
    model: Any, options: dict[str, Any], words: str
) -> None:
    before = model.predict(X)
    with pytest.raises(InvalidInputError, match=words):
        model.answer(X, **options)
    assert_array_equal(model.predict(X), before)
    assert [entry.state for entry in model.health().candidates] == ["closed"] * 3


def test_unknown_options_are_refused(model: Any) -> None:
    with pytest.raises(TypeError, match="'max_candidate'; did you mean 'max_candidates'"):
        model.predict(X, max_candidate=1)


def test_breakers_are_checked() -> None:
    for wrong in ({"failures": 0}, {"failures": 1.5}, {"pause": -1.0}, {"pause": float("inf")}):
        with pytest.raises(InvalidInputError, match="Breaker"):
            Breaker(**wrong)  # type: ignore[arg-type]


def test_the_frontier_finds_a_cheaper_setting(model: Any) -> None:
    frontier = model.frontier(X, Y, costs=[1.0, 1.0, 5.0], max_increase=0.05)
    every = next(point for point in frontier.points if point.setting == "all")
    best = frontier.cheapest
    assert best.cost < every.cost
    assert best.risk <= 1.05 * every.risk
    predicted = model.predict(X, **best.options(), costs=[1.0, 1.0, 5.0])
    assert np.mean((predicted - Y) ** 2) == pytest.approx(best.risk)
    costs = [point.cost for point in frontier.points]
    assert costs == sorted(costs)
    assert "The cheapest setting with at most" in str(frontier)
    with pytest.raises(InvalidInputError, match="max_increase must be"):
        model.frontier(X, Y, max_increase=-1.0)


def test_the_frontier_can_be_drawn(model: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    display = model.frontier(X, Y).plot()
    assert display.ax_.get_xlabel() == "cost per row"
    pyplot.close(display.figure_)


def test_routes_name_the_candidate_and_the_rule(model: Any) -> None:
    route = model.route(X)
    W = model.predict_weights(X)
    assert route.candidate == [model.candidate_names_[m] for m in W.argmax(axis=1)]
    assert_array_equal(route.weight, W.max(axis=1))
    rules = dict.fromkeys(route.rule)
    assert any("is trusted most where" in rule for rule in rules)
    assert len(model.route(X[:3]).rule) == 3


def test_routes_of_constant_weights() -> None:
    model, _ = fitted("equal")
    assert set(model.route(X).rule) == {"left is trusted most in every row"}


# --- threads -------------------------------------------------------------------------------------


def test_sixteen_threads_answer_as_one(model: Any) -> None:
    def broken(rows: np.ndarray) -> None:
        if int(abs(rows[0, 1]) * 1e6) % 10 == 0:
            raise ValueError("a row that fails")

    candidates_of(model)["left"].broken = candidates_of(model)["flat"].broken = broken

    def ask(k: int) -> tuple[float, int]:
        answer = model.answer(X[k : k + 1], missing="nan", breaker=None)
        return float(answer.prediction[0]), len(answer.failures)

    expected = [ask(k) for k in range(300)]
    assert sum(failures for _, failures in expected) > 10
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(ask, range(300))) == expected
