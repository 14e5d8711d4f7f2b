"""A folder of transformers that classifies texts as a candidate."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from localma._optional import optional
from localma._types import Float64, Integers, Json
from localma.candidates.base import CommonOptions, RowError
from localma.candidates.batches import AUTO_MEMORY, memory_bytes
from localma.candidates.files.base import (
    FromFile,
    ModelFile,
    PerProcess,
    as_objects,
    checked_count,
)
from localma.candidates.logits import LogitsCandidate
from localma.candidates.outputs import Activation, Classes, Labels, Table, Task, as_labels, listed
from localma.candidates.recipes import FilePath, LogitsRecipe, PathLike
from localma.errors import InvalidInputError
from localma.pretrained import import_transformers, model_folder, quiet
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

SORTED_TOGETHER = 1024
"""Texts per call with batch_size="auto"; they are sorted by length."""
ROWS_PER_PASS = 32
"""Texts per pass through the network; more do not make a processor faster."""
UNSTATED_LENGTH = 10**6
"""A tokenizer with a limit above this has none."""
Tokens = dict[str, list[list[int]]]


@dataclass(frozen=True, kw_only=True)
class TransformersRecipe(LogitsRecipe):
    """The folder, or the name on the hub, its fingerprint and the options."""

    kind = "transformers"
    path: FilePath | None
    sha256: str
    name: str | None
    max_length: int | None
    device: str

    def make(self) -> TransformersCandidate:
        """Find the folder again and check that it is the same."""
        options = self.options()
        for field in ("path", "sha256", "name", "activation"):
            del options[field]  # the activation follows from the folder and the classes
        if self.path is not None:
            return TransformersCandidate(ModelFile(self.path, self.sha256), **options)
        candidate = TransformersCandidate(str(self.name), **options)
        ModelFile(candidate.file.path, self.sha256)
        return candidate


class TransformersCandidate(FromFile, LogitsCandidate):
    """A text classifier of transformers, from a folder that `save_pretrained` wrote.

    Texts are sorted by length before they are padded, so that short texts need little padding.
    Predictions are in the order of the rows. Weights in half precision run in float32.

    Parameters
    ----------
    folder : str or path
        A folder with config.json, the weights and the tokenizer; or the name of a model on the
        Hugging Face hub, which is downloaded, or found in its cache. Code in the folder never runs.
    classes : array-like of shape (K,), optional
        Other labels for the classes of config.json, in the order of its `id2label`. For a network
        with one output, None for a regression, or two labels; the output is then the logit of the
        second.
    max_length : int, optional
        Number of word pieces after which a text is cut. By default the limit of the network.
    temperature : float, default=1.0
        Divisor of the logits. `calibrated` fits it.
    device : str, default="cpu"
        Device to run on, such as "cuda".
    **options
        Options of every candidate:

        - `inputs` : the column with the texts, such as "text". By default X is a column of texts.
        - `batch_size` : int, str or None. Texts per call; "auto" is 1,024.
        - `cost` : float. What a row costs, for budgets, such as the price of a call.

    Examples
    --------
    >>> TransformersCandidate("reviews", inputs="text")  # doctest: +SKIP
    TransformersCandidate('reviews')
    """

    kind = "transformers"
    _recipe_type = TransformersRecipe

    def __init__(
        self,
        folder: PathLike | ModelFile,
        *,
        classes: Classes | None = None,
        max_length: int | None = None,
        temperature: float = 1.0,
        device: str = "cpu",
        **options: Unpack[CommonOptions],
    ) -> None:
        import_transformers()
        self.name: str | None = None
        if not isinstance(folder, ModelFile):
            if not Path(folder).is_dir():
                self.name = os.fspath(folder)
            folder = ModelFile(model_folder(folder))
        self.file = folder
        file_classes = _file_classes(self.file.path)
        labels = _renamed(file_classes, classes, self.file.path)
        activation: Activation | None = None
        if labels is not None:
            activation = "sigmoid" if len(file_classes) == 1 else "softmax"
        super().__init__(activation=activation, temperature=temperature, classes=labels, **options)
        _check_weights(self.file.path)
        if max_length is not None:
            max_length = checked_count("max_length", max_length, least=1)
        self.max_length, self.device = max_length, str(device)
        self._network = PerProcess(partial(_Network, self.file, self.device, self.max_length))

    @property
    def label(self) -> str:
        """The name of the folder, or of the model on the hub."""
        return self.name or self.file.label

    @property
    def path(self) -> str | None:
        """The folder; None for a model on the hub."""
        if self.name is not None:
            return None
        return str(self.file.path)

    def _network_identity(self) -> Hashable:
        return self.file.path, self.max_length

    def _row_bytes(self, X: Table) -> int:
        return AUTO_MEMORY // SORTED_TOGETHER

    def _outputs(self, X: Table, task: Task) -> Float64:
        memory = AUTO_MEMORY
        if isinstance(self.batch_size, str):
            memory = memory_bytes(self.batch_size)
        return self._network.get().logits(_checked_texts(X), memory)


def _file_classes(folder: Path) -> list[str]:
    """Labels of config.json, in the order of the network's outputs."""
    config = _read_config(folder)
    heads = config.get("architectures") or []
    if heads and not any("SequenceClassification" in str(head) for head in heads):
        raise InvalidInputError(
            f"The folder {str(folder)!r} holds a {heads[0]}, but a candidate must be a model for "
            "sequence classification: fine-tune it for the task first, or use it in "
            "TextGate(...), which needs no classes."
        )
    if config.get("problem_type") == "multi_label_classification":
        raise InvalidInputError(
            f"The model in {str(folder)!r} gives several labels to a text, but the probabilities "
            "of a candidate sum to one over its classes: make one candidate for each label, from a "
            "function that returns its probability."
        )
    # transformers does not write the names LABEL_0 and LABEL_1.
    unnamed = {str(index): f"LABEL_{index}" for index in range(config.get("num_labels", 2))}
    labels = config.get("id2label") or unnamed
    try:
        return [str(labels[index]) for index in sorted(labels, key=int)]
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"id2label in {str(folder / 'config.json')!r} must map 0, 1, ... to labels ({error})."
        ) from error


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        config: Json = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"A transformers folder has a config.json, but {str(file)!r} cannot be read "
            f"({error}): pass the folder that save_pretrained wrote."
        ) from error
    if not isinstance(config, dict):
        raise InvalidInputError(f"{str(file)!r} must hold an object; it holds {config!r:.80}.")
    return config


def _renamed(file_classes: list[str], classes: Classes | None, folder: Path) -> Labels | None:
    if classes is None:
        if len(file_classes) == 1:
            return None
        return as_labels(file_classes)
    labels = as_labels(classes)
    if len(labels) == max(2, len(file_classes)):
        return labels
    raise InvalidInputError(
        f"classes= must rename the {len(file_classes)} classes in config.json of {str(folder)!r}, "
        f"{listed(file_classes)}, in the same order; received {listed(labels)}."
    )


def _check_weights(folder: Path) -> None:
    """Open the weights, to refuse a file that was cut short."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise InvalidInputError(
                f"The weights file {str(file)!r} cannot be read, or was cut short ({error}): "
                "download or save it again."
            ) from error


def _checked_texts(X: Table) -> list[str]:
    """Return the texts of the rows; an error names a row without one."""
    rows = as_objects(X, "text")
    texts = [_text_of(rows[row]) for row in range(n_rows(rows))]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise RowError(
                f"a text must be a string; received {text!r:.80} ({type(text).__name__}): convert "
                "it, name the column with inputs=, or leave the row out.",
                row=row,
            )
        if not text.strip():
            raise RowError(
                f"the text is empty ({text!r:.80}), but a text classifier needs one: fill it, or "
                "leave the row out.",
                row=row,
            )
    return texts


def _text_of(item: Any) -> Any:
    """Return the text in a row: the row itself, its first or only item, or its item "text"."""
    if isinstance(item, dict):
        return item.get("text", next(iter(item.values()), None))
    if isinstance(item, tuple) or (isinstance(item, list) and len(item) == 1):
        return item[0]
    return item


class _Network:
    """A model with its tokenizer, loaded from a folder."""

    def __init__(self, file: ModelFile, device: str, max_length: int | None) -> None:
        folder = file.path
        self.tokenizer = _load_tokenizer(folder)
        self.model = _load_model(folder).to(device).eval()  # type: ignore[arg-type]
        self.device = device
        self.max_length = _limit(self.tokenizer, self.model.config, max_length, folder)

    def logits(self, texts: list[str], memory: int) -> Float64:
        """Logits (n, K) of texts; a pass takes at most `memory` bytes, if possible."""
        torch = optional("torch", extra="torch")
        tokens = self.tokenizer(
            texts, truncation=self.max_length is not None, max_length=self.max_length
        )
        lengths = np.array([len(pieces) for pieces in tokens["input_ids"]])
        passes = list(self._passes(lengths, memory))
        with torch.inference_mode():
            logits = [
                self._pass({name: [values[row] for row in rows] for name, values in tokens.items()})
                for rows in passes
            ]
        outputs = np.empty((len(texts), logits[0].shape[1]))
        outputs[np.concatenate(passes)] = np.concatenate(logits)
        return outputs

    def _passes(self, lengths: Integers, memory: int) -> Iterator[Integers]:
        """Rows of each pass: similar lengths, the longest first."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = max(1, int(lengths[order[start]]))
            size = max(1, min(ROWS_PER_PASS, memory // (longest * self._token_bytes(longest))))
            yield order[start : start + size]
            start += size

    def _token_bytes(self, length: int) -> int:
        """Memory of a word piece in a layer: its vectors, and its attention to all pieces."""
        config = self.model.config
        width: int = getattr(config, "hidden_size", 768)
        heads: int = getattr(config, "num_attention_heads", 12)
        return 4 * (16 * width + 2 * heads * length)

    def _pass(self, tokens: Tokens) -> Float64:
        padded = self.tokenizer.pad(tokens, return_tensors="pt").to(self.device)
        logits = self.model(**padded).logits.float().cpu().numpy()
        return np.asarray(logits, dtype=np.float64)


def _load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    transformers = import_transformers()
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # transformers raises errors of many types
        raise _unreadable("tokenizer", folder, error) from error
    # Without its files transformers makes an empty tokenizer, which knows no word.
    names = {"tokenizer.json", *type(tokenizer).vocab_files_names.values()}
    if not any((folder / name).is_file() for name in names):
        raise InvalidInputError(
            f"The folder {str(folder)!r} has no tokenizer; it must have one of these files: "
            f"{', '.join(sorted(names))}. Save the tokenizer there: "
            "tokenizer.save_pretrained(folder)."
        )
    if tokenizer.pad_token is None:
        raise InvalidInputError(
            f"The tokenizer in {str(folder)!r} has no padding token, which texts of different "
            "lengths need: set one in tokenizer and model, and save both again."
        )
    return tokenizer


def _load_model(folder: Path) -> PreTrainedModel:
    transformers, torch = import_transformers(), optional("torch", extra="torch")
    try:
        with quiet(transformers):
            model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except Exception as error:
        raise _unreadable("model", folder, error) from error
    _check_report(report, folder)
    return model


def _check_report(report: Mapping[str, Sequence[Any]], folder: Path) -> None:
    """Refuse a network that transformers completed with random numbers."""
    missing, different = sorted(report["missing_keys"]), sorted(report["mismatched_keys"])
    if different:
        key, stored, expected = different[0]
        raise InvalidInputError(
            f"The weights in {str(folder)!r} do not fit its config.json: {len(different)} tensors "
            f"have other shapes, such as {key}, {tuple(stored)} in place of {tuple(expected)}. "
            "Correct id2label, or use the weights that belong to it."
        )
    if missing:
        raise InvalidInputError(
            f"The weights in {str(folder)!r} lack {len(missing)} tensors of a model for sequence "
            f"classification, such as {missing[0]}, and would be filled with random numbers: "
            "fine-tune the model for the task and save it again."
        )


def _unreadable(item: str, folder: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"The {item} in {str(folder)!r} cannot be read ({type(error).__name__}: "
        f"{' '.join(str(error).split())[:300]}): pass the folder that save_pretrained wrote, with "
        "config.json, the weights and the tokenizer."
    )


def _limit(
    tokenizer: PreTrainedTokenizerBase,
    config: PreTrainedConfig,
    max_length: int | None,
    folder: Path,
) -> int | None:
    """Largest number of word pieces that the network takes; None if it takes any number."""
    positions: int = getattr(config, "max_position_embeddings", None) or UNSTATED_LENGTH
    limit = min(tokenizer.model_max_length, positions)
    if tokenizer.model_max_length > UNSTATED_LENGTH and positions < UNSTATED_LENGTH:
        # Some networks count positions from the padding, and so take two less than they have.
        limit = max(1, positions - 2)
    if max_length is not None and max_length > limit:
        raise InvalidInputError(
            f"max_length must be at most {limit}, the limit of the model in {str(folder)!r}; "
            f"received {max_length}."
        )
    limit = max_length or limit
    if limit == UNSTATED_LENGTH:
        return None
    return limit
