"""``localma predict``: new rows scored, part by part, so that files may exceed the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from localma._optional import optional
from localma.cli.app import (
    AsJson,
    ModelFile,
    TableFile,
    Trust,
    check_out,
    typer,
    wrong_call,
)
from localma.cli.csv_files import as_numbers
from localma.cli.showing import note, print_json, say
from localma.cli.tables import check_columns, no_column, parts, writing
from localma.encoding import TableEncoder
from localma.errors import InvalidInputError, UntrustedFileError
from localma.estimators import LocalMAClassifier
from localma.gates import ShrunkGate
from localma.imports import modules_beside
from localma.persistence import Model, load
from localma.progress import bar

LEAST_SUPPORT = 0.5
"""Rows with less are unlike the labelled sample."""
MOST_UNLIKE = 0.1
"""The share of rows beyond which it is said that they are unlike the sample."""


def predict(
    model: ModelFile,
    new: TableFile,
    out: Annotated[Path, typer.Option(help="The table to write.")],
    keep: Annotated[
        list[str] | None, typer.Option(help="Columns to copy from the table, such as an id.")
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows, and say who was trusted.

    Writes the prediction, the weight of each candidate, the support (how like the labelled sample
    the row is) and the candidates that were asked.

    Example: localma predict rent.localma new.csv --out scored.csv
    """
    check_out(out, model, new)
    loaded = open_model(model, trust=trust)
    kept = keep or []
    as_written = dict.fromkeys(kept, optional("pyarrow", extra="cli").string())
    columns = [*getattr(loaded, "feature_names_in_", []), *kept]
    rows, outside, strange = 0, 0, Counter[str]()
    with ExitStack() as stack:
        write = stack.enter_context(writing(out))
        advance = stack.enter_context(bar("rows"))
        for table in parts(new, {**column_types(loaded), **as_written}, columns or None):
            X = needed(loaded, table, new)
            answers = scored(loaded, X, table, kept)
            write(answers)
            strange += unfamiliar(loaded, X)
            outside += unlike(answers["support"].to_numpy())
            rows += table.num_rows
            advance(table.num_rows)
    warn_of(strange, rows)
    warn_of_unlike(loaded, outside, rows)
    if as_json:
        names = list(loaded.candidate_names_)
        told = {"rows": rows, "out": str(out), "candidates": names, "unlike_sample": outside}
        print_json(told)
    else:
        say(f"wrote {rows:,} rows to {out}")


def open_model(path: Path, *, trust: bool) -> Model:
    """Load a model; the way out of distrust is an option here."""
    try:
        if not trust:
            return load(path)
        with modules_beside(path.parent):
            return load(path, trust=True)
    except UntrustedFileError as error:
        raise InvalidInputError(
            f"{path} names candidates that run code, or open files or addresses ({error}). Add "
            "--trust if you trust it."
        ) from error


def column_types(model: Model) -> dict[str, Any]:
    """Types of the columns as the model knows them, for files that do not say."""
    arrow = optional("pyarrow", extra="cli")
    encoder = model.gate_features_.transformer
    known: dict[str, Any] = {}
    if isinstance(encoder, TableEncoder):
        kinds = {
            "category": arrow.string(),
            "number": arrow.float64(),
            "truth": arrow.bool_(),
        }
        known = {c.name: kinds[c.kind] for c in encoder.columns_ if c.kind in kinds}
    return known | {str(name): arrow.float64() for name in model.gate_features_.hidden}


def unfamiliar(model: Model, table: Any) -> Counter[str]:
    """How many rows have what the labelled sample has not, by what that is."""
    encoder = model.gate_features_.transformer
    return Counter(encoder.unfamiliar(table) if isinstance(encoder, TableEncoder) else {})


def warn_of(strange: Counter[str], rows: int) -> None:
    """Say what the gate has never seen, since the support of such rows does not tell."""
    for what, count in strange.items():
        note(f"{count:,} of {rows:,} rows: {what}; the weights there go by the other columns.")


def unlike(support: Any) -> int:
    """Count the rows that are unlike the labelled sample, by the support of each: (n,)."""
    return int(np.count_nonzero(support < LEAST_SUPPORT))


def warn_of_unlike(model: Model, count: int, rows: int) -> None:
    """Say that many rows are unlike the labelled sample, where that changes their weights."""
    gate = model.gate_
    constant = isinstance(gate, ShrunkGate) and not gate.answer_.gates
    if count > MOST_UNLIKE * rows and not constant:
        note(
            f"{count:,} of {rows:,} rows are unlike the labelled sample: the weights there are "
            "nearly the global ones."
        )


def needed(model: Model, table: Any, path: Path) -> Any:
    """The columns of a table, out of a file, that the model was fitted on."""
    names = [str(name) for name in getattr(model, "feature_names_in_", table.column_names)]
    check_columns(path, names, table.column_names)
    return _as_known(table.select(names), column_types(model), path)


def _as_known(table: Any, types: dict[str, Any], path: Path) -> Any:
    """A table whose columns of words have the types that the model knows them by."""
    arrow = optional("pyarrow", extra="cli")
    for place, name in enumerate(table.column_names):
        known = types.get(name, table[name].type)
        if table[name].type == arrow.string() and known == arrow.float64():
            table = table.set_column(place, name, as_numbers(path, name, table[name]))
        elif table[name].type == arrow.string() != known:
            try:
                table = table.set_column(place, name, table[name].cast(known))
            except arrow.ArrowInvalid as error:
                raise InvalidInputError(
                    f"Column {name!r} must hold values of type {known}, as when the model was "
                    f"fitted; it holds words ({error}). Give it such values again."
                ) from error
    return table


def scored(model: Model, X: Any, table: Any, keep: list[str]) -> Any:
    """Predictions, weights, support and who was asked, a row per row of the table.

    X : the columns of the table that the model needs.
    """
    arrow = optional("pyarrow", extra="cli")
    for name in keep:
        if name not in table.column_names:
            raise wrong_call(f"--keep: {no_column(name, table.column_names)}")
    columns = {name: table[name] for name in keep}
    for name, values in _results(model, X):
        if name in columns:
            raise wrong_call(f"--keep {name!r} has the name of a column that is written here.")
        columns[name] = arrow.array(values)
    return arrow.table(columns)


def _results(model: Model, X: Any) -> Iterator[tuple[str, Any]]:
    names = model.candidate_names_
    if X.num_rows == 0:
        weights, support = np.empty((0, len(names))), np.empty(0)
    else:
        weights, support = model.predict_weights(X, return_support=True)
    yield from _predictions(model, X)
    for m, name in enumerate(names):
        yield f"weight_{name}", weights[:, m]
    yield "support", support
    asked = np.asarray(weights) != 0
    yield "asked", [";".join(n for n, a in zip(names, row, strict=True) if a) for row in asked]


def _predictions(model: Model, X: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(model, LocalMAClassifier):
        classes = model.classes_
        chances = model.predict_proba(X) if X.num_rows else np.empty((0, len(classes)))
        yield "prediction", classes[chances.argmax(axis=1)] if X.num_rows else classes[:0]
        for k, label in enumerate(classes.tolist()):
            yield f"p_{label}", chances[:, k]
        return
    values = model.predict(X) if X.num_rows else np.empty(0)
    if values.ndim == 1:
        yield "prediction", values
    else:
        yield from ((f"prediction_{k}", column) for k, column in enumerate(values.T))
