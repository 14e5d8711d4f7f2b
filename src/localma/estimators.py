"""The estimators, in which candidates and gates meet as the array of predictions P.

``fit``: validate -> ``P = pool.predict(X)`` -> labelled sample -> gate -> checks.
``predict``: ``W = gate(X)``, ``P = pool.predict(X)``, the average of P under W.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import HasMethods, StrOptions, validate_parameter_constraints
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from localma._types import AnyArray, Array, RandomState, RowMask, Rows
from localma.candidates import Pool, Supplied
from localma.candidates.outputs import (
    Labels,
    Output,
    OutputNames,
    Table,
    Task,
    as_labels,
    check_no_label_missing,
)
from localma.candidates.pool import (
    Models,
    Predictions,
    check_same_index,
    holds_all,
    with_named_classes,
)
from localma.checks.cautions import Caution, warn
from localma.checks.fit import checked_rows, find_cautions, outside_sample
from localma.checks.losses import check_sample
from localma.checks.training_rows import SampleLosses, find_trained_on_sample
from localma.dependence import Blocks, Dependence, find_blocks
from localma.equations import local_average, row_losses
from localma.errors import InvalidInputError, InvalidParameterError, unknown_name
from localma.evidence import Baseline, LocalityGain
from localma.folds import (
    DEFAULT_FOLDS,
    Fold,
    Splits,
    count_groups,
    evenly_spaced,
    make_folds,
    number_groups,
)
from localma.gates import EqualGate, Gate, GlobalGate, Labelled, MLPGate, ShrunkGate, TreeGate
from localma.gates.base import Earlier, Evidence
from localma.gates.constant import find_global_weights, standardize_outputs
from localma.gates.heirs import Heirs
from localma.gates.incomplete import (
    equal_weights,
    fill_missing,
    known_predictions,
    replaced,
)
from localma.gates.labelled import Inputs, count_inputs
from localma.gates.left_out import LeftOut
from localma.losses import Loss, get_loss
from localma.own.companions import OWN_MODELS, PREFIX, Wanted, add_own
from localma.own.models import Sample, scored
from localma.own.shared_error import SharedError, find_shared_error
from localma.probes import Probes
from localma.reference import Reference
from localma.tables.encoder import GateFeatures, refuse_dates
from localma.tables.frames import (
    CONTAINERS,
    check_names_differ,
    check_rows_and_columns,
    column_names,
    holds_dates,
    is_table,
    n_rows,
    named_columns,
    readable_tensor,
    take_rows,
    unmasked,
    without_mask,
)

if TYPE_CHECKING:
    from localma.production.answer import Answer
    from localma.production.changes import Change
    from localma.production.completed import Completed
    from localma.production.frontier import FrontierDisplay
    from localma.production.health import Health
    from localma.production.options import AnswerOptions, Costs
    from localma.production.route import Route
Own: TypeAlias = str | Sequence[str] | None
"""Own models: "auto" for all, or their kinds."""

Features: TypeAlias = "int | str | Sequence[int | str] | BaseEstimator | Callable[[Table], Table]"
"""Inputs of the gate: columns, a transformer, or a function of X."""

LEAST_WARNED, MOST_WARNED = 20, 256
"""Numbers of rows in which `predict` looks for rows outside the labelled sample."""

GATES: dict[str, Callable[[], Gate]] = {
    "auto": ShrunkGate,
    "local": MLPGate,
    "trees": TreeGate,
    "global": GlobalGate,
    "equal": EqualGate,
    "paper": MLPGate.paper,
}

NO_CLAIM = "Do not use this combination."

REMEDIES = {
    "candidates": "Pass candidates={'name': fitted_model, ...}.",
    "loss": "Pass a name such as 'squared_error', or a localma.losses.Loss.",
    "gate": f"Pass one of {', '.join(map(repr, GATES))}, or a Gate object such as "
    "MLPGate(hidden=(32,)).",
    "gate_features": "Pass a list of columns, a transformer or a function of X, or leave it out.",
    "own": f"Pass 'auto', or a list of {', '.join(map(repr, OWN_MODELS))}, or leave it out.",
    "cv": "Pass a number of folds from 2 on, or a splitter of scikit-learn.",
    "folds": "Pass 'auto', 'shuffled' or 'blocks'.",
    "random_state": "Pass an integer from 0 on, or None.",
    "missing": "Pass 'error', 'renormalize' or 'nan'.",
    "robust": "Pass True or False.",
}
"""What to do about a parameter of the wrong type or value."""

MOST_LISTED = 20
"""Candidates in the HTML representation; it only counts the remaining ones."""


@dataclass(frozen=True)
class _Sample:
    """The validated arguments of a fit.

    X : the table; inputs : the inputs of the gate
    y : (n,) or (n, K); outputs : names of its outputs, as far as they are known
    sample_weight, groups : (n,) or None; group_numbers : the groups, numbered from 0
    predictions : the candidates' predictions, if the user passed them
    pool : the candidates, None if the user passed only predictions
    own : the own models to add, if any
    """

    X: Table
    inputs: Inputs
    y: AnyArray
    outputs: OutputNames
    sample_weight: Array | None
    groups: Output | None
    group_numbers: Rows | None
    predictions: Predictions | None
    pool: Pool | None
    own: Wanted | None

    @property
    def has_own_models(self) -> bool:
        """Whether some candidate of the user is still to be fitted on the sample."""
        return self.pool is not None and self.pool.has_own_models

    @property
    def needs_folds(self) -> bool:
        """Whether some candidate needs folds."""
        return self.has_own_models or self.own is not None


@dataclass(frozen=True)
class _Split:
    """How a sample is split: groups (n,) of dependent rows, and folds; None if there are none."""

    groups: Rows | None
    folds: list[Fold] | None = None


@dataclass(frozen=True)
class Previous:
    """What a fit takes from an earlier one.

    gate : the fitted gate; positions : for each of its candidates that is left, its position in it
    features : the fitted inputs of the gate
    """

    gate: Gate
    positions: Mapping[str, int]
    features: GateFeatures

    def earlier(self, names: Sequence[str]) -> Earlier:
        """The gate to start from, for candidates of some names (M,)."""
        return Earlier(self.gate, np.array([self.positions.get(name, -1) for name in names]))

    def check_inputs(self, inputs: Inputs) -> None:
        """Refuse inputs of the gate with another number of columns."""
        p, received = getattr(self.gate, "n_features_in_", None), count_inputs(inputs)
        if p is not None and received and received != p:
            raise InvalidInputError(
                f"X must have the columns of the fit, and those of the new candidate if it is a "
                f"column: the gate was fitted on {p} inputs, and received {received}. Leave out "
                "further columns."
            )


class _LocalMA(BaseEstimator):
    """The common part of the regressor and the classifier, which differ in targets and outputs."""

    _task: ClassVar[Task]
    _doc_link_module: ClassVar[str] = "localma"
    _doc_link_template: ClassVar[str] = ""  # no link until the documentation has an address
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "candidates": [Mapping, list, tuple, None],
        "loss": [str, Loss],
        "gate": [str, Gate],
        "gate_features": [
            str, Integral, list, tuple, np.ndarray, HasMethods("transform"), callable, None,
        ],
        "own": [StrOptions({"auto"}), list, tuple, None],
        "cv": ["cv_object"],
        "folds": [StrOptions({"auto", "shuffled", "blocks"})],
        "random_state": ["random_state"],
        "missing": [StrOptions({"error", "renormalize", "nan"})],
        "robust": ["boolean"],
    }  # fmt: skip
    gate_: Gate
    pool_: Pool | None
    candidate_names_: tuple[str, ...]
    output_names_: tuple[str, ...] | None
    cautions_: tuple[Caution, ...]
    dependence_: Dependence | None
    constant_prediction_: Array | None
    mean_weights_: Array | None
    probes_: Probes | None
    sample_losses_: SampleLosses | None
    largest_gap_: Array | None
    left_out_: LeftOut | None
    heirs_: Heirs | None
    changes_: tuple[Change, ...]
    shared_error_: SharedError | None
    reference_: Reference | None
    _known: RowMask | None = None
    _warned_outside = False

    def __init__(
        self,
        candidates: Models | None = None,
        *,
        loss: str | Loss = "squared_error",
        gate: str | Gate = "auto",
        gate_features: Features | None = None,
        own: Own = None,
        cv: Splits = None,
        folds: str = "auto",
        random_state: RandomState = None,
        missing: str = "error",
        robust: bool = False,
    ) -> None:
        self.candidates = candidates
        self.loss = loss
        self.gate = gate
        self.gate_features = gate_features
        self.own = own
        self.cv = cv
        self.folds = folds
        self.random_state = random_state
        self.missing = missing
        self.robust = robust

    def fit(
        self,
        X: Table,
        y: Output,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions | None = None,
        groups: Output | None = None,
    ) -> Self:
        """Learn how far to trust each candidate for each input.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs, or anything else that the candidates and `gate_features` take.
        y : array of shape (n,), or (n, K) for regression with several outputs
            The targets.
        sample_weight : array of shape (n,), optional
            Weights of the rows. By default all are equal.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, if they need not run: an array (n, M) or (n, M, K),
            a dict of arrays by name, or a data frame with one column per candidate. If data frames
            name several outputs (y, the dict, or a candidate's result), they are matched by name.
        groups : array of shape (n,), optional
            The group of each row, such as a patient: a name or a number. Rows of a group are not
            independent. So a group is never split (your own splitter `cv` receives the groups), and
            the standard error of the verdict is at least that between groups.

        Returns
        -------
        LocalMARegressor or LocalMAClassifier
            The fitted estimator itself.
        """
        return self._fit(X, y, sample_weight, predictions, groups, None)

    def _fit(
        self,
        X: Table,
        y: Output,
        sample_weight: ArrayLike | None,
        predictions: Predictions | None,
        groups: Output | None,
        previous: Previous | None,
    ) -> Self:
        """Fit, starting from an earlier fit if there is one."""
        with _restored_on_error(self):
            self._validate_params()
            random = check_random_state(self.random_state)
            self.loss_, self._warned_outside = get_loss(self.loss), False
            gate = self._make_gate(random)
            sample = self._validate(gate, X, y, sample_weight, predictions, groups, previous)
            P, weight, split = self._predict_and_split(sample, gate, random)
            if sample.own is not None:
                P, weight = self._add_own(sample, sample.own, P, weight, split)
            self.output_names_ = sample.outputs.names
            outputs, targets = self._gate_outputs(P, sample.y)
            baseline = self._make_baseline(targets, sample.y, weight)
            data = Labelled.of(
                sample.inputs,
                outputs,
                targets,
                loss=self.loss_,
                sample_weight=weight,
                groups=split.groups,
                baseline=baseline,
            )
            if self.loss_.standardize:
                data = self._standardize_outputs(data)
            if gate.is_global:  # its fit finds the global weights
                self.gate_ = gate.fit(data)
                self.global_weights_ = gate.weights_
            else:
                self.global_weights_ = find_global_weights(data)
                self.gate_ = self._learn(gate, data, split.folds, previous)
            self.left_out_ = self._leave_out(data) if self.robust else None
            self.changes_ = ()
            self._check_fit(sample, P, data, replace(baseline, loss=data.loss))
            self.shared_error_ = self._find_shared_error(sample, P, data, split)
            warn(self.cautions_)
        return self

    def _learn(
        self, gate: Gate, data: Labelled, folds: list[Fold] | None, previous: Previous | None
    ) -> Gate:
        """Fit the gate, starting from an earlier one if there is one."""
        weights = self.global_weights_
        if previous is None:
            return gate.fit(data, global_weights=weights, folds=folds)
        earlier = previous.earlier(self.candidate_names_)
        return gate.fit_after(earlier, data, global_weights=weights, folds=folds)

    def _standardize_outputs(self, data: Labelled) -> Labelled:
        """Give the outputs equal shares in the loss, from here on also in every report."""
        if self._task == "classification":
            raise InvalidInputError(
                "A standardized loss is for regression with several outputs; received "
                f"{self.loss_!r} for a classifier, whose outputs are classes. Pass the loss itself."
            )
        data = standardize_outputs(data)
        self.loss_ = data.loss
        return data

    def predict(
        self,
        X: Table,
        predictions: Predictions | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Array:
        """Average the candidates with the weights of each row.

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
        array of shape (n,), or (n, K) with several outputs
            The averages.
        """
        if options or self.missing != "error":
            averages: Array = self._answer(X, predictions, options).averages
            return averages
        X = self._check_inputs(X)
        inputs = self._gate_inputs(X)
        if predictions is not None:
            return self.gate_.average(inputs, self._all_predictions(X, predictions))
        # The gate needs no prediction, so a candidate need not run on rows with a zero weight.
        W = self.gate_.predict_weights(inputs)
        return local_average(W, self._run_candidates(X, only=None if W.all() else W != 0))

    def answer(
        self,
        X: Table,
        predictions: Predictions | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Answer:
        """Predict, and record which candidates ran, which failed and what it cost.

        The gate needs no predictions, so it runs first. A candidate only runs on the rows in which
        it has weight. Candidates behind a URL, and networks from files, run at the same time in
        threads. Others run one after another.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here. With
            ``missing="renormalize"`` they may contain NaN and leave out candidates.
        **options
            Options of this answer:

            - `missing` : {"error", "renormalize", "nan"}. What to do if a candidate with weight
              raises an error, is too late or returns NaN. By default the parameter of the model.
              "renormalize" sets its weight to zero in these rows, and the others sum to one. A row
              without any candidate is an error; with "nan" it is NaN (a label is None).
            - `min_weight` : float, default=0. Candidates with less weight in a row do not run on
              it, except the one with the largest weight.
            - `max_candidates` : int. The largest number of candidates in a row.
            - `budget` : float. The largest cost of a row. In each row, the candidates are kept
              that leave the largest weight in the budget.
            - `costs` : array (M,) or dict. The cost of a row for each candidate, such as
              ``model.pool_.measure_costs(X)``. By default the `cost` of each candidate.
            - `deadline` : float. Seconds for the whole answer. What has not come back counts as
              missing.
            - `timeout` : float or dict. Seconds for each candidate.
            - `retries` : int or dict, default=0. Further calls of a candidate after one that
              failed. They try the halves of the rows that failed, or a single row again.
            - `breaker` : Breaker or None. When a candidate that keeps failing is no longer
              called. By default after 5 failures in a row, for 30 seconds.

        Returns
        -------
        Answer
            The prediction and its record. It prints as a table.

        Examples
        --------
        >>> import numpy as np
        >>> from localma import LocalMARegressor
        >>> X = np.linspace(1, 2, 50)[:, None]
        >>> candidates = {"low": lambda X: 0.75 * X[:, 0], "high": lambda X: 1.25 * X[:, 0]}
        >>> model = LocalMARegressor(candidates, gate="equal").fit(X, X[:, 0])
        >>> def broken(X):
        ...     raise ConnectionError("no route to host")
        >>> model.pool_.candidates[0].function = broken
        >>> answer = model.answer([[1.0]], missing="renormalize")
        >>> answer.prediction.tolist(), [failure.candidate for failure in answer.failures]
        ([1.25], ['low'])
        """
        return self._answer(X, predictions, options)

    def _answer(self, X: Table, predictions: Predictions | None, options: AnswerOptions) -> Answer:
        from localma.production.answer import answer
        from localma.production.options import Options

        return answer(self, X, predictions, Options.of(options))

    def route(self, X: Table) -> Route:
        """Name one candidate per row: the one with the largest weight.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs. With more rows, the rules are more precise.

        Returns
        -------
        Route
            The candidate of each row, its weight, and the rule of its region in words.
        """
        from localma.production.route import route

        return route(self, X)

    def frontier(
        self,
        X: Table,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions | None = None,
        costs: Costs | None = None,
        max_increase: float = 0.01,
    ) -> FrontierDisplay:
        """Compare the risk and the cost of settings that leave out candidates.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            Labelled rows, on which neither the candidates nor the model were fitted.
        y : array of shape (n,) or (n, K)
            Their targets or labels.
        sample_weight : array of shape (n,), optional
            Weights of the rows.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`, if they need not run here.
        costs : array of shape (M,) or dict, optional
            The cost of a row for each candidate, as in `answer`.
        max_increase : float
            The largest accepted increase of the risk, as a share of the risk with all candidates.

        Returns
        -------
        FrontierDisplay
            Risk and cost of each setting, and the cheapest one within the accepted increase.
        """
        from localma.production.frontier import frontier

        return frontier(
            self,
            X,
            y,
            sample_weight=sample_weight,
            predictions=predictions,
            costs=costs,
            max_increase=max_increase,
        )

    def health(self) -> Health:
        """Show which candidates keep failing, in this process.

        Returns
        -------
        Health
            The state of each candidate's circuit breaker, its failures in a row, and its calls
            that have not returned.
        """
        from localma.production.health import health

        return health(self)

    def drop(self, name: str) -> Self:
        """Return a model without one candidate; no labelled rows are needed.

        The weights of the other candidates come from the fit, which also looked at what each is
        worth without another. The verdict is stale, and says so. Intervals need a new fit.

        Parameters
        ----------
        name : str
            Name of the candidate.

        Returns
        -------
        LocalMARegressor or LocalMAClassifier
            A new fitted model. This one does not change.

        Examples
        --------
        >>> import numpy as np
        >>> from localma import LocalMARegressor
        >>> X = np.linspace(1, 2, 50)[:, None]
        >>> candidates = {"low": lambda X: 0.75 * X[:, 0], "high": lambda X: 1.25 * X[:, 0]}
        >>> model = LocalMARegressor(candidates, gate="equal").fit(X, X[:, 0])
        >>> model.drop("low").predict([[1.0]]).tolist()
        [1.25]
        """
        from localma.production.changes import drop

        return drop(self, name)

    def add(
        self,
        name: str,
        candidate: Any,
        X: Table,
        y: Output,
        sample_weight: ArrayLike | None = None,
        predictions: Predictions | None = None,
        groups: Output | None = None,
    ) -> Self:
        """Return a model with one more candidate, in less than half of the time of a fit.

        Training starts from the present weights. With gate="auto", one fold of the rows judges the
        new weights. Gates other than networks are fitted again.

        Parameters
        ----------
        name : str
            Name of the new candidate.
        candidate : model
            The new candidate: anything that `as_candidate` takes, a `Column` or a `CrossFitted`. It
            is None if the model was fitted on predictions alone.
        X : array or frame of shape (n, p)
            The inputs of labelled rows, those of the fit or others, with the columns of the fit.
        y : array of shape (n,), or (n, K) for regression with several outputs
            Their targets.
        sample_weight : array of shape (n,), optional
            Weights of the rows.
        predictions : array, dict or frame, optional
            Predictions of all candidates, as in `fit`. In an array, the new one is the last.
        groups : array of shape (n,), optional
            The group of each row, as in `fit`.

        Returns
        -------
        LocalMARegressor or LocalMAClassifier
            A new fitted model. This one does not change.

        Examples
        --------
        >>> import numpy as np
        >>> from localma import LocalMARegressor
        >>> X = np.linspace(1, 2, 50)[:, None]
        >>> model = LocalMARegressor({"low": lambda X: 0.9 * X[:, 0]}, gate="equal")
        >>> model = model.fit(X, X[:, 0]).add("high", lambda X: 1.1 * X[:, 0], X, X[:, 0])
        >>> model.candidate_names_, model.predict([[1.0]]).tolist()
        (('low', 'high'), [1.0])
        """
        from localma.production.changes import add

        return add(
            self, name, candidate, X, y,
            sample_weight=sample_weight, predictions=predictions, groups=groups,
        )  # fmt: skip

    def predict_weights(self, X: Table, *, return_support: bool = False) -> Any:
        """Weight of each candidate for each row.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        return_support : bool
            Whether to also return how far the local weights count in each row. It is one within the
            labelled sample and falls to zero outside, where the weights are global.

        Returns
        -------
        weights : array of shape (n, M)
            Non-negative, each row summing to one. With ``set_output(transform="pandas")`` or
            "polars" it is a data frame, and its columns are named after the candidates.
        support : array of shape (n,)
            How far the local weights count, only with `return_support`.
        """
        X = self._check_inputs(X)
        inputs = self.gate_features_.transform(X)
        if self._allows_missing:
            check_finite(inputs)
        if not return_support:
            return self._in_container(self.gate_.predict_weights(inputs), X)
        weights, support = self.gate_.weights_and_support(inputs)
        return self._in_container(weights, X), support

    def weight_band(self, X: Table, level: float = 0.9) -> tuple[Any, Any]:
        """Band that covers the optimal weights in about `level` of the rows.

        Only with gate="auto", up to 2,000 rows, and if at least three folds judged. The coverage
        holds on average over rows like the labelled ones, for two candidates and weights that are
        smooth functions of the inputs. With more candidates, several weights may predict equally
        well. Containers are those of
        `predict_weights`.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        level : float
            Level of the band, between 0 and 1.

        Returns
        -------
        low : array of shape (n, M)
            Lower ends.
        high : array of shape (n, M)
            Upper ends.
        """
        X = self._check_inputs(X)
        low, high = self._evidence().weight_band(self.gate_features_.transform(X), level)
        return self._in_container(low, X), self._in_container(high, X)

    @property
    def locality_gain_(self) -> LocalityGain:
        """Held-out risk of the global weights minus that of the whole procedure, with its error."""
        return self._evidence().locality_gain_

    @property
    def path_(self) -> dict[str, list[Any]]:
        """The path of gates that was judged, as columns of a table."""
        return self._evidence().path_

    @property
    def verdict_(self) -> str:
        """The cautions, if there are any, then the recommendation with its evidence."""
        verdict = self._evidence().describe(self.candidate_names_, self.loss_.name)
        if any(caution.kind == "worse_than_constant" for caution in self.cautions_):
            verdict = NO_CLAIM
        sentences = [*(caution.sentence for caution in self.cautions_), verdict]
        if self.shared_error_ is not None:
            sentences.append(str(self.shared_error_))
        if self.dependence_ is not None:
            sentences.append(str(self.dependence_))
        return " ".join(sentences)

    def candidate_predictions(self, X: Table, *, rows: Sequence[int] | None = None) -> Any:
        """Run the candidates.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        rows : sequence of int, optional
            The numbers of these rows in errors, if X is a part of your rows. By default they count
            from zero.

        Returns
        -------
        array of shape (n, M), or (n, M, K) with several outputs or classes
            Their predictions. Classes are in the order of `classes_`.
        """
        X = self._check_inputs(X)
        P = self._run_candidates(X, rows=rows)
        if P.ndim == 2:
            return self._in_container(P, X)
        return P

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container of `predict_weights` and of sets of classes.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            The container. None changes nothing.

        Returns
        -------
        LocalMARegressor or LocalMAClassifier
            The estimator itself.
        """
        if transform is not None:
            if transform not in CONTAINERS:
                raise unknown_name("output container", transform, CONTAINERS)
            self._sklearn_output_config = {"transform": transform}
        return self

    def save(self, path: str | PathLike[str], *, probes: bool = True) -> None:
        """Write the fitted model to one file, without pickle; `localma.load` reads it.

        Parameters
        ----------
        path : str or path
            The file.
        probes : bool
            Whether to save the candidates' predictions for 16 made-up inputs, by which `load`
            recognises the candidates.
        """
        from localma.model_file import save

        save(self, path, probes=probes)

    def __sklearn_clone__(self) -> Self:
        # scikit-learn's own clone recurses into lists and dicts and strips fitted candidates.
        parameters = self.get_params(deep=False)
        shared = {name: parameters.pop(name) for name in ("candidates", "loss")}
        cloned = {name: clone(value, safe=False) for name, value in parameters.items()}
        twin = type(self)(**shared, **cloned)
        for name in ("_metadata_request", "_sklearn_output_config", "_skl_callbacks"):
            if name in vars(self):
                setattr(twin, name, copy.copy(vars(self)[name]))
        return twin

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._fit_html()

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._fit_html()
        return bundle

    def _fit_html(self) -> str:
        """The candidates with their weights, and the verdict; empty before the fit."""
        if not hasattr(self, "gate_"):
            return ""
        caption, weights, names = "Mean weight", self.mean_weights_, self.candidate_names_
        if weights is None:  # a loaded model
            caption, weights = "Global weight", self.global_weights_
        largest = np.argsort(-weights, kind="stable")[:MOST_LISTED]
        rows = [f"<td>{escape(names[m])}</td><td>{weights[m]:.3f}</td>" for m in largest]
        if len(names) > MOST_LISTED:
            rows.append(f"<td>and {len(names) - MOST_LISTED} more</td><td></td>")
        cautions = " ".join(caution.sentence for caution in self.cautions_)
        return (
            f'<div class="localma-fit"><table><tr><th>Candidate</th><th>{caption}</th></tr>'
            f"<tr>{'</tr><tr>'.join(rows)}</tr></table>"
            f"<p>{escape(getattr(self, 'verdict_', cautions))}</p></div>"
        )

    # Hooks of the two tasks.

    def _check_target(self, y: Output) -> AnyArray:
        """Validate y: numbers (n,) or (n, K) for regression, labels (n,) for classification."""
        raise NotImplementedError

    def _gate_outputs(self, P: Array, y: AnyArray) -> tuple[Array, Array]:
        """Predictions (n, M, K) and targets (n, K) on the scale on which the loss acts."""
        raise NotImplementedError

    def _plain_targets(self, y: AnyArray) -> Array:
        """Targets as numbers before any prediction: (n, K)."""
        return np.asarray(y.reshape(len(y), -1), dtype=np.float64)

    def _score_targets(self, y: AnyArray) -> Array:
        """Targets of own models: (n, K), or one column for the second of two classes."""
        return self._plain_targets(y)

    def _find_classes(self, y: AnyArray, predictions: Predictions | None) -> Labels | None:
        """Labels of the last axis of predictions, after `pool_` is known; None for regression."""
        return None

    def _make_baseline(self, targets: Array, y: AnyArray, sample_weight: Array | None) -> Baseline:
        """Constant predictions of the labelled sample, to compare with."""
        if sample_weight is None:
            sample_weight = np.broadcast_to(1.0, len(targets))
        return Baseline(self.loss_, targets, sample_weight)

    # Steps of a fit.

    def _validate_params(self) -> None:
        """Check types and ranges of the parameters, unless scikit-learn is set not to."""
        if get_config()["skip_parameter_validation"]:
            return
        for name, value in self.get_params(deep=False).items():
            try:
                validate_parameter_constraints(
                    self._parameter_constraints, {name: value}, type(self).__name__
                )
            except ValueError as error:
                raise InvalidParameterError(f"{error} {REMEDIES[name]}") from None

    def _make_gate(self, random: np.random.RandomState) -> Gate:
        """Make the gate to fit, with a seed unless the user set one."""
        if isinstance(self.gate, Gate):
            gate: Gate = clone(self.gate)
        elif self.gate in GATES:
            gate = GATES[self.gate]()
        else:
            raise unknown_name("gate", self.gate, GATES)
        if gate.get_params(deep=False).get("cv", False) is None:
            gate.set_params(cv=self.cv)
        seed = int(random.randint(np.iinfo(np.int32).max))
        if gate.get_params().get("random_state", seed) is None:
            gate.set_params(random_state=seed)
        return gate

    def _validate(
        self,
        gate: Gate,
        X: Table,
        y: Output,
        sample_weight: ArrayLike | None,
        predictions: Predictions | None,
        groups: Output | None,
        previous: Previous | None,
    ) -> _Sample:
        """Check the arguments of a fit once, and compute the inputs of the gate."""
        y = without_mask(y, "y")
        outputs = OutputNames.of_target(y)
        labels = self._check_target(readable_tensor(y))  # before X, because it drops feature names
        n = len(labels)
        X = self._check_inputs(X, reset=True, gate=gate)
        _check_rows(n_rows(X), n)
        if predictions is not None:
            check_same_index(predictions, X)
        weight = _check_weight(sample_weight, labels)
        pool, hidden = None, set()
        if self.candidates is not None:
            pool = Pool(self.candidates, task=self._task).expand(X)
            hidden = pool.prediction_columns(X)
        elif predictions is None:
            raise InvalidInputError(
                "There is nothing to combine: candidates is None and no predictions were given. "
                "Pass candidates={'name': fitted_model, ...}, or fit(X, y, predictions=P)."
            )
        kinds = self._own_kinds()
        needed = gate.needs_inputs or bool(kinds)
        if previous is not None:
            self.gate_features_ = previous.features.hiding(hidden)
        else:
            self.gate_features_ = GateFeatures(
                self.gate_features, hidden, raw=gate.raw_inputs, needed=needed
            ).fit(X, labels)
        numbers = None if groups is None else number_groups(groups, n)
        in_parts = gate.reads_in_parts(n, count_groups(numbers, weight))
        inputs = self.gate_features_.transform(X, in_parts=in_parts)
        if previous is not None:
            previous.check_inputs(inputs)
        if self._allows_missing:
            check_finite(inputs)
        own = None
        if kinds:
            transform = self.gate_features_.transform
            own = Wanted(kinds, self.loss_, self._task, transform, count_inputs(inputs))
        return _Sample(X, inputs, labels, outputs, weight, groups, numbers, predictions, pool, own)

    def _own_kinds(self) -> list[str]:
        """Kinds of the own models to add; empty if there are none."""
        if self.own is None:
            return []
        if self.own == "auto":
            return list(OWN_MODELS)
        for kind in self.own:
            if kind not in OWN_MODELS:
                raise unknown_name("own model", kind, OWN_MODELS)
        return [kind for kind in OWN_MODELS if kind in self.own]

    def _add_own(
        self, sample: _Sample, own: Wanted, P: Array, weight: Array | None, split: _Split
    ) -> tuple[Array, Array | None]:
        """Add own candidates to the pool; return all predictions, and weights of the rows."""
        pool, names = self.pool_, self.candidate_names_
        fixed: Sequence[str] = names
        if pool is None:
            classes = getattr(self, "classes_", None)
            pool = Pool({name: Supplied(name, classes) for name in names}, task=self._task)
        elif sample.pool is not None:
            fixed = [name for name in sample.pool.fixed_names if name in names]
        for name in names:
            if name.startswith(PREFIX):
                raise InvalidInputError(
                    f"Names of candidates may not begin with {PREFIX!r} if own models are added; "
                    f"received {name!r}. Rename the candidate."
                )
        assert split.folds is not None  # own models need them
        added = add_own(
            pool,
            own,
            sample.X,
            sample.y,
            P,
            fixed=fixed,
            folds=split.folds,
            sample_weight=weight,
            groups=split.groups,
            outputs=sample.outputs,
        )
        if added.pool.stacked_names:
            self.pool_, self.candidate_names_ = added.pool, added.pool.names
        return _without_uncovered(added.P, added.covered, weight)

    def _predict_and_split(
        self, sample: _Sample, gate: Gate, random: np.random.RandomState
    ) -> tuple[Array, Array | None, _Split]:
        """Predictions and weights of the sample, and its folds, which own models need first."""
        if not sample.has_own_models:
            P, weight = self._predict_sample(sample, None, random)
            outputs, targets = self._gate_outputs(P, sample.y)
            check_sample(self.loss_, targets, outputs, self.candidate_names_)
            return P, weight, self._split(sample, gate, outputs, targets, random)
        fixed, outputs, targets = self._before_own_models(sample)
        split = self._split(sample, gate, outputs, targets, random)
        P, weight = self._predict_sample(sample, split.folds, random, fixed)
        outputs, targets = self._gate_outputs(P, sample.y)
        check_sample(self.loss_, targets, outputs, self.candidate_names_)
        return P, weight, split

    def _before_own_models(self, sample: _Sample) -> tuple[dict[str, Array], Array, Array]:
        """Predictions of the fixed candidates by name, and outputs (n, M, K) with targets (n, K).

        Classes, and targets without a fixed candidate, are compared with their means.
        """
        assert sample.pool is not None  # it has own models
        targets = self._plain_targets(sample.y)
        fixed: dict[str, Array] = {}
        if self._task == "regression":
            names = [name for name in sample.pool.names if name not in sample.pool.own_names]
            P = sample.pool.predict(
                sample.X, only=names, outputs=sample.outputs, allow_missing=self._allows_missing
            )
            fixed = {name: P[:, sample.pool.names.index(name)] for name in names}
        columns = [values.reshape(len(targets), -1) for values in fixed.values()]
        if columns:
            complete, _ = fill_missing(np.stack(columns, axis=1), equal_weights)
            columns = list(complete.swapaxes(0, 1))
        outputs = np.stack(
            columns or [np.broadcast_to(targets.mean(axis=0), targets.shape)], axis=1
        )
        return fixed, outputs, targets

    def _split(
        self,
        sample: _Sample,
        gate: Gate,
        outputs: Array,
        targets: Array,
        random: np.random.RandomState,
    ) -> _Split:
        """Split the sample if the gate or a candidate needs folds; they share them.

        Whole blocks are held out where rows depend on each other, unless you said how to split.
        """
        self.dependence_ = None
        if not gate.needs_folds and not sample.needs_folds:
            return _Split(sample.group_numbers)
        cv = gate.get_params(deep=False).get("cv")
        if cv is None:
            cv = self.cv
        blocks, numbers = None, sample.group_numbers
        is_chosen = numbers is not None or not isinstance(cv, Integral | None)
        if not is_chosen and self.folds != "shuffled":
            blocks = self._find_blocks(sample, outputs, targets)
        if blocks is not None:
            self.dependence_, numbers = blocks.dependence, blocks.numbers
        most = None
        if not sample.needs_folds:
            most = gate.judging_folds(len(sample.y), count_groups(numbers, sample.sample_weight))
        if blocks is not None:
            folds = blocks.folds(cv or DEFAULT_FOLDS, sample.y, random)[:most]
            return _Split(numbers, folds)
        folds = make_folds(
            cv,
            sample.y,
            sample.groups,
            classification=self._task == "classification",
            random_state=random,
            most=most,
        )
        return _Split(numbers, folds)

    def _find_blocks(self, sample: _Sample, outputs: Array, targets: Array) -> Blocks | None:
        """Blocks of rows that depend on each other, by their errors."""
        weight, inputs, names = sample.sample_weight, None, []
        if isinstance(sample.inputs, np.ndarray) and sample.inputs.dtype.kind in "biuf":
            inputs = sample.inputs.reshape(len(targets), -1)
            names = self.gate_features_.input_names(sample.X, inputs.shape[1])
        return find_blocks(
            sample.X,
            inputs,
            outputs,
            targets,
            self.loss_,
            np.ones(len(targets)) if weight is None else weight,
            classes=self._plain_targets(sample.y) if self._task == "classification" else None,
            names=names,
            always=self.folds == "blocks",
        )

    def _predict_sample(
        self,
        sample: _Sample,
        folds: list[Fold] | None,
        random: np.random.RandomState,
        fixed: Mapping[str, Array] | None = None,
    ) -> tuple[Array, Array | None]:
        """Predictions P of the sample, and weights without rows that have no prediction."""
        y, weight, outputs, pool = sample.y, sample.sample_weight, sample.outputs, sample.pool
        if pool is None:
            assert sample.predictions is not None  # see _validate
            self.pool_ = None
            self.candidate_names_, P = Pool.from_predictions(
                sample.predictions,
                n_rows=len(y),
                task=self._task,
                classes=self._find_classes(y, sample.predictions),
                outputs=outputs,
                allow_missing=self._allows_missing,
            )
            return self._complete(P, weight, y=y)
        if sample.predictions is not None and sample.has_own_models:
            raise InvalidInputError(
                "A CrossFitted candidate makes its own predictions of the sample; predictions= "
                "would replace them. Leave predictions= out, or pass only fitted candidates."
            )
        pool.check_labels(y)
        self.pool_, out_of_fold, covered = pool.fit(
            sample.X,
            y,
            cv=folds,
            sample_weight=weight,
            groups=sample.groups,
            random_state=random,
            outputs=outputs,
            complete=self._completion(weight, y) if self._allows_missing else None,
        )
        self.candidate_names_ = self.pool_.names
        classes = self._find_classes(y, sample.predictions)
        if sample.predictions is not None:
            given = self._given(
                sample.predictions,
                len(y),
                classes,
                outputs,
                self.candidate_names_,
                allow_missing=self._allows_missing,
            )
            return self._complete(given, weight, y=y)
        P = self.pool_.predict(
            sample.X,
            given={**(fixed or {}), **out_of_fold},
            outputs=outputs,
            allow_missing=self._allows_missing,
        )
        return self._complete(*_without_uncovered(P, covered, weight), y=y)

    @property
    def _allows_missing(self) -> bool:
        """Whether predictions of the sample may be missing."""
        return self.missing != "error"

    def _complete(
        self, P: Array, weight: Array | None, *, y: AnyArray
    ) -> tuple[Array, Array | None]:
        """Fill missing predictions of the sample; a row without any has no weight."""
        self._known = None
        if not self._allows_missing or not np.isnan(P).any():
            return P, weight
        self._known = known_predictions(P)

        def find_weights(complete: Array) -> Array:
            outputs, targets = self._gate_outputs(complete, y)
            inputs = np.empty((len(targets), 0))
            counted = Labelled.of(
                inputs, outputs, targets, loss=self.loss_, sample_weight=self._counted(P, weight)
            )
            return find_global_weights(counted)

        counted = self._counted(P, weight)
        complete, has_any = fill_missing(P, find_weights)
        return complete, weight if has_any.all() else counted

    def _completion(self, weight: Array | None, y: AnyArray) -> Callable[[Array], Array]:
        """Fill missing predictions that are inputs of another candidate.

        The classes are not known yet, so their averages have equal weights.
        """
        if self._task == "classification":
            return lambda P: fill_missing(P, equal_weights)[0]
        return lambda P: self._complete(P, weight, y=y)[0]

    def _counted(self, P: Array, weight: Array | None) -> Array:
        """Weights of the rows, zero without any prediction; an error if none is left."""
        has_any = known_predictions(P).any(axis=1)
        counted = has_any * (1.0 if weight is None else weight)
        if not counted.any():
            raise InvalidInputError(
                "At least one row must have the prediction of a candidate; all predictions of the "
                f"{len(P)} rows are missing. Check the names and the values of the predictions."
            )
        return np.asarray(counted)

    def _check_fit(self, sample: _Sample, P: Array, data: Labelled, baseline: Baseline) -> None:
        """Learn what later checks need, and find the reasons to doubt this fit."""
        constant = baseline.learn()
        self.constant_prediction_ = constant if np.isfinite(constant).all() else None
        self.sample_losses_ = SampleLosses.of_sample(data)
        self.largest_gap_ = self._largest_gap(data)
        rows = checked_rows(data)
        W = self.gate_.predict_weights(take_rows(data.X, rows))
        self.mean_weights_ = np.average(W, axis=0, weights=data.sample_weight[rows])
        self.heirs_ = None if self.robust else Heirs.of(self.gate_, data, rows, W)
        self.probes_ = None if self.pool_ is None else Probes.of(sample.X)
        self.reference_ = self._make_reference(sample, P, data)
        trained: list[Caution] = []
        pool = None if sample.predictions is not None else sample.pool
        if pool is not None and self.gate_.learns and is_table(sample.X):
            trained = find_trained_on_sample(
                pool.keep(self.candidate_names_),
                sample.X,
                P,
                data,
                self._outputs(),
                lambda values, rows: self._gate_outputs(values, sample.y[rows])[0],
            )
        names, features = self.candidate_names_, self.gate_features_
        self.cautions_ = find_cautions(
            self.gate_, data, baseline, names, features, sample.X, trained
        )

    def _make_reference(self, sample: _Sample, P: Array, data: Labelled) -> Reference | None:
        """Measure the sample, for monitors of this model."""
        fitted = [] if self.pool_ is None else [*self.pool_.stacked_names]
        if sample.pool is not None:
            fitted += sample.pool.own_names
        names = self.gate_features_.input_names(sample.X, data.n_inputs)
        known, self._known = self._known, None
        if known is not None and known.shape[1] < data.n_candidates:  # own models always predict
            added = np.ones((len(known), data.n_candidates - known.shape[1]), dtype=bool)
            known = np.hstack([known, added])
        return Reference.of(
            data, self.gate_, self.candidate_names_, names, P, fitted=fitted, known=known
        )

    def _leave_out(self, data: Labelled) -> LeftOut:
        """Fit the weights without each candidate."""
        M = data.n_candidates
        takes = np.zeros((M, M), dtype=bool) if self.pool_ is None else self.pool_.takes
        return LeftOut.of(self.gate_, data, takes)

    def _largest_gap(self, data: Labelled) -> Array:
        """Largest difference of two candidates in a row of the sample: (K,)."""
        low, high = data.P.min(axis=1), data.P.max(axis=1)
        return np.asarray((high - low).max(axis=0), dtype=np.float64)

    def _find_shared_error(
        self, sample: _Sample, P: Array, data: Labelled, split: _Split
    ) -> SharedError | None:
        """Look for an error that own models would remove, if there are none yet."""
        judged = getattr(self.gate_, "held_out_rows_", None)
        if sample.own is not None or judged is None or split.folds is None or self.cautions_:
            return None
        losses = np.full(len(P), np.nan)
        losses[judged] = self.gate_.held_out_losses_
        targets = self._score_targets(sample.y)
        predictions = P.reshape(*P.shape[:2], -1)
        rows = Sample(
            np.empty((len(P), 0)),
            predictions if self._task == "regression" else scored(predictions),
            targets,
            data.sample_weight,
            split.groups,
        )

        def losses_of(means: Array, index: Rows) -> Array:
            if self._task == "classification" and means.shape[1] == 1:
                means = np.hstack([1.0 - means, means])
            outputs, y = self._gate_outputs(means[:, np.newaxis], sample.y[index])
            return row_losses(self.loss_, y, outputs[:, 0])

        classes = getattr(self, "classes_", None)
        folds, find = split.folds, find_shared_error
        return find(self.loss_, rows, folds, losses, labels=classes, losses_of=losses_of)

    # Steps of a prediction.

    def _check_inputs(
        self,
        X: Table,
        *,
        reset: bool = False,
        gate: Gate | None = None,
        allow_missing: bool | None = None,
    ) -> Any:
        """Record or check the features' names and number; plain numbers become an array.

        Inputs that are not a table (texts, images, data sets) pass unchanged if the gate takes
        them. Values of a frame are checked by the gate and the candidates that use them.
        """
        if gate is None:
            check_is_fitted(self)
            gate = self.gate_
        check_rows_and_columns(X)
        X = readable_tensor(unmasked(X))
        if gate.raw_inputs and not is_table(X):
            if reset:
                self.__dict__.pop("n_features_in_", None)
            return X
        check_names_differ(X)
        if self.gate_features is None and column_names(X) is None:
            if gate.needs_inputs:
                refuse_dates(X)
            if allow_missing is None:
                allow_missing = self._allows_missing
            if allow_missing:  # in columns of predictions; `check_finite` looks at the others
                return validate_data(self, X, reset=reset, ensure_all_finite="allow-nan")
            return validate_data(self, X, reset=reset)
        return validate_data(self, X, reset=reset, skip_check_array=True)

    def _run_candidates(
        self, X: Table, only: RowMask | None = None, rows: Sequence[int] | None = None
    ) -> Array:
        """Predictions of the pool: (n, M) or (n, M, K)."""
        return self._pool().predict(X, only=only, outputs=self._outputs(), rows=rows)

    def _pool(self) -> Pool:
        """The candidates, or an error if there are none to run."""
        if self.pool_ is None or self.pool_.supplied_names:
            raise InvalidInputError(
                "This model has no candidates to run: it was fitted with predictions=, or loaded "
                "with candidates={}. Pass predictions= of "
                f"{', '.join(map(repr, self._names_to_supply()))}, or load it with its candidates."
            )
        return self.pool_

    def _given(
        self,
        predictions: Predictions,
        n: int,
        classes: Labels | None,
        outputs: OutputNames,
        names: Sequence[str],
        allow_missing: bool = False,
    ) -> Array:
        """Predictions that a user passed, checked against the candidates: (n, M) or (n, M, K)."""
        _, P = Pool.from_predictions(
            predictions,
            n_rows=n,
            task=self._task,
            names=names,
            classes=classes,
            outputs=outputs,
            allow_missing=allow_missing,
        )
        return P

    def _all_predictions(
        self, X: Table, predictions: Predictions | None, *, allow_missing: bool = False
    ) -> Array:
        """Predictions that a user passed, or those of the pool: (n, M) or (n, M, K)."""
        if predictions is None:
            return self._run_candidates(X)
        check_same_index(predictions, X)
        classes = getattr(self, "classes_", None)
        names: Sequence[str] = self.candidate_names_
        if self.pool_ is not None and not holds_all(predictions, self.pool_.stacked_names, names):
            names = self._names_to_supply()
        P = self._given(predictions, n_rows(X), classes, self._outputs(), names, allow_missing)
        if self.pool_ is None or len(names) == len(self.candidate_names_):
            return P
        positions = [self.candidate_names_.index(name) for name in names]
        known = known_predictions(P)
        complete = replaced(P, known, self.global_weights_[positions])
        given = {name: complete[:, m] for m, name in enumerate(names)}
        values = self.pool_.predict(X, given=given, outputs=self._outputs())
        values[~known.any(axis=1)] = np.nan
        values[:, positions] = P
        return values

    def _completed(self, X: Table, inputs: Inputs, predictions: Predictions | None) -> Completed:
        """Predictions of X in which missing ones are replaced; an error if a row has none."""
        from localma.production.completed import completed

        check_finite(inputs)
        return completed(self, X, inputs, predictions, strict=self.missing == "renormalize")

    def _names_to_supply(self) -> Sequence[str]:
        """Names of the candidates whose predictions a user passes: all that take no others'."""
        stacked = [] if self.pool_ is None else self.pool_.stacked_names
        return tuple(name for name in self.candidate_names_ if name not in stacked)

    def _outputs(self) -> OutputNames:
        """The order of several outputs at the fit."""
        return OutputNames(self.output_names_, "the fit")

    def _gate_inputs(self, X: Table) -> Inputs:
        """Inputs of the gate. Warn, once after each fit, if most rows are outside the sample."""
        inputs = self.gate_features_.transform(X)
        is_array = isinstance(inputs, np.ndarray)
        if is_array and len(inputs) >= LEAST_WARNED and not self._warned_outside:
            self._warn_outside(X, inputs)
        return inputs

    def _warn_outside(self, X: Table, inputs: Array) -> None:
        """Warn if most rows lie outside the labelled sample."""
        rows = evenly_spaced(np.arange(len(inputs)), MOST_WARNED)
        outside = self.gate_.outside(inputs[rows])
        if outside is None or outside.share <= 0.5:
            return
        self._warned_outside = True
        names = self.gate_features_.input_names(X, inputs.shape[1])
        warn([outside_sample(outside, names)])

    def _evidence(self) -> Evidence:
        check_is_fitted(self)
        evidence = self.gate_.evidence
        if evidence is None:
            raise AttributeError(
                "Only gate='auto' (or a ShrunkGate) judges its weights on held-out rows; this "
                f"model was fitted with {type(self.gate_).__name__}."
            )
        return evidence

    def _in_container(
        self, values: Array | RowMask, X: Table, names: Sequence[str] | None = None
    ) -> Any:
        """Columns in the container that `set_output` chose, by default named by candidate."""
        config = getattr(self, "_sklearn_output_config", {})
        container = config.get("transform", get_config()["transform_output"])
        return named_columns(values, names or self.candidate_names_, container, like=X)


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
        X = self._check_inputs(X)
        evidence, inputs = self._evidence(), self._gate_inputs(X)
        if self._allows_missing:
            return self._completed(X, inputs, predictions).interval(evidence, inputs, level)
        return evidence.predict_interval(inputs, self._all_predictions(X, predictions), level)

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
        X = self._check_inputs(X)
        evidence, inputs = self._evidence(), self._gate_inputs(X)
        if self._allows_missing:
            sets = self._completed(X, inputs, predictions).classes(evidence, inputs, level)
        else:
            sets = evidence.predict_set(inputs, self._all_predictions(X, predictions), level)
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


def check_finite(inputs: Inputs) -> None:
    """Refuse inputs of the gate with missing values, if predictions in X may be missing."""
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f":
        assert_all_finite(inputs, input_name="X")


def normalized(probabilities: Array) -> Array:
    """Probabilities without rounding errors: not negative, each row summing to one.

    >>> normalized(np.array([[0.5, 0.75, -1e-17]])).tolist()
    [[0.4, 0.6, 0.0]]
    """
    probabilities = np.clip(probabilities, 0.0, None)
    return probabilities / probabilities.sum(axis=1, keepdims=True)


@contextmanager
def _restored_on_error(model: BaseEstimator) -> Iterator[None]:
    """Undo all changes of a model if an error occurs, so that an earlier fit stays whole."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def _without_uncovered(
    P: Array, covered: RowMask, weight: Array | None
) -> tuple[Array, Array | None]:
    """Take the weight from rows that no fold holds out: (n, ...), (n,) -> (n, ...), (n,)."""
    if covered.all():
        return P, weight
    # Such rows stay, so that folds remain valid, and get a finite prediction.
    P[~covered] = P[covered].mean(axis=0)
    return P, covered * (1.0 if weight is None else weight)


def _check_rows(n_inputs: int, n_targets: int) -> None:
    if n_inputs != n_targets:
        raise InvalidInputError(
            f"X and y must have the same number of rows; X has {n_inputs} and y has {n_targets}."
        )
    if n_targets < 2:
        raise InvalidInputError(
            f"Weights cannot be learnt from n_samples={n_targets}; pass at least 2 labelled rows."
        )


def _check_weight(sample_weight: ArrayLike | None, y: AnyArray) -> Array | None:
    """Weights of the rows (n,), not negative and not all zero; None stays None."""
    if sample_weight is None:
        return None
    weight = readable_tensor(without_mask(sample_weight, "sample_weight"))
    weight = _check_sample_weight(weight, y, ensure_non_negative=True)
    if not weight.any():
        raise InvalidInputError(
            f"Some row must have a positive sample weight; all {len(y)} are zero."
        )
    return np.asarray(weight)


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
