"""Worker processes, which receive replicates and answer as JSON lines over pipes; or Ray tasks.

A worker ends when its input ends, so no worker outlives a run that is killed.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import joblib

from localma.errors import LocalMAError
from studies.harness import Keys, Metrics, Study, load_study

_THREAD_VARIABLES = (
    "LOKY_MAX_CPU_COUNT",  # the number of cores for joblib, and so for each gate
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)


class WorkerError(LocalMAError, RuntimeError):
    """A replicate failed. Complete replicates are stored, and the next run continues."""


@dataclass(frozen=True)
class Task:
    """One replicate of one cell, with the methods still missing."""

    keys: Keys
    replicate: int
    methods: Sequence[str]


@dataclass(frozen=True)
class Done:
    """The result of a task, and its time in seconds."""

    task: Task
    metrics: Metrics
    seconds: float


class Worker:
    """A process that computes one task at a time."""

    def __init__(self, study: str, threads: int) -> None:
        environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "studies", "work", study],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=Path(__file__).parents[1],
            text=True,
            start_new_session=True,  # an interrupt stops only the run; workers finish their task
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):  # the worker has already ended
            self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]

    def compute(self, task: Task) -> Done:
        """Send one task and wait for its result."""
        try:
            print(json.dumps(asdict(task)), file=self._process.stdin, flush=True)
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())  # type: ignore[union-attr]
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise WorkerError(
                f"The worker that computed {task} ended with status {self._process.wait()}. Its "
                "messages are above. Status -9 is a kill by the system, usually because memory "
                "ran out: run again with --workers 1."
            ) from error
        if "error" in answer:
            raise WorkerError(f"{task} failed:\n{answer['error']}")
        return Done(task, answer["metrics"], answer["seconds"])


def serve(study_name: str) -> None:
    """Run as a worker: compute the tasks on standard input until it ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # printed text must not look like a result
    study = load_study(study_name)
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    while True:
        answer = _answer(study, Task(**json.loads(tasks.get())))
        print(json.dumps(answer), file=answers, flush=True)


def compute_on_ray(
    study: str, tasks: Sequence[Task], address: str, record: Callable[[Done], None]
) -> None:
    """Compute tasks on a Ray cluster, one processor each, as in `compute_all`.

    Ray repeats a task if its node or its process is lost. The first failure ends the run, after
    the running tasks have been recorded.
    """
    from localma.ray import connected

    todo, running, failed = iter(tasks), {}, None
    with connected(address) as ray:
        compute = ray.remote(num_cpus=1, max_retries=MOST_RETRIES)(_compute_one)
        most = max(1, 2 * int(ray.cluster_resources().get("CPU", 1)))
        while True:
            while failed is None and len(running) < most and (task := next(todo, None)):
                running[compute.remote(study, asdict(task), sys.path)] = task
            if not running:
                break
            finished, _ = ray.wait(list(running))
            for reference in finished:
                task = running.pop(reference)
                try:
                    answer = ray.get(reference)
                except ray.exceptions.RayError as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                if "error" in answer:
                    failed = failed or WorkerError(f"{task} failed:\n{answer['error']}")
                else:
                    record(Done(task, answer["metrics"], answer["seconds"]))
    if failed is not None:
        raise failed


MOST_RETRIES = 5


def _compute_one(study_name: str, task: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Compute one replicate, in a process of the cluster; path : folders of modules."""
    sys.path.extend(folder for folder in path if folder not in sys.path)
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    return _answer(load_study(study_name), Task(**task))


def _answer(study: Study, task: Task) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        metrics = study.replicate(task.keys, task.replicate, task.methods)
    except Exception:
        return {"error": traceback.format_exc()}
    return {"metrics": metrics, "seconds": time.perf_counter() - start}


def _listen(tasks: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        tasks.put(line)
    os._exit(0)  # even during a task, because no process reads the result


def compute_all(
    study: str, tasks: Iterable[Task], n_workers: int, record: Callable[[Done], None]
) -> None:
    """Compute tasks in worker processes; `record` is called once per task, never in parallel.

    The first failure ends the run, after the running tasks have been recorded.
    """
    todo, lock = iter(list(tasks)), threading.Lock()
    failed = threading.Event()
    # Only cores that this process may use: two runs with one core each must not share it.
    threads = max(1, joblib.cpu_count() // n_workers)

    def work(worker: Worker) -> None:
        while not failed.is_set():
            with lock:
                task = next(todo, None)
            if task is None:
                return
            try:
                done = worker.compute(task)
            except BaseException:
                failed.set()
                raise
            with lock:
                record(done)

    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(study, threads)) for _ in range(n_workers)]
        pool = stack.enter_context(ThreadPoolExecutor(n_workers))
        stack.callback(failed.set)  # an interrupt also ends the threads
        for future in [pool.submit(work, worker) for worker in workers]:
            future.result()
