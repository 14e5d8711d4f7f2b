"""A web server on loopback that answers with the sum of each row, or misbehaves on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service(ThreadingHTTPServer):
    """Answers with the sum of each row, unless `behave` does something else first."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.documents: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.times: list[float] = []
        self.behave: Callable[[Handler, int], bool] = lambda handler, turn: False
        self.lock = threading.Lock()
        self.under_way = self.most_under_way = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/predict"

    def handle_error(self, *args: Any) -> None:
        """A client that gave up is what many tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Service
    counted = False

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            turn = len(self.server.documents)
            self.server.documents.append(document)
            self.server.headers.append({k.title(): v for k, v in self.headers.items()})
            self.server.paths.append(self.path)
            self.server.times.append(time.monotonic())
            self.server.under_way += 1
            self.server.most_under_way = max(self.server.under_way, self.server.most_under_way)
        self.counted = True
        try:
            if not self.server.behave(self, turn):
                self.answer({"predictions": [sum(row) for row in document["rows"]]})
        finally:
            self.leave()

    def leave(self) -> None:
        """Count this request as done, once: before its answer is out, or the next one is counted
        beside it."""
        with self.server.lock:
            self.server.under_way -= self.counted
            self.counted = False

    def answer(self, content: Any, status: int = 200, **headers: str) -> bool:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.leave()
        self.end_headers()
        self.wfile.write(body)
        return True

    def log_message(self, *args: Any) -> None:
        """Silence."""


@contextmanager
def running(service: Service) -> Iterator[Service]:
    # A thread that is no daemon is waited for before anything at exit could stop it.
    loop = {"poll_interval": 0.01}
    thread = threading.Thread(target=service.serve_forever, kwargs=loop, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        # A forked child may end this generator. It does not have the thread, so it must not wait.
        if thread.is_alive():
            service.shutdown()
            thread.join()
        service.server_close()
