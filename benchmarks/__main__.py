"""``python -m benchmarks [engine|auto|predict|scale|all] [--quick] [--json FILE]``.

Also ``peers [NAME ...]``, which installs peers, and ``table FILE`` and ``draw FILE``, which show
what a run has stored.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import auto, engine, pictures, predict, scale
from benchmarks.machine import describe
from benchmarks.peers import REQUIREMENTS, install

BENCHMARKS = {"engine": engine.run, "auto": auto.run, "predict": predict.run, "scale": scale.run}
PICTURES = Path(__file__).parent / "results"


def run(names: list[str], quick: bool, path: Path | None) -> dict[str, Any]:
    """Run benchmarks one after another, and store what there is after each.

    One benchmark is stored flat; several are stored by name.
    """
    stored: dict[str, Any] = {}
    for name in names:
        print(f"== {name}{' (quick: small sizes, not to be quoted)' * quick}", flush=True)
        machine, begin = describe(), perf_counter()
        result = BENCHMARKS[name](quick).as_dict()
        about = {"benchmark": name, "quick": quick, "seconds": perf_counter() - begin}
        stored[name] = about | {"machine": machine} | result
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = stored if len(names) > 1 else stored[name]
            path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    return stored


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command")
    for name in (*BENCHMARKS, "all"):
        _add_options(commands.add_parser(name))
    _add_options(top)
    commands.add_parser("peers").add_argument("names", nargs="*", choices=[*REQUIREMENTS, []])
    for name in ("table", "draw"):
        commands.add_parser(name).add_argument("file", type=Path)
    return top


def _add_options(to: argparse.ArgumentParser) -> None:
    to.add_argument("--quick", action="store_true", help="small sizes, to see that all runs")
    to.add_argument("--json", type=Path, metavar="FILE", help="where to store the results")


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    if given.command == "peers":
        install(given.names)
    elif given.command == "table":
        print(pictures.table(json.loads(given.file.read_text())))
    elif given.command == "draw":
        for path in pictures.draw(json.loads(given.file.read_text()), PICTURES):
            print(path)
    else:
        names = [given.command] if given.command in BENCHMARKS else list(BENCHMARKS)
        run(names, given.quick, given.json)


if __name__ == "__main__":
    main()
