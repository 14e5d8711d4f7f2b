"""Import of optional packages, when they are used."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

from localma.errors import MissingDependencyError


def optional(module: str, *, extra: str | None) -> ModuleType:
    """Import an optional package; if it is missing, name the extra or package to install.

    >>> optional("json", extra=None).dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or package != error.name.split(".")[0]:
            raise  # an installed package lacks a module of another one
        target = f"'localma[{extra}]'" if extra else package
        raise MissingDependencyError(
            f"This needs the package {package!r}, which is not installed; "
            f"install it with: pip install {target}"
        ) from error


def _one_thread_for_torch() -> None:
    """Use one thread in a forked process, which does not have the threads of its parent."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread_for_torch)
