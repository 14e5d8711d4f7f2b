"""Local weights from images: a network on pixels, or a network on a frozen network's features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.errors import FileFormatError, InvalidInputError
from localma.gates._encoded import Array, Arrays, EncodedGate
from localma.gates._frozen import FrozenFeatures
from localma.gates.base import Gate, Rules, arrays_below, check_rules, is_count, is_number
from localma.gates.labelled import Labelled
from localma.gates.module import TorchGate
from localma.storage.fingerprints import fingerprint

if TYPE_CHECKING:
    from localma.backbones.augment import Augmentation
    from localma.backbones.gate_networks import NetworkSpec
    from localma.backbones.images import ImageRows

CandidatesOn = Callable[[NDArray[np.uint8], NDArray[np.intp]], Array]


class ImageGate(EncodedGate):
    """Local weights ``w(x)`` of images x: by training a network on pixels, or on frozen features.

    Inputs are arrays (n, height, width, channels) or (n, channels, height, width), found out by
    where 1, 3 or 4 channels are (the last axis, where both fit), uint8 or floating-point between
    0 and 1; or lists or Datasets of paths, PIL images or such arrays. Grey, RGBA and palette
    images become RGB.

    The paper trains a convolutional network on augmented images. Its main text leaves open which;
    "cnn" is ours, of three convolutions. By default the network sees augmented images, new ones in
    every epoch, and the candidates' predictions are those of the images as they are: candidates
    run once. With `candidates_on` the candidates are asked again about augmented copies.

    Parameters
    ----------
    network : str, torch.nn.Module or function that makes one
        "cnn"; a network of `localma.backbones` ("tf_efficientnet_lite0" to "2",
        "mobilenet_v1_025"); a name that timm knows; or a module from standardised images
        (n, 3, h, w) to features, (n, d) or (n, d, h, w). A linear layer from features to
        logits is added.
    weights : path, optional
        File of the parameters that a named network starts at, or keeps where it is frozen.
    frozen : bool
        Whether the network stays as it is. Then features are computed once per image, and `head`
        learns the weights from them.
    size : int or (int, int), optional
        Height and width to which images are resized, without keeping their proportions. By
        default that of a named network; otherwise all images must have one size.
    mean, std : three floats, optional
        What pixels between 0 and 1 are standardised by; by default as a named network wants it.
    augment : bool or localma.backbones.augment.Augmentation
        Whether images are changed at random in training: mirrored, turned by at most 10 degrees,
        brightness and contrast changed by at most a fifth. A frozen network sees no such
        images, unless `candidates_on` is given.
    candidates_on : function, optional
        Asks the candidates: ``candidates_on(images, rows) -> (b, M, K)`` with images of dtype uint8
        and shape (b, height, width, 3), augmented from the rows of those numbers. Under
        cross-entropy K is one, the probability of the row's label. The gate then learns
        from the images and `n_copies` fixed augmented copies of each, and no row is held out, since
        copies of one image would be on both sides.
    n_copies : int
        Augmented copies of each image, with `candidates_on`.
    head : Gate, optional
        Learns the weights from frozen features; by default `MLPGate` of 32 units.
    cache : folder, optional
        Where frozen features are kept, by the content of image and network; else in memory only.
        It may be the folder of `Cached` candidates, whose functions look at it and clean it.
    shrinkage : float
        At least 0; `inf` gives exactly the global weights. As in `MLPGate`. Zero suits a network
        that starts at random and has thousands of images.
    n_epochs, batch_size, learning_rate, validation_fraction, patience, checkpoint, progress
        Training of the whole network, as in `TorchGate`; `batch_size` serves frozen ones too.
    device : str, optional
        As in `TorchGate`. A gate that was trained on one device predicts on any.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    inner_ : Gate
        What was learnt: a `TorchGate` on pixels, or the head on features.
    size_ : (int, int)
        Height and width of the images that the network sees.
    global_weights_ : (M,) array

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

    code_parameters: ClassVar[tuple[str, ...]] = ("network",)
    path_parameters: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(
        self,
        network: Any = "cnn",
        *,
        weights: str | PathLike[str] | None = None,
        frozen: bool = False,
        size: int | Sequence[int] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        augment: bool | Augmentation = True,
        candidates_on: CandidatesOn | None = None,
        n_copies: int = 4,
        head: Gate | None = None,
        cache: str | PathLike[str] | None = None,
        shrinkage: float = 0.003,
        n_epochs: int = 30,
        batch_size: int = 64,
        learning_rate: float = 0.001,
        validation_fraction: float = 0.1,
        patience: int = 5,
        device: str | None = None,
        checkpoint: str | PathLike[str] | None = None,
        progress: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.network = network
        self.weights = weights
        self.frozen = frozen
        self.size = size
        self.mean = mean
        self.std = std
        self.augment = augment
        self.candidates_on = candidates_on
        self.n_copies = n_copies
        self.head = head
        self.cache = cache
        self.shrinkage = shrinkage
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.device = device
        self.checkpoint = checkpoint
        self.progress = progress
        self.random_state = random_state

    def arrays(self) -> Arrays:
        """The fitted state: what `restore` takes. A frozen network is not in it."""
        return super().arrays() | {"size": np.array(self.size_, dtype=np.int64)}

    def restore(self, arrays: Arrays) -> Self:
        """Take the fitted state back, checking that the network is the one that was used."""
        size = arrays["size"]
        if size.shape != (2,) or (size < 1).any() or (size > MOST_PIXELS).any():
            raise FileFormatError(
                f"The array 'size' of ImageGate must hold a height and a width, from 1 to "
                f"{MOST_PIXELS}; received {size.ravel()[:4].tolist()}."
            )
        self.size_ = (int(size[0]), int(size[1]))
        return super().restore(arrays)

    def _check_parameters(self) -> None:
        optional("torch", extra="torch")
        from torch import nn

        if not (isinstance(self.network, str | nn.Module) or callable(self.network)):
            raise InvalidInputError(
                "network of ImageGate must be 'cnn', the name of a network, a torch.nn.Module or a "
                f"function that makes one; received {self.network!r}."
            )
        if self.frozen and self.weights is None and isinstance(self.network, str):
            raise InvalidInputError(
                f"The features of a frozen network need trained parameters, and {self.network!r} "
                "has none: pass weights= a file, or a module that has been trained."
            )
        if self.weights is not None and (
            not isinstance(self.network, str) or self.network == "cnn"
        ):
            raise InvalidInputError(
                f"weights of ImageGate are for a network by name; received network="
                f"{self.network!r}. Load them into the module."
            )
        check_rules(self, {}, _RULES)
        _height_and_width(self.size)

    def _rows(self, X: Any, *, fitting: bool) -> ImageRows:
        from localma.backbones.images import ImageRows

        wanted = self.size if self.size is not None else self._spec().size
        if not fitting:
            return ImageRows(X, self.size_, resize=wanted is not None)
        rows = ImageRows(X, _height_and_width(wanted), resize=wanted is not None)
        self.size_ = rows.size
        return rows

    def _with_copies(self, data: Labelled) -> Labelled:
        if self.candidates_on is None:
            return data
        n, copies = data.n_rows, 1 + self.n_copies
        augmentation = self._augmentation()
        if augmentation is None:
            raise InvalidInputError(
                "candidates_on of ImageGate asks the candidates about augmented images, and "
                "augment is off. Leave one of the two out."
            )
        rows = data.X.with_copies(augmentation, self.n_copies, seed=0)
        answers = self._ask(rows, np.arange(n, copies * n), data.P.shape)
        return replace(
            data,
            X=rows,
            P=np.concatenate([data.P, answers]),
            y=np.tile(data.y, (copies, 1)),
            sample_weight=np.tile(data.sample_weight, copies),
        )

    def _ask(self, rows: ImageRows, numbers: NDArray[np.intp], shape: tuple[int, ...]) -> Array:
        """Predictions of the candidates for augmented images: (numbers, M, K)."""
        assert self.candidates_on is not None
        answers = []
        for first in range(0, len(numbers), self.batch_size):
            part = numbers[first : first + self.batch_size]
            pixels = np.stack([rows[number].numpy() for number in part]).transpose(0, 2, 3, 1)
            images = np.round(255.0 * pixels).astype(np.uint8)
            answer = np.asarray(self.candidates_on(images, part % shape[0]), dtype=np.float64)
            if answer.shape != (len(part), *shape[1:]) or not np.isfinite(answer).all():
                raise InvalidInputError(
                    "candidates_on of ImageGate must return finite predictions of shape "
                    f"{(len(part), *shape[1:])}, as the gate is given; received shape "
                    f"{answer.shape}. Under cross-entropy keep the probability of the label alone."
                )
            answers.append(answer)
        return np.concatenate(answers)

    def _open_features(self) -> FrozenFeatures:
        from localma.backbones.gate_networks import ImageEncoder

        return FrozenFeatures.shared(
            self._fingerprint(),
            partial(ImageEncoder, self._spec()),
            self.cache,
            self.batch_size,
            self.device,
            self._described(),
        )

    def _trained_whole(self, *, restoring: bool) -> TorchGate:
        from localma.backbones.gate_networks import MakeLogits

        # Copies that the candidates were asked about are changed already.
        augmentation = self._augmentation() if self.candidates_on is None else None
        pretrained = self.weights is not None or not isinstance(self.network, str)
        return TorchGate(
            MakeLogits(self._spec(), self.size_, augmentation, start=not restoring),
            shrink_to="start" if pretrained else "zero",
            n_epochs=self.n_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            validation_fraction=self.validation_fraction if self.candidates_on is None else 0.0,
            patience=self.patience,
            device=self.device,
            checkpoint=self.checkpoint,
            progress=self.progress,
        )

    def _check_sizes(self, arrays: Arrays) -> None:
        """Compare a named network with the arrays before memory is taken for it."""
        saved = arrays_below(arrays, "parameters.module.")
        if self.frozen or not saved or not isinstance(self.network, str):
            return
        import torch

        from localma.backbones.gate_networks import MakeLogits

        make = MakeLogits(self._spec(), self.size_, None, start=False)
        with torch.device("meta"):
            outline = make(len(np.atleast_1d(arrays["global_weights"])))
        expected = {name: tuple(value.shape) for name, value in outline.state_dict().items()}
        if expected != {name: array.shape for name, array in saved.items()}:
            raise FileFormatError(
                f"The network {self.network!r} of ImageGate does not have the parameters that "
                "were saved. Save the model again, or pass load(path, gate=ImageGate(...))."
            )

    def _fingerprint(self) -> str:
        spec = self._spec()
        return spec.fingerprint(fingerprint) if self.frozen else spec.architecture()

    def _described(self) -> str:
        name = self.network if isinstance(self.network, str) else type(self.network).__name__
        file = "" if self.weights is None else f" with weights={fspath(self.weights)!r}"
        return f"network={name!r}{file}"

    def _spec(self) -> NetworkSpec:
        from localma.backbones.gate_networks import NetworkSpec

        return NetworkSpec.of(self.network, self.weights, self.mean, self.std)

    def _augmentation(self) -> Augmentation | None:
        from localma.backbones.augment import Augmentation

        if isinstance(self.augment, Augmentation):
            return self.augment
        return Augmentation() if self.augment else None


MOST_PIXELS = 16_384
"""Largest height or width of images that a file may ask for."""

_RULES: Rules = (
    ("frozen", lambda value: isinstance(value, bool | np.bool_), "True or False"),
    ("n_copies", is_count, "at least 1, and an integer"),
    ("batch_size", is_count, "a positive integer"),
    ("mean", lambda value: value is None or _are_three(value), "three finite numbers, or None"),
    (
        "std",
        lambda value: value is None or (_are_three(value) and min(value) > 0.0),
        "three positive numbers, or None",
    ),
)


def _are_three(values: Any) -> bool:
    listed = isinstance(values, Sequence | np.ndarray) and len(values) == 3
    return listed and all(is_number(value) and abs(value) < np.inf for value in values)


def _height_and_width(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    pair = size if isinstance(size, Sequence | np.ndarray) else (size, size)
    if len(pair) != 2 or not all(is_count(side) for side in pair):
        raise InvalidInputError(
            "size of ImageGate must be a positive integer or a pair (height, width) of them; "
            f"received {size!r}."
        )
    return int(pair[0]), int(pair[1])
