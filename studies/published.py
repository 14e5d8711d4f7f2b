"""The paper's published figures, read from the tables in ``studies/published/*.toml``.

A table is stored as printed. Each of its `rows` has the values of `row_keys` first, and then one
figure per entry of `columns`, which are the values of `column_key`. A figure is a text, so that its
printed digits are known: "0.36 (0.15)" is a value with its standard deviation over replicates.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "published"
REPLICATES = 500
"""Number of replicates of the paper's simulations; other tables state their number."""


@dataclass(frozen=True)
class Figure:
    """One published number, with its table and keys.

    text : as printed;
    sd : the number in parentheses; rounding : half a unit of the last printed digit;
    replicates : number of replicates in the mean.
    """

    table: str
    keys: dict[str, Any]
    text: str
    value: float
    sd: float | None
    rounding: float
    replicates: int


def parse(text: str) -> tuple[float, float | None, float]:
    """Value, standard deviation and rounding of a figure as printed.

    >>> parse("0.36 (0.15)")
    (0.36, 0.15, 0.005)
    >>> parse("1215")
    (1215.0, None, 0.5)
    """
    match = re.fullmatch(r"(-?\d+(?:\.(\d+))?)(?: \((\d+(?:\.\d+)?)\))?", text)
    if match is None:
        raise ValueError(f"A figure is a number such as '0.36 (0.15)'; received {text!r}.")
    value, digits, sd = match.groups()
    return float(value), None if sd is None else float(sd), 0.5 * 10.0 ** -len(digits or "")


def read_tables(path: Path) -> list[Figure]:
    """All figures of one file."""
    figures = []
    for table in tomllib.loads(path.read_text())["table"]:
        names = table["row_keys"]
        for row in table["rows"]:
            keys = {**table.get("keys", {}), **dict(zip(names, row, strict=False))}
            for column, text in zip(table["columns"], row[len(names) :], strict=True):
                value, sd, rounding = parse(text)
                here = {**keys, table["column_key"]: column}
                replicates = table.get("replicates", REPLICATES)
                figures.append(Figure(table["name"], here, text, value, sd, rounding, replicates))
    return figures


@cache
def load_published() -> list[Figure]:
    """Every published figure."""
    return [figure for path in sorted(FOLDER.glob("*.toml")) for figure in read_tables(path)]


def find(figures: Iterable[Figure], **keys: Any) -> Figure | None:
    """Find the figure with exactly these keys, if there is one."""
    return next((figure for figure in figures if figure.keys == keys), None)
