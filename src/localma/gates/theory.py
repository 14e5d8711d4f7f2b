"""The architecture that the paper's theorems ask for."""

from __future__ import annotations

import math

from localma.errors import InvalidInputError


def theorem_architecture(
    n: int, p: int, *, smoothness: float = 1.0, tail_index: float = 1.0, constant: float = 1.0
) -> tuple[int, ...]:
    """Hidden layers of the network in Theorems 1 to 3, for `MLPGate(hidden=...)`.

    Depth ``D = n^a ceil(log2(8 n^a))`` with ``a = 1 / (4 gamma + 4)``, and width
    ``p^(floor(kappa) + 1)``, both times a constant that the theorems leave open. A network of
    depth D has D - 1 hidden layers.

    Parameters
    ----------
    n, p : rows and inputs
    smoothness : kappa, of the Hölder class of the weight functions; its floor is the largest
        integer strictly below it
    tail_index : gamma, of the sub-Weibull loss: 0 bounded, 1/2 sub-Gaussian, 1 sub-exponential
    constant : the factor that the theorems leave open

    >>> theorem_architecture(10_000, 5)
    (5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5)
    >>> theorem_architecture(100, 5, smoothness=2.0, tail_index=0.5)[:2]
    (25, 25)
    """
    for name, value, least in (("n", n, 1), ("p", p, 1), ("tail_index", tail_index, 0)):
        if not value >= least:
            raise InvalidInputError(f"{name} must be at least {least}; received {value!r}.")
    for name, value in (("smoothness", smoothness), ("constant", constant)):
        if not value > 0:
            raise InvalidInputError(f"{name} must be positive; received {value!r}.")
    growth = n ** (1.0 / (4.0 * tail_index + 4.0))
    depth = math.ceil(constant * growth * math.ceil(math.log2(8.0 * growth)))
    width = math.ceil(constant * p ** math.ceil(smoothness))
    return (width,) * max(depth - 1, 1)
