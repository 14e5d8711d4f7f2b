"""What an actor does with a block: read it, ask candidates, and write the results."""

from __future__ import annotations

import json
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from io import BytesIO
from math import ceil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from localma._optional import optional
from localma._types import AnyArray, Array, RowMask
from localma.candidates import Pool
from localma.candidates.outputs import OutputNames, Table
from localma.candidates.pool_file import read_pool
from localma.errors import InvalidInputError, LocalMAWarning
from localma.estimators.inputs import check_finite, check_inputs, gate_inputs
from localma.imports import modules_beside
from localma.model_file import Model, load
from localma.production.answer import Calls, Guard, Predicted, Weights, no_answer, record
from localma.production.answer import Failure as AnswerFailure
from localma.production.options import Options
from localma.production.tables import (
    NamedColumn,
    Outputs,
    answer_columns,
    answered,
    count_unfamiliar,
    count_unlike,
    known_columns,
)
from localma.ray.job import MOST_CRASHES, Block, Counts, JobFolder
from localma.tables.cells import Known
from localma.tables.files import ParquetReader, open_table

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = optional("pyarrow", extra="ray")

Row = dict[str, object]
"""A row of the Ray data set: one block of the job."""
NOTHING: Row = {"state": b"", "done": False}
BATCH_ROWS = 65_536
THREAD_VARIABLES = ("LOKY_MAX_CPU_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Combining(ABC):
    """How the predictions of the candidates become columns."""

    names: tuple[str, ...]
    is_strict: bool

    @abstractmethod
    def hints(self) -> Known:
        """Types of the input columns that a file may not state."""

    @abstractmethod
    def ready(self, table: pa.Table) -> Table:
        """The inputs, as the candidates take them."""

    @abstractmethod
    def nothing(self, n: int) -> Predicted:
        """No predictions of n rows yet."""

    @abstractmethod
    def calls(self, X: Table, guard: Guard) -> Calls:
        """The candidates, ready to be called."""

    @abstractmethod
    def needed(self, X: Table, state: Predicted) -> RowMask:
        """The calls (n, M) that are needed and were not made yet."""

    @abstractmethod
    def result(self, X: Table, state: Predicted) -> tuple[list[NamedColumn], Counts]:
        """The columns to write, when nothing more is needed."""

    def all_at_once(self, X: Table, guard: Guard) -> tuple[list[NamedColumn], Counts]:
        """Run all candidates that are needed, in this process."""
        state, calls = self.nothing(len(cast(AnyArray, X))), self.calls(X, guard)
        while (needed := self.needed(X, state)).any():
            calls.ask(needed, state)
        return self.result(X, state)


class Averaging(Combining):
    """A fitted model: the gate says which candidates are needed."""

    def __init__(self, model: Model, options: Options, level: float | None) -> None:
        self.model, self.options, self.level = model, options, level
        self.names = tuple(model.candidate_names_)
        self.is_strict = (options.missing or model.missing) == "error"

    def hints(self) -> Known:
        """Types of the input columns that a file may not state."""
        return known_columns(self.model)

    def ready(self, table: pa.Table) -> Table:
        """The inputs, as the candidates take them."""
        if hasattr(self.model, "feature_names_in_"):
            return cast(Table, table)
        return as_array(table)

    def nothing(self, n: int) -> Predicted:
        """No predictions of n rows yet."""
        return Predicted.empty(self.model, n)

    def calls(self, X: Table, guard: Guard) -> Calls:
        """The candidates, ready to be called."""
        X = check_inputs(self.model, X, allow_missing=not self.is_strict)
        return Calls.of(self.model, X, self.options, monotonic(), self.is_strict, guard)

    def _weights(self, X: Table) -> Weights:
        X = check_inputs(self.model, X, allow_missing=not self.is_strict)
        inputs = gate_inputs(self.model, X)
        if not self.is_strict:
            check_finite(inputs)
        return Weights(self.model, inputs, self.options)

    def needed(self, X: Table, state: Predicted) -> RowMask:
        """The calls (n, M) that are needed and were not made yet."""
        V = self._weights(X).given(state.failed)
        return np.asarray((V > 0.0) & ~state.asked)

    def result(self, X: Table, state: Predicted) -> tuple[list[NamedColumn], Counts]:
        """The columns to write, when nothing more is needed."""
        weights = self._weights(X)
        V = weights.given(state.failed)
        empty = np.flatnonzero(V.sum(axis=1) == 0.0)
        if len(empty) and (self.options.missing or self.model.missing) != "nan":
            raise no_answer(empty, len(V), state.failures)
        given = record(self.model, weights, V, state, monotonic())
        return self._written(X, given.weights, given.support, Outputs(given.averages), state)

    def all_at_once(self, X: Table, guard: Guard) -> tuple[list[NamedColumn], Counts]:
        """Run all candidates that are needed, in this process."""
        given, outputs = answered(self.model, X, self.options, self.level, guard)
        return self._written(X, given.weights, given.support, outputs, given)

    def _written(
        self, X: Table, weights: Array, support: Array, outputs: Outputs, of: object
    ) -> tuple[list[NamedColumn], Counts]:
        columns = list(answer_columns(self.model, weights, support, outputs))
        counts = Counts(
            rows=len(weights),
            empty=int(np.count_nonzero(weights.sum(axis=1) == 0.0)),
            unlike=count_unlike(support),
            failed=count_failures(of.failures),  # type: ignore[attr-defined]
            unfamiliar=count_unfamiliar(self.model, X) if isinstance(X, pa.Table) else Counter(),
        )
        return columns, counts


class Collecting(Combining):
    """A pool without a gate: the predictions of all candidates, for all rows.

    n_outputs : number of outputs of a regression.
    """

    def __init__(self, pool: Pool, options: Options, n_outputs: int, as_frame: bool) -> None:
        self.pool, self.options, self.as_frame = pool, options, as_frame
        self.names = pool.names
        self.is_strict = (options.missing or "error") == "error"
        self.shape: tuple[int, ...] = () if n_outputs == 1 else (n_outputs,)
        if pool.classes is not None:
            self.shape = (len(pool.classes),)

    def hints(self) -> Known:
        """Types of the input columns that a file may not state."""
        return Known()

    def ready(self, table: pa.Table) -> Table:
        """The inputs, as the candidates take them."""
        return cast(Table, table) if self.as_frame else as_array(table)

    def nothing(self, n: int) -> Predicted:
        """No predictions of n rows yet."""
        return Predicted.none(self.names, n, self.shape)

    def calls(self, X: Table, guard: Guard) -> Calls:
        """The candidates, ready to be called."""
        return Calls(
            self.pool,
            X,
            self.shape,
            self.options,
            outputs=OutputNames(),
            reference=np.full(len(self.names), 1.0 / len(self.names)),
            began=monotonic(),
            is_strict=self.is_strict,
            guard=guard,
        )

    def needed(self, X: Table, state: Predicted) -> RowMask:
        """The calls (n, M) that are needed and were not made yet."""
        return ~state.asked

    def result(self, X: Table, state: Predicted) -> tuple[list[NamedColumn], Counts]:
        """The columns to write, when nothing more is needed."""
        empty = np.flatnonzero(state.failed.all(axis=1))
        if len(empty) and self.options.missing == "renormalize":
            raise no_answer(empty, len(state.failed), state.failures)
        columns: list[NamedColumn] = []
        for m, name in enumerate(self.names):
            values = state.P[:, m].reshape(len(state.P), -1)
            for k, suffix in enumerate(self._suffixes()):
                columns.append((name + suffix, pa.array(values[:, k], mask=state.failed[:, m])))
        rows, failed = len(state.P), count_failures(state.failures)
        return columns, Counts(rows=rows, empty=len(empty), failed=failed)

    def _suffixes(self) -> list[str]:
        if self.pool.classes is not None:
            return [f"_{label}" for label in self.pool.classes.tolist()]
        return [f"_{k}" for k in range(self.shape[0])] if self.shape else [""]


def as_array(table: pa.Table) -> AnyArray:
    """Numbers of a table, for models that were fitted on arrays: (n, p)."""
    columns = [table[name].to_numpy() for name in table.column_names]
    return np.column_stack(columns) if columns else np.empty((table.num_rows, 0))


def count_failures(failures: Sequence[AnswerFailure]) -> Counter[tuple[str, str]]:
    """Count rows by candidate and reason."""
    counts: Counter[tuple[str, str]] = Counter()
    for failure in failures:
        text = "has none" if failure.reason == "missing" else failure.text
        counts[failure.candidate, text] += len(failure.rows)
    return counts


# Recipes for actors: where an actor finds the model.


@dataclass(frozen=True)
class Source:
    """A model or a pool: in a file, which each actor reads once, or in memory.

    Parameters
    ----------
    options : options of the answers
    path : a model file, or a pool file; None if the model is in memory
    trust : whether candidates that run code, or open files or addresses, may come from the file
    held : a model or a pool in memory
    level : level of intervals
    task, n_outputs : of a pool
    as_frame : whether a pool takes tables; otherwise arrays
    """

    options: Options
    path: str | None = None
    trust: bool = False
    held: Model | Pool | None = None
    level: float | None = None
    task: str | None = None
    n_outputs: int = 1
    as_frame: bool = True

    def make(self) -> Combining:
        """Load the model or the pool. Networks in files are loaded when they are first called."""
        found = self.held if self.path is None else self._read(Path(self.path))
        if isinstance(found, Pool):
            return Collecting(found, self.options, self.n_outputs, self.as_frame)
        assert found is not None
        return Averaging(found, self.options, self.level)

    def _read(self, path: Path) -> Model | Pool:
        with ExitStack() as stack:
            if self.trust:
                stack.enter_context(modules_beside(path.parent))
            if self.task is not None:
                return Pool(read_pool(path, trust=self.trust), task=self.task)  # type: ignore[arg-type]
            return load(path, trust=self.trust, probes=False)


@dataclass(frozen=True)
class Job:
    """What all actors of a job know.

    Parameters
    ----------
    source : the model or the pool
    folder : the folder of the results
    blocks : the blocks of this run
    columns, keep : the input columns, and columns that are copied
    """

    source: Source
    folder: str
    blocks: tuple[Block, ...]
    columns: tuple[str, ...]
    keep: tuple[str, ...] = ()

    def read(self, block: Block, columns: Sequence[str], hints: Known) -> pa.Table:
        """Read columns of a block."""
        reader = open_table(block.path)
        if not isinstance(reader, ParquetReader):
            raise InvalidInputError(f"{block.path} is not a Parquet file.")
        return reader.read_groups(block.groups, hints, list(dict.fromkeys(columns)))


def limit_threads(cpus: float) -> None:
    """Use as many threads as the actor has processors, in all libraries that are imported later."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(max(1, ceil(cpus)))))


class Actor:
    """A process of the cluster that works on blocks, one after another.

    Parameters
    ----------
    start : a reference to a Job in bytes, so that arrays in it can be written to; and the folders
        in which the driver finds modules
    batch_rows : rows per call of the candidates
    cpus : number of processors
    candidate : the only candidate that runs here; None for all
    """

    def __init__(
        self, start: Sequence[Any], batch_rows: int, cpus: float, candidate: str | None = None
    ) -> None:
        limit_threads(cpus)
        self.batch_rows, self.broken = batch_rows, ""
        try:
            self.prepare(start, candidate)
        except Exception as error:  # Ray would start actors again without end
            self.broken = describe(error, None)

    def prepare(self, start: Sequence[Any], candidate: str | None) -> None:
        """Load the model or the pool."""
        packed = optional("ray", extra="ray").get(start[0])
        sys.path.extend(folder for folder in start[1:] if folder not in sys.path)
        job: Job = optional("ray.cloudpickle", extra="ray").loads(packed)
        self.job, self.folder = job, JobFolder(job.folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LocalMAWarning)
            self.combining = job.source.make()
        self.m = None if candidate is None else self.combining.names.index(candidate)

    def __call__(self, row: Row) -> Row:
        """Work on a block. An error becomes a part of the row, so that other blocks go on."""
        if row.get("error"):
            return row
        if self.broken:
            return {"id": row["id"], "error": self.broken, **NOTHING}
        block = self.job.blocks[cast(int, row["id"])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LocalMAWarning)
            try:
                # Every candidate may end the process before it is refused.
                most = MOST_CRASHES * (len(self.combining.names) + 1)
                with self.folder.attempt(f"{block.number}", f"block {block.number}", most):
                    return {"id": row["id"], "error": "", **self.work(block, row)}
            except Exception as error:
                return {"id": row["id"], "error": describe(error, block), **NOTHING}

    def work(self, block: Block, row: Row) -> Row:
        """Run all candidates, and write the results."""
        tables, total = [], Counts()
        for X, kept, guard in self.batches(block):
            columns, counts = self.combining.all_at_once(X, guard)
            tables.append(join(kept, columns))
            total.add(counts)
        self.folder.write(block, pa.concat_tables(tables), total)
        return {"state": b"", "done": True}

    def states(self, block: Block, row: Row) -> list[Predicted]:
        """Predictions from the stages before this one, or from an earlier pass."""
        content = cast(bytes, row.get("state", b"")) or self.folder.kept_state(block)
        return unpacked(content, self.combining)

    def batches(self, block: Block) -> Iterator[tuple[Table, pa.Table, Guard]]:
        """Yield inputs, copied columns and guards of the batches of a block."""
        job = self.job
        table = job.read(block, [*job.columns, *job.keep], self.combining.hints())
        for start in range(0, block.rows, self.batch_rows):
            part = table.slice(start, self.batch_rows).combine_chunks()
            X = self.combining.ready(part.select(job.columns))
            yield X, part.select(job.keep), self.guard(block, start)

    def guard(self, block: Block, start: int) -> Guard:
        """Marks on disk which candidate runs on which rows."""
        names = self.combining.names

        def marked(m: int) -> AbstractContextManager[object]:
            return self.folder.attempt(f"{block.number}-{start}-{m}", names[m])

        return marked


class AskingActor(Actor):
    """Runs one candidate on the rows that need it, and passes the predictions on."""

    def work(self, block: Block, row: Row) -> Row:
        """Work on a block."""
        assert self.m is not None
        states = self.states(block, row)
        for k, (X, _, guard) in enumerate(self.batches(block)):
            if k == len(states):
                states.append(self.combining.nothing(len(cast(AnyArray, X))))
            calls = self.combining.calls(X, guard)
            needed = calls.first(self.combining.needed(X, states[k])) & ~states[k].asked
            needed[:, np.arange(needed.shape[1]) != self.m] = False
            if needed.any():
                calls.ask_first(needed, states[k])
        return {"state": packed(states), "done": False}


class FinishingActor(Actor):
    """Writes the results when every candidate that is needed has run; otherwise asks for more."""

    def work(self, block: Block, row: Row) -> Row:
        """Work on a block."""
        states = self.states(block, row)
        tables, total = [], Counts()
        for state, (X, kept, guard) in zip(states, self.batches(block), strict=True):
            calls = self.combining.calls(X, guard)
            while (needed := self.combining.needed(X, state)).any():
                if (calls.first(needed) & ~state.asked).any():
                    self.folder.keep_state(block, packed(states))
                    return {"state": b"", "done": False}
                calls.ask(needed, state)
            columns, counts = self.combining.result(X, state)
            tables.append(join(kept, columns))
            total.add(counts)
        self.folder.write(block, pa.concat_tables(tables), total)
        return {"state": b"", "done": True}


def join(kept: pa.Table, columns: Sequence[NamedColumn]) -> pa.Table:
    """Append the results to the copied columns."""
    joined = {name: kept[name] for name in kept.column_names}
    for name, values in columns:
        if name in joined:
            raise InvalidInputError(
                f"keep must not name a column of the results; received {name!r}. Rename it first."
            )
        joined[name] = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.table(joined)


def describe(error: Exception, block: Block | None) -> str:
    """Describe an error for the driver, as JSON; without a block it is an error of all blocks."""
    about: Mapping[str, object] = {
        "candidate": getattr(error, "candidate", None),
        "kind": type(error).__name__,
        "text": str(error)[:1000],
        "block": None if block is None else block.number,
    }
    return json.dumps(about)


def packed(states: Sequence[Predicted]) -> bytes:
    """Write the predictions of the batches of a block to bytes."""
    arrays: dict[str, AnyArray] = {}
    failures = []
    for k, state in enumerate(states):
        arrays |= {f"P{k}": state.P, f"asked{k}": state.asked, f"failed{k}": state.failed}
        failures.append([[f.candidate, f.reason, f.text, f.rows] for f in state.failures])
    arrays["failures"] = np.frombuffer(json.dumps(failures).encode(), dtype=np.uint8)
    stream = BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def bytes_per_row(combining: Combining) -> int:
    """Size of the packed predictions of a row."""
    row = combining.nothing(1)
    return row.P.nbytes + row.asked.nbytes + row.failed.nbytes


def unpacked(content: bytes, combining: Combining) -> list[Predicted]:
    """Read what `packed` wrote; no predictions from no bytes."""
    if not content:
        return []
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        failures = json.loads(arrays["failures"].tobytes())
        states = []
        for k, listed in enumerate(failures):
            n = len(arrays[f"P{k}"])
            state = replace(combining.nothing(n), P=arrays[f"P{k}"], asked=arrays[f"asked{k}"])
            state.failed = arrays[f"failed{k}"]
            state.failures = [AnswerFailure(*entry) for entry in listed]
            states.append(state)
    return states
