"""The budget of `gate="auto"`: folds, steps, batches and networks for a sample of any size.

All are smooth functions of the number of rows, up to rounding, and the work never falls as the
sample grows. With few rows all folds judge, and a step goes over all rows of a fold. With more rows
the work stays the same: fewer folds judge, and there are more steps over batches. With very many
rows one fold judges, and each row is met twice. See decision 20 for the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localma.folds import DEFAULT_FOLDS

SMALL, MEDIUM, LARGE = 1_000, 2_000, 20_000
"""Up to SMALL rows a step goes over all rows; up to MEDIUM all folds judge; from LARGE on one."""

SMALL_STEPS, LARGE_STEPS = 600, 3_000
"""Steps of a training up to SMALL rows and at LARGE rows; in between they follow a power of n."""

ROW_STEPS = 2_400_000
"""Rows that one hidden layer meets in its steps, in all folds together, beyond SMALL rows."""

PASSES = 2
"""Every row of a very large sample is met this often."""

FIRST_RATE = 0.05
"""Learning rate of a training of `SMALL_STEPS`; it falls with the square root of the steps."""

DEEP_ROWS = 10_000
"""Rows from which the network has a second hidden layer."""

HIDDEN = 32
"""Units of a hidden layer."""

MANY_INPUTS = 64
"""Beyond this number of inputs the steps fall with its square root: each one takes longer."""

TREE_ROUNDS = (4, 12, 36)
"""Numbers of trees of the gates of trees on the path."""

MOST_TREES_PRIOR, HALF_TREES_ROWS = 0.2, 200
"""Largest share of trees in the prior of the local gates, and the rows at which it is halved."""

FEW_GROUPS = 50
"""With fewer groups all folds judge, however many rows there are."""


@dataclass(frozen=True)
class Budget:
    """How the path is trained on a sample of one size.

    n_folds : folds that judge. n_steps : steps of a training. batch : rows of a step.
    learning_rate : of the first step. hidden : units of the network's hidden layers.
    n_restarts : networks that are averaged in the final fit.
    """

    n_folds: int
    n_steps: int
    batch: int
    learning_rate: float
    hidden: tuple[int, ...]
    n_restarts: int


def judging_folds(n_rows: int, n_groups: int | None = None) -> int:
    """Number of folds that judge: all of them if there are few rows or groups, else fewer.

    >>> [judging_folds(n) for n in (100, 2_000, 5_000, 10_000, 20_000)]
    [5, 5, 3, 2, 1]
    """
    if n_groups is not None and n_groups < FEW_GROUPS:
        return DEFAULT_FOLDS
    exponent = np.log(DEFAULT_FOLDS) / np.log(LARGE / MEDIUM)
    wanted = DEFAULT_FOLDS * (MEDIUM / n_rows) ** exponent
    return int(np.clip(round(wanted), 1, DEFAULT_FOLDS))


def trees_prior(n_effective: float) -> float:
    """Share of trees in the prior weight of the local gates; the other kinds share the rest.

    With few rows, trees that seem to be ahead often are so by chance.

    >>> [round(trees_prior(n), 3) for n in (100, 1_000, 100_000)]
    [0.067, 0.167, 0.2]
    """
    return MOST_TREES_PRIOR * n_effective / (n_effective + HALF_TREES_ROWS)


def budget(n_rows: int, n_inputs: int, n_groups: int | None = None) -> Budget:
    """Budget of a path on a sample of some size.

    >>> budget(300, 20).n_steps, budget(20_000, 20).n_steps, budget(20_000, 20).batch
    (600, 3000, 400)
    """
    hidden = (HIDDEN,) if n_rows < DEEP_ROWS else (HIDDEN, HIDDEN)
    n_folds = judging_folds(n_rows, n_groups)
    steps = _steps(n_rows)
    batch = n_rows
    if n_rows > SMALL:
        batch = round(ROW_STEPS / (len(hidden) * judging_folds(n_rows) * steps))
    slower = max(1.0, n_inputs / MANY_INPUTS) ** 0.5
    n_steps = max(round(steps / slower), -(-PASSES * n_rows // batch))
    return Budget(
        n_folds=n_folds,
        n_steps=n_steps,
        batch=batch,
        learning_rate=FIRST_RATE * (SMALL_STEPS / n_steps) ** 0.5,
        hidden=hidden,
        n_restarts=2 if n_folds == 1 else 3,
    )


def _steps(n_rows: int) -> float:
    """Steps of a training: they grow with the sample, from `SMALL_STEPS` to `LARGE_STEPS`."""
    exponent = np.log(LARGE_STEPS / SMALL_STEPS) / np.log(LARGE / SMALL)
    return float(SMALL_STEPS * np.clip(n_rows / SMALL, 1.0, LARGE / SMALL) ** exponent)
