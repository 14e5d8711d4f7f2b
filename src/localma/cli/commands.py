"""The commands, in the order in which ``localma --help`` lists them."""

from __future__ import annotations

from typing import Any

from localma.cli.caching import cache
from localma.cli.demo import demo
from localma.cli.fitting import fit
from localma.cli.inspecting import inspect
from localma.cli.judging import evaluate, explain, report, weights
from localma.cli.messages import in_plain_words
from localma.cli.using import predict
from localma.cli.warming import warm_up


def register(app: Any) -> None:
    """Add every command to the program."""
    commands = (fit, predict, evaluate, weights, explain, report, inspect, cache, warm_up, demo)
    for command in commands:
        app.command()(in_plain_words(command))
