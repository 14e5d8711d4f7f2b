"""Steps of a fit: predictions and folds of the sample, the gate, and checks of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from localma._types import AnyArray, Array, RowMask, Rows
from localma.candidates import Pool, Supplied
from localma.candidates.given import Predictions
from localma.candidates.outputs import Output, Table
from localma.checks.cautions import Caution, warn
from localma.checks.fit import checked_rows, find_cautions
from localma.checks.losses import check_sample
from localma.checks.training_rows import SampleLosses, find_trained_on_sample
from localma.dependence import Blocks, find_blocks
from localma.equations import row_losses
from localma.errors import InvalidInputError
from localma.estimators.arguments import Arguments, Previous, validate
from localma.estimators.parameters import make_gate, validate_params
from localma.estimators.predictions import checked_predictions
from localma.evidence import Baseline
from localma.folds import DEFAULT_FOLDS, Fold, count_groups, make_folds
from localma.gates import Gate, Labelled
from localma.gates.constant import find_global_weights, standardize_outputs
from localma.gates.heirs import Heirs
from localma.gates.incomplete import equal_weights, fill_missing, known_predictions
from localma.gates.left_out import LeftOut
from localma.losses import get_loss
from localma.own.companions import PREFIX, Wanted, add_own
from localma.own.models import Sample, scored
from localma.own.shared_error import SharedError, find_shared_error
from localma.probes import Probes
from localma.reference import Reference
from localma.tables.frames import is_table, take_rows

if TYPE_CHECKING:
    from localma.estimators.base import _LocalMA


@dataclass(frozen=True)
class _Split:
    """How a sample is split: groups (n,) of dependent rows, and folds; None if there are none."""

    groups: Rows | None
    folds: list[Fold] | None = None


def fit(
    model: _LocalMA,
    X: Table,
    y: Output,
    sample_weight: ArrayLike | None,
    predictions: Predictions | None,
    groups: Output | None,
    previous: Previous | None = None,
) -> None:
    """Fit, starting from an earlier fit if there is one."""
    with _restored_on_error(model):
        validate_params(model)
        random = check_random_state(model.random_state)
        model.loss_, model._warned_outside = get_loss(model.loss), False
        gate = make_gate(model, random)
        sample = validate(model, gate, X, y, sample_weight, predictions, groups, previous)
        P, weight, split = _predict_and_split(model, sample, gate, random)
        if sample.own is not None:
            P, weight = _add_own(model, sample, sample.own, P, weight, split)
        model.output_names_ = sample.outputs.names
        outputs, targets = model._gate_outputs(P, sample.y)
        baseline = model._make_baseline(targets, sample.y, weight)
        data = Labelled.of(
            sample.inputs,
            outputs,
            targets,
            loss=model.loss_,
            sample_weight=weight,
            groups=split.groups,
            baseline=baseline,
        )
        if model.loss_.standardize:
            data = _standardize(model, data)
        if gate.is_global:  # its fit finds the global weights
            model.gate_ = gate.fit(data)
            model.global_weights_ = gate.weights_
        else:
            model.global_weights_ = find_global_weights(data)
            model.gate_ = _learn(model, gate, data, split.folds, previous)
        model.left_out_ = _leave_out(model, data) if model.robust else None
        model.changes_ = ()
        _check_fit(model, sample, P, data, replace(baseline, loss=data.loss))
        model.shared_error_ = _find_shared_error(model, sample, P, data, split)
        warn(model.cautions_)


def _learn(
    model: _LocalMA, gate: Gate, data: Labelled, folds: list[Fold] | None, previous: Previous | None
) -> Gate:
    """Fit the gate, starting from an earlier one if there is one."""
    weights = model.global_weights_
    if previous is None:
        return gate.fit(data, global_weights=weights, folds=folds)
    earlier = previous.earlier(model.candidate_names_)
    return gate.fit_after(earlier, data, global_weights=weights, folds=folds)


def _standardize(model: _LocalMA, data: Labelled) -> Labelled:
    """Give the outputs equal shares in the loss, from here on also in every report."""
    if model._task == "classification":
        raise InvalidInputError(
            "A standardized loss is for regression with several outputs; received "
            f"{model.loss_!r} for a classifier, whose outputs are classes. Pass the loss itself."
        )
    data = standardize_outputs(data)
    model.loss_ = data.loss
    return data


def _add_own(
    model: _LocalMA, sample: Arguments, own: Wanted, P: Array, weight: Array | None, split: _Split
) -> tuple[Array, Array | None]:
    """Add own candidates to the pool; return all predictions, and weights of the rows."""
    pool, names = model.pool_, model.candidate_names_
    fixed: Sequence[str] = names
    if pool is None:
        classes = getattr(model, "classes_", None)
        pool = Pool({name: Supplied(name, classes) for name in names}, task=model._task)
    elif sample.pool is not None:
        fixed = [name for name in sample.pool.fixed_names if name in names]
    for name in names:
        if name.startswith(PREFIX):
            raise InvalidInputError(
                f"Names of candidates may not begin with {PREFIX!r} if own models are added; "
                f"received {name!r}. Rename the candidate."
            )
    assert split.folds is not None  # own models need them
    added = add_own(
        pool,
        own,
        sample.X,
        sample.y,
        P,
        fixed=fixed,
        folds=split.folds,
        sample_weight=weight,
        groups=split.groups,
        outputs=sample.outputs,
    )
    if added.pool.stacked_names:
        model.pool_, model.candidate_names_ = added.pool, added.pool.names
    return _without_uncovered(added.P, added.covered, weight)


def _predict_and_split(
    model: _LocalMA, sample: Arguments, gate: Gate, random: np.random.RandomState
) -> tuple[Array, Array | None, _Split]:
    """Predictions and weights of the sample, and its folds, which own models need first."""
    if not sample.has_own_models:
        P, weight = _predict_sample(model, sample, None, random)
        outputs, targets = model._gate_outputs(P, sample.y)
        check_sample(model.loss_, targets, outputs, model.candidate_names_)
        return P, weight, _split(model, sample, gate, outputs, targets, random)
    fixed, outputs, targets = _before_own_models(model, sample)
    split = _split(model, sample, gate, outputs, targets, random)
    P, weight = _predict_sample(model, sample, split.folds, random, fixed)
    outputs, targets = model._gate_outputs(P, sample.y)
    check_sample(model.loss_, targets, outputs, model.candidate_names_)
    return P, weight, split


def _before_own_models(model: _LocalMA, sample: Arguments) -> tuple[dict[str, Array], Array, Array]:
    """Predictions of the fixed candidates by name, and outputs (n, M, K) with targets (n, K).

    Classes, and targets without a fixed candidate, are compared with their means.
    """
    assert sample.pool is not None  # it has own models
    targets = model._plain_targets(sample.y)
    fixed: dict[str, Array] = {}
    if model._task == "regression":
        names = [name for name in sample.pool.names if name not in sample.pool.own_names]
        P = sample.pool.predict(
            sample.X, only=names, outputs=sample.outputs, allow_missing=model._allows_missing
        )
        fixed = {name: P[:, sample.pool.names.index(name)] for name in names}
    columns = [values.reshape(len(targets), -1) for values in fixed.values()]
    if columns:
        complete, _ = fill_missing(np.stack(columns, axis=1), equal_weights)
        columns = list(complete.swapaxes(0, 1))
    outputs = np.stack(columns or [np.broadcast_to(targets.mean(axis=0), targets.shape)], axis=1)
    return fixed, outputs, targets


def _split(
    model: _LocalMA,
    sample: Arguments,
    gate: Gate,
    outputs: Array,
    targets: Array,
    random: np.random.RandomState,
) -> _Split:
    """Split the sample if the gate or a candidate needs folds; they share them.

    Whole blocks are held out where rows depend on each other, unless you said how to split.
    """
    model.dependence_ = None
    if not gate.needs_folds and not sample.needs_folds:
        return _Split(sample.group_numbers)
    cv = gate.get_params(deep=False).get("cv")
    if cv is None:
        cv = model.cv
    blocks, numbers = None, sample.group_numbers
    is_chosen = numbers is not None or not isinstance(cv, Integral | None)
    if not is_chosen and model.folds != "shuffled":
        blocks = _find_blocks(model, sample, outputs, targets)
    if blocks is not None:
        model.dependence_, numbers = blocks.dependence, blocks.numbers
    most = None
    if not sample.needs_folds:
        most = gate.judging_folds(len(sample.y), count_groups(numbers, sample.sample_weight))
    if blocks is not None:
        folds = blocks.folds(cv or DEFAULT_FOLDS, sample.y, random)[:most]
        return _Split(numbers, folds)
    folds = make_folds(
        cv,
        sample.y,
        sample.groups,
        classification=model._task == "classification",
        random_state=random,
        most=most,
    )
    return _Split(numbers, folds)


def _find_blocks(
    model: _LocalMA, sample: Arguments, outputs: Array, targets: Array
) -> Blocks | None:
    """Blocks of rows that depend on each other, by their errors."""
    weight, inputs, names = sample.sample_weight, None, []
    if isinstance(sample.inputs, np.ndarray) and sample.inputs.dtype.kind in "biuf":
        inputs = sample.inputs.reshape(len(targets), -1)
        names = model.gate_features_.input_names(sample.X, inputs.shape[1])
    return find_blocks(
        sample.X,
        inputs,
        outputs,
        targets,
        model.loss_,
        np.ones(len(targets)) if weight is None else weight,
        classes=model._plain_targets(sample.y) if model._task == "classification" else None,
        names=names,
        always=model.folds == "blocks",
    )


def _predict_sample(
    model: _LocalMA,
    sample: Arguments,
    folds: list[Fold] | None,
    random: np.random.RandomState,
    fixed: Mapping[str, Array] | None = None,
) -> tuple[Array, Array | None]:
    """Predictions P of the sample, and weights without rows that have no prediction."""
    y, weight, outputs, pool = sample.y, sample.sample_weight, sample.outputs, sample.pool
    if pool is None:
        assert sample.predictions is not None  # see `validate`
        model.pool_ = None
        model.candidate_names_, P = Pool.from_predictions(
            sample.predictions,
            n_rows=len(y),
            task=model._task,
            classes=model._find_classes(y, sample.predictions),
            outputs=outputs,
            allow_missing=model._allows_missing,
        )
        return _complete(model, P, weight, y=y)
    if sample.predictions is not None and sample.has_own_models:
        raise InvalidInputError(
            "A CrossFitted candidate makes its own predictions of the sample; predictions= "
            "would replace them. Leave predictions= out, or pass only fitted candidates."
        )
    pool.check_labels(y)
    model.pool_, out_of_fold, covered = pool.fit(
        sample.X,
        y,
        cv=folds,
        sample_weight=weight,
        groups=sample.groups,
        random_state=random,
        outputs=outputs,
        complete=_completion(model, weight, y) if model._allows_missing else None,
    )
    model.candidate_names_ = model.pool_.names
    classes = model._find_classes(y, sample.predictions)
    if sample.predictions is not None:
        given = checked_predictions(
            model,
            sample.predictions,
            len(y),
            classes,
            outputs,
            model.candidate_names_,
            allow_missing=model._allows_missing,
        )
        return _complete(model, given, weight, y=y)
    P = model.pool_.predict(
        sample.X,
        given={**(fixed or {}), **out_of_fold},
        outputs=outputs,
        allow_missing=model._allows_missing,
    )
    return _complete(model, *_without_uncovered(P, covered, weight), y=y)


def _complete(
    model: _LocalMA, P: Array, weight: Array | None, *, y: AnyArray
) -> tuple[Array, Array | None]:
    """Fill missing predictions of the sample; a row without any has no weight."""
    model._known = None
    if not model._allows_missing or not np.isnan(P).any():
        return P, weight
    model._known = known_predictions(P)

    def find_weights(complete: Array) -> Array:
        outputs, targets = model._gate_outputs(complete, y)
        inputs = np.empty((len(targets), 0))
        counted = Labelled.of(
            inputs, outputs, targets, loss=model.loss_, sample_weight=_counted(P, weight)
        )
        return find_global_weights(counted)

    counted = _counted(P, weight)
    complete, has_any = fill_missing(P, find_weights)
    return complete, weight if has_any.all() else counted


def _completion(model: _LocalMA, weight: Array | None, y: AnyArray) -> Callable[[Array], Array]:
    """Fill missing predictions that are inputs of another candidate.

    The classes are not known yet, so their averages have equal weights.
    """
    if model._task == "classification":
        return lambda P: fill_missing(P, equal_weights)[0]
    return lambda P: _complete(model, P, weight, y=y)[0]


def _counted(P: Array, weight: Array | None) -> Array:
    """Weights of the rows, zero without any prediction; an error if none is left."""
    has_any = known_predictions(P).any(axis=1)
    counted = has_any * (1.0 if weight is None else weight)
    if not counted.any():
        raise InvalidInputError(
            "At least one row must have the prediction of a candidate; all predictions of the "
            f"{len(P)} rows are missing. Check the names and the values of the predictions."
        )
    return np.asarray(counted)


def _check_fit(
    model: _LocalMA, sample: Arguments, P: Array, data: Labelled, baseline: Baseline
) -> None:
    """Learn what later checks need, and find the reasons to doubt this fit."""
    constant = baseline.learn()
    model.constant_prediction_ = constant if np.isfinite(constant).all() else None
    model.sample_losses_ = SampleLosses.of_sample(data)
    model.largest_gap_ = model._largest_gap(data)
    rows = checked_rows(data)
    W = model.gate_.predict_weights(take_rows(data.X, rows))
    model.mean_weights_ = np.average(W, axis=0, weights=data.sample_weight[rows])
    model.heirs_ = None if model.robust else Heirs.of(model.gate_, data, rows, W)
    model.probes_ = None if model.pool_ is None else Probes.of(sample.X)
    model.reference_ = _make_reference(model, sample, P, data)
    trained: list[Caution] = []
    pool = None if sample.predictions is not None else sample.pool
    if pool is not None and model.gate_.learns and is_table(sample.X):
        trained = find_trained_on_sample(
            pool.keep(model.candidate_names_),
            sample.X,
            P,
            data,
            model._outputs(),
            lambda values, rows: model._gate_outputs(values, sample.y[rows])[0],
        )
    names, features = model.candidate_names_, model.gate_features_
    model.cautions_ = find_cautions(model.gate_, data, baseline, names, features, sample.X, trained)


def _make_reference(
    model: _LocalMA, sample: Arguments, P: Array, data: Labelled
) -> Reference | None:
    """Measure the sample, for monitors of this model."""
    fitted = [] if model.pool_ is None else [*model.pool_.stacked_names]
    if sample.pool is not None:
        fitted += sample.pool.own_names
    names = model.gate_features_.input_names(sample.X, data.n_inputs)
    known, model._known = model._known, None
    if known is not None and known.shape[1] < data.n_candidates:  # own models always predict
        added = np.ones((len(known), data.n_candidates - known.shape[1]), dtype=bool)
        known = np.hstack([known, added])
    return Reference.of(
        data, model.gate_, model.candidate_names_, names, P, fitted=fitted, known=known
    )


def _leave_out(model: _LocalMA, data: Labelled) -> LeftOut:
    """Fit the weights without each candidate."""
    M = data.n_candidates
    takes = np.zeros((M, M), dtype=bool) if model.pool_ is None else model.pool_.takes
    return LeftOut.of(model.gate_, data, takes)


def _find_shared_error(
    model: _LocalMA, sample: Arguments, P: Array, data: Labelled, split: _Split
) -> SharedError | None:
    """Look for an error that own models would remove, if there are none yet."""
    judged = getattr(model.gate_, "held_out_rows_", None)
    if sample.own is not None or judged is None or split.folds is None or model.cautions_:
        return None
    losses = np.full(len(P), np.nan)
    losses[judged] = model.gate_.held_out_losses_
    targets = model._score_targets(sample.y)
    predictions = P.reshape(*P.shape[:2], -1)
    rows = Sample(
        np.empty((len(P), 0)),
        predictions if model._task == "regression" else scored(predictions),
        targets,
        data.sample_weight,
        split.groups,
    )

    def losses_of(means: Array, index: Rows) -> Array:
        if model._task == "classification" and means.shape[1] == 1:
            means = np.hstack([1.0 - means, means])
        outputs, y = model._gate_outputs(means[:, np.newaxis], sample.y[index])
        return row_losses(model.loss_, y, outputs[:, 0])

    classes = getattr(model, "classes_", None)
    folds, find = split.folds, find_shared_error
    return find(model.loss_, rows, folds, losses, labels=classes, losses_of=losses_of)


@contextmanager
def _restored_on_error(model: BaseEstimator) -> Iterator[None]:
    """Undo all changes of a model if an error occurs, so that an earlier fit stays whole."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def _without_uncovered(
    P: Array, covered: RowMask, weight: Array | None
) -> tuple[Array, Array | None]:
    """Take the weight from rows that no fold holds out: (n, ...), (n,) -> (n, ...), (n,)."""
    if covered.all():
        return P, weight
    # Such rows stay, so that folds remain valid, and get a finite prediction.
    P[~covered] = P[covered].mean(axis=0)
    return P, covered * (1.0 if weight is None else weight)
