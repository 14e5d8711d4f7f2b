"""Cautions: reasons to doubt a fitted model, each with the warning that it raises."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
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


@dataclass(frozen=True)
class Caution:
    """One reason to doubt a fitted model.

    Attributes
    ----------
    kind : str
        A key of `WARNINGS`.
    sentence : str
        What is wrong, how that was measured, and what to do; complete sentences.
    names : tuple of str
        The candidates or columns that the sentence is about.
    """

    kind: Kind
    sentence: str
    names: tuple[str, ...] = ()


def warn(cautions: Iterable[Caution], stacklevel: int = 3) -> None:
    """Issue each caution as a warning of its kind.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as issued:
    ...     warnings.simplefilter("always")
    ...     warn([Caution("leakage", "Column 'price' predicts the target.", ("price",))])
    >>> issued[0].category.__name__
    'LeakageWarning'
    """
    for caution in cautions:
        warnings.warn(caution.sentence, WARNINGS[caution.kind], stacklevel=stacklevel)
