"""Local weights from texts: a transformers encoder, fine-tuned or frozen."""

from __future__ import annotations

from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.gates._encoded import EncodedGate
from localma.gates._frozen import FrozenFeatures
from localma.gates.base import Gate, Rules, check_rules, is_count
from localma.gates.module import TorchGate
from localma.tables.frames import column_names, column_values, n_rows

POOLINGS = ("mean", "cls")


class TextGate(EncodedGate):
    """Local weights ``w(x)`` of texts x: an encoder, fine-tuned as in the paper or frozen.

    The paper fine-tunes a TinyBERT ("huawei-noah/TinyBERT_General_4L_312D"); it does not say with
    which settings, and the defaults are ours.

    Inputs are lists, arrays or series of strings, a frame or a Dataset with a column "text" or one
    column alone. An empty text is a text without words, and has weights like any other; a
    missing one (None, NaN) is refused.

    Parameters
    ----------
    encoder : str or path
        Folder of a transformers encoder with its tokenizer, or its name on the Hugging Face hub. A
        folder is read without the network.
    frozen : bool
        Whether the encoder stays as it is. Then features are computed once per text, and `head`
        learns the weights from them.
    pooling : {"mean", "cls"}
        What becomes of the vectors of the words: their mean, or the first one.
    max_length : int
        Word pieces after which a text is cut.
    head : Gate, optional
        Learns the weights from frozen features; by default `MLPGate` of 32 units.
    cache : folder, optional
        Where frozen features are kept, by the content of text and encoder; else in memory only.
        It may be the folder of `Cached` candidates, whose functions look at it and clean it.
    shrinkage : float
        At least 0; `inf` gives exactly the global weights. As in `MLPGate`; in fine-tuning it
        pulls to the parameters of the encoder as it was.
    n_epochs, batch_size, learning_rate, validation_fraction, patience, checkpoint, progress
        Fine-tuning, as in `TorchGate`; `batch_size` serves frozen encoders too.
    device : str, optional
        As in `TorchGate`. A gate that was trained on one device predicts on any.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    inner_ : Gate
        What was learnt: a `TorchGate` on texts, or the head on features.
    global_weights_ : (M,) array

    Examples
    --------
    >>> gate = TextGate("models/minilm", frozen=True, cache="features")
    >>> gate.pooling
    'mean'
    """

    path_parameters: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(
        self,
        encoder: str | PathLike[str],
        *,
        frozen: bool = False,
        pooling: str = "mean",
        max_length: int = 128,
        head: Gate | None = None,
        cache: str | PathLike[str] | None = None,
        shrinkage: float = 0.003,
        n_epochs: int = 5,
        batch_size: int = 32,
        learning_rate: float = 5e-5,
        validation_fraction: float = 0.1,
        patience: int = 2,
        device: str | None = None,
        checkpoint: str | PathLike[str] | None = None,
        progress: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.encoder = encoder
        self.frozen = frozen
        self.pooling = pooling
        self.max_length = max_length
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

    def _check_parameters(self) -> None:
        for package, extra in (("torch", "torch"), ("transformers", "text")):
            optional(package, extra=extra)
        check_rules(self, {"pooling": POOLINGS}, _RULES)

    def _rows(self, X: Any, *, fitting: bool) -> list[str]:
        return as_texts(X)

    def _open_features(self) -> FrozenFeatures:
        from localma.gates._text_encoder import TextEncoder

        return FrozenFeatures.shared(
            self._fingerprint(),
            partial(TextEncoder, self._folder(), self.pooling, self.max_length),
            self.cache,
            self.batch_size,
            self.device,
            self._described(),
        )

    def _trained_whole(self, *, restoring: bool) -> TorchGate:
        from localma.gates._text_encoder import MakeLogits, Tokens

        folder = self._folder()
        return TorchGate(
            MakeLogits(folder, self.pooling, self.max_length, start=not restoring),
            shrink_to="start",
            n_epochs=self.n_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            validation_fraction=self.validation_fraction,
            patience=self.patience,
            device=self.device,
            checkpoint=self.checkpoint,
            collate=Tokens(folder, self.max_length),
            progress=self.progress,
        )

    def _fingerprint(self) -> str:
        from localma.gates._text_encoder import encoder_fingerprint

        settings = f"{self.pooling} {int(self.max_length)}"
        return encoder_fingerprint(self._folder(), settings, with_weights=self.frozen)

    def _described(self) -> str:
        return f"encoder={fspath(self.encoder)!r} (pooling and max_length belong to it)"

    def _folder(self) -> Path:
        from localma.gates._text_encoder import find_folder

        return find_folder(self.encoder)


_RULES: Rules = (
    ("encoder", lambda value: isinstance(value, str | PathLike), "a folder, or a name on the hub"),
    ("frozen", lambda value: isinstance(value, bool | np.bool_), "True or False"),
    ("max_length", is_count, "a positive integer"),
)


def as_texts(X: Any) -> list[str]:
    """Rows of X as strings, whatever holds them; what is no string is refused, by its row.

    >>> as_texts(np.array(["a text", ""]))
    ['a text', '']
    """
    texts = list(_column(X))
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInputError(
                f"Every input of TextGate must be a string; row {row} is {text!r}, a "
                f"{type(text).__name__}. Replace missing texts by '', or leave the rows out."
            )
    return [str(text) for text in texts]


def _column(X: Any) -> Any:
    """The texts of a table with one column, or one named "text"; anything else is a sequence."""
    names = column_names(X) or getattr(X, "column_names", None)  # of a Dataset
    if not names:
        if getattr(X, "ndim", 1) == 2 and X.shape[1] == 1:
            return X[:, 0]
        return X if hasattr(X, "__iter__") else [X[row] for row in range(n_rows(X))]
    if "text" not in names and len(names) > 1:
        raise InvalidInputError(
            "A table of texts must have one column, or one named 'text'; received the columns "
            f"{[str(name) for name in names[:10]]}. Pass gate_features= the name of the column."
        )
    name = "text" if "text" in names else names[0]
    return X[name] if hasattr(X, "column_names") else column_values(X, name)
