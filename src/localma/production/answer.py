"""One answer: a prediction with its weights, failures, cost, time and support."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Literal

import numpy as np

from localma._types import AnyArray, Array, Float64, Json, RowMask, Rows
from localma.candidates.given import Predictions
from localma.candidates.outputs import OutputNames, Table
from localma.candidates.pool import Pool, Request
from localma.equations import local_average
from localma.errors import CandidateError, NoAnswerError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.estimators.classifier import normalized
from localma.estimators.inputs import check_finite, check_inputs, gate_inputs
from localma.estimators.predictions import all_predictions, pool_of
from localma.formatting import count, number
from localma.gates.incomplete import known_predictions, replaced
from localma.gates.labelled import Inputs
from localma.gates.left_out import renormalized
from localma.production.budget import Allowance
from localma.production.calls import (
    Call,
    LateError,
    Limits,
    NotCalledError,
    Session,
    switchboard_of,
)
from localma.production.options import Options
from localma.records import Columns, Record
from localma.tables.frames import n_rows, take_rows, unmasked

Model = LocalMARegressor | LocalMAClassifier
Reason = Literal["error", "late", "missing", "not called"]
Guard = Callable[[int], AbstractContextManager[object]]
"""From the position of a candidate to a context in which it is called."""


@dataclass(frozen=True)
class Failure(Record):
    """Rows for which a candidate has no prediction, and why.

    Parameters
    ----------
    candidate : str
        Name of the candidate.
    reason : {"error", "late", "missing", "not called"}
        Whether it raised an error, did not answer in time, returned NaN, or was not called because
        it kept failing.
    text : str
        The reason in words.
    rows : list of int
        The rows, counted from zero.

    Examples
    --------
    >>> print(Failure("vendor", "late", "did not answer within 0.5 s", [0, 1]))
    Candidate 'vendor' did not answer within 0.5 s (2 rows)
    """

    candidate: str
    reason: Reason
    text: str
    rows: list[int]

    def __str__(self) -> str:
        return f"Candidate {self.candidate!r} {self.text} ({count(len(self.rows), 'row')})"


@dataclass(frozen=True, eq=False)
class Answer(Record):
    """A prediction, with its weights, failures, cost and time.

    Parameters
    ----------
    prediction : array of shape (n,) or (n, K)
        The averages, or the most probable classes.
    probabilities : array of shape (n, K) or None
        Probabilities of the classes; None for a regression.
    weights : array of shape (n, M)
        The weights that were used.
    asked : bool array of shape (n, M)
        The rows for which each candidate was called.
    failures : list of Failure
        The candidates that failed, and the rows.
    support : array of shape (n,)
        How far the local weights count, as in `predict_weights`.
    cost : float
        The sum over all rows of the costs of the candidates that were called.
    seconds : float
        Time of the answer.
    candidate_seconds : array of shape (M,)
        Time of the calls of each candidate.
    change_bound : array of shape (n,) or (n, K)
        Largest change by candidates that were left out or failed: half of the sum of the absolute
        changes of the weights, times the largest difference of two candidates in a row. It holds
        if candidates do not differ by more than in a row of the labelled sample. For probabilities
        it always holds.
    candidates : list of str
        Names of the M candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from localma import LocalMARegressor
    >>> X = np.linspace(1, 2, 50)[:, None]
    >>> candidates = {"low": lambda X: 0.75 * X[:, 0], "high": lambda X: 1.25 * X[:, 0]}
    >>> model = LocalMARegressor(candidates, gate="equal").fit(X, X[:, 0])
    >>> answer = model.answer([[1.0]])
    >>> answer.prediction.tolist(), answer.weights.tolist(), answer.cost
    ([1.0], [[0.5, 0.5]], 2.0)
    """

    prediction: AnyArray
    probabilities: Array | None
    weights: Array
    asked: RowMask
    failures: list[Failure]
    support: Array
    cost: float
    seconds: float
    candidate_seconds: Array
    change_bound: Array
    candidates: list[str]

    def __post_init__(self) -> None:
        """Keep arrays, unlike other records: an answer may have many rows."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> Answer:
        """Restore an answer from `to_dict`, or from its JSON.

        Parameters
        ----------
        values : dict
            The fields by name.

        Returns
        -------
        Answer
            The answer.
        """
        restored = super().from_dict(values)
        for name in ("weights", "support", "candidate_seconds", "change_bound", "probabilities"):
            numbers = getattr(restored, name)
            if numbers is not None:
                object.__setattr__(restored, name, np.array(numbers, dtype=np.float64))
        object.__setattr__(restored, "asked", np.array(restored.asked, dtype=bool))
        is_label = restored.probabilities is not None
        prediction = np.array(restored.prediction, dtype=None if is_label else np.float64)
        object.__setattr__(restored, "prediction", prediction)
        return restored

    @property
    def averages(self) -> Array:
        """The averages: probabilities of classes (n, K), or the prediction of a regression."""
        if self.probabilities is not None:
            return self.probabilities
        averages: Array = self.prediction  # type: ignore[assignment]
        return averages

    def _columns(self) -> Columns:
        """Return a row per candidate."""
        failed = dict.fromkeys(self.candidates, 0)
        for failure in self.failures:
            failed[failure.candidate] += len(failure.rows)
        return {
            "candidate": list(self.candidates),
            "mean_weight": self.weights.mean(axis=0).tolist(),
            "rows_asked": self.asked.sum(axis=0).tolist(),
            "rows_failed": list(failed.values()),
            "seconds": self.candidate_seconds.tolist(),
        }

    def _notes(self) -> list[str]:
        n, bound = len(self.weights), self.change_bound
        sentence = f"{count(n, 'row')} in {number(self.seconds)} s, cost {number(self.cost)}."
        notes = [sentence, *(f"{failure}." for failure in self.failures)]
        if np.isfinite(bound).any() and np.nanmax(bound) > 0.0:
            largest = number(float(np.nanmax(bound)))
            notes.append(f"What was left out changes no answer by more than {largest}.")
        return notes


def answer(
    model: Model,
    X: Table,
    predictions: Predictions | None,
    options: Options,
    guard: Guard = nullcontext,
) -> Answer:
    """Answer for the rows X of shape (n, p), as `LocalMARegressor.answer` describes.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X : array or frame of shape (n, p)
        The inputs.
    predictions : array, dict or frame, or None
        Predictions of the candidates, if they need not run.
    options : Options
        The options.
    guard : callable
        From the position of a candidate to a context in which it is called.

    Returns
    -------
    Answer
        The answer.
    """
    return answered(model, X, predictions, options, guard).answer


@dataclass(frozen=True)
class Answered:
    """An answer, with what it was made from.

    P : (n, M) or (n, M, K) predictions, NaN if a candidate failed or was not called
    inputs : inputs of the gate, n rows
    """

    answer: Answer
    P: Array
    inputs: Inputs


def answered(
    model: Model,
    X: Table,
    predictions: Predictions | None,
    options: Options,
    guard: Guard = nullcontext,
) -> Answered:
    """Answer for the rows X of shape (n, p), and keep the predictions of the candidates."""
    began = monotonic()
    missing = options.missing or model.missing
    X = check_inputs(model, X, allow_missing=missing != "error")
    return answered_checked(model, X, predictions, options, began, guard)


def answered_checked(
    model: Model,
    X: Table,
    predictions: Predictions | None,
    options: Options,
    began: float,
    guard: Guard = nullcontext,
) -> Answered:
    """Answer for rows that are already known to suit the model; see `answered`.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    X : array or frame of shape (n, p)
        The inputs, as `check_inputs` returns them.
    predictions : array, dict or frame, or None
        Predictions of the candidates, if they need not run.
    options : Options
        The options.
    began : float
        The time of the clock `monotonic` at which the answer began.
    guard : callable
        From the position of a candidate to a context in which it is called.

    Returns
    -------
    Answered
        The answer, and what it was made from.
    """
    missing = options.missing or model.missing
    inputs = gate_inputs(model, X)
    if missing != "error":
        check_finite(inputs)
    weights = Weights(model, inputs, options)
    state = Predicted.empty(model, n_rows(X))
    if predictions is None:
        calls = Calls.of(model, X, options, began, missing == "error", guard)
        V = weights.given(state.failed)
        while (needed := (V > 0.0) & ~state.asked).any():
            calls.ask(needed, state)
            V = weights.given(state.failed)
    else:
        state.take(all_predictions(model, X, predictions, allow_missing=missing != "error"))
        V = weights.given(state.failed)
        state.note_missing((weights.all > 0.0) & state.failed)
    empty = np.flatnonzero(V.sum(axis=1) == 0.0)
    if len(empty) and missing != "nan":
        raise no_answer(empty, n_rows(X), state.failures)
    unknown = state.failed if predictions is not None else state.failed | ~state.asked
    P = state.P
    if unknown.any():
        P = P.copy()
        P[unknown] = np.nan
    return Answered(record(model, weights, V, state, began), P, inputs)


def record(model: Model, weights: Weights, V: Array, state: Predicted, began: float) -> Answer:
    """Average what came back with the weights V (n, M); a row without any candidate is NaN."""
    averages = local_average(V, state.P)
    empty = V.sum(axis=1) == 0.0
    averages[empty] = np.nan
    probabilities: Array | None = None
    prediction: AnyArray = averages
    if isinstance(model, LocalMAClassifier):
        probabilities = normalized(averages)
        prediction = model._labels(probabilities)
    gap = getattr(model, "largest_gap_", None)
    moved = np.abs(weights.all - V).sum(axis=1) / 2
    bound = np.multiply.outer(moved, np.full(1, np.nan) if gap is None else gap)
    bound[empty] = np.nan
    return Answer(
        prediction=prediction,
        probabilities=probabilities,
        weights=V,
        asked=state.asked,
        failures=state.failures,
        support=weights.support,
        cost=float(state.asked.sum(axis=0) @ weights.allowance.costs),
        seconds=monotonic() - began,
        candidate_seconds=state.seconds,
        change_bound=bound.reshape(averages.shape) if bound.shape[1] == 1 else bound,
        candidates=list(model.candidate_names_),
    )


class Weights:
    """The weights of some rows, given the candidates that failed.

    Parameters
    ----------
    model : a fitted model
    inputs : inputs of its gate, n rows
    options : the limits of weights and costs
    """

    def __init__(self, model: Model, inputs: Inputs, options: Options) -> None:
        names, pool, gate = model.candidate_names_, model.pool_, model.gate_
        self.inputs, self.chooses = inputs, options.chooses
        costs, runs = np.ones(len(names)), None
        if pool is not None:
            costs = pool.costs
            runs = pool.takes | np.eye(len(names), dtype=bool) if self.chooses else None
        self.allowance = Allowance.of(options, costs, names, runs)
        self.left_out, self.reference = model.left_out_, model.global_weights_
        self.gate, self._support = gate, None
        if gate.fades:
            self.all, self._support = gate.weights_and_support(inputs)
        else:
            self.all = gate.predict_weights(inputs)

    @property
    def support(self) -> Array:
        """How far the local weights count in each row: (n,)."""
        return self.gate.support(self.inputs) if self._support is None else self._support

    def given(self, failed: RowMask) -> Array:
        """Weights if some candidates (n, M) have failed; a row without any candidate is zero."""
        W = self.all
        if failed.any():
            W, rows = W.copy(), np.flatnonzero((failed & (W > 0.0)).any(axis=1))
            W[rows] = self._without(failed[rows], rows)
        if not self.chooses:
            return W
        chosen = self.allowance.select(W, ~failed, self.reference)
        return renormalized(W, chosen, self.reference)

    def _without(self, failed: RowMask, rows: Rows) -> Array:
        """Weights of rows (m,) in which candidates (m, M) have failed."""
        W = self.all[rows]
        if self.left_out is None:
            return renormalized(W, ~failed, self.reference)
        # With several failures, the mean of the weights without each.
        weights, times = np.zeros_like(W), np.zeros(len(rows))
        for m in np.flatnonzero(failed.any(axis=0)).tolist():
            mine = np.flatnonzero(failed[:, m] & (W[:, m] > 0.0))
            if len(mine):
                inputs = take_rows(self.inputs, rows[mine])
                weights[mine] += self.left_out.weights(m, inputs, W[mine])
                times[mine] += 1.0
        return renormalized(weights / times[:, np.newaxis], ~failed, self.reference)


@dataclass
class Predicted:
    """Predictions that have come back so far.

    P : (n, M) or (n, M, K), zero if there is none; asked, failed : (n, M); seconds : (M,).
    """

    names: Sequence[str]
    P: Array
    asked: RowMask
    failed: RowMask
    seconds: Array
    failures: list[Failure]

    @classmethod
    def empty(cls, model: Model, n: int) -> Predicted:
        """No predictions yet."""
        return cls.none(model.candidate_names_, n, output_shape(model))

    @classmethod
    def none(cls, names: Sequence[str], n: int, outputs: tuple[int, ...]) -> Predicted:
        """No predictions yet of candidates with outputs of this shape."""
        shape = (n, len(names))
        P = np.zeros((*shape, *outputs))
        asked, failed = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        return cls(names, P, asked, failed, np.zeros(len(names)), [])

    def take(self, P: Array) -> None:
        """Take predictions that the user passed; missing ones are NaN."""
        self.failed = ~known_predictions(P)
        self.P = P if not self.failed.any() else np.where(np.isnan(P), 0.0, P)

    def with_gaps(self) -> Array:
        """The predictions, NaN where they are missing."""
        P = self.P.copy()
        P[self.failed] = np.nan
        return P

    def note_missing(self, missing: RowMask) -> None:
        """Note that predictions with weight are missing: (n, M)."""
        for m, name in enumerate(self.names):
            rows = np.flatnonzero(missing[:, m]).tolist()
            if rows:
                self.failures.append(Failure(name, "missing", "has no prediction", rows))

    def note(self, call: Call) -> None:
        """Take the predictions of a call, and note those that are missing."""
        m, n, pieces = call.m, len(self.P), list(call.pieces)
        self.asked[call.rows, m] = True
        self.seconds[m] += call.seconds
        if len(pieces) == 1 and len(pieces[0][0]) == n and not np.isnan(pieces[0][1]).any():
            self.P[pieces[0][0], m] = pieces[0][1]
            return
        back, absent = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        for rows, values in pieces:
            known = known_predictions(values[:, np.newaxis])[:, 0]
            self.P[rows[known], m] = values[known]
            back[rows], absent[rows[~known]] = True, True
        lost = call.rows[~back[call.rows]]
        self.failed[lost, m] = self.failed[absent, m] = True
        name = self.names[m]
        if len(lost):
            reason, text = _reason(call)
            self.failures.append(Failure(name, reason, text, lost.tolist()))
        if absent.any():
            rows_absent = np.flatnonzero(absent).tolist()
            self.failures.append(Failure(name, "missing", "returned NaN", rows_absent))


class Calls:
    """Calls of the candidates of a pool, for some rows.

    Parameters
    ----------
    pool : the candidates
    X : the n rows
    shape : shape of one prediction, () or (K,)
    options : time limits, retries and the breaker
    outputs : the order of several outputs
    reference : (M,) weights of the others, if one takes predictions of which some are missing
    began : the time from which a deadline counts
    is_strict : whether a candidate that fails is an error
    guard : from the position of a candidate to a context in which it is called
    """

    def __init__(
        self,
        pool: Pool,
        X: Table,
        shape: tuple[int, ...],
        options: Options,
        *,
        outputs: OutputNames,
        reference: Float64,
        began: float,
        is_strict: bool,
        guard: Guard = nullcontext,
    ) -> None:
        names = pool.names
        pool.warn_unknown_classes()
        X = unmasked(X)
        inputs, n = list(pool.with_inputs(X)), n_rows(X)
        request = Request(outputs, allow_missing=not is_strict)

        def predict(m: int, rows: Rows) -> Array:
            with guard(m):
                values = pool.predict_rows(m, inputs[m], None if len(rows) == n else rows, request)
            if values.shape[1:] != shape:
                raise CandidateError(
                    f"Candidate {names[m]!r} returned predictions of shape {values.shape}; "
                    f"expected {(len(rows), *shape)}, as in the fit.",
                    candidate=names[m],
                )
            return values

        deadline = inf if options.deadline is None else began + options.deadline
        limits = Limits(
            deadline, options.timeouts(names), options.retries_of(names), options.breaker
        )
        beside = [candidate.runs_beside for candidate in pool.candidates]
        self.session = Session(switchboard_of(pool), predict, beside, limits)
        self.names, self.is_strict = names, is_strict
        self.pool, self.inputs, self.request = pool, inputs, request
        self.takes, self.reference = pool.takes, reference

    @classmethod
    def of(
        cls,
        model: Model,
        X: Table,
        options: Options,
        began: float,
        is_strict: bool,
        guard: Guard = nullcontext,
    ) -> Calls:
        """Calls of the candidates of a fitted model."""
        return cls(
            pool_of(model),
            X,
            output_shape(model),
            options,
            outputs=model._outputs(),
            reference=model.global_weights_,
            began=began,
            is_strict=is_strict,
            guard=guard,
        )

    def ask(self, needed: RowMask, state: Predicted) -> None:
        """Call candidates for the rows (n, M) that need them, and note what comes back."""
        takers = np.flatnonzero(self.takes.any(axis=1)).tolist()
        self.ask_first((self.first(needed) if takers else needed) & ~state.asked, state)
        for m in takers:
            rows = np.flatnonzero(needed[:, m])
            if len(rows):
                self._combine(m, rows, state)

    def first(self, needed: RowMask) -> RowMask:
        """The calls (n, M) that do not take the predictions of others, and are needed by any."""
        takers = np.flatnonzero(self.takes.any(axis=1))
        first = needed | ((needed[:, takers].astype(np.intp) @ self.takes[takers]) > 0)
        first[:, takers] = False
        return np.asarray(first)

    def _combine(self, m: int, rows: Rows, state: Predicted) -> None:
        """Predict rows with a candidate that takes the predictions of others.

        A missing one is replaced by the average of the others, as in the fit.
        """

        def predict(m: int, rows: Rows) -> Array:
            taken = np.flatnonzero(self.takes[m])
            known = ~state.failed[np.ix_(rows, taken)]
            P = state.P[rows].copy()
            P[:, taken] = replaced(P[:, taken], known, self.reference[taken])
            complete = np.zeros_like(state.P)
            complete[rows] = P
            values = self.pool.predict_from_others(m, self.inputs[m], rows, complete, self.request)
            values[~known.any(axis=1)] = np.nan
            return values

        call = Call(m, rows, 0, self.session.changed)
        self.session.run_here(call, predict)
        self._note(call, state)

    def ask_first(self, needed: RowMask, state: Predicted) -> None:
        """Call candidates that do not take the predictions of others for rows (n, M)."""
        if needed.all():
            wanted = dict.fromkeys(range(needed.shape[1]), np.arange(len(needed)))
        else:
            wanted = {m: np.flatnonzero(rows) for m, rows in enumerate(needed.T) if rows.any()}
        for call in self.session.ask(wanted):
            self._note(call, state)

    def _note(self, call: Call, state: Predicted) -> None:
        if self.is_strict and call.error is not None:
            raise self._as_error(call, call.error)
        state.note(call)

    def _as_error(self, call: Call, error: Exception) -> Exception:
        if not isinstance(error, LateError | NotCalledError):
            return error
        name = self.names[call.m]
        return CandidateError(
            f"Candidate {name!r} {error}. With missing='renormalize' the other candidates answer.",
            candidate=name,
            rows=call.rows.tolist(),
        )


def run_all(model: Model, X: Table, options: Options, guard: Guard = nullcontext) -> Predicted:
    """Run all candidates on the rows X (n, p); those that fail are noted."""
    state = Predicted.empty(model, n_rows(X))
    calls = Calls.of(model, X, options, monotonic(), False, guard)
    calls.ask(np.ones_like(state.asked), state)
    return state


def output_shape(model: Model) -> tuple[int, ...]:
    """Shape of one prediction of a candidate: (), or (K,) for several outputs and for classes."""
    if isinstance(model, LocalMAClassifier):
        return (len(model.classes_),)
    return () if model.n_outputs_ == 1 else (model.n_outputs_,)


def _reason(call: Call) -> tuple[Reason, str]:
    error = call.error
    if isinstance(error, LateError):
        return "late", str(error)
    if isinstance(error, NotCalledError):
        return "not called", str(error)
    cause = error if error is None or error.__cause__ is None else error.__cause__
    text = " ".join(str(cause).split())[:LONGEST_TEXT]
    return "error", f"raised {type(cause).__name__}: {text}"


LONGEST_TEXT = 200
"""Characters of an error in the record; a server could make it as long as itself."""


def no_answer(rows: Rows, n: int, failures: Sequence[Failure]) -> NoAnswerError:
    """Make the error for rows in which every candidate failed."""
    reasons = "; ".join(map(str, failures[:MOST_REASONS]))
    listed = ", ".join(map(str, rows[:MOST_ROWS].tolist()))
    if len(rows) > MOST_ROWS:
        listed += f" and {len(rows) - MOST_ROWS} more"
    return NoAnswerError(
        f"No candidate is left in {len(rows)} of {n} rows: {listed}. {reasons}.",
        rows=rows.tolist(),
        python_hint="With missing='nan' these rows get NaN.",
    )


MOST_REASONS, MOST_ROWS = 5, 10
"""Failures and rows in this error."""
