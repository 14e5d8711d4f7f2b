"""What a candidate is: a trained model, seen only as a function of its input."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import isfinite, prod
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse

from localma.candidates.outputs import (
    Array,
    Classes,
    Labels,
    OutputNames,
    Rows,
    Table,
    Task,
    as_labels,
    as_prediction,
    check_not_reordered,
)
from localma.errors import CandidateError, InvalidInputError, LocalMAError
from localma.imports import import_name, import_object
from localma.progress import bar
from localma.tables.frames import (
    ColumnKey,
    checked_columns,
    n_rows,
    pick_columns,
    take_rows,
    unmasked,
)

Inputs = Sequence[ColumnKey] | Callable[[Any], Any] | None
Recipe = dict[str, Any]
FieldTypes = dict[str, tuple[type, ...]]

COMMON_FIELDS: FieldTypes = {
    "inputs": (list, str, type(None)),
    "classes": (list, type(None)),
    "cost": (int, float),
    "batch_size": (int, str, type(None)),
}
"""Fields that the recipes of most kinds have, with their types in JSON."""

BatchSize = int | str | None

AUTO_MEMORY = 256 * 2**20
"""Bytes that ``batch_size="auto"`` lets a call take beyond the model itself."""
WORKING_COPIES = 48
"""What a network holds of a row at once, in sizes of that row, where nobody has measured it."""
LEAST_ROW_BYTES = 16 * 2**10
"""A narrow table still meets wide layers: no row is taken to need less."""

_UNITS = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class RowError(InvalidInputError):
    """One row of the inputs cannot be read: an image that is cut short, a text that is empty.

    `row` counts from zero within the rows that `_answer` was given; the error that reaches the
    user has the number of the row in X.
    """

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row


class Candidate(ABC):
    """A trained model ``f(x)``: never cloned, never refitted, called row by row or in batches.

    Subclasses are final and say what `_answer` is. A kind that can be saved declares the `fields`
    of its recipe, which of them are `paths`, and a `from_recipe`; `infer.KINDS` says where it is.

    Parameters
    ----------
    inputs : columns (names or integer positions) or a function of X; None passes X untouched.
    classes : (K,) labels of the columns of its probabilities, or None.
    cost : a number to record, such as the price of a call. The summary and the report show it;
        it changes neither weights nor predictions.
    batch_size : rows per call; None calls it once. "auto" lets a call take 256 MiB, and an amount
        of memory such as "1 GiB" that much.
    """

    kind: ClassVar[str]
    needs_trust: ClassVar[bool] = True
    runs_here: ClassVar[bool] = False
    """Whether it runs in this process, on rows of a table: then made-up rows cost nothing."""
    fields: ClassVar[FieldTypes] = {}
    paths: ClassVar[tuple[str, ...]] = ()

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
        self.cost = _checked_cost(cost)
        self.batch_size = checked_batch_size(batch_size)

    @abstractmethod
    def _answer(self, X: Table, task: Task) -> Any:
        """What the model says about these inputs, unchecked."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name that it has where nobody gave it one."""

    @abstractmethod
    def _model_identity(self) -> Hashable:
        """Equal for two candidates that hold the very same model."""

    def _reading(self) -> Hashable:
        """Options that turn what the model says into predictions.

        A key that stands for the model says nothing of them.
        """
        return ()

    @abstractmethod
    def check_task(self, task: Task, name: str) -> None:
        """Refuse, before any data is seen, a task that this candidate cannot do."""

    def recipe(self) -> Recipe | None:
        """Describe it in JSON so that it can be rebuilt; None if it lives in memory only."""
        return None

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> Candidate:
        """Rebuild it from what `recipe` gave, its paths made absolute."""
        raise InvalidInputError(f"A {cls.kind} has no recipe; pass the candidate itself by name.")

    @property
    def source(self) -> str | None:
        """The file or address that the model comes from, for errors; None if it has none."""
        return None

    def _row_bytes(self, X: Table) -> int:
        """Memory that a row takes while the model answers; X holds the first row as it sees it."""
        return working_bytes(X)

    def uncached(self) -> Candidate:
        """The candidate without a cache around it."""
        return self

    def expand(self, name: str, X: Table) -> list[tuple[str, Candidate]]:
        """The candidates that it stands for, once X is known: itself, unless it is a glob."""
        return [(name, self)]

    def picks_own_columns(self, X: Table) -> bool:
        """Whether it states its own inputs; others do not see the prediction columns of X."""
        return self.inputs is not None

    def predict(
        self,
        X: Table,
        task: Task,
        *,
        name: str | None = None,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
    ) -> Array:
        """Predict each row of X, checked.

        Parameters
        ----------
        X : n rows of any kind.
        task : "regression" or "classification".
        name : what errors call the candidate; its own label if None.
        rows : (n,) what errors call the rows, where X is a part of what the user has; counted
            from zero if None.
        outputs : the order of several outputs in regression, by which the columns of a data frame
            that the model returns are arranged; its own first one if None.

        Returns
        -------
        Array
            Regression (n,) or (n, K); classification (n, K), columns in the order of `classes`.
        """
        name = self.label if name is None else name
        pieces = self.in_batches(X, task, name=name, rows=rows, outputs=outputs)
        return joined(list(pieces), name)

    def in_batches(
        self,
        X: Table,
        task: Task,
        *,
        name: str,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
    ) -> Iterator[Array]:
        """Predictions of one batch of rows after the other; parameters as in `predict`."""
        if task == "classification" and self.classes is None:
            self.check_task(task, name)
        X = unmasked(X)
        n = n_rows(X)
        if n == 0:
            raise InvalidInputError(f"Candidate {name!r} needs a row to predict; X has none.")
        outputs = OutputNames() if outputs is None else outputs
        size = self.batch_size
        if isinstance(size, str):
            size = self._rows_within(size, X, name, rows)
        if size is None or size >= n:
            yield self._predict_batch(X, task, name, rows, outputs)
            return
        numbers, of = (range(n), f" of {n}") if rows is None else (rows, "")
        parts = [slice(start, start + size) for start in range(0, n, size)]

        def ask(part: slice) -> Array:
            rows = numbers[part]
            return self._predict_batch(take_rows(X, part), task, name, rows, outputs, of)

        with bar(name, n) as advance:
            for piece in self._in_turn(ask, parts):
                yield piece
                advance(len(piece))

    def _in_turn(self, ask: Callable[[slice], Array], parts: list[slice]) -> Iterator[Array]:
        """Ask about one part of X after the other; a kind that only waits may overlap them."""
        return map(ask, parts)

    def _predict_batch(
        self,
        X: Table,
        task: Task,
        name: str,
        rows: Rows | None,
        outputs: OutputNames,
        of: str = "",
    ) -> Array:
        try:
            output = self._answer(self.select(X), task)
        except Exception as error:
            raise self._failure(error, name, X, rows, of) from error
        classes = self.classes if task == "classification" else None
        try:
            check_not_reordered(output, X, name)
            return as_prediction(
                output, name=name, n=n_rows(X), classes=classes, rows=rows, outputs=outputs
            )
        except CandidateError as error:
            if self.source is None:
                raise
            raise CandidateError(
                _with_source(str(error), self), candidate=name, rows=error.rows
            ) from error

    def _rows_within(self, amount: str, X: Table, name: str, rows: Rows | None) -> int:
        first = take_rows(X, slice(0, 1))
        try:
            return rows_within(amount, self._row_bytes(self.select(first)))
        except Exception as error:
            raise self._failure(error, name, first, rows) from error

    def _failure(
        self, error: Exception, name: str, X: Table, rows: Rows | None, of: str = ""
    ) -> CandidateError:
        """What the user is told: which candidate, which rows, and from which file."""
        if isinstance(error, RowError):
            text = f"Candidate {name!r}, row {error.row if rows is None else rows[error.row]}: "
            text += str(error)
        elif isinstance(error, LocalMAError):
            text = f"Candidate {name!r}: {error}"
        else:
            where = (
                f"rows 0 to {n_rows(X) - 1} of {n_rows(X)}" if rows is None else listed_rows(rows)
            )
            text = (
                f"Candidate {name!r} raised {type(error).__name__} on {where}{of}: {error}. A "
                "candidate must predict every row it is given: correct it, or leave those rows "
                "out."
            )
        return CandidateError(_with_source(text, self), candidate=name)

    def select(self, X: Table) -> Any:
        """The part of X that the model gets; X itself where no inputs are stated."""
        if self.inputs is None:
            return X
        return self.inputs(X) if callable(self.inputs) else pick_columns(X, self.inputs)

    def __sklearn_clone__(self) -> Candidate:
        # A search over pools clones its grid, which would strip fitted models of their fit.
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"

    def _common_recipe(self) -> Recipe | None:
        """The options that all kinds share, in JSON; None if its inputs cannot be imported."""
        inputs = import_name(self.inputs) if callable(self.inputs) else self.inputs
        if inputs is None and self.inputs is not None:
            return None
        return {
            "inputs": inputs,
            "classes": None if self.classes is None else self.classes.tolist(),
            "cost": self.cost,
            "batch_size": self.batch_size,
        }

    def identity(self) -> Hashable:
        """Equal for two candidates that are the same model on the same inputs."""
        inputs = self.inputs
        seen = id(inputs) if callable(inputs) else None if inputs is None else tuple(inputs)
        classes = None if self.classes is None else tuple(self.classes.tolist())
        return self.kind, self._model_identity(), seen, classes


def common_options(recipe: Recipe) -> dict[str, Any]:
    """The options that all kinds share, out of a recipe. May import code: trusted recipes only."""
    inputs = recipe["inputs"]
    return {
        "inputs": import_object(inputs) if isinstance(inputs, str) else inputs,
        "classes": recipe["classes"],
        "cost": recipe["cost"],
        "batch_size": recipe["batch_size"],
    }


def _with_source(text: str, candidate: Candidate) -> str:
    source = candidate.source
    return text if source is None or source in text else f"{text} The model is in {source!r}."


def listed_rows(rows: Rows) -> str:
    """Row numbers in words, the first few where they do not follow one another."""
    first, last, count = rows[0], rows[-1], len(rows)
    if last - first + 1 == count:
        return f"rows {first} to {last}"
    some = ", ".join(str(row) for row in rows[:5])
    return f"rows {some}" if count <= 5 else f"rows {some} and {count - 5} more, the last {last}"


def joined(pieces: list[Array], name: str) -> Array:
    """Predictions of all batches in one array; an error if their outputs differ in number."""
    if len(pieces) == 1:
        return pieces[0]
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
    return checked_columns([inputs] if isinstance(inputs, str | int) else inputs, "inputs")


def _checked_cost(cost: float) -> float:
    if not isinstance(cost, int | float | np.number) or not isfinite(cost) or cost < 0:
        raise InvalidInputError(f"cost must be a finite number, zero or more; received {cost!r}.")
    return float(cost)


# Rows per call: a number, all of them, or what an amount of memory allows.


def checked_batch_size(batch_size: Any) -> BatchSize:
    """Refuse what is neither None, a whole number, "auto" nor an amount of memory.

    >>> checked_batch_size("512 MiB")
    '512 MiB'
    """
    if batch_size is None:
        return None
    if isinstance(batch_size, str):
        memory_bytes(batch_size)
        return batch_size
    whole = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool)
    if not whole or batch_size < 1:
        raise InvalidInputError(
            f"batch_size must be None or a whole number, one or more; received {batch_size!r}. "
            "Or 'auto', or an amount of memory such as '256 MiB', which sets the number of rows."
        )
    return int(batch_size)


def memory_bytes(amount: str) -> int:
    """An amount of memory in bytes.

    >>> memory_bytes("1.5 KiB"), memory_bytes("auto") == AUTO_MEMORY
    (1536, True)
    """
    if amount == "auto":
        return AUTO_MEMORY
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", amount)
    unit = _UNITS.get(match[2].upper()) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if size < 1:
        raise InvalidInputError(
            "A batch_size in words is 'auto' or an amount of memory such as '256 MiB' or '2 GB'; "
            f"received {amount!r}."
        )
    return size


def rows_within(amount: str, row_bytes: int) -> int:
    """Rows to a call so that it stays within an amount of memory, at least one.

    >>> rows_within("1 MiB", 16 * 1024), rows_within("1 KiB", 16 * 1024)
    (64, 1)
    """
    return max(1, memory_bytes(amount) // max(1, row_bytes))


def working_bytes(*inputs: Any) -> int:
    """Guess from its inputs what a row takes while a network answers.

    The guess depends on them alone, so that the same rows always make the same batches.

    >>> working_bytes(np.zeros((5, 3, 32, 32), dtype=np.float32)) == 48 * 3 * 32 * 32 * 4
    True
    """
    return max(LEAST_ROW_BYTES, WORKING_COPIES * sum(input_row_bytes(X) for X in inputs))


def input_row_bytes(X: Table) -> int:
    """Bytes of the first row of X, whatever X is.

    >>> input_row_bytes(np.zeros((5, 3))), input_row_bytes(["four", "a longer text"])
    (24, 4)
    """
    first = take_rows(X, slice(0, 1))
    shape = getattr(first, "shape", None)
    if issparse(first) or (shape and not isinstance(getattr(first, "nbytes", None), int)):
        return 8 * prod(first.shape)
    if isinstance(first, list | tuple):
        first = first[0]
    if isinstance(first, str | bytes):
        return len(first)
    return int(getattr(first, "nbytes", 8))
