"""Tables as numbers for the gate."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

from localma import LocalMARegressor, TableEncoder, load
from localma.errors import FileFormatError, InvalidInputError
from localma.tables.encoder import FEWEST_ROWS

n = 60
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=k) for k in range(n)]
PAIRS = [DAYS[k + 1 - 2 * (k % 2)] for k in range(n)]  # the second day, the first, the fourth ...
COLUMNS = {
    "area": [None if k % 7 == 0 else float(k % 13) for k in range(n)],
    "city": [("x", "y", "z")[k % 3] for k in range(n)],
    "id": [f"row {k}" for k in range(n)],
    "number": list(range(n)),
    "lift": [k % 2 == 0 for k in range(n)],
    "day": [None if k == 5 else day for k, day in enumerate(PAIRS)],
    "listed": DAYS,
    "same": [1.0] * n,
    "gone": [None if k == 3 else str(k % 4) for k in range(n)],
}
NAMES = [
    *("area", "area is missing", "city is x", "city is y", "city is z", "lift"),
    *("day", "day, year sin", "day, year cos", "day, week sin", "day, week cos", "day is missing"),
    *("listed, week sin", "listed, week cos"),
    *("gone is 0", "gone is 1", "gone is 2", "gone is 3", "gone is missing"),
]


def frames():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrow = pytest.importorskip("pyarrow")
    dates = {name: pandas.to_datetime(COLUMNS[name]) for name in ("day", "listed")}
    by_pandas = pandas.DataFrame(COLUMNS).assign(**dates)
    return polars.DataFrame(COLUMNS), arrow.table(COLUMNS), by_pandas


def test_every_library_gives_the_same_numbers():
    found = [TableEncoder().fit(frame).transform(frame) for frame in frames()]
    for numbers in found[1:]:
        np.testing.assert_array_equal(numbers, found[0])


def test_columns_by_hand():
    frame = frames()[0]
    encoder = TableEncoder().fit(frame)
    assert encoder.get_feature_names_out().tolist() == NAMES
    numbers = dict(zip(NAMES, encoder.transform(frame).T, strict=True))
    known = [value for value in COLUMNS["area"] if value is not None]
    assert numbers["area"][0] == np.median(known)
    assert numbers["area is missing"][:8].tolist() == [1, 0, 0, 0, 0, 0, 0, 1]
    assert numbers["city is y"][:3].tolist() == [0, 1, 0]
    assert numbers["day"][0] - numbers["day"][1] == 1
    assert numbers["day, week sin"][0] == pytest.approx(numbers["day, week sin"][14])
    assert numbers["gone is missing"].sum() == numbers["day is missing"].sum() == 1


def test_what_is_left_out_and_why():
    assert TableEncoder().fit(frames()[0]).left_out_ == {
        "id": "nearly all values are different",
        "number": "it numbers the rows",
        "same": "all values are the same",
    }


def test_numbers_that_are_all_different_but_no_count_are_kept():
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    frame = polars.DataFrame({"price": rng.choice(10_000, 50, replace=False)})
    assert TableEncoder().fit(frame).left_out_ == {}


def twice(days):
    return [day for day in days for _ in range(2)]


ALL = ["d", "d, year sin", "d, year cos", "d, week sin", "d, week cos"]
IN_ORDER = "the rows are sorted by it, so new rows would lie outside the sample"
YEARS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=10 * k) for k in range(60)]


@pytest.mark.parametrize(
    ("days", "names"),
    [
        (YEARS, ALL[1:]),
        (DAYS, ALL[3:]),
        (DAYS[::-1], ALL[3:]),
        (twice(DAYS[:5]), IN_ORDER),
        ([None, *DAYS[:4], None, *DAYS[4:9]], [*ALL[3:], "d is missing"]),
        ([None, *DAYS[:6]], ["d is missing"]),
        ([datetime.datetime(2024, 1, 1, hour) for hour in range(20)], IN_ORDER),
        (PAIRS, ALL),
        ([*DAYS[1:], DAYS[0]], ALL),
        (DAYS[:FEWEST_ROWS], ALL),
        ([DAYS[0]] * 10, "all values are the same"),
        ([None, *[DAYS[0]] * 10], [*ALL, "d is missing"]),
    ],
)
def test_of_dates_in_the_order_of_the_rows_cycles_are_kept_that_were_gone_through(days, names):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"d": days})
    encoder = TableEncoder().fit(frame)
    found = encoder.left_out_.get("d", encoder.get_feature_names_out().tolist())
    assert found == names
    assert encoder.transform(frame).shape[1] == (len(names) if isinstance(names, list) else 0)


def test_levels_not_seen_are_no_level():
    polars = pytest.importorskip("polars")
    encoder = TableEncoder(["city"]).fit(frames()[0])
    new = polars.DataFrame({"city": ["x", "elsewhere", None]})
    assert encoder.transform(new).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")  # P holds y
def test_it_comes_back_from_json_and_with_a_saved_model(tmp_path):
    frame = frames()[0]
    encoder = TableEncoder().fit(frame)
    again = TableEncoder.from_recipe(json.loads(json.dumps(encoder.recipe())))
    np.testing.assert_array_equal(again.transform(frame), encoder.transform(frame))
    y = np.arange(n, dtype=float)
    P = np.column_stack([y, -y])
    model = LocalMARegressor(gate_features=TableEncoder(), gate="local", random_state=0)
    model.fit(frame, y, predictions=P).save(tmp_path / "m.localma")
    loaded = load(tmp_path / "m.localma", candidates={})  # without trust
    np.testing.assert_array_equal(loaded.predict_weights(frame), model.predict_weights(frame))
    loaded.fit(frame, y, predictions=P)  # and can be fitted again
    assert loaded.gate_features_.transformer.get_feature_names_out().tolist() == NAMES


@pytest.mark.parametrize(
    "recipe",
    [
        None,
        {},
        {"columns": [{"name": "a", "kind": "code"}], "left_out": {}},
        {"columns": [{"name": "a", "kind": "date", "parts": ["century"]}], "left_out": {}},
    ],
)
def test_recipes_of_another_form(recipe):
    with pytest.raises(FileFormatError, match="unknown form"):
        TableEncoder.from_recipe(recipe)


def test_errors_name_the_column():
    polars = pytest.importorskip("polars")
    encoder = TableEncoder(["area"]).fit(frames()[0])
    with pytest.raises(InvalidInputError, match="Column 'area' held numbers"):
        encoder.transform(polars.DataFrame({"area": ["wide"]}))
    with pytest.raises(InvalidInputError, match="no column 'area'; did you mean 'areas'"):
        encoder.transform(polars.DataFrame({"areas": [1.0]}))
    with pytest.raises(InvalidInputError, match="takes a data frame"):
        encoder.transform(np.zeros((2, 2)))
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(InvalidInputError, match="'a' is there more than once: rename them"):
        TableEncoder().fit(arrow.table([[1.0], [2.0]], names=["a", "a"]))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            [0, 1],
            r"received 0 \(int\)\. Rename the columns: X\.columns = X\.columns\.astype\(str\)\.",
        ),
        (
            [("a", "x"), ("a", "y")],
            r"received \('a', 'x'\) \(tuple\)\. Rename the columns: X\.columns = \['_'\.join",
        ),
    ],
)
def test_names_of_columns_must_be_strings(names, words):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.arange(12.0).reshape(6, 2), columns=names)
    if isinstance(names[0], tuple):
        frame.columns = pandas.MultiIndex.from_tuples(names)
    with pytest.raises(InvalidInputError, match=words):
        TableEncoder().fit(frame)
    fixed = ["_".join(map(str, n)) if isinstance(n, tuple) else str(n) for n in names]
    encoder = TableEncoder().fit(frame.set_axis(fixed, axis=1))
    assert encoder.get_feature_names_out().tolist() == fixed
    with pytest.raises(InvalidInputError, match=words):
        encoder.transform(frame)
    with pytest.raises(InvalidInputError, match=r"must be names of columns; received \[7\]\. Pass"):
        TableEncoder([7]).fit(frame.set_axis(fixed, axis=1))
