"""Answers in production: a broken candidate, half of the cost, and missing predictions in a fit.

A broken candidate: each candidate of a data set of the safety study fails in turn, in all test
rows. Its weight is renormalised, or the weights of a robust fit are used, or the model is fitted
again without it. Methods were chosen on the half "selection": ``--cells half=selection``.

Half of the cost: in each row, half of the candidates run. All candidates cost the same.

Missing predictions: a third of the rows of a simulated sample is complete. The masked loss of a
linear gate is minimised exactly, and with missing predictions replaced as `fit` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from localma import LocalMARegressor
from localma.gates.incomplete import fill_missing
from localma.losses import get_loss
from studies.findings import Finding, NotRunError, Results
from studies.harness import Cell, Study, Table
from studies.safety_confirmation import CONFIRMATION
from studies.safety_data import DataSet, Part, data_folder
from studies.safety_selection import SELECTION

Array = NDArray[np.floating]
Metrics = dict[str, float]

DATA_SETS = {data.name: data for data in (*SELECTION, *CONFIRMATION)}
LEAST_ROWS = 1_000
REPLICATES = 5
BROKEN = ("renormalised", "robust", "refitted")
COSTS = ("every", "half")
INCOMPLETE = ("exact", "replaced", "complete_rows", "auto")
RENTS = ("shanghai_2020", "shanghai_2020_blind", "shanghai_2019", "beijing")
MOST_REMAINING, MOST_INCREASE, MOST_TIME = 0.20, 0.02, 2.0
KNOWN = (1 / 3) ** (1 / 4)
"""Share of known predictions with which a third of the rows with four candidates is complete."""


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Risk of some methods on one split or one simulated sample."""
    if keys["case"] == "incomplete":
        return _incomplete(keys["n"], seed, methods)
    data, rng = DATA_SETS[keys["data"]], np.random.default_rng(seed)
    sample, test = data.split(data_folder(), rng)
    random_state = int(seed.generate_state(2)[1]) // 2
    if keys["case"] == "broken":
        return _broken(data, sample, test, random_state, methods)
    risks = {name: _cost(data, sample, test, name, random_state) for name in methods}
    return {f"{name}:risk": risk for name, risk in risks.items()}


def _fit(data: DataSet, sample: Part, P: Array, seed: int, **options: Any) -> LocalMARegressor:
    model = LocalMARegressor(loss=data.loss, random_state=seed, **options)
    return model.fit(sample.X, sample.y, sample.sample_weight, predictions=P)


def _risk(data: DataSet, test: Part, prediction: Array) -> float:
    losses = get_loss(data.loss).value(test.y, prediction)
    return float(
        np.average(losses.reshape(len(losses), -1).mean(axis=1), weights=test.sample_weight)
    )


def _broken(data: DataSet, sample: Part, test: Part, seed: int, methods: Sequence[str]) -> Metrics:
    """Mean risk over the candidates that fail in turn, and processor time of the fits."""
    M = sample.P.shape[1]
    metrics = {}
    _fit(data, sample, sample.P, seed)  # loads what later fits share, so that times are comparable
    for method in methods:
        risks, began = [], process_time()
        if method != "refitted":
            model = _fit(data, sample, sample.P, seed, robust=method == "robust")
            metrics[f"{method}:seconds"] = process_time() - began
        for m in range(M):
            if method == "refitted":
                kept = np.arange(M) != m
                model = _fit(data, sample, sample.P[:, kept], seed)
                prediction = model.predict(test.X, predictions=test.P[:, kept])
            else:
                P = test.P.copy()
                P[:, m] = np.nan
                prediction = model.predict(test.X, predictions=P, missing="renormalize")
            risks.append(_risk(data, test, prediction))
        metrics[f"{method}:risk"] = float(np.mean(risks))
    return metrics


def _cost(data: DataSet, sample: Part, test: Part, method: str, seed: int) -> float:
    """Risk with all candidates, or with half of the cost in each row."""
    model = _fit(data, sample, sample.P, seed)
    options: dict[str, Any] = {}
    if method == "half":
        options["budget"] = sample.P.shape[1] / 2
    return _risk(data, test, model.predict(test.X, predictions=test.P, **options))


# Missing predictions of a simulated sample.


def _draw(n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Inputs (n, 3), predictions (n, 4) with gaps, and targets (n,)."""
    X = rng.uniform(-1, 1, size=(n, 3))
    truth = np.sin(2 * X[:, 0]) + X[:, 1]
    errors = np.stack([X[:, 0], -X[:, 0], X[:, 1] + 0.3, 0.5 * np.ones(n)], axis=1)
    P = truth[:, None] + errors + 0.2 * rng.standard_normal((n, 4))
    P[rng.uniform(size=P.shape) > KNOWN] = np.nan
    kept = ~np.isnan(P).all(axis=1)
    return X[kept], P[kept], (truth + 0.3 * rng.standard_normal(n))[kept]


def _incomplete(n: int, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    rng = np.random.default_rng(seed)
    X, P, y = _draw(n, rng)
    X_new, P_new, y_new = _draw(20_000, rng)
    metrics = {}
    for method in methods:
        if method == "auto":
            model = LocalMARegressor(random_state=0, missing="renormalize")
            prediction = model.fit(X, y, predictions=P).predict(X_new, predictions=P_new)
        else:
            rows = ~np.isnan(P).any(axis=1) if method == "complete_rows" else np.ones(len(P), bool)
            coefficients = linear_gate(X[rows], P[rows], y[rows], method == "replaced")
            prediction = _mixture(coefficients, X_new, P_new)[0]
        metrics[f"{method}:risk"] = float(np.mean((prediction - y_new) ** 2))
    return metrics


def _mixture(coefficients: Array, X: Array, P: Array) -> tuple[Array, Array]:
    """Averages (n,) over the known predictions, and their weights (n, M)."""
    logits = np.column_stack([np.ones(len(X)), X]) @ coefficients
    W = softmax(np.where(np.isnan(P), -np.inf, logits), axis=1)
    return np.nansum(W * P, axis=1), W


def linear_gate(X: Array, P: Array, y: Array, replaced: bool) -> Array:
    """Coefficients (p + 1, M) of a linear gate that minimise the squared error.

    replaced : whether missing predictions are replaced as in `fit`, instead of left out.
    """
    if replaced:
        P, _ = fill_missing(P, lambda complete: _constant(complete, y))
    inputs, M = np.column_stack([np.ones(len(X)), X]), P.shape[1]

    def risk(flat: Array) -> tuple[float, Array]:
        coefficients = flat.reshape(-1, M)
        mixture, W = _mixture(coefficients, X, P)
        residual = mixture - y
        slopes = W * (np.nan_to_num(P) - mixture[:, None]) * residual[:, None]
        penalty = 1e-3 * coefficients
        gradient = 2 * inputs.T @ slopes / len(y) + 2 * penalty
        return float(np.mean(residual**2) + (penalty * coefficients).sum()), gradient.ravel()

    found = minimize(risk, np.zeros(inputs.shape[1] * M), jac=True, method="L-BFGS-B")
    return found.x.reshape(-1, M)


def _constant(P: Array, y: Array) -> Array:
    """Global weights of complete predictions."""
    model = LocalMARegressor(gate="global")
    return model.fit(np.zeros((len(P), 1)), y, predictions=P).global_weights_


# Findings.


def gaps(results: Results, name: str) -> tuple[float, float]:
    """Mean risk above that of a refit, as a share of it: of robust and of renormalised weights."""
    renormalised, robust, refitted = (
        results.mean(method, "risk", case="broken", half=DATA_SETS[name].half, data=name)
        for method in BROKEN
    )
    return robust / refitted - 1.0, renormalised / refitted - 1.0


def remaining(results: Results, name: str) -> float:
    """Share of the gap between renormalised and refitted weights that a robust fit leaves."""
    robust, renormalised = gaps(results, name)
    return robust / renormalised


def remaining_in_mean(results: Results, names: Sequence[str]) -> float:
    """The same share of the mean gap of some data sets.

    A mean of shares would depend on the data sets that have almost no gap.
    """
    robust, renormalised = np.mean([gaps(results, name) for name in names], axis=0)
    return float(robust / renormalised)


def time_ratio(results: Results, name: str) -> float:
    """Processor time of a robust fit, compared with that of a fit on the same sample."""
    keys = {"case": "broken", "half": DATA_SETS[name].half, "data": name}
    robust, plain = (
        results.mean(method, "seconds", **keys) for method in ("robust", "renormalised")
    )
    return robust / plain


def increase(results: Results, name: str) -> float:
    """Relative increase of the risk with half of the cost."""
    keys = {"case": "cost", "half": DATA_SETS[name].half, "data": name}
    return results.mean("half", "risk", **keys) / results.mean("every", "risk", **keys) - 1.0


def _names(results: Results, case: str) -> list[str]:
    names = {keys["data"] for _, _, keys in results.entries() if keys["case"] == case}
    if not names:
        raise NotRunError(f"No replicate of the case {case!r} has been run.")
    return [name for name in DATA_SETS if name in names]


def notes(results: Results) -> list[str]:
    """One line per data set and case."""
    lines = []
    try:
        broken = _names(results, "broken")
        for name in broken:
            lines.append(
                f"{name} ({DATA_SETS[name].half}): {100 * remaining(results, name):.0f} % of the "
                f"gap remains, which is {100 * gaps(results, name)[1]:.2g} % of the risk. A robust "
                f"fit takes {time_ratio(results, name):.1f} times the processor time."
            )
        for half in ("selection", "confirmation"):
            names = [name for name in broken if DATA_SETS[name].half == half]
            if names:
                lines.append(f"{half}, {len(names)} data sets: {_summary(results, names)}")
        lines.append(f"All {len(broken)} data sets: {_summary(results, broken)}")
        for name in _names(results, "cost"):
            percent = 100 * increase(results, name)
            lines.append(f"{name}: half of the cost changes the risk by {percent:+.2f} %")
    except NotRunError:
        pass
    return lines


def _summary(results: Results, names: Sequence[str]) -> str:
    median = 100 * np.median([remaining(results, name) for name in names])
    mean = 100 * remaining_in_mean(results, names)
    return f"{mean:.0f} % of the mean gap remains, and {median:.0f} % of the gap in the median"


def _is_large(data: DataSet) -> bool:
    """Whether it is a regression with one output, enough rows and several candidates."""
    n = data.n_build + data.n_sample + data.n_test
    return not data.classification and not data.missing(data_folder()) and n >= LEAST_ROWS


def _cells() -> tuple[Cell, ...]:
    large = [data for data in DATA_SETS.values() if _is_large(data)]
    return (
        *(
            Cell(
                {"case": "broken", "half": data.half, "data": data.name},
                BROKEN, REPLICATES, slow=data.half == "confirmation",
            )
            for data in large
        ),
        *(
            Cell({"case": "cost", "half": data.half, "data": data.name}, COSTS, REPLICATES)
            for data in large
            if data.name in RENTS
        ),
        *(Cell({"case": "incomplete", "n": n}, INCOMPLETE, 20) for n in (300, 1_000)),
    )  # fmt: skip


STUDY = Study(
    name="answers",
    title="Answers in production",
    cells=_cells(),
    run=run,
    tables=(
        Table(
            "One candidate fails: mean risk over the candidates",
            "risk", ("data",), BROKEN, {"case": ("broken",)},
        ),
        Table(
            "Processor time of a fit, seconds",
            "seconds", ("data",), BROKEN[:2], {"case": ("broken",)},
        ),
        Table("Half of the cost", "risk", ("data",), COSTS, {"case": ("cost",)}),
        Table(
            "A third of the rows complete", "risk", ("n",), INCOMPLETE, {"case": ("incomplete",)}
        ),
    ),
    findings=(
        Finding(
            "With one candidate broken, a robust fit leaves at most 20 % of the gap between "
            "renormalised and refitted weights, in the mean over the data sets.",
            "aim",
            lambda results: (
                remaining_in_mean(results, _names(results, "broken")) <= MOST_REMAINING
            ),
        ),
        Finding(
            "A robust fit takes at most twice the processor time, in every data set.",
            "aim",
            lambda results: all(
                time_ratio(results, name) <= MOST_TIME for name in _names(results, "broken")
            ),
        ),
        Finding(
            "With one candidate broken, a robust fit leaves at most 20 % of the gap between "
            "renormalised and refitted weights, in every data set.",
            "aim",
            lambda results: all(
                remaining(results, name) <= MOST_REMAINING for name in _names(results, "broken")
            ),
        ),
        Finding(
            "Half of the cost raises the risk on rents by at most 2 %.",
            "aim",
            lambda results: all(
                increase(results, name) <= MOST_INCREASE for name in _names(results, "cost")
            ),
        ),
    ),
    notes=notes,
)  # fmt: skip
