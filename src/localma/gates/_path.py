"""The path of `gate="auto"` under training: gates branch off, and losers are dropped.

A path of K shrinkages need not be K trainings. In each fold the most shrunk gate of each kind is
trained for the first quarter of the steps. There the others branch off, each under its own
shrinkage, and are trained for another quarter; then the half of them that loses less on the
held-out rows of all folds is trained to the end. In the final fit, over all rows, gates start anew;
if one fold judged, the first gate of each point continues from the path.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.equations import row_losses
from localma.evidence import fold_overlap
from localma.folds import Fold
from localma.gates._anchor import anchor_and_scale
from localma.gates._chunks import Chunks, Float64
from localma.gates._engine import compile_loss
from localma.gates._held_out import (
    HeldOut,
    Members,
    Point,
    blocks_of_folds,
    constant_weights,
)
from localma.gates._trainer import Training, advance
from localma.gates.global_ import find_global_weights
from localma.gates.labelled import Labelled
from localma.gates.mlp import MLPGate, begin, chunks_for

Array = NDArray[np.floating]
Rows = NDArray[np.intp]

JUDGED_ROWS = 100_000
"""At most this many rows judge: enough for risks that differ by a hundred-thousandth."""

ANCHOR_ROWS = 1_000_000
"""At most this many rows give the constant weights of the path."""

TRUNK, BRANCHED = 0.25, 0.5
"""Shares of the steps after which the others branch off, and after which half are dropped."""


class BranchingPath:
    """A path under training on the folds of a sample.

    Parameters
    ----------
    data : the sample.
    folds : rows to train on and rows to judge by, of each fold.
    points : the path, whose gates are all MLPGates.
    seed : of the starts and the batches.
    """

    def __init__(
        self, data: Labelled, folds: Sequence[Fold], points: Sequence[Point], seed: int
    ) -> None:
        self.data, self.folds, self.points, self.seed = data, folds, points, seed
        self.kinds: dict[str, list[int]] = {}
        for k, point in enumerate(points):
            if point.gate is not None:
                self.kinds.setdefault(point.name, []).append(k)
        self.chunks = [self._make_chunks(train) for train, _ in folds]
        self.trainings: dict[tuple[int, int], list[Training]] = {}
        self.mixtures: dict[tuple[int, int], Array] = {}

    def held_out(self, random: np.random.RandomState) -> HeldOut:
        """Train the path, and predict the rows that judge, or some of them if they are many."""
        data = self.data
        judged = [self._judging(test, random) for _, test in self.folds]
        anchor_rows = [self._anchor_rows(train) for train, _ in self.folds]
        anchors = [find_global_weights(data, rows) for rows in anchor_rows]
        self._train(anchors, judged)
        members: list[Members] = []
        for fold, rows in enumerate(anchor_rows):
            constants = [
                constant_weights(data, rows, point, anchors[fold]) for point in self.points
            ]
            members.append(self._members(fold, constants, data.P[judged[fold]]))
        baselines = [
            data.baseline_losses(rows, test) for rows, test in zip(anchor_rows, judged, strict=True)
        ]
        compared = [losses for losses in baselines if losses is not None]
        rows, blocks = blocks_of_folds(data, judged, random)
        sizes = [
            (len(train), len(test)) for (train, _), test in zip(self.folds, judged, strict=True)
        ]
        return HeldOut(
            data,
            self._mixtures_of_points(),
            rows,
            blocks,
            members,
            fold_overlap(sizes, len(rows) / len(np.unique(rows))),
            np.concatenate(compared) if compared else None,
        )

    def refit(
        self, seeds: Sequence[int], points: Collection[int], global_weights: Array
    ) -> Members:
        """Train some points on all rows, a gate per seed.

        If one fold judged, the first goes on from the path. It joins the others, which start anew,
        for the second half of the steps.
        """
        some_rows = self.folds[0][1][:1]
        members: Members = [
            # The best candidate is read from all rows, but only if it counts.
            constant_weights(self.data, None if k in points else some_rows, point, global_weights)
            for k, point in enumerate(self.points)
        ]
        scaled = anchor_and_scale(self.data, None, global_weights)
        chunks = self._chunks_of_all_rows()
        warm: list[Training] = []
        fresh: list[Training] = []
        for k in sorted(k for k in points if self.points[k].gate is not None):
            gates = [self._gate(k, seed) for seed in seeds]
            starts = [
                begin(gate, chunks[self.points[k].name], *scaled, seed)
                for gate, seed in zip(gates, seeds, strict=True)
            ]
            if self._goes_on:
                for training, path in zip(starts[0], self.trainings[0, k], strict=True):
                    training.go_on_from(path, round(BRANCHED * len(training.rates)))
                warm += starts.pop(0)
            fresh += [training for start in starts for training in start]
            members[k] = list(gates)
        self._advance(fresh, BRANCHED, stage=3)
        self._advance([*warm, *fresh], 1.0, stage=4)
        for training in (*warm, *fresh):
            training.store()
        return members

    @property
    def _goes_on(self) -> bool:
        """Whether the final fit goes on from the path: after a single fold, over batches."""
        batches = [chunks.single for kinds in self.chunks for chunks in kinds.values()]
        return len(self.folds) == 1 and not any(batches)

    def _judging(self, test: Rows, random: np.random.RandomState) -> Rows:
        """Rows of a fold that judge: all of them unless there are very many."""
        if len(test) <= JUDGED_ROWS:
            return test
        weighted = self._with_weight(test)
        count = min(JUDGED_ROWS, len(weighted))
        return np.sort(random.choice(weighted, count, replace=False))

    def _anchor_rows(self, train: Rows) -> Rows:
        weighted = self._with_weight(train)
        return weighted[:: -(-len(weighted) // ANCHOR_ROWS)]

    def _with_weight(self, rows: Rows) -> Rows:
        return rows[self.data.sample_weight[rows] > 0.0]

    def _members(self, fold: int, constants: Members, P: Array) -> Members:
        """Constant weights and gates of one fold; the constant points predict here."""
        for k, weights in enumerate(constants):
            if isinstance(weights, np.ndarray):
                self.mixtures[fold, k] = np.einsum("m,nmk->nk", weights, P)
            else:
                constants[k] = [self.trainings[fold, k][0].gate]
        return constants

    def _mixtures_of_points(self) -> Array:
        """Predictions of every point for the judging rows of all folds: (points, rows, K)."""
        return np.stack(
            [
                np.concatenate([self.mixtures[fold, k] for fold in range(len(self.folds))])
                for k in range(len(self.points))
            ]
        )

    def _chunks_of_all_rows(self) -> dict[str, Chunks]:
        """Chunks for the final fit; after a single fold those of the path, and the other rows."""
        if not self._goes_on:
            return self._make_chunks(None)
        train, judged = self.folds[0]
        neither = np.ones(len(self.data.y), dtype=bool)
        neither[train], neither[judged] = False, False
        added = np.concatenate([judged, np.flatnonzero(neither)])
        joined = {id(chunks): chunks.joined(added, seed=1) for chunks in self.chunks[0].values()}
        return {name: joined[id(chunks)] for name, chunks in self.chunks[0].items()}

    def _make_chunks(self, rows: Rows | None) -> dict[str, Chunks]:
        """Chunks of some rows for each kind of gate; the same for kinds that can share them."""
        n = len(self.data.y)
        alike: dict[tuple[int | None, bool], dict[str, MLPGate]] = {}
        for name, ks in self.kinds.items():
            gate = self._gate(ks[0], self.seed)
            alike.setdefault((gate.batch_rows(n), gate.standardize), {})[name] = gate
        chunks: dict[str, Chunks] = {}
        for gates in alike.values():
            shared = chunks_for(list(gates.values()), self.data, rows)
            chunks |= dict.fromkeys(gates, shared)
        return chunks

    def _train(self, anchors: Sequence[Array], judged: Sequence[Rows]) -> None:
        """Train the most shrunk point of each kind, branch off, drop half, train the others."""
        folds = range(len(self.folds))
        for fold in folds:
            self._begin(fold, anchor_and_scale(self.data, self.folds[fold][0], anchors[fold]))
        trunks = [ks[0] for ks in self.kinds.values()]
        self._advance(self._trainings_of(trunks), TRUNK, stage=0)
        for ks in self.kinds.values():
            for fold, k in ((fold, k) for fold in folds for k in ks[1:]):
                trunk = self.trainings[fold, ks[0]]
                for training, start in zip(self.trainings[fold, k], trunk, strict=True):
                    training.go_on_from(start, start.done)
        every_point = [k for ks in self.kinds.values() for k in ks]
        self._advance(self._trainings_of(every_point), BRANCHED, stage=1)
        self._judge(every_point, judged)
        better = [k for ks in self.kinds.values() for k in self._better_half(ks, judged)]
        self._advance(self._trainings_of(better), 1.0, stage=2)
        self._judge(better, judged)

    def _begin(self, fold: int, scaled: tuple[Float64, float]) -> None:
        for name, ks in self.kinds.items():
            for k in ks:
                gate = self._gate(k, self.seed)
                chunks = self.chunks[fold][name]
                self.trainings[fold, k] = begin(gate, chunks, *scaled, self.seed)

    def _trainings_of(self, points: Collection[int]) -> list[Training]:
        return [
            training
            for fold in range(len(self.folds))
            for k in points
            for training in self.trainings[fold, k]
        ]

    def _advance(self, trainings: Sequence[Training], until: float, stage: int) -> None:
        derivative: Any = compile_loss(self.data.loss.derivative)
        n_jobs = getattr(self.points[-1].gate, "n_jobs", None)
        advance(trainings, until, seed=(self.seed, stage), derivative=derivative, n_jobs=n_jobs)

    def _judge(self, points: Collection[int], judged: Sequence[Rows]) -> None:
        """Predict the rows that judge with some of the points as they stand."""
        for fold, rows in enumerate(judged):
            X, P = self.data.X[rows], self.data.P[rows]
            for k in points:
                for training in self.trainings[fold, k]:
                    training.store()
                self.mixtures[fold, k] = self.trainings[fold, k][0].gate.average(X, P)

    def _better_half(self, points: Sequence[int], judged: Sequence[Rows]) -> list[int]:
        """Keep the half of the points that loses less over all folds."""
        rows = np.concatenate(judged)
        y, weight = self.data.y[rows], self.data.sample_weight[rows]
        risks = []
        for k in points:
            mixture = np.concatenate([self.mixtures[f, k] for f in range(len(self.folds))])
            risks.append(np.average(row_losses(self.data.loss, y, mixture), weights=weight))
        best = np.argsort(risks, kind="stable")[: -(-len(points) // 2)]
        return [points[index] for index in best]

    def _gate(self, k: int, seed: int) -> MLPGate:
        point = self.points[k]
        assert isinstance(point.gate, MLPGate)
        # Not `clone`, which would take a tenth of a small training.
        parameters = point.gate.get_params(deep=False)
        parameters |= {"shrinkage": point.shrinkage, "random_state": seed}
        return type(point.gate)(**parameters)
