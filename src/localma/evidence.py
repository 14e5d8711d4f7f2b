"""Evidence from held-out losses: weights of a path, standard errors, the locality gain.

Held-out losses L have shape (points, judgements): a point is a gate of a path, and a judgement is
one held-out row of one fold. Folds that are not a partition judge a row several times or never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan, nan, sqrt

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, stdtrit

from localma._types import Array, Rows
from localma.equations import row_losses
from localma.folds import evenly_spaced
from localma.formatting import mean_loss, readable
from localma.losses import Loss, is_registered

Rule = Callable[[Array, Array, Array], Array]

TEMPERATURE = 4.0
"""Differences of risks are measured in this multiple of the smallest risk: squared-error noise."""

FEW_ROWS = 30
"""With fewer rows, standard errors are widened by Student's quantile."""

NEGLIGIBLE = 0.05
"""Points with less than this share of the largest weight are dropped."""

RELEVANT = 0.001
"""A difference smaller than this share of the risk is not worth a change, however clear it is."""

ROUNDING = 1e-12
"""A difference smaller than this share of the risk of a constant prediction is rounding error."""

CLAIM_ERRORS = 4 / 3
"""A gain is clear beyond this many standard errors. They are 1.5 times those of the paired
differences, since an interval needs that factor; a claim does not, as the study "dependence" shows
by counting claims where nothing is local. So this is two errors of the paired differences."""

SINGLE_PRECISION = 1e-6
"""A standard error is at least this share of the risk: weights are in single precision."""

ALARM_SHARE = 0.05
ALARM_ERRORS = 1.64
CERTAIN_ERRORS = 5.0
"""A prediction is clearly worse than a constant if its risk is higher by more than 5 % of the
constant's risk plus 1.64 standard errors, or by more than 5 standard errors. Weak candidates rarely
reach that: the study "false_alarms" counts how often."""

LEARNING_ROWS = 100_000
"""A constant is learnt from at most this many rows, evenly spaced."""

SEARCH_ROWS = 2_000
SEARCH_POINTS = 65
"""Rows and starting points of the search for a constant, if the loss has no formula for it."""


# Weights of the points of a path.


def exponential_weights(L: Array, sample_weight: Array, prior: Array) -> Array:
    """Weights ``a_k ~ prior_k exp(-n (R_k - min R) / (T min R))`` of the points of a path.

    R_k is the held-out risk of a point, and n the effective number of judgements.

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


def smallest_risk(L: Array, sample_weight: Array, prior: Array) -> Array:
    """All weight on the point of smallest held-out risk; among equal ones, of largest prior.

    >>> L, prior = np.array([[1.0], [1.0], [2.0]]), np.array([0.1, 0.8, 0.1])
    >>> smallest_risk(L, np.ones(1), prior).tolist()
    [0.0, 1.0, 0.0]
    """
    risk = L @ sample_weight
    return np.eye(len(L))[np.lexsort((-prior, risk))[0]]


def one_standard_error(L: Array, sample_weight: Array, prior: Array) -> Array:
    """All weight on the point of largest prior within one standard error of the smallest risk.

    The standard error is that of the paired difference, row by row. Groups are not used here. Among
    points of equal prior, the first one on the path is taken, which is shrunk the most.
    """
    best = int(np.argmax(smallest_risk(L, sample_weight, prior)))
    differences = [mean_and_error(losses - L[best], sample_weight) for losses in L]
    close = [k for k, (mean, error) in enumerate(differences) if k == best or mean <= error]
    return np.eye(len(L))[max(close, key=lambda k: (prior[k], -k))]


RULES: dict[str, Rule] = {
    "weights": exponential_weights,
    "best": smallest_risk,
    "one_standard_error": one_standard_error,
}
"""Rules that weight the points of a path: (L, sample_weight, prior) -> (points,)."""


def once_a_row(L: Array, sample_weight: Array, rows: Rows) -> tuple[Array, Array]:
    """Average the judgements of each row, because repeated judgements are not more evidence.

    L : (points, judgements), sample_weight, rows : (judgements,) -> (points, rows), (rows,).

    >>> L, weight = np.array([[1.0, 2.0, 4.0]]), np.array([1.0, 3.0, 3.0])
    >>> [values.tolist() for values in once_a_row(L, weight, np.array([7, 5, 5]))]
    [[[3.0, 1.0]], [3.0, 1.0]]
    """
    counts = np.bincount(rows)
    if counts.max() <= 1:
        return L, sample_weight
    distinct = np.flatnonzero(counts)
    sums = np.stack([np.bincount(rows, weights=losses)[distinct] for losses in L])
    weight = np.empty(len(counts))
    weight[rows] = sample_weight
    return sums / counts[distinct], weight[distinct]


# Means and their standard errors.


def effective_number(sample_weight: Array) -> float:
    """Effective number of rows: how many rows of equal weight carry as much information.

    sample_weight : (n,).

    >>> effective_number(np.array([1.0, 1.0, 0.0])), effective_number(np.full(4, 1e-200))
    (2.0, 4.0)
    """
    shares = sample_weight / sample_weight.max()  # so that squares neither vanish nor overflow
    return float(shares.sum() ** 2 / (shares**2).sum())


def mean_and_error(
    values: Array, sample_weight: Array, *, groups: Rows | None = None, folds: Rows | None = None
) -> tuple[float, float]:
    """Weighted mean and its standard error: (n,), (n,) -> two numbers.

    groups, folds : (n,) numbers, from 0, of blocks of dependent rows. Rows of one patient are
    dependent, and so are rows of one fold, which were judged by the same models. The standard error
    is at least that between the blocks. It is NaN if there is a single row or group. With few
    groups, or fewer than 30 rows, it is widened; see `few_blocks`.

    >>> values, patients = np.array([0.0, 0.0, 2.0, 2.0]), np.array([0, 0, 1, 1])
    >>> mean, error = mean_and_error(values, np.ones(4))
    >>> mean, round(error, 3), round(mean_and_error(values, np.ones(4), groups=patients)[1], 3)
    (1.0, 0.955, 6.984)
    """
    positive = sample_weight > 0
    mean = float(sample_weight @ values / sample_weight.sum())
    weight = sample_weight[positive]
    deviations = weight * (values[positive] - mean)
    error = _jackknife(deviations, weight)
    if len(weight) < FEW_ROWS:
        error *= few_blocks(len(weight))
    errors = [error]
    if folds is not None:
        errors.append(_jackknife(*_block_sums(deviations, weight, folds[positive])))
    if groups is not None:
        sums = _block_sums(deviations, weight, groups[positive])
        errors.append(few_blocks(len(sums[0])) * _jackknife(*sums))
    return mean, float(np.max(errors))


def few_blocks(n: int, errors: float = 2.0) -> float:
    """Factor that widens a standard error between n blocks, so that its interval stays honest.

    It is Student's quantile with n - 1 degrees of freedom over the normal quantile, at two standard
    errors by default.

    >>> [round(few_blocks(n), 2) for n in (2, 5, 10, 50)]
    [6.98, 1.43, 1.16, 1.03]
    """
    if n <= 1:
        return nan
    return float(stdtrit(n - 1, ndtr(errors)) / errors)


def _block_sums(deviations: Array, weight: Array, blocks: Rows) -> tuple[Array, Array]:
    """Sum of the deviations, and of the weights, of each block that has rows."""
    has_rows = np.bincount(blocks) > 0
    deviation_sums, weight_sums = (
        np.asarray(np.bincount(blocks, weights=values)[has_rows], dtype=np.float64)
        for values in (deviations, weight)
    )
    return deviation_sums, weight_sums


def _jackknife(deviations: Array, weight: Array) -> float:
    """Standard error of a weighted mean, leaving out one block after the other.

    It is the usual one if all blocks have equal weight, and larger if one block dominates.

    deviations : (blocks,) weighted sums around the mean; weight : (blocks,).
    """
    n = len(weight)
    if n < 2:
        return nan
    changes = deviations / (weight.sum() - weight)
    return float(np.sqrt((n - 1) / n * np.sum(changes**2)))


def fold_overlap(sizes: Sequence[tuple[int, int]], repeats: float = 1.0) -> float:
    """Factor by which overlapping training rows widen a standard error from held-out losses.

    ``sqrt(1 + J t / s)`` for J folds with t rows judged by a gate that was trained on s rows. This
    is the correction of Nadeau and Bengio (2003): judgements of folds are more alike than those of
    new samples.

    sizes : (rows trained on, rows judged) of each fold; repeats : number of judgements per row, on
    average, if they are averaged.

    >>> fold_overlap([(80, 20)] * 5), fold_overlap([(80, 20)] * 50, repeats=10)
    (1.5, 1.5)
    """
    ratio = sum(tested / trained for trained, tested in sizes) / len(sizes)
    return sqrt(1.0 + len(sizes) * ratio / repeats)


# The best constant prediction.


@dataclass(frozen=True)
class Baseline:
    """Constant predictions of a labelled sample, which a useful combination must beat.

    Parameters
    ----------
    loss : Loss
    targets : (n, K), as the loss takes them
    sample_weight : (n,)
    labels : (n,) number of the class of each row; None for regression
    n_classes : number of classes; 0 for regression

    Examples
    --------
    >>> from localma.losses import absolute_error
    >>> y = np.array([[1.0], [2.0], [9.0]])
    >>> baseline = Baseline(absolute_error(), y, np.ones(3))
    >>> baseline.learn().tolist(), baseline.losses(baseline.learn()).tolist()
    ([2.0], [1.0, 0.0, 7.0])
    """

    loss: Loss
    targets: Array
    sample_weight: Array
    labels: Rows | None = None
    n_classes: int = 0

    @property
    def name(self) -> str:
        """Name of the constant in a sentence."""
        if self.labels is not None:
            return "the shares of the classes"
        name = "the best constant"
        if self.loss.elicits in ("mean", "median") and is_registered(self.loss):
            name = f"the {self.loss.elicits}"
        if self.targets.shape[1] > 1:
            name += " of each output"
        return name

    @property
    def weighing_rows(self) -> Rows:
        """Rows of positive weight."""
        return np.flatnonzero(self.sample_weight > 0)

    def weights_of(self, rows: Rows) -> Array:
        """Weights of rows: (rows,)."""
        return np.asarray(self.sample_weight[rows], dtype=np.float64)

    def take(self, rows: Rows) -> Baseline:
        """Constant predictions of a part of the sample."""
        labels = self.labels
        if labels is not None:
            labels = labels[rows]
        return replace(
            self, targets=self.targets[rows], sample_weight=self.sample_weight[rows], labels=labels
        )

    def learn(self, rows: Rows | None = None) -> Array:
        """Best constant on rows: a number per output (K,), or the shares of the classes."""
        if rows is None:
            rows = np.arange(len(self.targets))
        rows = evenly_spaced(rows[self.sample_weight[rows] > 0], LEARNING_ROWS)
        weight = self.weights_of(rows)
        if self.labels is not None:
            return _class_shares(self.labels[rows], weight, self.n_classes)
        columns = self.targets[rows].T
        return np.array([_best_constant(self.loss, column, weight) for column in columns])

    def predictions(self, constant: Array, rows: Rows | slice = slice(None)) -> Array:
        """The constant as a prediction of each row, on the scale of the loss: (rows, K)."""
        if self.labels is not None and self.loss.name == "cross_entropy":
            return constant[self.labels[rows]][:, np.newaxis]
        return np.broadcast_to(constant, self.targets[rows].shape)

    def losses(self, constant: Array, rows: Rows | slice = slice(None)) -> Array:
        """Loss of the constant in each row: (rows,)."""
        return row_losses(self.loss, self.targets[rows], self.predictions(constant, rows))


def _class_shares(labels: Rows, weight: Array, n_classes: int) -> Array:
    """Shares of the classes: (n_classes,). Each gets half a row more, so that none is zero."""
    counts = np.bincount(labels, weights=weight / weight.mean(), minlength=n_classes) + 0.5
    return counts / counts.sum()


def _best_constant(loss: Loss, y: Array, weight: Array) -> float:
    """Minimiser of the mean loss: the mean, a quantile, or the result of a search."""
    if not is_registered(loss) or loss.elicits not in ("mean", "median", "quantile"):
        return _search_constant(loss, y, weight)
    if loss.elicits == "mean":
        return float(np.average(y, weights=weight))
    quantile = loss.parameters.get("quantile", 0.5)
    return float(np.quantile(y, quantile, weights=weight, method="inverted_cdf"))


def _search_constant(loss: Loss, y: Array, weight: Array) -> float:
    """Best point of a grid of quantiles, refined between its neighbours; NaN if none is allowed."""
    rows = evenly_spaced(np.arange(len(y)), SEARCH_ROWS)
    y, weight = y[rows], weight[rows]
    points = np.unique(np.append(np.quantile(y, np.linspace(0, 1, SEARCH_POINTS)), y.mean()))
    points = points[loss.prediction.contains(points)]
    if not len(points):
        return nan

    def risk(constant: float) -> float:
        with np.errstate(all="ignore"):
            losses = loss.value(y, np.full_like(y, constant))
        return float(np.average(losses, weights=weight))

    best = int(np.argmin([risk(point) for point in points]))
    low, high = points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)]
    if low == high:
        return float(low)
    refined = minimize_scalar(risk, bounds=(low, high), method="bounded")
    if refined.fun < risk(points[best]):
        return float(refined.x)
    return float(points[best])


# Comparisons of risks.


@dataclass(frozen=True)
class BaselineGap:
    """A prediction compared with the best constant prediction, on the same rows.

    All numbers are NaN if the two were not compared.

    Parameters
    ----------
    value : float
        Risk of the constant minus that of the prediction. Positive if the prediction is better.
    standard_error : float
        Standard error of `value`, from paired differences.
    baseline_risk : float
        Risk of the constant.
    risk : float
        Risk of the prediction.

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
        float(np.average(values, weights=sample_weight)) for values in (baseline_losses, losses)
    )
    return BaselineGap(value, error, baseline_risk, risk)


@dataclass(frozen=True)
class LocalityGain:
    """The gain of local weights: risk of the global gate minus that of the whole procedure.

    Parameters
    ----------
    value : float
        The gain. Positive if the procedure is better than global weights.
    standard_error : float
        Standard error of `value`, from paired differences.
    global_risk : float
        Cross-fitted risk of the global gate.
    risk : float
        Cross-fitted risk of the whole procedure.
    over_constant : float, default=nan
        Gain over the same procedure without local gates, which can still choose equal weights or
        the best candidate. NaN if unknown.
    over_constant_error : float, default=nan
        Standard error of `over_constant`. NaN if unknown.
    baseline_risk : float, default=nan
        Cross-fitted risk of the best constant prediction, such as the mean. NaN if unknown.
    over_baseline : float, default=nan
        Risk of the best constant prediction minus that of the procedure. Positive if the candidates
        help at all. NaN if unknown.
    over_baseline_error : float, default=nan
        Standard error of `over_baseline`. NaN if unknown.

    Examples
    --------
    >>> gain = LocalityGain(0.5, 0.1, 2.0, 1.5, over_constant=0.1, over_constant_error=0.1)
    >>> print(gain)
    0.5 ± 0.1
    >>> gain.is_clear, gain.is_local
    (True, False)
    """

    value: float
    standard_error: float
    global_risk: float
    risk: float
    over_constant: float = nan
    over_constant_error: float = nan
    baseline_risk: float = nan
    over_baseline: float = nan
    over_baseline_error: float = nan

    @property
    def is_clear(self) -> bool:
        """Whether the gain is more than 4/3 standard errors, and more than 0.1 % of the risk."""
        return abs(self.value) > CLAIM_ERRORS * self.standard_error and not self.is_negligible

    @property
    def is_negligible(self) -> bool:
        """Whether the gain is at most 0.1 % of the risk, or rounding."""
        return abs(self.value) <= self._least_claim

    @property
    def is_local(self) -> bool:
        """Whether local weights clearly gain over all constant weights and predictions."""
        # Comparisons with NaN are false, so an unknown quantity raises no doubt.
        least = max(CLAIM_ERRORS * self.over_constant_error, self._least_claim)
        doubtful = self.over_constant <= least
        gains = self.is_clear and self.value > 0
        return gains and not doubtful and not self.beside_baseline.is_idle

    @property
    def beside_baseline(self) -> BaselineGap:
        """The procedure compared with the best constant prediction."""
        return BaselineGap(
            self.over_baseline, self.over_baseline_error, self.baseline_risk, self.risk
        )

    @property
    def _least_claim(self) -> float:
        """Largest difference of risks that is not worth a claim."""
        return negligible(self.global_risk, self.baseline_risk)

    @property
    def is_of_constants(self) -> bool:
        """Whether other constant weights bring more than half of the gain."""
        return self.value > 0 and self.over_constant < self.value / 2

    def as_dict(self) -> dict[str, float | bool]:
        """Return all numbers by name, with the conclusions from them.

        Returns
        -------
        dict of str -> float or bool
            The fields of this record, `is_clear`, `is_local` and `is_idle`.
        """
        conclusions = {"is_clear": self.is_clear, "is_local": self.is_local}
        return {**asdict(self), **conclusions, "is_idle": self.beside_baseline.is_idle}

    def __str__(self) -> str:
        return f"{readable(self.value)} ± {readable(self.standard_error, 2)}"


def negligible(risk: float, baseline_risk: float = nan) -> float:
    """Size up to which a difference of risks is rounding, or 0.1 % of the risk.

    >>> negligible(2.0), negligible(0.0, 3.0)
    (0.002, 3e-12)
    """
    if isnan(baseline_risk):
        return RELEVANT * abs(risk)
    return max(RELEVANT * abs(risk), ROUNDING * abs(baseline_risk))


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

    Parameters
    ----------
    global_losses : losses of the global weights.
    constant_losses, losses : losses of the procedure without and with its local gates. Both must be
        nested: the choice for a fold does not use the fold. Otherwise the smallest risk of a path
        that contains the global gate is never above the global risk.
    baseline_losses : losses of the best constant prediction, learnt from other rows.
    groups, folds : see `mean_and_error`.
    overlap : factor of the standard errors, see `fold_overlap`.
    """

    global_risk, _ = mean_and_error(global_losses, sample_weight)
    risk, _ = mean_and_error(losses, sample_weight)
    least_error = SINGLE_PRECISION * abs(global_risk)

    def gain_over(reference: Array) -> tuple[float, float]:
        gain, error = mean_and_error(reference - losses, sample_weight, groups=groups, folds=folds)
        return gain, float(np.maximum(overlap * error, least_error))

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


def verdict(
    gain: LocalityGain,
    local: float | None = None,
    *,
    alone: str | None = None,
    loss: str | None = None,
) -> str:
    """Write a recommendation, then the size of the gain, then its precision.

    local : share of the final weights that is local, None if there is none; alone : the candidate
    that has nearly all weight, if there is one; loss : the name of the loss.

    >>> print(verdict(LocalityGain(0.5, 0.1, 2.0, 1.5, 0.4, 0.1), 1.0, loss="squared_error"))
    Use local weights. They lower the mean squared error on held-out rows by 25%, from 2 with \
fixed weights to 1.5 (difference 0.5 ± 0.1). The root mean squared error falls from 1.41 to 1.22. \
This holds for new rows that are like the labelled ones.
    """
    measure = f"{mean_loss(loss) if loss else 'mean loss'} on held-out rows"
    if gain.beside_baseline.is_idle:
        return (
            f"Do not use this combination. A constant prediction is as good: the {measure} is "
            f"{readable(gain.baseline_risk)} with the constant and {readable(gain.risk)} with the "
            f"combination (difference {_change(gain.over_baseline, gain.over_baseline_error)}). "
            "Check the candidates and their inputs, or train your own model."
        )
    if isnan(gain.standard_error):
        return (
            "No recommendation is possible: only one row or one group was held out. The "
            f"{measure} changes by {readable(-gain.value)} from {readable(gain.global_risk)} with "
            "fixed weights."
        )
    if gain.is_local and local is not None:
        return (
            f"Use local weights. They lower the {measure} by "
            f"{gain.value / abs(gain.global_risk):.0%}, from {readable(gain.global_risk)} with "
            f"fixed weights to {readable(gain.risk)} (difference {readable(gain.value)} ± "
            f"{readable(gain.standard_error, 2)}).{_in_unit_of_target(gain, loss)} This holds for "
            "new rows that are like the labelled ones."
        )
    return f"{_advice(gain, local, alone)} {_evidence_against(gain, local, measure)}"


def _advice(gain: LocalityGain, local: float | None, alone: str | None) -> str:
    """The recommendation if local weights are not clearly better."""
    undecided = local is not None and not gain.is_negligible and not gain.is_of_constants
    if undecided and not (gain.is_clear and gain.value < 0):
        return (
            "Keep this model, or use fixed weights. Local weights show no clear benefit here "
            f"({local:.0%} of the final weights are local)."
        )
    return f"Use candidate {alone} alone." if alone else "Use fixed weights."


def _evidence_against(gain: LocalityGain, local: float | None, measure: str) -> str:
    """The evidence if local weights are not clearly better."""
    size = f"by {_change(gain.value, gain.standard_error)}"
    if gain.is_negligible:
        size = "by less than 0.1%"
    start = f"from {readable(gain.global_risk)} with fitted fixed weights"
    if local is None:
        return f"No local weights are used. The {measure} changes {size} {start}."
    sentence = f"With local weights the {measure} changes {size} {start}."
    if gain.is_clear and gain.value > 0:
        further = _change(gain.over_constant, gain.over_constant_error)
        sentence += (
            f" Compared with equal weights or a single candidate it changes by only {further}."
        )
    return sentence


def _change(gain: float, error: float) -> str:
    """Write a gain as a change of the loss, with its standard error."""
    return f"{readable(-gain)} ± {readable(error, 2)}"


def _in_unit_of_target(gain: LocalityGain, loss: str | None) -> str:
    """The same gain in the unit of the target, if the loss is in its square."""
    if loss != "squared_error":
        return ""
    before, after = readable(sqrt(gain.global_risk)), readable(sqrt(gain.risk))
    return f" The root mean squared error falls from {before} to {after}."
