"""The estimators, in which candidates and gates meet as the array of predictions P.

``fit``: validate -> ``P = pool.predict(X)`` -> labelled sample -> gate -> checks.
``predict``: ``W = gate(X)``, ``P = pool.predict(X)``, the average of P under W.
"""

from __future__ import annotations

from localma.estimators.arguments import Previous
from localma.estimators.base import NO_CLAIM
from localma.estimators.classifier import LocalMAClassifier, normalized
from localma.estimators.inputs import check_finite
from localma.estimators.parameters import GATES, Features
from localma.estimators.regressor import LocalMARegressor

__all__ = [
    "GATES",
    "NO_CLAIM",
    "Features",
    "LocalMAClassifier",
    "LocalMARegressor",
    "Previous",
    "check_finite",
    "normalized",
]
