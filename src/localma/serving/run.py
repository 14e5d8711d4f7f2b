"""A service as one process, or as several that a small supervisor restarts."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING

from localma._optional import optional
from localma._signals import without_grace
from localma._threads import start_daemon
from localma.errors import InvalidInputError, LocalMAError
from localma.serving.loaded import VERSION, Loaded, Watch, load_and_probe
from localma.serving.logs import event, write_logs
from localma.serving.metrics import FOLDER, Metrics, Observer
from localma.serving.service import Service
from localma.serving.settings import TOKEN, Settings
from localma.serving.watched import Watched

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

LOOPBACK = ("127.0.0.1", "::1", "localhost")
BACKLOG = 1024
CANNOT_START = 3
"""Exit code of a process that has no model to answer with."""
PAUSE = 0.5
"""Seconds before a process that ended soon after its start is started again."""
POLL = 0.2
KEEP_ALIVE = 30
"""Seconds until an idle connection is closed."""

MakeObserver = Callable[[Loaded], Observer]


def serve(settings: Settings, make_observer: MakeObserver | None = None) -> None:
    """Serve a model until SIGTERM or Ctrl-C.

    Parameters
    ----------
    settings : Settings
        The settings.
    make_observer : function, optional
        Makes what sees every answer from the model. With several processes it must be importable,
        and is called in each. By default a monitor, if the settings name a folder for its state.

    Examples
    --------
    >>> serve(Settings(path=Path("rent.localma"), port=8080))  # doctest: +SKIP
    """
    write_logs()
    optional("uvicorn", extra="serve")
    optional("fastapi", extra="serve")
    if settings.host not in LOOPBACK and not os.environ.get(TOKEN):
        event(
            "open to others",
            level=logging.WARNING,
            reason=f"the host is not this machine, and {TOKEN} is not set",
        )
    with _listening(settings) as listener, without_grace():
        if settings.workers == 1:
            _run(settings, listener, make_observer, load_and_probe(settings))
        else:
            Supervisor(settings, listener, make_observer).run()


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With another protocol number, asyncio would not switch off the delay of small packets.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise InvalidInputError(
            f"The service cannot listen on {settings.host} port {settings.port} "
            f"({error.strerror}). Choose another address or port."
        ) from error
    listener.listen(BACKLOG)
    event("listening", host=settings.host, port=listener.getsockname()[1])
    with listener:
        yield listener


def _run(
    settings: Settings,
    listener: socket.socket,
    make_observer: MakeObserver | None,
    loaded: Loaded,
    told: Callable[[str], None] = lambda version: None,
) -> None:
    """Serve in this process."""
    uvicorn = optional("uvicorn", extra="serve")
    from localma.serving.app import make_app

    if make_observer is None and settings.monitor is not None:
        make_observer = partial(Watched, folder=Path(settings.monitor))
    service = Service(settings, loaded, Metrics(), make_observer and make_observer(loaded))

    def exchanged(new: Loaded) -> None:
        service.replace(new, make_observer and make_observer(new))
        told(new.version)

    watch = Watch(settings, loaded, exchanged, partial(service.metrics.count_load, is_loaded=False))
    config = uvicorn.Config(
        make_app(service, watch),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.grace)),
    )
    told(loaded.version)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        service.close()


class Supervisor:
    """Starts the processes of a service, and starts them again if they end.

    A process whose file cannot be loaded falls back to the last file that could be.

    Parameters
    ----------
    settings : Settings
        The settings.
    listener : socket
        The socket that all processes accept connections from.
    make_observer : function, optional
        As in `serve`.
    """

    def __init__(
        self, settings: Settings, listener: socket.socket, make_observer: MakeObserver | None
    ) -> None:
        self.settings, self.listener, self.make_observer = settings, listener, make_observer
        self.folder = Path(tempfile.mkdtemp(prefix="localma-serve-"))
        self.workers: dict[SpawnProcess, tuple[Connection, float]] = {}
        self.is_ending = self.has_worked = False

    @property
    def good(self) -> Path:
        """A copy of the last file that could be loaded."""
        return self.folder / "good.localma"

    def run(self) -> None:
        """Supervise until a signal."""
        os.environ[FOLDER] = str(self.folder)
        before = {int(n): signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
        received: list[int] = []

        def end(number: int, frame: FrameType | None) -> None:
            received.append(number)
            self.is_ending = True

        for number in before:
            signal.signal(number, end)
        try:
            for _ in range(self.settings.workers):
                self._start()
            while not self.is_ending:
                self._look()
        finally:
            self._end()
            shutil.rmtree(self.folder, ignore_errors=True)
            for number, handler in before.items():
                signal.signal(number, handler)
        for number in received[:1]:
            signal.raise_signal(number)

    def _start(self) -> None:
        receiver, sender = get_context("spawn").Pipe(duplex=False)
        process = get_context("spawn").Process(
            target=_work,
            args=(self.settings, self.listener, self.make_observer, sender, self.good),
        )
        process.start()
        sender.close()
        self.workers[process] = (receiver, monotonic())
        event("process started", process=process.pid)

    def _look(self) -> None:
        """Wait for news of the processes: models that were loaded, and processes that ended."""
        connections = {connection: process for process, (connection, _) in self.workers.items()}
        sentinels = {process.sentinel: process for process in self.workers}
        for ready in wait([*connections, *sentinels], POLL):
            if isinstance(ready, Connection):
                self._read(ready)
            else:
                self._restart(sentinels[ready])  # type: ignore[index]

    def _read(self, connection: Connection) -> None:
        try:
            version = connection.recv()
        except (EOFError, OSError):  # its process has ended
            return
        self.has_worked = True
        content = Path(self.settings.path).read_bytes()
        if sha256(content).hexdigest()[:VERSION] == version:
            draft = self.folder / "good.part"
            draft.write_bytes(content)
            os.replace(draft, self.good)

    def _restart(self, process: SpawnProcess) -> None:
        connection, started = self.workers.pop(process)
        connection.close()
        process.join()
        self._forget(process)
        event("process ended", level=logging.ERROR, process=process.pid, code=process.exitcode)
        if not self.has_worked and process.exitcode == CANNOT_START:
            raise InvalidInputError("No process could start; the messages above say why.")
        if monotonic() - started < PAUSE:
            sleep(PAUSE)
        self._start()

    def _forget(self, process: SpawnProcess) -> None:
        optional("prometheus_client.multiprocess", extra="serve").mark_process_dead(
            process.pid, str(self.folder)
        )

    def _end(self) -> None:
        """End all processes: those that need longer than their grace period are killed."""
        for process in self.workers:
            process.terminate()
        limit = monotonic() + self.settings.grace + 1.0
        for process in self.workers:
            process.join(max(0.0, limit - monotonic()))
            if process.is_alive():
                event("process killed", level=logging.ERROR, process=process.pid)
                process.kill()
                process.join()


def _work(
    settings: Settings,
    listener: socket.socket,
    make_observer: MakeObserver | None,
    sender: Connection,
    good: Path,
) -> None:
    """Serve in a process of a supervisor."""
    write_logs()
    start_daemon(_end_with_parent)
    try:
        loaded = _loaded(settings, good)
    except (LocalMAError, OSError) as error:
        event(
            "cannot start", level=logging.ERROR, reason=str(getattr(error, "plain", error))[:1000]
        )
        sys.exit(CANNOT_START)
    _run(settings, listener, make_observer, loaded, sender.send)


def _loaded(settings: Settings, good: Path) -> Loaded:
    try:
        return load_and_probe(settings)
    except (LocalMAError, OSError) as error:
        if not good.exists():
            raise
        event("fell back", level=logging.ERROR, reason=str(getattr(error, "plain", error))[:1000])
        return load_and_probe(replace(settings, path=good), folder=Path(settings.path).parent)


def _end_with_parent() -> None:
    """End when the supervisor is gone; it may have been killed."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
