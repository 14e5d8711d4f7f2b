"""A monitor of the answers of one process, with its state in a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from threading import Lock
from time import monotonic, time
from typing import TYPE_CHECKING

from localma.candidates.outputs import Table
from localma.production import Answer, Monitor
from localma.production.monitor_report import ALARM

if TYPE_CHECKING:
    from localma.serving.loaded import Loaded

PERIOD = 60.0
"""Seconds of a period. Processes number them by the clock, so that their states can be merged."""
SAVED = 30.0
"""Seconds after which the state is written again, with the next answer."""


class Watched:
    """The monitor of a loaded model in one process of a service.

    Parameters
    ----------
    loaded : Loaded
        The model.
    folder : path
        Where the state is written: one file for each process and version of the model, which
        ``localma monitor --merge`` reads.
    """

    def __init__(self, loaded: Loaded, folder: Path) -> None:
        self.monitor = Monitor(loaded.model)
        name = f"{loaded.version}-{os.getpid()}-{token_hex(3)}.monitor"
        self.file = folder / name
        self._lock, self._saved, self._rows = Lock(), monotonic(), 0

    def observe(self, X: Table, answer: Answer) -> None:
        """Take the rows of an answer, and write the state from time to time.

        Parameters
        ----------
        X : array or data frame of shape (n, p)
            The rows.
        answer : Answer
            Their answer.
        """
        with self._lock:
            self.monitor.observe(X, answer=answer, period=int(time() // PERIOD))
            self._rows += len(answer.weights)
            if monotonic() - self._saved > SAVED:
                self._save()

    def gauges(self) -> Mapping[str, float]:
        """Return the number of rows, the evidence, and whether it is an alarm.

        Returns
        -------
        dict of str -> float
            The numbers by name.
        """
        with self._lock:
            evidence = self.monitor.evidence
            return {"rows": self._rows, "evidence": evidence, "alarm": float(evidence >= ALARM)}

    def close(self) -> None:
        """Write the state."""
        with self._lock:
            self._save()

    def _save(self) -> None:
        self._saved = monotonic()
        if self._rows:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.monitor.save(self.file)
