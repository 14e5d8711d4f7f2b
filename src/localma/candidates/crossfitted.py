"""A model of one's own, fitted out of fold on the very sample that the gate learns from."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from localma.candidates.base import Candidate, Inputs
from localma.candidates.estimator import EstimatorCandidate, has_sklearn_tags, refuse_classifier
from localma.candidates.outputs import Array, OutputNames, Table, Task, align, places_of
from localma.errors import CandidateError, InvalidInputError
from localma.folds import make_folds
from localma.tables.frames import n_rows, take_rows

Covered = NDArray[np.bool_]


class CrossFitted(Candidate):
    """An unfitted estimator, to be fitted on the sample itself.

    A gate that saw predictions of rows the model was fitted on would trust it too far. So the
    gate learns from out-of-fold predictions, and new rows are predicted by the model fitted on
    all rows. It is the one candidate whose estimator is cloned; yours stays unfitted.

    Parameters
    ----------
    estimator : an unfitted scikit-learn estimator or pipeline.
    cv : folds of its own (an integer or any splitter); None takes those of the whole model.
        An integer means what it means there: shuffled folds, stratified by label for
        classification, by whole groups where `groups` are given.
    inputs : columns or a function of X; None takes all but the prediction columns.
    cost : a number to record, such as the price of a call. The summary and the report show it;
        it changes neither weights nor predictions.

    Notes
    -----
    Sample weights reach the estimator if its `fit` has a parameter `sample_weight`; in a
    pipeline, if the last step's has (with scikit-learn's metadata routing on: if some step
    requests them). Others are fitted without, and their weights enter the gate alone.

    A row that no fold tests (TimeSeriesSplit's first rows) has no out-of-fold prediction; one
    that several folds test (RepeatedKFold) has their mean.
    """

    kind = "crossfitted"

    def __init__(
        self, estimator: Any, cv: Any = None, inputs: Inputs = None, cost: float = 1.0
    ) -> None:
        super().__init__(inputs=inputs, cost=cost)
        _check_can_be_fitted(estimator)
        self.estimator = estimator
        self.cv = cv

    def _answer(self, X: Table, task: Task) -> NoReturn:
        raise InvalidInputError("a CrossFitted predicts only after it was fitted on the sample.")

    @property
    def label(self) -> str:
        """The class of the estimator in lower case, as scikit-learn names pipeline steps."""
        return type(self.estimator).__name__.lower()

    def _model_identity(self) -> Hashable:
        return id(self.estimator)

    def check_task(self, task: Task, name: str) -> None:
        """Refuse a classifier for regression, and anything else for classification."""
        if task == "regression":
            refuse_classifier(self.estimator, name)
        elif has_sklearn_tags(self.estimator) and not is_classifier(self.estimator):
            raise InvalidInputError(
                f"Candidate {name!r} ({type(self.estimator).__name__}) is no classifier, and "
                "this is a classification: pass a classifier, or use LocalMARegressor."
            )

    def fit_out_of_fold(
        self,
        X: Table,
        y: Any,
        *,
        task: Task,
        cv: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        random_state: Any = None,
        name: str | None = None,
        outputs: OutputNames | None = None,
    ) -> tuple[EstimatorCandidate, Array, Covered]:
        """Fit on all rows, and predict each row by a fit that did not see it.

        Parameters
        ----------
        X : n rows; y : (n,) or (n, K).
        task : "regression" or "classification".
        cv : the folds, where the candidate has none of its own.
        sample_weight : (n,) or None; groups : (n,) for splitters that need them, or None.
        random_state : seeds those `random_state` parameters of the estimator that are None.
        name : what errors call the candidate; its own label if None.
        outputs : the order of several outputs, as in `predict`.

        Returns
        -------
        candidate : EstimatorCandidate
            Fitted on all rows.
        predictions : Array
            (n,) or (n, K), out of fold; NaN in rows that no fold tests. In classification the
            columns are in the order of `candidate.classes`.
        covered : (n,) bool
            The rows that some fold tests.
        """
        name = self.label if name is None else name
        outputs = OutputNames() if outputs is None else outputs
        y = np.asarray(y)
        inputs = self.select(X)
        fresh = _seeded(self.estimator, random_state)
        folds = make_folds(
            cv if self.cv is None else self.cv,
            y,
            groups,
            classification=task == "classification",
            random_state=random_state,
        )
        full = self._fitted(fresh, inputs, y, sample_weight, name, "all rows")
        candidate = EstimatorCandidate(full, inputs=self.inputs, cost=self.cost)
        parts = []
        for fold, (train, test) in enumerate(folds):
            weight = None if sample_weight is None else np.asarray(sample_weight)[train]
            model = self._fitted(
                clone(fresh), take_rows(inputs, train), y[train], weight, name, f"fold {fold}"
            )
            seen = take_rows(inputs, test)
            parts.append((test, _predict_fold(model, candidate, seen, task, name, outputs)))
        if not parts:
            raise InvalidInputError(
                f"cv must give at least one fold; {(cv if self.cv is None else self.cv)!r} gave "
                "none."
            )
        predictions, covered = _mean_of_parts(parts, n_rows(inputs))
        return candidate, predictions, covered

    def _fitted(
        self, estimator: Any, X: Table, y: Any, sample_weight: Any, name: str, where: str
    ) -> Any:
        argument = None if sample_weight is None else weight_argument(estimator)
        weights = {} if argument is None else {argument: sample_weight}
        try:
            return estimator.fit(X, y, **weights)
        except Exception as error:
            raise CandidateError(
                f"Candidate {name!r} raised {type(error).__name__} when fitted on {where} "
                f"({n_rows(X)} rows): {error}. A CrossFitted estimator must fit on every "
                "training fold: correct it, or give it other folds with cv=.",
                candidate=name,
            ) from error


def weight_argument(estimator: Any) -> str | None:
    """Name under which an estimator's `fit` takes sample weights; None if it takes none.

    >>> from sklearn.linear_model import LinearRegression
    >>> weight_argument(Pipeline([("line", LinearRegression())]))
    'line__sample_weight'
    """
    if has_fit_parameter(estimator, "sample_weight"):
        return "sample_weight"
    if get_config()["enable_metadata_routing"]:
        return "sample_weight" if _requests_weight(estimator) else None
    if not isinstance(estimator, Pipeline):
        return None
    step, last = estimator.steps[-1]
    inner = None if isinstance(last, str) or last is None else weight_argument(last)
    return None if inner is None else f"{step}__{inner}"


def _requests_weight(estimator: Any) -> bool:
    if not hasattr(estimator, "get_metadata_routing"):
        return False
    return bool(estimator.get_metadata_routing().consumes("fit", ["sample_weight"]))


def _predict_fold(
    model: Any,
    candidate: EstimatorCandidate,
    X: Table,
    task: Task,
    name: str,
    outputs: OutputNames,
) -> Array:
    fold = EstimatorCandidate(model)
    predictions = fold.predict(X, task, name=name, outputs=outputs)
    if task == "regression":
        return predictions
    assert fold.classes is not None
    assert candidate.classes is not None
    # A class that the fold's training rows lack has probability zero there.
    places = places_of(fold.classes, candidate.classes)
    return align(predictions, places, len(candidate.classes))


def _mean_of_parts(parts: list[tuple[NDArray[np.intp], Array]], n: int) -> tuple[Array, Covered]:
    """Mean over the folds that test a row, NaN where none does: (n,) or (n, K), and (n,)."""
    total = np.zeros((n, *parts[0][1].shape[1:]))
    count = np.zeros(n)
    for rows, values in parts:
        np.add.at(total, rows, values)
        np.add.at(count, rows, 1.0)
    covered = count > 0
    total[~covered] = np.nan
    count[~covered] = 1.0
    return total / count.reshape(n, *[1] * (total.ndim - 1)), covered


def _seeded(estimator: Any, random_state: Any) -> Any:
    """Clone the estimator, and seed those of its random states that are None."""
    fresh = clone(estimator)
    if random_state is None:
        return fresh
    random = check_random_state(random_state)
    seeds = {
        key: int(random.randint(np.iinfo(np.int32).max))
        for key, value in sorted(fresh.get_params(deep=True).items())
        if value is None and (key == "random_state" or key.endswith("__random_state"))
    }
    return fresh.set_params(**seeds)


def _check_can_be_fitted(estimator: Any) -> None:
    if isinstance(estimator, FrozenEstimator):
        raise InvalidInputError(
            "CrossFitted fits its estimator anew in every fold, and a FrozenEstimator is never "
            "refitted: pass the FrozenEstimator itself as the candidate."
        )
    needed = ("fit", "predict", "get_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, part) for part in needed):
        received = estimator.__name__ if isinstance(estimator, type) else repr(estimator)
        raise InvalidInputError(
            "CrossFitted takes an instance of a scikit-learn estimator, with fit, predict and "
            f"get_params; received {received}."
        )
