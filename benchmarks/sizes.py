"""Processor time of fits as the sample grows, of other kinds of fits, and with many inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import process_time, sleep

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV

from benchmarks.auto import fit_auto
from benchmarks.data import Sample, regression
from benchmarks.peers import Peer, PeerError
from benchmarks.report import Report, Row
from benchmarks.timing import PAUSE, interleave
from localma.gates import ShrunkGate


@dataclass(frozen=True)
class Size:
    n: tuple[int, ...] = (
        100, 300, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 19_000, 30_000, 100_000, 300_000,
        1_000_000,
    )  # fmt: skip
    compared: tuple[int, ...] = (100, 1_000, 10_000, 19_000, 1_000_000)
    kinds: tuple[int, ...] = (1_000, 10_000)
    n_inputs: int = 20
    n_candidates: int = 5
    repeats: int = 5
    wide: tuple[int, int, int] = (5_000, 768, 7)


QUICK = Size(n=(100, 300), compared=(300,), kinds=(300,), repeats=1, wide=(200, 100, 3))


def run(quick: bool = False) -> Report:
    return measure(QUICK if quick else Size())


KINDS: dict[str, Callable[[Sample], object]] = {
    "own": lambda sample: fit_auto(sample, own="auto"),
    "trees": lambda sample: fit_auto(sample, ShrunkGate(trees=True)),
}
"""Other kinds of fits, whose time is compared with that of `auto`."""


def measure(size: Size) -> Report:
    report = Report()
    warm = regression(100, size.n_inputs, size.n_candidates, seed=1).train
    for fit in (fit_auto, *KINDS.values()):
        fit(warm)
    HistGradientBoostingRegressor().fit(warm.X, warm.y[:, 0])
    _processor_time(report, size)
    _many_inputs(report, size)
    return report


def processor_seconds(work: Callable[[], object], repeats: int) -> list[float]:
    """Processor time of each repeat, summed over threads."""
    seconds = []
    for _ in range(repeats):
        sleep(PAUSE)
        start = process_time()
        work()
        seconds.append(process_time() - start)
    return seconds


def _processor_time(report: Report, size: Size) -> None:
    """Processor time of `auto` at every n, compared with other fits at some of them."""
    medians = []
    for n in size.n:
        train = regression(n, size.n_inputs, size.n_candidates, seed=0).train
        seconds = processor_seconds(partial(fit_auto, train), size.repeats)
        ours = report.add(Row(f"processor time, n={n}", "auto", seconds))
        medians.append(ours.median)
        if n in size.compared:
            _compare_with_boosting(report, ours, train, size.repeats)
        if n in size.kinds:
            for kind, fit in KINDS.items():
                seconds = processor_seconds(partial(fit, train), size.repeats)
                row = report.add(Row(ours.work, f"auto, {kind}", seconds))
                report.ratio(f"ratio_processor_time_of_{kind}_{n}", row, ours)
    falls = [1.0 - after / before for before, after in pairwise(medians)]
    report.figure("largest_fall_of_processor_time", max(0.0, *falls))


def _compare_with_boosting(report: Report, ours: Row, train: Sample, repeats: int) -> None:
    """Compare with boosting of inputs and predictions, by scikit-learn and by LightGBM."""
    n, y = len(train.y), train.y[:, 0]
    both = np.hstack([train.X, train.P[:, :, 0]])
    seconds = processor_seconds(partial(HistGradientBoostingRegressor().fit, both, y), repeats)
    theirs = report.add(Row(ours.work, "HistGradientBoosting on [X, P]", seconds))
    report.ratio(f"ratio_processor_time_to_boosting_{n}", ours, theirs)
    key = f"ratio_processor_time_to_lightgbm_{n}"
    try:
        seconds = _seconds_of_lightgbm(both, y, repeats)
    except PeerError as reason:
        report.missing(key, str(reason))
    else:
        row = report.add(Row(ours.work, "LightGBM on [X, P]", seconds))
        report.ratio(key, ours, row)


def _seconds_of_lightgbm(
    X: NDArray[np.floating], y: NDArray[np.floating], repeats: int
) -> list[float]:
    arrays = {"X": X, "y": y, "threads": np.array(cpu_count())}
    peer = Peer.start("lightgbm", arrays)
    for _ in range(repeats):
        sleep(PAUSE)
        peer.run()
    return list(peer.close()["seconds"])


def _many_inputs(report: Report, size: Size) -> None:
    """Time with many inputs, compared with a cross-validated ridge regression of P."""
    n, p, M = size.wide
    train = regression(n, p, M, seed=0).train
    ridge = RidgeCV(alphas=np.logspace(-3, 6, 10), cv=5)
    timings = interleave(
        {"auto": lambda: fit_auto(train), "ridge": lambda: ridge.fit(train.X, train.P[:, :, 0])},
        max(1, size.repeats // 2),
        PAUSE,
    )
    work = f"fit, n={n}, p={p}, M={M}"
    ours = report.add(Row(work, "auto", timings["auto"].seconds))
    theirs = report.add(Row(work, "RidgeCV, ten penalties, cv=5", timings["ridge"].seconds))
    report.ratio("ratio_wide_to_ridge", ours, theirs)
