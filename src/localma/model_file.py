"""Saving and loading models: one file of arrays with a description in JSON; no pickle.

Arrays hold what was learnt. The description holds everything else: parameters, names, labels, and
for each candidate a recipe, if it has one. Recipes that run code or open files and addresses are
followed only if the caller trusts the file. `localma.storage.array_file` is the file itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
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
from localma.candidates.answers import as_labels, check_names, check_saved_labels
from localma.checks.cautions import WARNINGS, Caution
from localma.checks.training_rows import SampleLosses
from localma.errors import FileFormatError, InvalidInputError, LocalMAError, UntrustedFileError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.gates import GATE_CLASSES
from localma.gates._recipes import Restoring, describe_gate, restore_gate
from localma.gates.base import arrays_below, is_number, simplex_weights
from localma.losses import Loss, get_loss, is_registered
from localma.probes import Recorded, check_candidates
from localma.storage.array_file import ArrayFile, Arrays, Json, read, shown, to_bytes
from localma.storage.whole_files import write_whole
from localma.tables.features import GateFeatures

ESTIMATORS = {kind.__name__: kind for kind in (LocalMARegressor, LocalMAClassifier)}
Types = dict[str, tuple[type, ...]]
FIELDS: Types = {
    "estimator": (str,),
    "loss": (dict,),
    "gate": (dict,),
    "gate_features": (dict,),
    "candidates": (list,),
    "without_candidates": (bool,),
    "n_features_in": (int, type(None)),
    "feature_names_in": (list, type(None)),
    "classes": (list, type(None)),
    "classes_dtype": (str, type(None)),
    "n_outputs": (int, type(None)),
    "output_names": (list, type(None)),
    "evidence": (dict,),
    "probes": (dict, type(None)),
    "notes": (dict,),
}
"""Fields of the description and their types in JSON."""
EVIDENCE_FIELDS: Types = {
    "cautions": (list,),
    "constant_prediction": (list, type(None)),
    "sample_losses": (dict, type(None)),
}
"""Fields of the evidence: what the labelled sample said about the model, beside the weights."""

LOSSES_FIELDS: Types = {"mean": (list,), "standard_error": (list,), "n": (int, float)}
"""Fields of the candidates' losses on the labelled sample."""

LONGEST_MESSAGE = 1_000
"""Characters of an error that `load` raises; a file could make it as long as itself."""

Model = LocalMARegressor | LocalMAClassifier


def save(
    model: Model,
    path: str | os.PathLike[str],
    *,
    notes: Mapping[str, str] | None = None,
    probes: bool = True,
) -> None:
    """Write a fitted model to one file, whole or not at all.

    Candidates that can be described (columns, importable functions, files) are saved as recipes.
    The others are passed again to `load` by name, and so is a transformer in `gate_features`.

    Parameters
    ----------
    model : a fitted `LocalMARegressor` or `LocalMAClassifier`
    path : the file
    notes : further texts, such as the name of the target; `load` returns them as `notes_`
    probes : whether to save what each candidate predicts for a few made-up inputs, so that `load`
        recognises it. Inputs are made from the ranges of the columns and from frequent categories;
        no row of the sample is saved. Each candidate runs twice on 16 rows.
    """
    check_is_fitted(model)
    if ESTIMATORS.get(type(model).__name__) is not type(model):
        raise InvalidInputError(
            f"Only {' and '.join(ESTIMATORS)} can be saved; received a {type(model).__name__}. "
            "Pickle a class of your own."
        )
    folder = Path(path).parent
    description, arrays = _describe(model, folder, dict(notes or {}))
    arrays |= {f"gate.{name}": array for name, array in model.gate_.arrays().items()}
    inputs = getattr(model, "probes_", None)  # a model in an old pickle has none
    if probes and inputs is not None and model.pool_ is not None:
        recorded = Recorded.of(inputs, model.pool_)
        description["probes"] = recorded.recipe()
        arrays |= {f"probes.{name}": array for name, array in recorded.arrays().items()}
    write_whole(Path(path), to_bytes(description, arrays))


def load(
    path: str | os.PathLike[str],
    candidates: Mapping[str, Any] | None = None,
    *,
    gate: Any = None,
    gate_features: Any = None,
    loss: Loss | None = None,
    trust: bool = False,
    probes: bool = True,
) -> Model:
    """Read a model that `save` wrote.

    With ``trust=False`` it runs no code from the file, opens no other file and connects to
    nothing. It raises a `LocalMAError`, or an `OSError` if the file cannot be read.

    Parameters
    ----------
    path : the file
    candidates : models by name, for those candidates that the file has no recipe for, or in place
        of a recipe. An empty dict attaches none: then `predict` needs `predictions=`. So it does
        after a fit on predictions alone, which needs no candidates here.
    gate : the PyTorch module of the gate, or the function that makes it, if the file cannot name
        it; or the whole gate, as it was before it was fitted
    gate_features : the fitted transformer or the function, if the file cannot describe it
    loss : your own loss, which is not saved; prediction works without it
    trust : whether to follow recipes that run code, and to open paths and addresses. Only for
        files from people you trust.
    probes : whether to compare the predictions of each candidate with those that were saved, for
        a few made-up inputs. A candidate that predicts something else is refused by name
        (`ChangedCandidateError`).
    """
    if candidates is not None and not isinstance(candidates, Mapping):
        raise InvalidInputError(
            f"candidates must be a dict from name to model; received a {type(candidates).__name__}."
        )
    try:
        file = read(Path(path))
        how = Restoring(GATE_CLASSES, trust, Path(path).parent, gate)
        model = _build(file, how)
        model.loss_ = model.loss = _restore_loss(file.description["loss"], loss)
        features = _restore_features(file.description["gate_features"], gate_features, trust)
        model.gate_features_, model.gate_features = features, features.spec
        features.raw, features.needed = model.gate_.raw_inputs, model.gate_.needs_inputs
        _restore_pool(model, file.description, candidates, how)
        evidence = file.description["evidence"]
        model.sample_losses_ = _restore_losses(evidence["sample_losses"], model.candidate_names_)
        recorded = _restore_recorded(file, model.candidate_names_)
        model.probes_ = None if recorded is None else recorded.probes
        if probes and recorded is not None and model.pool_ is not None:
            unproven = _unproven(file.description["candidates"], candidates or {})
            check_candidates(recorded, model.pool_, unproven)
        return model
    except (LocalMAError, OSError) as error:
        _shorten(error)
        raise
    except Exception as error:
        # Whatever a file makes NumPy, PyTorch or this module raise, it is the file's fault.
        raise FileFormatError(
            f"{path} does not have the form of a saved model ({type(error).__name__}: "
            f"{str(error)[:300]}). Save the model again."
        ) from _shorten(error)


def inspect(path: str | os.PathLike[str]) -> ArrayFile:
    """Checksum, description and types of the arrays of a saved model; nothing is restored."""
    try:
        file = read(Path(path), with_arrays=False)
        _check_fields(file.description, FIELDS, "description")
    except LocalMAError as error:
        _shorten(error)
        raise
    return file


def _shorten(error: Exception) -> Exception:
    """Cut the messages of an error and of its causes to a length that a user can read."""
    link: BaseException | None = error
    for _ in range(20):
        if link is None:
            break
        if len(str(link)) > LONGEST_MESSAGE and not isinstance(link, OSError):
            link.args = (_cut(str(link)),)
        if isinstance(link, LocalMAError):
            link.plain = _cut(link.plain)
        link = link.__cause__ or link.__context__
    return error


def _cut(text: str) -> str:
    if len(text) <= LONGEST_MESSAGE:
        return text
    return f"{text[: LONGEST_MESSAGE - 250]} [...] {text[-200:]}"


def _build(file: ArrayFile, how: Restoring) -> Model:
    description, arrays = file.description, file.arrays
    _check_fields(description, FIELDS, "description")
    _check_arrays(arrays)
    if description["estimator"] not in ESTIMATORS:
        raise FileFormatError(f"Unknown estimator {shown(description['estimator'])}.")
    model: Model = ESTIMATORS[description["estimator"]]()
    model.gate_ = restore_gate(description["gate"], arrays_below(arrays, "gate."), how)
    model.gate = model.gate_
    model.global_weights_ = simplex_weights(arrays["global_weights"], "global_weights")
    _restore_inputs(model, description)
    _restore_outputs(model, description)
    _restore_evidence(model, description["evidence"])
    notes = description["notes"]
    if not all(isinstance(text, str) for text in notes.values()):
        raise FileFormatError(f"Notes must be texts; the file has {shown(notes)}.")
    model.notes_ = notes
    return model


# Writing.


def _describe(model: Model, folder: Path, notes: dict[str, str]) -> tuple[Json, Arrays]:
    names = getattr(model, "feature_names_in_", None)
    classes = model.classes_ if isinstance(model, LocalMAClassifier) else None
    description = {
        "estimator": type(model).__name__,
        "loss": _describe_loss(model.loss_),
        "gate": describe_gate(model.gate_, GATE_CLASSES, folder),
        "gate_features": model.gate_features_.recipe(),
        "candidates": _describe_candidates(model, folder),
        "without_candidates": model.pool_ is None,
        "n_features_in": getattr(model, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "classes": None if classes is None else classes.tolist(),
        "classes_dtype": None if classes is None else classes.dtype.str,
        "n_outputs": getattr(model, "n_outputs_", None),
        "output_names": getattr(model, "output_names_", None),
        "evidence": _describe_evidence(model),
        "probes": None,
        "notes": notes,
    }
    return description, {"global_weights": model.global_weights_}


def _describe_evidence(model: Model) -> Json:
    constant = model.constant_prediction_
    if constant is not None and not np.isfinite(constant).all():
        constant = None
    return {
        "cautions": [asdict(caution) for caution in model.cautions_],
        "constant_prediction": None if constant is None else [float(c) for c in constant],
        "sample_losses": _describe_losses(model.sample_losses_),
    }


def _describe_losses(losses: SampleLosses | None) -> Json | None:
    """Losses by name; null for numbers that JSON does not have."""
    if losses is None:
        return None
    columns = {"mean": losses.mean, "standard_error": losses.standard_error}
    return {
        "n": losses.n,
        **{
            name: [value if np.isfinite(value) else None for value in column.tolist()]
            for name, column in columns.items()
        },
    }


def _describe_loss(loss: Loss) -> Json:
    own = not is_registered(loss)
    return {"name": loss.name, "parameters": {} if own else dict(loss.parameters), "own": own}


def _describe_candidates(model: Model, folder: Path) -> list[Json]:
    if model.pool_ is None:
        return [{"name": name, "recipe": None} for name in model.candidate_names_]
    return [
        {"name": name, "recipe": recipe_beside(candidate, folder)}
        for name, candidate in zip(model.pool_.names, model.pool_.candidates, strict=True)
    ]


# Reading.


def _check_fields(received: Any, fields: Types, what: str) -> None:
    if not isinstance(received, dict) or set(received) != set(fields):
        names = sorted(received) if isinstance(received, dict) else received
        raise FileFormatError(
            f"The {what} must have fields {sorted(fields)}; received {shown(names)}."
        )
    for name, kinds in fields.items():
        value = received[name]
        # To Python a truth value is a whole number too.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise FileFormatError(
                f"The field {name!r} of the {what} has the wrong type: {shown(value)}."
            )


def _check_arrays(arrays: Arrays) -> None:
    if "global_weights" not in arrays:
        raise FileFormatError("The array 'global_weights' is missing.")
    for name, array in arrays.items():
        if name != "global_weights" and not name.startswith(("gate.", "probes.")):
            raise FileFormatError(f"The file has an unknown array {shown(name)}.")
        # A risk that nobody could measure is NaN.
        measured = name.startswith(("gate.path.", "gate.gain"))
        if array.dtype.kind == "f" and not measured and not np.isfinite(array).all():
            raise FileFormatError(f"The array {shown(name)} has values that are not finite.")


def _restore_evidence(model: Model, evidence: Json) -> None:
    """Take back what the labelled sample said; `locality_gain_` and `path_` are the gate's."""
    _check_fields(evidence, EVIDENCE_FIELDS, "evidence")
    model.cautions_ = tuple(map(_restore_caution, evidence["cautions"]))
    model.constant_prediction_ = _restore_constant(model, evidence["constant_prediction"])


def _restore_constant(model: Model, saved: list[Any] | None) -> NDArray[np.float64] | None:
    if saved is None:
        return None
    K = len(model.classes_) if isinstance(model, LocalMAClassifier) else model.n_outputs_
    if len(saved) != K or not all(is_number(number) for number in saved):
        raise FileFormatError(f"A constant prediction is {K} numbers; received {shown(saved)}.")
    return np.array(saved, dtype=np.float64)


def _restore_caution(saved: Any) -> Caution:
    _check_fields(saved, {"kind": (str,), "sentence": (str,), "names": (list,)}, "caution")
    if saved["kind"] not in WARNINGS:
        raise FileFormatError(f"Unknown caution {shown(saved['kind'])}; known: {sorted(WARNINGS)}.")
    _check_strings(saved["names"], "names of a caution")
    return Caution(saved["kind"], saved["sentence"], tuple(saved["names"]))


def _check_strings(values: list[Any], what: str) -> None:
    if not all(isinstance(value, str) for value in values):
        raise FileFormatError(f"The {what} must be strings; the file has {shown(values)}.")


def _restore_losses(saved: Json | None, names: Sequence[str]) -> SampleLosses | None:
    if saved is None:
        return None
    _check_fields(saved, LOSSES_FIELDS, "sample_losses")
    M = len(names)
    columns = [saved["mean"], saved["standard_error"]]
    known = all(value is None or is_number(value) for column in columns for value in column)
    if not known or any(len(column) != M for column in columns) or not saved["n"] > 0:
        raise FileFormatError(
            f"Losses on the sample are {M} numbers and their standard errors; received "
            f"{shown(saved)}."
        )
    mean, error = (np.array(column, dtype=np.float64) for column in columns)
    return SampleLosses(mean, error, float(saved["n"]))


def _restore_loss(description: Json, given: Loss | None) -> Loss:
    _check_fields(description, {"name": (str,), "parameters": (dict,), "own": (bool,)}, "loss")
    name, own = description["name"], description["own"]
    if given is not None and (not own or given.name != name):
        raise InvalidInputError(
            f"loss= must be the loss of your own that the model was fitted with; received "
            f"{given!r}, and the file has {shown(name)}"
            f"{'' if own else ', which comes back by itself'}."
        )
    if own:
        return Loss(name, _lost, _lost) if given is None else given
    try:
        return get_loss(name, **description["parameters"])
    except (InvalidInputError, TypeError) as error:
        raise FileFormatError(f"The loss of this file cannot be made: {error}") from error


def _lost(y: Any, mu: Any) -> Any:
    raise InvalidInputError(
        "A loss of your own is not saved, and prediction does not need it; to fit or judge "
        "again, give it when the model is loaded: load(path, loss=...)."
    )


def _restore_inputs(model: Model, description: Json) -> None:
    number, names = description["n_features_in"], description["feature_names_in"]
    if number is not None and not 0 <= number < 2**31:
        raise FileFormatError(f"The file says that X has {shown(number)} columns.")
    if number is not None:
        model.n_features_in_ = number
    if names is not None:
        _check_strings(names, "names of the columns")
        if len(set(names)) < len(names) or len(names) != number:
            raise FileFormatError(
                f"The names of {number} columns must be as many different strings; the file has "
                f"{shown(names)}."
            )
        model.feature_names_in_ = np.array(names, dtype=object)
    if isinstance(model, LocalMAClassifier):
        if not description["classes"]:
            raise FileFormatError("A classifier needs its classes; the file has none.")
        model.classes_ = _restore_labels(description["classes"], description["classes_dtype"])


def _restore_outputs(model: Model, description: Json) -> None:
    number, names = description["n_outputs"], description["output_names"]
    known = names is None or all(isinstance(name, str) for name in names)
    if not known or (names is not None and not len(set(names)) == len(names) == number):
        raise FileFormatError(
            f"The names of {shown(number)} outputs must be as many different strings; the file has "
            f"{shown(names)}."
        )
    if number is not None and number < 1:
        raise FileFormatError(f"A model has at least one output; the file says {shown(number)}.")
    model.output_names_ = None if names is None else tuple(names)
    if isinstance(model, LocalMARegressor) and number is not None:
        model.n_outputs_ = number


_LABEL_DTYPE = re.compile(r"[<>|=]?(?:[biuf][1248]|U([1-9]\d{0,7}))")


def _restore_labels(labels: list[Any], dtype: str | None) -> NDArray[Any]:
    """Class labels of the very type that they had: a small integer is compared as one."""
    match = _LABEL_DTYPE.fullmatch(dtype or "")
    wrong = f"The classes {shown(labels)} are no {shown(dtype)}"
    if match is None or dtype is None:
        raise FileFormatError(f"{wrong}.")
    check_saved_labels(labels, int(match[1] or 0))
    try:
        restored = np.array(labels, dtype=np.dtype(dtype))
        if as_labels(restored).tolist() != labels:
            raise FileFormatError(f"{wrong}.")
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{wrong}: {str(error)[:200]}.") from error
    return restored


def _restore_features(recipe: Json, attached: Any, trust: bool) -> GateFeatures:
    if attached is not None:
        return GateFeatures.attached(attached, recipe.get("hidden", ()))
    if recipe.get("kind") == "attach":
        raise InvalidInputError(
            f"The gate's inputs come from {str(recipe.get('what'))[:200]}, which is not saved.",
            python_hint="Pass it again: load(path, gate_features=...).",
        )
    if recipe.get("kind") == "function" and not trust:
        raise UntrustedFileError(
            f"The gate's inputs come from the function {shown(recipe.get('import'))}, which may "
            "run any code.",
            python_hint="Pass trust=True if you trust the file, or gate_features= the function "
            "itself.",
        )
    return GateFeatures.from_recipe(recipe)


def _restore_pool(
    model: Model, description: Json, given: Mapping[str, Any] | None, how: Restoring
) -> None:
    entries = description["candidates"]
    for entry in entries:
        _check_fields(entry, {"name": (str,), "recipe": (dict, type(None))}, "candidate")
    names = _saved_names([entry["name"] for entry in entries])
    counts = {len(names), len(model.global_weights_), model.gate_.n_candidates}
    if len(counts) > 1:
        raise FileFormatError(
            f"The file names {len(names)} candidates and has {len(model.global_weights_)} weights; "
            f"its gate weighs {model.gate_.n_candidates}."
        )
    model.candidate_names_, model.pool_ = names, None
    strange = sorted(set(given or ()) - set(names))
    if strange:
        raise InvalidInputError(
            f"candidates has {strange}, which this model does not know; it knows "
            f"{shown(list(names))}."
        )
    if not given and (given is not None or description["without_candidates"]):
        return
    _check_all_come_back([e for e in entries if e["name"] not in (given or {})], how.trust)
    found = {entry["name"]: _find(entry, given or {}, how.folder) for entry in entries}
    model.candidates = found
    model.pool_ = Pool(found, task=model._task)
    if isinstance(model, LocalMAClassifier):
        _check_classes(model)


def _saved_names(names: list[str]) -> tuple[str, ...]:
    try:
        return check_names(names)
    except InvalidInputError as error:
        raise FileFormatError(str(error)) from error


def _check_all_come_back(entries: list[Json], trust: bool) -> None:
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
        sources = ", ".join(list(untrusted.values())[:MOST_NAMES])
        raise UntrustedFileError(
            f"{_counted(untrusted)} made from {sources}, which may run any code.",
            python_hint="Pass trust=True if you trust the file, or the models: "
            f"candidates={_as_argument(untrusted)}.",
        )


MOST_NAMES = 12
"""Names in a message; a file may have any number of candidates."""


def _sources(recipe: Json) -> str:
    """Import names, paths and addresses to which the recipe of a candidate leads."""
    fields = ("import", "path", "url", "preprocess", "inputs")
    sources = [recipe[field] for field in fields if isinstance(recipe.get(field), str)]
    return " and ".join(map(shown, sources)) or shown(recipe)


def _counted(names: Collection[str]) -> str:
    listed = ", ".join(map(shown, list(names)[:MOST_NAMES]))
    if len(names) > MOST_NAMES:
        listed += f" and {len(names) - MOST_NAMES} more"
    return f"Candidate {listed} is" if len(names) == 1 else f"Candidates {listed} are"


def _as_argument(names: Collection[str]) -> str:
    more = ", ..." if len(names) > MOST_NAMES else ""
    return "{" + ", ".join(f"{shown(n)}: model" for n in list(names)[:MOST_NAMES]) + more + "}"


def _find(entry: Json, given: Mapping[str, Any], folder: Path) -> Candidate:
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
        raise FileFormatError(f"Candidate {shown(name)}: {error}") from error


def _check_classes(model: LocalMAClassifier) -> None:
    assert model.pool_ is not None
    known = model.pool_.classes
    if known is None or known.tolist() != model.classes_.tolist():
        raise InvalidInputError(
            f"The candidates must know the classes that the model was fitted with, "
            f"{shown(model.classes_.tolist())}; together these know "
            f"{None if known is None else shown(known.tolist())}."
        )


def _restore_recorded(file: ArrayFile, names: tuple[str, ...]) -> Recorded | None:
    """What the candidates predicted for made-up inputs when they were saved."""
    recipe = file.description["probes"]
    if recipe is None:
        return None
    return Recorded.from_recipe(recipe, arrays_below(file.arrays, "probes."), names)


def _unproven(entries: list[Json], given: Mapping[str, Any]) -> list[str]:
    """Candidates that nothing but their predictions can tell; a file is known by its checksum."""
    return [
        entry["name"]
        for entry in entries
        if entry["name"] in given or "sha256" not in (entry["recipe"] or {})
    ]
