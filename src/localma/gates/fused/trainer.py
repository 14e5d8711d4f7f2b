"""Training in the fused kernel: Adam over batches of blocks, chunk by chunk.

Trainings that share rows and a seed use the same batches, one thread each. They do not depend on
each other, so each can be repeated alone, and the number of threads changes nothing. The whole
sample as one batch is a special case: one chunk, all of whose blocks are used in every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Self

import numpy as np

from localma._tasks import Runner, runner
from localma._types import Float32, Float64, Integers
from localma.errors import InvalidInputError
from localma.gates.fused.chunks import LANES, Chunks, Sample
from localma.gates.fused.engine import compile_loss, in_threads, kernel, workspace_size
from localma.gates.fused.networks import Network
from localma.progress import bar

if TYPE_CHECKING:
    from localma.gates.fused.kernel import BlockDerivative
    from localma.gates.mlp import MLPGate

_ORDER_BLOCKS = 2**20  # blocks whose order is drawn at once

REPORTED_PRODUCTS = 2**31
"""Rows times parameters times steps between two reports of the progress: about a second."""


def block_of_batch(largest: int, batch: int) -> int:
    """Rows of a block, at most `largest`, so that a batch is made of whole ones."""
    rows = min(largest, batch + -batch % LANES)
    return min(rows, max(LANES, batch // -(-batch // rows) // LANES * LANES))


@dataclass(frozen=True)
class Progress:
    """The state of a training; the kernel writes into the arrays.

    theta, gradient, decay : (n_parameters,) padded with zeros to full vectors.
    moments : those of Adam, twice as long.
    powers : (2,) Adam's decay rates to the power of the steps so far.
    """

    theta: Float32
    gradient: Float32
    decay: Float32
    moments: Float32
    powers: Float64

    @classmethod
    def at(cls, start: Float32, decay: Float32) -> Self:
        """Begin at some parameters; `decay` times the parameters is added to the gradient."""
        n, size = len(start), len(start) + -len(start) % LANES
        theta, gradient, pull, moments = (np.zeros(k * size, np.float32) for k in (1, 1, 1, 2))
        theta[:n], pull[:n] = start, decay
        return cls(theta, gradient, pull, moments, np.ones(2))

    def under(self, decay: Float32) -> Self:
        """Copy this state, with another decay."""
        pull = np.zeros_like(self.decay)
        pull[: len(decay)] = decay
        return replace(deepcopy(self), decay=pull)


@dataclass(frozen=True)
class Visit:
    """Some steps over a packed chunk.

    order : numbers of the blocks, cut into `n_batches` batches, one per step; the first batch
    follows the last.
    """

    sample: Sample
    order: Integers
    n_batches: int
    n_steps: int

    @classmethod
    def of_all_rows(cls, chunks: Chunks, n_steps: int) -> Self:
        """Visit a single chunk in steps over all of its rows."""
        return cls(chunks.packed(0), np.arange(chunks.chunks[0].n_blocks), 1, n_steps)


@dataclass
class Training:
    """The training of one network over batches of `batch` rows; None means all rows.

    rates : (n_steps,) all learning rates; done : number of steps taken; before : steps of the
    training from which this one continues; converged : whether it ended early in this `advance`.
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
    converged: bool = False

    @property
    def pace(self) -> tuple[int, ...]:
        """Key of the trainings that can use the same batches side by side."""
        return id(self.chunks), self.batch or 0, len(self.rates), self.done

    def run(self, visit: Visit, derivative: BlockDerivative) -> None:
        """Take the steps of a visit to a chunk; fewer if the whole sample has converged."""
        if self.converged:
            return
        gate, network, sample, progress = self.gate, self.network, visit.sample, self.progress
        n_outputs = len(sample.y) // len(sample.weight)
        self._check_sample(sample, n_outputs)
        rates = self.rates[self.done : self.done + visit.n_steps]
        workspace = np.ones(workspace_size(network, n_outputs, sample.block), dtype=np.float32)
        n_taken = kernel().train(
            sample.X, sample.P, sample.y, sample.weight, sample.block, n_outputs,
            np.array(network.sizes), progress.theta, progress.gradient, progress.moments,
            progress.decay, rates, np.float32(gate.logit_bound or 0.0), np.float32(network.leak),
            np.float32(gate.tol * (self.batch is None)), derivative.block, sample.unit,
            sample.unit / gate.loss_scale_, derivative.parameters, workspace, visit.order,
            visit.n_batches, 1.0 / self.chunks.mean_weight, progress.powers,
            np.array(self.chunks.data.loss.output_weight, dtype=np.float32),
        )  # fmt: skip
        self.done += n_taken
        self.converged = n_taken < len(rates)

    def _check_sample(self, sample: Sample, n_outputs: int) -> None:
        """Refuse arrays that do not fit the network, since the kernel itself checks no index."""
        network, n = self.network, len(sample.weight)
        p, M = network.sizes[0], network.sizes[-1]
        expected = (n * p, n * M * n_outputs, n * n_outputs)
        sizes = (sample.X.size, sample.P.size, sample.y.size)
        n_padded = self.progress.theta.size
        n_shares = len(self.chunks.data.loss.output_weight)
        fits = network.fits(p, M) and n_shares in (0, n_outputs)
        if not fits or sizes != expected or network.n_parameters > n_padded:
            raise InvalidInputError(
                f"A network of the layers {network.sizes} does not fit a packed sample of {n} "
                f"rows: its arrays have {sizes} numbers instead of {expected}."
            )

    def store(self) -> None:
        """Write the parameters into the gate, with the candidates in the order of the user."""
        gate, theta = self.gate, self.progress.theta[: self.network.n_parameters]
        self._check_finite(theta)
        # A new array, since a stack of the old one may be in use.
        parameters = gate.parameters_.copy()
        candidates = self.chunks.layout.candidates
        parameters[self.restart] = self.network.reorder_candidates(theta, candidates)
        gate.parameters_ = parameters
        gate.n_steps_[self.restart] = self.before + self.done

    def continue_from(self, trunk: Training, done: int) -> None:
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
    trainings: Sequence[Training], until: float, *, seed: tuple[int, ...], n_jobs: int | None
) -> None:
    """Run each training up to a share of its steps; seed and rows determine the batches."""
    if not trainings:
        return
    if (sent := runner()) is not None:
        _advance_elsewhere(sent, trainings, until, seed)
    else:
        _advance_here(trainings, until, seed, n_jobs)


def _advance_here(
    trainings: Sequence[Training], until: float, seed: tuple[int, ...], n_jobs: int | None
) -> None:
    derivative = compile_loss(trainings[0].chunks.data.loss.derivative)
    groups: dict[tuple[int, ...], list[Training]] = {}
    for training in trainings:
        training.converged = False
        groups.setdefault(training.pace, []).append(training)
    for group in groups.values():
        if group[0].chunks.fit_in_memory:
            chunks = [(chunk,) for chunk in group[0].chunks.chunks]
            in_threads(lambda chunk: chunk.in_memory, chunks, n_jobs)
    courses = [_course(group[0], until, np.random.default_rng(seed)) for group in groups.values()]
    total = sum(len(group) * _steps_left(group[0], until) for group in groups.values())
    with bar("Training the gate", total) as report:
        for visits in zip_longest(*courses):
            runs = [
                (training, visit, derivative)
                for group, visit in zip(groups.values(), visits, strict=True)
                for training in group
                if visit is not None
            ]
            in_threads(Training.run, runs, n_jobs)
            report(sum(visit.n_steps for _, visit, _ in runs))


def _advance_elsewhere(
    sent: Runner, trainings: Sequence[Training], until: float, seed: tuple[int, ...]
) -> None:
    """Run each training alone, in another process; those on the same rows share them."""
    of_id = {id(training.chunks): training.chunks for training in trainings}
    numbers = {key: number for number, key in enumerate(of_id)}
    tasks = [
        (numbers[id(training.chunks)], replace(training, chunks=None), until, seed)  # type: ignore[arg-type]
        for training in trainings
    ]
    states = sent(_advance_alone, list(of_id.values()), tasks)
    for training, (progress, done, converged) in zip(trainings, states, strict=True):
        training.progress, training.done, training.converged = progress, done, converged


def _advance_alone(
    shared: Sequence[Chunks], number: int, training: Training, until: float, seed: tuple[int, ...]
) -> tuple[Progress, int, bool]:
    training.chunks = shared[number]
    _advance_here([training], until, seed, n_jobs=1)
    return training.progress, training.done, training.converged


def _steps_left(training: Training, until: float) -> int:
    """Steps of a training up to a share of all of them."""
    return max(0, round(until * len(training.rates)) - training.done)


def _course(training: Training, until: float, rng: np.random.Generator) -> Iterator[Visit]:
    """Visit the chunks in a new random order in each pass, until the last step."""
    chunks, n_left = training.chunks, _steps_left(training, until)
    if training.batch is None:
        products = chunks.n_rows * training.network.n_parameters
        most = max(1, REPORTED_PRODUCTS // products)
        for done in range(0, n_left, most):
            yield Visit.of_all_rows(chunks, min(most, n_left - done))
        return
    while n_left > 0:
        for number in rng.permutation(len(chunks.chunks)).tolist():
            visit = _visit(chunks, number, training.batch or 1, n_left, rng)
            n_left -= visit.n_steps
            if visit.n_steps:
                yield visit


def _visit(chunks: Chunks, number: int, batch: int, n_left: int, rng: np.random.Generator) -> Visit:
    """Visit one chunk: once if there are several, else in enough passes for all steps."""
    n_blocks = chunks.chunks[number].n_blocks
    n_batches = max(1, min(n_blocks, round(n_blocks * chunks.layout.block / batch)))
    n_passes = 1
    if len(chunks.chunks) == 1:
        n_passes = min(-(-n_left // n_batches), max(1, _ORDER_BLOCKS // n_blocks))
    n_steps = min(n_passes * n_batches, n_left)
    order = np.concatenate([rng.permutation(n_blocks) for _ in range(n_passes)])
    order = order[: n_steps * n_blocks // n_batches]
    return Visit(chunks.packed(number), order, max(1, n_steps), n_steps)
