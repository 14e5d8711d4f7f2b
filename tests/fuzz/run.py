"""Fuzzing of saved models: ``python -m tests.fuzz.run --seconds 600 --seed 0 --out build/fuzz``.

Damaged models are loaded in a child process. What ends it, silences it for five seconds, raises
what `load` does not document, loads in spite of a wrong checksum, or predicts what is not finite,
is stored in the folder, with what happened.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HANG = 5.0
"""Seconds after which a load counts as one that hangs."""
START = 300.0
"""Seconds that a child may take to make its models."""
FINDINGS = (
    "crash",
    "hang",
    "undocumented",
    "silent",
    "memory",
    "long message",
    "bad weights",
    "bad predictions",
)


@dataclass
class Tally:
    """What happened so far."""

    out: Path
    seed: int
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    sealed: int = 0
    total: int = 0
    memory: int = 0
    findings: list[str] = field(default_factory=list)

    def count(self, line: dict[str, Any], file: Path) -> None:
        self.total += 1
        self.sealed += bool(line["sealed"])
        self.outcomes[line["kind"], line["outcome"]] += 1
        if line["outcome"] in FINDINGS:
            self.store(line, file)

    def store(self, line: dict[str, Any], file: Path) -> None:
        self.findings.append(f"{line['index']} ({line['kind']}): {line['outcome']}")
        self.out.mkdir(parents=True, exist_ok=True)
        name = f"{self.seed}-{line['index']}"
        if line["outcome"] in ("crash", "hang"):  # the child stores the others itself
            shutil.copy(file, self.out / f"{name}.localma")
        (self.out / f"{name}.txt").write_text(json.dumps(line, indent=1) + "\n")

    def table(self) -> str:
        kinds = list(dict.fromkeys(kind for kind, _ in self.outcomes))
        names = ["refused", "rows refused", "predicted", *FINDINGS]
        rows = [["kind", "all", *names]]
        for kind in [*kinds, "all"]:
            counts = [
                sum(n for (k, o), n in self.outcomes.items() if o == name and kind in (k, "all"))
                for name in names
            ]
            rows.append([kind, *map(str, [sum(counts), *counts])])
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        return "\n".join(
            " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )

    def summary(self) -> str:
        share = self.sealed / max(1, self.total)
        return (
            f"{self.table()}\n{self.total:,} damaged models, {share:.0%} of them with a new "
            f"checksum; at most {self.memory / 2**20:.0f} MiB more than before the first load; "
            f"{len(self.findings)} findings."
        )


def fuzz(
    seed: int,
    out: Path,
    *,
    seconds: float = float("inf"),
    count: int = 10**9,
    kinds: tuple[str, ...] = (),
) -> Tally:
    """Load damaged models until the time is over or so many were loaded."""
    tally, end = Tally(out, seed), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.localma"
        while tally.total < count and time.monotonic() < end:
            _one_process(tally, count, file, end, kinds)
    return tally


def _one_process(tally: Tally, count: int, file: Path, end: float, kinds: tuple[str, ...]) -> None:
    """Run a child until its work or the time is over, or something happens to it."""
    options = {"seed": tally.seed, "start": tally.total, "stop": count, "file": file}
    options |= {"out": tally.out, "kinds": ",".join(kinds)}
    command = [sys.executable, "-m", "tests.fuzz.worker"]
    command += [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    try:
        order, what = _watch(child, tally, file, end)
    finally:
        child.kill()
        code = child.wait()
        child.stdout.close()
    if tally.total == count or what == "time":
        return
    if not order:
        raise RuntimeError(f"The child process did not start (exit code {code}).")
    kind = order[tally.total % len(order)]
    line = {"index": tally.total, "kind": kind, "sealed": True, "outcome": what, "code": code}
    tally.count(line, file)


def _watch(child: Any, tally: Tally, file: Path, end: float) -> tuple[list[str], str]:
    """Count what a child says; the order of its kinds, and how it ended."""
    os.set_blocking(child.stdout.fileno(), False)
    unfinished, base, order = b"", 0, []
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(HANG if order else START):
            received = child.stdout.read()
            if not received:
                return order, "crash"
            *lines, unfinished = (unfinished + received).split(b"\n")
            for line in map(json.loads, lines):
                if "ready" in line:
                    order, base = line["ready"], line["memory"]
                elif "memory" in line:
                    tally.memory = max(tally.memory, line["memory"] - base)
                else:
                    tally.count(line, file)
            if time.monotonic() > end:
                return order, "time"
    return order, "hang"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--kinds", default="")
    arguments = parser.parse_args()
    kinds = tuple(kind for kind in arguments.kinds.split(",") if kind)
    tally = fuzz(
        arguments.seed,
        arguments.out,
        seconds=arguments.seconds,
        count=arguments.count,
        kinds=kinds,
    )
    print(tally.summary())
    for name in tally.findings:
        print(f"stored in {arguments.out}: {name}")
    if tally.total == 0:
        sys.exit("No file was tried: the time ended while the models were fitted. Give more.")
    sys.exit(bool(tally.findings))


if __name__ == "__main__":
    main()
