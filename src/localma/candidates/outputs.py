"""From what a model returned to checked predictions: classes, outputs, names and shapes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from localma.errors import CandidateError, FileFormatError, InvalidInputError, unknown_name
from localma.folds import is_missing
from localma.storage.array_file import shown
from localma.tables.frames import column_names, dense, readable_tensor

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame, IntoSeries
    from scipy.sparse import sparray, spmatrix

Array = NDArray[np.floating]
Labels = NDArray[Any]
Names = tuple[str, ...]
Table: TypeAlias = (
    "NDArray[np.generic] | IntoDataFrame | IntoSeries | sparray | spmatrix | Sequence[object]"
)
"""The inputs X: n rows of an array, a data frame, a sparse matrix, or n objects."""
Classes: TypeAlias = "Sequence[str] | Sequence[float] | NDArray[np.generic]"
"""K class labels, all strings or all numbers, as users give them."""
Task = Literal["regression", "classification"]
Rows = Sequence[int] | NDArray[np.intp]
"""What errors call the rows that a candidate was given."""
MOST_LABEL_BYTES = 2**24
"""Memory that the labels of a file may take: NumPy gives each as much as the longest needs."""
SUM_TOLERANCE = 1e-3  # a float32 softmax over a thousand classes stays well within
LEAST_SUM, GREATEST_SUM = 1.0 - SUM_TOLERANCE, 1.0 + SUM_TOLERANCE
ROUNDING = 1e-6  # 1 - p of a probability that float32 rounded up is this little below zero


# Names of candidates: strings, each once.


def check_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Refuse names that are no strings or that stand there twice.

    >>> check_names(["north", "south"])
    ('north', 'south')
    """
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(
                f"Names of candidates must be strings that are not empty; received {name!r} "
                f"({type(name).__name__})."
            )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(
            f"Names of candidates must differ; {twice[0]!r} is there {names.count(twice[0])} "
            "times: rename all but one."
        )
    return names


def made_unique(labels: Sequence[str]) -> tuple[str, ...]:
    """Number the labels that are there more than once, as scikit-learn does for pipelines.

    >>> made_unique(["ridge", "tree", "tree"])
    ('ridge', 'tree-1', 'tree-2')
    """
    count, seen = Counter(labels), Counter[str]()
    names = []
    for label in labels:
        seen[label] += 1
        names.append(f"{label}-{seen[label]}" if count[label] > 1 else label)
    return tuple(names)


def numbered(n_candidates: int) -> tuple[str, ...]:
    """Names for the columns of an array that has none.

    >>> numbered(2)
    ('candidate_0', 'candidate_1')
    """
    return tuple(f"candidate_{m}" for m in range(n_candidates))


def check_same_names(received: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse predictions under other names than the candidates', in whatever order."""
    for name in received:
        if name not in expected:
            raise unknown_name("candidate", name, expected)
    missing = [name for name in expected if name not in received]
    if missing:
        listed = ", ".join(repr(name) for name in missing)
        raise InvalidInputError(
            f"predictions must have every candidate; {listed} missing: add the predictions of "
            "these candidates, or fit again without them."
        )


# Class labels: their kinds, their union, and aligning probabilities by label.


def as_labels(classes: Any) -> Labels:
    """Class labels as an array of strings or of numbers, each once: (K,).

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
    # NumPy turns [0, "yes"] into strings without a word.
    if labels.dtype.kind == "U" and not all(isinstance(label, str) for label in classes):
        raise InvalidInputError(
            f"classes must be all strings or all numbers; received {list(classes)!r}."
        )
    return labels


def check_saved_labels(labels: Any, width: int = 0) -> None:
    """Refuse labels of a file that are not a list, or would take too much memory as an array.

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
    kinds = {type(label) for label in labels.ravel().tolist()}
    if all(issubclass(kind, str) for kind in kinds):
        return labels.astype(str)
    if all(issubclass(kind, bool | int | float) for kind in kinds):
        return np.asarray(labels.tolist())
    return labels


def union_of_classes(classes: Mapping[str, Labels]) -> Labels:
    """Sorted union of the classes of several candidates: (K,).

    >>> union_of_classes({"a": as_labels([2, 1]), "b": as_labels([3, 1])}).tolist()
    [1, 2, 3]
    """
    strings = [name for name, labels in classes.items() if labels.dtype.kind == "U"]
    if strings and len(strings) < len(classes):
        number = next(name for name in classes if name not in strings)
        raise InvalidInputError(
            "Candidates must name their classes alike, all with strings or all with numbers; "
            f"candidate {strings[0]!r} knows {listed(classes[strings[0]])} and candidate "
            f"{number!r} knows {listed(classes[number])}: rename the classes of one of them with "
            "as_candidate(model, classes=[...])."
        )
    return np.unique(np.concatenate(list(classes.values())))


def places_of(own: Labels, classes: Labels) -> NDArray[np.intp] | None:
    """Where each own class stands in `classes`; None if the two are the same.

    >>> places_of(as_labels(["b", "a"]), as_labels(["a", "b", "c"])).tolist()
    [1, 0]
    """
    if np.array_equal(own, classes):
        return None
    places = {label: place for place, label in enumerate(classes.tolist())}
    return np.array([places[label] for label in own.tolist()], dtype=np.intp)


def align(probabilities: Array, places: NDArray[np.intp] | None, n_classes: int) -> Array:
    """Put each column at the place of its class, with zero for the classes that are not there.

    probabilities : (n, K_own), places : (K_own,) -> (n, K).

    >>> align(np.array([[0.25, 0.75]]), np.array([2, 0]), 3).tolist()
    [[0.75, 0.0, 0.25]]
    """
    if places is None:
        return probabilities
    aligned = np.zeros((len(probabilities), n_classes))
    aligned[:, places] = probabilities
    return aligned


def unknown_classes(own: Iterable[Any], classes: Labels) -> list[Any]:
    """Those of `classes` that are not among a candidate's own."""
    known = set(own)
    return [label for label in classes.tolist() if label not in known]


def are_numbers_from_zero(labels: Labels) -> bool:
    """Whether sorted labels (K,) are the integers 0 to K - 1, as an encoder of labels gives them.

    >>> are_numbers_from_zero(np.array([0, 1, 2])), are_numbers_from_zero(np.array([1, 2]))
    (True, False)
    """
    return labels.dtype.kind in "iu" and np.array_equal(labels, np.arange(len(labels)))


def check_no_label_missing(y: Any) -> None:
    """Refuse labels (n,) of which some are None, NaN or the NA of pandas.

    >>> check_no_label_missing(["no", "yes"])
    """
    # NumPy turns ["no", nan] into strings without a word.
    given = np.asarray(y, dtype=object if isinstance(y, list | tuple) else None)
    if given.ndim == 0 or given.size == 0 or given.dtype.kind not in "Of":
        return
    labels = given.reshape(len(given), -1)[:, :1].ravel()
    missing = (
        [is_missing(label) for label in labels] if labels.dtype == object else labels != labels
    )
    rows = np.flatnonzero(missing)
    if len(rows):
        raise InvalidInputError(
            f"Every row needs a label; {len(rows)} of {len(given)} have none in y, first in row "
            f"{rows[0]}: leave those rows out."
        )


def warn_unknown_classes(missing: Mapping[str, Sequence[Any]]) -> None:
    """Give one warning for all classes that some candidate does not know, if there are any."""
    parts = [
        f"candidate {name!r} does not know the class{'es' if len(labels) > 1 else ''} "
        f"{listed(labels)}"
        for name, labels in missing.items()
        if labels
    ]
    if parts:
        text = "; ".join(parts)
        warnings.warn(
            f"C{text[1:]}: a class that a candidate does not know gets probability zero from it.",
            UserWarning,
            stacklevel=3,
        )


def listed(labels: Any) -> str:
    """Labels as they stand in a message.

    >>> listed(as_labels(["no", "yes"]))
    "'no', 'yes'"
    """
    return ", ".join(repr(label) for label in np.asarray(labels).tolist())


# Several outputs: columns of data frames go by name, those of arrays by position.


class OutputNames:
    """The order of K outputs, where some data frame names them.

    Parameters
    ----------
    names : K names in their order; None takes those of the first data frame that has some.
    of : whose they are, for the error.
    by_alphabet : whether names that are taken from a data frame are put in alphabetical order.

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
        self.names: Names | None = None if names is None else tuple(names)
        self.of, self.by_alphabet = of, by_alphabet

    @classmethod
    def of_target(cls, y: Any) -> OutputNames:
        """Those of y, if it is a data frame of several named columns; else none yet."""
        return cls(names_of_outputs(y, "y"), "y")

    def arranged(self, values: Any, of: str) -> Any:
        """Columns of a data frame in this order: (n, K); anything without names as it is.

        values : what somebody said of n rows; of : who, for the error.
        """
        names = names_of_outputs(values, of)
        return values if names is None else self.put_in_order(dense(values), names, of)

    def put_in_order(self, values: Any, names: Names | None, of: str) -> Any:
        """Columns (n, K) with these names in this order, which they set if there is none yet."""
        if names is None:
            return values
        if self.names is None:
            self.names, self.of = tuple(sorted(names)) if self.by_alphabet else names, of
        if sorted(names) != sorted(self.names):
            raise InvalidInputError(
                f"The outputs of {of} are named {listed(names)}, and those of {self.of} "
                f"{listed(self.names)}; named outputs are put together by name: rename the "
                "columns, or give an array, whose columns are taken in the order "
                f"{listed(self.names)}."
            )
        if names == self.names:
            return values
        return values[:, [names.index(name) for name in self.names]]


def names_of_outputs(values: Any, of: str) -> Names | None:
    """Names of a data frame's columns, if there are several, all strings, and somebody's choice.

    >>> names_of_outputs([[1.0, 2.0]], "y") is None
    True
    """
    names = column_names(values)
    if names is None or len(names) < 2 or not all(isinstance(name, str) for name in names):
        return None
    if names in ([f"column_{k}" for k in range(len(names))], [*map(str, range(len(names)))]):
        return None  # those of polars, and of numbers in a file, where nobody gave any
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(
            f"The outputs of {of} must have different names; {twice!r} is there more than once: "
            "rename them, or pass an array."
        )
    return tuple(names)


# Predictions: real, finite, one row per row, probabilities that sum to one.


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


def check_not_reordered(output: Any, X: Table, name: str) -> None:
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
