"""scikit-learn models in skops files as candidates."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load
from localma.candidates import SkopsCandidate, from_recipe
from localma.errors import (
    CandidateError,
    FileFormatError,
    InvalidInputError,
    TrainedOnSampleWarning,
    UntrustedFileError,
)

skops_io = pytest.importorskip("skops.io", reason="needs the extra skops")

random = np.random.default_rng(0)
X = random.normal(size=(80, 3))
Y = X[:, 0] - X[:, 1] ** 2
TREES = ["sklearn.tree._tree.Tree"]
LABELS = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]


def written(path: Path, model: Any) -> Path:
    skops_io.dump(model, path)
    return path


def test_a_file_predicts_as_the_model_did(tmp_path: Path) -> None:
    smooth = SVR().fit(X, Y)
    candidate = as_candidate(written(tmp_path / "smooth.skops", smooth))
    assert isinstance(candidate, SkopsCandidate)
    assert candidate.label == "smooth"
    assert_array_equal(candidate.predict(X, "regression"), smooth.predict(X))


def test_a_classifier_brings_its_classes(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABELS)
    path = written(tmp_path / "model.skops", model)
    candidate = as_candidate(path)
    assert candidate.classes.tolist() == ["low", "mid", "top"]
    assert_array_equal(candidate.predict(X, "classification"), model.predict_proba(X))
    renamed = as_candidate(path, classes=["a", "b", "c"])
    assert renamed.classes.tolist() == ["a", "b", "c"]
    assert from_recipe(renamed.recipe()).classes.tolist() == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match=r"is a classifier, and this is a regression: use"):
        candidate.check_task("regression", "north")
    with pytest.raises(InvalidInputError, match=r"classes= must rename the 3 classes of this Pi"):
        as_candidate(path, classes=["a", "b"])


def test_frames_are_cut_to_the_fitted_columns(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = LinearRegression().fit(frame, Y)
    candidate = as_candidate(written(tmp_path / "line.skops", model))
    wider = frame[["c", "a", "b"]].assign(word="north")
    assert_array_equal(candidate.predict(wider, "regression"), model.predict(frame))


def test_types_that_are_not_trusted_are_listed_with_the_way_out(tmp_path: Path) -> None:
    forest = RandomForestRegressor(5, random_state=0).fit(X, Y)
    path = written(tmp_path / "forest.skops", forest)
    with pytest.raises(
        InvalidInputError,
        match=r"forest\.skops' holds types that skops does not trust: "
        r"\['sklearn\.tree\._tree\.Tree'\]\. If you trust the file, write "
        r"SkopsCandidate\('forest\.skops', trusted=\['sklearn\.tree\._tree\.Tree'\]\)\.",
    ):
        as_candidate(path)
    candidate = SkopsCandidate(path, trusted=TREES)
    assert_array_equal(candidate.predict(X, "regression"), forest.predict(X))
    recipe = candidate.recipe()
    assert recipe is not None
    assert recipe.trusted == TREES
    assert_array_equal(from_recipe(recipe).predict(X, "regression"), forest.predict(X))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_named(share: float, tmp_path: Path) -> None:
    path = written(tmp_path / "cut.skops", LinearRegression().fit(X, Y))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(
        InvalidInputError,
        match=r"Candidate 'north': '.*cut\.skops' is not a skops file, cannot be read here, or was "
        r"cut short \(BadZipFile: .*\): dump the model again\.",
    ):
        LocalMARegressor(candidates={"north": path}, gate="equal").fit(X, Y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"a": 1}, r"holds a dict, which has no predict method: dump the fitted model itself\."),
        (LinearRegression(), r"A candidate must be fitted already, and this LinearRegression is"),
    ],
)
def test_what_is_no_fitted_model_is_refused(model: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=words):
        as_candidate(written(tmp_path / "other.skops", model))


def test_errors_name_the_file(tmp_path: Path) -> None:
    candidate = as_candidate(written(tmp_path / "line.skops", LinearRegression().fit(X, Y)))
    with pytest.raises(
        CandidateError,
        match=r"Candidate 'north' raised ValueError on rows 0 to 79 of 80: .*The model is in "
        r"'.*line\.skops'\.",
    ):
        candidate.predict(X[:, :2], "regression", name="north")


def test_it_is_pickled_with_its_model(tmp_path: Path) -> None:
    path = written(tmp_path / "line.skops", LinearRegression().fit(X, Y))
    candidate = as_candidate(path)
    restored = pickle.loads(pickle.dumps(candidate))
    path.unlink()
    assert_array_equal(restored.predict(X, "regression"), candidate.predict(X, "regression"))


def test_saved_models_come_back_whole(tmp_path: Path) -> None:
    written(tmp_path / "line.skops", LinearRegression().fit(X, Y))
    written(tmp_path / "forest.skops", RandomForestRegressor(5, random_state=0).fit(X, Y))
    files = {
        "line": tmp_path / "line.skops",
        "forest": SkopsCandidate(tmp_path / "forest.skops", trusted=TREES),
    }
    model = LocalMARegressor(candidates=files, gate="global")
    with pytest.warns(TrainedOnSampleWarning, match="80 of these 80 .* 'forest'"):
        model.fit(X, Y)
    model.save(tmp_path / "model.localma")
    with pytest.raises(UntrustedFileError, match=r"'line', 'forest' are made from 'line.skops'"):
        load(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", trust=True)
    assert_array_equal(restored.predict(X), model.predict(X))
    written(tmp_path / "line.skops", LinearRegression().fit(X, -Y))
    with pytest.raises(FileFormatError, match=r"Candidate 'line': .* its sha256 was .* now\."):
        load(tmp_path / "model.localma", trust=True)


def test_a_saved_classifier_comes_back_whole(tmp_path: Path) -> None:
    written(tmp_path / "line.skops", LogisticRegression().fit(X, LABELS))
    written(tmp_path / "forest.skops", RandomForestClassifier(5, random_state=0).fit(X, LABELS))
    files = {
        "line": tmp_path / "line.skops",
        "forest": SkopsCandidate(tmp_path / "forest.skops", trusted=TREES),
    }
    model = LocalMAClassifier(candidates=files, gate="global").fit(X, LABELS)
    model.save(tmp_path / "model.localma")
    restored = load(tmp_path / "model.localma", trust=True)
    assert_array_equal(restored.predict_proba(X), model.predict_proba(X))
