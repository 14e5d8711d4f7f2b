"""Checks of targets, predictions and users' own losses against the rules of a loss."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, log10
from typing import Literal

import numpy as np

from localma._types import Array, RowMask
from localma.errors import InvalidInputError
from localma.losses import LOSSES, Interval, Loss, is_registered
from localma.tables.frames import without_mask

PROBABILITY_ROUNDING = 1e-6
"""How far a candidate's probability may lie outside [0, 1]: the rounding of single precision."""

SMALLEST_SIZE, LARGEST_SIZE = 1e-70, 1e70
SMALLEST_RISK, LARGEST_RISK = 1e-150, 1e150
"""Sizes of targets and of mean losses whose squares, as in standard errors, are finite numbers."""

EPSILON = float(np.finfo(np.float64).eps)

Role = Literal["value", "derivative"]


def check_sample(loss: Loss, y: Array, P: Array, names: Sequence[str]) -> None:
    """Make all checks of a labelled sample against a loss.

    y : (n, K), P : (n, M, K), names : names of the M candidates.
    """
    if P.shape[2] != y.shape[1]:
        raise InvalidInputError(
            "Predictions and target must have the same number of outputs: the candidates give "
            f"{P.shape[2]}, y has {y.shape[1]}. Pass y of shape (n, K) with candidates that return "
            "(n, K)."
        )
    check_targets(loss, y)
    check_predictions(loss, P, names)
    if not is_registered(loss):
        try_loss(loss, y, P.mean(axis=1))
    check_unit(loss, y, P)


def check_targets(loss: Loss, y: Array) -> None:
    """Refuse targets outside the domain of a loss.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : array of shape (n,) or (n, K)
        The targets.

    Examples
    --------
    >>> from localma.losses import poisson
    >>> check_targets(poisson(), np.array([0.0, 3.0]))
    """
    y = without_mask(y, "y")
    if _all_inside(loss.target, y):
        return
    inside = loss.target.contains(y)
    row, *output = index = _first_index(~inside)
    if not np.isfinite(y).all():
        remedy = "Drop or complete the rows whose target is not finite."
    else:
        accepting = [name for name, make in LOSSES.items() if _all_inside(make().target, y)]
        remedy = f"Correct the targets, or use a loss that accepts them: {_quoted(accepting)}."
    raise InvalidInputError(
        f"Loss {loss.name!r} takes targets in {loss.target}; received {float(y[index]):g} in "
        f"{_cell(row, output)} ({_count_outside(inside)}). {remedy}"
    )


def check_predictions(loss: Loss, P: Array, names: Sequence[str] | None = None) -> None:
    """Refuse predictions of candidates outside the domain of a loss.

    Probabilities may lie outside [0, 1] by `PROBABILITY_ROUNDING`.

    Parameters
    ----------
    loss : Loss
        The loss.
    P : array of shape (n, M) or (n, M, K)
        The predictions.
    names : sequence of str, optional
        Names of the M candidates.

    Examples
    --------
    >>> from localma.losses import poisson
    >>> check_predictions(poisson(), np.array([[0.0, 3.0]]))
    """
    P = without_mask(P, "predictions")
    slack = 0.0
    if isfinite(loss.prediction.low) and isfinite(loss.prediction.high):
        slack = PROBABILITY_ROUNDING
    if _all_inside(loss.prediction, P, slack):
        return
    inside = loss.prediction.contains(P, slack)
    row, m, *output = index = _first_index(~inside)
    name = repr(names[m]) if names is not None else str(m)
    remedy = "Correct that candidate or leave it out"
    if np.isfinite(P).all():
        accepting = [key for key, make in LOSSES.items() if _all_inside(make().prediction, P)]
        remedy += f", or use a loss that accepts its predictions: {_quoted(accepting)}"
    raise InvalidInputError(
        f"Loss {loss.name!r} takes predictions in {loss.prediction}; candidate {name} predicts "
        f"{float(P[index]):g} in {_cell(row, output)} ({_count_outside(inside)}). {remedy}."
    )


def check_unit(loss: Loss, y: Array, P: Array) -> None:
    """Refuse targets and predictions in a unit so small or large that a loss loses its digits.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : array of shape (n, K)
        Targets inside the domain of the loss.
    P : array of shape (n, M, K)
        Predictions inside the domain of the loss. About a thousand rows are checked.

    Examples
    --------
    >>> from localma.losses import squared_error
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
            f"{size:.2g} on average. {_suggest_unit(size)}"
        )
    if largest != 0.0 and not SMALLEST_SIZE < largest < LARGEST_SIZE:
        raise InvalidInputError(
            f"Targets and predictions must lie between {SMALLEST_SIZE:g} and {LARGEST_SIZE:g} in "
            f"size, or losses do not fit double precision. Their mean size is {largest:.2g}. "
            f"{_suggest_unit(largest)}"
        )
    if risk != 0.0 and not SMALLEST_RISK < abs(risk) < LARGEST_RISK:
        raise InvalidInputError(
            f"The mean loss {loss.name!r} must lie between {SMALLEST_RISK:g} and {LARGEST_RISK:g}, "
            f"or its square does not fit double precision. With equal weights it is {risk:.2g}. "
            f"{_suggest_unit(largest)}"
        )


def _suggest_unit(size: float) -> str:
    if not 0.0 < size < inf:
        return "Look for targets or predictions that are very large."
    factor = f"1e{-round(log10(size)):+d}"
    return f"Multiply targets and predictions by a constant, such as {factor}."


def _all_inside(domain: Interval, values: Array, slack: float = 0.0) -> bool:
    # The extremes decide, and NaN is one of them, so no array of the size of P is made.
    return values.size == 0 or bool(domain.contains([values.min(), values.max()], slack).all())


def _first_index(mask: RowMask) -> tuple[int, ...]:
    """Index of the first true element."""
    return tuple(np.argwhere(mask)[0])


def _cell(row: int, output: Sequence[int]) -> str:
    return ", ".join([f"row {row}", *(f"output {k}" for k in output)])


def _count_outside(inside: RowMask) -> str:
    n_outside = inside.size - int(inside.sum())
    verb = "lies" if n_outside == 1 else "lie"
    return f"{n_outside} of {inside.size} values {verb} outside"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


# Trials of a user's own loss.


def try_loss(loss: Loss, y: Array, mixture: Array) -> None:
    """Check shape, finiteness and derivative of a loss, and that perfect predictions cost nothing.

    The first, the middle and the last row are tried, and up to a thousand rows for the zero. A
    derivative is correct if it lies between the slopes of the value to the left and to the right,
    so any subgradient is allowed at a kink. A mixture at the end of its domain is moved inside.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : array of shape (n,) or (n, K)
        Targets inside the domain of the loss.
    mixture : array of the same shape
        Averaged predictions inside the domain of the loss.

    Examples
    --------
    >>> wrong = Loss("mine", lambda y, mu: (y - mu) ** 2, lambda y, mu: y - mu)
    >>> try_loss(wrong, np.array([1.0, 2.0, 3.0]), np.zeros(3))
    Traceback (most recent call last):
    ...
    localma.errors.InvalidInputError: Loss 'mine': the derivative must be that of the value in its \
second argument; at y=1, mu=0 it is 1, but the value changes with slope -2. Correct its derivative.
    """
    rows = np.unique([0, len(y) // 2, len(y) - 1])
    sample = np.asarray(y[:: 1 + len(y) // 1000], dtype=np.float64)
    y, mixture = (np.asarray(array, dtype=np.float64)[rows] for array in (y, mixture))
    _call(loss, "value", y, mixture)
    _call(loss, "derivative", y, mixture)
    _check_zero(loss, sample)
    if loss.location:
        _check_location(loss, y, mixture)
    _check_slopes(loss, y, _move_inside(loss.prediction, mixture))


def _check_zero(loss: Loss, y: Array) -> None:
    """Refuse a loss that is not zero for a perfect prediction, such as a bare log-likelihood.

    Shrinkage and held-out evidence are in units of the risk, which a constant would inflate. A
    hundredth of the loss of the mean is allowed, because some losses are rounded off at a kink.
    Targets that are not valid predictions, such as zero under a logarithm, are left out.
    """
    y = y[loss.prediction.contains(y)]
    if not y.size:
        return
    with np.errstate(all="ignore"):
        perfect, usual = (
            np.asarray(loss.value(y, mu), dtype=np.float64) for mu in (y, np.full_like(y, y.mean()))
        )
    finite = np.abs(usual[np.isfinite(usual)])
    allowed = max(1e-9, 0.01 * float(finite.sum()) / max(finite.size, 1))
    wrong = np.isfinite(perfect) & (np.abs(perfect) > allowed)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"Loss {loss.name!r}: its value must be zero for a perfect prediction, since shrinkage "
            f"and evidence are measured in units of the mean loss; at y={y[row]:g}, "
            f"mu={y[row]:g} it is {perfect[row]:g}. Return value(y, mu) - value(y, y) instead; "
            "the derivative stays as it is."
        )


def _check_location(loss: Loss, y: Array, mixture: Array) -> None:
    """Refuse a loss with location=True that depends on more than ``mu - y``."""
    value = _call(loss, "value", y, mixture)
    with np.errstate(all="ignore"):
        moved = loss.value(y - y, mixture - y)
    differs = ~np.isclose(value, moved, rtol=1e-6, atol=0.0)
    if differs.any():
        index = _first_index(differs)
        raise InvalidInputError(
            f"Loss {loss.name!r} says location=True, so its value must depend on mu - y alone; it "
            f"is {value[index]:g} at y={y[index]:g}, mu={mixture[index]:g}, and {moved[index]:g} "
            f"at y=0, mu={mixture[index] - y[index]:g}. Leave location= out."
        )


def _move_inside(domain: Interval, mixture: Array) -> Array:
    inward = min(1.0, domain.high - domain.low) / 4
    mixture = np.where(mixture <= domain.low, domain.low + inward, mixture)
    return np.where(mixture >= domain.high, domain.high - inward, mixture)


def _check_slopes(loss: Loss, y: Array, mixture: Array) -> None:
    value = _call(loss, "value", y, mixture)
    derivative = _call(loss, "derivative", y, mixture)
    step = 1e-4 * np.where(mixture == 0, 1e-2, np.abs(mixture))
    for end in (loss.prediction.low, loss.prediction.high):
        step = np.minimum(step, 1e-3 * np.abs(mixture - end))
    left = (value - _call(loss, "value", y, mixture - step)) / step
    right = (_call(loss, "value", y, mixture + step) - value) / step
    # A thousandth for curvature that changes, and the rounding of a difference of two values.
    size = np.maximum(np.abs(derivative), np.maximum(np.abs(left), np.abs(right)))
    tolerance = 1e-3 * size + 16 * EPSILON * np.abs(value) / step
    lowest, highest = np.minimum(left, right) - tolerance, np.maximum(left, right) + tolerance
    wrong = (derivative < lowest) | (derivative > highest)
    if wrong.any():
        index = _first_index(wrong)
        raise InvalidInputError(
            f"Loss {loss.name!r}: the derivative must be that of the value in its second argument; "
            f"at y={y[index]:g}, mu={mixture[index]:g} it is {derivative[index]:g}, but the value "
            f"changes with slope {(left[index] + right[index]) / 2:.4g}. Correct its derivative."
        )


def _call(loss: Loss, role: Role, y: Array, mixture: Array) -> Array:
    """Call the value or the derivative of a loss, and check its result."""
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(getattr(loss, role)(y, mixture), dtype=np.float64)
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
        index = _first_index(~np.isfinite(result))
        raise InvalidInputError(
            f"Loss {loss.name!r}: its {role} must be finite; it is {result[index]:g} at "
            f"y={y[index]:g}, mu={mixture[index]:g}. Make it finite there, or declare the domains "
            "with target= and prediction=."
        )
    return result
