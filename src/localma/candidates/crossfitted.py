"""A model that is fitted out of fold on the sample that the gate learns from."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import BaseCrossValidator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from localma._tasks import run_parts
from localma._types import AnyArray, Array, Integers, RandomState, RowMask
from localma.candidates.base import Candidate, Inputs
from localma.candidates.estimator import EstimatorCandidate, has_sklearn_tags, refuse_classifier
from localma.candidates.outputs import Labels, Output, OutputNames, Table, Task, align
from localma.candidates.stacked import PredictionColumns, Stacked
from localma.errors import CandidateError, InvalidInputError
from localma.folds import make_folds
from localma.tables.frames import n_rows, take_rows

Folds: TypeAlias = int | BaseCrossValidator | Iterable[tuple[Integers, Integers]] | None
"""A number of folds, a splitter of scikit-learn, or pairs of training and test rows."""


class CrossFitted(Candidate):
    """An unfitted estimator, which is fitted on the sample itself.

    If the gate saw predictions of rows that the model was fitted on, it would trust the model too
    much. So the gate learns from out-of-fold predictions, and new rows are predicted by the model
    fitted on all rows. This is the only kind of candidate that is cloned; your estimator stays
    unfitted.

    Parameters
    ----------
    estimator : estimator
        An unfitted scikit-learn estimator or pipeline.
    cv : int, splitter or iterable, optional
        Folds for this candidate. By default those of the whole model. An integer means the same as
        there: shuffled folds, stratified by label for classification, and by whole groups if you
        pass `groups`.
    inputs : list of str or int, or callable, optional
        Columns or a function of X. By default all but the prediction columns.
    cost : float, default=1.0
        What a row costs, such as the price of a call. Only budgets use it: `budget=` in `predict`
        and `answer`, and `frontier`. It does not change the weights of a fit.
    predictions : bool, default=False
        Whether the predictions of the other candidates are further inputs, on the right. There is
        one column per candidate, and one per class or output if there are several. In a data frame
        they are named "candidate", "candidate: class" or "candidate: output". Predictions of other
        `CrossFitted` candidates are not among them.

    Notes
    -----
    If the estimator fails on some fold, the model is fitted without this candidate, and a
    `LeftOutWarning` says so.

    The estimator gets the sample weights if its `fit` has a parameter `sample_weight`. In a
    pipeline, the last step must have it; with scikit-learn's metadata routing, some step must
    request it. Other estimators are fitted without weights, and only the gate uses them.

    A row that no fold tests, such as the first rows of TimeSeriesSplit, has no out-of-fold
    prediction. A row that several folds test, as with RepeatedKFold, has their mean.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> X, y = np.arange(6.0)[:, None], np.arange(6.0)
    >>> line = CrossFitted(LinearRegression(), cv=3)
    >>> candidate, predictions, covered = line.fit_out_of_fold(X, y, task="regression")
    >>> predictions.round(6).tolist(), bool(covered.all())
    ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], True)
    """

    kind = "crossfitted"

    def __init__(
        self,
        estimator: BaseEstimator,
        cv: Folds = None,
        inputs: Inputs = None,
        cost: float = 1.0,
        *,
        predictions: bool = False,
    ) -> None:
        super().__init__(inputs=inputs, cost=cost)
        _check_can_be_fitted(estimator)
        self.estimator = estimator
        self.cv = cv
        self.predictions = predictions

    def _answer(self, X: Table, task: Task) -> NoReturn:
        raise InvalidInputError("a CrossFitted predicts only after it was fitted on the sample.")

    @property
    def label(self) -> str:
        """The class of the estimator in lower case, as scikit-learn names pipeline steps."""
        return type(self.estimator).__name__.lower()

    def _model_identity(self) -> Hashable:
        return id(self.estimator), self.predictions

    def check_task(self, task: Task, name: str) -> None:
        """Raise an error for a regression with a classifier, or a classification without one.

        Parameters
        ----------
        task : {"regression", "classification"}
            The task.
        name : str
            The name of the candidate in the error.
        """
        if task == "regression":
            refuse_classifier(self.estimator, name)
        elif has_sklearn_tags(self.estimator) and not is_classifier(self.estimator):
            raise InvalidInputError(
                f"Candidate {name!r} ({type(self.estimator).__name__}) is not a classifier, "
                "and this is a classification: pass a classifier, or use LocalMARegressor."
            )

    def fit_out_of_fold(
        self,
        X: Table,
        y: Output,
        *,
        task: Task,
        cv: Folds = None,
        sample_weight: Output | None = None,
        groups: Output | None = None,
        random_state: RandomState = None,
        name: str | None = None,
        outputs: OutputNames | None = None,
        others: Others | None = None,
    ) -> tuple[EstimatorCandidate | Stacked, Array, RowMask]:
        """Fit on all rows, and predict each row with a fit that did not include it.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The inputs.
        y : array-like of shape (n,) or (n, K)
            The target.
        task : {"regression", "classification"}
            The task.
        cv : int, splitter or iterable, optional
            The folds, if the candidate has no `cv`.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        groups : array-like of shape (n,), optional
            Groups, for splitters that need them.
        random_state : int or RandomState, optional
            Seed of the `random_state` parameters of the estimator that are None.
        name : str, optional
            Name of the candidate in error messages. By default its label.
        outputs : OutputNames, optional
            The order of several outputs, as in `predict`.
        others : Others, optional
            The predictions that are further inputs, if `predictions` is True.

        Returns
        -------
        candidate : EstimatorCandidate or Stacked
            Fitted on all rows; Stacked if it takes predictions.
        predictions : array of shape (n,) or (n, K)
            Out of fold; NaN in rows that no fold tests. In classification the columns are in the
            order of `candidate.classes`.
        covered : bool array of shape (n,)
            The rows that some fold tests.
        """
        name = name or self.label
        outputs = outputs or OutputNames()
        if self.cv is not None:
            cv = self.cv
        y = np.asarray(y)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        inputs = self.select(X)
        if others is not None:
            inputs = others.columns.append(inputs, others.P)
        estimator = _seeded(self.estimator, random_state)
        folds = make_folds(
            cv, y, groups, classification=task == "classification", random_state=random_state
        )
        if not folds:
            raise InvalidInputError(f"cv must give at least one fold; {cv!r} gave none.")
        sample = _Sample(inputs, y, weights, None if groups is None else np.asarray(groups))
        model = _fitted(estimator, sample, name, "all rows")
        candidate = self._candidate(model, others)
        if hasattr(model, "for_folds"):  # what held-out rows chose once
            estimator = model.for_folds()
        shared = estimator, sample, task, name, outputs, candidate.classes
        tasks = [(fold, *rows) for fold, rows in enumerate(folds)]
        values = run_parts(_fit_and_test, shared, tasks)
        tested = [(test, found) for (_, test), found in zip(folds, values, strict=True)]
        return candidate, *_mean_over_folds(tested, n_rows(inputs))

    def _candidate(
        self, model: BaseEstimator, others: Others | None
    ) -> EstimatorCandidate | Stacked:
        """Make the candidate that predicts new rows from the model fitted on all rows."""
        if others is None:
            return EstimatorCandidate(model, inputs=self.inputs, cost=self.cost)
        inner = EstimatorCandidate(model)
        return Stacked(inner, others.columns, inputs=self.inputs, cost=self.cost)


@dataclass(frozen=True)
class Others:
    """Predictions of other candidates for the sample.

    Parameters
    ----------
    columns : PredictionColumns
        Their names.
    P : array of shape (n, M) or (n, M, K)
        The predictions.
    """

    columns: PredictionColumns
    P: Array


@dataclass(frozen=True)
class _Sample:
    """What an estimator is fitted on: n rows; weights and groups (n,), if there are any."""

    X: Table
    y: AnyArray
    weights: AnyArray | None
    groups: AnyArray | None

    def take(self, rows: Integers) -> _Sample:
        """Select rows."""
        weights, groups = (
            None if values is None else values[rows] for values in (self.weights, self.groups)
        )
        return _Sample(take_rows(self.X, rows), self.y[rows], weights, groups)


def _fit_and_test(
    shared: tuple[BaseEstimator, _Sample, Task, str, OutputNames, Labels | None],
    fold: int,
    train: Integers,
    test: Integers,
) -> Array:
    """Fit an estimator on the training rows of a fold, and predict its test rows."""
    estimator, sample, task, name, outputs, classes = shared
    model = _fitted(clone(estimator), sample.take(train), name, f"fold {fold}")
    predictor = EstimatorCandidate(model)
    values = predictor.predict(take_rows(sample.X, test), task, name=name, outputs=outputs)
    if predictor.classes is None or classes is None:
        return values
    # A class that is not among the training rows of the fold has probability zero.
    return align(values, predictor.classes, classes)


def _fitted(estimator: BaseEstimator, sample: _Sample, name: str, where: str) -> BaseEstimator:
    further = {}
    argument = weight_argument(estimator)
    if sample.weights is not None and argument is not None:
        further[argument] = sample.weights
    if sample.groups is not None and has_fit_parameter(estimator, "groups"):
        further["groups"] = sample.groups
    try:
        return estimator.fit(sample.X, sample.y, **further)
    except Exception as error:
        raise CandidateError(
            f"Candidate {name!r} raised {type(error).__name__} when fitted on {where} "
            f"({n_rows(sample.X)} rows): {error}. A CrossFitted estimator must fit on every "
            "training fold: correct it, or give it other folds with cv=.",
            candidate=name,
        ) from error


def weight_argument(estimator: BaseEstimator) -> str | None:
    """Return the name of the sample weights in an estimator's `fit`; None if it takes none.

    >>> from sklearn.linear_model import LinearRegression
    >>> weight_argument(Pipeline([("line", LinearRegression())]))
    'line__sample_weight'
    """
    if has_fit_parameter(estimator, "sample_weight"):
        return "sample_weight"
    if get_config()["enable_metadata_routing"]:
        routed = hasattr(estimator, "get_metadata_routing") and (
            estimator.get_metadata_routing().consumes("fit", ["sample_weight"])
        )
        return "sample_weight" if routed else None
    if not isinstance(estimator, Pipeline):
        return None
    name, step = estimator.steps[-1]
    argument = None if step is None or isinstance(step, str) else weight_argument(step)
    return argument and f"{name}__{argument}"


def _mean_over_folds(tested: list[tuple[Integers, Array]], n: int) -> tuple[Array, RowMask]:
    """Average over the folds that test a row, NaN if none does: (n,) or (n, K), and (n,)."""
    total = np.zeros((n, *tested[0][1].shape[1:]))
    count = np.zeros(n)
    for rows, values in tested:
        np.add.at(total, rows, values)
        np.add.at(count, rows, 1.0)
    covered = count > 0
    total[~covered] = np.nan
    count[~covered] = 1.0
    return total / count.reshape(n, *[1] * (total.ndim - 1)), covered


def _seeded(estimator: BaseEstimator, random_state: RandomState) -> BaseEstimator:
    """Clone the estimator, and seed its random states that are None."""
    duplicate = clone(estimator)
    if random_state is None:
        return duplicate
    random = check_random_state(random_state)
    seeds = {
        key: int(random.randint(np.iinfo(np.int32).max))
        for key, value in sorted(duplicate.get_params(deep=True).items())
        if value is None and (key == "random_state" or key.endswith("__random_state"))
    }
    return duplicate.set_params(**seeds)


def _check_can_be_fitted(estimator: BaseEstimator) -> None:
    if isinstance(estimator, FrozenEstimator):
        raise InvalidInputError(
            "CrossFitted fits its estimator in every fold, and a FrozenEstimator is never "
            "refitted: pass the FrozenEstimator itself as the candidate."
        )
    received = repr(estimator)
    if isinstance(estimator, type):
        received = estimator.__name__
    elif all(hasattr(estimator, method) for method in ("fit", "predict", "get_params")):
        return
    raise InvalidInputError(
        "CrossFitted takes an instance of a scikit-learn estimator, with fit, predict and "
        f"get_params; received {received}."
    )
