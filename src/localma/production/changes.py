"""Changes of a fitted model's pool: a candidate is dropped, or one is added."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from localma._types import Integers
from localma.candidates import CrossFitted, Pool
from localma.candidates.base import Candidate
from localma.candidates.conversion import Model as AnyModel
from localma.candidates.given import Predictions
from localma.candidates.outputs import Output, Table, check_names, check_same_names
from localma.checks.training_rows import SampleLosses
from localma.errors import InvalidInputError, unknown_name
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.estimators.arguments import Previous
from localma.estimators.fitting import fit
from localma.gates.base import Gate
from localma.gates.heirs import Heirs
from localma.gates.left_out import LeftOut
from localma.gates.reduced import ReducedGate
from localma.tables.frames import column_names, n_rows, without_mask

Model = TypeVar("Model", LocalMARegressor, LocalMAClassifier)

Kind = Literal["added", "dropped"]


@dataclass(frozen=True)
class Change:
    """One change of the pool after the fit.

    Parameters
    ----------
    kind : {"added", "dropped"}
        What was done.
    candidate : str
        Name of the candidate.
    date : str
        The day, such as "2026-11-19".
    rows : int, optional
        Number of labelled rows; None without any.

    Examples
    --------
    >>> print(Change("dropped", "north", "2026-11-19"))
    'north' was dropped on 2026-11-19, without labelled rows.
    """

    kind: Kind
    candidate: str
    date: str
    rows: int | None = None

    def __str__(self) -> str:
        rows = "without labelled rows" if self.rows is None else f"with {self.rows:,} labelled rows"
        return f"{self.candidate!r} was {self.kind} on {self.date}, {rows}."


def drop(model: Model, name: str) -> Model:
    """Leave out a candidate, as `LocalMARegressor.drop` describes.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model. It stays as it is.
    name : str
        Name of the candidate.

    Returns
    -------
    LocalMARegressor or LocalMAClassifier
        The new model.
    """
    check_is_fitted(model)
    names = model.candidate_names_
    if name not in names:
        raise unknown_name("candidate", name, names)
    if len(names) == 1:
        raise InvalidInputError(
            f"{name!r} is the last candidate. A model needs at least one. Add another candidate "
            "first, or fit a new model."
        )
    m = names.index(name)
    kept = np.arange(len(names)) != m
    reduced = copy.copy(model)
    reduced.pool_ = _pool_without(model, m)
    reduced.candidate_names_ = tuple(other for other in names if other != name)
    reduced.candidates = _without(_originals(model), name)
    reduced.own = _own_without(model, name)
    reduced.gate_ = _gate_without(model, m)
    reduced.global_weights_ = reduced.gate_.global_weights_
    reduced.mean_weights_ = reduced.left_out_ = reduced.heirs_ = reduced.shared_error_ = None
    if (losses := model.sample_losses_) is not None:
        mean, error = losses.mean[kept], losses.standard_error[kept]
        reduced.sample_losses_ = SampleLosses(mean, error, losses.n)
    reduced.cautions_ = tuple(
        caution for caution in model.cautions_ if not caution.names or set(caution.names) != {name}
    )
    reduced.changes_ = (*model.changes_, Change("dropped", name, date.today().isoformat()))
    return reduced


def add(
    model: Model,
    name: str,
    candidate: AnyModel | None,
    X: Table,
    y: Output,
    *,
    sample_weight: ArrayLike | None = None,
    predictions: Predictions | None = None,
    groups: Output | None = None,
) -> Model:
    """Add a candidate, as `LocalMARegressor.add` describes.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model. It stays as it is.
    name : str
        Name of the new candidate.
    candidate : model or None
        The new candidate; None if the model was fitted on predictions alone.
    X : array or frame of shape (n, p)
        The inputs of labelled rows.
    y : array of shape (n,) or (n, K)
        Their targets or labels.
    sample_weight : array of shape (n,), optional
        Weights of the rows.
    predictions : array, dict or frame, optional
        Predictions of all candidates, the new one included.
    groups : array of shape (n,), optional
        The group of each row.

    Returns
    -------
    LocalMARegressor or LocalMAClassifier
        The new model.
    """
    check_is_fitted(model)
    check_names([*model.candidate_names_, name])
    _check_outputs(model, y)
    old, position = _earlier(model.gate_)
    positions = dict(zip(model.candidate_names_, position.tolist(), strict=True))
    twin = type(model)(**model.get_params(deep=False))
    twin.gate = _parameter(model)
    if model.pool_ is None or model.pool_.supplied_names:
        predictions = _given(model, name, candidate, predictions)
        twin.candidates = None
    elif candidate is None:
        raise InvalidInputError(
            f"The model of {name!r} is missing. Pass the model, a Column, or the path of a file."
        )
    else:
        twin.candidates = {**_originals(model), name: candidate}
    previous = Previous(old, positions, model.gate_features_)
    fit(twin, X, y, sample_weight, predictions, groups, previous)
    change = Change("added", name, date.today().isoformat(), n_rows(X))
    twin.changes_ = (*model.changes_, change)
    if (notes := getattr(model, "notes_", None)) is not None:
        twin.notes_ = notes
    return twin


# Parts of a model without a candidate.


def _pool_without(model: LocalMARegressor | LocalMAClassifier, m: int) -> Pool | None:
    """The pool without a candidate, whose predictions no other takes and which no class needs."""
    pool, names = model.pool_, model.candidate_names_
    if pool is None:
        return None
    takers = [names[j] for j in np.flatnonzero(pool.takes[:, m]).tolist()]
    if takers:
        raise InvalidInputError(
            f"{', '.join(map(repr, takers))} takes the predictions of {names[m]!r} as inputs, so "
            f"{names[m]!r} cannot be dropped alone. Drop {takers[0]!r} first, or fit again."
        )
    rest = pool.keep([name for name in names if name != names[m]])
    if isinstance(model, LocalMAClassifier):
        known = [] if rest.classes is None else rest.classes.tolist()
        lost = [label for label in model.classes_.tolist() if label not in known]
        if lost:
            raise InvalidInputError(
                f"Only {names[m]!r} knows the class {lost[0]!r}, which no other candidate could "
                "predict. Fit again with labelled rows, or add a candidate that knows it first."
            )
    return rest


def _gate_without(model: LocalMARegressor | LocalMAClassifier, m: int) -> ReducedGate:
    substitutes: Heirs | LeftOut | None = model.heirs_
    if model.left_out_ is not None:
        substitutes = model.left_out_
    names = model.candidate_names_
    return ReducedGate.of(model.gate_, m, substitutes, model.global_weights_, names)


def _originals(model: LocalMARegressor | LocalMAClassifier) -> dict[str, Candidate | AnyModel]:
    """The candidates by name, as they were before the fit; without own models."""
    if model.pool_ is None or model.pool_.supplied_names:
        return {}
    fitted = dict(zip(model.pool_.names, model.pool_.candidates, strict=True))
    unfitted = {}
    if model.candidates is not None:
        pool = Pool(model.candidates, task=model._task)
        pairs = zip(pool.names, pool.candidates, strict=True)
        unfitted = {name: one for name, one in pairs if isinstance(one, CrossFitted)}
    own = _own_names(model)
    return {name: unfitted.get(name, one) for name, one in fitted.items() if name not in own}


def _own_names(model: LocalMARegressor | LocalMAClassifier) -> list[str]:
    """Names of the own models that the fit added."""
    from localma.own.companions import saved_own

    return [saved.name for saved in saved_own(model.pool_)]


def _own_without(model: LocalMARegressor | LocalMAClassifier, name: str) -> list[str] | None:
    """Kinds of the own models that are left."""
    from localma.own.companions import saved_own

    return [saved.kind for saved in saved_own(model.pool_) if saved.name != name] or None


def _without(
    candidates: Mapping[str, Candidate | AnyModel], name: str
) -> dict[str, Candidate | AnyModel] | None:
    return {other: one for other, one in candidates.items() if other != name} or None


# Checks and parts of an addition.


def _earlier(gate: Gate) -> tuple[Gate, Integers]:
    """The gate to start from, and for each candidate its position in it."""
    if isinstance(gate, ReducedGate):
        earlier = gate.earlier
        return earlier.gate, earlier.candidates
    return gate, np.arange(gate.n_candidates)


def _parameter(model: LocalMARegressor | LocalMAClassifier) -> str | Gate:
    gate = model.gate
    return gate.fitted_base if isinstance(gate, ReducedGate) else gate


def _check_outputs(model: LocalMARegressor | LocalMAClassifier, y: Output) -> None:
    """Refuse targets with another number of outputs than in the fit."""
    shape = np.asarray(without_mask(y, "y")).shape
    n_outputs = shape[1] if len(shape) == 2 else 1
    expected = 1 if isinstance(model, LocalMAClassifier) else model.n_outputs_
    if n_outputs != expected:
        raise InvalidInputError(
            f"y must have {expected} columns, as in the fit; received shape {shape}. Pass the same "
            "targets as in the fit."
        )


def _given(
    model: LocalMARegressor | LocalMAClassifier,
    name: str,
    candidate: AnyModel | None,
    predictions: Predictions | None,
) -> Predictions:
    """Predictions by name, for a model that has no candidates to run."""
    own = _own_names(model)
    names = [*(other for other in model.candidate_names_ if other not in own), name]
    if candidate is not None or predictions is None:
        raise InvalidInputError(
            "This model has no candidates to run: it was fitted with predictions=, or loaded with "
            "candidates={}. Pass None as the candidate, and predictions= of "
            f"{', '.join(map(repr, names))}."
        )
    received = column_names(predictions)
    if isinstance(predictions, Mapping):
        received = list(predictions)
    if received is not None:
        check_same_names([str(other) for other in received], names)
        return predictions
    P = np.asarray(predictions)
    if P.ndim < 2 or P.shape[1] != len(names):
        raise InvalidInputError(
            f"predictions must have a column for each of the candidates "
            f"{', '.join(map(repr, names))}; received shape {P.shape}."
        )
    return {other: P[:, m] for m, other in enumerate(names)}
