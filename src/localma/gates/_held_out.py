"""Training a path of gates on folds, and what its points lose on the rows held out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.equations import local_average, row_losses
from localma.evidence import Rule, fold_overlap, once_a_row
from localma.folds import Fold
from localma.gates.base import Gate, Job
from localma.gates.global_ import find_global_weights
from localma.gates.labelled import Labelled
from localma.tables.frames import take_rows

Array = NDArray[np.floating]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Point:
    """One point of the path: a constant gate by name, or a local gate and its shrinkage."""

    name: str
    prior: float
    gate: Gate | None = None
    shrinkage: float = np.inf


Members = list[Array | list[Gate]]
"""For each point, its constant weights (M,), or its fitted gates; an empty list if not trained."""


def train_path(
    data: Labelled,
    parts: Sequence[Rows | None],
    points: Sequence[Point],
    seeds: Sequence[int],
    kept: Collection[int],
    global_weights: Sequence[Array],
) -> list[Members]:
    """Train the kept points on each part of the rows, once per seed; all gates of a kind at once.

    The seed depends on the restart alone: common random numbers along the path and the folds.
    """
    trained: list[Members] = [
        [constant_weights(data, rows, point, weights) for point in points]
        for rows, weights in zip(parts, global_weights, strict=True)
    ]
    kinds = {point.name: point.gate for point in points if point.gate is not None}
    for kind, gate in kinds.items():
        local = [k for k, point in enumerate(points) if point.name == kind and k in kept]
        places = [(part, k, seed) for part in range(len(parts)) for k in local for seed in seeds]
        jobs = [
            Job(parts[part], points[k].shrinkage, seed, global_weights[part])
            for part, k, seed in places
        ]
        fitted = gate.fit_jobs(data, jobs)
        for (part, k, _), member in zip(places, fitted, strict=True):
            members = trained[part][k]
            assert isinstance(members, list)
            members.append(member)
    return trained


def constant_weights(data: Labelled, rows: Rows | None, point: Point, global_weights: Array) -> Any:
    """Weights (M,) of a point without local part, from some rows; an empty list for the others."""
    M = data.n_candidates
    if point.name == "equal":
        return np.full(M, 1.0 / M)
    if point.name == "best":
        return np.eye(M)[data.best_candidate(rows)]
    return global_weights if point.gate is None else []


@dataclass(frozen=True)
class HeldOut:
    """What each point of the path predicts for the rows that its training did not see.

    mixtures : (points, judgements, K); rows, blocks : (judgements,) the row that is judged and the
    part in which the losses choose together; members : what was trained in each fold; overlap : the
    factor by which standard errors grow because folds share rows; baseline_losses : (judgements,)
    those of the best constant prediction, learnt from the same rows as the path, if compared.
    """

    data: Labelled
    mixtures: Array
    rows: Rows
    blocks: Rows
    members: list[Members]
    overlap: float
    baseline_losses: Array | None = None

    @classmethod
    def of(
        cls,
        data: Labelled,
        folds: Sequence[Fold],
        points: Sequence[Point],
        seed: int,
        random: np.random.RandomState,
    ) -> HeldOut:
        """Train every point in every fold and predict the rows held out."""
        parts = [train for train, _ in folds]
        anchors = [find_global_weights(data, rows) for rows in parts]
        members = train_path(data, parts, points, [seed], range(len(points)), anchors)
        mixtures = [
            np.stack([_mixture(data, point, test) for point in fold])
            for fold, (_, test) in zip(members, folds, strict=True)
        ]
        rows, blocks = blocks_of_folds(data, [test for _, test in folds], random)
        repeats = len(rows) / len(np.unique(rows))
        overlap = fold_overlap([(len(train), len(test)) for train, test in folds], repeats)
        by_fold = [data.baseline_losses(train, test) for train, test in folds]
        compared = [losses for losses in by_fold if losses is not None]
        return cls(
            data,
            np.concatenate(mixtures, axis=1),
            rows,
            blocks,
            members,
            overlap,
            np.concatenate(compared) if compared else None,
        )

    @property
    def related(self) -> dict[str, Rows]:
        """Rows that are not independent: by folds and, where there are such, groups.

        In the order of `once_a_row`. Rows of several folds are not told apart by them.
        """
        repeated = np.bincount(self.rows).max() > 1
        # The two halves of a single fold were judged by the same gates, and say no more than rows.
        related = {} if repeated or len(self.members) == 1 else {"folds": self.blocks}
        if self.data.groups is not None:
            related["groups"] = self.data.groups[np.unique(self.rows) if repeated else self.rows]
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
        """Losses where each block is predicted with shares that others choose: (judgements,).

        L : (points, judgements) what `losses` gave; prior : (points,), zero for points that may not
        be chosen.
        """
        weight, allowed = self.sample_weight, prior > 0
        nested = np.empty(len(weight))
        for block in np.unique(self.blocks):
            inside = self.blocks == block
            # A row that several folds judge may not choose for itself either.
            others = ~np.isin(self.rows, self.rows[inside])
            shares = prior / prior.sum()
            if weight[others].sum() > 0:
                evidence = once_a_row(L[np.ix_(allowed, others)], weight[others], self.rows[others])
                shares[allowed] = rule(*evidence, shares[allowed])
            nested[inside] = self._losses_of_mixture(shares, inside)
        return nested

    def _losses_of_mixture(self, shares: Array, judged: NDArray[np.bool_]) -> Array:
        """Loss of the points averaged with the given shares, at some judgements."""
        used = shares > 0
        mixture = np.tensordot(shares[used], self.mixtures[np.ix_(used, judged)], axes=1)
        return row_losses(self.data.loss, self.data.y[self.rows[judged]], mixture)


def blocks_of_folds(
    data: Labelled, judged: Sequence[Rows], random: np.random.RandomState
) -> tuple[Rows, Rows]:
    """Rows of all folds that judge, and the block in which each chooses: (judgements,) twice.

    A block is a fold; a single fold is cut into two halves, which judge for each other.
    """
    rows = np.concatenate(judged)
    if len(judged) == 1:
        return rows, two_halves(data, rows, random)
    return rows, np.repeat(np.arange(len(judged)), [len(test) for test in judged])


def two_halves(data: Labelled, rows: Rows, random: np.random.RandomState) -> Rows:
    """Which of two halves each row is in, that judge for each other: (rows,).

    Groups stay whole, unless a single one has weight.
    """
    if data.groups is not None:
        groups = data.groups[rows]
        weighing = np.unique(groups[data.sample_weight[rows] > 0])
        if len(weighing) > 1:
            half = np.zeros(groups.max() + 1, dtype=np.intp)
            half[weighing] = random.permutation(len(weighing)) % 2
            return half[groups]
    return random.permutation(len(rows)) % 2


def _mixture(data: Labelled, members: Array | list[Gate], rows: Rows) -> Array:
    """Prediction of one point for some rows: (rows, K)."""
    P = data.P[rows]
    if isinstance(members, np.ndarray):
        return np.einsum("m,nmk->nk", members, P)
    inputs = take_rows(data.X, rows)
    weights = np.mean([gate.predict_weights(inputs) for gate in members], axis=0)
    return local_average(weights, P)
