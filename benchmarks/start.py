"""The start of a new process: import, first fit on a machine, first prediction."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.report import Report, Row

MODULES = ("localma", "sklearn.ensemble")
FULL_REPEATS, QUICK_REPEATS = 9, 3
_TIMED_IMPORT = """
import time
begin = time.perf_counter()
import {}
print(time.perf_counter() - begin)
"""
_FIRST_FIT = """
import sys, time
import numpy as np
from localma import LocalMARegressor
x = np.linspace(-2, 2, 100)
begin = time.perf_counter()
model = LocalMARegressor(random_state=0)
model.fit(x[:, None], np.abs(x), predictions=np.stack([-x, x], axis=1))
print(time.perf_counter() - begin)
model.save(sys.argv[1])
"""
"""A small fit, whose time is almost only the compilation of the kernel."""
_WARM_UP = "import localma; localma.warm_up()"
_PREDICT = """
import sys
import numpy as np
from localma import load
x = np.linspace(-2, 2, 20_000)
load(sys.argv[1]).predict(x[:, None], predictions=np.stack([-x, x], axis=1))
"""


def run_in_new_process(code: str, *arguments: str, **variables: str) -> str:
    """Output of some code in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        cwd=Path(__file__).parents[1],
        env=os.environ | variables,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def seconds_to_import(module: str) -> float:
    """Seconds of one import, without the start of the interpreter."""
    return float(run_in_new_process(_TIMED_IMPORT.format(module)))


def seconds_of_first_calls(repeats: int) -> tuple[float, Sequence[float]]:
    """Seconds of a fit before anything is compiled, and of predictions after a warm-up.

    The predictions are timed from outside, including the start of the interpreter and all imports.
    """
    with TemporaryDirectory() as folder:
        model, unused, warm = (str(Path(folder, name)) for name in ("model", "unused", "warm"))
        fit = float(run_in_new_process(_FIRST_FIT, model, NUMBA_CACHE_DIR=unused))
        run_in_new_process(_WARM_UP, NUMBA_CACHE_DIR=warm)
        predictions = []
        for _ in range(repeats):
            begin = perf_counter()
            run_in_new_process(_PREDICT, model, NUMBA_CACHE_DIR=warm)
            predictions.append(perf_counter() - begin)
    return fit, predictions


def run(quick: bool = False) -> Report:
    return measure(QUICK_REPEATS if quick else FULL_REPEATS)


def measure(repeats: int) -> Report:
    """Import both packages in turns, then make the first calls."""
    report = Report()
    turns = [[seconds_to_import(module) for module in MODULES] for _ in range(repeats)]
    ours, theirs = (
        report.add(Row("import in a fresh process", module, seconds))
        for module, seconds in zip(MODULES, zip(*turns, strict=True), strict=True)
    )
    report.ratio("import_ratio", ours, theirs)
    fit_seconds, predict_seconds = seconds_of_first_calls(repeats)
    fit = report.add(Row("first fit, n=100, compiling", "auto", [fit_seconds]))
    report.figure("first_fit_seconds", fit.median)
    work = "process that predicts 20,000 rows, after a warm-up"
    predict = report.add(Row(work, "predict", predict_seconds))
    report.figure("first_predict_seconds", predict.median)
    return report
