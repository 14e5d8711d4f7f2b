"""The picture of the path."""

from __future__ import annotations

import numpy as np
import pytest

from localma import LocalMARegressor
from localma.errors import InvalidInputError
from localma.inspection import LocalityPathDisplay


@pytest.fixture
def model():
    X = np.linspace(-2, 2, 60)[:, None]
    return LocalMARegressor(
        {"left": lambda X: -X[:, 0], "right": lambda X: X[:, 0]}, cv=2, random_state=0
    ).fit(X, np.abs(X[:, 0]))


def test_draws_every_point_of_the_path(model):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    display = LocalityPathDisplay.from_estimator(model)
    drawn = sum(len(points.get_offsets()) for points in display.ax_.collections)
    constants = sum(len(line.get_xdata()) == 2 for line in display.ax_.lines)
    assert drawn == 8
    assert constants == 3
    assert display.ax_.get_title() == model.verdict_
    display.figure_.clear()


def test_takes_axes(model):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, ax = pyplot.subplots()
    assert LocalityPathDisplay.from_estimator(model, ax=ax).ax_ is ax
    pyplot.close(figure)


def test_refuses_a_model_without_path(model):
    bare = LocalMARegressor({"left": lambda X: -X[:, 0]}, gate="equal").fit(
        [[0.0], [1.0]], [0.0, 1.0]
    )
    with pytest.raises(InvalidInputError, match="has a path to draw"):
        LocalityPathDisplay.from_estimator(bare)
