"""Files of replicates: one compact file per study, and a journal while it runs.

The journal grows by one line per replicate, so a run can be killed at any time. An incomplete last
line is dropped, and complete lines are kept. When a run ends, the journal is merged into the
compact file. The bytes of that file depend only on the replicates, not on the order or the number
of runs.
"""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from localma.errors import InvalidInputError
from localma.storage.whole_files import write_whole

Key = tuple[str, int]
Replicates = dict[Key, dict[str, float]]


class Journal:
    """The open journal of one run; `record` returns when the system has the line."""

    def __init__(self, file: BinaryIO, run: Mapping[str, Any]) -> None:
        self._file, self._start, self._synced = file, time.monotonic(), time.monotonic()
        self._write({"run": dict(run)})

    def record(self, key: Key, metrics: Mapping[str, float], seconds: float) -> None:
        """Append one replicate, and the time that a worker took for it."""
        cell, replicate = key
        line = {"cell": json.loads(cell), "replicate": replicate, "metrics": dict(metrics)}
        self._write({**line, "seconds": round(seconds, 4), "at": round(self._elapsed(), 3)})

    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        # Lines survive the end of this process. Once a second they also reach the disk.
        if time.monotonic() - self._synced > 1.0:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()


class Store:
    """The files of one study in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.compact_file = folder / f"{name}.jsonl.xz"
        self.journal_file = folder / f"{name}.journal"
        self.summary_file = folder / f"{name}.json"
        self._lock_file = folder / f"{name}.lock"

    def load(self) -> Replicates:
        """All complete replicates of the compact file and the journal."""
        replicates: Replicates = {}
        lines = read_compact(self.compact_file) if self.compact_file.exists() else []
        for line in [*lines, *self._journal_lines()]:
            if "run" not in line:
                merge_line(replicates, line)
        return replicates

    def runs(self) -> list[dict[str, Any]]:
        """Runs of the journal: their request, their replicates and their time."""
        runs: list[dict[str, Any]] = []
        for line in self._journal_lines():
            if "run" in line:
                runs.append({**line["run"], "replicates": 0, "seconds": 0.0, "worker_seconds": 0.0})
            else:
                run = runs[-1]
                run["replicates"] += 1
                run["seconds"] = line["at"]
                run["worker_seconds"] = round(run["worker_seconds"] + line["seconds"], 3)
        return [run for run in runs if run["replicates"]]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock out other runs of the same study until this process ends."""
        self._lock_file.parent.mkdir(parents=True, exist_ok=True)
        with self._lock_file.open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InvalidInputError(
                    f"Another run of this study is active: it holds {self._lock_file.name!r}. "
                    "Wait for it, or use another folder with --results."
                ) from error
            yield

    @contextmanager
    def journal(self, run: Mapping[str, Any]) -> Iterator[Journal]:
        """Open the journal for a run, after removing an incomplete last line."""
        with self.journal_file.open("ab", buffering=0) as file:
            whole = self.journal_file.read_bytes().rfind(b"\n") + 1
            file.truncate(whole)
            yield Journal(file, run)  # type: ignore[arg-type]
            os.fsync(file.fileno())

    def fold(self, replicates: Replicates) -> None:
        """Rewrite the compact file, whole or not at all, and remove the journal."""
        write_whole(self.compact_file, pack(replicates))
        self.journal_file.unlink(missing_ok=True)

    def _journal_lines(self) -> list[dict[str, Any]]:
        if not self.journal_file.exists():
            return []
        *whole, _torn = self.journal_file.read_bytes().split(b"\n")
        return [json.loads(line) for line in whole]


def read_compact(path: Path) -> list[dict[str, Any]]:
    """Lines of a compact file."""
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]


def merge_line(replicates: Replicates, line: Mapping[str, Any]) -> None:
    """Add one line; an existing metric is not changed."""
    key = (json.dumps(line["cell"], sort_keys=True), line["replicate"])
    replicates[key] = {**line["metrics"], **replicates.get(key, {})}


def pack(replicates: Replicates) -> bytes:
    """Compact file of some replicates: sorted JSON lines, compressed."""
    lines = []
    for cell, number in sorted(replicates, key=_position):
        metrics = dict(sorted(replicates[cell, number].items()))
        line = {"cell": json.loads(cell), "replicate": number, "metrics": metrics}
        lines.append(json.dumps(line, separators=(",", ":")) + "\n")
    return lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)


def _position(key: Key) -> tuple[Any, ...]:
    """Sort key of a replicate in the file: numbers as numbers, before texts."""
    cell, number = key
    values = [(isinstance(v, str), str(v) if isinstance(v, str) else v) for _, v in _items(cell)]
    return tuple(name for name, _ in _items(cell)), tuple(values), number


def _items(cell: str) -> list[tuple[str, Any]]:
    return sorted(json.loads(cell).items())
