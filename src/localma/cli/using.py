"""``localma predict``: new rows scored, part by part, so that files may exceed the memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.cli.app import (
    AsJson,
    Decimal,
    Encoding,
    ModelFile,
    Na,
    Sep,
    TableFile,
    Trust,
    check_table_out,
    text_options,
    typer,
    wrong_call,
)
from localma.cli.messages import rows_in_words, say_remarks, speaking_of_rows
from localma.cli.showing import note, print_json, say
from localma.cli.tables import check_columns, no_column, split_names
from localma.errors import CandidateError, InvalidInputError, UntrustedFileError
from localma.estimators import LocalMAClassifier
from localma.imports import modules_beside
from localma.model_file import Model, load
from localma.progress import bar
from localma.tables.cells import Known
from localma.tables.encoder import TableEncoder
from localma.tables.files import TableReader, open_table, writing
from localma.tables.frames import take_rows
from localma.tables.sniffing import STANDARD

LEAST_SUPPORT = 0.5
"""Rows with less are unlike the labelled sample."""
MOST_UNLIKE = 0.1
"""The share of rows beyond which it is said that they are unlike the sample."""
MISSING = ("error", "nan")
"""What to do with rows for which a candidate has no prediction."""


def predict(
    model: ModelFile,
    new: TableFile,
    out: Annotated[Path, typer.Option(help="The table to write; - is standard output.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Columns to copy from the table, such as an id; commas between."),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            help="A row without a prediction of a candidate that is needed: error, or nan for an "
            "empty prediction."
        ),
    ] = "error",
    raw_cells: Annotated[
        bool,
        typer.Option(
            "--raw-cells",
            help="Write texts such as =1+1 as they are. By default .csv, .tsv and .xlsx files get "
            "a ' before them, so that no spreadsheet runs them.",
        ),
    ] = False,
    sep: Sep = None,
    encoding: Encoding = None,
    na: Na = None,
    decimal: Decimal = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows, and say who was trusted.

    Writes the prediction, the weight of each candidate, the support (how like the labelled sample
    the row is) and the candidates that were asked.

    Example: localma predict rent.localma new.csv --out scored.csv
    """
    check_table_out(out, model, new)
    if missing not in MISSING:
        raise wrong_call(f"--missing must be error or nan; received {missing!r}.")
    if as_json and out == STANDARD:
        raise wrong_call("--json and --out - would both write to standard output; leave one out.")
    loaded = open_model(model, trust=trust)
    reader = open_table(new, text_options(sep, encoding, na, decimal))
    kept = _kept(keep, reader)
    columns = needed_columns(loaded, reader)
    totals = Totals()
    with ExitStack() as stack:
        write = stack.enter_context(writing(out, raw_cells=raw_cells))
        advance = stack.enter_context(bar("rows"))
        for X, copied in reader.blocks(known_columns(loaded), columns, kept):
            say_remarks(reader)
            scores = _scores(loaded, X, reader, totals, missing)
            write(_with_kept(scores, copied))
            totals.rows += X.num_rows
            advance(X.num_rows)
    _warn(loaded, totals, reader)
    if as_json:
        print_json(_as_json(loaded, totals, out))
        return
    where = "standard output" if out == STANDARD else str(out)
    tell = note if out == STANDARD else say
    tell(f"wrote {totals.rows:,} rows to {where}")


@dataclass
class Totals:
    """What was counted while a table was scored part by part.

    rows; unlike : rows unlike the labelled sample; strange : rows with what the sample has not;
    failed : rows of the file without a prediction, by the candidate that lacks it.
    """

    rows: int = 0
    unlike: int = 0
    strange: Counter[str] = field(default_factory=Counter)
    failed: dict[str, list[int]] = field(default_factory=dict)

    @property
    def n_failed(self) -> int:
        """Rows without a prediction."""
        return len({row for rows in self.failed.values() for row in rows})


def _kept(keep: list[str] | None, reader: TableReader) -> list[str]:
    kept = split_names("--keep", keep, reader.names)
    for name in kept:
        if name not in reader.names:
            raise wrong_call(f"--keep: {no_column(name, reader.names, reader.name)}")
    return kept


def _warn(model: Model, totals: Totals, reader: TableReader) -> None:
    warn_of(totals.strange, totals.rows)
    warn_of_unlike(model, totals.unlike, totals.rows)
    if totals.failed:
        note(f"{totals.n_failed:,} of {totals.rows:,} rows have no prediction:")
    for candidate, rows in totals.failed.items():
        note(f"- candidate {candidate!r} has none in {rows_in_words(reader, rows)}.")


def _as_json(model: Model, totals: Totals, out: Path) -> dict[str, Any]:
    return {
        "rows": totals.rows,
        "out": str(out),
        "candidates": list(model.candidate_names_),
        "unlike_sample": totals.unlike,
        "without_prediction": totals.n_failed,
    }


def open_model(path: Path, *, trust: bool) -> Model:
    """Load a model; the way out of distrust is an option here."""
    try:
        if not trust:
            return load(path)
        with modules_beside(path.parent):
            return load(path, trust=True)
    except UntrustedFileError as error:
        raise InvalidInputError(
            f"{path} names candidates that run code, or open files or addresses. {error.plain} "
            "Add --trust if you trust it."
        ) from error


def known_columns(model: Model) -> Known:
    """Types of the columns as the model knows them, and how its labelled table was written."""
    arrow = optional("pyarrow", extra="cli")
    encoder = model.gate_features_.transformer
    types: dict[str, Any] = {}
    if isinstance(encoder, TableEncoder):
        kinds = {
            "category": arrow.string(),
            "number": arrow.float64(),
            "truth": arrow.bool_(),
        }
        types = {c.name: kinds[c.kind] for c in encoder.columns_ if c.kind in kinds}
    types |= {str(name): arrow.float64() for name in model.gate_features_.hidden}
    notes = getattr(model, "notes_", {})
    percents = None
    if "percents" in notes:
        percents = frozenset(json.loads(notes["percents"]))
    return Known(types, notes.get("decimal"), percents)


def needed_columns(model: Model, reader: TableReader) -> list[str]:
    """The columns that a model was fitted on; the file must have them."""
    names = [str(name) for name in getattr(model, "feature_names_in_", reader.names)]
    check_columns(reader, names)
    return names


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
    if count > MOST_UNLIKE * rows and not model.gate_.is_constant:
        note(
            f"{count:,} of {rows:,} rows are unlike the labelled sample: the weights there are "
            "nearly the global ones."
        )


@dataclass(frozen=True)
class Scores:
    """Predictions of some rows.

    predictions : columns by name, (n,) each, empty where a candidate fails; weights : (n, M);
    support : (n,).
    """

    names: Sequence[str]
    predictions: dict[str, Any]
    weights: NDArray[np.floating]
    support: NDArray[np.floating]

    def columns(self) -> Iterator[tuple[str, Any]]:
        """The columns to write: predictions, weights, support and who was asked."""
        yield from self.predictions.items()
        for m, name in enumerate(self.names):
            yield f"weight_{name}", self.weights[:, m]
        yield "support", self.support
        asked = self.weights != 0
        yield (
            "asked",
            [";".join(n for n, a in zip(self.names, row, strict=True) if a) for row in asked],
        )


def _with_kept(scores: Scores, copied: Any) -> Any:
    """The table to write: the columns to copy, then the results."""
    arrow = optional("pyarrow", extra="cli")
    columns = {name: copied[name] for name in copied.column_names}
    for name, values in scores.columns():
        if name in columns:
            raise wrong_call(f"--keep {name!r} has the name of a column that is written here.")
        columns[name] = values if isinstance(values, arrow.Array) else arrow.array(values)
    return arrow.table(columns)


def _scores(model: Model, X: Any, reader: TableReader, totals: Totals, missing: str) -> Scores:
    """Predict some rows, and count what is to be said of them.

    X : the columns that the model needs; totals.rows : the number of rows before these.
    """
    names = model.candidate_names_
    if X.num_rows == 0:
        weights, support = np.empty((0, len(names))), np.empty(0)
    else:
        weights, support = model.predict_weights(X, return_support=True)
    failed = _Failures(np.zeros(X.num_rows, dtype=bool), totals)
    with speaking_of_rows(
        reader, range(totals.rows, totals.rows + X.num_rows), ", add --missing nan"
    ):
        values = _finite_rows(model, X, failed if missing == "nan" else None)
    totals.strange += unfamiliar(model, X)
    totals.unlike += unlike(support)
    return Scores(names, _with_gaps(values, failed.rows), np.asarray(weights), support)


@dataclass(frozen=True)
class _Failures:
    """Rows of a part that have no prediction: (n,) truth values; and where they are counted."""

    rows: NDArray[np.bool_]
    totals: Totals

    def add(self, error: CandidateError, at: NDArray[np.intp]) -> None:
        """Note the rows of an error; at : where the rows that were asked stand in the part."""
        positions = at[list(error.rows)]
        self.rows[positions] = True
        rows = [self.totals.rows + int(position) for position in positions]
        listed = self.totals.failed.setdefault(error.candidate, [])
        listed.extend(rows)
        listed.sort()


def _finite_rows(model: Model, X: Any, failures: _Failures | None) -> dict[str, Any]:
    """Predictions of the rows for which each candidate that is needed has one.

    Each time a candidate fails, its rows are left out and the others are asked again.
    """
    while True:
        at = np.arange(X.num_rows) if failures is None else np.flatnonzero(~failures.rows)
        asked = X if len(at) == X.num_rows else take_rows(X, at)
        try:
            return dict(_predictions(model, asked))
        except CandidateError as error:
            if failures is None or not error.rows:
                raise
            failures.add(error, at)


def _with_gaps(values: dict[str, Any], failed: NDArray[np.bool_]) -> dict[str, Any]:
    """Predictions of all rows, missing where they failed."""
    if not failed.any():
        return values
    arrow = optional("pyarrow", extra="cli")
    positions = np.cumsum(~failed) - 1
    index = arrow.array(positions, mask=failed)
    return {name: arrow.array(column).take(index) for name, column in values.items()}


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
