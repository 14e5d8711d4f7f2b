"""A candidate whose predictions are kept on disk, so that it sees no row twice."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Hashable, Mapping
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
from numpy.typing import NDArray

from localma._optional import optional
from localma.candidates.base import Candidate, Recipe, joined
from localma.candidates.column import Column
from localma.candidates.crossfitted import CrossFitted
from localma.candidates.outputs import Array, OutputNames, Rows, Table, Task
from localma.candidates.pool import as_candidate
from localma.errors import CandidateError, InvalidInputError
from localma.storage.cache import (
    MAX_BYTES,
    Found,
    Shelf,
    checked_max_bytes,
    default_folder,
    sorted_keys,
)
from localma.storage.fingerprints import digest
from localma.storage.row_keys import Keys, row_keys
from localma.tables.frames import n_rows, take_rows

Places = NDArray[np.intp]

logger = getLogger("localma")

KEEP_SECONDS = 30.0
"""How much work of a candidate a process that is killed may lose, apart from its last batch."""

NO_PART = ("inputs", "cost", "batch_size")
"""What does not change the predictions of rows as the model sees them."""
CODE = (type, FunctionType, BuiltinFunctionType)


class Cached(Candidate):
    """A candidate that is asked about each row once; its predictions are kept on disk.

    A row is known again by its content, wherever it stands: the folds of a cross-validation and
    a frame with one more row ask for what is new only. Predictions are kept as they come, batch
    by batch, so that work which fails or is interrupted goes on where it stopped.

    Parameters
    ----------
    candidate : whatever `as_candidate` takes: a fitted estimator, a candidate, the path of a
        model, or a function (with `key`).
    folder : where; None for $LOCALMA_CACHE, or localma's folder in the user's cache.
    key : what stands for the model where it has no fingerprint of its own, as a function or an
        address has none. Choose another one whenever the model changes.
    max_bytes : what the folder may hold in all, 2 GiB by default; the least recently used
        predictions make room.

    Notes
    -----
    The model's fingerprint is taken at every call, so that a model that was fitted again is seen
    as another one; `key` saves that time too. A saved model has the candidate and not its cache.

    Examples
    --------
    >>> import tempfile
    >>> asked = []
    >>> def vendor(X):
    ...     asked.append(len(X))
    ...     return X[:, 0]
    >>> X = np.array([[1.0], [2.0], [1.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     candidate = Cached(vendor, folder, key="vendor 2024-05")
    ...     candidate.predict(X, "regression").tolist()
    ...     candidate.predict(X[1:], "regression").tolist()
    [1.0, 2.0, 1.0]
    [2.0, 1.0]
    >>> asked
    [2]
    """

    kind = "cached"

    def __init__(
        self,
        candidate: Any,
        folder: str | os.PathLike[str] | None = None,
        *,
        key: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        optional("pyarrow", extra="cache")
        self.candidate = _checked(as_candidate(candidate))
        self.folder = default_folder() if folder is None else Path(os.path.abspath(folder))
        self.key = _checked_key(key)
        self.max_bytes = checked_max_bytes(max_bytes)
        super().__init__(
            inputs=self.candidate.inputs,
            classes=self.candidate.classes,
            cost=self.candidate.cost,
            batch_size=self.candidate.batch_size,
        )
        self._fingerprint()  # where there is none, it is better said now

    @classmethod
    def all(
        cls,
        candidates: Any,
        folder: str | os.PathLike[str] | None = None,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> Any:
        """Cache every candidate of a pool: a dict, a list of (name, model) pairs or of models.

        A `Column` costs nothing and a `CrossFitted` is fitted anew each time: these stay as they
        are, and so does what is `Cached` already, say a function with its key.

        >>> list(Cached.all({"guess": Column("guess")}))
        ['guess']
        """
        if isinstance(candidates, Mapping):
            return dict(cls.all(list(candidates.items()), folder, max_bytes=max_bytes))
        if not isinstance(candidates, list | tuple):
            raise InvalidInputError(
                "Cached.all takes what a pool takes, a dict from name to model or a list; received "
                f"{type(candidates).__name__}: for one model write Cached(model)."
            )
        return [
            (model[0], cls._unless_cheap(model[1], folder, max_bytes))
            if isinstance(model, tuple) and len(model) == 2
            else cls._unless_cheap(model, folder, max_bytes)
            for model in candidates
        ]

    @classmethod
    def _unless_cheap(cls, model: Any, folder: Any, max_bytes: int) -> Candidate:
        if isinstance(model, Cached | Column | CrossFitted):
            return model
        return cls(model, folder, max_bytes=max_bytes)

    def predict(
        self,
        X: Table,
        task: Task,
        *,
        name: str | None = None,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
    ) -> Array:
        """Predict each row of X, asking the candidate about those that are not cached."""
        name = self.label if name is None else name
        if n_rows(X) == 0 or (task == "classification" and self.classes is None):
            return self.candidate.predict(X, task, name=name, rows=rows)  # which refuses them
        keys = self._keys(X, name, rows)
        order, new = sorted_keys(keys)
        distinct = order[new]  # one row of each content
        place = np.empty(len(keys), dtype=np.intp)
        place[order] = np.cumsum(new) - 1
        shelf = self._shelf(task)
        known = shelf.output_names() if task == "regression" else None
        # By alphabet, so that whoever writes first writes what others would.
        kept = OutputNames(known, "its cache", by_alphabet=True)
        call = _Call(X, task, name, rows, shelf, kept)
        predictions = self._predict_distinct(call, distinct, keys[distinct])[place]
        if outputs is None:
            return predictions
        return call.in_order_of(outputs, predictions)

    def _predict_distinct(self, call: _Call, at: Places, keys: Keys) -> Array:
        """Predictions of rows at these places of X (m,), which have these keys (m, 2)."""
        found = call.shelf.read(keys)
        missing = np.delete(np.arange(len(keys)), found.places)
        missing = missing[np.argsort(at[missing])]  # in the order of X
        parts = [found] if len(found.places) else []
        if len(missing):
            parts.append(Found(missing, self._ask(call, at[missing], keys[missing])))
        outputs = {part.predictions.shape[1:] for part in parts}
        if len(outputs) > 1:
            logger.warning(
                "Candidate %r has another number of outputs than before: its cache is emptied. "
                "Choose another key= whenever a model changes.",
                call.name,
            )
            call.shelf.clear()
            call.outputs.names = None
            return self._predict_distinct(call, at, keys)
        predictions = np.empty((len(keys), *outputs.pop()))
        for part in parts:
            predictions[part.places] = part.predictions
        return predictions

    def _ask(self, call: _Call, at: Places, keys: Keys) -> Array:
        """Predictions by the candidate itself of rows at these places of X, kept as they come."""
        kept = _Kept(call.shelf, keys)
        try:
            for piece in self.candidate.in_batches(**call.part(at), outputs=call.outputs):
                call.shelf.note_output_names(call.outputs.names)
                kept.add(piece)
        finally:
            kept.write()
        return joined(kept.pieces, call.name)

    def _keys(self, X: Table, name: str, rows: Rows | None) -> Keys:
        try:
            return row_keys(self.candidate.select(X))
        except Exception as error:
            raise self.candidate._failure(error, name, X, rows) from error

    def _shelf(self, task: Task) -> Shelf:
        classes = None if self.classes is None else self.classes.tolist()
        name = digest(f"{self._fingerprint()} {task} {classes!r}")
        about = {"candidate": self.label, "task": task}
        return Shelf(self.folder, name, about, self.max_bytes)

    def _fingerprint(self) -> str:
        if self.key is None:
            return candidate_fingerprint(self.candidate)
        return f"key {self.key} {self.candidate._reading()!r}"

    def _answer(self, X: Table, task: Task) -> Any:
        return self.candidate._answer(X, task)

    @property
    def label(self) -> str:
        """That of the candidate."""
        return self.candidate.label

    @property
    def source(self) -> str | None:
        """That of the candidate."""
        return self.candidate.source

    def _model_identity(self) -> Hashable:
        return self.candidate._model_identity()

    def identity(self) -> Hashable:
        """That of the candidate: in a pool, cached and not cached are one model twice."""
        return self.candidate.identity()

    def check_task(self, task: Task, name: str) -> None:
        """Refuse what the candidate refuses."""
        self.candidate.check_task(task, name)

    def picks_own_columns(self, X: Table) -> bool:
        """Whether the candidate does."""
        return self.candidate.picks_own_columns(X)

    def select(self, X: Table) -> Any:
        """The part of X that the model gets."""
        return self.candidate.select(X)

    def uncached(self) -> Candidate:
        """The candidate itself."""
        return self.candidate

    def recipe(self) -> Recipe | None:
        """That of the candidate: where predictions are cached is no part of a model."""
        return self.candidate.recipe()


@dataclass(frozen=True)
class _Call:
    """One call of `predict`: what it was given, and where, in which order, predictions are kept."""

    X: Table
    task: Task
    name: str
    rows: Rows | None
    shelf: Shelf
    outputs: OutputNames

    def in_order_of(self, outputs: OutputNames, predictions: Array) -> Array:
        """Bring outputs from the order in which they are kept to the one that is asked for."""
        try:
            ordered = outputs.put_in_order(
                predictions, self.outputs.names, f"candidate {self.name!r}"
            )
        except InvalidInputError as error:
            raise CandidateError(str(error), candidate=self.name) from error
        return np.asarray(ordered)

    def part(self, at: Places) -> dict[str, Any]:
        """The same call for the rows at these places of X (m,)."""
        if len(at) == n_rows(self.X):
            return {"X": self.X, "task": self.task, "name": self.name, "rows": self.rows}
        rows = at if self.rows is None else np.asarray(self.rows)[at]
        return {"X": take_rows(self.X, at), "task": self.task, "name": self.name, "rows": rows}


class _Kept:
    """Predictions of batches, written to a shelf every half minute and at the end."""

    def __init__(self, shelf: Shelf, keys: Keys) -> None:
        self.shelf, self.keys = shelf, keys
        self.pieces: list[Array] = []
        self.waiting: list[Array] = []
        self.written, self.last = 0, monotonic()

    def add(self, piece: Array) -> None:
        self.pieces.append(piece)
        self.waiting.append(piece)
        if monotonic() - self.last >= KEEP_SECONDS:
            self.write()

    def write(self) -> None:
        # Batches that differ in their outputs are refused where they are joined.
        if len({piece.shape[1:] for piece in self.waiting}) == 1:
            predictions = np.concatenate(self.waiting)
            stop = self.written + len(predictions)
            self.shelf.write(self.keys[self.written : stop], predictions)
            self.written = stop
        self.waiting, self.last = [], monotonic()


def _checked(candidate: Candidate) -> Candidate:
    if isinstance(candidate, Cached | Column | CrossFitted):
        reason = {
            Cached: "is cached already",
            Column: "holds predictions already, in a column of X",
            CrossFitted: "is fitted anew on every sample",
        }[type(candidate)]
        raise InvalidInputError(
            f"Cached takes a trained model, and {candidate!r} {reason}: pass it as it is."
        )
    return candidate


def _checked_key(key: Any) -> str | None:
    if key is not None and (not isinstance(key, str) or not key):
        raise InvalidInputError(
            f"key must be a string that stands for the model, such as 'vendor 2024-05'; received "
            f"{key!r}."
        )
    return key


# Fingerprints: equal only for candidates that predict the same for the same rows.
#
# A model in a file has that of its content and options. A model in memory has that of all it holds,
# as long as its code comes from installed packages, whose versions count. Other code can change
# while its name stays, so such models need a key from the user.


def candidate_fingerprint(candidate: Candidate) -> str:
    """Fingerprint of the model and of the options that its predictions depend on: 32 characters.

    >>> from localma.candidates.pool import as_candidate
    >>> from sklearn.linear_model import LinearRegression
    >>> one, other = (LinearRegression().fit([[0.0], [1.0]], [0.0, slope]) for slope in (1.0, 2.0))
    >>> same = as_candidate(one, inputs=[0], cost=3.0)
    >>> candidate_fingerprint(as_candidate(one)) == candidate_fingerprint(same)
    True
    >>> candidate_fingerprint(as_candidate(one)) == candidate_fingerprint(as_candidate(other))
    False
    """
    recipe = _recipe_of_model(candidate)
    if recipe is not None and hasattr(recipe, "sha256"):
        left_out = (*NO_PART, "path")
        stated = {name: value for name, value in recipe.to_json().items() if name not in left_out}
        # A recipe has the name of such a function, and not what it does.
        prepares = _fingerprint_in_memory(getattr(candidate, "preprocess", None), candidate)
        return digest(f"{json.dumps(stated, sort_keys=True)} {prepares}")
    if candidate.kind == "http":
        raise _needs_key(candidate, "the model behind an address can change while it stays")
    held = {name: value for name, value in vars(candidate).items() if name not in NO_PART}
    return digest(f"{candidate.kind} {_fingerprint_in_memory(held, candidate)}")


def _recipe_of_model(candidate: Candidate) -> Recipe | None:
    """Its recipe with no regard to the inputs, which may be a function that has no name."""
    bare = copy(candidate)
    bare.inputs = None
    return bare.recipe()


def _fingerprint_in_memory(held: Any, candidate: Candidate) -> str:
    code = _CodeReader()
    try:
        code.dump(held)
        content = _ContentHasher("md5").hash(held)
    except _StrangeCodeError as error:
        raise _needs_key(
            candidate, f"the code of {error} can change while its name stays"
        ) from None
    except Exception as error:
        raise _needs_key(
            candidate, f"it cannot be read as a whole ({type(error).__name__}: {error})"
        ) from error
    return f"{content} {sorted(code.versions)}"


def _needs_key(candidate: Candidate, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"Predictions are cached under a fingerprint of the model, and {candidate!r} has none: "
        f"{reason}. Pass a key of your own, and another one whenever the model changes: "
        "Cached(model, key='vendor 2024-05')."
    )


class _StrangeCodeError(Exception):
    """Code that no installed package of a known version holds."""


class _ContentHasher(NumpyHasher):
    """joblib's hash of all that an object holds, where tensors count by their numbers."""

    def save(self, value: Any) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            # Pickled tensors hold addresses in memory, which differ from process to process.
            plain = value.detach().cpu()
            plain = plain.float() if plain.dtype == torch.bfloat16 else plain
            value = ("tensor", str(value.dtype), plain.numpy())
        super().save(value)


class _CodeReader(pickle.Pickler):
    """Walk through all that an object holds, as pickling does, and note where its code is from."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda buffer: None)
        self.versions: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, CODE):
            module = getattr(value, "__module__", None) or "builtins"
            found = _version(module.partition(".")[0])
            if found is None:
                raise _StrangeCodeError(f"{module}.{value.__qualname__}")
            self.versions.add(found)
        return NotImplemented


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, content: Any) -> int:
        return len(content)


@lru_cache(maxsize=256)
def _version(package: str) -> str | None:
    """Name and version of what holds a top-level package; None for code that is being written."""
    if package in sys.stdlib_module_names and package != "__main__":
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    if package == "localma":
        return f"localma {version('localma')}"
    for name in _distributions().get(package, ()):
        if not _is_editable(name):
            return f"{name} {version(name)}"
    return None


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


def _is_editable(name: str) -> bool:
    """Whether a package is installed as a link to a folder where somebody works on it."""
    try:
        origin = distribution(name).read_text("direct_url.json")
    except PackageNotFoundError:
        return True
    return bool(origin and json.loads(origin).get("dir_info", {}).get("editable"))
