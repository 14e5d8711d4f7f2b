"""Arguments of a fit, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight

from localma._types import AnyArray, Array, Rows
from localma.candidates import Pool
from localma.candidates.given import Predictions, check_same_index
from localma.candidates.outputs import Output, OutputNames, Table
from localma.errors import InvalidInputError
from localma.estimators.inputs import check_finite, check_inputs
from localma.estimators.parameters import own_kinds
from localma.folds import count_groups, number_groups
from localma.gates import Gate
from localma.gates.base import Earlier
from localma.gates.labelled import Inputs, count_inputs
from localma.own.companions import Wanted
from localma.tables.encoder import GateFeatures
from localma.tables.frames import n_rows, readable_tensor, without_mask

if TYPE_CHECKING:
    from localma.estimators.base import _LocalMA


@dataclass(frozen=True)
class Arguments:
    """The validated arguments of a fit.

    X : the table; inputs : the inputs of the gate
    y : (n,) or (n, K); outputs : names of its outputs, as far as they are known
    sample_weight, groups : (n,) or None; group_numbers : the groups, numbered from 0
    predictions : the candidates' predictions, if the user passed them
    pool : the candidates, None if the user passed only predictions
    own : the own models to add, if any
    """

    X: Table
    inputs: Inputs
    y: AnyArray
    outputs: OutputNames
    sample_weight: Array | None
    groups: Output | None
    group_numbers: Rows | None
    predictions: Predictions | None
    pool: Pool | None
    own: Wanted | None

    @property
    def has_own_models(self) -> bool:
        """Whether some candidate of the user is still to be fitted on the sample."""
        return self.pool is not None and self.pool.has_own_models

    @property
    def needs_folds(self) -> bool:
        """Whether some candidate needs folds."""
        return self.has_own_models or self.own is not None


@dataclass(frozen=True)
class Previous:
    """What a fit takes from an earlier one.

    gate : the fitted gate; positions : for each of its candidates that is left, its position in it
    features : the fitted inputs of the gate
    """

    gate: Gate
    positions: Mapping[str, int]
    features: GateFeatures

    def earlier(self, names: Sequence[str]) -> Earlier:
        """The gate to start from, for candidates of some names (M,)."""
        return Earlier(self.gate, np.array([self.positions.get(name, -1) for name in names]))

    def check_inputs(self, inputs: Inputs) -> None:
        """Refuse inputs of the gate with another number of columns."""
        p, received = getattr(self.gate, "n_features_in_", None), count_inputs(inputs)
        if p is not None and received and received != p:
            raise InvalidInputError(
                f"X must have the columns of the fit, and those of the new candidate if it is a "
                f"column: the gate was fitted on {p} inputs, and received {received}. Leave out "
                "further columns."
            )


def validate(
    model: _LocalMA,
    gate: Gate,
    X: Table,
    y: Output,
    sample_weight: ArrayLike | None,
    predictions: Predictions | None,
    groups: Output | None,
    previous: Previous | None,
) -> Arguments:
    """Check the arguments of a fit once, and compute the inputs of the gate."""
    y = without_mask(y, "y")
    outputs = OutputNames.of_target(y)
    labels = model._check_target(readable_tensor(y))  # before X, because it drops feature names
    n = len(labels)
    X = check_inputs(model, X, reset=True, gate=gate)
    _check_rows(n_rows(X), n)
    if predictions is not None:
        check_same_index(predictions, X)
    weight = _check_weight(sample_weight, labels)
    pool, hidden = None, set()
    if model.candidates is not None:
        pool = Pool(model.candidates, task=model._task).expand(X)
        hidden = pool.prediction_columns(X)
    elif predictions is None:
        raise InvalidInputError(
            "There is nothing to combine: candidates is None and no predictions were given. "
            "Pass candidates={'name': fitted_model, ...}, or fit(X, y, predictions=P)."
        )
    kinds = own_kinds(model)
    needed = gate.needs_inputs or bool(kinds)
    if previous is not None:
        model.gate_features_ = previous.features.hiding(hidden)
    else:
        model.gate_features_ = GateFeatures(
            model.gate_features, hidden, raw=gate.raw_inputs, needed=needed
        ).fit(X, labels)
    numbers = None if groups is None else number_groups(groups, n)
    in_parts = gate.reads_in_parts(n, count_groups(numbers, weight))
    inputs = model.gate_features_.transform(X, in_parts=in_parts)
    if previous is not None:
        previous.check_inputs(inputs)
    if model._allows_missing:
        check_finite(inputs)
    own = None
    if kinds:
        transform = model.gate_features_.transform
        own = Wanted(kinds, model.loss_, model._task, transform, count_inputs(inputs))
    return Arguments(X, inputs, labels, outputs, weight, groups, numbers, predictions, pool, own)


def _check_rows(n_inputs: int, n_targets: int) -> None:
    if n_inputs != n_targets:
        raise InvalidInputError(
            f"X and y must have the same number of rows; X has {n_inputs} and y has {n_targets}."
        )
    if n_targets < 2:
        raise InvalidInputError(
            f"Weights cannot be learnt from n_samples={n_targets}; pass at least 2 labelled rows."
        )


def _check_weight(sample_weight: ArrayLike | None, y: AnyArray) -> Array | None:
    """Weights of the rows (n,), not negative and not all zero; None stays None."""
    if sample_weight is None:
        return None
    weight = readable_tensor(without_mask(sample_weight, "sample_weight"))
    weight = _check_sample_weight(weight, y, ensure_non_negative=True)
    if not weight.any():
        raise InvalidInputError(
            f"Some row must have a positive sample weight; all {len(y)} are zero."
        )
    return np.asarray(weight)
