"""The error of `gate="auto"` as the sample grows, against five known truths.

There are twenty inputs and five candidates. The truth is a local average of the candidates under
known weights. The error is the mean squared distance between prediction and truth on new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import LocalMARegressor
from localma.equations import local_average, softmax
from studies.harness import Study, Table, grid

Array = NDArray[np.floating]

N_INPUTS, N_CANDIDATES, N_TEST = 20, 5, 5_000
NOISE = 0.5
METHODS = ("global", "auto")
SIZES = (300, 1_000, 2_000, 3_000, 5_000, 10_000, 19_000, 50_000, 100_000)


def _fixed(*shape: int, seed: int) -> Array:
    """Coefficients of a truth, the same in every replicate."""
    return np.random.default_rng(seed).normal(size=shape)


def linear(X: Array) -> Array:
    """Logits that are linear in all inputs: (n, p) -> (n, M)."""
    return 2.0 * X @ _fixed(N_INPUTS, N_CANDIDATES, seed=1) / np.sqrt(N_INPUTS)


def nothing(X: Array) -> Array:
    """Logits of constant weights: (n, p) -> (n, M)."""
    return np.tile(_fixed(N_CANDIDATES, seed=2), (len(X), 1))


def steps(X: Array) -> Array:
    """Logits with one right candidate for each combination of signs of two inputs."""
    cell = (X[:, 0] > 0).astype(int) + 2 * (X[:, 1] > 0)
    return 6.0 * np.eye(N_CANDIDATES)[cell]


def waves(n_relevant: int) -> Callable[[Array], Array]:
    """Logits that are waves in the first inputs."""

    def logits(X: Array) -> Array:
        direction = _fixed(n_relevant, N_CANDIDATES, seed=3) / np.sqrt(n_relevant)
        return 3.0 * np.sin(2.0 * X[:, :n_relevant] @ direction)

    return logits


TRUTHS: Mapping[str, Callable[[Array], Array]] = {
    "linear": linear,
    "nothing local": nothing,
    "steps": steps,
    "waves in 2 inputs": waves(2),
    "waves in 10 inputs": waves(10),
}


def draw(truth: str, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Draw inputs (n, p), predictions (n, M) and the true mean (n,)."""
    X = rng.normal(size=(n, N_INPUTS))
    slopes, waves_of = _fixed(2, N_INPUTS, N_CANDIDATES, seed=4) / np.sqrt(N_INPUTS)
    P = X @ slopes + 2.0 * np.sin(X @ waves_of)
    return X, P, local_average(softmax(TRUTHS[truth](X)), P[:, :, np.newaxis])[:, 0]


def run(
    keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]
) -> dict[str, float]:
    """Fit on one sample; return the mean squared distance to the truth on new rows."""
    rng = np.random.default_rng(seed)
    X, P, mean = draw(keys["truth"], keys["n"], rng)
    y = mean + NOISE * rng.normal(size=len(mean))
    fresh_X, fresh_P, fresh_mean = draw(keys["truth"], N_TEST, rng)
    random_state = int(seed.generate_state(2)[1]) // 2
    metrics = {}
    for method in methods:
        model = LocalMARegressor(gate=method, random_state=random_state)
        model.fit(X, y, predictions=P)
        error = model.predict(fresh_X, predictions=fresh_P) - fresh_mean
        metrics[f"{method}:error"] = float(np.mean(error**2))
    return metrics


STUDY = Study(
    name="sizes",
    title="Growing samples",
    cells=grid(METHODS, 10, truth=tuple(TRUTHS), n=SIZES),
    run=run,
    tables=(Table("Squared distance to the truth", "error", ("truth", "n"), METHODS),),
)
