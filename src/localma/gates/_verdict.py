"""What locality is worth, in one sentence."""

from __future__ import annotations

from math import isnan

from localma.selection import LocalityGain
from localma.wording import readable

RELEVANT = 0.001
"""Nobody need change a gate for a smaller part of the risk, however clear it is."""


def verdict(gain: LocalityGain, local: float | None) -> str:
    """Say what local weights are worth; local : their part of the answer, None if there are none.

    >>> verdict(LocalityGain(0.5, 0.1, 2.0, 1.5, 0.4, 0.1), 1.0)
    'Local weights pay: they lower the held-out loss by 0.5 ± 0.1, from 2 with fitted constant \
weights to 1.5 (25% lower).'
    """
    value, error = readable(gain.value), readable(gain.standard_error, 2)
    before = f"{readable(gain.global_risk)} with fitted constant weights"
    change = f"held-out loss changes by {readable(-gain.value)}"
    if isnan(gain.standard_error):
        return (
            f"Whether local weights pay is unknown: one row or one group judged. The {change} from "
            f"{before}."
        )
    if local is None:
        return (
            f"Constant weights suffice: no local weights are used. The {change} ± {error} from "
            f"{before}."
        )
    if gain.is_local:
        return (
            f"Local weights pay: they lower the held-out loss by {value} ± {error}, from {before} "
            f"to {readable(gain.risk)} ({gain.value / abs(gain.global_risk):.0%} lower)."
        )
    if gain.is_clear and gain.value > 0:
        beside = f"{readable(-gain.over_constant)} ± {readable(gain.over_constant_error, 2)}"
        if gain.is_of_constants:
            return (
                f"Constant weights suffice: the {change} ± {error} from {before}, but equal "
                f"weights or a single candidate do that; beside them local weights change it by "
                f"{beside}."
            )
        return (
            f"Local weights make up {local:.0%} of the answer: the {change} ± {error} from "
            f"{before}, but beside equal weights or a single candidate by {beside}, which is no "
            "clear gain."
        )
    if gain.is_clear and -gain.value > RELEVANT * abs(gain.global_risk):
        return (
            f"Local weights do not pay: they raise the held-out loss by {readable(-gain.value)} ± "
            f"{error}, from {before}; gate='global' is the better choice here."
        )
    return (
        f"Local weights make up {local:.0%} of the answer, without a clear gain: the {change} ± "
        f"{error} from {before}."
    )
