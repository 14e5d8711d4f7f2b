"""Without the packages of the command line, its module cannot be searched for doctests."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("typer") else ["src/localma/cli.py"]
