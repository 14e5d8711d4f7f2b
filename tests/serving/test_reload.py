"""The file of a served model changes: the new model answers only if it works."""

from __future__ import annotations

import json
import logging
import os
import shutil

import numpy as np
import pytest

from localma import Column, LocalMARegressor
from localma.errors import FileFormatError, InvalidInputError
from localma.serving.loaded import Watch, load_and_probe, options_of
from localma.serving.logs import LOGGER, JsonLines
from localma.serving.protocol import RequestError
from tests.serving.client import column_model, sample, saved, service_settings

pytestmark = pytest.mark.filterwarnings("ignore::localma.errors.LocalMAWarning")


@pytest.fixture
def log():
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(json.loads(JsonLines().format(record)))

    handler, before = Keep(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield lines
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(before)


class Kept:
    """What a watch reports."""

    def __init__(self, settings, loaded):
        self.now, self.refusals = loaded, 0
        self.watch = Watch(settings, loaded, self.replace, self.refuse)

    def replace(self, loaded):
        self.now = loaded

    def refuse(self):
        self.refusals += 1


def test_a_new_file_is_loaded_once(tmp_path, log):
    settings, first = saved(column_model(), tmp_path)
    kept = Kept(settings, first)
    kept.watch.look()
    assert kept.now is first
    X, y = sample()
    LocalMARegressor({"mean": Column(0)}, gate="equal").fit(X, y).save(settings.path)
    kept.watch.look()
    assert kept.now.version != first.version
    assert kept.now.model.candidate_names_ == ("mean",)
    assert log[-1]["event"] == "reloaded"
    second = kept.now
    kept.watch.look()
    assert kept.now is second


@pytest.mark.parametrize("content", [b"", b"not a model", "cut"])
def test_a_broken_file_leaves_the_old_model(tmp_path, log, content):
    settings, first = saved(column_model(), tmp_path)
    kept = Kept(settings, first)
    whole = settings.path.read_bytes()
    settings.path.write_bytes(whole[:-20] if content == "cut" else content)
    kept.watch.look()
    assert (kept.now, kept.refusals) == (first, 1)
    assert log[-1]["event"] == "reload refused"
    assert "localma" in log[-1]["reason"]
    kept.watch.look()
    assert kept.refusals == 1
    settings.path.write_bytes(whole)
    kept.watch.look()
    assert kept.now.version == first.version
    assert kept.now is not first


def test_a_file_that_is_gone_leaves_the_old_model(tmp_path):
    settings, first = saved(column_model(), tmp_path)
    kept = Kept(settings, first)
    os.remove(settings.path)
    kept.watch.look()
    assert (kept.now, kept.refusals) == (first, 0)


def test_a_model_that_cannot_answer_is_refused(tmp_path, monkeypatch):
    """Its file is whole, but the column of a candidate is empty for every row."""
    model = column_model()
    model.save(tmp_path / "rent.localma")
    monkeypatch.setattr(Column, "_answer", lambda self, X, task: np.full(len(X), np.nan))
    monkeypatch.setattr("localma.model_file.check_candidates", lambda *arguments: None)
    with pytest.raises(InvalidInputError, match="no prediction for its made-up inputs"):
        load_and_probe(service_settings(tmp_path / "rent.localma"))


def test_code_needs_trust(tmp_path):
    X, y = sample()
    pool = {"left": row_sums, "right": Column(2)}
    LocalMARegressor(pool, gate="equal").fit(X, y).save(tmp_path / "rent.localma")
    with pytest.raises(InvalidInputError, match="Add --trust"):
        load_and_probe(service_settings(tmp_path / "rent.localma"))


def row_sums(X):
    return np.asarray(X).sum(axis=1)


def test_models_without_candidates_cannot_be_served(tmp_path):
    X, y = sample()
    model = LocalMARegressor(gate="equal").fit(X, y, predictions=X[:, 1:])
    model.save(tmp_path / "rent.localma")
    with pytest.raises(InvalidInputError, match="no candidates"):
        load_and_probe(service_settings(tmp_path / "rent.localma"))


def test_files_of_candidates_may_be_beside_another_folder(tmp_path):
    """A process that falls back to a copy finds the files beside the original."""
    skops = pytest.importorskip("skops.io")
    from sklearn.linear_model import LinearRegression

    from localma.candidates import SkopsCandidate

    X, y = sample()
    here, copy = tmp_path / "here", tmp_path / "copy"
    here.mkdir()
    copy.mkdir()
    for name, rows in {"low": X[:, 0] < 0, "high": X[:, 0] > 0}.items():
        skops.dump(LinearRegression().fit(X[rows], y[rows]), here / f"{name}.skops")
    pool = {name: SkopsCandidate(here / f"{name}.skops") for name in ("low", "high")}
    LocalMARegressor(pool, gate="equal").fit(X, y).save(here / "rent.localma")
    shutil.copy(here / "rent.localma", copy / "good.localma")
    settings = service_settings(copy / "good.localma", trust=True)
    assert load_and_probe(settings, folder=here).model.predict(X[:2]).shape == (2,)
    with pytest.raises((InvalidInputError, FileFormatError, OSError)):
        load_and_probe(settings)


class TestOptions:
    def test_the_smallest_limit_counts(self):
        assert options_of({}, None).deadline is None
        assert options_of({"deadline": 5.0}, 2.0).deadline == 2.0
        assert options_of({"deadline": 5.0, "timeout": 1_000_000}, 9.0).deadline == 1.0

    def test_other_parameters_are_options(self):
        options = options_of({"candidate_timeout": 0.5, "retries": 2, "min_weight": 0.1}, None)
        assert (options.timeout, options.retries, options.min_weight) == (0.5, 2, 0.1)

    @pytest.mark.parametrize(
        "parameters", [{"timeout": -1}, {"timeout": 0.5}, {"trust": True}, {"costs": 3}]
    )
    def test_wrong_parameters_are_refused(self, parameters):
        with pytest.raises(RequestError):
            options_of(parameters, None)


@pytest.mark.parametrize(
    "changes",
    [{"name": "a/b"}, {"workers": 0}, {"max_rows": 0}, {"timeout": 0}, {"queue": -1}],
)
def test_wrong_settings_are_refused(tmp_path, changes):
    with pytest.raises(InvalidInputError, match="received"):
        service_settings(tmp_path / "rent.localma", **changes)
