"""Encoders of transformers: found, read, pooled, and told apart by their content.

Imported at use: it needs torch and transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b, sha256
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from localma._torch_packages import import_transformers, model_folder, quiet
from localma.errors import InvalidInputError
from localma.storage.fingerprints import fingerprint

WEIGHTS = ("*.safetensors",)
SETTINGS = ("*.json", "*.txt", "*.model")
"""Files that make an encoder and its tokenizer."""


class PooledEncoder(nn.Module):
    """An encoder, its word vectors pooled, and a last layer: word pieces (n, l) -> (n, outputs)."""

    def __init__(self, encoder: nn.Module, head: nn.Module, pooling: str) -> None:
        super().__init__()
        self.encoder, self.head, self.pooling = encoder, head, pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **more: Tensor) -> Tensor:
        """Vectors of the texts; padding plays no part."""
        words = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **more)
        vectors = words.last_hidden_state
        if self.pooling == "cls":
            pooled = vectors[:, 0]
        else:
            mask = attention_mask[:, :, None].to(vectors.dtype)
            # A tokenizer without marks of its own gives an empty text no piece at all.
            pooled = (vectors * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
        outputs: Tensor = self.head(pooled)
        return outputs


class MakeLogits:
    """A function from the number of candidates to an encoder with that many logits."""

    def __init__(self, folder: Path, pooling: str, max_length: int, *, start: bool) -> None:
        self.folder, self.pooling, self.max_length, self.start = folder, pooling, max_length, start

    def __call__(self, n_candidates: int) -> nn.Module:
        """Make it; without `start` its parameters are random, to be replaced."""
        encoder = read_encoder(self.folder, with_weights=self.start)
        _check_length(encoder.config, self.max_length)
        width = int(encoder.config.hidden_size)
        return PooledEncoder(encoder, nn.Linear(width, n_candidates), self.pooling)


class Tokens:
    """Texts as word pieces: a list of n texts -> tensors (n, l) by name."""

    def __init__(self, folder: Path, max_length: int) -> None:
        self.folder, self.max_length = folder, max_length

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Cut at `max_length`, pad to the longest."""
        content = encoder_fingerprint(self.folder, "", with_weights=False)
        tokenizer = _read_tokenizer(self.folder, content)
        pieces = tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            padding=True,
            return_tensors="pt",
        )
        return {name: value for name, value in pieces.items() if isinstance(value, Tensor)}


class TextEncoder:
    """A frozen encoder and its way of reading rows: see `localma.gates._frozen.Encoder`."""

    def __init__(self, folder: Path, pooling: str, max_length: int) -> None:
        encoder = read_encoder(folder, with_weights=True)
        _check_length(encoder.config, max_length)
        self.network = PooledEncoder(encoder, nn.Identity(), pooling)
        self.tokens = Tokens(folder, max_length)

    def digests(self, X: list[str]) -> list[bytes]:
        """Digest of each text."""
        return [blake2b(_bytes(text), digest_size=16).digest() for text in X]

    def length(self, X: list[str], row: int) -> int:
        """Characters, which word pieces follow."""
        return len(X[row])

    def batch(self, X: list[str], rows: Sequence[int]) -> dict[str, Tensor]:
        """Word pieces of some texts."""
        return self.tokens([X[row] for row in rows])


def find_folder(encoder: str | PathLike[str]) -> Path:
    """Folder of an encoder, by its path or its name on the hub, which is asked once."""
    if isinstance(encoder, PathLike) or Path(encoder).is_dir():
        return model_folder(encoder)
    return _from_hub(encoder)


@lru_cache(maxsize=16)
def _from_hub(name: str) -> Path:
    return model_folder(name)


def encoder_fingerprint(folder: Path, settings: str, *, with_weights: bool) -> str:
    """Digest of the files that make an encoder, and of how it is used."""
    total = sha256(settings.encode())
    for pattern in (*SETTINGS, *(WEIGHTS if with_weights else ())):
        for file in sorted(folder.glob(pattern)):
            total.update(f"{file.name} {fingerprint(file)}\n".encode())
    return total.hexdigest()


def read_encoder(folder: Path, *, with_weights: bool) -> Any:
    """The encoder of a folder, in single precision; without weights, a random one of its kind."""
    transformers = import_transformers()
    with _clearly(folder), quiet(transformers):
        if with_weights:
            encoder, news = transformers.AutoModel.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
            # The pooler of some encoders serves another task, and is not used here.
            missing = sorted(name for name in news["missing_keys"] if "pooler" not in name)
            if missing:
                raise ValueError(f"the weights lack {', '.join(missing[:3])}")
        else:
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            encoder = transformers.AutoModel.from_config(config, trust_remote_code=False)
    return encoder.float()


@lru_cache(maxsize=4)
def _read_tokenizer(folder: Path, content: str) -> Any:
    # The content is in the key only: a folder that has changed is read again.
    transformers = import_transformers()
    with _clearly(folder):
        return transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )


@contextmanager
def _clearly(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # transformers raises whatever it meets, by any name
        raise InvalidInputError(
            f"The folder {str(folder)!r} cannot be read as an encoder of transformers "
            f"({type(error).__name__}: {' '.join(str(error).split())[:300]}). It must hold "
            "config.json, the weights and the tokenizer, as save_pretrained writes them."
        ) from error


def _check_length(config: Any, max_length: int) -> None:
    limit = getattr(config, "max_position_embeddings", None)
    if limit is not None and max_length > limit:
        raise InvalidInputError(
            f"max_length of TextGate must be at most what the encoder can read, {limit} word "
            f"pieces; received {max_length}."
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")
