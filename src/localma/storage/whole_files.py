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
"""Names of files that are not complete yet."""


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old content or the new one.

    Parameters
    ----------
    path : the file. A symbolic link is followed. An existing file keeps its permissions.
    content : the new content.
    """
    with replacing(path) as temporary, _errors_naming(path):
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` if the block ends without an error.

    The temporary file is in the same folder. It is removed after an error. If the process is
    killed, the next process that writes to the folder removes it.
    """
    target = _target(path)
    with _errors_naming(path):
        _remove_abandoned_once(target.parent)
        temporary, lock = _create(target)
    try:
        yield temporary
        with _errors_naming(path):
            _sync(temporary, os.O_RDWR)
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode) & 0o777)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)
    with suppress(OSError):  # the file is complete; not every system can sync a folder
        _sync(target.parent, os.O_RDONLY)  # so that the rename survives a power failure


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder.

    A process at work holds a lock on its file, and the lock ends with the process.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(folder) as entries:
        paths = [entry.path for entry in entries if TEMPORARY.fullmatch(entry.name)]
        for path in paths:
            with suppress(OSError):
                _remove_if_unlocked(path)


_remove_abandoned_once = lru_cache(maxsize=1024)(remove_abandoned)


def _remove_if_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)


def _target(path: Path) -> Path:
    """Return the file that a path leads to, through all symbolic links."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, "The symbolic link leads to itself", str(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Only a regular file can be replaced", str(path))
    return target


def _create(target: Path) -> tuple[Path, int | None]:
    """Create a temporary file next to the target, and the lock on it."""
    mode = 0o666  # the kernel applies the usual permissions to a new file
    if target.exists():
        mode = 0o600  # the target may be private, so its replacement must never be readable
    while True:
        temporary = target.parent / f".localma-{token_hex(8)}.part"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        if sys.platform == "win32":  # which cannot rename an open file
            os.close(descriptor)
            return temporary, None
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, descriptor
        os.close(descriptor)  # it was removed before it was locked


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _errors_naming(path: Path) -> Iterator[None]:
    """Name the user's file in errors, not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = error.strerror
        if not path.parent.is_dir():
            reason = f"There is no folder {str(path.parent)!r}; make it first, or write elsewhere"
        raise type(error)(error.errno, reason, str(path)) from error
