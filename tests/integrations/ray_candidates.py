"""Candidates that processes of a Ray cluster import, and a driver that is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from uuid import uuid4

import numpy as np
from sklearn.linear_model import Ridge

LARGE = 2.5
"""The sample has no such input; some candidates fail on it."""


def column(X, name):
    return np.asarray(X[name].to_numpy())


def left(X):
    return column(X, "a") + 0.3 * column(X, "b")


def right(X):
    return 0.3 * column(X, "b") - column(X, "a")


def third(X):
    return 0.1 * column(X, "a")


def counted(X):
    """Note the number of rows in the folder that the environment names."""
    folder = os.environ.get("LOCALMA_TEST_COUNTED")
    if folder is not None:
        with open(Path(folder) / f"{os.getpid()}.txt", "a") as file:
            file.write(f"{len(X)}\n")
    return left(X)


def slow(X):
    time.sleep(0.4)
    return left(X)


def raises(X):
    if (column(X, "a") > LARGE).any():
        raise MemoryError("not enough memory for these rows")
    return left(X)


def dies(X):
    """End the process as the system does when memory runs out."""
    if (column(X, "a") > LARGE).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return left(X)


class SlowRidge(Ridge):
    """Takes two seconds for a fit, and leaves a file in a folder for each."""

    def __init__(self, folder=None):
        super().__init__()
        self.folder = folder

    def fit(self, X, y):
        (Path(self.folder) / uuid4().hex).touch()
        time.sleep(2.0)
        return super().fit(X, y)


def slow_batch(batch):
    time.sleep(0.3)
    return batch


def drive(kind, address, model, data, out):
    """Run a job; the test kills this process."""
    from localma.ray import Workers, gather, predict

    if kind == "predict":
        predict(
            model, data, out, address=address, workers=Workers(1), block_rows=200, trust=True,
            keep=["id"],
        )  # fmt: skip
    else:
        gather(data, {"X": ["a", "b"], "y": "id"}, folder=out, address=address)


if __name__ == "__main__":
    drive(*sys.argv[1:])
