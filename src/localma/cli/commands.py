"""The commands, in the order in which ``localma --help`` lists them."""

from __future__ import annotations

from typing import Any

from localma.cli.caching import cache
from localma.cli.demo import demo
from localma.cli.fitting import fit
from localma.cli.judging import evaluate, explain, report, weights
from localma.cli.using import predict
from localma.cli.warming import warm_up


def register(app: Any) -> None:
    """Add every command to the program."""
    for command in (fit, predict, evaluate, weights, explain, report, cache, warm_up, demo):
        app.command()(command)
