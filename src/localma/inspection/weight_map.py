"""The map of weights: the most trusted candidate in each cell of two features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from localma._optional import optional
from localma.errors import unknown_name
from localma.inspection.bins import Bins, make_bins
from localma.inspection.columns import Feature, Kind
from localma.inspection.drawing import (
    COLOURS,
    legend_below,
    name_text,
    new_axes,
    nothing_to_draw,
    place,
)
from localma.inspection.effects import pick_features
from localma.inspection.importance import importance
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Display
from localma.inspection.shown import most_trusted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP_BINS = 8


@dataclass(frozen=True)
class WeightMapDisplay(Display):
    """Mean weights in each cell of two features; the fuller the colour, the larger the weight.

    Attributes
    ----------
    features, kinds : of the x axis and of the y axis
    candidates : C names, the sum of n_others last
    labels, centres : of the bins of both axes; centres are None for categories
    counts : [By][Bx], rows in each cell
    weights : [C][By][Bx], None in cells without rows
    most_trusted : [By][Bx], the position of a candidate in the pool, None in cells without rows
    ax_, figure_ : of the plot
    """

    features: list[str]
    kinds: list[Kind]
    candidates: list[str]
    n_others: int
    labels: list[list[str]]
    centres: list[list[float | None] | None]
    counts: list[list[int]]
    weights: list[list[list[float | None]]]
    most_trusted: list[list[int | None]]

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Any,
        *,
        features: tuple[str | int, str | int] | None = None,
        candidate: str | None = None,
        sample_weight: ArrayLike | None = None,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> WeightMapDisplay:
        """Draw the map over two features, by default the two most important ones."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        if not seen.weights_vary:
            raise nothing_to_draw()
        ranked = importance(seen).features if features is None else []
        across, up = pick_features(seen, features, ranked, 2)
        return weight_map(seen, across, up).plot(candidate=candidate, ax=ax)

    def columns(self) -> Columns:
        """A row per cell that has rows."""
        cells = [
            (j, i)
            for j, row in enumerate(self.most_trusted)
            for i, leader in enumerate(row)
            if leader is not None
        ]
        table: Columns = {
            self.features[0]: [self.labels[0][i] for _, i in cells],
            self.features[1]: [self.labels[1][j] for j, _ in cells],
            "rows": [self.counts[j][i] for j, i in cells],
        }
        for name, weights in zip(self.candidates, self.weights, strict=True):
            table[name] = [weights[j][i] for j, i in cells]
        return table

    def plot(self, *, candidate: str | None = None, ax: Axes | None = None) -> Self:
        """Draw the most trusted candidate of each cell, or the weight of one `candidate`."""
        is_new = ax is None
        if ax is None:
            ax = new_axes(2.6 + 0.62 * len(self.labels[0]), 2.2 + 0.42 * len(self.labels[1]))
        self._draw_on(ax)
        weights = np.array(self.weights, dtype=np.float64)
        if candidate is None:
            self._draw_leaders(weights, is_new)
        else:
            self._draw_candidate(weights, candidate)
        across, up = ([name_text(label, 26) for label in labels] for labels in self.labels)
        ax.set_xticks(range(len(across)), across, fontsize="small")
        if max(map(len, across)) > 4:
            for label in ax.get_xticklabels():
                label.set(rotation=40, ha="right")
        ax.set_yticks(range(len(up)), up, fontsize="small")
        ax.set_xlabel(name_text(self.features[0], 40))
        ax.set_ylabel(name_text(self.features[1], 40))
        return self

    def _draw_candidate(self, weights: NDArray[np.float64], candidate: str) -> None:
        if candidate not in self.candidates:
            raise unknown_name("candidate of this map", candidate, self.candidates)
        image = self.ax_.imshow(
            np.ma.masked_invalid(weights[self.candidates.index(candidate)]),
            origin="lower",
            vmin=0,
            vmax=1,
            cmap="cividis",
            aspect="auto",
        )
        self.figure_.colorbar(image, ax=self.ax_, label=f"weight of {name_text(candidate)}")

    def _draw_leaders(self, weights: NDArray[np.float64], is_new: bool) -> None:
        patches = optional("matplotlib.patches", extra="plot")
        colours = optional("matplotlib.colors", extra="plot")
        leaders = np.where(np.isnan(weights[0]), -1, np.nan_to_num(weights, nan=-1).argmax(axis=0))
        picture = np.ones((*leaders.shape, 3))
        for row, column in np.argwhere(leaders >= 0):
            c = int(leaders[row, column])
            strength = 0.15 + 0.85 * weights[c, row, column]
            full = np.array(colours.to_rgb(place(c, COLOURS)))
            cell = strength * full + (1 - strength)
            picture[row, column] = cell
            ink = "white" if cell @ (0.3, 0.59, 0.11) < 0.55 else "black"
            self.ax_.text(column, row, str(c + 1), ha="center", va="center", color=ink, fontsize=9)
        self.ax_.imshow(picture, origin="lower", aspect="auto")
        met = sorted(set(leaders[leaders >= 0].tolist()))
        handles = [patches.Patch(color=place(c, COLOURS)) for c in met]
        labels = [f"{c + 1}  {name_text(self.candidates[c])}" for c in met]
        if is_new:
            legend_below(self.figure_, handles, labels)
        else:
            self.ax_.legend(handles, labels, fontsize="small")
        self.ax_.set_title("Trusted most", fontsize="medium")


def weight_map(
    seen: Observed, across: Feature, up: Feature, *, bins: int = MAP_BINS
) -> WeightMapDisplay:
    """Mean weights of the rows in each cell of a feature along x and one along y."""
    shown = most_trusted(seen.names, seen.mean(seen.weights))
    x_bins, y_bins = make_bins(across, bins), make_bins(up, bins)
    width, height = len(x_bins.labels), len(y_bins.labels)
    cells = Bins(("",) * (width * height), None, y_bins.place * width + x_bins.place)
    means = cells.means(seen.weights, seen.sample_weight)
    leaders = np.argmax(np.where(np.isnan(means), -1.0, means), axis=1)
    leaders = np.where(np.isnan(means[:, 0]), -1, leaders).reshape(height, width)
    weights: Any = shown.of(means).T.reshape(-1, height, width).tolist()
    return WeightMapDisplay(
        features=[across.name, up.name],
        kinds=[across.kind, up.kind],
        candidates=list(shown.labels),
        n_others=shown.n_others,
        labels=[list(x_bins.labels), list(y_bins.labels)],
        centres=[_listed(x_bins.centres), _listed(y_bins.centres)],
        counts=cells.counts().reshape(height, width).tolist(),
        weights=weights,
        most_trusted=[[None if m < 0 else m for m in row] for row in leaders.tolist()],
    )


def _listed(centres: NDArray[np.floating] | None) -> list[float | None] | None:
    return None if centres is None else centres.tolist()
