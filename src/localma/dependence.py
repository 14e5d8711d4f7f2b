"""Rows that depend on each other: copies, neighbours in time, members of one cluster.

A gate must not be judged on a row whose error it knows from another row. Dependence is looked for
in the labelled sample itself: in the errors of the candidates' average, and in the differences
between their losses. Where it is found, whole blocks of rows are held out, and standard errors are
those between blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Literal, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import f as f_distribution
from scipy.stats import pearson3, rankdata

from localma._types import AnyArray, Array, Float64, RandomState, RowMask, Rows
from localma.equations import row_losses
from localma.folds import DEFAULT_FOLDS, Fold, make_folds
from localma.losses import Loss
from localma.tables.frames import to_narwhals

SIZE = 0.01
"""Independent rows are taken for dependent ones at most this often, over all tests of a kind."""

FEWEST_ROWS = 40
"""With fewer rows nothing is looked for, since too few blocks would remain."""

MOST_ROWS, STRETCHES = 50_000, 10
"""Of more rows, evenly spaced stretches are looked at."""

MOST_SIGNALS = 8
"""Errors of at most this many outputs are looked at, and as many differences of losses."""

FEWEST_BLOCKS, MOST_BLOCKS = 10, 40
"""Number of blocks of consecutive rows. Standard errors between fewer blocks would say little."""

WAVES = 10
"""Cosines by which a smooth function of a sorted column is removed."""

ONE_WAY = 0.9
"""Share of the steps of a column, from row to row, that go one way if rows are sorted by it."""

MOST_WAVES, SIZE_WAVES = 100, 10
"""Cosines by which the smooth effect of numbers on errors, and on their size, is removed."""

MEAN_STEP = 4
"""Largest mean step between moments; whole numbers that are sparser are rather amounts."""

FEWEST_COPIES = 0.01
"""Share of the rows that must be copies before copies are held out together."""

NEAR = 1e-4
"""Copies differ by at most this part of a column's spread, as rounding does. Of copies that stand
apart from other rows, ten times this part finds the same."""

DIFFERENT_TARGETS = 0.1
"""Rows with equal inputs are no copies if their targets differ this often."""

FEWEST_LEVELS, FEWEST_CODES = 8, 15
"""Distinct values of a column of clusters: of irregular numbers, and of rounded numbers."""

NEW_NAMES = 0.05
"""Share of rows with a name of their own, which estimates the share of new names in new rows."""

ID_NAMES = re.compile(
    r"(^|[_\s.])(id|ids|key|patient|subject|participant|user|customer|client|household|person|"
    r"cluster|group|batch|session|account|device)$|[a-z]ID$"
)
"""Names of columns whose values say what a row belongs to, and do not describe it."""

Kind: TypeAlias = Literal["copies", "order", "column"]


@dataclass(frozen=True)
class Dependence:
    """How rows of the labelled sample depend on each other.

    Parameters
    ----------
    kind : {"copies", "order", "column"}
        Copies of rows, neighbouring rows, or rows with the same value of a column.
    correlation : float
        Correlation of neighbours, or of rows with the same value. Of copies, their share.
    reach : int
        Number of rows after which neighbours are no longer alike. 0 if they are not alike, and for
        the other kinds.
    column : str, optional
        The column.

    Examples
    --------
    >>> print(Dependence("order", 0.82, 40))
    Neighbouring rows are alike (correlation 0.82 at lag 1, gone after about 40 rows), so whole \
blocks of rows were held out.
    """

    kind: Kind
    correlation: float
    reach: int = 0
    column: str | None = None

    def __str__(self) -> str:
        if self.kind == "copies":
            return (
                f"{self.correlation:.0%} of the rows are copies of other rows, so copies were held "
                "out together."
            )
        if self.kind == "column":
            return (
                f"Rows with the same value of {self.column} are alike (correlation "
                f"{self.correlation:.2f}), so they were held out together."
            )
        if self.reach == 0:
            return "Blocks of consecutive rows were held out, as you chose."
        return (
            f"Neighbouring rows are alike (correlation {self.correlation:.2f} at lag 1, gone after "
            f"about {self.reach} rows), so whole blocks of rows were held out."
        )


@dataclass(frozen=True)
class Blocks:
    """Rows that are held out together, and whose losses count as one.

    Parameters
    ----------
    dependence : the reason
    numbers : (n,) number of each row's block
    places : (n,) place of each row in time, if blocks follow each other; else None
    gap : number of places next to held-out rows on which nothing is trained
    """

    dependence: Dependence
    numbers: Rows
    places: Rows | None = None
    gap: int = 0

    def folds(self, n_folds: int, y: AnyArray, random_state: RandomState) -> list[Fold]:
        """Split whole blocks into folds. Blocks that follow each other stay next to each other."""
        if self.places is None:
            n_folds = min(n_folds, len(np.unique(self.numbers)))
            return make_folds(n_folds, y, self.numbers, random_state=random_state)
        n_blocks = int(self.numbers.max()) + 1
        fold_of_row = self.numbers * min(n_folds, n_blocks) // n_blocks
        return [self._fold(fold_of_row == k) for k in np.unique(fold_of_row)]

    def _fold(self, tested: RowMask) -> Fold:
        """Hold out some rows, and do not train on those next to them."""
        assert self.places is not None
        near = np.zeros(len(tested) + 2 * self.gap + 1, dtype=np.intp)
        np.add.at(near, self.places[tested], 1)
        np.add.at(near, self.places[tested] + 2 * self.gap + 1, -1)
        is_near = np.cumsum(near)[self.places + self.gap] > 0
        return np.flatnonzero(~tested & ~is_near), np.flatnonzero(tested)


def find_blocks(
    table: Sized,
    inputs: AnyArray | None,
    P: Array,
    y: Array,
    loss: Loss,
    sample_weight: Array,
    *,
    classes: Array | None = None,
    names: Sequence[str] = (),
    always: bool = False,
) -> Blocks | None:
    """Look for dependent rows; None if rows may be independent.

    Parameters
    ----------
    table : the user's inputs, whose dates and names may tell which rows belong together
    inputs : (n, p) numbers, the inputs of the gate; None if they are no numbers
    P : (n, M, K) predictions
    y : (n, K) targets
    loss : the loss
    sample_weight : (n,)
    classes : (n, K) indicators of the classes; None for regression
    names : names of the p inputs; by default their places
    always : whether blocks of consecutive rows are held out in any case

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> rng = np.random.default_rng(0)
    >>> walk, x = np.cumsum(rng.normal(size=300)), rng.normal(size=(300, 2))
    >>> sample = x, np.zeros((300, 1, 1)), walk[:, None], squared_error(), np.ones(300)
    >>> blocks = find_blocks(x, *sample)
    >>> blocks.dependence.kind, len(np.unique(blocks.numbers))
    ('order', 10)
    """
    copies = find_copies(inputs, P, y)
    moments, is_time = _moments(table, inputs)
    places = np.arange(len(y))
    if moments is not None and (is_time or not always):
        places[np.argsort(moments, kind="stable")] = np.arange(len(y))
    rows = _looked_at(np.argsort(places), sample_weight, copies)
    scores = np.empty((0, 0))
    if len(rows) >= FEWEST_ROWS:
        scores = normal_scores(error_signals(P[rows], y[rows], loss))
    serial = None
    if scores.size:
        targets = y if classes is None else classes
        sorted_by = [] if is_time else _sorting_columns(inputs, targets, rows)
        serial = serial_correlation(scores) if always else unexplained_serial(scores, sorted_by)
    if serial is not None or always:
        return _consecutive(serial or Serial(0.0, 0), places, copies)
    if copies is not None:
        share = 1.0 - len(np.unique(copies)) / len(copies)
        return Blocks(Dependence("copies", share), copies)
    if scores.size:
        columns = [*name_columns(table), *number_columns(inputs, names)]
        return _clusters(columns, scores, rows)
    return None


def _consecutive(serial: Serial, places: Rows, copies: Rows | None) -> Blocks:
    """Blocks of consecutive rows, twice as long as neighbours are alike.

    A copy belongs to the block of the first row that is equal.
    """
    n = len(places)
    length = np.clip(2 * serial.reach, n / MOST_BLOCKS, max(n / FEWEST_BLOCKS, 1))
    numbers = places * max(int(n / length), 2) // n
    if copies is not None:
        first = np.full(copies.max() + 1, n)
        np.minimum.at(first, copies, numbers)
        numbers = first[copies]
    dependence = Dependence("order", serial.correlation, serial.reach)
    gap = min(max(serial.reach, 1), n // (4 * DEFAULT_FOLDS))
    return Blocks(dependence, numbers, places, gap)


def _clusters(columns: Sequence[Grouping], scores: Float64, rows: Rows) -> Blocks | None:
    """Blocks by the column whose values tell most about the errors, if that is not chance."""
    found: list[tuple[float, float, Grouping]] = []
    for column in columns:
        correlation, p = intraclass(scores, column.numbers[rows], column.n_waves)
        if p < SIZE / len(columns):
            found.append((p, correlation, column))
    if not found:
        return None
    _, correlation, column = min(found, key=lambda item: item[0])
    return Blocks(Dependence("column", correlation, column=column.name), column.numbers)


# What is looked at.


def _moments(table: Sized, inputs: AnyArray | None) -> tuple[Array | None, bool]:
    """The column (n,) that orders rows in time, and whether it is surely one of times.

    Dates and whole numbers without gaps are. Other evenly spaced numbers may be hours or days, or
    a grid of any input. Without such a column, rows are taken as they are.
    """
    dates = first_dates(table)
    if dates is not None:
        return dates, True
    if inputs is None or len(inputs) > MOST_ROWS:
        return None, False
    clock = next((column for column in inputs.T if is_clock(column)), None)
    if clock is not None:
        return clock, True
    return next((column for column in inputs.T if _is_even(column)), None), False


def _is_even(column: AnyArray) -> bool:
    """Whether numbers are all different, and multiples of one step with few gaps."""
    values = np.sort(np.asarray(column, dtype=np.float64))
    steps = np.diff(values)
    if not (steps > 0).all() or np.ptp(values) > MEAN_STEP * len(values) * steps.min():
        return False
    return _are_rounded(values)


def _looked_at(order: Rows, sample_weight: Array, copies: Rows | None) -> Rows:
    """Rows to look at, in time: those with weight, each copy once, in stretches if many."""
    if copies is not None:
        is_first = np.zeros(len(order), dtype=bool)
        is_first[np.unique(copies, return_index=True)[1]] = True
        order = order[is_first[order]]
    order = order[sample_weight[order] > 0]
    if len(order) <= MOST_ROWS:
        return order
    length = MOST_ROWS // STRETCHES
    starts = np.linspace(0, len(order) - length, STRETCHES).astype(np.intp)
    return np.concatenate([order[start : start + length] for start in starts])


def error_signals(P: Array, y: Array, loss: Loss) -> Float64:
    """Errors of the candidates' average, and differences between their losses: (n, S).

    P : (n, M, K), y : (n, K).
    """
    losses = np.stack([row_losses(loss, y, P[:, m]) for m in range(P.shape[1])], axis=1)
    differences = losses - losses.mean(axis=1, keepdims=True)
    if losses.shape[1] == 2:  # the second difference is minus the first
        differences = differences[:, :1]
    largest = np.argsort(-np.abs(differences).mean(axis=0), kind="stable")[:MOST_SIGNALS]
    errors = (y - P.mean(axis=1))[:, :MOST_SIGNALS]
    signals = np.hstack([errors, differences[:, largest]])
    return np.asarray(signals[:, np.ptp(signals, axis=0) > 0], dtype=np.float64)


def normal_scores(values: Array) -> Float64:
    """Replace numbers by the normal quantiles of their ranks, column by column: (n, S) -> (n, S).

    Outliers and skewness then do not matter to a correlation.

    >>> normal_scores(np.array([[3.0], [1e9], [1.0]])).round(2)[:, 0].tolist()
    [0.0, 0.97, -0.97]
    """
    return np.asarray(ndtri((rankdata(values, axis=0) - 0.5) / len(values)))


# Neighbouring rows.


@dataclass(frozen=True)
class Serial:
    """Correlation of a row with the next one, and the number of rows after which it is gone."""

    correlation: float
    reach: int


def serial_correlation(scores: Float64, size: float = SIZE) -> Serial | None:
    """Test whether neighbouring rows are alike; None if they could be independent.

    The statistic is the sum of the first K autocorrelations, for K = 1, 4, 16, ... up to an eighth
    of the rows, in units of ``sqrt(K / n)``. With independent rows its skewness is about
    ``2.5 sqrt(K / n)`` for K > 1. The smallest p-value over all K and all columns is compared with
    Bonferroni's bound, so that independent rows are called dependent at most with probability
    `size`.

    scores : (n, S) with rows in order.

    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=(400, 1)), axis=0)
    >>> serial_correlation(normal_scores(walk)).correlation > 0.9
    True
    >>> serial_correlation(np.random.default_rng(0).normal(size=(400, 1))) is None
    True
    """
    n = len(scores)
    spans = np.array([4**k for k in range(16) if 4**k <= n / 8])
    correlations = autocorrelations(scores, max(n // 4, 1))
    sums = np.cumsum(correlations, axis=0)[spans - 1] + spans[:, np.newaxis] / n
    unit = np.sqrt(spans / n)[:, np.newaxis]
    skewness = np.where(spans[:, np.newaxis] > 1, 2.5 * unit, 0.0)
    p = pearson3.sf(sums / unit, skewness)
    dependent = p.min(axis=0) < size / p.size
    if not dependent.any():
        return None
    reach = max(_reach(column, n) for column in correlations.T[dependent])
    return Serial(float(correlations[0, dependent].max()), reach)


def autocorrelations(scores: Float64, most: int) -> Float64:
    """Correlations of each column with itself, 1 to `most` rows later: (n, S) -> (most, S).

    >>> autocorrelations(np.array([[1.0], [-1.0], [1.0], [-1.0]]), 2)[:, 0].round(9).tolist()
    [-0.75, 0.5]
    """
    length = 1 << (len(scores) + most).bit_length()  # zeros keep the end apart from the beginning
    correlations = np.empty((most, scores.shape[1]))
    for column, result in zip(scores.T, correlations.T, strict=True):
        spectrum = np.abs(np.fft.rfft(column - column.mean(), length)) ** 2
        products = np.fft.irfft(spectrum, length)
        result[:] = products[1 : most + 1] / products[0]
    return correlations


def _reach(correlations: Float64, n: int) -> int:
    """Lag after which correlations are no more than chance, in windows of doubling length.

    The noise of a correlation at a long lag grows with those at short lags (Bartlett), and noise at
    neighbouring lags is as correlated as the rows.
    """
    start = 0
    while start < len(correlations):
        stop = min(2 * start + 1, len(correlations))
        window, before = correlations[start:stop], correlations[:start]
        variance = (1.0 + 2.0 * (before**2).sum()) / n
        n_independent = max(len(window) / max(1.0 + 2.0 * before.sum(), 1.0), 1.0)
        if window.mean() <= np.sqrt(variance / n_independent):
            break
        start = stop
    return max(start, 1)


def unexplained_serial(scores: Float64, sorted_by: Sequence[Array]) -> Serial | None:
    """Correlation of neighbours that is not explained by a column by which rows are sorted.

    Neighbours in a sorted table have similar inputs, and so similar errors. Such rows may still be
    independent: a smooth function of the column is removed, and only correlation in the remainder
    counts. Errors without any noise are such a function.

    scores : (n, S); sorted_by : columns (n,) by which the rows are sorted, other than times.
    """
    serial = serial_correlation(scores)
    if serial is None or not sorted_by:
        return serial
    noisy = has_noise(scores)
    if not noisy.any():
        return None
    remainder = without(_smooth_functions(sorted_by), scores[:, noisy])
    return serial_correlation(remainder)


def has_noise(scores: Float64) -> RowMask:
    """Whether each column is rougher than a smooth function with jumps: (n, S) -> (S,).

    From row to row the steps of a smooth function hardly change. Those of a random walk are
    independent, so that their squared changes are about twice as large as the steps.

    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=200))
    >>> has_noise(np.stack([walk, np.sign(walk) + np.arange(200) / 9], axis=1)).tolist()
    [True, False]
    """
    steps = np.diff(scores, axis=0)
    changes = np.diff(steps, axis=0)
    return np.asarray(np.median(changes**2, axis=0) > 0.5 * np.median(steps**2, axis=0))


def _smooth_functions(columns: Sequence[Array]) -> Float64:
    """Cosines of the place, and powers and few distinct values of each column: (n, b)."""
    n = len(columns[0])
    functions = [waves((np.arange(n) + 0.5) / n, WAVES)]
    for column in columns:
        levels, numbers = np.unique(column, return_inverse=True)
        if len(levels) < FEWEST_LEVELS:
            functions.append(np.eye(len(levels))[numbers])
        score = normal_scores(column[:, np.newaxis])
        functions += [score, score**2, score**3]
    return np.hstack(functions)


def waves(phases: Array, n_waves: int) -> Float64:
    """Cubic polynomials and cosines of phases from 0 to 1: (n,) -> (n, n_waves + 1).

    Cosines alone would need many terms for a straight line.
    """
    cosines = np.cos(np.pi * np.outer(phases, np.arange(1, n_waves - 2)))
    return np.hstack([phases[:, np.newaxis] ** np.arange(min(n_waves, 3) + 1), cosines])


def without(functions: Float64, scores: Float64) -> Float64:
    """Remove the part of scores (n, S) that is a sum of functions (n, b)."""
    coefficients = np.linalg.lstsq(functions, scores, rcond=None)[0]
    return np.asarray(scores - functions @ coefficients)


def _sorting_columns(inputs: AnyArray | None, targets: Array, rows: Rows) -> list[Array]:
    """Inputs and targets by which rows are sorted: (rows,) each."""
    columns = [target[rows] for target in targets.T if is_sorted(target[rows])]
    if inputs is not None:  # a large table is read column by column
        columns += [values[rows] for values in inputs.T if is_sorted(values[rows])]
    return columns


def is_sorted(column: Array) -> bool:
    """Whether rows are sorted by a column, in either direction, as far as nine steps of ten.

    >>> is_sorted(np.array([1.0, 1.0, 2.0, 5.0])), is_sorted(np.array([1.0, 3.0, 2.0, 5.0]))
    (True, False)
    """
    steps = np.diff(column)
    rises, falls = np.count_nonzero(steps > 0), np.count_nonzero(steps < 0)
    return bool(rises + falls > 0 and max(rises, falls) >= ONE_WAY * (rises + falls))


def is_clock(column: AnyArray) -> bool:
    """Whether a column numbers moments: whole numbers, all different, with few gaps.

    >>> is_clock(np.array([9.0, 7.0, 8.0])), is_clock(np.array([0.0, 0.5, 1.0]))
    (True, False)
    """
    values = np.sort(np.asarray(column, dtype=np.float64))
    is_dense = values[-1] - values[0] <= MEAN_STEP * len(values)
    return bool(is_dense and (np.diff(values) > 0).all() and (values == np.rint(values)).all())


def first_dates(table: Sized) -> Float64 | None:
    """The first column of dates or times of a frame, as numbers (n,); missing ones come first."""
    frame = to_narwhals(table)
    if not isinstance(frame, nw.DataFrame):
        return None
    for series in frame.iter_columns():
        if series.dtype in (nw.Date, nw.Datetime):
            moments = series.to_numpy().astype("datetime64[us]")
            return np.asarray(moments.astype(np.int64), dtype=np.float64)
    return None


# Copies of rows.


def find_copies(X: AnyArray | None, P: Array, y: Array) -> Rows | None:
    """Number rows so that copies have one number; None if there are hardly any.

    Copies agree in inputs, predictions and target, up to rounding in samples of at most 50,000
    rows. With discrete inputs, rows may be equal by chance. Then rows with equal inputs and
    predictions often differ in their targets.

    X : (n, p) or None, P : (n, M, K), y : (n, K) -> (n,).

    >>> x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 0.0])
    >>> find_copies(x[:, None], x[:, None, None], x[:, None]).tolist()
    [0, 1, 2, 3, 4, 0]
    """
    inputs = [P] if X is None else [P, X]
    copies = _near_copies(inputs, y) if len(y) <= MOST_ROWS else None
    return _exact_copies(inputs, y) if copies is None else copies


def _near_copies(inputs: Sequence[AnyArray], y: Array) -> Rows | None:
    """Find rows that agree up to rounding, and stand apart from other rows.

    inputs : predictions, and inputs if there are any; they need not be read if predictions differ.
    """
    if not _has_many_copies([near_numbers([inputs[0], y], NEAR)]):
        return None
    numbers, wider = (near_numbers([*inputs, y], reach) for reach in (NEAR, 10 * NEAR))
    stand_apart = _pairs(wider) <= (1.0 + DIFFERENT_TARGETS) * _pairs(numbers)
    if not (stand_apart and _has_many_copies([numbers])):
        return None
    alike = near_numbers(inputs, NEAR)
    return None if _differ_in_targets(numbers, alike) else row_numbers([numbers])


def _exact_copies(inputs: Sequence[AnyArray], y: Array) -> Rows | None:
    """Find rows that agree in all digits."""
    if not (_has_many_copies([inputs[0], y]) and _has_many_copies([*inputs, y])):
        return None
    numbers = row_numbers([*inputs, y])
    return None if _differ_in_targets(numbers, row_numbers(inputs)) else numbers


def near_numbers(arrays: Sequence[AnyArray], reach: float) -> Rows:
    """Number rows so that those within reach in all columns have one number: (n, ...) -> (n,).

    The unit is the spread of a column. Rows are compared with their neighbours on a line in an
    arbitrary direction, column by column.

    >>> near_numbers([np.array([[1.0, 2.0], [2.0, 5.0], [1.001, 2.0], [3.0, 9.0]])], 0.01).tolist()
    [1, 2, 1, 0]
    """
    columns = [column for array in arrays for column in array.reshape(len(array), -1).T]
    directions = np.random.default_rng(0).normal(size=len(columns))
    line, steps = np.zeros(len(arrays[0])), np.zeros(len(arrays[0]) - 1)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite numbers are near to none
        for direction, column in zip(directions, columns, strict=True):
            line += direction * _in_spreads(column)
        order = np.argsort(line, kind="stable")
        for column in columns:
            steps = np.maximum(steps, np.abs(np.diff(_in_spreads(column)[order])))
    numbers = np.empty(len(order), dtype=np.intp)
    numbers[order] = np.cumsum(np.append(0, ~(steps <= reach)))
    return numbers


def _in_spreads(column: AnyArray) -> Float64:
    """Deviations (n,) from the median, over the size that three of four do not exceed."""
    values = np.asarray(column, dtype=np.float64)
    values = values - np.median(values)
    sizes = np.abs(values)
    spread = float(np.quantile(sizes, 0.75)) or float(sizes.max()) or 1.0
    return np.asarray(values / spread)


def _differ_in_targets(numbers: Rows, alike: Rows) -> bool:
    """Whether rows with equal inputs and predictions often have different targets."""
    return _pairs(numbers) < (1.0 - DIFFERENT_TARGETS) * _pairs(alike)


def _has_many_copies(arrays: Sequence[AnyArray]) -> bool:
    """Whether enough rows are copies, and enough rows are different."""
    keys = np.sort(row_keys(arrays))  # np.unique is many times slower for a million keys
    n, n_distinct = len(keys), 1 + int(np.count_nonzero(np.diff(keys)))
    return n - n_distinct >= FEWEST_COPIES * n and n_distinct >= DEFAULT_FOLDS


def _pairs(numbers: Rows) -> float:
    """Number of pairs of different rows with the same number."""
    counts = np.bincount(numbers).astype(np.float64)
    return float((counts * (counts - 1.0)).sum())


def row_numbers(arrays: Sequence[AnyArray]) -> Rows:
    """Number the distinct rows of some arrays (n, ...), in order of appearance: (n,).

    >>> row_numbers([np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])]).tolist()
    [0, 1, 0]
    """
    _, first, numbers = np.unique(row_keys(arrays), return_index=True, return_inverse=True)
    ranks = np.empty(len(first), dtype=np.intp)
    ranks[np.argsort(first)] = np.arange(len(first))
    return ranks[numbers]


def row_keys(arrays: Sequence[AnyArray]) -> NDArray[np.uint64]:
    """Mix all numbers of each row into 64 bits, which differ if rows differ: (n,).

    The chance that they do not is one in ten million among a million rows.
    """
    keys: NDArray[np.uint64] = np.zeros(len(arrays[0]), dtype=np.uint64)
    for array in arrays:
        for column in array.reshape(len(array), -1).T:
            values = np.asarray(column, dtype=np.float64) + 0.0  # -0.0 becomes 0.0
            bits = np.ascontiguousarray(values).view(np.uint64)
            keys = _mixed(keys * np.uint64(0x9E3779B97F4A7C15) + _mixed(bits))
    return keys


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each number, by the last steps of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


# Clusters by a column.


@dataclass(frozen=True)
class Grouping:
    """A column whose values may name clusters.

    name : the column; numbers : (n,) number of each row's value, in sorted order
    n_waves : cosines of the value that are removed before its effect counts
    """

    name: str
    numbers: Rows
    n_waves: int = 0


def name_columns(table: Sized) -> list[Grouping]:
    """Columns of names that new rows will not repeat, as ids do.

    Either the column is called so, or many of its values occur only once. Other names, such as
    districts, describe a row: new rows will have them too.
    """
    frame = to_narwhals(table)
    if not isinstance(frame, nw.DataFrame):
        return []
    columns = []
    for series in frame.iter_columns():
        name, dtype = str(series.name), series.dtype
        is_id = ID_NAMES.search(name) is not None
        if dtype in (nw.Date, nw.Datetime, nw.Boolean) or (dtype.is_numeric() and not is_id):
            continue
        values = np.array([str(value) for value in series.to_list()])
        _, numbers, counts = np.unique(values, return_inverse=True, return_counts=True)
        is_new = np.count_nonzero(counts == 1) > NEW_NAMES * len(values)
        if 2 <= len(counts) <= len(values) / 2 and (is_id or is_new):
            columns.append(Grouping(repr(name), numbers.astype(np.intp)))
    return columns


def number_columns(inputs: AnyArray | None, names: Sequence[str] = ()) -> list[Grouping]:
    """Columns of numbers whose values may name clusters.

    The value of such a column determines another input, which was measured once for all rows of a
    cluster, such as the weather of a day. A column that determines nothing describes its row, such
    as the size of a disk: new rows will have the same values. Whole or rounded numbers count only
    if there are many, and then only the part of their effect that is no smooth function of them,
    which a gate could hardly learn. Samples of more than 50,000 rows are not looked at.
    """
    if inputs is None or len(inputs) > MOST_ROWS:
        return []
    columns = []
    n_levels = [len(np.unique(values)) for values in inputs.T]
    for j, values in enumerate(inputs.T):
        levels, numbers = np.unique(values.astype(np.float64), return_inverse=True)
        D, are_rounded = len(levels), _are_rounded(levels)
        if not (FEWEST_CODES if are_rounded else FEWEST_LEVELS) <= D <= len(values) / 2:
            continue
        varied = [k for k in range(len(n_levels)) if k != j and n_levels[k] >= D / 2]
        if _determine(numbers, inputs[:, varied]):
            n_waves = D // 2 if are_rounded else D // 4
            name = repr(names[j]) if names else f"input {j}"
            columns.append(Grouping(name, numbers.astype(np.intp), n_waves))
    return columns


def _determine(numbers: Rows, others: AnyArray) -> bool:
    """Whether the rows (n,) with the same number have equal values in a column of others (n, q)."""
    order = np.argsort(numbers, kind="stable")
    same = np.diff(numbers[order]) == 0
    changes = others[order[1:]] != others[order[:-1]]
    return bool((~changes[same].any(axis=0)).any())


def _are_rounded(levels: Float64) -> bool:
    """Whether sorted numbers are multiples of one step, up to a constant."""
    steps = np.diff(levels)
    multiples = steps / steps.min(initial=np.inf)
    return bool(np.allclose(multiples, np.rint(multiples), rtol=0.0, atol=1e-3))


def smooth_effect(values: Float64, numbers: Rows, n_waves: int) -> Float64:
    """Smooth function of a number that fits values best: (n, S), (n,) -> (n, S).

    Only the means of the levels matter, so that the work grows with their number, not that of rows.

    >>> smooth_effect(np.array([[1.0], [3.0], [4.0]]), np.array([0, 0, 1]), 1).round(9).tolist()
    [[2.0], [2.0], [4.0]]
    """
    roots = np.sqrt(np.bincount(numbers))[:, np.newaxis]
    sums = np.stack([np.bincount(numbers, weights=column) for column in values.T], axis=1)
    functions = waves((np.arange(len(roots)) + 0.5) / len(roots), n_waves)
    basis = np.linalg.qr(roots * functions)[0]
    return np.asarray((basis @ (basis.T @ (sums / roots)) / roots)[numbers])


def intraclass(scores: Float64, numbers: Rows, n_waves: int = 0) -> tuple[float, float]:
    """Largest correlation of rows with the same number, and its p-value by the F test.

    scores : (n, S), numbers : (n,); n_waves : cosines of the number that are removed first. The
    p-value is multiplied by S, since the smallest one is taken.

    >>> scores, groups = np.array([[1.0], [1.1], [3.0], [3.1]]), np.array([0, 0, 1, 1])
    >>> [round(value, 3) for value in intraclass(scores, groups)]
    [0.998, 0.001]
    """
    numbers = np.unique(numbers, return_inverse=True)[1]
    sizes, n = np.bincount(numbers), len(numbers)
    D = len(sizes)
    n_waves = min(n_waves, D // 2, MOST_WAVES)
    if D < 2 or n == D:
        return 0.0, 1.0
    remainder = scores - smooth_effect(scores, numbers, n_waves)
    if n_waves:  # the size of errors may depend on the number as smoothly as their mean
        typical = smooth_effect(np.abs(remainder), numbers, min(n_waves, SIZE_WAVES))
        remainder /= np.maximum(typical, 0.1 * np.abs(remainder).mean(axis=0))
        remainder -= smooth_effect(remainder, numbers, n_waves)
    sums = np.stack([np.bincount(numbers, weights=column) for column in remainder.T])
    explained = (sums**2 / sizes).sum(axis=1)
    between = explained / (D - 1 - n_waves)
    within = ((remainder**2).sum(axis=0) - explained).clip(np.finfo(np.float64).tiny) / (n - D)
    typical_size = (n - (sizes**2).sum() / n) / (D - 1)
    correlations = (between - within) / (between + (typical_size - 1.0) * within)
    p = f_distribution.sf(between / within, D - 1 - n_waves, n - D)
    best = int(np.argmin(p))
    return float(correlations[best]), min(float(p[best]) * len(p), 1.0)
