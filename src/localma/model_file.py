"""Saving and loading models: one file of arrays with a JSON description, without pickle.

Arrays hold the learnt numbers. The description holds everything else: parameters, names, labels,
and a recipe for each candidate that has one. Recipes that run code or open files and addresses are
followed only if the caller trusts the file. `localma.storage.array_file` reads and writes the file.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Float64
from localma.candidates import (
    Candidate,
    CrossFitted,
    Pool,
    Recipe,
    Stacked,
    Supplied,
    as_candidate,
    from_recipe,
    recipe_beside,
)
from localma.candidates.outputs import OutputNames, as_labels, check_names, check_saved_labels
from localma.checks.cautions import WARNINGS, Caution
from localma.checks.training_rows import SampleLosses
from localma.dependence import Dependence
from localma.dependence import Kind as DependenceKind
from localma.errors import FileFormatError, InvalidInputError, LocalMAError, UntrustedFileError
from localma.estimators import Features, LocalMAClassifier, LocalMARegressor
from localma.gates import Gate
from localma.gates.base import arrays_below, is_number, numbered_arrays, simplex_weights
from localma.gates.heirs import Heirs
from localma.gates.left_out import LeftOut
from localma.gates.recipes import Restoring, describe_gate, restore_gate
from localma.gates.reduced import ReducedGate
from localma.losses import Loss, get_loss, is_registered
from localma.own.companions import OWN_MODELS, restore_own, saved_own
from localma.own.shared_error import SharedError
from localma.probes import Recorded, check_candidates
from localma.production.changes import Change, Kind
from localma.production.options import Missing
from localma.reference import Reference
from localma.storage.array_file import ArrayFile, Arrays, Json, read, shown, to_bytes
from localma.storage.whole_files import write_whole
from localma.tables.encoder import GateFeatures

Model = LocalMARegressor | LocalMAClassifier
Models: TypeAlias = Mapping[str, Any]
"""Candidates by name: anything that `as_candidate` takes."""
GateCode: TypeAlias = Gate | Callable[..., object]
"""A gate, a PyTorch module, or a function that makes a module."""
Types = dict[str, tuple[type, ...]]

ESTIMATORS = {kind.__name__: kind for kind in (LocalMARegressor, LocalMAClassifier)}
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
    "production": (dict, type(None)),
    "notes": (dict,),
}
"""Fields of the description and their types in JSON."""
OPTIONAL_FIELDS: Types = {"own": (list,), "changes": (list,), "reference": (dict,)}
"""Fields of the description that only some models have."""
OWN_FIELDS: Types = {"name": (str,), "kind": (str,), "candidates": (list,)}
"""Fields of an own model: its name, its kind, and the candidates whose predictions it takes."""
EVIDENCE_FIELDS: Types = {
    "cautions": (list,),
    "dependence": (dict, type(None)),
    "constant_prediction": (list, type(None)),
    "sample_losses": (dict, type(None)),
}
"""Fields of the evidence: results of the fit other than the weights."""
OPTIONAL_EVIDENCE: Types = {"shared_error": (dict,)}
"""Fields of the evidence that only some models have."""
SHARED_ERROR_FIELDS: Types = {
    "gain": (float, int),
    "standard_error": (float, int),
    "risk": (float, int),
}
"""Fields of the error that the candidates share."""
DEPENDENCE_FIELDS: Types = {
    "kind": (str,),
    "correlation": (float, int),
    "reach": (int,),
    "column": (str, type(None)),
}
"""Fields of the dependence between rows of the labelled sample."""
LOSSES_FIELDS: Types = {"mean": (list,), "standard_error": (list,), "n": (int, float)}
"""Fields of the candidates' losses on the labelled sample."""

PRODUCTION_FIELDS: Types = {
    "missing": (str,),
    "robust": (bool,),
    "largest_gap": (list, type(None)),
}
"""What answers in production need: how to treat missing predictions, and how candidates differ."""

CHANGE_FIELDS: Types = {
    "kind": (str,),
    "candidate": (str,),
    "date": (str,),
    "rows": (int, type(None)),
}
"""Fields of a change of the pool after the fit."""

OWNERS = ("gate.", "probes.", "left_out.", "heirs.", "own.", "reference.")
"""Beginnings of the names of arrays."""

LONGEST_MESSAGE = 1_000
"""Characters of an error that `load` raises; a file could make it as long as itself."""
MOST_NAMES = 12
"""Names in a message; a file may have any number of candidates."""


def save(
    model: Model,
    path: str | os.PathLike[str],
    *,
    notes: Mapping[str, str] | None = None,
    probes: bool = True,
) -> None:
    """Write a fitted model to one file, whole or not at all.

    Candidates that can be described (columns, importable functions, files) are saved as recipes.
    Pass all other candidates to `load` again, by name. The same holds for a transformer in
    `gate_features`.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    path : str or path
        The file.
    notes : dict of str -> str, optional
        Further texts, such as the name of the target; `load` returns them as `notes_`.
    probes : bool
        Whether to save the candidates' predictions for 16 made-up inputs, so that `load`
        recognises each candidate. The inputs are made from the ranges of the columns and from
        frequent categories. No row of the sample is saved. Each candidate runs twice on 16 rows.
    """
    check_is_fitted(model)
    if ESTIMATORS.get(type(model).__name__) is not type(model):
        raise InvalidInputError(
            f"Only {' and '.join(ESTIMATORS)} can be saved; received a {type(model).__name__}. "
            "Pickle your own class."
        )
    description = _describe(model, Path(path).parent, dict(notes or {}))
    arrays: Arrays = {"global_weights": model.global_weights_}
    arrays |= {f"gate.{name}": array for name, array in model.gate_.arrays().items()}
    if model.left_out_ is not None:
        arrays |= {f"left_out.{name}": array for name, array in model.left_out_.arrays().items()}
    if model.heirs_ is not None:
        arrays |= {f"heirs.{name}": array for name, array in model.heirs_.arrays().items()}
    if probes and model.probes_ is not None and model.pool_ is not None:
        recorded = Recorded.of(model.probes_, model.pool_)
        description["probes"] = recorded.recipe()
        arrays |= {f"probes.{name}": array for name, array in recorded.arrays().items()}
    if model.reference_ is not None:
        description["reference"] = model.reference_.recipe()
        arrays |= {f"reference.{name}": a for name, a in model.reference_.arrays().items()}
    own = saved_own(model.pool_)
    for k, saved in enumerate(own):
        arrays |= {f"own.{k}.{name}": array for name, array in saved.arrays.items()}
    if own:
        description["own"] = [
            {field: getattr(saved, field) for field in OWN_FIELDS} for saved in own
        ]
    write_whole(Path(path), to_bytes(description, arrays))


def load(
    path: str | os.PathLike[str],
    candidates: Models | None = None,
    *,
    gate: GateCode | None = None,
    gate_features: Features | None = None,
    loss: Loss | None = None,
    trust: bool = False,
    probes: bool = True,
    folder: str | os.PathLike[str] | None = None,
) -> Model:
    """Read a model that `save` wrote.

    With ``trust=False`` it runs no code from the file, opens no other file and connects to
    nothing. It raises a `LocalMAError`, or an `OSError` if the file cannot be read.

    Parameters
    ----------
    path : str or path
        The file.
    candidates : dict of str -> model, optional
        Models by name, for candidates without a recipe in the file, or to replace a recipe. An
        empty dict attaches none: then `predict` needs `predictions=`. The same holds after a fit
        on predictions alone, which needs no candidates here.
    gate : Gate, torch.nn.Module or function, optional
        The PyTorch module of the gate, or the function that makes it, if the file cannot name it;
        or the whole gate, as it was before it was fitted.
    gate_features : transformer or function, optional
        The fitted transformer or the function, if the file cannot describe it.
    loss : Loss, optional
        Your own loss, which is not saved. Prediction works without it.
    trust : bool
        Whether to follow recipes that run code, and to open paths and addresses. Only for files
        from people you trust.
    probes : bool
        Whether to compare the predictions of each candidate with the saved ones, for a few
        made-up inputs. A candidate whose predictions differ is refused (`ChangedCandidateError`).
    folder : str or path, optional
        The folder to which paths of candidates in the file are relative. By default that of the
        file.

    Returns
    -------
    LocalMARegressor or LocalMAClassifier
        The fitted model.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from localma import Column
    >>> X = np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 1.0], [2.0, 4.0, 1.0], [3.0, 6.0, 1.0]])
    >>> candidates = {"twice": Column(1), "one": Column(2)}
    >>> model = LocalMARegressor(candidates, gate="equal").fit(X, [0.0, 2.0, 1.0, 4.0])
    >>> with TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.localma")
    ...     load(f"{folder}/model.localma").predict(X[:2]).tolist()
    [0.5, 1.5]
    """
    if candidates is not None and not isinstance(candidates, Mapping):
        raise InvalidInputError(
            f"candidates must be a dict from name to model; received a {type(candidates).__name__}."
        )
    try:
        file = read(Path(path))
        how = Restoring(trust, Path(path).parent if folder is None else Path(folder), gate)
        model = _restore(file, how)
        description = file.description
        model.loss_ = model.loss = _restore_loss(description["loss"], loss)
        features = _restore_features(description["gate_features"], gate_features, trust)
        model.gate_features_, model.gate_features = features, features.spec
        needs_inputs = model.gate_.needs_inputs or "own" in description
        features.raw, features.needed = model.gate_.raw_inputs, needs_inputs
        own = _restore_own(model, description, arrays_below(file.arrays, "own."))
        _restore_pool(model, description, candidates, own, how)
        model.probes_ = None
        if description["probes"] is not None:
            arrays = arrays_below(file.arrays, "probes.")
            recorded = Recorded.from_recipe(description["probes"], arrays, model.candidate_names_)
            model.probes_ = recorded.probes
            if probes and model.pool_ is not None:
                names = _without_checksum(description["candidates"], candidates or {})
                check_candidates(recorded, model.pool_, names)
        return model
    except (LocalMAError, OSError) as error:
        _shorten(error)
        raise
    except Exception as error:
        # Whatever a file makes NumPy, PyTorch or this module raise, the file is at fault.
        raise FileFormatError(
            f"{path} does not have the form of a saved model ({type(error).__name__}: "
            f"{str(error)[:300]}). Save the model again."
        ) from _shorten(error)


def inspect(path: str | os.PathLike[str]) -> ArrayFile:
    """Checksum, description and types of the arrays of a saved model; nothing is restored."""
    try:
        file = read(Path(path), with_arrays=False)
        _check_description(file.description)
    except LocalMAError as error:
        _shorten(error)
        raise
    return file


def _shorten(error: Exception) -> Exception:
    """Cut the messages of an error and of its causes to a readable length."""
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


# Writing.


def _describe(model: Model, folder: Path, notes: dict[str, str]) -> Json:
    description: Json = dict.fromkeys(FIELDS)
    description |= {
        "estimator": type(model).__name__,
        "loss": _describe_loss(model.loss_),
        "gate": describe_gate(model.gate_, folder),
        "gate_features": model.gate_features_.recipe(),
        "candidates": _describe_candidates(model, folder),
        "without_candidates": model.pool_ is None or bool(model.pool_.supplied_names),
        "n_features_in": getattr(model, "n_features_in_", None),
        "n_outputs": getattr(model, "n_outputs_", None),
        "output_names": model.output_names_,
        "evidence": _describe_evidence(model),
        "production": _describe_production(model),
        "notes": notes,
    }
    if model.changes_:
        description["changes"] = [asdict(change) for change in model.changes_]
    if hasattr(model, "feature_names_in_"):
        description["feature_names_in"] = [str(name) for name in model.feature_names_in_]
    if isinstance(model, LocalMAClassifier):
        description["classes"] = model.classes_.tolist()
        description["classes_dtype"] = model.classes_.dtype.str
    return description


def _describe_evidence(model: Model) -> Json:
    evidence: Json = dict.fromkeys(EVIDENCE_FIELDS)
    evidence["cautions"] = [asdict(caution) for caution in model.cautions_]
    if model.dependence_ is not None:
        evidence["dependence"] = asdict(model.dependence_)
    if model.constant_prediction_ is not None:
        evidence["constant_prediction"] = [float(number) for number in model.constant_prediction_]
    losses = model.sample_losses_
    if losses is not None:
        mean, error = _finite_or_null(losses.mean), _finite_or_null(losses.standard_error)
        evidence["sample_losses"] = {"n": losses.n, "mean": mean, "standard_error": error}
    if model.shared_error_ is not None:
        evidence["shared_error"] = asdict(model.shared_error_)
    return evidence


def _describe_production(model: Model) -> Json:
    gap = model.largest_gap_
    return {
        "missing": model.missing,
        "robust": model.left_out_ is not None,
        "largest_gap": None if gap is None else [float(number) for number in gap],
    }


def _finite_or_null(values: Array) -> list[float | None]:
    """Numbers for JSON, which has neither NaN nor infinity."""
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _describe_loss(loss: Loss) -> Json:
    if is_registered(loss):
        saved: Json = {"name": loss.name, "parameters": dict(loss.parameters), "own": False}
        if loss.output_weight:
            saved["output_weight"] = list(loss.output_weight)
        return saved
    return {"name": loss.name, "parameters": {}, "own": True}


def _describe_candidates(model: Model, folder: Path) -> list[Json]:
    if model.pool_ is None:
        return [{"name": name, "recipe": None} for name in model.candidate_names_]
    recipes = [recipe_beside(candidate, folder) for candidate in model.pool_.candidates]
    return [
        {"name": name, "recipe": recipe and recipe.to_json()}
        for name, recipe in zip(model.pool_.names, recipes, strict=True)
    ]


# Reading.


def _check_fields(
    received: object, fields: Types, owner: str, optional: Types | None = None
) -> None:
    if isinstance(received, dict) and optional is not None:
        fields = fields | {name: kinds for name, kinds in optional.items() if name in received}
    if not isinstance(received, dict) or set(received) != set(fields):
        names = sorted(received) if isinstance(received, dict) else received
        raise FileFormatError(
            f"The {owner} must have fields {sorted(fields)}; received {shown(names)}."
        )
    for name, kinds in fields.items():
        value = received[name]
        # In Python a truth value is an integer too.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise FileFormatError(
                f"The field {name!r} of the {owner} has the wrong type: {shown(value)}."
            )


def _check_description(description: Json) -> None:
    """Refuse a description with wrong fields; files from before answers in production lack one."""
    description.setdefault("production", None)
    _check_fields(description, FIELDS, "description", OPTIONAL_FIELDS)


def _check_arrays(arrays: Arrays) -> None:
    if "global_weights" not in arrays:
        raise FileFormatError("The array 'global_weights' is missing.")
    for name, array in arrays.items():
        if name != "global_weights" and not name.startswith(OWNERS):
            raise FileFormatError(f"The file has an unknown array {shown(name)}.")
        # An unknown risk is NaN.
        may_be_nan = name.removeprefix("gate.").removeprefix("base.").startswith(("path.", "gain"))
        if array.dtype.kind == "f" and not may_be_nan and not np.isfinite(array).all():
            raise FileFormatError(f"The array {shown(name)} has values that are not finite.")


def _check_names(names: list[Json], number: int | None, owner: str) -> None:
    """Refuse names of columns or outputs that are not `number` different strings."""
    if not all(isinstance(name, str) for name in names) or not (
        len(set(names)) == len(names) == number
    ):
        raise FileFormatError(
            f"The names of {shown(number)} {owner} must be as many different strings; the file has "
            f"{shown(names)}."
        )


def _restore(file: ArrayFile, how: Restoring) -> Model:
    """The model without its loss, its inputs and its candidates."""
    description, arrays = file.description, file.arrays
    _check_description(description)
    _check_arrays(arrays)
    if description["estimator"] not in ESTIMATORS:
        raise FileFormatError(f"Unknown estimator {shown(description['estimator'])}.")
    model: Model = ESTIMATORS[description["estimator"]]()
    model.gate_ = restore_gate(description["gate"], arrays_below(arrays, "gate."), how)
    model.gate = model.gate_
    if isinstance(model.gate_, ReducedGate):
        model.gate = model.gate_.fitted_base
    heirs = arrays_below(arrays, "heirs.")
    model.heirs_ = Heirs.restore(heirs, model.gate_) if heirs else None
    model.changes_ = tuple(map(_restore_change, description.get("changes", [])))
    model.global_weights_ = simplex_weights(arrays["global_weights"], "global_weights")
    model.mean_weights_ = None
    _restore_inputs(model, description)
    _restore_outputs(model, description)
    evidence = description["evidence"]
    _check_fields(evidence, EVIDENCE_FIELDS, "evidence", OPTIONAL_EVIDENCE)
    model.cautions_ = tuple(map(_restore_caution, evidence["cautions"]))
    model.dependence_ = _restore_dependence(evidence["dependence"])
    model.constant_prediction_ = _restore_constant(model, evidence["constant_prediction"])
    model.sample_losses_ = _restore_losses(evidence["sample_losses"], model.gate_.n_candidates)
    _restore_production(model, description["production"], arrays_below(arrays, "left_out."))
    model.shared_error_ = _restore_shared_error(evidence.get("shared_error"))
    model.reference_ = None  # in files from before monitors
    if "reference" in description:
        saved = arrays_below(arrays, "reference.")
        model.reference_ = Reference.restore(description["reference"], saved)
    notes = description["notes"]
    if not all(isinstance(text, str) for text in notes.values()):
        raise FileFormatError(f"Notes must be texts; the file has {shown(notes)}.")
    model.notes_ = notes
    return model


def _restore_production(model: Model, saved: Json, arrays: Arrays) -> None:
    """How to treat missing predictions, the weights without each candidate, and their gap."""
    if saved is None:
        saved = {"missing": "error", "robust": False, "largest_gap": None}
    _check_fields(saved, PRODUCTION_FIELDS, "production")
    if saved["missing"] not in get_args(Missing):
        raise FileFormatError(f"Missing predictions cannot be {shown(saved['missing'])}.")
    model.missing, model.robust = saved["missing"], saved["robust"]
    model.left_out_ = LeftOut.restore(arrays, model.gate_) if saved["robust"] else None
    if arrays and not saved["robust"]:
        raise FileFormatError("The file has weights without candidates, but is not robust.")
    gap, K = saved["largest_gap"], _n_outputs(model)
    if gap is not None and (len(gap) != K or not all(is_number(value) for value in gap)):
        raise FileFormatError(f"The largest gap is {K} numbers; received {shown(gap)}.")
    model.largest_gap_ = None if gap is None else np.array(gap, dtype=np.float64)


def _n_outputs(model: Model) -> int:
    return len(model.classes_) if isinstance(model, LocalMAClassifier) else model.n_outputs_


def _restore_inputs(model: Model, description: Json) -> None:
    number, names = description["n_features_in"], description["feature_names_in"]
    if number is not None:
        if not 0 <= number < 2**31:
            raise FileFormatError(f"The file says that X has {shown(number)} columns.")
        model.n_features_in_ = number
    if names is not None:
        _check_names(names, number, "columns")
        model.feature_names_in_ = np.array(names, dtype=object)


def _restore_outputs(model: Model, description: Json) -> None:
    number, names = description["n_outputs"], description["output_names"]
    if number is not None and number < 1:
        raise FileFormatError(f"A model has at least one output; the file says {shown(number)}.")
    model.output_names_ = None
    if names is not None:
        _check_names(names, number, "outputs")
        model.output_names_ = tuple(names)
    if isinstance(model, LocalMARegressor) and number is not None:
        model.n_outputs_ = number
    if isinstance(model, LocalMAClassifier):
        if not description["classes"]:
            raise FileFormatError("A classifier needs its classes; the file has none.")
        model.classes_ = _restore_labels(description["classes"], description["classes_dtype"])


_LABEL_DTYPE = re.compile(r"[<>|=]?(?:[biuf][1248]|U([1-9]\d{0,7}))")


def _restore_labels(labels: list[Any], dtype: str | None) -> AnyArray:
    """Class labels of exactly the type that they had, because comparisons depend on it."""
    match = _LABEL_DTYPE.fullmatch(dtype or "")
    message = f"The classes {shown(labels)} are not of type {shown(dtype)}"
    if match is None:
        raise FileFormatError(f"{message}.")
    check_saved_labels(labels, int(match[1] or 0))
    try:
        restored: AnyArray = np.array(labels, dtype=np.dtype(dtype))
        if as_labels(restored).tolist() != labels:
            raise FileFormatError(f"{message}.")
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{message}: {str(error)[:200]}.") from error
    return restored


def _restore_dependence(saved: Json) -> Dependence | None:
    if saved is None:
        return None
    _check_fields(saved, DEPENDENCE_FIELDS, "dependence of rows")
    if saved["kind"] not in get_args(DependenceKind) or not 0 <= saved["reach"] < 2**53:
        raise FileFormatError(
            f"The file has an unknown dependence of rows: {shown(saved['kind'])}, "
            f"{shown(saved['reach'])} rows."
        )
    return Dependence(**saved)


def _restore_caution(saved: Json) -> Caution:
    _check_fields(saved, {"kind": (str,), "sentence": (str,), "names": (list,)}, "caution")
    kind, names = saved["kind"], saved["names"]
    if kind not in WARNINGS:
        raise FileFormatError(f"Unknown caution {shown(kind)}; known: {sorted(WARNINGS)}.")
    if not all(isinstance(name, str) for name in names):
        raise FileFormatError(f"The names of a caution must be strings; received {shown(names)}.")
    return Caution(kind, saved["sentence"], tuple(names))


def _restore_change(saved: Json) -> Change:
    _check_fields(saved, CHANGE_FIELDS, "change of the pool")
    if saved["kind"] not in get_args(Kind):
        raise FileFormatError(f"The file has an unknown change {shown(saved['kind'])}.")
    return Change(**saved)


def _restore_constant(model: Model, saved: list[Any] | None) -> Float64 | None:
    if saved is None:
        return None
    K = _n_outputs(model)
    if len(saved) != K or not all(is_number(number) for number in saved):
        raise FileFormatError(f"A constant prediction is {K} numbers; received {shown(saved)}.")
    return np.array(saved, dtype=np.float64)


def _restore_losses(saved: Json | None, M: int) -> SampleLosses | None:
    if saved is None:
        return None
    _check_fields(saved, LOSSES_FIELDS, "sample_losses")
    columns = [saved["mean"], saved["standard_error"]]
    valid = all(value is None or is_number(value) for column in columns for value in column)
    if not valid or any(len(column) != M for column in columns) or not saved["n"] > 0:
        raise FileFormatError(
            f"Losses on the sample are {M} numbers and their standard errors; received "
            f"{shown(saved)}."
        )
    mean, error = (np.array(column, dtype=np.float64) for column in columns)
    return SampleLosses(mean, error, float(saved["n"]))


def _restore_shared_error(saved: Json | None) -> SharedError | None:
    if saved is None:
        return None
    _check_fields(saved, SHARED_ERROR_FIELDS, "shared error")
    if not all(is_number(number) for number in saved.values()):
        raise FileFormatError(f"A shared error has finite numbers; received {shown(saved)}.")
    return SharedError(**saved)


def _restore_loss(saved: Json, loss: Loss | None) -> Loss:
    fields: Types = {"name": (str,), "parameters": (dict,), "own": (bool,)}
    if isinstance(saved, dict) and "output_weight" in saved:
        fields = {**fields, "output_weight": (list,)}
    _check_fields(saved, fields, "loss")
    name, is_own = saved["name"], saved["own"]
    if loss is not None and (not is_own or loss.name != name):
        note = "" if is_own else ", which comes back by itself"
        raise InvalidInputError(
            f"loss= must be your own loss that the model was fitted with; received {loss!r}, and "
            f"the file has {shown(name)}{note}."
        )
    if is_own:
        return loss or Loss(name, _refuse_lost_loss, _refuse_lost_loss)
    try:
        found = get_loss(name, **saved["parameters"])
        weight = tuple(float(number) for number in saved.get("output_weight", ()))
        if not all(0.0 < number < math.inf for number in weight):
            raise ValueError(f"weights of outputs must be positive; received {weight}")
        return replace(found, standardize=bool(weight), output_weight=weight)
    except (InvalidInputError, TypeError, ValueError) as error:
        raise FileFormatError(f"The loss of this file cannot be made: {error}") from error


def _refuse_lost_loss(y: Array, mu: Array) -> NoReturn:
    raise InvalidInputError(
        "Your own loss is not saved, and prediction does not need it. To fit or judge "
        "again, pass it when you load the model: load(path, loss=...)."
    )


def _restore_features(recipe: Json, attached: Features | None, trust: bool) -> GateFeatures:
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


# Candidates.


def _restore_own(model: Model, description: Json, arrays: Arrays) -> dict[str, Candidate]:
    """Own models by name. They need the inputs of the gate, and no trust."""
    entries, states = description.get("own", []), numbered_arrays(arrays, "")
    if len(entries) != len(states):
        raise FileFormatError(
            f"The file describes {len(entries)} own models and has the arrays of {len(states)}."
        )
    classes = getattr(model, "classes_", None)
    n_outputs = model.n_outputs_ if classes is None else len(classes)
    restored: dict[str, Candidate] = {}
    for entry, state in zip(entries, states, strict=True):
        _check_fields(entry, OWN_FIELDS, "own model")
        if entry["kind"] not in OWN_MODELS:
            raise FileFormatError(f"Unknown own model {shown(entry['kind'])}.")
        restored[entry["name"]] = restore_own(
            entry["kind"],
            state,
            _saved_names(entry["candidates"]),
            loss=model.loss_,
            inputs=model.gate_features_.transform,
            classes=classes,
            n_outputs=n_outputs,
            outputs=OutputNames(model.output_names_, "the fit"),
        )
    return restored


def _restore_pool(
    model: Model,
    description: Json,
    attached: Models | None,
    own: dict[str, Candidate],
    how: Restoring,
) -> None:
    entries = description["candidates"]
    for entry in entries:
        _check_fields(entry, {"name": (str,), "recipe": (dict, type(None))}, "candidate")
    names = _saved_names([entry["name"] for entry in entries])
    if not len(names) == len(model.global_weights_) == model.gate_.n_candidates:
        raise FileFormatError(
            f"The file names {len(names)} candidates and has {len(model.global_weights_)} weights; "
            f"its gate weighs {model.gate_.n_candidates}."
        )
    model.candidate_names_, model.pool_ = names, None
    entries = [entry for entry in entries if entry["name"] not in own]
    to_pass = [entry["name"] for entry in entries]
    used = {n for c in own.values() if isinstance(c, Stacked) for n in c.columns.candidates}
    if set(names) != {*to_pass, *own} or not used <= set(to_pass):
        raise FileFormatError("The own models of this file belong to other candidates.")
    unknown = sorted(set(attached or ()) - set(to_pass))
    if unknown:
        raise InvalidInputError(
            f"candidates has {unknown}, which this model does not know; it knows {shown(to_pass)}."
        )
    candidates: dict[str, Candidate] = {}
    if not attached and (attached is not None or description["without_candidates"]):
        if not own:
            return
        labels = getattr(model, "classes_", None)
        candidates = {name: Supplied(name, labels) for name in to_pass}
    else:
        attached = attached or {}
        _check_all_come_back([e for e in entries if e["name"] not in attached], how.trust)
        candidates = {e["name"]: _restore_candidate(e, attached, how.folder) for e in entries}
        model.candidates = candidates
    model.own = [entry["kind"] for entry in description.get("own", [])] or None
    model.pool_ = Pool({name: (candidates | own)[name] for name in names}, task=model._task)
    if isinstance(model, LocalMAClassifier):
        _check_classes(model.classes_, model.pool_)


def _saved_names(names: list[str]) -> tuple[str, ...]:
    try:
        return check_names(names)
    except InvalidInputError as error:
        raise FileFormatError(str(error)) from error


def _check_all_come_back(entries: list[Json], trust: bool) -> None:
    """Refuse candidates that are not in the file, or need trust; name all of them."""
    missing = [entry["name"] for entry in entries if entry["recipe"] is None]
    if missing:
        raise InvalidInputError(
            f"{_counted(missing)} not saved in the file.",
            python_hint=f"Pass the models again: load(path, candidates={_as_argument(missing)}). "
            "To predict without models, pass candidates={} here and predictions= to predict.",
        )
    if trust:
        return
    recipes = {entry["name"]: Recipe.from_json(entry["recipe"]) for entry in entries}
    untrusted = {name: recipe for name, recipe in recipes.items() if recipe.needs_trust}
    if untrusted:
        sources = ", ".join(map(_sources, list(untrusted.values())[:MOST_NAMES]))
        raise UntrustedFileError(
            f"{_counted(untrusted)} made from {sources}, which may run any code.",
            python_hint="Pass trust=True if you trust the file, or the models: "
            f"candidates={_as_argument(untrusted)}.",
        )


def _sources(recipe: Recipe) -> str:
    """Import names, paths and addresses to which the recipe of a candidate leads."""
    return " and ".join(map(shown, recipe.sources())) or shown(recipe.to_json())


def _counted(names: Collection[str]) -> str:
    listed = ", ".join(map(shown, list(names)[:MOST_NAMES]))
    if len(names) == 1:
        return f"Candidate {listed} is"
    if len(names) > MOST_NAMES:
        listed += f" and {len(names) - MOST_NAMES} more"
    return f"Candidates {listed} are"


def _as_argument(names: Collection[str]) -> str:
    items = [f"{shown(name)}: model" for name in names][:MOST_NAMES]
    if len(names) > MOST_NAMES:
        items.append("...")
    return "{" + ", ".join(items) + "}"


def _restore_candidate(entry: Json, attached: Models, folder: Path) -> Candidate:
    name = entry["name"]
    if name in attached:
        if isinstance(attached[name], CrossFitted):
            raise InvalidInputError(
                f"Candidate {name!r} must come back fitted, not as a CrossFitted. Pass the model "
                "that was fitted on all rows. It is in model.pool_.candidates, and you can store "
                "it as you store your other models."
            )
        return as_candidate(attached[name])
    try:
        return from_recipe(Recipe.from_json(entry["recipe"]), folder)
    except FileFormatError as error:
        raise FileFormatError(f"Candidate {shown(name)}: {error}") from error


def _check_classes(classes: AnyArray, pool: Pool) -> None:
    received = None if pool.classes is None else pool.classes.tolist()
    if received != classes.tolist():
        raise InvalidInputError(
            f"The candidates must know the classes that the model was fitted with, "
            f"{shown(classes.tolist())}; together these know {shown(received)}."
        )


def _without_checksum(entries: list[Json], attached: Models) -> list[str]:
    """Names of candidates that only their predictions can identify."""
    return [
        entry["name"]
        for entry in entries
        if entry["name"] in attached or "sha256" not in (entry["recipe"] or {})
    ]
