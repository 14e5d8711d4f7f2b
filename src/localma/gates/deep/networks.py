"""A PyTorch module as a gate: rows to batches, batches to logits, start at the global weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from localma._types import AnyArray, Array, Rows
from localma.errors import FileFormatError, InvalidInputError
from localma.gates.constant import floored
from localma.gates.deep.torch_ import Collate, MakeModule, Preprocess
from localma.gates.labelled import RowSource

Batch: TypeAlias = "Tensor | list[str] | list[bytes] | dict[str, Batch] | tuple[Batch, ...]"
"""The input of a module: one tensor, texts, or several of these, by name or in order."""

FAILURES = (
    TypeError,
    ValueError,
    RuntimeError,
    LookupError,
    AttributeError,
    OSError,
    ArithmeticError,
)
"""Errors that modules and functions of users raise if they cannot process an input."""


# Rows to batches.


@dataclass(frozen=True)
class Inputs:
    """The rows of X, read batch by batch: `preprocess` each row, then `collate` a list of them."""

    X: RowSource
    preprocess: Preprocess | None = None
    collate: Collate | None = None

    def batch(self, rows: Rows) -> Batch:
        """Return the batch that `collate` makes of these rows."""
        if self.preprocess is None and self.collate is None and _is_numeric(self.X):
            return as_batch(self.X[rows])
        items = [self._item(int(row)) for row in rows]
        try:
            return (self.collate or as_batch)(items)
        except FAILURES as error:
            listed = ", ".join(map(str, rows[:3])) + ", ..." * (len(rows) > 3)
            raise InvalidInputError(
                f"collate of TorchGate must make a batch of a list of rows; it failed on the rows "
                f"{listed}, the first of which is {_described(items[0])} ({_named(error)}). Pass "
                "collate= a function of such a list, or preprocess= a function that gives all rows "
                "one form."
            ) from error

    def shape(self, rows: Rows) -> tuple[int, ...] | None:
        """Return the shape of one input; None if a batch is not a single tensor of floats."""
        batch = self.batch(rows)
        if isinstance(batch, Tensor) and batch.is_floating_point():
            return tuple(batch.shape[1:])
        return None

    def _item(self, row: int) -> Any:
        try:
            item = getattr(self.X, "iloc", self.X)[row]  # a pandas index need not be 0, 1, ...
            return item if self.preprocess is None else self.preprocess(item)
        except FAILURES as error:
            raise InvalidInputError(
                f"Every row of X must be readable; row {row} is not ({_named(error)}). Correct or "
                "drop that row, or pass preprocess= a function that reads it."
            ) from error


def as_batch(items: Any) -> Batch:
    """Make a batch: of numbers a tensor (floats in float32), of texts a list, of records a dict.

    >>> as_batch([[1.0, 2.0], [3.0, 4.0]]).shape
    torch.Size([2, 2])
    >>> as_batch(["a text", "another"])
    ['a text', 'another']
    """
    if isinstance(items, np.ndarray | Tensor):
        return _as_tensor(items)
    item = items[0]
    if isinstance(item, str | bytes):
        return list(items)
    if isinstance(item, Mapping):
        return {name: as_batch([item[name] for item in items]) for name in item}
    if isinstance(item, tuple):
        return tuple(as_batch(list(column)) for column in zip(*items, strict=True))
    if isinstance(item, Tensor):
        return _as_tensor(torch.stack(list(items)))
    return _as_tensor(np.stack([np.asarray(item) for item in items]))


def _as_tensor(values: AnyArray | Tensor) -> Tensor:
    """Convert numbers to the types that modules take: float32, int64, uint8 or bool."""
    if isinstance(values, np.ndarray):
        values = torch.as_tensor(np.ascontiguousarray(values))
    if values.is_floating_point():
        return values.to(torch.float32)
    if values.dtype in (torch.bool, torch.uint8):
        return values
    return values.to(torch.int64)


def _is_numeric(X: RowSource) -> bool:
    return isinstance(X, Tensor) or (isinstance(X, np.ndarray) and X.dtype.kind in "biuf")


def batch_bytes(batch: Batch) -> bytes:
    """Return the bytes of a batch, to recognize the same inputs."""
    if isinstance(batch, Tensor):
        return f"{tuple(batch.shape)}".encode() + batch.cpu().contiguous().numpy().tobytes()
    if isinstance(batch, Mapping):
        return b"".join(str(name).encode() + batch_bytes(value) for name, value in batch.items())
    if isinstance(batch, tuple):
        return b"".join(batch_bytes(value) for value in batch)
    return repr(batch).encode()


# Batches to logits.


class GateNetwork(nn.Module):
    """Logits ``log w_global + d(x)``: a batch of n rows -> (n, M), in float32.

    `module` is d. `head` is a linear layer on top of it, if d cannot start at zero without it. The
    global weights (M,) are moved a little towards equal ones, so that their logarithms are finite.
    """

    log_weights: Tensor

    def __init__(self, module: nn.Module, global_weights: Array) -> None:
        super().__init__()
        self.module = module
        self.head: nn.Linear | None = None
        log_weights = np.log(floored(global_weights))
        self.register_buffer("log_weights", torch.as_tensor(log_weights, dtype=torch.float32))

    def forward(self, batch: Batch, n: int) -> Tensor:
        """Logits of a batch of n rows."""
        local = self._call(batch, n)
        if self.head is not None:
            local = self.head(local)
        return self.log_weights + local.float()

    def add_head(self) -> nn.Linear:
        """Add a linear layer from M to M on top of the module, which is zero."""
        self.head = nn.Linear(len(self.log_weights), len(self.log_weights))
        return _set_to_zero(self.head)

    def start(self, batch: Batch, n: int) -> nn.Linear:
        """Make the weights constant, by an output layer that is zero; return that layer.

        batch : n rows, with which the output layer of the module is found.
        """
        layers = self._run_layers(batch, n)
        if layers:
            output, before = layers[-1], copy.deepcopy(layers[-1].state_dict())
            _set_to_zero(output)
            if not self._call(batch, n).any():
                return output
            output.load_state_dict(before)
        return self.add_head()

    def _run_layers(self, batch: Batch, n: int) -> list[nn.Linear]:
        """Linear layers with M outputs, in the order in which they run on a batch."""
        layers: list[nn.Linear] = []
        hooks = [
            layer.register_forward_hook(lambda layer, _inputs, _output: layers.append(layer))
            for layer in self.module.modules()
            if isinstance(layer, nn.Linear) and layer.out_features == len(self.log_weights)
        ]
        try:
            check_finite(self._call(batch, n))
        finally:
            for hook in hooks:
                hook.remove()
        return layers

    def _call(self, batch: Batch, n: int) -> Tensor:
        """Run the module and check the shape of its logits: (n, M)."""
        try:
            if isinstance(batch, Mapping):
                output = self.module(**batch)
            elif isinstance(batch, tuple):
                output = self.module(*batch)
            else:
                output = self.module(batch)
        except FAILURES as error:
            raise InvalidInputError(
                f"The module of TorchGate must accept a batch; it failed on {_described(batch)} "
                f"({_named(error)}). Make batches that it accepts with preprocess= or collate=. If "
                "memory is short, lower batch_size."
            ) from error
        logits, M = getattr(output, "logits", output), len(self.log_weights)
        if not isinstance(logits, Tensor) or logits.shape != (n, M):
            raise InvalidInputError(
                f"The module of TorchGate must return one logit per candidate, for these {n} rows "
                f"and {M} candidates the shape ({n}, {M}); received {_described(logits)}. Let it "
                f"end in a layer such as torch.nn.Linear(width, {M}), or pass a function of the "
                "number of candidates that makes the module."
            )
        return logits

    def arrays(self) -> dict[str, AnyArray]:
        """Parameters and buffers by name."""
        state = {name: _array(value) for name, value in self.state_dict().items()}
        del state["log_weights"]
        return state

    def restore(self, arrays: dict[str, AnyArray]) -> None:
        """Set the parameters to `arrays`, checking names and shapes."""
        state = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
        try:
            self.load_state_dict({**state, "log_weights": self.log_weights})
        except RuntimeError as error:
            raise FileFormatError(
                f"The module of TorchGate must have the parameters that were saved ({error}). Pass "
                "the module, or the function that makes it, with which the gate was trained."
            ) from error


def check_finite(logits: Tensor) -> None:
    """Raise an error if logits are not finite."""
    if not bool(torch.isfinite(logits).all()):
        row = int((~torch.isfinite(logits)).any(dim=1).nonzero()[0])
        raise InvalidInputError(
            f"The logits of TorchGate's module must be finite; row {row} of a batch has "
            f"{logits[row].tolist()}. Look for inputs that are missing or very large, or lower "
            "learning_rate."
        )


# Modules and their start.


def new_module(module: nn.Module | MakeModule, n_candidates: int) -> nn.Module:
    """Copy the module of the user, or call the function that makes it."""
    if isinstance(module, nn.Module):
        return copy.deepcopy(module)
    if not callable(module):
        raise InvalidInputError(
            "module of TorchGate must be a torch.nn.Module, or a function that makes one; received "
            f"{module!r}. Pass for instance lambda n_candidates: torch.nn.Linear(5, n_candidates)."
        )
    new = module(n_candidates) if _takes_a_number(module) else module()
    if not isinstance(new, nn.Module):
        raise InvalidInputError(
            f"The function that makes the module of TorchGate must return a torch.nn.Module; it "
            f"returned a {type(new).__name__}."
        )
    return new


def start_network(
    module: nn.Module | MakeModule, inputs: Inputs, rows: Rows, weights: Array, seed: int
) -> tuple[GateNetwork, nn.Linear]:
    """Make a network whose weights (M,) are constant; also return its output layer.

    rows : a few rows, with which the output layer is found.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        network = GateNetwork(new_module(module, len(weights)).eval(), weights)
        with torch.no_grad():
            return network, network.start(inputs.batch(rows), len(rows))


def _set_to_zero(layer: nn.Linear) -> nn.Linear:
    for parameter in layer.parameters(recurse=False):
        nn.init.zeros_(parameter)
    return layer


def _takes_a_number(function: MakeModule) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except ValueError:  # a built-in without a signature
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is Parameter.empty for p in parameters)


def _array(value: Tensor) -> AnyArray:
    value = value.detach().cpu()
    if value.dtype == torch.bfloat16:  # which NumPy does not have
        value = value.float()
    return value.numpy().copy()


def _described(value: object) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"a {type(value).__name__} of shape {tuple(value.shape)} and {value.dtype}"
    if isinstance(value, Mapping):
        return f"a dict of {sorted(value)}"
    return f"a {type(value).__name__}"


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
