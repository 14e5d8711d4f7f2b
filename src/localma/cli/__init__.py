"""The command line: from a table with a column per model to predictions and reports.

Each command has a function, which parses its options, calls the library and prints the result.
Exit codes: 0 for success, 1 if the work fails, 2 for a wrong call, 130 after Ctrl-C and 143 after
SIGTERM.
"""

from __future__ import annotations

from localma.cli import evaluate, explain, fit, maintain, predict, report
from localma.cli.app import add_command, app

for _command in (
    fit.fit,
    predict.predict,
    evaluate.evaluate,
    explain.weights,
    explain.explain,
    report.report,
    maintain.inspect,
    maintain.cache,
    maintain.warm_up,
    maintain.demo,
):
    add_command(_command)

__all__ = ["app"]
