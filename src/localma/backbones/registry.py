"""Networks of images by name, with the weights of a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from localma._torch_packages import import_timm
from localma.backbones.efficientnet_lite import EfficientNetLite
from localma.backbones.mobilenet_v1 import MobileNetV1
from localma.errors import InvalidInputError, MissingDependencyError, unknown_name


@dataclass(frozen=True)
class Backbone:
    """A network to logits of classes, and the images that it was trained on.

    make : number of classes -> network; head : name of its last layer; size : height and width of
    its images; mean, std : (3,) by which pixels in [0, 1] are standardised.
    """

    make: Callable[[int], nn.Module]
    head: str
    size: int
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)


BACKBONES = {
    "tf_efficientnet_lite0": Backbone(partial(EfficientNetLite, 1.0, 1.0), "classifier", 224),
    "tf_efficientnet_lite1": Backbone(partial(EfficientNetLite, 1.0, 1.1), "classifier", 240),
    "tf_efficientnet_lite2": Backbone(partial(EfficientNetLite, 1.1, 1.2), "classifier", 260),
    "mobilenet_v1_025": Backbone(partial(MobileNetV1, 0.25), "fc", 224),
}
"""Networks that are defined here, and need no timm."""


def find_backbone(name: str) -> Backbone:
    """The network of that name: one of `BACKBONES`, or else one of timm's.

    >>> find_backbone("tf_efficientnet_lite0").size
    224
    """
    return BACKBONES[name] if name in BACKBONES else _from_timm(name)


def make_network(
    name: str, weights: str | PathLike[str] | None = None, *, n_classes: int | None = None
) -> nn.Module:
    """Make a network by name, with the weights of a file or random ones.

    Parameters
    ----------
    name : one of `BACKBONES`, or a model of timm.
    weights : file of parameters, safetensors or a state dict of PyTorch; it must fit exactly.
    n_classes : outputs of the last layer. By default as many as the file has, or 1,000.
    """
    backbone = find_backbone(name)
    if weights is None:
        return backbone.make(n_classes or 1000)
    state = read_weights(weights)
    last = state.get(f"{backbone.head}.weight")
    network = backbone.make(n_classes or (1000 if last is None else len(last)))
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise InvalidInputError(
            f"The weights file {str(weights)!r} does not fit the network {name!r}: "
            f"{_first_lines(error)} Name the architecture that the file was made for."
        ) from error
    return network


def make_features(name: str, weights: str | PathLike[str] | None = None) -> nn.Module:
    """Make a network without its last layer: images (n, 3, h, w) -> features (n, d)."""
    network = make_network(name, weights)
    network.set_submodule(find_backbone(name).head, nn.Identity())
    return network


def read_weights(path: str | PathLike[str]) -> dict[str, Tensor]:
    """Read named parameters from a safetensors file or a PyTorch state dict; runs no code."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = weights_file(path)
    try:
        state: Any = (
            load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, map_location="cpu", weights_only=True)
        )
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise _unreadable(file, error) from error
    except Exception as error:  # torch.load raises whatever its unpickler meets, by any name
        raise _unreadable(file, error) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise InvalidInputError(
            f"A weights file holds named tensors; {str(path)!r} holds a {type(state).__name__}. "
            "Save network.state_dict()."
        )
    return state


def weights_file(path: str | PathLike[str]) -> Path:
    """The path of a weights file that is there."""
    file = Path(path)
    if not file.is_file():
        raise InvalidInputError(
            f"There is no weights file {str(path)!r}. Give the path of a safetensors file, or of "
            "a state dict that torch.save wrote, as seen from the working directory."
        )
    return file


def _unreadable(file: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"The weights file {str(file)!r} cannot be read, or was cut short "
        f"({_first_lines(error)}). Give a safetensors file, or a state dict that torch.save wrote."
    )


def _from_timm(name: str) -> Backbone:
    if find_spec("timm") is None:
        raise MissingDependencyError(
            f"The network {name!r} is not defined here and would come from timm, which is not "
            f"installed (pip install 'localma[vision]'). Known without it: {_known()}."
        )
    try:
        timm: Any = import_timm()
    except (ImportError, RuntimeError, OSError) as error:
        raise MissingDependencyError(
            f"The network {name!r} is not defined here and would come from timm, which cannot be "
            f"imported ({_first_lines(error)}): timm needs a torchvision built for this torch. "
            f"Install one, or take a network that needs no timm: {_known()}."
        ) from error
    if not timm.is_model(name):
        raise unknown_name("network", name, [*BACKBONES, *timm.list_models()])
    settings: Any = timm.get_pretrained_cfg(name, allow_unregistered=True)

    def make(n_classes: int) -> nn.Module:
        network: nn.Module = timm.create_model(name, pretrained=False, num_classes=n_classes)
        return network

    size = settings.input_size[-1]
    return Backbone(make, settings.classifier, size, tuple(settings.mean), tuple(settings.std))


def _known() -> str:
    return ", ".join(repr(name) for name in BACKBONES)


def _first_lines(error: Exception) -> str:
    """What a foreign error says, short enough for a sentence."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}..."
