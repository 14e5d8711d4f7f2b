"""The local gate over any PyTorch module: inputs may be arrays, texts, images or data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from localma._optional import optional
from localma.equations import softmax
from localma.folds import Fold
from localma.gates.base import (
    Gate,
    Rules,
    arrays_below,
    check_arrays,
    check_rules,
    is_count,
    is_number,
    simplex_weights,
)
from localma.gates.fused.chunks import unit_of
from localma.gates.global_ import anchor_and_scale, floored
from localma.gates.labelled import Labelled, plain_arrays
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from localma.gates._torch_network import GateNetwork

Array = NDArray[np.floating]
_PARAMETERS = "parameters."


class TorchGate(Gate):
    """Local weights from any PyTorch module: ``w(x) = softmax(log w_global + d(x))``.

    The module is ``d``, from a batch of inputs to M logits. It minimises what `MLPGate` does,

    ``mean_i s_i loss(y_i, sum_m w_m(x_i) P_im) / c + shrinkage * sum_j (theta_j - t_j)^2``,

    by Adam over mini-batches, with ``c`` the mean loss of the global weights. The sum is over all
    parameters that are trained, but for the biases of the output; ``t`` is zero, or where training
    started (`shrink_to`). At infinite shrinkage the gate *is* the global gate.

    Training starts at the global weights: the last linear layer with M outputs is set to zero. A
    module whose output is not that of such a layer (it ends in an activation, say) gets a linear
    layer from M to M on top, which starts at zero.

    Parameters
    ----------
    module : torch.nn.Module, or function that makes one
        A module is never changed: every training works on a copy, and starts at its parameters. A
        function is called before every training, so that restarts differ: with the number M of
        candidates if it has an argument without default, else with none. Parameters that need no
        gradient stay as they are. A module that returns an object with `logits`, as those of
        transformers do, is fine.
    shrinkage : float
        At least 0; `inf` gives exactly the global weights.
    shrink_to : {"zero", "start"}
        Where shrinkage pulls the parameters: "zero" suits a network that starts at random,
        "start" one that was trained before.
    n_epochs : int
        Passes over the rows, at most.
    batch_size : int
        Rows of a step, and of a batch at prediction.
    learning_rate : float
        Adam's, at the first step.
    schedule : {"cosine", "constant"}
        "cosine" lowers the learning rate to about zero at the end.
    validation_fraction : float
        Part of the rows that is held out to judge each epoch. The parameters of the best epoch are
        kept; the global weights at the start compete. No row is held out where the part would
        have fewer than ten rows, or at 0: then the last epoch counts.
    patience : int
        Epochs without improvement on the rows held out after which training ends.
    device : {None, "cpu"} or str
        None leaves the choice to accelerate, which takes a GPU where there is one; "cpu" forces
        the processor. Any other name must be the device that accelerate has.
    mixed_precision : {None, "bf16", "fp16"}
        None computes in single precision.
    checkpoint : folder, optional
        Where the state of training is written after each epoch. The same fit on the same data, with
        the same seed, continues from there, to the same result; a finished one is read back. The
        file is named after parameters, predictions, targets, start and a few rows of the inputs.
    collate : function of a list of items, optional
        Makes a batch of a list of rows: a tensor, a tuple (the module's positional arguments) or a
        dict (its keyword arguments). By default numbers become tensors, floating ones in single
        precision, and texts stay a list.
    preprocess : function of an item, optional
        Applied to each row as it is read, such as one that opens the image of a path.
    progress : bool, optional
        Whether to draw a progress bar; None draws one on a terminal, in training that takes long.
    random_state : int, RandomState instance or None
        Seed of everything random: a module made by a function, the rows held out, the batches,
        dropout.

    Attributes
    ----------
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.
    loss_scale_ : float
        The ``c`` of the objective.
    network_ : torch.nn.Module or None
        The trained copy, on the processor; None where the gate is the global one.
    input_shape_ : tuple of int or None
        Shape of one input as the module sees it; None where it is not one tensor of floats.
    n_epochs_ : int
        The epoch whose parameters were kept; 0 is the start, at the global weights.
    risks_ : list of float
        Mean loss of the rows held out, before training and after each epoch; empty without such.

    Notes
    -----
    What differs between training and prediction, such as augmentation, belongs in the module, which
    knows its own `training`.

    Examples
    --------
    The first candidate is right on the left, the second on the right:

    >>> import torch
    >>> from localma.losses import squared_error
    >>> x = np.linspace(-2, 2, 200)
    >>> P, y = np.stack([-x, x], axis=1)[:, :, np.newaxis], np.abs(x)[:, np.newaxis]
    >>> gate = TorchGate(torch.nn.Linear(1, 2), learning_rate=0.1, n_epochs=20, random_state=0)
    >>> gate = gate.fit(Labelled.of(x[:, np.newaxis], P, y, loss=squared_error()))
    >>> gate.predict_weights(np.array([[-1.5], [1.5]])).argmax(axis=1).tolist()
    [0, 1]
    """

    code_parameters: ClassVar[tuple[str, ...]] = ("module", "collate", "preprocess")
    unsaved_parameters: ClassVar[tuple[str, ...]] = (*Gate.unsaved_parameters, "checkpoint")

    def __init__(
        self,
        module: Any,
        *,
        shrinkage: float = 0.003,
        shrink_to: str = "zero",
        n_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 0.001,
        schedule: str = "cosine",
        validation_fraction: float = 0.1,
        patience: int = 10,
        device: str | None = None,
        mixed_precision: str | None = None,
        checkpoint: str | PathLike[str] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        preprocess: Callable[[Any], Any] | None = None,
        progress: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        optional("torch", extra="torch")
        self.module = module
        self.shrinkage = shrinkage
        self.shrink_to = shrink_to
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.device = device
        self.mixed_precision = mixed_precision
        self.checkpoint = checkpoint
        self.collate = collate
        self.preprocess = preprocess
        self.progress = progress
        self.random_state = random_state

    @property
    def raw_inputs(self) -> bool:
        """True: the module says what an input is."""
        return True

    def __sklearn_clone__(self) -> Self:
        # Modules and functions are never changed, so a copy of the gate may share them.
        return type(self)(**self.get_params(deep=False))

    def fit(
        self,
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Train a copy of the module; `folds` play no part. See `Gate.fit`.

        Inputs are n rows, in an array of any dimensions, a tensor, a list, a
        `torch.utils.data.Dataset` or a `datasets.Dataset`. An item of a data set is an input: it
        holds no target.
        """
        self._check_parameters()
        weight = data.sample_weight
        weighing = data.without_inputs(np.flatnonzero(weight > 0.0))
        anchor, scale = anchor_and_scale(weighing, None, global_weights)
        self.global_weights_, self.loss_scale_ = anchor, scale
        self.network_: GateNetwork | None = None
        self.input_shape_: tuple[int, ...] | None = None
        self.n_epochs_ = 0
        self.risks_: list[float] = []
        if not np.isinf(self.shrinkage) and data.n_candidates > 1:
            self._train(data, weight / weight.sum())
        return self

    def predict_weights(self, X: Any) -> Array:
        """Weights of each row: n rows -> (n, M), non-negative, summing to one."""
        check_is_fitted(self)
        X, *_ = plain_arrays(X)
        n = n_rows(X)
        if self.network_ is None or n == 0:
            return np.tile(self.global_weights_, (n, 1))
        torch_training = _torch_training()
        accelerator = torch_training.make_accelerator(self.device, self.mixed_precision)
        network = self.network_.to(accelerator.device)
        try:
            logits = torch_training.logits_of(
                network, self._inputs(X), np.arange(n), self.batch_size, accelerator
            )
        finally:
            network.cpu()  # a path has many gates, and a device little memory
        return softmax(logits)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fitted state: what `restore` takes. The module itself is not part of it."""
        check_is_fitted(self)
        state: dict[str, NDArray[Any]] = {
            "global_weights": self.global_weights_,
            "loss_scale": np.array(self.loss_scale_),
            "n_epochs": np.array(self.n_epochs_),
        }
        if self.input_shape_ is not None:
            state["input_shape"] = np.array(self.input_shape_, dtype=np.int64)
        if self.network_ is not None:
            parameters = self.network_.arrays()
            state |= {_PARAMETERS + name: array for name, array in parameters.items()}
        return state

    def restore(self, arrays: dict[str, NDArray[Any]]) -> Self:
        """Take the fitted state back from `arrays`, checking names and shapes."""
        self._check_parameters()
        parameters = arrays_below(arrays, _PARAMETERS)
        state = {name: array for name, array in arrays.items() if not name.startswith(_PARAMETERS)}
        expected: dict[str, tuple[str, tuple[int, ...]]] = {
            "global_weights": ("f", np.shape(state.get("global_weights", ()))),
            "loss_scale": ("f", ()),
            "n_epochs": ("iu", ()),
        }
        shape = state.get("input_shape")
        if shape is not None:
            expected["input_shape"] = ("iu", (shape.size,))
        check_arrays(state, expected, "TorchGate")
        self.global_weights_ = simplex_weights(state["global_weights"], "global_weights")
        self.loss_scale_, self.n_epochs_ = float(state["loss_scale"]), int(state["n_epochs"])
        self.risks_ = []
        self.input_shape_ = None if shape is None else tuple(shape.tolist())
        self.network_ = self._network(parameters) if parameters else None
        return self

    def _network(self, parameters: dict[str, NDArray[Any]]) -> GateNetwork:
        """The module with parameters that were saved."""
        _torch_training()
        from localma.gates._torch_network import GateNetwork, new_module

        module = new_module(self.module, len(self.global_weights_))
        headed = any(name.startswith("head.") for name in parameters)
        network = GateNetwork(module, np.log(floored(self.global_weights_)), headed)
        network.restore(parameters)
        return network

    def _train(self, data: Labelled, share: Array) -> None:
        torch_training = _torch_training()
        seed = self._seed()
        order = _order(data.X, data.P, data.y, share)
        unit = unit_of(data.P[order], data.y[order], data.loss.location)
        ranks = torch_training.split(len(order), self.validation_fraction, seed)
        train, held_out = (order[part] for part in ranks)
        # The loss is a mean over the rows that train, or shrinkage would grow with those held out.
        share = share / share[train].sum()
        task = torch_training.Task(self._inputs(data.X), data, share, self.loss_scale_, unit)
        accelerator = torch_training.make_accelerator(self.device, self.mixed_precision)
        network, output = torch_training.start(
            self.module, task.inputs, train[:2], self.global_weights_, seed
        )
        self.input_shape_ = task.inputs.shape(train[:1])
        own = ("shrinkage", "shrink_to", "n_epochs", "batch_size", "learning_rate", "schedule")
        settings = torch_training.Settings(
            **{name: getattr(self, name) for name in own}, patience=self.patience, seed=seed
        )
        trainer = torch_training.Trainer(network, output.bias, task, settings, accelerator)
        checkpoint = self._checkpoint(network, task, (train, held_out), settings)
        history = trainer.fit(train, held_out, checkpoint, self.progress)
        self.network_ = accelerator.unwrap_model(trainer.network, keep_fp32_wrapper=False).cpu()
        self.n_epochs_, self.risks_ = history.best_epoch, history.risks

    def _checkpoint(self, network: GateNetwork, task: Any, rows: Any, settings: Any) -> Any:
        """The file of this training, named after all that determines it; of inputs, a few rows."""
        if self.checkpoint is None:
            return None
        from localma.gates._torch_checkpoint import Checkpoint

        data = task.data
        words = {**vars(settings), "loss": repr(data.loss), "precision": self.mixed_precision}
        words["network"] = repr(network)
        start = network.arrays()
        # A loss of one's own is known by what it says of some rows, not by its name.
        slopes = data.loss.derivative(data.y[:64], data.P[:64].mean(axis=1))
        arrays = [data.P, data.y, task.share, self.global_weights_, *rows, *start.values(), slopes]
        arrays.append(np.frombuffer(task.inputs.bytes_of(rows[0][:16]), dtype=np.uint8))
        return Checkpoint.of(self.checkpoint, {**words, "names": list(start)}, arrays)

    def _inputs(self, X: Any) -> Any:
        from localma.gates._torch_inputs import Inputs

        return Inputs(X, self.preprocess, self.collate)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _check_parameters(self) -> None:
        check_rules(self, _CHOICES, _RULES)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "schedule": ("cosine", "constant"),
    "shrink_to": ("zero", "start"),
    "mixed_precision": (None, "no", "bf16", "fp16"),
}
_RULES: Rules = (
    (
        "shrinkage",
        lambda value: is_number(value) and value >= 0.0,
        "at least 0 (infinity is the global gate)",
    ),
    ("learning_rate", lambda value: is_number(value) and 0.0 < value < np.inf, "a positive number"),
    ("n_epochs", is_count, "a positive integer"),
    ("batch_size", is_count, "a positive integer"),
    ("patience", is_count, "a positive integer"),
    (
        "validation_fraction",
        lambda value: is_number(value) and 0.0 <= value < 1.0,
        "at least 0 and below 1",
    ),
    ("device", lambda value: value is None or isinstance(value, str), "None or a name"),
)


def _torch_training() -> Any:
    """The part that needs PyTorch and accelerate."""
    for package in ("torch", "accelerate"):
        optional(package, extra="torch")
    from localma.gates import _torch_training

    return _torch_training


_ORDERED_ROWS = 1024


def _order(X: Any, P: Array, y: Array, share: Array) -> NDArray[np.intp]:
    """Rows with weight, in an order that their numbers determine, whatever order they came in.

    Nor does the order of the candidates play a part, or the unit or level of the target.
    """
    kept = P[share > 0.0]
    level, unit = kept.mean(), kept.std() or 1.0
    sizes = ((values - level) / unit for values in (y, np.sort(P, axis=1).reshape(len(P), -1)))
    numbers = [share[:, np.newaxis], *sizes]
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        numbers.append(X.reshape(len(X), -1))
    key = np.zeros(len(P))
    for k, columns in enumerate(numbers):
        factors = np.random.default_rng(k).uniform(1.0, 2.0, columns.shape[1])
        for start in range(0, len(key), _ORDERED_ROWS):  # images in double precision are large
            part = slice(start, start + _ORDERED_ROWS)
            key[part] += (columns[part] * factors).sum(axis=1)
    order = np.argsort(key, kind="stable")
    return order[share[order] > 0.0]
