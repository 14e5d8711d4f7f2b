"""The command line: from a table with a column per model to predictions and reports.

Each command has a function, which parses its options, calls the library and prints the result.
Exit codes: 0 for success, 1 if the work fails, 2 for a wrong call, 130 after Ctrl-C and 143 after
SIGTERM.
"""

from __future__ import annotations

from localma.cli.app import app

__all__ = ["app"]
