"""``localma warm-up``: compile ahead of the first fit or prediction."""

from __future__ import annotations

import sys

import localma
from localma.cli.app import AsJson
from localma.cli.showing import print_json, say


def warm_up(as_json: AsJson = False) -> None:
    """Compile what fits and predictions need, and print where it is kept.

    Run it once while you build a container image. Without it the first fit or prediction on a
    machine compiles, which takes seconds.

    Example: localma warm-up
    """
    folder = localma.warm_up()
    if as_json:
        print_json({"cache": None if folder is None else str(folder)})
    elif folder is None:
        say("Compiled, but no folder for the result can be written: every process compiles anew.")
        say("Set the environment variable NUMBA_CACHE_DIR to a folder that can be written.")
    else:
        sys.stdout.write(f"Compiled. The result is kept in {folder}\n")  # never wrapped
