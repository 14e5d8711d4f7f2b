"""Heirs: which candidates get the weight of one that is dropped after the fit.

They are found in every fit, so that a candidate can be dropped without labelled data. The weights
without candidate m are a mixture of weights that need no data:

``sum_j a_j (w(x) - w_m(x) e_m + w_m(x) e_j) + b w_rest(x) + c u + d v(x)``

In the first sum, all weight of m goes to candidate j. w_rest are the renormalised weights, u the
best constant weights without m, and v(x) networks of the gate that were trained on without m, for
the last quarter of their steps. The shares a, b, c and d are not negative and sum to one. They
minimise the mean loss of the sample, which is one solution for global weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from sklearn.base import clone

from localma._types import AnyArray, Array, Float64, RowMask, Rows
from localma.equations import global_average, local_average
from localma.errors import FileFormatError
from localma.folds import evenly_spaced
from localma.gates.auto import ShrunkGate
from localma.gates.base import Arrays, Earlier, Gate, Saved, arrays_below, read_state
from localma.gates.constant import anchor_and_scale, find_global_weights
from localma.gates.fused.chunks import ORDERED_ROWS, ordered_by_content
from localma.gates.fused.trainer import advance
from localma.gates.labelled import Inputs, Labelled
from localma.gates.left_out import renormalized, without
from localma.gates.mlp import MLPGate, begin, chunks_for, resume
from localma.storage.array_file import shown
from localma.tables.frames import take_rows

RESUMED = 0.75
"""Share of the steps that the training without a candidate leaves out."""

TIME = 0.1
"""Time for these trainings, as a share of the trainings in the fit."""

TRAINED_ROWS = 5_000
"""At most this many rows are used for them."""

MOST_CANDIDATES = 32
"""Candidates whose heirs are found, those of the largest weights; others are renormalised away."""

REST, CONSTANT, TRAINED = -3, -2, -1
"""Columns of the shares after those of the candidates."""

_STATE = (
    Saved("shares", "Ms"),
    Saved("constants", "MM"),
    Saved("trained", "G", np.intp),
    Saved("point"),
)


@dataclass(frozen=True)
class Heirs:
    """The weights without each candidate, for candidates that are dropped.

    Parameters
    ----------
    shares : (M, M + 3) for each candidate, the shares a (M,), b, c and d of the mixture
    constants : (M, M) the best constant weights without candidate m
    gates : for some candidates, a network that was trained without it; it weighs the others
    point : point of the path of `ShrunkGate` that these networks come from; -1 without a path
    """

    shares: Float64
    constants: Float64
    gates: Mapping[int, MLPGate]
    point: int

    @classmethod
    def of(cls, gate: Gate, data: Labelled, rows: Rows, W: Array) -> Self | None:
        """Find the heirs of each candidate.

        Parameters
        ----------
        gate : the fitted gate
        data : the labelled sample
        rows : (n,) rows on which the shares are compared
        W : (n, M) weights of these rows

        Returns
        -------
        Heirs or None
            None if there is one candidate, or if the weights do not depend on the sample.
        """
        M = data.n_candidates
        if M == 1 or not gate.learns:
            return None
        sample = data.without_inputs(rows)
        shares: Float64 = np.zeros((M, M + 3))
        shares[:, CONSTANT] = 1.0
        heaviest = np.argsort(-W.mean(axis=0), kind="stable")[:MOST_CANDIDATES].tolist()
        overall = W.mean(axis=0)
        constants = np.stack(
            [renormalized(overall[None], ~_only(m, M), overall)[0] for m in range(M)]
        )
        for m in heaviest:
            constants[m, ~_only(m, M)] = find_global_weights(without(sample, _only(m, M)))
        heirs = cls(shares, constants, {}, -1)
        if M > 2 and not gate.is_global:
            X = take_rows(data.X, rows)
            point, gates = _trained_on(gate, data, constants, heaviest)
            heirs = replace(heirs, gates=gates, point=point)
            shares[:, CONSTANT], shares[:, REST] = 0.0, 1.0
            for m in heaviest:
                shares[m] = heirs._best_shares(m, sample, X, W)
        return heirs

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
        M, share = W.shape[1], self.shares[m]
        inherited = share[:M]
        kept = ~_only(m, M)
        weights = inherited.sum() * (W * kept) + W[:, [m]] * inherited
        weights += share[CONSTANT] * self.constants[m]
        if share[REST] > 0.0:
            weights += share[REST] * renormalized(W, kept, self.constants[m])
        if share[TRAINED] > 0.0:
            weights[:, kept] += share[TRAINED] * self.gates[m].predict_weights(X)
        return weights

    def _best_shares(self, m: int, sample: Labelled, X: Inputs, W: Array) -> Float64:
        """Shares with the smallest mean loss: (M + 3,)."""
        M, kept = W.shape[1], ~_only(m, W.shape[1])
        others = local_average(W * kept, sample.P)[:, np.newaxis]
        mixtures = others + W[:, [m], np.newaxis] * sample.P
        rest = local_average(renormalized(W, kept, self.constants[m]), sample.P)
        alone = [rest, global_average(self.constants[m], sample.P), rest]
        if m in self.gates:
            trained = self.gates[m].predict_weights(X)
            alone[TRAINED] = local_average(trained, sample.P[:, kept])
        P = np.concatenate([mixtures, np.stack(alone, axis=1)], axis=1)
        columns = np.flatnonzero(np.append(kept, [True, True, m in self.gates]))
        share: Float64 = np.zeros(M + 3)
        share[columns] = find_global_weights(replace(sample, P=P[:, columns]))
        return share

    def arrays(self) -> dict[str, AnyArray]:
        """Return the heirs as named arrays, all that `restore` needs."""
        trained = sorted(self.gates)
        state: dict[str, AnyArray] = {
            "shares": self.shares,
            "constants": self.constants,
            "trained": np.array(trained, dtype=np.intp),
            "point": np.array(float(self.point)),
        }
        for m in trained:
            state |= {f"gate.{m}.{name}": array for name, array in self.gates[m].arrays().items()}
        return state

    @classmethod
    def restore(cls, arrays: Arrays, gate: Gate) -> Self:
        """Restore the heirs from named arrays, which may come from an untrusted file."""
        M = gate.n_candidates
        own_arrays = {name: array for name, array in arrays.items() if not name.startswith("gate.")}
        state = read_state(own_arrays, _STATE, "The heirs of candidates", M=M, s=M + 3)
        trained = state["trained"].tolist()
        named = {name.split(".")[1] for name in arrays if name.startswith("gate.")}
        if named != {str(m) for m in trained} or not set(trained) <= set(range(M)):
            raise FileFormatError(
                f"The heirs of candidates have networks for {shown(trained)} and arrays for "
                f"{shown(sorted(named))}; they must be the same, below {M}."
            )
        point, gates = int(state["point"]), {}
        for m in trained:
            gates[m] = _restored(gate, point, arrays_below(arrays, f"gate.{m}."), M)
        heirs = cls(state["shares"], state["constants"], gates, point)
        heirs._check()
        return heirs

    def _check(self) -> None:
        """Refuse shares and constant weights that are not on the simplex, or that keep m."""
        M = len(self.constants)
        missing = [m not in self.gates for m in range(M)]
        for values in (self.shares, self.constants):
            on_simplex = (values >= 0.0).all() and (np.abs(values.sum(axis=1) - 1.0) < 1e-6).all()
            if not on_simplex or np.diag(values).any() or self.shares[missing, TRAINED].any():
                raise FileFormatError(
                    "The weights without a candidate must not be negative, sum to one, and be zero "
                    "for it. Save the model again."
                )


def _only(m: int, M: int) -> RowMask:
    """Mask of one of M candidates."""
    return np.arange(M) == m


def _heaviest_networks(gate: Gate) -> tuple[int, list[MLPGate]]:
    """Point of the path, or -1, with the largest share among networks, and its networks."""
    if isinstance(gate, MLPGate):
        return -1, [gate]
    if not isinstance(gate, ShrunkGate):
        return -1, []
    answer, totals = gate.answer_, np.bincount(gate.answer_.points, weights=gate.answer_.shares)
    for k in np.argsort(-totals, kind="stable").tolist():
        pairs = zip(answer.points.tolist(), answer.gates, strict=True)
        found = [one for point, one in pairs if point == k and isinstance(one, MLPGate)]
        if found:
            return k, found
    return -1, []


def _trained_on(
    gate: Gate, data: Labelled, constants: Float64, heaviest: Sequence[int]
) -> tuple[int, dict[int, MLPGate]]:
    """Networks that were trained on without a candidate, for those of the largest weights.

    If time is left, there are several networks for each candidate, from different starts.
    """
    point, networks = _heaviest_networks(gate)
    M = data.n_candidates
    if not networks or not len(networks[0].parameters_) or not data.n_inputs:
        return -1, {}
    n_trainings = gate.n_trainings if isinstance(gate, ShrunkGate) else M
    most = max(1, round(TIME * n_trainings / (1.0 - RESUMED)))
    chosen = heaviest[:most]
    networks = networks[: max(1, most // len(chosen))]
    sample = data.take(evenly_spaced(np.flatnonzero(data.sample_weight > 0), TRAINED_ROWS))
    if sample.n_rows < ORDERED_ROWS:
        sample, _ = ordered_by_content(sample)
    return point, {
        m: _train_without(networks, sample, ~_only(m, M), constants[m]) for m in sorted(chosen)
    }


def _train_without(
    networks: Sequence[MLPGate], sample: Labelled, kept: RowMask, constant: Array
) -> MLPGate:
    """Train the last steps of networks again, for some of their candidates."""
    data = replace(sample, P=sample.P[:, kept])
    gate: MLPGate = clone(networks[0]).set_params(n_restarts=len(networks), random_state=0)
    anchor, scale = anchor_and_scale(data, None, constant[kept])
    trainings = begin(gate, chunks_for([gate], data, None), anchor, scale, 0)
    for training, network in zip(trainings, networks, strict=True):
        resume(training, Earlier.without(network, kept), RESUMED)
    advance(trainings, 1.0, seed=(0,), n_jobs=gate.n_jobs)
    for training in trainings:
        training.store()
    return gate


def _restored(gate: Gate, point: int, arrays: Arrays, M: int) -> MLPGate:
    """A network of a gate, for all candidates but one."""
    if isinstance(gate, ShrunkGate):
        points = gate.points_of_fit()
        found = points[point].gate if 0 <= point < len(points) else None
        if not isinstance(found, MLPGate):
            raise FileFormatError(f"Point {point} of the path has no network.")
        template = found.with_job(points[point].shrinkage, 0)
    elif isinstance(gate, MLPGate):
        template = clone(gate).set_params(n_restarts=1)
    else:
        raise FileFormatError("Only gates of networks are trained without a candidate.")
    restored = template.restore(dict(arrays))
    if restored.n_candidates != M - 1 or restored.n_features_in_ != gate.n_features_in_:
        raise FileFormatError(
            f"A network without a candidate must weigh {M - 1} candidates, and take the inputs of "
            "the gate. Save the model again."
        )
    return restored
