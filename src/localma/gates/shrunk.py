"""Safe locality: the path from the global weights to a free gate, weighted by held-out losses.

The answer is ``w(x) = sum_k a_k w_k(x)`` over the points k of a path: equal weights, the best
single candidate, the global weights, and local gates under shrinkage from strong to weak. The
weights a_k come from cross-fitted losses, so the answer is local only as far as the data support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from localma.equations import local_average
from localma.errors import FileFormatError, InvalidInputError
from localma.evidence import RULES, LocalityGain, locality_gain, mean_and_error, once_a_row
from localma.folds import Fold, make_folds
from localma.gates._anchor import WEIGHT_FLOOR
from localma.gates._chunks import ORDERED_ROWS, order_by_content
from localma.gates._engine import evaluate
from localma.gates._held_out import HeldOut, Point, train_path
from localma.gates._mixed import MixedGates
from localma.gates._path import BranchingPath
from localma.gates._policy import Budget, budget, judging_folds
from localma.gates._support import Fading, Outside, Support
from localma.gates._verdict import verdict
from localma.gates.base import (
    ArrayTypes,
    Evidence,
    Gate,
    Rules,
    arrays_below,
    check_arrays,
    check_inputs,
    check_rules,
    is_count,
    is_number,
    numbered_arrays,
    simplex_weights,
)
from localma.gates.global_ import find_global_weights
from localma.gates.labelled import Labelled, plain_arrays
from localma.gates.mlp import MLPGate

Array = NDArray[np.floating]

NETWORK_STRENGTHS = (1.0, 0.3, 0.1, 0.03)
LINEAR_STRENGTHS = (10.0, 3.0, 1.0, 0.3)
"""Shrinkage of the local gates of the path, in units of 1 / n."""

MANY_INPUTS = 32
"""From so many inputs on, shrinkage grows with their number: each adds noise to the logits."""

CONSTANT_PRIOR = {"equal": 0.10, "best": 0.05, "global": 0.50}
"""Prior weight of the points without local part; the local gates share the rest evenly."""


class ShrunkGate(Gate):
    """A local gate, shrunk towards the global weights as far as held-out losses ask for.

    Parameters
    ----------
    base : Gate, optional
        The local gate: any with the parameters `shrinkage` and `random_state`. By default a
        network of 32 units, or of two layers of 32 from 10,000 rows on.
    cv : int or splitter, optional
        Folds, if the estimator gives none. By default 5, all of which judge up to 2,300 rows, and
        fewer of which judge larger samples: one from about 11,000 rows on. With fewer than 50
        groups all of them judge. All folds that you ask for judge.
    strengths : sequence of float
        The path of the base gate: shrinkage in units of ``1 / n``, or of ``p / (32 n)`` where
        there are more than 32 inputs, from strong to weak.
    linear : bool
        Whether linear gates are on the path too; for inputs that are arrays.
    rule : {"weights", "best", "one_standard_error"}
        How held-out losses turn into weights of the points: exponential weighting, the smallest
        risk, or the most shrunk point within a standard error of it.
    n_restarts : int, optional
        Networks from different starts that are averaged in the final fit. By default 3; or 2, of
        which one continues from the path, if one fold judged.
    guard : bool
        Whether the local part fades where inputs leave the sample; for inputs that are arrays.
    random_state : int, RandomState instance or None

    Attributes
    ----------
    path_ : dict of columns
        The whole path as a table: "gate", "shrinkage", "risk", "standard_error" of the risk's
        difference to the global gate, and "weight" in the answer.
    locality_gain_ : LocalityGain
        Cross-fitted risk of the global gate minus that of the whole procedure.
    global_weights_ : (M,)

    Notes
    -----
    The gain is nested: the weights a_k with which a fold is predicted come from the other folds'
    losses. If one fold judges, its two halves judge for each other.

    All points of a kind branch off from the most shrunk one after a quarter of the steps. After
    another quarter the half of them that loses more on the held-out rows is dropped; `path_` has
    the risks of those as they were then. Up to 1,000 rows a step goes over all rows; in larger
    samples over a batch of some hundred. Below 5,000 rows the order of the rows does not matter.

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

    needs_folds: ClassVar[bool] = True

    @property
    def raw_inputs(self) -> bool:
        """Whether the base takes inputs that are no table; then no linear gates are tried."""
        return isinstance(self.base, Gate) and self.base.raw_inputs

    def __init__(
        self,
        base: Gate | None = None,
        *,
        cv: Any = None,
        strengths: Sequence[float] = NETWORK_STRENGTHS,
        linear: bool = True,
        rule: str = "weights",
        n_restarts: int | None = None,
        guard: bool = True,
        random_state: Any = None,
    ) -> None:
        self.base = base
        self.cv = cv
        self.strengths = strengths
        self.linear = linear
        self.rule = rule
        self.n_restarts = n_restarts
        self.guard = guard
        self.random_state = random_state

    def fit(
        self,
        data: Labelled,
        *,
        global_weights: Array | None = None,
        folds: Sequence[Fold] | None = None,
    ) -> Self:
        """Train the path in every fold, weight its points, and refit those that count.

        If the sample has groups, standard errors are at least those between groups, and folds that
        are made here keep groups whole. Its baseline is compared with on held-out rows.
        """
        self._check_parameters()
        random = check_random_state(self.random_state)
        if data.n_inputs > 0 and data.n_rows < ORDERED_ROWS:
            data, folds = _in_order_of_content(data, folds)
        used = _judging(self._use_folds(folds, data, random), data.sample_weight)
        seeds = self._seeds(budget(data.n_rows, data.n_inputs, data.n_groups), random)
        points = self._points(data.n_inputs, data.n_candidates, data.n_effective, data.n_rows)
        path = None
        if _are_networks(points):
            path = BranchingPath(data, used, points, seeds[0])
            held_out = path.held_out(random)
        else:
            held_out = HeldOut.of(data, used, points, seeds[0], random)
        self._judge(held_out, points)
        self.global_weights_ = (
            find_global_weights(data) if global_weights is None else np.asarray(global_weights)
        )
        kept = {k for k, weight in enumerate(self.path_["weight"]) if weight > 0}
        self.fold_answers_ = [
            MixedGates.of(members, self.path_["weight"], kept) for members in held_out.members
        ]
        if path is None:
            (finals,) = train_path(data, [None], points, seeds, kept, [self.global_weights_])
        else:
            finals = path.refit(seeds, kept, self.global_weights_)
        self.answer_ = MixedGates.of(finals, self.path_["weight"], kept)
        guards = self.guard and data.n_inputs > 0
        self.support_ = Support.of(data.X, data.sample_weight > 0) if guards else None
        return self

    def judging_folds(self, n_rows: int, n_groups: int | None = None) -> int | None:
        """Number of folds that judge a sample of this size; None if all do.

        If you ask for certain folds, all of them judge.
        """
        return judging_folds(n_rows, n_groups) if self.cv is None else None

    def reads_in_parts(self, n_rows: int, n_groups: int | None = None) -> bool:
        """Whether the base does, and one fold is held out."""
        base = MLPGate() if self.base is None else self.base
        return self.judging_folds(n_rows, n_groups) == 1 and base.reads_in_parts(n_rows)

    @property
    def evidence(self) -> Evidence:
        """The path, the gain, the verdict and the band of this gate."""
        return self

    @property
    def is_constant(self) -> bool:
        """Whether no local gate has a share in the answer."""
        return not self.answer_.gates

    @property
    def fades(self) -> bool:
        """Whether there is a local part, and a guard."""
        return self.support_ is not None and not self.is_constant

    @property
    def members(self) -> Sequence[Gate]:
        """The local gates of the answer."""
        return self.answer_.gates

    def predict_weights(self, X: Array) -> Array:
        """Weights of each row: (n, p) -> (n, M), faded to the global ones away from the sample."""
        check_is_fitted(self)
        return self._evaluate(self.answer_, X)

    def average(self, X: Array, P: Array) -> Array:
        """Predictions averaged with the weights: (n, p), (n, M[, K]) -> (n[, K]), in one pass."""
        check_is_fitted(self)
        return self._evaluate(self.answer_, X, P)

    def support(self, X: Array) -> Array:
        """How much of the local part is used in each row: (n, p) -> (n,), between 0 and 1."""
        check_is_fitted(self)
        return np.ones(len(X)) if self.support_ is None else self.support_(X)

    def outside(self, X: Array) -> Outside | None:
        """Describe the rows (n, p) in which the local part is not used; None if there are none."""
        check_is_fitted(self)
        if self.support_ is None or self.is_constant:
            return None
        return self.support_.outside(X)

    def weight_band(self, X: Array, level: float = 0.9) -> tuple[Array, Array]:
        """Band of the weights of each row and candidate: (n, p) -> two arrays (n, M).

        The spread comes from the gates of the folds, by the delete-a-group jackknife, and from
        the restarts of the final fit. It tells how far the weights depend on the sample and on
        the starts; it knows nothing of what no point of the path can express.
        """
        check_is_fitted(self)
        if not 0.0 < level < 1.0:
            raise InvalidInputError(
                f"level of a band must be between 0 and 1; received {level!r}. Pass 0.9 for 90 %."
            )
        centre = self.predict_weights(X)
        folds = np.stack([self._evaluate(fold, X) for fold in self.fold_answers_])
        F = len(folds)
        around = folds.mean(axis=0) if F > 1 else centre
        variance = (F - 1 if F > 1 else 1) * ((folds - around) ** 2).mean(axis=0)
        variance += self.answer_.restart_variance(X)
        reach = norm.ppf((1 + level) / 2) * np.sqrt(variance)
        return np.clip(centre - reach, 0.0, 1.0), np.clip(centre + reach, 0.0, 1.0)

    @property
    def verdict_(self) -> str:
        """What local weights are worth here, in one sentence."""
        local = 1.0 - self.answer_.constant.sum() if self.answer_.gates else None
        return verdict(self.locality_gain_, local)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fitted state: what `restore` takes."""
        check_is_fitted(self)
        gain = self.locality_gain_
        state: dict[str, NDArray[Any]] = {
            "global_weights": self.global_weights_,
            "size": np.array([self.n_features_in_, self.n_effective_, self.n_rows_]),
            "gain": np.array(astuple(gain)),
            **{f"path.{key}": np.array(self.path_[key]) for key in _NUMBERS},
        }
        for k, mixed in enumerate([self.answer_, *self.fold_answers_]):
            state |= {f"mixed.{k}.{name}": array for name, array in mixed.arrays().items()}
        if self.support_ is not None:
            state |= {f"support.{name}": array for name, array in vars(self.support_).items()}
        return state

    def restore(self, arrays: dict[str, NDArray[Any]]) -> Self:
        """Take the fitted state back from `arrays`, checking names and shapes."""
        self._check_parameters()
        self.global_weights_ = simplex_weights(arrays["global_weights"], "global_weights")
        M = len(self.global_weights_)
        self.n_features_in_, self.n_effective_, self.n_rows_ = _restored_size(arrays)
        points = self._points(self.n_features_in_, M, self.n_effective_, self.n_rows_)
        judged = {f"path.{key}": ("f", (len(points),)) for key in _NUMBERS}
        expected: ArrayTypes = {"gain": ("f", (len(fields(LocalityGain)),)), **judged}
        check_arrays({name: arrays[name] for name in expected}, expected, "ShrunkGate")
        self._tabulate(points, *(arrays[f"path.{key}"] for key in _NUMBERS))
        self.locality_gain_ = LocalityGain(*arrays["gain"].tolist())
        mixed = [MixedGates.restore(points, own, M) for own in numbered_arrays(arrays, "mixed.")]
        if len(mixed) < 2:
            raise FileFormatError("ShrunkGate is restored from an answer and at least one fold.")
        self._check_inputs_of(mixed)
        self.answer_, *self.fold_answers_ = mixed
        self.support_ = self._restored_support(arrays_below(arrays, "support."))
        return self

    def _check_inputs_of(self, mixed: Sequence[MixedGates]) -> None:
        """Refuse networks that do not take the inputs of this gate."""
        for gate in (gate for one in mixed for gate in one.gates if isinstance(gate, MLPGate)):
            if gate.n_features_in_ != self.n_features_in_:
                raise FileFormatError(
                    f"Every gate of a path must take the {self.n_features_in_} inputs of "
                    f"ShrunkGate; received one that takes {gate.n_features_in_}."
                )

    def _restored_support(self, sides: dict[str, NDArray[Any]]) -> Support | None:
        p = self.n_features_in_
        if not self.guard or p == 0:
            check_arrays(sides, {}, "The support of ShrunkGate without a guard")
            return None
        expected = {side.name: ("f", (p,)) for side in fields(Support)}
        check_arrays(sides, expected, "The support of ShrunkGate")
        support = Support(**{name: side.astype(np.float64) for name, side in sides.items()})
        tails = np.minimum(support.low_tail, support.high_tail)
        if (support.low > support.high).any() or not (tails > LEAST_RESTORED_TAIL).all():
            raise FileFormatError(
                "The support of ShrunkGate must have its low end below its high end, and positive "
                "tails."
            )
        return support

    def _evaluate(self, mixed: MixedGates, X: Any, P: Array | None = None) -> Array:
        """Weights of a mixture, faded, or the predictions averaged with them."""
        X, P, *_ = plain_arrays(X, P)
        if self.n_features_in_ and isinstance(X, np.ndarray) and mixed.stack is not None:
            check_inputs(self, X)
            threads = getattr(self.base, "n_jobs", None)
            return evaluate(mixed.stack, X, self._fading(), P, threads)
        weights = self._faded(mixed.predict_weights(X), X)
        return weights if P is None else local_average(weights, P)

    def _faded(self, weights: Array, X: Array) -> Array:
        fading = self._fading()
        return weights if fading is None else fading(weights, X)

    def _fading(self) -> Fading | None:
        if self.support_ is None:
            return None
        return Fading(self.support_, self.global_weights_, WEIGHT_FLOOR)

    def _points(self, n_inputs: int, n_candidates: int, n: float, n_rows: int) -> list[Point]:
        """The path, most shrunk first; shrinkage falls with n as the noise of a mean does.

        It grows with the number of inputs, if there are many.
        n : effective number of rows, given their weights; n_rows : how many there are, which says
        how gates are trained.
        """
        kinds: list[tuple[str, Gate, Sequence[float]]] = []
        plan = budget(n_rows, n_inputs)
        base = MLPGate(
            plan.hidden,
            learning_rate=plan.learning_rate,
            n_steps=plan.n_steps,
            batch_size=plan.batch,
        )
        if n_candidates > 1 and self.linear and n_inputs > 0:
            rank = min(n_inputs, n_candidates) + 1
            linear = clone(base).set_params(hidden=(rank,), activation="identity")
            kinds.append(("linear", linear, LINEAR_STRENGTHS))
        if n_candidates > 1:
            local = base if self.base is None else clone(self.base)
            kinds.append(("local", local, self.strengths))
        left, crowd = 1.0 - sum(CONSTANT_PRIOR.values()), max(1.0, n_inputs / MANY_INPUTS)
        return [Point(name, prior) for name, prior in CONSTANT_PRIOR.items()] + [
            Point(name, left / len(kinds) / len(strengths), gate, strength * crowd / n)
            for name, gate, strengths in kinds
            for strength in strengths
        ]

    def _seeds(self, plan: Budget, random: np.random.RandomState) -> list[int]:
        """One for each network that is averaged in the final fit."""
        size = plan.n_restarts if self.n_restarts is None else self.n_restarts
        return [int(seed) for seed in random.randint(np.iinfo(np.int32).max, size=size)]

    def _use_folds(
        self, folds: Sequence[Fold] | None, data: Labelled, random: np.random.RandomState
    ) -> list[Fold]:
        most = self.judging_folds(len(data.y), data.n_groups)
        if folds is None:
            folds = make_folds(self.cv, data.y, data.groups, random_state=random, most=most)
        return list(folds)[:most]

    def _judge(self, held_out: HeldOut, points: list[Point]) -> None:
        """Weight the points by their held-out losses, and find what the procedure is worth."""
        prior = np.array([point.prior for point in points])
        constant = np.array([point.gate is None for point in points])
        L, rule = held_out.losses(), RULES[self.rule]
        nested = [
            held_out.nested_losses(L, rule, part)
            for part in (np.where(constant, prior, 0.0), prior)
        ]
        # A row that several folds judge counts once, with its mean loss.
        judged = held_out.sample_weight, held_out.rows
        if held_out.baseline_losses is not None:
            nested.append(held_out.baseline_losses)
        (by_constants, by_all, *by_baseline), _ = once_a_row(np.stack(nested), *judged)
        L, weight = once_a_row(L, *judged)
        shares = rule(L, weight, prior / prior.sum())
        at_global = L[[point.name for point in points].index("global")]
        overlap, related = held_out.overlap, held_out.related
        self.locality_gain_ = locality_gain(
            at_global,
            by_constants,
            by_all,
            weight,
            baseline_losses=by_baseline[0] if by_baseline else None,
            **related,
            overlap=overlap,
        )
        differences = [
            overlap * mean_and_error(losses - at_global, weight, **related)[1] for losses in L
        ]
        risks = [mean_and_error(losses, weight)[0] for losses in L]
        self.n_features_in_ = held_out.data.n_inputs
        self.n_effective_ = held_out.data.n_effective
        self.n_rows_ = len(held_out.data.y)
        self._tabulate(points, risks, differences, shares)

    def _tabulate(self, points: list[Point], risks: Any, errors: Any, shares: Any) -> None:
        self.path_: dict[str, list[Any]] = {
            "gate": [point.name for point in points],
            "shrinkage": [float(point.shrinkage) for point in points],
            "risk": [float(risk) for risk in risks],
            "standard_error": [float(error) for error in errors],
            "weight": [float(share) for share in shares],
        }

    def _check_parameters(self) -> None:
        check_rules(self, {"rule": tuple(RULES)}, _RULES)
        if not _are_strengths(self.strengths):
            raise InvalidInputError(
                "strengths of ShrunkGate must be a list of finite numbers, zero or more, at least "
                f"one; received {self.strengths!r}. Leave it out for {NETWORK_STRENGTHS}."
            )
        if self.base is not None and not isinstance(self.base, Gate):
            raise InvalidInputError(
                f"The base of ShrunkGate must be a gate, such as MLPGate(); received {self.base!r}."
            )
        if self.base is not None and not {"shrinkage", "random_state"} <= set(
            self.base.get_params(deep=False)
        ):
            raise InvalidInputError(
                "The base of ShrunkGate must have the parameters shrinkage and random_state; "
                f"{type(self.base).__name__} has not. Wrap a gate such as MLPGate()."
            )
        if self.base is not None:
            self.base._check_parameters()


_RULES: Rules = (
    ("linear", lambda value: isinstance(value, bool | np.bool_), "True or False"),
    ("guard", lambda value: isinstance(value, bool | np.bool_), "True or False"),
    (
        "n_restarts",
        lambda value: value is None or is_count(value),
        "a whole number, at least 1, or None",
    ),
)
LEAST_RESTORED_TAIL = 1e-300
"""Shorter tails in a file are refused: one over them is not finite."""


def _are_strengths(strengths: Any) -> bool:
    if not isinstance(strengths, Sequence | np.ndarray) or isinstance(strengths, str):
        return False
    finite = (is_number(strength) and 0.0 <= strength < np.inf for strength in strengths)
    return len(strengths) > 0 and all(finite)


_NUMBERS = ("risk", "standard_error", "weight")


def _judging(folds: list[Fold], sample_weight: Array) -> list[Fold]:
    """The folds whose both parts have weight; time-ordered ones may begin without any."""
    useful = [
        (train, test)
        for train, test in folds
        if sample_weight[train].any() and sample_weight[test].any()
    ]
    if not useful:
        raise InvalidInputError(
            "Some fold needs rows of positive weight both to train on and to judge by; none of the "
            f"{len(folds)} folds has. Use other folds, or other sample weights; where a model of "
            "one's own is fitted, only rows that some fold holds out have weight, so hold out "
            "every row once, as cv=5 does."
        )
    return useful


def _in_order_of_content(
    data: Labelled, folds: Sequence[Fold] | None
) -> tuple[Labelled, list[Fold] | None]:
    """Sort the rows by their content, so that the order in which they came does not matter."""
    order = order_by_content(data)
    if folds is None:
        return data.take(order), None
    position = np.argsort(order)
    moved = [(np.sort(position[train]), np.sort(position[test])) for train, test in folds]
    return data.take(order), moved


def _are_networks(points: Sequence[Point]) -> bool:
    """Whether all gates of a path are trained in the fused kernel."""
    return all(isinstance(point.gate, MLPGate | None) for point in points)


def _restored_size(arrays: dict[str, NDArray[Any]]) -> tuple[int, float, int]:
    """Number of inputs, effective number of rows, number of rows."""
    check_arrays({"size": arrays["size"]}, {"size": ("f", (3,))}, "ShrunkGate")
    p, n, n_rows = arrays["size"].tolist()
    if not (p >= 0 and n > 0 and n_rows >= 1 and p.is_integer() and n_rows.is_integer()):
        raise FileFormatError(
            "The array 'size' of ShrunkGate must hold the number of inputs and two positive "
            f"numbers of rows; received {[p, n, n_rows]}."
        )
    return int(p), n, int(n_rows)
