"""The path from global to local weights: its table, and its picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.gates import ShrunkGate
from localma.inspection.plain import plain

COLOURS = {"linear": "#D55E00", "local": "#0072B2", "constant": "#000000"}
MARKERS = {"linear": "s", "local": "o"}

Judged = LocalMARegressor | LocalMAClassifier | ShrunkGate


def locality_path(model: Judged) -> dict[str, Any]:
    """The path that was judged and what locality is worth; the part "path" of a summary."""
    if not hasattr(model, "path_"):
        raise InvalidInputError(
            "Only a model fitted with gate='auto' (or a ShrunkGate) has a path to draw; "
            f"received {type(model).__name__}."
        )
    return plain(
        {
            **model.path_,
            "gain": model.locality_gain_.as_dict(),
            "verdict": model.verdict_,
        }
    )


class LocalityPathDisplay:
    """Held-out risk along the path, against the shrinkage, with the weight of each point.

    Parameters
    ----------
    path : dict of columns, as in `path_`, or the part "path" of a summary
    verdict : str, the title; by default that of the part

    Attributes
    ----------
    ax_, figure_ : where `plot` drew
    """

    def __init__(self, path: dict[str, Any], verdict: str | None = None) -> None:
        self.path = path
        self.verdict = path.get("verdict", "") if verdict is None else verdict

    @classmethod
    def from_estimator(cls, model: Judged, *, ax: Any = None) -> LocalityPathDisplay:
        """Draw the path of a fitted estimator, or of a fitted ShrunkGate."""
        return cls(locality_path(model)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> LocalityPathDisplay:
        """Draw; the area of a marker is the weight of its point in the answer."""
        pyplot = optional("matplotlib.pyplot", extra="plot")
        if ax is None:
            _, ax = pyplot.subplots(figsize=(6.4, 4.4), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        gates = np.array(self.path["gate"])
        for name in dict.fromkeys(self.path["gate"]):
            at = np.flatnonzero(gates == name)
            first = self.path["shrinkage"][at[0]]
            if first is None or np.isinf(first):
                self._draw_constant(name, int(at[0]))
            else:
                self._draw_line(name, at)
        ax.set(xscale="log", xlabel="shrinkage", ylabel="held-out risk")
        if min(self.path["risk"]) > 0:
            ax.set_yscale("log")
        ax.set_title(self.verdict, fontsize=9, wrap=True)
        ax.legend(frameon=False)
        return self

    def _draw_line(self, name: str, at: Any) -> None:
        shrinkage, risk, weight = (
            np.array(self.path[column], dtype=np.float64)[at]
            for column in ("shrinkage", "risk", "weight")
        )
        colour, marker = COLOURS.get(name, "#009E73"), MARKERS.get(name, "D")
        self.ax_.plot(shrinkage, risk, color=colour, linewidth=1, zorder=1)
        self.ax_.scatter(shrinkage, risk, 20 + 400 * weight, color=colour, marker=marker, alpha=0.8)
        self.ax_.plot([], [], marker=marker, color=colour, label=f"{name} gate")

    def _draw_constant(self, name: str, at: int) -> None:
        styles = {"global": "-", "equal": "--", "best": ":"}
        words = {"global": "global weights", "equal": "equal weights", "best": "best candidate"}
        weight = self.path["weight"][at]
        label = f"{words[name]} ({weight:.0%} of the answer)" if weight else words[name]
        self.ax_.axhline(
            self.path["risk"][at], color=COLOURS["constant"], linestyle=styles[name], label=label
        )
