"""The paper's recipe as an ordinary PyTorch loop: one network, one optimiser, one fit at a time."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Sample
from benchmarks.reference import network_of, standardise
from localma.gates import MLPGate

Array = NDArray[np.floating]


def fit(sample: Sample, gate: MLPGate, start: Array) -> Any:
    """Train the network of `gate`, the paper's gate, from the same start."""
    import torch

    hidden = gate.hidden[0]
    network = torch.nn.Sequential(
        torch.nn.Linear(sample.X.shape[1], hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, sample.P.shape[1]),
    )
    _load(network, start, gate, sample)
    X = torch.tensor(standardise(sample, sample.X), dtype=torch.float32)
    P = torch.tensor(sample.P[:, :, 0], dtype=torch.float32)
    y = torch.tensor(sample.y[:, 0], dtype=torch.float32)
    optimiser = torch.optim.Adam(
        network.parameters(), lr=gate.learning_rate, weight_decay=gate.weight_decay
    )
    for _ in range(gate.n_steps):
        optimiser.zero_grad()
        weights = torch.softmax(network(X), dim=1)
        loss = torch.mean((y - (weights * P).sum(dim=1)) ** 2)
        loss.backward()
        optimiser.step()
    return network


def predict_weights(network: Any, sample: Sample, X: Array) -> Array:
    """Weights (len(X), M) of a network that was trained on the sample."""
    import torch

    with torch.no_grad():
        inputs = torch.tensor(standardise(sample, X), dtype=torch.float32)
        return np.asarray(torch.softmax(network(inputs), dim=1).numpy(), dtype=np.float64)


def use_faster_thread_count(sample: Sample, gate: MLPGate, start: Array) -> int:
    """Set PyTorch to one thread or all threads, whichever fits this sample faster."""
    import torch

    seconds = {}
    for threads in {1, torch.get_num_threads()}:
        torch.set_num_threads(threads)
        begin = perf_counter()
        fit(sample, gate, start)
        seconds[threads] = perf_counter() - begin
    best = min(seconds, key=seconds.__getitem__)
    torch.set_num_threads(best)
    return best


def _load(network: Any, start: Array, gate: MLPGate, sample: Sample) -> None:
    """Set the network to the start of the gate; other random starts would add noise."""
    import torch

    layers = network_of(gate, sample).layers(start.astype(np.float32))
    with torch.no_grad():
        for linear, (weights, biases) in zip((network[0], network[2]), layers, strict=True):
            linear.weight.copy_(torch.from_numpy(weights.copy()))
            linear.bias.copy_(torch.from_numpy(biases.copy()))
