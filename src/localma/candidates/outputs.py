"""Checks of what candidates return: names, classes, shapes, probabilities and logits."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax

from localma._types import AnyArray, Array, Integers, RowMask
from localma.errors import CandidateError, FileFormatError, InvalidInputError, unknown_name
from localma.folds import is_missing
from localma.storage.array_file import shown
from localma.tables.frames import column_names, dense, readable_tensor, without_mask

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    from narwhals.typing import IntoDataFrame, IntoSeries
    from numpy.typing import ArrayLike
    from scipy.sparse import sparray, spmatrix

Label: TypeAlias = str | float
Labels: TypeAlias = AnyArray
Names: TypeAlias = tuple[str, ...]
Table: TypeAlias = (
    "NDArray[np.generic] | IntoDataFrame | IntoSeries | sparray | spmatrix | Sequence[object]"
)
"""The inputs X: n rows of an array, a data frame, a sparse matrix, or n objects."""
Output: TypeAlias = "ArrayLike | IntoDataFrame | IntoSeries"
"""What a model may return for n rows, or a user may pass as a target or as predictions."""
Classes: TypeAlias = "Sequence[Label] | NDArray[np.generic]"
"""K class labels, all strings or all numbers, as users give them."""
Task = Literal["regression", "classification"]
Activation = Literal["softmax", "sigmoid"]
Rows: TypeAlias = Sequence[int] | Integers
"""Row numbers for error messages."""
MOST_LABEL_BYTES = 2**24
"""Limit for the labels of a file in memory: NumPy stores each at the length of the longest."""
SUM_TOLERANCE = 1e-3  # a float32 softmax over a thousand classes is well within
GREATEST_SUM = 1.0 + SUM_TOLERANCE
ROUNDING = 1e-6  # 1 - p may be this far below zero if float32 rounded p up
COLDEST, HOTTEST = 0.01, 100.0
"""Limits of a fitted temperature."""


# Names of candidates.


def check_names(names: Iterable[Hashable]) -> Names:
    """Check that the names are strings, not empty, and unique.

    >>> check_names(["north", "south"])
    ('north', 'south')
    """
    counts: Counter[str] = Counter()
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(
                f"Names of candidates must be strings that are not empty; received {name!r} "
                f"({type(name).__name__})."
            )
        counts[name] += 1
    for name, count in counts.items():
        if count > 1:
            raise InvalidInputError(
                f"Names of candidates must differ; {name!r} occurs {count} times: rename all "
                "but one."
            )
    return tuple(counts)


def made_unique(labels: Sequence[str]) -> Names:
    """Number the labels that occur more than once, as scikit-learn does for pipelines.

    >>> made_unique(["ridge", "tree", "tree"])
    ('ridge', 'tree-1', 'tree-2')
    """
    total, count = Counter(labels), Counter[str]()
    names = []
    for label in labels:
        count[label] += 1
        names.append(f"{label}-{count[label]}" if total[label] > 1 else label)
    return tuple(names)


def numbered(n_candidates: int) -> Names:
    """Return names for the columns of an array.

    >>> numbered(2)
    ('candidate_0', 'candidate_1')
    """
    return tuple(f"candidate_{m}" for m in range(n_candidates))


def check_same_names(received: Sequence[str], expected: Sequence[str]) -> None:
    """Check that predictions have the names of the candidates, in any order."""
    for name in received:
        if name not in expected:
            raise unknown_name("candidate", name, expected)
    missing = [name for name in expected if name not in received]
    if missing:
        raise InvalidInputError(
            f"predictions must have every candidate; without predictions: {listed(missing)}. Add "
            "the predictions of these candidates, or fit again without them."
        )


# Class labels: check them, take their union, and align probabilities by label.


def as_labels(classes: Classes) -> Labels:
    """Return class labels as an array of unique strings or numbers: (K,).

    >>> as_labels(["no", "yes"]).tolist()
    ['no', 'yes']
    """
    labels = np.asarray(classes)
    if labels.dtype.kind == "O":
        labels = _from_objects(labels)
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "biufU":
        raise InvalidInputError(
            f"classes must be a list of labels, all strings or all numbers; received {classes!r}."
        )
    if len(set(labels.tolist())) < labels.size:
        raise InvalidInputError(f"classes must name each label once; received {labels.tolist()!r}.")
    # NumPy silently turns [0, "yes"] into strings.
    if labels.dtype.kind == "U" and not all(isinstance(label, str) for label in classes):
        raise InvalidInputError(
            f"classes must be all strings or all numbers; received {list(classes)!r}."
        )
    return labels


def check_saved_labels(labels: Sequence[Label], width: int = 0) -> None:
    """Check that the labels of a file are a list, and not too large as an array.

    width : characters of each label, if the file states them.
    """
    if not isinstance(labels, list):
        raise FileFormatError(f"The classes of a file are a list; received {shown(labels)}.")
    longest = max([width, *(len(label) for label in labels if isinstance(label, str))])
    if 4 * longest * len(labels) > MOST_LABEL_BYTES:
        raise FileFormatError(
            f"{len(labels)} classes of {longest} characters would take more than "
            f"{MOST_LABEL_BYTES // 2**20} MiB of memory. Use shorter labels."
        )


def _from_objects(labels: Labels) -> Labels:
    types = {type(label) for label in labels.ravel().tolist()}
    if all(issubclass(kind, str) for kind in types):
        return labels.astype(str)
    if all(issubclass(kind, bool | int | float) for kind in types):
        return np.asarray(labels.tolist())
    return labels


def union_of_classes(classes: Mapping[str, Labels]) -> Labels:
    """Return the sorted union of the classes of several candidates: (K,).

    >>> union_of_classes({"a": as_labels([2, 1]), "b": as_labels([3, 1])}).tolist()
    [1, 2, 3]
    """
    strings = [name for name, labels in classes.items() if labels.dtype.kind == "U"]
    if strings and len(strings) < len(classes):
        number = next(name for name in classes if name not in strings)
        raise InvalidInputError(
            "The classes of all candidates must be strings, or all must be numbers; "
            f"candidate {strings[0]!r} has {listed(classes[strings[0]])} and candidate "
            f"{number!r} has {listed(classes[number])}: rename the classes of one of them with "
            "as_candidate(model, classes=[...])."
        )
    return np.unique(np.concatenate(list(classes.values())))


def align(probabilities: Array, labels: Labels, classes: Labels) -> Array:
    """Move each column to the position of its class; classes without a column get zero.

    probabilities : (n, K_labels), labels : (K_labels,), classes : (K,) -> (n, K).

    >>> align(np.array([[0.25, 0.75]]), as_labels(["c", "a"]), as_labels(["a", "b", "c"])).tolist()
    [[0.75, 0.0, 0.25]]
    """
    if np.array_equal(labels, classes):
        return probabilities
    index = {label: column for column, label in enumerate(classes.tolist())}
    aligned = np.zeros((len(probabilities), len(classes)))
    aligned[:, [index[label] for label in labels.tolist()]] = probabilities
    return aligned


def unknown_classes(labels: Iterable[Label] | Labels, classes: Labels) -> list[Label]:
    """Return those of `classes` that are not among the labels.

    >>> unknown_classes(["no"], as_labels(["no", "yes"]))
    ['yes']
    """
    label_set = set(labels)
    return [label for label in classes.tolist() if label not in label_set]


def class_codes(y: Output, classes: Labels) -> Integers:
    """Return the index of each label among the classes: (n,).

    >>> class_codes(["yes", "no"], as_labels(["no", "yes"])).tolist()
    [1, 0]
    """
    index = {label: code for code, label in enumerate(classes.tolist())}
    labels = np.asarray(without_mask(y, "y")).tolist()
    unknown = [label for label in dict.fromkeys(labels) if label not in index]
    if unknown:
        raise InvalidInputError(
            f"Every label in y must be one of the candidate's classes {listed(classes)}; received "
            f"{listed(unknown[:5])}: leave out those rows."
        )
    return np.array([index[label] for label in labels], dtype=np.intp)


def check_no_label_missing(y: Output) -> None:
    """Check that no label (n,) is None, NaN or the NA of pandas.

    >>> check_no_label_missing(["no", "yes"])
    """
    # NumPy silently turns ["no", nan] into strings.
    labels = np.asarray(y, dtype=object if isinstance(y, list | tuple) else None)
    if labels.ndim == 0 or labels.size == 0 or labels.dtype.kind not in "Of":
        return
    labels = labels.reshape(len(labels), -1)[:, 0]
    if labels.dtype == object:  # pandas.NA cannot be compared
        rows = np.flatnonzero([is_missing(label) for label in labels])
    else:
        rows = np.flatnonzero(np.isnan(labels))
    if len(rows):
        raise InvalidInputError(
            f"Every row needs a label; {len(rows)} of {len(labels)} have none in y, first in row "
            f"{rows[0]}: leave those rows out."
        )


def warn_unknown_classes(labels: Mapping[str, Labels], classes: Labels) -> None:
    """Give one warning for all candidates that do not know some of the classes."""
    missing = {name: unknown_classes(labels[name], classes) for name in labels}
    clauses = [
        f"candidate {name!r} does not know the class{'es' * (len(unknown) > 1)} {listed(unknown)}"
        for name, unknown in missing.items()
        if unknown
    ]
    if clauses:
        text = "; ".join(clauses)
        warnings.warn(
            f"C{text[1:]}: a class that a candidate does not know gets probability zero from it.",
            UserWarning,
            stacklevel=3,
        )


def listed(labels: Sequence[Hashable] | Labels) -> str:
    """Write labels for a message.

    >>> listed(as_labels(["no", "yes"]))
    "'no', 'yes'"
    """
    return ", ".join(map(repr, np.asarray(labels).tolist()))


# Several outputs: columns of data frames are matched by name, those of arrays by position.


class OutputNames:
    """The order of K outputs, if a data frame names them.

    Parameters
    ----------
    names : K names in their order; None takes the names of the first data frame.
    of : the origin of the names, for error messages.
    by_alphabet : whether names that come from a data frame are sorted.

    Examples
    --------
    >>> import numpy as np
    >>> outputs = OutputNames(("rent", "price"), "y")
    >>> outputs.put_in_order(np.array([[900.0, 3.0]]), ("price", "rent"), "candidate 'a'").tolist()
    [[3.0, 900.0]]
    """

    def __init__(
        self, names: Sequence[str] | None = None, of: str = "", *, by_alphabet: bool = False
    ) -> None:
        self.names = None if names is None else tuple(names)
        self.of, self.by_alphabet = of, by_alphabet

    @classmethod
    def of_target(cls, y: Output) -> OutputNames:
        """Take the names of y, if it is a data frame with several named columns."""
        return cls(names_of_outputs(y, "y"), "y")

    def arranged(self, values: Output, of: str) -> Output:
        """Put the columns of a data frame in this order: (n, K). Return other values unchanged.

        values : n rows of outputs; of : their origin, for error messages.
        """
        names = names_of_outputs(values, of)
        return values if names is None else self.put_in_order(dense(values), names, of)

    def put_in_order(self, values: AnyArray, names: Names | None, of: str) -> AnyArray:
        """Put columns (n, K) with these names in this order. The first names set the order."""
        if names is None:
            return values
        if self.names is None:
            self.names, self.of = tuple(sorted(names)) if self.by_alphabet else names, of
        if sorted(names) != sorted(self.names):
            raise InvalidInputError(
                f"The outputs of {of} are named {listed(names)}, and those of {self.of} "
                f"{listed(self.names)}. Named outputs are matched by name: rename the columns, or "
                f"pass an array with its columns in the order {listed(self.names)}."
            )
        if names == self.names:
            return values
        return values[:, [names.index(name) for name in self.names]]


def names_of_outputs(values: Output, of: str) -> Names | None:
    """Return the column names of a data frame, if there are several and none is a default name.

    >>> names_of_outputs([[1.0, 2.0]], "y") is None
    True
    """
    names = column_names(values)
    if names is None or len(names) < 2 or not all(isinstance(name, str) for name in names):
        return None
    if names in ([f"column_{k}" for k in range(len(names))], [*map(str, range(len(names)))]):
        return None  # default names of polars, and of files without names
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError(
                f"The outputs of {of} must have different names; {name!r} occurs more than "
                "once: rename them, or pass an array."
            )
    return tuple(names)


# Predictions: real and finite, one row for each row of X, probabilities with sum one.


def check_task_name(task: str) -> None:
    """Check that the task is "regression" or "classification"."""
    if task not in get_args(Task):
        raise InvalidInputError(
            f"task must be 'regression' or 'classification'; received {task!r}."
        )


def as_prediction(
    output: Output,
    *,
    name: str,
    n: int,
    classes: Labels | None,
    rows: Rows | None = None,
    outputs: OutputNames | None = None,
    allow_missing: bool = False,
) -> Array:
    """Check the output of a candidate for n rows, and give it the standard shape.

    Parameters
    ----------
    output : the value that the candidate returned.
    name : name of the candidate, for error messages.
    n : number of rows that it received.
    classes : (K,) labels of its columns in classification, None in regression.
    rows : (n,) row numbers for error messages; counted from zero if None.
    outputs : the order of several outputs in regression, if data frames name them.
    allow_missing : whether rows may have no prediction. All their values are then NaN.

    Returns
    -------
    Array
        (n,) or (n, K) for regression, (n, K) for classification.

    Examples
    --------
    >>> as_prediction([[1.0], [2.0]], name="north", n=2, classes=None).tolist()
    [1.0, 2.0]
    >>> as_prediction([0.25], name="north", n=1, classes=np.array(["no", "yes"])).tolist()
    [[0.75, 0.25]]
    """
    if classes is not None:
        values = _real_array(_by_label(output, classes), name)
        if allow_missing and len(values) == n:
            return _known_probabilities(values, name, classes, rows)
        return _probabilities(values, name, n, classes, rows)
    if outputs is not None:
        output = _by_name(output, outputs, name)
    values = _shape_regression(_real_array(output, name), name, n)
    if allow_missing:
        values = values.copy()
        values[~_complete(values)] = np.nan
        return values
    _check_finite(values, name, rows)
    return values


def _complete(values: Array) -> RowMask:
    """Rows whose values are all finite: (n, ...) -> (n,)."""
    return np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))


def _known_probabilities(values: Array, name: str, classes: Labels, rows: Rows | None) -> Array:
    """Check the rows whose values are finite, and fill the others with NaN: (n, K)."""
    known = np.flatnonzero(_complete(values))
    probabilities = np.full((len(values), len(classes)), np.nan)
    if len(known):
        numbers = known if rows is None else np.asarray(rows)[known]
        probabilities[known] = _probabilities(values[known], name, len(known), classes, numbers)
    return probabilities


def check_not_reordered(output: Output, X: Table, name: str) -> None:
    """Raise an error if output and X are pandas objects with the same index in another order.

    Rows are matched by position. A RangeIndex is the default of new pandas objects, so it does not
    tell the order.
    """
    if isinstance(output, np.ndarray):
        return
    index, expected = pandas_index(output), pandas_index(X)
    if index is None or expected is None or type(index).__name__ == "RangeIndex":
        return
    row = differing_row(index, expected)
    if row is None or len(index.symmetric_difference(expected)):
        return
    raise CandidateError(
        f"Candidate {name!r} returned the rows of X in another order: in row {row} X has index "
        f"{expected[row]!r} and the prediction {index[row]!r}; return them in the order of X, with "
        ".loc[X.index].",
        candidate=name,
    )


def pandas_index(table: Output | Table) -> pandas.Index | None:
    """Return the index of a pandas object; None for other tables."""
    return getattr(table, "index", None) if hasattr(table, "iloc") else None


def differing_row(index: pandas.Index, expected: pandas.Index) -> int | None:
    """Return the first row in which two indices of the same length differ; None if they do not."""
    if len(index) != len(expected) or index.equals(expected):
        return None
    return next((row for row in range(len(index)) if expected[row] != index[row]), 0)


def _by_name(output: Output, outputs: OutputNames, name: str) -> Output:
    """Put the columns of a returned data frame in the order of the outputs."""
    if isinstance(output, np.ndarray):
        return output
    try:
        return outputs.arranged(output, f"candidate {name!r}")
    except InvalidInputError as error:
        raise CandidateError(str(error), candidate=name) from error


def _by_label(output: Output, classes: Labels) -> Output:
    """Put the columns of a returned data frame in the order of the classes, if they are labels."""
    if isinstance(output, np.ndarray):
        return output
    names = column_names(output)
    if names is None:
        return output
    columns, labels = [str(name) for name in names], [str(label) for label in classes.tolist()]
    values = dense(output)
    if sorted(columns) != sorted(labels):
        return values
    return values[:, [columns.index(label) for label in labels]]


def _real_array(output: Output, name: str) -> Array:
    if type(output) is np.ndarray and output.dtype == np.float64:
        return output
    if isinstance(output, np.ma.MaskedArray) and np.ma.is_masked(output):
        raise CandidateError(
            f"Candidate {name!r} masked {np.ma.getmaskarray(output).sum()} of its predictions; it "
            "must predict every row that it receives: fill them, or remove those rows.",
            candidate=name,
        )
    try:
        values = np.asarray(readable_tensor(output))
    except Exception as error:
        raise CandidateError(
            f"Candidate {name!r} returned a {type(output).__name__} that cannot be read as an "
            f"array of numbers ({error}); return an array of shape (n,) or (n, K).",
            candidate=name,
        ) from error
    if values.dtype.kind not in "biuf":
        example = "".join(f", such as {value!r}" for value in values.flat[:1])
        raise CandidateError(
            f"Candidate {name!r} returned values of dtype {values.dtype}{example}; predictions "
            "must be real numbers.",
            candidate=name,
            python_hint="Convert them, for example with .astype(float).",
        )
    return values.astype(np.float64, copy=False)


def _shape_regression(values: Array, name: str, n: int) -> Array:
    if values.shape == (n, 1):
        return values[:, 0]
    if values.shape == (n,) or (values.ndim == 2 and len(values) == n and values.size):
        return values
    raise CandidateError(
        f"Candidate {name!r} returned shape {values.shape}; expected ({n},) or ({n}, 1), "
        f"or ({n}, K) for K outputs.",
        candidate=name,
    )


def _probabilities(values: Array, name: str, n: int, classes: Labels, rows: Rows | None) -> Array:
    K = len(classes)
    if K == 2 and values.shape in ((n,), (n, 1)):
        _check_finite(values, name, rows)
        last = _within_zero_and_one(values, name, rows).reshape(n)
        return np.column_stack([1.0 - last, last])
    if values.shape != (n, K):
        also = f", or ({n},) for the probability of {classes.tolist()[1]!r}" if K == 2 else ""
        raise CandidateError(
            f"Candidate {name!r} returned shape {values.shape}; expected ({n}, {K}), one column "
            f"of probabilities for each of its classes {listed(classes)}{also}.",
            candidate=name,
        )
    if are_probabilities(values):
        return values  # the checks below are slower, and find what is wrong
    _check_finite(values, name, rows)
    values = _within_zero_and_one(values, name, rows)
    _check_sums(values, name, classes, rows)
    return values


def are_probabilities(values: Array) -> bool:
    """Whether (..., K) values are non-negative and sum to one; False if any is NaN.

    >>> are_probabilities(np.array([[0.25, 0.75]])), are_probabilities(np.array([[0.5, 0.6]]))
    (True, False)
    """
    # Many times faster than a sum over a short axis.
    sums = values @ _ones(values.shape[-1])
    return bool(values.min() >= 0.0 and np.abs(sums - 1.0).max() <= SUM_TOLERANCE)


_ones = cache(np.ones)


def _check_finite(values: Array, name: str, rows: Rows | None) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    n = len(values)
    failed = np.flatnonzero(~finite.reshape(n, -1).all(axis=1)).tolist()
    kind = "NaN" if np.isnan(values).any() else "infinity"
    if rows is not None:
        failed = [int(rows[row]) for row in failed]
    raise CandidateError(
        f"Candidate {name!r} returned {kind} in {len(failed)} of the {n} rows it was given, first "
        f"in row {failed[0]}; predictions must be finite: fill or remove those rows, or remove "
        "the candidate.",
        candidate=name,
        rows=failed,
    )


def _within_zero_and_one(values: Array, name: str, rows: Rows | None) -> Array:
    bad = (values < -ROUNDING) | (values > GREATEST_SUM)
    if bad.any():
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
    row = int(np.abs(sums - 1.0).argmax())
    if abs(sums[row] - 1.0) > SUM_TOLERANCE:
        raise CandidateError(
            f"Candidate {name!r} returned probabilities that sum to {sums[row]:.6g} in "
            f"{_row(row, len(values), rows)}; over its classes {listed(classes)} they must "
            f"sum to one (within {SUM_TOLERANCE:g}): divide each row by its sum.",
            candidate=name,
        )


def _row(row: int, n: int, rows: Rows | None) -> str:
    return f"row {row} of the {n} it was given" if rows is None else f"row {rows[row]}"


def stacked(columns: Iterable[Array | None], names: Sequence[str], n: int) -> Array:
    """Combine the predictions of M candidates into one array: (n, M), or (n, M, K).

    The candidates are read one at a time, to save memory. None stands for a candidate that was
    not called; its predictions are zero.

    >>> stacked([np.array([1.0, 2.0]), None], ["a", "b"], 2).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    P, reference = None, ""
    for m, (name, values) in enumerate(zip(names, columns, strict=True)):
        if values is None:
            continue
        if P is None:
            P, reference = np.zeros((n, len(names), *values.shape[1:])), name
        if values.shape[1:] != P.shape[2:]:
            K_reference, K = ((*shape, 1)[0] for shape in (P.shape[2:], values.shape[1:]))
            raise InvalidInputError(
                "All candidates must have the same number of outputs; candidate "
                f"{reference!r} has {K_reference} and candidate {name!r} has {K}. Remove one of "
                "them, or wrap it in a function that returns the right columns."
            )
        P[:, m] = values
    return np.zeros((n, len(names))) if P is None else P


# Logits: ``p = softmax(z / T)`` for one logit per class, ``p = 1 / (1 + exp(-z / T))`` for the
# second of two classes.


def probabilities(logits: Array, activation: Activation, temperature: float = 1.0) -> Array:
    """Turn logits into probabilities.

    Parameters
    ----------
    logits : (n, K) for "softmax"; (n,) or (n, 1) for "sigmoid".
    activation : "softmax" or "sigmoid".
    temperature : T > 0. Above one the probabilities are less extreme, below one more extreme.

    Returns
    -------
    Array
        float64; (n, K), ``softmax(z / T)``; or (n,), the probability of the second class.

    Examples
    --------
    >>> probabilities(np.log([[1.0, 3.0]]), "softmax").round(6).tolist()
    [[0.25, 0.75]]
    >>> probabilities(np.array([0.0]), "sigmoid").tolist()
    [0.5]
    """
    z = np.asarray(logits, dtype=np.float64) / temperature
    one_column = z.ndim == 1 or z.shape[-1] == 1
    if z.ndim not in (1, 2) or one_column != (activation == "sigmoid"):
        raise InvalidInputError(
            "activation='softmax' takes one logit per class, (n, K) with K of 2 or more, and "
            f"activation='sigmoid' one logit per row, (n,) or (n, 1); {activation!r} received "
            f"shape {z.shape}: choose the other, or None if the outputs are not logits."
        )
    return expit(z.reshape(len(z))) if one_column else softmax(z, axis=1)


def fit_temperature(logits: Output, labels: Output) -> float:
    """Find the temperature T that minimises the cross-entropy of labelled rows.

    ``T = argmin mean_i( log sum_k exp(z_ik / T) - z_i,y_i / T )``, which is convex in 1 / T, so
    that the root of its derivative is found by bisection.

    Parameters
    ----------
    logits : array-like of shape (n, K), (n,) or (n, 1)
        With one column, the logit of the second of two classes.
    labels : array-like of shape (n,)
        Integers from 0 to K - 1.

    Returns
    -------
    float
        At most 100, which it reaches if the logits contain no information about the labels.

    Examples
    --------
    >>> logits = np.log([[0.9, 0.1]] * 4)  # odds of nine to one, correct three times out of four
    >>> sharp = fit_temperature(logits, [0, 0, 0, 1])
    >>> probabilities(logits[:1], "softmax", sharp).round(6).tolist()
    [[0.75, 0.25]]
    """
    z, codes = _checked_sample(logits, labels)
    observed = z[np.arange(len(z)), codes]

    def slope(sharpness: float) -> float:
        expected = (softmax(sharpness * z, axis=1) * z).sum(axis=1)
        return float((expected - observed).mean())

    if slope(1.0 / HOTTEST) >= 0.0:
        return HOTTEST
    if slope(1.0 / COLDEST) <= 0.0:
        raise InvalidInputError(
            f"The cross-entropy of these {len(z)} rows has no minimum, because the logits are "
            "right on all of them, or almost. Pass more rows, and rows that the network was not "
            "trained on."
        )
    return 1.0 / float(brentq(slope, 1.0 / HOTTEST, 1.0 / COLDEST, xtol=1e-12))


def _checked_sample(logits: Output, labels: Output) -> tuple[Array, Integers]:
    z = np.asarray(without_mask(logits, "logits"), dtype=np.float64)
    if z.ndim == 1 or z.shape[1:] == (1,):
        z = np.column_stack([np.zeros(len(z)), z.reshape(len(z))])
    codes = np.asarray(without_mask(labels, "labels"))
    whole = codes.dtype.kind in "biu" and codes.shape == z.shape[:1] and z.ndim == 2
    if not whole or len(z) == 0 or codes.min() < 0 or codes.max() >= z.shape[1]:
        raise InvalidInputError(
            "fit_temperature takes logits (n, K) and n labels as whole numbers from 0 to K - 1; "
            f"received logits of shape {z.shape} and labels of shape {codes.shape} and "
            f"dtype {codes.dtype}: count the classes from zero."
        )
    if not np.isfinite(z).all():
        raise InvalidInputError("fit_temperature takes finite logits; some are NaN or infinite.")
    # The softmax does not change if a row is shifted, and this keeps large logits exact.
    return z - z.max(axis=1, keepdims=True), codes.astype(np.intp)


def checked_temperature(temperature: float, activation: Activation | None) -> float:
    """Check a temperature and the activation that it belongs to.

    >>> checked_temperature(2, "softmax")
    2.0
    """
    if activation not in (None, *get_args(Activation)):
        raise InvalidInputError(
            f"activation must be None, 'softmax' or 'sigmoid'; received {activation!r}."
        )
    number = isinstance(temperature, int | float | np.number)
    if not number or not isfinite(temperature) or temperature <= 0:
        raise InvalidInputError(
            f"temperature must be a finite number above zero; received {temperature!r}."
        )
    if activation is None and temperature != 1.0:
        raise InvalidInputError(
            "temperature= divides logits, so it needs activation='softmax' or 'sigmoid'; received "
            f"temperature={temperature!r} and activation=None."
        )
    return float(temperature)
