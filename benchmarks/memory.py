"""Peak memory of an `auto` fit beyond its input, measured in a separate process.

``python -m benchmarks.memory N P M`` prints JSON. The input is in float32 files that are mapped
into memory. All of it has been read before the measurement begins.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.auto import fit_auto
from benchmarks.data import regression
from localma import LocalMARegressor

ROOT = Path(__file__).parents[1]
ALLOWED = 2**30
"""Bytes beyond the input that a fit may need."""

Float32 = NDArray[np.float32]

_PART = 250_000  # rows drawn together
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure(n: int, p: int, M: int) -> dict[str, Any]:
    """Run this file in a child process and read its output."""
    needed, available = ALLOWED + 4 * n * (p + M + 1), os.sysconf("SC_PAGE_SIZE") * _free_pages()
    if needed > available:
        return {"n": n, "skipped": f"would need about {needed / 2**30:.1f} GiB"}
    command = [sys.executable, "-m", "benchmarks.memory", str(n), str(p), str(M)]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(out))


def _free_pages() -> int:
    return os.sysconf("SC_AVPHYS_PAGES")


def _peak_mib() -> float:
    """Largest resident size of this program so far, or since `_forget_peak`.

    On Linux `getrusage` is not suitable: its figure survives exec. A child starts with the peak of
    its parent, and a smaller fit would seem to need no memory.
    """
    if _STATUS.exists():
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _forget_peak() -> None:
    """Reset the peak if the system can, because drawing the data also has a peak."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")


def write(folder: Path, n: int, p: int, M: int) -> None:
    """Draw a sample, part by part, into X.npy (n, p), P.npy (n, M) and y.npy (n,) of float32."""
    shapes = {"X": (n, p), "P": (n, M), "y": (n,)}
    files = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, shape)
        for name, shape in shapes.items()
    }
    for first in range(0, n, _PART):
        rows = slice(first, min(first + _PART, n))
        part = regression(rows.stop - first, p, M, seed=first, n_test=1).train
        files["X"][rows], files["P"][rows], files["y"][rows] = part.X, part.P[..., 0], part.y[:, 0]


def mapped(folder: Path) -> list[Float32]:
    """X, P and y mapped from the files, each read once."""
    arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "P", "y")]
    for array in arrays:
        array.sum()
    return arrays


def main(n: int, p: int, M: int) -> None:
    fit_auto(regression(25_000, p, M, seed=0, n_test=1).train)  # loads libraries
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), n, p, M)
        X, P, y = mapped(Path(folder))
        _forget_peak()
        before = _peak_mib()
        LocalMARegressor(random_state=0).fit(X, y, predictions=P)
        beyond = _peak_mib() - before
    given = sum(array.nbytes for array in (X, P, y)) / 2**20
    print(json.dumps({"n": n, "input_mib": given, "peak_beyond_input_mib": beyond}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
