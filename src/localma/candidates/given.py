"""Predictions that a user passes instead of models."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from localma._types import AnyArray, Array
from localma.candidates.outputs import (
    Classes,
    Labels,
    Names,
    Output,
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
    differing_row,
    listed,
    numbered,
    pandas_index,
    stacked,
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

Predictions: TypeAlias = "Output | Mapping[str, Output]"
"""Predictions of all candidates: an array, a data frame, or a mapping from name to array."""


def check_same_index(predictions: Predictions, X: Table) -> None:
    """Raise an error if pandas predictions do not have the index of a pandas X.

    >>> check_same_index(np.zeros((2, 1)), np.zeros((2, 3)))  # arrays have no index
    """
    tables = list(predictions.values()) if isinstance(predictions, Mapping) else [predictions]
    expected = pandas_index(X) if hasattr(X, "columns") else None
    for index in map(pandas_index, tables):
        if index is None or expected is None:
            continue
        row = differing_row(index, expected)
        if row is not None:
            raise InvalidInputError(
                "predictions must have the rows of X in the same order, and their index differs "
                f"from X's: in row {row} X has {expected[row]!r} and predictions {index[row]!r}. "
                "Put them in order with predictions.loc[X.index]. If they are in order already, "
                "pass predictions.to_numpy(), or set their index to X.index."
            )


def holds_all(predictions: Predictions, stacked: Sequence[str], names: Sequence[str]) -> bool:
    """Whether predictions include those of candidates that could be computed from the others.

    stacked : names of those candidates; names : names of all candidates.

    >>> holds_all({"a": [1.0]}, ["own: direct"], ["a", "own: direct"])
    False
    """
    if not stacked:
        return True
    received = column_names(predictions)
    if isinstance(predictions, Mapping):
        received = list(predictions)
    if received:
        return any(name in received for name in stacked)
    shape = getattr(predictions, "shape", None) or np.shape(np.asarray(predictions))
    return len(shape) > 1 and shape[1] == len(names)


def with_named_classes(predictions: Predictions, classes: Labels) -> Labels:
    """Return the classes of a sample (K,) together with those that data frames have as columns.

    A small sample may lack a rare class that the candidates know.

    >>> with_named_classes({"a": np.ones((1, 2))}, as_labels([0, 1])).tolist()
    [0, 1]
    """
    if not isinstance(predictions, Mapping):
        return classes
    labels = {str(label) for label in classes.tolist()}
    columns = {name: None for table in predictions.values() for name in column_names(table) or ()}
    further = [str(name) for name in columns if str(name) not in labels]
    try:
        added = np.asarray(further, dtype=str)
        if classes.dtype.kind != "U":
            added = added.astype(classes.dtype)
    except ValueError:
        return classes  # a column that is not a label is reported later, by its name
    return np.unique(np.concatenate([classes, added]))


def read_predictions(
    predictions: Predictions,
    n_rows: int,
    task: Task,
    names: Sequence[str] | None,
    classes: Classes | None,
    outputs: OutputNames | None,
    allow_missing: bool,
) -> tuple[Names, Array]:
    """Read and check predictions of all candidates, as `Pool.from_predictions` describes."""
    check_task_name(task)
    labels = _labels_of_task(task, classes)
    P = _valid_array(predictions, n_rows, labels)
    if P is not None and (names is None or len(names) == P.shape[1]):
        return tuple(names or numbered(P.shape[1])), P
    by_name = _by_name(predictions, n_rows, names, labels)
    if names is not None:
        expected = [name for name in names if name in by_name or not allow_missing]
        check_same_names(list(by_name), expected if by_name.keys() <= set(names) else names)
    ordered, outputs = tuple(names or by_name), outputs or OutputNames()
    column_labels = _column_labels(by_name, labels)

    def checked(name: str) -> Array | None:
        if name not in by_name:
            return None
        values = by_name[name]
        if labels is None and column_names(values) is not None:
            values = dense(outputs.arranged(values, f"predictions of candidate {name!r}"))
        checked = as_prediction(
            values,
            name=name,
            n=n_rows,
            classes=column_labels.get(name),
            allow_missing=allow_missing,
        )
        return checked if labels is None else align(checked, column_labels[name], labels)

    P = stacked(map(checked, ordered), ordered, n_rows)
    P[:, [name not in by_name for name in ordered]] = np.nan
    return ordered, P


def _labels_of_task(task: Task, classes: Classes | None) -> Labels | None:
    if task == "regression":
        return None
    if classes is None:
        raise InvalidInputError(
            "Bare predictions of probabilities need the classes of their last axis; received none."
        )
    return as_labels(classes)


def _valid_array(predictions: Predictions, n: int, labels: Labels | None) -> Array | None:
    """Return P if the predictions are one valid array; else None.

    The checks by candidate are slower, and find the candidate with the error.
    """
    if not isinstance(predictions, np.ndarray) or np.ma.is_masked(predictions):
        return None
    P = np.asarray(predictions)  # without a mask that hides nothing
    if P.dtype.kind not in "biuf" or P.ndim not in (2, 3) or len(P) != n or P.size == 0:
        return None
    if labels is None and P.shape[2:] == (1,):
        P = P[:, :, 0]
    if labels is None:
        valid = np.isfinite(P).all()
    else:
        valid = P.shape[2:] == labels.shape and are_probabilities(P)
    if not valid:
        return None
    if labels is None and n >= LARGE_ROWS and P.dtype == np.float32:
        return P  # large arrays are not copied: they may be memory-mapped
    return P.astype(np.float64, copy=False)


def _by_name(
    predictions: Predictions, n: int, names: Sequence[str] | None, labels: Labels | None
) -> dict[str, Output]:
    """Split predictions into those of each candidate, by name."""
    if isinstance(predictions, Mapping):
        for name, values in predictions.items():
            _check_rows(values, n, f"predictions of candidate {name!r}")
        columns: Sequence[Output] = list(predictions.values())
        received: Iterable[Hashable] = predictions
    else:
        _check_rows(predictions, n, "predictions")
        received = column_names(predictions) or ()
        if received:
            columns = [column_values(predictions, name) for name in check_names(received)]
        else:
            columns = _columns_of_array(predictions, labels)
            received = _names_of_array(len(columns), names)
    if not columns:
        raise InvalidInputError("predictions must hold at least one candidate; received none.")
    return dict(zip(check_names(received), columns, strict=True))


def _check_rows(values: Output, n: int, subject: str) -> None:
    try:
        rows = len(values)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError(
            f"{subject} must be an array, a dict from name to array or a data frame; received "
            f"{type(values).__name__}."
        ) from None
    if rows != n:
        raise InvalidInputError(
            f"{subject} must have the rows of X in the same order; X has {n} rows and {subject} "
            f"{rows}."
        )


def _columns_of_array(predictions: Output, labels: Labels | None) -> list[AnyArray]:
    try:
        plain = readable_tensor(predictions)
        if isinstance(plain, list | tuple):
            plain = unmasked(plain)
        P = np.asanyarray(plain)  # keeps a mask, which is refused later, by candidate
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
    if labels is not None and P.ndim == 3 and P.shape[1] and P.shape[2] != len(labels):
        raise InvalidInputError(
            f"The last axis of predictions must have the {len(labels)} classes {listed(labels)}; "
            f"received {P.shape[2]}. If the sample lacks a class, pass a dict from name to data "
            "frame, with the classes as columns."
        )
    return [P[:, m] for m in range(P.shape[1])]


def _names_of_array(M: int, names: Sequence[str] | None) -> Names:
    if names is None:
        return numbered(M)
    if len(names) != M:
        raise InvalidInputError(
            f"predictions must have one column for each of the {len(names)} candidates "
            f"{listed(names)}; received {M} columns."
        )
    return tuple(names)


def _column_labels(by_name: Mapping[str, Output], classes: Labels | None) -> dict[str, Labels]:
    """Return the labels of the columns of each candidate; those of an array are the classes."""
    if classes is None:
        return {}
    label_of = {str(label): label for label in classes.tolist()}
    labels = dict.fromkeys(by_name, classes)
    for name, values in by_name.items():
        columns = column_names(values)
        if columns is None:
            continue
        for column in columns:
            if str(column) not in label_of:
                raise InvalidInputError(
                    f"predictions of candidate {name!r} have a column {column!r}, which is not "
                    f"among the classes {listed(classes)}: name the columns after the classes."
                )
        labels[name] = as_labels([label_of[str(column)] for column in columns])
    warn_unknown_classes(labels, classes)
    return labels
