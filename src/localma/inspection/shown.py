"""Which candidates are named where there are many: the most trusted ones, and the rest as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

MOST_SHOWN = 8
"""Candidates named one by one: as many as there are colours that everybody can tell apart."""


@dataclass(frozen=True)
class Shown:
    """The candidates that are named, and how the others are summed.

    places : (C,) of the named ones in the pool; labels : their names, and "3 others" at the end.
    """

    places: NDArray[np.intp]
    labels: tuple[str, ...]
    n_others: int

    def of(self, weights: Array) -> Array:
        """Weights (..., M) of the named candidates, and the sum of the others: (..., C)."""
        named = weights[..., self.places]
        if not self.n_others:
            return named
        rest = np.delete(weights, self.places, axis=-1).sum(axis=-1, keepdims=True)
        return np.concatenate([named, np.clip(rest, 0.0, 1.0)], axis=-1)


def most_trusted(names: Sequence[str], mean_weights: Array, most: int = MOST_SHOWN) -> Shown:
    """Name the candidates of largest mean weight, in the order of the pool.

    >>> shown = most_trusted(["a", "b", "c", "d"], np.array([0.1, 0.6, 0.05, 0.25]), most=2)
    >>> shown.labels, shown.of(np.array([0.1, 0.6, 0.05, 0.25])).round(6).tolist()
    (('b', 'd', '2 others'), [0.6, 0.25, 0.15])
    """
    M = len(names)
    if len(names) <= most + 1:  # "1 others" would take as much room as its name
        return Shown(np.arange(M), tuple(names), 0)
    # Stable: of candidates with equal weight, those that stand first.
    places = np.sort(np.argsort(-mean_weights, kind="stable")[:most])
    labels = (*(names[place] for place in places), f"{M - most} others")
    return Shown(places, labels, M - most)
