"""Folds and restarts of fits that are sent elsewhere give the same bits."""

from __future__ import annotations

import pickle
from collections import Counter
from contextvars import Context

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from localma import Column, CrossFitted, LocalMARegressor
from localma._tasks import run_parts, sent_to
from localma.errors import CandidateError
from localma.gates import MLPGate, ShrunkGate
from localma.gates.base import Gate, Job
from localma.gates.labelled import Labelled
from localma.losses import squared_error


class Bytes:
    """Runs each task on copies of what it gets, in the reverse order."""

    def __init__(self):
        self.calls = Counter()

    def __call__(self, function, shared, tasks):
        self.calls[function.__name__] += len(tasks)
        packed = pickle.dumps((function, shared))
        results = []
        for task in reversed([pickle.dumps(task) for task in tasks]):
            call, given = pickle.loads(packed)
            result = Context().run(call, given, *pickle.loads(task))  # as in another process
            results.append(pickle.loads(pickle.dumps(result)))
        return results[::-1]


def sample(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, np.abs(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("n", "options", "functions"),
    [
        (300, {"own": "auto"}, {"_fit_and_test", "_advance_alone"}),
        (300, {"gate": MLPGate(n_restarts=3)}, {"_fit_and_test", "_advance_alone"}),
        (300, {"gate": ShrunkGate(trees=True)}, {"_fit_and_test", "_advance_alone", "_grow_fold"}),
        (12_000, {}, {"_fit_and_test", "_advance_alone"}),  # one fold judges, and continues
    ],
    ids=["own", "restarts", "trees", "large"],
)
def test_parts_of_a_fit_give_the_same_bits_elsewhere(n, options, functions):
    X, y = sample(n)
    pool = {"first": Column(0), "second": Column(1), "line": CrossFitted(Ridge())}
    here = LocalMARegressor(pool, random_state=0, **options).fit(X, y)
    elsewhere = Bytes()
    with sent_to(elsewhere):
        there = LocalMARegressor(pool, random_state=0, **options).fit(X, y)
    assert set(elsewhere.calls) == functions
    wanted, found = here.gate_.arrays(), there.gate_.arrays()
    assert wanted.keys() == found.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    np.testing.assert_array_equal(there.predict(X[:200]), here.predict(X[:200]))


def test_trainings_of_any_gate_give_the_same_bits_elsewhere():
    X, y = sample(200)
    data = Labelled.of(X, X[:, :2, None], y[:, None], loss=squared_error())
    jobs = [Job(np.arange(k, 200), 0.01, k, np.array([0.5, 0.5])) for k in range(3)]
    here = Gate.fit_jobs(MLPGate(n_steps=20), data, jobs)
    elsewhere = Bytes()
    with sent_to(elsewhere):
        there = Gate.fit_jobs(MLPGate(n_steps=20), data, jobs)
    assert elsewhere.calls == {"_fit_job": 3}
    for wanted, found in zip(here, there, strict=True):
        np.testing.assert_array_equal(found.parameters_, wanted.parameters_)


class Failing(LinearRegression):
    def fit(self, X, y):
        if len(X) < 100:
            raise ValueError("not enough rows")
        return super().fit(X, y)


def test_an_error_elsewhere_names_the_candidate():
    X, y = sample(100)
    with (
        sent_to(Bytes()),
        pytest.raises(CandidateError, match=r"'line' raised ValueError .*fold 4"),
    ):
        CrossFitted(Failing()).fit_out_of_fold(X, y, task="regression", name="line")


def test_parts_stay_here_by_default():
    seen = []
    assert run_parts(lambda shared, k: seen.append(k) or shared + k, 1, [(1,), (2,)]) == [2, 3]
    assert seen == [1, 2]
