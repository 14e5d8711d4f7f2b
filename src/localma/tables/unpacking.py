"""Text files opened, packed with gzip or not, within bounds of size and of line length."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.tables.formats import is_packed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

pa: Any = optional("pyarrow", extra="cli")

LEAST_UNPACKED, UNPACKED_FACTOR = 2**26, 200
"""A packed file may hold 64 MiB, or this many times its own size: tables rarely pack so well."""
LONGEST_LINE = 2**24
"""Characters of a line; a longer one is not a row of a table."""


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
