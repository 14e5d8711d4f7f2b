"""A fitted model in service: the Open Inference Protocol, metrics, reload and MLflow."""

from __future__ import annotations

from localma.serving.settings import Settings

__all__ = ["Settings"]
