"""The control: can the gate predict the target without the candidates?

Weights that depend on the input can follow the target by themselves: over two constants, the
smallest and the largest target, a gate is a regression. So a gate of the same kind is cross-fitted
on the labelled rows, with constants in place of the candidates. If it does as well as the model,
the candidates' predictions hardly matter.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from localma._types import Array, Rows
from localma.equations import local_average
from localma.folds import make_folds
from localma.gates import Gate, Labelled
from localma.inspection.display import Label
from localma.inspection.observed import Observed

CONTROL_ROWS = 3000
"""Rows that the control is fitted on, at most."""

CONTROL_FOLDS = 3
LEAST_ROWS = 30
LEAST_GROUPS = 5
"""Fewer groups could not be split again into three folds."""
MOST_CLASSES = 50


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
    if n < LEAST_ROWS:
        raise NoControlError(f"it needs {LEAST_ROWS} labelled rows, and there are {n}")
    if sample.n_groups is not None and sample.n_groups < LEAST_GROUPS:
        raise NoControlError(f"it needs {LEAST_GROUPS} groups, and there are {sample.n_groups}")
    inputs = sample.model.gate_features_.transform(sample.X)
    if not isinstance(inputs, np.ndarray) or inputs.ndim != 2:
        raise NoControlError("the inputs of this gate are not numbers in columns")
    return inputs


def _fitted_gate(sample: Observed, inputs: Array, constants: Array, random_state: int) -> Gate:
    """Fit a gate like the model's over constants."""
    gate = _same_kind(sample.model.gate_, random_state)
    data = Labelled.of(
        inputs,
        _outputs(sample, constants),
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
        if K > MOST_CLASSES:
            raise NoControlError(f"it would need {K} constants, one per class")
        return np.eye(K)
    targets = observed.targets[observed.sample_weight > 0]
    constants = np.stack([targets.min(axis=0), targets.max(axis=0)])
    if not (constants[0] < constants[1]).all():
        raise NoControlError("the target is constant")
    if not loss.prediction.contains(constants).all():
        raise NoControlError(f"loss {loss.name!r} does not accept the extremes of y as predictions")
    return constants


def _outputs(observed: Observed, constants: Array) -> Array:
    """Return the constants as predictions on the scale of the loss: (n, M, K)."""
    if observed.is_cross_entropy:
        return constants[:, observed.observed_classes].T[:, :, np.newaxis]
    return np.tile(constants, (len(observed), 1, 1))


def _same_kind(gate: Gate, random_state: int) -> Gate:
    twin: Gate = clone(gate)
    if "random_state" in twin.get_params(deep=False):
        twin.set_params(random_state=random_state)
    if twin.needs_folds:
        # The folds of the model may be tied to the rows of its sample.
        twin.set_params(cv=CONTROL_FOLDS)
    return twin
