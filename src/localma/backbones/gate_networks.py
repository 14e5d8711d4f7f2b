"""Networks of images as gates need them: pixels in, features or one logit per candidate out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from localma.backbones.augment import Augmentation
from localma.backbones.images import ImageRows
from localma.backbones.registry import find_backbone, make_features, weights_file
from localma.backbones.small_cnn import SmallCNN
from localma.errors import InvalidInputError


class PixelNetwork(nn.Module):
    """A network on pixels between 0 and 1: augmented in training, standardised, read.

    images (n, 3, h, w) -> ``head(pooled(body((images - mean) / std)))``. Maps (n, d, h, w) are
    averaged over the image.

    With `channels_last` the body gets pixels in that order in memory, which on a CPU takes two
    thirds of the time. A module that calls `view` on maps would fail, so only known ones do.
    """

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
        self.mean: Tensor
        self.std: Tensor
        # Not in the state: they are parameters of the gate.
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
        outputs: Tensor = self.head(features.mean(dim=(2, 3)) if features.ndim == 4 else features)
        return outputs


@dataclass(frozen=True)
class NetworkSpec:
    """Which network, and which pixels it takes.

    network : "cnn", a name of `find_backbone`, a module from images to features (n, d) or
    (n, d, h, w), or a function that makes one; weights : its file.
    """

    network: Any
    weights: str | PathLike[str] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, network: Any, weights: Any, mean: Any, std: Any) -> NetworkSpec:
        """Fill in the pixels for which a network of that name was made."""
        known = find_backbone(network) if isinstance(network, str) and network != "cnn" else None
        return cls(
            network,
            weights,
            _numbers(mean, known.mean if known else (0.5, 0.5, 0.5)),
            _numbers(std, known.std if known else (0.5, 0.5, 0.5)),
        )

    @property
    def size(self) -> int | None:
        """Height and width for which the network was made; None where it takes any."""
        named = isinstance(self.network, str) and self.network != "cnn"
        return find_backbone(self.network).size if named else None

    def features(self) -> PixelNetwork:
        """The network as it is, to features."""
        return self._on_pixels(self._body(self.weights), nn.Identity())

    def logits(
        self, n_outputs: int, size: tuple[int, int], augmentation: Augmentation | None, start: bool
    ) -> PixelNetwork:
        """The network with a new last layer; it starts at the weights of the file if asked to."""
        if self.network == "cnn":
            cnn = SmallCNN(n_outputs)
            return self._on_pixels(cnn.body, cnn.head, augmentation)
        body = self._body(self.weights if start else None)
        probe = self._on_pixels(body, nn.Identity()).eval()
        # The size in a file may be somebody else's; on this device an image takes no memory.
        device = "cpu" if start or not isinstance(self.network, str) else "meta"
        try:
            with torch.inference_mode(), torch.device(device):
                images = torch.zeros(1, 3, *size)
                width = (probe if device == "cpu" else outline(probe))(images).shape[1]
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise unreadable_images(size, error) from error
        return self._on_pixels(body, nn.Linear(width, n_outputs), augmentation)

    def fingerprint(self, content: Callable[[Path], str]) -> str:
        """Digest of what the features depend on. content : file -> digest of its content."""
        parts = [self._named(), repr(self.mean), repr(self.std)]
        if self.weights is not None:
            parts.append(content(weights_file(self.weights)))
        elif not isinstance(self.network, str):
            parts.append(_state_digest(self._body(None)))
        return sha256("\n".join(parts).encode()).hexdigest()

    def architecture(self) -> str:
        """Digest of the way images are read, without the parameters of the network."""
        parts = [self._named(), repr(self.mean), repr(self.std)]
        return sha256("\n".join(parts).encode()).hexdigest()

    def _on_pixels(
        self, body: nn.Module, head: nn.Module, augmentation: Augmentation | None = None
    ) -> PixelNetwork:
        named = isinstance(self.network, str)
        return PixelNetwork(body, head, self.mean, self.std, augmentation, channels_last=named)

    def _named(self) -> str:
        if isinstance(self.network, str):
            return self.network
        made = self.network if isinstance(self.network, nn.Module) else self._body(None)
        # Layers without parameters tell networks apart too, and stand in this description alone.
        return f"{type(made).__module__}.{type(made).__qualname__}\n{made!r}"

    def _body(self, weights: str | PathLike[str] | None) -> nn.Module:
        """The network without a last layer of its own."""
        if self.network == "cnn":
            return SmallCNN(1).body
        if isinstance(self.network, str):
            return make_features(self.network, weights)
        made = self.network if isinstance(self.network, nn.Module) else self.network()
        if not isinstance(made, nn.Module):
            raise InvalidInputError(
                "A function that makes the network of ImageGate must return a torch.nn.Module; it "
                f"returned a {type(made).__name__}."
            )
        return copy.deepcopy(made)


@dataclass(frozen=True)
class MakeLogits:
    """A function from the number of candidates to a network, for `TorchGate`."""

    spec: NetworkSpec
    size: tuple[int, int]
    augmentation: Augmentation | None
    start: bool

    def __call__(self, n_candidates: int) -> nn.Module:
        """Make a network with that many logits."""
        return self.spec.logits(n_candidates, self.size, self.augmentation, self.start)


class ImageEncoder:
    """A frozen network and its way of reading rows: see `localma.gates._frozen.Encoder`."""

    def __init__(self, spec: NetworkSpec) -> None:
        self.network = spec.features()

    def digests(self, X: ImageRows) -> list[bytes]:
        """Digest of each image, and of the size to which it is brought."""
        size = repr(X.size).encode()
        return [sha256(size + X.digest(row)).digest()[:16] for row in range(len(X))]

    def length(self, X: ImageRows, row: int) -> int:
        """All images are alike."""
        return 0

    def batch(self, X: ImageRows, rows: Sequence[int]) -> dict[str, Tensor]:
        """Images as one tensor."""
        return {"images": torch.stack([X[row] for row in rows])}


def outline(network: nn.Module) -> nn.Module:
    """A copy of a network that has shapes and no numbers."""
    return copy.deepcopy(network).to("meta")


def unreadable_images(size: tuple[int, ...], error: Exception) -> InvalidInputError:
    """Build the error for a network that fails on images of some height and width."""
    words = " ".join(str(error).split())[:200]
    return InvalidInputError(
        f"The network of ImageGate must read images of shape (n, 3, {size[0]}, {size[1]}); it "
        f"failed on them ({type(error).__name__}: {words}). Pass size= another height and width."
    )


def _state_digest(network: nn.Module) -> str:
    digest = sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _numbers(given: Any, default: Sequence[float]) -> tuple[float, ...]:
    """What was given for each channel, or the default."""
    return tuple(float(number) for number in (default if given is None else given))
