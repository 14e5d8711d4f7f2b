"""The summary of a fitted model on some rows: one record of all parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from localma.checks.cautions import Caution
from localma.errors import InvalidInputError
from localma.inspection.columns import Feature, Kind
from localma.inspection.comparison import ComparisonDisplay, compare
from localma.inspection.effects import WeightEffectDisplay, pick_features, weight_effects
from localma.inspection.importance import ImportanceDisplay, importance
from localma.inspection.observed import MOST_ROWS, Model, Observed, observe
from localma.inspection.path import LocalityPathDisplay, locality_path
from localma.inspection.record import Columns, Label, Output, Record
from localma.inspection.region_errors import ErrorByRegionDisplay, region_errors
from localma.inspection.regions import Regions, RegionsDisplay, describe_regions, find_regions
from localma.inspection.reliability import ReliabilityDisplay, reliability
from localma.inspection.shown import most_trusted
from localma.inspection.spread import Spread, Support, spread, support
from localma.inspection.weight_map import WeightMapDisplay, weight_map

SCHEMA = 1
EFFECTS = 8
ROWS_SHOWN = 200


@dataclass(frozen=True)
class CandidateSummary(Record):
    """A candidate; most_trusted : share of rows where its weight is the largest."""

    name: str
    kind: str
    cost: float | None
    global_weight: float
    mean_weight: float
    most_trusted: float


@dataclass(frozen=True)
class ModelSummary(Record):
    """The model; candidates : all M, in the order of the pool."""

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


@dataclass(frozen=True)
class FeatureSummary(Record):
    """A column of X that the gate may see."""

    name: str
    kind: Kind
    n_missing: int
    n_distinct: int


@dataclass(frozen=True)
class DataSummary(Record):
    """The rows; n_sampled : rows behind effects, map, regions and importance."""

    n_rows: int
    n_sampled: int
    labelled: bool
    weighted: bool
    features: list[FeatureSummary]


@dataclass(frozen=True)
class SampledRows(Record):
    """Some rows to look at, one by one.

    index : positions; weights : [n][C]; region : positions in `Summary.regions`; features : the
    values of each feature as text.
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


@dataclass(frozen=True)
class Summary(Record):
    """A fitted model on some rows.

    A part that cannot be made is None. With many candidates, effects, map, regions and rows name
    the most trusted ones and put the sum of the others last, as "42 others". If the weights do
    not vary between rows, effects, regions and importance are empty, and map and region_errors
    are None.

    Attributes
    ----------
    schema : version of the dict of `to_dict`
    verdict : cautions, if there are any, then the result of the fit
    cautions : reasons to doubt the model: those of the fit and those of these rows
    model, spread, support, data : always there
    comparison, region_errors : None without y or predictions
    effects, importance, regions, rows : from rows drawn at random
    map : None with fewer than two features
    path : None unless gate="auto"
    reliability : None for a regression
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

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the summary again from `to_dict`, or from its JSON."""
        if not isinstance(values, Mapping) or values.get("schema") != SCHEMA:
            received: object = type(values).__name__
            if isinstance(values, Mapping):
                received = values.get("schema")
            raise InvalidInputError(
                f"A page is made from a summary of schema {SCHEMA}; received {received!r}. "
                "Make one with localma.inspection.summarize(model, X, y)."
            )
        return super().from_dict(values)

    def columns(self) -> Columns:
        """A row per candidate: its weights and, if y is known, its loss."""
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

    def notes(self) -> list[str]:
        """The verdict, then the regions."""
        regions = [] if self.regions is None else self.regions.regions
        return [self.verdict, *(f"- {region.sentence}" for region in regions)]


def summarize(
    model: Model,
    X: Any,
    y: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    predictions: Any = None,
    groups: ArrayLike | None = None,
    features: Sequence[str | int] | None = None,
    max_rows: int = MOST_ROWS,
    control: bool = True,
    random_state: int = 0,
) -> Summary:
    """Summarize a fitted model on some rows.

    Parameters
    ----------
    model : a fitted LocalMARegressor or LocalMAClassifier
    X : n rows, best such that the model was not fitted on
    y : (n,) or (n, K), optional; without it there is no comparison
    sample_weight : (n,), optional
    predictions : the candidates' predictions for X, if they are not to be run here
    groups : (n,) the group of each row, optional; standard errors are then between groups
    features : names, or positions in X, of the features whose effects are wanted; the first two
        make the map. By default the most important ones.
    max_rows : rows, drawn at random, behind effects, map, regions and importance
    control : whether to cross-fit a gate over constants, which takes longest of all
    random_state : of the draws and of the control

    Returns
    -------
    Summary

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
    seen = observe(model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups)
    has_losses = seen.y is not None and seen.has_predictions
    # The parts over all rows come first, so that no candidate predicts a row twice.
    comparison = compare(seen, control=control, random_state=random_state) if has_losses else None
    about_model, about_spread, about_support = _about_model(seen), spread(seen), support(seen)
    sample = seen.sample(max_rows, random_state=random_state)
    found = find_regions(sample, random_state=random_state)
    regions = describe_regions(sample, found)
    ranked = importance(sample, random_state=random_state)
    chosen = pick_features(sample, features, ranked.features, EFFECTS)
    errors = region_errors(seen, found) if has_losses and regions.regions else None
    some_rows = sample.sample(ROWS_SHOWN, random_state=random_state)
    return Summary(
        schema=SCHEMA,
        verdict=_verdict(seen, comparison),
        cautions=list(model.cautions_) if comparison is None else comparison.cautions,
        model=about_model,
        spread=about_spread,
        support=about_support,
        data=_about_data(seen, len(sample)),
        comparison=comparison,
        effects=weight_effects(sample, chosen),
        map=_map(sample, chosen, ranked.features),
        regions=regions,
        importance=ranked,
        region_errors=errors,
        path=locality_path(model) if model.gate_.evidence is not None else None,
        reliability=reliability(seen) if has_losses and seen.is_classification else None,
        rows=_sampled_rows(some_rows, found if regions.regions else None),
    )


def _map(sample: Observed, chosen: list[Feature], ranked: Sequence[str]) -> WeightMapDisplay | None:
    """The map of the first two chosen features, or of the most important ones."""
    if len(sample.features) < 2 or not sample.weights_vary:
        return None
    names = [feature.name for feature in chosen]
    unchosen = [name for name in ranked if name not in names]
    across, up = [*chosen, *pick_features(sample, None, unchosen, 2)][:2]
    return weight_map(sample, across, up)


def _verdict(seen: Observed, comparison: ComparisonDisplay | None) -> str:
    """The sentence to read at the beginning: cautions of these rows, then the result of the fit."""
    model = seen.model
    if model.gate_.evidence is not None:
        of_fit = [caution.sentence for caution in model.cautions_]
        cautions = [] if comparison is None else comparison.cautions
        new = [caution.sentence for caution in cautions if caution.sentence not in of_fit]
        if new:
            return " ".join([*new, "The fit found:", model.verdict_])
        return model.verdict_
    if comparison is not None:
        return comparison.sentence
    source = f"The weights come from {type(model.gate_).__name__}, which does not judge itself."
    return " ".join([*(caution.sentence for caution in model.cautions_), source])


def _about_model(seen: Observed) -> ModelSummary:
    model = seen.model
    return ModelSummary(
        estimator=type(model).__name__,
        task="classification" if seen.is_classification else "regression",
        loss=model.loss_.name,
        gate=type(model.gate_).__name__,
        n_features=len(seen.features),
        n_outputs=_n_outputs(seen),
        classes=model.classes_.tolist() if seen.is_classification else None,
        verdict=model.verdict_ if model.gate_.evidence is not None else None,
        candidates=[_about_candidate(seen, m) for m in range(len(seen.names))],
    )


def _about_candidate(seen: Observed, m: int) -> CandidateSummary:
    pool = seen.model.pool_
    leads = seen.weights.argmax(axis=1) == m
    return CandidateSummary(
        name=seen.names[m],
        kind="predictions" if pool is None else pool.candidates[m].kind,
        cost=None if pool is None else pool.costs[m],
        global_weight=float(seen.model.global_weights_[m]),
        mean_weight=float(seen.mean(seen.weights[:, m])),
        most_trusted=float(seen.mean(leads.astype(np.float64))),
    )


def _n_outputs(seen: Observed) -> int | None:
    if not seen.has_predictions:
        return None
    return 1 if seen.predictions.ndim == 2 else int(seen.predictions.shape[2])


def _about_data(seen: Observed, n_sampled: int) -> DataSummary:
    return DataSummary(
        n_rows=len(seen),
        n_sampled=n_sampled,
        labelled=seen.y is not None,
        weighted=seen.weighted,
        features=[
            FeatureSummary(
                name=feature.name,
                kind=feature.kind,
                n_missing=int(np.isnan(feature.values).sum()),
                n_distinct=len(feature.present),
            )
            for feature in seen.features
        ],
    )


def _sampled_rows(sample: Observed, found: Regions | None) -> SampledRows:
    shown = most_trusted(sample.names, sample.mean(sample.weights))
    region: list[int | None] = [None] * len(sample)
    if found is not None:
        region = found.of(sample.features, len(sample)).tolist()
    return SampledRows(
        index=sample.index.tolist(),
        candidates=list(shown.labels),
        n_others=shown.n_others,
        weights=shown.of(sample.weights).tolist(),
        prediction=sample.answers.tolist() if sample.has_predictions else None,
        target=None if sample.y is None else sample.y.tolist(),
        support=sample.support.tolist(),
        region=region,
        features={
            feature.name: [feature.show(value) for value in feature.values]
            for feature in sample.features
        },
    )
