"""Tables in and out of a fitted model: its input columns, and the columns of its answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from localma._optional import optional
from localma._types import AnyArray, Array, RowMask, Rows
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.gates.incomplete import known_predictions
from localma.production.answer import Answer, Guard, Model, answer, output_shape, run_all
from localma.production.options import Options
from localma.tables.cells import Known
from localma.tables.encoder import TableEncoder
from localma.tables.files import TableReader
from localma.tables.frames import take_rows
from localma.tables.roles import check_column

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = optional("pyarrow", extra="cli")

NamedColumn: TypeAlias = "tuple[str, AnyArray | pa.Array]"
MIN_SUPPORT = 0.5
"""Rows with less support are unlike the labelled sample."""


def known_columns(model: Model, target: str | None = None, group: str | None = None) -> Known:
    """Describe the columns that a model was fitted on: types, decimal mark, percent signs."""
    types = {str(name): pa.float64() for name in model.gate_features_.hidden}
    encoder = model.gate_features_.transformer
    if isinstance(encoder, TableEncoder):
        kinds = {"category": pa.string(), "number": pa.float64(), "truth": pa.bool_()}
        encoded = {c.name: kinds[c.kind] for c in encoder.columns_ if c.kind in kinds}
        types = encoded | types
    if target is not None and isinstance(model, LocalMARegressor):
        types[target] = pa.float64()
    elif target is not None and model.classes_.dtype.kind in "OU":
        types[target] = pa.string()  # "01" is a label
    if group is not None:
        types[group] = pa.string()
    notes = getattr(model, "notes_", {})
    percents = frozenset(json.loads(notes["percents"])) if "percents" in notes else None
    return Known(types, notes.get("decimal"), percents)


def required_columns(model: Model, reader: TableReader) -> list[str]:
    """List the columns that a model was fitted on; the file must have them."""
    names = [str(name) for name in getattr(model, "feature_names_in_", reader.names)]
    for name in names:
        check_column("columns", name, reader.names, reader.name)
    return names


def count_unfamiliar(model: Model, table: pa.Table) -> Counter[str]:
    """Count the rows with values that the labelled sample does not have, by description."""
    encoder = model.gate_features_.transformer
    if not isinstance(encoder, TableEncoder):
        return Counter()
    return Counter(encoder.unfamiliar(table))


def count_unlike(support: Array) -> int:
    """Count the rows that are unlike the labelled sample."""
    return int(np.count_nonzero(support < MIN_SUPPORT))


@dataclass(frozen=True)
class Outputs:
    """Predictions of some rows, as they are written; NaN where there is none.

    Attributes
    ----------
    outputs : probabilities (n, K) of classes, or values (n,) or (n, K)
    low, high : ends of intervals, of the shape of the values; None without intervals
    chosen : (n, K) classes of each set; None without sets
    """

    outputs: Array
    low: Array | None = None
    high: Array | None = None
    chosen: RowMask | None = None


def answered(
    model: Model, X: pa.Table, options: Options, level: float | None, guard: Guard = nullcontext
) -> tuple[Answer, Outputs]:
    """Predict some rows.

    Parameters
    ----------
    model : the fitted model
    X : its input columns
    options : options of the answer
    level : share of the targets that intervals or sets cover; None for neither. A row without any
        prediction has no interval and no set.
    guard : from the position of a candidate to a context in which it is called
    """
    if level is None:
        given = answer(model, X, None, options, guard)
        return given, Outputs(given.averages)
    if (options.missing or model.missing) == "error":
        P = np.asarray(model.candidate_predictions(X))
        given = answer(model, X, P, options)
    else:
        state = run_all(model, X, options, guard)
        P = state.with_gaps()
        given = replace(answer(model, X, P, options), failures=state.failures)
    rows: Rows = np.flatnonzero(known_predictions(P).any(axis=1))
    if not len(rows):
        return given, replace(no_outputs(model, level, X.num_rows), outputs=given.averages)
    X_some, P_some = take_rows(X, rows), P[rows]
    if isinstance(model, LocalMAClassifier):
        chosen = np.zeros(given.averages.shape, dtype=bool)
        chosen[rows] = model.predict_set(X_some, level, P_some)
        return given, Outputs(given.averages, chosen=chosen)
    low, high = np.full((2, *given.averages.shape), np.nan)
    low[rows], high[rows] = model.predict_interval(X_some, level, P_some)
    return given, Outputs(given.averages, low, high)


def no_outputs(model: Model, level: float | None, n: int = 0) -> Outputs:
    """Predictions that are all missing."""
    outputs: Array = np.full((n, *output_shape(model)), np.nan)
    if level is None:
        return Outputs(outputs)
    if isinstance(model, LocalMAClassifier):
        return Outputs(outputs, chosen=np.zeros(outputs.shape, dtype=bool))
    return Outputs(outputs, outputs, outputs)


def _prediction_columns(
    model: Model, predicted: Outputs
) -> Iterator[tuple[str, AnyArray, RowMask]]:
    """Name, values and known rows of each column of predictions."""
    outputs = predicted.outputs
    if isinstance(model, LocalMAClassifier):
        known = ~np.isnan(outputs[:, 0])
        yield "prediction", model.classes_[outputs.argmax(axis=1)], known
        if predicted.chosen is not None:
            labels = np.array([str(label) for label in model.classes_.tolist()], dtype=object)
            sets = [";".join(labels[row]) for row in predicted.chosen]
            yield "set", np.array(sets, dtype=object), np.asarray(predicted.chosen.any(axis=1))
        for k, label in enumerate(model.classes_.tolist()):
            yield f"p_{label}", outputs[:, k], known
        return
    columns = {"prediction": outputs, "low": predicted.low, "high": predicted.high}
    for k in range(1 if outputs.ndim == 1 else outputs.shape[1]):
        for name, table in columns.items():
            if table is not None:
                values = table if outputs.ndim == 1 else table[:, k]
                suffix = "" if outputs.ndim == 1 else f"_{k}"
                yield f"{name}{suffix}", values, ~np.isnan(values)


def answer_columns(
    model: Model, weights: Array, support: Array, outputs: Outputs
) -> Iterator[NamedColumn]:
    """Yield the columns to write for n rows.

    Parameters
    ----------
    model : the fitted model
    weights : (n, M)
    support : (n,)
    outputs : the predictions
    """
    names = model.candidate_names_
    for name, column, is_known in _prediction_columns(model, outputs):
        yield name, pa.array(column, mask=~is_known)
    for m, name in enumerate(names):
        yield f"weight_{name}", weights[:, m]
    yield "support", support
    labels = np.array(names, dtype=object)
    trusted = [";".join(labels[row]) for row in np.asarray(weights) != 0]
    yield "asked", np.array(trusted, dtype=object)
