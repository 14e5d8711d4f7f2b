"""Own models as estimators of scikit-learn, which `CrossFitted` fits on inputs and predictions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeAlias, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from localma._types import AnyArray, Array, Float64, Rows
from localma.candidates.outputs import Labels
from localma.equations import global_average
from localma.errors import FileFormatError
from localma.evidence import Baseline
from localma.folds import evenly_spaced, number_groups
from localma.gates.base import Arrays, arrays_below, check_arrays, numbered_arrays
from localma.gates.labelled import Table, mean_and_scale
from localma.losses import Loss
from localma.own.boosting import Boosted, fit_boosted
from localma.own.recalibration import MOST_SLOPES, Affine, fit_affine
from localma.own.scales import LINKS, Link, Objective

Correction = TypeVar("Correction", Affine, Boosted)
State: TypeAlias = dict[str, AnyArray]

FAR = 4.0
"""Inputs of an affine function are cut at this many standard deviations."""

BOUNDING_ROWS = 10_000
"""At most this many rows of the sample bound later predictions."""


@dataclass(frozen=True)
class Sample:
    """Rows to fit own models on.

    Parameters
    ----------
    X : (n, p) array
        Inputs of the gate.
    P : (n, M, K) array
        Predictions of the candidates. With two classes, K is 1 and they are for the second.
    y : (n, K) array
        Targets, or indicators of the classes.
    weight : (n,) array
        Weights of the rows.
    groups : (n,) array of int or None
        Numbers of the groups of dependent rows.
    """

    X: Array
    P: Array
    y: Array
    weight: Array
    groups: Rows | None

    def take(self, rows: Rows) -> Sample:
        """Select rows."""
        X, P, y, weight = (values[rows] for values in (self.X, self.P, self.y, self.weight))
        return Sample(X, P, y, weight, None if self.groups is None else self.groups[rows])


class OwnModel(BaseEstimator, Generic[Correction]):
    """A model of the target from the inputs of the gate and the predictions of M candidates.

    Its table has p columns of inputs, and then the predictions, candidate by candidate. It adds
    corrections to scores, which are predictions on the scale of the link of the loss.

    Parameters
    ----------
    loss : Loss
        The loss to minimise.
    n_candidates : int
        The number M of candidates.
    labels : (K,) array, optional
        The classes of the predictions, in classification.
    n_rounds : list of int, optional
        The number of trees for each output, or for all classes. By default held-out rows choose.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        loss: Loss,
        n_candidates: int,
        labels: Labels | None = None,
        n_rounds: list[int] | None = None,
    ) -> None:
        self.loss = loss
        self.n_candidates = n_candidates
        self.labels = labels
        self.n_rounds = n_rounds

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.loss, self.n_candidates, self.labels, self.n_rounds)

    def for_folds(self) -> Self:
        """Return an unfitted model with the numbers of trees of this one, for `CrossFitted`.

        A search in every fold would take three times as long and choose nearly the same.

        Returns
        -------
        OwnModel
            The unfitted model.
        """
        corrections: list[Affine | Boosted] = list(self.corrections_)
        rounds = [one.trees.n_rounds for one in corrections if isinstance(one, Boosted)]
        return type(self)(self.loss, self.n_candidates, self.labels, rounds or None)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "regressor" if self.labels is None else "classifier"
        return tags

    # Hooks of the kinds.

    @abstractmethod
    def _fit_start(self, sample: Sample) -> None:
        """Learn what `_start` needs."""

    @abstractmethod
    def _start(self, X: Array, P: Array) -> Float64:
        """Scores (n, K) that are corrected."""

    @abstractmethod
    def _fit_correction(
        self, objective: Objective, sample: Sample, start: Array, columns: Rows
    ) -> Correction:
        """Fit the correction of some scores; columns : (S,) their indices among the K."""

    @abstractmethod
    def _corrected(
        self, correction: Correction, start: Array, X: Array, P: Array, columns: Rows
    ) -> Float64:
        """Corrected scores (n, S) of the columns."""

    @abstractmethod
    def _start_arrays(self) -> State:
        """Arrays from which `_restore_start` restores the start."""

    @abstractmethod
    def _restore_start(self, arrays: State) -> None:
        """Set what `_start` needs; refuse arrays that do not fit."""

    @abstractmethod
    def _restore_correction(self, arrays: State, n_scores: int) -> Correction:
        """Restore a correction of n_scores scores; refuse arrays that do not fit."""

    # An estimator of scikit-learn.

    def fit(
        self,
        X: Array,
        y: AnyArray,
        sample_weight: Array | None = None,
        groups: AnyArray | None = None,
    ) -> Self:
        """Fit the corrections.

        Parameters
        ----------
        X : (n, p + M K) array
            Inputs and predictions.
        y : (n,) or (n, K) array
            Targets or labels.
        sample_weight : (n,) array, optional
            Weights of the rows.
        groups : (n,) array, optional
            Groups of dependent rows, which inner folds keep whole.

        Returns
        -------
        OwnModel
            The fitted model.
        """
        targets: Float64
        if self.labels is None:
            targets = np.asarray(y.reshape(len(y), -1), dtype=np.float64)
            n_predicted = targets.shape[1]
        else:
            self.classes_ = np.unique(np.concatenate([self.labels, y]))
            targets = (y[:, np.newaxis] == self.classes_).astype(np.float64)
            targets, n_predicted = np.asarray(scored(targets)), len(self.labels)
        self.n_inputs_ = X.shape[1] - self.n_candidates * n_predicted
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        numbers = None if groups is None else number_groups(groups, len(y))
        return self.fit_sample(Sample(*self._parts(X), targets, weight, numbers))

    def fit_sample(self, sample: Sample) -> Self:
        """Fit the corrections of a sample whose parts are apart.

        Parameters
        ----------
        sample : Sample
            The rows.

        Returns
        -------
        OwnModel
            The fitted model.
        """
        self.n_inputs_, self.n_scores_ = sample.X.shape[1], sample.y.shape[1]
        self.link_ = Link.of(
            self.loss, sample.y, sample.weight, is_classification=self.labels is not None
        )
        self._fit_start(sample)
        start = self._start(sample.X, sample.P)
        objective = Objective.of(self.loss, self.link_, sample.y, start)
        self.corrections_: list[Correction] = [
            self._fit_correction(objective.take(columns), sample, start, columns)
            for columns in self._blocks()
        ]
        rows = evenly_spaced(np.flatnonzero(sample.weight > 0), BOUNDING_ROWS)
        n_effective = sample.weight.sum() ** 2 / (sample.weight**2).sum()
        self.link_ = self.link_.within(self.scores(sample.X[rows], sample.P[rows]), n_effective)
        return self

    def scores(self, X: Array, P: Array) -> Float64:
        """Predict the scores.

        Parameters
        ----------
        X : (n, p) array
            Inputs.
        P : (n, M, K) array
            Predictions of the candidates, as in `Sample`.

        Returns
        -------
        (n, K) array
            The scores.
        """
        start = self._start(X, P)
        scores: Float64 = np.empty(start.shape)
        for correction, columns in zip(self.corrections_, self._blocks(), strict=True):
            scores[:, columns] = self._corrected(correction, start, X, P, columns)
        return scores

    def predict_proba(self, X: Array) -> Float64:
        """Predict the mean of each output, or the probability of each class.

        Parameters
        ----------
        X : (n, p + M K) array
            Inputs and predictions.

        Returns
        -------
        (n, K) array
            The predictions.
        """
        means = self.link_.means(self.scores(*self._parts(X)))
        if self.labels is not None and means.shape[1] == 1:
            return np.hstack([1.0 - means, means])
        return means

    def predict(self, X: Array) -> AnyArray:
        """Predict the target.

        Parameters
        ----------
        X : (n, p + M K) array
            Inputs and predictions.

        Returns
        -------
        (n,) or (n, K) array
            Means, or labels.
        """
        means = self.predict_proba(X)
        if self.labels is not None:
            return np.asarray(self.classes_[means.argmax(axis=1)])
        return means[:, 0] if self.n_scores_ == 1 else means

    def _parts(self, X: Array) -> tuple[Array, Array]:
        """Split the table into inputs (n, p) and predictions (n, M, K)."""
        inputs = X[:, : self.n_inputs_]
        P: Array = X[:, self.n_inputs_ :].reshape(len(X), self.n_candidates, -1)
        if self.labels is None:
            return inputs, P
        if len(self.labels) < len(self.classes_):
            aligned: Float64 = np.zeros((*P.shape[:2], len(self.classes_)))
            aligned[:, :, np.searchsorted(self.classes_, self.labels)] = P
            P = aligned
        return inputs, scored(P)

    def _blocks(self) -> list[Rows]:
        """Columns of scores that are corrected together: all classes, or each output alone."""
        columns = np.arange(self.n_scores_, dtype=np.intp)
        return [columns] if self.labels is not None else list(columns[:, np.newaxis])

    def _rounds(self, columns: Rows) -> int | None:
        """Number of trees of a block of columns, if it is known."""
        if self.n_rounds is None:
            return None
        return self.n_rounds[0 if self.labels is not None else int(columns[0])]

    # Saving.

    def arrays(self) -> State:
        """Return the fitted state as named arrays, all that `restore` needs.

        Returns
        -------
        dict of str to array
            The arrays by name.
        """
        state: State = {
            "n_inputs": np.array(self.n_inputs_),
            "link": np.array(LINKS.index(self.link_.name)),
            "floor": self.link_.floor,
            "bounds": self.link_.bounds,
        }
        state |= {f"start.{name}": array for name, array in self._start_arrays().items()}
        for k, correction in enumerate(self.corrections_):
            arrays = correction.arrays()
            state |= {f"correction.{k}.{name}": array for name, array in arrays.items()}
        return state

    def restore(self, arrays: Arrays, n_outputs: int) -> Self:
        """Set the fitted state from named arrays, which may come from an untrusted file.

        Parameters
        ----------
        arrays : dict of str to array
            The result of `arrays` of a fitted model with the same parameters.
        n_outputs : int
            The number of outputs or classes.

        Returns
        -------
        OwnModel
            The fitted model.
        """
        own = {name: array for name, array in arrays.items() if "." not in name}
        self.n_scores_ = 1 if self.labels is not None and n_outputs == 2 else n_outputs
        K = self.n_scores_
        expected = {"n_inputs": ("i", ()), "link": ("i", ()), "bounds": ("f", (2, K))}
        check_arrays(own, expected | {"floor": ("f", (K,))}, "An own model")
        self.n_inputs_, link = int(own["n_inputs"]), int(own["link"])
        floor, bounds = (np.asarray(own[k], dtype=np.float64) for k in ("floor", "bounds"))
        if not 0 <= link < len(LINKS) or self.n_inputs_ < 0 or (floor < 0).any():
            raise FileFormatError("An own model must have a known link, inputs and a floor.")
        self.link_ = Link(LINKS[link], floor, bounds)
        has_classes = self.labels is not None
        if (bounds[0] > bounds[1]).any() or (has_classes and link < LINKS.index("logit")):
            raise FileFormatError("An own model must predict within bounds, and classes by logits.")
        if self.labels is not None:
            self.classes_ = self.labels
        self._restore_start(arrays_below(arrays, "start."))
        saved = numbered_arrays(arrays, "correction.")
        if len(saved) != len(self._blocks()):
            raise FileFormatError(
                f"An own model of {n_outputs} outputs must have {len(self._blocks())} corrections; "
                f"received {len(saved)}."
            )
        self.corrections_ = [
            self._restore_correction(one, len(columns))
            for one, columns in zip(saved, self._blocks(), strict=True)
        ]
        return self


def scored(values: Array) -> Array:
    """Drop the first of two classes, which follows from the second: (..., K) -> (..., K)."""
    return values[..., 1:] if values.shape[-1] == 2 else values


class Recalibrated(OwnModel[Affine]):
    """An affine function of the candidates' scores, shrunk to the score of their average."""

    kind = "recalibrated"

    def _fit_start(self, sample: Sample) -> None:
        pass

    def _start(self, X: Array, P: Array) -> Float64:
        weights = np.full(P.shape[1], 1.0 / P.shape[1])
        return self.link_.scores(global_average(weights, P))

    def _fit_correction(
        self, objective: Objective, sample: Sample, start: Array, columns: Rows
    ) -> Affine:
        Z = self.link_.scores(sample.P)[:, :, columns]
        y, weight = sample.y[:, columns], sample.weight
        return fit_affine(objective, y, start[:, columns], Z, weight, sample.groups)

    def _corrected(
        self, correction: Affine, start: Array, X: Array, P: Array, columns: Rows
    ) -> Float64:
        return correction(start[:, columns], self.link_.scores(P)[:, :, columns])

    def _start_arrays(self) -> State:
        return {}

    def _restore_start(self, arrays: State) -> None:
        check_arrays(arrays, {}, "The start of a recalibrated average")

    def _restore_correction(self, arrays: State, n_scores: int) -> Affine:
        return Affine.restore(arrays, self.n_candidates, n_scores)


class Residual(OwnModel[Boosted]):
    """Boosted trees on the inputs and the predictions, which correct the recalibrated average."""

    kind = "residual"

    def _fit_start(self, sample: Sample) -> None:
        self.recalibrated_ = self._unfitted().fit_sample(sample)

    def _unfitted(self) -> Recalibrated:
        return Recalibrated(self.loss, self.n_candidates, self.labels)

    def _start(self, X: Array, P: Array) -> Float64:
        return self.recalibrated_.scores(X, P)

    def _table(self, start: Array, X: Array, P: Array, columns: Rows) -> Array:
        """Inputs of the trees. The probability of the first of many classes follows."""
        kept = columns if len(columns) == 1 else columns[1:]
        return np.hstack([X, P[:, :, kept].reshape(len(P), -1), start[:, kept]])

    def _fit_correction(
        self, objective: Objective, sample: Sample, start: Array, columns: Rows
    ) -> Boosted:
        table = self._table(start, sample.X, sample.P, columns)
        y, weight = sample.y[:, columns], sample.weight
        rounds = self._rounds(columns)
        return fit_boosted(objective, table, y, start[:, columns], weight, sample.groups, rounds)

    def _corrected(
        self, correction: Boosted, start: Array, X: Array, P: Array, columns: Rows
    ) -> Float64:
        return correction(start[:, columns], self._table(start, X, P, columns))

    def _start_arrays(self) -> State:
        return self.recalibrated_.arrays()

    def _restore_start(self, arrays: State) -> None:
        n_outputs = self.n_scores_ if self.labels is None else len(self.labels)
        self.recalibrated_ = self._unfitted().restore(arrays, n_outputs)

    def _restore_correction(self, arrays: State, n_scores: int) -> Boosted:
        kept = max(n_scores - 1, 1)
        n_inputs = self.n_inputs_ + (self.n_candidates + 1) * kept
        return Boosted.restore(arrays, n_inputs, n_scores)


class Direct(OwnModel[Boosted]):
    """Boosted trees on the inputs alone, which correct a function that is affine in the inputs."""

    kind = "direct"

    def _fit_start(self, sample: Sample) -> None:
        self.constant_ = self._best_constant(sample)
        self.mean_, self.scale_ = mean_and_scale(cast(Table, sample.X), None, sample.weight)
        constant = np.tile(self.constant_, (len(sample.y), 1))
        objective = Objective.of(self.loss, self.link_, sample.y, constant)
        self.affine_ = []
        for columns in self._blocks():
            Z = self._inputs(sample.X, len(columns))
            y, start = sample.y[:, columns], constant[:, columns]
            part = objective.take(columns)
            self.affine_.append(fit_affine(part, y, start, Z, sample.weight, sample.groups))

    def _best_constant(self, sample: Sample) -> Float64:
        """Scores of the best constant prediction: (K,)."""
        y = sample.y
        if self.labels is not None:  # shares of the classes, none of which is zero
            share = (sample.weight @ y + 0.5) / (sample.weight.sum() + 0.5 * max(y.shape[1], 2))
            return self.link_.scores(share)
        return self.link_.scores(Baseline(self.loss, y, sample.weight).learn())

    def _inputs(self, X: Array, n_scores: int) -> Array:
        """Standardised inputs, with own slopes for each score: (n, p S, S)."""
        n_slopes = X.shape[1] * n_scores
        if n_slopes > MOST_SLOPES:
            return np.zeros((len(X), 0, n_scores))
        table = np.clip((X - self.mean_) / self.scale_, -FAR, FAR)
        return np.einsum("np,st->npst", table, np.eye(n_scores)).reshape(len(X), n_slopes, -1)

    def _start(self, X: Array, P: Array) -> Float64:
        start: Float64 = np.tile(self.constant_, (len(X), 1))
        for affine, columns in zip(self.affine_, self._blocks(), strict=True):
            start[:, columns] = affine(start[:, columns], self._inputs(X, len(columns)))
        return start

    def _fit_correction(
        self, objective: Objective, sample: Sample, start: Array, columns: Rows
    ) -> Boosted:
        y, weight = sample.y[:, columns], sample.weight
        rounds = self._rounds(columns)
        return fit_boosted(objective, sample.X, y, start[:, columns], weight, sample.groups, rounds)

    def _corrected(
        self, correction: Boosted, start: Array, X: Array, P: Array, columns: Rows
    ) -> Float64:
        return correction(start[:, columns], X)

    def _start_arrays(self) -> State:
        state: State = {"constant": self.constant_, "mean": self.mean_, "scale": self.scale_}
        for k, affine in enumerate(self.affine_):
            state |= {f"affine.{k}.{name}": array for name, array in affine.arrays().items()}
        return state

    def _restore_start(self, arrays: State) -> None:
        own = {name: array for name, array in arrays.items() if "." not in name}
        size = ("f", (self.n_inputs_,))
        expected = {"constant": ("f", (self.n_scores_,)), "mean": size, "scale": size}
        check_arrays(own, expected, "The start of a direct model")
        self.constant_, self.mean_, self.scale_ = (
            np.asarray(own[name], dtype=np.float64) for name in ("constant", "mean", "scale")
        )
        saved = numbered_arrays(arrays, "affine.")
        if len(saved) != len(self._blocks()) or not (self.scale_ > 0).all():
            raise FileFormatError("A direct model must have an affine function and scales.")
        self.affine_ = []
        for one, columns in zip(saved, self._blocks(), strict=True):
            S, n_slopes = len(columns), self.n_inputs_ * len(columns)
            self.affine_.append(Affine.restore(one, n_slopes if n_slopes <= MOST_SLOPES else 0, S))

    def _restore_correction(self, arrays: State, n_scores: int) -> Boosted:
        return Boosted.restore(arrays, self.n_inputs_, n_scores)
