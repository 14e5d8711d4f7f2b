"""Weights without one candidate, fitted in advance, for answers in which it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from localma._types import AnyArray, Array, Float64, RowMask, Rows
from localma.equations import global_average, local_average, row_losses
from localma.errors import FileFormatError
from localma.gates.auto import ShrunkGate
from localma.gates.base import Arrays, Earlier, Gate, arrays_below
from localma.gates.constant import find_global_weights
from localma.gates.fused.chunks import ORDERED_ROWS, ordered_by_content
from localma.gates.labelled import Inputs, Labelled
from localma.gates.path import JOINED, make_path
from localma.gates.points import MixedGates
from localma.storage.array_file import shown
from localma.tables.frames import take_rows

TIME = 1.0
"""Time of the trainings without each candidate, compared with all trainings of the fit.

They start from the gates of the fit, so each takes half of the steps, but of all rows instead of
those of a fold.
"""

SHARES = np.linspace(0.0, 1.0, 11)
"""Shares of constant weights that are compared."""

MOST_ROWS = 5_000
"""Rows on which these shares are compared."""


@dataclass(frozen=True)
class LeftOut:
    """Weights for the answers in which one candidate fails.

    With gate="auto", the points of the path that have weight are fitted again without the
    candidate, and keep their shares. With other gates the weights without candidate m are
    ``(1 - a_m) w(x) + a_m u_m``, where w(x) are the weights of the gate without m, renormalised,
    and u_m are the best constant weights without m.

    Parameters
    ----------
    lost : (M, M) the candidates that fail if candidate m does: itself, and those that take its
        predictions as inputs
    constants : (M, M) the best constant weights without candidate m; row m is zero where it is lost
    shares : (M,) the share a_m of these constant weights
    gates : for some candidates, the gate that was fitted without it; it weighs the other candidates
    """

    lost: RowMask
    constants: Float64
    shares: Float64
    gates: Mapping[int, ShrunkGate]

    @classmethod
    def of(cls, gate: Gate, data: Labelled, takes: RowMask) -> Self:
        """Fit the weights without each candidate.

        Parameters
        ----------
        gate : the fitted gate
        data : the labelled sample
        takes : (M, M) whether candidate j takes the predictions of candidate m
        """
        M = data.n_candidates
        lost = np.eye(M, dtype=bool) | takes.T
        others = {m: without(data, lost[m]) for m in range(M) if not lost[m].all()}
        constants: Float64 = np.zeros((M, M))
        for m, sample in others.items():
            constants[m, ~lost[m]] = find_global_weights(sample)
        if not isinstance(gate, ShrunkGate):
            return cls(lost, constants, _best_shares(gate, data, lost, constants), {})
        several = {m: sample for m, sample in others.items() if sample.n_candidates > 1}
        gates = _refitted_gates(gate, data, several, lost, constants)
        return cls(lost, constants, np.ones(M), gates)

    def weights(self, m: int, X: Inputs, W: Array) -> Array:
        """Weights without candidate m.

        Parameters
        ----------
        m : position of the candidate
        X : n inputs of the gate
        W : (n, M) weights with all candidates

        Returns
        -------
        (n, M) array
            Zero for candidate m.
        """
        kept = ~self.lost[m]
        if m in self.gates:
            weights = np.zeros_like(W)
            weights[:, kept] = self.gates[m].predict_weights(X)
            return weights
        rest = renormalized(W, kept, self.constants[m])
        return (1.0 - self.shares[m]) * rest + self.shares[m] * self.constants[m]

    def arrays(self) -> dict[str, AnyArray]:
        """Return the weights as named arrays, all that `restore` needs."""
        state: dict[str, AnyArray] = {
            "lost": self.lost.astype(np.uint8),
            "constants": self.constants,
            "shares": self.shares,
        }
        for m, gate in self.gates.items():
            answer = gate.answer_.arrays()
            state |= {f"gate.{m}.{name}": array for name, array in answer.items()}
        return state

    @classmethod
    def restore(cls, arrays: Arrays, gate: Gate) -> Self:
        """Restore the weights from named arrays, which may come from an untrusted file."""
        M, lost = gate.n_candidates, arrays.get("lost")
        constants = _checked(arrays.get("constants"), (M, M))
        shares = _checked(arrays.get("shares"), (M,))
        if (
            lost is None
            or lost.dtype != np.uint8
            or lost.shape != (M, M)
            or not np.diag(lost).all()
        ):
            raise FileFormatError("The file does not say which candidates fail together.")
        kept = lost == 0
        sums = constants.sum(axis=1)
        if (
            constants[~kept].any()
            or shares.max() > 1.0
            or (np.abs(sums - kept.any(1)) > 1e-6).any()
        ):
            raise FileFormatError(
                "The weights without a candidate must sum to one and be zero for it. Save the "
                "model again."
            )
        numbers = {name.split(".")[1] for name in arrays if name.startswith("gate.")}
        if set(arrays) - {"lost", "constants", "shares"} and not isinstance(gate, ShrunkGate):
            raise FileFormatError("Only gate='auto' is fitted again without a candidate.")
        gates = {}
        for number in sorted(numbers):
            if not (number.isascii() and number.isdecimal()) or not int(number) < M:
                raise FileFormatError(f"The file has no candidate {shown(number)} to leave out.")
            m = int(number)
            below = arrays_below(arrays, f"gate.{number}.")
            gates[m] = _restored(gate, below, constants[m, kept[m]])
        return cls(~kept, constants, shares, gates)


def without(data: Labelled, lost: RowMask) -> Labelled:
    """The sample without the predictions of some candidates (M,)."""
    return replace(data, P=data.P[:, ~lost])


def renormalized(W: Array, kept: RowMask, reference: Array) -> Array:
    """Weights of some candidates, which sum to one: (n, M), (n, M) or (M,) -> (n, M).

    Where they have no weight, they get that of the reference (M,), or equal weights. A row without
    any of them is zero.

    >>> renormalized(np.array([[0.2, 0.3, 0.5]]), np.array([True, True, False]), np.ones(3))
    array([[0.4, 0.6, 0. ]])
    """
    weights = W * kept
    total = weights.sum(axis=1)
    for substitute in (reference, np.ones(W.shape[1])):
        empty = total <= 0.0
        if not empty.any():
            break
        weights[empty] = (substitute * kept + np.zeros_like(W))[empty]
        total[empty] = weights[empty].sum(axis=1)
    return weights / np.where(total > 0.0, total, 1.0)[:, np.newaxis]


def _refitted_gates(
    gate: ShrunkGate,
    data: Labelled,
    others: Mapping[int, Labelled],
    lost: RowMask,
    constants: Float64,
) -> dict[int, ShrunkGate]:
    """Gates without each candidate; only without those of largest weight if there are many."""
    weights = gate.predict_weights(take_rows(data.X, _some_rows(data)))
    allowed = max(1, round(TIME * gate.n_trainings / (1.0 - JOINED)))
    heaviest = np.argsort(-weights.mean(axis=0), kind="stable").tolist()
    chosen = [m for m in heaviest if m in others][:allowed]
    n_trainings = max(1, allowed // max(1, len(others)))
    return {
        m: _refitted(gate, others[m], constants[m, ~lost[m]], n_trainings, ~lost[m]) for m in chosen
    }


def _refitted(
    gate: ShrunkGate, data: Labelled, weights: Array, n_trainings: int, kept: RowMask
) -> ShrunkGate:
    """Train some points of a gate again, without some candidates, from where the fit ended.

    The shares of the points, and the guard, remain. There is no evidence from held-out rows.

    data : the sample of the fit, with the predictions of the candidates `kept` (M,)
    weights : a number per kept candidate, to which shrinkage pulls
    n_trainings : number of trainings: of the local gates with the largest shares, and from several
        starts if all of them are trained
    """
    if data.n_inputs > 0 and data.n_rows < ORDERED_ROWS:
        data, _ = ordered_by_content(data)
    points, shares = gate.points_of_fit(), np.array(gate.path_["weight"])
    local = np.flatnonzero([point.gate is not None for point in points])
    ordered = local[np.argsort(-shares[local], kind="stable")]
    total, n_gates = shares[local].sum(), int(np.count_nonzero(shares[local]))
    if total > 0.0:
        shares[ordered[n_trainings:]] = 0.0
        shares[local] *= total / shares[local].sum()
    n_starts = min(n_trainings, len(gate.answer_.gates)) // max(1, n_gates)
    random = check_random_state(gate.random_state)
    seeds = random.randint(np.iinfo(np.int32).max, size=max(1, n_starts)).tolist()
    path, chosen = make_path(data, [], points, seeds[0]), np.flatnonzero(shares).tolist()
    starts: dict[int, list[Earlier]] = {}
    for k, fitted in zip(gate.answer_.points.tolist(), gate.answer_.gates, strict=True):
        starts.setdefault(k, []).append(Earlier.without(fitted, kept))
    finals = path.refit(seeds, chosen, weights, starts)
    return _with_answer(gate, MixedGates.of(finals, shares.tolist()), weights)


def _restored(gate: ShrunkGate, arrays: Arrays, weights: Array) -> ShrunkGate:
    """Restore a gate that `_refitted` returned, with its global weights."""
    points = gate.points_of_fit()
    answer = MixedGates.restore(points, arrays, len(weights), gate.n_features_in_)
    return _with_answer(gate, answer, weights)


def _with_answer(gate: ShrunkGate, answer: MixedGates, weights: Array) -> ShrunkGate:
    """A gate for other candidates that only predicts weights, with the same guard.

    Outside the sample, local weights fade to `weights`.
    """
    twin: ShrunkGate = clone(gate)
    twin.answer_, twin.global_weights_, twin.support_ = answer, weights, gate.support_
    twin.n_features_in_ = gate.n_features_in_
    return twin


def _some_rows(data: Labelled) -> Rows:
    """At most `MOST_ROWS` rows, evenly spaced."""
    return np.unique(np.linspace(0, data.n_rows - 1, min(data.n_rows, MOST_ROWS)).astype(np.intp))


def _best_shares(gate: Gate, data: Labelled, lost: RowMask, constants: Float64) -> Float64:
    """For each candidate, the share of constant weights with the smallest mean loss: (M,)."""
    rows = _some_rows(data)
    sample = data.take(rows)
    W = gate.predict_weights(sample.X)
    shares: Float64 = np.ones(len(constants))
    for m, constant in enumerate(constants):
        local = local_average(renormalized(W, ~lost[m], constant), sample.P)
        fixed = global_average(constant, sample.P)
        risks = [
            np.average(
                row_losses(sample.loss, sample.y, (1.0 - share) * local + share * fixed),
                weights=sample.sample_weight,
            )
            for share in SHARES
        ]
        shares[m] = SHARES[int(np.argmin(risks))]
    return shares


def _checked(array: AnyArray | None, shape: Sequence[int]) -> Float64:
    if array is None or array.dtype.kind != "f" or array.shape != tuple(shape):
        raise FileFormatError(
            f"The weights without a candidate must have the shape {tuple(shape)}; received "
            f"{getattr(array, 'shape', None)}. Save the model again."
        )
    values: Float64 = array.astype(np.float64)
    if not (np.isfinite(values) & (values >= 0.0)).all():
        raise FileFormatError("The weights without a candidate must be finite and not negative.")
    return values
