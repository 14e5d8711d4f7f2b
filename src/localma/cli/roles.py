"""Which column of a table is what: target, predictions, features, weight, group, time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from numpy.typing import NDArray

from localma.candidates import Candidate, Column
from localma.cli.app import wrong_call
from localma.cli.showing import note
from localma.cli.tables import no_column

SIGNS = "_-.: "
"""What may stand between the name of a model and that of a class."""


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
                raise wrong_call(f"{option}: {no_column(name, columns)}")
        for name in self.features or ():
            if name not in columns:
                raise wrong_call(f"--features: {no_column(name, columns)}")
        both = sorted(set(self.features or ()) & set(self.matched(columns)))
        if both:
            raise wrong_call(
                f"The gate does not see predictions: {both} cannot be under --features, too."
            )
        # A glob skips the target; its very name cannot be meant.
        if self.target in (*(self.features or ()), *self.predictions):
            raise wrong_call(
                f"The target {self.target!r} is what is to be predicted; it can be neither a "
                "feature nor a prediction."
            )

    def matched(self, columns: Sequence[str]) -> list[str]:
        """Columns that hold predictions, in the order of the table."""
        for pattern in self.predictions:
            if not any(name == pattern or fnmatchcase(name, pattern) for name in columns):
                raise wrong_call(f"--predictions: {no_column(pattern, columns)}")
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
    of one alone: of `positive`, else of the class that it is named after, else of the second.

    >>> import numpy as np
    >>> sorted(column_candidates(["a_no", "a_yes", "b_no", "b_yes"], np.array(["no", "yes"]), None))
    ['a', 'b']
    """
    if labels is None:
        return {name: Column(name) for name in columns}
    known = labels.tolist()
    groups = _by_class(columns, known)
    incomplete = groups is None or any(len(group) != len(known) for group in groups.values())
    if incomplete and len(known) != 2:
        few = ", ".join(repr(label) for label in known[:5]) + (", ..." if len(known) > 5 else "")
        raise wrong_call(
            f"With the {len(known)} classes {few}, --predictions needs columns named model_class, "
            f"one for each class of each model, such as {f'north_{known[0]}'!r}; received "
            f"{list(columns)}. Where the target is a number, say --task regression."
        )
    last = _positive(known, positive)
    if groups is None:
        order = sorted(known, key=lambda label: label == last)
        return {name: Column(name, classes=order) for name in columns}
    return {
        name: candidate
        for model, group in groups.items()
        for name, candidate in _of_model(model, group, known, last if positive else None)
    }


def are_complete(columns: Sequence[str], known: list[Any]) -> bool:
    """Whether columns are named model_class, with a column for each class of each model.

    >>> are_complete(["a_1", "a_2", "a_3"], [1, 2, 3]), are_complete(["a_1", "b"], [1, 2, 3])
    (True, False)
    """
    groups = _by_class(columns, known)
    return groups is not None and all(len(group) == len(known) for group in groups.values())


def _of_model(
    model: str, group: dict[Any, str], known: list[Any], positive: Any
) -> Iterator[tuple[str, Candidate]]:
    """The candidate of columns named after a model and classes; of one alone, by its name."""
    if len(group) == len(known):
        yield model, Column({label: group[label] for label in known})
        return
    for label, name in group.items():
        held = label if positive is None else positive
        if held != known[1]:
            note(f"{name!r} is taken for the probability of {held!r}; else say --positive.")
        yield name, Column(name, classes=sorted(known, key=lambda label: label == held))


def _positive(known: list[Any], asked: str | None) -> Any:
    """The class whose probability a column holds: the one asked for, or the last."""
    if asked is None:
        return known[-1]
    written = {str(label): label for label in known}
    if isinstance(known[0], bool):
        written |= {text.lower(): label for text, label in written.items()}
    if asked not in written:
        raise wrong_call(f"--positive must be one of {known}; received {asked!r}.")
    return written[asked]


def _by_class(columns: Sequence[str], known: list[Any]) -> dict[str, dict[Any, str]] | None:
    """Columns named model_class, or model.class and the like, grouped by model; else None.

    Where a model lacks a class, a sign must stand between its name and the class: a column "casino"
    is not named after the class "no".
    """
    groups: dict[str, dict[Any, str]] = {}
    for name in columns:
        found = [x for x in known if name.endswith(str(x)) and name[: -len(str(x))]]
        if not found:
            return None
        label = max(found, key=lambda x: len(str(x)))
        groups.setdefault(name[: -len(str(label))].rstrip(SIGNS), {})[label] = name
    apart = all(
        name.removesuffix(str(label)).endswith(tuple(SIGNS))
        for group in groups.values()
        if len(group) != len(known)
        for label, name in group.items()
    )
    return groups if apart else None
