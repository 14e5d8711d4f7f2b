"""Networks of images: pixels to features, or to one logit per candidate."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from os import PathLike
from textwrap import shorten

import numpy as np
import torch
from torch import Tensor, nn

from localma.errors import InvalidInputError
from localma.gates.deep.image import Augmentation, Network
from localma.images import ImageRows, Size, digest_image
from localma.pretrained import Backbone, find_backbone, weights_file
from localma.storage.fingerprints import fingerprint

HALF = (0.5, 0.5, 0.5)


def small_cnn() -> nn.Sequential:
    """Make the network "cnn": three convolutions and a dense layer, images to 128 features.

    It has no batch normalization: the features of an image do not depend on other images, and rows
    without weight have no influence on training.

    >>> small_cnn()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 64)):
        # Pooling before ReLU gives the same result, on a quarter of the pixels.
        layers.append(nn.Conv2d(before, after, 3, padding=1))
        layers += [nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]
    # Four by four cells, whatever the size of the image.
    layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Linear(64 * 16, 128), nn.ReLU())


class PixelNetwork(nn.Module):
    """A network on pixels between 0 and 1, which are standardized, and augmented in training.

    images (n, 3, h, w) -> ``head(pooled(body((images - mean) / std)))``. Maps (n, d, h, w) are
    averaged over the image.

    With `channels_last`, pixels have that order in memory, which takes two thirds of the time on a
    CPU. A module that calls `view` on maps would fail, so do not use it for modules of users.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        body: nn.Module,
        head: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: Augmentation | None = None,
        *,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        self.body, self.head, self.augmentation = body, head, augmentation
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        # Not part of the state, since they are parameters of the gate.
        for name, values in (("mean", mean), ("std", std)):
            column = torch.tensor(values, dtype=torch.float32).reshape(1, 3, 1, 1)
            self.register_buffer(name, column, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, outputs)."""
        if self.training and self.augmentation is not None:
            images = self.augmentation(images)
        images = (images - self.mean) / self.std
        features = self.body(images.contiguous(memory_format=self.memory_format))
        if not isinstance(features, Tensor):
            raise TypeError(f"a network of images must return a tensor, not {type(features)}")
        if features.ndim == 4:
            features = features.mean(dim=(2, 3))
        return self.head(features)


@dataclass(frozen=True)
class NetworkSpec:
    """A network, its weights file, and the mean and scale of its pixels, as in `ImageGate`."""

    network: Network
    weights: str | PathLike[str] | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    @cached_property
    def backbone(self) -> Backbone | None:
        """The architecture of timm; None for other networks."""
        if isinstance(self.network, str) and self.network != "cnn":
            return find_backbone(self.network)
        return None

    @property
    def size(self) -> int | None:
        """Height and width for which the network was designed; None if it accepts any."""
        return getattr(self.backbone, "size", None)

    @property
    def pixels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and scale by which pixels are standardized."""
        mean = getattr(self.backbone, "mean", HALF) if self.mean is None else self.mean
        std = getattr(self.backbone, "std", HALF) if self.std is None else self.std
        return tuple(map(float, mean)), tuple(map(float, std))

    def features(self) -> PixelNetwork:
        """Make the network without a last layer, to features."""
        return self._on_pixels(self._body(self.weights), nn.Identity())

    def logits(
        self, n_logits: int, *, size: Size, start: bool, augmentation: Augmentation | None = None
    ) -> PixelNetwork:
        """Make the network with a new last layer; with `start`, at the weights of the file."""
        body = self._body(self.weights if start else None)
        network = self._on_pixels(body, nn.Identity()).eval()
        device = "cpu"
        if not start and isinstance(self.network, str):
            # The size in a model file may be huge. On this device images take no memory.
            device, network = "meta", copy.deepcopy(network).to("meta")
        try:
            with torch.inference_mode(), torch.device(device):
                n_features = network(torch.zeros(1, 3, *size)).shape[1]
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise InvalidInputError(
                f"The network of ImageGate must accept images of shape (n, 3, {size[0]}, "
                f"{size[1]}); it failed on them ({type(error).__name__}: "
                f"{shorten(str(error), 200, placeholder='...')}). Pass another size=."
            ) from error
        return self._on_pixels(body, nn.Linear(n_features, n_logits), augmentation)

    def fingerprint(self, *, with_parameters: bool) -> str:
        """Digest of how images are read, optionally with the parameters of the network."""
        lines = [self._description(), *map(repr, self.pixels)]
        if with_parameters and self.weights is not None:
            lines.append(fingerprint(weights_file(self.weights)))
        elif with_parameters:
            lines.append(_state_digest(self._body(None)))
        return sha256("\n".join(lines).encode()).hexdigest()

    def _on_pixels(
        self, body: nn.Module, head: nn.Module, augmentation: Augmentation | None = None
    ) -> PixelNetwork:
        is_named = isinstance(self.network, str)
        return PixelNetwork(body, head, *self.pixels, augmentation, channels_last=is_named)

    def _description(self) -> str:
        if isinstance(self.network, str):
            return self.network
        body = self._body(None)
        # Networks may differ in layers without parameters, which only this description shows.
        return f"{type(body).__module__}.{type(body).__qualname__}\n{body!r}"

    def _body(self, weights: str | PathLike[str] | None) -> nn.Module:
        """Make the network without a last layer."""
        if self.backbone is not None:
            return self.backbone.features(weights)
        if isinstance(self.network, nn.Module):
            return copy.deepcopy(self.network)
        if isinstance(self.network, str):
            return small_cnn()
        body = self.network()
        if not isinstance(body, nn.Module):
            raise InvalidInputError(
                "A function that makes the network of ImageGate must return a torch.nn.Module; it "
                f"returned a {type(body).__name__}."
            )
        return copy.deepcopy(body)


class ImageEncoder:
    """A frozen network and how it reads images; see `localma.gates.deep.features.Encoder`."""

    def __init__(self, spec: NetworkSpec) -> None:
        self.network: nn.Module = spec.features()

    def digests(self, X: ImageRows) -> list[bytes]:
        """Digest of each image and of the size to which it is resized."""
        size = repr(X.size).encode()
        return [sha256(size + X.digest(row)).digest()[:16] for row in range(len(X))]

    def length(self, X: ImageRows, row: int) -> int:
        """All images have the same size."""
        return 0

    def batch(self, X: ImageRows, rows: Sequence[int]) -> dict[str, Tensor]:
        """Images as one tensor."""
        return {"images": torch.stack([X[row] for row in rows])}


class AugmentedRows(ImageRows):
    """Images followed by augmented copies of all of them; each copy is always the same.

    Pixels of copies are multiples of 1 / 255, so that they can be converted to uint8 and back.
    """

    def __init__(self, rows: ImageRows, augmentation: Augmentation, n_copies: int) -> None:
        super().__init__(rows.X, rows.size, resize=rows.resize)
        self.augmentation, self.n_originals = augmentation, len(rows)
        self.numbers = np.arange((1 + n_copies) * len(rows))

    def _read(self, number: int) -> Tensor:
        copy_number, original = divmod(number, self.n_originals)
        image = super()._read(original)
        if copy_number == 0:
            return image
        seed = np.random.SeedSequence([0, original, copy_number]).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed[0]))
        augmented = self.augmentation(image[None], generator)[0]
        return (255.0 * augmented).round() / 255.0

    def _digest(self, number: int) -> bytes:
        if number < self.n_originals:
            return super()._digest(number)
        return digest_image(self._read(number), number)


def _state_digest(network: nn.Module) -> str:
    digest = sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
