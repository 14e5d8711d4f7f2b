"""The HTTP interface of a service."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import localma
from localma._threads import start_daemon
from localma._types import Json
from localma.errors import CandidateError, InvalidInputError, NoAnswerError
from localma.serving.documents import ANSWERS, BODY, HEADER, SCHEMAS, answers, path_parameters
from localma.serving.limits import RETRY_AFTER, BusyError
from localma.serving.loaded import Watch
from localma.serving.logs import event
from localma.serving.protocol import (
    RequestError,
    as_json,
    error_document,
    parse_request,
)
from localma.serving.service import Service
from localma.serving.settings import TOKEN, Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Headers = Mapping[bytes, bytes]
"""Headers of a request as ASGI has them; their names are in small letters."""
JSON, BINARY = "application/json", "application/octet-stream"
HEADER_LENGTH = "Inference-Header-Content-Length"
VERSION = "/versions/{version}"
ANSWERED = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/(infer|explain)")
"""Paths of requests for answers: the model, its version and what is asked for."""
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
REFUSAL_SECONDS = 0.2
"""Seconds that a refusal takes."""
EXTENSIONS = ["binary_tensor_data"]
OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no token, since they tell nothing."""
UNROUTED = {
    404: "There is nothing at this path. GET /openapi.json lists the paths.",
    405: "This path has another method. GET /openapi.json lists the paths with their methods.",
}
INTERNAL = "Internal error. The log of the service has it under the id of the request."


def make_app(service: Service, watch: Watch | None = None) -> FastAPI:
    """Make the application of one process.

    Parameters
    ----------
    service : Service
        Answers the requests.
    watch : Watch, optional
        Replaces the model of the service when its file changes.

    Returns
    -------
    FastAPI
        The application.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if watch is not None:
            start_daemon(watch.run)
        event("ready", model=service.settings.name, version=service.loaded.version)
        yield
        service.is_ending = True
        if watch is not None:
            watch.stopped.set()
        event("stopped")

    app = FastAPI(
        title="localma",
        version=localma.__version__,
        description="A localized average of trained models, by the Open Inference Protocol.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        openapi_tags=None,
    )
    _add_health(app, service)
    _add_models(app, service)
    _add_answers(app, service)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(Door, service=service)
    app.openapi = _documented(app)  # type: ignore[method-assign]
    return app


def _documented(app: FastAPI) -> Callable[[], dict[str, Json]]:
    make = app.openapi

    def openapi() -> dict[str, Json]:
        document = make()
        document.setdefault("components", {}).setdefault("schemas", {}).update(SCHEMAS)
        return document

    return openapi


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/v2/health/live", responses=answers(503))
    async def live() -> Response:
        """Whether the process works."""
        return _document({"live": True})

    @app.get("/v2/health/ready", responses=answers(503))
    async def ready() -> Response:
        """Whether the service takes requests."""
        return _readiness(service)

    @app.get(
        "/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    )
    async def metrics() -> Response:
        """Metrics in the format of Prometheus."""
        service.metrics.note_states(service.loaded.model, service.turns.under_way, service.observer)
        return Response(service.metrics.text(), media_type=service.metrics.content_type)


def _readiness(service: Service) -> Response:
    if service.is_ending:
        return _document({"error": "The service is ending."}, status=503)
    return _document({"ready": True})


def _add_models(app: FastAPI, service: Service) -> None:
    @app.get("/v2", responses=answers())
    async def server() -> Response:
        """The name and the version of the server."""
        return _document(
            {"name": "localma", "version": localma.__version__, "extensions": list(EXTENSIONS)}
        )

    async def model(request: Request) -> Response:
        """The inputs and outputs of the model."""
        _check_path(service, request)
        return _document(service.loaded.metadata(service.settings.name))

    async def model_ready(request: Request) -> Response:
        """Whether the model answers."""
        _check_path(service, request)
        return _readiness(service)

    for ending, endpoint in {"": model, "/ready": model_ready}.items():
        for version in ("", VERSION):
            app.add_api_route(
                f"/v2/models/{{name}}{version}{ending}",
                endpoint,
                responses=answers(404, 503),
                openapi_extra={"parameters": path_parameters(service.settings.name, bool(version))},
            )


def _check_path(service: Service, request: Request) -> None:
    path = request.path_params
    _check_model(service, path["name"], path.get("version"))


def _check_model(service: Service, name: str, version: str | None) -> None:
    if name != service.settings.name:
        raise RequestError(
            f"There is no model {name[:80]!r}; this service has {service.settings.name!r}.",
            status=404,
        )
    if version not in (None, service.loaded.version):
        raise RequestError(
            f"The model has version {service.loaded.version!r}; asked for {str(version)[:80]!r}.",
            status=404,
        )


def _add_answers(app: FastAPI, service: Service) -> None:
    async def infer(request: Request) -> Response:
        """Predictions for the rows of a request."""
        return await _routed(service, request, "infer")

    async def explain(request: Request) -> Response:
        """The weights and predictions of the candidates behind each prediction."""
        return await _routed(service, request, "explain")

    for endpoint in (infer, explain):
        for version in ("", VERSION):
            names = path_parameters(service.settings.name, bool(version))
            app.add_api_route(
                f"/v2/models/{{name}}{version}/{endpoint.__name__}",
                endpoint,
                methods=["POST"],
                responses=ANSWERS,
                openapi_extra={"requestBody": BODY, "parameters": [*names, HEADER]},
            )


async def _routed(service: Service, request: Request, endpoint: str) -> Response:
    """Answer a request that the router of FastAPI received."""
    path, headers = request.path_params, dict(request.headers.raw)
    name, version = path["name"], path.get("version")
    return await _answered(
        service, request.scope, headers, request.receive, name, version, endpoint
    )


async def _answered(
    service: Service,
    scope: Scope,
    headers: Headers,
    receive: Receive,
    name: str,
    version: str | None,
    endpoint: str,
) -> Response:
    """Read a request, compute, and write the response."""
    state = scope["state"]
    _check_model(service, name, version)
    service.check_room()
    service.inside += 1
    try:
        body = await _read_body(headers, receive, service.settings)
        parsed = parse_request(body, _header_length(headers))
        compute = service.infer if endpoint == "infer" else service.explain
        reply = await compute(parsed, state["began"])
    finally:
        service.inside -= 1
    state["fields"] = {"rows": reply.rows}
    if reply.failures:
        state["fields"]["failures"] = list(reply.failures)
    if reply.header_length is None:
        return Response(reply.body, media_type=JSON)
    return Response(
        reply.body, media_type=BINARY, headers={HEADER_LENGTH: str(reply.header_length)}
    )


async def _read_body(headers: Headers, receive: Receive, settings: Settings) -> bytes:
    """Read the body within a limit of bytes and of time."""
    most, seconds = settings.max_body, settings.timeout
    if b"content-encoding" in headers:
        raise RequestError("A compressed body is not supported. Send it as it is.", status=415)
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    chunks, size, is_whole = [], 0, False
    try:
        async with asyncio.timeout(seconds):
            while not is_whole:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunks.append(message.get("body", b""))
                size, is_whole = size + len(chunks[-1]), not message.get("more_body", False)
                if size > most:
                    raise _too_large(most)
    except TimeoutError:
        raise RequestError(f"The body did not arrive within {seconds:g} s.", status=408) from None
    return b"".join(chunks)


def _too_large(most: int) -> RequestError:
    return RequestError(f"A request may have {most} bytes. Send fewer rows.", status=413)


def _header_length(headers: Headers) -> int | None:
    given = headers.get(HEADER_LENGTH.lower().encode())
    if given is None:
        return None
    value = given.decode("latin-1")
    if not re.fullmatch(r"[0-9]{1,10}", value):
        raise RequestError(f"{HEADER_LENGTH} must be a number of bytes; received {value[:40]!r}.")
    return int(value)


def _document(document: Mapping[str, Json], status: int = 200) -> Response:
    return Response(as_json(document), status, media_type=JSON)


async def _http_error(request: Request, error: Exception) -> Response:
    """Errors of the router in the form of the protocol."""
    assert isinstance(error, HTTPException)
    message = UNROUTED.get(error.status_code, str(error.detail))
    return Response(error_document(message), error.status_code, dict(error.headers or {}), JSON)


def error_response(error: Exception) -> Response:
    """The response for an error: the status and the reason.

    Parameters
    ----------
    error : Exception
        What a request has raised.

    Returns
    -------
    Response
        400 and others for errors of the client, 429 and 503 if it may try again, and 500.

    Examples
    --------
    >>> error_response(RequestError("No inputs.")).status_code
    400
    """
    status, message = 500, INTERNAL
    if isinstance(error, RequestError):
        status, message = error.status, error.plain
    elif isinstance(error, NoAnswerError | CandidateError):
        status, message = 503, error.plain
    elif isinstance(error, InvalidInputError):
        status, message = 400, error.plain
    elif isinstance(error, ClientDisconnect):
        status, message = 499, "The client is gone."
    headers = {"Retry-After": str(RETRY_AFTER)} if status in (429, 503) else None
    return Response(error_document(message), status, headers, JSON)


class Door:
    """The first and last step of every request: id, token, errors, count and log.

    Parameters
    ----------
    app : ASGI application
        Answers the requests.
    service : Service
        Its metrics count them.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self.token = os.environ.get(TOKEN, "").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = monotonic()
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id", b""))
        state = scope.setdefault("state", {})
        state["began"] = began
        status, endpoint = 500, ""

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        error: Exception | None = None
        try:
            if self._is_refused(scope, headers):
                response = Response(
                    error_document(f"Send the token of {TOKEN}: Authorization: Bearer ..."),
                    401,
                    {"WWW-Authenticate": "Bearer"},
                    JSON,
                )
                await response(scope, receive, answering)
            elif answered := scope["method"] == "POST" and ANSWERED.fullmatch(scope["path"]):
                # The router of FastAPI would take as long as a small answer.
                name, version, endpoint = answered.groups()
                response = await _answered(
                    self.service, scope, headers, receive, name, version, endpoint
                )
                await response(scope, receive, answering)
            else:
                await self.app(scope, receive, answering)
        except Exception as raised:
            error = raised
            if isinstance(error, BusyError):
                # A client that tries again at once would take the time of those that are answered.
                await asyncio.sleep(REFUSAL_SECONDS)
            await error_response(error)(scope, receive, answering)
        finally:
            endpoint = endpoint or getattr(scope.get("route"), "name", "other")
            self._note(scope, request_id, endpoint, status, monotonic() - began, error)

    def _is_refused(self, scope: Scope, headers: Headers) -> bool:
        if not self.token or scope["path"] in OPEN_PATHS:
            return False
        expected = b"Bearer " + self.token
        return not hmac.compare_digest(headers.get(b"authorization", b""), expected)

    def _note(
        self,
        scope: Scope,
        request_id: str,
        endpoint: str,
        status: int,
        seconds: float,
        error: Exception | None,
    ) -> None:
        self.service.metrics.count_request(endpoint, status, seconds)
        fields: dict[str, Json] = {
            "request_id": request_id,
            "method": scope["method"],
            "endpoint": endpoint,
            "status": status,
            "ms": round(1e3 * seconds, 3),
            **scope["state"].get("fields", {}),
        }
        if error is not None:
            fields["error_type"] = type(error).__name__
        if isinstance(error, CandidateError):
            fields["candidate"] = error.candidate
        level = logging.ERROR if status >= 500 else logging.INFO
        event("request", level=level, **fields)


def _request_id(given: bytes) -> str:
    """The id that the client sent, if it is harmless in a log; otherwise a new one."""
    text = given.decode("latin-1")
    return text if REQUEST_ID.fullmatch(text) else os.urandom(16).hex()
