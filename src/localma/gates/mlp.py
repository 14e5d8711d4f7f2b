"""The local gate: a softmax over a small network, trained in the fused kernel."""

from __future__ import annotations

from collections.abc import Sequence
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
from localma.gates._chunks import Chunks, Float64
from localma.gates._engine import Progress, block_size, compile_loss, evaluate
from localma.gates._network import Float32, Network
from localma.gates._stack import Part, Stack
from localma.gates._trainer import Training, advance, block_of_batch
from localma.gates.base import (
    ArrayTypes,
    Gate,
    Job,
    Rules,
    check_arrays,
    check_inputs,
    check_rules,
    check_table,
    is_count,
    is_number,
    simplex_weights,
)
from localma.gates.labelled import Labelled, plain_arrays
from localma.tables.frames import LARGE_ROWS

Array = NDArray[np.floating]

FULL_STEPS = 800
"""Steps of a training over all rows where none are asked for."""


LARGEST_DECAY = 1e12
"""Weight decay per unit of the loss beyond which the loss counts for nothing; its square is finite
in single precision."""


BATCH_ROWS = 384
BATCH_STEPS, PASSES = 3000, 2
"""Steps of a training over batches: this many, or this many passes over all rows, if more."""


def batch_steps(n_rows: int, batch: int) -> int:
    """Steps of a training over batches if none are asked for.

    >>> batch_steps(20_000, 384), batch_steps(1_000_000, 384)
    (3000, 5209)
    """
    return max(BATCH_STEPS, -(-PASSES * n_rows // batch))


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
    >>> data = Labelled.of(x[:, np.newaxis], P, y, loss=squared_error())
    >>> gate = MLPGate(random_state=0).fit(data)
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
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Train the networks; `folds` play no part. See `Gate.fit`."""
        # The seed of the job is not read: that of the gate need not be an integer.
        job = Job(None, self.shrinkage, 0, global_weights)
        self._fit_gates([self], data, [job])
        return self

    def fit_jobs(self, data: Labelled, jobs: Sequence[Job]) -> list[Self]:
        """Train one copy of this gate per job, all at once; jobs with the same rows share them."""
        same = clone(self).get_params(
            deep=False
        )  # once: to clone costs a tenth of a small training
        gates = [
            type(self)(**same | {"shrinkage": job.shrinkage, "random_state": job.random_state})
            for job in jobs
        ]
        self._fit_gates(gates, data, jobs)
        return gates

    def _fit_gates(self, gates: Sequence[MLPGate], data: Labelled, jobs: Sequence[Job]) -> None:
        """Check the parameters and the inputs, and fit a gate to each job."""
        check_table(data.X)
        for gate in gates:
            gate._check_parameters()
        if gates:
            fit_gates(gates, data, jobs)

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

    def objective(self, data: Labelled) -> NDArray[np.float64]:
        """What training minimises, at each network: -> (n_restarts,)."""
        check_is_fitted(self)
        X, P, M = data.X, data.P, data.n_candidates
        network = self._network(X.shape[1], M)
        values = []
        for theta in self.parameters_:
            stack = Stack.of(np.zeros(M), [self._part(1.0, theta[np.newaxis])])
            mixture = evaluate(stack, X, P=P, n_jobs=self.n_jobs)
            risk = empirical_risk(data.loss, data.y, mixture, data.sample_weight)
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

    def _rates(self, n_rows: int, batch: int | None) -> Float32:
        """Learning rate of each step over a sample, in batches of some rows or as a whole."""
        n_steps = self.n_steps
        if n_steps is None:
            n_steps = FULL_STEPS if batch is None else batch_steps(n_rows, batch)
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


def fit_gates(gates: Sequence[MLPGate], data: Labelled, jobs: Sequence[Job]) -> None:
    """Fit each gate to the rows of its job, all networks of all gates side by side.

    The gates differ in nothing but shrinkage and seed.
    """
    same_rows: dict[int, list[tuple[MLPGate, Job]]] = {}
    for gate, job in zip(gates, jobs, strict=True):
        same_rows.setdefault(id(job.rows), []).append((gate, job))
    by_seed: dict[int, list[Training]] = {}
    for members in same_rows.values():
        chunks = chunks_for(gates[:1], data, members[0][1].rows)
        anchors: dict[int, tuple[Float64, float]] = {}
        for gate, job in members:
            key, seed = id(job.global_weights), _integer(gate.random_state)
            if key not in anchors:
                anchors[key] = anchor_and_scale(data, job.rows, job.global_weights)
            by_seed.setdefault(seed, []).extend(begin(gate, chunks, *anchors[key], seed))
    derivative = compile_loss(data.loss.derivative)
    for seed, trainings in by_seed.items():
        advance(trainings, 1.0, seed=(seed,), derivative=derivative, n_jobs=gates[0].n_jobs)
        for training in trainings:
            training.store()


def chunks_for(gates: Sequence[MLPGate], data: Labelled, rows: NDArray[np.intp] | None) -> Chunks:
    """Some rows of a sample in chunks, their blocks of a size that suits all of the gates.

    The gates must agree in the size of batches and in whether inputs are standardised.
    """
    p, M, K = data.X.shape[1], *data.P.shape[1:]
    block = min(block_size(gate._network(p, M), K) for gate in gates)
    batch = gates[0].batch_rows(len(data.y))
    if batch is not None:
        block = block_of_batch(block, batch)
    return Chunks.of(data, rows, block, standardize=gates[0].standardize, whole=batch is None)


def begin(
    gate: MLPGate, chunks: Chunks, anchor: Float64, loss_scale: float, seed: int
) -> list[Training]:
    """Prepare a gate for training: set what needs none, and start a training per network."""
    layout, data = chunks.layout, chunks.data
    network = gate._network(data.X.shape[1], data.P.shape[1])
    n_networks = gate.n_restarts
    if np.isinf(gate.shrinkage) or len(anchor) == 1:
        n_networks = 0
    gate.global_weights_, gate.loss_scale_ = anchor, loss_scale
    gate.mean_, gate.scale_ = layout.mean, layout.scale
    gate.n_features_in_ = len(layout.mean)
    gate.parameters_ = np.empty((n_networks, network.n_parameters), dtype=np.float32)
    gate.n_steps_ = np.zeros(n_networks, dtype=np.int64)
    batch = gate.batch_rows(len(data.y))
    rates, decay = gate._rates(chunks.n_rows, batch), gate._decay(network)
    starts = [
        gate._start(network, rng, anchor[layout.candidates])
        for rng in np.random.default_rng(seed).spawn(n_networks)
    ]
    return [
        Training(gate, i, network, chunks, batch, Progress.at(start, decay), rates)
        for i, start in enumerate(starts)
    ]


def _integer(seed: Any) -> int:
    """The seed itself, or one that it draws."""
    if isinstance(seed, int | np.integer):
        return int(seed)
    return int(check_random_state(seed).randint(2**31))
