"""Text files with a row per line: separator, encoding, header, and the lines of rows."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from csv import Error as CsvError
from csv import reader as csv_reader
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.tables.formats import Remark, TableFileError, bounded_lines, opened

pa: Any = optional("pyarrow", extra="cli")
csv: Any = optional("pyarrow.csv", extra="cli")

LOOKED_AT = 100
"""The number of lines that tell how a file separates its columns."""
MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>"]
"""Cells that mean a missing value in any column."""
SEPARATORS = ",;\t|"
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
STATED = re.compile(r"^sep=(.)$")
"""The first line by which Excel states the separator."""


@dataclass(frozen=True)
class TextOptions:
    """How a text file is written, where that is not to be found out from the file.

    separator : between columns; encoding : such as "cp1252"; missing : further cells that mean a
    missing value; decimal : the mark of numbers that can be read with either.
    """

    separator: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    decimal: str | None = None


@dataclass(frozen=True)
class Layout:
    """How a text file separates its columns, their names, and where its rows begin.

    name : what messages call the file; header_lines : lines before the first row.
    """

    path: Path
    name: str
    encoding: str
    separator: str
    names: list[str]
    header_lines: int
    remarks: tuple[Remark, ...] = ()

    @classmethod
    def of(cls, path: Path, name: str, *, tabs: bool, options: TextOptions) -> Self:
        """Look at the first lines of a file; tabs : whether its name promises tabs."""
        encoding = options.encoding or _encoding(path)
        lines = _first_lines(path, name, encoding)
        if not any(line.strip() for line in lines):
            raise InvalidInputError(f"{name} is empty. Give a table with a header and rows.")
        stated = STATED.match(lines[0])
        skipped = 1 if stated else 0
        wanted = options.separator or (stated[1] if stated else None)
        separator, header_separator = _separators(lines[skipped:], wanted, tabs=tabs)
        reader = csv_reader(lines[skipped:], delimiter=header_separator)
        names = [column.strip() for column in next(record for record in reader if record)]
        remarks = []
        if separator != header_separator:
            remarks.append(
                Remark(
                    f"The header of {name} separates columns with "
                    f"{_named(header_separator)}, its rows with {_named(separator)}. Both are read."
                )
            )
        start = skipped + reader.line_num
        return cls(path, name, encoding, separator, names, start, tuple(remarks))

    @property
    def default_decimal(self) -> str:
        """The decimal mark of numbers such as 1,234, which commas between columns decide."""
        return "." if self.separator == "," else ","

    def arrow_options(
        self, names: Sequence[str], missing: Sequence[str], columns: Sequence[str], block: int
    ) -> dict[str, Any]:
        """Options of Arrow's readers, which read every cell as text.

        names : of all columns, all different; columns : those to read; block : bytes of a part.
        """
        return {
            "read_options": csv.ReadOptions(
                block_size=block,
                column_names=list(names),
                skip_rows=self.header_lines,
                encoding=self.encoding,
            ),
            "parse_options": csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            "convert_options": csv.ConvertOptions(
                column_types={column: pa.string() for column in columns},
                null_values=[*MISSING, *missing],
                strings_can_be_null=True,
                include_columns=list(columns),
            ),
        }

    def lines_of(self, rows: Sequence[int]) -> list[int]:
        """Lines, counted from one, at which rows begin, counted from zero and in order."""
        wanted = iter(rows)
        row = next(wanted, None)
        found = []
        for number, (line, _) in enumerate(self._records()):
            if row is None:
                break
            if number == row:
                found.append(line)
                row = next(wanted, None)
        return found

    def explain(self, error: Exception) -> TableFileError | None:
        """What is wrong with a file that Arrow cannot split into columns."""
        if "Expected" not in str(error) and "invalid UTF8" not in str(error):
            return None
        try:
            return self._uneven_line()
        except UnicodeDecodeError as undecodable:
            return not_encoded(self.name, self.encoding, undecodable)

    def _uneven_line(self) -> TableFileError | None:
        """What is wrong with the first line that has other columns than the header."""
        for line, record in self._records():
            if len(record) != len(self.names):
                return TableFileError(
                    f"Line {line} of {self.name} has {len(record)} columns, and the header has "
                    f"{len(self.names)}. Columns are taken to be separated by "
                    f"{_named(self.separator)}. Correct the line, or state the separator.",
                    setting="separator",
                )
        return None

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not empty, with the lines at which they begin."""
        with opened(self.path, self.encoding) as file:
            lines = bounded_lines(file, self.name)
            for _ in range(self.header_lines):
                next(lines, None)
            reader = csv_reader(lines, delimiter=self.separator)
            before = 0
            for record in reader:
                if record:
                    yield self.header_lines + before + 1, record
                before = reader.line_num


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"


def _first_lines(path: Path, name: str, encoding: str) -> list[str]:
    try:
        with opened(path, encoding) as file:
            return [
                line.rstrip("\r\n") for line in islice(bounded_lines(file, name), 2 + LOOKED_AT)
            ]
    except UnicodeDecodeError as error:
        raise not_encoded(name, encoding, error) from error
    except LookupError as error:
        raise InvalidInputError(
            f"There is no encoding {encoding!r}. Use utf-8, cp1252, latin-1, utf-16, gb18030, "
            "shift_jis, or another that is known."
        ) from error


def not_encoded(name: str, encoding: str, error: UnicodeDecodeError) -> TableFileError:
    """Build the error for a file in another encoding."""
    byte = error.object[error.start : error.start + 1]
    return TableFileError(
        f"{name} is not written in {encoding.upper()}: it has the byte 0x{byte.hex()}. Save it as "
        "UTF-8, or state its encoding.",
        setting="encoding",
    )


def _separators(lines: Sequence[str], wanted: str | None, *, tabs: bool) -> tuple[str, str]:
    """The separator of the rows, and that of the header, which may differ.

    The best one splits the header and the rows into equally many columns.
    """
    if wanted is not None:
        return wanted, wanted
    order = "\t,;|" if tabs else SEPARATORS
    splits = {sign: _widths(lines, sign) for sign in order}
    agreeing = [sign for sign, (head, rows) in splits.items() if head > 1 and rows in (head, 0)]
    if agreeing:
        best = max(agreeing, key=lambda sign: splits[sign][0])
        return best, best
    pairs = [
        (row_sign, head_sign)
        for row_sign in order
        for head_sign in order
        if splits[row_sign][1] > 1 and splits[row_sign][1] == splits[head_sign][0]
    ]
    if pairs:
        return max(pairs, key=lambda pair: splits[pair[0]][1])
    best = max(order, key=lambda sign: splits[sign][0])
    return best, best


def _widths(lines: Sequence[str], separator: str) -> tuple[int, int]:
    """The number of columns of the header, and of most rows; zero if there are none."""
    try:
        records = [record for record in csv_reader(lines, delimiter=separator) if record]
    except CsvError:
        return 0, 0
    if not records:
        return 0, 0
    widths = Counter(len(record) for record in records[1:])
    return len(records[0]), widths.most_common(1)[0][0] if widths else 0


def _named(separator: str) -> str:
    return SEPARATOR_NAMES.get(separator, repr(separator))
