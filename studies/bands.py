"""Bands of the weights: how often they cover the optimal weight, for smooth truths.

Two candidates differ by d(x). The target is their average with the weight w*(x), plus noise. So
w*(x) minimises the conditional squared error given x, and it is known. The coverage of a sample is
the share of new rows, drawn like the labelled ones, whose w*(x) is within the band. It must be
between 85 and 95 % on average over samples, at level 90 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import LocalMARegressor
from studies.findings import Finding, NotRunError, Results
from studies.harness import Study, Table, grid

Array = NDArray[np.floating]
Metrics = dict[str, float]
Function = Callable[[Array], Array]

LEVELS = {"50 %": 0.5, "90 %": 0.9, "99 %": 0.99}
"""Methods of this study: the levels of a band."""

SIZES = (100, 300, 900, 2_000)
"""Beyond the last one a band is refused."""
N_NEW = 1000
REPLICATES = 100
LOWEST, HIGHEST = 0.85, 0.95


@dataclass(frozen=True)
class Truth:
    """An optimal weight as a function of the inputs, and a sample that shows it.

    weight, difference : X (n, p) -> (n,), w* and d; n_inputs : p; noise : its standard deviation
    gaussian : whether inputs are Gaussian, instead of uniform in [-1, 1]
    chosen_on : whether the factors of the band were chosen on this truth, with other seeds
    """

    weight: Function
    difference: Function
    n_inputs: int
    noise: float = 0.5
    gaussian: bool = False
    chosen_on: bool = True

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw inputs (n, p), predictions (n, 2) and targets (n,)."""
        shape = n, self.n_inputs
        X = rng.standard_normal(shape) if self.gaussian else rng.uniform(-1, 1, shape)
        middle, half = np.sin(2 * X[:, 0]) + X[:, -1], self.difference(X) / 2
        signal = middle + (2 * self.weight(X) - 1) * half
        P = np.stack([middle + half, middle - half], axis=1)
        return X, P, signal + self.noise * rng.standard_normal(n)


def _logistic(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def _one(X: Array) -> Array:
    """Candidates that differ by 1 everywhere."""
    return np.ones(len(X))


def _wave(X: Array) -> Array:
    """Candidates that change places: rows near the many zeros of d(x) do not show the weight."""
    return np.sqrt(2) * np.sin(4 * X[:, 0] + 3 * X[:, -1] + 1)


def _slow(X: Array) -> Array:
    """Candidates whose difference varies slowly."""
    return 1.2 * np.cos(2 * X[:, -1]) + 0.6 * X[:, 0]


TRUTHS = {
    "linear logit": Truth(lambda X: _logistic(2 * X[:, 0] - X[:, 1]), _wave, 3),
    "sine": Truth(lambda X: 0.5 + 0.4 * np.sin(np.pi * X[:, 0]), _one, 1),
    "tanh step": Truth(lambda X: 0.5 + 0.45 * np.tanh(3 * X[:, 0]), _wave, 5),
    "bump": Truth(lambda X: 0.1 + 0.8 * np.exp(-2 * (X**2).sum(axis=1)), _slow, 2),
    "constant": Truth(lambda X: np.full(len(X), 0.7), _wave, 3),
    "linear logit, noisy": Truth(lambda X: _logistic(1.5 * X[:, 0]), _one, 2, noise=1.0),
    "sine, noisy": Truth(lambda X: 0.5 + 0.4 * np.sin(np.pi * X[:, 1]), _slow, 3, noise=1.0),
    "slope": Truth(lambda X: 0.2 + 0.3 * (X[:, 0] + 1), _slow, 1, noise=0.3),
    "oblique wave": Truth(lambda X: 0.5 + 0.3 * np.sin(2 * X[:, 0] + X[:, 1]), _one, 5),
    "constant at .9": Truth(lambda X: np.full(len(X), 0.9), _one, 5),
    "linear logit, Gaussian": Truth(
        lambda X: _logistic(1.5 * X[:, 0] - X[:, 1]), _one, 2, noise=0.7, gaussian=True
    ),
    "sine, Gaussian": Truth(lambda X: 0.5 + 0.4 * np.sin(2 * X[:, 0]), _slow, 1, gaussian=True),
    "bump, Gaussian": Truth(
        lambda X: 0.2 + 0.7 * np.exp(-(X[:, :2] ** 2).sum(axis=1)), _one, 3, gaussian=True
    ),
    "oblique wave, Gaussian": Truth(
        lambda X: 0.5 + 0.35 * np.sin(1.5 * X[:, 0] + X[:, 1]), _wave, 4, gaussian=True
    ),
    "saddle": Truth(lambda X: _logistic(3 * X[:, 0] * X[:, 1]), _wave, 4, chosen_on=False),
    "cosine": Truth(
        lambda X: 0.5 + 0.35 * np.cos(np.pi * (X[:, 0] + X[:, 1]) / 1.5), _one, 2, chosen_on=False
    ),
    "constant at .3, noisy": Truth(
        lambda X: np.full(len(X), 0.3), _slow, 2, noise=1.0, chosen_on=False
    ),
    "quadratic logit": Truth(
        lambda X: _logistic(X[:, 0] + 2 * X[:, 1] ** 2 - X[:, 2] - 0.5), _slow, 5, noise=0.7,
        chosen_on=False,
    ),
    "quadratic logit, Gaussian": Truth(
        lambda X: _logistic(1 - X[:, 0] ** 2 + X[:, 1]), _one, 2, noise=0.6, gaussian=True,
        chosen_on=False,
    ),
    "hill, Gaussian": Truth(
        lambda X: 0.1 + 0.7 * np.exp(-(X[:, 0] ** 2)), _slow, 1, gaussian=True, chosen_on=False
    ),
}  # fmt: skip
"""Fourteen truths on which the factors of the band were chosen, then six that were not used."""


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Coverage and mean width of the band at some levels, for one sample of one truth and size."""
    truth, rng = TRUTHS[keys["truth"]], np.random.default_rng(seed)
    X, P, y = truth.draw(keys["n"], rng)
    X_new, _, _ = truth.draw(N_NEW, rng)
    optimal = truth.weight(X_new)
    random_state = int(seed.generate_state(2)[1]) // 2
    # By default one fold judges so large a sample, and a band needs three.
    model = LocalMARegressor(random_state=random_state)
    model.fit(X, y, predictions=P)
    metrics = {}
    for name in methods:
        low, high = (side[:, 0] for side in model.weight_band(X_new, LEVELS[name]))
        metrics[f"{name}:coverage"] = float(np.mean((low <= optimal) & (optimal <= high)))
        metrics[f"{name}:width"] = float(np.mean(high - low))
    return metrics


def covered(results: Results, n: int, *, chosen_on: bool) -> list[float]:
    """Mean coverage at level 90 % of each truth that has been run at a size."""
    names = [name for name, truth in TRUTHS.items() if truth.chosen_on == chosen_on]
    found = [
        results.mean("90 %", "coverage", truth=name, n=n)
        for name in names
        if results.has_run("90 %", "coverage", truth=name, n=n)
    ]
    if not found:
        raise NotRunError(f"No truth has been run with {n} rows.")
    return found


def notes(results: Results) -> list[str]:
    """One line per size and kind of truths: the range of the coverage."""
    lines = []
    for chosen_on, words in ((True, "truths of the choice"), (False, "other truths")):
        for n in SIZES:
            try:
                found = covered(results, n, chosen_on=chosen_on)
            except NotRunError:
                continue
            inside = sum(LOWEST <= coverage <= HIGHEST for coverage in found)
            lines.append(
                f"{words}, n={n:,}: coverage {min(found):.1%} to {max(found):.1%}, "
                f"mean {np.mean(found):.1%}; {inside} of {len(found)} between 85 and 95 %"
            )
    return lines


def _covers(n: int, chosen_on: bool) -> Finding:
    which = "truth on which it was chosen" if chosen_on else "other truth"
    return Finding(
        f"At n={n:,} the band of 90 % covers in 85 to 95 % of rows, for every {which}.",
        "aim",
        lambda results: all(
            LOWEST <= coverage <= HIGHEST for coverage in covered(results, n, chosen_on=chosen_on)
        ),
    )


_METHODS = tuple(LEVELS)

STUDY = Study(
    name="bands",
    title="Bands of the weights",
    cells=grid(_METHODS, REPLICATES, truth=list(TRUTHS), n=SIZES),
    run=run,
    tables=(
        Table("Coverage of the optimal weight", "coverage", ("truth", "n"), _METHODS),
        Table("Mean width of the band", "width", ("truth", "n"), _METHODS),
    ),
    findings=tuple(_covers(n, chosen_on) for chosen_on in (True, False) for n in SIZES),
    notes=notes,
)
