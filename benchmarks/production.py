"""Answers in production: failures within a deadline, servers, threads, memory and latency.

``python -m benchmarks.production [faults servers threads memory latency] [--before SRC]`` runs
each part in a process of its own. `latency` compares the time of one row with that of another
version of the package, whose folder `src` is SRC; the two processes take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import LocalMARegressor

Array = NDArray[np.floating]

DEADLINE = 0.5
ROWS, ANSWERS, WARM = 1_000, 200_000, 20_000
ROUNDS, CALLS = 60, 400


def sample(n: int, seed: int) -> tuple[Array, Array]:
    """Inputs (n, 3) and targets (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, np.abs(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.standard_normal(n)


def left(X: Array) -> Array:
    """Right where the first input is negative."""
    return -X[:, 0] + 0.3 * X[:, 1]


def right(X: Array) -> Array:
    """Right where the first input is positive."""
    return X[:, 0] + 0.3 * X[:, 1]


def fails_on_a_tenth(X: Array) -> NDArray[np.bool_]:
    """Rows on which a candidate fails, by their content."""
    return (np.floor(np.abs(X[:, 2]) * 1e6) % 10) == 0


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "hangs": lambda X: np.abs(X[:, 0]),
    "raises": lambda X: np.abs(X[:, 0]) + 0.3 * X[:, 1] + 0.1,
    "nan": lambda X: 0.3 * X[:, 1] + 1.0,
    "left": left,
    "right": right,
}


def break_some(model: LocalMARegressor) -> None:
    """Make three of five candidates fail: one hangs, one raises on a tenth, one returns NaN."""

    def raises(X: Array) -> Array:
        if fails_on_a_tenth(X).any():
            raise ValueError("a row that this model does not know")
        return FUNCTIONS["raises"](X)

    broken = {
        "hangs": lambda X: threading.Event().wait(3_600),
        "raises": raises,
        "nan": lambda X: np.full(len(X), np.nan),
    }
    for name, candidate in zip(model.pool_.names, model.pool_.candidates, strict=True):
        candidate.function = broken.get(name, candidate.function)


def faults() -> dict[str, Any]:
    """Five candidates, of which three fail."""
    X, y = sample(ROWS, 0)
    X_new, y_new = sample(ROWS, 1)
    model = LocalMARegressor(FUNCTIONS, random_state=0, missing="renormalize").fit(X, y)
    P = model.candidate_predictions(X_new)
    healthy = P.copy()
    healthy[:, :3] = np.nan
    alone = model.predict(X_new, healthy)
    break_some(model)
    began = time.perf_counter()
    answer = model.answer(X_new, deadline=DEADLINE, retries={"raises": 2_000})
    seconds = time.perf_counter() - began
    return {
        "deadline": DEADLINE,
        "seconds": seconds,
        "beyond_deadline": seconds - DEADLINE,
        "named": sorted({failure.candidate for failure in answer.failures}),
        "rows_answered": int(np.isfinite(answer.prediction).sum()),
        "risk": float(np.mean((answer.prediction - y_new) ** 2)),
        "risk_of_healthy": float(np.mean((alone - y_new) ** 2)),
    }


class Slow(BaseHTTPRequestHandler):
    """Answers after one second."""

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(1.0)
        body = json.dumps({"predictions": [sum(row) for row in document["rows"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Write no log."""


def servers() -> dict[str, Any]:
    """Two servers that need one second each."""
    X, _ = sample(100, 0)
    y = X.sum(axis=1) + 0.1 * np.sin(50 * X[:, 0])
    started = [ThreadingHTTPServer(("127.0.0.1", 0), Slow) for _ in range(2)]
    for server in started:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    urls = {f"s{k}": f"http://127.0.0.1:{server.server_port}/" for k, server in enumerate(started)}
    P = np.stack([X.sum(axis=1), X.sum(axis=1) + 0.1], axis=1)
    model = LocalMARegressor(urls, gate="equal").fit(X, y, predictions=P)
    began = time.perf_counter()
    model.answer(X)
    seconds = time.perf_counter() - began
    for server in started:
        server.shutdown()
        server.server_close()
    return {"seconds": seconds}


def threads() -> dict[str, Any]:
    """Sixteen threads on one model, with failures that depend on the row."""
    X, y = sample(ROWS, 0)
    model = LocalMARegressor(FUNCTIONS, random_state=0, missing="nan").fit(X, y)
    break_some(model)
    model.pool_.candidates[0].function = FUNCTIONS["hangs"]

    def ask(k: int) -> tuple[float, list[str]]:
        answer = model.answer(X[k : k + 1], breaker=None)
        return float(answer.prediction[0]), [failure.candidate for failure in answer.failures]

    one_by_one = [ask(k) for k in range(ROWS)]
    with ThreadPoolExecutor(16) as pool:
        at_once = list(pool.map(ask, range(ROWS)))
    return {"equal": at_once == one_by_one, "failures": sum(len(names) for _, names in at_once)}


def resident_pages() -> int:
    """Pages of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1])


def memory() -> dict[str, Any]:
    """Memory during many answers for single rows; two of five candidates fail."""
    X, y = sample(ROWS, 0)
    model = LocalMARegressor(FUNCTIONS, random_state=0, missing="nan").fit(X, y)
    break_some(model)
    model.pool_.candidates[0].function = FUNCTIONS["hangs"]
    pages = []
    for k in range(ANSWERS):
        if k >= WARM and k % 1_000 == 0:
            pages.append(resident_pages())
        model.answer(X[k % ROWS : k % ROWS + 1])
    pages.append(resident_pages())
    return {"answers": ANSWERS, "growth": max(pages) / pages[0] - 1.0}


TIMER = """
import sys, time
import numpy as np
from benchmarks.production import FUNCTIONS, CALLS, sample
from localma import LocalMARegressor
X, y = sample(900, 0)
model = LocalMARegressor(FUNCTIONS, random_state=0).fit(X, y)
x = X[:1]
for _ in range(2000):
    model.predict(x)
print("ready", flush=True)
for line in sys.stdin:
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        model.predict(x)
        seconds.append(time.perf_counter() - began)
    print(float(np.median(seconds)), flush=True)
"""


def latency(before: Path) -> dict[str, Any]:
    """Time of `predict` for one row compared with another version; the processes take turns."""
    here = Path(__file__).parents[1]
    processes = {
        "before": timer(before, here),
        "now": timer(here / "src", here),
    }
    seconds: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(ROUNDS):
        for name, process in processes.items():
            process.stdin.write("go\n")
            process.stdin.flush()
            seconds[name].append(float(process.stdout.readline()))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    ratios = [now / then for now, then in zip(seconds["now"], seconds["before"], strict=True)]
    return {
        "microseconds_before": 1e6 * median(seconds["before"]),
        "microseconds": 1e6 * median(seconds["now"]),
        "ratio": median(ratios),
    }


def timer(source: Path, here: Path) -> Any:
    """Start a process that times calls of a version of the package."""
    path = os.pathsep.join([str(source), str(here)])
    process = subprocess.Popen(
        [sys.executable, "-c", TIMER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


PARTS = {"faults": faults, "servers": servers, "threads": threads, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "latency", []])
    parser.add_argument("--before", type=Path)
    arguments = parser.parse_args()
    parts = arguments.parts or [*PARTS, *(["latency"] if arguments.before else [])]
    for name in parts:
        if len(parts) > 1:
            options = ["--before", str(arguments.before)] if name == "latency" else []
            command = [sys.executable, "-m", "benchmarks.production", name, *options]
            subprocess.run(command, check=True)
            continue
        result = latency(arguments.before) if name == "latency" else PARTS[name]()
        print(json.dumps({name: result}), flush=True)


if __name__ == "__main__":
    main()
