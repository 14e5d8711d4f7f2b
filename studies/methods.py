"""The methods that studies compare, and their gates."""

from __future__ import annotations

from typing import Any

import numpy as np

from localma import LocalMARegressor

GATE_OF = {"paper": "paper", "auto": "auto", "gw": "global", "ewma": "equal"}
"""Method -> gate: LocalMA of the paper and of this package, global and equal weights."""

LABELS = {"paper": "LocalMA (paper)", "auto": "LocalMA (auto)", "gw": "GW", "ewma": "EWMA"}

PUBLISHED_AS = {"paper": "LocalMA", "auto": "LocalMA", "gw": "GW", "ewma": "EWMA"}


def fit(
    gate: Any, X: Any, P: Any, y: Any, seed: np.random.SeedSequence, loss: str = "squared_error"
) -> LocalMARegressor:
    """Fit the public estimator to predictions P (n, M); gate: a method or a Gate."""
    random_state = int(seed.generate_state(1)[0] >> 1)
    gate = GATE_OF[gate] if isinstance(gate, str) else gate
    return LocalMARegressor(gate=gate, loss=loss, random_state=random_state).fit(
        X, y, predictions=P
    )
