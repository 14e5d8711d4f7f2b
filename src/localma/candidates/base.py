"""The candidate interface, recipes to rebuild candidates, and batch sizes."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from dataclasses import Field, dataclass, fields, replace
from functools import cache
from math import isfinite, prod
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    NewType,
    Self,
    TypedDict,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from scipy.sparse import issparse

from localma._types import Array, Json
from localma.candidates.outputs import (
    Activation,
    Classes,
    Label,
    Labels,
    Output,
    OutputNames,
    Rows,
    Table,
    Task,
    as_labels,
    as_prediction,
    check_not_reordered,
    checked_temperature,
    class_codes,
    fit_temperature,
    probabilities,
)
from localma.errors import CandidateError, FileFormatError, InvalidInputError, LocalMAError
from localma.imports import import_name, import_object
from localma.progress import bar
from localma.storage.array_file import shown
from localma.storage.fingerprints import beside, found_beside
from localma.tables.frames import (
    ColumnKey,
    checked_columns,
    n_rows,
    pick_columns,
    take_rows,
    unmasked,
)

TableFunction = Callable[[Any], Any]
"""A user's function of X; only the user knows which kind of X it takes and returns."""
Inputs = Sequence[ColumnKey] | TableFunction | None
BatchSize = int | str | None
PathLike = str | os.PathLike[str]

KINDS = {
    "column": "localma.candidates.column:Column",
    "function": "localma.candidates.function:FunctionCandidate",
    "http": "localma.candidates.http:HttpCandidate",
    "onnx": "localma.candidates.files.onnx:OnnxCandidate",
    "skops": "localma.candidates.files.skops:SkopsCandidate",
    "timm": "localma.candidates.files.timm:TimmCandidate",
    "torch": "localma.candidates.files.torch:TorchCandidate",
    "transformers": "localma.candidates.files.transformers:TransformersCandidate",
}
"""Import name of each class of candidates that has a recipe. A class is imported at first use."""

AUTO_MEMORY = 256 * 2**20
"""Bytes that a call may use with ``batch_size="auto"``, in addition to the model itself."""
WORKING_COPIES = 48
"""Estimated memory of a network per row, as a multiple of the size of the input row."""
LEAST_ROW_BYTES = 16 * 2**10
"""Lower bound of that estimate: a network with few inputs can still have wide layers."""

_UNITS = {"B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class RowError(InvalidInputError):
    """A row of the inputs cannot be read, for example a truncated image or an empty text.

    `row` is the index within the rows that `_answer` received. The error that users see has the
    index of the row in X.
    """

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row


class _Call(NamedTuple):  # quicker to make than a dataclass, and each call makes one
    """What all batches of a call have in common, as in `Candidate.predict`."""

    task: Task
    name: str
    outputs: OutputNames
    allow_missing: bool


class Candidate(ABC):
    """A trained model ``f(x)``. It is never cloned and never refitted.

    Subclasses are final and implement `_answer`. A kind that can be saved has a `_recipe_type` and
    an entry in `KINDS`.

    Parameters
    ----------
    inputs : list of str or int, or callable, optional
        Columns, by name or position, or a function of X. By default the model gets X unchanged.
    classes : array-like of shape (K,), optional
        Labels of the columns of its probabilities.
    cost : float, default=1.0
        What a row costs, such as the price of a call. Only budgets use it: `budget=` in `predict`
        and `answer`, and `frontier`. It does not change the weights of a fit.
    batch_size : int, str or None, default=None
        Number of rows per call. None predicts all rows in one call. "auto" limits a call to 256 MiB
        of memory; an amount such as "1 GiB" sets another limit.

    Examples
    --------
    >>> from localma import as_candidate
    >>> candidate = as_candidate(lambda X: 2 * X[:, 0])
    >>> isinstance(candidate, Candidate), candidate.label
    (True, 'function')
    """

    kind: ClassVar[str]
    _recipe_type: ClassVar[type[Recipe] | None] = None
    """The recipe of this kind; None if it exists only in memory."""
    runs_here: ClassVar[bool] = False
    """Whether it runs in this process on rows of a table, so that extra predictions are free."""

    def __init__(
        self,
        *,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = None,
    ) -> None:
        self.inputs = _checked_inputs(inputs)
        self.classes: Labels | None = None if classes is None else as_labels(classes)
        if not isinstance(cost, int | float | np.number) or not isfinite(cost) or cost < 0:
            raise InvalidInputError(
                f"cost must be a finite number, zero or more; received {cost!r}."
            )
        self.cost = float(cost)
        self.batch_size = checked_batch_size(batch_size)

    @abstractmethod
    def _answer(self, X: Table, task: Task) -> Output:
        """Return the model's output for these inputs, unchecked."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The default name."""

    @abstractmethod
    def _model_identity(self) -> Hashable:
        """Equal for two candidates that hold the same model."""

    def _reading(self) -> Hashable:
        """Options that turn the model's output into predictions.

        A cache key that identifies the model does not cover them.
        """
        return ()

    def _can_do(self, task: Task) -> bool:
        """Whether it states classes, if the task needs them."""
        return task == "regression" or self.classes is not None

    def check_task(self, task: Task, name: str) -> None:
        """Raise an error if this candidate cannot do the task. Needs no data.

        Parameters
        ----------
        task : {"regression", "classification"}
            The task.
        name : str
            The name of the candidate in the error.
        """
        if task == "classification" and self.classes is None:
            raise InvalidInputError(f"Candidate {name!r} {self._missing_classes()}")
        if task == "regression" and self.classes is not None:
            raise InvalidInputError(
                f"Candidate {name!r} states classes {self.classes.tolist()!r}, which a regression "
                "does not have: leave out classes=, or use LocalMAClassifier."
            )

    def _missing_classes(self) -> str:
        """Say what to do if a classification needs classes; the text follows the name."""
        return (
            f"is a {type(self).__name__}, which must state the classes of its columns for a "
            "classification, in their order: classes=['no', 'yes']."
        )

    def recipe(self) -> Recipe | None:
        """Describe how to rebuild it.

        Returns
        -------
        Recipe or None
            None if it exists only in memory.
        """
        if self._recipe_type is None:
            return None
        return self._recipe_type.of(self)

    @property
    def source(self) -> str | None:
        """File or address of the model, for error messages; None if it has none."""
        return None

    @property
    def runs_beside(self) -> bool:
        """Whether it waits for a server or leaves Python, so that several run at once."""
        return False

    def _row_bytes(self, X: Table) -> int:
        """Memory per row during a call. X is the first row, as the model receives it."""
        return working_bytes(X)

    def uncached(self) -> Candidate:
        """Return the candidate without its cache.

        Returns
        -------
        Candidate
            The candidate itself, if it has no cache.
        """
        return self

    def expand(self, name: str, X: Table) -> list[tuple[str, Candidate]]:
        """Return the candidates that it stands for.

        Parameters
        ----------
        name : str
            The name of the candidate.
        X : array-like or data frame of n rows
            The table in which a glob is looked up.

        Returns
        -------
        list of (str, Candidate)
            Itself under its name, or one candidate for each column of X that a glob matches.
        """
        return [(name, self)]

    def prediction_columns(self) -> Sequence[ColumnKey]:
        """Return the columns of X that contain its predictions.

        Returns
        -------
        sequence of str or int
            Names or positions; empty if the candidate computes its predictions.
        """
        return ()

    def picks_own_columns(self, X: Table) -> bool:
        """Return whether it chooses its columns itself.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        bool
            If False, the candidate gets X without prediction columns.
        """
        return self.inputs is not None

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
        """Predict each row of X, and check the predictions.

        Parameters
        ----------
        X : array-like or data frame of n rows
            Rows of any kind that the model takes.
        task : {"regression", "classification"}
            The task.
        name : str, optional
            Name of the candidate in error messages. By default its label.
        rows : array-like of shape (n,), optional
            Row numbers for error messages, if X holds only some of the user's rows. By default they
            are counted from zero.
        outputs : OutputNames, optional
            The order of several outputs in regression. The columns of a data frame that the model
            returns are put in this order. By default the first data frame sets the order.
        allow_missing : bool
            Whether predictions may be missing. They are then NaN instead of an error.

        Returns
        -------
        Array
            Regression (n,) or (n, K); classification (n, K), columns in the order of `classes`.
        """
        name = name or self.label
        if self.batch_size is None and self._can_do(task) and n_rows(X):
            # Without a generator, which would take longer than many a model.
            call = _Call(task, name, outputs or OutputNames(), allow_missing)
            return self._predict_batch(unmasked(X), call, rows)
        batches = self.in_batches(
            X, task, name=name, rows=rows, outputs=outputs, allow_missing=allow_missing
        )
        return joined(list(batches), name)

    def in_batches(
        self,
        X: Table,
        task: Task,
        *,
        name: str,
        rows: Rows | None = None,
        outputs: OutputNames | None = None,
        allow_missing: bool = False,
    ) -> Iterator[Array]:
        """Predict batch after batch of rows.

        Parameters
        ----------
        X : array-like or data frame of n rows
            Rows of any kind that the model takes.
        task : {"regression", "classification"}
            The task.
        name : str
            Name of the candidate in error messages.
        rows : array-like of shape (n,), optional
            Row numbers for error messages.
        outputs : OutputNames, optional
            The order of several outputs, as in `predict`.
        allow_missing : bool
            Whether predictions may be missing, as in `predict`.

        Yields
        ------
        Array
            The predictions of one batch, in the form that `predict` returns.
        """
        if not self._can_do(task):
            self.check_task(task, name)
        X = unmasked(X)
        n = n_rows(X)
        if n == 0:
            raise InvalidInputError(f"Candidate {name!r} needs at least one row; X has none.")
        outputs = outputs or OutputNames()
        size = self.batch_size
        if isinstance(size, str):
            size = self._rows_within(size, X, name, rows)
        call = _Call(task, name, outputs, allow_missing)
        if size is None or size >= n:
            yield self._predict_batch(X, call, rows)
            return
        numbers, of = rows, ""
        if numbers is None:
            numbers, of = range(n), f" of {n}"

        def ask(batch: slice) -> Array:
            rows = numbers[batch]
            return self._predict_batch(take_rows(X, batch), call, rows, of)

        batches = [slice(start, start + size) for start in range(0, n, size)]
        with bar(name, n) as advance:
            for predictions in self._in_turn(ask, batches):
                yield predictions
                advance(len(predictions))

    def _in_turn(self, ask: Callable[[slice], Array], parts: list[slice]) -> Iterator[Array]:
        """Predict the batches in order. A kind that waits for a server may overlap them."""
        return map(ask, parts)

    def _predict_batch(self, X: Table, call: _Call, rows: Rows | None, of: str = "") -> Array:
        try:
            output = self._answer(self.select(X), call.task)
        except Exception as error:
            raise self._failure(error, call.name, X, rows, of) from error
        try:
            check_not_reordered(output, X, call.name)
            return as_prediction(
                output,
                name=call.name,
                n=n_rows(X),
                classes=self.classes if call.task == "classification" else None,
                rows=rows,
                outputs=call.outputs,
                allow_missing=call.allow_missing,
            )
        except CandidateError as error:
            if self.source is None:
                raise
            raise CandidateError(
                self._with_source(str(error)), candidate=call.name, rows=error.rows
            ) from error

    def _rows_within(self, amount: str, X: Table, name: str, rows: Rows | None) -> int:
        first_row = take_rows(X, slice(0, 1))
        try:
            return rows_within(amount, self._row_bytes(self.select(first_row)))
        except Exception as error:
            raise self._failure(error, name, first_row, rows) from error

    def _failure(
        self, error: Exception, name: str, X: Table, rows: Rows | None, of: str = ""
    ) -> CandidateError:
        """Return an error with the name of the candidate, the rows, and the model's file."""
        n = n_rows(X)
        numbers = range(n) if rows is None else rows
        if isinstance(error, RowError):
            text = f"Candidate {name!r}, row {numbers[error.row]}: {error}"
        elif isinstance(error, LocalMAError):
            text = f"Candidate {name!r}: {error}"
        else:
            if rows is None:
                of = f" of {n}"
            text = (
                f"Candidate {name!r} raised {type(error).__name__} on {listed_rows(numbers)}{of}: "
                f"{error}. A candidate must predict every row that it receives: fix it, or remove "
                "those rows."
            )
        return CandidateError(self._with_source(text), candidate=name)

    def _with_source(self, text: str) -> str:
        if self.source is None or self.source in text:
            return text
        return f"{text} The model is in {self.source!r}."

    def select(self, X: Table) -> Table:
        """Return the inputs of the model.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The table to predict.

        Returns
        -------
        array-like or data frame of n rows
            The columns that the model takes; X itself if `inputs` is None.
        """
        if self.inputs is None:
            return X
        if callable(self.inputs):
            return self.inputs(X)
        return pick_columns(X, self.inputs)

    def __sklearn_clone__(self) -> Candidate:
        # A search over pools clones its grid, which would turn fitted models into unfitted ones.
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"

    def identity(self) -> Hashable:
        """Return a value that is equal for the same model on the same inputs.

        Returns
        -------
        hashable
            Kind, model, inputs and classes.
        """
        inputs: Hashable = id(self.inputs)
        if isinstance(self.inputs, Sequence):
            inputs = tuple(self.inputs)
        classes = self.classes is not None and tuple(self.classes.tolist())
        return self.kind, self._model_identity(), inputs, classes


class CommonOptions(TypedDict, total=False):
    """Options of every candidate."""

    inputs: Inputs
    cost: float
    batch_size: BatchSize


class NetworkOptions(CommonOptions, total=False):
    """Options of every network that states its own classes."""

    classes: Classes | None
    activation: Activation | None
    temperature: float


class LogitsCandidate(Candidate):
    """A network that returns logits, which are turned into probabilities if requested.

    Subclasses are final and implement `_outputs`.

    Parameters
    ----------
    activation : {"softmax", "sigmoid"}, optional
        "softmax" for one logit per class, "sigmoid" for one logit, that of the second of two
        classes. By default the network's output is used unchanged.
    temperature : float, default=1.0
        Number that divides the logits. `calibrated` fits it.
    classes : array-like of shape (K,), optional
        Labels of the outputs.
    **options
        The options `inputs`, `cost` and `batch_size` of every candidate.
    """

    def __init__(
        self,
        *,
        activation: Activation | None = None,
        temperature: float = 1.0,
        classes: Classes | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        options.setdefault("batch_size", "auto")
        super().__init__(classes=classes, **options)
        self.activation = activation
        self.temperature = checked_temperature(temperature, activation)

    @property
    def runs_beside(self) -> bool:
        """True: a server or a library outside of Python does the work."""
        return True

    @abstractmethod
    def _outputs(self, X: Table, task: Task) -> Output:
        """Return the network's output for these inputs: (n,), (n, 1) or (n, K)."""

    @abstractmethod
    def _network_identity(self) -> Hashable:
        """Equal for two candidates that hold the same network."""

    def _answer(self, X: Table, task: Task) -> Output:
        outputs = self._outputs(X, task)
        if self.activation is None:
            return outputs
        return probabilities(np.asarray(outputs), self.activation, self.temperature)

    def _model_identity(self) -> Hashable:
        return self._network_identity(), self._reading()

    def _reading(self) -> Hashable:
        return self.activation, self.temperature

    def calibrated(self, X: Table, y: Classes) -> Self:
        """Fit the temperature on labelled rows that the network was not trained on.

        Parameters
        ----------
        X : array-like or data frame of n rows
            The inputs.
        y : array-like of shape (n,)
            Labels, each among `classes`.

        Returns
        -------
        LogitsCandidate
            A copy with the fitted temperature. It shares the network.
        """
        if self.activation is None or self.classes is None:
            raise InvalidInputError(
                "A temperature is fitted to logits of known classes: state activation='softmax' "
                f"(or 'sigmoid') and classes=; received activation={self.activation!r} and "
                f"classes={None if self.classes is None else self.classes.tolist()!r}."
            )
        codes = class_codes(y, self.classes)
        logits = self._copy(activation=None).predict(X, "regression")
        return self._copy(temperature=fit_temperature(logits, codes))

    def _copy(self, **changes: float | None) -> Self:
        """Copy the candidate with other options; both share the network."""
        duplicate = copy(self)
        vars(duplicate).update(changes)
        return duplicate


# Recipes: how a saved model rebuilds its candidates.

ImportName = NewType("ImportName", str)
"""A function, by its import name "package.module:name"."""
FilePath = NewType("FilePath", str)
"""A file or folder; in a saved model, relative to the folder of that model."""
Address = NewType("Address", str)
"""A URL."""


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """How to rebuild a candidate, in values that JSON can store.

    A subclass states its fields with their types. A function is stored as an `ImportName`, a path
    as a `FilePath` and a URL as an `Address`.

    Examples
    --------
    >>> recipe = Recipe.from_json({"kind": "column", "columns": ["guess"], "classes": None,
    ...                            "cost": 1.0})
    >>> recipe.needs_trust, recipe.make()
    (False, Column('guess'))
    """

    kind: ClassVar[str]
    needs_trust: ClassVar[bool] = True
    """Whether `make` runs code, or opens files or addresses, that the recipe names."""

    def make(self) -> Candidate:
        """Rebuild the candidate. Imports functions and opens files: for trusted recipes only.

        Returns
        -------
        Candidate
            The candidate.
        """
        return import_object(KINDS[self.kind])(**self.options())

    @classmethod
    def of(cls, candidate: Candidate, **values: Json) -> Self | None:
        """Describe a candidate.

        Parameters
        ----------
        candidate : Candidate
            The candidate.
        **values : JSON values
            Fields that are not attributes of the candidate.

        Returns
        -------
        Recipe or None
            None if the candidate has a function that cannot be imported.
        """
        for field in fields(cls):
            if field.name in values:
                continue
            value = getattr(candidate, field.name)
            if callable(value):
                value = import_name(value)
                if value is None:
                    return None
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            elif isinstance(value, tuple):
                value = list(value)
            values[field.name] = value
        return cls(**values)

    def to_json(self) -> dict[str, Json]:
        """Return the kind and all fields as a JSON object.

        Returns
        -------
        dict
            The values by key.
        """
        values = {_key(field): getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind, **values}

    @staticmethod
    def from_json(document: Json) -> Recipe:
        """Read a JSON object, and check its kind, its fields and their types. Runs no code.

        Parameters
        ----------
        document : dict
            An object from `to_json`.

        Returns
        -------
        Recipe
            The recipe.
        """
        recipe_type = recipe_type_of(document)
        assert isinstance(document, dict)
        kind, types = recipe_type.kind, json_types(recipe_type)
        if set(document) != {"kind", *types}:
            raise FileFormatError(
                f"The recipe of a {kind} must have the fields {sorted(types)}; received "
                f"{shown(sorted(set(document) - {'kind'}))}."
            )
        for key, allowed in types.items():
            value = document[key]
            # In Python, bool is a subclass of int.
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                names = " or ".join(t.__name__ for t in allowed).replace("NoneType", "null")
                raise FileFormatError(
                    f"The field {key!r} in the recipe of a {kind} must be {names}; received "
                    f"{shown(value)}."
                )
        return recipe_type(**{field.name: document[_key(field)] for field in fields(recipe_type)})

    def options(self) -> dict[str, Any]:
        """Return all fields as keyword arguments. Imports the functions that they name.

        Returns
        -------
        dict
            Arguments of the class of the candidate.
        """
        functions = {name: import_object(value) for name, value in self._marked(ImportName).items()}
        return {field.name: getattr(self, field.name) for field in fields(self)} | functions

    def sources(self) -> list[str]:
        """Return the import names, paths and addresses that `make` would follow.

        Returns
        -------
        list of str
            All of them, in the order of the fields.
        """
        return list(self._marked(ImportName, FilePath, Address).values())

    def with_paths(self, change: Callable[[str, Path], str], folder: PathLike) -> Self:
        """Return the recipe with other paths.

        Parameters
        ----------
        change : callable
            A function from a path and `folder` to the new path.
        folder : str or path
            The folder of the saved model.

        Returns
        -------
        Recipe
            A copy, in which each path is replaced.
        """
        paths = self._marked(FilePath)
        return replace(self, **{name: change(path, Path(folder)) for name, path in paths.items()})

    def _marked(self, *marks: type[str]) -> dict[str, str]:
        """Return the strings in fields of these types, by field."""
        types = _alternatives(type(self))
        values = {name: getattr(self, name) for name in types if set(marks) & set(types[name])}
        return {name: value for name, value in values.items() if isinstance(value, str)}


@dataclass(frozen=True, kw_only=True)
class CommonRecipe(Recipe):
    """The options that most kinds of candidates have."""

    inputs: list[ColumnKey] | ImportName | None
    classes: list[Label] | None
    cost: float
    batch_size: int | str | None


@dataclass(frozen=True, kw_only=True)
class LogitsRecipe(CommonRecipe):
    """The options of networks."""

    activation: str | None
    temperature: float


def recipe_type_of(document: Json) -> type[Recipe]:
    """Return the class of a recipe in JSON, by its kind. Runs no code of the recipe."""
    kind = isinstance(document, dict) and document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileFormatError(
            f"Unknown kind of candidate {shown(kind or None)}; known: {sorted(KINDS)}."
        )
    return import_object(KINDS[kind])._recipe_type


def recipe_beside(candidate: Candidate, folder: PathLike) -> Recipe | None:
    """Describe a candidate, with paths relative to the folder of the saved model.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    folder : str or path
        The folder of the saved model.

    Returns
    -------
    Recipe or None
        None if the candidate exists only in memory.

    Examples
    --------
    >>> from localma.candidates import Column
    >>> recipe_beside(Column("guess"), "models").to_json()["columns"]
    ['guess']
    """
    recipe = candidate.recipe()
    return recipe and recipe.with_paths(beside, folder)


def from_recipe(recipe: Recipe, folder: PathLike = ".") -> Candidate:
    """Rebuild a candidate. May run code: check `recipe.needs_trust` before.

    Parameters
    ----------
    recipe : Recipe
        A recipe from `Candidate.recipe`, `recipe_beside` or `Recipe.from_json`.
    folder : str or path, default="."
        The folder where relative paths start.

    Returns
    -------
    Candidate
        The candidate.

    Examples
    --------
    >>> from localma.candidates import Column
    >>> from_recipe(Column("guess").recipe())
    Column('guess')
    """
    try:
        return recipe.with_paths(found_beside, folder).make()
    except InvalidInputError as error:
        raise FileFormatError(
            f"The recipe {shown(recipe.to_json())} cannot be followed: {error}"
        ) from error


def _key(field: Field[object]) -> str:
    """Key of a field in JSON, which may be a word that Python reserves."""
    return str(field.metadata.get("key", field.name))


@cache  # reading annotations runs `eval`, which a loader must not do for each file
def _alternatives(recipe_type: type[Recipe]) -> dict[str, tuple[Any, ...]]:
    """Types that each field may have, such as ``(list[int], ImportName, NoneType)``."""
    hints = get_type_hints(recipe_type)
    return {
        field.name: get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
        for field in fields(recipe_type)
        for hint in [hints[field.name]]
    }


def json_types(recipe_type: type[Recipe]) -> dict[str, tuple[type, ...]]:
    """Types that each field has in JSON, by key, such as ``(list, str, NoneType)``."""
    types: dict[str, tuple[type, ...]] = {}
    for field in fields(recipe_type):
        hints = [get_origin(hint) or hint for hint in _alternatives(recipe_type)[field.name]]
        if float in hints:
            hints.insert(0, int)  # JSON has one type of numbers
        types[_key(field)] = tuple(getattr(hint, "__supertype__", hint) for hint in hints)
    return types


# Rows per call: a number, all rows, or as many as an amount of memory allows.


def listed_rows(rows: Rows) -> str:
    """Row numbers for an error message; at most five if they are not consecutive.

    >>> listed_rows([3, 4, 5]), listed_rows([1, 2, 4])
    ('rows 3 to 5', 'rows 1, 2, 4')
    """
    start, last, count = rows[0], rows[-1], len(rows)
    if last - start + 1 == count:
        return f"rows {start} to {last}"
    numbers = ", ".join(str(row) for row in rows[:5])
    return f"rows {numbers}" + f" and {count - 5} more, the last {last}" * (count > 5)


def joined(batches: list[Array], name: str) -> Array:
    """Join the predictions of all batches; an error if their numbers of outputs differ."""
    if len(batches) == 1:
        return batches[0]
    shapes = {batch.shape[1:] for batch in batches}
    if len(shapes) > 1:
        raise CandidateError(
            f"Candidate {name!r} returned a different number of outputs from one batch of rows to "
            f"the next: {sorted(shapes)}; return the same columns for all rows.",
            candidate=name,
        )
    return np.concatenate(batches)


def _checked_inputs(inputs: Inputs | int) -> Inputs:
    if inputs is None or callable(inputs):
        return inputs
    if isinstance(inputs, str | int):
        inputs = [inputs]
    return checked_columns(inputs, "inputs")


def checked_batch_size(batch_size: BatchSize) -> BatchSize:
    """Check that it is None, a whole number, "auto" or an amount of memory.

    >>> checked_batch_size("512 MiB")
    '512 MiB'
    """
    if batch_size is None:
        return None
    if isinstance(batch_size, str):
        memory_bytes(batch_size)
        return batch_size
    whole = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool)
    if not whole or batch_size < 1:
        raise InvalidInputError(
            "batch_size must be None, a whole number of one or more, 'auto', or an amount of "
            f"memory such as '256 MiB'; received {batch_size!r}."
        )
    return int(batch_size)


def memory_bytes(amount: str) -> int:
    """Return an amount of memory in bytes.

    >>> memory_bytes("1.5 KiB"), memory_bytes("auto") == AUTO_MEMORY
    (1536, True)
    """
    if amount == "auto":
        return AUTO_MEMORY
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", amount)
    size = int(float(match[1]) * _UNITS.get(match[2].upper(), 0)) if match else 0
    if size < 1:
        raise InvalidInputError(
            "batch_size as a string is 'auto' or an amount of memory such as '256 MiB' or '2 GB'; "
            f"received {amount!r}."
        )
    return size


def rows_within(amount: str, row_bytes: int) -> int:
    """Return the number of rows that fit into an amount of memory, at least one.

    >>> rows_within("1 MiB", 16 * 1024), rows_within("1 KiB", 16 * 1024)
    (64, 1)
    """
    return max(1, memory_bytes(amount) // max(1, row_bytes))


def working_bytes(*inputs: Table) -> int:
    """Estimate the memory that a network needs per row, from its inputs.

    The estimate depends on the inputs only, so the same rows always make the same batches.

    >>> working_bytes(np.zeros((5, 3, 32, 32), dtype=np.float32)) == 48 * 3 * 32 * 32 * 4
    True
    """
    return max(LEAST_ROW_BYTES, WORKING_COPIES * sum(input_row_bytes(X) for X in inputs))


def input_row_bytes(X: Table) -> int:
    """Return the number of bytes of the first row of X.

    >>> input_row_bytes(np.zeros((5, 3))), input_row_bytes(["four", "a longer text"])
    (24, 4)
    """
    row = take_rows(X, slice(0, 1))
    shape = getattr(row, "shape", None)
    if issparse(row) or (shape and not isinstance(getattr(row, "nbytes", None), int)):
        return 8 * prod(row.shape)
    if isinstance(row, list | tuple):
        row = row[0]
    if isinstance(row, str | bytes):
        return len(row)
    return int(getattr(row, "nbytes", 8))
