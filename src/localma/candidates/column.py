"""Columns of X that contain predictions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from localma._types import AnyArray
from localma.candidates.base import Candidate
from localma.candidates.outputs import (
    Classes,
    Label,
    Labels,
    Output,
    Table,
    Task,
    check_saved_labels,
)
from localma.candidates.recipes import Recipe
from localma.errors import InvalidInputError
from localma.tables.frames import (
    ColumnKey,
    checked_columns,
    column_names,
    column_values,
    missing_column,
)


@dataclass(frozen=True, kw_only=True)
class ColumnRecipe(Recipe):
    """The columns and their classes."""

    kind = "column"
    needs_trust = False
    columns: list[ColumnKey]
    classes: list[Label] | None
    cost: float

    def make(self) -> Column:
        """Rebuild it. This runs no code of the recipe."""
        if self.classes is not None:
            check_saved_labels(self.classes)
        return Column(**self.options())


class Column(Candidate):
    """One or more columns of X that contain the predictions of a model.

    The gate and the other candidates do not get these columns. They stay aligned with X when X is
    split or sampled.

    Parameters
    ----------
    columns : str, int, list or dict
        The column, by name or integer position; a glob such as ``"pred_*"``, which is one candidate
        per matching column; a list of columns, one per output (or per class); or a mapping from
        class label to column.
    classes : array-like of shape (K,), optional
        In classification, labels of the columns in the order of `columns`. With one column and two
        classes the column holds the probability of the second.
    cost : float, default=1.0
        What a row costs, such as the price of a call. Only budgets use it: `budget=` in `predict`
        and `answer`, and `frontier`. It does not change the weights of a fit.

    Examples
    --------
    >>> X = np.array([[7.0, 0.25], [8.0, 0.5]])
    >>> Column(0).predict(X, "regression").tolist()
    [7.0, 8.0]
    >>> Column(1, classes=["no", "yes"]).predict(X, "classification").tolist()
    [[0.75, 0.25], [0.5, 0.5]]
    """

    kind = "column"
    _recipe_type = ColumnRecipe

    def __init__(
        self,
        columns: ColumnKey | Sequence[ColumnKey] | Mapping[Label, ColumnKey],
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
            classes, columns = list(columns), list(columns.values())
        self.columns = _checked_columns(columns)
        super().__init__(classes=classes, cost=cost)
        self.is_glob = len(self.columns) == 1 and not set("*?[").isdisjoint(str(self.columns[0]))
        _check_classes(self.columns, self.classes)

    def _answer(self, X: Table, task: Task) -> Output:
        if self.is_glob and self.columns[0] not in (column_names(X) or ()):
            raise InvalidInputError(
                f"Column({self.columns[0]!r}) is a glob, which stands for one candidate per "
                "matching column; expand the pool on X first."
            )
        values = [_numbers(column_values(X, column)) for column in self.columns]
        if len(values) == 1:
            return values[0]
        return np.column_stack(values)

    @property
    def label(self) -> str:
        """The names of the columns, joined."""
        return "+".join(f"column_{c}" if isinstance(c, int) else c for c in self.columns)

    def _model_identity(self) -> Hashable:
        return tuple(self.columns)

    def _missing_classes(self) -> str:
        return (
            "is a column of probabilities that does not state its classes: write "
            "Column('p_yes', classes=['no', 'yes']) for the probability of the second, or "
            "Column({'no': 'p_no', 'yes': 'p_yes'})."
        )

    def expand(self, name: str, X: Table) -> list[tuple[str, Candidate]]:
        """Return the candidates that it stands for.

        Parameters
        ----------
        name : str
            The name of the candidate.
        X : data frame of n rows
            The table in which a glob is looked up.

        Returns
        -------
        list of (str, Candidate)
            One candidate for each column that a glob matches, under the name of the column.
        """
        if not self.is_glob:
            return [(name, self)]
        pattern, names = str(self.columns[0]), column_names(X)
        if names is None:
            raise InvalidInputError(
                f"Column({pattern!r}) is a glob over column names, and a {type(X).__name__} has "
                "none: pass a data frame, or state columns by position."
            )
        if pattern in names:  # the name of a column contains a bracket or a star
            return [(name, self)]
        matches = [n for n in names if isinstance(n, str) and fnmatchcase(n, pattern)]
        if not matches:
            raise missing_column(pattern, names)
        return [(n, Column(n, classes=self.classes, cost=self.cost)) for n in matches]

    def prediction_columns(self) -> Sequence[ColumnKey]:
        """Return the columns.

        Returns
        -------
        list of str or int
            Names or positions.
        """
        return self.columns

    def picks_own_columns(self, X: Table) -> bool:
        """Return True: it takes prediction columns.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        bool
            True.
        """
        return True


def _checked_columns(columns: ColumnKey | Sequence[ColumnKey]) -> list[ColumnKey]:
    keys = list(columns) if isinstance(columns, list | tuple) else [columns]
    valid = [isinstance(key, str | int | np.integer) and not isinstance(key, bool) for key in keys]
    if not keys or not all(valid):
        raise InvalidInputError(
            "Column takes a column name, an integer position, a glob, a list of them or a "
            f"mapping from class label to column; received {columns!r}."
        )
    if len(set(keys)) < len(keys):
        raise InvalidInputError(f"Column takes each column once; received {columns!r}.")
    return checked_columns(keys, "columns")


def _check_classes(columns: Sequence[ColumnKey], classes: Labels | None) -> None:
    if classes is None or len(columns) == len(classes) or (len(columns), len(classes)) == (1, 2):
        return
    raise InvalidInputError(
        "Column needs one column per class, or for two classes one column with the probability "
        f"of the second; received {len(columns)} for the classes {classes.tolist()!r}."
    )


def _numbers(values: AnyArray) -> AnyArray:
    """Convert a column to numbers if possible: an array that also holds strings has objects."""
    if values.dtype.kind != "O":
        return values
    try:
        return values.astype(float)
    except (TypeError, ValueError):
        return values
