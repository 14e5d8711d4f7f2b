"""Training in the fused kernel: Adam over batches of blocks, chunk after chunk.

Trainings that share rows and a seed go over the same batches, one thread each. None of them depends
on another, so each can be repeated alone, and the number of threads changes nothing. The whole
sample as one batch is a special case: one chunk, all of whose blocks are met in every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.gates._chunks import LANES, Chunk, Chunks, Sample
from localma.gates._engine import Progress, in_threads, train
from localma.gates._network import Float32, Network

if TYPE_CHECKING:
    from localma.gates.mlp import MLPGate

_ORDER_BLOCKS = 2**20  # blocks whose order is drawn at once


def block_of_batch(largest: int, batch: int) -> int:
    """Rows of a block, at most `largest`, so that a batch is made of whole ones."""
    rows = min(largest, batch + -batch % LANES)
    return min(rows, max(LANES, batch // -(-batch // rows) // LANES * LANES))


@dataclass(frozen=True)
class Visit:
    """Some steps over a packed chunk.

    order : numbers of the blocks as they are met, cut into `n_batches` batches, one per step; after
    the last batch comes the first again.
    """

    sample: Sample
    order: NDArray[np.intp]
    n_batches: int
    n_steps: int


@dataclass
class Training:
    """One network under training over batches of `batch` rows; None is all rows.

    rates : (n_steps,) all its learning rates; done : the steps taken of them; before : the steps of
    the training from which it was branched off.
    """

    gate: MLPGate
    restart: int
    network: Network
    chunks: Chunks
    batch: int | None
    progress: Progress
    rates: Float32
    done: int = 0
    before: int = 0

    @property
    def pace(self) -> tuple[int, ...]:
        """Equal for trainings that can go over the same batches side by side."""
        return id(self.chunks), self.batch or 0, len(self.rates), self.done

    def run(self, visit: Visit, derivative: Any) -> None:
        """Take the steps of a visit to a chunk; fewer if the whole sample has converged."""
        gate = self.gate
        self.done += train(
            self.network,
            visit.sample,
            self.progress,
            order=visit.order,
            n_batches=visit.n_batches,
            rates=self.rates[self.done : self.done + visit.n_steps],
            mean_weight=self.chunks.mean_weight,
            derivative=derivative,
            loss_scale=gate.loss_scale_,
            logit_bound=gate.logit_bound,
            tol=gate.tol if self.batch is None else 0.0,
        )

    def store(self) -> None:
        """Write the parameters into the gate, with the candidates in the order of the user."""
        gate, theta = self.gate, self.progress.theta[: self.network.n_parameters]
        self._check_finite(theta)
        # A new array: predictions must not use a stack that was made of the old one.
        parameters = gate.parameters_.copy()
        candidates = self.chunks.layout.candidates
        parameters[self.restart] = self.network.reorder_candidates(theta, candidates)
        gate.parameters_ = parameters
        gate.n_steps_[self.restart] = self.before + self.done

    def go_on_from(self, trunk: Training, done: int) -> None:
        """Continue from another training, as if `done` steps of this one had been taken."""
        self.progress = trunk.progress.under(self.gate._decay(self.network))
        self.before, self.done = trunk.before + trunk.done - done, done

    def _check_finite(self, theta: Float32) -> None:
        if not np.isfinite(theta).all():
            raise InvalidInputError(
                "Training of MLPGate must stay finite, but its parameters did not within "
                f"{self.before + self.done} steps at learning_rate={self.gate.learning_rate}. "
                "Lower learning_rate, or look for targets or predictions at which the derivative "
                "of the loss is not finite."
            )


def advance(
    trainings: Sequence[Training],
    until: float,
    *,
    seed: tuple[int, ...],
    derivative: Any,
    n_jobs: int | None,
) -> None:
    """Take each training up to a share of its steps; seed and rows determine the batches."""
    groups: dict[tuple[int, ...], list[Training]] = {}
    for training in trainings:
        groups.setdefault(training.pace, []).append(training)
    for group in groups.values():
        _load(group[0].chunks, n_jobs)
    courses = [_course(group[0], until, np.random.default_rng(seed)) for group in groups.values()]
    for visits in zip_longest(*courses):
        steps = [
            (training, visit)
            for group, visit in zip(groups.values(), visits, strict=True)
            for training in group
            if visit is not None
        ]
        in_threads(lambda step: step[0].run(step[1], derivative), steps, n_jobs)


def _load(chunks: Chunks, n_jobs: int | None) -> None:
    """Pack all chunks at once if they stay in memory."""
    if chunks.fit_in_memory:
        in_threads(_pack_chunk, chunks.chunks, n_jobs)


def _pack_chunk(chunk: Chunk) -> None:
    assert chunk.in_memory is not None


def _course(training: Training, until: float, rng: np.random.Generator) -> Iterator[Visit]:
    """Visits to the chunks, pass after pass, each time in another order, until the last step."""
    chunks, n_left = training.chunks, round(until * len(training.rates)) - training.done
    if n_left > 0 and training.batch is None:
        yield Visit(chunks.packed(0), np.arange(chunks.chunks[0].n_blocks), 1, n_left)
        return
    while n_left > 0:
        for number in rng.permutation(len(chunks.chunks)).tolist():
            visit = _visit(chunks, number, training.batch or 1, n_left, rng)
            n_left -= visit.n_steps
            if visit.n_steps:
                yield visit


def _visit(chunks: Chunks, number: int, batch: int, n_left: int, rng: np.random.Generator) -> Visit:
    """Visit one chunk: once if there are others, else in as many passes as there are steps left."""
    n_blocks = chunks.chunks[number].n_blocks
    n_batches = max(1, min(n_blocks, round(n_blocks * chunks.layout.block / batch)))
    n_passes = 1
    if len(chunks.chunks) == 1:
        n_passes = min(-(-n_left // n_batches), max(1, _ORDER_BLOCKS // n_blocks))
    n_steps = min(n_passes * n_batches, n_left)
    order = np.concatenate([rng.permutation(n_blocks) for _ in range(n_passes)])
    used = order[: n_steps * n_blocks // n_batches]
    return Visit(chunks.packed(number), used, max(1, n_steps), n_steps)
