"""Predictions on disk, by the key of the row: Arrow files that are written whole and never changed.

A cache is a folder with a shelf, a folder of its own, for each candidate and task; a shelf holds
files of rows in the order of their keys. Nothing is locked: every file has a name of its own and
appears by a rename, so that two processes may write at once, and one that is killed leaves at most
a file that nobody reads. Every row carries a checksum of its key and prediction.
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
from typing import Any, BinaryIO, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.storage.row_keys import Keys, as_words, hash_words

logger = getLogger("localma")
Array = NDArray[np.floating]
Result = TypeVar("Result")

FOLDER = "LOCALMA_CACHE"
"""The environment variable that says where predictions are cached by default."""
MAX_BYTES = 2 * 2**30
SMALL_BYTES = 8 * 2**20
"""Smaller files are merged, so that predicting row by row does not leave a file per row."""
SMALL_FILES = 16
UNFINISHED_SECONDS = 3600.0
"""A file that has been unfinished for so long belongs to a process that was killed."""

_SHELF = re.compile(r"[0-9a-f]{32}")
_DONE = re.compile(r"[0-9a-f]{32}\.arrow")
_UNFINISHED = re.compile(r"[0-9a-f]{32}\.part")


@dataclass(frozen=True)
class CacheEntry:
    """What a cache holds of one candidate and task."""

    candidate: str
    task: str
    rows: int
    bytes: int
    last_used: datetime
    folder: Path


def default_folder() -> Path:
    """Where predictions are cached if nobody says where: $LOCALMA_CACHE or the user's cache."""
    stated = os.environ.get(FOLDER)
    if stated:
        return Path(stated)
    users = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(users) if users else Path.home() / ".cache") / "localma"


def cache_info(folder: str | os.PathLike[str] | None = None) -> list[CacheEntry]:
    """What a cache holds: one entry per candidate and task, the last used first.

    Parameters
    ----------
    folder : the cache; None for the default one.

    Examples
    --------
    >>> cache_info("a folder that is not there")
    []
    """
    entries = []
    for shelf in _shelves(_folder(folder)):
        parts = [(file, description(file.path)) for file in _files(shelf, _DONE)]
        known = [about for _, about in parts if about]
        if known:
            entries.append(
                CacheEntry(
                    candidate=known[0]["candidate"],
                    task=known[0]["task"],
                    rows=sum(int(about["rows"]) for about in known),
                    bytes=sum(file.size for file, _ in parts),
                    last_used=datetime.fromtimestamp(max(f.used for f, _ in parts), UTC),
                    folder=shelf,
                )
            )
    return sorted(entries, key=lambda entry: entry.last_used, reverse=True)


def clean_cache(
    folder: str | os.PathLike[str] | None = None,
    *,
    older_than: timedelta | None = None,
    max_bytes: int | None = None,
) -> int:
    """Remove cached predictions: all, or what was not used for long, or the least recently used.

    Parameters
    ----------
    folder : the cache; None for the default one. Only files that a cache wrote are removed.
    older_than : remove what was last used longer ago than this.
    max_bytes : remove the least recently used until no more is left than this.

    Returns
    -------
    int
        Bytes that were freed.

    Examples
    --------
    >>> clean_cache("a folder that is not there", older_than=timedelta(days=30))
    0
    """
    if older_than is not None and not isinstance(older_than, timedelta):
        raise InvalidInputError(
            "older_than must be a datetime.timedelta, such as timedelta(days=30); received "
            f"{older_than!r}."
        )
    root = _folder(folder)
    before = _size(root)
    if older_than is not None:
        oldest = time() - older_than.total_seconds()
        _remove(file.path for file in _all_files(root) if file.used < oldest)
    if older_than is None or max_bytes is not None:
        make_room(root, checked_max_bytes(0 if max_bytes is None else max_bytes))
    _remove_abandoned(root)
    for shelf in _shelves(root):
        with suppress(OSError):  # it is not empty
            shelf.rmdir()
    return before - _size(root)


def checked_max_bytes(max_bytes: Any) -> int:
    """Refuse a limit that is no number of bytes."""
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
    about : words about the candidate, kept in every file for `cache_info`.
    max_bytes : what the whole cache may hold.
    """

    def __init__(self, root: Path, name: str, about: Mapping[str, str], max_bytes: int) -> None:
        self.root, self.folder, self.name = root, root / name, name
        self.about, self.max_bytes = dict(about), max_bytes

    def read(self, keys: Keys) -> Found:
        """Find rows by their keys (n, 2), each of which is there once."""
        found: list[Found] = []
        left = np.arange(len(keys))
        for file in sorted(_files(self.folder, _DONE), key=lambda file: -file.used):
            part = self._read_file(file.path, partial(CachedRows.find, keys=keys[left]))
            if part is None or not len(part.places):
                continue
            if found and part.predictions.shape[1:] != found[0].predictions.shape[1:]:
                logger.warning("%s is left out: another number of outputs.", file.path)
                continue
            with suppress(OSError):  # another process may have removed it
                os.utime(file.path)  # used now
            found.append(Found(left[part.places], part.predictions))
            left = np.delete(left, part.places)
        if not found:
            return Found(np.empty(0, dtype=np.intp), np.empty(0))
        return Found(
            np.concatenate([part.places for part in found]),
            np.concatenate([part.predictions for part in found]),
        )

    def output_names(self) -> list[str] | None:
        """Names of several outputs, in the order in which they are kept; None if they have none."""
        for file in _files(self.folder, _DONE):
            about = description(file.path) or {}
            if about.get("outputs") == "":
                return None
            with suppress(ValueError, KeyError, TypeError):  # spoilt, or without names
                return [str(name) for name in json.loads(about["output_names"])]
        return None

    def note_output_names(self, names: Sequence[str] | None) -> None:
        """Write these names into the files to come."""
        self.about.pop("output_names", None)
        if names is not None:
            self.about["output_names"] = json.dumps(list(names))

    def clear(self) -> None:
        """Remove all that is here."""
        _remove(file.path for file in _files(self.folder, _DONE))

    def write(self, keys: Keys, predictions: Array) -> None:
        """Keep predictions (n,) or (n, K) of rows by their keys (n, 2).

        Where that cannot be done the log says so: nobody loses predictions for want of disk.
        """
        try:
            small = self._small_files(predictions.shape[1:])
            rows = CachedRows.of(
                np.concatenate([keys, *[rows.keys for _, rows in small]]),
                np.concatenate([predictions, *[rows.predictions for _, rows in small]]),
            )
            self._write_file(rows)
            _remove(file.path for file, _ in small)
            make_room(self.root, self.max_bytes)
        except OSError as error:
            logger.warning("Predictions could not be cached in %s: %s", self.folder, error)

    def _small_files(self, outputs: tuple[int, ...]) -> list[tuple[_File, CachedRows]]:
        """Files to be merged with what is written next, once there are enough of them."""
        files = [file for file in _files(self.folder, _DONE) if file.size < SMALL_BYTES]
        if len(files) < SMALL_FILES:
            return []
        read = [(file, self._read_file(file.path, CachedRows.checked)) for file in files]
        return [(f, rows) for f, rows in read if rows and rows.predictions.shape[1:] == outputs]

    def _read_file(self, path: Path, look: Callable[[CachedRows], Result]) -> Result | None:
        """What `look` finds in a file; None if there is no such file, or it cannot be read.

        A damaged file is removed. Any other trouble may pass, so the file stays.
        """
        try:
            with reading(path, self.name) as rows:
                return look(rows)
        except FileNotFoundError:
            return None
        except SpoiltFileError as error:
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

    def _write_file(self, rows: CachedRows) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f"{uuid4().hex}.part"
        try:
            with open(unfinished, "xb") as file:
                rows.write(file, self.about | {"shelf": self.name})
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, unfinished.with_suffix(".arrow"))
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def make_room(root: Path, max_bytes: int) -> None:
    """Remove the least recently used files of a cache until it holds no more than it may."""
    files = sorted(_all_files(root), key=lambda file: file.used)
    sizes = np.cumsum([file.size for file in reversed(files)])
    kept = int(np.searchsorted(sizes, max_bytes, side="right"))
    if kept == 0 and files and max_bytes:
        logger.warning(
            "The predictions last cached take %d bytes and max_bytes is %d: none are kept.",
            files[-1].size,
            max_bytes,
        )
    _remove(file.path for file in files[: len(files) - kept])
    _remove_abandoned(root)


def _remove_abandoned(root: Path) -> None:
    late = time() - UNFINISHED_SECONDS
    _remove(f.path for shelf in _shelves(root) for f in _files(shelf, _UNFINISHED) if f.used < late)


@dataclass(frozen=True)
class _File:
    path: Path
    size: int
    used: float


def _folder(folder: str | os.PathLike[str] | None) -> Path:
    return default_folder() if folder is None else Path(folder)


def _shelves(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if _SHELF.fullmatch(path.name) and path.is_dir()]


def _files(shelf: Path, pattern: re.Pattern[str]) -> Iterator[_File]:
    """Files of a shelf; those that another process removes meanwhile are not among them."""
    with suppress(OSError), os.scandir(shelf) as entries:
        for entry in entries:
            if not pattern.fullmatch(entry.name):
                continue
            with suppress(OSError):  # one that cannot be looked at does not hide the others
                state = entry.stat()
                yield _File(Path(entry.path), state.st_size, state.st_mtime)


def _all_files(root: Path) -> list[_File]:
    return [file for shelf in _shelves(root) for file in _files(shelf, _DONE)]


def _size(root: Path) -> int:
    both = (_DONE, _UNFINISHED)
    return sum(f.size for shelf in _shelves(root) for kind in both for f in _files(shelf, kind))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # another process has removed it, or has it open
            path.unlink()


# One file: Arrow's file format, mapped into memory, rows in the order of their keys.

SCHEMA = "localma predictions 1"


class SpoiltFileError(Exception):
    """What is in a file is not what was written there: proof that it is damaged."""


class ForeignFileError(Exception):
    """A file that may be in order, and is not for us to read."""


@dataclass(frozen=True)
class Found:
    """Rows that a cache has: places (m,) among the keys asked for, predictions (m,) or (m, K)."""

    places: NDArray[np.intp]
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
        """Rows in the order of their keys (n, 2), each key once."""
        order, new = sorted_keys(keys)
        order = order[new]
        keys, predictions = keys[order], predictions[order]
        high, low = keys.T.copy()
        return cls(high, low, _checks(keys, predictions), predictions)

    @property
    def keys(self) -> Keys:
        """The keys in one piece: (n, 2)."""
        return np.column_stack([self.high, self.low])

    def find(self, keys: Keys) -> Found:
        """The rows with these keys (m, 2), copied out of the file and checked."""
        place = np.searchsorted(self.high, keys[:, 0])
        place[place == len(self.high)] = 0
        hit = (self.high[place] == keys[:, 0]) & (self.low[place] == keys[:, 1])
        here = np.flatnonzero(hit)
        predictions = self.predictions[place[here]]
        _compare(_checks(keys[here], predictions), self.checks[place[here]])
        return Found(here, predictions)

    def checked(self) -> CachedRows:
        """All rows, copied out of the file and checked."""
        predictions = self.predictions.copy()
        _compare(_checks(self.keys, predictions), self.checks)
        return CachedRows(self.high.copy(), self.low.copy(), self.checks.copy(), predictions)

    def write(self, file: BinaryIO, about: Mapping[str, str]) -> None:
        """Write all rows, and words about them, into an open file."""
        arrow = optional("pyarrow", extra="cache")
        n, flat = len(self.high), self.predictions.reshape(-1)
        outputs = ",".join(str(length) for length in self.predictions.shape[1:])
        batch = arrow.RecordBatch.from_pydict(
            {
                "key_high": arrow.array(self.high),
                "key_low": arrow.array(self.low),
                "check": arrow.array(self.checks),
                "prediction": arrow.FixedSizeListArray.from_arrays(flat, len(flat) // n),
            }
        )
        metadata = {**about, "schema": SCHEMA, "rows": str(n), "outputs": outputs}
        schema = batch.schema.with_metadata(metadata)
        with optional("pyarrow.ipc", extra="cache").new_file(file, schema) as writer:
            writer.write_batch(batch)


@contextmanager
def reading(path: Path, shelf: str) -> Iterator[CachedRows]:
    """Open a file of a shelf.

    Raises
    ------
    SpoiltFileError : the file is damaged.
    ForeignFileError : another version, or another candidate, wrote the file.
    OSError, MemoryError : the file cannot be read now, which says nothing about its content.
    """
    arrow = optional("pyarrow", extra="cache")
    with arrow.memory_map(str(path)) as source:
        try:
            yield _rows(source, shelf)
        except (MemoryError, arrow.ArrowCancelled):
            raise
        except OSError as error:
            if error.errno is not None:
                raise  # the system failed; an error of Arrow about the content has no number
            raise SpoiltFileError(str(error)) from error
        except (arrow.ArrowException, ValueError, KeyError, TypeError, IndexError) as error:
            raise SpoiltFileError(str(error)) from error


def description(path: Path) -> dict[str, str] | None:
    """What a file says about itself; None if it cannot be read."""
    arrow = optional("pyarrow", extra="cache")
    try:
        with arrow.memory_map(str(path)) as source:
            return _about(optional("pyarrow.ipc", extra="cache").open_file(source))
    except (OSError, ForeignFileError, arrow.ArrowException, ValueError):
        return None


def sorted_keys(keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The order (n,) that sorts keys (n, 2), and which of the sorted ones (n,) are new.

    >>> order, new = sorted_keys(np.array([[2, 1], [1, 5], [2, 1]], dtype=np.uint64))
    >>> order.tolist(), new.tolist()
    ([1, 0, 2], [True, True, False])
    """
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    ordered = keys[order]
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, new


def _rows(source: Any, shelf: str) -> CachedRows:
    """The rows of an open file, which stay in the file until they are looked at."""
    reader = optional("pyarrow.ipc", extra="cache").open_file(source)
    about = _about(reader)
    if about["shelf"] != shelf:
        raise ForeignFileError("it was written for another candidate")
    batch = reader.get_batch(0)
    batch.validate()
    n = int(about["rows"])
    shape = (n, *[int(length) for length in about["outputs"].split(",") if length])
    high, low, checks, flat = (
        column.to_numpy(zero_copy_only=True)
        for column in (*batch.columns[:3], batch.column("prediction").values)
    )
    kinds = [column.dtype for column in (high, low, checks, flat)]
    if kinds != [np.uint64] * 3 + [np.float64] or not len(high) == len(low) == len(checks) == n > 0:
        raise SpoiltFileError(f"its columns are not those of {n} rows")
    return CachedRows(high, low, checks, flat.reshape(shape))


def _about(reader: Any) -> dict[str, str]:
    metadata: Mapping[bytes, bytes] = reader.schema.metadata or {}
    about = {key.decode(): value.decode() for key, value in metadata.items()}
    if about.get("schema") != SCHEMA:
        raise ForeignFileError("it was written by another version, or by another program")
    return about


def _checks(keys: Keys, predictions: Array) -> NDArray[np.uint64]:
    """Checksums of rows: (n,)."""
    if not len(keys):
        return np.empty(0, dtype=np.uint64)
    return hash_words([as_words(keys), as_words(predictions)], "cached row")[:, 0]


def _compare(found: NDArray[np.uint64], written: NDArray[np.uint64]) -> None:
    if (found != written).any():
        raise SpoiltFileError("a checksum does not match")
