"""Monitors: tests that stay valid, merging, labels that come late, files, and bad input."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

import localma.production.monitor as module
from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.errors import FileFormatError, InvalidInputError
from localma.production import Monitor, MonitorReport
from localma.production.blocks import Blocks
from localma.production.monitor_report import ALARM
from localma.production.sequential import (
    FINEST,
    RankTest,
    ShareTest,
    block_starts,
    log_probability,
    shares_of_starts,
)
from localma.reference import LEVELS, Reference, Variable
from localma.storage.array_file import read, to_bytes

CANDIDATES = {
    "low": lambda X: X[:, 0] - 0.5,
    "high": lambda X: X[:, 0] + 0.5,
    "flat": lambda X: 0.2 * X[:, 0],
}


def draw(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.poisson(2.0, n)])
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


def predictions(X: Any) -> Any:
    return np.stack([candidate(X) for candidate in CANDIDATES.values()], axis=1)


@pytest.fixture(scope="module")
def model() -> LocalMARegressor:
    X, y = draw(300, 0)
    return LocalMARegressor(CANDIDATES, random_state=0).fit(X, y)


@pytest.fixture
def monitor(model: LocalMARegressor) -> Monitor:
    return Monitor(model, random_state=0)


def tables(monitor: Monitor) -> dict[str, Any]:
    assert monitor._blocks is not None
    return dict(monitor._blocks.tables)


def assert_same_state(one: Monitor, other: Monitor) -> None:
    """Counts are equal, and sums up to rounding."""
    assert one._plan.model == other._plan.model
    assert (one._blocks is None) == (other._blocks is None)
    if one._blocks is not None and other._blocks is not None:
        assert (one._blocks.first, one._blocks.last) == (other._blocks.first, other._blocks.last)
        for name, values in tables(one).items():
            if values.dtype.kind == "i":
                np.testing.assert_array_equal(values, tables(other)[name], err_msg=name)
            else:
                np.testing.assert_allclose(values, tables(other)[name], rtol=1e-9, atol=1e-9)
    assert one._waiting.keys() == other._waiting.keys()
    assert one._unfamiliar == other._unfamiliar


# The tests by themselves.


def test_bins_of_new_rows_follow_the_gaps_of_the_sample_even_with_equal_values():
    rng = np.random.default_rng(0)
    counts = np.zeros(len(LEVELS) + 1)
    for seed in range(300):
        rng = np.random.default_rng([seed, 1])
        sample, new = rng.poisson(1.0, 50), rng.poisson(1.0, 40)
        reference = Reference.measured(("a",), {Variable("loss", "a"): sample})
        assert reference is not None
        bins = reference.place(new[:, np.newaxis].astype(float), rng.random(40))
        counts += np.bincount(bins[:, 0], minlength=len(counts))
    share = reference.gaps[0] / 51.0
    error = 1.5 * np.sqrt(share / (300 * 40) * (1 + 40 / 51))  # bins of one sample are alike
    assert (np.abs(counts / counts.sum() - share) < 4 * error).all()


def test_the_expectation_of_the_evidence_is_exactly_the_sum_of_its_shares():
    """Over all sequences of five bins under Polya's urn, by hand; a change is possible at any."""
    gaps = np.array([[3.0, 2.0]])
    for upwards in (False, True):
        test = RankTest.of(gaps, np.array([upwards]))
        shares = shares_of_starts(np.arange(5), 0)
        total = 0.0
        for sequence in itertools.product((0, 1), repeat=5):
            counts = np.eye(2)[list(sequence)][:, np.newaxis]
            probability = np.exp(log_probability(counts.sum(axis=0), gaps))[0]
            total += probability * np.exp(test.log_evidence(counts, shares)).sum()
        assert total == pytest.approx(shares.sum(), rel=1e-12)


def test_the_probability_of_a_sequence_by_hand():
    # Urn with one ball each: 1/2, then 2/3 of the same.
    assert np.exp(log_probability(np.array([2.0, 0.0]), np.ones(2))) == pytest.approx(1 / 3)
    weights, counts = np.array([2.5, 1.0, 4.0]), np.array([3.0, 0.0, 2.0])
    by_gamma = gammaln(7.5) - gammaln(12.5) + gammaln(5.5) - gammaln(2.5) + gammaln(6) - gammaln(4)
    assert log_probability(counts, weights) == pytest.approx(by_gamma)


@pytest.mark.parametrize(("p", "bound"), [(0.05, 1.0), (0.02, 1.0)])
def test_the_expectation_of_a_share_test_is_at_most_its_share(p: float, bound: float):
    test, share = ShareTest(np.array([0.05])), np.ones(1)
    total = 0.0
    for events in range(7):
        ways = np.exp(gammaln(7) - gammaln(events + 1) - gammaln(7 - events))
        evidence = np.exp(test.log_evidence(np.array([[events]]), np.array([[6]]), share))
        total += ways * p**events * (1 - p) ** (6 - events) * evidence[0, 0]
    assert total <= bound + 1e-12
    if p == 0.05:
        assert total == pytest.approx(1.0)


def test_shares_of_starts_sum_to_at_most_one():
    starts = np.arange(100_000)
    assert 0.9 < shares_of_starts(starts, 0).sum() <= 1.0


@given(first=st.integers(0, 300), length=st.integers(0, 600), further=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_blocks_are_only_ever_joined(first: int, length: int, further: int):
    last = first + length
    before, after = block_starts(last, first), block_starts(last + further, first)
    inside = set(after[after <= last].tolist()[1:])
    assert inside <= set(before.tolist())
    assert before[0] <= first
    assert (np.diff(before) > 0).all()
    assert set(range(max(first, last - FINEST + 1), last + 1)) <= set(before.tolist())


def test_the_state_is_small_however_long_the_stream(model: LocalMARegressor):
    assert len(block_starts(100_000, 0)) < 250
    assert len(block_starts(2**52, 0)) < 1_000


def test_streams_without_a_change_rarely_raise_an_alarm():
    """400 samples of 60 values, and streams of 2,000 rows, looked at every 50 rows."""
    alarms, n_streams = 0, 400
    for seed in range(n_streams):
        rng = np.random.default_rng([seed, 2])
        sample, stream = rng.lognormal(size=60), rng.lognormal(size=2_000)
        reference = Reference.measured(("a",), {Variable("loss", "a"): sample})
        assert reference is not None
        bins = reference.place(stream[:, np.newaxis], rng.random(2_000))[:, 0]
        counts = np.eye(9)[bins].reshape(40, 50, 1, 9).sum(axis=1)
        test = RankTest.of(reference.gaps, np.array([True]))
        looks = [
            np.exp(test.log_evidence(counts[:end], shares_of_starts(np.arange(end), 0))).sum()
            for end in range(4, 41, 4)
        ]
        alarms += max(looks) >= ALARM
    assert alarms <= 0.05 * n_streams


# What a monitor says.


def test_a_quiet_stream(monitor: Monitor):
    assert monitor.report().sentence == "Do nothing: no row has been observed."
    X, y = draw(1_000, 1)
    monitor.observe(X, predictions(X), y)
    report = monitor.report()
    assert (report.action, report.is_alarm, report.drop) == ("nothing", False, [])
    assert report.sentence.startswith("Do nothing: no test is clear after 1,000 rows.")
    assert monitor.evidence == pytest.approx(report.evidence)
    assert report.evidence == pytest.approx(sum(test.evidence for test in report.tests))
    assert MonitorReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_one_worse_candidate_is_to_be_dropped(monitor: Monitor):
    X, y = draw(2_000, 1)
    P = predictions(X)
    P[1_000:, 1] += 1.0
    monitor.observe(X, P, y)
    report = monitor.report()
    assert (report.action, report.drop) == ("drop", ["high"])
    assert "the loss of 'high' has risen from" in report.sentence
    test = next(test for test in report.tests if test.kind == "loss" and test.name == "high")
    assert test.since is not None
    assert 8 <= test.since <= 11
    np.testing.assert_allclose(
        test.now, np.mean((P[100 * test.since :, 1] - y[100 * test.since :]) ** 2), rtol=1e-9
    )


def test_new_noise_of_the_target_asks_for_a_refit(monitor: Monitor):
    X, y = draw(2_000, 1)
    y[1_000:] += 2.0 * np.random.default_rng(0).normal(size=1_000)
    monitor.observe(X, predictions(X), y)
    report = monitor.report()
    assert report.action == "refit"
    assert "the loss of the combination has risen" in report.sentence


def test_a_moved_input_asks_for_labels_and_then_for_nothing(model: LocalMARegressor):
    X, y = draw(600, 1)
    X[300:, 1] += 3.0  # the target does not depend on it
    for has_labels, action, words in (
        (False, "refit", "no row since then has a label"),
        (True, "nothing", "but no loss has clearly risen in the"),
    ):
        monitor = Monitor(model, random_state=0)
        monitor.observe(X, predictions(X), y if has_labels else None)
        report = monitor.report()
        assert report.is_alarm
        assert report.action == action
        assert "'x1'" in report.sentence
        assert words in report.sentence


def test_failures_are_counted_and_a_failing_candidate_is_to_be_dropped(monitor: Monitor):
    X, y = draw(400, 1)
    P = predictions(X)
    P[::3, 0] = np.nan
    monitor.observe(X, P, y)
    report = monitor.report()
    assert (report.action, report.drop) == ("drop", ["low"])
    assert "'low' fails in 34% of the rows" in report.sentence
    assert [times.failures for times in report.times] == [134, 0, 0]
    bins = tables(monitor)["bins"].sum(axis=(0, 2))
    losses = {
        v.name: int(bins[k]) for k, v in enumerate(monitor._plan.variables) if v.kind == "loss"
    }
    assert losses == {"low": 266, "high": 400, "flat": 400}


def test_rows_without_any_prediction(monitor: Monitor):
    X, y = draw(50, 1)
    monitor.observe(X, np.full((50, 3), np.nan), y)
    report = monitor.report()
    assert [times.failures for times in report.times] == [50, 50, 50]
    assert report.blocks[0].loss is None


def test_candidates_run_and_their_times_count(monitor: Monitor):
    X, y = draw(100, 1)
    monitor.observe(X, y=y)
    given = Monitor(monitor.model, random_state=0)
    given.observe(X, predictions(X), y)
    for name in ("bins", "rows", "events", "tried"):
        np.testing.assert_array_equal(tables(monitor)[name], tables(given)[name])
    assert all(times.seconds_per_row > 0 for times in monitor.report().times)


def test_a_candidate_that_raises_is_a_failure():
    X, y = draw(100, 0)
    state = {"fails": False}

    def unsteady(X: Any) -> Any:
        if state["fails"]:
            raise RuntimeError("no answer")
        return X[:, 0]

    model = LocalMARegressor({"a": unsteady, "b": CANDIDATES["flat"]}, gate="equal").fit(X, y)
    monitor = Monitor(model)
    state["fails"] = True
    monitor.observe(X, y=y)
    assert monitor.report().times[0].failures == 100
    assert monitor.report().drop == ["a"]


def test_an_answer_has_the_weights_failures_and_times(model: LocalMARegressor):
    X, y = draw(100, 1)
    one, other = (Monitor(model, random_state=0) for _ in range(2))
    answer = model.answer(X)
    one.observe(X, predictions(X), y, answer=answer)
    other.observe(X, predictions(X), y)
    for name in ("bins", "rows", "events", "tried"):
        np.testing.assert_array_equal(tables(one)[name], tables(other)[name])
    np.testing.assert_allclose(tables(one)["seconds"].sum(axis=0), answer.candidate_seconds)
    alone = Monitor(model, random_state=0)
    alone.observe(X, y=y, answer=answer)
    assert alone.report().blocks[0].loss == pytest.approx(other.report().blocks[0].loss)
    assert alone.report().blocks[0].candidate_losses == [None] * 3
    with pytest.raises(InvalidInputError, match=r"answer must be what model\.answer"):
        alone.observe(X[:5], answer=answer)


def test_classes_with_late_and_missing_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = np.array(["x", "y", "z"])[np.digitize(X[:, 0], [-0.5, 0.5])]

    def soft(shift: float) -> Any:
        def probabilities(X: Any) -> Any:
            logits = np.stack([-X[:, 0] - shift, 0 * X[:, 0], X[:, 0] - shift], axis=1)
            return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

        return as_candidate(probabilities, classes=["x", "y", "z"])

    model = LocalMAClassifier({"a": soft(0.0), "b": soft(1.0)}, gate="global").fit(X[:200], y[:200])
    known = y[200:].astype(object)
    known[::2] = None
    keys = [f"row {k}" for k in range(300)]
    late, now = Monitor(model, random_state=0), Monitor(model, random_state=0)
    late.observe(X[200:], y=known, key=keys)
    assert late.report().waiting == 150
    late.label(keys[::2], y[200::2])
    now.observe(X[200:], y=y[200:], key=keys)
    for name in ("bins", "sums", "rows", "events"):
        np.testing.assert_allclose(tables(late)[name], tables(now)[name], rtol=1e-12)
    assert late.report().waiting == 0
    with pytest.raises(InvalidInputError, match="must be among the model's classes"):
        now.observe(X[:2], y=["x", "w"])
    assert now.report().rows == 300


def test_whole_labels_that_missing_ones_made_floating():
    X, y = np.arange(40.0)[:, np.newaxis], np.arange(40) % 2
    half = as_candidate(lambda X: np.full((len(X), 2), 0.5), classes=[0, 1])
    model = LocalMAClassifier({"a": half}, gate="equal").fit(X, y)
    monitor = Monitor(model)
    monitor.observe(X, y=np.where(np.arange(40) < 5, np.nan, y))
    assert monitor.report().labelled == 35


def test_several_outputs_and_heavy_tails():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    Y = np.column_stack([X[:, 0], -X[:, 0]]) + rng.standard_t(1, size=(300, 2))
    both = {"a": lambda X: np.column_stack([X, -X]), "b": lambda X: 0.5 * np.column_stack([X, -X])}
    model = LocalMARegressor(both, gate="global").fit(X[:100], Y[:100])
    monitor = Monitor(model)
    Y[150] = 1e160  # its square overflows
    monitor.observe(X[100:], y=Y[100:])
    report = monitor.report()
    assert report.labelled == 200
    assert np.isfinite(report.evidence)
    assert not report.is_alarm


def test_unfamiliar_categories():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": rng.choice(["a", "b"], 200)})
    from localma.tables.encoder import TableEncoder

    model = LocalMARegressor({"a": lambda X: X["x"].to_numpy()}, gate_features=TableEncoder())
    model = model.fit(frame, frame["x"] + rng.normal(size=200))
    monitor = Monitor(model)
    new = frame.assign(c=np.where(np.arange(200) < 60, "new", frame["c"]))
    monitor.observe(new)
    report = monitor.report()
    assert report.unfamiliar == {"'c' is a category that was not in the labelled sample": 60}
    test = next(test for test in report.tests if test.kind == "unfamiliar")
    assert test.evidence > ALARM
    assert test.now == pytest.approx(0.3)


# Merging, and files.


@given(
    cuts=st.lists(st.integers(0, 120), min_size=2, max_size=2).map(sorted),
    seed=st.integers(0, 5),
    labels=st.sampled_from(["now", "late", "never"]),
)
@settings(max_examples=25, deadline=None)
def test_merged_monitors_equal_one_that_saw_both(
    model: LocalMARegressor, cuts: list[int], seed: int, labels: str
):
    X, y = draw(120, 100 + seed)
    P, rng = predictions(X), np.random.default_rng(seed)
    keys, periods = [f"k{k}" for k in range(120)], rng.integers(0, 40, 120)
    whole = Monitor(model)
    parts = [Monitor(model) for _ in range(3)]
    order = rng.permutation(120)
    for monitor, rows in [(whole, np.arange(120)), *zip(parts, np.split(order, cuts), strict=True)]:
        given = y[rows] if labels == "now" else None
        names = [keys[k] for k in rows]
        monitor.observe(X[rows], P[rows], given, key=names, period=periods[rows])
        if labels == "late":
            half = len(rows) // 2
            monitor.label(names[:half], y[rows[:half]])
    if labels == "late":
        labelled = {k for part in np.split(order, cuts) for k in part[: len(part) // 2]}
        whole = Monitor(model)
        whole.observe(X, P, key=keys, period=periods)
        whole.label([keys[k] for k in sorted(labelled)], y[sorted(labelled)])
    first = parts[0].merge(parts[1]).merge(parts[2])
    assert_same_state(first, whole)
    assert first.evidence == pytest.approx(whole.evidence)


def test_without_keys_only_equal_values_are_in_another_order(model: LocalMARegressor):
    X, y = draw(200, 7)
    one, two, both = Monitor(model), Monitor(model), Monitor(model)
    one.observe(X[:100], y=y[:100], period=0)
    two.observe(X[100:], y=y[100:], period=0)
    both.observe(X, y=y, period=0)
    one.merge(two)
    has_ties = ("x1", "")  # counts, and a disagreement of one in most rows
    ties = [
        k for k, v in enumerate(one._plan.variables) if v.name in has_ties or v.kind == "weight"
    ]
    others = np.delete(np.arange(len(one._plan.variables)), ties)
    np.testing.assert_array_equal(tables(one)["bins"][:, others], tables(both)["bins"][:, others])
    assert tables(one)["bins"][:, ties].sum() == tables(both)["bins"][:, ties].sum()


@given(n=st.integers(0, 250), with_keys=st.booleans(), with_labels=st.booleans())
@settings(max_examples=15, deadline=None)
def test_a_saved_monitor_goes_on_as_before(
    model: LocalMARegressor,
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    with_keys: bool,
    with_labels: bool,
):
    path = tmp_path_factory.mktemp("monitor") / "state.monitor"
    X, y = draw(n + 30, 3)
    monitor = Monitor(model)
    keys = [f"k{k}" for k in range(n)] if with_keys else None
    monitor.observe(X[:n], y=y[:n] if with_labels else None, key=keys)
    monitor.save(path)
    restored = Monitor.load(path, model)
    assert_same_state(restored, monitor)
    assert restored.report() == monitor.report()
    for each in (monitor, restored):
        each.observe(X[n:], predictions(X[n:]), y[n:])
    assert_same_state(restored, monitor)


def test_a_monitor_of_a_saved_model_is_one_of_the_model(model: LocalMARegressor, tmp_path: Any):
    X, y = draw(150, 3)
    monitor = Monitor(model, random_state=0)
    monitor.observe(X, predictions(X), y)
    monitor.save(tmp_path / "state.monitor")
    model.save(tmp_path / "model.localma", probes=False)
    again = load(tmp_path / "model.localma", candidates=CANDIDATES)
    restored = Monitor.load(tmp_path / "state.monitor", again)
    restored.observe(X, y=y)
    monitor.observe(X, y=y)
    np.testing.assert_array_equal(tables(restored)["rows"], tables(monitor)["rows"])


def test_a_file_from_before_monitors_still_loads(model: LocalMARegressor, tmp_path: Any):
    path = tmp_path / "model.localma"
    model.save(path, probes=False)
    file = read(path)
    description = {k: v for k, v in file.description.items() if k != "reference"}
    arrays = {k: v for k, v in file.arrays.items() if not k.startswith("reference.")}
    path.write_bytes(to_bytes(description, arrays))
    old = load(path, candidates=CANDIDATES)
    assert old.reference_ is None
    X, y = draw(300, 3)
    monitor = Monitor(old)
    monitor.observe(X + 100.0, predictions(X), y)
    report = monitor.report()
    assert report.action == "refit"
    assert "100% of the rows are unlike" in report.sentence
    monitor.save(tmp_path / "state.monitor")
    assert Monitor.load(tmp_path / "state.monitor", old).report() == report


def test_a_reference_holds_no_row_and_keeps_what_is_true_of_fewer_candidates(
    model: LocalMARegressor,
):
    reference = model.reference_
    assert reference is not None
    assert sum(array.size for array in reference.arrays().values()) < 400
    fewer = reference.for_candidates(("low", "flat"))
    assert fewer is not None
    assert {v.kind for v in fewer.variables} == {"input", "loss"}
    assert [v.name for v in fewer.variables if v.kind == "loss"] == ["low", "flat"]


def gaps_of(model: LocalMARegressor) -> dict[str, float]:
    assert model.reference_ is not None
    total = model.reference_.gaps.sum(axis=1)
    variables = model.reference_.variables
    return {f"{v.kind} {v.name}".strip(): t for v, t in zip(variables, total, strict=True)}


def test_a_reference_counts_what_the_sample_is_worth():
    X, y = draw(90, 4)
    P = predictions(X)
    everything = gaps_of(LocalMARegressor(gate="global").fit(X, y, predictions=P))
    groups = np.arange(90) // 3
    grouped = gaps_of(LocalMARegressor(gate="global").fit(X, y, predictions=P, groups=groups))
    weights = np.where(np.arange(90) < 45, 1.0, 0.0)
    half = gaps_of(LocalMARegressor(gate="global").fit(X, y, weights, predictions=P))
    P[:40, 0] = np.nan
    partly = LocalMARegressor(gate="global", missing="renormalize").fit(X, y, predictions=P)
    name = next(kind for kind in everything if kind.startswith("loss"))
    assert (everything[name], grouped[name], half[name]) == (91.0, pytest.approx(31.0), 46.0)
    assert gaps_of(partly)[name] == 51.0


def test_models_that_were_fitted_on_the_sample_are_worth_less(model: LocalMARegressor):
    gaps = gaps_of(model)
    assert gaps["loss low"] == gaps["input x1"] == 301.0
    assert gaps["combination"] == gaps["weight low"] == pytest.approx(301.0 / 2.25)


# Bad input: an error, and nothing is lost.


def bad_calls() -> list[tuple[str, Any, str]]:
    X, y = draw(5, 9)
    P = predictions(X)
    return [
        (
            "keys twice",
            lambda m: m.observe(X, P, key=["a", "b", "a", "c", "d"]),
            "'a' occurs twice",
        ),
        ("a waiting key", lambda m: m.observe(X, P, key=["w1", *"bcde"]), "'w1' occurs twice"),
        ("too few keys", lambda m: m.observe(X, P, key=["a"]), "one entry for each of the 5"),
        ("a fraction", lambda m: m.observe(X, P, key=[0.5, 1, 2, 3, 4]), "A key must be"),
        ("a text", lambda m: m.observe(X, P, key="abcde"), "sequence of keys"),
        ("columns", lambda m: m.observe(X[:, :1], P), "features"),
        ("predictions", lambda m: m.observe(X, P[:, :2]), "predictions"),
        ("short y", lambda m: m.observe(X, P, y[:3]), "one entry for each of the 5 rows"),
        ("y of texts", lambda m: m.observe(X, P, ["a"] * 5), "y"),
        ("two outputs", lambda m: m.observe(X, P, np.column_stack([y, y])), "outputs"),
        ("period", lambda m: m.observe(X, P, period=-1), "Periods must be numbers from 0"),
        ("periods", lambda m: m.observe(X, P, period=[1, 2]), "period must be a whole number"),
        ("never observed", lambda m: m.label(["w1", "q"], [0.0, 0.0]), "'q' does not wait"),
        ("label twice", lambda m: m.label(["w1", "w1"], [0.0, 0.0]), "'w1' twice"),
        ("labels", lambda m: m.label(["w1", "w2"], [0.0]), "one entry for each of the 2"),
        ("itself", lambda m: m.merge(m), "with itself"),
        ("no monitor", lambda m: m.merge(3), "Only monitors can be merged"),
    ]


@pytest.mark.parametrize(("call", "words"), [pytest.param(c, w, id=i) for i, c, w in bad_calls()])
def test_bad_input_is_an_error_and_nothing_is_lost(
    model: LocalMARegressor, tmp_path: Any, call: Any, words: str
):
    X, _y = draw(50, 2)
    monitor = Monitor(model, random_state=0)
    monitor.observe(X, predictions(X), key=[f"w{k}" for k in range(50)])
    monitor.save(tmp_path / "before")
    with pytest.raises((InvalidInputError, ValueError), match=words):
        call(monitor)
    monitor.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_a_monitor_of_another_model(model: LocalMARegressor, monitor: Monitor, tmp_path: Any):
    X, y = draw(200, 5)
    other = LocalMARegressor(CANDIDATES, gate="global").fit(X, y)
    with pytest.raises(InvalidInputError, match="Only monitors of the same model"):
        monitor.merge(Monitor(other))
    monitor.save(tmp_path / "state")
    with pytest.raises(InvalidInputError, match="the state of a monitor of another model"):
        Monitor.load(tmp_path / "state", other)


def test_monitors_that_wait_for_the_same_key(model: LocalMARegressor):
    X, _ = draw(2, 1)
    one, two = Monitor(model), Monitor(model)
    one.observe(X, key=[1, 2])
    two.observe(X, key=["2", "3"])  # a whole number and its text are the same key
    with pytest.raises(InvalidInputError, match="the key '2'"):
        one.merge(two)
    assert one.report().rows == 2
    assert set(one._waiting) == {"1", "2"}


def test_old_rows_are_forgotten(model: LocalMARegressor):
    X, y = draw(30, 1)
    monitor = Monitor(model, max_waiting=10)
    monitor.observe(X, key=range(30))
    assert (monitor.report().waiting, monitor.report().forgotten) == (10, 20)
    with pytest.raises(InvalidInputError, match="the last 10 rows are kept"):
        monitor.label([0], y[:1])
    monitor.label(range(20, 30), y[20:])
    assert monitor.report().labelled == 10


def test_many_rows_are_counted_in_parts(model: LocalMARegressor, monkeypatch: Any):
    X, y = draw(500, 1)
    one, other = Monitor(model, random_state=0), Monitor(model, random_state=0)
    one.observe(X, y=np.where(np.arange(500) % 3, y, np.nan))
    monkeypatch.setattr(module, "MOST_AT_ONCE", 64)
    other.observe(X, y=np.where(np.arange(500) % 3, y, np.nan))
    for name in ("bins", "rows", "events", "tried"):
        np.testing.assert_array_equal(tables(one)[name], tables(other)[name])


def test_default_periods_never_fall(model: LocalMARegressor):
    X, _ = draw(50, 1)
    monitor = Monitor(model)
    monitor.observe(X, period=700_000)
    monitor.observe(X)
    assert monitor._blocks is not None
    assert (monitor._blocks.first, monitor._blocks.last) == (700_000, 700_000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d, a: d.update(keys=["x"]), "waiting"),
        (lambda d, a: d.update(periods=[3, 1]), "periods must be in order"),
        (lambda d, a: d["monitor"].update(clock=-1), "must not be negative"),
        (lambda d, a: d["monitor"].update(clock="1"), "settings must be integers"),
        (lambda d, a: d.update(further=1), "not the state of a monitor"),
        (lambda d, a: a.pop("blocks.bins"), "blocks.bins is missing"),
        (lambda d, a: a.update({"blocks.bins": a["blocks.bins"][:1]}), "has another form"),
        (lambda d, a: a.update({"blocks.rows": -a["blocks.rows"]}), "must not be negative"),
        (lambda d, a: a.update({"blocks.sums": a["blocks.sums"] * np.nan}), "must be finite"),
        (lambda d, a: a.update({"x": np.zeros(1)}), "unknown arrays"),
    ],
)
def test_damaged_states_are_refused(monitor: Monitor, tmp_path: Any, change: Any, words: str):
    X, y = draw(300, 1)
    monitor.observe(X, y=y)
    path = tmp_path / "state"
    monitor.save(path)
    file = read(path)
    description, arrays = file.description, dict(file.arrays)
    change(description, arrays)
    path.write_bytes(to_bytes(description, arrays))
    with pytest.raises(FileFormatError, match=words):
        Monitor.load(path, monitor.model)
    path.write_bytes(b"not a file of arrays")
    with pytest.raises(FileFormatError):
        Monitor.load(path, monitor.model)


def test_blocks_add_in_any_order():
    rng = np.random.default_rng(0)
    periods = rng.integers(0, 500, 300)
    values = rng.integers(0, 5, (300, 2))
    whole = Blocks.of(periods, {"n": values})
    parts = [Blocks.of(periods[k::7], {"n": values[k::7]}) for k in rng.permutation(7)]
    added = parts[0]
    for part in parts[1:]:
        added = part.added(added)
    assert (added.first, added.last) == (whole.first, whole.last)
    np.testing.assert_array_equal(added.tables["n"], whole.tables["n"])
