"""Any table as numbers for the gate: categories, dates and missing values, saved without pickle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from localma.errors import FileFormatError, InvalidInputError
from localma.imports import import_name, import_object
from localma.storage.array_file import shown
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
    missing_column,
    n_rows,
    pick_columns,
    positions_of,
    to_narwhals,
)

Array = NDArray[np.floating]

MOST_LEVELS = 30
"""Categories that get a column of their own; the rarest share none, as unseen ones do."""
FEWEST_ROWS = 5
"""Rows that a category must have to get a column of its own."""
EXACT = 2**53
"""Whole numbers beyond are not exact as floating numbers."""
CYCLES = {"year": 365.2425, "week": 7.0}
"""Days after which dates come round again."""
LARGEST_FILL = float(np.finfo(np.float64).max)
DATE_PARTS = ("day", *CYCLES)
"""What becomes of a date: its day, and where it stands in the year and in the week."""


@dataclass(frozen=True)
class EncodedColumn:
    """How one column becomes numbers.

    kind : "number", "truth", "category" or "date"; fill : what a missing number or day becomes;
    has_missing : whether a column says that it was missing; levels : categories with a column;
    has_others : whether there were other categories, too rare for one; parts : what of a date.
    """

    name: str
    kind: str
    fill: float = 0.0
    has_missing: bool = False
    levels: list[str] = field(default_factory=list)
    has_others: bool = True
    parts: list[str] = field(default_factory=lambda: list(DATE_PARTS))

    @property
    def names(self) -> list[str]:
        """Names of the numbers that it becomes."""
        flag = [f"{self.name} is missing"] if self.has_missing else []
        if self.kind == "category":
            return [f"{self.name} is {level}" for level in self.levels] + flag
        if self.kind == "date":
            return [name for part in self.parts for name in _date_names(self.name, part)] + flag
        return [self.name, *flag]

    def encode(self, series: Any) -> Array:
        """Numbers of a column: (n, number of names)."""
        missing = _missing(series)
        flag = [missing.astype(np.float64)] if self.has_missing else []
        if self.kind == "category":
            texts = np.array(_texts(series), dtype=object)
            parts = [((texts == level) & ~missing).astype(np.float64) for level in self.levels]
        elif self.kind == "date":
            days = np.where(missing, self.fill, _days(series, self.name))
            parts = [number for part in self.parts for number in _date_numbers(days, part)]
        else:
            parts = [np.where(missing, self.fill, _numbers(series, self.name))]
        return np.column_stack([*parts, *flag]) if parts or flag else np.empty((len(missing), 0))


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn the columns of a data frame into finite numbers, for `gate_features`.

    Numbers and truth values stay as they are, missing ones become the median. A category becomes a
    column per frequent level; a date its day, and where it stands in the year and in the week.
    Where rows come in the order of a date, its day is left out, since later rows would lie outside
    of all days, and so are cycles that the sample has not been through. Whether a value was missing
    is a column of its own where that happened. Columns that say nothing about new rows are left
    out, in `left_out_`: constants, numbers of rows, and texts that are nearly all different.

    Unlike other transformers it is saved with the model, and needs no trust.

    Parameters
    ----------
    features : list of str, optional
        The columns to use; by default all.

    Attributes
    ----------
    columns_ : list of EncodedColumn
    left_out_ : dict of str -> str
        Columns that are not used, and why.

    Examples
    --------
    >>> import polars
    >>> table = polars.DataFrame({"area": [50.0, None, 80.0], "city": ["a", "b", "a"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['area', 'area is missing']
    >>> encoder.transform(table).tolist()
    [[50.0, 0.0], [65.0, 1.0], [80.0, 0.0]]
    """

    def __init__(self, features: list[str] | None = None) -> None:
        self.features = features

    def fit(self, X: Any, y: Any = None) -> Self:
        """Look at the columns of a data frame with n rows."""
        frame = _frame(X)
        wanted = list(frame.columns) if self.features is None else _column_list(self.features)
        self.left_out_: dict[str, str] = {}
        self.columns_: list[EncodedColumn] = []
        for name in wanted:
            column = _look_at(name, _column(frame, name))
            if isinstance(column, str):
                self.left_out_[name] = column
            else:
                self.columns_.append(column)
        return self

    def transform(self, X: Any) -> Array:
        """Numbers: (n, p)."""
        check_is_fitted(self)
        frame = _frame(X)
        parts = [column.encode(_column(frame, column.name)) for column in self.columns_]
        return np.hstack([np.empty((len(frame), 0)), *parts])

    def unfamiliar(self, X: Any) -> dict[str, int]:
        """Count rows with what the sample had not: a missing value, or a category, by its column.

        Both become numbers as any value does, a missing one the median, so the numbers do not tell.
        """
        check_is_fitted(self)
        frame = _frame(X)
        found = {}
        for column in self.columns_:
            missing = _missing(_column(frame, column.name))
            if missing.any() and not column.has_missing:
                found[f"{column.name!r} is missing, as it never was in the sample"] = missing.sum()
            if column.kind == "category" and not column.has_others:
                others = ~missing & ~np.isin(_texts(frame[column.name]), column.levels)
                if others.any():
                    found[f"{column.name!r} is a category that the sample has not"] = others.sum()
        return {what: int(count) for what, count in found.items()}

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the numbers: (p,)."""
        check_is_fitted(self)
        return np.array([name for column in self.columns_ for name in column.names], dtype=object)

    def by_source(self, numbers: Array) -> tuple[list[str], Array]:
        """Put categories together again: names of their columns, and numbers (n, fewer than p).

        A category becomes the number of its level; a date or a missing value keeps its numbers,
        under the name of its column.

        >>> import polars
        >>> encoder = TableEncoder().fit(polars.DataFrame({"city": ["a"] * 6 + ["b"] * 6}))
        >>> encoder.by_source(np.array([[1.0, 0.0], [0.0, 1.0]]))
        (['city'], array([[1.],
               [2.]]))
        """
        names: list[str] = []
        columns: list[Array] = []
        start = 0
        for column in self.columns_:
            block = numbers[:, start : start + len(column.names)]
            start += len(column.names)
            if column.kind == "category":
                block = block @ np.arange(1.0, block.shape[1] + 1)[:, np.newaxis]
            names += [column.name] * block.shape[1]
            columns.append(block)
        return names, np.hstack([np.empty((len(numbers), 0)), *columns])

    def recipe(self) -> dict[str, Any]:
        """What was learnt, in JSON."""
        check_is_fitted(self)
        return {"columns": [asdict(c) for c in self.columns_], "left_out": self.left_out_}

    @classmethod
    def from_recipe(cls, recipe: Any) -> Self:
        """Take back what `recipe` gave; no code of anybody's runs."""
        encoder = cls()
        if not isinstance(recipe, dict) or set(recipe) != {"columns", "left_out"}:
            raise _unknown_form(recipe)
        columns, left_out = recipe["columns"], recipe["left_out"]
        if not isinstance(columns, list) or not isinstance(left_out, dict):
            raise _unknown_form(recipe)
        encoder.columns_ = [_restored(column) for column in columns]
        encoder.left_out_ = {name: str(reason)[:200] for name, reason in left_out.items()}
        used = [column.name for column in encoder.columns_]
        encoder.features = [*used, *left_out]  # for a refit
        if len(set(encoder.features)) < len(encoder.features):
            raise _unknown_form(recipe)
        return encoder


def _unknown_form(saved: Any) -> FileFormatError:
    return FileFormatError(
        f"The encoding of the gate's inputs has an unknown form: {shown(saved)}. Save the model "
        "again."
    )


_TYPES: dict[str, Any] = {
    "name": str,
    "kind": str,
    "fill": (int, float),
    "has_missing": bool,
    "levels": list,
    "has_others": bool,
    "parts": list,
}
_KINDS = ("number", "truth", "category", "date")


def _restored(saved: Any) -> EncodedColumn:
    if not isinstance(saved, dict) or set(saved) != set(_TYPES):
        raise _unknown_form(saved)
    typed = all(isinstance(saved[name], kind) for name, kind in _TYPES.items())
    if not typed or saved["kind"] not in _KINDS or isinstance(saved["fill"], bool):
        raise _unknown_form(saved)
    levels = all(isinstance(level, str) for level in saved["levels"])
    parts = all(part in DATE_PARTS for part in saved["parts"])
    if not levels or not parts or not abs(saved["fill"]) <= LARGEST_FILL:
        raise _unknown_form(saved)
    return EncodedColumn(**saved | {"fill": float(saved["fill"])})


def _frame(X: Any) -> nw.DataFrame[Any]:
    frame = to_narwhals(X)
    if not isinstance(frame, nw.DataFrame):
        raise InvalidInputError(
            f"TableEncoder takes a data frame with named columns; received a {type(X).__name__}. "
            "Pass a pandas or polars frame, or leave gate_features= out for plain numbers."
        )
    _check_names_are_strings(frame.columns)
    return frame


def _column_list(features: Any) -> list[str]:
    columns = [features] if isinstance(features, str) else list(features)
    if not all(isinstance(column, str) for column in columns):
        raise InvalidInputError(
            f"features of TableEncoder must be names of columns; received {features!r}. Pass a "
            "list of strings."
        )
    return columns


def _check_names_are_strings(names: Sequence[object]) -> None:
    """Refuse integers and the tuples of a pandas MultiIndex as column names."""
    others = [name for name in names if not isinstance(name, str)]
    if not others:
        return
    if isinstance(others[0], tuple):
        way_out = "X.columns = ['_'.join(map(str, name)) for name in X.columns]"
    else:
        way_out = "X.columns = X.columns.astype(str)"
    raise InvalidInputError(
        f"TableEncoder needs strings as column names; received {others[0]!r} "
        f"({type(others[0]).__name__}). Rename the columns: {way_out}."
    )


def _column(frame: nw.DataFrame[Any], name: str) -> nw.Series[Any]:
    if name not in frame.columns:
        raise missing_column(name, frame.columns)
    return frame[name]


def _look_at(name: str, series: Any) -> EncodedColumn | str:
    """How a column becomes numbers, or why it cannot."""
    missing = _missing(series)
    flagged = bool(missing.any())
    if missing.all():
        return "all values are missing"
    is_number = series.dtype.is_numeric() and not _are_ids(series)
    if is_number or series.dtype == nw.Boolean:
        present = _numbers(series, name)[~missing]
        if np.ptp(present) == 0 and not flagged:
            return "all values are the same"
        if series.dtype.is_integer() and _counts(present):
            return "it numbers the rows"
        kind = "truth" if series.dtype == nw.Boolean else "number"
        return EncodedColumn(name, kind, float(np.median(present)), flagged)
    if series.dtype in (nw.Date, nw.Datetime):
        days = _days(series, name)[~missing]
        if np.ptp(days) == 0 and not flagged:
            return "all values are the same"
        parts = _parts_of_dates(days)
        if not parts and not flagged:
            return "rows come in its order, and later ones would lie outside the sample"
        return EncodedColumn(name, "date", float(np.median(days)), flagged, parts=parts)
    texts = [text for text, gone in zip(_texts(series), missing, strict=True) if not gone]
    return _look_at_texts(name, texts, flagged)


def _are_ids(series: Any) -> bool:
    """Whether whole numbers have more digits than a floating number holds: they are names."""
    return series.dtype.is_integer() and max(-series.min(), series.max()) > EXACT


def _counts(values: Array) -> bool:
    """Whether whole numbers only tell rows apart: all different, and in order or without gaps.

    New rows would lie outside of everything that such a column has shown.
    """
    steps = np.diff(np.sort(values))
    different = len(values) > FEWEST_ROWS and steps.min() > 0
    in_order = bool((np.diff(values) > 0).all() or (np.diff(values) < 0).all())
    return different and (in_order or steps.max() == 1)


def _in_order(days: Array) -> bool:
    """Whether dates come in the order of the rows, one way or the other, and are not all the same.

    Rows that come after these have later dates, as they would have higher numbers.
    """
    steps = np.diff(days)
    one_way = bool((steps >= 0).all() or (steps <= 0).all())
    return len(days) > FEWEST_ROWS and bool(steps.any()) and one_way


def _parts_of_dates(days: Array) -> list[str]:
    """What of dates says something about new rows.

    Where rows come in their order, new ones lie behind the last day: then only cycles that the
    sample has been through.
    """
    if not _in_order(days):
        return list(DATE_PARTS)
    return [part for part, length in CYCLES.items() if np.ptp(days) >= length]


def _look_at_texts(name: str, texts: list[str], flagged: bool) -> EncodedColumn | str:
    counts = Counter(texts)
    if len(counts) == 1 and not flagged:
        return "all values are the same"
    frequent = [level for level, rows in counts.most_common(MOST_LEVELS) if rows >= FEWEST_ROWS]
    if not frequent and not flagged:
        return "nearly all values are different"
    # The last level of a column whose levels are all frequent says what the others say already,
    # but shrinkage treats levels alike only if each has its column.
    others = len(frequent) < len(counts)
    return EncodedColumn(name, "category", 0.0, flagged, sorted(frequent), others)


def _missing(series: Any) -> NDArray[np.bool_]:
    missing = np.asarray(series.is_null().to_numpy(), dtype=bool)
    if series.dtype.is_float():
        missing = missing | ~np.isfinite(np.asarray(series.to_numpy(), dtype=np.float64))
    return missing


def _texts(series: Any) -> list[str]:
    # A category 1 that a gap turned into 1.0 is the same category.
    whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in series.to_list())
    return [str(value) for value in whole]


def _numbers(series: Any, name: str) -> Array:
    """A column of numbers, or of texts that read as numbers."""
    try:
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    except Exception as error:  # each library of frames raises its own
        raise InvalidInputError(
            f"Column {name!r} held numbers when the model was fitted; now it is of type "
            f"{series.dtype} ({error}). Give it numbers again."
        ) from error


def _days(series: Any, name: str) -> Array:
    """Days since 1970, with fractions; texts are read as ISO dates."""
    if series.dtype.is_numeric():
        raise InvalidInputError(
            f"Column {name!r} held dates when the model was fitted; now it holds numbers "
            f"({series.dtype}). Give it dates such as 2024-05-31 again."
        )
    try:
        moments = np.asarray(series.to_numpy()).astype("datetime64[ms]")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"Column {name!r} held dates when the model was fitted; now it is of type "
            f"{series.dtype} ({error}). Give it dates such as 2024-05-31 again."
        ) from error
    return moments.astype(np.int64) / 86_400_000.0


def _date_names(name: str, part: str) -> list[str]:
    return [name] if part == "day" else [f"{name}, {part} {turn}" for turn in ("sin", "cos")]


def _date_numbers(days: Array, part: str) -> list[Array]:
    if part == "day":
        return [days]
    angle = 2.0 * np.pi * days / CYCLES[part]
    return [np.sin(angle), np.cos(angle)]


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
