"""The studies of rents and of insurance in miniature, on small tables made here."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from localma.errors import InvalidInputError
from localma.losses import get_loss, squared_error
from studies import insurance, insurance_data, rental, rental_data
from studies.aims import (
    against_best,
    ahead_of_control,
    ahead_on_average,
    never_behind,
)
from studies.findings import Finding, NotDecidedError, NotRunError, Results
from studies.harness import Study
from studies.pairs import Comparison, Difference, difference, mean_over, table_against_best
from studies.regressing import (
    CONTROLS,
    LABELS,
    METHODS,
    PLACE_METHODS,
    Companies,
    Split,
    compare,
    make_trial,
    on_constants,
    on_shuffled,
    predict,
    with_place,
)
from studies.running import Request, missing
from studies.safety_data import data_folder
from studies.summary import results_of
from studies.tables import README
from studies.together import render_together

RHO = {"city": "Beijing", "candidates": "networks", "rho": 0.5}


def write_table(folder, file, columns):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


def beijing_listings(rng):
    """Three districts of 90, 80 and 70 listings, whose rents per square metre differ."""
    district = np.repeat(["朝阳", "海淀", "通州"], [90, 80, 70])
    n = len(district)
    area = rng.uniform(8, 60, n)
    level = np.select([district == "朝阳", district == "海淀"], [60.0, 80.0], 40.0)
    whole = {"rooms": (1, 5), "bathrooms": (1, 3), "floor": (1, 9), "subway_lines": (0, 3)}
    return {
        "district": district,
        "rent": level * area * rng.uniform(0.9, 1.1, n),
        "area": area,
        **{name: rng.integers(*ends, n).astype(float) for name, ends in whole.items()},
        "total_floors": rng.integers(6, 30, n).astype(float),
        "subway_dist_m": rng.uniform(50, 3000, n),
    }


@pytest.fixture
def beijing(tmp_path, monkeypatch):
    """A data folder with a small table of Beijing."""
    file = rental_data.SOURCES["Beijing"].file
    write_table(tmp_path, file, beijing_listings(np.random.default_rng(0)))
    monkeypatch.setenv("LOCALMA_DATA", str(tmp_path))
    return rental_data.load("Beijing")


def two_companies(n=120, seed=0):
    """Two companies whose targets have opposite slopes, the first input says whose a row is."""
    rng = np.random.default_rng(seed)
    company = np.repeat(["a", "b"], n // 2)
    X = np.column_stack([np.where(company == "a", -1.0, 1.0), rng.standard_normal(n)])
    y = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(n)
    return Companies(("side", "x"), X, y, company)


def linear_trial(seed=0, kind=lambda seed: LinearRegression()):
    companies = two_companies(seed=seed)
    rows = np.random.default_rng(seed).permutation(len(companies.y))
    parts = Split(*np.split(rows, [40, 80]))
    return make_trial(companies, parts, kind, squared_error(), np.random.SeedSequence(seed))


# --- methods and controls ------------------------------------------------------------------------


def test_candidates_are_built_on_the_rows_of_their_company_alone():
    companies = two_companies()
    parts = Split(*np.split(np.random.default_rng(0).permutation(120), [40, 80]))
    trial = linear_trial()
    first = parts.build[companies.company[parts.build] == "a"]
    by_hand = LinearRegression().fit(companies.X[first], companies.y[first])
    np.testing.assert_allclose(trial.test.P[:, 0], by_hand.predict(companies.X[parts.test]))
    np.testing.assert_array_equal(trial.test_home == 0, trial.test.X[:, 0] < 0)
    np.testing.assert_array_equal(trial.sample_home == 0, trial.sample.X[:, 0] < 0)


def test_methods_without_a_gate_by_hand():
    trial = linear_trial()
    test, losses = trial.test, compare(trial, METHODS)
    each = ((test.P - test.y[:, np.newaxis]) ** 2).mean(axis=0)
    assert losses["best_test"] == pytest.approx(each.min())
    assert losses["best_sample"] in [pytest.approx(value) for value in each]
    assert losses["ewma"] == pytest.approx(((test.P.mean(axis=1) - test.y) ** 2).mean())
    own = np.where(test.X[:, 0] < 0, test.P[:, 0], test.P[:, 1])
    assert losses["home"] == pytest.approx(((own - test.y) ** 2).mean())
    direct = LinearRegression().fit(trial.sample.X, trial.sample.y).predict(test.X)
    assert losses["direct"] == pytest.approx(((direct - test.y) ** 2).mean())


def test_local_weights_win_where_candidates_are_local():
    losses = compare(linear_trial(), ("auto", "auto_own", "gw", "direct"))
    assert losses["auto"] < 0.2 * losses["gw"]
    assert losses["auto_own"] < 0.2 * losses["direct"]


def test_weights_of_rows_enter_candidates_and_losses():
    companies = two_companies()
    weighted = replace(companies, sample_weight=(companies.X[:, 1] > 0).astype(float))
    parts = Split(*np.split(np.random.default_rng(0).permutation(120), [40, 80]))
    positive = Split(*(r[companies.X[r, 1] > 0] for r in (parts.build, parts.sample, parts.test)))
    both = [
        make_trial(
            c, p, lambda seed: LinearRegression(), squared_error(), np.random.SeedSequence(0)
        )
        for c, p in ((weighted, parts), (companies, positive))
    ]
    methods = ("ewma", "gw", "direct", "best_sample")
    zero_weight, left_out = (compare(trial, methods) for trial in both)
    assert zero_weight == pytest.approx(left_out, rel=1e-5)


def test_what_a_method_gives_does_not_depend_on_the_others():
    some = ("paper_shuffled", "auto", "paper")
    together = compare(linear_trial(), some)
    assert {method: compare(linear_trial(), [method])[method] for method in some} == together


def test_constants_are_two_numbers_for_every_row():
    trial = linear_trial()
    control = on_constants(trial)
    low, high = trial.sample.P.min(), trial.sample.P.max()
    for part in (control.sample, control.test):
        np.testing.assert_array_equal(part.P, np.tile([low, high], (len(part.y), 1)))
    assert control.test.y is trial.test.y


def test_shuffled_candidates_keep_their_values_and_lose_their_rows():
    trial = linear_trial()
    control = on_shuffled(trial)
    for before, after in ((trial.sample, control.sample), (trial.test, control.test)):
        np.testing.assert_array_equal(np.sort(before.P, axis=0), np.sort(after.P, axis=0))
        moved = (before.P != after.P).mean(axis=0)
        assert (moved > 0.8).all()
    # Each candidate has its own permutation: what two of them say of a row is taken apart.
    together = trial.test.P[:, 0] + trial.test.P[:, 1]
    assert not np.allclose(np.sort(together), np.sort(control.test.P.sum(axis=1)))


def test_the_place_of_a_row_is_one_input_per_company():
    trial = linear_trial()
    extended = with_place(trial)
    for before, after in ((trial.sample, extended.sample), (trial.test, extended.test)):
        np.testing.assert_array_equal(after.X[:, :2], before.X)
        np.testing.assert_array_equal(after.X[:, 2], before.X[:, 0] < 0)
        np.testing.assert_array_equal(after.X[:, 2:].sum(axis=1), 1.0)
        assert after.P is before.P


def test_with_place_a_gate_trusts_the_home_candidate():
    trial = linear_trial()
    # Without the input that says whose a row is, nothing else does.
    blind = replace(
        trial,
        sample=replace(trial.sample, X=trial.sample.X[:, 1:]),
        test=replace(trial.test, X=trial.test.X[:, 1:]),
    )
    losses = compare(blind, ("auto", "auto_place"))
    assert losses["auto_place"] < 0.1 * losses["auto"]


@pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")
def test_a_gate_on_shuffled_candidates_is_worse_than_on_real_ones():
    losses = compare(linear_trial(), ("auto", "auto_shuffled"))
    assert losses["auto"] < 0.2 * losses["auto_shuffled"]


def test_the_gate_of_the_paper_does_not_depend_on_the_unit_of_the_target():
    trial = linear_trial()
    hundredth = replace(
        trial,
        sample=replace(trial.sample, P=trial.sample.P / 100, y=trial.sample.y / 100),
        test=replace(trial.test, P=trial.test.P / 100, y=trial.test.y / 100),
    )
    whole, small = (predict(t, "paper") for t in (trial, hundredth))
    np.testing.assert_allclose(100 * small, whole, atol=0.01)
    losses = compare(trial, ("paper", "paper_free", "paper_shuffled", "gw"))
    assert losses["paper"] < 0.5 * losses["gw"] < losses["paper_shuffled"]
    assert losses["paper_free"] != losses["paper"]


# --- rents ---------------------------------------------------------------------------------------


def test_listings_are_cleaned():
    n = 200
    district = np.repeat(["Pudong", "Hongkou"], [150, 50])
    rent = np.arange(1.0, n + 1)
    area = np.ones(n)
    area[3] = np.nan
    kept = np.ones(n, dtype=bool)
    kept[5] = False
    rents = rental_data.cleaned({"area": area}, rent, district, kept)
    # 198 rents are left, the 99th percentile is 198.03, and Hongkou has fewer than 60 rows.
    np.testing.assert_allclose(np.exp(rents.y), np.delete(np.arange(1.0, 151), [3, 5]))
    assert rents.counts() == {"Pudong": 148}
    large = rental_data.cleaned({"area": np.ones(n)}, rent, np.repeat("Pudong", n), kept)
    assert np.exp(large.y).max() == pytest.approx(198.0)


def test_second_copies_of_a_listing_are_left_out():
    columns = {"rent": np.array([1.0, 2.0, 1.0, 1.0]), "area": np.array([5.0, 5.0, 5.0, 6.0])}
    assert rental_data.first_copies(columns).tolist() == [True, True, False, True]


def test_a_split_has_the_shares_of_the_paper(beijing):
    assert beijing.counts() == {"Chaoyang": 90, "Haidian": 77, "Tongzhou": 70}
    parts = rental_data.split(beijing, 0.4, np.random.default_rng(0))
    built = dict(zip(*np.unique(beijing.company[parts.build], return_counts=True), strict=True))
    assert built == {"Chaoyang": 54, "Haidian": 46, "Tongzhou": 42}
    second = np.concatenate([parts.sample, parts.test])
    left = dict(zip(*np.unique(beijing.company[second], return_counts=True), strict=True))
    # Of the two largest districts half is removed: 36 and 31 rows become 18 and 15.
    assert left == {"Chaoyang": 18, "Haidian": 15, "Tongzhou": 28}
    assert abs(len(parts.sample) - len(parts.test)) <= 1
    assert len(np.unique(np.concatenate([parts.build, second]))) == len(parts.build) + len(second)


@pytest.mark.parametrize("kind", list(rental.KINDS))
def test_rental_in_miniature(beijing, kind):
    keys = {**RHO, "candidates": kind}
    methods = (*METHODS, *CONTROLS, *PLACE_METHODS)
    metrics = rental.STUDY.replicate(keys, 0, methods)
    assert {name.partition(":")[0] for name in metrics} == set(methods)
    assert metrics["best_test:mspe"] <= metrics["best_sample:mspe"]
    assert metrics["home:mspe"] < metrics["gw:mspe"]
    assert metrics["auto:mspe"] < metrics["auto_shuffled:mspe"]
    assert rental.STUDY.replicate(keys, 0, ["gw"]) == {"gw:mspe": metrics["gw:mspe"]}


def test_absent_listings_are_named_with_their_source_and_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALMA_DATA", str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"rents of Beijing are missing.*danke\.com.*LOCAL"):
        rental.STUDY.replicate(RHO, 0, ["gw"])
    keys = {"data": "Belgium, claims", "candidates": "GLM", "n": 1000}
    with pytest.raises(InvalidInputError, match=r"beMTPL97.*CASdatasets.*LOCALMA_DATA"):
        insurance.STUDY.replicate(keys, 0, ["gw"])


def results_of_rents(mspe):
    """Two replicates of every cell, whose MSPE is `mspe(method, rho, candidates)`."""
    methods = {}
    for cell in rental.STUDY.cells:
        methods.setdefault(cell.identity, []).extend(cell.methods)
    return Results(
        (
            keys,
            {f"{m}:mspe": mspe(m, keys["rho"], keys["candidates"]) * scale for m in names},
        )
        for keys, names in ((json.loads(cell), names) for cell, names in methods.items())
        for scale in (0.999, 1.001)
    )


def as_the_paper_says(method, rho, candidates):
    """Curves with the shapes that the paper describes."""
    direct = 0.06 - 0.02 * rho if candidates == "forests" else 0.12 - 0.02 * rho
    curves = {
        "direct": direct,
        "best_test": 0.2 + 0.1 * rho,
        "ewma": 0.25 + 0.12 * rho,
        "gw": 0.16 + 0.2 * (rho - 0.4) ** 2 + 0.05 * rho,
        "auto_constants": 0.3,
        "auto_shuffled": 0.3,
    }
    local = 0.06 + 0.01 * (rho - 0.5) ** 2 if candidates != "forests" else direct * 1.02
    if candidates == "forests":
        local += 0.003 * (rho > 0.85)  # it rises at the end
    if method.endswith("_place"):
        return 0.5 * direct if method == "direct_place" else 0.4 * min(local, direct)
    return curves.get(method, local)


def test_the_shapes_that_the_paper_describes_agree_with_its_words():
    results = results_of_rents(as_the_paper_says)
    verdicts = {(f.words, f.panel): f.verdict(results) for f in rental.STUDY.findings}
    assert len(verdicts) == 6 * (2 + 3 * 3) + (2 * 4 + 1 + 3) + 7
    behind = f"{LABELS['auto_own']} is in no cell behind DirectModel"
    for (words, _), verdict in verdicts.items():
        # In these curves LocalMA is 2 % behind forests, which the paper allows and we do not.
        expected = "does not agree" if words.startswith(behind) else "agrees"
        assert verdict == expected, words


def test_findings_on_rents_can_disagree():
    def upside_down(method, rho, candidates):
        return 1.0 - as_the_paper_says(method, rho, candidates)

    results = results_of_rents(upside_down)
    agreed = [f.words for f in rental.STUDY.findings if f.verdict(results) == "agrees"]
    assert all("(3)" in words or "behind DirectModel" in words for words in agreed)


def test_findings_on_rents_wait_for_every_rho():
    few = Results(
        ({**RHO, "rho": rho}, dict.fromkeys(("direct:mspe", "auto:mspe"), rho))
        for rho in (0.1, 0.9)
    )
    for results in (few, Results([])):
        assert {f.verdict(results) for f in rental.STUDY.findings} == {"not run yet"}
    assert rental.notes(Results([])) == []


def test_the_figure_of_rents_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    (path,) = rental.draw_figure(results_of_rents(as_the_paper_says), tmp_path)
    assert path.stat().st_size > 10_000
    assert len(rental.DRAWN) <= 7, "there are seven styles that differ in black and white"


def test_a_quick_run_is_small():
    assert len(missing(rental.STUDY, Request(quick=True), {})) == 36
    assert len(missing(insurance.STUDY, Request(quick=True), {})) == 16
    assert len(missing(rental.STUDY, Request(), {})) == 18 * (100 + 100 + 20) + 18 * 20 + 9 * 20
    assert len(missing(insurance.STUDY, Request(), {})) == 440


# --- what is said of auto ------------------------------------------------------------------------


def results_of_risks(**risks):
    return Results(
        ({"n": 1}, {f"{method}:risk": values[k] for method, values in risks.items()})
        for k in range(len(next(iter(risks.values()))))
    )


def test_differences_are_paired():
    results = results_of_risks(auto=[1.0, 2.0, 3.0], gw=[1.1, 2.2, 3.0])
    found = difference(results, "risk", "auto", "gw", n=1)
    assert (found.mean, found.error) == (pytest.approx(-0.1), pytest.approx(0.1 / np.sqrt(3)))
    assert found.is_allowed
    assert not found.is_clear


def test_methods_are_compared_in_the_replicates_of_both():
    both = [({"n": 1}, {"auto:risk": a, "gw:risk": 1.0}) for a in (2.0, 3.0)]
    alone = ({"n": 1}, {"auto:risk": 90.0})
    found = difference(Results([both[0], alone, both[1]]), "risk", "auto", "gw", n=1)
    assert (found.mean, found.error, found.risk) == (1.5, 0.5, 1.0)
    single = difference(Results([both[0], alone]), "risk", "auto", "gw", n=1)
    assert single.mean == 1.0
    with pytest.raises(NotRunError, match="two replicates"):
        assert single.is_allowed
    with pytest.raises(NotRunError, match="No replicate"):
        difference(Results([alone, ({"n": 1}, {"gw:risk": 1.0})]), "risk", "auto", "gw", n=1)


def test_stored_replicates_keep_their_numbers():
    cell = json.dumps({"n": 1})
    stored = {
        (cell, 0): {"auto:risk": 1.0, "gw:risk": 2.0},
        (cell, 2): {"auto:risk": 3.0, "gw:risk": 5.0},
        (cell, 1): {"gw:risk": 100.0},
    }
    ours, theirs = results_of(stored).paired("auto", "gw", "risk", n=1)
    assert (ours.tolist(), theirs.tolist()) == ([1.0, 3.0], [2.0, 5.0])


def test_more_than_a_percent_and_three_errors_behind_is_not_allowed():
    little = results_of_risks(auto=[1.009, 1.009], gw=[1.0, 1.0])
    much = results_of_risks(auto=[1.011, 1.011], gw=[1.0, 1.0])
    noisy = results_of_risks(auto=[1.5, 0.9], gw=[1.0, 1.0])
    verdicts = [never_behind(results, "risk", "auto", ("gw",)) for results in (little, much, noisy)]
    assert verdicts == [True, False, True]


def test_ahead_on_average_is_clear_or_not_decided():
    values = {"ahead": [0.9, 0.91], "behind": [1.1, 1.11], "level": [0.8, 1.19]}
    found = {name: results_of_risks(auto=risks, gw=[1.0, 1.0]) for name, risks in values.items()}
    assert ahead_on_average(found["ahead"], "risk", "auto", ("gw",))
    assert not ahead_on_average(found["behind"], "risk", "auto", ("gw",))
    with pytest.raises(NotDecidedError):
        ahead_on_average(found["level"], "risk", "auto", ("gw",))
    finding = Finding("", "", lambda r: ahead_on_average(r, "risk", "auto", ("gw",)))
    assert finding.verdict(found["level"]) == "not decided"


def test_means_over_cells_have_the_errors_of_independent_draws():
    rng = np.random.default_rng(0)
    shifts = rng.normal(size=(400, 4, 6))
    means = [
        mean_over(
            [Difference(-1 + s.mean(), s.std(ddof=1) / np.sqrt(6), 10.0, 6) for s in cells],
            relative=True,
        )
        for cells in shifts
    ]
    assert np.mean([one.mean for one in means]) == pytest.approx(-0.1, abs=0.003)
    spread = np.std([one.mean for one in means])
    assert np.mean([one.error for one in means]) == pytest.approx(spread, rel=0.1)


def test_a_control_that_does_as_well_is_reported():
    clear = results_of_risks(auto=[1.0, 1.01, 1.0], auto_constants=[2.0, 2.0, 2.01])
    alike = results_of_risks(auto=[1.0, 1.1, 1.0], auto_constants=[1.0, 1.0, 1.2])
    assert ahead_of_control(clear, "risk", "constants")
    worse = results_of_risks(auto=[1.0, 1.1, 1.2], auto_constants=[1.0, 1.0, 1.1])
    with pytest.raises(NotDecidedError):
        ahead_of_control(alike, "risk", "constants")
    assert not ahead_of_control(worse, "risk", "constants")
    with pytest.raises(NotRunError, match="auto_shuffled"):
        ahead_of_control(clear, "risk", "shuffled")


def test_auto_is_put_beside_the_best_other_method():
    results = results_of_risks(auto=[0.9, 0.9], gw=[1.0, 1.0], direct=[1.2, 1.2])
    beside = against_best("risk", "n", [{}], ("gw", "direct"))
    title, _, head, _, row = table_against_best(results, beside).split("\n")
    assert "LocalMA (auto) -10.00 ± 0.00 over 1 cells" in title
    assert head == "| method | cells | n = 1 |"
    assert row == "| LocalMA (auto) |  | -10.00 ± 0.00 GW |"
    nowhere = against_best("risk", "n", [{"city": "none"}], ("gw",))
    assert table_against_best(results, nowhere) == ""


def test_studies_are_taken_together_in_parts_of_their_risks():
    def study(title, metric):
        beside = Comparison(metric, ("auto",), ("gw", "direct"), LABELS, "n", {"all": {}})
        return Study(title, title, (), run=dict, comparison=beside)

    rents = results_of_risks(auto=[0.9, 0.9], gw=[1.0, 1.0], direct=[0.8, 0.8])
    texts = Results(
        ({"n": 1}, {"auto:accuracy": 70.0, "gw:accuracy": 60.0, "ewma:accuracy": accuracy})
        for accuracy in (75.0, 77.0)
    )
    found = [(study("rents", "risk"), rents), (study("texts", "accuracy"), texts)]
    lines = render_together(found).split("\n")
    assert lines[4:7] == [
        "| rents | 1 | +12.50 ± 0.00 | -10.00 ± 0.00 |  | +12.50 ± 0.00 |",
        "| texts | 1 | -25.00 ± 0.00 | -25.00 ± 0.00 | +25.00 ± 4.17 |  |",
        "| all cells | 2 | -6.25 ± 0.00 | -17.50 ± 0.00 | +25.00 ± 4.17 | +12.50 ± 0.00 |",
    ]
    assert lines[-1].endswith("three paired standard errors: 1 of 3 comparisons.")
    assert render_together([(study("none", "risk"), Results([]))]) == ""


def test_few_replicates_must_differ_by_more_to_be_clear():
    def found(replicates):
        return Difference(-3.5, 1.0, 10.0, replicates)

    assert [found(n).is_clear for n in (2, 5, 30, 1000)] == [False, False, True, True]


# --- insurance -----------------------------------------------------------------------------------


def belgian_policies(n=900, seed=0):
    rng = np.random.default_rng(seed)
    expo = rng.uniform(0.3, 1.0, n)
    claims = rng.poisson(expo * 0.8)
    average = np.where(claims > 0, rng.gamma(2.0, 900.0, n), np.nan)
    average[np.flatnonzero(claims > 0)[0]] = 50_000.0
    return {
        "expo": expo,
        "nclaims": claims.astype(np.int32),
        "amount": np.where(claims > 0, average * claims, 0.0),
        "average": average,
        "coverage": rng.choice(["TPL", "TPL+", "TPL++"], n),
        "fuel": rng.choice(["diesel", "gasoline"], n),
        "sex": rng.choice(["male", "female"], n),
        "use": rng.choice(["private", "work"], n),
        "fleet": rng.choice(["0", "1"], n),
        "postcode": rng.choice([1050, 4000], n),
        **{name: rng.uniform(20, 80, n) for name in ("ageph", "bm", "power", "agec")},
        "long": rng.uniform(2, 6, n),
        "lat": rng.uniform(49, 52, n),
    }


def policies_of_the_game(n=900, seed=0):
    rng = np.random.default_rng(seed)
    claims = rng.poisson(0.6, n)
    labels = {"Gender": ["Female", "Male"], "Type": ["A", "B"], "Category": ["Large", "Small"]}
    labels |= {"Occupation": ["Employed", "Retired"], "Group2": ["L", "M", "N"]}
    numbers = ("Age", "Bonus", "Poldur", "Value", "Density", "Group1")
    return {
        **{name: rng.uniform(1, 80, n) for name in numbers},
        **{name: rng.choice(chosen, n) for name, chosen in labels.items()},
        "Adind": rng.integers(0, 2, n),
        "Exppdays": rng.integers(91, 366, n),
        "Numtppd": claims,
        "Indtppd": claims * rng.gamma(2.0, 300.0, n),
    }


@pytest.fixture
def policies(tmp_path, monkeypatch):
    """A data folder with two small portfolios."""
    write_table(tmp_path, insurance_data.BELGIUM, belgian_policies())
    write_table(tmp_path, insurance_data.GAME, policies_of_the_game())
    monkeypatch.setenv("LOCALMA_DATA", str(tmp_path))


def test_claims_are_per_year_and_weighted_by_exposure(policies):
    columns, loaded = belgian_policies(), insurance_data.load("Belgium, claims")
    np.testing.assert_allclose(loaded.y * loaded.sample_weight, columns["nclaims"])
    np.testing.assert_allclose(loaded.sample_weight, columns["expo"])
    assert loaded.inputs[: insurance_data.N_NUMBERS] == (
        "ageph", "bm", "power", "agec", "long", "lat",
    )  # fmt: skip
    np.testing.assert_array_equal(
        loaded.X[:, loaded.inputs.index("diesel")], columns["fuel"] == "diesel"
    )
    assert set(loaded.counts()) == {"1", "4"}


def test_amounts_are_those_of_policies_with_a_claim_and_cut(policies):
    columns, loaded = belgian_policies(), insurance_data.load("Belgium, amounts")
    claimed = columns["nclaims"] > 0
    assert len(loaded.y) == claimed.sum()
    assert loaded.y.max() == insurance_data.LARGEST_AMOUNT
    np.testing.assert_allclose(loaded.y[1:], columns["average"][claimed][1:] / 1000)
    np.testing.assert_array_equal(loaded.sample_weight, columns["nclaims"][claimed])


def test_amounts_of_the_game_are_per_year_insured(policies):
    columns, loaded = policies_of_the_game(), insurance_data.load("Pricing game, amounts")
    per_year = columns["Indtppd"] / 1000 / (columns["Exppdays"] / 365)
    np.testing.assert_allclose(loaded.y, per_year)
    kinds = ("Gender Male", "Type B", "Category Small", "Occupation Retired", "Group2 M")
    assert loaded.inputs[7:] == (*kinds, "Group2 N")
    np.testing.assert_array_equal(loaded.X[:, -1], columns["Group2"] == "N")


def test_half_of_the_policies_is_held_out(policies):
    loaded = insurance_data.load("Belgium, claims")
    parts = insurance_data.split(loaded, 150, np.random.default_rng(0))
    assert (len(parts.test), len(parts.build), len(parts.sample)) == (450, 270, 150)
    every = np.concatenate([parts.test, parts.build, parts.sample])
    assert len(np.unique(every)) == len(every)
    with pytest.raises(InvalidInputError, match=r"a fifth of the rows, 180; received n=1000"):
        insurance_data.split(loaded, 1000, np.random.default_rng(0))


# Candidates that were trained on so few policies may be worse than the mean.
@pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")
@pytest.mark.parametrize("kind", list(insurance.KINDS))
@pytest.mark.parametrize("data", list(insurance.TARGETS))
def test_insurance_in_miniature(policies, data, kind):
    keys = {"data": data, "candidates": kind, "n": 60}
    methods = ("gw", "ewma", "paper", "auto_own", "direct", "home", "best_test")
    metrics = insurance.STUDY.replicate(keys, 0, methods)
    assert 0 < metrics["best_test:deviance"] < 10
    assert len(metrics) == len(methods)


def test_the_deviance_of_a_portfolio_by_hand(policies):
    metrics = pytest.importorskip("sklearn.metrics")
    companies = insurance_data.load("Pricing game, amounts")
    target = insurance.TARGETS["Pricing game, amounts"]
    parts = insurance_data.split(companies, 90, np.random.default_rng(0))
    trial = make_trial(
        companies,
        parts,
        lambda seed: insurance.glm(seed, target=target),
        get_loss(target.loss),
        np.random.SeedSequence(0),
    )
    test = trial.test
    by_hand = metrics.mean_tweedie_deviance(
        test.y, test.P.mean(axis=1), power=1.5, sample_weight=test.sample_weight
    )
    assert compare(trial, ["ewma"])["ewma"] == pytest.approx(by_hand)


def test_nothing_is_said_of_insurance_before_it_was_run():
    assert {f.verdict(Results([])) for f in insurance.STUDY.findings} == {"not run yet"}
    assert insurance.STUDY.notes(Results([])) == []
    assert table_against_best(Results([]), insurance.STUDY.comparison) == ""


def test_the_figure_of_insurance_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    results = Results(
        (cell.keys, {f"{m}:deviance": 1.0 + len(m) / cell.keys["n"] for m in cell.methods})
        for cell in insurance.STUDY.cells
    )
    (path,) = insurance.draw_figure(results, tmp_path)
    assert path.stat().st_size > 10_000


# --- the real tables -----------------------------------------------------------------------------


def real(city):
    pytest.importorskip("pyarrow")
    file = rental_data.SOURCES[city].file
    if not (data_folder() / file).exists():
        pytest.skip(f"{file} is not in the data folder")
    return rental_data.load(city)


def test_the_page_shows_the_districts_of_the_tables():
    for city in rental_data.SOURCES:
        real(city)
    assert rental_data.district_table() in README.read_text()


@pytest.mark.parametrize(
    ("city", "n_inputs", "thinned"),
    [
        ("Beijing", 7, ["Chaoyang", "Tongzhou"]),
        ("Shanghai", 10, ["Pudong", "Minhang"]),
        ("Shanghai 2019", 18, ["Pudong", "Xuhui"]),
    ],
)
def test_real_listings(city, n_inputs, thinned):
    rents = real(city)
    assert rents.X.shape[1] == n_inputs == len(rents.inputs)
    assert np.isfinite(rents.X).all()
    assert rental_data.largest(rents) == thinned
    assert min(rents.counts().values()) >= rental_data.SMALLEST_DISTRICT
    assert not {"lon", "lat", "lng"} & set(rents.inputs)


@pytest.mark.parametrize("data", list(insurance.TARGETS))
def test_real_policies(data):
    pytest.importorskip("pyarrow")
    file, _ = insurance_data.READERS[data]
    if not (data_folder() / file).exists():
        pytest.skip(f"{file} is not in the data folder")
    policies, target = insurance_data.load(data), insurance.TARGETS[data]
    assert np.isfinite(policies.X).all()
    assert get_loss(target.loss).target.contains(policies.y).all()
    assert (policies.sample_weight > 0).all()
    assert max(target.sizes) <= len(policies.y) / 5
    assert target.controlled in target.sizes
