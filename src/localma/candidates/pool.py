"""The pool of candidates: all of them, called together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import NamedTuple

import numpy as np

from localma._types import Array, Integers, RandomState, RowMask
from localma.candidates.base import Candidate
from localma.candidates.conversion import Models, check_distinct, named_candidates
from localma.candidates.crossfitted import CrossFitted, Folds, Others
from localma.candidates.given import Predictions, read_predictions
from localma.candidates.outputs import (
    Classes,
    Labels,
    Names,
    Output,
    OutputNames,
    Rows,
    Table,
    Task,
    align,
    check_task_name,
    listed,
    stacked,
    union_of_classes,
    unknown_classes,
    warn_unknown_classes,
)
from localma.candidates.stacked import Stacked, prediction_columns_of
from localma.candidates.supplied import Supplied
from localma.errors import CandidateError, InvalidInputError, LeftOutWarning, unknown_name
from localma.folds import make_folds
from localma.tables.frames import (
    ColumnKey,
    column_names,
    drop_columns,
    n_rows,
    positions_of,
    take_rows,
    unmasked,
    without_mask,
)

LEAVE_OUT_OR_ADD = (
    "leave out those rows, or add a candidate that knows the label, such as CrossFitted(...)."
)
NUMBERED_BY_TOOLS = (
    "cross_val_predict(method='predict_proba'), CalibratedClassifierCV(ensemble=False), "
    "VotingClassifier and StackingClassifier of scikit-learn number the labels. With these, use "
    "integers everywhere: y as 0, 1, 2, ... in the sorted order of the labels, and each candidate "
    "as as_candidate(model, classes=[0, 1, 2, ...]), the numbers of its labels."
)
"""What to do about labels that no candidate knows."""


class Request(NamedTuple):
    """Options of a call that all candidates share.

    outputs : the order of several outputs in regression.
    rows : (n,) row numbers for error messages; counted from zero if None.
    allow_missing : whether predictions may be missing, as NaN.
    """

    outputs: OutputNames
    rows: Rows | None = None
    allow_missing: bool = False


class Pool:
    """M candidates, called together: ``X -> P`` of shape (n, M) or (n, M, K).

    Parameters
    ----------
    candidates : dict or list
        A dict from name to model, a list of (name, model) pairs, or a list of models, which are
        named after their class or function.
    task : {"regression", "classification"}
        The task.

    Attributes
    ----------
    names : tuple of str
        The names of the M candidates.
    candidates : tuple of Candidate
        The M candidates.
    costs : array of shape (M,)
        The `cost` of each candidate, which budgets count per row.
    classes : array of shape (K,) or None
        Sorted union of the classes of the candidates; None for regression, and if no candidate has
        classes yet.

    Examples
    --------
    >>> pool = Pool({"half": lambda X: X[:, 0] / 2, "double": lambda X: X[:, 0] * 2},
    ...             task="regression")
    >>> pool.predict(np.array([[1.0], [4.0]])).tolist()
    [[0.5, 2.0], [2.0, 8.0]]
    """

    def __init__(self, candidates: Models, *, task: Task) -> None:
        check_task_name(task)
        self.task: Task = task
        self.names, self.candidates = named_candidates(candidates)
        check_distinct(self.names, self.candidates)
        for name, candidate in self._items():
            candidate.check_task(task, name)
        self.costs = np.array([candidate.cost for candidate in self.candidates])
        self._labels = {
            name: candidate.classes
            for name, candidate in self._items()
            if task == "classification" and candidate.classes is not None
        }
        self.classes: Labels | None = None
        self._to_align: dict[str, Labels] = {}
        if self._labels:
            self.classes = classes = union_of_classes(self._labels)
            # Not compared at every call, which would take longer than many a model.
            self._to_align = {
                name: labels
                for name, labels in self._labels.items()
                if not np.array_equal(labels, classes)
            }
        self._columns = [key for c in self.candidates for key in c.prediction_columns()]
        self._warned = False

    @property
    def own_names(self) -> list[str]:
        """Names of the candidates that are still to be fitted on the sample."""
        return [name for name, candidate in self._items() if isinstance(candidate, CrossFitted)]

    @property
    def has_own_models(self) -> bool:
        """Whether some candidate is still to be fitted on the sample."""
        return bool(self.own_names)

    @cached_property
    def takes(self) -> RowMask:
        """Whether candidate j takes the predictions of candidate m: (M, M)."""
        takes = np.zeros((len(self.names), len(self.names)), dtype=bool)
        for j, candidate in enumerate(self.candidates):
            if isinstance(candidate, Stacked):
                takes[j, self._positions(candidate)] = True
        return takes

    @property
    def fixed_names(self) -> list[str]:
        """Names of the candidates that need neither a fit nor the predictions of others."""
        return [name for name, c in self._items() if not isinstance(c, CrossFitted | Stacked)]

    @property
    def stacked_names(self) -> list[str]:
        """Names of the candidates that take the predictions of others."""
        return [name for name, candidate in self._items() if isinstance(candidate, Stacked)]

    @property
    def supplied_names(self) -> list[str]:
        """Names of the candidates of which only predictions are passed."""
        return [name for name, candidate in self._items() if isinstance(candidate, Supplied)]

    def expand(self, X: Table) -> Pool:
        """Replace each glob by the columns of X that it matches.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table.

        Returns
        -------
        Pool
            The pool itself, if it has no glob.
        """
        pairs = [pair for name, c in self._items() for pair in c.expand(name, X)]
        if pairs == list(self._items()):
            return self
        return Pool(pairs, task=self.task)

    def keep(self, names: Collection[str]) -> Pool:
        """Leave out the candidates that are not among some names.

        Parameters
        ----------
        names : collection of str
            Names to keep; others may be among them.

        Returns
        -------
        Pool
            The pool itself, if all its candidates are kept.
        """
        pairs = [(name, candidate) for name, candidate in self._items() if name in names]
        if len(pairs) == len(self.names):
            return self
        return Pool(pairs, task=self.task)

    def prediction_columns(self, X: Table) -> set[ColumnKey]:
        """Return the columns of X that hold predictions.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table.

        Returns
        -------
        set of str or int
            Names if all columns have strings as names; else positions.
        """
        positions, names = positions_of(X, self._columns), column_names(X)
        if names is None or not all(isinstance(name, str) for name in names):
            return set(positions)  # an integer always means a position, not a name
        return {names[position] for position in positions}

    def fit(
        self,
        X: Table,
        y: Output,
        *,
        cv: Folds = None,
        sample_weight: Output | None = None,
        groups: Output | None = None,
        random_state: RandomState = None,
        outputs: OutputNames | None = None,
        given: Mapping[str, Array] | None = None,
        complete: Callable[[Array], Array] | None = None,
    ) -> tuple[Pool, dict[str, Array], RowMask]:
        """Fit the CrossFitted candidates, out of fold and on all rows; others stay unchanged.

        One that fails is left out with a warning, unless no candidate remains.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The inputs.
        y : array-like of shape (n,) or (n, K)
            The target.
        cv : int, splitter or iterable, optional
            Folds for the candidates that state none.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows.
        groups : array-like of shape (n,), optional
            Groups of the rows.
        random_state : int or RandomState, optional
            Seed of the estimators whose random_state is None.
        outputs : OutputNames, optional
            The order of several outputs, as in `predict`.
        given : dict, optional
            Predictions of the other candidates by name, as far as they are known.
        complete : function, optional
            Replaces missing predictions of the fixed candidates, (n, M) or (n, M, K), for those
            that take them as inputs. By default none may be missing.

        Returns
        -------
        pool : Pool
            With each CrossFitted replaced by its model fitted on all rows.
        out_of_fold : dict
            From the name of each CrossFitted to its out-of-fold predictions, (n,) or (n, K),
            aligned to `pool.classes` and NaN in rows not covered; pass them to `pool.predict(X,
            given=out_of_fold)`. If some CrossFitted takes predictions, those of all candidates.
        covered : bool array of shape (n,)
            The rows for which every CrossFitted has an out-of-fold prediction.
        """
        X, y = unmasked(X), without_mask(y, "y")
        covered = np.ones(n_rows(X), dtype=bool)
        if not self.has_own_models:
            return self, {}, covered
        # All candidates share these folds, and an iterator of folds can be read only once.
        folds = make_folds(
            cv,
            np.asarray(y),
            groups,
            classification=self.task == "classification",
            random_state=random_state,
        )
        outputs = outputs or OutputNames()
        known = dict(given or {})
        others = self._others(X, known, outputs, complete)
        fitted: dict[str, Candidate] = dict(self._items())
        raw: dict[str, Array] = {}
        for (name, candidate), inputs in zip(self._items(), self.with_inputs(X), strict=True):
            if not isinstance(candidate, CrossFitted):
                continue
            try:
                fitted[name], raw[name], tested = candidate.fit_out_of_fold(
                    inputs,
                    y,
                    task=self.task,
                    cv=folds,
                    sample_weight=sample_weight,
                    groups=groups,
                    random_state=random_state,
                    name=name,
                    outputs=outputs,
                    others=others if candidate.predictions else None,
                )
            except CandidateError as error:
                leave_out(fitted, name, error)
                continue
            covered &= tested
        if not covered.any():
            raise InvalidInputError(
                "At least one row must have an out-of-fold prediction of every CrossFitted "
                f"candidate, and no row has one from all of {listed(list(raw))}: give them the "
                "same cv=."
            )
        pool = Pool(fitted, task=self.task)
        if others is not None and self.classes is not None and pool.classes is not None:
            known = {m: align(P, self.classes, pool.classes) for m, P in known.items()}
        return pool, known | {name: pool._aligned(name, raw[name]) for name in raw}, covered

    def _others(
        self,
        X: Table,
        known: dict[str, Array],
        outputs: OutputNames,
        complete: Callable[[Array], Array] | None,
    ) -> Others | None:
        """Predictions that are inputs of a CrossFitted; None if none asks for them.

        known : predictions by name, to which those of all fixed candidates are added.
        complete : replaces missing predictions; None if none may be missing.
        """
        asking = [n for n, c in self._items() if isinstance(c, CrossFitted) and c.predictions]
        if not asking:
            return None
        names = self.fixed_names
        if not names:
            raise InvalidInputError(
                f"Candidate {asking[0]!r} takes the predictions of other candidates, and there is "
                "none that is fitted already: add one, or leave out predictions=True."
            )
        has_gaps = complete is not None
        P = self.predict(X, only=names, given=known, outputs=outputs, allow_missing=has_gaps)
        known.update({name: P[:, self.names.index(name)] for name in names})
        columns = prediction_columns_of(names, P, self.classes, outputs)
        taken = P[:, [self.names.index(name) for name in names]]
        return Others(columns, taken if complete is None else complete(taken))

    def predict(
        self,
        X: Table,
        *,
        only: Iterable[str] | RowMask | None = None,
        given: Mapping[str, Array] | None = None,
        outputs: OutputNames | None = None,
        rows: Rows | None = None,
        allow_missing: bool = False,
    ) -> Array:
        """Predict every row with every candidate.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The inputs.
        only : iterable of str, or bool array of shape (M,) or (n, M), optional
            The candidates to call, by name or as a mask; or the rows for which to call each. Other
            predictions are zero in P, so that a weight of zero leaves them out of any average.
        given : dict, optional
            Predictions by name that are used instead of calling these candidates.
        outputs : OutputNames, optional
            The order of several outputs in regression. Data frames that candidates return are put
            in this order. By default the first data frame sets the order.
        rows : array-like of shape (n,), optional
            Row numbers for error messages. By default they are counted from zero.
        allow_missing : bool
            Whether predictions may be missing. They are then NaN instead of an error.

        Returns
        -------
        array of shape (n, M) or (n, M, K)
            P. The last axis exists for several outputs and for classification. For classification
            it follows `classes`.
        """
        X = unmasked(X)
        self.warn_unknown_classes()
        given = given or {}
        self._check_known(given)
        mask = None if only is None else self._mask(only, n_rows(X))
        request = Request(outputs or OutputNames(), rows, allow_missing)
        if any(isinstance(c, Stacked) and name not in given for name, c in self._items()):
            return self._predict_in_turn(X, mask, given, request)
        return stacked(self._predict_each(X, mask, given, request), self.names, n_rows(X))

    def warn_unknown_classes(self) -> None:
        """Warn, once, of candidates that do not know some of the classes."""
        if self.classes is not None and not self._warned:
            self._warned = True
            warn_unknown_classes(self._labels, self.classes)

    def predict_rows(
        self, m: int, inputs: Table, chosen: Integers | None, request: Request
    ) -> Array:
        """Predict some rows with one candidate.

        Parameters
        ----------
        m : int
            Position of the candidate.
        inputs : array-like or data frame of n rows
            Its inputs, from `with_inputs`.
        chosen : array of shape (m,), or None
            Positions of the rows; None for all rows.
        request : Request
            Options that all candidates share.

        Returns
        -------
        array of shape (m,) or (m, K)
            The predictions, aligned to `classes`.
        """
        rows = request.rows
        if chosen is not None:
            rows = chosen if rows is None else np.asarray(rows)[chosen]
            inputs = take_rows(inputs, chosen)
        values = self.candidates[m].predict(
            inputs,
            self.task,
            name=self.names[m],
            rows=rows,
            outputs=request.outputs,
            allow_missing=request.allow_missing,
        )
        return self._aligned(self.names[m], values)

    def predict_from_others(
        self, m: int, inputs: Table, chosen: Integers, P: Array, request: Request
    ) -> Array:
        """Predict some rows with a candidate that takes the predictions of others.

        Parameters
        ----------
        m : int
            Position of the candidate.
        inputs : array-like or data frame of n rows
            Its inputs, from `with_inputs`.
        chosen : array of shape (m,)
            Positions of the rows.
        P : array of shape (n, M) or (n, M, K)
            Predictions of all candidates, as far as this one takes them.
        request : Request
            Options that all candidates share.

        Returns
        -------
        array of shape (m,) or (m, K)
            The predictions, aligned to `classes`.
        """
        candidate = self.candidates[m]
        assert isinstance(candidate, Stacked)
        values = candidate.predict_with(
            take_rows(inputs, chosen),
            self._columns_for(candidate, P[chosen]),
            self.task,
            name=self.names[m],
            rows=chosen if request.rows is None else np.asarray(request.rows)[chosen],
            outputs=request.outputs,
        )
        return self._aligned(self.names[m], values)

    def measure_costs(self, X: Table, *, repeats: int = 3) -> Array:
        """Measure the seconds that each candidate needs for a row.

        A candidate that takes the predictions of others is measured without these.

        Parameters
        ----------
        X : array-like or data frame of n rows
            Rows like those to predict. Time per row depends on their number, so pass as many as
            your service gets in one call.
        repeats : int, default=3
            Number of calls, of which the fastest counts. One more call warms up each candidate.

        Returns
        -------
        array of shape (M,)
            Seconds per row, in the order of `names`.

        Examples
        --------
        >>> pool = Pool({"half": lambda X: X[:, 0] / 2}, task="regression")
        >>> bool(pool.measure_costs(np.ones((100, 1)))[0] > 0)
        True
        """
        if repeats < 1:
            raise InvalidInputError(f"repeats must be 1 or more; received {repeats!r}.")
        X, request = unmasked(X), Request(OutputNames())
        costs = np.empty(len(self.names))
        rows, takes = np.arange(n_rows(X)), np.asarray(self.takes.any(axis=1))
        P = self.predict(X) if takes.any() else np.empty(0)
        for m, inputs in enumerate(self.with_inputs(X)):
            seconds = []
            for _ in range(repeats + 1):
                began = perf_counter()
                if takes[m]:
                    self.predict_from_others(m, inputs, rows, P, request)
                else:
                    self.predict_rows(m, inputs, None, request)
                seconds.append(perf_counter() - began)
            costs[m] = min(seconds[1:]) / n_rows(X)
        return costs

    def check_labels(self, y: Output) -> None:
        """Raise an error if y has labels that no candidate knows. A CrossFitted learns any.

        Parameters
        ----------
        y : array-like of shape (n,)
            The labels.
        """
        if self.classes is None:
            return
        labels = np.unique(np.asarray(y))
        advice = ""
        unknown = unknown_classes(self.classes, labels)
        counted = labels.dtype.kind in "iu" and np.array_equal(labels, np.arange(len(labels)))
        if self.classes.dtype.kind == "U" and counted:
            advice = NUMBERED_BY_TOOLS
        elif unknown and not self.has_own_models:
            advice = LEAVE_OUT_OR_ADD
        if advice:
            raise InvalidInputError(
                f"Every label in y must be known to some candidate; none knows "
                f"{listed(unknown)}, and together they know {listed(self.classes)}: {advice}"
            )

    @staticmethod
    def from_predictions(
        predictions: Predictions,
        *,
        n_rows: int,
        task: Task,
        names: Sequence[str] | None = None,
        classes: Classes | None = None,
        outputs: OutputNames | None = None,
        allow_missing: bool = False,
    ) -> tuple[Names, Array]:
        """Read and check predictions that a user passes instead of models.

        Parameters
        ----------
        predictions : array, dict or data frame
            An array (n, M) or (n, M, K); a dict from name to (n,) or (n, K); or a data frame with
            one column per candidate. In classification with two classes, (n, M) and (n,) hold the
            probability of the second. A data frame (n, K) in a dict has the class labels as
            columns; in regression its columns are K outputs, matched by name if the names are
            strings.
        n_rows : int
            The number of rows expected.
        task : {"regression", "classification"}
            The task.
        names : sequence of str, optional
            The names expected. Predictions with names are put in this order. The columns of an
            array must be in this order already.
        classes : array-like of shape (K,), optional
            Labels of the last axis, in classification.
        outputs : OutputNames, optional
            The order of several outputs in regression. By default the first data frame with names
            sets it.
        allow_missing : bool
            Whether predictions may be missing: NaN, or all those of a candidate. In P they are NaN.

        Returns
        -------
        names : tuple of str
            The names of the M candidates.
        P : array of shape (n, M) or (n, M, K)
            Three dimensions for several outputs and for classification.

        Examples
        --------
        >>> names, P = Pool.from_predictions({"b": [1.0], "a": [2.0]}, n_rows=1,
        ...                                  task="regression", names=["a", "b"])
        >>> names, P.tolist()
        (('a', 'b'), [[2.0, 1.0]])
        """
        return read_predictions(predictions, n_rows, task, names, classes, outputs, allow_missing)

    def _predict_each(
        self,
        X: Table,
        mask: RowMask | None,
        given: Mapping[str, Array],
        request: Request,
    ) -> Iterator[Array | None]:
        """Yield the predictions of each candidate; None for one that is not called."""
        n = n_rows(X)
        for m, (name, inputs) in enumerate(zip(self.names, self.with_inputs(X), strict=True)):
            if name in given:
                yield given[name]
            elif mask is None or mask[:, m].all():
                yield self.predict_rows(m, inputs, None, request)
            elif not mask[:, m].any():
                yield None
            else:
                chosen = np.flatnonzero(mask[:, m])
                values = self.predict_rows(m, inputs, chosen, request)
                column = np.zeros((n, *values.shape[1:]))
                column[chosen] = values
                yield column

    def _predict_in_turn(
        self,
        X: Table,
        mask: RowMask | None,
        given: Mapping[str, Array],
        request: Request,
    ) -> Array:
        """Predict with all candidates, those last that take the predictions of others."""
        n = n_rows(X)
        if mask is None:
            mask = np.ones((n, len(self.names)), dtype=bool)
        takers = {
            m: inputs
            for m, inputs in enumerate(self.with_inputs(X))
            if isinstance(self.candidates[m], Stacked) and self.names[m] not in given
        }
        takes, first = self.takes, mask.copy()
        for m in takers:
            first[:, m] = False
            first[:, takes[m]] |= mask[:, [m]]
        P = stacked(self._predict_each(X, first, given, request), self.names, n)
        for m, inputs in takers.items():
            chosen = np.flatnonzero(mask[:, m])
            if len(chosen):
                P[chosen, m] = self.predict_from_others(m, inputs, chosen, P, request)
        P[~mask] = 0.0
        return P

    def _positions(self, candidate: Stacked) -> list[int]:
        """Positions of the candidates whose predictions a candidate takes."""
        return [self.names.index(name) for name in candidate.columns.candidates]

    def _columns_for(self, candidate: Stacked, P: Array) -> Array:
        """Predictions that a candidate takes, with the classes that it knows: (n, M) or more."""
        P = P[:, self._positions(candidate)]
        if self.classes is None:
            return P
        labels = [str(label) for label in self.classes.tolist()]
        return P[:, :, [labels.index(label) for label in candidate.columns.outputs]]

    def _items(self) -> Iterable[tuple[str, Candidate]]:
        return zip(self.names, self.candidates, strict=True)

    def with_inputs(self, X: Table) -> Iterator[Table]:
        """Yield the inputs of each candidate: X, or X without the prediction columns.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The inputs of the pool.

        Yields
        ------
        array-like or data frame of n rows
            The inputs of one candidate.
        """
        reduced: Table | None = None
        for candidate in self.candidates:
            if not self._columns or candidate.picks_own_columns(X):
                yield X
                continue
            if reduced is None:
                reduced = drop_columns(X, self.prediction_columns(X))
            yield reduced

    def _aligned(self, name: str, values: Array) -> Array:
        if self.classes is None or name not in self._to_align:
            return values
        return align(values, self._to_align[name], self.classes)

    def _mask(self, only: Iterable[str] | RowMask, n: int) -> RowMask:
        """Return the predictions to make as a mask (n, M)."""
        M = len(self.names)
        if not isinstance(only, np.ndarray):
            only = np.asarray(list(only))
        if only.dtype == bool and only.shape in ((M,), (n, M)):
            return np.broadcast_to(only, (n, M))
        chosen = only.tolist()
        if not all(isinstance(name, str) for name in chosen):
            raise InvalidInputError(
                f"only must be names of candidates, or a mask of shape ({M},) or ({n}, {M}); "
                f"received values of dtype {only.dtype} and shape {only.shape}."
            )
        self._check_known(chosen)
        return np.broadcast_to([name in chosen for name in self.names], (n, M))

    def _check_known(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.names:
                raise unknown_name("candidate", name, self.names)


def leave_out(candidates: dict[str, Candidate], name: str, error: CandidateError) -> None:
    """Remove a candidate that cannot be fitted, with a warning; raise if it is the last one."""
    if len(candidates) == 1:
        raise error
    del candidates[name]
    warnings.warn(f"The model is fitted without {name!r}. {error}", LeftOutWarning, stacklevel=2)
