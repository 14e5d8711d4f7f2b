"""A fitted scikit-learn estimator or pipeline as a candidate."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from localma.candidates.base import BatchSize, Candidate, Inputs
from localma.candidates.outputs import Array, Classes, Labels, Table, Task, as_labels
from localma.errors import InvalidInputError
from localma.tables.frames import column_names, pick_columns


class EstimatorCandidate(Candidate):
    """Anything fitted that has `predict`: never cloned, never refitted.

    Regression calls `predict`. Classification calls `predict_proba`; a classifier that has none
    gives its predicted label probability one. A model with neither `predict_proba` nor `classes_`,
    such as a Booster of LightGBM or a fitted Logit of statsmodels, may return probabilities from
    `predict`, if you state `classes`. A data frame is cut to the columns that the
    estimator was fitted on (`feature_names_in_`), in that order and as the same kind of frame.

    Parameters
    ----------
    model : the fitted estimator, kept as it is.
    classes : labels to use in place of the model's own `classes_`, in the same order.
    inputs, cost, batch_size : as for every candidate.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> X = np.array([[0.0], [1.0]])
    >>> line = EstimatorCandidate(LinearRegression().fit(X, [1.0, 3.0]))
    >>> line.predict(X, "regression").round(6).tolist()
    [1.0, 3.0]
    """

    kind = "estimator"
    runs_here = True

    def __init__(
        self,
        model: Any,
        *,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = None,
    ) -> None:
        check_fitted(model)
        own = own_classes(model)
        classes = own if classes is None else classes
        super().__init__(inputs=inputs, classes=classes, cost=cost, batch_size=batch_size)
        self.model = model
        self._may_be_booster = own is None and not has_sklearn_tags(model)
        self._own_classes = self.classes if own is None else own
        self._has_probabilities = hasattr(model, "predict_proba")
        names = getattr(model, "feature_names_in_", None)
        self._feature_names = None if names is None else list(names)
        _check_renaming(self.classes, own, model)

    def _answer(self, X: Table, task: Task) -> Any:
        if task == "regression":
            return self.model.predict(X)
        if self._has_probabilities:
            return self.model.predict_proba(X)
        assert self._own_classes is not None  # check_task
        predicted = self.model.predict(X)
        if self._may_be_booster and _are_probabilities(predicted, self._own_classes):
            return predicted
        return one_hot(predicted, self._own_classes)

    def select(self, X: Table) -> Any:
        """The inputs stated; of a data frame, the columns that the estimator was fitted on."""
        X = super().select(X)
        if self._feature_names is None:
            return X
        names = column_names(X)
        if names is None or names == self._feature_names:
            return X
        return pick_columns(X, self._feature_names)

    @property
    def label(self) -> str:
        """The class of the estimator in lower case, as scikit-learn names pipeline steps."""
        frozen = isinstance(self.model, FrozenEstimator)
        return type(self.model.estimator if frozen else self.model).__name__.lower()

    def _model_identity(self) -> Hashable:
        return id(self.model)

    def check_task(self, task: Task, name: str) -> None:
        """Refuse a classifier for regression, and classification without classes."""
        if task == "regression":
            refuse_classifier(self.model, name)
        elif self.classes is None:
            raise InvalidInputError(
                f"Candidate {name!r} ({type(self.model).__name__}) has no classes_, which a "
                "candidate for classification needs: pass a fitted classifier, or a function "
                "that returns probabilities, as_candidate(function, classes=['no', 'yes'])."
            )

    def picks_own_columns(self, X: Table) -> bool:
        """Whether inputs are stated or the estimator knows its columns by name."""
        if self.inputs is not None:
            return True
        return self._feature_names is not None and column_names(X) is not None


def check_fitted(model: Any) -> None:
    """Refuse an unfitted scikit-learn estimator; other objects cannot be asked."""
    if not has_sklearn_tags(model) or not hasattr(model, "fit"):
        return
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InvalidInputError(
            f"A candidate must be fitted already, and this {type(model).__name__} is not: "
            "wrap it in CrossFitted(...) or fit it."
        ) from error


def has_sklearn_tags(model: Any) -> bool:
    """Whether scikit-learn can tell a classifier from a regressor, as for CatBoost's models too."""
    return isinstance(model, BaseEstimator) or hasattr(model, "__sklearn_tags__")


def refuse_classifier(model: Any, name: str) -> None:
    """Refuse a scikit-learn classifier as a candidate for regression."""
    if has_sklearn_tags(model) and is_classifier(model):
        raise InvalidInputError(
            f"Candidate {name!r} ({type(model).__name__}) is a classifier, and this is a "
            "regression: use LocalMAClassifier, or pass a function such as "
            "lambda X: model.predict_proba(X)[:, 1]."
        )


def own_classes(model: Any) -> Labels | None:
    """The labels that a fitted classifier knows; None for a model without classes."""
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) == 0:  # CatBoost's regressors have an empty array
        return None
    if isinstance(classes, list) and any(np.ndim(part) for part in classes):
        raise InvalidInputError(
            f"A candidate must predict one label per row, and this {type(model).__name__} "
            f"predicts {len(classes)}: make one model of each output."
        )
    return as_labels(classes)


def _check_renaming(classes: Labels | None, own: Labels | None, model: Any) -> None:
    if own is None or classes is None or len(own) == len(classes):
        return
    raise InvalidInputError(
        f"classes= must rename the {len(own)} classes of this {type(model).__name__}, "
        f"{own.tolist()!r}, in the same order; received {classes.tolist()!r}."
    )


def _are_probabilities(predicted: Any, classes: Labels) -> bool:
    """Whether a model that does not know its classes predicts probabilities, not labels."""
    values = np.asarray(predicted)
    return values.dtype.kind == "f" and not np.isin(values, classes).all()


def one_hot(predicted: Any, classes: Labels) -> Array:
    """Hard labels as probabilities of zero and one: (n,) -> (n, K).

    >>> one_hot(["b", "a"], np.array(["a", "b"])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    labels = np.asarray(predicted)
    hits = labels.reshape(len(labels), -1)[:, :1] == classes
    stray = ~hits.any(axis=1)
    if stray.any():
        raise InvalidInputError(
            f"it predicted the label {labels[stray].tolist()[0]!r}, which is not among its "
            f"classes {classes.tolist()!r}: fit it on the labels that it predicts, or pass a "
            "function that returns probabilities."
        )
    return hits.astype(np.float64)
