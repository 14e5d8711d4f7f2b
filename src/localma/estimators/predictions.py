"""Predictions of a fitted model's candidates, computed or passed by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from localma._types import Array, RowMask
from localma.candidates import Pool
from localma.candidates.given import Predictions, check_same_index, holds_all
from localma.candidates.outputs import Labels, OutputNames, Table
from localma.errors import InvalidInputError
from localma.estimators.inputs import check_finite
from localma.gates.incomplete import known_predictions, replaced
from localma.gates.labelled import Inputs
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from localma.estimators.base import _LocalMA
    from localma.production.completed import Completed


def pool_of(model: _LocalMA) -> Pool:
    """The candidates, or an error if there are none to run."""
    if model.pool_ is None or model.pool_.supplied_names:
        raise InvalidInputError(
            "This model has no candidates to run: it was fitted with predictions=, or loaded "
            "with candidates={}. Pass predictions= of "
            f"{', '.join(map(repr, _names_to_supply(model)))}, or load it with its candidates."
        )
    return model.pool_


def run_candidates(
    model: _LocalMA, X: Table, only: RowMask | None = None, rows: Sequence[int] | None = None
) -> Array:
    """Predictions of the pool: (n, M) or (n, M, K)."""
    return pool_of(model).predict(X, only=only, outputs=model._outputs(), rows=rows)


def checked_predictions(
    model: _LocalMA,
    predictions: Predictions,
    n: int,
    classes: Labels | None,
    outputs: OutputNames,
    names: Sequence[str],
    allow_missing: bool = False,
) -> Array:
    """Predictions that a user passed, checked against the candidates: (n, M) or (n, M, K)."""
    _, P = Pool.from_predictions(
        predictions,
        n_rows=n,
        task=model._task,
        names=names,
        classes=classes,
        outputs=outputs,
        allow_missing=allow_missing,
    )
    return P


def all_predictions(
    model: _LocalMA, X: Table, predictions: Predictions | None, *, allow_missing: bool = False
) -> Array:
    """Predictions that a user passed, or those of the pool: (n, M) or (n, M, K)."""
    if predictions is None:
        return run_candidates(model, X)
    check_same_index(predictions, X)
    classes = getattr(model, "classes_", None)
    names: Sequence[str] = model.candidate_names_
    if model.pool_ is not None and not holds_all(predictions, model.pool_.stacked_names, names):
        names = _names_to_supply(model)
    P = checked_predictions(
        model, predictions, n_rows(X), classes, model._outputs(), names, allow_missing
    )
    if model.pool_ is None or len(names) == len(model.candidate_names_):
        return P
    positions = [model.candidate_names_.index(name) for name in names]
    known = known_predictions(P)
    complete = replaced(P, known, model.global_weights_[positions])
    given = {name: complete[:, m] for m, name in enumerate(names)}
    values = model.pool_.predict(X, given=given, outputs=model._outputs())
    values[~known.any(axis=1)] = np.nan
    values[:, positions] = P
    return values


def completed_predictions(
    model: _LocalMA, X: Table, inputs: Inputs, predictions: Predictions | None
) -> Completed:
    """Predictions of X in which missing ones are replaced; an error if a row has none."""
    from localma.production.completed import completed

    check_finite(inputs)
    return completed(model, X, inputs, predictions, strict=model.missing == "renormalize")


def _names_to_supply(model: _LocalMA) -> Sequence[str]:
    """Names of the candidates whose predictions a user passes: all that take no others'."""
    stacked = [] if model.pool_ is None else model.pool_.stacked_names
    return tuple(name for name in model.candidate_names_ if name not in stacked)
