"""The band of the weights of `gate="auto"`: its width, from the folds of the path.

The band is ``w(x) ± t sqrt(e(x))``, with Student's quantile t and an estimate e(x) of the mean
squared error of a weight. Three parts add to e(x): the variance between folds, the spread of the
path around its average, and the distance to the best network as far as held-out losses confirm it.
The last two are means over rows, and so is half of the variance: shrinkage hides which rows have
large errors. The study "bands" measures the coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from localma._types import Array, Rows
from localma.equations import row_losses
from localma.errors import FileFormatError
from localma.folds import Fold, evenly_spaced
from localma.gates.base import Arrays, Saved, check_arrays, read_state
from localma.gates.labelled import Labelled
from localma.gates.points import HeldOut, Point
from localma.tables.frames import take_rows

LEAST_FOLDS, MOST_ROWS = 3, 2_000
"""Two folds show too little of the variance: the coverage is then between 79 and 98 %. With 5,000
rows it is between 80 and 98 %, and five folds do not help: errors that all folds share remain."""

BAND_ROWS = 200
"""Labelled rows over which the parts of the error are averaged."""

FREEDOM = 4
"""Degrees of freedom of the quantile, those of five folds. Errors keep such tails with fewer."""

VARIANCE, SPREAD, BIAS = 0.5, 1.25, 2.0
"""Factors of the three parts, chosen on simulations and confirmed on others."""

LOCAL_ODDS = 16.0
"""Odds of the local gates in the spread: the prior of the path prefers constant weights."""

SMALLEST_CURVATURE = 1e-12
"""Smaller curvatures of the risk, relative to it, are rounding errors."""

_BAND_STATE = (Saved("floor", "M"), Saved("factor"))


@dataclass(frozen=True)
class Band:
    """What the width of a band needs in addition to the gates of the folds.

    floor : (M,) the part of the mean squared error that all rows have in common
    factor : variance of the final weights in a row, over the variance of the folds' weights
    """

    floor: Array
    factor: float

    @classmethod
    def of(
        cls, held_out: HeldOut, folds: Sequence[Fold], points: Sequence[Point], shares: Array
    ) -> Band | None:
        """Estimate the parts of the error; None if too few folds judged, or if rows are many."""
        if not can_cover(len(folds), held_out.data.n_rows):
            return None
        data, local = held_out.data, np.array([point.gate is not None for point in points])
        rows = evenly_spaced(data.with_weight(np.arange(data.n_rows)), BAND_ROWS)
        W = _weights(held_out, rows)
        mixed = np.einsum("k,fknm->fnm", shares, W)
        squares = ((W - mixed[:, np.newaxis]) ** 2).mean(axis=(0, 2))
        factor = _jackknife_factor(data, folds)
        variance = factor * mixed.var(axis=0, ddof=1).mean(axis=0)
        odds = shares * np.where(local, LOCAL_ODDS, 1.0)
        spread = odds @ squares / odds.sum()
        bias = np.zeros(data.n_candidates)
        if local.any():
            k = _best_network(held_out, points)
            bias = max(_confirmed_share(held_out, shares, k), 0.0) * squares[k]
        return cls(VARIANCE / 2 * variance + SPREAD * spread + BIAS * bias, factor)

    @classmethod
    def restore(cls, arrays: Arrays, n_candidates: int, n_folds: int, n_rows: int) -> Band | None:
        """Restore a band from named arrays; None if its gate has none."""
        if not can_cover(n_folds, n_rows):
            check_arrays(arrays, {}, "The band of ShrunkGate with few folds or many rows")
            return None
        owner = "The band of ShrunkGate"
        band = cls(**read_state(arrays, _BAND_STATE, owner, M=n_candidates))
        if not ((band.floor >= 0).all() and band.factor > 0):
            raise FileFormatError(
                f"{owner} must have a floor of at least 0, and a positive factor."
            )
        return band

    def reach(self, fold_weights: Array, level: float) -> Array:
        """Half of the width of the band in each row: (folds, n, M) -> (n, M)."""
        own = VARIANCE / 2 * self.factor * fold_weights.var(axis=0, ddof=1)
        return np.asarray(stdtrit(FREEDOM, (1 + level) / 2) * np.sqrt(own + self.floor))


def can_cover(n_folds: int, n_rows: int) -> bool:
    """Whether bands cover what they state with so many folds and rows."""
    return n_folds >= LEAST_FOLDS and n_rows <= MOST_ROWS


def _weights(held_out: HeldOut, rows: Rows) -> Array:
    """Weights of each point in each fold: (folds, points, rows, M)."""
    data, members = held_out.data, held_out.members
    inputs = take_rows(data.X, rows)
    W = np.zeros((len(members), len(members[0]), len(rows), data.n_candidates))
    for f, fitted_points in enumerate(members):
        for k, fitted in enumerate(fitted_points):
            if fitted.constant is not None:
                W[f, k] = fitted.constant
            for gate in fitted.gates:
                W[f, k] += gate.predict_weights(inputs) / len(fitted.gates)
    return W


def _jackknife_factor(data: Labelled, folds: Sequence[Fold]) -> float:
    """Delete-a-group jackknife: (1 - h)^2 / h if each fold leaves out a share h of the sample.

    The share is used, not the number of folds, because not all folds of a large sample judge.
    """
    weight = data.sample_weight / data.sample_weight.sum()
    left_out = float(np.mean([1.0 - weight[train].sum() for train, _ in folds]))
    left_out = max(left_out, 1.0 / data.n_rows)  # folds may train on all rows
    return (1.0 - left_out) ** 2 / left_out


def _best_network(held_out: HeldOut, points: Sequence[Point]) -> int:
    """Number of the point of the last kind, the least restricted one, with the smallest risk."""
    last_kind = [k for k, point in enumerate(points) if point.name == points[-1].name]
    return min(last_kind, key=lambda k: _risk(held_out, held_out.mixtures[k]))


def _confirmed_share(held_out: HeldOut, shares: Array, k: int) -> float:
    """Share of the way from the average to point k that minimises the held-out risk, at most 1.

    It is the minimum of the parabola through both ends and the middle. If point k has no bias, the
    share times the squared distance estimates the squared bias of the average.
    """
    average, end = np.tensordot(shares, held_out.mixtures, 1), held_out.mixtures[k]
    at_start, at_middle, at_end = (
        _risk(held_out, mixture) for mixture in (average, (average + end) / 2, end)
    )
    curvature = 4 * (at_start - 2 * at_middle + at_end)
    if not curvature > SMALLEST_CURVATURE * abs(at_start):
        return 0.0
    return min((3 * at_start - 4 * at_middle + at_end) / curvature, 1.0)


def _risk(held_out: HeldOut, mixture: Array) -> float:
    """Mean held-out loss of predictions: (judgements, K)."""
    data, weight = held_out.data, held_out.sample_weight
    losses = row_losses(data.loss, data.y[held_out.rows], mixture)
    return float(weight @ losses / weight.sum())
