"""Processor time of `gate="auto"` as the sample grows, and time with many inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import process_time, sleep

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV

from benchmarks.auto import fit_auto
from benchmarks.data import regression
from benchmarks.report import Report, Row
from benchmarks.timing import PAUSE, interleave


@dataclass(frozen=True)
class Size:
    n: tuple[int, ...] = (
        100, 300, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 19_000, 30_000, 100_000, 300_000,
        1_000_000,
    )  # fmt: skip
    compared: tuple[int, ...] = (1_000, 10_000, 19_000, 1_000_000)
    n_inputs: int = 20
    n_candidates: int = 5
    repeats: int = 5
    wide: tuple[int, int, int] = (5_000, 768, 7)


QUICK = Size(n=(100, 300), compared=(300,), repeats=1, wide=(200, 100, 3))


def run(quick: bool = False) -> Report:
    return measure(QUICK if quick else Size())


def measure(size: Size) -> Report:
    report = Report()
    warm = regression(100, size.n_inputs, size.n_candidates, seed=1).train
    fit_auto(warm)
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
    """Processor time of `auto` at every n, compared with boosting on [X, P] at some of them."""
    medians = []
    for n in size.n:
        train = regression(n, size.n_inputs, size.n_candidates, seed=0).train
        work = f"processor time, n={n}"
        seconds = processor_seconds(partial(fit_auto, train), size.repeats)
        ours = report.add(Row(work, "auto", seconds))
        medians.append(ours.median)
        if n in size.compared:
            both = np.hstack([train.X, train.P[:, :, 0]])
            boosting = partial(HistGradientBoostingRegressor().fit, both, train.y[:, 0])
            seconds = processor_seconds(boosting, size.repeats)
            theirs = report.add(Row(work, "HistGradientBoosting on [X, P]", seconds))
            report.ratio(f"ratio_processor_time_to_boosting_{n}", ours, theirs)
    falls = [1.0 - after / before for before, after in pairwise(medians)]
    report.figure("largest_fall_of_processor_time", max(0.0, *falls))


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
