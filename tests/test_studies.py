"""The harness of the studies, and each study in miniature."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from localma.errors import InvalidInputError
from studies import losses, motivating_example, pages, simulations, theorems
from studies.__main__ import check_request, main, parse_cells
from studies.findings import Finding, NotRunError, Results, decreasing, log_log_slope
from studies.harness import Cell, Study, Table, grid, load_study, study_names
from studies.published import Figure, find, load_published, parse
from studies.running import RESULTS, Request, missing, run, without
from studies.safety_data import data_folder
from studies.scenarios import candidates, draw, s1_coefficients, true_weights
from studies.storage import Store, merge_line, pack, read_compact
from studies.summary import agree, records, results_of, z_value
from studies.tables import README, insert, render, render_findings, render_table
from studies.workers import Worker, WorkerError

ROOT = Path(__file__).parents[1]

TOY = """
import time
import numpy as np
from studies.harness import Study, grid

def run(keys, seed, methods):
    if keys["n"] == 13:
        raise ValueError("thirteen")
    time.sleep(keys["n"] / 1e4)
    value = np.random.default_rng(seed).normal()
    print("said by a study")
    return {f"{method}:mse": value + len(method) for method in methods}

STUDY = Study("toy", "A toy", grid(("a", "bb"), 30, n=(100, 300)), run)
FAILING = Study("failing", "It fails", grid(("a",), 2, n=(10, 13)), run)
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A study in a module of its own, which worker processes find, too."""
    (tmp_path / "toy_study.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    yield "toy_study:STUDY"
    sys.modules.pop("toy_study", None)


def counting_study(calls: list | None = None) -> Study:
    def run_one(keys, seed, methods):
        if calls is not None:
            calls.append((dict(keys), tuple(methods)))
        value = float(np.random.default_rng(seed).normal())
        return {f"{method}:mse": value for method in methods}

    return Study("counting", "Counts", grid(("a", "b"), 4, setting=("S1",), n=(1, 2)), run_one)


# --- seeds ---------------------------------------------------------------------------------------


def test_seeds_are_the_same_on_every_machine():
    seed = simulations.STUDY.seed({"setting": "S1", "n": 100}, 0)
    # printf '["simulations", {"n": 100, "setting": "S1"}, 0]' | sha256sum
    assert seed.entropy == 0x648A32A9B2E285DBA13DDCBCA35F7080
    assert simulations.STUDY.seed({"n": 100, "setting": "S1"}, 0).entropy == seed.entropy


def test_seeds_differ_by_study_cell_and_replicate():
    study = counting_study()
    other = replace(study, name="other")
    seeds = {s.seed({"n": n}, r).entropy for s in (study, other) for n in (1, 2) for r in (0, 1)}
    assert len(seeds) == 8


def test_any_replicate_can_be_recomputed_alone(tmp_path):
    request = Request(2, {"n": ("100",)}, ("paper", "gw"), workers=0)
    run("simulations", request, tmp_path)
    stored = Store(tmp_path, "simulations").load()
    cell = Cell({"setting": "S3", "n": 100}, (), 0)
    again = simulations.STUDY.replicate(cell.keys, 1, ["paper"])
    kept = stored[cell.identity, 1]
    assert again == {name: kept[name] for name in ("paper:c1", "paper:mse")}
    assert len(stored) == 10


# --- the harness ---------------------------------------------------------------------------------


def test_a_method_asked_for_and_not_answered_is_an_error():
    study = replace(counting_study(), run=lambda keys, seed, methods: {"a:mse": 1.0})
    with pytest.raises(InvalidInputError, match=r"exactly the requested methods, \['a', 'b'\]"):
        study.replicate({"n": 1}, 0, ["a", "b"])


def test_metrics_that_are_not_finite_are_an_error():
    study = replace(counting_study(), run=lambda keys, seed, methods: {"a:mse": float("nan")})
    with pytest.raises(InvalidInputError, match=r"replicate 3: metrics must be finite"):
        study.replicate({"n": 1}, 3, ["a"])


def test_only_missing_methods_are_computed():
    study = counting_study()
    there = {(study.cells[0].identity, 0): {"a:mse": 1.0}}
    tasks = missing(study, Request(2), there)
    assert [(task.keys["n"], task.replicate, task.methods) for task in tasks] == [
        (1, 0, ["b"]),
        (2, 0, ["a", "b"]),
        (1, 1, ["a", "b"]),
        (2, 1, ["a", "b"]),
    ]


def test_requests_pick_cells_methods_and_replicates():
    study = replace(
        counting_study(), cells=(*grid(("a",), 5, n=(1,)), Cell({"n": 2}, ("a",), 3, True))
    )
    assert len(missing(study, Request(), {})) == 8
    assert len(missing(study, Request(4), {})) == 7
    assert len(missing(study, Request(quick=True), {})) == 2
    assert len(missing(study, Request(where={"n": ("2",)}), {})) == 3
    assert missing(study, Request(methods=("b",)), {}) == []


def test_again_replaces_the_figures_of_one_method_only(toy, tmp_path):
    store = Store(tmp_path, load_study(toy).name)
    run(toy, Request(3, workers=0), tmp_path)
    honest = store.load()
    method = load_study(toy).methods[0]
    stale = {
        key: dict.fromkeys(metrics, -1.0) if key[1] < 2 else metrics
        for key, metrics in honest.items()
    }
    store.fold(stale)
    run(toy, Request(3, methods=(method,), workers=0), tmp_path)
    assert store.load() == stale  # nothing is missing
    run(toy, Request(3, methods=(method,), workers=0, again=True), tmp_path)
    for key, metrics in store.load().items():
        for name, value in metrics.items():
            source = honest if name.startswith(f"{method}:") else stale
            assert value == source[key][name]


def test_again_replaces_the_figures_of_all_cells_with_the_same_keys():
    cells = (*grid(("a",), 3, n=(100,)), *grid(("b",), 1, n=(100,)), *grid(("a",), 3, n=(300,)))
    study = Study("toy", "A toy", cells, run)
    there = {(cell.identity, 0): {"a:mse": 1.0, "b:mse": 2.0} for cell in cells}
    left = without(study, Request(again=True, where={"n": ("100",)}), there)
    assert list(left.values()) == [{}, {"a:mse": 1.0, "b:mse": 2.0}]


def test_z_counts_both_means_and_rounding():
    figure = Figure("Table 1", {}, "0.04 (0.01)", 0.04, 0.01, 0.005, 500)
    values = np.array([0.05, 0.07])  # their spread is the larger one
    variance = np.var(values, ddof=1) * (1 / 2 + 1 / 500) + 0.01**2 / 12
    assert z_value(figure, values) == pytest.approx(0.02 / np.sqrt(variance))


def test_workers_and_this_process_give_the_same_bytes(toy, tmp_path):
    run(toy, Request(3, workers=0), tmp_path / "here")
    run(toy, Request(3, workers=2), tmp_path / "workers")
    files = [(tmp_path / name / "toy.jsonl.xz").read_bytes() for name in ("here", "workers")]
    assert files[0] == files[1]


def test_methods_added_later_give_the_same_bytes(toy, tmp_path):
    run(toy, Request(2, workers=0), tmp_path / "at once")
    run(toy, Request(1, {"n": ("300",)}, ("bb",), workers=0), tmp_path / "bit by bit")
    run(toy, Request(2, methods=("a",), workers=0), tmp_path / "bit by bit")
    run(toy, Request(2, workers=0), tmp_path / "bit by bit")
    files = [(tmp_path / name / "toy.jsonl.xz").read_bytes() for name in ("at once", "bit by bit")]
    assert files[0] == files[1]
    summary = json.loads((tmp_path / "bit by bit" / "toy.json").read_text())
    assert [(r["methods"], r["replicates"]) for r in summary["runs"]] == [
        (["bb"], 1),
        (["a"], 4),
        (["bb"], 3),
    ]


def test_a_study_is_not_resumed_on_other_materials(toy, tmp_path, monkeypatch):
    study = replace(load_study(toy), materials=lambda: {"network": "one"})
    monkeypatch.setattr("toy_study.STUDY", study)
    run(toy, Request(1, workers=0), tmp_path)
    (first,) = json.loads((tmp_path / "toy.json").read_text())["runs"]
    assert first["materials"] == {"network": "one"}
    assert first["commit"] is None or re.match("[0-9a-f]{12}", first["commit"])
    run(toy, Request(2, workers=0), tmp_path)
    monkeypatch.setattr("toy_study.STUDY", replace(study, materials=lambda: {"network": "two"}))
    run(toy, Request(2, workers=0), tmp_path)  # nothing is missing
    stored = (tmp_path / "toy.jsonl.xz").read_bytes()
    with pytest.raises(InvalidInputError, match=r"(?s)the same materials.*'one'.*'two'.*--results"):
        run(toy, Request(3, workers=0), tmp_path)
    assert (tmp_path / "toy.jsonl.xz").read_bytes() == stored


def test_replicates_are_told_of_each_method_where_they_differ():
    cells = grid(("a", "b"), 3, n=(1, 2))
    table = Table("Error", "mse", ("n",), ("a", "b"))
    study = Study("s", "S", cells, None, (table,), labels={"a": "A, first"})
    alike = [({"n": n}, {"a:mse": 1.0, "b:mse": 1.0}) for n in (1, 2)]
    assert "(1 replicate)" in render_table(study, table, Results(alike))
    more = [*alike, ({"n": 1}, {"b:mse": 1.0})]
    text = render_table(study, table, Results(more))
    assert text.startswith('**Error** (replicates: 1 to 2 of "b"; 1 of "A, first")')


def test_findings_of_several_panels_stand_side_by_side():
    def finding(words, panel="", holds=True):
        return Finding(words, "aim", lambda results: holds, panel)

    said = (finding("it falls", "left"), finding("it falls", "right", False), finding("it is best"))
    study = replace(counting_study(), findings=(*said, finding("it rises", "right")))
    of_panels, plain = render_findings(study, Results([])).split("\n\n")
    assert of_panels.splitlines()[0] == "| finding | source | left | right |"
    assert of_panels.splitlines()[2:] == [
        "| it falls | aim | agrees | does not agree |",
        "| it rises | aim |  | agrees |",
    ]
    assert plain.splitlines()[2:] == ["| it is best | aim | agrees |"]


def test_a_failing_replicate_keeps_what_is_complete(toy, tmp_path):
    with pytest.raises(WorkerError, match=r"(?s)'n': 13.*ValueError: thirteen"):
        run(toy.replace("STUDY", "FAILING"), Request(workers=1), tmp_path)
    assert len(Store(tmp_path, "failing").load()) == 1


def test_a_worker_that_is_killed_says_so(toy, monkeypatch):
    study = load_study(toy)
    with Worker(toy, 1) as worker:
        worker._process.kill()
        with pytest.raises(WorkerError, match="ended with status -9"):
            worker.compute(missing(study, Request(1), {})[0])


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_a_killed_study_resumes_to_the_same_bytes(tmp_path):
    study = ["simulations", "--cells", "n=100", "--methods", "paper,gw,ewma"]
    command = [
        sys.executable,
        "-m",
        "studies",
        "run",
        *study,
        "--replicates",
        "40",
        "--workers",
        "2",
    ]
    killed = tmp_path / "killed"
    journal = killed / "simulations.journal"
    with subprocess.Popen(
        [*command, "--results", str(killed)], cwd=ROOT, stderr=subprocess.DEVNULL
    ) as process:
        wait_until(lambda: lines_of(journal) >= 6)
        workers = children_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert len(workers) == 2
    wait_until(lambda: not any(alive(worker) for worker in workers))
    reported = Store(killed, "simulations").load()
    assert 5 <= len(reported) < 200
    with journal.open("ab") as file:
        file.write(b'{"cell": {"setting": "S1", "n"')  # as if the kill had come within a line

    request = Request(40, {"n": ("100",)}, ("paper", "gw", "ewma"), workers=0)
    assert len(missing(simulations.STUDY, request, reported)) == 200 - len(reported)
    run("simulations", request, killed)
    run("simulations", request, tmp_path / "whole")
    names = ("killed", "whole")
    files = [(tmp_path / name / "simulations.jsonl.xz").read_bytes() for name in names]
    assert files[0] == files[1]
    assert not journal.exists()
    runs = json.loads((killed / "simulations.json").read_text())["runs"]
    assert [r["replicates"] for r in runs] == [len(reported), 200 - len(reported)]


def test_a_table_whose_reader_has_gone_ends_quietly():
    command = [sys.executable, "-m", "studies", "table", "simulations"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (1, b"")


# --- storage -------------------------------------------------------------------------------------

KEY = (Cell({"n": 1}, (), 0).identity, 0)


def test_torn_lines_are_dropped_and_whole_ones_kept(tmp_path):
    store = Store(tmp_path, "x")
    with store.journal({"started": "1"}) as journal:
        journal.record(KEY, {"a:mse": 1.5}, 0.1)
    with store.journal_file.open("ab") as file:
        file.write(b'{"cell": {"n": 1}, "rep')
    assert store.load() == {KEY: {"a:mse": 1.5}}
    with store.journal({"started": "2"}) as journal:
        journal.record((KEY[0], 1), {"a:mse": 2.5}, 0.1)
    assert store.load() == {KEY: {"a:mse": 1.5}, (KEY[0], 1): {"a:mse": 2.5}}
    assert [r["replicates"] for r in store.runs()] == [1, 1]


def test_a_kill_between_folding_and_removing_the_journal_counts_nothing_twice(tmp_path):
    store = Store(tmp_path, "counting")
    with store.journal({"started": "1", "methods": ["a"]}) as journal:
        journal.record(KEY, {"a:mse": 1.5}, 0.1)
    kept = store.journal_file.read_bytes()
    store.fold(store.load())
    once = store.compact_file.read_bytes()
    store.journal_file.write_bytes(kept)
    store.fold(store.load())
    assert store.compact_file.read_bytes() == once


def test_the_compact_file_is_sorted_by_number_not_by_text():
    replicates: dict = {}
    for n in (900, 1000, 100):
        merge_line(replicates, {"cell": {"n": n}, "replicate": 0, "metrics": {"a:mse": 1.0}})
    backwards = dict(reversed(replicates.items()))
    assert pack(replicates) == pack(backwards)
    assert [json.loads(cell)["n"] for cell, _ in replicates] == [900, 1000, 100]


def test_compact_file_order(tmp_path):
    replicates: dict = {}
    for n, r in ((900, 1), (1000, 0), (900, 0)):
        merge_line(replicates, {"cell": {"n": n}, "replicate": r, "metrics": {"a:mse": 1.0}})
    (tmp_path / "x").write_bytes(pack(replicates))
    order = [(line["cell"]["n"], line["replicate"]) for line in read_compact(tmp_path / "x")]
    assert order == [(900, 0), (900, 1), (1000, 0)]


def test_two_runs_of_one_study_at_a_time_are_refused(tmp_path):
    with (
        Store(tmp_path, "x").lock(),
        pytest.raises(InvalidInputError, match=r"it holds 'x.lock'.*--results"),
        Store(tmp_path, "x").lock(),
    ):
        pass


def test_merging_two_machines_gives_the_file_of_one(toy, tmp_path, monkeypatch):
    run(toy, Request(2, {"n": ("100",)}, workers=0), tmp_path / "a")
    run(toy, Request(2, {"n": ("300",)}, workers=0), tmp_path / "b")
    run(toy, Request(2, workers=0), tmp_path / "both")
    other = str(tmp_path / "b" / "toy.jsonl.xz")
    arguments = ["studies", "merge", toy, other, "--results", str(tmp_path / "a")]
    monkeypatch.setattr(sys, "argv", arguments)
    assert main() == 0
    files = [(tmp_path / name / "toy.jsonl.xz").read_bytes() for name in ("a", "both")]
    assert files[0] == files[1]
    runs = json.loads((tmp_path / "a" / "toy.json").read_text())["runs"]
    assert [r["replicates"] for r in runs] == [2, 2], "runs of both machines are told of"


# --- the command line ----------------------------------------------------------------------------


def call(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["studies", *arguments])
    return main()


def test_cells_are_parsed():
    assert parse_cells("setting=S1|S2,n=100") == {"setting": ("S1", "S2"), "n": ("100",)}
    assert parse_cells("setting=S1, M=2;n=100") == {"setting": ("S1, M=2",), "n": ("100",)}
    with pytest.raises(InvalidInputError, match=r"key=value pairs.*received 'S1'"):
        parse_cells("S1")


def test_unknown_names_are_refused(monkeypatch, capsys, tmp_path):
    assert call(monkeypatch, "run", "simulation", "--results", str(tmp_path)) == 1
    assert "Unknown study 'simulation'; did you mean 'simulations'?" in capsys.readouterr().err
    assert call(monkeypatch, "figure", "weights") == 1
    assert "Unknown figure 'weights'; did you mean 'weight_functions'?" in capsys.readouterr().err


def test_unknown_methods_and_cells_are_refused():
    with pytest.raises(InvalidInputError, match="Unknown method 'papers'; did you mean 'paper'"):
        check_request(simulations.STUDY, Request(methods=("papers",)))
    with pytest.raises(InvalidInputError, match="leave at least one cell of 'simulations'"):
        check_request(simulations.STUDY, Request(where={"n": ("7",)}))


def test_run_and_table_from_the_command_line(monkeypatch, capsys, tmp_path):
    folder = ("--results", str(tmp_path))
    assert call(monkeypatch, "table", "simulations", *folder) == 0
    assert "Nothing has been run yet" in capsys.readouterr().out
    cells = ("--cells", "setting=S2,n=100", "--methods", "gw,ewma", "--workers", "0")
    assert call(monkeypatch, "run", "simulations", "--replicates", "3", *cells, *folder) == 0
    assert "3 of 3 replicates" in capsys.readouterr().err
    assert call(monkeypatch, "table", "simulations", *folder) == 0
    printed = capsys.readouterr().out
    assert "| setting | n | LocalMA, published | GW, published | GW | EWMA, published |" in printed
    assert "| S2 | 100 | 0.38 (0.15) | 0.02 (0.02) | 0.0" in printed
    assert "not run yet" in printed


def test_every_study_is_listed_and_has_its_place_in_the_readme(monkeypatch, capsys, tmp_path):
    assert call(monkeypatch, "list", "--results", str(tmp_path)) == 0
    listed = capsys.readouterr().out
    for name in study_names():
        assert name in listed
        assert load_study(name).name == name
        insert(README.read_text(), name, "")


# --- published figures ---------------------------------------------------------------------------


def test_every_published_figure_is_there():
    counts: dict[str, int] = {}
    for figure in load_published():
        counts[figure.table] = counts.get(figure.table, 0) + 1
    assert counts == {
        "Table 1": 36,
        "Table 2": 12,
        "Table 3": 12,
        "Table 4": 25,
        "Table 5": 20,
        "Section 5.1": 2,
        "Section 5.2": 6,
        "Section 5.3": 5,
    }


@pytest.mark.parametrize(
    ("keys", "value", "sd", "rounding"),
    [
        ({"setting": "S1", "n": 100, "method": "LocalMA", "metric": "mse"}, 0.36, 0.15, 0.005),
        ({"setting": "S3", "n": 900, "method": "EWMA", "metric": "mse"}, 2.08, 0.05, 0.005),
        ({"setting": "S2", "n": 600, "method": "GW", "metric": "mse"}, 0.003, 0.003, 0.0005),
        ({"setting": "S3", "n": 300, "method": "LocalMA", "metric": "c1"}, 0.10, 0.02, 0.005),
        ({"setting": "scenario 2", "n": 100, "method": "GW", "metric": "mse"}, 14.5, 0.96, 0.005),
        ({"city": "Shanghai", "district": "Pudong", "metric": "observations"}, 1311, None, 0.5),
        ({"method": "LocalMA", "rho": 1.0, "metric": "accuracy"}, 69.9746, None, 0.00005),
        ({"method": "EWMA", "metric": "accuracy"}, 65.05, None, 0.005),
    ],
)
def test_published_figures_by_hand(keys, value, sd, rounding):
    figure = find(load_published(), **keys)
    assert (figure.value, figure.sd) == (value, sd)
    assert figure.rounding == pytest.approx(rounding)


def test_districts_add_up_to_their_city():
    for city in ("Beijing", "Shanghai"):
        districts = [f.value for f in load_published() if f.keys.get("city") == city]
        assert sum(districts) == 2 * find(load_published(), city=city, metric="observations").value


def test_what_is_no_figure_is_refused():
    with pytest.raises(ValueError, match=r"such as '0.36 \(0.15\)'; received 'about 3'"):
        parse("about 3")


def test_agreement_allows_for_monte_carlo_error_and_rounding():
    figure = find(load_published(), setting="S3", n=100, method="EWMA", metric="mse")
    spread = np.array([-0.04, 0.04] * 250)
    error = 3 * spread.std(ddof=1) * np.sqrt(2 / 500)
    assert agree(figure, figure.value + error + 0.0049 + spread)
    assert not agree(figure, figure.value + error + 0.0051 + spread)


# --- summaries, tables and findings --------------------------------------------------------------


def fake_results(study: Study, value) -> Results:
    """Results with `value(method, metric, keys)` in two replicates of every cell."""
    metrics = {table.metric for table in study.tables}
    return Results(
        (
            cell.keys,
            {
                f"{m}:{metric}": value(m, metric, cell.keys)
                for m in cell.methods
                for metric in metrics
            },
        )
        for cell in study.cells
        for _ in range(2)
    )


def published_value(method, metric, keys):
    name = simulations.PUBLISHED_AS[method]
    figure = find(load_published(), method=name, metric=metric, **keys)
    return 1.0 / keys["n"] if figure is None else figure.value


def test_records_have_the_published_figure_beside_ours():
    results = fake_results(simulations.STUDY, published_value)
    found = {
        (r["setting"], r["n"], r["method"], r["metric"]): r
        for r in records(simulations.STUDY, results)
    }
    record = found["S1", 100, "auto", "mse"]
    assert {name: record[name] for name in record if name not in ("keys", "sd")} == {
        "study": "simulations",
        "table": "Table 1",
        "setting": "S1",
        "n": 100,
        "method": "auto",
        "metric": "mse",
        "published": 0.36,
        "published_sd": 0.15,
        "value": 0.36,
        "replicates": 2,
        "agrees": True,
    }
    assert found["S1, M=2", 100, "auto", "mse"]["published"] is None
    assert len(found) == 20 * 4 * 2


def test_the_papers_own_figures_agree_with_its_words():
    results = fake_results(simulations.STUDY, published_value)
    verdicts = {f.words: f.verdict(results) for f in simulations.STUDY.findings}
    above_ceiling = [words for words in verdicts if "an MSE of at most" in words]
    assert len(above_ceiling) == 4
    for words, verdict in verdicts.items():
        assert verdict == ("does not agree" if words in above_ceiling else "agrees"), words


def test_findings_can_disagree():
    def upside_down(method, metric, keys):
        return keys["n"] / 10 if method in ("paper", "auto") else 0.15 * keys["n"]

    results = fake_results(simulations.STUDY, upside_down)
    verdicts = {finding.verdict(results) for finding in simulations.STUDY.findings}
    assert verdicts == {"does not agree"}


def test_findings_wait_for_results():
    finding = Finding("a < b", "aim", lambda results: results.mean("a", "mse", n=1) < 1)
    assert finding.verdict(Results([])) == "not run yet"
    assert finding.verdict(Results([({"n": 1}, {"a:mse": 0.5})])) == "agrees"
    assert finding.verdict(Results([({"n": 1}, {"a:mse": 1.5})])) == "does not agree"


def test_series_and_slopes():
    results = Results(
        [({"s": "x", "n": n}, {"a:mse": 1 / n}) for n in (1000, 10, 100)]
        + [({"s": "y", "n": 10}, {"a:mse": 5.0})]
    )
    series = results.series("a", "mse", "n", s="x")
    assert list(series) == [10, 100, 1000]
    assert decreasing(series)
    assert log_log_slope(series) == pytest.approx(-1)
    with pytest.raises(NotRunError, match="No series of a:mse over n"):
        results.series("a", "mse", "n", s="y")


def test_a_table_is_rendered():
    study = replace(
        counting_study(),
        tables=(Table("Error", "mse", ("setting", "n"), ("a", "b"), published="Table 1"),),
        published_as={"a": "GW"},
        labels={"a": "Global"},
        findings=(Finding("a is fine", "Section 9", lambda results: True),),
        notes=lambda results: ["a note"],
    )
    keys = {"setting": "S1", "n": 100}
    rows = [(keys, {"a:mse": 6.0, "b:mse": 0.0}), (keys, {"a:mse": 6.5, "b:mse": 0.0})]
    text = render(study, Results(rows))
    assert text.splitlines() == [
        "**Table 1: Error** (2 replicates)",
        "",
        "| setting | n | GW, published | Global | b |",
        "| --- | --- | --- | --- | --- |",
        "| S1 | 100 | 6.34 (0.64) | 6.25 (0.35) | 0 (0) |",
        "",
        "- a note",
        "",
        "| finding | source | ours |",
        "| --- | --- | --- |",
        "| a is fine | Section 9 | agrees |",
    ]
    far = [(keys, {"a:mse": 9.0}), (keys, {"a:mse": 9.1})]
    assert "9.05 (0.071)†" in render_table(study, study.tables[0], Results(far))


def test_rows_of_a_table_are_in_order_whatever_the_order_of_cells():
    table = Table("Error", "mse", ("s", "n"), ("a",))
    cells = [{"s": s, "n": n} for s, n in (("y", 30), ("y", 200), ("x", 4), ("y", 4))]
    study = replace(
        counting_study(), cells=tuple(Cell(keys, ("a",), 1) for keys in cells), tables=(table,)
    )
    text = render_table(study, table, Results([(keys, {"a:mse": 1.0}) for keys in cells]))
    rows = [line.split(" | ")[:2] for line in text.splitlines()[4:]]
    assert rows == [["| y", "4"], ["| y", "30"], ["| y", "200"], ["| x", "4"]]


def test_pages_show_the_stored_results():
    """After new results: python -m studies pages."""
    if not data_folder().is_dir():
        pytest.skip("pages name the data that are missing, and all are")
    for page, text in pages.rendered(RESULTS).items():
        assert page.read_text() == text, page
    assert pages.outdated_figures(RESULTS) == []


def test_a_page_shows_other_results(tmp_path):
    store = Store(tmp_path, "simulations")
    replicates = Store(RESULTS, "simulations").load()
    for (cell, _), metrics in replicates.items():
        if json.loads(cell) == {"setting": "S1", "n": 100}:
            metrics["auto:mse"] = 0.125
    store.fold(replicates)
    assert "**.125**" in pages.simulations({"simulations": results_of(store.load())})
    with pytest.raises(NotRunError):
        pages.simulations({"simulations": Results([])})
    assert "weight_functions" in pages.outdated_figures(tmp_path)


def test_means_that_moved_are_named(tmp_path, monkeypatch, capsys):
    cell = json.dumps({"n": 100, "setting": "S1"})
    noise = np.random.default_rng(0).normal(size=(40, 2))
    old = {(cell, k): {"gw:mse": 6 + e[0], "auto:mse": 0.2} for k, e in enumerate(noise)}
    new = {(cell, k): {"gw:mse": 6 + e[1], "auto:mse": 0.3} for k, e in enumerate(noise)}
    (tmp_path / "old.jsonl.xz").write_bytes(pack(old))
    Store(tmp_path, "simulations").fold(new)
    arguments = ("moved", "simulations", str(tmp_path / "old.jsonl.xz"), "--results", str(tmp_path))
    assert call(monkeypatch, *arguments) == 0
    printed = capsys.readouterr().out
    assert "1 of 2 means moved by more than 2 standard errors." in printed
    assert "| LocalMA (auto) | mse | 100, S1 | 0.2 | 0.3 |" in printed
    assert "GW" not in printed


def test_sections_need_their_markers():
    with pytest.raises(ValueError, match="needs the markers '<!-- b: begin -->'"):
        insert("<!-- a: begin --><!-- a: end -->", "b", "text")


# --- the scenarios -------------------------------------------------------------------------------


def test_candidates_by_hand():
    P = candidates(np.array([[1.0, 0.0, 2.0, 0.0, 3.0]]))
    assert P.tolist() == [[3 + 4 + 1.5, -2 - 3 + 1 + 18, 3 - 4]]


def test_true_weights_by_hand():
    theta = s1_coefficients(3)
    assert theta[:, 0] == pytest.approx(np.sqrt(2) * np.array([1, -1 / 4, 1 / 9, -1 / 16, 1 / 25]))
    assert theta[:, 1] == pytest.approx(2 * np.array([-1, 1 / 4, -1 / 9, 1 / 16, -1 / 25]))
    X = np.array([[1.0, 0, 0, 0, 0]])
    powers = np.exp([np.sqrt(2), -2.0, 0.0])
    assert true_weights("S1", X)[0] == pytest.approx(powers / powers.sum())
    assert true_weights("S1, M=2", X)[0, 0] == pytest.approx(1 / (1 + np.exp(-np.sqrt(2))))
    assert true_weights("S3", X)[0] == pytest.approx(
        np.exp([-1, -2, -3]) / np.exp([-1, -2, -3]).sum()
    )
    assert true_weights("S2", X)[0] == pytest.approx([1 / 3] * 3)
    assert true_weights("scenario 2", X) is None


def test_the_infimum_of_scenario_2():
    points = draw("scenario 2", 400_000, np.random.default_rng(0))
    assert points.infimum() == pytest.approx(2.587, abs=0.06)
    assert draw("S1", 1000, np.random.default_rng(0)).infimum() == pytest.approx(0, abs=1e-20)


# --- every study in miniature --------------------------------------------------------------------


def miniature(study: Study, tmp_path: Path, **where: tuple[str, ...]) -> list[dict]:
    path = run(study.name, Request(2, where, workers=0), tmp_path)
    summary = json.loads(path.read_text())
    assert summary["config"]
    assert render(study, results_of(Store(tmp_path, study.name).load()), summary["runs"])
    return summary["records"]


def test_simulations_in_miniature(tmp_path):
    found = miniature(simulations.STUDY, tmp_path, n=("100",))
    assert {r["method"] for r in found} == {"paper", "auto", "gw", "ewma"}
    assert all(r["replicates"] == 2 for r in found)
    mse = {(r["setting"], r["method"]): r["value"] for r in found if r["metric"] == "mse"}
    assert mse["S1", "auto"] < 0.2 * mse["S1", "gw"]
    assert mse["S2", "ewma"] == pytest.approx(0, abs=1e-20)


def test_motivating_example_in_miniature(tmp_path):
    found = {
        (r["method"], r["metric"]): r["value"]
        for r in miniature(motivating_example.STUDY, tmp_path)
    }
    assert found["local", "mse"] < 0.1 * found["equal", "mse"]
    assert found["local", "weight Company 1"] > 0.9


def assert_drawn(study, results, folder):
    """Every figure of a study can be made of these results."""
    if find_spec("matplotlib") is None:
        return
    import_module("matplotlib").use("agg")
    for figure in study.figures.values():
        for path in figure(results, folder):
            assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["weight_functions", "motivating_example"])
def test_figures_are_drawn(monkeypatch, tmp_path, name):
    pytest.importorskip("matplotlib").use("agg")
    assert call(monkeypatch, "figure", name, "--out", str(tmp_path)) == 0
    pictures = list(tmp_path.rglob("*.png"))
    assert len(pictures) == {"weight_functions": 1, "motivating_example": 2}[name]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_theorems_in_miniature(tmp_path, monkeypatch):
    monkeypatch.setattr(theorems, "N_TEST", 20_000)
    monkeypatch.setattr(theorems, "BLOCK", 10_000)
    found = miniature(theorems.STUDY, tmp_path, n=("100", "300"))
    value = {(r["part"], r.get("setting"), r["n"], r["method"], r["metric"]): r for r in found}
    ratio = value["ratio", None, 300, "auto", "out-of-sample ratio"]["value"]
    assert 1.0 < ratio < 2.0
    assert value["ratio", None, 100, "theorem", "in-sample ratio"]["value"] > 1.0
    near = value["weights", "S1, M=2", 300, "auto", "weight distance"]["value"]
    assert 0 < near < value["weights", "S1, M=2", 100, "auto", "weight distance"]["value"]
    results = results_of(Store(tmp_path, "theorems").load())
    slopes = theorems.notes(results)
    assert len(slopes) == 7
    assert "infimum of local averaging, many companies: -" in slopes[4]
    assert_drawn(theorems.STUDY, results, tmp_path)


def test_many_companies_by_hand():
    x = np.array([0.25, 0.5, 1.0])
    lines = theorems.company_lines(x, 2)
    assert lines == pytest.approx(
        10 * np.array([[0.0625, -0.1875], [0.1875, 0.1875], [0.4375, 0.9375]])
    )
    rng = np.random.default_rng(0)
    points = [theorems.draw_companies(20_000, M, rng) for M in (5, 10)]
    local = [each.infimum() for each in points]
    assert local == pytest.approx([100 / 80 / 5**4, 100 / 80 / 10**4], rel=0.05)
    assert all(theorems.best_constant(each) > 0.5 for each in points)


@pytest.mark.parametrize("loss", list(losses.OBSERVE))
def test_targets_have_the_mean_that_is_averaged(loss):
    rng = np.random.default_rng(0)
    points = losses.draw(loss, 40_000, rng)
    y = losses.OBSERVE[loss](points.truth, rng)
    assert np.mean(y - points.truth) == pytest.approx(0, abs=4 * np.std(y - points.truth) / 200)
    assert (points.P[:, 0] - points.P[:, 1]).min() > 0.25


def test_losses_in_miniature(tmp_path):
    found = miniature(losses.STUDY, tmp_path, n=("100", "1000"))
    value = {(r["loss"], r["n"], r["method"], r["metric"]): r["value"] for r in found}
    for loss in losses.OBSERVE:
        assert value[loss, 1000, "auto", "excess risk"] < value[loss, 1000, "gw", "excess risk"]
        assert value[loss, 1000, "auto", "c1"] < value[loss, 1000, "gw", "c1"]
    results = results_of(Store(tmp_path, "losses").load())
    assert len(losses.notes(results)) == 6
    assert_drawn(losses.STUDY, results, tmp_path)
