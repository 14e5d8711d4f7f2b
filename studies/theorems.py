"""Theorems 1 to 3 in simulations: risks close to their infimum, weights close to the true ones.

Ratio: in scenario 2, in-sample and out-of-sample risk divided by the infimum over all weight
functions (the truth projected onto the candidates' range, point by point). A mean over 5,000
points would have a standard deviation of 0.15, so numerator and denominator share the same million
points.

Weights: in S1 the distance to the true weights. With two candidates they are identified.

Many companies: a new example in which the infimum of local averaging goes to zero with n, while
that of global averaging does not. The truth is ``10 x^2`` on [0, 1]. Each of ``M = ceil(n^(1/4)) +
1`` companies knows its own interval and has the tangent at its middle. A global average of lines
is a line, but the truth is not. All tangents lie below the truth, so the nearest one is locally
the best, with an error of at most ``10 / (2 M)^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.equations import local_average
from localma.gates import GlobalGate, Labelled, MLPGate
from localma.gates.mlp import theorem_architecture
from localma.losses import squared_error
from studies.drawing import draw_lines, save, subplots
from studies.findings import Finding, NotRunError, Results, decreasing, log_log_slope
from studies.harness import Cell, Keys, Metrics, Study, Table
from studies.methods import LABELS, fit
from studies.scenarios import N_INPUTS, Points, draw

Array = NDArray[np.floating]
Weigh = Callable[[Array], Array]

SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
N_TEST = 1_000_000
BLOCK = 100_000
LARGEST_FOR_THEOREM = 10_000
NOISE = 0.5
RATIO, WEIGHTS, COMPANIES = "ratio", "weights", "many companies"
AIMS = {100_000: 1.10, 1_000_000: 1.05}
"""Largest allowed out-of-sample ratio of `gate="auto"`."""


def replicates_at(n: int) -> int:
    """Fewer replicates as n grows, because their spread falls and their cost rises."""
    return max(2, min(20, 200_000 // n))


def run(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Metrics of one part of the study."""
    part = {RATIO: run_ratio, WEIGHTS: run_weights, COMPANIES: run_companies}[str(keys["part"])]
    return part(keys, seed, methods)


def fitted_weights(
    method: str, X: Array, P: Array, y: Array, seed: np.random.SeedSequence
) -> Weigh:
    """Fit a method; "theorem" is a network with the depth and width of the theorems."""
    gate: Any = method
    if method == "theorem":
        gate = MLPGate(theorem_architecture(len(X), X.shape[1]), shrinkage=0.0, start="random")
    model = fit(gate, X, P, y, seed)
    return model.predict_weights


def new_points(setting: str, seed: np.random.SeedSequence) -> Iterator[Points]:
    """A million new points, in blocks that fit into memory."""
    rng = np.random.default_rng(seed)
    return (draw(setting, BLOCK, rng) for _ in range(N_TEST // BLOCK))


def run_ratio(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Theorems 1 and 2: risks divided by their infima, which all methods share."""
    for_sample, for_test, for_gates = seed.spawn(3)
    rng, n = np.random.default_rng(for_sample), int(keys["n"])
    sample = draw("scenario 2", n, rng)
    y = sample.truth + rng.standard_normal(n)
    weigh = {m: fitted_weights(m, sample.X, sample.P, y, for_gates) for m in methods}
    risks = dict.fromkeys(methods, 0.0)
    infimum = 0.0
    for block in new_points("scenario 2", for_test):
        infimum += block.infimum() * BLOCK / N_TEST
        for method in methods:
            risks[method] += block.mse(weigh[method](block.X)) * BLOCK / N_TEST
    metrics = {}
    for method in methods:
        metrics[f"{method}:in-sample ratio"] = (
            sample.mse(weigh[method](sample.X)) / sample.infimum()
        )
        metrics[f"{method}:out-of-sample ratio"] = risks[method] / infimum
        metrics[f"{method}:infimum"] = infimum
    return metrics


def run_weights(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Theorem 3: mean L2 distance of the weights to the true ones, C1(w), and the MSE."""
    for_sample, for_test, for_gates = seed.spawn(3)
    setting, n = str(keys["setting"]), int(keys["n"])
    rng = np.random.default_rng(for_sample)
    sample = draw(setting, n, rng)
    y = sample.truth + rng.standard_normal(n)
    test = draw(setting, BLOCK, np.random.default_rng(for_test))
    metrics = {}
    for method in methods:
        weights = fitted_weights(method, sample.X, sample.P, y, for_gates)(test.X)
        distance = np.sqrt(np.sum((weights - test.weights) ** 2, axis=1)).mean()
        metrics[f"{method}:weight distance"] = float(distance)
        metrics[f"{method}:c1"] = test.c1(weights)
        metrics[f"{method}:mse"] = test.mse(weights)
    return metrics


def companies_of(n: int) -> int:
    """Number of companies at a sample size. It grows, as the paper allows."""
    return math.ceil(n**0.25) + 1


def company_lines(x: Array, n_companies: int) -> Array:
    """Predictions of each company: the tangent of ``10 x^2`` at its middle, (n, M)."""
    middle = (np.arange(n_companies) + 0.5) / n_companies
    return 10.0 * middle * (2.0 * x[:, np.newaxis] - middle)


def draw_companies(n: int, n_companies: int, rng: np.random.Generator) -> Points:
    """Points of the example with many companies."""
    x = rng.uniform(size=n)
    return Points(x[:, np.newaxis], company_lines(x, n_companies), 10.0 * x**2, None)


def run_companies(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Infima of local and global averaging as the number of companies grows, and the risks.

    The method "infimum" has both infima, over all weight functions and over constant weights.
    """
    for_sample, for_test, for_gates = seed.spawn(3)
    rng, n = np.random.default_rng(for_sample), int(keys["n"])
    n_companies = companies_of(n)
    sample = draw_companies(n, n_companies, rng)
    y = sample.truth + NOISE * rng.standard_normal(n)
    test = draw_companies(BLOCK, n_companies, np.random.default_rng(for_test))
    metrics = {}
    for method in methods:
        if method == "infimum":
            metrics["infimum:local"] = test.infimum()
            metrics["infimum:global"] = best_constant(test)
        else:
            weigh = fitted_weights(method, sample.X, sample.P, y, for_gates)
            metrics[f"{method}:mse"] = test.mse(weigh(test.X))
    return metrics


def best_constant(points: Points) -> float:
    """Smallest mean squared error of any constant weights, against the truth."""
    P, truth = points.P[:, :, np.newaxis], points.truth[:, np.newaxis]
    gate = GlobalGate().fit(Labelled.of(points.X, P, truth, loss=squared_error()))
    return float(
        np.mean((local_average(gate.predict_weights(points.X), points.P) - points.truth) ** 2)
    )


def notes(results: Results) -> list[str]:
    """Log-log slopes over n, for the cells that have been run."""
    asked = {
        **{
            f"{kind} ratio minus one, LocalMA (auto)": lambda kind=kind: _excess(results, kind)
            for kind in ("in-sample", "out-of-sample")
        },
        **{
            f"weight distance in {setting}, LocalMA (auto)": lambda setting=setting: results.series(
                "auto", "weight distance", "n", part=WEIGHTS, setting=setting
            )
            for setting in ("S1", "S1, M=2")
        },
        **{
            f"infimum of {kind} averaging, many companies": lambda kind=kind: results.series(
                "infimum", kind, "n", part=COMPANIES
            )
            for kind in ("local", "global")
        },
        "MSE of LocalMA (auto), many companies": lambda: results.series(
            "auto", "mse", "n", part=COMPANIES
        ),
    }
    lines = []
    for words, series in asked.items():
        try:
            lines.append(f"log-log slope over n of the {words}: {log_log_slope(series()):.2f}")
        except NotRunError:
            continue
    return lines


def draw_rates(results: Results, folder: Path) -> list[Path]:
    """Ratio minus one, weight distance and the infima of many companies, along n."""
    figure, ((ratio, weights, companies),) = subplots(1, 3)
    shown = {"auto": "LocalMA (auto)", "theorem": "theorems' architecture"}
    draw_lines(ratio, results, shown, "out-of-sample ratio", "n", above=1.0, part=RATIO)
    ratio.set(title="Scenario 2", ylabel="risk over its infimum, minus one")
    for k, (setting, label) in enumerate({"S1": "three", "S1, M=2": "two"}.items()):
        shown = {"auto": f"{label} candidates"}
        where = {"part": WEIGHTS, "setting": setting}
        draw_lines(weights, results, shown, "weight distance", "n", first_style=k, **where)
    weights.set(title="S1, LocalMA (auto)", ylabel="mean distance of the weights")
    where = {"part": COMPANIES}
    draw_lines(companies, results, {"auto": "LocalMA (auto)", "gw": "GW"}, "mse", "n", **where)
    for kind in ("local", "global"):
        at = results.series("infimum", kind, "n", **where)
        style = {"local": ":", "global": (0, (1, 3))}[kind]
        companies.plot(list(at), list(at.values()), "k", ls=style, label=f"infimum, {kind}")
    companies.set(title="Many companies", ylabel="MSE")
    for axes in (ratio, weights, companies):
        axes.set(xscale="log", yscale="log", xlabel="n")
        axes.legend(frameon=False)
    return save(figure, folder, "theorems")


def cells() -> tuple[Cell, ...]:
    """Cells of the three parts; those above n = 3,000 are slow."""

    def along_n(methods: tuple[str, ...], **keys: str) -> list[Cell]:
        return [
            Cell(
                {**keys, "n": n},
                tuple(m for m in methods if m != "theorem" or n <= LARGEST_FOR_THEOREM),
                replicates_at(n),
                slow=n > 3_000,
            )
            for n in SIZES
        ]

    return (
        *along_n(("auto", "theorem"), part=RATIO),
        *along_n(("auto", "theorem"), part=WEIGHTS, setting="S1"),
        *along_n(("auto", "theorem"), part=WEIGHTS, setting="S1, M=2"),
        *along_n(("infimum", "auto", "gw"), part=COMPANIES),
    )


def _excess(results: Results, kind: str) -> dict[int, float]:
    """Ratio of LocalMA (auto) to the infimum, minus one, along n."""
    series = results.series("auto", f"{kind} ratio", "n", part=RATIO)
    return {n: value - 1.0 for n, value in series.items()}


def _approaches_zero(results: Results) -> bool:
    infimum = results.series("infimum", "local", "n", part=COMPANIES)
    return decreasing(infimum) and log_log_slope(infimum) < -0.5


FINDINGS = (
    *(
        Finding(
            f"The {kind} ratio of LocalMA (auto) to the infimum gets closer to one with n",
            f"Theorem {theorem}",
            lambda results, kind=kind: log_log_slope(_excess(results, kind)) < -0.1,
        )
        for theorem, kind in ((1, "in-sample"), (2, "out-of-sample"))
    ),
    *(
        Finding(
            f"{setting}: the weights of LocalMA (auto) get closer to the true ones with n",
            "Theorem 3",
            lambda results, setting=setting: decreasing(
                results.series("auto", "weight distance", "n", part=WEIGHTS, setting=setting)
            ),
        )
        for setting in ("S1", "S1, M=2")
    ),
    Finding(
        "Many companies: the infimum of local averaging vanishes polynomially with n",
        "Section 3, after Theorem 1",
        _approaches_zero,
    ),
    Finding(
        "Many companies: the infimum of global averaging stays above 0.1",
        "Section 3, after Theorem 1",
        lambda results: (
            min(results.series("infimum", "global", "n", part=COMPANIES).values()) > 0.1
        ),
    ),
    *(
        Finding(
            f"The out-of-sample ratio of LocalMA (auto) is at most {most:.2f} at n = {n:,}",
            "aim",
            lambda results, n=n, most=most: (
                results.mean("auto", "out-of-sample ratio", part=RATIO, n=n) <= most
            ),
        )
        for n, most in AIMS.items()
    ),
)

STUDY = Study(
    name="theorems",
    title="Theorems 1 to 3 in simulations",
    cells=cells(),
    run=run,
    tables=(
        *(
            Table(
                f"Scenario 2: {kind} risk divided by its infimum",
                f"{kind} ratio",
                ("n",),
                ("auto", "theorem"),
                {"part": (RATIO,)},
            )
            for kind in ("in-sample", "out-of-sample")
        ),
        *(
            Table(
                title,
                metric,
                ("setting", "n"),
                ("auto", "theorem"),
                {"part": (WEIGHTS,)},
            )
            for metric, title in {
                "weight distance": "Mean L2 distance of the weights to the true ones",
                "mse": "MSE in settings with true weights",
            }.items()
        ),
        Table("Many companies: MSE", "mse", ("n",), ("auto", "gw"), {"part": (COMPANIES,)}),
        *(
            Table(
                f"Many companies: infimum of {kind} averaging",
                kind,
                ("n",),
                ("infimum",),
                {"part": (COMPANIES,)},
            )
            for kind in ("local", "global")
        ),
    ),
    labels={**LABELS, "theorem": f"LocalMA (theorems' architecture, p={N_INPUTS})"},
    findings=FINDINGS,
    notes=notes,
    figures={"theorems": draw_rates},
)
