"""A service as its users run it: `localma serve` in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.serving.client import Response, rows_document

INFER = "/v2/models/rent/infer"
START_SECONDS = 90.0
"""A machine that runs other tests at the same time is slow."""


@dataclass
class Server:
    process: subprocess.Popen[str]
    events: list[dict[str, object]] = field(default_factory=list)
    other_lines: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.other_lines.append(line)

    def wait_for(self, event, seconds=START_SECONDS, count=1):
        """The events of a name, when there are so many."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [entry for entry in list(self.events) if entry["event"] == event]
            if len(found) >= count:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError(f"no {event!r} in {self.events[-20:]} {self.other_lines[-20:]}")

    @property
    def port(self):
        return self.wait_for("listening")[0]["port"]

    def request(self, method, path, body=None, headers=None, timeout=30.0):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, names, answer.read())
        finally:
            connection.close()

    def infer(self, X, **fields):
        return self.request("POST", INFER, rows_document(X, **fields))

    def metric(self, name):
        text = self.request("GET", "/metrics").body.decode()
        line = next(line for line in text.splitlines() if line.startswith(f"localma_{name} "))
        return float(line.split()[-1])


@contextmanager
def running(path, *options, env=None):
    """Serve a model file until the block ends."""
    command = [sys.executable, "-m", "localma", "serve", str(path), "--name", "rent", "--port", "0"]
    process = subprocess.Popen(
        [*command, *map(str, options)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )
    server = Server(process)
    try:
        server.wait_for("ready")
        yield server
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        server.reader.join()
        process.stderr.close()
