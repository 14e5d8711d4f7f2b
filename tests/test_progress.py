"""Progress: a bar on a terminal, a line in the log elsewhere, and nothing for quick work."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from localma import progress
from localma.errors import InvalidInputError
from localma.progress import bar, track

HAS_RICH = importlib.util.find_spec("rich") is not None
needs_rich = pytest.mark.skipif(not HAS_RICH, reason="bars are drawn by rich (extra cli)")
pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")


def on_a_terminal(script: str, **environment: str) -> str:
    """What a process writes to a real pseudo-terminal."""
    reader, writer = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "LOCALMA"))}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=writer,
        stdout=writer,
        stderr=writer,
        env={**kept, "TERM": "xterm", "COLUMNS": "100", **environment},
    )
    os.close(writer)
    written = b""
    while True:
        try:
            piece = os.read(reader, 4096)
        except OSError:  # how Linux says that the other end has closed
            break
        if not piece:
            break
        written += piece
    os.close(reader)
    assert process.wait() == 0, written.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


SLOW = """
import time
from localma import progress
progress.QUIET_SECONDS = 0.05
for name in ["north", "south [old]"]:
    for _ in progress.track(range(4), name):
        time.sleep(0.03)
"""


@needs_rich
def test_a_terminal_shows_one_bar_per_candidate() -> None:
    written = on_a_terminal(SLOW)
    assert re.search(r"north\b.*4/4", written)
    assert re.search(r"south \[old\].*4/4", written)


POOL = """
import time
import numpy as np
from localma import progress
from localma.candidates import Pool, as_candidate
progress.QUIET_SECONDS = 0.05
def slow(X):
    time.sleep(0.02)
    return X[:, 0]
models = {name: as_candidate(lambda X: slow(X), batch_size=10) for name in ("north", "south")}
Pool(models, task="regression").predict(np.zeros((45, 1)))
"""


@needs_rich
def test_a_pool_shows_the_rows_of_each_candidate() -> None:
    written = on_a_terminal(POOL)
    assert re.search(r"north\b.*45/45", written)
    assert re.search(r"south\b.*45/45", written)


@needs_rich
def test_quick_work_shows_nothing() -> None:
    assert on_a_terminal(SLOW.replace("0.05", "60")) == ""


@needs_rich
def test_the_environment_switches_bars_off_and_on_at_once() -> None:
    assert on_a_terminal(SLOW, LOCALMA_PROGRESS="0") == ""
    assert "north" in on_a_terminal(SLOW.replace("0.05", "60"), LOCALMA_PROGRESS="1")


@needs_rich
def test_children_leave_the_terminal_to_their_parent() -> None:
    script = f"""
import multiprocessing
def work():
    exec({SLOW!r})
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start(), child.join()
    assert child.exitcode == 0
"""
    assert on_a_terminal(script) == ""


@needs_rich
def test_bars_inside_bars_and_threads_share_one_display(capsys: Any) -> None:
    def work(name: str) -> None:
        for _ in track(range(2), name, progress=True):
            for _ in track(range(3), f"{name} inner", progress=True):
                pass

    threads = [threading.Thread(target=work, args=(f"t{k}",)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert progress._display.rich is None
    assert progress._display.open_tasks == 0
    assert "2/2" in capsys.readouterr().err


def fails_half_way() -> None:
    with bar("half", 4, progress=True) as advance:
        advance(1)
        raise ValueError("half way")


@needs_rich
def test_a_bar_goes_away_when_the_work_is_left(capsys: Any) -> None:
    with pytest.raises(ValueError, match="half way"):
        fails_half_way()
    assert progress._display.rich is None
    assert "1/4" in capsys.readouterr().err


def test_without_a_terminal_the_log_tells(monkeypatch: Any, caplog: Any, capsys: Any) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="localma"):
        assert list(track(iter("ab"), "north", total=2)) == ["a", "b"]
        assert list(track(iter("a"), "south")) == ["a"]
    lines = [re.sub(r" in .*", "", record.getMessage()) for record in caplog.records]
    assert lines == ["north: 1 of 2", "north: 2 of 2", "north: 2 of 2", "south: 1", "south: 1"]
    assert capsys.readouterr() == ("", "")


def test_quick_work_is_not_logged_and_false_is_silent(monkeypatch: Any, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, logger="localma"):
        list(track(range(3), "north"))
        monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
        list(track(range(3), "north", progress=False))
    assert caplog.records == []


def test_another_switch_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setenv("LOCALMA_PROGRESS", "yes")
    with pytest.raises(
        InvalidInputError, match=r"LOCALMA_PROGRESS must be 0 .* or 1 .*; received 'yes'"
    ):
        list(track(range(3), "north"))


@pytest.mark.skipif(HAS_RICH, reason="rich is here")
def test_without_rich_a_wanted_bar_names_the_extra() -> None:
    with pytest.raises(ImportError, match=r"localma\[cli\]"):
        list(track(range(3), "north", progress=True))
