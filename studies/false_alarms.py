"""How often does each warning appear if nothing is wrong?

A replicate is one clean fit: candidates that are trained on other rows, a labelled sample, and new
rows of the same kind, on which the model predicts and is evaluated. A cell is a simulated setting
with a size of the labelled sample, or a data set of `studies.safety_data`. Every warning class of
`localma.errors` is counted, including classes that are added later.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge
from sklearn.tree import DecisionTreeRegressor

from localma import LocalMAClassifier, LocalMARegressor
from localma.errors import LocalMAWarning
from localma.inspection import evaluate
from studies.findings import Finding, NotRunError, Results
from studies.harness import Cell, Study, grid
from studies.safety import DATA_SETS
from studies.safety_data import data_folder

Array = NDArray[np.floating]
Metrics = dict[str, float]
Model = LocalMARegressor | LocalMAClassifier

SIZES = (100, 300, 1000, 3000)
N_NEW = 500
N_INPUTS = 4
REPLICATES = 20
ALLOWED = 0.01
"""Share of clean fits in which a warning may appear."""

STAGES = ("fit", "use")
"""Stages: the fit, and the prediction and evaluation of new rows."""


@dataclass(frozen=True)
class CleanFit:
    """A model to fit, a labelled sample, and new rows of the same kind."""

    model: Model
    X: Array
    y: NDArray[Any]
    sample_weight: Array | None
    X_new: Array
    y_new: NDArray[Any]


# Data sets of packages joined the study "safety" after this study had been run.
CHOSEN = tuple(name for name, data in DATA_SETS.items() if data.package is None)


def warning_names() -> list[str]:
    """Names of all warning classes, sorted."""
    names: set[str] = set()
    waiting = [LocalMAWarning]
    while waiting:
        subclasses = waiting.pop().__subclasses__()
        names |= {subclass.__name__ for subclass in subclasses}
        waiting += subclasses
    return sorted(names)


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Fit, predict and evaluate once: 1 for each warning that appeared, otherwise 0."""
    clean = _real(keys["data"], seed) if "data" in keys else _simulated(keys, seed)
    counted: dict[str, set[str]] = {}
    counted["fit"] = _issued(lambda: clean.model.fit(clean.X, clean.y, clean.sample_weight))
    if "use" in methods:
        counted["use"] = _issued(lambda: _use(clean))
    return {
        f"{stage}:{name}": float(name in counted[stage])
        for stage in methods
        for name in warning_names()
    }


def _use(clean: CleanFit) -> None:
    clean.model.predict(clean.X_new)
    evaluate(clean.model, clean.X_new, clean.y_new, control=False)


def _issued(work: Callable[[], object]) -> set[str]:
    """Names of the `localma` warnings that a call issues."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return {w.category.__name__ for w in caught if issubclass(w.category, LocalMAWarning)}


def _real(name: str, seed: np.random.SeedSequence) -> CleanFit:
    data = DATA_SETS[name]
    pool, sample, new = data.split_with_pool(data_folder(), np.random.default_rng(seed))
    kind = LocalMAClassifier if data.classification else LocalMARegressor
    candidates = dict(zip(pool.names, pool.candidates, strict=True))
    model = kind(candidates, loss=data.loss, random_state=0)
    return CleanFit(model, sample.X, sample.y, sample.sample_weight, new.X, new.y)


@dataclass(frozen=True)
class Setting:
    """A simulated setting: its targets, candidates and loss.

    draw : (X, rng) -> y; models : unfitted candidates; loss : name; halves : whether each candidate
    is trained on its own half of the rows, by the sign of the first input; n_build : number of rows
    for training candidates.
    """

    draw: Callable[[Array, np.random.Generator], NDArray[Any]]
    models: tuple[BaseEstimator, ...]
    loss: str = "squared_error"
    halves: bool = False
    n_build: int = 400

    @property
    def is_classification(self) -> bool:
        """Whether targets are labels."""
        return self.loss in ("cross_entropy", "brier")

    def build(self, X: Array, y: NDArray[Any]) -> dict[str, BaseEstimator]:
        """Fit the candidates on rows that are not in any other part."""
        left = X[:, 0] <= 0
        sides = (left, ~left) if self.halves else (np.ones(len(X), dtype=bool),)
        return {
            f"{type(model).__name__} {k}{side}": _copy(model).fit(X[rows], y[rows])
            for k, model in enumerate(self.models)
            for side, rows in enumerate(sides)
        }


def _copy(model: BaseEstimator) -> Any:
    return type(model)(**model.get_params())


def _signal(X: Array) -> Array:
    """A smooth function with an interaction, of unit variance: (n,)."""
    return (X[:, 0] + X[:, 1] * (X[:, 0] > 0) + 0.5 * X[:, 2]) / np.sqrt(1.75)


def _with_r2(r2: float) -> Callable[[Array, np.random.Generator], Array]:
    def draw(X: Array, rng: np.random.Generator) -> Array:
        return np.sqrt(r2) * _signal(X) + np.sqrt(1 - r2) * rng.standard_normal(len(X))

    return draw


def _skewed(X: Array, rng: np.random.Generator) -> Array:
    return np.exp(0.5 * _signal(X)) * rng.gamma(2.0, 0.5, len(X))


def _counts(X: Array, rng: np.random.Generator) -> Array:
    return rng.poisson(0.3 * np.exp(0.6 * _signal(X))).astype(float)


def _two_classes(X: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    rare = 1 / (1 + np.exp(2.0 - 1.5 * _signal(X)))
    return (rng.uniform(size=len(X)) < rare).astype(np.intp)


def _three_classes(X: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    return np.digitize(_signal(X) + 0.5 * rng.standard_normal(len(X)), [-0.5, 0.7])


_LINES = (Ridge(), Ridge(100.0))
_TREES = (DecisionTreeRegressor(max_depth=4, random_state=0), Ridge())
_FORESTS = (RandomForestRegressor(20, min_samples_leaf=3, random_state=0), Ridge())
_CLASSIFIERS = (
    LogisticRegression(),
    RandomForestClassifier(30, min_samples_leaf=3, random_state=0),
)

SETTINGS = {
    "weak signal (R2 2 %)": Setting(_with_r2(0.02), _LINES),
    "weak signal, overfitted candidates": Setting(_with_r2(0.02), _TREES, n_build=100),
    "modest signal (R2 20 %)": Setting(_with_r2(0.2), _TREES),
    "local truth (R2 70 %)": Setting(_with_r2(0.7), (Ridge(),), halves=True),
    "strong signal (R2 99 %)": Setting(_with_r2(0.99), _FORESTS, halves=True),
    "median": Setting(_with_r2(0.5), _TREES, "absolute_error"),
    "counts": Setting(_counts, (PoissonRegressor(), PoissonRegressor(alpha=0.1)), "poisson"),
    "skewed amounts": Setting(_skewed, (GammaRegressor(), GammaRegressor(alpha=0.1)), "gamma"),
    "rare class": Setting(_two_classes, _CLASSIFIERS, "cross_entropy"),
    "three classes": Setting(_three_classes, _CLASSIFIERS, "brier"),
}
"""Clean simulated data. Overfitted candidates of a weak signal may really be worse than a constant,
by a few percent. A warning is then right, but it is counted too."""


def _simulated(keys: Mapping[str, Any], seed: np.random.SeedSequence) -> CleanFit:
    setting, n = SETTINGS[keys["setting"]], int(keys["n"])
    rng = np.random.default_rng(seed)
    ends = np.cumsum([setting.n_build, n, N_NEW])
    X = rng.standard_normal((ends[-1], N_INPUTS))
    y = setting.draw(X, rng)
    build, sample, new = np.split(np.arange(len(X)), ends[:-1])
    kind = LocalMAClassifier if setting.is_classification else LocalMARegressor
    model = kind(setting.build(X[build], y[build]), loss=setting.loss, random_state=0)
    return CleanFit(model, X[sample], y[sample], None, X[new], y[new])


@dataclass(frozen=True)
class Count:
    """Number of clean fits of one cell, and number of fits with a warning at any stage."""

    cell: Mapping[str, Any]
    appeared: int
    fits: int

    def __str__(self) -> str:
        where = ", ".join(f"{key} {value}" for key, value in sorted(self.cell.items()))
        return f"{self.appeared} of {self.fits} in {where}"


def counts(results: Results, name: str) -> list[Count]:
    """Number of fits with a warning, cell by cell."""
    cells = [keys for stage, metric, keys in results.entries() if (stage, metric) == ("use", name)]
    if not cells:
        raise NotRunError(f"No replicate that counts {name} has been run.")
    found = []
    for keys in cells:
        appeared = np.maximum(*results.paired(*STAGES, name, **keys))
        found.append(Count(keys, int(appeared.sum()), len(appeared)))
    return found


def appearances(results: Results, name: str) -> tuple[int, int]:
    """Number of clean fits with a warning at any stage, and number of fits."""
    found = counts(results, name)
    return sum(count.appeared for count in found), sum(count.fits for count in found)


def notes(results: Results) -> list[str]:
    """One line per warning, with the cells in which it appeared, and the missing data sets."""
    lines = []
    for name in warning_names():
        try:
            appeared, fits = appearances(results, name)
        except NotRunError:
            continue
        cells = [str(count) for count in counts(results, name) if count.appeared]
        where = f": {'; '.join(cells)}" if cells else ""
        share = f"{appeared / fits:.1%}"
        lines.append(f"{name}: in {appeared} of {fits:,} clean fits ({share}){where}.")
    missing = (DATA_SETS[name].missing(data_folder()) for name in CHOSEN)
    return lines + [f"Left out: {reason}." for reason in missing if reason]


def _rarely(name: str) -> Finding:
    def holds(results: Results) -> bool:
        appeared, fits = appearances(results, name)
        return appeared <= ALLOWED * fits

    return Finding(f"{name} appears in at most 1 % of clean fits.", "aim", holds)


def _cells() -> tuple[Cell, ...]:
    there = [name for name in CHOSEN if not DATA_SETS[name].missing(data_folder())]
    real = tuple(Cell({"data": name}, STAGES, REPLICATES) for name in there)
    return grid(STAGES, REPLICATES, setting=tuple(SETTINGS), n=SIZES) + real


STUDY = Study(
    name="false_alarms",
    title="False alarms: warnings of clean fits",
    cells=_cells(),
    run=run,
    findings=tuple(_rarely(name) for name in warning_names()),
    notes=notes,
)
