"""Rows and columns of X, whatever X is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from localma import LocalMARegressor
from localma.errors import InvalidInputError
from localma.tables.frames import (
    check_names_differ,
    column_names,
    column_values,
    dense,
    drop_columns,
    is_table,
    n_rows,
    pick_columns,
    positions_of,
    take_rows,
)

VALUES = np.arange(12.0).reshape(4, 3)
NAMES = ["a", "b", "c"]


def frame(kind: str) -> Any:
    columns = {name: VALUES[:, m] for m, name in enumerate(NAMES)}
    if kind == "pyarrow":
        return pytest.importorskip("pyarrow").table(columns)
    return pytest.importorskip(kind).DataFrame(columns)


CONTAINERS = {
    "numpy": lambda: VALUES,
    "csr": lambda: sparse.csr_array(VALUES),
    "coo": lambda: sparse.coo_matrix(VALUES),
    "pandas": lambda: frame("pandas"),
    "polars": lambda: frame("polars"),
    "pyarrow": lambda: frame("pyarrow"),
}
every_container = pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS.keys())


@every_container
def test_rows_and_columns(make: Any) -> None:
    X = make()
    assert n_rows(X) == 4
    assert_array_equal(dense(X), VALUES)
    for rows in (slice(1, 3), np.array([3, 0])):
        assert_array_equal(dense(take_rows(X, rows)), VALUES[rows])
    assert_array_equal(dense(pick_columns(X, [2, 0])), VALUES[:, [2, 0]])
    assert_array_equal(dense(drop_columns(X, [1])), VALUES[:, [0, 2]])
    assert_array_equal(column_values(X, -1), VALUES[:, 2])
    assert drop_columns(X, []) is X


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frames_by_name(kind: str) -> None:
    X = frame(kind)
    assert column_names(X) == NAMES
    assert positions_of(X, ["c", 1, "a"]) == [2, 1, 0]
    assert type(pick_columns(X, ["c"])) is type(X)
    assert column_names(drop_columns(X, ["b"])) == ["a", "c"]
    assert_array_equal(column_values(X, "b"), VALUES[:, 1])


@pytest.mark.parametrize("X", [VALUES, sparse.csr_array(VALUES), ["a", "b"], ("a", "b")])
def test_arrays_and_lists_have_no_names(X: Any) -> None:
    assert column_names(X) is None


def test_lists_and_series_of_rows() -> None:
    texts = ["a", "b", "c"]
    assert take_rows(texts, slice(1, 3)) == ["b", "c"]
    assert take_rows(tuple(texts), np.array([2, 0])) == ["c", "a"]
    series = pytest.importorskip("pandas").Series(texts, index=[7, 8, 9])
    assert take_rows(series, np.array([2, 0])).tolist() == ["c", "a"]


def test_frames_whose_names_are_numbers_go_by_position() -> None:
    X = pytest.importorskip("pandas").DataFrame(VALUES, columns=[10, 20, 30])
    assert_array_equal(column_values(X, 1), VALUES[:, 1])


def test_missing_values_of_integers_become_nan() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for X in (pandas.DataFrame({"a": pandas.array([1, None])}), polars.DataFrame({"a": [1, None]})):
        assert np.isnan(np.asarray(column_values(X, "a"), dtype=float)).tolist() == [False, True]


def test_a_column_that_is_there_twice_is_refused() -> None:
    X = pytest.importorskip("pandas").DataFrame(VALUES, columns=["a", "b", "b"])
    with pytest.raises(
        InvalidInputError,
        match=r"X has 2 columns named 'b'; a column picked by name must be there once: rename "
        r"them, or state the column by its position\.",
    ):
        column_values(X, "b")


def test_names_that_are_there_twice_name_the_way_out() -> None:
    X = pytest.importorskip("pandas").DataFrame(VALUES, columns=["a", "b", "b"])
    words = r"^Columns of a data frame must have different names; 'b' is there more than once: ren"
    for use in (
        lambda: dense(X),
        lambda: take_rows(X, slice(0, 1)),
        lambda: drop_columns(X, [0]),
        lambda: check_names_differ(X),
        lambda: LocalMARegressor({"a": lambda X: np.zeros(len(X))}, gate="equal").fit(
            X, VALUES[:, 0]
        ),
    ):
        with pytest.raises(InvalidInputError, match=words):
            use()


def test_names_that_are_there_twice_in_an_arrow_table_name_the_way_out() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table([[1.0], [2.0]], names=["a", "a"])
    with pytest.raises(InvalidInputError, match="'a' is there more than once: rename them"):
        check_names_differ(table)


def test_without_near_names_the_columns_are_listed() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        InvalidInputError, match=r"X has no column 'zzz'; its columns are 'a', 'b', 'c'\."
    ):
        pick_columns(frame("pandas"), ["zzz"])
    wide = pandas.DataFrame(np.zeros((1, 12)), columns=[f"x{m}" for m in range(12)])
    with pytest.raises(InvalidInputError, match=r"its columns are 'x0', .*'x9', \.\.\.\."):
        pick_columns(wide, ["guess"])


def test_rows_must_be_countable() -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"X must have rows that can be counted, and a int has none: pass an array, a data "
        r"frame \(collect a lazy one first\) or a list\.",
    ):
        n_rows(3)


def test_columns_need_two_dimensions() -> None:
    with pytest.raises(InvalidInputError, match=r"two dimensions only; X is shape \(4,\): make"):
        pick_columns(VALUES[:, 0], [0])
    with pytest.raises(InvalidInputError, match=r"X is a list: make it one, or state the inputs"):
        pick_columns(["a"], [0])


@pytest.mark.parametrize(
    ("X", "table"),
    [
        (VALUES, True),
        (VALUES[0], True),  # which scikit-learn refuses with words of its own
        (VALUES.astype(object), True),
        (sparse.csr_array(VALUES), True),
        (VALUES.tolist(), True),
        ([VALUES[0], VALUES[1]], True),
        ([1, 2.0], True),
        (VALUES[:, :, None], False),
        (np.array(["a", "b"]), False),
        (["a", "b"], False),
        ([[1, 2], [3]], False),
        ([["a"], ["b"]], False),
        ([VALUES, VALUES], False),
        ([{"x": 1.0}], False),
    ],
)
def test_what_reads_as_a_table(X: Any, table: bool) -> None:
    assert is_table(X) is table


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_frame_is_a_table_and_a_series_of_texts_is_none(kind: str) -> None:
    assert is_table(frame(kind))
    if kind == "pandas":
        assert not is_table(pytest.importorskip("pandas").Series(["a", "b"]))


def test_rows_of_data_sets_and_tensors() -> None:
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    rows = np.array([2, 0])
    tensor = torch.as_tensor(VALUES)
    assert_array_equal(take_rows(tensor, rows), VALUES[rows])
    items = data.TensorDataset(tensor)
    assert_array_equal(take_rows(items, rows)[0][0], VALUES[2])
    assert n_rows(take_rows(items, slice(1, 4))) == 3
    assert not is_table(tensor)
    assert not is_table(items)


def test_rows_of_hugging_face_data() -> None:
    items = pytest.importorskip("datasets").Dataset.from_dict({"text": ["a", "b", "c"]})
    assert list(take_rows(items, np.array([2, 0]))["text"]) == ["c", "a"]
    assert n_rows(take_rows(items, slice(0, 2))) == 2
    assert not is_table(items)


def test_all_missing_columns_are_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"area": [1.0], "rooms": [2.0]})
    with pytest.raises(
        InvalidInputError, match=r"X has no columns 'p_a', 'p_b'; its columns are 'area', 'rooms'\."
    ):
        positions_of(frame, ["p_a", "area", "p_b"])
