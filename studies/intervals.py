"""Prediction intervals: their coverage and width, next to MAPIE around the same model.

Cells are simulated errors at several sizes of the labelled sample, and every data set of the study
"safety" with at least 3,000 rows. Both methods see the same labelled rows and the same candidates.
MAPIE 1.6 runs CV+ with absolute errors: it fits the whole `LocalMARegressor` on each of five
folds. Its ends are cut to the range of the target, as ours are. Coverage and width are means over
test rows, weighted as in the study "safety".

A region is a part of the test rows by their first input (the area of a flat, the age of a driver).
The parts have equal sizes of at least 1,000 rows, and there are at most four of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import Column, LocalMARegressor
from localma.errors import InvalidInputError
from localma.losses import get_loss
from studies.findings import Finding, NotRunError, Results
from studies.harness import Cell, Study, Table, grid
from studies.safety import DATA_SETS
from studies.safety_data import Part, data_folder

Array = NDArray[np.floating]
Metrics = dict[str, float]

METHODS = ("localma", "mapie")
LEVEL = 0.9
SIZES = (200, 1000, 5000, 12_000)
MOST_COMPARED = 1000
"""Beyond this size MAPIE is not run on simulations: it fits six models for each replicate."""
N_TEST = 4000
REGION_ROWS, MOST_REGIONS = 1000, 4
OVERALL, IN_REGIONS, WIDTH = 0.015, 0.04, 1.05
"""Bars: distance of the coverage from the level, overall and in each region; ratio of widths."""

LEAST_ROWS = 3000
# Data sets of packages joined the study "safety" after this study had been run.
CHOSEN = tuple(
    name
    for name, data in DATA_SETS.items()
    if data.package is None
    and data.n_build + data.n_sample + data.n_test >= LEAST_ROWS
    and not data.classification
)

ERRORS = {
    "equal": "squared_error",
    "heavy tails": "squared_error",
    "grow with an input": "squared_error",
    "step": "squared_error",
    "of the candidates": "squared_error",
    "gamma": "gamma",
    "counts": "poisson",
}
"""Simulated errors and the losses of their models."""


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Coverage and width of some methods in one draw or split, keyed "method:metric"."""
    rng = np.random.default_rng(seed)
    if "data" in keys:
        data = DATA_SETS[keys["data"]]
        loss, (sample, test) = data.loss, data.split(data_folder(), rng)
    else:
        loss = ERRORS[keys["errors"]]
        sample, test = (simulate(keys["errors"], n, rng) for n in (keys["n"], N_TEST))
    random_state = int(seed.generate_state(2)[1]) // 2
    metrics = {}
    for method in methods:
        low, high = INTERVALS[method](loss, sample, test, random_state)
        for name, value in measure(test, low, high).items():
            metrics[f"{method}:{name}"] = value
    return metrics


def simulate(errors: str, n: int, rng: np.random.Generator) -> Part:
    """Rows with five inputs and three candidates, each with small errors in its own third."""
    X, normal = rng.uniform(-1, 1, (n, 5)), rng.standard_normal(n)
    truth = 2 * X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2]
    away = np.abs(X[:, :1] - np.array([-2 / 3, 0.0, 2 / 3])) > 1 / 3
    waves = np.stack([np.sin(5 * X[:, j] + 2 * X[:, j + 1] + j) for j in (1, 2, 3)], axis=1)
    P = truth[:, np.newaxis] + np.where(away, 2.8, 0.28) * waves
    if errors == "gamma":
        return Part(X, np.exp(0.5 * P), np.exp(0.5 * truth) * rng.gamma(2.0, 0.5, n), None)
    if errors == "counts":
        y = rng.poisson(0.3 * np.exp(0.5 * truth)).astype(float)
        return Part(X, 0.3 * np.exp(0.5 * P), y, None)
    scaled = {
        "equal": 0.6 * normal,
        "heavy tails": 0.4 * rng.standard_t(3, n),
        "grow with an input": 0.3 * (0.3 + 2 * np.abs(X[:, 4])) * normal,
        "step": np.where(X[:, 0] > 1 / 3, 1.2, 0.3) * normal,
        "of the candidates": 0.1 * normal,
    }
    return Part(X, P, truth + scaled[errors], None)


def ours(loss: str, sample: Part, test: Part, random_state: int) -> tuple[Array, Array]:
    """Intervals of `LocalMARegressor.predict_interval`."""
    model = LocalMARegressor(loss=loss, random_state=random_state)
    model.fit(sample.X, sample.y, sample.sample_weight, predictions=sample.P)
    return model.predict_interval(test.X, LEVEL, predictions=test.P)


def of_mapie(loss: str, sample: Part, test: Part, random_state: int) -> tuple[Array, Array]:
    """Intervals of MAPIE's CV+ around the same model, within the range of the target."""
    if find_spec("mapie") is None:
        raise InvalidInputError(
            "The method 'mapie' needs MAPIE, which is not installed. Run "
            "pip install -c constraints.txt -r studies/requirements-intervals.txt"
        )
    from mapie.regression import CrossConformalRegressor
    from sklearn.model_selection import KFold

    p = sample.X.shape[1]
    model = LocalMARegressor(
        {f"candidate {m + 1}": Column(p + m) for m in range(sample.P.shape[1])},
        loss=loss,
        gate_features=list(range(p)),
        random_state=random_state,
    )
    folds = KFold(5, shuffle=True, random_state=random_state % 2**32)
    conformal = CrossConformalRegressor(model, confidence_level=LEVEL, cv=folds)
    weight = {} if sample.sample_weight is None else {"sample_weight": sample.sample_weight}
    conformal.fit_conformalize(np.hstack([sample.X, sample.P]), sample.y, fit_params=weight)
    _, ends = conformal.predict_interval(np.hstack([test.X, test.P]))
    target = get_loss(loss).target
    low, high = (np.clip(ends[:, k, 0], target.low, target.high) for k in (0, 1))
    return low, high


INTERVALS = {"localma": ours, "mapie": of_mapie}


def measure(test: Part, low: Array, high: Array) -> Metrics:
    """Coverage and mean width over the test rows, and coverage in each region."""
    inside = (low <= test.y) & (test.y <= high)
    weight = np.ones(len(test.y)) if test.sample_weight is None else test.sample_weight
    metrics = {
        "coverage": float(np.average(inside, weights=weight)),
        "coverage_rows": float(inside.mean()),
        "width": float(np.average(high - low, weights=weight)),
    }
    number = min(len(test.y) // REGION_ROWS, MOST_REGIONS)
    order = np.argsort(test.X[:, 0], kind="stable")
    for k, rows in enumerate(np.array_split(order, number), start=1):
        metrics[f"region_{k}"] = float(np.average(inside[rows], weights=weight[rows]))
    return metrics


def summary(results: Results, method: str, **keys: Any) -> dict[str, float]:
    """Mean coverage of a method, the region that is farthest from the level, and its width."""
    regions = [
        results.mean(method, f"region_{k}", **keys)
        for k in range(1, MOST_REGIONS + 1)
        if results.has_run(method, f"region_{k}", **keys)
    ]
    return {
        "coverage": results.mean(method, "coverage", **keys),
        "rows": results.mean(method, "coverage_rows", **keys),
        "worst": max(regions, key=lambda coverage: abs(coverage - LEVEL)),
        "width": results.mean(method, "width", **keys),
    }


def ratio(results: Results, **keys: Any) -> float:
    """Mean width over that of MAPIE, in the replicates that both have run."""
    mine, theirs = results.paired("localma", "mapie", "width", **keys)
    return float(mine.mean() / theirs.mean())


def cells_run(results: Results, key: str) -> list[dict[str, Any]]:
    """Cells of simulations ("errors") or data sets ("data") in which our method has run."""
    found = [
        keys
        for method, metric, keys in results.entries()
        if (method, metric) == ("localma", "coverage") and key in keys
    ]
    if not found:
        raise NotRunError(f"No replicate with {key} has been run.")
    return found


def notes(results: Results) -> list[str]:
    """One line per cell: coverage, the worst region, and the ratio of widths."""
    lines = []
    for cell in STUDY.cells:
        keys = dict(cell.keys)
        if not results.has_run("localma", "coverage", **keys):
            continue
        both = [m for m in METHODS if results.has_run(m, "coverage", **keys)]
        found = {method: summary(results, method, **keys) for method in both}
        words = [
            f"{LABELS[method]} {one['coverage']:.1%} of the weight ({one['rows']:.1%} of the "
            f"rows), worst region {one['worst']:.1%}"
            for method, one in found.items()
        ]
        if "mapie" in found:
            words.append(f"width {ratio(results, **keys):.3f} x MAPIE")
        lines.append(f"{', '.join(str(value) for value in keys.values())}: {'; '.join(words)}")
    missing = (DATA_SETS[name].missing(data_folder()) for name in CHOSEN)
    return lines + [f"Left out: {reason}." for reason in missing if reason]


def _near(key: str, metric: str, limit: float) -> Finding:
    words = {"coverage": "overall", "worst": "in every region with at least 1,000 test rows"}
    where = {"data": "every data set", "errors": "every simulation"}
    return Finding(
        f"Coverage is within {100 * limit:g} points of 90 % {words[metric]}, in {where[key]}.",
        "aim",
        lambda results: all(
            abs(summary(results, "localma", **keys)[metric] - LEVEL) <= limit
            for keys in cells_run(results, key)
        ),
    )


def _not_wide(key: str, where: str) -> Finding:
    return Finding(
        f"The mean width is at most {WIDTH} times MAPIE's, in {where}.",
        "aim",
        lambda results: all(
            ratio(results, **keys) <= WIDTH
            for keys in cells_run(results, key)
            if keys.get("n", 0) <= MOST_COMPARED
        ),
    )


LABELS = {"localma": "localma", "mapie": "MAPIE (CV+)"}
_DATA = tuple(name for name in CHOSEN if not DATA_SETS[name].missing(data_folder()))
_SIMULATED = {"errors": tuple(ERRORS)}

STUDY = Study(
    name="intervals",
    title="Prediction intervals compared with MAPIE",
    cells=(
        *(
            cell
            for n in SIZES
            for cell in grid(METHODS[: 1 + (n <= MOST_COMPARED)], 10, errors=list(ERRORS), n=[n])
        ),
        *(Cell({"data": name}, METHODS, 20) for name in _DATA),
    ),
    run=run,
    tables=(
        Table("Coverage of 90 % intervals, simulations", "coverage", ("errors", "n"), METHODS,
              where=_SIMULATED),
        Table("Mean width, simulations", "width", ("errors", "n"), METHODS, where=_SIMULATED),
        Table("Coverage of 90 % intervals, real data", "coverage", ("data",), METHODS,
              where={"data": CHOSEN}),
        Table("Mean width, real data", "width", ("data",), METHODS, where={"data": CHOSEN}),
    ),
    labels=LABELS,
    findings=(
        _near("errors", "coverage", OVERALL),
        _near("errors", "worst", IN_REGIONS),
        _not_wide("errors", "every simulation"),
        _near("data", "coverage", OVERALL),
        _near("data", "worst", IN_REGIONS),
        _not_wide("data", "every data set"),
    ),
    notes=notes,
)  # fmt: skip
