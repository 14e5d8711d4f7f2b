"""How programs and thread pools end on Ctrl-C and SIGTERM: quickly, without a traceback.

Import this module before all others. While they are imported there is nothing to clean up, so
Ctrl-C ends the process at once, as SIGTERM does by default.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import PurePath
from threading import Event, Thread
from time import sleep
from types import FrameType
from typing import NoReturn

GRACE_SECONDS = 2.0
"""Time for a command to clean up after a signal. A call of a library may take longer."""

RETRY_SECONDS = 0.02
"""Pause before a signal whose exception was lost is raised once more."""

MESSAGES = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}


def end_at_once(number: int, frame: FrameType | None = None) -> NoReturn:
    """End the process with the exit code that shells expect, without waiting for its threads."""
    with suppress(OSError):
        os.write(2, f"localma: {MESSAGES[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


def started_as_program(arguments: Sequence[str], command: Sequence[str]) -> bool:
    """Whether this process runs ``localma ...`` or ``python -m localma ...``.

    Parameters
    ----------
    arguments : sequence of str
        ``sys.argv``. It begins with "-m" until Python has found the module to run.
    command : sequence of str
        ``sys.orig_argv``.

    Examples
    --------
    >>> started_as_program(["/usr/bin/localma", "fit"], ["python", "/usr/bin/localma", "fit"])
    True
    >>> started_as_program(["-m", "fit"], ["python", "-W", "error", "-m", "localma", "fit"])
    True
    >>> started_as_program(["analysis.py"], ["python", "analysis.py"])
    False
    """
    if arguments[:1] == ["-m"]:
        return command[-len(arguments)].removeprefix("-m") == "localma"
    return PurePath(*arguments[:1]).stem == "localma"


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Raise SystemExit in the block on a signal, so that temporary files are removed; then exit.

    Python handles signals only between two of its instructions, and a call of a library may take
    long. A thread therefore ends the process if the block still runs after a grace period.
    """
    received: list[int] = []
    unwinding = Event()

    def unwind(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if not unwinding.is_set():  # a second signal must not interrupt the clean-up
            unwinding.set()
            sys.unraisablehook = again
            sys.exit(128 + number)

    def again(unraisable: object) -> None:
        # A callback from C, as in a compiler, cannot raise: Python would print a traceback and go
        # on. Another attempt may find the program outside of such a callback.
        unwinding.clear()
        Thread(target=_send, args=(received[0],), daemon=True).start()

    with _end_after_grace():
        _handle(unwind)
        try:
            yield
        finally:
            _handle(signal.SIG_DFL)
            if received:  # even if a library caught the exception
                _flush()
                end_at_once(received[0])


def _send(number: int) -> None:
    sleep(RETRY_SECONDS)
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        os.kill(os.getpid(), number)  # which also ends a wait of the main thread


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the other end of a pipe may be closed
            stream.flush()


def _handle(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in MESSAGES:
        # Shells start background jobs with Ctrl-C ignored, which must not change.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


@contextmanager
def _end_after_grace() -> Iterator[None]:
    """Watch for signals from a thread, which receives them even if Python is busy elsewhere."""
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        Thread(target=_watch, args=(receiver,), daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            receiver.shutdown(socket.SHUT_RDWR)


@contextmanager
def without_grace() -> Iterator[None]:
    """Leave the time after a signal to the block: a server finishes what is under way."""
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)


def _watch(receiver: socket.socket) -> None:
    with suppress(OSError):
        while numbers := receiver.recv(1):
            if numbers[0] in MESSAGES:
                sleep(GRACE_SECONDS)
                os._exit(128 + numbers[0])  # no message, since writing one could block


def _forget_watch() -> None:
    """Stop watching in a forked child: a signal to the child must not end its parent."""
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)


def _cover_imports() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)


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


if started_as_program(sys.argv, sys.orig_argv):
    _cover_imports()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_watch)
