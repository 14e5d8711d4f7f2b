"""Where `gate="auto"` could lose against equal weights: exchangeable candidates, and an own model.

"exchangeable": candidates are the truth plus smooth errors that are drawn independently, with the
same variance. With many of them and few rows, equal weights are best. "own model": all but one are
poor away from a centre, and the last one is a boosting of the labelled sample, out of fold. Global
weights sit on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from localma import Column, CrossFitted, LocalMARegressor
from studies.findings import Finding, NotRunError, Results
from studies.harness import Cell, Study, Table, grid
from studies.pairs import Difference, difference

Array = NDArray[np.floating]

N_INPUTS, N_TEST, NOISE = 5, 4_000, 1.0
EXCHANGEABLE, OWN = "exchangeable", "own model"
METHODS = ("global", "equal", "auto")


def waves(rng: np.random.Generator, count: int, X: Array) -> Array:
    """Random smooth functions of the inputs with one variance: (n, p) -> (n, count)."""
    slopes, directions = rng.normal(size=(2, N_INPUTS, count)) / np.sqrt(N_INPUTS)
    phases = rng.uniform(0.0, 2.0 * np.pi, count)
    return 0.7 * X @ slopes + np.sin(2.25 * X @ directions + phases)


def draw_exchangeable(M: int, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Draw inputs (n, p), predictions (n, M) and the true mean (n,)."""
    X = rng.normal(size=(n, N_INPUTS))
    mean = 2.0 * waves(rng, 1, X)[:, 0]
    return X, mean[:, np.newaxis] + 0.8 * waves(rng, M, X), mean


def draw_own(M: int, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """The same for M - 1 candidates that are good near a centre; the last one is to be fitted."""
    X = rng.normal(size=(n, N_INPUTS))
    mean = 4.5 * np.sin(1.5 * X[:, 0]) + 3.0 * X[:, 1] * (X[:, 2] > 0) + 1.5 * X[:, 3]
    centres = rng.normal(size=(M - 1, 2))
    distance = ((X[:, np.newaxis, :2] - centres) ** 2).sum(axis=2)
    size = 1.2 * (1.3 - np.exp(-distance / 2.0))
    return X, mean[:, np.newaxis] + size * waves(rng, M - 1, X), mean


def candidates(kind: str, count: int, seed: int) -> dict[str, Any]:
    """Candidates that read their predictions from the columns behind the inputs."""
    given: dict[str, Any] = {f"given {m}": Column(N_INPUTS + m) for m in range(count)}
    if kind == OWN:
        boosting = HistGradientBoostingRegressor(
            min_samples_leaf=10, max_leaf_nodes=8, early_stopping=False, random_state=seed
        )
        given["own"] = CrossFitted(boosting)
    return given


def run(
    keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]
) -> dict[str, float]:
    """Fit on one sample; return the expected squared error of a new target."""
    rng, n = np.random.default_rng(seed), int(keys["n"])
    draw = {EXCHANGEABLE: draw_exchangeable, OWN: draw_own}[keys["candidates"]]
    X, P, mean = draw(int(keys["M"]), n + N_TEST, rng)
    y = mean + NOISE * rng.normal(size=len(mean))
    table, random_state = np.column_stack([X, P]), int(seed.generate_state(2)[1]) // 2
    metrics = {}
    for method in methods:
        pool = candidates(keys["candidates"], P.shape[1], random_state)
        model = LocalMARegressor(
            pool, gate=method, gate_features=list(range(N_INPUTS)), random_state=random_state
        )
        model.fit(table[:n], y[:n])
        error = model.predict(table[n:]) - mean[n:]
        metrics[f"{method}:risk"] = float(np.mean(error**2)) + NOISE**2
    return metrics


def behind_better(results: Results) -> dict[str, Difference]:
    """Difference of `auto` to the better of global and equal weights, in each cell."""
    found = {}
    for method, _, keys in results.entries():
        if method == "auto":
            rivals = [difference(results, "risk", "auto", other, **keys) for other in METHODS[:2]]
            name = f"{keys['candidates']}, M = {keys['M']}, n = {keys['n']:,}"
            found[name] = max(rivals, key=lambda rival: rival.mean)
    if not found:
        raise NotRunError("No replicate of auto has been run.")
    return found


def notes(results: Results) -> list[str]:
    """One line per cell."""
    try:
        found = behind_better(results)
    except NotRunError:
        return []
    return [
        f"{name}: auto minus the better of global and equal weights: {one.words(relative=True)} %"
        for name, one in found.items()
    ]


CELLS: tuple[Cell, ...] = grid(
    METHODS, 40, candidates=(EXCHANGEABLE,), M=(3, 8, 16), n=(100, 300, 1_000)
) + grid(METHODS, 40, candidates=(OWN,), M=(3, 5, 8), n=(100, 300, 1_000))

STUDY = Study(
    name="exchangeable",
    title="Exchangeable candidates, and an own model",
    cells=CELLS,
    run=run,
    tables=(
        Table("Expected squared error of a new target", "risk", ("candidates", "M", "n"), METHODS),
    ),
    findings=(
        Finding(
            "auto is in no cell behind the better of global and equal weights by more than 1 % of "
            "the risk or three paired standard errors",
            "aim",
            lambda results: all(one.is_allowed for one in behind_better(results).values()),
        ),
    ),
    notes=notes,
)
