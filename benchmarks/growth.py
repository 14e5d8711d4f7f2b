"""Growth of time along one axis: rows, inputs, candidates, hidden units, classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import reference
from benchmarks.data import Sample, classification, regression
from benchmarks.report import Report, Row
from benchmarks.timing import interleave
from localma import LocalMAClassifier
from localma.gates import MLPGate

LINEAR_AXES = ("n", "p", "hidden", "classes")
"""Axes along which time should grow at most in proportion."""

NOISE = 0.1
"""Tolerance of a measured slope, because times vary."""


def exponent(values: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log seconds over log values, for the larger half, in which fixed costs are small.

    >>> round(exponent([1, 10, 100], [7.0, 7.0, 70.0]), 3)
    1.0
    """
    return fitted_law(values, seconds)[0]


def fitted_law(values: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Exponent and factor of ``seconds = factor * value ** exponent``, over the larger half."""
    first = larger_half(values)
    slope, level = np.polyfit(np.log(values[first:]), np.log(seconds[first:]), 1)
    return float(slope), float(np.exp(level))


def larger_half(values: Sequence[float]) -> int:
    """Index of the first value of the larger half."""
    return (len(values) - 1) // 2


@dataclass(frozen=True)
class Axes:
    """Values along each axis; the other sizes have their base value."""

    n: Sequence[int] = (1000, 10_000, 100_000, 1_000_000)
    p: Sequence[int] = (5, 10, 50, 100, 500, 1000)
    M: Sequence[int] = (2, 4, 16, 64, 256)
    hidden: Sequence[int] = (8, 32, 128, 512)
    classes: Sequence[int] = (2, 10, 100, 1000)
    base_n: int = 2000
    n_steps: int = 50
    repeats: int = 3


QUICK = Axes(
    n=(1000, 10_000),
    p=(5, 50, 200),
    M=(2, 16, 64),
    hidden=(8, 32, 128),
    classes=(2, 20, 100),
    base_n=1000,
    n_steps=30,
    repeats=2,
)


@dataclass(frozen=True)
class Work:
    """A fit of one size; `train` and `test` are the samples for the float64 reference."""

    fit: Callable[[], Any]
    train: Sample
    test: Sample


def measure(report: Report, axes: Axes) -> None:
    """Time a fit at every value of every axis."""
    sizes = {"n": axes.n, "p": axes.p, "M": axes.M, "hidden": axes.hidden}
    growth = {}
    for axis, values in sizes.items():
        works = {v: _regression(axes, **{axis: v}) for v in values}
        growth[axis] = _along(report, axis, works, axes.repeats)
    works = {v: _classification(axes, v) for v in axes.classes}
    growth["classes"] = _along(report, "classes", works, axes.repeats)
    report.store("growth", growth)
    faster = [a for a in LINEAR_AXES if (growth[a]["exponent"] or 0.0) > 1.0 + NOISE]
    report.figure("axes_worse_than_linear", faster)


def _along(report: Report, axis: str, works: dict[int, Work], repeats: int) -> dict[str, Any]:
    works[min(works)].fit()  # compiles
    timings = interleave({str(v): work.fit for v, work in works.items()}, repeats)
    seconds = []
    for value, work in works.items():
        timing, X = timings[str(value)], work.test.X
        risk = work.test.risk(timing.result.predict_weights(X))
        twin = work.test.risk(reference.fit_weights(timing.result, work.train, X))
        row = report.add(Row(f"growth, {axis}={value}", "localma", timing.seconds, risk, twin))
        seconds.append(row.median if row.counts else None)
    values, key = list(works), f"exponent_in_{axis}"
    line = {"values": values, "seconds": seconds, "exponent": None}
    if None in seconds:
        report.missing(key, "a fit is not within 1 % of the float64 reference")
        return line
    slope, factor = fitted_law(values, seconds)
    report.figure(key, slope)
    fitted_to = values[larger_half(values) :]
    return line | {"exponent": slope, "factor": factor, "fitted_to": fitted_to}


def _gate(axes: Axes, hidden: int) -> MLPGate:
    return MLPGate.paper((hidden,), random_state=0).set_params(n_steps=axes.n_steps)


def _regression(axes: Axes, n: int = 0, p: int = 5, M: int = 3, hidden: int = 16) -> Work:
    problem = regression(n or axes.base_n, p, M, seed=0)
    gate, train = _gate(axes, hidden), problem.train
    return Work(lambda: gate.fit(train.labelled()), train, problem.test)


def _classification(axes: Axes, n_classes: int) -> Work:
    labels, new = (classification(axes.base_n, 5, 3, n_classes, seed) for seed in (0, 1))
    model = LocalMAClassifier(gate=_gate(axes, 16), random_state=0)
    return Work(
        lambda: model.fit(labels.X, labels.y, predictions=labels.P).gate_,
        labels.observed(),
        new.observed(),
    )
