"""Gates in JSON: their class and parameters, without code; and back, checked."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from localma.errors import FileFormatError, InvalidInputError, UntrustedFileError
from localma.gates.base import Gate
from localma.imports import import_name, import_object
from localma.storage.array_file import shown
from localma.storage.fingerprints import beside, found_beside

Recipe = dict[str, Any]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Restoring:
    """How a gate is restored.

    classes : the gates that a recipe may name; trust : whether paths and import names are
    followed; folder : where relative paths start; gate : what the caller passed, the module of a
    gate or the whole gate as it was before its fit; None if nothing.
    """

    classes: Mapping[str, type[Gate]]
    trust: bool
    folder: Path
    gate: Any = None


# Writing.


def describe_gate(gate: Gate, classes: Mapping[str, type[Gate]], folder: Path) -> Recipe:
    """Class and parameters of a gate; paths are relative to the folder."""
    kind = type(gate)
    known = classes.get(kind.__name__) is kind
    if not known and import_name(kind) is None:
        raise InvalidInputError(
            f"A gate must be importable to be saved, and {kind.__qualname__} is not. Define its "
            "class in a module, outside of functions."
        )

    def saved(name: str, value: Any) -> Any:
        if name in gate.unsaved_parameters:
            return None
        if name in gate.path_parameters and isinstance(value, str) and os.path.exists(value):
            value = Path(value)
        return _to_json(value, classes, folder)

    parameters = gate.get_params(deep=False).items()
    return {
        "kind": kind.__name__ if known else import_name(kind),
        "known": known,
        "parameters": {name: saved(name, value) for name, value in parameters},
    }


def _to_json(value: Any, classes: Mapping[str, type[Gate]], folder: Path) -> Any:
    """A parameter in JSON, which has no infinity, no tuples, no paths and no gates."""
    if isinstance(value, Gate):
        return {"$gate": describe_gate(value, classes, folder)}
    if isinstance(value, tuple | list):
        return {"$" + type(value).__name__: [_to_json(item, classes, folder) for item in value]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        path = beside(os.path.abspath(value), folder)
        # An absolute path, on another drive, would be of no use on another machine.
        return {"$left_out": "a path"} if os.path.isabs(path) else {"$path": path}
    name = import_name(value) if callable(value) else None
    if name is not None:
        return {"$import": name}
    # Needed to fit again, not to predict.
    return {"$left_out": repr(value)[:200]}


# Reading.


def restore_gate(recipe: Recipe, arrays: Arrays, how: Restoring) -> Gate:
    """Make a gate from its recipe, or take the one that the caller passed, and its arrays."""
    _check_form(recipe)
    whole = isinstance(how.gate, Gate)
    if whole and type(how.gate).__name__ != recipe["kind"].rpartition(":")[2]:
        raise InvalidInputError(
            f"The gate of this file is a {shown(recipe['kind'])}; gate= is a "
            f"{type(how.gate).__name__}. Pass the gate with which the model was made."
        )
    gate: Gate = clone(how.gate) if whole else _made(recipe, how)
    try:
        return gate.restore(arrays)
    except KeyError as error:
        raise FileFormatError(f"The array 'gate.{error.args[0]}' is missing.") from error


def _check_form(recipe: Any) -> None:
    types = {"kind": str, "known": bool, "parameters": dict}
    if (
        not isinstance(recipe, dict)
        or set(recipe) != set(types)
        or not all(isinstance(recipe[name], kind) for name, kind in types.items())
    ):
        raise FileFormatError(
            f"The gate of a file has a kind, known and parameters; received {shown(recipe)}."
        )


def _made(recipe: Any, how: Restoring) -> Gate:
    _check_form(recipe)
    kind, saved = recipe["kind"], recipe["parameters"]
    if recipe["known"] and kind not in how.classes:
        raise FileFormatError(f"Unknown gate {shown(kind)}; known: {sorted(how.classes)}.")
    gate_class: Any = how.classes[kind] if recipe["known"] else _imported(kind, how)
    parameters = {name: _parameter(gate_class, name, value, how) for name, value in saved.items()}
    try:
        gate: Gate = gate_class(**parameters)
    except TypeError as error:
        raise FileFormatError(
            f"The parameters of the gate {shown(kind)} do not fit: {str(error)[:300]}."
        ) from error
    try:
        gate._check_parameters()
    except InvalidInputError as error:
        raise FileFormatError(f"The gate of this file cannot be made: {error}") from error
    return gate


def _parameter(gate_class: Any, name: str, value: Any, how: Restoring) -> Any:
    """One parameter of a gate, or an error that says why the file alone cannot give it."""
    if name in gate_class.unsaved_parameters:
        if value is not None:
            raise FileFormatError(
                f"The parameter {name!r} of {gate_class.__name__} is never saved; received "
                f"{shown(value)}."
            )
        return None
    if name == "module" and name in gate_class.code_parameters and how.gate is not None:
        return how.gate
    tag = next(iter(value), None) if isinstance(value, dict) else None
    if tag == "$left_out" and name in (*gate_class.code_parameters, *gate_class.path_parameters):
        way = "module" if name == "module" else f"{gate_class.__name__}(..., {name}=...)"
        raise InvalidInputError(
            f"The {name} of this file's {gate_class.__name__} is not saved.",
            python_hint=f"Pass it again: load(path, gate={way}).",
        )
    if name in gate_class.path_parameters and value is not None:
        what = f"{name}={shown(value if tag is None else value[tag])}"
        _ask_for_trust(f"{gate_class.__name__} of this file opens {what}", how)
        return _path(gate_class, name, value, how)
    return _from_json(value, how)


def _path(gate_class: Any, name: str, value: Any, how: Restoring) -> str:
    """Where a file or folder is that a gate needs; the name of an encoder stays as it is."""
    relative = value.get("$path") if isinstance(value, dict) else None
    if isinstance(value, str):
        return value
    if not isinstance(relative, str):
        raise FileFormatError(f"The parameter {name!r} has an unknown form: {shown(value)}.")
    try:
        return found_beside(relative, how.folder)
    except InvalidInputError:
        raise InvalidInputError(
            f"The {name} of this file's {gate_class.__name__} is not at {shown(relative)}, seen "
            "from the folder of the file. Put it there.",
            python_hint=f"Or pass load(path, gate={gate_class.__name__}(..., {name}=...)).",
        ) from None


def _from_json(value: Any, how: Restoring) -> Any:
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()), ("", None))
    if len(value) != 1 or kind not in _TAGS:
        raise FileFormatError(f"A parameter of the gate has an unknown form: {shown(value)}.")
    if kind == "$gate":
        return _made(content, how)
    if kind == "$import":
        return _imported(content, how)
    if kind == "$path":
        _ask_for_trust(f"The gate of this file opens {shown(content)}", how)
        return found_beside(str(content), how.folder)
    if kind == "$left_out":
        return None
    if kind == "$float":
        return _infinity(content)
    if not isinstance(content, list):
        raise FileFormatError(f"A parameter of the gate has an unknown form: {shown(value)}.")
    items = [_from_json(item, how) for item in content]
    return tuple(items) if kind == "$tuple" else items


_TAGS = ("$gate", "$tuple", "$list", "$float", "$path", "$import", "$left_out")


def _infinity(content: Any) -> float:
    if content not in ("inf", "-inf", "nan"):
        raise FileFormatError(f"A parameter of the gate is no number: {shown(content)}.")
    return float(content)


def _imported(name: Any, how: Restoring) -> Any:
    _ask_for_trust(
        f"The gate of this file is made by importing {shown(name)}, which may run any code", how
    )
    return import_object(str(name))


def _ask_for_trust(reason: str, how: Restoring) -> None:
    if not how.trust:
        raise UntrustedFileError(
            f"{reason}.",
            python_hint="Pass trust=True if you trust the file, or give the gate to "
            "load(path, gate=...).",
        )
