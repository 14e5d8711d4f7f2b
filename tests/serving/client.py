"""A client that calls an application directly, and models to serve."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localma import Column, LocalMARegressor
from localma.serving.loaded import load_and_probe
from localma.serving.settings import Settings


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self):
        return json.loads(self.body)

    def output(self, name):
        return next(o["data"] for o in self.document["outputs"] if o["name"] == name)


async def ask(app, method, path, body=b"", headers=None, chunks=None):
    """One request, without a connection."""
    waiting = list(chunks if chunks is not None else [body])
    sent = []

    async def receive():
        if not waiting:
            await asyncio.sleep(3600)
        chunk = waiting.pop(0)
        if isinstance(chunk, float):
            await asyncio.sleep(chunk)
            chunk = b""
        return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}

    async def send(message):
        sent.append(message)

    given = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": given,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }
    await app(scope, receive, send)
    start = next(m for m in sent if m["type"] == "http.response.start")
    content = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
    return Response(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, content)


def rows_document(X, **fields):
    X = np.asarray(X, dtype=float)
    entry = {"name": "X", "shape": list(X.shape), "datatype": "FP64", "data": X.ravel().tolist()}
    return json.dumps({"inputs": [entry], **fields}).encode()


def sample(n=200):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 3))
    X[:, 1] = -X[:, 0] + 0.1 * rng.standard_normal(n)
    X[:, 2] = X[:, 0] + 0.1 * rng.standard_normal(n)
    return X, np.abs(X[:, 0]) + 0.1 * rng.standard_normal(n)


def column_model(**options):
    """Two columns as candidates: the first is right where X is negative."""
    X, y = sample()
    candidates = {"left": Column(1), "right": Column(2)}
    model = LocalMARegressor(candidates, gate="local", random_state=0, **options)
    return model.fit(X, y)


def service_settings(path: Path, **changes):
    return Settings(path=path, **({"name": "rent", "reload": 0.0} | changes))


def saved(model, folder, name="rent.localma", **changes):
    """Save a model, and load it as a service does."""
    path = folder / name
    model.save(path)
    settings = service_settings(path, **changes)
    return settings, load_and_probe(settings)
