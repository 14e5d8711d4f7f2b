"""Effective number of candidates, their disagreement, and the support of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from localma.inspection.observed import Observed
from localma.inspection.record import Record
from localma.wording import readable

Array = NDArray[np.floating]


@dataclass(frozen=True)
class EffectiveNumber(Record):
    """Effective number of candidates over rows; low, high : quantiles of 10 % and 90 %."""

    mean: float
    low: float
    median: float
    high: float
    of_global: float
    n_candidates: int


@dataclass(frozen=True)
class Disagreement(Record):
    """How far candidates differ about a row; outputs : [K] if the target has several numbers."""

    kind: Literal["standard_deviation", "share_of_rows"]
    value: float | None
    outputs: list[float] | None
    sentence: str


@dataclass(frozen=True)
class Spread(Record):
    """How many candidates share the weight; disagreement : None without predictions."""

    effective: EffectiveNumber
    disagreement: Disagreement | None


@dataclass(frozen=True)
class Support(Record):
    """Whether rows are like the labelled sample.

    guarded : whether the gate looks; outside : share of rows with support below one half; partly :
    share below 0.99.
    """

    guarded: bool
    mean: float
    outside: float
    partly: float
    sentence: str


def effective_number(weights: Array) -> Array:
    """``exp(-sum_m w_m log w_m)``: from one, where one has all the weight, to M: (..., M) -> (...).

    >>> effective_number(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).round(6).tolist()
    [2.0, 1.0]
    """
    return np.exp(-xlogy(weights, weights).sum(axis=-1))


def spread(seen: Observed) -> Spread:
    """Effective number of candidates and their disagreement."""
    numbers = effective_number(seen.weights)
    counted = numbers[seen.sample_weight > 0]
    low, median, high = np.quantile(counted, [0.1, 0.5, 0.9]).tolist()
    effective = EffectiveNumber(
        mean=float(seen.mean(numbers)),
        low=low,
        median=median,
        high=high,
        of_global=float(effective_number(seen.model.global_weights_)),
        n_candidates=len(seen.names),
    )
    return Spread(effective, disagreement(seen) if seen.has_predictions else None)


def disagreement(seen: Observed) -> Disagreement:
    """How far candidates differ about a row.

    Regression: ``sqrt(mean_i sum_m w_m(x_i) (f_m(x_i) - f(x_i))^2)``, so a candidate with zero
    weight does not count. Classification: share of rows whose most probable class is not the same
    for all candidates.
    """
    if seen.is_classification:
        labels = seen.predictions.argmax(axis=2)
        share = float(seen.mean((labels != labels[:, :1]).any(axis=1).astype(np.float64)))
        sentence = f"Not all candidates name the same class in {share:.0%} of rows."
        return Disagreement("share_of_rows", share, None, sentence)
    P = seen.predictions if seen.predictions.ndim == 3 else seen.predictions[:, :, np.newaxis]
    f = seen.mixture if seen.mixture.ndim == 2 else seen.mixture[:, np.newaxis]
    variance = seen.mean((seen.weights[:, :, np.newaxis] * (P - f[:, np.newaxis]) ** 2).sum(axis=1))
    deviation = float(np.sqrt(variance.mean()))
    sentence = f"Candidates with a say differ by {readable(deviation)} from their average."
    outputs = np.sqrt(variance).tolist() if len(variance) > 1 else None
    return Disagreement("standard_deviation", deviation, outputs, sentence)


def support(seen: Observed) -> Support:
    """Share of rows away from the labelled sample."""
    guarded = getattr(seen.model.gate_, "support_", None) is not None
    outside = seen.support < 0.5
    if not guarded:
        sentence = "This gate does not look whether a row is like the labelled sample."
    elif outside.any():
        sentence = (
            f"{outside.sum()} of {len(seen)} rows lie outside the labelled sample, where the "
            "weights are those of the global gate."
        )
    else:
        sentence = "All rows lie within the labelled sample, or near it."
    return Support(
        guarded=guarded,
        mean=float(seen.mean(seen.support)),
        outside=float(seen.mean(outside.astype(np.float64))),
        partly=float(seen.mean((seen.support < 0.99).astype(np.float64))),
        sentence=sentence,
    )
