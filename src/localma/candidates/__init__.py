"""Candidates: trained models, seen only as functions of their input, and the pool of them."""

from __future__ import annotations

from localma.candidates.base import Candidate
from localma.candidates.column import Column
from localma.candidates.crossfitted import CrossFitted
from localma.candidates.estimator import EstimatorCandidate
from localma.candidates.function import FunctionCandidate
from localma.candidates.infer import as_candidate, from_recipe, needs_trust
from localma.candidates.pool import Pool

__all__ = [
    "Candidate",
    "Column",
    "CrossFitted",
    "EstimatorCandidate",
    "FunctionCandidate",
    "Pool",
    "as_candidate",
    "from_recipe",
    "needs_trust",
]
