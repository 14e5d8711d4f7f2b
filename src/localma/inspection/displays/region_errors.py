"""The picture of error by region: everybody's loss in each region, with two standard errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from localma.inspection.drawing import (
    COLOURS,
    MARKERS,
    legend_below,
    name_text,
    new_axes,
    nothing_to_draw,
    place,
    two_errors,
    wrapped,
)
from localma.inspection.observed import Model, observe
from localma.inspection.region_errors import region_errors
from localma.inspection.regions import find_regions

GREYS = {"equal": "0.7", "global": "0.45", "local": "0.0"}
FILLED = {"equal": "<", "global": ">", "local": "o"}


class ErrorByRegionDisplay:
    """Loss of the candidates and of equal, global and local weights in each region.

    Parameters
    ----------
    part : dict, the part "region_errors" of a summary

    Attributes
    ----------
    ax_, figure_ : where `plot` drew
    """

    def __init__(self, part: dict[str, Any]) -> None:
        self.part = part

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        predictions: Any = None,
        groups: Any = None,
        ax: Any = None,
        random_state: int = 0,
    ) -> Self:
        """Find the regions, evaluate everybody in each, and draw it."""
        seen = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        some = seen.sample(random_state=random_state)
        if not some.weights_vary:
            raise nothing_to_draw()
        found = find_regions(some, random_state=random_state)
        return cls(region_errors(seen, found)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw one group per region; mixtures are grey and black, candidates coloured."""
        own, regions, entries = ax is None, self.part["regions"], self.part["entries"]
        if own:
            tall = max(0.7, 0.13 * len(entries))
            ax = new_axes(8.4, 1.8 + tall * len(regions))
        self.ax_, self.figure_ = ax, ax.figure
        rows = np.arange(len(regions))
        for c, entry in enumerate(entries):
            mixed = entry["kind"] != "candidate"
            errors = [two_errors(region["standard_error"][c]) for region in regions]
            ax.errorbar(
                [region["loss"][c] for region in regions],
                rows + (c - (len(entries) - 1) / 2) * 0.74 / len(entries),
                xerr=errors,
                linestyle="none",
                color=GREYS[entry["kind"]] if mixed else place(c, COLOURS),
                marker=FILLED[entry["kind"]] if mixed else place(c, MARKERS),
                markerfacecolor=None if mixed else "white",
                markersize=5,
                linewidth=1,
                label=name_text(entry["name"]),
            )
        labels = [f"{wrapped(region['where'], 38)}\n({region['n']} rows)" for region in regions]
        ax.set_yticks(rows, labels, fontsize="small")
        for edge in rows[1:]:
            ax.axhline(edge - 0.5, color="0.85", linewidth=0.8, zorder=0)
        ax.set_ylim(len(regions) - 0.5, -0.5)
        ax.set_xlabel(f"{self.part['loss']}, with two standard errors")
        handles, names = ax.get_legend_handles_labels()
        if own:
            legend_below(self.figure_, handles, names)
        else:
            ax.legend(handles, names, fontsize="small")
        return self
