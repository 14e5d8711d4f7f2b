"""Text encoders of transformers: reading, tokenizing, pooling, fingerprints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path
from textwrap import shorten
from typing import Any

from torch import Tensor, nn

from localma.errors import InvalidInputError
from localma.pretrained import import_transformers, quiet
from localma.storage.fingerprints import fingerprint

SETTINGS = ("*.json", "*.txt", "*.model")
"""Files of the configuration and the tokenizer."""
WEIGHTS = "*.safetensors"
FROM_FOLDER = {"local_files_only": True, "trust_remote_code": False}


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
