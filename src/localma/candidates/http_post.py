"""One JSON document sent to a web endpoint, its answer brought back: bounded in time and size.

The standard library does it all: certificates are always verified, a redirect never takes the
credentials elsewhere, and what may pass (a broken connection, a busy server) is tried again.
"""

from __future__ import annotations

import io
import ssl
from collections.abc import Mapping
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
from typing import Any
from urllib.error import URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from localma.candidates.http_json import LOOPBACK, ServerError, excerpt

MAX_RESPONSE_BYTES = 64 * 2**20
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 307, 308)  # 303 asks for a GET, which would lose the rows
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Patience:
    """How long to wait for an answer, and how often to ask again.

    timeout : seconds for one attempt, from connecting to the last byte of the answer.
    retries : attempts after the first.
    backoff : seconds before the first retry; doubled before each further one.
    max_wait : the longest wait between two attempts, whatever the server asks for.
    """

    timeout: float
    retries: int
    backoff: float
    max_wait: float


class _Failure(Exception):
    """One attempt that came to nothing.

    passing : whether another attempt may do better.
    wait : seconds that the server asks to wait; 0 if it did not ask.
    """

    def __init__(self, what: str, *, passing: bool, wait: float = 0.0) -> None:
        super().__init__(what)
        self.passing, self.wait = passing, wait


def post(
    url: str,
    body: bytes,
    credentials: Mapping[str, str],
    *,
    patience: Patience,
    jitter: Random,
    stopped: Event,
) -> bytes:
    """Send a JSON document and return the body of the answer, after as many attempts as allowed.

    Parameters
    ----------
    url : where to.
    body : the JSON document.
    credentials : further headers, never repeated in an error.
    patience : time limits and retries.
    jitter : spreads the waits of many callers between a half and the whole of the back-off.
    stopped : once it is set nothing is tried again.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"User-Agent": "localma", **credentials}
    for attempt in range(patience.retries + 1):
        try:
            return _followed(url, body, headers, patience.timeout, quote=not credentials)
        except _Failure as failure:
            wait = _wait(failure, attempt, patience, jitter)
            if wait is None or stopped.wait(wait):
                tried = "" if attempt == 0 else f" (attempt {attempt + 1})"
                raise ServerError(f"the server {failure}{tried}.") from failure
    raise AssertionError("the last attempt returns or raises")


def _wait(failure: _Failure, attempt: int, patience: Patience, jitter: Random) -> float | None:
    """Seconds before the next attempt; None if there is to be none."""
    if not failure.passing or attempt >= patience.retries or failure.wait > patience.max_wait:
        return None
    backoff = min(patience.backoff * 2.0**attempt, patience.max_wait)
    return max(failure.wait, backoff * jitter.uniform(0.5, 1.0))


def _followed(
    url: str, body: bytes, headers: Mapping[str, str], timeout: float, *, quote: bool
) -> bytes:
    """One attempt, over as many redirects as stay with the same server."""
    ends = monotonic() + timeout
    for _ in range(MAX_REDIRECTS + 1):
        status, answer_headers, answer = _exchange(url, body, headers, ends, timeout)
        location = answer_headers.get("Location")
        if status not in REDIRECTS or not location:
            _check_status(status, answer_headers, excerpt(answer) if quote else "")
            return answer
        url = _redirected(url, location)
    raise _Failure(f"redirected more than {MAX_REDIRECTS} times", passing=False)


def _exchange(
    url: str, body: bytes, headers: Mapping[str, str], ends: float, timeout: float
) -> tuple[int, Mapping[str, str], bytes]:
    request = Request(url, data=body, headers=dict(headers), method="POST")
    try:
        with _opener(ends).open(request, timeout=max(ends - monotonic(), 1e-3)) as response:
            return response.status, response.headers, _read(response)
    except (OSError, HTTPException) as error:
        raise _as_failure(error, timeout) from error


def _read(response: HTTPResponse) -> bytes:
    answer = response.read(MAX_RESPONSE_BYTES + 1)
    if len(answer) > MAX_RESPONSE_BYTES:
        raise _Failure(
            f"answered with more than {MAX_RESPONSE_BYTES // 2**20} MiB: send fewer rows at a "
            "time with a smaller batch_size",
            passing=False,
        )
    if response.length:  # a read of so many bytes does not notice that they were cut short
        raise IncompleteRead(answer, response.length)
    return answer


def _as_failure(error: Exception, timeout: float) -> _Failure:
    reason: Any = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return _Failure(
            f"has a certificate that cannot be verified ({reason.verify_message}), and "
            "certificates are always verified: correct the certificate, or add its authority to "
            "this machine (or to a file that SSL_CERT_FILE names)",
            passing=False,
        )
    if isinstance(reason, TimeoutError):
        return _Failure(
            f"did not answer within {timeout:g} s: raise timeout=, or send fewer rows at a time "
            "with a smaller batch_size",
            passing=True,
        )
    described = str(reason) or type(reason).__name__
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
    with suppress(ValueError):
        when = parsedate_to_datetime(value)
        if when.tzinfo is not None:
            return max(0.0, (when - datetime.now(UTC)).total_seconds())
    return 0.0


def _redirected(url: str, location: str) -> str:
    """Where a redirect leads, if that is the same server, or the same by TLS."""
    target = urljoin(url, location)
    here, there = _origin(url), _origin(target)
    secured = ("https", here[1], 443) if here[::2] == ("http", 80) else here
    if there not in (here, secured):
        raise _Failure(
            f"redirects to {there[0]}://{there[1]}:{there[2]}, and a redirect to another server, "
            "or away from https, is not followed, since it would take rows and credentials "
            "there: state that address as the url",
            passing=False,
        )
    return target


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None


# A socket's own timeout starts again with every byte; these keep to one deadline for the answer.


class _TimedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, connected: socket, ends: float) -> None:
        self.raw, self.connected, self.ends = raw, connected, ends

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.ends - monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self.connected.settimeout(left)
        return self.raw.readinto(buffer)

    def close(self) -> None:
        self.raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, ends: float, connected: socket, *args: Any, **options: Any) -> None:
        super().__init__(connected, *args, **options)
        raw: Any = self.fp.detach()
        self.fp = io.BufferedReader(_TimedReader(raw, connected, ends))


def _timed(connection: HTTPConnection, ends: float) -> HTTPConnection:
    connection.response_class = partial(_TimedResponse, ends)  # type: ignore[assignment]
    return connection


class _Http(HTTPHandler):
    def __init__(self, ends: float) -> None:
        super().__init__()
        self.ends = ends

    def http_open(self, request: Request) -> HTTPResponse:
        def connect(host: str, **options: Any) -> HTTPConnection:
            return _timed(HTTPConnection(host, **options), self.ends)

        return self.do_open(connect, request)


class _Https(HTTPSHandler):
    def __init__(self, ends: float) -> None:
        super().__init__(context=_verifying())
        self.ends = ends

    def https_open(self, request: Request) -> HTTPResponse:
        def connect(host: str, **options: Any) -> HTTPConnection:
            return _timed(HTTPSConnection(host, context=_verifying(), **options), self.ends)

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


def _opener(ends: float) -> OpenerDirector:
    """Open http and https addresses and nothing else; redirects and errors are left to us."""
    opener = OpenerDirector()
    for handler in (_Proxies(), _Http(ends), _Https(ends)):
        opener.add_handler(handler)
    return opener
