"""Calls into the fused kernel: buffers of the right size, threads, and the import at first use."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any, Self, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray

from localma._threads import thread_pool
from localma.errors import InvalidInputError
from localma.gates._chunks import LANES, Sample
from localma.gates._network import Float32, Network
from localma.gates._stack import Stack
from localma.gates._support import POWER, Fading
from localma.losses import LOSSES, get_loss

Array = NDArray[np.floating]
_Task = TypeVar("_Task")
_LOGGER = logging.getLogger("localma")

_LARGEST_BLOCK, _SMALLEST_BLOCK = 192, 64  # rows
_CACHED_NUMBERS = 2**15  # that a block should not exceed: 128 KiB
_EVALUATED_ROWS = 16384  # rows converted to double precision at once, and given to one thread


def block_size(network: Network, n_outputs: int) -> int:
    """Rows of a block: many, to spread the cost of each call, but such that they stay in cache."""
    rows = _CACHED_NUMBERS // _workspace_size(network, n_outputs, 1)
    rows = min(max(rows, _SMALLEST_BLOCK), _LARGEST_BLOCK)
    return rows - rows % LANES


def compile_loss(derivative: Callable[[Array, Array], Array]) -> Any:
    """Derivative of a loss as the kernel takes it; the same code is compiled once."""
    kernel = _kernel()
    with _loading:
        return kernel.compile_derivative(derivative)


@dataclass(frozen=True)
class Progress:
    """Where a training stands; the kernel writes into the arrays.

    theta, gradient, decay : (n_parameters,) padded with zeros to full vectors; moments : twice as
    long, Adam's; powers : (2,) Adam's decay rates to the power of the steps so far.
    """

    theta: Float32
    gradient: Float32
    decay: Float32
    moments: Float32
    powers: NDArray[np.float64]

    @classmethod
    def at(cls, start: Float32, decay: Float32) -> Self:
        """Begin at some parameters; decay is what the gradient gets per unit of each of them."""
        n, size = len(start), len(start) + -len(start) % LANES
        theta, gradient, pull, moments = (np.zeros(k * size, np.float32) for k in (1, 1, 1, 2))
        theta[:n], pull[:n] = start, decay
        return cls(theta, gradient, pull, moments, np.ones(2))

    def under(self, decay: Float32) -> Self:
        """A copy that goes on from here under another decay."""
        pull = np.zeros_like(self.decay)
        pull[: len(decay)] = decay
        theta, gradient, moments = (a.copy() for a in (self.theta, self.gradient, self.moments))
        return type(self)(theta, gradient, pull, moments, self.powers.copy())


def train(
    network: Network,
    sample: Sample,
    progress: Progress,
    *,
    order: NDArray[np.intp],
    n_batches: int,
    rates: Float32,
    mean_weight: float,
    derivative: Any,
    loss_scale: float = 1.0,
    logit_bound: float | None = None,
    tol: float = 0.0,
) -> int:
    """Continue a training of the mean loss, divided by `loss_scale`, by one step of Adam per rate.

    order, n_batches : numbers of blocks, cut into batches of as many blocks, one per step; after
        the last comes the first again. mean_weight : of a packed row, over all that the training
        is to meet. derivative : from `compile_loss`. tol : the norm of the gradient with its decay
        at which training ends.

    Returns the number of steps taken. A single rate of zero gives the gradient at the start.
    """
    n_outputs = len(sample.y) // len(sample.weight)
    _check_sample(network, sample, progress, n_outputs)
    return int(
        _kernel().train(
            sample.X, sample.P, sample.y, sample.weight, sample.block, n_outputs,
            np.array(network.sizes), progress.theta, progress.gradient, progress.moments,
            progress.decay, rates, np.float32(logit_bound or 0.0), np.float32(network.leak),
            np.float32(tol), derivative.block, sample.unit, sample.unit / loss_scale,
            derivative.parameters,
            np.ones(_workspace_size(network, n_outputs, sample.block), dtype=np.float32),
            order, n_batches, 1.0 / mean_weight, progress.powers,
        )
    )  # fmt: skip


def _check_sample(network: Network, sample: Sample, progress: Progress, n_outputs: int) -> None:
    """Refuse arrays that do not fit the network, since the kernel itself checks no index."""
    n, p, M = len(sample.weight), network.sizes[0], network.sizes[-1]
    expected = (n * p, n * M * n_outputs, n * n_outputs)
    sizes = (sample.X.size, sample.P.size, sample.y.size)
    if not network.fits(p, M) or sizes != expected or network.n_parameters > progress.theta.size:
        raise InvalidInputError(
            f"A network of the layers {network.sizes} does not fit a packed sample of {n} rows: "
            f"its arrays have {sizes} numbers instead of {expected}."
        )


def evaluate(
    stack: Stack,
    X: Array,
    fading: Fading | None = None,
    P: Array | None = None,
    n_jobs: int | None = None,
) -> NDArray[np.float64]:
    """Weights of each row, or the predictions averaged with them, in one pass.

    X : (n, p); P : None, (n, M) or (n, M, K) -> (n, M), (n,) or (n, K).
    """
    M = len(stack.constant)
    predictions = np.empty((0, M, 0)) if P is None else _with_outputs(P, len(X), M)
    out = np.empty((len(X), M if P is None else predictions.shape[2]))
    rest = _fading_arrays(stack, fading)
    _check_buffers(stack, X, rest[0], rest[2])
    kernel = _kernel()  # before any thread starts

    def fill(first: int) -> None:
        rows = slice(first, first + _EVALUATED_ROWS)
        inputs, given = (np.ascontiguousarray(a[rows], np.float64) for a in (X, predictions))
        workspace, buffer = _evaluation_buffers(stack, len(inputs))
        kernel.evaluate(
            inputs, stack.standards, stack.networks, stack.sizes, stack.settings, stack.thetas,
            stack.constant, *rest, workspace, buffer, given, out[rows],
        )  # fmt: skip

    in_threads(fill, range(0, len(X), _EVALUATED_ROWS), n_jobs)
    return out[:, 0] if P is not None and P.ndim == 2 else out


def _check_buffers(stack: Stack, X: Array, box: Array, towards: Array) -> None:
    """Refuse arrays that do not fit together, since the kernel itself checks no index.

    `restore` refuses what a file may get wrong; this is a second lock, once per call.
    """
    p, M = X.shape[1], len(stack.constant)
    fits = not stack.shapes or stack.shapes[0].sizes[0] == p
    fades = box.size == 0 or (box.shape, towards.shape) == ((4, p), (M,))
    if not (stack.is_consistent and fits and fades):
        raise InvalidInputError(
            f"The networks of a gate do not fit {p} inputs and {M} candidates. Fit the gate again, "
            "or load it from an intact file."
        )


def _with_outputs(P: Array, n: int, n_candidates: int) -> Array:
    """Predictions as (n, M, K); the kernel itself checks no shape."""
    if P.ndim not in (2, 3) or P.shape[:2] != (n, n_candidates):
        raise InvalidInputError(
            f"Predictions to be averaged must have shape ({n}, {n_candidates}) or ({n}, "
            f"{n_candidates}, K); received {P.shape}. Pass a row per row of X and a column per "
            "candidate."
        )
    return P[:, :, np.newaxis] if P.ndim == 2 else P


def _fading_arrays(stack: Stack, fading: Fading | None) -> tuple[Array, float, Array, float]:
    if fading is None:
        return np.empty((0, 0)), 0.0, stack.constant, 0.0
    towards = np.ascontiguousarray(fading.towards, dtype=np.float64)
    return fading.support.box(), float(POWER), towards, fading.floor


def _evaluation_buffers(stack: Stack, n_rows: int) -> tuple[Float32, NDArray[np.float64]]:
    """Room for the units of the largest network, and for weights and sums (M + 1, block)."""
    block = min([_LARGEST_BLOCK, *(block_size(shape, 0) for shape in stack.shapes)])
    block = min(block, n_rows + -n_rows % LANES)
    units = max((_workspace_size(shape, 0, block) for shape in stack.shapes), default=0)
    return np.empty(units, dtype=np.float32), np.empty((len(stack.constant) + 1, block))


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
    with thread_pool(min(threads, len(tasks))) as pool:
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


_loaded: Any = None
_loading = RLock()
"""Held while the kernel is imported or a loss compiled: two threads must not import Numba at once.

A fork waits for it, so that no child inherits a half-imported Numba.
"""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_loading.acquire,
        after_in_parent=_loading.release,
        after_in_child=_loading.release,
    )


def _kernel() -> Any:
    """Import the kernel at the first call. Make that call before you start threads."""
    global _loaded
    if _loaded is None:
        with _loading:
            if _loaded is None:
                _loaded = _import_kernel()
    return _loaded


def _import_kernel() -> Any:
    """Import the kernel, and log a message if it has to be compiled."""
    from numba.core import event

    class Announcement(event.Listener):
        logged = False

        def on_start(self, _: Any) -> None:
            if not self.logged:
                # A warning, since it explains a wait and must be seen with no logging set up.
                _LOGGER.warning(
                    "localma compiles its kernel, once on this machine; it takes seconds."
                )
            self.logged = True

        def on_end(self, _: Any) -> None:
            """Do nothing: the start alone is announced."""

    with event.install_listener("numba:compile", Announcement()):
        return import_module("localma.gates._kernel")


def warm_up() -> Path | None:
    """Compile everything that fits and predictions need, so that no later call waits for it.

    The kernel is kept in Numba's cache on disk, where every later process finds it. The losses are
    compiled for this process only, which takes a moment. Call it once while you build a container
    image, or when a server starts. ``localma warm-up`` does the same on the command line.

    Returns
    -------
    folder : Path or None
        The folder of the cache: a subfolder of the environment variable ``NUMBA_CACHE_DIR`` if it
        is set, otherwise ``__pycache__`` in the installed package or, if that cannot be written,
        a folder in the user's own cache. None if none of them can be written: then every process
        compiles the kernel anew.

    Examples
    --------
    >>> import localma
    >>> folder = localma.warm_up()
    """
    kernel = _kernel()
    for name in LOSSES:
        compile_loss(get_loss(name).derivative)
    folder = kernel.evaluate.stats.cache_path
    return None if folder is None else Path(folder)
