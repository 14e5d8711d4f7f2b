"""torchvision and timm, imported beside a PyTorch that torchvision was not built for.

The registries' torchvision for Linux is built for a PyTorch with CUDA. Beside a PyTorch for CPUs
its compiled operators cannot be loaded, and its import fails since it describes two of them. timm
imports torchvision and uses none of these operators, so they are declared, without content.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: list[Any] = []
"""What was declared, which ends with the object that declared it."""


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
