"""The state of a file, by which a second look tells whether it may have changed."""

from __future__ import annotations

from pathlib import Path
from time import time_ns

RECENT_NANOSECONDS = 2 * 10**9
"""The coarsest clock of a common file system ticks every two seconds."""


def file_state(path: Path) -> tuple[int, ...]:
    """Numbers that differ if the content of a file may have changed.

    Anyone can set the size and time of a file. Nobody can set its inode and the time of its last
    change of any kind. That clock ticks slowly, so a file changed just now counts as another one
    at every look.
    """
    state = path.stat()
    numbers = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    now = time_ns()
    return (*numbers, now) if now - state.st_ctime_ns < RECENT_NANOSECONDS else numbers
