"""Options of an answer: missing predictions, budgets and time limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from typing import Literal, TypedDict, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from localma._types import Float64
from localma.errors import InvalidInputError, unknown_name
from localma.production.breaker import Breaker

Missing = Literal["error", "renormalize", "nan"]
"""What to do about a missing prediction of a candidate with non-zero weight."""
Costs = ArrayLike | Mapping[str, float]
Number = TypeVar("Number", int, float)


DEFAULT_BREAKER = Breaker()


class AnswerOptions(TypedDict, total=False):
    """Options of `answer`, and of `predict` and `predict_proba`."""

    missing: Missing | None
    min_weight: float
    max_candidates: int | None
    budget: float | None
    costs: Costs | None
    deadline: float | None
    timeout: float | Mapping[str, float] | None
    retries: int | Mapping[str, int]
    breaker: Breaker | None


@dataclass(frozen=True, kw_only=True)
class Options:
    """The checked options of an answer; `LocalMARegressor.answer` describes them.

    Examples
    --------
    >>> Options(deadline=0.5).retries
    0
    >>> Options(max_candidates=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    localma.errors.InvalidInputError: max_candidates must be a whole number of 1 or more; ...
    """

    missing: Missing | None = None
    min_weight: float = 0.0
    max_candidates: int | None = None
    budget: float | None = None
    costs: Costs | None = None
    deadline: float | None = None
    timeout: float | Mapping[str, float] | None = None
    retries: int | Mapping[str, int] = 0
    breaker: Breaker | None = DEFAULT_BREAKER

    @classmethod
    def of(cls, options: AnswerOptions) -> Options:
        """Check the options of a call; a name that is not an option is a TypeError."""
        for name in options:
            if name not in AnswerOptions.__annotations__:
                raise TypeError(
                    unknown_name("option of an answer", name, AnswerOptions.__annotations__)
                )
        return cls(**options)

    def __post_init__(self) -> None:
        if self.missing is not None and self.missing not in get_args(Missing):
            raise unknown_name("way to treat missing predictions", self.missing, get_args(Missing))
        if not _is_number(self.min_weight) or not 0.0 <= self.min_weight < 1.0:
            raise InvalidInputError(
                f"min_weight must be a number from 0 up to, but not including, 1; received "
                f"{self.min_weight!r}."
            )
        if self.max_candidates is not None and not _is_count(self.max_candidates, least=1):
            raise InvalidInputError(
                f"max_candidates must be a whole number of 1 or more; received "
                f"{self.max_candidates!r}."
            )
        for name in ("budget", "deadline"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0.0 < value < inf):
                raise InvalidInputError(
                    f"{name} must be a finite number above 0, or None; received {value!r}."
                )
        if not isinstance(self.breaker, Breaker | None):
            raise InvalidInputError(
                f"breaker must be a localma.production.Breaker, or None; received {self.breaker!r}."
            )

    @property
    def chooses(self) -> bool:
        """Whether fewer candidates may run than have weight."""
        return bool(self.min_weight or self.max_candidates or self.budget is not None)

    def timeouts(self, names: Sequence[str]) -> list[float]:
        """Seconds for each candidate, infinite without a limit."""
        timeout = inf if self.timeout is None else self.timeout
        seconds = _by_candidate("timeout", timeout, names, default=inf)
        for value in seconds:
            if not _is_number(value) or not value > 0.0:
                raise InvalidInputError(
                    f"timeout must be a number of seconds above 0; received {value!r}."
                )
        return seconds

    def retries_of(self, names: Sequence[str]) -> list[int]:
        """Further calls of each candidate after one that failed."""
        retries = _by_candidate("retries", self.retries, names, default=0)
        for value in retries:
            if not _is_count(value, least=0):
                raise InvalidInputError(
                    f"retries must be a whole number of 0 or more; received {value!r}."
                )
        return retries


def checked_costs(costs: Costs, names: Sequence[str]) -> Float64:
    """Costs of a row for each candidate, finite and not negative: (M,).

    >>> checked_costs({"a": 1.0, "b": 2.0}, ["a", "b"]).tolist()
    [1.0, 2.0]
    """
    if isinstance(costs, Mapping):
        _check_known(costs, names)
        absent = [name for name in names if name not in costs]
        if absent:
            raise InvalidInputError(
                f"costs must name every candidate; without a cost: {', '.join(map(repr, absent))}."
            )
        costs = [costs[name] for name in names]
    try:
        values: Float64 = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"costs must be numbers; received {costs!r}.") from None
    if values.shape != (len(names),):
        raise InvalidInputError(
            f"costs must have one number for each of the {len(names)} candidates; received shape "
            f"{values.shape}."
        )
    wrong = ~(np.isfinite(values) & (values >= 0.0))
    if wrong.any():
        m = int(np.argmax(wrong))
        raise InvalidInputError(
            f"costs must be finite and not negative; candidate {names[m]!r} has {values[m]}. Pass "
            "costs=, such as those of pool_.measure_costs(X)."
        )
    return values


def _by_candidate(
    option: str, value: Number | Mapping[str, Number], names: Sequence[str], default: Number
) -> list[Number]:
    """The value of an option for each candidate; a mapping may leave out some."""
    if not isinstance(value, Mapping):
        return [value] * len(names)
    try:
        _check_known(value, names)
    except InvalidInputError as error:
        raise InvalidInputError(f"{option}: {error}") from None
    return [value.get(name, default) for name in names]


def _check_known(by_name: Mapping[str, object], names: Sequence[str]) -> None:
    for name in by_name:
        if name not in names:
            raise unknown_name("candidate", name, names)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
