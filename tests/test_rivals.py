"""The study of rivals in miniature: same splits, real packages, failures, tables and picture."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.peers import PeerMissingError, interpreter
from studies import pages, rivals, safety
from studies.findings import NotRunError, Results
from studies.rivals import IN_PROCESS, METHODS, PEERS, RIVALS, STUDY, allowed, unable
from studies.rivals_results import compared, failures, of_half, rivals_run, summary_table, table_of
from studies.safety import DATA_SETS
from studies.safety_data import Part, data_folder
from studies.stacking import Problem

IRIS = {"half": "selection", "data": "iris", "n": 50}
DIABETES = {"half": "selection", "data": "diabetes", "n": 140}
CONVEX = ("deskit", "deslib", "autogluon", "bayesblend", "regularized_neural_ensemblers")


@pytest.fixture(autouse=True)
def _processes_end():
    yield
    rivals.close_peers()


def problem_of(keys, replicate=0):
    data = DATA_SETS[keys["data"]].with_sample(keys["n"])
    seed = STUDY.seed(keys, replicate)
    parts = data.split(data_folder(), np.random.default_rng(seed))
    problem, sample, test = safety.posed(data, *parts)
    return rivals.Rivals(problem, sample, 0), test


def needs(method):
    if method in PEERS:
        try:
            interpreter(method)
        except PeerMissingError as reason:
            pytest.skip(str(reason))
    elif method in IN_PROCESS[1:]:
        pytest.importorskip(method)


def test_the_splits_are_those_of_the_safety_study():
    known = {cell.identity for cell in safety.STUDY.cells}
    assert {cell.identity for cell in STUDY.cells} <= known
    for keys in (IRIS, DIABETES):
        assert STUDY.seed(keys, 3).entropy == safety.STUDY.seed(keys, 3).entropy
        assert STUDY.seed(keys, 3).entropy != STUDY.seed(keys, 4).entropy


def test_every_data_set_is_there_but_that_with_several_outputs():
    there = {cell.keys["data"] for cell in STUDY.cells}
    assert set(DATA_SETS) - there <= set(safety.SEVERAL_OUTPUTS)


@pytest.mark.parametrize("keys", [IRIS, DIABETES], ids=["iris", "diabetes"])
@pytest.mark.parametrize("method", METHODS)
def test_each_package_predicts_the_test_rows(method, keys):
    if unable(method, DATA_SETS[keys["data"]]):
        pytest.skip(unable(method, DATA_SETS[keys["data"]]))
    needs(method)
    prepared, test = problem_of(keys)
    predictions = rivals.predicted(prepared, test, method)
    assert predictions.shape == (len(test.y), *test.P.shape[2:])
    if method in CONVEX:
        slack = 1e-5  # some compute in single precision
        assert (predictions >= test.P.min(axis=1) - slack).all()
        assert (predictions <= test.P.max(axis=1) + slack).all()
    risk = prepared.problem.risk(test, predictions)
    worst = max(prepared.problem.risk(test, one) for one in np.moveaxis(test.P, 1, 0))
    assert 0 < risk < 2 * worst


def test_packages_that_cannot_do_a_task_are_left_out():
    of = {name: {m for m in RIVALS if unable(m, data) is None} for name, data in DATA_SETS.items()}
    assert of["iris"] == set(RIVALS)
    assert of["diabetes"] == set(RIVALS) - {"deslib"}
    assert of["beijing"] == set(RIVALS) - {"deslib", "bayesblend"}
    assert of["linnerud"] == set()


def test_a_mean_that_is_not_positive_is_replaced():
    P = np.array([[1.0, 2.0], [3.0, 0.5], [4.0, 4.0]])
    part = Part(np.zeros((3, 1)), P, np.ones(3), None)
    usable, share = allowed(Problem("poisson"), part, np.array([-1.0, 0.0, 2.0]))
    assert usable.tolist() == [1.0, 0.5, 2.0]
    assert share == pytest.approx(2 / 3)
    same, none = allowed(Problem("squared_error"), part, np.array([-1.0, 0.0, 2.0]))
    assert same.tolist() == [-1.0, 0.0, 2.0]
    assert none == 0.0


@pytest.fixture
def _fragile_package(tmp_path, monkeypatch):
    """A package in a real process that fails in regression and averages probabilities."""
    (tmp_path / "run_deskit.py").write_text(
        f"import sys; sys.path.insert(0, {str(peers.SCRIPTS)!r})\n"
        "from serving import serve\n"
        "def prepare(arrays):\n"
        "    if arrays['P'].ndim == 2: raise ValueError('no regression today')\n"
        "    return lambda: {'predictions': arrays['P_new'].mean(axis=1)}\n"
        "serve(prepare)\n"
    )
    monkeypatch.setattr(peers, "SCRIPTS", tmp_path)
    monkeypatch.setattr(peers, "interpreter", lambda name: sys.executable)


@pytest.mark.usefixtures("_fragile_package")
def test_a_failure_is_counted_and_the_next_replicate_runs():
    first = rivals.run(IRIS, STUDY.seed(IRIS, 0), ["deskit"])
    failed = rivals.run(DIABETES, STUDY.seed(DIABETES, 0), ["deskit"])
    again = rivals.run(IRIS, STUDY.seed(IRIS, 0), ["deskit"])
    assert failed == {"deskit:failed: ValueError: no regression today": 1.0}
    assert first == again
    prepared, test = problem_of(IRIS)
    assert first["deskit:risk"] == prepared.problem.risk(test, test.P.mean(axis=1))


def test_a_missing_package_ends_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    with pytest.raises(PeerMissingError, match="python -m benchmarks peers bayesblend"):
        rivals.run(IRIS, STUDY.seed(IRIS, 0), ["bayesblend"])


def stored():
    """Five replicates of two cells; deskit fails in one of them."""
    rows = []
    for number in range(5):
        for keys, best in ((IRIS, "auto"), (DIABETES, "sklearn")):
            risks = dict.fromkeys(("auto", "auto_own", "sklearn", "deskit"), 1.0 + 0.01 * number)
            risks[best] = 0.9 + 0.0101 * number
            metrics = {f"{m}:risk": risk for m, risk in risks.items()}
            if number == 4:
                del metrics["deskit:risk"]
                metrics["deskit:failed: ValueError: no"] = 1.0
            rows.append((keys, metrics))
    return Results(rows)


def test_the_table_counts_clear_differences_in_both_directions():
    lines = summary_table(stored(), RIVALS).splitlines()
    rows = {tuple(line.split(" | ")[:2]): line.strip("| ").split(" | ")[-3:] for line in lines}
    assert rows["| scikit-learn stacking", "auto"] == ["1", "1", "1"]
    assert rows["| scikit-learn stacking", "auto + own"] == ["0", "0", "1"]
    assert rows["| deskit", "auto"] == ["1", "1", "0"]


def test_failed_replicates_are_left_out_of_pairs_and_named():
    found = compared(stored(), "auto", "deskit")
    assert {one.replicates for one in found.values()} == {4}
    assert failures(stored()) == [
        "deskit failed in 2 replicates of iris, diabetes: `ValueError: no`"
    ]


def test_means_of_one_half_are_a_line_per_method():
    auto, own = of_half(stored(), RIVALS, "selection")
    assert auto.startswith("auto, mean over the cells of the selection half: ")
    assert own.count(" % to ") == 2
    assert of_half(stored(), RIVALS, "confirmation") == []


def test_rivals_that_have_not_run_have_no_column():
    assert rivals_run(stored(), RIVALS) == ["sklearn", "deskit"]
    head, *_ = table_of(stored(), RIVALS, list(DATA_SETS)).splitlines()
    assert head == "| data | scikit-learn stacking | deskit |"
    with pytest.raises(NotRunError, match="autogluon"):
        compared(stored(), "auto", "autogluon")
    assert summary_table(Results([]), RIVALS) == ""


def test_the_picture_has_a_panel_per_rival(tmp_path):
    pytest.importorskip("matplotlib")
    (path,) = STUDY.figures["rivals"](stored(), tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_part_of_the_page_is_the_summary_of_the_study():
    assert pages.rivals({"rivals": stored()}) == summary_table(stored(), RIVALS)
    with pytest.raises(NotRunError):
        pages.rivals({"rivals": Results([])})


def test_a_statement_is_undecided_unless_the_mean_is_clear():
    verdicts = {
        (one.words, one.panel): one.verdict(stored()) for one in STUDY.findings if one.panel
    }
    on_average = "is ahead on average over cells, by three standard errors"
    assert verdicts[f"auto {on_average}", "deskit"] == "agrees"
    assert verdicts[f"auto {on_average}", "scikit-learn stacking"] == "does not agree"
    assert verdicts[f"auto {on_average}", "AutoGluon"] == "not run yet"
    assert (
        verdicts["auto is clearly behind in no cell", "scikit-learn stacking"] == "does not agree"
    )
    assert verdicts["auto is clearly behind in no cell", "deskit"] == "agrees"
