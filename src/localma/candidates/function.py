"""A function of X as a candidate."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from inspect import ismethod
from typing import Any, ClassVar

from localma.candidates.base import (
    COMMON_FIELDS,
    BatchSize,
    Candidate,
    FieldTypes,
    Inputs,
    Recipe,
    common_options,
)
from localma.candidates.outputs import Classes, Table, Task
from localma.errors import InvalidInputError
from localma.imports import import_name, import_object


class FunctionCandidate(Candidate):
    """Any callable ``X -> (n,)`` or ``(n, K)``.

    With `classes` it returns probabilities: (n, K) with columns in the order of `classes`, or,
    for two classes, (n,) with the probability of the second.

    >>> import numpy as np
    >>> double = FunctionCandidate(lambda X: 2 * X[:, 0])
    >>> double.predict(np.array([[1.0], [2.0]]), "regression").tolist()
    [2.0, 4.0]
    """

    kind = "function"
    runs_here = True
    needs_trust = True
    fields: ClassVar[FieldTypes] = {"import": (str,), **COMMON_FIELDS}

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = None,
    ) -> None:
        super().__init__(inputs=inputs, classes=classes, cost=cost, batch_size=batch_size)
        if not callable(function):
            raise InvalidInputError(
                f"FunctionCandidate takes a function; received {type(function).__name__}."
            )
        self.function = function

    def _answer(self, X: Table, task: Task) -> Any:
        return self.function(X)

    @property
    def label(self) -> str:
        """The function's own name."""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return "function" if name == "<lambda>" else str(name)

    def _model_identity(self) -> Hashable:
        if ismethod(self.function):  # a new object each time it is looked up
            return id(self.function.__self__), self.function.__name__
        return id(self.function)

    def check_task(self, task: Task, name: str) -> None:
        """Refuse classification without classes, and regression with them."""
        if task == "classification" and self.classes is None:
            raise InvalidInputError(
                f"Candidate {name!r} is a function, and a function that returns probabilities "
                "must state its classes: as_candidate(function, classes=['no', 'yes'])."
            )
        if task == "regression" and self.classes is not None:
            raise InvalidInputError(
                f"Candidate {name!r} states classes {self.classes.tolist()!r}, which a regression "
                "does not have: leave out classes=, or use LocalMAClassifier."
            )

    def recipe(self) -> Recipe | None:
        """The import name of the function and its options, where everything can be imported."""
        name, common = import_name(self.function), self._common_recipe()
        if name is None or common is None:
            return None
        return {"kind": self.kind, "import": name, **common}

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> FunctionCandidate:
        """Import the function again. Runs the code of its module: trusted recipes only."""
        return cls(import_object(recipe["import"]), **common_options(recipe))
