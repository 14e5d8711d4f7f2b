"""What the regressor and the classifier share: their parameters and methods."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Float64, RandomState, RowMask
from localma.candidates import Pool
from localma.candidates.conversion import Model, Models
from localma.candidates.given import Predictions
from localma.candidates.outputs import Labels, Output, OutputNames, Table, Task
from localma.checks.cautions import Caution
from localma.checks.training_rows import SampleLosses
from localma.dependence import Dependence
from localma.equations import local_average
from localma.errors import unknown_name
from localma.estimators.fitting import fit
from localma.estimators.inputs import check_finite, check_inputs, gate_inputs
from localma.estimators.parameters import CONSTRAINTS, Features, Own
from localma.estimators.predictions import all_predictions, run_candidates
from localma.evidence import Baseline, LocalityGain
from localma.folds import Splits
from localma.gates import Gate, Labelled
from localma.gates.base import Evidence
from localma.gates.heirs import Heirs
from localma.gates.left_out import LeftOut
from localma.losses import Loss
from localma.own.shared_error import SharedError
from localma.probes import Probes
from localma.reference import Reference
from localma.tables.encoder import GateFeatures
from localma.tables.frames import CONTAINERS, named_columns

if TYPE_CHECKING:
    from localma.production.answer import Answer
    from localma.production.changes import Change
    from localma.production.frontier import FrontierDisplay
    from localma.production.health import Health
    from localma.production.options import AnswerOptions, Costs
    from localma.production.route import Route

NO_CLAIM = "Do not use this combination."

MOST_LISTED = 20
"""Candidates in the HTML representation; it only counts the remaining ones."""


class _LocalMA(BaseEstimator):
    """The common part of the regressor and the classifier, which differ in targets and outputs."""

    _task: ClassVar[Task]
    _doc_link_module: ClassVar[str] = "localma"
    _doc_link_template: ClassVar[str] = ""  # no link until the documentation has an address
    _parameter_constraints: ClassVar[dict[str, list[object]]] = CONSTRAINTS
    loss_: Loss
    gate_features_: GateFeatures
    global_weights_: Float64
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
        fit(self, X, y, sample_weight, predictions, groups)
        return self

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
        X = check_inputs(self, X)
        inputs = gate_inputs(self, X)
        if predictions is not None:
            return self.gate_.average(inputs, all_predictions(self, X, predictions))
        # The gate needs no prediction, so a candidate need not run on rows with a zero weight.
        W = self.gate_.predict_weights(inputs)
        return local_average(W, run_candidates(self, X, only=None if W.all() else W != 0))

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
        candidate: Model | None,
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
        X = check_inputs(self, X)
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
        X = check_inputs(self, X)
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
        X = check_inputs(self, X)
        P = run_candidates(self, X, rows=rows)
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

    @property
    def _allows_missing(self) -> bool:
        """Whether predictions of the sample may be missing."""
        return self.missing != "error"

    def _largest_gap(self, data: Labelled) -> Array:
        """Largest difference of two candidates in a row of the sample: (K,)."""
        low, high = data.P.min(axis=1), data.P.max(axis=1)
        return np.asarray((high - low).max(axis=0), dtype=np.float64)

    def _outputs(self) -> OutputNames:
        """The order of several outputs at the fit."""
        return OutputNames(self.output_names_, "the fit")

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
