"""Networks that read images and texts: to features, or to one logit per candidate."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b, sha256
from os import PathLike
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from localma.errors import InvalidInputError
from localma.gates.deep.image import Augmentation, Network
from localma.images import ImageRows, Size, digest_image
from localma.pretrained import Backbone, find_backbone, import_transformers, quiet, weights_file
from localma.storage.fingerprints import fingerprint

HALF = (0.5, 0.5, 0.5)
SETTINGS = ("*.json", "*.txt", "*.model")
"""Files of the configuration and the tokenizer."""
WEIGHTS = "*.safetensors"
FROM_FOLDER = {"local_files_only": True, "trust_remote_code": False}


# Images.


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

    In a named network channels are last in memory, which takes two thirds of the time on a CPU. A
    module of a user that calls `view` on maps would fail with this order.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        spec: NetworkSpec,
        body: nn.Module,
        head: nn.Module,
        augmentation: Augmentation | None = None,
    ) -> None:
        super().__init__()
        self.body, self.head, self.augmentation = body, head, augmentation
        self.memory_format = torch.contiguous_format
        if isinstance(spec.network, str):
            self.memory_format = torch.channels_last
        # Not part of the state, since they are parameters of the gate.
        for name, values in zip(("mean", "std"), spec.pixels, strict=True):
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
        return PixelNetwork(self, self._body(self.weights), nn.Identity())

    def logits(
        self, n_logits: int, *, size: Size, start: bool, augmentation: Augmentation | None = None
    ) -> PixelNetwork:
        """Make the network with a new last layer; with `start`, at the weights of the file."""
        body = self._body(self.weights if start else None)
        network = PixelNetwork(self, body, nn.Identity()).eval()
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
        return PixelNetwork(self, body, nn.Linear(n_features, n_logits), augmentation)

    def fingerprint(self, *, with_parameters: bool) -> str:
        """Digest of how images are read, optionally with the parameters of the network."""
        described = self.network
        if not isinstance(described, str):
            body = self._body(None)
            # Networks may differ in layers without parameters, which only this text shows.
            described = f"{type(body).__module__}.{type(body).__qualname__}\n{body!r}"
        lines = [described, *map(repr, self.pixels)]
        if with_parameters and self.weights is not None:
            lines.append(fingerprint(weights_file(self.weights)))
        elif with_parameters:
            lines.append(_state_digest(self._body(None)))
        return sha256("\n".join(lines).encode()).hexdigest()

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


# Texts.


class PooledEncoder(nn.Module):
    """An encoder, pooling over the tokens, and a last layer: tokens (n, l) -> (n, outputs)."""

    def __init__(self, encoder: nn.Module, head: nn.Module, pooling: str) -> None:
        super().__init__()
        self.encoder, self.head, self.pooling = encoder, head, pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        """Outputs of the texts; padding has no influence."""
        tokens = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **inputs)
        vectors = tokens.last_hidden_state
        if self.pooling == "cls":
            pooled = vectors[:, 0]
        else:
            mask = attention_mask[:, :, None].to(vectors.dtype)
            # Some tokenizers give an empty text no token at all.
            pooled = (vectors * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
        return self.head(pooled)


def make_logits(
    folder: Path, pooling: str, max_length: int, start: bool, n_candidates: int
) -> PooledEncoder:
    """Make an encoder with one logit per candidate; without `start` its parameters are random."""
    encoder = read_encoder(folder, max_length, with_weights=start)
    return PooledEncoder(encoder, nn.Linear(encoder.config.hidden_size, n_candidates), pooling)


class Tokens:
    """Texts as tokens: a list of n texts -> tensors (n, l) by name."""

    def __init__(self, folder: Path, max_length: int) -> None:
        self.folder, self.max_length = folder, max_length

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Cut texts at `max_length` tokens and pad them to the longest."""
        content = encoder_fingerprint(self.folder, "", with_weights=False)
        tokens = _read_tokenizer(self.folder, content)(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            padding=True,
            return_tensors="pt",
        )
        return {name: value for name, value in tokens.items() if isinstance(value, Tensor)}


class TextEncoder:
    """A frozen encoder and how it reads texts; see `localma.gates.deep.features.Encoder`."""

    def __init__(self, folder: Path, pooling: str, max_length: int) -> None:
        encoder = read_encoder(folder, max_length, with_weights=True)
        self.network: nn.Module = PooledEncoder(encoder, nn.Identity(), pooling)
        self.tokens = Tokens(folder, max_length)

    def digests(self, X: list[str]) -> list[bytes]:
        """Digest of each text."""
        return [
            blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=16).digest()
            for text in X
        ]

    def length(self, X: list[str], row: int) -> int:
        """Number of characters, which the number of tokens follows."""
        return len(X[row])

    def batch(self, X: list[str], rows: Sequence[int]) -> dict[str, Tensor]:
        """Tokens of these texts."""
        return self.tokens([X[row] for row in rows])


def encoder_fingerprint(folder: Path, settings: str, *, with_weights: bool) -> str:
    """Digest of the files of an encoder and of the settings with which it is used."""
    digest = sha256(settings.encode())
    for pattern in (*SETTINGS, WEIGHTS)[: len(SETTINGS) + with_weights]:
        for file in sorted(folder.glob(pattern)):
            digest.update(f"{file.name} {fingerprint(file)}\n".encode())
    return digest.hexdigest()


def read_encoder(folder: Path, max_length: int, *, with_weights: bool) -> Any:
    """Read the encoder of a folder, in single precision; without weights, a random one."""
    transformers = import_transformers()
    with _clear_errors(folder), quiet(transformers):
        if with_weights:
            encoder, report = transformers.AutoModel.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, **FROM_FOLDER
            )
            # The pooler of some encoders is for another task and is not used here.
            missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
            if missing:
                raise ValueError(f"the weights lack {', '.join(missing[:3])}")
        else:
            config = transformers.AutoConfig.from_pretrained(folder, **FROM_FOLDER)
            encoder = transformers.AutoModel.from_config(config, trust_remote_code=False)
    limit = getattr(encoder.config, "max_position_embeddings", None)
    if limit is not None and max_length > limit:
        raise InvalidInputError(
            f"max_length of TextGate must be at most the length that the encoder can read, {limit} "
            f"tokens; received {max_length}."
        )
    return encoder.float()


@lru_cache(maxsize=4)
def _read_tokenizer(folder: Path, content: str) -> Any:
    # The content is part of the key, so that a folder that has changed is read again.
    transformers = import_transformers()
    with _clear_errors(folder):
        return transformers.AutoTokenizer.from_pretrained(folder, **FROM_FOLDER)


@contextmanager
def _clear_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # transformers raises errors of any class
        raise InvalidInputError(
            f"The folder {str(folder)!r} cannot be read as an encoder of transformers "
            f"({type(error).__name__}: {shorten(str(error), 300, placeholder='...')}). It must "
            "hold config.json, the weights and the tokenizer, as save_pretrained writes them."
        ) from error
