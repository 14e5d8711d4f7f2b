"""What begins slowly: `import localma` beside scikit-learn's ensembles, and the very first fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import Report, Row

MODULES = ("localma", "sklearn.ensemble")
_TIMED = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"
_FIRST_FIT = """
import time
import numpy as np
from localma import LocalMARegressor
x = np.linspace(-2, 2, 100)
begin = time.perf_counter()
model = LocalMARegressor(random_state=0)
model.fit(x[:, None], np.abs(x), predictions=np.stack([-x, x], axis=1))
print(time.perf_counter() - begin)
"""
"""A fit so small that compiling the kernel is all but the whole of its time."""


def seconds_to_import(module: str) -> float:
    """Seconds of one import in a new interpreter, without the start of the interpreter itself."""
    return _printed(_TIMED.format(module))


def seconds_of_first_fit() -> float:
    """Seconds of the first fit on a machine where the kernel was never compiled."""
    with TemporaryDirectory() as folder:
        return _printed(_FIRST_FIT, NUMBA_CACHE_DIR=folder)


def _printed(code: str, **variables: str) -> float:
    """The number that some code prints in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parents[1],
        env=os.environ | variables,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def measure(report: Report, repeats: int) -> None:
    """Import both in turns."""
    turns = [[seconds_to_import(module) for module in MODULES] for _ in range(repeats)]
    ours, theirs = (
        report.add(Row("import in a fresh process", module, seconds))
        for module, seconds in zip(MODULES, zip(*turns, strict=True), strict=True)
    )
    report.ratio("import_ratio", ours, theirs)
    first = report.add(Row("first fit, n=100, compiling", "auto", [seconds_of_first_fit()]))
    report.figure("first_fit_seconds", first.median)
