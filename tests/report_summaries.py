"""Summaries of small models, from which pages are made; some try to break one."""

from __future__ import annotations

from functools import cache

import numpy as np

from localma import LocalMAClassifier, LocalMARegressor, as_candidate
from localma.inspection import summarize

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\"quoted\" & 'single' onmouseover=alert(3)",
    "x" * 300,
    "{{ 7 * 191 }} {% raw %}",
    "two\u2028lines\u202eturned",
]


def fresh(make):
    """Make a summary once; each call gives it as a new dict, which a test may change."""
    made = cache(make)
    return lambda: made().to_dict()


def _constant(value):
    return lambda X: np.full(len(X), float(value))


@fresh
def hostile():
    """Every part there is for regression; names and categories that try to break the page."""
    import pandas as pd

    n = 90
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            HOSTILE[0]: np.where(np.arange(n) % 9 == 0, np.nan, rng.uniform(-1, 1, n)),
            HOSTILE[1]: rng.choice([HOSTILE[0], HOSTILE[1], "plain", HOSTILE[3]], n),
            HOSTILE[3]: pd.date_range("2024-01-01", periods=n),
            "area": rng.lognormal(3, 1, n),
        }
    )

    def inputs(X):
        return np.column_stack([X[HOSTILE[0]].fillna(0), X[HOSTILE[1]] == "plain"]).astype(float)

    candidates = {name: _constant(k) for k, name in enumerate(HOSTILE)}
    y = np.where(frame[HOSTILE[1]] == "plain", 5.0, np.abs(frame[HOSTILE[0]].fillna(0)))
    model = LocalMARegressor(candidates, gate_features=inputs, cv=2, random_state=0)
    return summarize(model.fit(frame, y), frame, y)


@fresh
def split():
    """Two candidates, each right on its side: three numeric features, gate="auto", a control."""
    X = np.random.default_rng(1).uniform(-2, 2, (240, 3))
    y = np.abs(X[:, 0])
    model = LocalMARegressor(
        {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0], "none": _constant(0)},
        cv=2,
        random_state=0,
    )
    return summarize(model.fit(X[:120], y[:120]), X[120:], y[120:])


@fresh
def five_classes():
    """Classification with five classes, one of them with an odd name."""
    labels = ["ant", "bee", "cat", "<b>dog</b>", "eel"]
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 2))
    y = np.array(labels)[np.digitize(X[:, 0], [-0.8, -0.25, 0.25, 0.8])]

    def guess(sharpness):
        def probabilities(X):
            logits = -sharpness * (X[:, :1] - np.array([-1.3, -0.5, 0, 0.5, 1.3])) ** 2
            return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

        return as_candidate(probabilities, classes=labels)

    model = LocalMAClassifier({"mild": guess(0.5), "bold": guess(6.0)}, cv=2, random_state=0)
    return summarize(model.fit(X[:200], y[:200]), X[200:260], y[200:260], control=False)


@fresh
def two_classes():
    """Classification with two classes that are numbers."""
    X = np.random.default_rng(3).uniform(-2, 2, (200, 1))
    y = (X[:, 0] > 0).astype(int)

    def guess(slope):
        return as_candidate(
            lambda X: np.column_stack(
                [1 / (1 + np.exp(slope * X[:, 0])), 1 / (1 + np.exp(-slope * X[:, 0]))]
            ),
            classes=[0, 1],
        )

    model = LocalMAClassifier({"a": guess(0.4), "b": guess(3.0)}, gate="local", random_state=0)
    return summarize(model.fit(X[:100], y[:100]), X[100:], y[100:], control=False)


@fresh
def fifty():
    """Fifty candidates, one of which explodes."""
    X = np.linspace(-1, 1, 90)[:, None]
    y = 3 * np.abs(X[:, 0])
    candidates = {f"model {k}": (lambda X, k=k: X[:, 0] * k) for k in range(49)}
    candidates["explodes"] = _constant(1e9)
    model = LocalMARegressor(candidates, gate="local", random_state=0).fit(X, y)
    return summarize(model, X, y, control=False)


@fresh
def texts():
    """Rows without columns: no features, no regions, no map."""
    X = ["a", "bb", "ccc", "dddd"] * 10
    model = LocalMARegressor(
        {"long": lambda X: np.array([len(t) for t in X], float), "one": _constant(1)},
        gate="local",
        gate_features=lambda X: np.array([[len(t)] for t in X], float),
        random_state=0,
    ).fit(X, [len(t) for t in X])
    return summarize(model, X, [len(t) for t in X], control=False)


@fresh
def unlabelled():
    """No targets, equal weights, one feature."""
    X = np.linspace(-1, 1, 30)[:, None]
    model = LocalMARegressor({"a": lambda X: X[:, 0], "b": _constant(0)}, gate="equal")
    return summarize(model.fit(X, X[:, 0]), X)


@fresh
def alone():
    """One candidate, one row, a constant feature, gate="auto"."""
    X = np.column_stack([np.linspace(-1, 1, 30), np.full(30, 7.0)])
    model = LocalMARegressor({"only": lambda X: X[:, 0]}, cv=2, random_state=0)
    return summarize(model.fit(X, X[:, 0] ** 2), X[:1], [1.0])


@fresh
def two_outputs():
    """A target of two numbers."""
    X = np.linspace(-1, 1, 60)[:, None]
    Y = np.column_stack([X[:, 0], -X[:, 0]])
    model = LocalMARegressor(
        {"a": lambda X: np.column_stack([X[:, 0], X[:, 0]]), "b": lambda X: np.zeros((len(X), 2))},
        cv=2,
        random_state=0,
    )
    return summarize(model.fit(X, Y), X, Y, control=False)


CASES = {
    "hostile": hostile,
    "split": split,
    "five_classes": five_classes,
    "two_classes": two_classes,
    "fifty": fifty,
    "texts": texts,
    "unlabelled": unlabelled,
    "alone": alone,
    "two_outputs": two_outputs,
}
