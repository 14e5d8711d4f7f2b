"""Progress of long work: a bar on a terminal, or lines in the log.

Bars need the package rich and a terminal. They appear after one second, so that quick calls stay
silent. The argument `progress` or the environment variable LOCALMA_PROGRESS (0 or 1) turns them
off, or on even without a terminal.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from importlib.util import find_spec
from logging import getLogger
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.formatting import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SWITCH = "LOCALMA_PROGRESS"
QUIET_SECONDS = 1.0
"""Work that takes less time shows no progress."""
LOG_SECONDS = 10.0
"""Time between two log messages about the same work."""

logger = getLogger("localma")
Item = TypeVar("Item")


def track(
    iterable: Iterable[Item],
    description: str,
    total: int | None = None,
    *,
    progress: bool | None = None,
) -> Iterator[Item]:
    """Iterate and show the progress.

    Parameters
    ----------
    iterable : iterable
        The items.
    description : str
        The text next to the bar.
    total : int, optional
        The number of items. By default the length of the iterable, if it has one.
    progress : bool, optional
        True draws a bar at once, False shows nothing. By default a bar is drawn if the process has
        a terminal, and messages go to the log "localma" otherwise.

    Yields
    ------
    item
        The items, one by one.

    Examples
    --------
    >>> [2 * number for number in track([1, 2, 3], "doubling", progress=False)]
    [2, 4, 6]
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with bar(description, total, progress=progress) as advance:
        for item in iterable:
            yield item
            advance(1)


@contextmanager
def bar(
    description: str, total: int | None = None, *, progress: bool | None = None
) -> Iterator[Callable[[int], None]]:
    """Show the progress of work in steps of unequal size.

    Parameters
    ----------
    description : str
        The text next to the bar.
    total : int, optional
        The sum of all steps, if it is known.
    progress : bool, optional
        As in `track`.

    Yields
    ------
    advance : callable
        Call it with the size of each step.

    Examples
    --------
    >>> with bar("reading", total=5, progress=False) as advance:
    ...     advance(3)
    ...     advance(2)
    """
    if progress is None:
        progress = _switch()
    if progress is False:
        yield lambda step: None
        return
    work = _Work(description, total, visible=bool(progress) or _has_viewer())
    try:
        if progress:
            work.draw()
        yield work.advance
        work.finish()
    finally:
        work.close()


def _switch() -> bool | None:
    """Read the environment variable; None if it is not set."""
    value = os.environ.get(SWITCH, "")
    if value not in ("", "0", "1"):
        raise InvalidInputError(
            f"The environment variable {SWITCH} must be 0 (no progress bars) or 1 (always); "
            f"received {value!r}."
        )
    return {"0": False, "1": True}.get(value)


def _has_viewer() -> bool:
    """Whether this process may draw on a terminal, and can."""
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and "PYTEST_CURRENT_TEST" not in os.environ
        and multiprocessing.parent_process() is None
        and find_spec("rich") is not None
    )


class _Work:
    """One piece of work, which is drawn after a second, or logged."""

    def __init__(self, description: str, total: int | None, *, visible: bool) -> None:
        self.description, self.total, self.visible = description, total, visible
        self.done = 0
        self.started = self.logged = monotonic()
        self.task: TaskID | None = None

    def draw(self, done: int = 0) -> None:
        self.task = _display.open(self.description, self.total)
        _display.advance(self.task, done)

    def advance(self, step: int) -> None:
        self.done += step
        now = monotonic()
        if not self.visible:
            if now - self.logged >= LOG_SECONDS:
                self._log(now)
        elif self.task is not None:
            _display.advance(self.task, step)
        elif now - self.started >= QUIET_SECONDS:
            self.draw(self.done)

    def finish(self) -> None:
        now = monotonic()
        if not self.visible and now - self.started >= QUIET_SECONDS:
            self._log(now)

    def close(self) -> None:
        if self.task is not None:
            _display.close(self.task)
            self.task = None

    def _log(self, now: float) -> None:
        self.logged = now
        done = str(self.done)
        if self.total is not None:
            done += f" of {self.total}"
        logger.info("%s: %s in %.1f s", self.description, done, now - self.started)


class _Display:
    """The place on the terminal where all bars of the process are drawn."""

    lock = Lock()
    open_tasks = 0
    rich: Progress | None = None

    def open(self, description: str, total: int | None) -> TaskID:
        with self.lock:
            if self.rich is None:
                self.rich = _rich_progress()
                self.rich.start()
            self.open_tasks += 1
            # Names of candidates may contain square brackets, which are markup in rich.
            text: str = optional("rich.markup", extra="cli").escape(printable(description))
            return self.rich.add_task(text, total=total)

    def advance(self, task: TaskID, step: int) -> None:
        with self.lock:
            if self.rich is not None:
                self.rich.update(task, advance=step)

    def close(self, task: TaskID) -> None:
        with self.lock:
            self.open_tasks -= 1
            if self.rich is None:
                return
            if self.open_tasks:  # work inside other work leaves no line behind
                self.rich.remove_task(task)
                return
            self.rich.stop()
            self.rich = None


def _rich_progress() -> Progress:
    rich = optional("rich.progress", extra="cli")
    columns = [
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    ]
    console = optional("rich.console", extra="cli").Console(stderr=True)
    progress: Progress = rich.Progress(*columns, console=console)
    return progress


_display = _Display()
