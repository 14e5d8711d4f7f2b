"""Reliability: whether combined probabilities are frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from localma.errors import InvalidInputError
from localma.inspection.comparison import name_of_model
from localma.inspection.drawing import KIND_COLOURS, KIND_MARKERS, name_text, new_axes, two_errors
from localma.inspection.metrics import brier
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Display, Label, Record
from localma.wording import fixed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.floating]

RELIABILITY_BINS = 10


@dataclass(frozen=True)
class ReliabilityCurve(Record):
    """Predicted probability and observed frequency in B bins, for local or global weights."""

    kind: Literal["local", "global"]
    name: str
    predicted: list[float]
    observed: list[float]
    standard_error: list[float | None]
    counts: list[int]
    ece: float
    brier: float


@dataclass(frozen=True)
class ReliabilityDisplay(Display):
    """Observed frequency against predicted probability.

    Attributes
    ----------
    kind : "positive", the probability of the second of two classes, or "confidence", that of the
        most probable class
    positive : the label of the second of two classes
    curves : of the model and of global weights
    sentence : the calibration error in words
    ax_, figure_ : of the plot
    """

    kind: Literal["positive", "confidence"]
    positive: Label | None
    curves: list[ReliabilityCurve]
    sentence: str

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        predictions: Any = None,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> ReliabilityDisplay:
        """Measure the reliability of a classifier, and draw it."""
        seen = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        return reliability(seen).plot(ax=ax)

    def columns(self) -> Columns:
        """A row per curve and bin."""
        table: Columns = {
            "name": [curve.name for curve in self.curves for _ in curve.counts],
            "predicted": [],
            "observed": [],
            "standard_error": [],
            "rows": [],
        }
        for curve in self.curves:
            table["predicted"] += curve.predicted
            table["observed"] += curve.observed
            table["standard_error"] += curve.standard_error
            table["rows"] += curve.counts
        return table

    def notes(self) -> list[str]:
        """The calibration error in words."""
        return [self.sentence]

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw local and global weights; on the diagonal, probabilities are frequencies."""
        if ax is None:
            ax = new_axes(5.4, 5.2)
        self._draw_on(ax)
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=":", zorder=0)
        for curve, line in zip(self.curves, ("-", "--"), strict=True):
            errors = np.array([two_errors(error) for error in curve.standard_error])
            observed = np.array(curve.observed)
            ax.errorbar(
                curve.predicted,
                observed,
                # A frequency lies between 0 and 1, whatever its error.
                yerr=[np.minimum(errors, observed), np.minimum(errors, 1 - observed)],
                color=KIND_COLOURS[curve.kind],
                marker=KIND_MARKERS[curve.kind],
                linestyle=line,
                capsize=2,
                markersize=5,
                label=f"{curve.name}: ECE {fixed(curve.ece, 3)}, Brier {fixed(curve.brier, 3)}",
            )
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
        if self.kind == "positive":
            ax.set_xlabel(f"probability of {name_text(str(self.positive))}")
        else:
            ax.set_xlabel("probability of the most probable class")
        ax.legend(frameon=False, loc="upper left", fontsize="small")
        return self


def reliability(seen: Observed, *, bins: int = RELIABILITY_BINS) -> ReliabilityDisplay:
    """Calibration of local and of global weights.

    With two classes, of the probability of the second; with more, of the probability of the most
    probable one (its confidence). Bins hold equally many rows. ECE is ``sum_b share_b
    |observed_b - predicted_b|``.
    """
    if seen.y is None or not seen.is_classification:
        raise InvalidInputError("Reliability is that of a classifier on rows with labels.")
    local = _curve(seen, "local", name_of_model(seen), seen.mixture, bins)
    curves = [local, _curve(seen, "global", "global weights", seen.global_mixture, bins)]
    sentence = (
        f"Probabilities of {local.name} differ from frequencies by {local.ece:.1%} on average "
        "(expected calibration error)."
    )
    if len(seen.model.classes_) == 2:
        return ReliabilityDisplay("positive", seen.model.classes_.tolist()[1], curves, sentence)
    return ReliabilityDisplay("confidence", None, curves, sentence)


def _curve(
    seen: Observed, kind: Literal["local", "global"], name: str, probabilities: Array, most: int
) -> ReliabilityCurve:
    predicted, happened = _events(seen, probabilities)
    inner = np.quantile(predicted, np.linspace(0, 1, most + 1)[1:-1])
    bin_of_row = np.searchsorted(np.unique(inner), predicted, side="right")
    weight = seen.sample_weight
    bins = [np.flatnonzero(bin_of_row == b) for b in np.unique(bin_of_row)]
    bins = [rows for rows in bins if weight[rows].any()]  # bins without weight have no mean
    means = [seen.mean_and_error(happened[rows], rows) for rows in bins]
    centres = [float(np.average(predicted[rows], weights=weight[rows])) for rows in bins]
    shares = [weight[rows].sum() / weight.sum() for rows in bins]
    gaps = [abs(mean - centre) for (mean, _), centre in zip(means, centres, strict=True)]
    one_hot = np.eye(len(seen.model.classes_))[seen.observed_classes]
    return ReliabilityCurve(
        kind=kind,
        name=name,
        predicted=centres,
        observed=[mean for mean, _ in means],
        standard_error=[error for _, error in means],
        counts=[len(rows) for rows in bins],
        ece=float(np.dot(shares, gaps)),
        brier=brier(one_hot, probabilities, weight)[0],
    )


def _events(seen: Observed, probabilities: Array) -> tuple[Array, Array]:
    """Probability of an event and whether it happened: (n,) each."""
    if probabilities.shape[1] == 2:
        return probabilities[:, 1], (seen.observed_classes == 1).astype(np.float64)
    hits = probabilities.argmax(axis=1) == seen.observed_classes
    return probabilities.max(axis=1), hits.astype(np.float64)
