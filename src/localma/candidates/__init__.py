"""Candidates, which are trained models seen as functions, and the pool of candidates."""

from __future__ import annotations

from localma.candidates.base import Candidate
from localma.candidates.cached import Cached
from localma.candidates.column import Column
from localma.candidates.conversion import as_candidate
from localma.candidates.crossfitted import CrossFitted
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.files.onnx import OnnxCandidate
from localma.candidates.files.skops import SkopsCandidate
from localma.candidates.files.timm import TimmCandidate
from localma.candidates.files.torch import TorchCandidate
from localma.candidates.files.transformers import TransformersCandidate
from localma.candidates.function import FunctionCandidate
from localma.candidates.http import HttpCandidate
from localma.candidates.outputs import fit_temperature
from localma.candidates.pool import Pool
from localma.candidates.recipes import Recipe, from_recipe, recipe_beside
from localma.candidates.stacked import Stacked
from localma.candidates.supplied import Supplied
from localma.storage.cache import CacheEntry, cache_info, clean_cache

__all__ = [
    "CacheEntry",
    "Cached",
    "Candidate",
    "Column",
    "CrossFitted",
    "EstimatorCandidate",
    "FunctionCandidate",
    "HttpCandidate",
    "OnnxCandidate",
    "Pool",
    "Recipe",
    "SkopsCandidate",
    "Stacked",
    "Supplied",
    "TimmCandidate",
    "TorchCandidate",
    "TransformersCandidate",
    "as_candidate",
    "cache_info",
    "clean_cache",
    "fit_temperature",
    "from_recipe",
    "recipe_beside",
]
