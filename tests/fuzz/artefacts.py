"""Small saved models of every kind, the options to load them, and rows to predict."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from localma import Column, CrossFitted, LocalMAClassifier, LocalMARegressor, as_candidate
from localma.gates import ImageGate, MLPGate, ShrunkGate, TextGate, TorchGate, TreeGate
from localma.tables.encoder import TableEncoder
from tests.tiny_models import as_images, as_texts, write_encoder

COLUMNS = {"left": Column(1), "right": Column(2)}


@dataclass(frozen=True)
class Artefact:
    """The bytes of a saved model, what `load` needs beside them, and what `predict` needs."""

    content: bytes
    X: Any
    predictions: Any = None
    options: dict[str, Any] = field(default_factory=dict)


def sample(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).uniform(-2, 2, n)
    return np.c_[x, -x, x], np.abs(x)


def saved(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.localma"
        model.save(path)
        return path.read_bytes()


def of_gate(gate: Any) -> Artefact:
    X, y = sample()
    model = LocalMARegressor(COLUMNS, gate=gate, random_state=0).fit(X, y)
    return Artefact(saved(model), X[:3])


def equal() -> Artefact:
    return of_gate("equal")


def global_() -> Artefact:
    return of_gate("global")


def local() -> Artefact:
    return of_gate(MLPGate((4,), n_steps=10, logit_bound=3.0, random_state=0))


def deep() -> Artefact:
    return of_gate(MLPGate((3, 2), n_steps=10, n_restarts=2, random_state=0))


def trees() -> Artefact:
    return of_gate(TreeGate(shrinkage=0.3, n_leaves=3, random_state=0))


def auto() -> Artefact:
    return of_gate(ShrunkGate(cv=2, strengths=(1.0, 0.1), n_restarts=1, random_state=0))


def shrunk_base() -> Artefact:
    base = MLPGate((3,), n_steps=10)
    return of_gate(ShrunkGate(base, cv=2, strengths=(0.1,), linear=False, random_state=0))


def outputs() -> Artefact:
    X, y = sample()
    gate = MLPGate((3,), n_steps=10, random_state=0)
    P = {"left": np.c_[X[:, 1], X[:, 2]], "right": np.c_[X[:, 2], X[:, 1]]}
    model = LocalMARegressor(gate=gate).fit(X, np.c_[y, -y], predictions=P)
    return Artefact(saved(model), X[:3], {name: values[:3] for name, values in P.items()})


def classifier() -> Artefact:
    X, _ = sample()
    table = np.c_[X[:, 0], np.full(60, 0.3), np.linspace(0.1, 0.9, 60)]
    labels = np.where(X[:, 0] > 0, "yes", "no")
    columns = {name: Column(k, classes=["no", "yes"]) for k, name in enumerate("ab", start=1)}
    gate = ShrunkGate(cv=2, strengths=(1.0,), n_restarts=1)
    model = LocalMAClassifier(columns, gate=gate, random_state=0).fit(table, labels)
    return Artefact(saved(model), table[:3])


def encoder() -> Artefact:
    import polars

    X, y = sample()
    frame = polars.DataFrame(
        {
            "number": X[:, 0],
            "gap": [None if k % 7 == 0 else float(k) for k in range(60)],
            "city": ["north", "south", "east"] * 20,
            "day": [date(2024, 1, 1) + timedelta((37 * k) % 50) for k in range(60)],
            "left": X[:, 1],
            "right": X[:, 2],
        }
    )
    candidates = {"left": Column("left"), "right": Column("right")}
    gate = MLPGate((3,), n_steps=10, random_state=0)
    model = LocalMARegressor(candidates, gate=gate, gate_features=TableEncoder())
    return Artefact(saved(model.fit(frame, y)), frame[:3])


def crossfitted() -> Artefact:
    X, y = sample()
    own = {
        "line": CrossFitted(LinearRegression()),
        "tree": CrossFitted(DecisionTreeRegressor(max_depth=2, random_state=0)),
    }
    gate = MLPGate((3,), n_steps=10, random_state=0)
    model = LocalMARegressor(own, gate=gate, cv=2, random_state=0).fit(X, y)
    fitted = dict(zip(model.pool_.names, model.pool_.candidates, strict=True))
    return Artefact(saved(model), X[:3], options={"candidates": fitted})


def recipes() -> Artefact:
    X, y = sample()
    function = as_candidate(np.ravel, inputs=[0])
    model = LocalMARegressor({"first": function, "right": Column(2)}, gate="global").fit(X, y)
    P = {"first": X[:3, 0], "right": X[:3, 2]}
    return Artefact(saved(model), X[:3], P, {"candidates": {}})


def untrusted() -> Artefact:
    """The same, loaded without candidates: everything in it has to be refused."""
    artefact = recipes()
    return Artefact(artefact.content, artefact.X)


def image() -> Artefact:
    X, y = sample(12)
    images = as_images(X[:, :1]).astype(np.float32)
    gate = ImageGate("cnn", n_epochs=1, batch_size=12, random_state=0, device="cpu")
    P = {"left": X[:, 1], "right": X[:, 2]}
    model = LocalMARegressor(gate=gate).fit(images, y, predictions=P)
    return Artefact(saved(model), images[:3], {name: p[:3] for name, p in P.items()})


def network() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def torch_() -> Artefact:
    X, y = sample()
    P = {"left": X[:, 1], "right": X[:, 2]}
    gate = TorchGate(network, n_epochs=1, random_state=0, device="cpu")
    model = LocalMARegressor(gate=gate).fit(X, y, predictions=P)
    options = {"gate": network}
    return Artefact(saved(model), X[:3], {name: p[:3] for name, p in P.items()}, options)


def text() -> Artefact:
    X, y = sample(12)
    texts = as_texts(X[:, :1])
    folder = write_encoder(tempfile.mkdtemp(prefix="localma-fuzz-"))
    gate = TextGate(folder, n_epochs=1, batch_size=12, max_length=16, random_state=0, device="cpu")
    P = {"left": X[:, 1], "right": X[:, 2]}
    model = LocalMARegressor(gate=gate).fit(texts, y, predictions=P)
    return Artefact(saved(model), texts[:3], {name: p[:3] for name, p in P.items()}, {"gate": gate})


LIGHT: dict[str, Callable[[], Artefact]] = {
    "equal": equal,
    "global": global_,
    "local": local,
    "deep": deep,
    "trees": trees,
    "auto": auto,
    "shrunk base": shrunk_base,
    "outputs": outputs,
    "classifier": classifier,
    "cross-fitted": crossfitted,
    "recipes": recipes,
    "untrusted": untrusted,
}
HEAVY: dict[str, tuple[Callable[[], Artefact], tuple[str, ...]]] = {
    "encoder": (encoder, ("polars",)),
    "image": (image, ("torch", "accelerate")),
    "torch": (torch_, ("torch", "accelerate")),
    "text": (text, ("torch", "accelerate", "transformers")),
}


def all_kinds(only: list[str] | None = None) -> dict[str, Callable[[], Artefact]]:
    """Every kind whose packages are installed."""
    heavy = {
        name: make for name, (make, needs) in HEAVY.items() if all(find_spec(n) for n in needs)
    }
    kinds = {**LIGHT, **heavy}
    return kinds if only is None else {name: kinds[name] for name in only if name in kinds}


def schedule(kinds: list[str]) -> list[str]:
    """The kinds in the order in which they come up; the slow ones once for four of the others."""
    light = [kind for kind in kinds if kind in LIGHT]
    return light * 4 + [kind for kind in kinds if kind not in LIGHT]
