"""Rows and columns of X: an array, a sparse matrix, a data frame, a list, a tensor, a data set.

Strings are column names and integers are positions, as in scikit-learn's ColumnTransformer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from difflib import get_close_matches
from itertools import accumulate
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import issparse

from localma._optional import optional
from localma.errors import InvalidInputError

ColumnKey = str | int
Rows = NDArray[np.intp]

_CHECKED_ROWS = 2**16
"""Rows that are checked at once."""

LARGE_ROWS = 20_000
"""From this many rows on, a sample is read part by part and never copied as a whole."""


def n_rows(X: Any) -> int:
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


def column_names(X: Any) -> list[Any] | None:
    """Names of the columns of a data frame; None for anything without names.

    >>> column_names(np.zeros((3, 2))) is None
    True
    """
    if isinstance(X, np.ndarray | list | tuple) or issparse(X):
        return None
    if _is_pandas_or_polars(X):
        return list(X.columns)
    frame = _as_frame(X)
    return None if frame is None else list(frame.columns)


def check_rows_and_columns(X: Any) -> None:
    """Refuse a dict, whose rows and columns nobody can tell apart.

    >>> check_rows_and_columns(np.zeros((3, 2)))
    """
    if isinstance(X, Mapping):
        keys = ", ".join(repr(key) for key in list(X)[:5])
        more = ", ..." if len(X) > 5 else ""
        raise InvalidInputError(
            f"X must be an array, a data frame or a list of rows; received a {type(X).__name__} "
            f"with the keys {keys}{more}. If they are columns, pass pandas.DataFrame(X) or "
            "polars.DataFrame(X)."
        )


def readable_tensor(X: Any) -> Any:
    """X as it is; a PyTorch tensor as one that NumPy can read.

    Such a tensor has no gradient and is on the CPU, and bfloat16 becomes float32.

    >>> readable_tensor([1.0, 2.0])
    [1.0, 2.0]
    """
    if not _is_a(X, "torch", "Tensor"):
        return X
    X = X.detach().cpu()
    return X.float() if X.dtype == sys.modules["torch"].bfloat16 else X


def check_names_differ(X: Any) -> None:
    """Refuse a data frame in which some name stands over several columns.

    >>> check_names_differ(np.zeros((3, 2)))  # an array has no names
    """
    names = column_names(X) or []
    if len(set(names)) < len(names):
        raise _named_twice(names)


def _named_twice(names: Iterable[Any]) -> InvalidInputError:
    twice = [name for name, count in Counter(names).items() if count > 1]
    return InvalidInputError(
        f"Columns of a data frame must have different names; {', '.join(map(repr, twice))} "
        f"{'is' if len(twice) == 1 else 'are'} there more than once: rename them."
    )


def unmasked(values: Any) -> Any:
    """Turn a NumPy masked array into a plain one, in which masked values are missing: NaN or None.

    Lists of masked arrays, and lists that hold `np.ma.masked`, become plain ones too. Everything
    else passes as it is.

    >>> unmasked(np.ma.array([1, 999], mask=[False, True])).tolist()
    [1.0, nan]
    """
    if isinstance(values, list | tuple):
        if any(isinstance(row, np.ma.MaskedArray) for row in values):
            return [None if row is np.ma.masked else unmasked(row) for row in values]
        return values
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return values.data
    dtype, missing = _MISSING.get(values.dtype.kind, (object, None))
    plain = values.data.astype(values.dtype if dtype is None else dtype)
    plain[np.ma.getmaskarray(values)] = missing
    return plain


_MISSING: dict[str, tuple[type | None, float | str]] = {
    **dict.fromkeys("biu", (np.float64, np.nan)),
    **dict.fromkeys("fc", (None, np.nan)),
    **dict.fromkeys("mM", (None, "NaT")),
}
"""For each kind of values, the type that can hold a missing one, if it is another, and that one."""


def without_mask(values: Any, name: str) -> Any:
    """Values as they are, without a mask that hides none of them; refuse one that hides some.

    name : what errors call them, such as "y"; every row needs a value of it.

    >>> without_mask(np.ma.array([1.0, 2.0]), "y").tolist()
    [1.0, 2.0]
    """
    if not isinstance(values, np.ma.MaskedArray | list | tuple):
        return values
    hidden = _masked_rows(values)
    if len(hidden):
        raise InvalidInputError(
            f"{name} is masked in {len(hidden)} of {len(values)} rows, first in row {hidden[0]}. A "
            "masked value is missing, and every row needs one. Leave those rows out, or fill them."
        )
    return unmasked(values)


def _masked_rows(values: np.ma.MaskedArray[Any, Any] | Sequence[Any]) -> NDArray[np.intp]:
    if isinstance(values, np.ma.MaskedArray):
        mask = np.atleast_1d(np.ma.getmaskarray(values))
        return np.flatnonzero(mask.any(axis=tuple(range(1, mask.ndim))))
    arrays = (isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in values)
    return np.flatnonzero(np.fromiter(arrays, dtype=bool))


def holds_dates(X: Any) -> bool:
    """Whether an array or a list holds dates or durations, which are no numbers.

    >>> holds_dates(np.array([["2024-05-31"]], dtype="datetime64[D]")), holds_dates(np.ones((2, 1)))
    (True, False)
    """
    if isinstance(X, list | tuple):
        first = X[0] if len(X) else ()
        return any(isinstance(v, _DATES) for v in (first if isinstance(first, list) else [first]))
    if not isinstance(X, np.ndarray):
        return False
    return X.dtype.kind in "mM" or (
        X.dtype.kind == "O" and any(isinstance(value, _DATES) for value in X.flat)
    )


_DATES = (date, timedelta, np.datetime64, np.timedelta64)


def take_rows(X: Any, rows: slice | NDArray[np.intp]) -> Any:
    """Some rows of X, as the same kind of object.

    >>> take_rows(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    """
    if isinstance(X, list | tuple):
        return X[rows] if isinstance(rows, slice) else [X[row] for row in rows]
    if issparse(X):
        return X.tocsr()[rows]
    if isinstance(X, np.ndarray):
        return X[rows]
    if _is_a(X, "datasets", "Dataset"):
        return X.select(np.arange(n_rows(X))[rows])
    if _is_a(X, "torch.utils.data", "Dataset"):
        return sys.modules["torch.utils.data"].Subset(X, np.arange(n_rows(X))[rows].tolist())
    native = to_narwhals(X, eager_only=True, allow_series=True)
    return X[rows] if native is X else native[rows].to_native()


def is_table(X: Any) -> bool:
    """Whether X reads as a table of numbers: a frame, a matrix, or rows of as many numbers each.

    Texts, images, tensors and data sets do not.

    >>> is_table([[1.0, 2.0], [3.0, 4.0]]), is_table(["a text"]), is_table(np.zeros((2, 8, 8)))
    (True, False, False)
    """
    if issparse(X) or column_names(X) is not None:
        return True
    if hasattr(X, "__array__") and not _is_a(X, "torch", "Tensor"):
        X = np.asarray(X)
        if X.dtype.kind == "O" and X.shape[1:] == (1,) and all(isinstance(x, str) for x in X.flat):
            return False
        return X.ndim <= 2 and X.dtype.kind in ("biufcO" if X.ndim == 2 else "biufc")
    if not isinstance(X, list | tuple):
        return False
    shapes = {np.shape(row) if isinstance(row, np.ndarray) else _length(row) for row in X}
    return len(shapes) <= 1 and all(len(shape) <= 1 for shape in shapes)


def _length(row: Any) -> tuple[int, ...]:
    """Shape of a row of numbers, () for a number; two dimensions stand for anything else."""
    numbers = row if isinstance(row, list | tuple) else [row]
    if not all(isinstance(value, Real | np.generic) and np.isscalar(value) for value in numbers):
        return (0, 0)
    return (len(row),) if isinstance(row, list | tuple) else ()


def checked_columns(columns: Iterable[Any], what: str) -> list[ColumnKey]:
    """Columns as strings and plain integers, whatever they came in.

    >>> checked_columns(np.array([0, 2]), "inputs")
    [0, 2]
    """
    listed = list(columns)
    for column in listed:
        if isinstance(column, bool | np.bool_) or not isinstance(column, str | int | np.integer):
            raise InvalidInputError(
                f"{what} must be a list of columns (names or integer positions) or a function of "
                f"X; received {columns!r}. Make positions of a mask with np.flatnonzero(mask)."
            )
    return [str(column) if isinstance(column, str) else int(column) for column in listed]


def pick_columns(X: Any, columns: Sequence[ColumnKey]) -> Any:
    """Some columns of X in the given order, as the same kind of object.

    >>> pick_columns(np.array([[1, 2, 3]]), [2, 0]).tolist()
    [[3, 1]]
    """
    return _at_positions(X, positions_of(X, columns))


def drop_columns(X: Any, columns: Iterable[ColumnKey]) -> Any:
    """Return X without some columns, as the same kind of object; X itself if there are none.

    >>> drop_columns(np.array([[1, 2, 3]]), [1]).tolist()
    [[1, 3]]
    """
    dropped = set(positions_of(X, list(columns)))
    if not dropped:
        return X
    return _at_positions(X, [place for place in range(_n_columns(X)) if place not in dropped])


def column_values(X: Any, column: ColumnKey) -> NDArray[Any]:
    """One column of X as an array: (n,).

    >>> column_values(np.array([[1, 2], [3, 4]]), -1).tolist()
    [2, 4]
    """
    if isinstance(column, str) and _is_pandas_or_polars(X) and column in X.columns:
        # Ten times as quick as picking, and a pool may hold a thousand columns.
        values = np.asarray(X[column].to_numpy())
        if values.ndim == 1:
            return values
    picked = pick_columns(X, [column])
    return dense(picked)[:, 0]


def dense(X: Any) -> NDArray[Any]:
    """X as a plain array, without changing its numbers."""
    if issparse(X):
        return np.asarray(X.toarray())
    frame = _as_frame(X)
    return np.asarray(readable_tensor(unmasked(X)) if frame is None else frame.to_numpy())


def positions_of(X: Any, columns: Sequence[ColumnKey]) -> list[int]:
    """Positions of the named or numbered columns, counted from zero.

    >>> positions_of(np.zeros((3, 4)), [1, -1])
    [1, 3]
    """
    if not columns:
        return []
    width = _n_columns(X)
    by_number = [isinstance(column, int | np.integer) for column in columns]
    places = None if all(by_number) else _places_by_name(X)
    if places is not None:
        _check_all_there([str(c) for c in columns if isinstance(c, str)], places)
    return [
        _position_of_number(int(column), width)
        if numbered
        else _position_of_name(str(column), places, X)
        for column, numbered in zip(columns, by_number, strict=True)
    ]


def _places_by_name(X: Any) -> dict[Any, list[int]] | None:
    names = column_names(X)
    if names is None:
        return None
    places: dict[Any, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def _position_of_number(column: int, width: int) -> int:
    if not -width <= column < width:
        raise InvalidInputError(
            f"X has no column at position {column}; it has {width} columns, "
            f"whose positions are 0 to {width - 1}."
        )
    return column % width


def _position_of_name(column: str, places: dict[Any, list[int]] | None, X: Any) -> int:
    if places is None:
        raise InvalidInputError(
            f"X has no column {column!r}, since a {type(X).__name__} has no column names: "
            "state the column by its position, or pass a data frame."
        )
    positions = places[column]
    if len(positions) > 1:
        raise InvalidInputError(
            f"X has {len(positions)} columns named {column!r}; a column picked by name must be "
            "there once: rename them, or state the column by its position."
        )
    return positions[0]


def _check_all_there(columns: Sequence[str], names: Iterable[Any]) -> None:
    """Refuse, with all their names, columns that X does not have."""
    absent = [column for column in dict.fromkeys(columns) if column not in names]
    if len(absent) == 1:
        raise missing_column(absent[0], names)
    if absent:
        raise InvalidInputError(
            f"X has no columns {', '.join(map(repr, absent))}; {_its_columns(names)}"
        )


def missing_column(column: str, names: Iterable[Any]) -> InvalidInputError:
    """Build the error for a column that X does not have, with the nearest ones that it has."""
    known = [str(name) for name in names]
    near = get_close_matches(column, known, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(repr(name) for name in near)}?"
    else:
        hint = _its_columns(known)
    return InvalidInputError(f"X has no column {column!r}; {hint}")


def _its_columns(names: Iterable[Any]) -> str:
    known = [str(name) for name in names]
    listed = ", ".join(repr(name) for name in known[:10])
    return f"its columns are {listed}{', ...' if len(known) > 10 else ''}."


def _n_columns(X: Any) -> int:
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 2:
        described = f"shape {tuple(shape)}" if shape else f"a {type(X).__name__}"
        raise InvalidInputError(
            f"Columns can be picked from an array or data frame of two dimensions only; "
            f"X is {described}: make it one, or state the inputs as a function of X."
        )
    return int(shape[1])


def _at_positions(X: Any, positions: list[int]) -> Any:
    if issparse(X) and X.format not in ("csr", "csc"):
        X = X.tocsc()
    frame = _as_frame(X)
    if frame is not None:
        return frame[:, positions].to_native()
    neighbours = bool(positions) and positions == list(range(positions[0], positions[-1] + 1))
    if neighbours and isinstance(X, np.ndarray) and len(X) >= LARGE_ROWS:
        return X[:, positions[0] : positions[-1] + 1]  # a view: a large array is not copied
    return X[:, positions]


def _as_frame(X: Any) -> nw.DataFrame[Any] | None:
    if isinstance(X, np.ndarray | list | tuple):
        return None
    frame = to_narwhals(X)
    if isinstance(frame, nw.LazyFrame):
        raise InvalidInputError(
            f"X must be a table whose rows are there, and a {type(X).__name__} is yet to be "
            "computed: pass X.collect(), or what your library has in its place."
        )
    return frame if isinstance(frame, nw.DataFrame) else None


def to_narwhals(X: Any, **how: Any) -> Any:
    """X as narwhals sees it; X itself where it is no frame."""
    try:
        return nw.from_native(X, pass_through=True, **how)
    except DuplicateError as error:
        raise _named_twice(getattr(X, "column_names", None) or X.columns) from error


def _is_a(X: Any, module: str, name: str) -> bool:
    """Whether X is of a class of a package that is optional; it is imported if X is."""
    library = sys.modules.get(module)
    return library is not None and isinstance(X, getattr(library, name))


def _is_pandas_or_polars(X: Any) -> bool:
    found = nw.dependencies.is_pandas_dataframe(X) or nw.dependencies.is_polars_dataframe(X)
    return bool(found)


CONTAINERS = ("default", "pandas", "polars")
"""What `set_output` may ask for: arrays, or data frames of one library."""


def named_columns(values: NDArray[Any], names: Sequence[str], container: str, like: Any) -> Any:
    """Values as the container asked for, with named columns.

    values : (n, M); names : M; like : an X whose pandas index is kept.

    >>> named_columns(np.eye(2), ["a", "b"], "default", None).tolist()
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
    """A table (n, p) of finite numbers, of which rows are taken as arrays.

    Every column is a list of pieces, as Arrow reads them from a file; none is copied.

    Parameters
    ----------
    pieces : of each column, its arrays one after another.
    """

    ndim = 2

    def __init__(self, pieces: list[list[NDArray[Any]]]) -> None:
        self.pieces = pieces
        self.ends = [[0, *accumulate(len(piece) for piece in column)] for column in pieces]
        single = all(np.can_cast(column[0].dtype, np.float32) for column in pieces if column)
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.shape = (self.ends[0][-1], len(pieces))

    @classmethod
    def of(cls, table: Any) -> ArrowRows | None:
        """Read an Arrow table; None if it is none, or holds anything but finite numbers.

        >>> ArrowRows.of(np.zeros((2, 2))) is None
        True
        """
        if not nw.dependencies.is_pyarrow_table(table) or table.num_columns == 0:
            return None
        numeric = {f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)}
        numeric |= {"float", "double"}
        if any(str(c.type) not in numeric or c.null_count for c in table.columns):
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

    def __getitem__(self, rows: slice | Rows | NDArray[np.bool_]) -> NDArray[np.floating]:
        """Some rows, by a slice, a mask or indices: (rows, p)."""
        if isinstance(rows, slice):
            wanted = np.arange(*rows.indices(len(self)), dtype=np.intp)
        else:
            wanted = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.intp)
        if (np.diff(wanted) < 0).any():
            order = np.argsort(wanted, kind="stable")
            taken = np.empty((len(wanted), self.shape[1]), dtype=self.dtype)
            taken[order] = self._in_order(wanted[order])
            return taken
        return self._in_order(wanted)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def _in_order(self, rows: Rows) -> NDArray[np.floating]:
        taken = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        for k, (pieces, ends) in enumerate(zip(self.pieces, self.ends, strict=True)):
            cuts = np.searchsorted(rows, ends)
            for piece in np.flatnonzero(np.diff(cuts)).tolist():
                block = slice(cuts[piece], cuts[piece + 1])
                taken[block, k] = pieces[piece][rows[block] - ends[piece]]
        return taken

    def _is_finite(self) -> bool:
        return all(
            bool(np.isfinite(piece[start : start + _CHECKED_ROWS]).all())
            for column in self.pieces
            for piece in column
            if piece.dtype.kind == "f"
            for start in range(0, len(piece), _CHECKED_ROWS)
        )
