"""Own models as estimators of scikit-learn, which `CrossFitted` fits on inputs and predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, Self, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from localma._types import AnyArray, Array, Float64, Rows
from localma.candidates.outputs import Labels
from localma.equations import global_average
from localma.errors import FileFormatError
from localma.evidence import Baseline
from localma.folds import number_groups
from localma.losses import Loss
from localma.own.boosting import Boosted, fit_boosted
from localma.own.recalibration import Affine, fit_affine
from localma.own.scales import Link, Objective, within
from localma.trees.boosting import Trees

Arrays: TypeAlias = Mapping[str, AnyArray]
Correction = TypeVar("Correction")


@dataclass(frozen=True)
class Sample:
    """Rows to fit own models on.

    Parameters
    ----------
    X : (n, p) array
        Inputs of the gate.
    P : (n, M, K) array
        Predictions of the candidates.
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


class OwnModel(BaseEstimator, Generic[Correction]):
    """A model of the target from the inputs of the gate and the predictions of M candidates.

    Its table has p columns of inputs, and then the predictions, candidate by candidate.

    Parameters
    ----------
    loss : Loss
        The loss to minimise.
    n_candidates : int
        The number M of candidates.
    labels : (K,) array, optional
        The classes of the predictions, in classification.
    """

    kind: ClassVar[str]

    def __init__(self, loss: Loss, n_candidates: int, labels: Labels | None = None) -> None:
        self.loss = loss
        self.n_candidates = n_candidates
        self.labels = labels

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.loss, self.n_candidates, self.labels)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "regressor" if self.labels is None else "classifier"
        return tags

    # Hooks of the kinds.

    @abstractmethod
    def _start(self, X: Array, P: Array) -> Float64:
        """Scores (n, K) that are corrected."""

    @abstractmethod
    def _fit_start(self, sample: Sample) -> None:
        """Learn what `_start` needs."""

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
        if self.labels is None:
            targets: Float64 = np.asarray(y.reshape(len(y), -1), dtype=np.float64)
        else:
            self.classes_ = np.unique(np.concatenate([self.labels, y]))
            targets = (y[:, np.newaxis] == self.classes_).astype(np.float64)
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        n_predicted = targets.shape[1] if self.labels is None else len(self.labels)
        self.n_outputs_ = targets.shape[1]
        self.n_inputs_ = X.shape[1] - self.n_candidates * n_predicted
        self.link_ = Link.of(self.loss, targets, weight, is_classification=self.labels is not None)
        numbers = None if groups is None else number_groups(groups, len(y))
        sample = Sample(*self._parts(X), targets, weight, numbers)
        self._fit_start(sample)
        start = self._start(sample.X, sample.P)
        objective = Objective.of(self.loss, self.link_, targets, start)
        self.corrections_ = [
            self._fit_correction(objective.take(columns), sample, start, columns)
            for columns in self._blocks()
        ]
        return self

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
        inputs, P = self._parts(X)
        start = self._start(inputs, P)
        scores: Float64 = np.empty(start.shape)
        for correction, columns in zip(self.corrections_, self._blocks(), strict=True):
            scores[:, columns] = self._corrected(correction, start, inputs, P, columns)
        return within(self.link_.means(scores), self.loss)

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
        return means[:, 0] if self.n_outputs_ == 1 else means

    def _parts(self, X: Array) -> tuple[Array, Array]:
        """Split the table into inputs (n, p) and predictions (n, M, K)."""
        inputs = X[:, : self.n_inputs_]
        P = X[:, self.n_inputs_ :].reshape(len(X), self.n_candidates, -1)
        if self.labels is None or len(self.labels) == self.n_outputs_:
            return inputs, P
        aligned = np.zeros((*P.shape[:2], self.n_outputs_))
        aligned[:, :, np.searchsorted(self.classes_, self.labels)] = P
        return inputs, aligned

    def _blocks(self) -> list[Rows]:
        """Columns of scores that are corrected together: all classes, or each output alone."""
        columns = np.arange(self.n_outputs_, dtype=np.intp)
        return [columns] if self.labels is not None else list(columns[:, np.newaxis])

    def _average(self, weights: Array, P: Array) -> Float64:
        """Scores of a constant average of the candidates: (n, K)."""
        return self.link_.scores(global_average(weights, P))


class Recalibrated(OwnModel[Affine]):
    """An affine function of the candidates' scores, shrunk to the score of their average."""

    kind = "recalibrated"

    def _fit_start(self, sample: Sample) -> None:
        pass

    def _start(self, X: Array, P: Array) -> Float64:
        return self._average(np.full(P.shape[1], 1.0 / P.shape[1]), P)

    def _fit_correction(
        self, objective: Objective, sample: Sample, start: Array, columns: Rows
    ) -> Affine:
        return fit_affine(
            objective,
            sample.y[:, columns],
            start[:, columns],
            self.link_.scores(sample.P)[:, :, columns],
            sample.weight,
            sample.groups,
        )

    def _corrected(
        self, correction: Affine, start: Array, X: Array, P: Array, columns: Rows
    ) -> Float64:
        return correction(start[:, columns], self.link_.scores(P)[:, :, columns])


class Residual(OwnModel[Boosted]):
    """Boosted trees that correct an average, from the inputs and the predictions."""

    kind = "residual"
    START = "recalibrated"

    def _fit_start(self, sample: Sample) -> None:
        self.base_ = None
        M = sample.P.shape[1]
        self.weights_ = np.full(M, 1.0 / M)
        if self.START == "global":
            from localma.gates.constant import find_global_weights
            from localma.gates import Labelled
            P, y = sample.P, sample.y
            if self.loss.name == "cross_entropy":
                P, y = (P * y[:, None]).sum(2, keepdims=True), np.ones((len(y), 1))
            self.weights_ = find_global_weights(Labelled.of(sample.X, P, y, loss=self.loss, sample_weight=sample.weight))
        if self.START == "recalibrated":
            Z = np.hstack([sample.X, sample.P.reshape(len(sample.P), -1)])
            y = sample.y if self.labels is None else self.classes_[sample.y.argmax(1)]
            self.base_ = Recalibrated(self.loss, self.n_candidates, None if self.labels is None else self.classes_).fit(Z, y, sample.weight, sample.groups)

    def _start(self, X: Array, P: Array) -> Float64:
        if self.base_ is not None:
            Z = np.hstack([X, P.reshape(len(P), -1)])
            return self.link_.scores(self.base_.predict_proba(Z))
        return self._average(self.weights_, P)

    def _features(self, start: Array, X: Array, P: Array, columns: Rows) -> Array:
        kept = columns if len(columns) == 1 else columns[1:]
        return np.hstack([X, P[:, :, kept].reshape(len(P), -1), start[:, kept]])

    def _fit_correction(
        self, objective: Objective, sample: Sample, start: Array, columns: Rows
    ) -> Boosted:
        return fit_boosted(
            objective,
            self._features(start, sample.X, sample.P, columns),
            sample.y[:, columns],
            start[:, columns],
            sample.weight,
            sample.groups,
        )

    def _corrected(
        self, correction: Boosted, start: Array, X: Array, P: Array, columns: Rows
    ) -> Float64:
        return correction(start[:, columns], self._features(start, X, P, columns))


class Direct(OwnModel[Boosted]):
    """Boosted trees on the inputs alone."""

    kind = "direct"

    def _fit_start(self, sample: Sample) -> None:
        labels = None if self.labels is None else sample.y.argmax(axis=1)
        baseline = Baseline(self.loss, sample.y, sample.weight, labels, self.n_outputs_)
        self.constant_ = self.link_.scores(baseline.learn())

    def _start(self, X: Array, P: Array) -> Float64:
        return np.tile(self.constant_, (len(X), 1))

    def _fit_correction(
        self, objective: Objective, sample: Sample, start: Array, columns: Rows
    ) -> Boosted:
        return fit_boosted(
            objective, sample.X, sample.y[:, columns], start[:, columns], sample.weight, sample.groups
        )

    def _corrected(
        self, correction: Boosted, start: Array, X: Array, P: Array, columns: Rows
    ) -> Float64:
        return correction(start[:, columns], X)
