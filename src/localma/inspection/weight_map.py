"""Weight map: the most trusted candidate in each cell of two features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from localma._optional import optional
from localma._types import Float64
from localma.errors import unknown_name
from localma.formatting import number, short
from localma.inspection import display
from localma.inspection.display import Columns, Display
from localma.inspection.effects import choose_features
from localma.inspection.features import Bins, Feature, Kind, make_bins
from localma.inspection.observed import Model, Observed, observe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP_BINS = 8
LONGEST_LABEL = 20


@dataclass(frozen=True)
class WeightMapDisplay(Display):
    """Mean weights in each cell of two features; a stronger colour is a larger weight.

    Attributes
    ----------
    features, kinds : name and kind of the features on the x axis and the y axis
    candidates : C names, with the sum of n_others last
    labels, centres : labels and means of the bins on both axes; centres are None for categories
    counts : [By][Bx], number of rows in each cell
    weights : [C][By][Bx], None in cells without rows
    most_trusted : [By][Bx], the position of a candidate in the pool, None in cells without rows
    ax_, figure_ : set by `plot`

    Examples
    --------
    >>> weight_map = WeightMapDisplay(
    ...     ["area", "rooms"], ["numeric", "numeric"], ["a", "b"], 0, [["20", "90"], ["1"]],
    ...     [[20.0, 90.0], [1.0]], [[5, 4]], [[[0.9, 0.2]], [[0.1, 0.8]]], [[0, 1]])
    >>> print(weight_map)
    area  rooms  rows    a    b
    20        1     5  0.9  0.1
    90        1     4  0.2  0.8
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
        rows = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        if not rows.weights_vary:
            raise display.nothing_to_draw()
        return weight_map(rows, *choose_features(rows, features, 2)).plot(
            candidate=candidate, ax=ax
        )

    def columns(self) -> Columns:
        """Return a row per cell that has rows."""
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

    def weight_of(self, name: str, row: int, column: int) -> float:
        """Weight of a candidate in a cell; the sum of the others if it is one of them."""
        c = self.candidates.index(name) if name in self.candidates else -1
        return self.weights[c][row][column] or 0.0

    def short_labels(self, axis: int) -> list[str]:
        """Labels for one axis: the mean of each bin with few digits, or the category."""
        labels, centres = self.labels[axis], self.centres[axis]
        if centres is None or self.kinds[axis] == "date":
            return [short(label, LONGEST_LABEL) for label in labels]
        numbers = {centre for centre in centres if centre is not None}
        digits = next(
            (d for d in range(2, 9) if len({number(c, d) for c in numbers}) == len(numbers)), 9
        )
        return [
            short(label, LONGEST_LABEL) if centre is None else number(centre, digits)
            for label, centre in zip(labels, centres, strict=True)
        ]

    def plot(self, *, candidate: str | None = None, ax: Axes | None = None) -> Self:
        """Draw the most trusted candidate of each cell, or the weight of one `candidate`."""
        width, height = len(self.labels[0]), len(self.labels[1])
        ax = self._start_plot(ax, 2.6 + 0.62 * width, 2.2 + 0.42 * height)
        weights = np.array(self.weights, dtype=np.float64)
        if candidate is None:
            self._draw_leaders(weights)
        else:
            self._draw_candidate(weights, candidate)
        across, up = ([display.name_text(label, 26) for label in labels] for labels in self.labels)
        ax.set_xticks(range(len(across)), across, fontsize="small")
        if max(map(len, across)) > 4:
            for label in ax.get_xticklabels():
                label.set(rotation=40, ha="right")
        ax.set_yticks(range(len(up)), up, fontsize="small")
        ax.set_xlabel(display.name_text(self.features[0], 40))
        ax.set_ylabel(display.name_text(self.features[1], 40))
        return self

    def _draw_candidate(self, weights: Float64, candidate: str) -> None:
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
        self.figure_.colorbar(image, ax=self.ax_, label=f"weight of {display.name_text(candidate)}")

    def _draw_leaders(self, weights: Float64) -> None:
        patches = optional("matplotlib.patches", extra="plot")
        colours = optional("matplotlib.colors", extra="plot")
        leaders = np.where(np.isnan(weights[0]), -1, np.nan_to_num(weights, nan=-1).argmax(axis=0))
        picture = np.ones((*leaders.shape, 3))
        for row, column in np.argwhere(leaders >= 0):
            c = int(leaders[row, column])
            strength = 0.15 + 0.85 * weights[c, row, column]
            cell = strength * np.array(colours.to_rgb(display.series_style(c).colour)) + (
                1 - strength
            )
            picture[row, column] = cell
            ink = "white" if cell @ (0.3, 0.59, 0.11) < 0.55 else "black"
            self.ax_.text(column, row, str(c + 1), ha="center", va="center", color=ink, fontsize=9)
        self.ax_.imshow(picture, origin="lower", aspect="auto")
        present = np.unique(leaders[leaders >= 0]).tolist()
        handles = [patches.Patch(color=display.series_style(c).colour) for c in present]
        self._draw_legend(
            handles, [f"{c + 1}  {display.name_text(self.candidates[c])}" for c in present]
        )
        self.ax_.set_title("Most trusted candidate", fontsize="medium")


def weight_map(
    observed: Observed, across: Feature, up: Feature, *, n_bins: int = MAP_BINS
) -> WeightMapDisplay:
    """Compute the mean weights in each cell of a feature along x and one along y."""
    axes = [make_bins(feature, n_bins) for feature in (across, up)]
    width, height = (len(bins.labels) for bins in axes)
    shape: tuple[int, ...] = (-1, height, width)
    cell_of_row = axes[1].bin_of_row * width + axes[0].bin_of_row
    cells = Bins(("",) * (width * height), None, cell_of_row)
    means = cells.means(observed.weights, observed.sample_weight)
    leaders: list[int | None] = np.nan_to_num(means, nan=-1.0).argmax(axis=1).tolist()
    leaders = [None if np.isnan(mean) else m for m, mean in zip(leaders, means[:, 0], strict=True)]
    return WeightMapDisplay(
        features=[across.name, up.name],
        kinds=[across.kind, up.kind],
        candidates=list(observed.named.labels),
        n_others=observed.named.n_others,
        labels=[list(bins.labels) for bins in axes],
        centres=[None if bins.centres is None else bins.centres.tolist() for bins in axes],
        counts=cells.counts().reshape(height, width).tolist(),
        weights=observed.named.select(means).T.reshape(shape).tolist(),
        most_trusted=[leaders[k : k + width] for k in range(0, width * height, width)],
    )
