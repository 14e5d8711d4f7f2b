"""The HTTP interface: the protocol, its limits, its metrics and its logs."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from localma import Column, LocalMAClassifier, LocalMARegressor, TableEncoder, as_candidate
from localma.production import Monitor
from localma.serving.app import make_app
from localma.serving.loaded import Loaded
from localma.serving.logs import LOGGER, JsonLines
from localma.serving.metrics import Metrics
from localma.serving.protocol import Tensor, encode_response
from localma.serving.schema import Schema
from localma.serving.service import Service
from localma.serving.watched import Watched
from tests.serving.client import (
    ask,
    column_model,
    rows_document,
    sample,
    saved,
    service_settings,
)

INFER = "/v2/models/rent/infer"
EXPLAIN = "/v2/models/rent/explain"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def columns(folder):
    return saved(column_model(), folder)


def served(model, folder, *, observer=None, quick=False, **changes):
    """An application around a model in memory, whose candidates need no file."""
    settings = service_settings(folder / "rent.localma", **changes)
    loaded = Loaded(model, Schema.of(model), "1", quick)
    return make_app(Service(settings, loaded, Metrics(), observer))


def app_of(pair, **changes):
    settings, loaded = pair
    return make_app(Service(replace(settings, **changes), loaded, Metrics()))


def call(app, method, path, body=b"", headers=None, **more):
    return asyncio.run(ask(app, method, path, body, headers, **more))


def infer(app, X, headers=None, **fields):
    return call(app, "POST", INFER, rows_document(X, **fields), headers)


X, Y = sample()


class TestProtocol:
    @pytest.mark.parametrize(
        "path",
        ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/rent", "/v2/models/rent/ready"],
    )
    def test_paths_of_the_protocol_answer(self, columns, path):
        response = call(app_of(columns), "GET", path)
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"

    def test_the_metadata_names_tensors_and_candidates(self, columns):
        document = call(app_of(columns), "GET", "/v2/models/rent").document
        assert document["inputs"] == [{"name": "X", "datatype": "FP64", "shape": [-1, 3]}]
        assert [port["name"] for port in document["outputs"]] == ["predict", "weights", "support"]
        assert document["parameters"]["candidates"] == ["left", "right"]
        assert document["versions"] == [columns[1].version]

    def test_an_answer_is_that_of_the_model(self, columns):
        model = columns[1].model
        outputs = [{"name": name} for name in ("support", "predict", "weights")]
        response = infer(app_of(columns), X[:5], id="7", outputs=outputs)
        document = response.document
        assert (document["id"], document["model_name"]) == ("7", "rent")
        assert [o["name"] for o in document["outputs"]] == ["support", "predict", "weights"]
        np.testing.assert_allclose(response.output("predict"), model.predict(X[:5]), rtol=1e-12)
        weights = np.reshape(response.output("weights"), (5, 2))
        np.testing.assert_allclose(weights, model.predict_weights(X[:5]), rtol=1e-12)

    def test_the_version_may_be_named(self, columns):
        version = columns[1].version
        path = f"/v2/models/rent/versions/{version}/infer"
        assert call(app_of(columns), "POST", path, rows_document(X[:1])).status == 200
        wrong = call(app_of(columns), "POST", path.replace(version, "old"), rows_document(X[:1]))
        assert (wrong.status, wrong.document["error"][:21]) == (404, "The model has version")

    def test_binary_tensors_go_in_and_come_out(self, columns):
        sent, length = encode_response({}, [(Tensor("X", "FP32", X[:4].astype("f4")), True)])
        header = json.loads(sent[:length])
        header = {
            "inputs": header["outputs"],
            "outputs": [{"name": "predict", "parameters": {"binary_data": True}}],
        }
        text = json.dumps(header).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        response = call(app_of(columns), "POST", INFER, text + sent[length:], headers)
        assert response.headers["content-type"] == "application/octet-stream"
        size = int(response.headers["inference-header-content-length"])
        values = np.frombuffer(response.body[size:])
        expected = columns[1].model.predict(X[:4].astype("f4").astype(float))
        np.testing.assert_allclose(values, expected)

    def test_explanations_have_the_share_of_each_candidate(self, columns):
        response = call(app_of(columns), "POST", EXPLAIN, rows_document(X[:2]))
        first = response.document["explanations"][0]
        total = sum(share["contribution"] for share in first["candidates"])
        assert total == pytest.approx(columns[1].model.predict(X[:1])[0])
        assert first["sentence"]

    @pytest.mark.parametrize("is_quick", [True, False])
    def test_the_thread_of_an_answer_makes_no_difference(self, columns, is_quick):
        settings, loaded = columns
        assert loaded.is_quick
        app = app_of((settings, replace(loaded, is_quick=is_quick)))
        assert infer(app, X[:2]).output("predict") == loaded.model.predict(X[:2]).tolist()

    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b"", 400, "JSON"),
            (rows_document(X[:1, :2]), 400, "must have shape [n, 3]"),
            (rows_document(X[:1]).replace(b'"X"', b'"Z"'), 400, "with 'Z'"),
            (rows_document(np.full((1, 3), np.nan)).replace(b"NaN", b"null"), 400, "NaN"),
            (rows_document(X[:1], outputs=[{"name": "mean"}]), 400, "no output 'mean'"),
            (rows_document(X[:1], parameters={"speed": 3}), 400, "Unknown parameter 'speed'"),
            (rows_document(X[:1], parameters={"deadline": -1}), 400, "deadline must be"),
            (rows_document(X[:1], parameters={"missing": "drop"}), 400, "'drop'"),
            (rows_document(X[:9]), 413, "8 rows; received 9"),
        ],
    )
    def test_a_wrong_request_is_explained(self, columns, body, status, words):
        response = call(app_of(columns, max_rows=8), "POST", INFER, body)
        assert response.status == status
        assert words in response.document["error"]

    def test_other_models_and_methods_are_refused(self, columns):
        app = app_of(columns)
        assert call(app, "GET", "/v2/models/sale").status == 404
        assert call(app, "POST", "/v2/models/sale/infer", rows_document(X[:1])).status == 404
        response = call(app, "GET", INFER)
        assert (response.status, response.headers["allow"]) == (405, "POST")
        assert "/openapi.json lists the paths" in response.document["error"]
        missing = call(app, "GET", "/docs")
        assert missing.status == 404
        assert "/openapi.json lists the paths" in missing.document["error"]

    def test_the_description_lists_every_path(self, columns):
        document = call(app_of(columns), "GET", "/openapi.json").document
        assert {INFER.replace("rent", "{name}"), "/metrics", "/v2"} <= set(document["paths"])
        assert "InferRequest" in document["components"]["schemas"]


@pytest.fixture(scope="module")
def frame():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    n = 200
    return pandas.DataFrame(
        {
            "area": rng.uniform(20, 120, n),
            "rooms": rng.integers(1, 6, n),
            "town": rng.choice(["north", "south"], n),
            "since": pandas.to_datetime("2024-01-01")
            + pandas.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )


@pytest.fixture(scope="module")
def model(frame):
    pool = {
        "area": lambda X: 10 * X["area"].to_numpy(),
        "town": lambda X: 500 + 100 * (X["town"] == "north").to_numpy().astype(float),
    }
    y = np.where(frame["town"] == "north", 10 * frame["area"], 550.0)
    model = LocalMARegressor(pool, gate="local", gate_features=TableEncoder(), random_state=0)
    return model.fit(frame, y)


class TestFrames:
    def document(self, frame, **changes):
        data = {
            "area": ("FP64", frame["area"].tolist()),
            "rooms": ("INT64", frame["rooms"].tolist()),
            "town": ("BYTES", frame["town"].tolist()),
            "since": ("BYTES", [str(moment) for moment in frame["since"]]),
        } | changes
        inputs = [
            {"name": name, "shape": [len(values), 1], "datatype": kind, "data": values}
            for name, (kind, values) in data.items()
        ]
        return json.dumps({"inputs": inputs}).encode()

    def test_each_column_is_a_tensor(self, model, frame, folder):
        app = served(model, folder)
        inputs = call(app, "GET", "/v2/models/rent").document["inputs"]
        kinds = {port["name"]: (port["datatype"], port["shape"]) for port in inputs}
        assert kinds == {
            "area": ("FP64", [-1]),
            "rooms": ("INT64", [-1]),
            "town": ("BYTES", [-1]),
            "since": ("BYTES", [-1]),
        }
        response = call(app, "POST", INFER, self.document(frame[:5]))
        np.testing.assert_allclose(response.output("predict"), model.predict(frame[:5]))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"since": ("BYTES", ["soon"])}, "holds dates"),
            ({"town": ("FP64", [1.0])}, "is BYTES; received FP64"),
            ({"area": ("BYTES", ["1"])}, "is FP64; received BYTES"),
            ({"area": ("FP64", [1.0, 2.0])}, "same number of rows"),
            ({"year": ("INT64", [1])}, "with 'year', which it does not know"),
        ],
    )
    def test_a_wrong_column_is_named(self, model, frame, folder, changes, words):
        response = call(served(model, folder), "POST", INFER, self.document(frame[:1], **changes))
        assert response.status == 400
        assert words in response.document["error"]

    def test_classes_are_labels_with_probabilities(self, frame, folder):
        y = frame["town"].to_numpy().astype(str)
        pool = {
            name: as_candidate(partial(_constant, values), classes=["north", "south"])
            for name, values in {"a": [0.9, 0.1], "b": [0.2, 0.8]}.items()
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LocalMAClassifier(pool, gate="equal").fit(frame[["area", "rooms"]], y)
        app = served(model, folder)
        assert call(app, "GET", "/v2/models/rent").document["parameters"]["classes"] == [
            "north",
            "south",
        ]
        body = json.dumps(
            {
                "inputs": [
                    {"name": "area", "shape": [1], "datatype": "FP64", "data": [30]},
                    {"name": "rooms", "shape": [1], "datatype": "INT64", "data": [2]},
                ]
            }
        ).encode()
        response = call(app, "POST", INFER, body)
        assert response.output("predict") == ["north"]
        assert response.output("probabilities") == pytest.approx([0.55, 0.45])


def _constant(probabilities, X):
    return np.tile(probabilities, (len(X), 1))


def failing_model(**options):
    """Candidates in memory: one can be made to fail or to wait."""
    pool = {"left": lambda X: X[:, 1], "right": lambda X: X[:, 2]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LocalMARegressor(pool, gate="equal", **options).fit(X, Y)


def wait(seconds, column, X):
    time.sleep(seconds)
    return X[:, column]


class TestCandidates:
    def test_a_failure_is_an_error_by_default(self, folder):
        model = failing_model()
        model.pool_.candidates[0].function = _raises
        response = infer(served(model, folder), X[:1])
        assert response.status == 503
        assert "'left'" in response.document["error"]
        assert response.headers["retry-after"] == "1"

    def test_a_request_may_ask_for_an_answer_without_it(self, folder):
        model = failing_model()
        model.pool_.candidates[0].function = _raises
        response = infer(served(model, folder), X[:1], parameters={"missing": "renormalize"})
        assert response.output("predict") == [X[0, 2]]
        assert response.document["parameters"] == {"failures": "left: error"}

    @pytest.mark.parametrize("limit", [{"deadline": 0.1}, {"timeout": 100_000}])
    def test_a_deadline_of_the_request_holds(self, folder, limit):
        model = failing_model(missing="renormalize")
        model.pool_.candidates[0].function = partial(wait, 2.0, 1)
        began = time.monotonic()
        response = infer(served(model, folder), X[:1], parameters=limit)
        assert time.monotonic() - began < 1.0
        assert response.document["parameters"] == {"failures": "left: late"}

    def test_the_limit_of_the_service_holds_without_one(self, folder):
        model = failing_model()
        model.pool_.candidates[0].function = partial(wait, 2.0, 1)
        began = time.monotonic()
        response = infer(served(model, folder, timeout=0.2), X[:1])
        assert time.monotonic() - began < 1.5
        assert response.status == 503

    def test_a_budget_of_the_request_holds(self, folder):
        outputs = [{"name": "weights"}]
        response = infer(
            served(failing_model(), folder), X[:1], parameters={"budget": 1}, outputs=outputs
        )
        assert sorted(response.output("weights")) == [0.0, 1.0]

    def test_a_breaker_opens_and_is_counted(self, folder):
        model = failing_model(missing="renormalize")
        model.pool_.candidates[0].function = _raises
        app = served(model, folder)
        for _ in range(6):
            infer(app, X[:1])
        assert metric(app, 'breaker_state{candidate="left"}') == 2.0
        assert metric(app, 'candidate_failed_rows_total{candidate="left",reason="error"}') == 5.0
        assert (
            metric(app, 'candidate_failed_rows_total{candidate="left",reason="not called"}') == 1.0
        )


def _raises(X):
    raise ConnectionError("no route")


def metric(app, name):
    text = call(app, "GET", "/metrics").body.decode()
    line = next(line for line in text.splitlines() if line.startswith(f"localma_{name} "))
    return float(line.split()[-1])


class Seen:
    """An observer that keeps what it sees, and fails on demand."""

    def __init__(self):
        self.rows, self.fails = 0, False

    def observe(self, X, answer):
        if self.fails:
            raise ValueError("a bug of a monitor")
        self.rows += len(answer.weights)

    def gauges(self):
        return {"rows": self.rows}

    def close(self):
        raise OSError("the disk is full")


class TestMetrics:
    def test_rows_weights_support_and_requests_are_counted(self, columns):
        app = app_of(columns)
        infer(app, X[:3])
        infer(app, X[3:4])
        infer(app, X[:1, :2])
        weights = columns[1].model.predict_weights(X[:4])
        assert metric(app, "rows_total") == 4.0
        assert metric(app, 'weight_total{candidate="left"}') == pytest.approx(weights[:, 0].sum())
        assert metric(app, "support_total") == pytest.approx(4.0)
        assert metric(app, 'requests_total{endpoint="infer",status="200"}') == 2.0
        assert metric(app, 'requests_total{endpoint="infer",status="400"}') == 1.0
        assert metric(app, 'candidate_seconds_count{candidate="left"}') == 2.0

    def test_an_observer_sees_every_answer_and_publishes_its_state(self, folder):
        seen = Seen()
        app = served(failing_model(), folder, observer=seen)
        infer(app, X[:3])
        assert metric(app, 'monitor{name="rows"}') == 3.0
        seen.fails = True
        assert infer(app, X[:1]).status == 200

    def test_threads_of_a_monitor_lose_no_row(self, columns, tmp_path):
        _, loaded = columns
        watched = Watched(loaded, tmp_path / "states")
        watched.close()
        assert not watched.file.exists()  # nothing was observed
        answers = [loaded.model.answer(X[i : i + 2]) for i in range(0, 40, 2)]
        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(lambda i: watched.observe(X[2 * i : 2 * i + 2], answers[i]), range(20))
            )
        assert watched.gauges()["rows"] == 40
        watched.close()
        report = Monitor.load(watched.file, loaded.model).report()
        assert report.rows == 40
        assert report.evidence == pytest.approx(watched.gauges()["evidence"])


@pytest.fixture
def log():
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(JsonLines().format(record))

    handler = Keep()
    LOGGER.addHandler(handler)
    before = LOGGER.level
    LOGGER.setLevel(logging.INFO)
    yield lines
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(before)


class TestLogs:
    def test_a_request_is_one_line_with_its_id(self, columns, log):
        response = infer(app_of(columns), X[:2], {"X-Request-ID": "abc-1"})
        assert response.headers["x-request-id"] == "abc-1"
        line = json.loads(log[-1])
        assert (line["request_id"], line["status"], line["rows"]) == ("abc-1", 200, 2)
        assert (line["endpoint"], line["level"]) == ("infer", "info")

    def test_an_id_that_could_forge_a_line_is_replaced(self, columns):
        for wrong in ('a","level":"x', "a" * 65, "a b"):
            response = infer(app_of(columns), X[:1], {"X-Request-ID": wrong})
            assert len(response.headers["x-request-id"]) == 32

    def test_neither_inputs_nor_credentials_are_logged(self, columns, log, monkeypatch):
        monkeypatch.setenv("LOCALMA_TOKEN", "hidden-token")
        app = app_of(columns)
        headers = {"Authorization": "Bearer hidden-token"}
        secret = np.full((1, 3), 0.123456789)
        assert infer(app, secret, headers).status == 200
        assert infer(app, secret, headers, parameters={"speed": 1}).status == 400
        assert infer(app, secret, {"Authorization": "Bearer wrong-token"}).status == 401
        assert len(log) == 3
        assert not [line for line in log if "0.1234" in line or "-token" in line]

    def test_an_unexpected_error_is_not_shown_to_the_client(self, folder, log):
        model = failing_model()
        app = served(model, folder)
        model.gate_.predict_weights = None  # a bug
        response = infer(app, X[:1])
        assert response.status == 500
        assert "NoneType" not in response.document["error"]
        assert json.loads(log[-1])["error_type"] == "TypeError"


class TestLimits:
    def test_a_body_that_is_too_large_is_refused_early(self, columns):
        app = app_of(columns, max_body=100)
        assert infer(app, X[:9]).status == 413
        declared = call(app, "POST", INFER, b"{}", {"Content-Length": "1000"}, chunks=[3600.0])
        assert declared.status == 413
        assert call(app, "POST", INFER, chunks=[b"x" * 60, b"x" * 60, 3600.0]).status == 413

    def test_a_body_that_does_not_come_is_given_up(self, columns):
        assert (
            call(app_of(columns, timeout=0.1), "POST", INFER, chunks=[b"{", 3600.0]).status == 408
        )

    def test_a_compressed_body_is_refused(self, columns):
        assert infer(app_of(columns), X[:1], {"Content-Encoding": "gzip"}).status == 415

    def test_more_requests_than_may_wait_get_429(self, folder):
        model = failing_model()
        gate = threading.Event()

        def held(column, X):
            gate.wait(5.0)
            return X[:, column]

        model.pool_.candidates[0].function = partial(held, 1)
        app = served(model, folder, concurrency=1, queue=1)

        async def three():
            tasks = [
                asyncio.create_task(ask(app, "POST", INFER, rows_document(X[:1]))) for _ in range(3)
            ]
            await asyncio.sleep(0.8)
            refused = [task.result().status for task in tasks if task.done()]
            alive = await ask(app, "GET", "/v2/health/live")
            gate.set()
            return refused, alive.status, [(await task).status for task in tasks]

        refused, alive, statuses = asyncio.run(three())
        assert (refused, alive) == ([429], 200)
        assert sorted(statuses) == [200, 200, 429]

    def test_a_request_that_waits_too_long_gets_503(self, folder):
        model = failing_model()
        model.pool_.candidates[0].function = partial(wait, 0.4, 1)
        app = served(model, folder, concurrency=1, queue=5, timeout=0.25)

        async def two():
            return await asyncio.gather(
                *(ask(app, "POST", INFER, rows_document(X[:1])) for _ in range(2))
            )

        assert [response.status for response in asyncio.run(two())] == [503, 503]

    @pytest.mark.parametrize(
        ("header", "status"),
        [
            ("Bearer open sesame", 200),
            ("bearer open sesame", 401),
            ("Bearer open", 401),
            ("", 401),
        ],
    )
    def test_a_token_is_needed_if_one_is_set(self, columns, monkeypatch, header, status):
        monkeypatch.setenv("LOCALMA_TOKEN", "open sesame")
        app = app_of(columns)
        assert infer(app, X[:1], {"Authorization": header}).status == status
        assert call(app, "GET", "/metrics", headers={"Authorization": header}).status == status
        assert call(app, "GET", "/v2/health/ready").status == 200

    def test_many_requests_at_once_get_the_answers_of_one(self, folder):
        model = failing_model()
        app = served(model, folder, concurrency=4, queue=100)

        async def all_rows():
            return await asyncio.gather(
                *(ask(app, "POST", INFER, rows_document(X[k : k + 1])) for k in range(60))
            )

        answers = [r.output("predict")[0] for r in asyncio.run(all_rows())]
        assert answers == model.predict(X[:60]).tolist()


def test_answers_that_turn_slow_leave_the_event_loop(folder):
    """A model that was quick at its probe must not hold up checks of health for long."""
    threads = []

    def remembering(X):
        threads.append(threading.current_thread())
        time.sleep(seconds)
        return X[:, 0]

    seconds = 0.0
    model = LocalMARegressor({"f": remembering}, gate="equal").fit(X, X[:, 2])
    app, here = served(model, folder, quick=True), threading.current_thread()
    seconds = 0.11
    threads.clear()
    assert [infer(app, X[:1]).status for _ in range(5)] == [200] * 5
    assert [thread is here for thread in threads] == [True, True, True, False, False]


def test_columns_are_quick_and_functions_are_not(columns):
    assert columns[1].is_quick
    assert isinstance(columns[1].model.pool_.candidates[0], Column)
