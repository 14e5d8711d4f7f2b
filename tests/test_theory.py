"""The architecture of the theorems, against the formula by hand."""

from __future__ import annotations

import pytest

from localma.errors import InvalidInputError
from localma.gates import theorem_architecture


def test_by_hand():
    # n = 256, gamma = 1: growth 256^(1/8) = 2, D = 2 * ceil(log2 16) = 8, so 7 hidden layers.
    assert theorem_architecture(256, 3) == (3,) * 7
    # The floor of kappa is the largest integer strictly below it: floor(2) = 1, width p^2.
    assert theorem_architecture(256, 3, smoothness=2.0) == (9,) * 7
    assert theorem_architecture(256, 3, smoothness=2.5)[0] == 27
    # gamma = 0: growth 256^(1/4) = 4, D = 4 * ceil(log2 32) = 20.
    assert len(theorem_architecture(256, 3, tail_index=0.0)) == 19


def test_depth_and_width_have_their_own_constants():
    # n = 256: D = 8 and the width is p = 3, both times their constants.
    assert theorem_architecture(256, 3, width_constant=8.0) == (24,) * 7
    assert theorem_architecture(256, 3, depth_constant=0.5) == (3,) * 3
    assert theorem_architecture(256, 3, depth_constant=0.3, width_constant=2.5) == (8,) * 2


def test_grows_with_n():
    depths = [len(theorem_architecture(n, 5)) for n in (100, 1000, 10_000, 100_000)]
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n": 0, "p": 3}, "n must be at least 1; received 0"),
        ({"n": 10, "p": 0}, "p must be at least 1"),
        ({"n": 10, "p": 3, "smoothness": 0.0}, "smoothness must be positive"),
        ({"n": 10, "p": 3, "depth_constant": 0.0}, "depth_constant must be positive; received 0"),
        ({"n": 10, "p": 3, "width_constant": -1.0}, "width_constant must be positive"),
        ({"n": 10, "p": 3, "tail_index": -1.0}, "tail_index must be at least 0"),
    ],
)
def test_bad_input(arguments, match):
    with pytest.raises(InvalidInputError, match=match):
        theorem_architecture(**arguments)
