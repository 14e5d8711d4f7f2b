"""A model behind a web address as a candidate: its address, credentials and requests."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import isfinite
from random import Random
from threading import Event, local
from typing import Any, Unpack
from urllib.parse import SplitResult, quote, urlsplit
from zlib import crc32

import numpy as np

from localma._threads import map_in_daemons
from localma._types import Array, Float64, Json
from localma.candidates.batches import listed_rows
from localma.candidates.files.base import checked_count
from localma.candidates.http_post import (
    LOOPBACK,
    AnswerError,
    Call,
    Patience,
    ServerError,
    as_rows,
    post,
    read_json,
    read_predictions,
    redacted,
)
from localma.candidates.logits import LogitsCandidate, NetworkOptions
from localma.candidates.outputs import Rows, Table, Task
from localma.candidates.recipes import Address, ImportName, LogitsRecipe
from localma.errors import CandidateError, InvalidInputError, LocalMAError, unknown_name
from localma.imports import import_name
from localma.tables.frames import n_rows

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
OWN_HEADERS = ("host", "content-type", "content-length", "transfer-encoding", "connection")
PUBLIC_PARAMETERS = (
    *("alt", "api-version", "deployment", "format", "lang", "language", "model", "model-name"),
    *("model-version", "project", "region", "v", "version"),
)
"""Query parameters whose values may be saved; _ counts as -."""
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
"""The name of an environment variable in an address."""

ANSWER_BYTES, ROW_BYTES, NUMBER_BYTES = 64 * 2**10, 4 * 2**10, 32
"""Allowed size of an answer: in total, and more for each row and each number."""
MAX_OUTPUTS = 1024
"""Allowed numbers per row of a model without classes."""
MAX_RESPONSE_BYTES = 64 * 2**20
MAX_SECONDS = 1e9
"""Clocks of sockets and locks do not count much further."""

_this_thread = local()
"""`stopped` is the event that ends the retries of one call of `predict`."""

Columns = list[str] | None
BuildDocument = Callable[[Columns, list[Json]], object]


FORMATS = ("columns", "instances", "mlflow")


def _document(format: str, columns: Columns, rows: list[Json]) -> dict[str, object]:
    if format == "columns":
        return {"columns": columns, "rows": rows}
    if columns is None:
        return {{"instances": "instances", "mlflow": "inputs"}[format]: rows}
    if format == "mlflow":
        return {"dataframe_split": {"columns": columns, "data": rows}}
    return {"instances": [dict(zip(columns, row, strict=True)) for row in rows]}  # type: ignore[arg-type]


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


class HttpCandidate(LogitsCandidate):
    """A model behind a web address, which receives batches of rows as JSON by POST.

    The candidate sends one of three documents. The server must return ``{"predictions": [...]}``
    with a number or a list of numbers per row, in the order of the rows. Missing values are sent
    as null.

    ============= ==========================================================================
    format        document; document for an X without column names
    ============= ==========================================================================
    "columns"     ``{"columns": ["a", "b"], "rows": [[1, 2], ...]}``; "columns" is null
    "instances"   ``{"instances": [{"a": 1, "b": 2}, ...]}``, of TensorFlow Serving, KServe and
                  Vertex AI; ``{"instances": [[1, 2], ...]}``
    "mlflow"      ``{"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], ...]}}``;
                  ``{"inputs": [[1, 2], ...]}``
    ============= ==========================================================================

    Failed or broken connections, attempts that take too long, and the statuses 429 and 5xx are
    tried again; other failures are not. Certificates are always verified, the proxies are those of
    the environment, and a redirect is followed only on the same server.

    Parameters
    ----------
    url : str
        The address, http or https. It is saved and shown, so it must not hold secrets: write
        ``{RENT_API_KEY}`` in the path or the query for the value of an environment variable. Query
        parameters need such a value, unless they are among `PUBLIC_PARAMETERS`.
    format : {"columns", "instances", "mlflow"}, default="columns"
        One of the documents above.
    request : callable, optional
        A function ``(columns, rows) -> document`` for any other document.
    response : callable, optional
        A function from the parsed JSON answer to the predictions.
    headers_from_env : dict of str to str, optional
        For each header, the environment variable that holds its whole value, such as
        ``{"Authorization": "RENT_API_KEY"}`` with ``Bearer ...`` in it. The variable is read at
        every call. Its value is never saved and never shown in an error. Such headers need https,
        except on this machine.
    timeout : float, default=30.0
        Seconds for one attempt, from connecting until the answer is read and parsed.
    retries : int, default=3
        Attempts after the first.
    backoff : float, default=0.5
        Seconds before the first retry, doubled before each further one. Each wait is shortened by a
        random share of up to a half.
    max_wait : float, default=60.0
        The longest wait between two attempts. If a server asks for more, it is given up.
    max_concurrency : int, default=4
        Number of batches sent at once.
    random_state : int, optional
        Seed of the random share of the waits.
    **options
        Options of every network:

        - `batch_size` : int, str or None. Rows per request; 256 by default.
        - `activation` : {"softmax", "sigmoid"} or None. How logits become probabilities.
        - `temperature` : float. Divisor of the logits; `calibrated` fits it.
        - `inputs` : columns, by name or position, or a function of X.
        - `classes` : labels of the columns of the probabilities.
        - `cost` : float. What a row costs, for budgets, such as the price of a call.

    Examples
    --------
    >>> HttpCandidate("https://rent.example/v1/predict?model=7", inputs=["area", "rooms"])
    HttpCandidate('rent.example/v1/predict')
    """

    kind = "http"
    _recipe_type = HttpRecipe

    def __init__(
        self,
        url: str,
        *,
        format: str = "columns",
        request: BuildDocument | None = None,
        response: Callable[[Any], Any] | None = None,
        headers_from_env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        backoff: float = 0.5,
        max_wait: float = 60.0,
        max_concurrency: int = 4,
        random_state: int | None = None,
        **options: Unpack[NetworkOptions],
    ) -> None:
        options.setdefault("batch_size", 256)
        super().__init__(**options)
        if format not in FORMATS:
            raise unknown_name("format", format, FORMATS)
        self.url = _checked_url(url)
        self.format, self.request, self.response = format, request, response
        for name, function in {"request": request, "response": response}.items():
            if function is not None and not callable(function):
                raise InvalidInputError(
                    f"{name} must be a function or None; received a {type(function).__name__}."
                )
        self.headers_from_env = _checked_headers(headers_from_env or {}, urlsplit(self.url))
        self.timeout = _checked_seconds("timeout", timeout, least=1e-3)
        self.retries = checked_count("retries", retries, least=0)
        self.backoff = _checked_seconds("backoff", backoff, least=0.0)
        self.max_wait = _checked_seconds("max_wait", max_wait, least=0.0)
        self.max_concurrency = checked_count("max_concurrency", max_concurrency, least=1)
        self.random_state = random_state if random_state is None else int(random_state)

    @property
    def label(self) -> str:
        """Host and path, without the query."""
        address = urlsplit(self.url)
        return f"{address.netloc}{address.path}".rstrip("/")

    @property
    def source(self) -> str:
        """The address without its query, which may hold private values."""
        address = urlsplit(self.url)
        return f"{address.scheme}://{address.netloc}{address.path}"

    def _network_identity(self) -> Hashable:
        converters = [(import_name(f) or id(f)) for f in (self.request, self.response)]
        return self.url, self.format, *converters, *sorted(self.headers_from_env.items())

    def _outputs(self, X: Table, task: Task) -> Float64:
        call, n = self._call(X), n_rows(X)
        document, excerpt = post(
            call,
            partial(_parsed, call, n),
            patience=Patience(self.timeout, self.retries, self.backoff, self.max_wait),
            jitter=self._jitter(call.body),
            stopped=getattr(_this_thread, "stopped", None) or Event(),
        )
        try:
            return read_predictions(document, n, self.response)
        except AnswerError as error:
            raise _wrong_answer(error, excerpt) from error
        except Exception as error:
            if not call.secrets:
                raise
            described = redacted(f"{type(error).__name__}: {error}", call.secrets)
        # Outside the handler, because that error may quote the server.
        raise ServerError(f"response= raised {described}.")

    def _call(self, X: Table) -> Call:
        body = self._body(*as_rows(X))
        credentials = _from_environment(self.headers_from_env, "header")
        names = {name: name for name in PLACEHOLDER.findall(self.url)}
        values = _from_environment(names, "part of the url")
        n_outputs = MAX_OUTPUTS
        if self.classes is not None:
            n_outputs = len(self.classes)
        # Some servers repeat the document that they received.
        size = ANSWER_BYTES + n_rows(X) * (ROW_BYTES + n_outputs * NUMBER_BYTES) + len(body)
        return Call(
            url=PLACEHOLDER.sub(lambda match: quote(values[match[1]], safe=""), self.url),
            body=body,
            headers=credentials,
            secrets=(*credentials.values(), *values.values()),
            max_bytes=min(size, MAX_RESPONSE_BYTES),
        )

    def _body(self, columns: Columns, rows: list[Json]) -> bytes:
        document = (self.request or partial(_document, self.format))(columns, rows)
        try:
            return json.dumps(document, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                "request= must return a document that can be written as JSON; it returned a "
                f"{type(document).__name__} ({error})."
            ) from error

    def _jitter(self, body: bytes) -> Random:
        if self.random_state is None:
            return Random()
        # The content is part of the seed, so that the order of the threads makes no difference.
        return Random(f"{self.random_state} {crc32(body)}")

    def _in_turn(self, ask: Callable[[slice], Array], batches: list[slice]) -> Iterator[Array]:
        """Send several batches at once; predictions come in the order of the rows."""
        stopped = Event()

        def guarded(batch: slice) -> Array:
            _this_thread.stopped = stopped
            if stopped.is_set():  # never shown: an earlier batch has failed
                raise LocalMAError("not sent, because another batch failed")
            try:
                return ask(batch)
            except BaseException:
                stopped.set()
                raise

        return map_in_daemons(guarded, batches, self.max_concurrency, stopped)

    def _failure(
        self, error: Exception, name: str, X: Table, rows: Rows | None, of: str = ""
    ) -> CandidateError:
        if isinstance(error, ServerError):
            numbers = range(n_rows(X)) if rows is None else rows
            error = ServerError(f"{listed_rows(numbers)}: {error}")
        return super()._failure(error, name, X, rows, of)


def _parsed(call: Call, n: int, answer: bytes) -> tuple[Json, str]:
    """The parsed answer, and its beginning for errors."""
    excerpt = call.excerpt(answer)
    try:
        return read_json(answer, n), excerpt
    except AnswerError as error:
        raise _wrong_answer(error, excerpt) from error


def _wrong_answer(error: AnswerError, excerpt: str) -> ServerError:
    return ServerError(
        'the server must answer with {"predictions": [...]}, one number or list of numbers per '
        f"row; it answered with {error}{excerpt}."
    )


def _from_environment(variables: Mapping[str, str], target: str) -> dict[str, str]:
    """Read the present values of environment variables."""
    values = {name: os.environ.get(variable, "") for name, variable in variables.items()}
    for name, value in values.items():
        if value and value.isascii() and value.isprintable():
            continue
        # The value itself must not be shown, even if it is wrong.
        problem = "is not set"
        if value:
            problem = f"has characters that are not allowed in a {target}"
        raise InvalidInputError(
            f"The {target} {name!r} is read from the environment variable {variables[name]!r}, "
            f"which {problem}: set it to the whole value."
        )
    return values


# The address.


def _checked_url(url: str) -> str:
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InvalidInputError(
            f"url must be an address that begins with http:// or https://; received "
            f"{_without_secrets(url)!r}."
        )
    try:
        address = urlsplit(url)
        host, _ = address.hostname, address.port
    except ValueError:
        host = None
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInputError(
            "url must have a host, a valid port and only ASCII characters without blanks (quote "
            f"others, such as %20); received {_without_secrets(url)!r}."
        )
    _check_placeholders(address)
    _refuse_secrets(address)
    return url.partition("#")[0]


def _without_secrets(url: str) -> str:
    """The part of a malformed address that can be shown."""
    if not isinstance(url, str):
        return type(url).__name__
    return url.partition("?")[0].rpartition("@")[2][:200]


def _check_placeholders(address: SplitResult) -> None:
    location = f"{address.path}?{address.query}"
    names = PLACEHOLDER.findall(location)
    remaining = PLACEHOLDER.sub("", location) + address.netloc
    if "{" in remaining or "}" in remaining or not all(name.isidentifier() for name in names):
        raise InvalidInputError(
            "A name in braces in the path or the query of a url stands for an environment "
            "variable, such as {RENT_API_KEY} (letters, digits and _; not in the host). The url "
            f"for {address.hostname!r} breaks this rule."
        )
    if names:
        _require_https(address, "write no environment variable into the url")


def _require_https(address: SplitResult, alternative: str) -> None:
    if address.scheme != "https" and address.hostname not in LOOPBACK:
        raise InvalidInputError(
            f"Credentials are only sent over https, but the address of {address.hostname!r} begins "
            f"with http://: use https, or {alternative}."
        )


def _refuse_secrets(address: SplitResult) -> None:
    """Refuse a possible secret: in a query, any value that is not known to be public."""
    if address.username is not None or address.password is not None:
        raise _holds_secret(address, "a user name or password before the '@'")
    if any(map(_looks_like_a_key, address.path.split("/"))):
        raise _holds_secret(address, "a key, it seems, in its path")
    for field in filter(None, address.query.split("&")):
        name, equals, value = field.partition("=")
        public = name.lower().replace("_", "-") in PUBLIC_PARAMETERS
        if not equals:
            raise _holds_secret(address, "a query without a name")
        if not PLACEHOLDER.fullmatch(value) and (not public or _looks_like_a_key(value)):
            raise _holds_secret(address, f"a value of the query parameter {name!r}")


def _holds_secret(address: SplitResult, secret: str) -> InvalidInputError:
    return InvalidInputError(
        "A url is saved and shown, so it must not hold credentials, but the one for "
        f"{address.hostname!r} holds {secret}. Put it into an environment variable and write the "
        "name of the variable in braces instead, such as {RENT_API_KEY}, or send it as a header: "
        "headers_from_env={'Authorization': 'RENT_API_KEY'}."
    )


def _looks_like_a_key(text: str) -> bool:
    """Whether letters and digits alternate as often as in a random key.

    >>> _looks_like_a_key("price-model-2024-05"), _looks_like_a_key("a83bc9d04ef17aa2")
    (False, True)
    """
    runs = re.findall(r"[A-Za-z0-9]{16,}", PLACEHOLDER.sub("/", text))
    return any(len(re.findall(r"[A-Za-z]+|[0-9]+", run)) > 3 for run in runs)


# Other options.


def _checked_headers(headers: Mapping[str, str], address: SplitResult) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise InvalidInputError(
            "headers_from_env must be a dict from header to environment variable, such as "
            f"{{'Authorization': 'RENT_API_KEY'}}; received a {type(headers).__name__}."
        )
    for header, variable in headers.items():
        named = isinstance(header, str) and isinstance(variable, str) and variable.isidentifier()
        if not named or not HEADER_NAME.fullmatch(header) or header.lower() in OWN_HEADERS:
            # Neither is shown, in case it is the credential itself.
            raise InvalidInputError(
                "headers_from_env maps the name of a header to the name of the environment "
                "variable that holds its value (letters, digits and _), and cannot set "
                f"{', '.join(OWN_HEADERS)}. One of the {len(headers)} received breaks this rule: "
                "write for example {'Authorization': 'RENT_API_KEY'}."
            )
    if headers:
        _require_https(address, "leave out headers_from_env")
    return dict(headers)


def _checked_seconds(name: str, seconds: float, *, least: float) -> float:
    number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if not number or not isfinite(seconds) or seconds < least:
        raise InvalidInputError(
            f"{name} must be a finite number of seconds, {least:g} or more; received {seconds!r}."
        )
    return min(float(seconds), MAX_SECONDS)
