"""Prediction: the time of one row, and of many rows compared with nearest-neighbour peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from benchmarks import reference
from benchmarks.data import (
    Labels,
    Problem,
    candidate_functions,
    classification,
    predict,
    regression,
)
from benchmarks.growth import exponent
from benchmarks.peers import Peer, PeerError
from benchmarks.report import Report, Row
from benchmarks.timing import PAUSE, interleave
from localma import LocalMAClassifier, LocalMARegressor
from localma.equations import local_average
from localma.gates import Gate, MLPGate, ShrunkGate

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Size:
    one_row_repeats: int = 3000
    labelled: int = 20_000
    rows: int = 100_000
    n_inputs: int = 10
    n_candidates: int = 20
    repeats: int = 3
    gate: Any = "auto"


QUICK = Size(one_row_repeats=300, labelled=2000, rows=5000, repeats=2)


def run(quick: bool = False) -> Report:
    return measure(QUICK if quick else Size())


def measure(size: Size) -> Report:
    report = Report()
    _one_row(report, size)
    _many_rows(report, size)
    return report


def _one_row(report: Report, size: Size) -> None:
    """One row, beyond the candidates' functions and scikit-learn's validation."""
    problem = regression(900, 5, 3, seed=0)
    coefficients = candidate_functions(5, 3)
    functions = {f"f{m}": partial(predict, coefficients[:, :, m]) for m in range(3)}
    for name, gate in {"": size.gate, "_local": "local", "_global": "global"}.items():
        model = LocalMARegressor(functions, gate=gate, random_state=0)
        model.fit(problem.train.X, problem.train.y[:, 0])
        _one_row_of(report, size, model, problem, list(functions.values()), name)
        if not name:
            _one_answer(report, size, model, problem.test.X[:1])


def _one_row_of(
    report: Report,
    size: Size,
    model: LocalMARegressor,
    problem: Problem,
    functions: list[Callable[[Array], Array]],
    suffix: str,
) -> None:
    """Time one row of a model, with candidates that run and with given predictions."""
    X, P = problem.test.X, problem.test.P[:, :, 0]
    x, given = X[:1], P[:1]
    works: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict(x),
        "predict, predictions given": lambda: model.predict(x, predictions=given),
        "candidates": lambda: [function(x) for function in functions],
        "validate_data": lambda: validate_data(model, x, reset=False),
    }
    interleave(works, size.one_row_repeats // 10)
    timings = interleave(works, size.one_row_repeats)
    twin = problem.test.risk(_float64_weights(model.gate_, X))
    risks = {
        "predict": _squared(problem, model.predict(X)),
        "predict, predictions given": _squared(problem, model.predict(X, predictions=P)),
    }
    work = f"one row, {type(model.gate_).__name__}"
    rows = {
        name: report.add(
            Row(work, name, timing.seconds, risks.get(name), twin if name in risks else None)
        )
        for name, timing in timings.items()
    }
    alone = rows["predict, predictions given"].median - rows["validate_data"].median
    both = rows["candidates"].median + rows["validate_data"].median
    key = f"one_row_microseconds_beyond{suffix}"
    report.from_rows(key, 1e6 * (rows["predict"].median - both), rows["predict"])
    report.from_rows(f"{key}_given", 1e6 * alone, rows["predict, predictions given"])


def _one_answer(report: Report, size: Size, model: LocalMARegressor, x: Array) -> None:
    """One row with the features for production, compared with `predict`."""
    works: dict[str, Callable[[], Any]] = {
        "predict": lambda: model.predict(x),
        "answer": lambda: model.answer(x),
        "answer, min_weight": lambda: model.answer(x, min_weight=0.05),
        "answer, deadline": lambda: model.answer(x, deadline=1.0),
    }
    interleave(works, size.one_row_repeats // 10)
    timings = interleave(works, size.one_row_repeats)
    for name, timing in timings.items():
        report.add(Row("one row in production", name, timing.seconds))
    for name, key in (
        ("answer", "answer"), ("answer, min_weight", "routed"), ("answer, deadline", "deadline"),
    ):  # fmt: skip
        beyond = timings[name].median - timings["predict"].median
        report.figure(f"one_row_microseconds_of_{key}", 1e6 * beyond)


def _float64_weights(gate: Gate, X: Array) -> Array:
    """Weights of a fitted gate, with networks evaluated in double precision."""
    if isinstance(gate, ShrunkGate):
        return reference.auto_weights(gate, X, lambda one: reference.evaluate_weights(one, X))
    if isinstance(gate, MLPGate):
        return reference.evaluate_weights(gate, X)
    return gate.predict_weights(X)


def _squared(problem: Problem, prediction: Array) -> float:
    return float(np.mean((problem.test.y[:, 0] - prediction) ** 2))


def _many_rows(report: Report, size: Size) -> None:
    """Many rows with given probabilities, on one binary classification for all methods."""
    n, p, M = size.labelled, size.n_inputs, size.n_candidates
    sample = classification(n, p, M, n_classes=2, seed=0)
    new = classification(size.rows, p, M, n_classes=2, seed=1)
    model = LocalMAClassifier(gate=size.gate, random_state=0)
    model.fit(sample.X, sample.y, predictions=sample.P)
    tenth = Labels(new.X[::10], new.P[::10], new.y[::10])
    works: dict[str, Callable[[], Any]] = {
        "localma": lambda: model.predict_proba(new.X, predictions=new.P),
        "localma, a tenth": lambda: model.predict_proba(tenth.X, predictions=tenth.P),
    }
    peers, absent = _start_peers(sample, new)
    works |= {name: peer.run for name, peer in peers.items()}
    timings = interleave(works, size.repeats, PAUSE)
    work = f"{size.rows} rows, {M} candidates"
    twin = _float64_weights(model.gate_, new.X)
    ours = report.add(
        Row(
            work,
            "localma",
            timings["localma"].seconds,
            _brier(new, timings["localma"].result),
            _brier(new, local_average(twin, new.P)),
        )
    )
    times = [timings["localma, a tenth"].median, ours.median]
    report.from_rows("predict_exponent_in_rows", exponent([len(tenth.y), len(new.y)], times), ours)
    for name, reason in absent.items():
        report.missing(f"ratio_{name}_to_predict", reason)
    for name, peer in peers.items():
        risk = _brier(new, peer.close()["predictions"])
        note = "another method, so no reference"
        row = report.add(Row(work, name, timings[name].seconds, risk, note=note))
        report.ratio(f"ratio_{name}_to_predict", row, ours)


def _start_peers(sample: Labels, new: Labels) -> tuple[dict[str, Peer], dict[str, str]]:
    """The installed peers, fitted and waiting, and the reasons why others are missing."""
    arrays = {"X": sample.X, "P": sample.P, "y": sample.y, "X_new": new.X, "P_new": new.P}
    peers, absent = {}, {}
    for name in ("deskit", "deslib"):
        try:
            peers[name] = Peer.start(name, arrays)
        except PeerError as reason:
            absent[name] = str(reason)
    return peers, absent


def _brier(labels: Labels, probabilities: Array) -> float:
    return float(np.mean((probabilities[:, 1] - labels.y) ** 2))
