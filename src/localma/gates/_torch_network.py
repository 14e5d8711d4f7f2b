"""A user's module as a gate: made afresh, started at the global weights, named by its parameters.

Imported at use: it needs torch.
"""

from __future__ import annotations

import copy
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from localma.errors import FileFormatError, InvalidInputError
from localma.gates._torch_inputs import call, check_finite

Arrays = dict[str, NDArray[Any]]


class GateNetwork(nn.Module):
    """Logits ``log w_global + d(x)``: a batch of n rows -> (n, M), in float32.

    `module` is d; `head` is a linear layer on top of it, where it needs one to start at zero.
    """

    def __init__(self, module: nn.Module, log_weights: NDArray[np.floating], headed: bool) -> None:
        super().__init__()
        M = len(log_weights)
        self.module = module
        self.head = nn.Linear(M, M) if headed else None
        self.log_weights: torch.Tensor
        self.register_buffer("log_weights", torch.as_tensor(log_weights, dtype=torch.float32))

    def forward(self, batch: Any, n: int) -> torch.Tensor:
        """Logits of a batch of n rows."""
        local = call(self.module, batch, n, len(self.log_weights))
        if self.head is not None:
            local = self.head(local)
        return self.log_weights + local.float()

    def arrays(self) -> Arrays:
        """Parameters and buffers by name, on the processor."""
        state = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        if self.head is not None:
            state |= {f"head.{name}": value for name, value in self.head.state_dict().items()}
        return {name: _array(value) for name, value in state.items()}

    def restore(self, arrays: Arrays) -> None:
        """Take `arrays` back, checking names and shapes."""
        state = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
        try:
            self.load_state_dict({**state, "log_weights": self.log_weights})
        except RuntimeError as error:
            raise FileFormatError(
                f"The module of TorchGate must have the parameters that were saved ({error}). Pass "
                "the module, or the function that makes it, with which the gate was trained."
            ) from error


def new_module(spec: Any, n_candidates: int) -> nn.Module:
    """A module of our own: a copy of the user's, or what the user's function makes."""
    if isinstance(spec, nn.Module):
        return copy.deepcopy(spec)
    if not callable(spec):
        raise InvalidInputError(
            "module of TorchGate must be a torch.nn.Module, or a function that makes one; received "
            f"{spec!r}. Pass for instance lambda n_candidates: torch.nn.Linear(5, n_candidates)."
        )
    made = spec(n_candidates) if _takes_a_number(spec) else spec()
    if not isinstance(made, nn.Module):
        raise InvalidInputError(
            f"The function that makes the module of TorchGate must return a torch.nn.Module; it "
            f"returned a {type(made).__name__}."
        )
    return made


def started(
    module: nn.Module, batch: Any, n: int, log_weights: NDArray[np.floating]
) -> tuple[GateNetwork, nn.Linear]:
    """Turn a module into a gate whose weights are constant, and the layer that makes its output.

    batch : some n rows, on which that layer is found; log_weights : (M,) logarithms of the weights.
    """
    output = _output_layer(module.eval(), batch, n, len(log_weights))
    network = GateNetwork(module, log_weights, headed=output is None)
    if output is None:
        assert network.head is not None
        output = network.head
        _set_to_zero(output)
    return network, output


def _output_layer(module: nn.Module, batch: Any, n: int, n_candidates: int) -> nn.Linear | None:
    """Set the layer that makes the output to zero; None, and nothing changed, if there is none."""
    layer = _last_linear(module, batch, n, n_candidates)
    if layer is None:
        return None
    before = copy.deepcopy(layer.state_dict())
    _set_to_zero(layer)
    with torch.no_grad():
        silent = not bool(call(module, batch, n, n_candidates).any())
    if silent:
        return layer
    layer.load_state_dict(before)
    return None


def _last_linear(module: nn.Module, batch: Any, n: int, n_candidates: int) -> nn.Linear | None:
    """The last linear layer with M outputs that runs on a batch."""
    ran: list[nn.Linear] = []
    hooks = [
        layer.register_forward_hook(lambda layer, _inputs, _output: ran.append(layer))
        for layer in module.modules()
        if isinstance(layer, nn.Linear) and layer.out_features == n_candidates
    ]
    try:
        with torch.no_grad():
            check_finite(call(module, batch, n, n_candidates))
    finally:
        for hook in hooks:
            hook.remove()
    return ran[-1] if ran else None


def _set_to_zero(layer: nn.Linear) -> None:
    for parameter in layer.parameters(recurse=False):
        nn.init.zeros_(parameter)


def _takes_a_number(function: Any) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except ValueError:  # of a built-in without a signature
        return False
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is Parameter.empty for p in parameters)


def _array(value: torch.Tensor) -> NDArray[Any]:
    value = value.detach().cpu()
    # NumPy has no bfloat16; loading copies into whatever the module has.
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy().copy()
