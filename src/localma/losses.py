"""Losses: elementwise value and derivative on the prediction scale, with declared domains.

Candidates are averaged on the scale of the mean or of the probability, so losses act there too:
no link function stands between a mixture and its loss. A derivative is written with plain operators
only, so that NumPy arrays, PyTorch tensors and Numba scalars share one definition. A loss with a
parameter holds its functions as `functools.partial` of a function of this module: `.func` and
`.keywords` are what a compiler needs.

Where a loss has no finite value (the logarithm of zero) it follows its own tangent below a small
floor. It stays finite, differentiable and, where it was convex, convex; its derivative still
pushes a mixture off the boundary, which that of a clipped logarithm would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from math import inf, isfinite, log10
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import boxcox, xlogy

from localma.errors import InvalidInputError, unknown_name
from localma.tables.frames import without_mask

Array = NDArray[np.floating]

PROBABILITY_FLOOR = 2.0**-50
"""Below this probability (8.9e-16) a logarithm follows its tangent; exact in single precision."""

PROBABILITY_ROUNDING = 1e-6
"""How far a candidate's probability may lie outside [0, 1]: the rounding of single precision."""

SMALLEST_SIZE, LARGEST_SIZE = 1e-70, 1e70
SMALLEST_RISK, LARGEST_RISK = 1e-150, 1e150
"""Sizes of targets and of mean losses whose squares, as standard errors need them, are numbers."""


@dataclass(frozen=True)
class Interval:
    """A real interval, the domain of a target or of a prediction.

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

    def contains(self, values: ArrayLike, slack: float = 0.0) -> NDArray[np.bool_]:
        """Say which values lie inside, elementwise; NaN lies nowhere.

        values : any shape -> bool of the same shape. Closed ends give way by `slack`.

        >>> Interval(0, 1, low_closed=True).contains([0.0, 0.5, 1.0]).tolist()
        [True, True, False]
        """
        values = np.asarray(values)
        above = values >= self.low - slack if self.low_closed else values > self.low
        below = values <= self.high + slack if self.high_closed else values < self.high
        return np.asarray(above & below)


REAL = Interval()
NON_NEGATIVE = Interval(0, low_closed=True)
POSITIVE = Interval(0)
PROBABILITY = Interval(0, 1, low_closed=True, high_closed=True)


class _With(partial[Array]):
    """A function with its parameters, equal to another with the same function and parameters."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _With):
            return NotImplemented
        return self.func == other.func and self.keywords == other.keywords

    def __hash__(self) -> int:
        return hash((self.func, tuple(sorted(self.keywords.items()))))


@dataclass(frozen=True, repr=False)
class Loss:
    """A loss on the prediction scale (mean or probability): a pair of elementwise functions.

    Parameters
    ----------
    name : str
        What messages and files call it.
    value, derivative : callable
        ``loss(y, mu)``, zero where ``mu`` is ``y``, and its derivative in ``mu``. Both map two
        arrays of one shape, (n,) or (n, K), to an array of that shape. The derivative uses plain
        operators only (``+ - * / **`` and comparisons), so that it also works on PyTorch tensors
        and in Numba.
    target, prediction : Interval
        Where targets must lie, and where the predictions of a candidate must lie.
    elicits : str
        What minimises the expected loss: "mean", "median", "quantile", or a word of its own.
    convex : bool
        Whether the loss is convex in ``mu`` for every target.
    smooth : bool
        Whether the derivative is continuous in ``mu``.
    location : bool
        Whether the loss depends on ``mu - y`` alone. Gates, which train in single precision, then
        train on differences: of targets far from zero single precision would leave little.
    parameters : mapping
        The arguments of the factory; a loss of the registry is `get_loss(name, **parameters)`.

    Examples
    --------
    A loss of one's own needs no more than the two functions:

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

    def __post_init__(self) -> None:
        for role in ("value", "derivative"):
            if not callable(getattr(self, role)):
                raise InvalidInputError(
                    f"A Loss is a pair of functions; {role} of loss {self.name!r} is "
                    f"{getattr(self, role)!r}. Pass a function (y, mu) -> array."
                )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value:g}" for key, value in self.parameters.items())
        return f"<Loss {self.name}({arguments})>"


# Location losses: functions of the difference alone.


def _squared_error_value(y: Array, mu: Array) -> Array:
    difference = mu - y
    return difference * difference


def _squared_error_derivative(y: Array, mu: Array) -> Array:
    difference = mu - y
    return difference + difference  # of the type of the difference


def squared_error() -> Loss:
    """``loss(y, mu) = (y - mu)^2``; elicits the mean.

    >>> squared_error().value(np.array([3.0]), np.array([1.0])).tolist()
    [4.0]
    """
    return Loss("squared_error", _squared_error_value, _squared_error_derivative, location=True)


def _absolute_error_value(y: Array, mu: Array) -> Array:
    return np.abs(y - mu)


def _absolute_error_derivative(y: Array, mu: Array) -> Array:
    one = mu - mu + 1  # of the type of mu, which a bare 1.0 times a boolean would lose
    return (mu > y) * one - (mu < y) * one


def absolute_error() -> Loss:
    """``loss(y, mu) = |y - mu|``; elicits the median. Its derivative at ``mu = y`` is 0.

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
    near = np.minimum(distance, delta)
    return near * (distance - near / 2)


def _huber_derivative(y: Array, mu: Array, *, delta: float) -> Array:
    difference = mu - y
    bound = mu - mu + delta
    inside = (difference >= -delta) * ((difference <= delta) * difference)
    return inside + (difference > delta) * bound - (difference < -delta) * bound


def huber(delta: float = 1.35) -> Loss:
    """Huber's loss: ``d^2 / 2`` where ``d = |y - mu| <= delta``, else ``delta (d - delta / 2)``.

    `delta` is in the units of the target; no scale is estimated. It elicits Huber's location, which
    lies between the median (`delta` near 0) and the mean (`delta` large). The default is that of
    scikit-learn's `HuberRegressor`, efficient for errors of unit scale.

    >>> huber(delta=1.0).value(np.array([0.0, 0.0]), np.array([0.5, 3.0])).tolist()
    [0.125, 2.5]
    """
    delta = _number("delta", delta)
    if delta <= 0:
        raise InvalidInputError(
            f"delta of the Huber loss must be > 0; received {delta:g}. Take the error, in units "
            "of the target, from which on it should count linearly, such as 1.35."
        )
    return Loss(
        "huber",
        _With(_huber_value, delta=delta),
        _With(_huber_derivative, delta=delta),
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

    >>> pinball(quantile=0.75).value(np.array([3.0, 1.0]), np.array([1.0, 3.0])).tolist()
    [1.5, 0.5]
    """
    quantile = _number("quantile", quantile)
    if not 0 < quantile < 1:
        raise InvalidInputError(
            f"quantile of the pinball loss must lie in (0, 1); received {quantile:g}. "
            "Take 0.5 for the median, 0.9 for the value that nine in ten targets do not exceed."
        )
    return Loss(
        "pinball",
        _With(_pinball_value, quantile=quantile),
        _With(_pinball_derivative, quantile=quantile),
        elicits="quantile",
        smooth=False,
        location=True,
        parameters={"quantile": quantile},
    )


# Probability losses.


def _y_log_ratio(y: Array, mu: Array, floor: float) -> Array:
    """``y log(y / mu)``, zero at ``y = 0``, on its tangent in ``mu`` below the floor."""
    # At most one floor short: the rounding of a mixture must not be magnified by 1 / floor.
    shortfall = np.clip(floor - mu, 0, floor) / floor
    return xlogy(y, y / np.maximum(mu, floor)) + y * shortfall


def _cross_entropy_value(y: Array, mu: Array, *, floor: float) -> Array:
    return _y_log_ratio(y, mu, floor) - xlogy(y, y)


def _cross_entropy_derivative(y: Array, mu: Array, *, floor: float) -> Array:
    floored = mu + (mu < floor) * (floor - mu)
    return -(y / floored)


def cross_entropy() -> Loss:
    """``loss(1, q) = -log q`` (log loss), ``q`` the probability of the observed class.

    Only the observed class enters the logarithm of a mixture, ``-log sum_m w_m p_m(y_i)``, so a row
    has one number per candidate, whatever the number of classes, and its target is always 1.
    (Written ``-y log q``, the same holds of one-hot rows, summed over classes.) It elicits the
    class probabilities, the mean of a one-hot target.

    Below `PROBABILITY_FLOOR` the loss follows its tangent, ``-log(floor) + (floor - q) / floor``:
    it is 35.7 at ``q = 0``, and its derivative ``-1 / floor``.

    >>> float(cross_entropy().value(np.array(1.0), np.array(0.25)).round(6))
    1.386294
    """
    return Loss(
        "cross_entropy",
        _With(_cross_entropy_value, floor=PROBABILITY_FLOOR),
        _With(_cross_entropy_derivative, floor=PROBABILITY_FLOOR),
        target=Interval(1, 1, low_closed=True, high_closed=True),
        prediction=PROBABILITY,
    )


def brier() -> Loss:
    """``loss(y, p) = (y - p)^2``, ``y`` the one-hot indicator of a class, ``p`` its probability.

    The loss of a row is the *mean* over its classes. With two classes that is the binary Brier
    score; with K it is the sum over classes of Brier's first definition, divided by K.

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
    rest = 1 - mu  # floored on its own: 1 - floor is 1 in single precision
    floored = mu + (mu < floor) * (floor - mu)
    floored_rest = rest + (rest < floor) * (floor - rest)
    slope = (1 - y) / floored_rest - y / floored
    return slope + slope


def bernoulli() -> Loss:
    """Bernoulli (binomial) deviance of a mean ``mu``, twice a Kullback-Leibler divergence.

    ``loss(y, mu) = 2 [y log(y / mu) + (1 - y) log((1 - y) / (1 - mu))]``

    Targets are 0 and 1, or proportions; the numbers of trials go into `sample_weight`. For a
    target of 0 or 1 it is twice the cross-entropy of the observed class; for a proportion it also
    subtracts the target's own entropy, so that the truth costs nothing. Predictions of exactly 0
    and 1 are allowed: below `PROBABILITY_FLOOR` each logarithm follows its tangent. Elicits the
    mean.

    >>> bernoulli().value(np.array([0.0, 1.0]), np.array([0.5, 1.0])).round(6).tolist()
    [1.386294, 0.0]
    """
    return Loss(
        "bernoulli",
        _With(_bernoulli_value, floor=PROBABILITY_FLOOR),
        _With(_bernoulli_derivative, floor=PROBABILITY_FLOOR),
        target=PROBABILITY,
        prediction=PROBABILITY,
    )


# Deviances of the Tweedie family, whose variance is mean^power. All have the derivative
# 2 (mu - y) / mu^power; powers 1, 2 and 3 spare it the general power function.


def _mean_floor(power: float) -> float:
    """Mean below which a deviance follows its tangent: ``floor^-power`` fits single precision.

    2^-50 up to power 2, 2^-33 (1.2e-10) at power 3; never above 2^-10, whatever the power.
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

    A candidate may predict 0, as a tree does where it saw no event: below a mean of 2^-50 the
    deviance follows its tangent, and a target of 0 costs ``2 mu`` as it should.

    >>> poisson().value(np.array([0.0, 2.0]), np.array([3.0, 1.0])).round(6).tolist()
    [6.0, 0.772589]
    """
    floor = _mean_floor(1)
    return Loss(
        "poisson",
        _With(_poisson_value, floor=floor),
        _With(_poisson_derivative, floor=floor),
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

    Only relative errors count. Not convex: the second derivative is negative where ``mu > 2 y``.
    Targets and predictions are strictly positive.

    >>> gamma().value(np.array([2.0]), np.array([1.0])).round(6).tolist()
    [0.613706]
    """
    floor = _mean_floor(2)
    return Loss(
        "gamma",
        _With(_gamma_value, floor=floor),
        _With(_gamma_derivative, floor=floor),
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

    Not convex: the second derivative is negative where ``mu > 1.5 y``. Targets and predictions are
    strictly positive; below a mean of 2^-33 the deviance follows its tangent.

    >>> inverse_gaussian().value(np.array([2.0]), np.array([1.0])).tolist()
    [0.5]
    """
    floor = _mean_floor(3)
    return Loss(
        "inverse_gaussian",
        _With(_inverse_gaussian_value, floor=floor),
        _With(_inverse_gaussian_derivative, floor=floor),
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
    own = np.maximum(y, 0) ** (2 - power) / ((1 - power) * (2 - power))
    half = own - y * mu ** (1 - power) / (1 - power) + mu ** (2 - power) / (2 - power)
    return half + half


def _extreme_stable_derivative(y: Array, mu: Array, *, power: float) -> Array:
    difference = mu - y
    return (difference + difference) * mu**-power


def tweedie(power: float = 1.5) -> Loss:
    """Tweedie deviance of a mean ``mu``; elicits the mean.

    ``2 [y^(2-p) / ((1-p)(2-p)) - y mu^(1-p) / (1-p) + mu^(2-p) / (2-p)]``, ``p`` the power

    with the limits ``p = 0`` squared error, 1 Poisson, 2 gamma and 3 inverse Gaussian; for a
    negative power the first term takes ``max(y, 0)``. Domains are those of scikit-learn's
    `mean_tweedie_deviance`, but from power 1 to below 2, where targets can be 0, a candidate may
    predict 0 too. Convex for powers 0 and 1 alone.

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
    if power in _TWEEDIE_LIMITS:
        same = _TWEEDIE_LIMITS[power]()
        value, derivative = same.value, same.derivative
    elif power < 0:
        value = _With(_extreme_stable_value, power=power)
        derivative = _With(_extreme_stable_derivative, power=power)
    else:
        floor = _mean_floor(power)
        value = _With(_tweedie_value, power=power, floor=floor)
        derivative = _With(_tweedie_derivative, power=power, floor=floor)
    target, prediction = _tweedie_domains(power)
    return Loss(
        "tweedie",
        value,
        derivative,
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


def _tweedie_domains(power: float) -> tuple[Interval, Interval]:
    if power < 0:
        return REAL, POSITIVE
    if power == 0:
        return REAL, REAL
    return (NON_NEGATIVE, NON_NEGATIVE) if power < 2 else (POSITIVE, POSITIVE)


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
"""Every loss that has a name: name -> factory."""

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
"""Common other names -> names of the registry."""

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
"""Measures that cannot be minimised here -> the reason, and what to use."""


def get_loss(loss: str | Loss, **parameters: float) -> Loss:
    """Look a loss up by name or alias; a `Loss` passes through.

    Case does not matter, and a hyphen or a space may stand for an underscore.

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
    known = list(signature(LOSSES[name]).parameters)
    if not set(parameters) <= set(known):
        listed = ", ".join(map(repr, known)) or "none"
        raise InvalidInputError(
            f"Loss {name!r} has the parameters: {listed}; received {sorted(parameters)}. "
            "Leave the others out."
        )
    return LOSSES[name](**parameters)


def _registered_name(loss: object) -> str:
    """Name in the registry for what a user typed."""
    typed = loss.lower().replace("-", "_").replace(" ", "_") if isinstance(loss, str) else ""
    if typed in NOT_LOSSES:
        raise InvalidInputError(f"{loss!r} cannot be used as a loss: {NOT_LOSSES[typed]}.")
    name = ALIASES.get(typed, typed)
    if name not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    return name


def is_registered(loss: Loss) -> bool:
    """Say whether `get_loss(loss.name, **loss.parameters)` gives this very loss.

    Such a loss is tested with the package and can be saved by name; any other is a user's own.

    >>> is_registered(huber(delta=2.0)), is_registered(Loss("huber", np.add, np.add))
    (True, False)
    """
    try:
        return get_loss(loss.name, **loss.parameters) == loss
    except InvalidInputError:
        return False


# Checks of data against a loss.


def check_targets(loss: Loss, y: Array) -> None:
    """Refuse targets outside the domain of a loss.

    y : (n,) or (n, K).

    >>> check_targets(poisson(), np.array([0.0, 3.0]))
    """
    y = without_mask(y, "y")
    if _all_inside(loss.target, y):
        return
    inside = loss.target.contains(y)
    first = tuple(np.argwhere(~inside)[0])
    place = f"row {first[0]}" + (f", output {first[1]}" if len(first) > 1 else "")
    if not np.isfinite(y).all():
        way_out = "Drop or complete the rows whose target is not finite."
    else:
        accepting = _accepting(lambda known: known.target, y)
        way_out = f"Correct the targets, or use a loss that accepts them: {accepting}."
    raise InvalidInputError(
        f"Loss {loss.name!r} takes targets in {loss.target}; received {float(y[first]):g} in "
        f"{place} ({_share_outside(inside)}). {way_out}"
    )


def check_predictions(loss: Loss, P: Array, names: Sequence[str] | None = None) -> None:
    """Refuse predictions of candidates outside the domain of a loss.

    Probabilities may overstep [0, 1] by `PROBABILITY_ROUNDING`.

    P : (n, M) or (n, M, K); names : the M names of the candidates.

    >>> check_predictions(poisson(), np.array([[0.0, 3.0]]))
    """
    P = without_mask(P, "predictions")
    bounded = isfinite(loss.prediction.low) and isfinite(loss.prediction.high)
    slack = PROBABILITY_ROUNDING if bounded else 0.0
    if _all_inside(loss.prediction, P, slack):
        return
    inside = loss.prediction.contains(P, slack)
    first = tuple(np.argwhere(~inside)[0])
    candidate = repr(names[first[1]]) if names is not None else str(first[1])
    place = f"row {first[0]}" + (f", output {first[2]}" if len(first) > 2 else "")
    way_out = "Correct that candidate or leave it out"
    if np.isfinite(P).all():
        accepting = _accepting(lambda known: known.prediction, P)
        way_out += f", or use a loss that accepts its predictions: {accepting}"
    raise InvalidInputError(
        f"Loss {loss.name!r} takes predictions in {loss.prediction}; candidate {candidate} "
        f"predicts {float(P[first]):g} in {place} ({_share_outside(inside)}). {way_out}."
    )


def check_unit(loss: Loss, y: Array, P: Array) -> None:
    """Refuse targets and predictions in a unit so small or so large that a loss loses its digits.

    y : (n, K), P : (n, M, K), inside the domains of the loss; about a thousand rows are looked at.

    >>> check_unit(squared_error(), np.full((3, 1), 1e20), np.full((3, 2, 1), 2e20))
    """
    step = 1 + len(y) // 1000
    targets = np.asarray(y[::step], dtype=np.float64)
    with np.errstate(all="ignore"):
        mixture = np.asarray(P[::step], dtype=np.float64).mean(axis=1)
        risk, size = float(loss.value(targets, mixture).mean()), float(np.abs(targets).mean())
        largest = max(size, float(np.abs(mixture).mean()))
    floor = getattr(loss.value, "keywords", {}).get("floor", 0.0)
    if 0.0 < size < 10.0 * floor:
        raise InvalidInputError(
            f"Loss {loss.name!r} cannot tell means below {floor:.2g} apart, and the targets are "
            f"{size:.2g} on average. {_other_unit(size)}"
        )
    if not (largest == 0.0 or SMALLEST_SIZE < largest < LARGEST_SIZE):
        raise InvalidInputError(
            f"Targets and predictions must lie between {SMALLEST_SIZE:g} and {LARGEST_SIZE:g} in "
            f"size, or losses do not fit double precision. Their mean size is {largest:.2g}. "
            f"{_other_unit(largest)}"
        )
    if not (risk == 0.0 or SMALLEST_RISK < abs(risk) < LARGEST_RISK):
        raise InvalidInputError(
            f"The mean loss {loss.name!r} must lie between {SMALLEST_RISK:g} and {LARGEST_RISK:g}, "
            f"or its square does not fit double precision. With equal weights it is {risk:.2g}. "
            f"{_other_unit(largest)}"
        )


def _other_unit(size: float) -> str:
    if not 0.0 < size < inf:
        return "Look for targets or predictions that are very large."
    factor = f"1e{-round(log10(size)):+d}"
    return f"Multiply targets and predictions by a constant, such as {factor}."


def _all_inside(domain: Interval, values: Array, slack: float = 0.0) -> bool:
    # The extremes decide, NaN among them, and no array of the size of P is made.
    return values.size == 0 or bool(domain.contains([values.min(), values.max()], slack).all())


def _share_outside(inside: NDArray[np.bool_]) -> str:
    outside = inside.size - int(inside.sum())
    return f"{outside} of {inside.size} values lie{'s' if outside == 1 else ''} outside"


def _accepting(domain: Callable[[Loss], Interval], values: Array) -> str:
    """Names of the losses, at their defaults, whose domain holds all of the values."""
    names = [name for name, make in LOSSES.items() if _all_inside(domain(make()), values)]
    return ", ".join(map(repr, names))


# A user's own loss is tried before it is trusted.


def try_loss(loss: Loss, y: Array, mixture: Array) -> None:
    """Try a loss: shape, finiteness, agreement of derivative with value, zero where all is right.

    The first, the middle and the last row are taken, and up to a thousand for the zero. A
    derivative agrees when it lies between the slopes of the value to the left and to the right, so
    a kink may have any subgradient; a mixture at the end of its domain is moved inside for this.

    y, mixture : (n,) or (n, K), inside the domains of the loss.

    >>> wrong = Loss("mine", lambda y, mu: (y - mu) ** 2, lambda y, mu: y - mu)
    >>> try_loss(wrong, np.array([1.0, 2.0, 3.0]), np.zeros(3))
    Traceback (most recent call last):
    ...
    localma.errors.InvalidInputError: Loss 'mine': the derivative must be that of the value in its \
second argument; at y=1, mu=0 it is 1, but the value changes with slope -2. Correct its derivative.
    """
    rows = np.unique([0, len(y) // 2, len(y) - 1])
    many = np.asarray(y[:: 1 + len(y) // 1000], dtype=np.float64)
    y, mixture = (np.asarray(array, dtype=np.float64)[rows] for array in (y, mixture))
    for role in ("value", "derivative"):
        _call_checked(loss, role, y, mixture)
    _check_zero(loss, many)
    if loss.location:
        _check_location(loss, y, mixture)
    _check_slopes(loss, y, _moved_inside(loss.prediction, mixture))


def _check_zero(loss: Loss, y: Array) -> None:
    """Refuse a loss that does not count from a perfect prediction, as a bare log-likelihood.

    Shrinkage and held-out evidence are in units of the risk, which a constant would inflate. A
    hundredth of what it costs to predict the mean is let pass: some losses are rounded off where
    they had a kink. Nothing is asked of targets that are no predictions, as zero under a logarithm.
    """
    y = y[loss.prediction.contains(y)]
    if not y.size:
        return
    with np.errstate(all="ignore"):
        perfect, usual = (
            np.asarray(loss.value(y, mu), dtype=np.float64) for mu in (y, np.full_like(y, y.mean()))
        )
    finite = usual[np.isfinite(usual)]
    allowed = max(1e-9, 0.01 * float(np.abs(finite).mean()) if finite.size else 0.0)
    wrong = np.isfinite(perfect) & (np.abs(perfect) > allowed)
    if wrong.any():
        first = int(wrong.argmax())
        raise InvalidInputError(
            f"Loss {loss.name!r}: its value must be zero for a perfect prediction, since shrinkage "
            f"and evidence are measured in units of the mean loss; at y={y[first]:g}, "
            f"mu={y[first]:g} it is {perfect[first]:g}. Return value(y, mu) - value(y, y) instead; "
            "the derivative stays as it is."
        )


def _check_location(loss: Loss, y: Array, mixture: Array) -> None:
    """Refuse a loss that depends on more than ``mu - y`` though it says that it does not."""
    value = _call_checked(loss, "value", y, mixture)
    with np.errstate(all="ignore"):
        moved = loss.value(y - y, mixture - y)
    if not np.allclose(value, moved, rtol=1e-6, atol=0.0):
        first = tuple(np.argwhere(~np.isclose(value, moved, rtol=1e-6, atol=0.0))[0])
        raise InvalidInputError(
            f"Loss {loss.name!r} says location=True, so its value must depend on mu - y alone; it "
            f"is {value[first]:g} at y={y[first]:g}, mu={mixture[first]:g}, and {moved[first]:g} "
            f"at y=0, mu={mixture[first] - y[first]:g}. Leave location= out."
        )


def _moved_inside(domain: Interval, mixture: Array) -> Array:
    inward = min(1.0, domain.high - domain.low) / 4
    mixture = np.where(mixture <= domain.low, domain.low + inward, mixture)
    return np.where(mixture >= domain.high, domain.high - inward, mixture)


def _check_slopes(loss: Loss, y: Array, mixture: Array) -> None:
    value = _call_checked(loss, "value", y, mixture)
    derivative = _call_checked(loss, "derivative", y, mixture)
    step = 1e-4 * np.where(mixture == 0, 1e-2, np.abs(mixture))
    for end in (loss.prediction.low, loss.prediction.high):
        step = np.minimum(step, 1e-3 * np.abs(mixture - end))
    left = (value - _call_checked(loss, "value", y, mixture - step)) / step
    right = (_call_checked(loss, "value", y, mixture + step) - value) / step
    # A thousandth for curvature that changes, and the rounding of a difference of two values.
    size = np.maximum(np.abs(derivative), np.maximum(np.abs(left), np.abs(right)))
    tolerance = 1e-3 * size + 16 * np.finfo(np.float64).eps * np.abs(value) / step
    below, above = np.minimum(left, right) - tolerance, np.maximum(left, right) + tolerance
    wrong = (derivative < below) | (derivative > above)
    if wrong.any():
        first = tuple(np.argwhere(wrong)[0])
        raise InvalidInputError(
            f"Loss {loss.name!r}: the derivative must be that of the value in its second argument; "
            f"at y={y[first]:g}, mu={mixture[first]:g} it is {derivative[first]:g}, but the value "
            f"changes with slope {(left[first] + right[first]) / 2:.4g}. Correct its derivative."
        )


def _call_checked(loss: Loss, role: str, y: Array, mixture: Array) -> Array:
    function = loss.value if role == "value" else loss.derivative
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(function(y, mixture), dtype=np.float64)
    except Exception as error:
        raise InvalidInputError(
            f"Loss {loss.name!r}: its {role} must map two arrays of shape {y.shape} to one; it "
            f"raised {type(error).__name__}: {error}. Try it on two arrays of three numbers."
        ) from error
    if result.shape != y.shape:
        raise InvalidInputError(
            f"Loss {loss.name!r}: its {role} must be elementwise, of shape {y.shape} here; it "
            f"returned shape {result.shape}. Leave means and sums over rows to the gate."
        )
    if not np.isfinite(result).all():
        first = tuple(np.argwhere(~np.isfinite(result))[0])
        raise InvalidInputError(
            f"Loss {loss.name!r}: its {role} must be finite; it is {result[first]:g} at "
            f"y={y[first]:g}, mu={mixture[first]:g}. Make it finite there, or declare the domains "
            "with target= and prediction=."
        )
    return result
