"""Calls of candidates with time limits, retries and circuit breakers.

Candidates that wait for a server or leave Python run at once, each in a daemon thread. The others
run one after another. A call that takes too long is abandoned: its thread goes on, but no answer
waits for it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from threading import Condition, Lock
from time import monotonic
from weakref import WeakKeyDictionary

import numpy as np

from localma._threads import start_daemon
from localma._types import Array, Rows
from localma.candidates import Pool
from localma.production.breaker import Breaker, Circuit, State

MOST_ABANDONED = 4
"""Abandoned calls per candidate; a candidate with so many is not called until one returns."""

Predict = Callable[[int, Rows], Array]
"""A function from the position of a candidate and rows (m,) to predictions (m, ...)."""


class LateError(Exception):
    """A candidate did not answer in time."""


class NotCalledError(Exception):
    """A candidate was not called, because it kept failing or no time was left."""


@dataclass(frozen=True)
class Limits:
    """Limits of the calls of one answer.

    deadline : the time of the clock `monotonic` at which all calls end; infinite without one.
    timeouts : (M,) seconds for each candidate, infinite without a limit.
    retries : (M,) further calls of each candidate after one that failed.
    breaker : None if failures have no consequence for later answers.
    """

    deadline: float
    timeouts: Sequence[float]
    retries: Sequence[int]
    breaker: Breaker | None

    def is_limited(self, m: int) -> bool:
        """Whether a call of this candidate may have to be abandoned."""
        return min(self.deadline, self.timeouts[m]) < inf


@dataclass
class Line:
    """The state of one candidate: its circuit, and its abandoned calls."""

    circuit: Circuit = field(default_factory=Circuit)
    abandoned: int = 0


class Switchboard:
    """The lines to the candidates of one pool, shared by all its answers in this process."""

    def __init__(self, n_candidates: int) -> None:
        self.lock = Lock()
        self.lines = [Line() for _ in range(n_candidates)]

    def refusal(self, m: int, breaker: Breaker | None) -> str | None:
        """The reason not to call a candidate now; None if it may be called."""
        line = self.lines[m]
        with self.lock:
            if line.abandoned >= MOST_ABANDONED:
                return f"{line.abandoned} earlier calls have not returned yet"
            if breaker is not None and not line.circuit.admits(monotonic()):
                return f"it failed {line.circuit.failures} times in a row and is left alone"
        return None

    def note(self, call: Call, breaker: Breaker | None) -> None:
        """Learn from a call that has ended or was abandoned."""
        line = self.lines[call.m]
        with self.lock:
            if call.error is None or call.pieces:
                line.circuit.succeeded()
            elif breaker is not None and not isinstance(call.error, NotCalledError):
                line.circuit.failed(breaker, monotonic())
            else:
                line.circuit.released()

    def states(self) -> list[tuple[State, int, int]]:
        """State of the circuit, failures in a row and abandoned calls of each candidate."""
        with self.lock:
            return [
                (line.circuit.state(), line.circuit.failures, line.abandoned) for line in self.lines
            ]


_switchboards: WeakKeyDictionary[Pool, Switchboard] = WeakKeyDictionary()
_lock = Lock()


def _forget_threads() -> None:
    """Start anew in a forked child, which does not have the threads of its parent."""
    global _lock
    _lock = Lock()
    _switchboards.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def switchboard_of(pool: Pool) -> Switchboard:
    """The lines to the candidates of a pool. They are neither saved nor pickled with a model."""
    with _lock:
        if pool not in _switchboards:
            _switchboards[pool] = Switchboard(len(pool.names))
        return _switchboards[pool]


class Call:
    """One candidate, called for some rows. The condition guards what threads share.

    m : position of the candidate; rows : (m,) the rows to predict.
    pieces : rows and predictions that have come back; error : the last error.
    """

    def __init__(self, m: int, rows: Rows, retries: int, changed: Condition) -> None:
        self.m, self.rows, self.retries, self.changed = m, rows, retries, changed
        self.pieces: list[tuple[Rows, Array]] = []
        self.error: Exception | None = None
        self.started, self.seconds = inf, 0.0
        self.limit = self.patience = inf
        self.has_ended = self.is_abandoned = False

    def run(self, predict: Predict) -> None:
        """Predict the rows. After a failure, try the halves of the rows, or the one row again."""
        self.started = monotonic()
        blocks, attempts = deque([self.rows]), self.retries + 1
        while blocks and attempts and not self.is_abandoned:
            rows, attempts = blocks.popleft(), attempts - 1
            try:
                values = predict(self.m, rows)
            except Exception as error:
                self._fail(error)
                if len(rows) > 1:
                    blocks.extend(np.array_split(rows, 2))
                elif len(self.rows) == 1:
                    blocks.append(rows)
            else:
                self._keep(rows, values)

    def _fail(self, error: Exception) -> None:
        with self.changed:
            if not self.is_abandoned:
                self.error = error

    def _keep(self, rows: Rows, values: Array) -> None:
        with self.changed:
            if not self.is_abandoned:  # otherwise the answer is out already
                self.pieces.append((rows, values))
                if len(self.rows) == 1:
                    self.error = None


class Session:
    """The calls of one answer.

    Parameters
    ----------
    board : the lines to the candidates
    predict : predicts some rows with one candidate
    beside : (M,) whether each candidate runs at the same time as others
    limits : time limits, retries and the breaker
    """

    def __init__(
        self, board: Switchboard, predict: Predict, beside: Sequence[bool], limits: Limits
    ) -> None:
        self.board, self.predict, self.beside, self.limits = board, predict, beside, limits
        self.changed = Condition()

    def ask(self, wanted: Mapping[int, Rows]) -> list[Call]:
        """Call candidates for rows (m,), and wait for them within the limits."""
        calls = [Call(m, rows, self.limits.retries[m], self.changed) for m, rows in wanted.items()]
        admitted = [call for call in calls if self._admit(call)]
        with self._ending(admitted):
            threaded = [call for call in admitted if self._needs_thread(call, len(admitted))]
            for call in threaded:
                if self.beside[call.m]:
                    self._start(call)
            for call in admitted:
                if call not in threaded:
                    self.run_here(call, self.predict)
            if threaded:
                self._wait(threaded)
        return calls

    def _admit(self, call: Call) -> bool:
        reason = self.board.refusal(call.m, self.limits.breaker)
        if reason is None:
            return True
        call.error = NotCalledError(f"was not called: {reason}")
        return False

    def _needs_thread(self, call: Call, n_calls: int) -> bool:
        return self.limits.is_limited(call.m) or (self.beside[call.m] and n_calls > 1)

    def _start(self, call: Call) -> None:
        now = monotonic()
        call.limit = min(self.limits.deadline, now + self.limits.timeouts[call.m])
        call.started = now
        start_daemon(partial(self._run, call))

    def run_here(self, call: Call, predict: Predict) -> None:
        """Run a call in the thread of the caller."""
        try:
            call.run(predict)
        finally:
            self._end(call)

    def _run(self, call: Call) -> None:
        """Run a call in its own thread."""
        try:
            call.run(self.predict)
        except BaseException as error:  # such as SystemExit, which must not end a thread in silence
            call._fail(RuntimeError(f"{type(error).__name__}: {error}"))
        finally:
            self._end(call)

    def _end(self, call: Call) -> None:
        with self.changed:
            call.seconds, call.has_ended = monotonic() - call.started, True
            was_abandoned = call.is_abandoned
            self.changed.notify_all()
        if was_abandoned:
            with self.board.lock:
                self.board.lines[call.m].abandoned -= 1

    def _wait(self, calls: Sequence[Call]) -> None:
        """Wait for calls that run, and start the others, one after another."""
        waiting = deque(call for call in calls if not self.beside[call.m])
        running = [call for call in calls if self.beside[call.m]]
        turn: Call | None = None
        with self.changed:
            while True:
                now = monotonic()
                if waiting and now < self.limits.deadline and _is_over(turn, now):
                    turn = waiting.popleft()
                    self._start(turn)
                    # A candidate that hangs must leave time for those after it.
                    share = (self.limits.deadline - now) / (len(waiting) + 1)
                    turn.patience = min(turn.limit, now + share)
                    running.append(turn)
                running = [call for call in running if not call.has_ended and now < call.limit]
                if not running and (not waiting or now >= self.limits.deadline):
                    return
                ends = [call.limit for call in running]
                if waiting and turn is not None:
                    ends.append(turn.patience)
                end = min(ends, default=now)
                if end > now:
                    self.changed.wait(None if end == inf else end - now)

    @contextmanager
    def _ending(self, calls: Sequence[Call]) -> Iterator[None]:
        """Abandon the calls that have not ended, and note how all of them went."""
        is_interrupted = True
        try:
            yield
            is_interrupted = False
        finally:
            for call in calls:
                self._abandon(call)
                if is_interrupted and not call.pieces:
                    call.error = NotCalledError("was interrupted")
                self.board.note(call, self.limits.breaker)

    def _abandon(self, call: Call) -> None:
        with self.changed:
            if call.has_ended:
                return
            if call.started == inf:
                call.error = NotCalledError("was not called: no time was left")
                return
            call.seconds = monotonic() - call.started
            call.error = LateError(f"did not answer within {call.seconds:.3g} s")
            call.is_abandoned = True
        with self.board.lock:
            self.board.lines[call.m].abandoned += 1


def _is_over(turn: Call | None, now: float) -> bool:
    """Whether the next candidate may start."""
    return turn is None or turn.has_ended or now >= turn.patience
