"""Simulated samples with dependent rows, with duplicates, and with an order that means nothing.

Candidates are ``f_m = truth + e_m``. In a null scenario the errors do not depend on the inputs, so
on fresh rows no local weights are better than the best constant weights. Fresh rows are those to
which a model is applied: the rows that follow a series, new clusters, or independent rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from localma._optional import optional
from localma.equations import softmax
from localma.errors import unknown_name

if TYPE_CHECKING:
    from pandas import DataFrame

Array = NDArray[np.floating]
Integers = NDArray[np.integer]

SPREADS = np.array([1.0, 1.1, 1.3, 1.6])
"""Standard deviations of the errors of the candidates."""
NOISE = 0.5
"""Standard deviation of the part of the target that no candidate predicts."""
N_INPUTS = 4
N_CLUSTERS = 20
INTRACLASS = 0.5
"""Share of the variance of an error that the rows of a cluster have in common."""
DAY = 24
DRIFT = 2.0
"""Standard deviation of the change of a bias from the first to the last row of the sample."""


@dataclass(frozen=True)
class Part:
    """Rows of a scenario.

    X : (n, p) array or frame, P : (n, M) or (n, M, K), y : (n,), groups : (n,) or None.
    """

    X: Array | DataFrame
    P: Array
    y: NDArray[np.generic]
    groups: Integers | None = None

    def take(self, rows: Integers) -> Part:
        """Some of the rows, in this order."""
        X = self.X[rows] if isinstance(self.X, np.ndarray) else self.X.take(rows)
        groups = None if self.groups is None else self.groups[rows]
        return Part(X, self.P[rows], self.y[rows], groups)

    @classmethod
    def joined(cls, parts: Sequence[Part]) -> Part:
        """Rows of several parts, one part after the other; without groups."""
        tables = [part.X for part in parts]
        join = np.concatenate if isinstance(tables[0], np.ndarray) else _pandas().concat
        X = join(tables)
        return cls(X, *(np.concatenate([getattr(p, name) for p in parts]) for name in ("P", "y")))


def _pandas() -> ModuleType:
    return optional("pandas", extra=None)


@dataclass(frozen=True)
class Sample:
    """A labelled sample, its loss, and a function that draws the rows to which a model is applied.

    fresh : (number of rows, seed) -> Part. Each seed gives another continuation of the sample.
    """

    part: Part
    loss: str
    fresh: Callable[[int, int], Part]

    def continuations(self, rows: int, seed: int) -> Part:
        """About this number of fresh rows, in continuations that are as long as the sample."""
        n = len(self.part.y)
        count = max(1, rows // n)
        return Part.joined([self.fresh(n, seed + number) for number in range(count)])


Draw = Callable[[int, np.random.Generator], tuple[Part, "Follow"]]
Follow = Callable[[int, np.random.Generator], Part]


@dataclass(frozen=True)
class Scenario:
    """A distribution of samples.

    kind : "null" (nothing local, dependent rows), "trap" (nothing local, an order or equal rows
        that do not matter) or "local" (the best weights depend on the inputs)
    draw : (n, generator) -> the labelled part, and the function that draws fresh rows
    """

    name: str
    kind: str
    draw: Draw
    loss: str = "squared_error"


def scenario(name: str, n: int, seed: int) -> Sample:
    """Draw a labelled sample of n rows.

    >>> sample = scenario("AR .6, slow inputs", 50, seed=0)
    >>> sample.part.X.shape, sample.part.P.shape, sample.fresh(10, 1).y.shape
    ((50, 4), (50, 4), (10,))
    """
    if name not in SCENARIOS:
        raise unknown_name("scenario", name, SCENARIOS)
    chosen = SCENARIOS[name]
    part, follow = chosen.draw(n, np.random.default_rng(seed))

    def fresh(rows: int, seed: int) -> Part:
        return follow(rows, np.random.default_rng((seed, 1)))  # never the numbers of the sample

    return Sample(part, chosen.loss, fresh)


# Errors and inputs of a series.


def ar1(rng: np.random.Generator, n: int, phi: float, last: Array) -> Array:
    """Columns of independent AR(1) series with variance 1 that follow the row `last`: (n, k)."""
    shocks = np.sqrt(1 - phi**2) * rng.standard_normal((n, len(last)))
    return lfilter([1.0], [1.0, -phi], shocks, axis=0, zi=phi * last[np.newaxis])[0]


def _observed(X: Array, errors: Array, noise: Array) -> Part:
    """Rows with these errors of the candidates (n, M) and of the target (n,), in units of one."""
    truth = 1.5 * X[:, 0] + X[:, 1]
    spreads = SPREADS[: errors.shape[1]]
    return Part(X, truth[:, np.newaxis] + spreads * errors, truth + NOISE * noise)


@dataclass(frozen=True)
class State:
    """The last row of a series: inputs (p,), errors of candidates and target (M + 1,), hour."""

    inputs: Array
    errors: Array
    hour: int = -1

    @classmethod
    def start(cls, rng: np.random.Generator) -> State:
        """A stationary start."""
        return cls(rng.standard_normal(N_INPUTS), rng.standard_normal(len(SPREADS) + 1))


def _series(phi: float, phi_inputs: float, *, hours: bool = False) -> Draw:
    """AR(1) errors and inputs; with `hours` also the row number and the hour of the day."""

    def step(n: int, rng: np.random.Generator, last: State) -> tuple[Part, State]:
        X, errors = ar1(rng, n, phi_inputs, last.inputs), ar1(rng, n, phi, last.errors)
        part = _observed(X, errors[:, :-1], errors[:, -1])
        now = State(X[-1], errors[-1], last.hour + n)
        if hours:
            part = replace(part, X=np.column_stack([X, _clock(last.hour + 1 + np.arange(n))]))
        return part, now

    def draw(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        part, now = step(n, rng, State.start(rng))
        return part, lambda rows, more: step(rows, more, now)[0]

    return draw


def _shuffled_series(phi: float) -> Draw:
    """A series in random order, with a column that has the time in days."""

    def stamped(part: Part, first: int) -> Part:
        days = (first + np.arange(len(part.y))) / DAY
        return replace(part, X=np.column_stack([part.X, days]))

    def draw(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        part, follow = _series(phi, phi)(n, rng)
        shuffled = stamped(part, 0).take(rng.permutation(n))
        return shuffled, lambda rows, more: stamped(follow(rows, more), n)

    return draw


def _clock(hours: Integers) -> Array:
    """Row number, and sine and cosine of the hour of the day: (n, 3)."""
    angle = 2 * np.pi * hours / DAY
    return np.column_stack([hours, np.sin(angle), np.cos(angle)])


def _walk(*, hours: bool = False) -> Draw:
    """Biases of the candidates that drift within the sample by more than the other errors."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        phi = np.exp(-10 / n)  # inputs as slow as the biases

        def step(rows: int, rng: np.random.Generator, last: State) -> tuple[Part, State]:
            X = ar1(rng, rows, phi, last.inputs)
            steps = DRIFT / np.sqrt(n) * rng.standard_normal((rows, len(SPREADS)))
            walk = last.errors + np.cumsum(steps, axis=0)
            own = rng.standard_normal(steps.shape)
            part = _observed(X, walk + 0.5 * own, rng.standard_normal(rows))
            if hours:
                part = replace(part, X=np.column_stack([X, last.hour + 1 + np.arange(rows)]))
            return part, State(X[-1], walk[-1], last.hour + rows)

        start = replace(State.start(rng), errors=np.zeros(len(SPREADS)))
        part, now = step(n, rng, start)
        return part, lambda rows, more: step(rows, more, now)[0]

    return draw


# Independent rows, and changes of them.


def _independent(n: int, rng: np.random.Generator) -> Part:
    return _observed(
        rng.standard_normal((n, N_INPUTS)),
        rng.standard_normal((n, len(SPREADS))),
        rng.standard_normal(n),
    )


Make = Callable[[int, np.random.Generator], Part]
Arrange = Callable[[Part, np.random.Generator], Part]


def _rows(make: Make, arrange: Arrange | None = None) -> Draw:
    """Independent rows, arranged after they were drawn; fresh rows are not arranged."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        part = make(n, rng)
        return arrange(part, rng) if arrange else part, make

    return draw


def _copied(rows: Callable[[int, np.random.Generator], Integers]) -> Arrange:
    """Replace the rows of a sample by copies of some of them, in random order.

    rows : (n, generator) -> (n,) the rows to keep, with repetitions
    """

    def arrange(part: Part, rng: np.random.Generator) -> Part:
        return part.take(rng.permutation(rows(len(part.y), rng)))

    return arrange


def _each(times: int) -> Arrange:
    return _copied(lambda n, rng: np.arange(n) // times)


def _nearly_copied(part: Part, rng: np.random.Generator) -> Part:
    """Every row twice, with inputs that differ by rounding errors."""
    copied = _each(2)(part, rng)
    return replace(copied, X=copied.X * (1 + 1e-6 * rng.standard_normal(copied.X.shape)))


def _half_copied(n: int, rng: np.random.Generator) -> Integers:
    """Two thirds of the number of rows are distinct, and half of these appear twice."""
    distinct = np.arange(n - n // 3)
    return np.concatenate([distinct, distinct[: n // 3]])


def _bootstrap(n: int, rng: np.random.Generator) -> Integers:
    return rng.integers(n, size=n)


def _sorted_by(key: Callable[[Part], NDArray[np.generic]]) -> Arrange:
    return lambda part, rng: part.take(np.argsort(key(part), kind="stable"))


def _first_input(part: Part) -> Array:
    return np.asarray(part.X)[:, 0]


def _grid_null(n: int, rng: np.random.Generator) -> Part:
    """One input on an even grid, with errors that do not depend on it."""
    part = _independent(n, rng)
    x = np.linspace(-2, 2, n)
    moved = x - (1.5 * part.X[:, 0] + part.X[:, 1])  # the truth is now x
    return Part(x[:, np.newaxis], part.P + moved[:, np.newaxis], part.y + moved)


def _grid_local(noise: float) -> Make:
    """One input on an even grid; the candidates are right on one side each."""

    def make(n: int, rng: np.random.Generator) -> Part:
        x = np.linspace(-2, 2, n)
        y = np.abs(x) + noise * rng.standard_normal(n)
        return Part(x[:, np.newaxis], np.stack([-x, x, np.full(n, 1.0)], axis=1), y)

    return make


def _cells(effect: float) -> Make:
    """Two inputs with three values each, and whole targets: many rows are equal.

    effect : bias of a candidate outside its own value of the first input
    """

    def make(n: int, rng: np.random.Generator) -> Part:
        X = rng.integers(3, size=(n, 2)).astype(float)
        truth = 2.0 * X[:, 0] + X[:, 1]
        biases = np.array([-0.6, 0.4, 0.9]) if not effect else effect * (X[:, :1] != np.arange(3))
        y = truth + rng.integers(-1, 2, size=n)
        return Part(X, truth[:, np.newaxis] + biases, y)

    return make


def _districts(n: int, rng: np.random.Generator) -> Part:
    """A category with 20 values; in each of them another candidate has small errors."""
    part, district = _independent(n, rng), rng.integers(N_CLUSTERS, size=n)
    truth = 1.5 * part.X[:, 0] + part.X[:, 1]
    is_best = district[:, np.newaxis] % len(SPREADS) == np.arange(len(SPREADS))
    P = truth[:, np.newaxis] + np.where(is_best, 0.3, 1.2) * (part.P - truth[:, np.newaxis])
    X = _frame(["size", "age"], part.X, district=_names("district", district))
    return Part(X, P, part.y)


# Clusters.


def _names(word: str, numbers: Integers) -> list[str]:
    return [f"{word} {number}" for number in numbers]


def _frame(names: Sequence[str], X: Array, **more: object) -> DataFrame:
    """A frame with the first columns of X, and further columns."""
    return _pandas().DataFrame(dict(zip(names, X.T, strict=False)) | more)


def _clusters(arrange: Callable[[Part, np.random.Generator], Part]) -> Draw:
    """20 clusters with inputs and parts of the errors in common; fresh rows are new clusters."""

    def make(n: int, rng: np.random.Generator, first: int, size: int) -> Part:
        cluster = np.arange(n) // size
        shared = rng.standard_normal((cluster[-1] + 1, 2 + len(SPREADS) + 1))[cluster]
        own = rng.standard_normal((n, 2 + len(SPREADS) + 1))
        errors = np.sqrt(INTRACLASS) * shared[:, 2:] + np.sqrt(1 - INTRACLASS) * own[:, 2:]
        X = np.column_stack([shared[:, 0], own[:, 0], shared[:, 1], own[:, 1]])
        return replace(_observed(X, errors[:, :-1], errors[:, -1]), groups=first + cluster)

    def draw(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        size = -(-n // N_CLUSTERS)
        part = arrange(make(n, rng, 0, size), rng)
        return part, lambda rows, more: arrange(make(rows, more, N_CLUSTERS, size), more)

    return draw


def _contiguous(part: Part, rng: np.random.Generator) -> Part:
    return part


def _with_names(part: Part, rng: np.random.Generator) -> Part:
    """Shuffled, in a frame with a column that names the cluster of each row."""
    patients = _names("patient", part.groups)
    X = _frame(["height", "dose", "age", "hour"], part.X, patient_id=patients)
    return replace(part, X=X).take(rng.permutation(len(part.y)))


def _with_numbers(part: Part, rng: np.random.Generator) -> Part:
    """Shuffled, in an array with a column of the clusters' numbers."""
    numbered = replace(part, X=np.column_stack([part.X, part.groups]))
    return numbered.take(rng.permutation(len(part.y)))


def _panel(*, by_place: bool) -> Arrange:
    """Each cluster is a date, on which every place has one row; ordered by place or by date."""

    def arrange(part: Part, rng: np.random.Generator) -> Part:
        first = np.flatnonzero(np.diff(part.groups, prepend=-1))
        place = np.arange(len(part.y)) - np.repeat(first, np.diff(first, append=len(part.y)))
        date = np.datetime64("2025-01-06", "us") + np.timedelta64(7, "D") * part.groups
        inputs = ["temperature", "rooms", "wind", "age"]
        X = _frame(inputs, part.X, date=date, place=_names("place", place))
        by_date = replace(part, X=X)
        return by_date.take(np.argsort(place, kind="stable")) if by_place else by_date

    return arrange


# Local truths.


DIRECTIONS = np.stack([np.cos(2 * np.pi * np.arange(3) / 3), np.sin(2 * np.pi * np.arange(3) / 3)])
STRENGTHS = {"8 %": 0.27, "17 %": 0.405, "24 %": 0.5, "35 %": 0.635}
"""Share of the risk that the best local weights gain -> range of the logarithms of the sizes of the
errors."""


def local_sizes(X: Array, strength: float) -> Array:
    """Sizes of the errors of three candidates, each small in its own direction: (n, 3)."""
    return np.exp(-strength * np.tanh(1.5 * X[:, :2] @ DIRECTIONS))


def _local(share: str) -> Make:
    def make(n: int, rng: np.random.Generator) -> Part:
        X = rng.standard_normal((n, N_INPUTS))
        return _with_local_errors(X, rng.standard_normal((n, 4)), share)

    return make


def _with_local_errors(X: Array, errors: Array, share: str) -> Part:
    truth = 1.5 * X[:, 0] + X[:, 1]
    P = truth[:, np.newaxis] + local_sizes(X, STRENGTHS[share]) * errors[:, :-1]
    return Part(X, P, truth + NOISE * errors[:, -1])


def _local_series(share: str, phi: float, phi_inputs: float) -> Draw:
    """Errors of local size, times an AR(1) series."""

    def step(n: int, rng: np.random.Generator, last: State) -> tuple[Part, State]:
        X, errors = ar1(rng, n, phi_inputs, last.inputs), ar1(rng, n, phi, last.errors)
        return _with_local_errors(X, errors, share), State(X[-1], errors[-1])

    def draw(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        start = State(rng.standard_normal(N_INPUTS), rng.standard_normal(4))
        part, now = step(n, rng, start)
        return part, lambda rows, more: step(rows, more, now)[0]

    return draw


# Classes.


def _classes(phi: float) -> Draw:
    """Three classes: logits and their errors are AR(1) series that do not depend on the inputs."""
    n_classes, n_candidates = 3, 3
    width = n_classes * (1 + n_candidates)

    def step(n: int, rng: np.random.Generator, last: State) -> tuple[Part, State]:
        X, series = ar1(rng, n, phi, last.inputs), ar1(rng, n, phi, last.errors)
        logits = 1.5 * series[:, np.newaxis, :n_classes]
        errors = series[:, n_classes:].reshape(n, n_candidates, n_classes)
        P = softmax(logits + SPREADS[:n_candidates, np.newaxis] * errors)
        bounds = np.cumsum(softmax(logits[:, 0]), axis=1)[:, :-1]
        y = (rng.uniform(size=(n, 1)) > bounds).sum(axis=1)
        return Part(X, P, y), State(X[-1], series[-1])

    def draw(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        start = State(rng.standard_normal(N_INPUTS), rng.standard_normal(width))
        part, now = step(n, rng, start)
        return part, lambda rows, more: step(rows, more, now)[0]

    return draw


def _arranged(draw: Draw, arrange: Arrange) -> Draw:
    def both(n: int, rng: np.random.Generator) -> tuple[Part, Follow]:
        part, follow = draw(n, rng)
        return arrange(part, rng), follow

    return both


def _all() -> list[Scenario]:
    ar = {".3": 0.3, ".6": 0.6, ".9": 0.9}
    series = [
        scenario
        for text, phi in ar.items()
        for scenario in (
            Scenario(f"AR {text}, independent inputs", "null", _series(phi, 0.0)),
            Scenario(f"AR {text}, slow inputs", "null", _series(phi, phi)),
            Scenario(f"AR {text}, slower inputs", "null", _series(phi, 1 - (1 - phi) / 10)),
            Scenario(f"AR {text}, slow inputs and hours", "null", _series(phi, phi, hours=True)),
        )
    ]
    entropy = "cross_entropy"
    return [
        Scenario("independent", "null", _rows(_independent)),
        *series,
        Scenario("AR .9, shuffled, with times", "null", _shuffled_series(0.9)),
        Scenario("20 clusters, contiguous", "null", _clusters(_contiguous)),
        Scenario("20 clusters, named", "null", _clusters(_with_names)),
        Scenario("20 clusters, numbered", "null", _clusters(_with_numbers)),
        Scenario("20 dates, by date", "null", _clusters(_panel(by_place=False))),
        Scenario("20 dates, by place", "null", _clusters(_panel(by_place=True))),
        Scenario("every row twice", "null", _rows(_independent, _each(2))),
        Scenario("every row three times", "null", _rows(_independent, _each(3))),
        Scenario("half of the rows twice", "null", _rows(_independent, _copied(_half_copied))),
        Scenario("bootstrap sample", "null", _rows(_independent, _copied(_bootstrap))),
        Scenario("every row twice, nearly", "null", _rows(_independent, _nearly_copied)),
        Scenario("random walk, slow inputs", "null", _walk()),
        Scenario("random walk, slow inputs and hours", "null", _walk(hours=True)),
        Scenario("sorted by an input", "trap", _rows(_independent, _sorted_by(_first_input))),
        Scenario("sorted by the target", "trap", _rows(_independent, _sorted_by(lambda p: p.y))),
        Scenario("grid", "trap", _rows(_grid_null)),
        Scenario("equal rows", "trap", _rows(_cells(0.0))),
        Scenario("classes, independent", "null", _classes(0.0), entropy),
        Scenario("classes, AR .6", "null", _classes(0.6), entropy),
        Scenario("classes, AR .9", "null", _classes(0.9), entropy),
        Scenario("classes, every row twice", "null", _arranged(_classes(0.0), _each(2)), entropy),
        Scenario(
            "classes, sorted by class", "trap",
            _arranged(_classes(0.0), _sorted_by(lambda part: part.y)), entropy,
        ),
        *(Scenario(f"local, {share}", "local", _rows(_local(share))) for share in STRENGTHS),
        Scenario("local, AR .6", "local", _local_series("17 %", 0.6, 0.0)),
        Scenario("local, AR .6, slow inputs", "local", _local_series("17 %", 0.6, 0.6)),
        Scenario(
            "local, sorted by an input", "local", _rows(_local("17 %"), _sorted_by(_first_input))
        ),
        Scenario(
            "local, sorted by the target", "local",
            _rows(_local("17 %"), _sorted_by(lambda part: part.y)),
        ),
        Scenario("local, grid without noise", "local", _rows(_grid_local(0.0))),
        Scenario("local, grid", "local", _rows(_grid_local(0.5))),
        Scenario("local, equal rows", "local", _rows(_cells(0.8))),
        Scenario("local, districts", "local", _rows(_districts)),
    ]  # fmt: skip


SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _all()}
"""All scenarios by name."""
