"""MobileNetV1 (Howard et al., 2017) as Keras has it, in plain PyTorch."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

# (channels, stride) of the pointwise and depthwise convolution of each layer, before scaling.
LAYERS = (
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
        sizes = [int(32 * width), *(int(channels * width) for channels, _ in LAYERS)]
        self.conv1 = nn.Conv2d(3, sizes[0], 3, 2, bias=False)
        self.conv1_bn = _norm(sizes[0])
        self.dw = nn.ModuleList(
            nn.Conv2d(size, size, 3, stride, groups=size, bias=False)
            for size, (_, stride) in zip(sizes[:-1], LAYERS, strict=True)
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
            LAYERS, self.dw, self.dwb, self.pw, self.pwb, strict=True
        ):
            x = relu(pwb(pw(relu(dwb(dw(_padded(x, stride)))))))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _padded(x: Tensor, stride: int) -> Tensor:
    """Pad for a kernel of three; with stride two Keras pads right and below only."""
    return nn.functional.pad(x, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)
