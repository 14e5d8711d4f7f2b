"""Each part of a summary against values known exactly."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.metrics import log_loss, mean_absolute_error, mean_squared_error, r2_score
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from localma import Column, LocalMAClassifier, LocalMARegressor, as_candidate
from localma.errors import InvalidInputError
from localma.formatting import resolved
from localma.inspection import compare, evaluate, explain, observe, summarize
from localma.inspection.comparison import constant_predictions
from localma.inspection.effects import choose_features, importance, weight_effects, weight_map
from localma.inspection.features import (
    Feature,
    make_bins,
    read_features,
    shuffle_column,
)
from localma.inspection.observed import most_trusted
from localma.inspection.regions import (
    Condition,
    describe_regions,
    find_regions,
    region_errors,
    shortest_cut,
)
from localma.inspection.reliability import reliability
from localma.inspection.summary import disagreement, spread, support
from localma.losses import tweedie
from localma.tables.encoder import GateFeatures
from localma.tables.frames import dense

# The toys are exact: a candidate may be the target, and constant weights worse than a constant.
pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")


def sentences(model, X, **how):
    seen = observe(model, X, **how)
    return [region.sentence for region in describe_regions(seen, find_regions(seen)).regions]


# Regions


def test_regions_of_a_step_are_exact(step):
    seen = observe(step.model, step.X)
    part = describe_regions(seen, find_regions(seen))
    assert [region.sentence for region in part.regions] == [
        "low is trusted most where x0 <= 0",
        "high is trusted most where x0 > 0",
    ]
    assert part.faithfulness.to_dict() == {"r2": 1.0, "agreement": 1.0, "n_held_out": 34}
    assert [region.n for region in part.regions] == [50, 50]
    assert [region.weights for region in part.regions] == [[1.0, 0.0], [0.0, 1.0]]
    assert part.regions[0].conditions == [Condition("x0", "x0 <= 0")]
    assert part.sentence.startswith("2 regions explain 100% of the variation of the weights")


def test_constant_weights_have_no_regions_importance_or_effects(step):
    bare = LocalMARegressor(step.model.candidates, gate="equal").fit(step.X, step.y)
    seen = observe(bare, step.X)
    part = describe_regions(seen, find_regions(seen))
    assert part.regions == []
    assert part.sentence == "The weights are the same for every row."
    assert part.faithfulness.r2 is None
    assert importance(seen).rows == []
    assert weight_effects(seen, seen.features).effects == []
    summary = summarize(bare, step.X, step.y, control=False)
    assert summary.map is None
    assert summary.region_errors is None
    assert set(summary.rows.region) == {None}
    assert explain(bare, step.X, 0).region is None


@pytest.mark.parametrize(("moved", "vary"), [(1e-9, False), (0.0009, False), (0.01, True)])
def test_weights_vary_if_some_row_moves_a_thousandth_of_the_weight(step, step_gate, moved, vary):
    gate = step_gate(high=0.5 + moved)  # half of the rows on either side
    model = LocalMARegressor(step.model.candidates, gate=gate).fit(step.X, step.y)
    assert observe(model, step.X).weights_vary == vary
    described = summarize(model, step.X, control=False)
    assert bool(described.regions.regions) == vary
    assert bool(described.importance) == vary
    assert observe(model, step.X[:1]).weights_vary  # one row says nothing of others


def categories_model(step_gate, frame, transformer):
    y = np.zeros(len(frame))
    return LocalMARegressor(
        {"a": lambda X: np.zeros(len(X)), "b": lambda X: np.ones(len(X))},
        gate=step_gate(),
        gate_features=transformer,
    ).fit(frame, y)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_regions_name_categories_not_their_encoding(step_gate, library):
    frames = pytest.importorskip(library)
    districts = np.array(["Xuhui", "Jingan", "Pudong", "Minhang", "Xuhui"] * 30)
    frame = frames.DataFrame({"district": districts, "area": np.arange(150.0)})
    # The gate sees 1 for Xuhui, so the second candidate has all the weight there.
    encode = make_column_transformer(
        (OneHotEncoder(categories=[["Xuhui"]], handle_unknown="ignore"), ["district"]),
        sparse_threshold=0,
    )
    model = categories_model(step_gate, frame, encode)
    assert sentences(model, frame) == [
        "a is trusted most where district is not Xuhui",
        "b is trusted most where district is Xuhui",
    ]
    features = observe(model, frame).features
    assert [(feature.name, feature.kind) for feature in features] == [
        ("district", "categorical"),
        ("area", "numeric"),
    ]
    ranked = importance(observe(model, frame))
    assert [row.feature for row in ranked] == ["district", "area"]
    assert ranked[1].value == 0.0
    assert ranked[0].relative == 1.0


def test_regions_join_categories_in_one_condition(step_gate, pd):
    letters = np.array(list("abcdefgh") * 20)
    frame = pd.DataFrame({"letter": letters})
    tail = FunctionTransformer(lambda X: (X[["letter"]] > "e").astype(float))
    assert sentences(categories_model(step_gate, frame, tail), frame) == [
        "a is trusted most where letter is not f, g or h",
        "b is trusted most where letter is f, g or h",
    ]


def test_regions_read_one_hot_columns(step_gate, pd):
    codes = np.arange(120) % 3
    frame = pd.DataFrame(np.eye(3)[codes], columns=["city_Bern", "city_Oslo", "city_Rome"]).assign(
        size=np.arange(120.0)
    )
    # Where the gate sees one column alone, nothing tells that it is part of an encoding.
    model = categories_model(step_gate, frame, ["city_Oslo"])
    assert sentences(model, frame) == [
        "a is trusted most where city_Oslo = 0",
        "b is trusted most where city_Oslo = 1",
    ]
    everything = FunctionTransformer(lambda X: X[["city_Oslo"]])
    assert sentences(categories_model(step_gate, frame, everything), frame) == [
        "a is trusted most where city is not Oslo",
        "b is trusted most where city is Oslo",
    ]


def test_regions_speak_of_features_that_the_gate_uses(step_gate, pd):
    used = np.linspace(-1, 1, 100)
    frame = pd.DataFrame({"twin": 2 * used + 5, "used": used})
    model = categories_model(step_gate, frame, FunctionTransformer(lambda X: X[["used"]]))
    assert sentences(model, frame) == [
        "a is trusted most where used <= 0",
        "b is trusted most where used > 0",
    ]


def test_regions_know_missing_values(step_gate, pd):
    frame = pd.DataFrame({"area": np.where(np.arange(90) % 3 == 0, np.nan, np.arange(90.0))})
    model = categories_model(
        step_gate, frame, FunctionTransformer(lambda X: X[["area"]].isna().astype(float))
    )
    assert sentences(model, frame) == [
        "a is trusted most where area is known",
        "b is trusted most where area is missing",
    ]


def test_regions_speak_of_dates(step_gate, pd):
    days = pd.date_range("2024-01-01", periods=100)
    frame = pd.DataFrame({"day": days})
    late = FunctionTransformer(lambda X: (X[["day"]] > "2024-02-19").astype(float))
    assert sentences(categories_model(step_gate, frame, late), frame) == [
        "a is trusted most where day <= 2024-02-19",
        "b is trusted most where day > 2024-02-19",
    ]


def test_regions_part_all_rows(classifier):
    seen = observe(classifier.model, classifier.X)
    part = describe_regions(seen, find_regions(seen))
    assert sum(region.n for region in part.regions) == len(seen)
    assert sum(region.share for region in part.regions) == pytest.approx(1)


def test_rows_without_weight_do_not_draw_regions(step):
    weight = (step.X[:, 0] <= 0).astype(float)
    seen = observe(step.model, step.X, sample_weight=weight)
    part = describe_regions(seen, find_regions(seen))
    assert sum(region.share for region in part.regions) == pytest.approx(1)
    assert part.regions[0].most_trusted == "low"


@given(
    st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=2, max_size=150, unique=True),
    st.randoms(),
)
@settings(deadline=None)
def test_a_short_cut_moves_hardly_any_row(values, random):
    values = np.sort(values)
    place = random.randrange(len(values) - 1)
    cut = (values[place] + values[place + 1]) / 2
    moved = abs((values <= shortest_cut(values, cut)).sum() - (values <= cut).sum())
    assert moved * 200 <= len(values)


# Comparison


def test_comparison_of_a_step_is_exact(step):
    part = evaluate(step.model, step.X, step.y, control=False)
    losses = {entry.name: entry.loss.value for entry in part.entries}
    assert losses == pytest.approx(
        {"low": 2.0, "high": 2.0, "equal weights": 1.0, "global weights": 1.0, "local weights": 0.0}
    )
    assert part.best == 4
    low = part.entries[0]
    # Half of the losses are 4 and half 0: standard deviation 2 sqrt(100 / 99), over ten.
    error = 0.2 * np.sqrt(100 / 99)
    assert low.loss.standard_error == pytest.approx(error)
    assert low.to_model.to_dict() == pytest.approx(
        {"value": 2.0, "standard_error": error, "is_clear": 1}
    )
    assert low.to_best == low.to_model
    assert part.entries[4].to_model.to_dict() == {
        "value": 0.0,
        "standard_error": 0.0,
        "is_clear": False,
    }
    assert part.control.sentence == "The control was not fitted: it was not requested."
    assert "2.00 ± 0.20 lower than the best candidate (low)" in part.sentence


def test_plain_measures_are_those_of_scikit_learn(classifier, step):
    part = evaluate(classifier.model, classifier.X, classifier.y, control=False)
    p = classifier.model.predict_proba(classifier.X)
    local = part.entries[-1].metrics
    assert local["log_loss"].value == pytest.approx(log_loss(classifier.y, p))
    assert local["accuracy"].value == classifier.model.score(classifier.X, classifier.y)
    happened = classifier.y[:, None] == classifier.model.classes_
    assert local["brier"].value == pytest.approx(mean_squared_error(happened, p))
    noisy = step.y + np.random.default_rng(0).normal(size=100)
    weight = np.random.default_rng(1).uniform(size=100)
    part = evaluate(step.model, step.X, noisy, sample_weight=weight, control=False)
    local, f = part.entries[-1], step.model.predict(step.X)
    assert local.metrics["r2"].value == pytest.approx(r2_score(noisy, f, sample_weight=weight))
    assert local.metrics["mae"].value == pytest.approx(
        mean_absolute_error(noisy, f, sample_weight=weight)
    )
    assert local.metrics["rmse"].value ** 2 == pytest.approx(local.loss.value)


@pytest.mark.filterwarnings("ignore::localma.errors.TrainedOnSampleWarning")
def test_standard_errors_of_measures_are_those_of_the_bootstrap(step):
    rng = np.random.default_rng(0)
    y = step.y + rng.normal(size=100)
    seen = observe(step.model, step.X, y)
    metrics = compare(seen, control=False).entries[0].metrics
    draws = [
        compare(seen.take(rng.integers(0, 100, 100)), control=False).entries[0].metrics
        for _ in range(300)
    ]
    for name in ("rmse", "mae", "r2"):
        spread_of_draws = np.std([draw[name].value for draw in draws])
        assert metrics[name].standard_error == pytest.approx(spread_of_draws, rel=0.2)


def test_standard_errors_between_groups_are_those_of_a_bootstrap_of_groups(step):
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(25), 4)
    y = step.y + rng.normal(size=25)[groups] + 0.1 * rng.normal(size=100)
    seen = observe(step.model, step.X, y, groups=[f"patient {k}" for k in groups])
    part = compare(seen, control=False)
    assert part.n_groups == 25
    draws = []
    for _ in range(300):
        rows = (4 * rng.integers(0, 25, 25)[:, np.newaxis] + np.arange(4)).ravel()
        draws.append(compare(seen.take(rows), control=False).entries[0])
    told, untold = (
        evaluate(step.model, step.X, y, groups=given, control=False).entries[0]
        for given in (groups, None)
    )
    for name in ("rmse", "mae", "r2"):
        spread_of_draws = np.std([draw.metrics[name].value for draw in draws])
        assert told.metrics[name].standard_error == pytest.approx(spread_of_draws, rel=0.2)
    assert told.loss.value == untold.loss.value
    for of in ("loss", "to_model"):
        assert getattr(told, of).standard_error > 1.5 * getattr(untold, of).standard_error


def test_errors_of_regions_and_bins_are_between_groups(classifier, step):
    groups = np.repeat(np.arange(10), len(classifier.y) // 10 + 1)[: len(classifier.y)]
    errors = [
        reliability(observe(classifier.model, classifier.X, classifier.y, groups=given)).curves
        for given in (None, groups)
    ]
    assert errors[0][0].observed == errors[1][0].observed
    assert errors[0][0].standard_error != errors[1][0].standard_error
    y, halves = step.y + np.repeat([1.0, -1.0], 50), np.arange(100) // 50
    seen = observe(step.model, step.X, y, groups=halves)
    part = region_errors(seen, find_regions(seen))
    # Each of the two regions is one group, which cannot say how groups differ.
    assert [region.standard_error for region in part.regions] == [[None] * 5] * 2


def test_one_group_is_no_evidence(step):
    part = evaluate(step.model, step.X, step.y, groups=np.ones(100))
    assert part.n_groups == 1
    assert {entry.loss.standard_error for entry in part.entries} == {None}
    assert part.claim == (
        "Mean squared error with local weights: 0.00. "
        "This is 2.00 lower than the best candidate (low) and 1.00 lower than global weights, "
        "with unknown precision."
    )
    assert (
        part.control.sentence == "The control was not fitted: it needs 5 groups, and there are 1."
    )
    weight = (np.arange(100) < 30).astype(float)
    few = evaluate(step.model, step.X, step.y, groups=np.arange(100) // 10, sample_weight=weight)
    assert few.n_groups == 3


def test_differences_that_are_not_clear_are_named_together(classifier):
    rows = slice(0, 12)
    part = evaluate(classifier.model, classifier.X[rows], classifier.y[rows], control=False)
    best = part.entries[part.best_candidate].name
    assert part.claim.startswith("Mean cross-entropy with local weights: ")
    unclear = f"This is not clearly different from the best candidate ({best}) or global weights."
    assert unclear in part.claim


def test_control_keeps_groups_whole():
    # Inputs give the group away, and the group gives the target away, in the sample alone.
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 60)
    X = rng.normal(size=(20, 2))[groups] + 1e-3 * rng.normal(size=(1200, 2))
    y = rng.normal(size=20)[groups]
    model = LocalMARegressor({"zero": lambda X: np.zeros(len(X)), "one": lambda X: X[:, 0]})
    model = model.set_params(gate="local", random_state=0).fit(X, y)
    told, untold = (
        evaluate(model, X, y, groups=given).entries[-1].loss for given in (groups, None)
    )
    assert untold.value < 0.3 * y.var()
    assert told.value > y.var()
    few = evaluate(model, X, y, groups=groups % 4).control.sentence
    assert few == "The control was not fitted: it needs 5 groups, and there are 4."


def test_control_tells_a_predictor_in_disguise_from_a_choice():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=400)
    X = x[:, None]
    # The gate could do it alone: the candidates are constants themselves.
    disguise = LocalMARegressor(
        {"low": lambda X: np.full(len(X), -2.0), "high": lambda X: np.full(len(X), 2.0)},
        gate="local",
        random_state=0,
    )
    y = x + rng.normal(size=400)
    told = evaluate(disguise.fit(X[:200], y[:200]), X[200:], y[200:])
    assert "the gate may predict the target by itself" in told.control.sentence
    assert told.entries[-1].kind == "control"
    # And it can do better than candidates that are stuck between the targets.
    narrow = LocalMARegressor(
        {"low": lambda X: np.full(len(X), -0.1), "high": lambda X: np.full(len(X), 0.1)},
        gate="local",
        random_state=0,
    ).fit(X[:200], y[:200])
    better = evaluate(narrow, X[200:], y[200:]).control.sentence
    assert "the gate does better without the candidates" in better
    assert told.control.n_rows == 200
    # Here it could not: the candidates know a coordinate that the gate does not see.
    hidden = rng.normal(size=400)
    both = np.column_stack([x, hidden])
    target = np.where(x > 0, hidden, -hidden)
    choice = LocalMARegressor(
        {"minus": lambda X: -X[:, 1], "plus": lambda X: X[:, 1]},
        gate="local",
        gate_features=[0],
        random_state=0,
    ).fit(both[:200], target[:200])
    told = evaluate(choice, both[200:], target[200:])
    assert "the candidates' predictions matter" in told.control.sentence


def test_control_of_classes_is_one_constant_each(classifier):
    part = evaluate(classifier.model, classifier.X, classifier.y)
    assert part.control.constants == ["bird", "cat", "dog"]
    control = part.entries[-1]
    # Classes are intervals of x0, so the gate can learn them without candidates.
    assert control.metrics["accuracy"].value > 0.8


def test_control_says_why_there_is_none(step):
    part = evaluate(step.model, step.X[:10], step.y[:10])
    assert part.control.sentence == "The control was not fitted: the target is constant."
    part = evaluate(step.model, step.X[40:60], step.y[40:60])
    assert "it needs 30 labelled rows, and there are 20" in part.control.sentence


def test_constants_span_the_targets_that_count(step):
    y, weight = np.arange(100.0), np.ones(100)
    weight[-1] = 0
    seen = observe(step.model, step.X, y, sample_weight=weight)
    assert constant_predictions(seen).tolist() == [[0.0], [98.0]]


def test_a_loss_may_not_take_the_extremes(step):
    loss = tweedie(power=-1)  # targets anywhere, predictions positive
    candidates = {"a": lambda X: np.full(len(X), 1.0), "b": lambda X: np.full(len(X), 2.0)}
    model = LocalMARegressor(candidates, loss=loss, gate="global").fit(step.X, step.y - 1)
    told = evaluate(model, step.X, step.y - 1).control
    assert told.sentence == (
        "The control was not fitted: "
        "loss 'tweedie' does not accept the extremes of y as predictions."
    )


@pytest.mark.parametrize("outputs", [1, 2])
def test_targets_have_as_many_outputs_as_the_candidates(outputs):
    X = np.arange(6.0)[:, None]
    y = np.tile(X, (1, outputs)) if outputs > 1 else X[:, 0]
    model = LocalMARegressor({"a": lambda X: np.tile(X, (1, outputs))}, gate="equal").fit(X, y)
    evaluate(model, X, y)
    with pytest.raises(InvalidInputError, match=f"the candidates have {outputs}, y has"):
        evaluate(model, X, np.tile(X, (1, 3 - outputs)))
    with pytest.raises(InvalidInputError, match=r"received shape \(6, 1, 1\)"):
        evaluate(model, X, X[:, :, None])
    with pytest.raises(InvalidInputError, match="Labels need a LocalMAClassifier"):
        evaluate(model, X, list("abcdef"))


def test_new_predictions_are_in_the_domain_of_the_loss():
    X = np.arange(1.0, 7.0)[:, None]
    model = LocalMARegressor({"a": lambda X: X[:, 0]}, loss="gamma", gate="equal").fit(X, X[:, 0])
    with pytest.raises(InvalidInputError, match=r"'gamma' takes predictions in \(0, inf\)"):
        evaluate(model, -X, X[:, 0])


def test_predictions_of_rows_in_another_order_are_refused(pd):
    X = pd.DataFrame({"x": np.arange(6.0)})
    P = pd.DataFrame({"a": np.arange(6.0), "b": np.zeros(6)})
    model = LocalMARegressor(gate="equal").fit(X, X["x"], predictions=P)
    evaluate(model, X, X["x"], predictions=P)
    for ask in (
        lambda P: evaluate(model, X, X["x"], predictions=P),
        lambda P: explain(model, X, 0, predictions=P),
    ):
        with pytest.raises(InvalidInputError, match="index differs"):
            ask(P.iloc[::-1])


def test_comparison_needs_targets_and_known_labels(step, classifier):
    with pytest.raises(InvalidInputError, match="needs the targets of its rows"):
        compare(observe(step.model, step.X))
    with pytest.raises(InvalidInputError, match=r"among the model's classes.*received 'fish'"):
        evaluate(classifier.model, classifier.X, ["fish"] * 120)
    missing = np.array(["cat", None, "dog", None], dtype=object)
    for y in (missing, ["cat", np.nan, "dog", np.nan]):
        with pytest.raises(
            InvalidInputError, match=r"2 of 4 have none in y, first in row 1: leave"
        ):
            evaluate(classifier.model, classifier.X[:4], y)
    assert classifier.model.classes_.tolist() == ["bird", "cat", "dog"]


def test_named_outputs_are_compared_by_name():
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    Y = pandas.DataFrame(random.normal(size=(30, 2)), columns=["u", "v"])
    X, P = np.zeros((30, 1)), {"a": Y + 1.0, "b": Y - 3.0}
    model = LocalMARegressor(gate="equal").fit(X, Y, predictions=P)
    swapped = {name: values[["v", "u"]] for name, values in P.items()}
    plain = observe(model, X, Y, predictions=P)
    other = observe(model, X, Y[["v", "u"]], predictions=swapped)
    np.testing.assert_array_equal(other.y, plain.y)
    np.testing.assert_array_equal(other.predictions, plain.predictions)
    with pytest.raises(InvalidInputError, match=r"outputs of y are named 'v', 'w', and .* the fit"):
        observe(model, X, Y.rename(columns={"u": "w"})[["v", "w"]], predictions=P)


# Effects, map, importance


def test_effects_of_a_step_are_exact(step):
    seen = observe(step.model, step.X)
    along, flat = weight_effects(seen, seen.features, n_bins=4)
    assert along.feature == "x0"
    assert along.counts == [25, 25, 25, 25]
    assert along.weights == [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]
    assert along.low is None
    assert along.labels[0] == "-1 to -0.52"
    assert flat.labels == ["5", "7"]
    assert flat.centres == [5.0, 7.0]
    np.testing.assert_allclose(flat.weights, 0.5)


def test_effects_have_the_band_of_auto(classifier):
    seen = observe(classifier.model, classifier.X)
    effect = weight_effects(seen, seen.features)[0]
    low, middle, high = (np.array(getattr(effect, key)) for key in ("low", "weights", "high"))
    assert (low <= middle + 1e-9).all()
    assert (middle <= high + 1e-9).all()
    assert (high - low).max() > 0
    np.testing.assert_allclose(middle.sum(axis=0), 1)


def test_effects_weigh_rows(step):
    weight = np.where(step.X[:, 1] == 5, 1.0, 0.0)
    seen = observe(step.model, step.X, sample_weight=weight)
    effect = weight_effects(seen, seen.features[1:])[0]
    assert effect.weights[0] == [0.5, None]


def test_map_of_a_step_is_exact(step):
    seen = observe(step.model, step.X)
    part = weight_map(seen, *seen.features, n_bins=2)
    assert part.labels[1] == ["5", "7"]
    assert part.most_trusted == [[0, 1], [0, 1]]
    assert part.weights[0] == [[1.0, 0.0], [1.0, 0.0]]
    assert np.sum(part.counts) == 100


def test_map_has_none_where_there_are_no_rows(step_gate):
    X = np.array([[-1.0, 0.0], [1.0, 1.0]] * 20)
    model = LocalMARegressor(
        {"a": lambda X: X[:, 0], "b": lambda X: X[:, 1]}, gate=step_gate()
    ).fit(X, X[:, 0])
    seen = observe(model, X)
    part = weight_map(seen, *seen.features)
    assert part.most_trusted == [[0, None], [None, 1]]
    assert part.weights[1] == [[0.0, None], [None, 1.0]]


def test_importance_of_a_step_is_the_chance_to_change_sides(step):
    first, second = importance(observe(step.model, step.X))
    assert first.feature == "x0"
    assert first.value == pytest.approx(0.5, abs=0.1)
    assert second.to_dict() == {
        "feature": "x1",
        "value": 0.0,
        "standard_error": 0.0,
        "relative": 0.0,
    }


def test_importance_screens_wide_tables(step_gate):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 300))
    model = LocalMARegressor(
        {"a": lambda X: X[:, 0], "b": lambda X: X[:, 1]}, gate=step_gate()
    ).fit(X, X[:, 0])
    ranked = importance(observe(model, X))
    assert len(ranked) == 100
    assert ranked[0].feature == "x0"


def test_features_are_picked_by_name_and_position(step):
    seen = observe(step.model, step.X)
    assert [feature.name for feature in choose_features(seen, [1, "x0"], 9)] == ["x1", "x0"]
    with pytest.raises(InvalidInputError, match="Unknown feature of the gate 'x7'"):
        choose_features(seen, ["x7"], 9)


# Errors by region, spread, support, reliability


def test_region_errors_of_a_step_are_exact(step):
    seen = observe(step.model, step.X, step.y)
    part = region_errors(seen, find_regions(seen))
    assert [entry.kind for entry in part.entries] == [
        "candidate",
        "candidate",
        "equal",
        "global",
        "local",
    ]
    first, second = part.regions
    assert first.where == "x0 <= 0"
    np.testing.assert_allclose(first.loss, [0, 4, 1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(second.to_model, [4, 0, 1, 1, 0], atol=1e-6)
    assert first.best in (0, 4)
    assert first.n == 50
    with pytest.raises(InvalidInputError, match="need the targets"):
        region_errors(observe(step.model, step.X), find_regions(seen))


def test_spread_counts_candidates_with_a_say(step, step_gate):
    part = spread(observe(step.model, step.X))
    assert part.effective.mean == pytest.approx(1)
    assert part.effective.of_global == pytest.approx(2)
    assert part.disagreement.value == 0.0
    half = LocalMARegressor(step.model.candidates, gate=step_gate(0.5)).fit(step.X, step.y)
    part = spread(observe(half, step.X))
    assert part.effective.to_dict() | {"of_global": 2.0} == pytest.approx(
        {"mean": 2, "low": 2, "median": 2, "high": 2, "of_global": 2, "n_candidates": 2}
    )
    # Half of the weight on 0 and half on 2: one away from their average.
    assert part.disagreement.value == pytest.approx(1)


def test_disagreement_of_classes_is_a_share_of_rows():
    classes = ["no", "yes"]
    model = LocalMAClassifier(
        {
            "a": as_candidate(lambda X: np.full(len(X), 0.9), classes=classes),
            "b": as_candidate(lambda X: np.where(X[:, 0] > 0, 0.8, 0.3), classes=classes),
        },
        gate="equal",
    ).fit([[0.0], [1.0]], classes)
    X = np.array([[-1.0], [1.0], [2.0], [3.0]])
    assert disagreement(observe(model, X)).value == 0.25


def test_support_counts_rows_outside(classifier, step):
    far = np.vstack([classifier.X[:9], [[1e3, 0.0]]])
    part = support(observe(classifier.model, far))
    assert part.guarded
    assert part.outside == pytest.approx(0.1)
    assert part.sentence.startswith("1 of 10 rows lie outside")
    assert not support(observe(step.model, step.X)).guarded


def test_reliability_of_a_coin_is_exact():
    coin = as_candidate(lambda X: np.full(len(X), 0.75), classes=["no", "yes"])
    X = np.zeros((8, 1))
    y = np.array(["yes"] * 4 + ["no"] * 4)
    model = LocalMAClassifier({"coin": coin}, gate="global").fit(X, y)
    part = reliability(observe(model, X, y))
    assert part.positive == "yes"
    curve = part.curves[0]
    assert (curve.predicted, curve.observed, curve.counts) == ([0.75], [0.5], [8])
    assert curve.ece == pytest.approx(0.25)
    assert curve.brier == pytest.approx((0.75**2 + 0.25**2) / 2)
    assert part.curves[1].kind == "global"


def test_reliability_of_many_classes_is_that_of_the_confidence(classifier, step):
    part = reliability(observe(classifier.model, classifier.X, classifier.y))
    assert part.kind == "confidence"
    curve = part.curves[0]
    assert sum(curve.counts) == 120
    accuracy = np.dot(curve.observed, curve.counts) / 120
    assert accuracy == pytest.approx(classifier.model.score(classifier.X, classifier.y))
    with pytest.raises(InvalidInputError, match="a classifier and rows with labels"):
        reliability(observe(step.model, step.X, step.y))


# Explaining a row


def test_explanation_of_a_step_is_exact(step):
    told = explain(step.model, step.X, -1)
    assert told.row == 99
    assert told.prediction == 2.0
    assert told.region == "high is trusted most where x0 > 0"
    second = told.candidates[1]
    assert {
        key: second.to_dict()[key] for key in ("name", "weight", "prediction", "contribution")
    } == {
        "name": "high",
        "weight": 1.0,
        "prediction": 2.0,
        "contribution": 2.0,
    }
    assert (
        told.sentence == "high has a weight of 100% in this row, and of 50% under global weights."
    )
    with pytest.raises(InvalidInputError, match="X has no row 100; it has 100 rows"):
        explain(step.model, step.X, 100)


def test_contributions_sum_to_the_prediction(classifier):
    told = explain(classifier.model, classifier.X, 3)
    total = sum(candidate.contribution for candidate in told.candidates)
    assert total == pytest.approx(told.probabilities[told.prediction])
    assert told.prediction == classifier.model.predict(classifier.X)[3]
    assert all(c.low <= c.weight + 1e-9 for c in told.candidates)


def test_a_row_unlike_the_sample_is_said_to_be(classifier):
    told = explain(classifier.model, np.array([[1e3, 0.0]]), 0)
    assert "unlike the labelled sample (support 0.00)" in told.sentence


# Columns as people see them


def test_prediction_columns_are_no_features(pd):
    frame = pd.DataFrame({"area": np.arange(20.0), "p": np.arange(20.0), "q": np.ones(20)})
    model = LocalMARegressor({"p": Column("p"), "q": Column("q")}, gate="global")
    seen = observe(model.fit(frame, np.arange(20.0)), frame)
    assert [feature.name for feature in seen.features] == ["area"]


def test_columns_of_one_name_cannot_be_told_apart(pd):
    frame = pd.DataFrame(np.eye(3), columns=["a", "b", "a"])
    with pytest.raises(InvalidInputError, match=r"must have different names; received"):
        read_features(frame, GateFeatures())


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_kinds_of_columns(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame(
        {
            "number": [1.5, None],
            "flag": [True, False],
            "word": ["b", None],
            "day": [datetime.datetime(1970, 1, 2), None],
        }
    )
    number, flag, word, day = read_features(frame, GateFeatures())
    assert [f.kind for f in (number, flag, word, day)] == [
        "numeric",
        "categorical",
        "categorical",
        "date",
    ]
    assert number.show(number.values[1]) == "missing"
    assert flag.show(flag.values[0]) == "True"
    assert (word.show(word.values[0]), word.show(word.values[1])) == ("b", "missing")
    assert day.show(day.values[0]) == "1970-01-02"


@pytest.mark.parametrize("kind", ["array", "object", "sparse", "pandas", "polars", "pyarrow"])
def test_a_shuffled_column_leaves_the_others(kind):
    table = np.arange(12.0).reshape(4, 3)
    order = np.array([2, 0, 3, 1])
    make = {
        "array": np.asarray,
        "object": lambda t: t.astype(object),
        "sparse": csr_matrix,
        "pandas": lambda t: pytest.importorskip("pandas").DataFrame(
            t, columns=list("abc"), index=[9, 9, 7, 6]
        ),
        "polars": lambda t: pytest.importorskip("polars").DataFrame(t, schema=list("abc")),
        "pyarrow": lambda t: pytest.importorskip("pyarrow").table(
            {n: t[:, k] for k, n in enumerate("abc")}
        ),
    }
    shuffled = dense(shuffle_column(make[kind](table), 1, order)).astype(float)
    expected = table.copy()
    expected[:, 1] = table[order, 1]
    np.testing.assert_array_equal(shuffled, expected)


def test_categories_beyond_twelve_are_joined():
    codes = np.repeat(np.arange(20), np.arange(20, 0, -1)).astype(float)
    feature = Feature("c", 0, "categorical", codes, tuple(f"k{c:02}" for c in range(20)))
    bins = make_bins(feature, 5)
    assert len(bins.labels) == 12
    assert bins.labels[-1] == "9 others"
    assert bins.counts().sum() == len(codes)


@given(
    st.lists(
        st.one_of(st.floats(-1e9, 1e9), st.just(float("nan")), st.integers(-3, 3).map(float)),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_every_row_is_in_one_bin_and_bins_are_in_order(values, most):
    feature = Feature("x", 0, "numeric", np.array(values))
    bins = make_bins(feature, most)
    counts = bins.counts()
    assert counts.sum() == len(values)
    assert (counts > 0).all()
    assert len(bins.labels) <= most + 1
    centres = bins.centres[~np.isnan(bins.centres)]
    assert (np.diff(centres) > 0).all()
    means = bins.means(np.ones((len(values), 1)), np.ones(len(values)))
    np.testing.assert_allclose(means, 1)


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
@settings(deadline=None)
def test_numbers_are_shown_to_a_thousandth_of_their_spread(value, spread_of_column):
    shown = float(resolved(value, spread_of_column))
    assert abs(shown - value) <= max(1e-3 * spread_of_column, 1e-12 * abs(value), 5e-4 * abs(value))


def test_many_candidates_are_summed():
    names = [f"m{k}" for k in range(50)]
    weights = np.random.default_rng(0).dirichlet(np.ones(50), size=6)
    shown = most_trusted(names, weights.mean(axis=0))
    assert len(shown.labels) == 9
    assert shown.labels[-1] == "42 others"
    np.testing.assert_allclose(shown.select(weights).sum(axis=1), 1)
    assert most_trusted(names[:9], np.ones(9)).n_others == 0
