"""Reliability: observed frequencies against predicted probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from localma._types import Array
from localma.candidates.outputs import Table
from localma.errors import InvalidInputError
from localma.formatting import fixed, percent
from localma.inspection import display
from localma.inspection.comparison import mean_square, name_of_model
from localma.inspection.display import Display
from localma.inspection.observed import Model, Observed, Predictions, observe
from localma.records import Columns, Label, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RELIABILITY_BINS = 10


@dataclass(frozen=True)
class ReliabilityCurve(Record):
    """Predicted probability and observed frequency in B bins, for local or global weights.

    Parameters
    ----------
    kind : {"local", "global"}
        The weights. The model is "local".
    name : str
        Name of the weights.
    predicted : list of float
        [B], mean predicted probability in each bin.
    observed : list of float
        [B], observed frequency in each bin.
    standard_error : list of float or None
        [B], standard error of each observed frequency. The items are None if it does not exist.
    counts : list of int
        [B], number of rows in each bin.
    ece : float
        Expected calibration error, ``sum_b share_b |observed_b - predicted_b|``.
    brier : float
        Brier score: mean squared error of the probabilities of all classes.

    Examples
    --------
    >>> curve = ReliabilityCurve("local", "local weights", [0.75], [0.5], [0.1], [8], 0.25, 0.3125)
    >>> curve.ece == abs(curve.observed[0] - curve.predicted[0])
    True
    """

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

    Parameters
    ----------
    kind : {"positive", "confidence"}
        The probability of the second of two classes, or that of the most probable class.
    positive : label or None
        The second of two classes.
    curves : list of ReliabilityCurve
        The model and the global weights.
    sentence : str
        The calibration error in words.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> curve = ReliabilityCurve("local", "local weights", [0.75], [0.5], [0.1], [8], 0.25, 0.3125)
    >>> print(ReliabilityDisplay("positive", "yes", [curve], "The calibration error is 25.0%."))
    name           predicted  observed  standard_error  rows
    local weights       0.75       0.5             0.1     8
    The calibration error is 25.0%.
    """

    kind: Literal["positive", "confidence"]
    positive: Label | None
    curves: list[ReliabilityCurve]
    sentence: str

    @classmethod
    def from_estimator(
        cls,
        model: Model,
        X: Table,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions = None,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> ReliabilityDisplay:
        """Measure the reliability of a classifier, and draw it.

        Parameters
        ----------
        model : LocalMARegressor or LocalMAClassifier
            A fitted model.
        X : table or array
            The n rows, as in `model.predict`.
        y : array of shape (n,) or (n, K)
            Targets or labels.
        sample_weight : array of shape (n,), optional
            The weight of each row. By default all weights are one.
        predictions : dict or array, optional
            The candidates' predictions for X. By default the candidates are run.
        groups : array of shape (n,), optional
            The group of each row. Standard errors are then at least those between groups.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.

        Returns
        -------
        ReliabilityDisplay
            The reliability, drawn.
        """
        rows = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        return reliability(rows).plot(ax=ax)

    @property
    def event(self) -> str:
        """The probability on the x axis."""
        if self.kind == "positive":
            return f"probability of {self.positive}"
        return "probability of the most probable class"

    def _columns(self) -> Columns:
        """Return a row per curve and bin."""
        bins = [(curve, b) for curve in self.curves for b in range(len(curve.counts))]
        return {
            "name": [curve.name for curve, _ in bins],
            "predicted": [curve.predicted[b] for curve, b in bins],
            "observed": [curve.observed[b] for curve, b in bins],
            "standard_error": [curve.standard_error[b] for curve, b in bins],
            "rows": [curve.counts[b] for curve, b in bins],
        }

    def _notes(self) -> list[str]:
        """Return the calibration error in words."""
        return [self.sentence]

    def _draw(self, ax: Axes | None) -> None:
        """Draw local and global weights; on the diagonal, probabilities are frequencies."""
        ax = self._start_plot(ax, 5.4, 5.2)
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=":", zorder=0)
        for curve, line in zip(self.curves, ("-", "--"), strict=True):
            errors = display.two_errors(curve.standard_error)
            observed = np.array(curve.observed)
            ax.errorbar(
                curve.predicted,
                observed,
                # A frequency lies between 0 and 1.
                yerr=[np.minimum(errors, observed), np.minimum(errors, 1 - observed)],
                color=display.KIND_COLOURS[curve.kind],
                marker=display.KIND_MARKERS[curve.kind],
                linestyle=line,
                capsize=2,
                markersize=5,
                label=f"{curve.name}: ECE {fixed(curve.ece, 3)}, Brier {fixed(curve.brier, 3)}",
            )
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
        ax.set_xlabel(display.name_text(self.event, 48))
        ax.legend(frameon=False, loc="upper left", fontsize="small")


def reliability(observed: Observed, *, n_bins: int = RELIABILITY_BINS) -> ReliabilityDisplay:
    """Measure the calibration of local and of global weights.

    With two classes, this is the calibration of the probability of the second class. With more, it
    is that of the probability of the most probable class. All bins have the same number of rows.
    ECE is ``sum_b share_b |observed_b - predicted_b|``.
    """
    if observed.y is None or not observed.is_classification:
        raise InvalidInputError(
            "Reliability needs a classifier and rows with labels. Pass a LocalMAClassifier and y."
        )
    curves = [
        _curve(observed, "local", name_of_model(observed), observed.mixture, n_bins),
        _curve(observed, "global", "global weights", observed.global_mixture, n_bins),
    ]
    sentence = (
        f"Probabilities of {curves[0].name} differ from frequencies by "
        f"{percent(curves[0].ece, 1)} on average (expected calibration error)."
    )
    classes = observed.model.classes_.tolist()
    if len(classes) == 2:
        return ReliabilityDisplay("positive", classes[1], curves, sentence)
    return ReliabilityDisplay("confidence", None, curves, sentence)


def _curve(
    observed: Observed,
    kind: Literal["local", "global"],
    name: str,
    probabilities: Array,
    n_bins: int,
) -> ReliabilityCurve:
    predicted, happened = _events(observed, probabilities)
    inner = np.quantile(predicted, np.linspace(0, 1, n_bins + 1)[1:-1])
    bin_of_row = np.searchsorted(np.unique(inner), predicted, side="right")
    weight = observed.sample_weight
    bins = [np.flatnonzero(bin_of_row == b) for b in np.unique(bin_of_row)]
    bins = [rows for rows in bins if weight[rows].any()]  # a bin without weight has no mean
    means, errors = zip(
        *(observed.mean_and_error(happened[rows], rows) for rows in bins), strict=True
    )
    centres = [np.average(predicted[rows], weights=weight[rows]) for rows in bins]
    shares = [weight[rows].sum() / weight.sum() for rows in bins]
    return ReliabilityCurve(
        kind=kind,
        name=name,
        predicted=[float(centre) for centre in centres],
        observed=list(means),
        standard_error=list(errors),
        counts=[len(rows) for rows in bins],
        ece=float(np.dot(shares, np.abs(np.subtract(means, centres)))),
        brier=mean_square(observed.class_indicator, probabilities, weight)[0],
    )


def _events(observed: Observed, probabilities: Array) -> tuple[Array, Array]:
    """Probability of an event and whether it happened: (n,) each."""
    if probabilities.shape[1] == 2:
        return probabilities[:, 1], (observed.observed_classes == 1).astype(np.float64)
    hits = probabilities.argmax(axis=1) == observed.observed_classes
    return probabilities.max(axis=1), hits.astype(np.float64)
