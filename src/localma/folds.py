"""Splits of a sample into folds, groups of rows, and evenly spaced rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseCrossValidator, GroupKFold, KFold, StratifiedKFold, check_cv

from localma._types import AnyArray, Array, RandomState, RowMask, Rows
from localma.errors import InvalidInputError
from localma.tables.frames import without_mask

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame, IntoSeries

Fold = tuple[Rows, Rows]
Groups: TypeAlias = "ArrayLike | IntoSeries | IntoDataFrame"
Splits: TypeAlias = int | BaseCrossValidator | Iterable[tuple[ArrayLike, ArrayLike]] | None
"""A number of folds, a splitter, or pairs of training and test rows; None means five folds."""

DEFAULT_FOLDS = 5


def make_folds(
    cv: Splits,
    y: AnyArray,
    groups: Groups | None = None,
    *,
    classification: bool = False,
    random_state: RandomState = None,
    most: int | None = None,
) -> list[Fold]:
    """Split rows into (train, test) pairs; the test rows need not cover all rows.

    Parameters
    ----------
    cv : int, splitter, iterable of pairs or None
        An integer means shuffled folds: by groups if you pass `groups`, stratified by label for
        classification. None means five folds. A splitter, or pairs of row indices or masks, are
        used as they are.
    y : (n,) or (n, K)
    groups : (n,), optional
    classification : whether y holds labels
    random_state : seed of the shuffle
    most : the largest number of pairs. With ten million rows each pair takes 80 megabytes.

    Examples
    --------
    >>> [test.tolist() for train, test in make_folds(2, np.arange(4), random_state=0)]
    [[2, 3], [0, 1]]
    """
    X = np.empty((len(y), 0))
    if cv is None or isinstance(cv, int | np.integer):
        if groups is not None:
            groups = number_groups(groups, len(y))
        n_folds = DEFAULT_FOLDS if cv is None else int(cv)
        splitter = _make_splitter(n_folds, y, groups, classification, random_state)
        return list(islice(splitter.split(X, y, groups), most))
    splitter = check_cv(cv, y, classifier=classification)
    return [
        _check_fold(number, _as_rows(train, len(y), number), _as_rows(test, len(y), number))
        for number, (train, test) in enumerate(islice(splitter.split(X, y, groups), most))
    ]


def number_groups(groups: Groups, n: int) -> Rows:
    """Number the groups of n rows from 0, in sorted order if they can be sorted: (n,).

    >>> number_groups(["ward 2", "ward 1", "ward 2"], 3).tolist()
    [1, 0, 1]
    """
    labels = np.asarray(without_mask(groups, "groups"))
    if labels.shape != (n,):
        raise InvalidInputError(
            f"groups must have one value for each of the {n} rows; received an array of shape "
            f"{labels.shape}. Pass one of shape ({n},)."
        )
    missing = np.flatnonzero(_missing_values(labels))
    if len(missing):
        raise InvalidInputError(
            f"Every row must belong to a group; {len(missing)} of {n} rows have none, the first "
            f"is row {missing[0]}. Give each such row its own group, or leave it out."
        )
    if labels.dtype == object:
        return _number_objects(labels)
    return np.unique(labels, return_inverse=True)[1].astype(np.intp)


def count_groups(numbers: Rows | None, sample_weight: Array | None) -> int | None:
    """Count the numbered groups that have weight; None if rows are independent.

    >>> count_groups(np.array([0, 0, 1, 2]), np.array([1.0, 0.0, 2.0, 0.0]))
    2
    """
    if numbers is None:
        return None
    if sample_weight is not None:
        numbers = numbers[sample_weight > 0]
    return int(np.count_nonzero(np.bincount(numbers)))


def evenly_spaced(rows: Rows, limit: int) -> Rows:
    """At most `limit` of the rows, evenly spaced, in their order.

    >>> evenly_spaced(np.arange(10), 4).tolist()
    [0, 3, 6, 9]
    """
    if len(rows) <= limit:
        return rows
    return rows[np.linspace(0, len(rows) - 1, limit).astype(np.intp)]


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or the NA of pandas, whose comparisons are neither."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _missing_values(labels: AnyArray) -> RowMask:
    if labels.dtype == object:
        return np.array([is_missing(label) for label in labels], dtype=bool)
    return np.asarray(labels != labels)


def _number_objects(labels: AnyArray) -> Rows:
    numbers: dict[Hashable, int] = {}
    numbered = np.fromiter((numbers.setdefault(g, len(numbers)) for g in labels.tolist()), np.intp)
    with suppress(TypeError):  # a mixture of texts and numbers cannot be sorted
        ranks = {group: rank for rank, group in enumerate(sorted(numbers))}  # type: ignore[type-var]
        numbered = np.array([ranks[group] for group in numbers], dtype=np.intp)[numbered]
    return numbered


def _as_rows(selection: ArrayLike, n: int, number: int) -> Rows:
    """Row indices of one half of a fold, which may be a mask of all rows."""
    rows = np.asarray(selection)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows)
    if not rows.size:
        return np.empty(0, dtype=np.intp)
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise InvalidInputError(
            f"Each half of a fold must be row indices, or a mask of all {n} rows; fold {number} of "
            f"cv has values of dtype {rows.dtype} and shape {rows.shape}."
        )
    if rows.min() < 0 or rows.max() >= n:
        raise InvalidInputError(
            f"Rows of folds must be numbered 0 to {n - 1}; fold {number} of cv has "
            f"{rows.min()} to {rows.max()}. Number the rows within the sample that is fitted."
        )
    return rows


def _make_splitter(
    n_folds: int, y: AnyArray, groups: Rows | None, classification: bool, random_state: RandomState
) -> BaseCrossValidator:
    if groups is not None:
        _check_number(n_folds, int(groups.max()) + 1, "groups")
        return GroupKFold(n_folds, shuffle=True, random_state=random_state)
    _check_number(n_folds, len(y), "rows")
    if not classification:
        return KFold(n_folds, shuffle=True, random_state=random_state)
    _check_labels(n_folds, y)
    return StratifiedKFold(n_folds, shuffle=True, random_state=random_state)


def _check_number(n_folds: int, available: int, unit: str) -> None:
    if n_folds < 2:
        raise InvalidInputError(f"cv must be at least 2 folds, got {n_folds}; pass cv=2 or more.")
    if available < 2:
        raise InvalidInputError(
            f"Folds need at least 2 {unit} to be split; received {available}. Give more {unit}."
        )
    if n_folds > available:
        raise InvalidInputError(
            f"{available} {unit} cannot be split into {n_folds} folds. Use fewer folds, or more "
            f"{unit}.",
            python_hint=f"Pass cv={available} or less.",
        )


def _check_labels(n_folds: int, y: AnyArray) -> None:
    """Refuse more folds than the most frequent class has rows."""
    labels, counts = np.unique(y, return_counts=True)
    if n_folds > counts.max():
        raise InvalidInputError(
            f"{n_folds} folds need {n_folds} rows of some class; the most frequent, "
            f"{labels[counts.argmax()]!r}, has {counts.max()}. Use fewer folds, or more rows.",
            python_hint=f"Pass cv={counts.max()} or less.",
        )


def _check_fold(number: int, train: Rows, test: Rows) -> Fold:
    if not len(train) or not len(test):
        raise InvalidInputError(
            f"Each fold needs rows to train on and rows to judge by; fold {number} of cv has "
            f"{len(train)} and {len(test)}. Use another splitter or fewer folds."
        )
    shared = np.intersect1d(train, test)
    if shared.size:
        raise InvalidInputError(
            f"A fold may not be judged on rows that it was trained on; fold {number} of cv has "
            f"{shared.size} rows in both halves. Use another splitter."
        )
    return train, test
