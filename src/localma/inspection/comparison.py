"""Mean losses of the candidates and of equal, global and local weights, compared by row.

The control asks whether the gate could predict the target without the candidates. Weights that
depend on the input can follow the target by themselves: over two constants, the smallest and the
largest target, a gate is a regression. So a gate of the same kind is cross-fitted on the labelled
rows, with constants in place of the candidates. If it does as well as the model, the candidates'
predictions hardly matter.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from localma._types import Array, Rows
from localma.candidates.outputs import Table
from localma.checks.cautions import Caution, warn
from localma.checks.fit import LEAST_ROWS, worse_than_constant
from localma.checks.training_rows import Gap, SampleLosses, caution_of_gaps, find_gaps
from localma.equations import global_average, local_average, row_losses
from localma.errors import InvalidInputError
from localma.evidence import BaselineGap, baseline_gap, negligible
from localma.folds import make_folds
from localma.formatting import decimals_of, fixed, mean_loss, readable
from localma.gates import Gate, Labelled
from localma.inspection import display
from localma.inspection.display import Display
from localma.inspection.observed import Difference, Measured, Model, Observed, Predictions, observe
from localma.losses import cross_entropy
from localma.records import Columns, Label, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind: TypeAlias = Literal["candidate", "equal", "global", "local", "control"]
Measure: TypeAlias = Callable[[Array, Array, Array], tuple[float, Array]]
"""(targets, predictions, weight of each row) -> value, and the influence of each row on it.

Targets and predictions have shape (n, K); the targets of classes are indicators. The standard error
of a measure is that of the mean influence.
"""

MOST_DRAWN = 15
CANDIDATE_COLOUR, CANDIDATE_MARKER = "0.35", "x"

CONTROL_ROWS = 3000
"""Rows that the control is fitted on, at most."""
CONTROL_FOLDS = 3
LEAST_CONTROL_ROWS = 30
LEAST_CONTROL_GROUPS = 5
"""Fewer groups could not be split again into three folds."""
MOST_CONSTANTS = 50


def _mean_of(of_rows: Callable[[Array, Array], Array]) -> Measure:
    """Make the measure that is the mean of a value of each row."""

    def measure(y: Array, f: Array, weight: Array) -> tuple[float, Array]:
        values = of_rows(y, f)
        return float(weight @ values / weight.sum()), values

    return measure


mean_square = _mean_of(lambda y, f: ((y - f) ** 2).mean(axis=1))
"""Mean squared error, which is the Brier score if y is the indicator of the class."""


def _log_loss(y: Array, p: Array) -> Array:
    of_observed = (y * p).sum(axis=1)
    return cross_entropy().value(np.ones_like(of_observed), of_observed)


def _rmse(y: Array, f: Array, weight: Array) -> tuple[float, Array]:
    mean, squares = mean_square(y, f, weight)
    root = float(np.sqrt(mean))
    return root, squares / (2 * root or 1.0)


def _r2(y: Array, f: Array, weight: Array) -> tuple[float, Array]:
    """``1 - mean (y - f)^2 / var(y)``, the mean over outputs; NaN for constant y."""
    share = weight / weight.sum()
    spread, misses = (y - share @ y) ** 2, (y - f) ** 2
    variance = share @ spread
    if not (variance > 0).all():
        return float("nan"), np.full(len(y), np.nan)
    unexplained = share @ misses / variance
    influence = (unexplained * spread - misses) / variance
    return float(1 - unexplained.mean()), influence.mean(axis=1)


REGRESSION: dict[str, Measure] = {
    "rmse": _rmse,
    "mae": _mean_of(lambda y, f: np.abs(y - f).mean(axis=1)),
    "r2": _r2,
}
CLASSIFICATION: dict[str, Measure] = {
    "accuracy": _mean_of(lambda y, p: (y.argmax(axis=1) == p.argmax(axis=1)).astype(np.float64)),
    "log_loss": _mean_of(_log_loss),
    "brier": mean_square,
}
MEASURES = {False: REGRESSION, True: CLASSIFICATION}
"""The measures, by whether the model predicts classes."""


@dataclass(frozen=True)
class Method:
    """A method that is compared: its predictions, and its loss in each row.

    mixture : (n,) or (n, K); losses : (n,).
    """

    kind: Kind
    name: str
    mixture: Array
    losses: Array


@dataclass(frozen=True)
class Entry(Record):
    """One row of the comparison.

    Parameters
    ----------
    kind : {"candidate", "equal", "global", "local", "control"}
        Kind of the entry. The model is "local".
    name : str
        Name of the candidate, or of the weights.
    loss : Measured
        Mean loss.
    metrics : dict of str -> Measured
        Other measures by name.
    to_best : Difference
        This loss minus that of the best entry, paired by row. Positive if this entry is worse.
    to_model : Difference
        This loss minus that of the model, paired by row. Positive if this entry is worse.

    Examples
    --------
    >>> gap = Difference(0.5, 0.1, is_clear=True)
    >>> entry = Entry("candidate", "a", Measured(2.0, 0.2), {"mae": Measured(1.1, 0.1)}, gap, gap)
    >>> print(entry.name, entry.loss, entry.to_model.is_clear)
    a 2.00 ± 0.20 True
    """

    kind: Kind
    name: str
    loss: Measured
    metrics: dict[str, Measured]
    to_best: Difference
    to_model: Difference


@dataclass(frozen=True)
class ControlNote(Record):
    """The control in words.

    Parameters
    ----------
    name : str or None
        Name of its entry. None without a control.
    constants : list of float or label
        Predictions that replaced the candidates.
    n_rows : int
        Number of rows that the control predicted.
    n_fitted : int
        Number of rows that each gate was fitted on.
    sentence : str
        The result in words, or the reason why there is no control.

    Examples
    --------
    >>> note = ControlNote(None, [], 0, 0, "The control was not fitted: the target is constant.")
    >>> print(note.sentence)
    The control was not fitted: the target is constant.
    """

    name: str | None
    constants: list[Label]
    n_rows: int
    n_fitted: int
    sentence: str


@dataclass(frozen=True)
class ConstantEntry(Record):
    """The best constant prediction of the labelled sample, on these rows.

    Parameters
    ----------
    name : str
        Name in a sentence, such as "the mean".
    prediction : list of float
        The constant of each of the K outputs, or the share of each class.
    loss : Measured
        Mean loss of the constant.
    to_model : Difference
        This loss minus that of the model, paired by row. Positive if the constant is worse.
    is_idle : bool
        Whether the model is not better than the constant.
    is_worse : bool
        Whether the model is clearly worse than the constant.

    Examples
    --------
    >>> gap = Difference(0.5, 0.1, is_clear=True)
    >>> constant = ConstantEntry("the mean", [3.0], Measured(2.0, 0.2), gap, False, False)
    >>> print(constant.name, constant.loss, constant.is_idle)
    the mean 2.00 ± 0.20 False
    """

    name: str
    prediction: list[float]
    loss: Measured
    to_model: Difference
    is_idle: bool
    is_worse: bool


@dataclass(frozen=True)
class LossGap(Record):
    """A candidate whose loss here is clearly larger than on the labelled sample.

    Parameters
    ----------
    name : str
        Name of the candidate.
    sample : Measured
        Mean loss on the labelled sample.
    here : Measured
        Mean loss on these rows.
    is_apart : bool
        Whether the losses of the other candidates rose less, so that harder rows do not explain
        the difference.
    sentence : str
        The same in words.

    Examples
    --------
    >>> sentence = "The loss of a is 0.1 on the labelled sample and 2 here."
    >>> gap = LossGap("a", Measured(0.1, 0.01), Measured(2.0, 0.2), True, sentence)
    >>> print(f"{gap.name}: {gap.sample}, here {gap.here}")
    a: 0.100 ± 0.010, here 2.00 ± 0.20
    """

    name: str
    sample: Measured
    here: Measured
    is_apart: bool
    sentence: str


@dataclass(frozen=True)
class ComparisonDisplay(Display):
    """Mean loss of each candidate, of equal, global and local weights, and of the control.

    Parameters
    ----------
    loss : str
        Name of the loss.
    metrics : list of str
        Names of the other measures: rmse, mae, r2 or accuracy, log_loss, brier.
    n_rows : int
        Number of rows.
    n_groups : int or None
        Number of groups.
    best, best_candidate : int
        Positions in `entries`.
    entries : list of Entry
        The M candidates, then equal, global and local weights, and the control if there is
        one.
    control : ControlNote
        Whether the gate could predict the target without the candidates.
    gaps : list of LossGap
        Candidates that are clearly worse here than on the labelled sample.
    mean_support : float or None
        Mean support of the rows; None if the weights are constant.
    constant : ConstantEntry or None
        The best constant prediction; None with fewer than 10 rows.
    cautions : list of Caution
        Reasons to doubt the model.
    claim, sentence : str
        The result in words, without and with the cautions.
    incomplete : str or None
        The number of rows with missing predictions, in words; None if there are none.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="global").fit(X, X[:, 0] ** 2)
    >>> print(evaluate(model, X, X[:, 0] ** 2, control=False).claim)
    Mean squared error with this model: 0.0317 ± 0.0055. This is not clearly different from a.
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
    incomplete: str | None = None

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
        control: bool = True,
        ax: Axes | None = None,
        random_state: int = 0,
    ) -> ComparisonDisplay:
        """Compare a model with its candidates, and draw the result.

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
        control : bool, default=True
            Whether to also cross-fit a gate over constants.
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.
        random_state : int, default=0
            Seed of the random samples.

        Returns
        -------
        ComparisonDisplay
            The losses, drawn.
        """
        rows = observe(
            model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups
        )
        return compare(rows, control=control, random_state=random_state).plot(ax=ax)

    @property
    def model(self) -> Entry:
        """The entry of the model."""
        return next(entry for entry in self.entries if entry.kind == "local")

    @property
    def rivals(self) -> list[tuple[str, Entry]]:
        """The best candidate and the global weights, with their names in a sentence."""
        return _rivals(self.entries, self.best_candidate)

    @property
    def is_doubtful(self) -> bool:
        """Whether there are cautions, or a constant is as good as the model."""
        return bool(self.cautions) or (self.constant is not None and self.constant.is_idle)

    def ranked(self, n_candidates: int) -> list[Entry]:
        """Return the entries by loss, the smallest first.

        Parameters
        ----------
        n_candidates : int
            The largest number of candidates to return.

        Returns
        -------
        list of Entry
            The best candidates, and all other entries.
        """
        ordered = sorted(
            self.entries, key=lambda entry: (entry.loss.value is None, entry.loss.value or 0.0)
        )
        candidates = [entry for entry in ordered if entry.kind == "candidate"]
        hidden = {id(entry) for entry in candidates[n_candidates:]}
        return [entry for entry in ordered if id(entry) not in hidden]

    def _columns(self) -> Columns:
        """Return a row per entry: its loss, the difference to the best, and the metrics."""
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

    def _notes(self) -> list[str]:
        """Return the result in words, then the control."""
        notes = [self.sentence, self.control.sentence]
        return notes if self.incomplete is None else [*notes, self.incomplete]

    def _draw(self, ax: Axes | None) -> None:
        """Draw the losses, best first, with at most fifteen candidates."""
        entries = self.ranked(MOST_DRAWN)
        ax = self._start_plot(ax, 6.8, 1.3 + 0.3 * len(entries))
        for row, entry in enumerate(entries):
            ax.errorbar(
                entry.loss.value or 0.0,
                row,
                xerr=display.two_errors([entry.loss.standard_error]),
                color=display.KIND_COLOURS.get(entry.kind, CANDIDATE_COLOUR),
                marker=display.KIND_MARKERS.get(entry.kind, CANDIDATE_MARKER),
                markersize=7,
                capsize=3,
            )
        ax.axvline(
            self.model.loss.value or 0.0, color=display.KIND_COLOURS["local"], ls=":", linewidth=1
        )
        self._label_rows([display.name_text(entry.name) for entry in entries])
        ax.get_yticklabels()[entries.index(self.model)].set_fontweight("bold")
        ax.set_xlabel(f"{mean_loss(self.loss)}, with two standard errors")
        ax.grid(axis="y", color="0.92")
        ax.set_axisbelow(True)
        title = self.sentence
        if len(entries) < len(self.entries):
            title += f" {len(self.entries) - len(entries)} worse candidates are not shown."
        self._set_title(title)


def evaluate(
    model: Model,
    X: Table,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    predictions: Predictions = None,
    groups: ArrayLike | None = None,
    control: bool = True,
    random_state: int = 0,
) -> ComparisonDisplay:
    """Compare a model with its candidates, with equal and with global weights.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X, y : table or array, and array of shape (n,) or (n, K)
        Labelled rows that the model was not fitted on.
    sample_weight : array of shape (n,), optional
        The weight of each row. By default all weights are one.
    predictions : dict or array, optional
        The candidates' predictions for X. By default the candidates are run.
    groups : array of shape (n,), optional
        The group of each row, such as a patient. Rows of one group depend on each other, so
        standard errors are then at least those between groups.
    control : bool, default=True
        Whether to also cross-fit a gate over constants.
    random_state : int, default=0
        Seed of the control.

    Returns
    -------
    ComparisonDisplay
        The losses, and the result in words.

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
    rows = observe(model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups)
    return compare(rows, control=control, random_state=random_state)


def compare(
    observed: Observed, *, control: bool = True, random_state: int = 0
) -> ComparisonDisplay:
    """Compare a model with its candidates over observed rows.

    Parameters
    ----------
    observed : Observed
        A fitted model with labelled rows, from `observe`.
    control : bool, default=True
        Whether to also cross-fit a gate over constants.
    random_state : int, default=0
        Seed of the control.

    Returns
    -------
    ComparisonDisplay
        The losses, and the result in words.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="equal").fit(X, X[:, 0] ** 2)
    >>> compare(observe(model, X, X[:, 0] ** 2), control=False).model.name
    'this model'
    """
    if observed.y is None:
        raise InvalidInputError("A comparison needs the targets of its rows; y is None. Pass y.")
    methods = make_methods(observed)
    risks = [observed.mean_and_error(method.losses)[0] for method in methods]
    best, best_candidate = int(np.argmin(risks)), int(np.argmin(risks[: len(observed.names)]))
    model = methods[-1]
    fitted, reason = _try_control(observed, control, random_state)
    if fitted is not None:
        methods.append(_control_method(observed, fitted))
    entries = [_entry(observed, method, methods[best], model) for method in methods]
    gap = _constant_gap(observed, model.losses)
    gaps = []
    if gap is None or not gap.is_worse:  # otherwise wrong targets explain the losses
        gaps = _find_gaps(observed, methods)
    cautions = [*_cautions(observed, gap), *caution_of_gaps(gaps)]
    warn(each for each in cautions if each not in observed.model.cautions_)
    mean_support = None
    if observed.model.gate_.fades:
        mean_support = float(observed.mean(observed.support))
    claim = _claim(observed, entries, best_candidate, gap, mean_support)
    return ComparisonDisplay(
        loss=observed.model.loss_.name,
        metrics=list(MEASURES[observed.is_classification]),
        n_rows=len(observed),
        n_groups=observed.n_groups,
        best=best,
        best_candidate=best_candidate,
        entries=entries,
        control=_control_note(fitted, reason, entries),
        gaps=[
            LossGap(
                each.name, Measured(*each.sample), Measured(*each.here), each.is_apart, str(each)
            )
            for each in gaps
        ],
        mean_support=mean_support,
        constant=_constant_entry(observed, gap),
        cautions=cautions,
        claim=claim,
        sentence=" ".join([*(caution.sentence for caution in cautions), claim]),
        incomplete=observed.incomplete,
    )


def make_methods(observed: Observed) -> list[Method]:
    """List the M candidates, then equal, global and local weights."""
    M = len(observed.names)
    methods = [
        Method("candidate", name, observed.predictions[:, m], observed.losses_of(m))
        for m, name in enumerate(observed.names)
    ]
    constant: dict[Kind, Array] = {
        "equal": np.full(M, 1.0 / M),
        "global": observed.model.global_weights_,
    }
    for kind, weights in constant.items():
        mixture = global_average(weights, observed.predictions)
        methods.append(Method(kind, f"{kind} weights", mixture, observed.losses(weights)))
    losses = observed.losses(observed.used_weights)
    return [*methods, Method("local", name_of_model(observed), observed.mixture, losses)]


def name_of_model(observed: Observed) -> str:
    """Return the name of the model in a comparison; its gate may be constant."""
    if observed.model.gate_.is_constant:
        return "this model"
    return "local weights"


def _entry(observed: Observed, method: Method, best: Method, model: Method) -> Entry:
    return Entry(
        kind=method.kind,
        name=method.name,
        loss=Measured(*observed.mean_and_error(method.losses)),
        metrics={
            name: _measured(observed, measure, method.mixture)
            for name, measure in MEASURES[observed.is_classification].items()
        },
        to_best=_difference(observed, method, best),
        to_model=_difference(observed, method, model),
    )


def _measured(observed: Observed, measure: Measure, mixture: Array) -> Measured:
    """Apply a measure, and compute its standard error."""
    targets = observed.targets
    if observed.is_classification:
        targets = observed.class_indicator
    value, influence = measure(targets, mixture.reshape(len(mixture), -1), observed.sample_weight)
    return Measured(value, observed.mean_and_error(influence)[1])


def _difference(observed: Observed, method: Method, reference: Method) -> Difference:
    """Compare the losses of two methods, paired by row."""
    value, error = observed.mean_and_error(method.losses - reference.losses)
    risk = observed.mean_and_error(reference.losses)[0]
    return Difference(value, error, is_clear=abs(value) > max(2 * error, negligible(risk)))


def _constant_gap(observed: Observed, losses: Array) -> BaselineGap | None:
    """Compare the model with the best constant of the labelled sample; None if it is unknown."""
    constant = observed.model.constant_prediction_
    if constant is None or np.count_nonzero(observed.sample_weight) < LEAST_ROWS:
        return None
    of_constant = observed.baseline.losses(constant)
    return baseline_gap(of_constant, losses, observed.sample_weight, groups=observed.groups)


def _constant_entry(observed: Observed, gap: BaselineGap | None) -> ConstantEntry | None:
    constant = observed.model.constant_prediction_
    if gap is None or constant is None:
        return None
    is_clear = abs(gap.value) > max(2 * gap.standard_error, negligible(gap.risk))
    return ConstantEntry(
        name=observed.baseline.name,
        prediction=constant.tolist(),
        loss=Measured(*observed.mean_and_error(observed.baseline.losses(constant))),
        to_model=Difference(gap.value, gap.standard_error, is_clear),
        is_idle=gap.is_idle,
        is_worse=gap.is_worse,
    )


def _cautions(observed: Observed, gap: BaselineGap | None) -> list[Caution]:
    """Collect the reasons to doubt the model: those of these rows, then those of the fit."""
    new = []
    if gap is not None:
        where = f"these {len(observed):,} rows"
        new = worse_than_constant(gap, observed.baseline, observed.outputs, observed.names, where)
    kinds = {caution.kind for caution in new}
    return [*new, *(c for c in observed.model.cautions_ if c.kind not in kinds)]


def _find_gaps(observed: Observed, methods: Sequence[Method]) -> list[Gap]:
    """Find candidates whose loss here is larger than on the labelled sample, beyond chance."""
    sample = observed.model.sample_losses_
    if sample is None:
        return []
    losses = np.array([method.losses for method in methods if method.kind == "candidate"])
    of_rows = SampleLosses.of(losses, observed.sample_weight, observed.groups)
    return find_gaps(observed.names, sample, of_rows)


def _claim(
    observed: Observed,
    entries: Sequence[Entry],
    best_candidate: int,
    gap: BaselineGap | None,
    mean_support: float | None,
) -> str:
    """State how good the model is; claim nothing if a constant is as good."""
    if gap is not None and gap.is_worse:
        return "No gain is claimed."
    if gap is not None and gap.is_idle:
        return (
            f"The model is not better than a constant: its mean loss ({observed.model.loss_.name}) "
            f"is {readable(gap.risk)}, and that of {observed.baseline.name} of the labelled sample "
            f"is {readable(gap.baseline_risk)}. No gain is claimed."
        )
    model = next(entry for entry in entries if entry.kind == "local")
    rivals = _rivals(entries, best_candidate)
    if observed.model.gate_.is_global:
        rivals = rivals[:1]
    title = mean_loss(observed.model.loss_.name, "Mean")
    claim = f"{title} with {model.name}: {model.loss}. This is {_compared(rivals)}."
    if mean_support is None:
        return claim
    return f"{claim} Mean support of the rows: {fixed(mean_support, 2)}."


def _rivals(entries: Sequence[Entry], best_candidate: int) -> list[tuple[str, Entry]]:
    """The best candidate and the global weights, with their names in a sentence."""
    best = entries[best_candidate]
    name = f"the best candidate ({best.name})"
    if sum(entry.kind == "candidate" for entry in entries) == 1:
        name = best.name
    return [(name, best), *((entry.name, entry) for entry in entries if entry.kind == "global")]


def _compared(rivals: Sequence[tuple[str, Entry]]) -> str:
    """Compare the loss of the model with those of other entries, in words."""
    phrases, unclear = [], []
    for name, entry in rivals:
        gap = entry.to_model  # the loss of the entry minus that of the model
        if gap.is_clear or (gap.value and gap.standard_error is None):
            direction = "lower" if (gap.value or 0.0) > 0 else "higher"
            phrases.append(f"{gap.size} {direction} than {name}")
        else:
            unclear.append(name)
    if unclear:
        phrases.append(f"not clearly different from {' or '.join(unclear)}")
    is_unknown = any(entry.to_model.standard_error is None for _, entry in rivals)
    return f"{' and '.join(phrases)}{', with unknown precision' * is_unknown}"


def _try_control(
    observed: Observed, requested: bool, random_state: int
) -> tuple[Control | None, str]:
    """Fit the control; or None, and the reason why there is none."""
    if not requested:
        return None, "it was not requested"
    try:
        return fit_control(observed, random_state), ""
    except NoControlError as error:
        return None, str(error)


def _control_method(observed: Observed, control: Control) -> Method:
    predictions = control.mixture
    if observed.is_cross_entropy:
        classes = observed.observed_classes[:, np.newaxis]
        predictions = np.take_along_axis(predictions, classes, axis=1)
    losses = row_losses(observed.model.loss_, observed.targets, predictions)
    return Method("control", "control: constants", control.mixture, losses)


def _control_note(control: Control | None, reason: str, entries: Sequence[Entry]) -> ControlNote:
    """Compare the control, which is the last entry, with the model before it."""
    if control is None:
        return ControlNote(None, [], 0, 0, f"The control was not fitted: {reason}.")
    model, entry = entries[-2:]
    sentence = (
        f"A gate of the same kind over {len(control.constants)} constants instead of the "
        f"candidates, fitted on {control.n_fitted:,} of these rows, has a loss of "
        f"{_against_control(entry.loss, model.loss, entry.to_model)}"
    )
    n_rows = len(control.mixture)
    return ControlNote(entry.name, control.constants, n_rows, control.n_fitted, sentence)


def _against_control(control: Measured, model: Measured, gap: Difference) -> str:
    """Write both losses, their difference, and its meaning.

    All have the same decimals, and the difference is that of the rounded losses.
    """
    error, value = gap.standard_error or 0.0, gap.value or 0.0
    decimals = decimals_of(error or value)
    losses = [round(loss.value or 0.0, decimals) for loss in (control, model)]
    numbers = (*losses, abs(losses[0] - losses[1]), error)
    of_control, of_model, difference, of_difference = (
        fixed(figure, decimals) for figure in numbers
    )
    text = f"{of_control}, the model {of_model}"
    size = f"{difference} ± {of_difference}"
    if not gap.is_clear:
        return (
            f"{text}. The difference, {size}, is not clear: the gate may predict the target by "
            "itself, and a model trained on these inputs may do so better."
        )
    if value < 0:
        return (
            f"{text}. The control is {size} lower: the gate does better without the candidates, "
            "so add a model trained on these inputs to the pool."
        )
    return f"{text}. The control is {size} higher: the candidates' predictions matter."


class NoControlError(Exception):
    """The control cannot be fitted; the message is the reason."""


@dataclass(frozen=True)
class Control:
    """Cross-fitted predictions of a gate over constants, for all rows.

    mixture : (n, K), on the scale of y or of classes; constants : predictions that replaced the
    candidates; n_fitted : number of rows that each gate was fitted on.
    """

    mixture: Array
    constants: list[Label]
    n_fitted: int


def fit_control(observed: Observed, random_state: int = 0) -> Control:
    """Cross-fit a gate like the model's over constants.

    The gates are fitted on at most 3,000 rows and predict all rows, so that the control and the
    model are compared on the same rows. No gate predicts a row, or a group, that it was fitted on.
    """
    constants = constant_predictions(observed)
    rng = np.random.default_rng(random_state)
    weighted = np.flatnonzero(observed.sample_weight > 0)
    n = min(len(weighted), CONTROL_ROWS)
    rows = np.sort(rng.choice(weighted, n, replace=False))
    sample = observed.take(rows)
    inputs = _gate_inputs(sample)
    folds = make_folds(CONTROL_FOLDS, np.arange(n), sample.groups, random_state=random_state)
    fold_of_row = _fold_of_row(observed, rows, [test for _, test in folds])
    all_inputs = inputs
    if n < len(observed):
        all_inputs = observed.model.gate_features_.transform(observed.X)
    weights = np.empty((len(observed), len(constants)))
    for fold, (train, _) in enumerate(folds):
        gate = _fitted_gate(sample.take(train), inputs[train], constants, random_state)
        test = fold_of_row == fold
        weights[test] = gate.predict_weights(all_inputs[test])
    P = np.broadcast_to(constants, (len(observed), *constants.shape))
    labels = np.squeeze(constants).tolist()
    if observed.is_classification:
        labels = observed.model.classes_.tolist()
    return Control(local_average(weights, P), labels, len(folds[0][0]))


def _gate_inputs(sample: Observed) -> Array:
    """Return the inputs of the gate; raise NoControlError if no gate can be fitted on them."""
    n = len(sample)
    if n < LEAST_CONTROL_ROWS:
        raise NoControlError(f"it needs {LEAST_CONTROL_ROWS} labelled rows, and there are {n}")
    if sample.n_groups is not None and sample.n_groups < LEAST_CONTROL_GROUPS:
        raise NoControlError(
            f"it needs {LEAST_CONTROL_GROUPS} groups, and there are {sample.n_groups}"
        )
    inputs = sample.model.gate_features_.transform(sample.X)
    if not isinstance(inputs, np.ndarray) or inputs.ndim != 2:
        raise NoControlError("the inputs of this gate are not numbers in columns")
    return inputs


def _fitted_gate(sample: Observed, inputs: Array, constants: Array, random_state: int) -> Gate:
    """Fit a gate like the model's over constants."""
    gate: Gate = clone(sample.model.gate_)
    if "random_state" in gate.get_params(deep=False):
        gate.set_params(random_state=random_state)
    if gate.needs_folds:  # the folds of the model may be tied to the rows of its sample
        gate.set_params(cv=CONTROL_FOLDS)
    outputs = np.tile(constants, (len(sample), 1, 1))
    if sample.is_cross_entropy:
        outputs = constants[:, sample.observed_classes].T[:, :, np.newaxis]
    data = Labelled.of(
        inputs,
        outputs,
        sample.targets,
        loss=sample.model.loss_,
        sample_weight=sample.sample_weight if sample.weighted else None,
        groups=sample.groups,
    )
    with warnings.catch_warnings():
        # The global weights of the control are not used.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return gate.fit(data)


def _fold_of_row(observed: Observed, rows: Rows, tests: list[Rows]) -> Rows:
    """Return the fold whose gate predicts each row: (n,).

    Rows that no gate was fitted on are distributed over the folds, unless their group was used.
    """
    fold_of_row = np.arange(len(observed)) % len(tests)
    for fold, test in enumerate(tests):
        fold_of_row[rows[test]] = fold
    if observed.groups is not None:
        fold_of_group = np.arange(observed.groups.max() + 1) % len(tests)
        fold_of_group[observed.groups[rows]] = fold_of_row[rows]
        fold_of_row = fold_of_group[observed.groups]
    return fold_of_row.astype(np.intp)


def constant_predictions(observed: Observed) -> Array:
    """Return constants that span the targets: the two extremes, or one per class: (M, K).

    Inner quantiles would keep the gate from reaching the tails, and weaken the control.
    """
    loss = observed.model.loss_
    if observed.is_classification:
        K = len(observed.model.classes_)
        if K > MOST_CONSTANTS:
            raise NoControlError(f"it would need {K} constants, one per class")
        return np.eye(K)
    targets = observed.targets[observed.sample_weight > 0]
    constants = np.stack([targets.min(axis=0), targets.max(axis=0)])
    if not (constants[0] < constants[1]).all():
        raise NoControlError("the target is constant")
    if not loss.prediction.contains(constants).all():
        raise NoControlError(f"loss {loss.name!r} does not accept the extremes of y as predictions")
    return constants
