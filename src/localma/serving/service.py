"""Answers to requests: the model that answers, its limits, and what is counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from localma import inspection
from localma._types import Json
from localma.candidates.outputs import Table
from localma.production import Answer
from localma.production.options import Options
from localma.serving.limits import Admission, BusyError, Crew
from localma.serving.loaded import QUICK_ROWS, Loaded, options_of
from localma.serving.logs import event
from localma.serving.metrics import Metrics, Observer
from localma.serving.protocol import (
    InferRequest,
    RequestError,
    Wanted,
    as_json,
    encode_response,
)
from localma.serving.settings import Settings
from localma.tables.frames import n_rows

MOST_EXPLAINED = 100
"""Rows of a request for explanations."""
LEEWAY = 1.0
"""Seconds beyond the deadline of an answer after which its thread is given up."""
SLOW_SECONDS, MOST_SLOW = 0.1, 3
"""Answers in a row that may hold up the event loop for so long; later ones get a thread."""
Work = Callable[[], "Reply"]
FAILURES = "failures"
"""Parameter of a response that names candidates that failed, and why."""


@dataclass(frozen=True)
class Reply:
    """The body of a response.

    Parameters
    ----------
    body : bytes
        JSON, and binary tensors after it.
    header_length : int or None
        Bytes of the JSON, if binary tensors follow.
    rows : int
        Rows of the request.
    failures : tuple of str
        Candidates that failed, with the reason.
    """

    body: bytes
    header_length: int | None
    rows: int
    failures: tuple[str, ...] = ()


class Service:
    """One process of a service.

    Parameters
    ----------
    settings : Settings
        The settings.
    loaded : Loaded
        The model that answers.
    metrics : Metrics
        What is counted.
    observer : Observer, optional
        Sees every answer, such as a monitor of drift.
    """

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        metrics: Metrics,
        observer: Observer | None = None,
    ) -> None:
        self.settings, self.loaded, self.metrics = settings, loaded, metrics
        self.observer = observer
        self.turns = Admission(settings.concurrency, settings.queue)
        self.crew = Crew(settings.concurrency)
        self.inside = self.slow = 0
        self.is_ending = False
        metrics.count_load(is_loaded=True)

    def replace(self, loaded: Loaded, observer: Observer | None = None) -> None:
        """Answer with another model from now on; answers under way keep theirs."""
        self.close()
        self.loaded, self.observer, self.slow = loaded, observer, 0
        self.metrics.count_load(is_loaded=True)

    def close(self) -> None:
        """Tell the observer that it has seen the last answer."""
        if self.observer is not None:
            self._observed(self.observer.close)

    def _observed(self, tell: Callable[[], None]) -> None:
        """Tell the observer something; an answer must not fail because of it."""
        try:
            tell()
        except Exception as error:
            event("monitor failed", level=logging.ERROR, error_type=type(error).__name__)

    def check_room(self) -> None:
        """Refuse a request whose body would only wait."""
        most = self.settings.concurrency + self.settings.queue
        if self.inside >= most:
            raise BusyError(
                f"The service is busy with {most} requests. Try again later.", status=429
            )

    async def infer(self, request: InferRequest, began: float) -> Reply:
        """Answer a request for predictions."""
        loaded = self.loaded
        X = self._table(loaded, request, self.settings.max_rows)
        wanted = loaded.schema.chosen(request.outputs, request.is_binary)
        n = n_rows(X)
        if loaded.is_quick and n <= QUICK_ROWS and self.slow < MOST_SLOW:
            options = options_of(request.parameters, None)
            if options.deadline is None and options.timeout is None:
                answer = self._computed(loaded, X, options)
                self._note_slow(answer.seconds)
                return self._reply(loaded, request, answer, wanted)

        def work() -> Reply:
            options = options_of(request.parameters, self._seconds_left(began))
            answer = self._computed(loaded, X, options)
            return self._reply(loaded, request, answer, wanted)

        return await self._in_turn(work, began)

    def _note_slow(self, seconds: float) -> None:
        """Count answers in a row that held up the event loop."""
        self.slow = self.slow + 1 if seconds > SLOW_SECONDS else 0
        if self.slow == MOST_SLOW:
            event("answers in threads", level=logging.WARNING, seconds=round(seconds, 3))

    async def explain(self, request: InferRequest, began: float) -> Reply:
        """Explain the prediction of each row of a request."""
        loaded = self.loaded
        X = self._table(loaded, request, MOST_EXPLAINED)
        if request.outputs is not None or request.parameters:
            raise RequestError("An explanation takes inputs and id. Leave out the other fields.")

        def work() -> Reply:
            n = n_rows(X)
            explanations: list[Json] = [
                inspection.explain(loaded.model, X, row).to_dict() for row in range(n)
            ]
            document = self._head(loaded, request) | {"explanations": explanations}
            return Reply(as_json(document), None, n)

        return await self._in_turn(work, began)

    def _table(self, loaded: Loaded, request: InferRequest, most: int) -> Table:
        rows = max(tensor.shape[0] for tensor in request.inputs)
        if rows > most:
            raise RequestError(
                f"A request may have {most} rows; received {rows}. Send several requests.",
                status=413,
            )
        return loaded.schema.table(request.inputs)

    async def _in_turn(self, work: Work, began: float) -> Reply:
        """Compute in a thread, when it is the turn of this request."""
        async with self.turns.turn(self._seconds_left(began)):
            left = self._seconds_left(began)
            try:
                return await asyncio.wait_for(self.crew.run(work), left + LEEWAY)
            except TimeoutError:
                raise BusyError(
                    f"The answer took longer than {self.settings.timeout:g} s.", status=503
                ) from None

    def _seconds_left(self, began: float) -> float:
        left = began + self.settings.timeout - monotonic()
        if left <= 0:
            raise BusyError(
                f"No time is left: a request has {self.settings.timeout:g} s.", status=503
            )
        return left

    def _computed(self, loaded: Loaded, X: Table, options: Options) -> Answer:
        answer = loaded.answer(X, options)
        self.metrics.count_answer(answer)
        observer = self.observer
        if observer is not None and loaded is self.loaded:
            self._observed(lambda: observer.observe(X, answer))
        return answer

    def _reply(
        self, loaded: Loaded, request: InferRequest, answer: Answer, wanted: list[Wanted]
    ) -> Reply:
        document = self._head(loaded, request)
        failures = tuple(dict.fromkeys(f"{f.candidate}: {f.reason}" for f in answer.failures))
        if failures:
            document["parameters"] = {FAILURES: "; ".join(failures)}
        body, length = encode_response(document, loaded.schema.results(answer, wanted))
        return Reply(body, length, len(answer.weights), failures)

    def _head(self, loaded: Loaded, request: InferRequest) -> dict[str, Json]:
        head: dict[str, Json] = {
            "model_name": self.settings.name,
            "model_version": loaded.version,
        }
        if request.id is not None:
            head["id"] = request.id
        return head
