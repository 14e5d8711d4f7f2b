"""What `import localma` costs beside scikit-learn's ensembles, each in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.report import Report, Row

MODULES = ("localma", "sklearn.ensemble")
_TIMED = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"


def seconds_to_import(module: str) -> float:
    """Seconds of one import in a new interpreter, without the start of the interpreter itself."""
    command = [sys.executable, "-c", _TIMED.format(module)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(report: Report, repeats: int) -> None:
    """Import both in turns."""
    turns = [[seconds_to_import(module) for module in MODULES] for _ in range(repeats)]
    ours, theirs = (
        report.add(Row("import in a fresh process", module, seconds))
        for module, seconds in zip(MODULES, zip(*turns, strict=True), strict=True)
    )
    report.ratio("import_ratio", ours, theirs)
