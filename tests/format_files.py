"""The saved models in ``tests/data/formats``: one of each released format, read by a test.

``python -m tests.format_files`` writes those of the present format. Do so only before the release
that brings a format; from then on its files stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from localma import Column, LocalMAClassifier, LocalMARegressor
from localma.gates import ShrunkGate
from localma.storage.array_file import FORMAT_VERSION

FOLDER = Path(__file__).parent / "data" / "formats"


def rows() -> np.ndarray:
    x = np.linspace(-2.0, 2.0, 61)
    return np.c_[x, np.cos(3 * x), 0.5 + x / 5, 0.5 - x / 5]


def models() -> Iterator[tuple[str, Any]]:
    """A regression and a classification by columns of X, with the default gate made small."""
    X = rows()
    wave = 0.2 * np.sin(50 * X[:, 0])
    y, labels = 0.5 + np.abs(X[:, 0]) / 5 + wave, np.where(X[:, 0] > 3 * wave, "yes", "no")
    gate = ShrunkGate(cv=2, strengths=(0.3,), n_restarts=1)
    numbers = {"left": Column(3), "right": Column(2)}
    chances = {
        name: Column(column.columns, classes=["no", "yes"]) for name, column in numbers.items()
    }
    yield "regressor", LocalMARegressor(numbers, gate=gate, random_state=0).fit(X, y)
    yield "classifier", LocalMAClassifier(chances, gate=gate, random_state=0).fit(X, labels)


def predictions(model: Any) -> np.ndarray:
    return np.asarray(getattr(model, "predict_proba", model.predict)(rows()[::6]))


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, model in models():
        path = FOLDER / f"{FORMAT_VERSION}-{name}.localma"
        model.save(path)
        path.with_suffix(".json").write_text(json.dumps(predictions(model).tolist()) + "\n")


if __name__ == "__main__":
    main()
