"""Rows that are objects, a text or an image each, out of whatever holds them."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np

from localma.errors import InvalidInputError
from localma.tables.frames import column_names, dense


def as_objects(X: Any, what: str) -> Any:
    """One object per row, to be had by its place: a list, an array of images, or a Dataset.

    Parameters
    ----------
    X : a list, a Series, an array; a data frame or array of objects with one column; a Dataset,
        which comes back as it is, and so do arrays of numbers.
    what : what the objects are, and the name of their column in the way out.

    Examples
    --------
    >>> as_objects(np.array([["a text"], ["another"]], dtype=object), "text")
    ['a text', 'another']
    """
    series = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        return series.to_list()
    framed = column_names(X) is not None
    if not framed and not (isinstance(X, np.ndarray) and X.dtype.kind in "OU"):
        return X
    values = dense(X)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InvalidInputError(
            f"one column of X must hold the {what}s, and X has shape {values.shape}: state which, "
            f"inputs={what!r}."
        )
    return values.tolist()
