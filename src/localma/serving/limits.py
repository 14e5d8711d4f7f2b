"""Limits of a service: how many requests wait, how many run, and for how long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import TypeVar

from localma._threads import start_daemon
from localma.serving.protocol import RequestError

Result = TypeVar("Result")
Work = Callable[[], object]

RETRY_AFTER = 1
"""Seconds after which a client that was refused may try again."""


class BusyError(RequestError):
    """The service has no capacity for a request now; `status` is 429 or 503."""


class Admission:
    """Lets some requests run and some wait, and refuses the others. For one event loop.

    Parameters
    ----------
    running : int
        Requests that run at once.
    waiting : int
        Requests that wait at once.

    Examples
    --------
    >>> async def two_at_once():
    ...     admission = Admission(running=1, waiting=0)
    ...     async with admission.turn(1.0):
    ...         async with admission.turn(1.0):
    ...             pass
    >>> asyncio.run(two_at_once())
    Traceback (most recent call last):
    ...
    localma.serving.limits.BusyError: The service is busy: 1 requests run and 0 wait. Try again later.
    """  # noqa: E501

    def __init__(self, running: int, waiting: int) -> None:
        self.free, self.limit, self.most_waiting = running, running, waiting
        self.line: deque[asyncio.Future[None]] = deque()

    @property
    def under_way(self) -> int:
        """Requests that run now."""
        return self.limit - self.free

    @asynccontextmanager
    async def turn(self, seconds: float) -> AsyncIterator[None]:
        """Wait for a turn, at most some seconds."""
        await self.enter(seconds)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, seconds: float) -> None:
        """Wait for a turn, at most some seconds; call `leave` after it."""
        if self.free:
            self.free -= 1
            return
        if len(self.line) >= self.most_waiting:
            raise BusyError(
                f"The service is busy: {self.under_way} requests run and {len(self.line)} wait. "
                "Try again later.",
                status=429,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.line.append(turn)
        try:
            await asyncio.wait_for(turn, seconds)
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()
            elif turn in self.line:
                self.line.remove(turn)
            if not isinstance(error, TimeoutError):
                raise
            raise BusyError(
                f"The request waited {seconds:.3g} s for its turn. Try again later.", status=503
            ) from None

    def leave(self) -> None:
        """Give the turn to the next request."""
        while self.line:
            turn = self.line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class Crew:
    """Daemon threads that compute answers for an event loop.

    Python would wait at its end for the threads of `concurrent.futures`, and a candidate may never
    return.
    """

    def __init__(self, size: int) -> None:
        self.tasks: SimpleQueue[Work] = SimpleQueue()
        self.size, self.started = size, 0

    def run(self, work: Callable[[], Result]) -> Awaitable[Result]:
        """Compute in a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        if self.started < self.size:
            self.started += 1
            start_daemon(self._serve)

        def task() -> None:
            if future.done():  # the request was given up
                return
            outcome: Result | None = None
            error: BaseException | None = None
            try:
                outcome = work()
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(_finish, future, outcome, error)
            except RuntimeError:  # the loop has ended, and nobody waits
                return

        self.tasks.put(task)
        return future

    def _serve(self) -> None:
        while True:
            self.tasks.get()()


def _finish(
    future: asyncio.Future[Result], outcome: Result | None, error: BaseException | None
) -> None:
    if future.done():  # the request was given up
        return
    if error is None:
        future.set_result(outcome)  # type: ignore[arg-type]
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
