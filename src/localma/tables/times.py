"""Rows in time order, and folds that are tested on later rows."""

from __future__ import annotations

import narwhals as nw
import numpy as np
from narwhals.typing import IntoSeries
from sklearn.model_selection import TimeSeriesSplit

from localma._types import Rows
from localma.tables.roles import RoleError


def time_order(times: IntoSeries, name: str = "time") -> Rows:
    """Order rows by time; rows of the same time keep their order.

    Parameters
    ----------
    times : series
        Dates, times or numbers, none missing.
    name : str
        The name of the column, for error messages.

    Returns
    -------
    array of shape (n,)
        The indices of the rows, the earliest first.

    Examples
    --------
    >>> import polars
    >>> time_order(polars.Series([2024, 2022, 2023])).tolist()
    [1, 2, 0]
    """
    series = nw.from_native(times, series_only=True)
    if not (series.dtype.is_temporal() or series.dtype.is_numeric()):
        raise RoleError(
            "time",
            f"times must be dates such as 2024-05-31, or numbers. The column {name!r} holds other "
            f"values, such as {str(series.drop_nulls()[0])!r}. Convert them to one of these.",
        )
    missing = series.null_count()
    if missing:
        raise RoleError(
            "time",
            f"every row needs a time, and {missing} have none in {name!r}. Fill in these cells, "
            "or leave those rows out.",
        )
    return np.argsort(series.to_numpy(), kind="stable")


def later_folds(times: IntoSeries, folds: int) -> list[tuple[Rows, Rows]]:
    """Split rows so that each fold is tested on later times; equal times stay together.

    Parameters
    ----------
    times : series
        The time of each row.
    folds : int
        The number of folds. There must be more distinct times than folds.

    Returns
    -------
    list of (train, test)
        Indices of rows, for the parameter `cv` of the estimators.

    Examples
    --------
    >>> import polars
    >>> folds = later_folds(polars.Series([1, 1, 2, 3, 3]), 2)
    >>> [(train.tolist(), test.tolist()) for train, test in folds]
    [([0, 1], [2]), ([0, 1, 2], [3, 4])]
    """
    distinct, index = np.unique(
        nw.from_native(times, series_only=True).to_numpy(), return_inverse=True
    )
    if folds >= len(distinct):
        raise RoleError(
            "folds",
            f"{folds} folds need at least {folds + 1} distinct times; received {len(distinct)}. "
            "Choose fewer folds.",
        )
    return [
        (np.flatnonzero(np.isin(index, train)), np.flatnonzero(np.isin(index, test)))
        for train, test in TimeSeriesSplit(folds).split(distinct)
    ]
