"""The estimators: where predictions of candidates and weights of a gate meet.

``fit``: validate -> ``P = pool.predict(X)`` -> global weights -> gate.
``predict``: ``W = gate(X)``, ``P = pool.predict(X)``, the local average of P under W.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from localma.baseline import Baseline
from localma.candidates import CrossFitted, Pool
from localma.candidates.outputs import OutputNames, Task, as_labels, check_no_label_missing
from localma.candidates.pool import check_same_index, with_named_classes
from localma.candidates.training_rows import (
    mean_of_moved,
    moved_rows,
    recognised_rows,
    spread_rows,
)
from localma.cautions import Caution, warn
from localma.equations import local_average, row_losses
from localma.errors import InvalidInputError, unknown_name
from localma.evidence import BaselineGap, LocalityGain
from localma.fit_checks import (
    CHECKED_OBJECTS,
    CHECKED_ROWS,
    evenly_spaced,
    leaking_candidates,
    leaking_columns,
    over_constant,
    rows_for_leaks,
    worse_than_constant,
)
from localma.folds import Fold, count_groups, make_folds, number_groups
from localma.gates import EqualGate, Gate, GlobalGate, Labelled, MLPGate, ShrunkGate
from localma.gates.base import Evidence
from localma.gates.global_ import find_global_weights
from localma.gates.support import Outside
from localma.losses import (
    Loss,
    check_predictions,
    check_targets,
    check_unit,
    get_loss,
    is_registered,
    try_loss,
)
from localma.memorised import (
    LEAST_TESTED,
    MOST_TESTED,
    Memory,
    SampleLosses,
    caution_of,
    error_ratio,
    is_smooth,
)
from localma.probes import Probes
from localma.tables.encoder import GateFeatures, refuse_dates
from localma.tables.frames import (
    CONTAINERS,
    LARGE_ROWS,
    ArrowRows,
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

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

LEAST_WARNED, MOST_WARNED = 20, 256
"""`predict` looks at so many rows, evenly spread, for rows outside the labelled sample."""

GATES: dict[str, Callable[[], Gate]] = {
    "auto": ShrunkGate,
    "local": MLPGate,
    "global": GlobalGate,
    "equal": EqualGate,
    "paper": MLPGate.paper,
}

NO_CLAIM = "No gain of local weights is claimed."


class _LocalMA(BaseEstimator):
    """What the regressor and the classifier share; they differ in targets and outputs."""

    _task: ClassVar[Task]
    gate_: Gate
    pool_: Pool | None
    candidate_names_: tuple[str, ...]
    output_names_: tuple[str, ...] | None
    # Models that an earlier version fitted and pickled have none of these.
    cautions_: tuple[Caution, ...] = ()
    constant_prediction_: Array | None = None
    probes_: Probes | None = None
    sample_losses_: SampleLosses | None = None
    _warned_outside = False

    def __init__(
        self,
        candidates: Any = None,
        *,
        loss: str | Loss = "squared_error",
        gate: str | Gate = "auto",
        gate_features: Any = None,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.candidates = candidates
        self.loss = loss
        self.gate = gate
        self.gate_features = gate_features
        self.cv = cv
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        predictions: Any = None,
        groups: Any = None,
    ) -> Self:
        """Learn how far to trust each candidate for each input.

        Parameters
        ----------
        X : array or frame of shape (n, p), or whatever the candidates and `gate_features` take
        y : array of shape (n,), or (n, K) for regression with several outputs
        sample_weight : array of shape (n,), optional
        predictions : optional
            What the candidates say about X, where they need not run: an array (n, M) or
            (n, M, K), a dict of arrays by name, or a data frame with a column per candidate.
            Several outputs in data frames, of y, in the dict or from a candidate, go by name.
        groups : array of shape (n,), optional
            What each row belongs to, such as a patient: a name or a number. Groups stay whole
            wherever rows are split (a splitter `cv` of your own is given them), and the standard
            error of the verdict is at least that between groups: rows of one are no independent
            draws.

        Returns
        -------
        self
        """
        before = dict(vars(self))
        self._warned_outside = False
        try:
            return self._fit(X, y, sample_weight, predictions, groups)
        except BaseException:
            # A model that was fitted before must not be left half replaced.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, y: Any, sample_weight: Any, predictions: Any, groups: Any) -> Self:
        self.loss_ = get_loss(self.loss)
        random = check_random_state(self.random_state)
        gate = self._make_gate(random)
        y = without_mask(y, "y")
        outputs = OutputNames.of_target(y)
        y = self._check_target(readable_tensor(y))  # first, since it forgets the names of features
        X = self._check_inputs(X, reset=True, gate=gate)
        _check_rows(n_rows(X), len(y))
        check_same_index(predictions, X)
        sample_weight = _checked_weight(sample_weight, y)
        pool = None if self.candidates is None else Pool(self.candidates, task=self._task).expand(X)
        hidden = () if pool is None else pool.prediction_columns(X)
        self.gate_features_ = GateFeatures(
            self.gate_features, hidden, raw=gate.raw_inputs, needed=gate.needs_inputs
        ).fit(X, y)
        numbers = None if groups is None else number_groups(groups, len(y))
        n_groups = count_groups(numbers, sample_weight)
        in_parts = gate.reads_in_parts(len(y), n_groups)
        inputs = self.gate_features_.transform(X, in_parts=in_parts)
        if pool is None:
            self.pool_ = None
            P = self._read(predictions, y, outputs)
        folds = self._make_folds(pool, gate, y, groups, n_groups, random)
        if pool is not None:
            how = {"cv": folds, "groups": groups, "random_state": random, "outputs": outputs}
            P, sample_weight = self._fit_pool(pool, X, y, sample_weight, predictions, how)
        self.output_names_ = outputs.names
        outputs_of_gate, targets = self._gate_outputs(P, y)
        self._check_domains(outputs_of_gate, targets)
        baseline = self._baseline(targets, y, sample_weight)
        data = Labelled.of(
            inputs,
            outputs_of_gate,
            targets,
            loss=self.loss_,
            sample_weight=sample_weight,
            groups=numbers,
            baseline=baseline,
        )
        self._fit_gate(gate, data, folds)
        self.probes_ = None if pool is None else Probes.of(X)
        self._measure_sample(outputs_of_gate, baseline, numbers)
        memorised = (
            self._trained_on_sample(pool, X, P, y, baseline.weighing_rows)
            if pool is not None and predictions is None
            else ()
        )
        self.cautions_ = self._find_cautions(
            X, inputs, outputs_of_gate, baseline, numbers, memorised
        )
        warn(self.cautions_, stacklevel=4)
        return self

    def _measure_sample(
        self, outputs: Array, baseline: Baseline, groups: NDArray[np.intp] | None
    ) -> None:
        """Learn what new rows are compared with: the best constant, and the candidates' losses."""
        constant = baseline.learn()
        self.constant_prediction_ = constant if np.isfinite(constant).all() else None
        rows = evenly_spaced(baseline.weighing_rows, LARGE_ROWS)
        losses = [
            row_losses(self.loss_, baseline.targets[rows], P) for P in outputs[rows].swapaxes(0, 1)
        ]
        numbers = None if groups is None else groups[rows]
        weight = baseline.weights_of(rows)
        self.sample_losses_ = SampleLosses.of(np.array(losses), weight, numbers)

    def _trained_on_sample(
        self, pool: Pool, X: Any, P: Array, y: Any, used: NDArray[np.intp]
    ) -> tuple[Caution, ...]:
        """Name candidates that seem to have been trained on the labelled rows."""
        if not self.gate_.learns or not is_table(X):
            return ()  # equal weights are not learnt from the rows
        rows = used[spread_rows(len(used), MOST_TESTED)]
        moved, closer = moved_rows(X, rows), moved_rows(X, rows, 0.5)
        memories = []
        for m, (name, candidate) in enumerate(zip(pool.names, pool.candidates, strict=True)):
            if isinstance(candidate, CrossFitted):
                continue  # it was trained on these rows, but did not predict them
            recognised = recognised_rows(candidate, X)
            ratio = 1.0
            if recognised is None and moved is not None and len(rows) >= LEAST_TESTED:
                ratio = self._error_ratio(pool, name, moved, closer, P[rows, m], y[rows])
            memories.append(Memory(name, len(y), recognised or 0, ratio))
        return caution_of(memories)

    def _error_ratio(
        self, pool: Pool, name: str, moved: Any, closer: Any, at_rows: Array, y: Any
    ) -> float:
        """Error of a candidate around rows, over that at the rows; 1 if it cannot be told.

        moved, closer : the rows moved by a step and by half a step.
        """
        around = mean_of_moved(pool, name, moved, self._outputs())
        if around is None:
            return 1.0
        outputs, targets = self._gate_outputs(np.stack([at_rows, around], axis=1), y)
        ratio = error_ratio(targets, outputs[:, 0], outputs[:, 1])
        if ratio > 1.0:  # rarely, so the second question costs nothing as a rule
            nearer = mean_of_moved(pool, name, closer, self._outputs())
            if nearer is None or is_smooth(at_rows, around, nearer):
                return 1.0
        return ratio

    def predict_weights(self, X: Any, *, return_support: bool = False) -> Any:
        """Weight of each candidate for each row.

        Parameters
        ----------
        X : (n, p)
        return_support : whether to return as well how much of the local part was used: one
            within the labelled sample, falling to zero away from it, where the weights are global.

        Returns
        -------
        weights : (n, M), non-negative, each row summing to one; a data frame with the
            candidates' names as columns under ``set_output(transform="pandas")`` or "polars".
        support : (n,), where asked for
        """
        X = self._check_inputs(X, reset=False)
        inputs = self.gate_features_.transform(X)
        weights = self._named(self.gate_.predict_weights(inputs), X)
        return (weights, self.gate_.support(inputs)) if return_support else weights

    def weight_band(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Band of the weights, from the gates of the folds and of the restarts: two (n, M).

        With gate="auto". Containers as in `predict_weights`.
        """
        X = self._check_inputs(X, reset=False)
        low, high = self._evidence().weight_band(self.gate_features_.transform(X), level)
        return self._named(low, X), self._named(high, X)

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
        """The cautions, if there are any, then what local weights are worth here."""
        judged = self._evidence().verdict_
        if any(caution.kind == "worse_than_constant" for caution in self.cautions_):
            judged = NO_CLAIM
        return " ".join([*(caution.sentence for caution in self.cautions_), judged])

    def candidate_predictions(self, X: Any, *, rows: Sequence[int] | None = None) -> Any:
        """Predictions of the candidates: (n, M), or (n, M, K) with several outputs or classes.

        The classes of a classifier are in the order of `classes_`. If X is a part of your rows,
        rows : (n,) are the numbers by which errors call them; by default they count from zero.
        """
        X = self._check_inputs(X, reset=False)
        P = self._ask(X, rows=rows)
        return self._named(P, X) if P.ndim == 2 else P

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container of `predict_weights`: "default", "pandas" or "polars"."""
        if transform is not None:
            if transform not in CONTAINERS:
                raise unknown_name("output container", transform, CONTAINERS)
            self._sklearn_output_config = {"transform": transform}
        return self

    def save(self, path: str | PathLike[str], *, probes: bool = True) -> None:
        """Write the fitted model to one file, without pickle; `localma.load` reads it.

        probes : whether to save what each candidate predicts for 16 made-up inputs, by which
            `load` recognises it.
        """
        from localma.model_file import save

        save(self, path, probes=probes)

    def __sklearn_clone__(self) -> Self:
        # scikit-learn's own clone recurses into lists and dicts and strips fitted candidates.
        parameters = self.get_params(deep=False)
        kept = {name: parameters.pop(name) for name in ("candidates", "loss")}
        twin = type(self)(**kept, **{name: clone(v, safe=False) for name, v in parameters.items()})
        for name in ("_metadata_request", "_sklearn_output_config", "_skl_callbacks"):
            if name in vars(self):
                setattr(twin, name, copy.copy(vars(self)[name]))
        return twin

    def _evidence(self) -> Evidence:
        check_is_fitted(self)
        evidence = self.gate_.evidence
        if evidence is None:
            raise AttributeError(
                "Only gate='auto' (or a ShrunkGate) judges its weights on held-out rows; this "
                f"model was fitted with {type(self.gate_).__name__}."
            )
        return evidence

    def _check_target(self, y: Any) -> Any:
        """Validate y: numbers (n,) or (n, K) for regression, labels (n,) for classification."""
        raise NotImplementedError

    def _gate_outputs(self, P: Array, y: Any) -> tuple[Array, Array]:
        """Predictions (n, M, K) and targets (n, K) on the scale on which the loss acts."""
        raise NotImplementedError

    def _classes(self, y: Any) -> Any:
        """Labels of the last axis of predictions, once the pool or y is known; else None."""
        return None

    def _make_gate(self, random: np.random.RandomState) -> Gate:
        """Make a gate of our own to fit, seeded unless the user seeded theirs."""
        if isinstance(self.gate, Gate):
            gate: Gate = clone(self.gate)
        elif isinstance(self.gate, str) and self.gate in GATES:
            gate = GATES[self.gate]()
        elif isinstance(self.gate, str):
            raise unknown_name("gate", self.gate, GATES)
        else:
            raise InvalidInputError(
                f"gate must be one of {', '.join(map(repr, GATES))}, or a Gate object such as "
                f"MLPGate(hidden=(32,)); received {self.gate!r}."
            )
        if gate.get_params(deep=False).get("cv", False) is None:
            gate.set_params(cv=self.cv)  # who asks for certain folds here gets them all
        seed = int(random.randint(np.iinfo(np.int32).max))
        if gate.get_params().get("random_state", seed) is None:
            gate.set_params(random_state=seed)
        return gate

    def _make_folds(
        self,
        pool: Pool | None,
        gate: Gate,
        y: Any,
        groups: Any,
        n_groups: int | None,
        random: np.random.RandomState,
    ) -> list[Fold] | None:
        """Split the sample where the gate or a model of one's own needs it; they share folds."""
        if not gate.needs_folds and not (pool is not None and pool.has_own_models):
            return None
        own = gate.get_params(deep=False).get("cv")
        classification = self._task == "classification"
        cv = self.cv if own is None else own
        most = None
        if pool is None or not pool.has_own_models:
            most = gate.judging_folds(len(y), n_groups)
        return make_folds(
            cv,
            y,
            groups,
            classification=classification,
            random_state=random,
            most=most,
        )

    def _check_inputs(self, X: Any, *, reset: bool, gate: Gate | None = None) -> Any:
        """Record or check the features' names and number; plain numbers become an array.

        What is no table (texts, images, data sets) passes as it is, if the gate takes it. Values of
        a frame are looked at by those who use them: by gate and candidates.
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
            return validate_data(self, X, reset=reset)
        return validate_data(self, X, reset=reset, skip_check_array=True)

    def _read(self, predictions: Any, y: Any, outputs: OutputNames) -> Array:
        """Take bare predictions in place of candidates."""
        if predictions is None:
            raise InvalidInputError(
                "There is nothing to combine: candidates is None and no predictions were given. "
                "Pass candidates={'name': fitted_model, ...}, or fit(X, y, predictions=P)."
            )
        classes = self._classes(y)
        if classes is not None:
            self.classes_ = classes = with_named_classes(predictions, classes)
        self.candidate_names_, P = Pool.from_predictions(
            predictions, n_rows=len(y), task=self._task, classes=classes, outputs=outputs
        )
        return P

    def _fit_pool(
        self,
        pool: Pool,
        X: Any,
        y: Any,
        sample_weight: Array | None,
        predictions: Any,
        how: dict[str, Any],
    ) -> tuple[Array, Array | None]:
        """Predictions of the sample, and weights that leave out rows without held-out ones."""
        if predictions is not None:
            _refuse_own_models(pool)
        pool.check_labels(y)
        fitted, held_out, covered = pool.fit(X, y, sample_weight=sample_weight, **how)
        self.pool_, self.candidate_names_ = fitted, fitted.names
        outputs = how["outputs"]
        if predictions is not None:
            return self._given(predictions, len(y), self._classes(y), outputs), sample_weight
        P = fitted.predict(X, given=held_out, outputs=outputs)
        if covered.all():
            return P, sample_weight
        # Such rows keep their place, so that folds stay valid, and get a finite prediction.
        P[~covered] = P[covered].mean(axis=0)
        return P, covered * (1.0 if sample_weight is None else sample_weight)

    def _fit_gate(self, gate: Gate, data: Labelled, folds: Sequence[Fold] | None) -> None:
        if gate.is_global:  # to find the same weights twice would double its cost
            self.gate_ = gate.fit(data)
            self.global_weights_ = gate.weights_
            return
        self.global_weights_ = find_global_weights(data)
        self.gate_ = gate.fit(data, global_weights=self.global_weights_, folds=folds)

    def _baseline(self, targets: Array, y: Any, sample_weight: Array | None) -> Baseline:
        """Constant predictions of the labelled sample, to compare with."""
        weight = np.broadcast_to(1.0, len(targets)) if sample_weight is None else sample_weight
        return Baseline(self.loss_, targets, weight, *self._numbered_labels(y))

    def _numbered_labels(self, y: Any) -> tuple[NDArray[np.intp] | None, int]:
        """Number of the class of each row (n,), and the number of classes; None and 0 if none."""
        return None, 0

    def _find_cautions(
        self,
        X: Any,
        inputs: Any,
        outputs: Array,
        baseline: Baseline,
        groups: Any,
        memorised: tuple[Caution, ...],
    ) -> tuple[Caution, ...]:
        """Reasons to doubt this fit; the most serious ones first.

        memorised : what `_trained_on_sample` found. It explains why a candidate is nearly perfect,
        so such a candidate is not named again as a leak.
        """
        gap, where = self._beside_constant(inputs, outputs, baseline, groups)
        names = self.candidate_names_
        explained = {name for caution in memorised for name in caution.names}
        perfect = leaking_candidates(baseline, outputs, names)
        return (
            *worse_than_constant(gap, baseline, outputs, names, where),
            *memorised,
            *(caution for caution in perfect if not explained & set(caution.names)),
            *self._leaking_columns(X, inputs, baseline),
        )

    def _beside_constant(
        self, inputs: Any, outputs: Array, baseline: Baseline, groups: Any
    ) -> tuple[BaselineGap, str]:
        """The combined prediction beside the best constant, and on which rows.

        Only gate="auto" holds out rows. On the rows that another gate was fitted on it looks better
        than it is, so what is worse there is worse indeed.
        """
        evidence = self.gate_.evidence
        if evidence is not None:
            return evidence.locality_gain_.beside_baseline, "held-out rows"
        is_table = isinstance(inputs, np.ndarray) and inputs.ndim == 2
        rows = evenly_spaced(baseline.weighing_rows, CHECKED_ROWS if is_table else CHECKED_OBJECTS)
        mixture = self.gate_.average(take_rows(inputs, rows), outputs[rows])
        losses = row_losses(self.loss_, baseline.targets[rows], mixture)
        related = None if groups is None else groups[rows]
        return over_constant(losses, baseline, rows, related), "the labelled rows"

    def _leaking_columns(self, X: Any, inputs: Any, baseline: Baseline) -> list[Caution]:
        numeric = isinstance(inputs, np.ndarray | ArrowRows) and inputs.dtype.kind in "biuf"
        if not numeric or inputs.ndim != 2 or not inputs.shape[1]:
            return []  # the gate sees images or texts, or nothing
        rows = rows_for_leaks(baseline)
        values = np.asarray(take_rows(inputs, rows), dtype=np.float64)
        return leaking_columns(baseline, rows, *self.gate_features_.named_inputs(values, X))

    def _check_domains(self, outputs: Array, targets: Array) -> None:
        if outputs.shape[2] != targets.shape[1]:
            raise InvalidInputError(
                f"Predictions and target must have as many outputs: the candidates give "
                f"{outputs.shape[2]}, y has {targets.shape[1]}. Pass y of shape (n, K) with "
                "candidates that return (n, K)."
            )
        check_targets(self.loss_, targets)
        check_predictions(self.loss_, outputs, self.candidate_names_)
        if not is_registered(self.loss_):
            try_loss(self.loss_, targets, outputs.mean(axis=1))
        check_unit(self.loss_, targets, outputs)

    def _ask(self, X: Any, only: Mask | None = None, rows: Sequence[int] | None = None) -> Array:
        """Predictions of the pool: (n, M) or (n, M, K)."""
        if self.pool_ is None:
            raise InvalidInputError(
                "This model has no candidates to run: it was fitted with predictions=, or loaded "
                "with candidates={}. Pass predictions= of "
                f"{', '.join(map(repr, self.candidate_names_))}, or load it with its candidates."
            )
        return self.pool_.predict(X, only=only, outputs=self._outputs(), rows=rows)

    def _outputs(self) -> OutputNames:
        """The order of several outputs at the fit; models pickled long ago do not know it."""
        return OutputNames(getattr(self, "output_names_", None), "the fit")

    def _given(self, predictions: Any, n: int, classes: Any, outputs: OutputNames) -> Array:
        """Bare predictions, checked against the candidates' names: (n, M) or (n, M, K)."""
        _, P = Pool.from_predictions(
            predictions,
            n_rows=n,
            task=self._task,
            names=self.candidate_names_,
            classes=classes,
            outputs=outputs,
        )
        return P

    def _mixture(self, X: Any, predictions: Any) -> Array:
        """The localized average ``sum_m w_m(x) f_m(x)``: (n,) or (n, K)."""
        X = self._check_inputs(X, reset=False)
        inputs = self.gate_features_.transform(X)
        if not self._warned_outside and n_rows(inputs) >= LEAST_WARNED:
            self._warn_outside(X, inputs)
        if predictions is not None:
            check_same_index(predictions, X)
            P = self._given(predictions, n_rows(X), self._classes(None), self._outputs())
            return self.gate_.average(inputs, P)
        # The gate needs no prediction, so a candidate without a say in a row need not run on it.
        W = self.gate_.predict_weights(inputs)
        return local_average(W, self._ask(X, only=None if W.all() else W != 0))

    def _warn_outside(self, X: Any, inputs: Any) -> None:
        """Warn, once in the life of a fit, if most rows lie outside the labelled sample."""
        if not isinstance(inputs, np.ndarray):
            return
        outside = self.gate_.outside(inputs[spread_rows(len(inputs), MOST_WARNED)])
        if outside is None or outside.share <= 0.5:
            return
        self._warned_outside = True
        names = self.gate_features_.input_names(X, inputs.shape[1])
        warn([_caution_outside(outside, names[outside.column])], stacklevel=5)

    def _named(self, values: Array, X: Any) -> Any:
        """Values (n, M) in the container that `set_output` asks for, columns named by candidate."""
        own = getattr(self, "_sklearn_output_config", {})
        container = own.get("transform", get_config()["transform_output"])
        return named_columns(values, self.candidate_names_, container, like=X)


class LocalMARegressor(RegressorMixin, _LocalMA):
    """Localized model averaging for regression: ``f(x) = sum_m w_m(x) f_m(x)``.

    Parameters
    ----------
    candidates : dict of name -> model, or list of models or (name, model) pairs
        Fitted scikit-learn estimators, functions, `Column`, `CrossFitted`, or anything that
        `as_candidate` takes. They are never refitted or cloned. None with `predictions=`.
    loss : str or Loss, default="squared_error"
        What to minimise, on the scale of the predictions; see `localma.losses`.
    gate : str or Gate, default="auto"
        Where the weights come from: "auto" (local as far as held-out rows support it), "local"
        (a network), "global" (constant weights on the simplex), "equal", "paper" (the paper's
        network and optimiser), or a Gate object.
    gate_features : list of columns, transformer or function of X, optional
        What the gate sees. By default all columns that hold no predictions.
    cv : int or splitter, optional
        Folds for candidates of one's own and for gates that choose by cross-fitting. An integer
        means shuffled folds; groups and time are respected through scikit-learn's splitters.
        None means five folds, of which gate="auto" uses one from 20,000 rows (and, if there
        are groups, 50 of them) on.
    random_state : int, RandomState or None

    Attributes
    ----------
    gate_ : the fitted gate
    pool_ : the candidates, None where only predictions were given
    global_weights_ : (M,) the best constant weights
    candidate_names_ : tuple of M names
    n_outputs_ : K, the number of outputs
    output_names_ : tuple of their K names, in the order of `predict`, where data frames name them:
        y, or else the first predictions; None where there are none
    constant_prediction_ : (K,) the best constant prediction of the sample: mean, median or quantile
        of each output, whatever the loss elicits; None if no target may be predicted
    cautions_ : tuple of Caution, reasons to doubt this fit, of which `fit` warns
    locality_gain_, path_, verdict_ : with gate="auto", what local weights are worth, the path of
        gates that was judged, and the verdict in one sentence, after the cautions

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

    def predict(self, X: Any, predictions: Any = None) -> Array:
        """Average the candidates with the weights of each row.

        Parameters
        ----------
        X : (n, p)
        predictions : what the candidates say about X, where they are not to be run here.

        Returns
        -------
        prediction : (n,), or (n, K) with several outputs
        """
        return self._mixture(X, predictions)

    def score(self, X: Any, y: Any, sample_weight: Any = None, predictions: Any = None) -> float:
        """Coefficient of determination R^2 of the prediction; arguments as in `predict`."""
        y = self._outputs().arranged(without_mask(y, "y"), "y")
        weight = without_mask(sample_weight, "sample_weight")
        return float(r2_score(y, self.predict(X, predictions), sample_weight=weight))

    def _check_target(self, y: Any) -> Array:
        _refuse_labels(y)
        y = validate_data(self, X="no_validation", y=y, multi_output=True, y_numeric=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        self.n_outputs_ = 1 if y.ndim == 1 else y.shape[1]
        return y.astype(np.float64, copy=False)

    def _gate_outputs(self, P: Array, y: Array) -> tuple[Array, Array]:
        if self.loss_.name == "cross_entropy":
            raise InvalidInputError(
                "Loss 'cross_entropy' needs labels; received a regression. Use "
                "LocalMAClassifier, or loss='bernoulli' for targets and predictions in [0, 1]."
            )
        return (P if P.ndim == 3 else P[:, :, None]), (y if y.ndim == 2 else y[:, None])

    def __sklearn_tags__(self) -> Any:
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
    gate, gate_features, cv, random_state : as in `LocalMARegressor`

    Attributes
    ----------
    classes_ : (K,) sorted union of the classes that the candidates know
    constant_prediction_ : (K,) shares of the classes in the sample
    gate_, pool_, global_weights_, candidate_names_, cautions_ : as in `LocalMARegressor`

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
        candidates: Any = None,
        *,
        loss: str | Loss = "cross_entropy",
        gate: str | Gate = "auto",
        gate_features: Any = None,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            candidates,
            loss=loss,
            gate=gate,
            gate_features=gate_features,
            cv=cv,
            random_state=random_state,
        )

    def predict_proba(self, X: Any, predictions: Any = None) -> Array:
        """Probabilities of the classes, in the order of `classes_`: (n, K)."""
        probabilities = np.clip(self._mixture(X, predictions), 0.0, None)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: Any, predictions: Any = None) -> NDArray[Any]:
        """Most probable class of each row: (n,)."""
        labels = np.argmax(self.predict_proba(X, predictions), axis=1)
        return np.asarray(self.classes_[labels])

    def score(self, X: Any, y: Any, sample_weight: Any = None, predictions: Any = None) -> float:
        """Mean accuracy of the predicted classes; arguments as in `predict`."""
        y, weight = without_mask(y, "y"), without_mask(sample_weight, "sample_weight")
        return float(accuracy_score(y, self.predict(X, predictions), sample_weight=weight))

    def _check_target(self, y: Any) -> NDArray[Any]:
        check_no_label_missing(y)
        y = validate_data(self, X="no_validation", y=y)
        check_classification_targets(y)
        return np.asarray(y)

    def _classes(self, y: Any) -> NDArray[Any]:
        if y is not None:
            known = None if self.pool_ is None else self.pool_.classes
            self.classes_ = as_labels(np.unique(y)) if known is None else known
        return self.classes_

    def _numbered_labels(self, y: NDArray[Any]) -> tuple[NDArray[np.intp], int]:
        return np.searchsorted(self.classes_, y).astype(np.intp), len(self.classes_)

    def _gate_outputs(self, P: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        classes = self.classes_ if self.pool_ is None else self._classes(y)
        observed = np.searchsorted(classes, y)
        if self.loss_.name == "cross_entropy":
            return np.take_along_axis(P, observed[:, None, None], axis=2), np.ones((len(y), 1))
        return P, np.eye(len(self.classes_))[observed]


def _caution_outside(outside: Outside, column: str) -> Caution:
    low, high, here = (_exactly(value) for value in (outside.low, outside.high, outside.here))
    return Caution(
        "outside_sample",
        f"{outside.share:.0%} of the rows to predict lie outside the labelled sample, mostly by "
        f"{column!r}: {low} to {high} in the sample, {here} here. Local weights are not used for "
        "such rows, but the global ones. If it only tells when a row was recorded, leave it out "
        "of gate_features.",
        (column,),
    )


def _exactly(value: float) -> str:
    """Write a year or an id without a comma or an exponent, other numbers with four digits."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"


def _check_rows(n_inputs: int, n_targets: int) -> None:
    if n_inputs != n_targets:
        raise InvalidInputError(
            f"X and y must have as many rows; X has {n_inputs} and y has {n_targets}."
        )
    if n_targets < 2:
        raise InvalidInputError(
            f"Weights cannot be learnt from n_samples={n_targets}; pass at least 2 labelled rows."
        )


def _checked_weight(sample_weight: Any, y: NDArray[Any]) -> Any:
    """Weights of the rows (n,), none negative and not all zero; None stays None."""
    if sample_weight is None:
        return None
    weight = readable_tensor(without_mask(sample_weight, "sample_weight"))
    weight = _check_sample_weight(weight, y, ensure_non_negative=True)
    if not weight.any():
        raise InvalidInputError(
            f"Some row must have a positive sample weight; all {len(y)} are zero."
        )
    return weight


def _refuse_labels(y: Any) -> None:
    values = np.asarray(y)
    if holds_dates(values):
        raise InvalidInputError(
            f"LocalMARegressor needs a target of numbers; received dates such as "
            f"{str(values.flat[0])!r}. Turn y into numbers, such as days since a fixed date."
        )
    first = next(values.flat, None)
    if isinstance(first, str):
        raise InvalidInputError(
            f"LocalMARegressor needs a target of numbers; received labels such as {str(first)!r}. "
            "Use LocalMAClassifier, or turn y into numbers."
        )


def _refuse_own_models(pool: Pool) -> None:
    if pool.has_own_models:
        raise InvalidInputError(
            "A CrossFitted candidate makes its own predictions of the sample; predictions= would "
            "replace them. Leave predictions= out, or give fitted candidates only."
        )
