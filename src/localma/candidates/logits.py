"""Logits turned into probabilities: an activation, and a temperature that can be fitted.

``p = softmax(z / T)`` for one logit per class; ``p = 1 / (1 + exp(-z / T))`` for the second of two.
"""

from __future__ import annotations

from abc import abstractmethod
from math import isfinite
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax

from localma.candidates.base import (
    COMMON_FIELDS,
    BatchSize,
    Candidate,
    FieldTypes,
    Inputs,
    Recipe,
    common_options,
)
from localma.candidates.outputs import Array, Classes, Table, Task, listed
from localma.errors import InvalidInputError
from localma.tables.frames import without_mask

Activation = Literal["softmax", "sigmoid"]

LOGITS_FIELDS: FieldTypes = {
    **COMMON_FIELDS,
    "activation": (str, type(None)),
    "temperature": (int, float),
}
COLDEST, HOTTEST = 0.01, 100.0
"""Between these a temperature is looked for."""


def logits_options(recipe: Recipe) -> dict[str, Any]:
    """The options of every `LogitsCandidate`, out of a recipe. May import code, as inputs do."""
    names = ("activation", "temperature")
    return common_options(recipe) | {name: recipe[name] for name in names}


class LogitsCandidate(Candidate):
    """A network: what it returns are logits, to be turned into probabilities where asked.

    Subclasses are final and say what `_outputs` is.

    Parameters
    ----------
    activation : "softmax" for one logit per class, "sigmoid" for one logit, that of the second of
        two classes; None takes what the network returns as it is.
    temperature : what logits are divided by before; fitted by `calibrated`.
    inputs, classes, cost, batch_size : as for every candidate.
    """

    fields: ClassVar[FieldTypes] = LOGITS_FIELDS

    def __init__(
        self,
        *,
        activation: Activation | None = None,
        temperature: float = 1.0,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = "auto",
    ) -> None:
        super().__init__(inputs=inputs, classes=classes, cost=cost, batch_size=batch_size)
        self.activation, self.temperature = _checked_activation(activation, temperature)

    @abstractmethod
    def _outputs(self, X: Table, task: Task) -> Any:
        """What the network returns for these inputs: (n,), (n, 1) or (n, K)."""

    @abstractmethod
    def _network_identity(self) -> object:
        """Equal for two candidates that hold the very same network."""

    def _answer(self, X: Table, task: Task) -> Any:
        outputs = self._outputs(X, task)
        if self.activation is None:
            return outputs
        return probabilities(np.asarray(outputs), self.activation, self.temperature)

    def _model_identity(self) -> tuple[object, ...]:
        return self._network_identity(), *self._reading()

    def _reading(self) -> tuple[object, ...]:
        return self.activation, self.temperature

    def check_task(self, task: Task, name: str) -> None:
        """Refuse classification without classes, and regression with them."""
        if task == "classification" and self.classes is None:
            raise InvalidInputError(
                f"Candidate {name!r} is a {type(self).__name__}, which must state the classes of "
                "its columns for a classification, in their order: classes=['no', 'yes']."
            )
        if task == "regression" and self.classes is not None:
            raise InvalidInputError(
                f"Candidate {name!r} states classes {self.classes.tolist()!r}, which a regression "
                "does not have: leave out classes=, or use LocalMAClassifier."
            )

    def calibrated(self, X: Table, y: Any) -> Self:
        """Fit the temperature on labelled rows that the network was not trained on.

        Parameters
        ----------
        X : n rows; y : (n,) labels, each among `classes`.

        Returns
        -------
        A new candidate, the same but for its temperature.
        """
        if self.activation is None or self.classes is None:
            raise InvalidInputError(
                "A temperature is fitted to logits of known classes: state activation='softmax' "
                f"(or 'sigmoid') and classes=; received activation={self.activation!r} and "
                f"classes={None if self.classes is None else self.classes.tolist()!r}."
            )
        codes = _codes(y, self.classes.tolist())
        logits = self._twin(activation=None).predict(X, "regression")
        return self._twin(temperature=fit_temperature(logits, codes))

    def _twin(self, **changes: Any) -> Self:
        """Make the same candidate with other options; both share the network."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__ | changes)
        return twin

    def _common_recipe(self) -> Recipe | None:
        common = super()._common_recipe()
        if common is None:
            return None
        return common | {"activation": self.activation, "temperature": self.temperature}


def probabilities(logits: Array, activation: Activation, temperature: float = 1.0) -> Array:
    """Turn logits into probabilities.

    Parameters
    ----------
    logits : (n, K) for "softmax"; (n,) or (n, 1) for "sigmoid".
    activation : "softmax" or "sigmoid".
    temperature : T > 0; above one flattens, below one sharpens.

    Returns
    -------
    Array
        float64; (n, K), ``softmax(z / T)``; or (n,), the probability of the second class.

    Examples
    --------
    >>> probabilities(np.log([[1.0, 3.0]]), "softmax").round(6).tolist()
    [[0.25, 0.75]]
    >>> probabilities(np.array([0.0]), "sigmoid").tolist()
    [0.5]
    """
    z = np.asarray(logits, dtype=np.float64) / temperature
    columns = 1 if z.ndim == 1 else z.shape[-1]
    if z.ndim not in (1, 2) or (columns == 1) != (activation == "sigmoid"):
        raise InvalidInputError(
            "activation='softmax' takes one logit per class, (n, K) with K of 2 or more, and "
            f"activation='sigmoid' one logit per row, (n,) or (n, 1); {activation!r} received "
            f"shape {z.shape}: choose the other, or None for what is no logit."
        )
    return expit(z.reshape(len(z))) if activation == "sigmoid" else softmax(z, axis=1)


def fit_temperature(logits: Any, labels: Any) -> float:
    """Find the temperature T that minimises the cross-entropy of labelled rows.

    ``T = argmin mean_i( log sum_k exp(z_ik / T) - z_i,y_i / T )``, which is convex in 1 / T, so
    that the root of its derivative is found by bisection.

    Parameters
    ----------
    logits : (n, K); or (n,) or (n, 1), the logit of the second of two classes.
    labels : (n,) integers from 0 to K - 1.

    Returns
    -------
    float
        At most 100, where the logits say nothing about the labels.

    Examples
    --------
    >>> logits = np.log([[0.9, 0.1]] * 4)  # nine to one, and right three times out of four
    >>> sharp = fit_temperature(logits, [0, 0, 0, 1])
    >>> probabilities(logits[:1], "softmax", sharp).round(6).tolist()
    [[0.75, 0.25]]
    """
    z, codes = _checked_sample(logits, labels)
    observed = z[np.arange(len(z)), codes]

    def slope(sharpness: float) -> float:
        expected = (softmax(sharpness * z, axis=1) * z).sum(axis=1)
        return float((expected - observed).mean())

    if slope(1.0 / HOTTEST) >= 0.0:
        return HOTTEST
    if slope(1.0 / COLDEST) <= 0.0:
        raise InvalidInputError(
            f"A temperature needs rows that the logits get wrong, and of these {len(z)} they get "
            "none wrong by enough: the cross-entropy falls for ever as the temperature does. Give "
            "more rows, and rows that the network was not trained on."
        )
    return 1.0 / float(brentq(slope, 1.0 / HOTTEST, 1.0 / COLDEST, xtol=1e-12))


def _checked_sample(logits: Any, labels: Any) -> tuple[Array, NDArray[np.intp]]:
    z = np.asarray(without_mask(logits, "logits"), dtype=np.float64)
    if z.ndim == 1 or z.shape[1:] == (1,):
        z = np.column_stack([np.zeros(len(z)), z.reshape(len(z))])
    codes = np.asarray(without_mask(labels, "labels"))
    whole = codes.dtype.kind in "biu" and codes.shape == z.shape[:1] and z.ndim == 2
    if not whole or len(z) == 0 or codes.min() < 0 or codes.max() >= z.shape[1]:
        raise InvalidInputError(
            "fit_temperature takes logits (n, K) and n labels as whole numbers from 0 to K - 1; "
            f"received logits of shape {np.shape(logits)} and labels of shape {codes.shape} and "
            f"dtype {codes.dtype}: count the classes from zero."
        )
    if not np.isfinite(z).all():
        raise InvalidInputError("fit_temperature takes finite logits; some are NaN or infinite.")
    # What all classes of a row share cancels; taking it off keeps large logits exact.
    return z - z.max(axis=1, keepdims=True), codes.astype(np.intp)


def _codes(y: Any, classes: list[Any]) -> NDArray[np.intp]:
    places = {label: place for place, label in enumerate(classes)}
    labels = np.asarray(without_mask(y, "y")).tolist()
    strange = [label for label in dict.fromkeys(labels) if label not in places]
    if strange:
        raise InvalidInputError(
            f"Every label in y must be one of the candidate's classes {listed(classes)}; received "
            f"{listed(strange[:5])}: leave out those rows."
        )
    return np.array([places[label] for label in labels], dtype=np.intp)


def _checked_activation(activation: Any, temperature: Any) -> tuple[Activation | None, float]:
    if activation is not None and activation not in get_args(Activation):
        raise InvalidInputError(
            f"activation must be None, 'softmax' or 'sigmoid'; received {activation!r}."
        )
    number = isinstance(temperature, int | float | np.number)
    if not number or not isfinite(temperature) or temperature <= 0:
        raise InvalidInputError(
            f"temperature must be a finite number above zero; received {temperature!r}."
        )
    if activation is None and temperature != 1.0:
        raise InvalidInputError(
            "temperature= divides logits, so it needs activation='softmax' or 'sigmoid'; received "
            f"temperature={temperature!r} and activation=None."
        )
    return activation, float(temperature)
