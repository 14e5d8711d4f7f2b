"""The tree kernel: bins, growth and evaluation of trees, without Python's lock.

Import this module only when it is used: the import compiles it, or loads it from Numba's cache. All
of it is in one file, because that cache checks only the date of the file of the function that it
stores. Every function runs on one thread, so that results do not depend on the number of threads,
and a process can be forked at any time.

A histogram has `channels` numbers per bin: S sums of gradients, S of curvatures, and the weight.
"""
# Numba compiles these functions; mypy sees only their Python shells.
# mypy: disable-error-code="no-untyped-call, call-arg, import-untyped, var-annotated"

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numba import njit, types

from localma._types import Bytes, Float64, Int32, Integers
from localma.compiled import entry

LEAF = -1
"""The feature of a node without children."""

ROUNDING = 1e-10
"""A gain, or a curvature, is zero if it is below this share of the sums it is a difference of."""

_COMMON: Mapping[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_INNER: Mapping[str, Any] = {"no_cpython_wrapper": True, **_COMMON}
_entry = partial(entry, **_COMMON)


def _read(kind: types.Type, ndim: int) -> types.Array:
    """Contiguous arrays that need not be writable: a model may lie in mapped memory."""
    return types.Array(kind, ndim, "C", readonly=True)


_F1, _F2 = _read(types.float64, 1), _read(types.float64, 2)
_I1, _R1, _CODES = _read(types.int32, 1), _read(types.intp, 1), _read(types.uint8, 2)
_B1 = _read(types.uint8, 1)

# -- Bins --------------------------------------------------------------------------------------


@_entry(types.void(_F2, _F1, _R1, types.uint8[:, ::1]))
def encode(X: Float64, edges: Float64, first: Integers, codes: Bytes) -> None:
    """Number of edges below each input, or one more than that of all edges if it is missing.

    X : (n, p); edges of input j are ``edges[first[j] : first[j + 1]]``; codes : (p, n), written.
    """
    for j in range(X.shape[1]):
        begin, end = first[j], first[j + 1]
        for i in range(X.shape[0]):
            x = X[i, j]
            if np.isnan(x):
                codes[j, i] = end - begin + 1
                continue
            low, high = begin, end
            while low < high:
                middle = (low + high) // 2
                if edges[middle] < x:
                    low = middle + 1
                else:
                    high = middle
            codes[j, i] = low - begin


# -- Growth ------------------------------------------------------------------------------------


@njit(**_INNER)
def _gather(
    rows: Int32, gradient: Float64, curvature: Float64, weight: Float64, ordered: Float64,
    total: Float64,
) -> None:  # fmt: skip
    """Write the weighted derivatives of some rows next to each other, and add them to their sum.

    ordered : (at least rows, channels); total : (channels,).
    """
    S = gradient.shape[1]
    for i in range(rows.size):
        row = rows[i]
        for s in range(S):
            ordered[i, s] = weight[row] * gradient[row, s]
            ordered[i, S + s] = weight[row] * curvature[row, s]
        ordered[i, 2 * S] = weight[row]
        for c in range(total.size):
            total[c] += ordered[i, c]


@njit(**_INNER)
def _fill(
    codes: Bytes, first: Integers, columns: Integers, rows: Int32, ordered: Float64,
    histogram: Float64,
) -> None:  # fmt: skip
    """Add up the derivatives of some rows by bins: (bins, channels)."""
    channels = ordered.shape[1]
    for column in columns:
        begin, end = first[column] + 2 * column, first[column + 1] + 2 * column + 2
        histogram[begin:end] = 0.0
        column_codes = codes[column]
        if channels == 3:  # one score: without an inner loop, twice as fast
            for i in range(rows.size):
                b = np.uintp(begin + column_codes[np.uintp(rows[i])])
                histogram[b, 0] += ordered[i, 0]
                histogram[b, 1] += ordered[i, 1]
                histogram[b, 2] += ordered[i, 2]
            continue
        for i in range(rows.size):
            b = np.uintp(begin + column_codes[np.uintp(rows[i])])
            for c in range(channels):
                histogram[b, c] += ordered[i, c]


@njit(**_INNER)
def _subtract(first: Integers, columns: Integers, histogram: Float64, smaller: Float64) -> None:
    """Turn the histogram of a parent into that of its larger child."""
    last = histogram.shape[1] - 1
    for column in columns:
        begin, end = first[column] + 2 * column, first[column + 1] + 2 * column + 2
        for b in range(begin, end):
            weight = histogram[b, last] - smaller[b, last]
            if weight <= ROUNDING * smaller[b, last]:
                histogram[b] = 0.0  # exactly, since the rows of the bin are all in the other child
                continue
            for c in range(last):
                histogram[b, c] -= smaller[b, c]
            histogram[b, last] = weight


@njit(**_INNER)
def _score(sums: Float64, total: Float64, l2: float) -> float:
    """``sum_s G_s^2 / (H_s + l2)``: twice the loss that the best values of a leaf save."""
    S, score = sums.size // 2, 0.0
    for s in range(S):
        curvature = sums[S + s] + l2
        if curvature > ROUNDING * (total[S + s] + l2):
            score += sums[s] * sums[s] / curvature
    return score


@njit(**_INNER)
def _scan(
    bins: Float64, left: Float64, right: Float64, total: Float64, least: float, l2: float,
    enough: float,
) -> tuple[float, int]:  # fmt: skip
    """Find the bin after which a split gains most, and more than `enough`; -1 if there is none.

    bins : (bins, channels) of one input; left : (channels,) sums that go left anyway.
    """
    weight, best, unsplit = total.size - 1, -1, _score(total, total, l2)
    for b in range(bins.shape[0]):
        if bins[b, weight] <= 0.0:
            continue  # the same split as before
        for c in range(total.size):
            left[c] += bins[b, c]
            right[c] = total[c] - left[c]
        if left[weight] < least:
            continue
        if right[weight] < least:
            break
        saved = _score(left, total, l2) + _score(right, total, l2)
        if saved - unsplit > max(enough, ROUNDING * saved):
            enough, best = saved - unsplit, b
    return enough, best


@njit(**_INNER)
def _best_split(
    histogram: Float64, first: Integers, columns: Integers, total: Float64, least: float,
    l2: float, split: Integers,
) -> float:  # fmt: skip
    """Find the split with the largest gain; split : (3,) column, bin, and whether missing go left.

    Rows of a bin up to that of the split go left. If all bins do, only missing values go right.
    """
    channels, gain = total.size, 0.0
    left, right = np.empty(channels), np.empty(channels)
    for column in columns:
        begin, missing = first[column] + 2 * column, first[column + 1] + 2 * column + 1
        has_missing = histogram[missing, channels - 1] > 0.0
        for missing_left in range(1 + has_missing):
            left[:], end = 0.0, missing - 1
            if missing_left:
                left[:] = histogram[missing]
            elif has_missing:
                end = missing
            gain, b = _scan(histogram[begin:end], left, right, total, least, l2, gain)
            if b >= 0:
                split[0], split[1], split[2] = column, b, missing_left
    return gain


@njit(**_INNER)
def _goes_left(code: int, bin_: int, missing: int, missing_left: bool) -> bool:
    if code == missing:
        return missing_left
    return code <= bin_


@njit(**_INNER)
def _partition(codes: Bytes, split: Integers, missing: int, rows: Int32, spare: Int32) -> int:
    """Move the rows that go left before the others, each in their order; returns their number."""
    column_codes = codes[split[0]]
    n_left, n_right = 0, 0
    for i in range(rows.size):
        row = rows[i]
        if _goes_left(column_codes[row], split[1], missing, split[2] > 0):
            rows[n_left] = row
            n_left += 1
        else:
            spare[n_right] = row
            n_right += 1
    rows[n_left:] = spare[:n_right]
    return n_left


@njit(**_INNER)
def _set_values(totals: Float64, l2: float, values: Float64) -> None:
    """``-G / (H + l2)`` for each node: (nodes, channels) -> (nodes, S)."""
    S = values.shape[1]
    for k in range(totals.shape[0]):
        for s in range(S):
            divisor = totals[k, S + s] + l2
            values[k, s] = 0.0
            if divisor > ROUNDING * (totals[0, S + s] + l2):
                values[k, s] = -totals[k, s] / divisor


@_entry(
    types.intp(
        _CODES, _R1, types.int32[::1], _R1, _F2, _F2, _F1, types.intp, types.intp, types.float64,
        types.float64, types.float64[:, :, ::1], types.int32[::1], types.uint8[::1],
        types.int32[:, ::1], types.uint8[::1], types.float64[:, ::1],
    )
)  # fmt: skip
def grow(
    codes: Bytes, first: Integers, rows: Int32, columns: Integers, gradient: Float64,
    curvature: Float64, weight: Float64, n_leaves: int, depth: int, least: float, l2: float,
    histograms: Float64, feature: Int32, bins: Bytes, children: Int32, missing_left: Bytes,
    values: Float64,
) -> int:  # fmt: skip
    """Grow one tree, always at the leaf with the largest gain; returns the number of its nodes.

    Parameters
    ----------
    codes : (p, n) bins of the inputs.
    first : (p + 1,) position of each input's first edge.
    rows : (m,) rows to grow on; they are reordered.
    columns : (q,) inputs to split by.
    gradient, curvature : (n, S) derivatives of the loss of each row by its scores.
    weight : (n,) weights of the rows.
    n_leaves, depth : most leaves, and most splits from the root to a leaf.
    least : smallest weight of a leaf.
    l2 : penalty of the values of a leaf.
    histograms : (n_leaves, bins, 2 S + 1) memory.
    feature, bins, missing_left : (nodes,) column of each split or `LEAF`, the last bin that goes
        left, and whether missing values do; written.
    children : (nodes, 2) the left and right child; written.
    values : (nodes, S) value of each node, ``-G / (H + l2)``; written.
    """
    nodes, channels = 2 * n_leaves - 1, histograms.shape[2]
    ordered, spare = np.empty((rows.size, channels)), np.empty(rows.size, np.int32)
    # Where the rows of each node begin and end, its depth, and the number of its histogram.
    spans, levels, slots = np.zeros((nodes, 2), np.intp), np.zeros(nodes), np.zeros(nodes, np.intp)
    gains, splits = np.zeros(nodes), np.zeros((nodes, 3), np.intp)
    totals = np.zeros((nodes, channels))
    spans[0, 1], feature[:], count = rows.size, LEAF, 1
    _gather(rows, gradient, curvature, weight, ordered, totals[0])
    if n_leaves > 1 and depth > 0:
        _fill(codes, first, columns, rows, ordered, histograms[0])
        gains[0] = _best_split(histograms[0], first, columns, totals[0], least, l2, splits[0])
    while count < nodes:
        node = np.argmax(gains[:count])
        if gains[node] <= 0.0:
            break
        gains[node], left, right, split = 0.0, count, count + 1, splits[node]
        begin, end, histogram = spans[node, 0], spans[node, 1], histograms[slots[node]]
        missing = first[split[0] + 1] - first[split[0]] + 1
        middle = begin + _partition(codes, split, missing, rows[begin:end], spare)
        spans[left, 0], spans[left, 1], spans[right, 0], spans[right, 1] = (
            begin,
            middle,
            middle,
            end,
        )
        smaller, larger = left, right
        if middle - begin > end - middle:
            smaller, larger = right, left
        fewer = rows[spans[smaller, 0] : spans[smaller, 1]]
        _gather(fewer, gradient, curvature, weight, ordered, totals[smaller])
        totals[larger] = totals[node] - totals[smaller]
        feature[node], bins[node], missing_left[node] = split[0], split[1], split[2]
        children[node] = left, right
        if histogram[first[split[0]] + 2 * split[0] + missing, channels - 1] <= 0.0:
            # None is missing here; if one is in a new row, it goes to the heavier child.
            missing_left[node] = totals[left, channels - 1] >= totals[right, channels - 1]
        levels[left] = levels[right] = levels[node] + 1
        slots[larger], slots[smaller] = slots[node], (count + 1) // 2
        count += 2
        if count == nodes or levels[left] == depth:
            continue
        fresh = histograms[slots[smaller]]
        _fill(codes, first, columns, fewer, ordered, fresh)
        _subtract(first, columns, histogram, fresh)
        for child in (left, right):
            gains[child] = _best_split(
                histograms[slots[child]], first, columns, totals[child], least, l2, splits[child]
            )
    _set_values(totals[:count], l2, values)
    return count


@_entry(
    types.void(
        _CODES, _R1, types.int32[::1], types.uint8[::1], types.int32[:, ::1], types.uint8[::1],
        types.float64[:, ::1], types.float64, types.float64[:, ::1],
    )
)  # fmt: skip
def add_tree(
    codes: Bytes, first: Integers, feature: Int32, bins: Bytes, children: Int32,
    missing_left: Bytes, values: Float64, rate: float, scores: Float64,
) -> None:  # fmt: skip
    """Add the values of one tree, times the learning rate, to the scores of all rows: (n, S)."""
    for i in range(scores.shape[0]):
        node = 0
        while feature[node] != LEAF:
            column = feature[node]
            missing = first[column + 1] - first[column] + 1
            goes_left = _goes_left(codes[column, i], bins[node], missing, missing_left[node] > 0)
            node = children[node, 1 - goes_left]
        for s in range(scores.shape[1]):
            scores[i, s] += rate * values[node, s]


# -- Evaluation --------------------------------------------------------------------------------


@njit(inline="always", **_INNER)
def _leaf(
    x: Float64, feature: Int32, threshold: Float64, children: Int32, missing_left: Bytes, start: int
) -> int:
    """The node at which a row (p,) ends in the tree that begins at a node."""
    node = start
    while feature[node] != LEAF:
        value = x[feature[node]]
        goes_left = value <= threshold[node]
        if np.isnan(value):
            goes_left = missing_left[node] > 0
        node = start + children[node, 1 - goes_left]
    return node


@_entry(
    types.void(
        _F2, _I1, _F1, _read(types.int32, 2), _B1, _F2, _R1, _R1, types.float64[:, :, ::1],
    )
)  # fmt: skip
def evaluate(
    X: Float64, feature: Int32, threshold: Float64, children: Int32, missing_left: Bytes,
    values: Float64, starts: Integers, stages: Integers, out: Float64,
) -> None:  # fmt: skip
    """Sum the trees for each row, and write the sums after several numbers of trees.

    Parameters
    ----------
    X : (n, p) inputs.
    feature, threshold, children, missing_left, values : the nodes of all trees; children are
        numbered within their tree.
    starts : (T + 1,) first node of each tree.
    stages : (R,) numbers of trees, not decreasing.
    out : (R, n, S) the sums.
    """
    S = values.shape[1]
    sums = np.empty(S)
    for i in range(X.shape[0]):
        sums[:] = 0.0
        done = 0
        for r in range(stages.size):
            for t in range(done, stages[r]):
                leaf = _leaf(X[i], feature, threshold, children, missing_left, starts[t])
                for s in range(S):
                    sums[s] += values[leaf, s]
            done = stages[r]
            for s in range(S):
                out[r, i, s] = sums[s]


@_entry(
    types.void(
        _F2, _I1, _F1, _read(types.int32, 2), _B1, _F2, _R1, _F1, types.float64,
        types.float64[:, ::1],
    )
)  # fmt: skip
def add_softmax(
    X: Float64, feature: Int32, threshold: Float64, children: Int32, missing_left: Bytes,
    values: Float64, starts: Integers, logits: Float64, share: float, out: Float64,
) -> None:  # fmt: skip
    """Add ``share * softmax(logits + sum of the trees)`` to each row of `out`: (n, S)."""
    scores = np.empty(logits.size)
    for i in range(X.shape[0]):
        scores[:] = logits
        for t in range(starts.size - 1):
            leaf = _leaf(X[i], feature, threshold, children, missing_left, starts[t])
            for s in range(scores.size):
                scores[s] += values[leaf, s]
        top, total = scores.max(), 0.0
        for s in range(scores.size):
            scores[s] = np.exp(scores[s] - top)
            total += scores[s]
        for s in range(scores.size):
            out[i, s] += share * scores[s] / total
