"""The local gate: a softmax over a small network, trained in the fused kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from localma.combine import empirical_risk, global_average, local_average, pin_last
from localma.errors import FileFormatError, InvalidInputError, unknown_name
from localma.folds import Fold
from localma.gates._engine import block_size, compile_loss, evaluate, in_threads, train
from localma.gates._network import Float32, Network
from localma.gates._packing import Data, Float64, Sample, check_data, pack
from localma.gates.base import Gate, Job
from localma.gates.global_ import GlobalGate
from localma.losses import Loss

Array = NDArray[np.floating]

WEIGHT_FLOOR = 0.01
"""Part of the start that equal weights have, so that the logarithm of a zero weight is finite."""

_PREDICT_ROWS = 16384  # rows converted to double precision at once, and given to one thread


class MLPGate(Gate):
    """Local weights: a softmax over a network of ReLU layers, the paper's ``w(x)``.

    ``w(x) = softmax(log w_global + d(x))``, where the network ``d`` minimises

    ``mean_i s_i loss(y_i, sum_m w_m(x_i) P_im) / c + shrinkage * sum_j theta_j^2``

    by Adam over the whole sample. The sum is over all parameters but the biases of the output, so
    shrinkage pulls towards constant weights, and at infinity the gate *is* the global gate.
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
    n_steps : int
        Steps of Adam, each over all rows.
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
        Training ends early when the norm of the objective's gradient falls below `tol`; 0 turns
        this off. Each training is judged alone.
    n_jobs : int, optional
        Threads; by default as many as there are cores. The result does not depend on it.
    random_state : int, RandomState instance or None
        Seed of the starts.

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
        n_steps: int = 800,
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
        reproduces the paper's tables, which training without it does not.

        >>> MLPGate.paper().weight_decay
        0.05
        """
        return cls(
            hidden,
            shrinkage=0.0,
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
        data = check_data(X, P, y, sample_weight)
        # The seed of the job is not read: that of the gate need not be an integer.
        _fit_together([self], data, loss, [Job(None, self.shrinkage, 0, global_weights)])
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
        if gates:
            _fit_together(gates, check_data(X, P, y, sample_weight), loss, jobs)
        return gates

    def predict_weights(self, X: Array) -> Array:
        """Weights of each row: (n, p) -> (n, M), non-negative, summing to one."""
        check_is_fitted(self)
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise InvalidInputError(
                f"This MLPGate was fitted on {self.n_features_in_} inputs; received an array of "
                f"shape {X.shape}. Pass X of shape (n, {self.n_features_in_})."
            )
        if len(self.parameters_) == 0:
            return np.tile(self.global_weights_, (len(X), 1))
        return self._network_weights(X, self.parameters_)

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
            mixture = local_average(self._network_weights(X, theta[np.newaxis]), P)
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

    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> Self:
        """Take the fitted state back from `arrays`, checking names and shapes."""
        received = {name: array.shape for name, array in arrays.items()}
        n_inputs, n_candidates, n_networks = (
            (*received.get(name, ()), 0)[0] for name in ("mean", "global_weights", "n_steps")
        )
        network = self._network(n_inputs, n_candidates)
        expected = {
            "global_weights": (n_candidates,),
            "parameters": (n_networks, network.n_parameters),
            "mean": (n_inputs,),
            "scale": (n_inputs,),
            "loss_scale": (),
            "n_steps": (n_networks,),
        }
        if received != expected:
            raise FileFormatError(
                f"MLPGate with hidden={tuple(self.hidden)} is restored from arrays of the shapes "
                f"{expected}; received {received}. Pass what arrays() of a fitted gate with the "
                "same parameters returned."
            )
        self.global_weights_ = np.asarray(arrays["global_weights"], dtype=np.float64)
        self.parameters_ = np.asarray(arrays["parameters"], dtype=np.float32)
        self.mean_ = np.asarray(arrays["mean"], dtype=np.float64)
        self.scale_ = np.asarray(arrays["scale"], dtype=np.float64)
        self.loss_scale_ = float(arrays["loss_scale"])
        self.n_steps_ = np.asarray(arrays["n_steps"])
        self.n_features_in_ = n_inputs
        return self

    def _network_weights(self, X: Array, thetas: Float32) -> NDArray[np.float64]:
        """Weights averaged over the networks in the rows of `thetas`."""
        network = self._network(self.n_features_in_, len(self.global_weights_))
        weights = np.zeros((len(X), len(self.global_weights_)))

        def fill(first: int) -> None:
            rows, bound = slice(first, first + _PREDICT_ROWS), self.logit_bound
            evaluate(network, thetas, X[rows], self.mean_, self.scale_, bound, weights[rows])

        in_threads(fill, range(0, len(X), _PREDICT_ROWS), self.n_jobs)
        return weights

    def _network(self, n_inputs: int, n_candidates: int) -> Network:
        leak = 1.0 if self.activation == "identity" else 0.0
        return Network((n_inputs, *self.hidden, n_candidates), leak)

    def _start(self, network: Network, rng: np.random.Generator, anchor: Array) -> Float32:
        """Parameters at which one training starts; `anchor` (M,) are the global weights."""
        if self.start == "random":
            return network.random(rng)
        logits = np.log((1.0 - WEIGHT_FLOOR) * anchor + WEIGHT_FLOOR / len(anchor))
        if self.logit_bound is not None:
            middle = (logits.max() + logits.min()) / 2.0
            inside = np.clip((logits - middle) / self.logit_bound, -0.99, 0.99)
            logits = self.logit_bound * np.arctanh(inside)
        return network.random_but_constant(rng, logits)

    def _rates(self) -> Float32:
        """Learning rate of each step."""
        rates = np.full(self.n_steps, self.learning_rate)
        if self.schedule == "cosine":
            rates *= (1.0 + np.cos(np.pi * np.arange(self.n_steps) / self.n_steps)) / 2.0
        return rates.astype(np.float32)

    def _decay(self, network: Network) -> Float32:
        """What Adam's gradient of the scaled loss gets per unit of each parameter."""
        decay = np.full(network.n_parameters, self.weight_decay / self.loss_scale_)
        decay[: network.output_bias.start] += 2.0 * self.shrinkage
        return decay.astype(np.float32)

    def _check_parameters(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        if any(units != int(units) or units < 1 for units in self.hidden):
            raise InvalidInputError(
                f"hidden of MLPGate must be a sequence of positive integers; received "
                f"{self.hidden!r}. Take (16,) for one layer of 16 units, () for a linear gate."
            )
        for name, passes, rule in _RULES:
            value = getattr(self, name)
            if not passes(value):
                raise InvalidInputError(
                    f"{name} of MLPGate must be {rule}; received {value!r}. Leave it out for the "
                    "default."
                )


_CHOICES = {
    "activation": ("relu", "identity"),
    "schedule": ("cosine", "constant"),
    "start": ("global", "random"),
}
_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("shrinkage", lambda value: value >= 0.0, "at least 0 (infinity is the global gate)"),
    ("learning_rate", lambda value: 0.0 < value < np.inf, "a positive number"),
    ("n_steps", lambda value: value == int(value) >= 1, "a positive integer"),
    ("weight_decay", lambda value: 0.0 <= value < np.inf, "at least 0 and finite"),
    ("logit_bound", lambda value: value is None or 0.0 < value < np.inf, "None or positive"),
    ("n_restarts", lambda value: value == int(value) >= 1, "a positive integer"),
    ("tol", lambda value: 0.0 <= value < np.inf, "at least 0 and finite"),
    ("n_jobs", lambda value: value is None or value == int(value) != 0, "None or not 0"),
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
        if not np.isfinite(theta).all():
            raise InvalidInputError(
                "Training of MLPGate must stay finite, but its parameters did not within "
                f"{n_steps} steps at learning_rate={gate.learning_rate}. Lower learning_rate, or "
                "look for targets or predictions at which the derivative of the loss is not finite."
            )
        order = self.sample.candidates
        gate.parameters_[self.restart] = self.network.reorder_candidates(theta, order)
        gate.n_steps_[self.restart] = n_steps


def _fit_together(gates: Sequence[MLPGate], data: Data, loss: Loss, jobs: Sequence[Job]) -> None:
    """Fit each gate to the rows of its job, all networks of all gates as one batch."""
    gates[0]._check_parameters()
    network = gates[0]._network(data.X.shape[1], data.P.shape[1])
    block = block_size(network, data.P.shape[2])
    samples: dict[int, Sample] = {}
    anchors: dict[tuple[int, int], tuple[Float64, float]] = {}
    trainings: list[_Training] = []
    for gate, job in zip(gates, jobs, strict=True):
        gate._check_parameters()
        rows, anchor = id(job.rows), (id(job.rows), id(job.global_weights))
        if rows not in samples:
            samples[rows] = pack(data, job.rows, block, gate.standardize)
        if anchor not in anchors:
            anchors[anchor] = _anchor(data, loss, job)
        trainings += _prepare(gate, network, samples[rows], *anchors[anchor])
    if trainings:
        derivative = compile_loss(loss.derivative)
        in_threads(lambda training: training.run(derivative), trainings, gates[0].n_jobs)


def _anchor(data: Data, loss: Loss, job: Job) -> tuple[Float64, float]:
    """Global weights of a job, and the scale of its loss: their risk.

    Where they fit (all but) perfectly, the scale is a millionth of the risk of equal weights; where
    these do too, it is one.
    """
    rows = slice(None) if job.rows is None else job.rows
    P, y, weight = data.P[rows], data.y[rows], data.weight[rows]
    equal: Array = np.full(P.shape[1], 1.0 / P.shape[1])
    weights = job.global_weights if len(equal) > 1 else equal
    if weights is None:
        no_inputs = np.empty((len(y), 0))
        weights = GlobalGate().fit(no_inputs, P, y, loss=loss, sample_weight=weight).weights_
    risk, equal_risk = (
        abs(empirical_risk(loss, y, global_average(w, P), weight)) for w in (weights, equal)
    )
    return np.asarray(weights, dtype=np.float64), max(risk, 1e-6 * equal_risk) or 1.0


def _prepare(
    gate: MLPGate, network: Network, sample: Sample, anchor: Float64, loss_scale: float
) -> list[_Training]:
    """Set what needs no training, and list the trainings that the gate needs."""
    constant = np.isinf(gate.shrinkage) or len(anchor) == 1
    n_networks = 0 if constant else gate.n_restarts
    gate.global_weights_, gate.loss_scale_ = anchor, loss_scale
    gate.mean_, gate.scale_ = sample.mean, sample.scale
    gate.n_features_in_ = len(sample.mean)
    gate.parameters_ = np.empty((n_networks, network.n_parameters), dtype=np.float32)
    gate.n_steps_ = np.zeros(n_networks, dtype=np.int64)
    seed = gate.random_state
    if not isinstance(seed, int | np.integer):
        seed = check_random_state(seed).randint(2**31)
    starts = (
        gate._start(network, rng, anchor[sample.candidates])
        for rng in np.random.default_rng(seed).spawn(n_networks)
    )
    return [_Training(gate, i, network, sample, start) for i, start in enumerate(starts)]
