"""What people read: tables on the terminal; what machines read: JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from localma._optional import optional
from localma.wording import readable


def console() -> Any:
    """The terminal, or wherever standard output goes."""
    return optional("rich.console", extra="cli").Console(highlight=False, markup=False)


def say(text: str) -> None:
    """Print a sentence, wrapped at words."""
    console().print(text)


def note(text: str) -> None:
    """Print a sentence where it is in nobody's way: standard output may be read by a machine."""
    sys.stderr.write(text + "\n")


def show_table(
    title: str, head: Sequence[str], body: Sequence[Sequence[str]], best: int = -1
) -> None:
    """Print a table, its first column words and the others numbers; one row may stand out."""
    tables = optional("rich.table", extra="cli")
    text = optional("rich.text", extra="cli").Text
    table = tables.Table(title=text(title), title_justify="left")
    table.add_column(head[0], overflow="fold")
    for name in head[1:]:
        table.add_column(name, justify="right", overflow="fold")
    for place, row in enumerate(body):
        table.add_row(*map(text, row), style="bold" if place == best else None)
    console().print(table)


def print_json(value: Any) -> None:
    """Print one JSON value, and nothing else."""
    # Not through rich, which would wrap lines.
    sys.stdout.write(json.dumps(value, allow_nan=False, indent=2, ensure_ascii=False) + "\n")


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
