"""A candidate whose predictions are stored on disk, and fingerprints of candidates."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from logging import getLogger
from pathlib import Path
from time import monotonic
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
from joblib.hashing import NumpyHasher

from localma._optional import optional
from localma._types import Array, Integers
from localma.candidates.base import Candidate
from localma.candidates.batches import joined
from localma.candidates.column import Column
from localma.candidates.conversion import as_candidate
from localma.candidates.crossfitted import CrossFitted
from localma.candidates.outputs import Output, OutputNames, Rows, Table, Task
from localma.candidates.recipes import Recipe
from localma.errors import CandidateError, InvalidInputError
from localma.storage.cache import (
    MAX_BYTES,
    Folder,
    Shelf,
    cache_folder,
    checked_max_bytes,
    sorted_keys,
)
from localma.storage.fingerprints import digest
from localma.storage.row_keys import Keys, row_keys
from localma.tables.frames import n_rows, readable_tensor, take_rows

logger = getLogger("localma")

WRITE_SECONDS = 30.0
"""Time between writes: a process that is killed loses at most so much work and its last batch."""

OTHER_OPTIONS = ("inputs", "cost", "batch_size")
"""Options that do not change the predictions of the rows that the model receives."""
CODE = (type, FunctionType, BuiltinFunctionType)
NOT_CACHED = {
    Column: "contains predictions already, in a column of X",
    CrossFitted: "is fitted again on every sample",
}
"""Kinds of candidates that have nothing to cache, with the reason."""


class Cached(Candidate):
    """A candidate that predicts each row once, and stores its predictions on disk.

    Rows are recognised by their content. In the folds of a cross-validation, or in a frame with one
    more row, only new rows are predicted. Predictions are stored batch by batch, so that work that
    fails or is interrupted continues with the next batch.

    Parameters
    ----------
    candidate : model
        Any model that `as_candidate` takes: a fitted estimator, a candidate, the path of a model,
        or a function (with `key`).
    folder : str or path, optional
        The cache. By default $LOCALMA_CACHE, or localma's folder in the user's cache.
    key : str, optional
        A name for the model, if it has no fingerprint, such as a function or an address. Choose
        another key whenever the model changes.
    max_bytes : int, default=2147483648
        Limit for the whole folder. The least recently used predictions are removed first.

    Notes
    -----
    The fingerprint of the model is computed at every call, so that a model that is fitted again
    counts as another model. `key` also saves this time. A saved model contains the candidate
    without its cache.

    Examples
    --------
    >>> import tempfile
    >>> batches = []
    >>> def vendor(X):
    ...     batches.append(len(X))
    ...     return X[:, 0]
    >>> X = np.array([[1.0], [2.0], [1.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     candidate = Cached(vendor, folder, key="vendor 2024-05")
    ...     candidate.predict(X, "regression").tolist()
    ...     candidate.predict(X[1:], "regression").tolist()
    [1.0, 2.0, 1.0]
    [2.0, 1.0]
    >>> batches
    [2]
    """

    kind = "cached"

    def __init__(
        self,
        candidate: Any,
        folder: Folder = None,
        *,
        key: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        optional("pyarrow", extra="cache")
        self.candidate = _checked(as_candidate(candidate))
        self.folder = Path(os.path.abspath(cache_folder(folder)))
        if key is not None and (not isinstance(key, str) or not key):
            raise InvalidInputError(
                "key must be a string that names the model, such as 'vendor 2024-05'; received "
                f"{key!r}."
            )
        self.key = key
        self.max_bytes = checked_max_bytes(max_bytes)
        super().__init__(
            inputs=self.candidate.inputs,
            classes=self.candidate.classes,
            cost=self.candidate.cost,
            batch_size=self.candidate.batch_size,
        )
        self._fingerprint()  # to refuse a model without a fingerprint now

    @classmethod
    def all(cls, candidates: Any, folder: Folder = None, *, max_bytes: int = MAX_BYTES) -> Any:
        """Cache every candidate of a pool.

        Parameters
        ----------
        candidates : dict or list
            A dict from name to model, a list of (name, model) pairs, or a list of models. `Column`,
            `CrossFitted` and `Cached` candidates stay as they are.
        folder : str or path, optional
            The cache, as for `Cached`.
        max_bytes : int, default=2147483648
            Limit for the whole folder.

        Returns
        -------
        dict or list
            The pool in the same form.

        Examples
        --------
        >>> list(Cached.all({"guess": Column("guess")}))
        ['guess']
        """
        if isinstance(candidates, Mapping):
            return dict(cls.all(list(candidates.items()), folder, max_bytes=max_bytes))
        if not isinstance(candidates, list | tuple):
            raise InvalidInputError(
                "Cached.all takes a pool, a dict from name to model or a list; received "
                f"{type(candidates).__name__}: for one model write Cached(model)."
            )

        def cached(model: Any) -> Any:
            if isinstance(model, tuple) and len(model) == 2:
                return model[0], cached(model[1])
            if isinstance(model, Cached | Column | CrossFitted):
                return model
            return cls(model, folder, max_bytes=max_bytes)

        return list(map(cached, candidates))

    def predict(
        self,
        X: Table,
        task: Task,
        *,
        name: str | None = None,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
        allow_missing: bool = False,
    ) -> Array:
        """Predict each row of X; the candidate predicts only rows that are not cached.

        Parameters
        ----------
        X : array-like or data frame of n rows
            Rows of any kind that the model takes.
        task : {"regression", "classification"}
            The task.
        name : str, optional
            Name of the candidate in error messages. By default its label.
        rows : array-like of shape (n,), optional
            Row numbers for error messages.
        outputs : OutputNames, optional
            The order of several outputs in regression.
        allow_missing : bool
            Whether predictions may be missing. They are then NaN, and are not stored.

        Returns
        -------
        Array
            Regression (n,) or (n, K); classification (n, K), columns in the order of `classes`.
        """
        name = name or self.label
        if n_rows(X) == 0 or (task == "classification" and self.classes is None):
            return self.candidate.predict(X, task, name=name, rows=rows)  # raises the error
        keys = self._keys(X, name, rows)
        sorting, new = sorted_keys(keys)
        distinct = sorting[new]  # one row of each content
        position = np.empty(len(keys), dtype=np.intp)
        position[sorting] = np.cumsum(new) - 1
        shelf = self._shelf(task)
        # In alphabetical order, so that every process writes the same order.
        names = shelf.output_names() if task == "regression" else None
        order = OutputNames(names, "its cache", by_alphabet=True)
        call = _Call(X, task, name, rows, shelf, order, allow_missing)
        predictions = self._predict_distinct(call, distinct, keys[distinct])[position]
        if outputs is None:
            return predictions
        return call.in_order_of(outputs, predictions)

    def _predict_distinct(self, call: _Call, rows: Integers, keys: Keys) -> Array:
        """Predictions of these rows of X (m,), which have these keys (m, 2)."""
        hits = call.shelf.read(keys)
        missing = np.delete(np.arange(len(keys)), hits.index)
        missing = missing[np.argsort(rows[missing])]  # in the order of X
        if not len(missing):
            return hits.predictions[np.argsort(hits.index)]
        new = self._predict_missing(call, rows[missing], keys[missing])
        predictions = np.empty((len(keys), *new.shape[1:]))
        predictions[missing] = new
        if len(hits.index):
            if hits.predictions.shape[1:] != new.shape[1:]:
                logger.warning(
                    "Candidate %r has another number of outputs than before: its cache is emptied. "
                    "Choose another key= whenever a model changes.",
                    call.name,
                )
                call.shelf.clear()
                call.outputs.names = None
                return self._predict_distinct(call, rows, keys)
            predictions[hits.index] = hits.predictions
        return predictions

    def _predict_missing(self, call: _Call, rows: Integers, keys: Keys) -> Array:
        """Let the candidate predict these rows of X, and store its predictions."""
        writer = _Writer(call.shelf, keys)
        X, numbers = call.at(rows)
        batches = self.candidate.in_batches(
            X,
            call.task,
            name=call.name,
            rows=numbers,
            outputs=call.outputs,
            allow_missing=call.allow_missing,
        )
        try:
            for batch in batches:
                call.shelf.note_output_names(call.outputs.names)
                writer.add(batch)
        finally:
            writer.write()
        return joined(writer.batches, call.name)

    def _keys(self, X: Table, name: str, rows: Rows | None) -> Keys:
        try:
            return row_keys(self.candidate.select(X))
        except Exception as error:
            raise self.candidate._failure(error, name, X, rows) from error

    def _shelf(self, task: Task) -> Shelf:
        classes = None if self.classes is None else self.classes.tolist()
        name = digest(f"{self._fingerprint()} {task} {classes!r}")
        return Shelf(self.folder, name, {"candidate": self.label, "task": task}, self.max_bytes)

    def _fingerprint(self) -> str:
        if self.key is None:
            return candidate_fingerprint(self.candidate)
        return f"key {self.key} {self.candidate._reading()!r}"

    def _answer(self, X: Table, task: Task) -> Output:
        return self.candidate._answer(X, task)

    @property
    def runs_beside(self) -> bool:
        """As the candidate."""
        return self.candidate.runs_beside

    @property
    def label(self) -> str:
        """The label of the candidate."""
        return self.candidate.label

    @property
    def source(self) -> str | None:
        """The source of the candidate."""
        return self.candidate.source

    def _model_identity(self) -> Hashable:
        return self.candidate._model_identity()

    def identity(self) -> Hashable:
        """Return the identity of the candidate: with and without a cache it is the same model.

        Returns
        -------
        hashable
            Kind, model, inputs and classes.
        """
        return self.candidate.identity()

    def check_task(self, task: Task, name: str) -> None:
        """Raise an error if the candidate cannot do the task.

        Parameters
        ----------
        task : {"regression", "classification"}
            The task.
        name : str
            The name of the candidate in the error.
        """
        self.candidate.check_task(task, name)

    def picks_own_columns(self, X: Table) -> bool:
        """Return whether the candidate chooses its columns.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        bool
            If False, the candidate gets X without prediction columns.
        """
        return self.candidate.picks_own_columns(X)

    def select(self, X: Table) -> Table:
        """Return the inputs of the model.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        array-like or data frame of n rows
            The columns that the model takes.
        """
        return self.candidate.select(X)

    def uncached(self) -> Candidate:
        """Return the candidate without its cache.

        Returns
        -------
        Candidate
            The candidate that was passed.
        """
        return self.candidate

    def recipe(self) -> Recipe | None:
        """Return the recipe of the candidate; the cache is not part of a saved model.

        Returns
        -------
        Recipe or None
            None if the candidate exists only in memory.
        """
        return self.candidate.recipe()


@dataclass(frozen=True)
class _Call:
    """One call of `predict`: its arguments, and the shelf with the order of its outputs."""

    X: Table
    task: Task
    name: str
    rows: Rows | None
    shelf: Shelf
    outputs: OutputNames
    allow_missing: bool

    def in_order_of(self, outputs: OutputNames, predictions: Array) -> Array:
        """Put outputs from the order of the cache into the requested order."""
        try:
            ordered = outputs.put_in_order(
                predictions, self.outputs.names, f"candidate {self.name!r}"
            )
        except InvalidInputError as error:
            raise CandidateError(str(error), candidate=self.name) from error
        return np.asarray(ordered)

    def at(self, rows: Integers) -> tuple[Table, Rows | None]:
        """Return these rows of X (m,), and their numbers in error messages."""
        if len(rows) == n_rows(self.X):
            return self.X, self.rows
        numbers = rows if self.rows is None else np.asarray(self.rows)[rows]
        return take_rows(self.X, rows), numbers


class _Writer:
    """Writes the predictions of batches to a shelf every half minute and at the end."""

    def __init__(self, shelf: Shelf, keys: Keys) -> None:
        self.shelf, self.keys = shelf, keys
        self.batches: list[Array] = []
        self.n_written, self.last_write = 0, monotonic()

    def add(self, batch: Array) -> None:
        self.batches.append(batch)
        if monotonic() - self.last_write >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        waiting = self.batches[self.n_written :]
        n = sum(map(len, waiting))
        keys, self.keys = self.keys[:n], self.keys[n:]
        # `joined` refuses batches with different numbers of outputs.
        if len({batch.shape[1:] for batch in waiting}) == 1:
            predictions = np.concatenate(waiting)
            known = np.isfinite(predictions.reshape(n, -1)).all(axis=1)
            if known.any():
                self.shelf.write(keys[known], predictions[known])
        self.n_written, self.last_write = len(self.batches), monotonic()


def _checked(candidate: Candidate) -> Candidate:
    for kind, reason in {Cached: "is cached already", **NOT_CACHED}.items():
        if isinstance(candidate, kind):
            raise InvalidInputError(
                f"Cached takes a trained model, but {candidate!r} {reason}: pass it without Cached."
            )
    return candidate


# Fingerprints: equal only for candidates with equal predictions for equal rows.
#
# The fingerprint of a model in a file covers its content and options. That of a model in memory
# covers its whole state, if its code comes from installed packages, and their versions. Other code
# can change while its name stays the same, so such models need a key from the user.


def candidate_fingerprint(candidate: Candidate) -> str:
    """Compute a fingerprint of the model and of the options that change its predictions.

    >>> from localma.candidates.conversion import as_candidate
    >>> from sklearn.linear_model import LinearRegression
    >>> flat, steep = (LinearRegression().fit([[0.0], [1.0]], [0.0, y]) for y in (1.0, 2.0))
    >>> same = as_candidate(flat, inputs=[0], cost=3.0)
    >>> candidate_fingerprint(as_candidate(flat)) == candidate_fingerprint(same)
    True
    >>> candidate_fingerprint(as_candidate(flat)) == candidate_fingerprint(as_candidate(steep))
    False
    """
    bare = copy(candidate)
    bare.inputs = None  # they may be a function without a name
    recipe = bare.recipe()
    if recipe is not None and hasattr(recipe, "sha256"):
        ignored = (*OTHER_OPTIONS, "path")
        options = {name: value for name, value in recipe.to_json().items() if name not in ignored}
        # The recipe only has the name of this function.
        preprocess = _fingerprint_in_memory(getattr(candidate, "preprocess", None), candidate)
        return digest(f"{json.dumps(options, sort_keys=True)} {preprocess}")
    if candidate.kind == "http":
        raise _needs_key(candidate, "the model behind an address can change")
    state = {name: value for name, value in vars(candidate).items() if name not in OTHER_OPTIONS}
    return digest(f"{candidate.kind} {_fingerprint_in_memory(state, candidate)}")


def _fingerprint_in_memory(state: object, candidate: Candidate) -> str:
    code = _CodeReader()
    try:
        code.dump(state)
        content = _ContentHasher("md5").hash(state)
    except _UnknownCodeError as error:
        raise _needs_key(
            candidate, f"the code of {error} can change while its name stays the same"
        ) from None
    except Exception as error:
        raise _needs_key(
            candidate, f"it cannot be read completely ({type(error).__name__}: {error})"
        ) from error
    return f"{content} {sorted(code.versions)}"


def _needs_key(candidate: Candidate, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"Predictions are cached under a fingerprint of the model, but {candidate!r} has none: "
        f"{reason}. Pass your own key, and another one whenever the model changes: "
        "Cached(model, key='vendor 2024-05')."
    )


class _UnknownCodeError(Exception):
    """Code that does not come from an installed package."""


class _ContentHasher(NumpyHasher):
    """joblib's hash of the whole state of an object, with tensors by their numbers."""

    def save(self, value: Any) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            # Pickled tensors hold addresses in memory, which differ from process to process.
            value = ("tensor", str(value.dtype), readable_tensor(value).numpy())
        super().save(value)


class _CodeReader(pickle.Pickler):
    """Goes through the whole state of an object, as pickling does, and notes its packages."""

    def __init__(self) -> None:
        super().__init__(_NullFile(), protocol=5, buffer_callback=lambda buffer: None)
        self.versions: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, CODE):
            module = getattr(value, "__module__", None) or "builtins"
            package_version = _version(module.partition(".")[0])
            if package_version is None:
                raise _UnknownCodeError(f"{module}.{value.__qualname__}")
            self.versions.add(package_version)
        return NotImplemented


class _NullFile:
    """A file that stores nothing."""

    def write(self, content: Sequence[int]) -> int:
        return len(content)


@lru_cache(maxsize=256)
def _version(package: str) -> str | None:
    """Name and version of the distribution of a package; None for code under development."""
    if package in sys.stdlib_module_names and package != "__main__":
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    if package == "localma":
        return f"localma {version('localma')}"
    for name in _distributions().get(package, ()):
        if not _is_editable(name):
            return f"{name} {version(name)}"
    return None


_distributions = lru_cache(maxsize=1)(packages_distributions)


def _is_editable(name: str) -> bool:
    """Whether a package is installed as a link to a folder with its source."""
    try:
        origin = distribution(name).read_text("direct_url.json")
    except PackageNotFoundError:
        return True
    return bool(origin and json.loads(origin).get("dir_info", {}).get("editable"))
