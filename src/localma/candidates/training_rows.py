"""Signs that a model was trained on some rows: what it stores, and how it takes moved rows."""

from __future__ import annotations

import warnings
from collections import Counter
from math import sqrt
from time import perf_counter
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from localma.candidates.base import Candidate
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.function import FunctionCandidate
from localma.candidates.outputs import Array, OutputNames, Table
from localma.candidates.pool import Pool
from localma.tables.frames import column_names, dense, n_rows, take_rows, to_narwhals

Rows = NDArray[np.intp]

STORED_ROWS = ("_fit_X", "X_train_", "X_fit_", "support_vectors_")
"""Attributes in which neighbours, Gaussian processes and kernel machines keep training rows."""

MOST_LOOKED_UP = 2_000
MOST_STORED = 200_000
MOST_DRAWN = 5_000_000
"""Limits of the work: rows looked up, rows among which to look, and bootstrap draws to repeat."""

LEAST_LEAVES = 6
"""A tree with fewer leaves may have the same number of rows in each by chance."""

STEP = 0.0125
"""How far a row is moved: by this share of the sample's values, in each column."""

PAIRS = 1
"""Directions in which a row is moved, each forwards and backwards; more cost time."""

LEAST_DISTINCT = 10
"""A column with fewer different values may hold codes, and is not moved."""

REFERENCE_ROWS = 2_000
"""Rows from which the distance between values of a column is taken, at most."""

PROBE_ROWS, PROBE_SECONDS = 10, 0.1
"""A candidate that takes longer for so few rows is too slow, or too costly, to be asked more."""


def recognised_rows(candidate: Candidate, X: Table) -> int | None:
    """Count the rows of X that a fitted estimator was evidently trained on; None if unknown.

    Models that store training rows (neighbours, Gaussian processes, kernel machines) are searched
    for them. Trees and forests that were fitted on as many rows as X has are compared leaf by leaf:
    all rows, if each leaf of a tree holds as many rows of X as it held in training.

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
            return _recognised(candidate.model, candidate.select(X))
    except Exception:  # of a stranger's model, or of inputs that are no numbers: unknown
        return None


def _recognised(model: Any, X: Table) -> int | None:
    model, X = _last_model(model, X)
    values = dense(X).astype(np.float64)
    stored = next((getattr(model, name) for name in STORED_ROWS if hasattr(model, name)), None)
    if stored is not None:
        return _count_stored(values, dense(stored).astype(np.float64))
    return len(values) if _fills_leaves_alike(model, values) else None


def _last_model(model: Any, X: Table) -> tuple[Any, Any]:
    """The model inside of pipelines, searches and wrappers, and X as that model gets it."""
    if isinstance(model, Pipeline):
        before = model[:-1].transform(X) if len(model) > 1 else X
        return _last_model(model[-1], before)
    if isinstance(model, FrozenEstimator):
        return _last_model(model.estimator, X)
    for name in ("best_estimator_", "regressor_"):
        if hasattr(model, name):
            return _last_model(getattr(model, name), X)
    return model, X


def _count_stored(X: Array, stored: Array) -> int | None:
    """Count the rows of X that are stored; 0 if so many may be equal by chance.

    If rows repeat by nature, they repeat among the stored rows too: the share of those that are
    there more than once is the chance that a new row is found.
    """
    n = len(X)
    if not 0 < len(stored) <= MOST_STORED or X.shape[1:] != stored.shape[1:]:
        return None
    some = X[spread_rows(n, MOST_LOOKED_UP)]
    scale = np.where(stored.std(axis=0) > 0, stored.std(axis=0), 1.0)
    # Rounded, since a pipeline may compute training rows in another order than new ones.
    counts = Counter(map(bytes, np.round(stored / scale, 6) + 0.0))
    found = sum(row in counts for row in map(bytes, np.round(some / scale, 6) + 0.0))
    repeated = sum(count for count in counts.values() if count > 1)
    by_chance = len(some) * (repeated + 0.5) / (len(stored) + 1)
    return round(found * n / len(some)) if found > by_chance + 3 * sqrt(by_chance) else 0


def _fills_leaves_alike(model: Any, X: Array) -> bool:
    """Whether each leaf of the first tree has as many rows of X as it had in training."""
    first, X = _first_tree(model, X)
    tree = getattr(first, "tree_", None)
    if tree is None or tree.n_node_samples[0] != len(X):
        return False
    leaves = tree.children_left == -1
    if leaves.sum() < LEAST_LEAVES:
        return False
    counts = np.bincount(tree.apply(X.astype(np.float32)), minlength=len(leaves))
    return bool((counts[leaves] == tree.n_node_samples[leaves]).all())


def _first_tree(model: Any, X: Array) -> tuple[Any, Array]:
    """The first tree of an ensemble, and the rows of X that its bootstrap would have drawn."""
    trees = getattr(model, "estimators_", None)
    if trees is None:
        return model, X
    first = np.ravel(np.asarray(trees, dtype=object))[0]
    n_fitted = getattr(model, "_n_samples", len(X))
    if n_fitted != len(X) or len(X) * len(trees) > MOST_DRAWN:
        return None, X
    if getattr(model, "bootstrap", False):
        X = X[np.unique(model.estimators_samples_[0])]
    features = getattr(model, "estimators_features_", None)
    return first, X if features is None else X[:, features[0]]


def mean_of_moved(pool: Pool, name: str, moved: Any, outputs: OutputNames) -> Array | None:
    """Mean prediction of a candidate over `moved_rows`: (m,) or (m, K); None if it is not asked.

    Only models and functions in this process are asked, and only if they are quick.
    """
    place = pool.names.index(name)
    if not isinstance(pool.candidates[place], EstimatorCandidate | FunctionCandidate):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not _is_quick(pool, name, moved, outputs):
                return None
            P = pool.predict(moved, only=[name], outputs=outputs)[:, place]
    except Exception:  # a function may know only the rows that it was made for
        return None
    return np.asarray(P.reshape(2 * PAIRS, -1, *P.shape[1:]).mean(axis=0))


def _is_quick(pool: Pool, name: str, moved: Any, outputs: OutputNames) -> bool:
    """Whether a candidate answers about few rows in no time; models of scikit-learn do."""
    candidate = pool.candidates[pool.names.index(name)]
    model = getattr(candidate, "model", None)
    if type(model).__module__.startswith("sklearn."):
        return True
    start = perf_counter()
    pool.predict(take_rows(moved, slice(0, PROBE_ROWS)), only=[name], outputs=outputs)
    return perf_counter() - start <= PROBE_SECONDS


def moved_rows(X: Table, rows: Rows, steps: float = 1.0) -> Any:
    """Some rows of a table, each moved a little in 2 * PAIRS ways, one way after the other.

    Directions come in pairs, forwards and backwards, so that what a smooth model gains on the one
    side it loses on the other. Only columns of fractional numbers move: codes and counts stay what
    they are, and no value leaves the range of its column. Returns None if no column can move.

    steps : how far, 1 for the usual distance.

    >>> X = np.linspace(0.05, 0.95, 19)[:, np.newaxis]
    >>> moved_rows(X, np.array([9])).round(3).ravel().tolist()
    [0.55, 0.45]
    """
    lengths = _steps(X, rows)
    if not lengths:
        return None
    random = np.random.default_rng(0)
    shifts = {column: _shifts(steps * length, random) for column, length in lengths.items()}
    moved = take_rows(X, np.tile(rows, 2 * PAIRS))
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


def _steps(X: Table, rows: Rows) -> dict[int, Array]:
    """How far each row moves, by the position of the column: (m,) for each that can move."""
    if isinstance(X, np.ndarray):
        if X.ndim != 2 or X.dtype.kind != "f":
            return {}
        columns = dict(enumerate(X.T))
    else:
        columns = _fractional_columns(X)
    reference = spread_rows(n_rows(X), REFERENCE_ROWS)
    lengths = {k: _step(values, rows, reference) for k, values in columns.items()}
    return {k: length for k, length in lengths.items() if length is not None}


def _fractional_columns(X: Table) -> dict[int, Array]:
    names = column_names(X)
    if names is None or not all(isinstance(name, str) for name in names):
        return {}
    frame = to_narwhals(X)
    return {
        k: np.asarray(frame[name].to_numpy(), dtype=np.float64)
        for k, name in enumerate(frame.columns)
        if frame[name].dtype.is_float()
    }


def _step(values: Array, rows: Rows, reference: Rows) -> Array | None:
    """Half the distance between the values a little below and above, within the column's range."""
    known = np.asarray(values[reference], dtype=np.float64)
    known = np.sort(known[np.isfinite(known)])
    if len(np.unique(known)) < LEAST_DISTINCT or (known == np.round(known)).all():
        return None
    k, last = max(1, round(STEP * len(known))), len(known) - 1
    at = np.asarray(values[rows], dtype=np.float64)
    place = np.searchsorted(known, at)
    above, below = known[np.minimum(place + k, last)], known[np.maximum(place - k, 0)]
    within = np.minimum(at - known[0], known[-1] - at)
    step = np.minimum((above - below) / 2, within).clip(0.0)
    return np.where(np.isfinite(step), step, 0.0)


def _shifts(step: Array, random: np.random.Generator) -> Array:
    """Signed steps of all moved copies: (m,) -> (2 * PAIRS * m,)."""
    signs = random.choice([-1.0, 1.0], size=(PAIRS, 1, len(step)))
    return (np.array([[[1.0], [-1.0]]]) * signs * step).ravel()


def spread_rows(n: int, most: int) -> Rows:
    """At most so many of n rows, evenly spread.

    >>> spread_rows(5, 3).tolist()
    [0, 2, 4]
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))
