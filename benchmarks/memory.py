"""Peak memory of a fit beyond its input, measured in a process of its own.

``python -m benchmarks.memory N P M`` prints JSON. The path of `auto` is trained for a few steps
only: memory does not depend on their number.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.auto import fit_auto
from benchmarks.data import Sample, regression
from localma.gates import MLPGate, ShrunkGate

ROOT = Path(__file__).parents[1]
STEPS = 3
_STATUS = Path("/proc/self/status")


def measure(n: int, p: int, M: int) -> dict[str, Any]:
    """Run this file in a child and read what it prints."""
    needed, available = 6 * 8 * n * (p + M + 1), os.sysconf("SC_PAGE_SIZE") * _free_pages()
    if needed > available:
        return {"n": n, "skipped": f"would need about {needed / 2**30:.1f} GiB"}
    command = [sys.executable, "-m", "benchmarks.memory", str(n), str(p), str(M)]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(out))


def _free_pages() -> int:
    return os.sysconf("SC_AVPHYS_PAGES")


def _peak_mib() -> float:
    """Largest resident size of this program so far.

    On Linux `getrusage` would not do: its figure survives exec, so a child starts with that of the
    process that made it, and a fit smaller than its parent would seem to need nothing.
    """
    if _STATUS.exists():
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _fit(sample: Sample) -> None:
    fit_auto(sample, ShrunkGate(MLPGate((32,), n_steps=STEPS), linear=False))


def main(n: int, p: int, M: int) -> None:
    _fit(regression(100, p, M, seed=0, n_test=1).train)  # what libraries need is not the fit's
    sample = regression(n, p, M, seed=0, n_test=1).train
    before = _peak_mib()
    _fit(sample)
    given = sum(array.nbytes for array in (sample.X, sample.P, sample.y)) / 2**20
    print(json.dumps({"n": n, "input_mib": given, "peak_beyond_input_mib": _peak_mib() - before}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
