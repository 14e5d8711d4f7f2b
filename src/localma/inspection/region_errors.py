"""Error by region: losses of the candidates and of the mixtures where the weights differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from localma.errors import InvalidInputError
from localma.inspection.comparison import Kind, RowLosses, make_entries
from localma.inspection.drawing import (
    COLOURS,
    MARKERS,
    draw_legend,
    name_text,
    new_axes,
    nothing_to_draw,
    place,
    two_errors,
    wrapped,
)
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Display, Record
from localma.inspection.regions import Regions, find_regions
from localma.inspection.shown import most_trusted

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

    best : position of an entry; to_model : loss minus that of the model, paired by row.
    """

    where: str
    n: int
    best: int
    loss: list[float | None]
    standard_error: list[float | None]
    to_model: list[float | None]
    to_model_error: list[float | None]


@dataclass(frozen=True)
class ErrorByRegionDisplay(Display):
    """Loss of the candidates and of equal, global and local weights in each region.

    Attributes
    ----------
    loss : name of the loss
    entries : the most trusted candidates, then equal, global and local weights
    regions : losses of all entries in each region
    ax_, figure_ : of the plot
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
        predictions: Any = None,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> ErrorByRegionDisplay:
        """Find the regions, measure all losses in each, and draw them."""
        seen = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        sample = seen.sample(random_state=random_state)
        if not sample.weights_vary:
            raise nothing_to_draw()
        return region_errors(seen, find_regions(sample, random_state=random_state)).plot(ax=ax)

    def columns(self) -> Columns:
        """A row per region and entry."""
        cells = [(region, e) for region in self.regions for e in range(len(self.entries))]
        return {
            "region": [region.where for region, _ in cells],
            "rows": [region.n for region, _ in cells],
            "name": [self.entries[e].name for _, e in cells],
            self.loss: [region.loss[e] for region, e in cells],
            "standard_error": [region.standard_error[e] for region, e in cells],
        }

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw one group per region; mixtures are grey and black, candidates coloured."""
        is_new = ax is None
        if ax is None:
            height = max(0.7, 0.13 * len(self.entries))
            ax = new_axes(8.4, 1.8 + height * len(self.regions))
        self._draw_on(ax)
        for e in range(len(self.entries)):
            self._draw_entry(ax, e)
        rows = np.arange(len(self.regions))
        labels = [f"{wrapped(region.where, 38)}\n({region.n} rows)" for region in self.regions]
        ax.set_yticks(rows, labels, fontsize="small")
        for edge in rows[1:]:
            ax.axhline(edge - 0.5, color="0.85", linewidth=0.8, zorder=0)
        ax.set_ylim(len(self.regions) - 0.5, -0.5)
        ax.set_xlabel(f"{self.loss}, with two standard errors")
        draw_legend(ax, is_new)
        return self

    def _draw_entry(self, ax: Axes, e: int) -> None:
        entry, n = self.entries[e], len(self.entries)
        face = "white" if entry.kind == "candidate" else None
        ax.errorbar(
            [region.loss[e] for region in self.regions],  # type: ignore[arg-type]
            np.arange(len(self.regions)) + (e - (n - 1) / 2) * 0.74 / n,
            xerr=[two_errors(region.standard_error[e]) for region in self.regions],
            linestyle="none",
            color=GREYS.get(entry.kind, place(e, COLOURS)),
            marker=FILLED.get(entry.kind, place(e, MARKERS)),
            markerfacecolor=face,
            markersize=5,
            linewidth=1,
            label=name_text(entry.name),
        )


def region_errors(seen: Observed, found: Regions) -> ErrorByRegionDisplay:
    """Losses of all entries in every region, paired with the model."""
    if seen.y is None:
        raise InvalidInputError("Errors by region need the targets of the rows; y is None.")
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    entries = make_entries(seen)
    named = [entries[m] for m in shown.places] + entries[len(seen.names) :]
    region_of_row = found.of(seen.features, len(seen))
    regions = []
    for k in range(len(found.bounds)):
        rows = np.flatnonzero((region_of_row == k) & (seen.sample_weight > 0))
        if len(rows):
            regions.append(_losses(seen, named, rows, found.where(k) or "everywhere"))
    return ErrorByRegionDisplay(
        loss=seen.model.loss_.name,
        entries=[EntryName(entry.kind, entry.name) for entry in named],
        regions=regions,
    )


def _losses(
    seen: Observed, entries: list[RowLosses], rows: NDArray[np.intp], where: str
) -> RegionLosses:
    model = entries[-1]
    risks = [seen.mean_and_error(entry.losses[rows], rows) for entry in entries]
    gaps = [seen.mean_and_error((entry.losses - model.losses)[rows], rows) for entry in entries]
    return RegionLosses(
        where=where,
        n=len(rows),
        best=int(np.argmin([risk for risk, _ in risks])),
        loss=[risk for risk, _ in risks],
        standard_error=[error for _, error in risks],
        to_model=[gap for gap, _ in gaps],
        to_model_error=[error for _, error in gaps],
    )
