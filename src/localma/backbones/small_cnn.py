"""A small convolutional network for small images, trained from scratch."""

from __future__ import annotations

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Three convolutions and two dense layers: images (n, 3, h, w) to (n, outputs).

    It has no normalisation by batches: what it says of an image depends on no other image, and rows
    without weight play no part in training.

    Parameters
    ----------
    n_outputs : int
    channels : tuple of int
    hidden : int
        Units of the dense layer.
    dropout : float
        Share of its inputs that is left out at random in training.

    Examples
    --------
    >>> import torch
    >>> SmallCNN(4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 4])
    """

    def __init__(
        self,
        n_outputs: int,
        channels: tuple[int, ...] = (32, 64, 64),
        hidden: int = 128,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip((3, *channels[:-1]), channels, strict=True):
            # Pooling before ReLU gives the same, on a quarter of the pixels.
            layers.append(nn.Conv2d(before, after, 3, padding=1))
            layers += [nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]
        # Four by four cells whatever the size of the image.
        layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(dropout)]
        layers += [nn.Linear(channels[-1] * 16, hidden), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(hidden, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, outputs)."""
        logits: Tensor = self.head(self.body(x))
        return logits
