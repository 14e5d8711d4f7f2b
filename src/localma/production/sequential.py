"""Tests that stay valid however often one looks: evidence for a change since some period.

Each test is an e-value: if nothing has changed, its expectation is at most one at any time, however
that time is chosen. So the probability that it ever reaches 20 is at most 5 % (Ville, 1939). A mean
of e-values is an e-value, so 5 % also holds for many tests together.

An e-value depends only on counts, not on their order, so counts of several processes can be added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import gammaln, zeta

from localma._types import Array, Float64, Integers

FINEST = 8
"""At least this many of the last periods are kept one by one; older ones are added up."""
SHARE_OF_FIRST = 0.5
"""Share of the evidence for a difference from the fit in all rows, the first period included."""
DECAY = 1.2
"""Shares of later periods fall with this power of the time since the first period."""

STRENGTHS = (5.0, 50.0)
"""Alternatives without a direction: numbers of rows by which they resist learning."""
TILTS, TILTED_STRENGTH = (-1.0, -0.4, 0.4, 1.0), 100.0
"""Alternatives of smaller and larger values."""
UP_TILTS, UP_STRENGTHS = (0.3, 0.8), (10.0, 50.0, 250.0)
"""Alternatives of larger losses."""
RATES = (0.1, 0.2, 0.4, 0.8)
"""Alternatives of a share, besides the tolerated one."""


def block_starts(last: int, first: int) -> Integers:
    """Starts of the blocks of periods up to `last`, of which the first contains `first`.

    Sizes are powers of two that grow into the past, and starts are multiples of them. As `last`
    grows, blocks are only ever joined. So blocks of two processes can always be added.

    >>> block_starts(40, 0).tolist()[:13]
    [0, 4, 8, 12, 16, 18, 20, 22, 24, 26, 28, 30, 32]
    """
    blocks: list[range] = []
    end, size = last + 1, 1
    while end > first:
        begin = (end - FINEST * size) // (2 * size) * 2 * size
        blocks.append(range(max(begin, first // size * size), end, size))
        end, size = begin, 2 * size
    return np.array([start for block in reversed(blocks) for start in block], dtype=np.int64)


def shares_of_starts(starts: Integers, first: int) -> Float64:
    """Shares of the evidence for a change at the start of each block; their sum is at most one.

    The first block stands for a difference from the fit in all rows.

    >>> shares_of_starts(np.array([0, 1, 100]), 0).round(4).tolist()
    [0.5, 0.0894, 0.0004]
    """
    since = np.maximum(starts - first, 0).astype(np.float64)
    later = (1.0 - SHARE_OF_FIRST) / zeta(DECAY) * np.maximum(since, 1.0) ** -DECAY
    return np.where(since == 0.0, SHARE_OF_FIRST, later)


def alternatives(gaps: Array, upwards: Array) -> Float64:
    """Weights of the bins if a variable has changed: (V, B) -> (V, 6, B).

    upwards : (V,) whether only larger values count as a change.
    """
    like = gaps / gaps.sum(axis=1, keepdims=True)
    rank = np.cumsum(like, axis=1) - like / 2.0

    def tilted(tilt: float, strength: float) -> Float64:
        weights = like * np.exp(tilt * (2.0 * rank - 1.0))
        return np.asarray(strength * weights / weights.sum(axis=1, keepdims=True))

    both = [tilted(0.0, strength) for strength in STRENGTHS]
    both += [tilted(tilt, TILTED_STRENGTH) for tilt in TILTS]
    up = [tilted(tilt, strength) for strength in UP_STRENGTHS for tilt in UP_TILTS]
    return np.where(upwards[:, np.newaxis, np.newaxis], np.stack(up, 1), np.stack(both, 1))


def log_probability(counts: Array, weights: Array) -> Float64:
    """Logarithm of the probability of a sequence of bins with these counts: (..., B) -> (...).

    Each row falls into a bin with a probability in proportion to the weight of the bin and the
    number of rows that it already has (Polya's urn).

    >>> float(np.exp(log_probability(np.array([1.0, 1.0]), np.array([1.0, 1.0]))).round(6))
    0.166667
    """
    n, total = counts.sum(axis=-1), weights.sum(axis=-1)
    bins = gammaln(counts + weights) - gammaln(weights)
    return np.asarray(bins.sum(axis=-1) - (gammaln(n + total) - gammaln(total)))


@dataclass(frozen=True)
class RankTest:
    """A test of V variables against the sample of the fit, by the bins that new rows fall into.

    Under exchangeability with the sample, the bins follow Polya's urn that starts with the gaps of
    the sample, exactly. The uncertainty of a small sample is part of it. The alternative for the
    rows since a change is another urn.

    Parameters
    ----------
    gaps : (V, B) numbers of gaps of the sample in each bin
    alternatives : (V, H, B) starting weights of the other urns

    Examples
    --------
    >>> test = RankTest.of(np.full((1, 4), 50.0), np.array([True]))
    >>> alike, larger = np.full((1, 1, 4), 25.0), np.array([[[10.0, 10.0, 20.0, 60.0]]])
    >>> share = np.ones(1)
    >>> [float(test.log_evidence(counts, share).round(1)[0, 0]) for counts in (alike, larger)]
    [-2.2, 14.9]
    """

    gaps: Float64
    alternatives: Float64

    @classmethod
    def of(cls, gaps: Array, upwards: Array) -> Self:
        """Make the test; upwards : (V,) whether only larger values count as a change."""
        return cls(np.asarray(gaps, dtype=np.float64), alternatives(gaps, upwards))

    def log_evidence(self, counts: Array, shares: Array) -> Float64:
        """Logarithms of the shares of the e-value, by block in which the change is: (V, J).

        Their sum over the blocks, before the logarithm, is the e-value of each variable.

        counts : (J, V, B) counts of the bins in each block; shares : (J,), see `shares_of_starts`.
        """
        since = np.cumsum(counts[::-1], axis=0)[::-1]
        total = since[0]
        same = log_probability(total - since, self.gaps) - log_probability(total, self.gaps)
        other = log_probability(since[:, :, np.newaxis], self.alternatives)
        mean = np.logaddexp.reduce(other, axis=2) - np.log(other.shape[2])
        return np.asarray((same + mean + np.log(shares)[:, np.newaxis]).T)


@dataclass(frozen=True)
class ShareTest:
    """A test whether the share of some rows exceeds the tolerated one, for E kinds of events.

    Parameters
    ----------
    tolerated : (E,) shares

    Examples
    --------
    >>> test = ShareTest(np.array([0.05]))
    >>> evidence = test.log_evidence(np.array([[30.0]]), np.array([[100.0]]), np.ones(1))
    >>> float(evidence.round(1)[0, 0])
    29.2
    """

    tolerated: Float64

    def log_evidence(self, events: Array, rows: Array, shares: Array) -> Float64:
        """Logarithms of the shares of the e-value, by block in which the change is: (E, J).

        events, rows : (J, E) numbers in each block; shares : (J,).
        """
        since, out_of = (np.cumsum(n[::-1], axis=0)[::-1, :, np.newaxis] for n in (events, rows))
        p = self.tolerated[:, np.newaxis]
        rates = np.maximum(np.array(RATES), p + (1.0 - p) / 20.0)
        ratio = since * np.log(rates / p) + (out_of - since) * np.log((1.0 - rates) / (1.0 - p))
        mean = np.logaddexp.reduce(ratio, axis=2) - np.log(len(RATES))
        return np.asarray((mean + np.log(shares)[:, np.newaxis]).T)
