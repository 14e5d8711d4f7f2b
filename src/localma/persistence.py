"""Saving and loading: one safetensors file whose header describes the model in JSON; no pickle.

Arrays hold what was learnt. The description holds everything else: parameters, names, labels, and
for each candidate a recipe, where it has one. Recipes that import code are followed only when the
caller trusts the file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from localma.candidates import (
    Candidate,
    CrossFitted,
    Pool,
    as_candidate,
    from_recipe,
    needs_trust,
    recipe_beside,
)
from localma.cautions import WARNINGS, Caution
from localma.errors import FileFormatError, InvalidInputError, LocalMAError, UntrustedFileError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.features import GateFeatures
from localma.gates import GATE_CLASSES, Gate
from localma.gates.base import arrays_below
from localma.imports import import_name, import_object
from localma.losses import Loss, get_loss, is_registered
from localma.whole_files import write_whole

SCHEMA = 2
ESTIMATORS = {kind.__name__: kind for kind in (LocalMARegressor, LocalMAClassifier)}
FIELDS: dict[str, type | tuple[type, ...]] = {
    "estimator": str,
    "loss": dict,
    "gate": dict,
    "gate_features": dict,
    "candidates": list,
    "n_features_in": (int, type(None)),
    "feature_names_in": (list, type(None)),
    "classes": (list, type(None)),
    "classes_dtype": (str, type(None)),
    "notes": dict,
}
"""Fields of the description and their types in JSON."""
NEWER_FIELDS: dict[str, type | tuple[type, ...]] = {
    "n_outputs": (int, type(None)),
    "output_names": (list, type(None)),
    "without_candidates": bool,
    "cautions": list,
    "constant_prediction": (list, type(None)),
}
"""Fields that files have not always had; those without them are read too."""

ONLY_TO_FIT = ("cv", "random_state")
"""Parameters of a gate that are not saved, for the estimator sets those that a user leaves out."""

Arrays = dict[str, NDArray[Any]]
Model = LocalMARegressor | LocalMAClassifier


def save(
    model: Model, path: str | os.PathLike[str], *, notes: Mapping[str, str] | None = None
) -> None:
    """Write a fitted model to one file, whole or not at all.

    notes : what else is to be known of it, such as the name of the target; `load` gives them back
        as `notes_`.

    Candidates that can be described (columns, importable functions, files) are saved as recipes;
    the others are given again to `load` by name, and so is a transformer in `gate_features`.
    """
    from safetensors.numpy import save as to_bytes

    check_is_fitted(model)
    if ESTIMATORS.get(type(model).__name__) is not type(model):
        raise InvalidInputError(
            f"Only {' and '.join(ESTIMATORS)} can be saved; received a {type(model).__name__}. "
            "Pickle a class of your own."
        )
    arrays = {f"gate.{name}": array for name, array in model.gate_.arrays().items()}
    arrays["global_weights"] = model.global_weights_
    # safetensors silently writes the wrong numbers for arrays that are not contiguous.
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    described = {**_describe(model, Path(path).parent), "notes": dict(notes or {})}
    description = json.dumps(described, allow_nan=False)
    header = {"format": "localma", "schema": str(SCHEMA), "description": description}
    write_whole(Path(path), to_bytes(arrays, metadata=header))


def load(
    path: str | os.PathLike[str],
    candidates: Mapping[str, Any] | None = None,
    *,
    gate: Any = None,
    gate_features: Any = None,
    loss: Loss | None = None,
    trust: bool = False,
) -> Model:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : the file
    candidates : models by name, for those candidates that the file has no recipe for, or in place
        of a recipe. An empty dict attaches none: then `predict` needs `predictions=`. So it does
        after a fit on predictions alone, which needs no candidates here.
    gate : the PyTorch module of the gate, or the function that makes it, where the file cannot name
        it; or the whole gate, as it was before it was fitted
    gate_features : the fitted transformer or the function, where the file cannot describe it
    loss : a loss of one's own, which is not saved; prediction does without it
    trust : whether to follow recipes that import code. Only for files from people you trust.
    """
    description, arrays = _read(Path(path))
    if candidates is not None and not isinstance(candidates, Mapping):
        raise InvalidInputError(
            f"candidates must be a dict from name to model; received a {type(candidates).__name__}."
        )
    try:
        model = _build(description, arrays, candidates, trust, Path(path).parent, gate)
        model.loss_ = model.loss = _restore_loss(description["loss"], loss)
        features = _restore_features(description["gate_features"], gate_features, trust)
        model.gate_features_, model.gate_features = features, features.spec
        features.raw, features.needed = model.gate_.raw_inputs, model.gate_.needs_inputs
        model.notes_ = {str(key): str(text) for key, text in description["notes"].items()}
        return model
    except LocalMAError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise FileFormatError(
            f"{path} does not have the form of a saved model ({type(error).__name__}: {error}). "
            "Save the model again."
        ) from error


def _build(
    description: dict[str, Any],
    arrays: Arrays,
    candidates: Mapping[str, Any] | None,
    trust: bool,
    folder: Path,
    gate: Any,
) -> Model:
    model = ESTIMATORS[description["estimator"]]()
    model.gate_ = _restore_gate(description["gate"], arrays, trust, gate)
    model.gate = model.gate_
    model.global_weights_ = _array(arrays, "global_weights")
    if model.global_weights_.ndim != 1 or (model.global_weights_ < 0).any():
        raise FileFormatError("The array 'global_weights' must have shape (M,) and no negatives.")
    _restore_inputs(model, description)
    _restore_outputs(model, description)
    _restore_pool(model, description, candidates, trust, folder)
    model.cautions_ = tuple(map(_restore_caution, description.get("cautions", ())))
    model.constant_prediction_ = _restore_constant(model, description.get("constant_prediction"))
    return model


# Writing.


def _describe(model: Model, folder: Path) -> dict[str, Any]:
    names = getattr(model, "feature_names_in_", None)
    classes = model.classes_ if isinstance(model, LocalMAClassifier) else None
    return {
        "estimator": type(model).__name__,
        "loss": _describe_loss(model.loss_),
        "gate": _describe_gate(model.gate_),
        "gate_features": model.gate_features_.recipe(),
        "candidates": _describe_candidates(model, folder),
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else classes.tolist(),
        "classes_dtype": None if classes is None else classes.dtype.str,
        "n_outputs": getattr(model, "n_outputs_", None),
        "output_names": getattr(model, "output_names_", None),
        "without_candidates": model.pool_ is None,
        "cautions": [asdict(caution) for caution in model.cautions_],
        "constant_prediction": _plain_constant(model),
    }


def _describe_loss(loss: Loss) -> dict[str, Any]:
    own = not is_registered(loss)
    return {"name": loss.name, "parameters": {} if own else dict(loss.parameters), "own": own}


def _describe_gate(gate: Gate) -> dict[str, Any]:
    kind = type(gate)
    known = GATE_CLASSES.get(kind.__name__) is kind
    if not known and import_name(kind) is None:
        raise InvalidInputError(
            f"A gate must be importable to be saved, and {kind.__qualname__} is not. Define its "
            "class in a module, outside of functions."
        )
    return {
        "kind": kind.__name__ if known else import_name(kind),
        "known": known,
        "parameters": {
            name: None if name in ONLY_TO_FIT else _to_json(value)
            for name, value in gate.get_params(deep=False).items()
        },
    }


def _describe_candidates(model: Model, folder: Path) -> list[dict[str, Any]]:
    if model.pool_ is None:
        return [{"name": name, "recipe": None} for name in model.candidate_names_]
    return [
        {"name": name, "recipe": recipe_beside(candidate, folder)}
        for name, candidate in zip(model.pool_.names, model.pool_.candidates, strict=True)
    ]


def _to_json(value: Any) -> Any:
    """Parameters of a gate in JSON, which knows neither infinity nor tuples nor gates."""
    if isinstance(value, Gate):
        return {"$gate": _describe_gate(value)}
    if isinstance(value, tuple | list):
        return {"$" + type(value).__name__: [_to_json(item) for item in value]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    name = import_name(value) if callable(value) else None
    if name is not None:
        return {"$import": name}
    # Needed to fit again, not to predict.
    return {"$left_out": repr(value)}


def _from_json(value: Any, trust: bool, given: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()), ("", None))
    if len(value) != 1 or kind not in _TAGS:
        raise FileFormatError(f"A parameter of the gate has an unknown form: {value!r}.")
    if kind == "$gate":
        return _make_gate(content, trust, given)
    if kind == "$import":
        return _imported(str(content), trust)
    if kind == "$left_out":
        return None
    if kind == "$float":
        return float(str(content))
    items = [_from_json(item, trust, given) for item in content or ()]
    return tuple(items) if kind == "$tuple" else items


# Reading.


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise FileFormatError(
            f"{path} is no safetensors file, or was cut short ({error}). Save the model again."
        ) from error
    for name, array in arrays.items():
        evidence = name.startswith(("gate.path.", "gate.gain"))
        if array.dtype.kind == "f" and not evidence and not np.isfinite(array).all():
            raise FileFormatError(f"The array {name!r} of {path} has values that are not finite.")
    if header.get("format") != "localma":
        raise FileFormatError(f"{path} is a safetensors file, but localma did not write it.")
    if header.get("schema") != str(SCHEMA):
        raise FileFormatError(
            f"{path} has schema version {header.get('schema')!r}; this localma reads {SCHEMA}. "
            "Load it with the version that wrote it, or save the model again."
        )
    try:
        description = json.loads(header["description"])
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{path} has no readable description: {error!r}.") from error
    _check_fields(description, FIELDS, "description", NEWER_FIELDS)
    if description["estimator"] not in ESTIMATORS:
        raise FileFormatError(f"{path} holds an unknown estimator {description['estimator']!r}.")
    return description, arrays


def _check_fields(
    received: Any, fields: Mapping[str, Any], what: str, newer: Mapping[str, Any] | None = None
) -> None:
    newer = newer or {}
    if not isinstance(received, dict) or set(received) - set(newer) != set(fields):
        names = sorted(received) if isinstance(received, dict) else received
        raise FileFormatError(f"The {what} must have fields {sorted(fields)}; received {names}.")
    for name, kind in {**fields, **newer}.items():
        if name in received and not isinstance(received[name], kind):
            raise FileFormatError(
                f"The field {name!r} of the {what} has the wrong type: {received[name]!r}."
            )


_TAGS = ("$gate", "$tuple", "$list", "$float", "$import", "$left_out")


def _plain_constant(model: Model) -> list[float] | None:
    """The best constant prediction of the labelled sample; None if it is not known."""
    constant = model.constant_prediction_
    if constant is None or not np.isfinite(constant).all():
        return None
    return [float(number) for number in constant]


def _restore_constant(model: Model, saved: list[Any] | None) -> NDArray[np.float64] | None:
    if saved is None:
        return None
    K = model.n_outputs_ if isinstance(model, LocalMARegressor) else len(model.classes_)
    if len(saved) != K or not all(isinstance(number, int | float) for number in saved):
        raise FileFormatError(f"A constant prediction must be {K} numbers; received {saved!r}.")
    return np.array(saved, dtype=np.float64)


def _restore_caution(saved: Any) -> Caution:
    _check_fields(saved, {"kind": str, "sentence": str, "names": list}, "caution")
    if saved["kind"] not in WARNINGS:
        raise FileFormatError(f"Unknown caution {saved['kind']!r}; known: {sorted(WARNINGS)}.")
    return Caution(saved["kind"], saved["sentence"], tuple(map(str, saved["names"])))


def _array(arrays: Arrays, name: str) -> NDArray[Any]:
    if name not in arrays:
        raise FileFormatError(f"The array {name!r} is missing; the file has {sorted(arrays)}.")
    return arrays[name]


def _make_gate(description: Any, trust: bool, given: Any) -> Gate:
    _check_fields(description, {"kind": str, "known": bool, "parameters": dict}, "gate")
    kind = description["kind"]
    if description["known"]:
        if kind not in GATE_CLASSES:
            raise FileFormatError(f"Unknown gate {kind!r}; known: {sorted(GATE_CLASSES)}.")
        gate_class: Any = GATE_CLASSES[kind]
    else:
        gate_class = _imported(kind, trust)
    saved = description["parameters"]
    parameters = _code(gate_class, saved, trust, given)
    rest = saved.keys() - parameters.keys()
    parameters |= {name: _from_json(saved[name], trust, given) for name in rest}
    try:
        gate = gate_class(**parameters)
    except TypeError as error:
        raise FileFormatError(
            f"The parameters of the gate {kind!r} do not fit: {error}."
        ) from error
    if not trust and gate.fetches() is not None:
        raise UntrustedFileError(
            f"The gate of this file needs {gate.fetches()}, which would be fetched from elsewhere.",
            python_hint="Pass trust=True if you trust the file, or give the gate to "
            "load(path, gate=...).",
        )
    return gate


def _code(gate_class: Any, saved: Any, trust: bool, given: Any) -> dict[str, Any]:
    """Parameters of a gate that are code: a module given to `load`, or found by import name."""
    found = {}
    for name in gate_class.code_parameters:
        if name == "module" and given is not None:
            found[name] = given
        elif isinstance(saved.get(name), dict) and "$left_out" in saved[name]:
            way = "module" if name == "module" else f"{gate_class.__name__}(..., {name}=...)"
            raise InvalidInputError(
                f"The {name} of this file's {gate_class.__name__} is not saved.",
                python_hint=f"Pass it again: load(path, gate={way}).",
            )
    return found


def _imported(name: str, trust: bool) -> Any:
    if not trust:
        raise UntrustedFileError(
            f"The gate of this file is made by importing {name!r}, which may run any code.",
            python_hint="Pass trust=True if you trust the file, or give the gate to "
            "load(path, gate=...).",
        )
    return import_object(name)


def _restore_gate(description: Any, arrays: Arrays, trust: bool, given: Any) -> Gate:
    own = arrays_below(arrays, "gate.")
    whole = isinstance(given, Gate)
    if whole and type(given).__name__ != description.get("kind"):
        raise InvalidInputError(
            f"The gate of this file is a {description.get('kind')}; gate= is a "
            f"{type(given).__name__}. Pass the gate with which the model was made."
        )
    try:
        gate: Gate = clone(given) if whole else _make_gate(description, trust, given)
        return gate.restore(own)
    except KeyError as error:
        raise FileFormatError(f"The array 'gate.{error.args[0]}' is missing.") from error


def _restore_loss(description: dict[str, Any], given: Loss | None) -> Loss:
    _check_fields(description, {"name": str, "parameters": dict, "own": bool}, "loss")
    if given is not None and (not description["own"] or given.name != description["name"]):
        raise InvalidInputError(
            f"loss= must be the loss of one's own that the model was fitted with; received "
            f"{given!r}, and the file has {description['name']!r}"
            f"{'' if description['own'] else ', which comes back by itself'}."
        )
    if description["own"]:
        return Loss(description["name"], _lost, _lost) if given is None else given
    try:
        return get_loss(description["name"], **description["parameters"])
    except (InvalidInputError, TypeError) as error:
        raise FileFormatError(f"The loss of this file cannot be made: {error}") from error


def _lost(y: Any, mu: Any) -> Any:
    raise InvalidInputError(
        "A loss of one's own is not saved, and prediction does not need it; to fit or judge "
        "again, give it when the model is loaded: load(path, loss=...)."
    )


def _restore_inputs(model: Model, description: dict[str, Any]) -> None:
    if description["n_features_in"] is not None:
        model.n_features_in_ = description["n_features_in"]
    if description["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
    if isinstance(model, LocalMAClassifier):
        if not description["classes"]:
            raise FileFormatError("A classifier needs its classes; the file has none.")
        model.classes_ = _restore_labels(description["classes"], description["classes_dtype"])


def _restore_outputs(model: Model, description: dict[str, Any]) -> None:
    number, names = description.get("n_outputs"), description.get("output_names")
    known = names is None or all(isinstance(name, str) for name in names)
    if not known or (names is not None and not len(set(names)) == len(names) == number):
        raise FileFormatError(
            f"The names of {number} outputs must be as many different strings; the file has "
            f"{names!r}."
        )
    if number is not None and number < 1:
        raise FileFormatError(f"A model has at least one output; the file says {number}.")
    model.output_names_ = None if names is None else tuple(names)
    if isinstance(model, LocalMARegressor) and number is not None:
        model.n_outputs_ = number


def _restore_labels(labels: list[Any], dtype: str | None) -> NDArray[Any]:
    """Class labels of the very type that they had: a small integer is compared as one."""
    try:
        restored = np.array(labels, dtype=np.dtype(dtype or ""))
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"The classes {labels} are no {dtype!r}: {error}.") from error
    if restored.dtype.kind not in "biufU" or restored.tolist() != labels:
        raise FileFormatError(f"The classes {labels} are no {dtype!r}.")
    return restored


def _restore_features(recipe: dict[str, Any], attached: Any, trust: bool) -> GateFeatures:
    if attached is not None:
        return GateFeatures.attached(attached, recipe.get("hidden", ()))
    if recipe.get("kind") == "attach":
        raise InvalidInputError(
            f"The gate's inputs come from {recipe.get('what')}, which is not saved.",
            python_hint="Pass it again: load(path, gate_features=...).",
        )
    if recipe.get("kind") == "function" and not trust:
        raise UntrustedFileError(
            f"The gate's inputs come from the function {recipe.get('import')!r}, which may run any "
            "code.",
            python_hint="Pass trust=True if you trust the file, or gate_features= the function "
            "itself.",
        )
    return GateFeatures.from_recipe(recipe)


def _restore_pool(
    model: Model,
    description: dict[str, Any],
    given: Mapping[str, Any] | None,
    trust: bool,
    folder: Path,
) -> None:
    for entry in description["candidates"]:
        _check_fields(entry, {"name": str, "recipe": (dict, type(None))}, "candidate")
    names = tuple(entry["name"] for entry in description["candidates"])
    if len(names) != len(model.global_weights_):
        raise FileFormatError(
            f"The file names {len(names)} candidates and has {len(model.global_weights_)} weights."
        )
    model.candidate_names_, model.pool_ = names, None
    strange = sorted(set(given or ()) - set(names))
    if strange:
        raise InvalidInputError(
            f"candidates has {strange}, which this model does not know; it knows {list(names)}."
        )
    without = given is not None or description.get("without_candidates", False)
    if without and not given:
        return
    entries = [entry for entry in description["candidates"] if entry["name"] not in (given or {})]
    _check_all_come_back(entries, trust)
    found = {
        entry["name"]: _find(entry, given or {}, folder) for entry in description["candidates"]
    }
    model.candidates = found
    model.pool_ = Pool(found, task=model._task)
    if isinstance(model, LocalMAClassifier):
        _check_classes(model)


def _check_all_come_back(entries: list[dict[str, Any]], trust: bool) -> None:
    """Refuse, with all their names, candidates that the file does not hold or may not follow."""
    missing = [entry["name"] for entry in entries if entry["recipe"] is None]
    if missing:
        raise InvalidInputError(
            f"{_counted(missing)} not saved in the file.",
            python_hint=f"Pass the models again: load(path, candidates={_as_argument(missing)}). "
            "To predict without models, pass candidates={} here and predictions= to predict.",
        )
    if trust:
        return
    untrusted = {e["name"]: _sources(e["recipe"]) for e in entries if needs_trust(e["recipe"])}
    if untrusted:
        raise UntrustedFileError(
            f"{_counted(untrusted)} made from {', '.join(untrusted.values())}, which may run any "
            "code.",
            python_hint="Pass trust=True if you trust the file, or the models: "
            f"candidates={_as_argument(untrusted)}.",
        )


def _sources(recipe: dict[str, Any]) -> str:
    """Import names, paths and addresses to which the recipe of a candidate leads."""
    fields = ("import", "path", "url", "preprocess", "inputs")
    sources = [recipe[field] for field in fields if isinstance(recipe.get(field), str)]
    return " and ".join(map(repr, sources)) or repr(recipe)


def _counted(names: Collection[str]) -> str:
    listed = ", ".join(map(repr, names))
    return f"Candidate {listed} is" if len(names) == 1 else f"Candidates {listed} are"


def _as_argument(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{name!r}: model" for name in names) + "}"


def _find(entry: dict[str, Any], given: Mapping[str, Any], folder: Path) -> Candidate:
    name = entry["name"]
    if name in given:
        if isinstance(given[name], CrossFitted):
            raise InvalidInputError(
                f"Candidate {name!r} must come back fitted, not as a CrossFitted. Pass the model "
                "that was fitted on all rows: model.pool_.candidates has it, to be kept as you "
                "keep your other models."
            )
        return as_candidate(given[name])
    try:
        return from_recipe(entry["recipe"], folder)
    except FileFormatError as error:
        raise FileFormatError(f"Candidate {name!r}: {error}") from error


def _check_classes(model: LocalMAClassifier) -> None:
    assert model.pool_ is not None
    known = model.pool_.classes
    if known is None or known.tolist() != model.classes_.tolist():
        raise InvalidInputError(
            f"The candidates must know the classes that the model was fitted with, "
            f"{model.classes_.tolist()}; together these know "
            f"{None if known is None else known.tolist()}."
        )
