"""Checks whether candidates were trained on the labelled rows.

During a fit there are two signs: a model stores the rows, or its errors grow if the rows are moved
by a small step. Later, losses on new rows are compared with those on the labelled sample.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import median
from time import perf_counter

import narwhals as nw
import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from localma._types import Array, RowMask, Rows
from localma.candidates import CrossFitted, Pool
from localma.candidates.base import Candidate
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.function import FunctionCandidate
from localma.candidates.outputs import OutputNames, Table
from localma.checks.cautions import Caution, list_names
from localma.equations import row_losses
from localma.evidence import effective_number, mean_and_error
from localma.folds import count_groups, evenly_spaced
from localma.formatting import readable
from localma.gates import Labelled
from localma.tables.frames import LARGE_ROWS, column_names, dense, n_rows, take_rows, to_narwhals

Measured = tuple[float, float]
"""A mean and its standard error."""

MOST_TESTED = 200
LEAST_TESTED = 30
"""Rows that are moved. Samples with fewer rows are not tested."""

LEAST_SHARE = 0.66
LEAST_RATIO = 1.1
DEVIATIONS = 3.0
"""Limits from which on larger errors around the rows are a sign of training.

In simulations, clean candidates predicted at most 62 % of rows worse around them, even with
noiseless targets that jump. Forests and boosting trained on these rows predicted at least 69 %
worse. None was named in 585 clean simulated pools and 144 clean pools of real data.
"""

LEAST_ROUGH = 0.3
"""Change over half a step, as a share of the change over a whole step.

Smooth predictions, averaged over both sides, change with the square of the step: by a quarter.
Those of trees change by a half or more.
"""

EQUAL = 1e-6
"""Errors that differ by less than this share of the spread of y count as equal."""

EXACT = 100.0
"""From this ratio on, a candidate is said to fit the rows exactly."""

MOST_DESCRIBED = 3
"""Candidates whose evidence is described. The remaining ones are only named."""

FALSE_ALARM = 0.01
"""Probability that any candidate of a clean pool shows a gap between labelled and new rows."""

FEWEST_COMPARED = 20
"""Losses on fewer rows or groups are not compared."""

LEAST_GAP = 1.5
"""A smaller ratio of losses is not reported, even if it is certain."""

APART = 1.5
"""If a gap is this many times that of the other candidates, harder rows do not explain it."""

STORED_ROWS = ("_fit_X", "X_train_", "X_fit_", "support_vectors_")
"""Attributes in which neighbours, Gaussian processes and kernel machines store training rows."""

MOST_LOOKED_UP = 2_000
MOST_STORED = 200_000
MOST_DRAWN = 5_000_000
"""Limits of the work: rows to look up, stored rows to search, bootstrap draws to repeat."""

LEAST_LEAVES = 6
"""A tree with fewer leaves may have the same number of rows in each by chance."""

STEP = 0.0125
"""A row is moved in each column past this share of the sample's values."""

LEAST_DISTINCT = 10
"""A column with fewer distinct values may hold codes, and is not moved."""

REFERENCE_ROWS = 2_000
"""Largest number of rows from which the length of a step is computed."""

PROBE_ROWS, PROBE_SECONDS = 10, 0.1
"""A candidate that takes longer than this for a few rows is not asked about moved rows."""


# The check of a fit.


@dataclass(frozen=True)
class Memory:
    """Evidence that a candidate was trained on the labelled rows.

    n_rows : size of the sample.
    n_recognised : number of rows on which the model was evidently trained.
    ratio : error after a small move over the error at the rows; 1 if it was not measured.
    """

    name: str
    n_rows: int
    n_recognised: int = 0
    ratio: float = 1.0

    @property
    def is_evident(self) -> bool:
        """Whether there is evidence of training."""
        return self.n_recognised > 0 or self.ratio > 1.0

    def __str__(self) -> str:
        if self.n_recognised:
            count = f"{self.n_recognised:,} of these {self.n_rows:,}"
            return f"{count} are among the training rows of {self.name!r}"
        if self.ratio > EXACT:
            return f"{self.name!r} fits them exactly, but not if its inputs move slightly"
        larger = f"{self.ratio:.1f} times as large"
        return f"if inputs move slightly, the error of {self.name!r} is {larger}"


def find_trained_on_sample(
    pool: Pool,
    X: Table,
    P: Array,
    data: Labelled,
    outputs: OutputNames,
    to_loss_scale: Callable[[Array, Rows], Array],
) -> list[Caution]:
    """Name the candidates that seem to have been trained on the labelled rows.

    Parameters
    ----------
    pool : the fitted candidates
    X : the table that they predicted
    P : (n, M) or (n, M, K) their predictions
    data : the labelled sample
    outputs : the order of several outputs
    to_loss_scale : maps predictions (m, 1) or (m, 1, K) of m rows to the scale of the loss
    """
    rows = evenly_spaced(np.flatnonzero(data.sample_weight > 0), MOST_TESTED)
    moved, closer = moved_rows(X, rows), moved_rows(X, rows, 0.5)

    def measure_ratio(m: int) -> float:
        """Error of candidate m around the rows over its error at the rows; 1 if unknown."""
        around = _mean_of_moved(pool, m, moved, outputs)
        if around is None:
            return 1.0
        around_scaled = to_loss_scale(around[:, np.newaxis], rows)[:, 0]
        ratio = error_ratio(data.y[rows], data.P[rows, m], around_scaled)
        if ratio == 1.0:
            return ratio
        half_way = _mean_of_moved(pool, m, closer, outputs)
        if half_way is None or is_smooth(P[rows, m], around, half_way):
            return 1.0
        return ratio

    memories = []
    for m, (name, candidate) in enumerate(zip(pool.names, pool.candidates, strict=True)):
        if isinstance(candidate, CrossFitted):
            continue  # it was trained on these rows, but its predictions are out of fold
        recognised, ratio = recognised_rows(candidate, X), 1.0
        if recognised is None and moved is not None and len(rows) >= LEAST_TESTED:
            ratio = measure_ratio(m)
        memories.append(Memory(name, data.n_rows, recognised or 0, ratio))
    return _caution_of([memory for memory in memories if memory.is_evident])


def _caution_of(memories: list[Memory]) -> list[Caution]:
    """One caution about all candidates with evidence, or none."""
    if not memories:
        return []
    names = tuple(memory.name for memory in memories)
    verb, pronoun = "seem", "them"
    if len(names) == 1:
        verb, pronoun = "seems", "it"
    evidence = "; ".join(map(str, memories[:MOST_DESCRIBED]))
    sentence = (
        f"{list_names(names)} {verb} to have been trained on the labelled rows: {evidence}. "
        f"Weights learnt from such rows trust {pronoun} too much, and held-out losses are too "
        "small. Fit on labelled rows that no candidate was trained on."
    )
    return [Caution("trained_on_sample", sentence, names)]


# Training rows that a model stores.


def recognised_rows(candidate: Candidate, X: Table) -> int | None:
    """Count the rows of X on which a fitted estimator was evidently trained; None if unknown.

    Models that store training rows (neighbours, Gaussian processes, kernel machines) are searched
    for the rows. Trees and forests that were fitted on as many rows as X has are compared leaf by
    leaf. All rows count if each leaf of a tree holds as many rows of X as in training.

    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> model = EstimatorCandidate(KNeighborsRegressor().fit(X[:40], X[:40, 0]))
    >>> recognised_rows(model, X), recognised_rows(model, X[40:])
    (40, 0)
    """
    if not isinstance(candidate, EstimatorCandidate):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _count_recognised(*_last_model(candidate.model, candidate.select(X)))
    except Exception:  # from a model of any library, or from inputs that are not numbers
        return None


def _last_model(model: BaseEstimator, X: Table) -> tuple[BaseEstimator, Table]:
    """The model inside pipelines, searches and wrappers, and X as that model receives it."""
    if isinstance(model, Pipeline):
        if len(model) > 1:
            X = model[:-1].transform(X)
        return _last_model(model[-1], X)
    if isinstance(model, FrozenEstimator):
        return _last_model(model.estimator, X)
    for name in ("best_estimator_", "regressor_"):
        if hasattr(model, name):
            return _last_model(getattr(model, name), X)
    return model, X


def _count_recognised(model: BaseEstimator, X: Table) -> int | None:
    values = dense(X).astype(np.float64)
    for name in STORED_ROWS:
        if hasattr(model, name):
            return _count_stored(values, dense(getattr(model, name)).astype(np.float64))
    if _fills_leaves_alike(model, values):
        return len(values)
    return None


def _count_stored(X: Array, stored: Array) -> int | None:
    """Count the rows of X that are stored; 0 if chance explains their number.

    If rows repeat by nature, they also repeat among the stored rows. The share of stored rows that
    occur more than once estimates the probability that a new row is stored.
    """
    if not 0 < len(stored) <= MOST_STORED or X.shape[1:] != stored.shape[1:]:
        return None
    sample = X[evenly_spaced(np.arange(len(X)), MOST_LOOKED_UP)]
    scale = np.where(stored.std(axis=0) > 0, stored.std(axis=0), 1.0)
    # Rounded, because a pipeline may compute training rows and new rows in a different order.
    counts = Counter(map(bytes, np.round(stored / scale, 6) + 0.0))
    matches = sum(row in counts for row in map(bytes, np.round(sample / scale, 6) + 0.0))
    repeated = sum(count for count in counts.values() if count > 1)
    by_chance = len(sample) * (repeated + 0.5) / (len(stored) + 1)
    if matches <= by_chance + 3 * sqrt(by_chance):
        return 0
    return round(matches * len(X) / len(sample))


def _fills_leaves_alike(model: BaseEstimator, X: Array) -> bool:
    """Whether each leaf of the first tree has as many rows of X as it had in training."""
    estimator, X = _first_tree(model, X)
    tree = getattr(estimator, "tree_", None)
    if tree is None or tree.n_node_samples[0] != len(X):
        return False
    leaves = tree.children_left == -1
    if leaves.sum() < LEAST_LEAVES:
        return False
    counts = np.bincount(tree.apply(X.astype(np.float32)), minlength=len(leaves))
    return bool((counts[leaves] == tree.n_node_samples[leaves]).all())


def _first_tree(model: BaseEstimator, X: Array) -> tuple[BaseEstimator | None, Array]:
    """The first tree of an ensemble, and the rows of X that its bootstrap would have drawn."""
    trees = getattr(model, "estimators_", None)
    if trees is None:
        return model, X
    tree = np.ravel(np.asarray(trees, dtype=object))[0]
    n_fitted = getattr(model, "_n_samples", len(X))
    if n_fitted != len(X) or len(X) * len(trees) > MOST_DRAWN:
        return None, X
    if getattr(model, "bootstrap", False):
        X = X[np.unique(model.estimators_samples_[0])]
    features = getattr(model, "estimators_features_", None)
    if features is not None:
        X = X[:, features[0]]
    return tree, X


# Errors around the rows.


def error_ratio(targets: Array, at_rows: Array, around: Array) -> float:
    """How many times larger errors are around the rows than at them, if that is clear; else 1.

    A model that was trained on a row follows the noise of its target, and loses it a small step
    away. Two conditions must hold: most rows are predicted worse there, and the mean error is
    larger.

    targets, at_rows, around : (m, K) targets, predictions at m rows, mean predictions around them.

    >>> y = np.random.default_rng(0).normal(size=(100, 1))
    >>> round(error_ratio(y, 0.5 * y, 0.1 * y), 1), error_ratio(y, 0.1 * y, 0.1 * y)
    (1.8, 1.0)
    """
    scale = np.abs(targets - np.median(targets, axis=0)).mean(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    errors = (np.abs(targets - at_rows) / scale).mean(axis=1)
    moved_errors = (np.abs(targets - around) / scale).mean(axis=1)
    equal = np.abs(moved_errors - errors) < EQUAL
    share_worse = float(((moved_errors > errors) & ~equal).mean() + equal.mean() / 2)
    least_share = max(LEAST_SHARE, 0.5 + DEVIATIONS / (2 * sqrt(len(targets))))
    ratio = float(moved_errors.mean() / max(errors.mean(), EQUAL))
    if share_worse < least_share or ratio < LEAST_RATIO:
        return 1.0
    return ratio


def is_smooth(at_rows: Array, around: Array, closer: Array) -> bool:
    """Whether predictions bend instead of jumping, as those of a logistic regression do.

    Probabilities close to one bend downwards, which looks like memory.

    at_rows, around, closer : (m, ...) predictions at rows, and means a step and half a step away.

    >>> x = np.linspace(0.0, 1.0, 50)
    >>> is_smooth(x**2, x**2 + 0.04, x**2 + 0.01), is_smooth(x, x + 0.04, x + 0.03)
    (True, False)
    """
    return bool(np.abs(closer - at_rows).mean() < LEAST_ROUGH * np.abs(around - at_rows).mean())


def _mean_of_moved(pool: Pool, m: int, moved: Table, outputs: OutputNames) -> Array | None:
    """Mean prediction of candidate m over `moved_rows`: (rows,) or (rows, K).

    Only models and functions of this process are asked, and only quick ones; else None.
    """
    if not isinstance(pool.candidates[m], EstimatorCandidate | FunctionCandidate):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not _is_quick(pool, m, moved, outputs):
                return None
            P = pool.predict(moved, only=[pool.names[m]], outputs=outputs)[:, m]
    except Exception:  # a function may know only the rows that it was made for
        return None
    return np.asarray(P.reshape(2, -1, *P.shape[1:]).mean(axis=0))


def _is_quick(pool: Pool, m: int, moved: Table, outputs: OutputNames) -> bool:
    """Whether a candidate predicts a few rows in a short time; scikit-learn's models do."""
    model = getattr(pool.candidates[m], "model", None)
    if type(model).__module__.startswith("sklearn."):
        return True
    start = perf_counter()
    pool.predict(take_rows(moved, slice(0, PROBE_ROWS)), only=[pool.names[m]], outputs=outputs)
    return perf_counter() - start <= PROBE_SECONDS


def moved_rows(X: Table, rows: Rows, steps: float = 1.0) -> Table | None:
    """Rows of a table, all moved forwards and then all moved backwards: (2 m, p).

    With both directions, a smooth model loses on one side what it gains on the other. Only columns
    of fractional numbers are moved: codes and counts stay as they are. No value leaves the range of
    its column. The result is None if no column can be moved.

    steps : length of the move, 1 for the usual one.

    >>> X = np.linspace(0.05, 0.95, 19)[:, np.newaxis]
    >>> moved_rows(X, np.array([9])).round(3).ravel().tolist()
    [0.55, 0.45]
    """
    lengths = _step_lengths(X, rows)
    if not lengths:
        return None
    random = np.random.default_rng(0)
    shifts = {}
    for column, length in lengths.items():
        forwards = random.choice([-1.0, 1.0], size=len(rows)) * steps * length
        shifts[column] = np.concatenate([forwards, -forwards])
    moved = take_rows(X, np.tile(rows, 2))
    if isinstance(moved, np.ndarray):
        for column, shift in shifts.items():
            moved[:, column] += shift
        return moved
    frame = to_narwhals(moved)
    for column, shift in shifts.items():
        name = frame.columns[column]
        values = frame[name].to_numpy() + shift
        new = nw.new_series(name, values, frame[name].dtype, backend=frame.implementation)
        frame = frame.with_columns(new)
    return frame.to_native()


def _step_lengths(X: Table, rows: Rows) -> dict[int, Array]:
    """Length of the step of each row (m,), by the index of the column; only columns that move."""
    reference = evenly_spaced(np.arange(n_rows(X)), REFERENCE_ROWS)
    lengths = {k: _step_length(x, rows, reference) for k, x in _fractional_columns(X).items()}
    return {k: length for k, length in lengths.items() if length is not None}


def _fractional_columns(X: Table) -> dict[int, Array]:
    if isinstance(X, np.ndarray):
        if X.ndim != 2 or X.dtype.kind != "f":
            return {}
        return dict(enumerate(X.T))
    names = column_names(X)
    if names is None or not all(isinstance(name, str) for name in names):
        return {}
    frame = to_narwhals(X)
    return {
        k: np.asarray(frame[name].to_numpy(), dtype=np.float64)
        for k, name in enumerate(frame.columns)
        if frame[name].dtype.is_float()
    }


def _step_length(values: Array, rows: Rows, reference: Rows) -> Array | None:
    """Half the distance between the values a little below and above, within the column's range."""
    ordered = np.asarray(values[reference], dtype=np.float64)
    ordered = np.sort(ordered[np.isfinite(ordered)])
    if len(np.unique(ordered)) < LEAST_DISTINCT or (ordered == np.round(ordered)).all():
        return None
    k, last = max(1, round(STEP * len(ordered))), len(ordered) - 1
    at_rows = np.asarray(values[rows], dtype=np.float64)
    index = np.searchsorted(ordered, at_rows)
    upper, lower = ordered[np.minimum(index + k, last)], ordered[np.maximum(index - k, 0)]
    to_end = np.minimum(at_rows - ordered[0], ordered[-1] - at_rows)
    length = np.minimum((upper - lower) / 2, to_end).clip(0.0)
    return np.where(np.isfinite(length), length, 0.0)


# Losses on new rows.


@dataclass(frozen=True)
class SampleLosses:
    """Mean loss of each candidate on a sample, and its standard error: (M,) each.

    n : number of independent draws: groups if there are any, else the effective number of rows.
    """

    mean: Array
    standard_error: Array
    n: float

    @classmethod
    def of(cls, losses: Array, sample_weight: Array, groups: Rows | None) -> SampleLosses:
        """Measure the losses (M, n) of candidates, between groups if there are any.

        >>> SampleLosses.of(np.array([[1.0, 3.0]]), np.ones(2), None).mean.tolist()
        [2.0]
        """
        measured = [mean_and_error(values, sample_weight, groups=groups) for values in losses]
        mean, error = np.array(measured).T
        n = count_groups(groups, sample_weight)
        if n is None:
            return cls(mean, error, effective_number(sample_weight))
        return cls(mean, error, float(n))

    @classmethod
    def of_sample(cls, data: Labelled) -> SampleLosses:
        """Measure the losses of the candidates on a labelled sample."""
        rows = evenly_spaced(np.flatnonzero(data.sample_weight > 0), LARGE_ROWS)
        y, weight = data.y[rows], np.asarray(data.sample_weight[rows], dtype=np.float64)
        losses = [row_losses(data.loss, y, P) for P in data.P[rows].swapaxes(0, 1)]
        groups = data.groups
        if groups is not None:
            groups = groups[rows]
        return cls.of(np.array(losses), weight, groups)


@dataclass(frozen=True)
class Gap:
    """A candidate whose loss on new rows is clearly larger than on the labelled sample.

    sample, here : mean loss and standard error on the labelled sample and on the new rows.
    is_apart : whether the losses of the other candidates rose less, so that harder rows do not
    explain the gap.
    """

    name: str
    sample: Measured
    here: Measured
    is_apart: bool

    def __str__(self) -> str:
        sizes = f"{readable(self.sample[0])} on the labelled rows, {readable(self.here[0])} here."
        if self.is_apart:
            return f"{self.name}: {sizes} Was it trained on them?"
        return f"{self.name}: {sizes} Was it trained on them, or are these rows harder?"


def find_gaps(names: Sequence[str], sample: SampleLosses, here: SampleLosses) -> list[Gap]:
    """Find the candidates whose loss is larger here than on the labelled sample, beyond chance.

    If the loss of any candidate is clearly smaller here, the rows are of another kind, such as one
    region of the inputs, and nothing is reported.

    >>> sample = SampleLosses(np.array([483.0, 2900.0]), np.array([20.0, 150.0]), 400)
    >>> here = SampleLosses(np.array([3332.0, 3000.0]), np.array([180.0, 160.0]), 400)
    >>> [str(gap) for gap in find_gaps(["forest", "line"], sample, here)]
    ['forest: 483 on the labelled rows, 3,330 here. Was it trained on them?']
    """
    if min(sample.n, here.n) < FEWEST_COMPARED or _are_beyond_chance(here, sample).any():
        return []
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(here.mean / sample.mean, nan=1.0, posinf=inf).tolist()
    beyond = _are_beyond_chance(sample, here)
    return [
        Gap(
            name,
            (float(sample.mean[m]), float(sample.standard_error[m])),
            (float(here.mean[m]), float(here.standard_error[m])),
            _is_apart(ratios, m),
        )
        for m, name in enumerate(names)
        if beyond[m] and ratios[m] >= LEAST_GAP
    ]


def _is_apart(ratios: list[float], m: int) -> bool:
    remaining = ratios[:m] + ratios[m + 1 :]
    return not remaining or ratios[m] >= APART * median(remaining)


def _are_beyond_chance(sample: SampleLosses, here: SampleLosses) -> RowMask:
    """Whether mean losses here are larger by more than chance explains: (M,).

    Losses have long tails, and a sample without a large loss has a small mean and a small standard
    error. Losses of a clean candidate vary as much on both samples, so the larger variation is used
    for both. The logarithm corrects the remaining skewness.
    """
    quantile = -ndtri(FALSE_ALARM / len(sample.mean))
    per_draw = np.maximum(
        sample.standard_error * sqrt(sample.n), here.standard_error * sqrt(here.n)
    )
    error = per_draw * sqrt(1.0 / sample.n + 1.0 / here.n)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = here.mean - sample.mean
        in_logarithms = np.log(here.mean / sample.mean) * here.mean
    # Comparisons with an unknown standard error, which is NaN, are false.
    return (gap > quantile * error) & ~(in_logarithms <= quantile * error)


def caution_of_gaps(gaps: Sequence[Gap]) -> list[Caution]:
    """One caution about all gaps, or none."""
    if not gaps:
        return []
    sentence = " ".join(map(str, gaps))
    return [Caution("trained_on_sample", sentence, tuple(gap.name for gap in gaps))]
