"""What candidates from files share: paths, fingerprints, recipes, batches by memory, kinds."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from localma.candidates import FunctionCandidate, Pool, Recipe, as_candidate, from_recipe
from localma.candidates.base import RowError
from localma.candidates.batches import (
    AUTO_MEMORY,
    LEAST_ROW_BYTES,
    WORKING_COPIES,
    input_row_bytes,
    memory_bytes,
    rows_within,
)
from localma.candidates.files.base import ModelFile, PerProcess, in_fixed_batches
from localma.candidates.recipes import KINDS, recipe_beside
from localma.errors import (
    CandidateError,
    FileFormatError,
    InvalidInputError,
    LocalMAError,
    MissingDependencyError,
)
from localma.storage import fingerprints as fingerprints_module
from localma.storage.fingerprints import beside, fingerprint, found_beside

# --- files -------------------------------------------------------------------------------------


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"There is no file or folder 'nowhere\.onnx'\."):
        ModelFile("nowhere.onnx")


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    file = ModelFile(path)
    assert file.check() == path
    restored = pickle.loads(pickle.dumps(file))
    path.write_bytes(b"another")
    for kept in (file, restored):
        with pytest.raises(
            InvalidInputError,
            match=r"model\.bin' is not the file that was used before: its sha256 was "
            r"[0-9a-f]{12}\.\.\. and is [0-9a-f]{12}\.\.\. now\. Restore the old file, or make "
            "a new candidate",
        ):
            kept.check()
    path.unlink()
    with pytest.raises(InvalidInputError, match=r"model\.bin' no longer exists"):
        file.check()


@pytest.mark.parametrize("how", ["in place", "by a rename"])
@pytest.mark.parametrize("wait", [0.0, 2.2])
def test_size_and_time_do_not_hide_a_change(tmp_path: Path, how: str, wait: float) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"north")
    before = path.stat()
    time.sleep(wait)  # a file that was changed just now is never remembered
    file = ModelFile(path)
    file.check()
    changed = path if how == "in place" else tmp_path / "another"
    changed.write_bytes(b"south")
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed.replace(path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(InvalidInputError, match="is not the file that was used before"):
        file.check()


def test_a_large_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"north")
    monkeypatch.setattr(fingerprints_module, "RECENT_NANOSECONDS", 0)
    file = ModelFile(path)
    file.check()
    before = fingerprints_module._digest.cache_info()
    file.check()
    after = fingerprints_module._digest.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_the_fingerprint_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "weights").write_bytes(b"1")
    before = fingerprint(tmp_path)
    (tmp_path / ".cache").write_bytes(b"not a part of the model")
    assert fingerprint(tmp_path) == before
    (tmp_path / "inner" / "weights").rename(tmp_path / "inner" / "other")
    assert fingerprint(tmp_path) != before
    (tmp_path / "inner" / "other").rename(tmp_path / "inner" / "weights")
    assert fingerprint(tmp_path) == before
    (tmp_path / "inner" / "weights").write_bytes(b"22")
    assert fingerprint(tmp_path) != before


def test_paths_are_relative_to_the_saved_model(tmp_path: Path) -> None:
    model = tmp_path / "models" / "north.onnx"
    model.parent.mkdir()
    model.write_bytes(b"")
    assert beside(str(model), tmp_path / "models") == "north.onnx"
    assert beside(str(model), tmp_path / "saved") == "../models/north.onnx"
    assert found_beside("../models/north.onnx", tmp_path / "saved") == str(model)
    moved = tmp_path / "elsewhere" / "north.onnx"
    moved.parent.mkdir()
    model.rename(moved)
    assert found_beside("../models/north.onnx", moved.parent) == str(moved)
    with pytest.raises(
        InvalidInputError,
        match=r"There is no file '../models/north\.onnx' relative to .*, and no 'north\.onnx' in "
        r"it: put the file next to the saved model, or pass the candidate itself by name\.",
    ):
        found_beside("../models/north.onnx", tmp_path / "saved")


# --- kinds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "weights.safetensors",
            r"A \.safetensors file such as 'weights\.safetensors' holds weights without the "
            r"network they belong to: write TimmCandidate\(architecture, 'weights\.safetensors'\)",
        ),
        ("net.pt", r"may hold pickled code: load it yourself and pass the module.*\.pt2 file"),
        ("model.joblib", r"holds pickled code: load it yourself .* with skops as a \.skops file"),
        ("north.onnx", r"There is no file or folder 'north\.onnx'"),
        (
            "north",
            r"received the string 'north': for a column of X that holds predictions write "
            r"Column\('north'\)\. A model's path ends in \.onnx, \.pt2, \.skops or is a folder",
        ),
        ("a text " * 1000, r"received the string 'a text a text"),
        (Path("north"), r"received the string 'north'"),
    ],
)
def test_strings_that_are_no_candidates(path: Any, words: str) -> None:
    if path == "north.onnx":
        pytest.importorskip("onnxruntime")
    with pytest.raises(InvalidInputError, match=words):
        as_candidate(path)


def test_every_kind_declares_its_recipe() -> None:
    for kind, name in KINDS.items():
        module, _, attribute = name.partition(":")
        found = getattr(__import__(module, fromlist=[attribute]), attribute)
        assert found.kind == found._recipe_type.kind == kind
        assert fields(found._recipe_type)
        assert found._recipe_type is not Recipe


@pytest.mark.parametrize(
    ("suffix", "package", "extra"),
    [("onnx", "onnxruntime", "onnx"), ("pt2", "torch", "torch"), ("skops", "skops.io", "skops")],
)
def test_a_missing_package_is_named_at_once(
    suffix: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"north.{suffix}"
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)  # which Python takes for not installed
    with pytest.raises(
        MissingDependencyError, match=rf"install it with: pip install 'localma\[{extra}\]'"
    ):
        as_candidate(path)


def test_importing_localma_imports_no_extra() -> None:
    script = (
        "import sys, localma, localma.candidates\n"
        "extras = ['torch', 'onnx', 'onnxruntime', 'skops', 'transformers', 'timm']\n"
        "assert not [name for name in extras if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_recipes_without_paths_stay_as_they_are(tmp_path: Path) -> None:
    candidate = as_candidate(np.ravel, batch_size="1 MiB")
    assert recipe_beside(candidate, tmp_path) == candidate.recipe()
    assert from_recipe(candidate.recipe(), tmp_path).batch_size == "1 MiB"
    assert recipe_beside(as_candidate(lambda X: X), tmp_path) is None


def test_a_recipe_of_an_unknown_field_type_is_refused() -> None:
    recipe = as_candidate(np.ravel).recipe().to_json() | {"batch_size": True}
    with pytest.raises(FileFormatError, match=r"'batch_size' .* must be int or str or null; rec"):
        Recipe.from_json(recipe)


# --- batches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "size"),
    [("256 MiB", 2**28), ("1.5GB", 1_500_000_000), ("64 kib", 2**16), ("auto", AUTO_MEMORY)],
)
def test_amounts_of_memory(amount: str, size: int) -> None:
    assert memory_bytes(amount) == size


@pytest.mark.parametrize("amount", ["", "much", "12", "3 parsecs", "0 MiB", "-1 MiB", "nan MiB"])
def test_other_words_are_no_amounts(amount: str) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"batch_size as a string is 'auto' or an amount of memory such as '256 MiB' or '2 ",
    ):
        as_candidate(np.ravel, batch_size=amount)


def test_bytes_of_a_row() -> None:
    assert input_row_bytes(np.zeros((4, 3, 2), dtype=np.float32)) == 24
    assert input_row_bytes(csr_array(np.eye(5))) == 40
    assert input_row_bytes([np.zeros(7), np.zeros(1)]) == 56
    assert input_row_bytes([b"1234567"]) == 7
    pandas = pytest.importorskip("pandas")
    assert input_row_bytes(pandas.DataFrame({"a": ["x"] * 3, "b": [1, 2, 3]})) == 16


def test_batches_stay_within_the_memory() -> None:
    seen: list[int] = []

    def count(X: np.ndarray) -> np.ndarray:
        seen.append(len(X))
        return X[:, 0]

    X = np.zeros((100, 1000))
    as_candidate(count, batch_size=f"{30 * WORKING_COPIES * 8000} B").predict(X, "regression")
    assert seen == [30, 30, 30, 10]
    seen.clear()
    as_candidate(count, batch_size="1 B").predict(X[:3], "regression")
    assert seen == [1, 1, 1]
    assert rows_within("auto", LEAST_ROW_BYTES) == 16384


def test_errors_while_counting_rows_name_the_candidate() -> None:
    candidate = as_candidate(np.ravel, inputs=["rent"], batch_size="auto")
    with pytest.raises(CandidateError, match=r"Candidate 'north': X has no column 'rent'"):
        candidate.predict(np.zeros((3, 2)), "regression", name="north")


@pytest.mark.parametrize("size", [None, 1, 3, 5, 8])
def test_fixed_batches(size: int | None) -> None:
    def run(feed: dict[str, np.ndarray]) -> np.ndarray:
        assert size is None or len(feed["x"]) == len(feed["y"]) == size
        return feed["x"] + feed["y"]

    x = np.arange(5.0)
    found = in_fixed_batches(run, {"x": x, "y": x[:, None].ravel() * 10}, size)
    assert found.tolist() == [0, 11, 22, 33, 44]


# --- rows in errors ----------------------------------------------------------------------------


def test_rows_have_the_numbers_of_the_user() -> None:
    def fails(X: np.ndarray) -> np.ndarray:
        if (X[:, 0] >= 4).any():
            raise ZeroDivisionError("no rent")
        return X[:, 0]

    X = np.arange(10.0)[:, None]
    rows = np.isin(np.arange(10), [1, 3, 5, 7])
    only = np.column_stack([rows, rows])
    pool = Pool({"good": lambda X: X[:, 0], "bad": FunctionCandidate(fails)}, task="regression")
    with pytest.raises(CandidateError, match=r"'bad' raised ZeroDivisionError on rows 1, 3, 5, 7:"):
        pool.predict(X, only=only)
    pool = Pool({"bad": FunctionCandidate(fails, batch_size=2)}, task="regression")
    with pytest.raises(CandidateError, match=r"on rows 5, 7: no rent"):
        pool.predict(X, only=only[:, :1])
    with pytest.raises(CandidateError, match=r"on rows 4 to 5 of 10: no rent"):
        pool.predict(X)


def test_many_rows_are_not_all_listed() -> None:
    candidate = as_candidate(lambda X: 1 / 0)
    with pytest.raises(
        CandidateError, match=r"on rows 0, 2, 4, 6, 8 and 5 more, the last 18: division"
    ):
        candidate.predict(np.zeros((10, 1)), "regression", rows=np.arange(0, 20, 2))


@pytest.mark.parametrize(
    ("returned", "classes", "words"),
    [
        ([np.nan], None, r"returned NaN in 1 of the 1 rows it was given, first in row 7;"),
        ([-1.0], ["no", "yes"], r"returned -1 as a probability in row 7; probabilities lie"),
        ([[0.3, 0.3]], ["no", "yes"], r"that sum to 0\.6 in row 7; over its classes"),
    ],
)
def test_rows_of_bad_outputs(returned: Any, classes: Any, words: str) -> None:
    def fine_but_the_last(X: np.ndarray) -> Any:
        good = 0.5 if np.ndim(returned[0]) == 0 else [0.5, 0.5]
        return returned if X[0, 0] == 2 else [good]

    candidate = as_candidate(fine_but_the_last, classes=classes, batch_size=1)
    task = "regression" if classes is None else "classification"
    with pytest.raises(CandidateError, match=words):
        candidate.predict(np.arange(3.0)[:, None], task, rows=np.array([3, 5, 7]))


def test_a_row_that_cannot_be_read_is_named() -> None:
    def read(X: np.ndarray) -> Any:
        raise RowError("the image is cut short.", row=1)

    with pytest.raises(CandidateError, match=r"^Candidate 'read', row 3: the image is cut short"):
        as_candidate(read, batch_size=2).predict(np.zeros((4, 1)), "regression", rows=[1, 3, 5, 7])


# --- processes ---------------------------------------------------------------------------------


def test_a_thing_per_process_is_made_once_and_not_pickled() -> None:
    thing = PerProcess(list)
    first = thing.get()
    first.append("used")
    assert thing.get() is first
    assert pickle.loads(pickle.dumps(thing)).get() == []


def test_errors_are_of_this_package() -> None:
    assert issubclass(RowError, LocalMAError)
    assert issubclass(RowError, ValueError)
