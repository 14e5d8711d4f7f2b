"""Gates with the same weights for every input: equal weights, and the best constant ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from localma._types import Array, Float64, Rows
from localma.equations import global_average, row_losses
from localma.errors import FileFormatError
from localma.gates.base import COUNT, Folds, Gate, Rule, Saved, is_number
from localma.gates.labelled import (
    Inputs,
    Labelled,
    check_weight,
    plain_arrays,
    row_index,
    row_slices,
    weighted_sum,
)
from localma.gates.simplex.newton import Problem, Solution, minimise
from localma.gates.simplex.row_blocks import RowBlocks, one_blas_thread
from localma.losses import Loss

SMOOTH_TOLERANCE = 1e-8
KINKED_TOLERANCE = 1e-4


class EqualGate(Gate):
    """Equal weights: ``w_m(x) = 1 / M``.

    Attributes
    ----------
    n_candidates_ : int
        The number M of candidates in the labelled sample.

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> P, y = np.zeros((3, 4, 1)), np.ones((3, 1))
    >>> gate = EqualGate().fit(Labelled.of(np.zeros((3, 2)), P, y, loss=squared_error()))
    >>> gate.predict_weights(np.zeros((1, 2))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    needs_inputs: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    raw_inputs = True
    is_constant = True
    state: ClassVar[tuple[Saved, ...]] = (Saved("n_candidates", dtype=np.int64),)

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Count the candidates.

        Parameters
        ----------
        data : Labelled
            The labelled sample. Only the number of candidates is used.
        global_weights : (M,) array, optional
            Not used.
        folds : sequence of (train, test), optional
            Not used.

        Returns
        -------
        EqualGate
            The fitted gate.
        """
        self.n_candidates_ = data.n_candidates
        return self

    def predict_weights(self, X: Inputs) -> Array:
        """Return the weights of each row, all ``1 / M``.

        Parameters
        ----------
        X : n inputs
            Only their number is used.

        Returns
        -------
        (n, M) array
            The weights.
        """
        check_is_fitted(self)
        return np.full((len(X), self.n_candidates_), 1.0 / self.n_candidates_)

    @property
    def n_candidates(self) -> int:
        """Number M of candidates."""
        return self.n_candidates_

    def _check_state(self) -> None:
        if self.n_candidates_ < 1:
            raise FileFormatError(
                f"EqualGate must weigh one or more candidates; received {self.n_candidates_}."
            )


@dataclass(eq=False, repr=False, kw_only=True)  # the fields are scikit-learn parameters
class GlobalGate(Gate):
    """Global weights: the minimiser over the simplex of the mean loss.

    ``w = argmin sum_i s_i (1/K) sum_k loss(y_ik, sum_m w_m P_imk) / sum_i s_i``

    subject to ``w_m >= 0`` and ``sum_m w_m = 1``, for any loss. Every fit has a certificate,
    `gap_`. For a smooth loss it is ``max_m <grad L, w - e_m>``, where ``grad L`` is the gradient
    of the risk and ``e_m`` puts all weight on candidate m. If the loss is convex, no weights have
    a risk below ``risk_ - gap_``. For a convex loss with kinks, the certificate is ``risk_`` minus
    a lower bound on every risk: the minimum over m of ``sum_ik s_i [a_ik + b_ik P_imk]``, where
    the line ``a + b mu`` supports the loss of a row from below. For a loss that is not convex,
    `gap_` measures how close the weights are to a stationary point.

    Parameters
    ----------
    tol : float, optional
        Largest accepted gap, relative to the risk of equal weights. By default 1e-8, or 1e-4 for a
        loss with kinks (absolute error, pinball). A fit that does not reach it warns.
    max_iter : int
        Maximum number of Newton steps from each start.

    Attributes
    ----------
    weights_ : (M,) array
        They sum to one, and are exactly zero for candidates that are not used.
    risk_ : float
        Mean loss of the sample with these weights.
    gap_ : float
        The certificate.
    n_iter_ : int
        Newton steps taken, over all starts.

    Examples
    --------
    The truth lies a quarter of the way from the first candidate to the second:

    >>> from localma.losses import squared_error
    >>> first, second = np.array([0.0, 4.0, 8.0]), np.array([4.0, 0.0, 8.0])
    >>> P = np.stack([first, second], axis=1)[:, :, np.newaxis]
    >>> y = (0.75 * first + 0.25 * second)[:, np.newaxis]
    >>> gate = GlobalGate().fit(Labelled.of(np.zeros((3, 1)), P, y, loss=squared_error()))
    >>> gate.weights_.round(6).tolist()
    [0.75, 0.25]
    """

    tol: float | None = None
    max_iter: int = 200

    needs_inputs: ClassVar[bool] = False
    is_global: ClassVar[bool] = True
    raw_inputs = True
    is_constant = True
    _rules: ClassVar[Mapping[str, Rule]] = {
        "tol": Rule(lambda value: is_number(value) and value > 0.0, "> 0").or_none(),
        "max_iter": COUNT,
    }
    state: ClassVar[tuple[Saved, ...]] = (
        Saved("weights", "M", on_simplex=True),
        Saved("risk"),
        Saved("gap"),
        Saved("n_iter", dtype=np.int64),
    )

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Find the weights.

        Parameters
        ----------
        data : Labelled
            The labelled sample. Its inputs are not used.
        global_weights : (M,) array, optional
            Not used.
        folds : sequence of (train, test), optional
            Not used.

        Returns
        -------
        GlobalGate
            The fitted gate.
        """
        self._check_parameters()
        tol = self.tol
        if tol is None:
            tol = SMOOTH_TOLERANCE if data.loss.smooth else KINKED_TOLERANCE
        P, y, share = _weighted_rows(data)
        with one_blas_thread() as threads:
            problem = Problem(RowBlocks(P, threads), y, share, data.loss)
            solution = minimise(problem, tol=float(tol), max_iter=self.max_iter)
        _warn_if_short(solution, data.loss, self.max_iter)
        self.weights_ = solution.weights
        self.risk_, self.gap_, self.n_iter_ = solution.risk, solution.gap, solution.n_iter
        return self

    def predict_weights(self, X: Inputs) -> Array:
        """Return the weights of each row, the same for all.

        Parameters
        ----------
        X : n inputs
            Only their number is used.

        Returns
        -------
        (n, M) array
            The weights.
        """
        check_is_fitted(self)
        return np.tile(self.weights_, (len(X), 1))

    def average(self, X: Inputs, P: Array) -> Array:
        """Average predictions with the weights.

        Parameters
        ----------
        X : n inputs
            Not used.
        P : (n, M) or (n, M, K) array
            Predictions of the candidates.

        Returns
        -------
        (n,) or (n, K) array
            The averages.
        """
        check_is_fitted(self)
        _, P, *_ = plain_arrays(None, P)
        return global_average(self.weights_, P)

    @property
    def n_candidates(self) -> int:
        """Number M of candidates."""
        return len(self.weights_)


def find_global_weights(data: Labelled, rows: Rows | None = None) -> Float64:
    """Weights (M,) on the simplex that minimise the mean loss of some rows, or of all."""
    return GlobalGate().fit(data.without_inputs(rows)).weights_


def _weighted_rows(data: Labelled) -> tuple[Array, Float64, Float64]:
    """Rows with positive weight: predictions (n, M, K), targets and shares (n, K)."""
    P, weight = data.P, check_weight(data.sample_weight, data.n_rows)
    y: Float64 = np.ascontiguousarray(data.y, dtype=np.float64)
    has_weight = weight > 0.0
    if not has_weight.all():
        P, y, weight = P[has_weight], y[has_weight], weight[has_weight]
    share = weight / weight.sum() / y.shape[1]
    return P, y, np.outer(share, output_weight(data))


def _warn_if_short(solution: Solution, loss: Loss, max_iter: int) -> None:
    # Below the smallest normal number a target cannot be met, and a gap means nothing.
    if solution.gap <= max(solution.target, float(np.finfo(np.float64).tiny)):
        return
    warnings.warn(
        f"GlobalGate stopped at a gap of {solution.gap:.3g} for loss {loss.name!r}; the target was "
        f"{solution.target:.3g}. Raise max_iter={max_iter}, or accept the gap with a larger tol.",
        ConvergenceWarning,
        stacklevel=3,
    )


def output_weight(data: Labelled) -> Float64:
    """Weight of each output in the loss of a row: (K,), with mean one."""
    return np.array(data.loss.output_weight or np.ones(data.y.shape[1]))


def standardize_outputs(data: Labelled) -> Labelled:
    """Weight the outputs by one over their risks under the global weights.

    These weights minimise the loss whose outputs are standardized by their risks under equal
    weights. So the unit of an output matters to neither. An output that is predicted without an
    error has the weight of one whose risk is a millionth of that of equal weights.

    >>> from localma.losses import squared_error
    >>> P, y = np.array([[[1.0, 100.0], [3.0, 300.0]]] * 2), np.zeros((2, 2))
    >>> loss = squared_error().standardized()
    >>> data = standardize_outputs(Labelled.of(np.zeros((2, 1)), P, y, loss=loss))
    >>> np.round(data.loss.output_weight, 4).tolist()
    [1.9998, 0.0002]
    """
    at_equal = _output_risks(data, np.full(data.n_candidates, 1.0 / data.n_candidates))
    first = _with_output_weight(data, at_equal)
    risks = np.maximum(_output_risks(data, find_global_weights(first)), 1e-6 * at_equal)
    return _with_output_weight(data, risks)


def _output_risks(data: Labelled, weights: Float64) -> Float64:
    """Mean loss of each output under constant weights (M,): (K,)."""
    M, K = data.P.shape[1:]
    sums = np.zeros(K)
    for index in row_slices(data.n_rows, None, M * K):
        losses = data.loss.value(data.y[index], global_average(weights, data.P[index]))
        sums += weighted_sum(data.sample_weight[index], losses)
    return np.abs(sums) / data.sample_weight.sum()


def _with_output_weight(data: Labelled, risks: Float64) -> Labelled:
    """Weight the outputs by one over their risks (K,); an output without a risk counts as one."""
    inverse = 1.0 / np.where(risks > np.finfo(np.float64).tiny, risks, 1.0)
    loss = replace(data.loss, output_weight=tuple((inverse / inverse.mean()).tolist()))
    baseline = data.baseline
    if baseline is not None:
        baseline = replace(baseline, loss=loss)
    return replace(data, loss=loss, baseline=baseline)


WEIGHT_FLOOR = 0.01
"""Share of equal weights that is mixed into weights whose logarithm is needed."""


def anchor_and_scale(
    data: Labelled, rows: Rows | None, global_weights: Array | None
) -> tuple[Float64, float]:
    """Global weights (M,), computed if None is given, and their risk, the scale of the loss.

    If the global weights fit nearly perfectly, the scale is a millionth of the risk of equal
    weights; if these do too, it is one. Predictions are read slice by slice.
    """
    M = data.n_candidates
    equal: Float64 = np.full(M, 1.0 / M)
    weights = global_weights
    if M == 1:
        weights = equal
    if weights is None:
        weights = find_global_weights(data, rows)
    risk, equal_risk = np.abs(_risks(data, rows, [weights, equal]))
    scale = max(float(risk), 1e-6 * float(equal_risk))
    if not scale > np.finfo(np.float64).tiny:
        scale = 1.0
    return np.asarray(weights, dtype=np.float64), scale


def disagreement(data: Labelled, rows: Rows | None) -> float:
    """Mean loss of the candidates minus that of their equal average, over some rows.

    It is what equal weights gain, at least zero for a convex loss. For squared error it is the
    variance of the predictions of a row, whatever the targets are (Krogh and Vedelsby, 1995).

    >>> from localma.losses import squared_error
    >>> P, y = np.array([[[1.0], [3.0]]]), np.array([[7.0]])
    >>> disagreement(Labelled.of(np.zeros((1, 1)), P, y, loss=squared_error()), None)
    1.0
    """
    M = data.n_candidates
    *alone, together = _risks(data, rows, [*np.eye(M), np.full(M, 1.0 / M)])
    return max(0.0, float(np.mean(alone) - together))


def _risks(data: Labelled, rows: Rows | None, weights: Sequence[Array]) -> Float64:
    """Mean loss of some rows under each of several constant weights (M,), slice by slice."""
    M, K = data.P.shape[1:]
    sums, total = np.zeros(len(weights)), 0.0
    for index in row_slices(len(data.sample_weight[row_index(rows)]), rows, M * K):
        P, y, weight = data.P[index], data.y[index], data.sample_weight[index]
        sums += [
            weighted_sum(weight, row_losses(data.loss, y, global_average(w, P))) for w in weights
        ]
        total += weight.sum()
    return sums / total


def floored(weights: Array, share: float = WEIGHT_FLOOR) -> Array:
    """Mix weights (M,) with a share of equal weights, so that all are positive.

    >>> floored(np.array([1.0, 0.0])).tolist()
    [0.995, 0.005]
    """
    return (1.0 - share) * weights + share / len(weights)
