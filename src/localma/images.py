"""Images as tensors (3, height, width) between 0 and 1, read from files and arrays."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from hashlib import blake2b
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localma._optional import optional
from localma._types import AnyArray, Float32, Rows
from localma.errors import InvalidInputError
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from PIL.Image import Image

RawImage: TypeAlias = "str | PathLike[str] | AnyArray | Tensor | Image"
"""One image as users have it: a path, pixels, or a PIL image."""

RawRecord: TypeAlias = "Mapping[str, RawImage] | tuple[RawImage, ...]"
Size: TypeAlias = tuple[int, int]
"""Height and width."""
CHANNELS = (1, 3, 4)
"""Grey, RGB, RGBA."""


class ImageSource(Protocol):
    """Rows of images: an array, a list, a series or a data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> RawImage | RawRecord: ...


class ImageRows:
    """The images of X as tensors (3, height, width) between 0 and 1, read when they are needed.

    Parameters
    ----------
    X : array, sequence or Dataset
        An array (n, height, width, channels), (n, channels, height, width) or, for grey images,
        (n, height, width). Or a sequence or Dataset of paths, PIL images or single such arrays. If
        both the first and the last axis could be channels, the last one is used. Integers must be
        uint8; floating-point numbers must lie between 0 and 1. Grey becomes RGB, and an alpha
        channel is dropped. A row of a Dataset may be a tuple whose first element is the image, or
        a dict with the key "image".
    size : (height, width), optional
        Size of all images. By default, the size of the first image.
    resize : bool
        Whether to resize images that have another size, bilinearly and without keeping their
        proportions. Otherwise they raise an error.

    Examples
    --------
    >>> rows = ImageRows(np.zeros((5, 8, 6, 3), dtype=np.uint8))
    >>> len(rows), rows[0].shape, len(rows[np.array([3, 1])])
    (5, torch.Size([3, 8, 6]), 2)
    """

    def __init__(self, X: ImageSource, size: Size | None = None, *, resize: bool = False) -> None:
        self.X = X
        self.resize = resize
        self.numbers: Rows = np.arange(n_rows(X))
        self.size = size or _size_of(_as_tensor(_raw_image(X, 0), 0))

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, rows: int) -> Tensor: ...

    @overload
    def __getitem__(self, rows: slice | Rows) -> Self: ...

    def __getitem__(self, rows: int | slice | Rows) -> Tensor | Self:
        """One image as a tensor, or several rows as an object of this class."""
        if not isinstance(rows, slice | np.ndarray):
            return self._read(int(self.numbers[rows]))
        selection = copy.copy(self)
        selection.numbers = self.numbers[rows]
        return selection

    def digest(self, row: int) -> bytes:
        """Digest of the content of a row: the bytes of an image file, or the pixels."""
        return self._digest(int(self.numbers[row]))

    def _read(self, number: int) -> Tensor:
        image = _as_tensor(_raw_image(self.X, number), number)
        if _size_of(image) == self.size:
            return image
        if not self.resize:
            raise InvalidInputError(
                f"All images must have the same height and width, here {self.size}; row {number} "
                f"has {_size_of(image)}. Pass size= to resize them all."
            )
        resized = torch.nn.functional.interpolate(
            image[None], size=self.size, mode="bilinear", antialias=True
        )
        return resized[0].clamp(0.0, 1.0)

    def _digest(self, number: int) -> bytes:
        return digest_image(_raw_image(self.X, number), number)


def digest_image(image: RawImage, row: int) -> bytes:
    """Digest of one image, 16 bytes; the row is for error messages."""
    digest = blake2b(digest_size=16)
    if isinstance(image, str | PathLike):
        digest.update(_file_bytes(image, row))
    else:
        pixels = _as_array(image, row)
        digest.update(f"{pixels.dtype} {pixels.shape}".encode())
        digest.update(pixels.tobytes())
    return digest.digest()


def _size_of(image: Tensor) -> Size:
    return int(image.shape[1]), int(image.shape[2])


def _raw_image(X: ImageSource, row: int) -> RawImage:
    rows: ImageSource = getattr(X, "iloc", X)  # the index of a pandas series need not be 0, 1, ...
    item = rows[row]
    if isinstance(item, tuple):
        return item[0]
    if not isinstance(item, Mapping):
        return item
    if "image" not in item and len(item) != 1:
        raise InvalidInputError(
            "A Dataset with several columns must have one named 'image'; row "
            f"{row} has {sorted(item)}. Rename the column."
        )
    return item.get("image", next(iter(item.values())))


def _as_tensor(image: RawImage, row: int) -> Tensor:
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
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    scaled = _between_zero_and_one(pixels[:, :, :3], row)
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1)))


def _between_zero_and_one(pixels: AnyArray, row: int) -> Float32:
    if pixels.dtype == np.uint8:
        return pixels.astype(np.float32) / np.float32(255.0)
    if pixels.dtype.kind != "f":
        raise InvalidInputError(
            "Pixels must be uint8, or floating-point numbers between 0 and 1; row "
            f"{row} has {pixels.dtype}. Convert them: X.astype(np.uint8)."
        )
    lowest, highest = (float(bound(pixels, initial=0.0)) for bound in (np.min, np.max))
    if not 0.0 <= lowest <= highest <= 1.0:
        raise InvalidInputError(
            "Pixels that are floating-point numbers must lie between 0 and 1; row "
            f"{row} ranges from {pixels.min():g} to {pixels.max():g}. Divide by 255, or pass uint8."
        )
    return pixels.astype(np.float32)


def _as_array(image: RawImage, row: int) -> AnyArray:
    """Pixels of one image, without any conversion."""
    if isinstance(image, str | PathLike):
        return _read_file(image, row)
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


def _read_file(path: str | PathLike[str], row: int) -> NDArray[np.uint8]:
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
            "Check the path. Relative paths start at the working directory."
        ) from error


def _pixels_of(image: Image) -> NDArray[np.uint8]:
    """Pixels of a PIL image of any mode as RGB: (height, width, 3)."""
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # a direct conversion to RGB warns of transparent palettes
    return np.asarray(image.convert("RGB"))
