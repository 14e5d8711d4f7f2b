"""Thread pools that do not delay an interruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(
    size: int, initializer: Callable[[], object] | None = None
) -> Iterator[ThreadPoolExecutor]:
    """Open a thread pool that has finished all tasks when the block ends.

    If the block is interrupted (Ctrl-C, SIGTERM), it ends immediately. Tasks that have not started
    are dropped, and running tasks finish in the background.

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
