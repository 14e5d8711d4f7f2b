"""What locality is worth, in one sentence."""

from __future__ import annotations

from math import isnan

from localma.evidence import LocalityGain
from localma.wording import readable


def verdict(gain: LocalityGain, local: float | None) -> str:
    """Say what local weights are worth; local : their part of the answer, None if there are none.

    >>> verdict(LocalityGain(0.5, 0.1, 2.0, 1.5, 0.4, 0.1), 1.0)
    'Local weights pay: they lower the held-out loss by 0.5 ± 0.1, from 2 with fitted constant \
weights to 1.5 (25% lower).'
    """
    value, error = readable(gain.value), readable(gain.standard_error, 2)
    before = f"{readable(gain.global_risk)} with fitted constant weights"
    change = f"held-out loss changes by {readable(-gain.value)}"
    if gain.beside_baseline.is_idle:
        return (
            f"The combined prediction is not better than the best constant prediction: its "
            f"held-out loss is {readable(gain.risk)}, and that of the constant is "
            f"{readable(gain.baseline_risk)} (difference {readable(-gain.over_baseline)} ± "
            f"{readable(gain.over_baseline_error, 2)}). No gain of local weights is claimed."
        )
    if isnan(gain.standard_error):
        return (
            f"Whether local weights pay is unknown: one row or one group judged. The {change} from "
            f"{before}."
        )
    if local is None:
        size = f"{readable(-gain.value)} ± {error}"
        if gain.is_negligible:
            size = "less than 0.1%"
        return (
            "Constant weights suffice: no local weights are used. The held-out loss changes by "
            f"{size} from {before}."
        )
    if gain.is_negligible:
        return (
            f"Constant weights suffice: local weights change the held-out loss by less than 0.1% "
            f"from {before}."
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
    if gain.is_clear:
        return (
            f"Local weights do not pay: they raise the held-out loss by {readable(-gain.value)} ± "
            f"{error}, from {before}; global weights are the better choice here."
        )
    return (
        f"Local weights make up {local:.0%} of the answer, without a clear gain: the {change} ± "
        f"{error} from {before}."
    )
