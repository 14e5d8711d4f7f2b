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
from typing import IO, Any

from localma._optional import optional
from localma.checks.cautions import Caution
from localma.inspection.metrics import Measured
from localma.wording import decimals_for, fixed, printable, readable, with_error

BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
SPELLED = {"±": "+/-", "−": "-", "–": "-", "²": "^2", "≤": "<=", "≥": ">=", "…": "..."}
"""How signs are written on a terminal that does not have them."""


def console() -> Any:
    """The terminal, or wherever standard output goes."""
    return optional("rich.console", extra="cli").Console(highlight=False, markup=False)


def say(text: str) -> None:
    """Print a sentence, wrapped at words."""
    console().print(_shown(text, sys.stdout, "\n"))


def note(text: str) -> None:
    """Print a sentence where it is in nobody's way: standard output may be read by a machine."""
    sys.stderr.write(_shown(text, sys.stderr, "\n") + "\n")


def _shown(text: str, stream: IO[str], allowed: str = "") -> str:
    """Words as a terminal can show them; allowed : control characters to leave as they are."""
    return _encodable(printable(text, allowed), stream)


def _encodable(text: str, stream: IO[str]) -> str:
    """Replace what the terminal's encoding does not have.

    >>> from io import TextIOWrapper, BytesIO
    >>> _encodable("0.5 ± 0.1 in Zürich", TextIOWrapper(BytesIO(), "ascii"))
    '0.5 +/- 0.1 in Z\\\\xfcrich'
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for sign, letters in SPELLED.items():
        if sign in text and sign.encode(encoding, "ignore") == b"":
            text = text.replace(sign, letters)
    return text.encode(encoding, "backslashreplace").decode(encoding)


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


def note_cautions(cautions: Sequence[Caution]) -> None:
    """Print reasons to doubt a model, apart from the JSON that a machine reads."""
    for caution in cautions:
        note(caution.sentence)


def show_table(
    title: str, head: Sequence[str], body: Sequence[Sequence[str]], best: int = -1
) -> None:
    """Print a table, its first column words and the others numbers; one row may stand out."""
    tables = optional("rich.table", extra="cli")
    table = tables.Table(title=_cell(title) if title else None, title_justify="left")
    table.add_column(_cell(head[0]), overflow="fold")
    for name in head[1:]:
        table.add_column(_cell(name), justify="right", overflow="fold")
    for position, row in enumerate(body):
        table.add_row(*map(_cell, row), style="bold" if position == best else None)
    console().print(table)


def _cell(words: str) -> Any:
    return optional("rich.text", extra="cli").Text(_shown(words, sys.stdout))


def print_json(value: Any) -> None:
    """Print one JSON value, and nothing else."""
    # Not through rich, which would wrap lines.
    sys.stdout.write(_as_json(value) + "\n")


def _as_json(value: Any) -> str:
    r"""JSON that a person can read on a terminal: letters as they are, control characters escaped.

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


def number(value: float | None, digits: int = 3) -> str:
    """Write a number with some significant digits; nothing for None.

    >>> number(0.123456), number(12345.678), number(None)
    ('0.123', '12,300', '')
    """
    return "" if value is None else readable(value, digits)


def share(value: float) -> str:
    """Write a weight or a probability.

    >>> share(0.00028), share(1.0)
    ('0.000', '1.000')
    """
    return f"{value:.3f}"


def column_of(measured: Sequence[Measured], *, errors: bool = True) -> list[str]:
    """Write values, and their standard errors, with the decimals that the errors allow.

    >>> column_of([Measured(1.5, 0.25), Measured(20.0, 0.31)])
    ['1.50 ± 0.25', '20.00 ± 0.31']
    """
    decimals = decimals_for(
        (pair.standard_error for pair in measured), (pair.value for pair in measured)
    )
    if not errors:
        return [fixed(pair.value, decimals).replace("−", "-") for pair in measured]
    cells = [with_error(pair.value, pair.standard_error, decimals) for pair in measured]
    return [" ".join(cell).rstrip().replace("−", "-") for cell in cells]
