"""Who is how good: every candidate, equal, global and local weights, and a control, paired."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.cautions import Caution, warn
from localma.equations import global_average, row_losses
from localma.errors import InvalidInputError
from localma.evidence import BaselineGap, baseline_gap, negligible
from localma.fit_checks import LEAST_ROWS, worse_than_constant
from localma.inspection.control import Control, fit_control
from localma.inspection.metrics import CLASSIFICATION, REGRESSION, measured
from localma.inspection.observed import Model, Observed, observe
from localma.inspection.plain import plain
from localma.memorised import Gap, SampleLosses, caution_of_gaps, find_gaps
from localma.wording import decimals_of, readable

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Entry:
    """One row of the comparison.

    mixture : (n,) or (n, K) what it predicts; losses : (n,).
    """

    kind: str
    name: str
    mixture: Array
    losses: Array


def evaluate(
    model: Model,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    predictions: Any = None,
    groups: Any = None,
    control: bool = True,
    random_state: int = 0,
) -> dict[str, Any]:
    """Compare a model with its candidates, with equal and with global weights.

    Parameters
    ----------
    model : fitted
    X, y : n labelled rows that the model was not fitted on
    sample_weight : (n,), optional
    predictions : what the candidates say about X, where they are not to be run here
    groups : (n,) what each row belongs to, such as a patient, optional; standard errors are then
        between groups, since rows of one are no independent draws
    control : whether to cross-fit a gate over constants beside them
    random_state : of the control

    Returns
    -------
    dict, the part "comparison" of a summary; see `localma.inspection.summary`

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = LocalMARegressor({"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]})
    >>> model = model.set_params(random_state=0).fit(X, np.abs(X[:, 0]))
    >>> table = evaluate(model, X + 0.01, np.abs(X[:, 0] + 0.01), control=False)
    >>> [entry["name"] for entry in table["entries"]]
    ['left', 'right', 'equal weights', 'global weights', 'local weights']
    >>> table["best"]
    4
    """
    seen = observe(model, X, y, sample_weight=sample_weight, predictions=predictions, groups=groups)
    return compare(seen, control=control, random_state=random_state)


def compare(seen: Observed, *, control: bool = True, random_state: int = 0) -> dict[str, Any]:
    """Compare over observed rows; see `evaluate`."""
    if seen.y is None:
        raise InvalidInputError("A comparison needs the targets of its rows; y is None.")
    entries = make_entries(seen)
    losses = [_mean(seen, entry.losses) for entry in entries]
    best = int(np.argmin([value for value, _ in losses]))
    best_candidate = int(np.argmin([value for value, _ in losses[: len(seen.names)]]))
    judged: Control | str = "it was not asked for"
    if control:
        judged = fit_control(seen, random_state)
    if isinstance(judged, Control):
        entries.append(_control_entry(seen, judged))
    rows = [_row(seen, entry, entries[best], _model(entries)) for entry in entries]
    gap = _beside_constant(seen, _model(entries).losses)
    # If a constant is better, the targets here are wrong, which explains the losses of all.
    gaps = [] if gap is not None and gap.is_worse else _find_gaps(seen, entries)
    cautions = [*_cautions(seen, gap), *caution_of_gaps(gaps)]
    warn((caution for caution in cautions if caution not in seen.model.cautions_), stacklevel=4)
    claim = _claim(seen, entries, best_candidate, gap)
    return plain(
        {
            "loss": seen.model.loss_.name,
            "metrics": list(_measures(seen)),
            "n_rows": len(seen),
            "n_groups": seen.n_groups,
            "best": best,
            "best_candidate": best_candidate,
            "entries": rows,
            "control": _about_control(judged, rows),
            "gaps": [_about_gap(each) for each in gaps],
            "mean_support": _mean_support(seen),
            "constant": _about_constant(seen, gap),
            "cautions": [asdict(caution) for caution in cautions],
            "claim": claim,
            "sentence": " ".join([*(caution.sentence for caution in cautions), claim]),
        }
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


def _about_constant(seen: Observed, gap: BaselineGap | None) -> dict[str, Any] | None:
    constant = seen.model.constant_prediction_
    if gap is None or constant is None:
        return None
    risk = _mean(seen, seen.baseline.losses(constant))
    return {
        "name": seen.baseline.name,
        "prediction": constant,
        "loss": measured(risk),
        "to_model": _judged((gap.value, gap.standard_error), gap.risk),
        "is_idle": gap.is_idle,
        "is_worse": gap.is_worse,
    }


def _claim(
    seen: Observed, entries: list[Entry], best_candidate: int, gap: BaselineGap | None
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


def _find_gaps(seen: Observed, entries: list[Entry]) -> list[Gap]:
    """Candidates whose loss here is larger than on the labelled sample, beyond chance."""
    sample = seen.model.sample_losses_
    if sample is None:
        return []
    losses = np.array([entry.losses for entry in entries if entry.kind == "candidate"])
    return find_gaps(seen.names, sample, SampleLosses.of(losses, seen.sample_weight, seen.groups))


def _about_gap(gap: Gap) -> dict[str, Any]:
    return {
        "name": gap.name,
        "sample": measured(gap.sample),
        "here": measured(gap.here),
        "is_apart": gap.is_apart,
        "sentence": str(gap),
    }


def _mean_support(seen: Observed) -> float | None:
    """Mean support of the rows; None if no local part could fade."""
    if not seen.model.gate_.fades:
        return None
    return float(seen.mean(seen.support))


def _support_in_words(seen: Observed) -> list[str]:
    support = _mean_support(seen)
    return [] if support is None else [f"Mean support of the rows: {support:.2f}."]


def make_entries(seen: Observed) -> list[Entry]:
    """Everybody but the control: M candidates, then equal, global and local weights."""
    M = len(seen.names)
    entries = [
        Entry("candidate", name, seen.predictions[:, m], seen.losses_of(m))
        for m, name in enumerate(seen.names)
    ]
    for kind, weights in (
        ("equal", np.full(M, 1.0 / M)),
        ("global", seen.model.global_weights_),
    ):
        mixture = global_average(weights, seen.predictions)
        losses = seen.losses(weights)
        entries.append(Entry(kind, f"{kind} weights", mixture, losses))
    losses = seen.losses(seen.weights)
    return [*entries, Entry("local", name_of_model(seen), seen.mixture, losses)]


def name_of_model(seen: Observed) -> str:
    """What the model is called beside the others: its gate may not be a local one."""
    return "this model" if seen.model.gate_.is_constant else "local weights"


def difference(seen: Observed, entry: Entry, other: Entry) -> tuple[float, float]:
    """Loss of an entry minus that of another, with its standard error."""
    return _mean(seen, entry.losses - other.losses)


def _mean(seen: Observed, values: Array) -> tuple[float, float]:
    return seen.mean_and_error(values, np.arange(len(seen)))


def _model(entries: list[Entry]) -> Entry:
    return next(entry for entry in entries if entry.kind == "local")


def _row(seen: Observed, entry: Entry, best: Entry, model: Entry) -> dict[str, Any]:
    weight, groups, targets = seen.sample_weight, seen.groups, _plain_targets(seen)
    mixture = entry.mixture if entry.mixture.ndim == 2 else entry.mixture[:, np.newaxis]
    return {
        "kind": entry.kind,
        "name": entry.name,
        "loss": measured(_mean(seen, entry.losses)),
        "metrics": {
            name: measured(measure(targets, mixture, weight, groups))
            for name, measure in _measures(seen).items()
        },
        "to_best": _judged(difference(seen, entry, best), _risk(seen, best)),
        "to_model": _judged(difference(seen, entry, model), _risk(seen, model)),
    }


def _risk(seen: Observed, entry: Entry) -> float:
    return _mean(seen, entry.losses)[0]


def _judged(pair: tuple[float, float], risk: float) -> dict[str, Any]:
    return {**measured(pair), "is_clear": _is_clear(*pair, risk)}


def _is_clear(value: float, error: float, risk: float) -> bool:
    """Whether a difference is more than chance, and more than 0.1 % of the risk."""
    return bool(abs(value) > max(2 * error, negligible(risk)))


def _measures(seen: Observed) -> dict[str, Any]:
    return CLASSIFICATION if seen.is_classification else REGRESSION


def _plain_targets(seen: Observed) -> Array:
    """Targets of the plain measures: (n, K), the indicator of the class for classification."""
    if seen.is_classification:
        return np.eye(len(seen.model.classes_))[seen.observed_classes]
    return seen.targets


def _control_entry(seen: Observed, control: Control) -> Entry:
    mixture = observed = control.mixture
    if seen.is_classification and seen.model.loss_.name == "cross_entropy":
        observed = np.take_along_axis(mixture, seen.observed_classes[:, np.newaxis], axis=1)
    losses = row_losses(seen.model.loss_, seen.targets, observed)
    return Entry("control", "control: constants", mixture, losses)


def _about_control(control: Control | str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    if isinstance(control, str):
        return {
            "name": None,
            "constants": [],
            "n_rows": 0,
            "n_fitted": 0,
            "sentence": f"There is no control: {control}.",
        }
    row = rows[-1]
    model = next(each for each in rows if each["kind"] == "local")
    what = (
        f"A gate of the same kind over {len(control.constants)} constants instead of the "
        f"candidates, learnt from {control.n_fitted:,} of these rows, has a loss of "
    )
    return {
        "name": row["name"],
        "constants": control.constants,
        "n_rows": len(control.mixture),
        "n_fitted": control.n_fitted,
        "sentence": what + _control_in_words(row, model),
    }


def _control_in_words(control: dict[str, Any], model: dict[str, Any]) -> str:
    """Losses of the control and of the model, their difference, and what it means.

    All three have the same decimals, and the difference is that of the figures shown.
    """
    gap = control["to_model"]
    error = gap["standard_error"]
    decimals = decimals_of(error if error > 0 else gap["value"])
    shown = [round(each["loss"]["value"], decimals) for each in (control, model)]
    numbers = (*shown, abs(shown[0] - shown[1]), round(error, decimals))
    figures = [f"{value:,.{max(0, decimals)}f}" for value in numbers]
    losses = f"{figures[0]}, the model {figures[1]}"
    size = f"{figures[2]} ± {figures[3]}"
    if not gap["is_clear"]:
        return (
            f"{losses}. The difference, {size}, is not clear: the gate may predict the target by "
            "itself, and a model trained on these inputs may do so better."
        )
    if gap["value"] < 0:
        return (
            f"{losses}. The control is {size} lower: the gate does better without the candidates, "
            "so a model trained on these inputs belongs in the pool."
        )
    return f"{losses}. The control is {size} higher: the candidates' predictions matter."


def _sentence(seen: Observed, entries: list[Entry], best_candidate: int) -> str:
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
