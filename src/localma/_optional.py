"""Optional packages are imported where they are used, through this one function."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from localma.errors import MissingDependencyError


def optional(module: str, *, extra: str) -> ModuleType:
    """Import an optional package, or say which extra brings it.

    >>> optional("json", extra="none").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A missing module inside an installed package is that package's fault: let it show.
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingDependencyError(
            f"This needs the package {module.split('.')[0]!r}, which is not installed; "
            f"install it with: pip install 'localma[{extra}]'"
        ) from error
