"""The study of dependent rows in miniature: scenarios, truths, claims, bars and price series."""

import numpy as np
import pytest

from localma.errors import InvalidInputError
from studies import dependence, dependence_prices
from studies.dependence_data import SCENARIOS, STRENGTHS, Part, ar1, local_sizes, scenario
from studies.findings import Results

SERIES = [name for name in SCENARIOS if name.startswith("AR")]
"""Series, whose fresh rows follow the last row in time."""


def drawn(name, n=200, seed=0):
    if "20 " in name or "districts" in name:
        pytest.importorskip("pandas")
    return scenario(name, n, seed)


def rows_of(part):
    """Each row as bytes: inputs, predictions and target."""
    values = np.column_stack([part.X, part.P.reshape(len(part.y), -1), part.y])
    return [row.tobytes() for row in values]


def lag_1(values):
    return np.corrcoef(values[:-1], values[1:])[0, 1]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_has_n_rows_and_depends_only_on_its_seed(name):
    one, again, other = (drawn(name, seed=seed) for seed in (0, 0, 1))
    assert len(one.part.y) == len(one.part.X) == len(one.part.P) == 200
    np.testing.assert_array_equal(one.part.y, again.part.y)
    np.testing.assert_array_equal(one.fresh(30, 5).P, again.fresh(30, 5).P)
    assert (
        not np.array_equal(one.part.y, other.part.y) or "without noise" in name or "class" in name
    )
    assert len(one.continuations(1000, 0).y) == 1000


@pytest.mark.parametrize("phi", [0.3, 0.6, 0.9])
def test_the_errors_of_a_series_have_its_correlation(phi):
    sample = scenario(f"AR {phi:.1f}, slow inputs".replace("0.", "."), 20_000, 0)
    part = sample.part
    for values in (part.X[:, 0], part.y - part.P.mean(axis=1)):
        assert lag_1(values) == pytest.approx(phi, abs=0.03)


@pytest.mark.parametrize("name", SERIES)
def test_fresh_rows_continue_a_series(name):
    sample = drawn(name)
    phi = float(name.split()[1].rstrip(","))
    row = -1 if "shuffled" not in name else sample.part.X[:, -1].argmax()
    last = sample.part.P[row] - sample.part.P[row].mean()
    first = np.stack([p.P[0] - p.P[0].mean() for p in (sample.fresh(1, s) for s in range(2000))])
    np.testing.assert_allclose(first.mean(axis=0), phi * last, atol=0.15)


def test_a_series_keeps_its_variance_whatever_came_before():
    series = ar1(np.random.default_rng(0), 50_000, 0.9, np.array([5.0]))
    assert series[0, 0] == pytest.approx(4.5, abs=2)
    assert series.std() == pytest.approx(1.0, abs=0.05)


def test_hours_go_on_after_the_sample():
    sample = scenario("AR .6, slow inputs and hours", 200, 0)
    hours = np.concatenate([sample.part.X[:, 4], sample.fresh(50, 0).X[:, 4]])
    np.testing.assert_array_equal(hours, np.arange(250))


@pytest.mark.parametrize(
    ("name", "distinct"),
    [("every row twice", 100), ("every row three times", 67), ("half of the rows twice", 134)],
)
def test_copies_are_exact_and_fresh_rows_are_no_copies(name, distinct):
    sample = scenario(name, 200, 0)
    assert len(set(rows_of(sample.part))) == distinct
    fresh = rows_of(sample.fresh(200, 0))
    assert len(set(fresh)) == 200
    assert not set(fresh) & set(rows_of(sample.part))


def test_equal_rows_are_legitimate():
    part = scenario("equal rows", 200, 0).part
    assert len(set(rows_of(part))) < 40
    inputs = {tuple(row) for row in part.X}
    assert len({(*row, y) for row, y in zip(part.X, part.y, strict=True)}) > 2 * len(inputs)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name.startswith("20 ")])
def test_clusters_share_errors_and_inputs_and_fresh_clusters_are_new(name):
    sample = drawn(name, 2000)
    errors, groups = sample.part.y - sample.part.P[:, 0], sample.part.groups
    assert np.bincount(groups).tolist() == [100] * 20
    within = np.mean([errors[groups == g].var() for g in range(20)]) / errors.var()
    assert 0.3 < within < 0.8
    columns = np.asarray(sample.part.X)[:, :4].astype(float)
    constant = [len(np.unique(columns[groups == 3][:, j])) == 1 for j in range(4)]
    assert constant == [True, False, True, False]
    assert sample.fresh(100, 0).groups.min() == 20


def test_a_panel_has_each_place_on_each_date():
    X = drawn("20 dates, by place", 400).part.X
    assert X.groupby("place")["date"].nunique().tolist() == [20] * 20
    assert not X["date"].is_monotonic_increasing
    assert drawn("20 dates, by date", 400).part.X["date"].is_monotonic_increasing


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("sorted by an input", lambda part: part.X[:, 0]),
        ("sorted by the target", lambda part: part.y),
        ("classes, sorted by class", lambda part: part.y),
        ("grid", lambda part: part.X[:, 0]),
    ],
)
def test_traps_are_sorted(name, key):
    assert (np.diff(key(scenario(name, 200, 0).part)) >= 0).all()


@pytest.mark.parametrize(("share", "strength"), STRENGTHS.items())
def test_the_best_local_weights_gain_the_stated_share_of_the_risk(share, strength):
    X = np.random.default_rng(0).standard_normal((100_000, 4))
    variances = local_sizes(X, strength) ** 2
    constant = 0.25 + 1 / (1 / variances.mean(axis=0)).sum()
    local = 0.25 + (1 / (1 / variances).sum(axis=1)).mean()
    assert 1 - local / constant == pytest.approx(float(share.rstrip(" %")) / 100, abs=0.01)


def test_in_a_null_scenario_the_errors_do_not_depend_on_the_inputs():
    fresh = scenario("20 clusters, contiguous", 200, 0).fresh(40_000, 0)
    errors = np.abs(fresh.P - fresh.y[:, np.newaxis])
    low, high = errors[fresh.X[:, 1] < 0].mean(axis=0), errors[fresh.X[:, 1] > 0].mean(axis=0)
    np.testing.assert_allclose(low, high, rtol=0.05)


def test_an_unknown_scenario_is_named():
    with pytest.raises(InvalidInputError, match="'AR 1'"):
        scenario("AR 1", 100, 0)


def test_shuffled_folds_claim_a_gain_of_copies_that_does_not_come_true():
    keys = {"part": "methods", "scenario": "every row three times", "n": 200}
    metrics = dependence.STUDY.replicate(keys, 0, ("auto", "shuffled"))
    assert metrics["shuffled:claim"] == 1
    assert metrics["shuffled:true_gain"] < -0.1
    assert metrics["shuffled:covered"] == 0
    assert metrics["auto:acted"] == 1
    assert metrics["auto:claim"] == 0
    assert abs(metrics["auto:true_gain"]) < 0.1


@pytest.mark.parametrize("name", ["classes, independent", "20 clusters, named"])
def test_a_replicate_has_the_same_metrics_for_every_loss_and_table(name):
    drawn(name)
    metrics = dependence.STUDY.replicate({"part": "nulls", "scenario": name, "n": 200}, 0, ["auto"])
    names = {"claim", "gain", "true_gain", "covered", "risk", "acted"}
    assert set(metrics) == {f"auto:{metric}" for metric in names}


def cell(claims, true_gains, covered, risks=None, other=None, **keys):
    """Results of one cell."""
    for k, claim in enumerate(claims):
        metrics = {"claim": claim, "true_gain": true_gains[k], "covered": covered[k]}
        metrics |= {"gain": 0.1, "acted": 0.0, "risk": risks[k] if risks else 1.0}
        of_auto = {f"auto:{name}": value for name, value in metrics.items()}
        yield keys, of_auto | ({} if other is None else {"shuffled:risk": other[k]})


def test_a_false_claim_is_one_without_a_true_gain():
    keys = {"part": "nulls", "scenario": "independent", "n": 200}
    results = Results(cell([1, 1, 0, 0], [0.1, -0.1, -0.1, 0.0], [1, 0, 1, 1], **keys))
    found = dependence.summary(results, "auto", **keys)
    assert (found.claims, found.false, found.coverage) == (0.5, 0.25, 0.75)
    assert "| independent | 200 | 4 | 0.0% | 50.0% | 25.0% | 75.0% |" in dependence.overview(
        results
    )


def test_a_bar_needs_every_variant_and_size():
    bar = dependence.BARS[0]
    few = [
        row
        for n, claim in ((200, 0), (2_000, 1))
        for row in cell(
            [claim], [-0.1], [1], part="nulls", scenario="independent", n=n
        )
    ]  # fmt: skip
    false, covered = dependence._of_bar(bar)
    assert false.verdict(Results(few[:1])) == "not run yet"
    assert false.verdict(Results(few)) == "does not agree"
    assert covered.verdict(Results(few)) == "agrees"


def test_the_cost_is_in_parts_of_the_risk_with_shuffled_folds():
    keys = {"part": "power", "scenario": "local, 17 %", "n": 100}
    results = Results(cell([0, 0], [0, 0], [1, 1], [1.0, 2.02], [1.0, 2.0], **keys))
    mean, error = dependence.cost(results, **keys)
    assert (mean, error) == (pytest.approx(0.005), pytest.approx(0.005))
    assert dependence.STUDY.findings[-1].verdict(results) == "does not agree"


def test_nothing_is_claimed_before_anything_was_run():
    assert {f.verdict(Results([])) for f in dependence.STUDY.findings} == {"not run yet"}
    assert dependence.overview(Results([])) == ""


def prices(hours=24 * 7 * 20, n_forecasts=3):
    """A series of the shape of the real ones: level, daily cycle, slow errors."""
    rng = np.random.default_rng(0)
    hour = np.arange(hours)
    y = 40 + 10 * np.sin(2 * np.pi * hour / 24) + ar1(rng, hours, 0.9, np.zeros(1))[:, 0]
    errors = ar1(rng, hours, 0.8, np.zeros(n_forecasts))
    time = np.datetime64("2024-02-28T05", "us") + hour * np.timedelta64(1, "h")
    columns = {f"pred_{m}": y + errors[:, m] for m in range(n_forecasts)}
    return {"time": time, "price": y, **columns}


def test_prices_are_split_in_halves_and_inputs_are_known_in_advance():
    columns = prices()
    series = dependence_prices.Series.of(columns)
    labelled, tested = series.split(lagged=True)
    half = len(columns["price"]) // 2
    assert len(tested.y) == half
    assert len(labelled.y) == half - 168
    np.testing.assert_array_equal(labelled.y, columns["price"][168:half])
    assert labelled.X.shape[1] == 6 + 2 * 4
    assert series.split(lagged=False)[0].X.shape[1] == 6
    np.testing.assert_array_equal(tested.X[:, 6], columns["price"][half - 24 : -24])
    error_a_week_ago = (columns["price"] - columns["pred_0"])[half - 168 : -168]
    np.testing.assert_allclose(tested.X[:, 11], error_a_week_ago)


def test_the_calendar_of_prices_is_that_of_their_time():
    labelled, _ = dependence_prices.Series.of(prices()).split(lagged=False)
    day, week, year = (np.arctan2(labelled.X[0, 2 * k], labelled.X[0, 2 * k + 1]) for k in range(3))
    turns = np.array([day, week, year]) / (2 * np.pi) % 1
    # The first row is a week after Wednesday, 28 February, 5 a.m.
    np.testing.assert_allclose(turns, [5 / 24, (2 + 5 / 24) / 7, (65 + 5 / 24) / 365.25])


def test_a_missing_hour_is_refused():
    columns = {name: np.delete(column, 50) for name, column in prices().items()}
    with pytest.raises(ValueError, match="every hour"):
        dependence_prices.Series.of(columns)


def test_the_prices_part_runs_on_a_series_of_the_same_shape(monkeypatch):
    series = dependence_prices.Series.of(prices())
    monkeypatch.setattr(dependence_prices, "load", lambda folder, market: series)
    keys = {"part": "prices", "market": "Germany", "loss": "absolute_error", "inputs": "lagged"}
    metrics = dependence.run(keys, np.random.SeedSequence(0), ("auto", "shuffled", "weeks"))
    assert metrics["auto:acted"] == 1
    results = Results([(keys, metrics)])
    monkeypatch.setattr(dependence, "_run_cells", lambda results, part: [keys] * (part == "prices"))
    assert "| Germany | absolute_error | lagged | weeks |" in dependence._price_table(results)


def test_groups_of_prices_are_whole_days_and_weeks():
    labelled, _ = dependence_prices.Series.of(prices()).split(lagged=False)
    assert set(np.bincount(labelled.part("days").groups - 7)) == {24}
    assert set(np.bincount(labelled.part("weeks").groups - 1)) == {168}
    assert labelled.part("auto").groups is None
    assert isinstance(labelled.part(), Part)
