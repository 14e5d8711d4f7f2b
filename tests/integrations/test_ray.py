"""Jobs on a Ray cluster of several nodes on this machine, of which some are killed."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

# Ray reads these when it is imported: listen on 127.0.0.1, send nothing, and let in only processes
# of these tests, with a token that is in no file.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytest.importorskip("ray.data", reason="the extra 'ray' is not installed")
pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402

from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor  # noqa: E402
from localma.errors import CandidateError, InvalidInputError  # noqa: E402
from localma.ray import (  # noqa: E402
    BlockError,
    Workers,
    fit,
    gather,
    on_cluster,
    predict,
    predict_pool,
)
from tests.integrations import ray_candidates as candidates  # noqa: E402

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROOT = Path(__file__).parents[2]
N, GROUP = 2_000, 200
STORE = 100 * 2**20
MARKED = [450, 1_650]
"""Rows with an input on which some candidates fail, in two of ten blocks."""
ONE, TWO = Workers(1), Workers(2)
NODE = {"num_cpus": 2, "object_store_memory": STORE, "node_ip_address": "127.0.0.1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without processors, and two nodes."""
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        counted = tmp_path_factory.mktemp("counted")
        patch.setenv("LOCALMA_TEST_COUNTED", str(counted))  # only processes of the cluster have it
        quick = {
            "health_check_initial_delay_ms": 1_000,
            "health_check_period_ms": 1_000,
            "health_check_timeout_ms": 10_000,  # a busy machine is not a lost node
            "health_check_failure_threshold": 5,
            "prestart_worker_first_driver": False,  # processes that no test would use
        }
        head = {**NODE, "num_cpus": 0, "include_dashboard": False, "_system_config": quick}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                made.add_node(**NODE)
            made.wait_for_nodes()
            patch.delenv("LOCALMA_TEST_COUNTED")
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            made.counted = counted
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


def inputs(n=N):
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-2, 2, size=(2, n))
    return pa.table({"id": np.arange(n), "a": a, "b": b})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two files of five row groups each."""
    folder, table = tmp_path_factory.mktemp("data"), inputs()
    for k in range(2):
        part = table.slice(k * N // 2, N // 2)
        pq.write_table(part, folder / f"{k}.parquet", row_group_size=GROUP)
    return folder


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    return marked_rows(tmp_path_factory.mktemp("marked"), MARKED)


def marked_rows(folder, rows):
    table = inputs()
    a = table["a"].to_numpy().copy()
    a[rows] = candidates.LARGE + 1
    table = table.set_column(1, "a", pa.array(a))
    pq.write_table(table, folder / "0.parquet", row_group_size=GROUP)
    return folder


def fitted(**pool):
    sample = inputs(300).select(["a", "b"])
    y = np.abs(sample["a"].to_numpy()) + 0.3 * sample["b"].to_numpy()
    model = LocalMARegressor(pool, gate="local", random_state=0, missing="renormalize")
    return model.fit(sample, y)


def results(folder):
    return pa.concat_tables([pq.read_table(p) for p in sorted(Path(folder).glob("part-*"))])


def table_of(folder):
    return pa.concat_tables([pq.read_table(p) for p in sorted(Path(folder).glob("*.parquet"))])


def in_blocks(model, table, **options):
    """Predictions of this process, block by block."""
    blocks = [table.slice(k, GROUP).select(["a", "b"]) for k in range(0, table.num_rows, GROUP)]
    return np.concatenate([model.predict(block, **options) for block in blocks])


def assert_whole(table, wanted):
    assert table["id"].to_pylist() == list(range(N))  # nothing lost, nothing twice
    np.testing.assert_array_equal(table["prediction"].to_numpy(), wanted)


def test_predictions_are_those_of_this_process_and_are_not_repeated(cluster, data, tmp_path):
    model = fitted(left=candidates.left, right=candidates.right)
    job = {"keep": ["id"], "block_rows": GROUP, "workers": TWO}
    finished = predict(model, data, tmp_path / "out", **job)
    assert (finished.rows, finished.blocks, finished.computed) == (N, 10, 10)
    assert_whole(results(tmp_path / "out"), in_blocks(model, table_of(data)))
    weights = results(tmp_path / "out")["weight_left"].to_numpy()
    W = model.predict_weights(table_of(data).select(["a", "b"]))
    np.testing.assert_allclose(weights, np.asarray(W)[:, 0])
    next((tmp_path / "out").glob("part-000003-*")).unlink()
    assert predict(model, data, tmp_path / "out", **{**job, "workers": ONE}).computed == 1
    assert predict(model, data, tmp_path / "out", **job).computed == 0
    assert_whole(results(tmp_path / "out"), in_blocks(model, table_of(data)))
    with pytest.raises(InvalidInputError, match=r"another job, which differs in: .*options"):
        predict(model, data, tmp_path / "out", max_candidates=1, **job)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="must be a new or empty folder"):
        predict(model, data, tmp_path / "mine", **job)


def test_each_candidate_has_its_own_workers_and_gets_only_the_rows_that_need_it(
    cluster, data, tmp_path
):
    pool = {"left": candidates.counted, "right": candidates.right, "third": candidates.third}
    model, options = fitted(**pool), {"max_candidates": 1}
    workers = {"left": Workers(1, cpus=0.5, batch_rows=100), "right": Workers(1, cpus=0.5)}
    job = {"keep": ["id"], "block_rows": GROUP}
    predict(model, data, tmp_path / "out", workers=workers, **job, **options)
    table = results(tmp_path / "out")
    assert_whole(table, in_blocks(model, table_of(data), **options))
    asked = [set(row.split(";")) for row in table["asked"].to_pylist()]
    assert {len(row) for row in asked} == {1}
    counts = [line for file in cluster.counted.glob("*.txt") for line in file.read_text().split()]
    assert sum(map(int, counts)) == sum("left" in row for row in asked) < N
    assert max(map(int, counts)) <= 100


def test_a_candidate_that_fails_is_named_and_counted_or_stops_the_job(cluster, marked, tmp_path):
    model = fitted(frail=candidates.raises, right=candidates.right)
    job = {"keep": ["id"], "block_rows": GROUP}
    finished = predict(model, marked, tmp_path / "out", workers=ONE, **job)
    (failure,) = finished.failures
    assert (failure.candidate, failure.rows) == ("frail", 2 * GROUP)
    assert "MemoryError: not enough memory" in failure.reason
    assert finished.without_prediction == 0
    wanted = in_blocks(model, table_of(marked), breaker=None)
    assert_whole(results(tmp_path / "out"), wanted)
    chained = predict(
        model, marked, tmp_path / "chain", workers={"frail": Workers(1, cpus=0.5)}, **job
    )
    assert chained.failures == finished.failures
    assert_whole(results(tmp_path / "chain"), wanted)
    with pytest.raises(CandidateError, match=r"'frail'.*not enough memory.*\(block [28]\)"):
        predict(model, marked, tmp_path / "strict", missing="error", workers=ONE, **job)


def test_a_candidate_that_ends_its_process_is_named_and_counted(cluster, tmp_path):
    (tmp_path / "data").mkdir()
    marked = marked_rows(tmp_path / "data", MARKED[:1])
    model = fitted(deadly=candidates.dies, right=candidates.right)
    job = {"keep": ["id"], "block_rows": GROUP}
    finished = predict(model, marked, tmp_path / "out", workers=ONE, **job)
    (failure,) = finished.failures
    assert (failure.candidate, failure.rows) == ("deadly", GROUP)
    assert "ended its process 3 times" in failure.reason
    table = results(tmp_path / "out")
    assert table["id"].to_pylist() == list(range(N))
    rows = [k for k, name in enumerate(table["asked"].to_pylist()) if name == "right"]
    assert rows == [*range(400, 600)]


def test_blocks_that_fail_do_not_stop_the_others(cluster, marked, tmp_path):
    pool = {"frail": candidates.raises}
    job = {"columns": ["a", "b"], "keep": ["id"], "block_rows": GROUP, "workers": ONE}
    with pytest.raises(
        BlockError, match=r"^2 of 10 blocks failed; the others are finished"
    ) as told:
        predict_pool(pool, marked, tmp_path / "out", missing="renormalize", **job)
    assert "not enough memory" in str(told.value)
    assert len(list((tmp_path / "out").glob("part-*"))) == 8
    finished = predict_pool(pool, marked, tmp_path / "nan", missing="nan", **job)
    assert finished.without_prediction == finished.failures[0].rows == 2 * GROUP
    assert results(tmp_path / "nan")["frail"].null_count == 2 * GROUP


class Killer(threading.Thread):
    """Kills a node as soon as something has happened. The job goes on with the other one."""

    def __init__(self, cluster, happened):
        super().__init__(daemon=True)
        self.cluster, self.happened, self.killed = cluster, happened, False
        cluster.wait_for_nodes()

    def run(self):
        for _ in range(600):
            if self.happened():
                node = list(self.cluster.worker_nodes)[-1]
                self.cluster.remove_node(node, allow_graceful=False)  # SIGKILL of its raylet
                self.killed = True
                return
            time.sleep(0.1)

    def end(self):
        """Put a new node in its place; Ray starts nodes in the main thread only."""
        self.join()
        assert self.killed
        self.cluster.add_node(**NODE)


def parts(folder):
    return len(list(Path(folder).glob("part-*")))


def kill_driver(call, happened):
    """Start a driver in a process of its own, and kill it when something has happened."""
    process = subprocess.Popen(
        call, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )  # fmt: skip
    try:
        for _ in range(1_200):
            if happened() or process.poll() is not None:
                break
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()[1][-2_000:]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


DRIVER = [sys.executable, "-m", "tests.integrations.ray_candidates"]


def test_after_a_killed_driver_the_next_run_continues_although_a_node_is_killed(
    cluster, data, tmp_path
):
    model = fitted(left=candidates.slow, right=candidates.right)
    path, out = tmp_path / "model.localma", tmp_path / "out"
    model.save(path)
    call = [*DRIVER, "predict", cluster.address, str(path), str(data), str(out)]
    kill_driver(call, lambda: parts(out) >= 2)
    time.sleep(2)  # actors of the killed driver may finish a block
    before = {part.name: part.stat().st_mtime_ns for part in out.glob("part-*")}
    killer = Killer(cluster, lambda: parts(out) >= len(before) + 2)
    killer.start()
    three = Workers(3)  # more than one node has processors
    finished = predict(path, data, out, keep=["id"], block_rows=GROUP, workers=three, trust=True)
    killer.end()
    assert finished.computed <= 10 - len(before) < 10
    assert not finished.failures
    after = {part.name: part.stat().st_mtime_ns for part in out.glob("part-*")}
    assert before.items() <= after.items()
    assert_whole(results(out), in_blocks(model, table_of(data)))


def test_classes_and_all_predictions_of_a_pool(cluster, tmp_path):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=(2, 400))
    table = pa.table({"x": rng.normal(size=400), "a_no": p[0], "a_yes": 1 - p[0], "b_no": p[1],
                      "b_yes": 1 - p[1]})  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    pool = {k: Column([f"{k}_no", f"{k}_yes"], classes=["no", "yes"]) for k in "ab"}
    labels = np.where(rng.uniform(size=400) < 0.5, "no", "yes")
    model = LocalMAClassifier(pool, gate="local", random_state=0).fit(table, labels)
    model.save(tmp_path / "m.localma")
    job = {"block_rows": 100, "workers": ONE}
    predict(tmp_path / "m.localma", tmp_path / "t.parquet", tmp_path / "out", **job)
    table_out = results(tmp_path / "out")
    assert table_out["prediction"].to_pylist() == model.predict(table).tolist()
    np.testing.assert_allclose(table_out["p_yes"].to_numpy(), model.predict_proba(table)[:, 1])
    predict_pool(pool, tmp_path / "t.parquet", tmp_path / "pool", task="classification", **job)
    np.testing.assert_array_equal(results(tmp_path / "pool")["b_yes"].to_numpy(), 1 - p[1])


def labelled(folder):
    """A sample with the predictions of two candidates, in ten row groups."""
    table = inputs(1_000)
    a, b = table["a"].to_numpy(), table["b"].to_numpy()
    noise = np.random.default_rng(3).normal(size=len(a))
    columns = {"y": np.abs(a) + 0.3 * b + 0.1 * noise, "p": a + 0.3 * b, "q": 0.3 * b - a}
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, folder / "sample.parquet", row_group_size=100)
    return table


ROLES = {"features": ["a", "b"], "predictions": ["p", "q"]}


def assert_same_model(model, table):
    X, P = (np.column_stack([table[k].to_numpy() for k in names]) for names in ROLES.values())
    here = LocalMARegressor(gate="local", random_state=0)
    here.fit(X, table["y"].to_numpy(), predictions=P)
    for name, array in here.gate_.arrays().items():
        np.testing.assert_array_equal(model.gate_.arrays()[name], array)


def test_a_fit_is_that_of_the_same_arrays_to_the_bit(cluster, tmp_path):
    table = labelled(tmp_path)
    estimator = LocalMARegressor(gate="local", random_state=0)
    model = fit(estimator, tmp_path / "sample.parquet", "y", folder=tmp_path / "arrays", **ROLES)
    assert_same_model(model, table)


def test_a_killed_node_does_not_change_a_fit(cluster, tmp_path):
    table = labelled(tmp_path)
    stream = ray.data.read_parquet(str(tmp_path / "sample.parquet"), override_num_blocks=20)
    stream = stream.map_batches(candidates.slow_batch, batch_size=50, num_cpus=1)
    raw = tmp_path / "arrays" / "y.raw"
    killer = Killer(cluster, lambda: raw.exists() and raw.stat().st_size)
    killer.start()
    estimator = LocalMARegressor(gate="local", random_state=0)
    model = fit(estimator, stream, "y", folder=tmp_path / "arrays", **ROLES)
    killer.end()
    assert_same_model(model, table)


def test_folds_and_restarts_are_tasks_and_a_killed_node_changes_no_bit(cluster, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.abs(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=400)

    def fitted_in(folder):
        folder.mkdir()
        line = CrossFitted(candidates.SlowRidge(str(folder)))
        pool = {"first": Column(0), "second": Column(1), "line": line}
        return LocalMARegressor(pool, random_state=0).fit(X, y)

    there = tmp_path / "there"
    started = lambda: there.exists() and len(list(there.iterdir())) >= 3  # noqa: E731
    killer = Killer(cluster, started)  # one fit on all rows, and two folds
    killer.start()
    with on_cluster(cluster.address):
        remote = fitted_in(there)
    killer.end()
    local = fitted_in(tmp_path / "here")
    assert len(list((tmp_path / "here").iterdir())) == 6 <= len(list(there.iterdir()))
    for name, array in local.gate_.arrays().items():
        np.testing.assert_array_equal(remote.gate_.arrays()[name], array)
    np.testing.assert_array_equal(remote.predict(X), local.predict(X))


def test_after_a_killed_driver_a_fit_continues_from_the_gathered_blocks(cluster, tmp_path):
    n = 40
    table = inputs(n * 70_000)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=70_000)
    folder, journal = tmp_path / "arrays", tmp_path / "arrays" / "gathered.txt"

    def gathered():
        return len(journal.read_text().split()) if journal.exists() else 0

    call = [*DRIVER, "gather", cluster.address, "-", str(tmp_path / "t.parquet"), str(folder)]
    kill_driver(call, lambda: 1 <= gathered() < n)
    before = gathered()
    assert 1 <= before < n
    columns = {"X": ["a", "b"], "y": "id"}
    arrays = gather(tmp_path / "t.parquet", columns, folder=folder)
    lines = journal.read_text().split()
    assert len(lines) == len(set(lines)) == n
    np.testing.assert_array_equal(arrays["y"], np.arange(n * 70_000))
    np.testing.assert_array_equal(arrays["X"][:, 0], table["a"].to_numpy())


TOY = """
import time
from studies.harness import Study, grid

def run(keys, seed, methods):
    time.sleep(0.3)
    number = seed.generate_state(1)[0] % 1000
    return {f"{method}:mse": float(number + len(method) * keys["n"]) for method in methods}

STUDY = Study("toy", "A toy", grid(("a", "bb"), 12, n=(100, 300)), run)
"""


def test_a_study_has_the_same_bytes_after_a_killed_driver_and_a_killed_node(
    cluster, tmp_path, monkeypatch
):
    from studies.running import Request, run

    (tmp_path / "toy_study.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    folders = [str(ROOT / "src"), str(ROOT), str(tmp_path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    there = tmp_path / "ray"
    journal = there / "toy.journal"

    def finished():
        """Lines of replicates; one line describes each run."""
        lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
        return sum(line.startswith(b'{"cell"') for line in lines)

    call = [sys.executable, "-m", "studies", "run", "toy_study:STUDY", "--results", str(there)]
    kill_driver([*call, "--ray", cluster.address], lambda: finished() >= 4)
    before = finished()
    assert 4 <= before < 24
    killer = Killer(cluster, lambda: finished() >= before + 4)
    killer.start()
    told = subprocess.run(
        [*call, "--ray"], env={**os.environ, "RAY_ADDRESS": cluster.address}, cwd=ROOT,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    killer.end()
    assert told.returncode == 0, told.stderr
    left = 24 - before
    assert f"toy: {left} of {left} replicates" in told.stderr
    run("toy_study:STUDY", Request(12, workers=0), tmp_path / "here")
    files = [(folder / "toy.jsonl.xz").read_bytes() for folder in (tmp_path / "here", there)]
    assert files[0] == files[1]


def test_joblibs_backend_runs_outer_loops(cluster):
    import joblib
    from ray.util.joblib import register_ray
    from sklearn.model_selection import cross_val_score

    register_ray()
    X = np.random.default_rng(0).normal(size=(120, 2))
    pool = {"first": Column(0), "second": Column(1)}
    model = LocalMARegressor(pool, gate="global")
    here = cross_val_score(model, X, np.abs(X[:, 0]), cv=3)
    with joblib.parallel_backend("ray", n_jobs=2):
        there = cross_val_score(model, X, np.abs(X[:, 0]), cv=3)
    np.testing.assert_array_equal(there, here)


def test_the_command_predicts_on_a_cluster(cluster, tmp_path):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from localma.cli import app

    table = labelled(tmp_path)
    pool = {"p": Column("p"), "q": Column("q")}
    X = table.select(["a", "b", "p", "q"])
    model = LocalMARegressor(pool, gate="local", random_state=0).fit(X, table["y"].to_numpy())
    model.save(tmp_path / "m.localma")
    files = [str(tmp_path / "m.localma"), str(tmp_path / "sample.parquet")]

    def call(*options):
        told = CliRunner().invoke(app, ["predict", *files, "--keep", "id", *options])
        assert told.exit_code == 0, told.output + repr(told.exception)
        return told.stdout

    out = tmp_path / "out"
    told = json.loads(call("--out", str(out), "--ray", cluster.address, "--json"))
    assert (told["rows"], told["blocks_computed"], told["failed"]) == (1_000, 1, {})
    call("--out", str(tmp_path / "here.parquet"))
    here, there = pq.read_table(tmp_path / "here.parquet"), results(out)
    assert there.schema.names == here.schema.names
    assert there.to_pydict() == here.to_pydict()
    again = call("--out", str(out), "--ray", cluster.address)
    assert "0 of 1 block in this run" in " ".join(again.split())
    wrong = ["predict", *files, "--out", str(tmp_path / "here.parquet"), "--ray"]
    refused = CliRunner().invoke(app, wrong)
    assert refused.exit_code == 2
    assert "name a folder" in refused.output
    # In a process of its own and without an address, Ray starts on this machine.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LOCALMA_PROGRESS": "1"}
    call = [sys.executable, "-m", "localma", "predict", *files, "--keep", "id", "--json"]
    alone = subprocess.run(
        [*call, "--out", str(tmp_path / "alone"), "--ray"], env=environment, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert alone.returncode == 0, alone.stderr
    assert json.loads(alone.stdout)["blocks_computed"] == 1
    assert re.search(r"rows .* 1000/1000 ", alone.stderr), alone.stderr
    assert results(tmp_path / "alone").to_pydict() == there.to_pydict()


def test_too_many_workers_are_refused(cluster, data, tmp_path):
    model = fitted(left=candidates.left, right=candidates.right)
    with pytest.raises(InvalidInputError, match="need 9 processors and 0 GPUs; the cluster has"):
        predict(model, data, tmp_path / "out", workers=Workers(9))


def test_the_page_runs(cluster, tmp_path, monkeypatch):
    from tests.test_docs import Reader, text_of

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Reader(tmp_path).read(text_of("how-to/cluster.md"))
