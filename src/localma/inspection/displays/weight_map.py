"""The picture of a map of weights: a colour and a number per candidate, or one candidate's."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.errors import unknown_name
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
from localma.inspection.observed import Model, observe
from localma.inspection.weight_map import weight_map


class WeightMapDisplay:
    """Who is trusted most in each cell of two features; the fuller the colour, the further.

    Parameters
    ----------
    part : dict, the part "map" of a summary

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
        features: tuple[str | int, str | int] | None = None,
        candidate: str | None = None,
        sample_weight: Any = None,
        ax: Any = None,
        random_state: int = 0,
    ) -> Self:
        """Draw the map over two features, by default the two most important ones."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        if not seen.weights_vary:
            raise nothing_to_draw()
        ranked = [row["feature"] for row in importance(seen)] if features is None else []
        first, second = pick_features(seen, features, ranked, 2)
        return cls(weight_map(seen, first, second)).plot(candidate=candidate, ax=ax)

    def plot(self, *, candidate: str | None = None, ax: Any = None) -> Self:
        """Draw the most trusted candidate of each cell, or the weight of one `candidate`."""
        own = ax is None
        labels = self.part["labels"]
        if own:
            ax = new_axes(2.6 + 0.62 * len(labels[0]), 2.2 + 0.42 * len(labels[1]))
        self.ax_, self.figure_ = ax, ax.figure
        weights = np.array(self.part["weights"], dtype=np.float64)
        if candidate is None:
            self._draw_leaders(weights, own)
        else:
            self._draw_one(weights, candidate)
        for axis, name, words in zip("xy", self.part["features"], labels, strict=True):
            texts = [name_text(word, 26) for word in words]
            turned = axis == "x" and max(map(len, texts)) > 4
            how: dict[str, Any] = {"rotation": 40, "ha": "right"} if turned else {}
            getattr(ax, f"set_{axis}ticks")(range(len(texts)), texts, fontsize="small", **how)
            getattr(ax, f"set_{axis}label")(name_text(name, 40))
        return self

    def _draw_one(self, weights: NDArray[np.float64], candidate: str) -> None:
        names = self.part["candidates"]
        if candidate not in names:
            raise unknown_name("candidate of this map", candidate, names)
        shown = np.ma.masked_invalid(weights[names.index(candidate)])
        image = self.ax_.imshow(
            shown, origin="lower", vmin=0, vmax=1, cmap="cividis", aspect="auto"
        )
        self.figure_.colorbar(image, ax=self.ax_, label=f"weight of {name_text(candidate)}")

    def _draw_leaders(self, weights: NDArray[np.float64], own: bool) -> None:
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
            self.ax_.text(column, row, c + 1, ha="center", va="center", color=ink, fontsize=9)
        self.ax_.imshow(picture, origin="lower", aspect="auto")
        met = sorted(set(leaders[leaders >= 0].tolist()))
        handles = [patches.Patch(color=place(c, COLOURS)) for c in met]
        labels = [f"{c + 1}  {name_text(self.part['candidates'][c])}" for c in met]
        if own:
            legend_below(self.figure_, handles, labels)
        else:
            self.ax_.legend(handles, labels, fontsize="small")
        self.ax_.set_title("Trusted most", fontsize="medium")
