"""One row explained: the candidates' predictions and their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Output, Record
from localma.inspection.regions import Regions, describe_regions, find_regions

Array = NDArray[np.floating]


@dataclass(frozen=True)
class CandidateShare(Record):
    """One candidate in the explanation of a row.

    low, high : the band of the weight, if the gate has one; probabilities : by class; contribution
    : weight times prediction, for classification that of the probability of the predicted class.
    """

    name: str
    weight: float
    low: float | None
    high: float | None
    global_weight: float
    prediction: Output
    probabilities: dict[str, float] | None
    contribution: float | list[float] | None


@dataclass(frozen=True)
class Explanation(Record):
    """The prediction of one row, and the contributions that sum to it.

    Attributes
    ----------
    row : its position
    prediction : None if the candidates cannot be run
    probabilities : by class; None for a regression
    support : share of the local weights that is used
    region : the sentence of its region, if there are regions
    candidates : one share for each
    sentence : the most trusted candidate, in words
    """

    row: int
    prediction: Output
    probabilities: dict[str, float] | None
    support: float
    region: str | None
    candidates: list[CandidateShare]
    sentence: str

    def columns(self) -> Columns:
        """A row per candidate."""
        return {
            "candidate": [share.name for share in self.candidates],
            "prediction": [share.prediction for share in self.candidates],
            "weight": [share.weight for share in self.candidates],
            "global_weight": [share.global_weight for share in self.candidates],
            "contribution": [share.contribution for share in self.candidates],
        }

    def notes(self) -> list[str]:
        """The explanation in words."""
        return [self.sentence, *([self.region] if self.region else [])]


def explain(
    model: Model, X: Any, row: int, *, predictions: Any = None, random_state: int = 0
) -> Explanation:
    """Explain the prediction of one row of X, with the region that it lies in among all rows of X.

    Parameters
    ----------
    model : fitted
    X : n rows; the more, the better the region is known
    row : position of the row to explain, counted from zero; negative from the end
    predictions : the candidates' predictions for X, if they are not to be run here
    random_state : of the regions

    Returns
    -------
    Explanation

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
    >>> explanation = explain(model.set_params(random_state=0).fit(X, np.abs(X[:, 0])), X, 0)
    >>> explanation.region
    'left is trusted most where x0 <= 0'
    """
    seen = observe(model, X, predictions=predictions)
    if not isinstance(row, int | np.integer) or not -len(seen) <= row < len(seen):
        raise InvalidInputError(
            f"X has no row {row!r}; it has {len(seen)} rows, whose positions are 0 to "
            f"{len(seen) - 1}."
        )
    sample = seen.sample(random_state=random_state)
    found = find_regions(sample, random_state=random_state)
    return explain_row(seen, row % len(seen), sample, found)


def explain_row(seen: Observed, row: int, described: Observed, found: Regions) -> Explanation:
    """Explain a row, with regions found already in the rows `described`."""
    single = seen.take(np.array([row]))
    regions = describe_regions(described, found).regions
    region = None
    if regions:
        region = regions[int(found.of(single.features, 1)[0])].sentence
    prediction, probabilities = None, None
    if single.has_predictions:
        prediction = _prediction(single, single.mixture[0])
        probabilities = _probabilities(single, single.mixture[0])
    return Explanation(
        row=row,
        prediction=prediction,
        probabilities=probabilities,
        support=float(single.support[0]),
        region=region,
        candidates=_shares(single),
        sentence=_sentence(single),
    )


def _shares(single: Observed) -> list[CandidateShare]:
    """The share of each candidate in a row."""
    n = len(single.names)
    low: list[float | None] = [None] * n
    high: list[float | None] = [None] * n
    if single.band is not None:
        low, high = (side[0].tolist() for side in single.band)
    predictions: list[Output] = [None] * n
    probabilities: list[dict[str, float] | None] = [None] * n
    contributions = [None] * n
    if single.has_predictions:
        P = single.predictions[0]
        predictions = [_prediction(single, output) for output in P]
        probabilities = [_probabilities(single, output) for output in P]
        contributions = _contributions(single).tolist()
    weights, global_weights = single.weights[0].tolist(), single.model.global_weights_.tolist()
    return [
        CandidateShare(*values)
        for values in zip(
            single.names,
            weights,
            low,
            high,
            global_weights,
            predictions,
            probabilities,
            contributions,
            strict=True,
        )
    ]


def _contributions(single: Observed) -> Array:
    """Weight times prediction: (M,) or (M, K); of the predicted class for classification."""
    P, weights = single.predictions[0], single.weights[0]
    if single.is_classification:
        return weights * P[:, int(single.mixture[0].argmax())]
    return weights * P if P.ndim == 1 else weights[:, np.newaxis] * P


def _prediction(single: Observed, output: Array) -> Output:
    """The label of the most probable class, or numbers."""
    if single.is_classification:
        return single.model.classes_.tolist()[int(output.argmax())]
    return output.tolist()


def _probabilities(single: Observed, output: Array) -> dict[str, float] | None:
    """Probabilities of the classes, by name; None for a regression."""
    if not single.is_classification:
        return None
    return dict(zip(map(str, single.model.classes_.tolist()), output.tolist(), strict=True))


def _sentence(single: Observed) -> str:
    """The most trusted candidate of this row, in words."""
    weights = single.weights[0]
    leader = int(weights.argmax())
    usual = single.model.global_weights_[leader]
    support = float(single.support[0])
    sentence = (
        f"{single.names[leader]} has {weights[leader]:.0%} of the say here, and {usual:.0%} under "
        "global weights"
    )
    if support < 0.99:
        return f"{sentence}; the row is unlike the labelled sample (support {support:.2f})."
    return f"{sentence}."
