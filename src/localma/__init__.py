"""Localized model averaging: learn how far to trust each trained model for this input."""

from __future__ import annotations

# First, so that Ctrl-C ends the command line quietly while the other imports run.
from localma import _signals  # noqa: F401  # isort: split
from localma.candidates import Cached, Column, CrossFitted, as_candidate
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.gates.fused.engine import warm_up
from localma.model_file import load
from localma.onnx_export import export_onnx
from localma.tables.encoder import TableEncoder

__version__ = "0.1.0"

__all__ = [
    "Cached",
    "Column",
    "CrossFitted",
    "LocalMAClassifier",
    "LocalMARegressor",
    "TableEncoder",
    "as_candidate",
    "export_onnx",
    "load",
    "warm_up",
]
