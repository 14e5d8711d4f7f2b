"""One JSON document sent to a web endpoint, its answer brought back: bounded in time and size.

The standard library does it all: certificates are always verified, a redirect never takes the
credentials elsewhere, and what may pass (a broken connection, a busy server) is tried again.
"""

from __future__ import annotations

import io
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from random import Random
from socket import socket
from threading import Event
from time import monotonic
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from localma.candidates.http_json import LOOPBACK, QUOTED_CHARACTERS, ServerError, excerpt
from localma.wording import printable

Document = TypeVar("Document")

FRAME_BYTES = 2**20
"""For headers; the marks between chunks of an answer may double it."""
CONTENT_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 307, 308)  # 303 asks for a GET, which would lose the rows
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Patience:
    """How long to wait for an answer, and how often to ask again.

    timeout : seconds for one attempt, from connecting until the answer is read and parsed.
    retries : attempts after the first.
    backoff : seconds before the first retry; doubled before each further one.
    max_wait : the longest wait between two attempts, whatever the server asks for.
    """

    timeout: float
    retries: int
    backoff: float
    max_wait: float


@dataclass(frozen=True)
class Call:
    """What is sent, and what may come back.

    url : where to.
    body : the JSON document.
    headers : further headers, credentials among them.
    secrets : what must not be in any error: a server may repeat what it was sent.
    most_bytes : the largest answer that is read.
    """

    url: str
    body: bytes
    headers: Mapping[str, str]
    secrets: tuple[str, ...]
    most_bytes: int

    def quoted(self, text: str) -> str:
        """Text from the server for an error, in quotes; empty if it could hold a secret."""
        return "" if self.secrets else f" {text[:QUOTED_CHARACTERS]!r}"


class _Failure(Exception):
    """One attempt that came to nothing.

    passing : whether another attempt may do better.
    wait : seconds that the server asks to wait; 0 if it did not ask.
    """

    def __init__(self, what: str, *, passing: bool, wait: float = 0.0) -> None:
        super().__init__(what)
        self.passing, self.wait = passing, wait


def post(
    call: Call,
    read: Callable[[bytes], Document],
    *,
    patience: Patience,
    jitter: Random,
    stopped: Event,
) -> Document:
    """Send a JSON document and read the answer, after as many attempts as allowed.

    Parameters
    ----------
    call : what is sent, and where.
    read : from the body of the answer to what it holds; counts for the time of the attempt.
    patience : time limits and retries.
    jitter : spreads the waits of many callers between a half and the whole of the back-off.
    stopped : once it is set nothing is tried again.
    """
    for attempt in range(patience.retries + 1):
        try:
            return _followed(call, read, patience.timeout)
        except _Failure as failure:
            wait = _wait(failure, attempt, patience, jitter)
            if wait is None or stopped.wait(wait):
                tried = "" if attempt == 0 else f" (attempt {attempt + 1})"
                raise ServerError(f"the server {failure}{tried}.") from failure
    raise AssertionError("the last attempt returns or raises")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text: whole, as in an address, and word by word, in any case.

    >>> redacted("no host 'S3CRET-key'", ["Bearer s3cret-key"])
    "no host '***'"
    """
    words = {word for secret in secrets for word in (secret, quote(secret, safe=""))}
    words |= {word for secret in secrets for word in secret.split() if len(word) > 3}
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(re.escape(word), "***", text, flags=re.IGNORECASE)
    return text


def _wait(failure: _Failure, attempt: int, patience: Patience, jitter: Random) -> float | None:
    """Seconds before the next attempt; None if there is to be none."""
    if not failure.passing or attempt >= patience.retries or failure.wait > patience.max_wait:
        return None
    backoff = min(patience.backoff * 2.0**attempt, patience.max_wait)
    return max(failure.wait, backoff * jitter.uniform(0.5, 1.0))


def _followed(call: Call, read: Callable[[bytes], Document], timeout: float) -> Document:
    """One attempt, over as many redirects as stay with the same server."""
    url, ends = call.url, monotonic() + timeout
    for _ in range(MAX_REDIRECTS + 1):
        status, headers, answer = _exchange(call, url, ends, timeout)
        location = headers.get("Location")
        if status not in REDIRECTS or not location:
            _check_status(status, headers, "" if call.secrets else excerpt(answer))
            document = read(answer)
            if monotonic() > ends:
                raise _too_late(timeout)
            return document
        url = _redirected(url, location, call.secrets)
    raise _Failure(f"redirected more than {MAX_REDIRECTS} times", passing=False)


def _exchange(
    call: Call, url: str, ends: float, timeout: float
) -> tuple[int, Mapping[str, str], bytes]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"User-Agent": "localma", **call.headers}
    request = Request(url, data=call.body, headers=headers, method="POST")
    opener = _opener(_Limits(ends, FRAME_BYTES + 2 * call.most_bytes))
    try:
        with opener.open(request, timeout=max(ends - monotonic(), 1e-3)) as response:
            return response.status, response.headers, _read(response, call)
    except (OSError, HTTPException, ValueError) as error:
        failure = _as_failure(error, timeout, call)
    # Not in the handler: what the server sent must not be in the chain of errors either.
    raise failure


def _read(response: HTTPResponse, call: Call) -> bytes:
    announced = _content_length(response.headers.get_all("Content-Length", []), call)
    if announced is not None and announced > call.most_bytes:
        raise _too_large(call)
    answer = response.read(call.most_bytes + 1)
    if len(answer) > call.most_bytes:
        raise _too_large(call)
    if response.length:  # a read of so many bytes does not notice that they were cut short
        raise IncompleteRead(answer, response.length)
    return answer


def _content_length(values: list[str], call: Call) -> int | None:
    """The number of bytes that an answer announces; None if it announces none."""
    numbers = {number.strip() for value in values for number in value.split(",")}
    if not numbers:
        return None
    if len(numbers) > 1 or not CONTENT_LENGTH.fullmatch(next(iter(numbers))):
        raise _Failure(
            f"answered with a wrong Content-Length{call.quoted(', '.join(values))}: it must be one "
            "whole number of bytes",
            passing=False,
        )
    return int(numbers.pop())


def _too_large(call: Call) -> _Failure:
    return _Failure(
        f"answered with more than {call.most_bytes // 1024} KiB, far more than predictions take: "
        "it must send a number, or a list of numbers, per row and little else",
        passing=False,
    )


def _too_late(timeout: float) -> _Failure:
    return _Failure(
        f"did not answer within {timeout:g} s: raise timeout=, or send fewer rows at a time with "
        "a smaller batch_size",
        passing=True,
    )


def _as_failure(error: Exception, timeout: float, call: Call) -> _Failure:
    reason: Any = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return _Failure(
            f"has a certificate that cannot be verified ({reason.verify_message}), and "
            "certificates are always verified: correct the certificate, or add its authority to "
            "this machine (or to a file that SSL_CERT_FILE names)",
            passing=False,
        )
    if isinstance(reason, TimeoutError):
        return _too_late(timeout)
    described = type(reason).__name__
    if isinstance(reason, OSError) or not call.secrets:  # else the words may be the server's
        described = printable(str(reason)[:QUOTED_CHARACTERS]) or described
    described = redacted(described, call.secrets)
    return _Failure(f"could not be reached, or broke off ({described})", passing=True)


def _check_status(status: int, headers: Mapping[str, str], quoted: str) -> None:
    if 200 <= status < 300:
        return
    passing = status == 429 or status >= 500
    wait = _retry_after(headers.get("Retry-After")) if passing else 0.0
    asked = f", asking to wait {wait:.0f} s" if wait else ""
    raise _Failure(f"answered with status {status}{asked}{quoted}", passing=passing, wait=wait)


def _retry_after(value: str | None) -> float:
    """Seconds in a Retry-After header, which holds a number or a date; 0 if there is none.

    >>> _retry_after("7"), _retry_after(None), _retry_after("soon")
    (7.0, 0.0, 0.0)
    """
    if value is None:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    with suppress(ValueError, OverflowError):  # a year beyond 9999, a zone of many hours
        when = parsedate_to_datetime(value)
        if when.tzinfo is not None:
            return max(0.0, (when - datetime.now(UTC)).total_seconds())
    return 0.0


def _redirected(url: str, location: str, secrets: tuple[str, ...] = ()) -> str:
    """Where a redirect leads, if that is the same server, or the same by TLS."""
    target = _joined(url, location)
    here, there = _origin(url), _origin(target)
    secured = ("https", here[1], 443) if here[::2] == ("http", 80) else here
    if there not in (here, secured):
        origin = redacted(printable(f"{there[0]}://{there[1]}:{there[2]}"), secrets)
        raise _Failure(
            f"redirects to {origin[:QUOTED_CHARACTERS]}, and a redirect to another server, "
            "or away from https, is not followed, since it would take rows and credentials "
            "there: state that address as the url",
            passing=False,
        )
    return target


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:  # such as a bracket that is not closed
        return location


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None


# A socket's own timeout starts again with every byte; these keep to one deadline for the answer.


@dataclass(frozen=True)
class _Limits:
    """When an answer must be there, and how many bytes it may have, its headers among them."""

    ends: float
    most_bytes: int


class _LimitedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, connected: socket, limits: _Limits) -> None:
        self.raw, self.connected, self.limits = raw, connected, limits
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.limits.ends - monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self.connected.settimeout(left)
        count = self.raw.readinto(buffer)
        self.bytes_read += count or 0
        if self.bytes_read > self.limits.most_bytes:
            raise _Failure("sends far more bytes than predictions take", passing=False)
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class _LimitedResponse(HTTPResponse):
    def __init__(self, limits: _Limits, connected: socket, *args: Any, **options: Any) -> None:
        super().__init__(connected, *args, **options)
        raw: Any = self.fp.detach()
        self.fp = io.BufferedReader(_LimitedReader(raw, connected, limits))


def _limited(connection: HTTPConnection, limits: _Limits) -> HTTPConnection:
    connection.response_class = partial(_LimitedResponse, limits)  # type: ignore[assignment]
    return connection


class _Http(HTTPHandler):
    def __init__(self, limits: _Limits) -> None:
        super().__init__()
        self.limits = limits

    def http_open(self, request: Request) -> HTTPResponse:
        def connect(host: str, **options: Any) -> HTTPConnection:
            return _limited(HTTPConnection(host, **options), self.limits)

        return self.do_open(connect, request)


class _Https(HTTPSHandler):
    def __init__(self, limits: _Limits) -> None:
        super().__init__(context=_verifying())
        self.limits = limits

    def https_open(self, request: Request) -> HTTPResponse:
        def connect(host: str, **options: Any) -> HTTPConnection:
            return _limited(HTTPSConnection(host, context=_verifying(), **options), self.limits)

        return self.do_open(connect, request)


@cache
def _verifying() -> ssl.SSLContext:
    """The rules of TLS: certificate and host name are checked; reading the authorities is slow."""
    return ssl.create_default_context()


class _Proxies(ProxyHandler):
    """The proxies that the environment names; never for this machine itself."""

    def proxy_open(self, request: Request, proxy: str, type: str) -> Any:
        if urlsplit(request.full_url).hostname in LOOPBACK:
            return None
        return super().proxy_open(request, proxy, type)


def _opener(limits: _Limits) -> OpenerDirector:
    """Open http and https addresses and nothing else; redirects and errors are left to us."""
    opener = OpenerDirector()
    for handler in (_Proxies(), _Http(limits), _Https(limits)):
        opener.add_handler(handler)
    return opener
