"""Looking inside a fitted model: a summary of plain values first, then pictures."""

from __future__ import annotations

from localma.inspection.comparison import compare, evaluate
from localma.inspection.displays import (
    ComparisonDisplay,
    ErrorByRegionDisplay,
    ImportanceDisplay,
    RegionsDisplay,
    ReliabilityDisplay,
    WeightEffectDisplay,
    WeightMapDisplay,
)
from localma.inspection.explanation import explain
from localma.inspection.observed import Observed, observe
from localma.inspection.path import LocalityPathDisplay, locality_path
from localma.inspection.summary import summarize

__all__ = [
    "ComparisonDisplay",
    "ErrorByRegionDisplay",
    "ImportanceDisplay",
    "LocalityPathDisplay",
    "Observed",
    "RegionsDisplay",
    "ReliabilityDisplay",
    "WeightEffectDisplay",
    "WeightMapDisplay",
    "compare",
    "evaluate",
    "explain",
    "locality_path",
    "observe",
    "summarize",
]
