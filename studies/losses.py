"""Other losses: Poisson, gamma and Bernoulli truths with known weights.

The paper claims a general loss, and this study tests it. There are two candidates that differ
everywhere, so the weights are identified. The true weights are logistic in the inputs, as in S1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localma.equations import local_average, softmax
from localma.losses import get_loss
from studies.drawing import draw_lines, save, subplots
from studies.findings import Finding, NotRunError, Results, decreasing, log_log_slope
from studies.harness import Cell, Keys, Metrics, Study, Table
from studies.methods import LABELS, fit
from studies.scenarios import N_INPUTS, Points, s1_coefficients

Array = NDArray[np.floating]

SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
N_TEST = 20_000
METHODS = ("auto", "paper", "gw")
GAMMA_SHAPE = 2.0

OBSERVE: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "poisson": lambda mean, rng: rng.poisson(mean).astype(float),
    "gamma": lambda mean, rng: rng.gamma(GAMMA_SHAPE, mean / GAMMA_SHAPE),
    "bernoulli": lambda mean, rng: rng.binomial(1, mean).astype(float),
}
"""Loss -> function that draws targets with a given mean."""


def candidates(loss: str, X: Array) -> Array:
    """Two candidates: means between 5 and 9 and between 0.5 and 2.5, or probabilities; (n, 2)."""
    waves = np.stack([np.sin(X[:, 0] + X[:, 1]), np.cos(X[:, 2])], axis=1)
    if loss == "bernoulli":
        return np.array([0.8, 0.2]) + 0.15 * waves
    return np.array([7.0, 1.5]) + np.array([2.0, 1.0]) * waves


def draw(loss: str, n: int, rng: np.random.Generator) -> Points:
    """Draw n points with true weights logistic in the inputs."""
    X = rng.standard_normal((n, N_INPUTS))
    P, weights = candidates(loss, X), softmax(X @ s1_coefficients(2))
    return Points(X, P, local_average(weights, P), weights)


def run(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """C1(w), and the loss between truth and prediction, ``loss(f0, f)``, zero at the truth."""
    for_sample, for_test, for_gates = seed.spawn(3)
    name, n = str(keys["loss"]), int(keys["n"])
    rng = np.random.default_rng(for_sample)
    sample = draw(name, n, rng)
    y = OBSERVE[name](sample.truth, rng)
    test = draw(name, N_TEST, np.random.default_rng(for_test))
    loss = get_loss(name)
    least = loss.value(test.truth, test.truth).mean()
    metrics = {}
    for method in methods:
        model = fit(method, sample.X, sample.P, y, for_gates, loss=name)
        weights = model.predict_weights(test.X)
        risk = loss.value(test.truth, local_average(weights, test.P)).mean()
        metrics[f"{method}:c1"] = test.c1(weights)
        metrics[f"{method}:excess risk"] = float(risk - least)
    return metrics


def notes(results: Results) -> list[str]:
    """Log-log slopes over n, for the cells that have been run."""
    lines = []
    for loss in OBSERVE:
        for metric, words in {"c1": "C1(w)", "excess risk": "excess risk"}.items():
            try:
                slope = log_log_slope(results.series("auto", metric, "n", loss=loss))
            except NotRunError:
                continue
            lines.append(
                f"log-log slope over n of the {words} of LocalMA (auto), {loss}: {slope:.2f}"
            )
    return lines


def draw_distances(results: Results, folder: Path) -> list[Path]:
    """C1(w) along n, a panel per loss."""
    figure, (panels,) = subplots(1, len(OBSERVE), sharey=True)
    for loss, axes in zip(OBSERVE, panels, strict=True):
        draw_lines(axes, results, {m: LABELS[m] for m in METHODS}, "c1", "n", loss=loss)
        axes.set(title=loss, xscale="log", yscale="log", xlabel="n")
    panels[0].set_ylabel("C1(w), distance to the true weights")
    panels[0].legend(frameon=False)
    return save(figure, folder, "losses")


def _decreases(results: Results, method: str, loss: str, metric: str) -> bool:
    return decreasing(results.series(method, metric, "n", loss=loss))


STUDY = Study(
    name="losses",
    title="Poisson, gamma and Bernoulli truths with known weights",
    cells=tuple(
        Cell({"loss": loss, "n": n}, METHODS, max(4, min(50, 200_000 // n)), slow=n > 3_000)
        for loss in OBSERVE
        for n in SIZES
    ),
    run=run,
    tables=(
        Table("C1(w), mean L1 distance to the true weights", "c1", ("loss", "n"), METHODS),
        Table("Excess risk, in units of each loss", "excess risk", ("loss", "n"), METHODS),
    ),
    labels=LABELS,
    findings=tuple(
        Finding(
            f"{loss}: the {words} of {LABELS[method]} decreases with n",
            f"Theorem {theorem}, for a general loss",
            lambda results, method=method, loss=loss, metric=metric: _decreases(
                results, method, loss, metric
            ),
        )
        for loss in OBSERVE
        for method in ("auto", "paper")
        for metric, words, theorem in (("c1", "C1(w)", 3), ("excess risk", "excess risk", 2))
    ),
    notes=notes,
    figures={"losses": draw_distances},
)
