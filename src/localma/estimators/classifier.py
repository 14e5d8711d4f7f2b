"""The classifier."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from localma._types import AnyArray, Array, RandomState
from localma.candidates.conversion import Models
from localma.candidates.given import Predictions, with_named_classes
from localma.candidates.outputs import (
    Labels,
    Output,
    Table,
    Task,
    as_labels,
    check_no_label_missing,
)
from localma.estimators.base import _LocalMA
from localma.estimators.inputs import check_inputs, gate_inputs
from localma.estimators.parameters import Features, Own
from localma.estimators.predictions import all_predictions, completed_predictions
from localma.evidence import Baseline
from localma.folds import Splits
from localma.gates import Gate, Labelled
from localma.losses import Loss
from localma.own.models import scored
from localma.tables.frames import without_mask

if TYPE_CHECKING:
    from localma.production.options import AnswerOptions


class LocalMAClassifier(ClassifierMixin, _LocalMA):
    """Localized model averaging for classification: ``p(x) = sum_m w_m(x) p_m(x)``.

    Candidates are aligned by class label, never by the position of a column.

    Parameters
    ----------
    candidates : dict of name -> model, or list of models or (name, model) pairs
        Fitted classifiers, functions that state their classes
        (``as_candidate(function, classes=[...])``), `Column`, `CrossFitted`.
    loss : str or Loss, default="cross_entropy"
        "cross_entropy" needs only the probability of the observed class; any other loss acts
        on all K probabilities against the indicator of the class ("brier").
    gate : str or Gate, default="auto"
        The source of the weights, as in `LocalMARegressor`.
    gate_features : list of columns, transformer or function of X, optional
        The inputs of the gate. By default all columns that do not hold predictions.
    own : {"auto"} or list of str, optional
        Own models to add, as in `LocalMARegressor`.
    cv : int or splitter, optional
        Folds, as in `LocalMARegressor`. An integer means folds that are stratified by class.
    folds : {"auto", "shuffled", "blocks"}, default="auto"
        What a fold holds out, as in `LocalMARegressor`.
    random_state : int, RandomState instance or None, default=None
        Seed of folds and of training.
    missing : {"error", "renormalize", "nan"}, default="error"
        What to do about a missing prediction of a candidate. "renormalize": the weights of the
        others in the row are renormalised, in `fit`, `predict` and `answer`. A row without any
        prediction does not count in a fit, and is an error in a prediction. "nan": the same, but
        its prediction is NaN.
    robust : bool, default=False
        Whether to also fit the weights without each candidate, for answers in which one fails. A
        fit then takes up to twice as long.

    Attributes
    ----------
    classes_ : array of shape (K,)
        Sorted union of the classes that the candidates know.
    constant_prediction_ : array of shape (K,)
        Shares of the classes in the sample.
    gate_, pool_, global_weights_, mean_weights_, candidate_names_, cautions_, dependence_
        As in `LocalMARegressor`. So are `n_features_in_` and `feature_names_in_`.

    Examples
    --------
    >>> import numpy as np
    >>> from localma import as_candidate
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> optimist = as_candidate(lambda X: np.full(len(X), 0.9), classes=["no", "yes"])
    >>> pessimist = as_candidate(lambda X: np.full(len(X), 0.1), classes=["no", "yes"])
    >>> model = LocalMAClassifier({"o": optimist, "p": pessimist}, random_state=0)
    >>> model.fit(X, np.where(X[:, 0] > 0, "yes", "no")).predict([[-0.9], [0.9]]).tolist()
    ['no', 'yes']
    """

    _task: ClassVar[Task] = "classification"

    def __init__(
        self,
        candidates: Models | None = None,
        *,
        loss: str | Loss = "cross_entropy",
        gate: str | Gate = "auto",
        gate_features: Features | None = None,
        own: Own = None,
        cv: Splits = None,
        folds: str = "auto",
        random_state: RandomState = None,
        missing: str = "error",
        robust: bool = False,
    ) -> None:
        super().__init__(
            candidates,
            loss=loss,
            gate=gate,
            gate_features=gate_features,
            own=own,
            cv=cv,
            folds=folds,
            random_state=random_state,
            missing=missing,
            robust=robust,
        )

    def predict_proba(
        self,
        X: Table,
        predictions: Predictions | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Array:
        """Average the candidates' probabilities of the classes.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here.
        **options
            Options of `answer`, such as `deadline`, `budget` and `missing`.

        Returns
        -------
        array of shape (n, K)
            Probabilities in the order of `classes_`.
        """
        return normalized(super().predict(X, predictions, **options))

    def predict_set(
        self, X: Table, level: float = 0.9, predictions: Predictions | None = None
    ) -> Any:
        """Set of classes of each row, from the probabilities of held-out rows.

        Only with gate="auto". About `level` of new rows have their class in its set, if they are
        like the labelled rows. If the model was fitted with `groups`, this holds for a row of a new
        group. A set has the most probable class, and more classes where the model is unsure.
        With ``missing="renormalize"`` or "nan", predictions may be missing. If more of them are
        missing than in the labelled sample, fewer rows have their class in the set.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        level : float
            Share of the rows to cover, between 0 and 1.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here.

        Returns
        -------
        array of bool of shape (n, K)
            Whether each class is in the set, in the order of `classes_`. With
            ``set_output(transform="pandas")`` or "polars" it is a data frame, and its columns are
            named after the classes.

        Examples
        --------
        >>> import numpy as np
        >>> from localma import as_candidate
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (400, 1))
        >>> chance = lambda X: 1 / (1 + np.exp(-3 * np.asarray(X)[:, 0]))
        >>> y = np.where(rng.uniform(size=400) < chance(X), "yes", "no")
        >>> model = LocalMAClassifier([as_candidate(chance, classes=["no", "yes"])], random_state=0)
        >>> sets = model.fit(X, y).predict_set([[-2.0], [0.0], [2.0]], level=0.95)
        >>> [model.classes_[row].tolist() for row in sets]
        [['no'], ['no', 'yes'], ['yes']]
        """
        X = check_inputs(self, X)
        evidence, inputs = self._evidence(), gate_inputs(self, X)
        if self._allows_missing:
            sets = completed_predictions(self, X, inputs, predictions).classes(
                evidence, inputs, level
            )
        else:
            sets = evidence.predict_set(inputs, all_predictions(self, X, predictions), level)
        return self._in_container(sets, X, [str(label) for label in self.classes_.tolist()])

    def predict(  # type: ignore[override]
        self,
        X: Table,
        predictions: Predictions | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Labels:
        """Most probable class of each row.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here.
        **options
            Options of `answer`, such as `deadline`, `budget` and `missing`.

        Returns
        -------
        array of shape (n,)
            Labels of `classes_`; None in a row without any candidate if ``missing="nan"``.
        """
        return self._labels(self.predict_proba(X, predictions, **options))

    def _labels(self, probabilities: Array) -> Labels:
        """Most probable class of each row, or None if it has no probabilities: (n,)."""
        labels = np.asarray(self.classes_[np.argmax(probabilities, axis=1)])
        unknown = np.isnan(probabilities[:, 0])
        if unknown.any():
            labels = labels.astype(object)
            labels[unknown] = None
        return labels

    def score(
        self,
        X: Table,
        y: Output,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions | None = None,
    ) -> float:
        """Mean accuracy of the predicted classes.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        y : array of shape (n,)
            The labels.
        sample_weight : array of shape (n,), optional
            Weights of the rows.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here.

        Returns
        -------
        float
            Share of the rows whose class is predicted.
        """
        y, weight = without_mask(y, "y"), without_mask(sample_weight, "sample_weight")
        return float(accuracy_score(y, self.predict(X, predictions), sample_weight=weight))

    def _check_target(self, y: Output) -> AnyArray:
        check_no_label_missing(y)
        labels = validate_data(self, X="no_validation", y=y)
        check_classification_targets(labels)
        return np.asarray(labels)

    def _find_classes(self, y: AnyArray, predictions: Predictions | None) -> Labels:
        classes = None
        if self.pool_ is not None:
            classes = self.pool_.classes
        if classes is None:
            classes = as_labels(np.unique(y))
        if self.pool_ is None and predictions is not None:
            classes = with_named_classes(predictions, classes)
        self.classes_ = classes
        return classes

    def _largest_gap(self, data: Labelled) -> Array:
        return np.ones(len(self.classes_))  # of two probabilities

    def _plain_targets(self, y: AnyArray) -> Array:
        return np.eye(len(labels := np.unique(y)))[np.searchsorted(labels, y)]

    def _score_targets(self, y: AnyArray) -> Array:
        return scored((y[:, np.newaxis] == self.classes_).astype(np.float64))

    def _make_baseline(self, targets: Array, y: AnyArray, sample_weight: Array | None) -> Baseline:
        labels = np.searchsorted(self.classes_, y).astype(np.intp)
        baseline = super()._make_baseline(targets, y, sample_weight)
        return replace(baseline, labels=labels, n_classes=len(self.classes_))

    def _gate_outputs(self, P: Array, y: AnyArray) -> tuple[Array, Array]:
        observed = np.searchsorted(self.classes_, y)
        if self.loss_.name == "cross_entropy":
            return np.take_along_axis(P, observed[:, None, None], axis=2), np.ones((len(y), 1))
        return P, np.eye(len(self.classes_))[observed]


def normalized(probabilities: Array) -> Array:
    """Probabilities without rounding errors: not negative, each row summing to one.

    >>> normalized(np.array([[0.5, 0.75, -1e-17]])).tolist()
    [[0.4, 0.6, 0.0]]
    """
    probabilities = np.clip(probabilities, 0.0, None)
    return probabilities / probabilities.sum(axis=1, keepdims=True)
