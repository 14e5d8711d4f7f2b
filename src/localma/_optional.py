"""Optional packages are imported where they are used, through this one function."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

from localma.errors import MissingDependencyError


def optional(module: str, *, extra: str | None) -> ModuleType:
    """Import an optional package, or say which extra, or which package, to install.

    >>> optional("json", extra=None).dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A missing module inside an installed package is that package's fault: let it show.
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        package = module.split(".")[0]
        wanted = package if extra is None else f"'localma[{extra}]'"
        raise MissingDependencyError(
            f"This needs the package {package!r}, which is not installed; "
            f"install it with: pip install {wanted}"
        ) from error


def _one_thread_for_torch() -> None:
    """In a forked process PyTorch would wait for ever for threads that only its parent has."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_thread_for_torch)
