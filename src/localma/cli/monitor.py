"""``localma monitor``: watch a model in production, and say when to act."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
from typer import Argument, Option

from localma._types import Integers
from localma.cli import tables
from localma.cli.app import (
    AsJson,
    ModelFile,
    TextFlags,
    Trust,
    WrongCallError,
    check_out,
    check_table,
    option,
)
from localma.cli.terminal import naming_rows, note, print_json, say, show_table
from localma.errors import InvalidInputError
from localma.formatting import number, percent
from localma.production import Monitor, MonitorReport
from localma.production.monitor_report import evidence_text
from localma.production.tables import count_unfamiliar, known_columns, required_columns
from localma.tables.files import TableReader, open_table
from localma.tables.roles import check_column

MOST_SHOWN = 12
"""Tests that are printed."""
EVENTS = ("outside", "unfamiliar", "failure")


def monitor(
    model: ModelFile,
    table: Annotated[
        Path | None,
        Argument(dir_okay=False, callback=check_table, help="A table of new rows, if any."),
    ] = None,
    *,
    state: Annotated[
        Path, Option(help="The file of what was observed; it is made by the first call.")
    ],
    key: Annotated[
        str | None, option("COLUMN", "The key of each row, if its target comes later.")
    ] = None,
    target: Annotated[
        str | None,
        option("COLUMN", "The target, if it is known; cells may be empty. Default: as in the fit."),
    ] = None,
    period: Annotated[
        str | None,
        option("COLUMN", "The period of each row: a date or a whole number. Default: 100 rows."),
    ] = None,
    late: Annotated[
        bool,
        Option("--late", help="The table has only keys and targets of rows observed before."),
    ] = False,
    merge: Annotated[
        list[Path] | None, Option(help="A state of another process to add; may be repeated.")
    ] = None,
    page: Annotated[Path | None, Option(help="An HTML page to write.")] = None,
    text: TextFlags,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Watch a model in production, and say when to act.

    The tests stay valid however often you call it: if nothing changes, an alarm is ever raised
    with a probability of at most 5 %.

    Example: localma monitor rent.localma today.csv --state rent.monitor --key id
    """
    if late and (key is None or table is None):
        raise WrongCallError("--late needs a table, and --key to name the column of its keys.")
    inputs = [model, *([] if table is None else [table]), *(merge or [])]
    check_out(state, *inputs, name="--state")
    if page is not None:
        check_out(page, *inputs, *([state] if state.exists() else []), name="--page")
        if page.absolute() == state.absolute():
            raise WrongCallError("--page and --state name the same file; name two.")
    fitted = tables.open_model(model, trust=trust)
    watched = Monitor.load(state, fitted) if state.exists() else Monitor(fitted)
    for path in merge or ():
        if not path.is_file():
            raise WrongCallError(f"--merge: the file {str(path)!r} does not exist.")
        watched.merge(Monitor.load(path, fitted))
    if table is not None:
        _observe(watched, open_table(table, text.options()), key, target, period, late)
    watched.save(state)
    report = watched.report()
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)
    if page is not None:
        from localma.report import write_monitor  # needs the extra report

        write_monitor(report, page, title=f"{model.stem}, watched in {state.name}")
        note(f"wrote {page}")


def _observe(
    watched: Monitor,
    reader: TableReader,
    key: str | None,
    target: str | None,
    period: str | None,
    late: bool,
) -> None:
    """Read a table, and pass its rows or its labels to a monitor."""
    model = watched.model
    fitted_target = getattr(model, "notes_", {}).get("target")
    if target is None and fitted_target in reader.names:
        target = fitted_target
    if late and target is None:
        raise WrongCallError("--late needs --target: the table has no column of the target.")
    for name, column in (("key", key), ("target", target), ("period", period)):
        if column is not None:
            check_column(name, column, reader.names, reader.name)
            tables.check_unique(reader, f"--{name}", column)
    columns = [] if late else required_columns(model, reader)
    wanted = [name for name in (*columns, key, target, period) if name is not None]
    known = known_columns(model, target, key)
    rows = tables.read_some(reader, known, list(dict.fromkeys(wanted)))
    y = None if target is None else rows[target].to_numpy()
    keys = None if key is None else _keys(rows[key], key)
    with naming_rows(reader):
        if late:
            assert keys is not None
            assert y is not None
            watched.label(keys, y)
            return
        X = rows.select(columns)
        tables.note_unfamiliar(count_unfamiliar(model, X), X.num_rows)
        periods = None if period is None else _periods(rows[period], period)
        watched.observe(X, y=y, key=keys, period=periods)


def _keys(column: pa.ChunkedArray, name: str) -> list[str]:
    if column.null_count:
        raise InvalidInputError(
            f"Every row needs a key; {column.null_count} rows have no value in {name!r}. Fill it "
            "in, or use --key to name another column."
        )
    return [str(value) for value in column.to_pylist()]


def _periods(column: pa.ChunkedArray, name: str) -> Integers:
    """Numbers of the periods: whole numbers as they are, dates as numbers of days."""
    values = [_period(value) for value in column.to_pylist()]
    if any(value is None for value in values):
        raise InvalidInputError(
            f"The column {name!r} must hold a date or a whole number in each row; it has the type "
            f"{column.type}, and {column.null_count} cells are empty. Use --period to name another "
            "column."
        )
    return np.array(values, dtype=np.int64)


def _period(value: object) -> int | None:
    if isinstance(value, datetime):
        return value.date().toordinal()
    if isinstance(value, date):
        return value.toordinal()
    if isinstance(value, str):
        try:
            return date.fromisoformat(value[:10]).toordinal()
        except ValueError:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value == round(value):
        return int(value)
    return None


def _show(report: MonitorReport) -> None:
    body = []
    for test in report.tests[:MOST_SHOWN]:
        write = percent if test.kind in EVENTS else number
        fit = f"at most {write(test.at_fit)}" if test.kind in EVENTS else write(test.at_fit)
        since = "" if test.since is None else str(test.since)
        body.append(
            [
                test.title,
                evidence_text(test.evidence),
                fit,
                write(test.now),
                since,
                f"{test.rows:,}",
            ]
        )
    if body:
        head = ["", "evidence", "at the fit", "since then", "period", "rows"]
        show_table("Evidence of a change; an alarm needs 20 in all", head, body)
    waiting = f", {report.waiting:,} wait for a target" if report.waiting else ""
    say(f"{report.rows:,} rows, {report.labelled:,} of them with a target{waiting}.")
    say(report.sentence)
