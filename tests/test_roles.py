"""Roles of columns, time order and pools, as Python users call them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from localma import Column, LocalMAClassifier, LocalMARegressor
from localma.candidates import as_candidate
from localma.candidates.pool_file import (
    column_candidates,
    input_columns,
    prediction_columns,
    read_pool,
)
from localma.errors import InvalidInputError, UntrustedFileError
from localma.tables.encoder import TableEncoder
from localma.tables.roles import (
    FOLLOWS_ROWS,
    RoleError,
    Roles,
    check_weights,
    class_columns,
    columns_in_row_order,
    gate_encoder,
    later_folds,
    target_classes,
    time_order,
)

COLUMNS = ["area", "pred_a", "pred_b", "year", "weight", "rent"]


@pytest.fixture(params=["pandas", "polars", "pyarrow"])
def library(request):
    """Makers of frames and of series, of each library."""
    module = pytest.importorskip(request.param)
    makers = {
        "pandas": lambda: (module.DataFrame, module.Series),
        "polars": lambda: (module.DataFrame, module.Series),
        "pyarrow": lambda: (module.table, lambda values: module.chunked_array([values])),
    }
    return makers[request.param]()


@pytest.fixture
def frame(library):
    return library[0]


@pytest.fixture
def series(library):
    return library[1]


def test_globs_become_columns_in_the_order_of_the_table():
    roles = Roles("rent", ["pred_b", "pred_*"], weight="weight", time="year").resolve(COLUMNS)
    assert roles.predictions == ("pred_a", "pred_b")
    assert roles.gate_columns(COLUMNS) == ["area"]


def test_a_glob_skips_the_target():
    assert Roles("pred_a", ["pred_*"]).resolve(COLUMNS).predictions == ("pred_b",)


@pytest.mark.parametrize(
    ("roles", "parameter", "message"),
    [
        (Roles("rents"), "target", "has no column 'rents'; did you mean 'rent'"),
        (Roles("rent", ["pred_c"]), "predictions", "has no column 'pred_c'"),
        (Roles("rent", features=["are"]), "features", "did you mean 'area'"),
        (Roles("rent", group="shop"), "group", "has no column 'shop'"),
        (Roles("rent", ["pred_*"], ["pred_a"]), "features", r"\['pred_a'\] cannot also be feat"),
        (Roles("rent", group="area", time="year"), "time", "time and group cannot be combined"),
        (Roles("rent", ["rent"]), "target", "neither a feature nor a prediction"),
        (Roles("rent", features=["rent"]), "target", "neither a feature nor a prediction"),
    ],
)
def test_roles_that_do_not_fit_the_table_are_refused(roles, parameter, message):
    with pytest.raises(RoleError, match=message) as refused:
        roles.resolve(COLUMNS)
    assert refused.value.parameter == parameter
    assert str(refused.value).startswith(f"{parameter}: ")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([*range(30)], True),
        ([*range(30, 0, -1)], True),
        ([k / 3 for k in range(30)], True),
        ([None, *range(29)], True),
        ([0] * 15 + [1] * 15, False),
        ([*range(19)], False),
        ([*range(29), 0], False),
        ([str(k) for k in range(10, 40)], False),
        ([3] * 30, False),
    ],
)
def test_which_numbers_follow_the_rows(frame, values, expected):
    assert bool(columns_in_row_order(frame({"x": values}), ["x"])) == expected


def test_the_encoder_leaves_out_what_follows_the_rows_unless_it_is_named(frame):
    rng = np.random.default_rng(0)
    table = frame(
        {
            "year": [2000 + k // 3 for k in range(60)],
            "area": rng.normal(size=60),
            "rent": rng.normal(size=60),
        }
    )
    encoder, left_out = gate_encoder(table, Roles("rent"))
    assert encoder.features == ["area"]
    assert left_out == {"year": FOLLOWS_ROWS}
    encoder, left_out = gate_encoder(table, Roles("rent", features=["year", "area"]))
    assert encoder.features == ["year", "area"]
    assert left_out == {}
    encoder, _ = gate_encoder(table, Roles("rent", features=None, group="area"))
    assert encoder.features == ["year"]  # the only column is better than none


def test_the_encoder_is_fitted_once(monkeypatch):
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    area = rng.uniform(20, 150, 200)
    table = polars.DataFrame({"area": area, "a": area, "b": -area, "y": np.abs(area - 80)})
    fitted = []
    original = TableEncoder.fit
    monkeypatch.setattr(
        TableEncoder, "fit", lambda self, X, y=None: fitted.append(self) or original(self, X, y)
    )
    roles = Roles("y", ["a", "b"]).resolve(table.columns)
    encoder, _ = gate_encoder(table, roles)
    assert clone(encoder) is encoder
    pool = column_candidates(roles.predictions)
    model = LocalMARegressor(pool, gate_features=encoder, random_state=0)
    model.fit(table.drop("y"), table["y"].to_numpy())
    assert len(fitted) == 1
    plain = LocalMARegressor(pool, gate_features=TableEncoder(["area"]), random_state=0)
    plain.fit(table.drop("y"), table["y"].to_numpy())
    X = table.drop("y")
    assert np.array_equal(model.predict(X), plain.predict(X))


@pytest.mark.parametrize(
    ("columns", "positive", "expected"),
    [
        (["a_no", "a_yes"], None, {"a": (("a_no", "a_yes"), ["no", "yes"])}),
        (["a", "b"], None, {"a": (("a",), ["no", "yes"]), "b": (("b",), ["no", "yes"])}),
        (["a_no"], None, {"a_no": (("a_no",), ["yes", "no"])}),
        (["a_no"], "yes", {"a_no": (("a_no",), ["no", "yes"])}),
        (["a"], "no", {"a": (("a",), ["yes", "no"])}),
        (["casino"], None, {"casino": (("casino",), ["no", "yes"])}),
    ],
)
def test_columns_are_grouped_by_classifier(columns, positive, expected):
    groups = class_columns(columns, ["no", "yes"], positive)
    assert {name: (group.columns, group.classes) for name, group in groups.items()} == expected


def test_many_classes_need_a_column_each():
    with pytest.raises(RoleError, match="one column per class, named model_class") as refused:
        class_columns(["a_1", "a_2"], [1, 2, 3])
    assert refused.value.parameter == "predictions"
    with pytest.raises(RoleError, match=r"must be one of \['no', 'yes'\]; received 'maybe'"):
        class_columns(["a"], ["no", "yes"], "maybe")


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        (["b", "a", "b"], {}, ["a", "b"]),
        ([True, False, True], {}, [False, True]),
        ([1.5, 2.5, 4.0], {}, None),
        ([0, 1, 1], {"task": "regression"}, None),
        ([0, 1, 1], {"task": "classification"}, [0, 1]),
        ([0, 1, 1], {"loss": "brier"}, [0, 1]),
        ([0, 1, 1], {"loss": "poisson"}, None),
        ([0, 1, 1], {"positive": "1"}, [0, 1]),
    ],
)
def test_the_target_decides_the_task(series, values, options, expected):
    classes = target_classes(series(values), **options)
    assert (classes if classes is None else classes.tolist()) == expected


@pytest.mark.parametrize(
    ("values", "options", "parameter", "message"),
    [
        ([0, 1, 1], {}, "task", "only the values 0 and 1. Set the task to classification if"),
        ([1, 2, 3], {"predictions": ["a_1", "a_2", "a_3"]}, "task", "values 1, 2, ..., 3"),
        (["a", "b"], {"task": "regression"}, "task", "needs numbers, and 'y' holds text"),
        (["1", "2", "oops"], {}, "target", "except in 1 of 3 cells, such as 'oops'"),
        ([1.5, 2.5, 4.0], {"positive": "1"}, "positive", "but 'y' holds numbers; leave it out"),
        ([1.0, 2.0], {"task": "regression", "positive": "1"}, "positive", "has no classes"),
        ([1.0, 2.0], {"task": "rank"}, "task", "must be one of auto, .*; received 'rank'"),
    ],
)
def test_an_ambiguous_target_is_refused(series, values, options, parameter, message):
    with pytest.raises(RoleError, match=message) as refused:
        target_classes(series(values), **options)
    assert refused.value.parameter == parameter


@pytest.mark.parametrize("values", [[1.0, -1.0], [0.0, 0.0], ["a", "b"], [1.0, None]])
def test_weights_that_are_not_weights_are_refused(series, values):
    with pytest.raises(RoleError, match="zero or more, in every row, and not all zero"):
        check_weights(series(values), "w")


def test_rows_of_one_time_keep_their_order(series):
    assert time_order(series([3, 1, 2, 1])).tolist() == [1, 3, 2, 0]
    days = np.array(["2024-03-01", "2023-01-01"], dtype="datetime64[ms]")
    assert time_order(series(days)).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [(["x", "y"], "must be dates such as 2024-05-31"), ([1, None], "and 1 have none in 'day'")],
)
def test_times_without_an_order_are_refused(series, values, message):
    with pytest.raises(RoleError, match=message):
        time_order(series(values), "day")


def test_rows_of_one_time_are_tested_together_and_later(series):
    years = np.sort(2018 + np.arange(140) % 7)
    for train, test in later_folds(series(years), 3):
        assert years[train].max() < years[test].min()
    with pytest.raises(RoleError, match="7 folds need at least 8 distinct times; received 7"):
        later_folds(series(years), 7)


def test_columns_of_a_classifier_become_a_candidate(frame):
    pool = column_candidates(["a_no", "a_yes", "b_no", "b_yes"], np.array(["no", "yes"]))
    table = frame({"a_no": [0.9, 0.2], "a_yes": [0.1, 0.8], "b_no": [0.5, 0.5], "b_yes": [0.5] * 2})
    model = LocalMAClassifier(pool, gate="equal").fit(table, ["no", "yes"])
    assert model.predict_proba(table)[:, 1].tolist() == pytest.approx([0.3, 0.65])


def test_a_pool_of_columns_needs_no_trust(tmp_path):
    file = tmp_path / "pool.toml"
    file.write_text("[a]\ncolumn = 'pred_a'\n[b]\ncolumn = 'pred_*'\n")
    pool = read_pool(file)
    assert prediction_columns(pool, COLUMNS) == ["pred_*", "pred_a"]
    with pytest.raises(RoleError, match="models: the table has no column 'pred_a'"):
        prediction_columns(pool, ["area"])
    with pytest.raises(RoleError, match="has no column 9; it has 1 columns, counted from 0"):
        prediction_columns({"a": Column(9)}, ["area"])


def test_functions_of_a_pool_need_trust(tmp_path):
    file = tmp_path / "pool.toml"
    file.write_text("[length]\nimport = 'builtins:len'\ninputs = [0]\n")
    with pytest.raises(UntrustedFileError, match=r"'length' \(import = 'builtins:len'\)"):
        read_pool(file)
    assert list(read_pool(file, trust=True)) == ["length"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml", "must be a TOML file"),
        ("", "one table per candidate"),
        ("[a]\ncolumn = 'x'\nurl = 'y'", r"must have one of file, url, import, column; it has \["),
        ("[a]\ncolumn = 'x'\nactivation = 'tanh'", "its kind has no option 'activation'"),
        ("[a]\nfile = 'model.pickle'", "Candidate 'a' cannot be made: A .pickle file"),
    ],
)
def test_files_that_describe_no_pool_are_refused(tmp_path, text, message):
    file = tmp_path / "pool.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_pool(file, trust=True)


def test_inputs_by_position_become_names(frame):
    table = frame({"area": [1.0], "rooms": [2.0], "rent": [3.0]})
    model = as_candidate(len, inputs=[1])
    assert input_columns({"a": model}, table, ["rent"]) == {"rooms"}
    assert model.inputs == ["rooms"]
    both = {"a": model, "b": as_candidate(len)}
    assert input_columns(both, table, ["rent"]) == {"area", "rooms"}
    with pytest.raises(RoleError, match="inputs of 'len': the table has no column 'arae'"):
        input_columns({"a": as_candidate(len, inputs=["arae"])}, table)
