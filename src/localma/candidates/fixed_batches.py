"""Networks that were exported for a fixed number of rows, fed any number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feed = dict[Any, Any]


def in_fixed_batches(
    run: Callable[[Feed], NDArray[Any]], feed: Feed, n: int, size: int | None
) -> NDArray[Any]:
    """Run a network on n rows, `size` at a time, the last rows filled up by repeating the last.

    Parameters
    ----------
    run : from inputs of `size` rows to outputs of `size` rows.
    feed : arrays or tensors of n rows, by name or position.
    size : rows that the network takes; None if it takes any number.

    Examples
    --------
    >>> def three_only(feed):
    ...     assert len(feed["x"]) == 3
    ...     return 2 * feed["x"]
    >>> in_fixed_batches(three_only, {"x": np.arange(4)}, 4, 3).tolist()
    [0, 2, 4, 6]
    """
    if size is None or size == n:
        return run(feed)
    pieces = []
    for start in range(0, n, size):
        rows = np.minimum(np.arange(start, start + size), n - 1)
        answer = run({key: values[rows] for key, values in feed.items()})
        pieces.append(answer[: n - start])
    return np.concatenate(pieces)
