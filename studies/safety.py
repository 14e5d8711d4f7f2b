"""Is `gate="auto"` safe on real data, and is it ahead of stacking?

A cell is a data set with a size of the labelled sample, and a replicate is one split of it. Methods
are chosen on the cells of the half "selection", and judged on those of the half "confirmation":
`--cells half=selection`. Data sets whose file or package is missing are left out and named.

Each fit is timed on one thread. The time of a rival of `studies.stacking` includes its five folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from localma import LocalMARegressor, warm_up
from studies.findings import Results
from studies.harness import Cell, Metrics, Study, Table
from studies.safety_confirmation import CONFIRMATION
from studies.safety_data import REQUIREMENTS, DataSet, Part, data_folder
from studies.safety_results import HALVES, LABELS, draw, findings_of, summary_lines, table_of
from studies.safety_selection import SELECTION
from studies.stacking import CHOSEN_FROM, PredictorOf, Problem, Rivals, Stopwatch, averaging

DATA_SETS = {data.name: data for data in (*SELECTION, *CONFIRMATION)}

GATES: dict[str, dict[str, Any]] = {
    "local": {"gate": "local"},
    "paper": {"gate": "paper"},
    "auto": {"gate": "auto"},
    "auto_own": {"gate": "auto", "own": "auto"},
}
"""Methods of this package that are not among the rivals, as parameters of the estimator."""

RIVALS = (*CHOSEN_FROM, "choice")
METHODS = (*RIVALS, *GATES)
SEVERAL_OUTPUTS = ("linnerud",)
"""Data sets with several targets, on which only the methods of this package run."""


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Metrics of some methods on one split of one data set, keyed "method:metric".

    They are the `risk` on the test part and the processor time of the fit, `processor`. For `auto`
    also the claimed `gain` and `gain_error`, and `true_gain`, the test risk of global weights minus
    that of `auto`.
    """
    data = DATA_SETS[keys["data"]].with_sample(keys["n"])
    sample, test = data.split(data_folder(), np.random.default_rng(seed))
    problem, sample, test = posed(data, sample, test)
    rivals = Rivals(problem, sample, int(seed.generate_state(2)[1]) // 2)
    warm_up()  # so that no fit is timed with the compilation of the kernel
    metrics = {}
    with threadpool_limits(limits=1):
        for method in methods:
            measured = measure(rivals, test, method)
            metrics |= {f"{method}:{name}": value for name, value in measured.items()}
    return metrics


def posed(data: DataSet, sample: Part, test: Part) -> tuple[Problem, Part, Part]:
    """The problem of a data set, and its parts with classes as numbers."""
    if not data.classification:
        return Problem(data.loss), sample, test
    classes = np.unique(sample.y)
    coded = (replace(part, y=np.searchsorted(classes, part.y)) for part in (sample, test))
    return Problem(data.loss, len(classes)), *coded


def measure(rivals: Rivals, test: Part, method: str) -> Metrics:
    """Fit one method on the sample and evaluate it on the test part."""
    if method in RIVALS:
        predict, watch = rivals.learn(method).predict, rivals.watches[method]
    else:
        with Stopwatch() as watch:
            predict = averaging(rivals, rivals.sample, **GATES[method])
    risk = rivals.problem.risk(test, predict(test))
    metrics = {"risk": risk, "processor": watch.processor_seconds, "seconds": watch.seconds}
    return metrics | (_verdict(rivals, test, predict, risk) if method == "auto" else {})


def _verdict(rivals: Rivals, test: Part, predict: PredictorOf, risk: float) -> Metrics:
    gain = predict.model.locality_gain_
    constant = averaging(rivals, rivals.sample, "global")
    true_gain = rivals.problem.risk(test, constant(test)) - risk
    return {"gain": gain.value, "gain_error": gain.standard_error, "true_gain": true_gain}


def available_methods(data: DataSet) -> tuple[str, ...]:
    """Methods that can run on a data set with the installed packages; none if it is missing."""
    if data.missing(data_folder()):
        return ()
    left_out = set()
    if find_spec("lightgbm") is None:
        left_out |= {"lightgbm", "direct", "choice"}
    if data.name in SEVERAL_OUTPUTS:
        left_out |= {"ridge", "lightgbm", "direct", "choice"}
    if "own" not in LocalMARegressor().get_params():
        left_out |= {"auto_own"}
    return tuple(method for method in METHODS if method not in left_out)


def notes(results: Results) -> list[str]:
    """The verdicts and times of each half, and what is missing."""
    lines = [line for half in HALVES for line in summary_lines(results, half)]
    entries = results.entries()
    there = {keys["data"] for _, _, keys in entries}
    reasons = [data.missing(data_folder()) for name, data in DATA_SETS.items() if name not in there]
    if find_spec("lightgbm") is None and not any(name == "lightgbm" for name, _, _ in entries):
        reasons.append(f"lightgbm is not installed; use pip install --no-deps -r {REQUIREMENTS}")
    return lines + [f"Left out: {reason}." for reason in reasons if reason]


def overview(results: Results) -> str:
    """The comparisons of each half, cell by cell."""
    tables = (table_of(results, half, list(DATA_SETS)) for half in HALVES)
    return "\n\n".join(text for text in tables if text)


def _cells() -> tuple[Cell, ...]:
    # The confirmation half counts as slow, so that a quick run never looks at it.
    return tuple(
        Cell(
            {"half": data.half, "data": data.name, "n": n},
            available_methods(data), 20, slow=data.half == "confirmation",
        )
        for data in DATA_SETS.values()
        for n in data.sizes or (data.n_sample,)
    )  # fmt: skip


STUDY = Study(
    name="safety",
    title="Safe locality on real data",
    cells=_cells(),
    run=run,
    labels=LABELS,
    tables=tuple(
        Table(
            f"Risk on the test part, {half} half", "risk", ("data", "n"), METHODS, {"half": (half,)}
        )
        for half in HALVES
    ),
    findings=tuple(finding for half in HALVES for finding in findings_of(half)),
    overview=overview,
    notes=notes,
    figures={"safety": lambda results, folder: draw(results, folder, list(DATA_SETS))},
)
