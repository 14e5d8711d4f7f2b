"""Circuit breakers: a candidate that keeps failing is left alone for a while."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Literal

from localma.errors import InvalidInputError

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True)
class Breaker:
    """When a candidate that fails is no longer called, and when it is tried again.

    After some failures in a row the breaker opens: the candidate counts as missing without a call.
    After a pause it is half-open: one answer calls the candidate, and the others do not. If that
    call succeeds, the breaker closes. A failure is an exception or a time limit that has passed.
    Missing predictions (NaN) are not failures.

    Parameters
    ----------
    failures : int, default=5
        Number of failures in a row that open the breaker.
    pause : float, default=30.0
        Seconds until the candidate is tried again.

    Examples
    --------
    >>> Breaker(failures=3, pause=10.0)
    Breaker(failures=3, pause=10.0)
    """

    failures: int = 5
    pause: float = 30.0

    def __post_init__(self) -> None:
        if isinstance(self.failures, bool) or not isinstance(self.failures, int):
            raise InvalidInputError(
                f"failures of a Breaker must be a whole number; received {self.failures!r}. Pass 5."
            )
        if self.failures < 1 or not isfinite(self.pause) or self.pause < 0:
            raise InvalidInputError(
                "A Breaker needs failures of 1 or more and a pause of 0 or more seconds; received "
                f"failures={self.failures!r} and pause={self.pause!r}. Pass Breaker(5, 30.0)."
            )


class Circuit:
    """The breaker of one candidate. The caller holds a lock.

    Examples
    --------
    >>> circuit, breaker = Circuit(), Breaker(failures=1, pause=10.0)
    >>> circuit.failed(breaker, now=0.0)
    >>> circuit.state(5.0), circuit.state(10.0)
    ('open', 'half-open')
    >>> circuit.admits(10.0), circuit.admits(10.0)  # one call tries
    (True, False)
    >>> circuit.succeeded()
    >>> circuit.state(10.0)
    'closed'
    """

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at: float | None = None
        self.is_tried = False

    def state(self, now: float | None = None) -> State:
        """Whether it is closed, open, or waits for the result of one call."""
        if self.retry_at is None:
            return "closed"
        moment = monotonic() if now is None else now
        return "open" if moment < self.retry_at else "half-open"

    def admits(self, now: float) -> bool:
        """Whether the candidate may be called. A half-open circuit admits one call."""
        state = self.state(now)
        if state != "half-open":
            return state == "closed"
        admitted, self.is_tried = not self.is_tried, True
        return admitted

    def succeeded(self) -> None:
        """Note that a call came back."""
        self.failures, self.retry_at, self.is_tried = 0, None, False

    def failed(self, breaker: Breaker, now: float) -> None:
        """Note that a call raised an error or took too long."""
        self.failures += 1
        self.is_tried = False
        if self.failures >= breaker.failures or self.retry_at is not None:
            self.retry_at = now + breaker.pause

    def released(self) -> None:
        """Note that a call was interrupted by the caller."""
        self.is_tried = False
