"""The float64 reference: the training of MLPGate in plain NumPy and double precision.

It has the same start as the gate, so only arithmetic can differ. If a gate was trained over
mini-batches, so is its twin, over different batches and from the first step on. So the twin also
shows whether warm starts and the order of the batches cost anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Sample
from localma.equations import local_average, softmax
from localma.gates import MLPGate, ShrunkGate
from localma.gates.constant import disagreement
from localma.gates.fused.chunks import Chunks
from localma.gates.fused.engine import block_size
from localma.gates.fused.networks import Network
from localma.gates.mlp import DECAY_ROWS

Array = NDArray[np.floating]
Float64 = NDArray[np.float64]


def network_of(gate: MLPGate, sample: Sample) -> Network:
    return gate._network(sample.X.shape[1], sample.P.shape[1])


def starts(gate: MLPGate, sample: Sample, global_weights: Array | None = None) -> list[Float64]:
    """Parameters at which each training of a gate with an integer seed starts."""
    network = network_of(gate, sample)
    block = block_size(network, sample.y.shape[1])
    chunks = Chunks.of(sample.labelled(), None, block, standardize=True, whole=True)
    order = chunks.layout.candidates
    anchor = np.full(len(order), 1.0 / len(order)) if global_weights is None else global_weights
    return [
        network.reorder_candidates(gate._start(network, rng, anchor[order]), order).astype(float)
        for rng in np.random.default_rng(gate.random_state).spawn(gate.n_restarts)
    ]


def decay_of(gate: MLPGate, sample: Sample) -> float:
    """Weight decay of all parameters in the unit of the loss."""
    if gate.relative_decay == 0.0:
        return gate.weight_decay
    unit = disagreement(sample.labelled(), None) * (DECAY_ROWS / len(sample.y)) ** 0.25
    return gate.weight_decay + gate.relative_decay * unit


def bounded(logits: Float64, bound: float | None) -> Float64:
    """Logits within the bound of the gate."""
    return logits if bound is None else bound * np.tanh(logits / bound)


def standardise(sample: Sample, X: Array) -> Float64:
    return np.asarray((X - sample.X.mean(axis=0)) / sample.X.std(axis=0), dtype=np.float64)


def fit_weights(gate: MLPGate, sample: Sample, X: Array) -> Float64:
    """Weights (len(X), M) of a fitted gate's float64 twin, trained on the sample."""
    network = network_of(gate, sample)
    inputs = standardise(sample, sample.X)
    total = np.zeros((len(X), sample.P.shape[1]))
    for theta in starts(gate, sample, gate.global_weights_):
        _train(gate, network, theta, inputs, sample)
        logits = forward(network, theta, standardise(sample, X))[-1]
        total += softmax(bounded(logits, gate.logit_bound))
    return total / gate.n_restarts


def fit_weights_on_batches(gate: MLPGate, sample: Sample, X: Array) -> Float64:
    """Weights (len(X), M) of the float64 twin of a gate that was trained over mini-batches."""
    n, batch = len(sample.y), gate.batch_rows(len(sample.y))
    assert batch is not None
    network, rng = network_of(gate, sample), np.random.default_rng(gate.random_state)
    inputs = standardise(sample, sample.X)
    rates = gate._rates(n, batch)
    total = np.zeros((len(X), sample.P.shape[1]))
    for own in rng.spawn(gate.n_restarts):
        theta = gate._start(network, own, gate.global_weights_).astype(float)
        adam = Adam(gate, network, theta, decay_of(gate, sample))
        for rate in rates.astype(float):
            rows = own.integers(n, size=batch)
            part = Sample(inputs[rows], sample.P[rows], sample.y[rows], sample.loss)
            adam.step(_gradient(gate, network, theta, part.X, part), rate)
        logits = forward(network, theta, standardise(sample, X))[-1]
        total += softmax(bounded(logits, gate.logit_bound))
    return total / gate.n_restarts


def evaluate_weights(gate: MLPGate, X: Array) -> Float64:
    """Weights of a fitted gate, with networks evaluated in float64."""
    network = gate._network(gate.n_features_in_, len(gate.global_weights_))
    inputs = (X - gate.mean_) / gate.scale_
    each = [
        softmax(bounded(forward(network, theta.astype(float), inputs)[-1], gate.logit_bound))
        for theta in gate.parameters_
    ]
    return np.mean(each, axis=0)


def auto_weights(gate: ShrunkGate, X: Array, of_member: Callable[[Any], Array]) -> Float64:
    """Weights of a fitted ShrunkGate, with newly computed weights of its networks."""
    weights = np.tile(np.asarray(gate.answer_.constant, dtype=np.float64), (len(X), 1))
    for share, member in zip(gate.answer_.shares, gate.answer_.gates, strict=True):
        if isinstance(member, MLPGate):
            weights += share * of_member(member)
        else:  # trees have no twin
            weights += share * member.predict_weights(X)
    fading = gate._fading()
    return weights if fading is None else np.asarray(fading(weights, X))


def forward(network: Network, theta: Float64, X: Float64) -> list[Float64]:
    """Inputs, units of each hidden layer, logits."""
    units = [X]
    *hidden, (weights, biases) = network.layers(theta)
    for W, b in hidden:
        z = units[-1] @ W.T + b
        units.append(np.maximum(z, network.leak * z))
    return [*units, units[-1] @ weights.T + biases]


def _gradient(
    gate: MLPGate, network: Network, theta: Float64, X: Float64, sample: Sample
) -> Float64:
    """Gradient of the mean loss, layer by layer from the logits down."""
    *units, logits = forward(network, theta, X)
    bound = gate.logit_bound
    weights = softmax(bounded(logits, bound))
    mixture = local_average(weights, sample.P)
    slope = sample.loss.derivative(sample.y, mixture) / sample.y.size
    level = (slope * mixture).sum(axis=1, keepdims=True)
    pull = weights * (np.einsum("nk,nmk->nm", slope, sample.P) - level)
    if bound is not None:
        pull *= 1.0 - np.tanh(logits / bound) ** 2
    gradient = np.zeros_like(theta)
    layers = zip(network.layers(gradient), network.layers(theta), units, strict=True)
    for (to_weights, to_biases), (W, _), below in reversed(list(layers)):
        to_weights[...], to_biases[...] = pull.T @ below, pull.sum(axis=0)
        pull = (pull @ W) * np.where(below > 0.0, 1.0, network.leak)
    return gradient


class Adam:
    """Adam, in place, on ``mean loss / c + shrinkage * sum theta^2``."""

    def __init__(self, gate: MLPGate, network: Network, theta: Float64, decay: float) -> None:
        self.theta, self.loss_scale, self.n_steps = theta, gate.loss_scale_, 0
        self.decay = np.full(len(theta), decay / gate.loss_scale_)
        self.decay[: network.output_bias.start] += 2.0 * gate.shrinkage
        self.mean, self.square = np.zeros_like(theta), np.zeros_like(theta)

    def step(self, gradient: Float64, rate: float) -> float:
        """Take a step with the gradient of the mean loss; return the norm of the whole gradient."""
        self.n_steps += 1
        g = gradient / self.loss_scale + self.decay * self.theta
        self.mean += 0.1 * (g - self.mean)
        self.square += 0.001 * (g * g - self.square)
        scale = np.sqrt(self.square / (1.0 - 0.999**self.n_steps)) + 1e-8
        self.theta -= rate * self.mean / (1.0 - 0.9**self.n_steps) / scale
        return float(np.linalg.norm(g))


def _train(gate: MLPGate, network: Network, theta: Float64, X: Float64, sample: Sample) -> None:
    adam = Adam(gate, network, theta, decay_of(gate, sample))
    for rate in gate._rates(len(X), None).astype(float):
        if adam.step(_gradient(gate, network, theta, X, sample), rate) < gate.tol:
            return
