"""A PyTorch module, or a file that torch.export wrote, as a candidate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from threading import Lock, RLock
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary
from zipfile import ZipFile

import numpy as np

from localma._optional import optional
from localma.candidates.base import (
    BatchSize,
    ImportName,
    Inputs,
    LogitsCandidate,
    LogitsRecipe,
    working_bytes,
)
from localma.candidates.files.base import FileRecipe, ModelFile, PerProcess, in_fixed_batches
from localma.candidates.outputs import Activation, Array, Classes, Table, Task
from localma.errors import InvalidInputError
from localma.tables.frames import dense

_locks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""A lock for each module that is run."""
_one_at_a_time = Lock()


@dataclass(frozen=True, kw_only=True)
class TorchRecipe(FileRecipe, LogitsRecipe):
    """The file and the options."""

    kind = "torch"
    preprocess: ImportName | None
    device: str | None

    def make(self) -> TorchCandidate:
        """Find the file again. Its network is code."""
        return TorchCandidate(self.file(), **self.options())


class TorchCandidate(LogitsCandidate):
    """A PyTorch network, run in evaluation mode and without gradients.

    Arrays and frames become tensors of the network's own floating type, float32 by default. The
    network returns a tensor (n,), (n, 1) or (n, K), or an object with such a tensor as `logits`.
    A module in memory is given again by name when a saved model is loaded; a file is found again.
    A network exported for a fixed number of rows is fed that many at a time.

    Parameters
    ----------
    model : an `nn.Module`, whose mode and device are left as they are; or the path of a .pt2
        file, ``torch.export.save(torch.export.export(module, ...), "north.pt2")``. Opening such
        a file may run code: take none from strangers.
    activation : "softmax", "sigmoid" or None, where the network returns probabilities or means.
    temperature : what logits are divided by; `calibrated` fits it.
    preprocess : a function from the rows to what the network takes: an array, a tensor, a tuple
        of them (one per argument) or a dict (by argument name).
    device : where to run a module; None leaves it where it is. On another device than its own a
        copy is run.
    classes, inputs, cost, batch_size : as for every candidate.

    Examples
    --------
    >>> import torch
    >>> line = torch.nn.Linear(2, 1, bias=False)
    >>> _ = torch.nn.init.constant_(line.weight, 0.5)
    >>> TorchCandidate(line).predict(np.array([[1.0, 3.0]]), "regression").tolist()
    [2.0]
    """

    kind = "torch"
    runs_here = True
    recipe_type = TorchRecipe

    def __init__(
        self,
        model: Any,
        *,
        classes: Classes | None = None,
        activation: Activation | None = None,
        temperature: float = 1.0,
        preprocess: Callable[[Any], Any] | None = None,
        inputs: Inputs = None,
        cost: float = 1.0,
        batch_size: BatchSize = "auto",
        device: Any = None,
    ) -> None:
        super().__init__(
            activation=activation,
            temperature=temperature,
            inputs=inputs,
            classes=classes,
            cost=cost,
            batch_size=batch_size,
        )
        torch = optional("torch", extra="torch")
        self.preprocess = preprocess
        self.device = None if device is None else str(device)
        self.file: ModelFile | None = None
        self.module: Any = None
        if isinstance(model, torch.nn.Module):
            self.module = model
            make: Callable[[], _Network] = partial(_network_in_memory, model, self.device)
        elif isinstance(model, str | os.PathLike | ModelFile):
            self.file = model if isinstance(model, ModelFile) else ModelFile(model)
            make = partial(_network_from_file, self.file, self.device)
        else:
            raise InvalidInputError(
                "TorchCandidate takes an nn.Module or the path of a .pt2 file; received "
                f"{type(model).__name__}."
            )
        self._network = PerProcess(make)

    @property
    def label(self) -> str:
        """The class of the module in lower case, or the name of the file."""
        return type(self.module).__name__.lower() if self.file is None else self.file.label

    @property
    def source(self) -> str | None:
        """The file, where there is one."""
        return None if self.file is None else str(self.file.path)

    def _network_identity(self) -> object:
        network = id(self.module) if self.file is None else self.file.path
        return network, self.preprocess

    def _arguments(self, X: Table) -> dict[Any, Any]:
        return _arguments(X if self.preprocess is None else self.preprocess(X))

    def _row_bytes(self, X: Table) -> int:
        return working_bytes(*self._arguments(X).values())

    def _outputs(self, X: Table, task: Task) -> Array:
        return self._network.get()(self._arguments(X))

    def recipe(self) -> TorchRecipe | None:
        """The file and the options; None if the module exists only in memory."""
        if self.file is None:
            return None
        return TorchRecipe.of(self, **self.file.recipe())


class _Network:
    """A callable network with the type and device of what it takes.

    rows : an exported network's fixed number of rows; None if it takes any number.
    """

    def __init__(self, module: Any, device: str | None, rows: int | None) -> None:
        torch = optional("torch", extra="torch")
        tensors = [*module.parameters(), *module.buffers()]
        kinds = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
        self.module, self.rows = module, rows
        self.dtype = kinds[0] if kinds else torch.float32
        self.device = device or (tensors[0].device if tensors else "cpu")

    def __call__(self, arguments: dict[Any, Any]) -> Array:
        torch = optional("torch", extra="torch")
        feed = {key: self._tensor(values, torch) for key, values in arguments.items()}
        n = len(next(iter(feed.values())))
        with _evaluation_mode(self.module), torch.no_grad():
            return in_fixed_batches(self._run, feed, n, self.rows)

    def _run(self, feed: dict[Any, Any]) -> Array:
        named = {key: value for key, value in feed.items() if isinstance(key, str)}
        placed = [value for key, value in feed.items() if not isinstance(key, str)]
        return _as_array(self.module(*placed, **named))

    def _tensor(self, values: Any, torch: ModuleType) -> Any:
        # Copied, since a layer that works in place would write into the user's rows.
        if isinstance(values, torch.Tensor):
            return values.to(self.device, copy=True)
        return torch.tensor(_numbers(values), dtype=self.dtype, device=self.device)


def _arguments(rows: Any) -> dict[Any, Any]:
    """What is passed to the network, by position or by name."""
    if isinstance(rows, Mapping):
        return dict(rows)
    return dict(enumerate(rows)) if isinstance(rows, tuple) else {0: rows}


def _numbers(values: Any) -> Array:
    numbers = dense(values)
    if numbers.dtype.kind not in "biuf":
        try:
            numbers = numbers.astype(np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"a network takes numbers, and received values of dtype {numbers.dtype}, such as "
                f"{numbers.flat[0]!r}: state the columns it takes with inputs=, or turn the rows "
                "into tensors with preprocess=."
            ) from None
    return numbers


def _as_array(output: Any) -> Array:
    output = getattr(output, "logits", output)
    if not hasattr(output, "detach"):
        raise InvalidInputError(
            f"the network returned a {type(output).__name__}; a network must return one tensor, "
            "(n,), (n, 1) or (n, K): wrap it in a module that picks the one."
        )
    return output.detach().to("cpu").double().numpy()


@contextmanager
def _evaluation_mode(module: Any) -> Iterator[None]:
    """Switch off what is for training only, and leave the module as it was.

    One thread at a time: another's end would switch it on again under this one.
    """
    with _one_at_a_time:
        lock = _locks.setdefault(module, RLock())
    with lock:
        training = [part for part in module.modules() if part.training]
        for part in training:
            part.training = False
        try:
            yield
        finally:
            for part in training:
                part.training = True


def _network_in_memory(module: Any, device: str | None) -> _Network:
    torch = optional("torch", extra="torch")
    places = {tensor.device for tensor in [*module.parameters(), *module.buffers()]}
    if device is not None and places - {torch.device(device)}:
        module = deepcopy(module).to(device)
    return _Network(module, device, None)


def _network_from_file(file: ModelFile, device: str | None) -> _Network:
    torch, path = optional("torch", extra="torch"), file.check()
    try:
        with ZipFile(path), _silent("torch.export"):
            program = torch.export.load(path)
    except Exception as error:
        raise InvalidInputError(
            f"{str(path)!r} is no file of torch.export, or was cut short ({error}): export the "
            "module again."
        ) from error
    if device is not None:
        move = optional("torch.export.passes", extra="torch").move_to_device_pass
        program = move(program, device)
    return _Network(program.module(), device, _fixed_rows(program))


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a logger from writing the traceback of an error that is raised all the same."""
    logger = getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _fixed_rows(program: Any) -> int | None:
    """Rows that an exported program insists on; None if it takes any number."""
    taken = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in taken]
    first = [shape[0] for shape in shapes if len(shape)]
    return first[0] if first and all(isinstance(size, int) for size in first) else None
