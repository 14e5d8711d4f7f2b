"""Sums over all rows of the predictions, in blocks that fit a processor's cache.

Predictions of 10^8 numbers are not copied: at most one block of them is held in double
precision. Rows are cut into strips, whose number depends only on the size of the data. Each strip
is summed by one thread, and the strips are added in order, so the result is the same to the bit on
any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from threading import RLock
from typing import TypeVar

import numpy as np
import scipy.linalg  # noqa: F401  (loads another copy of BLAS than NumPy's)
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from localma._signals import thread_pool
from localma._types import Array, Float64, Integers

_Sum = TypeVar("_Sum")

_BLOCK = 2**17  # numbers in a block: one megabyte in double precision
_STRIPS = 16


@dataclass(frozen=True)
class RowBlocks:
    """Predictions of the candidates, summed over rows and outputs.

    predictions : (n, M, K) in any floating type and memory order.
    threads : number of strips that are summed at once.
    """

    predictions: Array
    threads: int = 1

    def mixture(self, weights: Float64, *, absolute: bool = False) -> Float64:
        """``mu_ik = sum_m w_m P_imk``: weights (M,) -> (n, K); of ``|P_imk|`` if `absolute`."""
        n, _, K = self.predictions.shape
        mixture = np.empty((n, K))

        def fill(strip: slice) -> None:
            for rows in self._blocks(strip, len(weights)):
                block = self._flat(rows)
                if absolute:
                    block = abs(block)
                mixture[rows] = (block @ weights).reshape(-1, K)

        self._over_strips(fill)
        return mixture

    def moments(self, factor: Float64, centre: Float64) -> Float64:
        """``sum_ik factor_ik (P_imk - centre_ik)``: (n, K), (n, K) -> (M,).

        Centred before summing, so that a large common level costs no digits.
        """

        def products(rows: slice) -> Float64:
            return factor[rows].ravel() @ self._centred(rows, centre)

        return self._sum(products, self.predictions.shape[1:2])

    def gram(self, factor: Float64, centre: Float64, columns: Integers | None = None) -> Float64:
        """``sum_ik factor_ik (P_ia - centre_i)(P_ib - centre_i)`` -> (A, A).

        factor, centre : (n, K), the factor not negative; columns : (A,) candidates, None for all.
        """
        size = self.predictions.shape[1] if columns is None else len(columns)
        common = None
        if factor.min() == factor.max():
            common = float(factor.flat[0])

        def products(rows: slice) -> Float64:
            block = self._centred(rows, centre, columns)
            if common is None:
                block *= np.sqrt(factor[rows]).reshape(-1, 1)
            return block.T @ block

        total = self._sum(products, (size, size), at_least=size)
        if common is not None:
            total *= common
        return total

    def risks(self, value: Callable[[Array, Array], Array], y: Float64, share: Float64) -> Float64:
        """``sum_ik share_ik value(y_ik, P_imk)`` of each candidate: (n, K), (n, K) -> (M,)."""

        def losses(rows: slice) -> Float64:
            block = self._flat(rows)
            targets = np.broadcast_to(y[rows].reshape(-1, 1), block.shape)
            return share[rows].ravel() @ value(targets, block)

        return self._sum(losses, self.predictions.shape[1:2])

    def _flat(self, rows: slice, columns: Integers | None = None) -> Array:
        """Block as (rows * K, M); a view if possible."""
        block = self.predictions[rows]
        if columns is not None:
            block = block[:, columns]
        return block.transpose(0, 2, 1).reshape(-1, block.shape[1])

    def _centred(self, rows: slice, centre: Float64, columns: Integers | None = None) -> Float64:
        return np.subtract(self._flat(rows, columns), centre[rows].reshape(-1, 1), dtype=np.float64)

    def _blocks(self, strip: slice, width: int, at_least: int = 1) -> Iterator[slice]:
        step = max(1, at_least, _BLOCK // (width * self.predictions.shape[2]))
        for start in range(strip.start, strip.stop, step):
            yield slice(start, min(start + step, strip.stop))

    def _over_strips(self, work: Callable[[slice], _Sum]) -> list[_Sum]:
        n = len(self.predictions)
        count = min(_STRIPS, n, 1 + self.predictions.size // _BLOCK)
        edges = [n * strip // count for strip in range(count + 1)]
        strips = [slice(*pair) for pair in pairwise(edges)]
        if min(self.threads, count) == 1:
            return [work(strip) for strip in strips]
        with thread_pool(min(self.threads, count), limit_this_thread) as pool:
            return list(pool.map(work, strips))

    def _sum(
        self, term: Callable[[slice], Float64], shape: tuple[int, ...], at_least: int = 1
    ) -> Float64:
        """Sum a function of the rows over all blocks, and add the strips in order."""

        def over_blocks(strip: slice) -> Float64:
            return _added(map(term, self._blocks(strip, shape[0], at_least)), shape)

        return _added(self._over_strips(over_blocks), shape)


def _added(terms: Iterable[Float64], shape: tuple[int, ...]) -> Float64:
    total = np.zeros(shape)
    for term in terms:
        total += term
    return total


# BLAS on one thread, so that sums are the same on any number of threads.

# The number of threads belongs to the whole process in most builds of BLAS. So callers that change
# it take turns; each of them uses all threads itself, and loses nothing.
_turn = RLock()


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Limit BLAS to one thread, and yield the number of threads that it had."""
    with _turn:
        controller = _blas_controller()
        threads = max((blas.num_threads for blas in controller.lib_controllers), default=1)
        with controller.limit(limits=1):
            yield threads


def limit_this_thread() -> None:
    """Limit BLAS to one thread in a new thread; some builds need the call in each thread."""
    _blas_controller().limit(limits=1)


@cache
def _blas_controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds, and the imports above have loaded them all.
    return ThreadpoolController().select(user_api="blas")


def _new_turn() -> None:
    global _turn
    _turn = RLock()


if hasattr(os, "register_at_fork"):
    # A child must not wait for a thread that only its parent has.
    os.register_at_fork(after_in_child=_new_turn)
