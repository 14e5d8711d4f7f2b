"""Calls of candidates that hang: threads, deadlines, breakers, servers, the end of the process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from localma import LocalMARegressor
from localma.candidates import HttpCandidate
from localma.errors import CandidateError, NoAnswerError
from localma.production import Breaker
from localma.production.calls import MOST_ABANDONED
from tests.loopback import Service, running

X = np.linspace(1.0, 2.0, 60)[:, None]
SLACK = 2.0
"""Seconds by which a busy machine may be late."""


class Hanging:
    """A function that waits until the test ends, while `hangs` is set."""

    def __init__(self) -> None:
        self.released, self.hangs, self.calls = Event(), True, 0

    def __call__(self, X: np.ndarray) -> np.ndarray:
        self.calls += 1
        if self.hangs:
            self.released.wait(60)
        return 2.0 * X[:, 0]


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    function = Hanging()
    yield function
    function.released.set()


def combined(candidates: dict[str, Any], **options: Any) -> LocalMARegressor:
    """Equal weights of candidates that have not been called."""
    model = LocalMARegressor(candidates, gate="equal", missing="renormalize", **options)
    P = {name: X[:, 0] + 0.1 + k / 10 for k, name in enumerate(candidates)}
    return model.fit(X, X[:, 0] + 0.1 * np.sin(50 * X[:, 0]), predictions=P)


def same(X: np.ndarray) -> np.ndarray:
    return X[:, 0]


def test_a_hanging_candidate_leaves_time_for_the_others(hanging: Hanging) -> None:
    model = combined({"hanging": hanging, "same": same, "half": lambda X: X[:, 0] / 2})
    began = time.monotonic()
    answer = model.answer(X, deadline=0.6)
    assert 0.5 < time.monotonic() - began < 0.6 + SLACK
    assert_allclose(answer.prediction, 0.75 * X[:, 0])
    [failure] = answer.failures
    assert (failure.candidate, failure.reason, len(failure.rows)) == ("hanging", "late", 60)


def test_what_comes_back_before_the_deadline_counts() -> None:
    def slow(X: np.ndarray) -> np.ndarray:
        time.sleep(0.3)
        return X[:, 0]

    model = combined({"slow": slow, "same": lambda X: 3 * X[:, 0]})
    answer = model.answer(X, deadline=0.3 + SLACK)
    assert_allclose(answer.prediction, 2 * X[:, 0])
    assert answer.failures == []
    assert answer.candidate_seconds[0] >= 0.3


def test_abandoned_calls_are_limited_and_shown(hanging: Hanging) -> None:
    model = combined({"hanging": hanging, "same": same})
    for _ in range(MOST_ABANDONED + 2):
        answer = model.answer(X, timeout=0.02, breaker=None)
    assert hanging.calls == MOST_ABANDONED
    assert answer.failures[0].reason == "not called"
    assert "4 earlier calls have not returned yet" in answer.failures[0].text
    assert model.health().candidates[0].abandoned == MOST_ABANDONED
    hanging.released.set()
    wait_until(lambda: model.health().candidates[0].abandoned == 0)
    hanging.hangs = False
    assert_allclose(model.answer(X, timeout=5.0).prediction, 1.5 * X[:, 0])


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_later_answers_are_quick(hanging: Hanging) -> None:
    model = combined({"hanging": hanging, "same": same})
    breaker = Breaker(failures=1, pause=60.0)
    model.answer(X, timeout=0.05, breaker=breaker)
    began = time.monotonic()
    answer = model.answer(X, timeout=20.0, breaker=breaker)
    assert time.monotonic() - began < SLACK
    assert "it failed 1 times in a row and is left alone" in answer.failures[0].text
    assert model.health().candidates[0].state == "open"


def test_a_breaker_opens_and_closes_with_a_single_candidate() -> None:
    state = {"broken": True, "calls": 0}

    def vendor(X: np.ndarray) -> np.ndarray:
        state["calls"] += 1
        if state["broken"]:
            raise ConnectionError("no route to host")
        return X[:, 0]

    model = combined({"vendor": vendor})
    breaker = Breaker(failures=3, pause=0.2)
    for _ in range(5):
        with pytest.raises(NoAnswerError, match="No candidate is left in 60 of 60 rows"):
            model.answer(X, breaker=breaker)
    assert state["calls"] == 3
    assert "open" in str(model.health())
    wait_until(lambda: model.health().candidates[0].state == "half-open")
    with pytest.raises(NoAnswerError):
        model.answer(X, breaker=breaker)
    assert (state["calls"], model.health().candidates[0].state) == (4, "open")
    state["broken"] = False
    wait_until(lambda: model.health().candidates[0].state == "half-open")
    assert_allclose(model.answer(X, breaker=breaker).prediction, X[:, 0])
    assert model.health().candidates[0].state == "closed"


def test_missing_predictions_open_no_breaker() -> None:
    model = combined({"gaps": lambda X: np.full(len(X), np.nan), "same": same})
    for _ in range(10):
        model.answer(X, breaker=Breaker(failures=1))
    assert model.health().candidates[0].state == "closed"


def test_an_interrupt_is_no_failure() -> None:
    def interrupted(X: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    model = combined({"interrupted": interrupted, "same": same})
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            model.answer(X, breaker=Breaker(failures=1))
    [entry, _] = model.health().candidates
    assert (entry.state, entry.failures, entry.abandoned) == ("closed", 0, 0)


def test_python_functions_run_one_after_another() -> None:
    under_way: list[int] = []
    most = []

    def busy(X: np.ndarray) -> np.ndarray:
        under_way.append(1)
        most.append(len(under_way))
        time.sleep(0.05)
        under_way.pop()
        return X[:, 0]

    candidates = {f"c{k}": lambda X, k=k: busy(X) for k in range(4)}
    answer = combined(candidates).answer(X, deadline=30.0)
    assert answer.failures == []
    assert max(most) == 1


@pytest.fixture
def services() -> Iterator[list[Service]]:
    with running(Service()) as first, running(Service()) as second:
        yield [first, second]


def test_two_servers_are_asked_at_once(services: list[Service]) -> None:
    both = Barrier(2)

    def slow(handler: Any, turn: int) -> bool:
        both.wait(timeout=60)  # one after another, the first would wait in vain
        time.sleep(0.2)
        return False

    for service in services:
        service.behave = slow
    candidates = {f"s{k}": HttpCandidate(service.url) for k, service in enumerate(services)}
    model = combined(candidates)
    answer = model.answer(X)
    assert answer.failures == []
    assert_allclose(answer.prediction, X[:, 0])
    assert answer.candidate_seconds.min() >= 0.2


def test_a_server_that_fails_is_an_error_by_default(services: list[Service]) -> None:
    services[0].behave = lambda handler, turn: handler.answer({}, 400)
    candidates = {f"s{k}": HttpCandidate(service.url) for k, service in enumerate(services)}
    model = combined(candidates)
    with pytest.raises(CandidateError, match=r"'s0'.*400"):
        model.answer(X, missing="error")
    assert_allclose(model.predict(X), X[:, 0])


IN_A_PROCESS = """
import sys, time
import numpy as np
from localma import LocalMARegressor
from localma.candidates import HttpCandidate

def hang(X):
    time.sleep(600)

def spin(X):
    while True:
        pass

hanging = {"hang": hang, "spin": spin}.get(sys.argv[1]) or HttpCandidate(
    sys.argv[1], timeout=300, batch_size=10
)
X = np.linspace(1, 2, 60)[:, None]
model = LocalMARegressor({"hanging": hanging, "same": lambda X: X[:, 0]}, gate="equal")
model.fit(X, X[:, 0] + 0.1 * np.sin(50 * X[:, 0]), predictions=np.column_stack([X, X]))
began = time.monotonic()
answer = model.answer(X, missing="renormalize", deadline=1.0)
assert answer.failures[0].reason == "late", answer
assert np.allclose(answer.prediction, X[:, 0])
print(time.monotonic() - began)
"""


@pytest.mark.parametrize("kind", ["hang", "spin", "server"])
def test_the_process_ends_although_a_candidate_hangs(kind: str, services: list[Service]) -> None:
    stop = Event()
    if kind == "server":
        services[0].behave = lambda handler, turn: stop.wait(120) and False
        kind = services[0].url
    try:
        done = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS, kind], capture_output=True, text=True, timeout=100
        )
    finally:
        stop.set()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert float(done.stdout) < 1.0 + 2 * SLACK


@pytest.mark.slow
def test_memory_stays_flat() -> None:
    resource = pytest.importorskip("resource")
    assert resource  # only where the memory of a process can be read from /proc
    model = combined({"gaps": lambda X: np.full(len(X), np.nan), "same": same})

    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1])

    for _ in range(2_000):
        model.answer(X[:1], deadline=5.0)
    before = resident()
    for _ in range(20_000):
        model.answer(X[:1], deadline=5.0)
    assert resident() < 1.02 * before
