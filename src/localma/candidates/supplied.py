"""A candidate of which only predictions are passed."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NoReturn

from localma.candidates.base import Candidate
from localma.candidates.outputs import Classes, Table, Task
from localma.errors import InvalidInputError


class Supplied(Candidate):
    """A candidate without a model. Its predictions are passed to each call.

    It stands in a pool for the predictions that other candidates take.

    Parameters
    ----------
    name : str
        The name of the candidate.
    classes : array-like of shape (K,), optional
        Labels of its probabilities.

    Examples
    --------
    >>> Supplied("north").label
    'north'
    """

    kind = "predictions"

    def __init__(self, name: str, classes: Classes | None = None) -> None:
        super().__init__(classes=classes)
        self.name = name

    def _answer(self, X: Table, task: Task) -> NoReturn:
        raise InvalidInputError("it has no model to run: pass predictions=.")

    @property
    def label(self) -> str:
        """The name."""
        return self.name

    def _model_identity(self) -> Hashable:
        return self.name
