"""An affine function of the candidates' scores, shrunk to the score of their average.

``score(x) = s(average(x)) + b + sum_m d_m (s(f_m(x)) - c_m)``

s is the link of the loss, b an offset (one per class), c_m the mean score of a candidate. A ridge
penalty on d pulls to the average. The penalty is chosen by cross-validation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localma._types import AnyArray, Array, Float64, Rows
from localma.folds import evenly_spaced
from localma.gates.base import Arrays, check_arrays
from localma.own.scales import Objective

PENALTIES = np.append(10.0 ** np.arange(-6.0, 1.5), 1e6)
"""Ridge penalties, in units of the largest curvature of the loss in the coefficients."""
CLASS_PENALTY = 0.5
"""Penalty of the offset of a class, worth half a row."""
FOLDS = 5
MOST_SLOPES = 100
"""Functions of more inputs are left to trees."""
MOST_NUMBERS = 2**20
"""Numbers in the table of derivatives: a few coefficients need no more rows."""
MOST_STEPS = 25
SMALL_STEP = 1e-9
HALVINGS = 8


@dataclass(frozen=True)
class Affine:
    """The fitted function of one output, or of all classes.

    Parameters
    ----------
    offset : (S,) array
        The offset b of each score.
    slopes : (M,) array
        The coefficients d.
    centre : (M, S) array
        The mean scores c.
    """

    offset: Float64
    slopes: Float64
    centre: Float64

    def __call__(self, start: Array, Z: Array) -> Float64:
        """Correct scores: those of the average (n, S), of the candidates (n, M, S) -> (n, S)."""
        return start + self.offset + np.einsum("m,nms->ns", self.slopes, Z - self.centre)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the numbers by name."""
        return {"offset": self.offset, "slopes": self.slopes, "centre": self.centre}

    @classmethod
    def restore(cls, arrays: Arrays, n_slopes: int, n_scores: int) -> Affine:
        """Restore the function from its numbers; refuse those of other shapes."""
        shapes = {"offset": (n_scores,), "slopes": (n_slopes,), "centre": (n_slopes, n_scores)}
        expected = {name: ("f", shape) for name, shape in shapes.items()}
        check_arrays(arrays, expected, "An affine function")
        return cls(*(np.asarray(arrays[name], dtype=np.float64) for name in shapes))


def fit_affine(
    objective: Objective,
    y: Array,
    start: Array,
    Z: Array,
    weight: Array,
    groups: Rows | None = None,
) -> Affine:
    """Fit the function with the penalty that predicts held-out rows best.

    Parameters
    ----------
    objective : what is minimised
    y : (n, S) targets
    start : (n, S) scores of the average
    Z : (n, M, S) scores of the candidates
    weight : (n,) weights of the rows
    groups : (n,) numbers of groups that are held out whole, if rows are dependent

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> from localma.own.scales import Link, Objective
    >>> f = np.linspace(0, 1, 50)[:, None]
    >>> y, weight = 2 * f + 3, np.ones(50)
    >>> link = Link.of(squared_error(), y, weight, is_classification=False)
    >>> affine = fit_affine(Objective.of(squared_error(), link, y, f), y, f, f[:, None], weight)
    >>> affine(np.array([[2.0]]), np.array([[[2.0]]])).round(3).tolist()
    [[7.0]]
    """
    n_numbers = Z.shape[2] * (Z.shape[1] + Z.shape[2])
    rows = evenly_spaced(np.flatnonzero(weight > 0), MOST_NUMBERS // n_numbers + 1)
    y, start, Z, weight = y[rows], start[rows], Z[rows], weight[rows] / weight[rows].mean()
    centre, n_offsets = np.average(Z, axis=0, weights=weight), y.shape[1]
    sample = _Design(objective, y, start, _design(Z - centre), weight)
    penalties = sample.penalties(n_offsets)
    theta = sample.minimise(penalties[len(penalties) // 2], np.zeros(sample.J.shape[2]))
    folds = inner_folds(len(rows), None if groups is None else groups[rows])
    risks = sample.held_out_risks(penalties, theta, folds)
    best = len(risks) - 1 - int(np.argmin(risks[::-1]))  # the largest penalty among equals
    theta = sample.minimise(penalties[best], theta)
    # In this layout sums have the same rounding errors after saving and loading.
    return Affine(theta[:n_offsets], theta[n_offsets:], np.ascontiguousarray(centre))


def _design(Z: Array) -> Float64:
    """Derivatives of the scores in all coefficients: (n, M, S) -> (n, S, S + M)."""
    n, _, S = Z.shape
    offsets = np.broadcast_to(np.eye(S), (n, S, S))
    return np.concatenate([offsets, Z.transpose(0, 2, 1)], axis=2)


def inner_folds(n: int, groups: Rows | None, n_folds: int = FOLDS) -> Rows:
    """The number of the fold that holds out each row, (n,); groups stay whole."""
    random = np.random.RandomState(0)
    if groups is None:
        return random.permutation(n) % n_folds
    _, numbers = np.unique(groups, return_inverse=True)
    return (random.permutation(numbers.max() + 1) % n_folds)[numbers]


@dataclass(frozen=True)
class _Design:
    """Rows with the derivatives J (n, S, q) of their scores in q coefficients."""

    objective: Objective
    y: Array
    start: Array
    J: Float64
    weight: Array

    def scores(self, theta: Array) -> Float64:
        """Scores of the rows: (n, S)."""
        return self.start + self.J @ theta

    def curvatures(self, theta: Array, folds: Rows | None = None) -> tuple[Float64, Float64]:
        """Gradients (F, q) and curvatures (F, q, q) of the loss, summed in each fold."""
        slope, curvature = self.objective.derivatives(self.y, self.scores(theta))
        J = self.J
        if self.objective.link.name == "softmax":
            p = self.objective.link.means(self.scores(theta))
            J = J - np.einsum("ns,nsq->nq", p, J)[:, None]
            curvature = p
        gradients = np.einsum("ns,nsq->nq", self.weight[:, None] * slope, self.J)
        root = J * np.sqrt(self.weight[:, None] * curvature)[:, :, None]
        if folds is None:
            flat = root.reshape(-1, root.shape[2])
            return gradients.sum(axis=0)[None], (flat.T @ flat)[None]
        held_out = [np.flatnonzero(folds == fold) for fold in range(FOLDS)]
        flats = [root[rows].reshape(-1, root.shape[2]) for rows in held_out]
        sums = np.stack([gradients[rows].sum(axis=0) for rows in held_out])
        return sums, np.stack([flat.T @ flat for flat in flats])

    def penalties(self, n_offsets: int) -> Float64:
        """Ridge penalties of the coefficients: (penalties, q)."""
        _, (total,) = self.curvatures(np.zeros(self.J.shape[2]))
        largest = max(np.linalg.eigvalsh(total[n_offsets:, n_offsets:]), default=0.0)
        penalties = np.zeros((len(PENALTIES), len(total)))
        penalties[:, n_offsets:] = PENALTIES[:, None] * max(largest, np.finfo(np.float64).tiny)
        if n_offsets > 1:  # classes, some of which may have no rows
            penalties[:, :n_offsets] = CLASS_PENALTY
        return penalties

    def risk(self, theta: Array, penalty: Array) -> float:
        """Penalised sum of the losses."""
        losses = self.objective.values(self.y, self.scores(theta))
        return float(self.weight @ losses + 0.5 * penalty @ theta**2)

    def minimise(self, penalty: Array, theta: Float64) -> Float64:
        """Newton's method with halved steps, from the coefficients theta."""
        risk = self.risk(theta, penalty)
        for _ in range(MOST_STEPS):
            (gradient,), (curvature,) = self.curvatures(theta)
            step = _solve(curvature + np.diag(penalty), -(gradient + penalty * theta))
            for halving in range(HALVINGS):
                trial = theta + step * 0.5**halving
                trial_risk = self.risk(trial, penalty)
                if trial_risk <= risk:
                    break
            else:
                return theta
            gained, theta, risk = risk - trial_risk, trial, trial_risk
            if gained <= SMALL_STEP * abs(risk):
                return theta
        return theta

    def held_out_risks(self, penalties: Float64, theta: Array, folds: Rows) -> Float64:
        """Loss of held-out rows with each penalty: (penalties,).

        Without a fold, the loss is replaced by its quadratic approximation at theta.
        """
        gradients, curvatures = self.curvatures(theta, folds)
        rights = np.einsum("fqr,r->fq", curvatures, theta) - gradients
        A, b = curvatures.sum(axis=0) - curvatures, rights.sum(axis=0) - rights
        ridges = penalties[:, None, :, None] * np.eye(penalties.shape[1])
        fitted = _solve(A + ridges, np.broadcast_to(b, (len(penalties), *b.shape)))
        risks = np.empty(len(penalties))
        for k, coefficients in enumerate(fitted):
            scores = self.start + np.einsum("nsq,nq->ns", self.J, coefficients[folds])
            risks[k] = self.weight @ self.objective.values(self.y, scores)
        return np.nan_to_num(risks, nan=np.inf)


def _solve(A: Array, b: Array) -> Float64:
    """Solution of ``A x = b`` for matrices that may be nearly singular."""
    scale = np.trace(A, axis1=-2, axis2=-1)[..., None, None] / A.shape[-1]
    jitter = 1e-10 * np.maximum(scale, np.finfo(np.float64).tiny) * np.eye(A.shape[-1])
    solution: Float64 = np.linalg.solve(A + jitter, b[..., None])[..., 0]
    return solution
