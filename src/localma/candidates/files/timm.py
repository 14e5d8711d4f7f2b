"""An image classifier as a candidate: the name of an architecture and a file of weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from localma._optional import optional
from localma.candidates.base import (
    WORKING_COPIES,
    BatchSize,
    Inputs,
    LogitsCandidate,
    LogitsRecipe,
    RowError,
)
from localma.candidates.files.base import FileRecipe, ModelFile, PerProcess, as_objects
from localma.candidates.outputs import Activation, Array, Classes, Table, Task, as_labels, listed
from localma.errors import InvalidInputError, MissingDependencyError
from localma.tables.frames import n_rows

Size = int | tuple[int, int]
CHANNELS = 3
EXAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class TimmRecipe(FileRecipe, LogitsRecipe):
    """The architecture, the weights file with its fingerprint, and the options."""

    kind = "timm"
    architecture: str
    size: list[int]
    mean: list[float]
    std: list[float]
    device: str

    def make(self) -> TimmCandidate:
        """Find the file again and check that it is the same."""
        options = self.options()
        del options["activation"]  # which follows from the weights and the classes
        return TimmCandidate(weights=self.file(), **options)


class TimmCandidate(LogitsCandidate):
    """An image classifier of timm, by its architecture and a file of weights.

    Images are resized, bilinearly and without keeping their proportions, and standardised,
    ``(pixels / 255 - mean) / std``. Grey images become RGB and alpha channels are dropped.
    Weights that are stored in half precision run in float32.

    timm needs torchvision; one that was built for CUDA does beside a PyTorch for CPUs, too. The
    EfficientNet-Lites (`tf_efficientnet_lite0`, 1 and 2) and `mobilenet_v1_025` are defined in
    localma, and need neither.

    Parameters
    ----------
    architecture : its name in timm.
    weights : a safetensors file, or a state dict that torch.save wrote; no code in it is run.
    classes : labels of the network's outputs, in their order. A network with one output takes two
        labels, and the output is the logit of the second.
    size : height and width of the images that the network gets, or one number for both; by default
        those that the architecture was trained on, and so are `mean` and `std`.
    mean, std : (3,) by which pixels between 0 and 1 are standardised.
    temperature : what logits are divided by; `calibrated` fits it.
    inputs : the column with the paths; by default X holds nothing else: an array of uint8 images
        (n, height, width, 3), a list of paths, arrays or PIL images, or a Dataset.
    device : where to run, such as "cuda".
    cost, batch_size : as for every candidate.
    """

    kind = "timm"
    recipe_type = TimmRecipe

    def __init__(
        self,
        architecture: str,
        weights: str | os.PathLike[str] | ModelFile,
        *,
        classes: Classes | None = None,
        size: Size | Sequence[int] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        temperature: float = 1.0,
        inputs: Inputs = None,
        cost: float = 1.0,
        batch_size: BatchSize = "auto",
        device: str = "cpu",
    ) -> None:
        optional("torch", extra="vision")
        backbone = _found(architecture)
        self.architecture, self.device = architecture, str(device)
        self.file = weights if isinstance(weights, ModelFile) else ModelFile(weights)
        self.size = _checked_size(backbone.size if size is None else size)
        self.mean = _checked_channels("mean", backbone.mean if mean is None else mean)
        self.std = _checked_channels("std", backbone.std if std is None else std)
        if min(self.std) <= 0.0:
            raise InvalidInputError(f"std must be above zero; received {self.std}.")
        self._network = PerProcess(partial(_Network, architecture, self.file, self.device))
        outputs = self._network.get().n_outputs  # read now, so that a bad file is known at once
        super().__init__(
            activation=_activation(classes, outputs, self.file),
            temperature=temperature,
            inputs=inputs,
            classes=classes,
            cost=cost,
            batch_size=batch_size,
        )

    @property
    def label(self) -> str:
        """The name of the weights file."""
        return self.file.label

    @property
    def source(self) -> str:
        """The weights file."""
        return str(self.file.path)

    def _network_identity(self) -> object:
        return self.architecture, self.file.path, self.size, self.mean, self.std

    def _row_bytes(self, X: Table) -> int:
        height, width = self.size
        return WORKING_COPIES * 4 * CHANNELS * height * width

    def _outputs(self, X: Table, task: Task) -> Array:
        images = _read(as_objects(X, "image"), self.size)
        torch = optional("torch", extra="torch")
        mean, std = (torch.tensor(v).reshape(1, CHANNELS, 1, 1) for v in (self.mean, self.std))
        return self._network.get()((images - mean) / std)

    def recipe(self) -> TimmRecipe | None:
        """The architecture, the weights file with its fingerprint, and the options."""
        return TimmRecipe.of(self, **self.file.recipe())


class _Network:
    """A network with the weights of a file."""

    def __init__(self, architecture: str, file: ModelFile, device: str) -> None:
        from localma.backbones.registry import read_weights  # which needs torch

        backbone, state = _found(architecture), read_weights(file.path)
        head = backbone.head if isinstance(backbone.head, str) else backbone.head[0]
        last = state.get(f"{head}.weight")
        network = backbone.make(1000 if last is None else len(last))
        _check_fit(network.state_dict(), state, architecture, file)
        network.load_state_dict(state, strict=False)
        self.module, self.device = network.to(device).float().eval(), device
        self.n_outputs = len(state[f"{head}.weight"])

    def __call__(self, images: Any) -> Array:
        torch = optional("torch", extra="torch")
        with torch.inference_mode():
            logits = self.module(images.to(self.device))
        return np.asarray(logits.float().cpu().numpy(), dtype=np.float64)


def _found(architecture: str) -> Any:
    """The architecture of that name: one that is defined in localma, or one of timm's."""
    from localma.backbones.registry import BACKBONES, find_backbone

    try:
        return find_backbone(architecture)
    except MissingDependencyError as error:
        raise MissingDependencyError(
            f"{error} Or make the network yourself and pass the nn.Module: TorchCandidate(module)."
        ) from error
    except InvalidInputError as error:
        known = [*BACKBONES, *optional("timm", extra="vision").list_models()]
        near = get_close_matches(architecture, known, n=5, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "no name is near it."
        raise InvalidInputError(
            f"Unknown architecture {architecture!r}; {hint} timm.list_models() gives all."
        ) from error


def _check_fit(wanted: Any, found: Any, architecture: str, file: ModelFile) -> None:
    """Refuse weights of another network, with counts and examples."""
    # Counts of training batches play no part here, and many files leave them out.
    missing = [k for k in wanted if k not in found and not k.endswith("num_batches_tracked")]
    strange = [key for key in found if key not in wanted]
    unlike = [
        f"{key} {tuple(found[key].shape)} in place of {tuple(wanted[key].shape)}"
        for key in wanted
        if key in found and wanted[key].shape != found[key].shape
    ]
    if not missing and not strange and not unlike:
        return
    parts = [
        f"{len(keys)} of {len(found if keys is strange else wanted)} {what}, such as "
        f"{', '.join(keys[:EXAMPLES])}"
        for keys, what in (
            (missing, "tensors of the network are missing"),
            (strange, "tensors in the file are not of the network"),
            (unlike, "tensors have other shapes"),
        )
        if keys
    ]
    raise InvalidInputError(
        f"The weights file {str(file.path)!r} does not fit the architecture {architecture!r}: "
        f"{'; '.join(parts)}. Name the architecture that the file was made for."
    )


def _activation(classes: Any, outputs: int, file: ModelFile) -> Activation | None:
    if classes is None:
        return None
    labels = as_labels(classes)
    if outputs == 1 and len(labels) == 2:
        return "sigmoid"
    if outputs == len(labels) > 1:
        return "softmax"
    raise InvalidInputError(
        f"classes= must name the {outputs} outputs of the weights file {str(file.path)!r}, each "
        f"once and in their order; received {len(labels)}: {listed(labels[:10])}."
    )


def _read(rows: Any, size: tuple[int, int]) -> Any:
    """Images as one tensor (n, 3, height, width) between 0 and 1; an error names the row."""
    from localma.backbones.images import ImageRows

    images, read = ImageRows(rows, size, resize=True), []
    for place in range(n_rows(rows)):
        try:
            read.append(images[place])
        except InvalidInputError as error:
            # Its row is counted within this batch; the number of the row in X is put before it.
            text = str(error).replace(f" of row {place} ", " ").replace(f"row {place} ", "it ")
            raise RowError(text, row=place) from error
    return optional("torch", extra="torch").stack(read)


def _checked_size(size: Any) -> tuple[int, int]:
    both = [size, size] if isinstance(size, int | np.integer) else size
    numbers = list(both) if isinstance(both, Sequence | np.ndarray) else []
    whole = [isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in numbers]
    if len(numbers) != 2 or not all(whole):
        raise InvalidInputError(
            "size must be a number of pixels, or two, height and width, each one or more; received "
            f"{size!r}."
        )
    return int(numbers[0]), int(numbers[1])


def _checked_channels(name: str, values: Any) -> tuple[float, ...]:
    numbers = list(values) if isinstance(values, Sequence | np.ndarray) else []
    real = [isinstance(v, int | float | np.number) and isfinite(v) for v in numbers]
    if len(numbers) != CHANNELS or not all(real):
        raise InvalidInputError(
            f"{name} must hold {CHANNELS} finite numbers, one for each of red, green and blue; "
            f"received {values!r}."
        )
    return tuple(float(value) for value in numbers)
