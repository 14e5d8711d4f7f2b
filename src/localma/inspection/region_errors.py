"""Error by region: losses of the candidates and of the weights in each region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from localma._types import Rows
from localma.errors import InvalidInputError
from localma.formatting import mean_loss
from localma.inspection import display
from localma.inspection.comparison import Kind, Method, make_methods
from localma.inspection.display import Columns, Display, Record
from localma.inspection.observed import Measured, Model, Observed, Predictions, observe
from localma.inspection.regions import Regions, find_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREYS = {"equal": "0.7", "global": "0.45", "local": "0.0"}
FILLED = {"equal": "<", "global": ">", "local": "o"}


@dataclass(frozen=True)
class EntryName(Record):
    """An entry: a candidate, or equal, global or local weights."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class RegionLosses(Record):
    """Mean losses of E entries in one region.

    best : position of the entry with the smallest loss; to_model : loss minus that of the model,
    paired by row.
    """

    where: str
    n: int
    best: int
    loss: list[float | None]
    standard_error: list[float | None]
    to_model: list[float | None]
    to_model_error: list[float | None]

    @property
    def losses(self) -> list[Measured]:
        """Loss of each entry with its standard error."""
        return [Measured(*pair) for pair in zip(self.loss, self.standard_error, strict=True)]


@dataclass(frozen=True)
class ErrorByRegionDisplay(Display):
    """Loss of the candidates and of equal, global and local weights in each region.

    Parameters
    ----------
    loss : str
        Name of the loss.
    entries : list of EntryName
        The most trusted candidates, then equal, global and local weights.
    regions : list of RegionLosses
        Losses of all entries in each region.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> region = RegionLosses("area > 80", 9, 0, [0.5, 0.7], [0.1, 0.1], [-0.2, 0.0], [0.1, 0.0])
    >>> entries = [EntryName("candidate", "a"), EntryName("local", "local weights")]
    >>> print(ErrorByRegionDisplay("squared_error", entries, [region]))
    region     rows           name  squared_error  standard_error
    area > 80     9              a            0.5             0.1
    area > 80     9  local weights            0.7             0.1
    """

    loss: str
    entries: list[EntryName]
    regions: list[RegionLosses]

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions = None,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> ErrorByRegionDisplay:
        """Find the regions, measure all losses in each, and draw them.

        Parameters
        ----------
        model : LocalMARegressor or LocalMAClassifier
            A fitted model.
        X : table or array
            The n rows, as in `model.predict`.
        y : array of shape (n,) or (n, K)
            Targets or labels.
        sample_weight : array of shape (n,), optional
            The weight of each row. By default all weights are one.
        predictions : dict or array, optional
            The candidates' predictions for X. By default the candidates are run.
        groups : array of shape (n,), optional
            The group of each row. Standard errors are then between groups.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.
        random_state : int, default=0
            Seed of the random samples.

        Returns
        -------
        ErrorByRegionDisplay
            The losses, drawn.
        """
        rows = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        sample = rows.sample(random_state=random_state)
        if not sample.weights_vary:
            raise display.nothing_to_draw()
        return region_errors(rows, find_regions(sample, random_state=random_state)).plot(ax=ax)

    def _columns(self) -> Columns:
        """Return a row per region and entry."""
        cells = [(region, e) for region in self.regions for e in range(len(self.entries))]
        return {
            "region": [region.where for region, _ in cells],
            "rows": [region.n for region, _ in cells],
            "name": [self.entries[e].name for _, e in cells],
            self.loss: [region.loss[e] for region, e in cells],
            "standard_error": [region.standard_error[e] for region, e in cells],
        }

    def _draw(self, ax: Axes | None) -> None:
        """Draw one group per region; mixtures are grey and black, candidates coloured."""
        height = max(0.7, 0.13 * len(self.entries))
        ax = self._start_plot(ax, 8.4, 1.8 + height * len(self.regions))
        for e in range(len(self.entries)):
            self._draw_entry(e)
        labels = [
            f"{display.wrapped(region.where, 38)}\n({region.n} rows)" for region in self.regions
        ]
        self._label_rows(labels, fontsize="small")
        for row in range(1, len(self.regions)):
            ax.axhline(row - 0.5, color="0.85", linewidth=0.8, zorder=0)
        ax.set_xlabel(f"{mean_loss(self.loss)}, with two standard errors")
        self._draw_legend()

    def _draw_entry(self, e: int) -> None:
        entry, n = self.entries[e], len(self.entries)
        losses = [region.losses[e] for region in self.regions]
        self.ax_.errorbar(
            np.array([loss.value for loss in losses], dtype=np.float64),
            np.arange(len(losses)) + (e - (n - 1) / 2) * 0.74 / n,
            xerr=display.two_errors([loss.standard_error for loss in losses]),
            linestyle="none",
            color=GREYS.get(entry.kind, display.series_style(e).colour),
            marker=FILLED.get(entry.kind, display.series_style(e).marker),
            markerfacecolor={"candidate": "white"}.get(entry.kind),
            markersize=5,
            linewidth=1,
            label=display.name_text(entry.name),
        )


def region_errors(observed: Observed, regions: Regions) -> ErrorByRegionDisplay:
    """Compute the losses of all entries in every region, paired with the model."""
    if observed.y is None:
        raise InvalidInputError("Errors by region need the targets of the rows; y is None. Pass y.")
    methods = make_methods(observed)
    named = [methods[m] for m in observed.named.positions] + methods[len(observed.names) :]
    region_of_row = regions.region_of_row(observed)
    losses = []
    for k in range(len(regions.bounds)):
        rows = np.flatnonzero((region_of_row == k) & (observed.sample_weight > 0))
        if len(rows):
            losses.append(_region_losses(observed, named, rows, regions.where(k) or "everywhere"))
    return ErrorByRegionDisplay(
        loss=observed.model.loss_.name,
        entries=[EntryName(method.kind, method.name) for method in named],
        regions=losses,
    )


def _region_losses(
    observed: Observed, methods: list[Method], rows: Rows, where: str
) -> RegionLosses:
    losses = np.array([method.losses[rows] for method in methods])
    risks, errors = zip(*(observed.mean_and_error(each, rows) for each in losses), strict=True)
    gaps = [observed.mean_and_error(each - losses[-1], rows) for each in losses]
    return RegionLosses(
        where=where,
        n=len(rows),
        best=int(np.argmin(risks)),
        loss=list(risks),
        standard_error=list(errors),
        to_model=[gap for gap, _ in gaps],
        to_model_error=[error for _, error in gaps],
    )
