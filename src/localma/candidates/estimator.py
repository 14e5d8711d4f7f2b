"""A fitted scikit-learn estimator or pipeline as a candidate."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array
from localma.candidates.base import Candidate, Inputs
from localma.candidates.batches import BatchSize
from localma.candidates.outputs import Classes, Labels, Output, Table, Task, as_labels
from localma.errors import InvalidInputError
from localma.tables.frames import column_names, pick_columns


class FittedModel(Protocol):
    """A fitted estimator of scikit-learn or of any other library."""

    def predict(self, X: Any, /) -> Any:
        """Predict each row of X, in whatever form the library uses."""


class EstimatorCandidate(Candidate):
    """A fitted model with a `predict` method. It is never cloned and never refitted.

    Regression calls `predict`. Classification calls `predict_proba`; for a classifier without it,
    the predicted label gets probability one. A model with neither `predict_proba` nor `classes_`,
    such as a Booster of LightGBM or a fitted Logit of statsmodels, may return probabilities from
    `predict`, if you state `classes`. If X is a data frame, the estimator gets the columns that it
    was fitted on (`feature_names_in_`), in that order and as the same kind of frame.

    Parameters
    ----------
    model : estimator
        The fitted estimator. It is not copied.
    inputs : list of str or int, or callable, optional
        Columns, by name or position, or a function of X.
    classes : array-like of shape (K,), optional
        Labels to use instead of the model's `classes_`, in the same order.
    cost : float, default=1.0
        What a row costs, such as the price of a call. Only budgets use it: `budget=` in `predict`
        and `answer`, and `frontier`. It does not change the weights of a fit.
    batch_size : int, str or None, default=None
        Number of rows per call, "auto" or an amount of memory such as "1 GiB". None predicts all
        rows in one call.

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
        model: FittedModel,
        *,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = None,
    ) -> None:
        check_fitted(model)
        model_classes = own_classes(model)
        if classes is None:
            classes = model_classes
        super().__init__(inputs=inputs, classes=classes, cost=cost, batch_size=batch_size)
        self.model = model
        self._may_be_booster = model_classes is None and not has_sklearn_tags(model)
        self._own_classes = self.classes if model_classes is None else model_classes
        names = getattr(model, "feature_names_in_", None)
        self._feature_names = None if names is None else list(names)
        old, new = self._own_classes, self.classes
        if old is not None and new is not None and len(old) != len(new):
            raise InvalidInputError(
                f"classes= must rename the {len(old)} classes of this {type(model).__name__}, "
                f"{old.tolist()!r}, in the same order; received {new.tolist()!r}."
            )

    def _answer(self, X: Table, task: Task) -> Output:
        if task == "regression" and self._feature_names is None and isinstance(X, np.ndarray):
            values = linear_predictions(self.model, X)
            if values is not None:
                return values
        has_probabilities = task == "classification" and hasattr(self.model, "predict_proba")
        output: Output = getattr(self.model, "predict_proba" if has_probabilities else "predict")(X)
        if task == "regression" or has_probabilities:
            return output
        assert self._own_classes is not None  # check_task
        values = np.asarray(output)
        is_real = self._may_be_booster and values.dtype.kind == "f"
        if is_real and not np.isin(values, self._own_classes).all():
            return output  # probabilities, and not labels
        return one_hot(output, self._own_classes)

    def select(self, X: Table) -> Table:
        """Return the inputs of the model.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        array-like or data frame of n rows
            From a data frame, the columns that the model was fitted on.
        """
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
        model = self.model
        if isinstance(model, FrozenEstimator):
            model = model.estimator
        return type(model).__name__.lower()

    def _model_identity(self) -> Hashable:
        return id(self.model)

    def check_task(self, task: Task, name: str) -> None:
        """Raise an error for a classifier in a regression, or no classes in a classification.

        Parameters
        ----------
        task : {"regression", "classification"}
            The task.
        name : str
            The name of the candidate in the error.
        """
        if task == "regression":
            refuse_classifier(self.model, name)
        elif self.classes is None:
            raise InvalidInputError(
                f"Candidate {name!r} ({type(self.model).__name__}) has no classes_, which a "
                "candidate for classification needs: pass a fitted classifier, or a function "
                "that returns probabilities, as_candidate(function, classes=['no', 'yes'])."
            )

    def picks_own_columns(self, X: Table) -> bool:
        """Return whether inputs are stated or the estimator knows its columns by name.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        bool
            If False, the candidate gets X without prediction columns.
        """
        by_name = self._feature_names is not None and column_names(X) is not None
        return self.inputs is not None or by_name


def check_fitted(model: FittedModel) -> None:
    """Raise an error for an unfitted scikit-learn estimator; other objects are not checked."""
    if not has_sklearn_tags(model) or not hasattr(model, "fit"):
        return
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InvalidInputError(
            f"A candidate must be fitted already, and this {type(model).__name__} is not: "
            "wrap it in CrossFitted(...) or fit it."
        ) from error


def has_sklearn_tags(model: FittedModel) -> bool:
    """Whether scikit-learn can tell if it is a classifier, which is true for CatBoost as well."""
    return isinstance(model, BaseEstimator) or hasattr(model, "__sklearn_tags__")


FEW_ROWS = 64
"""Rows for which the checks of scikit-learn take much longer than a linear model."""
LINEAR = ("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV")
"""Classes of scikit-learn whose prediction is ``X @ coef_.T + intercept_``."""


def linear_predictions(model: FittedModel, X: AnyArray) -> Array | None:
    """Predict a few rows (n, p) with a linear model of scikit-learn, without its checks.

    The numbers are those of its `predict`, bit by bit: the operations are the same. None for other
    models, and if the checks would convert or refuse the rows.

    >>> from sklearn.linear_model import LinearRegression
    >>> line = LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0])
    >>> linear_predictions(line, np.array([[2.0]])).round(6).tolist()
    [5.0]
    """
    library, kind = sys.modules.get("sklearn.linear_model"), type(model)
    if kind.__name__ not in LINEAR or kind is not getattr(library, kind.__name__, None):
        return None
    state = vars(model)
    coefficients, intercept = state.get("coef_"), state.get("intercept_", 0.0)
    if not isinstance(coefficients, np.ndarray) or "predict" in state:
        return None
    fits = X.shape[1:] == coefficients.shape[-1:] and 0 < len(X) <= FEW_ROWS
    if not fits or X.dtype != np.float64 or not np.isfinite(X).all():
        return None
    return np.asarray(X @ coefficients.T + intercept)


def refuse_classifier(model: FittedModel, name: str) -> None:
    """Raise an error if a candidate for regression is a scikit-learn classifier."""
    if has_sklearn_tags(model) and is_classifier(model):
        raise InvalidInputError(
            f"Candidate {name!r} ({type(model).__name__}) is a classifier, and this is a "
            "regression: use LocalMAClassifier, or pass a function such as "
            "lambda X: model.predict_proba(X)[:, 1]."
        )


def own_classes(model: FittedModel) -> Labels | None:
    """Return the labels of a fitted classifier; None for a model without classes."""
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) == 0:  # CatBoost's regressors have an empty array
        return None
    if isinstance(classes, list) and any(np.ndim(labels) for labels in classes):
        raise InvalidInputError(
            f"A candidate must predict one label per row, and this {type(model).__name__} "
            f"predicts {len(classes)}: make one model for each output."
        )
    return as_labels(classes)


def one_hot(predicted: Output, classes: Labels) -> Array:
    """Return labels as probabilities of zero and one: (n,) -> (n, K).

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
