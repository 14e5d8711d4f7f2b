"""An image classifier as a candidate: the name of an architecture and a file of weights."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np

from localma._optional import optional
from localma._types import AnyArray, Float64
from localma.candidates.base import CommonOptions, RowError
from localma.candidates.batches import WORKING_COPIES
from localma.candidates.files.base import (
    FileRecipe,
    FromFile,
    ModelFile,
    PerProcess,
    as_objects,
)
from localma.candidates.logits import LogitsCandidate
from localma.candidates.outputs import Activation, Classes, Table, Task, as_labels, listed
from localma.candidates.recipes import LogitsRecipe, PathLike
from localma.errors import InvalidInputError, MissingDependencyError
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from torch import Tensor

    from localma.pretrained import Backbone

Number = TypeVar("Number", int, float)

CHANNELS = 3
EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class TimmRecipe(FileRecipe, LogitsRecipe):
    """The architecture, the file of weights and the options."""

    kind = "timm"
    file_argument = "weights"
    derived = ("activation",)
    architecture: str
    size: list[int]
    mean: list[float]
    std: list[float]
    device: str


class TimmCandidate(FromFile, LogitsCandidate):
    """An image classifier of timm: the name of an architecture and a file of weights.

    Images are resized bilinearly, without keeping their proportions, and standardised,
    ``(pixels / 255 - mean) / std``. Grey images become RGB and alpha channels are dropped.
    Weights in half precision run in float32.

    timm needs torchvision. With a PyTorch for CPUs, a torchvision that was built for CUDA works.

    Parameters
    ----------
    architecture : str
        Its name in timm.
    weights : str or path
        A safetensors file, or a state dict that torch.save wrote; no code in it is run.
    classes : array-like of shape (K,), optional
        Labels of the network's outputs, in their order. A network with one output takes two labels,
        and the output is the logit of the second.
    size : int or (int, int), optional
        Height and width of the images that the network takes, or one number for both. By default
        `size`, `mean` and `std` are those that the architecture was trained with.
    mean : array-like of shape (3,), optional
        The mean by which pixels between 0 and 1 are standardised.
    std : array-like of shape (3,), optional
        The standard deviation by which they are standardised.
    temperature : float, default=1.0
        Divisor of the logits. `calibrated` fits it.
    device : str, default="cpu"
        Device to run on, such as "cuda".
    **options
        Options of every candidate:

        - `inputs` : the column with the paths. By default X is an array of uint8 images (n, height,
          width, 3), a list of paths, arrays or PIL images, or a Dataset.
        - `cost` : float. What a row costs, for budgets, such as the price of a call.
        - `batch_size` : int, str or None. Rows per call, "auto" or an amount of memory.

    Examples
    --------
    >>> TimmCandidate("resnet18", "north.safetensors", classes=["cat", "dog"])  # doctest: +SKIP
    TimmCandidate('north')
    """

    kind = "timm"
    _recipe_type = TimmRecipe

    def __init__(
        self,
        architecture: str,
        weights: PathLike | ModelFile,
        *,
        classes: Classes | None = None,
        size: int | Sequence[int] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        temperature: float = 1.0,
        device: str = "cpu",
        **options: Unpack[CommonOptions],
    ) -> None:
        optional("torch", extra="vision")
        backbone = _found_backbone(architecture)
        self.architecture, self.device = architecture, str(device)
        self.file = ModelFile.of(weights)
        self.size = _checked_size(backbone.size if size is None else size)
        self.mean = _checked_channels("mean", backbone.mean if mean is None else mean)
        self.std = _checked_channels("std", backbone.std if std is None else std)
        if min(self.std) <= 0.0:
            raise InvalidInputError(f"std must be above zero; received {self.std}.")
        self._network = PerProcess(partial(_Network, architecture, self.file, self.device))
        n_outputs = self._network.get().n_outputs  # read now, to refuse a bad file at once
        super().__init__(
            activation=_activation(classes, n_outputs, self.file),
            temperature=temperature,
            classes=classes,
            **options,
        )

    def _network_identity(self) -> Hashable:
        return self.architecture, self.file.path, self.size, self.mean, self.std

    def _row_bytes(self, X: Table) -> int:
        height, width = self.size
        return WORKING_COPIES * 4 * CHANNELS * height * width

    def _outputs(self, X: Table, task: Task) -> Float64:
        torch = optional("torch", extra="torch")
        images = _read(as_objects(X, "image"), self.size)
        mean, std = (torch.tensor(v).reshape(1, CHANNELS, 1, 1) for v in (self.mean, self.std))
        return self._network.get()((images - mean) / std)


class _Network:
    """A network with the weights of a file."""

    def __init__(self, architecture: str, file: ModelFile, device: str) -> None:
        from localma.pretrained import read_weights

        backbone, state = _found_backbone(architecture), read_weights(file.path)
        head = backbone.head if isinstance(backbone.head, str) else backbone.head[0]
        self.n_outputs = len(state.get(f"{head}.weight", range(1000)))
        network = backbone.make(self.n_outputs)
        _check_fit(network.state_dict(), state, architecture, file)
        network.load_state_dict(state, strict=False)
        self.module, self.device = network.to(device).float().eval(), device

    def __call__(self, images: Tensor) -> Float64:
        torch = optional("torch", extra="torch")
        with torch.inference_mode():
            logits = self.module(images.to(self.device))
        return np.asarray(logits.float().cpu().numpy(), dtype=np.float64)


def _found_backbone(architecture: str) -> Backbone:
    """Find the architecture of that name in timm."""
    from localma.pretrained import find_backbone

    try:
        return find_backbone(architecture)
    except MissingDependencyError as error:
        raise MissingDependencyError(
            f"{error} Or make the network yourself and pass the nn.Module: TorchCandidate(module)."
        ) from error
    except InvalidInputError as error:
        names = optional("timm", extra="vision").list_models()
        similar = get_close_matches(architecture, names, n=5, cutoff=0.5)
        hint = "no name is similar."
        if similar:
            hint = f"did you mean {' or '.join(map(repr, similar))}?"
        raise InvalidInputError(
            f"Unknown architecture {architecture!r}; {hint} timm.list_models() lists all names."
        ) from error


def _check_fit(
    expected: Mapping[str, Tensor], state: Mapping[str, Tensor], architecture: str, file: ModelFile
) -> None:
    """Refuse weights of another network, with counts and examples."""
    # Counts of training batches do not change predictions, and many files leave them out.
    missing = [k for k in expected if k not in state and not k.endswith("num_batches_tracked")]
    unknown = [key for key in state if key not in expected]
    different = [
        f"{key} {tuple(state[key].shape)} in place of {tuple(expected[key].shape)}"
        for key in expected
        if key in state and expected[key].shape != state[key].shape
    ]
    problems = [
        f"{len(keys)} of {total} {problem}, such as {', '.join(keys[:EXAMPLES])}"
        for keys, total, problem in (
            (missing, len(expected), "tensors of the network are missing"),
            (unknown, len(state), "tensors in the file do not belong to the network"),
            (different, len(expected), "tensors have other shapes"),
        )
        if keys
    ]
    if problems:
        raise InvalidInputError(
            f"The weights file {str(file.path)!r} does not fit the architecture {architecture!r}: "
            f"{'; '.join(problems)}. Name the architecture that the file was made for."
        )


def _activation(classes: Classes | None, n_outputs: int, file: ModelFile) -> Activation | None:
    if classes is None:
        return None
    labels = as_labels(classes)
    if n_outputs == 1 and len(labels) == 2:
        return "sigmoid"
    if n_outputs == len(labels) > 1:
        return "softmax"
    raise InvalidInputError(
        f"classes= must name the {n_outputs} outputs of the weights file {str(file.path)!r}, each "
        f"once and in their order; received {len(labels)}: {listed(labels[:10])}."
    )


def _read(rows: Sequence[Any] | AnyArray, size: tuple[int, int]) -> Tensor:
    """Read images as one tensor (n, 3, height, width) between 0 and 1; an error names the row."""
    from localma.images import ImageRows

    images, tensors = ImageRows(rows, size, resize=True), []
    for row in range(n_rows(rows)):
        try:
            tensors.append(images[row])
        except InvalidInputError as error:
            # This row number counts within the batch; RowError turns it into the number in X.
            text = str(error).replace(f" of row {row} ", " ").replace(f"row {row} ", "it ")
            raise RowError(text, row=row) from error
    return optional("torch", extra="torch").stack(tensors)


def _checked_size(size: int | Sequence[int]) -> tuple[int, int]:
    sizes = [size, size] if isinstance(size, int | np.integer) else _as_list(size)
    whole = [isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in sizes]
    if len(sizes) != 2 or not all(whole):
        raise InvalidInputError(
            "size must be a number of pixels, or two, height and width, each one or more; received "
            f"{size!r}."
        )
    return int(sizes[0]), int(sizes[1])


def _as_list(values: Sequence[Number]) -> list[Number]:
    """Return a list of the values; an empty one if they are not a sequence."""
    if isinstance(values, Sequence | np.ndarray):
        return list(values)
    return []


def _checked_channels(name: str, values: Sequence[float]) -> tuple[float, ...]:
    numbers = _as_list(values)
    real = [isinstance(v, int | float | np.number) and isfinite(v) for v in numbers]
    if len(numbers) != CHANNELS or not all(real):
        raise InvalidInputError(
            f"{name} must hold {CHANNELS} finite numbers, one for each of red, green and blue; "
            f"received {values!r}."
        )
    return tuple(float(value) for value in numbers)
