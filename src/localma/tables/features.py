"""What the gate sees of X: all but the prediction columns, some columns, or a function of X."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_array

from localma.errors import FileFormatError, InvalidInputError
from localma.imports import import_name, import_object
from localma.storage.array_file import shown
from localma.tables.encoder import TableEncoder
from localma.tables.frames import (
    ArrowRows,
    ColumnKey,
    checked_columns,
    column_names,
    column_values,
    dense,
    drop_columns,
    holds_dates,
    is_table,
    n_rows,
    pick_columns,
    positions_of,
)

Array = NDArray[np.floating]

_FLOATS = [np.float64, np.float32]


class GateFeatures:
    """The inputs of the gate, the same at fit and at prediction: numbers, unless it takes others.

    Parameters
    ----------
    spec : None, a list of columns, a scikit-learn transformer, or a function of X
        None means every column that holds no candidate's predictions. A transformer is
        cloned and fitted on X without those columns.
    hidden : columns that hold candidates' predictions, which the gate does not see by default.
    raw : whether the gate takes inputs that are no table: lists, tensors, data sets.
    needed : whether the gate looks at its inputs; if not, it gets none, be they what they may.
    """

    def __init__(
        self,
        spec: Any = None,
        hidden: Collection[ColumnKey] = (),
        *,
        raw: bool = False,
        needed: bool = True,
    ) -> None:
        self.spec = spec
        self.needed = needed
        self.raw = raw
        self.hidden = tuple(hidden)
        self.columns: list[ColumnKey] | None = None
        self.transformer: Any = None
        if isinstance(spec, str | int | np.integer):
            self.columns = [spec if isinstance(spec, str) else int(spec)]
        elif isinstance(spec, list | tuple | np.ndarray):
            self.columns = checked_columns(spec, "gate_features")
        elif spec is not None and not hasattr(spec, "transform") and not callable(spec):
            raise InvalidInputError(
                "gate_features must be None, a list of columns, a transformer or a function "
                f"of X; received {spec!r}."
            )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a clone of the transformer, where there is one."""
        if hasattr(self.spec, "transform"):
            transformer: Any = clone(self.spec)
            self.transformer = transformer.fit(drop_columns(X, self.hidden), y)
        return self

    def transform(self, X: Any, in_parts: bool = False) -> Any:
        """Inputs of the gate: (n, p), finite numbers; or n rows of any kind, if it takes those.

        in_parts : whether Arrow's columns may stay where they are, as `ArrowRows`.
        Where no `spec` selects them, an array X is one that scikit-learn's `validate_data` passed.
        """
        if not self.needed:
            return np.empty((n_rows(X), 0))
        selected = self._select(X)
        if self.raw:
            selected = _texts_of(selected)
        if self.raw and not is_table(selected):
            features = selected
        else:
            checked = self.spec is None and isinstance(X, np.ndarray)
            features = ArrowRows.of(selected) if in_parts else None
            if features is None:
                features = self._numeric(selected, checked)
        if n_rows(features) != n_rows(X):
            raise InvalidInputError(
                f"gate_features must give one row per row of X; it gave {n_rows(features)} "
                f"for {n_rows(X)}."
            )
        return features

    def named_inputs(self, inputs: Array, X: Any) -> tuple[list[str], Array]:
        """Inputs of the gate with the names that people know: names, and numbers (n, p).

        A name may stand for several numbers; categories of a `TableEncoder` are one number.
        """
        if isinstance(self.transformer, TableEncoder):
            return self.transformer.by_source(inputs)
        return self.input_names(X, inputs.shape[1]), inputs

    def input_names(self, X: Any, n: int) -> list[str]:
        """Names of the n inputs of the gate, by the columns of X if they come from them.

        >>> GateFeatures(None, [1]).input_names(np.zeros((1, 3)), 2)
        ['x0', 'x2']
        """
        names = self._names_by_spec(X)
        return names if len(names) == n else [f"input {place}" for place in range(n)]

    def _names_by_spec(self, X: Any) -> list[str]:
        """Names of what `_select` gives, as far as they can be known."""
        if self.spec is not None and self.columns is None:
            named = getattr(self.transformer, "get_feature_names_out", None)
            with suppress(Exception):  # of a transformer that does not know its inputs' names
                return [str(name) for name in named()] if named is not None else []
            return []
        if not hasattr(X, "shape"):
            return []
        known = column_names(X) or [f"x{place}" for place in range(X.shape[1])]
        if self.columns is not None:
            return [str(known[place]) for place in positions_of(X, self.columns)]
        hidden = set(positions_of(X, list(self.hidden)))
        return [str(name) for place, name in enumerate(known) if place not in hidden]

    def recipe(self) -> dict[str, Any]:
        """Describe it in JSON; a transformer or a nameless function must be given again."""
        recipe: dict[str, Any] = {"hidden": sorted(self.hidden, key=str)}
        if self.columns is not None:
            return {"kind": "columns", "columns": self.columns, **recipe}
        if self.spec is None:
            return {"kind": "all", **recipe}
        if isinstance(self.transformer, TableEncoder):
            return {"kind": "table", "table": self.transformer.recipe(), **recipe}
        name = None if self.transformer is not None else import_name(self.spec)
        if name is not None:
            return {"kind": "function", "import": name, **recipe}
        return {"kind": "attach", "what": repr(self.spec), **recipe}

    @classmethod
    def from_recipe(cls, recipe: dict[str, Any]) -> Self:
        """Rebuild from a recipe; follows an import name, so trusted recipes only."""
        known = {"all": None, "columns": "columns", "function": "import", "table": "table"}
        kind, hidden = recipe.get("kind"), recipe.get("hidden")
        if (
            not isinstance(kind, str)
            or kind not in known
            or set(recipe) - {"kind", "hidden"} != ({known[kind]} - {None})
        ):
            raise FileFormatError(f"The inputs of the gate have an unknown form: {shown(recipe)}.")
        hidden = _saved_columns(hidden)
        if kind == "function":
            return cls(import_object(str(recipe["import"])), hidden)
        if kind == "table":
            return cls.attached(TableEncoder.from_recipe(recipe["table"]), hidden)
        return cls(_saved_columns(recipe["columns"]) if kind == "columns" else None, hidden)

    @classmethod
    def attached(cls, spec: Any, hidden: Collection[ColumnKey]) -> Self:
        """Take a function, or a transformer that is fitted already, as it is."""
        features = cls(spec, hidden)
        if hasattr(spec, "transform"):
            features.transformer = spec
        return features

    def _select(self, X: Any) -> Any:
        if self.columns is not None:
            return pick_columns(X, self.columns)
        visible = drop_columns(X, self.hidden)
        if self.transformer is not None:
            return self.transformer.transform(visible)
        return visible if self.spec is None else self.spec(visible)

    def _numeric(self, selected: Any, checked: bool) -> Array:
        if getattr(selected, "ndim", 2) == 1:
            selected = dense(selected)[:, None]
        if _has_no_column(selected):
            raise InvalidInputError(
                "The gate has no column to see: "
                + (
                    "every column of X holds predictions"
                    if self.spec is None
                    else "gate_features selects none"
                )
                + ". Add columns that describe the inputs, pass gate_features=, or choose "
                "gate='global', which needs none."
            )
        refuse_dates(selected)
        if checked:
            kept = selected.dtype in _FLOATS or (self.raw and selected.dtype.kind in "biu")
            return selected if kept else selected.astype(np.float64)
        # Integers may be tokens, which a gate that takes anything wants as they are.
        dtype = "numeric" if self.raw else _FLOATS
        try:
            values = dense(selected)
            if holds_dates(values):
                raise TypeError("dates and durations")
            return np.asarray(check_array(values, dtype=dtype, input_name="X"))
        except (ValueError, TypeError) as error:
            faults = list(_faults_of_columns(selected))
            if not faults:
                raise
            more = f", and {len(faults) - 3} more columns have faults" if len(faults) > 3 else ""
            raise InvalidInputError(
                f"The gate needs finite numbers: {', '.join(faults[:3])}{more}. Pass "
                "gate_features=TableEncoder(), which encodes categories, dates and missing "
                "values, a list of numeric columns, or any other transformer."
            ) from error


def refuse_dates(X: Any) -> None:
    """Refuse an array or a list of dates or durations, which a gate would take for numbers.

    >>> refuse_dates(np.zeros((3, 2)))
    """
    if holds_dates(X):
        raise InvalidInputError(
            "The gate needs numbers, and X holds dates or durations. Pass a data frame and "
            "gate_features=TableEncoder(), which encodes dates, or turn them into numbers."
        )


def _saved_columns(columns: Any) -> list[ColumnKey]:
    if not isinstance(columns, list):
        raise FileFormatError(f"Columns of a file are a list; received {shown(columns)}.")
    return checked_columns(columns, "The columns of a file")


def _has_no_column(selected: Any) -> bool:
    return bool(getattr(selected, "shape", (0, 1))[1:] == (0,))


def _texts_of(selected: Any) -> Any:
    """The texts of a frame, its column "text" or its only one, as a list; else what it is."""
    names = column_names(selected) or []
    column = names[0] if len(names) == 1 else "text"
    if column not in names:
        return selected
    values = column_values(selected, column)
    return selected if _as_numbers(values) is not None else values.tolist()


def _faults_of_columns(selected: Any) -> Iterator[str]:
    """Say of each column of a frame that is not all finite numbers what is wrong with it."""
    for position, name in enumerate(column_names(selected) or []):
        values = dense(pick_columns(selected, [position])).ravel()
        numbers = _as_numbers(values)
        if numbers is None:
            yield f"column {name!r} holds {_described(values)}"
        elif not np.isfinite(numbers).all():
            count = int((~np.isfinite(numbers)).sum())
            yield f"column {name!r} is missing or infinite in {count} of {len(numbers)} rows"


def _described(values: NDArray[Any]) -> str:
    if values.dtype.kind in "mM":
        return "dates or durations"
    word = next((value for value in values if not _reads_as_number(value)), values[0])
    return f"values such as {str(word)!r}"


def _reads_as_number(value: object) -> bool:
    return _as_numbers(np.array([value], dtype=object)) is not None


def _as_numbers(values: NDArray[Any]) -> Array | None:
    """Values as numbers, which dates and durations are not; None if they are none."""
    if values.dtype.kind in "mM":
        return None
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError):
        return None
