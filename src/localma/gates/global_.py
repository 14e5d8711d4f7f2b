"""The gate with one weight per candidate, the same for every input: classical model averaging."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from localma.equations import global_average
from localma.folds import Fold
from localma.gates._blas_threads import one_blas_thread
from localma.gates._row_blocks import RowBlocks
from localma.gates._simplex import Problem, Solution, minimise
from localma.gates.base import (
    ArrayTypes,
    Gate,
    Rules,
    check_arrays,
    check_rules,
    is_count,
    is_number,
    simplex_weights,
)
from localma.gates.labelled import Labelled, check_weight, plain_arrays
from localma.losses import Loss

Array = NDArray[np.floating]
Float64 = NDArray[np.float64]

SMOOTH_TOLERANCE = 1e-8
KINKED_TOLERANCE = 1e-4


class GlobalGate(Gate):
    """Global weights: the minimiser over the simplex of the mean loss.

    ``w = argmin sum_i s_i (1/K) sum_k loss(y_ik, sum_m w_m P_imk) / sum_i s_i``

    subject to ``w_m >= 0`` and ``sum_m w_m = 1``, for any loss. Every fit comes with a
    certificate, `gap_`. For a smooth loss it is ``max_m <grad L, w - e_m>``, ``grad L``
    the gradient of the risk and ``e_m`` all weight on candidate m; if the loss is convex, no
    weights have a risk below ``risk_ - gap_``. For a convex loss with kinks it is
    ``risk_`` minus a lower bound on every risk, the minimum over m of
    ``sum_ik s_i [a_ik + b_ik P_imk]``, where ``a + b mu`` supports the loss of a row from below.
    For a loss that is not convex `gap_` says how nearly stationary the weights are, the
    best of several starts.

    Parameters
    ----------
    tol : float, optional
        The gap asked for, as a part of the risk of equal weights: by default 1e-8, or 1e-4 for a
        loss with kinks (absolute error, pinball). A fit that does not reach it warns.
    max_iter : int
        Newton steps allowed to each start.

    Attributes
    ----------
    weights_ : (M,) array
        Exactly zero for candidates that have no say; sums to one.
    risk_ : float
        Mean loss of the sample at the weights.
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

    needs_inputs: ClassVar[bool] = False
    is_global: ClassVar[bool] = True

    def __init__(self, *, tol: float | None = None, max_iter: int = 200) -> None:
        self.tol = tol
        self.max_iter = max_iter

    def fit(
        self,
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Find the weights; the inputs and `global_weights` play no part. See `Gate.fit`."""
        self._check_parameters()
        loss = data.loss
        tol = self._tolerance(loss)
        P, y, share = _weighted_rows(data)
        with one_blas_thread() as threads:
            problem = Problem(RowBlocks(P, threads), y, share, loss)
            solution = minimise(problem, tol=tol, max_iter=self.max_iter)
        _warn_if_short(solution, loss, self.max_iter)
        self.weights_ = solution.weights
        self.risk_, self.gap_, self.n_iter_ = solution.risk, solution.gap, solution.n_iter
        return self

    @property
    def is_constant(self) -> bool:
        """True: all rows have the same weights."""
        return True

    @property
    def raw_inputs(self) -> bool:
        """True: inputs play no part."""
        return True

    def predict_weights(self, X: Array) -> Array:
        """Weights of each row: (n, p) -> (n, M), all rows alike."""
        check_is_fitted(self)
        return np.tile(self.weights_, (len(X), 1))

    def average(self, X: Array, P: Array) -> Array:
        """Predictions averaged with the weights: (n, M[, K]) -> (n[, K]); X plays no part."""
        check_is_fitted(self)
        _, P, *_ = plain_arrays(None, P)
        return global_average(self.weights_, P)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The fitted state: `weights` (M,), `risk`, `gap` and `n_iter` of shape ()."""
        check_is_fitted(self)
        return {
            "weights": self.weights_,
            "risk": np.array(self.risk_),
            "gap": np.array(self.gap_),
            "n_iter": np.array(self.n_iter_),
        }

    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> Self:
        """Take the fitted state back from `arrays`, checking names, shapes and the simplex."""
        self._check_parameters()
        expected: ArrayTypes = {
            "weights": ("f", np.shape(arrays.get("weights", ()))),
            "risk": ("f", ()),
            "gap": ("f", ()),
            "n_iter": ("iu", ()),
        }
        check_arrays(arrays, expected, "GlobalGate")
        weights = simplex_weights(arrays["weights"], "weights")
        self.weights_ = weights
        self.risk_, self.gap_ = float(arrays["risk"]), float(arrays["gap"])
        self.n_iter_ = int(arrays["n_iter"])
        return self

    @property
    def n_candidates(self) -> int:
        """Number M of candidates."""
        return len(self.weights_)

    def _check_parameters(self) -> None:
        check_rules(self, {}, _RULES)

    def _tolerance(self, loss: Loss) -> float:
        if self.tol is None:
            return SMOOTH_TOLERANCE if loss.smooth else KINKED_TOLERANCE
        return float(self.tol)


_RULES: Rules = (
    ("tol", lambda value: value is None or (is_number(value) and value > 0.0), "> 0, or None"),
    ("max_iter", is_count, "a positive integer"),
)


def find_global_weights(data: Labelled, rows: NDArray[np.intp] | None = None) -> Float64:
    """Minimiser over the simplex of the mean loss of some rows, or of all: (M,)."""
    weights: Float64 = GlobalGate().fit(data.without_inputs(rows)).weights_
    return weights


def _weighted_rows(data: Labelled) -> tuple[Array, Float64, Float64]:
    """Rows that have weight, and the share of each of their outputs: (n, M, K), (n, K), (n, K)."""
    P, weight = data.P, check_weight(data.sample_weight, data.n_rows)
    y: Float64 = np.ascontiguousarray(data.y, dtype=np.float64)
    weighing = weight > 0.0
    if not weighing.all():
        P, y, weight = P[weighing], y[weighing], weight[weighing]
    share = weight / weight.sum() / y.shape[1]
    return P, y, np.repeat(share[:, np.newaxis], y.shape[1], axis=1)


def _warn_if_short(solution: Solution, loss: Loss, max_iter: int) -> None:
    if solution.gap <= solution.target:
        return
    warnings.warn(
        f"GlobalGate stopped at a gap of {solution.gap:.3g} for loss {loss.name!r}; asked for was "
        f"{solution.target:.3g}. Raise max_iter={max_iter} or accept it with a larger tol.",
        ConvergenceWarning,
        stacklevel=3,
    )
