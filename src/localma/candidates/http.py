"""A model behind a web address as a candidate."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import isfinite
from random import Random
from threading import Event, local
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, urlsplit
from zlib import crc32

import numpy as np

from localma._threads import thread_pool
from localma.candidates.base import (
    Address,
    BatchSize,
    ImportName,
    Inputs,
    LogitsCandidate,
    LogitsRecipe,
    listed_rows,
)
from localma.candidates.http_json import (
    FORMATS,
    LOOPBACK,
    AnswerError,
    ServerError,
    as_rows,
    excerpt,
    read_json,
    read_predictions,
)
from localma.candidates.outputs import Activation, Array, Classes, Rows, Table, Task
from localma.errors import CandidateError, InvalidInputError, LocalMAError, unknown_name
from localma.imports import import_name
from localma.tables.frames import n_rows

if TYPE_CHECKING:
    from localma.candidates.http_post import Call

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
OWN_HEADERS = ("host", "content-type", "content-length", "transfer-encoding", "connection")
PUBLIC_PARAMETERS = (
    *("alt", "api-version", "deployment", "format", "lang", "language", "model", "model-name"),
    *("model-version", "project", "region", "v", "version"),
)
"""Parameters of a query whose values are saved as they stand; _ counts as -."""
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
"""The name of an environment variable in an address."""

ANSWER_BYTES, ROW_BYTES, NUMBER_BYTES = 64 * 2**10, 4 * 2**10, 32
"""What an answer may have: for all, and for each row and each number more."""
MOST_OUTPUTS = 1024
"""Numbers per row of a model that states no classes."""
MAX_RESPONSE_BYTES = 64 * 2**20
LONGEST_SECONDS = 1e9
"""Clocks of sockets and locks do not count much further."""

_this_thread = local()
"""`stopped` is the event that ends the retries of one call of `predict`."""


@dataclass(frozen=True, kw_only=True)
class HttpRecipe(LogitsRecipe):
    """The address and the options."""

    kind = "http"
    url: Address
    format: str
    request: ImportName | None
    response: ImportName | None
    headers_from_env: dict[str, str]
    timeout: float
    retries: int
    backoff: float
    max_wait: float
    max_concurrency: int
    random_state: int | None

    def make(self) -> HttpCandidate:
        """Make it again. Imports functions, and its predictions call an address."""
        return HttpCandidate(**self.options())


class HttpCandidate(LogitsCandidate):
    """A model that answers on the web: JSON batches by POST, several at a time.

    What is sent is one of three documents, what comes back is ``{"predictions": [...]}`` with a
    number or a list of numbers per row, in their order. Missing values are sent as null.

    ============= ==========================================================================
    format        document; for an X without column names
    ============= ==========================================================================
    "columns"     ``{"columns": ["a", "b"], "rows": [[1, 2], ...]}``; "columns" is null
    "instances"   ``{"instances": [{"a": 1, "b": 2}, ...]}``, of TensorFlow Serving, KServe and
                  Vertex AI; ``{"instances": [[1, 2], ...]}``
    "mlflow"      ``{"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], ...]}}``;
                  ``{"inputs": [[1, 2], ...]}``
    ============= ==========================================================================

    A connection that fails or breaks off, an attempt that takes too long, and the statuses 429
    and 5xx are tried again; nothing else is. Certificates are always verified, proxies are those
    that the environment names, and a redirect is followed on the same server only.

    Parameters
    ----------
    url : the address, http or https. It is saved and shown, so it holds no secrets: write
        ``{RENT_API_KEY}`` in the path or the query for the value of an environment variable. Of
        the query only such values are accepted, and plain ones of `PUBLIC_PARAMETERS`.
    format : one of the documents above.
    request : a function ``(columns, rows) -> document`` for any other.
    response : a function from the answer, JSON already read, to the predictions.
    headers_from_env : header by header, the environment variable that holds its whole value, such
        as ``{"Authorization": "RENT_API_KEY"}`` with ``Bearer ...`` in it. Read at every call;
        never saved, nor part of an error. They need https, except on this machine itself.
    timeout : seconds for one attempt, from connecting until the answer is read and parsed.
    retries : attempts after the first.
    backoff : seconds before the first retry, doubled before each further one; a random part of
        up to a half is taken off.
    max_wait : the longest wait between two attempts; a server that asks for more is given up.
    max_concurrency : how many batches are under way at once.
    random_state : seed of the random part of the waits.
    batch_size : rows to a request.
    activation, temperature, inputs, classes, cost : as for every network.

    Examples
    --------
    >>> HttpCandidate("https://rent.example/v1/predict?model=7", inputs=["area", "rooms"])
    HttpCandidate('rent.example/v1/predict')
    """

    kind = "http"
    recipe_type = HttpRecipe

    def __init__(
        self,
        url: str,
        *,
        format: str = "columns",
        request: Callable[[list[str] | None, list[Any]], Any] | None = None,
        response: Callable[[Any], Any] | None = None,
        headers_from_env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        backoff: float = 0.5,
        max_wait: float = 60.0,
        max_concurrency: int = 4,
        random_state: int | None = None,
        activation: Activation | None = None,
        temperature: float = 1.0,
        inputs: Inputs = None,
        classes: Classes | None = None,
        cost: float = 1.0,
        batch_size: BatchSize = 256,
    ) -> None:
        super().__init__(
            activation=activation,
            temperature=temperature,
            inputs=inputs,
            classes=classes,
            cost=cost,
            batch_size=batch_size,
        )
        self.url = _checked_url(url)
        self.format, self.request, self.response = _checked_format(format, request, response)
        self.headers_from_env = _checked_headers(headers_from_env or {}, urlsplit(self.url))
        self.timeout = _checked_seconds("timeout", timeout, least=1e-3)
        self.retries = _checked_count("retries", retries, least=0)
        self.backoff = _checked_seconds("backoff", backoff, least=0.0)
        self.max_wait = _checked_seconds("max_wait", max_wait, least=0.0)
        self.max_concurrency = _checked_count("max_concurrency", max_concurrency, least=1)
        self.random_state = None if random_state is None else int(random_state)

    @property
    def label(self) -> str:
        """Host and path, without the query."""
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path}".rstrip("/")

    @property
    def source(self) -> str:
        """The address without its query, which may hold what nobody else should see."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

    def _network_identity(self) -> object:
        converters = tuple(_name_or_id(f) for f in (self.request, self.response))
        return self.url, self.format, converters, tuple(sorted(self.headers_from_env.items()))

    def _outputs(self, X: Table, task: Task) -> Array:
        # The client of the standard library is imported by those who need it only.
        from localma.candidates.http_post import Patience, post

        call, n = self._call(X), n_rows(X)
        document, beginning = post(
            call,
            partial(_document_and_excerpt, call, n),
            patience=Patience(self.timeout, self.retries, self.backoff, self.max_wait),
            jitter=self._jitter(call.body),
            stopped=getattr(_this_thread, "stopped", None) or Event(),
        )
        return self._predictions(document, n, call, beginning)

    def _predictions(self, document: Any, n: int, call: Call, beginning: str) -> Array:
        from localma.candidates.http_post import redacted

        try:
            return read_predictions(document, n, self.response)
        except AnswerError as error:
            raise _wrong_answer(error, beginning) from error
        except Exception as error:
            if not call.secrets:
                raise
            described = redacted(f"{type(error).__name__}: {error}", call.secrets)
        # Not in the handler: that error may repeat what the server sent.
        raise ServerError(f"response= raised {described}.")

    def _call(self, X: Table) -> Call:
        from localma.candidates.http_post import Call

        columns, rows = as_rows(X)
        body = _document(self.request or FORMATS[self.format], columns, rows)
        credentials = _from_environment(self.headers_from_env, "header")
        names = {name: name for name in PLACEHOLDER.findall(self.url)}
        values = _from_environment(names, "place in the url")
        url = PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), self.url)
        outputs = MOST_OUTPUTS if self.classes is None else len(self.classes)
        return Call(
            url=url,
            body=body,
            headers=credentials,
            secrets=(*credentials.values(), *values.values()),
            most_bytes=_most_bytes(n_rows(X), outputs, len(body)),
        )

    def _jitter(self, body: bytes) -> Random:
        # By content and not by turn, so that the order in which threads come has no say.
        return Random(None if self.random_state is None else f"{self.random_state} {crc32(body)}")

    def _in_turn(self, ask: Callable[[slice], Array], parts: list[slice]) -> Iterator[Array]:
        """Keep several batches under way; answers come in the order of the rows."""
        import_module("localma.candidates.http_post")  # here, and not in all threads at once
        stopped = Event()

        def guarded(part: slice) -> Array:
            if stopped.is_set():  # never seen: the batch that failed stands before this one
                raise LocalMAError("not asked, since another batch failed")
            try:
                return ask(part)
            except BaseException:
                stopped.set()
                raise

        mark = partial(setattr, _this_thread, "stopped", stopped)
        with thread_pool(min(self.max_concurrency, len(parts)), mark) as threads:
            try:
                for future in [threads.submit(guarded, part) for part in parts]:
                    yield future.result()
            finally:
                stopped.set()

    def _failure(
        self, error: Exception, name: str, X: Table, rows: Rows | None, of: str = ""
    ) -> CandidateError:
        if isinstance(error, ServerError):
            which = listed_rows(range(n_rows(X)) if rows is None else rows)
            error = ServerError(f"{which}: {error}")
        return super()._failure(error, name, X, rows, of)


def _document(build: Callable[..., Any], columns: list[str] | None, rows: list[Any]) -> bytes:
    document = build(columns, rows)
    try:
        return json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"request= must return what JSON can carry, and it returned a "
            f"{type(document).__name__} that it cannot ({error})."
        ) from error


def _document_and_excerpt(call: Call, n: int, answer: bytes) -> tuple[Any, str]:
    """What an answer holds, and its beginning for errors."""
    # A server may repeat what it was sent, credentials included.
    beginning = "" if call.secrets else excerpt(answer)
    try:
        return read_json(answer, n), beginning
    except AnswerError as error:
        raise _wrong_answer(error, beginning) from error


def _wrong_answer(error: AnswerError, beginning: str) -> ServerError:
    return ServerError(
        'the server must answer with {"predictions": [...]} and as many numbers, or lists of '
        f"numbers, as rows were sent; it answered with {error}{beginning}."
    )


def _most_bytes(rows: int, outputs: int, sent: int) -> int:
    """How large an answer about so many rows may be; some servers repeat what they were sent."""
    asked_for = rows * (ROW_BYTES + outputs * NUMBER_BYTES)
    return min(ANSWER_BYTES + asked_for + sent, MAX_RESPONSE_BYTES)


def _from_environment(variables: Mapping[str, str], what: str) -> dict[str, str]:
    """Values as the environment has them now, by the name of what they are for."""
    values = {name: os.environ.get(variable, "") for name, variable in variables.items()}
    for name, value in values.items():
        if not value or not value.isascii() or not value.isprintable():
            # The value itself must not be shown, wrong as it is.
            state = f"has characters that no {what} may have" if value else "is not set"
            raise InvalidInputError(
                f"The {what} {name!r} is read from the environment variable "
                f"{variables[name]!r}, which {state}: set it to the whole value."
            )
    return values


def _checked_url(url: Any) -> str:
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidInputError(
            f"url must be an address that begins with http:// or https://; received "
            f"{_without_secrets(url)!r}."
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInputError(
            "url must have a host, a valid port and no blanks or characters beyond ASCII (quote "
            f"them as %20); received {_without_secrets(url)!r}."
        )
    _check_placeholders(parts)
    _refuse_secrets(parts)
    return url.partition("#")[0]


def _check_placeholders(parts: SplitResult) -> None:
    names = PLACEHOLDER.findall(f"{parts.path}?{parts.query}")
    left = PLACEHOLDER.sub("", f"{parts.path}?{parts.query}") + parts.netloc
    if "{" in left or "}" in left or not all(name.isidentifier() for name in names):
        raise InvalidInputError(
            "A name in braces in the path or the query of a url stands for an environment "
            "variable, such as {RENT_API_KEY} (letters, digits and _; not in the host); the url "
            f"for {parts.hostname!r} breaks this rule."
        )
    if names and parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise _needs_https(parts, "use https, or write no environment variable into the url.")


def _needs_https(parts: SplitResult, way_out: str) -> InvalidInputError:
    return InvalidInputError(
        f"Credentials are sent over https only, and the address of {parts.hostname!r} begins with "
        f"http://: {way_out}"
    )


def _refuse_secrets(parts: SplitResult) -> None:
    """Refuse whatever may be a secret: of a query all that is not known to be public."""
    if parts.username is not None or parts.password is not None:
        raise _holds_secret(parts, "a user name or password before the '@'")
    for segment in parts.path.split("/"):
        if _looks_like_a_key(segment):
            raise _holds_secret(parts, "what looks like a key in its path")
    for field in filter(None, parts.query.split("&")):
        name, equals, value = field.partition("=")
        public = name.lower().replace("_", "-") in PUBLIC_PARAMETERS
        if not equals:
            raise _holds_secret(parts, "a query without a name")
        if not PLACEHOLDER.fullmatch(value) and (not public or _looks_like_a_key(value)):
            raise _holds_secret(parts, f"a value of the query parameter {name!r}")


def _holds_secret(parts: SplitResult, what: str) -> InvalidInputError:
    return InvalidInputError(
        "A url is saved and shown, so it must not hold credentials, and this one for "
        f"{parts.hostname!r} holds {what}. Put it into an environment variable and write that "
        "name in braces in its place, such as {RENT_API_KEY}, or send it as a header: "
        "headers_from_env={'Authorization': 'RENT_API_KEY'}."
    )


def _looks_like_a_key(text: str) -> bool:
    """Whether letters and digits change places as often as in a random key.

    >>> _looks_like_a_key("price-model-2024-05"), _looks_like_a_key("a83bc9d04ef17aa2")
    (False, True)
    """
    runs = re.findall(r"[A-Za-z0-9]{16,}", PLACEHOLDER.sub("/", text))
    return any(len(re.findall(r"[A-Za-z]+|[0-9]+", run)) > 3 for run in runs)


def _without_secrets(url: Any) -> str:
    """What can be shown of an address that is not even well formed."""
    text = url if isinstance(url, str) else type(url).__name__
    return text.partition("?")[0].rpartition("@")[2][:200]


def _checked_format(format: Any, request: Any, response: Any) -> tuple[str, Any, Any]:
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    for name, converter in (("request", request), ("response", response)):
        if converter is not None and not callable(converter):
            raise InvalidInputError(
                f"{name} must be a function or None; received a {type(converter).__name__}."
            )
    return format, request, response


def _checked_headers(headers: Any, parts: SplitResult) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise InvalidInputError(
            "headers_from_env must be a dict from header to environment variable, such as "
            f"{{'Authorization': 'RENT_API_KEY'}}; received a {type(headers).__name__}."
        )
    for header, variable in headers.items():
        named = isinstance(header, str) and isinstance(variable, str) and variable.isidentifier()
        if not named or not HEADER_NAME.fullmatch(header) or header.lower() in OWN_HEADERS:
            # Neither is shown: somebody may have written the credential in place of its name.
            raise InvalidInputError(
                "headers_from_env maps the name of a header to the name of the environment "
                "variable that holds its value (letters, digits and _), and sets none of "
                f"{', '.join(OWN_HEADERS)}; one of the {len(headers)} received breaks this rule: "
                "write for example {'Authorization': 'RENT_API_KEY'}."
            )
    if headers and parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise _needs_https(parts, "use https, or leave out headers_from_env.")
    return dict(headers)


def _checked_seconds(name: str, seconds: Any, *, least: float) -> float:
    number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not number or not isfinite(seconds) or seconds < least:
        raise InvalidInputError(
            f"{name} must be a finite number of seconds, {least:g} or more; received {seconds!r}."
        )
    return min(float(seconds), LONGEST_SECONDS)


def _checked_count(name: str, count: Any, *, least: int) -> int:
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    if not whole or count < least:
        raise InvalidInputError(
            f"{name} must be a whole number, {least} or more; received {count!r}."
        )
    return int(count)


def _name_or_id(function: Any) -> object:
    return None if function is None else import_name(function) or id(function)
