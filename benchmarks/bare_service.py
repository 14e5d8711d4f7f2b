"""The same scikit-learn models behind FastAPI alone, to compare with: no weights, no limits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import skops.io
from fastapi import FastAPI
from pydantic import BaseModel

FILES = sorted(Path(os.environ["MODELS"]).glob("*.skops"))
MODELS = [skops.io.load(file, trusted=skops.io.get_untrusted_types(file=file)) for file in FILES]
app = FastAPI()


class Rows(BaseModel):
    """Rows of numbers."""

    rows: list[list[float]]


def mean(rows: Rows) -> dict[str, list[float]]:
    """Predict the mean of the models."""
    X = np.array(rows.rows)
    return {"predictions": np.mean([model.predict(X) for model in MODELS], axis=0).tolist()}


@app.post("/predict")
def predict(rows: Rows) -> dict[str, list[float]]:
    """Answer in a thread, as FastAPI runs a function that computes."""
    return mean(rows)


@app.post("/predict-in-loop")
async def predict_in_loop(rows: Rows) -> dict[str, list[float]]:
    """Answer in the thread of the event loop, which no other request can use meanwhile."""
    return mean(rows)
