"""A pool that changes: candidates are dropped or added, compared with a new fit.

Drop: each candidate of a data set of the safety study is dropped in turn. Add: up to four of them
are added in turn, to a model of all others, on the labelled sample of the fit. The risk is that on
the test part, as a mean over these candidates. Each change is timed on one thread. Methods were
chosen on the half "selection": ``--cells half=selection``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from localma import LocalMAClassifier, LocalMARegressor, warm_up
from studies.findings import Finding, NotRunError, Results
from studies.harness import Cell, Study, Table
from studies.safety import posed
from studies.safety_confirmation import CONFIRMATION
from studies.safety_data import Part, data_folder
from studies.safety_results import HALVES
from studies.safety_selection import SELECTION
from studies.stacking import Problem, Stopwatch

Array = NDArray[np.floating]
Metrics = dict[str, float]
Model = LocalMARegressor | LocalMAClassifier

DATA_SETS = {data.name: data for data in (*SELECTION, *CONFIRMATION)}
REPLICATES = 5
MOST_ADDED = 4
METHODS = {"drop": ("dropped", "robust", "refitted"), "add": ("added", "refitted")}
MOST_INCREASE = 0.01
MOST_TIME = {"drop": 0.05, "add": 0.5}
WORDS = {"dropped": "a drop", "added": "an addition"}


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Mean risk and processor time over the candidates of one split, "method:metric"."""
    data, rng = DATA_SETS[keys["data"]], np.random.default_rng(seed)
    sample, test = data.with_sample(data.n_sample).split(data_folder(), rng)
    case = Case(*posed(data, sample, test), int(seed.generate_state(2)[1]) // 2)
    warm_up()  # so that no fit is timed with the compilation of the kernel
    metrics = {}
    with threadpool_limits(limits=1):
        for method in methods:
            measured = [case.measure(method, m, keys["case"]) for m in case.changed(keys["case"])]
            risks, times = np.mean(measured, axis=0).tolist()
            metrics |= {f"{method}:risk": risks, f"{method}:processor": times}
    return metrics


class Case:
    """One split of a data set, and the fits on its labelled sample."""

    def __init__(self, problem: Problem, sample: Part, test: Part, seed: int) -> None:
        self.problem, self.sample, self.test, self.seed = problem, sample, test, seed
        self.names = [f"candidate {m + 1}" for m in range(sample.P.shape[1])]
        self.fits: dict[tuple[bool, str], tuple[Model, float]] = {}

    def changed(self, case: str) -> Sequence[int]:
        """Positions of the candidates that are dropped or added in turn."""
        M = len(self.names)
        if case == "drop":
            return range(M)
        return np.unique(np.linspace(0, M - 1, min(M, MOST_ADDED)).astype(int)).tolist()

    def measure(self, method: str, m: int, case: str) -> tuple[float, float]:
        """Test risk and processor time of one change."""
        name, every = self.names[m], self.names
        others = [other for other in every if other != name]
        if method == "refitted":
            model, seconds = self.fitted(every if case == "add" else others)
        elif method == "added":
            before, _ = self.fitted(others)
            with Stopwatch() as watch:
                model = before.add(
                    name,
                    None,
                    self.sample.X,
                    self.sample.y,
                    sample_weight=self.sample.sample_weight,
                    predictions=self.predictions(self.sample, [*others, name]),
                )
            seconds = watch.processor_seconds
        else:
            before, _ = self.fitted(every, robust=method == "robust")
            with Stopwatch() as watch:
                model = before.drop(name)
            seconds = watch.processor_seconds
        return self.risk(model), seconds

    def fitted(self, names: Sequence[str], *, robust: bool = False) -> tuple[Model, float]:
        """The model of some candidates, and the processor time of its fit."""
        key = robust, " ".join(names)
        if key not in self.fits:
            kind = LocalMAClassifier if self.problem.n_classes else LocalMARegressor
            model = kind(loss=self.problem.loss, random_state=self.seed, robust=robust)
            P, weight = self.predictions(self.sample, names), self.sample.sample_weight
            with Stopwatch() as watch:
                model.fit(self.sample.X, self.sample.y, weight, predictions=P)
            self.fits[key] = model, watch.processor_seconds
        return self.fits[key]

    def predictions(self, part: Part, names: Sequence[str]) -> dict[str, Array]:
        """Predictions of some candidates by name."""
        return {name: part.P[:, self.names.index(name)] for name in names}

    def risk(self, model: Model) -> float:
        """Risk on the test part."""
        P = self.predictions(self.test, model.candidate_names_)
        predict = model.predict if self.problem.n_classes == 0 else model.predict_proba
        return self.problem.risk(self.test, predict(self.test.X, predictions=P))


# Findings.


def increase(results: Results, method: str, case: str, data: str) -> float:
    """Relative difference of the mean risk to that of a new fit."""
    ours, theirs = results.paired(method, "refitted", "risk", **_keys(case, data))
    return float(ours.mean() / theirs.mean() - 1.0)


def time_share(results: Results, method: str, case: str, data: str) -> float:
    """Processor time of a change, as a share of that of a new fit."""
    ours, theirs = results.paired(method, "refitted", "processor", **_keys(case, data))
    return float(ours.mean() / theirs.mean())


def _keys(case: str, data: str) -> dict[str, str]:
    return {"case": case, "half": DATA_SETS[data].half, "data": data}


def names_run(results: Results, case: str, half: str) -> list[str]:
    """Data sets of a half that have run."""
    names = {
        keys["data"]
        for _, _, keys in results.entries()
        if keys["case"] == case and keys["half"] == half
    }
    if not names:
        raise NotRunError(f"No replicate of the case {case!r}, {half} half, has been run.")
    return [name for name in DATA_SETS if name in names]


def mean_increase(results: Results, method: str, case: str, half: str) -> float:
    """Mean over data sets of the relative difference of the risk."""
    return float(
        np.mean([increase(results, method, case, name) for name in names_run(results, case, half)])
    )


def notes(results: Results) -> list[str]:
    """A summary of each half and method, and a line per data set."""
    lines = []
    for half in HALVES:
        for case, methods in METHODS.items():
            try:
                names = names_run(results, case, half)
            except NotRunError:
                continue
            for method in methods[:-1]:
                lines += _lines(results, method, case, half, names)
    return lines


def _lines(results: Results, method: str, case: str, half: str, names: Sequence[str]) -> list[str]:
    risks = [100 * increase(results, method, case, name) for name in names]
    times = [100 * time_share(results, method, case, name) for name in names]
    within = sum(risk <= 100 * MOST_INCREASE for risk in risks)
    summary = (
        f"{half} half, {method} against a new fit: risk {np.mean(risks):+.2f} % on average, median "
        f"{np.median(risks):+.2f} %, at most +1 % in {within} of {len(names)} data sets; time "
        f"{np.mean(times):.1f} %, at most {max(times):.1f} %"
    )
    listed = "; ".join(
        f"{name} {risk:+.2f} % in {share:.2g} % of the time"
        for name, risk, share in zip(names, risks, times, strict=True)
    )
    return [summary, f"{half} half, {method}: {listed}"]


def _finding(words: str, half: str, holds: Any) -> Finding:
    return Finding(words, "aim", holds, panel=f"{half} half")


def _findings_of(half: str) -> tuple[Finding, ...]:
    def bars(case: str, method: str) -> tuple[Finding, ...]:
        most, change = MOST_TIME[case], WORDS[method]
        return (
            _finding(
                f"The risk after {change} is within 1 % of that of a new fit, on average over the "
                "data sets.",
                half,
                lambda results: mean_increase(results, method, case, half) <= MOST_INCREASE,
            ),
            _finding(
                f"The risk after {change} is within 1 % of that of a new fit, in every data set.",
                half,
                lambda results: all(
                    increase(results, method, case, name) <= MOST_INCREASE
                    for name in names_run(results, case, half)
                ),
            ),
            _finding(
                f"{change.capitalize()} takes at most {100 * most:g} % of the time of a new fit, "
                "in every data set.",
                half,
                lambda results: all(
                    time_share(results, method, case, name) <= most
                    for name in names_run(results, case, half)
                ),
            ),
        )

    return (*bars("drop", "dropped"), *bars("add", "added"))


def _cells() -> tuple[Cell, ...]:
    # The confirmation half counts as slow, so that a quick run never looks at it.
    return tuple(
        Cell(
            {"case": case, "half": data.half, "data": data.name},
            methods, REPLICATES, slow=data.half == "confirmation",
        )
        for data in DATA_SETS.values()
        if not data.missing(data_folder())
        for case, methods in METHODS.items()
    )  # fmt: skip


STUDY = Study(
    name="changes",
    title="A pool that changes",
    cells=_cells(),
    run=run,
    labels={"dropped": "drop", "robust": "drop, robust", "added": "add", "refitted": "new fit"},
    tables=tuple(
        Table(f"{words}: {metric_words}, {half} half", metric, ("data",), METHODS[case],
              {"case": (case,), "half": (half,)})
        for half in HALVES
        for case, words in {"drop": "A candidate is dropped", "add": "A candidate is added"}.items()
        for metric, metric_words in {"risk": "risk", "processor": "processor seconds"}.items()
    ),
    findings=tuple(finding for half in HALVES for finding in _findings_of(half)),
    notes=notes,
)  # fmt: skip
