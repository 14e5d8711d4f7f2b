"""Accuracy compared with other packages, on the data sets and splits of the study "safety".

Every method has the same inputs, predictions and labels of the sample, and predicts the same test
rows. Each package runs with its defaults in a separate environment, which
`python -m benchmarks peers` installs. Choices that a package leaves to its user are in the scripts
`benchmarks/peer_scripts/run_*.py`. scikit-learn and LightGBM run in this process.

If a method fails, the replicate has the metric "failed: MESSAGE" instead of a risk.
"""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.peers import Peer, PeerMissingError, interpreter
from localma.losses import get_loss
from studies.findings import Results
from studies.harness import Cell, Metrics, Study
from studies.rivals_results import (
    FAILED,
    LABELS,
    OURS,
    draw,
    failures,
    findings_of,
    label,
    of_half,
    replacements,
    summary_table,
    table_of,
)
from studies.safety import DATA_SETS, GATES, SEVERAL_OUTPUTS, posed
from studies.safety_data import DataSet, Part, data_folder
from studies.stacking import Array, Problem, Rivals, averaging

IN_PROCESS = ("sklearn", "lightgbm")
PEERS = ("deskit", "deslib", "autogluon", "bayesblend", "regularized_neural_ensemblers")
RIVALS = (*IN_PROCESS, *PEERS)
METHODS = (*OURS, *RIVALS)
SIZES = (300, 1000)
"""Sizes of the sample. A data set with a single size keeps it."""
REPLICATES = 5


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """The risk of some methods on the test part of one split, or a failure, "method:metric"."""
    data = DATA_SETS[keys["data"]].with_sample(keys["n"])
    sample, test = data.split(data_folder(), np.random.default_rng(seed))
    problem, sample, test = posed(data, sample, test)
    rivals = Rivals(problem, sample, int(seed.generate_state(2)[1]) // 2)
    metrics = {}
    with threadpool_limits(limits=1):
        for method in methods:
            for name, value in measure(rivals, test, method).items():
                metrics[f"{method}:{name}"] = value
    return metrics


def measure(rivals: Rivals, test: Part, method: str) -> Metrics:
    """Fit one method on the sample; its risk, and the share of predictions that were replaced."""
    try:
        predictions = predicted(rivals, test, method)
    except Exception as error:  # of any package; a missing one ends the run
        if isinstance(error, PeerMissingError) or "ModuleNotFoundError" in str(error):
            raise
        return {f"{FAILED}{last_line(error)}": 1.0}
    if not np.isfinite(predictions).all():
        return {f"{FAILED}predictions that are not finite": 1.0}
    usable, replaced = allowed(rivals.problem, test, predictions)
    risk = {"risk": rivals.problem.risk(test, usable)}
    return risk | ({"replaced": replaced} if replaced else {})


def predicted(rivals: Rivals, test: Part, method: str) -> Array:
    """Predictions of one method for the test part: (n,) or (n, K)."""
    if method in OURS:
        return averaging(rivals, rivals.sample, **GATES[method])(test)
    if method == "lightgbm":
        return rivals.learn(method).predict(test)
    if method == "sklearn":
        return stacked(rivals.problem, rivals.sample, test)
    return of_peer(method, exchanged(rivals, test))


_RUNNING: dict[str, Peer] = {}
"""The processes of this process, one for each package."""


def of_peer(method: str, arrays: dict[str, Any]) -> Array:
    """Predictions of a package in a separate process, which is started once."""
    peer = _RUNNING.pop(method, None)
    if peer is None:
        peer = Peer.start(method, arrays)
        atexit.register(close_peers)  # before the folder of this peer is removed
    predictions = peer.answer(arrays)["predictions"]
    _RUNNING[method] = peer  # unless it has ended with an error
    return predictions


def close_peers() -> None:
    """End the processes of packages."""
    while _RUNNING:
        _RUNNING.popitem()[1].close()


def exchanged(rivals: Rivals, test: Part) -> dict[str, Any]:
    """What a package in another process receives: standardised inputs, predictions, labels."""
    sample = rivals.sample
    scaler = StandardScaler().fit(sample.X)
    weight = {} if sample.sample_weight is None else {"weight": sample.sample_weight}
    return weight | {
        "X": scaler.transform(sample.X),
        "P": sample.P,
        "y": sample.y,
        "X_new": scaler.transform(test.X),
        "P_new": test.P,
        "loss": np.array(rivals.problem.loss),
        "seed": np.array(rivals.random_state % 2**31),
    }


def allowed(problem: Problem, part: Part, predictions: Array) -> tuple[Array, float]:
    """Predictions that the loss allows, and the share of rows in which they were replaced.

    A mean of counts or amounts must be positive. Where it is not, the smallest prediction of a
    candidate is used.
    """
    if problem.n_classes or get_loss(problem.loss).target.low != 0:
        return predictions, 0.0
    impossible = predictions <= 0
    return np.where(impossible, part.P.min(axis=1), predictions), float(impossible.mean())


def last_line(error: Exception) -> str:
    """The last line of a message, which names the error if it has a traceback.

    >>> last_line(ValueError("Traceback ...\\nValueError: no rows"))
    'ValueError: no rows'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:120]


class _Candidate(BaseEstimator):
    """A fitted model whose predictions are some columns of its input."""

    def __init__(self, columns: Any, classes: Any = None) -> None:
        self.columns, self.classes = columns, classes

    def fit(self, P: Array, y: Array) -> _Candidate:
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


class _Classifier(ClassifierMixin, _Candidate):
    @property
    def classes_(self) -> Any:
        return self.classes

    def predict_proba(self, P: Array) -> Array:
        return P[:, self.columns]


class _Regressor(RegressorMixin, _Candidate):
    def predict(self, P: Array) -> Array:
        return P[:, self.columns]


def stacked(problem: Problem, sample: Part, test: Part) -> Array:
    """scikit-learn's stacking of fitted models, with its default final model.

    That is a logistic regression of probabilities, or a ridge regression, whatever the loss.
    """
    M, K = sample.P.shape[1], problem.n_classes
    columns = np.arange(M * max(K, 1)).reshape(M, -1)
    if K:
        members = [_Classifier(own, np.arange(K)) for own in columns]
        model: Any = StackingClassifier(_named(members), cv="prefit")
    else:
        model = StackingRegressor(_named([_Regressor(own[0]) for own in columns]), cv="prefit")
    weight = {} if sample.sample_weight is None else {"sample_weight": sample.sample_weight}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(sample.P.reshape(len(sample.P), -1), sample.y, **weight)
    ask = model.predict_proba if K else model.predict
    return ask(test.P.reshape(len(test.P), -1))


def _named(members: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(f"m{m}", member) for m, member in enumerate(members)]


def unable(method: str, data: DataSet) -> str | None:
    """The reason why a method cannot do the task of a data set; None if it can."""
    if data.name in SEVERAL_OUTPUTS and method not in OURS:
        return "one output only"
    if method == "deslib" and not data.classification:
        return "classification only"
    with_density = data.classification or data.loss in ("squared_error", "poisson")
    if method == "bayesblend" and not with_density:
        return "needs a log predictive density, which this loss does not define"
    return None


def available_methods(data: DataSet) -> tuple[str, ...]:
    """Methods that can run on a data set with the installed packages; none if it is missing."""
    if data.missing(data_folder()) or data.name in SEVERAL_OUTPUTS:
        return ()
    return tuple(
        method for method in METHODS if unable(method, data) is None and _is_installed(method)
    )


@cache
def _is_installed(method: str) -> bool:
    if method not in PEERS:
        return method in (*OURS, "sklearn") or find_spec(method) is not None
    try:
        interpreter(method)
    except PeerMissingError:
        return False
    return True


def _sizes(data: DataSet) -> tuple[int, ...]:
    return tuple(n for n in data.sizes if n in SIZES) or (data.n_sample,)


def overview(results: Results) -> str:
    """The differences to each rival over all cells, and for each data set."""
    summary = summary_table(results, RIVALS)
    if not summary:
        return ""
    title = "**Risk minus that of a rival, in % of its risk, over cells**"
    detail = "**The same for auto + own and each data set, as mean over its sizes**"
    order = list(DATA_SETS)
    return f"{title}\n\n{summary}\n\n{detail}\n\n{table_of(results, RIVALS, order)}"


def notes(results: Results) -> list[str]:
    """Means of the confirmation half, failures, replaced predictions, reasons for empty cells."""
    found = failures(results) or ["No method failed in any replicate."]
    means = of_half(results, RIVALS, "confirmation")
    return means + found + replacements(results) + reasons()


def reasons() -> list[str]:
    """One line per method and reason why it cannot do the task of some data sets."""
    found: dict[tuple[str, str], list[str]] = {}
    for method in RIVALS:
        for name, data in DATA_SETS.items():
            reason = unable(method, data)
            if reason is not None and name not in SEVERAL_OUTPUTS:
                found.setdefault((label(method), reason), []).append(name)
    lines = [
        f"Empty for {method}, {len(names)} data sets: {reason}."
        for (method, reason), names in found.items()
    ]
    several = ", ".join(SEVERAL_OUTPUTS)
    return [*lines, f"Left out: {several}, because no rival takes several outputs."]


STUDY = Study(
    name="rivals",
    title="Accuracy compared with other packages",
    # The keys are those of the study "safety", so that the splits are the same.
    cells=tuple(
        Cell({"half": data.half, "data": data.name, "n": n}, available_methods(data), REPLICATES)
        for data in DATA_SETS.values()
        for n in _sizes(data)
    ),
    run=run,
    labels=LABELS,
    findings=findings_of(RIVALS),
    overview=overview,
    notes=notes,
    figures={"rivals": lambda results, folder: draw(results, folder, RIVALS, list(DATA_SETS))},
    draws_of="safety",
)
