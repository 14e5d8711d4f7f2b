"""Training of a gate network: mini-batches of Adam, held-out rows, checkpoints.

accelerate chooses the device and the precision. All random numbers of an epoch depend on the seed
and the number of the epoch, so training that resumes from a checkpoint ends at the same numbers.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import StateDict

from localma._optional import optional
from localma._types import AnyArray, Float64, Json, Rows
from localma.equations import empirical_risk, local_average, softmax
from localma.errors import FileFormatError, InvalidInputError
from localma.gates.constant import output_weight
from localma.gates.deep.networks import FAILURES, GateNetwork, Inputs, check_finite
from localma.gates.fused.chunks import off_target
from localma.gates.labelled import Labelled
from localma.progress import bar
from localma.storage.whole_files import write_whole

if TYPE_CHECKING:
    from accelerate import Accelerator

    from localma.gates.deep.torch_ import TorchGate

accelerate = optional("accelerate", extra="torch")

MIN_HELD_OUT = 10
"""Fewer rows than this do not tell a good epoch from a bad one."""


@dataclass
class History:
    """The state of a training after an epoch.

    risks : mean loss on the held-out rows, before training and after each epoch.
    best : the parameters of the best epoch; empty if no rows are held out.
    network, optimizer : what training continues with.
    """

    epoch: int = 0
    best_epoch: int = 0
    risks: list[float] = field(default_factory=list)
    best: StateDict = field(default_factory=dict)
    finished: bool = False
    network: StateDict = field(default_factory=dict)
    optimizer: StateDict = field(default_factory=dict)

    def record(self, risk: float, network: nn.Module) -> None:
        """Add the risk of this epoch, and keep the parameters if it is the lowest."""
        self.risks.append(risk)
        if risk <= min(self.risks):
            self.best_epoch = self.epoch
            self.best = {name: value.clone() for name, value in network.state_dict().items()}


class Checkpoint:
    """A file with the state of a training, so that a process that was killed can continue.

    It is named after everything that determines the training: settings and arrays.
    """

    def __init__(
        self, folder: str | PathLike[str], settings: Mapping[str, Json], arrays: Iterable[AnyArray]
    ) -> None:
        digest = sha256(repr(sorted(settings.items())).encode())
        for array in arrays:
            digest.update(f"{array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.path = Path(folder) / f"{digest.hexdigest()[:24]}.pt"

    def write(self, history: History) -> None:
        """Replace the file in one step."""
        buffer = io.BytesIO()
        torch.save(vars(history), buffer)
        write_whole(self.path, buffer.getvalue())

    def read(self) -> History:
        """Read the last state, or start a new one. No code in the file is run."""
        if not self.path.exists():
            return History()
        try:
            return History(**torch.load(self.path, map_location="cpu", weights_only=True))
        except (*FAILURES, pickle.UnpicklingError, EOFError) as error:
            raise FileFormatError(
                f"The checkpoint {self.path} cannot be read ({error}). Delete it to start the "
                "training again."
            ) from error


def make_accelerator(device: str | None, mixed_precision: str | None) -> Accelerator:
    """Return the accelerator of this process, which has one device and one precision."""
    try:
        accelerator = accelerate.Accelerator(
            cpu=device == "cpu", mixed_precision=mixed_precision or "no"
        )
    except ValueError as error:
        raise InvalidInputError(
            f"TorchGate cannot run with device={device!r} and mixed_precision={mixed_precision!r} "
            f"here: accelerate keeps one device and precision per process ({error}). Use the "
            "same in the whole process, or start a new one."
        ) from error
    if device is not None and device.split(":")[0] != accelerator.device.type:
        raise InvalidInputError(
            f"device of TorchGate must be the one that accelerate uses; received {device!r}, and "
            f"accelerate uses {str(accelerator.device)!r}. Leave device out, or choose with the "
            "environment variable ACCELERATE_TORCH_DEVICE."
        )
    return accelerator


def logits_of(
    network: nn.Module, inputs: Inputs, rows: Rows, batch_size: int, accelerator: Accelerator
) -> Float64:
    """Logits of the rows: (rows, M), batch by batch, in evaluation mode."""
    network.eval()
    logits = []
    with torch.inference_mode():
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            outputs = network(_to_device(inputs, batch, accelerator), len(batch))
            check_finite(outputs)
            logits.append(outputs.double().cpu().numpy())
    return np.concatenate(logits)


class Trainer:
    """One training of a network, on the device of an accelerator.

    Parameters
    ----------
    gate : TorchGate
        The gate to train, which has the settings and the scale of the loss.
    network : GateNetwork
    output_bias : torch.nn.Parameter or None
        The parameter that is not shrunk.
    data : Labelled
        The sample. X is an `Inputs`, and the sample weights of the rows to train on sum to one.
    seed : int
    unit : float
        The unit in which P and y reach the network, so that they fit single precision.
    """

    def __init__(
        self,
        gate: TorchGate,
        network: GateNetwork,
        output_bias: nn.Parameter | None,
        data: Labelled,
        seed: int,
        unit: float,
    ) -> None:
        self.gate, self.data, self.seed, self.unit = gate, data, seed, unit
        self.inputs: Inputs = data.X
        self.accelerator = make_accelerator(gate.device, gate.mixed_precision)
        self.trained = [p for p in network.parameters() if p.requires_grad]
        if not self.trained:
            raise InvalidInputError(
                "The module of TorchGate must have parameters to train; none requires a gradient. "
                "Set requires_grad for its last layer at least."
            )
        self.shrunk = [p for p in self.trained if p is not output_bias]
        self.network = self.accelerator.prepare(network)
        self.optimizer = torch.optim.Adam(self.trained, lr=gate.learning_rate)
        # The optimizer of accelerate takes up to a third of the time of a step of a small network,
        # and only the loss scaling of half precision needs it.
        if self.accelerator.scaler is not None:
            self.optimizer = self.accelerator.prepare(self.optimizer)
        self.targets = [torch.zeros(()) for _ in self.shrunk]
        if gate.shrink_to == "start":
            self.targets = [p.detach().clone() for p in self.shrunk]

    def fit(self, train: Rows, held_out: Rows, checkpoint: Checkpoint | None) -> History:
        """Train until the end, and leave the best parameters in the network."""
        gate, history = self.gate, self._resume(checkpoint)
        if not history.risks and len(held_out):
            history.record(self._risk(held_out), self.network)
        with (
            bar("Training the gate", gate.n_epochs, progress=gate.progress) as advance,
            torch.random.fork_rng(devices=()),
        ):
            advance(history.epoch)
            while not history.finished:
                self._train_epoch(history.epoch, train)
                history.epoch += 1
                if len(held_out):
                    history.record(self._risk(held_out), self.network)
                history.finished = self._is_over(history)
                self._save(checkpoint, history)
                advance(1)
        if history.best:
            self.network.load_state_dict(history.best)
        else:
            history.best_epoch = history.epoch
        return history

    def step(self, rows: Rows, n_batches: int) -> None:
        """Leave the gradient of the objective, estimated on these rows, in the parameters."""
        data, device = self.data, self.accelerator.device
        self.optimizer.zero_grad()
        logits = self.network(_to_device(self.inputs, rows, self.accelerator), len(rows))
        P, y = (
            torch.as_tensor(
                off_target(values[rows], data.y[rows], data.loss.location) / self.unit,
                dtype=torch.float32,
                device=device,
            )
            for values in (data.P, data.y)
        )
        mixture = torch.einsum("nm,nmk->nk", torch.softmax(logits, dim=1), P)
        weight = n_batches * data.sample_weight[rows, np.newaxis] / data.y.shape[1]
        weight = weight * output_weight(data)
        slope = self._slope(y, mixture.detach())
        slope = slope * torch.as_tensor(weight, dtype=torch.float32, device=device)
        self.accelerator.backward(mixture, gradient=slope)
        self.accelerator.unscale_gradients()
        for parameter, target in zip(self.shrunk, self.targets, strict=True):
            if parameter.grad is not None:
                distance = parameter.detach() - target
                parameter.grad.add_(distance, alpha=2.0 * self.gate.shrinkage)

    def _slope(self, y: Tensor, mixture: Tensor) -> Tensor:
        """Derivative of the scaled loss in the mixture: (n, K).

        The loss gets targets and predictions in their original unit and in double precision. A
        custom loss that only works with NumPy gets arrays.
        """
        device, loss = mixture.device, self.data.loss
        if device.type == "mps":  # which has no double precision
            device = torch.device("cpu")
        targets, predictions = (self.unit * values.to(device).double() for values in (y, mixture))
        try:
            slope = loss.derivative(targets, predictions)  # type: ignore[arg-type]
        except (TypeError, RuntimeError, AttributeError):
            slope = loss.derivative(targets.cpu().numpy(), predictions.cpu().numpy())
        slopes = torch.as_tensor(slope, dtype=torch.float64, device=device)
        return (slopes * (self.unit / self.gate.loss_scale_)).to(mixture)

    def _train_epoch(self, epoch: int, train: Rows) -> None:
        torch.manual_seed(self.seed + epoch)
        self.network.train()
        order = np.random.default_rng((self.seed, epoch)).permutation(train)
        # Batches of nearly equal size, so that none has a single row.
        batches = np.array_split(order, -(-len(order) // self.gate.batch_size))
        for k, rows in enumerate(batches):
            step, n_steps = epoch * len(batches) + k, self.gate.n_epochs * len(batches)
            for group in self.optimizer.param_groups:
                group["lr"] = self._learning_rate(step, n_steps)
            self.step(rows, len(batches))
            self.optimizer.step()
        if not all(bool(torch.isfinite(p).all()) for p in self.trained):
            raise InvalidInputError(
                "The parameters of TorchGate must stay finite; in epoch "
                f"{epoch + 1}, with learning_rate={self.gate.learning_rate}, they did not. Lower "
                "learning_rate, or look for inputs, targets or predictions that are very large."
            )

    def _learning_rate(self, step: int, n_steps: int) -> float:
        """Learning rate of a step, as in `MLPGate`."""
        if self.gate.schedule == "constant":
            return self.gate.learning_rate
        return float(self.gate.learning_rate * (1.0 + np.cos(np.pi * step / n_steps)) / 2.0)

    def _is_over(self, history: History) -> bool:
        """Whether all epochs are done, or the risk has not improved for too long."""
        n_stale = history.epoch - history.best_epoch
        is_stale = bool(history.risks) and n_stale >= self.gate.patience
        return is_stale or history.epoch >= self.gate.n_epochs

    def _risk(self, rows: Rows) -> float:
        """Mean loss of these rows."""
        data, batch_size = self.data, self.gate.batch_size
        logits = logits_of(self.network, self.inputs, rows, batch_size, self.accelerator)
        mixture = local_average(softmax(logits), data.P[rows])
        return empirical_risk(data.loss, data.y[rows], mixture, data.sample_weight[rows])

    def _save(self, checkpoint: Checkpoint | None, history: History) -> None:
        if checkpoint is not None:
            history.network = self.network.state_dict()
            history.optimizer = self.optimizer.state_dict()
            checkpoint.write(history)

    def _resume(self, checkpoint: Checkpoint | None) -> History:
        if checkpoint is None:
            return History()
        history = checkpoint.read()
        if history.network:
            self.network.load_state_dict(history.network)
            self.optimizer.load_state_dict(history.optimizer)
        return history


def split(n: int, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Split n rows into rows to train on and held-out rows; none are held out if too few.

    >>> [len(rows) for rows in split(100, 0.2, seed=0)], len(split(20, 0.2, seed=0)[1])
    ([80, 20], 0)
    """
    order = np.random.default_rng(seed).permutation(n)
    n_held_out = int(fraction * n)
    if n_held_out < MIN_HELD_OUT:
        n_held_out = 0
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


def _to_device(inputs: Inputs, rows: Rows, accelerator: Accelerator) -> Tensor:
    return accelerate.utils.send_to_device(inputs.batch(rows), accelerator.device)
