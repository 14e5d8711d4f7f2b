"""Predictions on Ray compared with processes of this machine: overhead, and memory of the store.

``python -m benchmarks.ray [overhead memory rates] [--rows N] [--rounds R]``. The candidates compute
for about the same time per row as a small network. `overhead` compares two workers on Ray with two
processes of Python that predict the same blocks and write the same files; the two take turns.
`memory` predicts ten times as many rows, and reads the largest use of the object store.
`rates` measures rows per second of the parts of a job, for docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import threading
import time
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

STORE = 200 * 2**20
BLOCK = 20_000
SECONDS_PER_ROW = 1e-4
"""Processor time of the slower candidate."""


def left(X: Any) -> Any:
    """Compute for a fixed processor time per row, whatever else the machine does."""
    per_row = float(os.environ.get("LOCALMA_BENCH_SECONDS", SECONDS_PER_ROW))
    end = time.process_time() + per_row * len(X)
    total = 0.0
    while time.process_time() < end:
        total += float(np.sin(np.arange(1_000.0)).sum())
    return X["a"].to_numpy() + 0.3 * X["b"].to_numpy()


def right(X: Any) -> Any:
    return 0.3 * X["b"].to_numpy() - X["a"].to_numpy()


def write_data(path: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    table = pa.table({"id": np.arange(n), **{k: rng.uniform(-2, 2, n) for k in "abcdefgh"}})
    pq.write_table(table, path, row_group_size=BLOCK)


def write_model(path: Path) -> None:
    import pyarrow as pa

    from benchmarks.ray import left, right  # by their import names
    from localma import LocalMARegressor

    rng = np.random.default_rng(1)
    sample = pa.table({k: rng.uniform(-2, 2, 500) for k in "abcdefgh"})
    y = np.abs(sample["a"].to_numpy()) + 0.3 * sample["b"].to_numpy()
    LocalMARegressor({"left": left, "right": right}, random_state=0).fit(sample, y).save(path)


def predict_here(arguments: tuple[Path, Path, Path, int]) -> None:
    """Predict every second block, in one of two processes."""
    from localma import load
    from localma.production.options import Options
    from localma.ray.job import Counts, JobFolder, list_blocks
    from localma.ray.work import Averaging, Job, Source, join, limit_threads

    limit_threads(1)
    model, data, out, worker = arguments
    combining = Averaging(load(model, trust=True, probes=False), Options(breaker=None), None)
    source, columns = Source(Options()), tuple("abcdefgh")
    job = Job(source, str(out), (), columns, ("id",))
    for block in list_blocks([data], BLOCK)[worker::2]:
        table = job.read(block, [*columns, "id"], combining.hints())
        scored, _ = combining.all_at_once(table.select(columns), nullcontext)
        JobFolder(out).write(block, join(table.select(["id"]), scored), Counts())


def overhead(rows: int, rounds: int) -> dict[str, Any]:
    """Wall and ratio of two workers on Ray to two processes; Ray itself runs already."""
    import ray

    from localma.ray import Workers, predict

    seconds: dict[str, list[float]] = {"processes": [], "ray": []}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder / "x.parquet", rows)
        write_model(folder / "m.localma")
        ray.init("local", num_cpus=2, object_store_memory=STORE, include_dashboard=False,
                 log_to_driver=False, logging_level="ERROR")  # fmt: skip
        for k in range(rounds):
            out = folder / f"here{k}"
            out.mkdir()
            began = time.perf_counter()
            tasks = [(folder / "m.localma", folder / "x.parquet", out, w) for w in range(2)]
            with get_context("spawn").Pool(2) as pool:
                pool.map(predict_here, tasks)
            seconds["processes"].append(time.perf_counter() - began)
            began = time.perf_counter()
            predict(folder / "m.localma", folder / "x.parquet", folder / f"ray{k}", keep=["id"],
                    workers=Workers(2), block_rows=BLOCK, trust=True, progress=False)  # fmt: skip
            seconds["ray"].append(time.perf_counter() - began)
        ray.shutdown()
    ratios = [b / a for a, b in zip(seconds["processes"], seconds["ray"], strict=True)]
    return {"rows": rows, **seconds, "ratios": ratios, "median_ratio": median(ratios)}


def memory(rows: int, rounds: int) -> dict[str, Any]:
    """Largest use of the object store in MiB, for some rows and for ten times as many."""
    import ray

    largest: dict[str, float] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "m.localma")
        os.environ["LOCALMA_BENCH_SECONDS"] = "1e-6"
        ray.init("local", num_cpus=4, object_store_memory=STORE, include_dashboard=False,
                 log_to_driver=False, logging_level="ERROR")  # fmt: skip
        for n in (rows, 10 * rows):
            write_data(folder / f"{n}.parquet", n)
            for kind in ("whole", "each"):
                largest[f"{kind} {n}"] = _largest(folder, n, kind)
        ray.shutdown()
    return {"MiB": largest, "store_MiB": STORE / 2**20}


def _largest(folder: Path, n: int, kind: str) -> float:
    """Predict n rows, and look at the store ten times a second."""
    import ray

    from localma.ray import Workers, predict

    free, ended = [], threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            free.append(ray.available_resources().get("object_store_memory", STORE))

    watcher = threading.Thread(target=look)
    watcher.start()
    chain = {name: Workers(1, cpus=1.0, batch_rows=BLOCK) for name in ("left", "right")}
    workers = Workers(2) if kind == "whole" else chain
    predict(folder / "m.localma", folder / f"{n}.parquet", folder / f"{kind}{n}", keep=["id"],
            workers=workers, block_rows=BLOCK, trust=True, progress=False)  # fmt: skip
    ended.set()
    watcher.join()
    return (STORE - min(free)) / 2**20


def rates(rows: int, rounds: int) -> dict[str, Any]:
    """Rows per second and processor of reading, of the gate and of writing; bytes of a row."""
    from localma import load
    from localma.production.options import Options
    from localma.production.tables import Outputs, answer_columns
    from localma.ray.job import Counts, JobFolder, list_blocks
    from localma.ray.work import Job, Source, join, limit_threads
    from localma.tables.cells import Known

    limit_threads(1)
    columns = tuple("abcdefgh")
    spent = dict.fromkeys(("read", "gate", "write"), 0.0)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder / "x.parquet", rows)
        write_model(folder / "m.localma")
        model = load(folder / "m.localma", trust=True, probes=False)
        job = Job(Source(Options()), str(folder), (), columns, ("id",))
        blocks = list_blocks([folder / "x.parquet"], 10 * BLOCK)
        for block in blocks:
            began = time.process_time()
            table = job.read(block, [*columns, "id"], Known())
            X = table.select(columns)
            spent["read"] += time.process_time() - began
            began = time.process_time()
            W, support = model.predict_weights(X, return_support=True)
            spent["gate"] += time.process_time() - began
            began = time.process_time()
            outputs = Outputs(np.asarray(W)[:, 0].copy())
            scored = list(answer_columns(model, np.asarray(W), support, outputs))
            JobFolder(folder).write(block, join(table.select(["id"]), scored), Counts())
            spent["write"] += time.process_time() - began
        written = sum(path.stat().st_size for path in folder.glob("part-*"))
        read = (folder / "x.parquet").stat().st_size
    return {
        "rows_per_processor_second": {part: rows / seconds for part, seconds in spent.items()},
        "bytes_read_per_row": read / rows,
        "bytes_written_per_row": written / rows,
    }


PARTS = {"overhead": overhead, "memory": memory, "rates": rates}
ROWS = {"overhead": 1_200_000, "memory": 200_000, "rates": 2_000_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        result = PARTS[name](arguments.rows or ROWS[name], arguments.rounds)
        print(json.dumps({name: result}), flush=True)


if __name__ == "__main__":
    from benchmarks.ray import main as run  # so that candidates have an import name

    run()
