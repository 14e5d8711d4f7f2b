"""The format, encoding, separator and header of a table in a file.

>>> named_format(Path("rents.csv.gz")), named_format(Path("rents.PARQUET"))
('csv', 'parquet')
>>> format_of_bytes(b"PAR1...")
'parquet'
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader, RawIOBase, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from localma._optional import optional
from localma.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import WriteableBuffer
else:
    pa = optional("pyarrow", extra="cli")

STANDARD = Path("-")
"""The path that means standard input or standard output."""
STANDARD_INPUT = "standard input"
FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".txt": "csv", ".xlsx": "xlsx", ".parquet": "parquet",
    ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}  # fmt: skip
"""Formats by the suffix of a file; text formats may also end in .gz."""
TEXT_FORMATS = ("csv", "tsv", "jsonl")
NAMES = {
    "csv": "CSV", "tsv": "TSV", "jsonl": "JSON Lines", "xlsx": "Excel", "parquet": "Parquet",
    "arrow": "Arrow",
}  # fmt: skip
GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"
WORKBOOK = "xl/workbook.xml"
OLD_EXCEL = b"\xd0\xcf\x11\xe0"
HTML = (b"<!doctype", b"<html", b"<table", b"<?xml")
LEADING = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may precede the text of a file: a byte order mark and whitespace."""
BYTES_SNIFFED = 4096
LEAST_UNPACKED, UNPACKED_FACTOR = 2**26, 200
"""A packed file may hold 64 MiB, or this many times its own size: tables rarely pack so well."""
LONGEST_LINE = 2**24
"""Characters of a line; a longer one is not a row of a table."""
LINES_SNIFFED = 102
"""Lines that are read to find the separator."""
MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>"]
"""Cells that mean a missing value in any column."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SEPARATOR_LINE = re.compile(r"^sep=(.)$")
"""The first line in which Excel states the separator."""
Setting = Literal["separator", "encoding", "missing"]
"""A field of `TextOptions`."""


@dataclass(frozen=True)
class Remark:
    """How a column or a file was read, in sentences, and what would change it.

    Parameters
    ----------
    text : str
        The remark, in complete sentences.
    stray : str, optional
        A cell that may mean a missing value.
    other_decimal : {".", ","}, optional
        The decimal mark with which the numbers would be different.

    Examples
    --------
    >>> remark = Remark("Column 'area' is read as text because of the cell '?'.", stray="?")
    >>> TextOptions(missing=(remark.stray,))
    TextOptions(separator=None, encoding=None, missing=('?',), decimal=None)
    """

    text: str
    stray: str | None = None
    other_decimal: str | None = None


class TableFileError(InvalidInputError):
    """A file cannot be read as a table with the present settings.

    Parameters
    ----------
    message : str
        What is wrong, and what to do.
    setting : {"separator", "encoding", "missing"}
        The field of `TextOptions` that may help.
    column : str, optional
        The column of the cell that causes the error, if a single cell does.
    value : str, default=""
        The value of that cell.

    Examples
    --------
    >>> message = "Line 3 has 2 columns, and the header has 4. State the separator."
    >>> try:
    ...     raise TableFileError(message, setting="separator")
    ... except ValueError as error:
    ...     print(f"{error.setting}: {error}")
    separator: Line 3 has 2 columns, and the header has 4. State the separator.
    """

    def __init__(
        self, message: str, *, setting: Setting, column: str | None = None, value: str = ""
    ) -> None:
        super().__init__(message)
        self.setting, self.column, self.value = setting, column, value


@dataclass(frozen=True)
class TextOptions:
    """Settings of a text file that are not to be guessed from its content.

    Parameters
    ----------
    separator : str, optional
        The character between columns.
    encoding : str, optional
        Such as "cp1252".
    missing : tuple of str
        Cells that mean a missing value, in addition to the usual ones.
    decimal : {".", ","}, optional
        The decimal mark of numbers such as 1,234, which can be read with either mark.

    Examples
    --------
    >>> TextOptions(separator=";", missing=("-999",)).missing
    ('-999',)
    """

    separator: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and len(self.separator) != 1:
            raise InvalidInputError(
                f"The separator must be one character; received {self.separator!r}."
            )
        if self.decimal not in (None, ".", ","):
            raise InvalidInputError(
                f"The decimal mark must be '.' or ','; received {self.decimal!r}."
            )


def named_format(path: Path) -> str:
    """Return the format that the name of a file promises."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    if packed:
        suffixes.pop()
    named = FORMATS.get("".join(suffixes[-1:]))
    if named is None or (packed and named not in TEXT_FORMATS):
        raise InvalidInputError(
            f"The name of a table must end in {', '.join(FORMATS)} (text formats also with .gz); "
            f"received {path.name!r}."
        )
    return named


def format_of_bytes(start: bytes) -> str | None:
    """Return the format of a file by its first bytes; None for text of unknown format."""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if start.startswith(ZIP):
        return "xlsx"
    if start.lstrip(LEADING).startswith(b'{"'):
        return "jsonl"
    return None


@dataclass(frozen=True)
class SourceFile:
    """A file with a table, after a look at its first bytes.

    name : the name in messages; format : the real format, whatever the suffix; encoding : the one
    to try first.
    """

    path: Path
    name: str
    format: str
    is_packed: bool
    encoding: str

    @classmethod
    def sniff(cls, path: Path, name: str, expected: str) -> Self:
        """Look at the first bytes of a file; expected : the format that its name promises."""
        with path.open("rb") as file:
            start = file.read(BYTES_SNIFFED)
        _refuse_other_files(path, start, name)
        actual = format_of_bytes(start)
        if actual is None and expected not in TEXT_FORMATS:
            raise InvalidInputError(
                f"{name} is not a table in the format {NAMES[expected]}, as its name says: its "
                f"first bytes are {start[:8]!r}. Rename it to match its format, such as .csv for "
                "text."
            )
        encoding = "utf-8"
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        return cls(path, name, actual or expected, start.startswith(GZIP), encoding)

    def lines(self, encoding: str) -> Iterator[str]:
        """Lines of text, one by one; a line that is too long is refused before it is in memory."""
        if encoding.lower() in ("utf-8", "utf8"):
            encoding = "utf-8-sig"
        source = self._unpacked() if self.is_packed else self.path.open("rb")
        with source, TextIOWrapper(source, encoding=encoding, newline="") as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE and not line.endswith("\n"):
                    raise InvalidInputError(
                        f"{self.name} has a line of more than {LONGEST_LINE:,} characters, so it "
                        "is not a table with one row per line. Check the file, or write it again."
                    )
                yield line

    def arrow_stream(self) -> pa.NativeFile:
        """Open the bytes of the file for Arrow's readers."""
        if self.is_packed:
            return pa.PythonFile(self._unpacked(), mode="r")
        return pa.input_stream(str(self.path), compression=None)

    def _unpacked(self) -> BufferedReader:
        return BufferedReader(_Unpacked(self))

    @property
    def unpacked_limit(self) -> int:
        """The number of bytes that the file may hold, if it is packed."""
        return max(LEAST_UNPACKED, UNPACKED_FACTOR * self.path.stat().st_size)

    def out_of_proportion(self) -> InvalidInputError:
        """Build the error for a file that holds much more than its size suggests."""
        return InvalidInputError(
            f"{self.name} unpacks to more than {UNPACKED_FACTOR} times its size, as harmful files "
            "do. If you trust it, unpack it or save it in another format first."
        )

    def wrong_encoding(self, error: UnicodeDecodeError, encoding: str) -> TableFileError:
        """Build the error for a file that is written in another encoding."""
        byte = error.object[error.start : error.start + 1]
        return TableFileError(
            f"{self.name} is not written in {encoding.upper()}: it has the byte 0x{byte.hex()}. "
            "Save it as UTF-8, or state its encoding.",
            setting="encoding",
        )


def _refuse_other_files(path: Path, start: bytes, name: str) -> None:
    """Refuse files of other kinds that people often take for tables."""
    text = start.lstrip(LEADING)
    problem = None
    if start.startswith(OLD_EXCEL):
        problem = "a workbook of old Excel (.xls), or one with a password. Save it as plain .xlsx"
    elif start.startswith(ZIP) and not _is_workbook(path):
        problem = "a ZIP archive. Unpack it, and pass the table in it"
    elif text[:9].lower().startswith(HTML):
        problem = "a web page or an XML file, not a table. Save the table as CSV or .xlsx"
    elif text.startswith((b"[{", b"[\n", b"[ ", b"[\r")):
        problem = "one JSON array. Write one JSON object per line instead (.jsonl)"
    if problem is not None:
        raise InvalidInputError(f"{name} is {problem}.")


def _is_workbook(path: Path) -> bool:
    return zipfile.is_zipfile(path) and WORKBOOK in zipfile.ZipFile(path).namelist()


class _Unpacked(RawIOBase):
    """The content of a gzip file, refused if it is out of proportion to the file."""

    def __init__(self, source: SourceFile) -> None:
        self._source, self._file = source, gzip.GzipFile(source.path)
        self._bytes_left = source.unpacked_limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        try:
            count = int(self._file.readinto(buffer))
        except (EOFError, OSError, zlib.error) as error:
            raise InvalidInputError(
                f"{self._source.name} is damaged: it cannot be unpacked ({error}). Pack it again."
            ) from error
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise self._source.out_of_proportion()
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(frozen=True)
class Layout:
    """The encoding, the separator, the column names and the first row of a text file.

    header_lines : the number of lines before the first row.
    """

    source: SourceFile
    encoding: str
    separator: str
    names: list[str]
    header_lines: int
    remarks: tuple[Remark, ...] = ()

    @classmethod
    def of(cls, source: SourceFile, options: TextOptions) -> Self:
        """Look at the first lines of a file."""
        encoding = options.encoding or source.encoding
        lines = _first_lines(source, encoding)
        if not any(line.strip() for line in lines):
            raise InvalidInputError(f"{source.name} is empty. Pass a table with a header and rows.")
        explicit, skipped = options.separator, 0
        if separator_line := SEPARATOR_LINE.match(lines[0]):
            explicit, skipped = explicit or separator_line[1], 1
        separator, header_separator = _separators(lines[skipped:], explicit, source.format)
        reader = csv.reader(lines[skipped:], delimiter=header_separator)
        names = [column.strip() for column in next(record for record in reader if record)]
        remarks: tuple[Remark, ...] = ()
        if separator != header_separator:
            remarks = (
                Remark(
                    f"The header of {source.name} separates columns with "
                    f"{_named(header_separator)}, its rows with {_named(separator)}. Both are read."
                ),
            )
        return cls(source, encoding, separator, names, skipped + reader.line_num, remarks)

    @property
    def default_decimal(self) -> str:
        """The decimal mark of numbers such as 1,234, if nothing else in the file decides it."""
        return "." if self.separator == "," else ","

    def lines_of(self, rows: Sequence[int]) -> list[int]:
        """Lines, counted from one, at which rows begin, counted from zero and in order."""
        wanted = set(rows)
        records = islice(self._records(), max(rows, default=-1) + 1)
        return [line for row, (line, _) in enumerate(records) if row in wanted]

    def explain(self, error: Exception) -> TableFileError | None:
        """Explain why Arrow cannot split the file into columns, if the file tells."""
        if "Expected" not in str(error) and "invalid UTF8" not in str(error):
            return None
        try:
            return self._uneven_line()
        except UnicodeDecodeError as undecodable:
            return self.source.wrong_encoding(undecodable, self.encoding)

    def _uneven_line(self) -> TableFileError | None:
        """Build the error for the first line whose number of columns is not that of the header."""
        for line, record in self._records():
            if len(record) != len(self.names):
                return TableFileError(
                    f"Line {line} of {self.source.name} has {len(record)} columns, and the header "
                    f"has {len(self.names)}. Columns are taken to be separated by "
                    f"{_named(self.separator)}. Correct the line, or state the separator.",
                    setting="separator",
                )
        return None

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not empty, with the lines at which they begin."""
        lines = islice(self.source.lines(self.encoding), self.header_lines, None)
        reader = csv.reader(lines, delimiter=self.separator)
        lines_before = self.header_lines
        for record in reader:
            if record:
                yield lines_before + 1, record
            lines_before = self.header_lines + reader.line_num


def _first_lines(source: SourceFile, encoding: str) -> list[str]:
    try:
        return [line.rstrip("\r\n") for line in islice(source.lines(encoding), LINES_SNIFFED)]
    except UnicodeDecodeError as error:
        raise source.wrong_encoding(error, encoding) from error
    except LookupError as error:
        raise InvalidInputError(
            f"There is no encoding {encoding!r}. Use utf-8, cp1252, latin-1, utf-16, gb18030, "
            "shift_jis, or another encoding."
        ) from error


def _separators(lines: Sequence[str], explicit: str | None, named: str) -> tuple[str, str]:
    """Find the separator of the rows, and that of the header, which may differ.

    The best ones split the header and the rows into the same number of columns, and into as many
    as possible. In a .tsv file, tabs come first among equals.
    """
    if explicit is not None:
        return explicit, explicit
    order = "\t,;|" if named == "tsv" else ",;\t|"
    widths = {sign: _widths(lines, sign) for sign in order}
    equal = [(sign, sign) for sign in order]
    consistent = [
        (sign, sign)
        for sign, (header, rows) in widths.items()
        if header > 1 and rows in (header, 0)
    ]
    mixed = [
        (row_sign, header_sign)
        for row_sign in order
        for header_sign in order
        if widths[row_sign][1] > 1 and widths[row_sign][1] == widths[header_sign][0]
    ]
    return max(consistent or mixed or equal, key=lambda signs: widths[signs[1]][0])


def _widths(lines: Sequence[str], separator: str) -> tuple[int, int]:
    """The number of columns of the header, and the usual number in rows; zero if there are none."""
    try:
        records = [record for record in csv.reader(lines, delimiter=separator) if record]
    except csv.Error:
        return 0, 0
    if not records:
        return 0, 0
    widths = Counter(len(record) for record in records[1:]) or Counter([0])
    return len(records[0]), widths.most_common(1)[0][0]


def _named(separator: str) -> str:
    return SEPARATORS.get(separator, repr(separator))
