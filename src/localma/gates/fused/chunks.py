"""Rows of a labelled sample, packed in blocks and chunks for training.

Rows are float32, in blocks, with the row innermost within a block. Inputs may lie in mapped memory
or in Arrow's columns. They are read in runs of neighbouring rows that are taken at random from the
whole sample, and the rows of a chunk are shuffled once more. So a chunk is a random sample of the
rows although a disk is read nearly in order. Only the order of the runs takes memory in proportion
to the sample. Packed chunks stay in memory if they are small enough together.

Below `ORDERED_ROWS`, rows are first sorted by a hash of their numbers. Candidates are always sorted
by their predictions. So the order in which you pass either of them changes no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localma._types import Array, Float32, Float64, Integers, Rows
from localma.errors import InvalidInputError
from localma.gates.labelled import Labelled, column_units, mean_and_scale, row_index

LANES = 16
"""Numbers in a vector of the kernel; rows are padded to a multiple of it."""

CHUNK_NUMBERS = 2**21
"""Numbers in the rows of a chunk: eight megabytes."""

RUN_NUMBERS, MOST_RUN_ROWS = 2**12, 128
"""Neighbouring rows that are read together: up to 4,096 numbers, and at most 128 rows."""

KEPT_BYTES = 2**28
"""Packed chunks stay in memory if all of them take at most this much."""

ORDERED_ROWS = 5_000
"""Below this number of rows, their order in the sample does not matter."""

_LEADING_ROWS = 8192  # rows that determine the order of the candidates and the unit


@dataclass(frozen=True)
class Sample:
    """Packed rows for the kernel, shared by all trainings on them.

    Parameters
    ----------
    X, P, y, weight : packed in blocks of `block` rows, with p, K M, K and 1 numbers per row; rows
        that fill the last vector have weight zero
    unit : unit of P and y, a power of two
    """

    X: Float32
    P: Float32
    y: Float32
    weight: Float32
    block: int
    unit: float


@dataclass(frozen=True)
class Layout:
    """How rows are packed, the same for all chunks.

    Parameters
    ----------
    block, run : rows of a block and of a run
    mean, scale : (p,) that standardise X
    candidates : (M,) order of the candidates
    unit : unit of P and y
    unit_weight : the weight that counts as one
    """

    block: int
    run: int
    mean: Float64
    scale: Float64
    candidates: Integers
    unit: float
    unit_weight: float

    @classmethod
    def of(cls, data: Labelled, rows: Rows | None, block: int, *, standardize: bool) -> Self:
        """Choose the layout for some rows of a sample; None means all of them."""
        p, weight = data.table.shape[1], data.sample_weight[row_index(rows)]
        leading = np.arange(min(_LEADING_ROWS, len(weight)))
        if rows is not None:
            leading = rows[:_LEADING_ROWS]
        P, y = data.P[leading], data.y[leading]
        mean, scale = np.zeros(p), np.ones(p)
        if standardize:
            mean, scale = mean_and_scale(data.table, rows, weight)
        return cls(
            block=block,
            run=max(1, min(MOST_RUN_ROWS, RUN_NUMBERS // max(1, p))),
            mean=mean,
            scale=scale,
            candidates=candidate_order(P),
            unit=unit_of(P, y, data.loss.location),
            unit_weight=float(weight.sum()) / len(weight),
        )


@dataclass(frozen=True)
class Chunk:
    """Some runs of `n` rows of a sample; `rows` is None for all of its rows."""

    data: Labelled
    layout: Layout
    rows: Rows | None
    n: int
    runs: NDArray[np.int32]
    seed: int

    @property
    def n_rows(self) -> int:
        """Number of rows; the last run of the sample may be short."""
        run = self.layout.run
        has_last_run = bool((self.runs == (self.n - 1) // run).any())
        return len(self.runs) * run - has_last_run * (-self.n % run)

    @property
    def n_padded(self) -> int:
        """Number of rows, including those that fill the last vector."""
        return self.n_rows + -self.n_rows % LANES

    @property
    def n_blocks(self) -> int:
        """Number of blocks, the last of which may be short."""
        return -(-self.n_rows // self.layout.block)

    @cached_property
    def in_memory(self) -> Sample:
        """The packed rows, made at the first access."""
        return self.pack()

    def pack(self) -> Sample:
        """Read the rows in the order of the sample, and pack them shuffled."""
        rows, layout, data = self._sample_rows(), self.layout, self.data
        location = data.loss.location
        shuffled = np.random.default_rng(self.seed).permutation(len(rows))
        X = (data.table[rows] - layout.mean) / layout.scale
        y = data.y[rows]
        P = by_output(off_target(data.P[rows][:, layout.candidates], y, location))
        weight = np.zeros(self.n_padded, dtype=np.float32)
        unit_weight = layout.unit_weight * data.y.shape[1]
        weight[: len(rows)] = data.sample_weight[rows][shuffled] / unit_weight
        return Sample(
            X=_pack(X, shuffled, layout.block),
            P=_pack(P / layout.unit, shuffled, layout.block),
            y=_pack(off_target(y, y, location) / layout.unit, shuffled, layout.block),
            weight=weight,
            block=layout.block,
            unit=layout.unit,
        )

    def _sample_rows(self) -> Rows:
        run = self.layout.run
        starts = np.sort(self.runs).astype(np.intp) * run
        rows = (starts[:, np.newaxis] + np.arange(run)).ravel()[: self.n_rows]
        if self.rows is not None:
            rows = self.rows[rows]
        return rows


def _pack(values: Array, order: Rows, block: int) -> Float32:
    """Rows (n, columns) in some order, by blocks, the row innermost; padded with copies of one."""
    padded = np.concatenate([order, np.repeat(order[:1], -len(order) % LANES)])
    rows = np.asarray(values, dtype=np.float32)[padded]
    n_blocks, n_columns = len(rows) // block, rows.shape[1]
    whole = n_blocks * block
    packed = np.empty(rows.size, dtype=np.float32)
    front = packed[: whole * n_columns].reshape(n_blocks, n_columns, block)
    front[...] = rows[:whole].reshape(n_blocks, block, n_columns).transpose(0, 2, 1)
    packed[front.size :].reshape(n_columns, len(rows) - whole)[...] = rows[whole:].T
    return packed


@dataclass(frozen=True)
class Chunks:
    """Chunks of a sample, which together contain every row with positive weight once.

    n_rows, total_weight : sums over all chunks; single : whether there is one chunk, whose rows
    are all used in every step.
    """

    chunks: list[Chunk]
    n_rows: int
    total_weight: float
    single: bool = False

    @classmethod
    def of(
        cls, data: Labelled, rows: Rows | None, block: int, *, standardize: bool, whole: bool
    ) -> Self:
        """Cut some rows of a sample into chunks, or into a single one if `whole`."""
        rows = _weighted(data, rows)
        if whole or len(data.y) < ORDERED_ROWS:
            rows = order_by_content(data, rows)
        layout = Layout.of(data, rows, block, standardize=standardize)
        n = len(data.sample_weight[row_index(rows)])
        chunks = _cut(data, layout, rows, n, seed=0, whole=whole)
        return cls(chunks, n, layout.unit_weight * n, whole)

    @property
    def layout(self) -> Layout:
        """How all of them are packed."""
        return self.chunks[0].layout

    @property
    def data(self) -> Labelled:
        """The sample of their rows."""
        return self.chunks[0].data

    @property
    def mean_weight(self) -> float:
        """Mean weight of the packed rows, including padding, in the layout's unit."""
        n_packed = sum(chunk.n_padded for chunk in self.chunks)
        return self.total_weight / self.layout.unit_weight / n_packed

    def joined(self, rows: Rows, seed: int) -> Self:
        """Add further rows, packed in the same way, as new chunks."""
        data = self.data
        rows = data.with_weight(rows)
        if len(rows) == 0:
            return self
        if len(data.y) < ORDERED_ROWS:
            rows = order_by_content(data, rows)
        return replace(
            self,
            chunks=[*self.chunks, *_cut(data, self.layout, rows, len(rows), seed)],
            n_rows=self.n_rows + len(rows),
            total_weight=self.total_weight + float(data.sample_weight[rows].sum()),
        )

    @property
    def fit_in_memory(self) -> bool:
        """Whether packed chunks stay in memory."""
        return 4 * self.n_rows * _row_numbers(self.data) <= KEPT_BYTES

    def packed(self, number: int) -> Sample:
        """One of the chunks, ready for the kernel."""
        chunk = self.chunks[number]
        if self.fit_in_memory or "in_memory" in vars(chunk):
            return chunk.in_memory
        return chunk.pack()


def _row_numbers(data: Labelled) -> int:
    """Numbers in a packed row: inputs, predictions, targets and the weight."""
    _, M, K = data.P.shape
    return data.table.shape[1] + M * K + K + 1


def _cut(
    data: Labelled, layout: Layout, rows: Rows | None, n: int, seed: int, *, whole: bool = False
) -> list[Chunk]:
    """Cut rows into chunks; the order of the runs depends only on the seed."""
    rng = np.random.default_rng(seed)
    runs = rng.permutation(np.arange(-(-n // layout.run), dtype=np.int32))
    count = 1
    if not whole:
        count = -(-len(runs) * layout.run * _row_numbers(data) // CHUNK_NUMBERS)
        count = min(count, len(runs))
    seeds = rng.integers(2**31, size=count)
    return [
        Chunk(data, layout, rows, n, chunk_runs, chunk_seed)
        for chunk_runs, chunk_seed in zip(np.array_split(runs, count), seeds.tolist(), strict=True)
    ]


def _weighted(data: Labelled, rows: Rows | None) -> Rows | None:
    """Rows with positive weight; None if these are all rows of the sample."""
    index = row_index(rows)
    has_weight = data.sample_weight[index] > 0.0
    if has_weight.all() and len(has_weight):
        return rows
    rows = np.arange(len(data.y))[index][has_weight]
    if len(rows) == 0:
        raise InvalidInputError(
            "A gate is trained on at least one row of positive weight; received none. Pass more "
            "rows, or folds whose training rows have weight."
        )
    return rows


def ordered_by_content(data: Labelled) -> tuple[Labelled, Rows]:
    """Sort a sample by content; also the row of the sample at each new position."""
    order = order_by_content(data)
    return replace(data.take(order), is_ordered=True), order


def order_by_content(data: Labelled, rows: Rows | None = None) -> Rows:
    """Sort rows by a hash of their numbers, so that their order in the sample does not matter."""
    if rows is None:
        rows = np.arange(len(data.y))
    if data.is_ordered:
        return np.sort(rows)
    X = data.table[rows]
    factors = np.random.default_rng(0).uniform(1.0, 2.0, size=(X.shape[1],))
    key = np.zeros(len(rows))
    # Column by column, so that the sum of a row does not depend on its position.
    for column, factor in zip(X.T, factors, strict=True):
        key += factor * column
    rank = key.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hash
    # Rows with the same inputs are sorted by their targets and weights.
    return rows[np.lexsort((data.sample_weight[rows], *data.y[rows].T, rank))]


def off_target(values: Array, y: Array, location: bool) -> Array:
    """Predictions (n, M, K) or targets (n, K), minus the targets if the loss has a location.

    Single precision cannot tell 1.75e9 + 5 from 1.75e9 + 90.
    """
    if not location:
        return values
    if values.ndim == 3:
        y = y[:, np.newaxis]
    return values - y


def unit_of(P: Array, y: Array, location: bool) -> float:
    """Unit in which predictions (n, M, K) and targets (n, K) are at most about one.

    It is a power of two, which changes no digit. Single precision ends at 1e38, and the square of
    a target must fit too.

    >>> unit_of(np.array([[[3e20]]]), np.array([[0.0]]), location=True) == 2.0**68
    True
    """
    sizes = [np.abs(off_target(values, y, location)).max(initial=0.0) for values in (P, y)]
    return float(column_units(np.array(sizes)[:, np.newaxis])[0])


def by_output(P: Array) -> Array:
    """Predictions (n, M, K) as (n, K M), the order of the kernel."""
    return P.transpose(0, 2, 1).reshape(len(P), -1)


def candidate_order(P: Array) -> Integers:
    """Order candidates by a fixed combination of their predictions (n, M, K)."""
    factors = np.random.default_rng(1).uniform(1.0, 2.0, size=(len(P), P.shape[2]))
    return np.argsort(np.einsum("nk,nmk->m", factors, P), kind="stable")
