"""The path from global to local weights: the held-out risk of each gate on it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.gates import ShrunkGate
from localma.inspection.drawing import new_axes
from localma.inspection.record import Columns, Display, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"linear": "#D55E00", "local": "#0072B2", "constant": "#000000"}
MARKERS = {"linear": "s", "local": "o"}
CONSTANT_LINES = {"global": "-", "equal": "--", "best": ":"}
CONSTANT_NAMES = {"global": "global weights", "equal": "equal weights", "best": "best candidate"}

FittedPath = LocalMARegressor | LocalMAClassifier | ShrunkGate


@dataclass(frozen=True)
class LocalityGainRecord(Record):
    """The locality gain and the risks behind it; see `localma.evidence.LocalityGain`."""

    value: float | None
    standard_error: float | None
    global_risk: float | None
    risk: float | None
    over_constant: float | None
    over_constant_error: float | None
    baseline_risk: float | None
    over_baseline: float | None
    over_baseline_error: float | None
    is_clear: bool
    is_local: bool
    is_idle: bool


@dataclass(frozen=True)
class LocalityPathDisplay(Display):
    """Held-out risk along the path, against the shrinkage, with the weight of each point.

    Attributes
    ----------
    gate : the kind of gate of each point
    shrinkage : None is infinite: constant weights
    risk, standard_error : held out; the error is that of the difference to global weights
    weight : of each point in the model
    gain, verdict : the locality gain, and the verdict in words
    ax_, figure_ : of the plot
    """

    gate: list[str]
    shrinkage: list[float | None]
    risk: list[float | None]
    standard_error: list[float | None]
    weight: list[float]
    gain: LocalityGainRecord
    verdict: str

    @classmethod
    def from_estimator(cls, model: FittedPath, *, ax: Axes | None = None) -> LocalityPathDisplay:
        """Draw the path of a fitted estimator, or of a fitted ShrunkGate."""
        return locality_path(model).plot(ax=ax)

    def columns(self) -> Columns:
        """A row per point of the path."""
        return {
            "gate": list(self.gate),
            "shrinkage": [inf if value is None else value for value in self.shrinkage],
            "risk": list(self.risk),
            "standard_error": list(self.standard_error),
            "weight": list(self.weight),
        }

    def notes(self) -> list[str]:
        """The verdict."""
        return [self.verdict]

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw; the area of a marker is the weight of its point in the answer."""
        if ax is None:
            ax = new_axes(6.4, 4.4)
        self._draw_on(ax)
        gates = np.array(self.gate)
        for name in dict.fromkeys(self.gate):
            points = np.flatnonzero(gates == name)
            if self.shrinkage[points[0]] is None:
                self._draw_constant(name, int(points[0]))
            else:
                self._draw_line(name, points)
        ax.set(xscale="log", xlabel="shrinkage", ylabel="held-out risk")
        if min(risk for risk in self.risk if risk is not None) > 0:
            ax.set_yscale("log")
        ax.set_title(self.verdict, fontsize=9, wrap=True)
        ax.legend(frameon=False)
        return self

    def _draw_line(self, name: str, points: NDArray[np.intp]) -> None:
        shrinkage, risk, weight = (
            np.array(column, dtype=np.float64)[points]
            for column in (self.shrinkage, self.risk, self.weight)
        )
        colour, marker = COLOURS.get(name, "#009E73"), MARKERS.get(name, "D")
        self.ax_.plot(shrinkage, risk, color=colour, linewidth=1, zorder=1)
        self.ax_.scatter(shrinkage, risk, 20 + 400 * weight, color=colour, marker=marker, alpha=0.8)
        self.ax_.plot([], [], marker=marker, color=colour, label=f"{name} gate")

    def _draw_constant(self, name: str, point: int) -> None:
        label, weight = CONSTANT_NAMES[name], self.weight[point]
        if weight:
            label = f"{label} ({weight:.0%} of the answer)"
        self.ax_.axhline(
            self.risk[point] or 0.0,
            color=COLOURS["constant"],
            linestyle=CONSTANT_LINES[name],
            label=label,
        )


def locality_path(model: FittedPath) -> LocalityPathDisplay:
    """The path of a fitted model, with the locality gain and the verdict."""
    if not hasattr(model, "path_"):
        raise InvalidInputError(
            "Only a model fitted with gate='auto' (or a ShrunkGate) has a path to draw; "
            f"received {type(model).__name__}."
        )
    gain = LocalityGainRecord.from_dict(model.locality_gain_.as_dict())
    return LocalityPathDisplay(**model.path_, gain=gain, verdict=model.verdict_)
