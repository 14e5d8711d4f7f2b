"""The state of the candidates in this process: which of them keep failing."""

from __future__ import annotations

from dataclasses import dataclass

from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.estimators.predictions import pool_of
from localma.production.breaker import State
from localma.production.calls import MOST_ABANDONED, switchboard_of
from localma.records import Columns, Record


@dataclass(frozen=True)
class CandidateHealth(Record):
    """The state of one candidate.

    Parameters
    ----------
    candidate : str
        Name of the candidate.
    state : {"closed", "open", "half-open"}
        State of its circuit breaker. An open one means that the candidate is not called.
    failures : int
        Number of failures in a row.
    abandoned : int
        Number of calls that took too long and have not returned yet.

    Examples
    --------
    >>> CandidateHealth("vendor", "closed", 0, 0).state
    'closed'
    """

    candidate: str
    state: State
    failures: int
    abandoned: int

    @property
    def obstacle(self) -> str | None:
        """Why the candidate is not called now; None if it is."""
        if self.abandoned >= MOST_ABANDONED:
            return f"{self.abandoned} earlier calls have not returned yet"
        if self.state == "open":
            return f"it failed {self.failures} times in a row"
        return None


@dataclass(frozen=True)
class Health(Record):
    """The state of all candidates of a model, in this process.

    Parameters
    ----------
    candidates : list of CandidateHealth
        The state of each candidate.

    Examples
    --------
    >>> print(Health([CandidateHealth("vendor", "open", 5, 1)]))
    candidate  state  failures  abandoned
    vendor      open         5          1
    vendor is not called: it failed 5 times in a row.
    """

    candidates: list[CandidateHealth]

    def _columns(self) -> Columns:
        """Return a row per candidate."""
        return {
            "candidate": [entry.candidate for entry in self.candidates],
            "state": [entry.state for entry in self.candidates],
            "failures": [entry.failures for entry in self.candidates],
            "abandoned": [entry.abandoned for entry in self.candidates],
        }

    def _notes(self) -> list[str]:
        """Return the candidates that are not called, and why."""
        return [
            f"{entry.candidate} is not called: {entry.obstacle}."
            for entry in self.candidates
            if entry.obstacle
        ]


def health(model: LocalMARegressor | LocalMAClassifier) -> Health:
    """Return the state of the candidates of a fitted model."""
    pool = pool_of(model)
    states = switchboard_of(pool).states()
    return Health(
        [CandidateHealth(name, *state) for name, state in zip(pool.names, states, strict=True)]
    )
