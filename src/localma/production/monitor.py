"""A monitor of a fitted model: the rows it observes, and the tests that follow.

Everything it keeps are sums over blocks of periods, besides rows that wait for their labels. So the
state is small, and monitors of several processes can be added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import blake2b, sha256
from numbers import Integral
from os import PathLike
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from localma._types import AnyArray, Array, Float64, Integers, RowMask, Rows
from localma.candidates.given import Predictions
from localma.candidates.outputs import Table
from localma.equations import row_losses
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.estimators.inputs import check_inputs, gate_inputs
from localma.estimators.predictions import all_predictions
from localma.folds import is_missing
from localma.gates.incomplete import known_predictions
from localma.inspection.observed import checked_target
from localma.production.answer import Answer, answered, output_shape
from localma.production.blocks import Blocks
from localma.production.options import Options
from localma.production.sequential import RankTest, ShareTest
from localma.reference import Reference, Variable, disagreement
from localma.tables.encoder import TableEncoder
from localma.tables.frames import n_rows, take_rows, unmasked, without_mask

if TYPE_CHECKING:
    from localma.production.monitor_report import MonitorReport

Model = LocalMARegressor | LocalMAClassifier
Keys: TypeAlias = "ArrayLike | Sequence[str | int]"

PERIOD_ROWS = 100
"""Rows of a period, unless the caller numbers the periods."""
LAST_PERIOD = 2**52
MOST_WAITING = 100_000
"""Rows that wait for their labels, by default at most."""
LONGEST_KEY = 200
MOST_AT_ONCE = 4_096
"""Rows whose bins are counted at once."""
OUTSIDE, UNFAMILIAR, FAILED = "outside", "unfamiliar", "failure"
TOLERATED = {OUTSIDE: 0.10, UNFAMILIAR: 0.05, FAILED: 0.05}
"""Shares of such rows that are no alarm."""
LEAST_SUPPORT = 0.5
LARGEST = 1e150
"""Larger numbers are cut in sums of losses."""
SHARES = {
    "loss": 0.30, "combination": 0.20, "input": 0.25, "disagreement": 0.05, "weight": 0.05,
    OUTSIDE: 0.05, UNFAMILIAR: 0.05, FAILED: 0.05,
}  # fmt: skip
"""How the tolerated false alarms are shared between kinds of tests."""


@dataclass(frozen=True)
class Plan:
    """What a monitor of a model measures and tests.

    Parameters
    ----------
    names : names of the M candidates
    reference : the sample of the fit; None if the model has none
    ranks : test of the V variables of the reference
    events : E kinds of events, and the candidate for failures
    shares : test of the E events
    rank_parts, event_parts : (V,), (E,) parts of the evidence that each test has
    model : digest of the model
    """

    names: tuple[str, ...]
    reference: Reference | None
    ranks: RankTest
    events: tuple[tuple[str, str], ...]
    shares: ShareTest
    rank_parts: Float64
    event_parts: Float64
    model: str

    @classmethod
    def of(cls, model: Model) -> Self:
        """Plan for a fitted model."""
        names = tuple(model.candidate_names_)
        reference: Reference | None = getattr(model, "reference_", None)
        if reference is not None:
            reference = reference.for_candidates(names)
        variables = () if reference is None else reference.variables
        events = ((OUTSIDE, ""), (UNFAMILIAR, ""), *((FAILED, name) for name in names))
        kinds = [variable.kind for variable in variables] + [kind for kind, _ in events]
        parts = np.array([SHARES[kind] / kinds.count(kind) for kind in kinds])
        parts /= parts.sum()
        upwards = np.array([v.kind in ("loss", "combination") for v in variables], dtype=bool)
        gaps = np.empty((0, 1)) if reference is None else reference.gaps
        return cls(
            names,
            reference,
            RankTest.of(gaps, upwards),
            events,
            ShareTest(np.array([TOLERATED[kind] for kind, _ in events])),
            parts[: len(variables)],
            parts[len(variables) :],
            _digest(model, reference),
        )

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of the reference."""
        return () if self.reference is None else self.reference.variables

    def find(self, kind: str) -> Rows:
        """Positions of the variables of a kind."""
        return np.flatnonzero([variable.kind == kind for variable in self.variables])


def _digest(model: Model, reference: Reference | None) -> str:
    """Digest by which monitors of the same model are recognised, also after it was saved."""
    parts = [repr(tuple(model.candidate_names_)).encode(), type(model).__name__.encode()]
    parts.append(np.asarray(model.global_weights_, dtype=np.float64).round(6).tobytes())
    if reference is not None:
        parts += [np.ascontiguousarray(array).tobytes() for array in reference.arrays().values()]
    return sha256(b"|".join(parts)).hexdigest()


@dataclass(frozen=True)
class WaitingRow:
    """A row that waits for its label: its period, the predictions and their average.

    P : (M,) or (M, K); average : () or (K,)
    """

    period: int
    P: Array
    average: Array


class Monitor:
    """Watch a model in production, and say when to act.

    The tests are valid however often you look: if nothing changes, the probability that this
    monitor ever raises an alarm is at most 5 %. This holds if the rows are independent. The state
    is small: sums over blocks of periods, and rows that wait for their labels.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    max_waiting : int, default=100_000
        The largest number of rows that wait for their labels. If there are more, the oldest ones
        are forgotten, and their labels no longer taken.
    random_state : int, optional
        Seed of the order among equal values of rows without a key. By default it is random, so
        that monitors of several processes differ.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(400, 1))
    >>> candidates = {"low": lambda X: X[:, 0] - 1, "high": lambda X: X[:, 0] + 1}
    >>> model = LocalMARegressor(candidates, gate="global").fit(X[:200], X[:200, 0])
    >>> monitor = Monitor(model)
    >>> monitor.observe(X[200:300], y=X[200:300, 0])
    >>> monitor.observe(X[300:], key=range(100))
    >>> monitor.label(range(50), X[300:350, 0])
    >>> report = monitor.report()
    >>> report.action, report.rows, report.labelled, report.waiting
    ('nothing', 200, 150, 50)
    """

    def __init__(
        self, model: Model, *, max_waiting: int = MOST_WAITING, random_state: int | None = None
    ) -> None:
        check_is_fitted(model)
        _check_whole("max_waiting", max_waiting, 2**40)
        if random_state is None:
            random_state = randbits(63)
        _check_whole("random_state", random_state, 2**63 - 1)
        self.model = model
        self.max_waiting = int(max_waiting)
        self.random_state = int(random_state)
        self._plan = Plan.of(model)
        self._blocks: Blocks | None = None
        self._waiting: dict[str, WaitingRow] = {}
        self._unfamiliar: dict[str, int] = {}
        self._forgotten = 0
        self._clock = 0
        self._slowest = np.zeros(len(self._plan.names))

    def observe(
        self,
        X: Table,
        predictions: Predictions | None = None,
        y: ArrayLike | None = None,
        *,
        key: Keys | None = None,
        answer: Answer | None = None,
        period: int | ArrayLike | None = None,
    ) -> None:
        """Take some rows, with their labels if they are known.

        Parameters
        ----------
        X : array or frame of shape (n, p)
            The inputs.
        predictions : array, dict or frame, optional
            Predictions of the candidates for X, as in `fit`; NaN is a failure. Without them and
            without `answer`, the candidates run.
        y : array of shape (n,) or (n, K), optional
            The targets or labels. A missing one may come later, if the row has a key.
        key : sequence of n texts or whole numbers, optional
            Names of the rows, by which `label` finds them. All differ.
        answer : Answer, optional
            What `model.answer(X)` returned for these rows. It has the weights, the failures and
            the times, but not the predictions of the candidates. Pass these as `predictions`, so
            that the loss of each candidate can be compared.
        period : int or array of shape (n,), optional
            Number of the period, such as a day, from 0 on. By default, a period is 100 rows of
            this monitor, and never before the last one. Monitors of several processes should number
            periods by the clock.
        """
        X = unmasked(X)
        n = n_rows(X)
        if n == 0:
            return
        keys = None if key is None else _texts_of_keys(key, n)
        if keys is not None:
            self._refuse_repeated(keys)
        periods = self._periods(period, n)
        with _silent(self.model):
            seen = _Seen.of(self.model, X, predictions, answer)
        target, has_label = None, np.zeros(n, dtype=bool)
        if y is not None:
            target, has_label = _labels(self.model, y, n)
        order = self._order(keys, n)
        blocks = _in_parts(
            n, lambda rows: Blocks.of(periods[rows], self._sums(seen.part(rows), order[rows]))
        )
        if target is not None:
            labelled = np.flatnonzero(has_label)

            def label_sums(part: slice) -> Blocks:
                rows = labelled[part]
                P, average = seen.P[rows], seen.average[rows]
                return Blocks.of(
                    periods[rows], self._label_sums(P, average, target[part], order[rows])
                )

            blocks = blocks.added(_in_parts(len(labelled), label_sums))
        # Nothing can fail from here on, so that an error leaves the monitor as it was.
        self._blocks = blocks if self._blocks is None else self._blocks.added(blocks)
        self._clock = max(self._clock, self._clock + n)
        self._slowest = np.maximum(self._slowest, seen.seconds)
        for text, count in seen.unfamiliar.items():
            self._unfamiliar[text] = self._unfamiliar.get(text, 0) + count
        if keys is not None:
            for row in np.flatnonzero(~has_label).tolist():
                waiting = WaitingRow(
                    int(periods[row]), seen.P[row].copy(), seen.average[row].copy()
                )
                self._waiting[keys[row]] = waiting
            self._forget()

    def label(self, key: Keys, y: ArrayLike) -> None:
        """Take labels of rows that were observed before.

        Parameters
        ----------
        key : sequence of n texts or whole numbers
            The keys of the rows.
        y : array of shape (n,) or (n, K)
            Their targets or labels. Rows with a missing one go on waiting.
        """
        keys = _texts_of_keys(key, None)
        repeated = _first_repeated(keys)
        if repeated is not None:
            raise InvalidInputError(
                f"Each key may have one label; received {repeated!r} twice. Remove one of them."
            )
        unknown = [name for name in keys if name not in self._waiting]
        if unknown:
            raise InvalidInputError(
                f"Labels must belong to rows that were observed without a label; {unknown[0]!r} "
                f"does not wait for one ({len(unknown)} of {len(keys)} keys). Either it was never "
                "observed with this key, or it has its label, or it was forgotten: the last "
                f"{self.max_waiting:,} rows are kept. No label was taken; leave these keys out."
            )
        if not keys:
            return
        target, has_label = _labels(self.model, y, len(keys))
        if target is None:
            return
        names = [name for name, known in zip(keys, has_label, strict=True) if known]
        rows = [self._waiting[name] for name in names]
        P, average = np.stack([row.P for row in rows]), np.stack([row.average for row in rows])
        periods = np.array([row.period for row in rows], dtype=np.int64)
        order = self._order(names, len(names))

        def label_sums(part: slice) -> Blocks:
            sums = self._label_sums(P[part], average[part], target[part], order[part])
            return Blocks.of(periods[part], sums)

        added = _in_parts(len(names), label_sums)
        assert self._blocks is not None  # these rows were observed
        self._blocks = self._blocks.added(added)
        for name in names:
            del self._waiting[name]

    def merge(self, other: Monitor) -> Self:
        """Add what another monitor of the same model has observed, such as in another process.

        All counts are those of one monitor that observed both streams, with the same periods.
        Sums of losses are, up to rounding. Rows without keys are put in order at random among
        equal values. The false alarm rate of 5 % holds for each monitor that you look at.

        Parameters
        ----------
        other : Monitor
            A monitor of the same model. It does not change.

        Returns
        -------
        Monitor
            This monitor.
        """
        if not isinstance(other, Monitor):
            raise InvalidInputError(
                f"Only monitors can be merged; received a {type(other).__name__}."
            )
        if other is self:
            raise InvalidInputError("A monitor cannot be merged with itself: its rows count once.")
        if other._plan.model != self._plan.model:
            raise InvalidInputError(
                "Only monitors of the same model can be merged. The other one belongs to a model "
                f"with the candidates {', '.join(map(repr, other._plan.names))} and another fit."
            )
        repeated = self._waiting.keys() & other._waiting.keys()
        if repeated:
            raise InvalidInputError(
                f"Both monitors have a waiting row with the key {min(repeated)!r} "
                f"({len(repeated)} keys in all). Give each row another key."
            )
        if other._blocks is not None:
            mine = self._blocks
            self._blocks = other._blocks if mine is None else mine.added(other._blocks)
        self._waiting |= other._waiting
        for text, count in other._unfamiliar.items():
            self._unfamiliar[text] = self._unfamiliar.get(text, 0) + count
        self._forgotten += other._forgotten
        self._clock = max(self._clock, other._clock)
        self._slowest = np.maximum(self._slowest, other._slowest)
        self._forget()
        return self

    @property
    def evidence(self) -> float:
        """The sum of the evidence of all tests; 20 or more is an alarm. Quicker than a report."""
        from localma.production.monitor_report import total_evidence

        return total_evidence(self._plan, self._blocks)

    def report(self) -> MonitorReport:
        """Report what has been observed, and say whether to act.

        Returns
        -------
        MonitorReport
            The recommendation, the tests behind it, and the numbers of each block of periods.
        """
        from localma.production.monitor_report import make_report

        return make_report(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file, whole or not at all, without pickle.

        It contains no row, except the predictions of rows that wait for their labels.

        Parameters
        ----------
        path : str or path
            The file.
        """
        from localma.production.monitor_file import save_monitor

        save_monitor(self, Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str], model: Model) -> Self:
        """Read a state that `save` wrote.

        Parameters
        ----------
        path : str or path
            The file.
        model : LocalMARegressor or LocalMAClassifier
            The model that it watches.

        Returns
        -------
        Monitor
            A monitor in the same state.
        """
        from localma.production.monitor_file import load_monitor

        return load_monitor(cls, Path(path), model)

    def _refuse_repeated(self, keys: Sequence[str]) -> None:
        repeated = _first_repeated(keys)
        if repeated is None:
            repeated = next((name for name in keys if name in self._waiting), None)
        if repeated is not None:
            raise InvalidInputError(
                f"Keys of rows must differ; {repeated!r} occurs twice, here or among the "
                "rows that wait for their labels. No row was taken. Use another key, or pass late "
                "labels to `label`."
            )

    def _periods(self, period: int | ArrayLike | None, n: int) -> Integers:
        """Period of each row: (n,)."""
        if period is None:
            last = 0 if self._blocks is None else self._blocks.last
            return np.maximum((self._clock + np.arange(n)) // PERIOD_ROWS, last)
        values = np.asarray(period)
        if values.shape not in ((), (n,)) or values.dtype.kind not in "iu":
            raise InvalidInputError(
                f"period must be a whole number, or one for each of the {n} rows; received shape "
                f"{values.shape} of dtype {values.dtype}. Pass a day as date.toordinal()."
            )
        if (values < 0).any() or (values > LAST_PERIOD).any():
            raise InvalidInputError(
                f"Periods must be numbers from 0 to 2^52; received {values.min()} to "
                f"{values.max()}. Number them from any day on."
            )
        return np.broadcast_to(values.astype(np.int64), (n,))

    def _order(self, keys: Sequence[str] | None, n: int) -> Float64:
        """Random numbers (n,) from 0 to 1, the same for the same keys."""
        if keys is None:
            return np.random.default_rng([self.random_state, self._clock]).random(n)
        digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in keys)
        return np.frombuffer(digests, dtype="<u8") / 2.0**64

    def _sums(self, seen: _Seen, order: Array) -> dict[str, AnyArray]:
        """What the rows add to the sums, apart from their labels."""
        plan = self._plan
        n, M = seen.weights.shape
        values = np.full((n, len(plan.variables)), np.nan)
        for kind, columns in (("input", seen.inputs), ("weight", seen.weights)):
            at = plan.find(kind)
            if len(at):
                values[:, at] = self._columns(kind, columns, at)
        values[:, plan.find("disagreement")] = seen.disagreement[:, np.newaxis]
        events = np.column_stack([seen.outside, seen.is_unfamiliar, seen.failed])
        tried = np.column_stack([np.ones((n, 2), dtype=bool), seen.tried])
        return self._binned(values, order) | {
            "rows": np.column_stack([np.ones(n), np.zeros(n)]).astype(np.int64),
            "events": events.astype(np.int64),
            "tried": tried.astype(np.int64),
            "seconds": np.broadcast_to(seen.seconds / n, (n, M)),
        }

    def _columns(self, kind: str, columns: Array, at: Rows) -> Array:
        """Inputs or weights (n, ...) in the order of the reference."""
        reference = self._plan.reference
        assert reference is not None  # it has these variables
        if kind == "input":
            if columns.shape[1] <= reference.columns.max():
                raise InvalidInputError(
                    f"The gate has {columns.shape[1]} inputs; the reference of the model needs "
                    f"{reference.columns.max() + 1}. Use the model that was saved."
                )
            return np.asarray(columns[:, reference.columns])
        names = [reference.variables[v].name for v in at]
        return np.asarray(columns[:, [self._plan.names.index(name) for name in names]])

    def _label_sums(
        self, P: Array, average: Array, target: AnyArray, order: Array
    ) -> dict[str, AnyArray]:
        """What labels add to the sums."""
        plan, model = self._plan, self.model
        n, M = P.shape[:2]
        both = np.concatenate([P, average[:, np.newaxis]], axis=1)
        outputs, y = model._gate_outputs(both, target)
        if outputs.shape[2] != y.shape[1]:
            raise InvalidInputError(
                f"y must have the {outputs.shape[2]} outputs of the model; received {y.shape[1]}. "
                "Pass all outputs."
            )
        with np.errstate(all="ignore"):
            losses = [
                row_losses(model.loss_, y, predictions) for predictions in outputs.swapaxes(0, 1)
            ]
        values = np.full((n, len(plan.variables)), np.nan)
        for v, variable in enumerate(plan.variables):
            if variable.kind == "combination":
                values[:, v] = losses[M]
            elif variable.kind == "loss":
                values[:, v] = losses[plan.names.index(variable.name)]
        return self._binned(values, order) | {
            "rows": np.column_stack([np.zeros(n), np.ones(n)]).astype(np.int64),
            "events": np.zeros((n, len(plan.events)), dtype=np.int64),
            "tried": np.zeros((n, len(plan.events)), dtype=np.int64),
            "seconds": np.zeros((n, M)),
        }

    def _binned(self, values: Array, order: Array) -> dict[str, AnyArray]:
        """Counts (n, V, B) and sums (n, V) of values (n, V); NaN does not count."""
        reference = self._plan.reference
        n_bins = self._plan.ranks.gaps.shape[1]
        if reference is None:
            return {"bins": np.zeros((len(values), 0, n_bins), np.int64), "sums": values}
        bins = reference.place(values, order)
        counts = bins[:, :, np.newaxis] == np.arange(n_bins)
        sums = np.where(np.isnan(values), 0.0, np.clip(values, -LARGEST, LARGEST))
        return {"bins": counts.astype(np.int64), "sums": sums}

    def _forget(self) -> None:
        """Forget the oldest waiting rows, if there are too many."""
        while len(self._waiting) > self.max_waiting:
            del self._waiting[next(iter(self._waiting))]
            self._forgotten += 1


@dataclass(frozen=True)
class _Seen:
    """What n rows show without their labels.

    P : (n, M) or (n, M, K), NaN if unknown; average : (n,) or (n, K)
    weights, failed, tried : (n, M); outside, is_unfamiliar, disagreement : (n,)
    inputs : (n, p); unfamiliar : numbers of rows by description; seconds : (M,)
    """

    P: Array
    average: Array
    weights: Array
    inputs: Array
    failed: RowMask
    tried: RowMask
    outside: RowMask
    is_unfamiliar: RowMask
    disagreement: Array
    unfamiliar: dict[str, int]
    seconds: Array

    @classmethod
    def of(
        cls, model: Model, X: Table, predictions: Predictions | None, answer: Answer | None
    ) -> _Seen:
        """Predict the rows, unless their answer is known."""
        n, M = n_rows(X), len(model.candidate_names_)
        P = None
        if predictions is not None:
            P = all_predictions(model, X, predictions, allow_missing=True)
        if answer is None:
            found = answered(model, X, P, Options(missing="nan"))
            answer, inputs = found.answer, found.inputs
            tried = answer.asked if P is None else np.ones((n, M), dtype=bool)
            P = found.P if P is None else P
        else:
            _check_answer(answer, model, n)
            checked = check_inputs(model, X, allow_missing=True)
            inputs, tried = gate_inputs(model, checked), answer.asked
            if P is not None and not tried.any():  # the answer was made from predictions
                tried = np.ones((n, M), dtype=bool)
        failed = np.zeros((n, M), dtype=bool)
        for failure in answer.failures:
            failed[failure.rows, model.candidate_names_.index(failure.candidate)] = True
        if P is None:
            P = np.full((n, M, *output_shape(model)), np.nan)
        elif predictions is not None:
            failed |= ~known_predictions(P) & tried
        unfamiliar = _unfamiliar(model, X)
        is_unfamiliar = np.zeros(n, dtype=bool)
        for rows in unfamiliar.values():
            is_unfamiliar |= rows
        is_table = isinstance(inputs, np.ndarray) and inputs.ndim == 2
        return cls(
            np.asarray(P, dtype=np.float64),
            np.asarray(answer.averages, dtype=np.float64),
            answer.weights,
            np.asarray(inputs, dtype=np.float64) if is_table else np.empty((n, 0)),
            failed,
            tried | failed,
            np.asarray(answer.support) < LEAST_SUPPORT,
            is_unfamiliar,
            disagreement(P.reshape(n, M, -1)),
            {text: int(rows.sum()) for text, rows in unfamiliar.items()},
            answer.candidate_seconds,
        )

    def part(self, rows: slice) -> _Seen:
        """Some of the rows, with their part of the time."""
        n = len(self.weights)
        by_row = {
            field.name: getattr(self, field.name)[rows]
            for field in fields(self)
            if field.name not in ("unfamiliar", "seconds")
        }
        share = len(by_row["weights"]) / n
        return replace(self, **by_row, seconds=self.seconds * share)


@contextmanager
def _silent(model: Model) -> Iterator[None]:
    """Do not warn of rows outside the sample, since the monitor counts them."""
    before = model._warned_outside
    model._warned_outside = True
    try:
        yield
    finally:
        model._warned_outside = before


def _in_parts(n: int, make: Callable[[slice], Blocks]) -> Blocks:
    """Add the blocks of a few rows at a time, since counts by row take much memory."""
    blocks = make(slice(0, MOST_AT_ONCE))
    for start in range(MOST_AT_ONCE, n, MOST_AT_ONCE):
        blocks = blocks.added(make(slice(start, start + MOST_AT_ONCE)))
    return blocks


def _unfamiliar(model: Model, X: Any) -> dict[str, RowMask]:
    """Rows with categories or missing values that the sample did not have, by description."""
    encoder = model.gate_features_.transformer
    if not isinstance(encoder, TableEncoder):
        return {}
    return encoder.unfamiliar_rows(X)


def _check_answer(answer: Answer, model: Model, n: int) -> None:
    if tuple(answer.candidates) != tuple(model.candidate_names_) or len(answer.weights) != n:
        raise InvalidInputError(
            f"answer must be what model.answer(X) returned for these {n} rows and "
            f"{len(model.candidate_names_)} candidates; received one of {len(answer.weights)} "
            f"rows and the candidates {answer.candidates}."
        )


def _labels(model: Model, y: ArrayLike, n: int) -> tuple[AnyArray | None, RowMask]:
    """Known targets, and which of the n rows have one; None if none has."""
    y = without_mask(y, "y")
    values = np.asarray(y)
    if values.ndim == 0 or len(values) != n:
        raise InvalidInputError(
            f"y must have one entry for each of the {n} rows; received shape {values.shape}. "
            "Nothing was taken."
        )
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        flat = [is_missing(value) for value in values.ravel().tolist()]
        missing = np.array(flat, dtype=bool).reshape(values.shape)
    else:
        missing = np.zeros(values.shape, dtype=bool)
    has_label = ~missing.reshape(n, -1).any(axis=1)
    if not has_label.any():
        return None, has_label
    rows = np.flatnonzero(has_label)
    known = y if len(rows) == n else take_rows(values, rows)
    if isinstance(model, LocalMAClassifier) and model.classes_.dtype.kind in "iub":
        known = _whole(known)
    return checked_target(model, known, len(rows)), has_label


def _whole(labels: ArrayLike) -> ArrayLike:
    """Labels that missing ones have turned into floating numbers, as whole numbers again."""
    values = np.asarray(labels)
    if values.dtype.kind == "f" and (values == np.round(values)).all():
        return values.astype(np.int64)
    return labels


def _texts_of_keys(key: Keys, n: int | None) -> list[str]:
    """Keys as texts; a whole number and its text are the same key."""
    values = np.asarray(key).tolist() if hasattr(key, "__array__") else list(_iterable(key))
    if n is not None and len(values) != n:
        raise InvalidInputError(
            f"key must have one entry for each of the {n} rows; received {len(values)}."
        )
    return [_key_text(value) for value in values]


def _iterable(key: Keys) -> Iterable[object]:
    if isinstance(key, str | bytes) or not isinstance(key, Iterable):
        raise InvalidInputError(f"key must be a sequence of keys; received {key!r}.")
    return key


def _key_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    text = str(value)
    if not (is_whole or isinstance(value, str)) or not 0 < len(text) <= LONGEST_KEY:
        raise InvalidInputError(
            f"A key must be a whole number, or a text of 1 to {LONGEST_KEY} characters; received "
            f"{text[:LONGEST_KEY]!r} of type {type(value).__name__}."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"The key {text!r} has characters that UTF-8 lacks.") from None
    return text


def _first_repeated(keys: Sequence[str]) -> str | None:
    if len(set(keys)) == len(keys):
        return None
    known: set[str] = set()
    for name in keys:
        if name in known:
            return name
        known.add(name)
    return None


def _check_whole(name: str, value: object, most: int) -> None:
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or not 0 <= int(value) <= most:  # type: ignore[call-overload]
        raise InvalidInputError(
            f"{name} must be a whole number from 0 to {most}; received {value!r}."
        )
