"""Output of the commands: sentences, tables, JSON, and errors in plain words.

Names of candidates, columns and classes, and messages of servers, come from other people. Control
characters in them are written as escapes here, so that a terminal does not obey them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from localma._types import Json, Rows
from localma.checks.cautions import Caution
from localma.errors import CandidateError, InvalidInputError, LocalMAError, NoAnswerError
from localma.formatting import fixed, printable, with_error
from localma.inspection.observed import Measured, decimals_of_column
from localma.inspection.summary import Advice
from localma.tables.files import TableReader
from localma.tables.sniffing import TableFileError

BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
ASCII_SPELLINGS = {"±": "+/-", "−": "-", "–": "-", "²": "^2", "≤": "<=", "≥": ">=", "…": "..."}
"""Replacements for terminals that do not have these characters."""
MAX_ROWS_LISTED = 10
ROW = re.compile(r"\brow (\d+)(?: of the [\d,]+ it was given)?")
"""A row in an error message of the library, counted from zero."""
OPTIONS = {
    "separator": "Use --sep to state it, such as --sep ';' or --sep tab.",
    "encoding": "Use --encoding to state it, such as --encoding cp1252 for Western Europe.",
    "missing": "If {value!r} means a missing value, add --na {value!r}.",
}
"""The options that may help to read a file."""


def say(text: str) -> None:
    """Print a sentence, wrapped at words."""
    _print(_displayable(text, sys.stdout, "\n"))


def say_advice(advice: Advice, cautions: Sequence[Caution]) -> None:
    """Print the recommendation in bold, then the reasons to doubt it, then the evidence."""
    recommendation, evidence = (_displayable(text, sys.stdout, "\n") for text in advice)
    if not cautions:
        _print(Text.assemble((recommendation, "bold"), " ", evidence))
        return
    if recommendation:
        _print(Text(recommendation, "bold"))
    for sentence in filter(None, [*(caution.sentence for caution in cautions), evidence]):
        say(sentence)


def note(text: str) -> None:
    """Print a sentence on standard error, since a machine may read standard output."""
    sys.stderr.write(_displayable(text, sys.stderr, "\n") + "\n")


def note_cautions(cautions: Sequence[Caution]) -> None:
    """Print reasons to doubt a model on standard error."""
    for caution in cautions:
        note(caution.sentence)


def show_table(
    title: str, head: Sequence[str], body: Sequence[Sequence[str]], best: int = -1
) -> None:
    """Print a table with a column of names and columns of numbers; the best row is bold."""
    table = Table(title=_cell(title) if title else None, title_justify="left")
    table.add_column(_cell(head[0]), overflow="fold")
    for name in head[1:]:
        table.add_column(_cell(name), justify="right", overflow="fold")
    for index, row in enumerate(body):
        table.add_row(*map(_cell, row), style="bold" if index == best else None)
    _print(table)


def _print(content: RenderableType) -> None:
    console = Console(highlight=False, markup=False)
    console.print(content)


def _cell(text: str) -> Text:
    return Text(_displayable(text, sys.stdout))


def _displayable(text: str, stream: IO[str], allowed: str = "") -> str:
    r"""Replace characters that the terminal would obey, or that its encoding does not have.

    >>> from io import TextIOWrapper, BytesIO
    >>> _displayable("0.5 ± 0.1 in Zürich", TextIOWrapper(BytesIO(), "ascii"))
    '0.5 +/- 0.1 in Z\\xfcrich'
    """
    text = printable(text, allowed)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for character, spelling in ASCII_SPELLINGS.items():
        if character in text and character.encode(encoding, "ignore") == b"":
            text = text.replace(character, spelling)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def print_json(value: Json) -> None:
    """Print one JSON value, and nothing else."""
    # Not through rich, which would wrap lines.
    sys.stdout.write(_as_json(value) + "\n")


def _as_json(value: Json) -> str:
    r"""Write JSON that is readable on a terminal, with control characters as escapes.

    >>> print(_as_json("Zürich\x9b2J"))
    "Zürich\u009b2J"
    """
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    ascii_only = not encoding.startswith("utf")
    text = json.dumps(value, allow_nan=False, indent=2, ensure_ascii=ascii_only)
    return BEYOND_ASCII.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    letter = match[0]
    return letter if printable(letter) == letter else json.dumps(letter)[1:-1]


def share(value: float) -> str:
    """Write a weight or a probability.

    >>> share(0.00028), share(1.0)
    ('0.000', '1.000')
    """
    return f"{value:.3f}"


def column_of(measured: Sequence[Measured], *, errors: bool = True) -> list[str]:
    """Write values, with their standard errors, with as many decimals as the errors allow.

    >>> column_of([Measured(1.5, 0.25), Measured(20.0, 0.31)])
    ['1.50 ± 0.25', '20.00 ± 0.31']
    """
    decimals = decimals_of_column(measured)
    if not errors:
        return [fixed(pair.value, decimals).replace("−", "-") for pair in measured]
    cells = [with_error(pair.value, pair.standard_error, decimals) for pair in measured]
    return [" ".join(cell).rstrip().replace("−", "-") for cell in cells]


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without its place in the code; takes the place of warnings.showwarning."""
    note(f"Warning: {message}")


class _Escaping(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), "\n")


def escape_messages() -> None:
    """Escape control characters in warnings and log messages of this process."""
    warnings.showwarning = show_warning
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Escaping())


def plain_message(error: LocalMAError) -> str:
    """Word an error without its hint for Python, and with the option that may help."""
    if isinstance(error, TableFileError):
        return f"{error.plain} {OPTIONS[error.setting].format(value=error.value)}"
    return error.plain


def note_remarks(reader: TableReader) -> None:
    """Print how a table was read, one line per remark, and clear the remarks."""
    for remark in reader.remarks:
        text = remark.text
        if remark.stray is not None:
            text += f" If {remark.stray!r} means a missing value, add --na {remark.stray!r}."
        if remark.other_decimal is not None:
            text += f" If that is wrong, add --decimal {remark.other_decimal!r}."
        note(text)
    reader.remarks.clear()


def name_rows(reader: TableReader, rows: Sequence[int]) -> str:
    """Name rows, which are counted from zero, as their file shows them.

    The result is such as "lines 3, 8 and 12 of new.csv".
    """
    numbers = [str(number) for number in reader.numbers(rows[:MAX_ROWS_LISTED])]
    if len(rows) == 1:
        return f"{reader.row_word} {numbers[0]} of {reader.name}"
    if len(rows) > len(numbers):
        numbers.append(f"{len(rows) - len(numbers):,} more")
    listed = f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    return f"{reader.row_word}s {listed} of {reader.name}"


@contextmanager
def naming_rows(
    reader: TableReader, rows: Sequence[int] | Rows | None = None, remedy: str = ""
) -> Iterator[None]:
    """Make errors name rows as the file shows them.

    Parameters
    ----------
    reader : TableReader
    rows : the index in the file of each row of the table at hand; None if they are the same
    remedy : an option that helps if a candidate has no prediction
    """

    def index_in_file(row: int) -> int:
        return row if rows is None else int(rows[row])

    try:
        yield
    except LocalMAError as error:
        if isinstance(error, CandidateError) and error.rows:
            indices = sorted(map(index_in_file, error.rows))
            text = (
                f"Candidate {error.candidate!r} has no finite prediction in "
                f"{name_rows(reader, indices)}. Fill in these cells, leave the rows out{remedy}, "
                "or leave the candidate out."
            )
        elif isinstance(error, NoAnswerError):
            indices = sorted(map(index_in_file, error.rows))
            text = f"No candidate has a prediction in {name_rows(reader, indices)}. Fill in a "
            text += "prediction, or leave the rows out."
            if remedy:
                text += " Or add --missing nan: their predictions are then empty."
        else:
            text = ROW.sub(
                lambda match: name_rows(reader, [index_in_file(int(match[1]))]),
                plain_message(error),
            )
        if text == str(error):
            raise
        raise InvalidInputError(text) from error
