"""The local gate: a softmax over a small network, trained in the fused kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from localma._types import Array, Float32, Float64, RandomState, RowMask, Rows
from localma.equations import empirical_risk, pin_last
from localma.errors import FileFormatError, InvalidInputError
from localma.gates.base import (
    COUNT,
    FINITE,
    FLAG,
    POSITIVE,
    SHRINKAGE,
    Arrays,
    Folds,
    Gate,
    Job,
    Rule,
    Saved,
    check_inputs,
    check_table,
    integer_seed,
    is_count,
    is_number,
)
from localma.gates.constant import anchor_and_scale, disagreement, floored
from localma.gates.fused.chunks import Chunks
from localma.gates.fused.engine import block_size, evaluate
from localma.gates.fused.networks import Ensemble, Network, Stack
from localma.gates.fused.trainer import Progress, Training, advance, block_of_batch
from localma.gates.labelled import Inputs, Labelled, plain_arrays
from localma.tables.frames import LARGE_ROWS

START_SHARE = 0.3
"""Share of equal weights in the start of a training; see decision 27."""

FULL_STEPS = 800
"""Default number of steps of a training over all rows."""

LARGEST_DECAY = 1e12
"""Largest weight decay per unit of the loss; its square is finite in single precision."""

PAPER_DECAY = 0.0047
"""Relative decay of the paper's gate; decision 8 describes how it was found."""

DECAY_ROWS = 300
"""Number of rows at which the relative decay is not rescaled."""

BATCH_ROWS = 384
"""Default number of rows of a batch in large samples."""

BATCH_STEPS, PASSES = 3000, 2
"""Least steps, and least passes over all rows, of a training over batches by default."""


def batch_steps(n_rows: int, batch: int) -> int:
    """Default number of steps of a training over batches.

    >>> batch_steps(20_000, 384), batch_steps(1_000_000, 384)
    (3000, 5209)
    """
    return max(BATCH_STEPS, -(-PASSES * n_rows // batch))


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class MLPGate(Gate):
    """Local weights: a softmax over a network of ReLU layers, the paper's ``w(x)``.

    ``w(x) = softmax(log w_global + d(x))``, where the network ``d`` minimises

    ``mean_i s_i loss(y_i, sum_m w_m(x_i) P_im) / c + shrinkage * sum_j theta_j^2``

    by Adam, over the whole sample or over mini-batches of it. The sum is over all parameters but
    the biases of the output. So shrinkage pulls towards constant weights, and at infinity the gate
    *is* the global gate. The scale ``c`` is the mean loss of the global weights, so that the effect
    of `shrinkage` does not depend on the unit of the target. With several outputs, the loss of a
    row is the mean over them.

    Training works in single precision, in a kernel that Numba compiles once per machine.

    Parameters
    ----------
    hidden : tuple of int
        Units of each hidden layer; () is a linear gate.
    activation : {"relu", "identity"}
        Activation of the hidden units. With "identity" and one hidden layer the gate is linear,
        factored into two matrices. Shrinking both shrinks the singular values, and finds low ranks.
    shrinkage : float
        Strength of the pull to the global weights, at least 0; `inf` gives exactly these.
    learning_rate : float
        Learning rate of Adam at the first step.
    n_steps : int, optional
        Steps of Adam, each over all rows or over a batch. By default 800 over all rows. Over
        batches it is 3,000, or two passes over the sample if these are more steps.
    batch_size : int or "all", optional
        Rows of a step, rounded to whole blocks of rows. By default all rows below 20,000 rows, and
        384 in larger samples. The order of the batches depends on `random_state`. Inputs are read
        one chunk at a time: they may lie in mapped memory, and no copy of the sample is made.
    schedule : {"cosine", "constant"}
        "cosine" lowers the learning rate to about zero at the end, so that training converges.
    weight_decay : float
        L2 weight decay inside Adam, as in PyTorch: each step adds `weight_decay` times all
        parameters to the gradient of the mean loss, which is not scaled. It does not pull to the
        global weights.
    relative_decay : float
        The same in a unit that does not depend on that of the target, and less of it in larger
        samples: each step adds ``relative_decay * a * (300 / n)^(1/4)`` times all parameters. The
        unit ``a`` is the candidates' disagreement: their mean loss minus the loss of their equal
        average. For squared error it is the variance of the predictions of a row. `MLPGate.paper`
        needs it.
    logit_bound : float, optional
        The paper's bound B on the logits, which become ``B tanh(g / B)``.
    n_restarts : int
        Number of networks from different starts, whose weights are averaged.
    start : {"global", "random"}
        "global" starts at seven parts of the global weights and three parts of equal weights, so
        that a candidate with a small global weight can come back soon; "random" draws all
        parameters as PyTorch does.
    standardize : bool
        Whether inputs are centred and scaled by their weighted mean and standard deviation.
    tol : float
        Training over all rows ends early when the norm of the objective's gradient falls below
        `tol`; 0 turns this off. Each training ends separately.
    n_jobs : int, optional
        Number of threads; by default the number of cores. The result does not depend on it.
    random_state : int, RandomState instance or None
        Seed of the starts, and of the batches.

    Attributes
    ----------
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.
    parameters_ : (n_restarts, n_parameters) float32 array
        Weights and biases of each network; no rows if the gate is the global one.
    mean_, scale_ : (p,) arrays
        Mean and scale that standardise the inputs.
    loss_scale_ : float
        The ``c`` of the objective.
    n_steps_ : (n_restarts,) int array
        Number of steps of each training.
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

    hidden: Sequence[int] = (16,)
    _: KW_ONLY
    activation: str = "relu"
    shrinkage: float = 0.003
    learning_rate: float = 0.01
    n_steps: int | None = None
    batch_size: int | str | None = None
    schedule: str = "cosine"
    weight_decay: float = 0.0
    relative_decay: float = 0.0
    logit_bound: float | None = None
    n_restarts: int = 1
    start: str = "global"
    standardize: bool = True
    tol: float = 1e-4
    n_jobs: int | None = None
    random_state: RandomState = None

    state: ClassVar[tuple[Saved, ...]] = (
        Saved("global_weights", "M", on_simplex=True),
        Saved("parameters", "RT", np.float32),
        Saved("mean", "p"),
        Saved("scale", "p"),
        Saved("loss_scale"),
        Saved("n_steps", "R", np.int64),
    )
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "activation": ("relu", "identity"),
        "schedule": ("cosine", "constant"),
        "start": ("global", "random"),
    }
    _rules: ClassVar[Mapping[str, Rule]] = {
        "hidden": COUNT.each(
            "a sequence of positive integers, such as (16,) for one layer or () for a linear gate"
        ),
        "shrinkage": SHRINKAGE,
        "learning_rate": POSITIVE,
        "n_steps": COUNT.or_none(),
        "batch_size": Rule(
            lambda value: value is None or value == "all" or is_count(value),
            "a positive integer, 'all' or None",
        ),
        "weight_decay": FINITE,
        "relative_decay": FINITE,
        "logit_bound": POSITIVE.or_none(),
        "n_restarts": COUNT,
        "standardize": FLAG,
        "tol": FINITE,
        "n_jobs": Rule(
            lambda value: value is None or (is_number(value) and is_count(abs(value))),
            "None or an integer that is not 0",
        ),
    }

    @classmethod
    def paper(
        cls,
        hidden: Sequence[int] = (16,),
        *,
        logit_bound: float | None = 3.0,
        random_state: RandomState = None,
    ) -> Self:
        """Make the gate of the paper: no shrinkage, Adam at rate 0.01 for 800 full-batch steps.

        The paper describes neither its regularisation nor its bound on the logits. Both are our
        reconstruction, not the authors' values: they were chosen because they reproduce the paper's
        tables (decision 8). The unit of the target does not matter. Every step is over all rows.
        With a million rows or more, use `MLPGate` itself.

        Parameters
        ----------
        hidden : tuple of int
            Units of each hidden layer.
        logit_bound : float, optional
            The paper's bound B on the logits; None for no bound.
        random_state : int, RandomState instance or None
            Seed of the start.

        Returns
        -------
        MLPGate
            The gate, not yet fitted.

        Examples
        --------
        >>> MLPGate.paper().logit_bound
        3.0

        The first version of this gate had a fixed weight decay, in the unit of the loss:

        >>> gate = MLPGate.paper(logit_bound=None)
        >>> gate.set_params(weight_decay=0.05, relative_decay=0.0).weight_decay
        0.05
        """
        return cls(
            hidden,
            shrinkage=0.0,
            n_steps=FULL_STEPS,
            batch_size="all",
            schedule="constant",
            relative_decay=PAPER_DECAY,
            logit_bound=logit_bound,
            start="random",
            tol=0.0,
            random_state=random_state,
        )

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Train the networks.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Not used.

        Returns
        -------
        MLPGate
            The fitted gate.
        """
        # The seed of the job is not used: that of the gate need not be an integer.
        fit_gates([self], data, [Job(None, self.shrinkage, 0, global_weights)])
        return self

    def fit_jobs(self, data: Labelled, jobs: Sequence[Job]) -> list[Self]:
        """Train one copy of this gate per job, all at once; jobs with the same rows share them.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        jobs : sequence of Job
            The rows, shrinkage and seed of each training.

        Returns
        -------
        list of MLPGate
            The fitted gates, in the order of the jobs.
        """
        template = clone(self)
        gates = [template.with_job(job.shrinkage, job.random_state) for job in jobs]
        fit_gates(gates, data, jobs)
        return gates

    def with_job(self, shrinkage: float, seed: int) -> Self:
        """Copy this gate with another shrinkage and seed.

        `clone` would take a tenth of the time of a small training.

        Parameters
        ----------
        shrinkage : float
            The shrinkage of the copy.
        seed : int
            The seed of the copy.

        Returns
        -------
        MLPGate
            The copy, not yet fitted.
        """
        changes = {"shrinkage": shrinkage, "random_state": seed}
        return type(self)(**self.get_params(deep=False) | changes)

    def parameters_without(self, kept: RowMask) -> Float32:
        """Return the parameters of the fitted networks, for some of the candidates.

        Parameters
        ----------
        kept : bool array of shape (M,)
            The candidates to keep.

        Returns
        -------
        array of shape (R, n_parameters)
            The parameters of each network.
        """
        network = self._network(self.n_features_in_, len(kept))
        rows = [network.keep_candidates(theta, kept) for theta in self.parameters_]
        return np.array(rows, dtype=np.float32)

    def reads_in_parts(self, n_rows: int, n_groups: int | None = None) -> bool:
        """Tell whether training goes over mini-batches.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_groups : int, optional
            Number of groups; None if rows are independent.

        Returns
        -------
        bool
            Whether a batch is smaller than the sample.
        """
        return self.batch_rows(n_rows) is not None

    def batch_rows(self, n_rows: int) -> int | None:
        """Return the number of rows of a batch in a sample of some size.

        Parameters
        ----------
        n_rows : int
            Number of rows of the sample.

        Returns
        -------
        int or None
            Rows of a batch; None if a batch is the whole sample.

        Examples
        --------
        >>> MLPGate().batch_rows(1_000), MLPGate().batch_rows(1_000_000)
        (None, 384)
        """
        batch = self.batch_size
        if batch is None:
            batch = BATCH_ROWS if n_rows >= LARGE_ROWS else "all"
        if isinstance(batch, str) or batch >= n_rows:
            return None
        return int(batch)

    def predict_weights(self, X: Inputs) -> Array:
        """Return the weights of each row.

        Parameters
        ----------
        X : (n, p) array
            The inputs.

        Returns
        -------
        (n, M) array
            The weights: non-negative, with sum one in each row.
        """
        return self._evaluate(X)

    def average(self, X: Inputs, P: Array) -> Array:
        """Average predictions with the weights of each row, in one pass.

        Parameters
        ----------
        X : (n, p) array
            The inputs.
        P : (n, M) or (n, M, K) array
            Predictions of the candidates.

        Returns
        -------
        (n,) or (n, K) array
            The averages.
        """
        return self._evaluate(X, P)

    def logits(self, X: Inputs) -> Array:
        """Return the logits of each row, shifted so that the last one is zero.

        They are logarithms of the weights: a weight of exactly zero gives ``-inf``.

        Parameters
        ----------
        X : (n, p) array
            The inputs.

        Returns
        -------
        (n, M) array
            The logits.
        """
        with np.errstate(divide="ignore"):
            return pin_last(np.log(self.predict_weights(X)))

    def objective(self, data: Labelled) -> Float64:
        """Compute the objective of training for each network.

        Parameters
        ----------
        data : Labelled
            The sample on which the gate was fitted.

        Returns
        -------
        (n_restarts,) array
            The values.
        """
        check_is_fitted(self)
        M = data.n_candidates
        network = self._network(data.n_inputs, M)
        values = []
        for theta in self.parameters_:
            stack = Stack.of(np.zeros(M), [self._ensemble(1.0, theta[np.newaxis])])
            mixture = evaluate(stack, data.table[:], P=data.P, n_jobs=self.n_jobs)
            risk = empirical_risk(data.loss, data.y, mixture, data.sample_weight)
            norm = np.sum(np.delete(theta, network.output_bias) ** 2, dtype=np.float64)
            values.append(risk / self.loss_scale_ + self.shrinkage * norm)
        return np.array(values)

    def _lengths(self, arrays: Arrays) -> dict[str, int]:
        p, M = (np.size(arrays.get(name, ())) for name in ("mean", "global_weights"))
        return {"T": self._network(p, M).n_parameters}

    def _check_state(self) -> None:
        if not (self.scale_ > 0).all() or not self.loss_scale_ > 0:
            raise FileFormatError("'scale' and 'loss_scale' of MLPGate must be positive numbers.")
        self.n_features_in_ = len(self.mean_)

    @property
    def _state_owner(self) -> str:
        return f"MLPGate with hidden={tuple(self.hidden)}"

    def _evaluate(self, X: Inputs, P: Array | None = None) -> Array:
        check_is_fitted(self)
        inputs, P, *_ = plain_arrays(X, P)
        check_inputs(self, inputs)
        # The stack is made at the first prediction after a fit.
        parameters, stack = vars(self).get("_stacked", (None, None))
        if parameters is not self.parameters_:
            stack = stacked(np.zeros(len(self.global_weights_)), [self], [1.0])
            self._stacked = (self.parameters_, stack)
        return evaluate(stack, inputs, P=P, n_jobs=self.n_jobs)

    def _ensemble(self, share: float, thetas: Float32) -> Ensemble:
        """Some networks of this gate, for a stack."""
        network = self._network(self.n_features_in_, len(self.global_weights_))
        return Ensemble(network, thetas, self.mean_, self.scale_, self.logit_bound, share)

    def _network(self, n_inputs: int, n_candidates: int) -> Network:
        leak = float(self.activation == "identity")
        return Network((n_inputs, *self.hidden, n_candidates), leak)

    def _start(self, network: Network, rng: np.random.Generator, anchor: Array) -> Float32:
        """Draw the start of a training; `anchor` (M,) are the global weights."""
        if self.start == "random":
            return network.random(rng)
        logits = np.log(floored(anchor, START_SHARE))
        if self.logit_bound is not None:
            middle = (logits.max() + logits.min()) / 2.0
            inside = np.clip((logits - middle) / self.logit_bound, -0.99, 0.99)
            logits = self.logit_bound * np.arctanh(inside)
        return network.random_but_constant(rng, logits)

    def _rates(self, n_rows: int, batch: int | None) -> Float32:
        """Learning rate of each step, over batches or over all rows."""
        n_steps = self.n_steps or (FULL_STEPS if batch is None else batch_steps(n_rows, batch))
        rates = np.full(n_steps, self.learning_rate)
        if self.schedule == "cosine":
            rates *= (1.0 + np.cos(np.pi * np.arange(n_steps) / n_steps)) / 2.0
        return rates.astype(np.float32)

    def _decay(self, network: Network) -> Float32:
        """Factor of each parameter that Adam adds to the gradient of the scaled loss."""
        pull = min(self._loss_decay / self.loss_scale_, LARGEST_DECAY)
        decay = np.full(network.n_parameters, pull)
        decay[: network.output_bias.start] += 2.0 * self.shrinkage
        return decay.astype(np.float32)


def stacked(constant: Array, gates: Sequence[MLPGate], shares: Sequence[float]) -> Stack:
    """Weights ``constant + sum_g share_g w_g(x)`` of fitted gates as one stack of networks.

    constant : (M,); a gate at infinite shrinkage adds to it.
    """
    ensembles = []
    for gate, share in zip(gates, shares, strict=True):
        if len(gate.parameters_):
            ensembles.append(gate._ensemble(share, gate.parameters_))
        else:
            constant = constant + share * gate.global_weights_
    return Stack.of(constant, ensembles)


def fit_gates(gates: Sequence[MLPGate], data: Labelled, jobs: Sequence[Job]) -> None:
    """Fit each gate to the rows of its job, all networks of all gates side by side.

    The gates differ only in shrinkage and seed.
    """
    check_table(data.X)
    for gate in gates:
        gate._check_parameters()
    same_rows: dict[int, list[tuple[MLPGate, Job]]] = {}
    for gate, job in zip(gates, jobs, strict=True):
        same_rows.setdefault(id(job.rows), []).append((gate, job))
    by_seed: dict[int, list[Training]] = {}
    for members in same_rows.values():
        chunks = chunks_for(gates[:1], data, members[0][1].rows)
        anchors: dict[int, tuple[Float64, float]] = {}
        for gate, job in members:
            key, seed = id(job.global_weights), integer_seed(gate.random_state)
            if key not in anchors:
                anchors[key] = anchor_and_scale(data, job.rows, job.global_weights)
            by_seed.setdefault(seed, []).extend(begin(gate, chunks, *anchors[key], seed))
    for seed, trainings in by_seed.items():
        advance(trainings, 1.0, seed=(seed,), n_jobs=gates[0].n_jobs)
        for training in trainings:
            training.store()


def chunks_for(gates: Sequence[MLPGate], data: Labelled, rows: Rows | None) -> Chunks:
    """Cut some rows of a sample into chunks with blocks of a size that suits all gates.

    The gates must have the same size of batches and the same `standardize`.
    """
    p, M, K = data.n_inputs, *data.P.shape[1:]
    block = min(block_size(gate._network(p, M), K) for gate in gates)
    batch = gates[0].batch_rows(len(data.y))
    if batch is not None:
        block = block_of_batch(block, batch)
    return Chunks.of(data, rows, block, standardize=gates[0].standardize, whole=batch is None)


def begin(
    gate: MLPGate, chunks: Chunks, anchor: Float64, loss_scale: float, seed: int
) -> list[Training]:
    """Set the attributes of a gate that need no training, and start a training per network."""
    layout, data = chunks.layout, chunks.data
    network = gate._network(data.n_inputs, data.n_candidates)
    n_networks = gate.n_restarts
    if np.isinf(gate.shrinkage) or len(anchor) == 1:
        n_networks = 0
    gate.global_weights_, gate.loss_scale_ = anchor, loss_scale
    gate._loss_decay = gate.weight_decay
    if gate.relative_decay > 0.0:
        unit = disagreement(data, chunks.chunks[0].rows)
        gate._loss_decay += gate.relative_decay * unit * (DECAY_ROWS / chunks.n_rows) ** 0.25
    gate.mean_, gate.scale_ = layout.mean, layout.scale
    gate.n_features_in_ = len(layout.mean)
    gate.parameters_ = np.empty((n_networks, network.n_parameters), dtype=np.float32)
    gate.n_steps_ = np.zeros(n_networks, dtype=np.int64)
    batch = gate.batch_rows(len(data.y))
    rates, decay = gate._rates(chunks.n_rows, batch), gate._decay(network)
    trainings = []
    for i, rng in enumerate(np.random.default_rng(seed).spawn(n_networks)):
        start = Progress.at(gate._start(network, rng, anchor[layout.candidates]), decay)
        trainings.append(Training(gate, i, network, chunks, batch, start, rates))
    return trainings


def theorem_architecture(
    n: int,
    p: int,
    *,
    smoothness: float = 1.0,
    tail_index: float = 1.0,
    depth_constant: float = 1.0,
    width_constant: float = 1.0,
) -> tuple[int, ...]:
    """Return the hidden layers of the network in Theorems 1 to 3, for `MLPGate(hidden=...)`.

    Depth ``D = n^a ceil(log2(8 n^a))`` with ``a = 1 / (4 gamma + 4)``, and width
    ``p^(floor(kappa) + 1)``, each times a constant that the theorems leave open. A network of
    depth D has D - 1 hidden layers. Such networks are deep and narrow, and often do not train. A
    smaller depth and a larger width, by other constants, are of the same order.

    Parameters
    ----------
    n : int
        Number of rows.
    p : int
        Number of inputs.
    smoothness : float
        The kappa of the Hölder class of the weight functions. Its floor is the largest integer
        strictly below it.
    tail_index : float
        The gamma of the sub-Weibull loss: 0 bounded, 1/2 sub-Gaussian, 1 sub-exponential.
    depth_constant, width_constant : float
        The factors of depth and width that the theorems leave open.

    Returns
    -------
    tuple of int
        Units of each hidden layer.

    Examples
    --------
    >>> theorem_architecture(10_000, 5)
    (5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5)
    >>> theorem_architecture(100, 5, smoothness=2.0, tail_index=0.5)[:2]
    (25, 25)
    >>> theorem_architecture(10_000, 5, depth_constant=0.2, width_constant=8.0)
    (40, 40, 40)
    """
    for name, value, least in (("n", n, 1), ("p", p, 1), ("tail_index", tail_index, 0)):
        if not value >= least:
            raise InvalidInputError(f"{name} must be at least {least}; received {value!r}.")
    for name, value in (
        ("smoothness", smoothness),
        ("depth_constant", depth_constant),
        ("width_constant", width_constant),
    ):
        if not value > 0:
            raise InvalidInputError(f"{name} must be positive; received {value!r}.")
    growth = n ** (1.0 / (4.0 * tail_index + 4.0))
    depth = math.ceil(depth_constant * growth * math.ceil(math.log2(8.0 * growth)))
    width = math.ceil(width_constant * p ** math.ceil(smoothness))
    return (width,) * max(depth - 1, 1)
