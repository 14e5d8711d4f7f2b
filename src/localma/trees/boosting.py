"""Boosted trees with several scores: bins, growth, sums of trees, saving."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self, TypeAlias

import numpy as np

from localma._types import AnyArray, Array, Bytes, Float64, Int32, Integers
from localma.compiled import compiled_module
from localma.errors import FileFormatError, InvalidInputError

MOST_EDGES = 253
"""Edges of an input: with a bin above the last one and one for missing values, 255 bins."""

QUANTILE_ROWS = 100_000
"""At most this many rows, evenly spaced, determine the edges of the bins."""

Derivatives: TypeAlias = Callable[[Float64], tuple[Array, Array]]
"""Gradient and curvature of each row's loss by its scores: (n, S) -> two arrays (n, S)."""


def kernel() -> ModuleType:
    """Import the compiled functions at the first call. Make that call before you start threads."""
    return compiled_module("localma.trees.kernel")


@dataclass(frozen=True)
class Bins:
    """Bins of each input, between edges that are quantiles of the sample.

    A row is in bin b of input j if b edges are below its value. Missing values have their own bin.

    Parameters
    ----------
    edges : (E,) array
        The edges of all inputs, ascending for each.
    first : (p + 1,) array of int
        Position of each input's first edge, and E.

    Examples
    --------
    >>> bins = Bins.of(np.array([[1.0], [2.0], [4.0], [np.nan]]))
    >>> bins.edges.tolist(), bins(np.array([[0.0], [3.0], [9.0], [np.nan]])).ravel().tolist()
    ([1.5, 3.0], [0, 1, 2, 3])
    """

    edges: Float64
    first: Integers

    @classmethod
    def of(cls, X: AnyArray, sample_weight: Array | None = None, most_bins: int = 64) -> Bins:
        """Choose the edges: between all values if they are few, else at weighted quantiles.

        Parameters
        ----------
        X : (n, p) array
            The inputs.
        sample_weight : (n,) array, optional
            Weights of the rows. Rows without weight are not used.
        most_bins : int
            Most bins of an input, besides that of missing values.

        Returns
        -------
        Bins
            The bins.
        """
        n = len(X)
        rows = slice(None, None, max(1, -(-n // QUANTILE_ROWS)))
        weight: Array = np.ones(len(range(n)[rows]))
        if sample_weight is not None:
            weight = np.asarray(sample_weight, dtype=np.float64)[rows]
        table = np.asarray(X[rows], dtype=np.float64)
        most_edges = min(most_bins - 1, MOST_EDGES)
        edges = [_edges(column, weight, most_edges) for column in table.T]
        first = np.cumsum([0, *map(len, edges)], dtype=np.intp)
        return cls(np.concatenate([np.empty(0), *edges]), first)

    def __call__(self, X: AnyArray) -> Bytes:
        """Return the bin of each input: (n, p), stored by columns."""
        codes = np.empty((len(self.first) - 1, len(X)), dtype=np.uint8)
        table = np.ascontiguousarray(X, dtype=np.float64)
        kernel().encode(table, self.edges, self.first, codes)
        return codes.T


def _edges(column: Float64, weight: Array, most: int) -> Float64:
    """Edges of one input: the middles of neighbouring values, or of some of them."""
    used = (weight > 0) & ~np.isnan(column)
    order = np.argsort(column[used], kind="stable")
    values, weights = column[used][order], weight[used][order]
    if not values.size:
        return np.empty(0)
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    below = np.cumsum(weights)[last]
    chosen = np.arange(len(last) - 1)  # an edge above each value but the largest
    if len(chosen) > most:
        quantiles = below[-1] * np.arange(1, most + 1) / (most + 1)
        # A margin, since the sums of weights differ from those of repeated rows by rounding.
        chosen = np.unique(np.searchsorted(below[:-1], quantiles * (1.0 - 1e-12)))
        chosen = chosen[chosen < len(last) - 1]
    low, high = values[last[chosen]], values[last[chosen + 1]]
    with np.errstate(invalid="ignore"):  # the middle of two infinities
        middle = low / 2.0 + high / 2.0
    return np.where((low <= middle) & (middle < high), middle, low)


@dataclass(frozen=True)
class Growth:
    """How trees grow.

    Parameters
    ----------
    n_leaves : int
        Most leaves of a tree.
    depth : int
        Most splits from the root to a leaf.
    least_weight : float
        Smallest weight of the rows of a leaf.
    l2 : float
        Penalty of the values of leaves: ``l2 / 2`` times the sum of their squares.
    learning_rate : float
        Factor of the values of each tree.
    row_share : float
        Share of the rows that each tree is grown on, drawn anew for each.
    column_share : float
        Share of the inputs that each tree may split by, drawn anew for each.

    Examples
    --------
    >>> Growth(n_leaves=4).depth
    6
    """

    n_leaves: int = 8
    depth: int = 6
    least_weight: float = 1.0
    l2: float = 1.0
    learning_rate: float = 0.1
    row_share: float = 1.0
    column_share: float = 1.0


@dataclass(frozen=True)
class Trees:
    """A sum of trees with S scores in each leaf.

    Parameters
    ----------
    n_inputs : int
        The number p of inputs.
    feature : (N,) array of int32
        For each node of all trees the input by which it splits, or -1 for a leaf.
    threshold : (N,) array
        Rows go left if their input is at most this value.
    children : (N, 2) array of int32
        Left and right child of each node, counted within its tree, and 0 for a leaf.
    missing_left : (N,) array of uint8
        Whether rows go left if their input is missing.
    values : (N, S) array
        Scores of each leaf, with the learning rate.
    starts : (T + 1,) array of int
        First node of each tree, and N.
    """

    n_inputs: int
    feature: Int32
    threshold: Float64
    children: Int32
    missing_left: Bytes
    values: Float64
    starts: Integers

    @property
    def n_rounds(self) -> int:
        """Number T of trees."""
        return len(self.starts) - 1

    @property
    def n_scores(self) -> int:
        """Number S of scores."""
        return self.values.shape[1]

    def predict(self, X: AnyArray, n_rounds: int | None = None) -> Float64:
        """Sum the values of the first trees, by default of all.

        Parameters
        ----------
        X : (n, p) array
            The inputs, NaN for a missing value.
        n_rounds : int, optional
            Number of trees, at most T.

        Returns
        -------
        (n, S) array
            The sums.
        """
        if n_rounds is None:
            n_rounds = self.n_rounds
        return self.staged(X, [n_rounds])[0]

    def staged(self, X: AnyArray, rounds: Sequence[int]) -> Float64:
        """Sum the values of the trees, for several numbers of trees at once.

        Parameters
        ----------
        X : (n, p) array
            The inputs, NaN for a missing value.
        rounds : sequence of int
            Numbers of trees, ascending, each at most T.

        Returns
        -------
        (R, n, S) array
            The sums.
        """
        stages = np.asarray(rounds, dtype=np.intp)
        ascending = (np.diff(stages, prepend=0, append=self.n_rounds) >= 0).all()
        if X.ndim != 2 or X.shape[1] != self.n_inputs or not ascending:
            raise InvalidInputError(
                f"These trees take {self.n_inputs} inputs and up to {self.n_rounds} rounds in "
                f"ascending order; received inputs of shape {X.shape} and rounds "
                f"{stages.tolist()}. Pass X of shape (n, {self.n_inputs})."
            )
        out = np.empty((len(stages), len(X), self.n_scores))
        kernel().evaluate(
            np.ascontiguousarray(X, dtype=np.float64), self.feature, self.threshold, self.children,
            self.missing_left, self.values, self.starts, stages, out,
        )  # fmt: skip
        return out

    def add_softmax(self, X: Float64, logits: Float64, share: float, out: Float64) -> None:
        """Add ``share * softmax(logits + sum of the trees)`` to weights, in one pass.

        Parameters
        ----------
        X : (n, p) array
            The inputs, contiguous and in double precision.
        logits : (S,) array
            Scores to which the trees add.
        share : float
            Share of these weights in the sum.
        out : (n, S) array
            The weights; changed in place.
        """
        fits = out.shape[1:] == logits.shape == (self.n_scores,)
        if X.shape != (len(out), self.n_inputs) or not fits:
            raise InvalidInputError(
                f"These trees take {self.n_inputs} inputs and give {self.n_scores} scores; "
                f"received inputs of shape {X.shape}, {len(logits)} logits and weights of shape "
                f"{out.shape}. Fit again, or load an intact file."
            )
        kernel().add_softmax(
            X, self.feature, self.threshold, self.children, self.missing_left, self.values,
            self.starts, logits, share, out,
        )  # fmt: skip

    def first(self, n_rounds: int) -> Trees:
        """Return the first trees alone."""
        end = self.starts[n_rounds]
        return Trees(
            self.n_inputs, self.feature[:end], self.threshold[:end], self.children[:end],
            self.missing_left[:end], self.values[:end], self.starts[: n_rounds + 1],
        )  # fmt: skip

    def arrays(self) -> dict[str, AnyArray]:
        """Return named arrays, all that `restore` needs.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        return {
            "n_inputs": np.array(self.n_inputs),
            "feature": self.feature,
            "threshold": self.threshold,
            "children": self.children,
            "missing_left": self.missing_left,
            "values": self.values,
            "starts": self.starts,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, AnyArray]) -> Trees:
        """Restore trees from named arrays, which may come from an untrusted file.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays`.

        Returns
        -------
        Trees
            The trees. Every walk through them ends at a leaf.
        """
        trees = cls._typed(arrays)
        sizes, n_nodes = np.diff(trees.starts), len(trees.feature)
        if trees.starts[0] != 0 or trees.starts[-1] != n_nodes or (sizes < 1).any():
            raise _damaged("starts", "the first node of each tree and the number of nodes")
        inner = trees.feature >= 0
        if (trees.feature < -1).any() or (trees.feature >= trees.n_inputs).any():
            raise _damaged("feature", f"numbers from -1 to {trees.n_inputs - 1}")
        own = np.arange(n_nodes) - np.repeat(trees.starts[:-1], sizes)
        children, size = trees.children[inner], np.repeat(sizes, sizes)[inner, np.newaxis]
        if (children <= own[inner, np.newaxis]).any() or (children >= size).any():
            raise _damaged("children", "nodes of the same tree after their parent")
        if np.isnan(trees.threshold).any() or not np.isfinite(trees.values).all():
            raise _damaged("values", "finite numbers, as thresholds must be numbers")
        if (trees.missing_left > 1).any():
            raise _damaged("missing_left", "zeros and ones")
        return trees

    @classmethod
    def _typed(cls, arrays: Mapping[str, AnyArray]) -> Self:
        """Convert arrays with the right names, shapes and types."""
        if set(arrays) != set(_AXES):
            raise FileFormatError(
                f"Trees are restored from the arrays {', '.join(_AXES)}; received "
                f"{', '.join(sorted(arrays))}. Pass the result of arrays()."
            )
        n_nodes = np.shape(arrays["feature"])[:1]
        lengths = {"N": n_nodes[0] if n_nodes else 0, "2": 2}
        typed: dict[str, Any] = {}
        for name, (axes, dtype) in _AXES.items():
            array = arrays[name]
            fits = array.ndim == len(axes) and array.dtype.kind == np.dtype(dtype).kind
            for axis, length in zip(axes, array.shape, strict=False):
                fits = fits and lengths.get(axis, length) == length
            if not fits:
                raise _damaged(name, f"numbers of type {np.dtype(dtype)} and axes {axes!r}")
            typed[name] = np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)
        if typed["starts"].size < 1 or typed["values"].shape[1] < 1:
            raise _damaged("starts", "one number, and 'values' one score, at least")
        return cls(int(typed.pop("n_inputs")), **typed)


_AXES = {
    "n_inputs": ("", np.intp),
    "feature": ("N", np.int32),
    "threshold": ("N", np.float64),
    "children": ("N2", np.int32),
    "missing_left": ("N", np.uint8),
    "values": ("NS", np.float64),
    "starts": ("T", np.intp),
}
"""For each array of saved trees its axes, by letter, and its type."""


def _damaged(name: str, content: str) -> FileFormatError:
    return FileFormatError(
        f"The array {name!r} of trees must hold {content}. Load an intact file, or fit again."
    )


def boost(
    X: AnyArray,
    scores: Array,
    derivatives: Derivatives,
    *,
    n_rounds: int,
    growth: Growth,
    sample_weight: Array | None = None,
    bins: Bins | None = None,
    seed: int = 0,
) -> Trees:
    """Add trees to scores, each along a Newton step of the loss.

    The leaves of a tree have the values ``-G / (H + l2)``, where G and H are the weighted sums of
    the gradients and curvatures of its rows, separately for each score.

    Parameters
    ----------
    X : (n, p) array
        The inputs, NaN for a missing value.
    scores : (n, S) or (S,) array
        The scores to start from; the trees add to them.
    derivatives : function
        Gradient and curvature of each row's loss by its scores, without weights.
    n_rounds : int
        Number of trees.
    growth : Growth
        How trees grow.
    sample_weight : (n,) array, optional
        Weights of the rows.
    bins : Bins, optional
        Bins of the inputs. By default those of `X`.
    seed : int
        Seed of the shares of rows and inputs.

    Returns
    -------
    Trees
        The trees, without the scores to start from.

    Examples
    --------
    A step, by squared errors:

    >>> X, y = np.arange(6.0)[:, np.newaxis], np.array([0.0, 0, 0, 1, 1, 1])[:, np.newaxis]
    >>> growth = Growth(n_leaves=2, l2=0.0, learning_rate=1.0)
    >>> errors = lambda scores: (scores - y, np.ones_like(y))
    >>> trees = boost(X, np.zeros(1), errors, n_rounds=1, growth=growth)
    >>> trees.threshold[0].item(), trees.predict(np.array([[1.0], [9.0]])).ravel().tolist()
    (2.5, [0.0, 1.0])
    """
    n, p = X.shape
    weight: Float64 = np.ones(n)
    if sample_weight is not None:
        weight = np.ascontiguousarray(sample_weight, dtype=np.float64)
    if bins is None:
        bins = Bins.of(X, weight)
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(weight > 0).astype(np.int32)
    forest = _Forest(bins, bins(X).T, growth, np.shape(scores)[-1])
    current = np.array(np.broadcast_to(scores, (n, forest.n_scores)), dtype=np.float64, order="C")
    columns = np.arange(p, dtype=np.intp)
    for _ in range(n_rounds):
        gradient, curvature = derivatives(current)
        forest.add(
            _drawn(rows, growth.row_share, random), _drawn(columns, growth.column_share, random),
            np.ascontiguousarray(gradient, dtype=np.float64),
            np.ascontiguousarray(curvature, dtype=np.float64), weight, current,
        )  # fmt: skip
    return forest.trees()


def _drawn(numbers: AnyArray, share: float, random: np.random.Generator) -> AnyArray:
    """A copy of a share of some numbers, at least one, in their order."""
    if share >= 1.0:
        return numbers.copy()
    count = max(1, round(share * len(numbers)))
    return np.sort(random.choice(numbers, count, replace=False, shuffle=False))


class _Forest:
    """Trees as they grow, and memory of the kernel.

    The nodes of the present tree are columns of splits, their last bins, children, whether missing
    values go left, and values.
    """

    def __init__(self, bins: Bins, codes: Bytes, growth: Growth, n_scores: int) -> None:
        self.bins, self.codes, self.growth, self.n_scores = bins, codes, growth, n_scores
        self.kernel = kernel()
        size, n_nodes = len(bins.edges) + 2 * len(codes), 2 * growth.n_leaves - 1
        self.histograms = np.empty((growth.n_leaves, size, 2 * n_scores + 1))
        self.tree = (
            np.empty(n_nodes, dtype=np.int32),
            np.zeros(n_nodes, dtype=np.uint8),
            np.zeros((n_nodes, 2), dtype=np.int32),
            np.zeros(n_nodes, dtype=np.uint8),
            np.empty((n_nodes, n_scores)),
        )
        self.grown: list[tuple[AnyArray, ...]] = []

    def add(
        self, rows: AnyArray, columns: AnyArray, gradient: Array, curvature: Array,
        weight: Float64, scores: Float64,
    ) -> None:  # fmt: skip
        """Grow one tree, and add its values to the scores of all rows."""
        growth, first = self.growth, self.bins.first
        count = self.kernel.grow(
            self.codes, first, rows, columns, gradient, curvature, weight, growth.n_leaves,
            growth.depth, growth.least_weight, growth.l2, self.histograms, *self.tree,
        )  # fmt: skip
        self.kernel.add_tree(self.codes, first, *self.tree, growth.learning_rate, scores)
        self.grown.append(tuple(array[:count].copy() for array in self.tree))

    def trees(self) -> Trees:
        """The trees so far."""
        starts = np.cumsum([0, *(len(feature) for feature, *_ in self.grown)], dtype=np.intp)
        nothing = [array[:0] for array in self.tree]
        joined = [np.concatenate(arrays) for arrays in zip(nothing, *self.grown, strict=True)]
        feature, last_bin, children, missing_left, values = joined
        inner, first = feature >= 0, self.bins.first
        children[~inner], missing_left[~inner] = 0, 0
        position = first[feature[inner]] + last_bin[inner]
        # Above the last edge of an input only missing values go right.
        position[position == first[feature[inner] + 1]] = len(self.bins.edges)
        threshold = np.zeros(len(feature))
        threshold[inner] = np.append(self.bins.edges, np.inf)[position]
        scaled = self.growth.learning_rate * values
        return Trees(len(self.codes), feature, threshold, children, missing_left, scaled, starts)
