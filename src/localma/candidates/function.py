"""A function of X as a candidate."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from inspect import ismethod

from localma.candidates.base import Candidate, Inputs, TableFunction
from localma.candidates.batches import BatchSize
from localma.candidates.outputs import Classes, Output, Table, Task
from localma.candidates.recipes import CommonRecipe, ImportName
from localma.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class FunctionRecipe(CommonRecipe):
    """The import name of the function, and the options."""

    kind = "function"
    function: ImportName = field(metadata={"key": "import"})


class FunctionCandidate(Candidate):
    """Any callable ``X -> (n,)`` or ``(n, K)``.

    With `classes` it returns probabilities: (n, K) with columns in the order of `classes`, or,
    for two classes, (n,) with the probability of the second.

    Parameters
    ----------
    function : callable
        The function of X.
    inputs : list of str or int, or callable, optional
        Columns, by name or position, or a function of X. By default the function gets X unchanged.
    classes : array-like of shape (K,), optional
        Labels of the columns of its probabilities.
    cost : float, default=1.0
        What a row costs, such as the price of a call. Only budgets use it: `budget=` in `predict`
        and `answer`, and `frontier`. It does not change the weights of a fit.
    batch_size : int, str or None, default=None
        Number of rows per call, "auto" or an amount of memory such as "1 GiB". None predicts all
        rows in one call.

    Examples
    --------
    >>> import numpy as np
    >>> double = FunctionCandidate(lambda X: 2 * X[:, 0])
    >>> double.predict(np.array([[1.0], [2.0]]), "regression").tolist()
    [2.0, 4.0]
    """

    kind = "function"
    _recipe_type = FunctionRecipe
    runs_here = True

    def __init__(
        self,
        function: TableFunction,
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

    def _answer(self, X: Table, task: Task) -> Output:
        return self.function(X)

    @property
    def label(self) -> str:
        """The name of the function."""
        name = str(getattr(self.function, "__name__", type(self.function).__name__))
        return name.replace("<lambda>", "function")

    def _model_identity(self) -> Hashable:
        if ismethod(self.function):  # each access of a method makes a new object
            return id(self.function.__self__), self.function.__name__
        return id(self.function)

    def _missing_classes(self) -> str:
        return (
            "is a function. A function that returns probabilities must state its classes: "
            "as_candidate(function, classes=['no', 'yes'])."
        )
