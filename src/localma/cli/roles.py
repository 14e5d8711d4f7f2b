"""Which column of a table is what: target, predictions, features, weight, group, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from numpy.typing import NDArray

from localma.candidates import Candidate, Column
from localma.cli.app import wrong_call
from localma.frames import missing_column


@dataclass(frozen=True)
class Roles:
    """Columns by their part in a fit.

    predictions : columns, or globs over their names; features : what the gate sees, None for all
    others.
    """

    target: str
    predictions: Sequence[str] = ()
    features: Sequence[str] | None = None
    weight: str | None = None
    group: str | None = None
    time: str | None = None

    def check(self, columns: Sequence[str]) -> None:
        """Refuse columns that the table does not have, and one column in two parts."""
        single = {"--target": self.target, "--weight": self.weight, "--group": self.group}
        stated = {**single, "--time": self.time}
        for option, name in stated.items():
            if name is not None and name not in columns:
                raise wrong_call(f"{option}: {missing_column(name, columns)}")
        for name in self.features or ():
            if name not in columns:
                raise wrong_call(f"--features: {missing_column(name, columns)}")
        both = sorted(set(self.features or ()) & set(self.matched(columns)))
        if both:
            raise wrong_call(
                f"The gate does not see predictions: {both} cannot be under --features, too."
            )
        if self.target in (self.features or ()) or self.target in self.matched(columns):
            raise wrong_call(
                f"The target {self.target!r} is what is to be predicted; it can be neither a "
                "feature nor a prediction."
            )

    def matched(self, columns: Sequence[str]) -> list[str]:
        """Columns that hold predictions, in the order of the table."""
        for pattern in self.predictions:
            if not any(name == pattern or fnmatchcase(name, pattern) for name in columns):
                raise wrong_call(f"--predictions: {missing_column(pattern, columns)}")
        return [
            name
            for name in columns
            if name != self.target
            and any(name == pattern or fnmatchcase(name, pattern) for pattern in self.predictions)
        ]

    def seen_by_gate(self, columns: Sequence[str]) -> list[str]:
        """Columns that the gate sees: those stated, or all without another part."""
        if self.features is not None:
            return list(self.features)
        taken = {self.target, self.weight, self.group, self.time, *self.matched(columns)}
        return [name for name in columns if name not in taken]


def column_candidates(
    columns: Sequence[str], labels: NDArray[Any] | None, positive: str | None
) -> dict[str, Candidate]:
    """Make candidates of prediction columns.

    labels : the classes, in order; None for a regression. With classes, columns named
    "model_class" for each class belong together; with two, a column may also hold the probability
    of the class `positive`, by default the second.

    >>> import numpy as np
    >>> sorted(column_candidates(["a_no", "a_yes", "b_no", "b_yes"], np.array(["no", "yes"]), None))
    ['a', 'b']
    """
    if labels is None:
        return {name: Column(name) for name in columns}
    whole = _by_class(columns, labels)
    if whole is not None:
        return whole
    if len(labels) != 2:
        raise wrong_call(
            f"With the classes {labels.tolist()}, --predictions needs columns named model_class, "
            f"one for each class of each model, such as {f'north_{labels[0]}'!r}; received "
            f"{list(columns)}."
        )
    order = _ordered(labels, positive)
    return {name: Column(name, classes=order) for name in columns}


def _ordered(labels: NDArray[Any], positive: str | None) -> list[Any]:
    """Two classes, the one whose probability a column holds last."""
    known = labels.tolist()
    if positive is None:
        return known
    if positive not in map(str, known):
        raise wrong_call(f"--positive must be one of {known}; received {positive!r}.")
    return sorted(known, key=lambda label: str(label) == positive)


def _by_class(columns: Sequence[str], labels: NDArray[Any]) -> dict[str, Candidate] | None:
    """Columns named model_class, or model.class and the like, grouped by model."""
    groups: dict[str, dict[Any, str]] = {}
    for name in columns:
        found = [x for x in labels.tolist() if name.endswith(str(x)) and name[: -len(str(x))]]
        if not found:
            return None
        label = max(found, key=lambda x: len(str(x)))
        model = name[: -len(str(label))].rstrip("_-.: ")
        groups.setdefault(model, {})[label] = name
    if any(len(group) != len(labels) for group in groups.values()):
        return None
    return {
        model: Column({label: group[label] for label in labels.tolist()})
        for model, group in groups.items()
    }
