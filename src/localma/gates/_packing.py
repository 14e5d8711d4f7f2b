"""Rows as the kernel reads them: float32, in blocks, the row innermost within a block.

Rows are taken in an order that their inputs, targets and weights alone determine, and candidates
in one that their predictions determine. So the order in which a user gives either changes no
rounding, and no training is the continuation of another's rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.gates._parts import column_units, standard_scale
from localma.gates.labelled import Labelled

Array = NDArray[np.floating]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

LANES = 16  # rows are padded to a multiple of this; the kernel's vectors have this many
_CHUNK = 8192  # rows converted at once


@dataclass(frozen=True)
class Data:
    """A labelled sample, checked: X (n, p), P (n, M, K), y (n, K), weight (n,), rank (n,).

    `rank` sorts rows by a hash of their numbers. `location` says that the loss needs differences
    of predictions and targets alone, and these are what is packed; see `Loss.location`.
    """

    X: Array
    P: Array
    y: Array
    weight: Float64
    rank: NDArray[np.uint64]
    location: bool = False

    @classmethod
    def of(cls, data: Labelled) -> Self:
        """The sample, with ranks of its rows."""
        X, y, weight = data.X, data.y, np.asarray(data.sample_weight, dtype=np.float64)
        return cls(X, data.P, y, weight, _rank(X, y, weight), data.loss.location)


def _rank(X: Array, y: Array, weight: Float64) -> NDArray[np.uint64]:
    """Hash the numbers of each row, column by column so that its position plays no part."""
    key = weight.copy()
    factors = np.random.default_rng(0).uniform(1.0, 2.0, size=X.shape[1] + y.shape[1])
    for column, factor in zip((*X.T, *y.T), factors, strict=True):
        key += factor * column
    return key.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hash


@dataclass(frozen=True)
class Sample:
    """Rows for the kernel, shared by all trainings on them.

    X, P, y, weight : packed by blocks of `block` rows, with p, K M, K and 1 numbers a row. The
        weights sum to 1 / K; rows added to fill the last vector have weight zero.
    mean, scale : (p,) by which X was standardised.
    candidates : (M,) the order of the candidates.
    unit : that of P and y, a power of two.
    """

    X: Float32
    P: Float32
    y: Float32
    weight: Float32
    block: int
    mean: Float64
    scale: Float64
    candidates: NDArray[np.intp]
    unit: float


def pack(data: Data, rows: NDArray[np.intp] | None, block: int, standardize: bool) -> Sample:
    """Pack the rows that have weight."""
    rows = np.arange(len(data.X)) if rows is None else rows
    rows = rows[data.weight[rows] > 0.0]
    rows = rows[np.argsort(data.rank[rows], kind="stable")]
    if len(rows) == 0:
        raise InvalidInputError(
            "A gate is trained on at least one row of positive weight; received none. Give more "
            "rows, or folds that leave some."
        )
    share = data.weight[rows] / data.weight[rows].sum()
    first = rows[:_CHUNK]
    candidates = candidate_order(data.P[first])
    unit = unit_of(data.P[first], data.y[first], data.location)
    mean, scale = np.zeros(data.X.shape[1]), np.ones(data.X.shape[1])
    if standardize:
        mean, scale = _moments(data.X, rows, share)
    padded = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % LANES)])
    block = min(block, len(padded))
    weight = np.zeros(len(padded), dtype=np.float32)
    weight[: len(rows)] = share / data.y.shape[1]
    blocks = [padded[first : first + block] for first in range(0, len(padded), block)]
    return Sample(
        X=_pack((((data.X[b] - mean) / scale) for b in blocks), len(padded)),
        P=_pack(
            (
                by_output(off_target(data.P[b][:, candidates], data.y[b], data.location)) / unit
                for b in blocks
            ),
            len(padded),
        ),
        y=_pack(
            (off_target(data.y[b], data.y[b], data.location) / unit for b in blocks), len(padded)
        ),
        weight=weight,
        block=block,
        mean=mean,
        scale=scale,
        candidates=candidates,
        unit=unit,
    )


def off_target(values: Array, y: Array, location: bool) -> Array:
    """Predictions (n, M, K) or targets (n, K), less the targets where the loss needs no more.

    Of 1.75e9 + 5 and 1.75e9 + 90 single precision leaves that both are about 1.75e9.
    """
    if not location:
        return values
    return values - (y[:, np.newaxis] if values.ndim == 3 else y)


def unit_of(P: Array, y: Array, location: bool) -> float:
    """Unit in which predictions (n, M, K) and targets (n, K) are at most about one.

    A power of two, which changes no digit. Single precision ends at 1e38, and the square of a
    target must fit as well.

    >>> unit_of(np.array([[[3e20]]]), np.array([[0.0]]), location=True) == 2.0**68
    True
    """
    sizes = [np.abs(off_target(values, y, location)).max(initial=0.0) for values in (P, y)]
    return float(column_units(np.array(sizes)[:, np.newaxis])[0])


def by_output(P: Array) -> Array:
    """Predictions (n, M, K) as (n, K M), as the kernel reads them."""
    return P.transpose(0, 2, 1).reshape(len(P), -1)


def _pack(blocks: Iterator[Array], n_rows: int) -> Float32:
    """Concatenate blocks (rows, columns), each as (columns, rows)."""
    packed, at = np.empty(0, dtype=np.float32), 0
    for block in blocks:
        if at == 0:
            packed = np.empty(n_rows * block.shape[1], dtype=np.float32)
        packed[at : at + block.size].reshape(block.shape[::-1])[...] = block.T
        at += block.size
    return packed


def candidate_order(P: Array) -> NDArray[np.intp]:
    """Order candidates by a fixed combination of their predictions (n, M, K)."""
    factors = np.random.default_rng(1).uniform(1.0, 2.0, size=(len(P), P.shape[2]))
    return np.argsort(np.einsum("nk,nmk->m", factors, P), kind="stable")


def _moments(X: Array, rows: NDArray[np.intp], share: Float64) -> tuple[Float64, Float64]:
    """Weighted mean and standard deviation of each column; a constant one has scale one."""
    chunks = [slice(first, first + _CHUNK) for first in range(0, len(rows), _CHUNK)]
    unit = column_units(X[rows[chunks[0]]])
    mean = np.sum([share[c] @ (X[rows[c]] / unit) for c in chunks], axis=0)
    variance = np.sum([share[c] @ (X[rows[c]] / unit - mean) ** 2 for c in chunks], axis=0)
    return mean * unit, standard_scale(mean, variance, unit)
