"""A monitor of a model in production: false alarms, and rows until a change is found.

A replicate is one stream of 10,000 rows, in batches of 100. After each batch every method is asked
whether it raises an alarm. In the case "none" nothing changes. In the others something changes
after 5,000 rows:

- accuracy: the most trusted candidate becomes worse. In the classification 20 % of its right
  classes become wrong. In the regression the root of its mean squared error rises by 20 %.
- input: the first input moves by one standard deviation.
- drift: the target slowly departs from the truth that the candidates know. At the end of the
  stream the mean loss of the combination is about three times that of the fit (regression) or
  twice (classification).

Streams share 20 models of each task, fitted on 300 or 1,000 rows. Predictions of candidates with
trees, and an input of counts, have equal values.

The monitor gets all inputs, predictions and labels. ADWIN and Page-Hinkley (river, default
settings) get the loss of the combination in units of its standard deviation in the labelled sample,
or the first input, which is the one that moves, in its own. `RiskMonitoring` (MAPIE, without
tolerance) compares a risk from 0 to 1 with that of a further labelled sample of the same size: the
share of wrong classes, or of losses above the 0.875-quantile of the fit. It computes its bound
after every row anew, which takes 0.6 s a stream. Here its own code computes it after each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from localma import LocalMAClassifier, LocalMARegressor
from localma.equations import row_losses
from localma.errors import InvalidInputError
from localma.production import Monitor
from localma.production.monitor_report import ALARM
from studies.findings import Finding, NotRunError, Results
from studies.harness import Study, grid
from studies.markdown import table

Array = NDArray[np.floating]
Metrics = dict[str, float]

LENGTH, CHANGE, BATCH = 10_000, 5_000, 100
STREAMS = 500
MODELS = 20
SIZES = (300, 1_000)
N_BUILD = 300
N_CLASSES = 3
WORSE = 0.20
TASKS = ("regression", "classification")
CASES = {
    "none": "no change: streams with an alarm",
    "accuracy": "one candidate 20 % worse",
    "input": "one input moves by one standard deviation",
    "drift": "slow drift over 5,000 rows",
}
METHODS = {
    "localma": "localma: Monitor",
    "adwin_loss": "river: ADWIN, loss",
    "adwin_input": "river: ADWIN, first input",
    "ph_loss": "river: Page-Hinkley, loss",
    "ph_input": "river: Page-Hinkley, first input",
    "mapie": "MAPIE: RiskMonitoring",
}
MOST_FALSE = 0.05
LEAST_UNALARMED = 0.5
"""A delay is shown if at least half of the streams had no alarm before the change."""


@dataclass(frozen=True)
class Fitted:
    """A model with its candidates, and the scale of its losses."""

    model: Any
    candidates: tuple[Any, ...]
    trusted: int
    n: int
    loss_scale: float
    loss_cut: float


def draw_inputs(n: int, rng: np.random.Generator) -> Array:
    """Four inputs, of which the last is a count: (n, 4)."""
    return np.column_stack([rng.standard_normal((n, 3)), rng.poisson(1.0, n)])


def truth_of(X: Array) -> Array:
    """What candidates can know: (n,)."""
    return np.sin(1.5 * X[:, 0]) + 0.7 * np.abs(X[:, 1]) + 0.3 * X[:, 3]


def draw_targets(task: str, X: Array, drift: Array, rng: np.random.Generator) -> NDArray[Any]:
    """Targets (n,); drift : (n,) size of an effect that no candidate knows."""
    score = truth_of(X) + (1.0 if task == "regression" else 2.0) * drift * X[:, 2]
    if task == "regression":
        return score + 0.5 * rng.standard_normal(len(X))
    logits = 5.0 * np.column_stack([np.zeros(len(X)), score - 0.8, X[:, 1] - 0.3])
    return (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


@cache
def fitted(task: str, number: int) -> Fitted:
    """One of the models of a task."""
    rng = np.random.default_rng([TASKS.index(task), number])
    n = SIZES[number % len(SIZES)]
    X = draw_inputs(N_BUILD + n, rng)
    y = draw_targets(task, X, np.zeros(len(X)), rng)
    build, sample = slice(0, N_BUILD), slice(N_BUILD, None)
    left = X[build, 0] < 0
    if task == "regression":
        models = (Ridge(), DecisionTreeRegressor(max_depth=5, random_state=0), Ridge())
    else:
        models = (
            LogisticRegression(),
            DecisionTreeClassifier(max_depth=5, min_samples_leaf=10, random_state=0),
            LogisticRegression(),
        )
    rows = (np.ones(N_BUILD, dtype=bool), np.ones(N_BUILD, dtype=bool), left)
    candidates = tuple(m.fit(X[build][r], y[build][r]) for m, r in zip(models, rows, strict=True))
    kind = LocalMARegressor if task == "regression" else LocalMAClassifier
    named = dict(zip(("line", "tree", "left"), candidates, strict=True))
    model = kind(named, random_state=number).fit(X[sample], y[sample])
    held_out = model.gate_.held_out_losses_
    trusted = int(np.argmax(model.mean_weights_))
    scale, cut = float(held_out.std()), float(np.quantile(held_out, 0.875))
    return Fitted(model, candidates, trusted, n, scale, cut)


@dataclass(frozen=True)
class Stream:
    """Rows in the order of time.

    X : (n, 4); P : (n, M) or (n, M, K); y : (n,); losses, risks : (n,) of the combination
    reference : (n_fit,) risks of a further labelled sample
    """

    X: Array
    P: Array
    y: NDArray[Any]
    losses: Array
    risks: Array
    reference: Array


def draw_stream(task: str, case: str, of: Fitted, rng: np.random.Generator) -> Stream:
    """Draw the rows of a stream, after those of a labelled sample for MAPIE."""
    n = LENGTH + of.n
    X = draw_inputs(n, rng)
    time = np.arange(n) - of.n - CHANGE
    changed = time >= 0
    if case == "input":
        X[changed, 0] += 1.0
    drift = np.where(changed & (case == "drift"), time / (LENGTH - CHANGE), 0.0)
    y = draw_targets(task, X, drift, rng)
    P = predict(task, of.candidates, X)
    if case == "accuracy":
        P[changed, of.trusted] = worsened(P[:, of.trusted], y, changed, rng)
    average = np.einsum("nm,nm...->n...", of.model.predict_weights(X), P)
    outputs, targets = of.model._gate_outputs(average[:, np.newaxis], y)
    losses = row_losses(of.model.loss_, targets, outputs[:, 0])
    risks = losses > of.loss_cut if task == "regression" else average.argmax(axis=1) != y
    stream, sample = slice(of.n, None), slice(0, of.n)
    return Stream(X[stream], P[stream], y[stream], losses[stream], risks[stream], risks[sample])


def predict(task: str, candidates: Sequence[Any], X: Array) -> Array:
    """Predictions of the candidates: (n, M) or (n, M, K)."""
    if task == "regression":
        return np.stack([model.predict(X) for model in candidates], axis=1)
    P = np.zeros((len(X), len(candidates), N_CLASSES))
    for m, model in enumerate(candidates):
        P[:, m, model.classes_] = model.predict_proba(X)
    return P


def worsened(
    P: Array, y: NDArray[Any], changed: NDArray[np.bool_], rng: np.random.Generator
) -> Array:
    """Predictions of a candidate in the changed rows, after it has become worse by 20 %."""
    before, after = ~changed, changed
    values = P[after].copy()
    if P.ndim == 1:
        mse = np.mean((P[before] - y[before]) ** 2)
        noise = np.sqrt(((1.0 + WORSE) ** 2 - 1.0) * mse) * rng.standard_normal(len(values))
        return values + noise
    is_right = values.argmax(axis=1) == y[after]
    broken = is_right & (rng.random(len(values)) < WORSE)
    values[broken] = np.roll(values[broken], 1, axis=1)
    return values


# Methods: the row of the first alarm, or infinity.


def of_monitor(stream: Stream, of: Fitted, seed: int) -> float:
    """`localma.production.Monitor`, with labels at once."""
    monitor = Monitor(of.model, random_state=seed)
    for start in range(0, LENGTH, BATCH):
        rows = slice(start, start + BATCH)
        monitor.observe(stream.X[rows], stream.P[rows], stream.y[rows])
        if monitor.evidence >= ALARM:
            return start + BATCH
    return np.inf


def of_river(name: str, values: Array) -> float:
    """A detector of river on one series, which it gets row by row."""
    _need("river")
    from river import drift

    detector = getattr(drift, name)()
    for row, value in enumerate(values.tolist()):
        detector.update(value)
        if detector.drift_detected:
            return float(-(-(row + 1) // BATCH) * BATCH)
    return np.inf


def of_mapie(stream: Stream) -> float:
    """`RiskMonitoring` of MAPIE, whose bound is computed after each batch."""
    _need("mapie")
    from mapie.exchangeability_testing import RiskMonitoring
    from mapie.exchangeability_testing.bounds import GammaExponentialMixtureBound

    monitor = RiskMonitoring(risk="accuracy", tolerance=0.0, warn=False)
    right = 1 - stream.reference.astype(int)
    monitor.compute_threshold(right, np.ones_like(right))
    n = np.arange(1, LENGTH + 1)
    means = np.cumsum(stream.risks) / n
    variation = np.cumsum((stream.risks - np.append(0.5, means[:-1])) ** 2)
    alpha = monitor.test_level_online / 2
    bound = GammaExponentialMixtureBound(v_opt=1, c=1, alpha_opt=alpha)
    for end in range(BATCH, LENGTH + 1, BATCH):
        radius = bound(v=float(variation[end - 1]), alpha=alpha) / end
        if means[end - 1] - radius > monitor.threshold:
            return float(end)
    return np.inf


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise InvalidInputError(
            f"The study 'monitor' needs {package}, which is not installed. Run "
            "pip install --no-deps -r studies/requirements-monitor.txt"
        )


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Alarms of some methods on one stream."""
    rng = np.random.default_rng(seed)
    of = fitted(keys["task"], int(rng.integers(MODELS)))
    stream = draw_stream(keys["task"], keys["case"], of, rng)
    loss = stream.losses / of.loss_scale
    detectors: dict[str, Callable[[], float]] = {
        "localma": lambda: of_monitor(stream, of, int(seed.generate_state(1)[0])),
        "adwin_loss": lambda: of_river("ADWIN", loss),
        "ph_loss": lambda: of_river("PageHinkley", loss),
        "adwin_input": lambda: of_river("ADWIN", stream.X[:, 0]),
        "ph_input": lambda: of_river("PageHinkley", stream.X[:, 0]),
        "mapie": lambda: of_mapie(stream),
    }
    metrics = {}
    for method in methods:
        at = detectors[method]()
        early = at <= (LENGTH if keys["case"] == "none" else CHANGE)
        metrics[f"{method}:false_alarm"] = float(early)
        if keys["case"] != "none" and not early:
            metrics[f"{method}:delay"] = min(at, LENGTH + BATCH) - CHANGE
    return metrics


# Results.


def values_of(results: Results, method: str, metric: str, case: str, tasks: Sequence[str]) -> Array:
    """Values of a metric over the streams of some tasks."""
    found = [
        results.values(method, metric, task=task, case=case)
        for task in tasks
        if results.has_run(method, metric, task=task, case=case)
    ]
    return np.concatenate(found) if found else np.empty(0)


def false_alarms(results: Results, method: str, tasks: Sequence[str] = TASKS) -> float:
    """Share of the streams without a change that raise an alarm."""
    values = values_of(results, method, "false_alarm", "none", tasks)
    if not len(values):
        raise NotRunError(f"No stream without a change has been run by {method}.")
    return float(values.mean())


def delay(results: Results, method: str, case: str, tasks: Sequence[str]) -> str:
    """Median delay, and the share of the streams in which it was found until the end."""
    early = values_of(results, method, "false_alarm", case, tasks)
    delays = values_of(results, method, "delay", case, tasks)
    if not len(early):
        return ""
    if early.mean() > LEAST_UNALARMED:
        return f"{100 * early.mean():.0f} % too early"
    found = delays <= LENGTH - CHANGE
    if np.median(delays) > LENGTH - CHANGE:
        return f"found in {100 * found.mean():.0f} %"
    share = "" if found.all() else f" (found in {100 * found.mean():.1f} %)"
    return f"{np.median(delays):,.0f}{share}"


def overview(results: Results) -> str:
    """One table of all methods."""
    parts = []
    for title, tasks in (("both tasks", TASKS), *((task, (task,)) for task in TASKS)):
        body = []
        for method, label in METHODS.items():
            try:
                alarms = f"{100 * false_alarms(results, method, tasks):.1f} %"
            except NotRunError:
                continue
            delays = [delay(results, method, case, tasks) for case in CASES if case != "none"]
            body.append([label, alarms, *delays])
        if body:
            n = len(values_of(results, "localma", "false_alarm", "none", tasks))
            head = [f"{title}, {n:,} streams a case", *CASES.values()]
            parts.append(table(head, body))
    if not parts:
        return ""
    return "**Median number of rows from the change to the alarm**\n\n" + "\n\n".join(parts)


STUDY = Study(
    name="monitor",
    title="A monitor in production",
    cells=grid(tuple(METHODS), STREAMS, task=TASKS, case=list(CASES)),
    run=run,
    labels=METHODS,
    findings=(
        Finding(
            "At most 5 % of the streams without a change raise an alarm of the monitor.",
            "aim",
            lambda results: false_alarms(results, "localma") <= MOST_FALSE,
        ),
    ),
    overview=overview,
)
