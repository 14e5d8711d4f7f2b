"""Points of a path: constant weights and gates, mixed and judged on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from sklearn.base import clone

from localma._types import AnyArray, Array, Float64, Integers, RowMask, Rows
from localma.equations import row_losses
from localma.errors import FileFormatError
from localma.evidence import Rule, fold_overlap, once_a_row
from localma.folds import Fold
from localma.gates.base import Arrays, Gate, Saved, numbered_arrays, read_state
from localma.gates.fused.engine import EVALUATED_ROWS, in_threads
from localma.gates.fused.networks import Stack
from localma.gates.fused.policy import TREE_ROUNDS, Budget, trees_prior
from localma.gates.labelled import Inputs, Labelled
from localma.gates.mlp import MLPGate, stacked
from localma.gates.support import Fading
from localma.gates.tree import TreeGate
from localma.trees.boosting import kernel

JUDGING_ROWS = 100_000
"""At most this many rows judge: enough for risks that differ by a hundred-thousandth."""

ANCHOR_ROWS = 1_000_000
"""At most this many rows determine the constant weights of the path."""

NETWORK_STRENGTHS = (1.0, 0.3, 0.1, 0.03)
LINEAR_STRENGTHS = (10.0, 3.0, 1.0, 0.3)
"""Shrinkage of the local gates of the path, in units of 1 / n."""
MANY_INPUTS = 32
"""Beyond this number of inputs, shrinkage grows with it: each input adds noise to the logits."""

CONSTANT_PRIOR = {"equal": 0.10, "best": 0.05, "global": 0.50}
"""Prior weight of the constant points; the local gates have the remainder."""

EQUAL_PRIOR = 6.0
"""Further prior weight of equal weights, per free weight of the global ones and row.

The estimation of M - 1 weights from n rows costs about (M - 1) / n of the risk.
"""

_MIXTURE_STATE = (Saved("constant", "M"), Saved("points", "G", np.intp), Saved("shares", "G"))


@dataclass(frozen=True)
class Point:
    """One point of the path: constant weights by name, or a local gate and its shrinkage."""

    name: str
    prior: float
    gate: Gate | None = None
    shrinkage: float = np.inf


@dataclass(frozen=True)
class Fitted:
    """A point of the path after training.

    constant : (M,) its weights, or None if they are local; gates : its local gates, without any if
    it was not trained.
    """

    constant: Array | None
    gates: Sequence[Gate] = ()


Members: TypeAlias = Sequence[Fitted]
"""The fitted points of a path, in order."""


@dataclass(frozen=True)
class MixedGates:
    """``w(x) = constant + sum_g share_g w_g(x)``: gates averaged with fixed shares.

    Parameters
    ----------
    constant : (M,) the constant weights, times their share
    gates : G fitted gates
    points : (G,) index of each gate's point on the path
    shares : (G,) share of each gate
    """

    constant: Array
    gates: list[Gate]
    points: Integers
    shares: Array

    @classmethod
    def of(cls, members: Members, weights: Sequence[float]) -> MixedGates:
        """Average points of a path; the restarts of a point share its weight."""
        M = next(len(fitted.constant) for fitted in members if fitted.constant is not None)
        constant: Float64 = np.zeros(M)
        gates: list[Gate] = []
        points: list[int] = []
        shares: list[float] = []
        for k in np.flatnonzero(weights).tolist():
            fitted = members[k]
            if fitted.constant is not None:
                constant = constant + weights[k] * fitted.constant
            gates += fitted.gates
            points += [k] * len(fitted.gates)
            shares += [weights[k] / len(fitted.gates) for _ in fitted.gates]
        return cls(constant, gates, np.array(points, dtype=np.intp), np.array(shares))

    def predict_weights(self, X: Inputs) -> Array:
        """Weights of each row: (n, p) -> (n, M)."""
        weights = np.tile(self.constant, (len(X), 1))
        for share, gate in zip(self.shares, self.gates, strict=True):
            weights += share * gate.predict_weights(X)
        return weights

    @cached_property
    def stack(self) -> Stack | None:
        """Constant weights and networks for the kernel; None if other gates than trees remain."""
        if not all(isinstance(gate, MLPGate | TreeGate) for gate in self.gates):
            return None
        networks = [
            (gate, share)
            for gate, share in zip(self.gates, self.shares.tolist(), strict=True)
            if isinstance(gate, MLPGate)
        ]
        gates, shares = [gate for gate, _ in networks], [share for _, share in networks]
        return stacked(self.constant, gates, shares)

    def tree_weights(
        self, X: AnyArray, fading: Fading | None, n_jobs: int | None = None
    ) -> Float64 | None:
        """Weights of the trees times their shares: (n, p) -> (n, M); None without trees."""
        if not any(isinstance(gate, TreeGate) for gate in self.gates):
            return None
        weights = np.zeros((len(X), len(self.constant)))
        inputs = np.ascontiguousarray(X, dtype=np.float64)
        if fading is not None:
            inputs = np.ascontiguousarray(fading.support.clip(inputs))

        def add(rows: slice) -> None:
            for share, gate in zip(self.shares.tolist(), self.gates, strict=True):
                if isinstance(gate, TreeGate):
                    gate.add_weights(inputs[rows], share, weights[rows])

        if len(X) > EVALUATED_ROWS:
            kernel()  # before any thread starts
        slices = [slice(k, k + EVALUATED_ROWS) for k in range(0, len(X), EVALUATED_ROWS)]
        in_threads(add, [(rows,) for rows in slices], n_jobs)
        return weights

    def __getstate__(self) -> dict[str, object]:
        """Leave the stack out of a pickle: it repeats the gates."""
        return {name: value for name, value in vars(self).items() if name != "stack"}

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state as named arrays."""
        state = {saved.name: getattr(self, saved.name) for saved in _MIXTURE_STATE}
        for g, gate in enumerate(self.gates):
            state |= {f"gate.{g}.{name}": array for name, array in gate.arrays().items()}
        return state

    @classmethod
    def restore(
        cls, points: Sequence[Point], arrays: Arrays, n_candidates: int, n_inputs: int
    ) -> MixedGates:
        """Restore a mixture from named arrays; `points` are those of the path."""
        own_arrays = {saved.name: arrays[saved.name] for saved in _MIXTURE_STATE}
        state = read_state(own_arrays, _MIXTURE_STATE, "A mixture of gates", M=n_candidates)
        constant, shares = state["constant"], state["shares"]
        total = constant.sum() + shares.sum()
        if (constant < 0).any() or (shares < 0).any() or not abs(total - 1.0) < 1e-6:
            raise FileFormatError(
                "The shares of a mixture of gates must not be negative and must sum to one; "
                f"received a sum of {total:g}."
            )
        saved_gates, indices = numbered_arrays(arrays, "gate."), state["points"].tolist()
        if len(saved_gates) != len(indices):
            raise FileFormatError(
                f"A mixture of {len(indices)} gates must have the arrays of as many gates; "
                f"received those of {len(saved_gates)}."
            )
        gates = [
            _restored_gate(points, k, gate_arrays, n_candidates)
            for k, gate_arrays in zip(indices, saved_gates, strict=True)
        ]
        for gate in gates:
            if isinstance(gate, MLPGate | TreeGate) and gate.n_features_in_ != n_inputs:
                raise FileFormatError(
                    f"Every gate of a path must take the {n_inputs} inputs of "
                    f"ShrunkGate; received one that takes {gate.n_features_in_}."
                )
        return cls(constant, gates, state["points"], shares)


def _restored_gate(points: Sequence[Point], k: int, arrays: Arrays, n_candidates: int) -> Gate:
    """The gate at a point of the path, with its fitted state."""
    if not 0 <= k < len(points) or points[k].gate is None:
        raise FileFormatError(f"Point {k} of the path has no gate; it must be a local one.")
    gate: Gate = clone(points[k].gate).set_params(shrinkage=points[k].shrinkage).restore(arrays)
    if gate.n_candidates != n_candidates:
        raise FileFormatError(
            f"A gate of a mixture must weigh its {n_candidates} candidates; received one for "
            f"{gate.n_candidates}."
        )
    return gate


@dataclass(frozen=True)
class FoldRows:
    """Rows of one fold: to train on, to judge by, and for its constant weights."""

    train: Rows
    judging: Rows
    anchor: Rows

    @classmethod
    def of(cls, data: Labelled, fold: Fold, random: np.random.RandomState) -> FoldRows:
        """Take all rows of a fold, or a sample of them if there are very many."""
        train, judging = fold
        if len(judging) > JUDGING_ROWS:
            weighted = data.with_weight(judging)
            count = min(JUDGING_ROWS, len(weighted))
            judging = np.sort(random.choice(weighted, count, replace=False))
        anchor = data.with_weight(train)
        return cls(train, judging, anchor[:: -(-len(anchor) // ANCHOR_ROWS)])


@dataclass(frozen=True)
class HeldOut:
    """Predictions of each point of the path for rows that its training did not use.

    Parameters
    ----------
    data : the sample
    mixtures : (points, judgements, K) predictions
    rows : (judgements,) the row of each judgement
    blocks : (judgements,) the block of each; blocks choose weights for each other
    members : for each fold, its fitted points
    overlap : factor by which standard errors grow because training rows of folds overlap
    baseline_losses : (judgements,) losses of the best constant prediction, learnt from the same
        rows as the path; None without a comparison
    """

    data: Labelled
    mixtures: Array
    rows: Rows
    blocks: Rows
    members: Sequence[Members]
    overlap: float
    baseline_losses: Array | None = None

    @classmethod
    def of(
        cls,
        data: Labelled,
        folds: Sequence[FoldRows],
        members: Sequence[Members],
        mixtures: Array,
        random: np.random.RandomState,
    ) -> HeldOut:
        """Collect the predictions of all folds for the rows that judge."""
        rows = np.concatenate([fold.judging for fold in folds])
        blocks = np.repeat(np.arange(len(folds)), [len(fold.judging) for fold in folds])
        if len(folds) == 1:
            blocks = two_halves(data, rows, random)
        sizes = [(len(fold.train), len(fold.judging)) for fold in folds]
        overlap = fold_overlap(sizes, len(rows) / len(np.unique(rows)))
        losses = None
        if (baseline := data.baseline) is not None:
            losses = np.concatenate(
                [baseline.losses(baseline.learn(fold.anchor), fold.judging) for fold in folds]
            )
        return cls(data, mixtures, rows, blocks, members, overlap, losses)

    @property
    def related(self) -> dict[str, Rows]:
        """Numbers of folds and groups whose rows are not independent.

        They are in the order of `once_a_row`. Folds are left out if rows are in several of them.
        """
        related, rows = {"folds": self.blocks}, self.rows
        repeated = np.bincount(rows).max() > 1
        if repeated:
            rows = np.unique(rows)
        # The same gates judged the two halves of a single fold, so that these are not folds.
        if repeated or len(self.members) == 1:
            related = {}
        if self.data.groups is not None:
            related["groups"] = self.data.groups[rows]
        return related

    @property
    def sample_weight(self) -> Array:
        """Weight of each judgement: (judgements,)."""
        return self.data.sample_weight[self.rows]

    def losses(self) -> Array:
        """Loss of each point at each judgement: (points, judgements)."""
        y = self.data.y[self.rows]
        return np.stack([row_losses(self.data.loss, y, mixture) for mixture in self.mixtures])

    def nested_losses(self, L: Array, rule: Rule, prior: Array) -> Array:
        """Losses if each block is predicted with the shares that the others choose: (judgements,).

        L : (points, judgements) the result of `losses`; prior : (points,), zero for points that
        may not be chosen.
        """
        weight, allowed = self.sample_weight, prior > 0
        nested = np.empty(len(weight))
        for block in np.unique(self.blocks):
            inside = self.blocks == block
            # A row that several folds judge must not choose for itself.
            outside = ~np.isin(self.rows, self.rows[inside])
            shares = prior / prior.sum()
            if weight[outside].sum() > 0:
                rows = self.rows[outside]
                evidence = once_a_row(L[np.ix_(allowed, outside)], weight[outside], rows)
                shares[allowed] = rule(*evidence, shares[allowed])
            nested[inside] = self._losses_of_mixture(shares, inside)
        return nested

    def _losses_of_mixture(self, shares: Array, judgements: RowMask) -> Array:
        """Losses of the points averaged with the given shares, at some judgements."""
        positive = shares > 0
        mixture = np.tensordot(shares[positive], self.mixtures[np.ix_(positive, judgements)], 1)
        return row_losses(self.data.loss, self.data.y[self.rows[judgements]], mixture)


def two_halves(data: Labelled, rows: Rows, random: np.random.RandomState) -> Rows:
    """Assign rows to one of two halves that judge for each other: (rows,).

    Groups stay whole, unless only one of them has weight.
    """
    if data.groups is not None:
        groups = data.groups[rows]
        weighted = np.unique(groups[data.sample_weight[rows] > 0])
        if len(weighted) > 1:
            half = np.zeros(groups.max() + 1, dtype=np.intp)
            half[weighted] = random.permutation(len(weighted)) % 2
            return half[groups]
    return random.permutation(len(rows)) % 2


def make_points(
    plan: Budget,
    n_inputs: int,
    n_candidates: int,
    n_effective: float,
    *,
    base: Gate | None,
    strengths: Sequence[float],
    linear: bool,
    trees: bool,
) -> list[Point]:
    """Make the path, most shrunk first; the keywords are parameters of `ShrunkGate`.

    Shrinkage falls with the effective number of rows, as the noise of a mean does, and grows
    with the number of inputs if there are many.
    """
    kinds: dict[str, tuple[Gate, Sequence[float]]] = {}
    unit = max(1.0, n_inputs / MANY_INPUTS) / n_effective
    network = MLPGate(
        plan.hidden,
        learning_rate=plan.learning_rate,
        n_steps=plan.n_steps,
        batch_size=plan.batch,
    )
    if n_candidates > 1 and linear and n_inputs > 0:
        rank = min(n_inputs, n_candidates) + 1
        line = clone(network).set_params(hidden=(rank,), activation="identity")
        kinds["linear"] = line, [strength * unit for strength in LINEAR_STRENGTHS]
    if n_candidates > 1 and trees and n_inputs > 0:
        kinds["trees"] = TreeGate(), [1.0 / rounds for rounds in TREE_ROUNDS]
    if n_candidates > 1:
        kinds["local"] = clone(base or network), [strength * unit for strength in strengths]
    others = [name for name in kinds if name != "trees"]
    of_trees = trees_prior(n_effective) * ("trees" in kinds)
    priors = dict.fromkeys(others, (1.0 - of_trees) / max(1, len(others))) | {"trees": of_trees}
    constant = dict(CONSTANT_PRIOR)
    local = 1.0 - sum(constant.values())
    constant["equal"] += EQUAL_PRIOR * (n_candidates - 1) / n_effective
    return [Point(name, constant_prior) for name, constant_prior in constant.items()] + [
        Point(name, local * priors[name] / len(shrinkages), gate, shrinkage)
        for name, (gate, shrinkages) in kinds.items()
        for shrinkage in shrinkages
    ]
