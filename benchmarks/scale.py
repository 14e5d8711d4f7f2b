"""Large samples: growth along every axis, global weights, `auto` and boosting, peak memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.optimize import nnls
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks import growth, memory
from benchmarks.auto import auto_risks, fit_auto
from benchmarks.data import Sample, regression
from benchmarks.report import Report, Row
from benchmarks.timing import PAUSE, interleave
from localma.equations import global_average
from localma.gates import GlobalGate, Labelled

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Size:
    """Sizes of the runs; `reference_rows` limits the rows of a twin without mini-batches."""

    axes: growth.Axes = field(default_factory=growth.Axes)
    global_n: int = 1_000_000
    global_M: int = 50
    global_repeats: int = 5
    auto_n: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    auto_repeats: int = 1
    n_inputs: int = 20
    n_candidates: int = 5
    reference_rows: int = 20_000
    memory_n: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    gate: Any = "auto"


QUICK = Size(
    axes=growth.QUICK,
    global_n=100_000,
    global_repeats=3,
    auto_n=(1000, 3000),
    reference_rows=1000,
    memory_n=(100_000,),
)


def run(quick: bool = False) -> Report:
    return measure(QUICK if quick else Size())


def measure(size: Size) -> Report:
    report = Report()
    growth.measure(report, size.axes)
    _global_weights(report, size)
    _auto(report, size)
    peaks = [memory.measure(n, size.n_inputs, size.n_candidates) for n in size.memory_n]
    report.figure("memory", peaks)
    return report


def nnls_weights(P: Array, y: Array) -> Array:
    """Least-squares weights on the simplex, by Gram matrix and SciPy's `nnls`.

    With weights that sum to one the risk is ``w'Gw``, G the Gram matrix of the errors. The `u` that
    minimises ``u'Gu + (sum u - 1)^2`` over ``u >= 0`` is proportional to w.
    """
    cross = P.T @ y
    G = P.T @ P - cross[:, None] - cross[None, :] + y @ y
    G = G / np.trace(G)
    R = cholesky(G)
    u, _ = nnls(np.vstack([R, np.ones(len(G))]), np.append(np.zeros(len(G)), 1.0))
    return np.asarray(u / u.sum())


def _global_weights(report: Report, size: Size) -> None:
    problem = regression(size.global_n, 5, size.global_M, seed=0)
    train, test = problem.train, problem.test
    data = Labelled.of(np.empty((len(train.y), 0)), train.P, train.y, loss=train.loss)
    P, y = train.P[:, :, 0], train.y[:, 0]
    timings = interleave(
        {
            "ours": lambda: GlobalGate().fit(data),
            "nnls": lambda: nnls_weights(P, y),
        },
        size.global_repeats,
        PAUSE,
    )
    gate, peer = timings["ours"].result, timings["nnls"].result
    twin = _constant_risk(test, peer)
    work = f"global weights, n={size.global_n}, M={size.global_M}"
    risk = _constant_risk(test, gate.weights_)
    ours = report.add(Row(work, "localma", timings["ours"].seconds, risk, twin))
    theirs = report.add(Row(work, "Gram + nnls", timings["nnls"].seconds, twin, twin))
    report.ratio("ratio_global_to_nnls", ours, theirs)
    report.from_rows("global_gap", gate.gap_, ours)


def _constant_risk(sample: Sample, weights: Array) -> float:
    return float(sample.loss.value(sample.y, global_average(weights, sample.P)).mean())


def _auto(report: Report, size: Size) -> None:
    """Time per row of `auto`, and its largest fit compared with histogram boosting."""
    fit_auto(regression(100, size.n_inputs, size.n_candidates, seed=1).train, size.gate)
    rows = {}
    for n in size.auto_n:
        problem = regression(n, size.n_inputs, size.n_candidates, seed=0)
        train, test = problem.train, problem.test
        works: dict[str, Any] = {"auto": lambda train=train: fit_auto(train, size.gate)}
        if n == max(size.auto_n):
            works["boosting"] = lambda train=train: HistGradientBoostingRegressor().fit(
                train.X, train.y[:, 0]
            )
        timings = interleave(works, size.auto_repeats, PAUSE)
        risk, twin, weaker = auto_risks(timings["auto"].result.gate_, problem, size.reference_rows)
        note = f"reference on {size.reference_rows} rows" * weaker
        rows[n] = report.add(
            Row(
                f"fit, n={n}, p={size.n_inputs}, M={size.n_candidates}",
                "auto",
                timings["auto"].seconds,
                risk,
                twin,
                reference_is_weaker=weaker,
                note=note,
            )
        )
    boosting = timings["boosting"].result
    direct = float(np.mean((test.y[:, 0] - boosting.predict(test.X)) ** 2))
    note = "fits y itself, without candidates"
    row = report.add(
        Row(rows[n].work, "HistGradientBoosting", timings["boosting"].seconds, direct, note=note)
    )
    report.ratio("ratio_auto_to_hist_gradient_boosting", rows[n], row)
    smallest = min(rows)
    for n in size.auto_n[1:]:
        key = f"ratio_time_per_row_{n}_to_{smallest}"
        report.ratio(key, rows[n], rows[smallest], smallest / n)
