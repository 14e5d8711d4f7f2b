"""`localma serve` in a process of its own: start, answers, reload, end."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("typer")
pytest.importorskip("pyarrow")

from localma import Column, LocalMARegressor
from localma.production import Monitor
from tests.serving.client import column_model, sample
from tests.serving.server import running

pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")
X, Y = sample()
MOST_REQUESTS = 5_000
"""Requests of a client."""


def test_a_service_answers_reloads_and_ends(tmp_path):
    path = tmp_path / "model.localma"
    model = column_model()
    model.save(path)
    states = tmp_path / "states"
    with running(path, "--reload", 0.1, "--grace", 5, "--monitor", states) as server:
        response = server.infer(X[:2])
        assert response.output("predict") == pytest.approx(model.predict(X[:2]).tolist())
        assert server.metric("rows_total") == 2.0
        assert server.metric('monitor{name="rows"}') == 2.0
        assert server.metric('monitor{name="alarm"}') == 0.0
        path.write_bytes(b"broken")
        assert "localma" in server.wait_for("reload refused")[0]["reason"]
        assert server.infer(X[:2]).output("predict") == response.output("predict")
        newer = LocalMARegressor({"first": Column(0)}, gate="equal").fit(X, Y)
        newer.save(path)
        server.wait_for("reloaded")
        assert server.infer(X[:2]).output("predict") == X[:2, 0].tolist()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10.0) == 143
    assert server.wait_for("stopped")
    files = sorted(states.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    observed = [Monitor.load(file, seen) for file, seen in zip(files, (model, newer), strict=True)]
    assert [monitor.report().rows for monitor in observed] == [4, 2]


def test_a_file_that_cannot_be_served_ends_the_program(tmp_path):
    path = tmp_path / "model.localma"
    path.write_bytes(b"not a model")
    for workers in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "localma", "serve", path, "--port", "0", "--workers", workers],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 1
        assert "is not a localma model file" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
class TestUnderLoad:
    """Bounded clients ask all the time; every answer is right, or an explicit error."""

    def test_a_killed_process_is_replaced(self, tmp_path):
        path = tmp_path / "model.localma"
        column_model().save(path)
        with running(path, "--workers", 2) as server:
            server.wait_for("ready", count=2)
            with Load(server, column_model().predict(X)) as load:
                time.sleep(1.0)
                load.mark()
                victim = server.wait_for("process started")[0]["process"]
                subprocess.run(["kill", "-KILL", str(victim)], check=True)
                server.wait_for("process ended")
                time.sleep(6.0)
            server.wait_for("ready", count=3)
        load.check(back_within=5.0)

    def test_a_process_starts_while_the_file_is_broken(self, tmp_path):
        path = tmp_path / "model.localma"
        column_model().save(path)
        with running(path, "--workers", 2, "--reload", 0) as server:
            server.wait_for("ready", count=2)
            with Load(server, column_model().predict(X)) as load:
                time.sleep(0.5)
                path.write_bytes(b"broken")
                load.mark()
                for count, entry in enumerate(server.wait_for("process started", count=2)):
                    subprocess.run(["kill", "-KILL", str(entry["process"])], check=True)
                    server.wait_for("fell back", count=count + 1)
                    server.wait_for("ready", count=count + 3)
                time.sleep(max(0.0, load.marked + 5.5 - time.monotonic()))
        load.check(back_within=5.0)

    def test_a_broken_file_changes_no_answer(self, tmp_path):
        path = tmp_path / "model.localma"
        column_model().save(path)
        whole = path.read_bytes()
        with (
            running(path, "--reload", 0.1) as server,
            Load(server, column_model().predict(X)) as load,
        ):
            time.sleep(0.5)
            load.mark()
            for content in (whole[:100], b"", whole[:-1] + b"x"):
                path.write_bytes(content)
                time.sleep(0.3)
            path.write_bytes(whole)
            server.wait_for("reloaded")
            time.sleep(max(0.0, load.marked + 1.5 - time.monotonic()))
        load.check(back_within=1.0)
        assert not load.errors

    def test_sigterm_finishes_what_is_under_way(self, tmp_path):
        from tests.loopback import Service
        from tests.loopback import running as candidate_server

        with candidate_server(Service()) as service:
            service.behave = lambda handler, turn: time.sleep(1.0)
            path = http_model(tmp_path, service.url)
            with running(path, "--trust", "--grace", 10) as server:
                results = []
                thread = threading.Thread(target=lambda: results.append(server.infer(X[:1])))
                thread.start()
                time.sleep(0.5)
                server.process.send_signal(signal.SIGTERM)
                thread.join(10.0)
                assert server.process.wait(10.0) == 143
        assert results[0].status == 200

    def test_the_server_of_a_candidate_stops_and_comes_back(self, tmp_path):
        from tests.loopback import Service
        from tests.loopback import running as candidate_server

        service = Service()
        path, both = http_model(tmp_path, service.url), X.sum(axis=1) / 2
        alone = {"missing": "renormalize", "deadline": 1.0, "candidate_timeout": 0.5}
        with running(path, "--trust", "--timeout", 2) as server, ExitStack() as later:
            strict = Load(server, both, allowed=(503,))
            lenient = Load(server, both, else_=X[:, 1], parameters=alone)
            with strict, lenient:
                with candidate_server(service):
                    time.sleep(1.0)
                stopped = time.monotonic()
                time.sleep(2.0)
                assert server.metric('breaker_state{candidate="vendor"}') > 0.0
                strict.mark()
                lenient.mark()
                later.enter_context(candidate_server(Service(service.server_port)))
                time.sleep(6.0)
        strict.check(back_within=5.0)
        lenient.check(back_within=5.0)
        # Without the server, one says so, and the other answers with the candidate that is left.
        assert {reason for _, reason in strict.errors} == {"503"}
        assert any(stopped < moment < strict.marked for moment, _ in strict.errors)
        assert not lenient.errors
        assert any(stopped < moment < lenient.marked for moment in lenient.right_alone)


def http_model(folder, url):
    """A candidate behind an address, and a column."""
    from localma.candidates import HttpCandidate

    pool = {"vendor": HttpCandidate(url, timeout=5.0, retries=0), "column": Column(1)}
    P = np.stack([X.sum(axis=1), X[:, 1]], axis=1)
    model = LocalMARegressor(pool, gate="equal").fit(X, Y, predictions=P)
    path = folder / "model.localma"
    model.save(path)
    return path


class Load:
    """Threads that ask for single rows until the block ends.

    expected : the right answers. else_ : the right answers of which the response says that a
    candidate failed. allowed : statuses of errors. fields : more fields of the requests.
    """

    def __init__(self, server, expected, *, else_=None, allowed=(429, 503), threads=4, **fields):
        self.server, self.expected, self.fields = server, expected, fields
        self.expected_alone, self.allowed = else_, allowed
        self.stopped = threading.Event()
        self.right, self.right_alone, self.wrong, self.errors = [], [], [], []
        self.marked = 0.0
        self.threads = [
            threading.Thread(target=self._ask, args=(k,), daemon=True) for k in range(threads)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60.0)

    def mark(self):
        self.marked = time.monotonic()

    def _ask(self, k):
        for _ in range(MOST_REQUESTS):
            if self.stopped.wait(0.005):
                return
            k = (k + 1) % len(X)
            try:
                self._note(k, self.server.infer(X[k : k + 1], **self.fields))
            except (OSError, http.client.HTTPException) as error:  # of a process that was killed
                self.errors.append((time.monotonic(), type(error).__name__))

    def _note(self, k, response):
        now = time.monotonic()
        if response.status != 200:
            (self.errors if response.status in self.allowed else self.wrong).append(
                (now, str(response.status))
            )
            return
        has_failed = "vendor" in response.document.get("parameters", {}).get("failures", "")
        expected = self.expected_alone if has_failed else self.expected
        if response.output("predict") == pytest.approx([expected[k]], rel=1e-9):
            (self.right_alone if has_failed else self.right).append(now)
        else:
            self.wrong.append(response.body)

    def check(self, back_within):
        """Every answer is right or an explicit error, and errors end soon after the mark."""
        assert not any(thread.is_alive() for thread in self.threads)
        assert not self.wrong
        assert len(self.right) > 50
        back = self.marked + back_within
        assert not [error for error in self.errors if error[0] > back]
        assert not [moment for moment in self.right_alone if moment > back]
        assert [moment for moment in self.right if self.marked < moment <= back]
        assert [moment for moment in self.right if moment > back]
