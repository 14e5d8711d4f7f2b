"""The budget of `gate="auto"`: folds, steps, batches and networks for a sample of any size.

All are smooth functions of the number of rows, up to rounding, and the work never falls as the
sample grows: with few rows five folds judge and each gate takes few, small steps; with many rows
one fold judges well enough, and its gates take all the steps. See decision 20 for the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localma.folds import DEFAULT_FOLDS

SMALL, LARGE = 2_000, 20_000
"""Rows up to which all folds judge, and rows from which one fold does with full batches."""

SMALL_STEPS, LARGE_STEPS = 1_200, 3_000
SMALL_BATCH, LARGE_BATCH = 128, 384
"""Steps and rows of a step at the two sizes; in between they follow powers of n."""

LEAST_STEPS, PASSES = 600, 2
"""Steps of the smallest sample; passes over the largest."""

FIRST_RATE = 0.05
"""Learning rate of a training of `LEAST_STEPS`; it falls with the square root of the steps."""

DEEP_ROWS = 1_500
"""Rows from which the network has a second hidden layer."""

HIDDEN = 32
"""Units of a hidden layer."""

MANY_INPUTS = 64
"""Beyond this number of inputs the steps fall with its square root: each one takes longer."""

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
    # A fifth of the folds at ten times the rows.
    exponent = np.log(DEFAULT_FOLDS) / np.log(LARGE / SMALL)
    wanted = DEFAULT_FOLDS * (SMALL / n_rows) ** exponent
    return int(np.clip(round(wanted), 1, DEFAULT_FOLDS))


def budget(n_rows: int, n_inputs: int, n_groups: int | None = None) -> Budget:
    """Budget of a path on a sample of some size.

    >>> budget(300, 20).n_steps, budget(2_000, 20).n_steps, budget(20_000, 20).n_steps
    (600, 1200, 3000)
    """
    n_folds = judging_folds(n_rows, n_groups)
    batch = _batch(n_rows)
    steps = _row_steps(n_rows) / (judging_folds(n_rows) * batch)
    steps *= min(1.0, MANY_INPUTS / max(1, n_inputs)) ** 0.5
    n_steps = max(LEAST_STEPS, round(steps), -(-PASSES * n_rows // batch))
    return Budget(
        n_folds=n_folds,
        n_steps=n_steps,
        batch=batch,
        learning_rate=FIRST_RATE * (LEAST_STEPS / n_steps) ** 0.5,
        hidden=(HIDDEN,) if n_rows < DEEP_ROWS else (HIDDEN, HIDDEN),
        n_restarts=2 if n_folds == 1 else 3,
    )


def _batch(n_rows: int) -> int:
    """Rows of a step: they grow with the sample, from `SMALL_BATCH` to `LARGE_BATCH`."""
    exponent = np.log(LARGE_BATCH / SMALL_BATCH) / np.log(LARGE / SMALL)
    return round(SMALL_BATCH * np.clip(n_rows / SMALL, 1.0, LARGE / SMALL) ** exponent)


def _row_steps(n_rows: int) -> float:
    """Rows that a point of the path meets in all folds together; it never falls as n grows."""
    small = DEFAULT_FOLDS * SMALL_STEPS * SMALL_BATCH
    if n_rows <= SMALL:
        # From `LEAST_STEPS` at 300 rows to `SMALL_STEPS`.
        exponent = np.log(SMALL_STEPS / LEAST_STEPS) / np.log(SMALL / 300)
        return float(small * (n_rows / SMALL) ** exponent)
    large = LARGE_STEPS * LARGE_BATCH
    exponent = np.log(large / small) / np.log(LARGE / SMALL)
    return float(small * min(n_rows / SMALL, LARGE / SMALL) ** exponent)
