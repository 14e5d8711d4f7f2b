"""The package transformers: imported beside any torchvision, kept quiet, its models found.

transformers imports torchvision with every model, text models too, wherever it is installed. A
torchvision that was built for another PyTorch fails to import and would take all models with it,
so transformers is then told that there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any

from localma._optional import optional
from localma._torchvision import torchvision_failure
from localma.errors import InvalidInputError

MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
"""What is fetched from the hub; weights in other formats are pickled."""


def import_transformers() -> ModuleType:
    """Import transformers so that its models load, with a torchvision that works or without."""
    transformers = optional("transformers", extra="text")
    known = transformers.utils.import_utils.is_torchvision_available
    if known() and torchvision_failure() is not None:
        known.cache_clear()
        with _hidden("torchvision"):
            known()  # and the answer is remembered
    return transformers


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Let a package that is not imported look as if it were not installed."""
    modules: dict[str, Any] = sys.modules
    modules[package] = None
    try:
        yield
    finally:
        del modules[package]


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Leave out the bar and the report that reading weights would print."""
    logging = transformers.utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def model_folder(name: str | PathLike[str]) -> Path:
    """Folder of a model: the one that is named, or what the hub, or its cache here, has."""
    folder, text = Path(name), fspath(name)
    if folder.is_dir():
        return folder
    if isinstance(name, PathLike) or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise InvalidInputError(
            f"There is no folder {text!r}. A folder of transformers holds config.json, the weights "
            "and the tokenizer, as save_pretrained writes them; relative paths are seen from the "
            "working directory."
        )
    hub = optional("huggingface_hub", extra="text")
    try:
        return Path(hub.snapshot_download(text, allow_patterns=list(MODEL_FILES)))
    except Exception as error:  # errors of the hub, of HTTP libraries and of the network alike
        raise InvalidInputError(
            f"{text!r} is no folder here, and a model of that name cannot be had from the Hugging "
            f"Face hub ({type(error).__name__}: {str(error).splitlines()[0][:200]}). Check the "
            "name and the connection, or pass the folder of a model that was downloaded."
        ) from error
