"""Predictions, fits and tasks on a Ray cluster."""

from __future__ import annotations

from localma.ray.fitting import Arrays, fit, gather
from localma.ray.job import BlockError
from localma.ray.predicting import predict, predict_pool
from localma.ray.running import CandidateFailure, Finished, Workers, connected
from localma.ray.tasks import on_cluster

__all__ = [
    "Arrays",
    "BlockError",
    "CandidateFailure",
    "Finished",
    "Workers",
    "connected",
    "fit",
    "gather",
    "on_cluster",
    "predict",
    "predict_pool",
]
