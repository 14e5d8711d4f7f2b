"""Bare predictions: an array, a dict by name or a data frame in place of the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np

from localma.candidates.outputs import (
    Array,
    Classes,
    Labels,
    OutputNames,
    Table,
    Task,
    align,
    are_probabilities,
    as_labels,
    as_prediction,
    check_names,
    check_same_names,
    check_task_name,
    listed,
    numbered,
    places_of,
    stacked,
    unknown_classes,
    warn_unknown_classes,
)
from localma.errors import InvalidInputError
from localma.tables.frames import (
    LARGE_ROWS,
    column_names,
    column_values,
    dense,
    readable_tensor,
    unmasked,
)


def read_predictions(
    predictions: Any,
    *,
    n_rows: int,
    task: Task,
    names: Sequence[str] | None = None,
    classes: Classes | None = None,
    outputs: OutputNames | None = None,
) -> tuple[tuple[str, ...], Array]:
    """Bring bare predictions to one array P, checked, in the order of `names`.

    Parameters
    ----------
    predictions : array (n, M) or (n, M, K); dict from name to (n,) or (n, K); or a data frame
        with one column per candidate. In classification with two classes, (n, M) and (n,) hold
        the probability of the second; a frame (n, K) in a dict has the class labels as columns. In
        regression its columns are K outputs, aligned by name where the names are strings.
    n_rows : rows that there must be.
    task : "regression" or "classification".
    names : names that there must be, or None. Predictions that carry names are put in this
        order; an array has none, and its columns are taken to be in this order.
    classes : (K,) labels of the last axis, in classification.
    outputs : the order of several outputs in regression; that of the first named ones if None.

    Returns
    -------
    names : tuple of M strings
    P : (n, M), or (n, M, K) for several outputs and for classification

    Examples
    --------
    >>> names, P = read_predictions({"b": [1.0], "a": [2.0]}, n_rows=1, task="regression",
    ...                             names=["a", "b"])
    >>> names, P.tolist()
    (('a', 'b'), [[2.0, 1.0]])
    """
    check_task_name(task)
    labels = _labels(task, classes)
    outputs = OutputNames() if outputs is None else outputs
    whole = _whole(predictions, n_rows, labels)
    if whole is not None and (names is None or len(names) == whole.shape[1]):
        return numbered(whole.shape[1]) if names is None else tuple(names), whole
    received, columns = _split(predictions, n_rows)
    if received is None:
        _check_classes(columns[0], labels)
        received = _names_of_array(len(columns), names)
    by_name = dict(zip(check_names(received), columns, strict=True))
    if names is not None:
        check_same_names(received, names)
    ordered = tuple(received if names is None else names)
    _warn_of_missing_labels(by_name, labels)
    checked = (_column(by_name[name], name, n_rows, labels, outputs) for name in ordered)
    return ordered, stacked(checked, ordered, n_rows)


def check_same_index(predictions: Any, X: Table) -> None:
    """Refuse pandas predictions whose index is not that of a pandas X: rows go by position.

    >>> check_same_index(np.zeros((2, 1)), np.zeros((2, 3)))  # arrays have no index
    """
    if not nw.dependencies.is_pandas_dataframe(X):
        return
    parts = predictions.values() if isinstance(predictions, Mapping) else [predictions]
    for part in parts:
        pandas = nw.dependencies.is_pandas_dataframe(part) or nw.dependencies.is_pandas_series(part)
        if not pandas or len(part) != len(X) or part.index.equals(X.index):
            continue
        row = next((k for k in range(len(X)) if X.index[k] != part.index[k]), 0)
        raise InvalidInputError(
            "predictions must have the rows of X in the same order, and their index differs from "
            f"X's: in row {row} X has {X.index[row]!r} and predictions {part.index[row]!r}. Put "
            "them in order with predictions.loc[X.index]; where they are in order already, pass "
            "predictions.to_numpy(), or set their index to X.index."
        )


def with_named_classes(predictions: Any, classes: Labels) -> Labels:
    """Classes of a sample (K,), and those that the columns of data frames name beside them.

    A small sample may lack a rare class that the candidates know.

    >>> with_named_classes({"a": np.ones((1, 2))}, as_labels([0, 1])).tolist()  # names none
    [0, 1]
    """
    if not isinstance(predictions, Mapping):
        return classes
    known = {str(label) for label in classes.tolist()}
    columns = {name: None for part in predictions.values() for name in column_names(part) or ()}
    further = [name for name in columns if str(name) not in known]
    kind = str if classes.dtype.kind == "U" else classes.dtype
    try:
        return np.unique(np.concatenate([classes, np.asarray(further, dtype=str).astype(kind)]))
    except ValueError:
        return classes  # what is no label of the kind is refused by its name later


def _labels(task: Task, classes: Any) -> Labels | None:
    if task == "regression":
        return None
    if classes is None:
        raise InvalidInputError(
            "Bare predictions of probabilities need the classes of their last axis; received none."
        )
    return as_labels(classes)


def _whole(predictions: Any, n: int, labels: Labels | None) -> Array | None:
    """All candidates at once, if they are one array and nothing is wrong with it; else None.

    Column by column takes longer, and tells which candidate is at fault.
    """
    if not isinstance(predictions, np.ndarray) or predictions.dtype.kind not in "biuf":
        return None
    if np.ma.is_masked(predictions):
        return None
    predictions = np.asarray(predictions)  # a mask that hides nothing
    if predictions.ndim not in (2, 3) or len(predictions) != n or predictions.size == 0:
        return None
    if labels is None:
        P = predictions[:, :, 0] if predictions.shape[2:] == (1,) else predictions
        passes = bool(np.isfinite(P).all())
    else:
        P = predictions
        passes = P.shape[2:] == labels.shape and are_probabilities(P)
    if not passes:
        return None
    # Many predictions stay where and as they are, be it in mapped memory.
    single = labels is None and n >= LARGE_ROWS and P.dtype == np.float32
    return P if single else P.astype(np.float64, copy=False)


def _split(predictions: Any, n: int) -> tuple[tuple[Any, ...] | None, list[Any]]:
    """Names, where there are any, and the predictions of each candidate."""
    if isinstance(predictions, Mapping):
        for name, values in predictions.items():
            _check_rows(values, n, f"predictions of candidate {name!r}")
        received: tuple[Any, ...] | None = tuple(predictions)
        columns = list(predictions.values())
    else:
        _check_rows(predictions, n, "predictions")
        found = column_names(predictions)
        received = None if found is None else check_names(found)
        columns = (
            _columns(predictions)
            if received is None
            else [column_values(predictions, name) for name in received]
        )
    if not columns:
        raise InvalidInputError("predictions must hold at least one candidate; received none.")
    return received, columns


def _check_rows(values: Any, n: int, what: str) -> None:
    try:
        rows = len(values)
    except TypeError:
        raise InvalidInputError(
            f"{what} must be an array, a dict from name to array or a data frame; received "
            f"{type(values).__name__}."
        ) from None
    if rows != n:
        raise InvalidInputError(
            f"{what} must have the rows of X in the same order; X has {n} rows and {what} {rows}."
        )


def _columns(predictions: Any) -> list[Any]:
    try:
        plain = readable_tensor(predictions)
        if isinstance(plain, list | tuple):
            plain = unmasked(plain)
        P = np.asanyarray(plain)  # which keeps a mask, refused under the name of its candidate
    except ValueError as error:
        raise InvalidInputError(
            f"predictions must have shape (n, M) or (n, M, K); received rows of unequal length "
            f"({error}): make one column per candidate."
        ) from error
    if P.ndim not in (2, 3):
        raise InvalidInputError(
            f"predictions must have shape (n, M) or (n, M, K); received {P.shape}: make one "
            "column per candidate."
        )
    return [P[:, m] for m in range(P.shape[1])]


def _names_of_array(M: int, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return numbered(M)
    if len(names) != M:
        raise InvalidInputError(
            f"predictions must have one column for each of the {len(names)} candidates "
            f"{', '.join(repr(name) for name in names)}; received {M} columns."
        )
    return tuple(names)


def _check_classes(values: Any, labels: Labels | None) -> None:
    """Refuse an array whose last axis cannot be that of the classes."""
    if labels is None or values.ndim < 2 or values.shape[1] == len(labels):
        return
    raise InvalidInputError(
        f"The last axis of predictions must have the {len(labels)} classes {listed(labels)}; "
        f"received {values.shape[1]}. Where the sample lacks a class, pass a dict from name to "
        "data frame, whose columns name the classes."
    )


def _column(values: Any, name: str, n: int, classes: Labels | None, outputs: OutputNames) -> Array:
    columns = column_names(values)
    if columns is None:
        return as_prediction(values, name=name, n=n, classes=classes)
    if classes is None:
        arranged = outputs.arranged(values, f"predictions of candidate {name!r}")
        return as_prediction(dense(arranged), name=name, n=n, classes=None)
    own = _own_labels(columns, name, classes)
    checked = as_prediction(dense(values), name=name, n=n, classes=own)
    return align(checked, places_of(own, classes), len(classes))


def _warn_of_missing_labels(by_name: Mapping[str, Any], classes: Labels | None) -> None:
    """One warning for all data frames that lack the column of some class."""
    if classes is None:
        return
    named = {name: column_names(values) for name, values in by_name.items()}
    missing = {
        name: unknown_classes(_own_labels(columns, name, classes).tolist(), classes)
        for name, columns in named.items()
        if columns is not None
    }
    warn_unknown_classes(missing)


def _own_labels(columns: list[Any], name: str, classes: Labels) -> Labels:
    known = {
        str(label): label for label in classes.tolist()
    }  # names of columns may be strings only
    for column in columns:
        if str(column) not in known:
            raise InvalidInputError(
                f"predictions of candidate {name!r} have a column {column!r}, which is not among "
                f"the classes {listed(classes)}: name the columns after the classes."
            )
    return as_labels([known[str(column)] for column in columns])
