"""The entry point of the command line: `localma` and `python -m localma`."""

from __future__ import annotations

import os
import sys

from localma._signals import ending_on_signals
from localma.errors import LocalMAError, MissingDependencyError
from localma.wording import printable

DEBUG = "LOCALMA_DEBUG"
"""The environment variable that shows tracebacks, to whoever looks for a mistake of ours."""


def main() -> None:
    """Run the command line: 0 is success, 1 work that failed, 2 a wrong call."""
    try:
        from localma.cli import app
        from localma.cli.showing import escape_messages
    except MissingDependencyError as error:
        sys.exit(f"localma: {error}")
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
