"""EfficientNet-Lite 0 to 2 (Tan and Le, 2019; TensorFlow's "lite" edition) in plain PyTorch.

Parameters are named as in timm's `tf_efficientnet_lite{k}`, so weights files made for it load.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

# (kernel, stride, expansion, channels, repeats) of each stage, before scaling.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's "same" does: the odd pixel goes right and below."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, c', ceil(h / stride), ceil(w / stride))."""
        rows, columns = (
            max((math.ceil(size / step) - 1) * step + kernel - size, 0)
            for size, step, kernel in zip(x.shape[2:], self.stride, self.kernel_size, strict=True)
        )
        sides = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        return super().forward(nn.functional.pad(x, sides))


class _Block(nn.Module):
    """Depthwise convolution between two pointwise ones, added to its input where shapes allow."""

    def __init__(
        self, channels: int, out: int, kernel: int, stride: int, expansion: int, keep: bool
    ) -> None:
        super().__init__()
        middle = channels * expansion
        self.adds = keep
        spread = SameConv2d(middle, middle, kernel, stride, groups=middle, bias=False)
        project = nn.Conv2d(middle, out, 1, bias=False)
        # The names are timm's, which depend on whether channels are expanded first.
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
        for place, name in enumerate(self.names):
            inner = self.get_submodule(name)(inner)
            if place % 2 == 1 and place + 1 < len(self.names):
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
        for place, (kernel, stride, expansion, base, repeats) in enumerate(STAGES):
            out = _round_channels(base * width)
            # The first and the last stage are not repeated in any size.
            n = repeats if place in (0, len(STAGES) - 1) else math.ceil(repeats * depth)
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


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def _round_channels(channels: float) -> int:
    """Nearest multiple of eight, but not below nine tenths."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
