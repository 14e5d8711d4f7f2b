"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def new_file_mode() -> int:
    """The permissions that a new file gets here."""
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def write_whole(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename: a reader sees the old file or the new one."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _refusal(error, path) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, new_file_mode())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _refusal(error: OSError, path: Path) -> OSError:
    """The same kind of error, about the file that the user knows."""
    why = error.strerror
    if not path.parent.is_dir():
        why = f"There is no folder {str(path.parent)!r}; make it first, or write elsewhere"
    return type(error)(error.errno, why, str(path))
