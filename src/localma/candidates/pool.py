"""The pool: M candidates with their names, classes and costs, asked as one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.candidates.bare_predictions import read_predictions
from localma.candidates.base import Candidate
from localma.candidates.column import Column
from localma.candidates.crossfitted import Covered, CrossFitted
from localma.candidates.infer import as_candidate
from localma.candidates.outputs import (
    Array,
    Labels,
    OutputNames,
    Rows,
    Table,
    Task,
    align,
    are_numbers_from_zero,
    check_names,
    check_task_name,
    listed,
    made_unique,
    places_of,
    stacked,
    union_of_classes,
    unknown_classes,
    warn_unknown_classes,
)
from localma.errors import InvalidInputError, unknown_name
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

Mask = NDArray[np.bool_]

LEAVE_OUT_OR_ADD = (
    "leave out those rows, or add a candidate that knows the label, such as CrossFitted(...)."
)
NUMBERED_BY_TOOLS = (
    "cross_val_predict(method='predict_proba'), CalibratedClassifierCV(ensemble=False), "
    "VotingClassifier and StackingClassifier of scikit-learn number the labels. With these, give "
    "integers throughout: y as 0, 1, 2, ... in the sorted order of the labels, and each candidate "
    "as as_candidate(model, classes=[0, 1, 2, ...]), the numbers of its own labels."
)
"""What to do about labels that nobody knows."""


class Pool:
    """M candidates, asked as one: ``X -> P`` of shape (n, M) or (n, M, K).

    Parameters
    ----------
    candidates : a dict from name to model, a list of (name, model) pairs, or a list of models,
        which are named after their class or function.
    task : "regression" or "classification".

    Attributes
    ----------
    names : tuple of M strings
    candidates : tuple of M candidates
    costs : (M,) floats, the `cost` of each candidate; they are only shown
    classes : (K,) sorted union of the classes that the candidates know; None for regression,
        and as long as no candidate knows any

    Examples
    --------
    >>> pool = Pool({"half": lambda X: X[:, 0] / 2, "double": lambda X: X[:, 0] * 2},
    ...             task="regression")
    >>> pool.predict(np.array([[1.0], [4.0]])).tolist()
    [[0.5, 2.0], [2.0, 8.0]]
    """

    from_predictions = staticmethod(read_predictions)

    def __init__(self, candidates: Any, *, task: Task) -> None:
        check_task_name(task)
        self.task: Task = task
        self.names, self.candidates = _named(candidates)
        _refuse_one_twice(self.names, self.candidates)
        for name, candidate in self._items():
            candidate.check_task(task, name)
        self.costs = np.array([candidate.cost for candidate in self.candidates])
        self.classes = self._union_of_classes()
        self._places = [self._places_of(candidate) for candidate in self.candidates]
        self._has_columns = any(isinstance(c, Column) for c in self.candidates)
        self._warned = False

    @property
    def has_own_models(self) -> bool:
        """Whether some candidate is still to be fitted on the sample."""
        return any(isinstance(candidate, CrossFitted) for candidate in self.candidates)

    def expand(self, X: Table) -> Pool:
        """Replace each glob by the columns of X that it matches."""
        if not any(isinstance(c, Column) and c.is_glob for c in self.candidates):
            return self
        pairs = [pair for name, c in self._items() for pair in c.expand(name, X)]
        return Pool(pairs, task=self.task)

    def prediction_columns(self, X: Table) -> set[ColumnKey]:
        """The columns of X that hold predictions: names where they are strings, else positions."""
        held = [key for c in self.candidates if isinstance(c, Column) for key in c.columns]
        positions, names = positions_of(X, held), column_names(X)
        if names is None or not all(isinstance(name, str) for name in names):
            return set(positions)  # an integer always means a position, whatever columns are called
        return {names[position] for position in positions}

    def fit(
        self,
        X: Table,
        y: Any,
        *,
        cv: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        random_state: Any = None,
        outputs: OutputNames | None = None,
    ) -> tuple[Pool, dict[str, Array], Covered]:
        """Fit the CrossFitted candidates, out of fold and on all rows; the others stay as they are.

        Parameters
        ----------
        X : n rows; y : (n,) or (n, K).
        cv : folds for those that have none of their own.
        sample_weight, groups : (n,) or None.
        random_state : seeds the estimators whose own random_state is None.
        outputs : the order of several outputs, as in `predict`.

        Returns
        -------
        pool : Pool
            With each CrossFitted replaced by its model fitted on all rows.
        out_of_fold : dict
            From the name of each CrossFitted to its out-of-fold predictions, (n,) or (n, K),
            aligned to `pool.classes` and NaN in rows not covered; `pool.predict(X,
            given=out_of_fold)` puts them in their place in P.
        covered : (n,) bool
            The rows for which every CrossFitted has an out-of-fold prediction.
        """
        X, y = unmasked(X), without_mask(y, "y")
        covered = np.ones(n_rows(X), dtype=bool)
        if not self.has_own_models:
            return self, {}, covered
        # Made once for all candidates: they share them, and a generator can be walked once only.
        folds = make_folds(
            cv,
            np.asarray(y),
            groups,
            classification=self.task == "classification",
            random_state=random_state,
        )
        outputs = OutputNames() if outputs is None else outputs
        fitted: dict[str, Candidate] = dict(self._items())
        raw: dict[str, Array] = {}
        for name, candidate, seen in self._seen_by_each(X):
            if not isinstance(candidate, CrossFitted):
                continue
            fitted[name], raw[name], tested = candidate.fit_out_of_fold(
                seen,
                y,
                task=self.task,
                cv=folds,
                sample_weight=sample_weight,
                groups=groups,
                random_state=random_state,
                name=name,
                outputs=outputs,
            )
            covered &= tested
        _check_some_row_is_covered(covered, raw)
        pool = Pool(list(fitted.items()), task=self.task)
        aligned = {n: pool._aligned(self.names.index(n), values) for n, values in raw.items()}
        return pool, aligned, covered

    def predict(
        self,
        X: Table,
        *,
        only: Any = None,
        given: Mapping[str, Array] | None = None,
        outputs: OutputNames | None = None,
        rows: Rows | None = None,
    ) -> Array:
        """Ask every candidate about every row.

        Parameters
        ----------
        X : n rows.
        only : the candidates to ask, by name or as a mask (M,); or the rows for which to ask
            each, as a mask (n, M). Predictions that are not asked for are zero in P, so that a
            weight of zero leaves them out of any average.
        given : predictions already known, by name, put into P as they are.
        outputs : the order of several outputs in regression, by which data frames that candidates
            return are arranged; that of the first such frame if None.
        rows : (n,) numbers by which errors call the rows; counted from zero if None.

        Returns
        -------
        P : (n, M) for one output; (n, M, K) for several, and for classification, where the last
            axis follows `classes`.
        """
        X = unmasked(X)
        if not self._warned:
            self._warn_of_unknown_classes()
        given = given or {}
        self._check_known(given)
        mask = None if only is None else self._mask(only, n_rows(X))
        outputs = OutputNames() if outputs is None else outputs
        return stacked(self._answers(X, mask, given, outputs, rows), self.names, n_rows(X))

    def check_labels(self, y: Any) -> None:
        """Refuse labels in y that no candidate knows; a CrossFitted will learn any."""
        if self.classes is None:
            return
        labels = np.unique(np.asarray(y))
        numbered = self.classes.dtype.kind == "U" and are_numbers_from_zero(labels)
        strange = unknown_classes(self.classes.tolist(), labels)
        if numbered or (strange and not self.has_own_models):
            raise InvalidInputError(
                f"Every label in y must be known to some candidate; none knows "
                f"{listed(strange)}, and together they know {listed(self.classes)}: "
                f"{NUMBERED_BY_TOOLS if numbered else LEAVE_OUT_OR_ADD}"
            )

    def _answers(
        self,
        X: Table,
        mask: Mask | None,
        given: Mapping[str, Array],
        outputs: OutputNames,
        rows: Rows | None,
    ) -> Iterator[Array | None]:
        """Predictions of one candidate after another; None for one that is not asked."""
        for m, (name, candidate, seen) in enumerate(self._seen_by_each(X)):
            if name in given:
                yield given[name]
                continue
            asked = None if mask is None else mask[:, m]
            values = _ask(candidate, seen, self.task, name, asked, outputs, rows)
            yield None if values is None else self._aligned(m, values)

    def _items(self) -> Iterable[tuple[str, Candidate]]:
        return zip(self.names, self.candidates, strict=True)

    def _seen_by_each(self, X: Table) -> Iterator[tuple[str, Candidate, Any]]:
        """Each candidate with what it may see: all of X, or X without the prediction columns."""
        others = None if self._has_columns else X
        for name, candidate in self._items():
            if not self._has_columns or candidate.picks_own_columns(X):
                yield name, candidate, X
                continue
            if others is None:
                others = drop_columns(X, self.prediction_columns(X))
            yield name, candidate, others

    def _union_of_classes(self) -> Labels | None:
        if self.task == "regression":
            return None
        known = {name: c.classes for name, c in self._items() if c.classes is not None}
        return union_of_classes(known) if known else None

    def _places_of(self, candidate: Candidate) -> NDArray[np.intp] | None:
        if self.classes is None or candidate.classes is None:
            return None
        return places_of(candidate.classes, self.classes)

    def _aligned(self, m: int, values: Array) -> Array:
        if self.classes is None:
            return values
        return align(values, self._places[m], len(self.classes))

    def _warn_of_unknown_classes(self) -> None:
        self._warned = True
        if self.classes is None:
            return
        known = {name: c.classes for name, c in self._items() if c.classes is not None}
        warn_unknown_classes(
            {name: unknown_classes(own.tolist(), self.classes) for name, own in known.items()}
        )

    def _mask(self, only: Any, n: int) -> Mask:
        """What to ask, as a mask (n, M)."""
        M = len(self.names)
        mask = np.asarray(only if isinstance(only, np.ndarray) else list(only))
        if mask.dtype == bool and mask.shape in ((M,), (n, M)):
            return np.broadcast_to(mask, (n, M))
        wanted = mask.tolist()
        if not all(isinstance(name, str) for name in wanted):
            raise InvalidInputError(
                f"only must be names of candidates, or a mask of shape ({M},) or ({n}, {M}); "
                f"received values of dtype {mask.dtype} and shape {mask.shape}."
            )
        self._check_known(wanted)
        return np.broadcast_to([name in wanted for name in self.names], (n, M))

    def _check_known(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.names:
                raise unknown_name("candidate", name, self.names)


def _named(candidates: Any) -> tuple[tuple[str, ...], tuple[Candidate, ...]]:
    """Names and candidates out of any of the three forms."""
    if isinstance(candidates, Mapping):
        candidates = list(candidates.items())
    if not isinstance(candidates, list | tuple):
        raise InvalidInputError(
            "candidates must be a dict from name to model, a list of (name, model) pairs or a "
            f"list of models; received {type(candidates).__name__}."
        )
    if not candidates:
        raise InvalidInputError(
            "candidates must hold at least one model; received none: pass for example "
            "candidates={'north': fitted_model}."
        )
    pairs = [isinstance(item, tuple) and len(item) == 2 for item in candidates]
    if all(pairs):
        names = check_names(name for name, _ in candidates)
        return names, tuple(_as_named_candidate(name, model) for name, model in candidates)
    if any(pairs):
        raise InvalidInputError(
            "candidates must be all (name, model) pairs or all models; received "
            f"{sum(pairs)} pairs among {len(pairs)}: name every model."
        )
    models = tuple(as_candidate(model) for model in candidates)
    return check_names(made_unique([model.label for model in models])), models


def _as_named_candidate(name: str, model: Any) -> Candidate:
    try:
        return as_candidate(model)
    except InvalidInputError as error:
        raise InvalidInputError(f"Candidate {name!r}: {error}") from error


def _refuse_one_twice(names: Sequence[str], candidates: Sequence[Candidate]) -> None:
    first: dict[Hashable, str] = {}
    for name, candidate in zip(names, candidates, strict=True):
        other = first.setdefault(candidate.identity(), name)
        if other != name:
            raise InvalidInputError(
                f"One candidate twice: {other!r} and {name!r} are the very same {candidate!r}; "
                "each enters a pool once: leave one out, or give them different inputs=."
            )


def _ask(
    candidate: Candidate,
    X: Table,
    task: Task,
    name: str,
    mask: Mask | None,
    outputs: OutputNames,
    rows: Rows | None,
) -> Array | None:
    """Predictions of one candidate, zero in the rows left out; None if all are."""
    if mask is None or mask.all():
        return candidate.predict(X, task, name=name, rows=rows, outputs=outputs)
    if not mask.any():
        return None
    asked = np.flatnonzero(mask)
    numbers = asked if rows is None else np.asarray(rows)[asked]
    some = candidate.predict(take_rows(X, asked), task, name=name, rows=numbers, outputs=outputs)
    values = np.zeros((len(mask), *some.shape[1:]))
    values[asked] = some
    return values


def _check_some_row_is_covered(covered: Covered, names: Iterable[str]) -> None:
    if not covered.any():
        raise InvalidInputError(
            "Some row must have an out-of-fold prediction of every CrossFitted candidate, and "
            f"none has for {', '.join(repr(name) for name in names)}: give them the same cv=."
        )
