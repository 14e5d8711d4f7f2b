"""Pretrained networks: weights files, architectures of timm, folders of transformers.

PyTorch, timm and transformers are imported when a function needs them.

The torchvision in package registries is built for a PyTorch with CUDA. With a PyTorch for CPUs, its
compiled operators cannot be loaded, and importing it fails. timm imports torchvision but does not
call these operators, so `import_timm` declares them without an implementation. transformers
imports torchvision for every model if it is installed, so `import_transformers` hides a torchvision
that does not work.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import TYPE_CHECKING

from localma._optional import optional
from localma.errors import InvalidInputError, MissingDependencyError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.library import Library

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
"""Files to download from the hub; weights in other formats are pickled."""
IMAGENET_CLASSES = 1000


# Packages.


def torchvision_failure() -> str | None:
    """Return the error of importing an installed torchvision; None if it works or is missing."""
    if "torchvision" in sys.modules or find_spec("torchvision") is None:
        return None
    try:
        import_module("torchvision")
    except Exception as error:  # a RuntimeError about a missing operator, or any other
        return f"{type(error).__name__}: {error}"
    return None


def import_timm() -> ModuleType:
    """Import timm, also if torchvision was built for another PyTorch."""
    failure = torchvision_failure()
    if failure is None:
        return import_module("timm")
    if "operator torchvision::" in failure:
        _declare_operators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about other files that cannot be loaded, such as codecs
        return import_module("timm")


@cache  # the declarations are valid as long as the library object exists
def _declare_operators() -> Library:
    """Declare the operators that torchvision describes when it is imported."""
    library: Library = import_module("torch").library.Library("torchvision", "DEF")
    for operator in OPERATORS:
        library.define(operator + SIGNATURE)  # type: ignore[no-untyped-call]
    return library


def import_transformers() -> ModuleType:
    """Import transformers, without torchvision if torchvision does not work."""
    transformers = optional("transformers", extra="text")
    is_available = transformers.utils.import_utils.is_torchvision_available
    if is_available() and torchvision_failure() is not None:
        is_available.cache_clear()
        sys.modules["torchvision"] = None  # type: ignore[assignment]
        try:
            is_available()  # transformers remembers the answer
        finally:
            del sys.modules["torchvision"]
    return transformers


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Suppress the progress bar and the report that transformers prints when it reads weights."""
    logging = transformers.utils.logging
    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()


# Folders of transformers.


def model_folder(name: str | PathLike[str]) -> Path:
    """Find the folder of a transformers model, by its path or by its name on the hub."""
    folder, text = Path(name), fspath(name)
    if folder.is_dir():
        return folder
    if isinstance(name, PathLike) or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise InvalidInputError(
            f"There is no folder {text!r}. Pass a folder that save_pretrained wrote, with "
            "config.json, the weights and the tokenizer. Relative paths start at the working "
            "directory."
        )
    return _from_hub(text)


@lru_cache(maxsize=16)
def _from_hub(name: str) -> Path:
    hub = optional("huggingface_hub", extra="text")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(MODEL_FILES)))
    except Exception as error:  # errors of the hub, of HTTP libraries and of the network
        raise InvalidInputError(
            f"{name!r} is not a folder, and the Hugging Face hub did not provide a model of that "
            f"name ({type(error).__name__}: {str(error).splitlines()[0][:200]}). Check the name "
            "and the connection, or pass the folder of a downloaded model."
        ) from error


# Weights files, and the networks of timm that they belong to.


def weights_file(path: str | PathLike[str]) -> Path:
    """Return the path of a weights file, or raise an error if there is none."""
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(
            f"There is no weights file {str(path)!r}. Pass the path of a safetensors file, or of a "
            "state dict that torch.save wrote. Relative paths start at the working directory."
        )
    return file


def read_weights(path: str | PathLike[str]) -> dict[str, Tensor]:
    """Read named parameters from a safetensors file or a PyTorch state dict; runs no code."""
    import torch
    from safetensors.torch import load_file

    file = weights_file(path)
    try:
        if file.suffix == ".safetensors":
            state = load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler of torch.load raises errors of any class
        raise InvalidInputError(
            f"The weights file {str(file)!r} cannot be read, or was cut short "
            f"({_short(error)}). Pass a safetensors file, or a state dict that torch.save wrote."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise InvalidInputError(
            f"A weights file must contain named tensors; {str(path)!r} contains a "
            f"{type(state).__name__}. Save network.state_dict()."
        )
    return state


@dataclass(frozen=True)
class Backbone:
    """An architecture of timm, and the images that it was designed for.

    Parameters
    ----------
    name : str
        Name of the architecture in timm.
    heads : tuple of str
        Names of the last layers; only distilled networks have more than one.
    size : int
        Height and width of the images.
    mean, std : tuple of three floats
        Mean and scale by which pixels between 0 and 1 are standardized.
    """

    name: str
    heads: tuple[str, ...]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def head(self) -> str:
        """Name of the last layer that has as many outputs as there are classes."""
        return self.heads[0]

    def make(self, n_classes: int = IMAGENET_CLASSES) -> nn.Module:
        """Make the network with random parameters: images (n, 3, h, w) -> logits (n, classes)."""
        return import_timm().create_model(self.name, pretrained=False, num_classes=n_classes)

    def load(self, weights: str | PathLike[str]) -> nn.Module:
        """Make the network with the parameters and the number of classes of a weights file."""
        state = read_weights(weights)
        network = self.make(len(state.get(f"{self.head}.weight", range(IMAGENET_CLASSES))))
        try:
            network.load_state_dict(state)
        except RuntimeError as error:
            raise InvalidInputError(
                f"The weights file {str(weights)!r} does not fit the network {self.name!r}: "
                f"{_short(error)} Name the architecture that the file was made for."
            ) from error
        return network

    def features(self, weights: str | PathLike[str] | None = None) -> nn.Module:
        """Make the network without its last layer: images (n, 3, h, w) -> features (n, d)."""
        from torch import nn

        network = self.make() if weights is None else self.load(weights)
        for head in self.heads:
            network.set_submodule(head, nn.Identity())
        return network


def find_backbone(name: str) -> Backbone:
    """Look up an architecture of timm by its name."""
    if find_spec("timm") is None:
        raise MissingDependencyError(
            f"The network {name!r} comes from timm, which is not installed. Install it with: "
            "pip install 'localma[vision]'."
        )
    try:
        timm = import_timm()
    except (ImportError, RuntimeError, OSError) as error:
        raise MissingDependencyError(
            f"The network {name!r} comes from timm, which cannot be imported ({_short(error)}). "
            "timm needs a torchvision that was built for this torch: install one."
        ) from error
    if not timm.is_model(name):
        raise unknown_name("network", name, timm.list_models())
    settings = timm.get_pretrained_cfg(name, allow_unregistered=True)
    heads = settings.classifier
    if isinstance(heads, str):
        heads = (heads,)
    size = settings.input_size[-1]
    return Backbone(name, tuple(heads), size, tuple(settings.mean), tuple(settings.std))


def _short(error: Exception) -> str:
    return shorten(str(error), 300, placeholder="...")
