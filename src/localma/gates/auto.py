"""The gate "auto": a path from constant to local weights, averaged by held-out losses.

The weights are ``w(x) = sum_k a_k w_k(x)`` over the points k of a path: equal weights, the best
single candidate, the global weights, and local gates with shrinkage from strong to weak. The
shares a_k come from cross-fitted losses, so the weights are only as local as the data support.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, astuple, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Float64, Integers, RandomState, RowMask, Rows
from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError
from localma.evidence import RULES, LocalityGain, locality_gain, mean_and_error, once_a_row, verdict
from localma.folds import Fold, make_folds
from localma.gates.band import LEAST_FOLDS, MOST_ROWS, Band
from localma.gates.base import (
    COUNT,
    FINITE,
    FLAG,
    Arrays,
    Earlier,
    Evidence,
    Folds,
    Gate,
    Rule,
    Saved,
    arrays_below,
    check_arrays,
    check_inputs,
    numbered_arrays,
    read_state,
)
from localma.gates.constant import WEIGHT_FLOOR, find_global_weights
from localma.gates.fused.chunks import ORDERED_ROWS, ordered_by_content
from localma.gates.fused.engine import evaluate, rows_outside
from localma.gates.fused.policy import Budget, budget, judging_folds
from localma.gates.intervals import Calibration, HeldRows
from localma.gates.labelled import Inputs, Labelled, plain_arrays
from localma.gates.mlp import MLPGate
from localma.gates.path import Starts, make_path
from localma.gates.points import NETWORK_STRENGTHS, HeldOut, MixedGates, Point, make_points
from localma.gates.sample import MEASURED_ROWS
from localma.gates.support import Fading, Outside, Support
from localma.tables.frames import take_rows

_COLUMNS = ("risk", "standard_error", "weight")
_STATE = (
    Saved("global_weights", "M", on_simplex=True),
    Saved("size", "s"),
    Saved("gain", "g"),
    *(Saved(f"path.{column}", "k") for column in _COLUMNS),
)

TRAINED = 0.625
"""Share of the steps that a gate of the path takes on average, since half of them are dropped."""

CONTINUED = 2
"""At most this many networks per point continue from an earlier gate.

In large samples, in which one fold judges and its path continues, it is one.
"""

LEAST_DOUBT, MOST_DOUBT = 0.05, 0.5
"""Limits of the prior weight of the default prior if there is an earlier path; see `_prior_after`.
"""

NEARLY_ALL = 0.95
"""Weight from which a candidate is recommended alone."""


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class ShrunkGate(Gate):
    """A local gate, shrunk towards the global weights as far as held-out losses require.

    Parameters
    ----------
    base : Gate, optional
        The local gate: any gate with the parameters `shrinkage` and `random_state`. By default a
        network of 32 units, or of two layers of 32 from 10,000 rows on.
    cv : int or splitter, optional
        Folds, if the estimator passes none. By default 5. All of them judge up to 2,300 rows, and
        fewer judge larger samples: one from about 11,000 rows on. With fewer than 50 groups all of
        them judge. If you pass `cv`, all folds judge.
    strengths : sequence of float
        The path of the base gate: shrinkage from strong to weak, in units of ``1 / n``, or of
        ``p / (32 n)`` with more than 32 inputs.
    linear : bool
        Whether linear gates are on the path too; for inputs that are arrays.
    trees : bool
        Whether gates of boosted trees are on the path too; for inputs that are arrays. They find
        steps and waves with fewer rows. Off by default: the shift guard then gives up more rows
        at the edge of the sample, and a large sample needs more memory.
    rule : {"weights", "best", "one_standard_error"}
        How held-out losses turn into weights of the points: exponential weighting, the smallest
        risk, or the most shrunk point within a standard error of it.
    n_restarts : int, optional
        Number of networks from different starts that are averaged in the final fit. By default 3,
        or 2 if one fold judged; then the first continues from the path.
    guard : bool
        Whether local weights fade outside the sample; for inputs that are arrays.
    random_state : int, RandomState instance or None
        Seed of the folds, the starts and the batches.

    Attributes
    ----------
    held_out_rows_, held_out_losses_ : arrays of shape (judged,)
        The rows that judged, and the held-out loss of each under the whole procedure. A loaded
        gate does not have them.
    path_ : dict of columns
        The path as a table: "gate", "shrinkage", "risk", "standard_error" of the risk's
        difference to the global gate, "weight" in the final weights, and what was "held_out":
        single rows, or groups of rows.
    locality_gain_ : LocalityGain
        Cross-fitted risk of the global gate minus that of the whole procedure.
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.

    Notes
    -----
    The gain is nested: the shares a_k that predict a fold come from the losses of the other folds.
    If one fold judges, its two halves judge for each other.

    After a quarter of the steps, the half of each kind with the larger losses on the held-out rows
    is dropped; `path_` has their risks at that time. Up to 1,000 rows a step uses all rows; in
    larger samples it uses a batch of a few hundred. Below 5,000 rows the order of the rows does not
    matter.

    Examples
    --------
    >>> from localma.losses import squared_error
    >>> x = np.linspace(-2, 2, 200)
    >>> P, y = np.stack([-x, x], axis=1)[:, :, np.newaxis], np.abs(x)[:, np.newaxis]
    >>> data = Labelled.of(x[:, np.newaxis], P, y, loss=squared_error())
    >>> gate = ShrunkGate(random_state=0).fit(data)
    >>> gate.locality_gain_.value > 2 * gate.locality_gain_.standard_error
    True
    """

    base: Gate | None = None
    _: KW_ONLY
    cv: int | BaseCrossValidator | None = None
    strengths: Sequence[float] = NETWORK_STRENGTHS
    linear: bool = True
    trees: bool = False
    rule: str = "weights"
    n_restarts: int | None = None
    guard: bool = True
    random_state: RandomState = None

    needs_folds: ClassVar[bool] = True
    parameters_of_older_files: ClassVar[Mapping[str, Any]] = {"trees": False}
    _choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"rule": tuple(RULES)}
    _rules: ClassVar[Mapping[str, Rule]] = {
        "linear": FLAG,
        "trees": FLAG,
        "guard": FLAG,
        "n_restarts": COUNT.or_none(),
        "strengths": FINITE.each(
            "a list of finite numbers, zero or more, at least one", range(1, sys.maxsize)
        ),
    }

    @property
    def raw_inputs(self) -> bool:
        """Whether the base takes inputs that are not a table; then there are no linear gates."""
        return isinstance(self.base, Gate) and self.base.raw_inputs

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Train the path in every fold, weight its points, and refit those with weight.

        If the sample has groups, standard errors are at least those between groups, and folds that
        are made here keep groups whole. If it has a baseline, held-out losses are compared with it.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Pairs of arrays of rows. By default they are made as `cv` says.

        Returns
        -------
        ShrunkGate
            The fitted gate.
        """
        return self._fit(data, global_weights, folds, None)

    def fit_after(
        self,
        earlier: Earlier,
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Folds = None,
    ) -> Self:
        """Judge the path on one fold, and continue the networks of an earlier gate.

        The weights of its points are evidence from more folds. So the prior weights of the points
        are those weights, as far as the candidates are the same, and the default ones otherwise.

        Parameters
        ----------
        earlier : Earlier
            A fitted gate of this class, which weighs some of the candidates.
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Pairs of arrays of rows, of which the one with most training rows is used.

        Returns
        -------
        ShrunkGate
            The fitted gate.
        """
        return self._fit(data, global_weights, folds, earlier)

    def _fit(
        self,
        data: Labelled,
        global_weights: Array | None,
        folds: Folds,
        earlier: Earlier | None,
    ) -> Self:
        self._check_parameters()
        random = check_random_state(self.random_state)
        order = np.arange(data.n_rows)
        if data.n_inputs > 0 and data.n_rows < ORDERED_ROWS:
            data, order = ordered_by_content(data)
            folds = folds and _moved(folds, np.argsort(order))
        useful_folds = self._judging(folds, data, random)
        plan = budget(data.n_rows, data.n_inputs, data.n_groups)
        n_restarts = self.n_restarts or plan.n_restarts
        if earlier is not None:
            n_restarts = min(n_restarts, CONTINUED, len(useful_folds))
            useful_folds = [max(useful_folds, key=lambda fold: len(fold[0]))]
        seeds = random.randint(np.iinfo(np.int32).max, size=n_restarts).tolist()
        points = self._points(plan, data.n_inputs, data.n_candidates, data.n_effective)
        path = make_path(data, useful_folds, points, seeds[0])
        held_out = path.held_out(random)
        self.n_features_in_, self.n_rows_ = data.n_inputs, data.n_rows
        self.n_effective_, self.n_groups_ = data.n_effective, data.n_groups
        if global_weights is None:
            global_weights = find_global_weights(data)
        self.global_weights_ = np.asarray(global_weights)
        prior = np.array([point.prior for point in points])
        starts: Starts = {}
        if earlier is not None:
            starts = _starts(earlier, points)
            prior = _prior_after(earlier, points, self.global_weights_)
        rows, self.held_out_losses_ = self._judge(held_out, points, prior)
        self.held_out_rows_ = order[rows]
        shares = self.path_["weight"]
        self.fold_answers_ = [MixedGates.of(members, shares) for members in held_out.members]
        self.band_ = Band.of(held_out, useful_folds, points, np.array(shares))
        chosen = np.flatnonzero(shares).tolist()
        finals = path.refit(seeds, chosen, self.global_weights_, starts)
        self.answer_ = MixedGates.of(finals, shares)
        self.support_ = None
        if self.guard and data.n_inputs > 0:
            self.support_ = self._measured_support(data)
        self.calibration_ = self._calibrate(held_out, useful_folds)
        return self

    @property
    def n_trainings(self) -> float:
        """Number of whole trainings of a gate that took as long as the fit."""
        n_gates = sum(np.isfinite(self.path_["shrinkage"]))
        return len(self.fold_answers_) * n_gates * TRAINED + len(self.answer_.gates)

    def points_of_fit(self) -> list[Point]:
        """Return the path of the fit; without some candidates it has the same hidden layers.

        Returns
        -------
        list of Point
            The points, most shrunk first.
        """
        plan = budget(self.n_rows_, self.n_features_in_, self.n_groups_)
        return self._points(plan, self.n_features_in_, self.n_candidates, self.n_effective_)

    def judging_folds(self, n_rows: int, n_groups: int | None = None) -> int | None:
        """Return the number of folds that judge a sample of this size.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_groups : int, optional
            Number of groups; None if rows are independent.

        Returns
        -------
        int or None
            Number of folds; None if all do, as with `cv`.
        """
        if self.cv is not None:
            return None
        return judging_folds(n_rows, n_groups)

    def reads_in_parts(self, n_rows: int, n_groups: int | None = None) -> bool:
        """Tell whether the base reads rows when they are indexed, and one fold is held out.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        n_groups : int, optional
            Number of groups; None if rows are independent.

        Returns
        -------
        bool
            Whether the gate takes an object that reads rows.
        """
        base = self.base or MLPGate()
        return self.judging_folds(n_rows, n_groups) == 1 and base.reads_in_parts(n_rows)

    @property
    def evidence(self) -> Evidence:
        """The path, the gain, the verdict and the band of this gate."""
        return self

    @property
    def is_constant(self) -> bool:
        """Whether no local gate has weight."""
        return not self.answer_.gates

    @property
    def fades(self) -> bool:
        """Whether there are local weights and a guard."""
        return self.support_ is not None and not self.is_constant

    @property
    def members(self) -> Sequence[Gate]:
        """The local gates with weight."""
        return self.answer_.gates

    def predict_weights(self, X: Inputs) -> Array:
        """Return the weights of each row, faded to the global ones outside the sample.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        (n, M) array
            The weights: non-negative, with sum one in each row.
        """
        check_is_fitted(self)
        return self._evaluate(self.answer_, X)

    def average(self, X: Inputs, P: Array) -> Array:
        """Average predictions with the weights of each row, in one pass.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.
        P : (n, M) or (n, M, K) array
            Predictions of the candidates.

        Returns
        -------
        (n,) or (n, K) array
            The averages.
        """
        check_is_fitted(self)
        return self._evaluate(self.answer_, X, P)

    def support(self, X: Inputs) -> Array:
        """Return the share of the local weights that is used in each row.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        (n,) array
            Numbers from 0 to 1.
        """
        check_is_fitted(self)
        return np.ones(len(X)) if self.support_ is None else self.support_(np.asarray(X))

    def weights_and_support(self, X: Inputs) -> tuple[Array, Array]:
        """Return what `predict_weights` and `support` return, in one pass if weights fade.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        ((n, M) array, (n,) array)
            The weights and the support.
        """
        check_is_fitted(self)
        is_one_pass = self.fades and self.answer_.stack is not None and isinstance(X, np.ndarray)
        if not is_one_pass:
            return super().weights_and_support(X)
        support = np.empty(len(X))
        return self._evaluate(self.answer_, X, support=support), support

    def outside(self, X: Inputs) -> Outside | None:
        """Describe the rows without local weights.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the gate takes as inputs.

        Returns
        -------
        Outside or None
            Their share, and the inputs that put most of them there; None if there are none.
        """
        check_is_fitted(self)
        if self.support_ is None or self.is_constant:
            return None
        return self.support_.outside(np.asarray(X))

    def weight_band(self, X: Inputs, level: float = 0.9) -> tuple[Array, Array]:
        """Return a band of the weights of each row and candidate.

        With two candidates, it covers the optimal weight in about `level` of the rows like the
        labelled ones, if that weight is a smooth function of the inputs. Its width has three parts:
        the variance between folds, the spread of the path, and the bias of shrinkage as far as
        held-out losses show it. There is no band if fewer than three folds judged, or with
        more than 2,000 rows. Outside the sample the coverage is unknown.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the base takes as inputs.
        level : float
            Level of the band, between 0 and 1.

        Returns
        -------
        low : (n, M) array
            Lower ends.
        high : (n, M) array
            Upper ends.

        Examples
        --------
        >>> from localma.losses import squared_error
        >>> x = np.linspace(-2, 2, 200)
        >>> P, y = np.stack([-x, x], axis=1)[:, :, np.newaxis], np.abs(x)[:, np.newaxis]
        >>> data = Labelled.of(x[:, np.newaxis], P, y, loss=squared_error())
        >>> low, high = ShrunkGate(random_state=0).fit(data).weight_band(np.array([[-1.5], [1.5]]))
        >>> bool(low[0, 0] > high[1, 0])
        True
        """
        check_is_fitted(self)
        if not 0.0 < level < 1.0:
            raise InvalidInputError(
                f"level of a band must be between 0 and 1; received {level!r}. Pass 0.9 for 90 %."
            )
        if self.band_ is None:
            raise InvalidInputError(
                f"A band of the weights needs at least {LEAST_FOLDS} folds that judge, and at most "
                f"{MOST_ROWS:,} rows: beyond, it would not cover as often as it says. This model "
                f"has {len(self.fold_answers_)} folds and {self.n_rows_:,} rows. Fit it on a part "
                "of the rows, with cv=5."
            )
        centre = self.predict_weights(X)
        folds = np.stack([self._evaluate(fold, X) for fold in self.fold_answers_])
        reach = self.band_.reach(folds, level)
        return np.clip(centre - reach, 0.0, 1.0), np.clip(centre + reach, 0.0, 1.0)

    def predict_interval(self, X: Inputs, P: Array, level: float = 0.9) -> tuple[Array, Array]:
        """Return an interval of the target of each row and output.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the base takes as inputs.
        P : (n, M) or (n, M, K) array
            Predictions of the candidates.
        level : float
            Share of new rows whose target lies in its interval, between 0 and 1.

        Returns
        -------
        low : (n,) or (n, K) array
            Lower ends, at most the prediction.
        high : (n,) or (n, K) array
            Upper ends, at least the prediction.
        """
        check_is_fitted(self)
        values = np.asarray(P, dtype=np.float64).reshape(*P.shape[:2], -1)
        table = np.asarray(X) if self.n_features_in_ else None
        ends = self.calibration_.interval(self._weights_by_part(X), values, table, level)
        low, high = (end.reshape(len(P), *P.shape[2:]) for end in ends)
        prediction = self.average(X, P)
        return np.minimum(low, prediction), np.maximum(high, prediction)

    def predict_set(self, X: Inputs, P: Array, level: float = 0.9) -> RowMask:
        """Return a set of classes for each row, with the most probable one.

        Parameters
        ----------
        X : n inputs
            An array (n, p), or whatever the base takes as inputs.
        P : (n, M, K) array
            The candidates' probabilities of the classes.
        level : float
            Share of new rows whose class is in its set, between 0 and 1.

        Returns
        -------
        (n, K) array of bool
            Whether each class is in the set.
        """
        check_is_fitted(self)
        chosen = self.calibration_.classes(self._weights_by_part(X), P, level)
        chosen[np.arange(len(P)), self.average(X, P).argmax(axis=1)] = True
        return chosen

    @property
    def has_band(self) -> bool:
        """Whether enough folds judged for a band of the weights."""
        return self.band_ is not None

    @property
    def verdict_(self) -> str:
        """The recommendation, with its evidence."""
        return self.describe()

    def describe(self, names: Sequence[str] | None = None, loss: str | None = None) -> str:
        """Write the verdict with the names of the candidates and of the loss.

        Parameters
        ----------
        names : sequence of str, optional
            Names of the candidates. By default their numbers.
        loss : str, optional
            Name of the loss.

        Returns
        -------
        str
            The verdict.
        """
        if not self.is_constant:
            return verdict(self.locality_gain_, 1.0 - self.answer_.constant.sum(), loss=loss)
        best, alone = int(self.answer_.constant.argmax()), None
        if self.answer_.constant[best] >= NEARLY_ALL:
            alone = repr(names[best]) if names else f"number {best}"
        return verdict(self.locality_gain_, alone=alone, loss=loss)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state as named arrays, all that `restore` needs.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        check_is_fitted(self)
        state: dict[str, AnyArray] = {
            "global_weights": self.global_weights_,
            "size": np.array(
                [self.n_features_in_, self.n_effective_, self.n_rows_, self.n_groups_ or 0.0]
            ),
            "gain": np.array(astuple(self.locality_gain_)),
            **{f"path.{column}": np.array(self.path_[column]) for column in _COLUMNS},
        }
        for k, mixed in enumerate([self.answer_, *self.fold_answers_]):
            state |= {f"mixed.{k}.{name}": array for name, array in mixed.arrays().items()}
        if self.support_ is not None:
            state |= {f"support.{name}": array for name, array in self.support_.arrays().items()}
        if self.band_ is not None:
            state |= {f"band.{name}": np.asarray(part) for name, part in vars(self.band_).items()}
        state |= {f"errors.{name}": array for name, array in self.calibration_.arrays().items()}
        return state

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Set the fitted state from named arrays.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays` of a fitted gate with the same parameters.

        Returns
        -------
        ShrunkGate
            The fitted gate.
        """
        self._check_parameters()
        M = np.size(arrays["global_weights"])
        p, self.n_effective_, n_rows, n_groups = _restored_size(arrays)
        self.n_features_in_, self.n_rows_, self.n_groups_ = (
            int(p),
            int(n_rows),
            int(n_groups) or None,
        )
        plan = budget(self.n_rows_, self.n_features_in_)
        points = self._points(plan, self.n_features_in_, M, self.n_effective_)
        own_arrays = {saved.name: arrays[saved.name] for saved in _STATE}
        lengths = {"s": 4, "g": len(fields(LocalityGain)), "k": len(points)}
        state = read_state(own_arrays, _STATE, "ShrunkGate", **lengths)
        self.global_weights_ = state["global_weights"]
        self._tabulate(points, np.stack([state[f"path.{column}"] for column in _COLUMNS]))
        self.locality_gain_ = LocalityGain(*state["gain"].tolist())
        mixtures = [
            MixedGates.restore(points, mixture_arrays, M, self.n_features_in_)
            for mixture_arrays in numbered_arrays(arrays, "mixed.")
        ]
        if len(mixtures) < 2:
            raise FileFormatError("ShrunkGate is restored from an answer and at least one fold.")
        self.answer_, *self.fold_answers_ = mixtures
        self.support_ = self._restored_support(arrays_below(arrays, "support."))
        n_folds = len(self.fold_answers_)
        self.band_ = Band.restore(arrays_below(arrays, "band."), M, n_folds, self.n_rows_)
        self.calibration_ = Calibration.restore(
            arrays_below(arrays, "errors."),
            n_candidates=M,
            n_inputs=self.n_features_in_,
            n_answers=len(mixtures),
        )
        return self

    def _restored_support(self, sides: Arrays) -> Support | None:
        if not self.guard or self.n_features_in_ == 0:
            check_arrays(sides, {}, "The support of ShrunkGate without a guard")
            return None
        return Support.restore(sides, self.n_features_in_)

    def _calibrate(self, held_out: HeldOut, folds: Sequence[Fold]) -> Calibration:
        """Errors of the rows that each fold held out; the halves of a single fold are apart."""
        data, parts = held_out.data, []
        for f, (train, _) in enumerate(folds):
            # The first folds of a time series learn from few rows: only their errors are used.
            answer = f + 1 if 2 * len(train) >= data.n_rows else 0
            for block in [f] if len(folds) > 1 else [0, 1]:
                rows = held_out.rows[held_out.blocks == block]
                weights = self._evaluate(self.fold_answers_[f], take_rows(data.X, rows))
                parts.append(HeldRows(answer, rows, weights))
        return Calibration.of(data, parts)

    def _weights_by_part(self, X: Inputs) -> list[Array]:
        """For each part of the calibration, the weights of the answer that predicts new rows."""
        answers = self.calibration_.answers.tolist()
        mixtures = [self.answer_, *self.fold_answers_]
        weights = {k: self._evaluate(mixtures[k], X) for k in set(answers)}
        return [weights[k] for k in answers]

    def _evaluate(
        self,
        mixed: MixedGates,
        X: Inputs,
        P: Array | None = None,
        support: Float64 | None = None,
    ) -> Array:
        """Weights of a mixture, faded, or the predictions averaged with them.

        support : (n,) to which the support is written, for a mixture with a stack that fades.
        """
        X, P, *_ = plain_arrays(X, P)
        fading = self._fading() if mixed.gates else None
        if self.n_features_in_ and isinstance(X, np.ndarray) and mixed.stack is not None:
            check_inputs(self, X)
            n_jobs = getattr(self.base, "n_jobs", None)
            trees = mixed.tree_weights(X, fading, n_jobs)
            return evaluate(mixed.stack, X, fading, P, n_jobs, trees=trees, support=support)
        if fading is None:
            weights = mixed.predict_weights(X)
        else:
            numbers = np.asarray(X)
            weights = fading(mixed.predict_weights(fading.support.clip(numbers)), numbers)
        if P is None:
            return weights
        return local_average(weights, P)

    def _measured_support(self, data: Labelled) -> Support:
        """Measure the sample, with every labelled row inside."""
        weighted = data.sample_weight > 0
        support = Support.of(data.table, weighted, self.answer_.predict_weights)
        if weighted.sum() <= MEASURED_ROWS:
            return support
        n_jobs = getattr(self.base, "n_jobs", None)
        return support.including(rows_outside(support, data.table, weighted, n_jobs))

    def _fading(self) -> Fading | None:
        if self.support_ is None:
            return None
        return Fading(self.support_, self.global_weights_, WEIGHT_FLOOR)

    def _points(
        self, plan: Budget, n_inputs: int, n_candidates: int, n_effective: float
    ) -> list[Point]:
        """The path, most shrunk first."""
        return make_points(
            plan,
            n_inputs,
            n_candidates,
            n_effective,
            base=self.base,
            strengths=self.strengths,
            linear=self.linear,
            trees=self.trees,
        )

    def _judging(self, folds: Folds, data: Labelled, random: np.random.RandomState) -> list[Fold]:
        """Folds with weight in both parts; the first folds of a time series may have none."""
        limit = self.judging_folds(data.n_rows, data.n_groups)
        if folds is None:
            folds = make_folds(self.cv, data.y, data.groups, random_state=random, most=limit)
        weight, folds = data.sample_weight, list(folds)[:limit]
        useful = [fold for fold in folds if all(weight[rows].any() for rows in fold)]
        if not useful:
            raise InvalidInputError(
                "A fold needs rows of positive weight both to train on and to judge by; none of "
                f"the {len(folds)} folds has them. Use other folds, or other sample weights. If "
                "you fit your own models, only rows that some fold holds out have weight: hold out "
                "every row once, as cv=5 does."
            )
        return useful

    def _judge(
        self, held_out: HeldOut, points: list[Point], prior_of_shares: Array
    ) -> tuple[Rows, Array]:
        """Weight the points by their held-out losses, and measure the gain of the procedure.

        Returns the rows that judged, and their losses under the whole procedure: (judged,) each.
        The gain never uses a prior from an earlier path, which may have judged the same rows.
        """
        prior = np.array([point.prior for point in points])
        constant = np.array([point.gate is None for point in points])
        L, rule = held_out.losses(), RULES[self.rule]
        nested = [
            held_out.nested_losses(L, rule, allowed)
            for allowed in (np.where(constant, prior, 0.0), prior)
        ]
        if held_out.baseline_losses is not None:
            nested.append(held_out.baseline_losses)
        # A row that several folds judge counts once, with its mean loss.
        judgements = held_out.sample_weight, held_out.rows
        (by_constants, by_all, *by_baseline), _ = once_a_row(np.stack(nested), *judgements)
        L, weight = once_a_row(L, *judgements)
        shares = rule(L, weight, prior_of_shares / prior_of_shares.sum())
        at_global = L[[point.name for point in points].index("global")]
        overlap, related = held_out.overlap, held_out.related
        self.locality_gain_ = locality_gain(
            at_global,
            by_constants,
            by_all,
            weight,
            baseline_losses=next(iter(by_baseline), None),
            **related,
            overlap=overlap,
        )
        errors = [
            overlap * mean_and_error(losses - at_global, weight, **related)[1] for losses in L
        ]
        risks = [mean_and_error(losses, weight)[0] for losses in L]
        self._tabulate(points, np.array([risks, errors, shares]))
        rows, index, counts = np.unique(held_out.rows, return_inverse=True, return_counts=True)
        return rows, np.bincount(index, weights=nested[1]) / counts

    def _tabulate(self, points: Sequence[Point], columns: Array) -> None:
        """Set the table of the path; columns : (3, points) risks, standard errors and weights."""
        held_out = "rows" if self.n_groups_ is None else f"{self.n_groups_} groups of rows"
        self.path_: dict[str, list[Any]] = {
            "gate": [point.name for point in points],
            "shrinkage": [float(point.shrinkage) for point in points],
            **dict(zip(_COLUMNS, columns.tolist(), strict=True)),
            "held_out": [held_out] * len(points),
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.base is None:
            return
        if not isinstance(self.base, Gate):
            raise InvalidInputError(
                f"The base of ShrunkGate must be a gate, such as MLPGate(); received {self.base!r}."
            )
        if not self.base._can_shrink:
            raise InvalidInputError(
                "The base of ShrunkGate must have the parameters shrinkage and random_state; "
                f"{type(self.base).__name__} does not. Pass a gate such as MLPGate()."
            )
        self.base._check_parameters()


def _starts(earlier: Earlier, points: Sequence[Point]) -> Starts:
    """Networks of an earlier path for each point, or those of the nearest point of its kind."""
    if not isinstance(earlier.gate, ShrunkGate) or not earlier.gate.answer_.gates:
        return {}
    answer, names = earlier.gate.answer_, [point.name for point in points]
    trained: dict[int, list[Earlier]] = {}
    for j, gate in zip(answer.points.tolist(), answer.gates, strict=True):
        trained.setdefault(j, []).append(replace(earlier, gate=gate))
    starts: dict[int, list[Earlier]] = {}
    for k, name in enumerate(names):
        alike = [j for j in trained if j < len(names) and names[j] == name]
        if alike:
            starts[k] = trained[min(alike, key=lambda j: abs(j - k))]
    return starts


def _prior_after(earlier: Earlier, points: Sequence[Point], weights: Array) -> Array:
    """Prior weights of the points after an earlier path: (points,).

    The default prior has the share that new candidates have in the global weights (M,), within
    limits: as far as they change the answer, the evidence of the earlier path is in doubt.
    """
    prior = np.array([point.prior for point in points])
    gate, names = earlier.gate, [point.name for point in points]
    if not isinstance(gate, ShrunkGate) or gate.path_["gate"] != names:
        return prior
    share = float(weights[earlier.candidates < 0].sum())
    doubt = min(max(share, LEAST_DOUBT), MOST_DOUBT)
    return doubt * prior / prior.sum() + (1.0 - doubt) * np.array(gate.path_["weight"])


def _moved(folds: Sequence[Fold], position: Integers) -> list[Fold]:
    """Folds of a sample whose rows have new positions: (n,)."""
    return [(np.sort(position[train]), np.sort(position[test])) for train, test in folds]


def _restored_size(arrays: Arrays) -> list[float]:
    """Number of inputs, effective number of rows, number of rows, and number of groups or zero."""
    check_arrays({"size": arrays["size"]}, {"size": ("f", (4,))}, "ShrunkGate")
    size: list[float] = arrays["size"].tolist()
    p, n, n_rows, n_groups = size
    are_whole = all(number.is_integer() for number in (p, n_rows, n_groups))
    if not (are_whole and p >= 0 and n > 0 and n_rows >= 1 and 0 <= n_groups <= n_rows):
        raise FileFormatError(
            "The array 'size' of ShrunkGate must hold the number of inputs, two positive numbers "
            f"of rows and the number of groups; received {size}."
        )
    return size
