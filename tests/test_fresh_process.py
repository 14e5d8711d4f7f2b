"""The first call of a new process: nothing hangs, and a signal ends every command soon.

Other tests run in a process that has loaded the kernel long ago. Here each first call has a new
process, with a busy process beside it for each core, since races between threads hardly show on an
idle machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import joblib
import numba
import numpy as np
import pytest

import localma
from localma import Column, LocalMARegressor
from localma._signals import thread_pool

CORES = int(joblib.cpu_count())
ROWS = 40_000  # more than one thread takes at once
PATIENCE = 180.0  # seconds; a process that takes so long hangs
LIMIT = 5.0  # seconds from a signal to the end of the process

posix = pytest.mark.skipif(sys.platform == "win32", reason="forks and signals are POSIX's")
several_cores = pytest.mark.skipif(CORES == 1, reason="one core runs no threads")
needs_cli = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("typer", "rich", "pyarrow")),
    reason="needs the extra cli",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model, rows in arrays and tables, and what the model predicts for them."""
    made = tmp_path_factory.mktemp("fresh")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 4))
    X[:, 2], X[:, 3] = X[:, 0], -X[:, 0]
    y = np.abs(X[:, 0])
    pool = {"rising": Column(2), "falling": Column(3)}
    model = LocalMARegressor(pool, random_state=0).fit(X[:300], y[:300])
    assert len(model.gate_.answer_.gates) > 0  # otherwise nothing here would need the kernel
    model.save(made / "arrays.localma")
    np.savez(
        made / "expected.npz",
        prediction=model.predict(X),
        low=model.weight_band(X)[0],
        ends=model.predict_interval(X),
    )
    for name, array in {"X": X, "y": y}.items():
        np.save(made / f"{name}.npy", array)
    for name, count in {"few.csv": 300, "train.csv": 15_000, "rows.csv": ROWS}.items():
        content = np.column_stack([X, y])[:count]
        header = "x,z,rising,falling,y"
        np.savetxt(made / name, content, "%.6g", ",", header=header, comments="")
    return made


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy."""
    with ExitStack() as stack:
        for _ in range(CORES):
            process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def environment(**variables: str) -> dict[str, str]:
    """Variables of a process that finds the same package and reports where its threads hang."""
    paths = [variables.pop("first", ""), str(Path(localma.__file__).parents[1])]
    paths.append(os.environ.get("PYTHONPATH", ""))
    found = os.pathsep.join(path for path in paths if path)
    return {**os.environ, "PYTHONPATH": found, "PYTHONFAULTHANDLER": "1", **variables}


def run_at_once(arguments: Sequence[str], folder: Path, repeats: int) -> None:
    """Run a command several times side by side; each must succeed, and soon."""
    processes = [
        subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(repeats)
    ]  # fmt: skip
    deadline = time.monotonic() + PATIENCE
    try:
        for process in processes:
            _, words = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
            assert process.returncode == 0, words
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # which lets it print its threads
        pytest.fail(f"a new process hangs:\n{process.communicate(timeout=PATIENCE)[1]}")
    finally:
        for process in processes:
            process.kill()
            process.communicate()


LOAD = """
import os, sys, threading
import numpy as np
from localma import load
X, y = np.load("X.npy"), np.load("y.npy")
expected = np.load("expected.npz")
model = load("arrays.localma")
def check_predictions():
    np.testing.assert_array_equal(model.predict(X), expected["prediction"])
"""
THREADS = """
errors = []
barrier = threading.Barrier({count})
def call():
    try:
        barrier.wait()
        check_predictions()
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=call) for _ in range({count})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if errors:
    raise errors[0]
"""
FORK = """
def check_in_child():
    child = os.fork()
    if child == 0:
        try:
            check_predictions()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
FIT = """
import numpy as np
from localma import LocalMARegressor
from localma.gates import MLPGate
X, y = (np.load(name, mmap_mode="r") for name in ("X.npy", "y.npy"))
model = LocalMARegressor(gate=MLPGate(n_steps=40, n_restarts=2), random_state=0)
model.fit(X[:, :2], y, predictions=X[:, 2:])
assert model.gate_.n_steps_.tolist() == [40, 40]
assert np.isfinite(model.predict(X[:, :2], predictions=X[:, 2:])).all()
"""

FIRST_CALLS = {
    "predict": LOAD + "check_predictions()",
    "weight_band": LOAD + "np.testing.assert_array_equal(model.weight_band(X)[0], expected['low'])",
    "predict_interval": LOAD
    + "np.testing.assert_array_equal(model.predict_interval(X), expected['ends'])",
    "evaluate": LOAD + "from localma.inspection import evaluate\n"
    "entries = evaluate(model, X, y, control=False).entries\n"
    "assert entries[-1].loss.value < entries[0].loss.value",
    "memory-mapped fit": FIT,
    "two threads": LOAD + THREADS.format(count=2),
    "sixteen threads": LOAD + THREADS.format(count=16),
}
FORKS = {
    "forked child": LOAD + FORK + "check_in_child()\ncheck_predictions()",
    "child forked while a thread loads": LOAD + FORK + "thread = threading.Thread("
    "target=check_predictions)\nthread.start()\n"
    "while 'numba' not in sys.modules: pass\ncheck_in_child()\nthread.join()",
}
REPEATS = [3, pytest.param(10, marks=pytest.mark.slow)]


@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("call", FIRST_CALLS)
def test_a_first_call_does_not_hang(folder: Path, call: str, repeats: int) -> None:
    with busy_cores():
        run_at_once(["-c", FIRST_CALLS[call]], folder, repeats)


@posix
@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("call", FORKS)
def test_a_forked_child_does_not_hang(folder: Path, call: str, repeats: int) -> None:
    with busy_cores():
        run_at_once(["-c", FORKS[call]], folder, repeats)


# Commands

FIT = ["fit", "{rows}", "--target", "y", "--predictions", "rising", "--predictions", "falling"]
COMMANDS = {
    "predict": ["predict", "table.localma", "rows.csv", "--out", "{out}.csv"],
    "evaluate": ["evaluate", "table.localma", "rows.csv", "--no-control"],
    "weights": ["weights", "table.localma", "rows.csv"],
    "report": ["report", "table.localma", "rows.csv", "--no-control", "--out", "{out}.html"],
    "fit": [*FIT, "--out", "{out}.localma"],
}


def command(name: str, rows: str = "train.csv", out: Path | str = "out") -> list[str]:
    words = [word.format(rows=rows, out=out) for word in COMMANDS[name]]
    return ["-m", "localma", *words]


@pytest.fixture(scope="module")
def tables(folder: Path) -> Path:
    """The same folder, with a model that the command line wrote."""
    run_at_once(command("fit", "few.csv", "table"), folder, 1)
    return folder


@needs_cli
@pytest.mark.parametrize("repeats", REPEATS)
@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_a_command_does_not_hang(tables: Path, name: str, repeats: int) -> None:
    with busy_cores():
        run_at_once(command(name), tables, repeats)


INTERRUPT_ITSELF = """
import os, sys, threading, time
moment, number = os.environ["MOMENT"], int(os.environ["NUMBER"])

def send():
    with open(os.environ["SENT"], "w") as file:
        file.write(str(time.monotonic()))
    os.kill(os.getpid(), number)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            send()
        if name == "localma.gates.fused.kernel" and moment == "compiling":
            threading.Timer(1.0, send).start()

plain_start = threading.Thread.start

def start(thread):
    plain_start(thread)
    if "ThreadPoolExecutor" in thread.name:
        threading.Thread.start = plain_start
        send()

sys.meta_path.insert(0, Finder())
if moment == "in threads":
    threading.Thread.start = start
"""
"""Python runs it before anything else; the process then sends a signal to itself at a moment."""


def interrupted(
    arguments: Sequence[str], folder: Path, tmp_path: Path, moment: str, number: int
) -> tuple[int, str]:
    """Exit code and messages of a process that gets a signal; it must end soon after it."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT_ITSELF)
    sent, variables = tmp_path / "sent", {"first": str(tmp_path)}
    sent.unlink(missing_ok=True)
    if moment == "compiling":
        variables["NUMBA_CACHE_DIR"] = str(tmp_path / "empty cache")
    variables |= {"MOMENT": moment, "NUMBER": str(int(number)), "SENT": str(sent)}
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environment(**variables),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, words = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert sent.exists(), f"the process ended before the moment came: {words}"
    assert time.monotonic() - float(sent.read_text()) < LIMIT
    return process.returncode, words


def leftovers(tmp_path: Path) -> set[str]:
    """Names of what a command left behind in the folder of its output."""
    return {path.name for path in tmp_path.iterdir()} - {"sitecustomize.py", "sent", "__pycache__"}


IN_A_CALLBACK = """
import ctypes, signal, time
from localma import _signals

@ctypes.CFUNCTYPE(None)
def compile_a_little():
    signal.raise_signal(signal.SIGTERM)

with _signals.ending_on_signals():
    try:
        compile_a_little()
        time.sleep(30)
    finally:
        print("cleaned up")
"""


@posix
def test_sigterm_in_a_callback_from_c_still_ends_the_block() -> None:
    """Numba compiles through such callbacks, where an exception is printed and lost."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALLBACK], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout) == (143, "cleaned up\n")
    assert done.stderr == "localma: ended by SIGTERM\n"


MOMENTS = ["scipy.optimize", "typer", "numba", "compiling", "in threads"]
slow = pytest.mark.slow
SIGTERMS = [
    pytest.param(name, moment, marks=() if name == "predict" or moment == "in threads" else slow)
    for name in COMMANDS
    for moment in MOMENTS
]


@posix
@needs_cli
@several_cores
@pytest.mark.parametrize(("name", "moment"), SIGTERMS)
def test_sigterm_ends_a_command_soon(tables: Path, tmp_path: Path, name: str, moment: str) -> None:
    if name == "report":
        pytest.importorskip("jinja2")
        pytest.importorskip("matplotlib")
    arguments = command(name, out=tmp_path / "out")
    code, words = interrupted(arguments, tables, tmp_path, moment, signal.SIGTERM)
    # While the program starts, the system itself ends it; shells give both the code 143.
    assert code in (143, -signal.SIGTERM)
    assert "Traceback" not in words
    assert leftovers(tmp_path) <= {"empty cache"}


@posix
@needs_cli
@several_cores
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_prints_no_traceback(tables: Path, tmp_path: Path, moment: str) -> None:
    arguments = command("predict", out=tmp_path / "out")
    code, words = interrupted(arguments, tables, tmp_path, moment, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in words
    assert leftovers(tmp_path) <= {"empty cache"}
    if moment != "compiling":  # where the process may be ended from outside of its work
        assert words.splitlines()[-1] == "localma: interrupted"


@posix
@needs_cli
def test_ctrl_c_ends_the_installed_program_as_quietly(tables: Path, tmp_path: Path) -> None:
    program = tmp_path / "localma"
    program.write_text("from localma.__main__ import main\nmain()\n")
    code, words = interrupted(
        [str(program), "demo"], tables, tmp_path, "scipy.optimize", signal.SIGINT
    )
    assert (code, words) == (130, "localma: interrupted\n")


@posix
def test_ctrl_c_in_a_script_stays_an_exception(folder: Path, tmp_path: Path) -> None:
    script = "try:\n    import localma\nexcept KeyboardInterrupt:\n    raise SystemExit(7)"
    for _ in range(3):  # a package that is being imported may catch every exception
        code, words = interrupted(["-c", script], folder, tmp_path, "scipy.optimize", signal.SIGINT)
        assert words == ""
        if code == 7:
            return
    pytest.fail("the script never saw the exception")


def leave_pool(
    error: BaseException, futures: list[Future[object]], work: Callable[[float], object]
) -> None:
    with thread_pool(1) as pool:
        futures += [pool.submit(work, 0.5), pool.submit(work, 0.5)]
        raise error


def test_an_interruption_does_not_wait_for_threads() -> None:
    futures: list[Future[object]] = []
    release = threading.Event()
    try:
        with pytest.raises(KeyboardInterrupt):
            leave_pool(KeyboardInterrupt(), futures, lambda _: release.wait(PATIENCE))
        assert not futures[0].done()
        assert futures[1].cancelled()
    finally:
        release.set()


def test_a_failure_waits_for_the_threads_that_run() -> None:
    futures: list[Future[object]] = []
    with pytest.raises(ValueError, match="failed"):
        leave_pool(ValueError("failed"), futures, time.sleep)
    assert futures[0].done()


# Compiling in advance


def new_process(
    arguments: Sequence[str], folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(**variables), check=True,
        timeout=PATIENCE, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numba's cache, filled by a process that found it empty."""
    cache = tmp_path_factory.mktemp("warm")
    script = "import localma; print(localma.warm_up())"
    done = new_process(["-c", script], cache, NUMBA_CACHE_DIR=str(cache))
    assert "compiles its kernel" in done.stderr
    assert Path(done.stdout.strip()) == cache
    return cache


def test_after_a_warm_up_nothing_is_compiled(folder: Path, warm_cache: Path) -> None:
    done = new_process(["-c", FIRST_CALLS["predict"]], folder, NUMBA_CACHE_DIR=str(warm_cache))
    assert "compiles its kernel" not in done.stderr


def test_a_warm_up_compiles_all_that_a_fit_needs(folder: Path, warm_cache: Path) -> None:
    script = """
import localma, numpy as np
from numba.core import event
localma.warm_up()
x = np.linspace(0.1, 2.0, 50)
recorder = event.RecordingListener()
with event.install_listener("numba:compile", recorder):
    for loss in ("squared_error", "huber", "gamma", "tweedie"):
        model = localma.LocalMARegressor(loss=loss, gate="local", random_state=0)
        model.fit(x[:, None], x, predictions=np.stack([2.0 - x / 2, x / 2], axis=1))
assert recorder.buffer == []
"""
    done = new_process(["-c", script], folder, NUMBA_CACHE_DIR=str(warm_cache))
    assert "compiles its kernel" not in done.stderr


@needs_cli
def test_the_command_tells_where_the_cache_is(warm_cache: Path) -> None:
    variables = {"NUMBA_CACHE_DIR": str(warm_cache)}
    done = new_process(["-m", "localma", "warm-up"], warm_cache, **variables)
    assert done.stdout == f"Compiled. The result is stored in {warm_cache}\n"
    done = new_process(["-m", "localma", "warm-up", "--json"], warm_cache, **variables)
    assert json.loads(done.stdout) == {"cache": str(warm_cache)}


@pytest.mark.skipif(
    not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"),
    reason="this version of Numba always falls back to another folder",
)
def test_no_folder_that_can_be_written_costs_time_only(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    script = "import localma\nassert localma.warm_up() is None\n" + FIRST_CALLS["predict"]
    done = new_process(
        ["-c", script], folder, NUMBA_CACHE_DIR=str(tmp_path / "file"),
        NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator",
    )  # fmt: skip
    assert done.stderr.count("localma cannot use Numba's cache") == 1
    assert "Set NUMBA_CACHE_DIR to a folder that this process may write to" in done.stderr


def test_kernels_of_two_processes_fit_together(warm_cache: Path, tmp_path: Path) -> None:
    """Numba numbers the functions of a process, and links functions of one name and number."""
    cache = tmp_path / "mixed"
    shutil.copytree(warm_cache, cache)
    for file in cache.rglob("kernel.train-*"):
        file.unlink()
    for _ in range(2):  # compile what is missing, then load what two processes compiled
        new_process(["-c", FIT_AFTER_OTHER_FUNCTIONS], tmp_path, NUMBA_CACHE_DIR=str(cache))


FIT_AFTER_OTHER_FUNCTIONS = """
import localma, numba, numpy as np
for value in range(5):
    numba.njit(lambda value=value: value)()
x = np.linspace(-2.0, 2.0, 400)
truth = np.where(x > 0.0, x, -2.0 * x)
model = localma.LocalMARegressor(gate="local", random_state=0)
model.fit(x[:, None], truth, predictions=np.stack([x, -2.0 * x], axis=1))
wrong = model.predict(x[:, None], predictions=np.stack([x, -2.0 * x], axis=1)) - truth
assert np.mean(wrong**2) < 0.02, np.mean(wrong**2)
"""


@slow
def test_a_damaged_cache_costs_time_only(folder: Path, warm_cache: Path, tmp_path: Path) -> None:
    cache = tmp_path / "damaged"
    shutil.copytree(warm_cache, cache)
    for index in cache.rglob("*.nbi"):
        index.write_bytes(b"")
    done = new_process(["-c", FIRST_CALLS["predict"]], folder, NUMBA_CACHE_DIR=str(cache))
    assert "localma cannot use Numba's cache (EOFError" in done.stderr
