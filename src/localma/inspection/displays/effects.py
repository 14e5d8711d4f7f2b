"""The picture of weight effects: a line per candidate along a feature, with its band."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, Self

import numpy as np

from localma._optional import optional
from localma.inspection.drawing import (
    COLOURS,
    LINES,
    MARKERS,
    legend_below,
    name_text,
    nothing_to_draw,
    place,
)
from localma.inspection.effects import pick_features, weight_effects
from localma.inspection.importance import importance
from localma.inspection.observed import Model, observe


class WeightEffectDisplay:
    """Mean weight of each candidate along one or more features.

    Parameters
    ----------
    effects : list of dict, the part "effects" of a summary

    Attributes
    ----------
    figure_ : the figure
    ax_ : the axes that were drawn on; a list of them where there are several features

    Examples
    --------
    >>> effect = {"feature": "area", "kind": "numeric", "candidates": ["a", "b"], "n_others": 0,
    ...           "labels": ["1", "2"], "centres": [1.0, 2.0], "counts": [5, 5],
    ...           "weights": [[0.25, 0.75], [0.75, 0.25]], "low": None, "high": None}
    >>> WeightEffectDisplay([effect]).effects[0]["feature"]
    'area'
    """

    def __init__(self, effects: Sequence[dict[str, Any]]) -> None:
        self.effects = list(effects)

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Any,
        *,
        features: Sequence[str | int] | None = None,
        sample_weight: Any = None,
        ax: Any = None,
        random_state: int = 0,
    ) -> Self:
        """Draw the effects of features, by default of the four most important ones."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        ranked = [row["feature"] for row in importance(seen)] if features is None else []
        return cls(weight_effects(seen, pick_features(seen, features, ranked, 4))).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw one panel per feature; `ax` is one of the axes for one feature, else a list."""
        if not self.effects:
            raise nothing_to_draw()
        axes = self._new_axes() if ax is None else np.ravel(np.asarray(ax, dtype=object)).tolist()
        for panel, effect in zip(axes, self.effects, strict=True):
            draw = _draw_along if effect["centres"] is not None else _draw_categories
            draw(panel, effect)
            panel.set_title(name_text(effect["feature"], 40), fontsize="medium")
        self.ax_, self.figure_ = axes[0] if len(axes) == 1 else axes, axes[0].figure
        # Lines say more than points: take the legend from a panel that has them.
        lines = [effect["centres"] is not None for effect in self.effects]
        handles, labels = axes[lines.index(True) if any(lines) else 0].get_legend_handles_labels()
        if ax is None:
            legend_below(self.figure_, handles, labels)
        else:
            axes[0].legend(handles, labels, frameon=False, fontsize="small")
        return self

    def _new_axes(self) -> list[Any]:
        pyplot = optional("matplotlib.pyplot", extra="plot")
        columns = min(2, len(self.effects))
        rows = ceil(len(self.effects) / columns)
        tallest = max(len(e["labels"]) if e["centres"] is None else 0 for e in self.effects)
        height = max(3.2, 1.0 + 0.34 * tallest)
        _, axes = pyplot.subplots(
            rows,
            columns,
            figsize=(5.2 * columns + 1, height * rows + 0.7),
            layout="constrained",
            squeeze=False,
        )
        panels = axes.ravel().tolist()
        for unused in panels[len(self.effects) :]:
            unused.remove()
        return panels[: len(self.effects)]


def _draw_along(ax: Any, effect: dict[str, Any]) -> None:
    """Lines over numbers or dates; a bin of missing values is told below."""
    known = [b for b, centre in enumerate(effect["centres"]) if centre is not None]
    x: Any = np.array([effect["centres"][b] for b in known], dtype=np.float64)
    if effect["kind"] == "date":
        x = (x * 86_400_000).astype("datetime64[ms]")
    shade = min(0.15, 0.4 / len(effect["candidates"]))
    for c, name in enumerate(effect["candidates"]):
        colour = place(c, COLOURS)
        if effect["low"] is not None:
            low, high = (_numbers(effect[side][c], known) for side in ("low", "high"))
            ax.fill_between(x, low, high, color=colour, alpha=shade, linewidth=0)
        ax.plot(
            x,
            _numbers(effect["weights"][c], known),
            color=colour,
            linestyle=place(c, LINES),
            marker=place(c, MARKERS),
            markersize=4,
            label=name_text(name),
        )
    missing = sum(effect["counts"]) - sum(effect["counts"][b] for b in known)
    label = f"{missing} missing values are not shown" if missing else ""
    ax.set(ylim=(-0.02, 1.02), ylabel="mean weight", xlabel=label)
    if effect["kind"] == "date":
        ax.tick_params(axis="x", rotation=30)


def _draw_categories(ax: Any, effect: dict[str, Any]) -> None:
    """Points beside each category; bands are thin lines."""
    rows = np.arange(len(effect["labels"]))
    everything = range(len(rows))
    n = len(effect["candidates"])
    for c, name in enumerate(effect["candidates"]):
        y = rows + (c - (n - 1) / 2) * 0.7 / n
        colour = place(c, COLOURS)
        if effect["low"] is not None:
            low, high = (_numbers(effect[side][c], everything) for side in ("low", "high"))
            ax.hlines(y, low, high, color=colour, linewidth=1, alpha=0.6)
        ax.plot(
            _numbers(effect["weights"][c], everything),
            y,
            color=colour,
            linestyle="none",
            marker=place(c, MARKERS),
            markersize=5,
            label=name_text(name),
        )
    ax.set_yticks(rows, [name_text(label, 24) for label in effect["labels"]])
    ax.set(xlim=(-0.02, 1.02), xlabel="mean weight", ylim=(len(rows) - 0.5, -0.5))
    for edge in rows[1:]:
        ax.axhline(edge - 0.5, color="0.9", linewidth=0.6, zorder=0)


def _numbers(values: Sequence[float | None], bins: Sequence[int]) -> Any:
    return np.array([values[b] for b in bins], dtype=np.float64)
