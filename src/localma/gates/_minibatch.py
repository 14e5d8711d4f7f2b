"""Training by mini-batches: Adam over a few blocks of rows a step, chunk after chunk.

Trainings that share rows and a seed go over the same batches side by side, one thread each. None
looks at another, so each can be done again alone, and the number of threads changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.gates._chunks import Chunks
from localma.gates._engine import Progress, in_threads, train_on_batches
from localma.gates._network import Float32, Network
from localma.gates._packing import LANES, Sample

if TYPE_CHECKING:
    from localma.gates.mlp import MLPGate

BATCH_ROWS = 384
BATCH_STEPS, PASSES = 3000, 2
"""Steps of a training by mini-batches: so many, or as many as see each row so often, if more."""


def batch_steps(n_rows: int, batch: int) -> int:
    """Steps of a training by mini-batches where none are asked for.

    >>> batch_steps(20_000, 384), batch_steps(1_000_000, 384)
    (3000, 5209)
    """
    return max(BATCH_STEPS, -(-PASSES * n_rows // batch))


def block_of_batch(largest: int, batch: int) -> int:
    """Rows of a block, at most `largest`, so that a batch is made of whole ones."""
    rows = min(largest, batch + -batch % LANES)
    return min(rows, max(LANES, batch // -(-batch // rows) // LANES * LANES))


@dataclass
class BatchTraining:
    """One network under training over batches of `batch` rows of some chunks.

    rates : (n_steps,) all its learning rates; done : the steps taken of them; before : the steps
    that it had taken before, where it was branched off from another training.
    """

    gate: MLPGate
    restart: int
    network: Network
    chunks: Chunks
    batch: int
    progress: Progress
    rates: Float32
    done: int = 0
    before: int = 0

    @property
    def pace(self) -> tuple[int, ...]:
        """Equal for trainings that can be taken over the same batches side by side."""
        return id(self.chunks), self.batch, len(self.rates), self.done

    def run(self, visit: Visit, derivative: Any) -> None:
        """Take the steps of a visit to a chunk."""
        train_on_batches(
            self.network,
            visit.sample,
            self.progress,
            order=visit.order,
            rates=self.rates[self.done : self.done + visit.n_steps],
            mean_weight=self.chunks.mean_weight,
            derivative=derivative,
            loss_scale=self.gate.loss_scale_,
            logit_bound=self.gate.logit_bound,
        )
        self.done += visit.n_steps

    def store(self) -> None:
        """Write the parameters into the gate, with the candidates in the order of the user."""
        gate, theta = self.gate, self.progress.theta[: self.network.n_parameters]
        check_finite(gate, theta, self.before + self.done)
        # A new array: what was made of the old one for predictions must not outlive it.
        parameters = gate.parameters_.copy()
        candidates = self.chunks.layout.candidates
        parameters[self.restart] = self.network.reorder_candidates(theta, candidates)
        gate.parameters_ = parameters
        gate.n_steps_[self.restart] = self.before + self.done

    def go_on_from(self, other: BatchTraining, done: int) -> None:
        """Take over where another training stands, as if `done` steps of one's own were taken."""
        self.progress = other.progress.under(self.gate._decay(self.network))
        self.before, self.done = other.before + other.done - done, done


@dataclass(frozen=True)
class Visit:
    """Some steps over a packed chunk, whose blocks are met in some order, as many a step."""

    sample: Sample
    order: NDArray[np.intp]
    n_steps: int


def check_finite(gate: MLPGate, theta: Float32, n_steps: int) -> None:
    """Refuse parameters that overflowed."""
    if not np.isfinite(theta).all():
        raise InvalidInputError(
            "Training of MLPGate must stay finite, but its parameters did not within "
            f"{n_steps} steps at learning_rate={gate.learning_rate}. Lower learning_rate, or "
            "look for targets or predictions at which the derivative of the loss is not finite."
        )


def advance(
    trainings: Sequence[BatchTraining],
    until: float,
    *,
    seed: tuple[int, ...],
    derivative: Any,
    n_jobs: int | None,
) -> None:
    """Take each training up to a part of its steps; the seed and the rows determine the batches."""
    groups: dict[tuple[int, ...], list[BatchTraining]] = {}
    for training in trainings:
        groups.setdefault(training.pace, []).append(training)
    for group in groups.values():
        first = group[0]
        n_steps = round(until * len(first.rates)) - first.done
        first.chunks.keep(n_jobs)
        for visit in _course(first.chunks, n_steps, first.batch, np.random.default_rng(seed)):
            in_threads(
                partial(BatchTraining.run, visit=visit, derivative=derivative), group, n_jobs
            )


def _course(chunks: Chunks, n_steps: int, batch: int, rng: np.random.Generator) -> Iterator[Visit]:
    """Visits to the chunks, pass after pass, each time in another order, until the last step."""
    left = n_steps
    while left > 0:
        for number in rng.permutation(len(chunks.chunks)).tolist():
            n_blocks = chunks.chunks[number].n_blocks
            order = rng.permutation(n_blocks)
            batches = max(1, min(n_blocks, round(n_blocks * chunks.layout.block / batch)))
            count = min(batches, left)
            if count == 0:
                return
            left -= count
            yield Visit(chunks.packed(number), order[: count * n_blocks // batches], count)
