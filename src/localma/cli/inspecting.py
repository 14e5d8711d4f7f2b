"""``localma inspect``: what a model file says, without loading its candidates."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localma.candidates.base import recipe_type_of
from localma.cli.app import AsJson, ModelFile
from localma.cli.showing import print_json
from localma.errors import FileFormatError
from localma.model_file import inspect as read_description
from localma.storage.array_file import ArrayFile
from localma.wording import printable

MOST_NAMES = 20
"""Names that are printed in full; the others are counted."""

LONGEST_LINE = 2_000
"""Characters of a line; a file could make it as long as itself."""


def inspect(model: ModelFile, as_json: AsJson = False) -> None:
    """Show what a model file holds, and verify its checksum.

    No candidate is loaded and nothing in the file is run, so it is safe for files from people you
    do not trust. The checksum tells damage; it does not tell who made the file.

    Example: localma inspect rent.localma
    """
    file = read_description(model)
    if as_json:
        print_json(_as_json(model, file))
        return
    for name, text in _lines(model, file):
        sys.stdout.write(f"{name:<12}{printable(text[:LONGEST_LINE])}\n")


def _as_json(path: Path, file: ArrayFile) -> dict[str, Any]:
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "format_version": file.version,
        "sha256": file.sha256,
        "description": file.description,
        "arrays": {
            name: {"dtype": kind.dtype.name, "shape": list(kind.shape)}
            for name, kind in file.types.items()
        },
    }


def _lines(path: Path, file: ArrayFile) -> Iterator[tuple[str, str]]:
    saved = file.description
    yield "file", f"{path} ({path.stat().st_size:,} bytes)"
    yield "format", str(file.version)
    yield "sha256", f"{file.sha256} (verified)"
    yield "model", str(saved["estimator"])
    yield "loss", str(saved["loss"].get("name"))
    yield "gate", str(saved["gate"].get("kind"))
    for entry in saved["candidates"][:MOST_NAMES]:
        yield "candidate", _candidate(entry)
    if len(saved["candidates"]) > MOST_NAMES:
        yield "", f"and {len(saved['candidates']) - MOST_NAMES} more candidates"
    if saved["feature_names_in"] is not None:
        yield "columns", _listed(saved["feature_names_in"])
    if saved["classes"] is not None:
        yield "classes", _listed(saved["classes"])
    for name, text in list(saved["notes"].items())[:MOST_NAMES]:
        yield "note", f"{name}: {text}"
    cautions = saved["evidence"].get("cautions")
    for caution in cautions[:MOST_NAMES] if isinstance(cautions, list) else []:
        yield "caution", str(caution.get("sentence") if isinstance(caution, dict) else caution)
    yield "arrays", f"{len(file.types)}"


def _listed(values: list[Any]) -> str:
    text = ", ".join(str(value) for value in values[:MOST_NAMES])
    more = len(values) - MOST_NAMES
    return f"{text} and {more} more" if more > 0 else text


def _candidate(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("recipe"), dict | None):
        return f"unknown form: {str(entry)[:100]}"
    recipe = entry.get("recipe")
    if recipe is None:
        return f"{entry.get('name')}: not in the file"
    try:
        trust = ", needs --trust" if recipe_type_of(recipe).needs_trust else ""
    except FileFormatError:
        trust = ", unknown kind"
    return f"{entry.get('name')}: {recipe.get('kind')}{trust}"
