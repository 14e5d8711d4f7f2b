"""Many small fits of the paper's recipe: fused kernel, PyTorch, JAX, matrix product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import pytorch_loop, reference
from benchmarks.data import Problem, Sample, regression
from benchmarks.peers import Peer, PeerError
from benchmarks.report import Report, Row
from benchmarks.timing import PAUSE, Timing, interleave
from localma.equations import softmax
from localma.gates import Labelled, MLPGate
from localma.gates.base import Job
from localma.gates.fused.chunks import Chunks
from localma.gates.fused.engine import block_size, compile_loss, in_threads
from localma.gates.fused.trainer import Progress, Training, Visit

Array = NDArray[np.floating]
SGEMM_SIZE, SGEMM_PRODUCTS = 1024, 10


@dataclass(frozen=True)
class Size:
    """Number of fits.

    fits : fits of localma and JAX; pytorch_fits : fits of PyTorch, whose time is scaled to `fits`;
    checked : fits whose risk is compared with the float64 reference.
    """

    fits: int = 100
    pytorch_fits: int = 100
    checked: int = 50
    repeats: int = 3
    rows: tuple[int, int] = (900, 100)
    n_inputs: int = 5
    n_candidates: int = 3
    n_steps: int = 800


QUICK = Size(pytorch_fits=2, checked=4)


@dataclass(frozen=True)
class Fits:
    """Data sets, and the gate and the start of the fit to each."""

    problems: list[Problem]
    gates: list[MLPGate]
    starts: list[Array]

    @classmethod
    def draw(cls, size: Size, n: int) -> Fits:
        problems = [
            regression(n, size.n_inputs, size.n_candidates, seed) for seed in range(size.fits)
        ]
        gates = [plain_gate(seed).set_params(n_steps=size.n_steps) for seed in range(size.fits)]
        starts = [
            reference.starts(gate, problem.train)[0]
            for gate, problem in zip(gates, problems, strict=True)
        ]
        return cls(problems, gates, starts)

    def mean_risk(self, weights_of: Callable[[int, Array], Array], n: int) -> float:
        """Mean held-out risk of the first n fits; weights : (fit, X) -> weights."""
        tests = [problem.test for problem in self.problems[:n]]
        return float(np.mean([test.risk(weights_of(i, test.X)) for i, test in enumerate(tests)]))

    def flops(self) -> int:
        """Arithmetic of all fits, counted as 2n(2ph + 3hM) per step."""
        gate, sample = self.gates[0], self.problems[0].train
        (n, p), M, h = sample.X.shape, sample.P.shape[1], gate.hidden[0]
        return len(self.problems) * gate.n_steps * 2 * n * (2 * p * h + 3 * h * M)


def plain_gate(seed: int) -> MLPGate:
    """The paper's network with plain weight decay, which the other implementations have too."""
    gate = MLPGate.paper(logit_bound=None, random_state=seed)
    return gate.set_params(weight_decay=0.05, relative_decay=0.0)


def run(quick: bool = False) -> Report:
    return measure(QUICK if quick else Size())


def measure(size: Size) -> Report:
    report = Report()
    large, small = size.rows
    fits = Fits.draw(size, large)
    kernel = Contender(
        "localma, kernel alone",
        kernel_work(fits),
        lambda thetas, i, X: _weights(fits, thetas[i], i, X),
        size.fits,
    )
    rows, timings = _compare(report, size, fits, "", {"kernel": kernel}, {"sgemm": sgemm_work()})
    _report_rate(report, fits, rows["kernel"], timings["sgemm"])
    _compare(report, size, Fits.draw(size, small), f"_n{small}", {}, {})
    return report


@dataclass(frozen=True)
class Contender:
    """An implementation: `work()` returns a result, `weights(result, fit, X)` its weights."""

    name: str
    work: Callable[[], Any]
    weights: Callable[[Any, int, Array], Array]
    fits: int
    note: str = ""


def _compare(
    report: Report,
    size: Size,
    fits: Fits,
    suffix: str,
    more: dict[str, Contender],
    beside: dict[str, Callable[[], Any]],
) -> tuple[dict[str, Row], dict[str, Timing]]:
    """Time all implementations on the same data sets, together with tasks that do not fit.

    `suffix` is added to the names of the figures.
    """
    fitted = fit_all(fits)  # also compiles, and gives the loss scales to the reference
    pairs = zip(fitted[: size.checked], fits.problems, strict=False)
    truth = [reference.fit_weights(gate, both.train, both.test.X) for gate, both in pairs]
    contenders = {"localma": _ours(fits), "pytorch_loop": _pytorch(fits, size), "jax": _jax(fits)}
    present = {k: c for k, c in contenders.items() if isinstance(c, Contender)} | more
    works = {key: contender.work for key, contender in present.items()}
    timings = interleave(works | beside, size.repeats, PAUSE)
    rows = {
        key: report.add(_row(size, fits, contender, timings[key], truth))
        for key, contender in present.items()
    }
    for key in ("pytorch_loop", "jax"):
        if key in rows:
            report.ratio(f"ratio_to_{key}{suffix}", rows[key], rows["localma"])
        else:
            report.missing(f"ratio_to_{key}{suffix}", str(contenders[key]))
    return rows, timings


def _row(size: Size, fits: Fits, by: Contender, timing: Timing, truth: list[Array]) -> Row:
    checked = min(size.checked, by.fits)
    return Row(
        f"{size.fits} fits, n={len(fits.problems[0].train.X)}",
        by.name,
        timing.seconds,
        fits.mean_risk(lambda i, X: by.weights(timing.result, i, X), checked),
        fits.mean_risk(lambda i, _: truth[i], checked),
        scale=size.fits / by.fits,
        note=by.note,
    )


def _report_rate(report: Report, fits: Fits, kernel: Row, products: Timing) -> None:
    sgemm = report.add(Row(f"product of {SGEMM_SIZE}^3", "NumPy", products.seconds))
    peak = 2 * SGEMM_SIZE**3 * SGEMM_PRODUCTS / sgemm.median
    rate = fits.flops() / kernel.median
    report.figure("sgemm_gflops", peak / 1e9)
    report.from_rows("kernel_gflops", rate / 1e9, kernel)
    report.from_rows("fraction_of_sgemm", rate / peak, kernel)


def _ours(fits: Fits) -> Contender:
    return Contender(
        "localma",
        lambda: fit_all(fits),
        lambda gates, i, X: gates[i].predict_weights(X),
        len(fits.problems),
    )


def fit_all(fits: Fits) -> list[MLPGate]:
    """Fit all data sets in one call, as jobs with different rows."""
    samples = [problem.train for problem in fits.problems]
    X, P, y = (np.concatenate([getattr(s, name) for s in samples]) for name in ("X", "P", "y"))
    ends = np.cumsum([len(sample.X) for sample in samples])
    jobs = [
        Job(np.arange(end - len(sample.X), end), 0.0, int(gate.random_state))
        for end, sample, gate in zip(ends, samples, fits.gates, strict=True)
    ]
    return fits.gates[0].fit_jobs(Labelled.of(X, P, y, loss=samples[0].loss), jobs)


def kernel_work(fits: Fits) -> Callable[[], list[Array]]:
    """Only the trainings, on packed rows."""
    gate, sample = fits.gates[0], fits.problems[0].train
    network = reference.network_of(gate, sample)
    block = block_size(network, 1)
    packed = [
        Chunks.of(s.labelled(), None, block, standardize=True, whole=True) for s in _trains(fits)
    ]
    derivative, rates = compile_loss(sample.loss.derivative), gate._rates(len(sample.y), None)
    decay = np.full(network.n_parameters, gate.weight_decay, dtype=np.float32)
    starts = [
        network.reorder_candidates(start.astype(np.float32), np.argsort(rows.layout.candidates))
        for start, rows in zip(fits.starts, packed, strict=True)
    ]
    visits = [Visit.of_all_rows(rows, len(rates)) for rows in packed]  # packs them
    plain = MLPGate(tol=0.0)
    plain.loss_scale_ = 1.0

    def work() -> list[Array]:
        thetas: list[Any] = [None] * len(packed)

        def one(i: int) -> None:
            progress, rows = Progress.at(starts[i], decay), packed[i]
            training = Training(plain, 0, network, rows, None, progress, rates)
            training.run(visits[i], derivative)
            theta = progress.theta[: network.n_parameters]
            thetas[i] = network.reorder_candidates(theta, rows.layout.candidates)

        in_threads(one, [(i,) for i in range(len(packed))], None)
        return thetas

    return work


def sgemm_work() -> Callable[[], None]:
    """Products of square float32 matrices, with the default threads of NumPy's BLAS."""
    rng = np.random.default_rng(0)
    A, B = (rng.normal(size=(SGEMM_SIZE, SGEMM_SIZE)).astype(np.float32) for _ in range(2))
    out = np.empty_like(A)
    np.matmul(A, B, out=out)

    def work() -> None:
        for _ in range(SGEMM_PRODUCTS):
            np.matmul(A, B, out=out)

    return work


def _trains(fits: Fits) -> list[Sample]:
    return [problem.train for problem in fits.problems]


def _weights(fits: Fits, theta: Array, i: int, X: Array) -> Array:
    """Weights of a network with these parameters."""
    sample = fits.problems[i].train
    network = reference.network_of(fits.gates[i], sample)
    inputs = reference.standardise(sample, X)
    return softmax(reference.forward(network, theta.astype(np.float64), inputs)[-1])


def _pytorch(fits: Fits, size: Size) -> Contender | str:
    """PyTorch with its best number of threads, or the reason why it is missing."""
    if find_spec("torch") is None:
        return "torch is not installed"
    samples, count = _trains(fits), size.pytorch_fits
    threads = pytorch_loop.use_faster_thread_count(samples[0], fits.gates[0], fits.starts[0])
    return Contender(
        "PyTorch loop",
        lambda: [pytorch_loop.fit(samples[i], fits.gates[i], fits.starts[i]) for i in range(count)],
        lambda networks, i, X: pytorch_loop.predict_weights(networks[i], samples[i], X),
        count,
        f"{threads} thread(s)" + f", scaled from {count} fits" * (count < size.fits),
    )


def _jax(fits: Fits) -> Contender | str:
    """A process that fits with JAX, compiled and waiting, or the reason why it is missing."""
    gate, samples = fits.gates[0], _trains(fits)
    network = reference.network_of(gate, samples[0])
    layers = [network.layers(start.astype(np.float32)) for start in fits.starts]
    arrays = {
        "X": np.stack([reference.standardise(s, s.X) for s in samples]),
        "P": np.stack([s.P[:, :, 0] for s in samples]),
        "y": np.stack([s.y[:, 0] for s in samples]),
        "settings": np.array([gate.n_steps, gate.learning_rate, gate.weight_decay]),
    }
    for k in range(2):
        arrays[f"W{k}"] = np.stack([layer[k][0] for layer in layers])
        arrays[f"b{k}"] = np.stack([layer[k][1] for layer in layers])
    try:
        peer = Peer.start("jax", arrays)
    except PeerError as reason:
        return str(reason)
    trained = cache(peer.close)  # called after the last turn, once per fit
    return Contender(
        "JAX jit+vmap+scan",
        peer.run,
        lambda _, i, X: _jax_weights(trained(), fits, i, X),
        len(samples),
    )


def _jax_weights(trained: dict[str, Array], fits: Fits, i: int, X: Array) -> Array:
    inputs = reference.standardise(fits.problems[i].train, X)
    hidden = np.maximum(inputs @ trained["W0"][i].T + trained["b0"][i], 0.0)
    return softmax(hidden @ trained["W1"][i].T + trained["b1"][i])
