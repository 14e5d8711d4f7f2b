"""The columns of X as people see them: numbers, categories by name, dates.

The gate may see an encoding of X, which a transformer made; people know the columns of X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from localma.errors import InvalidInputError
from localma.tables.encoder import GateFeatures
from localma.tables.frames import column_names, column_values, is_table, positions_of

Array = NDArray[np.floating]
Kind = Literal["numeric", "categorical", "date"]

MISSING = "missing"


@dataclass(frozen=True)
class Feature:
    """One column of X.

    values : (n,) numbers, days since 1970, or places in `categories`; NaN where missing.
    """

    name: str
    position: int
    kind: Kind
    values: Array
    categories: tuple[str, ...] = ()

    def take(self, rows: NDArray[np.intp]) -> Feature:
        """The same column in some rows only, with all of its categories."""
        return replace(self, values=self.values[rows])

    @property
    def present(self) -> Array:
        """The values that are not missing, each once, in order."""
        return np.unique(self.values[~np.isnan(self.values)])

    @property
    def is_whole(self) -> bool:
        """Whether all its numbers are integers."""
        return self.kind == "numeric" and bool((self.present == np.round(self.present)).all())

    def show(self, value: float) -> str:
        """One value in words, with as many digits as tell the values of the column apart.

        >>> Feature("area", 0, "numeric", np.array([30.0, 120.0])).show(80.25)
        '80.25'
        """
        if np.isnan(value):
            return MISSING
        if self.kind == "categorical":
            return self.categories[int(value)]
        if self.kind == "date":
            # Two digits of a second are lost: a date is told by its day.
            return str(np.datetime64(int(np.floor(value)), "D"))
        return format_number(value, float(np.ptp(self.present)) if self.present.size else 0.0)


def format_number(value: float, spread: float) -> str:
    """Write a number with a resolution of a thousandth of the spread of its column.

    >>> format_number(121.46652, 0.8), format_number(4500.0, 20000.0), format_number(0.00012, 0.0)
    ('121.4665', '4500', '0.00012')
    """
    if value == round(value) and abs(value) < 1e15:
        return str(round(value))
    if not 0 < spread < 1e15:
        return f"{value:.4g}"
    decimals = max(0, -int(np.floor(np.log10(spread / 1000))))
    if decimals > 12:
        return f"{value:.4g}"
    text = f"{round(value, decimals) + 0.0:.{decimals}f}"  # never minus zero
    return text.rstrip("0").rstrip(".") if "." in text else text


def read_features(X: Any, seen: GateFeatures, names: Sequence[str] | None = None) -> list[Feature]:
    """Columns of X that the gate may see; none where X is no table (texts, images).

    names : those that the columns of an array had when the model was fitted.
    """
    if not is_table(X) or len(getattr(X, "shape", ())) != 2:
        return []
    known = column_names(X) or names or [f"x{place}" for place in range(X.shape[1])]
    known = [str(name) for name in known]
    if len(set(known)) < len(known):
        raise InvalidInputError(
            f"Columns of X must have different names to be told apart; received {known}. Rename "
            "those that are there twice."
        )
    if seen.columns is not None:
        positions = positions_of(X, seen.columns)
    else:
        hidden = set(positions_of(X, list(seen.hidden)))
        positions = [place for place in range(X.shape[1]) if place not in hidden]
    return [_feature(X, place, known[place]) for place in positions]


def shuffle_column(X: Any, position: int, order: NDArray[np.intp]) -> Any:
    """X with the rows of one column in another order; everything else stays."""
    if issparse(X):
        X = X.toarray()
    if isinstance(X, np.ndarray):
        shuffled = X.copy()
        shuffled[:, position] = X[order, position]
        return shuffled
    frame = nw.from_native(X, eager_only=True)
    column = frame[:, position]
    # Positions, not the labels of a pandas index, say which row is which.
    native = column.to_native()
    if nw.dependencies.is_pandas_like_series(native):
        moved = nw.from_native(native.take(order).set_axis(native.index), series_only=True)
    else:
        moved = column[order]
    return frame.with_columns(moved.alias(column.name)).to_native()


def _feature(X: Any, position: int, name: str) -> Feature:
    if column_names(X) is None:
        return _from_array(column_values(X, position), position, name)
    series = nw.from_native(X, eager_only=True)[:, position]
    dtype = series.dtype
    if dtype.is_numeric():
        numbers = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
        return Feature(name, position, "numeric", numbers)
    if dtype in (nw.Date, nw.Datetime):
        return Feature(name, position, "date", _days(series.to_numpy()))
    values, missing = series.to_list(), np.asarray(series.is_null().to_numpy())
    if dtype not in (nw.String, nw.Categorical, nw.Enum, nw.Boolean):
        return _from_array(np.array(values, dtype=object), position, name)
    return _categorical(values, missing, position, name)


def _from_array(values: NDArray[Any], position: int, name: str) -> Feature:
    if values.dtype.kind in "iuf":
        return Feature(name, position, "numeric", values.astype(np.float64))
    if values.dtype.kind == "M":
        return Feature(name, position, "date", _days(values))
    missing = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
    numbers = [isinstance(value, int | float) for value in values[~missing].tolist()]
    if all(numbers) and values.dtype.kind == "O":
        filled = np.where(missing, np.nan, values).astype(np.float64)
        return Feature(name, position, "numeric", filled)
    return _categorical(values.tolist(), missing, position, name)


def _categorical(
    values: Sequence[Any], missing: NDArray[np.bool_], position: int, name: str
) -> Feature:
    words = np.array([MISSING if m else str(v) for v, m in zip(values, missing, strict=True)])
    categories, codes = np.unique(words[~missing], return_inverse=True)
    places = np.full(len(words), np.nan)
    places[~missing] = codes
    return Feature(name, position, "categorical", places, tuple(categories.tolist()))


def _days(values: NDArray[Any]) -> Array:
    moments = np.asarray(values, dtype="datetime64[ms]")
    days = moments.astype(np.int64) / 86_400_000
    return np.where(np.isnat(moments), np.nan, days)
