"""Images as tensors: (3, height, width), float32 between 0 and 1, from whatever holds them."""

from __future__ import annotations

import copy
from hashlib import blake2b
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localma._optional import optional
from localma.backbones.augment import Augmentation
from localma.errors import InvalidInputError
from localma.tables.frames import n_rows

CHANNELS = (1, 3, 4)
"""Grey, RGB, RGBA."""


class ImageRows:
    """Images of X as tensors (3, height, width) between 0 and 1, read when they are asked for.

    Parameters
    ----------
    X : array (n, height, width, channels) or (n, channels, height, width) or, of grey images,
        (n, height, width); or a sequence or Dataset of paths, PIL images or single such arrays.
        Where both ends of an array look like channels, the last axis is taken. Integers are
        uint8, floating-point numbers lie between 0 and 1. Grey becomes RGB, and an alpha channel
        is dropped. A row of a Dataset may be a tuple that begins with the image, or name it.
    size : (height, width) of all images; None for that of the first.
    resize : whether images of another size are resized, bilinearly and without keeping their
        proportions; otherwise they are refused.

    Examples
    --------
    >>> rows = ImageRows(np.zeros((5, 8, 6, 3), dtype=np.uint8))
    >>> len(rows), rows[0].shape, len(rows[np.array([3, 1])])
    (5, torch.Size([3, 8, 6]), 2)
    """

    def __init__(
        self, X: Any, size: tuple[int, int] | None = None, *, resize: bool = False
    ) -> None:
        self.X = X
        self.resize = resize
        self.numbers = np.arange(n_rows(X))
        self.copies = np.zeros(len(self.numbers), dtype=np.int64)
        self.augmentation: Augmentation | None = None
        self.seed = 0
        self.size = size or _size_of(_as_tensor(_at(X, 0), 0))

    def with_copies(self, augmentation: Augmentation, n_copies: int, seed: int) -> ImageRows:
        """The same rows, followed by changed copies of all of them, each always the same.

        Pixels of copies are multiples of 1 / 255, so that they survive as uint8.
        """
        more = copy.copy(self)
        more.augmentation, more.seed = augmentation, seed
        more.numbers = np.tile(self.numbers, 1 + n_copies)
        more.copies = np.repeat(np.arange(1 + n_copies), len(self))
        return more

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Any:
        """One image as a tensor, or some rows as the same kind of object."""
        if isinstance(rows, slice | np.ndarray):
            some = copy.copy(self)
            some.numbers, some.copies = self.numbers[rows], self.copies[rows]
            return some
        number = int(self.numbers[rows])
        image = self._sized(_as_tensor(_at(self.X, number), number), number)
        return self._changed(image, number, int(self.copies[rows])) if self.copies[rows] else image

    def digest(self, row: int) -> bytes:
        """Digest of the content of a row: of an image file its bytes, of an array its numbers."""
        if self.copies[row]:
            return _digest(self[row], row)
        number = int(self.numbers[row])
        return _digest(_at(self.X, number), number)

    def _changed(self, image: Tensor, number: int, copy_number: int) -> Tensor:
        assert self.augmentation is not None
        seed = np.random.SeedSequence([self.seed, number, copy_number]).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed[0]))
        changed = self.augmentation(image[None], generator)[0]
        return (255.0 * changed).round() / 255.0

    def _sized(self, image: Tensor, number: int) -> Tensor:
        if _size_of(image) == self.size:
            return image
        if not self.resize:
            raise InvalidInputError(
                f"Images must have the same height and width, here {self.size}; row {number} has "
                f"{_size_of(image)}. Pass size= to resize them all."
            )
        batch = torch.nn.functional.interpolate(
            image[None], size=self.size, mode="bilinear", antialias=True
        )
        return batch[0].clamp(0.0, 1.0)


def _size_of(image: Tensor) -> tuple[int, int]:
    return int(image.shape[1]), int(image.shape[2])


def _digest(image: Any, row: int) -> bytes:
    digest = blake2b(digest_size=16)
    if isinstance(image, str | PathLike):
        digest.update(_file_bytes(image, row))
    else:
        pixels = _as_array(image, row)
        digest.update(f"{pixels.dtype} {pixels.shape}".encode())
        digest.update(pixels.tobytes())
    return digest.digest()


def _at(X: Any, row: int) -> Any:
    """One image of X as it stands there."""
    item = X.iloc[row] if hasattr(X, "iloc") else X[int(row)]
    if isinstance(item, dict):
        if "image" not in item and len(item) != 1:
            raise InvalidInputError(
                "Rows of a Dataset with named columns must have one named 'image'; row "
                f"{row} has {sorted(item)}. Rename the column."
            )
        item = item["image"] if "image" in item else next(iter(item.values()))
    elif isinstance(item, tuple):
        item = item[0]
    return item


def _as_tensor(image: Any, row: int) -> Tensor:
    """One image as (3, height, width) between 0 and 1."""
    pixels = _as_array(image, row)
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    if pixels.ndim != 3 or not {pixels.shape[0], pixels.shape[2]} & set(CHANNELS):
        raise InvalidInputError(
            "An image must have shape (height, width), (height, width, channels) or (channels, "
            f"height, width) with 1, 3 or 4 channels; row {row} has shape {pixels.shape}."
        )
    if pixels.shape[2] not in CHANNELS:
        pixels = pixels.transpose(1, 2, 0)
    pixels = pixels[:, :, :3] if pixels.shape[2] > 1 else np.repeat(pixels, 3, axis=2)
    scaled = _between_zero_and_one(pixels, row)
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1)))


def _between_zero_and_one(pixels: NDArray[Any], row: int) -> NDArray[np.float32]:
    if pixels.dtype == np.uint8:
        return pixels.astype(np.float32) / np.float32(255.0)
    if pixels.dtype.kind != "f":
        raise InvalidInputError(
            "Pixels must be uint8, or floating-point numbers between 0 and 1; row "
            f"{row} has {pixels.dtype}. Convert them: X.astype(np.uint8)."
        )
    if not ((pixels >= 0.0) & (pixels <= 1.0)).all():
        raise InvalidInputError(
            "Pixels that are floating-point numbers must lie between 0 and 1; row "
            f"{row} ranges from {pixels.min():g} to {pixels.max():g}. Divide by 255, or pass uint8."
        )
    return pixels.astype(np.float32)


def _as_array(image: Any, row: int) -> NDArray[Any]:
    """Pixels of one image as they are, in any layout."""
    if isinstance(image, str | PathLike):
        return _open(image, row)
    if isinstance(image, Tensor):
        return image.detach().cpu().numpy()
    if isinstance(image, np.ndarray):
        return image
    if hasattr(image, "getbands"):
        return _pixels_of(image)
    raise InvalidInputError(
        "An image must be a path, a PIL image, an array or a tensor; row "
        f"{row} is {type(image).__name__}: {str(image)[:80]!r}."
    )


def _open(path: str | PathLike[str], row: int) -> NDArray[Any]:
    pil = optional("PIL.Image", extra="vision")

    try:
        with pil.open(BytesIO(_file_bytes(path, row))) as image:
            return _pixels_of(image)
    except (OSError, SyntaxError, ValueError, pil.DecompressionBombError) as error:
        raise InvalidInputError(
            f"The image file {fspath(path)!r} of row {row} cannot be read, or was cut short "
            f"({error}). Replace the file, or leave the row out."
        ) from error


def _file_bytes(path: str | PathLike[str], row: int) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"The image file {fspath(path)!r} of row {row} cannot be opened ({error.strerror}). "
            "Paths are relative to the working directory."
        ) from error


def _pixels_of(image: Any) -> NDArray[np.uint8]:
    """Pixels of a PIL image of any mode as RGB: (height, width, 3)."""
    if image.mode.startswith("I;16"):
        wide = np.asarray(image)
        return np.repeat((wide >> 8).astype(np.uint8)[:, :, np.newaxis], 3, axis=2)
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # straight to RGB, Pillow warns of transparent palettes
    return np.asarray(image.convert("RGB"))
