"""The entry point of the command line: `localma` and `python -m localma`."""

from __future__ import annotations

import sys

from localma.errors import MissingDependencyError


def main() -> None:
    """Run the command line, or say which extra it needs."""
    try:
        from localma.cli import app
    except MissingDependencyError as error:
        sys.exit(f"localma: {error}")
    app()


if __name__ == "__main__":
    main()
