"""Networks of several gates as the kernel reads them: one stack, one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from localma.errors import FileFormatError
from localma.gates._network import Float32, Network

Float64 = NDArray[np.float64]
Integers = NDArray[np.intp]


@dataclass(frozen=True)
class Part:
    """Networks of one gate, which share `share` of the weights evenly.

    thetas : (R, n_parameters) their parameters; mean, scale : (p,) by which they standardise.
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

    constant : (M,); shapes : the different networks; the arrays are those of the kernel's
    `evaluate`, where they are described.
    """

    constant: Float64
    shapes: tuple[Network, ...]
    standards: Float64
    networks: Integers
    sizes: Integers
    settings: Float64
    thetas: Float32

    @classmethod
    def of(cls, constant: NDArray[np.floating], parts: Sequence[Part]) -> Self:
        """Stack the networks of all parts in their order."""
        shapes = list(dict.fromkeys(part.network for part in parts))
        _check_ends(shapes, len(constant))
        standards = {part.standard().tobytes(): part.standard() for part in parts}
        places = {key: place for place, key in enumerate(standards)}
        ends = [0, *accumulate(len(shape.sizes) for shape in shapes)]
        networks, settings, at = [], [], 0
        for part in parts:
            standard, shape = places[part.standard().tobytes()], shapes.index(part.network)
            setting = (part.share / len(part.thetas), part.network.leak, part.logit_bound or 0.0)
            for _ in part.thetas:
                networks.append((standard, ends[shape], ends[shape + 1], at))
                settings.append(setting)
                at += part.network.n_parameters
        thetas = [part.thetas.ravel() for part in parts]
        return cls(
            np.asarray(constant, dtype=np.float64),
            tuple(shapes),
            np.array(list(standards.values())) if parts else np.empty((0, 2, 0)),
            np.array(networks, dtype=np.intp).reshape(-1, 4),
            np.array([size for shape in shapes for size in shape.sizes], dtype=np.intp),
            np.array(settings, dtype=np.float64).reshape(-1, 3),
            np.concatenate(thetas) if parts else np.empty(0, dtype=np.float32),
        )

    @cached_property
    def is_consistent(self) -> bool:
        """Whether every index that the kernel follows lies within these arrays; found out once."""
        G, M = len(self.networks), len(self.constant)
        ends = [0, *accumulate(len(shape.sizes) for shape in self.shapes)]
        spans = dict(zip(pairwise(ends), self.shapes, strict=True))
        inputs = {shape.sizes[0] for shape in self.shapes}
        if self.sizes.tolist() != [size for shape in self.shapes for size in shape.sizes]:
            return False
        if self.networks.shape != (G, 4) or self.settings.shape != (G, 3) or len(inputs) > 1:
            return False
        if G and self.standards.shape[1:] != (2, *inputs):
            return False
        return all(shape.fits(shape.sizes[0], M) for shape in self.shapes) and all(
            0 <= standard < len(self.standards)
            and (begin, end) in spans
            and 0 <= at <= self.thetas.size - spans[begin, end].n_parameters
            for standard, begin, end, at in self.networks.tolist()
        )


def _check_ends(shapes: Sequence[Network], n_candidates: int) -> None:
    """Refuse networks that do not fit together, which only a damaged file can hold."""
    ends = {(shape.sizes[0], shape.sizes[-1]) for shape in shapes}
    if len(ends) > 1 or any(last != n_candidates for _, last in ends):
        raise FileFormatError(
            f"The networks of a gate must all take the same inputs and weigh its {n_candidates} "
            f"candidates; received networks with (inputs, candidates) = {sorted(ends)}."
        )
