"""Dependent rows: what the verdict claims, and what comes true on fresh rows.

The default folds are compared with shuffled folds, with blocks of consecutive rows and with the
true groups. The part "nulls" has nothing local, and the part "power" has a true gain, on simulated
samples of `studies.dependence_data`. The part "prices" has two real series.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import LocalMAClassifier, LocalMARegressor
from localma.equations import local_average
from localma.errors import OutsideSampleWarning
from localma.losses import get_loss
from localma.tables.encoder import TableEncoder
from studies import dependence_prices, markdown
from studies.dependence_data import SCENARIOS, STRENGTHS, Part, scenario
from studies.findings import Finding, NotRunError, Results
from studies.harness import Cell, Keys, Metrics, Study
from studies.safety_data import data_folder

Array = NDArray[np.floating]
Model = LocalMARegressor | LocalMAClassifier

N_FRESH = 20_000
"""Number of fresh rows on which the truth is measured."""
ROUNDING = 1e-6
"""Differences below this share of the risk are rounding: the solver stops there."""
MOST_COST = 0.002
NO_RISK = "local, grid without noise"
"""Here local weights have no risk at all, so a share of it means nothing."""
LEAST_COVERAGE = 0.9
NULL_SIZES = (200, 2_000)
POWER_SIZES = (100, 300, 1_000)

FOLDS = ("auto", "shuffled", "blocks")
"""Methods that are values of the parameter `folds`. The others pass groups."""

_SERIES = ("independent inputs", "slow inputs", "slower inputs", "slow inputs and hours")
_BARRED_SERIES = ("slow inputs", "slow inputs and hours")


@dataclass(frozen=True)
class Bar:
    """Null scenarios with a limit.

    false : largest share of false claims; scenarios : names; measured : those with 400 data sets
    coverage : whether the interval must cover the true gain in 90 % of the data sets
    """

    name: str
    false: float
    scenarios: tuple[str, ...]
    measured: tuple[str, ...]
    coverage: bool = True


BARS = (
    Bar("independent rows", 0.02, ("independent",), ("independent",)),
    *(
        Bar(
            f"AR(1) errors of {phi}",
            0.05,
            tuple(f"AR {phi}, {inputs}" for inputs in _SERIES),
            tuple(f"AR {phi}, {inputs}" for inputs in _BARRED_SERIES),
        )
        for phi in (".3", ".6", ".9")
    ),
    Bar(
        "20 clusters",
        0.05,
        tuple(name for name in SCENARIOS if name.startswith("20 ")),
        ("20 clusters, contiguous", "20 clusters, named", "20 dates, by date"),
    ),
    Bar(
        "duplicated rows",
        0.05,
        ("every row twice", "every row three times", "half of the rows twice", "bootstrap sample"),
        ("every row twice", "every row three times", "half of the rows twice", "bootstrap sample"),
    ),
    Bar(
        "random walk",
        0.10,
        ("random walk, slow inputs", "random walk, slow inputs and hours"),
        ("random walk, slow inputs",),
        coverage=False,
    ),
)


# One replicate.


def run(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Claims, truth and risk of some methods, for one sample or one price series."""
    if keys["part"] == "prices":
        return _run_prices(keys, methods)
    for_sample, for_fresh, for_fit = (int(number) // 2 for number in seed.generate_state(3))
    sample = scenario(str(keys["scenario"]), int(keys["n"]), for_sample)
    fresh = sample.continuations(N_FRESH, for_fresh)
    metrics = {}
    for method in methods:
        model = fitted(sample.part, sample.loss, method, for_fit)
        metrics |= {f"{method}:{name}": value for name, value in judged(model, fresh).items()}
    return metrics


def fitted(part: Part, loss: str, method: str, random_state: int) -> Model:
    """Fit the estimator with one kind of folds."""
    kind = LocalMAClassifier if loss == "cross_entropy" else LocalMARegressor
    model = kind(
        loss=loss,
        gate_features=None if isinstance(part.X, np.ndarray) else TableEncoder(),
        folds=method if method in FOLDS else "auto",
        random_state=random_state,
    )
    groups = None if method in FOLDS else part.groups
    return model.fit(part.X, part.y, predictions=part.P, groups=groups)


def row_losses(model: Model, part: Part, prediction: Array) -> Array:
    """Loss of each row: (n,). prediction : (n,), or probabilities (n, K)."""
    loss = get_loss(model.loss)
    if prediction.ndim == 1:
        return loss.value(part.y, prediction)
    return loss.value(np.ones(len(part.y)), prediction[np.arange(len(part.y)), part.y])


def paired_losses(model: Model, fresh: Part) -> tuple[Array, Array]:
    """Losses of a fitted model and of its global weights, row by row: (n,) each."""
    predict = getattr(model, "predict_proba", model.predict)
    constant = local_average(np.tile(model.global_weights_, (len(fresh.y), 1)), fresh.P)
    with warnings.catch_warnings():  # hours after the sample lie outside it
        warnings.simplefilter("ignore", OutsideSampleWarning)
        local = predict(fresh.X, predictions=fresh.P)
    return row_losses(model, fresh, local), row_losses(model, fresh, constant)


def judged(model: Model, fresh: Part) -> Metrics:
    """What a fitted model claims, and what comes true.

    Returns
    -------
    metrics : `claim`, whether it recommends local weights; `gain`, the claimed gain in parts of the
        global risk; `true_gain`, the same on fresh rows; `covered`, whether value ± 1.96 standard
        errors covers the true gain; `risk` on fresh rows; `acted`, whether dependence was found.
    """
    losses, constant = (values.mean() for values in paired_losses(model, fresh))
    gain, true_gain = model.locality_gain_, constant - losses
    distance, reach = abs(gain.value - true_gain), 1.96 * gain.standard_error + ROUNDING * constant
    return {
        "claim": float(claims(model)),
        "gain": gain.value / gain.global_risk,
        "true_gain": float(true_gain / constant),
        "covered": float(not distance > reach),  # an unknown standard error claims nothing
        "risk": float(losses),
        "acted": float(model.dependence_ is not None),
    }


def claims(model: Model) -> bool:
    """Whether a fitted model recommends local weights."""
    return model.locality_gain_.is_local and not model.gate_.is_constant


def _run_prices(keys: Keys, methods: Sequence[str]) -> Metrics:
    """The first year labelled, the second tested; standard errors on test rows between weeks."""
    series = dependence_prices.load(data_folder(), str(keys["market"]))
    labelled, tested = series.split(lagged=keys["inputs"] == "lagged")
    metrics = {}
    for method in methods:
        part = labelled.part(method)
        model = fitted(part, str(keys["loss"]), method, random_state=0)
        losses, constant = paired_losses(model, tested.part())
        weekly = tested.weekly_means(constant - losses) / constant.mean()
        found = judged(model, tested.part())
        found["gain_error"] = model.locality_gain_.standard_error / model.locality_gain_.global_risk
        found["true_gain_error"] = float(weekly.std(ddof=1) / np.sqrt(len(weekly)))
        metrics |= {f"{method}:{name}": value for name, value in found.items()}
    return metrics


# Summaries.


@dataclass(frozen=True)
class Summary:
    """Shares and means over the replicates of one cell and method."""

    replicates: int
    claims: float
    false: float
    coverage: float
    gain: float
    true_gain: float
    acted: float


def summary(results: Results, method: str, **keys: Any) -> Summary:
    """Summarise the replicates of one cell. There must be at least one."""

    def values(metric: str) -> Array:
        return results.values(method, metric, **keys)

    claim, true_gain = values("claim"), values("true_gain")
    return Summary(
        replicates=len(claim),
        claims=float(claim.mean()),
        false=float(((claim > 0) & (true_gain <= 0)).mean()),
        coverage=float(values("covered").mean()),
        gain=float(values("gain").mean()),
        true_gain=float(true_gain.mean()),
        acted=float(values("acted").mean()),
    )


def cost(results: Results, **keys: Any) -> tuple[float, float]:
    """Mean of the risk with the default folds over that with shuffled folds, minus one; error."""
    ours, theirs = results.paired("auto", "shuffled", "risk", **keys)
    ratios = ours / theirs - 1
    return float(ratios.mean()), float(ratios.std(ddof=1) / np.sqrt(len(ratios)))


def _meets(results: Results, bar: Bar, allowed: Callable[[Summary], bool]) -> bool:
    found = [
        summary(results, "auto", part="nulls", scenario=name, n=n)
        for name in bar.scenarios
        for n in NULL_SIZES
    ]
    return all(map(allowed, found))


def _of_bar(bar: Bar) -> list[Finding]:
    findings = [
        Finding(
            f"{bar.name}: false claims in at most {bar.false:.0%} of the samples, in each variant "
            "and at both sizes.",
            "aim",
            lambda results: _meets(results, bar, lambda found: found.false <= bar.false),
        )
    ]
    if bar.coverage:
        findings.append(
            Finding(
                f"{bar.name}: value ± 1.96 standard errors covers the true gain in at least 90% of "
                "the samples, in each variant and at both sizes.",
                "aim",
                lambda results: _meets(results, bar, lambda f: f.coverage >= LEAST_COVERAGE),
            )
        )
    return findings


def _independent_cells(results: Results) -> list[dict[str, Any]]:
    """Cells of independent rows, in any order, in which both kinds of folds have been run."""
    found = [
        keys
        for method, metric, keys in results.entries()
        if (method, metric) == ("shuffled", "risk")
        and keys["part"] in ("nulls", "power")
        and is_independent(keys["scenario"])
        and keys["scenario"] != NO_RISK
    ]
    if not found:
        raise NotRunError("No replicate with shuffled folds and independent rows has been run.")
    return found


def is_independent(name: str) -> bool:
    """Whether the rows of a scenario are independent and distinct, in whatever order."""
    return SCENARIOS[name].kind == "trap" or (
        name.endswith("independent") or (name.startswith("local") and "AR" not in name)
    )


def _cheap(results: Results) -> bool:
    return all(cost(results, **keys)[0] <= MOST_COST for keys in _independent_cells(results))


def overview(results: Results) -> str:
    """Tables of all parts that have been run."""
    parts = [
        _null_table(results),
        _table_of_folds(results),
        _power_table(results),
        _cost_table(results),
        _price_table(results),
    ]
    return "\n\n".join(part for part in parts if part)


def _titled(title: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return f"**{title}**\n\n{markdown.table(head, body)}" if body else ""


def _run_cells(results: Results, part: str, method: str = "auto") -> list[Mapping[str, Any]]:
    """Cells of a part in which a method has been run, in the order of the study."""
    cells = (cell.keys for cell in STUDY.cells if cell.keys["part"] == part)
    return [keys for keys in cells if results.has_run(method, "claim", **keys)]


def _named(keys: Mapping[str, Any]) -> list[str]:
    return [keys["scenario"], f"{keys['n']:,}"]


def _null_table(results: Results) -> str:
    body = []
    for keys in _run_cells(results, "nulls"):
        found = summary(results, "auto", **keys)
        shares = (found.acted, found.claims, found.false, found.coverage)
        body.append(
            [
                *_named(keys),
                str(found.replicates),
                *(f"{share:.1%}" for share in shares),
                *(f"{gain:+.1%}" for gain in (found.gain, found.true_gain)),
            ]
        )
    head = ["scenario", "n", "samples", "dependence found", "claims", "false claims", "covered"]
    head += ["claimed gain", "true gain"]
    return _titled("Nothing local: the default", head, body)


def _table_of_folds(results: Results) -> str:
    methods = (*FOLDS, "groups")
    body = []
    for keys in _run_cells(results, "methods"):
        found = [
            summary(results, method, **keys) if results.has_run(method, "claim", **keys) else None
            for method in methods
        ]
        figures = [f"{one.false:.0%}; {one.true_gain:+.1%}" if one else "" for one in found]
        body.append([*_named(keys), *figures])
    title = "Nothing local: false claims, and mean true gain, by the kind of folds"
    return _titled(title, ["scenario", "n", *methods], body)


def _power_table(results: Results) -> str:
    body = []
    for keys in _run_cells(results, "power", "shuffled"):
        ours, theirs = (summary(results, method, **keys) for method in ("auto", "shuffled"))
        shares = (ours.claims, theirs.claims, ours.coverage)
        gains = (ours.true_gain, theirs.true_gain)
        body.append(
            [*_named(keys), *(f"{share:.0%}" for share in shares), *(f"{g:+.1%}" for g in gains)]
        )
    head = ["scenario", "n", "claims", "claims, shuffled", "covered", "true gain"]
    return _titled("A true gain", [*head, "true gain, shuffled"], body)


def _cost_table(results: Results) -> str:
    try:
        cells = _independent_cells(results)
    except NotRunError:
        return ""
    body = []
    for keys in sorted(
        cells, key=lambda keys: (list(SCENARIOS).index(keys["scenario"]), keys["n"])
    ):
        mean, error = cost(results, **keys)
        body.append([*_named(keys), f"{mean:+.2%} ± {error:.2%}"])
    head = ["scenario", "n", "risk with the default folds over that with shuffled folds, minus one"]
    return _titled("Independent rows: what the default costs", head, body)


def _price_table(results: Results) -> str:
    body = []
    for keys in _run_cells(results, "prices"):
        for method in PRICE_METHODS:
            if results.has_run(method, "claim", **keys):
                cell = {name: results.mean(method, name, **keys) for name in _PRICE_METRICS}
                start = [keys["market"], keys["loss"], keys["inputs"], method]
                body.append([*start, *_price_row(cell)])
    head = ["market", "loss", "inputs", "folds", "recommends local weights", "claimed gain"]
    return _titled("Electricity prices", [*head, "gain in the second year"], body)


_PRICE_METRICS = ("claim", "gain", "gain_error", "true_gain", "true_gain_error")


def _price_row(cell: Mapping[str, float]) -> list[str]:
    return [
        "yes" if cell["claim"] else "no",
        f"{cell['gain']:+.1%} ± {cell['gain_error']:.1%}",
        f"{cell['true_gain']:+.1%} ± {cell['true_gain_error']:.1%}",
    ]


# The study.

PRICE_METHODS = (*FOLDS, "days", "weeks")
_WITH_GROUPS = tuple(name for name in SCENARIOS if name.startswith("20 "))
_NULLS = tuple(name for name, found in SCENARIOS.items() if found.kind != "local")
_MANY = tuple(name for bar in BARS for name in bar.measured)


def _null_methods(name: str) -> tuple[str, ...]:
    return ("auto", "shuffled") if is_independent(name) else ("auto",)


def _compared(name: str) -> tuple[str, ...]:
    return (*FOLDS, "groups") if name in _WITH_GROUPS else FOLDS


def _cells() -> tuple[Cell, ...]:
    nulls = tuple(
        Cell(
            {"part": "nulls", "scenario": name, "n": n},
            _null_methods(name),
            400 if name in _MANY else 100,
            slow=n > NULL_SIZES[0],
        )
        for name in _NULLS
        for n in NULL_SIZES
    )
    compared = tuple(
        Cell({"part": "methods", "scenario": name, "n": n}, _compared(name), 60, slow=True)
        for bar in BARS
        for name in bar.measured
        for n in NULL_SIZES
    )
    power = tuple(
        Cell(
            {"part": "power", "scenario": name, "n": n},
            ("auto", "shuffled"),
            200 if name.removeprefix("local, ") in STRENGTHS else 100,
            slow=n > POWER_SIZES[0],
        )
        for name, found in SCENARIOS.items()
        if found.kind == "local"
        for n in POWER_SIZES
    )
    prices = tuple(
        Cell(
            {"part": "prices", "market": market, "loss": loss, "inputs": inputs},
            PRICE_METHODS,
            1,
            slow=True,
        )
        for market in dependence_prices.markets(data_folder())
        for loss in ("absolute_error", "squared_error")
        for inputs in ("calendar", "lagged")
    )
    return nulls + compared + power + prices


STUDY = Study(
    name="dependence",
    title="Dependent and duplicated rows",
    cells=_cells(),
    run=run,
    findings=(
        *(finding for bar in BARS for finding in _of_bar(bar)),
        Finding(
            "Independent rows, in any order: the default folds cost at most 0.2% of the risk with "
            "shuffled folds.",
            "aim",
            _cheap,
        ),
    ),
    overview=overview,
)
