"""Answers in production: failures within a deadline, servers, threads and memory.

``python -m benchmarks.production faults|servers|threads|memory`` prints the figures of one part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report
from localma import LocalMARegressor

Array = NDArray[np.floating]

DEADLINE = 0.5
ROWS, ANSWERS, QUICK_ANSWERS = 1_000, 200_000, 2_000


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
        "seconds_beyond_deadline": seconds - DEADLINE,
        "failing_candidates_named": len({failure.candidate for failure in answer.failures}),
        "share_of_rows_answered": float(np.isfinite(answer.prediction).mean()),
        "ratio_risk_to_healthy_candidates": float(
            np.mean((answer.prediction - y_new) ** 2) / np.mean((alone - y_new) ** 2)
        ),
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
    return {"seconds_of_two_slow_servers": seconds}


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
    same = [now == then for now, then in zip(at_once, one_by_one, strict=True)]
    return {"share_of_equal_answers_by_16_threads": sum(same) / len(same)}


def resident_pages() -> int:
    """Pages of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1])


def memory(answers: int = ANSWERS) -> dict[str, Any]:
    """Memory during many answers for single rows; two of five candidates fail."""
    X, y = sample(ROWS, 0)
    model = LocalMARegressor(FUNCTIONS, random_state=0, missing="nan").fit(X, y)
    break_some(model)
    model.pool_.candidates[0].function = FUNCTIONS["hangs"]
    pages, warm = [], answers // 10
    for k in range(answers):
        if k >= warm and k % 1_000 == 0:
            pages.append(resident_pages())
        model.answer(X[k % ROWS : k % ROWS + 1])
    pages.append(resident_pages())
    return {"growth_of_memory": max(pages) / pages[0] - 1.0}


def run(quick: bool = False) -> Report:
    """Run each part in a process of its own, because threads of hanging candidates stay."""
    report = Report()
    for name in PARTS:
        options = ["--answers", str(QUICK_ANSWERS)] if quick else []
        command = [sys.executable, "-m", "benchmarks.production", name, *options]
        done = subprocess.run(
            command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True
        )
        for key, value in json.loads(done.stdout).items():
            report.figure(key, value)
    return report


PARTS = {"faults": faults, "servers": servers, "threads": threads, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--answers", type=int, default=ANSWERS, help="answers of `memory`")
    given = parser.parse_args()
    result = memory(given.answers) if given.part == "memory" else PARTS[given.part]()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
