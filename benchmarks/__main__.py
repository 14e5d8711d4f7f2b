"""``python -m benchmarks [engine|auto|predict|scale|start|all] [--quick] [--json FILE]``.

A full run of all, which is what no argument means, is stored in ``benchmarks/results`` part by
part. Parts that are stored already are not run again, so that a run that was interrupted goes on;
``--again`` repeats all parts, or those that it names. Pictures and the table of the README follow.

Also ``peers [NAME ...]``, which installs peers, and ``table FILE`` and ``draw FILE``, which show
what a run has stored.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Collection
from pathlib import Path
from time import perf_counter
from typing import Any

import joblib

from benchmarks import auto, engine, pictures, predict, scale, sizes, start
from benchmarks.machine import describe
from benchmarks.peers import REQUIREMENTS, install

BENCHMARKS = {
    "engine": engine.run,
    "auto": auto.run,
    "predict": predict.run,
    "scale": scale.run,
    "sizes": sizes.run,
    "start": start.run,
}
HOME = Path(__file__).parent
PICTURES, README = HOME / "pictures", HOME / "README.md"


def run_one(name: str, quick: bool) -> dict[str, Any]:
    """Run a benchmark; returns its figures and rows with what they belong to."""
    print(f"== {name}{' (quick: small sizes, not to be quoted)' * quick}", flush=True)
    machine, begin = describe(), perf_counter()
    result = BENCHMARKS[name](quick).as_dict()
    about = {"benchmark": name, "quick": quick, "seconds": perf_counter() - begin}
    return about | {"machine": machine} | result


def run_all(quick: bool, path: Path, again: Collection[str] = ()) -> dict[str, Any]:
    """Run what is not stored yet, or not in this size, and store each part when it is complete."""
    stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in BENCHMARKS:
        if name in stored and stored[name]["quick"] == quick and name not in again:
            print(f"== {name} is stored in {path.name}; --again {name} repeats it", flush=True)
            continue
        stored[name] = run_one(name, quick)
        store(stored, path)
    return stored


def store(content: dict[str, Any], path: Path) -> None:
    """Write JSON whole or not at all: a run may be interrupted at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    os.replace(draft, path)


def results_path() -> Path:
    """Where the results of a full run on a machine of this size belong."""
    cores = int(joblib.cpu_count())
    return HOME / "results" / f"{'two' if cores == 2 else cores}-cores.json"


def publish(stored: dict[str, Any]) -> None:
    """Draw the pictures of a run and put its table on the page."""
    for picture in pictures.draw(stored, PICTURES):
        print(picture.relative_to(HOME.parent))
    pictures.put_table(stored, README)
    print(README.relative_to(HOME.parent))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command")
    for name in BENCHMARKS:
        _add_options(commands.add_parser(name))
    for whole in (top, commands.add_parser("all")):
        _add_options(whole)
        parts = f"parts to run again: {', '.join(BENCHMARKS)}, or all"
        whole.add_argument("--again", nargs="*", choices=BENCHMARKS, metavar="PART", help=parts)
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
    elif given.command in BENCHMARKS:
        result = run_one(given.command, given.quick)
        if given.json is not None:
            store(result, given.json)
    else:
        _run_all(given)


def _run_all(given: argparse.Namespace) -> None:
    """Run all parts; a full run without a file of its own is the one that is published."""
    again = () if given.again is None else given.again or tuple(BENCHMARKS)
    if given.json is not None:
        run_all(given.quick, given.json, again)
    elif given.quick:
        for name in BENCHMARKS:
            run_one(name, quick=True)
    else:
        publish(run_all(False, results_path(), again))


if __name__ == "__main__":
    main()
