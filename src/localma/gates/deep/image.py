"""A local gate over images: a network on pixels, or a gate on the features of a frozen network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma._types import AnyArray, Array, Rows
from localma.errors import FileFormatError, InvalidInputError
from localma.gates.base import COUNT, FLAG, POSITIVE, REAL, Rule, arrays_below
from localma.gates.deep.features import EncodedGate
from localma.gates.deep.torch_ import PRECISIONS, TorchGate
from localma.gates.labelled import Labelled

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from localma.gates.deep.encoders import ImageEncoder, NetworkSpec
    from localma.images import ImageRows, ImageSource


PAIR = COUNT.each("(height, width)", (2,))
Network: TypeAlias = "str | nn.Module | Callable[[], nn.Module]"
CandidatesOn: TypeAlias = Callable[[NDArray[np.uint8], Rows], Array]

BRIGHTNESS = (0.299, 0.587, 0.114)
"""Share of red, green and blue in the brightness of a pixel (ITU-R 601)."""
MAX_PIXELS = 16_384
"""Largest height or width of images that a model file may contain."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images in training, as in the paper: flips, rotations, light.

    Parameters
    ----------
    flip : bool
        Whether to flip half of the images left to right.
    degrees : float
        Images are rotated by at most this angle; the corners become black.
    brightness, contrast : float
        Pixels, and their distances from the mean grey of the image, are multiplied by a factor
        between one minus and one plus this number.

    Examples
    --------
    >>> import torch
    >>> Augmentation(degrees=5)(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 3, 8, 8])
    """

    flip: bool = True
    degrees: float = 10.0
    brightness: float = 0.2
    contrast: float = 0.2

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Change images (n, 3, height, width) with pixels between 0 and 1, each at random."""
        import torch

        def uniform(limit: float) -> Tensor:
            # On the CPU, so that a seed gives the same numbers on every device.
            numbers = torch.rand(len(images), 1, 1, 1, generator=generator)
            return (limit * (2.0 * numbers - 1.0)).to(images.device)

        if self.flip:
            images = torch.where(uniform(1.0) < 0.0, images.flip(3), images)
        if self.degrees:
            images = _rotated(images, uniform(math.radians(self.degrees)).flatten())
        if self.brightness:
            images = (images * (1.0 + uniform(self.brightness))).clamp(0.0, 1.0)
        if self.contrast:
            grey = torch.einsum("nchw,c->nhw", images, images.new_tensor(BRIGHTNESS))
            mean = grey.mean(dim=(1, 2))[:, None, None, None]
            images = (mean + (1.0 + uniform(self.contrast)) * (images - mean)).clamp(0.0, 1.0)
        return images


def _rotated(images: Tensor, angles: Tensor) -> Tensor:
    """Rotate each image about its centre by its angle (n,), with bilinear interpolation."""
    import torch

    height, width = images.shape[2:]
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    # Coordinates run from -1 to 1 along both axes, whatever the proportions of the image.
    matrix = [[cos, -sin * height / width, zero], [sin * width / height, cos, zero]]
    grid = torch.nn.functional.affine_grid(
        torch.stack([torch.stack(row, dim=1) for row in matrix], dim=1),
        list(images.shape),
        align_corners=False,
    )
    return torch.nn.functional.grid_sample(images, grid, mode="bilinear", align_corners=False)


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class ImageGate(EncodedGate["ImageRows"]):
    """Local weights ``w(x)`` of images x: trains a network on pixels, or uses frozen features.

    Inputs are arrays (n, height, width, channels) or (n, channels, height, width) with 1, 3 or 4
    channels, either uint8 or floats between 0 and 1. If both axes could be channels, the last one
    is used. Inputs may also be lists or Datasets of paths, PIL images or such arrays. Grey, RGBA
    and palette images become RGB.

    The paper trains a convolutional network on augmented images, but its main text does not
    describe the network. "cnn" is our choice, with three convolutions. By default, the network is
    trained on newly augmented images in every epoch, and the predictions are those for the
    original images, so that candidates run only once. With `candidates_on`, candidates also
    predict augmented copies.

    Parameters
    ----------
    network : str, torch.nn.Module or function that makes one
        "cnn"; the name of a network of timm; or a module from standardized images (n, 3, h, w) to
        features, (n, d) or (n, d, h, w). A linear layer from features to logits is added.
    frozen : bool
        Whether the network is left unchanged. If so, features are computed once per image, and
        `head` learns the weights from them.
    head : Gate, optional
        Learns the weights from frozen features. By default, `MLPGate` with 32 units.
    cache : folder, optional
        Folder for frozen features, by the content of image and network. By default, they stay in
        memory. It may be the folder of `Cached` candidates; the functions that inspect and clean
        that folder work for features, too.
    shrinkage : float
        At least 0; `inf` gives exactly the global weights. As in `MLPGate`. Zero works well for a
        network that starts at random and is trained on thousands of images.
    n_epochs : int
        Maximum number of passes over the rows, as in `TorchGate`.
    batch_size : int
        Number of rows in a batch, also of a frozen network.
    learning_rate : float
        Learning rate of Adam at the first step.
    validation_fraction : float
        Share of the rows that are held out to evaluate each epoch.
    patience : int
        Training ends after this many epochs without improvement on the held-out rows.
    device : str, optional
        As in `TorchGate`. A gate can predict on another device than the one it was trained on.
    mixed_precision : {None, "bf16", "fp16"}
        As in `TorchGate`. Not used by a frozen network.
    checkpoint : folder, optional
        Folder to which the state of training is written after each epoch.
    progress : bool, optional
        Whether to show a progress bar. With None, a bar is shown on a terminal if training takes
        long.
    random_state : int, RandomState instance or None
        Seed of the start, the held-out rows and the batches.
    weights : path, optional
        Weights file of a named network. Training starts at these weights; a frozen network keeps
        them.
    size : int or (int, int), optional
        Height and width to which images are resized, without keeping their proportions. By default,
        the size for which a named network was designed; for other networks, all images must have
        the same size.
    mean, std : three floats, optional
        Mean and scale by which pixels between 0 and 1 are standardized. By default, those of a
        named network, or 0.5.
    augment : bool or localma.gates.Augmentation
        Whether to change images at random in training: flip them, rotate them by at most 10
        degrees, and change brightness and contrast by at most a fifth. This has no effect on a
        frozen network, unless you pass `candidates_on`.
    candidates_on : function, optional
        Predictions of the candidates for augmented images:
        ``candidates_on(images, rows) -> (b, M, K)``. The images have dtype uint8 and shape
        (b, height, width, 3); `rows` are the rows from which they were made. Under cross-entropy, K
        is one: the probability of the label of the row. The gate then learns from the images and
        from `n_copies` fixed augmented copies of each. No rows are held out, since copies of one
        image would be on both sides.
    n_copies : int
        Number of augmented copies of each image, if you pass `candidates_on`.

    Attributes
    ----------
    inner_ : Gate
        The gate that learned the weights: a `TorchGate` on pixels, or the head on features.
    size_ : (int, int)
        Height and width of the images that the network gets.
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.

    Examples
    --------
    The first candidate is right on dark images, the second on bright ones:

    >>> from localma.losses import squared_error
    >>> light = np.linspace(0, 1, 40)
    >>> images = np.ones((40, 8, 8, 3)) * light[:, None, None, None]
    >>> P, y = np.stack([light < 0.5, light > 0.5], axis=1)[:, :, None] * 1.0, np.ones((40, 1))
    >>> gate = ImageGate(shrinkage=0, batch_size=8, learning_rate=0.003, random_state=0)
    >>> gate = gate.fit(Labelled.of(images, P, y, loss=squared_error()))
    >>> gate.predict_weights(images[[2, -3]]).argmax(axis=1).tolist()
    [0, 1]
    """

    code_parameters = ("network",)
    path_parameters = ("weights",)
    _choices: ClassVar[Mapping[str, tuple[str | None, ...]]] = {"mixed_precision": PRECISIONS}
    _rules: ClassVar[Mapping[str, Rule]] = {
        "frozen": FLAG,
        "n_copies": COUNT,
        "batch_size": COUNT,
        "size": Rule(
            lambda size: size is None or COUNT.passes(size) or PAIR.passes(size),
            "a positive integer, or (height, width), or None",
        ),
        "mean": REAL.each("three finite numbers", (3,)).or_none(),
        "std": POSITIVE.each("three positive numbers", (3,)).or_none(),
    }

    network: Network = "cnn"
    _: KW_ONLY
    weights: str | PathLike[str] | None = None
    size: int | Sequence[int] | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    augment: bool | Augmentation = True
    candidates_on: CandidatesOn | None = None
    n_copies: int = 4
    n_epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 0.001
    patience: int = 5

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state for `restore`. A frozen network is not part of it.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        return super().arrays() | {"size": np.array(self.size_, dtype=np.int64)}

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Restore the fitted state, checking that the network is the one of the fit.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays` of a fitted gate with the same parameters.

        Returns
        -------
        ImageGate
            The fitted gate.
        """
        size = arrays["size"].tolist()
        if not PAIR.passes(size) or max(size) > MAX_PIXELS:
            raise FileFormatError(
                f"The array 'size' of ImageGate must hold a height and a width, from 1 to "
                f"{MAX_PIXELS}; received {arrays['size'].ravel()[:4].tolist()}."
            )
        self.size_ = (size[0], size[1])
        return super().restore(arrays)

    def _check_parameters(self) -> None:
        optional("torch", extra="torch")
        from torch import nn

        is_name = isinstance(self.network, str)
        if not is_name and not isinstance(self.network, nn.Module) and not callable(self.network):
            raise InvalidInputError(
                "network of ImageGate must be 'cnn', the name of a network, a torch.nn.Module or a "
                f"function that makes one; received {self.network!r}."
            )
        if self.frozen and self.weights is None and is_name:
            raise InvalidInputError(
                f"A frozen network must have been trained, and {self.network!r} starts at random. "
                "Pass weights= a file, or a module that has been trained."
            )
        if self.weights is not None and (not is_name or self.network == "cnn"):
            raise InvalidInputError(
                "weights of ImageGate is only for a network of timm; received network="
                f"{self.network!r}. Load the weights into the module."
            )
        super()._check_parameters()

    def _rows(self, X: ImageSource, *, fitting: bool) -> ImageRows:
        from localma.images import ImageRows

        size = self._spec().size if self.size is None else self.size
        expected = _height_and_width(size) if fitting else self.size_
        rows = ImageRows(X, expected, resize=size is not None)
        self.size_ = rows.size
        return rows

    def _with_copies(self, data: Labelled) -> Labelled:
        if self.candidates_on is None:
            return data
        from localma.gates.deep.encoders import AugmentedRows

        augmentation = self._augmentation()
        if augmentation is None:
            raise InvalidInputError(
                "candidates_on of ImageGate needs augmented images, but augment is off. Leave one "
                "of the two out."
            )
        rows = AugmentedRows(data.X, augmentation, self.n_copies)
        return replace(
            data,
            X=rows,
            P=np.concatenate([data.P, *self._predictions_of_copies(rows, data.P.shape)]),
            y=np.tile(data.y, (1 + self.n_copies, 1)),
            sample_weight=np.tile(data.sample_weight, 1 + self.n_copies),
        )

    def _predictions_of_copies(self, rows: ImageRows, shape: tuple[int, ...]) -> Iterator[Array]:
        """Predictions of the candidates for the copies of n rows: batches of shape (b, M, K)."""
        assert self.candidates_on is not None
        n, *outputs = shape
        for start in range(n, len(rows), self.batch_size):
            numbers = np.arange(start, min(start + self.batch_size, len(rows)))
            pixels = np.stack([rows[int(number)].numpy() for number in numbers])
            images = np.round(255.0 * pixels.transpose(0, 2, 3, 1)).astype(np.uint8)
            P = np.asarray(self.candidates_on(images, numbers % n), dtype=np.float64)
            expected = (len(numbers), *outputs)
            if P.shape != expected or not np.isfinite(P).all():
                raise InvalidInputError(
                    "candidates_on of ImageGate must return finite predictions of shape "
                    f"{expected}; received shape {P.shape}. Under cross-entropy, return only the "
                    "probability of the label."
                )
            yield P

    def _open_encoder(self) -> ImageEncoder:
        from localma.gates.deep.encoders import ImageEncoder

        return ImageEncoder(self._spec())

    def _trained_gate(self, *, restoring: bool) -> TorchGate:
        make = partial(self._spec().logits, size=self.size_, start=not restoring)
        pretrained = self.weights is not None or not isinstance(self.network, str)
        shrink_to = "start" if pretrained else "zero"
        if self.candidates_on is None:
            make = partial(make, augmentation=self._augmentation())
            return self._torch_gate(make, shrink_to)
        # The copies that the candidates predicted are augmented already.
        return self._torch_gate(make, shrink_to, validation_fraction=0.0)

    def _check_sizes(self, arrays: dict[str, AnyArray]) -> None:
        """Compare a named network with the arrays before it takes memory."""
        saved = arrays_below(arrays, "parameters.module.")
        if self.frozen or not saved or not isinstance(self.network, str):
            return
        import torch

        n_candidates = len(np.atleast_1d(arrays["global_weights"]))
        with torch.device("meta"):
            network = self._spec().logits(n_candidates, size=self.size_, start=False)
        expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
        if expected != {name: array.shape for name, array in saved.items()}:
            raise FileFormatError(
                f"The network {self.network!r} of ImageGate does not have the parameters that "
                "were saved. Save the model again, or pass load(path, gate=ImageGate(...))."
            )

    def _fingerprint(self) -> str:
        return self._spec().fingerprint(with_parameters=self.frozen)

    def _described(self) -> str:
        name = self.network
        if not isinstance(name, str):
            name = type(name).__name__
        if self.weights is None:
            return f"network={name!r}"
        return f"network={name!r} with weights={fspath(self.weights)!r}"

    def _spec(self) -> NetworkSpec:
        from localma.gates.deep.encoders import NetworkSpec

        return NetworkSpec(self.network, self.weights, self.mean, self.std)

    def _augmentation(self) -> Augmentation | None:
        if isinstance(self.augment, Augmentation):
            return self.augment
        return Augmentation() if self.augment else None


def _height_and_width(size: int | Sequence[int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = size if isinstance(size, Sequence | np.ndarray) else (size, size)
    return int(height), int(width)
