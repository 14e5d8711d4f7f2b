"""Real clients of other projects against a real service: tritonclient, curl, schemathesis."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.serving.client import column_model, rows_document, sample
from tests.serving.server import running

X, Y = sample()


@pytest.fixture(scope="module")
def model():
    return column_model()


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "rent.localma"
    model.save(path)
    with running(path, "--reload", 0) as server:
        yield server


class TestTriton:
    @pytest.fixture(scope="class")
    @classmethod
    def client(cls, server):
        triton = pytest.importorskip("tritonclient.http")
        client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
        yield client
        client.close()

    def test_health_and_metadata(self, client):
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("rent")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        assert client.get_model_metadata("rent")["inputs"][0]["shape"] == [-1, 3]

    @pytest.mark.parametrize("sent_binary", [True, False])
    @pytest.mark.parametrize("wanted_binary", [True, False, None])
    @pytest.mark.parametrize("datatype", ["FP64", "FP32"])
    def test_answers_are_those_of_the_model(
        self, client, model, sent_binary, wanted_binary, datatype
    ):
        import tritonclient.http as triton

        rows = X[:7].astype({"FP64": "f8", "FP32": "f4"}[datatype])
        entry = triton.InferInput("X", list(rows.shape), datatype)
        entry.set_data_from_numpy(rows, binary_data=sent_binary)
        outputs = None
        if wanted_binary is not None:
            outputs = [
                triton.InferRequestedOutput(name, binary_data=wanted_binary)
                for name in ("predict", "weights")
            ]
        result = client.infer("rent", [entry], outputs=outputs, request_id="7")
        assert result.get_response()["id"] == "7"
        assert_allclose(result.as_numpy("predict"), model.predict(rows.astype(float)), rtol=1e-12)
        if outputs is not None:
            expected = model.predict_weights(rows.astype(float))
            assert_allclose(result.as_numpy("weights"), expected, rtol=1e-12)

    def test_its_timeout_and_version(self, client, server):
        import tritonclient.http as triton

        entry = triton.InferInput("X", [1, 3], "FP64")
        entry.set_data_from_numpy(X[:1])
        version = client.get_model_metadata("rent")["versions"][0]
        assert client.infer("rent", [entry], timeout=5_000_000, model_version=version)
        with pytest.raises(triton.InferenceServerException, match="has version"):
            client.infer("rent", [entry], model_version="old")

    def test_its_errors_have_our_words(self, client):
        import tritonclient.http as triton

        entry = triton.InferInput("X", [1, 2], "FP64")
        entry.set_data_from_numpy(X[:1, :2])
        with pytest.raises(triton.InferenceServerException, match="must have shape"):
            client.infer("rent", [entry])


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
class TestCurl:
    def curl(self, server, path, *options):
        address = f"http://127.0.0.1:{server.port}{path}"
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--fail-with-body", *options, address],
            capture_output=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    def test_json(self, server, model):
        body = rows_document(X[:2]).decode()
        answer = json.loads(self.curl(server, "/v2/models/rent/infer", "--data", body))
        assert_allclose(answer["outputs"][0]["data"], model.predict(X[:2]))

    def test_binary(self, server, model, tmp_path):
        raw = X[:3].tobytes()
        header = {
            "inputs": [
                {
                    "name": "X",
                    "shape": [3, 3],
                    "datatype": "FP64",
                    "parameters": {"binary_data_size": len(raw)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
        text = json.dumps(header).encode()
        (tmp_path / "body").write_bytes(text + raw)
        answer = self.curl(
            server,
            "/v2/models/rent/infer",
            *("--data-binary", f"@{tmp_path / 'body'}"),
            *("--header", f"Inference-Header-Content-Length: {len(text)}"),
        )
        assert_allclose(np.frombuffer(answer[-24:]), model.predict(X[:3]))

    def test_a_chunked_body(self, server, model):
        body = rows_document(X[:2]).decode()
        options = ("--header", "Transfer-Encoding: chunked", "--data", body)
        answer = json.loads(self.curl(server, "/v2/models/rent/infer", *options))
        assert_allclose(answer["outputs"][0]["data"], model.predict(X[:2]))


def test_the_description_is_true(server, tmp_path):
    """Schemathesis sends what the description allows, and what it forbids.

    A description cannot say that a shape must fit the data and the model, so an answer of 400 to a
    document of the right form is no fault. All other checks must pass.
    """
    pytest.importorskip("schemathesis")
    done = subprocess.run(
        [
            *(
                Path(sys.executable).parent / "schemathesis",
                "run",
                f"http://127.0.0.1:{server.port}/openapi.json",
            ),
            *("--exclude-checks", "positive_data_acceptance"),
            *("--max-examples", "20", "--seed", "0", "--no-color"),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=tmp_path,  # it writes a cache
    )
    assert done.returncode == 0, done.stdout[-4000:]
