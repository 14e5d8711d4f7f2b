"""What people read: tables on the terminal; what machines read: JSON.

Names of candidates, columns and classes, and words of servers, come from other people. Here, where
they leave the program, control characters are written as escapes, so that a terminal does not
obey them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from localma._optional import optional
from localma.wording import printable, readable

BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")


def console() -> Any:
    """The terminal, or wherever standard output goes."""
    return optional("rich.console", extra="cli").Console(highlight=False, markup=False)


def say(text: str) -> None:
    """Print a sentence, wrapped at words."""
    console().print(printable(text, "\n"))


def note(text: str) -> None:
    """Print a sentence where it is in nobody's way: standard output may be read by a machine."""
    sys.stderr.write(printable(text, "\n") + "\n")


class _Escaping(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), "\n")


def escape_messages() -> None:
    """Let warnings and the log of this process go through `printable`, too."""
    as_before = warnings.formatwarning

    def escaped(*args: Any, **options: Any) -> str:
        return printable(as_before(*args, **options), "\n")

    warnings.formatwarning = escaped
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Escaping())


def note_cautions(cautions: Sequence[dict[str, Any]]) -> None:
    """Print why a model is to be doubted, beside the JSON that a machine reads."""
    for caution in cautions:
        note(caution["sentence"])


def show_table(
    title: str, head: Sequence[str], body: Sequence[Sequence[str]], best: int = -1
) -> None:
    """Print a table, its first column words and the others numbers; one row may stand out."""
    tables = optional("rich.table", extra="cli")
    table = tables.Table(title=_cell(title), title_justify="left")
    table.add_column(_cell(head[0]), overflow="fold")
    for name in head[1:]:
        table.add_column(_cell(name), justify="right", overflow="fold")
    for place, row in enumerate(body):
        table.add_row(*map(_cell, row), style="bold" if place == best else None)
    console().print(table)


def _cell(words: str) -> Any:
    return optional("rich.text", extra="cli").Text(printable(words))


def print_json(value: Any) -> None:
    """Print one JSON value, and nothing else."""
    # Not through rich, which would wrap lines.
    sys.stdout.write(_as_json(value) + "\n")


def _as_json(value: Any) -> str:
    r"""JSON that a person can read on a terminal: letters as they are, control characters escaped.

    >>> print(_as_json("Zürich\x9b2J"))
    "Zürich\u009b2J"
    """
    text = json.dumps(value, allow_nan=False, indent=2, ensure_ascii=False)
    return BEYOND_ASCII.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    letter = match[0]
    return letter if printable(letter) == letter else json.dumps(letter)[1:-1]


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with some significant digits; nothing for None.

    >>> number(0.123456), number(12345.678), number(None)
    ('0.1235', '12,350', '')
    """
    return "" if value is None else readable(value, digits)


def with_error(measured: dict[str, Any] | None) -> str:
    """Write a value and its standard error.

    >>> with_error({"value": 1.5, "standard_error": 0.25})
    '1.5 ± 0.25'
    """
    if measured is None or measured["value"] is None:
        return ""
    error = measured["standard_error"]
    return number(measured["value"]) + ("" if error is None else f" ± {number(error, 2)}")
