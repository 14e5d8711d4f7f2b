"""The picture of regions: how the weight is shared in each, the regions in words beside."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from localma.inspection.drawing import (
    COLOURS,
    HATCHES,
    legend_below,
    name_text,
    new_axes,
    nothing_to_draw,
    place,
    say_above,
    wrapped,
)
from localma.inspection.observed import Model, observe
from localma.inspection.regions import describe_regions, find_regions


class RegionsDisplay:
    """Shares of the weight in each region, as one bar per region.

    Parameters
    ----------
    part : dict, the part "regions" of a summary

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
        *,
        sample_weight: Any = None,
        ax: Any = None,
        random_state: int = 0,
    ) -> Self:
        """Find the regions of a model over some rows, and draw them."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        found = find_regions(seen, random_state=random_state)
        return cls(describe_regions(seen, found)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw; the title says how faithful the regions are."""
        if not self.part["regions"]:
            raise nothing_to_draw()
        own, regions = ax is None, self.part["regions"]
        if own:
            ax = new_axes(8.4, 1.7 + 0.62 * len(regions))
        self.ax_, self.figure_ = ax, ax.figure
        rows = np.arange(len(regions))
        ends = np.zeros(len(regions))
        for c, name in enumerate(self.part["candidates"]):
            widths = np.array([region["weights"][c] for region in regions])
            ax.barh(
                rows,
                widths,
                left=ends,
                height=0.72,
                color=place(c, COLOURS),
                hatch=place(c, HATCHES),
                edgecolor="white",
                linewidth=0.5,
                label=name_text(name),
            )
            ends += widths
        labels = [
            f"{wrapped(region['where'], 38)}\n({region['share']:.0%} of rows)" for region in regions
        ]
        ax.set_yticks(rows, labels, fontsize="small")
        ax.set(xlim=(0, 1), ylim=(len(regions) - 0.5, -0.5), xlabel="share of the weight")
        say_above(ax, self.part["sentence"], own=own)
        handles, names = ax.get_legend_handles_labels()
        if own:
            legend_below(self.figure_, handles, names)
        else:
            ax.legend(handles, names, fontsize="small")
        return self
