"""Prediction intervals and sets from held-out errors: CV+ with a local scale.

Row i was held out by the fold k(i). Its score is ``s_i = |y_i - f_k(x_i)| / sigma_k(x_i)``. For a
new x, the interval of level 1 - a reaches from the a-quantile of ``f_k(i)(x) - s_i sigma_k(i)(x)``
to the (1 - a)-quantile of ``f_k(i)(x) + s_i sigma_k(i)(x)``, over all i and one row at infinity
(Barber, Candes, Ramdas and Tibshirani, 2021). With one fold this is split conformal prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil

import numpy as np

from localma._types import AnyArray, Array, Float64, Integers, RowMask, Rows
from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError
from localma.evidence import effective_number
from localma.folds import evenly_spaced
from localma.gates.base import Arrays, Saved, read_state
from localma.gates.labelled import Labelled, row_slices

MOST_SCORES = 1_000
"""Scores that are stored for each fold. Of more scores, as many quantiles are stored."""

SCALE_ROWS = 2_000
"""At most this many rows of a fold, evenly spaced, determine the scale of the others."""

MOST_COLUMNS = 32
"""With more inputs, or more candidates, the scale does not depend on each of them."""

PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""Ridge penalties of the scale, by mean loss; a constant scale is compared with them."""

TAIL = 0.01
"""Share of the rows beyond the outer knots, where the scale is constant."""

LARGEST_EXPONENT = 20.0
"""The scale stays within this many powers of e of the mean error."""

MOST_ERROR, MOST_SCORE, MOST_COEFFICIENT = 1e240, 1e50, 1e6
"""Larger numbers are cut in a fit and refused in a file, so that ends of intervals are finite."""

LARGEST = float(np.finfo(np.float64).max)
"""In place of infinity, which files do not hold."""

HALVINGS = 30
"""Steps of the search for an end of an interval, each of which halves the range."""


@dataclass(frozen=True)
class HeldRows:
    """Rows that one fold held out, and the weights of their candidates.

    Parameters
    ----------
    answer : number of the mixture that predicts new rows: 0 for the final one, k for fold k
    rows : (n,) the rows of the sample
    weights : (n, M) weights of the candidates from the fold that held these rows out
    """

    answer: int
    rows: Rows
    weights: Array


_STATE = (
    Saved("scores", "SK"),
    Saved("mass", "SK"),
    Saved("parts", "S", np.intp),
    Saved("answers", "C", np.intp),
    Saved("unit", "K"),
    Saved("knots", "Ktq"),
    Saved("coefficients", "CKh"),
    Saved("limits", "l"),
    Saved("n_effective"),
)


@dataclass(frozen=True)
class Calibration:
    """Scores of held-out rows, from which intervals and sets of new rows follow.

    Parts are the rows of one fold, or two halves of a single fold.

    Parameters
    ----------
    scores, mass : (S, K) scores of each output, sorted within a part, and their shares
    parts : (S,) part of each score, in ascending order
    answers : (C,) for each part the mixture that predicts new rows; 0 is the final one
    unit : (K,) mean error of each output
    knots : (K, 3, q) lower, middle and upper knot of each feature of the scale
    coefficients : (C, K, 1 + 2 q) of the logarithm of the scale, in the unit
    limits : (2,) least and largest possible target
    n_effective : effective number of rows, or the number of groups
    """

    scores: Array
    mass: Array
    parts: Integers
    answers: Integers
    unit: Array
    knots: Array
    coefficients: Array
    limits: Array
    n_effective: float

    @classmethod
    def of(cls, data: Labelled, parts: Sequence[HeldRows]) -> Calibration:
        """Measure the errors of held-out rows, and learn their scale.

        The error of a class is one minus the probability of the observed class; it has no scale.
        """
        parts = [_with_weight(data, part) for part in parts]
        parts = [part for part in parts if len(part.rows)]
        masses, n_effective = _masses(data, [part.rows for part in parts])
        errors = [_errors(data, part) for part in parts]
        unit = np.ones(1)
        raw = [np.empty((len(part.rows), 1, 0)) for part in parts]
        if not _has_classes(data):
            unit = _unit(np.concatenate(errors), np.concatenate(masses))
            raw = [
                features(part.weights, data.P[part.rows], _inputs(data, part.rows), unit)
                for part in parts
            ]
        knots = _knots(np.concatenate(raw))
        coefficients = _scales([e / unit for e in errors], masses, [hinges(r, knots) for r in raw])
        listed: list[tuple[Array, Array]] = []
        for c, (error, mass) in enumerate(zip(errors, masses, strict=True)):
            scores = error / _scale(raw[c], knots, coefficients[c], unit)
            listed.append(_thinned(np.minimum(scores, MOST_SCORE), mass))
        target = data.loss.target
        return cls(
            scores=np.concatenate([scores for scores, _ in listed]),
            mass=np.concatenate([mass for _, mass in listed]),
            parts=np.repeat(np.arange(len(parts)), [len(scores) for scores, _ in listed]),
            answers=np.array([part.answer for part in parts], dtype=np.intp),
            unit=unit,
            knots=knots,
            coefficients=coefficients,
            limits=np.clip([target.low, target.high], -LARGEST, LARGEST),
            n_effective=n_effective,
        )

    @property
    def has_classes(self) -> bool:
        """Whether scores are of classes: these have no scale."""
        return self.knots.shape[2] == 0

    def interval(
        self, weights: Sequence[Array], P: Array, X: Array | None, level: float
    ) -> tuple[Array, Array]:
        """Interval of each row and output.

        Parameters
        ----------
        weights : for each part, weights (n, M) of its answer
        P : (n, M, K) predictions of the candidates
        X : (n, p) inputs; None if they are not a table
        level : share of new rows to cover

        Returns
        -------
        low, high : (n, K) ends, within the limits of the target
        """
        share, K = self._share(level), len(self.unit)
        if self.has_classes or P.shape[2] != K:
            raise InvalidInputError(
                f"Intervals are known for {0 if self.has_classes else K} outputs; received "
                f"predictions of {P.shape[2]}. Pass predictions of the outputs that the model was "
                "fitted on. For classes use sets."
            )
        ends = np.empty((2, len(P), K))
        for rows in row_slices(len(P), None, self.coefficients.size):
            some = None if X is None else X[rows]
            ends[:, rows] = self._ends([W[rows] for W in weights], P[rows], some, share)
        low, high = np.clip(ends, *self.limits)
        return low, high

    def _ends(self, weights: Sequence[Array], P: Array, X: Array | None, share: float) -> Array:
        """Lower and upper ends of some rows: (2, n, K)."""
        centres = np.stack([local_average(W, P) for W in weights])
        scales = np.stack(
            [
                _scale(features(W, P, X, self.unit), self.knots, coefficients, self.unit)
                for W, coefficients in zip(weights, self.coefficients, strict=True)
            ]
        )
        ends = np.empty((2, len(P), len(self.unit)))
        for k in range(len(self.unit)):
            scores = self._by_part(k)
            ends[0, :, k] = -_end(-centres[..., k], scales[..., k], scores, share)
            ends[1, :, k] = _end(centres[..., k], scales[..., k], scores, share)
        return ends

    def classes(self, weights: Sequence[Array], P: Array, level: float) -> RowMask:
        """Classes whose scores are not among the largest: (n, K).

        weights : for each part, weights (n, M) of its answer; P : (n, M, K) probabilities.
        """
        share = self._share(level)
        if not self.has_classes:
            raise InvalidInputError("Sets of classes need a model of classes. Use intervals.")
        smaller = np.zeros((len(P), P.shape[2]))
        for W, (scores, cumulated) in zip(weights, self._by_part(0), strict=True):
            smaller += cumulated[np.searchsorted(scores, 1.0 - local_average(W, P))]
        return np.asarray(smaller < share)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the record as named arrays."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def restore(
        cls, arrays: Arrays, *, n_candidates: int, n_inputs: int, n_answers: int
    ) -> Calibration:
        """Restore the record from arrays, which may come from an untrusted file."""
        owner = "The calibration of ShrunkGate"
        q = 0
        if np.shape(arrays.get("knots", ()))[-1:] != (0,):  # classes have no scale
            q = n_features(n_candidates, n_inputs)
        lengths = {"t": 3, "q": q, "h": 1 + 2 * q, "l": 2}
        restored = cls(**read_state(arrays, _STATE, owner, **lengths))
        restored._check(owner, n_answers)
        return restored

    def _check(self, owner: str, n_answers: int) -> None:
        """Refuse values that no fit has."""
        scores, parts, answers = self.scores, self.parts, self.answers
        following = parts[1:] == parts[:-1]
        rules = {
            "finite numbers": [np.isfinite(array).all() for array in self.arrays().values()],
            "scores that are sorted, and not negative": [
                scores.size > 0,
                ((scores >= 0) & (scores <= MOST_SCORE)).all(),
                (scores[1:] >= scores[:-1])[following].all(),
            ],
            "parts in order, each with scores": [
                (parts[1:] >= parts[:-1]).all(),
                np.array_equal(np.unique(parts), np.arange(len(answers))),
            ],
            "answers of the gate": [((answers >= 0) & (answers < n_answers)).all()],
            "shares that are not negative and sum to one": [
                (self.mass >= 0).all(),
                np.allclose(self.mass.sum(axis=0), 1.0),
            ],
            "moderate coefficients": [(np.abs(self.coefficients) <= MOST_COEFFICIENT).all()],
            "positive units and numbers of rows": [
                ((self.unit > 0) & (self.unit <= MOST_ERROR)).all(),
                self.n_effective > 0,
            ],
            "knots and limits in order": [
                (self.knots[:, 1:] >= self.knots[:, :-1]).all(),
                self.limits[0] <= self.limits[1],
            ],
        }
        broken = [rule for rule, held in rules.items() if not all(held)]
        if broken:
            raise FileFormatError(f"{owner} must have {broken[0]}. Save the model again.")

    def _share(self, level: float) -> float:
        """Share of the scores that an interval covers: the level, and one row at infinity."""
        if not 0.0 < level < 1.0:
            raise InvalidInputError(
                f"level must be between 0 and 1; received {level!r}. Pass 0.9 for 90 %."
            )
        share = level * (1.0 + 1.0 / self.n_effective)
        if share > 1.0 + 1e-9:
            n, most = self.n_effective, self.n_effective / (self.n_effective + 1.0)
            raise InvalidInputError(
                f"A level of {level:g} needs at least {ceil(level / (1 - level) - 1e-9)} held-out "
                f"rows, or groups if you passed any; this model has {n:.3g}, counted by their "
                f"weights. Use a level of at most {int(1000 * most) / 1000:g}, or more rows."
            )
        return min(share, 1.0)

    def _by_part(self, k: int) -> list[tuple[Array, Array]]:
        """Scores of each part, and their cumulated shares, from zero on."""
        chosen = [self.parts == c for c in range(len(self.answers))]
        return [
            (self.scores[rows, k], np.append(0.0, np.cumsum(self.mass[rows, k]))) for rows in chosen
        ]


def n_features(n_candidates: int, n_inputs: int) -> int:
    """Number q of features of the scale.

    >>> n_features(3, 5), n_features(3, 500), n_features(1, 0)
    (10, 5, 3)
    """
    return 2 + sum(n for n in (n_candidates, n_inputs) if n <= MOST_COLUMNS)


def features(W: Array, P: Array, X: Array | None, unit: Array) -> Float64:
    """Numbers on which the scale of each output depends: (n, K, q).

    They are the candidates' disagreement (the logarithm of their weighted standard deviation and
    of the mean error, as one length), the prediction, the weights, and the inputs.

    W : (n, M); P : (n, M, K); X : (n, p) or None; unit : (K,) mean error.
    """
    f = local_average(W, P)
    with np.errstate(over="ignore"):
        apart = np.clip((P - f[:, np.newaxis]) / unit, -1e100, 1e100)
    disagreement = np.sqrt(local_average(W, apart**2))
    columns: list[Array] = [np.log(np.hypot(disagreement, 1.0))[..., np.newaxis], f[..., None]]
    for values in (W, X):
        if values is not None and values.shape[1] <= MOST_COLUMNS:
            columns.append(np.broadcast_to(values[:, None], (len(f), len(unit), values.shape[1])))
    return np.concatenate(columns, axis=2, dtype=np.float64)


def hinges(raw: Array, knots: Array) -> Float64:
    """Each feature below and above its middle knot, as numbers from -1 to 0 and from 0 to 1.

    raw : (n, K, q); knots : (K, 3, q) -> (n, K, 2 q).

    >>> hinges(np.array([[[0.0]], [[2.0]], [[9.0]]]), np.array([[[0.0], [1.0], [3.0]]])).tolist()
    [[[-1.0, 0.0]], [[0.0, 0.5]], [[0.0, 1.0]]]
    """
    low, middle, high = np.moveaxis(knots, 1, 0)
    # Halves, so that a range of huge numbers does not overflow.
    below, above = middle / 2 - low / 2, high / 2 - middle / 2
    away = np.clip(raw, low, high) / 2 - middle / 2
    parts = [np.minimum(away, 0.0), np.maximum(away, 0.0)]
    lengths = [np.where(side > 0, side, 1.0) for side in (below, above)]
    return np.concatenate([p / s for p, s in zip(parts, lengths, strict=True)], axis=-1)


def _has_classes(data: Labelled) -> bool:
    return data.baseline is not None and data.baseline.labels is not None


def _inputs(data: Labelled, rows: Rows) -> Array | None:
    """Inputs of some rows; None if they are not a table, or if there are many."""
    return data.table[rows] if 0 < data.n_inputs <= MOST_COLUMNS else None


def _with_weight(data: Labelled, part: HeldRows) -> HeldRows:
    kept = data.sample_weight[part.rows] > 0
    return HeldRows(part.answer, part.rows[kept], part.weights[kept])


def _errors(data: Labelled, part: HeldRows) -> Array:
    """Absolute errors (n, K), or one minus the probability of the observed class (n, 1)."""
    y, f = data.y[part.rows], local_average(part.weights, data.P[part.rows])
    if _has_classes(data):
        return np.clip(1.0 - (y * f).sum(axis=1, keepdims=True), 0.0, 1.0)
    return np.minimum(np.abs(y - f), MOST_ERROR)


def _unit(errors: Array, mass: Array) -> Float64:
    """Mean error of each output; one if all errors are zero."""
    mean = (mass[:, np.newaxis] * errors).sum(axis=0, dtype=np.float64)
    return np.where(mean > 1e-300, mean, 1.0)


def _masses(data: Labelled, rows: Sequence[Rows]) -> tuple[list[Array], float]:
    """Share of each held-out row, and the effective number of rows.

    A row that several folds held out counts once. If there are groups, each counts once, and the
    result is their number (Lee, Barber and Willett, 2023).
    """
    every = np.concatenate(rows)
    counts = np.bincount(every)
    weight = data.sample_weight / data.sample_weight.max()
    shares = [weight[part] / counts[part] for part in rows]
    n_effective = effective_number(weight[np.flatnonzero(counts)])
    if data.groups is not None:
        sums = np.bincount(data.groups[every], weights=np.concatenate(shares))
        shares = [share / sums[data.groups[part]] for share, part in zip(shares, rows, strict=True)]
        n_effective = float(np.count_nonzero(sums))
    total = sum(share.sum() for share in shares)
    return [share / total for share in shares], n_effective


def _knots(raw: Array) -> Float64:
    """Lower, middle and upper knot of each feature: (n, K, q) -> (K, 3, q)."""
    return np.moveaxis(np.quantile(raw, [TAIL, 0.5, 1 - TAIL], axis=0), 0, 1)


def _scale(raw: Array, knots: Array, coefficients: Array, unit: Array) -> Float64:
    """Scale of each row and output: (n, K, q) -> (n, K)."""
    exponent = coefficients[:, 0] + np.einsum("nkh,kh->nk", hinges(raw, knots), coefficients[:, 1:])
    return unit * np.exp(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT))


def _scales(errors: Sequence[Array], masses: Sequence[Array], H: Sequence[Array]) -> Float64:
    """Coefficients of each part, learnt from the other parts: (C, K, 1 + 2 q).

    The penalty is the one whose scales fit the parts best from which they were not learnt.

    errors : for each part (n, K), in the unit; masses : (n,); H : (n, K, 2 q) hinges.
    """
    C, K, width = len(errors), errors[0].shape[1], H[0].shape[2]
    coefficients = np.zeros((C, K, 1 + width))
    if C < 2 or width == 0:
        return coefficients
    few = [evenly_spaced(np.arange(len(mass)), SCALE_ROWS) for mass in masses]
    for k in range(K):
        parts = [
            _Errors(errors[c][few[c], k], H[c][few[c], k], masses[c][few[c]]) for c in range(C)
        ]
        outside = [_Errors.joined([p for b, p in enumerate(parts) if b != c]) for c in range(C)]
        thetas = [others.constant() for others in outside]
        best = sum(p.loss(theta) for p, theta in zip(parts, thetas, strict=True))
        coefficients[:, k] = thetas
        for penalty in PENALTIES:
            thetas = [
                others.fit(penalty, theta) for others, theta in zip(outside, thetas, strict=True)
            ]
            loss = sum(p.loss(theta) for p, theta in zip(parts, thetas, strict=True))
            if loss < best:
                best, coefficients[:, k] = loss, thetas
    return np.clip(coefficients, -MOST_COEFFICIENT, MOST_COEFFICIENT)


@dataclass(frozen=True)
class _Errors:
    """Errors (n,) in a common unit, hinges of their features (n, h), and shares (n,)."""

    errors: Array
    H: Array
    mass: Array

    @classmethod
    def joined(cls, parts: Sequence[_Errors]) -> _Errors:
        columns = ([getattr(part, f.name) for part in parts] for f in fields(cls))
        return cls(*map(np.concatenate, columns))

    def constant(self) -> Float64:
        """Coefficients of a constant scale."""
        theta = np.zeros(1 + self.H.shape[1])
        mean = float(self.mass @ self.errors / self.mass.sum())
        theta[0] = np.log(np.clip(mean, np.exp(-LARGEST_EXPONENT), np.exp(LARGEST_EXPONENT)))
        return theta

    def loss(self, theta: Array, penalty: float = 0.0) -> float:
        """Negative log-likelihood of Laplace errors: the sum of ``m_i (e_i / s_i + log s_i)``."""
        eta = np.clip(theta[0] + self.H @ theta[1:], -LARGEST_EXPONENT, LARGEST_EXPONENT)
        ridge = 0.5 * penalty * self.mass.sum() * float(theta[1:] @ theta[1:])
        return float(self.mass @ (self.errors * np.exp(-eta) + eta)) + ridge

    def fit(self, penalty: float, theta: Float64) -> Float64:
        """Minimise the loss and a ridge penalty by Newton's method, with steps that are halved."""
        A = np.column_stack([np.ones(len(self.H)), self.H])
        mass = self.mass / self.mass.sum()
        ridge = np.append(0.0, np.full(self.H.shape[1], penalty))
        loss = self.loss(theta, penalty)
        for _ in range(20):
            eta = np.clip(A @ theta, -LARGEST_EXPONENT, LARGEST_EXPONENT)
            ratio = self.errors * np.exp(-eta)
            gradient = A.T @ (mass * (1.0 - ratio)) + ridge * theta
            # Half of the expected curvature keeps steps short where all errors are small.
            curvature = A.T @ (A * (mass * (0.5 + 0.5 * ratio))[:, np.newaxis])
            step = np.linalg.solve(curvature + np.diag(ridge + 1e-9), gradient)
            shorter = [theta - step / 2**halving for halving in range(12)]
            better = next((t for t in shorter if self.loss(t, penalty) < loss), None)
            if better is None or np.abs(better - theta).max() < 1e-4:
                break
            theta, loss = better, self.loss(better, penalty)
        return theta


def _thinned(scores: Array, mass: Array) -> tuple[Array, Array]:
    """Scores (n, K) of one part, sorted, and their shares; at most MOST_SCORES quantiles.

    A quantile stands for the smaller scores up to the one before it, so intervals only grow.
    """
    order = np.argsort(scores, axis=0, kind="stable")
    ordered, shares = np.take_along_axis(scores, order, axis=0), mass[order]
    if len(ordered) <= MOST_SCORES:
        return ordered, shares
    total = float(mass.sum())
    wanted = total * np.arange(1, MOST_SCORES + 1) / MOST_SCORES
    columns = [
        values[np.minimum(np.searchsorted(np.cumsum(share), wanted), len(values) - 1)]
        for values, share in zip(ordered.T, shares.T, strict=True)
    ]
    return np.stack(columns, axis=1), np.full((MOST_SCORES, scores.shape[1]), total / MOST_SCORES)


def _end(
    centres: Array, scales: Array, scores: Sequence[tuple[Array, Array]], share: float
) -> Float64:
    """Smallest t such that at least `share` of the values ``centre + score * scale`` are below it.

    centres, scales : (C, n); scores : for each part its scores and their cumulated shares.
    """
    # The quantile of all parts together lies between the quantiles of the parts.
    quantiles = [
        values[min(int(np.searchsorted(c, share * c[-1] * (1 - 1e-12))), len(values)) - 1]
        for values, c in scores
    ]
    ends = centres + scales * np.array(quantiles)[:, np.newaxis]
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(HALVINGS if len(scores) > 1 else 0):
        middle = low / 2 + high / 2
        reached = np.zeros(len(middle))
        for centre, scale, (values, cumulated) in zip(centres, scales, scores, strict=True):
            reached += cumulated[np.searchsorted(values, (middle - centre) / scale, side="right")]
        enough = reached >= share * (1 - 1e-12)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high
