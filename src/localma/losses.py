"""Losses: elementwise value and derivative on the prediction scale, with declared domains.

Candidates are averaged on the scale of the mean or of the probability, so losses act there too,
without a link function. A derivative uses plain operators only, so that NumPy arrays, PyTorch
tensors and Numba scalars share one definition. If a loss has a parameter, its functions are
`functools.partial` objects of functions in this module. A compiler needs their `.func` and
`.keywords`.

A logarithm is infinite at zero. Below a small floor, such a loss follows its tangent instead. So it
stays finite and differentiable, and it stays convex if it was. Its derivative still pushes a
mixture away from zero, unlike that of a clipped logarithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from math import inf, isfinite
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import boxcox, xlogy

from localma._types import Array, RowMask
from localma.errors import InvalidInputError, unknown_name

PROBABILITY_FLOOR = 2.0**-50
"""Below this probability (8.9e-16) a logarithm follows its tangent; exact in single precision."""


@dataclass(frozen=True)
class Interval:
    """A real interval, the domain of a target or of a prediction.

    Parameters
    ----------
    low, high : float
        The ends.
    low_closed, high_closed : bool
        Whether an end belongs to the interval.

    Examples
    --------
    >>> print(Interval(0, low_closed=True))
    [0, inf)
    """

    low: float = -inf
    high: float = inf
    low_closed: bool = False
    high_closed: bool = False

    def __str__(self) -> str:
        opening, closing = "[" if self.low_closed else "(", "]" if self.high_closed else ")"
        return f"{opening}{self.low:g}, {self.high:g}{closing}"

    def contains(self, values: ArrayLike, slack: float = 0.0) -> RowMask:
        """Whether each value lies inside; NaN does not.

        Parameters
        ----------
        values : array
            Numbers, in any shape.
        slack : float
            Closed ends are widened by this number.

        Returns
        -------
        array of bool
            An array of the same shape.

        Examples
        --------
        >>> Interval(0, 1, low_closed=True).contains([0.0, 0.5, 1.0]).tolist()
        [True, True, False]
        """
        values = np.asarray(values)
        low_enough = values <= self.high + slack if self.high_closed else values < self.high
        high_enough = values >= self.low - slack if self.low_closed else values > self.low
        return np.asarray(low_enough & high_enough)


REAL = Interval()
NON_NEGATIVE = Interval(0, low_closed=True)
POSITIVE = Interval(0)
PROBABILITY = Interval(0, 1, low_closed=True, high_closed=True)


Elementwise = Callable[..., Array]
Pair = tuple[Elementwise, Elementwise]


class _With(partial[Array]):
    """A function with its parameters, compared by these two."""

    def _key(self) -> tuple[object, ...]:
        return self.func, *sorted(self.keywords.items())

    def __eq__(self, value: object) -> bool:
        return isinstance(value, _With) and self._key() == value._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _pair(value: Elementwise, derivative: Elementwise, **parameters: float) -> Pair:
    """A value and a derivative with the same parameters."""
    return _With(value, **parameters), _With(derivative, **parameters)


@dataclass(frozen=True, repr=False)
class Loss:
    """A loss on the prediction scale (mean or probability): a pair of elementwise functions.

    Parameters
    ----------
    name : str
        Its name in messages and files.
    value, derivative : callable
        ``loss(y, mu)``, which is zero if ``mu = y``, and its derivative in ``mu``. Both map two
        arrays of the same shape, (n,) or (n, K), to an array of that shape. The derivative uses
        plain operators only (``+ - * / **`` and comparisons), so that it also works on PyTorch
        tensors and in Numba.
    target, prediction : Interval
        Domains of the targets and of the candidates' predictions.
    elicits : str
        The minimiser of the expected loss: "mean", "median", "quantile", or another name.
    convex : bool
        Whether the loss is convex in ``mu`` for every target.
    smooth : bool
        Whether the derivative is continuous in ``mu``.
    location : bool
        Whether the loss depends on ``mu - y`` alone. Gates train in single precision, so they then
        train on differences, which keep their digits if targets are far from zero.
    parameters : mapping
        The arguments of the factory; a loss of the registry is `get_loss(name, **parameters)`.
    standardize : bool
        Whether `fit` gives several outputs equal shares in the loss of a row; see `standardized`.
    output_weight : tuple of K float
        Weight of each output in the loss of a row, with mean one; () for equal weights.

    Examples
    --------
    Your own loss needs only the two functions:

    >>> fourth_power = Loss(
    ...     "fourth_power", lambda y, mu: (mu - y) ** 4, lambda y, mu: 4 * (mu - y) ** 3
    ... )
    >>> fourth_power.value(np.array([1.0]), np.array([3.0])).tolist()
    [16.0]
    """

    name: str
    value: Callable[[Array, Array], Array]
    derivative: Callable[[Array, Array], Array]
    target: Interval = REAL
    prediction: Interval = REAL
    elicits: str = "mean"
    convex: bool = True
    smooth: bool = True
    location: bool = False
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    standardize: bool = False
    output_weight: tuple[float, ...] = ()

    def standardized(self) -> Loss:
        """Return this loss with outputs of any unit having equal shares in it.

        By default the loss of a row is the mean over its outputs, so that one output with a large
        unit decides the weights that all outputs share. A standardized loss divides the loss of
        each output by its mean under the best constant weights, when a model is fitted. The unit
        of an output then does not matter. It is for regression: the outputs of a classifier are
        classes, which have the same unit.

        Returns
        -------
        Loss
            The loss.

        Examples
        --------
        >>> squared_error().standardized()
        <Loss squared_error(), standardized>
        """
        return replace(self, standardize=True)

    def __post_init__(self) -> None:
        for role in ("value", "derivative"):
            function = getattr(self, role)
            if not callable(function):
                raise InvalidInputError(
                    f"A Loss is a pair of functions; {role} of loss {self.name!r} is "
                    f"{function!r}. Pass a function (y, mu) -> array."
                )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value:g}" for key, value in self.parameters.items())
        standardized = ", standardized" * self.standardize
        return f"<Loss {self.name}({arguments}){standardized}>"


# Location losses: functions of the difference alone.


def _squared_error_value(y: Array, mu: Array) -> Array:
    difference = mu - y
    return difference * difference


def _squared_error_derivative(y: Array, mu: Array) -> Array:
    difference = mu - y
    return difference + difference  # keeps the type, unlike 2.0 * difference


def squared_error() -> Loss:
    """``loss(y, mu) = (y - mu)^2``; elicits the mean.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> squared_error().value(np.array([3.0]), np.array([1.0])).tolist()
    [4.0]
    """
    return Loss("squared_error", _squared_error_value, _squared_error_derivative, location=True)


def _absolute_error_value(y: Array, mu: Array) -> Array:
    return np.abs(y - mu)


def _absolute_error_derivative(y: Array, mu: Array) -> Array:
    unit = mu - mu + 1  # has the type of mu, which 1.0 times a boolean would lose
    return (mu > y) * unit - (mu < y) * unit


def absolute_error() -> Loss:
    """``loss(y, mu) = |y - mu|``; elicits the median. Its derivative at ``mu = y`` is 0.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> absolute_error().value(np.array([3.0]), np.array([1.0])).tolist()
    [2.0]
    """
    return Loss(
        "absolute_error",
        _absolute_error_value,
        _absolute_error_derivative,
        elicits="median",
        smooth=False,
        location=True,
    )


def _huber_value(y: Array, mu: Array, *, delta: float) -> Array:
    distance = np.abs(y - mu)
    clipped = np.minimum(distance, delta)
    return clipped * (distance - clipped / 2)


def _huber_derivative(y: Array, mu: Array, *, delta: float) -> Array:
    difference = mu - y
    bound = mu - mu + delta
    inside = (difference >= -delta) * ((difference <= delta) * difference)
    return inside + (difference > delta) * bound - (difference < -delta) * bound


def huber(delta: float = 1.35) -> Loss:
    """Huber loss: ``d^2 / 2`` where ``d = |y - mu| <= delta``, else ``delta (d - delta / 2)``.

    `delta` is in the unit of the target; no scale is estimated. The loss elicits Huber's location,
    between the median (small `delta`) and the mean (large `delta`). The default is that of
    scikit-learn's `HuberRegressor`, which is efficient for errors of unit scale.

    Parameters
    ----------
    delta : float
        Size of the error, in the unit of the target, from which on errors count linearly.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> huber(delta=1.0).value(np.array([0.0, 0.0]), np.array([0.5, 3.0])).tolist()
    [0.125, 2.5]
    """
    delta = _number("delta", delta)
    if delta <= 0:
        raise InvalidInputError(
            f"delta of the Huber loss must be > 0; received {delta:g}. Pass the size of error, in "
            "the unit of the target, from which on errors should count linearly, such as 1.35."
        )
    return Loss(
        "huber",
        *_pair(_huber_value, _huber_derivative, delta=delta),
        elicits="huber location",
        location=True,
        parameters={"delta": delta},
    )


def _pinball_value(y: Array, mu: Array, *, quantile: float) -> Array:
    return np.maximum(y - mu, 0) * quantile + np.maximum(mu - y, 0) * (1 - quantile)


def _pinball_derivative(y: Array, mu: Array, *, quantile: float) -> Array:
    zero = mu - mu
    return (mu > y) * (zero + 1 - quantile) - (mu < y) * (zero + quantile)


def pinball(quantile: float = 0.5) -> Loss:
    """``loss(y, mu) = max(q (y - mu), (1 - q) (mu - y))``; elicits the quantile ``q``.

    At ``q = 0.5`` it is half the absolute error. Its derivative at ``mu = y`` is 0.

    Parameters
    ----------
    quantile : float
        The ``q``, between 0 and 1.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> pinball(quantile=0.75).value(np.array([3.0, 1.0]), np.array([1.0, 3.0])).tolist()
    [1.5, 0.5]
    """
    quantile = _number("quantile", quantile)
    if not 0 < quantile < 1:
        raise InvalidInputError(
            f"quantile of the pinball loss must lie in (0, 1); received {quantile:g}. "
            "Pass 0.5 for the median, or 0.9 for the value that 90 % of the targets do not exceed."
        )
    return Loss(
        "pinball",
        *_pair(_pinball_value, _pinball_derivative, quantile=quantile),
        elicits="quantile",
        smooth=False,
        location=True,
        parameters={"quantile": quantile},
    )


# Probability losses.


def _y_log_ratio(y: Array, mu: Array, floor: float) -> Array:
    """``y log(y / mu)``, zero at ``y = 0``, on its tangent in ``mu`` below the floor."""
    # Clipped, because the rounding of a mixture must not be magnified by 1 / floor.
    shortfall = np.clip(floor - mu, 0, floor) / floor
    return xlogy(y, y / np.maximum(mu, floor)) + y * shortfall


def _cross_entropy_value(y: Array, mu: Array, *, floor: float) -> Array:
    return _y_log_ratio(y, mu, floor) - xlogy(y, y)


def _cross_entropy_derivative(y: Array, mu: Array, *, floor: float) -> Array:
    floored = mu + (mu < floor) * (floor - mu)
    return -(y / floored)


def cross_entropy() -> Loss:
    """``loss(1, q) = -log q`` (log loss), ``q`` the probability of the observed class.

    The loss of a mixture is ``-log sum_m w_m p_m(y_i)``. It needs only the probability of the
    observed class: one number per candidate and row, with any number of classes. The target is
    always 1. The loss elicits the class probabilities, which are the mean of a one-hot target.

    Below `PROBABILITY_FLOOR` the loss follows its tangent, ``-log(floor) + (floor - q) / floor``:
    it is 35.7 at ``q = 0``, and its derivative ``-1 / floor``.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> float(cross_entropy().value(np.array(1.0), np.array(0.25)).round(6))
    1.386294
    """
    return Loss(
        "cross_entropy",
        *_pair(_cross_entropy_value, _cross_entropy_derivative, floor=PROBABILITY_FLOOR),
        target=Interval(1, 1, low_closed=True, high_closed=True),
        prediction=PROBABILITY,
    )


def brier() -> Loss:
    """``loss(y, p) = (y - p)^2``, ``y`` the one-hot indicator of a class, ``p`` its probability.

    The loss of a row is the *mean* over its classes. With two classes, that is the binary Brier
    score. With K classes, it is Brier's original sum over classes divided by K.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> one_hot, probabilities = np.array([[1.0, 0.0]]), np.array([[0.75, 0.25]])
    >>> brier().value(one_hot, probabilities).mean(axis=1).tolist()
    [0.0625]
    """
    return Loss(
        "brier",
        _squared_error_value,
        _squared_error_derivative,
        target=PROBABILITY,
        prediction=PROBABILITY,
        location=True,
    )


def _bernoulli_value(y: Array, mu: Array, *, floor: float) -> Array:
    kullback_leibler = _y_log_ratio(y, mu, floor) + _y_log_ratio(1 - y, 1 - mu, floor)
    return kullback_leibler + kullback_leibler


def _bernoulli_derivative(y: Array, mu: Array, *, floor: float) -> Array:
    complement = 1 - mu  # floored separately, because 1 - floor is 1 in single precision
    floored = mu + (mu < floor) * (floor - mu)
    floored_complement = complement + (complement < floor) * (floor - complement)
    slope = (1 - y) / floored_complement - y / floored
    return slope + slope


def bernoulli() -> Loss:
    """Bernoulli (binomial) deviance of a mean ``mu``, twice a Kullback-Leibler divergence.

    ``loss(y, mu) = 2 [y log(y / mu) + (1 - y) log((1 - y) / (1 - mu))]``

    Targets are 0 and 1, or proportions with the number of trials as `sample_weight`. For a target
    of 0 or 1, the loss is twice the cross-entropy of the observed class. For a proportion, it also
    subtracts the entropy of the target, so that a perfect prediction has no loss. Predictions of
    exactly 0 and 1 are allowed: below `PROBABILITY_FLOOR` each logarithm follows its tangent. The
    loss elicits the mean.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> bernoulli().value(np.array([0.0, 1.0]), np.array([0.5, 1.0])).round(6).tolist()
    [1.386294, 0.0]
    """
    return Loss(
        "bernoulli",
        *_pair(_bernoulli_value, _bernoulli_derivative, floor=PROBABILITY_FLOOR),
        target=PROBABILITY,
        prediction=PROBABILITY,
    )


# Deviances of the Tweedie family, whose variance is mean^power. All have the derivative
# 2 (mu - y) / mu^power. Powers 1, 2 and 3 have their own functions, which are faster.


def _mean_floor(power: float) -> float:
    """Mean below which a deviance follows its tangent: ``floor^-power`` fits single precision.

    It is 2^-50 up to power 2, 2^-33 (1.2e-10) at power 3, and at most 2^-10 at any power.
    """
    return 2.0 ** -max(10, int(100 / max(power, 2)))


def _poisson_value(y: Array, mu: Array, *, floor: float) -> Array:
    half = _y_log_ratio(y, mu, floor) - y + mu
    return half + half


def _poisson_derivative(y: Array, mu: Array, *, floor: float) -> Array:
    floored = mu + (mu < floor) * (floor - mu)
    half = (floored - y) / floored
    return half + half


def poisson() -> Loss:
    """Poisson deviance of a mean ``mu``: ``2 [y log(y / mu) - y + mu]``; elicits the mean.

    A candidate may predict 0, as a tree does for a leaf without events: below a mean of 2^-50 the
    deviance follows its tangent. For a target of 0 the loss is ``2 mu``.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> poisson().value(np.array([0.0, 2.0]), np.array([3.0, 1.0])).round(6).tolist()
    [6.0, 0.772589]
    """
    return Loss(
        "poisson",
        *_pair(_poisson_value, _poisson_derivative, floor=_mean_floor(1)),
        target=NON_NEGATIVE,
        prediction=NON_NEGATIVE,
    )


def _gamma_value(y: Array, mu: Array, *, floor: float) -> Array:
    floored = np.maximum(mu, floor)
    ratio = y / floored
    half = ratio - 1 - np.log(ratio)
    return half + half + _gamma_derivative(y, floored, floor=floor) * (mu - floored)


def _gamma_derivative(y: Array, mu: Array, *, floor: float) -> Array:
    floored = mu + (mu < floor) * (floor - mu)
    half = (floored - y) / (floored * floored)
    return half + half


def gamma() -> Loss:
    """Gamma deviance of a mean ``mu``: ``2 [log(mu / y) + y / mu - 1]``; elicits the mean.

    Only relative errors count. It is not convex: its second derivative is negative if ``mu > 2 y``.
    Targets and predictions are strictly positive.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> gamma().value(np.array([2.0]), np.array([1.0])).round(6).tolist()
    [0.613706]
    """
    return Loss(
        "gamma",
        *_pair(_gamma_value, _gamma_derivative, floor=_mean_floor(2)),
        target=POSITIVE,
        prediction=POSITIVE,
        convex=False,
    )


def _inverse_gaussian_value(y: Array, mu: Array, *, floor: float) -> Array:
    floored = np.maximum(mu, floor)
    relative = (y - floored) / floored
    tangent = _inverse_gaussian_derivative(y, floored, floor=floor) * (mu - floored)
    return relative * relative / y + tangent


def _inverse_gaussian_derivative(y: Array, mu: Array, *, floor: float) -> Array:
    floored = mu + (mu < floor) * (floor - mu)
    half = (floored - y) / (floored * floored * floored)
    return half + half


def inverse_gaussian() -> Loss:
    """Inverse Gaussian deviance of a mean ``mu``: ``(y - mu)^2 / (y mu^2)``; elicits the mean.

    It is not convex: its second derivative is negative if ``mu > 1.5 y``. Targets and predictions
    are strictly positive; below a mean of 2^-33 the deviance follows its tangent.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> inverse_gaussian().value(np.array([2.0]), np.array([1.0])).tolist()
    [0.5]
    """
    return Loss(
        "inverse_gaussian",
        *_pair(_inverse_gaussian_value, _inverse_gaussian_derivative, floor=_mean_floor(3)),
        target=POSITIVE,
        prediction=POSITIVE,
        convex=False,
    )


def _tweedie_value(y: Array, mu: Array, *, power: float, floor: float) -> Array:
    """Deviance of power > 1 by ``boxcox(r, a) = (r^a - 1) / a``, stable near powers 1 and 2."""
    floored = np.maximum(mu, floor)
    ratio = y / floored
    positive_ratio = np.where(ratio > 0, ratio, 1)
    half = ratio * boxcox(positive_ratio, 1 - power) - boxcox(ratio, 2 - power)
    half = half + (1 - ratio) * (mu - floored) / floored  # the tangent
    return floored ** (2 - power) * (half + half)


def _tweedie_derivative(y: Array, mu: Array, *, power: float, floor: float) -> Array:
    floored = mu + (mu < floor) * (floor - mu)
    difference = floored - y
    return (difference + difference) / floored**power


def _extreme_stable_value(y: Array, mu: Array, *, power: float) -> Array:
    of_target = np.maximum(y, 0) ** (2 - power) / ((1 - power) * (2 - power))
    half = of_target - y * mu ** (1 - power) / (1 - power) + mu ** (2 - power) / (2 - power)
    return half + half


def _extreme_stable_derivative(y: Array, mu: Array, *, power: float) -> Array:
    difference = mu - y
    return (difference + difference) * mu**-power


def tweedie(power: float = 1.5) -> Loss:
    """Tweedie deviance of a mean ``mu``; elicits the mean.

    ``2 [y^(2-p) / ((1-p)(2-p)) - y mu^(1-p) / (1-p) + mu^(2-p) / (2-p)]``, ``p`` the power

    Special cases are ``p = 0`` (squared error), 1 (Poisson), 2 (gamma) and 3 (inverse Gaussian). If
    the power is negative, the first term takes ``max(y, 0)``. Domains are those of scikit-learn's
    `mean_tweedie_deviance`, except that for powers in [1, 2) candidates may predict 0, because
    targets can be 0. Only powers 0 and 1 are convex.

    Parameters
    ----------
    power : float
        The ``p``: at most 0, or at least 1.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> tweedie(power=1.5).value(np.array([4.0, 0.0]), np.array([1.0, 4.0])).tolist()
    [4.0, 8.0]
    """
    power = _number("power", power)
    if 0 < power < 1:
        raise InvalidInputError(
            "No Tweedie distribution has a power between 0 and 1; received "
            f"power={power:g}. Use a power <= 0 or >= 1: 0 is the squared error, 1 Poisson, "
            "between 1 and 2 amounts with zeros, 2 gamma, 3 inverse Gaussian."
        )
    target, prediction = _tweedie_domains(power)
    return Loss(
        "tweedie",
        *_tweedie_pair(power),
        target=target,
        prediction=prediction,
        convex=power in (0, 1),
        location=power == 0,
        parameters={"power": power},
    )


_TWEEDIE_LIMITS: dict[float, Callable[[], Loss]] = {
    0: squared_error,
    1: poisson,
    2: gamma,
    3: inverse_gaussian,
}


def _tweedie_pair(power: float) -> Pair:
    if power in _TWEEDIE_LIMITS:
        limit = _TWEEDIE_LIMITS[power]()
        return limit.value, limit.derivative
    if power < 0:
        return _pair(_extreme_stable_value, _extreme_stable_derivative, power=power)
    return _pair(_tweedie_value, _tweedie_derivative, power=power, floor=_mean_floor(power))


def _tweedie_domains(power: float) -> tuple[Interval, Interval]:
    if power < 0:
        return REAL, POSITIVE
    if power == 0:
        return REAL, REAL
    if power < 2:
        return NON_NEGATIVE, NON_NEGATIVE
    return POSITIVE, POSITIVE


def _number(name: str, received: object) -> float:
    if not isinstance(received, Real) or isinstance(received, bool) or not isfinite(received):
        raise InvalidInputError(
            f"{name} must be a finite number; received {received!r}. Pass a float."
        )
    return float(received)


# The registry.

LOSSES: dict[str, Callable[..., Loss]] = {
    "squared_error": squared_error,
    "absolute_error": absolute_error,
    "huber": huber,
    "pinball": pinball,
    "cross_entropy": cross_entropy,
    "brier": brier,
    "poisson": poisson,
    "gamma": gamma,
    "inverse_gaussian": inverse_gaussian,
    "tweedie": tweedie,
    "bernoulli": bernoulli,
}
"""All named losses: name -> factory."""

ALIASES = {
    "mse": "squared_error",
    "mean_squared_error": "squared_error",
    "l2": "squared_error",
    "mae": "absolute_error",
    "mean_absolute_error": "absolute_error",
    "l1": "absolute_error",
    "quantile": "pinball",
    "log_loss": "cross_entropy",
    "logloss": "cross_entropy",
    "binomial": "bernoulli",
}
"""Common aliases -> names of the registry."""

_NO_CURVE = "it does not change when a probability changes a little. Use 'cross_entropy' or 'brier'"
NOT_LOSSES = {
    "rmse": "it is not a mean over rows. Use 'squared_error': the same weights minimise both",
    "r2": "it is not a mean over rows. Use 'squared_error': the same weights are best for both",
    "mape": "it favours predictions that are too low, and it is not defined for a target of zero. "
    "Use 'absolute_error'; with row weights of 1 / |target| it is the same as 'mape'",
    "deviance": "each distribution has its own. Use 'poisson', 'gamma', 'inverse_gaussian', "
    "'tweedie' or 'bernoulli'",
    "accuracy": _NO_CURVE,
    "auc": _NO_CURVE,
}
"""Measures that cannot be minimised here -> the reason, and a loss to use instead."""


def get_loss(loss: str | Loss, **parameters: float) -> Loss:
    """Look up a loss by name or alias; a `Loss` is returned as it is.

    Case is ignored, and hyphens and spaces count as underscores.

    Parameters
    ----------
    loss : str or Loss
        A name, an alias or a loss.
    **parameters : float
        Parameters of a named loss.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> get_loss("quantile", quantile=0.9)
    <Loss pinball(quantile=0.9)>
    >>> get_loss("MSE"), get_loss("cross-entropy")
    (<Loss squared_error()>, <Loss cross_entropy()>)
    """
    if isinstance(loss, Loss):
        if parameters:
            raise InvalidInputError(
                f"A Loss has its parameters already; received {loss!r} and {parameters!r}. "
                "Pass a name with parameters, or a Loss alone."
            )
        return loss
    name = _registered_name(loss)
    accepted = list(signature(LOSSES[name]).parameters)
    if not set(parameters) <= set(accepted):
        listed = ", ".join(map(repr, accepted)) or "none"
        raise InvalidInputError(
            f"Loss {name!r} has the parameters: {listed}; received {sorted(parameters)}. "
            "Leave the others out."
        )
    return LOSSES[name](**parameters)


def _registered_name(loss: object) -> str:
    """Name in the registry of a name that a user typed."""
    typed = str(loss).lower().replace("-", "_").replace(" ", "_")
    if typed in NOT_LOSSES:
        raise InvalidInputError(f"{loss!r} cannot be used as a loss: {NOT_LOSSES[typed]}.")
    name = ALIASES.get(typed, typed)
    if name not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    return name


def is_registered(loss: Loss) -> bool:
    """Whether `get_loss(loss.name, **loss.parameters)` gives exactly this loss.

    Such a loss is tested with the package and can be saved by name. Other losses are users' own.

    Parameters
    ----------
    loss : Loss
        Any loss.

    Returns
    -------
    bool
        True for a loss of the registry.

    Examples
    --------
    >>> is_registered(huber(delta=2.0)), is_registered(Loss("huber", np.add, np.add))
    (True, False)
    """
    try:
        plain = replace(loss, standardize=False, output_weight=())
        return get_loss(loss.name, **loss.parameters) == plain
    except InvalidInputError:
        return False
