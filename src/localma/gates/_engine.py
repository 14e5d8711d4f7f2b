"""Calls into the fused kernel: buffers of the right size, threads, and the import at first use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray

from localma.gates._network import Float32, Network
from localma.gates._packing import LANES, Sample

Array = NDArray[np.floating]
_Task = TypeVar("_Task")
_LOGGER = logging.getLogger("localma")

_LARGEST_BLOCK, _SMALLEST_BLOCK = 192, 64  # rows
_CACHED_NUMBERS = 2**15  # that a block should not exceed: 128 KiB


def block_size(network: Network, n_outputs: int) -> int:
    """Rows of a block: many, to spread the cost of each call, but such that they stay in cache."""
    rows = _CACHED_NUMBERS // _workspace_size(network, n_outputs, 1)
    rows = min(max(rows, _SMALLEST_BLOCK), _LARGEST_BLOCK)
    return rows - rows % LANES


def compile_loss(derivative: Callable[[Array, Array], Array]) -> Any:
    """Derivative of a loss as the kernel takes it; the same object for the same derivative."""
    return _kernel().compile_derivative(derivative)


def train(
    network: Network,
    sample: Sample,
    start: Float32,
    *,
    derivative: Any,
    decay: Float32,
    rates: Float32,
    loss_scale: float = 1.0,
    logit_bound: float | None = None,
    tol: float = 0.0,
) -> tuple[Float32, Float32, int]:
    """Train one network on the mean loss, divided by `loss_scale`, by Adam over all rows.

    start, decay : (n_parameters,) where training starts, and what the gradient gets per unit of
        each parameter; rates : (n_steps,) learning rates; derivative : from `compile_loss`.

    Returns the parameters, the last gradient of the scaled loss, and the number of steps taken. A
    single rate of zero thus gives the gradient at `start`.
    """
    n_outputs = len(sample.y) // len(sample.weight)
    size = len(start) + -len(start) % LANES
    theta, gradient, pull, moments = (np.zeros(k * size, dtype=np.float32) for k in (1, 1, 1, 2))
    theta[: len(start)], pull[: len(start)] = start, decay
    n_steps = _kernel().train(
        sample.X, sample.P, sample.y, (sample.weight / loss_scale).astype(np.float32),
        sample.block, n_outputs, np.array(network.sizes), theta, gradient, moments, pull, rates,
        np.float32(logit_bound or 0.0), np.float32(network.leak), np.float32(tol), derivative,
        np.ones(_workspace_size(network, n_outputs, sample.block), dtype=np.float32),
    )  # fmt: skip
    return theta[: len(start)], gradient[: len(start)], n_steps


def evaluate(
    network: Network,
    thetas: Float32,
    X: Array,
    mean: Array,
    scale: Array,
    logit_bound: float | None,
    weights: NDArray[np.float64],
) -> None:
    """Write the weights (n, M) of the rows of X (n, p), averaged over the networks in `thetas`."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    block = min(block_size(network, 0), len(X) + -len(X) % LANES)
    workspace = np.ones(_workspace_size(network, 0, block), dtype=np.float32)
    _kernel().evaluate(
        X, mean, scale, np.array(network.sizes), thetas, np.float32(logit_bound or 0.0),
        np.float32(network.leak), block, workspace, weights,
    )  # fmt: skip


def in_threads(
    function: Callable[[_Task], None], tasks: Sequence[_Task], n_jobs: int | None
) -> None:
    """Call the function for each task, in threads: the kernel lets go of Python's lock.

    A pool lives no longer than this call, so that a process can be forked at any time.
    """
    threads = 1 if len(tasks) <= 1 else _n_threads(n_jobs)
    if threads == 1:
        for task in tasks:
            function(task)
        return
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        for _ in pool.map(function, tasks):  # which raises what a task raised
            pass


def _n_threads(n_jobs: int | None) -> int:
    cores = int(joblib.cpu_count())
    if n_jobs is None:
        return cores
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def _workspace_size(network: Network, n_outputs: int, block: int) -> int:
    """Units and a row of ones per layer, then inverse sums, dampings, mixtures and slopes."""
    sizes = network.sizes
    return block * (sum(sizes) + len(sizes) + sizes[-1] + 2 * n_outputs)


@cache
def _kernel() -> Any:
    """Import the kernel, and say so if that means to compile it."""
    from numba.core import event

    class Announcement(event.Listener):
        said = False

        def on_start(self, _: Any) -> None:
            if not self.said:
                # A warning, since it explains a wait and must be seen with no logging set up.
                _LOGGER.warning(
                    "localma compiles its kernel, once on this machine; it takes seconds."
                )
            self.said = True

        def on_end(self, _: Any) -> None:
            """Nothing to say."""

    with event.install_listener("numba:compile", Announcement()):
        return import_module("localma.gates._kernel")
