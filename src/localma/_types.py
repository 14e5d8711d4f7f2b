"""Types that several rooms share: arrays by their meaning, and JSON."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating]
"""Real numbers of either precision."""

Float64: TypeAlias = NDArray[np.float64]
Float32: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.intp]
Int32: TypeAlias = NDArray[np.int32]
Bytes: TypeAlias = NDArray[np.uint8]

Rows: TypeAlias = NDArray[np.intp]
"""Indices of rows: (n_rows,)."""

RowMask: TypeAlias = NDArray[np.bool_]
"""Which rows are selected: (n,)."""

AnyArray: TypeAlias = NDArray[np.generic]
"""An array of any type: labels, texts, dates or numbers."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value as JSON stores it."""

RandomState: TypeAlias = int | np.random.RandomState | None
"""A seed or a generator, as scikit-learn takes them."""
