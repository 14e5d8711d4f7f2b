"""Local weights from boosted trees: a softmax over their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Float64, RandomState
from localma.equations import softmax
from localma.errors import FileFormatError
from localma.evidence import effective_number
from localma.folds import evenly_spaced
from localma.gates.base import (
    COUNT,
    FINITE,
    POSITIVE,
    SHRINKAGE,
    Folds,
    Gate,
    Job,
    Rule,
    Saved,
    arrays_below,
    check_inputs,
    check_table,
    integer_seed,
    read_state,
)
from localma.gates.constant import anchor_and_scale, floored
from localma.gates.labelled import Inputs, Labelled, plain_arrays
from localma.losses import Loss
from localma.trees.boosting import Bins, Derivatives, Growth, Trees, boost

LARGEST_SCORE = 1e100
"""Scores of leaves in a file are at most this large, so that sums of trees are finite."""

STEP = 0.5
"""Curvatures are measured over this share of the way from the mixture to each candidate."""


_STATE = (Saved("global_weights", "M", on_simplex=True), Saved("loss_scale"))


@dataclass(eq=False, repr=False)  # the fields are scikit-learn parameters
class TreeGate(Gate):
    """Local weights: a softmax over boosted trees with one score per candidate.

    ``w(x) = softmax(log w_global + sum_t tree_t(x))``. Each tree is a Newton step of

    ``mean_i s_i loss(y_i, sum_m w_m(x_i) P_im) / c``

    where ``c`` is the mean loss of the global weights. With ``f`` the mixture of a row, the
    gradient by score m is ``w_m loss'(f) (P_m - f)``. The curvature is
    ``w_m loss''(f) (P_m - f)^2``, which bounds that of the whole step, since the weights sum to
    one. A loss needs no second derivative: ``loss''(f) (P_m - f)`` is twice the difference of
    ``loss'`` between ``f`` and the middle of ``f`` and ``P_m``. The gate is shrunk to the global
    weights by the number of trees; without trees it *is* the global gate.

    Trees find steps and interactions that networks learn slowly, and need no scaling of inputs.

    Parameters
    ----------
    n_rounds : int
        Most trees.
    shrinkage : float
        One over the number of trees, rounded, but at most `n_rounds` trees grow. At `inf` there are
        none, and the weights are exactly the global ones.
    learning_rate : float
        Factor of the scores of each tree.
    n_leaves : int
        Most leaves of a tree.
    l2 : float
        Penalty of the scores of leaves, in rows with a loss of ``c`` and a curvature of one.
    least_rows : float
        Smallest effective number of rows of a leaf.
    most_bins : int
        Most bins of an input, besides that of missing values.
    row_share : float
        Share of the rows that each tree is grown on.
    most_rows : int
        In larger samples, trees are grown on this number of evenly spaced rows.
    random_state : int, RandomState instance or None
        Seed of the rows of each tree.

    Attributes
    ----------
    global_weights_ : (M,) array
        The weights to which shrinkage pulls.
    trees_ : Trees
        The trees.
    loss_scale_ : float
        The ``c`` of the objective.
    n_features_in_ : int
        The number p of inputs.

    Examples
    --------
    The first candidate is right on the left, the second on the right:

    >>> from localma.losses import squared_error
    >>> x = np.linspace(-2, 2, 200)
    >>> P, y = np.stack([-x, x], axis=1)[:, :, np.newaxis], np.abs(x)[:, np.newaxis]
    >>> data = Labelled.of(x[:, np.newaxis], P, y, loss=squared_error())
    >>> gate = TreeGate(random_state=0).fit(data)
    >>> gate.predict_weights(np.array([[-1.5], [1.5]])).argmax(axis=1).tolist()
    [0, 1]
    """

    n_rounds: int = 300
    _: KW_ONLY
    shrinkage: float = 0.02
    learning_rate: float = 0.2
    n_leaves: int = 6
    l2: float = 30.0
    least_rows: float = 8.0
    most_bins: int = 32
    row_share: float = 1.0
    most_rows: int = 20_000
    random_state: RandomState = None

    _rules: ClassVar[Mapping[str, Rule]] = {
        "n_rounds": COUNT,
        "shrinkage": SHRINKAGE,
        "learning_rate": POSITIVE,
        "n_leaves": COUNT,
        "l2": FINITE,
        "least_rows": POSITIVE,
        "most_bins": COUNT,
        "row_share": Rule(
            lambda value: POSITIVE.passes(value) and value <= 1.0, "above 0 and at most 1"
        ),
        "most_rows": COUNT,
    }

    def fit(
        self, data: Labelled, *, global_weights: Array | None = None, folds: Folds = None
    ) -> Self:
        """Grow the trees.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        global_weights : (M,) array, optional
            The weights to which shrinkage pulls. By default they are computed.
        folds : sequence of (train, test), optional
            Not used.

        Returns
        -------
        TreeGate
            The fitted gate.
        """
        check_table(data.X)
        self._check_parameters()
        job = Job(None, self.shrinkage, integer_seed(self.random_state), global_weights)
        _fit_gates([self], data, job)
        return self

    def fit_jobs(self, data: Labelled, jobs: Sequence[Job]) -> list[Self]:
        """Train one copy of this gate per job; jobs that differ only in shrinkage share trees.

        Parameters
        ----------
        data : Labelled
            The labelled sample.
        jobs : sequence of Job
            The rows, shrinkage and seed of each training.

        Returns
        -------
        list of TreeGate
            The fitted gates, in the order of the jobs.
        """
        check_table(data.X)
        self._check_parameters()
        gates: list[Self] = []
        alike: dict[tuple[int, int, int], tuple[Job, list[Self]]] = {}
        for job in jobs:
            changes = {"shrinkage": job.shrinkage, "random_state": job.random_state}
            gates.append(clone(self).set_params(**changes))
            key = id(job.rows), id(job.global_weights), job.random_state
            alike.setdefault(key, (job, []))[1].append(gates[-1])
        for job, members in alike.values():
            _fit_gates(members, data, job)
        return gates

    @property
    def n_trees(self) -> int:
        """Number of trees that a fit grows."""
        if self.shrinkage * self.n_rounds <= 1.0:
            return self.n_rounds
        return round(1.0 / self.shrinkage)

    def predict_weights(self, X: Inputs) -> Array:
        """Return the weights of each row.

        Parameters
        ----------
        X : (n, p) array
            The inputs; NaN for a missing value.

        Returns
        -------
        (n, M) array
            The weights: non-negative, with sum one in each row.
        """
        check_is_fitted(self)
        inputs, *_ = plain_arrays(X)
        check_inputs(self, inputs)
        weights = np.zeros((len(inputs), self.n_candidates))
        self.add_weights(np.ascontiguousarray(inputs, dtype=np.float64), 1.0, weights)
        return weights

    def add_weights(self, X: Float64, share: float, out: Float64) -> None:
        """Add a share of the weights to those of other gates.

        Parameters
        ----------
        X : (n, p) array
            The inputs, contiguous and in double precision.
        share : float
            Factor of the weights.
        out : (n, M) array
            The sum of weights; changed in place.
        """
        if self.trees_.n_rounds == 0:
            out += share * self.global_weights_
        else:
            self.trees_.add_softmax(X, self.start, share, out)

    @property
    def start(self) -> Float64:
        """The logits (M,) to which the trees add their scores."""
        logits: Float64 = np.log(floored(self.global_weights_))
        return logits

    def arrays(self) -> dict[str, AnyArray]:
        """Return the fitted state as named arrays, all that `restore` needs.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        check_is_fitted(self)
        return {
            "global_weights": self.global_weights_,
            "loss_scale": np.array(self.loss_scale_),
            **{f"trees.{name}": array for name, array in self.trees_.arrays().items()},
        }

    def restore(self, arrays: dict[str, AnyArray]) -> Self:
        """Set the fitted state from named arrays, which may come from an untrusted file.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays` of a fitted gate with the same parameters.

        Returns
        -------
        TreeGate
            The fitted gate.
        """
        self._check_parameters()
        own = {name: array for name, array in arrays.items() if not name.startswith("trees.")}
        for name, value in read_state(own, _STATE, "TreeGate").items():
            setattr(self, name + "_", value)
        self.trees_ = Trees.restore(arrays_below(arrays, "trees."))
        self.n_features_in_ = self.trees_.n_inputs
        fits = self.trees_.n_scores == self.n_candidates and self.loss_scale_ > 0
        if not fits or (np.abs(self.trees_.values) > LARGEST_SCORE).any():
            raise FileFormatError(
                f"The trees of TreeGate must have scores of at most {LARGEST_SCORE:g} for "
                f"{self.n_candidates} candidates, and 'loss_scale' must be positive."
            )
        return self


def _fit_gates(gates: Sequence[TreeGate], data: Labelled, job: Job) -> None:
    """Fit gates that differ only in shrinkage: the shorter ones get the first trees."""
    anchor, scale = anchor_and_scale(data, job.rows, job.global_weights)
    longest = max(gate.n_trees for gate in gates)
    if data.n_candidates == 1:
        longest = 0
    trees = _grown(gates[0], data, job, anchor, scale, longest)
    for gate in gates:
        gate.global_weights_, gate.loss_scale_ = anchor, scale
        gate.trees_ = trees.first(min(gate.n_trees, longest))
        gate.n_features_in_ = trees.n_inputs


def _grown(
    gate: TreeGate, data: Labelled, job: Job, anchor: Float64, scale: float, n_rounds: int
) -> Trees:
    """Grow the trees of a gate on the rows of a job; anchor : (M,) the global weights."""
    rows = job.rows
    if rows is None:
        rows = np.arange(len(data.y))
    rows = data.with_weight(rows)
    rows = evenly_spaced(rows, gate.most_rows)
    X = np.asarray(data.table[rows], dtype=np.float64)
    weight = data.sample_weight[rows]
    growth = Growth(
        n_leaves=gate.n_leaves,
        least_weight=gate.least_rows,
        l2=gate.l2,
        learning_rate=gate.learning_rate,
        row_share=gate.row_share,
    )
    return boost(
        X,
        np.log(floored(anchor)),
        mixture_derivatives(data.loss, data.y[rows], data.P[rows], scale),
        n_rounds=n_rounds,
        growth=growth,
        # So that the weights of leaves are numbers of rows, whatever the unit of the weights is.
        sample_weight=weight * (effective_number(weight) / weight.sum()),
        bins=Bins.of(X, weight, gate.most_bins),
        seed=job.random_state,
    )


def mixture_derivatives(loss: Loss, y: Array, P: Array, scale: float) -> Derivatives:
    """Gradient and curvature of each row's loss by the scores of the candidates.

    y : (n, K); P : (n, M, K); scale : the loss is divided by it.
    """
    targets = np.broadcast_to(y[:, np.newaxis], P.shape)
    unit = 1.0 / (scale * P.shape[2])

    def derivatives(scores: Float64) -> tuple[Array, Array]:
        weights = softmax(scores)
        mixture = np.einsum("nm,nmk->nk", weights, P)[:, np.newaxis]
        away = P - mixture
        slope = loss.derivative(y[:, np.newaxis], mixture)
        change = loss.derivative(targets, mixture + STEP * away) - slope
        gradient = weights * np.einsum("nmk,nmk->nm", np.broadcast_to(slope, P.shape), away)
        curvature = weights * np.maximum(change * away, 0.0).sum(axis=2) / STEP
        return unit * gradient, unit * curvature

    return derivatives
