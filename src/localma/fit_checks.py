"""Checks of a fit: worse than a constant, and columns or candidates that hold the target.

Each check is a function of arrays that returns cautions. The limits are chosen so that clean data
hardly ever raise one; the study "false_alarms" counts how often they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from localma.baseline import Baseline
from localma.cautions import Caution
from localma.equations import row_losses
from localma.evidence import BaselineGap, baseline_gap
from localma.losses import PROBABILITY
from localma.wording import readable

Array = NDArray[np.floating]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

CHECKED_ROWS = 2_000
"""At most this many rows are looked at."""

CHECKED_OBJECTS = 200
"""At most this many texts or images are looked at, which a gate takes long to read."""

SCREENED_ROWS = 200
"""Columns that do not follow the target in this many rows are not looked at further."""

LEAST_ROWS = 10
"""Fewer rows are no evidence; for a leak, rows that differ from the most frequent target."""

RANKED_ROWS = 50
SAME_ORDER = 0.999
SCREENED_ORDER = 0.99
"""From so many rows on, a column leaks if its rank correlation with the target is above 0.999."""

SAME_LINE = 1 - 1e-9
"""With fewer rows, a column leaks if its squared correlation with the target is above this."""

SEPARATED_ROWS = 600
"""From so many rows on, a column leaks if limits on it separate all classes without an error."""

APART = 10.0
"""A class has values of its own if the nearest other row is so many times their range away."""

PERFECT = 1e-5
"""A candidate leaks if its squared error is below this part of the target's variance."""

MOST_OUTPUTS = 20
MOST_NAMES = 5
FOLDS = 5
"""Parts in which constants are learnt and judged if the gate holds out no rows."""

FAR = 2.0
"""Predictions are on another scale if their mean is so many deviations from that of the target."""


def over_constant(
    losses: Array, baseline: Baseline, rows: Rows, groups: Rows | None = None
) -> BaselineGap:
    """Compare losses (rows,) with those of constants, each learnt from four fifths of the rows."""
    constant_losses = np.empty(len(rows))
    for fold in range(min(FOLDS, len(rows))):
        judged = np.arange(len(rows)) % FOLDS == fold
        constant = baseline.learn(rows[~judged])
        constant_losses[judged] = baseline.losses(constant, rows[judged])
    return baseline_gap(constant_losses, losses, baseline.weights_of(rows), groups)


def worse_than_constant(
    gap: BaselineGap, baseline: Baseline, outputs: Array, names: Sequence[str], where: str
) -> list[Caution]:
    """Say that a constant does better than the combined prediction, and what may be the cause.

    Parameters
    ----------
    gap : the two compared
    outputs : (n, M, K) predictions of the candidates, on the scale of the loss
    names : of the M candidates
    where : the rows on which the two were compared, such as "held-out rows"
    """
    if not gap.is_worse or len(baseline.weighing_rows) < LEAST_ROWS:
        return []
    inverted = inverted_candidates(baseline, outputs, names)
    sentence = (
        f"The combined prediction is worse than a constant: on {where} its mean loss "
        f"({baseline.loss.name}) is {readable(gap.risk)}, and that of {baseline.name} is "
        f"{readable(gap.baseline_risk)}. {_cause(baseline, outputs, inverted)}"
    )
    return [Caution("worse_than_constant", sentence, tuple(inverted))]


def inverted_candidates(baseline: Baseline, outputs: Array, names: Sequence[str]) -> list[str]:
    """Candidates that do worse than the best constant as they are, and better as ``1 - p``.

    Looked for with two classes, and with targets and predictions in [0, 1].
    """
    binary = baseline.n_classes == 2
    if not binary and (baseline.labels is not None or baseline.loss.prediction != PROBABILITY):
        return []
    rows = evenly_spaced(baseline.weighing_rows, CHECKED_ROWS)
    targets, weight = baseline.targets[rows], baseline.weights_of(rows)
    losses = baseline.losses(baseline.learn(), rows)

    def is_inverted(predictions: Array) -> bool:
        plain, turned = (
            baseline_gap(losses, row_losses(baseline.loss, targets, p), weight)
            for p in (predictions, 1.0 - predictions)
        )
        return plain.value < 0 and turned.value > 2 * turned.standard_error

    return [name for m, name in enumerate(names) if is_inverted(outputs[rows, m])]


def _cause(baseline: Baseline, outputs: Array, inverted: Sequence[str]) -> str:
    """The cause that the numbers point to; all likely ones if they point to none."""
    if inverted:
        return (
            f"The predictions of {_joined(inverted, 'and')} would beat the constant as 1 - p: they "
            "seem to hold the probability of the other class. State the class whose probability "
            "each candidate holds (on the command line: --positive)."
        )
    rows = evenly_spaced(baseline.weighing_rows, CHECKED_ROWS)
    targets, predictions = baseline.targets[rows], outputs[rows]
    if baseline.labels is None and not np.ptp(targets, axis=0).any():
        return "All targets are the same: there is nothing to predict."
    mean, average = float(targets.mean()), float(predictions.mean())
    is_regression = baseline.labels is None and targets.shape[1] == 1
    if is_regression and abs(average - mean) > FAR * float(targets.std()):
        return (
            f"The targets average {readable(mean)} and the predictions {readable(average)}: they "
            "seem to be on different scales. Were the targets transformed (such as by a "
            "logarithm), or were the inputs scaled before candidates that expect raw ones?"
        )
    causes = ["rows of predictions and targets in a different order (shuffled or reversed)"]
    if baseline.labels is None:
        causes.insert(0, "targets on another scale than the predictions (such as logarithms)")
    if baseline.labels is not None or baseline.loss.prediction == PROBABILITY:
        causes.append("probabilities in the columns of other classes")
    causes.append("inputs that were scaled before candidates that expect raw ones")
    return f"Likely causes: {', '.join(causes[:-1])}, or {causes[-1]}."


def leaking_candidates(baseline: Baseline, outputs: Array, names: Sequence[str]) -> list[Caution]:
    """Name candidates that are the target, or nearly so.

    outputs : (n, M, K) predictions of the M candidates.
    """
    rows = _telling_rows(baseline)
    if not len(rows):
        return []
    targets = baseline.targets[rows]
    constant = targets.mean(axis=0)
    if baseline.labels is not None:
        constant = baseline.predictions(baseline.learn(), rows)
    variance = ((targets - constant) ** 2).mean(axis=0)
    cautions = []
    for m, name in enumerate(names):
        errors = ((targets - outputs[rows, m]) ** 2).mean(axis=0)
        share = float(np.max(errors[variance > 0] / variance[variance > 0]))
        if share < PERFECT:
            cautions.append(Caution("leakage", _candidate_sentence(name, share), (name,)))
    return cautions


def _candidate_sentence(name: str, share: float) -> str:
    what = f"predicts the target almost perfectly ({share:.1g} of its variance is left)"
    if share == 0:
        what = "is identical to the target"
    return (
        f"Candidate {name!r} {what}. It may have been made from the target: find out where its "
        "predictions come from, or leave it out."
    )


def rows_for_leaks(baseline: Baseline) -> Rows:
    """Rows of positive weight in which leaks are looked for, evenly spaced; rare classes first."""
    rows = baseline.weighing_rows
    if baseline.labels is None:
        return evenly_spaced(rows, CHECKED_ROWS)
    labels = baseline.labels[rows]
    classes = np.unique(labels)
    each = -(-CHECKED_ROWS // len(classes))
    return np.concatenate([evenly_spaced(rows[labels == label], each) for label in classes])


def leaking_columns(
    baseline: Baseline, rows: Rows, names: Sequence[str], values: Array
) -> list[Caution]:
    """Name columns that tell the target almost perfectly on their own.

    For numbers, a column with the same order as the target, upwards or downwards. For classes, a
    column in which each class but one has values of its own, or, in many rows, one on which limits
    separate all classes. What only several columns tell together is not looked for.

    Parameters
    ----------
    rows : (r,) numbers of rows, from `rows_for_leaks`
    names : of the p columns, some of which may be the same
    values : (r, p) what the gate sees in these rows
    """
    told = np.zeros(len(names), dtype=bool)
    if baseline.labels is not None:
        told = tells_classes(values, baseline.labels[rows])
    else:
        for y in baseline.targets[rows].T[:MOST_OUTPUTS]:
            told |= tells_number(values, y)
    leaks = tuple(dict.fromkeys(name for name, leak in zip(names, told, strict=True) if leak))
    if not leaks:
        return []
    sentence = (
        f"Column {_joined(leaks, 'or')} alone tells the target almost perfectly ({len(rows):,} "
        "rows checked). Such a column may hold the target, or be known only after it. If so, "
        "leave it out, and check that no candidate uses it."
    )
    return [Caution("leakage", sentence, leaks)]


def tells_number(values: Array, y: Array) -> Mask:
    """Which columns have the order of a target: (r, p), (r,) -> (p,).

    >>> y = np.arange(60.0)
    >>> tells_number(np.stack([y**3, -y, np.abs(y - 30)], axis=1), y).tolist()
    [True, True, False]
    """
    if _n_telling(y) < LEAST_ROWS:
        return np.zeros(values.shape[1], dtype=bool)
    told = _squared_correlations(values, y) > SAME_LINE
    if len(y) >= RANKED_ROWS:
        some = slice(None, None, -(-len(y) // SCREENED_ROWS))
        likely = _squared_rank_correlations(values[some], y[some]) > SCREENED_ORDER**2
        told[likely] |= _squared_rank_correlations(values[:, likely], y) > SAME_ORDER**2
    return told


def tells_classes(values: Array, labels: Rows) -> Mask:
    """Which columns tell the class: (r, p), (r,) -> (p,).

    >>> labels = np.repeat([0, 1], 20)
    >>> amount = labels * np.linspace(1, 9, 40)
    >>> tells_classes(np.stack([labels, amount, np.arange(40.0)], axis=1), labels).tolist()
    [True, True, False]
    """
    if _n_telling(labels) < LEAST_ROWS:
        return np.zeros(values.shape[1], dtype=bool)
    told = _have_own_values(values, labels)
    if len(labels) >= SEPARATED_ROWS:
        told |= _in_blocks(values, labels)
    return told


def _have_own_values(values: Array, labels: Rows) -> Mask:
    """Whether each class but one has values of its own, far from all other rows: (p,)."""
    classes, counts = np.unique(labels, return_counts=True)
    n_apart = np.zeros(values.shape[1], dtype=int)
    evidence = np.zeros(values.shape[1], dtype=int)
    for label, count in zip(classes, counts, strict=True):
        inside, outside = values[labels == label], values[labels != label]
        low, high = inside.min(axis=0), inside.max(axis=0)
        with np.errstate(over="ignore"):  # of numbers near the largest that there are
            gap = np.maximum(low - outside, outside - high).min(axis=0)
            apart = (gap > 0) & (gap >= APART * (high - low))
        n_apart += apart
        evidence += apart * (int(count) - 1)  # the first row of a class is anywhere
    return (len(classes) > 1) & (n_apart >= len(classes) - 1) & (evidence >= LEAST_ROWS)


def _in_blocks(values: Array, labels: Rows) -> Mask:
    """Whether the rows of each class follow one another, if sorted by a column: (p,)."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered, along = labels[order], np.take_along_axis(values, order, axis=0)
    changes = ordered[1:] != ordered[:-1]
    shared = (changes & (along[1:] == along[:-1])).any(axis=0)  # one value in two classes
    return (changes.sum(axis=0) == len(np.unique(labels)) - 1) & ~shared


def _telling_rows(baseline: Baseline) -> Rows:
    """Rows to judge candidates by; none if the target hardly varies."""
    rows = rows_for_leaks(baseline)
    columns = [baseline.labels[rows]] if baseline.labels is not None else baseline.targets[rows].T
    enough = max(_n_telling(column) for column in columns) >= LEAST_ROWS
    return rows if enough else rows[:0]


def _n_telling(target: NDArray[np.generic]) -> int:
    """Number of rows whose target is not the most frequent one, which chance hits often."""
    if not len(target):
        return 0
    return len(target) - int(np.unique(target, return_counts=True)[1].max())


def _squared_correlations(values: Array, y: Array) -> Array:
    values, y = _centred(values), _centred(y)
    scale = (values**2).sum(axis=0) * (y**2).sum()
    return (y @ values) ** 2 / np.where(scale > 0, scale, np.inf)


def _centred(values: Array) -> Array:
    """Deviations from the mean of each column, in a unit in which squares do not overflow."""
    size = np.abs(values).max(axis=0)
    scaled = values / np.where(size > 0, size, 1.0)
    return scaled - scaled.mean(axis=0)


def _squared_rank_correlations(values: Array, y: Array) -> Array:
    return _squared_correlations(rankdata(values, axis=0), rankdata(y))


def evenly_spaced(rows: Rows, most: int) -> Rows:
    """At most so many of some rows, in their order.

    >>> evenly_spaced(np.arange(10), 4).tolist()
    [0, 3, 6, 9]
    """
    return rows[:: max(1, -(-len(rows) // most))]


def _joined(names: Sequence[str], word: str) -> str:
    """Names in quotes, the last after "and" or "or"; many are counted only."""
    shown = [repr(name) for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        shown.append(f"{len(names) - MOST_NAMES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {word} {shown[-1]}"
