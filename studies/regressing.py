"""Shared code of the regression studies on real data: companies, methods and controls.

A replicate has a labelled sample, from which weights are learnt, and a test part. Both have the
predictions of the candidates, which were built on other rows. All methods of a replicate share
them. The result of a method does not depend on the other methods.

A gate with enough freedom can ignore the candidates' predictions and predict the target by itself,
by moving between candidates as if they were fixed numbers. Two controls and a constant show
whether it does:

- *constants* replaces the candidates by two numbers, the smallest and the largest prediction on
  the sample. The gate can then only predict by itself.
- *shuffled* permutes the predictions of each candidate over rows, in the sample and in the test
  part. They keep their distribution, but contain nothing about the row. No weights can remove this
  noise.
- *mean of the sample* is the best constant. If it is as good, there is nothing to learn.

Candidates differ by company, and the inputs may contain little about the company of a row. *Place*
adds the company to the inputs of a gate or of a model. It shows the value of locality if the
inputs reveal it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from localma import CrossFitted, LocalMARegressor
from localma.candidates import Column
from localma.candidates.crossfitted import weight_argument
from localma.errors import InvalidInputError
from localma.gates import Gate, MLPGate
from localma.losses import Loss
from studies.methods import GATE_OF
from studies.methods import LABELS as GATE_LABELS
from studies.safety_data import Part

Array = NDArray[np.floating]
Rows = NDArray[np.intp]
Kind = Callable[[int], Any]
"""Seed -> an unfitted estimator; one is fitted per company."""

METHODS = (
    "paper", "auto", "auto_own", "gw", "ewma", "direct", "best_test", "best_sample", "home",
)  # fmt: skip
CONTROLS = (
    "auto_constants", "auto_shuffled", "paper_constants", "paper_shuffled",
    "paper_free", "constant",
)  # fmt: skip
"""Additional methods of the cells with controls."""
CONTROLLED_METHODS = (
    "auto", "auto_constants", "auto_shuffled",
    "paper", "paper_constants", "paper_shuffled",
    "paper_free", "gw", "direct", "constant",
)  # fmt: skip
"""Columns of the table of controls."""
PLACE_METHODS = ("paper_place", "auto_place", "auto_own_place", "direct_place")
"""Methods that have the company of a row as input."""

LABELS = GATE_LABELS | {
    "paper_free": "LocalMA (paper, no decay)",
    "auto_own": "LocalMA (auto) + own models",
    "direct": "DirectModel",
    "best_test": "BestPTM",
    "best_sample": "BestPTM of the sample",
    "home": "home candidate",
    "constant": "mean of the sample",
    "auto_constants": "auto on two constants",
    "paper_constants": "paper on two constants",
    "auto_shuffled": "auto on shuffled candidates",
    "paper_shuffled": "paper on shuffled candidates",
    "paper_place": "LocalMA (paper), with district",
    "auto_place": "LocalMA (auto), with district",
    "auto_own_place": "LocalMA (auto) + own models, with district",
    "direct_place": "DirectModel, with district",
}


@dataclass(frozen=True)
class Companies:
    """Rows of several companies (districts or regions), each of which builds a candidate.

    X : (n, p), named by `inputs`; y : (n,); company : (n,) names; sample_weight : (n,) or None.
    """

    inputs: tuple[str, ...]
    X: Array
    y: Array
    company: NDArray[Any]
    sample_weight: Array | None = None

    def counts(self) -> dict[str, int]:
        """Rows of each company, in alphabetical order."""
        names, counts = np.unique(self.company, return_counts=True)
        return dict(zip(names.tolist(), counts.tolist(), strict=True))

    def part(self, rows: Rows, candidates: Sequence[Any]) -> Part:
        """Some rows, with the candidates' predictions."""
        X = self.X[rows]
        P = np.stack([candidate.predict(X) for candidate in candidates], axis=1)
        return Part(X, P, self.y[rows], self._weight(rows))

    def fit(self, model: Any, rows: Rows) -> Any:
        """Fit a model on these rows."""
        return fit_weighted(model, self.X[rows], self.y[rows], self._weight(rows))

    def _weight(self, rows: Rows) -> Array | None:
        return None if self.sample_weight is None else self.sample_weight[rows]


@dataclass(frozen=True)
class Split:
    """Rows for building candidates, for learning weights, and for testing."""

    build: Rows
    sample: Rows
    test: Rows


@dataclass(frozen=True)
class Trial:
    """One replicate: two parts with the predictions of the candidates, and the kind of model.

    sample, test : the labelled sample and the test part.
    sample_home, test_home : (n,) and (n_test,), the candidate of the company to which each row
        belongs.
    kind : builds an unfitted candidate; DirectModel and the own model are of the same kind.
    loss : the loss for learning weights and for judging predictions.
    seed : seed of gates and models.
    """

    sample: Part
    test: Part
    sample_home: Rows
    test_home: Rows
    kind: Kind
    loss: Loss
    seed: int


def make_trial(
    companies: Companies, parts: Split, kind: Kind, loss: Loss, seed: np.random.SeedSequence
) -> Trial:
    """Build a candidate per company on its own rows, and predict the other parts with all."""
    for_candidates, for_gates = (int(s >> 1) for s in seed.generate_state(2))
    names = list(companies.counts())
    builders = companies.company[parts.build]
    candidates = [
        companies.fit(kind(for_candidates), parts.build[builders == name]) for name in names
    ]
    used = (parts.sample, parts.test)
    sample, test = (companies.part(rows, candidates) for rows in used)
    homes = (np.searchsorted(names, companies.company[rows]) for rows in used)
    return Trial(sample, test, *homes, kind, loss, for_gates)


def fit_weighted(model: Any, X: Array, y: Array, weight: Array | None) -> Any:
    """Fit a model, with row weights if there are any."""
    if weight is None:
        return model.fit(X, y)
    argument = weight_argument(model)
    if argument is None:
        raise InvalidInputError(
            f"{type(model).__name__} does not accept row weights. Use another kind of "
            "candidates, or rows without weights."
        )
    return model.fit(X, y, **{argument: weight})


def one_thread() -> AbstractContextManager[Any]:
    """Limit BLAS and OpenMP to one thread: candidates are small, so a second one only waits."""
    return threadpool_limits(limits=1)


def compare(trial: Trial, methods: Sequence[str]) -> dict[str, float]:
    """Weighted mean loss of each method on the test part."""
    return {
        method: float(mean_losses(trial.loss, trial.test, predict(trial, method)))
        for method in methods
    }


def mean_losses(loss: Loss, part: Part, predictions: Array) -> Array:
    """Mean loss of predictions (n,), or of each column of (n, M)."""
    y = part.y if predictions.ndim == 1 else part.y[:, np.newaxis]
    return np.average(loss.value(y, predictions), axis=0, weights=part.sample_weight)


def predict(trial: Trial, method: str) -> Array:
    """Predictions of a method for the test part: (n_test,)."""
    name, _, change = method.rpartition("_")
    if change in CHANGED:
        return predict(CHANGED[change](trial), name)
    if method in OWN_WAYS:
        return OWN_WAYS[method](trial)
    return _averaged(trial, GATES[method])


def _averaged(trial: Trial, gate: str | Gate) -> Array:
    """Learn weights on the sample with a gate, and average the test part."""
    test = trial.test
    return _fitted(trial, gate).predict(test.X, predictions=test.P)


def _fitted(trial: Trial, gate: str | Gate) -> LocalMARegressor:
    sample = trial.sample
    model = LocalMARegressor(loss=trial.loss, gate=gate, random_state=trial.seed)
    return model.fit(sample.X, sample.y, sample.sample_weight, predictions=sample.P)


GATES: dict[str, str | Gate] = GATE_OF | {
    "paper": MLPGate.paper(hidden=(32,)),
    "paper_free": MLPGate.paper(hidden=(32,)).set_params(relative_decay=0.0),
}
"""Method -> gate. The paper has 32 units in its empirical studies, "free" has no weight decay."""


def _with_own_models(trial: Trial) -> Array:
    """`auto` with `own="auto"` and a model of the candidates' kind, fitted out of fold."""
    sample, test = trial.sample, trial.test
    first = sample.X.shape[1]
    candidates = {f"candidate {m}": Column(first + m) for m in range(sample.P.shape[1])}
    own = {"own": CrossFitted(trial.kind(trial.seed))}
    model = LocalMARegressor(candidates | own, loss=trial.loss, own="auto", random_state=trial.seed)
    model.fit(np.column_stack([sample.X, sample.P]), sample.y, sample.sample_weight)
    return model.predict(np.column_stack([test.X, test.P]))


def _direct(trial: Trial) -> Array:
    model, sample = trial.kind(trial.seed), trial.sample
    return fit_weighted(model, sample.X, sample.y, sample.sample_weight).predict(trial.test.X)


def _best_on(trial: Trial, judged: Part) -> Array:
    return trial.test.P[:, mean_losses(trial.loss, judged, judged.P).argmin()]


def _home(trial: Trial) -> Array:
    return trial.test.P[np.arange(len(trial.test_home)), trial.test_home]


def _mean_of_sample(trial: Trial) -> Array:
    sample = trial.sample
    return np.full(len(trial.test.y), np.average(sample.y, weights=sample.sample_weight))


OWN_WAYS: dict[str, Callable[[Trial], Array]] = {
    "auto_own": _with_own_models,
    "direct": _direct,
    "best_test": lambda trial: _best_on(trial, trial.test),
    "best_sample": lambda trial: _best_on(trial, trial.sample),
    "home": _home,
    "constant": _mean_of_sample,
}
"""Methods other than gates over the candidates."""


def on_constants(trial: Trial) -> Trial:
    """The same replicate with two constants in place of the candidates.

    They are the smallest and the largest prediction on the sample. Between them the gate can
    reach every average of the candidates.
    """
    two = np.array([trial.sample.P.min(), trial.sample.P.max()])
    return _with_predictions(trial, lambda P: np.tile(two, (len(P), 1)))


def on_shuffled(trial: Trial) -> Trial:
    """The same replicate with each candidate's predictions permuted over the rows of a part."""
    rng = np.random.default_rng(trial.seed)
    return _with_predictions(trial, lambda P: rng.permuted(P, axis=0))


def with_place(trial: Trial) -> Trial:
    """The same replicate with one more input per company: whether the row belongs to it."""
    own = np.eye(trial.sample.P.shape[1])

    def extended(part: Part, home: Rows) -> Part:
        return replace(part, X=np.column_stack([part.X, own[home]]))

    sample, test = extended(trial.sample, trial.sample_home), extended(trial.test, trial.test_home)
    return replace(trial, sample=sample, test=test)


CONTROLLED = {"constants": on_constants, "shuffled": on_shuffled}
CHANGED = CONTROLLED | {"place": with_place}
"""Suffix of a method's name -> function that changes the replicate for it."""


def _with_predictions(trial: Trial, change: Callable[[Array], Array]) -> Trial:
    sample, test = (replace(part, P=change(part.P)) for part in (trial.sample, trial.test))
    return replace(trial, sample=sample, test=test)
