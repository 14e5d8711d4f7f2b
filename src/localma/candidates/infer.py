"""From what the user has to a candidate: a model, or a recipe out of a saved file."""

from __future__ import annotations

from typing import Any

from localma.candidates.base import Candidate, Inputs, Recipe
from localma.candidates.column import Column
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.function import FunctionCandidate
from localma.errors import FileFormatError, InvalidInputError, unknown_name

RECIPES: dict[str, type[Column] | type[FunctionCandidate]] = {
    kind.kind: kind for kind in (Column, FunctionCandidate)
}
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "column": {"columns": (list,), "classes": (list, type(None)), "cost": (int, float)},
    "function": {
        "import": (str,),
        "inputs": (list, str, type(None)),
        "classes": (list, type(None)),
        "cost": (int, float),
        "batch_size": (int, type(None)),
    },
}


def as_candidate(
    model: Any,
    *,
    inputs: Inputs = None,
    classes: Any = None,
    cost: float = 1.0,
    batch_size: int | None = None,
) -> Candidate:
    """Make a candidate of a fitted estimator or of a function.

    Parameters
    ----------
    model : a fitted object with `predict`, a function of X, or a candidate, which passes through.
    inputs : the columns it takes (names or integer positions), or a function of X. By default it
        gets X without the prediction columns.
    classes : labels of the probabilities that a function returns, in the order of its columns; for
        a fitted classifier, other labels for its own classes.
    cost : what one call costs beside the other candidates.
    batch_size : rows per call; None calls it once.

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
    _refuse_what_is_no_model(model)
    kind = EstimatorCandidate if hasattr(model, "predict") else FunctionCandidate
    return kind(model, inputs=inputs, classes=classes, cost=cost, batch_size=batch_size)


def _refuse_what_is_no_model(model: Any) -> None:
    if isinstance(model, type):
        raise InvalidInputError(
            f"A candidate is a fitted model, and {model.__name__} is a class: pass a fitted "
            f"instance, or CrossFitted({model.__name__}())."
        )
    if isinstance(model, str):
        raise InvalidInputError(
            f"A candidate is a fitted model or a function; received the string {model!r}: for a "
            f"column of X that holds predictions write Column({model!r})."
        )
    if not callable(model) and not hasattr(model, "predict"):
        raise InvalidInputError(
            "A candidate is a fitted model with a method predict, a function of X, a Column or a "
            f"CrossFitted; received {type(model).__name__}: for bare predictions pass "
            "fit(X, y, predictions=...)."
        )


def needs_trust(recipe: Recipe) -> bool:
    """Whether following the recipe runs code that it names.

    >>> needs_trust({"kind": "column", "columns": ["guess"], "classes": None, "cost": 1.0})
    False
    """
    return _kind_of(recipe).needs_trust


def from_recipe(recipe: Recipe) -> Candidate:
    """Rebuild a candidate from its recipe. Ask `needs_trust` first: this follows import names.

    >>> from_recipe({"kind": "column", "columns": ["guess"], "classes": None, "cost": 1.0})
    Column('guess')
    """
    kind = _kind_of(recipe)
    _check_fields(recipe)
    try:
        return kind.from_recipe(recipe)
    except InvalidInputError as error:
        raise FileFormatError(f"The recipe {recipe!r} cannot be followed: {error}") from error


def _kind_of(recipe: Recipe) -> type[Column] | type[FunctionCandidate]:
    kind = recipe.get("kind") if isinstance(recipe, dict) else None
    if kind not in RECIPES:
        raise FileFormatError(str(unknown_name("kind of candidate", kind, RECIPES)))
    return RECIPES[kind]


def _check_fields(recipe: Recipe) -> None:
    fields = _FIELDS[recipe["kind"]]
    if set(recipe) != {"kind", *fields}:
        raise FileFormatError(
            f"The recipe of a {recipe['kind']} must have the fields {sorted(fields)}; received "
            f"{sorted(set(recipe) - {'kind'})}."
        )
    for field, types in fields.items():
        if not isinstance(recipe[field], types) or isinstance(recipe[field], bool):
            allowed = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            raise FileFormatError(
                f"The field {field!r} in the recipe of a {recipe['kind']} must be {allowed}; "
                f"received {recipe[field]!r}."
            )
