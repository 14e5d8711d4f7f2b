"""How a sample is split: any scikit-learn splitter, or a number of shuffled folds."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, check_cv

from localma.errors import InvalidInputError
from localma.tables.frames import without_mask

Rows = NDArray[np.intp]
Fold = tuple[Rows, Rows]

DEFAULT_FOLDS = 5


def make_folds(
    cv: Any,
    y: NDArray[Any],
    groups: Any = None,
    *,
    classification: bool = False,
    random_state: Any = None,
    most: int | None = None,
) -> list[Fold]:
    """Split rows into (train, test) pairs; the test parts need not cover every row.

    An integer means shuffled folds: stratified by label for classification, by whole groups
    where `groups` are given. None means five of them. A splitter or an iterable of pairs (numbers
    of rows, or masks) is taken as it is. At most `most` pairs are made: of ten million rows
    each pair takes 80 megabytes.

    >>> [test.tolist() for train, test in make_folds(2, np.arange(4), random_state=0)]
    [[2, 3], [0, 1]]
    """
    n, own = len(y), cv is None or isinstance(cv, int | np.integer)
    if own:
        number = DEFAULT_FOLDS if cv is None else int(cv)
        if groups is not None:
            groups = number_groups(groups, n)
        _check_number(number, n if groups is None else int(groups.max()) + 1, groups is not None)
        if classification and groups is None:
            _check_labels(number, y)
        cv = _splitter(number, groups, classification, random_state)
    else:
        cv = check_cv(cv, y, classifier=classification)
    pairs = cv.split(np.empty((n, 0)), y, groups)
    folds = [
        (_as_rows(train, n, place), _as_rows(test, n, place))
        for place, (train, test) in enumerate(islice(pairs, most))
    ]
    if not own:  # ours are known to be disjoint
        for place, (train, test) in enumerate(folds):
            _check_fold(place, train, test)
    return folds


def number_groups(groups: Any, n: int) -> Rows:
    """Number the groups that n rows belong to from 0, in their order where they have one: (n,).

    >>> number_groups(["ward 2", "ward 1", "ward 2"], 3).tolist()
    [1, 0, 1]
    """
    given = np.asarray(without_mask(groups, "groups"))
    if given.shape != (n,):
        raise InvalidInputError(
            f"groups must say for each of the {n} rows what it belongs to; received an array of "
            f"shape {given.shape}. Pass one of shape ({n},)."
        )
    is_object = given.dtype == object
    missing = [is_missing(group) for group in given] if is_object else given != given
    unknown = np.flatnonzero(missing)
    if len(unknown):
        raise InvalidInputError(
            f"Every row must belong to a group; {len(unknown)} of {n} rows have none, the first "
            f"is row {unknown[0]}. Give each such row a group of its own, or leave it out."
        )
    if is_object:
        return _number_objects(given)
    return np.unique(given, return_inverse=True)[1].astype(np.intp)


def count_groups(numbers: Rows | None, sample_weight: NDArray[Any] | None) -> int | None:
    """Count the numbered groups that have weight; None where rows stand for themselves.

    >>> count_groups(np.array([0, 0, 1, 2]), np.array([1.0, 0.0, 2.0, 0.0]))
    2
    """
    if numbers is None:
        return None
    weighing = numbers if sample_weight is None else numbers[sample_weight > 0]
    return int(np.count_nonzero(np.bincount(weighing)))


def _number_objects(given: NDArray[Any]) -> Rows:
    seen: dict[Any, int] = {}
    places = np.fromiter((seen.setdefault(group, len(seen)) for group in given), np.intp)
    with suppress(TypeError):  # words and numbers have no order among each other
        order = {group: rank for rank, group in enumerate(sorted(seen))}
        places = np.array([order[group] for group in seen], dtype=np.intp)[places]
    return places


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the NA of pandas, whose comparisons are neither."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def _as_rows(part: Any, n: int, place: int) -> Rows:
    """Numbers of the rows of one part of a fold, which may be a mask of all rows."""
    rows = np.asarray(part)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 1:
        if rows.size:
            raise InvalidInputError(
                f"Each part of a fold must be numbers of rows, or a mask of all {n} rows; fold "
                f"{place} of cv has values of dtype {rows.dtype} and shape {rows.shape}."
            )
        return np.empty(0, dtype=np.intp)
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        raise InvalidInputError(
            f"Rows of folds must be numbered 0 to {n - 1}; fold {place} of cv has "
            f"{rows.min()} to {rows.max()}. Number the rows within the sample that is fitted."
        )
    return rows


def _splitter(number: int, groups: Any, classification: bool, random_state: Any) -> Any:
    if groups is not None:
        return GroupKFold(number, shuffle=True, random_state=random_state)
    if classification:
        return StratifiedKFold(number, shuffle=True, random_state=random_state)
    return KFold(number, shuffle=True, random_state=random_state)


def _check_number(number: int, available: int, grouped: bool) -> None:
    what = "groups" if grouped else "rows"
    if number < 2:
        raise InvalidInputError(f"cv must be at least 2 folds, got {number}; pass cv=2 or more.")
    if available < 2:
        raise InvalidInputError(
            f"Folds need at least 2 {what} to be split; received {available}. Give more {what}."
        )
    if number > available:
        raise InvalidInputError(
            f"{available} {what} cannot be split into {number} folds. Use fewer folds, or more "
            f"{what}.",
            python_hint=f"Pass cv={available} or less.",
        )


def _check_labels(number: int, y: NDArray[Any]) -> None:
    """Refuse folds of which no class can have its share in each."""
    labels, rows = np.unique(y, return_counts=True)
    if number > rows.max():
        raise InvalidInputError(
            f"{number} folds need {number} rows of some class; the most frequent, "
            f"{labels[rows.argmax()]!r}, has {rows.max()}. Use fewer folds, or more rows.",
            python_hint=f"Pass cv={rows.max()} or less.",
        )


def _check_fold(number: int, train: Rows, test: Rows) -> None:
    if not len(train) or not len(test):
        raise InvalidInputError(
            f"Each fold needs rows to train on and rows to judge by; fold {number} of cv has "
            f"{len(train)} and {len(test)}. Use another splitter or fewer folds."
        )
    if np.intersect1d(train, test).size:
        raise InvalidInputError(
            f"The rows that judge may not be trained on; fold {number} of cv has "
            f"{np.intersect1d(train, test).size} rows in both parts. Use another splitter."
        )
