"""The candidate interface: predictions of a trained model, in batches, checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict

import numpy as np

from localma._types import Array
from localma.candidates.batches import (
    BatchSize,
    checked_batch_size,
    joined,
    listed_rows,
    rows_within,
    working_bytes,
)
from localma.candidates.outputs import (
    Classes,
    Labels,
    Output,
    OutputNames,
    Rows,
    Table,
    Task,
    as_labels,
    as_prediction,
    check_not_reordered,
)
from localma.errors import CandidateError, InvalidInputError, LocalMAError
from localma.progress import bar
from localma.tables.frames import (
    ColumnKey,
    checked_columns,
    n_rows,
    pick_columns,
    take_rows,
    unmasked,
)

if TYPE_CHECKING:
    from localma.candidates.recipes import Recipe

TableFunction = Callable[[Any], Any]
"""A user's function of X; only the user knows which kind of X it takes and returns."""
Inputs = Sequence[ColumnKey] | TableFunction | None


class RowError(InvalidInputError):
    """A row of the inputs cannot be read, for example a truncated image or an empty text.

    `row` is the index within the rows that `_answer` received. The error that users see has the
    index of the row in X.
    """

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row


class _Call(NamedTuple):  # quicker to make than a dataclass, and each call makes one
    """What all batches of a call have in common, as in `Candidate.predict`."""

    task: Task
    name: str
    outputs: OutputNames
    allow_missing: bool


class Candidate(ABC):
    """A trained model ``f(x)``. It is never cloned and never refitted.

    Subclasses are final and implement `_answer`. A kind that can be saved has a `_recipe_type` and
    an entry in `KINDS`.

    Parameters
    ----------
    inputs : list of str or int, or callable, optional
        Columns, by name or position, or a function of X. By default the model gets X unchanged.
    classes : array-like of shape (K,), optional
        Labels of the columns of its probabilities.
    cost : float, default=1.0
        What a row costs, such as the price of a call. Only budgets use it: `budget=` in `predict`
        and `answer`, and `frontier`. It does not change the weights of a fit.
    batch_size : int, str or None, default=None
        Number of rows per call. None predicts all rows in one call. "auto" limits a call to 256 MiB
        of memory; an amount such as "1 GiB" sets another limit.

    Examples
    --------
    >>> from localma import as_candidate
    >>> candidate = as_candidate(lambda X: 2 * X[:, 0])
    >>> isinstance(candidate, Candidate), candidate.label
    (True, 'function')
    """

    kind: ClassVar[str]
    _recipe_type: ClassVar[type[Recipe] | None] = None
    """The recipe of this kind; None if it exists only in memory."""
    runs_here: ClassVar[bool] = False
    """Whether it runs in this process on rows of a table, so that extra predictions are free."""

    def __init__(
        self,
        *,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = None,
    ) -> None:
        self.inputs = _checked_inputs(inputs)
        self.classes: Labels | None = None if classes is None else as_labels(classes)
        if not isinstance(cost, int | float | np.number) or not isfinite(cost) or cost < 0:
            raise InvalidInputError(
                f"cost must be a finite number, zero or more; received {cost!r}."
            )
        self.cost = float(cost)
        self.batch_size = checked_batch_size(batch_size)

    @abstractmethod
    def _answer(self, X: Table, task: Task) -> Output:
        """Return the model's output for these inputs, unchecked."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The default name."""

    @abstractmethod
    def _model_identity(self) -> Hashable:
        """Equal for two candidates that hold the same model."""

    def _reading(self) -> Hashable:
        """Options that turn the model's output into predictions.

        A cache key that identifies the model does not cover them.
        """
        return ()

    def _can_do(self, task: Task) -> bool:
        """Whether it states classes, if the task needs them."""
        return task == "regression" or self.classes is not None

    def check_task(self, task: Task, name: str) -> None:
        """Raise an error if this candidate cannot do the task. Needs no data.

        Parameters
        ----------
        task : {"regression", "classification"}
            The task.
        name : str
            The name of the candidate in the error.
        """
        if task == "classification" and self.classes is None:
            raise InvalidInputError(f"Candidate {name!r} {self._missing_classes()}")
        if task == "regression" and self.classes is not None:
            raise InvalidInputError(
                f"Candidate {name!r} states classes {self.classes.tolist()!r}, which a regression "
                "does not have: leave out classes=, or use LocalMAClassifier."
            )

    def _missing_classes(self) -> str:
        """Say what to do if a classification needs classes; the text follows the name."""
        return (
            f"is a {type(self).__name__}, which must state the classes of its columns for a "
            "classification, in their order: classes=['no', 'yes']."
        )

    def recipe(self) -> Recipe | None:
        """Describe how to rebuild it.

        Returns
        -------
        Recipe or None
            None if it exists only in memory.
        """
        if self._recipe_type is None:
            return None
        return self._recipe_type.of(self)

    @property
    def source(self) -> str | None:
        """File or address of the model, for error messages; None if it has none."""
        return None

    @property
    def runs_beside(self) -> bool:
        """Whether it waits for a server or leaves Python, so that several run at once."""
        return False

    def _row_bytes(self, X: Table) -> int:
        """Memory per row during a call. X is the first row, as the model receives it."""
        return working_bytes(X)

    def uncached(self) -> Candidate:
        """Return the candidate without its cache.

        Returns
        -------
        Candidate
            The candidate itself, if it has no cache.
        """
        return self

    def expand(self, name: str, X: Table) -> list[tuple[str, Candidate]]:
        """Return the candidates that it stands for.

        Parameters
        ----------
        name : str
            The name of the candidate.
        X : array-like or data frame of n rows
            The table in which a glob is looked up.

        Returns
        -------
        list of (str, Candidate)
            Itself under its name, or one candidate for each column of X that a glob matches.
        """
        return [(name, self)]

    def prediction_columns(self) -> Sequence[ColumnKey]:
        """Return the columns of X that contain its predictions.

        Returns
        -------
        sequence of str or int
            Names or positions; empty if the candidate computes its predictions.
        """
        return ()

    def picks_own_columns(self, X: Table) -> bool:
        """Return whether it chooses its columns itself.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        bool
            If False, the candidate gets X without prediction columns.
        """
        return self.inputs is not None

    def predict(
        self,
        X: Table,
        task: Task,
        *,
        name: str | None = None,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
        allow_missing: bool = False,
    ) -> Array:
        """Predict each row of X, and check the predictions.

        Parameters
        ----------
        X : array-like or data frame of n rows
            Rows of any kind that the model takes.
        task : {"regression", "classification"}
            The task.
        name : str, optional
            Name of the candidate in error messages. By default its label.
        rows : array-like of shape (n,), optional
            Row numbers for error messages, if X holds only some of the user's rows. By default they
            are counted from zero.
        outputs : OutputNames, optional
            The order of several outputs in regression. The columns of a data frame that the model
            returns are put in this order. By default the first data frame sets the order.
        allow_missing : bool
            Whether predictions may be missing. They are then NaN instead of an error.

        Returns
        -------
        Array
            Regression (n,) or (n, K); classification (n, K), columns in the order of `classes`.
        """
        name = name or self.label
        if self.batch_size is None and self._can_do(task) and n_rows(X):
            # Without a generator, which would take longer than many a model.
            call = _Call(task, name, outputs or OutputNames(), allow_missing)
            return self._predict_batch(unmasked(X), call, rows)
        batches = self.in_batches(
            X, task, name=name, rows=rows, outputs=outputs, allow_missing=allow_missing
        )
        return joined(list(batches), name)

    def in_batches(
        self,
        X: Table,
        task: Task,
        *,
        name: str,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
        allow_missing: bool = False,
    ) -> Iterator[Array]:
        """Predict batch after batch of rows.

        Parameters
        ----------
        X : array-like or data frame of n rows
            Rows of any kind that the model takes.
        task : {"regression", "classification"}
            The task.
        name : str
            Name of the candidate in error messages.
        rows : array-like of shape (n,), optional
            Row numbers for error messages.
        outputs : OutputNames, optional
            The order of several outputs, as in `predict`.
        allow_missing : bool
            Whether predictions may be missing, as in `predict`.

        Yields
        ------
        Array
            The predictions of one batch, in the form that `predict` returns.
        """
        if not self._can_do(task):
            self.check_task(task, name)
        X = unmasked(X)
        n = n_rows(X)
        if n == 0:
            raise InvalidInputError(f"Candidate {name!r} needs at least one row; X has none.")
        outputs = outputs or OutputNames()
        size = self.batch_size
        if isinstance(size, str):
            size = self._rows_within(size, X, name, rows)
        call = _Call(task, name, outputs, allow_missing)
        if size is None or size >= n:
            yield self._predict_batch(X, call, rows)
            return
        numbers, of = rows, ""
        if numbers is None:
            numbers, of = range(n), f" of {n}"

        def ask(batch: slice) -> Array:
            rows = numbers[batch]
            return self._predict_batch(take_rows(X, batch), call, rows, of)

        batches = [slice(start, start + size) for start in range(0, n, size)]
        with bar(name, n) as advance:
            for predictions in self._in_turn(ask, batches):
                yield predictions
                advance(len(predictions))

    def _in_turn(self, ask: Callable[[slice], Array], parts: list[slice]) -> Iterator[Array]:
        """Predict the batches in order. A kind that waits for a server may overlap them."""
        return map(ask, parts)

    def _predict_batch(self, X: Table, call: _Call, rows: Rows | None, of: str = "") -> Array:
        try:
            output = self._answer(self.select(X), call.task)
        except Exception as error:
            raise self._failure(error, call.name, X, rows, of) from error
        try:
            check_not_reordered(output, X, call.name)
            return as_prediction(
                output,
                name=call.name,
                n=n_rows(X),
                classes=self.classes if call.task == "classification" else None,
                rows=rows,
                outputs=call.outputs,
                allow_missing=call.allow_missing,
            )
        except CandidateError as error:
            if self.source is None:
                raise
            raise CandidateError(
                self._with_source(str(error)), candidate=call.name, rows=error.rows
            ) from error

    def _rows_within(self, amount: str, X: Table, name: str, rows: Rows | None) -> int:
        first_row = take_rows(X, slice(0, 1))
        try:
            return rows_within(amount, self._row_bytes(self.select(first_row)))
        except Exception as error:
            raise self._failure(error, name, first_row, rows) from error

    def _failure(
        self, error: Exception, name: str, X: Table, rows: Rows | None, of: str = ""
    ) -> CandidateError:
        """Return an error with the name of the candidate, the rows, and the model's file."""
        n = n_rows(X)
        numbers = range(n) if rows is None else rows
        if isinstance(error, RowError):
            text = f"Candidate {name!r}, row {numbers[error.row]}: {error}"
        elif isinstance(error, LocalMAError):
            text = f"Candidate {name!r}: {error}"
        else:
            if rows is None:
                of = f" of {n}"
            text = (
                f"Candidate {name!r} raised {type(error).__name__} on {listed_rows(numbers)}{of}: "
                f"{error}. A candidate must predict every row that it receives: fix it, or remove "
                "those rows."
            )
        return CandidateError(self._with_source(text), candidate=name)

    def _with_source(self, text: str) -> str:
        if self.source is None or self.source in text:
            return text
        return f"{text} The model is in {self.source!r}."

    def select(self, X: Table) -> Table:
        """Return the inputs of the model.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        array-like or data frame of n rows
            The columns that the model takes; X itself if `inputs` is None.
        """
        if self.inputs is None:
            return X
        if callable(self.inputs):
            return self.inputs(X)
        return pick_columns(X, self.inputs)

    def __sklearn_clone__(self) -> Candidate:
        # A search over pools clones its grid, which would turn fitted models into unfitted ones.
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"

    def identity(self) -> Hashable:
        """Return a value that is equal for the same model on the same inputs.

        Returns
        -------
        hashable
            Kind, model, inputs and classes.
        """
        inputs: Hashable = id(self.inputs)
        if isinstance(self.inputs, Sequence):
            inputs = tuple(self.inputs)
        classes = self.classes is not None and tuple(self.classes.tolist())
        return self.kind, self._model_identity(), inputs, classes


class CommonOptions(TypedDict, total=False):
    """Options of every candidate."""

    inputs: Inputs
    cost: float
    batch_size: BatchSize


def _checked_inputs(inputs: Inputs | int) -> Inputs:
    if inputs is None or callable(inputs):
        return inputs
    if isinstance(inputs, str | int):
        inputs = [inputs]
    return checked_columns(inputs, "inputs")
