"""Files that are replaced as a whole, and synced to the disk."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from secrets import token_hex

if sys.platform != "win32":
    import fcntl

TEMPORARY = re.compile(r"\.localma-[0-9a-f]{16}\.part")
"""Names of the files that are not complete yet."""


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old content or the new one.

    Parameters
    ----------
    path : the file. A symbolic link is followed. An existing file keeps its permissions.
    content : what the file is to hold.
    """
    with replacing(path) as temporary, _errors_naming(path):
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file that takes the place of `path` if the block ends without an error.

    The temporary file is in the same folder. It is removed after an error; the next process that
    writes to the folder removes it after a kill.
    """
    target = _target(path)
    with _errors_naming(path):
        _remove_abandoned(str(target.parent))
        temporary, lock = _create(target)
    try:
        yield temporary
        with _errors_naming(path):
            _sync(temporary)
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode) & 0o777)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)
    _sync_folder(target.parent)


def _target(path: Path) -> Path:
    """The file that a path stands for: where links lead."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, "The symbolic link leads to itself", str(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Only a regular file can be replaced", str(path))
    return target


def _create(target: Path) -> tuple[Path, int | None]:
    """Make a file beside the target that no process takes for abandoned; and the lock on it."""
    # The kernel gives a new file the usual permissions. One that is to replace a private file
    # must not be readable for a moment.
    mode = 0o600 if target.exists() else 0o666
    while True:
        temporary = target.parent / f".localma-{token_hex(8)}.part"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        if sys.platform == "win32":  # where an open file cannot be renamed
            os.close(descriptor)
            return temporary, None
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, descriptor
        os.close(descriptor)  # it was removed before it was locked


@lru_cache(maxsize=1024)
def _remove_abandoned(folder: str) -> None:
    """Remove what killed processes have left in a folder; once per folder and process.

    A process at work holds a lock on its file, and the lock ends with the process.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.path for entry in entries if TEMPORARY.fullmatch(entry.name)]
        for name in names:
            with suppress(OSError):
                _remove_if_unlocked(name)


def _remove_if_unlocked(name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name)
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure."""
    with suppress(OSError):  # the file is there; not every system can sync a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _errors_naming(path: Path) -> Iterator[None]:
    """Make errors speak of the file that the user knows, not of the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = error.strerror
        if not path.parent.is_dir():
            reason = f"There is no folder {str(path.parent)!r}; make it first, or write elsewhere"
        raise type(error)(error.errno, reason, str(path)) from error
