"""The picture of reliability: frequencies against probabilities."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from localma.inspection.drawing import KIND_COLOURS, KIND_MARKERS, name_text, new_axes, two_errors
from localma.inspection.observed import Model, observe
from localma.inspection.reliability import reliability


class ReliabilityDisplay:
    """Observed frequency against predicted probability, with two standard errors.

    Parameters
    ----------
    part : dict, the part "reliability" of a summary

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
    ) -> Self:
        """Measure the reliability of a classifier, and draw it."""
        seen = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        return cls(reliability(seen)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw local and global weights; on the diagonal, probabilities are frequencies."""
        if ax is None:
            ax = new_axes(5.4, 5.2)
        self.ax_, self.figure_ = ax, ax.figure
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=":", zorder=0)
        for curve, line in zip(self.part["curves"], ("-", "--"), strict=True):
            errors = np.array([two_errors(error) for error in curve["standard_error"]])
            observed = np.array(curve["observed"])
            ax.errorbar(
                curve["predicted"],
                observed,
                # A frequency lies between 0 and 1, whatever its error.
                yerr=[np.minimum(errors, observed), np.minimum(errors, 1 - observed)],
                color=KIND_COLOURS[curve["kind"]],
                marker=KIND_MARKERS[curve["kind"]],
                linestyle=line,
                capsize=2,
                markersize=5,
                label=f"{curve['name']}: ECE {curve['ece']:.3f}, Brier {curve['brier']:.3f}",
            )
        words = {
            "positive": f"probability of {name_text(str(self.part['positive']))}",
            "confidence": "probability of the most probable class",
        }
        ax.set(
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
            xlabel=words[self.part["kind"]],
            ylabel="observed frequency",
        )
        ax.legend(frameon=False, loc="upper left", fontsize="small")
        return self
