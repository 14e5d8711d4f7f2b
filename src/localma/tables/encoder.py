"""The inputs of the gate: selected columns of X, or a table encoded as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Json, RowMask
from localma.errors import FileFormatError, InvalidInputError
from localma.imports import import_name, import_object
from localma.storage.array_file import shown
from localma.tables.frames import (
    ArrowRows,
    ColumnKey,
    Frame,
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

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame, IntoSeries

Series: TypeAlias = "nw.Series[IntoSeries]"

MOST_LEVELS = 30
"""The number of categories that get a column; rarer ones get none, like new categories."""
FEWEST_ROWS = 5
"""The number of rows that a category needs to get a column."""
EXACT = 2**53
"""Larger whole numbers are not exact as floating numbers."""
CYCLES = {"year": 365.2425, "week": 7.0}
"""Cycles of dates, in days."""
LARGEST_FILL = float(np.finfo(np.float64).max)
DATE_PARTS = ("day", *CYCLES)
"""The numbers that encode a date: its day, and its position in the year and in the week."""
CONSTANT = "all values are the same"
FAULTS_SHOWN = 3
_FLOATS = (np.float64, np.float32)


@dataclass(frozen=True)
class EncodedColumn:
    """How one column becomes numbers.

    Parameters
    ----------
    name : str
        The name of the column.
    kind : {"number", "truth", "category", "date"}
        What the column holds.
    fill : float
        The number or the day that replaces a missing value.
    has_missing : bool
        Whether one more number flags missing values.
    levels : list of str
        The categories that get a number of 0 or 1.
    has_others : bool
        Whether the labelled sample had more categories, which were too rare.
    parts : list of str
        The parts of a date that become numbers, from `DATE_PARTS`.

    Examples
    --------
    >>> EncodedColumn("city", "category", levels=["cn", "fr"], has_missing=True).names
    ['city is cn', 'city is fr', 'city is missing']
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
        """Names of the numbers."""
        names = [self.name]
        if self.kind == "category":
            names = [f"{self.name} is {level}" for level in self.levels]
        elif self.kind == "date":
            names = [name for part in self.parts for name in _date_names(self.name, part)]
        return names + [f"{self.name} is missing"] * self.has_missing

    def encode(self, series: Series) -> Array:
        """Encode a column.

        Parameters
        ----------
        series : narwhals.Series
            The column.

        Returns
        -------
        array of shape (n, p)
            One column for each of `names`.
        """
        missing = _missing(series)
        columns: list[Array | RowMask]
        if self.kind == "category":
            texts = np.array(_texts(series), dtype=object)
            columns = [(texts == level) & ~missing for level in self.levels]
        elif self.kind == "date":
            days = np.where(missing, self.fill, _days(series, self.name))
            columns = [number for part in self.parts for number in _date_numbers(days, part)]
        else:
            columns = [np.where(missing, self.fill, _numbers(series, self.name))]
        columns += [missing] * self.has_missing
        return np.column_stack([np.empty((len(missing), 0)), *columns])


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode the columns of a data frame as finite numbers, for `gate_features`.

    - Numbers and truth values are kept. The median replaces missing ones.
    - A category becomes one column for each frequent level.
    - A date becomes its day, and its position in the year and in the week. If the rows are sorted
      by the date, its day is left out, since later rows would lie outside the sample. So are the
      cycles that the sample does not cover.
    - If a column has missing values, one more column flags them.
    - Columns that carry no information about new rows are left out: constants, row numbers, and
      texts that are nearly all different. See `left_out_`.

    Unlike other transformers, it is saved with the model, and such a model needs no trust to load.

    Parameters
    ----------
    features : list of str, optional
        The columns to use. By default, all columns are used.

    Attributes
    ----------
    columns_ : list of EncodedColumn
        How each column is encoded.
    left_out_ : dict of str -> str
        Columns that are not used, and why.
    n_features_in_ : int
        Number of columns of the frame.
    feature_names_in_ : array of str
        Names of these columns; in a loaded model, of the columns that it was asked to use.

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

    def fit(self, X: IntoDataFrame, y: ArrayLike | None = None) -> Self:
        """Decide how each column of a data frame is encoded.

        Parameters
        ----------
        X : data frame of n rows
            The labelled sample.
        y : array-like of shape (n,), optional
            Not used.

        Returns
        -------
        TableEncoder
            The encoder itself.
        """
        frame = _frame(X)
        self._set_inputs(frame.columns)
        self.left_out_: dict[str, str] = {}
        self.columns_: list[EncodedColumn] = []
        for name in _column_list(self.features, frame):
            column = _inspect(name, _column(frame, name))
            if isinstance(column, str):
                self.left_out_[name] = column
            else:
                self.columns_.append(column)
        return self

    def _set_inputs(self, names: Sequence[str]) -> None:
        """Set the attributes that scikit-learn reads."""
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)

    def transform(self, X: IntoDataFrame) -> Array:
        """Encode a data frame.

        Parameters
        ----------
        X : data frame of n rows
            A table with the columns of the sample.

        Returns
        -------
        array of shape (n, p)
            Finite numbers.
        """
        check_is_fitted(self)
        frame = _frame(X)
        blocks = [column.encode(_column(frame, column.name)) for column in self.columns_]
        return np.hstack([np.empty((len(frame), 0)), *blocks])

    def unfamiliar(self, X: IntoDataFrame) -> dict[str, int]:
        """Count rows with a missing value or a category that the sample did not have, by column.

        The encoded numbers do not show them: a missing value becomes the median, for example.

        Parameters
        ----------
        X : data frame of n rows
            A table with the columns of the sample.

        Returns
        -------
        dict of str to int
            From a description of the problem to the number of rows; only problems that occur.
        """
        return {text: int(rows.sum()) for text, rows in self.unfamiliar_rows(X).items()}

    def unfamiliar_rows(self, X: IntoDataFrame) -> dict[str, RowMask]:
        """Find the rows with a missing value or a category that the sample did not have.

        Parameters
        ----------
        X : data frame of n rows
            A table with the columns of the sample.

        Returns
        -------
        dict of str to bool array of shape (n,)
            From a description of the problem to the rows; only problems that occur.
        """
        check_is_fitted(self)
        frame = _frame(X)
        found = {}
        for column in self.columns_:
            series = _column(frame, column.name)
            missing = _missing(series)
            if not column.has_missing:
                text = f"{column.name!r} is missing, and never was in the labelled sample"
                found[text] = missing
            if column.kind == "category" and not column.has_others:
                text = f"{column.name!r} is a category that was not in the labelled sample"
                found[text] = ~missing & ~np.isin(_texts(series), column.levels)
        return {text: rows for text, rows in found.items() if rows.any()}

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> AnyArray:
        """Return the names of the numbers.

        Parameters
        ----------
        input_features : sequence of str, optional
            Not used.

        Returns
        -------
        array of shape (p,)
            The names, in the order of the columns that `transform` returns.
        """
        check_is_fitted(self)
        return np.array([name for column in self.columns_ for name in column.names], dtype=object)

    def by_source(self, numbers: Array) -> tuple[list[str], Array]:
        """Put the levels of a category together again.

        A category becomes the number of its level. Dates and missing values keep their numbers,
        under the name of their column.

        Parameters
        ----------
        numbers : array of shape (n, p)
            Encoded rows.

        Returns
        -------
        names : list of str
            The name of the column that each number comes from.
        numbers : array of shape (n, at most p)
            The numbers.

        Examples
        --------
        >>> import polars
        >>> encoder = TableEncoder().fit(polars.DataFrame({"city": ["a"] * 6 + ["b"] * 6}))
        >>> encoder.by_source(np.array([[1.0, 0.0], [0.0, 1.0]]))
        (['city'], array([[1.],
               [2.]]))
        """
        names: list[str] = []
        blocks: list[Array] = [np.empty((len(numbers), 0))]
        start = 0
        for column in self.columns_:
            block = numbers[:, start : start + len(column.names)]
            start += len(column.names)
            if column.kind == "category":
                block = block @ np.arange(1.0, block.shape[1] + 1)[:, np.newaxis]
            names += [column.name] * block.shape[1]
            blocks.append(block)
        return names, np.hstack(blocks)

    def recipe(self) -> dict[str, Json]:
        """Return the fitted state in JSON.

        Returns
        -------
        dict
            A JSON object for `from_recipe`.
        """
        check_is_fitted(self)
        return {"columns": [asdict(c) for c in self.columns_], "left_out": {**self.left_out_}}

    @classmethod
    def from_recipe(cls, recipe: Json) -> Self:
        """Restore an encoder from its recipe. No code of the file runs.

        Parameters
        ----------
        recipe : dict
            A JSON object from `recipe`.

        Returns
        -------
        TableEncoder
            The fitted encoder.
        """
        if not isinstance(recipe, dict) or set(recipe) != {"columns", "left_out"}:
            raise _unknown_form(recipe)
        columns, left_out = recipe["columns"], recipe["left_out"]
        if not isinstance(columns, list) or not isinstance(left_out, dict):
            raise _unknown_form(recipe)
        restored = [_restored(column) for column in columns]
        encoder = cls([*(column.name for column in restored), *left_out])  # for a refit
        encoder._set_inputs(encoder.features or ())
        encoder.columns_ = restored
        encoder.left_out_ = {name: str(reason)[:200] for name, reason in left_out.items()}
        if len(set(encoder.features or ())) < len(restored) + len(left_out):
            raise _unknown_form(recipe)
        return encoder


def _unknown_form(saved: Json) -> FileFormatError:
    return FileFormatError(
        f"The encoding of the gate's inputs has an unknown form: {shown(saved)}. Save the model "
        "again."
    )


_TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str, "kind": str, "fill": (int, float), "has_missing": bool, "levels": list,
    "has_others": bool, "parts": list,
}  # fmt: skip


def _restored(saved: Any) -> EncodedColumn:
    if (
        isinstance(saved, dict)
        and set(saved) == set(_TYPES)
        and all(isinstance(saved[name], kind) for name, kind in _TYPES.items())
        and saved["kind"] in ("number", "truth", "category", "date")
        and all(isinstance(level, str) for level in saved["levels"])
        and all(part in DATE_PARTS for part in saved["parts"])
        and not isinstance(saved["fill"], bool)
        and abs(saved["fill"]) <= LARGEST_FILL
    ):
        return EncodedColumn(**saved | {"fill": float(saved["fill"])})
    raise _unknown_form(saved)


def _frame(X: IntoDataFrame) -> Frame:
    frame = to_narwhals(X)
    if not isinstance(frame, nw.DataFrame):
        raise InvalidInputError(
            f"TableEncoder takes a data frame with named columns; received a {type(X).__name__}. "
            "Pass a pandas or polars frame, or omit gate_features= for plain numbers."
        )
    name = next((name for name in frame.columns if not isinstance(name, str)), None)
    if name is None:
        return frame
    solution = "X.columns = X.columns.astype(str)"
    if isinstance(name, tuple):  # a pandas MultiIndex
        solution = "X.columns = ['_'.join(map(str, name)) for name in X.columns]"
    raise InvalidInputError(
        f"TableEncoder needs strings as column names; received {name!r} "
        f"({type(name).__name__}). Rename the columns: {solution}."
    )


def _column_list(features: Sequence[str] | None, frame: Frame) -> list[str]:
    columns = list(frame.columns if features is None else features)
    if isinstance(features, str):
        return [features]
    if not all(isinstance(column, str) for column in columns):
        raise InvalidInputError(
            f"features of TableEncoder must be names of columns; received {features!r}. Pass a "
            "list of strings."
        )
    return columns


def _column(frame: Frame, name: str) -> Series:
    if name not in frame.columns:
        raise missing_column(name, frame.columns)
    return frame[name]


def _inspect(name: str, series: Series) -> EncodedColumn | str:
    """Decide how a column becomes numbers, or return the reason why it is left out."""
    missing = _missing(series)
    has_missing = bool(missing.any())
    if missing.all():
        return "all values are missing"
    if series.dtype in (nw.Date, nw.Datetime):
        return _inspect_dates(name, _days(series, name)[~missing], has_missing)
    if series.dtype == nw.Boolean or (series.dtype.is_numeric() and not _are_ids(series)):
        present = _numbers(series, name)[~missing]
        if np.ptp(present) == 0 and not has_missing:
            return CONSTANT
        if series.dtype.is_integer() and _are_row_numbers(present):
            return "it numbers the rows"
        kind = "truth" if series.dtype == nw.Boolean else "number"
        return EncodedColumn(name, kind, float(np.median(present)), has_missing)
    texts = [text for text, gone in zip(_texts(series), missing, strict=True) if not gone]
    return _inspect_texts(name, Counter(texts), has_missing)


def _inspect_dates(name: str, days: Array, has_missing: bool) -> EncodedColumn | str:
    if np.ptp(days) == 0 and not has_missing:
        return CONSTANT
    parts = list(DATE_PARTS)
    if _are_sorted(days):
        # New rows lie after the last day, so only cycles that the sample covers carry over.
        parts = [cycle for cycle, length in CYCLES.items() if np.ptp(days) >= length]
    if not parts and not has_missing:
        return "the rows are sorted by it, so new rows would lie outside the sample"
    return EncodedColumn(name, "date", float(np.median(days)), has_missing, parts=parts)


def _inspect_texts(name: str, counts: Counter[str], has_missing: bool) -> EncodedColumn | str:
    if len(counts) == 1 and not has_missing:
        return CONSTANT
    frequent = [level for level, rows in counts.most_common(MOST_LEVELS) if rows >= FEWEST_ROWS]
    if not frequent and not has_missing:
        return "nearly all values are different"
    # One level is redundant if all are frequent, but shrinkage treats levels alike only if each
    # has a column.
    has_others = len(frequent) < len(counts)
    return EncodedColumn(name, "category", 0.0, has_missing, sorted(frequent), has_others)


def _are_ids(series: Series) -> bool:
    """Whether whole numbers have more digits than a floating number holds."""
    return series.dtype.is_integer() and max(-series.min(), series.max()) > EXACT


def _are_row_numbers(values: Array) -> bool:
    """Whether whole numbers are all different, and either sorted or without gaps.

    New rows would lie outside the range of such a column.
    """
    gaps = np.diff(np.sort(values))
    steps = np.diff(values)
    is_sorted = bool((steps > 0).all() or (steps < 0).all())
    return len(values) > FEWEST_ROWS and gaps.min() > 0 and (is_sorted or gaps.max() == 1)


def _are_sorted(days: Array) -> bool:
    """Whether the rows are sorted by their dates, in either direction, and the dates differ."""
    steps = np.diff(days)
    is_sorted = bool((steps >= 0).all() or (steps <= 0).all())
    return len(days) > FEWEST_ROWS and bool(steps.any()) and is_sorted


def _missing(series: Series) -> RowMask:
    missing = np.asarray(series.is_null().to_numpy(), dtype=bool)
    if series.dtype.is_float():
        missing = missing | ~np.isfinite(np.asarray(series.to_numpy(), dtype=np.float64))
    return missing


def _texts(series: Series) -> list[str]:
    # A category 1 that a missing value turned into 1.0 is the same category.
    return [
        str(int(value) if isinstance(value, float) and value.is_integer() else value)
        for value in series.to_list()
    ]


def _numbers(series: Series, name: str) -> Array:
    """Convert a column of numbers, or of texts that read as numbers."""
    try:
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    except Exception as error:  # each library of frames raises its own
        raise _wrong_type(series, name, "numbers", "numbers", error) from error


def _days(series: Series, name: str) -> Array:
    """Convert dates to days since 1970, with fractions; texts are read as ISO dates."""
    try:
        if series.dtype.is_numeric():
            raise TypeError("numbers are not dates")
        moments = np.asarray(series.to_numpy()).astype("datetime64[ms]")
    except (TypeError, ValueError) as error:
        raise _wrong_type(series, name, "dates", "dates such as 2024-05-31", error) from error
    return moments.astype(np.int64) / 86_400_000.0


def _wrong_type(
    series: Series, name: str, kind: str, expected: str, error: Exception
) -> InvalidInputError:
    return InvalidInputError(
        f"Column {name!r} held {kind} when the model was fitted; now it is of type "
        f"{series.dtype} ({error}). Pass {expected} again."
    )


def _date_names(name: str, part: str) -> list[str]:
    return [name] if part == "day" else [f"{name}, {part} {wave}" for wave in ("sin", "cos")]


def _date_numbers(days: Array, part: str) -> list[Array]:
    if part == "day":
        return [days]
    angle = 2.0 * np.pi * days / CYCLES[part]
    return [np.sin(angle), np.cos(angle)]


FeatureSpec: TypeAlias = (
    ColumnKey | Sequence[ColumnKey] | AnyArray | TransformerMixin | Callable[[Sized], Sized] | None
)
_RECIPE_KEYS = {"all": None, "columns": "columns", "function": "import", "table": "table"}
"""The further key in the recipe of each kind."""


class GateFeatures:
    """The inputs of the gate, the same at fit and at prediction.

    Parameters
    ----------
    spec : None, a list of columns, a scikit-learn transformer, or a function of X
        None means every column without predictions of candidates. A transformer is cloned and
        fitted on X without those columns.
    hidden : collection of str or int
        Columns with predictions of candidates, which the gate does not see by default.
    raw : bool
        Whether the gate takes inputs that are not tables, such as lists, tensors and data sets.
    needed : bool
        Whether the gate uses its inputs. If not, it gets none.

    Examples
    --------
    >>> X = np.array([[20.0, 3.0, 410.0], [90.0, 4.0, 980.0]])
    >>> GateFeatures(hidden=[2]).fit(X).transform(X).tolist()
    [[20.0, 3.0], [90.0, 4.0]]
    >>> GateFeatures([0]).fit(X).transform(X).tolist()
    [[20.0], [90.0]]
    """

    def __init__(
        self,
        spec: FeatureSpec = None,
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
            spec = [spec]
        if isinstance(spec, list | tuple | np.ndarray):
            self.columns = checked_columns(spec, "gate_features")
        elif spec is not None and not hasattr(spec, "transform") and not callable(spec):
            raise InvalidInputError(
                "gate_features must be None, a list of columns, a transformer or a function "
                f"of X; received {spec!r}."
            )

    def fit(self, X: Sized, y: ArrayLike | None = None) -> Self:
        """Fit a clone of the transformer, if there is one.

        Parameters
        ----------
        X : table or array
            The n rows of the labelled sample.
        y : array of shape (n,) or (n, K), optional
            Targets or labels, which are passed to the transformer.

        Returns
        -------
        GateFeatures
            The object itself.
        """
        if hasattr(self.spec, "transform"):
            self.transformer = clone(self.spec).fit(drop_columns(X, self.hidden), y)
        return self

    def transform(self, X: Sized, in_parts: bool = False) -> Any:
        """Return the inputs of the gate.

        Parameters
        ----------
        X : table or array
            The n rows. Without a `spec`, an array must have passed scikit-learn's `validate_data`.
        in_parts : bool, default=False
            Whether an Arrow table may be wrapped as `ArrowRows` instead of copied.

        Returns
        -------
        array of shape (n, p), ArrowRows or n rows of any kind
            Finite numbers, or rows of any kind if `raw`.
        """
        if not self.needed:
            return np.empty((n_rows(X), 0))
        features = self._select(X)
        if self.raw:
            features = _texts_of(features)
        if not self.raw or is_table(features):
            wrapped = ArrowRows.of(features) if in_parts else None
            features = wrapped or self._numeric(features)
        if n_rows(features) != n_rows(X):
            raise InvalidInputError(
                f"gate_features must return one row for each row of X; it returned "
                f"{n_rows(features)} rows for {n_rows(X)}."
            )
        return features

    def named_inputs(self, inputs: Array, X: Sized) -> tuple[list[str], Array]:
        """Return the inputs of the gate under the names of columns.

        A name may stand for several numbers. A category of a `TableEncoder` is one number.

        Parameters
        ----------
        inputs : array of shape (n, p)
            The inputs of the gate, from `transform`.
        X : table or array
            The n rows that the inputs come from.

        Returns
        -------
        names : list of str
            The name of the column that each number comes from.
        numbers : array of shape (n, at most p)
            The numbers.
        """
        if isinstance(self.transformer, TableEncoder):
            return self.transformer.by_source(inputs)
        return self.input_names(X, inputs.shape[1]), inputs

    def input_names(self, X: Sized, n: int) -> list[str]:
        """Return names of the n inputs of the gate, those of columns of X if possible.

        Parameters
        ----------
        X : table or array
            Rows with the columns that the inputs come from.
        n : int
            Number of inputs of the gate.

        Returns
        -------
        list of str
            One name per input, such as "input 0" if the columns are unknown.

        Examples
        --------
        >>> GateFeatures(None, [1]).input_names(np.zeros((1, 3)), 2)
        ['x0', 'x2']
        """
        names = self._names_by_spec(X)
        return names if len(names) == n else [f"input {k}" for k in range(n)]

    def _names_by_spec(self, X: Sized) -> list[str]:
        """Names of the columns that `_select` returns; an empty list if they are unknown."""
        if self.spec is not None and self.columns is None:
            named = getattr(self.transformer, "get_feature_names_out", list)
            with suppress(Exception):  # a transformer may not know the names of its inputs
                return [str(name) for name in named()]
            return []
        if not hasattr(X, "shape"):
            return []
        names = column_names(X) or [f"x{k}" for k in range(X.shape[1])]
        if self.columns is not None:
            return [str(names[k]) for k in positions_of(X, self.columns)]
        hidden = set(positions_of(X, self.hidden))
        return [str(name) for k, name in enumerate(names) if k not in hidden]

    def recipe(self) -> dict[str, Json]:
        """Describe the inputs in JSON; transformers and nameless functions must be passed again.

        Returns
        -------
        dict
            The recipe, for `from_recipe`. If its kind is "attach", pass the transformer or function
            to `attached` instead.
        """
        recipe: dict[str, Json] = {"kind": "all", "hidden": [*sorted(self.hidden, key=str)]}
        if self.columns is not None:
            return recipe | {"kind": "columns", "columns": [*self.columns]}
        if self.spec is None:
            return recipe
        if isinstance(self.transformer, TableEncoder):
            return recipe | {"kind": "table", "table": self.transformer.recipe()}
        function = self.spec if self.transformer is None and callable(self.spec) else None
        if (name := import_name(function)) is not None:
            return recipe | {"kind": "function", "import": name}
        return recipe | {"kind": "attach", "what": repr(self.spec)}

    @classmethod
    def from_recipe(cls, recipe: dict[str, Json]) -> Self:
        """Restore from a recipe. It may import a function, so pass trusted recipes only.

        Parameters
        ----------
        recipe : dict
            A recipe from `recipe`, whose kind is not "attach".

        Returns
        -------
        GateFeatures
            The inputs of the gate.
        """
        kind = str(recipe.get("kind"))
        expected = {"kind", "hidden", _RECIPE_KEYS.get(kind)} - {None}
        if kind not in _RECIPE_KEYS or set(recipe) != expected:
            raise FileFormatError(f"The inputs of the gate have an unknown form: {shown(recipe)}.")
        hidden = _saved_columns(recipe.get("hidden"))
        if kind == "function":
            return cls(import_object(str(recipe["import"])), hidden)
        if kind == "table":
            return cls.attached(TableEncoder.from_recipe(recipe["table"]), hidden)
        if kind == "columns":
            return cls(_saved_columns(recipe["columns"]), hidden)
        return cls(None, hidden)

    @classmethod
    def attached(cls, spec: FeatureSpec, hidden: Collection[ColumnKey]) -> Self:
        """Use a function, or a transformer that is fitted already.

        Parameters
        ----------
        spec : transformer or callable
            A fitted transformer, or a function of X.
        hidden : collection of str or int
            Columns with predictions of candidates, which the gate does not see.

        Returns
        -------
        GateFeatures
            The inputs of the gate.
        """
        features = cls(spec, hidden)
        if hasattr(spec, "transform"):
            features.transformer = spec
        return features

    def _select(self, X: Sized) -> Sized:
        if self.columns is not None:
            return pick_columns(X, self.columns)
        visible = drop_columns(X, self.hidden)
        if self.transformer is not None:
            return self.transformer.transform(visible)
        return self.spec(visible) if callable(self.spec) else visible

    def _numeric(self, selected: Sized) -> Array:
        is_checked = self.spec is None and isinstance(selected, np.ndarray)
        if getattr(selected, "ndim", 2) == 1:
            selected = dense(selected)[:, None]
        if getattr(selected, "shape", (0, 1))[1:] == (0,):
            reason = "all hold predictions" if self.spec is None else "gate_features selects none"
            raise InvalidInputError(
                f"The gate has no column to see: {reason}. Add columns that describe the inputs, "
                "pass gate_features=, or choose gate='global', which needs none."
            )
        refuse_dates(selected)
        if is_checked:
            numbers = np.asarray(selected)
            if numbers.dtype in _FLOATS or (self.raw and numbers.dtype.kind in "biu"):
                return numbers
            return numbers.astype(np.float64)
        # Integers may be tokens, which a raw gate takes unchanged.
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
            if len(faults) > FAULTS_SHOWN:
                n_more = len(faults) - FAULTS_SHOWN
                faults[FAULTS_SHOWN:] = [f"and {n_more} more columns have faults"]
            raise InvalidInputError(
                f"The gate needs finite numbers: {', '.join(faults)}. Pass "
                "gate_features=TableEncoder(), which encodes categories, dates and missing "
                "values, a list of numeric columns, or any other transformer."
            ) from error


def refuse_dates(X: Sized) -> None:
    """Refuse an array or a list of dates or durations, which a gate would take for numbers.

    >>> refuse_dates(np.zeros((3, 2)))
    """
    if holds_dates(X):
        raise InvalidInputError(
            "The gate needs numbers, and X holds dates or durations. Pass a data frame and "
            "gate_features=TableEncoder(), which encodes dates, or turn them into numbers."
        )


def _saved_columns(columns: Json) -> list[ColumnKey]:
    if not isinstance(columns, list):
        raise FileFormatError(f"Columns of a file are a list; received {shown(columns)}.")
    return checked_columns(columns, "The columns of a file")


def _texts_of(selected: Sized) -> Sized:
    """Return the texts of a frame, its column "text" or its only column; else it unchanged."""
    names = column_names(selected) or []
    column = names[0] if len(names) == 1 else "text"
    if column not in names:
        return selected
    values = column_values(selected, column)
    return values.tolist() if _as_numbers(values) is None else selected


def _faults_of_columns(selected: Sized) -> Iterator[str]:
    """Describe each column of a frame with values that are not finite numbers."""
    for position, name in enumerate(column_names(selected) or []):
        values = dense(pick_columns(selected, [position])).ravel()
        numbers = _as_numbers(values)
        if numbers is None:
            yield f"column {name!r} holds {_described(values)}"
        elif not np.isfinite(numbers).all():
            count = int((~np.isfinite(numbers)).sum())
            yield f"column {name!r} is missing or infinite in {count} of {len(numbers)} rows"


def _described(values: AnyArray) -> str:
    if values.dtype.kind in "mM":
        return "dates or durations"
    objects = values.astype(object)
    stray = (value for k, value in enumerate(values) if _as_numbers(objects[k : k + 1]) is None)
    return f"values such as {str(next(stray, values[0]))!r}"


def _as_numbers(values: AnyArray) -> Array | None:
    """Convert values to numbers; None for dates and durations, and if some are not numbers."""
    if values.dtype.kind in "mM":
        return None
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError):
        return None
