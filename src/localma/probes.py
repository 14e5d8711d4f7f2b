"""Made-up inputs, whose predictions identify the candidates of a saved model.

They are drawn at random between the smallest and the largest value of each column, and from
categories that occur in several rows of the sample. They contain no row of the sample, except by
chance.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

import narwhals as nw
import numpy as np

from localma._types import AnyArray, Float64
from localma.candidates import Pool
from localma.candidates.outputs import Table
from localma.errors import ChangedCandidateError, FileFormatError
from localma.storage.array_file import Arrays, Json, shown
from localma.tables.encoder import FEWEST_ROWS, MOST_LEVELS
from localma.tables.frames import column_names, n_rows, take_rows, to_narwhals

N_PROBES = 16
"""Number of made-up rows."""
MOST_ROWS = 10_000
"""Largest number of rows of the sample that are read."""
MOST_COLUMNS = 10_000
"""With more columns there are no probes, because they would take more space than the gate."""
TOLERANCE = 1e-4
"""Share of the spread of a candidate's predictions by which they may differ."""
ROUNDING = 1e-6
"""Share of their size by which single precision may differ from machine to machine."""

Value = bool | int | float | str | date

CONTAINERS = ("pandas", "polars", "pyarrow")
_INTEGERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_TEXTS = ("String", "Categorical")
_DTYPES = (*_INTEGERS, "Float32", "Float64", "Boolean", *_TEXTS, "Date", "Datetime")
_ARRAY_DTYPES = tuple(np.dtype(kind).name for kind in "bhilqBHILQefd")


@dataclass(frozen=True)
class ProbeColumn:
    """A column of made-up inputs.

    name : None in an array.
    dtype : name of the type, that of narwhals in a frame and that of NumPy in an array.
    levels : categories; the numbers of the probes are their indices.
    """

    name: str | None
    dtype: str
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Probes:
    """Made-up inputs of a model.

    container : "pandas", "polars", "pyarrow", or None for an array.
    columns : descriptions of the p columns.
    numbers : (16, p) values; indices of categories, and days since 1970 for dates.
    """

    container: str | None
    columns: tuple[ProbeColumn, ...]
    numbers: Float64

    @classmethod
    def of(cls, X: Table) -> Self | None:
        """Make inputs that look like rows of X; None if X is not a table of known types.

        >>> Probes.of(np.array([[0, 10], [1, 20]])).table().shape
        (16, 2)
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return cls._of_table(X)
        except Exception:  # a fit must not fail because of an unusual table
            return None

    @classmethod
    def _of_table(cls, X: Table) -> Self | None:
        step = -(-max(1, n_rows(X)) // MOST_ROWS)
        if isinstance(X, np.ndarray):
            if X.ndim != 2 or X.dtype.kind not in "iuf" or not X.size or X.shape[1] > MOST_COLUMNS:
                return None
            column = ProbeColumn(None, X.dtype.name)
            return cls._between(None, [(column, *_limits(values)) for values in X[::step].T])
        names = column_names(X)
        if not names or len(names) > MOST_COLUMNS or not all(isinstance(n, str) for n in names):
            return None
        frame = to_narwhals(take_rows(X, slice(None, None, step)))
        container = str(frame.implementation)
        if container not in CONTAINERS or not len(frame):
            return None
        ranges = [_range_of(name, frame[name]) for name in names]
        if None in ranges:
            return None
        return cls._between(container, [limits for limits in ranges if limits is not None])

    @classmethod
    def _between(cls, container: str | None, ranges: list[Range]) -> Self:
        share = np.random.default_rng(0).random((N_PROBES, len(ranges)))
        columns, low, high = zip(*ranges, strict=True)
        numbers = np.array(low) * (1.0 - share) + np.array(high) * share
        whole = [c.dtype not in ("Float32", "Float64", "float32", "float64") for c in columns]
        numbers[:, whole] = np.floor(numbers[:, whole])
        return cls(container, columns, numbers)

    def table(self) -> Table:
        """The inputs in the container of the sample: 16 rows."""
        if self.container is None:
            return self.numbers.astype(self.columns[0].dtype)
        columns = list(zip(self.columns, self.numbers.T, strict=True))
        data = {str(column.name): _values(column, numbers) for column, numbers in columns}
        schema = {str(column.name): getattr(nw, column.dtype)() for column in self.columns}
        return nw.from_dict(data, schema, backend=import_module(self.container)).to_native()

    @property
    def can_be_made(self) -> bool:
        """Whether the library of their data frame is installed."""
        return self.container is None or find_spec(self.container) is not None


Range = tuple[ProbeColumn, float, float]
"""A column with its smallest and largest value."""


def _range_of(name: str, series: nw.Series[Any]) -> Range | None:
    """The type and the range of a column; None if values of its type cannot be made up."""
    dtype = type(series.dtype).__name__
    if dtype not in _DTYPES:
        return None
    if dtype in _TEXTS:
        levels = _frequent(series)
        return ProbeColumn(name, dtype, levels), 0.0, float(len(levels))
    if dtype in ("Date", "Datetime"):
        days = np.asarray(series.drop_nulls().to_numpy()).astype("datetime64[s]")
        return ProbeColumn(name, dtype), *_limits(days.astype(np.int64) / 86_400.0)
    low, high = _limits(np.asarray(series.drop_nulls().to_numpy(), dtype=np.float64))
    # Whole numbers are rounded down, so the largest value would almost never occur.
    return ProbeColumn(name, dtype), low, high + (dtype == "Boolean")


def _limits(values: AnyArray) -> tuple[float, float]:
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return 0.0, 0.0
    return float(finite.min()), float(finite.max())


def _frequent(series: nw.Series[Any]) -> tuple[str, ...]:
    """Categories of several rows, as in `TableEncoder`; a rare category may identify a person."""
    counted = series.drop_nulls().value_counts(sort=True)
    texts, counts = counted[counted.columns[0]].to_list(), counted["count"].to_list()
    frequent = [str(t) for t, count in zip(texts, counts, strict=True) if count >= FEWEST_ROWS]
    return tuple(sorted(frequent[:MOST_LEVELS])) or ("",)


def _values(column: ProbeColumn, numbers: Float64) -> list[Value]:
    if column.levels:
        indices = np.clip(numbers.astype(np.int64), 0, len(column.levels) - 1)
        return [column.levels[index] for index in indices]
    convert = _CONVERSIONS.get(column.dtype, int)
    return [convert(number) for number in numbers.tolist()]


def _moment(days: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(days=days)


_CONVERSIONS: dict[str, Callable[[float], Value]] = {
    "Boolean": bool,
    "Float32": float,
    "Float64": float,
    "Date": lambda days: _moment(days).date(),
    "Datetime": _moment,
}
"""Values of a column, from numbers; other types are integers."""


@dataclass(frozen=True)
class Recorded:
    """Predictions of candidates for made-up inputs, by name: (16,) or (16, K)."""

    probes: Probes
    predictions: Mapping[str, Float64]

    @classmethod
    def of(cls, probes: Probes, pool: Pool) -> Self:
        """Run each candidate that runs in this process; leave out those that fail or are random."""
        predictions = {}
        for name, candidate in zip(pool.names, pool.candidates, strict=True):
            if not candidate.uncached().runs_here or not probes.can_be_made:
                continue
            try:
                values, again = (_predict(probes, pool, name) for _ in range(2))
            except Exception:  # a model may refuse made-up rows in any way
                continue
            if _agree(values, again):
                predictions[name] = values
        return cls(probes, predictions)

    def recipe(self) -> Json:
        """Everything but the numbers, in JSON."""
        columns = [asdict(column) | {"levels": [*column.levels]} for column in self.probes.columns]
        return {
            "container": self.probes.container,
            "columns": columns,
            "candidates": list(self.predictions),
        }

    def arrays(self) -> Arrays:
        """The numbers."""
        numbered = {f"predictions.{k}": P for k, P in enumerate(self.predictions.values())}
        return {"inputs": self.probes.numbers, **numbered}

    @classmethod
    def from_recipe(cls, recipe: Json, arrays: Arrays, names: Collection[str]) -> Self:
        """Restore them from a file, and check them; names : those of all candidates."""
        if set(recipe) != {"container", "columns", "candidates"}:
            raise _unknown_form(recipe)
        container, columns, recorded = recipe["container"], recipe["columns"], recipe["candidates"]
        are_lists = isinstance(columns, list) and isinstance(recorded, list)
        if container not in (None, *CONTAINERS) or not are_lists or not columns:
            raise _unknown_form(recipe)
        if not all(isinstance(name, str) and name in names for name in recorded):
            raise _unknown_form(recipe)
        inputs, *values = _checked_arrays(arrays, len(columns), len(recorded))
        if len(set(recorded)) < len(recorded):
            raise _unknown_form(recipe)
        probes = Probes(container, tuple(_restore_column(c, container) for c in columns), inputs)
        return cls(probes, dict(zip(recorded, values, strict=True)))


def _checked_arrays(arrays: Arrays, n_columns: int, n_candidates: int) -> list[Float64]:
    """Inputs (16, p) and predictions (16,) or (16, K) of each candidate, in this order."""
    keys = ["inputs", *(f"predictions.{k}" for k in range(n_candidates))]
    types = {name: (array.dtype.name, array.shape) for name, array in arrays.items()}
    if set(arrays) != set(keys) or types["inputs"] != ("float64", (N_PROBES, n_columns)):
        raise _unknown_form(types)
    for name, array in arrays.items():
        if array.dtype.kind != "f" or array.ndim not in (1, 2) or len(array) != N_PROBES:
            raise _unknown_form({name: types[name]})
    return [np.asarray(arrays[key], dtype=np.float64) for key in keys]


def check_candidates(recorded: Recorded, pool: Pool, names: Collection[str]) -> None:
    """Refuse named candidates whose predictions differ from the recorded ones."""
    if not recorded.probes.can_be_made:
        return
    by_name = dict(zip(pool.names, pool.candidates, strict=True))
    for name, before in recorded.predictions.items():
        if name not in names or not by_name[name].uncached().runs_here:
            continue
        try:
            now = _predict(recorded.probes, pool, name)
        except Exception as error:  # a model may fail in any way
            raise _another_model(name, f"it fails on them ({str(error)[:300]})") from error
        if before.shape != now.shape:
            raise _another_model(name, f"they have shape {now.shape} instead of {before.shape}")
        if not _agree(before, now):
            raise _another_model(
                name,
                f"they differ by up to {np.abs(before - now).max():.3g}, compared with a range of "
                f"{np.ptp(before):.3g}",
            )


def _another_model(name: str, difference: str) -> ChangedCandidateError:
    return ChangedCandidateError(
        f"Candidate {shown(name)} is not the model that was saved: its predictions for made-up "
        f"inputs must equal those in the file, and {difference}. Use the model that was saved, or "
        "fit again with this one.",
        python_hint="load(..., probes=False) does not compare.",
    )


def _predict(probes: Probes, pool: Pool, name: str) -> Float64:
    candidates = [(n, c.uncached()) for n, c in zip(pool.names, pool.candidates, strict=True)]
    plain = Pool(candidates, task=pool.task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        P = plain.predict(probes.table(), only=[name])
    return np.asarray(P[:, pool.names.index(name)], dtype=np.float64)


def _agree(before: Float64, now: Float64) -> bool:
    """Whether predictions are equal, up to a share of their spread and rounding."""
    if before.shape != now.shape:
        return False
    spread = np.ptp(before, axis=0)
    tolerance = TOLERANCE * spread + ROUNDING * np.abs(before).max(axis=0)
    return bool((np.abs(before - now) <= tolerance).all())


def _unknown_form(saved: object) -> FileFormatError:
    return FileFormatError(f"The made-up inputs have an unknown form: {shown(saved)}.")


def _restore_column(saved: Json, container: str | None) -> ProbeColumn:
    if not isinstance(saved, dict) or set(saved) != {"name", "dtype", "levels"}:
        raise _unknown_form(saved)
    name, dtype, levels = saved["name"], saved["dtype"], saved["levels"]
    dtypes = _ARRAY_DTYPES if container is None else _DTYPES
    if dtype not in dtypes or isinstance(name, str) != (container is not None):
        raise _unknown_form(saved)
    if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
        raise _unknown_form(saved)
    if bool(levels) != (dtype in _TEXTS):
        raise _unknown_form(saved)
    return ProbeColumn(name, dtype, tuple(levels))
