"""The shift guard: how far an input lies within the labelled sample, from 0 to 1.

The distance from the sample's box is measured in units of the tail of each side. A feature that
ends abruptly says nothing about values further out. One that thins out, as a Gaussian does, often
takes values a little further out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localma._types import Array, Float64, RowMask
from localma.equations import softmax
from localma.gates.labelled import Moments, Table, row_slices
from localma.tables.frames import LARGE_ROWS

TAIL_ROWS = 3
MOST_TAIL_ROWS = 30
TAIL_SHARE = 300
"""The outermost rows of a feature are its tail: one row in TAIL_SHARE, within these bounds.

Three rows say little about a tail, but up to n = 900 there are no more. From there on their number
grows with n, or the guard would sometimes close just beyond a large sample.
"""

POOLING = 0.7
"""Weight of the geometric mean of all tails in each of them, since few rows measure a tail."""

REACH = 10.0
"""Tails beyond the box at which the support has fallen to 1/e."""

POWER = 8
"""Exponent that makes the support fall abruptly there."""

LEAST_SUPPORT = 0.5
"""Rows with less support lie outside the sample."""

LEAST_TAIL = 0.02
"""Shortest tail, in standard deviations of the feature."""


@dataclass(frozen=True)
class Outside:
    """Rows outside of a sample, and the input that puts most of them there.

    Parameters
    ----------
    share : share of the rows that lie outside
    column : position of the input
    low, high : range of the input in the sample
    here : median of the input in the rows that it puts outside
    """

    share: float
    column: int
    low: float
    high: float
    here: float


@dataclass(frozen=True)
class Support:
    """The box of a sample and the tails on its sides.

    low, high : (p,) ends of the box; low_tail, high_tail : (p,) lengths, positive.
    """

    low: Array
    high: Array
    low_tail: Array
    high_tail: Array

    @classmethod
    def of(cls, X: Table, row_mask: RowMask | None = None) -> Support:
        """Measure a sample (n, p), or the masked rows of it.

        >>> support = Support.of(np.linspace(0, 1, 101)[:, None])
        >>> support(np.array([[0.5], [1.15], [3.0]])).round(2).tolist()
        [1.0, 0.9, 0.0]
        """
        if row_mask is None:
            row_mask = np.ones(len(X), dtype=bool)
        n = int(row_mask.sum())
        tail = min(max(TAIL_ROWS, n // TAIL_SHARE), MOST_TAIL_ROWS)
        tail = min(tail, max(1, n // 10), n - 1)
        lowest, highest, deviation = outermost(X, row_mask, tail + 1)
        deviation = np.where(deviation > 0, deviation, 1.0 / LEAST_TAIL)
        low_tail = (lowest[tail] - lowest[:tail].mean(axis=0)) / deviation
        high_tail = (highest[:tail].mean(axis=0) - highest[tail]) / deviation
        low_tail, high_tail = _pooled(np.stack([low_tail, high_tail])) * deviation
        return cls(lowest[0], highest[0], low_tail, high_tail)

    def __call__(self, X: Array) -> Array:
        """``exp(-(u / REACH)^POWER)``, u the largest excess in tails: (n, p) -> (n,)."""
        return _support_at(self._excess(X).max(axis=1))

    def outside(self, X: Array) -> Outside | None:
        """Describe the rows of X (n, p) that lie outside; None if all lie inside.

        >>> support = Support.of(np.linspace(0, 1, 101)[:, None])
        >>> support.outside(np.array([[0.5], [3.0]]))
        Outside(share=0.5, column=0, low=0.0, high=1.0, here=3.0)
        """
        excess = self._excess(X)
        rows = _support_at(excess.max(axis=1)) < LEAST_SUPPORT
        if not rows.any():
            return None
        farthest = excess[rows].argmax(axis=1)
        column = int(np.bincount(farthest).argmax())
        median = float(np.median(X[rows][farthest == column, column]))
        ends = float(self.low[column]), float(self.high[column])
        return Outside(float(rows.mean()), column, *ends, median)

    def _excess(self, X: Array) -> Array:
        """Distance from the box in tails, negative inside: (n, p) -> (n, p)."""
        excess = np.maximum((self.low - X) / self.low_tail, (X - self.high) / self.high_tail)
        return np.asarray(excess)

    def box(self) -> Array:
        """Ends of the box, and one over the reach beyond each, for the kernel: (4, p)."""
        sides = [self.low, self.high, 1.0 / REACH / self.low_tail, 1.0 / REACH / self.high_tail]
        return np.array(sides, dtype=np.float64)


@dataclass(frozen=True)
class Fading:
    """Weights that turn into the global ones outside the sample.

    Parameters
    ----------
    support : the shift guard
    towards : (M,) the global weights
    floor : share of equal weights that is mixed into the global ones in rows with some support,
        since a global weight of zero would silence a candidate at once
    """

    support: Support
    towards: Array
    floor: float

    def __call__(self, weights: Array, X: Array) -> Array:
        """Return ``softmax(s log w + (1 - s) log w_global)``: (n, M), (n, p) -> (n, M).

        Logits fade, not weights, so that confident weights keep their values a little longer.
        """
        share = self.support(X)[:, np.newaxis]
        floor = self.floor * share
        anchor = (1.0 - floor) * self.towards + floor / len(self.towards)
        with np.errstate(divide="ignore"):
            logits = share * np.log(np.maximum(weights, _TINY)) + (1.0 - share) * np.log(anchor)
        return softmax(logits)


_TINY = float(np.finfo(np.float64).tiny)


def _support_at(excess: Array) -> Array:
    largest = excess.clip(0.0, 1e3 * REACH)  # beyond it the power would overflow
    return np.exp(-((largest / REACH) ** POWER))


def outermost(X: Table, row_mask: RowMask, count: int) -> tuple[Float64, Float64, Float64]:
    """Smallest and largest numbers of each column, outermost first, and standard deviations.

    X : (n, p), row_mask : (n,) -> (count, p), (count, p), (p,). A large X is read slice by slice.

    >>> X = np.array([[1.0], [2.0], [4.0], [5.0]])
    >>> low, high, deviation = outermost(X, np.ones(4, dtype=bool), 2)
    >>> low[:, 0].tolist(), high[:, 0].tolist(), deviation.round(3).tolist()
    ([1.0, 2.0], [5.0, 4.0], [1.581])
    """
    if row_mask.sum() < LARGE_ROWS:
        # Not in the user's type, in which the negative of a small integer may not exist.
        x = np.asarray(X[row_mask], dtype=np.float64)
        return _smallest(x, count), -_smallest(-x, count), x.std(axis=0)
    p = X.shape[1]
    lowest, highest = np.full((count, p), np.inf), np.full((count, p), np.inf)
    moments = Moments.empty(p)
    for index in row_slices(len(X), None, p):
        x = np.asarray(X[index], dtype=np.float64)[row_mask[index]]
        if len(x):
            _lower(lowest, x)
            _lower(highest, -x)
            moments = moments.add(x, np.ones(len(x)))
    return lowest, -highest, np.sqrt(moments.squares / moments.total)


def _smallest(x: Float64, count: int) -> Float64:
    """Smallest numbers of each column in order; the others are not sorted."""
    return np.sort(np.partition(x, count - 1, axis=0)[:count], axis=0)


def _lower(lowest: Float64, x: Float64) -> None:
    """Replace larger numbers in `lowest` by smaller ones of x, column by column."""
    last = lowest[-1]
    for k in np.flatnonzero(x.min(axis=0) < last).tolist():
        column = x[:, k]
        joined = np.concatenate([lowest[:, k], column[column < last[k]]])
        lowest[:, k] = np.sort(joined)[: len(lowest)]


def _pooled(tails: Array) -> Array:
    """Pool tails (2, p), in standard deviations; tails made of ties are left out."""
    thin = tails > LEAST_TAIL
    if not thin.any():
        return np.maximum(tails, LEAST_TAIL)
    logs = np.log(np.maximum(tails, LEAST_TAIL))
    pooled = (1.0 - POOLING) * logs + POOLING * logs[thin].mean()
    return np.exp(np.where(thin, pooled, logs))
