"""A model behind a web address, asked over real sockets on loopback."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import ssl
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from localma import LocalMARegressor, as_candidate, load
from localma.candidates import Cached, Pool, Recipe, from_recipe
from localma.candidates import http as http_module
from localma.candidates import http_post as http_post_module
from localma.candidates.http import HttpCandidate
from localma.candidates.http_post import (
    Failure,
    Patience,
    _retry_after,
    as_rows,
    read_predictions,
)
from localma.errors import CandidateError, InvalidInputError, UntrustedFileError
from localma.formatting import printable
from tests.loopback import Handler, Service, running

X = np.arange(20.0).reshape(10, 2)
SUMS = X.sum(axis=1)
SECRET = "Bearer s3cret-t0ken"


@pytest.fixture
def service() -> Iterator[Service]:
    with running(Service()) as started:
        yield started


def quick(url: str, **options: Any) -> HttpCandidate:
    return HttpCandidate(url, **({"timeout": 5.0, "retries": 2, "backoff": 0.001} | options))


def failure(candidate: HttpCandidate, inputs: Any = X, task: Any = "regression") -> str:
    with pytest.raises(CandidateError) as caught:
        candidate.predict(inputs, task, name="vendor")
    assert caught.value.candidate == "vendor"
    return str(caught.value)


def once(first: Callable[[Handler], bool]) -> Callable[[Handler, int], bool]:
    """Misbehave on the first request only."""
    return lambda handler, turn: first(handler) if turn == 0 else False


# --- what is sent ------------------------------------------------------------------------------


def test_rows_go_and_predictions_come_back(service: Service) -> None:
    assert_array_equal(quick(service.url).predict(X, "regression"), SUMS)
    assert service.documents == [{"columns": None, "rows": X.tolist()}]
    assert service.headers[0]["Content-Type"] == "application/json"
    assert "Authorization" not in service.headers[0]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    ("format", "document"),
    [
        ("columns", {"columns": ["b", "a"], "rows": [[1.0, 0.0], [3.0, 2.0]]}),
        ("instances", {"instances": [{"b": 1.0, "a": 0.0}, {"b": 3.0, "a": 2.0}]}),
        ("mlflow", {"dataframe_split": {"columns": ["b", "a"], "data": [[1.0, 0.0], [3.0, 2.0]]}}),
    ],
)
def test_documents_of_frames(service: Service, library: str, format: str, document: Any) -> None:
    frame = pytest.importorskip(library).DataFrame({"a": X[:2, 0], "b": X[:2, 1], "c": ["x", "y"]})
    service.behave = lambda handler, turn: handler.answer({"predictions": [5, 6]})
    candidate = quick(service.url, format=format, inputs=["b", "a"])
    assert candidate.predict(frame, "regression").tolist() == [5.0, 6.0]
    assert service.documents == [document]


@pytest.mark.parametrize(
    ("format", "document"),
    [
        ("columns", {"columns": None, "rows": ["a text"]}),
        ("instances", {"instances": ["a text"]}),
        ("mlflow", {"inputs": ["a text"]}),
    ],
)
def test_documents_of_texts(service: Service, format: str, document: Any) -> None:
    service.behave = lambda handler, turn: handler.answer({"predictions": [5]})
    assert quick(service.url, format=format).predict(["a text"], "regression").tolist() == [5.0]
    assert service.documents == [document]


def sent_as_triples(columns: Any, rows: Any) -> Any:
    return [[1, *row] for row in rows]


def read_from_scores(answer: Any) -> Any:
    return [score["value"] for score in answer["scores"]]


def test_converters_of_ones_own(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer({"scores": [{"value": 3}, {"value": 4}]})
    candidate = quick(service.url, request=sent_as_triples, response=read_from_scores)
    assert candidate.predict(X[:2], "regression").tolist() == [3.0, 4.0]
    assert service.documents == [[[1, 0.0, 1.0], [1, 2.0, 3.0]]]


def test_a_converter_that_fails_is_reported(service: Service) -> None:
    words = failure(quick(service.url, response=read_from_scores))
    assert words.startswith("Candidate 'vendor' raised KeyError on rows 0 to 9 of 10: 'scores'.")
    words = failure(quick(service.url, request=lambda columns, rows: {1, 2}))
    assert (
        "request= must return a document that can be written as JSON; it returned a set (" in words
    )


def test_values_in_the_types_of_json() -> None:
    row = [np.float32(0.5), np.nan, None, True, np.int64(3), Decimal("1.5"), date(2024, 2, 1)]
    row += [np.datetime64("2024-02-01"), np.datetime64("NaT"), {"k": np.arange(2)}, ("a", 1)]
    plain = [0.5, None, None, True, 3, 1.5, "2024-02-01", "2024-02-01", None, {"k": [0, 1]}]
    assert as_rows([row]) == (None, [[*plain, ["a", 1]]])


def test_missing_values_of_pandas_are_null() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "n": pandas.array([1, None], dtype="Int64"),
            "t": [pandas.Timestamp("2024-02-01"), pandas.NaT],
            "f": [np.nan, 2.5],
        }
    )
    columns, rows = as_rows(frame)
    assert columns == ["n", "t", "f"]
    assert rows == [[1, "2024-02-01T00:00:00", None], [None, None, 2.5]]


def test_sparse_rows_are_sent_dense() -> None:
    from scipy.sparse import csr_array

    assert as_rows(csr_array(np.eye(2))) == (None, [[1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize("value", [np.inf, 1j, b"bytes", object()])
def test_what_json_cannot_carry_is_named_with_its_row(service: Service, value: Any) -> None:
    rows = [[1.0], [2.0], [3.0], [value]]
    words = failure(quick(service.url, batch_size=2), rows)
    what = "infinity" if value is np.inf else f"a value of type {type(value).__name__}"
    assert (
        f"Candidate 'vendor', row 3: it holds {what}, which cannot be written as JSON. Select"
        in words
    )


# --- batches and threads -----------------------------------------------------------------------


def test_batches_run_at_once_and_keep_the_order_of_rows(service: Service) -> None:
    rows = np.arange(80.0).reshape(40, 2)

    def later_rows_first(handler: Handler, turn: int) -> bool:
        time.sleep(0.05 if service.documents[turn]["rows"][0][0] < 40 else 0.001)
        return False

    service.behave = later_rows_first
    candidate = quick(service.url, batch_size=4, max_concurrency=3)
    assert_array_equal(candidate.predict(rows, "regression"), rows.sum(axis=1))
    assert len(service.documents) == 10
    assert 2 <= service.most_under_way <= 3


def test_one_at_a_time(service: Service) -> None:
    service.behave = lambda handler, turn: time.sleep(0.005) is not None
    candidate = quick(service.url, batch_size=2, max_concurrency=1)
    assert_array_equal(candidate.predict(X, "regression"), SUMS)
    assert service.most_under_way == 1
    assert [document["rows"][0][0] for document in service.documents] == [0, 4, 8, 12, 16]


def test_one_bad_batch_stops_the_others_and_is_named(service: Service) -> None:
    """The second request is refused for good; the others wait for seconds before they retry."""
    service.behave = lambda handler, turn: handler.answer(b"", 400 if turn == 1 else 500)
    candidate = quick(service.url, batch_size=2, max_concurrency=2, backoff=20.0, max_wait=30.0)
    began = time.monotonic()
    words = failure(candidate)
    assert time.monotonic() - began < 5.0
    assert re.search(r"rows (0 to 1|2 to 3): the server answered with status (400|500)", words)
    assert len(service.documents) <= 4


def test_the_batches_before_a_failure_are_kept(service: Service) -> None:
    def fails_late(handler: Handler, turn: int) -> bool:
        rows = service.documents[turn]["rows"]
        return rows[0][0] >= 8.0 and handler.answer({"detail": "no"}, status=400)

    service.behave = fails_late
    candidate = quick(service.url, batch_size=2, max_concurrency=2)
    pieces = candidate.in_batches(X, "regression", name="vendor")
    assert np.concatenate([next(pieces), next(pieces)]).tolist() == SUMS[:4].tolist()
    with pytest.raises(CandidateError, match=r"rows 4 to 5: the server answered with status 400"):
        next(pieces)


def test_cached_rows_are_not_asked_for_again(service: Service, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    vendor = Cached(quick(service.url, batch_size=2, max_concurrency=1), tmp_path, key="2024-05")
    service.behave = lambda handler, turn: turn == 3 and handler.answer(b"", 400)
    with pytest.raises(CandidateError, match="rows 6 to 7: the server answered with status 400"):
        vendor.predict(X, "regression")
    assert_array_equal(vendor.predict(X, "regression"), SUMS)
    asked = [row for document in service.documents[4:] for row in document["rows"]]
    assert sorted(asked) == X[6:].tolist()


def test_a_single_row(service: Service) -> None:
    assert quick(service.url).predict(X[:1], "regression").tolist() == [1.0]


# --- trouble that passes -----------------------------------------------------------------------


def drop_at_once(handler: Handler) -> bool:
    handler.close_connection = True
    handler.connection.close()
    return True


def drop_in_the_middle(handler: Handler) -> bool:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"predictions": [1, 2')
    return True


def drop_in_a_chunk(handler: Handler) -> bool:
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'40\r\n{"predictions": [')
    return True


@pytest.mark.parametrize(
    "trouble",
    [
        drop_at_once,
        drop_in_the_middle,
        drop_in_a_chunk,
        lambda handler: handler.answer(b"<html>oops</html>", 500),
        lambda handler: handler.answer(b"", 503),
        lambda handler: handler.answer(b"", 429),
    ],
)
def test_trouble_that_passes_is_tried_again(service: Service, trouble: Any) -> None:
    service.behave = once(trouble)
    assert_array_equal(quick(service.url).predict(X, "regression"), SUMS)
    assert len(service.documents) == 2
    assert service.documents[0] == service.documents[1]


def test_a_server_that_stays_broken_is_given_up(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer({"detail": "no memory"}, 500)
    words = failure(quick(service.url + "?model=private", retries=2))
    assert words == (
        "Candidate 'vendor': rows 0 to 9: the server answered with status 500: "
        f"'{{\"detail\": \"no memory\"}}' (attempt 3). The model is in '{service.url}'."
    )
    assert len(service.documents) == 3


def test_connections_that_break_off_are_reported(service: Service) -> None:
    service.behave = lambda handler, turn: drop_in_the_middle(handler)
    words = failure(quick(service.url, retries=1))
    assert "the server could not be reached, or broke off (IncompleteRead(21 bytes read" in words
    assert "(attempt 2)" in words


def test_nobody_listens() -> None:
    with running(Service()) as gone:
        url = gone.url
    words = failure(quick(url, retries=1))
    assert "could not be reached, or broke off (" in words
    assert url in words


def test_a_host_that_does_not_exist() -> None:
    words = failure(quick("http://no-such-host.invalid/predict", retries=0, timeout=20.0))
    assert "the server could not be reached, or broke off" in words


def test_an_answer_that_takes_too_long(service: Service) -> None:
    service.behave = lambda handler, turn: time.sleep(0.6) is not None
    words = failure(quick(service.url, timeout=0.15, retries=1))
    assert (
        "the server did not answer within 0.15 s: raise timeout=, or send fewer rows at a time "
        "with a smaller batch_size (attempt 2)." in words
    )


@pytest.mark.parametrize("dripped", ["headers", "body"])
def test_an_answer_that_drips_is_cut_off(service: Service, dripped: str) -> None:
    def drip(handler: Handler, turn: int) -> bool:
        head = b"HTTP/1.0 200 OK\r\nContent-Length: 200\r\n\r\n"
        if dripped == "body":
            handler.wfile.write(head)
        for byte in head if dripped == "headers" else b" " * 200:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.2)
        return True

    service.behave = drip
    began = time.monotonic()
    assert "did not answer within 0.3 s" in failure(quick(service.url, timeout=0.3, retries=0))
    assert time.monotonic() - began < 5.0  # the headers alone take 7 seconds


def test_slow_is_not_too_slow(service: Service) -> None:
    service.behave = lambda handler, turn: time.sleep(0.2) is not None
    assert_array_equal(quick(service.url, timeout=5.0).predict(X, "regression"), SUMS)


def test_a_busy_server_says_when(service: Service) -> None:
    service.behave = once(lambda handler: handler.answer(b"", 429, Retry_After="1"))
    assert_array_equal(quick(service.url).predict(X, "regression"), SUMS)
    assert 1.0 <= service.times[1] - service.times[0] < 3.0


def test_a_server_that_asks_for_too_long_a_wait_is_given_up(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer(b"", 503, Retry_After="3600")
    words = failure(quick(service.url, max_wait=10.0))
    assert "the server answered with status 503, asking to wait 3600 s." in words
    assert len(service.documents) == 1


def test_retry_after_is_a_number_or_a_date() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert 25.0 < _retry_after(format_datetime(soon, usegmt=True)) <= 30.0
    assert _retry_after(format_datetime(soon - timedelta(hours=1), usegmt=True)) == 0.0
    assert [_retry_after(v) for v in ("5", "soon", "-3", "")] == [5.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "Mon, 01 Jan 2024 00:00:00 +9999999999",
        "Mon, 99999999999999999999 Jan 2024 00:00:00 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "\x00",
    ],
)
def test_a_date_beyond_all_dates_does_not_end_the_retries(service: Service, date: str) -> None:
    assert _retry_after(date) >= 0.0
    service.behave = once(lambda handler: handler.answer(b"", 503, Retry_After=date))
    assert_array_equal(quick(service.url, max_wait=1e12).predict(X, "regression"), SUMS)
    assert len(service.documents) == 2


def test_waits_double_with_jitter_and_a_seed() -> None:
    patience = Patience(timeout=1.0, retries=9, backoff=1.0, max_wait=5.0)
    busy = Failure("busy", temporary=True)
    waits = [patience.wait(busy, attempt, Random(7)) for attempt in range(4)]
    share = Random(7).uniform(0.5, 1.0)
    assert_allclose(waits, [share, 2 * share, 4 * share, 5 * share])
    assert patience.wait(busy, 9, Random(7)) is None
    assert patience.wait(Failure("no", temporary=False), 0, Random(7)) is None
    assert patience.wait(Failure("busy", temporary=True, wait=4.0), 0, Random(7)) == 4.0


def test_the_seed_sets_the_waits_and_the_rows_tell_them_apart() -> None:
    seeded = HttpCandidate("http://127.0.0.1/", random_state=3)
    draws = [seeded._jitter(body).random() for body in (b"a", b"a", b"b")]
    assert draws[0] == draws[1] != draws[2]
    free = HttpCandidate("http://127.0.0.1/")
    assert free._jitter(b"a").random() != free._jitter(b"a").random()


# --- trouble that stays ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"<html>",
            "text that is not valid JSON (Expecting value: line 1 column 1 (char 0)): '<html>'",
        ),
        (b"", "text that is not valid JSON"),
        (b"[" * 1_100, "text that is not valid JSON"),
        (b"[" * 100_000, "100000 lists and objects for 3 rows"),
        (b'{"predictions": [' + b"[]," * 5_000 + b"[]]}", "5003 lists and objects for 3 rows"),
        (b'{"predictions": [1, 2, 3], "predictions": [4, 5, 6]}', "a name occurs twice"),
        (b'{"predictions": [1, 2, 3], "of": [{"a": 1, "a": 1}]}', "a name occurs twice"),
        (b'{"predictions": [1, true, 3]}', "predictions that are not all numbers"),
        (b'{"predictions": [1.5, 2, false]}', "predictions that are not all numbers"),
        (b'{"predictions": [[1, 2], [3, true], [5, 6]]}', "predictions that are not all numbers"),
        (b'{"predictions": [1, 2, [3]]}', "rows of different lengths as predictions"),
        (b'{"predictions": [1, 2, 1' + b"0" * 400 + b"]}", "predictions that are not all numbers"),
        (b'{"predictions": [1, 2, 1' + b"0" * 5000 + b"]}", "text that is not valid JSON"),
        (b"\xff\xfe\x00", "text that is not valid JSON"),
        (b"[1, 2, 3]", "JSON without {\"predictions\": [...]}: '[1, 2, 3]'"),
        (b'{"error": "no"}', 'JSON without {"predictions": [...]}: \'{"error": "no"}\''),
        (b'{"predictions": [NaN, 1, 2]}', "(NaN is not JSON)"),
        (b'{"predictions": [1, -Infinity, 2]}', "(-Infinity is not JSON)"),
        (b'{"predictions": [1, 2]}', "2 predictions for 3 rows"),
        (b'{"predictions": [[1], [2], [3, 4]]}', "rows of different lengths as predictions"),
        (b'{"predictions": [[[1]], [[2]], [[3]]]}', "predictions of shape (3, 1, 1) for 3 rows"),
        (b'{"predictions": 3}', "predictions of shape () for 3 rows"),
        (b'{"predictions": [1, null, 3]}', "predictions that are not all numbers"),
        (b'{"predictions": ["1", "2", "3"]}', "predictions that are not all numbers"),
        (b'{"predictions": [true, false, true]}', "predictions that are not all numbers"),
    ],
)
def test_answers_without_predictions(service: Service, answer: bytes, words: str) -> None:
    service.behave = lambda handler, turn: handler.answer(answer)
    said = failure(quick(service.url, batch_size=3), X[:3])
    assert said.startswith(
        "Candidate 'vendor': rows 0 to 2: the server must answer with "
        '{"predictions": [...]}, one number or list of numbers per row; it answered with '
    )
    assert words in said
    assert service.url in said
    assert len(service.documents) == 1  # what is wrong for good is not asked for again


def test_a_number_beyond_all_numbers(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer(b'{"predictions": [1, 1e999]}')
    words = failure(quick(service.url, batch_size=2, max_concurrency=1), X[:4])
    assert "Candidate 'vendor' returned infinity in 1 of the 2 rows it was given, first" in words
    assert service.url in words


def test_wrong_number_of_classes(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer({"predictions": [[0.2, 0.3, 0.5]] * 10})
    words = failure(quick(service.url, classes=["no", "yes"]), task="classification")
    assert "Candidate 'vendor' returned shape (10, 3); expected (10, 2), one column" in words
    assert service.url in words


def test_logits_become_probabilities(service: Service) -> None:
    logits = np.log([[0.25, 0.75]] * 10).tolist()
    service.behave = lambda handler, turn: handler.answer({"predictions": logits})
    candidate = quick(service.url, classes=["no", "yes"], activation="softmax")
    assert_allclose(candidate.predict(X, "classification"), [[0.25, 0.75]] * 10)


def test_other_statuses_are_not_tried_again(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer({"detail": "no column 'b'"}, 422)
    words = failure(quick(service.url))
    assert "the server answered with status 422: '{\"detail\": \"no column \\'b\\'\"}'." in words
    assert len(service.documents) == 1


def test_an_answer_is_bounded_by_what_was_asked_for(service: Service) -> None:
    """64 KiB for all, and 4 KiB with 32 bytes per number for each row."""
    service.behave = lambda handler, turn: handler.answer(b" " * 2**20)
    assert "the server answered with more than 424 KiB, much more than" in failure(
        quick(service.url)
    )
    with_classes = quick(service.url, classes=["no", "yes"])
    assert "with more than 104 KiB, much more" in failure(with_classes, task="classification")
    assert len(service.documents) == 2  # not asked for again
    service.behave = lambda handler, turn: handler.answer(
        {"predictions": SUMS.tolist(), "inputs": service.documents[-1], "about": " " * 60_000}
    )
    assert_array_equal(quick(service.url).predict(X, "regression"), SUMS)


def test_many_outputs_are_not_too_many(service: Service) -> None:
    values = np.random.default_rng(0).normal(size=(10, 1000)).tolist()
    service.behave = lambda handler, turn: handler.answer({"predictions": values})
    assert_array_equal(quick(service.url).predict(X, "regression"), values)


HUGE = """
import resource, sys, time
import numpy as np
from localma.candidates.http import HttpCandidate
from localma.errors import CandidateError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.monotonic()
try:
    HttpCandidate(sys.argv[1], timeout=3, retries=0).predict(np.ones((10, 2)), "regression")
except CandidateError as error:
    print(error, file=sys.stderr)
mebibytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
print(mebibytes, time.monotonic() - began)
"""


@pytest.mark.parametrize("announced", ["length", "chunks", "nothing"])
def test_a_huge_answer_costs_little(service: Service, announced: str) -> None:
    """64 MiB of empty lists for ten rows took 2.2 GiB and 46 s."""

    def flood(handler: Handler, turn: int) -> bool:
        piece = b"[]," * (2**20 // 3)
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        if announced == "length":
            handler.send_header("Content-Length", str(64 * 2**20))
        if announced == "chunks":
            handler.send_header("Transfer-Encoding", "chunked")
            piece = b"3\r\n[],\r\n" * (2**20 // 8)
        handler.end_headers()
        for _ in range(64):
            handler.wfile.write(piece)
        return True

    service.behave = flood
    ran = subprocess.run(
        [sys.executable, "-c", HUGE, service.url], capture_output=True, text=True, check=True
    )
    mebibytes, seconds = map(float, ran.stdout.split())
    assert "more than 424 KiB" in ran.stderr or "more bytes than predictions need" in ran.stderr
    assert mebibytes < 64
    assert seconds < 3


def test_the_time_to_parse_counts(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(answer: bytes, n: int) -> Any:
        time.sleep(0.4)
        return json.loads(answer)

    monkeypatch.setattr(http_module, "read_json", slow)
    words = failure(quick(service.url, timeout=0.3, retries=0))
    assert "the server did not answer within 0.3 s" in words


def raw(content: bytes) -> Callable[[Handler, int], bool]:
    """Send bytes that no well-behaved server would."""

    def send(handler: Handler, turn: int) -> bool:
        handler.close_connection = True
        handler.wfile.write(content)
        return True

    return send


PREDICTIONS = json.dumps({"predictions": SUMS.tolist()}).encode()


@pytest.mark.parametrize(
    "length", ["-1", "-500", "+5", "5_0", "0x10", "five", "1.5", "9" * 30, "9" * 5000, "80, 81"]
)
def test_a_wrong_content_length_is_refused(service: Service, length: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()
    service.behave = raw(head + PREDICTIONS)
    words = failure(quick(service.url))
    assert f"the server answered with a wrong Content-Length {length[:200]!r}: it must be" in words
    assert len(service.documents) == 1


def test_two_content_lengths(service: Service) -> None:
    right = f"Content-Length: {len(PREDICTIONS)}\r\n"
    for second, accepted in ((right, True), ("Content-Length: 7\r\n", False)):
        head = f"HTTP/1.1 200 OK\r\n{right}{second}\r\n".encode()
        service.behave = raw(head + PREDICTIONS)
        if accepted:
            assert_array_equal(quick(service.url).predict(X, "regression"), SUMS)
        else:
            assert "a wrong Content-Length" in failure(quick(service.url))


@pytest.mark.parametrize("size", [b"-1", b"-5", b"zz", b"", b"9" * 70_000, b"FFFFFFFFFFFFFFFFFF"])
def test_wrong_sizes_of_chunks(service: Service, size: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    service.behave = raw(head + size + b"\r\n" + PREDICTIONS + b"\r\n0\r\n\r\n")
    words = failure(quick(service.url, retries=0))
    assert "the server could not be reached, or broke off (" in words
    assert len(words) < 1000


HOSTILE_HEADS = [
    b"HTTP/1.1 200 \x1b[2J\x1b[31mred\r\n\r\n",
    b"\x1b]0;title\x07 HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 \x1b[31m OK\r\n\r\n",
    b"HTTP/9.9\x1b[31m 200 OK\r\n\r\n",
    b"HTTP/1.1 307 OK\r\nLocation: http://\x1b[31mred/\r\n\r\n",
    b"HTTP/1.1 307 OK\r\nLocation: http://[\x1b[31m/\r\n\r\n",
    b"HTTP/1.1 307 OK\r\nLocation: /\x1b[31m\x9b\r\n\r\n",
    b"HTTP/1.1 500 OK\r\n\r\n\x1b[31m\xc2\x9b",
    b"HTTP/1.1 200 OK\r\nContent-Length: \x1b[31m\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\x1b[31m\r\n",
    b"A" * 100_000,
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
    b"",
]


@pytest.mark.parametrize("head", HOSTILE_HEADS)
def test_the_words_of_a_server_are_shown_escaped_and_short(service: Service, head: bytes) -> None:
    service.behave = raw(head)
    words = failure(quick(service.url, retries=0))
    assert words.isprintable()
    assert len(words) < 1000


def test_random_bytes_from_a_server(service: Service) -> None:
    """Whatever a server sends is an answer or an error of ours."""
    generator = np.random.default_rng(0)
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PREDICTIONS) + PREDICTIONS
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"%x\r\n" % len(PREDICTIONS) + PREDICTIONS + b"\r\n0\r\n\r\n"
    candidate = quick(service.url, retries=0, timeout=2.0)
    errors = []
    for turn in range(300):
        content = bytearray((whole, chunked, *HOSTILE_HEADS[:10])[turn % 12])
        for _ in range(int(generator.integers(1, 4))):
            place = int(generator.integers(len(content)))
            content[place : place + int(generator.integers(3))] = generator.bytes(2)
        service.behave = raw(bytes(content))
        try:
            candidate.predict(X, "regression", name="vendor")
        except CandidateError as error:
            errors.append(str(error))
    assert len(errors) > 100
    for words in errors:
        assert words == printable(words)
        assert "Candidate 'vendor' raised" not in words


# --- redirects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_on_the_same_server_are_followed(service: Service, status: int) -> None:
    service.behave = once(lambda handler: handler.answer(b"", status, Location="/predict/"))
    assert_array_equal(quick(service.url).predict(X, "regression"), SUMS)
    assert service.paths == ["/predict", "/predict/"]


def test_redirects_elsewhere_are_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RENT_API_KEY", SECRET)
    with running(Service()) as other:
        for target in (other.url, other.url.replace("127.0.0.1", "localhost")):
            service.behave = lambda handler, turn, to=target: handler.answer(b"", 307, Location=to)
            words = failure(quick(service.url, headers_from_env={"Authorization": "RENT_API_KEY"}))
            host = target.split("/")[2]
            assert f"the server redirects to http://{host}, and a redirect to another serv" in words
        assert other.documents == []
    assert all(headers["Authorization"] == SECRET for headers in service.headers)


@pytest.mark.parametrize(
    ("here", "there", "followed"),
    [
        ("https://a.example/x", "https://a.example/y", True),
        ("https://a.example/x", "https://a.example:443/y", True),
        ("http://a.example/x", "https://a.example/x", True),
        ("http://a.example:80/x", "https://a.example:443/x", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("http://a.example:8080/x", "https://a.example/x", False),
        ("https://a.example/x", "https://b.example/x", False),
        ("https://a.example/x", "//b.example/x", False),
        ("https://a.example/x", "https://a.example:8443/x", False),
        ("https://a.example/x", "file:///etc/passwd", False),
        ("https://a.example/x", "https://a.example:port/x", False),
    ],
)
def test_where_redirects_may_lead(here: str, there: str, followed: bool) -> None:
    if followed:
        assert http_post_module._redirected(here, there) == there
        return
    with pytest.raises(Failure, match=r"redirects to .* is not followed") as caught:
        http_post_module._redirected(here, there)
    assert not caught.value.temporary


def test_endless_redirects(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer(b"", 308, Location="/predict")
    assert "the server redirected more than 5 times." in failure(quick(service.url))
    assert len(service.documents) == 6


def test_a_redirect_that_would_lose_the_rows(service: Service) -> None:
    service.behave = lambda handler, turn: handler.answer(b"", 303, Location="/result")
    assert "the server answered with status 303." in failure(quick(service.url))


# --- credentials -------------------------------------------------------------------------------


def test_credentials_come_from_the_environment_at_each_call(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = quick(service.url, headers_from_env={"Authorization": "RENT_API_KEY"})
    for value in (SECRET, "Bearer another"):
        monkeypatch.setenv("RENT_API_KEY", value)
        candidate.predict(X, "regression")
        assert service.headers[-1]["Authorization"] == value


def test_credentials_are_nowhere_else(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RENT_API_KEY", SECRET)
    candidate = quick(service.url, headers_from_env={"Authorization": "RENT_API_KEY"}, retries=0)
    candidate.predict(X, "regression")
    echoed = {"detail": "bad", "headers": {"Authorization": SECRET}}
    for answer, status in ((echoed, 403), (echoed, 500), (echoed, 200), (b"Bearer " * 3, 200)):
        service.behave = lambda handler, turn, a=answer, s=status: handler.answer(a, s)
        with pytest.raises(CandidateError) as caught:
            candidate.predict(X, "regression")
        error: BaseException | None = caught.value
        while error is not None:
            assert "s3cret" not in str(error)
            assert "Bearer" not in str(error)
            error = error.__cause__ or error.__context__
    for shown in (repr(candidate), candidate.label, json.dumps(candidate.recipe().to_json())):
        assert "s3cret" not in shown
    assert b"s3cret" not in pickle.dumps(candidate)


KEY_ECHOED = [
    b"%s\r\n\r\n",
    b"HTTP/1.1 %s\r\n\r\n",
    b"HTTP/%s 200 OK\r\n\r\n",
    b"HTTP/1.1 500 %s\r\n\r\n%s",
    b"HTTP/1.1 307 Go\r\nLocation: https://%s/\r\n\r\n",
    b"HTTP/1.1 307 Go\r\nLocation: https://me:%s@else.example/\r\n\r\n",
    b"HTTP/1.1 307 Go\r\nLocation: http://[%s/\r\n\r\n",
    b"HTTP/1.1 307 Go\r\nLocation: /a b\x01 %s\r\n\r\n",
    b"HTTP/1.1 307 Go\r\nLocation: %s://else.example/\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n",
    b"HTTP/1.1 503 No\r\nRetry-After: %s\r\n\r\n",
    b'HTTP/1.1 200 OK\r\n\r\n{"%s": 1, "%s": 2}',
    b'HTTP/1.1 200 OK\r\n\r\n{"predictions": "%s"}',
    b"HTTP/1.1 200 OK\r\n\r\n%s",
    b'HTTP/1.1 200 OK\r\n\r\n{"scores": ["%s"]}',
]


def read_first_score(answer: Any) -> Any:
    return [float(score) for score in answer["scores"]]


@pytest.mark.parametrize("pattern", KEY_ECHOED)
@pytest.mark.parametrize("secret", [SECRET, "s3cret-t0ken"])
def test_a_key_that_the_server_repeats_is_in_no_error(
    service: Service, monkeypatch: pytest.MonkeyPatch, pattern: bytes, secret: str
) -> None:
    monkeypatch.setenv("RENT_API_KEY", secret)
    service.behave = raw(pattern.replace(b"%s", secret.encode()))
    for response in (None, read_first_score):
        candidate = quick(
            service.url,
            headers_from_env={"Authorization": "RENT_API_KEY"},
            response=response,
            retries=1,
        )
        with pytest.raises(CandidateError) as caught:
            candidate.predict(X, "regression", name="vendor")
        shown = "".join(traceback.format_exception(caught.value)).lower()
        assert "s3cret" not in shown
        errors: list[BaseException | None] = [caught.value]
        while errors:
            error = errors.pop()
            if error is not None:
                assert "s3cret" not in str(error).lower() + repr(error).lower()
                errors += [error.__cause__, error.__context__]


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (None, "is not set"),
        ("", "is not set"),
        ("s3cret\r\nX-Other: 1", "has characters that are not allowed in a header"),
        ("s3cret\u20ac", "has characters that are not allowed in a header"),
    ],
)
def test_bad_credentials_are_not_shown(
    service: Service, monkeypatch: pytest.MonkeyPatch, value: str | None, state: str
) -> None:
    monkeypatch.delenv("RENT_API_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("RENT_API_KEY", value)
    words = failure(quick(service.url, headers_from_env={"Authorization": "RENT_API_KEY"}))
    assert (
        "The header 'Authorization' is read from the environment variable 'RENT_API_KEY', which "
        f"{state}: set it to the whole value." in words
    )
    assert "s3cret" not in words
    assert service.documents == []


def parameter(name: str) -> str:
    return f"a value of the query parameter {name!r}"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://me:s3cret@rent.example/", "a user name or password before the '@'"),
        ("https://s3cret@rent.example/", "a user name or password before the '@'"),
        ("https://rent.example/?api_key=s3cret", parameter("api_key")),
        ("https://rent.example/?X-Amz-Signature=s3cret", parameter("X-Amz-Signature")),
        ("https://rent.example/?v=1&sig=s3cret", parameter("sig")),
        ("https://rent.example/?k=s3cret", parameter("k")),
        ("https://rent.example/?hmac=s3cret", parameter("hmac")),
        ("https://rent.example/?k=s3cret{RENT_API_KEY}", parameter("k")),
        ("https://rent.example/?k=%7Bs3cret%7D", parameter("k")),
        ("https://rent.example/?model=s3cret1234567890a1b2", parameter("model")),
        ("https://rent.example/?s3cret", "a query without a name"),
        ("https://rent.example/hooks/T0s3cret9aB8cD7eF6gH5", "a key, it seems, in its path"),
        ("https://rent.example/d41d8cd98f00b204e9800998ecf8427e/go", "a key, it seems"),
    ],
)
def test_a_url_holds_no_credentials(url: str, words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        HttpCandidate(url)
    assert str(caught.value).startswith(
        "A url is saved and shown, so it must not hold credentials, but the one for "
        f"'rent.example' holds {words}"
    )
    assert str(caught.value).endswith(
        "Put it into an environment variable and write the name of the variable in braces "
        "instead, such as {RENT_API_KEY}, or send it as a header: "
        "headers_from_env={'Authorization': 'RENT_API_KEY'}."
    )
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/123456789012/locations/us-central1/endpoints/1234567890123456789:predict",
        "/endpoints/my-endpoint-2024-05-01-12-00-00/invocations",
        "/deployments/550e8400-e29b-41d4-a716-446655440000/predict",
        "/v2/models/textclassification2024/versions/3/infer",
        "/score?api-version=2023-05-15&model_name=rent",
    ],
)
def test_addresses_of_common_services_are_accepted(path: str) -> None:
    assert HttpCandidate(f"https://rent.example{path}").url == f"https://rent.example{path}"


def test_public_query_parameters_are_kept(service: Service) -> None:
    candidate = quick(f"{service.url}?model=7&version=2#part")
    assert_array_equal(candidate.predict(X, "regression"), SUMS)
    assert service.paths == ["/predict?model=7&version=2"]
    assert "model" not in repr(candidate)


def test_secrets_of_an_address_come_from_the_environment(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = quick(service.url + "/{RENT_HOOK}/go?k={RENT_API_KEY}", retries=0)
    with pytest.raises(CandidateError, match="the environment variable 'RENT_HOOK', which is not"):
        candidate.predict(X, "regression")
    monkeypatch.setenv("RENT_HOOK", "s3cret/hook")
    monkeypatch.setenv("RENT_API_KEY", "s3cret&key=%")
    assert_array_equal(candidate.predict(X, "regression"), SUMS)
    assert service.paths == ["/predict/s3cret%2Fhook/go?k=s3cret%26key%3D%25"]
    again = from_recipe(Recipe.from_json(json.loads(json.dumps(candidate.recipe().to_json()))))
    assert_array_equal(again.predict(X, "regression"), SUMS)
    for shown in (repr(again), again.label, again.source, json.dumps(again.recipe().to_json())):
        assert "s3cret" not in str(shown)
    service.behave = lambda handler, turn: handler.answer({"path": handler.path}, 403)
    assert "s3cret" not in failure(candidate)


@pytest.mark.parametrize(
    "url",
    [
        "https://{RENT_HOST}/",
        "https://rent.example/{not a name}",
        "https://rent.example/{}",
        "https://rent.example/{A",
        "https://rent.example/A}",
        "https://rent.example/?k={{A}}",
    ],
)
def test_names_in_braces_are_checked(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"A name in braces|url must have a host"):
        HttpCandidate(url)


def test_secrets_in_an_address_need_https() -> None:
    with pytest.raises(InvalidInputError, match="Credentials are only sent over https"):
        HttpCandidate("http://rent.example/?k={RENT_API_KEY}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://rent.example/", "begins with http:// or https://; received 'ftp://rent.example/'"),
        ("file:///etc/passwd", "begins with http:// or https://; received 'file:///etc/passwd'"),
        ("ftp://me:s3cret@a.example/?key=s3cret", "received 'a.example/'"),
        (7, "begins with http:// or https://; received 'int'"),
        ("https://", "url must have a host, a valid port and only ASCII"),
        ("https://a.example:99999/", "url must have a host, a valid port"),
        ("https://[::1/", "url must have a host"),
        (
            "https://a.example/a b",
            "only ASCII characters without blanks (quote others, such as %20)",
        ),
        ("https://a.example/\r\nHost: b", "url must have a host"),
        ("https://m\u00fcnchen.example/", "only ASCII characters without blanks"),
    ],
)
def test_urls_are_checked(url: Any, words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        HttpCandidate(url)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_credentials_need_https() -> None:
    headers = {"Authorization": "RENT_API_KEY"}
    with pytest.raises(
        InvalidInputError,
        match=r"Credentials are only sent over https, but the address of 'rent\.example' begins "
        r"with http://: use https, or leave out headers_from_env\.",
    ):
        HttpCandidate("http://rent.example/", headers_from_env=headers)
    HttpCandidate("https://rent.example/", headers_from_env=headers)
    HttpCandidate("http://localhost:8000/", headers_from_env=headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer s3cret"},
        {"Auth orization": "RENT_API_KEY"},
        {"Host": "RENT_API_KEY"},
        {"Content-Length": "RENT_API_KEY"},
        {"X-Key\r\n": "RENT_API_KEY"},
        {7: "RENT_API_KEY"},
        {"Authorization": None},
    ],
)
def test_headers_are_names(headers: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"headers_from_env maps the name of a") as caught:
        HttpCandidate("https://rent.example/", headers_from_env=headers)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"format": "column"}, r"Unknown format 'column'; did you mean 'columns'\?"),
        ({"request": 3}, r"request must be a function or None; received a int\."),
        ({"response": "r"}, r"response must be a function or None; received a str\."),
        ({"timeout": 0}, r"timeout must be a finite number of seconds, 0\.001 or more; rec.* 0\."),
        ({"timeout": np.inf}, r"timeout must be a finite number of seconds.*received inf"),
        ({"retries": -1}, r"retries must be a whole number, 0 or more; received -1\."),
        ({"retries": 2.5}, r"retries must be a whole number, 0 or more; received 2\.5\."),
        ({"backoff": -1.0}, r"backoff must be a finite number of seconds, 0 or more; rec.* -1\.0"),
        ({"max_wait": np.nan}, r"max_wait must be a finite number of seconds, 0 or more.* nan"),
        ({"max_concurrency": 0}, r"max_concurrency must be a whole number, 1 or more; received 0"),
        ({"headers_from_env": ["A"]}, r"headers_from_env must be a dict from header to environm"),
        ({"batch_size": 0}, r"batch_size must be None, a whole number"),
        ({"activation": "relu"}, r"activation must be None, 'softmax' or 'sigmoid'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        HttpCandidate("https://rent.example/", **options)


# --- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that nobody vouches for, its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate with the command openssl, which is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, signed, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localma test"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", signed),
        ],
        check=True,
        capture_output=True,
    )
    both.write_bytes(key.read_bytes() + signed.read_bytes())
    return both


@pytest.fixture
def secure(certificate: Path) -> Iterator[Service]:
    service = Service()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    service.socket = context.wrap_socket(service.socket, server_side=True)
    with running(service) as started:
        yield started


def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Service) -> None:
    words = failure(quick(secure.url.replace("http:", "https:")))
    words = words.replace("self signed", "self-signed")  # as older versions of OpenSSL write it
    assert (
        "the server has a certificate that cannot be verified (self-signed certificate), and "
        "certificates are always verified: correct the certificate, or add its authority to this "
        "machine (or to the file in SSL_CERT_FILE)." in words
    )
    assert secure.documents == []


def test_a_certificate_of_a_known_authority_is_accepted(
    secure: Service, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    http_post_module._verifying.cache_clear()
    try:
        url = secure.url.replace("http:", "https:")
        assert_array_equal(quick(url).predict(X, "regression"), SUMS)
        words = failure(quick(url.replace("127.0.0.1", "localhost"), retries=0))
        assert "has a certificate that cannot be verified (Hostname mismatch" in words
    finally:
        http_post_module._verifying.cache_clear()


def test_plain_text_where_tls_is_expected(service: Service) -> None:
    words = failure(quick(service.url.replace("http:", "https:"), retries=0))
    assert "the server could not be reached, or broke off" in words


def test_proxies_are_asked_except_for_this_machine(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", service.url.removesuffix("/predict"))
    assert_array_equal(quick("http://rent.invalid/far").predict(X, "regression"), SUMS)
    with running(Service()) as near:
        assert_array_equal(quick(near.url).predict(X, "regression"), SUMS)
        assert near.paths == ["/predict"]
    assert service.paths == ["http://rent.invalid/far"]


# --- recipes, pools and saved models -----------------------------------------------------------


def test_the_recipe_brings_everything_back(service: Service) -> None:
    candidate = quick(
        service.url,
        format="instances",
        request=json.dumps,
        headers_from_env={"X-Key": "RENT_API_KEY"},
        inputs=[1, 0],
        random_state=3,
        max_concurrency=2,
        batch_size=5,
    )
    recipe = Recipe.from_json(json.loads(json.dumps(candidate.recipe().to_json())))
    assert recipe.needs_trust
    again = from_recipe(recipe)
    assert again.recipe() == recipe
    assert again.request is json.dumps
    assert again.identity() == candidate.identity()


def test_what_cannot_be_imported_has_no_recipe() -> None:
    assert quick("https://rent.example/", request=lambda columns, rows: rows).recipe() is None
    assert quick("https://rent.example/", response=lambda answer: answer).recipe() is None
    assert quick("https://rent.example/", inputs=lambda X: X).recipe() is None


def test_an_address_is_told_by_its_beginning() -> None:
    candidate = as_candidate("https://rent.example/predict", cost=2.0)
    assert isinstance(candidate, HttpCandidate)
    assert (candidate.batch_size, candidate.cost) == (256, 2.0)


def test_in_a_pool_and_pickled(service: Service) -> None:
    vendor = pickle.loads(pickle.dumps(quick(service.url, batch_size=3)))
    pool = Pool({"vendor": vendor, "first": first_column}, task="regression")
    assert_array_equal(pool.predict(X), np.column_stack([SUMS, X[:, 0]]))


def test_a_saved_model_comes_back_whole(service: Service, tmp_path: Path) -> None:
    y = SUMS + 0.1
    candidates = {"vendor": quick(service.url), "first": as_candidate(first_column)}
    model = LocalMARegressor(candidates, gate="global").fit(X, y)
    model.save(tmp_path / "rent.localma")
    with pytest.raises(UntrustedFileError, match=r"'vendor', 'first' are made from 'http:"):
        load(tmp_path / "rent.localma")
    again = load(tmp_path / "rent.localma", candidates={"first": candidates["first"]}, trust=True)
    assert_allclose(again.predict(X), model.predict(X))


def first_column(X: Any) -> Any:
    return X[:, 0]


def test_reading_predictions_knows_rows_of_lists() -> None:
    assert read_predictions({"predictions": [[1, 2], [3, 4.5]]}, 2, None).tolist() == [
        [1.0, 2.0],
        [3.0, 4.5],
    ]
