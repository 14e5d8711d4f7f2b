"""Training of the path of `gate="auto"`, in folds and on all rows.

In each fold, all gates of the path are trained for the first quarter of the steps. Then the half of
each kind with the smaller losses on the held-out rows of all folds is trained to the end. The final
fit, over all rows, starts anew. If one fold judged, the first gate of each point continues from the
path instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from localma._tasks import runner
from localma._types import Array, Float64, Rows
from localma.equations import global_average, local_average, row_losses
from localma.folds import Fold
from localma.gates.base import Earlier, Gate, Job
from localma.gates.constant import anchor_and_scale, find_global_weights
from localma.gates.fused.chunks import Chunks
from localma.gates.fused.engine import in_threads
from localma.gates.fused.trainer import Training, advance
from localma.gates.labelled import Labelled
from localma.gates.mlp import MLPGate, begin, chunks_for, resume
from localma.gates.points import Fitted, FoldRows, HeldOut, Members, Point
from localma.gates.tree import TreeGate
from localma.tables.frames import take_rows
from localma.trees.boosting import kernel

HALVED = 0.25
"""Share of the steps after which half of the points are dropped."""

JOINED = 0.5
"""Share of the steps after which gates that start anew are joined by those that continue."""

Starts = Mapping[int, Sequence[Earlier]]
"""For some points of the path, the gates from which its restarts begin."""


def constant_members(
    data: Labelled, rows: Rows | None, points: Sequence[Point], global_weights: Array
) -> list[Fitted]:
    """Constant weights of the points without a gate, from some rows; the others are untrained."""
    M = data.n_candidates
    constants: dict[str, Callable[[], Array]] = {
        "equal": lambda: np.full(M, 1.0 / M),
        "best": lambda: np.eye(M)[data.best_candidate(rows)],
        "global": lambda: global_weights,
    }
    return [Fitted(constants[point.name]() if point.gate is None else None) for point in points]


@dataclass
class SeparatePath:
    """A path of any gates: all points are trained to the end, independently of each other.

    The seed depends only on the restart, so that points and folds have common random numbers.
    """

    data: Labelled
    folds: Sequence[Fold]
    points: Sequence[Point]
    seed: int

    def held_out(self, random: np.random.RandomState) -> HeldOut:
        """Train every point in every fold, and predict the rows held out."""
        folds = [FoldRows(train, test, train) for train, test in self.folds]
        anchors = [find_global_weights(self.data, fold.anchor) for fold in folds]
        every_point = range(len(self.points))
        members = self._train([fold.train for fold in folds], anchors, [self.seed], every_point)
        mixtures = [
            np.stack([_mixture(self.data, fitted, fold.judging) for fitted in fold_members])
            for fold_members, fold in zip(members, folds, strict=True)
        ]
        return HeldOut.of(self.data, folds, members, np.concatenate(mixtures, axis=1), random)

    def refit(
        self,
        seeds: Sequence[int],
        chosen: Sequence[int],
        weights: Array,
        starts: Starts | None = None,
    ) -> Members:
        """Train some points on all rows, one gate per seed; `starts` is not used."""
        return self._train([None], [weights], seeds, chosen)[0]

    def _train(
        self,
        rows: Sequence[Rows | None],
        anchors: Sequence[Array],
        seeds: Sequence[int],
        chosen: Sequence[int],
    ) -> list[Members]:
        """Train points on several sets of rows, all gates of a kind at once."""
        gates: dict[tuple[int, int], list[Gate]] = {}
        kinds = {point.name: point.gate for point in self.points if point.gate is not None}
        for kind, gate in kinds.items():
            local = [k for k in chosen if self.points[k].name == kind]
            keys = [(i, k, seed) for i in range(len(rows)) for k in local for seed in seeds]
            jobs = [Job(rows[i], self.points[k].shrinkage, seed, anchors[i]) for i, k, seed in keys]
            for (i, k, _), fitted in zip(keys, gate.fit_jobs(self.data, jobs), strict=True):
                gates.setdefault((i, k), []).append(fitted)
        return [
            [
                Fitted(fitted.constant, gates.get((i, k), []))
                for k, fitted in enumerate(
                    constant_members(self.data, rows[i], self.points, anchors[i])
                )
            ]
            for i in range(len(rows))
        ]


def _mixture(data: Labelled, fitted: Fitted, rows: Rows) -> Array:
    """Predictions of one point for some rows: (rows, K)."""
    P = data.P[rows]
    if fitted.constant is not None:
        return global_average(fitted.constant, P)
    inputs = take_rows(data.X, rows)
    weights = np.mean([gate.predict_weights(inputs) for gate in fitted.gates], axis=0)
    return local_average(weights, P)


class HalvingPath:
    """A path of networks: half of them are dropped early.

    Parameters
    ----------
    data : the sample
    folds : rows to train on and rows to judge by, for each fold
    points : the path, whose gates are MLPGates and TreeGates
    seed : seed of the starts and the batches
    """

    def __init__(
        self, data: Labelled, folds: Sequence[Fold], points: Sequence[Point], seed: int
    ) -> None:
        self.data, self.folds, self.points, self.seed = data, folds, points, seed
        self.kinds: dict[str, list[int]] = {}
        for k, point in enumerate(points):
            if isinstance(point.gate, MLPGate):
                self.kinds.setdefault(point.name, []).append(k)
        self.trees: dict[tuple[int, int], TreeGate] = {}
        self.n_jobs: int | None = getattr(points[-1].gate, "n_jobs", None)
        self.chunks = [self._make_chunks(train) for train, _ in folds]
        self.trainings: dict[tuple[int, int], list[Training]] = {}
        self.mixtures: dict[tuple[int, int], Array] = {}

    def held_out(self, random: np.random.RandomState) -> HeldOut:
        """Train the path, and predict the rows that judge."""
        folds = [FoldRows.of(self.data, fold, random) for fold in self.folds]
        anchors = [find_global_weights(self.data, fold.anchor) for fold in folds]
        for f, fold in enumerate(folds):
            self._begin(f, anchor_and_scale(self.data, fold.train, anchors[f]))
        self._grow_trees(folds, anchors)
        every_point = [k for points in self.kinds.values() for k in points]
        advance(self._trainings_of(every_point), HALVED, seed=(self.seed, 1), n_jobs=self.n_jobs)
        self._judge(every_point, folds)
        better = [k for points in self.kinds.values() for k in self._better_half(points, folds)]
        advance(self._trainings_of(better), 1.0, seed=(self.seed, 2), n_jobs=self.n_jobs)
        self._judge(better, folds)
        members = [self._members(f, fold, anchors[f]) for f, fold in enumerate(folds)]
        mixtures = np.stack([self._mixture_of(k) for k in range(len(self.points))])
        return HeldOut.of(self.data, folds, members, mixtures, random)

    def refit(
        self,
        seeds: Sequence[int],
        chosen: Sequence[int],
        weights: Array,
        starts: Starts | None = None,
    ) -> Members:
        """Train some points on all rows, one gate per seed.

        If one fold judged, the first gate continues from the path. Others may continue from an
        earlier gate. They join those that start anew for the second half of the steps. If others
        do, a point without an earlier gate has one gate only.
        """
        # The best candidate is computed from all rows only if it has weight.
        rows = None
        if all(self.points[k].name != "best" for k in chosen):
            rows = np.arange(1)
        members = constant_members(self.data, rows, self.points, weights)
        scaled = anchor_and_scale(self.data, None, weights)
        chunks = self._chunks_of_all_rows()
        continued: list[Training] = []
        fresh: list[Training] = []
        shared = self.data, self.points
        for k, tree in _grow_trees(shared, None, weights, seeds[0], chosen).items():
            members[k] = Fitted(None, [tree])
        for k in [k for k in chosen if isinstance(self.points[k].gate, MLPGate)]:
            trainings = self._restarts(k, chunks[self.points[k].name], scaled, seeds, starts or {})
            for training in trainings:
                (continued if training.done else fresh).append(training)
            gates = dict.fromkeys(training.gate for training in trainings)
            members[k] = Fitted(None, list(gates))
        advance(fresh, JOINED, seed=(self.seed, 3), n_jobs=self.n_jobs)
        advance([*continued, *fresh], 1.0, seed=(self.seed, 4), n_jobs=self.n_jobs)
        for training in (*continued, *fresh):
            training.store()
        return members

    def _restarts(
        self,
        k: int,
        chunks: Chunks,
        scaled: tuple[Float64, float],
        seeds: Sequence[int],
        starts: Starts,
    ) -> list[Training]:
        """Start the final trainings of a point: anew, from the path or from earlier gates."""
        before = starts.get(k, ())
        if starts and not before:  # this kind of gate had no weight before
            seeds = seeds[:1]
        restarts = [begin(self._gate(k, seed), chunks, *scaled, seed) for seed in seeds]
        others = restarts
        if self._continues:
            for training, trained in zip(restarts[0], self.trainings[0, k], strict=True):
                training.continue_from(trained, round(JOINED * len(training.rates)))
            others = restarts[1:]
        for trainings, earlier in zip(others, before, strict=False):
            for training in trainings:
                resume(training, earlier, JOINED)
        return [training for trainings in restarts for training in trainings]

    @property
    def _continues(self) -> bool:
        """Whether the final fit continues from the path: after a single fold, over batches."""
        whole = [chunks.single for by_kind in self.chunks for chunks in by_kind.values()]
        return len(self.folds) == 1 and not any(whole)

    def _members(self, f: int, fold: FoldRows, anchor: Float64) -> Members:
        """Constant weights and gates of one fold; the constant points predict now."""
        members, P = [], self.data.P[fold.judging]
        for k, fitted in enumerate(constant_members(self.data, fold.anchor, self.points, anchor)):
            if (f, k) in self.trees:
                members.append(Fitted(None, [self.trees[f, k]]))
            elif fitted.constant is None:
                members.append(Fitted(None, [self.trainings[f, k][0].gate]))
            else:
                members.append(fitted)
                self.mixtures[f, k] = global_average(fitted.constant, P)
        return members

    def _mixture_of(self, k: int) -> Array:
        """Predictions of one point for the judging rows of all folds: (rows, K)."""
        return np.concatenate([self.mixtures[f, k] for f in range(len(self.folds))])

    def _chunks_of_all_rows(self) -> dict[str, Chunks]:
        """Chunks for the final fit; after a single fold those of the path, and the other rows."""
        if not self._continues:
            return self._make_chunks(None)
        train, judging = self.folds[0]
        unused = np.ones(len(self.data.y), dtype=bool)
        unused[train], unused[judging] = False, False
        added = np.concatenate([judging, np.flatnonzero(unused)])
        joined = {id(chunks): chunks.joined(added, seed=1) for chunks in self.chunks[0].values()}
        return {name: joined[id(chunks)] for name, chunks in self.chunks[0].items()}

    def _make_chunks(self, rows: Rows | None) -> dict[str, Chunks]:
        """Chunks of some rows for each kind of gate; kinds share them if they can."""
        alike: dict[tuple[int | None, bool], dict[str, MLPGate]] = {}
        for name, points in self.kinds.items():
            gate = self._gate(points[0], self.seed)
            key = gate.batch_rows(len(self.data.y)), gate.standardize
            alike.setdefault(key, {})[name] = gate
        chunks: dict[str, Chunks] = {}
        for gates in alike.values():
            chunks |= dict.fromkeys(gates, chunks_for(list(gates.values()), self.data, rows))
        return chunks

    def _begin(self, f: int, scaled: tuple[Float64, float]) -> None:
        """Start the trainings of one fold; scaled : global weights and scale of the loss."""
        for name, points in self.kinds.items():
            for k in points:
                gate = self._gate(k, self.seed)
                self.trainings[f, k] = begin(gate, self.chunks[f][name], *scaled, self.seed)

    def _grow_trees(self, folds: Sequence[FoldRows], anchors: Sequence[Float64]) -> None:
        """Grow the trees of all folds, and predict the rows that judge."""
        if not any(isinstance(point.gate, TreeGate) for point in self.points):
            return
        shared, sent = (self.data, self.points), runner()
        tasks = [(fold, anchor, self.seed) for fold, anchor in zip(folds, anchors, strict=True)]
        if sent is not None:
            grown = sent(_grow_fold, shared, tasks)
        else:
            kernel()  # before any thread starts
            grown = in_threads(partial(_grow_fold, shared), tasks, self.n_jobs)
        for f, trees in enumerate(grown):
            for k, gate, mixture in trees:
                self.trees[f, k], self.mixtures[f, k] = gate, mixture

    def _trainings_of(self, points: Sequence[int]) -> list[Training]:
        """The trainings of some points in all folds."""
        return [
            training
            for f in range(len(self.folds))
            for k in points
            for training in self.trainings[f, k]
        ]

    def _judge(self, points: Sequence[int], folds: Sequence[FoldRows]) -> None:
        """Predict the rows that judge with some points in their present state."""
        for f, fold in enumerate(folds):
            X, P = self.data.table[fold.judging], self.data.P[fold.judging]
            for k in points:
                for training in self.trainings[f, k]:
                    training.store()
                self.mixtures[f, k] = self.trainings[f, k][0].gate.average(X, P)

    def _better_half(self, points: Sequence[int], folds: Sequence[FoldRows]) -> list[int]:
        """Keep the half of the points with the smaller losses over all folds."""
        rows = np.concatenate([fold.judging for fold in folds])
        y, weight = self.data.y[rows], self.data.sample_weight[rows]
        risks = [
            np.average(row_losses(self.data.loss, y, self._mixture_of(k)), weights=weight)
            for k in points
        ]
        best = np.argsort(risks, kind="stable")[: -(-len(points) // 2)]
        return [points[index] for index in best]

    def _gate(self, k: int, seed: int) -> MLPGate:
        gate = self.points[k].gate
        assert isinstance(gate, MLPGate)
        return gate.with_job(self.points[k].shrinkage, seed)


def _grow_trees(
    shared: tuple[Labelled, Sequence[Point]],
    rows: Rows | None,
    anchor: Array,
    seed: int,
    chosen: Sequence[int],
) -> dict[int, TreeGate]:
    """Gates of trees at some points; those of a kind are all from one training."""
    data, path = shared
    kinds: dict[str, list[int]] = {}
    for k in chosen:
        if isinstance(path[k].gate, TreeGate):
            kinds.setdefault(path[k].name, []).append(k)
    trees: dict[int, TreeGate] = {}
    for points in kinds.values():
        gate = path[points[0]].gate
        assert isinstance(gate, TreeGate)
        jobs = [Job(rows, path[k].shrinkage, seed, anchor) for k in points]
        trees |= zip(points, gate.fit_jobs(data, jobs), strict=True)
    return trees


def _grow_fold(
    shared: tuple[Labelled, Sequence[Point]], fold: FoldRows, anchor: Array, seed: int
) -> list[tuple[int, TreeGate, Array]]:
    """Grow the trees of one fold, and predict the rows that judge."""
    data, points = shared
    X, P = data.table[fold.judging], data.P[fold.judging]
    trees = _grow_trees(shared, fold.train, anchor, seed, range(len(points)))
    return [(k, gate, gate.average(X, P)) for k, gate in trees.items()]


def make_path(
    data: Labelled, folds: Sequence[Fold], points: Sequence[Point], seed: int
) -> HalvingPath | SeparatePath:
    """A path in the fused kernel if all gates are networks, else one of separate trainings."""
    if all(isinstance(point.gate, MLPGate | TreeGate | None) for point in points):
        return HalvingPath(data, folds, points, seed)
    return SeparatePath(data, folds, points, seed)
