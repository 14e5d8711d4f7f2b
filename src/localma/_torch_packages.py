"""timm and transformers, imported with a torchvision that was built for another PyTorch.

The registries' torchvision for Linux is built for a PyTorch with CUDA. With a PyTorch for CPUs
its compiled operators cannot be loaded, and its import fails since it describes two of them. timm
imports torchvision and uses none of these operators, so they are declared, without content.
transformers imports torchvision with every model, text models too, if it is installed. Its import
error would take all models with it, so transformers is then told that torchvision is not there.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any

from localma._optional import optional
from localma.errors import InvalidInputError

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: list[Any] = []
"""What was declared, which ends with the object that declared it."""
MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
"""What is fetched from the hub; weights in other formats are pickled."""


def torchvision_failure() -> str | None:
    """Why torchvision, which is installed, cannot be imported; None if it can, or is not there."""
    if "torchvision" in sys.modules or find_spec("torchvision") is None:
        return None
    try:
        import_module("torchvision")
    except Exception as error:  # a RuntimeError about a missing operator, or any other
        return f"{type(error).__name__}: {error}"
    return None


def import_timm() -> ModuleType:
    """Import timm, whichever PyTorch the torchvision beside it was built for."""
    failure = torchvision_failure()
    if failure is None:
        return import_module("timm")
    if "operator torchvision::" in failure:
        _declare_operators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what else cannot be loaded, such as codecs
        return import_module("timm")


def _declare_operators() -> None:
    """Declare the operators that torchvision describes at its import; calling one is an error."""
    if _declared:
        return
    library = import_module("torch").library.Library("torchvision", "DEF")
    for operator in OPERATORS:
        library.define(operator + SIGNATURE)
    _declared.append(library)


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
