"""The own models of a fit: which there are, their cross-fitted predictions, saving."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localma._types import AnyArray, Array, RowMask, Rows
from localma.candidates import CrossFitted, Pool
from localma.candidates.base import Candidate, TableFunction
from localma.candidates.crossfitted import Others
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.outputs import Labels, OutputNames, Table, Task, align
from localma.candidates.pool import leave_out
from localma.candidates.stacked import Stacked, prediction_columns_of
from localma.errors import CandidateError, LeftOutWarning
from localma.folds import Fold
from localma.gates.base import Arrays
from localma.losses import Loss
from localma.own.models import Direct, OwnModel, Recalibrated, Residual
from localma.tables.frames import n_rows

OWN_MODELS: dict[str, type[Recalibrated] | type[Residual] | type[Direct]] = {
    model.kind: model for model in (Recalibrated, Residual, Direct)
}
"""Own models by kind, in the order of the candidates."""
PREFIX = "own: "
"""Names of own candidates begin with this."""


LEAST_ROWS = 25
"""With fewer labelled rows, own models are not fitted."""


def no_columns(X: Table) -> Array:
    """Return no inputs: (n, 0)."""
    return np.empty((n_rows(X), 0))


@dataclass(frozen=True)
class Wanted:
    """The own models that a fit adds.

    Parameters
    ----------
    kinds : sequence of str
        Keys of `OWN_MODELS`.
    loss : Loss
        The loss to minimise.
    task : {"regression", "classification"}
        The task.
    inputs : function of X
        The inputs of the gate: (n, p).
    n_inputs : int
        The number p of inputs; 0 if they are not a table of numbers.
    """

    kinds: Sequence[str]
    loss: Loss
    task: Task
    inputs: TableFunction
    n_inputs: int

    def make(self, n_candidates: int, labels: Labels | None) -> dict[str, CrossFitted]:
        """Make the candidates to fit, by name.

        n_candidates : number M of candidates whose predictions they take; labels : (K,) classes.
        """
        inputs = self.inputs if self.n_inputs else no_columns
        return {
            PREFIX + kind: CrossFitted(
                OWN_MODELS[kind](self.loss, n_candidates, labels), inputs=inputs, predictions=True
            )
            for kind in self.kinds
            if self.n_inputs or kind != Direct.kind
            if n_candidates or kind == Direct.kind
        }


@dataclass(frozen=True)
class Added:
    """A pool with own candidates.

    Parameters
    ----------
    pool : Pool
        All candidates.
    P : (n, M) or (n, M, K) array
        Predictions of all candidates for the sample, out of fold for own ones.
    covered : (n,) array of bool
        The rows that some fold holds out.
    """

    pool: Pool
    P: Array
    covered: RowMask


def add_own(
    pool: Pool,
    wanted: Wanted,
    X: Table,
    y: AnyArray,
    P: Array,
    *,
    fixed: Sequence[str],
    folds: Sequence[Fold],
    sample_weight: Array | None,
    groups: Rows | None,
    outputs: OutputNames,
) -> Added:
    """Fit own candidates out of fold and on all rows, and add them to the pool.

    One that fails is left out with a warning.

    Parameters
    ----------
    pool : the candidates
    wanted : the own models
    X, y : the sample
    P : (n, M) or (n, M, K) predictions of the pool
    fixed : names of the candidates whose predictions the own models take
    folds : pairs of training and test rows
    sample_weight, groups : (n,) each, if there are any
    outputs : the order of several outputs
    """
    n_rows_used = len(P) if sample_weight is None else np.count_nonzero(sample_weight)
    if n_rows_used < LEAST_ROWS:
        warnings.warn(
            f"Own models need at least {LEAST_ROWS} labelled rows; received {n_rows_used}. The "
            "model is fitted without them.",
            LeftOutWarning,
            stacklevel=2,
        )
        return Added(pool, P, np.ones(len(P), dtype=bool))
    columns = [pool.names.index(name) for name in fixed]
    others = Others(
        prediction_columns_of(fixed, P[:, columns], pool.classes, outputs), P[:, columns]
    )
    candidates: dict[str, Candidate] = dict(zip(pool.names, pool.candidates, strict=True))
    predictions, covered = [P], np.ones(len(P), dtype=bool)
    for name, unfitted in wanted.make(len(fixed), pool.classes).items():
        candidates[name] = unfitted
        try:
            fitted, values, covered = unfitted.fit_out_of_fold(
                X,
                y,
                task=wanted.task,
                cv=folds,
                sample_weight=sample_weight,
                groups=groups,
                name=name,
                outputs=outputs,
                others=others,
            )
        except CandidateError as error:
            leave_out(candidates, name, error)
            continue
        candidates[name] = fitted
        if pool.classes is not None and fitted.classes is not None:
            values = align(values, fitted.classes, pool.classes)
        predictions.append(values.reshape(len(P), 1, *P.shape[2:]))
    joined = np.concatenate(predictions, axis=1)
    return Added(Pool(candidates, task=wanted.task), joined, covered)


def restore_own(
    kind: str,
    arrays: Arrays,
    fixed: Sequence[str],
    *,
    loss: Loss,
    inputs: TableFunction,
    classes: Labels | None,
    n_outputs: int,
    outputs: OutputNames,
) -> Stacked:
    """Restore an own candidate from the arrays of a file.

    Parameters
    ----------
    kind : a key of `OWN_MODELS`
    arrays : the arrays of its model
    fixed : names of the M candidates whose predictions it takes
    loss : the loss
    inputs : the inputs of the gate, a function of X
    classes : (K,) the classes, in classification
    n_outputs : the number K of outputs or classes
    outputs : the names of several outputs
    """
    model = OWN_MODELS[kind](loss, len(fixed), classes).restore(arrays, n_outputs)
    shape = (1, len(fixed)) if classes is None and n_outputs == 1 else (1, len(fixed), n_outputs)
    columns = prediction_columns_of(fixed, np.empty(shape), classes, outputs)
    if not model.n_inputs_:
        inputs = no_columns
    return Stacked(EstimatorCandidate(model), columns, inputs=inputs)


@dataclass(frozen=True)
class Saved:
    """An own candidate as a file describes it.

    Parameters
    ----------
    name, kind : str
        Its name, and a key of `OWN_MODELS`.
    candidates : list of str
        The candidates whose predictions it takes.
    arrays : dict of str to array
        The arrays of its model.
    """

    name: str
    kind: str
    candidates: list[str]
    arrays: Arrays


def saved_own(pool: Pool | None) -> list[Saved]:
    """Describe the own candidates of a pool."""
    if pool is None:
        return []
    own = []
    for name, candidate in zip(pool.names, pool.candidates, strict=True):
        model = candidate.model.model if isinstance(candidate, Stacked) else None
        if isinstance(candidate, Stacked) and isinstance(model, OwnModel):
            names = list(candidate.columns.candidates)
            own.append(Saved(name, model.kind, names, model.arrays()))
    return own
