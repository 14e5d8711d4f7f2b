"""Predictions cached on disk: known again by content, whole or not there, and never wrong."""

from __future__ import annotations

import functools
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from localma import LocalMAClassifier, LocalMARegressor, load
from localma.candidates import (
    Cached,
    Column,
    CrossFitted,
    Pool,
    as_candidate,
    cache_info,
    clean_cache,
)
from localma.candidates import cached as cached_module
from localma.candidates.cached import candidate_fingerprint
from localma.candidates.outputs import OutputNames
from localma.errors import CandidateError, InvalidInputError
from localma.storage import cache as cache_module
from localma.storage.row_keys import row_keys
from localma.storage.whole_files import replacing

pytest.importorskip("pyarrow", reason="predictions are cached as Arrow files (extra cache)")

random = np.random.default_rng(0)
X = random.normal(size=(60, 3))
Y = X[:, 0] - X[:, 1] + 0.1 * random.normal(size=60)
LINE = LinearRegression().fit(X, Y)


class Model:
    """A function that counts the rows that it is asked about."""

    def __init__(self, outputs: int = 1) -> None:
        self.asked: list[int] = []
        self.outputs = outputs

    def __call__(self, X: Any) -> np.ndarray:
        values = np.asarray(X, dtype=float)
        self.asked.append(len(values))
        return values[:, 0] if self.outputs == 1 else values[:, : self.outputs]


def cached(model: Any, folder: Path, **options: Any) -> Cached:
    return Cached(model, folder, key="model", **options)


def files(folder: Path, suffix: str = ".arrow") -> list[Path]:
    return sorted(folder.rglob(f"*{suffix}"))


# --- rows are known again by their content -------------------------------------------------------


def test_no_row_is_asked_twice(tmp_path: Path) -> None:
    model = Model()
    candidate = cached(model, tmp_path)
    twice = np.concatenate([X[:20], X[10:30], X[:5]])
    assert_array_equal(candidate.predict(twice, "regression"), twice[:, 0])
    assert model.asked == [30]
    assert_array_equal(candidate.predict(X[::-1], "regression"), X[::-1, 0])
    assert model.asked == [30, 30]
    assert_array_equal(cached(Model(), tmp_path).predict(X, "regression"), X[:, 0])
    assert sum(model.asked) == 60


def test_whoever_writes_first_writes_the_same_outputs(tmp_path: Path) -> None:
    """Two that begin on an empty cache, whose models name their outputs in another order."""
    pandas = pytest.importorskip("pandas")

    def named(order: str) -> Cached:
        return cached(lambda X: pandas.DataFrame(X[:, :2], columns=["u", "v"])[[*order]], tmp_path)

    for place, order in enumerate(("vu", "uv")):
        part = X[20 * place : 20 * place + 20]
        for file in files(tmp_path):  # as if the other did not see it yet
            file.rename(file.with_suffix(".hidden"))
        assert_array_equal(named(order).predict(part, "regression"), part[:, :2])
    for file in tmp_path.rglob("*.hidden"):
        file.rename(file.with_suffix(".arrow"))
    outputs = OutputNames(("v", "u"), "y")
    found = named("uv").predict(X[:60], "regression", outputs=outputs)
    assert_array_equal(found, X[:60, 1::-1])


def test_folds_of_a_cross_validation_are_cached(tmp_path: Path) -> None:
    model = Model()
    pool = {"line": Cached(LINE, tmp_path), "first": cached(model, tmp_path)}
    plain = LocalMARegressor({"line": LINE, "first": lambda X: X[:, 0]}, gate="global")
    estimator = LocalMARegressor(pool, gate="global")
    scores = cross_val_score(estimator, X, Y, cv=4)
    assert_array_equal(scores, cross_val_score(plain, X, Y, cv=4))
    assert sum(model.asked) == 60
    cross_val_score(clone(estimator), X, Y, cv=3)
    assert sum(model.asked) == 60


@pytest.mark.parametrize("outputs", [1, 2])
def test_shapes_come_back(tmp_path: Path, outputs: int) -> None:
    expected = Model(outputs)(X)
    for _ in range(2):
        predictions = cached(Model(outputs), tmp_path).predict(X, "regression")
        assert_array_equal(predictions, expected)
        assert predictions.dtype == np.float64


def test_classifiers_and_tasks_are_kept_apart(tmp_path: Path) -> None:
    labels = np.where(Y > 0, "up", "down")
    model = LogisticRegression().fit(X, labels)
    for _ in range(2):
        found = Cached(model, tmp_path).predict(X, "classification")
        assert_array_equal(found, model.predict_proba(X))
    renamed = Cached(as_candidate(model, classes=["no", "yes"]), tmp_path)
    assert renamed.classes is not None
    assert renamed.classes.tolist() == ["no", "yes"]
    renamed.predict(X, "classification")
    assert len(cache_info(tmp_path)) == 2
    gate = LocalMAClassifier(Cached.all({"model": model}, tmp_path), gate="equal").fit(X, labels)
    assert_array_equal(gate.predict_proba(X), model.predict_proba(X))


def test_only_what_the_model_sees_counts(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = LinearRegression().fit(frame[["a", "b"]], Y)
    seen = Cached(model, tmp_path)
    seen.predict(frame, "regression")
    more = frame.assign(c=0.0, guess=1.0)[["guess", "b", "c", "a"]]
    counted = Model()
    chosen = cached(as_candidate(counted, inputs=["a"]), tmp_path)
    seen.predict(more, "regression")
    chosen.predict(frame, "regression")
    chosen.predict(more, "regression")
    assert counted.asked == [60]
    assert {entry.rows for entry in cache_info(tmp_path)} == {60}


def test_rows_that_a_gate_does_not_ask_for_are_not_predicted(tmp_path: Path) -> None:
    model = Model()
    pool = Pool({"a": cached(model, tmp_path), "b": LINE}, task="regression")
    mask = np.ones((60, 2), dtype=bool)
    mask[::2, 0] = False
    P = pool.predict(X, only=mask)
    assert model.asked == [30]
    assert_array_equal(P[1::2, 0], X[1::2, 0])
    assert_array_equal(pool.predict(X)[:, 0], X[:, 0])
    assert model.asked == [30, 30]


# --- keys of rows --------------------------------------------------------------------------------


def distinct_keys(X: Any) -> int:
    return len({key.tobytes() for key in row_keys(X)})


@given(
    arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 5)), elements=st.floats()),
    st.randoms(use_true_random=False),
)
def test_keys_go_with_the_rows(values: np.ndarray, shuffle: Any) -> None:
    order = list(range(len(values)))
    shuffle.shuffle(order)
    assert_array_equal(row_keys(values)[order], row_keys(values[order]))
    assert distinct_keys(values) == len({row.tobytes() for row in values})


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, bool])
def test_a_grid_has_no_two_equal_keys(dtype: Any) -> None:
    side = 2 if dtype is bool else 40
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3), axis=-1).reshape(-1, 3).astype(dtype)
    keys = row_keys(grid)
    assert distinct_keys(grid) == side**3
    # Half of a key tells these few rows apart already, as 64 random bits would.
    assert len(np.unique(keys[:, 0])) == len(np.unique(keys[:, 1])) == side**3


def test_wide_rows_images_and_odd_widths_have_keys() -> None:
    images = random.integers(0, 255, size=(12, 9, 9, 3), dtype=np.uint8)
    images[5] = images[2]
    assert distinct_keys(images) == distinct_keys(np.asfortranarray(images)) == 11
    assert_array_equal(row_keys(images)[3:4], row_keys(images[3:4]))
    assert distinct_keys(np.zeros((3, 0))) == 1


def test_the_kind_of_rows_counts() -> None:
    kinds = [
        np.zeros((1, 2)),
        np.zeros((1, 2), dtype=np.float32),
        np.zeros((1, 4), dtype=np.float32),
        np.zeros((1, 3)),
        np.zeros((1, 1, 2)),
        sparse.csr_matrix(np.zeros((1, 2))),
        [[0.0, 0.0]],
        [(0.0, 0.0)],
        [[0, 0]],
        [["0.0", "0.0"]],
        [{"a": 0.0}],
        [None],
        [b""],
        [""],
        [Decimal(0)],
        np.array([["0"]], dtype=object),
    ]
    assert len({row_keys(kind).tobytes() for kind in kinds}) == len(kinds)


def test_nothing_runs_together() -> None:
    rows = [["ab", "c"], ["a", "bc"], ["abc"], ["ab", ["c"]], [["ab"], "c"], ["ab", "c", ""]]
    assert distinct_keys(rows) == len(rows)
    assert distinct_keys(["a\0b", "a", "b", "a b", "\ud800"]) == 5


def test_texts_of_any_container_have_one_key_each() -> None:
    texts = ["north", "south-south-west", "north"]
    assert distinct_keys(texts) == distinct_keys(np.array(texts)) == 2
    # The width of NumPy's strings depends on the others, and must not count.
    assert_array_equal(row_keys(np.array(texts))[:1], row_keys(np.array(texts[:1])))


def test_sparse_rows_count_by_their_numbers() -> None:
    plain = sparse.random(30, 8, density=0.3, random_state=0, format="csr")
    shuffled = plain.copy()
    shuffled.indices, shuffled.data = shuffled.indices.copy(), shuffled.data.copy()
    for first, last in zip(plain.indptr[:-1], plain.indptr[1:], strict=True):
        shuffled.indices[first:last] = shuffled.indices[first:last][::-1]
        shuffled.data[first:last] = shuffled.data[first:last][::-1]
    shuffled.has_sorted_indices = False
    assert_array_equal(row_keys(plain), row_keys(shuffled))
    assert_array_equal(row_keys(plain)[10:], row_keys(plain.tocoo().tocsc()[10:]))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_of_any_column(library: str) -> None:
    module = pytest.importorskip(library)
    make = module.table if library == "pyarrow" else module.DataFrame
    day = datetime(2024, 5, 1, tzinfo=None)
    columns: dict[str, list[Any]] = {
        "number": [1.0, 2.0, 1.0, float("nan")],
        "whole": [2**60, 2**60 + 1, 2**60, 2**60],
        "text": ["a", None, "a", "a"],
        "truth": [True, False, True, True],
        "time": [day, day + timedelta(days=1), day, day],
    }
    frame = make(columns)
    keys = row_keys(frame)
    assert distinct_keys(frame) == 3
    assert_array_equal(keys[0], keys[2])
    assert_array_equal(
        keys[1:3], row_keys(frame[1:3] if library != "pyarrow" else frame.slice(1, 2))
    )
    other = make({**columns, "number": columns["number"][::-1]})
    assert not (row_keys(other)[0] == keys[0]).all()
    renamed = make({name.upper(): values for name, values in columns.items()})
    assert not (row_keys(renamed) == keys).all(axis=1).any()


def test_nulls_are_no_numbers() -> None:
    polars = pytest.importorskip("polars")
    column = polars.Series("a", [0.0, None, float("nan")])
    assert distinct_keys(polars.DataFrame([column])) == 3
    whole = polars.Series("a", [0, None, 2**60, 2**60 + 1])
    assert distinct_keys(polars.DataFrame([whole])) == 4
    pandas = pytest.importorskip("pandas")
    assert distinct_keys(pandas.DataFrame({"a": [0.0, np.nan, 1.0]})) == 3
    assert distinct_keys(pandas.DataFrame({"a": pandas.array([0, None, 1], dtype="Int64")})) == 3


def test_the_codes_of_categories_count() -> None:
    pandas = pytest.importorskip("pandas")
    few = pandas.DataFrame({"a": pandas.Categorical(["x", "y"], categories=["x", "y"])})
    turned = pandas.DataFrame({"a": pandas.Categorical(["x", "y"], categories=["y", "x"])})
    assert_array_equal(row_keys(few)[1:], row_keys(few[1:]))
    assert not (row_keys(few) == row_keys(turned)).all(axis=1).any()


def test_tensors_and_images_count_by_their_content() -> None:
    torch = pytest.importorskip("torch")
    rows = [torch.zeros(2), torch.ones(2), torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16)]
    assert distinct_keys(rows) == 3
    stacked = torch.stack(rows[:3])
    assert distinct_keys(stacked) == distinct_keys(stacked.bfloat16()) == 2
    assert_array_equal(row_keys(stacked)[1:2], row_keys(stacked[1:2]))
    pil = pytest.importorskip("PIL.Image")
    grey, red = pil.new("L", (4, 3)), pil.new("RGB", (4, 3), "red")
    assert distinct_keys([grey, red, grey.copy(), pil.new("L", (3, 4))]) == 3


def test_a_path_counts_by_the_content_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    file.write_bytes(b"one")
    for rows in ([str(file)], [file]):
        file.write_bytes(b"one")
        before = row_keys(rows)
        assert_array_equal(before, row_keys(rows))
        file.write_bytes(b"two!")
        assert not (row_keys(rows) == before).all()
    with pytest.raises(
        InvalidInputError, match=r"Only paths of files can be cached; .* is not a file"
    ):
        row_keys([tmp_path / "absent.png"])


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north': An object of type object cannot be cached, because rows "
        r"are recognised by their content: pass rows of numbers, .* function of X as inputs=\.",
    ):
        cached(Model(), tmp_path).predict([object()], "regression", name="north")


# --- fingerprints of models ----------------------------------------------------------------------


def test_another_model_is_another_fingerprint() -> None:
    same = LinearRegression().fit(X, Y)
    other = LinearRegression().fit(X, Y + 1)
    prints = [candidate_fingerprint(as_candidate(m)) for m in (LINE, same, other)]
    assert prints[0] == prints[1] != prints[2]
    again = pickle.loads(pickle.dumps(LINE))
    assert candidate_fingerprint(as_candidate(again, inputs=lambda X: X)) == prints[0]
    assert candidate_fingerprint(as_candidate(LINE.predict)) != prints[0]


def test_a_model_that_is_fitted_again_is_another_one(tmp_path: Path) -> None:
    model = LinearRegression().fit(X, Y)
    candidate = Cached(model, tmp_path)
    before = candidate.predict(X, "regression")
    model.fit(X, -Y)
    assert_array_equal(candidate.predict(X, "regression"), model.predict(X))
    assert not np.array_equal(model.predict(X), before)


def test_fingerprints_are_the_same_in_another_process() -> None:
    script = """
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from localma.candidates import as_candidate
from localma.candidates.cached import candidate_fingerprint
from localma.candidates.outputs import OutputNames
X = np.random.default_rng(0).normal(size=(60, 3))
model = RandomForestRegressor(5, random_state=0).fit(X, X[:, 0])
print(candidate_fingerprint(as_candidate(model)))
"""
    here = RandomForestRegressor(5, random_state=0)
    data = np.random.default_rng(0).normal(size=(60, 3))
    wanted = candidate_fingerprint(as_candidate(here.fit(data, data[:, 0])))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == wanted


def test_a_network_in_memory_has_a_fingerprint_by_its_numbers() -> None:
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(3, 1) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    prints = [candidate_fingerprint(as_candidate(layer)) for layer in layers]
    assert prints[0] == prints[1]
    with torch.no_grad():
        layers[1].bias += 1
    assert candidate_fingerprint(as_candidate(layers[1])) != prints[0]


def test_a_model_in_a_file_has_that_of_its_content(tmp_path: Path) -> None:
    sio = pytest.importorskip("skops.io")
    for name, model in (("a", LINE), ("b", LINE), ("c", LinearRegression().fit(X, Y + 1))):
        sio.dump(model, tmp_path / f"{name}.skops")
    (tmp_path / "b.skops").write_bytes((tmp_path / "a.skops").read_bytes())
    candidates = [as_candidate(tmp_path / f"{n}.skops", inputs=lambda X: X) for n in "abc"]
    prints = [candidate_fingerprint(candidate) for candidate in candidates]
    assert prints[0] == prints[1] != prints[2]


def ours(X: Any) -> Any:
    return X


class Ours(LinearRegression):
    """Code of one's own, which may change."""


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (ours, r"the code of .*ours can change while its name stays"),
        (lambda X: X[:, 0], r"the code of .*<lambda> can change while its name stays"),
        (functools.partial(ours), r"the code of .*ours can change"),
        (Ours().fit(X, Y), r"the code of .*Ours can change"),
        (Ours().fit(X, Y).predict, r"the code of .*Ours can change"),
        (
            make_pipeline(FunctionTransformer(ours), LinearRegression()).fit(X, Y),
            r"the code of .*ours can change",
        ),
        ("http://127.0.0.1:9/predict", r"the model behind an address can change"),
    ],
)
def test_code_of_ones_own_needs_a_key(model: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError,
        match=rf"cached under a fingerprint of the model, but .* has none: {reason}.*\. Pass your "
        r"own key, and another one whenever the model changes: Cached\(model, key=",
    ):
        Cached(model, tmp_path)
    Cached(model, tmp_path, key="mine")


def test_functions_of_installed_packages_need_none(tmp_path: Path) -> None:
    mean = functools.partial(np.mean, axis=1)
    assert_array_equal(Cached(mean, tmp_path).predict(X, "regression"), X.mean(axis=1))


def test_another_key_is_another_model(tmp_path: Path) -> None:
    Cached(lambda X: X[:, 0], tmp_path, key="old").predict(X, "regression")
    new = Cached(lambda X: X[:, 1], tmp_path, key="new").predict(X, "regression")
    assert_array_equal(new, X[:, 1])


def test_a_key_says_nothing_of_the_temperature(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from torch import nn

    from localma.candidates import TorchCandidate

    layer = nn.Linear(X.shape[1], 2)
    hot = TorchCandidate(layer, activation="softmax", classes=[0, 1])
    cool = TorchCandidate(layer, activation="softmax", temperature=5.0, classes=[0, 1])
    first = Cached(hot, tmp_path, key="vendor").predict(X, "classification")
    second = Cached(cool, tmp_path, key="vendor").predict(X, "classification")
    assert_array_equal(second, cool.predict(X, "classification"))
    assert not np.allclose(first, second)


# --- what is in a pool ---------------------------------------------------------------------------


def test_a_whole_pool(tmp_path: Path) -> None:
    own = Cached(ours, tmp_path, key="ours")
    cheap, fitted = Column(0), CrossFitted(LinearRegression())
    named = Cached.all({"line": LINE, "ours": own, "column": cheap, "cross": fitted}, tmp_path)
    assert list(named) == ["line", "ours", "column", "cross"]
    assert isinstance(named["line"], Cached)
    assert named["ours"] is own
    assert named["column"] is cheap
    assert named["cross"] is fitted
    pairs = Cached.all([("line", LINE)], tmp_path)
    assert pairs[0][0] == "line"
    assert Pool(Cached.all([LINE], tmp_path), task="regression").names == ("linearregression",)
    with pytest.raises(InvalidInputError, match=r"Cached\.all takes a pool.*received Lin"):
        Cached.all(LINE, tmp_path)


def test_one_model_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"Candidates 'a' and 'b' are the same"):
        Pool({"a": LINE, "b": Cached(LINE, tmp_path)}, task="regression")


def test_options_of_the_candidate_are_those_of_the_cached_one(tmp_path: Path) -> None:
    inner = as_candidate(LINE, inputs=[0, 1, 2], cost=7.0, batch_size=9)
    outer = Cached(inner, tmp_path)
    assert (outer.inputs, outer.cost, outer.batch_size) == ([0, 1, 2], 7.0, 9)
    assert outer.label == "linearregression"
    again = pickle.loads(pickle.dumps(outer))
    assert_array_equal(again.predict(X, "regression"), outer.predict(X, "regression"))


def test_a_saved_model_has_the_candidate_and_not_its_cache(tmp_path: Path) -> None:
    pool = {
        "guess": Column(2),
        "line": Cached(as_candidate(LINE, inputs=[0, 1, 2]), tmp_path / "cache"),
    }
    model = LocalMARegressor(pool, gate="global").fit(X, Y)
    model.save(tmp_path / "model.localma")
    assert str(tmp_path / "cache").encode() not in (tmp_path / "model.localma").read_bytes()
    again = load(
        tmp_path / "model.localma", candidates={"line": as_candidate(LINE, inputs=[0, 1, 2])}
    )
    assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Cached(Column(0)),
            r"Column\('column_0'\) contains predictions already, in a column",
        ),
        (lambda: Cached(CrossFitted(LinearRegression())), r"is fitted again on every sample: pass"),
        (lambda: Cached(Cached(LINE)), r"is cached already: pass it without Cached"),
        (
            lambda: Cached(LINE, key=""),
            r"key must be a string that names the model.*received ''",
        ),
        (
            lambda: Cached(LINE, max_bytes=-1),
            r"max_bytes must be a whole number of bytes.*received -1",
        ),
        (
            lambda: clean_cache(older_than=3),
            r"older_than must be a datetime\.timedelta.*received 3",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    make: Any, words: str, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALMA_CACHE", str(tmp_path))
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_the_environment_says_where(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALMA_CACHE", str(tmp_path / "there"))
    Cached(LINE).predict(X, "regression")
    assert cache_info()[0].rows == 60
    monkeypatch.delenv("LOCALMA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    assert Cached(LINE).folder == tmp_path / "users" / "localma"


# --- failures ------------------------------------------------------------------------------------


class Stumbles:
    """Fails on one row until it is told not to."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = True

    def __call__(self, X: Any) -> np.ndarray:
        if self.fails and (X == 33.0).any():
            raise RuntimeError("no connection")
        self.asked += len(X)
        return X[:, 0]


def test_batches_before_a_failure_are_kept(tmp_path: Path) -> None:
    model, rows = Stumbles(), np.arange(50.0)[:, np.newaxis]
    candidate = cached(as_candidate(model, batch_size=10), tmp_path)
    with pytest.raises(
        CandidateError, match=r"'north' raised RuntimeError on rows 30 to 39 of 50: no"
    ):
        candidate.predict(rows, "regression", name="north")
    assert model.asked == 30
    model.fails = False
    assert_array_equal(candidate.predict(rows, "regression"), rows[:, 0])
    assert model.asked == 50


def test_failures_are_numbered_as_in_x(tmp_path: Path) -> None:
    model, rows = Stumbles(), np.arange(50.0)[:, np.newaxis]
    candidate = cached(as_candidate(model, batch_size=10), tmp_path)
    candidate.predict(rows[:15], "regression")
    with pytest.raises(CandidateError, match=r"on rows 25 to 34: no"):
        candidate.predict(rows, "regression")
    pool = Pool({"a": cached(model, tmp_path), "b": lambda X: X[:, 0]}, task="regression")
    mask = np.ones((50, 2), dtype=bool)
    mask[::2, 0] = False
    with pytest.raises(CandidateError, match=r"on rows 25, 27, 29, 31, 33 and 8 more, the last 49"):
        pool.predict(rows, only=mask)


def test_what_no_candidate_may_return_is_not_cached(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"returned NaN"):
        cached(lambda X: X[:, 0] * np.nan, tmp_path).predict(X, "regression")
    uneven = as_candidate(lambda X: X if len(X) > 5 else X[:, 0], batch_size=11)
    with pytest.raises(CandidateError, match=r"a different number of outputs from one batch"):
        cached(uneven, tmp_path).predict(X, "regression")
    assert files(tmp_path) == []


def test_a_disk_that_cannot_be_written_costs_no_predictions(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "file").write_text("no folder")
    candidate = cached(Model(), tmp_path / "file" / "cache")
    with caplog.at_level(logging.WARNING, logger="localma"):
        assert_array_equal(candidate.predict(X, "regression"), X[:, 0])
    assert "Predictions could not be cached" in caplog.text


def test_long_work_is_kept_on_the_way(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(cached_module, "WRITE_SECONDS", 0.0)
    there: list[int] = []

    def model(X: Any) -> Any:
        there.append(sum(entry.rows for entry in cache_info(tmp_path)))
        return X[:, 0]

    cached(as_candidate(model, batch_size=20), tmp_path).predict(X, "regression")
    assert there == [0, 20, 40]


def test_batches_after_a_refused_one_keep_their_keys(tmp_path: Path) -> None:
    shelf = cached(Model(), tmp_path)._shelf("regression")
    keys = row_keys(X)
    writer = cached_module._Writer(shelf, keys)
    for batch in (X[:10, 0], X[10:20, :2]):  # different numbers of outputs: not written
        writer.add(batch)
    writer.write()
    writer.add(X[20:30, 0])
    writer.write()
    hits = shelf.read(keys)
    assert_array_equal(np.sort(hits.index), np.arange(20, 30))
    assert_array_equal(hits.predictions, X[hits.index, 0])


# --- spoilt files --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["flip", "cut", "overwrite"]))
def test_a_spoilt_file_is_never_a_wrong_answer(tmp_path_factory: Any, seed: int, how: str) -> None:
    folder = tmp_path_factory.mktemp("spoilt")
    cached(Model(2), folder).predict(X, "regression")
    (path,) = files(folder)
    content, generator = bytearray(path.read_bytes()), np.random.default_rng(seed)
    place = int(generator.integers(len(content)))
    if how == "flip":
        content[place] ^= 1 << int(generator.integers(8))
    elif how == "cut":
        content = content[:place]
    else:
        content[place : place + 8] = generator.bytes(8)
    path.write_bytes(content)
    for _ in range(2):
        assert_array_equal(cached(Model(2), folder).predict(X, "regression"), X[:, :2])


def test_a_spoilt_prediction_is_noticed_and_replaced(tmp_path: Path, caplog: Any) -> None:
    cached(Model(), tmp_path).predict(X, "regression")
    (path,) = files(tmp_path)
    content = path.read_bytes()
    value = X[7, 0].tobytes()
    assert content.count(value) == 1
    path.write_bytes(content.replace(value, (X[7, 0] + 1e-9).tobytes()))
    model = Model()
    with caplog.at_level(logging.WARNING, logger="localma"):
        assert_array_equal(cached(model, tmp_path).predict(X, "regression"), X[:, 0])
    assert (
        "are damaged (a checksum does not match). The file is removed, and its rows are predicted "
        "again." in caplog.text
    )
    assert model.asked == [60]
    caplog.clear()
    assert_array_equal(cached(model, tmp_path).predict(X, "regression"), X[:, 0])
    assert model.asked == [60]
    assert caplog.text == ""


def test_a_file_of_another_candidate_is_not_read(tmp_path: Path) -> None:
    Cached(lambda X: X[:, 0], tmp_path, key="one").predict(X, "regression")
    (path,) = files(tmp_path)
    Cached(lambda X: X[:, 1], tmp_path, key="two").predict(X[:5], "regression")
    (other,) = {file.parent for file in files(tmp_path)} - {path.parent}
    (other / path.name).write_bytes(path.read_bytes())
    found = Cached(lambda X: X[:, 1], tmp_path, key="two").predict(X, "regression")
    assert_array_equal(found, X[:, 1])
    assert (other / path.name).exists()  # it is not ours, and not damaged


def test_a_file_of_a_later_version_stays(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(cache_module, "SCHEMA", "localma predictions 2")
    cached(Model(), tmp_path).predict(X, "regression")
    monkeypatch.undo()
    (later,) = files(tmp_path)
    content, model = later.read_bytes(), Model()
    assert_array_equal(cached(model, tmp_path).predict(X, "regression"), X[:, 0])
    assert model.asked == [60]
    assert later.read_bytes() == content
    assert "cannot be used now (it was written by another version, or by another" in caplog.text


OUT_OF_MEMORY = """
import resource, sys, numpy as np
from localma.candidates import Cached
X = np.random.default_rng(0).normal(size=(400_000, 1))
def model(X):
    return X[:, 0]
candidate = Cached(model, sys.argv[1], key="model")
candidate.predict(X, "regression")  # a file of 12 MB
candidate.predict(X[:5], "regression")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**20, resource.RLIM_INFINITY))
assert np.array_equal(candidate.predict(X[:5], "regression"), X[:5, 0])
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads its memory from /proc")
def test_a_good_file_that_cannot_be_mapped_stays(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "cannot be used now (Memory mapping file failed" in ran.stderr
    assert "The file stays, and its rows are predicted again." in ran.stderr
    assert max(path.stat().st_size for path in files(tmp_path)) > 10**7


def test_a_good_file_that_may_not_be_read_stays(tmp_path: Path, caplog: Any) -> None:
    cached(Model(), tmp_path).predict(X, "regression")
    (path,) = files(tmp_path)
    content = path.read_bytes()
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    model = Model()
    assert_array_equal(cached(model, tmp_path).predict(X, "regression"), X[:, 0])
    assert "cannot be used now" in caplog.text
    path.chmod(0o600)
    assert path.read_bytes() == content


def test_one_entry_that_cannot_be_looked_at_does_not_hide_the_others(tmp_path: Path) -> None:
    cached(Model(), tmp_path).predict(X, "regression")
    (path,) = files(tmp_path)
    for letter in "0f":  # before and after it, in whatever order the system lists them
        link = path.with_name(letter * 32 + ".arrow")
        link.symlink_to(link.name)
    model = Model()
    assert_array_equal(cached(model, tmp_path).predict(X, "regression"), X[:, 0])
    assert model.asked == []


def test_another_number_of_outputs_empties_the_cache(tmp_path: Path, caplog: Any) -> None:
    cached(Model(1), tmp_path).predict(X[:20], "regression")
    with caplog.at_level(logging.WARNING, logger="localma"):
        assert_array_equal(cached(Model(2), tmp_path).predict(X, "regression"), X[:, :2])
    assert "has another number of outputs than before: its cache is emptied" in caplog.text
    model = Model(2)
    assert_array_equal(cached(model, tmp_path).predict(X, "regression"), X[:, :2])
    assert model.asked == []


# --- two processes -------------------------------------------------------------------------------

RACE = """
import sys, numpy as np
from localma.candidates import Cached
from localma.storage import cache
cache.SMALL_FILES = 3
folder, seed = sys.argv[1], int(sys.argv[2])
X = np.random.default_rng(0).normal(size=(400, 3))
def model(X):
    return X[:, 0] - 2 * X[:, 1]  # to the last digit the same in any company
candidate = Cached(model, folder, key="race", max_bytes=20_000)
generator = np.random.default_rng(seed)
print("ready", flush=True)
for _ in range(int(sys.argv[3])):
    rows = generator.integers(400, size=40)
    predictions = candidate.predict(X[rows], "regression")
    assert np.array_equal(predictions, model(X[rows])), np.abs(predictions - model(X[rows])).max()
"""


def start_race(folder: Path, seed: int, rounds: int, stack: ExitStack) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RACE, str(folder), str(seed), str(rounds)]
    pipe = subprocess.PIPE
    process = stack.enter_context(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
    stack.callback(process.kill)  # before it is waited for, whatever happens
    return process


def test_processes_may_race_and_be_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        runners = [start_race(tmp_path, seed, 30, stack) for seed in range(2)]
        victim = start_race(tmp_path, 9, 10**9, stack)
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        time.sleep(0.3)
        victim.kill()  # as kill -9 does
        for runner in runners:
            _, errors = runner.communicate(timeout=120)
            assert runner.returncode == 0, errors
        assert sum(entry.bytes for entry in cache_info(tmp_path)) <= 20_000
        last = start_race(tmp_path, 5, 5, stack)
        _, errors = last.communicate(timeout=120)
        assert last.returncode == 0, errors


KILLED = """
import os, signal, sys, numpy as np
from localma.candidates import Cached
from localma.storage import cache
written = cache.CachedRows.write
def killed(self, file, about):
    written(self, file, about)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)  # before the file gets its name
cache.CachedRows.write = killed
X = np.random.default_rng(0).normal(size=(60, 3))
Cached(lambda X: X[:, 0], sys.argv[1], key="model").predict(X, "regression")
"""


def test_a_write_that_was_killed_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ran.returncode == -signal.SIGKILL
    (unfinished,) = files(tmp_path, ".part")
    model = Model()
    assert_array_equal(cached(model, tmp_path).predict(X, "regression"), X[:, 0])
    assert model.asked == [60]
    assert not unfinished.exists()  # no process holds its lock, so the next one to write removes it
    assert cache_info(tmp_path)[0].rows == 60
    shutil.rmtree(tmp_path / cache_info(tmp_path)[0].folder.name)
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert len(files(tmp_path, ".part")) == 1
    clean_cache(tmp_path, older_than=timedelta(days=1))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_a_process_is_writing_stays(tmp_path: Path) -> None:
    cached(Model(), tmp_path).predict(X, "regression")
    with replacing(cache_info(tmp_path)[0].folder / "a.arrow") as unfinished:
        clean_cache(tmp_path)
        assert unfinished.exists()


# --- looking and cleaning ------------------------------------------------------------------------


def test_rows_one_by_one_do_not_leave_a_file_each(tmp_path: Path) -> None:
    model = Model()
    candidate = cached(model, tmp_path)
    for row in range(40):
        candidate.predict(X[row : row + 1], "regression")
    assert len(files(tmp_path)) <= cache_module.SMALL_FILES
    assert_array_equal(candidate.predict(X[:40], "regression"), X[:40, 0])
    assert model.asked == [1] * 40


def fill(folder: Path, keys: str, used: dict[str, float]) -> None:
    """Predictions of some models, last used so many hours ago."""
    for key in keys:
        before = set(files(folder))
        Cached(lambda X: X[:, 0], folder, key=key).predict(X, "regression")
        (new,) = set(files(folder)) - before
        then = time.time() - 3600 * used[key]
        os.utime(new, (then, then))


def test_info_says_what_is_there(tmp_path: Path) -> None:
    assert cache_info(tmp_path) == []
    fill(tmp_path, "ab", {"a": 5, "b": 2})
    Cached(LINE, tmp_path).predict(X[:10], "regression")
    entries = cache_info(tmp_path)
    assert [(entry.candidate, entry.task, entry.rows) for entry in entries] == [
        ("linearregression", "regression", 10),
        ("function", "regression", 60),
        ("function", "regression", 60),
    ]
    assert sum(entry.bytes for entry in entries) == sum(f.stat().st_size for f in files(tmp_path))
    assert timedelta(hours=4.9) < datetime.now(UTC) - entries[2].last_used < timedelta(hours=5.1)


def test_the_least_recently_used_make_room(tmp_path: Path) -> None:
    fill(tmp_path, "abc", {"a": 3, "b": 2, "c": 1})
    size = files(tmp_path)[0].stat().st_size
    Cached(lambda X: X[:, 0], tmp_path, key="a").predict(X[:1], "regression")  # used now
    full = Cached(lambda X: X[:, 0], tmp_path, key="d", max_bytes=3 * size + size // 2)
    full.predict(X, "regression")
    left = {entry.folder for entry in cache_info(tmp_path)}
    wanted = {Cached(lambda X: X, tmp_path, key=key)._shelf("regression").folder for key in "acd"}
    assert left == wanted


def test_a_limit_below_one_file_is_said(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, logger="localma"):
        found = cached(Model(), tmp_path, max_bytes=10).predict(X, "regression")
    assert_array_equal(found, X[:, 0])
    assert "and max_bytes is 10: none are kept" in caplog.text
    assert cache_info(tmp_path) == []


def test_cleaning_by_age_by_size_and_all(tmp_path: Path) -> None:
    fill(tmp_path, "abc", {"a": 48, "b": 24, "c": 1})
    (tmp_path / "notes.txt").write_text("of the user")
    (tmp_path / "data.arrow").write_text("of the user")
    size = files(tmp_path / next(iter(cache_info(tmp_path))).folder.name)[0].stat().st_size
    assert clean_cache(tmp_path, older_than=timedelta(hours=36)) == size
    assert len(cache_info(tmp_path)) == 2
    assert clean_cache(tmp_path, max_bytes=size) == size
    (left,) = cache_info(tmp_path)
    assert datetime.now(UTC) - left.last_used < timedelta(hours=2)
    assert clean_cache(tmp_path) == size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.arrow", "notes.txt"]


@pytest.mark.parametrize(
    "X", [np.ma.masked_array(np.eye(3), np.eye(3)), np.zeros(3, dtype=[("a", float)])]
)
def test_rows_with_a_mask_or_named_fields_have_no_key(X):
    with pytest.raises(InvalidInputError, match="a mask or named fields"):
        row_keys(X)


def test_weights_beside_an_onnx_file_count(tmp_path):
    onnx = pytest.importorskip("onnx")
    from localma.storage.fingerprints import fingerprint

    weights = onnx.numpy_helper.from_array(np.ones(1000, dtype=np.float32), "w")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", kind, [1000])],
        [helper.make_tensor_value_info("y", kind, [1000])], [weights],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph), path, save_as_external_data=True, location="m.data",
        size_threshold=0,
    )  # fmt: skip
    before = fingerprint(path)
    (tmp_path / "m.data").write_bytes(np.full(1000, 5.0, dtype=np.float32).tobytes())
    assert fingerprint(path) != before
