"""The shape of the MLP gate's network: where each parameter stands in one flat vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Network:
    """A network with as many logits as there are candidates.

    sizes : (D + 1,) numbers of inputs, of units of each hidden layer, of candidates.
    leak : slope of the hidden units below zero: 0 is ReLU, 1 the identity.

    >>> Network((5, 16, 3)).n_parameters
    147
    """

    sizes: tuple[int, ...]
    leak: float = 0.0

    @property
    def n_parameters(self) -> int:
        """Number of weights and biases."""
        return sum((a + 1) * b for a, b in zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def fits(self, n_inputs: int, n_candidates: int) -> bool:
        """Whether all layers have units, and the ends are so many inputs and candidates."""
        ends = (self.sizes[0], self.sizes[-1])
        return min(self.sizes[1:]) >= 1 and ends == (n_inputs, n_candidates)

    @property
    def output_bias(self) -> slice:
        """Where the biases of the logits stand: at the end."""
        return slice(self.n_parameters - self.sizes[-1], self.n_parameters)

    def layers(self, theta: Float32) -> list[tuple[Float32, Float32]]:
        """Views into a parameter vector: weights (b, a) and biases (b,) of each layer.

        In memory the weights of hidden layers are (a, b), those of the output layer (b, a).
        """
        views, at = [], 0
        for a, b in zip(self.sizes[:-2], self.sizes[1:-1], strict=True):
            views.append((theta[at : at + a * b].reshape(a, b).T, theta[at + a * b :][:b]))
            at += (a + 1) * b
        a, b = self.sizes[-2:]
        views.append((theta[at : at + a * b].reshape(b, a), theta[at + a * b :][:b]))
        return views

    def random(self, rng: np.random.Generator) -> Float32:
        """Draw parameters as PyTorch's `nn.Linear` does: uniform, within ``1 / sqrt(a)``."""
        theta = np.zeros(self.n_parameters, dtype=np.float32)
        for weights, biases in self.layers(theta):
            reach = 1.0 / np.sqrt(max(weights.shape[1], 1))
            weights[...] = rng.uniform(-reach, reach, size=weights.shape)
            biases[...] = rng.uniform(-reach, reach, size=biases.shape)
        return theta

    def random_but_constant(
        self, rng: np.random.Generator, logits: NDArray[np.floating]
    ) -> Float32:
        """Draw the hidden layers, and let the output be `logits` (M,) whatever the input.

        Hidden weights and biases are normal with variance ``2 / (a + 1)``: He's, counting the bias.
        """
        theta = np.zeros(self.n_parameters, dtype=np.float32)
        *hidden, (_, output_biases) = self.layers(theta)
        for weights, biases in hidden:
            deviation = np.sqrt(2.0 / (weights.shape[1] + 1))
            weights[...] = deviation * rng.normal(size=weights.shape)
            biases[...] = deviation * rng.normal(size=biases.shape)
        output_biases[...] = logits
        return theta

    def reorder_candidates(self, theta: Float32, order: NDArray[np.intp]) -> Float32:
        """Parameters of the network whose logit ``order[m]`` is this one's logit ``m``."""
        moved = theta.copy()
        for new, old in zip(self.layers(moved)[-1], self.layers(theta)[-1], strict=True):
            new[order] = old
        return moved
