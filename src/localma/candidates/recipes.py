"""Recipes: how a saved model rebuilds its candidates."""

from __future__ import annotations

import os
from abc import ABC
from collections.abc import Callable
from dataclasses import Field, dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NewType,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from localma._types import Json
from localma.candidates.outputs import Label
from localma.errors import FileFormatError, InvalidInputError
from localma.imports import import_name, import_object
from localma.storage.array_file import shown
from localma.storage.fingerprints import beside, found_beside
from localma.tables.frames import ColumnKey

if TYPE_CHECKING:
    from localma.candidates.base import Candidate

ImportName = NewType("ImportName", str)
"""A function, by its import name "package.module:name"."""
FilePath = NewType("FilePath", str)
"""A file or folder; in a saved model, relative to the folder of that model."""
Address = NewType("Address", str)
"""A URL."""
PathLike = str | os.PathLike[str]

KINDS = {
    "column": "localma.candidates.column:Column",
    "function": "localma.candidates.function:FunctionCandidate",
    "http": "localma.candidates.http:HttpCandidate",
    "onnx": "localma.candidates.files.onnx:OnnxCandidate",
    "skops": "localma.candidates.files.skops:SkopsCandidate",
    "timm": "localma.candidates.files.timm:TimmCandidate",
    "torch": "localma.candidates.files.torch:TorchCandidate",
    "transformers": "localma.candidates.files.transformers:TransformersCandidate",
}
"""Import name of each class of candidates that has a recipe. A class is imported at first use."""


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """How to rebuild a candidate, in values that JSON can store.

    A subclass states its fields with their types. A function is stored as an `ImportName`, a path
    as a `FilePath` and a URL as an `Address`.

    Examples
    --------
    >>> recipe = Recipe.from_json({"kind": "column", "columns": ["guess"], "classes": None,
    ...                            "cost": 1.0})
    >>> recipe.needs_trust, recipe.make()
    (False, Column('guess'))
    """

    kind: ClassVar[str]
    needs_trust: ClassVar[bool] = True
    """Whether `make` runs code, or opens files or addresses, that the recipe names."""

    def make(self) -> Candidate:
        """Rebuild the candidate. Imports functions and opens files: for trusted recipes only.

        Returns
        -------
        Candidate
            The candidate.
        """
        return import_object(KINDS[self.kind])(**self.options())

    @classmethod
    def of(cls, candidate: Candidate, **values: Json) -> Self | None:
        """Describe a candidate.

        Parameters
        ----------
        candidate : Candidate
            The candidate.
        **values : JSON values
            Fields that are not attributes of the candidate.

        Returns
        -------
        Recipe or None
            None if the candidate has a function that cannot be imported.
        """
        for field in fields(cls):
            if field.name in values:
                continue
            value = getattr(candidate, field.name)
            if callable(value):
                value = import_name(value)
                if value is None:
                    return None
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            elif isinstance(value, tuple):
                value = list(value)
            values[field.name] = value
        return cls(**values)

    def to_json(self) -> dict[str, Json]:
        """Return the kind and all fields as a JSON object.

        Returns
        -------
        dict
            The values by key.
        """
        values = {_key(field): getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind, **values}

    @staticmethod
    def from_json(document: Json) -> Recipe:
        """Read a JSON object, and check its kind, its fields and their types. Runs no code.

        Parameters
        ----------
        document : dict
            An object from `to_json`.

        Returns
        -------
        Recipe
            The recipe.
        """
        recipe_type = recipe_type_of(document)
        assert isinstance(document, dict)
        kind, types = recipe_type.kind, json_types(recipe_type)
        if set(document) != {"kind", *types}:
            raise FileFormatError(
                f"The recipe of a {kind} must have the fields {sorted(types)}; received "
                f"{shown(sorted(set(document) - {'kind'}))}."
            )
        for key, allowed in types.items():
            value = document[key]
            # In Python, bool is a subclass of int.
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                names = " or ".join(t.__name__ for t in allowed).replace("NoneType", "null")
                raise FileFormatError(
                    f"The field {key!r} in the recipe of a {kind} must be {names}; received "
                    f"{shown(value)}."
                )
        return recipe_type(**{field.name: document[_key(field)] for field in fields(recipe_type)})

    def options(self) -> dict[str, Any]:
        """Return all fields as keyword arguments. Imports the functions that they name.

        Returns
        -------
        dict
            Arguments of the class of the candidate.
        """
        functions = {name: import_object(value) for name, value in self._marked(ImportName).items()}
        return {field.name: getattr(self, field.name) for field in fields(self)} | functions

    def sources(self) -> list[str]:
        """Return the import names, paths and addresses that `make` would follow.

        Returns
        -------
        list of str
            All of them, in the order of the fields.
        """
        return list(self._marked(ImportName, FilePath, Address).values())

    def with_paths(self, change: Callable[[str, Path], str], folder: PathLike) -> Self:
        """Return the recipe with other paths.

        Parameters
        ----------
        change : callable
            A function from a path and `folder` to the new path.
        folder : str or path
            The folder of the saved model.

        Returns
        -------
        Recipe
            A copy, in which each path is replaced.
        """
        paths = self._marked(FilePath)
        return replace(self, **{name: change(path, Path(folder)) for name, path in paths.items()})

    def _marked(self, *marks: type[str]) -> dict[str, str]:
        """Return the strings in fields of these types, by field."""
        types = _alternatives(type(self))
        values = {name: getattr(self, name) for name in types if set(marks) & set(types[name])}
        return {name: value for name, value in values.items() if isinstance(value, str)}


@dataclass(frozen=True, kw_only=True)
class CommonRecipe(Recipe):
    """The options that most kinds of candidates have."""

    inputs: list[ColumnKey] | ImportName | None
    classes: list[Label] | None
    cost: float
    batch_size: int | str | None


@dataclass(frozen=True, kw_only=True)
class LogitsRecipe(CommonRecipe):
    """The options of networks."""

    activation: str | None
    temperature: float


def recipe_type_of(document: Json) -> type[Recipe]:
    """Return the class of a recipe in JSON, by its kind. Runs no code of the recipe."""
    kind = isinstance(document, dict) and document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileFormatError(
            f"Unknown kind of candidate {shown(kind or None)}; known: {sorted(KINDS)}."
        )
    return import_object(KINDS[kind])._recipe_type


def recipe_beside(candidate: Candidate, folder: PathLike) -> Recipe | None:
    """Describe a candidate, with paths relative to the folder of the saved model.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    folder : str or path
        The folder of the saved model.

    Returns
    -------
    Recipe or None
        None if the candidate exists only in memory.

    Examples
    --------
    >>> from localma.candidates import Column
    >>> recipe_beside(Column("guess"), "models").to_json()["columns"]
    ['guess']
    """
    recipe = candidate.recipe()
    return recipe and recipe.with_paths(beside, folder)


def from_recipe(recipe: Recipe, folder: PathLike = ".") -> Candidate:
    """Rebuild a candidate. May run code: check `recipe.needs_trust` before.

    Parameters
    ----------
    recipe : Recipe
        A recipe from `Candidate.recipe`, `recipe_beside` or `Recipe.from_json`.
    folder : str or path, default="."
        The folder where relative paths start.

    Returns
    -------
    Candidate
        The candidate.

    Examples
    --------
    >>> from localma.candidates import Column
    >>> from_recipe(Column("guess").recipe())
    Column('guess')
    """
    try:
        return recipe.with_paths(found_beside, folder).make()
    except InvalidInputError as error:
        raise FileFormatError(
            f"The recipe {shown(recipe.to_json())} cannot be followed: {error}"
        ) from error


def json_types(recipe_type: type[Recipe]) -> dict[str, tuple[type, ...]]:
    """Types that each field has in JSON, by key, such as ``(list, str, NoneType)``."""
    types: dict[str, tuple[type, ...]] = {}
    for field in fields(recipe_type):
        hints = [get_origin(hint) or hint for hint in _alternatives(recipe_type)[field.name]]
        if float in hints:
            hints.insert(0, int)  # JSON has one type of numbers
        types[_key(field)] = tuple(getattr(hint, "__supertype__", hint) for hint in hints)
    return types


def _key(field: Field[object]) -> str:
    """Key of a field in JSON, which may be a word that Python reserves."""
    return str(field.metadata.get("key", field.name))


@cache  # reading annotations runs `eval`, which a loader must not do for each file
def _alternatives(recipe_type: type[Recipe]) -> dict[str, tuple[Any, ...]]:
    """Types that each field may have, such as ``(list[int], ImportName, NoneType)``."""
    hints = get_type_hints(recipe_type)
    return {
        field.name: get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
        for field in fields(recipe_type)
        for hint in [hints[field.name]]
    }
