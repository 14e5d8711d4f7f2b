"""Measurements of a labelled sample for the shift guard: tails, directions, landmarks and gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from localma._types import Array, Float64, Integers, RowMask, Rows
from localma.errors import InvalidInputError
from localma.folds import evenly_spaced
from localma.gates.labelled import Moments, Table, row_slices
from localma.tables.frames import LARGE_ROWS

WeightFunction: TypeAlias = Callable[[Array], Array]
"""Weights of a gate that do not fade: (n, p) -> (n, M)."""

MEASURED_ROWS = 1024
"""At most this many rows, evenly spaced, show directions, distances and gaps. See `widened`."""

LINEAR = 2.5
"""Deviations from the median up to which inputs count linearly; beyond, logarithmically.

The tail of a skewed or heavy-tailed input is as long as its logarithm's.
"""

TAIL_ROWS, MOST_TAIL_ROWS, TAIL_SHARE = 5, 30, 200
"""The outermost rows are the tail: one row in TAIL_SHARE, within these bounds."""

REACH = 7.0
"""Tails beyond the sample at which the support has fallen to 1/e."""

TIGHT_REACH, TIGHT = 2.0, 0.3
"""The same in directions in which dependence between inputs leaves less than this variance."""

LEAST_TAIL = 0.02
"""Shortest tail, in standard deviations."""

CONSTANT = 1e-5
"""A constant input may change by this part of its value."""

LEAST_USE, FULL_USE = 0.01, 0.05
"""Squared sensitivity to an input, relative to the largest: with FULL_USE it counts fully."""

SHARPNESS = 1.5
"""Exponent of the sensitivity in the metric; 1 is that of the change of the weights itself."""

MOST_DIRECTIONS, MOST_EXACT = 8, 32
"""Numbers of directions that the gate uses, and of directions without any variance."""

EXACT = 1e-9
"""Variance, relative to that of the inputs, below which inputs depend exactly on each other."""

EXACT_REACH = 0.05
"""Reach in such a direction, in standard deviations of the inputs."""

MOST_COPIES = 8
"""Rows with more copies than this, on average, are rather rows of codes."""

LANDMARKS, LEAST_ROWS = 256, 50
"""Rows from which distances are measured; none below LEAST_ROWS rows."""

SORTED_LANDMARKS = 32
"""Landmarks that are sorted, so that the search for a near one ends early."""

DISTANCE_TAIL, LEAST_DISTANCE_TAIL, MOST_DISTANCE_TAIL = 20, 8, 100
"""The largest distances from landmarks that are their tail: one row in 20, within bounds."""

RARE = 5e-5
"""Share of rows like those of the sample whose distance may exceed its reach."""

THINNING = 2.0
"""Factor of the rate at which distances grow away from the centre, since few rows measure it."""

INSIDE = 0.4
"""Largest excess, relative to the reach, at which the support is still .999."""

LEAST_REACH = 1 / 3
"""Part of the reach of a scaled distance that stays if other rows are farther away."""

FAR = 1.0
"""Reach of a plain distance beyond the largest of the sample, relative to that."""

GAP_SIDE, GAP_ROWS = 10, 20.0
"""A gap would hold GAP_ROWS rows, at the density of the GAP_SIDE rows on either side."""

MOST_GAPS = 256

FARTHEST = 1e3
"""Largest excess that counts: beyond, its power would overflow."""


@dataclass(frozen=True)
class Measured:
    """What the shift guard knows of a sample with p inputs.

    Inputs are squashed to t, and directions are ``z = directions (t - origin)``, with t clipped to
    the range of the sample.

    Parameters
    ----------
    centre, scale : (p,)
    low, high : (p,) range of the inputs
    low_reach, high_reach : (p,) reach beyond it, in t, over the use
    use : (p,) how much the gate uses an input, above 0 and at most 1
    origin, weight : (p,) mean of t, and use over its standard deviation
    directions : (d, p)
    least, most, least_reach, most_reach : (d,) range of z, and reach beyond it
    landmarks : (l, d) labelled rows, in z
    spacing : (7,) median and largest eccentricity; rate at which distances grow with it; top and
        reach of the distance over its expected growth, and of the distance itself
    gaps : (g, 3) ends and reach of each gap; gap_at : (g,) its coordinate in (t, z)
    """

    centre: Float64
    scale: Float64
    low: Float64
    high: Float64
    low_reach: Float64
    high_reach: Float64
    use: Float64
    origin: Float64
    weight: Float64
    directions: Float64
    least: Float64
    most: Float64
    least_reach: Float64
    most_reach: Float64
    landmarks: Float64
    spacing: Float64
    gaps: Float64
    gap_at: Integers

    def distances(self, t: Float64, z: Float64) -> Float64:
        """Excess of the distance from the nearest landmark, scaled and plain: (n, 2)."""
        if not len(self.landmarks):
            return np.zeros((len(z), 0))
        return (self.nearest(t, z) - self.spacing[[3, 5]]) / self.spacing[[4, 6]]

    def nearest(self, t: Float64, z: Float64) -> Float64:
        """Distance from the nearest landmark, over its expected growth, and plain: (n, 2)."""
        plain = np.sqrt(_squared_distances(z, self.landmarks).min(axis=1))
        scaled = plain / growth(eccentricity(t, self.origin, self.weight), self.spacing)
        return np.column_stack([scaled, plain])

    def depth_in_gaps(self, t: Float64, z: Float64) -> Float64:
        """Distance from the nearer end of each gap, over its reach; negative outside: (n, g)."""
        both = np.hstack([t, z])[:, self.gap_at]
        low, high, reach = self.gaps.T
        return np.minimum(both - low, high - both) / reach


def squash(x: Float64, centre: Float64, scale: Float64) -> Float64:
    """``v = (x - centre) / scale`` up to a size of 1, ``sign(v) (1 + log |v|)`` beyond.

    >>> squash(np.array([0.5, -1.0, 10.0]), np.zeros(3), np.ones(3)).round(2).tolist()
    [0.5, -1.0, 3.3]
    """
    with np.errstate(over="ignore"):
        v = (x - centre) / scale
    size = np.abs(v)
    return np.asarray(np.sign(v) * (np.minimum(size, 1.0) + np.log(np.maximum(size, 1.0))))


def stretch(t: Float64, centre: Float64, scale: Float64) -> Float64:
    """Invert `squash`.

    >>> there = squash(np.array([9.0]), np.ones(1), np.ones(1))
    >>> stretch(there, np.ones(1), np.ones(1)).round(9).tolist()
    [9.0]
    """
    size = np.abs(t)
    with np.errstate(over="ignore"):
        v = np.sign(t) * np.minimum(size, 1.0) * np.exp(np.maximum(size, 1.0) - 1.0)
        return np.asarray(centre + scale * v)


def eccentricity(t: Float64, origin: Float64, weight: Float64) -> Float64:
    """Largest distance of an input from its mean, in deviations, times its use: (n, p) -> (n,)."""
    return np.asarray((np.abs(t - origin) * weight).max(axis=1))


def growth(position: Array, spacing: Float64) -> Float64:
    """Expected distance from the nearest landmark, relative to that near the centre.

    Rows are sparse at the ends of inputs, so that distances are larger there.
    position : (n,) the eccentricity.
    """
    median, largest, rate = spacing[:3].tolist()
    return np.exp(rate * (np.clip(position, median, largest) - median))


def measure(X: Table, row_mask: RowMask, weights: WeightFunction | None = None) -> Measured:
    """Measure the masked rows of a sample (n, p); weights : the gate that will be guarded."""
    rows = np.flatnonzero(row_mask)
    x = _without_copies(np.asarray(X[evenly_spaced(rows, MEASURED_ROWS)], dtype=np.float64))
    n_tail = _tail_rows(len(rows))
    lowest, highest, deviation = outermost(X, row_mask, min(n_tail + 1, len(rows)))
    is_constant = lowest[0] == highest[0]
    centre, scale = _centre_and_scale(x, deviation, is_constant)
    t = squash(x, centre, scale)
    sd = np.where(is_constant, 1.0, t.std(axis=0))
    sd = np.where(sd > 0, sd, 1.0)
    outer = [-squash(lowest, centre, scale), squash(highest, centre, scale)]
    tails = _pooled(np.hstack([_tail(side) for side in outer]) / np.tile(sd, 2), n_tail)
    reach = np.where(np.tile(is_constant, 2), 1.0, REACH * tails * np.tile(sd, 2))
    origin = t.mean(axis=0)
    metric = _metric(t, sd, centre, scale, is_constant, weights)
    use = np.where(is_constant, 1.0, _use(np.diagonal(metric)))
    low_reach, high_reach = (reach / np.tile(use, 2)).reshape(2, -1)
    directions, is_exact = _directions((t - origin) / sd, metric, is_constant)
    directions = directions / sd
    z = (t - origin) @ directions.T
    least_reach, most_reach = _direction_reach(z, directions * sd, is_exact)
    weight = np.where(is_constant, 0.0, use / sd)
    landmarks, spacing = _landmarks(z, eccentricity(t, origin, weight))
    gap_at, gaps = _gaps(np.hstack([t, z]), np.r_[use, np.ones(z.shape[1])])
    return Measured(
        centre, scale, lowest[0], highest[0], low_reach, high_reach, use, origin, weight,
        directions, z.min(axis=0), z.max(axis=0), least_reach, most_reach, landmarks, spacing,
        gaps, gap_at,
    )  # fmt: skip


def widened(m: Measured, x: Float64) -> Measured:
    """Measurements with more labelled rows (k, p) inside: wider ends, and no gaps that have rows.

    The reach beyond the ends stays, but rows are no longer expected beyond that of distances.
    """
    low, high = (squash(end, m.centre, m.scale) for end in (m.low, m.high))
    t = np.clip(squash(x, m.centre, m.scale), low, high)
    z = (t - m.origin) @ m.directions.T
    is_gap = (m.depth_in_gaps(t, z) < INSIDE).all(axis=0)
    spacing = m.spacing.copy()
    if len(m.landmarks):
        farthest = eccentricity(t, m.origin, m.weight).max(initial=0.0)
        spacing[1] = max(spacing[1], farthest)
        edge = spacing[3] + spacing[4]  # beyond which few rows are expected
        tops = replace(m, spacing=spacing).nearest(t, z).max(axis=0, initial=0.0)
        spacing[[3, 5]] = np.maximum(spacing[[3, 5]], tops)
        spacing[4] = max(edge - spacing[3], LEAST_REACH * spacing[4])
    return replace(
        m,
        least=np.minimum(m.least, z.min(axis=0, initial=np.inf)),
        most=np.maximum(m.most, z.max(axis=0, initial=-np.inf)),
        spacing=spacing,
        gaps=m.gaps[is_gap],
        gap_at=m.gap_at[is_gap],
    )


def _without_copies(x: Float64) -> Float64:
    """Drop copies of rows, from which distances would be zero; equal rows of codes stay.

    >>> _without_copies(np.array([[0.1, 1.0], [0.1, 1.0], [0.4, 1.0]])).tolist()
    [[0.1, 1.0], [0.4, 1.0]]
    >>> len(_without_copies(np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])))
    4
    """
    _, first = np.unique(x, axis=0, return_index=True)
    n_values = max((len(np.unique(column)) for column in x.T), default=0)
    if n_values < len(first) or len(first) < len(x) / MOST_COPIES:
        return x
    return x[np.sort(first)]


def _centre_and_scale(
    x: Float64, deviation: Float64, is_constant: RowMask
) -> tuple[Float64, Float64]:
    """Median, and LINEAR robust deviations; most values of a column may be equal."""
    centre = np.median(x, axis=0)
    scale = np.zeros(x.shape[1])
    for share, width in ((0.25, 1.349), (0.1, 2.563), (0.02, 4.107)):
        low, high = np.quantile(x, [share, 1.0 - share], axis=0)
        scale = np.where(scale > 0, scale, (high - low) / width)
    scale = LINEAR * np.where(scale > 0, scale, deviation)
    smallest = CONSTANT * np.where(centre != 0, np.abs(centre), 1.0)
    scale = np.where(is_constant | ~(scale > 0) | ~np.isfinite(scale), smallest, scale)
    return centre, np.maximum(scale, 1e-290)


def _metric(
    t: Float64, sd: Float64, centre: Float64, scale: Float64, is_constant: RowMask,
    weights: WeightFunction | None,
) -> Float64:  # fmt: skip
    """Mean squared change of the weights with two inputs, per standard deviation: (p, p).

    The diagonal is the square of the sensitivity to each input. Its sum is one.
    """
    p = t.shape[1]
    identity = np.diag(np.where(is_constant, 0.0, 1.0))
    if weights is None or is_constant.all():
        return identity / max(np.trace(identity), 1.0)
    rows = evenly_spaced(np.arange(len(t)), int(np.clip(20_000 // p, 32, 256)))
    changes = []
    for k in range(p):
        step = np.zeros(p)
        step[k] = 0.5 * sd[k]
        up, down = (stretch(t[rows] + sign * step, centre, scale) for sign in (1.0, -1.0))
        try:
            changes.append((weights(up) - weights(down)).ravel())
        except InvalidInputError:  # a gate need not be finite beyond its sample
            return identity / np.trace(identity)
    slopes = np.where(is_constant[:, np.newaxis], 0.0, np.stack(changes))
    squares = slopes @ slopes.T
    total = np.trace(squares)
    if not np.isfinite(total) or total < 1e-12 * slopes.shape[1]:
        return identity / max(np.trace(identity), 1.0)
    return squares / total


def _use(squares: Array) -> Float64:
    """How much the gate uses each input, from squared sensitivities: (p,), above 0."""
    relative = squares / max(squares.max(initial=0.0), 1e-300)
    return np.clip(relative / FULL_USE, LEAST_USE, 1.0)


def _directions(u: Float64, metric: Float64, is_constant: RowMask) -> tuple[Float64, RowMask]:
    """Principal directions of what the gate uses, and directions without variance: (d, p).

    u : (n, p) standardised inputs. The inputs' own sensitivities are added to the metric, so that
    inputs that depend on each other are not replaced by the gate's one combination of them.
    """
    n, p = u.shape
    values, vectors = np.linalg.eigh(metric + np.diag(np.diagonal(metric)))
    root = vectors * np.maximum(values, 0.0) ** (SHARPNESS / 2.0)
    covariance = u.T @ u / n
    variances, rotation = np.linalg.eigh(root.T @ covariance @ root)
    largest = np.argsort(-variances)[: min(p, MOST_DIRECTIONS, max(1, n // 10))]
    used = (root @ rotation[:, largest]).T / np.sqrt(max(variances.max(), 1e-300))
    exact = np.empty((0, p))
    free = np.flatnonzero(~is_constant)
    if n >= 4 * len(free) and len(free) > 1:
        values, vectors = np.linalg.eigh(covariance[np.ix_(free, free)])
        null = vectors[:, values < EXACT]
        # Few distinct rows depend on each other without any reason.
        if null.shape[1] and len(np.unique(u, axis=0)) > 2 * (len(free) - null.shape[1]) + 10:
            exact = np.zeros((min(null.shape[1], MOST_EXACT), p))
            exact[:, free] = null.T[:MOST_EXACT]
    return np.vstack([used, exact]), np.repeat([False, True], [len(used), len(exact)])


def _direction_reach(z: Float64, directions: Float64, is_exact: RowMask) -> tuple[Float64, Float64]:
    """Reach beyond the range of each direction, low and high: (d,), (d,)."""
    n, sd = len(z), z.std(axis=0)
    n_tail = _tail_rows(n)
    sd = np.where(sd > 0, sd, 1.0)
    ordered = np.sort(z / sd, axis=0)
    sides = [-ordered[: n_tail + 1], ordered[::-1][: n_tail + 1]]
    tails = _pooled(np.hstack([_tail(side) for side in sides]), n_tail).reshape(2, -1)
    independent = (directions**2).sum(axis=1)
    is_tight = sd**2 < TIGHT * independent
    reach = np.where(is_tight, TIGHT_REACH, REACH) * tails * sd
    low, high = np.where(is_exact, EXACT_REACH, np.maximum(reach, 1e-9))
    return low, high


def _landmarks(z: Float64, position: Float64) -> tuple[Float64, Float64]:
    """Rows from which distances are measured, and the distances of the others from them."""
    n, d = z.shape
    if n < LEAST_ROWS:
        return np.empty((0, d)), np.ones(7)
    own = evenly_spaced(np.arange(n), LANDMARKS)
    squares = _squared_distances(z, z[own])
    squares[own, np.arange(len(own))] = np.inf  # a landmark is not its own neighbour
    distance = np.sqrt(squares.min(axis=1))
    median, smallest = float(np.median(position)), 1e-3 * np.median(distance) + 1e-9
    away, logs = np.maximum(position - median, 0.0), np.log(np.maximum(distance, smallest))
    away = away - away.mean()
    rate = THINNING * max(0.0, float(away @ logs) / max(float(away @ away), 1e-12))
    spacing = np.array([median, position.max(), min(rate, 100.0), 0.0, 1.0, 0.0, 1.0])
    top, reach = _rare(distance / growth(position, spacing))
    largest = float(distance.max())
    spacing[3:] = top, reach, largest, FAR * largest + 1e-6
    return z[own][_cover(squares <= min(top, largest) ** 2)], spacing


def _cover(is_near: RowMask) -> Rows:
    """Order landmarks, so that most rows meet one near them early: (n, l) -> (l,)."""
    first: list[int] = []
    counts = is_near.sum(axis=0)
    while len(first) < min(SORTED_LANDMARKS, len(counts)):
        best = int(counts.argmax())
        first.append(best)
        is_near = is_near[~is_near[:, best]]
        counts = is_near.sum(axis=0)
        counts[first] = -1
    return np.array(first + [k for k in range(len(counts)) if k not in first], dtype=np.intp)


def _rare(values: Float64) -> tuple[float, float]:
    """Largest value of a sample, and from there to one that a share RARE of rows exceeds."""
    n = len(values)
    count = min(max(LEAST_DISTANCE_TAIL, n // DISTANCE_TAIL), MOST_DISTANCE_TAIL, n - 1)
    ordered = np.sort(values)
    base, top = float(ordered[-count - 1]), float(ordered[-1])
    tail = max(float(ordered[-count:].mean()) - base, LEAST_TAIL * float(values.std()), 1e-6)
    return top, max(base + tail * np.log(count / (n * RARE)) - top, tail)


def _gaps(coordinates: Float64, use: Float64) -> tuple[Integers, Float64]:
    """Intervals without rows between densely filled ones: coordinates (g,), ends and reach (g, 3).

    A column of codes has a gap between any two of them.
    """
    at: list[int] = []
    gaps: list[tuple[float, float, float]] = []
    n, side = len(coordinates), GAP_SIDE
    if n < 2 * side:
        return np.empty(0, dtype=np.intp), np.empty((0, 3))
    ordered = np.sort(coordinates, axis=0)
    for k in range(coordinates.shape[1]):
        v = ordered[:, k]
        left, right = v[side - 1 : n - side], v[side : n - side + 1]
        widths = np.maximum(left - v[: n - 2 * side + 1], v[2 * side - 1 :] - right)
        is_gap = right - left > np.maximum(GAP_ROWS / side * widths, 1e-6)
        for j in np.flatnonzero(is_gap).tolist():
            half = (right[j] - left[j]) / 2.0
            reach = np.clip(widths[j], 1e-3 * half, 0.4 * half)
            at.append(k)
            gaps.append((left[j], right[j], reach / use[k]))
    widest = np.argsort([low - high for low, high, _ in gaps], kind="stable")[:MOST_GAPS]
    chosen = np.sort(widest).astype(np.intp)
    return np.array(at, dtype=np.intp)[chosen], np.array(gaps).reshape(-1, 3)[chosen]


def _squared_distances(z: Float64, landmarks: Float64) -> Float64:
    """Squared distances of rows from landmarks: (n, d), (l, d) -> (n, l)."""
    squares = z @ landmarks.T
    squares *= -2.0
    squares += np.einsum("nd,nd->n", z, z)[:, np.newaxis]
    squares += np.einsum("ld,ld->l", landmarks, landmarks)
    return np.asarray(np.maximum(squares, 0.0, out=squares))


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


def _tail_rows(n: int) -> int:
    return max(min(max(TAIL_ROWS, n // TAIL_SHARE), MOST_TAIL_ROWS, n // 10, n - 1), 1)


def _tail(outermost_first: Float64) -> Float64:
    """Mean of the outermost rows beyond the next: (k + 1, p) -> (p,)."""
    if len(outermost_first) == 1:
        return np.zeros(outermost_first.shape[1])
    return outermost_first[:-1].mean(axis=0) - outermost_first[-1]


def _pooled(tails: Array, n_tail: int) -> Float64:
    """Move tails (q,), in standard deviations, towards their geometric mean.

    The less they differ beyond their noise, the more; tails made of ties are left out.
    """
    is_thin = tails > LEAST_TAIL
    logs = np.log(np.maximum(tails, LEAST_TAIL))
    if is_thin.sum() < 2:
        return np.exp(logs)
    noise = 1.0 / n_tail
    between = max(0.0, float(logs[is_thin].var(ddof=1)) - noise)
    weight = noise / (noise + between)
    pooled = (1.0 - weight) * logs + weight * logs[is_thin].mean()
    return np.exp(np.where(is_thin, pooled, logs))
