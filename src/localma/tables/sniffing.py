"""What a table's file is, how it is opened safely, and what its readers remark.

>>> named_format(Path("rents.csv.gz")), named_format(Path("rents.PARQUET"))
('csv', 'parquet')
>>> format_of_bytes(b"PAR1...")
'parquet'
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from localma._optional import optional
from localma.errors import InvalidInputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


import codecs
import re
from collections import Counter
from collections.abc import Sequence
from csv import Error as CsvError
from csv import reader as csv_reader
from itertools import islice
from typing import Self

pa: Any = optional("pyarrow", extra="cli")

STANDARD = Path("-")
"""Stands for standard input and standard output."""
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "csv",
    ".xlsx": "xlsx",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""Formats by the end of a file's name; text formats may end in .gz as well."""
TEXT_FORMATS = ("csv", "tsv", "jsonl")
NAMES = {
    "csv": "CSV",
    "tsv": "TSV",
    "jsonl": "JSON Lines",
    "xlsx": "Excel",
    "parquet": "Parquet",
    "arrow": "Arrow",
}
GZIP = b"\x1f\x8b"
WORKBOOK = "xl/workbook.xml"
OLD_EXCEL = b"\xd0\xcf\x11\xe0"
HTML = (b"<!doctype", b"<html", b"<table", b"<?xml")
LOOKED_AT = 4096
"""The number of bytes that tell what a file is."""
LEAST_UNPACKED, UNPACKED_FACTOR = 2**26, 200
"""A packed file may hold 64 MiB, or this many times its own size: tables rarely pack so well."""
LONGEST_LINE = 2**24
"""Characters of a line; a longer one is not a row of a table."""
Setting = Literal["separator", "encoding", "missing"]
"""A field of `TextOptions`."""


@dataclass(frozen=True)
class Remark:
    """What was done with a column or a file, in sentences, and what would change it.

    stray : a cell that may stand for a missing value; other_decimal : the mark that would have
    given other numbers.
    """

    text: str
    stray: str | None = None
    other_decimal: str | None = None


class TableFileError(InvalidInputError):
    """A file cannot be read as a table the way it is written.

    setting : the field of `TextOptions` that may help; column, value : the cell that it is about,
    if it is about one.
    """

    def __init__(
        self, message: str, *, setting: Setting, column: str | None = None, value: str = ""
    ) -> None:
        super().__init__(message)
        self.setting, self.column, self.value = setting, column, value


def named_format(path: Path) -> str:
    """Tell the format of a file by its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    if packed:
        suffixes.pop()
    named = FORMATS.get(suffixes[-1]) if suffixes else None
    if named is None or (packed and named not in TEXT_FORMATS):
        raise InvalidInputError(
            f"The name of a table must end in {', '.join(FORMATS)} (text formats also with .gz); "
            f"received {path.name!r}."
        )
    return named


def format_of_bytes(start: bytes) -> str | None:
    """Tell the format of a file by its first bytes; None for text of unknown format."""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    if start.startswith(b"PK\x03\x04"):
        return "xlsx"
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b'{"'):
        return "jsonl"
    return None


def real_format(path: Path, named: str, name: str) -> str:
    """Tell what a file really is, whatever its name says.

    named : the format that its name promises; name : what messages call the file.
    """
    with path.open("rb") as file:
        start = file.read(LOOKED_AT)
    _refuse_other_files(path, start, name)
    actual = format_of_bytes(start)
    if actual is None and named not in TEXT_FORMATS and not start.startswith(GZIP):
        raise InvalidInputError(
            f"{name} is not a table in the format {NAMES[named]}, as its name says: its first "
            f"bytes are {start[:8]!r}. Give it the suffix of what it is, such as .csv for text."
        )
    if actual is None or (actual == "jsonl" and named not in TEXT_FORMATS):
        return named
    return actual


def is_packed(path: Path) -> bool:
    """Whether a file is packed with gzip, by its first bytes."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def _refuse_other_files(path: Path, start: bytes, name: str) -> None:
    """Refuse files that are often taken for tables, and say what they are."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(OLD_EXCEL):
        raise InvalidInputError(
            f"{name} is a workbook of old Excel (.xls), or one with a password. Save it as .xlsx "
            "without a password, or as CSV."
        )
    if start.startswith(b"PK\x03\x04") and not _is_workbook(path):
        raise InvalidInputError(f"{name} is a ZIP archive. Unpack it, and give the table in it.")
    if text[:9].lower().startswith(HTML):
        raise InvalidInputError(
            f"{name} is a web page or an XML file, not a table. Save the table as CSV or .xlsx."
        )
    if text.startswith((b"[{", b"[\n", b"[ ", b"[\r")):
        raise InvalidInputError(
            f"{name} is one JSON array. Write one JSON object per line instead (.jsonl)."
        )


def _is_workbook(path: Path) -> bool:
    return zipfile.is_zipfile(path) and WORKBOOK in zipfile.ZipFile(path).namelist()


class _Unpacked(RawIOBase):
    """The content of a packed file, refused if it is out of proportion to the file."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, gzip.GzipFile(path)
        self._left = most_unpacked(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        try:
            count = int(self._file.readinto(buffer))
        except (EOFError, OSError, zlib.error) as error:
            raise InvalidInputError(
                f"{self._path.name} is damaged: it cannot be unpacked ({error}). Pack it again."
            ) from error
        self._left -= count
        if self._left < 0:
            raise out_of_proportion(self._path.name)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def most_unpacked(path: Path) -> int:
    """Bytes that a packed file may hold."""
    return max(LEAST_UNPACKED, UNPACKED_FACTOR * path.stat().st_size)


def out_of_proportion(name: str) -> InvalidInputError:
    """Build the error for a file that holds much more than its size suggests."""
    return InvalidInputError(
        f"{name} unpacks to more than {UNPACKED_FACTOR} times its size, which is how a harmful "
        "file looks. If you trust it, unpack it or save it in another format first."
    )


def opened(path: Path, encoding: str) -> IO[str]:
    """Open a text file, packed or not."""
    encoding = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
    if is_packed(path):
        return TextIOWrapper(BufferedReader(_Unpacked(path)), encoding=encoding, newline="")
    return path.open(encoding=encoding, newline="")


def arrow_stream(path: Path) -> Any:
    """Open a text file as Arrow reads it, packed or not."""
    if is_packed(path):
        return pa.PythonFile(BufferedReader(_Unpacked(path)), mode="r")
    return pa.input_stream(str(path), compression=None)


def bounded_lines(file: IO[str], name: str) -> Iterator[str]:
    """Lines of a file, one after the other; one that is too long is refused before it is read."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith("\n"):
            raise InvalidInputError(
                f"{name} has a line of more than {LONGEST_LINE:,} characters, so it is not a table "
                "with a row per line. Look at the file, or write it again."
            )
        yield line


csv: Any = optional("pyarrow.csv", extra="cli")

LINES_SNIFFED = 100
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
                line.rstrip("\r\n") for line in islice(bounded_lines(file, name), 2 + LINES_SNIFFED)
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
