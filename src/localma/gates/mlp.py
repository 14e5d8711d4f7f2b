"""The local gate: a softmax over a small network, trained in the fused kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from localma.equations import empirical_risk, pin_last
from localma.errors import FileFormatError, InvalidInputError
from localma.folds import Fold
from localma.gates._anchor import anchor_and_scale, floored
from localma.gates._chunks import Chunks, Layout, Table, large_anchor
from localma.gates._engine import Progress, block_size, compile_loss, evaluate, in_threads, train
from localma.gates._minibatch import (
    BATCH_ROWS,
    BatchTraining,
    advance,
    batch_steps,
    block_of_batch,
    check_finite,
)
from localma.gates._network import Float32, Network
from localma.gates._packing import (
    Data,
    Float64,
    Sample,
    check_data,
    check_shapes,
    check_weight,
    pack,
)
from localma.gates._stack import Part, Stack
from localma.gates.base import (
    ArrayTypes,
    Gate,
    Job,
    Rules,
    check_arrays,
    check_inputs,
    check_numbers,
    check_rules,
    is_count,
    is_number,
    plain_arrays,
    simplex_weights,
)
from localma.losses import Loss
from localma.tables.frames import LARGE_ROWS

Array = NDArray[np.floating]

FULL_STEPS = 800
"""Steps of a training over all rows where none are asked for."""


LARGEST_DECAY = 1e12
"""Weight decay per unit of the loss beyond which the loss counts for nothing; its square is finite
in single precision."""


class MLPGate(Gate):
    """Local weights: a softmax over a network of ReLU layers, the paper's ``w(x)``.

    ``w(x) = softmax(log w_global + d(x))``, where the network ``d`` minimises

    ``mean_i s_i loss(y_i, sum_m w_m(x_i) P_im) / c + shrinkage * sum_j theta_j^2``

    by Adam, over the whole sample or over mini-batches of it. The sum is over all parameters but
    the biases of the output, so shrinkage pulls towards constant weights, and at infinity the gate
    *is* the global gate.
    The scale ``c`` is the mean loss of the global weights: the same shrinkage means the same
    whatever the unit of the target. With several outputs the loss of a row is the mean over them.

    Training works in single precision, in a kernel that Numba compiles once per machine.

    Parameters
    ----------
    hidden : tuple of int
        Units of each hidden layer; () is a linear gate.
    activation : {"relu", "identity"}
        What hidden units do. With "identity" and one hidden layer the gate is linear, factored
        into two matrices: shrinkage of both acts on its singular values, and finds low ranks.
    shrinkage : float
        At least 0; `inf` gives exactly the global weights.
    learning_rate : float
        Adam's, at the first step.
    n_steps : int, optional
        Steps of Adam, each over all rows or over a batch. By default 800 over all rows; over
        batches 3,000, or two passes over the sample where those are more steps.
    batch_size : int or "all", optional
        Rows of a step; whole blocks of rows are taken, so it is met up to rounding. By default
        all of them below 20,000 rows, and 384 from there on. Batches are drawn in an order that
        depends on `random_state`, and inputs are read a chunk at a time: they may lie in mapped
        memory, and nothing of the size of the sample is copied.
    schedule : {"cosine", "constant"}
        "cosine" lowers the learning rate to about zero at the end, so that training converges.
    weight_decay : float
        L2 weight decay inside Adam, as in PyTorch's: each step adds `weight_decay` times the
        parameters, all of them, to the gradient of the mean loss, which is not scaled. It knows
        nothing of the global weights; `MLPGate.paper` needs it.
    logit_bound : float, optional
        The paper's bound B on the logits, which become ``B tanh(g / B)``.
    n_restarts : int
        Networks trained from different starts, whose weights are averaged.
    start : {"global", "random"}
        "global" starts at the global weights (mixed with a hundredth of equal weights, since the
        logarithm of zero is not finite); "random" draws every parameter as PyTorch does.
    standardize : bool
        Whether inputs are centred and scaled by their weighted mean and standard deviation.
    tol : float
        Training over all rows ends early when the norm of the objective's gradient falls below
        `tol`; 0 turns this off. Each training is judged alone.
    n_jobs : int, optional
        Threads; by default as many as there are cores. The result does not depend on it.
    random_state : int, RandomState instance or None
        Seed of the starts, and of the batches.

    Attributes
    ----------
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.
    parameters_ : (n_restarts, n_parameters) float32 array
        Weights and biases of each network; without a row where the gate is the global one.
    mean_, scale_ : (p,) arrays
        What inputs are standardised by.
    loss_scale_ : float
        The ``c`` of the objective.
    n_steps_ : (n_restarts,) int array
        Steps that each training took.
    n_features_in_ : int
        The number p of inputs.

    Examples
    --------
    The first candidate is right on the left, the second on the right:

    >>> from localma.losses import squared_error
    >>> x = np.linspace(-2, 2, 200)
    >>> P, y = np.stack([-x, x], axis=1)[:, :, np.newaxis], np.abs(x)[:, np.newaxis]
    >>> gate = MLPGate(random_state=0).fit(x[:, np.newaxis], P, y, loss=squared_error())
    >>> gate.predict_weights(np.array([[-1.5], [1.5]])).argmax(axis=1).tolist()
    [0, 1]
    """

    def __init__(
        self,
        hidden: Sequence[int] = (16,),
        *,
        activation: str = "relu",
        shrinkage: float = 0.003,
        learning_rate: float = 0.01,
        n_steps: int | None = None,
        batch_size: int | str | None = None,
        schedule: str = "cosine",
        weight_decay: float = 0.0,
        logit_bound: float | None = None,
        n_restarts: int = 1,
        start: str = "global",
        standardize: bool = True,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.shrinkage = shrinkage
        self.learning_rate = learning_rate
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.logit_bound = logit_bound
        self.n_restarts = n_restarts
        self.start = start
        self.standardize = standardize
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def paper(
        cls,
        hidden: Sequence[int] = (16,),
        *,
        logit_bound: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Self:
        """Make the gate of the paper: no shrinkage, Adam at rate 0.01 for 800 full-batch steps.

        The paper does not say how it regularises. The weight decay of 0.05 is inferred: it
        reproduces the paper's tables, which training without it does not. Every step is over all
        rows, however many there are: at a million rows and more, better take `MLPGate` itself.

        >>> MLPGate.paper().weight_decay
        0.05
        """
        return cls(
            hidden,
            shrinkage=0.0,
            n_steps=FULL_STEPS,
            batch_size="all",
            schedule="constant",
            weight_decay=0.05,
            logit_bound=logit_bound,
            start="random",
            tol=0.0,
            random_state=random_state,
        )

    def fit(
        self,
        X: Array,
        P: Array,
        y: Array,
        *,
        loss: Loss,
        sample_weight: Array | None = None,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Train the networks; `folds` play no part. See `Gate.fit`."""
        # The seed of the job is not read: that of the gate need not be an integer.
        job = Job(None, self.shrinkage, 0, global_weights)
        self._fit_gates([self], X, P, y, loss, [job], sample_weight)
        return self

    def fit_jobs(
        self,
        X: Array,
        P: Array,
        y: Array,
        *,
        loss: Loss,
        jobs: Sequence[Job],
        sample_weight: Array | None = None,
    ) -> list[Self]:
        """Train one copy of this gate per job, all at once; jobs with the same rows share them."""
        same = clone(self).get_params(
            deep=False
        )  # once: to clone costs a tenth of a small training
        gates = [
            type(self)(**same | {"shrinkage": job.shrinkage, "random_state": job.random_state})
            for job in jobs
        ]
        self._fit_gates(gates, X, P, y, loss, jobs, sample_weight)
        return gates

    def _fit_gates(
        self,
        gates: Sequence[MLPGate],
        X: Array,
        P: Array,
        y: Array,
        loss: Loss,
        jobs: Sequence[Job],
        sample_weight: Array | None,
    ) -> None:
        """Fit a gate to each job, over all rows or over mini-batches of them."""
        X, P, y, sample_weight = plain_arrays(X, P, y, sample_weight)
        check_numbers(X)
        for gate in gates:
            gate._check_parameters()
        if gates and self.batch_rows(len(y)) is None:
            data = check_data(X, P, y, sample_weight, location=loss.location)
            _fit_together(gates, data, loss, jobs)
        elif gates:
            check_shapes(X, P, y)
            table = Table(X, P, y, check_weight(sample_weight, len(y)), loss.location)
            _fit_on_batches(gates, table, loss, jobs)

    def reads_in_parts(self, n_rows: int, n_groups: int | None = None) -> bool:
        """Whether training goes over mini-batches."""
        return self.batch_rows(n_rows) is not None

    def batch_rows(self, n_rows: int) -> int | None:
        """Rows of a batch where the sample has so many; None if it is trained as a whole.

        >>> MLPGate().batch_rows(1_000), MLPGate().batch_rows(1_000_000)
        (None, 384)
        """
        if isinstance(self.batch_size, str):
            return None
        if self.batch_size is None:
            return BATCH_ROWS if n_rows >= LARGE_ROWS else None
        return None if self.batch_size >= n_rows else int(self.batch_size)

    def predict_weights(self, X: Array) -> Array:
        """Weights of each row: (n, p) -> (n, M), non-negative, summing to one."""
        return self._evaluate(X)

    def average(self, X: Array, P: Array) -> Array:
        """Predictions averaged with the weights: (n, p), (n, M[, K]) -> (n[, K]), in one pass."""
        return self._evaluate(X, P)

    def logits(self, X: Array) -> Array:
        """Logits of each row: (n, p) -> (n, M), shifted so that the last one is zero.

        They are logarithms of the weights, so a global weight of exactly zero gives ``-inf``.
        """
        with np.errstate(divide="ignore"):
            return pin_last(np.log(self.predict_weights(X)))

    def objective(
        self, X: Array, P: Array, y: Array, *, loss: Loss, sample_weight: Array | None = None
    ) -> NDArray[np.float64]:
        """What training minimises, at each network: -> (n_restarts,). Arguments as in `fit`."""
        check_is_fitted(self)
        network = self._network(X.shape[1], P.shape[1])
        values = []
        for theta in self.parameters_:
            stack = Stack.of(np.zeros(P.shape[1]), [self._part(1.0, theta[np.newaxis])])
            mixture = evaluate(stack, X, P=P, n_jobs=self.n_jobs)
            risk = empirical_risk(loss, y, mixture, sample_weight)
            norm = np.sum(np.delete(theta, network.output_bias) ** 2, dtype=np.float64)
            values.append(risk / self.loss_scale_ + self.shrinkage * norm)
        return np.array(values)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The fitted state: what `restore` takes."""
        check_is_fitted(self)
        return {
            "global_weights": self.global_weights_,
            "parameters": self.parameters_,
            "mean": self.mean_,
            "scale": self.scale_,
            "loss_scale": np.array(self.loss_scale_),
            "n_steps": self.n_steps_,
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> Self:
        """Take the fitted state back from `arrays`, checking names and shapes."""
        self._check_parameters()
        n_inputs, n_candidates, n_networks = (
            (*np.shape(arrays.get(name, ())), 0)[0]
            for name in ("mean", "global_weights", "n_steps")
        )
        network = self._network(n_inputs, n_candidates)
        expected: ArrayTypes = {
            "global_weights": ("f", (n_candidates,)),
            "parameters": ("f", (n_networks, network.n_parameters)),
            "mean": ("f", (n_inputs,)),
            "scale": ("f", (n_inputs,)),
            "loss_scale": ("f", ()),
            "n_steps": ("iu", (n_networks,)),
        }
        check_arrays(arrays, expected, f"MLPGate with hidden={tuple(self.hidden)}")
        if not (arrays["scale"] > 0).all() or not arrays["loss_scale"] > 0:
            raise FileFormatError("'scale' and 'loss_scale' of MLPGate must be positive numbers.")
        self.global_weights_ = simplex_weights(arrays["global_weights"], "global_weights")
        self.parameters_ = np.asarray(arrays["parameters"], dtype=np.float32)
        self.mean_ = np.asarray(arrays["mean"], dtype=np.float64)
        self.scale_ = np.asarray(arrays["scale"], dtype=np.float64)
        self.loss_scale_ = float(arrays["loss_scale"])
        self.n_steps_ = np.asarray(arrays["n_steps"])
        self.n_features_in_ = n_inputs
        return self

    def _evaluate(self, X: Array, P: Array | None = None) -> Array:
        check_is_fitted(self)
        X, P, *_ = plain_arrays(X, P)
        check_inputs(self, X)
        return evaluate(self._stack(), X, P=P, n_jobs=self.n_jobs)

    def _stack(self) -> Stack:
        """Its networks for the kernel, made at the first prediction after a fit."""
        made_of, stack = vars(self).get("_made", (None, None))
        if made_of is not self.parameters_:
            stack = stacked(np.zeros(len(self.global_weights_)), [self], [1.0])
            self._made = (self.parameters_, stack)
        assert stack is not None
        return stack

    def _part(self, share: float, thetas: Float32) -> Part:
        """Some of its networks, as a part of a stack."""
        network = self._network(self.n_features_in_, len(self.global_weights_))
        return Part(network, thetas, self.mean_, self.scale_, self.logit_bound, share)

    def _network(self, n_inputs: int, n_candidates: int) -> Network:
        leak = 1.0 if self.activation == "identity" else 0.0
        return Network((n_inputs, *self.hidden, n_candidates), leak)

    def _start(self, network: Network, rng: np.random.Generator, anchor: Array) -> Float32:
        """Parameters at which one training starts; `anchor` (M,) are the global weights."""
        if self.start == "random":
            return network.random(rng)
        logits = np.log(floored(anchor))
        if self.logit_bound is not None:
            middle = (logits.max() + logits.min()) / 2.0
            inside = np.clip((logits - middle) / self.logit_bound, -0.99, 0.99)
            logits = self.logit_bound * np.arctanh(inside)
        return network.random_but_constant(rng, logits)

    def _rates(self, n_steps: int = FULL_STEPS) -> Float32:
        """Learning rate of each step; `n_steps` of them if the gate has no number of its own."""
        n_steps = n_steps if self.n_steps is None else self.n_steps
        rates = np.full(n_steps, self.learning_rate)
        if self.schedule == "cosine":
            rates *= (1.0 + np.cos(np.pi * np.arange(n_steps) / n_steps)) / 2.0
        return rates.astype(np.float32)

    def _decay(self, network: Network) -> Float32:
        """What Adam's gradient of the scaled loss gets per unit of each parameter."""
        pull = min(self.weight_decay / self.loss_scale_, LARGEST_DECAY)
        decay = np.full(network.n_parameters, pull)
        decay[: network.output_bias.start] += 2.0 * self.shrinkage
        return decay.astype(np.float32)

    def _check_parameters(self) -> None:
        if not _are_layers(self.hidden):
            raise InvalidInputError(
                f"hidden of MLPGate must be a sequence of positive integers; received "
                f"{self.hidden!r}. Take (16,) for one layer of 16 units, () for a linear gate."
            )
        check_rules(self, _CHOICES, _RULES)


def stacked(constant: Array, gates: Sequence[MLPGate], shares: Sequence[float]) -> Stack:
    """Weights ``constant + sum_g share_g w_g(x)`` of fitted gates as one stack of networks.

    constant : (M,); a gate at infinite shrinkage adds to it.
    """
    members = list(zip(gates, shares, strict=True))
    for gate, share in members:
        if len(gate.parameters_) == 0:
            constant = constant + share * gate.global_weights_
    return Stack.of(
        constant,
        [gate._part(share, gate.parameters_) for gate, share in members if len(gate.parameters_)],
    )


def _are_layers(hidden: Any) -> bool:
    listed = isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str)
    return listed and all(is_count(units) for units in hidden)


_CHOICES = {
    "activation": ("relu", "identity"),
    "schedule": ("cosine", "constant"),
    "start": ("global", "random"),
}
_RULES: Rules = (
    (
        "shrinkage",
        lambda value: is_number(value) and value >= 0.0,
        "at least 0 (infinity is the global gate)",
    ),
    ("learning_rate", lambda value: is_number(value) and 0.0 < value < np.inf, "a positive number"),
    ("n_steps", lambda value: value is None or is_count(value), "a positive integer, or None"),
    (
        "batch_size",
        lambda value: value is None or value == "all" or is_count(value),
        "a positive integer, 'all' or None",
    ),
    (
        "weight_decay",
        lambda value: is_number(value) and 0.0 <= value < np.inf,
        "at least 0 and finite",
    ),
    (
        "logit_bound",
        lambda value: value is None or (is_number(value) and 0.0 < value < np.inf),
        "None or positive",
    ),
    ("n_restarts", is_count, "a positive integer"),
    ("standardize", lambda value: isinstance(value, bool | np.bool_), "True or False"),
    ("tol", lambda value: is_number(value) and 0.0 <= value < np.inf, "at least 0 and finite"),
    (
        "n_jobs",
        lambda value: value is None or is_count(abs(value) if is_number(value) else value),
        "None or an integer that is not 0",
    ),
)


@dataclass(frozen=True)
class _Training:
    """One network to be trained; `run` writes what it finds into the arrays of its gate."""

    gate: MLPGate
    restart: int
    network: Network
    sample: Sample
    start: Float32

    def run(self, derivative: Any) -> None:
        gate = self.gate
        theta, _, n_steps = train(
            self.network,
            self.sample,
            self.start,
            derivative=derivative,
            decay=gate._decay(self.network),
            rates=gate._rates(),
            loss_scale=gate.loss_scale_,
            logit_bound=gate.logit_bound,
            tol=gate.tol,
        )
        check_finite(gate, theta, n_steps)
        order = self.sample.candidates
        gate.parameters_[self.restart] = self.network.reorder_candidates(theta, order)
        gate.n_steps_[self.restart] = n_steps


def _fit_together(gates: Sequence[MLPGate], data: Data, loss: Loss, jobs: Sequence[Job]) -> None:
    """Fit each gate to the rows of its job, all networks of all gates as one batch."""
    network = gates[0]._network(data.X.shape[1], data.P.shape[1])
    block = block_size(network, data.P.shape[2])
    samples: dict[int, Sample] = {}
    anchors: dict[tuple[int, int], tuple[Float64, float]] = {}
    trainings: list[_Training] = []
    for gate, job in zip(gates, jobs, strict=True):
        rows, anchor = id(job.rows), (id(job.rows), id(job.global_weights))
        if rows not in samples:
            samples[rows] = pack(data, job.rows, block, gate.standardize)
        if anchor not in anchors:
            anchors[anchor] = _anchor(data, loss, job)
        seed = _integer(gate.random_state)
        starts = prepare(gate, network, samples[rows], *anchors[anchor], seed)
        trainings += [
            _Training(gate, i, network, samples[rows], start) for i, start in enumerate(starts)
        ]
    if trainings:
        derivative = compile_loss(loss.derivative)
        in_threads(lambda training: training.run(derivative), trainings, gates[0].n_jobs)


def _anchor(data: Data, loss: Loss, job: Job) -> tuple[Float64, float]:
    """Global weights of a job, and the scale of its loss."""
    rows = slice(None) if job.rows is None else job.rows
    P, y, weight = data.P[rows], data.y[rows], data.weight[rows]
    return anchor_and_scale(P, y, weight, loss, job.global_weights)


def prepare(
    gate: MLPGate,
    network: Network,
    packed: Sample | Layout,
    anchor: Float64,
    loss_scale: float,
    seed: int,
) -> list[Float32]:
    """Set what needs no training, and give the starts of the trainings that the gate needs."""
    constant = np.isinf(gate.shrinkage) or len(anchor) == 1
    n_networks = 0 if constant else gate.n_restarts
    gate.global_weights_, gate.loss_scale_ = anchor, loss_scale
    gate.mean_, gate.scale_ = packed.mean, packed.scale
    gate.n_features_in_ = len(packed.mean)
    gate.parameters_ = np.empty((n_networks, network.n_parameters), dtype=np.float32)
    gate.n_steps_ = np.zeros(n_networks, dtype=np.int64)
    return [
        gate._start(network, rng, anchor[packed.candidates])
        for rng in np.random.default_rng(seed).spawn(n_networks)
    ]


def _integer(seed: Any) -> int:
    """The seed itself, or one that it draws."""
    if isinstance(seed, int | np.integer):
        return int(seed)
    return int(check_random_state(seed).randint(2**31))


def _fit_on_batches(
    gates: Sequence[MLPGate], table: Table, loss: Loss, jobs: Sequence[Job]
) -> None:
    """Fit each gate to the rows of its job; those of the same rows and seed side by side."""
    same_rows: dict[int, list[tuple[MLPGate, Job, int]]] = {}
    for gate, job in zip(gates, jobs, strict=True):
        member = (gate, job, _integer(gate.random_state))
        same_rows.setdefault(id(job.rows), []).append(member)
    for members in same_rows.values():
        chunks = chunks_for(gates[:1], table, members[0][1].rows)
        for seed in dict.fromkeys(seed for _, _, seed in members):
            same_seed = [(gate, job) for gate, job, own in members if own == seed]
            _fit_side_by_side(same_seed, chunks, loss, seed)


def _fit_side_by_side(
    members: Sequence[tuple[MLPGate, Job]], chunks: Chunks, loss: Loss, seed: int
) -> None:
    anchors: dict[int, tuple[Float64, float]] = {}
    trainings: list[BatchTraining] = []
    for gate, job in members:
        key = id(job.global_weights)
        if key not in anchors:
            anchors[key] = large_anchor(chunks.table, job.rows, loss, job.global_weights)
        trainings += begin(gate, chunks, *anchors[key], seed)
    derivative, n_jobs = compile_loss(loss.derivative), members[0][0].n_jobs
    advance(trainings, 1.0, seed=(seed,), derivative=derivative, n_jobs=n_jobs)
    for training in trainings:
        training.store()


def chunks_for(gates: Sequence[MLPGate], table: Table, rows: NDArray[np.intp] | None) -> Chunks:
    """Some rows of a table in chunks, their blocks of a size that suits all of the gates.

    They must agree in the size of batches and in whether inputs are standardised.
    """
    p, M, K = table.X.shape[1], *table.P.shape[1:]
    largest = min(block_size(gate._network(p, M), K) for gate in gates)
    block = block_of_batch(largest, gates[0].batch_rows(len(table.y)) or largest)
    return Chunks.of(table, rows, block, standardize=gates[0].standardize, seed=0)


def begin(
    gate: MLPGate, chunks: Chunks, anchor: Float64, loss_scale: float, seed: int
) -> list[BatchTraining]:
    """The trainings by mini-batches that a gate needs, at their starts."""
    table = chunks.table
    network = gate._network(table.X.shape[1], table.P.shape[1])
    batch = gate.batch_rows(len(table.y)) or len(table.y)
    rates = gate._rates(batch_steps(chunks.n_rows, batch))
    starts = prepare(gate, network, chunks.layout, anchor, loss_scale, seed)
    decay = gate._decay(network)
    return [
        BatchTraining(gate, i, network, chunks, batch, Progress.at(start, decay), rates)
        for i, start in enumerate(starts)
    ]
