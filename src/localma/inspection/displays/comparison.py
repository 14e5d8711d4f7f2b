"""The picture of a comparison: the loss of everybody, best first, with two standard errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from localma.inspection.comparison import evaluate
from localma.inspection.drawing import (
    KIND_COLOURS,
    KIND_MARKERS,
    name_text,
    new_axes,
    say_above,
    two_errors,
)
from localma.inspection.observed import Model

MOST_CANDIDATES = 15
CANDIDATE = ("0.35", "x")


class ComparisonDisplay:
    """Loss of each candidate, of equal, global and local weights, and of the control.

    Parameters
    ----------
    part : dict, the part "comparison" of a summary

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
        control: bool = True,
        ax: Any = None,
        random_state: int = 0,
    ) -> Self:
        """Evaluate a model beside its candidates, and draw it."""
        part = evaluate(
            model,
            X,
            y,
            sample_weight=sample_weight,
            predictions=predictions,
            groups=groups,
            control=control,
            random_state=random_state,
        )
        return cls(part).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw; of many candidates the best fifteen."""
        entries, left_out = _best(self.part["entries"])
        own = ax is None
        if own:
            ax = new_axes(6.8, 1.3 + 0.3 * len(entries))
        self.ax_, self.figure_ = ax, ax.figure
        for row, entry in enumerate(entries):
            kind, loss = entry["kind"], entry["loss"]
            candidate = kind == "candidate"
            ax.errorbar(
                loss["value"],
                row,
                xerr=two_errors(loss["standard_error"]),
                color=CANDIDATE[0] if candidate else KIND_COLOURS[kind],
                marker=CANDIDATE[1] if candidate else KIND_MARKERS[kind],
                markersize=7,
                capsize=3,
            )
            if kind == "local":
                ax.axvline(loss["value"], color=KIND_COLOURS[kind], linestyle=":", linewidth=1)
        ax.set_yticks(range(len(entries)), [name_text(entry["name"]) for entry in entries])
        for label, entry in zip(ax.get_yticklabels(), entries, strict=True):
            label.set_fontweight("bold" if entry["kind"] == "local" else "normal")
        ax.set(
            ylim=(len(entries) - 0.5, -0.5),
            xlabel=f"{self.part['loss']}, with two standard errors",
        )
        ax.grid(axis="y", color="0.92")
        ax.set_axisbelow(True)
        title = self.part["sentence"]
        if left_out:
            title += f" {left_out} worse candidates are not shown."
        say_above(ax, title, own=own)
        return self


def _best(entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Entries by loss, without the worst of many candidates, and how many those are."""
    ordered = sorted(entries, key=lambda entry: entry["loss"]["value"])
    rank = np.cumsum([entry["kind"] == "candidate" for entry in ordered])
    kept = [
        entry
        for entry, place in zip(ordered, rank, strict=True)
        if entry["kind"] != "candidate" or place <= MOST_CANDIDATES
    ]
    return kept, len(ordered) - len(kept)
