"""Mean losses of candidates, equal, global and local weights and a control, paired by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from localma.checks.cautions import Caution, warn
from localma.checks.fit import LEAST_ROWS, worse_than_constant
from localma.checks.training_rows import Gap, SampleLosses, caution_of_gaps, find_gaps
from localma.equations import global_average, row_losses
from localma.errors import InvalidInputError
from localma.evidence import BaselineGap, baseline_gap, negligible
from localma.inspection.control import Control, ControlNote, fit_control
from localma.inspection.drawing import (
    KIND_COLOURS,
    KIND_MARKERS,
    name_text,
    new_axes,
    say_above,
    two_errors,
)
from localma.inspection.metrics import CLASSIFICATION, REGRESSION, Difference, Measure, Measured
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.record import Columns, Display, Record
from localma.wording import readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.floating]
Kind: TypeAlias = Literal["candidate", "equal", "global", "local", "control"]

MOST_DRAWN = 15
CANDIDATE_COLOUR, CANDIDATE_MARKER = "0.35", "x"


@dataclass(frozen=True)
class RowLosses:
    """What an entry predicts, and its loss in each row.

    mixture : (n,) or (n, K); losses : (n,).
    """

    kind: Kind
    name: str
    mixture: Array
    losses: Array


@dataclass(frozen=True)
class Entry(Record):
    """One row of the comparison.

    kind : "local" is the model; to_best, to_model : this loss minus that of the best entry or of
    the model, paired by row, so positive is worse.
    """

    kind: Kind
    name: str
    loss: Measured
    metrics: dict[str, Measured]
    to_best: Difference
    to_model: Difference


@dataclass(frozen=True)
class ConstantEntry(Record):
    """The best constant prediction of the labelled sample, on these rows.

    name : such as "the mean"; is_idle : whether the model is not better; is_worse : whether the
    model is clearly worse.
    """

    name: str
    prediction: list[float]
    loss: Measured
    to_model: Difference
    is_idle: bool
    is_worse: bool


@dataclass(frozen=True)
class LossGap(Record):
    """A candidate whose loss here is clearly larger than on the labelled sample."""

    name: str
    sample: Measured
    here: Measured
    is_apart: bool
    sentence: str


@dataclass(frozen=True)
class ComparisonDisplay(Display):
    """Mean loss of each candidate, of equal, global and local weights, and of the control.

    Attributes
    ----------
    loss : name of the loss
    metrics : names of the other measures: rmse, mae, r2 or accuracy, log_loss, brier
    n_rows, n_groups : n_groups is None if rows have no groups
    best, best_candidate : positions in `entries`
    entries : M candidates, then equal, global and local weights and the control, if there is one
    control : is the gate a predictor in disguise?
    gaps : candidates that are clearly worse here than on the labelled sample
    mean_support : None if the weights are constant
    constant : None with less than 10 rows
    cautions : reasons to doubt the model
    claim, sentence : the result in words, without and with the cautions
    ax_, figure_ : of the plot
    """

    loss: str
    metrics: list[str]
    n_rows: int
    n_groups: int | None
    best: int
    best_candidate: int
    entries: list[Entry]
    control: ControlNote
    gaps: list[LossGap]
    mean_support: float | None
    constant: ConstantEntry | None
    cautions: list[Caution]
    claim: str
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
        control: bool = True,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> ComparisonDisplay:
        """Compare a model with its candidates, and draw it."""
        compared = evaluate(
            model,
            X,
            y,
            sample_weight=sample_weight,
            predictions=predictions,
            groups=groups,
            control=control,
            random_state=random_state,
        )
        return compared.plot(ax=ax)

    @property
    def model(self) -> Entry:
        """The entry of the model."""
        return next(entry for entry in self.entries if entry.kind == "local")

    @property
    def is_doubtful(self) -> bool:
        """Whether there are cautions, or a constant is as good as the model."""
        return bool(self.cautions) or (self.constant is not None and self.constant.is_idle)

    def columns(self) -> Columns:
        """A row per entry: its loss, the difference to the best, and the metrics."""
        table: Columns = {
            "name": [entry.name for entry in self.entries],
            self.loss: [entry.loss.value for entry in self.entries],
            "standard_error": [entry.loss.standard_error for entry in self.entries],
            "to_best": [entry.to_best.value for entry in self.entries],
            "to_best_error": [entry.to_best.standard_error for entry in self.entries],
        }
        for name in self.metrics:
            table[name] = [entry.metrics[name].value for entry in self.entries]
        return table

    def notes(self) -> list[str]:
        """The result in words, then the control."""
        return [self.sentence, self.control.sentence]

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw the losses, best first; of many candidates the best fifteen."""
        entries = self._best_entries()
        is_new = ax is None
        if ax is None:
            ax = new_axes(6.8, 1.3 + 0.3 * len(entries))
        self._draw_on(ax)
        for row, entry in enumerate(entries):
            colour = KIND_COLOURS.get(entry.kind, CANDIDATE_COLOUR)
            ax.errorbar(
                entry.loss.value or 0.0,
                row,
                xerr=two_errors(entry.loss.standard_error),
                color=colour,
                marker=KIND_MARKERS.get(entry.kind, CANDIDATE_MARKER),
                markersize=7,
                capsize=3,
            )
        ax.axvline(self.model.loss.value or 0.0, color=KIND_COLOURS["local"], ls=":", linewidth=1)
        ax.set_yticks(range(len(entries)), [name_text(entry.name) for entry in entries])
        for label, entry in zip(ax.get_yticklabels(), entries, strict=True):
            label.set_fontweight("bold" if entry.kind == "local" else "normal")
        ax.set_ylim(len(entries) - 0.5, -0.5)
        ax.set_xlabel(f"{self.loss}, with two standard errors")
        ax.grid(axis="y", color="0.92")
        ax.set_axisbelow(True)
        title = self.sentence
        if len(entries) < len(self.entries):
            title += f" {len(self.entries) - len(entries)} worse candidates are not shown."
        say_above(ax, title, own=is_new)
        return self

    def _best_entries(self) -> list[Entry]:
        """Entries by loss, without the worst of many candidates."""
        ordered = sorted(self.entries, key=lambda entry: entry.loss.value or 0.0)
        candidates = [entry for entry in ordered if entry.kind == "candidate"]
        hidden = candidates[MOST_DRAWN:]
        return [entry for entry in ordered if entry not in hidden]


def evaluate(
    model: Model,
    X: Any,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    predictions: Any = None,
    groups: ArrayLike | None = None,
    control: bool = True,
    random_state: int = 0,
) -> ComparisonDisplay:
    """Compare a model with its candidates, with equal and with global weights.

    Parameters
    ----------
    model : fitted
    X, y : n labelled rows that the model was not fitted on
    sample_weight : (n,), optional
    predictions : the candidates' predictions for X, if they are not to be run here
    groups : (n,) the group of each row, such as a patient, optional; standard errors are then
        between groups, since rows of one group depend on each other
    control : whether to cross-fit a gate over constants, too
    random_state : of the control

    Returns
    -------
    ComparisonDisplay

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
    >>> model = model.set_params(random_state=0).fit(X, np.abs(X[:, 0]))
    >>> compared = evaluate(model, X + 0.01, np.abs(X[:, 0] + 0.01), control=False)
    >>> [entry.name for entry in compared.entries]
    ['left', 'right', 'equal weights', 'global weights', 'local weights']
    >>> compared.best
    4
    """
    seen = observe(model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups)
    return compare(seen, control=control, random_state=random_state)


def compare(seen: Observed, *, control: bool = True, random_state: int = 0) -> ComparisonDisplay:
    """Compare over observed rows; see `evaluate`."""
    if seen.y is None:
        raise InvalidInputError("A comparison needs the targets of its rows; y is None.")
    everybody = make_entries(seen)
    risks = [_risk(seen, entry) for entry in everybody]
    best = int(np.argmin(risks))
    best_candidate = int(np.argmin(risks[: len(seen.names)]))
    fitted: Control | str = "it was not asked for"
    if control:
        fitted = fit_control(seen, random_state)
    if isinstance(fitted, Control):
        everybody.append(_control_entry(seen, fitted))
    model = _model(everybody)
    entries = [_entry(seen, entry, everybody[best], model) for entry in everybody]
    gap = _beside_constant(seen, model.losses)
    # If a constant is better, the targets here are wrong, which explains the losses of all.
    gaps = [] if gap is not None and gap.is_worse else _find_gaps(seen, everybody)
    cautions = [*_cautions(seen, gap), *caution_of_gaps(gaps)]
    warn(caution for caution in cautions if caution not in seen.model.cautions_)
    claim = _claim(seen, everybody, best_candidate, gap)
    return ComparisonDisplay(
        loss=seen.model.loss_.name,
        metrics=list(_measures(seen)),
        n_rows=len(seen),
        n_groups=seen.n_groups,
        best=best,
        best_candidate=best_candidate,
        entries=entries,
        control=_about_control(fitted, entries),
        gaps=[_about_gap(each) for each in gaps],
        mean_support=_mean_support(seen),
        constant=_about_constant(seen, gap),
        cautions=cautions,
        claim=claim,
        sentence=" ".join([*(caution.sentence for caution in cautions), claim]),
    )


def _beside_constant(seen: Observed, losses: Array) -> BaselineGap | None:
    """The model beside the best constant of the labelled sample; None if it is not known."""
    constant = seen.model.constant_prediction_
    if constant is None or np.count_nonzero(seen.sample_weight) < LEAST_ROWS:
        return None
    return baseline_gap(
        seen.baseline.losses(constant), losses, seen.sample_weight, groups=seen.groups
    )


def _cautions(seen: Observed, gap: BaselineGap | None) -> list[Caution]:
    """Reasons to doubt the model that these rows give, then those that the fit found."""
    new = []
    if gap is not None:
        where = f"these {len(seen):,} rows"
        new = worse_than_constant(gap, seen.baseline, seen.outputs, seen.names, where)
    kinds = {caution.kind for caution in new}
    return [*new, *(c for c in seen.model.cautions_ if c.kind not in kinds)]


def _about_constant(seen: Observed, gap: BaselineGap | None) -> ConstantEntry | None:
    constant = seen.model.constant_prediction_
    if gap is None or constant is None:
        return None
    return ConstantEntry(
        name=seen.baseline.name,
        prediction=constant.tolist(),
        loss=Measured.of(_mean(seen, seen.baseline.losses(constant))),
        to_model=_difference((gap.value, gap.standard_error), gap.risk),
        is_idle=gap.is_idle,
        is_worse=gap.is_worse,
    )


def _claim(
    seen: Observed, entries: list[RowLosses], best_candidate: int, gap: BaselineGap | None
) -> str:
    """What the model is worth; nothing if a constant does as well."""
    if gap is None or not gap.is_idle:
        return " ".join([_sentence(seen, entries, best_candidate), *_support_in_words(seen)])
    if gap.is_worse:
        return "No gain is claimed."
    return (
        f"The model is not better than a constant: its mean loss ({seen.model.loss_.name}) is "
        f"{readable(gap.risk)}, and that of {seen.baseline.name} of the labelled sample is "
        f"{readable(gap.baseline_risk)}. No gain is claimed."
    )


def _find_gaps(seen: Observed, entries: list[RowLosses]) -> list[Gap]:
    """Candidates whose loss here is larger than on the labelled sample, beyond chance."""
    sample = seen.model.sample_losses_
    if sample is None:
        return []
    losses = np.array([entry.losses for entry in entries if entry.kind == "candidate"])
    return find_gaps(seen.names, sample, SampleLosses.of(losses, seen.sample_weight, seen.groups))


def _about_gap(gap: Gap) -> LossGap:
    return LossGap(gap.name, Measured.of(gap.sample), Measured.of(gap.here), gap.is_apart, str(gap))


def _mean_support(seen: Observed) -> float | None:
    """Mean support of the rows; None if no local part could fade."""
    if not seen.model.gate_.fades:
        return None
    return float(seen.mean(seen.support))


def _support_in_words(seen: Observed) -> list[str]:
    support = _mean_support(seen)
    return [] if support is None else [f"Mean support of the rows: {support:.2f}."]


def make_entries(seen: Observed) -> list[RowLosses]:
    """Everybody but the control: M candidates, then equal, global and local weights."""
    M = len(seen.names)
    entries = [
        RowLosses("candidate", name, seen.predictions[:, m], seen.losses_of(m))
        for m, name in enumerate(seen.names)
    ]
    constant_weights: list[tuple[Kind, Array]] = [
        ("equal", np.full(M, 1.0 / M)),
        ("global", seen.model.global_weights_),
    ]
    for kind, weights in constant_weights:
        mixture = global_average(weights, seen.predictions)
        losses = seen.losses(weights)
        entries.append(RowLosses(kind, f"{kind} weights", mixture, losses))
    losses = seen.losses(seen.weights)
    return [*entries, RowLosses("local", name_of_model(seen), seen.mixture, losses)]


def name_of_model(seen: Observed) -> str:
    """What the model is called beside the others: its gate may not be a local one."""
    return "this model" if seen.model.gate_.is_constant else "local weights"


def difference(seen: Observed, entry: RowLosses, other: RowLosses) -> tuple[float, float]:
    """Loss of an entry minus that of another, with its standard error."""
    return _mean(seen, entry.losses - other.losses)


def _mean(seen: Observed, values: Array) -> tuple[float, float]:
    return seen.mean_and_error(values, np.arange(len(seen)))


def _model(entries: list[RowLosses]) -> RowLosses:
    return next(entry for entry in entries if entry.kind == "local")


def _entry(seen: Observed, entry: RowLosses, best: RowLosses, model: RowLosses) -> Entry:
    weight, groups, targets = seen.sample_weight, seen.groups, _plain_targets(seen)
    mixture = entry.mixture if entry.mixture.ndim == 2 else entry.mixture[:, np.newaxis]
    return Entry(
        kind=entry.kind,
        name=entry.name,
        loss=Measured.of(_mean(seen, entry.losses)),
        metrics={
            name: Measured.of(measure(targets, mixture, weight, groups))
            for name, measure in _measures(seen).items()
        },
        to_best=_difference(difference(seen, entry, best), _risk(seen, best)),
        to_model=_difference(difference(seen, entry, model), _risk(seen, model)),
    )


def _risk(seen: Observed, entry: RowLosses) -> float:
    return _mean(seen, entry.losses)[0]


def _difference(pair: tuple[float, float], risk: float) -> Difference:
    return Difference(*pair, is_clear=_is_clear(*pair, risk))


def _is_clear(value: float, error: float, risk: float) -> bool:
    """Whether a difference is more than chance, and more than 0.1 % of the risk."""
    return bool(abs(value) > max(2 * error, negligible(risk)))


def _measures(seen: Observed) -> Mapping[str, Measure]:
    return CLASSIFICATION if seen.is_classification else REGRESSION


def _plain_targets(seen: Observed) -> Array:
    """Targets of the plain measures: (n, K), the indicator of the class for classification."""
    if seen.is_classification:
        return np.eye(len(seen.model.classes_))[seen.observed_classes]
    return seen.targets


def _control_entry(seen: Observed, control: Control) -> RowLosses:
    mixture = observed = control.mixture
    if seen.is_classification and seen.model.loss_.name == "cross_entropy":
        observed = np.take_along_axis(mixture, seen.observed_classes[:, np.newaxis], axis=1)
    losses = row_losses(seen.model.loss_, seen.targets, observed)
    return RowLosses("control", "control: constants", mixture, losses)


def _about_control(control: Control | str, entries: list[Entry]) -> ControlNote:
    if isinstance(control, str):
        return ControlNote.without(control)
    last = entries[-1]
    model = next(entry for entry in entries if entry.kind == "local")
    return ControlNote.of(control, last.name, (last.loss, model.loss), last.to_model)


def _sentence(seen: Observed, entries: list[RowLosses], best_candidate: int) -> str:
    """The model compared with the best candidate and the global weights, in words."""
    model = _model(entries)
    risk, error = _mean(seen, model.losses)
    candidate = entries[best_candidate]
    against = [f"the best candidate ({candidate.name})" if len(seen.names) > 1 else candidate.name]
    others = [candidate]
    if not seen.model.gate_.is_global:
        against.append("global weights")
        others.append(next(entry for entry in entries if entry.kind == "global"))
    compared = [
        _in_words(difference(seen, model, other), name, _risk(seen, other))
        for other, name in zip(others, against, strict=True)
    ]
    size = f"{readable(risk)}" if np.isnan(error) else f"{readable(risk)} ± {readable(error, 2)}"
    return f"The {seen.model.loss_.name} of {model.name} is {size}: {' and '.join(compared)}."


def _in_words(pair: tuple[float, float], name: str, risk: float) -> str:
    value, error = pair
    if np.isnan(error):
        return f"{value:+.3g} beside {name}, how surely is unknown"
    if not _is_clear(value, error, risk):
        return f"not clearly different from {name}"
    return (
        f"{readable(abs(value))} ± {readable(error, 2)} {'below' if value < 0 else 'above'} {name}"
    )
