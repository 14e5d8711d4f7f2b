"""Functions by their import name, "package.module:name"."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
"""Where modules that are not installed are looked for; None for nowhere."""


def import_name(function: Any) -> str | None:
    """Name under which a function can be imported anywhere; None if there is none.

    >>> import json
    >>> import_name(json.dumps), import_name(lambda X: X)
    ('json:dumps', None)
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    try:
        found = reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return None
    return f"{module}:{name}" if found is function else None


def import_object(name: str) -> Any:
    """Import what `import_name` named. Runs the code of that module: trusted names only.

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
    """Let `import_object` look for modules in a folder, once the user trusts it.

    What is installed goes first, so that a file such as numpy.py in the folder replaces nothing.
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
    # Only for as long as this module needs: whatever is imported later is not looked for there.
    sys.path.append(str(folder))
    try:
        return import_module(module)
    finally:
        sys.path.remove(str(folder))
