"""The record that every gate is fitted on: what it refuses, and what it holds."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from localma.errors import InvalidInputError
from localma.evidence import Baseline
from localma.gates import Labelled
from localma.losses import squared_error
from localma.tables.frames import LARGE_ROWS

LOSS = squared_error()


def sample(n=6, M=3, K=2):
    rng = np.random.default_rng(0)
    return {
        "X": rng.normal(size=(n, 4)),
        "P": rng.normal(size=(n, M, K)),
        "y": rng.normal(size=(n, K)),
    }


def test_it_is_frozen():
    data = Labelled.of(**sample(), loss=LOSS)
    with pytest.raises(FrozenInstanceError):
        data.y = np.zeros((6, 2))


@pytest.mark.parametrize(
    ("name", "values", "received"),
    [
        ("X", np.zeros((5, 4)), r"received 5 inputs, P \(6, 3, 2\)"),
        ("P", np.zeros((6, 3)), r"P \(6, 3\) and y \(6, 2\)"),
        ("P", np.zeros((6, 3, 1)), r"P \(6, 3, 1\) and y \(6, 2\)"),
        ("y", np.zeros(6), r"y \(6,\). Give a single output an axis"),
        ("y", np.zeros((5, 2)), r"P \(6, 3, 2\) and y \(5, 2\)"),
    ],
)
def test_shapes_must_agree(name, values, received):
    with pytest.raises(InvalidInputError, match=received):
        Labelled.of(**sample() | {name: values}, loss=LOSS)


@pytest.mark.parametrize("name", ["X", "P", "y", "sample_weight"])
def test_masks_that_hide_values_are_refused(name):
    values = {**sample(), "sample_weight": np.ones(6)}
    mask = np.zeros(values[name].shape, dtype=bool)
    values[name] = np.ma.array(values[name], mask=mask)
    plain = getattr(Labelled.of(**values, loss=LOSS), name)
    assert not isinstance(plain, np.ma.MaskedArray)
    values[name][2] = np.ma.masked
    with pytest.raises(InvalidInputError, match=f"{name} is masked in 1 of 6 rows, first in row 2"):
        Labelled.of(**values, loss=LOSS)


@pytest.mark.parametrize(
    "weight",
    [
        np.ones(5),
        np.zeros(6),
        np.r_[np.ones(5), -1.0],
        np.r_[np.ones(5), np.nan],
        np.full(6, np.inf),
    ],
)
def test_weights_are_checked(weight):
    with pytest.raises(InvalidInputError, match=r"sample_weight must have shape \(6,\)"):
        Labelled.of(**sample(), loss=LOSS, sample_weight=weight)


@pytest.mark.parametrize("n", [6, LARGE_ROWS])
def test_rows_without_weights_all_weigh_one(n):
    P, y = np.zeros((n, 1, 1)), np.zeros((n, 1))
    weight = Labelled.of(np.zeros((n, 1)), P, y, loss=LOSS).sample_weight
    np.testing.assert_array_equal(weight, np.ones(n))


def test_groups_are_numbered_and_counted_if_they_have_weight():
    groups, weight = ["c", "a", "c", "b", "a", "a"], np.array([1.0, 1, 1, 0, 1, 1])
    data = Labelled.of(**sample(), loss=LOSS, groups=groups, sample_weight=weight)
    assert data.groups.tolist() == [2, 0, 2, 1, 0, 0]
    assert data.n_groups == 2
    with pytest.raises(InvalidInputError, match=r"array of shape \(5,\)"):
        Labelled.of(**sample(), loss=LOSS, groups=groups[:5])


def test_take_takes_rows_of_everything():
    values, weight = sample(), np.arange(1.0, 7.0)
    baseline = Baseline(LOSS, values["y"], weight)
    data = Labelled.of(
        **values, loss=LOSS, sample_weight=weight, groups=list("abcabc"), baseline=baseline
    )
    rows = np.array([4, 1])
    few = data.take(rows)
    assert (few.n_rows, few.n_inputs, few.n_candidates) == (2, 4, 3)
    for name in ("X", "P", "y", "sample_weight", "groups"):
        np.testing.assert_array_equal(getattr(few, name), getattr(data, name)[rows])
    np.testing.assert_array_equal(few.baseline.targets, values["y"][rows])
    assert few.loss is LOSS


def test_inputs_need_not_be_an_array():
    values = sample()
    data = Labelled.of(**values | {"X": list("uvwxyz")}, loss=LOSS)
    assert data.n_inputs == 0
    assert data.take(np.array([5, 0])).X == ["z", "u"]
    assert data.without_inputs(np.array([5, 0])).X.shape == (2, 0)
