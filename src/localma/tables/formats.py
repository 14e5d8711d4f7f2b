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
