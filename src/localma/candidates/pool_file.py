"""Pools that a TOML file describes, or the columns of a table.

A file has one table per candidate, under the name of the candidate::

    [guess]
    column = "broker_guess"

    [north]
    file = "north.onnx"                  # .onnx, .pt2, .skops, or a transformers folder
    inputs = ["area", "rooms"]

    [vendor]
    url = "https://models.example/rent"
    headers_from_env = { Authorization = "RENT_API_KEY" }

    [ours]
    import = "package.module:function"   # a function of a table

The other entries of a table are options of that kind of candidate: classes, activation,
batch_size and so on.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from narwhals.typing import IntoDataFrame

from localma._types import AnyArray, Json
from localma.candidates.base import Candidate, TableFunction
from localma.candidates.column import Column
from localma.candidates.conversion import as_candidate, from_path
from localma.candidates.recipes import KINDS
from localma.errors import InvalidInputError, UntrustedFileError
from localma.imports import import_name, import_object, modules_beside
from localma.tables.frames import ColumnKey, column_names, positions_of
from localma.tables.roles import RoleError, check_column, class_columns

SOURCES = ("file", "url", "import", "column")
"""Keys that state where a candidate comes from. Each table has exactly one."""
UNTRUSTED_SOURCES = ("file", "url", "import")
"""An ONNX file can name further files. A .pt2 or .skops file, or a folder, can run code."""


def read_pool(path: str | os.PathLike[str], *, trust: bool = False) -> dict[str, Candidate]:
    """Make the candidates that a TOML file describes.

    Parameters
    ----------
    path : path-like
        The file. Paths in it are relative to its folder.
    trust : bool
        Whether files, addresses and functions may be opened. They can run code, so set it only
        if you trust the authors of the file. A pool of columns needs no trust.

    Returns
    -------
    dict of str to Candidate
        The candidates by name, in the order of the file.

    Raises
    ------
    InvalidInputError
        If the file is not TOML, or an entry does not describe a candidate.
    UntrustedFileError
        If the file has more than columns and `trust` is False.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "pool.toml")
    ...     _ = file.write_text("[guess]\\ncolumn = 'broker_guess'")
    ...     read_pool(file)
    {'guess': Column('broker_guess')}
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} must be a TOML file and cannot be read: {error}."
        ) from error
    invalid = [name for name, table in tables.items() if not isinstance(table, dict)]
    if not tables or invalid:
        raise InvalidInputError(
            f"{path} must have one table per candidate, such as [north] with file = 'north.onnx'; "
            f"received {invalid or 'none'}."
        )
    if not trust:
        _refuse_untrusted(path, tables)
    return {name: _candidate(name, dict(table), path.parent) for name, table in tables.items()}


def _refuse_untrusted(path: Path, tables: dict[str, dict[str, Json]]) -> None:
    """Refuse everything except columns before any of it is opened."""
    entries = [
        # An address may contain a secret, so it is not shown.
        f"{name!r} ({source})" if source == "url" else f"{name!r} ({source} = {table[source]!r})"
        for name, table in tables.items()
        for source in UNTRUSTED_SOURCES
        if source in table
    ]
    if entries:
        raise UntrustedFileError(
            f"{path} names files, addresses or functions for the candidates {', '.join(entries)}. "
            "They may run code.",
            python_hint=f"Pass trust=True if you trust the authors of {path.name}.",
        )


def _candidate(name: str, options: dict[str, Any], folder: Path) -> Candidate:
    sources = [source for source in SOURCES if source in options]
    if len(sources) != 1:
        raise InvalidInputError(
            f"Candidate {name!r} must have one of {', '.join(SOURCES)}; it has {sources or 'none'}."
        )
    value = str(options.pop(sources[0]))
    try:
        if sources == ["file"]:
            return from_path(str(folder / value), options)
        if sources == ["import"]:
            return as_candidate(_function(value, folder), **options)
        kind = {"url": "http", "column": "column"}[sources[0]]
        return import_object(KINDS[kind])(value, **options)
    except InvalidInputError as error:
        raise InvalidInputError(f"Candidate {name!r} cannot be made: {error.plain}") from error
    except TypeError as error:
        reason = str(error)
        if unknown := re.search(r"unexpected keyword argument '(\w+)'", reason):
            reason = f"its kind has no option {unknown[1]!r}."
        raise InvalidInputError(f"Candidate {name!r} cannot be made: {reason}") from error


def _function(name: str, folder: Path) -> TableFunction:
    with modules_beside(folder):
        function = import_object(name)
    if not callable(function) or import_name(function) is None:
        raise InvalidInputError(
            f"import must name a function of a table that can be imported by its name; {name!r} "
            f"is a {type(function).__name__}."
        )
    return function


def column_candidates(
    columns: Sequence[str], classes: AnyArray | None = None, positive: str | None = None
) -> dict[str, Candidate]:
    """Make candidates of the prediction columns of a table.

    Parameters
    ----------
    columns : sequence of str
        The prediction columns.
    classes : array of shape (n_classes,), optional
        The classes of the target; None for a regression.
    positive : str, optional
        The class whose probability single columns hold, as text.

    Returns
    -------
    dict of str to Candidate
        One candidate per column, or per classifier (see `localma.tables.roles.class_columns`).

    Examples
    --------
    >>> import numpy as np
    >>> column_candidates(["a_no", "a_yes"], np.array(["no", "yes"]))
    {'a': Column('a_no+a_yes')}
    """
    if classes is None:
        return {name: Column(name) for name in columns}
    return {
        name: Column(list(entry.columns), classes=np.array(entry.classes))
        for name, entry in class_columns(columns, classes.tolist(), positive).items()
    }


def prediction_columns(pool: Mapping[str, Candidate], names: Sequence[str]) -> list[str]:
    """List the columns of a table, and the globs, that hold predictions of a pool.

    Parameters
    ----------
    pool : mapping of str to Candidate
        The candidates by name.
    names : sequence of str
        The columns of the table.

    Returns
    -------
    list of str
        Globs first, then names.

    Examples
    --------
    >>> prediction_columns({"a": Column("pred_*"), "b": Column(1)}, ["area", "guess", "pred_a"])
    ['pred_*', 'guess']
    """
    columns = [candidate for candidate in pool.values() if isinstance(candidate, Column)]
    globs = [str(column.columns[0]) for column in columns if column.is_glob]
    keys = [key for column in columns if not column.is_glob for key in column.columns]
    for key in keys:
        if isinstance(key, str):
            check_column("models", key, names)
        elif not 0 <= key < len(names):
            raise RoleError(
                "models",
                f"the table has no column {key}; it has {len(names)} columns, counted from 0.",
            )
    by_key: dict[ColumnKey, str] = {**dict(enumerate(names)), **{name: name for name in names}}
    return globs + [by_key[key] for key in keys]


def input_columns(
    pool: Mapping[str, Candidate], table: IntoDataFrame, hidden: Iterable[str | None] = ()
) -> set[str]:
    """List the columns of a table that the models of a pool use.

    Inputs that are stated as positions become names, so that the models also work on a table with
    fewer columns.

    Parameters
    ----------
    pool : mapping of str to Candidate
        The candidates by name.
    table : data frame
        The labelled sample.
    hidden : iterable of str
        Columns that only a model that states them sees, such as the target.

    Returns
    -------
    set of str
        The stated inputs; all columns that are not hidden if a model does not state its inputs.

    Examples
    --------
    >>> import polars
    >>> model = as_candidate(len, inputs=[1])
    >>> input_columns({"a": model}, polars.DataFrame({"area": [1], "rooms": [2]}))
    {'rooms'}
    >>> model.inputs
    ['rooms']
    """
    names = column_names(table) or []
    inputs: set[str] = set()
    models = [candidate for candidate in pool.values() if not isinstance(candidate, Column)]
    for model in models:
        if isinstance(model.inputs, list):
            try:
                positions = positions_of(table, model.inputs)
            except InvalidInputError as error:
                reason = error.plain.removeprefix("X ")
                raise RoleError(
                    "models", f"inputs of {model.label!r}: the table {reason}"
                ) from error
            model.inputs = [names[position] for position in positions]
            inputs.update(names[position] for position in positions)
    if all(isinstance(model.inputs, list) for model in models):
        return inputs
    return set(names) - set(hidden)
