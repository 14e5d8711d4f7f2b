"""``localma inspect``, ``cache``, ``warm-up`` and ``demo``: commands that need no table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from typer import Option

import localma
from localma._types import Json
from localma.candidates.recipes import recipe_type_of
from localma.cli.app import AsJson, ModelFile, Seed, WrongCallError, option
from localma.cli.terminal import print_json, say, show_table
from localma.errors import FileFormatError
from localma.formatting import fixed, printable
from localma.model_file import inspect as read_description
from localma.production.changes import Change
from localma.storage.array_file import ArrayFile
from localma.storage.cache import cache_folder, cache_info, clean_cache

MAX_NAMES = 20
"""Names that are printed in full; the remaining ones are counted."""

MAX_LINE = 2_000
"""Characters of a line. Without a limit, a file could print a line as long as itself."""


def inspect(model: ModelFile, as_json: AsJson = False) -> None:
    """Show the contents of a model file and verify its checksum.

    No candidate is loaded and no code from the file is run, so it is safe for files from people
    you do not trust. The checksum detects damage. It does not prove who made the file.

    Example: localma inspect rent.localma
    """
    file = read_description(model)
    if as_json:
        arrays: dict[str, Json] = {
            name: {"dtype": kind.dtype.name, "shape": list(kind.shape)}
            for name, kind in file.types.items()
        }
        print_json(
            {
                "file": str(model),
                "bytes": model.stat().st_size,
                "format_version": file.version,
                "sha256": file.sha256,
                "description": file.description,
                "arrays": arrays,
            }
        )
        return
    for name, text in _lines(model, file):
        sys.stdout.write(f"{name:<12}{printable(text[:MAX_LINE])}\n")


def _lines(path: Path, file: ArrayFile) -> Iterator[tuple[str, str]]:
    saved = file.description
    yield "file", f"{path} ({path.stat().st_size:,} bytes)"
    yield "format", str(file.version)
    yield "sha256", f"{file.sha256} (verified)"
    yield "model", str(saved["estimator"])
    yield "loss", str(saved["loss"].get("name"))
    yield "gate", str(saved["gate"].get("kind"))
    for entry in saved["candidates"][:MAX_NAMES]:
        yield "candidate", _describe_candidate(entry)
    if len(saved["candidates"]) > MAX_NAMES:
        yield "", f"and {len(saved['candidates']) - MAX_NAMES} more candidates"
    for name, field in {"columns": "feature_names_in", "classes": "classes"}.items():
        if saved[field] is not None:
            yield name, _list_names(saved[field])
    changes = saved.get("changes", [])
    for change in changes[-MAX_NAMES:]:
        yield "change", _describe_change(change)
    for name, text in list(saved["notes"].items())[:MAX_NAMES]:
        yield "note", f"{name}: {text}"
    cautions = saved["evidence"].get("cautions")
    if isinstance(cautions, list):
        for caution in cautions[:MAX_NAMES]:
            yield "caution", str(caution.get("sentence") if isinstance(caution, dict) else caution)
    yield "arrays", f"{len(file.types)}"


def _list_names(names: Sequence[Json]) -> str:
    text = ", ".join(str(name) for name in names[:MAX_NAMES])
    if len(names) > MAX_NAMES:
        text += f" and {len(names) - MAX_NAMES} more"
    return text


def _describe_change(change: Json) -> str:
    if isinstance(change, dict):
        with suppress(TypeError, ValueError):
            return str(Change(**change))  # type: ignore[arg-type]
    return f"unknown form: {str(change)[:100]}"


def _describe_candidate(entry: Json) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("recipe"), dict | None):
        return f"unknown form: {str(entry)[:100]}"
    recipe = entry.get("recipe")
    if not isinstance(recipe, dict):
        return f"{entry.get('name')}: not in the file"
    description = f"{entry.get('name')}: {recipe.get('kind')}"
    try:
        if recipe_type_of(recipe).needs_trust:
            description += ", needs --trust"
    except FileFormatError:
        description += ", unknown kind"
    return description


def cache(
    folder: Annotated[
        Path | None, Option(help="Folder of the cache; default: $LOCALMA_CACHE or your user cache.")
    ] = None,
    clean: Annotated[bool, Option("--clean", help="Delete the cached predictions.")] = False,
    older_than: Annotated[
        float | None,
        option("DAYS", "With --clean: delete only what was not used for this long.", min=0),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or clean the cache of predictions.

    Example: localma cache
    """
    folder = cache_folder(folder)
    if older_than is not None and not clean:
        raise WrongCallError("--older-than only works with --clean; add --clean, or leave it out.")
    if folder.is_file():
        raise WrongCallError(f"--folder: {str(folder)!r} is a file; name a folder.")
    if clean:
        _clean(folder, older_than, as_json)
        return
    entries = cache_info(folder)
    if as_json:
        print_json(
            [
                {
                    "candidate": entry.candidate,
                    "task": entry.task,
                    "rows": entry.rows,
                    "bytes": entry.bytes,
                    "last_used": entry.last_used.isoformat(timespec="seconds"),
                }
                for entry in entries
            ]
        )
    elif not entries:
        say(f"The cache in {folder} is empty.")
    else:
        body = [
            [e.candidate, e.task, f"{e.rows:,}", _size(e.bytes), f"{e.last_used:%Y-%m-%d %H:%M}"]
            for e in entries
        ]
        show_table(str(folder), ["candidate", "task", "rows", "size", "last used"], body)


def _clean(folder: Path, days: float | None, as_json: bool) -> None:
    age = None if days is None else timedelta(days=days)
    freed = clean_cache(folder, older_than=age)
    if as_json:
        print_json({"folder": str(folder), "freed_bytes": freed})
    else:
        say(f"freed {_size(freed)} in {folder}")


def _size(n_bytes: int) -> str:
    """Write a size in units that people read.

    >>> _size(3 * 2**20), _size(512)
    ('3.0 MiB', '0.5 KiB')
    """
    if n_bytes >= 2**20:
        return f"{n_bytes / 2**20:.1f} MiB"
    return f"{n_bytes / 2**10:.1f} KiB"


def warm_up(as_json: AsJson = False) -> None:
    """Compile the code for fits and predictions in advance.

    Run it once when you build a container image. Otherwise the first fit or prediction on a
    machine compiles, which takes a few seconds.

    Example: localma warm-up
    """
    folder = localma.warm_up()
    if as_json:
        print_json({"cache": None if folder is None else str(folder)})
    elif folder is None:
        say("Compiled, but the result cannot be stored: every process will compile again.")
        say("Set the environment variable NUMBA_CACHE_DIR to a folder that you can write to.")
    else:
        sys.stdout.write(f"Compiled. The result is stored in {folder}\n")  # never wrapped


def demo(
    out: Annotated[Path, Option(help="Folder for the two pictures.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Run the motivating example of the paper.

    Two linear models are each right on one half of x^3. The demo learns which to trust where.

    Example: localma demo --out demo
    """
    from localma.demo import draw, motivating_example  # used by this command only

    example = motivating_example(seed=seed)
    errors = example.errors()
    show_table(
        "x^3 on [-2, 2] from two linear models and 200 labelled points",
        ["prediction by", "MSE against the truth"],
        [[name, fixed(error, 3)] for name, error in errors.items()],
        best=list(errors.values()).index(min(errors.values())),
    )
    say(example.mixtures["local"].verdict_)
    for path in draw(example, out):
        say(f"wrote {path}")
