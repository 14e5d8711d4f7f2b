"""Everything there is to say about a fitted model on some rows, as one dict of plain values.

`summarize(model, X, y)` gives what follows; ``json.dumps(summary, allow_nan=False)`` works. A
number that does not exist (a standard error from one row, an infinite shrinkage) is None. A part
that cannot be made is None, or an empty list where it is a list. Each part is also a function of
its own over `observe(model, X, y)`, and each picture takes its part.

With many candidates, parts marked (T) name the most trusted ones, in the order of the pool, and
put the sum of the rest last, as "42 others": their lists "candidates" and "weights" have the same
order, and "n_others" is 42, or 0 where everybody is named.

::

    schema        1
    verdict       str, first to be read: cautions, if there are any, then what the fit found
    cautions      [{kind, sentence, names}], reasons to doubt the model: those of the fit and those
                  of these rows; see `localma.cautions`
    model         {class, task: "regression" | "classification", loss, gate, n_features,
                   n_outputs, classes: [label] | None, verdict: str | None,
                   candidates: [{name, kind, cost, global_weight, mean_weight,
                                 most_trusted: share of rows}]}        all M, in order of the pool
    data          {n_rows, n_sampled: rows behind all parts but comparison, spread, support,
                   reliability, region_errors; labelled: bool, weighted: bool,
                   features: [{name, kind: "numeric" | "categorical" | "date", n_missing,
                               n_distinct}]}                           what the gate may see of X
    comparison    None without y, else
                  {loss, metrics: [name], n_rows, n_groups: int | None,
                   best: place in entries, best_candidate: place,
                   entries: [{kind: "candidate" | "equal" | "global" | "local" | "control",
                              name,
                              loss: {value, standard_error},
                              metrics: {name: {value, standard_error}},
                              to_best, to_model: {value, standard_error, is_clear}}],
                   control: {sentence, name | None where there is none, constants, n_rows,
                             n_fitted},
                   constant: None with less than 10 rows, or if an earlier version fitted, else
                             {name, prediction: [K], loss, to_model, is_idle, is_worse},
                   gaps: [{name, sample, here: {value, standard_error}, is_apart, sentence}],
                   mean_support: float | None if the weights are constant,
                   cautions: [{kind, sentence, names}], claim,
                   sentence: the cautions, then the claim}
                  `kind` tells "equal", "global", "local" (the model itself) and "control" apart
                  from candidates of the same name; differences are this entry's loss minus that
                  of the best or of the model, paired by row, so positive is worse. Metrics are
                  rmse, mae, r2 or accuracy, log_loss, brier. `gaps` are candidates whose loss here
                  is clearly larger than on the labelled sample. Standard errors, here and in
                  region_errors and reliability, are between groups where there are such.
                  `constant` is the best constant prediction of the labelled sample (mean, median,
                  shares of the classes), on these rows: "is_idle" if the model is not better,
                  "is_worse" if it is clearly worse. A difference is clear if it is more than two
                  standard errors and more than 0.1 % of the loss.
    effects       [effect] (T), one per feature, most important first:
                  {feature, kind, candidates: [C], n_others, labels: [B],
                   centres: [B] | None for categories, counts: [B],
                   weights: [C][B], low: [C][B] | None, high: [C][B] | None}
                  mean weight of the rows of each bin; low and high the mean of their bands
    map           None with fewer than two features, else (T)
                  {features: [2], kinds: [2], candidates: [C], n_others,
                   labels: [[Bx], [By]], centres: [[Bx] | None, [By] | None],
                   counts: [By][Bx], weights: [C][By][Bx], most_trusted: [By][Bx] place | None}
                  None in cells without rows; `most_trusted` counts in model.candidates
    Without weights that vary between rows (by more than 0.001), effects, regions.regions and
    importance are empty, and map and region_errors are None.

    regions       (T) {candidates: [C], n_others,
                   regions: [{sentence, where, conditions: [{feature, text}], n, share,
                              most_trusted: name, weights: [C]}],
                   faithfulness: {r2 | None, agreement, n_held_out}, sentence}
                  `where` is the sentence without its subject, such as "area > 80 and rooms <= 3"
    importance    [{feature, value, standard_error, relative}], largest first; value is the share
                  of weight that moves when the feature is shuffled, relative sums to one
    region_errors None without y, else
                  {loss, entries: [{kind, name}],
                   regions: [{where, n, best: place in entries,
                              loss: [E], standard_error: [E],
                              to_model: [E], to_model_error: [E]}]}
                  entries are the candidates that (T) names, then equal, global and local
    path          None unless gate="auto", else
                  {gate, shrinkage (None is infinite: constant weights), risk, standard_error,
                   weight: columns of one table,
                   gain: {value, standard_error, global_risk, risk, over_constant,
                          over_constant_error, is_clear, is_local}, verdict}
    spread        {effective: {mean, low, median, high, of_global, n_candidates},
                   disagreement: {kind: "standard_deviation" | "share_of_rows", value,
                                  outputs: [K] | None, sentence} | None}
                  disagreement is None where the predictions cannot be had
    reliability   None without y or for regression, else
                  {kind: "positive" | "confidence", positive: label | None,
                   curves: [{kind: "local" | "global", name, predicted: [B], observed: [B],
                             standard_error: [B], counts: [B], ece, brier}],
                   sentence}
    support       {guarded: bool, mean, outside: share of rows with support below one half,
                   partly: share below 0.99, sentence}
    rows          some rows to look at: {index: [n], weights: [n][C], candidates: [C], n_others,
                   prediction: [n] numbers, lists or labels | None, target: [n] | None,
                   support: [n], region: [n] place in regions.regions,
                   features: {name: [n] values as shown}}               (T)

`explain(model, X, row)` gives
``{row, prediction, probabilities: {label: p} | None, support, region: sentence | None,
candidates: [{name, weight, low, high, global_weight, prediction, probabilities, contribution}],
sentence}``, where `contribution` is weight times prediction, for classification that of the
probability of the predicted class; contributions sum to the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from localma.inspection.columns import Feature
from localma.inspection.comparison import compare
from localma.inspection.effects import pick_features, weight_effects
from localma.inspection.importance import importance
from localma.inspection.observed import MOST_ROWS, Model, Observed, observe
from localma.inspection.path import locality_path
from localma.inspection.plain import plain
from localma.inspection.region_errors import region_errors
from localma.inspection.regions import Regions, describe_regions, find_regions
from localma.inspection.reliability import reliability
from localma.inspection.shown import most_trusted
from localma.inspection.spread import spread, support
from localma.inspection.weight_map import weight_map

SCHEMA = 1
EFFECTS = 8
ROWS_SHOWN = 200


def summarize(
    model: Model,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    predictions: Any = None,
    groups: Any = None,
    features: Sequence[str | int] | None = None,
    max_rows: int = MOST_ROWS,
    control: bool = True,
    random_state: int = 0,
) -> dict[str, Any]:
    """Say everything there is to say about a fitted model on some rows.

    Parameters
    ----------
    model : a fitted LocalMARegressor or LocalMAClassifier
    X : n rows, best such that the model was not fitted on
    y : (n,) or (n, K), optional; without it there is no comparison
    sample_weight : (n,), optional
    predictions : what the candidates say about X, where they are not to be run here
    groups : (n,) what each row belongs to, optional; standard errors are then between groups
    features : names, or positions in X, of the features whose effects are wanted; the first two
        make the map. By default the most important ones.
    max_rows : rows, drawn at random, behind effects, map, regions and importance
    control : whether to cross-fit a gate over constants, which takes longest of all
    random_state : of the draws and of the control

    Returns
    -------
    dict of plain values, described at the head of this module

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
    >>> model = model.set_params(random_state=0).fit(X, np.abs(X[:, 0]))
    >>> summary = summarize(model, X, np.abs(X[:, 0]), control=False)
    >>> [region["sentence"] for region in summary["regions"]["regions"]]
    ['left is trusted most where x0 <= 0', 'right is trusted most where x0 > 0']
    """
    seen = observe(model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups)
    judged = seen.y is not None and seen.has_predictions
    # First what needs all rows, so that nobody is asked about a row twice.
    table = compare(seen, control=control, random_state=random_state) if judged else None
    of_all = {"model": _about_model(seen), "spread": spread(seen), "support": support(seen)}
    some = seen.sample(max_rows, random_state=random_state)
    found = find_regions(some, random_state=random_state)
    regions = describe_regions(some, found)
    ranked = importance(some, random_state=random_state)
    names = [row["feature"] for row in ranked]
    chosen = pick_features(some, features, names, EFFECTS)
    drawn = len(some.features) > 1 and some.weights_vary
    return {
        "schema": SCHEMA,
        "verdict": _verdict(seen, table),
        "cautions": plain(table["cautions"] if table else list(map(asdict, model.cautions_))),
        **of_all,
        "data": _about_data(seen, some),
        "comparison": table,
        "effects": weight_effects(some, chosen),
        "map": weight_map(some, *_two(some, chosen, names)) if drawn else None,
        "regions": regions,
        "importance": ranked,
        "region_errors": region_errors(seen, found) if judged and regions["regions"] else None,
        "path": None if model.gate_.evidence is None else locality_path(model),
        "reliability": reliability(seen) if judged and seen.is_classification else None,
        "rows": _some_rows(
            some.sample(ROWS_SHOWN, random_state=random_state),
            found if regions["regions"] else None,
        ),
    }


def _two(some: Observed, chosen: list[Feature], ranked: Sequence[str]) -> list[Feature]:
    """Two features for the map: the chosen ones, then the most important of the others."""
    taken = [feature.name for feature in chosen]
    others = [name for name in ranked if name not in taken]
    return [*chosen, *pick_features(some, None, others, 2)][:2]


def _verdict(seen: Observed, table: dict[str, Any] | None) -> str:
    """What to read first: what these rows warn of, then what the fit found."""
    model = seen.model
    if model.gate_.evidence is not None:
        known = [caution.sentence for caution in model.cautions_]
        cautions = [] if table is None else [c["sentence"] for c in table["cautions"]]
        new = [sentence for sentence in cautions if sentence not in known]
        return " ".join([*new, "The fit found:", model.verdict_] if new else [model.verdict_])
    if table is not None:
        return str(table["sentence"])
    said = f"The weights come from {type(model.gate_).__name__}, which does not judge itself."
    return " ".join([*(caution.sentence for caution in model.cautions_), said])


def _about_model(seen: Observed) -> dict[str, Any]:
    model, means = seen.model, seen.mean(seen.weights)
    leaders = seen.weights.argmax(axis=1)
    pool = model.pool_
    return plain(
        {
            "class": type(model).__name__,
            "task": "classification" if seen.is_classification else "regression",
            "loss": model.loss_.name,
            "gate": type(model.gate_).__name__,
            "n_features": len(seen.features),
            "n_outputs": _n_outputs(seen),
            "classes": model.classes_ if seen.is_classification else None,
            "verdict": None if model.gate_.evidence is None else model.verdict_,
            "candidates": [
                {
                    "name": name,
                    "kind": "predictions" if pool is None else pool.candidates[m].kind,
                    "cost": None if pool is None else pool.costs[m],
                    "global_weight": model.global_weights_[m],
                    "mean_weight": means[m],
                    "most_trusted": seen.mean((leaders == m).astype(np.float64)),
                }
                for m, name in enumerate(seen.names)
            ],
        }
    )


def _n_outputs(seen: Observed) -> int | None:
    if not seen.has_predictions:
        return None
    return 1 if seen.predictions.ndim == 2 else int(seen.predictions.shape[2])


def _about_data(seen: Observed, some: Observed) -> dict[str, Any]:
    return {
        "n_rows": len(seen),
        "n_sampled": len(some),
        "labelled": seen.y is not None,
        "weighted": seen.weighted,
        "features": [
            {
                "name": feature.name,
                "kind": feature.kind,
                "n_missing": int(np.isnan(feature.values).sum()),
                "n_distinct": len(feature.present),
            }
            for feature in seen.features
        ],
    }


def _some_rows(some: Observed, found: Regions | None) -> dict[str, Any]:
    shown = most_trusted(some.names, some.mean(some.weights))
    return plain(
        {
            "index": some.index,
            "candidates": shown.labels,
            "n_others": shown.n_others,
            "weights": shown.of(some.weights),
            "prediction": some.answers if some.has_predictions else None,
            "target": some.y,
            "support": some.support,
            "region": [None] * len(some) if found is None else found.of(some.features, len(some)),
            "features": {
                feature.name: [feature.show(value) for value in feature.values]
                for feature in some.features
            },
        }
    )
