"""Rows in the order of time: which columns have one, and folds that are judged on what is later."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import TimeSeriesSplit

from localma._optional import optional
from localma.cli.app import wrong_call
from localma.folds import Fold


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
