"""Independent parts of a fit, such as its folds: here, or where a cluster runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

Tasks: TypeAlias = "Sequence[tuple[Any, ...]]"


class Runner(Protocol):
    """Calls ``function(shared, *task)`` for each task; the results in the order of the tasks."""

    def __call__(
        self, function: Callable[..., Any], shared: object, tasks: Tasks, /
    ) -> list[Any]: ...


_elsewhere: ContextVar[Runner | None] = ContextVar("_elsewhere", default=None)


@contextmanager
def sent_to(runner: Runner) -> Iterator[None]:
    """Send the parts of all fits in this block to a runner.

    >>> def twice(function, shared, tasks):
    ...     return [2 * function(shared, *task) for task in tasks]
    >>> with sent_to(twice):
    ...     run_parts(pow, 10, [(2,), (3,)])
    [200, 2000]
    """
    token = _elsewhere.set(runner)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def runner() -> Runner | None:
    """Return where parts of fits are sent; None if they stay in this process."""
    return _elsewhere.get()


def run_parts(function: Callable[..., Any], shared: object, tasks: Tasks) -> list[Any]:
    """Call ``function(shared, *task)`` for each task, one by one if nothing else is chosen.

    >>> run_parts(pow, 10, [(2,), (3,)])
    [100, 1000]
    """
    sent = runner()
    if sent is not None:
        return sent(function, shared, tasks)
    return [function(shared, *task) for task in tasks]
