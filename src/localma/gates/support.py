"""The shift guard: how far an input lies within the labelled sample, from 0 to 1.

Four statistics of a row are compared with those of the sample: each input, each direction that the
gate uses, the distance from the nearest labelled rows, and gaps inside the sample. Each has a
reach beyond the sample, measured by the sample's own tail. `localma.gates.sample` measures them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from localma._types import AnyArray, Array, Float64, RowMask
from localma.equations import softmax
from localma.errors import FileFormatError
from localma.gates.base import Arrays, Saved, read_state
from localma.gates.labelled import Table
from localma.gates.sample import (
    FARTHEST,
    Measured,
    WeightFunction,
    measure,
    squash,
    stretch,
    widened,
)

POWER = 8
"""Exponent that makes the support fall abruptly at the reach."""

LEAST_SUPPORT = 0.5
"""Rows with less support lie outside the sample."""

CLIP = 1.5
"""Reaches beyond the sample at which inputs of the gate are cut off, if the gate uses them."""

NAMED = 3
"""Inputs that describe a combination."""

LEAST_RESTORED = 1e-300
"""Shorter lengths in a file are refused: one over them is not finite."""


@dataclass(frozen=True)
class Outside:
    """Rows outside of a sample, and the inputs that put most of them there.

    Parameters
    ----------
    share : share of the rows that lie outside
    columns : positions of the inputs: one, or several if only their combination is new
    low, high : range of the first input in the sample, or the gap in it that the rows are in
    here : median of the first input in the rows that it puts outside
    in_gap : whether low and high are the ends of a gap
    """

    share: float
    columns: tuple[int, ...]
    low: float
    high: float
    here: float
    in_gap: bool = False


_AXES = {
    "p": "centre scale low high low_reach high_reach use origin weight",
    "dp": "directions",
    "d": "least most least_reach most_reach",
    "ld": "landmarks",
    "s": "spacing",
    "gq": "gaps",
}
STATE = (
    *(Saved(name, axes) for axes, names in _AXES.items() for name in names.split()),
    Saved("gap_at", "g", np.intp),
)
"""The arrays of `Measured` in a file."""


@dataclass(frozen=True)
class Support:
    """The shift guard of a sample; see `Measured`."""

    measured: Measured

    @classmethod
    def of(
        cls, X: Table, row_mask: RowMask | None = None, weights: WeightFunction | None = None
    ) -> Support:
        """Measure a sample (n, p), or the masked rows of it.

        weights : the gate, (n, p) -> (n, M), which shows what inputs matter; all if None.

        >>> support = Support.of(np.linspace(0, 1, 101)[:, None])
        >>> support(np.array([[0.5], [1.05], [3.0]])).round(2).tolist()
        [1.0, 1.0, 0.0]
        """
        if row_mask is None:
            row_mask = np.ones(len(X), dtype=bool)
        return cls(measure(X, row_mask, weights))

    def including(self, X: Array) -> Support:
        """Return the guard with these labelled rows (k, p) inside.

        >>> support = Support.of(np.r_[:40, 60:100][:, None] / 100)
        >>> support(np.array([[0.5]])).round(2), support.including([[0.5]])(np.array([[0.5]]))
        (array([0.]), array([1.]))
        """
        return Support(widened(self.measured, np.asarray(X, dtype=np.float64)))

    @classmethod
    def restore(cls, arrays: Arrays, n_inputs: int) -> Support:
        """Restore a guard from named arrays; refuse any that `__call__` could not use."""
        owner = "The support of ShrunkGate"
        measured = Measured(**read_state(arrays, STATE, owner, p=n_inputs, s=7, q=3))
        state = vars(measured)
        lengths_of = ("scale", "low_reach", "high_reach", "use", "least_reach", "most_reach")
        positive = [state[name] for name in lengths_of]
        positive += [measured.gaps[:, 2], measured.spacing[[4, 6]]]
        at, size = measured.gap_at, n_inputs + len(measured.least)
        in_order = (measured.low <= measured.high).all() and (measured.least <= measured.most).all()
        is_sound = (
            all(np.isfinite(array).all() for array in state.values())
            and all((array > LEAST_RESTORED).all() for array in positive)
            and ((at >= 0) & (at < size)).all()
        )
        if not (in_order and is_sound):
            raise FileFormatError(
                f"{owner} must hold finite numbers, low ends below high ends, positive lengths and "
                f"gaps in its {size} coordinates. Save the model again."
            )
        return cls(measured)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state as named arrays."""
        return {field.name: getattr(self.measured, field.name) for field in fields(Measured)}

    def __call__(self, X: Array) -> Array:
        """``exp(-u^POWER)``, u the largest excess, relative to its reach: (n, p) -> (n,)."""
        return support_at(np.hstack(self._excess(X)).max(axis=1))

    def clip(self, X: Array) -> Array:
        """Cut off inputs far outside the sample, where a gate says nothing: (n, p) -> (n, p)."""
        low, high = self.ends
        return np.clip(X, low, high)

    @cached_property
    def ends(self) -> tuple[Float64, Float64]:
        """Values at which inputs are cut off, nearer to the sample the less an input is used."""
        m = self.measured
        margin = CLIP * m.use**2  # the reach grows with one over the use
        ends = (
            squash(m.low, m.centre, m.scale) - margin * m.low_reach,
            squash(m.high, m.centre, m.scale) + margin * m.high_reach,
        )
        low, high = (stretch(end, m.centre, m.scale) for end in ends)
        finite = np.finfo(np.float64).max
        return np.maximum(np.minimum(low, m.low), -finite), np.minimum(
            np.maximum(high, m.high), finite
        )

    def __getstate__(self) -> dict[str, object]:
        """Leave the derived arrays out of a pickle."""
        return {"measured": self.measured}

    @cached_property
    def kernel_arrays(self) -> tuple[Float64, ...]:
        """The arrays of the guard as the kernel takes them, from columns to gaps."""
        m = self.measured
        columns = np.array([
            m.centre, 1.0 / m.scale, squash(m.low, m.centre, m.scale),
            squash(m.high, m.centre, m.scale), 1.0 / m.low_reach, 1.0 / m.high_reach, m.origin,
            *self.ends, m.weight,
        ])  # fmt: skip
        ends = np.array([m.least, m.most, 1.0 / m.least_reach, 1.0 / m.most_reach])
        gaps = np.column_stack([m.gap_at, m.gaps[:, :2], 1.0 / m.gaps[:, 2]])
        arrays = (columns, m.directions, ends, m.landmarks, m.spacing, gaps)
        return tuple(np.ascontiguousarray(array, dtype=np.float64) for array in arrays)

    def outside(self, X: Array) -> Outside | None:
        """Describe the rows of X (n, p) that lie outside; None if all lie inside.

        >>> support = Support.of(np.linspace(0, 1, 101)[:, None])
        >>> support.outside(np.array([[0.5], [3.0]]))
        Outside(share=0.5, columns=(0,), low=0.0, high=1.0, here=3.0, in_gap=False)
        """
        parts = self._excess(X)
        excess = np.hstack(parts)
        rows = support_at(excess.max(axis=1)) < LEAST_SUPPORT
        if not rows.any():
            return None
        # An input is the simplest reason, then a gap in one, then a combination of inputs.
        starts = np.cumsum([0, *(part.shape[1] for part in parts)])
        is_far = support_at(excess[rows]) < LEAST_SUPPORT
        reason = np.where(is_far.any(axis=1), is_far.argmax(axis=1), 0)
        most = int(np.bincount(reason).argmax())
        kind = int(np.searchsorted(starts, most, side="right")) - 1
        columns, low, high = self._reason(kind, most - int(starts[kind]))
        here = float(np.median(X[rows][reason == most, columns[0]]))
        return Outside(float(rows.mean()), columns, low, high, here, kind == 1)

    def _reason(self, kind: int, index: int) -> tuple[tuple[int, ...], float, float]:
        """Inputs behind a column of `_excess`, and the range or the gap of the first."""
        m, p = self.measured, len(self.measured.low)
        if kind == 1:
            at, gap = int(m.gap_at[index]), m.gaps[index]
            if at < p:
                low, high = stretch(gap[:2], m.centre[at], m.scale[at])
                return (at,), _rounded(low), _rounded(high)
            kind, index = 2, at - p
        columns: Sequence[int] = [index]
        if kind >= 2:
            weight = np.abs(m.directions if kind == 3 else m.directions[[index]]).max(axis=0)
            largest = np.argsort(-weight)[:NAMED]
            columns = largest[weight[largest] > 0.2 * weight.max()].tolist()
        first = columns[0]
        return tuple(columns), float(m.low[first]), float(m.high[first])

    def _excess(self, X: Array) -> list[Float64]:
        """Excess relative to its reach: of inputs, gaps, directions and distances from rows."""
        m = self.measured
        t = squash(np.asarray(X, dtype=np.float64), m.centre, m.scale)
        low, high = self.kernel_arrays[0][2:4]  # squashed
        inputs = np.maximum((low - t) / m.low_reach, (t - high) / m.high_reach)
        z = (np.clip(t, low, high) - m.origin) @ m.directions.T
        directions = np.maximum((m.least - z) / m.least_reach, (z - m.most) / m.most_reach)
        gaps = m.depth_in_gaps(t, z)
        return [inputs, gaps, directions, m.distances(np.clip(t, low, high), z)]


def support_at(excess: Array) -> Array:
    """``exp(-u^POWER)``; u : excess relative to the reach, any shape."""
    return np.exp(-(excess.clip(0.0, FARTHEST) ** POWER))


def _rounded(value: float) -> float:
    """Undo the rounding errors of a value that was squashed, such as a year."""
    return float(f"{value:.9g}")


@dataclass(frozen=True)
class Fading:
    """Weights that turn into the global ones outside the sample.

    Parameters
    ----------
    support : the shift guard
    towards : (M,) the global weights
    floor : share of equal weights that is mixed into the global ones in rows with some support,
        since a global weight of zero would silence a candidate at once
    """

    support: Support
    towards: Array
    floor: float

    def __call__(self, weights: Array, X: Array) -> Array:
        """Return ``softmax(s log w + (1 - s) log w_global)``: (n, M), (n, p) -> (n, M).

        Logits fade, not weights, so that confident weights keep their values a little longer.
        The weights should be those of ``support.clip(X)``.
        """
        share = self.support(X)[:, np.newaxis]
        floor = self.floor * share
        anchor = (1.0 - floor) * self.towards + floor / len(self.towards)
        with np.errstate(divide="ignore"):
            logits = share * np.log(np.maximum(weights, _TINY)) + (1.0 - share) * np.log(anchor)
        return softmax(logits)


_TINY = float(np.finfo(np.float64).tiny)
