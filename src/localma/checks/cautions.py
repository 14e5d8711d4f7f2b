"""Cautions: reasons to doubt a fitted model, and the warnings that they raise."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from localma.errors import (
    LeakageWarning,
    LocalMAWarning,
    OutsideSampleWarning,
    TrainedOnSampleWarning,
    WorseThanConstantWarning,
)

Kind = Literal["worse_than_constant", "trained_on_sample", "leakage", "outside_sample"]

WARNINGS: dict[Kind, type[LocalMAWarning]] = {
    "worse_than_constant": WorseThanConstantWarning,
    "trained_on_sample": TrainedOnSampleWarning,
    "leakage": LeakageWarning,
    "outside_sample": OutsideSampleWarning,
}

MOST_NAMES = 5
"""Names that a sentence lists; it only counts the remaining ones."""


@dataclass(frozen=True)
class Caution:
    """One reason to doubt a fitted model.

    Parameters
    ----------
    kind : str
        A key of `WARNINGS`.
    sentence : str
        What is wrong, how it was measured, and what to do, in complete sentences.
    names : tuple of str
        The candidates or columns that the sentence names.

    Examples
    --------
    >>> Caution("leakage", "Column 'price' predicts the target.", ("price",)).names
    ('price',)
    """

    kind: Kind
    sentence: str
    names: tuple[str, ...] = ()


def warn(cautions: Iterable[Caution]) -> None:
    """Issue each caution as a warning of its kind, at the first caller outside localma.

    >>> with warnings.catch_warnings(record=True) as issued:
    ...     warnings.simplefilter("always")
    ...     warn([Caution("leakage", "Column 'price' predicts the target.", ("price",))])
    >>> issued[0].category.__name__
    'LeakageWarning'
    """
    for caution in cautions:
        warnings.warn(caution.sentence, WARNINGS[caution.kind], stacklevel=_depth_in_localma() + 1)


def _depth_in_localma() -> int:
    """Count the calls between the user's code and the caller of this function."""
    frame, depth = sys._getframe(1), 0
    while frame.f_globals.get("__name__", "").startswith("localma.") and frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def list_names(names: Sequence[str], conjunction: str = "and") -> str:
    """Write names in quotes, the last one after a conjunction; count the names after the fifth.

    >>> list_names(["a"]), list_names(["a", "b", "c"], "or")
    ("'a'", "'a', 'b' or 'c'")
    """
    items = [repr(name) for name in names[:MOST_NAMES]]
    if len(names) > MOST_NAMES:
        items.append(f"{len(names) - MOST_NAMES} more")
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])} {conjunction} {items[-1]}"
