"""Small networks with random weights, and numbers written as images and as texts."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

WORDS = 9
LEVELS = 12


def real_data(*names):
    """A file or folder of the real data, or None where it is not on this machine."""
    folder = os.environ.get("LOCALMA_DATA") or Path(__file__).parents[2] / "shared" / "data"
    path = Path(folder).joinpath(*names)
    return path if path.exists() else None


def tiny_body():
    """A module from images to 16 features, the same at every call."""
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((6, 1)),
            nn.Flatten(),
            nn.Linear(48, 16),
            nn.ReLU(),
        )


def as_images(X):
    """Each number as a bright or dark stripe: (n, p) -> (n, 4 p, 6, 3), between 0 and 1."""
    light = 0.5 + 0.5 * np.tanh(np.asarray(X) / 2)
    stripes = np.repeat(light, 4, axis=1)[:, :, None, None]
    return np.tile(stripes, (1, 1, 6, 3))


def as_texts(X):
    """Each number as repetitions of a word of its column: (n, p) -> n texts."""
    counts = np.round(LEVELS * (0.5 + 0.5 * np.tanh(np.asarray(X) / 2))).astype(int)
    return [" ".join(f"w{j} " * count for j, count in enumerate(row)) for row in counts]


def write_encoder(folder, seed=0, **settings):
    """Write a BERT of one layer with random weights, and a tokenizer of a few words."""
    import torch

    from localma.pretrained import import_transformers, quiet

    transformers = import_transformers()
    folder = Path(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{j}" for j in range(WORDS))]
    words += ["good", "bad", "day"]
    config = {
        "vocab_size": len(words),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 160,
        "initializer_range": 0.3,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    with torch.random.fork_rng(), quiet(transformers):
        torch.manual_seed(seed)
        bert = transformers.BertModel(transformers.BertConfig(**config | settings))
        bert.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    return folder


@cache
def tiny_encoder():
    """Folder of a small encoder, which goes with the process."""
    folder = tempfile.mkdtemp(prefix="localma-encoder-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_encoder(folder)
