"""Random changes of images that leave what they show: flips, small turns, light."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

GREY = (0.299, 0.587, 0.114)
"""Share of red, green and blue in the brightness of a pixel (ITU-R 601)."""


@dataclass(frozen=True)
class Augmentation:
    """The changes of the paper, each drawn anew for each image.

    flip : whether half of the images are mirrored left to right; degrees : images are turned by at
    most as much, black entering at the corners; brightness, contrast : pixels, and their distance
    from the image's mean grey, are multiplied by a factor within one plus or minus it.
    """

    flip: bool = True
    degrees: float = 10.0
    brightness: float = 0.2
    contrast: float = 0.2

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Change images (n, 3, height, width) between 0 and 1; they stay there.

        >>> Augmentation()(torch.rand(2, 3, 8, 8)).shape
        torch.Size([2, 3, 8, 8])
        """

        def uniform(reach: float) -> Tensor:
            # Drawn on the CPU, so that a seed means the same on every device.
            drawn = torch.rand(len(images), 1, 1, 1, generator=generator)
            return (reach * (2.0 * drawn - 1.0)).to(images.device)

        if self.flip:
            images = torch.where(uniform(1.0) < 0.0, images.flip(3), images)
        if self.degrees:
            images = _turned(images, uniform(math.radians(self.degrees)).flatten())
        if self.brightness:
            images = (images * (1.0 + uniform(self.brightness))).clamp(0.0, 1.0)
        if self.contrast:
            grey = torch.einsum("nchw,c->nhw", images, images.new_tensor(GREY))
            mean = grey.mean(dim=(1, 2))[:, None, None, None]
            images = (mean + (1.0 + uniform(self.contrast)) * (images - mean)).clamp(0.0, 1.0)
        return images


def _turned(images: Tensor, angles: Tensor) -> Tensor:
    """Turn each image about its centre by its angle (n,), bilinearly."""
    height, width = images.shape[2:]
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    # Coordinates run from -1 to 1 along both axes: a turn of pixels needs their proportion.
    first = torch.stack([cos, -sin * height / width, zero], dim=1)
    second = torch.stack([sin * width / height, cos, zero], dim=1)
    grid = torch.nn.functional.affine_grid(
        torch.stack([first, second], dim=1), list(images.shape), align_corners=False
    )
    return torch.nn.functional.grid_sample(images, grid, mode="bilinear", align_corners=False)
