"""A service under load, compared with a bare FastAPI service around the same models.

``python -m benchmarks.serving [latency overload memory]`` starts the servers on this machine. It
stores each part in ``benchmarks/results/serving.json`` and prints it. `overload` needs wrk. With
``--quick --out FILE`` a run takes a minute, to see that it works.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "serving.json"
REQUESTS, WARM = 100, 2
"""Requests of each target per round of the latency, and rounds that do not count."""
TICKS = os.sysconf("SC_CLK_TCK")
X_ROW = [0.1, 0.2, 0.3, 0.4, 0.5]


@dataclass(frozen=True)
class Length:
    """Rounds of the latency, seconds of each overload, and seconds of the load on the memory."""

    blocks: int = 20
    overload: float = 20.0
    warm: float = 60.0
    memory: float = 600.0


QUICK = Length(blocks=3, overload=2.0, warm=3.0, memory=10.0)
INFER = "/v2/models/rent/infer"
PORT_OF_BARE = 18131


def make_models(folder: Path, kind: str) -> None:
    """Save three scikit-learn models as skops files, and a localized average of them."""
    import skops.io
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import Ridge

    from localma import LocalMARegressor
    from localma.candidates import SkopsCandidate

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2_700, 5))
    y = np.abs(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.standard_normal(len(X))
    past, sample = np.arange(len(X)) < 1_800, np.arange(len(X)) >= 1_800
    left, right = past & (X[:, 0] < 0), past & (X[:, 0] > 0)
    models = {"all": Ridge(), "left": Ridge(), "right": Ridge()}
    if kind == "trees":
        models |= {
            "left": HistGradientBoostingRegressor(random_state=0),
            "right": RandomForestRegressor(50, random_state=0),
        }
    pool = {}
    for name, rows in {"all": past, "left": left, "right": right}.items():
        file = folder / f"{name}.skops"
        skops.io.dump(models[name].fit(X[rows], y[rows]), file)
        trusted = skops.io.get_untrusted_types(file=file)
        pool[name] = SkopsCandidate(file, trusted=trusted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LocalMARegressor(pool, random_state=0).fit(X[sample], y[sample])
    model.save(folder / "rent.localma")


def connect(port: int) -> http.client.HTTPConnection:
    """Connect to a server on this machine."""
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


@contextmanager
def process(
    command: list[str], folder: Path, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server, whose log goes to a file, until the block ends."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path)), **variables}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=HERE.parent)
        try:
            yield server
        finally:
            server.terminate()
            server.wait(60)


def wait_for(port: int, path: str) -> None:
    """Wait until a server answers."""
    for _ in range(600):
        try:
            connection = connect(port)
            connection.request("GET", path)
            connection.getresponse().read()
            connection.close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"no server on port {port}")


@contextmanager
def services(
    kind: str, *options: str
) -> Iterator[tuple[int, int, dict[str, subprocess.Popen[bytes]]]]:
    """Start the bare service and ours: their ports, and their processes by name."""
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / part for part in ("bare", "ours")]
        for folder in folders:
            folder.mkdir()
        make_models(folders[0], kind)
        bare = ["-m", "uvicorn", "benchmarks.bare_service:app", "--port", str(PORT_OF_BARE)]
        path, port = folders[0] / "rent.localma", PORT_OF_BARE + 1
        ours = ["-m", "localma", "serve", str(path), "--trust", "--port", str(port), *options]
        with (
            process([sys.executable, *bare], folders[0], MODELS=str(folders[0])) as other,
            process([sys.executable, *ours], folders[1]) as server,
        ):
            wait_for(PORT_OF_BARE, "/openapi.json")
            wait_for(port, "/v2/health/ready")
            yield PORT_OF_BARE, port, {"bare": other, "ours": server}


def bodies(n: int = 1) -> dict[str, str]:
    """Requests for n equal rows."""
    entry = {"name": "X", "shape": [n, 5], "datatype": "FP64", "data": X_ROW * n}
    return {
        "bare": json.dumps({"rows": [X_ROW] * n}),
        "ours": json.dumps({"inputs": [entry]}),
    }


def time_requests(port: int, path: str, body: str, count: int) -> list[float]:
    """Seconds of each of some requests over one connection."""
    connection, seconds = connect(port), []
    for _ in range(count):
        began = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - began)
        if answer.status != 200:
            raise RuntimeError(f"{path}: status {answer.status}")
    connection.close()
    return seconds


def latency(length: Length) -> dict[str, Any]:
    """Time of requests for one row; the services take turns."""
    result = {}
    for kind in ("linear", "trees"):
        with services(kind) as (bare, ours, servers):
            targets = {
                "bare": (bare, "/predict", bodies()["bare"]),
                "bare in the loop": (bare, "/predict-in-loop", bodies()["bare"]),
                "ours": (ours, INFER, bodies()["ours"]),
            }
            seconds: dict[str, list[float]] = {name: [] for name in targets}
            spent = dict.fromkeys(targets, 0.0)
            for block in range(length.blocks + WARM):
                for name, target in targets.items():
                    server = servers[name.split()[0]]
                    began = processor_seconds(server)
                    times = time_requests(*target, REQUESTS)
                    if block >= WARM:
                        seconds[name] += times
                        spent[name] += processor_seconds(server) - began
        result[kind] = {
            name: {**_summary(np.array(times)), "processor_ms": 1e3 * spent[name] / len(times)}
            for name, times in seconds.items()
        }
        for name in ("bare", "bare in the loop"):
            for key, words in {"p50_ms": "p50", "processor_ms": "processor time"}.items():
                ratio = result[kind]["ours"][key] / max(result[kind][name][key], 1e-9)
                result[kind][f"{words} of ours over {name}"] = ratio
    return result


def processor_seconds(server: subprocess.Popen[bytes]) -> float:
    """Seconds of processor time of a server so far."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _summary(seconds: np.ndarray[Any, Any]) -> dict[str, float]:
    return {
        "p50_ms": 1e3 * float(np.median(seconds)),
        "p99_ms": 1e3 * float(np.quantile(seconds, 0.99)),
        "requests_per_second": len(seconds) / float(seconds.sum()),
    }


LUA = """
wrk.method, wrk.body = "POST", [[{body}]]
wrk.headers["Content-Type"] = "application/json"
local threads = {{}}
function setup(thread) table.insert(threads, thread) end
function init(arguments) right, busy, wrong = 0, 0, 0 end
function response(status, headers, body)
  if status == 200 and body == [[{expected}]] then right = right + 1
  elseif status == 429 or status == 503 then busy = busy + 1
  else wrong = wrong + 1 end
end
function done(summary, latency, requests)
  local total = {{right = 0, busy = 0, wrong = 0}}
  for _, thread in ipairs(threads) do
    for name, value in pairs(total) do total[name] = value + thread:get(name) end
  end
  local e = summary.errors
  io.write(string.format('RESULT {{"right": %d, "busy": %d, "wrong": %d, "no_answer": %d, ' ..
    '"seconds": %f, "p50_ms": %f, "p99_ms": %f}}\\n', total.right, total.busy, total.wrong,
    e.connect + e.read + e.write + e.timeout, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


def load(port: int, connections: int, seconds: float) -> dict[str, float]:
    """Send the same row over many connections, and compare each answer with the first."""
    connection = connect(port)
    connection.request("POST", INFER, bodies()["ours"])
    expected = connection.getresponse().read().decode()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA.format(body=bodies()["ours"], expected=expected))
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "60s"]
        address = f"http://127.0.0.1:{port}{INFER}"
        done = subprocess.run(
            [*command, "-s", script.name, address], capture_output=True, text=True, check=True
        )
    found = re.search(r"RESULT (.*)", done.stdout)
    assert found, done.stdout
    result: dict[str, float] = json.loads(found[1])
    return result


def overload(length: Length) -> dict[str, Any]:
    """As many connections as the service may hold, and ten times as many."""
    if shutil.which("wrk") is None:
        raise RuntimeError("overload needs wrk; install it, such as with apt-get install wrk")
    result = {}
    for kind in ("linear", "trees"):
        with services(kind, "--concurrency", "2", "--queue", "14") as (_, port, _):
            load(port, 4, 2)
            result[kind] = {
                f"{connections} connections": load(port, connections, length.overload)
                for connections in (16, 160)
            }
    return result


def memory(length: Length) -> dict[str, Any]:
    """Memory of a process during ten minutes of load."""
    with services("linear") as (_, port, servers):
        statm = Path(f"/proc/{servers['ours'].pid}/statm")
        pages, count = [], 0
        end_of_warm = time.monotonic() + length.warm
        end = end_of_warm + length.memory
        while time.monotonic() < end:
            count += len(time_requests(port, INFER, bodies()["ours"], 500))
            if time.monotonic() > end_of_warm:
                pages.append(int(statm.read_text().split()[1]))
    return {
        "requests": count,
        "growth": max(pages) / pages[0] - 1.0,
    }


PARTS: dict[str, Callable[[Length], dict[str, Any]]] = {
    "latency": latency,
    "overload": overload,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--quick", action="store_true", help="a short run, whose figures are rough")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results are stored")
    options = parser.parse_args()
    if options.quick and options.out == RESULTS:
        parser.error("--quick needs --out, so that rough figures do not replace the stored ones")
    for name in options.parts or PARTS:
        result = PARTS[name](QUICK if options.quick else Length())
        stored = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps(stored | {name: result}, indent=1) + "\n")
        print(json.dumps({name: result}, indent=1), flush=True)


if __name__ == "__main__":
    main()
