"""The regressor."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import column_or_1d, validate_data

from localma._types import AnyArray, Array
from localma.candidates.given import Predictions
from localma.candidates.outputs import Output, Table, Task
from localma.errors import InvalidInputError
from localma.estimators.base import _LocalMA
from localma.estimators.inputs import check_inputs, gate_inputs
from localma.estimators.predictions import all_predictions, completed_predictions
from localma.tables.frames import holds_dates, without_mask

if TYPE_CHECKING:
    pass


class LocalMARegressor(RegressorMixin, _LocalMA):
    """Localized model averaging for regression: ``f(x) = sum_m w_m(x) f_m(x)``.

    Parameters
    ----------
    candidates : dict of name -> model, or list of models or (name, model) pairs
        Fitted scikit-learn estimators, functions, `Column`, `CrossFitted`, or anything that
        `as_candidate` takes. They are never refitted or cloned. None with `predictions=`.
    loss : str or Loss, default="squared_error"
        The loss to minimise, on the scale of the predictions; see `localma.losses`.
    gate : str or Gate, default="auto"
        The source of the weights: "auto" (local as far as held-out rows support it), "local"
        (a network), "global" (constant weights on the simplex), "equal", "paper" (the paper's
        network and optimiser), or a Gate object.
    gate_features : list of columns, transformer or function of X, optional
        The inputs of the gate. By default all columns that do not hold predictions.
    own : {"auto"} or list of str, optional
        Own models to add, as cross-fitted candidates that correct what all candidates get wrong:
        "recalibrated" (an affine function of the predictions), "residual" (boosted trees on the
        inputs and the predictions) and "direct" (boosted trees on the inputs). "auto" adds all
        three. They are named "own: recalibrated" and so on.
    cv : int or splitter, optional
        Folds for `CrossFitted` candidates and for gates that choose by cross-fitting: their number,
        or a splitter of scikit-learn, which is used as it is. None means five folds. Above 2,300
        rows gate="auto" judges by fewer of them, and by one from about 11,000 rows on. With fewer
        than 50 groups it judges by all of them.
    folds : {"auto", "shuffled", "blocks"}, default="auto"
        What a fold holds out, if neither `groups` nor a splitter say so. "shuffled": rows at
        random. "blocks": consecutive rows. "auto": rows at random, unless rows depend on each
        other. Then it is blocks of consecutive rows, rows with the same value of a column, or all
        copies of a row; see `dependence_`.
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
    gate_ : Gate
        The fitted gate.
    pool_ : Pool or None
        The candidates; None if only predictions were passed.
    global_weights_ : array of shape (M,)
        The best constant weights.
    mean_weights_ : array of shape (M,) or None
        Mean weights over the sample (at most 2,000 rows); None in a loaded model.
    candidate_names_ : tuple of M str
        Names of the candidates.
    n_outputs_ : int
        The number K of outputs.
    output_names_ : tuple of K str, or None
        Names of the outputs in the order of `predict`, if data frames name them (y, or else the
        first predictions).
    constant_prediction_ : array of shape (K,) or None
        The best constant prediction of the sample: the mean, median or quantile of each output, as
        the loss elicits; None if the loss allows no constant.
    cautions_ : tuple of Caution
        Reasons to doubt this fit; `fit` warns of them.
    dependence_ : Dependence or None
        How rows of the sample depend on each other, if that decided what was held out.
    left_out_ : LeftOut or None
        The weights without each candidate, with `robust`.
    largest_gap_ : array of shape (K,)
        The largest difference of two candidates in a row of the sample; for classes one.
    shared_error_ : SharedError or None
        The error that all candidates share, if it is clear that `own` would remove one.
    reference_ : Reference or None
        Quantiles of the inputs, losses and weights in the sample, for `localma.production.Monitor`.
    n_features_in_ : int
        Number of columns of X, if X is a table.
    feature_names_in_ : array of str
        Names of the columns, if X is a data frame.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> left, right = lambda X: -X[:, 0], lambda X: X[:, 0]
    >>> model = LocalMARegressor({"left": left, "right": right}, random_state=0)
    >>> model.fit(X, np.abs(X[:, 0])).predict_weights([[-1.5], [1.5]]).round().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    _task: ClassVar[Task] = "regression"

    def predict_interval(
        self, X: Table, level: float = 0.9, predictions: Predictions | None = None
    ) -> tuple[Array, Array]:
        """Interval of the target of each row, from the errors of held-out rows.

        Only with gate="auto". About `level` of new rows have their target in its interval, if they
        are like the labelled rows. If the model was fitted with `groups`, this holds for a row of
        a new group. The width follows the candidates' disagreement and the errors of similar rows.
        With ``missing="renormalize"`` or "nan", predictions may be missing. If more of them are
        missing than in the labelled sample, fewer targets are covered.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        level : float
            Share of the targets to cover, between 0 and 1.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here.

        Returns
        -------
        low : array of shape (n,), or (n, K) with several outputs
            Lower ends, at most the prediction, and within the targets that the loss allows.
        high : array of the same shape
            Upper ends, at least the prediction.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X, noise = rng.uniform(-2, 2, (300, 1)), rng.normal(size=300)
        >>> candidates = {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}
        >>> model = LocalMARegressor(candidates, random_state=0)
        >>> model = model.fit(X, np.abs(X[:, 0]) + 0.1 * noise)
        >>> low, high = model.predict_interval([[-1.0], [1.0]], level=0.9)
        >>> bool(((low < 1) & (high > 1) & (high - low < 1)).all())
        True
        """
        X = check_inputs(self, X)
        evidence, inputs = self._evidence(), gate_inputs(self, X)
        if self._allows_missing:
            return completed_predictions(self, X, inputs, predictions).interval(
                evidence, inputs, level
            )
        return evidence.predict_interval(inputs, all_predictions(self, X, predictions), level)

    def score(
        self,
        X: Table,
        y: Output,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions | None = None,
    ) -> float:
        """Coefficient of determination R^2 of the prediction.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        y : array of shape (n,) or (n, K)
            The targets.
        sample_weight : array of shape (n,), optional
            Weights of the rows.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here.

        Returns
        -------
        float
            One for a perfect prediction.
        """
        y = self._outputs().arranged(without_mask(y, "y"), "y")
        weight = without_mask(sample_weight, "sample_weight")
        return float(r2_score(y, self.predict(X, predictions), sample_weight=weight))

    def _check_target(self, y: Output) -> AnyArray:
        _refuse_labels(y)
        values = validate_data(self, X="no_validation", y=y, multi_output=True, y_numeric=True)
        if values.ndim == 2 and values.shape[1] == 1:
            values = column_or_1d(values, warn=True)
        self.n_outputs_ = 1 if values.ndim == 1 else values.shape[1]
        return values.astype(np.float64, copy=False)

    def _gate_outputs(self, P: Array, y: AnyArray) -> tuple[Array, Array]:
        if self.loss_.name == "cross_entropy":
            raise InvalidInputError(
                "Loss 'cross_entropy' needs labels; received a regression. Use "
                "LocalMAClassifier, or loss='bernoulli' for targets and predictions in [0, 1]."
            )
        return P.reshape(*P.shape[:2], -1), np.asarray(y.reshape(len(y), -1), dtype=np.float64)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _refuse_labels(y: Output) -> None:
    values = np.asarray(y)
    if holds_dates(values):
        raise InvalidInputError(
            f"LocalMARegressor needs a target of numbers; received dates such as "
            f"{str(values.flat[0])!r}. Turn y into numbers, such as days since a fixed date."
        )
    label = next(values.flat, None)
    if isinstance(label, str):
        raise InvalidInputError(
            f"LocalMARegressor needs a target of numbers; received labels such as {str(label)!r}. "
            "Use LocalMAClassifier, or turn y into numbers."
        )
