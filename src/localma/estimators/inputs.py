"""Rows to predict: checks of X, and the inputs of the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data

from localma._types import Array
from localma.candidates.outputs import Table
from localma.checks.cautions import warn
from localma.checks.fit import outside_sample
from localma.folds import evenly_spaced
from localma.gates import Gate
from localma.gates.labelled import Inputs
from localma.tables.encoder import refuse_dates
from localma.tables.frames import (
    check_names_differ,
    check_rows_and_columns,
    column_names,
    is_table,
    readable_tensor,
    unmasked,
)

if TYPE_CHECKING:
    from localma.estimators.base import _LocalMA

LEAST_WARNED, MOST_WARNED = 20, 256
"""Numbers of rows in which `predict` looks for rows outside the labelled sample."""


def check_inputs(
    model: _LocalMA,
    X: Table,
    *,
    reset: bool = False,
    gate: Gate | None = None,
    allow_missing: bool | None = None,
) -> Any:
    """Record or check the features' names and number; plain numbers become an array.

    Inputs that are not a table (texts, images, data sets) pass unchanged if the gate takes
    them. Values of a frame are checked by the gate and the candidates that use them.
    """
    if gate is None:
        check_is_fitted(model)
        gate = model.gate_
    check_rows_and_columns(X)
    X = readable_tensor(unmasked(X))
    if gate.raw_inputs and not is_table(X):
        if reset:
            model.__dict__.pop("n_features_in_", None)
        return X
    check_names_differ(X)
    if model.gate_features is None and column_names(X) is None:
        if gate.needs_inputs:
            refuse_dates(X)
        if allow_missing is None:
            allow_missing = model._allows_missing
        if allow_missing:  # in columns of predictions; `check_finite` looks at the others
            return validate_data(model, X, reset=reset, ensure_all_finite="allow-nan")
        return validate_data(model, X, reset=reset)
    return validate_data(model, X, reset=reset, skip_check_array=True)


def gate_inputs(model: _LocalMA, X: Table) -> Inputs:
    """Inputs of the gate. Warn, once after each fit, if most rows are outside the sample."""
    inputs = model.gate_features_.transform(X)
    is_array = isinstance(inputs, np.ndarray)
    if is_array and len(inputs) >= LEAST_WARNED and not model._warned_outside:
        _warn_outside(model, X, inputs)
    return inputs


def check_finite(inputs: Inputs) -> None:
    """Refuse inputs of the gate with missing values, if predictions in X may be missing."""
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f":
        assert_all_finite(inputs, input_name="X")


def _warn_outside(model: _LocalMA, X: Table, inputs: Array) -> None:
    """Warn if most rows lie outside the labelled sample."""
    rows = evenly_spaced(np.arange(len(inputs)), MOST_WARNED)
    outside = model.gate_.outside(inputs[rows])
    if outside is None or outside.share <= 0.5:
        return
    model._warned_outside = True
    names = model.gate_features_.input_names(X, inputs.shape[1])
    warn([outside_sample(outside, names)])
