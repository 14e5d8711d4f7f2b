"""Real data sets with candidates trained on different regions or groups of rows.

Each data set has three parts: rows on which the candidates are built, each on its own region; the
labelled sample, from which weights are learnt; and the test part. In a small data set half of the
rows build candidates. Data bundled with scikit-learn are always available. Rents and insurance are
read from the folder LOCALMA_DATA. If a file is missing, its data set reports it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

from localma._optional import optional
from localma.candidates import Pool

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]

REPOSITORY = Path(__file__).resolve().parents[1]

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

    X : (n, p); y : (n,) or (n, K); regions : (n, M); sample_weight : (n,) or None.
    """

    X: Array
    y: NDArray[Any]
    regions: Mask
    sample_weight: Array | None = None


@dataclass(frozen=True)
class Part:
    """The sample or the test part of a split: inputs, predictions, targets, row weights."""

    X: Array
    P: Array
    y: NDArray[Any]
    sample_weight: Array | None


@dataclass(frozen=True)
class DataSet:
    """A data set, its candidates and its loss.

    Parameters
    ----------
    load : folder -> Table
    candidate : the unfitted estimator; one is fitted per region
    loss : name of the loss for learning and judging weights
    n_build, n_sample, n_test : sizes of the three parts
    file : path below the data folder, None for data bundled with scikit-learn
    classification : whether targets are labels
    """

    name: str
    load: Callable[[Path], Table]
    candidate: Any
    loss: str
    n_build: int
    n_sample: int
    n_test: int
    file: str | None = None
    classification: bool = False

    def missing(self, folder: Path) -> str | None:
        """The reason why this data set cannot be used; None if it can."""
        reason = None if self.file is None else absent(folder, self.file)
        return None if reason is None else f"{self.name}: {reason}"

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
        ends = np.cumsum([self.n_build, self.n_sample, self.n_test])
        return np.split(order[: ends[-1]], ends[:-1])

    def _build(self, table: Table, rows: Rows, seed: int) -> Pool:
        models = {}
        for m, region in enumerate(table.regions.T):
            mine = rows[region[rows]]
            model = clone(self.candidate)
            if "random_state" in model.get_params():
                model.set_params(random_state=seed)
            models[f"region {m + 1}"] = model.fit(
                table.X[mine], table.y[mine], **_weight_of(model, table, mine)
            )
        return Pool(models, task="classification" if self.classification else "regression")


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


def _classes_spread(y: NDArray[Any], order: Rows) -> Rows:
    """Permute rows so that every stretch has the classes in about the same shares."""
    place = np.empty(len(y))
    for label in np.unique(y):
        mine = np.flatnonzero(y[order] == label)
        place[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
    return order[np.argsort(place, kind="stable")]


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


def stacked(columns: dict[str, NDArray[Any]], names: Sequence[str]) -> Array:
    """Some columns as numbers: (n, p)."""
    return np.stack([np.asarray(columns[name], dtype=float) for name in names], axis=1)


def _ranges(values: Array, number: int) -> Mask:
    """Regions between quantiles of one input: (n,) -> (n, number)."""
    cuts = np.quantile(values, np.arange(1, number) / number)
    return np.searchsorted(cuts, values)[:, np.newaxis] == np.arange(number)


def _groups(labels: NDArray[Any], smallest: int) -> Mask:
    """One region per label that has at least `smallest` rows: (n,) -> (n, M)."""
    names, counts = np.unique(labels.astype(str), return_counts=True)
    return labels.astype(str)[:, np.newaxis] == names[counts >= smallest]


def _few_of_each_class(y: NDArray[Any], unseen: Sequence[Sequence[int]]) -> Mask:
    """Regions with one in five rows of some classes, and all rows of the others."""
    fifth = np.arange(len(y)) % 5 == 0
    return np.stack([~np.isin(y, labels) | fifth for labels in unseen], axis=1)


def complete(X: Array, *others: NDArray[Any]) -> Mask:
    """Rows of X (n, p) and of other columns (n,) that are all finite: (n,)."""
    return np.isfinite(X).all(axis=1) & np.all([np.isfinite(other) for other in others], axis=0)


def _diabetes(folder: Path) -> Table:
    X, y = datasets.load_diabetes(return_X_y=True)
    return Table(X, y / y.std(), _ranges(X[:, 2], 3))  # body mass index


def _diabetes_by_age(folder: Path) -> Table:
    X, y = datasets.load_diabetes(return_X_y=True)
    return Table(X, y / y.std(), _ranges(X[:, 0], 4))


def _linnerud(folder: Path) -> Table:
    X, y = datasets.load_linnerud(return_X_y=True)
    return Table(X, (y - y.mean(axis=0)) / y.std(axis=0), _ranges(X[:, 1], 2))  # sit-ups


def _iris(folder: Path) -> Table:
    X, y = datasets.load_iris(return_X_y=True)
    return Table(X, y, _few_of_each_class(y, [[0], [1], [2]]))


def _wine(folder: Path) -> Table:
    X, y = datasets.load_wine(return_X_y=True)
    return Table(X, y, _few_of_each_class(y, [[0, 1], [1, 2], [0, 2]]))


def _breast_cancer(folder: Path) -> Table:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return Table(X, y, _ranges(X[:, 21], 3))  # worst texture


def _digits(folder: Path) -> Table:
    X, y = datasets.load_digits(return_X_y=True)
    return Table(X, y, _few_of_each_class(y, [range(5), range(5, 10), range(0, 10, 2)]))


def _digits_by_ink(folder: Path) -> Table:
    X, y = datasets.load_digits(return_X_y=True)
    return Table(X, y, _ranges(X.sum(axis=1), 3))


HOME = ("area", "bedrooms", "total_floors", "floor_level", "elevator", "near_subway")
FURNISHING = ("refurbished", "amenities")


def _shanghai_2020(folder: Path, inputs: Sequence[str]) -> Table:
    columns = read_columns(folder / "rent/shanghai_lianjia_2020.parquet")
    X, y = stacked(columns, inputs), np.log(columns["rent"])
    kept = complete(X, y)
    return Table(X[kept], y[kept], _groups(columns["district"][kept], smallest=500))


def _shanghai_2020_with_coordinates(folder: Path) -> Table:
    return _shanghai_2020(folder, [*HOME, *FURNISHING, "lon", "lat"])


def _shanghai_2020_without_coordinates(folder: Path) -> Table:
    return _shanghai_2020(folder, [*HOME, *FURNISHING])


def _shanghai_2019(folder: Path) -> Table:
    columns = read_columns(folder / "rent/shanghai_lianjia_2019_amenities.parquet")
    inputs = ["Area", "rooms", "living_rooms", "Layer_floor", "Is_lift", "Subwayline_Number"]
    inputs += ["Subway_Distance", "Is_bed", "Is_closet", "Is_air", "Is_gas", "lng", "lat"]
    X, y = stacked(columns, inputs), np.log(columns["Price"])
    inside = (abs(X[:, -2] - 121.45) < 1) & (abs(X[:, -1] - 31.2) < 1)  # the city
    return Table(X[inside], y[inside], _groups(columns["Address"][inside], smallest=150))


def _beijing(folder: Path) -> Table:
    columns = read_columns(folder / "rent/beijing_danke_rent.parquet")
    inputs = ["area", "rooms", "bathrooms", "floor", "total_floors"]
    inputs += ["subway_lines", "subway_dist_m"]
    X, y = stacked(columns, inputs), np.log(columns["rent"])
    kept = complete(X, y)
    return Table(X[kept], y[kept], _groups(columns["district"][kept], smallest=300))


def _belgian_inputs(columns: dict[str, NDArray[Any]]) -> Array:
    diesel, woman = columns["fuel"] == "diesel", columns["sex"] == "female"
    X = stacked(columns, ["ageph", "bm", "power", "agec", "long", "lat"])
    return np.column_stack([X, diesel, woman])


def _belgian_claims(folder: Path) -> Table:
    columns = read_columns(folder / "insurance/beMTPL97.parquet")
    X, exposure = _belgian_inputs(columns), columns["expo"]
    # Flanders and Brussels, the middle, the south: claims depend on the location.
    return Table(X, columns["nclaims"] / exposure, _ranges(X[:, 5], 3), exposure)


def _belgian_amounts(folder: Path) -> Table:
    columns = read_columns(folder / "insurance/beMTPL97.parquet")
    claimed = columns["amount"] > 0
    X, y = _belgian_inputs(columns)[claimed], columns["average"][claimed] / 1000.0
    return Table(X, np.minimum(y, 20.0), _ranges(X[:, 0], 3), columns["nclaims"][claimed] * 1.0)


def _pricing_game(folder: Path) -> Table:
    columns = read_columns(folder / "insurance/pg15training.parquet")
    X = stacked(columns, ["Age", "Bonus", "Poldur", "Value", "Density", "Group1", "Adind"])
    exposure = columns["Exppdays"] / 365.0
    return Table(X, columns["Numtppd"] / exposure, _groups(columns["Group2"], 7000), exposure)


_FOREST = RandomForestRegressor(n_estimators=30, min_samples_leaf=3)
_RIDGE = make_pipeline(StandardScaler(), Ridge(1.0))
_LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression(C=0.5, max_iter=1000))
_POISSON = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.01, max_iter=300))
_GAMMA = make_pipeline(StandardScaler(), GammaRegressor(alpha=0.1, max_iter=300))
_POISSON_OF_SPLINES = make_pipeline(
    SplineTransformer(4), StandardScaler(), PoissonRegressor(alpha=0.01, max_iter=300)
)

_SHANGHAI_2020, _SHANGHAI_2019, _BEIJING, _BELGIUM, _GAME, *_ = SOURCES

DATA_SETS: dict[str, DataSet] = {
    one.name: one
    for one in (
        DataSet("diabetes", _diabetes, _RIDGE, "squared_error", 120, 140, 182),
        DataSet("diabetes_median", _diabetes_by_age, _RIDGE, "absolute_error", 120, 140, 182),
        DataSet("linnerud", _linnerud, _RIDGE, "squared_error", 8, 8, 4),
        DataSet("iris", _iris, _LOGISTIC, "cross_entropy", 60, 50, 40, classification=True),
        DataSet("wine", _wine, _LOGISTIC, "cross_entropy", 70, 60, 48, classification=True),
        DataSet(
            "breast_cancer", _breast_cancer, _LOGISTIC, "cross_entropy", 200, 200, 169,
            classification=True,
        ),
        DataSet("digits", _digits, _LOGISTIC, "cross_entropy", 500, 400, 897, classification=True),
        DataSet(
            "digits_brier", _digits_by_ink, _LOGISTIC, "brier", 500, 400, 897, classification=True
        ),
        DataSet(
            "shanghai_2020", _shanghai_2020_with_coordinates, _FOREST, "squared_error",
            4000, 500, 2000, _SHANGHAI_2020,
        ),
        DataSet(
            "shanghai_2020_blind", _shanghai_2020_without_coordinates, _RIDGE, "squared_error",
            4000, 200, 2000, _SHANGHAI_2020,
        ),
        DataSet(
            "shanghai_2019", _shanghai_2019, _RIDGE, "huber", 1300, 300, 900, _SHANGHAI_2019
        ),
        DataSet("beijing", _beijing, _FOREST, "absolute_error", 2700, 300, 2000, _BEIJING),
        DataSet(
            "belgian_claims", _belgian_claims, _POISSON_OF_SPLINES, "poisson",
            9000, 1000, 20000, _BELGIUM,
        ),
        DataSet("belgian_amounts", _belgian_amounts, _GAMMA, "gamma", 3000, 500, 5000, _BELGIUM),
        DataSet("pricing_game", _pricing_game, _POISSON, "poisson", 6000, 1000, 20000, _GAME),
    )
}  # fmt: skip
