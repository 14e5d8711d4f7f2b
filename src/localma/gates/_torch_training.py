"""The training of a module as a gate: mini-batches of Adam, judged on rows held out.

Devices and mixed precision are accelerate's. Whatever is random in an epoch is seeded by the seed
and the number of the epoch, so training that continues from a checkpoint ends at the same numbers.
Imported at use: it needs torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from numpy.typing import NDArray
from torch import nn

from localma.equations import empirical_risk, local_average, softmax
from localma.errors import InvalidInputError
from localma.gates._torch_checkpoint import Checkpoint
from localma.gates._torch_inputs import Inputs, Rows, check_finite
from localma.gates._torch_network import GateNetwork, new_module, started
from localma.gates.fused.chunks import off_target
from localma.gates.global_ import floored
from localma.gates.labelled import Labelled
from localma.losses import Loss
from localma.progress import bar

Array = NDArray[np.floating]

LEAST_HELD_OUT = 10
"""Fewer rows than this judge no better than chance."""


@dataclass(frozen=True)
class Task:
    """What is learnt: a sample, its inputs as the module reads them, share (n,) summing to one.

    loss_scale : the c by which the loss is divided.
    unit : that in which P and y reach the network, so that they fit single precision.
    """

    inputs: Inputs
    data: Labelled
    share: Array
    loss_scale: float
    unit: float = 1.0

    def risk(self, weights: Array, rows: Rows) -> float:
        """Mean loss of some rows under their weights (rows, M)."""
        mixture = local_average(weights, self.data.P[rows])
        return empirical_risk(self.data.loss, self.data.y[rows], mixture, self.share[rows])

    def slope(self, y: torch.Tensor, mixture: torch.Tensor) -> torch.Tensor:
        """Derivative of the scaled loss by a mixture in the unit: (n, K), of its type and device.

        The loss itself sees targets and predictions in their own unit, in double precision.
        """
        where = torch.device("cpu") if mixture.device.type == "mps" else mixture.device
        targets, predictions = (self.unit * x.to(where).double() for x in (y, mixture))
        slope = derivative(self.data.loss, targets, predictions) * (self.unit / self.loss_scale)
        return slope.to(mixture)


@dataclass(frozen=True)
class Settings:
    """How it is learnt; see the parameters of `TorchGate`."""

    shrinkage: float
    shrink_to: str
    n_epochs: int
    batch_size: int
    learning_rate: float
    schedule: str
    patience: int
    seed: int

    def rate(self, step: int, n_steps: int) -> float:
        """Learning rate of a step, as in `MLPGate`."""
        if self.schedule == "constant":
            return self.learning_rate
        return float(self.learning_rate * (1.0 + np.cos(np.pi * step / n_steps)) / 2.0)


@dataclass
class History:
    """Where training is: epochs done, what each lost on the rows held out, the best one so far."""

    epoch: int = 0
    best_epoch: int = 0
    risks: list[float] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    finished: bool = False

    def note(self, risk: float, network: nn.Module) -> None:
        """Remember the parameters if these are the best so far."""
        self.risks.append(risk)
        if risk <= min(self.risks):
            self.best_epoch = self.epoch
            self.best = {name: value.clone() for name, value in network.state_dict().items()}


def make_accelerator(device: str | None, mixed_precision: str | None) -> Accelerator:
    """The device and precision of this process; accelerate has one of each."""
    precision = "no" if mixed_precision is None else mixed_precision
    try:
        kind = None if device is None else torch.device(device).type
    except RuntimeError as error:
        raise InvalidInputError(
            f"device of TorchGate must be the name of a device; received {device!r}."
        ) from error
    try:
        accelerator = Accelerator(cpu=device == "cpu", mixed_precision=precision)
    except ValueError as error:
        raise InvalidInputError(
            f"TorchGate cannot run with device={device!r} and mixed_precision={mixed_precision!r} "
            f"here: accelerate keeps one device and precision per process ({error}). Use the "
            "same for all of a process, or start a new one."
        ) from error
    if kind is not None and kind != accelerator.device.type:
        raise InvalidInputError(
            f"device of TorchGate must be one that accelerate has; received {device!r}, and "
            f"accelerate has {str(accelerator.device)!r}. Leave device out, or choose with the "
            "environment variable ACCELERATE_TORCH_DEVICE."
        )
    return accelerator


def logits_of(
    network: nn.Module, inputs: Inputs, rows: Rows, batch_size: int, accelerator: Accelerator
) -> NDArray[np.float64]:
    """Logits of some rows: (rows, M), batch by batch, without training."""
    network.eval()
    parts = []
    with torch.inference_mode():
        for first in range(0, len(rows), batch_size):
            part = rows[first : first + batch_size]
            logits = network(send_to_device(inputs.batch(part), accelerator.device), len(part))
            check_finite(logits)
            parts.append(logits.double().cpu().numpy())
    return np.concatenate(parts)


class Trainer:
    """One training of a network, on the device of an accelerator.

    output_bias : the parameter that shrinkage leaves alone, if there is one.
    """

    def __init__(
        self,
        network: GateNetwork,
        output_bias: nn.Parameter | None,
        task: Task,
        settings: Settings,
        accelerator: Accelerator,
    ) -> None:
        self.task, self.settings, self.accelerator = task, settings, accelerator
        trained = [p for p in network.parameters() if p.requires_grad]
        if not trained:
            raise InvalidInputError(
                "The module of TorchGate must have parameters to train; none requires a gradient. "
                "Leave at least its last layer free."
            )
        self.shrunk = [p for p in trained if p is not output_bias]
        optimizer = torch.optim.Adam(trained, lr=settings.learning_rate)
        self.network = accelerator.prepare(network)
        # What accelerate puts around an optimizer takes up to a third of a small network's step,
        # and only the scaling of half precision needs it.
        scaled = accelerator.scaler is not None
        self.optimizer = accelerator.prepare(optimizer) if scaled else optimizer
        to_start = settings.shrink_to == "start"
        self.targets = [p.detach().clone() if to_start else None for p in self.shrunk]

    def fit(
        self, train: Rows, held_out: Rows, checkpoint: Checkpoint | None, progress: bool | None
    ) -> History:
        """Train, and leave in the network the best parameters, or the last if none were judged."""
        at = self._resume(checkpoint)
        if not at.risks and len(held_out):
            at.note(self._risk(held_out), self.network)
        with (
            bar("Training the gate", self.settings.n_epochs, progress=progress) as advance,
            torch.random.fork_rng(devices=()),
        ):
            advance(at.epoch)
            while not at.finished:
                self._epoch(at.epoch, train)
                at.epoch += 1
                if len(held_out):
                    at.note(self._risk(held_out), self.network)
                at.finished = self._is_over(at)
                self._save(checkpoint, at)
                advance(1)
        if at.best:
            self.network.load_state_dict(at.best)
        else:
            at.best_epoch = at.epoch
        return at

    def step(self, rows: Rows, n_batches: int) -> None:
        """Leave the gradient of the objective, estimated on some rows, in the parameters."""
        task, data, device = self.task, self.task.data, self.accelerator.device
        self.optimizer.zero_grad()
        logits = self.network(send_to_device(task.inputs.batch(rows), device), len(rows))
        P, y = (
            torch.as_tensor(
                off_target(values[rows], data.y[rows], data.loss.location) / task.unit,
                dtype=torch.float32,
                device=device,
            )
            for values in (data.P, data.y)
        )
        mixture = torch.einsum("nm,nmk->nk", torch.softmax(logits, dim=1), P)
        weight = n_batches * task.share[rows, np.newaxis] / data.y.shape[1]
        slope = task.slope(y, mixture.detach())
        slope = slope * torch.as_tensor(weight, dtype=torch.float32, device=device)
        self.accelerator.backward(mixture, gradient=slope)
        self.accelerator.unscale_gradients()
        self._shrink()

    def _shrink(self) -> None:
        for parameter, target in zip(self.shrunk, self.targets, strict=True):
            if parameter.grad is not None:
                value = parameter.detach()
                away = value if target is None else value - target
                parameter.grad.add_(away, alpha=2.0 * self.settings.shrinkage)

    def _epoch(self, epoch: int, train: Rows) -> None:
        settings = self.settings
        torch.manual_seed(settings.seed + epoch)
        self.network.train()
        batches = list(_batches(train, settings, epoch))
        for k, rows in enumerate(batches):
            rate = settings.rate(epoch * len(batches) + k, settings.n_epochs * len(batches))
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.step(rows, len(batches))
            self.optimizer.step()
        if not all(bool(torch.isfinite(p).all()) for p in self._trained()):
            raise InvalidInputError(
                "Training of TorchGate must stay finite, but its parameters did not in epoch "
                f"{epoch + 1} at learning_rate={settings.learning_rate}. Lower learning_rate, or "
                "look for inputs, targets or predictions that are very large."
            )

    def _risk(self, rows: Rows) -> float:
        logits = logits_of(
            self.network, self.task.inputs, rows, self.settings.batch_size, self.accelerator
        )
        return self.task.risk(softmax(logits), rows)

    def _is_over(self, at: History) -> bool:
        stale = at.epoch - at.best_epoch if at.risks else 0
        return at.epoch >= self.settings.n_epochs or stale >= self.settings.patience

    def _trained(self) -> list[nn.Parameter]:
        return [p for p in self.network.parameters() if p.requires_grad]

    def _save(self, checkpoint: Checkpoint | None, at: History) -> None:
        if checkpoint is not None:
            checkpoint.write(
                {
                    "network": self.network.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    **vars(at),
                }
            )

    def _resume(self, checkpoint: Checkpoint | None) -> History:
        state = None if checkpoint is None else checkpoint.read()
        if state is None:
            return History()
        self.network.load_state_dict(state.pop("network"))
        self.optimizer.load_state_dict(state.pop("optimizer"))
        return History(**state)


def derivative(loss: Loss, y: torch.Tensor, mixture: torch.Tensor) -> torch.Tensor:
    """Derivative of the loss at each row and output: (n, K), from its one definition.

    A loss of one's own that only NumPy can evaluate is evaluated there.
    """
    try:
        slope = loss.derivative(y, mixture)  # type: ignore[arg-type]
    except (TypeError, RuntimeError, AttributeError):
        slope = loss.derivative(y.cpu().numpy(), mixture.cpu().numpy())
    return torch.as_tensor(slope, dtype=mixture.dtype, device=mixture.device)


def start(
    module: Any, inputs: Inputs, rows: Rows, weights: Array, seed: int
) -> tuple[GateNetwork, nn.Linear]:
    """A network at the given weights (M,), and its output layer, which some rows help to find."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        made = new_module(module, len(weights))
        return started(made, inputs.batch(rows), len(rows), np.log(floored(weights)))


def split(n: int, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Rows to train on and rows held out; none of the latter where they would be too few."""
    order = np.random.default_rng(seed).permutation(n)
    held_out = int(fraction * n)
    if held_out < LEAST_HELD_OUT:
        held_out = 0
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def _batches(train: Rows, settings: Settings, epoch: int) -> Iterator[Rows]:
    """The rows in a random order, in batches of nearly equal size: none has one row alone."""
    order = np.random.default_rng((settings.seed, epoch)).permutation(train)
    yield from np.array_split(order, -(-len(order) // settings.batch_size))
