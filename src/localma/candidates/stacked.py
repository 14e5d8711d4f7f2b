"""A model that takes the predictions of other candidates as inputs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from localma._types import Array
from localma.candidates.base import Candidate, Inputs
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.outputs import Labels, Names, OutputNames, Rows, Table, Task
from localma.errors import InvalidInputError
from localma.tables.frames import append_columns


@dataclass(frozen=True)
class PredictionColumns:
    """Columns that hold the predictions of some candidates.

    Parameters
    ----------
    candidates : tuple of M str
        Names of the candidates.
    outputs : tuple of K str
        Names of the outputs or classes; empty if each candidate predicts one number.

    Examples
    --------
    >>> PredictionColumns(("a", "b"), ("no", "yes")).names
    ['a: no', 'a: yes', 'b: no', 'b: yes']
    """

    candidates: Names
    outputs: Names = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns, candidate by candidate."""
        if not self.outputs:
            return list(self.candidates)
        return [f"{name}: {output}" for name in self.candidates for output in self.outputs]

    def append(self, X: Table, P: Array) -> Table:
        """Add predictions to a table, on the right.

        Parameters
        ----------
        X : array, sparse matrix or data frame of n rows
            The inputs.
        P : array of shape (n, M) or (n, M, K)
            The predictions.

        Returns
        -------
        table of n rows
            An object of the same kind.
        """
        return append_columns(X, P.reshape(len(P), -1), self.names)


class Stacked(Candidate):
    """A fitted estimator whose inputs are columns of X and predictions of other candidates.

    `CrossFitted` with ``predictions=True`` becomes such a candidate when it is fitted. Only a pool
    can predict with it, since it needs the other candidates.

    Parameters
    ----------
    model : EstimatorCandidate
        The fitted estimator.
    columns : PredictionColumns
        The candidates whose predictions it takes.
    inputs : list of str or int, or callable, optional
        Its columns of X, or a function of X. By default all but the prediction columns.
    cost : float, default=1.0
        A number to record, such as the price of a call.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> X, P = np.zeros((2, 1)), np.array([[1.0], [2.0]])
    >>> line = EstimatorCandidate(LinearRegression().fit(np.hstack([X, P]), [2.0, 4.0]))
    >>> double = Stacked(line, PredictionColumns(("north",)))
    >>> double.predict_with(X, P, "regression", name="double").round(6).tolist()
    [2.0, 4.0]
    """

    kind = "stacked"

    def __init__(
        self,
        model: EstimatorCandidate,
        columns: PredictionColumns,
        *,
        inputs: Inputs = None,
        cost: float = 1.0,
    ) -> None:
        super().__init__(inputs=inputs, cost=cost)
        self.model, self.columns = model, columns
        self.classes = model.classes

    def predict_with(
        self,
        X: Table,
        P: Array,
        task: Task,
        *,
        name: str,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
    ) -> Array:
        """Predict each row of X from its inputs and from predictions.

        Parameters
        ----------
        X : array or data frame of n rows
            The inputs.
        P : array of shape (n, M) or (n, M, K)
            Predictions of the candidates in `columns`, for the same rows.
        task : {"regression", "classification"}
            The task.
        name : str
            Name of the candidate in error messages.
        rows : array-like of shape (n,), optional
            Row numbers for error messages.
        outputs : OutputNames, optional
            The order of several outputs, as in `Candidate.predict`.

        Returns
        -------
        Array
            Regression (n,) or (n, K); classification (n, K), columns in the order of `classes`.
        """
        try:
            joined = self.columns.append(self.select(X), P)
        except Exception as error:
            raise self._failure(error, name, X, rows) from error
        return self.model.predict(joined, task, name=name, rows=rows, outputs=outputs)

    def _answer(self, X: Table, task: Task) -> NoReturn:
        raise InvalidInputError(
            "it takes the predictions of other candidates, so it predicts only in their pool."
        )

    @property
    def label(self) -> str:
        """The class of the estimator in lower case."""
        return self.model.label

    def _model_identity(self) -> Hashable:
        return self.model.identity(), self.columns


def prediction_columns_of(
    names: Sequence[str], P: Array, classes: Labels | None, outputs: OutputNames
) -> PredictionColumns:
    """Name the columns of predictions (n, M) or (n, M, K) by candidate, and class or output.

    >>> import numpy as np
    >>> prediction_columns_of(["a"], np.ones((1, 1, 2)), None, OutputNames()).names
    ['a: 0', 'a: 1']
    """
    if P.ndim == 2:
        return PredictionColumns(tuple(names))
    labels: Sequence[object] = range(P.shape[2])
    if classes is not None:
        labels = classes.tolist()
    elif outputs.names is not None:
        labels = outputs.names
    return PredictionColumns(tuple(names), tuple(map(str, labels)))
