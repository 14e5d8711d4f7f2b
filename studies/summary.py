"""The summary of a study: one record per figure, with the published figure, and the runs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from localma.errors import InvalidInputError
from localma.storage.whole_files import write_whole
from studies.findings import Results
from studies.harness import Study, Table, rounded
from studies.published import Figure, find, load_published
from studies.storage import Replicates, Store

MONTE_CARLO_ERRORS = 3.0
"""Figures agree if they differ by at most this number of standard errors, plus rounding."""


def results_of(replicates: Replicates) -> Results:
    """Results of stored replicates."""
    counts: dict[str, int] = {}
    for cell, number in replicates:
        counts[cell] = max(number + 1, counts.get(cell, 0))
    return Results(
        (json.loads(cell), replicates.get((cell, number), {}))
        for cell, count in counts.items()
        for number in range(count)
    )


def records(study: Study, results: Results) -> list[dict[str, Any]]:
    """One record per method, metric and cell, in the order of the study's cells."""
    order = {cell.identity: position for position, cell in enumerate(study.cells)}
    published = load_published()
    found = [
        _record(study, results, published, method, metric, keys)
        for method, metric, keys in results.entries()
    ]
    known = {method: position for position, method in enumerate(study.methods)}
    return sorted(
        found,
        key=lambda record: (
            record["metric"],
            order.get(json.dumps(record["keys"], sort_keys=True), len(order)),
            known.get(record["method"], len(known)),
        ),
    )


def _record(
    study: Study,
    results: Results,
    published: list[Figure],
    method: str,
    metric: str,
    keys: dict[str, Any],
) -> dict[str, Any]:
    values = results.values(method, metric, **keys)
    name = study.published_as.get(method)
    figure = None if name is None else find(published, method=name, metric=metric, **keys)
    spread = deviation(values) if len(values) > 1 else None
    table = next((table for table in study.tables if shows(table, method, metric, keys)), None)
    return {
        "study": study.name,
        "table": table and (table.published or table.title),
        **keys,
        "method": method,
        "metric": metric,
        "published": figure and figure.value,
        "published_sd": figure and figure.sd,
        "value": rounded(float(values.mean())),
        "sd": None if spread is None else rounded(spread),
        "replicates": len(values),
        "agrees": None if figure is None or spread is None else agree(figure, values),
        "keys": keys,
    }


def shows(table: Table, method: str, metric: str, keys: Mapping[str, Any]) -> bool:
    """Whether a table shows a figure."""
    allowed = all(keys.get(key) in values for key, values in table.where.items())
    return allowed and metric == table.metric and method in table.methods


def deviation(values: np.ndarray) -> float:
    """Standard deviation over replicates; exactly zero if they are all equal.

    >>> deviation(np.full(5, 63.2)), deviation(np.array([1.0, 2.0, 3.0]))
    (0.0, 1.0)
    """
    return float(values.std(ddof=1)) if np.ptp(values) > 0 else 0.0


def agree(figure: Figure, values: np.ndarray) -> bool:
    """Whether a published mean and ours differ by at most Monte Carlo error and rounding.

    The larger of the two spreads counts, because that of a few replicates may be small by chance.
    """
    allowed = MONTE_CARLO_ERRORS * _error(figure, values) + figure.rounding
    return bool(abs(figure.value - values.mean()) <= allowed * (1 + 1e-9))


def z_value(figure: Figure, values: np.ndarray) -> float:
    """Our mean minus the published one, in standard errors of this difference.

    The variance has three terms: the Monte Carlo variance of our mean and of the published one,
    both with the larger of the two spreads, and that of rounding, ``h^2 / 3`` for an error that is
    uniform within half a unit ``h`` of the last printed digit.

    >>> figure = Figure("Table 1", {}, "0.36 (0.15)", 0.36, 0.15, 0.005, 500)
    >>> round(z_value(figure, np.full(500, 0.38)), 2)
    2.02
    """
    variance = _error(figure, values) ** 2 + figure.rounding**2 / 3.0
    return float((values.mean() - figure.value) / np.sqrt(variance))


def _error(figure: Figure, values: np.ndarray) -> float:
    """Monte Carlo standard error of the difference of a published mean and ours."""
    spread = max(deviation(values), figure.sd or 0.0)
    return float(spread * np.sqrt(1.0 / len(values) + 1.0 / figure.replicates))


def versions() -> dict[str, str]:
    """Versions of the packages that figures depend on."""
    found = {"python": platform.python_version()}
    for name in ("localma", "numpy", "scipy", "scikit-learn", "numba", "torch", "transformers"):
        with suppress(PackageNotFoundError):  # the last two are extras
            found[name] = version(name)
    return found


def commit() -> str | None:
    """The current commit, with a mark if sources have changed; None outside of git."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        name = subprocess.check_output([*git, "rev-parse", "HEAD"], stderr=subprocess.DEVNULL)
        sources = ["diff", "--quiet", "HEAD", "--", ":/src", ":/studies/*.py"]
        changed = subprocess.run([*git, *sources], check=False).returncode != 0
    except (OSError, subprocess.CalledProcessError):
        return None
    return name.decode().strip()[:12] + (" and changes" if changed else "")


def machine() -> dict[str, Any]:
    """The machine that runs the study."""
    return {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system()}


def _processor() -> str:
    description = Path("/proc/cpuinfo")
    lines = description.read_text().splitlines() if description.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def write_summary(
    study: Study,
    store: Store,
    replicates: Replicates,
    more_runs: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write the summary; add runs of the journal, and others, to those that it already lists."""
    results = results_of(replicates)
    runs = {run["started"]: run for run in [*runs_of(store), *store.runs(), *more_runs]}
    summary = {
        "study": study.name,
        "title": study.title,
        "config": [
            {**cell.keys, "replicates": cell.replicates, "methods": list(cell.methods)}
            for cell in study.cells
        ],
        "runs": [runs[started] for started in sorted(runs)],
        "findings": [
            {
                "words": finding.words,
                "source": finding.source,
                **({"panel": finding.panel} if finding.panel else {}),
                "verdict": finding.verdict(results),
            }
            for finding in study.findings
        ],
        "records": [
            {name: value for name, value in record.items() if name != "keys"}
            for record in records(study, results)
        ],
    }
    write_whole(store.summary_file, (json.dumps(summary, indent=1) + "\n").encode())


def check_materials(study: Study, store: Store) -> dict[str, str]:
    """Return the materials of a study; refuse if stored replicates have different ones."""
    now = study.materials()
    for run in [*runs_of(store), *store.runs()]:
        before = run.get("materials", now)
        if before != now:
            raise InvalidInputError(
                f"All replicates of study {study.name!r} must have the same materials. Those in "
                f"{store.compact_file.name} have {before}, the new ones {now}. Use another "
                "folder with --results."
            )
    return now


def runs_of(store: Store) -> list[dict[str, Any]]:
    """Runs that a summary lists."""
    if not store.summary_file.exists():
        return []
    return json.loads(store.summary_file.read_text())["runs"]
