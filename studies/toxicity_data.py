"""Toxic texts in many languages: tables, fine-tuned candidates, and features of a frozen encoder.

Texts come from the folder of real data, or from their public source on the Hugging Face hub.
Computed arrays are stored in the cache of `studies.kept`: probabilities by each fine-tuned
candidate, with all settings of its training, and features five hundred texts at a time. A training
that was killed continues from its last epoch.

Duplicate texts of a language are dropped before anything is split (German and English have most of
them). Case and spaces are ignored when texts are compared.

A candidate is fine-tuned with the classes of the gates. `TextGate` over two constant candidates,
one per class, *is* a classifier, ``p(x) = softmax(log share + d(x))``, where d is the encoder and
a linear layer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import LocalMAClassifier
from localma._optional import optional
from localma.errors import InvalidInputError
from localma.gates import TextGate
from localma.storage.fingerprints import fingerprint
from studies.kept import Kept, checkpoints, digest_of
from studies.safety_data import data_folder, read_columns

Float32 = NDArray[np.float32]
Rows = NDArray[np.intp]

PUBLIC_SOURCE = "textdetox/multilingual_toxicity_dataset"
PAPER_ENCODER = "huawei-noah/TinyBERT_General_4L_312D"
MINORITY = ("hi", "he")
FILES = ("textdetox_9_languages.parquet", "hebrew_olah.parquet", "french_mlma.parquet")
LANGUAGE_ROWS = 5000
"""Number of texts in most languages, before duplicates are dropped."""
CHUNK = 500
FROZEN_LENGTH = 128
"""Number of word pieces of a text that a frozen encoder reads."""


@dataclass(frozen=True)
class Tuning:
    """Settings of fine-tuning, as in `TextGate`."""

    max_length: int = 64
    n_epochs: int = 2
    batch_size: int = 32
    learning_rate: float = 5e-5


@dataclass(frozen=True)
class Size:
    """Maximum number of rows per language, and the training of candidates."""

    rows: int | None = None
    tuning: Tuning = Tuning()

    def tuning_on(self, n: int) -> Tuning:
        """Training on n texts, with at least the epochs and the texts of a candidate.

        >>> [Size().tuning_on(n).n_epochs for n in (9000, 5000, 1000)]
        [2, 2, 10]
        """
        seen = self.tuning.n_epochs * (self.rows or LANGUAGE_ROWS)
        return replace(self.tuning, n_epochs=max(self.tuning.n_epochs, seen // n))


@dataclass(frozen=True)
class Design:
    """The languages with a candidate, and the share of their rows in the target."""

    companies: tuple[str, ...]
    held_out: float


DESIGNS = {
    "paper": Design(("en", "zh", "uk", "ru"), 0.0),
    "French": Design(("en", "zh", "uk", "ru", "fr"), 0.0),
    "pooled": Design(("en", "es", "de", "ru"), 0.4),
}


@dataclass(frozen=True)
class Corpus:
    """Texts of one language, and whether each is toxic: n texts, (n,) 0 or 1."""

    texts: tuple[str, ...]
    toxic: NDArray[np.intp]

    def part(self, rows: Rows) -> Corpus:
        """Select some of the texts."""
        return Corpus(tuple(self.texts[row] for row in rows), self.toxic[rows])


@dataclass(frozen=True)
class Target:
    """The data from which weights are learnt and judged.

    texts : N texts; toxic : (N,); languages : (N,) codes; P : (N, M, 2) probabilities that a text
    is not, and is, toxic; features : (N, d) of the frozen encoder.
    """

    texts: tuple[str, ...]
    toxic: NDArray[np.intp]
    languages: NDArray[np.str_]
    P: NDArray[np.float64]
    features: Float32


# --- texts ---------------------------------------------------------------------------------------


@cache
def read_language(code: str, rows: int | None = None) -> Corpus:
    """Texts of a language without duplicates, in a fixed random order."""
    texts, toxic = _read(code)
    first = first_of_each(texts)
    order = np.random.default_rng(0).permutation(first)[:rows]
    return Corpus(tuple(texts[row] for row in order), toxic[order].astype(np.intp))


def first_of_each(texts: list[str]) -> Rows:
    """Rows of the texts that do not repeat an earlier one, ignoring case and spaces.

    >>> first_of_each(["Good day", "bad day", "good  day "]).tolist()
    [0, 1]
    """
    seen: dict[str, int] = {}
    for row, text in enumerate(texts):
        seen.setdefault(" ".join(text.casefold().split()), row)
    return np.array(list(seen.values()), dtype=np.intp)


def _read(code: str) -> tuple[list[str], NDArray[Any]]:
    folder = data_folder() / "toxicity"
    for name in FILES:
        if (folder / name).exists():
            columns = read_columns(folder / name)
            mine = np.asarray(columns["lang"], dtype=str) == code
            if mine.any():
                return [str(text) for text in columns["text"][mine]], columns["toxic"][mine]
    return _from_hub(code)


def _from_hub(code: str) -> tuple[list[str], NDArray[Any]]:
    datasets = optional("datasets", extra="text")
    try:
        found = datasets.load_dataset(PUBLIC_SOURCE, split=code)
    except Exception as error:  # the client of the hub raises errors of many classes
        raise InvalidInputError(
            f"Texts in {code!r} must be in the folder 'toxicity' of the real data, which "
            f"LOCALMA_DATA names, or on the hub as {PUBLIC_SOURCE!r}, which did not answer "
            f"({type(error).__name__}). Set LOCALMA_DATA to a folder with them."
        ) from error
    return list(found["text"]), np.asarray(found["toxic"])


# --- fine-tuning ---------------------------------------------------------------------------------


def encoder() -> str:
    """Folder of the encoder in the real data, or the name of the paper's encoder."""
    folder = data_folder() / "text_encoder"
    return str(folder) if folder.exists() else PAPER_ENCODER


def text_gate(tuning: Tuning, checkpoint: Path) -> TextGate:
    """Build the untrained gate that is fine-tuned."""
    return TextGate(
        encoder(),
        **asdict(tuning),
        shrinkage=0.0,
        checkpoint=checkpoint,
        device="cpu",
        progress=False,
    )


def sure_of_each_class(n: int) -> NDArray[np.float64]:
    """Two constant candidates, one per class, with probability one: (n, 2, 2)."""
    return np.tile(np.eye(2), (n, 1, 1))


def candidate_probabilities(
    language: str, training: Corpus, target: tuple[str, ...], tuning: Tuning
) -> NDArray[np.float64]:
    """Probabilities of the target by a candidate fine-tuned on one language: (n, 2)."""
    kept = Kept(
        f"toxicity/candidate-{language}",
        {
            "encoder": encoder_content(),
            "tuning": asdict(tuning),
            "texts": digest_of(list(training.texts)),
            "toxic": digest_of([str(label) for label in training.toxic]),
        },
    )

    def make() -> NDArray[np.float64]:
        with checkpoints(f"toxicity/checkpoints/{kept.folder.name}") as folder:
            model = LocalMAClassifier(gate=text_gate(tuning, folder), random_state=0)
            sure = sure_of_each_class(len(training.texts))
            model.fit(list(training.texts), training.toxic, predictions=sure)
            return model.predict_proba(list(target), predictions=sure_of_each_class(len(target)))

    return kept.array(f"probabilities-{digest_of(list(target))[:16]}", make)


def frozen_features(texts: tuple[str, ...]) -> Float32:
    """Means of the word vectors of the unchanged encoder: (n, d)."""
    settings = {"encoder": encoder_content(), "max_length": FROZEN_LENGTH}
    kept = Kept("toxicity/features", settings | {"texts": digest_of(list(texts))})
    return np.concatenate(
        [
            kept.array(
                f"{first // CHUNK:03d}",
                lambda first=first: _encode(texts[first : first + CHUNK]),
            )
            for first in range(0, len(texts), CHUNK)
        ]
    )


def _encode(texts: tuple[str, ...]) -> Float32:
    from localma.gates.deep.encoders import TextEncoder
    from localma.gates.deep.features import FrozenFeatures
    from localma.pretrained import model_folder

    frozen = TextEncoder(model_folder(encoder()), "mean", FROZEN_LENGTH)
    return FrozenFeatures(frozen, None, 32, "cpu")(list(texts))


def encoder_content() -> str:
    """Digest of the encoder, or its name if it comes from the hub."""
    path = Path(encoder())
    return fingerprint(path) if path.is_dir() else encoder()


# --- the target ----------------------------------------------------------------------------------


def parts_of(design: Design, language: str, rows: int | None) -> tuple[Corpus, Corpus]:
    """Texts on which the candidate of a language is trained, and those held out for the target."""
    corpus = read_language(language, rows)
    held_out = round(design.held_out * len(corpus.texts))
    order = np.arange(len(corpus.texts))
    return corpus.part(order[held_out:]), corpus.part(order[:held_out])


def pools_of(design: Design, size: Size) -> dict[str, Corpus]:
    """The target by language: held-out texts of the candidates' languages, and minorities."""
    held_out = {code: parts_of(design, code, size.rows)[1] for code in design.companies}
    minorities = {code: read_language(code, size.rows) for code in MINORITY}
    return {code: pool for code, pool in (held_out | minorities).items() if pool.texts}


def said_by(design: Design, code: str, size: Size, target: tuple[str, ...]) -> NDArray[np.float64]:
    """Probabilities of the target by the candidate of a language: (N, 2)."""
    training = parts_of(design, code, size.rows)[0]
    return candidate_probabilities(code, training, target, size.tuning)


@cache
def target_of(design_name: str, size: Size) -> Target:
    """Data that the replicates of a design share; computed first if not stored."""
    design = DESIGNS[design_name]
    pools = pools_of(design, size)
    texts = _texts_of(pools)
    return Target(
        texts,
        np.concatenate([pool.toxic for pool in pools.values()]),
        np.repeat(list(pools), [len(pool.texts) for pool in pools.values()]),
        np.stack([said_by(design, code, size, texts) for code in design.companies], axis=1),
        frozen_features(texts),
    )


def _texts_of(pools: dict[str, Corpus]) -> tuple[str, ...]:
    return tuple(text for pool in pools.values() for text in pool.texts)


def prepare(size: Size) -> Iterator[str]:
    """Compute the data that replicates need, and report the time after each part."""
    for name, design in DESIGNS.items():
        pools = pools_of(design, size)
        texts = _texts_of(pools)
        counts = ", ".join(f"{len(pool.texts)} {code}" for code, pool in pools.items())
        yield f"{name}: the target has {counts}"
        start = time.monotonic()
        for code in design.companies:
            said_by(design, code, size, texts)
            yield f"{name}: candidate {code}, {time.monotonic() - start:.0f} s elapsed"
        frozen_features(texts)
        yield f"{name}: features of {len(texts)} texts, {time.monotonic() - start:.0f} s"
