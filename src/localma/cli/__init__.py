"""The command line: from a table with a column per model to predictions, tables and a page.

One file per group of commands. Work that fails ends with the code 1, a wrong call with 2, an
interrupted one with 130 (Ctrl-C) or 143 (SIGTERM); what people read goes to the terminal by rich,
what machines read is JSON (``--json``).
"""

from __future__ import annotations

from localma.cli.app import app
from localma.cli.commands import register

register(app)

__all__ = ["app"]
