"""Candidates that seem to have been trained on the labelled rows: the evidence, in words.

At the fit: what a model stores, and errors at the rows compared with errors a small step away.
Later: losses on the labelled sample compared with losses on new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from localma.cautions import Caution
from localma.evidence import effective_number, mean_and_error
from localma.folds import count_groups
from localma.wording import listed_names, readable

Array = NDArray[np.floating]
Measured = tuple[float, float]
"""A mean and its standard error."""

MOST_TESTED = 200
LEAST_TESTED = 30
"""Rows that are moved, at most; with fewer than the least, nothing is said."""

LEAST_SHARE = 0.66
LEAST_RATIO = 1.1
DEVIATIONS = 3.0
"""When errors around the rows speak of training.

In simulations at most 62 % of rows were predicted worse around them by clean candidates, noiseless
targets with jumps included, and at least 69 % by forests and boosting trained on these rows. None
was named in 585 clean pools of simulations and 144 of real data.
"""

FALSE_ALARM = 0.01
"""Chance that some candidate of a clean pool shows a gap between the labelled and new rows."""

FEWEST_COMPARED = 20
"""Rows or groups, on either side, below which losses are not compared."""

LEAST_GAP = 1.5
"""Ratio of losses below which a gap is not worth a question, however sure it is."""

APART = 1.5
"""A gap so much larger than that of the other candidates is not one of harder rows."""

LEAST_ROUGH = 0.3
"""Change over half a step, in parts of that over a whole one.

Smooth predictions that are averaged over both sides change with the square of the step, so by a
quarter; those of trees by a half or more.
"""

EXACT = 100.0
"""From this ratio on the error at the rows is called none."""

MOST_DESCRIBED = 3
"""Candidates whose evidence is told; the others are only named."""

EQUAL = 1e-6
"""Errors that differ by less than this share of the spread of y count as equal."""


@dataclass(frozen=True)
class Memory:
    """What speaks for a candidate's training on the labelled rows.

    n_rows : size of the sample; n_recognised : rows that the model evidently was trained on;
    ratio : error after a small move over the error at the rows, 1 if that was not looked at.
    """

    name: str
    n_rows: int
    n_recognised: int = 0
    ratio: float = 1.0

    @property
    def is_evident(self) -> bool:
        """Whether there is reason to say so."""
        return self.n_recognised > 0 or self.ratio > 1.0

    def __str__(self) -> str:
        if self.n_recognised:
            found = f"{self.n_recognised:,} of these {self.n_rows:,}"
            return f"{found} are among the training rows of {self.name!r}"
        if self.ratio > EXACT:
            return f"{self.name!r} fits them exactly, but not if its inputs move slightly"
        larger = f"{self.ratio:.1f} times as large"
        return f"if inputs move slightly, the error of {self.name!r} is {larger}"


def error_ratio(targets: Array, at_rows: Array, around: Array) -> float:
    """How much larger errors are around the rows than at them, if that is clear; else 1.

    A model that was trained on a row follows the noise of that row's target, and loses it a small
    step away. Both must hold: most rows are predicted worse there, and the mean error is larger.

    targets, at_rows, around : (m, K) targets, predictions at m rows, mean predictions around them.

    >>> y = np.random.default_rng(0).normal(size=(100, 1))
    >>> round(error_ratio(y, 0.5 * y, 0.1 * y), 1), error_ratio(y, 0.1 * y, 0.1 * y)
    (1.8, 1.0)
    """
    scale = np.abs(targets - np.median(targets, axis=0)).mean(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    here = (np.abs(targets - at_rows) / scale).mean(axis=1)
    moved = (np.abs(targets - around) / scale).mean(axis=1)
    equal = np.abs(moved - here) < EQUAL
    worse = float(((moved > here) & ~equal).mean() + equal.mean() / 2)
    ratio = float(moved.mean() / max(here.mean(), EQUAL))
    needed = max(LEAST_SHARE, 0.5 + DEVIATIONS / (2 * sqrt(len(targets))))
    return ratio if worse >= needed and ratio >= LEAST_RATIO else 1.0


def is_smooth(at_rows: Array, around: Array, closer: Array) -> bool:
    """Whether predictions bend and do not jump, as those of a logistic regression do.

    Where probabilities are close to one they bend downwards, which looks like memory.

    at_rows, around, closer : (m, ...) predictions at rows, and means a step and half a step away.

    >>> x = np.linspace(0.0, 1.0, 50)
    >>> is_smooth(x**2, x**2 + 0.04, x**2 + 0.01), is_smooth(x, x + 0.04, x + 0.03)
    (True, False)
    """
    return bool(np.abs(closer - at_rows).mean() < LEAST_ROUGH * np.abs(around - at_rows).mean())


def caution_of(memories: list[Memory]) -> tuple[Caution, ...]:
    """One caution about all candidates that seem to have been trained on the rows, or none."""
    evident = [memory for memory in memories if memory.is_evident]
    if not evident:
        return ()
    names = tuple(memory.name for memory in evident)
    seem, they = ("seems", "it") if len(names) == 1 else ("seem", "them")
    evidence = "; ".join(map(str, evident[:MOST_DESCRIBED]))
    return (
        Caution(
            "trained_on_sample",
            f"{listed_names(names)} {seem} to have been trained on the labelled rows: {evidence}. "
            f"Weights learnt from such rows trust {they} too much, and held-out losses are too "
            "small. Fit on labelled rows that no candidate was trained on.",
            names,
        ),
    )


@dataclass(frozen=True)
class SampleLosses:
    """Mean loss of each candidate on some rows, and its standard error: (M,) each.

    n : number of independent draws, which are groups if there are any, else rows.
    """

    mean: Array
    standard_error: Array
    n: float

    @classmethod
    def of(
        cls, losses: Array, sample_weight: Array, groups: NDArray[np.intp] | None
    ) -> SampleLosses:
        """Measure the losses (M, n) of candidates, between groups if there are any.

        >>> SampleLosses.of(np.array([[1.0, 3.0]]), np.ones(2), None).mean.tolist()
        [2.0]
        """
        pairs = [mean_and_error(own, sample_weight, groups=groups) for own in losses]
        n_groups = count_groups(groups, sample_weight)
        n = effective_number(sample_weight) if n_groups is None else float(n_groups)
        mean, error = np.array(pairs).T
        return cls(mean, error, n)


@dataclass(frozen=True)
class Gap:
    """A candidate whose loss on new rows is clearly larger than on the labelled sample.

    sample, here : mean loss and standard error on either; is_apart : whether the losses of the
    other candidates did not rise as much, as they would if the new rows were harder.
    """

    name: str
    sample: Measured
    here: Measured
    is_apart: bool

    def __str__(self) -> str:
        sizes = f"{readable(self.sample[0])} on the labelled rows, {readable(self.here[0])} here."
        if self.is_apart:
            return f"{self.name}: {sizes} Was it trained on them?"
        return f"{self.name}: {sizes} Was it trained on them, or are these rows harder?"


def find_gaps(names: Sequence[str], sample: SampleLosses, here: SampleLosses) -> list[Gap]:
    """Find the candidates whose loss is larger here than on the labelled sample, beyond chance.

    If the loss of some candidate is clearly smaller here, these are rows of another kind, such as
    one region of the inputs, and the question is not asked.

    >>> sample = SampleLosses(np.array([483.0, 2900.0]), np.array([20.0, 150.0]), 400)
    >>> here = SampleLosses(np.array([3332.0, 3000.0]), np.array([180.0, 160.0]), 400)
    >>> [str(gap) for gap in find_gaps(["forest", "line"], sample, here)]
    ['forest: 483 on the labelled rows, 3,330 here. Was it trained on them?']
    """
    if min(sample.n, here.n) < FEWEST_COMPARED or _are_beyond_chance(here, sample).any():
        return []
    ratios = [_ratio(*pair) for pair in zip(here.mean.tolist(), sample.mean.tolist(), strict=True)]
    beyond = _are_beyond_chance(sample, here)
    return [
        Gap(
            name,
            (float(sample.mean[m]), float(sample.standard_error[m])),
            (float(here.mean[m]), float(here.standard_error[m])),
            _is_apart(ratios, m),
        )
        for m, name in enumerate(names)
        if beyond[m] and ratios[m] >= LEAST_GAP
    ]


def _ratio(new: float, old: float) -> float:
    if old > 0:
        return new / old
    return inf if new > 0 else 1.0


def _is_apart(ratios: list[float], m: int) -> bool:
    others = ratios[:m] + ratios[m + 1 :]
    return not others or ratios[m] >= APART * median(others)


def _are_beyond_chance(sample: SampleLosses, here: SampleLosses) -> NDArray[np.bool_]:
    """Which mean losses are larger here by so many standard errors that chance is ruled out: (M,).

    Losses have long tails, and a sample without a large loss has a small mean and a small standard
    error. If the candidate is clean, losses vary here as they do there, so the larger variation
    counts for both. The logarithm takes care of what is left of the skewness.
    """
    quantile = -ndtri(FALSE_ALARM / len(sample.mean))
    per_draw = np.maximum(
        sample.standard_error * sqrt(sample.n), here.standard_error * sqrt(here.n)
    )
    error = per_draw * sqrt(1.0 / sample.n + 1.0 / here.n)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = here.mean - sample.mean
        in_logarithms = np.log(here.mean / sample.mean) * here.mean
    # Comparisons with an unknown standard error, which is NaN, are false.
    return (gap > quantile * error) & ~(in_logarithms <= quantile * error)


def caution_of_gaps(gaps: Sequence[Gap]) -> tuple[Caution, ...]:
    """One caution about all gaps, or none."""
    if not gaps:
        return ()
    sentence = " ".join(map(str, gaps))
    return (Caution("trained_on_sample", sentence, tuple(gap.name for gap in gaps)),)
