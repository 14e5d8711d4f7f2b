"""EfficientNet-Lite 0 to 2 and MobileNetV1 in plain PyTorch, for the study of CIFAR-10.

EfficientNet-Lite (Tan and Le, 2019) has the parameter names of timm's `tf_efficientnet_lite{k}`, so
that weights files for timm can be loaded. MobileNetV1 (Howard et al., 2017) follows Keras.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from os import PathLike

from torch import Tensor, nn

from localma.errors import InvalidInputError, unknown_name
from localma.pretrained import read_weights

LITE_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
"""Kernel, stride, expansion, channels and repeats of each stage, before scaling."""


class SameConv2d(nn.Conv2d):
    """A convolution with the "same" padding of TensorFlow: an odd pixel goes right and below."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, c', ceil(h / stride), ceil(w / stride))."""
        rows, columns = (
            max((math.ceil(size / step) - 1) * step + kernel - size, 0)
            for size, step, kernel in zip(x.shape[2:], self.stride, self.kernel_size, strict=True)
        )
        sides = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        return super().forward(nn.functional.pad(x, sides))


class _Block(nn.Module):
    """Depthwise convolution between two pointwise ones, added to its input if the shapes match."""

    def __init__(
        self, channels: int, out: int, kernel: int, stride: int, expansion: int, keep: bool
    ) -> None:
        super().__init__()
        middle = channels * expansion
        self.adds = keep
        spread = SameConv2d(middle, middle, kernel, stride, groups=middle, bias=False)
        project = nn.Conv2d(middle, out, 1, bias=False)
        # The names are those of timm. They depend on whether channels are expanded first.
        if expansion > 1:
            layers: dict[str, nn.Module] = {
                "conv_pw": nn.Conv2d(channels, middle, 1, bias=False),
                "bn1": _norm(middle),
            }
            layers |= {"conv_dw": spread, "bn2": _norm(middle)}
            layers |= {"conv_pwl": project, "bn3": _norm(out)}
        else:
            layers = {
                "conv_dw": spread,
                "bn1": _norm(middle),
                "conv_pw": project,
                "bn2": _norm(out),
            }
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.names = tuple(layers)

    def forward(self, x: Tensor) -> Tensor:
        inner = x
        for index, name in enumerate(self.names):
            inner = self.get_submodule(name)(inner)
            if index % 2 == 1 and index + 1 < len(self.names):
                inner = nn.functional.relu6(inner)
        return x + inner if self.adds else inner


class EfficientNetLite(nn.Module):
    """An EfficientNet-Lite: images (n, 3, h, w), scaled to [-1, 1], to logits (n, classes).

    Parameters
    ----------
    width, depth : float
        Scale of channels and of repeats; (1, 1), (1, 1.1) and (1.1, 1.2) are Lite 0, 1 and 2.
    n_classes : int

    Examples
    --------
    >>> import torch
    >>> EfficientNetLite(1.0, 1.0, 10).eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, width: float, depth: float, n_classes: int = 1000) -> None:
        super().__init__()
        self.conv_stem = SameConv2d(3, 32, 3, 2, bias=False)
        self.bn1 = _norm(32)
        stages, channels = [], 32
        for stage, (kernel, stride, expansion, base, repeats) in enumerate(LITE_STAGES):
            out = _round_channels(base * width)
            # The first and the last stage are not repeated in any size.
            n = repeats if stage in (0, len(LITE_STAGES) - 1) else math.ceil(repeats * depth)
            blocks = []
            for repeat in range(n):
                step = stride if repeat == 0 else 1
                keep = step == 1 and channels == out
                blocks.append(_Block(channels, out, kernel, step, expansion, keep))
                channels = out
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = nn.Conv2d(channels, 1280, 1, bias=False)
        self.bn2 = _norm(1280)
        self.classifier: nn.Module = nn.Linear(1280, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, classes)."""
        x = nn.functional.relu6(self.bn1(self.conv_stem(x)))
        x = nn.functional.relu6(self.bn2(self.conv_head(self.blocks(x))))
        logits: Tensor = self.classifier(x.mean(dim=(2, 3)))
        return logits

    def remove_head(self) -> None:
        """Remove the last layer, so that the network returns features (n, 1280)."""
        self.classifier = nn.Identity()


def _round_channels(channels: float) -> int:
    """Nearest multiple of eight that is at least nine tenths of the number."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


MOBILE_LAYERS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
)
"""Channels and stride of each layer, before scaling."""


class MobileNetV1(nn.Module):
    """A MobileNetV1: images (n, 3, h, w), scaled to [-1, 1], to logits (n, classes).

    Parameters
    ----------
    width : float
        Scale of channels, Keras' `alpha`.
    n_classes : int

    Examples
    --------
    >>> import torch
    >>> MobileNetV1(0.25, 10).eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, width: float, n_classes: int = 1000) -> None:
        super().__init__()
        sizes = [int(32 * width), *(int(channels * width) for channels, _ in MOBILE_LAYERS)]
        self.conv1 = nn.Conv2d(3, sizes[0], 3, 2, bias=False)
        self.conv1_bn = _norm(sizes[0])
        self.dw = nn.ModuleList(
            nn.Conv2d(size, size, 3, stride, groups=size, bias=False)
            for size, (_, stride) in zip(sizes[:-1], MOBILE_LAYERS, strict=True)
        )
        self.dwb = nn.ModuleList(_norm(size) for size in sizes[:-1])
        self.pw = nn.ModuleList(
            nn.Conv2d(size, out, 1, bias=False) for size, out in pairwise(sizes)
        )
        self.pwb = nn.ModuleList(_norm(size) for size in sizes[1:])
        self.fc: nn.Module = nn.Linear(sizes[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, classes)."""
        relu = nn.functional.relu6
        x = relu(self.conv1_bn(self.conv1(_padded(x, 2))))
        for (_, stride), dw, dwb, pw, pwb in zip(
            MOBILE_LAYERS, self.dw, self.dwb, self.pw, self.pwb, strict=True
        ):
            x = relu(pwb(pw(relu(dwb(dw(_padded(x, stride)))))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits

    def remove_head(self) -> None:
        """Remove the last layer, so that the network returns features (n, d)."""
        self.fc = nn.Identity()


def _padded(x: Tensor, stride: int) -> Tensor:
    """Pad for a kernel of three; with stride two Keras pads right and below only."""
    return nn.functional.pad(x, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


NETWORKS: Mapping[str, Callable[[int], EfficientNetLite | MobileNetV1]] = {
    "tf_efficientnet_lite0": partial(EfficientNetLite, 1.0, 1.0),
    "tf_efficientnet_lite1": partial(EfficientNetLite, 1.0, 1.1),
    "tf_efficientnet_lite2": partial(EfficientNetLite, 1.1, 1.2),
    "mobilenet_v1_025": partial(MobileNetV1, 0.25),
}
"""Name -> function from the number of classes to a network."""

MEAN = STD = (0.5, 0.5, 0.5)
"""Mean and scale by which pixels between 0 and 1 are standardized, for all networks."""


def load_network(name: str, weights: str | PathLike[str]) -> EfficientNetLite | MobileNetV1:
    """Build a network with the parameters and the number of classes of a weights file."""
    if name not in NETWORKS:
        raise unknown_name("network", name, NETWORKS)
    state = read_weights(weights)
    heads = [state[key] for key in ("classifier.weight", "fc.weight") if key in state]
    network = NETWORKS[name](len(heads[0]) if heads else 1000)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise InvalidInputError(
            f"The weights file {str(weights)!r} does not fit the network {name!r}: {error}"
        ) from error
    return network


def load_features(name: str, weights: str | PathLike[str]) -> nn.Module:
    """Build a network without its last layer: images (n, 3, h, w) -> features (n, d)."""
    network = load_network(name, weights)
    network.remove_head()
    return network
