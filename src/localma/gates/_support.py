"""The shift guard: how far an input lies within the labelled sample, between 0 and 1.

How far is far depends on the sample's own tails. A feature that ends abruptly says nothing about
what comes after; one that thins out, as a Gaussian does, is often met a little further out. So the
distance from the sample's box is measured in units of the tail of each side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.equations import softmax
from localma.gates._extremes import outermost
from localma.tables.frames import LARGE_ROWS

Array = NDArray[np.floating]

TAIL_ROWS = 3
MOST_TAIL_ROWS = 30
TAIL_SHARE = 300
"""The tail of a feature is that of its outermost rows: one in so many, within these bounds.

Three rows say little of a tail, but at n = 900 there are no more that are in it; from there on
their number grows with n, or the guard would now and then close just beyond a large sample.
"""

POOLING = 0.7
"""How far the tails are drawn to their geometric mean: so few rows tell little of one side."""

REACH = 10.0
"""Tails beyond the box at which the support has fallen to 1/e."""

POWER = 8
"""How abruptly it falls."""

LEAST_SUPPORT = 0.5
"""Rows with less support lie outside the sample."""

LEAST_TAIL = 0.02
"""Shortest tail, in standard deviations of the feature."""


@dataclass(frozen=True)
class Outside:
    """Rows outside of a sample, and the input in which most of them are farthest away.

    share : of the rows that lie outside; column : position of the input; low, high : its range in
    the sample; here : its median in the rows that are farthest away in it.
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
    def of(cls, X: Any, used: NDArray[np.bool_] | None = None) -> Support:
        """Measure a sample (n, p), or the rows of it that are used; a large one part by part.

        >>> support = Support.of(np.linspace(0, 1, 101)[:, None])
        >>> support(np.array([[0.5], [1.15], [3.0]])).round(2).tolist()
        [1.0, 0.9, 0.0]
        """
        n = len(X) if used is None else int(used.sum())
        rows = min(max(TAIL_ROWS, n // TAIL_SHARE), MOST_TAIL_ROWS)
        rows = min(rows, max(1, n // 10), n - 1)
        if n >= LARGE_ROWS:
            lowest, highest, deviation = outermost(X, used, rows + 1)
        else:
            # Not in the user's own type, in which the negative of a small integer may not exist.
            X = np.asarray(X if used is None else X[used], dtype=np.float64)
            # Only the outermost rows are needed in order, not the whole sample.
            lowest = np.sort(np.partition(X, rows, axis=0)[: rows + 1], axis=0)
            highest = -np.sort(np.partition(-X, rows, axis=0)[: rows + 1], axis=0)
            deviation = X.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0 / LEAST_TAIL)
        low_tail = (lowest[rows] - lowest[:rows].mean(axis=0)) / deviation
        high_tail = (highest[:rows].mean(axis=0) - highest[rows]) / deviation
        low_tail, high_tail = _pooled(np.stack([low_tail, high_tail])) * deviation
        return cls(lowest[0], highest[0], low_tail, high_tail)

    def __call__(self, X: Array) -> Array:
        """``exp(-(u / REACH)^POWER)``, u the largest excess in tails: (n, p) -> (n,)."""
        return _support_at(self._excess(X).max(axis=1))

    def outside(self, X: Array) -> Outside | None:
        """Describe the rows of X (n, p) that lie outside; None if all lie within.

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
        here = float(np.median(X[rows][farthest == column, column]))
        ends = float(self.low[column]), float(self.high[column])
        return Outside(float(rows.mean()), column, *ends, here)

    def _excess(self, X: Array) -> Array:
        """Distance from the box in tails, negative within: (n, p) -> (n, p)."""
        excess = np.maximum((self.low - X) / self.low_tail, (X - self.high) / self.high_tail)
        return np.asarray(excess)

    def box(self) -> Array:
        """Ends of the box, and one over the reach beyond each, as the kernel takes them: (4, p)."""
        sides = [self.low, self.high, 1.0 / REACH / self.low_tail, 1.0 / REACH / self.high_tail]
        return np.array(sides, dtype=np.float64)


@dataclass(frozen=True)
class Fading:
    """How weights turn into the global ones where the support ends.

    towards : (M,) the global weights; floor : part of equal weights in them while there is some
    support left, since a global weight of zero would silence a candidate at once.
    """

    support: Support
    towards: Array
    floor: float

    def __call__(self, weights: Array, X: Array) -> Array:
        """Fade logits, not weights: a gate that is sure stays sure a little longer.

        weights : (n, M), X : (n, p) -> ``softmax(s log w + (1 - s) log w_global)``: (n, M).
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


def _pooled(tails: Array) -> Array:
    """Tails (2, p) in standard deviations, drawn to each other; those of ties stand aside."""
    thin = tails > LEAST_TAIL
    if not thin.any():
        return np.maximum(tails, LEAST_TAIL)
    logs = np.log(np.maximum(tails, LEAST_TAIL))
    pooled = (1.0 - POOLING) * logs + POOLING * logs[thin].mean()
    return np.exp(np.where(thin, pooled, logs))
