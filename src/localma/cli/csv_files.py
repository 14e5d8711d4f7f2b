"""Text files with a row per line: what separates columns, and how numbers are written.

Where no comma separates columns one may be in a number. Such columns are read as words first.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from csv import reader as split_lines
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from localma._optional import optional
from localma.errors import InvalidInputError

LOOKED_AT = 100
"""So many lines of a CSV file say whether its labels are words, such as 01."""
NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""What stands for a missing value in a CSV file."""
COMMA_NUMBER = r"^\s*[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?\s*$"
"""A number with a comma or a point, where semicolons or tabs stand between columns."""
BAD_CELL = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid value '(.*)'", re.DOTALL)
"""How Arrow says that a cell is not of the type of its column."""


@dataclass(frozen=True)
class Layout:
    """How a text file separates its columns, and their names."""

    path: Path
    delimiter: str
    names: list[str]

    @classmethod
    def of(cls, path: Path, kind: str) -> Self:
        """Look at the header of a file of the kind "csv" or "tsv"."""
        header = _first_lines(path)[0]
        delimiter = _delimiter(header, kind)
        return cls(path, delimiter, next(split_lines([header], delimiter=delimiter), []))

    def options(
        self,
        arrow: Any,
        types: dict[str, Any],
        columns: Sequence[str] | None = None,
        *,
        part_bytes: int,
    ) -> dict[str, Any]:
        """Options of Arrow's readers; the columns that are needed are all there."""
        csv = optional("pyarrow.csv", extra="cli")
        if self.delimiter != ",":
            types = {name: _or_words(arrow, kind) for name, kind in types.items()}
        return {
            "read_options": csv.ReadOptions(block_size=part_bytes),
            "parse_options": csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            "convert_options": csv.ConvertOptions(
                column_types=types,
                null_values=NULLS,
                strings_can_be_null=True,
                include_columns=None if columns is None else list(dict.fromkeys(columns)),
            ),
        }

    def with_numbers(self, arrow: Any, table: Any, types: dict[str, Any]) -> Any:
        """Turn words into numbers, in columns that are known to hold such, or hold nothing else."""
        if self.delimiter == ",":
            return table
        for place, name in enumerate(table.column_names):
            column, known = table[name], types.get(name)
            if column.type != arrow.string() or column.null_count == len(column):
                continue
            if known == arrow.float64() or (known is None and not _no_numbers(column)):
                table = table.set_column(place, name, as_numbers(self.path, name, column))
        return table

    def has_codes(self, column: str) -> bool:
        """Whether a column is written 01, 02, ... in the first lines: then it holds words."""
        _, *rows = split_lines(_first_lines(self.path), delimiter=self.delimiter)
        place = self.names.index(column) if column in self.names else len(self.names)
        fields = [field for row in rows for field in row[place : place + 1]]
        return any(re.fullmatch(r"0\d+", field) for field in fields)

    def of_one_cell(self, error: Exception) -> InvalidInputError | None:
        """What is to be said where Arrow met a cell that is not of the type of its column."""
        cell = BAD_CELL.search(str(error))
        return None if cell is None else _bad_cell(self.path, self.names[int(cell[1])], cell[3])


def _or_words(arrow: Any, kind: Any) -> Any:
    return arrow.string() if kind == arrow.float64() else kind


def _no_numbers(column: Any) -> list[str]:
    """Values of a column of words that are no numbers, with a point or a comma."""
    compute = optional("pyarrow.compute", extra="cli")
    matches = compute.match_substring_regex(column, COMMA_NUMBER)
    strange: list[str] = column.filter(compute.invert(matches)).to_pylist()
    return strange


def as_numbers(path: Path, name: str, column: Any) -> Any:
    """A column of words as numbers, with a point or a comma."""
    compute = optional("pyarrow.compute", extra="cli")
    strange = _no_numbers(column)
    if strange:
        raise _bad_cell(path, name, strange[0])
    points = compute.replace_substring(compute.utf8_trim_whitespace(column), ",", ".")
    return points.cast(optional("pyarrow", extra="cli").float64())


def _bad_cell(path: Path, column: str, value: str) -> InvalidInputError:
    return InvalidInputError(
        f"Column {column!r} of {path} must hold values of one kind, as when the model was fitted; "
        f"one of its cells is {value!r}. Mend it, or leave it empty where the value is missing."
    )


def _delimiter(header: str, kind: str) -> str:
    return "\t" if kind == "tsv" else ";" if "," not in header and ";" in header else ","


def _first_lines(path: Path) -> list[str]:
    """The header and some lines of a text file, packed or not."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig") as file:
        return [str(file.readline()).rstrip("\r\n") for _ in range(1 + LOOKED_AT)]
