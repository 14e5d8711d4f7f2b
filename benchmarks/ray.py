"""Work on Ray compared with the same work in processes of this machine; memory of its store.

``python -m benchmarks.ray [predict fit folds study memory rates] [--quick] [--rounds R]``. A full
run takes about eight minutes on two quiet cores. It stores each part in
``benchmarks/results/ray.json``.

`predict`, `fit` and `study` compare two workers on Ray with two processes of Python that do the
same work and write the same files. The two take turns, and Ray itself runs already. The candidates
of `predict` compute for about the same time per row as a small network. `folds` compares a fit with
slow cross-fitted candidates on the cluster with one process. `memory` predicts ten and thirty times
as many rows, and reads the largest use of the object store; the second candidate is slower than the
first, so that predictions queue. `rates` measures rows per second of the parts of a job.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.machine import describe

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

RESULTS = Path(__file__).parent / "results" / "ray.json"
INPUTS = tuple("abcdefgh")
NAMES = (*INPUTS, "y", "p", "q")
COLUMNS: dict[str, Sequence[str] | str] = {"X": INPUTS, "y": "y", "P": ("p", "q")}
"""The columns of each array of a fit."""
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
    """Write a table of an id, eight inputs, a target and the predictions of two candidates."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    with pq.ParquetWriter(
        path, pa.schema([("id", pa.int64()), *((k, pa.float64()) for k in NAMES)])
    ) as file:
        for first in range(0, n, BLOCK):
            size = min(BLOCK, n - first)
            X = {k: rng.uniform(-2, 2, size) for k in INPUTS}
            p, q = X["a"] + 0.3 * X["b"], 0.3 * X["b"] - X["a"]
            y = np.abs(X["a"]) + 0.3 * X["b"] + 0.1 * rng.normal(size=size)
            ids = np.arange(first, first + size)
            file.write_table(pa.table({"id": ids, **X, "y": y, "p": p, "q": q}), BLOCK)


def write_model(path: Path, names: Sequence[str] = ("left", "right")) -> None:
    """Save a model of the two candidates, in this order."""
    import pyarrow as pa

    from benchmarks import ray as named  # by their import names
    from localma import LocalMARegressor

    rng = np.random.default_rng(1)
    sample = pa.table({k: rng.uniform(-2, 2, 500) for k in INPUTS})
    y = np.abs(sample["a"].to_numpy()) + 0.3 * sample["b"].to_numpy()
    pool = {name: getattr(named, name) for name in names}
    LocalMARegressor(pool, random_state=0).fit(sample, y).save(path)


def predict_here(arguments: tuple[Path, Path, Path, int]) -> None:
    """Predict every second block, in one of two processes."""
    from localma import load
    from localma.production.options import Options
    from localma.ray.job import Counts, JobFolder, list_blocks
    from localma.ray.work import Averaging, Job, Source, join, limit_threads

    limit_threads(1)
    model, data, out, worker = arguments
    combining = Averaging(load(model, trust=True, probes=False), Options(breaker=None), None)
    source, columns = Source(Options()), INPUTS
    job = Job(source, str(out), (), columns, ("id",))
    for block in list_blocks([data], BLOCK)[worker::2]:
        table = job.read(block, [*columns, "id"], combining.hints())
        scored, _ = combining.all_at_once(table.select(columns), nullcontext)
        JobFolder(out).write(block, join(table.select(["id"]), scored), Counts())


@contextmanager
def cluster(cpus: int = 2) -> Iterator[ModuleType]:
    """Ray on this machine; jobs of the block use it."""
    import ray

    ray.init("local", num_cpus=cpus, object_store_memory=STORE, include_dashboard=False,
             log_to_driver=False, logging_level="ERROR")  # fmt: skip
    try:
        yield ray
    finally:
        ray.shutdown()


def compared(works: Mapping[str, Callable[[int], object]], rounds: int) -> dict[str, Any]:
    """Seconds of two ways to do the same work, which take turns; `works` get the round."""
    here, there = works
    seconds: dict[str, list[float]] = {here: [], there: []}
    for number in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work(number)
            seconds[name].append(time.perf_counter() - began)
    ratios = [b / a for a, b in zip(seconds[here], seconds[there], strict=True)]
    return {"seconds": seconds, "ratios": ratios, "median_ratio": median(ratios)}


def predict(rows: int, rounds: int) -> dict[str, Any]:
    """Predictions of a whole model."""
    from localma.ray import Workers
    from localma.ray import predict as predict_on_ray

    with TemporaryDirectory() as name, cluster():
        folder = Path(name)
        write_data(folder / "x.parquet", rows)
        write_model(folder / "m.localma")

        def here(number: int) -> None:
            out = folder / f"here{number}"
            out.mkdir()
            tasks = [(folder / "m.localma", folder / "x.parquet", out, w) for w in range(2)]
            with get_context("spawn").Pool(2) as pool:
                pool.map(predict_here, tasks)

        def there(number: int) -> None:
            predict_on_ray(folder / "m.localma", folder / "x.parquet", folder / f"ray{number}",
                           columns=INPUTS, keep=["id"], workers=Workers(2), block_rows=BLOCK,
                           trust=True, progress=False)  # fmt: skip

        return {"rows": rows, **compared({"processes": here, "ray": there}, rounds)}


def gather_here(arguments: tuple[Path, Path, int]) -> None:
    """Copy every second block to the arrays, in one of two processes."""
    from localma.ray.fitting import BLOCK_ROWS, array_of
    from localma.ray.job import list_blocks
    from localma.tables.files import ParquetReader, open_table

    data, folder, worker = arguments
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in COLUMNS}
    for block in list_blocks([data], BLOCK_ROWS)[worker::2]:
        reader = open_table(block.path)
        assert isinstance(reader, ParquetReader)
        table = reader.read_groups(block.groups, columns=list(NAMES))
        for name, columns in COLUMNS.items():
            rows = slice(block.first, block.first + block.rows)
            arrays[name][rows] = array_of(table, columns, np.dtype("float32"))


def fit(rows: int, rounds: int) -> dict[str, Any]:
    """A fit on the files of a data set: gathered arrays, and then the engine of this machine."""
    from localma import LocalMARegressor
    from localma.ray import fit as fit_on_ray

    with TemporaryDirectory() as name, cluster():
        folder = Path(name)
        write_data(folder / "x.parquet", rows)
        models = {}

        def here(number: int) -> None:
            out = folder / f"here{number}"
            out.mkdir()
            for array, columns in COLUMNS.items():
                shape = (rows,) if isinstance(columns, str) else (rows, len(columns))
                np.lib.format.open_memmap(out / f"{array}.npy", "w+", np.float32, shape)
            with get_context("spawn").Pool(2) as pool:
                pool.map(gather_here, [(folder / "x.parquet", out, w) for w in range(2)])
            X, y, P = (np.load(out / f"{array}.npy", mmap_mode="r+") for array in COLUMNS)
            models["here"] = LocalMARegressor(random_state=0).fit(X, y, predictions=P)

        def there(number: int) -> None:
            models["ray"] = fit_on_ray(
                LocalMARegressor(random_state=0), folder / "x.parquet", "y", features=INPUTS,
                predictions=["p", "q"], folder=folder / f"ray{number}", dtype="float32",
                progress=False,
            )  # fmt: skip

        found = compared({"processes": here, "ray": there}, rounds)
        arrays = [models[place].gate_.arrays() for place in ("here", "ray")]
        same = all(np.array_equal(arrays[0][key], arrays[1][key]) for key in arrays[0])
        return {"rows": rows, "same_model": same, **found}


def folds(rows: int, rounds: int) -> dict[str, Any]:
    """A fit with slow cross-fitted candidates: one process, and two workers on Ray."""
    from sklearn.ensemble import GradientBoostingRegressor

    from localma import CrossFitted, LocalMARegressor
    from localma.ray import on_cluster

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 8))
    y = np.abs(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=rows)
    weights = []

    def fitted() -> None:
        pool = {f"depth {d}": CrossFitted(GradientBoostingRegressor(max_depth=d)) for d in (2, 3)}
        model = LocalMARegressor(pool, random_state=0).fit(X, y)
        weights.append(model.predict_weights(X[:1_000]))

    def there(number: int) -> None:
        with on_cluster():
            fitted()

    with cluster():
        found = compared({"one process": lambda number: fitted(), "ray": there}, rounds)
    return {"rows": rows, "same_weights": bool(np.array_equal(*weights[:2])), **found}


def study(replicates: int, rounds: int) -> dict[str, Any]:
    """Replicates of the simulations of the paper with n=900, in each of its settings."""
    from studies.running import Request, run

    where = {"n": ("900",)}
    with TemporaryDirectory() as name, cluster():
        folder = Path(name)

        def compute(place: str, number: int, **options: Any) -> None:
            run("simulations", Request(replicates, where, **options), folder / f"{place}{number}")

        works = {
            "processes": lambda number: compute("here", number, workers=2),
            "ray": lambda number: compute("ray", number, ray=""),
        }
        found = compared(works, rounds)
        files = [folder / f"{place}0" / "simulations.jsonl.xz" for place in ("here", "ray")]
        same = files[0].read_bytes() == files[1].read_bytes()
        return {"replicates_per_cell": replicates, "same_bytes": same, **found}


def memory(rows: int, rounds: int) -> dict[str, Any]:
    """Largest use of the object store in MiB, for some rows, and ten and thirty times as many."""
    from localma.ray import Workers

    largest: dict[str, float] = {}
    chain = {name: Workers(1, batch_rows=BLOCK) for name in ("left", "right")}
    quick = patch.dict(os.environ, LOCALMA_BENCH_SECONDS="1e-6")  # before Ray starts processes
    with quick, TemporaryDirectory() as name, cluster(cpus=4):
        folder = Path(name)
        write_model(folder / "m.localma", ("right", "left"))
        for times in (1, 10, 30):
            data = folder / "x.parquet"
            write_data(data, times * rows)
            if times < 30:
                largest[f"whole {times * rows}"] = _largest(folder, data, Workers(2))
            largest[f"each {times * rows}"] = _largest(folder, data, chain)
    # Eight blocks for each of three processes; a row has two numbers and two masks of two bytes.
    bound = 8 * 3 * BLOCK * 20 / 2**20
    return {"MiB": largest, "bound_of_each_MiB": bound, "store_MiB": STORE / 2**20}


def _largest(folder: Path, data: Path, workers: Any) -> float:
    """Predict a file, and look at the store ten times a second."""
    import ray

    from localma.ray import predict as predict_on_ray

    free, ended = [float(STORE)], threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            free.append(ray.available_resources().get("object_store_memory", STORE))

    watcher = threading.Thread(target=look)
    watcher.start()
    with TemporaryDirectory(dir=folder) as out:
        predict_on_ray(folder / "m.localma", data, Path(out) / "scored", columns=INPUTS,
                       keep=["id"], workers=workers, block_rows=BLOCK, trust=True,
                       progress=False)  # fmt: skip
        ended.set()
        watcher.join()
    return (STORE - min(free)) / 2**20


def rates(rows: int, rounds: int) -> dict[str, Any]:
    """Rows per second and processor of reading, of the gate and of writing; bytes of a row."""
    import pyarrow.parquet as pq

    from localma import load
    from localma.production.options import Options
    from localma.production.tables import Outputs, answer_columns
    from localma.ray.job import Counts, JobFolder, list_blocks
    from localma.ray.work import Job, Source, join, limit_threads
    from localma.tables.cells import Known

    limit_threads(1)
    columns = INPUTS
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
        footer = pq.read_metadata(folder / "x.parquet")
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        chunks = [group.column(k) for group in groups for k in range(1 + len(INPUTS))]
        read = sum(chunk.total_compressed_size for chunk in chunks)
    return {
        "rows_per_processor_second": {part: rows / seconds for part, seconds in spent.items()},
        "bytes_read_per_row": read / rows,
        "bytes_written_per_row": written / rows,
    }


PARTS = {f.__name__: f for f in (predict, fit, folds, study, memory, rates)}
FULL = {
    "predict": 1_200_000, "fit": 10_000_000, "folds": 40_000, "study": 110, "memory": 500_000,
    "rates": 2_000_000,
}  # fmt: skip
QUICK = {
    "predict": 40_000, "fit": 100_000, "folds": 2_000, "study": 1, "memory": 40_000,
    "rates": 40_000,
}  # fmt: skip
"""Rows of each part, or replicates per cell of a study."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--quick", action="store_true", help="small sizes, to test that all runs")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.parts or PARTS:
        machine, began = describe(), time.perf_counter()
        result = PARTS[name]((QUICK if arguments.quick else FULL)[name], arguments.rounds)
        result = {**result, "took_seconds": time.perf_counter() - began, "machine": machine}
        print(json.dumps({name: result}), flush=True)
        if not arguments.quick:
            stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps(stored | {name: result}, indent=1) + "\n")


if __name__ == "__main__":
    from benchmarks.ray import main as run  # so that candidates have an import name

    run()
