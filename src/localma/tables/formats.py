"""What a file is: by the end of its name, and by its first bytes.

>>> named_format(Path("rents.csv.gz")), named_format(Path("rents.PARQUET"))
('csv', 'parquet')
>>> format_of_bytes(b"PAR1...")
'parquet'
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from localma.errors import InvalidInputError

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
