"""The gate that learns nothing: every candidate has the same weight everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from localma.errors import FileFormatError
from localma.folds import Fold
from localma.gates.base import Gate, check_arrays
from localma.gates.labelled import Labelled

Array = NDArray[np.floating]


class EqualGate(Gate):
    """Equal weights: ``w_m(x) = 1 / M``.

    Attributes
    ----------
    n_candidates_ : int
        The number M of candidates seen by `fit`.

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

    def fit(
        self,
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Count the candidates; nothing else about the sample matters. See `Gate.fit`."""
        self.n_candidates_ = data.n_candidates
        return self

    @property
    def is_constant(self) -> bool:
        """True: all rows have the same weights."""
        return True

    @property
    def raw_inputs(self) -> bool:
        """True: nothing about the inputs matters."""
        return True

    def predict_weights(self, X: Array) -> Array:
        """Weights of each row: (n, p) -> (n, M), all ``1 / M``."""
        check_is_fitted(self)
        return np.full((len(X), self.n_candidates_), 1.0 / self.n_candidates_)

    @property
    def n_candidates(self) -> int:
        """Number M of candidates."""
        return self.n_candidates_

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The fitted state: `n_candidates`, of shape ()."""
        check_is_fitted(self)
        return {"n_candidates": np.array(self.n_candidates_)}

    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> Self:
        """Take the fitted state back from `arrays`."""
        check_arrays(arrays, {"n_candidates": ("iu", ())}, "EqualGate")
        count = int(arrays["n_candidates"])
        if count < 1:
            raise FileFormatError(f"EqualGate must weigh one or more candidates; received {count}.")
        self.n_candidates_ = count
        return self
