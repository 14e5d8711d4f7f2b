"""A PyTorch module, or a file that torch.export wrote, as a candidate."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from threading import Lock, RLock
from typing import TYPE_CHECKING, TypeAlias, Unpack
from weakref import WeakKeyDictionary
from zipfile import ZipFile

import numpy as np

from localma._optional import optional
from localma._types import Array
from localma.candidates.base import TableFunction
from localma.candidates.batches import working_bytes
from localma.candidates.files.base import (
    FileRecipe,
    ModelFile,
    PerProcess,
    in_fixed_batches,
)
from localma.candidates.logits import LogitsCandidate, NetworkOptions
from localma.candidates.outputs import Table, Task
from localma.candidates.recipes import ImportName, LogitsRecipe, PathLike
from localma.errors import InvalidInputError
from localma.tables.frames import dense

if TYPE_CHECKING:
    from torch import Tensor, device, nn
    from torch.export import ExportedProgram

Arguments: TypeAlias = "dict[int | str, Table | Tensor]"
"""Arguments of a network, by position or by name."""
Feed: TypeAlias = "dict[int | str, Tensor]"

_locks: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
"""A lock for each module that has run."""
_one_at_a_time = Lock()


@dataclass(frozen=True, kw_only=True)
class TorchRecipe(FileRecipe, LogitsRecipe):
    """The file and the options."""

    kind = "torch"
    file_argument = "model"
    preprocess: ImportName | None
    device: str | None


class TorchCandidate(LogitsCandidate):
    """A PyTorch network, run in evaluation mode and without gradients.

    Arrays and frames become tensors of the floating type of the network, float32 by default. The
    network returns a tensor (n,), (n, 1) or (n, K), or an object with such a tensor as `logits`.
    To load a saved model, pass a module in memory again by its name; a file is found again. A
    network that was exported for a fixed number of rows receives that many at a time.

    Parameters
    ----------
    model : nn.Module, str or path
        A module, which keeps its mode and device; or the path of a .pt2 file,
        ``torch.export.save(torch.export.export(module, ...), "north.pt2")``. Opening such a file
        may run code, so only use files that you trust.
    preprocess : callable, optional
        A function from the rows to the input of the network: an array, a tensor, a tuple of them
        (one per argument) or a dict (by argument name).
    device : str or device, optional
        Device to run on. By default a module runs on its own device. A copy of the module runs on
        any other device.
    **options
        Options of every network:

        - `activation` : "softmax", "sigmoid", or None if the network returns probabilities or
          means.
        - `temperature` : float. Divisor of the logits; `calibrated` fits it.
        - `classes` : labels of the columns of the probabilities.
        - `inputs` : columns, by name or position, or a function of X.
        - `cost` : float. What a row costs, for budgets, such as the price of a call.
        - `batch_size` : int, str or None. Rows per call, "auto" or an amount of memory.

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
    _recipe_type = TorchRecipe

    def __init__(
        self,
        model: nn.Module | PathLike | ModelFile,
        *,
        preprocess: TableFunction | None = None,
        device: str | device | None = None,
        **options: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(**options)
        torch = optional("torch", extra="torch")
        self.preprocess = preprocess
        self.device = None if device is None else str(device)
        self.file: ModelFile | None = None
        self.module: nn.Module | None = None
        if isinstance(model, torch.nn.Module):
            self.module = model
            make: Callable[[], _Network] = partial(_network_in_memory, model, self.device)
        elif isinstance(model, str | os.PathLike | ModelFile):
            self.file = ModelFile.of(model)
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
        if self.file is None:
            return type(self.module).__name__.lower()
        return self.file.label

    @property
    def source(self) -> str | None:
        """The file; None for a module in memory."""
        if self.file is None:
            return None
        return str(self.file.path)

    def _network_identity(self) -> Hashable:
        return id(self.module), self.file and self.file.path, self.preprocess

    def _arguments(self, X: Table) -> Arguments:
        if self.preprocess is not None:
            X = self.preprocess(X)
        if isinstance(X, Mapping):
            return dict(X)
        if isinstance(X, tuple):
            return dict(enumerate(X))
        return {0: X}

    def _row_bytes(self, X: Table) -> int:
        return working_bytes(*self._arguments(X).values())

    def _outputs(self, X: Table, task: Task) -> Array:
        return self._network.get()(self._arguments(X))

    def recipe(self) -> TorchRecipe | None:
        """Describe the file and the options.

        Returns
        -------
        TorchRecipe or None
            None if the module exists only in memory.
        """
        if self.file is None:
            return None
        return TorchRecipe.of(self, path=str(self.file.path), sha256=self.file.sha256())


class _Network:
    """A callable network, with the type and device of its inputs.

    n_rows : an exported network's fixed number of rows; None if it takes any number.
    """

    def __init__(self, module: nn.Module, device: str | None, n_rows: int | None) -> None:
        tensors = [*module.parameters(), *module.buffers()]
        dtypes = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
        self.module, self.n_rows = module, n_rows
        self.dtype = [*dtypes, optional("torch", extra="torch").float32][0]
        self.device = device or [*(tensor.device for tensor in tensors), "cpu"][0]

    def __call__(self, arguments: Arguments) -> Array:
        torch = optional("torch", extra="torch")
        feed = {key: self._tensor(values) for key, values in arguments.items()}
        with _evaluation_mode(self.module), torch.no_grad():
            return in_fixed_batches(self._run, feed, self.n_rows)

    def _run(self, feed: Feed) -> Array:
        named = {key: value for key, value in feed.items() if isinstance(key, str)}
        positional = [value for key, value in feed.items() if not isinstance(key, str)]
        return _as_array(self.module(*positional, **named))

    def _tensor(self, values: Table | Tensor) -> Tensor:
        torch = optional("torch", extra="torch")
        # Copied, because a layer that works in place would change the user's rows.
        if isinstance(values, torch.Tensor):
            return values.to(self.device, copy=True)
        return torch.tensor(_numbers(values), dtype=self.dtype, device=self.device)


def _numbers(values: Table) -> Array:
    numbers = dense(values)
    if numbers.dtype.kind not in "biuf":
        try:
            numbers = numbers.astype(np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"a network takes numbers, but received values of dtype {numbers.dtype}, such as "
                f"{numbers.flat[0]!r}: select its columns with inputs=, or convert the rows to "
                "tensors with preprocess=."
            ) from None
    return numbers


def _as_array(output: object) -> Array:
    tensor = getattr(output, "logits", output)
    if not hasattr(tensor, "detach"):
        raise InvalidInputError(
            f"the network returned a {type(tensor).__name__}; a network must return one tensor, "
            "(n,), (n, 1) or (n, K): wrap it in a module that returns only that tensor."
        )
    return tensor.detach().to("cpu").double().numpy()


@contextmanager
def _evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch off training mode, and restore the module at the end.

    Only one thread at a time, because another thread would switch it on again at its end.
    """
    with _one_at_a_time:
        lock = _locks.setdefault(module, RLock())
    with lock:
        training = [layer for layer in module.modules() if layer.training]
        for layer in training:
            layer.training = False
        try:
            yield
        finally:
            for layer in training:
                layer.training = True


def _network_in_memory(module: nn.Module, device: str | None) -> _Network:
    torch = optional("torch", extra="torch")
    devices = {tensor.device for tensor in [*module.parameters(), *module.buffers()]}
    if device is not None and devices - {torch.device(device)}:
        module = deepcopy(module).to(device)
    return _Network(module, device, None)


def _network_from_file(file: ModelFile, device: str | None) -> _Network:
    torch, path = optional("torch", extra="torch"), file.check()
    try:
        with ZipFile(path), _silent("torch.export"):
            program = torch.export.load(path)
    except Exception as error:
        raise InvalidInputError(
            f"{str(path)!r} is not a torch.export file, or was cut short ({error}): export the "
            "module again."
        ) from error
    if device is not None:
        move = optional("torch.export.passes", extra="torch").move_to_device_pass
        program = move(program, device)
    return _Network(program.module(), device, _fixed_rows(program))


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Silence a logger that writes the traceback of an error before raising it."""
    logger = getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _fixed_rows(program: ExportedProgram) -> int | None:
    """Number of rows that an exported program requires; None if it takes any number."""
    inputs = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in inputs]
    sizes = [shape[0] for shape in shapes if len(shape)]
    if sizes and all(isinstance(size, int) for size in sizes):
        return int(sizes[0])
    return None
