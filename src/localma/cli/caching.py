"""``localma cache``: what the cache of predictions holds, and cleaning it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from localma.cli.app import AsJson, typer, wrong_call
from localma.cli.showing import print_json, say, show_table
from localma.storage.cache import cache_info, clean_cache, default_folder


def cache(
    folder: Annotated[
        Path | None, typer.Option(help="The cache; default: $LOCALMA_CACHE or the user's.")
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what it holds.")] = False,
    older_than: Annotated[
        float | None, typer.Option(min=0, help="With --clean: only what was not used for days.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or clean the cache of predictions.

    Example: localma cache
    """
    where = folder or default_folder()
    if older_than is not None and not clean:
        raise wrong_call("--older-than says what --clean removes; give both, or neither.")
    if where.is_file():
        raise wrong_call(f"--folder must be a folder, and {str(where)!r} is a file.")
    if clean:
        age = None if older_than is None else timedelta(days=older_than)
        freed = clean_cache(where, older_than=age)
        if as_json:
            print_json({"folder": str(where), "freed_bytes": freed})
        else:
            say(f"freed {_size(freed)} in {where}")
        return
    entries = cache_info(where)
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
        say(f"nothing is cached in {where}")
    else:
        body = [
            [e.candidate, e.task, f"{e.rows:,}", _size(e.bytes), f"{e.last_used:%Y-%m-%d %H:%M}"]
            for e in entries
        ]
        show_table(str(where), ["candidate", "task", "rows", "size", "last used"], body)


def _size(count: int) -> str:
    """Bytes in words.

    >>> _size(3 * 2**20)
    '3.0 MiB'
    """
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
