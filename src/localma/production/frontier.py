"""The risk and the cost of settings that leave out candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from localma._types import Float64
from localma.candidates.outputs import Table
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.formatting import mean_loss, number, percent
from localma.gates.left_out import renormalized
from localma.inspection.display import Display
from localma.inspection.observed import observe
from localma.production.budget import Allowance
from localma.production.options import Costs, Options
from localma.records import Columns, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIN_WEIGHTS = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
Measure: TypeAlias = tuple[str, float | None, float, float]
"""Name and value of a setting, its cost and its risk."""
BUDGETS = np.linspace(0.1, 0.9, 9)
"""Budgets, as shares of the cost of all candidates."""


@dataclass(frozen=True)
class FrontierPoint(Record):
    """One setting that leaves out candidates.

    Parameters
    ----------
    setting : str
        Name of the option of `answer`: "min_weight", "max_candidates" or "budget"; or "all", if
        all candidates with weight run.
    value : float or None
        Its value; None for "all".
    cost : float
        Mean cost of a row.
    risk : float
        Mean loss.
    increase : float
        Increase of the risk, as a share of the risk of "all".
    is_efficient : bool
        Whether no other setting has both a smaller cost and a smaller risk.

    Examples
    --------
    >>> FrontierPoint("min_weight", 0.1, 2.5, 0.21, 0.01, True).options()
    {'min_weight': 0.1}
    """

    setting: str
    value: float | None
    cost: float
    risk: float
    increase: float
    is_efficient: bool

    def options(self) -> dict[str, float]:
        """Return the setting as an argument of `answer` and `predict`.

        Returns
        -------
        dict
            Empty for "all".
        """
        if self.value is None:
            return {}
        if self.setting == "max_candidates":
            return {self.setting: int(self.value)}
        return {self.setting: self.value}


@dataclass(frozen=True)
class FrontierDisplay(Display):
    """Risk and cost of settings that leave out candidates.

    Parameters
    ----------
    loss : str
        Name of the loss.
    points : list of FrontierPoint
        The settings, the cheapest first.
    cheapest : FrontierPoint
        The cheapest setting whose risk increases by at most `max_increase`.
    max_increase : float
        The largest accepted increase, as a share of the risk with all candidates.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> every = FrontierPoint("all", None, 3.0, 0.2, 0.0, True)
    >>> print(FrontierDisplay("squared_error", [every], every, 0.01))  # doctest: +ELLIPSIS
    setting  value  cost  squared_error  increase  efficient
    all                3            0.2         0       True
    The cheapest setting with at most 1.0% more risk is ...
    """

    loss: str
    points: list[FrontierPoint]
    cheapest: FrontierPoint
    max_increase: float

    def _columns(self) -> Columns:
        """Return a row per setting."""
        return {
            "setting": [point.setting for point in self.points],
            "value": [point.value for point in self.points],
            "cost": [point.cost for point in self.points],
            self.loss: [point.risk for point in self.points],
            "increase": [point.increase for point in self.points],
            "efficient": [point.is_efficient for point in self.points],
        }

    def _notes(self) -> list[str]:
        """Return the recommended setting in words."""
        best = self.cheapest
        name = "all candidates with weight"
        if best.value is not None:
            name = f"{best.setting}={best.value:g}"
        whole = next(point.cost for point in self.points if point.setting == "all")
        saved = 0.0 if whole == 0.0 else 1.0 - best.cost / whole
        return [
            f"The cheapest setting with at most {percent(self.max_increase)} more risk is {name}: "
            f"cost {number(best.cost)} per row, {percent(saved)} saved."
        ]

    def _draw(self, ax: Axes | None) -> None:
        """Draw risk against cost, with a line through the efficient settings."""
        ax = self._start_plot(ax, 6.4, 4.0)
        for k, setting in enumerate(("budget", "max_candidates", "min_weight", "all")):
            points = [point for point in self.points if point.setting == setting]
            style = "osv*"[k]
            costs, risks = [point.cost for point in points], [point.risk for point in points]
            ax.plot(costs, risks, style, color=f"C{k}", label=setting)
        efficient = [point for point in self.points if point.is_efficient]
        ax.step(
            [point.cost for point in efficient],
            [point.risk for point in efficient],
            where="post",
            color="0.5",
            zorder=0,
        )
        ax.plot(self.cheapest.cost, self.cheapest.risk, "o", ms=13, mfc="none", color="black")
        ax.set(xlabel="cost per row", ylabel=mean_loss(self.loss))
        self._set_title(self._notes()[0])
        self._draw_legend()


def frontier(
    model: LocalMARegressor | LocalMAClassifier,
    X: Table,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None,
    predictions: Any,
    costs: Costs | None,
    max_increase: float,
) -> FrontierDisplay:
    """Compare settings on labelled rows, as `LocalMARegressor.frontier` describes."""
    if not max_increase >= 0.0:
        raise InvalidInputError(
            f"max_increase must be a share of the risk of 0 or more; received {max_increase!r}."
        )
    observed = observe(model, X, y, sample_weight=sample_weight, predictions=predictions)
    W, names = observed.used_weights, list(observed.names)
    given = np.ones(len(names)) if model.pool_ is None else model.pool_.costs
    costs = Allowance.of(Options(costs=costs), given, names).costs
    reference, available = model.global_weights_, observed.known

    def measure(options: Options) -> tuple[float, float]:
        V = W
        if options.chooses:
            chosen = Allowance.of(options, costs, names).select(W, available, reference)
            V = renormalized(W, chosen, reference)
        risk = observed.mean(observed.losses(V))
        return float(observed.mean((V > 0.0) @ costs)), float(risk)

    whole_cost, whole_risk = measure(Options())
    measured: list[Measure] = [("all", None, whole_cost, whole_risk)]
    for setting, value in _settings(costs):
        measured.append((setting, value, *measure(Options(**{setting: value}))))  # type: ignore[arg-type]
    points = _points(measured, whole_risk)
    accepted = [point for point in points if point.increase <= max_increase]
    cheapest = min(accepted, key=lambda point: (point.cost, point.risk))
    return FrontierDisplay(model.loss_.name, points, cheapest, max_increase)


def _settings(costs: Float64) -> list[tuple[str, float]]:
    """The settings to compare."""
    budgets = np.unique(np.append(BUDGETS * costs.sum(), costs))
    budgets = budgets[(budgets >= costs.min()) & (budgets > 0.0) & (budgets < costs.sum())]
    return [
        *(("min_weight", value) for value in MIN_WEIGHTS),
        *(("max_candidates", number) for number in range(1, len(costs))),
        *(("budget", value) for value in budgets.tolist()),
    ]


def _points(measured: list[Measure], whole_risk: float) -> list[FrontierPoint]:
    """The settings with their increase of the risk, the cheapest first."""
    measured = sorted(measured, key=lambda entry: entry[2:])
    points, best = [], np.inf
    for setting, value, cost, risk in measured:
        increase = (risk - whole_risk) / abs(whole_risk) if whole_risk else 0.0
        points.append(FrontierPoint(setting, value, cost, risk, increase, risk < best))
        best = min(best, risk)
    return points
