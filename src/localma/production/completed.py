"""Predictions of which some are missing, completed as in a fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localma._types import Array, RowMask, Rows
from localma.candidates.given import Predictions
from localma.candidates.outputs import Table
from localma.equations import local_average
from localma.estimators.predictions import all_predictions
from localma.formatting import count
from localma.gates.base import Evidence
from localma.gates.incomplete import replaced
from localma.gates.labelled import Inputs
from localma.production.answer import Failure, Predicted, Weights, no_answer, run_all
from localma.production.options import Options
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from localma.production.answer import Model


@dataclass(frozen=True, eq=False)
class Completed:
    """Complete predictions of n rows, and the weights with which the model answers.

    Parameters
    ----------
    P : array of shape (n, M) or (n, M, K)
        Predictions. A missing one is the average of the others in the row, under the global
        weights, as in a fit. A row without any has the mean of the other rows.
    known : bool array of shape (n, M)
        Which predictions were not missing.
    weights : array of shape (n, M)
        Weights of the known predictions, as in `answer`; a row without any is zero.
    failures : list of Failure
        Why predictions are missing, if candidates were run.
    """

    P: Array
    known: RowMask
    weights: Array
    failures: list[Failure]

    @property
    def has_any(self) -> RowMask:
        """Whether a row has a prediction: (n,)."""
        return np.asarray(self.known.any(axis=1))

    @property
    def averages(self) -> Array:
        """The predictions of the model: (n,) or (n, K), NaN in a row without any."""
        averages = local_average(self.weights, self.P)
        averages[~self.has_any] = np.nan
        return averages

    def take(self, rows: Rows) -> Completed:
        """Select some rows.

        Parameters
        ----------
        rows : array of int
            Positions of the rows.

        Returns
        -------
        Completed
            The predictions of these rows, without the failures.
        """
        return Completed(self.P[rows], self.known[rows], self.weights[rows], [])

    def interval(self, evidence: Evidence, inputs: Inputs, level: float) -> tuple[Array, Array]:
        """Interval of each row, as for held-out rows, which were completed in the same way.

        Parameters
        ----------
        evidence : Evidence
            The gate, with the errors of held-out rows.
        inputs : array of shape (n, q), or anything else that the gate takes
            The inputs of the gate.
        level : float
            Share of the targets to cover.

        Returns
        -------
        low, high : arrays of shape (n,) or (n, K)
            The ends. The prediction lies between them. NaN in a row without any prediction.
        """
        low, high = evidence.predict_interval(inputs, self.P, level)
        averages = self.averages
        return np.minimum(low, averages), np.maximum(high, averages)

    def classes(self, evidence: Evidence, inputs: Inputs, level: float) -> RowMask:
        """Set of classes of each row, as for held-out rows.

        Parameters
        ----------
        evidence : Evidence
            The gate, with the errors of held-out rows.
        inputs : array of shape (n, q), or anything else that the gate takes
            The inputs of the gate.
        level : float
            Share of the rows to cover.

        Returns
        -------
        bool array of shape (n, K)
            Whether each class is in the set: the most probable one, and all in a row without any
            prediction.
        """
        chosen = np.array(evidence.predict_set(inputs, self.P, level))
        rows = np.flatnonzero(self.has_any)
        chosen[rows, self.averages[rows].argmax(axis=1)] = True
        chosen[~self.has_any] = True
        return chosen

    def describe(self, names: tuple[str, ...]) -> str | None:
        """Say how many rows are incomplete, and what stands in for a missing prediction.

        Parameters
        ----------
        names : tuple of str
            Names of the M candidates.

        Returns
        -------
        str or None
            The sentences; None if all rows are complete.
        """
        missing = ~self.known
        if not missing.any():
            return None
        n, n_empty = len(missing), int((~self.has_any).sum())
        by_candidate = ", ".join(
            f"{name} in {number:,}"
            for name, number in zip(names, missing.sum(axis=0).tolist(), strict=True)
            if number
        )
        sentences = [
            f"Predictions are missing in {missing.any(axis=1).sum():,} of {count(n, 'row')} "
            f"({by_candidate}). There the weights of the others are renormalised, and the average "
            "of the others counts as the prediction of a candidate."
        ]
        if n_empty:
            sentences.append(f"{count(n_empty, 'row')} without any prediction did not count.")
        errors = [failure for failure in self.failures if failure.reason != "missing"]
        return " ".join([*sentences, *(f"{failure}." for failure in errors)])


def completed(
    model: Model, X: Table, inputs: Inputs, predictions: Predictions | None, *, strict: bool = False
) -> Completed:
    """Complete the predictions of the rows X.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X : array or frame of shape (n, p)
        The inputs.
    inputs : array of shape (n, q), or anything else that the gate takes
        The inputs of its gate.
    predictions : array, dict or frame, or None
        Predictions of the candidates; None to run all of them.
    strict : bool
        Whether a row without any prediction is an error.

    Returns
    -------
    Completed
        The complete predictions.
    """
    options = Options()
    if predictions is None:
        state = run_all(model, X, options)
    else:
        state = Predicted.empty(model, n_rows(X))
        state.take(all_predictions(model, X, predictions, allow_missing=True))
    known = ~state.failed
    empty = np.flatnonzero(~known.any(axis=1))
    if len(empty) and (strict or len(empty) == len(known)):
        raise no_answer(empty, len(known), state.failures)
    weights = Weights(model, inputs, options).given(state.failed)
    P = replaced(state.P, known, model.global_weights_) if state.failed.any() else state.P
    return Completed(P, known, weights, state.failures)
