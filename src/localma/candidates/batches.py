"""How many rows to a call: a number, all of them, or what an amount of memory allows."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
from scipy.sparse import issparse

from localma.errors import InvalidInputError
from localma.tables.frames import take_rows

BatchSize = int | str | None

AUTO_MEMORY = 256 * 2**20
"""Bytes that ``batch_size="auto"`` lets a call take beyond the model itself."""
WORKING_COPIES = 48
"""What a network holds of a row at once, in sizes of that row, where nobody has measured it."""
LEAST_ROW_BYTES = 16 * 2**10
"""A narrow table still meets wide layers: no row is taken to need less."""

_UNITS = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def checked_batch_size(batch_size: Any) -> BatchSize:
    """Refuse what is neither None, a whole number, "auto" nor an amount of memory.

    >>> checked_batch_size("512 MiB")
    '512 MiB'
    """
    if batch_size is None:
        return None
    if isinstance(batch_size, str):
        memory_bytes(batch_size)
        return batch_size
    whole = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool)
    if not whole or batch_size < 1:
        raise InvalidInputError(
            f"batch_size must be None or a whole number, one or more; received {batch_size!r}. "
            "Or 'auto', or an amount of memory such as '256 MiB', which sets the number of rows."
        )
    return int(batch_size)


def memory_bytes(amount: str) -> int:
    """An amount of memory in bytes.

    >>> memory_bytes("1.5 KiB"), memory_bytes("auto") == AUTO_MEMORY
    (1536, True)
    """
    if amount == "auto":
        return AUTO_MEMORY
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", amount)
    unit = _UNITS.get(match[2].upper()) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if size < 1:
        raise InvalidInputError(
            "A batch_size in words is 'auto' or an amount of memory such as '256 MiB' or '2 GB'; "
            f"received {amount!r}."
        )
    return size


def rows_within(amount: str, row_bytes: int) -> int:
    """Rows to a call so that it stays within an amount of memory, at least one.

    >>> rows_within("1 MiB", 16 * 1024), rows_within("1 KiB", 16 * 1024)
    (64, 1)
    """
    return max(1, memory_bytes(amount) // max(1, row_bytes))


def working_bytes(*inputs: Any) -> int:
    """Guess from its inputs what a row takes while a network answers.

    The guess depends on them alone, so that the same rows always make the same batches.

    >>> working_bytes(np.zeros((5, 3, 32, 32), dtype=np.float32)) == 48 * 3 * 32 * 32 * 4
    True
    """
    return max(LEAST_ROW_BYTES, WORKING_COPIES * sum(input_row_bytes(X) for X in inputs))


def input_row_bytes(X: Any) -> int:
    """Bytes of the first row of X, whatever X is.

    >>> input_row_bytes(np.zeros((5, 3))), input_row_bytes(["four", "a longer text"])
    (24, 4)
    """
    first = take_rows(X, slice(0, 1))
    shape = getattr(first, "shape", None)
    if issparse(first) or (shape and not isinstance(getattr(first, "nbytes", None), int)):
        return 8 * prod(first.shape)
    if isinstance(first, list | tuple):
        first = first[0]
    if isinstance(first, str | bytes):
        return len(first)
    return int(getattr(first, "nbytes", 8))
