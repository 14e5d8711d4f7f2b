"""A folder of transformers that classifies texts as a candidate."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma._torch_packages import import_transformers, model_folder, quiet
from localma.candidates.base import (
    AUTO_MEMORY,
    BatchSize,
    FilePath,
    Inputs,
    LogitsCandidate,
    LogitsRecipe,
    RowError,
    memory_bytes,
)
from localma.candidates.files.base import ModelFile, PerProcess, as_objects
from localma.candidates.outputs import Activation, Array, Classes, Table, Task, as_labels, listed
from localma.errors import InvalidInputError
from localma.tables.frames import n_rows

SORTED_TOGETHER = 1024
"""Texts that batch_size="auto" hands over at once, to be sorted by length."""
ROWS_PER_PASS = 32
"""Texts that go through the network at once; a processor gains nothing from more."""
UNSTATED_LENGTH = 10**6
"""A tokenizer whose limit is beyond this has none."""
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


class TransformersCandidate(LogitsCandidate):
    """A text classifier of transformers, from the folder that `save_pretrained` wrote.

    Texts are sorted by length before they are padded, so that short ones do not wait for long
    ones, and the predictions come back in the order of the rows. Weights that are stored in half
    precision run in float32.

    Parameters
    ----------
    folder : config.json, the weights and the tokenizer; or the name of a model on the Hugging Face
        hub, which is fetched, or found in its cache. Code that a folder may hold is never run.
    classes : other labels for the classes of config.json, in the order of its `id2label`. For a
        network with one output, none (it is a regression) or two, where the output is the logit of
        the second.
    max_length : word pieces after which a text is cut; by default as many as the network takes.
    temperature : what logits are divided by; `calibrated` fits it.
    inputs : the column with the texts, such as "text"; by default X holds nothing else.
    device : where to run, such as "cuda".
    batch_size : texts handed over at once; "auto" is 1,024 of them.
    cost : as for every candidate.
    """

    kind = "transformers"
    recipe_type = TransformersRecipe

    def __init__(
        self,
        folder: str | os.PathLike[str] | ModelFile,
        *,
        classes: Classes | None = None,
        max_length: int | None = None,
        temperature: float = 1.0,
        inputs: Inputs = None,
        cost: float = 1.0,
        batch_size: BatchSize = "auto",
        device: str = "cpu",
    ) -> None:
        import_transformers()
        self.name = _hub_name(folder)
        self.file = folder if isinstance(folder, ModelFile) else ModelFile(model_folder(folder))
        own = _own_classes(self.file.path)
        classes = _renamed(own, classes, self.file.path)
        super().__init__(
            activation=_activation(own, classes),
            temperature=temperature,
            inputs=inputs,
            classes=classes,
            cost=cost,
            batch_size=batch_size,
        )
        _check_weights(self.file.path)
        self.max_length = _checked_length(max_length)
        self.device = str(device)
        self._network = PerProcess(partial(_Network, self.file, self.device, self.max_length))

    @property
    def label(self) -> str:
        """The name of the folder, or of the model on the hub."""
        return self.file.label if self.name is None else self.name

    @property
    def source(self) -> str:
        """The folder."""
        return str(self.file.path)

    def _network_identity(self) -> object:
        return self.file.path, self.max_length

    def _row_bytes(self, X: Table) -> int:
        return AUTO_MEMORY // SORTED_TOGETHER

    def _outputs(self, X: Table, task: Task) -> Array:
        texts = _checked_texts(X)
        memory = memory_bytes(self.batch_size if isinstance(self.batch_size, str) else "auto")
        return self._network.get().logits(texts, memory)

    def recipe(self) -> TransformersRecipe | None:
        """The folder, or the name on the hub, its fingerprint and the options."""
        recipe = TransformersRecipe.of(self, **self.file.recipe())
        if recipe is None or self.name is None:
            return recipe
        return replace(recipe, path=None)


def _hub_name(folder: Any) -> str | None:
    if isinstance(folder, ModelFile) or Path(folder).is_dir():
        return None
    return os.fspath(folder)


def _own_classes(folder: Path) -> list[str]:
    """Labels of config.json, in the order of the network's outputs."""
    config = _read_config(folder)
    heads = config.get("architectures") or []
    if heads and not any("SequenceClassification" in str(head) for head in heads):
        raise InvalidInputError(
            f"The folder {str(folder)!r} holds a {heads[0]}, and a candidate must be a model for "
            "sequence classification: fine-tune it for the task first, or use it in "
            "TextGate(...), which needs no classes."
        )
    if config.get("problem_type") == "multi_label_classification":
        raise InvalidInputError(
            f"The model in {str(folder)!r} gives several labels to a text, and the probabilities "
            "of a candidate sum to one over its classes: make one candidate of each label, from a "
            "function that returns its probability."
        )
    # Two labels without names are not written down.
    unnamed = {str(place): f"LABEL_{place}" for place in range(config.get("num_labels", 2))}
    labels = config.get("id2label") or unnamed
    try:
        return [str(labels[place]) for place in sorted(labels, key=int)]
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"id2label in {str(folder / 'config.json')!r} must map 0, 1, ... to labels ({error})."
        ) from error


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        config: Any = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"A folder of transformers has a config.json, and {str(file)!r} cannot be read "
            f"({error}): pass the folder that save_pretrained wrote."
        ) from error
    if not isinstance(config, dict):
        raise InvalidInputError(f"{str(file)!r} must hold an object; it holds {config!r:.80}.")
    return config


def _renamed(own: list[str], classes: Any, folder: Path) -> Any:
    if classes is None:
        return as_labels(own) if len(own) > 1 else None
    labels = as_labels(classes)
    if len(labels) == len(own) > 1 or (len(own) == 1 and len(labels) == 2):
        return labels
    raise InvalidInputError(
        f"classes= must rename the {len(own)} classes in config.json of {str(folder)!r}, "
        f"{listed(own)}, in the same order; received {listed(labels)}."
    )


def _activation(own: list[str], classes: Any) -> Activation | None:
    if classes is None:
        return None
    return "sigmoid" if len(own) == 1 else "softmax"


def _check_weights(folder: Path) -> None:
    """Open the weights, which shows at once whether a file was cut short."""
    from safetensors import SafetensorError, safe_open

    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise InvalidInputError(
                f"The weights file {str(file)!r} cannot be read, or was cut short ({error}): "
                "fetch or save it again."
            ) from error


def _checked_length(max_length: Any) -> int | None:
    if max_length is None:
        return None
    whole = isinstance(max_length, int | np.integer) and not isinstance(max_length, bool)
    if not whole or max_length < 1:
        raise InvalidInputError(
            f"max_length must be None or a whole number, one or more; received {max_length!r}."
        )
    return int(max_length)


def _checked_texts(X: Table) -> list[str]:
    """The texts of the rows; an error names the row that has none."""
    rows = as_objects(X, "text")
    texts = [_text_of(rows[row]) for row in range(n_rows(rows))]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise RowError(
                f"a text must be a string; received {text!r:.80} ({type(text).__name__}): convert "
                "it, state the column with inputs=, or leave the row out.",
                row=row,
            )
        if not text.strip():
            raise RowError(
                f"the text is empty ({text!r:.80}); a classifier of texts needs one: fill it, or "
                "leave the row out.",
                row=row,
            )
    return texts


def _text_of(item: Any) -> Any:
    """The text in a row: the row itself, its first or only part, or the one named "text"."""
    if isinstance(item, dict):
        return item["text"] if "text" in item else next(iter(item.values()), None)
    first = isinstance(item, tuple) or (isinstance(item, list) and len(item) == 1)
    return item[0] if first else item


class _Network:
    """A model with its tokenizer, loaded from a folder."""

    def __init__(self, file: ModelFile, device: str, max_length: int | None) -> None:
        folder = file.path
        self.tokenizer = _load_tokenizer(folder)
        self.model = _load_model(folder).to(device).eval()
        self.device = device
        self.max_length = _limit(self.tokenizer, self.model.config, max_length, folder)

    def logits(self, texts: list[str], memory: int) -> Array:
        """Logits of texts in their order, (n, K); a pass stays within `memory` bytes, if it can."""
        torch = optional("torch", extra="torch")
        tokens = self.tokenizer(
            texts, truncation=self.max_length is not None, max_length=self.max_length
        )
        lengths = np.array([len(pieces) for pieces in tokens["input_ids"]])
        outputs: Any = None
        with torch.inference_mode():
            for rows in self._passes(lengths, memory):
                logits = self._pass({name: [v[row] for row in rows] for name, v in tokens.items()})
                if outputs is None:
                    outputs = np.empty((len(texts), logits.shape[1]))
                outputs[rows] = logits
        return outputs

    def _passes(self, lengths: NDArray[np.intp], memory: int) -> Iterator[NDArray[np.intp]]:
        """Rows that go through together: neighbours in length, the longest first."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = max(1, int(lengths[order[start]]))
            size = max(1, min(ROWS_PER_PASS, memory // (longest * self._token_bytes(longest))))
            yield order[start : start + size]
            start += size

    def _token_bytes(self, length: int) -> int:
        """Memory of a word piece inside a layer: its vectors, and its attention to the others."""
        config = self.model.config
        width: int = getattr(config, "hidden_size", 768)
        heads: int = getattr(config, "num_attention_heads", 12)
        return 4 * (16 * width + 2 * heads * length)

    def _pass(self, tokens: Tokens) -> Array:
        padded = self.tokenizer.pad(tokens, return_tensors="pt").to(self.device)
        logits = self.model(**padded).logits.float().cpu().numpy()
        return np.asarray(logits, dtype=np.float64)


def _load_tokenizer(folder: Path) -> Any:
    transformers = import_transformers()
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # transformers raises whatever it meets, by any name
        raise _unreadable("tokenizer", folder, error) from error
    # Without its files transformers makes an empty one, to which every word is unknown.
    names = {"tokenizer.json", *type(tokenizer).vocab_files_names.values()}
    if not any((folder / name).is_file() for name in names):
        raise InvalidInputError(
            f"The folder {str(folder)!r} has no tokenizer; one of these files must be there: "
            f"{', '.join(sorted(names))}. Save the tokenizer into it too: "
            "tokenizer.save_pretrained(folder)."
        )
    if tokenizer.pad_token is None:
        raise InvalidInputError(
            f"The tokenizer in {str(folder)!r} has no padding token, so that texts of different "
            "lengths cannot go together: set one in tokenizer and model, and save both again."
        )
    return tokenizer


def _load_model(folder: Path) -> Any:
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


def _check_report(report: Any, folder: Path) -> None:
    """Refuse a network that transformers filled up with random numbers."""
    missing, unlike = sorted(report["missing_keys"]), sorted(report["mismatched_keys"])
    if unlike:
        key, stored, wanted = unlike[0]
        raise InvalidInputError(
            f"The weights in {str(folder)!r} do not fit its config.json: {len(unlike)} tensors "
            f"have other shapes, such as {key}, {tuple(stored)} in place of {tuple(wanted)}. "
            "Correct id2label, or take the weights that belong to it."
        )
    if missing:
        raise InvalidInputError(
            f"The weights in {str(folder)!r} lack {len(missing)} tensors of a model for sequence "
            f"classification, such as {missing[0]}, and would be filled with random numbers: "
            "fine-tune the model for the task and save it again."
        )


def _unreadable(what: str, folder: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"The {what} in {str(folder)!r} cannot be read ({type(error).__name__}: "
        f"{' '.join(str(error).split())[:300]}): pass the folder that save_pretrained wrote, with "
        "config.json, the weights and the tokenizer."
    )


def _limit(tokenizer: Any, config: Any, wanted: int | None, folder: Path) -> int | None:
    """Word pieces that the network takes at most; None if it takes any number."""
    positions = getattr(config, "max_position_embeddings", None)
    stated = tokenizer.model_max_length
    if stated > UNSTATED_LENGTH:
        # Some networks count positions from the padding, and so take two less than they have.
        stated = UNSTATED_LENGTH if positions is None else max(1, positions - 2)
    limit = min(stated, positions or UNSTATED_LENGTH)
    if wanted is not None and wanted > limit:
        raise InvalidInputError(
            f"max_length must be at most {limit}, which is what the model in {str(folder)!r} "
            f"takes; received {wanted}."
        )
    limit = wanted or limit
    return None if limit == UNSTATED_LENGTH else limit
