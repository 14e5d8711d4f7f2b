"""Whether the candidates share an error that recalibrating them would remove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localma._types import Array, Float64, Rows
from localma.evidence import fold_overlap, mean_and_error
from localma.folds import Fold, evenly_spaced
from localma.losses import Loss
from localma.own.models import Recalibrated, Sample

USE_OWN = "Use own='auto'."
"""What to do, in Python."""

LEAST_SHARE = 0.02
"""A smaller gain, as a share of the risk, is not worth a sentence."""
CERTAIN_ERRORS = 5 / 3
"""A gain is certain beyond this many standard errors, which with five folds are 1.5 times those of
the paired differences. With two errors of the differences, 3 of 150 samples had a false remark."""
MOST_ROWS = 5_000
"""Rows that are compared: the recalibration has few coefficients."""


@dataclass(frozen=True)
class SharedError:
    """The gain of recalibrating the candidates, compared with the fitted gate.

    Parameters
    ----------
    gain : float
        Held-out risk of the gate minus that of the recalibrated average.
    standard_error : float
        Its standard error, from paired differences.
    risk : float
        Held-out risk of the gate.

    Examples
    --------
    >>> print(SharedError(0.31, 0.01, 1.0))
    The candidates share an error: recalibrating them would lower the loss by about 31 %. Use \
own='auto'.
    """

    gain: float
    standard_error: float
    risk: float

    @property
    def is_clear(self) -> bool:
        """Whether the gain is at least 2 % of the risk, and certain."""
        large = self.gain >= LEAST_SHARE * abs(self.risk)
        return large and self.gain > CERTAIN_ERRORS * self.standard_error

    def __str__(self) -> str:
        share = self.gain / abs(self.risk)
        return (
            "The candidates share an error: recalibrating them would lower the loss by about "
            f"{100 * share:.0f} %. {USE_OWN}"
        )


def find_shared_error(
    loss: Loss,
    sample: Sample,
    folds: Sequence[Fold],
    gate_losses: Float64,
    *,
    labels: Array | None,
    losses_of: Callable[[Array, Rows], Array],
) -> SharedError | None:
    """Compare the gate with a recalibrated average on held-out rows; None if it is not worse.

    Parameters
    ----------
    loss : the loss
    sample : the sample, without inputs
    folds : pairs of training and test rows
    gate_losses : (n,) held-out losses of the gate, NaN in rows that did not judge
    labels : (K,) classes, in classification
    losses_of : losses of predictions for rows of the sample: (rows, K), (rows,) -> (rows,)
    """
    weight = sample.weight
    judged = np.flatnonzero(np.isfinite(gate_losses) & (weight > 0))
    judged = evenly_spaced(judged, MOST_ROWS)
    if len(judged) < 2:
        return None
    model = Recalibrated(loss, sample.P.shape[1], labels)

    def losses_after(train: Rows, test: Rows) -> Array:
        """Losses of test rows after a fit to training rows."""
        model.fit_sample(sample.take(evenly_spaced(train, MOST_ROWS)))
        rows = sample.take(test)
        return losses_of(model.link_.means(model.scores(rows.X, rows.P)), test)

    # In the rows of its own fit a model looks too good: where that is not enough, stop.
    if not _compare(gate_losses[judged], losses_after(judged, judged), weight[judged]).is_clear:
        return None
    recalibrated = np.full(len(gate_losses), np.nan)
    kept = np.zeros(len(gate_losses), dtype=bool)
    kept[judged] = True
    used = [(train, test[kept[test]]) for train, test in folds if kept[test].any()]
    for train, test in used:
        recalibrated[test] = losses_after(train[weight[train] > 0], test)
    rows = np.flatnonzero(np.isfinite(recalibrated))
    groups = None if sample.groups is None else sample.groups[rows]
    overlap = fold_overlap([(len(train), len(test)) for train, test in used])
    shared = _compare(gate_losses[rows], recalibrated[rows], weight[rows], groups, overlap)
    return shared if shared.is_clear else None


def _compare(
    before: Array, after: Array, weight: Array, groups: Rows | None = None, overlap: float = 1.0
) -> SharedError:
    """Compare losses of the same rows: (n,) each."""
    gain, error = mean_and_error(before - after, weight, groups=groups)
    return SharedError(gain, overlap * error, float(np.average(before, weights=weight)))
