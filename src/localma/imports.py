"""Functions by their import name, "package.module:name"."""

from __future__ import annotations

import sys
from functools import reduce
from importlib import import_module
from typing import Any

from localma.errors import InvalidInputError


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
        return reduce(getattr, attribute.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"{name!r} cannot be imported here ({error}); install the package that holds it, or "
            "pass the candidate itself by name."
        ) from error
