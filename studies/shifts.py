"""Shifted inputs: train on part of the range and test outside it, with auto and global weights.

Far from the labelled sample it is unknown which candidate to trust. Local weights must fade there.
In the first shifts the mean paired difference of auto to global may be at most 2 % of the risk
(mean squared error against the truth), in joint shifts 20 %. Other cells test on rows like those
of the sample: there the guard may cost at most 1 % of the risk, with the noise of the target. The
guard was chosen on other seeds and on other parameters of these shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma import LocalMARegressor
from localma.equations import local_average
from localma.gates import Gate, ShrunkGate
from studies.findings import Finding, Results
from studies.harness import Study, Table, grid
from studies.pairs import difference
from studies.scenarios import candidates, scenario_2_truth, true_weights

Array = NDArray[np.floating]
Metrics = dict[str, float]
Draw = Callable[[np.random.Generator, int], Array]

METHODS = ("equal", "global", "local", "auto")
JOINT_METHODS = ("global", "unguarded", "auto")
SIZES = (100, 300, 900)
JOINT_SIZES = (300, 1000)
WITHIN_SIZES = (100, 300, 1000)
N_TEST = 2000
TOLERANCE, JOINT_TOLERANCE, COST = 0.02, 0.2, 0.01


@dataclass(frozen=True)
class Shift:
    """A constructed shift.

    inside, outside : (generator, n) -> X (n, 5), inputs of the sample and of the test part
    truth : X -> (n,); candidates : X -> (n, M)
    must_be_safe : whether a bound applies; other shifts are only shown
    outside_candidates : X -> (n, M) the candidates of the test part, if they change
    """

    name: str
    inside: Draw
    outside: Draw
    truth: Callable[[Array], Array]
    candidates: Callable[[Array], Array]
    must_be_safe: bool = True
    outside_candidates: Callable[[Array], Array] | None = None


def run(keys: Mapping[str, Any], seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """Risks of some methods outside the sample, for one draw of one shift and size."""
    shift, rng = ALL[keys["shift"]], np.random.default_rng(seed)
    gates = {name: GATES.get(name, name) for name in methods}
    return compare(shift, keys["n"], gates, rng, int(seed.generate_state(2)[1]) // 2)


def compare(
    shift: Shift,
    n: int,
    gates: Mapping[str, str | Gate],
    rng: np.random.Generator,
    random_state: int,
) -> Metrics:
    """Fit each gate on n rows; return "method:risk" outside their range, against the truth."""
    X, X_out = shift.inside(rng, n), shift.outside(rng, N_TEST)
    P, P_out = shift.candidates(X), (shift.outside_candidates or shift.candidates)(X_out)
    y, truth = shift.truth(X) + rng.standard_normal(n), shift.truth(X_out)
    metrics = {}
    for name, gate in gates.items():
        model = LocalMARegressor(gate=gate, random_state=random_state).fit(X, y, predictions=P)
        error = truth - model.predict(X_out, predictions=P_out)
        metrics[f"{name}:risk"] = float(np.mean(error**2))
    return metrics


def _gaussian(keep: Callable[[Array], NDArray[np.bool_]]) -> Draw:
    """Independent standard Gaussian inputs, restricted to the rows that `keep` selects."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        X = np.empty((0, 5))
        while len(X) < n:
            more = rng.standard_normal((4 * n, 5))
            X = np.concatenate([X, more[keep(more)]])
        return X[:n]

    return draw


def _band(low: float, high: float) -> Draw:
    """Uniform inputs in [-1, 1], except the first in [low, high]."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        X = rng.uniform(-1, 1, (n, 5))
        X[:, 0] = rng.uniform(low, high, n)
        return X

    return draw


def _diagonal(slope: float) -> Draw:
    """First two inputs on a line: within the range of each input, but not of both."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        X = rng.uniform(-1, 1, (n, 5))
        X[:, 1] = slope * X[:, 0] + 0.1 * rng.standard_normal(n)
        return X

    return draw


def _signal(X: Array) -> Array:
    return 2 * X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2]


def _wrong_by(size: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Three candidates with different errors, whose sizes are given (n, 3)."""

    def erring(X: Array) -> Array:
        waves = np.stack([np.sin(5 * X[:, j] + 2 * X[:, j + 1] + j) for j in (1, 2, 3)], axis=1)
        return _signal(X)[:, np.newaxis] + 2 * size(X) * np.sqrt(2.0) * waves

    return erring


def _own_third(X: Array) -> Array:
    """Each candidate has small errors in its own third of [-1, 1] on the first input."""
    centre = np.array([-2 / 3, 0.0, 2 / 3])
    return np.where(np.abs(X[:, :1] - centre) <= 1 / 3, 0.1, 1.0)


def _alike_outside(X: Array) -> Array:
    return np.where(X[:, :1] > 1, 0.6, _own_third(X))


def _reversed_outside(X: Array) -> Array:
    inside, reversed_ = _own_third(X), np.array([0.1, 1.0, 1.0])
    return np.where(X[:, :1] > 1, reversed_, inside)


def _last_stays_good(X: Array) -> Array:
    return np.where(X[:, :1] > 1, np.array([1.0, 1.0, 0.1]), _own_third(X))


def _corner_reversed(X: Array) -> Array:
    """On the diagonal the first input shows which candidate is good; off it, the opposite holds."""
    left = np.where(X[:, 0] * np.sign(X[:, 0] * X[:, 1]) < 0, 0.1, 1.0)
    return np.stack([left, 1.1 - left, np.ones(len(X))], axis=1)


SHIFTS: dict[str, Shift] = {
    shift.name: shift
    for shift in (
        Shift(
            "first input moves",
            _gaussian(lambda X: X[:, 0] < 0), _gaussian(lambda X: X[:, 0] > 0.5),
            scenario_2_truth, candidates,
        ),
        Shift(
            "last input moves",
            _gaussian(lambda X: X[:, 4] < 0.5), _gaussian(lambda X: X[:, 4] > 1),
            scenario_2_truth, candidates,
        ),
        Shift(
            "alike outside", _band(-1, 1), _band(1.5, 3), _signal, _wrong_by(_alike_outside),
        ),
        Shift(
            "reversed outside", _band(-1, 1), _band(1.5, 3), _signal, _wrong_by(_reversed_outside),
        ),
        Shift(
            "same outside", _band(-1, 1), _band(1.5, 3), _signal, _wrong_by(_last_stays_good),
        ),
        Shift(
            "just outside, reversed", _band(-1, 1), _band(1, 1.5), _signal,
            _wrong_by(_reversed_outside), must_be_safe=False,
        ),
        Shift(
            "another corner, reversed", _diagonal(1), _diagonal(-1), _signal,
            _wrong_by(_corner_reversed), must_be_safe=False,
        ),
    )
}  # fmt: skip
"""Two Gaussian shifts, three that differ only outside the sample, and two known limits: right at
the edge, and outside the joint range but within the range of each input."""


GATES: dict[str, str | Gate] = {"unguarded": ShrunkGate(guard=False)}


def _nothing(X: Array) -> Array:
    return np.zeros(len(X))


def _right_in(role: Callable[[Array], NDArray[np.integer]]) -> Callable[[Array], Array]:
    """Three candidates, of which the one that `role` names in each row has a small error."""

    def erring(X: Array) -> Array:
        own = np.arange(3)
        waves = [np.sin(5 * np.tanh(X[:, j]) + 9 * X.sum(axis=1) + 2 * j) for j in range(3)]
        size = np.where(role(X)[:, np.newaxis] == own, 0.1, 1.0)
        return 2 * size * np.sqrt(2.0) * np.stack(waves, axis=1)

    return erring


def _joint(name: str, inside: Draw, outside: Draw, role: Any, new_role: Any, **more: bool) -> Shift:
    """A shift in which candidates change their roles; the truth is zero."""
    return Shift(
        name, inside, outside, _nothing, _right_in(role), outside_candidates=_right_in(new_role),
        **more,
    )  # fmt: skip


def _thirds(u: Array) -> NDArray[np.integer]:
    return (u > -0.45).astype(int) + (u > 0.45)


def _changed(change: Callable[[Array, np.random.Generator], Array], p: int = 5) -> Draw:
    """Standard Gaussian inputs, changed by a function of them."""
    return lambda rng, n: change(rng.standard_normal((n, p)), rng)


def _put(column: int, value: Callable[[Array, np.random.Generator], Any]) -> Draw:
    """Standard Gaussian inputs with one column replaced."""

    def change(X: Array, rng: np.random.Generator) -> Array:
        X[:, column] = value(X, rng)
        return X

    return _changed(change)


def _correlated(rho: float) -> Draw:
    return _put(1, lambda X, rng: rho * X[:, 0] + np.sqrt(1 - rho**2) * X[:, 1])


def _levels(new: bool) -> Draw:
    """A category with a column for each level that the sample has, as `TableEncoder` makes them."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        level = np.full(n, 6) if new else rng.integers(0, 6, n)
        return np.c_[np.eye(7)[level][:, :6], rng.standard_normal((n, 4))]

    return draw


def _level_role(X: Array) -> NDArray[np.integer]:
    level = np.where(X[:, :6].sum(axis=1) > 0, X[:, :6].argmax(axis=1), 6)
    return np.array([2, 0, 0, 1, 1, 0, 2])[level]


def _ring(low: float, high: float) -> Draw:
    def change(X: Array, rng: np.random.Generator) -> Array:
        angle, radius = rng.uniform(0, 2 * np.pi, len(X)), rng.uniform(low, high, len(X))
        return np.c_[radius * np.cos(angle), radius * np.sin(angle), X[:, 2:] / 2]

    return _changed(change)


def _sector(X: Array) -> NDArray[np.integer]:
    return (np.arctan2(X[:, 1], X[:, 0]) // (2 * np.pi / 3)).astype(int) % 3


def _curve(sign: int) -> Draw:
    """Near a wave; where the wave is far from its mirror image if that is tested."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        X = rng.standard_normal((8 * n, 5))
        X[:, 0] = rng.uniform(-1.6, 1.6, 8 * n)
        wave = np.sin(2 * X[:, 0])
        X[:, 1] = sign * wave + 0.15 * X[:, 1]
        return X[np.abs(wave) > (0.5 if sign < 0 else -1.0)][:n]

    return draw


def _corners(new: bool) -> Draw:
    def change(X: Array, rng: np.random.Generator) -> Array:
        corner = np.array([[-1, -1], [1, -1], [-1, 1]])[rng.integers(0, 3, len(X))]
        X[:, :2] = (1.0 if new else corner) + 0.2 * X[:, :2]
        return X

    return _changed(change)


def _bits(new: bool) -> Draw:
    """Two types of patterns of 20 bits; new ones mix them."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        first = rng.integers(0, 2, (n, 1)).astype(bool)
        rate = np.where((np.arange(20) < 10) == first, 0.85, 0.15)
        if new:
            rate = np.where(first, 0.97, 0.03) * np.ones((1, 20))
        return (rng.uniform(size=(n, 20)) < rate).astype(float)

    return draw


def _of_first(X: Array) -> NDArray[np.integer]:
    return _thirds(X[:, 0])


def _reversed(X: Array) -> NDArray[np.integer]:
    return 2 - _thirds(X[:, 0])


def _side(at: float, swap: bool = False) -> Callable[[Array], NDArray[np.integer]]:
    return lambda X: ((X[:, 0] > at) != swap).astype(int)


_CODES = {1: 2, 2: 0, 3: 1, 5: 1, 6: 0, 7: 0, 4: 0, 9: 2}
_MOVES = np.array([-11.0, 0.0, 0.0, 0.0, 0.0])

JOINT: dict[str, Shift] = {
    shift.name: shift
    for shift in (
        _joint(
            "correlated inputs apart", _correlated(0.9), _correlated(-0.9), _of_first, _reversed,
        ),
        _joint(
            "interior gap", _gaussian(lambda X: np.abs(X[:, 0] - 0.5) > 0.5),
            _gaussian(lambda X: np.abs(X[:, 0] - 0.5) < 0.35), _side(0.5), _side(0.5, swap=True),
        ),
        _joint(
            "40 inputs a little off", _changed(lambda X, rng: X, 40),
            _changed(lambda X, rng: X + 1.2, 40), lambda X: (X.sum(axis=1) > 0).astype(int),
            lambda X: (X.sum(axis=1) < 0).astype(int),
        ),
        _joint("new category", _levels(False), _levels(True), _level_role, _level_role),
        _joint(
            "new code", _put(0, lambda X, rng: rng.choice([1, 2, 3, 5, 6, 7], len(X))),
            _put(0, lambda X, rng: rng.choice([4, 9], len(X))),
            lambda X: np.array([_CODES[int(code)] for code in X[:, 0]]),
            lambda X: np.array([_CODES[int(code)] for code in X[:, 0]]),
        ),
        _joint(
            "constant input changes", _put(4, lambda X, rng: 5.0), _put(4, lambda X, rng: 5.3),
            _of_first, _reversed,
        ),
        _joint(
            "mean moves by 11", _changed(lambda X, rng: X), _changed(lambda X, rng: X + _MOVES),
            _of_first, lambda X: np.full(len(X), 2),
        ),
        _joint(
            "spread times 8", _changed(lambda X, rng: X), _changed(lambda X, rng: 8 * X), _of_first,
            lambda X: np.where(np.abs(X[:, 0]) > 6, _reversed(X), _of_first(X)),
        ),
        _joint(
            "inside of a ring", _ring(0.8, 1.0), _ring(0.2, 0.45), _sector,
            lambda X: (_sector(X) + 1) % 3,
        ),
        _joint(
            "off a curve", _curve(1), _curve(-1), lambda X: _thirds(X[:, 0] + X[:, 1]),
            lambda X: 2 - _thirds(X[:, 0] + X[:, 1]),
        ),
        _joint(
            "fourth corner", _corners(False), _corners(True),
            lambda X: ((X[:, 0] > 0) | (X[:, 1] > 0)).astype(int),
            lambda X: np.zeros(len(X), dtype=int),
        ),
        _joint(
            "mean moves by 4", _changed(lambda X, rng: X),
            _changed(lambda X, rng: X + _MOVES * 4 / 11), _of_first,
            lambda X: np.full(len(X), 2), must_be_safe=False,
        ),
        _joint(
            "new pattern of bits", _bits(False), _bits(True),
            lambda X: (X[:, :10].sum(axis=1) > X[:, 10:].sum(axis=1)).astype(int),
            lambda X: np.full(len(X), 2), must_be_safe=False,
        ),
        _joint(
            "unused input moves", _changed(lambda X, rng: X), _put(4, lambda X, rng: X[:, 4] + 12),
            _of_first, _of_first,
        ),
        _joint(
            "counter goes on", _put(4, lambda X, rng: np.sort(rng.uniform(0, 1, len(X)))),
            _put(4, lambda X, rng: np.sort(rng.uniform(1, 1.5, len(X)))), _of_first, _of_first,
        ),
    )
}  # fmt: skip
"""Shifts of several inputs at once, of categories and codes, and of inputs without effect."""


def _alike(name: str, draw: Draw) -> Shift:
    """New rows from the distribution of the sample; roles by thirds of the first input."""
    cuts = np.quantile(draw(np.random.default_rng(0), 20_000)[:, 0], [1 / 3, 2 / 3])

    def role(X: Array) -> NDArray[np.integer]:
        return np.searchsorted(cuts, X[:, 0])

    return Shift(name, draw, draw, _nothing, _right_in(role))


def _mixed(rng: np.random.Generator, n: int) -> Array:
    normal, amounts = rng.standard_normal((n, 2)), np.exp(1.5 * rng.standard_normal((n, 2)))
    flags, levels = rng.uniform(size=(n, 3)) < 0.3, np.eye(4)[rng.integers(0, 4, n)]
    return np.c_[normal, amounts, rng.poisson(1.5, (n, 2)), flags, levels]


WITHIN: dict[str, Shift] = {
    shift.name: shift
    for shift in (
        _alike("Gaussian", lambda rng, n: rng.standard_normal((n, 5))),
        _alike("Student, 2 degrees", lambda rng, n: rng.standard_t(2, (n, 5))),
        _alike("Cauchy", lambda rng, n: rng.standard_cauchy((n, 5))),
        _alike("lognormal", lambda rng, n: np.exp(1.5 * rng.standard_normal((n, 5)))),
        _alike("Poisson", lambda rng, n: 1.0 * rng.poisson(4, (n, 5))),
        _alike("negative binomial", lambda rng, n: 1.0 * rng.negative_binomial(0.5, 0.1, (n, 5))),
        _alike(
            "many zeros",
            lambda rng, n: np.exp(rng.standard_normal((n, 5))) * (rng.uniform(size=(n, 5)) < 0.5),
        ),
        _alike("mixed table", _mixed),
        Shift(
            "30 bits", lambda rng, n: 1.0 * (rng.uniform(size=(n, 30)) < 0.4),
            lambda rng, n: 1.0 * (rng.uniform(size=(n, 30)) < 0.4), _nothing,
            _right_in(lambda X: (X[:, 0] + X[:, 1]).astype(int)),
        ),
        Shift(
            "S1", _gaussian(lambda X: np.ones(len(X), dtype=bool)),
            _gaussian(lambda X: np.ones(len(X), dtype=bool)),
            lambda X: local_average(true_weights("S1", X), candidates(X)), candidates,
        ),
    )
}  # fmt: skip
"""Tests on new rows from the distribution of the sample, where the guard can only cost."""

ALL = {**SHIFTS, **JOINT, **WITHIN}


def cost(results: Results, name: str, n: int) -> float:
    """Mean difference of auto to auto without a guard, relative to the risk with the noise."""
    found = difference(results, "risk", "auto", "unguarded", shift=name, n=n)
    return found.mean / (1.0 + found.risk)


def excess(results: Results, name: str, n: int) -> tuple[float, float]:
    """Mean paired difference of auto to global and its standard error, relative to the risk."""
    found = difference(results, "risk", "auto", "global", shift=name, n=n)
    return found.mean / found.risk, found.error / found.risk


def notes(results: Results) -> list[str]:
    """One line per shift and size that was run."""
    run_cells = {(k["shift"], k["n"]) for m, _, k in results.entries() if m == "auto"}
    lines = []
    for name, n in sorted(run_cells, key=lambda cell: (list(ALL).index(cell[0]), cell[1])):
        if name in WITHIN:
            lines.append(
                f"{name}, n={n}: the guard costs {cost(results, name, n):+.2%} of the risk"
            )
            continue
        mean, error = excess(results, name, n)
        known = "" if ALL[name].must_be_safe else " (a known limit)"
        lines.append(f"{name}, n={n}: auto - global = {mean:+.1%} ± {error:.1%} of the risk{known}")
    return lines


def _safe(name: str) -> Finding:
    return Finding(
        f"{name}: auto is at most 2 % of the risk behind global at every size.",
        "aim",
        lambda results: all(excess(results, name, n)[0] <= TOLERANCE for n in SIZES),
    )


def _joint_safe(name: str) -> Finding:
    return Finding(
        f"{name}: auto is at most 20 % of the risk behind global at n = 300 and 1,000.",
        "aim",
        lambda results: all(excess(results, name, n)[0] <= JOINT_TOLERANCE for n in JOINT_SIZES),
    )


def _cheap(name: str) -> Finding:
    return Finding(
        f"Rows like the sample, {name}: the guard costs at most 1 % of the risk at every size.",
        "aim",
        lambda results: all(cost(results, name, n) <= COST for n in WITHIN_SIZES),
    )


STUDY = Study(
    name="shifts",
    title="Shifted inputs",
    cells=(
        *grid(METHODS, 20, shift=list(SHIFTS), n=SIZES),
        *grid(JOINT_METHODS, 10, shift=list(JOINT), n=JOINT_SIZES),
        *grid(JOINT_METHODS, 10, shift=list(WITHIN), n=WITHIN_SIZES),
    ),
    run=run,
    tables=(
        Table(
            "Risk outside the sample",
            "risk",
            ("shift", "n"),
            METHODS,
            {"shift": tuple(SHIFTS)},
        ),
        Table(
            "Risk after joint shifts",
            "risk",
            ("shift", "n"),
            JOINT_METHODS,
            {"shift": tuple(JOINT)},
        ),
        Table(
            "Risk on rows like the sample",
            "risk",
            ("shift", "n"),
            JOINT_METHODS,
            {"shift": tuple(WITHIN)},
        ),
    ),
    findings=(
        *(_safe(name) for name, shift in SHIFTS.items() if shift.must_be_safe),
        *(_joint_safe(name) for name, shift in JOINT.items() if shift.must_be_safe),
        *map(_cheap, WITHIN),
    ),
    notes=notes,
)
