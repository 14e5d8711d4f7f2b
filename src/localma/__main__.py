"""The entry point of the command line: `localma` and `python -m localma`."""

from __future__ import annotations

import os
import sys

from localma._optional import optional
from localma._signals import ending_on_signals
from localma.errors import LocalMAError, MissingDependencyError
from localma.formatting import printable

DEBUG = "LOCALMA_DEBUG"
"""The environment variable that makes the program show tracebacks."""


def main() -> None:
    """Run the command line; exit codes are 0 for success, 1 for failure, 2 for a wrong call."""
    try:
        for package in ("typer", "rich", "pyarrow"):
            optional(package, extra="cli")
    except MissingDependencyError as error:
        sys.exit(f"localma: {error}")
    from localma.cli import app
    from localma.cli.terminal import escape_messages

    escape_messages()
    with ending_on_signals():
        try:
            app()
        except (LocalMAError, OSError) as error:
            _fail(str(error))
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            _fail(f"unexpected {type(error).__name__}: {error}. Set {DEBUG}=1 to see where.")


def _fail(message: str) -> None:
    sys.stderr.write("localma: " + printable(message, "\n") + "\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
