"""Numbers and plots of a fitted model: one record per part, and a summary of all."""

from __future__ import annotations

from localma.inspection.comparison import ComparisonDisplay, compare, evaluate
from localma.inspection.display import Display
from localma.inspection.effects import ImportanceDisplay, WeightEffectDisplay, WeightMapDisplay
from localma.inspection.explanation import Explanation, explain
from localma.inspection.observed import Observed, observe
from localma.inspection.path import LocalityPathDisplay, locality_path
from localma.inspection.regions import ErrorByRegionDisplay, RegionsDisplay
from localma.inspection.reliability import ReliabilityDisplay
from localma.inspection.summary import Summary, summarize
from localma.records import Record

__all__ = [
    "ComparisonDisplay",
    "Display",
    "ErrorByRegionDisplay",
    "Explanation",
    "ImportanceDisplay",
    "LocalityPathDisplay",
    "Observed",
    "Record",
    "RegionsDisplay",
    "ReliabilityDisplay",
    "Summary",
    "WeightEffectDisplay",
    "WeightMapDisplay",
    "compare",
    "evaluate",
    "explain",
    "locality_path",
    "observe",
    "summarize",
]
