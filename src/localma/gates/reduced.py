"""The gate of a model from which candidates were dropped after the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, RowMask
from localma.errors import FileFormatError, InvalidInputError
from localma.evidence import LocalityGain
from localma.gates.base import (
    Earlier,
    Evidence,
    Folds,
    Gate,
    Rule,
    arrays_below,
    simplex_weights,
)
from localma.gates.heirs import Heirs
from localma.gates.labelled import Inputs, Labelled
from localma.gates.left_out import LeftOut, renormalized
from localma.gates.support import Outside
from localma.storage.array_file import shown

Substitutes = Heirs | LeftOut | None
"""The weights without each candidate; None if they are renormalised."""


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class ReducedGate(Gate):
    """The weights of a fitted gate, without some of its candidates.

    `LocalMARegressor.drop` makes it. It is not fitted itself.

    Parameters
    ----------
    base : Gate
        The fitted gate, of all M candidates.
    dropped : sequence of int
        Positions of the dropped candidates, in the order in which they were dropped.
    names : sequence of str
        Names of all M candidates, for the verdict.

    Attributes
    ----------
    substitutes_ : Heirs, LeftOut or None
        The weights without each candidate. None if weights are renormalised.
    global_weights_ : (M - dropped,) array
        The best constant weights of the candidates that are left.

    Examples
    --------
    >>> from localma.gates import EqualGate
    >>> from localma.losses import squared_error
    >>> P, y = np.zeros((3, 4, 1)), np.ones((3, 1))
    >>> gate = EqualGate().fit(Labelled.of(np.zeros((3, 2)), P, y, loss=squared_error()))
    >>> ReducedGate.of(gate, 1, None, np.full(4, 0.25)).predict_weights(np.zeros((1, 2))).round(3)
    array([[0.333, 0.333, 0.333]])
    """

    base: Gate | None = None
    _: KW_ONLY
    dropped: Sequence[int] = ()
    names: Sequence[str] = ()

    _rules: ClassVar[Mapping[str, Rule]] = {
        "base": Rule(lambda value: isinstance(value, Gate), "a gate"),
        "dropped": Rule(
            lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
            "",
        ).each("a list of positions, from 0"),
        "names": Rule(lambda value: isinstance(value, str), "").each("a list of names"),
    }

    @classmethod
    def of(
        cls,
        gate: Gate,
        m: int,
        substitutes: Substitutes,
        global_weights: Array,
        names: Sequence[str] = (),
    ) -> Self:
        """Drop a candidate of a fitted gate.

        Parameters
        ----------
        gate : Gate
            The fitted gate. It may be reduced itself.
        m : int
            Position of the candidate in this gate.
        substitutes : Heirs, LeftOut or None
            The weights without each candidate of the gate. A reduced gate has its own.
        global_weights : (M,) array
            The global weights of the candidates of this gate.
        names : sequence of str
            Names of the candidates of this gate.

        Returns
        -------
        ReducedGate
            The gate without the candidate.
        """
        base, kept = gate, np.arange(gate.n_candidates)
        dropped: tuple[int, ...] = (m,)
        if isinstance(gate, cls):
            base, names, substitutes = gate.fitted_base, gate.names, gate.substitutes_
            kept = np.flatnonzero(gate.kept)
            dropped = (*gate.dropped, int(kept[m]))
        reduced = cls(base, dropped=dropped, names=tuple(names))
        reduced.substitutes_ = substitutes
        reference = np.zeros(base.n_candidates)
        reference[kept] = global_weights
        if substitutes is not None:
            reference = substitutes.constants[dropped[-1]]
        found = renormalized(reference[np.newaxis], reduced.kept, reduced.kept.astype(float))
        reduced.global_weights_ = found[0, reduced.kept]
        return reduced

    @property
    def fitted_base(self) -> Gate:
        """The gate of all candidates."""
        assert self.base is not None  # see `_rules`
        return self.base

    @property
    def kept(self) -> RowMask:
        """Which candidates of the base are left: (M,)."""
        kept = np.ones(self.fitted_base.n_candidates, dtype=bool)
        kept[list(self.dropped)] = False
        return kept

    @property
    def earlier(self) -> Earlier:
        """The base, and which of its candidates are left."""
        return Earlier.without(self.fitted_base, self.kept)

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Raise an error: fit the base instead.

        Parameters
        ----------
        data : Labelled
            Not used.
        global_weights : (M,) array, optional
            Not used.
        folds : sequence of (train, test), optional
            Not used.

        Returns
        -------
        ReducedGate
            Nothing is returned.
        """
        raise InvalidInputError(
            "A gate from which candidates were dropped cannot be fitted. Fit its base, which is "
            f"{self.base!r}."
        )

    def predict_weights(self, X: Inputs) -> Array:
        """Return the weights of each row.

        Parameters
        ----------
        X : n inputs
            The inputs of the base.

        Returns
        -------
        (n, M - dropped) array
            The weights: non-negative, with sum one in each row.
        """
        check_is_fitted(self)
        W, kept = self.fitted_base.predict_weights(X), self.kept
        if self.substitutes_ is not None:
            for m in self.dropped:
                W = self.substitutes_.weights(m, X, W)
        reference: Array = np.zeros(len(kept))
        reference[kept] = self.global_weights_
        return renormalized(W, kept, reference)[:, kept]

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state as named arrays, all that `restore` needs.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        check_is_fitted(self)
        base = self.fitted_base.arrays()
        state: dict[str, AnyArray] = {f"base.{name}": array for name, array in base.items()}
        state["global_weights"] = self.global_weights_
        if self.substitutes_ is not None:
            prefix = _PREFIXES[type(self.substitutes_)]
            for name, array in self.substitutes_.arrays().items():
                state[f"{prefix}{name}"] = array
        return state

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Set the fitted state from named arrays.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays` of a gate with the same parameters.

        Returns
        -------
        ReducedGate
            The gate.
        """
        self._check_parameters()
        base = self.fitted_base.restore(arrays_below(arrays, "base."))
        self._check_positions()
        self.substitutes_ = None
        for kind, prefix in _PREFIXES.items():
            if below := arrays_below(arrays, prefix):
                self.substitutes_ = kind.restore(below, base)
        self.global_weights_ = simplex_weights(arrays["global_weights"], "global_weights")
        if len(self.global_weights_) != self.kept.sum():
            raise FileFormatError(
                f"The file has {len(self.global_weights_)} global weights for "
                f"{self.kept.sum()} candidates."
            )
        return self

    def _check_positions(self) -> None:
        """Refuse positions that the base does not have, and names that are not one each."""
        M, dropped = self.fitted_base.n_candidates, list(self.dropped)
        known = 0 < len(dropped) == len(set(dropped)) < M and max(dropped) < M
        if not known or isinstance(self.base, ReducedGate) or len(self.names) not in (0, M):
            raise FileFormatError(
                f"The file says that the candidates {shown(dropped)} of {M} were dropped."
            )

    # Properties of the base.

    @property
    def needs_inputs(self) -> bool:  # type: ignore[override]
        """Whether weights depend on the inputs."""
        return self.fitted_base.needs_inputs

    @property
    def learns(self) -> bool:  # type: ignore[override]
        """Whether weights depend on the sample."""
        return self.fitted_base.learns

    @property
    def raw_inputs(self) -> bool:
        """Whether inputs may be other than a table of numbers."""
        return self.fitted_base.raw_inputs

    @property
    def is_constant(self) -> bool:
        """Whether the fitted weights are known to be the same for every input."""
        return self.fitted_base.is_constant

    @property
    def fades(self) -> bool:
        """Whether local weights fade to the global ones for inputs unlike the sample."""
        return self.fitted_base.fades

    def support(self, X: Inputs) -> Array:
        """Return the share of the local weights that is used in each row.

        Parameters
        ----------
        X : n inputs
            The inputs of the base.

        Returns
        -------
        (n,) array
            Numbers from 0 to 1.
        """
        return self.fitted_base.support(X)

    def outside(self, X: Inputs) -> Outside | None:
        """Describe the rows without local weights.

        Parameters
        ----------
        X : n inputs
            The inputs of the base.

        Returns
        -------
        Outside or None
            Their share, and the inputs that put most of them there; None if there are none.
        """
        return self.fitted_base.outside(X)

    # Evidence from before the change.

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of the base, marked as stale; None if it has none."""
        return None if self.fitted_base.evidence is None else self

    @property
    def path_(self) -> dict[str, list[Any]]:
        """The path of the base."""
        return self._of_base().path_

    @property
    def locality_gain_(self) -> LocalityGain:
        """The locality gain of the base."""
        return self._of_base().locality_gain_

    @property
    def verdict_(self) -> str:
        """The verdict of the base, marked as stale."""
        return self.describe()

    def describe(self, names: Sequence[str] | None = None, loss: str | None = None) -> str:
        """Write the verdict of the base, and that it is stale.

        Parameters
        ----------
        names : sequence of str, optional
            Not used: the base had more candidates.
        loss : str, optional
            Name of the loss.

        Returns
        -------
        str
            The verdict.
        """
        known = self.names or [f"number {m}" for m in range(len(self.kept))]
        dropped = [known[m] for m in self.dropped]
        listed = " and ".join(map(repr, dropped))
        was = "was" if len(dropped) == 1 else "were"
        return (
            f"Stale: {listed} {was} dropped after the fit, and no labelled rows judged the weights "
            f"since. Before: {self._of_base().describe(self.names or None, loss)}"
        )

    has_band = False

    def weight_band(self, X: Inputs, level: float = 0.9) -> tuple[Array, Array]:
        """Raise an error: the errors of held-out rows are those of the base.

        Parameters
        ----------
        X : n inputs
            Not used.
        level : float
            Not used.

        Returns
        -------
        low, high : arrays
            Nothing is returned.
        """
        self._refuse("A band of the weights")

    def predict_interval(self, X: Inputs, P: Array, level: float = 0.9) -> tuple[Array, Array]:
        """Raise an error: the errors of held-out rows are those of the base.

        Parameters
        ----------
        X : n inputs
            Not used.
        P : (n, M) or (n, M, K) array
            Not used.
        level : float
            Not used.

        Returns
        -------
        low, high : arrays
            Nothing is returned.
        """
        self._refuse("A prediction interval")

    def predict_set(self, X: Inputs, P: Array, level: float = 0.9) -> RowMask:
        """Raise an error: the errors of held-out rows are those of the base.

        Parameters
        ----------
        X : n inputs
            Not used.
        P : (n, M, K) array
            Not used.
        level : float
            Not used.

        Returns
        -------
        array
            Nothing is returned.
        """
        self._refuse("A set of classes")

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidInputError(
            f"{what} needs held-out errors of the present candidates, and a candidate was dropped "
            "after the fit. Fit again, or add a candidate with labelled rows."
        )

    def _of_base(self) -> Evidence:
        evidence = self.fitted_base.evidence
        if evidence is None:
            raise AttributeError(
                f"{type(self.base).__name__} does not judge its weights on held-out rows."
            )
        return evidence

    @property
    def n_candidates(self) -> int:
        """Number of candidates that are left."""
        return int(self.kept.sum())


_PREFIXES: dict[type[Heirs] | type[LeftOut], str] = {Heirs: "heirs.", LeftOut: "left_out."}
"""Beginnings of the names of the arrays of each kind of substitutes."""
