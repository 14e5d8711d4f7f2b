"""Candidates that a TOML file describes: one table each, named as the candidate is to be.

::

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

Whatever else a table has are options of the kind of candidate: classes, activation, batch_size ...
All but columns open files or addresses, or run code: the user must say that they trust the file.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from localma.candidates import Candidate, Column, as_candidate
from localma.candidates.base import KINDS
from localma.candidates.pool import SUFFIXES
from localma.cli.app import wrong_call
from localma.errors import InvalidInputError
from localma.imports import import_name, import_object, modules_beside

PLACES = ("file", "url", "import", "column")
"""What says where a candidate is; each table has one."""
NEED_TRUST = ("file", "url", "import")
"""An ONNX file names further files, a .pt2 or .skops file runs code, a folder does both."""


def read_pool(path: Path, *, trust: bool) -> dict[str, Candidate]:
    """Make the candidates of a file, by name, in its order."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise wrong_call(f"{path} must be a TOML file, and cannot be read: {error}.") from error
    strange = [name for name, table in tables.items() if not isinstance(table, dict)]
    if not tables or strange:
        raise wrong_call(
            f"{path} must have a table per candidate, such as [north] with file = 'north.onnx'; "
            f"received {strange or 'none'}."
        )
    if not trust:
        _refuse_untrusted(path, tables)
    return {name: _candidate(name, dict(t), path.parent) for name, t in tables.items()}


def _refuse_untrusted(path: Path, tables: dict[str, dict[str, Any]]) -> None:
    """Refuse whatever is more than a column, before any of it is opened."""
    entries = [
        f"{name!r} ({_shown(place, table[place])})"
        for name, table in tables.items()
        for place in NEED_TRUST
        if place in table
    ]
    if entries:
        raise wrong_call(
            f"{path} names files, addresses or functions, which may run code, for the candidates "
            f"{', '.join(entries)}. Add --trust if you trust whoever wrote {path.name}."
        )


def _shown(place: str, where: Any) -> str:
    """An entry as it stands in the file; without the address, which may hold a secret."""
    return place if place == "url" else f"{place} = {where!r}"


def _candidate(name: str, options: dict[str, Any], folder: Path) -> Candidate:
    stated = [place for place in PLACES if place in options]
    if len(stated) != 1:
        raise wrong_call(
            f"Candidate {name!r} must have one of {', '.join(PLACES)}; it has {stated or 'none'}."
        )
    place = stated[0]
    where = str(options.pop(place))
    try:
        return _MAKE[place](where, options, folder)
    except (TypeError, InvalidInputError) as error:
        raise wrong_call(f"Candidate {name!r} cannot be made: {_in_words(error)}") from error


def _in_words(error: TypeError | InvalidInputError) -> str:
    """What is wrong with the options of a candidate."""
    if isinstance(error, InvalidInputError):
        return error.plain
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    return str(error) if unknown is None else f"its kind has no option {unknown[1]!r}."


def _from_file(where: str, options: dict[str, Any], folder: Path) -> Candidate:
    path = folder / where
    kind = "transformers" if (path / "config.json").is_file() else SUFFIXES.get(path.suffix.lower())
    if kind is None:
        return as_candidate(str(path))  # which says what is wrong with it
    candidate: Candidate = import_object(KINDS[kind])(str(path), **options)
    return candidate


def _from_url(where: str, options: dict[str, Any], folder: Path) -> Candidate:
    candidate: Candidate = import_object(KINDS["http"])(where, **options)
    return candidate


def _from_import(where: str, options: dict[str, Any], folder: Path) -> Candidate:
    with modules_beside(folder):
        function = import_object(where)
    if not callable(function) or import_name(function) is None:
        raise InvalidInputError(
            f"import must name a function of a table, which can be found again under its name; "
            f"{where!r} is a {type(function).__name__}."
        )
    return as_candidate(function, **options)


def _from_column(where: str, options: dict[str, Any], folder: Path) -> Candidate:
    return Column(where, **options)


_MAKE = {
    "file": _from_file,
    "url": _from_url,
    "import": _from_import,
    "column": _from_column,
}
