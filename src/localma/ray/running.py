"""The driver of a job: connects to the cluster, streams blocks through actors, and counts."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from math import floor
from time import monotonic
from types import ModuleType
from typing import Any

from localma._optional import optional
from localma.errors import CandidateError, InvalidInputError, unknown_name
from localma.formatting import count
from localma.progress import bar
from localma.ray.job import Block, BlockError, Counts, JobFolder
from localma.ray.work import BATCH_ROWS, Actor, AskingActor, FinishingActor, Job
from localma.records import Columns, Record

MOST_LISTED = 5
BLOCKS_IN_STORE = 8
"""Blocks of predictions in the object store, per process of a job with one pool per candidate."""
LOCAL = "local"


@dataclass(frozen=True)
class Workers:
    """Processes of the cluster, and what each of them needs.

    Parameters
    ----------
    number : int, optional
        Number of processes. By default as many as the processors and GPUs of the cluster allow for
        a whole model, and one for each candidate with its own processes.
    cpus : float, default=1.0
        Processors of each process. It computes with so many threads.
    gpus : float, default=0.0
        GPUs of each process; a fraction shares one.
    memory : float, optional
        Bytes of memory that Ray reserves for each process.
    batch_rows : int, default=65536
        Rows per call of a candidate. An error costs at most these rows.

    Examples
    --------
    >>> Workers(2, gpus=0.5).batch_rows
    65536
    """

    number: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    memory: float | None = None
    batch_rows: int = BATCH_ROWS

    def __post_init__(self) -> None:
        if self.number is not None and self.number < 1:
            raise InvalidInputError(f"number must be 1 or more; received {self.number!r}.")
        if self.cpus <= 0.0 or self.gpus < 0.0:
            raise InvalidInputError(
                f"cpus must be above 0 and gpus 0 or more; received {self.cpus!r} and "
                f"{self.gpus!r}."
            )
        if self.batch_rows < 1:
            raise InvalidInputError(f"batch_rows must be 1 or more; received {self.batch_rows!r}.")


WorkersOf = Workers | Mapping[str, Workers]
"""The processes of the whole model, or those of each candidate by name."""


@dataclass(frozen=True)
class CandidateFailure(Record):
    """Rows for which a candidate has no prediction, and why.

    Parameters
    ----------
    candidate : str
        Its name.
    reason : str
        The reason in words.
    rows : int
        The number of rows.

    Examples
    --------
    >>> print(CandidateFailure("vendor", "raised MemoryError:", 200).rows)
    200
    """

    candidate: str
    reason: str
    rows: int


@dataclass(frozen=True)
class Finished(Record):
    """A finished job.

    Parameters
    ----------
    out : str
        The folder with the results: one Parquet file for each block, in the order of the rows.
    rows : int
        The number of rows.
    blocks : int
        The number of blocks.
    computed : int
        Blocks that this run computed; earlier runs computed the others.
    without_prediction : int
        Rows without any prediction.
    unlike_sample : int
        Rows unlike the labelled sample.
    failures : list of CandidateFailure
        What failed, in all runs.
    unfamiliar : dict
        Rows with values that the labelled sample does not have, by description.
    seconds : float
        Time of this run.

    Examples
    --------
    >>> print(Finished("scored", 10, 2, 2, 0, 0, [], {}, 1.0).rows)
    10
    """

    out: str
    rows: int
    blocks: int
    computed: int
    without_prediction: int
    unlike_sample: int
    failures: list[CandidateFailure]
    unfamiliar: dict[str, int]
    seconds: float

    def _columns(self) -> Columns:
        """Return a row per failure."""
        return {
            "candidate": [failure.candidate for failure in self.failures],
            "reason": [failure.reason for failure in self.failures],
            "rows": [failure.rows for failure in self.failures],
        }


@contextmanager
def connected(address: str | None = None) -> Iterator[ModuleType]:
    """Connect to a cluster, unless this process is connected.

    Without an address, or with an empty one, it is that of the variable RAY_ADDRESS. If there is
    none, Ray starts on this machine. It then listens on 127.0.0.1, without a dashboard and without
    usage statistics.
    """
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    is_local = address == LOCAL
    if is_local and "ray" not in sys.modules:
        # Ray reads this when it is imported; otherwise it listens on the address of the network.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = optional("ray", extra="ray")
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"include_dashboard": False} if is_local else {}
    ray.init(
        address=address,
        log_to_driver=False,
        logging_level=logging.WARNING,
        **options,
    )
    try:
        yield ray
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class Stage:
    """One pool of actors. candidate : the only candidate that runs in it; None for all."""

    kind: type[Actor]
    workers: Workers
    candidate: str | None = None


def make_stages(workers: WorkersOf, names: Sequence[str]) -> list[Stage]:
    """One pool for the whole model, or one for each candidate (M,) and one that writes."""
    finishing = Workers(1)
    if isinstance(workers, Workers):
        return [Stage(Actor, workers)]
    for name in workers:
        if name not in names:
            raise unknown_name("candidate", name, names)
    size = min((w.batch_rows for w in workers.values()), default=finishing.batch_rows)
    # All stages cut a block into the same batches; a candidate has its own batches within these.
    asking = [
        Stage(AskingActor, replace(workers.get(name, Workers()), batch_rows=size), name)
        for name in names
    ]
    return [*asking, Stage(FinishingActor, replace(finishing, batch_rows=size))]


@dataclass
class Run:
    """One run of a job: passes over the blocks that are not finished.

    row_bytes : size of the predictions of a row that stages pass on.
    """

    ray: ModuleType
    job: Job
    stages: Sequence[Stage]
    row_bytes: int
    stops: bool
    progress: bool | None
    errors: list[dict[str, Any]] = field(default_factory=list)

    def all_passes(self) -> None:
        """Finish all blocks; again those in which others must replace candidates that failed."""
        pending = self.job.blocks
        total = sum(block.rows for block in pending)
        with bar("rows", total, progress=self.progress) as advance:
            while pending:
                again: list[Block] = []
                with closing(self.rows(pending)) as rows:
                    for row in rows:
                        block = pending[int(row["id"])]
                        if row["error"]:
                            self.note(json.loads(row["error"]))
                        elif row["done"]:
                            advance(block.rows)
                        else:
                            again.append(block)
                pending = tuple(again)

    def note(self, error: dict[str, Any]) -> None:
        """Keep the error of a block, or stop."""
        self.errors.append(error)
        if self.stops or error["block"] is None:
            raise as_exception(error)

    def rows(self, blocks: tuple[Block, ...]) -> Generator[dict[str, Any]]:
        """Stream blocks through all stages, each in its own pool of actors."""
        data = optional("ray.data", extra="ray")
        packed = optional("ray.cloudpickle", extra="ray").dumps(replace(self.job, blocks=blocks))
        job = self.ray.put(packed)  # kept as long as the driver lives
        folders = [os.path.abspath(folder) for folder in sys.path]
        with quiet(data):
            # Items are there at once; tasks that make them would need a processor of their own.
            items = [{"id": number} for number in range(len(blocks))]
            dataset = data.from_items(items, override_num_blocks=len(blocks))
            sizes = self.sizes(len(blocks))
            for stage, number in zip(self.stages, sizes, strict=True):
                workers = stage.workers
                dataset = dataset.map(
                    stage.kind,
                    fn_constructor_args=(
                        [job, *folders],
                        workers.batch_rows,
                        workers.cpus,
                        stage.candidate,
                    ),
                    compute=data.ActorPoolStrategy(size=number, max_tasks_in_flight_per_actor=2),
                    num_cpus=workers.cpus,
                    **({"num_gpus": workers.gpus} if workers.gpus else {}),
                    **({"memory": workers.memory} if workers.memory else {}),
                )
            if len(self.stages) > 1:
                self.limit_store(data, dataset, max(block.rows for block in blocks), sum(sizes))
            yield from dataset.iter_rows()

    def limit_store(self, data: ModuleType, dataset: Any, most_rows: int, processes: int) -> None:
        """Hold back the first stages when some blocks per process are in the object store."""
        block_bytes = most_rows * self.row_bytes
        context = dataset.context
        # Without a guess of the size of an output, Ray counts 128 MiB until it has seen one.
        context.target_max_block_size = block_bytes
        context.execution_options.resource_limits = data.ExecutionResources(
            object_store_memory=BLOCKS_IN_STORE * processes * block_bytes
        )

    def sizes(self, n_blocks: int) -> list[int]:
        """Number of actors of each stage; an error if the cluster cannot hold them."""
        has = self.ray.cluster_resources()
        cpus, gpus = has.get("CPU", 0.0), has.get("GPU", 0.0)
        sizes = [stage.workers.number or 1 for stage in self.stages]
        first = self.stages[0].workers
        if len(self.stages) == 1 and first.number is None:
            most = floor(cpus / first.cpus)
            if first.gpus:
                most = min(most, floor(gpus / first.gpus))
            sizes = [max(1, min(most, n_blocks))]
        pairs = list(zip(sizes, self.stages, strict=True))
        need_cpus = sum(size * stage.workers.cpus for size, stage in pairs)
        need_gpus = sum(size * stage.workers.gpus for size, stage in pairs)
        if need_cpus > cpus or need_gpus > gpus:
            raise InvalidInputError(
                f"The workers need {need_cpus:g} processors and {need_gpus:g} GPUs; the cluster "
                f"has {cpus:g} and {gpus:g}. Lower number=, cpus= or gpus=, or add nodes."
            )
        return sizes


def as_exception(error: dict[str, Any]) -> Exception:
    """The error of a block, as an exception of the driver."""
    if error["block"] is None:
        return BlockError(
            f"A process of the cluster cannot load the model: {error['kind']}: {error['text']} All "
            "nodes need its files and the packages of its candidates."
        )
    text = f"{error['text']} (block {error['block']})"
    if error["candidate"] is not None:
        return CandidateError(text, candidate=error["candidate"])
    return BlockError(f"{error['kind']}: {text}")


@contextmanager
def quiet(data: ModuleType) -> Iterator[None]:
    """Leave progress to `localma.progress`, and log only warnings of Ray Data."""
    context, logger = data.DataContext.get_current(), logging.getLogger("ray.data")
    shown, level = context.enable_progress_bars, logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = shown
        logger.setLevel(level)


def run_job(
    job: Job,
    stages: Sequence[Stage],
    about: dict[str, Any],
    *,
    row_bytes: int,
    stops: bool,
    address: str | None,
    progress: bool | None,
) -> Finished:
    """Compute the blocks that are not in the folder yet, and sum up all blocks.

    Parameters
    ----------
    job : what the actors know, with all blocks
    stages : the pools of actors
    about : what the results depend on; a folder with other results is refused
    row_bytes : size of the predictions of a row, for the limit of the object store
    stops : whether the first error ends the job
    """
    began = monotonic()
    folder = JobFolder(job.folder)
    pending = folder.start(about, job.blocks)
    errors: list[dict[str, Any]] = []
    if pending:
        with connected(address) as ray:
            rest = replace(job, blocks=tuple(pending))
            run = Run(ray, rest, stages, row_bytes, stops, progress)
            run.all_passes()
            errors = run.errors
    folder.end()
    if errors:
        raise failed_blocks(errors, len(job.blocks))
    counts = folder.counts(job.blocks)
    return finished(job, counts, len(pending), monotonic() - began)


def finished(job: Job, counts: Counts, computed: int, seconds: float) -> Finished:
    """Make the record of a finished job."""
    failures = [
        CandidateFailure(name, reason, rows) for (name, reason), rows in counts.failed.items()
    ]
    return Finished(
        out=job.folder,
        rows=counts.rows,
        blocks=len(job.blocks),
        computed=computed,
        without_prediction=counts.empty,
        unlike_sample=counts.unlike,
        failures=sorted(failures, key=lambda failure: (failure.candidate, failure.reason)),
        unfamiliar=dict(counts.unfamiliar),
        seconds=seconds,
    )


def failed_blocks(errors: Sequence[dict[str, Any]], n_blocks: int) -> BlockError:
    """Make the error at the end of a job in which some blocks failed."""
    reasons = " ".join(f"Block {e['block']}: {e['text']}" for e in errors[:MOST_LISTED])
    return BlockError(
        f"{len(errors)} of {count(n_blocks, 'block')} failed; the others are finished. {reasons} "
        "The next run with the same folder computes only the blocks that failed."
    )
