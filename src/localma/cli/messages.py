"""Messages in terms of files, columns and options: of errors, remarks and warnings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from localma.cli.showing import note
from localma.errors import CandidateError, InvalidInputError, LocalMAError
from localma.tables.files import TableReader
from localma.tables.sniffing import Remark, TableFileError

Command = TypeVar("Command", bound=Callable[..., None])
ROWS_SHOWN = 10
ROW = re.compile(r"\brow (\d+)(?: of the [\d,]+ it was given)?")
"""How errors of the library call a row, counted from zero."""
OPTIONS = {
    "separator": "The option is --sep, such as --sep ';' or --sep tab.",
    "encoding": "The option is --encoding, such as --encoding cp1252 for Western Europe.",
    "missing": "If {value!r} means a missing value, add --na {value!r}.",
}
"""Options for the settings that may help to read a file."""


def in_plain_words(command: Command) -> Command:
    """Make a command raise errors, and issue warnings, without words of Python."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                command(*arguments, **options)
            except LocalMAError as error:
                text = plain_words(error)
                if text == str(error):
                    raise
                raise InvalidInputError(text) from error

    return run  # type: ignore[return-value]


def plain_words(error: LocalMAError) -> str:
    """An error without its hint for programs, and with the option that helps."""
    if isinstance(error, TableFileError):
        return f"{error.plain} {OPTIONS[error.setting].format(value=error.value)}"
    return error.plain


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    note(f"Warning: {message}")


def say_remarks(reader: TableReader) -> None:
    """Say what was done to read a table, one line each, and forget it."""
    for remark in reader.remarks:
        note(_with_option(remark))
    reader.remarks.clear()


def _with_option(remark: Remark) -> str:
    text = remark.text
    if remark.stray is not None:
        text += f" If {remark.stray!r} means a missing value, add --na {remark.stray!r}."
    if remark.other_decimal is not None:
        text += f" If that is wrong, add --decimal {remark.other_decimal!r}."
    return text


def rows_in_words(reader: TableReader, rows: Sequence[int]) -> str:
    """Name rows, counted from zero and in order, as their file shows them.

    Such as "lines 3, 8 and 12 of new.csv".
    """
    numbers = [str(number) for number in reader.numbers(rows[:ROWS_SHOWN])]
    more = len(rows) - len(numbers)
    noun = reader.row_word if len(rows) == 1 else f"{reader.row_word}s"
    shown = ", ".join(numbers)
    if more:
        shown += f" and {more:,} more"
    elif len(numbers) > 1:
        shown = f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    return f"{noun} {shown} of {reader.name}"


@contextmanager
def speaking_of_rows(
    reader: TableReader,
    rows: Sequence[int] | NDArray[np.intp] | None = None,
    way_out: str = "",
) -> Iterator[None]:
    """Make errors name rows as a file shows them.

    rows : where the rows at hand stand in the file; way_out : an option that helps if a candidate
    has no prediction.
    """

    def in_file(row: int) -> int:
        return row if rows is None else int(rows[row])

    try:
        yield
    except LocalMAError as error:
        if isinstance(error, CandidateError) and error.rows:
            positions = sorted(in_file(row) for row in error.rows)
            text = (
                f"Candidate {error.candidate!r} has no finite prediction in "
                f"{rows_in_words(reader, positions)}. Fill these cells in, leave the rows "
                f"out{way_out}, or leave the candidate out."
            )
        else:
            text = ROW.sub(
                lambda match: rows_in_words(reader, [in_file(int(match[1]))]), plain_words(error)
            )
        if text == str(error):
            raise
        raise InvalidInputError(text) from error
