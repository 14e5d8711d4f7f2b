"""What a candidate is: a trained model, seen only as a function of its input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from localma.candidates.labels import Labels, as_labels
from localma.candidates.outputs import Array, Task, as_prediction
from localma.errors import CandidateError, InvalidInputError, LocalMAError
from localma.frames import ColumnKey, n_rows, pick_columns, take_rows

Inputs = Sequence[ColumnKey] | Callable[[Any], Any] | None
Recipe = dict[str, Any]


class Candidate(ABC):
    """A trained model ``f(x)``: never cloned, never refitted, called row by row or in batches.

    Subclasses are final and say what `_answer` is.

    Parameters
    ----------
    inputs : columns (names or integer positions) or a function of X; None passes X untouched.
    classes : (K,) labels of the columns of its probabilities, or None.
    cost : what one call costs beside the other candidates.
    batch_size : rows per call; None calls it once.
    """

    kind: ClassVar[str]
    needs_trust: ClassVar[bool] = True

    def __init__(
        self,
        *,
        inputs: Inputs = None,
        classes: Any = None,
        cost: float = 1.0,
        batch_size: int | None = None,
    ) -> None:
        self.inputs = _checked_inputs(inputs)
        self.classes: Labels | None = None if classes is None else as_labels(classes)
        self.cost = _checked_cost(cost)
        self.batch_size = _checked_batch_size(batch_size)

    @abstractmethod
    def _answer(self, X: Any, task: Task) -> Any:
        """What the model says about these inputs, unchecked."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name that it has where nobody gave it one."""

    @abstractmethod
    def _model_identity(self) -> Hashable:
        """Equal for two candidates that hold the very same model."""

    @abstractmethod
    def check_task(self, task: Task, name: str) -> None:
        """Refuse, before any data is seen, a task that this candidate cannot do."""

    def recipe(self) -> Recipe | None:
        """Describe it in JSON so that it can be rebuilt; None if it lives in memory only."""
        return None

    def expand(self, name: str, X: Any) -> list[tuple[str, Candidate]]:
        """The candidates that it stands for, once X is known: itself, unless it is a glob."""
        return [(name, self)]

    def picks_own_columns(self, X: Any) -> bool:
        """Whether it states its own inputs; others do not see the prediction columns of X."""
        return self.inputs is not None

    def predict(self, X: Any, task: Task, *, name: str | None = None) -> Array:
        """Predict each row of X, checked.

        Parameters
        ----------
        X : n rows of any kind.
        task : "regression" or "classification".
        name : what errors call the candidate; its own label if None.

        Returns
        -------
        Array
            Regression (n,) or (n, K); classification (n, K), columns in the order of `classes`.
        """
        name = self.label if name is None else name
        if task == "classification" and self.classes is None:
            self.check_task(task, name)
        n = n_rows(X)
        if n == 0:
            raise InvalidInputError(f"Candidate {name!r} needs a row to predict; X has none.")
        size = self.batch_size
        if size is None or size >= n:
            return self._predict_batch(X, task, name, 0, n, n)
        pieces = [
            self._predict_batch(
                take_rows(X, slice(start, start + size)), task, name, start, min(start + size, n), n
            )
            for start in range(0, n, size)
        ]
        return _joined(pieces, name)

    def _predict_batch(self, X: Any, task: Task, name: str, start: int, stop: int, n: int) -> Array:
        try:
            output = self._answer(self.select(X), task)
        except LocalMAError as error:
            raise CandidateError(f"Candidate {name!r}: {error}", candidate=name) from error
        except Exception as error:
            raise CandidateError(
                f"Candidate {name!r} raised {type(error).__name__} on rows {start} to {stop - 1} "
                f"of {n}: {error}. A candidate must predict every row it is given: correct it, "
                "or leave those rows out.",
                candidate=name,
            ) from error
        classes = self.classes if task == "classification" else None
        return as_prediction(output, name=name, n=stop - start, classes=classes)

    def select(self, X: Any) -> Any:
        """The part of X that the model gets; X itself where no inputs are stated."""
        if self.inputs is None:
            return X
        return self.inputs(X) if callable(self.inputs) else pick_columns(X, self.inputs)

    def __sklearn_clone__(self) -> Candidate:
        # A search over pools clones its grid, which would strip fitted models of their fit.
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"

    def identity(self) -> Hashable:
        """Equal for two candidates that are the same model on the same inputs."""
        inputs = self.inputs
        seen = id(inputs) if callable(inputs) else None if inputs is None else tuple(inputs)
        classes = None if self.classes is None else tuple(self.classes.tolist())
        return self.kind, self._model_identity(), seen, classes


def _joined(pieces: list[Array], name: str) -> Array:
    shapes = {piece.shape[1:] for piece in pieces}
    if len(shapes) > 1:
        raise CandidateError(
            f"Candidate {name!r} returned a different number of outputs from one batch of rows to "
            f"the next: {sorted(shapes)}; return the same columns whatever the rows.",
            candidate=name,
        )
    return np.concatenate(pieces)


def _checked_inputs(inputs: Any) -> Inputs:
    if inputs is None or callable(inputs):
        return inputs
    columns = [inputs] if isinstance(inputs, str | int) else list(inputs)
    for column in columns:
        if isinstance(column, bool | np.bool_) or not isinstance(column, str | int | np.integer):
            raise InvalidInputError(
                "inputs must be a list of columns (names or integer positions) or a function of "
                f"X; received {inputs!r}."
            )
    return [column if isinstance(column, str) else int(column) for column in columns]


def _checked_cost(cost: float) -> float:
    if not isinstance(cost, int | float | np.number) or not isfinite(cost) or cost < 0:
        raise InvalidInputError(f"cost must be a finite number, zero or more; received {cost!r}.")
    return float(cost)


def _checked_batch_size(batch_size: int | None) -> int | None:
    if batch_size is None:
        return None
    whole = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool)
    if not whole or batch_size < 1:
        raise InvalidInputError(
            f"batch_size must be None or a whole number, one or more; received {batch_size!r}."
        )
    return int(batch_size)
