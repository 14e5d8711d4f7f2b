"""Regression or classification: which of them a target asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.cli.app import wrong_call
from localma.cli.roles import are_complete
from localma.errors import InvalidInputError
from localma.losses import Loss, get_loss

TASKS = ("auto", "regression", "classification")
LABEL_LOSSES = ("cross_entropy", "brier")
MOST_CLASSES = 20
"""Whole numbers with more values than this are not asked about."""


def check_loss(name: str | None, task: str) -> Loss | None:
    """The loss that is asked for, if any; it must go with the task."""
    if task not in TASKS:
        raise wrong_call(f"--task must be auto, regression or classification; received {task!r}.")
    if name is None:
        return None
    try:
        loss = get_loss(name)
    except InvalidInputError as error:
        raise wrong_call(f"--loss: {error.plain}") from error
    if task == "regression" and loss.name in LABEL_LOSSES:
        raise wrong_call(
            f"--loss {name} is for classes, and --task is regression. Leave one of them out, or "
            "use --loss bernoulli for numbers between 0 and 1."
        )
    return loss


def classes_of(
    target: Any,
    name: str,
    *,
    task: str,
    loss: Loss | None,
    positive: str | None,
    columns: Sequence[str],
) -> NDArray[Any] | None:
    """Classes of the target, in order; None for a regression.

    columns : those that hold predictions.
    """
    import pyarrow.types as kinds

    kind = target.type
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_dictionary(kind)
    if task == "regression":
        if is_text:
            raise wrong_call(f"--task regression needs numbers, and {name!r} holds text.")
        return None
    if is_text and task == "auto":
        _refuse_numbers_with_words(target, name)
    asked = task == "classification" or (loss is not None and loss.name in LABEL_LOSSES)
    if is_text or kinds.is_boolean(kind) or asked:
        return np.unique(target.to_numpy())
    labels = target.unique().sort().to_pylist()
    if positive is not None and len(labels) == 2:
        return np.unique(target.to_numpy())
    if loss is None and _could_be_classes(labels, columns):
        raise _unclear(name, labels)
    return None


def _could_be_classes(labels: list[Any], columns: Sequence[str]) -> bool:
    """Whether numbers may be classes: there are two, or the columns are named after them."""
    if len(labels) == 2:
        return True
    whole = all(float(label).is_integer() for label in labels)
    return 2 < len(labels) <= MOST_CLASSES and whole and are_complete(columns, labels)


def _unclear(name: str, labels: list[Any]) -> Exception:
    shown = " and ".join(f"{label:g}" for label in labels)
    hold = f"the predictions are probabilities of {labels[-1]:g}"
    if len(labels) > 2:
        shown = f"{labels[0]:g}, {labels[1]:g}, ..., {labels[-1]:g}"
        hold = "the predictions are a probability for each of them"
    return wrong_call(
        f"--task: the target {name!r} has only the values {shown}. Add --task classification if "
        f"they are classes: {hold}, and the loss is cross_entropy. Add --task regression if they "
        "are numbers: the predictions are such numbers, and the loss is squared_error."
    )


def _refuse_numbers_with_words(target: Any, name: str) -> None:
    """Refuse a target that is a number in most rows: the other cells are mistakes."""
    values = [str(value) for value in target.to_pylist()]
    wrong = [value for value in values if not _reads_as_number(value)]
    if wrong and len(wrong) < len(values) / 2:
        raise wrong_call(
            f"--target: {name!r} holds numbers, but for {len(wrong)} of {len(values)} cells, such "
            f"as {wrong[0]!r}. Correct them, leave them empty, add --na {wrong[0]!r} if they are "
            "missing, or --task classification if all are classes."
        )


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
