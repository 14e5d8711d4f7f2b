"""``localma predict``: predict new rows in parts, so that files may exceed the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import pyarrow as pa
from typer import Option

from localma._types import AnyArray, Array, RowMask, Rows
from localma.cli import tables, terminal
from localma.cli.app import (
    AsJson,
    ModelFile,
    TableFile,
    TextFlags,
    Trust,
    WrongCallError,
    check_table_out,
    option,
)
from localma.errors import CandidateError
from localma.estimators import LocalMAClassifier
from localma.model_file import Model
from localma.progress import bar
from localma.tables.files import TableReader, open_table, writing
from localma.tables.frames import take_rows
from localma.tables.roles import check_column
from localma.tables.sniffing import STANDARD

NamedColumn: TypeAlias = "tuple[str, AnyArray | pa.Array]"
MISSING = ("error", "nan")
"""What to do with rows for which a candidate has no prediction."""


def predict(
    model: ModelFile,
    table: TableFile,
    out: Annotated[Path, Option(help="The table to write; - is standard output.")],
    *,
    keep: Annotated[
        list[str] | None, option("COLUMNS", "Columns to copy, such as an id, separated by commas.")
    ] = None,
    missing: Annotated[
        str,
        option(
            "error|nan",
            "If a candidate that is needed has no prediction for a row: error to stop, nan "
            "to leave the prediction empty.",
        ),
    ] = "error",
    interval: Annotated[
        float | None,
        option(
            "LEVEL",
            "Add intervals that cover this share of the targets, such as 0.9: columns low and "
            "high. For classes, add the column set. All candidates are needed in every row.",
        ),
    ] = None,
    raw_cells: Annotated[
        bool,
        Option(
            "--raw-cells",
            help="Write texts such as =1+1 unchanged. By default they get a leading ' in .csv, "
            ".tsv and .xlsx files, so that no spreadsheet runs them.",
        ),
    ] = False,
    text: TextFlags,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows, and show which candidates were trusted.

    Writes the prediction, the weight of each candidate, the support (how similar the row is to
    the labelled sample) and the candidates that were asked. With --interval it also writes the
    ends of an interval, or a set of classes.

    Example: localma predict rent.localma new.csv --out scored.csv
    """
    check_table_out(out, model, table)
    if missing not in MISSING:
        raise WrongCallError(f"--missing must be error or nan; received {missing!r}.")
    if as_json and out == STANDARD:
        raise WrongCallError("--json and --out - both write to standard output; leave one out.")
    fitted = tables.open_model(model, trust=trust)
    _check_interval(fitted, interval)
    reader = open_table(table, text.options())
    copied_names = tables.split_names("--keep", keep, reader.names)
    for name in copied_names:
        check_column("keep", name, reader.names, reader.name)
    columns = tables.required_columns(fitted, reader)
    totals = Totals()
    with ExitStack() as stack:
        write = stack.enter_context(writing(out, raw_cells=raw_cells))
        advance = stack.enter_context(bar("rows"))
        for X, copied in reader.blocks(tables.known_columns(fitted), columns, copied_names):
            terminal.note_remarks(reader)
            with terminal.naming_rows(
                reader, range(totals.rows, totals.rows + X.num_rows), ", add --missing nan"
            ):
                scores = list(_scores(fitted, X, totals, missing == "nan", interval))
            write(_join(copied, scores))
            totals.rows += X.num_rows
            advance(X.num_rows)
    _report(fitted, totals, reader, out, as_json)


@dataclass
class Totals:
    """Counts over all parts of a table.

    Attributes
    ----------
    rows : the number of rows
    unlike : the number of rows unlike the labelled sample
    unfamiliar : the number of rows with new values, by description
    failed : rows of the file without a prediction, by the candidate that failed
    """

    rows: int = 0
    unlike: int = 0
    unfamiliar: Counter[str] = field(default_factory=Counter)
    failed: dict[str, list[int]] = field(default_factory=dict)

    @property
    def n_failed(self) -> int:
        """The number of rows without a prediction."""
        return len({row for rows in self.failed.values() for row in rows})


@dataclass(frozen=True)
class Predicted:
    """Predictions of some rows.

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


def _check_interval(model: Model, level: float | None) -> None:
    """Refuse a level that is not between 0 and 1, and models without held-out errors."""
    if level is None:
        return
    if not 0.0 < level < 1.0:
        raise WrongCallError(
            f"--interval must be between 0 and 1; received {level:g}. Use 0.9 for 90 %."
        )
    if model.gate_.evidence is None:
        raise WrongCallError(
            "--interval needs errors of held-out rows, which this model does not have. Fit it "
            "again with --gate auto."
        )


def _scores(
    model: Model, X: pa.Table, totals: Totals, skip_failed: bool, level: float | None
) -> Iterator[NamedColumn]:
    """Compute the columns to write for a part of the table, and update the totals."""
    names = model.candidate_names_
    weights, support = np.empty((0, len(names))), np.empty(0)
    if X.num_rows:
        weights, support = model.predict_weights(X, return_support=True)
    failed = np.zeros(X.num_rows, dtype=bool)
    predicted = _available_outputs(model, X, totals, failed if skip_failed else None, level)
    totals.unfamiliar += tables.count_unfamiliar(model, X)
    totals.unlike += tables.count_unlike(support)
    for name, column in _prediction_columns(model, predicted):
        yield name, _with_gaps(column, failed)
    for m, name in enumerate(names):
        yield f"weight_{name}", weights[:, m]
    yield "support", support
    labels = np.array(names, dtype=object)
    trusted = [";".join(labels[row]) for row in np.asarray(weights) != 0]
    yield "asked", np.array(trusted, dtype=object)


def _available_outputs(
    model: Model, X: pa.Table, totals: Totals, failed: RowMask | None, level: float | None
) -> Predicted:
    """Predict the rows for which every candidate that is needed has a prediction.

    Each time a candidate fails, its rows are marked in `failed` and the remaining rows are
    predicted again. If `failed` is None, the error is raised.
    """
    if failed is None:
        return _outputs(model, X, level)
    while True:
        remaining: Rows = np.flatnonzero(~failed)
        try:
            return _outputs(model, take_rows(X, remaining) if failed.any() else X, level)
        except CandidateError as error:
            if not error.rows:
                raise
            positions = remaining[list(error.rows)]
            failed[positions] = True
            rows = totals.failed.setdefault(error.candidate, [])
            rows.extend(totals.rows + int(position) for position in positions)
            rows.sort()


def _outputs(model: Model, X: pa.Table, level: float | None) -> Predicted:
    """Predict the probabilities of a classifier, or the values, with intervals or sets."""
    P = None
    if level is not None and X.num_rows:
        P = model.candidate_predictions(X)
    if isinstance(model, LocalMAClassifier):
        nothing = np.empty((0, len(model.classes_)))
        outputs = model.predict_proba(X, P) if X.num_rows else nothing
        if level is None:
            return Predicted(outputs)
        chosen = model.predict_set(X, level, P) if X.num_rows else nothing.astype(bool)
        return Predicted(outputs, chosen=chosen)
    outputs = model.predict(X, P) if X.num_rows else np.empty(0)
    if level is None:
        return Predicted(outputs)
    ends = model.predict_interval(X, level, P) if X.num_rows else (outputs, outputs)
    return Predicted(outputs, *ends)


def _prediction_columns(model: Model, predicted: Predicted) -> Iterator[tuple[str, AnyArray]]:
    outputs = predicted.outputs
    if isinstance(model, LocalMAClassifier):
        yield "prediction", model.classes_[outputs.argmax(axis=1)]
        if predicted.chosen is not None:
            labels = np.array([str(label) for label in model.classes_.tolist()], dtype=object)
            sets = [";".join(labels[row]) for row in predicted.chosen]
            yield "set", np.array(sets, dtype=object)
        for k, label in enumerate(model.classes_.tolist()):
            yield f"p_{label}", outputs[:, k]
        return
    columns = {"prediction": outputs, "low": predicted.low, "high": predicted.high}
    for k in range(1 if outputs.ndim == 1 else outputs.shape[1]):
        for name, values in columns.items():
            if values is not None and outputs.ndim == 1:
                yield name, values
            elif values is not None:
                yield f"{name}_{k}", values[:, k]


def _with_gaps(column: AnyArray, failed: RowMask) -> AnyArray | pa.Array:
    """Spread the values over all rows, missing in those that failed."""
    if not failed.any():
        return column
    return pa.array(column).take(pa.array(np.cumsum(~failed) - 1, mask=failed))


def _join(copied: pa.Table, scores: list[NamedColumn]) -> pa.Table:
    """Append the results to the copied columns."""
    columns = {name: copied[name] for name in copied.column_names}
    for name, values in scores:
        if name in columns:
            raise WrongCallError(f"--keep: {name!r} is also the name of a column of results.")
        columns[name] = pa.array(values)
    return pa.table(columns)


def _report(model: Model, totals: Totals, reader: TableReader, out: Path, as_json: bool) -> None:
    tables.note_unfamiliar(totals.unfamiliar, totals.rows)
    tables.note_unlike(model, totals.unlike, totals.rows)
    if totals.failed:
        terminal.note(f"{totals.n_failed:,} of {totals.rows:,} rows have no prediction:")
    for candidate, rows in totals.failed.items():
        terminal.note(f"- candidate {candidate!r} has none in {terminal.name_rows(reader, rows)}.")
    if as_json:
        terminal.print_json(
            {
                "rows": totals.rows,
                "out": str(out),
                "candidates": list(model.candidate_names_),
                "unlike_sample": totals.unlike,
                "without_prediction": totals.n_failed,
            }
        )
    elif out == STANDARD:
        terminal.note(f"wrote {totals.rows:,} rows to standard output")
    else:
        terminal.say(f"wrote {totals.rows:,} rows to {out}")
