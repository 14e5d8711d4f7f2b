"""Metrics of a service in the format of Prometheus, through its official client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from localma._optional import optional
from localma.candidates.outputs import Table
from localma.production import Answer
from localma.production.health import health
from localma.serving.schema import Model

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of the client: the folder that the processes of a service share."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STATES = {"closed": 0, "half-open": 1, "open": 2}


class Observer(Protocol):
    """Something that sees every answer, such as a monitor of drift.

    `observe` is called in the thread that computed the answer, after the answer. It must be quick
    and safe to call from several threads; what it raises is logged, and changes no answer. `gauges`
    is called for each scrape of the metrics, and `close` after the last answer.

    Examples
    --------
    >>> class Count:
    ...     rows = 0
    ...
    ...     def observe(self, X, answer):
    ...         self.rows += len(answer.weights)
    ...
    ...     def gauges(self):
    ...         return {"rows": self.rows}
    ...
    ...     def close(self): ...
    >>> Count().gauges()
    {'rows': 0}
    """

    def observe(self, X: Table, answer: Answer) -> None:
        """Take note of rows and their answer.

        Parameters
        ----------
        X : array or data frame of shape (n, p)
            The rows.
        answer : Answer
            The answer.
        """

    def gauges(self) -> Mapping[str, float]:
        """Return numbers to publish.

        Returns
        -------
        dict of str -> float
            The numbers, by a name of letters, digits and underscores.
        """

    def close(self) -> None:
        """Keep what must not be lost; the service ends, or has another model."""


class Metrics:
    """The metrics of one process.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.count_request("infer", 200, 0.002)
    >>> [line for line in metrics.text().decode().splitlines() if "requests_total{" in line]
    ['localma_requests_total{endpoint="infer",status="200"} 1.0']
    """

    def __init__(self) -> None:
        client = optional("prometheus_client", extra="serve")
        self.client = client
        self.registry = registry = client.CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            made: Counter = client.Counter(f"localma_{name}", text, labels, registry=registry)
            return made

        def gauge(name: str, text: str, *labels: str, how: str = "livemax") -> Gauge:
            made: Gauge = client.Gauge(
                f"localma_{name}", text, labels, registry=registry, multiprocess_mode=how
            )
            return made

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            made: Histogram = client.Histogram(
                f"localma_{name}", text, labels, registry=registry, buckets=SECONDS
            )
            return made

        self.requests = counter("requests", "Requests by status.", "endpoint", "status")
        self.seconds = histogram("request_seconds", "Time of requests.", "endpoint")
        self.rows = counter("rows", "Rows that were answered.")
        self.support = counter("support", "Sum of the support of rows; divide by the rows.")
        self.weights = counter("weight", "Sum of weights; divide by the rows.", "candidate")
        self.asked = counter("candidate_rows", "Rows sent to a candidate.", "candidate")
        self.failed = counter("candidate_failed_rows", "Rows it failed on.", "candidate", "reason")
        self.latency = histogram("candidate_seconds", "Time of its calls.", "candidate")
        self.breakers = gauge("breaker_state", "0 closed, 1 half-open, 2 open.", "candidate")
        self.under_way = gauge("requests_under_way", "Answers being computed.", how="livesum")
        self.reloads = counter("reloads", "Attempts to load the model file.", "result")
        self.loaded = gauge("model_loaded_timestamp_seconds", "When the model was loaded.")
        self.observed = gauge("monitor", "State of the monitor.", "name")
        self._candidates: tuple[list[str], list[tuple[Counter, Counter, Histogram]]] = [], []

    def count_request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        self.requests.labels(endpoint, str(status)).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def count_answer(self, answer: Answer) -> None:
        """Count the rows, candidates and failures of an answer."""
        self.rows.inc(len(answer.weights))
        self.support.inc(float(answer.support.sum()))
        weights, asked = answer.weights.sum(axis=0).tolist(), answer.asked.sum(axis=0).tolist()
        seconds = answer.candidate_seconds.tolist()
        for m, (weight, rows, latency) in enumerate(self._of_candidates(answer.candidates)):
            weight.inc(weights[m])
            if asked[m]:
                rows.inc(asked[m])
                latency.observe(seconds[m])
        for failure in answer.failures:
            self.failed.labels(failure.candidate, failure.reason).inc(len(failure.rows))

    def _of_candidates(self, names: list[str]) -> list[tuple[Counter, Counter, Histogram]]:
        """The metrics of each candidate, which take longer to look up than to change."""
        known, metrics = self._candidates
        if known != names:
            metrics = [
                (self.weights.labels(name), self.asked.labels(name), self.latency.labels(name))
                for name in names
            ]
            self._candidates = names, metrics
        return metrics

    def count_load(self, is_loaded: bool) -> None:
        """Count an attempt to load the model file."""
        self.reloads.labels("loaded" if is_loaded else "refused").inc()
        if is_loaded:
            self.loaded.set_to_current_time()

    def note_states(self, model: Model, under_way: int, observer: Observer | None) -> None:
        """Read the states that change on their own."""
        for entry in health(model).candidates:
            self.breakers.labels(entry.candidate).set(STATES[entry.state])
        self.under_way.set(under_way)
        if observer is not None:
            for name, value in observer.gauges().items():
                self.observed.labels(name).set(value)

    def text(self) -> bytes:
        """All metrics, of all processes of the service."""
        registry = self.registry
        if FOLDER in os.environ:
            registry = self.client.CollectorRegistry()
            optional("prometheus_client.multiprocess", extra="serve").MultiProcessCollector(
                registry
            )
        text: bytes = self.client.generate_latest(registry)
        return text

    @property
    def content_type(self) -> str:
        """Media type of the text."""
        return str(self.client.CONTENT_TYPE_LATEST)
