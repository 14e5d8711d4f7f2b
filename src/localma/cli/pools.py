"""Candidates that a TOML file describes: one table each, named as the candidate is to be.

::

    [north]
    file = "north.onnx"                  # .onnx, .pt2, .skops, or a transformers folder
    inputs = ["area", "rooms"]

    [vendor]
    url = "https://models.example/rent"  # with --trust
    headers_from_env = { Authorization = "RENT_API_KEY" }

    [ours]
    import = "package.module:function"   # with --trust; a function of a table

    [guess]
    column = "broker_guess"

Whatever else a table has are options of the kind of candidate: classes, activation, batch_size ...
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

from localma.candidates import Candidate, Column, as_candidate
from localma.candidates.infer import KINDS, SUFFIXES
from localma.cli.app import wrong_call
from localma.errors import InvalidInputError
from localma.imports import import_name, import_object

PLACES = ("file", "url", "import", "column")
"""What says where a candidate is; each table has one."""


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
    return {name: _candidate(name, dict(t), path.parent, trust) for name, t in tables.items()}


def _candidate(name: str, options: dict[str, Any], folder: Path, trust: bool) -> Candidate:
    stated = [place for place in PLACES if place in options]
    if len(stated) != 1:
        raise wrong_call(
            f"Candidate {name!r} must have one of {', '.join(PLACES)}; it has {stated or 'none'}."
        )
    place = stated[0]
    where = str(options.pop(place))
    if place in ("url", "import") and not trust:
        raise wrong_call(
            f"Candidate {name!r} is {place} = {where!r}, which runs code or opens an address: add "
            "--trust if you trust the file that says so."
        )
    try:
        return _MAKE[place](where, options, folder)
    except (TypeError, InvalidInputError) as error:
        raise wrong_call(f"Candidate {name!r} cannot be made: {error}") from error


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


def search(folder: Path) -> None:
    """Let modules of a folder be imported, as Python does for a script in it; once trusted."""
    place = str(folder.absolute())
    if place not in sys.path:
        sys.path.insert(0, place)


def _from_import(where: str, options: dict[str, Any], folder: Path) -> Candidate:
    search(folder)
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
