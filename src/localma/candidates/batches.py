"""Rows per call: a number, all rows, or as many as an amount of memory allows."""

from __future__ import annotations

import re
from math import prod

import numpy as np
from scipy.sparse import issparse

from localma._types import Array
from localma.candidates.outputs import Rows, Table
from localma.errors import CandidateError, InvalidInputError
from localma.tables.frames import take_rows

BatchSize = int | str | None

AUTO_MEMORY = 256 * 2**20
"""Bytes that a call may use with ``batch_size="auto"``, in addition to the model itself."""
WORKING_COPIES = 48
"""Estimated memory of a network per row, as a multiple of the size of the input row."""
LEAST_ROW_BYTES = 16 * 2**10
"""Lower bound of that estimate: a network with few inputs can still have wide layers."""

_UNITS = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def checked_batch_size(batch_size: BatchSize) -> BatchSize:
    """Check that it is None, a whole number, "auto" or an amount of memory.

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
            "batch_size must be None, a whole number of one or more, 'auto', or an amount of "
            f"memory such as '256 MiB'; received {batch_size!r}."
        )
    return int(batch_size)


def memory_bytes(amount: str) -> int:
    """Return an amount of memory in bytes.

    >>> memory_bytes("1.5 KiB"), memory_bytes("auto") == AUTO_MEMORY
    (1536, True)
    """
    if amount == "auto":
        return AUTO_MEMORY
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", amount)
    size = int(float(match[1]) * _UNITS.get(match[2].upper(), 0)) if match else 0
    if size < 1:
        raise InvalidInputError(
            "batch_size as a string is 'auto' or an amount of memory such as '256 MiB' or '2 GB'; "
            f"received {amount!r}."
        )
    return size


def rows_within(amount: str, row_bytes: int) -> int:
    """Return the number of rows that fit into an amount of memory, at least one.

    >>> rows_within("1 MiB", 16 * 1024), rows_within("1 KiB", 16 * 1024)
    (64, 1)
    """
    return max(1, memory_bytes(amount) // max(1, row_bytes))


def working_bytes(*inputs: Table) -> int:
    """Estimate the memory that a network needs per row, from its inputs.

    The estimate depends on the inputs only, so the same rows always make the same batches.

    >>> working_bytes(np.zeros((5, 3, 32, 32), dtype=np.float32)) == 48 * 3 * 32 * 32 * 4
    True
    """
    return max(LEAST_ROW_BYTES, WORKING_COPIES * sum(input_row_bytes(X) for X in inputs))


def input_row_bytes(X: Table) -> int:
    """Return the number of bytes of the first row of X.

    >>> input_row_bytes(np.zeros((5, 3))), input_row_bytes(["four", "a longer text"])
    (24, 4)
    """
    row = take_rows(X, slice(0, 1))
    shape = getattr(row, "shape", None)
    if issparse(row) or (shape and not isinstance(getattr(row, "nbytes", None), int)):
        return 8 * prod(row.shape)
    if isinstance(row, list | tuple):
        row = row[0]
    if isinstance(row, str | bytes):
        return len(row)
    return int(getattr(row, "nbytes", 8))


def listed_rows(rows: Rows) -> str:
    """Row numbers for an error message; at most five if they are not consecutive.

    >>> listed_rows([3, 4, 5]), listed_rows([1, 2, 4])
    ('rows 3 to 5', 'rows 1, 2, 4')
    """
    start, last, count = rows[0], rows[-1], len(rows)
    if last - start + 1 == count:
        return f"rows {start} to {last}"
    numbers = ", ".join(str(row) for row in rows[:5])
    return f"rows {numbers}" + f" and {count - 5} more, the last {last}" * (count > 5)


def joined(batches: list[Array], name: str) -> Array:
    """Join the predictions of all batches; an error if their numbers of outputs differ."""
    if len(batches) == 1:
        return batches[0]
    shapes = {batch.shape[1:] for batch in batches}
    if len(shapes) > 1:
        raise CandidateError(
            f"Candidate {name!r} returned a different number of outputs from one batch of rows to "
            f"the next: {sorted(shapes)}; return the same columns for all rows.",
            candidate=name,
        )
    return np.concatenate(batches)
