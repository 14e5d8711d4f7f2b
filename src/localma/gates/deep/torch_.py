"""A local gate over any PyTorch module: inputs may be arrays, texts, images or data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from localma._optional import optional
from localma._types import AnyArray, Array, RandomState, Rows
from localma.equations import softmax
from localma.gates.base import (
    COUNT,
    POSITIVE,
    SHRINKAGE,
    Folds,
    Gate,
    Rule,
    Saved,
    arrays_below,
    check_arrays,
    integer_seed,
    is_number,
    read_state,
)
from localma.gates.constant import anchor_and_scale
from localma.gates.fused.chunks import unit_of
from localma.gates.labelled import Labelled, RowSource, plain_arrays
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from torch import nn

    from localma.gates.deep.networks import GateNetwork
    from localma.gates.deep.training import Checkpoint, Trainer

MakeModule: TypeAlias = "Callable[..., nn.Module]"
"""A function of the number of candidates, or of nothing."""
Preprocess: TypeAlias = Callable[[Any], Any]
"""A row of X -> the row as `collate` takes it."""
Collate: TypeAlias = Callable[[list[Any]], Any]
"""A list of rows -> a batch, the input of the module."""


_PARAMETERS = "parameters."
_STATE = (
    Saved("global_weights", "M", on_simplex=True),
    Saved("loss_scale"),
    Saved("n_epochs", dtype=np.int64),
)
_ORDERED_ROWS = 1024
PRECISIONS = (None, "no", "bf16", "fp16")


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class TorchGate(Gate):
    """Local weights from any PyTorch module: ``w(x) = softmax(log w_global + d(x))``.

    The module is ``d``, from a batch of inputs to M logits. Adam over mini-batches minimizes the
    same objective as in `MLPGate`,

    ``mean_i s_i loss(y_i, sum_m w_m(x_i) P_im) / c + shrinkage * sum_j (theta_j - t_j)^2``,

    where ``c`` is the mean loss of the global weights. The last sum is over all trained parameters
    except the biases of the output layer. ``t`` is zero, or the parameters at the start of training
    (see `shrink_to`). With infinite shrinkage, the gate is the global gate.

    Training starts at the global weights: the last linear layer with M outputs is set to zero. If
    the output of the module does not come from such a layer (for example, if the module ends in an
    activation), a linear layer from M to M is added on top, which starts at zero.

    Parameters
    ----------
    module : torch.nn.Module, or function that makes one
        A module is never changed: each training works on a copy and starts at its parameters. A
        function is called before each training, so that restarts differ. It is called with the
        number M of candidates if it has an argument without a default. Parameters that do not
        require a gradient are not trained. A module may also return an object with the attribute
        `logits`, as those of transformers do.
    shrinkage : float
        At least 0; `inf` gives exactly the global weights.
    shrink_to : {"zero", "start"}
        Where shrinkage pulls the parameters: use "zero" for a network that starts at random,
        "start" for a pretrained one.
    n_epochs : int
        Maximum number of passes over the rows.
    batch_size : int
        Number of rows in a batch, in training and in prediction.
    learning_rate : float
        Learning rate of Adam at the first step.
    schedule : {"cosine", "constant"}
        "cosine" lowers the learning rate to about zero at the end.
    validation_fraction : float
        Share of the rows that are held out to evaluate each epoch. The parameters of the best epoch
        are kept; the start, at the global weights, counts as an epoch. If this gives fewer than ten
        rows, no rows are held out and the last epoch is kept.
    patience : int
        Training ends after this many epochs without improvement on the held-out rows.
    device : {None, "cpu"} or str
        With None, accelerate chooses: a GPU if there is one. "cpu" forces the processor. Any other
        name must be the device that accelerate uses.
    mixed_precision : {None, "bf16", "fp16"}
        Precision of most products in training. None computes in single precision, as predictions
        always do. A process can use only one.
    checkpoint : folder, optional
        Folder to which the state of training is written after each epoch. The same fit, on the same
        data and with the same seed, continues from that state to the same result. If training was
        finished, its result is read. The file is named after the parameters, predictions, targets,
        start and a few rows of the inputs.
    collate : function of a list of items, optional
        Makes a batch of a list of rows: a tensor, a tuple (positional arguments of the module) or a
        dict (keyword arguments). By default, numbers become tensors, with floats in single
        precision, and texts stay a list.
    preprocess : function of an item, optional
        Applied to each row when it is read. For example, it can open the image at a path.
    progress : bool, optional
        Whether to show a progress bar. With None, a bar is shown on a terminal if training takes
        long.
    random_state : int, RandomState instance or None
        Seed for everything random: a module that a function makes, the held-out rows, the batches
        and dropout.

    Attributes
    ----------
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.
    loss_scale_ : float
        The ``c`` of the objective.
    network_ : torch.nn.Module or None
        The trained copy, on the processor; None if the gate is the global gate.
    input_shape_ : tuple of int or None
        Shape of one input of the module; None if the input is not a single tensor of floats.
    n_epochs_ : int
        The epoch whose parameters were kept; 0 is the start, at the global weights.
    risks_ : list of float
        Mean loss on the held-out rows, before training and after each epoch; empty if no rows are
        held out.

    Notes
    -----
    If something differs between training and prediction, such as augmentation, do it in the module,
    which has the attribute `training`.

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

    raw_inputs = True
    code_parameters = ("module", "collate", "preprocess")
    unsaved_parameters = (*Gate.unsaved_parameters, "checkpoint")
    _choices: ClassVar[Mapping[str, tuple[str | None, ...]]] = {
        "schedule": ("cosine", "constant"),
        "shrink_to": ("zero", "start"),
        "mixed_precision": PRECISIONS,
    }
    _rules: ClassVar[Mapping[str, Rule]] = {
        "shrinkage": SHRINKAGE,
        "learning_rate": POSITIVE,
        "n_epochs": COUNT,
        "batch_size": COUNT,
        "patience": COUNT,
        "validation_fraction": Rule(
            lambda value: is_number(value) and 0.0 <= value < 1.0, "at least 0 and below 1"
        ),
        "device": Rule(lambda value: isinstance(value, str | None), "None or a name"),
    }

    module: nn.Module | MakeModule
    _: KW_ONLY
    shrinkage: float = 0.003
    shrink_to: str = "zero"
    n_epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 0.001
    schedule: str = "cosine"
    validation_fraction: float = 0.1
    patience: int = 10
    device: str | None = None
    mixed_precision: str | None = None
    checkpoint: str | PathLike[str] | None = None
    collate: Collate | None = None
    preprocess: Preprocess | None = None
    progress: bool | None = None
    random_state: RandomState = None

    def __post_init__(self) -> None:
        optional("torch", extra="torch")

    def __sklearn_clone__(self) -> Self:
        # Modules and functions are never changed, so a copy of the gate may share them.
        return type(self)(**self.get_params(deep=False))

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Train a copy of the module.

        Inputs are an array of any dimensions, a tensor, a list, a `torch.utils.data.Dataset` or a
        `datasets.Dataset`. An item of a data set is an input, without a target.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Not used.

        Returns
        -------
        TorchGate
            The fitted gate.
        """
        self._check_parameters()
        weight = data.sample_weight
        weighted = data.without_inputs(np.flatnonzero(weight > 0.0))
        self.global_weights_, self.loss_scale_ = anchor_and_scale(weighted, None, global_weights)
        self.network_: GateNetwork | None = None
        self.input_shape_: tuple[int, ...] | None = None
        self.n_epochs_ = 0
        self.risks_: list[float] = []
        if not np.isinf(self.shrinkage) and data.n_candidates > 1:
            self._train(data, weight / weight.sum())
        return self

    def predict_weights(self, X: RowSource) -> Array:
        """Return the weights of each row.

        Parameters
        ----------
        X : n inputs
            An array of any dimensions, a tensor, a list or a data set.

        Returns
        -------
        (n, M) array
            The weights: non-negative, with sum one in each row.
        """
        check_is_fitted(self)
        X, *_ = plain_arrays(X)
        n = n_rows(X)
        if self.network_ is None or n == 0:
            return np.tile(self.global_weights_, (n, 1))
        from localma.gates.deep.networks import Inputs
        from localma.gates.deep.training import logits_of, make_accelerator

        accelerator = make_accelerator(self.device, self.mixed_precision)
        network = self.network_.to(accelerator.device)
        inputs = Inputs(X, self.preprocess, self.collate)
        try:
            return softmax(logits_of(network, inputs, np.arange(n), self.batch_size, accelerator))
        finally:
            network.cpu()  # a path has many gates, and a device little memory

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state for `restore`. The module itself is not part of it.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        check_is_fitted(self)
        state = {saved.name: np.asarray(getattr(self, saved.name + "_")) for saved in _STATE}
        if self.input_shape_ is not None:
            state["input_shape"] = np.array(self.input_shape_, dtype=np.int64)
        if self.network_ is not None:
            parameters = self.network_.arrays()
            state |= {_PARAMETERS + name: array for name, array in parameters.items()}
        return state

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Restore the fitted state, checking names and shapes.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays` of a fitted gate with the same parameters.

        Returns
        -------
        TorchGate
            The fitted gate.
        """
        self._check_parameters()
        parameters = arrays_below(arrays, _PARAMETERS)
        state = {name: array for name, array in arrays.items() if not name.startswith(_PARAMETERS)}
        shape = state.pop("input_shape", None)
        for name, value in read_state(state, _STATE, "TorchGate").items():
            setattr(self, name + "_", value)
        self.risks_, self.input_shape_, self.network_ = [], None, None
        if shape is not None:
            expected = {"input_shape": ("iu", (shape.size,))}
            check_arrays({"input_shape": shape}, expected, "TorchGate")
            self.input_shape_ = tuple(shape.tolist())
        if parameters:
            self.network_ = self._restored_network(parameters)
        return self

    def _restored_network(self, parameters: dict[str, AnyArray]) -> GateNetwork:
        """Make the module with parameters that were saved."""
        from localma.gates.deep.networks import GateNetwork, new_module

        module = new_module(self.module, len(self.global_weights_))
        network = GateNetwork(module, self.global_weights_)
        if any(name.startswith("head.") for name in parameters):
            network.add_head()
        network.restore(parameters)
        return network

    def _train(self, data: Labelled, share: Array) -> None:
        from localma.gates.deep.networks import Inputs, start_network
        from localma.gates.deep.training import Trainer, split

        seed = integer_seed(self.random_state)
        order = _order(data.X, data.P, data.y, share)
        splits = split(len(order), self.validation_fraction, seed)
        train, held_out = (order[positions] for positions in splits)
        inputs = Inputs(data.X, self.preprocess, self.collate)
        # The loss is a mean over the rows that train, or shrinkage would grow with those held out.
        sample = replace(data, X=inputs, sample_weight=share / share[train].sum())
        network, output = start_network(self.module, inputs, train[:2], self.global_weights_, seed)
        self.input_shape_ = inputs.shape(train[:1])
        unit = unit_of(data.P[order], data.y[order], data.loss.location)
        trainer = Trainer(self, network, output.bias, sample, seed, unit)
        checkpoint = self._checkpoint(trainer, network, train, held_out)
        history = trainer.fit(train, held_out, checkpoint)
        unwrap = trainer.accelerator.unwrap_model
        self.network_ = unwrap(trainer.network, keep_fp32_wrapper=False).cpu()
        self.n_epochs_, self.risks_ = history.best_epoch, history.risks

    def _checkpoint(
        self, trainer: Trainer, network: GateNetwork, train: Rows, held_out: Rows
    ) -> Checkpoint | None:
        """Name the file of this training after everything that determines it."""
        if self.checkpoint is None:
            return None
        from localma.gates.deep.networks import batch_bytes
        from localma.gates.deep.training import Checkpoint

        data, start = trainer.data, network.arrays()
        skipped = (*self.code_parameters, *self.unsaved_parameters, "device", "progress")
        settings = {
            **{k: v for k, v in self.get_params(deep=False).items() if k not in skipped},
            "seed": trainer.seed,
            "loss": repr(data.loss),
            "network": repr(network),
            "names": list(start),
        }
        # A custom loss is recognized by its derivative on some rows, not by its name.
        slopes = data.loss.derivative(data.y[:64], data.P[:64].mean(axis=1))
        inputs = np.frombuffer(batch_bytes(trainer.inputs.batch(train[:16])), dtype=np.uint8)
        arrays = [data.P, data.y, data.sample_weight, self.global_weights_, train, held_out]
        return Checkpoint(self.checkpoint, settings, [*arrays, *start.values(), slopes, inputs])


def _order(X: RowSource, P: Array, y: Array, share: Array) -> Rows:
    """Sort the rows with weight by their numbers, so that their order in the sample is irrelevant.

    The order of the candidates does not matter either, nor the unit or level of the target.
    """
    weighted = P[share > 0.0]
    level, unit = weighted.mean(), weighted.std() or 1.0
    scaled = ((values - level) / unit for values in (y, np.sort(P, axis=1).reshape(len(P), -1)))
    numbers = [share[:, np.newaxis], *scaled]
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        numbers.append(X.reshape(len(X), -1))
    key = np.zeros(len(P))
    for k, columns in enumerate(numbers):
        factors = np.random.default_rng(k).uniform(1.0, 2.0, columns.shape[1])
        for start in range(0, len(key), _ORDERED_ROWS):  # images in double precision are large
            rows = slice(start, start + _ORDERED_ROWS)
            key[rows] += (columns[rows] * factors).sum(axis=1)
    order = np.argsort(key, kind="stable")
    return order[share[order] > 0.0]
