"""Rows as JSON and answers out of it: the forms that web endpoints for models understand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from localma.candidates.base import RowError
from localma.candidates.outputs import Array
from localma.errors import LocalMAError
from localma.tables.frames import column_names, dense

Columns = list[str] | None
Build = Callable[[Columns, list[Any]], Any]


def _columns(columns: Columns, rows: list[Any]) -> Any:
    return {"columns": columns, "rows": rows}


def _instances(columns: Columns, rows: list[Any]) -> Any:
    if columns is None:
        return {"instances": rows}
    return {"instances": [dict(zip(columns, row, strict=True)) for row in rows]}


def _mlflow(columns: Columns, rows: list[Any]) -> Any:
    if columns is None:
        return {"inputs": rows}
    return {"dataframe_split": {"columns": columns, "data": rows}}


FORMATS: Mapping[str, Build] = {"columns": _columns, "instances": _instances, "mlflow": _mlflow}
"""How columns and rows become one JSON document, by name."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that are this machine itself."""
QUOTED_CHARACTERS = 200
CONTAINERS, CONTAINERS_PER_ROW = 1024, 64
"""Lists and objects that an answer may have, at most."""


class ServerError(LocalMAError):
    """The server behind an address gave no answer that can be used."""


def as_rows(X: Any) -> tuple[Columns, list[Any]]:
    """Column names, if there are any, and the rows as JSON has them: missing values are null.

    >>> as_rows(np.array([[1.5, np.nan]]))
    (None, [[1.5, None]])
    >>> as_rows(["a text"])
    (None, ['a text'])
    """
    names = column_names(X)
    if names is not None:
        rows: Any = nw.from_native(X, eager_only=True).rows()
        return [str(name) for name in names], _all_plain(rows)
    if issparse(X):
        X = dense(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "biu":
        return None, X.tolist()
    if isinstance(X, np.ndarray) and X.dtype.kind == "f" and np.isfinite(X).all():
        return None, X.tolist()
    return None, _all_plain(X)


def _all_plain(rows: Any) -> list[Any]:
    plain = []
    for place, row in enumerate(rows):
        try:
            plain.append(_plain(row))
        except TypeError as error:
            raise RowError(
                f"it holds {error}, which JSON cannot carry: state other inputs=, or a function "
                "as inputs= that converts it.",
                row=place,
            ) from None
    return plain


def _plain(value: Any) -> Any:
    """A value in the few types of JSON; a TypeError names what has none."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist()) if value.dtype.kind != "M" else _moment(value)
    if isinstance(value, float | Decimal):
        return _number(float(value))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__}")


def _number(value: float) -> float | None:
    if isnan(value):
        return None
    if not isfinite(value):
        raise TypeError("infinity")
    return value


def _moment(value: Any) -> Any:
    if value.ndim:
        return [_moment(item) for item in value]
    return None if np.isnat(value) else str(value)


class AnswerError(ValueError):
    """An answer that holds no predictions; says what it holds instead."""


def read_json(answer: bytes, n: int) -> Any:
    """What an answer holds, if that is JSON of a size that fits the number of rows.

    Parameters
    ----------
    answer : JSON, in UTF-8.
    n : how many rows were sent.

    Examples
    --------
    >>> read_json(b'{"predictions": [1, 2.5]}', 2)
    {'predictions': [1, 2.5]}
    """
    # An empty list takes two bytes here and 64 in memory, and parsing cannot be stopped half-way.
    containers = answer.count(b"[") + answer.count(b"{")
    if containers > CONTAINERS + CONTAINERS_PER_ROW * n:
        raise AnswerError(f"{containers} lists and objects for {n} rows")
    try:
        return json.loads(answer, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except AnswerError:
        raise
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"what is not JSON ({error})") from error


def _refuse_constant(constant: str) -> Any:
    raise AnswerError(f"{constant}, which JSON does not have")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two values for one key nobody knows which one counts."""
    read = dict(pairs)
    if len(read) < len(pairs):
        raise AnswerError("an object that has the same key twice")
    return read


def read_predictions(document: Any, n: int, convert: Callable[[Any], Any] | None) -> Array:
    """Predictions out of an answer, ``{"predictions": [...]}`` unless `convert` knows better.

    Parameters
    ----------
    document : what the JSON holds, with a number or a list of numbers per row.
    n : how many rows were sent.
    convert : from what the JSON holds to the predictions.

    Returns
    -------
    Array
        (n,) or (n, K).

    Examples
    --------
    >>> read_predictions({"predictions": [1, 2.5]}, 2, None).tolist()
    [1.0, 2.5]
    """
    if convert is not None:
        return _as_numbers(convert(document), n)
    if not isinstance(document, dict) or "predictions" not in document:
        raise AnswerError('JSON without {"predictions": [...]}')
    return _as_numbers(document["predictions"], n)


def _as_numbers(predictions: Any, n: int) -> Array:
    if isinstance(predictions, list):
        _check_list(predictions, n)
    try:
        values = np.asarray(predictions)
    except ValueError:
        raise AnswerError("rows of different lengths as predictions") from None
    if values.ndim not in (1, 2) or len(values) != n:
        raise AnswerError(f"predictions of shape {values.shape} for {n} rows")
    if values.dtype.kind not in "iuf":
        raise AnswerError("predictions that are not all numbers")
    return values.astype(np.float64)


def _check_list(predictions: list[Any], n: int) -> None:
    """Refuse what NumPy would take for numbers, or take long to refuse."""
    if len(predictions) != n:
        raise AnswerError(f"{len(predictions)} predictions for {n} rows")
    rows = [row if isinstance(row, list) else [row] for row in predictions]
    if len({len(row) for row in rows}) > 1:
        raise AnswerError("rows of different lengths as predictions")
    # Among numbers NumPy makes one of true.
    if any(isinstance(value, bool) for row in rows for value in row):
        raise AnswerError("predictions that are not all numbers")


def excerpt(answer: bytes) -> str:
    """The beginning of an answer, for an error; empty for an empty answer.

    >>> excerpt(b'{"detail": "no such model"}')
    ': \\'{"detail": "no such model"}\\''
    """
    text = answer[: 4 * QUOTED_CHARACTERS].decode("utf-8", "replace").strip()
    return f": {text[:QUOTED_CHARACTERS]!r}" if text else ""
