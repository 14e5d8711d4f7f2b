"""A real MLflow with a local file store, and its real scoring server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path

import numpy as np
import pytest

from localma import Column, LocalMARegressor
from localma.candidates import SkopsCandidate
from localma.errors import InvalidInputError
from localma.serving import mlflow as flavour

pandas = pytest.importorskip("pandas")
mlflow = pytest.importorskip("mlflow")

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.uniform(-2, 2, size=(300, 2)), columns=["a", "b"])
    X["guess"] = X["a"] ** 2 + 0.1 * rng.standard_normal(300)
    return X


@pytest.fixture(scope="module")
def model(frame, tmp_path_factory):
    """A column and a model in a skops file."""
    skops = pytest.importorskip("skops.io")
    from sklearn.linear_model import LinearRegression

    y = np.where(frame["a"] < 0, -frame["a"], frame["guess"])
    file = tmp_path_factory.mktemp("candidates") / "line.skops"
    skops.dump(LinearRegression().fit(frame[["a", "b"]][:100], y[:100]), file)
    pool = {"line": SkopsCandidate(file, inputs=["a", "b"]), "guess": Column("guess")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LocalMARegressor(pool, random_state=0).fit(frame, y)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"file://{tmp_path / 'runs'}")
    mlflow.set_experiment("rents")
    return tmp_path


def test_a_saved_model_holds_no_pickle_and_its_own_files(model, frame, tmp_path, monkeypatch):
    flavour.save_model(model, tmp_path / "rent", input_example=frame[:3])
    names = {path.name for path in (tmp_path / "rent").rglob("*")}
    assert {"MLmodel", "model.localma", "line.skops"} <= names
    assert not [name for name in names if name.endswith((".pkl", ".joblib", ".pickle"))]
    with pytest.raises(InvalidInputError, match="LOCALMA_TRUST"):
        mlflow.pyfunc.load_model(str(tmp_path / "rent"))
    monkeypatch.setenv("LOCALMA_TRUST", "1")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "rent"))
    np.testing.assert_allclose(loaded.predict(frame), model.predict(frame))
    weights = loaded.predict(frame, params={"output": "weights"})
    np.testing.assert_allclose(weights, model.predict_weights(frame))
    again = flavour.load_model(str(tmp_path / "rent"), trust=True)
    np.testing.assert_allclose(again.predict(frame), model.predict(frame))


def test_a_run_has_the_model_and_its_evidence(model, frame, store):
    from localma.inspection import summarize

    pytest.importorskip("jinja2")
    summary = summarize(model, frame[:100], control=False)
    with mlflow.start_run() as run:
        info = flavour.log_model(model, "rent", input_example=frame[:3], summary=summary)
    data = mlflow.get_run(run.info.run_id).data
    assert data.tags["localma.verdict"] == model.verdict_
    assert data.metrics["locality_gain"] == pytest.approx(model.locality_gain_.value)
    artifacts = [entry.path for entry in mlflow.MlflowClient().list_artifacts(run.info.run_id)]
    assert "report.html" in artifacts
    assert [column.name for column in info.signature.inputs] == ["a", "b", "guess"]
    again = flavour.load_model(info.model_uri, trust=True)
    np.testing.assert_allclose(again.predict(frame), model.predict(frame))


def test_a_model_in_memory_is_refused(frame, tmp_path):
    pool = {"a": lambda X: X["a"].to_numpy(), "b": lambda X: X["b"].to_numpy()}
    memory = LocalMARegressor(pool, gate="equal").fit(frame, frame["a"] + np.sin(9 * frame["b"]))
    with pytest.raises(InvalidInputError, match="'a' is in memory"):
        flavour.save_model(memory, tmp_path / "rent")


def test_its_scoring_server_answers(model, frame, tmp_path):
    flavour.save_model(model, tmp_path / "rent", input_example=frame[:3])
    port = "18765"
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local"]
    options = ["--model-uri", str(tmp_path / "rent"), "--host", "127.0.0.1", "--port", port]
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "LOCALMA_TRUST": "1"}
    environment["PATH"] = os.pathsep.join([bin_folder, os.environ["PATH"]])
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *options],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=tmp_path,
        )
        try:
            rows = frame[:5]
            body = {"dataframe_split": {"columns": [*rows], "data": rows.to_numpy().tolist()}}
            answer = _post(f"http://127.0.0.1:{port}/invocations", body, server)
        finally:
            os.killpg(server.pid, 15)
            server.wait(30)
    np.testing.assert_allclose(answer["predictions"], model.predict(rows))


def _post(address, body, server, seconds=120):
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert time.monotonic() < end
            assert server.poll() is None
            time.sleep(0.3)
