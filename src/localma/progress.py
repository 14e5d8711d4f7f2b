"""How far long work has come: a bar where somebody watches, a line in the log elsewhere.

Bars need the package rich and a terminal. They appear only once the work has lasted a second, so
that quick calls stay silent. `progress=` or the environment variable LOCALMA_PROGRESS (0 or 1)
switches them off, or on whatever the terminal.
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
from typing import Any, TypeVar

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.wording import printable

SWITCH = "LOCALMA_PROGRESS"
QUIET_SECONDS = 1.0
"""Work that is done sooner shows nothing."""
LOG_SECONDS = 10.0
"""Time between two lines in the log about the same work."""

logger = getLogger("localma")
Advance = Callable[[int], None]
Item = TypeVar("Item")


def track(
    iterable: Iterable[Item],
    description: str,
    total: int | None = None,
    *,
    progress: bool | None = None,
) -> Iterator[Item]:
    """Go through an iterable and show how far one has come.

    Parameters
    ----------
    iterable : what to go through.
    description : the words beside the bar.
    total : number of items; its length if None, and unknown if it has none.
    progress : True draws a bar at once, False shows nothing at all; None draws one if the process
        has a terminal, and writes to the log "localma" otherwise.

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
) -> Iterator[Advance]:
    """Show work that comes in steps of unequal size; call what it gives with each step's size.

    >>> with bar("reading", total=5, progress=False) as advance:
    ...     advance(3)
    ...     advance(2)
    """
    wanted = _switched() if progress is None else progress
    if wanted is False:
        yield _ignore
        return
    shown = _Bar(description, total, at_once=bool(wanted), drawn=bool(wanted) or _is_watched())
    try:
        yield shown.advance
        shown.finish()
    finally:
        shown.close()


def _ignore(step: int) -> None:
    """Nobody wants to know."""


def _switched() -> bool | None:
    """What the environment asks for; None if nothing."""
    value = os.environ.get(SWITCH, "")
    if value not in ("", "0", "1"):
        raise InvalidInputError(
            f"The environment variable {SWITCH} must be 0 (no progress bars) or 1 (always); "
            f"received {value!r}."
        )
    return bool(int(value)) if value else None


def _is_watched() -> bool:
    """Whether this is the one process that may draw on a terminal, and has what it takes."""
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and "PYTEST_CURRENT_TEST" not in os.environ
        and multiprocessing.parent_process() is None
        and find_spec("rich") is not None
    )


class _Bar:
    """The state of one piece of work: drawn from its second second on, or logged."""

    def __init__(self, description: str, total: int | None, *, at_once: bool, drawn: bool) -> None:
        self.description, self.total, self.drawn = description, total, drawn
        self.done = 0
        self.started = self.logged = monotonic()
        self.task = _display.open(description, total) if at_once else None

    def advance(self, step: int) -> None:
        self.done += step
        now = monotonic()
        if not self.drawn:
            if now - self.logged >= LOG_SECONDS:
                self._log(now)
        elif self.task is not None:
            _display.advance(self.task, step)
        elif now - self.started >= QUIET_SECONDS:
            self.task = _display.open(self.description, self.total)
            _display.advance(self.task, self.done)

    def finish(self) -> None:
        now = monotonic()
        if not self.drawn and now - self.started >= QUIET_SECONDS:
            self._log(now)

    def close(self) -> None:
        if self.task is not None:
            _display.close(self.task)
            self.task = None

    def _log(self, now: float) -> None:
        self.logged = now
        of = "" if self.total is None else f" of {self.total}"
        logger.info("%s: %d%s in %.1f s", self.description, self.done, of, now - self.started)


class _Display:
    """The one place on the terminal where all bars of the process are drawn."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.open_tasks = 0
        self.rich: Any = None

    def open(self, description: str, total: int | None) -> int:
        with self.lock:
            if self.rich is None:
                self.rich = _rich_progress()
                self.rich.start()
            self.open_tasks += 1
            # Names of candidates may hold square brackets, which are markup in rich.
            words = optional("rich.markup", extra="cli").escape(printable(description))
            task: int = self.rich.add_task(words, total=total)
            return task

    def advance(self, task: int, step: int) -> None:
        with self.lock:
            self.rich.update(task, advance=step)

    def close(self, task: int) -> None:
        with self.lock:
            self.open_tasks -= 1
            if self.open_tasks:  # what is done inside other work leaves no line behind
                self.rich.remove_task(task)
                return
            self.rich.stop()
            self.rich = None


def _rich_progress() -> Any:
    parts = optional("rich.progress", extra="cli")
    console = optional("rich.console", extra="cli").Console(stderr=True)
    return parts.Progress(
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeElapsedColumn(),
        parts.TimeRemainingColumn(),
        console=console,
    )


_display = _Display()
