"""Summary of a fitted model on some rows: one record of all parts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from localma._types import Array, Json
from localma.candidates.outputs import Table
from localma.checks.cautions import Caution
from localma.errors import InvalidInputError
from localma.estimators.base import NO_CLAIM
from localma.formatting import percent, readable
from localma.inspection.comparison import ComparisonDisplay, compare
from localma.inspection.effects import (
    ImportanceDisplay,
    WeightEffectDisplay,
    WeightMapDisplay,
    choose_features,
    importance,
    weight_effects,
    weight_map,
)
from localma.inspection.features import Feature, Kind
from localma.inspection.observed import MOST_ROWS, Model, Observed, Predictions, observe
from localma.inspection.path import LocalityPathDisplay, locality_path
from localma.inspection.regions import (
    ErrorByRegionDisplay,
    Regions,
    RegionsDisplay,
    describe_regions,
    find_regions,
    region_errors,
)
from localma.inspection.reliability import ReliabilityDisplay, reliability
from localma.records import Columns, Label, Output, Record

SCHEMA = 1
FIT_FOUND = "The fit found:"
FIRST_SENTENCE = re.compile(r"Use candidate .*? alone\.(?=\s|$)|.*?\.(?=\s|$)|.*", re.DOTALL)
EFFECTS = 8
ROWS_SHOWN = 200


class Advice(NamedTuple):
    """A verdict in two parts: the recommendation, and the evidence for it.

    >>> Advice.of("Use fixed weights. The loss changes by 0.1 ± 0.2.", [])
    Advice(recommendation='Use fixed weights.', evidence='The loss changes by 0.1 ± 0.2.')
    """

    recommendation: str
    evidence: str

    @classmethod
    def of(cls, verdict: str, cautions: Sequence[Caution]) -> Advice:
        """Divide a verdict, and leave out the cautions before it."""
        for caution in cautions:
            verdict = verdict.replace(caution.sentence, "", 1).strip()
        if any(caution.kind == "worse_than_constant" for caution in cautions):
            return cls(NO_CLAIM, verdict.removeprefix(NO_CLAIM).strip())
        verdict = verdict.removeprefix(FIT_FOUND).strip()
        recommendation = FIRST_SENTENCE.findall(verdict)[0]
        return cls(recommendation, verdict.removeprefix(recommendation).strip())


@dataclass(frozen=True)
class EffectiveNumber(Record):
    """Effective number of candidates, ``exp(-sum_m w_m log w_m)``, over the rows.

    Parameters
    ----------
    mean : float
        Mean over the rows.
    low : float
        Quantile of 10 %.
    median : float
        Quantile of 50 %.
    high : float
        Quantile of 90 %.
    of_global : float
        Effective number of candidates under the global weights.
    n_candidates : int
        Number of candidates, which is the largest possible effective number.

    Examples
    --------
    >>> effective = EffectiveNumber(1.5, 1.0, 1.5, 2.0, of_global=1.75, n_candidates=2)
    >>> effective.to_dict()
    {'mean': 1.5, 'low': 1.0, 'median': 1.5, 'high': 2.0, 'of_global': 1.75, 'n_candidates': 2}
    """

    mean: float
    low: float
    median: float
    high: float
    of_global: float
    n_candidates: int


@dataclass(frozen=True)
class Disagreement(Record):
    """How far the candidates' predictions differ.

    Parameters
    ----------
    kind : {"standard_deviation", "share_of_rows"}
        The measure: the first for a regression, the second for a classification.
    value : float or None
        Weighted standard deviation of the predictions around the model's prediction, or share of
        rows for which the candidates predict different classes.
    outputs : list of float or None
        Standard deviation of each of the K outputs. None with a single output, and for a
        classification.
    sentence : str
        The same in words.

    Examples
    --------
    >>> sentence = "The candidates predict different classes in 25% of the rows."
    >>> disagreement = Disagreement("share_of_rows", 0.25, None, sentence)
    >>> print(disagreement.sentence)
    The candidates predict different classes in 25% of the rows.
    """

    kind: Literal["standard_deviation", "share_of_rows"]
    value: float | None
    outputs: list[float] | None
    sentence: str


@dataclass(frozen=True)
class Spread(Record):
    """How many candidates share the weight, and how far they differ.

    Parameters
    ----------
    effective : EffectiveNumber
        Effective number of candidates.
    disagreement : Disagreement or None
        How far the candidates' predictions differ. None without predictions.

    Examples
    --------
    >>> effective = EffectiveNumber(1.5, 1.0, 1.5, 2.0, 1.75, 2)
    >>> Spread(effective, None).effective.median
    1.5
    """

    effective: EffectiveNumber
    disagreement: Disagreement | None


@dataclass(frozen=True)
class Support(Record):
    """Whether rows are like the labelled sample.

    Parameters
    ----------
    guarded : bool
        Whether the gate checks if a row is like the labelled sample.
    mean : float
        Mean support of the rows.
    outside : float
        Share of rows with a support below 0.5.
    partly : float
        Share of rows with a support below 0.99.
    sentence : str
        The same in words.

    Examples
    --------
    >>> sentence = "5% of the rows are unlike the labelled sample."
    >>> support = Support(guarded=True, mean=0.94, outside=0.05, partly=0.1, sentence=sentence)
    >>> print(support.sentence)
    5% of the rows are unlike the labelled sample.
    """

    guarded: bool
    mean: float
    outside: float
    partly: float
    sentence: str


@dataclass(frozen=True)
class CandidateSummary(Record):
    """A candidate and its weights.

    Parameters
    ----------
    name : str
        Name of the candidate.
    kind : str
        Kind of the candidate, such as "estimator". It is "predictions" if the model only has
        predictions.
    cost : float or None
        Cost that was stated for the candidate. None if the model only has predictions.
    global_weight : float
        Global weight, the same for every row.
    mean_weight : float
        Mean weight over the rows.
    most_trusted : float
        Share of rows in which this candidate has the largest weight.

    Examples
    --------
    >>> candidate = CandidateSummary("a", "estimator", 1.0, 0.5, 0.75, 0.9)
    >>> candidate.name, candidate.mean_weight - candidate.global_weight
    ('a', 0.25)
    """

    name: str
    kind: str
    cost: float | None
    global_weight: float
    mean_weight: float
    most_trusted: float


@dataclass(frozen=True)
class ModelSummary(Record):
    """The model and its candidates.

    Parameters
    ----------
    estimator : str
        Class of the model, which is called "class" in JSON.
    task : {"regression", "classification"}
        What the model predicts.
    loss : str
        Name of the loss.
    gate : str
        Class of the gate.
    n_features : int
        Number of columns of X that the gate may see.
    n_outputs : int or None
        Number of outputs, or of classes. None without predictions.
    classes : list of label or None
        Classes in the order of the probabilities. None for a regression.
    verdict : str or None
        Verdict of the fit. None if the gate does not judge itself.
    candidates : list of CandidateSummary
        All M candidates, in the order of the pool.

    Examples
    --------
    >>> candidates = [
    ...     CandidateSummary("a", "estimator", 1.0, 0.5, 0.3, 0.2),
    ...     CandidateSummary("b", "estimator", 1.0, 0.5, 0.7, 0.8),
    ... ]
    >>> model = ModelSummary("LocalMARegressor", "regression", "squared_error", "GlobalGate", 2, 1,
    ...                      None, None, candidates)
    >>> model.ranking, model.to_dict()["class"]
    ([1, 0], 'LocalMARegressor')
    """

    json_names: ClassVar[dict[str, str]] = {"estimator": "class"}

    estimator: str
    task: Literal["regression", "classification"]
    loss: str
    gate: str
    n_features: int
    n_outputs: int | None
    classes: list[Label] | None
    verdict: str | None
    candidates: list[CandidateSummary]

    @property
    def ranking(self) -> list[int]:
        """Positions of the candidates by mean weight, largest first."""
        weights = [candidate.mean_weight or 0.0 for candidate in self.candidates]
        return sorted(range(len(weights)), key=lambda m: -weights[m])


@dataclass(frozen=True)
class FeatureSummary(Record):
    """A column of X that the gate may see.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : {"numeric", "categorical", "date"}
        Kind of its values.
    n_missing : int
        Number of rows with a missing value.
    n_distinct : int
        Number of distinct values, without missing values.

    Examples
    --------
    >>> print(FeatureSummary("area", "numeric", n_missing=2, n_distinct=90))
    field         value
    name           area
    kind        numeric
    n_missing         2
    n_distinct       90
    """

    name: str
    kind: Kind
    n_missing: int
    n_distinct: int


@dataclass(frozen=True)
class DataSummary(Record):
    """The rows and their features.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    n_sampled : int
        Number of rows in the random sample behind effects, map, regions and importance.
    labelled : bool
        Whether the targets are known.
    weighted : bool
        Whether you passed sample weights.
    features : list of FeatureSummary
        Columns of X that the gate may see.

    Examples
    --------
    >>> area = FeatureSummary("area", "numeric", n_missing=0, n_distinct=90)
    >>> data = DataSummary(100, n_sampled=100, labelled=True, weighted=False, features=[area])
    >>> data.to_dict()["features"]
    [{'name': 'area', 'kind': 'numeric', 'n_missing': 0, 'n_distinct': 90}]
    """

    n_rows: int
    n_sampled: int
    labelled: bool
    weighted: bool
    features: list[FeatureSummary]


@dataclass(frozen=True)
class SampledRows(Record):
    """A random sample of n rows.

    Parameters
    ----------
    index : list of int
        Positions of the rows in X.
    candidates : list of str
        C names, with the sum of the others last.
    n_others : int
        Number of the other candidates.
    weights : list of list of float
        [n][C], weight of each candidate in each row.
    prediction : list of float, list or label, or None
        Prediction of the model for each row. None if the candidates cannot be run.
    target : list of float, list or label, or None
        Target of each row. None without y.
    support : list of float
        Share of the local weights that is used in each row.
    region : list of int or None
        Position of the region of each row in `Summary.regions`. The items are None without
        regions.
    features : dict of str -> list of str
        Values of each feature as text.

    Examples
    --------
    >>> rows = SampledRows([7, 9], ["a", "b"], 0, [[0.2, 0.8], [0.6, 0.4]], [1.0, 2.0], None,
    ...                    [1.0, 1.0], [None, None], {"area": ["20", "90"]})
    >>> rows.candidates[rows.leader(0)], rows.order
    ('b', [1, 0])
    """

    index: list[int]
    candidates: list[str]
    n_others: int
    weights: list[list[float]]
    prediction: list[Output] | None
    target: list[Output] | None
    support: list[float]
    region: list[int | None]
    features: dict[str, list[str]]

    def leader(self, row: int) -> int:
        """Return the position of the most trusted candidate of a row.

        Parameters
        ----------
        row : int
            Position of the row in this sample.

        Returns
        -------
        int
            The position in `candidates`.
        """
        weights = [weight or 0.0 for weight in self.weights[row]]
        return weights.index(max(weights))

    @property
    def order(self) -> list[int]:
        """The rows by region, then by most trusted candidate, then by its weight."""
        largest = [max(weight or 0.0 for weight in weights) for weights in self.weights]
        return sorted(
            range(len(self.index)),
            key=lambda row: (self.region[row] or 0, self.leader(row), -largest[row]),
        )


@dataclass(frozen=True)
class Summary(Record):
    """A fitted model on some rows.

    A part that cannot be made is None. With many candidates, effects, map, regions and rows name
    the most trusted ones and put the sum of the others last, as "42 others". If the weights do
    not vary between rows, effects, regions and importance are empty, and map and region_errors
    are None.

    Parameters
    ----------
    schema : int
        Version of the dict of `to_dict`.
    verdict : str
        Cautions, if there are any, then the result of the fit.
    cautions : list of Caution
        Reasons to doubt the model: those of the fit and those of these rows.
    model : ModelSummary
        The model and its candidates.
    spread : Spread or None
        How many candidates share the weight.
    support : Support or None
        Whether the rows are like the labelled sample.
    data : DataSummary
        The rows and their features.
    comparison : ComparisonDisplay or None
        None without y or predictions.
    effects : WeightEffectDisplay
        Computed from a random sample, as are map, regions, importance and rows.
    map : WeightMapDisplay or None
        None with fewer than two features.
    regions : RegionsDisplay or None
        Where each candidate is trusted most.
    importance : ImportanceDisplay
        Which features change the weights.
    region_errors : ErrorByRegionDisplay or None
        None without y or predictions.
    path : LocalityPathDisplay or None
        None unless gate="auto".
    reliability : ReliabilityDisplay or None
        None for a regression.
    rows : SampledRows or None
        Some rows with their weights.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="equal").fit(X, X[:, 0] ** 2)
    >>> print(summarize(model, X))
    candidate  global_weight  mean_weight  most_trusted
    a                      1            1             1
    The weights come from EqualGate, which does not judge itself.
    """

    schema: int
    verdict: str
    cautions: list[Caution]
    model: ModelSummary
    spread: Spread | None
    support: Support | None
    data: DataSummary
    comparison: ComparisonDisplay | None
    effects: WeightEffectDisplay
    map: WeightMapDisplay | None
    regions: RegionsDisplay | None
    importance: ImportanceDisplay
    region_errors: ErrorByRegionDisplay | None
    path: LocalityPathDisplay | None
    reliability: ReliabilityDisplay | None
    rows: SampledRows | None

    @property
    def advice(self) -> Advice:
        """The verdict without the cautions: a recommendation and its evidence."""
        return Advice.of(self.verdict, self.cautions)

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> Self:
        """Restore the summary from `to_dict`, or from its JSON.

        Parameters
        ----------
        values : dict
            The dict of `to_dict`.

        Returns
        -------
        Summary
            The summary.
        """
        received: Json = type(values).__name__
        if isinstance(values, Mapping):
            received = values.get("schema")
        if received != SCHEMA:
            raise InvalidInputError(
                f"A page needs a summary of schema {SCHEMA}; received {received!r}. "
                "Make one with localma.inspection.summarize(model, X, y)."
            )
        return super().from_dict(values)

    def _columns(self) -> Columns:
        """Return a row per candidate: its weights and, if y is known, its loss."""
        candidates = self.model.candidates
        table: Columns = {
            "candidate": [candidate.name for candidate in candidates],
            "global_weight": [candidate.global_weight for candidate in candidates],
            "mean_weight": [candidate.mean_weight for candidate in candidates],
            "most_trusted": [candidate.most_trusted for candidate in candidates],
        }
        if self.comparison is not None:
            entries = self.comparison.entries[: len(candidates)]
            table[self.comparison.loss] = [entry.loss.value for entry in entries]
        return table

    def _notes(self) -> list[str]:
        """Return the verdict, then the regions."""
        notes = [self.verdict]
        if self.regions is not None:
            notes += [f"- {region.sentence}" for region in self.regions.regions]
        return notes


def summarize(
    model: Model,
    X: Table,
    y: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    predictions: Predictions = None,
    groups: ArrayLike | None = None,
    features: Sequence[str | int] | None = None,
    max_rows: int = MOST_ROWS,
    control: bool = True,
    random_state: int = 0,
) -> Summary:
    """Summarize a fitted model on some rows.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X : table or array
        The n rows, preferably rows that the model was not fitted on.
    y : array of shape (n,) or (n, K), optional
        Targets or labels, needed for the comparison.
    sample_weight : array of shape (n,), optional
        The weight of each row. By default all weights are one.
    predictions : dict or array, optional
        The candidates' predictions for X. By default the candidates are run.
    groups : array of shape (n,), optional
        The group of each row. Standard errors are then at least those between groups.
    features : list of str or int, optional
        Names, or positions in X, of the features whose effects are computed. The first two make
        the map. By default the most important ones.
    max_rows : int, default=5000
        Size of the random sample behind effects, map, regions and importance.
    control : bool, default=True
        Whether to also cross-fit a gate over constants, which is the slowest part.
    random_state : int, default=0
        Seed of the random samples and of the control.

    Returns
    -------
    Summary
        One record of all parts.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
    >>> model = model.set_params(random_state=0).fit(X, np.abs(X[:, 0]))
    >>> summary = summarize(model, X, np.abs(X[:, 0]), control=False)
    >>> [region.sentence for region in summary.regions.regions]
    ['left is trusted most where x0 <= 0', 'right is trusted most where x0 > 0']
    """
    rows = observe(model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups)
    comparison = errors = curves = path = None
    # The parts over all rows come first, so that no candidate predicts a row twice.
    has_losses = rows.y is not None and rows.has_predictions
    if has_losses:
        comparison = compare(rows, control=control, random_state=random_state)
    if has_losses and rows.is_classification:
        curves = reliability(rows)
    if model.gate_.evidence is not None:
        path = locality_path(model)
    about_model, about_spread, about_support = _model_summary(rows), spread(rows), support(rows)
    sample = rows.sample(max_rows, random_state=random_state)
    boxes = find_regions(sample, random_state=random_state)
    regions = describe_regions(sample, boxes)
    ranked = importance(sample, random_state=random_state)
    if features is None:
        features = ranked.features[:EFFECTS]
    chosen = choose_features(sample, features, EFFECTS)
    if has_losses and regions.regions:
        errors = region_errors(rows, boxes)
    return Summary(
        schema=SCHEMA,
        verdict=_verdict(model, comparison),
        cautions=_cautions(model, comparison),
        model=about_model,
        spread=about_spread,
        support=about_support,
        data=_data_summary(rows, len(sample)),
        comparison=comparison,
        effects=weight_effects(sample, chosen),
        map=_map(sample, chosen, ranked.features),
        regions=regions,
        importance=ranked,
        region_errors=errors,
        path=path,
        reliability=curves,
        rows=_sampled_rows(
            sample.sample(ROWS_SHOWN, random_state=random_state), boxes if regions.regions else None
        ),
    )


def _map(sample: Observed, chosen: list[Feature], ranked: Sequence[str]) -> WeightMapDisplay | None:
    """Map the first two chosen features, or the most important ones."""
    if len(sample.features) < 2 or not sample.weights_vary:
        return None
    names = [feature.name for feature in chosen]
    names += [name for name in ranked if name not in names]
    return weight_map(sample, *choose_features(sample, names[:2], 2))


def _cautions(model: Model, comparison: ComparisonDisplay | None) -> list[Caution]:
    return list(model.cautions_ if comparison is None else comparison.cautions)


def _verdict(model: Model, comparison: ComparisonDisplay | None) -> str:
    """Return the main sentence: cautions of these rows, then the result of the fit."""
    if model.gate_.evidence is None and comparison is not None:
        return comparison.sentence
    of_fit = [caution.sentence for caution in model.cautions_]
    if model.gate_.evidence is None:
        gate = type(model.gate_).__name__
        return " ".join([*of_fit, f"The weights come from {gate}, which does not judge itself."])
    sentences = [caution.sentence for caution in _cautions(model, comparison)]
    new = [sentence for sentence in sentences if sentence not in of_fit]
    if new:
        new.append(FIT_FOUND)
    return " ".join([*new, model.verdict_])


def _model_summary(observed: Observed) -> ModelSummary:
    model = observed.model
    classes = n_outputs = verdict = None
    task: Literal["regression", "classification"] = "regression"
    if observed.is_classification:
        task, classes = "classification", model.classes_.tolist()
    if observed.has_predictions:
        n_outputs = observed.predictions[0, 0].size
    if model.gate_.evidence is not None:
        verdict = model.verdict_
    return ModelSummary(
        estimator=type(model).__name__,
        task=task,
        loss=model.loss_.name,
        gate=type(model.gate_).__name__,
        n_features=len(observed.features),
        n_outputs=n_outputs,
        classes=classes,
        verdict=verdict,
        candidates=[_candidate_summary(observed, m) for m in range(len(observed.names))],
    )


def _candidate_summary(observed: Observed, m: int) -> CandidateSummary:
    kind, cost, pool = "predictions", None, observed.model.pool_
    if pool is not None:
        kind, cost = pool.candidates[m].kind, pool.costs[m]
    return CandidateSummary(
        name=observed.names[m],
        kind=kind,
        cost=cost,
        global_weight=float(observed.model.global_weights_[m]),
        mean_weight=float(observed.mean(observed.weights[:, m])),
        most_trusted=float(observed.mean(observed.weights.argmax(axis=1) == m)),
    )


def _data_summary(observed: Observed, n_sampled: int) -> DataSummary:
    return DataSummary(
        n_rows=len(observed),
        n_sampled=n_sampled,
        labelled=observed.y is not None,
        weighted=observed.weighted,
        features=[
            FeatureSummary(
                name=feature.name,
                kind=feature.kind,
                n_missing=int(feature.missing.sum()),
                n_distinct=len(feature.present),
            )
            for feature in observed.features
        ],
    )


def _sampled_rows(sample: Observed, regions: Regions | None) -> SampledRows:
    prediction = target = None
    region: list[int | None] = [None] * len(sample)
    if regions is not None:
        region = regions.region_of_row(sample).tolist()
    if sample.has_predictions:
        prediction = sample.answers.tolist()
    if sample.y is not None:
        target = sample.y.tolist()
    return SampledRows(
        index=sample.index.tolist(),
        candidates=list(sample.named.labels),
        n_others=sample.named.n_others,
        weights=sample.named.select(sample.weights).tolist(),
        prediction=prediction,
        target=target,
        support=sample.support.tolist(),
        region=region,
        features={
            feature.name: [feature.show(value) for value in feature.values]
            for feature in sample.features
        },
    )


def effective_number(weights: Array) -> Array:
    """``exp(-sum_m w_m log w_m)``: from 1 (one has all the weight) to M: (..., M) -> (...).

    >>> effective_number(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).round(6).tolist()
    [2.0, 1.0]
    """
    return np.exp(-xlogy(weights, weights).sum(axis=-1))


def spread(observed: Observed) -> Spread:
    """Compute the effective number of candidates and their disagreement."""
    numbers = effective_number(observed.weights)
    low, median, high = np.quantile(numbers[observed.sample_weight > 0], [0.1, 0.5, 0.9]).tolist()
    effective = EffectiveNumber(
        mean=float(observed.mean(numbers)),
        low=low,
        median=median,
        high=high,
        of_global=float(effective_number(observed.model.global_weights_)),
        n_candidates=len(observed.names),
    )
    if not observed.has_predictions:
        return Spread(effective, None)
    return Spread(effective, disagreement(observed))


def disagreement(observed: Observed) -> Disagreement:
    """Measure how far the candidates differ about a row.

    Regression: ``sqrt(mean_i sum_m w_m(x_i) (f_m(x_i) - f(x_i))^2)``, so candidates with zero
    weight do not count. Classification: share of rows whose most probable class is not the same
    for all candidates.
    """
    if observed.is_classification:
        labels = observed.predictions.argmax(axis=2)
        share = float(observed.mean((labels != labels[:, :1]).any(axis=1)))
        sentence = f"The candidates predict different classes in {percent(share)} of rows."
        return Disagreement("share_of_rows", share, None, sentence)
    n, M = observed.weights.shape
    P, f = observed.predictions.reshape(n, M, -1), observed.mixture.reshape(n, 1, -1)
    variance = observed.mean((observed.used_weights[:, :, np.newaxis] * (P - f) ** 2).sum(axis=1))
    deviation = float(np.sqrt(variance.mean()))
    outputs = None
    if len(variance) > 1:
        outputs = np.sqrt(variance).tolist()
    sentence = (
        "In a typical row the candidates differ from the combined prediction by "
        f"{readable(deviation)} (root mean square, weighted)."
    )
    return Disagreement("standard_deviation", deviation, outputs, sentence)


def support(observed: Observed) -> Support:
    """Measure the share of rows that are unlike the labelled sample."""
    guarded = getattr(observed.model.gate_, "support_", None) is not None
    outside = observed.support < 0.5
    sentence = "All rows lie within the labelled sample, or close to it."
    if not guarded:
        sentence = "This gate does not check whether a row is like the labelled sample."
    elif outside.any():
        sentence = (
            f"{outside.sum()} of {len(observed)} rows lie outside the labelled sample, where the "
            "global weights are used."
        )
    return Support(
        guarded=guarded,
        mean=float(observed.mean(observed.support)),
        outside=float(observed.mean(outside)),
        partly=float(observed.mean(observed.support < 0.99)),
        sentence=sentence,
    )
