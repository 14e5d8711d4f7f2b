"""Rows and columns of arrays, sparse matrices, data frames, lists, tensors and data sets.

Strings are column names and integers are positions, as in scikit-learn's ColumnTransformer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from datetime import date, timedelta
from difflib import get_close_matches
from itertools import accumulate
from numbers import Real
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeGuard, TypeVar, cast

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.sparse import hstack, sparray, spmatrix

from localma._optional import optional
from localma._types import AnyArray, Array, RowMask, Rows
from localma.errors import InvalidInputError

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame, IntoSeries

ColumnKey: TypeAlias = str | int
"""A column: its name, or its position."""
Frame: TypeAlias = "nw.DataFrame[IntoDataFrame]"
TableLike: TypeAlias = "Sized | ArrayLike | IntoDataFrame | IntoSeries"
"""An array, a sparse matrix, a data frame, a series, a list, a tensor or a data set."""
Inputs = TypeVar("Inputs", bound=TableLike)
Values = TypeVar("Values")

LARGE_ROWS = 20_000
"""A sample with this many rows or more is read in blocks and never copied as a whole."""
CONTAINERS = ("default", "pandas", "polars")
"""Choices of `set_output`: arrays, or data frames of one library."""
NAMES_SHOWN = 10
_ROWS_CHECKED = 2**16
_DATES = (date, timedelta, np.datetime64, np.timedelta64)
_MISSING: dict[str, tuple[type | None, float | str]] = {
    **dict.fromkeys("biu", (np.float64, np.nan)),
    **dict.fromkeys("fc", (None, np.nan)),
    **dict.fromkeys("mM", (None, "NaT")),
}
"""For each kind of values, a missing value, and the type that can hold it if that is another."""
_ARROW_NUMBERS = {"float", "double"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def n_rows(X: Sized) -> int:
    """Count the rows of X.

    >>> n_rows(np.zeros((3, 2))), n_rows(["a text", "another"])
    (3, 2)
    """
    shape = getattr(X, "shape", None)
    if shape:
        return int(shape[0])
    try:
        return len(X)
    except TypeError:
        raise InvalidInputError(
            f"X must have rows that can be counted, and a {type(X).__name__} has none: "
            "pass an array, a data frame (collect a lazy one first) or a list."
        ) from None


def column_names(X: TableLike) -> list[Any] | None:
    """Return the names of the columns of a data frame; None if X has no names.

    >>> column_names(np.zeros((3, 2))) is None
    True
    """
    if isinstance(X, np.ndarray):
        return None
    if _is_pandas_or_polars(X):
        return list(X.columns)
    frame = _as_frame(X)
    return None if frame is None else list(frame.columns)


def check_rows_and_columns(X: Sized) -> None:
    """Refuse a dict, since its keys may be rows or columns.

    >>> check_rows_and_columns(np.zeros((3, 2)))
    """
    if isinstance(X, Mapping) and not isinstance(X, sparray):  # SciPy 1.13 has sparse dicts
        raise InvalidInputError(
            f"X must be an array, a data frame or a list of rows; received a {type(X).__name__} "
            f"with the keys {_listed(X, 5)}. If they are columns, pass pandas.DataFrame(X) or "
            "polars.DataFrame(X)."
        )


def check_names_differ(X: TableLike) -> None:
    """Refuse a data frame in which several columns have the same name.

    >>> check_names_differ(np.zeros((3, 2)))  # an array has no names
    """
    names = column_names(X) or []
    if len(set(names)) < len(names):
        raise _repeated_names(names)


def _repeated_names(names: Iterable[Hashable]) -> InvalidInputError:
    repeated = [repr(name) for name, count in Counter(names).items() if count > 1]
    return InvalidInputError(
        f"Columns of a data frame must have different names; {', '.join(repeated)} "
        f"{'is' if len(repeated) == 1 else 'are'} there more than once: rename them."
    )


def readable_tensor(X: Values) -> Values:
    """Return X unchanged, or a PyTorch tensor as one that NumPy can read.

    Such a tensor has no gradient and is on the CPU, and bfloat16 becomes float32.

    >>> readable_tensor([1.0, 2.0])
    [1.0, 2.0]
    """
    if not _is_a(X, "torch", "Tensor"):
        return X
    tensor = X.detach().cpu()
    return tensor.float() if tensor.dtype == sys.modules["torch"].bfloat16 else tensor


def unmasked(values: Values) -> Values:
    """Turn a NumPy masked array into a plain array, with NaN or None for masked values.

    Lists of masked arrays, and lists that hold `np.ma.masked`, become plain lists too. Other values
    are returned unchanged.

    >>> unmasked(np.ma.array([1, 999], mask=[False, True])).tolist()
    [1.0, nan]
    """
    plain: list[object] | AnyArray
    if isinstance(values, list | tuple):
        if not any(isinstance(row, np.ma.MaskedArray) for row in values):
            return values
        plain = [None if row is np.ma.masked else unmasked(row) for row in values]
    elif not isinstance(values, np.ma.MaskedArray):
        return values
    elif not np.ma.is_masked(values):
        plain = values.data
    else:
        dtype, missing = _MISSING.get(values.dtype.kind, (object, None))
        plain = values.data.astype(dtype or values.dtype)
        plain[np.ma.getmaskarray(values)] = np.array(missing, dtype=plain.dtype)
    return cast(Values, plain)


def without_mask(values: Values, name: str) -> Values:
    """Remove a mask that hides no value; refuse one that hides some.

    name : the name of the values in errors, such as "y".

    >>> without_mask(np.ma.array([1.0, 2.0]), "y").tolist()
    [1.0, 2.0]
    """
    if not isinstance(values, np.ma.MaskedArray | list | tuple):
        return values
    hidden = _masked_rows(values)
    if len(hidden):
        raise InvalidInputError(
            f"{name} is masked in {len(hidden)} of {len(values)} rows, first in row {hidden[0]}. A "
            "masked value is missing, and every row needs a value. Remove those rows, or fill "
            "them."
        )
    return unmasked(values)


def _masked_rows(values: AnyArray | Sequence[object]) -> Rows:
    if isinstance(values, np.ma.MaskedArray):
        mask = np.atleast_1d(np.ma.getmaskarray(values))
        return np.flatnonzero(mask.any(axis=tuple(range(1, mask.ndim))))
    arrays = (isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in values)
    return np.flatnonzero(np.fromiter(arrays, dtype=bool))


def holds_dates(X: Sized) -> bool:
    """Whether an array or a list holds dates or durations instead of numbers.

    >>> holds_dates(np.array([["2024-05-31"]], dtype="datetime64[D]")), holds_dates(np.ones((2, 1)))
    (True, False)
    """
    if isinstance(X, list | tuple):
        row = next(iter(X), ())
        return any(isinstance(v, _DATES) for v in (row if isinstance(row, list) else [row]))
    if isinstance(X, np.ndarray) and X.dtype.kind == "O":
        return any(isinstance(value, _DATES) for value in X.flat)
    return isinstance(X, np.ndarray) and X.dtype.kind in "mM"


def take_rows(X: Sized, rows: slice | Rows) -> Any:
    """Return some rows of X, as an object of the same kind.

    >>> take_rows(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    """
    if isinstance(X, np.ndarray):
        return X[rows]
    if isinstance(X, sparray | spmatrix):
        return X.tocsr()[rows]
    if isinstance(X, list | tuple):
        return [X[row] for row in np.arange(len(X))[rows]]
    if _is_a(X, "datasets", "Dataset"):
        return X.select(np.arange(n_rows(X))[rows])
    if _is_a(X, "torch.utils.data", "Dataset"):
        indices = np.arange(n_rows(X))[rows].tolist()
        return sys.modules["torch.utils.data"].Subset(X, indices)
    frame = to_narwhals(X, allow_series=True)
    if isinstance(frame, nw.DataFrame | nw.Series):
        return frame[rows].to_native()
    return frame[rows]


def is_table(X: Sized) -> bool:
    """Whether X is a table of numbers: a data frame, a matrix, or rows of equal length.

    Texts, images, tensors and data sets are not.

    >>> is_table([[1.0, 2.0], [3.0, 4.0]]), is_table(["a text"]), is_table(np.zeros((2, 8, 8)))
    (True, False, False)
    """
    if isinstance(X, sparray | spmatrix) or column_names(X) is not None:
        return True
    if hasattr(X, "__array__") and not _is_a(X, "torch", "Tensor"):
        return _is_table_of_numbers(np.asarray(X))
    if not isinstance(X, list | tuple):
        return False
    shapes = {_row_shape(row) for row in X}
    return len(shapes) <= 1 and all(len(shape) <= 1 for shape in shapes)


def _is_table_of_numbers(X: AnyArray) -> bool:
    if X.dtype.kind == "O":
        is_text = X.shape[1:] == (1,) and all(isinstance(value, str) for value in X.flat)
        return X.ndim == 2 and not is_text
    return X.ndim <= 2 and X.dtype.kind in "biufc"


def _row_shape(row: object) -> tuple[int, ...]:
    """Shape of a row of numbers, () for a number; two dimensions for anything else."""
    if isinstance(row, np.ndarray):
        return row.shape
    if isinstance(row, list | tuple) and all(map(_is_number, row)):
        return (len(row),)
    if _is_number(row):
        return ()
    return (0, 0)


def _is_number(value: object) -> bool:
    return isinstance(value, Real | np.generic) and bool(np.isscalar(value))


def checked_columns(columns: Iterable[object], argument: str) -> list[ColumnKey]:
    """Convert columns to strings and plain integers; argument : their name in errors.

    >>> checked_columns(np.array([0, 2]), "inputs")
    [0, 2]
    """
    checked: list[ColumnKey] = []
    for column in columns:
        if isinstance(column, str):
            checked.append(str(column))
        elif isinstance(column, int | np.integer) and not isinstance(column, bool):
            checked.append(int(column))
        else:
            raise InvalidInputError(
                f"{argument} must be a list of columns (names or integer positions) or a function "
                f"of X; received {columns!r}. Make positions of a mask with np.flatnonzero(mask)."
            )
    return checked


def pick_columns(X: Inputs, columns: Sequence[ColumnKey]) -> Inputs:
    """Return some columns of X in the given order, as an object of the same kind.

    >>> pick_columns(np.array([[1, 2, 3]]), [2, 0]).tolist()
    [[3, 1]]
    """
    return _at_positions(X, positions_of(X, columns))


def drop_columns(X: Inputs, columns: Iterable[ColumnKey]) -> Inputs:
    """Return X without some columns, as an object of the same kind; X itself if there are none.

    >>> drop_columns(np.array([[1, 2, 3]]), [1]).tolist()
    [[1, 3]]
    """
    dropped = set(positions_of(X, list(columns)))
    if not dropped:
        return X
    return _at_positions(X, [k for k in range(_n_columns(X)) if k not in dropped])


def append_columns(X: Inputs, values: Array, names: Sequence[str]) -> Inputs:
    """Return X with further columns of numbers on the right, as an object of the same kind.

    values : (n, k); names : k names, which only a data frame gets.

    >>> append_columns(np.array([[1.0]]), np.array([[2.0]]), ["a"]).tolist()
    [[1.0, 2.0]]
    """
    if isinstance(X, sparray | spmatrix):
        return cast(Inputs, hstack([X, values], format="csr"))
    frame = _as_frame(X)
    if frame is None:
        _n_columns(np.asarray(X))
        return cast(Inputs, np.column_stack([np.asarray(X), values]))
    shared = [name for name in names if name in frame.columns]
    if shared:
        raise InvalidInputError(
            f"X has a column {shared[0]!r} already, and the predictions of a candidate would get "
            "this name too: leave the column out of inputs=, or rename the candidate."
        )
    columns = [
        nw.new_series(name, column, backend=frame.implementation)
        for name, column in zip(names, np.ascontiguousarray(values.T), strict=True)
    ]
    if nw.dependencies.is_pandas_dataframe(X):  # new columns have the index of the frame
        return cast(Inputs, X.assign(**dict(zip(names, values.T, strict=True))))
    return cast(Inputs, frame.with_columns(columns).to_native())


def column_values(X: TableLike, column: ColumnKey) -> AnyArray:
    """Return one column of X as an array: (n,).

    >>> column_values(np.array([[1, 2], [3, 4]]), -1).tolist()
    [2, 4]
    """
    if isinstance(column, str) and _is_pandas_or_polars(X) and column in X.columns:
        # Ten times as fast as picking, and a pool may hold a thousand columns.
        values = np.asarray(X[column].to_numpy())
        if values.ndim == 1:
            return values
    return dense(pick_columns(X, [column]))[:, 0]


def dense(X: TableLike) -> NDArray[Any]:
    """Return X as a plain array with the same numbers."""
    if isinstance(X, sparray | spmatrix):
        return np.asarray(X.toarray())
    frame = _as_frame(X)
    if frame is None:
        return np.asarray(readable_tensor(unmasked(X)))
    return np.asarray(frame.to_numpy())


def positions_of(X: TableLike, columns: Sequence[ColumnKey]) -> list[int]:
    """Return the positions of columns, counted from zero.

    >>> positions_of(np.zeros((3, 4)), [1, -1])
    [1, 3]
    """
    if not columns:
        return []
    width = _n_columns(X)
    by_name = _positions_by_name(X, [str(name) for name in columns if isinstance(name, str)])
    positions = []
    for column in columns:
        position = int(by_name.get(column, column))
        if not -width <= position < width:
            raise InvalidInputError(
                f"X has no column at position {column}; it has {width} columns, "
                f"whose positions are 0 to {width - 1}."
            )
        positions.append(position % width)
    return positions


def _positions_by_name(X: TableLike, columns: Sequence[str]) -> dict[ColumnKey, int]:
    if not columns:
        return {}
    names = column_names(X)
    if names is None:
        raise InvalidInputError(
            f"X has no column {columns[0]!r}, since a {type(X).__name__} has no column names: "
            "state the column by its position, or pass a data frame."
        )
    counts = Counter(names)
    absent = [column for column in dict.fromkeys(columns) if column not in counts]
    if len(absent) == 1:
        raise missing_column(absent[0], names)
    if absent:
        raise InvalidInputError(
            f"X has no columns {', '.join(map(repr, absent))}; its columns are "
            f"{_listed(names, NAMES_SHOWN)}."
        )
    for column in columns:
        if counts[column] > 1:
            raise InvalidInputError(
                f"X has {counts[column]} columns named {column!r}; a column picked by name must be "
                "there once: rename them, or state the column by its position."
            )
    return {name: k for k, name in enumerate(names) if isinstance(name, str)}


def missing_column(column: str, names: Iterable[Hashable]) -> InvalidInputError:
    """Build the error for a column that X does not have, with the most similar names."""
    existing = [str(name) for name in names]
    similar = get_close_matches(column, existing, n=3, cutoff=0.5)
    hint = f"its columns are {_listed(existing, NAMES_SHOWN)}."
    if similar:
        hint = f"did you mean {' or '.join(map(repr, similar))}?"
    return InvalidInputError(f"X has no column {column!r}; {hint}")


def _listed(names: Iterable[Hashable], limit: int) -> str:
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:limit] + ["..."] * (len(quoted) > limit))


def _n_columns(X: TableLike) -> int:
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2:
        return int(shape[1])
    description = f"shape {tuple(shape)}" if shape else f"a {type(X).__name__}"
    raise InvalidInputError(
        "Columns can be picked from an array or data frame of two dimensions only; "
        f"X is {description}: make it one, or state the inputs as a function of X."
    )


def _at_positions(X: Inputs, positions: list[int]) -> Inputs:
    if isinstance(X, sparray | spmatrix):
        if X.format in ("csr", "csc"):
            return X[:, positions]
        return X.tocsc()[:, positions]
    frame = _as_frame(X)
    if frame is not None:
        return cast(Inputs, frame[:, positions].to_native())
    selected: slice | list[int] = positions
    is_large = isinstance(X, np.ndarray) and len(X) >= LARGE_ROWS
    if is_large and positions and (np.diff(positions) == 1).all():
        selected = slice(positions[0], positions[-1] + 1)  # a view: a large array is not copied
    return cast(Inputs, cast(AnyArray, X)[:, selected])


def _as_frame(X: TableLike) -> Frame | None:
    if isinstance(X, np.ndarray | list | tuple | sparray | spmatrix):
        return None
    frame = to_narwhals(X)
    if isinstance(frame, nw.LazyFrame):
        raise InvalidInputError(
            f"X must be a table whose rows are there, and a {type(X).__name__} is yet to be "
            "computed: pass X.collect(), or the corresponding call of your library."
        )
    return frame if isinstance(frame, nw.DataFrame) else None


def to_narwhals(X: TableLike, *, allow_series: bool = False) -> Any:
    """Return a data frame as narwhals wraps it; any other object unchanged.

    allow_series : whether a series is wrapped too, and a lazy frame is not.
    """
    try:
        if allow_series:
            return nw.from_native(X, pass_through=True, eager_only=True, allow_series=True)
        return nw.from_native(X, pass_through=True)
    except DuplicateError as error:
        names = getattr(X, "column_names", getattr(X, "columns", ()))
        raise _repeated_names(names) from error


def _is_a(X: object, module: str, name: str) -> TypeGuard[Any]:
    """Whether X is an instance of a class of an optional package, which is then imported."""
    library = sys.modules.get(module)
    return library is not None and isinstance(X, getattr(library, name))


def _is_pandas_or_polars(X: object) -> TypeGuard[Any]:
    return bool(nw.dependencies.is_pandas_dataframe(X) or nw.dependencies.is_polars_dataframe(X))


def named_columns(
    values: AnyArray, names: Sequence[str], container: str, like: Sized
) -> AnyArray | IntoDataFrame:
    """Return values in the container that `set_output` chose, with named columns.

    values : (n, M); names : M; like : an X whose pandas index is kept.

    >>> named_columns(np.eye(2), ["a", "b"], "default", []).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if container == "default":
        return values
    library = optional(container, extra=None)
    if container == "polars":
        return library.DataFrame(values, schema=list(names), orient="row")
    index = like.index if isinstance(like, library.DataFrame) else None
    return library.DataFrame(values, columns=list(names), index=index)


class ArrowRows:
    """A table (n, p) of finite numbers, from which rows are taken as arrays.

    Each column is a list of chunks, as Arrow reads them from a file. They are not copied.

    Parameters
    ----------
    columns : for each column, the list of its chunks.
    """

    ndim = 2

    def __init__(self, columns: list[list[AnyArray]]) -> None:
        self._columns = columns
        self._ends = [[0, *accumulate(map(len, chunks))] for chunks in columns]
        single = all(np.can_cast(chunks[0].dtype, np.float32) for chunks in columns if chunks)
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.shape = (self._ends[0][-1], len(columns))

    @classmethod
    def of(cls, table: Sized) -> Self | None:
        """Wrap an Arrow table; None for other objects, and if some value is not a finite number.

        >>> ArrowRows.of(np.zeros((2, 2))) is None
        True
        """
        if not nw.dependencies.is_pyarrow_table(table) or table.num_columns == 0:
            return None
        if any(str(c.type) not in _ARROW_NUMBERS or c.null_count for c in table.columns):
            return None
        rows = cls(
            [
                [chunk.to_numpy(zero_copy_only=True) for chunk in column.chunks if len(chunk)]
                for column in table.columns
            ]
        )
        return rows if len(rows) and rows._is_finite() else None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Rows | RowMask) -> Array:
        """Return some rows, by a slice, a mask or indices: (rows, p)."""
        if isinstance(rows, slice):
            indices = np.arange(*rows.indices(len(self)), dtype=np.intp)
        elif rows.dtype == bool:
            indices = np.flatnonzero(rows)
        else:
            indices = rows.astype(np.intp)
        if (np.diff(indices) >= 0).all():
            return self._in_order(indices)
        order = np.argsort(indices, kind="stable")
        taken = np.empty((len(indices), self.shape[1]), dtype=self.dtype)
        taken[order] = self._in_order(indices[order])
        return taken

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def _in_order(self, rows: Rows) -> Array:
        taken = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        for k, (chunks, ends) in enumerate(zip(self._columns, self._ends, strict=True)):
            cuts = np.searchsorted(rows, ends)
            for chunk in np.flatnonzero(np.diff(cuts)).tolist():
                block = slice(cuts[chunk], cuts[chunk + 1])
                taken[block, k] = chunks[chunk][rows[block] - ends[chunk]]
        return taken

    def _is_finite(self) -> bool:
        return all(
            bool(np.isfinite(chunk[start : start + _ROWS_CHECKED]).all())
            for chunks in self._columns
            for chunk in chunks
            if chunk.dtype.kind == "f"
            for start in range(0, len(chunk), _ROWS_CHECKED)
        )
