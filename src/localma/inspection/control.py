"""The control: is the gate a predictor in disguise?

Weights that depend on the input can follow the target by themselves: over two constants, the
smallest and the largest target, a gate is a regression. So a gate of the same kind is cross-fitted
on the labelled rows at hand, with constants in place of the candidates. Where it does as well as
the model, what the candidates say hardly matters.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from localma.equations import local_average
from localma.folds import make_folds
from localma.gates import Gate, Labelled
from localma.inspection.metrics import Difference, Measured
from localma.inspection.observed import Observed
from localma.inspection.record import Label, Record
from localma.wording import decimals_of

Array = NDArray[np.floating]
Rows = NDArray[np.intp]

CONTROL_ROWS = 3000
"""Rows that the control learns from, at most."""

CONTROL_FOLDS = 3
LEAST_ROWS = 30
LEAST_GROUPS = 5
"""With fewer, folds of whole groups could not be split again into three."""
MOST_CLASSES = 50


@dataclass(frozen=True)
class Control:
    """Cross-fitted predictions of a gate over constants, for all rows.

    mixture : (n, K), on the scale of y or of classes; constants : what stood in place of the
    candidates; n_fitted : rows that each gate learnt from.
    """

    mixture: Array
    constants: list[Any]
    n_fitted: int


@dataclass(frozen=True)
class ControlNote(Record):
    """The control in words.

    name : of its entry in the comparison, or None if there is no control; constants : the
    predictions that replaced the candidates; n_fitted : rows that each gate learnt from.
    """

    name: str | None
    constants: list[Label]
    n_rows: int
    n_fitted: int
    sentence: str

    @classmethod
    def without(cls, reason: str) -> ControlNote:
        """Say why there is no control."""
        return cls(None, [], 0, 0, f"There is no control: {reason}.")

    @classmethod
    def of(
        cls, control: Control, name: str, losses: tuple[Measured, Measured], gap: Difference
    ) -> ControlNote:
        """Compare the control with the model; losses : of the control and of the model."""
        sentence = (
            f"A gate of the same kind over {len(control.constants)} constants instead of the "
            f"candidates, learnt from {control.n_fitted:,} of these rows, has a loss of "
            f"{_compared(losses, gap)}"
        )
        n_rows = len(control.mixture)
        return cls(name, control.constants, n_rows, control.n_fitted, sentence)


def _compared(losses: tuple[Measured, Measured], gap: Difference) -> str:
    """Losses of the control and of the model, their difference, and its meaning.

    All three have the same decimals, and the difference is that of the figures shown.
    """
    error, value = gap.standard_error or 0.0, gap.value or 0.0
    decimals = decimals_of(error if error > 0 else value)
    control, model = (round(loss.value or 0.0, decimals) for loss in losses)
    numbers = (control, model, abs(control - model), round(error, decimals))
    figures = [f"{figure:,.{max(0, decimals)}f}" for figure in numbers]
    text = f"{figures[0]}, the model {figures[1]}"
    size = f"{figures[2]} ± {figures[3]}"
    if not gap.is_clear:
        return (
            f"{text}. The difference, {size}, is not clear: the gate may predict the target by "
            "itself, and a model trained on these inputs may do so better."
        )
    if value < 0:
        return (
            f"{text}. The control is {size} lower: the gate does better without the candidates, "
            "so a model trained on these inputs belongs in the pool."
        )
    return f"{text}. The control is {size} higher: the candidates' predictions matter."


def fit_control(seen: Observed, random_state: int = 0) -> Control | str:
    """Cross-fit a gate like the model's over constants; or say why there is none.

    The gates learn from some rows at most and predict all, so that the control and the model are
    compared on the same rows. No gate predicts a row, or a group, that it learnt from.
    """
    positive = np.flatnonzero(seen.sample_weight > 0)
    n = min(len(positive), CONTROL_ROWS)
    rng = np.random.default_rng(random_state)
    rows = np.sort(rng.choice(positive, n, replace=False))
    constants = constant_predictions(seen)
    if isinstance(constants, str):
        return constants
    if n < LEAST_ROWS:
        return f"it needs {LEAST_ROWS} labelled rows, and there are {n}"
    part = seen.take(rows)
    if part.n_groups is not None and part.n_groups < LEAST_GROUPS:
        return f"it needs {LEAST_GROUPS} groups, and there are {part.n_groups}"
    inputs = part.model.gate_features_.transform(part.X)
    if not isinstance(inputs, np.ndarray) or inputs.ndim != 2:
        return "this gate does not see numbers in columns, and would be trained anew for long"
    folds = make_folds(CONTROL_FOLDS, np.arange(n), part.groups, random_state=random_state)
    fold_numbers = _fold_numbers(seen, rows, [test for _, test in folds])
    everywhere = inputs if n == len(seen) else seen.model.gate_features_.transform(seen.X)
    weights = np.empty((len(seen), len(constants)))
    for number, (train, _) in enumerate(folds):
        gate = _fitted_gate(part.take(train), inputs[train], constants, random_state)
        here = fold_numbers == number
        weights[here] = gate.predict_weights(everywhere[here])
    mixture = local_average(weights, np.broadcast_to(constants, (len(seen), *constants.shape)))
    shown = seen.model.classes_ if seen.is_classification else np.squeeze(constants)
    return Control(mixture, list(shown), len(folds[0][0]))


def _fitted_gate(part: Observed, inputs: Array, constants: Array, random_state: int) -> Gate:
    """A gate like the model's, over constants, that learnt from some rows."""
    gate = _same_kind(part.model.gate_, random_state)
    data = Labelled.of(
        inputs,
        _outputs(part, constants),
        part.targets,
        loss=part.model.loss_,
        sample_weight=part.sample_weight if part.weighted else None,
        groups=part.groups,
    )
    with warnings.catch_warnings():
        # Of the control's own global weights; nobody will use them.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return gate.fit(data)


def _fold_numbers(seen: Observed, rows: Rows, tests: list[Rows]) -> Rows:
    """The fold whose gate predicts each row: (n,).

    Rows that no gate learnt from are dealt out, unless other rows of their group were learnt from.
    """
    numbers = np.arange(len(seen)) % len(tests)
    for number, test in enumerate(tests):
        numbers[rows[test]] = number
    if seen.groups is not None:
        of_group = np.arange(seen.groups.max() + 1) % len(tests)
        of_group[seen.groups[rows]] = numbers[rows]
        numbers = of_group[seen.groups]
    return numbers.astype(np.intp)


def constant_predictions(seen: Observed) -> Array | str:
    """Constants that span the targets, (M, K): the extremes, or one class each; or why not.

    Quantiles further inside would leave the gate unable to reach the tails, and the control weak.
    """
    if seen.is_classification:
        K = len(seen.model.classes_)
        return np.eye(K) if K <= MOST_CLASSES else f"it would need {K} constants, one per class"
    counted = seen.targets[seen.sample_weight > 0]
    constants = np.stack([counted.min(axis=0), counted.max(axis=0)])
    if not (constants[0] < constants[1]).all():
        return "the target is constant"
    if not seen.model.loss_.prediction.contains(constants).all():
        return f"loss {seen.model.loss_.name!r} does not take the extremes of y as predictions"
    return constants


def _outputs(seen: Observed, constants: Array) -> Array:
    """Constants as predictions on the scale on which the loss acts: (n, M, K)."""
    if seen.is_classification and seen.model.loss_.name == "cross_entropy":
        return constants[:, seen.observed_classes].T[:, :, np.newaxis]
    return np.tile(constants, (len(seen), 1, 1))


def _same_kind(gate: Gate, random_state: int) -> Gate:
    twin: Gate = clone(gate)
    if "random_state" in twin.get_params(deep=False):
        twin.set_params(random_state=random_state)
    if twin.needs_folds:
        # The folds of the model may be tied to the rows of its own sample.
        twin.set_params(cv=CONTROL_FOLDS)
    return twin
