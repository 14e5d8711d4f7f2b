"""Columns of X with the names and values that people know, and their bins.

The gate may use an encoding of X that a transformer made. People know the columns of X itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from localma._types import AnyArray, Array, Integers, RowMask, Rows
from localma.errors import InvalidInputError
from localma.formatting import resolved
from localma.tables.encoder import GateFeatures
from localma.tables.frames import column_names, column_values, is_table, positions_of

Kind = Literal["numeric", "categorical", "date"]

MISSING = "missing"
MOST_CATEGORIES = 12
MILLISECONDS_PER_DAY = 86_400_000


@dataclass(frozen=True)
class Feature:
    """One column of X.

    values : (n,) numbers, days since 1970, or indices in `categories`; NaN if missing.
    """

    name: str
    position: int
    kind: Kind
    values: Array
    categories: tuple[str, ...] = ()

    def take(self, rows: Rows) -> Feature:
        """Return the column for some rows, with all of its categories."""
        return replace(self, values=self.values[rows])

    @property
    def missing(self) -> RowMask:
        """Rows without a value: (n,)."""
        return np.isnan(self.values)

    @property
    def present(self) -> Array:
        """Distinct values that are not missing, in order."""
        return np.unique(self.values[~self.missing])

    @property
    def codes(self) -> Integers:
        """Index of the category of each row, or the number of categories if missing: (n,)."""
        return np.where(self.missing, len(self.categories), self.values).astype(np.intp)

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are integers."""
        return self.kind == "numeric" and bool((self.present == np.round(self.present)).all())

    def show(self, value: float) -> str:
        """Write one value, with enough digits to distinguish the values of the column.

        >>> Feature("area", 0, "numeric", np.array([30.0, 120.0])).show(80.25)
        '80.25'
        """
        if np.isnan(value):
            return MISSING
        if self.kind == "categorical":
            return self.categories[int(value)]
        if self.kind == "date":
            return str(np.datetime64(int(np.floor(value)), "D"))
        return resolved(value, float(np.ptp(self.present)))


def read_features(
    X: Any, gate_features: GateFeatures, names: Sequence[str] | None = None
) -> list[Feature]:
    """Read the columns of X that the gate may use; none if X is not a table (texts, images).

    names : names of the columns of an array when the model was fitted.
    """
    if not is_table(X) or len(getattr(X, "shape", ())) != 2:
        return []
    positions: Sequence[int] = range(X.shape[1])
    names = [str(name) for name in column_names(X) or names or [f"x{k}" for k in positions]]
    if len(set(names)) < len(names):
        raise InvalidInputError(
            f"Columns of X must have different names; received {names}. Rename the duplicates."
        )
    if gate_features.columns is not None:
        positions = positions_of(X, gate_features.columns)
    else:
        hidden = set(positions_of(X, list(gate_features.hidden)))
        positions = [position for position in positions if position not in hidden]
    return [_feature(X, position, names[position]) for position in positions]


def shuffle_column(X: Any, position: int, order: Rows) -> Any:
    """Return X with the rows of one column in another order."""
    if issparse(X):
        X = X.toarray()
    if isinstance(X, np.ndarray):
        shuffled = X.copy()
        shuffled[:, position] = X[order, position]
        return shuffled
    frame = nw.from_native(X, eager_only=True)
    column = frame[:, position]
    native = column.to_native()
    moved = column[order]
    if nw.dependencies.is_pandas_like_series(native):
        # pandas would align the values by the labels of the index, which may repeat.
        moved = nw.from_native(native.take(order).set_axis(native.index), series_only=True)
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


def _from_array(values: AnyArray, position: int, name: str) -> Feature:
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


def _categorical(values: Sequence[object], missing: RowMask, position: int, name: str) -> Feature:
    texts = np.array([str(value) for value in values])
    categories, codes = np.unique(texts[~missing], return_inverse=True)
    indices = np.full(len(texts), np.nan)
    indices[~missing] = codes
    return Feature(name, position, "categorical", indices, tuple(categories.tolist()))


def _days(values: AnyArray) -> Array:
    moments = np.asarray(values, dtype="datetime64[ms]")
    days = moments.astype(np.int64) / MILLISECONDS_PER_DAY
    return np.where(np.isnat(moments), np.nan, days)


@dataclass(frozen=True)
class Bins:
    """B bins of n rows.

    labels : B texts; centres : (B,) means of the values, NaN for missing values, or None for
    categories; bin_of_row : (n,) index of the bin of each row.
    """

    labels: tuple[str, ...]
    centres: Array | None
    bin_of_row: Integers

    def counts(self) -> Integers:
        """Rows in each bin: (B,)."""
        return np.bincount(self.bin_of_row, minlength=len(self.labels))

    def means(self, values: Array, sample_weight: Array) -> Array:
        """Weighted means over the rows of each bin: (n, C) -> (B, C); NaN without weight."""
        indicator = np.equal.outer(np.arange(len(self.labels)), self.bin_of_row) * sample_weight
        with np.errstate(invalid="ignore"):
            return (indicator @ values) / indicator.sum(axis=1, keepdims=True)


def make_bins(feature: Feature, n_bins: int) -> Bins:
    """Bin a feature: by value if there are few, by quantiles otherwise, and by category.

    Missing values have one more bin, at the end. Rare categories are joined, since the mean of a
    few rows is not reliable.

    >>> bins = make_bins(Feature("rooms", 0, "numeric", np.array([1.0, 2.0, 1.0])), n_bins=5)
    >>> bins.labels, bins.bin_of_row.tolist()
    (('1', '2'), [0, 1, 0])
    """
    missing = feature.missing
    centres = None
    if feature.kind == "categorical":
        labels, bin_of_row = _by_category(feature)
    else:
        labels, bin_of_row = _by_value(feature, n_bins)
        centres = np.array(
            [feature.values[(bin_of_row == b) & ~missing].mean() for b in range(len(labels))]
        )
    if missing.any():
        bin_of_row = np.where(missing, len(labels), bin_of_row)
        labels = [*labels, MISSING]
        if centres is not None:
            centres = np.append(centres, np.nan)
    return Bins(tuple(labels), centres, bin_of_row)


def _by_category(feature: Feature) -> tuple[list[str], Integers]:
    """Give each of the most frequent categories a bin, and join the others."""
    codes = np.where(feature.missing, 0, feature.values).astype(np.intp)
    counts = np.bincount(codes[~feature.missing], minlength=len(feature.categories))
    named = np.flatnonzero(counts)
    labels = []
    if len(named) > MOST_CATEGORIES:
        labels = [f"{len(named) - MOST_CATEGORIES + 1} others"]
        named = np.sort(named[np.argsort(-counts[named], kind="stable")[: MOST_CATEGORIES - 1]])
    bin_of_code = np.full(len(feature.categories) + 1, len(named))
    bin_of_code[named] = np.arange(len(named))
    return [feature.categories[code] for code in named] + labels, bin_of_code[codes]


def _by_value(feature: Feature, n_bins: int) -> tuple[list[str], Integers]:
    present = feature.present
    values = np.where(feature.missing, present[:1].sum(), feature.values)
    counts = np.unique(values[~feature.missing], return_counts=True)[1]
    if len(present) <= n_bins and 200 * counts.min(initial=len(values)) >= len(values):
        return [feature.show(value) for value in present], np.searchsorted(present, values)
    quantiles = np.quantile(values[~feature.missing], np.linspace(0, 1, n_bins + 1)[1:-1])
    # An edge is an observed value, and belongs to the bin on its left.
    edges = present[np.searchsorted(present, quantiles, side="right") - 1]
    edges = np.unique(edges[edges < present[-1]])
    lowest = present[np.append(0, np.searchsorted(present, edges, side="right"))]
    labels = [
        " to ".join(dict.fromkeys(map(feature.show, ends)))
        for ends in zip(lowest, [*edges, present[-1]], strict=True)
    ]
    return labels, np.searchsorted(edges, values, side="left")
