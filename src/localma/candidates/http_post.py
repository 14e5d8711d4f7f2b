"""Post rows to a web endpoint as JSON, and read its predictions.

Time, size and the number of attempts are limited. Certificates are always verified, a redirect
never takes credentials to another server, and temporary failures are tried again.
"""

from __future__ import annotations

import io
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from math import isfinite, isnan
from random import Random
from socket import socket
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.error import URLError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import AbstractHTTPHandler, OpenerDirector, ProxyHandler, Request

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

from localma._types import Array, Float64, Json
from localma.candidates.base import RowError
from localma.candidates.outputs import Table
from localma.errors import LocalMAError
from localma.formatting import printable
from localma.storage.array_file import parse_json
from localma.tables.frames import column_names, dense

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Document = TypeVar("Document")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""
QUOTED_CHARACTERS = 200
FRAME_BYTES = 2**20
"""Allowance for headers; the marks between the chunks of an answer may double its size."""
CONTENT_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 307, 308)  # 303 asks for a GET, which would lose the rows
DEFAULT_PORTS = {"http": 80, "https": 443}
CONTAINERS, CONTAINERS_PER_ROW = 1024, 64
"""The largest number of lists and objects in an answer: in total, and more for each row."""


class ServerError(LocalMAError):
    """The server gave no usable answer."""


class AnswerError(ValueError):
    """The answer does not contain predictions; the message describes its content."""


# Rows as JSON.


def as_rows(X: Table) -> tuple[list[str] | None, list[Json]]:
    """Return the column names, if X has any, and the rows as JSON; missing values become null.

    >>> as_rows(np.array([[1.5, np.nan]]))
    (None, [[1.5, None]])
    >>> as_rows(["a text"])
    (None, ['a text'])
    """
    names = column_names(X)
    if names is not None:
        frame: nw.DataFrame[Any] = nw.from_native(X, eager_only=True)
        return [str(name) for name in names], _all_plain(frame.rows())
    if issparse(X):
        X = dense(X)
    if isinstance(X, np.ndarray) and (
        X.dtype.kind in "biu" or (X.dtype.kind == "f" and np.isfinite(X).all())
    ):
        return None, X.tolist()
    return None, _all_plain(X)  # type: ignore[arg-type]


def _all_plain(rows: Iterable[object]) -> list[Json]:
    plain: list[Json] = []
    for index, row in enumerate(rows):
        try:
            plain.append(_plain(row))
        except TypeError as error:
            raise RowError(
                f"it holds {error}, which cannot be written as JSON. Select other columns with "
                "inputs=, or pass a function as inputs= that converts it.",
                row=index,
            ) from None
    return plain


def _plain(value: Any) -> Json:
    """Convert a value to the types of JSON; a TypeError names a value that has none."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _from_numpy(value)
    if isinstance(value, float | Decimal):
        return _number(float(value))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__}")


def _number(value: float) -> float | None:
    if isnan(value):
        return None
    if not isfinite(value):
        raise TypeError("infinity")
    return value


def _from_numpy(value: np.ndarray[Any, Any] | np.generic) -> Json:
    if value.dtype.kind != "M":
        return _plain(value.tolist())
    if isinstance(value, np.ndarray) and value.ndim:
        return [_from_numpy(item) for item in value]
    if np.isnat(value):
        return None
    return str(value)


# The answer.


def read_json(answer: bytes, n_rows: int) -> Json:
    """Parse an answer, unless it is much larger than predictions of the rows can be.

    Parameters
    ----------
    answer : JSON, in UTF-8.
    n_rows : number of rows sent.

    Examples
    --------
    >>> read_json(b'{"predictions": [1, 2.5]}', 2)
    {'predictions': [1, 2.5]}
    """
    # An empty list takes two bytes here and 64 in memory, and parsing cannot be interrupted.
    containers = answer.count(b"[") + answer.count(b"{")
    if containers > CONTAINERS + CONTAINERS_PER_ROW * n_rows:
        raise AnswerError(f"{containers} lists and objects for {n_rows} rows")
    try:
        return parse_json(answer)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"text that is not valid JSON ({error})") from error


def read_predictions(
    document: Json, n_rows: int, convert: Callable[[Any], Any] | None = None
) -> Float64:
    """Read the predictions in an answer, ``{"predictions": [...]}`` unless you pass `convert`.

    Parameters
    ----------
    document : the parsed answer, with a number or a list of numbers per row.
    n_rows : number of rows sent.
    convert : a function from the document to the predictions.

    Returns
    -------
    Array
        (n,) or (n, K).

    Examples
    --------
    >>> read_predictions({"predictions": [1, 2.5]}, 2).tolist()
    [1.0, 2.5]
    """
    if convert is not None:
        return _as_numbers(convert(document), n_rows)
    if not isinstance(document, dict) or "predictions" not in document:
        raise AnswerError('JSON without {"predictions": [...]}')
    return _as_numbers(document["predictions"], n_rows)


def _as_numbers(predictions: Json | Array, n_rows: int) -> Float64:
    if isinstance(predictions, list):
        _check_list(predictions, n_rows)
    try:
        values = np.asarray(predictions)
    except ValueError:
        raise AnswerError("rows of different lengths as predictions") from None
    if values.ndim not in (1, 2) or len(values) != n_rows:
        raise AnswerError(f"predictions of shape {values.shape} for {n_rows} rows")
    if values.dtype.kind not in "iuf":
        raise AnswerError("predictions that are not all numbers")
    return values.astype(np.float64)


def _check_list(predictions: list[Json], n_rows: int) -> None:
    """Refuse values that NumPy would take for numbers, or take long to refuse."""
    if len(predictions) != n_rows:
        raise AnswerError(f"{len(predictions)} predictions for {n_rows} rows")
    lists = [row for row in predictions if isinstance(row, list)]
    if len({len(row) for row in lists}) > 1 or len(lists) not in (0, n_rows):
        raise AnswerError("rows of different lengths as predictions")
    # In an array of numbers NumPy would turn true into 1.
    if any(isinstance(value, bool) for row in lists or [predictions] for value in row):
        raise AnswerError("predictions that are not all numbers")


# Attempts.


@dataclass(frozen=True)
class Patience:
    """Time limits and retries.

    timeout : seconds for one attempt, from connecting until the answer is read and parsed.
    retries : attempts after the first.
    backoff : seconds before the first retry; doubled before each further one.
    max_wait : longest wait between two attempts.
    """

    timeout: float
    retries: int
    backoff: float
    max_wait: float

    def wait(self, failure: Failure, attempt: int, jitter: Random) -> float | None:
        """Seconds before the next attempt; None if there is none."""
        if not failure.temporary or attempt >= self.retries or failure.wait > self.max_wait:
            return None
        backoff = min(self.backoff * 2.0**attempt, self.max_wait)
        return max(failure.wait, backoff * jitter.uniform(0.5, 1.0))


@dataclass(frozen=True)
class Call:
    """A request, and the limits of its answer.

    url : the address.
    body : the JSON document.
    headers : further headers, including credentials.
    secrets : values that no error may show, although the server may repeat them.
    max_bytes : size of the largest answer.
    """

    url: str
    body: bytes
    headers: Mapping[str, str]
    secrets: tuple[str, ...]
    max_bytes: int

    def quoted(self, text: str, before: str = "") -> str:
        """Quote the server for an error; empty if the quotation could hold a secret."""
        if self.secrets or not text:
            return ""
        return f"{before} {text[:QUOTED_CHARACTERS]!r}"

    def excerpt(self, answer: bytes) -> str:
        """Quote the beginning of an answer."""
        text = answer[: 4 * QUOTED_CHARACTERS].decode("utf-8", "replace")
        return self.quoted(text.strip(), before=":")


class Failure(Exception):
    """A failed attempt.

    temporary : whether another attempt may succeed.
    wait : seconds that the server asks to wait; 0 if it asks for none.
    """

    def __init__(self, message: str, *, temporary: bool, wait: float = 0.0) -> None:
        super().__init__(message)
        self.temporary, self.wait = temporary, wait


def post(
    call: Call,
    read: Callable[[bytes], Document],
    *,
    patience: Patience,
    jitter: Random,
    stopped: Event,
) -> Document:
    """Send a JSON document and read the answer, with retries.

    Parameters
    ----------
    call : the request.
    read : parses the answer; its time counts.
    patience : time limits and retries.
    jitter : spreads the waits of many callers between a half and the whole of the back-off.
    stopped : an event that ends the attempts once it is set.
    """
    attempt = 0
    while True:
        try:
            return _followed(call, read, patience.timeout)
        except Failure as failure:
            wait = patience.wait(failure, attempt, jitter)
            if wait is None or stopped.wait(wait):
                attempts = f" (attempt {attempt + 1})" * (attempt > 0)
                raise ServerError(f"the server {failure}{attempts}.") from failure
        attempt += 1


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text: whole, quoted as in an address, and word by word, in any case.

    >>> redacted("no host 'S3CRET-key'", ["Bearer s3cret-key"])
    "no host '***'"
    """
    hidden = {form for secret in secrets for form in (secret, quote(secret, safe=""))}
    hidden |= {word for secret in secrets for word in secret.split() if len(word) > 3}
    for word in sorted(hidden, key=len, reverse=True):
        text = re.sub(re.escape(word), "***", text, flags=re.IGNORECASE)
    return text


class _Reply(NamedTuple):
    status: int
    headers: Message
    body: bytes


def _followed(call: Call, read: Callable[[bytes], Document], timeout: float) -> Document:
    """Make one attempt, and follow redirects on the same server."""
    url, deadline = call.url, monotonic() + timeout
    for _ in range(MAX_REDIRECTS + 1):
        reply = _exchange(call, url, deadline, timeout)
        location = reply.headers.get("Location")
        if reply.status not in REDIRECTS or not location:
            _check_status(reply, call)
            document = read(reply.body)
            if monotonic() > deadline:
                raise _too_late(timeout)
            return document
        url = _redirected(url, location, call.secrets)
    raise Failure(f"redirected more than {MAX_REDIRECTS} times", temporary=False)


def _exchange(call: Call, url: str, deadline: float, timeout: float) -> _Reply:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"User-Agent": "localma", **call.headers}
    request = Request(url, data=call.body, headers=headers, method="POST")
    opener = OpenerDirector()
    opener.add_handler(_Handler(deadline, FRAME_BYTES + 2 * call.max_bytes))
    if urlsplit(url).hostname not in LOOPBACK:
        opener.add_handler(ProxyHandler())
    try:
        with opener.open(request, timeout=max(deadline - monotonic(), 1e-3)) as response:
            return _Reply(response.status, response.headers, _read(response, call))
    except (OSError, HTTPException, ValueError) as error:
        failure = _as_failure(error, timeout, call)
    # Outside the handler, so that the server's text is not in the chain of errors either.
    raise failure


def _read(response: HTTPResponse, call: Call) -> bytes:
    values = response.headers.get_all("Content-Length", [])
    lengths = {length.strip() for value in values for length in value.split(",")}
    if len(lengths) > 1 or not all(map(CONTENT_LENGTH.fullmatch, lengths)):
        raise Failure(
            f"answered with a wrong Content-Length{call.quoted(', '.join(values))}: it must be one "
            "whole number of bytes",
            temporary=False,
        )
    if not any(int(length) > call.max_bytes for length in lengths):
        answer = response.read(call.max_bytes + 1)
        if response.length and len(answer) <= call.max_bytes:
            raise IncompleteRead(answer, response.length)  # read(n) does not check it
        if len(answer) <= call.max_bytes:
            return answer
    raise Failure(
        f"answered with more than {call.max_bytes // 1024} KiB, much more than predictions need: "
        "it must send a number, or a list of numbers, per row and little else",
        temporary=False,
    )


def _too_late(timeout: float) -> Failure:
    return Failure(
        f"did not answer within {timeout:g} s: raise timeout=, or send fewer rows at a time with "
        "a smaller batch_size",
        temporary=True,
    )


def _as_failure(error: Exception, timeout: float, call: Call) -> Failure:
    reason = error
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        reason = error.reason
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Failure(
            f"has a certificate that cannot be verified ({reason.verify_message}), and "
            "certificates are always verified: correct the certificate, or add its authority to "
            "this machine (or to the file in SSL_CERT_FILE)",
            temporary=False,
        )
    if isinstance(reason, TimeoutError):
        return _too_late(timeout)
    described = type(reason).__name__
    if isinstance(reason, OSError) or not call.secrets:  # other errors may quote the server
        described = printable(str(reason)[:QUOTED_CHARACTERS]) or described
    described = redacted(described, call.secrets)
    return Failure(f"could not be reached, or broke off ({described})", temporary=True)


def _check_status(reply: _Reply, call: Call) -> None:
    status = reply.status
    if 200 <= status < 300:
        return
    temporary, wait, request = status == 429 or status >= 500, 0.0, ""
    if temporary:
        wait = _retry_after(reply.headers.get("Retry-After", ""))
    if wait:
        request = f", asking to wait {wait:.0f} s"
    raise Failure(
        f"answered with status {status}{request}{call.excerpt(reply.body)}",
        temporary=temporary,
        wait=wait,
    )


def _retry_after(value: str) -> float:
    """Seconds in a Retry-After header, which holds a number or a date; 0 for any other value.

    >>> _retry_after("7"), _retry_after(""), _retry_after("soon")
    (7.0, 0.0, 0.0)
    """
    if value.strip().isdecimal():
        return float(value)
    with suppress(ValueError, OverflowError):  # a year beyond 9999, a zone of many hours
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is not None:
            return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    return 0.0


def _redirected(url: str, location: str, secrets: Sequence[str] = ()) -> str:
    """Return the target of a redirect on the same server, or from http to https."""
    target, source = location, _origin(url)
    with suppress(ValueError):  # for example a bracket that is not closed
        target = urljoin(url, location)
    scheme, host, port = origin = _origin(target)
    secured = source[::2] == ("http", 80) and origin == ("https", source[1], 443)
    if origin != source and not secured:
        shown_origin = redacted(printable(f"{scheme}://{host}:{port}"), secrets)
        raise Failure(
            f"redirects to {shown_origin[:QUOTED_CHARACTERS]}, and a redirect to another server, "
            "or away from https, is not followed, since it would take rows and credentials there: "
            "pass that address as the url",
            temporary=False,
        )
    return target


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        address = urlsplit(url)
        port = address.port or DEFAULT_PORTS.get(address.scheme)
    except ValueError:
        return "", None, None
    return address.scheme, address.hostname, port


# The timeout of a socket starts again with every byte. These classes keep one deadline.


class _LimitedReader(io.RawIOBase):
    def __init__(
        self, raw: io.RawIOBase, connected: socket, deadline: float, max_bytes: int
    ) -> None:
        self.raw, self.connected = raw, connected
        self.deadline, self.remaining_bytes = deadline, max_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        seconds = self.deadline - monotonic()
        if seconds <= 0:
            raise TimeoutError("the answer took too long")
        self.connected.settimeout(seconds)
        count = self.raw.readinto(buffer)
        self.remaining_bytes -= count or 0
        if self.remaining_bytes < 0:
            raise Failure("sends many more bytes than predictions need", temporary=False)
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class _LimitedResponse(HTTPResponse):
    def __init__(
        self, connected: socket, *args: Any, deadline: float, max_bytes: int, **options: Any
    ) -> None:
        super().__init__(connected, *args, **options)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_LimitedReader(raw, connected, deadline, max_bytes))


class _Handler(AbstractHTTPHandler):
    """Opens http and https addresses; leaves redirects and errors to the caller."""

    http_request = https_request = AbstractHTTPHandler.do_request_

    def __init__(self, deadline: float, max_bytes: int) -> None:
        super().__init__()
        self.response = partial(_LimitedResponse, deadline=deadline, max_bytes=max_bytes)

    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(self._connect, HTTPConnection), request)

    def https_open(self, request: Request) -> HTTPResponse:
        connect = partial(HTTPSConnection, context=_verifying())
        return self.do_open(partial(self._connect, connect), request)

    def _connect(
        self, connect: Callable[..., HTTPConnection], host: str, **options: Any
    ) -> HTTPConnection:
        connection = connect(host, **options)
        connection.response_class = self.response  # type: ignore[assignment]
        return connection


@cache
def _verifying() -> ssl.SSLContext:
    """Check certificates and host names; reading the authorities is slow, so do it once."""
    return ssl.create_default_context()
