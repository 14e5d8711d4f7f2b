"""Networks of gates: their flat parameter vectors, and stacks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Self

import numpy as np

from localma._types import Array, Float32, Float64, Integers, RowMask
from localma.errors import FileFormatError


@dataclass(frozen=True)
class Network:
    """The shape of a network with one logit per candidate.

    sizes : (D + 1,) number of inputs, of units of each hidden layer, and of candidates.
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
        """Whether all layers have units, and the first and last layer have these sizes."""
        ends = (self.sizes[0], self.sizes[-1])
        return min(self.sizes[1:]) >= 1 and ends == (n_inputs, n_candidates)

    @property
    def output_bias(self) -> slice:
        """Position of the biases of the logits: at the end."""
        return slice(self.n_parameters - self.sizes[-1], self.n_parameters)

    def layers(self, theta: Float32) -> list[tuple[Float32, Float32]]:
        """Views of a parameter vector: weights (b, a) and biases (b,) of each layer.

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
        """Draw parameters like PyTorch's `nn.Linear`: uniform, within ``1 / sqrt(a)``."""
        theta = np.zeros(self.n_parameters, dtype=np.float32)
        for weights, biases in self.layers(theta):
            reach = 1.0 / np.sqrt(max(weights.shape[1], 1))
            weights[...] = rng.uniform(-reach, reach, size=weights.shape)
            biases[...] = rng.uniform(-reach, reach, size=biases.shape)
        return theta

    def random_but_constant(self, rng: np.random.Generator, logits: Array) -> Float32:
        """Draw the hidden layers; the output is `logits` (M,) for every input.

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

    def reorder_candidates(self, theta: Float32, order: Integers) -> Float32:
        """Reorder the logits: ``order[m]`` is the new position of logit ``m``."""
        moved = theta.copy()
        for new, old in zip(self.layers(moved)[-1], self.layers(theta)[-1], strict=True):
            new[order] = old
        return moved

    def keep_candidates(self, theta: Float32, kept: RowMask) -> Float32:
        """Parameters of the network with the logits of some candidates only; kept : (M,)."""
        *_, (weights, biases) = self.layers(theta)
        hidden = theta[: self.n_parameters - weights.size - biases.size]
        return np.concatenate([hidden, weights[kept].ravel(), biases[kept]])


@dataclass(frozen=True)
class Ensemble:
    """Networks of one gate, each with the same share of the weights.

    Parameters
    ----------
    network : their shape
    thetas : (R, n_parameters) their parameters
    mean, scale : (p,) that standardise the inputs
    logit_bound : bound on the logits, or None
    share : sum of their shares
    """

    network: Network
    thetas: Float32
    mean: Float64
    scale: Float64
    logit_bound: float | None
    share: float

    def standard(self) -> Float64:
        """Mean and scale as one array: (2, p)."""
        return np.array([self.mean, self.scale], dtype=np.float64)


@dataclass(frozen=True)
class Stack:
    """``w(x) = constant + sum_g share_g w_g(x)`` over G networks of one or more shapes.

    constant : (M,); shapes : the different networks. The kernel's `evaluate` describes the arrays.
    """

    constant: Float64
    shapes: tuple[Network, ...]
    standards: Float64
    networks: Integers
    sizes: Integers
    settings: Float64
    thetas: Float32

    @classmethod
    def of(cls, constant: Array, ensembles: Sequence[Ensemble]) -> Self:
        """Stack the networks of all ensembles in order."""
        shapes = list(dict.fromkeys(ensemble.network for ensemble in ensembles))
        _check_ends(shapes, len(constant))
        standards: dict[bytes, Float64] = {}
        spans = _spans(shapes)
        networks, settings, start = [], [], 0
        for ensemble in ensembles:
            network, standard = ensemble.network, ensemble.standard()
            key = standard.tobytes()
            standards.setdefault(key, standard)
            span, number = spans[shapes.index(network)], list(standards).index(key)
            share = ensemble.share / len(ensemble.thetas)
            for _ in ensemble.thetas:
                networks.append((number, *span, start))
                settings.append((share, network.leak, ensemble.logit_bound or 0.0))
                start += network.n_parameters
        p = max((shape.sizes[0] for shape in shapes), default=0)
        thetas = [ensemble.thetas.ravel() for ensemble in ensembles]
        return cls(
            np.asarray(constant, dtype=np.float64),
            tuple(shapes),
            np.array(list(standards.values())).reshape(len(standards), 2, p),
            np.array(networks, dtype=np.intp).reshape(-1, 4),
            np.array([size for shape in shapes for size in shape.sizes], dtype=np.intp),
            np.array(settings, dtype=np.float64).reshape(-1, 3),
            np.concatenate([np.empty(0, dtype=np.float32), *thetas]),
        )

    @cached_property
    def is_consistent(self) -> bool:
        """Whether every index that the kernel follows lies within these arrays."""
        G, M = len(self.networks), len(self.constant)
        shapes = dict(zip(_spans(self.shapes), self.shapes, strict=True))
        inputs = {shape.sizes[0] for shape in self.shapes}
        if self.sizes.tolist() != [size for shape in self.shapes for size in shape.sizes]:
            return False
        if self.networks.shape != (G, 4) or self.settings.shape != (G, 3) or len(inputs) > 1:
            return False
        if G and self.standards.shape[1:] != (2, *inputs):
            return False
        return all(shape.fits(shape.sizes[0], M) for shape in self.shapes) and all(
            0 <= standard < len(self.standards)
            and (begin, end) in shapes
            and 0 <= start <= self.thetas.size - shapes[begin, end].n_parameters
            for standard, begin, end, start in self.networks.tolist()
        )


def _spans(shapes: Sequence[Network]) -> list[tuple[int, int]]:
    """Begin and end of each network's sizes in the list of all sizes."""
    return list(pairwise([0, *accumulate(len(shape.sizes) for shape in shapes)]))


def _check_ends(shapes: Sequence[Network], n_candidates: int) -> None:
    """Refuse networks that do not fit together, which only a damaged file can contain."""
    ends = {(shape.sizes[0], shape.sizes[-1]) for shape in shapes}
    if len(ends) > 1 or any(last != n_candidates for _, last in ends):
        raise FileFormatError(
            f"The networks of a gate must all take the same inputs and weigh its {n_candidates} "
            f"candidates; received networks with (inputs, candidates) = {sorted(ends)}."
        )
