"""Made-up inputs by whose predictions a saved model recognises its candidates.

They are drawn at random between the smallest and the largest value of each column, and from
categories that several rows of the sample have. No row of the sample is among them, except by
chance.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from localma.candidates import Pool
from localma.errors import ChangedCandidateError, FileFormatError
from localma.storage.array_file import shown
from localma.tables.encoder import FEWEST_ROWS, MOST_LEVELS
from localma.tables.frames import column_names, n_rows, take_rows, to_narwhals

Array = NDArray[np.float64]

N_PROBES = 16
"""Made-up rows."""
MOST_ROWS = 10_000
"""Rows of the sample that are looked at."""
MOST_COLUMNS = 10_000
"""With more columns there are no probes: they would take more space than the gate."""
TOLERANCE = 1e-4
"""Part of the spread of a candidate's predictions by which they may differ."""
ROUNDING = 1e-6
"""Part of their size by which single precision may differ from machine to machine."""

CONTAINERS = ("pandas", "polars", "pyarrow")
_INTEGERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_TEXTS = ("String", "Categorical")
_DTYPES = (*_INTEGERS, "Float32", "Float64", "Boolean", *_TEXTS, "Date", "Datetime")


@dataclass(frozen=True)
class ProbeColumn:
    """A column of made-up inputs.

    name : None in an array; dtype : the name of its type, narwhals' in a frame and NumPy's in an
    array; levels : categories, for which the numbers of the probes stand.
    """

    name: str | None
    dtype: str
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Probes:
    """Made-up inputs of a model.

    container : "pandas", "polars", "pyarrow", or None for an array.
    columns : what the p columns are; numbers : (16, p) their values; for categories the number of
        the level, for dates days since 1970.
    """

    container: str | None
    columns: tuple[ProbeColumn, ...]
    numbers: Array

    @classmethod
    def of(cls, X: Any) -> Self | None:
        """Make them like the rows of X; None if X is not a table that can be made up.

        >>> Probes.of(np.array([[0, 10], [1, 20]])).table().shape
        (16, 2)
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return cls._of_table(X)
        except Exception:  # a strange table is no reason for a fit to fail
            return None

    @classmethod
    def _of_table(cls, X: Any) -> Self | None:
        step = -(-max(1, n_rows(X)) // MOST_ROWS)
        if isinstance(X, np.ndarray):
            is_table = X.ndim == 2 and X.dtype.kind in "iuf" and X.shape[1] <= MOST_COLUMNS
            return cls._of_array(X[::step]) if is_table and X.size else None
        names = column_names(X)
        if not names or len(names) > MOST_COLUMNS or not all(isinstance(n, str) for n in names):
            return None
        frame = to_narwhals(take_rows(X, slice(None, None, step)))
        container = str(frame.implementation)
        if container not in CONTAINERS or not len(frame):
            return None
        ranges = [_range_of(name, frame[name]) for name in names]
        known = [limits for limits in ranges if limits is not None]
        return cls._between(container, known) if len(known) == len(names) else None

    @classmethod
    def _of_array(cls, X: NDArray[Any]) -> Self:
        limits = [_limits(column) for column in X.T]
        column = ProbeColumn(None, X.dtype.name)
        return cls._between(None, [_Range(column, low, high) for low, high in limits])

    @classmethod
    def _between(cls, container: str | None, ranges: list[_Range]) -> Self:
        share = np.random.default_rng(0).random((N_PROBES, len(ranges)))
        low, high = (np.array([getattr(r, side) for r in ranges]) for side in ("low", "high"))
        numbers = low * (1.0 - share) + high * share
        whole = [r.column.dtype not in ("Float32", "Float64", "float32", "float64") for r in ranges]
        numbers[:, whole] = np.floor(numbers[:, whole])
        return cls(container, tuple(r.column for r in ranges), numbers)

    def table(self) -> Any:
        """The inputs as a model takes them: 16 rows."""
        if self.container is None:
            return self.numbers.astype(self.columns[0].dtype)
        columns = list(zip(self.columns, self.numbers.T, strict=True))
        data = {str(column.name): _values(column, numbers) for column, numbers in columns}
        schema = {str(column.name): getattr(nw, column.dtype)() for column in self.columns}
        return nw.from_dict(data, schema, backend=import_module(self.container)).to_native()

    @property
    def can_be_made(self) -> bool:
        """Whether the library of data frames that they need is installed."""
        return self.container is None or find_spec(self.container) is not None


@dataclass(frozen=True)
class _Range:
    column: ProbeColumn
    low: float
    high: float


def _range_of(name: str, series: Any) -> _Range | None:
    """What a column of a frame holds; None if it is of a type that cannot be made up."""
    dtype = type(series.dtype).__name__ if not isinstance(series.dtype, type) else None
    if dtype not in _DTYPES:
        return None
    if dtype in _TEXTS:
        levels = _frequent(series)
        return _Range(ProbeColumn(name, dtype, levels), 0.0, float(len(levels)))
    if dtype in ("Date", "Datetime"):
        days = np.asarray(series.drop_nulls().to_numpy()).astype("datetime64[s]")
        return _Range(ProbeColumn(name, dtype), *_limits(days.astype(np.int64) / 86_400.0))
    numbers = np.asarray(series.drop_nulls().to_numpy(), dtype=np.float64)
    low, high = _limits(numbers)
    # Rounded down, as whole numbers are, the largest would hardly ever come up.
    return _Range(ProbeColumn(name, dtype), low, high + (dtype == "Boolean"))


def _limits(values: Any) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)


def _frequent(series: Any) -> tuple[str, ...]:
    """Categories of several rows, as `TableEncoder` saves them; a rare one may name a person."""
    counted = series.drop_nulls().value_counts(sort=True)
    texts, counts = counted[counted.columns[0]].to_list(), counted["count"].to_list()
    frequent = [str(t) for t, count in zip(texts, counts, strict=True) if count >= FEWEST_ROWS]
    return tuple(sorted(frequent[:MOST_LEVELS])) or ("",)


def _values(column: ProbeColumn, numbers: Array) -> Any:
    if column.levels:
        places = np.clip(numbers.astype(np.int64), 0, len(column.levels) - 1)
        return [column.levels[place] for place in places]
    if column.dtype in ("Date", "Datetime"):
        moments = [datetime(1970, 1, 1) + timedelta(days=float(number)) for number in numbers]
        return [moment.date() if column.dtype == "Date" else moment for moment in moments]
    kind = bool if column.dtype == "Boolean" else int if column.dtype in _INTEGERS else float
    return [kind(number) for number in numbers.tolist()]


@dataclass(frozen=True)
class Recorded:
    """What candidates predict for made-up inputs: by name (16,) or (16, K)."""

    probes: Probes
    predictions: Mapping[str, Array]

    @classmethod
    def of(cls, probes: Probes, pool: Pool) -> Self:
        """Ask every candidate of a pool that runs here; leave out those that fail or are random."""
        predictions = {}
        for name, candidate in zip(pool.names, pool.candidates, strict=True):
            if not candidate.uncached().runs_here or not probes.can_be_made:
                continue
            try:
                first, second = (_predict(probes, pool, name) for _ in range(2))
            except Exception:  # of any kind: a made-up row may be no row for it
                continue
            if _agree(first, second):
                predictions[name] = first
        return cls(probes, predictions)

    def recipe(self) -> dict[str, Any]:
        """What is no number, in JSON."""
        columns = [asdict(column) | {"levels": [*column.levels]} for column in self.probes.columns]
        return {
            "container": self.probes.container,
            "columns": columns,
            "candidates": list(self.predictions),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers."""
        numbered = {f"predictions.{k}": P for k, P in enumerate(self.predictions.values())}
        return {"inputs": self.probes.numbers, **numbered}

    @classmethod
    def from_recipe(
        cls, recipe: dict[str, Any], arrays: Mapping[str, NDArray[Any]], names: Collection[str]
    ) -> Self:
        """Take them back from a file, checked."""
        if set(recipe) != {"container", "columns", "candidates"}:
            raise _unknown_form(recipe)
        container, columns, known = (recipe[k] for k in ("container", "columns", "candidates"))
        if container is not None and container not in CONTAINERS:
            raise _unknown_form(recipe)
        if not isinstance(columns, list) or not isinstance(known, list):
            raise _unknown_form(recipe)
        wanted = {"inputs", *(f"predictions.{k}" for k in range(len(known)))}
        if set(arrays) != wanted or not all(isinstance(name, str) for name in known):
            raise _unknown_form(recipe)
        if len(set(known)) < len(known) or not set(known) <= set(names):
            raise _unknown_form(recipe)
        numbers = arrays["inputs"]
        if numbers.dtype != np.float64 or numbers.shape != (N_PROBES, len(columns)) or not columns:
            raise _unknown_form(recipe)
        probes = Probes(container, tuple(_restored(c, container) for c in columns), numbers)
        predictions = {name: arrays[f"predictions.{k}"] for k, name in enumerate(known)}
        for values in predictions.values():
            if values.dtype.kind != "f" or values.ndim not in (1, 2) or len(values) != N_PROBES:
                raise _unknown_form(recipe)
        return cls(probes, predictions)


def check_candidates(recorded: Recorded, pool: Pool, names: Collection[str]) -> None:
    """Refuse candidates, among those named, that predict something else than was recorded."""
    if not recorded.probes.can_be_made:
        return
    by_name = dict(zip(pool.names, pool.candidates, strict=True))
    for name, before in recorded.predictions.items():
        if name not in names or not by_name[name].uncached().runs_here:
            continue
        try:
            now = _predict(recorded.probes, pool, name)
        except Exception as error:  # the candidate's own, of any kind
            raise _another_model(name, f"it fails on them ({str(error)[:300]})") from error
        if not _agree(before, now):
            largest = "another shape" if before.shape != now.shape else _largest(before, now)
            raise _another_model(name, f"they differ by {largest}")


def _another_model(name: str, difference: str) -> ChangedCandidateError:
    return ChangedCandidateError(
        f"Candidate {shown(name)} is not the model that was saved: its predictions for made-up "
        f"inputs must be those in the file, and {difference}. Take the model with which the file "
        "was made, or fit again with this one.",
        python_hint="load(..., probes=False) does not compare.",
    )


def _predict(probes: Probes, pool: Pool, name: str) -> Array:
    candidates = [(n, c.uncached()) for n, c in zip(pool.names, pool.candidates, strict=True)]
    plain = Pool(candidates, task=pool.task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        P = plain.predict(probes.table(), only=[name])
    return np.asarray(P[:, pool.names.index(name)], dtype=np.float64)


def _agree(before: Array, now: Array) -> bool:
    """Whether predictions are the same, up to a part of their spread and to rounding."""
    if before.shape != now.shape:
        return False
    spread = np.ptp(before, axis=0)
    tolerance = TOLERANCE * spread + ROUNDING * np.abs(before).max(axis=0)
    return bool((np.abs(before - now) <= tolerance).all())


def _largest(before: Array, now: Array) -> str:
    return f"up to {np.abs(before - now).max():.3g}, where they range over {np.ptp(before):.3g}"


def _unknown_form(recipe: Any) -> FileFormatError:
    return FileFormatError(f"The made-up inputs have an unknown form: {shown(recipe)}.")


def _restored(saved: Any, container: str | None) -> ProbeColumn:
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


_ARRAY_DTYPES = tuple(np.dtype(kind).name for kind in "bhilqBHILQefd")
