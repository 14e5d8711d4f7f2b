"""The records of a study: cells, tables, and the metrics of one replicate.

The seed of a replicate depends only on study, cell and number, so each can be recomputed by itself.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np

import studies
from localma.errors import InvalidInputError, unknown_name
from studies.findings import Finding, Results
from studies.pairs import Comparison

Keys = Mapping[str, str | int | float]
Metrics = dict[str, float]
Run = Callable[[Keys, np.random.SeedSequence, Sequence[str]], Metrics]


@dataclass(frozen=True)
class Cell:
    """One setting of a study: its keys (setting, n, ...), methods, and number of replicates.

    A slow cell is left out of ``--quick`` runs.
    """

    keys: Keys
    methods: tuple[str, ...]
    replicates: int
    slow: bool = False

    @property
    def identity(self) -> str:
        """The keys as text, independent of their order."""
        return json.dumps(dict(self.keys), sort_keys=True)


@dataclass(frozen=True)
class Table:
    """One metric of some cells, with a row per cell and a column per method.

    where : keys that a cell must have, each with its allowed values.
    published : the table of the paper, such as "Table 1"; None if the paper has none.
    digits : number of significant digits of a mean.
    """

    title: str
    metric: str
    rows: tuple[str, ...]
    methods: tuple[str, ...]
    where: Mapping[str, tuple[str | int | float, ...]] = field(default_factory=dict)
    published: str | None = None
    digits: int = 3


@dataclass(frozen=True)
class Study:
    """A study. `run(keys, seed, methods)` returns the metrics of one replicate, "method:metric".

    The metrics of a method may depend on keys and seed, but not on the other methods in the call.
    So methods can be added to a study later, one at a time.

    published_as : method -> the name under which the paper reports it.
    overview : function from results to further tables in Markdown, which come after `tables`.
    notes : function from results to further lines under the tables.
    materials : returns other things that figures depend on, such as the weights of a network. A
        study with stored results is not continued with different materials.
    comparison : methods that are compared with the best of the others, if any.
    figures : name -> function of results and a folder that writes figures and returns their paths.
    draws_of : another study, whose replicates of the same cells draw the same samples; None for
        draws of its own.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    run: Run
    tables: tuple[Table, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    published_as: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    overview: Callable[[Results], str] = lambda results: ""
    notes: Callable[[Results], list[str]] = lambda results: []
    comparison: Comparison | None = None
    materials: Callable[[], dict[str, str]] = dict
    figures: Mapping[str, Callable[[Results, Path], list[Path]]] = field(default_factory=dict)
    draws_of: str | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods of all cells, in order of appearance."""
        return tuple(dict.fromkeys(method for cell in self.cells for method in cell.methods))

    def seed(self, keys: Keys, replicate: int) -> np.random.SeedSequence:
        """Seed of one replicate: a hash of study, cell and number, the same on every machine."""
        text = json.dumps([self.draws_of or self.name, dict(keys), replicate], sort_keys=True)
        return np.random.SeedSequence(int(hashlib.sha256(text.encode()).hexdigest()[:32], 16))

    def replicate(self, keys: Keys, replicate: int, methods: Sequence[str]) -> Metrics:
        """Compute one replicate; check its metrics and round them as in the file."""
        metrics = self.run(keys, self.seed(keys, replicate), methods)
        _check(metrics, methods, f"Study {self.name!r}, cell {dict(keys)}, replicate {replicate}")
        return {name: rounded(value) for name, value in sorted(metrics.items())}


def rounded(value: float) -> float:
    """Round to the six significant digits that are stored.

    >>> rounded(0.123456789)
    0.123457
    """
    return float(f"{value:.6g}")


def _check(metrics: Metrics, methods: Sequence[str], where: str) -> None:
    answered = {name.partition(":")[0] for name in metrics}
    if answered != set(methods):
        raise InvalidInputError(
            f"{where}: run must return metrics 'method:metric' of exactly the requested methods, "
            f"{sorted(methods)}; received metrics of {sorted(answered)}."
        )
    wrong = {name: value for name, value in metrics.items() if not np.isfinite(value)}
    if wrong:
        raise InvalidInputError(
            f"{where}: metrics must be finite; received {wrong}. Leave out undefined metrics."
        )


def grid(
    methods: tuple[str, ...], replicates: int, *, slow: bool = False, **values: Sequence[object]
) -> tuple[Cell, ...]:
    """Cells for every combination of the values of some keys.

    >>> [dict(cell.keys) for cell in grid(("gw",), 2, setting=["S1"], n=[100, 300])]
    [{'setting': 'S1', 'n': 100}, {'setting': 'S1', 'n': 300}]
    """
    combinations = itertools.product(*values.values())
    return tuple(
        Cell(dict(zip(values, chosen, strict=True)), methods, replicates, slow)  # type: ignore[arg-type]
        for chosen in combinations
    )


def study_names() -> list[str]:
    """Names of the studies in this folder: the modules that define STUDY."""
    # Their text is enough. Some modules of this folder cannot be imported without PyTorch.
    modules = sorted(Path(studies.__path__[0]).glob("[!_]*.py"))
    return [
        module.stem
        for module in modules
        if re.search(r"^STUDY\b", module.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def load_study(name: str) -> Study:
    """Load a study by its name, or as ``module:ATTRIBUTE`` if it is in another folder."""
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(import_module(module), attribute)
    names = study_names()
    if name not in names:
        raise unknown_name("study", name, names)
    return import_module(f"studies.{name}").STUDY
