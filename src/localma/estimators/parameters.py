"""Parameters of the estimators: their types, checks and defaults, and the gate they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import HasMethods, StrOptions, validate_parameter_constraints

from localma.candidates.outputs import Table
from localma.errors import InvalidParameterError, unknown_name
from localma.gates import EqualGate, Gate, GlobalGate, MLPGate, ShrunkGate, TreeGate
from localma.losses import Loss
from localma.own.companions import OWN_MODELS

if TYPE_CHECKING:
    from localma.estimators.base import _LocalMA

Own: TypeAlias = str | Sequence[str] | None
"""Own models: "auto" for all, or their kinds."""

Features: TypeAlias = "int | str | Sequence[int | str] | BaseEstimator | Callable[[Table], Table]"
"""Inputs of the gate: columns, a transformer, or a function of X."""

GATES: dict[str, Callable[[], Gate]] = {
    "auto": ShrunkGate,
    "local": MLPGate,
    "trees": TreeGate,
    "global": GlobalGate,
    "equal": EqualGate,
    "paper": MLPGate.paper,
}

CONSTRAINTS: dict[str, list[object]] = {
    "candidates": [Mapping, list, tuple, None],
    "loss": [str, Loss],
    "gate": [str, Gate],
    "gate_features": [
        str, Integral, list, tuple, np.ndarray, HasMethods("transform"), callable, None,
    ],
    "own": [StrOptions({"auto"}), list, tuple, None],
    "cv": ["cv_object"],
    "folds": [StrOptions({"auto", "shuffled", "blocks"})],
    "random_state": ["random_state"],
    "missing": [StrOptions({"error", "renormalize", "nan"})],
    "robust": ["boolean"],
}  # fmt: skip
"""Types and values of the parameters, in the form of scikit-learn."""

REMEDIES = {
    "candidates": "Pass candidates={'name': fitted_model, ...}.",
    "loss": "Pass a name such as 'squared_error', or a localma.losses.Loss.",
    "gate": f"Pass one of {', '.join(map(repr, GATES))}, or a Gate object such as "
    "MLPGate(hidden=(32,)).",
    "gate_features": "Pass a list of columns, a transformer or a function of X, or leave it out.",
    "own": f"Pass 'auto', or a list of {', '.join(map(repr, OWN_MODELS))}, or leave it out.",
    "cv": "Pass a number of folds from 2 on, or a splitter of scikit-learn.",
    "folds": "Pass 'auto', 'shuffled' or 'blocks'.",
    "random_state": "Pass an integer from 0 on, or None.",
    "missing": "Pass 'error', 'renormalize' or 'nan'.",
    "robust": "Pass True or False.",
}
"""What to do about a parameter of the wrong type or value."""


def validate_params(model: _LocalMA) -> None:
    """Check types and ranges of the parameters, unless scikit-learn is set not to."""
    if get_config()["skip_parameter_validation"]:
        return
    for name, value in model.get_params(deep=False).items():
        try:
            validate_parameter_constraints(
                model._parameter_constraints, {name: value}, type(model).__name__
            )
        except ValueError as error:
            raise InvalidParameterError(f"{error} {REMEDIES[name]}") from None


def make_gate(model: _LocalMA, random: np.random.RandomState) -> Gate:
    """Make the gate to fit, with a seed unless the user set one."""
    if isinstance(model.gate, Gate):
        gate: Gate = clone(model.gate)
    elif model.gate in GATES:
        gate = GATES[model.gate]()
    else:
        raise unknown_name("gate", model.gate, GATES)
    if gate.get_params(deep=False).get("cv", False) is None:
        gate.set_params(cv=model.cv)
    seed = int(random.randint(np.iinfo(np.int32).max))
    if gate.get_params().get("random_state", seed) is None:
        gate.set_params(random_state=seed)
    return gate


def own_kinds(model: _LocalMA) -> list[str]:
    """Kinds of the own models to add; empty if there are none."""
    if model.own is None:
        return []
    if model.own == "auto":
        return list(OWN_MODELS)
    for kind in model.own:
        if kind not in OWN_MODELS:
            raise unknown_name("own model", kind, OWN_MODELS)
    return [kind for kind in OWN_MODELS if kind in model.own]
