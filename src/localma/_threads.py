"""Calls in daemon threads, which never hold up the end of the process.

Python waits at its end for the threads of `concurrent.futures`, and a server may never answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def start_daemon(work: Callable[[], object]) -> Thread:
    """Start a call in a daemon thread, in a copy of the context of this thread.

    >>> start_daemon(lambda: None).join()
    """
    thread = Thread(target=copy_context().run, args=(work,), daemon=True)
    thread.start()
    return thread


def map_in_daemons(
    function: Callable[[Item], Result], items: Sequence[Item], size: int, stopped: Event
) -> Iterator[Result]:
    """Yield ``function(item)`` of each item in order; several threads compute them.

    If an item fails, or no more results are wanted, `stopped` is set, items that have not started
    are dropped, and running ones are waited for. If the caller is interrupted (Ctrl-C, SIGTERM),
    nothing is waited for.

    >>> list(map_in_daemons(abs, [-1, 2], size=2, stopped=Event()))
    [1, 2]
    """
    results: list[Future[Result]] = [Future() for _ in items]
    waiting = deque(zip(items, results, strict=True))

    def work() -> None:
        while waiting:
            try:
                item, result = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                result.set_result(function(item))
            except BaseException as error:
                result.set_exception(error)

    threads = [start_daemon(work) for _ in range(min(size, len(items)))]
    try:
        for result in results:
            yield result.result()
    except (KeyboardInterrupt, SystemExit):
        threads.clear()
        raise
    finally:
        stopped.set()
        waiting.clear()
        for thread in threads:
            thread.join()
