"""Pictures of the parts of a summary, one class each, in the manner of scikit-learn's displays."""

from __future__ import annotations

from localma.inspection.displays.comparison import ComparisonDisplay
from localma.inspection.displays.effects import WeightEffectDisplay
from localma.inspection.displays.importance import ImportanceDisplay
from localma.inspection.displays.region_errors import ErrorByRegionDisplay
from localma.inspection.displays.regions import RegionsDisplay
from localma.inspection.displays.reliability import ReliabilityDisplay
from localma.inspection.displays.weight_map import WeightMapDisplay

__all__ = [
    "ComparisonDisplay",
    "ErrorByRegionDisplay",
    "ImportanceDisplay",
    "RegionsDisplay",
    "ReliabilityDisplay",
    "WeightEffectDisplay",
    "WeightMapDisplay",
]
