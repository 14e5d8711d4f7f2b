"""``localma predict``: predict new rows in parts, so that files may exceed the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import numpy as np
import pyarrow as pa
from typer import Argument, Option

from localma._types import Array
from localma.cli import tables, terminal
from localma.cli.app import (
    AsJson,
    ModelFile,
    TextFlags,
    Trust,
    WrongCallError,
    check_table,
    check_table_out,
    naming_option,
    option,
)
from localma.errors import InvalidInputError
from localma.formatting import count
from localma.model_file import Model
from localma.production.answer import Answer
from localma.production.budget import Allowance
from localma.production.options import AnswerOptions, Missing, Options
from localma.production.tables import (
    NamedColumn,
    answer_columns,
    answered,
    count_unfamiliar,
    count_unlike,
    known_columns,
    no_outputs,
    required_columns,
)
from localma.progress import bar
from localma.tables.files import TableReader, open_table, writing
from localma.tables.roles import check_column
from localma.tables.sniffing import STANDARD

if TYPE_CHECKING:
    from localma.ray import Finished

MISSING: tuple[str, ...] = get_args(Missing)
"""What to do with rows for which a candidate has no prediction."""


def predict(
    model: ModelFile,
    table: Annotated[
        Path,
        Argument(
            help="A table: CSV, Excel, Parquet, Arrow or JSON Lines; - is standard input. With "
            "--ray, a Parquet file or a folder of Parquet files."
        ),
    ],
    out: Annotated[
        Path, Option(help="The table to write; - is standard output. With --ray, a folder.")
    ],
    *,
    keep: Annotated[
        list[str] | None, option("COLUMNS", "Columns to copy, such as an id, separated by commas.")
    ] = None,
    missing: Annotated[
        str | None,
        option(
            "error|renormalize|nan",
            "If a candidate that is needed has no prediction for a row: error to stop, "
            "renormalize to use the others. With nan, a row without any prediction stays empty. "
            "Default: as in the fit.",
        ),
    ] = None,
    min_weight: Annotated[
        float | None,
        option("WEIGHT", "Candidates with less weight in a row do not run on it.", min=0.0),
    ] = None,
    max_candidates: Annotated[
        int | None, option("NUMBER", "The largest number of candidates in a row.", min=1)
    ] = None,
    budget: Annotated[
        float | None, option("COST", "The largest cost of a row, in the costs of the models.")
    ] = None,
    timeout: Annotated[
        float | None,
        option("SECONDS", "Time for each candidate, per part of the table; for --missing."),
    ] = None,
    retries: Annotated[
        int | None, option("NUMBER", "Further calls of a candidate that failed.", min=0)
    ] = None,
    interval: Annotated[
        float | None,
        option(
            "LEVEL",
            "Add intervals that cover this share of the targets, such as 0.9: columns low and "
            "high. For classes, add the column set. All candidates are needed in every row.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        option(
            "[ADDRESS]",
            "Run on a Ray cluster: auto for the cluster of this machine, or an address. Without a "
            "value, at the end or before another option: the cluster of RAY_ADDRESS, or a new one "
            "on this machine. A run that was stopped continues.",
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
    if ray is None:
        check_table(table)
        check_table_out(out, model, table)
    if missing not in (None, *MISSING):
        raise WrongCallError(f"--missing must be error, renormalize or nan; received {missing!r}.")
    if as_json and out == STANDARD:
        raise WrongCallError("--json and --out - both write to standard output; leave one out.")
    fitted = tables.open_model(model, trust=trust)
    if missing is not None:
        fitted.missing = missing
    options = _checked_options(
        fitted,
        min_weight=min_weight,
        max_candidates=max_candidates,
        budget=budget,
        timeout=timeout,
        retries=retries,
    )
    _check_interval(fitted, interval)
    if ray is not None:
        remote = Remote(ray, model, table, out, trust)
        _predict_on_ray(remote, fitted, keep, interval, options, as_json)
        return
    reader = open_table(table, text.options())
    copied_names = tables.split_names("--keep", keep, reader.names)
    for name in copied_names:
        check_column("keep", name, reader.names, reader.name)
    columns = required_columns(fitted, reader)
    totals = Totals()
    with ExitStack() as stack:
        write = stack.enter_context(writing(out, raw_cells=raw_cells))
        advance = stack.enter_context(bar("rows"))
        for X, copied in reader.blocks(known_columns(fitted), columns, copied_names):
            terminal.note_remarks(reader)
            with terminal.naming_rows(
                reader, range(totals.rows, totals.rows + X.num_rows), ", add --missing renormalize"
            ):
                scores = list(_scores(fitted, X, totals, options, interval))
            write(_join(copied, scores))
            totals.rows += X.num_rows
            advance(X.num_rows)
    _report(fitted, totals, reader, out, as_json)


@dataclass(frozen=True)
class Remote:
    """A prediction on a Ray cluster: its address and files, and whether the model is trusted."""

    address: str
    model: Path
    table: Path
    out: Path
    trust: bool


def _predict_on_ray(
    remote: Remote,
    fitted: Model,
    keep: list[str] | None,
    level: float | None,
    options: AnswerOptions,
    as_json: bool,
) -> None:
    """Predict Parquet files on a cluster, and report as for a table that is read here."""
    from localma.ray import predict as predict_on_ray
    from localma.ray.job import list_files

    if remote.out == STANDARD or (remote.out.exists() and not remote.out.is_dir()):
        raise WrongCallError(f"--out: with --ray, name a folder; received {str(remote.out)!r}.")
    with naming_option("--ray: "):
        files = list_files(remote.table)
    names = open_table(files[0]).names
    options = cast(AnswerOptions, {**options, "missing": fitted.missing})
    finished = predict_on_ray(
        remote.model,
        files,
        remote.out,
        keep=tables.split_names("--keep", keep, names),
        interval=level,
        trust=remote.trust,
        address=remote.address,
        **options,
    )
    tables.note_unfamiliar(Counter(finished.unfamiliar), finished.rows)
    tables.note_unlike(fitted, finished.unlike_sample, finished.rows)
    _note_failures(finished)
    if as_json:
        failed: Counter[str] = Counter()
        for failure in finished.failures:
            failed[failure.candidate] += failure.rows
        terminal.print_json(
            {
                "rows": finished.rows,
                "out": str(remote.out),
                "candidates": list(fitted.candidate_names_),
                "unlike_sample": finished.unlike_sample,
                "without_prediction": finished.without_prediction,
                "failed": dict(failed),
                "blocks": finished.blocks,
                "blocks_computed": finished.computed,
            }
        )
        return
    terminal.say(
        f"wrote {finished.rows:,} rows to {remote.out}, {finished.computed} of "
        f"{count(finished.blocks, 'block')} in this run"
    )


def _note_failures(finished: Finished) -> None:
    if finished.failures:
        terminal.note(
            f"{finished.without_prediction:,} of {finished.rows:,} rows have no prediction. "
            "Candidates without one:"
        )
    for failure in finished.failures:
        rows = count(failure.rows, "row")
        terminal.note(f"- candidate {failure.candidate!r} {failure.reason} in {rows}.")


@dataclass
class Totals:
    """Counts over all parts of a table.

    Attributes
    ----------
    rows : the number of rows
    unlike : the number of rows unlike the labelled sample
    unfamiliar : the number of rows with new values, by description
    empty : the number of rows without a prediction
    failed : rows of the file for which a candidate failed, by candidate and reason
    """

    rows: int = 0
    unlike: int = 0
    unfamiliar: Counter[str] = field(default_factory=Counter)
    empty: int = 0
    failed: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def note(self, answer: Answer) -> None:
        """Count the rows without a prediction, and those for which candidates failed."""
        self.empty += int(np.count_nonzero(answer.weights.sum(axis=1) == 0.0))
        for failure in answer.failures:
            text = "has none" if failure.reason == "missing" else failure.text
            rows = self.failed.setdefault((failure.candidate, text), [])
            rows.extend(self.rows + row for row in failure.rows)


def _checked_options(model: Model, **given: float | int | None) -> AnswerOptions:
    """The options that were given; refuse those that do not fit the model."""
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        costs = np.ones(len(model.candidate_names_)) if model.pool_ is None else model.pool_.costs
        Allowance.of(Options(**options), costs, model.candidate_names_)
    except InvalidInputError as error:
        text = error.plain
        for name in given:
            text = text.replace(name, f"--{name.replace('_', '-')}")
        raise WrongCallError(text) from error
    return cast(AnswerOptions, options)


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
    model: Model, X: pa.Table, totals: Totals, options: AnswerOptions, level: float | None
) -> Iterator[NamedColumn]:
    """Compute the columns to write for a part of the table, and update the totals."""
    weights: Array = np.empty((0, len(model.candidate_names_)))
    support: Array = np.empty(0)
    outputs = no_outputs(model, level)
    if X.num_rows:
        answer, outputs = answered(model, X, Options(**options), level)
        weights, support = answer.weights, answer.support
        totals.note(answer)
    totals.unfamiliar += count_unfamiliar(model, X)
    totals.unlike += count_unlike(support)
    return answer_columns(model, weights, support, outputs)


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
        terminal.note(
            f"{totals.empty:,} of {totals.rows:,} rows have no prediction. Candidates without one:"
        )
    for (candidate, text), rows in totals.failed.items():
        listed = terminal.name_rows(reader, sorted(rows))
        terminal.note(f"- candidate {candidate!r} {text} in {listed}.")
    if as_json:
        terminal.print_json(
            {
                "rows": totals.rows,
                "out": str(out),
                "candidates": list(model.candidate_names_),
                "unlike_sample": totals.unlike,
                "without_prediction": totals.empty,
                "failed": {
                    name: sum(len(rows) for (key, _), rows in totals.failed.items() if key == name)
                    for name, _ in totals.failed
                },
            }
        )
    elif out == STANDARD:
        terminal.note(f"wrote {totals.rows:,} rows to standard output")
    else:
        terminal.say(f"wrote {totals.rows:,} rows to {out}")
