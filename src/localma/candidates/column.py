"""Columns of X that already hold predictions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np

from localma.candidates.base import Candidate, FieldTypes, Recipe
from localma.candidates.outputs import Classes, Table, Task, check_saved_labels
from localma.errors import InvalidInputError
from localma.tables.frames import (
    ColumnKey,
    column_names,
    column_values,
    missing_column,
)


class Column(Candidate):
    """A column of X, or several, that already hold a model's predictions.

    The gate and the other candidates do not see these columns, and everything that slices X
    slices them with it.

    Parameters
    ----------
    columns : the column, by name or integer position; a glob such as ``"pred_*"``, which is one
        candidate per matching column; a list of columns, one per output (or per class); or a
        mapping from class label to column.
    classes : in classification, labels of the columns in the order of `columns`. With one column
        and two classes the column holds the probability of the second.
    cost : a number to record, such as the price of a call. The summary and the report show it;
        it changes neither weights nor predictions.

    Examples
    --------
    >>> X = np.array([[7.0, 0.25], [8.0, 0.5]])
    >>> Column(0).predict(X, "regression").tolist()
    [7.0, 8.0]
    >>> Column(1, classes=["no", "yes"]).predict(X, "classification").tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    """

    kind = "column"
    needs_trust = False
    fields: ClassVar[FieldTypes] = {
        "columns": (list,),
        "classes": (list, type(None)),
        "cost": (int, float),
    }

    def __init__(
        self,
        columns: ColumnKey | Sequence[ColumnKey] | Mapping[Any, ColumnKey],
        *,
        classes: Classes | None = None,
        cost: float = 1.0,
    ) -> None:
        if isinstance(columns, Mapping):
            if classes is not None:
                raise InvalidInputError(
                    "A Column that maps class labels to columns takes no classes=; "
                    f"received classes={classes!r}."
                )
            labels: list[Any] = list(columns)
            columns, classes = list(columns.values()), labels
        self.columns = _checked_columns(columns)
        super().__init__(classes=classes, cost=cost)
        self.is_glob = len(self.columns) == 1 and _has_wildcard(self.columns[0])
        _check_classes(self.columns, self.classes)

    def _answer(self, X: Table, task: Task) -> Any:
        if self.is_glob and self.columns[0] not in (column_names(X) or ()):
            raise InvalidInputError(
                f"Column({self.columns[0]!r}) is a glob, which stands for one candidate per "
                "matching column; expand the pool on X first."
            )
        values = [_numbers(column_values(X, column)) for column in self.columns]
        return values[0] if len(values) == 1 else np.column_stack(values)

    @property
    def label(self) -> str:
        """The names of the columns, joined."""
        parts = [c if isinstance(c, str) else f"column_{c}" for c in self.columns]
        return "+".join(parts)

    def _model_identity(self) -> Hashable:
        return tuple(self.columns)

    def check_task(self, task: Task, name: str) -> None:
        """Refuse classification without classes, and regression with them."""
        if task == "classification" and self.classes is None:
            raise InvalidInputError(
                f"Candidate {name!r} is a column of probabilities that does not state its "
                "classes: write Column('p_yes', classes=['no', 'yes']) for the probability of "
                "the second, or Column({'no': 'p_no', 'yes': 'p_yes'})."
            )
        if task == "regression" and self.classes is not None:
            raise InvalidInputError(
                f"Candidate {name!r} states classes {self.classes.tolist()!r}, which a regression "
                "does not have: leave out classes=, or use LocalMAClassifier."
            )

    def expand(self, name: str, X: Table) -> list[tuple[str, Candidate]]:
        """One candidate per column of X that the glob matches, under the column's name."""
        if not self.is_glob:
            return [(name, self)]
        pattern, names = str(self.columns[0]), column_names(X)
        if names is None:
            raise InvalidInputError(
                f"Column({pattern!r}) is a glob over column names, and a {type(X).__name__} has "
                "none: pass a data frame, or state columns by position."
            )
        if pattern in names:  # a column whose name happens to hold a bracket or a star
            return [(name, self)]
        found = [n for n in names if isinstance(n, str) and fnmatchcase(n, pattern)]
        if not found:
            raise missing_column(pattern, names)
        return [(n, Column(n, classes=self.classes, cost=self.cost)) for n in found]

    def picks_own_columns(self, X: Table) -> bool:
        """Always: these are the prediction columns themselves."""
        return True

    def recipe(self) -> Recipe:
        """The columns and their classes."""
        return {
            "kind": self.kind,
            "columns": list(self.columns),
            "classes": None if self.classes is None else self.classes.tolist(),
            "cost": self.cost,
        }

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> Column:
        """Rebuild it; no code of anybody's runs."""
        if recipe["classes"] is not None:
            check_saved_labels(recipe["classes"])
        return cls(recipe["columns"], classes=recipe["classes"], cost=recipe["cost"])


def _checked_columns(columns: Any) -> list[ColumnKey]:
    one = isinstance(columns, str | int | np.integer)
    listed = [columns] if one else list(columns) if isinstance(columns, list | tuple) else []
    valid = [isinstance(c, str | int | np.integer) and not isinstance(c, bool) for c in listed]
    if not listed or not all(valid):
        raise InvalidInputError(
            "Column takes a column name, an integer position, a glob, a list of them or a "
            f"mapping from class label to column; received {columns!r}."
        )
    if len(set(listed)) < len(listed):
        raise InvalidInputError(f"Column takes each column once; received {columns!r}.")
    return [c if isinstance(c, str) else int(c) for c in listed]


def _has_wildcard(column: ColumnKey) -> bool:
    return isinstance(column, str) and any(character in column for character in "*?[")


def _check_classes(columns: Sequence[ColumnKey], classes: Any) -> None:
    if classes is None or len(columns) == len(classes) or (len(columns), len(classes)) == (1, 2):
        return
    raise InvalidInputError(
        "Column needs one column per class, or for two classes one column with the probability "
        f"of the second; received {len(columns)} for the classes {classes.tolist()!r}."
    )


def _numbers(values: Any) -> Any:
    """Read numbers out of a column of an array that also holds strings."""
    if values.dtype.kind != "O":
        return values
    try:
        return values.astype(float)
    except (TypeError, ValueError):
        return values
