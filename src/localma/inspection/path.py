"""Locality path: the held-out risk of each gate between global and local weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.formatting import percent
from localma.gates import ShrunkGate
from localma.inspection.display import Display
from localma.records import Columns, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"linear": "#D55E00", "local": "#0072B2"}
MARKERS = {"linear": "s", "local": "o"}
CONSTANT_LINES = {"global": "-", "equal": "--", "best": ":"}
CONSTANT_NAMES = {"global": "global weights", "equal": "equal weights", "best": "best candidate"}

FittedPath = LocalMARegressor | LocalMAClassifier | ShrunkGate


@dataclass(frozen=True)
class LocalityGainRecord(Record):
    """The locality gain and the risks behind it; see `localma.evidence.LocalityGain`.

    A number that is unknown is None.

    Parameters
    ----------
    value : float or None
        Risk of the global weights minus that of the model. Positive if the model is better.
    standard_error : float or None
        Standard error of `value`.
    global_risk : float or None
        Cross-fitted risk of the global weights.
    risk : float or None
        Cross-fitted risk of the model.
    over_constant : float or None
        Gain over the same model without local gates.
    over_constant_error : float or None
        Standard error of `over_constant`.
    baseline_risk : float or None
        Cross-fitted risk of the best constant prediction, such as the mean.
    over_baseline : float or None
        Risk of the best constant prediction minus that of the model.
    over_baseline_error : float or None
        Standard error of `over_baseline`.
    is_clear : bool
        Whether the gain is larger than 4/3 standard errors and than 0.1 % of the risk.
    is_local : bool
        Whether local weights are clearly better than all constant weights, and the model is better
        than a constant prediction.
    is_idle : bool
        Whether the model is not better than a constant prediction.

    Examples
    --------
    >>> from localma.evidence import LocalityGain
    >>> gain = LocalityGain(0.5, 0.1, 2.0, 1.5, over_constant=0.4, over_constant_error=0.1)
    >>> record = LocalityGainRecord.from_dict(gain.as_dict())
    >>> record.value, record.clarity
    (0.5, 'clear')
    """

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

    @property
    def clarity(self) -> str:
        """Whether the gain is clear, in words."""
        if self.is_idle:
            return "not claimed: a constant prediction does as well"
        if not self.is_clear:
            return "not clear"
        if not self.is_local and (self.value or 0.0) > 0:
            return "clear, but not compared with other constant weights"
        return "clear"


class PathPoint(NamedTuple):
    """A gate on the path.

    Parameters
    ----------
    gate : str
        Kind of the gate.
    shrinkage : float or None
        Shrinkage of the gate. None means infinite, that is, constant weights.
    risk : float or None
        Held-out risk.
    standard_error : float or None
        Standard error of the difference between `risk` and the risk of the global weights.
    weight : float
        Weight of the gate in the model.

    Examples
    --------
    >>> point = PathPoint("linear", shrinkage=10.0, risk=1.5, standard_error=0.1, weight=0.6)
    >>> point.gate, point.weight
    ('linear', 0.6)
    """

    gate: str
    shrinkage: float | None
    risk: float | None
    standard_error: float | None
    weight: float


@dataclass(frozen=True)
class LocalityPathDisplay(Display):
    """Held-out risk along the path, against the shrinkage, with the weight of each point.

    Parameters
    ----------
    gate : list of str
        The kind of gate of each point.
    shrinkage : list of float or None
        None means infinite, that is, constant weights.
    risk, standard_error : list of float or None
        Held-out risk, and the error of its difference to global weights.
    weight : list of float
        Weight of each point in the model.
    held_out : list of str
        What was held out: rows, or groups of rows.
    gain : LocalityGainRecord
        The locality gain.
    verdict : str
        The verdict in words.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 60)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}, cv=2)
    >>> path = locality_path(model.set_params(random_state=0).fit(X, np.abs(X[:, 0])))
    >>> path.gate[:3], path.shrinkage[:3], path.gain.clarity
    (['equal', 'best', 'global'], [None, None, None], 'clear')
    """

    gate: list[str]
    shrinkage: list[float | None]
    risk: list[float | None]
    standard_error: list[float | None]
    weight: list[float]
    held_out: list[str]
    gain: LocalityGainRecord
    verdict: str

    @classmethod
    def from_estimator(cls, model: FittedPath, *, ax: Axes | None = None) -> LocalityPathDisplay:
        """Draw the path of a fitted estimator, or of a fitted ShrunkGate.

        Parameters
        ----------
        model : LocalMARegressor, LocalMAClassifier or ShrunkGate
            A model fitted with gate="auto", or its gate.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.

        Returns
        -------
        LocalityPathDisplay
            The path, drawn.
        """
        return locality_path(model).plot(ax=ax)

    @property
    def points(self) -> list[PathPoint]:
        """The points of the path, one by one."""
        columns = (self.gate, self.shrinkage, self.risk, self.standard_error, self.weight)
        return [PathPoint(*values) for values in zip(*columns, strict=True)]

    def _columns(self) -> Columns:
        """Return a row per point of the path."""
        fields = PathPoint._fields
        table: Columns = {name: [getattr(point, name) for point in self.points] for name in fields}
        return table | {"shrinkage": [inf if k is None else k for k in self.shrinkage]}

    def _notes(self) -> list[str]:
        """Return the verdict."""
        return [self.verdict]

    def _draw(self, ax: Axes | None) -> None:
        """Draw the path; the area of a marker is the weight of its point in the model."""
        ax = self._start_plot(ax, 6.4, 4.4)
        for name in dict.fromkeys(self.gate):
            points = [point for point in self.points if point.gate == name]
            if points[0].shrinkage is None:
                self._draw_constant(points[0])
            else:
                self._draw_line(points)
        ax.set(xscale="log", xlabel="shrinkage", ylabel="held-out risk")
        if min(risk for risk in self.risk if risk is not None) > 0:
            ax.set_yscale("log")
        ax.set_title(self.verdict, fontsize=9, wrap=True)
        ax.legend(frameon=False)

    def _draw_line(self, points: list[PathPoint]) -> None:
        name = points[0].gate
        shrinkage = np.array([point.shrinkage for point in points], dtype=np.float64)
        risk = np.array([point.risk for point in points], dtype=np.float64)
        area = [20 + 400 * point.weight for point in points]
        colour, marker = COLOURS.get(name, "#009E73"), MARKERS.get(name, "D")
        self.ax_.plot(shrinkage, risk, color=colour, linewidth=1, zorder=1)
        self.ax_.scatter(shrinkage, risk, area, color=colour, marker=marker, alpha=0.8)
        self.ax_.plot([], [], marker=marker, color=colour, label=f"{name} gate")

    def _draw_constant(self, point: PathPoint) -> None:
        label = CONSTANT_NAMES[point.gate]
        if point.weight:
            label = f"{label} ({percent(point.weight)} of the final weights)"
        self.ax_.axhline(point.risk or 0.0, c="black", ls=CONSTANT_LINES[point.gate], label=label)


def locality_path(model: FittedPath) -> LocalityPathDisplay:
    """Return the path of a fitted model, with the locality gain and the verdict.

    Parameters
    ----------
    model : LocalMARegressor, LocalMAClassifier or ShrunkGate
        A model fitted with gate="auto", or its gate.

    Returns
    -------
    LocalityPathDisplay
        The points of the path, the locality gain and the verdict.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 60)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}, cv=2)
    >>> model = model.set_params(random_state=0).fit(X, np.abs(X[:, 0]))
    >>> locality_path(model).gain.is_clear
    True
    """
    if not hasattr(model, "path_"):
        raise InvalidInputError(
            "Only a model fitted with gate='auto' (or a ShrunkGate) has a path to draw; "
            f"received {type(model).__name__}."
        )
    gain = LocalityGainRecord.from_dict(model.locality_gain_.as_dict())
    return LocalityPathDisplay(**model.path_, gain=gain, verdict=model.verdict_)
