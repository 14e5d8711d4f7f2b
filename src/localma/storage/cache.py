"""Cached predictions on disk, found by the key of the row.

A cache is a folder with one folder, a shelf, for each candidate and task. A shelf holds Arrow files
with rows in the order of their keys. Nothing is locked: each file is written whole, appears by a
rename and never changes, so that several processes can write at once, and a process that is killed
leaves nothing that is read. Each row has a checksum of its key and prediction.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from logging import getLogger
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma._types import Array, Integers, RowMask
from localma.errors import InvalidInputError
from localma.storage.row_keys import Keys, as_words, hash_words
from localma.storage.whole_files import remove_abandoned, replacing

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.ipc import RecordBatchFileReader

logger = getLogger("localma")
Result = TypeVar("Result")
Folder = str | os.PathLike[str] | None

FOLDER = "LOCALMA_CACHE"
"""The environment variable with the default folder."""
MAX_BYTES = 2 * 2**30
SMALL_BYTES = 8 * 2**20
"""Smaller files are merged, so that predicting row by row does not leave a file per row."""
SMALL_FILES = 16
SCHEMA = "localma predictions 1"

_SHELF = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"[0-9a-f]{32}\.arrow")


@dataclass(frozen=True)
class CacheEntry:
    """The cached predictions of one candidate and task.

    Parameters
    ----------
    candidate : str
        The label of the candidate.
    task : str
        The task.
    rows : int
        The number of rows.
    bytes : int
        The size on disk.
    last_used : datetime
        The time at which they were last used.
    folder : Path
        The folder with the files.

    Examples
    --------
    >>> entry = CacheEntry("north", "regression", 10, 480, datetime(2024, 5, 31), Path("cache"))
    >>> entry.rows
    10
    """

    candidate: str
    task: str
    rows: int
    bytes: int
    last_used: datetime
    folder: Path


def cache_folder(folder: Folder = None) -> Path:
    """Return the folder; by default $LOCALMA_CACHE, or localma in the user's cache."""
    if folder is not None:
        return Path(folder)
    if folder := os.environ.get(FOLDER):
        return Path(folder)
    if user_cache := os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA"):
        return Path(user_cache) / "localma"
    return Path.home() / ".cache" / "localma"


def cache_info(folder: Folder = None) -> list[CacheEntry]:
    """List the content of a cache.

    Parameters
    ----------
    folder : str or path, optional
        The cache. By default the default folder.

    Returns
    -------
    list of CacheEntry
        One entry per candidate and task, the last used first.

    Examples
    --------
    >>> cache_info("a folder that does not exist")
    []
    """
    entries = []
    for shelf in _shelves(cache_folder(folder)):
        files = list(_files(shelf))
        descriptions = list(filter(None, (description(file.path) for file in files)))
        if descriptions:
            entries.append(
                CacheEntry(
                    candidate=descriptions[0]["candidate"],
                    task=descriptions[0]["task"],
                    rows=sum(int(fields["rows"]) for fields in descriptions),
                    bytes=sum(file.size for file in files),
                    last_used=datetime.fromtimestamp(max(file.last_used for file in files), UTC),
                    folder=shelf,
                )
            )
    return sorted(entries, key=lambda entry: entry.last_used, reverse=True)


def clean_cache(
    folder: Folder = None, *, older_than: timedelta | None = None, max_bytes: int | None = None
) -> int:
    """Remove cached predictions: all, the long unused, or the least recently used.

    Parameters
    ----------
    folder : str or path, optional
        The cache. By default the default folder. Other files in it stay.
    older_than : timedelta, optional
        Remove predictions that were last used longer ago than this.
    max_bytes : int, optional
        Remove the least recently used predictions until at most this size is left.

    Returns
    -------
    int
        Number of bytes freed.

    Examples
    --------
    >>> clean_cache("a folder that does not exist", older_than=timedelta(days=30))
    0
    """
    if older_than is not None and not isinstance(older_than, timedelta):
        raise InvalidInputError(
            "older_than must be a datetime.timedelta, such as timedelta(days=30); received "
            f"{older_than!r}."
        )
    root = cache_folder(folder)
    size = _size(root)
    if older_than is not None:
        oldest = time() - older_than.total_seconds()
        _remove(file.path for file in _all_files(root) if file.last_used < oldest)
    if older_than is None or max_bytes is not None:
        _make_room(root, checked_max_bytes(max_bytes or 0))
    for shelf in _shelves(root):
        remove_abandoned(shelf)
        with suppress(OSError):  # it is not empty
            shelf.rmdir()
    return size - _size(root)


def checked_max_bytes(max_bytes: int) -> int:
    """Check that a limit is a whole number of bytes."""
    whole = isinstance(max_bytes, int | np.integer) and not isinstance(max_bytes, bool)
    if not whole or max_bytes < 0:
        raise InvalidInputError(
            f"max_bytes must be a whole number of bytes, zero or more; received {max_bytes!r}. "
            "For 5 GB write 5 * 10**9."
        )
    return int(max_bytes)


class Shelf:
    """The cached predictions of one candidate for one task.

    Parameters
    ----------
    root : folder of the cache.
    name : 32 hexadecimal characters, the fingerprint of candidate and task.
    fields : description of the candidate, stored in every file for `cache_info`.
    max_bytes : limit for the whole cache.
    """

    def __init__(self, root: Path, name: str, fields: Mapping[str, str], max_bytes: int) -> None:
        self.root, self.folder, self.name = root, root / name, name
        self.fields, self.max_bytes = dict(fields), max_bytes

    def read(self, keys: Keys) -> Hits:
        """Find rows by their keys (n, 2), which all differ."""
        hits: list[Hits] = []
        remaining = np.arange(len(keys))
        for file in sorted(_files(self.folder), key=lambda file: -file.last_used):
            hit = self._read_file(file.path, partial(CachedRows.find, keys=keys[remaining]))
            if hit is None or not len(hit.index):
                continue
            if hits and hit.predictions.shape[1:] != hits[0].predictions.shape[1:]:
                logger.warning("%s is not used: it has another number of outputs.", file.path)
                continue
            with suppress(OSError):  # another process may have removed it
                os.utime(file.path)  # used now
            hits.append(Hits(remaining[hit.index], hit.predictions))
            remaining = np.delete(remaining, hit.index)
        if not hits:
            return Hits(np.empty(0, dtype=np.intp), np.empty(0))
        return Hits(
            np.concatenate([hit.index for hit in hits]),
            np.concatenate([hit.predictions for hit in hits]),
        )

    def output_names(self) -> list[str] | None:
        """Names of several outputs, in the order of their columns; None if they have no names."""
        for file in _files(self.folder):
            fields = description(file.path) or {}
            if fields.get("outputs") == "":
                return None
            with suppress(ValueError, KeyError, TypeError):  # damaged, or without names
                return [str(name) for name in json.loads(fields["output_names"])]
        return None

    def note_output_names(self, names: Sequence[str] | None) -> None:
        """Write these names into all further files."""
        self.fields.pop("output_names", None)
        if names is not None:
            self.fields["output_names"] = json.dumps(list(names))

    def clear(self) -> None:
        """Remove all files."""
        _remove(file.path for file in _files(self.folder))

    def write(self, keys: Keys, predictions: Array) -> None:
        """Write predictions (n,) or (n, K) of rows by their keys (n, 2).

        If the disk cannot be written, a warning is logged and the predictions are not lost.
        """
        try:
            small = self._small_files(predictions.shape[1:])
            rows = CachedRows.of(
                np.concatenate([keys, *(rows.keys for rows in small.values())]),
                np.concatenate([predictions, *(rows.predictions for rows in small.values())]),
            )
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / f"{uuid4().hex}.arrow") as path, open(path, "wb") as file:
                rows.write(file, self.fields | {"shelf": self.name})
            _remove(small)
            _make_room(self.root, self.max_bytes)
        except OSError as error:
            logger.warning("Predictions could not be cached in %s: %s", self.folder, error)

    def _small_files(self, outputs: tuple[int, ...]) -> dict[Path, CachedRows]:
        """Files to merge with the next one, if there are many."""
        paths = [file.path for file in _files(self.folder) if file.size < SMALL_BYTES]
        if len(paths) < SMALL_FILES:
            return {}
        rows = {path: self._read_file(path, CachedRows.checked) for path in paths}
        return {p: r for p, r in rows.items() if r and r.predictions.shape[1:] == outputs}

    def _read_file(self, path: Path, read: Callable[[CachedRows], Result]) -> Result | None:
        """Read from a file; None if it does not exist or cannot be read.

        A damaged file is removed. After any other failure the file stays.
        """
        try:
            with _reading(path, self.name) as rows:
                return read(rows)
        except FileNotFoundError:
            return None
        except DamagedFileError as error:
            logger.warning(
                "The cached predictions in %s are damaged (%s). The file is removed, and its rows "
                "are predicted again.",
                path,
                error,
            )
            _remove([path])
        except (OSError, MemoryError, ForeignFileError) as error:
            logger.warning(
                "The cached predictions in %s cannot be used now (%s). The file stays, and its "
                "rows are predicted again.",
                path,
                str(error) or type(error).__name__,
            )
        return None


# The files of a cache.


@dataclass(frozen=True)
class _File:
    path: Path
    size: int
    last_used: float


def _shelves(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if _SHELF.fullmatch(path.name) and path.is_dir()]


def _files(shelf: Path) -> Iterator[_File]:
    """List the files of a shelf, without those that another process removes meanwhile."""
    with suppress(OSError), os.scandir(shelf) as entries:
        for entry in entries:
            with suppress(OSError):  # one unreadable entry must not hide the others
                if _FILE.fullmatch(entry.name):
                    state = entry.stat()
                    yield _File(Path(entry.path), state.st_size, state.st_mtime)


def _all_files(root: Path) -> list[_File]:
    return [file for shelf in _shelves(root) for file in _files(shelf)]


def _size(root: Path) -> int:
    return sum(file.size for file in _all_files(root))


def _make_room(root: Path, max_bytes: int) -> None:
    """Remove the least recently used files of a cache that is too large."""
    files = sorted(_all_files(root), key=lambda file: -file.last_used)
    sizes = np.cumsum([file.size for file in files])
    n_kept = int(np.searchsorted(sizes, max_bytes, side="right"))
    if n_kept == 0 and files and max_bytes:
        logger.warning(
            "The predictions last cached take %d bytes and max_bytes is %d: none are kept.",
            files[0].size,
            max_bytes,
        )
    _remove(file.path for file in files[n_kept:])


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # another process has removed it, or has it open
            path.unlink()


# One file, in Arrow's file format.


class DamagedFileError(Exception):
    """A file was changed after it was written."""


class ForeignFileError(Exception):
    """A file may be intact, but belongs to another version, program or candidate."""


@dataclass(frozen=True)
class Hits:
    """Cached rows: their index (m,) among the requested keys, and predictions (m,) or (m, K)."""

    index: Integers
    predictions: Array


@dataclass(frozen=True)
class CachedRows:
    """Keys in ascending order, as halves (n,) and (n,); predictions (n,) or (n, K); checks (n,)."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    checks: NDArray[np.uint64]
    predictions: Array

    @classmethod
    def of(cls, keys: Keys, predictions: Array) -> CachedRows:
        """Sort rows by their keys (n, 2), each key once."""
        order, new = sorted_keys(keys)
        order = order[new]
        keys, predictions = keys[order], predictions[order]
        high, low = keys.T.copy()
        return cls(high, low, _checks(keys, predictions), predictions)

    @property
    def keys(self) -> Keys:
        """The keys in one array: (n, 2)."""
        return np.column_stack([self.high, self.low])

    def find(self, keys: Keys) -> Hits:
        """Return a copy of the rows with these keys (m, 2), after checking it."""
        row = np.searchsorted(self.high, keys[:, 0])
        row[row == len(self.high)] = 0
        index = np.flatnonzero((self.high[row] == keys[:, 0]) & (self.low[row] == keys[:, 1]))
        predictions = self.predictions[row[index]]
        if (_checks(keys[index], predictions) != self.checks[row[index]]).any():
            raise DamagedFileError("a checksum does not match")
        return Hits(index, predictions)

    def checked(self) -> CachedRows:
        """Return a copy of all rows, after checking it."""
        rows = CachedRows.of(self.keys, self.predictions)
        if not np.array_equal(rows.checks, self.checks):
            raise DamagedFileError("a checksum does not match")
        return rows

    def write(self, file: BinaryIO, fields: Mapping[str, str]) -> None:
        """Write all rows, with a description, into an open file."""
        arrow = optional("pyarrow", extra="cache")
        n, flat = len(self.high), self.predictions.reshape(-1)
        batch = arrow.RecordBatch.from_pydict(
            {
                "key_high": arrow.array(self.high),
                "key_low": arrow.array(self.low),
                "check": arrow.array(self.checks),
                "prediction": arrow.FixedSizeListArray.from_arrays(flat, len(flat) // n),
            }
        )
        outputs = ",".join(map(str, self.predictions.shape[1:]))
        metadata = {**fields, "schema": SCHEMA, "rows": str(n), "outputs": outputs}
        schema = batch.schema.with_metadata(metadata)
        with optional("pyarrow.ipc", extra="cache").new_file(file, schema) as writer:
            writer.write_batch(batch)


def description(path: Path) -> dict[str, str] | None:
    """Return the description in a file; None if it cannot be read."""
    arrow = optional("pyarrow", extra="cache")
    try:
        with arrow.memory_map(str(path)) as source:
            return _opened(source)[1]
    except (OSError, ForeignFileError, arrow.ArrowException, ValueError):
        return None


def sorted_keys(keys: Keys) -> tuple[Integers, RowMask]:
    """Return the order (n,) that sorts keys (n, 2), and a mask (n,) of the first of equal keys.

    >>> order, new = sorted_keys(np.array([[2, 1], [1, 5], [2, 1]], dtype=np.uint64))
    >>> order.tolist(), new.tolist()
    ([1, 0, 2], [True, True, False])
    """
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, new


@contextmanager
def _reading(path: Path, shelf: str) -> Iterator[CachedRows]:
    """Open a file of a shelf.

    Raises
    ------
    DamagedFileError : the file is damaged.
    ForeignFileError : another version, or another candidate, wrote the file.
    OSError, MemoryError : the file cannot be read now; it may be intact.
    """
    arrow = optional("pyarrow", extra="cache")
    with arrow.memory_map(str(path)) as source:
        try:
            yield _rows(source, shelf)
        except (MemoryError, arrow.ArrowCancelled):
            raise
        except OSError as error:
            if error.errno is not None:
                raise  # the system failed; Arrow's errors about the content have no number
            raise DamagedFileError(str(error)) from error
        except (arrow.ArrowException, ValueError, KeyError, TypeError, IndexError) as error:
            raise DamagedFileError(str(error)) from error


def _rows(source: NativeFile, shelf: str) -> CachedRows:
    """Map the rows of an open file into memory."""
    reader, fields = _opened(source)
    if fields["shelf"] != shelf:
        raise ForeignFileError("it was written for another candidate")
    batch = reader.get_batch(0)
    batch.validate()
    n = int(fields["rows"])
    shape = (n, *[int(length) for length in fields["outputs"].split(",") if length])
    columns = [*batch.columns[:3], batch.column("prediction").values]
    high, low, checks, flat = (column.to_numpy(zero_copy_only=True) for column in columns)
    dtypes = [column.dtype for column in (high, low, checks, flat)]
    lengths = {len(high), len(low), len(checks)}
    if dtypes != [np.uint64] * 3 + [np.float64] or lengths != {n} or n == 0:
        raise DamagedFileError(f"its columns are not those of {n} rows")
    return CachedRows(high, low, checks, flat.reshape(shape))


def _opened(source: NativeFile) -> tuple[RecordBatchFileReader, dict[str, str]]:
    reader = optional("pyarrow.ipc", extra="cache").open_file(source)
    metadata: Mapping[bytes, bytes] = reader.schema.metadata or {}
    fields = {key.decode(): value.decode() for key, value in metadata.items()}
    if fields.get("schema") != SCHEMA:
        raise ForeignFileError("it was written by another version, or by another program")
    return reader, fields


def _checks(keys: Keys, predictions: Array) -> NDArray[np.uint64]:
    """Checksums of rows: (n,)."""
    if not len(keys):
        return np.empty(0, dtype=np.uint64)
    return hash_words([as_words(keys), as_words(predictions)], "cached row")[:, 0]
