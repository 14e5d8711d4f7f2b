"""Candidates from models of any kind: objects, functions, files and addresses."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from localma.candidates.base import Candidate, Inputs, TableFunction
from localma.candidates.batches import BatchSize
from localma.candidates.estimator import EstimatorCandidate, FittedModel
from localma.candidates.function import FunctionCandidate
from localma.candidates.outputs import (
    Classes,
    Names,
    check_names,
    made_unique,
)
from localma.candidates.recipes import KINDS
from localma.errors import InvalidInputError
from localma.imports import import_object

Model: TypeAlias = Candidate | FittedModel | TableFunction | str | os.PathLike[str]
"""Anything that `as_candidate` takes."""
Models: TypeAlias = Mapping[str, Model] | Sequence[tuple[str, Model]] | Sequence[Model]

SUFFIXES = {".onnx": "onnx", ".pt2": "torch", ".skops": "skops"}
"""The kind of a candidate, by the suffix of its file."""

REFUSED_SUFFIXES = {
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
"""Why files with other suffixes are not candidates, and what to do."""


def as_candidate(
    model: Model,
    *,
    inputs: Inputs = None,
    classes: Classes | None = None,
    cost: float = 1.0,
    batch_size: BatchSize = None,
) -> Candidate:
    """Make a candidate from a fitted estimator, a function, a network, a file or an address.

    Parameters
    ----------
    model : estimator, callable, module, str or path
        A fitted object with `predict`, a function of X, a PyTorch module, or the path of a model: a
        file .onnx, .pt2 (torch.export) or .skops, a transformers folder (with a config.json), an
        address http://... or https://... . Their classes have more options, such as
        OnnxCandidate(path, activation=...). A candidate is returned unchanged.
    inputs : list of str or int, or callable, optional
        The columns it takes, by name or integer position, or a function of X. By default it gets X
        without the prediction columns.
    classes : array-like of shape (K,), optional
        Labels of the probabilities that a function returns, in the order of its columns; for a
        fitted classifier, new labels for its classes.
    cost : float, default=1.0
        What a row costs, such as the price of a call. Only budgets use it: `budget=` in `predict`
        and `answer`, and `frontier`. It does not change the weights of a fit.
    batch_size : int or str, optional
        Rows per call, "auto" or an amount of memory such as "1 GiB". The default is "auto" for
        networks, and one call for all rows for other models.

    Returns
    -------
    Candidate
        The candidate.

    Examples
    --------
    >>> import numpy as np
    >>> north = as_candidate(lambda X: X[:, 0], inputs=[1])
    >>> north.predict(np.array([[1.0, 2.0]]), "regression").tolist()
    [2.0]
    """
    stated = {"inputs": inputs, "classes": classes, "cost": cost, "batch_size": batch_size}
    # Each kind has its own defaults for the other options.
    options: dict[str, Any] = {key: value for key, value in stated.items() if value is not None}
    if isinstance(model, Candidate):
        if options != {"cost": 1.0}:
            raise InvalidInputError(
                f"{model!r} is a candidate already; state inputs, classes, cost and batch_size "
                "where you create it."
            )
        return model
    if isinstance(model, str | os.PathLike):
        return from_path(os.fspath(model), options)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return import_object(KINDS["torch"])(model, **options)
    if isinstance(model, type):
        raise InvalidInputError(
            f"A candidate is a fitted model, and {model.__name__} is a class: pass a fitted "
            f"instance, or CrossFitted({model.__name__}())."
        )
    if hasattr(model, "predict"):
        return EstimatorCandidate(model, **options)
    if callable(model):
        return FunctionCandidate(model, **options)
    raise InvalidInputError(
        "A candidate is a fitted model with a method predict, a function of X, a Column or a "
        f"CrossFitted; received {type(model).__name__}: for bare predictions pass "
        "fit(X, y, predictions=...)."
    )


def from_path(path: str, options: Mapping[str, Any]) -> Candidate:
    """Make a candidate from the path of a file or folder, or from an address."""
    suffix = Path(path).suffix.lower()
    kind = SUFFIXES.get(suffix)
    if path.startswith(("http://", "https://")):
        kind = "http"
    elif os.path.isfile(os.path.join(path, "config.json")):
        kind = "transformers"
    if kind is not None:
        return import_object(KINDS[kind])(path, **options)
    if suffix in REFUSED_SUFFIXES:
        reason = REFUSED_SUFFIXES[suffix].format(path=path)
        raise InvalidInputError(f"A {suffix} file such as {path!r} {reason}.")
    raise InvalidInputError(
        f"A candidate is a fitted model or a function; received the string {path!r}: for a column "
        f"of X that holds predictions write Column({path!r}). A model's path ends in "
        f"{', '.join(SUFFIXES)} or is a folder with a config.json; an address begins with http."
    )


def named_candidates(candidates: Models) -> tuple[Names, tuple[Candidate, ...]]:
    """Return names and candidates from any of the three forms."""
    if isinstance(candidates, Mapping):
        candidates = list(candidates.items())
    if not isinstance(candidates, list | tuple):
        raise InvalidInputError(
            "candidates must be a dict from name to model, a list of (name, model) pairs or a "
            f"list of models; received {type(candidates).__name__}."
        )
    if not candidates:
        raise InvalidInputError(
            "candidates must hold at least one model; received none: pass for example "
            "candidates={'north': fitted_model}."
        )
    pairs = [item for item in candidates if isinstance(item, tuple) and len(item) == 2]
    if len(pairs) == len(candidates):
        names = check_names(name for name, _ in pairs)
        return names, tuple(_as_named_candidate(name, model) for name, model in pairs)
    if pairs:
        raise InvalidInputError(
            "candidates must be all (name, model) pairs or all models; received "
            f"{len(pairs)} pairs among {len(candidates)}: name every model."
        )
    models = tuple(as_candidate(model) for model in candidates)
    return check_names(made_unique([model.label for model in models])), models


def _as_named_candidate(name: str, model: Model) -> Candidate:
    try:
        return as_candidate(model)
    except InvalidInputError as error:
        raise InvalidInputError(f"Candidate {name!r}: {error}") from error


def check_distinct(names: Sequence[str], candidates: Sequence[Candidate]) -> None:
    """Raise an error if two candidates are the same model on the same inputs."""
    name_of: dict[Hashable, str] = {}
    for name, candidate in zip(names, candidates, strict=True):
        earlier = name_of.setdefault(candidate.identity(), name)
        if earlier != name:
            raise InvalidInputError(
                f"Candidates {earlier!r} and {name!r} are the same {candidate!r}. Leave one out, "
                "or give them different inputs=."
            )
