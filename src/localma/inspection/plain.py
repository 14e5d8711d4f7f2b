"""Plain values: what JSON can hold, so that a summary can be stored, sent and put on a page."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Turn arrays into lists, NumPy scalars into Python's, and what is not finite into None.

    >>> plain({"risk": np.float64(0.5), "error": float("nan"), "n": np.array([1, 2])})
    {'risk': 0.5, 'error': None, 'n': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
