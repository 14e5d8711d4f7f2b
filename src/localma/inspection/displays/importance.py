"""The picture of importance: how much weight each feature moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from localma.inspection.drawing import COLOURS, name_text, new_axes, nothing_to_draw
from localma.inspection.importance import importance
from localma.inspection.observed import Model, observe

MOST_BARS = 20


class ImportanceDisplay:
    """Share of the weight that moves when a feature is shuffled, one bar per feature.

    Parameters
    ----------
    rows : list of dict, the part "importance" of a summary

    Attributes
    ----------
    ax_, figure_ : where `plot` drew
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = list(rows)

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
        """Measure the importance of each feature for the gate, and draw it."""
        seen = observe(model, X, sample_weight=sample_weight).sample(random_state=random_state)
        return cls(importance(seen, random_state=random_state)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the twenty most important features."""
        if not self.rows:
            raise nothing_to_draw()
        rows = self.rows[:MOST_BARS]
        if ax is None:
            ax = new_axes(6.4, 1.2 + 0.3 * max(len(rows), 2))
        self.ax_, self.figure_ = ax, ax.figure
        places = np.arange(len(rows))
        ax.barh(
            places,
            [row["value"] for row in rows],
            xerr=[row["standard_error"] or 0.0 for row in rows],
            color=COLOURS[0],
            ecolor="0.3",
            height=0.7,
        )
        ax.set_yticks(places, [name_text(row["feature"]) for row in rows])
        ax.set(xlabel="share of the weight that moves when shuffled", xlim=(0, None))
        ax.set_ylim(len(rows) - 0.5, -0.5)
        left_out = len(self.rows) - len(rows)
        if left_out:
            ax.set_title(f"{left_out} less important features are not shown", fontsize="small")
        return self
