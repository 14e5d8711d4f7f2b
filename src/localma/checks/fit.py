"""Checks of a fit: worse than a constant, and columns or candidates that hold the target.

Each check is a function of arrays that returns cautions. Its limits are set so that clean data
rarely raise one; the study "false_alarms" counts how often they do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from localma._types import AnyArray, Array, Integers, RowMask, Rows
from localma.candidates.outputs import Table
from localma.checks.cautions import Caution, list_names
from localma.equations import row_losses
from localma.evidence import Baseline, BaselineGap, baseline_gap
from localma.folds import evenly_spaced
from localma.formatting import readable
from localma.gates import Gate, Labelled
from localma.gates.support import Outside
from localma.losses import PROBABILITY
from localma.tables.encoder import GateFeatures
from localma.tables.frames import ArrowRows, take_rows

CHECKED_ROWS = 2_000
"""Largest number of rows that a check reads."""

CHECKED_OBJECTS = 200
"""Largest number of texts or images that a check reads, because gates read them slowly."""

SCREENED_ROWS = 200
"""Columns that do not follow the target in this many rows are not checked further."""

LEAST_ROWS = 10
"""Smallest number of rows that counts as evidence."""

RANKED_ROWS = 50
SAME_ORDER = 0.999
SCREENED_ORDER = 0.99
"""From 50 rows on, a column leaks if its rank correlation with the target is above 0.999."""

SAME_LINE = 1 - 1e-9
"""With fewer rows, a column leaks if its squared correlation with the target is above this."""

SEPARATED_ROWS = 600
"""From this many rows on, a column leaks if thresholds separate all classes without an error."""

APART = 10.0
"""A class has its own values if the nearest row of other classes is this many ranges away."""

PERFECT = 1e-5
"""A candidate leaks if its squared error is below this share of the target's variance."""

MOST_OUTPUTS = 20
FOLDS = 5
"""Folds in which constants are learnt and judged if the gate holds out no rows."""

FAR = 2.0
"""Predictions are on another scale if their mean is this many deviations off the target's mean."""


def find_cautions(
    gate: Gate,
    data: Labelled,
    baseline: Baseline,
    names: Sequence[str],
    features: GateFeatures,
    X: Table,
    trained_on_sample: Sequence[Caution] = (),
) -> tuple[Caution, ...]:
    """Find the reasons to doubt a fit, the most serious ones first.

    Parameters
    ----------
    gate : the fitted gate
    data : the sample on which it was fitted
    baseline : constant predictions of the sample
    names : names of the candidates
    features : the inputs of the gate, computed from the table X
    trained_on_sample : cautions about candidates that were trained on the sample. They explain why
        a candidate is almost perfect, so it is not reported again as a leak.
    """
    gap, rows = compare_with_constant(gate, data, baseline)
    explained = {name for caution in trained_on_sample for name in caution.names}
    leaks = leaking_candidates(baseline, data.P, names)
    return (
        *worse_than_constant(gap, baseline, data.P, names, rows),
        *trained_on_sample,
        *(caution for caution in leaks if not explained & set(caution.names)),
        *_leaking_inputs(data.X, baseline, features, X),
    )


def compare_with_constant(
    gate: Gate, data: Labelled, baseline: Baseline
) -> tuple[BaselineGap, str]:
    """Compare the combined prediction with the best constant; say on which rows.

    Only gate="auto" holds out rows. Other gates are compared on the rows that they were fitted on,
    and look better there than they are. A gate that is worse even there is worse indeed.
    """
    if gate.evidence is not None:
        return gate.evidence.locality_gain_.beside_baseline, "held-out rows"
    rows = checked_rows(data)
    mixture = gate.average(take_rows(data.X, rows), data.P[rows])
    losses = row_losses(data.loss, data.y[rows], mixture)
    groups = data.groups
    if groups is not None:
        groups = groups[rows]
    return over_constant(losses, baseline, rows, groups), "the labelled rows"


def checked_rows(data: Labelled) -> Rows:
    """Rows of positive weight on which a gate is checked: fewer if they are texts or images."""
    limit = CHECKED_OBJECTS
    if isinstance(data.X, np.ndarray) and data.X.ndim == 2:
        limit = CHECKED_ROWS
    return evenly_spaced(np.flatnonzero(data.sample_weight > 0), limit)


def outside_sample(outside: Outside, names: Sequence[str]) -> Caution:
    """Make the caution that most rows to predict lie outside the labelled sample.

    names : names of all inputs.
    """
    columns = tuple(dict.fromkeys(names[column] for column in outside.columns))
    low, high, typical = map(_exact, (outside.low, outside.high, outside.here))
    first = repr(columns[0])
    reason = f"mostly by {first}: {low} to {high} in the sample, {typical} here"
    if outside.in_gap:
        reason = (
            f"mostly by {first}: no value between {low} and {high} in the sample, {typical} here"
        )
    if len(columns) > 1:
        listed = ", ".join(map(repr, columns))
        reason = f"mostly by a combination of inputs that no labelled row has: {listed}"
    return Caution(
        "outside_sample",
        f"{outside.share:.0%} of the rows to predict lie outside the labelled sample, {reason}. "
        "Such rows get the global weights instead of local ones. If a column only tells when a row "
        "was recorded, leave it out of gate_features.",
        columns,
    )


def _exact(value: float) -> str:
    """Write a year or an id without a comma or an exponent, other numbers with four digits."""
    if value == round(value) and abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.4g}"


def over_constant(
    losses: Array, baseline: Baseline, rows: Rows, groups: Rows | None = None
) -> BaselineGap:
    """Compare losses (rows,) with those of constants, each learnt from four fifths of the rows."""
    constant_losses = np.empty(len(rows))
    for fold in range(min(FOLDS, len(rows))):
        held_out = np.arange(len(rows)) % FOLDS == fold
        constant = baseline.learn(rows[~held_out])
        constant_losses[held_out] = baseline.losses(constant, rows[held_out])
    return baseline_gap(constant_losses, losses, baseline.weights_of(rows), groups)


def worse_than_constant(
    gap: BaselineGap, baseline: Baseline, outputs: Array, names: Sequence[str], rows: str
) -> list[Caution]:
    """Warn if a constant is better than the combined prediction, with the likely cause.

    Parameters
    ----------
    gap : the comparison of the two
    outputs : (n, M, K) predictions of the candidates, on the scale of the loss
    names : names of the M candidates
    rows : the rows on which the two were compared, such as "held-out rows"
    """
    if not gap.is_worse or len(baseline.weighing_rows) < LEAST_ROWS:
        return []
    inverted = inverted_candidates(baseline, outputs, names)
    sentence = (
        f"The combined prediction is worse than a constant: on {rows} its mean loss "
        f"({baseline.loss.name}) is {readable(gap.risk)}, and that of {baseline.name} is "
        f"{readable(gap.baseline_risk)}. {_cause(baseline, outputs, inverted)}"
    )
    return [Caution("worse_than_constant", sentence, tuple(inverted))]


def inverted_candidates(baseline: Baseline, outputs: Array, names: Sequence[str]) -> list[str]:
    """Candidates that are worse than the best constant as they are, and better as ``1 - p``.

    There are none unless there are two classes, or targets and predictions in [0, 1].
    """
    is_binary = baseline.n_classes == 2
    if not is_binary and (baseline.labels is not None or baseline.loss.prediction != PROBABILITY):
        return []
    rows = evenly_spaced(baseline.weighing_rows, CHECKED_ROWS)
    targets, weight = baseline.targets[rows], baseline.weights_of(rows)
    losses = baseline.losses(baseline.learn(), rows)

    def is_inverted(predictions: Array) -> bool:
        plain, inverted = (
            baseline_gap(losses, row_losses(baseline.loss, targets, p), weight)
            for p in (predictions, 1.0 - predictions)
        )
        return plain.value < 0 and inverted.value > 2 * inverted.standard_error

    return [name for m, name in enumerate(names) if is_inverted(outputs[rows, m])]


def _cause(baseline: Baseline, outputs: Array, inverted: Sequence[str]) -> str:
    """The cause that the numbers suggest; all likely causes if they suggest none."""
    if inverted:
        return (
            f"The predictions of {list_names(inverted)} would beat the constant as 1 - p: they "
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
    """Name candidates that equal the target, or almost so.

    outputs : (n, M, K) predictions of the M candidates.
    """
    rows = rows_for_leaks(baseline)
    columns: Sequence[AnyArray] = list(baseline.targets[rows].T)
    if baseline.labels is not None:
        columns = [baseline.labels[rows]]
    if max(_n_informative(column) for column in columns) < LEAST_ROWS:
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
    finding = f"predicts the target almost perfectly ({share:.1g} of its variance is left)"
    if share == 0:
        finding = "is identical to the target"
    return (
        f"Candidate {name!r} {finding}. It may have been made from the target: find out where its "
        "predictions come from, or leave it out."
    )


def rows_for_leaks(baseline: Baseline) -> Rows:
    """Rows of positive weight in which to look for leaks: as many of each class, if possible."""
    rows = baseline.weighing_rows
    if baseline.labels is None:
        return evenly_spaced(rows, CHECKED_ROWS)
    labels = baseline.labels[rows]
    classes = np.unique(labels)
    limit = -(-CHECKED_ROWS // len(classes))
    return np.concatenate([evenly_spaced(rows[labels == label], limit) for label in classes])


def _leaking_inputs(
    inputs: Table | ArrowRows, baseline: Baseline, features: GateFeatures, X: Table
) -> list[Caution]:
    """Name columns of the gate's inputs that tell the target; none if it reads no table."""
    if not isinstance(inputs, np.ndarray | ArrowRows) or inputs.dtype.kind not in "biuf":
        return []
    if inputs.ndim != 2 or not inputs.shape[1]:
        return []
    rows = rows_for_leaks(baseline)
    values = np.asarray(take_rows(inputs, rows), dtype=np.float64)
    return leaking_columns(baseline, rows, *features.named_inputs(values, X))


def leaking_columns(
    baseline: Baseline, rows: Rows, names: Sequence[str], values: Array
) -> list[Caution]:
    """Name columns that tell the target almost perfectly on their own.

    For numbers, that is a column with the same order as the target, upwards or downwards. For
    classes, it is a column in which all classes but one have their own values, or, with many rows,
    one on which thresholds separate all classes. Combinations of columns are not checked.

    Parameters
    ----------
    rows : (r,) row indices, from `rows_for_leaks`
    names : names of the p columns, which may repeat
    values : (r, p) inputs of the gate in these rows
    """
    if baseline.labels is not None:
        is_leak = tells_classes(values, baseline.labels[rows])
    else:
        targets = baseline.targets[rows].T[:MOST_OUTPUTS]
        is_leak = np.any([tells_number(values, y) for y in targets], axis=0)
    leaks = tuple(dict.fromkeys(name for name, leak in zip(names, is_leak, strict=True) if leak))
    if not leaks:
        return []
    sentence = (
        f"Column {list_names(leaks, 'or')} alone tells the target almost perfectly ({len(rows):,} "
        "rows checked). Such a column may hold the target, or be known only after it. If so, "
        "leave it out, and check that no candidate uses it."
    )
    return [Caution("leakage", sentence, leaks)]


def tells_number(values: Array, y: Array) -> RowMask:
    """Whether each column has the order of a target: (r, p), (r,) -> (p,).

    >>> y = np.arange(60.0)
    >>> tells_number(np.stack([y**3, -y, np.abs(y - 30)], axis=1), y).tolist()
    [True, True, False]
    """
    if _n_informative(y) < LEAST_ROWS:
        return np.zeros(values.shape[1], dtype=bool)
    tells = _squared_correlations(values, y) > SAME_LINE
    if len(y) >= RANKED_ROWS:
        screened = evenly_spaced(np.arange(len(y)), SCREENED_ROWS)
        likely = _squared_rank_correlations(values[screened], y[screened]) > SCREENED_ORDER**2
        tells[likely] |= _squared_rank_correlations(values[:, likely], y) > SAME_ORDER**2
    return tells


def tells_classes(values: Array, labels: Integers) -> RowMask:
    """Whether each column tells the class: (r, p), (r,) -> (p,).

    >>> labels = np.repeat([0, 1], 20)
    >>> amount = labels * np.linspace(1, 9, 40)
    >>> tells_classes(np.stack([labels, amount, np.arange(40.0)], axis=1), labels).tolist()
    [True, True, False]
    """
    if _n_informative(labels) < LEAST_ROWS:
        return np.zeros(values.shape[1], dtype=bool)
    tells = _have_own_values(values, labels)
    if len(labels) >= SEPARATED_ROWS:
        tells |= _are_in_blocks(values, labels)
    return tells


def _have_own_values(values: Array, labels: Integers) -> RowMask:
    """Whether all classes but one have their own values, far from all other rows: (p,)."""
    classes, counts = np.unique(labels, return_counts=True)
    n_apart = np.zeros(values.shape[1], dtype=int)
    evidence = np.zeros(values.shape[1], dtype=int)
    for label, count in zip(classes, counts, strict=True):
        inside, outside = values[labels == label], values[labels != label]
        low, high = inside.min(axis=0), inside.max(axis=0)
        with np.errstate(over="ignore"):  # numbers close to the largest float
            gap = np.maximum(low - outside, outside - high).min(axis=0)
            apart = (gap > 0) & (gap >= APART * (high - low))
        n_apart += apart
        evidence += apart * (int(count) - 1)  # one row of a class can be anywhere
    return (len(classes) > 1) & (n_apart >= len(classes) - 1) & (evidence >= LEAST_ROWS)


def _are_in_blocks(values: Array, labels: Integers) -> RowMask:
    """Whether rows of the same class are adjacent if sorted by a column: (p,)."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered, along = labels[order], np.take_along_axis(values, order, axis=0)
    changes = ordered[1:] != ordered[:-1]
    shared = (changes & (along[1:] == along[:-1])).any(axis=0)  # a value of two classes
    return (changes.sum(axis=0) == len(np.unique(labels)) - 1) & ~shared


def _n_informative(target: AnyArray) -> int:
    """Number of rows whose target is not the most frequent value, which is easy to guess."""
    counts = np.unique(target, return_counts=True)[1]
    return len(target) - int(counts.max(initial=0))


def _squared_correlations(values: Array, y: Array) -> Array:
    values, y = _centred(values), _centred(y)
    scale = (values**2).sum(axis=0) * (y**2).sum()
    return (y @ values) ** 2 / np.where(scale > 0, scale, np.inf)


def _centred(values: Array) -> Array:
    """Deviations from the mean of each column, scaled so that squares do not overflow."""
    size = np.abs(values).max(axis=0)
    scaled = values / np.where(size > 0, size, 1.0)
    return scaled - scaled.mean(axis=0)


def _squared_rank_correlations(values: Array, y: Array) -> Array:
    return _squared_correlations(rankdata(values, axis=0), rankdata(y))
