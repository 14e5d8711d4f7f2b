"""What a candidate may return: real, finite, one row per row, probabilities that sum to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from localma.candidates.labels import Labels, listed
from localma.candidates.output_names import OutputNames
from localma.errors import CandidateError, InvalidInputError
from localma.tables.frames import column_names, dense, readable_tensor

Array = NDArray[np.floating]
Task = Literal["regression", "classification"]
Rows = Sequence[int] | NDArray[np.intp]
"""What errors call the rows that a candidate was given."""

SUM_TOLERANCE = 1e-3  # a float32 softmax over a thousand classes stays well within
LEAST_SUM, GREATEST_SUM = 1.0 - SUM_TOLERANCE, 1.0 + SUM_TOLERANCE
ROUNDING = 1e-6  # 1 - p of a probability that float32 rounded up is this little below zero


def check_task_name(task: str) -> None:
    """Refuse a task that no candidate has."""
    if task not in get_args(Task):
        raise InvalidInputError(
            f"task must be 'regression' or 'classification'; received {task!r}."
        )


def as_prediction(
    output: Any,
    *,
    name: str,
    n: int,
    classes: Labels | None,
    rows: Rows | None = None,
    outputs: OutputNames | None = None,
) -> Array:
    """Check what a candidate returned for n rows and bring it to its one shape.

    Parameters
    ----------
    output : what the candidate returned.
    name : name of the candidate, for the error.
    n : number of rows that it was given.
    classes : (K,) labels of its columns in classification, None in regression.
    rows : (n,) what the error calls the rows; counted from zero if None.
    outputs : the order of several outputs in regression, where data frames name them.

    Returns
    -------
    Array
        (n,) or (n, K) for regression, (n, K) for classification.

    >>> as_prediction([[1.0], [2.0]], name="north", n=2, classes=None).tolist()
    [1.0, 2.0]
    >>> as_prediction([0.25], name="north", n=1, classes=np.array(["no", "yes"])).tolist()
    [[0.75, 0.25]]
    """
    if classes is None:
        output = output if outputs is None else _by_name(output, outputs, name)
        values = _shape_regression(_real_array(output, name), name, n)
        _check_finite(values, name, rows)
        return values
    values = _real_array(_by_label(output, classes), name)
    return _probabilities(values, name, n, classes, rows)


def check_not_reordered(output: Any, X: Any, name: str) -> None:
    """Refuse a pandas output with the index of a pandas X in another order: rows go by position.

    An index that counts from zero says nothing: it is what new pandas objects have.
    """
    index, own = getattr(output, "index", None), getattr(X, "index", None)
    if index is None or own is None or not hasattr(output, "iloc") or not hasattr(X, "iloc"):
        return
    counted = type(index).__name__ == "RangeIndex"
    if (
        counted
        or len(index) != len(own)
        or index.equals(own)
        or len(index.symmetric_difference(own))
    ):
        return
    row = next((k for k in range(len(own)) if own[k] != index[k]), 0)
    raise CandidateError(
        f"Candidate {name!r} returned the rows of X in another order: in row {row} X has index "
        f"{own[row]!r} and the prediction {index[row]!r}; return them as they came, with "
        ".loc[X.index].",
        candidate=name,
    )


def _by_name(output: Any, outputs: OutputNames, name: str) -> Any:
    """Order the columns of a returned data frame as the outputs are."""
    if isinstance(output, np.ndarray):
        return output
    try:
        return outputs.arranged(output, f"candidate {name!r}")
    except InvalidInputError as error:
        raise CandidateError(str(error), candidate=name) from error


def _by_label(output: Any, classes: Labels) -> Any:
    """Order the columns of a returned data frame by class label, where they are labels."""
    if isinstance(output, np.ndarray):
        return output
    names = column_names(output)
    if names is None:
        return output
    columns, wanted = [str(name) for name in names], [str(label) for label in classes.tolist()]
    values = dense(output)
    if sorted(columns) != sorted(wanted):
        return values
    return values[:, [columns.index(label) for label in wanted]]


def _real_array(output: Any, name: str) -> Array:
    if np.ma.is_masked(output):
        raise CandidateError(
            f"Candidate {name!r} masked {np.ma.getmaskarray(output).sum()} of its predictions; it "
            "must predict every row it is given: fill them, or leave those rows out.",
            candidate=name,
        )
    try:
        values = np.asarray(readable_tensor(output))
    except Exception as error:
        raise CandidateError(
            f"Candidate {name!r} returned a {type(output).__name__} that is no array of numbers "
            f"({error}); return an array of shape (n,) or (n, K).",
            candidate=name,
        ) from error
    if values.dtype.kind not in "biuf":
        example = f", such as {values.flat[0]!r}" if values.size else ""
        raise CandidateError(
            f"Candidate {name!r} returned values of dtype {values.dtype}{example}; predictions "
            "must be real numbers.",
            candidate=name,
            python_hint="Convert them, for example with .astype(float).",
        )
    return values.astype(np.float64, copy=False)


def _shape_regression(values: Array, name: str, n: int) -> Array:
    if values.shape == (n,):
        return values
    if values.ndim == 2 and values.shape[0] == n and values.shape[1] > 0:
        return values[:, 0] if values.shape[1] == 1 else values
    raise CandidateError(
        f"Candidate {name!r} returned shape {values.shape}; expected ({n},) or ({n}, 1), "
        f"or ({n}, K) for K outputs.",
        candidate=name,
    )


def _probabilities(values: Array, name: str, n: int, classes: Labels, rows: Rows | None) -> Array:
    K = len(classes)
    second_only = K == 2 and values.shape in ((n,), (n, 1))
    if not second_only and values.shape != (n, K):
        also = f", or ({n},) for the probability of {classes.tolist()[1]!r}" if K == 2 else ""
        raise CandidateError(
            f"Candidate {name!r} returned shape {values.shape}; expected ({n}, {K}), one column "
            f"of probabilities for each of its classes {listed(classes)}{also}.",
            candidate=name,
        )
    if second_only:
        _check_finite(values, name, rows)
        second = _within_zero_and_one(values, name, rows).reshape(n)
        return np.column_stack([1.0 - second, second])
    if are_probabilities(values):
        return values  # the checks below only say what is wrong
    _check_finite(values, name, rows)
    values = _within_zero_and_one(values, name, rows)
    _check_sums(values, name, classes, rows)
    return values


def are_probabilities(values: Array) -> bool:
    """Whether (..., K) values are not negative and sum to one; no NaN passes.

    >>> are_probabilities(np.array([[0.25, 0.75]])), are_probabilities(np.array([[0.5, 0.6]]))
    (True, False)
    """
    K = values.shape[-1]
    sums = values.reshape(-1, K) @ np.ones(K)  # many times as quick as a sum over a short axis
    return bool(values.min() >= 0.0 and sums.min() >= LEAST_SUM and sums.max() <= GREATEST_SUM)


def _check_finite(values: Array, name: str, rows: Rows | None) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    bad = ~finite if values.ndim == 1 else ~finite.all(axis=1)
    positions = np.flatnonzero(bad).tolist()
    failed = positions if rows is None else [int(rows[position]) for position in positions]
    what = "NaN" if np.isnan(values).any() else "infinity"
    raise CandidateError(
        f"Candidate {name!r} returned {what} in {bad.sum()} of the {len(values)} rows it was "
        f"given, first in row {failed[0]}; predictions must be finite: fill or leave out "
        "those rows, or leave out the candidate.",
        candidate=name,
        rows=failed,
    )


def _within_zero_and_one(values: Array, name: str, rows: Rows | None) -> Array:
    low, high = values.min(), values.max()
    if low >= 0.0 and high <= 1.0:
        return values
    if low < -ROUNDING or high > GREATEST_SUM:
        bad = (values < -ROUNDING) | (values > GREATEST_SUM)
        row = int(np.argwhere(bad)[0][0])
        raise CandidateError(
            f"Candidate {name!r} returned {values[bad][0]:.6g} as a probability in "
            f"{_row(row, len(values), rows)}; probabilities lie between 0 and 1: turn scores "
            "into probabilities first, for example with a softmax.",
            candidate=name,
        )
    return np.clip(values, 0.0, 1.0)


def _check_sums(values: Array, name: str, classes: Labels, rows: Rows | None) -> None:
    sums = values.sum(axis=1)
    off = np.abs(sums - 1.0)
    row = off.argmax()
    if off[row] > SUM_TOLERANCE:
        raise CandidateError(
            f"Candidate {name!r} returned probabilities that sum to {sums[row]:.6g} in "
            f"{_row(int(row), len(values), rows)}; over its classes {listed(classes)} they must "
            f"sum to one (within {SUM_TOLERANCE:g}): divide each row by its sum.",
            candidate=name,
        )


def _row(row: int, n: int, rows: Rows | None) -> str:
    return f"row {row} of the {n} it was given" if rows is None else f"row {rows[row]}"


def stacked(columns: Iterable[Array | None], names: Sequence[str], n: int) -> Array:
    """Put the predictions of M candidates side by side: (n, M), or (n, M, K).

    They are taken one after another, and none is kept. None stands for a candidate that was not
    asked, and becomes zeros.

    >>> stacked([np.array([1.0, 2.0]), None], ["a", "b"], 2).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    P, first = None, ""
    for m, (name, values) in enumerate(zip(names, columns, strict=True)):
        if values is None:
            continue
        if P is None:
            P, first = np.zeros((n, len(names), *values.shape[1:])), name
        if values.shape[1:] != P.shape[2:]:
            K, K_other = ((*shape, 1)[0] for shape in (P.shape[2:], values.shape[1:]))
            raise InvalidInputError(
                f"All candidates must have the same number of outputs; candidate {first!r} has {K} "
                f"and candidate {name!r} has {K_other}. Leave one of them out, or let a function "
                "around it return as many columns as the others."
            )
        P[:, m] = values
    return np.zeros((n, len(names))) if P is None else P
