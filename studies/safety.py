"""Is `gate="auto"` safe on real data? Its risk compared with equal, global and local weights.

A cell is a data set with a size of the labelled sample, and a replicate is one split of it. Methods
are chosen on the cells of the half "selection", and judged on those of the half "confirmation":
`--cells half=selection`. Data sets whose file or package is missing are left out and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import LocalMAClassifier, LocalMARegressor
from localma.gates import Gate
from localma.losses import get_loss
from studies.findings import Finding, NotRunError, Results
from studies.harness import Cell, Study, Table
from studies.pairs import difference
from studies.safety_confirmation import CONFIRMATION
from studies.safety_data import DataSet, Part, data_folder
from studies.safety_selection import SELECTION

Array = NDArray[np.floating]
Metrics = dict[str, float]

DATA_SETS = {data.name: data for data in (*SELECTION, *CONFIRMATION)}

METHODS = ("equal", "global", "local", "paper", "auto")


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Metrics of some methods on one split of one data set, keyed "method:metric"."""
    data = DATA_SETS[keys["data"]].with_sample(keys["n"])
    sample, test = data.split(data_folder(), np.random.default_rng(seed))
    gates = {name: name for name in methods}
    return compare(data, sample, test, gates, int(seed.generate_state(2)[1]) // 2)


def compare(
    data: DataSet,
    sample: Part,
    test: Part,
    gates: Mapping[str, str | Gate],
    random_state: int,
) -> Metrics:
    """Fit each gate on the sample and evaluate it on the test part.

    Returns
    -------
    metrics : for each gate its `risk`; for each gate with a verdict also the claimed `gain` and
        `gain_error`, and `true_gain`, the test risk of the global gate minus that of this gate.
    """
    metrics = {}
    for name, gate in gates.items():
        model = fitted(data, sample, gate, random_state)
        risk = risk_on(data, model, test)
        metrics[f"{name}:risk"] = risk
        if hasattr(model, "locality_gain_"):
            constant = fitted(data, sample, "global", random_state)
            metrics[f"{name}:gain"] = model.locality_gain_.value
            metrics[f"{name}:gain_error"] = model.locality_gain_.standard_error
            metrics[f"{name}:true_gain"] = risk_on(data, constant, test) - risk
    return metrics


def fitted(data: DataSet, sample: Part, gate: str | Gate, random_state: int) -> Any:
    """Fit the estimator of a data set with this gate."""
    kind = LocalMAClassifier if data.classification else LocalMARegressor
    model = kind(loss=data.loss, gate=gate, random_state=random_state)
    return model.fit(sample.X, sample.y, sample.sample_weight, predictions=sample.P)


def risk_on(data: DataSet, model: Any, test: Part) -> float:
    """Weighted mean loss of a fitted model on the test part."""
    losses = row_losses(data, model, test)
    return float(np.average(losses, weights=test.sample_weight))


def row_losses(data: DataSet, model: Any, part: Part) -> Array:
    """Loss of each row of a part under a fitted model: (n,)."""
    loss = get_loss(data.loss)
    if not data.classification:
        values = loss.value(part.y, model.predict(part.X, predictions=part.P))
        return values if values.ndim == 1 else values.mean(axis=1)
    probabilities = model.predict_proba(part.X, predictions=part.P)
    observed = np.searchsorted(model.classes_, part.y)
    if loss.name == "cross_entropy":
        return loss.value(np.ones(len(part.y)), probabilities[np.arange(len(part.y)), observed])
    return loss.value(np.eye(len(model.classes_))[observed], probabilities).mean(axis=1)


def summary(results: Results, name: str) -> dict[str, Any]:
    """`auto` compared with the better of global and equal, and its verdicts, in one data set."""
    rivals = {
        other: difference(results, "risk", "auto", other, data=name)
        for other in ("global", "equal")
    }
    better = max(rivals, key=lambda other: rivals[other].mean)
    found = rivals[better]
    gain = results.values("auto", "gain", data=name)
    clear = np.abs(gain) > 2 * results.values("auto", "gain_error", data=name)
    wrong = clear & (np.sign(gain) != np.sign(results.values("auto", "true_gain", data=name)))
    return {
        "data": name,
        "better": better,
        "percent": 100 * found.mean / found.risk,
        "error": 100 * found.error / found.risk,
        "safe": found.is_allowed,
        "claims": int(clear.sum()),
        "wrong": int(wrong.sum()),
    }


def summaries(results: Results) -> list[dict[str, Any]]:
    """One summary per data set that was run. There must be at least one."""
    names = {keys["data"] for method, metric, keys in results.entries() if method == "auto"}
    if not names:
        raise NotRunError("No replicate of auto has been run.")
    return [summary(results, name) for name in DATA_SETS if name in names]


def notes(results: Results) -> list[str]:
    """One line per data set, and the missing data sets."""
    try:
        rows = summaries(results)
    except NotRunError:
        rows = []
    lines = [
        "{data}: auto - {better} = {percent:+.2f} % ± {error:.2f} % of the risk; "
        "{claims} clear verdicts, {wrong} wrong".format(**row)
        for row in rows
    ]
    return lines + [f"Left out: {reason}." for reason in _missing()]


def _missing() -> list[str]:
    reasons = (data.missing(data_folder()) for data in DATA_SETS.values())
    return [reason for reason in reasons if reason]


def _cells() -> tuple[Cell, ...]:
    # The confirmation half counts as slow, so that a quick run never looks at it.
    return tuple(
        Cell({"half": data.half, "data": data.name, "n": n}, METHODS, 20, data.half != "selection")
        for data in DATA_SETS.values()
        if not data.missing(data_folder())
        for n in data.sizes or (data.n_sample,)
    )


STUDY = Study(
    name="safety",
    title="Safe locality on real data",
    cells=_cells(),
    run=run,
    tables=(Table("Risk on the test part", "risk", ("data",), METHODS),),
    findings=(
        Finding(
            "auto is in no data set behind the better of global and equal by more than 1 % of the "
            "risk or three standard errors.",
            "aim",
            lambda results: all(row["safe"] for row in summaries(results)),
        ),
        Finding(
            "The mean over data sets of auto's difference to the better of global and equal is not "
            "positive.",
            "aim",
            lambda results: np.mean([row["percent"] for row in summaries(results)]) <= 0,
        ),
        Finding(
            "If the verdict claims more than two standard errors, the test part agrees.",
            "aim",
            lambda results: not any(row["wrong"] for row in summaries(results)),
        ),
    ),
    notes=notes,
)
