"""What the studies of classification share: gates over given probabilities, controls, accuracy.

Accuracy is in per cent of the test rows.

A gate with enough freedom could ignore what its candidates say and use them as labels between
which to choose: a classifier in disguise. Controls, each with the very gate that learns from the
real candidates, show whether it does (*classes*), and what it uses of what candidates say:

- *classes*: one constant candidate per class, sure of it. The gate is then a classifier, of the
  size of its network, and the control is a DirectModel of that network.
- *means*: each candidate always says the mean of what it says of the sample. It knows which classes
  it was trained on, and nothing of its row.
- *shuffled*: what the candidates say is permuted over rows, in the sample and in the test part.
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
    """One replicate: rows from which weights are learnt, and rows that test them.

    inputs : (N, p), what the gate sees of each row, or N images or texts.
    P : (N, M, K) probabilities by each candidate; y : (N,) labels 0 to K - 1.
    sample, test : numbers of rows; seed : seeds gates and models.
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
    """Weights with one candidate more, fitted out of fold on the sample: (n_test, K).

    Rows go by their numbers: candidates look up what they said, the gate its inputs, and the model
    of one's own its features, which are too large to be copied for each fold.
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
    """A model fitted on the sample alone, without candidates: (n_test, K)."""
    estimator.fit(features_of(trial.sample), trial.y[trial.sample])
    said = estimator.predict_proba(features_of(trial.test))
    return columns_of(said, estimator.classes_, trial.P.shape[2])


def columns_of(said: Array, classes: NDArray[np.intp], n_classes: int) -> Array:
    """Probabilities (n, k) of some classes as those of all: (n, K).

    >>> columns_of(np.array([[0.25, 0.75]]), np.array([0, 2]), 3).tolist()
    [[0.25, 0.0, 0.75]]
    """
    full = np.zeros((len(said), n_classes), dtype=said.dtype)
    full[:, classes] = said
    return full


def accuracy(trial: Trial, said: Array) -> float:
    """Per cent of the test rows whose most probable class is theirs."""
    return 100.0 * float((said.argmax(axis=1) == trial.y[trial.test]).mean())


def best_candidate(trial: Trial) -> float:
    """Accuracy of the candidate that is best on the test part: it has seen the answers."""
    return max(accuracy(trial, trial.P[trial.test, m]) for m in range(trial.P.shape[1]))


def some_candidate_right(trial: Trial) -> float:
    """Per cent of the test rows on which not all candidates are wrong: the most that weights reach.

    With two classes that is so. With more, an average can be right where no candidate is.
    """
    return 100.0 * float(_some_right(trial).mean())


def accuracy_where_none_is_right(trial: Trial, said: Array) -> float:
    """Per cent of those test rows on which all candidates are wrong."""
    lost = ~_some_right(trial)
    return accuracy(replace(trial, test=trial.test[lost]), said[lost])


def _some_right(trial: Trial) -> NDArray[np.bool_]:
    """Whether some candidate's most probable class is that of each test row: (n_test,)."""
    right = trial.P[trial.test].argmax(axis=2) == trial.y[trial.test, np.newaxis]
    return right.any(axis=1)


def on_classes(trial: Trial) -> Trial:
    """The same replicate with one constant candidate per class."""
    K = trial.P.shape[2]
    return replace(trial, P=np.broadcast_to(np.eye(K), (len(trial.P), K, K)))


def on_means(trial: Trial) -> Trial:
    """The same replicate, in which candidates say of every row what they say on average."""
    mean = trial.P[trial.sample].mean(axis=0)
    return replace(trial, P=np.broadcast_to(mean, trial.P.shape))


def on_shuffled(trial: Trial) -> Trial:
    """The same replicate, in which what is said of a row was said of another one of its part."""
    rng = np.random.default_rng(trial.seed)
    P = trial.P.copy()
    for part in (trial.sample, trial.test):
        P[part] = trial.P[rng.permutation(part)]
    return replace(trial, P=P)


CONTROLLED = {"classes": on_classes, "means": on_means, "shuffled": on_shuffled}


def hardly_changes(results: Results, method: str, within: float, over: str, **keys: Any) -> bool:
    """Whether mean accuracies along a key are within so many points."""
    means = results.series(method, "accuracy", over, **keys).values()
    return max(means) - min(means) <= within


def take(inputs: Any, rows: Rows) -> Any:
    """Rows of an array or of a list."""
    return inputs[rows] if isinstance(inputs, np.ndarray) else [inputs[row] for row in rows]


def _said(trial: Trial, part: int) -> Array:
    return np.asarray(trial.P[(trial.sample, trial.test)[part]], dtype=np.float64)


def _numbers(X: Any) -> Rows:
    return np.asarray(X)[:, 0].astype(np.intp)
