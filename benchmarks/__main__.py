"""``python -m benchmarks [engine|auto|predict|...|all] [--quick] [--json FILE]``.

Without arguments all benchmarks are run in full, and each part is stored in
``benchmarks/results``. Stored parts are not run again, so a run that was interrupted continues.
``--again`` repeats all parts, or those that you name. Afterwards the figures and the table of the
README are updated.

``peers [NAME ...]`` installs peers. ``table FILE`` and ``draw FILE`` show the results of a stored
run.
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

from benchmarks import auto, engine, pictures, predict, production, scale, sizes, start
from benchmarks.machine import describe
from benchmarks.peers import REQUIREMENTS, install

BENCHMARKS = {
    "engine": engine.run,
    "auto": auto.run,
    "predict": predict.run,
    "scale": scale.run,
    "sizes": sizes.run,
    "production": production.run,
    "start": start.run,
}
HOME = Path(__file__).parent
PICTURES, README = HOME / "pictures", HOME / "README.md"


def run_one(name: str, quick: bool) -> dict[str, Any]:
    """Run a benchmark; return its figures and rows with the machine and the versions."""
    print(f"== {name}{' (quick: small sizes, do not quote)' * quick}", flush=True)
    machine, begin = describe(), perf_counter()
    result = BENCHMARKS[name](quick).as_dict()
    about = {"benchmark": name, "quick": quick, "seconds": perf_counter() - begin}
    return about | {"machine": machine} | result


def run_all(quick: bool, path: Path, again: Collection[str] = ()) -> dict[str, Any]:
    """Run the parts that are not stored in this size, and store each when it is complete."""
    stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in BENCHMARKS:
        if name in stored and stored[name]["quick"] == quick and name not in again:
            print(f"== {name} is stored in {path.name}; --again {name} repeats it", flush=True)
            continue
        stored[name] = run_one(name, quick)
        store(stored, path)
    return stored


def store(content: dict[str, Any], path: Path) -> None:
    """Write JSON whole or not at all, because a run may be interrupted at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    os.replace(draft, path)


def results_path() -> Path:
    """File of the results of a full run on a machine of this size."""
    cores = int(joblib.cpu_count())
    return HOME / "results" / f"{'two' if cores == 2 else cores}-cores.json"


def publish(stored: dict[str, Any]) -> None:
    """Draw the figures of a run and put its table on the page."""
    for picture in pictures.draw(stored, PICTURES):
        print(picture.relative_to(HOME.parent))
    pictures.put_table(stored | pictures.separate(HOME / "results"), README)
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
    to.add_argument("--quick", action="store_true", help="small sizes, to test that all runs")
    to.add_argument("--json", type=Path, metavar="FILE", help="file for the results")


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    if given.command == "peers":
        install(given.names)
    elif given.command == "table":
        stored = json.loads(given.file.read_text())
        print(pictures.table(stored | pictures.separate(given.file.parent)))
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
    """Run all parts; a full run without ``--json`` updates the published results."""
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
