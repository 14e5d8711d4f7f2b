"""Rows of any X as batches for a PyTorch module. Imported at use: it needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from localma.tables.frames import n_rows

Rows = NDArray[np.intp]
# What user code and modules raise where an input does not suit them.
FAILURES = (
    TypeError,
    ValueError,
    RuntimeError,
    LookupError,
    AttributeError,
    OSError,
    ArithmeticError,
)


@dataclass(frozen=True)
class Inputs:
    """The rows of X, read batch by batch: `preprocess` each row, `collate` a list of them."""

    X: Any
    preprocess: Callable[[Any], Any] | None = None
    collate: Callable[[list[Any]], Any] | None = None

    def __len__(self) -> int:
        return n_rows(self.X)

    def batch(self, rows: Rows) -> Any:
        """A tensor, a tuple or dict of them, or whatever `collate` makes of some rows."""
        if self.preprocess is None and self.collate is None and _is_array(self.X):
            return as_batch(self.X[rows])
        items = [self._item(int(row)) for row in rows]
        collate = as_batch if self.collate is None else self.collate
        try:
            return collate(items)
        except FAILURES as error:
            raise InvalidInputError(
                f"collate of TorchGate must make a batch of a list of rows; it failed on rows "
                f"{_listed(rows)}, {_described(items[0])} first ({_words(error)}). Pass collate= "
                "a function of such a list, or preprocess= a function that makes rows alike."
            ) from error

    def bytes_of(self, rows: Rows) -> bytes:
        """Some rows as the module sees them, to recognise the same inputs by."""
        return _bytes(self.batch(rows))

    def shape(self, rows: Rows) -> tuple[int, ...] | None:
        """Shape of one input; None where a batch is not one tensor of floating numbers."""
        batch = self.batch(rows)
        single = isinstance(batch, torch.Tensor) and batch.is_floating_point()
        return tuple(batch.shape[1:]) if single else None

    def _item(self, row: int) -> Any:
        try:
            item = _row(self.X, row)
            return item if self.preprocess is None else self.preprocess(item)
        except FAILURES as error:
            raise InvalidInputError(
                f"Every row of X must be readable; row {row} is not ({_words(error)}). Mend or "
                "drop that row, or pass preprocess= a function that reads it."
            ) from error


def as_batch(items: Any) -> Any:
    """Make a batch: numbers a tensor (floating ones in float32), texts a list, records by field.

    >>> as_batch([[1.0, 2.0], [3.0, 4.0]]).shape
    torch.Size([2, 2])
    >>> as_batch(["a text", "another"])
    ['a text', 'another']
    """
    first = items[0]
    if isinstance(items, np.ndarray | torch.Tensor):
        return _tensor(items)
    if isinstance(first, str | bytes):
        return list(items)
    if isinstance(first, Mapping):
        return {name: as_batch([item[name] for item in items]) for name in first}
    if isinstance(first, tuple):
        return tuple(as_batch(list(column)) for column in zip(*items, strict=True))
    if isinstance(first, torch.Tensor):
        return _tensor(torch.stack(list(items)))
    return _tensor(np.stack([np.asarray(item) for item in items]))


def call(module: torch.nn.Module, batch: Any, n: int, n_candidates: int) -> torch.Tensor:
    """Logits of a batch of n rows: (n, M), checked."""
    try:
        if isinstance(batch, Mapping):
            output = module(**batch)
        elif isinstance(batch, tuple):
            output = module(*batch)
        else:
            output = module(batch)
    except FAILURES as error:
        raise InvalidInputError(
            f"The module of TorchGate must take a batch; it failed on {_described(batch)} "
            f"({_words(error)}). Make batches that it takes with preprocess= or collate=; where "
            "memory is short, lower batch_size."
        ) from error
    logits = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != n:
        raise InvalidInputError(
            f"The module of TorchGate must return logits of shape (rows, candidates), here ({n}, "
            f"{n_candidates}); received {_described(logits)}. Let it end in a layer such as "
            f"torch.nn.Linear(width, {n_candidates})."
        )
    if logits.shape[1] != n_candidates:
        raise InvalidInputError(
            f"The module of TorchGate must return one logit per candidate; there are "
            f"{n_candidates} candidates, and it returned {logits.shape[1]} logits. Pass a function "
            "of the number of candidates that makes the module."
        )
    return logits


def check_finite(logits: torch.Tensor) -> None:
    """Refuse logits that are no numbers."""
    if not bool(torch.isfinite(logits).all()):
        row = int((~torch.isfinite(logits)).any(dim=1).nonzero()[0])
        raise InvalidInputError(
            f"The logits of TorchGate's module must be finite; row {row} of a batch has "
            f"{logits[row].tolist()}. Look for inputs that are missing or very large, or lower "
            "learning_rate."
        )


def _is_array(X: Any) -> bool:
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "biuf"
    return isinstance(X, torch.Tensor)


def _row(X: Any, row: int) -> Any:
    # The index of a pandas series need not be positions.
    return X.iloc[row] if hasattr(X, "iloc") else X[row]


def _tensor(values: NDArray[Any] | torch.Tensor) -> torch.Tensor:
    """Numbers as float32, int64 or bool, which is what modules take."""
    tensor = torch.as_tensor(
        np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values
    )
    if tensor.is_floating_point():
        return tensor.to(torch.float32)
    return tensor if tensor.dtype in (torch.bool, torch.uint8) else tensor.to(torch.int64)


def _bytes(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)}".encode() + value.cpu().contiguous().numpy().tobytes()
    if isinstance(value, Mapping):
        return b"".join(str(name).encode() + _bytes(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return b"".join(_bytes(item) for item in value)
    return repr(value).encode()


def _listed(rows: Rows) -> str:
    shown = ", ".join(str(row) for row in rows[:3])
    return f"{shown}, ..." if len(rows) > 3 else shown


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"a {type(value).__name__} of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, Mapping):
        return f"a dict of {sorted(value)}"
    return f"a {type(value).__name__}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
