"""Shared code of the classification studies: gates over given probabilities, controls, accuracy.

Accuracy is in per cent of the test rows.

A gate with enough freedom can ignore the candidates' predictions and classify by itself, by
choosing between candidates as if they were labels. Three controls train the same gate on other
candidates:

- *classes*: one constant candidate per class, with probability one. The gate is then a classifier
  with the size of its network. This control is a DirectModel with that network.
- *means*: each candidate always predicts the mean of its predictions on the sample. It contains
  which classes it was trained on, and nothing about the row.
- *shuffled*: the candidates' predictions are permuted over rows, in the sample and in the test
  part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import CrossFitted, LocalMAClassifier, as_candidate
from localma.gates import Gate
from studies.findings import Results

Array = NDArray[np.floating]
Rows = NDArray[np.intp]
FeaturesOf = Callable[[Rows], Array]


@dataclass(frozen=True)
class Trial:
    """One replicate: the labelled sample and the test rows.

    inputs : (N, p), the inputs of the gate, or N images or texts.
    P : (N, M, K) probabilities by each candidate; y : (N,) labels 0 to K - 1.
    sample, test : row indices; seed : seed of gates and models.
    """

    inputs: Any
    P: Array
    y: NDArray[np.intp]
    sample: Rows
    test: Rows
    seed: int

    @property
    def classes(self) -> NDArray[np.intp]:
        """Labels of the last axis of P."""
        return np.arange(self.P.shape[2])


def gated(trial: Trial, gate: str | Gate) -> Array:
    """Learn weights on the sample, and average the test part: (n_test, K)."""
    model = LocalMAClassifier(gate=gate, random_state=trial.seed)
    model.fit(take(trial.inputs, trial.sample), trial.y[trial.sample], predictions=_said(trial, 0))
    return model.predict_proba(take(trial.inputs, trial.test), predictions=_said(trial, 1))


def with_own_model(
    trial: Trial, estimator: Any, features_of: FeaturesOf, gate: str | Gate = "auto"
) -> Array:
    """Weights with one more candidate, fitted out of fold on the sample: (n_test, K).

    X contains row indices. Candidates look up their predictions, the gate its inputs, and the new
    model its features, which are too large to copy for each fold.
    """

    def of_candidate(m: int) -> Any:
        return as_candidate(lambda X: trial.P[_numbers(X), m], classes=trial.classes)

    candidates = {f"candidate {m}": of_candidate(m) for m in range(trial.P.shape[1])}
    model = LocalMAClassifier(
        candidates | {"own": CrossFitted(estimator, inputs=lambda X: features_of(_numbers(X)))},
        gate=gate,
        gate_features=lambda X: trial.inputs[_numbers(X)],
        random_state=trial.seed,
    )
    model.fit(trial.sample[:, np.newaxis], trial.y[trial.sample])
    return model.predict_proba(trial.test[:, np.newaxis])


def direct(trial: Trial, estimator: Any, features_of: FeaturesOf) -> Array:
    """Predictions of a model fitted on the sample, without candidates: (n_test, K)."""
    estimator.fit(features_of(trial.sample), trial.y[trial.sample])
    said = estimator.predict_proba(features_of(trial.test))
    return columns_of(said, estimator.classes_, trial.P.shape[2])


def columns_of(said: Array, classes: NDArray[np.intp], n_classes: int) -> Array:
    """Extend probabilities (n, k) of some classes to all classes: (n, K).

    >>> columns_of(np.array([[0.25, 0.75]]), np.array([0, 2]), 3).tolist()
    [[0.25, 0.0, 0.75]]
    """
    full = np.zeros((len(said), n_classes), dtype=said.dtype)
    full[:, classes] = said
    return full


def accuracy(trial: Trial, said: Array) -> float:
    """Per cent of the test rows whose most probable class is right."""
    return 100.0 * float((said.argmax(axis=1) == trial.y[trial.test]).mean())


def best_candidate(trial: Trial) -> float:
    """Accuracy of the candidate that is best on the test part, chosen with its labels."""
    return max(accuracy(trial, trial.P[trial.test, m]) for m in range(trial.P.shape[1]))


def some_candidate_right(trial: Trial) -> float:
    """Per cent of the test rows on which at least one candidate is right.

    With two classes no weights can exceed this. With more classes an average can be right if no
    candidate is.
    """
    return 100.0 * float(_some_right(trial).mean())


def accuracy_where_none_is_right(trial: Trial, said: Array) -> float:
    """Accuracy, in per cent, on the test rows on which all candidates are wrong."""
    lost = ~_some_right(trial)
    return accuracy(replace(trial, test=trial.test[lost]), said[lost])


def _some_right(trial: Trial) -> NDArray[np.bool_]:
    """Whether at least one candidate has the right class in each test row: (n_test,)."""
    right = trial.P[trial.test].argmax(axis=2) == trial.y[trial.test, np.newaxis]
    return right.any(axis=1)


def on_classes(trial: Trial) -> Trial:
    """The same replicate with one constant candidate per class."""
    K = trial.P.shape[2]
    return replace(trial, P=np.broadcast_to(np.eye(K), (len(trial.P), K, K)))


def on_means(trial: Trial) -> Trial:
    """The same replicate, in which each candidate predicts its mean for every row."""
    mean = trial.P[trial.sample].mean(axis=0)
    return replace(trial, P=np.broadcast_to(mean, trial.P.shape))


def on_shuffled(trial: Trial) -> Trial:
    """The same replicate, with the predictions permuted over the rows of each part."""
    rng = np.random.default_rng(trial.seed)
    P = trial.P.copy()
    for part in (trial.sample, trial.test):
        P[part] = trial.P[rng.permutation(part)]
    return replace(trial, P=P)


CONTROLLED = {"classes": on_classes, "means": on_means, "shuffled": on_shuffled}


def hardly_changes(results: Results, method: str, within: float, over: str, **keys: Any) -> bool:
    """Whether mean accuracies along a key are within this number of points."""
    means = results.series(method, "accuracy", over, **keys).values()
    return max(means) - min(means) <= within


def take(inputs: Any, rows: Rows) -> Any:
    """Rows of an array or of a list."""
    return inputs[rows] if isinstance(inputs, np.ndarray) else [inputs[row] for row in rows]


def _said(trial: Trial, part: int) -> Array:
    return np.asarray(trial.P[(trial.sample, trial.test)[part]], dtype=np.float64)


def _numbers(X: Any) -> Rows:
    return np.asarray(X)[:, 0].astype(np.intp)
