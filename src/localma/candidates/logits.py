"""Networks that return logits, which are turned into probabilities if requested."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from copy import copy
from typing import Self, Unpack

import numpy as np

from localma.candidates.base import Candidate, CommonOptions
from localma.candidates.outputs import (
    Activation,
    Classes,
    Output,
    Table,
    Task,
    checked_temperature,
    class_codes,
    fit_temperature,
    probabilities,
)
from localma.errors import InvalidInputError


class NetworkOptions(CommonOptions, total=False):
    """Options of every network that states its own classes."""

    classes: Classes | None
    activation: Activation | None
    temperature: float


class LogitsCandidate(Candidate):
    """A network that returns logits, which are turned into probabilities if requested.

    Subclasses are final and implement `_outputs`.

    Parameters
    ----------
    activation : {"softmax", "sigmoid"}, optional
        "softmax" for one logit per class, "sigmoid" for one logit, that of the second of two
        classes. By default the network's output is used unchanged.
    temperature : float, default=1.0
        Number that divides the logits. `calibrated` fits it.
    classes : array-like of shape (K,), optional
        Labels of the outputs.
    **options
        The options `inputs`, `cost` and `batch_size` of every candidate.
    """

    def __init__(
        self,
        *,
        activation: Activation | None = None,
        temperature: float = 1.0,
        classes: Classes | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        options.setdefault("batch_size", "auto")
        super().__init__(classes=classes, **options)
        self.activation = activation
        self.temperature = checked_temperature(temperature, activation)

    @property
    def runs_beside(self) -> bool:
        """True: a server or a library outside of Python does the work."""
        return True

    @abstractmethod
    def _outputs(self, X: Table, task: Task) -> Output:
        """Return the network's output for these inputs: (n,), (n, 1) or (n, K)."""

    @abstractmethod
    def _network_identity(self) -> Hashable:
        """Equal for two candidates that hold the same network."""

    def _answer(self, X: Table, task: Task) -> Output:
        outputs = self._outputs(X, task)
        if self.activation is None:
            return outputs
        return probabilities(np.asarray(outputs), self.activation, self.temperature)

    def _model_identity(self) -> Hashable:
        return self._network_identity(), self._reading()

    def _reading(self) -> Hashable:
        return self.activation, self.temperature

    def calibrated(self, X: Table, y: Classes) -> Self:
        """Fit the temperature on labelled rows that the network was not trained on.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The inputs.
        y : array-like of shape (n,)
            Labels, each among `classes`.

        Returns
        -------
        LogitsCandidate
            A copy with the fitted temperature. It shares the network.
        """
        if self.activation is None or self.classes is None:
            raise InvalidInputError(
                "A temperature is fitted to logits of known classes: state activation='softmax' "
                f"(or 'sigmoid') and classes=; received activation={self.activation!r} and "
                f"classes={None if self.classes is None else self.classes.tolist()!r}."
            )
        codes = class_codes(y, self.classes)
        logits = self._copy(activation=None).predict(X, "regression")
        return self._copy(temperature=fit_temperature(logits, codes))

    def _copy(self, **changes: float | None) -> Self:
        """Copy the candidate with other options; both share the network."""
        duplicate = copy(self)
        vars(duplicate).update(changes)
        return duplicate
