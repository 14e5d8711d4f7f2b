"""Evidence: which points of a path to trust, from held-out losses, and what locality is worth.

Losses are judged row by row: L has shape (points, judgements), where a judgement is one held-out
row of one fold. Folds that are no partition judge some rows several times, and others never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from localma.wording import readable

Array = NDArray[np.floating]
Rows = NDArray[np.intp]
Rule = Callable[[Array, Array, Array], Array]

TEMPERATURE = 4.0
"""Held-out evidence is read at this multiple of the smallest risk: the noise of squared error."""

FEW_ROWS = 30
"""From so many rows on Student's quantile is close to the normal one."""

NEGLIGIBLE = 0.05
"""Points with less than this share of the largest weight are dropped."""

RELEVANT = 0.001
"""A smaller part of the risk is no reason to change anything, however clear it is."""

ROUNDING = 1e-12
"""A smaller part of the risk of a constant prediction is a rounding error."""

ALARM_SHARE = 0.05
ALARM_ERRORS = 1.64
CERTAIN_ERRORS = 5.0
"""A prediction is clearly worse than a constant if its risk is higher by more than 5 % of the
constant's risk plus 1.64 standard errors, or by more than 5 standard errors. Weak but honest
candidates rarely are: the study "false_alarms" counts how often."""


def exponential_weights(L: Array, sample_weight: Array, prior: Array) -> Array:
    """Weights ``a_k ~ prior_k exp(-n (R_k - min R) / (T min R))`` of the points of a path.

    R is the held-out risk of a point, n the number of judgements that the weights amount to.

    L : (points, judgements), sample_weight : (judgements,), prior : (points,) -> (points,).

    >>> exponential_weights(np.array([[1.0] * 100, [2.0] * 100]), np.ones(100), np.ones(2)).tolist()
    [1.0, 0.0]
    """
    risk = L @ sample_weight / sample_weight.sum()
    n = effective_number(sample_weight)
    scale = TEMPERATURE * max(abs(float(risk.min())), float(np.finfo(np.float64).tiny))
    with np.errstate(over="ignore"):
        evidence = np.log(prior) - n * (risk - risk.min()) / scale
    weights = np.exp(evidence - evidence.max())
    weights[weights < NEGLIGIBLE * weights.max()] = 0.0
    return weights / weights.sum()


def once_a_row(L: Array, sample_weight: Array, rows: Rows) -> tuple[Array, Array]:
    """Average the judgements of each row: one that several folds judge is no more evidence.

    L : (points, judgements), sample_weight, rows : (judgements,) -> (points, rows), (rows,).

    >>> L, weight = np.array([[1.0, 2.0, 4.0]]), np.array([1.0, 3.0, 3.0])
    >>> [part.tolist() for part in once_a_row(L, weight, np.array([7, 5, 5]))]
    [[[3.0, 1.0]], [3.0, 1.0]]
    """
    counts = np.bincount(rows)
    if counts.max() <= 1:
        return L, sample_weight
    judged = np.flatnonzero(counts)
    sums = np.stack([np.bincount(rows, weights=losses)[judged] for losses in L])
    weight = np.empty(len(counts))
    weight[rows] = sample_weight
    return sums / counts[judged], weight[judged]


def effective_number(sample_weight: Array) -> float:
    """Number of equal rows that rows of these weights (n,) amount to.

    >>> effective_number(np.array([1.0, 1.0, 0.0])), effective_number(np.full(4, 1e-200))
    (2.0, 4.0)
    """
    shares = sample_weight / sample_weight.max()  # whose squares neither vanish nor overflow
    return float(shares.sum() ** 2 / (shares**2).sum())


def smallest_risk(L: Array, sample_weight: Array, prior: Array) -> Array:
    """All weight on the point of smallest held-out risk; among equals, of largest prior.

    >>> L, prior = np.array([[1.0], [1.0], [2.0]]), np.array([0.1, 0.8, 0.1])
    >>> smallest_risk(L, np.ones(1), prior).tolist()
    [0.0, 1.0, 0.0]
    """
    risk = L @ sample_weight
    return np.eye(len(L))[np.lexsort((-prior, risk))[0]]


def one_standard_error(L: Array, sample_weight: Array, prior: Array) -> Array:
    """All weight on the point of largest prior within a standard error of the smallest risk.

    The standard error is that of the paired difference, row by row. Among equal priors, the point
    that stands first on the path, the more shrunk one, is taken. Groups play no part here.
    """
    best = int(np.argmax(smallest_risk(L, sample_weight, prior)))
    differences = [mean_and_error(losses - L[best], sample_weight) for losses in L]
    near = [k for k, (mean, error) in enumerate(differences) if k == best or mean <= error]
    return np.eye(len(L))[max(near, key=lambda k: (prior[k], -k))]


RULES: dict[str, Rule] = {
    "weights": exponential_weights,
    "best": smallest_risk,
    "one_standard_error": one_standard_error,
}
"""How the points of a path are weighted: (L, sample_weight, prior) -> (points,)."""


def mean_and_error(
    values: Array, sample_weight: Array, *, groups: Rows | None = None, folds: Rows | None = None
) -> tuple[float, float]:
    """Weighted mean and its standard error: (n,), (n,) -> two numbers.

    groups, folds : (n,) numbers, from 0, of blocks of rows that are no independent draws: rows of
    one patient, or rows of one fold, which share the models that judged them and their errors with
    it. The standard error is at least that between the blocks, and NaN, unknown, where there is a
    single row or group. With few groups, or less than 30 rows, it is wider, so that two of it are
    as sure as ever; see `few_blocks`.

    >>> values, patients = np.array([0.0, 0.0, 2.0, 2.0]), np.array([0, 0, 1, 1])
    >>> mean, error = mean_and_error(values, np.ones(4))
    >>> mean, round(error, 3), round(mean_and_error(values, np.ones(4), groups=patients)[1], 3)
    (1.0, 0.955, 6.984)
    """
    counted = sample_weight > 0
    mean = float(sample_weight @ values / sample_weight.sum())
    weight = sample_weight[counted]
    deviations = weight * (values[counted] - mean)
    few = few_blocks(len(weight)) if len(weight) < FEW_ROWS else 1.0
    errors = [few * _error_between(deviations, weight)]
    if folds is not None:
        errors.append(_error_between(*_sums(deviations, weight, folds[counted])))
    if groups is not None:
        sums = _sums(deviations, weight, groups[counted])
        errors.append(few_blocks(len(sums[0])) * _error_between(*sums))
    return mean, float(np.max(errors))


def few_blocks(n: int, errors: float = 2.0) -> float:
    """How much wider a standard error between n blocks must be for two of it to be as sure as ever.

    Student's quantile with n - 1 degrees of freedom over the normal one, at two standard errors,
    or as many as are asked for.

    >>> [round(few_blocks(n), 2) for n in (2, 5, 10, 50)]
    [6.98, 1.43, 1.16, 1.03]
    """
    return float(stdtrit(n - 1, ndtr(errors)) / errors) if n > 1 else float("nan")


def _sums(deviations: Array, weight: Array, blocks: Rows) -> tuple[Array, Array]:
    """Sum of the deviations, and of the weights, of each block that has rows."""
    there = np.bincount(blocks) > 0

    def sums(part: Array) -> Array:
        return np.asarray(np.bincount(blocks, weights=part)[there], dtype=np.float64)

    return sums(deviations), sums(weight)


def _error_between(deviations: Array, weight: Array) -> float:
    """Standard error of a weighted mean by leaving out one block after the other (jackknife).

    Where one block is much of the whole it says so; where all weigh the same it is the usual one.

    deviations : (blocks,) weighted sums around the mean; weight : (blocks,).
    """
    n = len(weight)
    if n < 2:
        return float("nan")
    moved = deviations / (weight.sum() - weight)
    return float(np.sqrt((n - 1) / n * np.sum(moved**2)))


@dataclass(frozen=True)
class BaselineGap:
    """A prediction compared with the best constant prediction, on the same rows.

    Attributes
    ----------
    value : float
        Risk of the constant minus that of the prediction; positive if the prediction is better.
    standard_error : float
        Of the paired difference.
    baseline_risk, risk : float
        The two risks. All are NaN if the two were not compared.

    Examples
    --------
    >>> [BaselineGap(-0.5, error, 2.0, 2.5).is_worse for error in (0.1, 0.4)]
    [True, False]
    """

    value: float
    standard_error: float
    baseline_risk: float
    risk: float

    @property
    def is_idle(self) -> bool:
        """Whether the prediction is not better than the constant; False if that is unknown."""
        return self.value <= 0

    @property
    def is_worse(self) -> bool:
        """Whether the prediction is clearly worse than the constant; False if that is unknown."""
        clear = ALARM_SHARE * abs(self.baseline_risk) + ALARM_ERRORS * self.standard_error
        certain = CERTAIN_ERRORS * self.standard_error
        return -self.value > max(min(clear, certain), negligible(self.risk, self.baseline_risk))


def baseline_gap(
    baseline_losses: Array, losses: Array, sample_weight: Array, groups: Rows | None = None
) -> BaselineGap:
    """Compare the losses of a constant and of a prediction on the same rows: (n,) each."""
    value, error = mean_and_error(baseline_losses - losses, sample_weight, groups=groups)
    baseline_risk, risk = (
        float(np.average(each, weights=sample_weight)) for each in (baseline_losses, losses)
    )
    return BaselineGap(value, error, baseline_risk, risk)


@dataclass(frozen=True)
class LocalityGain:
    """What local weights are worth: risk of the global gate minus that of the whole procedure.

    Attributes
    ----------
    value : float
        Positive where the procedure pays.
    standard_error : float
        Of the paired difference.
    global_risk, risk : float
        The two cross-fitted risks.
    over_constant, over_constant_error : float
        The same over constant weights of every kind: as if the procedure had no local gates, but
        could still choose equal weights or the best candidate instead of the global weights. NaN in
        models that were saved before it was looked at.
    baseline_risk : float
        Cross-fitted risk of the best constant prediction, such as the mean. NaN if unknown.
    over_baseline, over_baseline_error : float
        Risk of the best constant prediction minus that of the procedure. Positive if the candidates
        help at all. NaN if unknown.
    """

    value: float
    standard_error: float
    global_risk: float
    risk: float
    over_constant: float = float("nan")
    over_constant_error: float = float("nan")
    baseline_risk: float = float("nan")
    over_baseline: float = float("nan")
    over_baseline_error: float = float("nan")

    @property
    def is_clear(self) -> bool:
        """Whether the gain is more than two standard errors, and more than 0.1 % of the risk."""
        return abs(self.value) > 2 * self.standard_error and not self.is_negligible

    @property
    def is_negligible(self) -> bool:
        """Whether the gain is at most 0.1 % of the risk, or rounding."""
        return abs(self.value) <= self._least_claim

    @property
    def is_local(self) -> bool:
        """Whether it is clear that local weights gain, over any constant weights or prediction."""
        # Comparisons with NaN are false: what is unknown raises no doubt.
        doubtful = self.over_constant <= max(2 * self.over_constant_error, self._least_claim)
        return (
            self.is_clear and self.value > 0 and not doubtful and not self.beside_baseline.is_idle
        )

    @property
    def beside_baseline(self) -> BaselineGap:
        """The procedure compared with the best constant prediction."""
        return BaselineGap(
            self.over_baseline, self.over_baseline_error, self.baseline_risk, self.risk
        )

    @property
    def _least_claim(self) -> float:
        """Size of a difference of risks that is not yet worth a claim."""
        return negligible(self.global_risk, self.baseline_risk)

    @property
    def is_of_constants(self) -> bool:
        """Whether most of the gain is one of other constant weights than the global ones."""
        return self.value > 0 and self.over_constant < self.value / 2

    def as_dict(self) -> dict[str, float | bool]:
        """All of it by name, what is clear included."""
        judged = {"is_clear": self.is_clear, "is_local": self.is_local}
        return {**asdict(self), **judged, "is_idle": self.beside_baseline.is_idle}

    def __str__(self) -> str:
        return f"{readable(self.value)} ± {readable(self.standard_error, 2)}"


def negligible(risk: float, baseline_risk: float = float("nan")) -> float:
    """Size up to which a difference of risks is rounding, or 0.1 % of the risk.

    >>> negligible(2.0), negligible(0.0, 3.0)
    (0.002, 3e-12)
    """
    rounding = 0.0 if isnan(baseline_risk) else ROUNDING * abs(baseline_risk)
    return max(RELEVANT * abs(risk), rounding)


def locality_gain(
    global_losses: Array,
    constant_losses: Array,
    losses: Array,
    sample_weight: Array,
    *,
    baseline_losses: Array | None = None,
    groups: Rows | None = None,
    folds: Rows | None = None,
    overlap: float = 1.0,
) -> LocalityGain:
    """Compare held-out losses of the same judgements, (judgements,) each.

    global_losses : of the global weights; constant_losses, losses : of the procedure, without and
    with its local gates. Both must be nested: what is used on a block was chosen without it.
    (The smallest risk of a path that contains the global gate is never above the global one.)
    Standard errors, see `mean_and_error`, are multiplied by `overlap`, see `fold_overlap`.
    baseline_losses : of the best constant prediction, learnt without the rows it is judged on.
    """

    def gain_over(others: Array) -> tuple[float, float]:
        gain, error = mean_and_error(others - losses, sample_weight, groups=groups, folds=folds)
        return gain, overlap * error

    global_risk, _ = mean_and_error(global_losses, sample_weight)
    risk, _ = mean_and_error(losses, sample_weight)
    gain = LocalityGain(*gain_over(global_losses), global_risk, risk, *gain_over(constant_losses))
    if baseline_losses is None:
        return gain
    gap = baseline_gap(baseline_losses, losses, sample_weight, groups)
    return replace(
        gain,
        baseline_risk=gap.baseline_risk,
        over_baseline=gap.value,
        over_baseline_error=gap.standard_error,
    )


def fold_overlap(sizes: Sequence[tuple[int, int]], repeats: float = 1.0) -> float:
    """Factor by which overlapping training rows widen a standard error from held-out losses.

    ``sqrt(1 + J t / s)`` for J folds with t rows judged by a gate trained on s: the correction of
    Nadeau and Bengio (2003). Judgements look more alike than new samples would make them.

    sizes : (rows trained on, rows judged) of each fold; repeats : how often a row is judged on
    average, where its judgements count as one.

    >>> fold_overlap([(80, 20)] * 5), fold_overlap([(80, 20)] * 50, repeats=10)
    (1.5, 1.5)
    """
    ratio = sum(judged / trained for trained, judged in sizes) / len(sizes)
    return sqrt(1.0 + len(sizes) * ratio / repeats)
