"""The gate with the same weight for every candidate."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from localma._types import Array
from localma.errors import FileFormatError
from localma.gates.base import Folds, Gate, Saved
from localma.gates.labelled import Inputs, Labelled


class EqualGate(Gate):
    """Equal weights: ``w_m(x) = 1 / M``.

    Attributes
    ----------
    n_candidates_ : int
        The number M of candidates in the labelled sample.

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> P, y = np.zeros((3, 4, 1)), np.ones((3, 1))
    >>> gate = EqualGate().fit(Labelled.of(np.zeros((3, 2)), P, y, loss=squared_error()))
    >>> gate.predict_weights(np.zeros((1, 2))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    needs_inputs: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    state: ClassVar[tuple[Saved, ...]] = (Saved("n_candidates", dtype=np.int64),)

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Count the candidates; the rest of the sample is not used. See `Gate.fit`."""
        self.n_candidates_ = data.n_candidates
        return self

    @property
    def is_constant(self) -> bool:
        """True: all rows have the same weights."""
        return True

    @property
    def raw_inputs(self) -> bool:
        """True: inputs are not used."""
        return True

    def predict_weights(self, X: Inputs) -> Array:
        """Weights of each row: (n, p) -> (n, M), all ``1 / M``."""
        check_is_fitted(self)
        return np.full((len(X), self.n_candidates_), 1.0 / self.n_candidates_)

    @property
    def n_candidates(self) -> int:
        """Number M of candidates."""
        return self.n_candidates_

    def _check_state(self) -> None:
        if self.n_candidates_ < 1:
            raise FileFormatError(
                f"EqualGate must weigh one or more candidates; received {self.n_candidates_}."
            )
