"""One fit with `gate="auto"`, compared with eight PyTorch fits of the paper's recipe."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from benchmarks import pytorch_loop, reference
from benchmarks.data import Problem, Sample, regression
from benchmarks.engine import plain_gate
from benchmarks.report import Report, Row
from benchmarks.timing import PAUSE, interleave
from localma import LocalMARegressor
from localma.gates import Gate, MLPGate, ShrunkGate

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Size:
    n: int = 900
    n_inputs: int = 5
    n_candidates: int = 3
    pytorch_fits: int = 8
    repeats: int = 5


QUICK = Size(repeats=1)


def fit_auto(sample: Sample, gate: str | Gate = "auto", own: str | None = None) -> LocalMARegressor:
    model = LocalMARegressor(gate=gate, own=own, random_state=0)
    return model.fit(sample.X, sample.y[:, 0], predictions=sample.P[:, :, 0])


def auto_risks(
    gate: ShrunkGate, problem: Problem, reference_rows: int
) -> tuple[float, float, bool]:
    """Held-out risk, that of its float64 twin, and whether the twin has fewer rows.

    The twin averages the same points of the path. Each is trained again from its start: over
    mini-batches of all rows if the gate was, otherwise over all of at most `reference_rows` rows.
    """
    X, train, seen = problem.test.X, problem.train, problem.train.head(reference_rows)
    twins: list[bool] = []

    def member(one: MLPGate) -> Array:
        twins.append(one.batch_rows(len(train.y)) is not None)
        if twins[-1]:
            return reference.fit_weights_on_batches(one, train, X)
        return reference.fit_weights(one, seen, X)

    twin = reference.auto_weights(gate, X, member)
    risk = problem.test.risk(gate.predict_weights(X))
    return risk, problem.test.risk(twin), not all(twins) and len(seen.X) < len(train.X)


def run(quick: bool = False) -> Report:
    return measure(QUICK if quick else Size())


def measure(size: Size) -> Report:
    report, key = Report(), "ratio_auto_to_eight_pytorch_fits"
    problem = regression(size.n, size.n_inputs, size.n_candidates, seed=0)
    train, test = problem.train, problem.test
    fit_auto(train)  # compiles
    works = {"auto": lambda: fit_auto(train)}
    gates = [plain_gate(seed) for seed in range(size.pytorch_fits)]
    starts = [reference.starts(gate, train)[0] for gate in gates]
    pytorch = find_spec("torch") is not None
    if pytorch:
        threads = pytorch_loop.use_faster_thread_count(train, gates[0], starts[0])
        works["pytorch"] = lambda: [
            pytorch_loop.fit(train, *of_one) for of_one in zip(gates, starts, strict=True)
        ]
    timings = interleave(works, size.repeats, PAUSE)
    risk, twin, _ = auto_risks(timings["auto"].result.gate_, problem, size.n)
    ours = report.add(Row(f"n={size.n}", "auto", timings["auto"].seconds, risk, twin))
    if not pytorch:
        report.missing(key, "torch is not installed")
        return report
    risks = [
        test.risk(pytorch_loop.predict_weights(network, train, test.X))
        for network in timings["pytorch"].result
    ]
    fitted = [g.fit(train.labelled()) for g in gates]
    twins = [test.risk(reference.fit_weights(gate, train, test.X)) for gate in fitted]
    loop = Row(
        f"n={size.n}",
        "eight PyTorch fits",
        timings["pytorch"].seconds,
        float(np.mean(risks)),
        float(np.mean(twins)),
        scale=8 / len(gates),
        note=f"{threads} thread(s)" + f", scaled from {len(gates)}" * (len(gates) != 8),
    )
    report.ratio(key, ours, report.add(loop))
    return report
