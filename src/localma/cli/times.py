"""Rows in the order of time: which columns have one, and folds that are judged on what is later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import TimeSeriesSplit

from localma._optional import optional
from localma.cli.app import wrong_call
from localma.folds import Fold

LEAST_ORDERED = 20
"""With fewer rows, numbers may come in order by chance."""

FOLLOWS_ROWS = (
    "its values follow the order of the rows, so later rows would lie outside the sample; to keep "
    "it, name the columns by --features"
)


def in_row_order(table: Any, names: Sequence[str]) -> list[str]:
    """Columns of numbers that rise or fall with the rows, as a year or an id does.

    >>> import pyarrow
    >>> year = [2015 + row // 10 for row in range(30)]
    >>> table = pyarrow.table({"year": year, "area": [row % 7 for row in range(30)]})
    >>> in_row_order(table, ["year", "area"])
    ['year']
    """
    return [name for name in names if _follows_rows(table[name])]


def _follows_rows(column: Any) -> bool:
    kinds = optional("pyarrow.types", extra="cli")
    if not (kinds.is_integer(column.type) or kinds.is_floating(column.type)):
        return False
    values = np.asarray(column.drop_null().to_numpy(), dtype=np.float64)
    steps = np.diff(values[np.isfinite(values)])
    if len(steps) < LEAST_ORDERED - 1 or np.count_nonzero(steps) < 2:
        return False  # of two values, later rows will have one
    return bool((steps >= 0).all() or (steps <= 0).all())


def check_times(column: Any, name: str) -> None:
    """Refuse times that have no order, or are missing."""
    kinds = optional("pyarrow.types", extra="cli")
    kind = column.type
    if not (kinds.is_temporal(kind) or kinds.is_integer(kind) or kinds.is_floating(kind)):
        raise wrong_call(
            f"--time needs dates such as 2024-05-31, or numbers; {name!r} holds others, such as "
            f"{str(column.drop_null()[0])!r}. Write them so that they have an order."
        )
    if column.null_count:
        raise wrong_call(
            f"--time: every row needs a time, and {column.null_count} have none in {name!r}. Fill "
            "them in, or leave those rows out."
        )


def later_folds(times: Any, folds: int) -> list[Fold]:
    """Folds of rows in order that are judged on later times; equal times stay together.

    >>> import pyarrow
    >>> [(train.tolist(), test.tolist()) for train, test in later_folds(
    ...     pyarrow.chunked_array([[1, 1, 2, 3, 3]]), 2)]
    [([0, 1], [2]), ([0, 1, 2], [3, 4])]
    """
    _, number = np.unique(times.to_numpy(), return_inverse=True)
    moments = TimeSeriesSplit(folds).split(np.empty((number.max() + 1, 1)))
    return [
        (np.flatnonzero(np.isin(number, train)), np.flatnonzero(np.isin(number, test)))
        for train, test in moments
    ]
