"""Class labels: what they may be, their union, and aligning probabilities by label."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import FileFormatError, InvalidInputError
from localma.folds import is_missing
from localma.storage.array_file import shown

Array = NDArray[np.floating]
Labels = NDArray[Any]


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


MOST_LABEL_BYTES = 2**24
"""Memory that the labels of a file may take: NumPy gives each as much as the longest needs."""


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
