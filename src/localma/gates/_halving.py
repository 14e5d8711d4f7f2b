"""The path of a large sample: one training per kind of gate branches out, and losers are dropped.

A path of K shrinkages need not be K trainings. The most shrunk gate of each kind is trained for the
first quarter of the steps. There the others branch off, each under its own shrinkage, and
are trained for another quarter; then the half of them that loses less on the held-out rows is
trained to the end. In the final fit, over all rows, each gate goes on from where it stood.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from localma.equations import row_losses
from localma.evidence import fold_overlap
from localma.folds import Fold
from localma.gates._chunks import Chunks, Table, large_anchor
from localma.gates._engine import compile_loss
from localma.gates._held_out import (
    HeldOut,
    Members,
    Point,
    constant_weights,
    two_halves,
)
from localma.gates._minibatch import BatchTraining, advance
from localma.gates.global_ import find_global_weights
from localma.gates.labelled import Labelled
from localma.gates.mlp import MLPGate, begin, chunks_for

Array = NDArray[np.floating]
Rows = NDArray[np.intp]

JUDGED_ROWS = 100_000
"""At most so many rows judge: they tell risks apart that differ by a hundred-thousandth."""

ANCHOR_ROWS = 1_000_000
"""At most so many rows give the constant weights of the path."""

TRUNK, BRANCHED = 0.25, 0.5
"""Parts of the steps after which the others branch off, and after which half are dropped."""


class HalvedPath:
    """A path under training on one part of a fold, whose other part judges.

    Parameters
    ----------
    data : the sample.
    fold : rows to train on, and rows to judge by.
    points : the path, whose gates are all MLPGates.
    seed : of the starts and the batches.
    """

    def __init__(self, data: Labelled, fold: Fold, points: Sequence[Point], seed: int) -> None:
        self.data, self.fold, self.points, self.seed = data, fold, points, seed
        self.table = Table.of(data)
        self.kinds: dict[str, list[int]] = {}
        for k, point in enumerate(points):
            if point.gate is not None:
                self.kinds.setdefault(point.name, []).append(k)
        self.chunks = self._make_chunks()
        self.trainings: dict[int, list[BatchTraining]] = {}
        self.mixtures: dict[int, Array] = {}

    def held_out(self, random: np.random.RandomState) -> HeldOut:
        """Train the path, and predict the rows that judge, or a part of them if they are many."""
        data, (train, judged) = self.data, self.fold
        if len(judged) > JUDGED_ROWS:
            judged = self._with_weight(judged)
            count = min(JUDGED_ROWS, len(judged))
            judged = np.sort(random.choice(judged, count, replace=False))
        seen = self._with_weight(train)
        seen = seen[:: -(-len(seen) // ANCHOR_ROWS)]
        anchor = find_global_weights(data, seen)
        members = [constant_weights(data, seen, point, anchor) for point in self.points]
        self._train(anchor, judged)
        P = data.P[judged]
        for k, constant in enumerate(members):
            if isinstance(constant, np.ndarray):
                self.mixtures[k] = np.einsum("m,nmk->nk", constant, P)
            else:
                members[k] = [self.trainings[k][0].gate]
        mixtures = np.stack([self.mixtures[k] for k in range(len(members))])
        blocks = two_halves(data, judged, random)
        overlap = fold_overlap([(len(train), len(judged))])
        constant = data.baseline_losses(seen, judged)
        return HeldOut(data, mixtures, judged, blocks, [members], overlap, constant)

    def refit(self, seeds: Sequence[int], kept: Collection[int], global_weights: Array) -> Members:
        """Train the kept points on all rows, a gate per seed; the first goes on from the path.

        It joins the others, which start anew, for the second part of the steps.
        """
        seen = self.fold[1][:1]
        members: Members = [
            # What is not kept plays no part any more, and the best candidate is read from all rows.
            constant_weights(self.data, None if k in kept else seen, point, global_weights)
            for k, point in enumerate(self.points)
        ]
        scaled = large_anchor(self.table, None, self.data.loss, global_weights)
        others = self._others()
        shared = {id(part): part.joined(others, seed=1) for part in self.chunks.values()}
        warm: list[BatchTraining] = []
        fresh: list[BatchTraining] = []
        for k in sorted(k for k in kept if self.points[k].gate is not None):
            chunks = shared[id(self.chunks[self.points[k].name])]
            gates = [self._gate(k, seed) for seed in seeds]
            for gate, seed in zip(gates[1:], seeds[1:], strict=True):
                fresh += begin(gate, chunks, *scaled, seed)
            going_on = begin(gates[0], chunks, *scaled, seeds[0])
            for training, path in zip(going_on, self.trainings[k], strict=True):
                training.go_on_from(path, round(BRANCHED * len(training.rates)))
            warm += going_on
            members[k] = list(gates)
        self._advance(fresh, BRANCHED, stage=3)
        self._advance([*warm, *fresh], 1.0, stage=4)
        for training in (*warm, *fresh):
            training.store()
        return members

    def _others(self) -> Rows:
        """Rows that the path was not trained on: those that judge, then those of neither part."""
        train, judged = self.fold
        neither = np.ones(len(self.data.y), dtype=bool)
        neither[train], neither[judged] = False, False
        return np.concatenate([judged, np.flatnonzero(neither)])

    def _with_weight(self, rows: Rows) -> Rows:
        return rows[self.data.sample_weight[rows] > 0.0]

    def _make_chunks(self) -> dict[str, Chunks]:
        """Chunks of the rows to train on, for each kind; the same for kinds that can share them."""
        n = len(self.data.y)
        alike: dict[tuple[int | None, bool], dict[str, MLPGate]] = {}
        for name, ks in self.kinds.items():
            gate = self._gate(ks[0], self.seed)
            alike.setdefault((gate.batch_rows(n), gate.standardize), {})[name] = gate
        chunks: dict[str, Chunks] = {}
        for gates in alike.values():
            shared = chunks_for(list(gates.values()), self.table, self.fold[0])
            chunks |= dict.fromkeys(gates, shared)
        return chunks

    def _train(self, anchor: Array, judged: Rows) -> None:
        """Train the most shrunk point of each kind, branch off, drop half, train the others."""
        scaled = large_anchor(self.table, self.fold[0], self.data.loss, anchor)
        for name, ks in self.kinds.items():
            for k in ks:
                gate = self._gate(k, self.seed)
                self.trainings[k] = begin(gate, self.chunks[name], *scaled, self.seed)
        self._advance(self._of([ks[0] for ks in self.kinds.values()]), TRUNK, stage=0)
        for ks in self.kinds.values():
            for k in ks[1:]:
                for training, trunk in zip(self.trainings[k], self.trainings[ks[0]], strict=True):
                    training.go_on_from(trunk, trunk.done)
        self._advance(self._of(self.trainings), BRANCHED, stage=1)
        self._judge(self.trainings, judged)
        better = [k for ks in self.kinds.values() for k in self._better_half(ks, judged)]
        self._advance(self._of(better), 1.0, stage=2)
        self._judge(better, judged)

    def _of(self, ks: Collection[int]) -> list[BatchTraining]:
        return [training for k in ks for training in self.trainings[k]]

    def _advance(self, trainings: Sequence[BatchTraining], until: float, stage: int) -> None:
        derivative, (*_, base) = compile_loss(self.data.loss.derivative), self.points
        n_jobs = getattr(base.gate, "n_jobs", None)
        advance(trainings, until, seed=(self.seed, stage), derivative=derivative, n_jobs=n_jobs)

    def _judge(self, ks: Collection[int], judged: Rows) -> None:
        """Predict the rows that judge with some of the points as they stand."""
        X, P = self.data.X[judged], self.data.P[judged]
        for k in ks:
            for training in self.trainings[k]:
                training.store()
            self.mixtures[k] = self.trainings[k][0].gate.average(X, P)

    def _better_half(self, ks: Sequence[int], judged: Rows) -> list[int]:
        y, weight = self.data.y[judged], self.data.sample_weight[judged]
        risks = [
            np.average(row_losses(self.data.loss, y, self.mixtures[k]), weights=weight) for k in ks
        ]
        return [ks[place] for place in np.argsort(risks, kind="stable")[: -(-len(ks) // 2)]]

    def _gate(self, k: int, seed: int) -> MLPGate:
        gate = clone(self.points[k].gate)
        assert isinstance(gate, MLPGate)
        return gate.set_params(shrinkage=self.points[k].shrinkage, random_state=seed)
