"""Functions by import name, "package.module:name"."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from localma.errors import InvalidInputError

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)
"""Folder with modules that are not installed; None if there is none."""


def import_name(function: Callable[..., Any] | None) -> str | None:
    """Return the name by which a function can be imported; None if it has none.

    >>> import json
    >>> import_name(json.dumps), import_name(lambda X: X)
    ('json:dumps', None)
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    try:
        imported: Any = reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None
    return f"{module}:{name}" if imported is function else None


def import_object(name: str) -> Any:
    """Import an object by the name from `import_name`. Runs its module: trusted names only.

    >>> import_object("json:dumps")([1])
    '[1]'
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidInputError(
            f"An import name has the form 'package.module:name'; received {name!r}."
        )
    try:
        return reduce(getattr, attribute.split("."), _imported(module))
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"{name!r} cannot be imported here ({error}); install the package that holds it, or "
            "pass the candidate itself by name."
        ) from error


@contextmanager
def modules_beside(folder: Path) -> Iterator[None]:
    """Let `import_object` search a folder that the user trusts.

    Installed modules come first, so a file such as numpy.py in the folder replaces nothing.
    """
    token = _folder.set(folder.absolute())
    try:
        yield
    finally:
        _folder.reset(token)


def _imported(module: str) -> ModuleType:
    folder, package = _folder.get(), module.partition(".")[0]
    if folder is None or package in sys.modules or find_spec(package) is not None:
        return import_module(module)
    # For this import only: later imports do not search the folder.
    sys.path.append(str(folder))
    try:
        return import_module(module)
    finally:
        sys.path.remove(str(folder))
