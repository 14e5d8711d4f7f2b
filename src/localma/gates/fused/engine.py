"""Calls into the fused kernel: threads, and evaluation of stacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import joblib
import numpy as np

from localma._signals import thread_pool
from localma._types import AnyArray, Array, Float32, Float64, RowMask, Rows
from localma.compiled import COMPILING, compiled_module
from localma.errors import InvalidInputError
from localma.gates.fused.chunks import LANES
from localma.gates.fused.networks import Network, Stack
from localma.gates.labelled import Table, row_slices
from localma.gates.support import POWER, Fading, Support
from localma.losses import LOSSES, get_loss
from localma.trees.boosting import kernel as tree_kernel

if TYPE_CHECKING:
    from localma.gates.fused.kernel import BlockDerivative

Result = TypeVar("Result")

_LARGEST_BLOCK, _SMALLEST_BLOCK = 192, 64  # rows
_CACHED_NUMBERS = 2**15  # that a block should not exceed: 128 KiB
EVALUATED_ROWS = 16384  # rows that one call of the kernel evaluates


def block_size(network: Network, n_outputs: int) -> int:
    """Rows of a block: many, to spread the cost of each call, but few enough to stay in cache."""
    rows = _CACHED_NUMBERS // workspace_size(network, n_outputs, 1)
    rows = min(max(rows, _SMALLEST_BLOCK), _LARGEST_BLOCK)
    return rows - rows % LANES


def workspace_size(network: Network, n_outputs: int, block: int) -> int:
    """Units and a row of ones per layer, then inverse sums, dampings, mixtures and slopes."""
    sizes = network.sizes
    return block * (sum(sizes) + len(sizes) + sizes[-1] + 2 * n_outputs)


def compile_loss(derivative: Callable[[Array, Array], Array]) -> BlockDerivative:
    """Compile the derivative of a loss for the kernel; the same code is compiled once."""
    module = kernel()
    with COMPILING:
        compiled: BlockDerivative = module.compile_derivative(derivative)
    return compiled


def evaluate(
    stack: Stack,
    X: AnyArray,
    fading: Fading | None = None,
    P: Array | None = None,
    n_jobs: int | None = None,
    out: Float64 | None = None,
    trees: Float64 | None = None,
    support: Float64 | None = None,
) -> Float64:
    """Weights of each row, or the predictions averaged with them, in one pass.

    X : (n, p); trees : (n, M) weights to add to those of the stack before they fade;
    P : None, (n, M) or (n, M, K) -> (n, M), (n,) or (n, K), written to `out` if given;
    support : (n,) to which the support is written, if weights fade.
    """
    M, n = len(stack.constant), len(X)
    n_columns = M
    predictions: Array = np.empty((0, M, 0))
    if P is not None:
        predictions = _with_outputs(P, n, M)
        n_columns = predictions.shape[2]
    if out is None:
        out = np.empty((n, n_columns))
    if n > EVALUATED_ROWS:
        kernel()  # before any thread starts
        slices = [slice(k, k + EVALUATED_ROWS) for k in range(0, n, EVALUATED_ROWS)]
        arrays = X, None if P is None else predictions, out, trees, support
        blocks = [tuple(a if a is None else a[rows] for a in arrays) for rows in slices]
        in_threads(lambda x, p, *others: evaluate(stack, x, fading, p, 1, *others), blocks, n_jobs)
    else:
        guard, power, towards, floor = _fading_arrays(stack, fading, X.shape[1])
        _check_buffers(stack, X, guard, towards)
        if trees is not None and trees.shape != (n, M):
            raise InvalidInputError(
                f"Weights of trees must have shape ({n}, {M}); received {trees.shape}. Fit again."
            )
        assert support is None or support.shape == (n,)
        kernel().evaluate(
            np.ascontiguousarray(X, np.float64), stack.standards, stack.networks, stack.sizes,
            stack.settings, stack.thetas, stack.constant, *guard, power, towards, floor,
            *_evaluation_buffers(stack, n), np.ascontiguousarray(predictions, np.float64), out,
            np.empty((0, M)) if trees is None else trees,
            np.empty(0) if support is None else support,
        )  # fmt: skip
    if P is not None and P.ndim == 2:
        return out[:, 0]
    return out


def rows_outside(
    support: Support, X: Table, row_mask: RowMask, n_jobs: int | None = None
) -> Float64:
    """Masked rows without full support, found by the kernel: (n, p), (n,) -> (k, p)."""
    # Two constant weights that fade into each other show the support.
    weights = np.array([0.75, 0.25])
    stack, fading = Stack.of(weights, ()), Fading(support, weights[::-1], 0.0)

    def outside(index: slice | Rows) -> Float64:
        x = np.asarray(X[index], dtype=np.float64)[row_mask[index]]
        return np.asarray(x[evaluate(stack, x, fading, n_jobs=1)[:, 0] < 0.75 - 1e-12])

    kernel()  # before any thread starts
    tasks = [(index,) for index in row_slices(len(X), None, 2 * X.shape[1])]
    return np.concatenate(in_threads(outside, tasks, n_jobs))


def _check_buffers(stack: Stack, X: AnyArray, guard: tuple[Float64, ...], towards: Array) -> None:
    """Refuse arrays that do not fit together, since the kernel itself checks no index.

    `restore` refuses damaged files before; this is a second lock, once per call.
    """
    p, M = X.shape[1], len(stack.constant)
    fits = not stack.shapes or stack.shapes[0].sizes[0] == p
    columns, directions, ends, landmarks, spacing, gaps = guard
    d = len(directions)
    shapes = (directions.shape, ends.shape, landmarks.shape[1:], spacing.shape, gaps.shape[1:])
    fades = shapes == ((d, p), (4, d), (d,), (7,), (4,)) and columns.shape in ((0, p), (10, p))
    fades = fades and towards.shape == (M,)
    if not (stack.is_consistent and fits and fades):
        raise InvalidInputError(
            f"The networks of a gate do not fit {p} inputs and {M} candidates. Fit the gate again, "
            "or load it from an intact file."
        )


def _with_outputs(P: Array, n: int, n_candidates: int) -> Array:
    """Predictions as (n, M, K), checked, since the kernel itself checks no shape."""
    if P.ndim not in (2, 3) or P.shape[:2] != (n, n_candidates):
        raise InvalidInputError(
            f"Predictions to be averaged must have shape ({n}, {n_candidates}) or ({n}, "
            f"{n_candidates}, K); received {P.shape}. Pass a row per row of X and a column per "
            "candidate."
        )
    return np.atleast_3d(P)


def _fading_arrays(
    stack: Stack, fading: Fading | None, p: int
) -> tuple[tuple[Float64, ...], float, Array, float]:
    if fading is None:
        shapes = ((0, p), (0, p), (4, 0), (0, 0), 7, (0, 4))
        return tuple(np.empty(shape) for shape in shapes), 0.0, stack.constant, 0.0
    towards = np.ascontiguousarray(fading.towards, dtype=np.float64)
    return fading.support.kernel_arrays, float(POWER), towards, fading.floor


def _evaluation_buffers(stack: Stack, n_rows: int) -> tuple[Float32, Float64]:
    """Room for the units of the largest network, and for weights and sums (M + 1, block)."""
    block = min([_LARGEST_BLOCK, *(block_size(shape, 0) for shape in stack.shapes)])
    block = min(block, max(n_rows + -n_rows % LANES, LANES))
    units = max((workspace_size(shape, 0, block) for shape in stack.shapes), default=0)
    return np.empty(units, dtype=np.float32), np.empty((len(stack.constant) + 1, block))


def in_threads(
    function: Callable[..., Result], tasks: Iterable[tuple[object, ...]], n_jobs: int | None
) -> list[Result]:
    """Call the function with the arguments of each task, in threads; the results in order.

    The kernel releases Python's lock. The pool lives no longer than this call, so that a process
    can be forked at any time.
    """
    tasks = list(tasks)
    threads = len(tasks)
    if threads > 1:
        threads = min(threads, _n_threads(n_jobs))
    if threads <= 1:
        results = []
        for task in tasks:  # a comprehension would be one more frame
            results.append(function(*task))
        return results
    with thread_pool(threads) as pool:
        return list(pool.map(function, *zip(*tasks, strict=True)))


def _n_threads(n_jobs: int | None) -> int:
    cores = int(joblib.cpu_count())
    if n_jobs is None:
        return cores
    if n_jobs < 0:
        n_jobs += cores + 1
    return max(1, n_jobs)


def kernel() -> ModuleType:
    """Import the kernel at the first call. Make that call before you start threads."""
    return compiled_module("localma.gates.fused.kernel")


def warm_up() -> Path | None:
    """Compile everything that fits and predictions need, so that no later call waits for it.

    The kernel is stored in Numba's cache on disk, where every later process finds it. The losses
    are compiled for this process only, which takes a moment. Call it once while you build a
    container image, or when a server starts. ``localma warm-up`` does the same on the command line.

    Returns
    -------
    folder : Path or None
        The folder with the files of the cache: the environment variable ``NUMBA_CACHE_DIR`` if it
        is set, otherwise the installed package or, if that cannot be written, a folder in the
        user's cache. None if none of them can be written: then every process compiles the kernels
        again.

    Examples
    --------
    >>> import localma
    >>> folder = localma.warm_up()
    """
    entries = tree_kernel().evaluate, kernel().evaluate
    folders = [entry.stats.cache_path for entry in entries]
    for name in LOSSES:
        compile_loss(get_loss(name).derivative)
    return Path(os.path.commonpath(folders)) if all(folders) else None
