"""A large sample as mini-batch training reads it: in chunks, in a random order, one at a time.

Inputs may lie in mapped memory or in Arrow's columns. They are read in runs of neighbouring rows,
taken at random from everywhere; the rows of a chunk are shuffled once more. So a chunk is a
random part of the sample though a disk is read nearly in order, and nothing of the size of
the sample is made but the order of its runs. Where the packed chunks are small enough together,
they are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localma.equations import global_average, row_losses
from localma.errors import InvalidInputError
from localma.gates._anchor import loss_scale
from localma.gates._engine import in_threads
from localma.gates._packing import (
    LANES,
    Float32,
    Float64,
    Sample,
    by_output,
    candidate_order,
    off_target,
    unit_of,
)
from localma.gates._parts import moments, row_slices, weighted_sum
from localma.gates.global_ import GlobalGate
from localma.gates.labelled import Labelled
from localma.losses import Loss

Array = NDArray[np.floating]
Rows = NDArray[np.intp]

CHUNK_NUMBERS = 2**21
"""Numbers of a chunk, in all of its rows: eight megabytes, packed."""

RUN_NUMBERS, MOST_RUN_ROWS = 2**12, 128
"""Neighbouring rows that are read together: some kilobytes of inputs, and not too many rows."""

KEPT_BYTES = 2**28
"""Packed chunks are kept where they are not larger than this together."""

_ORDER_ROWS = 8192  # rows that decide the order of the candidates


@dataclass(frozen=True)
class Table:
    """A labelled sample that is read in parts: X (n, p), P (n, M, K), y (n, K), weight (n,).

    X need not be an array: rows are taken out of it by a slice or by an array of indices.
    `location` is as in `Data`.
    """

    X: Any
    P: Array
    y: Array
    weight: Array
    location: bool = False

    @classmethod
    def of(cls, data: Labelled) -> Self:
        """The sample as it is."""
        return cls(data.X, data.P, data.y, data.sample_weight, data.loss.location)

    @property
    def row_numbers(self) -> int:
        """Numbers of a packed row."""
        return int(self.X.shape[1] + self.P.shape[1] * self.P.shape[2] + self.P.shape[2] + 1)


@dataclass(frozen=True)
class Layout:
    """How rows are packed, the same for all chunks.

    block, run : rows of a block and of a run; mean, scale : (p,) standardise X; candidates : (M,)
    their order; unit : that of P and y; unit_weight : the weight that counts as one.
    """

    block: int
    run: int
    mean: Float64
    scale: Float64
    candidates: NDArray[np.intp]
    unit: float
    unit_weight: float


@dataclass(frozen=True)
class Chunk:
    """Some runs of some rows of a table; `rows` None stands for all of them, n are there."""

    table: Table
    layout: Layout
    rows: Rows | None
    n: int
    runs: NDArray[np.int32]
    seed: int

    @property
    def n_rows(self) -> int:
        """Number of its rows; the very last run may be short."""
        run = self.layout.run
        missing = -self.n % run if (self.runs == (self.n - 1) // run).any() else 0
        return len(self.runs) * run - missing

    @property
    def n_blocks(self) -> int:
        """Number of blocks, the last of which may be short."""
        return -(-self.n_rows // self.layout.block)

    @cached_property
    def kept(self) -> Sample:
        """The packed rows, made at the first call and kept."""
        return self.pack()

    def pack(self) -> Sample:
        """Read the rows in the order of the table, and pack them shuffled."""
        ids, layout, table = self._ids(), self.layout, self.table
        shuffled = np.random.default_rng(self.seed).permutation(len(ids))
        X = (table.X[ids] - layout.mean) / layout.scale
        y = table.y[ids]
        P = by_output(off_target(table.P[ids][:, layout.candidates], y, table.location))
        weight = np.zeros(len(ids) + -len(ids) % LANES, dtype=np.float32)
        weight[: len(ids)] = table.weight[ids][shuffled] / (layout.unit_weight * table.y.shape[1])
        return Sample(
            X=_pack(X, shuffled, layout.block),
            P=_pack(P / layout.unit, shuffled, layout.block),
            y=_pack(off_target(y, y, table.location) / layout.unit, shuffled, layout.block),
            weight=weight,
            block=layout.block,
            mean=layout.mean,
            scale=layout.scale,
            candidates=layout.candidates,
            unit=layout.unit,
        )

    def _ids(self) -> Rows:
        run = self.layout.run
        starts = np.sort(self.runs).astype(np.intp) * run
        ids = (starts[:, np.newaxis] + np.arange(run)).ravel()[: self.n_rows]
        return ids if self.rows is None else self.rows[ids]


def _pack(part: Array, order: Rows, block: int) -> Float32:
    """Rows (n, columns) in some order, by blocks, the row innermost; padded by repeating one."""
    padded = np.concatenate([order, np.repeat(order[:1], -len(order) % LANES)])
    rows = np.asarray(part, dtype=np.float32)[padded]
    whole = len(rows) // block * block
    packed = np.empty(rows.size, dtype=np.float32)
    front = packed[: whole * rows.shape[1]].reshape(-1, rows.shape[1], block)
    front[...] = rows[:whole].reshape(-1, block, rows.shape[1]).transpose(0, 2, 1)
    packed[front.size :].reshape(rows.shape[1], -1)[...] = rows[whole:].T
    return packed


@dataclass(frozen=True)
class Chunks:
    """Chunks of a sample, which together hold every row that has weight once.

    n_rows, total_weight : of all of them.
    """

    chunks: list[Chunk]
    n_rows: int
    total_weight: float

    @classmethod
    def of(
        cls, table: Table, rows: Rows | None, block: int, *, standardize: bool, seed: int
    ) -> Self:
        """Cut some rows of a table; the order of its runs depends on the seed alone."""
        rows = _weighted(table, rows)
        n = len(table.y) if rows is None else len(rows)
        weight = table.weight if rows is None else table.weight[rows]
        total = float(weight.sum())
        mean, scale = np.zeros(table.X.shape[1]), np.ones(table.X.shape[1])
        if standardize:
            mean, scale = moments(table.X, rows, weight)
        first = np.arange(min(n, _ORDER_ROWS)) if rows is None else rows[:_ORDER_ROWS]
        run = max(1, min(MOST_RUN_ROWS, RUN_NUMBERS // max(1, table.X.shape[1])))
        P = table.P[first]
        unit = unit_of(P, table.y[first], table.location)
        layout = Layout(block, run, mean, scale, candidate_order(P), unit, total / n)
        return cls(_cut(table, layout, rows, n, seed), n, total)

    @property
    def layout(self) -> Layout:
        """How all of them are packed."""
        return self.chunks[0].layout

    @property
    def table(self) -> Table:
        """Where their rows are."""
        return self.chunks[0].table

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows, as they are packed."""
        return self.total_weight / self.n_rows / self.layout.unit_weight

    def joined(self, rows: Rows, seed: int) -> Self:
        """These chunks and those of further rows, packed alike."""
        table = self.table
        further = rows[table.weight[rows] > 0.0]
        if len(further) == 0:
            return self
        added = _cut(table, self.layout, further, len(further), seed)
        total = self.total_weight + float(table.weight[further].sum())
        return replace(
            self,
            chunks=[*self.chunks, *added],
            n_rows=self.n_rows + len(further),
            total_weight=total,
        )

    def keep(self, n_jobs: int | None) -> None:
        """Pack all of them at once, where that needs little memory."""

        def pack(chunk: Chunk) -> None:
            assert chunk.kept is not None

        if self.are_kept:
            in_threads(pack, self.chunks, n_jobs)

    @property
    def are_kept(self) -> bool:
        """Whether packed chunks stay in memory."""
        return 4 * self.n_rows * self.table.row_numbers <= KEPT_BYTES

    def packed(self, number: int) -> Sample:
        """One of the chunks, ready for the kernel."""
        chunk = self.chunks[number]
        return chunk.kept if self.are_kept or "kept" in vars(chunk) else chunk.pack()


def _cut(table: Table, layout: Layout, rows: Rows | None, n: int, seed: int) -> list[Chunk]:
    rng = np.random.default_rng(seed)
    runs = rng.permutation(np.arange(-(-n // layout.run), dtype=np.int32))
    count = -(-len(runs) * layout.run * table.row_numbers // CHUNK_NUMBERS)
    count = min(count, len(runs))
    seeds = rng.integers(2**31, size=count)
    parts = np.array_split(runs, count)
    return [Chunk(table, layout, rows, n, *one) for one in zip(parts, seeds.tolist(), strict=True)]


def _weighted(table: Table, rows: Rows | None) -> Rows | None:
    """The rows that have weight; None if these are all of the table."""
    has = (table.weight if rows is None else table.weight[rows]) > 0.0
    if has.all() and len(has):
        return rows
    rows = np.flatnonzero(has) if rows is None else rows[has]
    if len(rows) == 0:
        raise InvalidInputError(
            "A gate is trained on at least one row of positive weight; received none. Give more "
            "rows, or folds that leave some."
        )
    return rows


def large_anchor(
    table: Table, rows: Rows | None, loss: Loss, global_weights: Array | None
) -> tuple[Float64, float]:
    """What `anchor_and_scale` gives, from predictions that are read part by part."""
    M = table.P.shape[1]
    equal: Float64 = np.full(M, 1.0 / M)
    weights = global_weights if M > 1 else equal
    if weights is None:
        chosen = slice(None) if rows is None else rows
        P, y, weight = table.P[chosen], table.y[chosen], table.weight[chosen]
        no_inputs = np.empty((len(y), 0))
        data = Labelled.of(no_inputs, P, y, loss=loss, sample_weight=weight)
        weights = GlobalGate().fit(data).weights_
    sums = np.zeros(3)
    n, width = len(table.y) if rows is None else len(rows), table.P.shape[1] * table.P.shape[2]
    for part in row_slices(n, rows, width):
        P, y, weight = table.P[part], table.y[part], table.weight[part]
        risks = [
            weighted_sum(weight, row_losses(loss, y, global_average(w, P)))
            for w in (weights, equal)
        ]
        sums += [*risks, weight.sum()]
    risk, equal_risk = np.abs(sums[:2] / sums[2])
    return np.asarray(weights, dtype=np.float64), loss_scale(float(risk), float(equal_risk))
