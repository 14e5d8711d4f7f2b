"""META-DES of DESlib on given probabilities, with classifiers that look up their predictions.

DESlib calls its classifiers on subsets of rows. A last column, too small to change any distance,
identifies the row.
"""

import numpy as np
from deslib.des import METADES
from serving import serve
from sklearn.base import BaseEstimator, ClassifierMixin

STEP = 1e-10


def numbered(X, first):
    return np.column_stack([X, STEP * np.arange(first, first + len(X))])


class LookUp(ClassifierMixin, BaseEstimator):
    """A classifier with known predictions."""

    def __init__(self, probabilities):
        self.probabilities = probabilities
        self.classes_ = np.arange(probabilities.shape[1])

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return self.probabilities[np.rint(X[:, -1] / STEP).astype(int)]

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


def prepare(arrays):
    P = np.concatenate([arrays["P"], arrays["P_new"]])
    pool = [LookUp(np.ascontiguousarray(P[:, m])) for m in range(P.shape[1])]
    # Shares of hard votes may be zero, and a log loss is then infinite.
    options = {"voting": "soft", "n_jobs": 1} if "loss" in arrays else {"n_jobs": -1}
    selector = METADES(pool, **options).fit(numbered(arrays["X"], 0), arrays["y"])
    X = numbered(arrays["X_new"], len(arrays["X"]))
    selector.predict_proba(X[:10])
    return lambda: {"predictions": selector.predict_proba(X)}


serve(prepare)
