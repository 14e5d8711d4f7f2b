"""Several gates averaged with fixed shares, and a constant part: a function to the simplex too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from localma.errors import FileFormatError
from localma.gates._held_out import Members, Point
from localma.gates._stack import Stack
from localma.gates.base import Gate, check_arrays, numbered_arrays
from localma.gates.mlp import MLPGate, stacked

Array = NDArray[np.floating]


@dataclass(frozen=True)
class MixedGates:
    """``w(x) = constant + sum_g share_g w_g(x)``.

    constant : (M,); gates : G fitted gates; points : (G,) their places on the path; shares : (G,).
    The constant and the shares sum to one together.
    """

    constant: Array
    gates: list[Gate]
    points: NDArray[np.intp]
    shares: Array

    @classmethod
    def of(cls, members: Members, weights: Sequence[float], kept: Collection[int]) -> MixedGates:
        """Average the kept points of a path; the restarts of a point share its weight."""
        constant: Any = 0.0
        gates, points, shares = [], [], []
        for k in sorted(kept):
            point = members[k]
            if isinstance(point, np.ndarray):
                constant = constant + weights[k] * point
                continue
            for gate in point:
                gates.append(gate)
                points.append(k)
                shares.append(weights[k] / len(point))
        if not isinstance(constant, np.ndarray):
            first = next(point for point in members if isinstance(point, np.ndarray))
            constant = np.zeros(len(first))
        return cls(constant, gates, np.array(points, dtype=np.intp), np.array(shares))

    def predict_weights(self, X: Any) -> Array:
        """Weights of each row: (n, p) -> (n, M)."""
        weights = np.tile(self.constant, (len(X), 1))
        for share, gate in zip(self.shares, self.gates, strict=True):
            weights += share * gate.predict_weights(X)
        return weights

    @cached_property
    def stack(self) -> Stack | None:
        """The same function for the kernel, one pass for all gates; None for other gates."""
        gates = [gate for gate in self.gates if isinstance(gate, MLPGate)]
        if len(gates) < len(self.gates):
            return None
        return stacked(self.constant, gates, self.shares.tolist())

    def __getstate__(self) -> dict[str, Any]:
        """Leave the stack out of a pickle: it repeats the gates."""
        return {name: value for name, value in vars(self).items() if name != "stack"}

    def restart_variance(self, X: Any) -> Array:
        """Variance of the weights over the restarts of each point, summed: (n, M)."""
        total = np.zeros((len(X), len(self.constant)))
        for k in np.unique(self.points):
            same = np.flatnonzero(self.points == k)
            if len(same) > 1:
                each = np.stack([self.gates[g].predict_weights(X) for g in same])
                total += self.shares[same].sum() ** 2 * each.var(axis=0, ddof=1) / len(same)
        return total

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fitted state as named arrays."""
        state: dict[str, NDArray[Any]] = {
            "constant": self.constant,
            "points": self.points,
            "shares": self.shares,
        }
        for g, gate in enumerate(self.gates):
            state |= {f"gate.{g}.{name}": array for name, array in gate.arrays().items()}
        return state

    @classmethod
    def restore(
        cls, points: Sequence[Point], arrays: dict[str, NDArray[Any]], n_candidates: int
    ) -> MixedGates:
        """Take the state back; the points of the path say which gates there were."""
        places, shares, constant = arrays["points"], arrays["shares"], arrays["constant"]
        count = (len(np.atleast_1d(places)),)
        own = {"points": places, "shares": shares, "constant": constant}
        expected = {"points": ("iu", count), "shares": ("f", count)}
        expected |= {"constant": ("f", (n_candidates,))}
        check_arrays(own, expected, "A mixture of gates")
        constant, shares = constant.astype(np.float64), shares.astype(np.float64)
        total = constant.sum() + shares.sum()
        if (constant < 0).any() or (shares < 0).any() or not abs(total - 1.0) < 1e-6:
            raise FileFormatError(
                f"The parts of a mixture of gates must not be negative and must have the shape of "
                f"shares that sum to one; received a sum of {total:g}."
            )
        saved = numbered_arrays(arrays, "gate.")
        if len(saved) != len(places):
            raise FileFormatError(
                f"A mixture of {len(places)} gates must have the arrays of as many; received those "
                f"of {len(saved)}."
            )
        gates = [
            _restored(points, k, own, n_candidates)
            for k, own in zip(places.tolist(), saved, strict=True)
        ]
        return cls(constant, gates, places.astype(np.intp), shares)


def _restored(
    points: Sequence[Point], k: int, arrays: dict[str, NDArray[Any]], n_candidates: int
) -> Gate:
    """The gate at a point of the path, with its fitted state."""
    gate = points[k].gate if 0 <= k < len(points) else None
    if gate is None:
        raise FileFormatError(f"Point {k} of the path has no gate; it must be a local one.")
    restored: Gate = clone(gate).set_params(shrinkage=points[k].shrinkage).restore(arrays)
    if restored.n_candidates != n_candidates:
        raise FileFormatError(
            f"A gate of a mixture must weigh its {n_candidates} candidates; received one for "
            f"{restored.n_candidates}."
        )
    return restored
