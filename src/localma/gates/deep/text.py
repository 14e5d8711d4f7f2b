"""A local gate over texts: a transformers encoder, fine-tuned or frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.gates.base import COUNT, FLAG, Rule
from localma.gates.deep.features import EncodedGate
from localma.gates.deep.torch_ import PRECISIONS, TorchGate
from localma.gates.labelled import RowSource
from localma.pretrained import model_folder
from localma.tables.frames import column_names, column_values, n_rows

if TYPE_CHECKING:
    from localma.gates.deep.encoders import TextEncoder


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class TextGate(EncodedGate[list[str]]):
    """Local weights ``w(x)`` of texts x: an encoder, fine-tuned as in the paper or frozen.

    The paper fine-tunes a TinyBERT ("huawei-noah/TinyBERT_General_4L_312D") but does not report the
    settings; the defaults are our choice.

    Inputs are lists, arrays or series of strings, or a data frame or Dataset with a column "text"
    or with a single column. An empty text is valid. A missing text (None, NaN) raises an error.

    Parameters
    ----------
    encoder : str or path
        Folder of a transformers encoder with its tokenizer, or its name on the Hugging Face hub. A
        folder is read without the network.
    frozen : bool
        Whether the encoder is left unchanged. If so, features are computed once per text, and
        `head` learns the weights from them.
    head : Gate, optional
        Learns the weights from frozen features. By default, `MLPGate` with 32 units.
    cache : folder, optional
        Folder for frozen features, by the content of text and encoder. By default, they stay in
        memory. It may be the folder of `Cached` candidates; the functions that inspect and clean
        that folder work for features, too.
    shrinkage : float
        At least 0; `inf` gives exactly the global weights. As in `MLPGate`. In fine-tuning, it
        pulls the parameters to those of the original encoder.
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
        As in `TorchGate`. Not used by a frozen encoder.
    checkpoint : folder, optional
        Folder to which the state of training is written after each epoch.
    progress : bool, optional
        Whether to show a progress bar. With None, a bar is shown on a terminal if training takes
        long.
    random_state : int, RandomState instance or None
        Seed of the start, the held-out rows and the batches.
    pooling : {"mean", "cls"}
        How the vectors of the tokens become one vector: their mean, or the first one.
    max_length : int
        Number of tokens after which a text is cut.

    Attributes
    ----------
    inner_ : Gate
        The gate that learned the weights: a `TorchGate` on texts, or the head on features.
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.

    Examples
    --------
    >>> gate = TextGate("models/minilm", frozen=True, cache="features")
    >>> gate.pooling
    'mean'
    """

    path_parameters = ("encoder",)
    _choices: ClassVar[Mapping[str, tuple[str | None, ...]]] = {
        "pooling": ("mean", "cls"),
        "mixed_precision": PRECISIONS,
    }
    _rules: ClassVar[Mapping[str, Rule]] = {
        "encoder": Rule(
            lambda value: isinstance(value, str | PathLike), "a folder, or a name on the hub"
        ),
        "frozen": FLAG,
        "max_length": COUNT,
    }

    encoder: str | PathLike[str]
    _: KW_ONLY
    pooling: str = "mean"
    max_length: int = 128
    n_epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 5e-5
    patience: int = 2

    def _check_parameters(self) -> None:
        optional("torch", extra="torch")
        optional("transformers", extra="text")
        super()._check_parameters()

    def _rows(self, X: RowSource, *, fitting: bool) -> list[str]:
        return as_texts(X)

    def _open_encoder(self) -> TextEncoder:
        from localma.gates.deep.encoders import TextEncoder

        return TextEncoder(self._folder(), self.pooling, self.max_length)

    def _trained_gate(self, *, restoring: bool) -> TorchGate:
        from localma.gates.deep.encoders import Tokens, make_logits

        folder = self._folder()
        make = partial(make_logits, folder, self.pooling, self.max_length, not restoring)
        return self._torch_gate(make, "start", collate=Tokens(folder, self.max_length))

    def _fingerprint(self) -> str:
        from localma.gates.deep.encoders import encoder_fingerprint

        settings = f"{self.pooling} {int(self.max_length)}"
        return encoder_fingerprint(self._folder(), settings, with_weights=self.frozen)

    def _described(self) -> str:
        return f"encoder={fspath(self.encoder)!r} (including pooling and max_length)"

    def _folder(self) -> Path:
        return model_folder(self.encoder)


def as_texts(X: RowSource) -> list[str]:
    """Rows of X as strings; raise an error that names the row if one is not a string.

    >>> import numpy as np
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


def _column(X: Any) -> Iterable[str]:
    """The only column of a table, or the one named "text"; X itself if it is not a table."""
    names = column_names(X) or getattr(X, "column_names", None)  # the latter of a Dataset
    if not names:
        if getattr(X, "ndim", 1) == 2 and X.shape[1] == 1:
            return X[:, 0]
        return X if hasattr(X, "__iter__") else [X[row] for row in range(n_rows(X))]
    if "text" not in names and len(names) > 1:
        raise InvalidInputError(
            "A table of texts must have a single column, or one named 'text'; received the columns "
            f"{[str(name) for name in names[:10]]}. Pass gate_features= the name of the column."
        )
    name = "text" if "text" in names else names[0]
    return X[name] if hasattr(X, "column_names") else column_values(X, name)
