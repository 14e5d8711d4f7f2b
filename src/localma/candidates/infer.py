"""From what the user has to a candidate: a model, or a recipe out of a saved file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from localma.candidates.base import BatchSize, Candidate, Inputs, Recipe
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.function import FunctionCandidate
from localma.candidates.outputs import Classes
from localma.errors import FileFormatError, InvalidInputError
from localma.imports import import_object
from localma.storage.array_file import shown
from localma.storage.fingerprints import beside, found_beside

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
"""Where the kinds are that have recipes: imported when one is asked for, and not before."""

SUFFIXES = {".onnx": "onnx", ".pt2": "torch", ".skops": "skops"}
"""The kinds that the name of a file tells."""

NO_CANDIDATES = {
    ".safetensors": "holds weights without the network they belong to: write "
    "TimmCandidate(architecture, {path!r}), or load them into a module and pass the module",
    **dict.fromkeys(
        (".pt", ".pth"),
        "may hold pickled code: load it yourself and pass the module, or save the module with "
        "torch.export as a .pt2 file",
    ),
    **dict.fromkeys(
        (".pkl", ".pickle", ".joblib"),
        "holds pickled code: load it yourself and pass the model, or save the model with skops as "
        "a .skops file",
    ),
}
"""What is said about other files that models come in."""


def as_candidate(
    model: Any,
    *,
    inputs: Inputs = None,
    classes: Classes | None = None,
    cost: float = 1.0,
    batch_size: BatchSize = None,
) -> Candidate:
    """Make a candidate of a fitted estimator, a function, a network, a file or an address.

    Parameters
    ----------
    model : a fitted object with `predict`, a function of X, or a candidate, which passes through.
        A PyTorch module, or the path of a model: a file .onnx, .pt2 (torch.export) or .skops, a
        transformers folder (with a config.json), an address http://... or https://...; their
        further options are those of the classes, such as OnnxCandidate(path, activation=...).
    inputs : the columns it takes (names or integer positions), or a function of X. By default it
        gets X without the prediction columns.
    classes : labels of the probabilities that a function returns, in the order of its columns; for
        a fitted classifier, other labels for its own classes.
    cost : a number to record, such as the price of a call. The summary and the report show it;
        it changes neither weights nor predictions.
    batch_size : rows per call, "auto" or an amount of memory such as "1 GiB"; by default networks
        have "auto" and others are called once.

    Examples
    --------
    >>> import numpy as np
    >>> north = as_candidate(lambda X: X[:, 0], inputs=[1])
    >>> north.predict(np.array([[1.0, 2.0]]), "regression").tolist()
    [2.0]
    """
    if isinstance(model, Candidate):
        if inputs is not None or classes is not None or cost != 1.0 or batch_size is not None:
            raise InvalidInputError(
                f"{model!r} is a candidate already; state inputs, classes, cost and batch_size "
                "where it is made."
            )
        return model
    options = {"inputs": inputs, "classes": classes, "cost": cost, "batch_size": batch_size}
    if isinstance(model, str | os.PathLike):
        return _from_path(os.fspath(model), options)
    if _is_network(model):
        return _kind("torch")(model, **_stated(options))
    _refuse_what_is_no_model(model)
    kind = EstimatorCandidate if hasattr(model, "predict") else FunctionCandidate
    return kind(model, inputs=inputs, classes=classes, cost=cost, batch_size=batch_size)


def _from_path(path: str, options: dict[str, Any]) -> Candidate:
    if path.startswith(("http://", "https://")):
        return _kind("http")(path, **_stated(options))
    if os.path.isfile(os.path.join(path, "config.json")):
        return _kind("transformers")(path, **_stated(options))
    suffix = Path(path).suffix.lower()
    if suffix in SUFFIXES:
        return _kind(SUFFIXES[suffix])(path, **_stated(options))
    if suffix in NO_CANDIDATES:
        reason = NO_CANDIDATES[suffix].format(path=path)
        raise InvalidInputError(f"A {suffix} file such as {path!r} {reason}.")
    raise InvalidInputError(
        f"A candidate is a fitted model or a function; received the string {path!r}: for a column "
        f"of X that holds predictions write Column({path!r}). A model's path ends in "
        f"{', '.join(SUFFIXES)} or is a folder with a config.json; an address begins with http."
    )


def _stated(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user gave; for the others the kind has its own defaults."""
    return {name: value for name, value in options.items() if value is not None}


def _is_network(model: Any) -> bool:
    """Whether it is a PyTorch module; if so, PyTorch is imported already."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _refuse_what_is_no_model(model: Any) -> None:
    if isinstance(model, type):
        raise InvalidInputError(
            f"A candidate is a fitted model, and {model.__name__} is a class: pass a fitted "
            f"instance, or CrossFitted({model.__name__}())."
        )
    if not callable(model) and not hasattr(model, "predict"):
        raise InvalidInputError(
            "A candidate is a fitted model with a method predict, a function of X, a Column or a "
            f"CrossFitted; received {type(model).__name__}: for bare predictions pass "
            "fit(X, y, predictions=...)."
        )


def needs_trust(recipe: Recipe) -> bool:
    """Whether following the recipe runs code, or opens files or addresses, that it names.

    >>> needs_trust({"kind": "column", "columns": ["guess"], "classes": None, "cost": 1.0})
    False
    """
    return _kind_of(recipe).needs_trust


def recipe_beside(candidate: Candidate, folder: str | os.PathLike[str]) -> Recipe | None:
    """Describe a candidate in JSON, its paths relative to the folder that the recipe is kept in."""
    recipe = candidate.recipe()
    if recipe is None:
        return None
    return recipe | {field: beside(path, Path(folder)) for field, path in _paths(recipe, candidate)}


def from_recipe(recipe: Recipe, folder: str | os.PathLike[str] = ".") -> Candidate:
    """Rebuild a candidate from its recipe. Ask `needs_trust` first: this follows import names.

    Parameters
    ----------
    recipe : what `recipe` or `recipe_beside` gave.
    folder : where relative paths start.

    >>> from_recipe({"kind": "column", "columns": ["guess"], "classes": None, "cost": 1.0})
    Column('guess')
    """
    kind = _kind_of(recipe)
    _check_fields(recipe, kind)
    try:
        places = {f: found_beside(path, Path(folder)) for f, path in _paths(recipe, kind)}
        return kind.from_recipe(recipe | places)
    except InvalidInputError as error:
        raise FileFormatError(f"The recipe {shown(recipe)} cannot be followed: {error}") from error


def _paths(recipe: Recipe, kind: Candidate | type[Candidate]) -> list[tuple[str, str]]:
    return [(field, recipe[field]) for field in kind.paths if recipe[field] is not None]


def _kind_of(recipe: Recipe) -> type[Candidate]:
    kind = recipe.get("kind") if isinstance(recipe, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileFormatError(f"Unknown kind of candidate {shown(kind)}; known: {sorted(KINDS)}.")
    return _kind(kind)


def _kind(name: str) -> type[Any]:
    found: type[Any] = import_object(KINDS[name])
    return found


def _check_fields(recipe: Recipe, kind: type[Candidate]) -> None:
    if set(recipe) != {"kind", *kind.fields}:
        raise FileFormatError(
            f"The recipe of a {kind.kind} must have the fields {sorted(kind.fields)}; received "
            f"{shown(sorted(set(recipe) - {'kind'}))}."
        )
    for field, types in kind.fields.items():
        value = recipe[field]
        # To Python a truth value is a whole number too.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            allowed = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            raise FileFormatError(
                f"The field {field!r} in the recipe of a {kind.kind} must be {allowed}; "
                f"received {shown(value)}."
            )
