"""Runs of a study: compute, record and summarise the missing replicates."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import joblib

from studies.harness import Cell, Study, load_study
from studies.storage import Replicates, Store
from studies.summary import check_materials, commit, machine, versions, write_summary
from studies.workers import Done, Task, compute_all, compute_on_ray

RESULTS = Path(__file__).parent / "results"
QUICK_REPLICATES = 2


@dataclass(frozen=True)
class Request:
    """The replicates of a study to run.

    replicates : at most this number per cell; None for the number of the study.
    where : key -> allowed values, as texts; methods : None for all.
    workers : number of processes; 0 computes in this process.
    again : whether stored figures of these methods are replaced, after a change of a method.
    ray : address of a Ray cluster, as in `localma.ray.connected`; None for processes.
    """

    replicates: int | None = None
    where: Mapping[str, tuple[str, ...]] | None = None
    methods: tuple[str, ...] | None = None
    quick: bool = False
    workers: int = joblib.cpu_count()
    again: bool = False
    ray: str | None = None

    def picks(self, cell: Cell) -> bool:
        """Whether a cell is wanted."""
        if self.quick and cell.slow:
            return False
        return all(
            str(cell.keys.get(key)) in allowed for key, allowed in (self.where or {}).items()
        )

    def count(self, cell: Cell) -> int:
        """Number of replicates of a cell that are wanted."""
        most = QUICK_REPLICATES if self.quick else self.replicates
        return cell.replicates if most is None else min(most, cell.replicates)


def missing(study: Study, request: Request, there: Replicates) -> list[Task]:
    """Tasks that a request still needs, the first replicate of every cell before the second."""
    cells = [cell for cell in study.cells if request.picks(cell)]
    tasks = []
    for number in range(max((request.count(cell) for cell in cells), default=0)):
        for cell in cells:
            methods = _missing_methods(cell, request, there.get((cell.identity, number), {}))
            if number < request.count(cell) and methods:
                tasks.append(Task(cell.keys, number, methods))
    return tasks


def _missing_methods(cell: Cell, request: Request, metrics: Mapping[str, float]) -> list[str]:
    complete = {name.partition(":")[0] for name in metrics}
    wanted = cell.methods if request.methods is None else request.methods
    return [method for method in cell.methods if method in wanted and method not in complete]


def without(study: Study, request: Request, there: Replicates) -> Replicates:
    """Stored replicates without the figures of the methods and cells of a request."""
    removed: dict[str, set[str]] = {}
    for cell in filter(request.picks, study.cells):  # several cells may have the same keys
        removed.setdefault(cell.identity, set()).update(request.methods or cell.methods)
    return {
        (cell, number): {
            name: value
            for name, value in metrics.items()
            if name.partition(":")[0] not in removed.get(cell, ())
        }
        for (cell, number), metrics in there.items()
    }


def run(name: str, request: Request, folder: Path = RESULTS) -> Path:
    """Run the missing replicates, add them to the compact file, and write the summary."""
    study = load_study(name)
    store = Store(folder, study.name)
    with store.lock():
        if request.again:
            store.fold(without(study, request, store.load()))
        tasks = missing(study, request, store.load())
        try:
            if tasks:
                _compute(name, study, store, tasks, request)
        finally:
            replicates = store.load()
            write_summary(study, store, replicates)
            store.fold(replicates)
    return store.summary_file


def _compute(
    name: str, study: Study, store: Store, tasks: Sequence[Task], request: Request
) -> None:
    about = {
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "methods": sorted({method for task in tasks for method in task.methods}),
        "workers": request.workers if request.ray is None else f"ray {request.ray}".strip(),
        "commit": commit(),
        "materials": check_materials(study, store),
        "versions": versions(),
        "machine": machine(),
    }
    with store.journal(about) as journal:
        progress = Progress(study.name, len(tasks))

        def record(done: Done) -> None:
            cell = Cell(done.task.keys, (), 0)
            journal.record((cell.identity, done.task.replicate), done.metrics, done.seconds)
            progress.advance()

        if request.ray is not None:
            compute_on_ray(name, tasks, request.ray, record)
        elif request.workers:
            compute_all(name, tasks, request.workers, record)
        else:
            for task in tasks:
                record(_here(study, task))
        progress.end()


def _here(study: Study, task: Task) -> Done:
    start = time.perf_counter()
    metrics = study.replicate(task.keys, task.replicate, task.methods)
    return Done(task, metrics, time.perf_counter() - start)


class Progress:
    """One line on standard error: finished replicates, and an estimate of the time left."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._start = self._shown = time.monotonic()
        self._pause = 0.2 if sys.stderr.isatty() else 10.0

    def advance(self) -> None:
        """Count one replicate, and print the line from time to time."""
        self._done += 1
        if time.monotonic() - self._shown > self._pause:
            self._show(end="\r" if sys.stderr.isatty() else "\n")

    def end(self) -> None:
        """Print the final line."""
        self._show(end="\n")

    def _show(self, end: str) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._start
        left = elapsed / max(self._done, 1) * (self._total - self._done)
        print(
            f"{self._name}: {self._done} of {self._total} replicates, {elapsed:.0f} s elapsed, "
            f"about {left:.0f} s left   ",
            end=end,
            file=sys.stderr,
            flush=True,
        )
