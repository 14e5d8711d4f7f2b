"""Explanation of one row: the candidates' predictions and their weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localma._types import Array
from localma.candidates.outputs import Table
from localma.errors import InvalidInputError, NoAnswerError
from localma.formatting import fixed, percent
from localma.inspection.observed import Model, Observed, Predictions, observe
from localma.inspection.regions import describe_regions, find_regions
from localma.records import Columns, Output, Record


@dataclass(frozen=True)
class CandidateShare(Record):
    """One candidate in the explanation of a row.

    Parameters
    ----------
    name : str
        Name of the candidate.
    weight : float
        Weight in this row.
    low : float or None
        Lower end of the band of the weight. None if the gate has no band.
    high : float or None
        Upper end of the band of the weight. None if the gate has no band.
    global_weight : float
        Global weight, the same for every row.
    prediction : float, list of float, label or None
        Prediction of the candidate. None if it is missing, or the candidates cannot be run.
    probabilities : dict of str -> float or None
        Probability of each class. None for a regression.
    contribution : float, list of float or None
        Weight times prediction. For a classification, weight times the probability of the class
        that the model predicts.

    Examples
    --------
    >>> share = CandidateShare("a", 0.75, None, None, 0.5, 2.0, None, 1.5)
    >>> share.contribution == share.weight * share.prediction
    True
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

    Parameters
    ----------
    row : int
        Position of the row.
    prediction : float, list of float, label or None
        The prediction of the model; None if the candidates cannot be run.
    probabilities : dict or None
        The probability of each class; None for a regression.
    support : float
        Share of the local weights that is used.
    region : str or None
        The sentence of its region; None without regions.
    candidates : list of CandidateShare
        The share of each candidate.
    sentence : str
        The most trusted candidate, in words.

    Examples
    --------
    >>> shares = [CandidateShare("a", 1.0, None, None, 0.5, 2.0, None, 2.0)]
    >>> print(Explanation(0, 2.0, None, 1.0, None, shares, "a has a weight of 100% in this row."))
    candidate  prediction  weight  global_weight  contribution
    a                   2       1            0.5             2
    a has a weight of 100% in this row.
    """

    row: int
    prediction: Output
    probabilities: dict[str, float] | None
    support: float
    region: str | None
    candidates: list[CandidateShare]
    sentence: str

    def _columns(self) -> Columns:
        """Return a row per candidate."""
        return {
            "candidate": [share.name for share in self.candidates],
            "prediction": [share.prediction for share in self.candidates],
            "weight": [share.weight for share in self.candidates],
            "global_weight": [share.global_weight for share in self.candidates],
            "contribution": [share.contribution for share in self.candidates],
        }

    def _notes(self) -> list[str]:
        """Return the explanation in words."""
        return [sentence for sentence in (self.sentence, self.region) if sentence]


def explain(
    model: Model, X: Table, row: int, *, predictions: Predictions = None, random_state: int = 0
) -> Explanation:
    """Explain the prediction of one row of X, and find its region among all rows of X.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X : table or array
        The n rows. With more rows, the region is more precise.
    row : int
        Position of the row to explain, counted from zero; negative from the end.
    predictions : dict or array, optional
        The candidates' predictions for X. By default the candidates are run.
    random_state : int, default=0
        Seed of the regions.

    Returns
    -------
    Explanation
        The prediction and the contribution of each candidate.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
    >>> explanation = explain(model.set_params(random_state=0).fit(X, np.abs(X[:, 0])), X, 0)
    >>> explanation.region
    'left is trusted most where x0 <= 0'
    """
    observed = observe(model, X, predictions=predictions)
    n = len(observed)
    if not isinstance(row, int | np.integer) or not -n <= row < n:
        raise InvalidInputError(
            f"X has no row {row!r}; it has {n} rows. Pass a position from 0 to {n - 1}."
        )
    sample = observed.sample(random_state=random_state)
    regions = find_regions(sample, random_state=random_state)
    single = observed.take(np.array([row % n]))
    _check_any_prediction(single, row % n)
    region = prediction = probabilities = None
    described = describe_regions(sample, regions).regions
    if described:
        region = described[int(regions.region_of_row(single)[0])].sentence
    if single.has_predictions:
        prediction = _prediction(single, single.mixture[0])
        probabilities = _probabilities(single, single.mixture[0])
    return Explanation(
        row=row % n,
        prediction=prediction,
        probabilities=probabilities,
        support=float(single.support[0]),
        region=region,
        candidates=[_share(single, m) for m in range(len(single.names))],
        sentence=_sentence(single),
    )


def _check_any_prediction(single: Observed, row: int) -> None:
    """Refuse a row for which no candidate has a prediction."""
    if not single.has_predictions:
        return
    try:
        has_any = bool(single.known.any())
    except NoAnswerError:
        has_any = False
    if not has_any:
        raise NoAnswerError(
            f"No candidate has a prediction in row {row}, so there is nothing to explain. Pass "
            "another row.",
            rows=[row],
        )


def _share(single: Observed, m: int) -> CandidateShare:
    """Describe one candidate in a single row."""
    low = high = prediction = probabilities = contribution = None
    if single.band is not None:
        low, high = (float(side[0, m]) for side in single.band)
    weight = float(single.weights[0, m])
    if single.has_predictions:
        weight = float(single.used_weights[0, m])
    if single.has_predictions and single.known[0, m]:
        output = single.predictions[0, m]
        prediction = _prediction(single, output)
        probabilities = _probabilities(single, output)
        contribution = (weight * output).tolist()
        if single.is_classification:
            contribution = contribution[int(single.mixture[0].argmax())]
    return CandidateShare(
        name=single.names[m],
        weight=weight,
        low=low,
        high=high,
        global_weight=float(single.model.global_weights_[m]),
        prediction=prediction,
        probabilities=probabilities,
        contribution=contribution,
    )


def _prediction(single: Observed, output: Array) -> Output:
    """Return the label of the most probable class, or numbers."""
    if single.is_classification:
        return single.model.classes_.tolist()[int(output.argmax())]
    return output.tolist()


def _probabilities(single: Observed, output: Array) -> dict[str, float] | None:
    """Return the probabilities of the classes by name; None for a regression."""
    if not single.is_classification:
        return None
    return dict(zip(map(str, single.model.classes_.tolist()), output.tolist(), strict=True))


def _sentence(single: Observed) -> str:
    """Name the most trusted candidate of this row."""
    weights, global_weights = single.weights[0], single.model.global_weights_
    if single.has_predictions:
        weights = single.used_weights[0]
    m = int(weights.argmax())
    support = float(single.support[0])
    sentence = (
        f"{single.names[m]} has a weight of {percent(weights[m])} in this row, and of "
        f"{percent(global_weights[m])} under global weights"
    )
    sentences = [f"{sentence}."]
    if support < 0.99:
        sentences.append(f"The row is unlike the labelled sample (support {fixed(support, 2)}).")
    if single.has_predictions and not single.known.all():
        missing = [single.names[m] for m in np.flatnonzero(~single.known[0])]
        sentences.append(f"No prediction: {', '.join(missing)}.")
    return " ".join(sentences)
