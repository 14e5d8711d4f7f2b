"""Gates in JSON: class and parameters, without code, and back again."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from localma._types import AnyArray, Json
from localma.errors import FileFormatError, InvalidInputError, UntrustedFileError
from localma.gates.auto import ShrunkGate
from localma.gates.base import Gate
from localma.gates.constant import EqualGate, GlobalGate
from localma.gates.deep.image import ImageGate
from localma.gates.deep.text import TextGate
from localma.gates.deep.torch_ import TorchGate
from localma.gates.mlp import MLPGate
from localma.gates.reduced import ReducedGate
from localma.gates.tree import TreeGate
from localma.imports import import_name, import_object
from localma.storage.array_file import shown
from localma.storage.fingerprints import beside, found_beside

GATE_CLASSES: dict[str, type[Gate]] = {
    kind.__name__: kind
    for kind in (
        EqualGate,
        GlobalGate,
        ImageGate,
        MLPGate,
        ReducedGate,
        ShrunkGate,
        TextGate,
        TorchGate,
        TreeGate,
    )
}
"""The gates that a saved model may name."""

# Writing.


def describe_gate(gate: Gate, folder: Path) -> dict[str, Json]:
    """Class and parameters of a gate; paths are relative to the folder."""
    kind = type(gate)
    is_ours = GATE_CLASSES.get(kind.__name__) is kind
    name = kind.__name__ if is_ours else import_name(kind)
    if name is None:
        raise InvalidInputError(
            f"A gate must be importable to be saved, and {kind.__qualname__} is not. Define its "
            "class in a module, outside of functions."
        )
    parameters: dict[str, Json] = {}
    for parameter, value in gate.get_params(deep=False).items():
        if parameter in gate.unsaved_parameters:
            value = None
        elif parameter in gate.path_parameters and isinstance(value, str) and os.path.exists(value):
            value = Path(value)
        parameters[parameter] = _to_json(value, folder)
    return {"kind": name, "known": is_ours, "parameters": parameters}


def _to_json(value: Any, folder: Path) -> Json:
    """A parameter in JSON, which has no infinity, no tuples, no paths and no gates."""
    if isinstance(value, Gate):
        return {"$gate": describe_gate(value, folder)}
    if isinstance(value, tuple | list):
        return {"$" + type(value).__name__: [_to_json(item, folder) for item in value]}
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
    if callable(value) and (name := import_name(value)) is not None:
        return {"$import": name}
    # Needed to fit again, not to predict.
    return {"$left_out": repr(value)[:200]}


# Reading.


@dataclass(frozen=True)
class Restoring:
    """How a gate is restored.

    Parameters
    ----------
    trust : whether paths and import names are followed
    folder : where relative paths start
    gate : the module of a gate, or the whole gate before its fit, if the caller passed one
    """

    trust: bool
    folder: Path
    gate: Any = None

    def make(self, recipe: Json) -> Gate:
        """Make a gate, not yet fitted, from its class and parameters."""
        kind, is_ours, parameters = _checked(recipe)
        if isinstance(self.gate, Gate) and type(self.gate).__name__ == kind.rpartition(":")[2]:
            return clone(self.gate)  # the base of a reduced gate
        if is_ours and kind not in GATE_CLASSES:
            raise FileFormatError(f"Unknown gate {shown(kind)}; known: {sorted(GATE_CLASSES)}.")
        gate_class = GATE_CLASSES[kind] if is_ours else self._imported(kind)
        values = dict(gate_class.parameters_of_older_files) | {
            name: self._parameter(gate_class, name, value) for name, value in parameters.items()
        }
        try:
            gate: Gate = gate_class(**values)
        except TypeError as error:
            raise FileFormatError(
                f"The parameters of the gate {shown(kind)} do not fit: {str(error)[:300]}."
            ) from error
        try:
            gate._check_parameters()
        except InvalidInputError as error:
            raise FileFormatError(f"The gate of this file cannot be made: {error}") from error
        return gate

    def _parameter(self, gate_class: type[Gate], name: str, value: Json) -> Any:
        """One parameter of a gate, or an error that explains why the file cannot provide it."""
        kind, needs_code = gate_class.__name__, name in gate_class.code_parameters
        if name in gate_class.unsaved_parameters:
            if value is not None:
                raise FileFormatError(
                    f"The parameter {name!r} of {kind} is never saved; received {shown(value)}."
                )
            return None
        if name == "module" and needs_code and self.gate is not None:
            return self.gate
        is_path = name in gate_class.path_parameters
        if isinstance(value, dict) and "$left_out" in value and (needs_code or is_path):
            argument = "module" if name == "module" else f"{kind}(..., {name}=...)"
            raise InvalidInputError(
                f"The {name} of this file's {kind} is not saved.",
                python_hint=f"Pass it again: load(path, gate={argument}).",
            )
        if is_path and value is not None:
            return self._path(kind, name, value)
        return self._from_json(value)

    def _path(self, kind: str, name: str, value: Json) -> str:
        """Location of a file or folder that a gate needs; the name of an encoder stays as it is."""
        target = next(iter(value.values()), None) if isinstance(value, dict) else value
        self._ask_for_trust(f"{kind} of this file opens {name}={shown(target)}")
        if isinstance(value, str):
            return value
        if not isinstance(value, dict) or not isinstance(path := value.get("$path"), str):
            raise FileFormatError(f"The parameter {name!r} has an unknown form: {shown(value)}.")
        try:
            return found_beside(path, self.folder)
        except InvalidInputError:
            raise InvalidInputError(
                f"The {name} of this file's {kind} is not at {shown(path)}, relative to the folder "
                "of the file. Put it there.",
                python_hint=f"Or pass load(path, gate={kind}(..., {name}=...)).",
            ) from None

    def _from_json(self, value: Json) -> Any:
        if not isinstance(value, dict):
            return value
        tag, content = next(iter(value.items()), ("", None))
        if len(value) == 1:
            if tag == "$gate":
                return self.make(content)
            if tag == "$import":
                return self._imported(content)
            if tag == "$path":
                self._ask_for_trust(f"The gate of this file opens {shown(content)}")
                return found_beside(str(content), self.folder)
            if tag == "$left_out":
                return None
            if tag == "$float" and isinstance(content, str) and content in ("inf", "-inf", "nan"):
                return float(content)
            if tag in ("$tuple", "$list") and isinstance(content, list):
                items = [self._from_json(item) for item in content]
                return tuple(items) if tag == "$tuple" else items
        raise FileFormatError(f"A parameter of the gate has an unknown form: {shown(value)}.")

    def _imported(self, name: Json) -> Any:
        self._ask_for_trust(
            f"The gate of this file is made by importing {shown(name)}, which may run any code"
        )
        return import_object(str(name))

    def _ask_for_trust(self, reason: str) -> None:
        if not self.trust:
            raise UntrustedFileError(
                f"{reason}.",
                python_hint="Pass trust=True if you trust the file, or pass the gate: "
                "load(path, gate=...).",
            )


def restore_gate(recipe: Json, arrays: dict[str, AnyArray], how: Restoring) -> Gate:
    """Make a gate from its recipe, or take the one that the caller passed, and its arrays."""
    kind, *_ = _checked(recipe)
    if not isinstance(how.gate, Gate) or kind == ReducedGate.__name__:
        gate = how.make(recipe)
    elif type(how.gate).__name__ == kind.rpartition(":")[2]:
        gate = clone(how.gate)
    else:
        raise InvalidInputError(
            f"The gate of this file is a {shown(kind)}; gate= is a {type(how.gate).__name__}. Pass "
            "the gate with which the model was made."
        )
    try:
        return gate.restore(arrays)
    except KeyError as error:
        raise FileFormatError(f"The array 'gate.{error.args[0]}' is missing.") from error


def _checked(recipe: Json) -> tuple[str, bool, dict[str, Json]]:
    """Kind of the gate, whether it belongs to localma, and its parameters."""
    if isinstance(recipe, dict) and set(recipe) == {"kind", "known", "parameters"}:
        kind, is_ours, parameters = recipe["kind"], recipe["known"], recipe["parameters"]
        if isinstance(kind, str) and isinstance(is_ours, bool) and isinstance(parameters, dict):
            return kind, is_ours, parameters
    raise FileFormatError(
        f"The gate of a file has a kind, known and parameters; received {shown(recipe)}."
    )
