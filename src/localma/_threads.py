"""Pools of threads that an interruption does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(
    size: int, initializer: Callable[[], object] | None = None
) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads that is empty when the block ends.

    If the block is interrupted (Ctrl-C, SIGTERM), it ends at once: tasks that have not begun are
    dropped, and those that run finish unheeded.

    >>> with thread_pool(2) as pool:
    ...     list(pool.map(abs, [-1, 2]))
    [1, 2]
    """
    pool = ThreadPoolExecutor(size, initializer=initializer)
    try:
        yield pool
    except (KeyboardInterrupt, SystemExit):
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()
