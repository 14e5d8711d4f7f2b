"""The study of monitors in miniature."""

from __future__ import annotations

import numpy as np
import pytest

from studies import monitor as study


@pytest.fixture
def short(monkeypatch):
    """Streams of 1,000 rows, over one model of 300 labelled rows."""
    monkeypatch.setattr(study, "LENGTH", 1_000)
    monkeypatch.setattr(study, "CHANGE", 500)
    monkeypatch.setattr(study, "MODELS", 1)


@pytest.mark.parametrize("task", study.TASKS)
def test_a_candidate_becomes_worse_by_a_fifth(task, short):
    of = study.fitted(task, 0)
    stream = study.draw_stream(task, "none", of, np.random.default_rng(0))
    P, changed = stream.P[:, 0], np.arange(1_000) >= 500
    after = study.worsened(P, stream.y, changed, np.random.default_rng(1))
    if task == "regression":
        expected = 0.44 * np.mean((P[:500] - stream.y[:500]) ** 2)
        np.testing.assert_allclose(np.mean((after - P[500:]) ** 2), expected, rtol=0.3)
        return
    right = P[500:].argmax(axis=1) == stream.y[500:]
    still = after.argmax(axis=1) == stream.y[500:]
    assert not (still & ~right).any()
    assert abs(still.sum() / right.sum() - 0.8) < 0.06
    np.testing.assert_allclose(after.sum(axis=1), 1.0)


@pytest.mark.parametrize("task", study.TASKS)
def test_a_moved_input_is_found_and_nothing_else(task, short):
    seed = np.random.SeedSequence(3)
    quiet = study.run({"task": task, "case": "none"}, seed, ("localma",))
    assert quiet == {"localma:false_alarm": 0.0}
    moved = study.run({"task": task, "case": "input"}, seed, ("localma",))
    assert moved["localma:false_alarm"] == 0.0
    assert moved["localma:delay"] <= 300


def test_the_bound_of_mapie_is_that_of_its_monitor(short):
    testing = pytest.importorskip("mapie.exchangeability_testing")
    of = study.fitted("regression", 0)
    rng = np.random.default_rng(0)
    risks = np.concatenate([rng.random(300) < 0.1, rng.random(700) < 0.9])
    reference = rng.random(2_000) < 0.1
    nothing = np.empty(0)
    stream = study.Stream(nothing, nothing, nothing, nothing, risks, reference)
    theirs = testing.RiskMonitoring(risk="accuracy", tolerance=0.0, warn=False)
    theirs.compute_threshold(1 - reference, np.ones_like(reference, dtype=int))
    theirs.update(1 - risks, np.ones_like(risks, dtype=int))
    first = np.argmax(theirs.online_risk_lower_bound_sequence_history > theirs.threshold) + 1
    assert study.of_mapie(stream) - 100 < first <= study.of_mapie(stream)
    assert of.n == 300
