"""Three sums over all rows of the predictions, in blocks that fit a processor's cache.

Predictions of 10^8 numbers are read where they are: nothing here holds more than a
block of them in double precision. Rows are cut into strips whose number depends on
the size of the data alone; each strip is summed by one thread and the strips in
their order, so the result is the same to the bit on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from localma._threads import thread_pool
from localma.gates._blas_threads import limit_this_thread

Array = NDArray[np.floating]
Float64 = NDArray[np.float64]

_Part = TypeVar("_Part")

_BLOCK = 2**17  # numbers in a block: one megabyte in double precision
_STRIPS = 16


@dataclass(frozen=True)
class RowBlocks:
    """Predictions of the candidates, summed over rows and outputs.

    predictions : (n, M, K) in any floating type and memory order.
    threads : how many strips are summed at once.
    """

    predictions: Array
    threads: int = 1

    def mixture(self, weights: Float64, *, absolute: bool = False) -> Float64:
        """``mu_ik = sum_m w_m P_imk``: weights (M,) -> (n, K); of ``|P_imk|`` if asked for."""
        n, _, K = self.predictions.shape
        mixture = np.empty((n, K))

        def fill(strip: slice) -> None:
            for rows in self._blocks(strip, len(weights)):
                block = self._flat(rows)
                mixture[rows] = ((abs(block) if absolute else block) @ weights).reshape(-1, K)

        self._over_strips(fill)
        return mixture

    def moments(self, factor: Float64, centre: Float64) -> Float64:
        """``sum_ik factor_ik (P_imk - centre_ik)``: (n, K), (n, K) -> (M,).

        Centred before summing, so that a large common level costs no digits.
        """

        def summed(strip: slice) -> Float64:
            total = np.zeros(self.predictions.shape[1])
            for rows in self._blocks(strip, len(total)):
                total += factor[rows].ravel() @ self._centred(rows, centre)
            return total

        return self._in_order(self._over_strips(summed))

    def gram(
        self, factor: Float64, centre: Float64, columns: NDArray[np.intp] | None = None
    ) -> Float64:
        """``sum_ik factor_ik (P_ia - centre_i)(P_ib - centre_i)`` -> (A, A).

        factor, centre : (n, K), the factor not negative; columns : (A,) candidates, None for all.
        """
        size = self.predictions.shape[1] if columns is None else len(columns)
        common = float(factor.flat[0]) if factor.min() == factor.max() else None

        def summed(strip: slice) -> Float64:
            total = np.zeros((size, size))
            for rows in self._blocks(strip, size, at_least=size):
                block = self._centred(rows, centre, columns)
                if common is None:
                    block *= np.sqrt(factor[rows]).reshape(-1, 1)
                total += block.T @ block
            return total

        total = self._in_order(self._over_strips(summed))
        return total if common is None else common * total

    def risks(self, value: Callable[[Array, Array], Array], y: Float64, share: Float64) -> Float64:
        """``sum_ik share_ik value(y_ik, P_imk)`` of each candidate: (n, K), (n, K) -> (M,)."""

        def summed(strip: slice) -> Float64:
            total = np.zeros(self.predictions.shape[1])
            for rows in self._blocks(strip, len(total)):
                block = self._flat(rows)
                targets = np.broadcast_to(y[rows].reshape(-1, 1), block.shape)
                total += share[rows].ravel() @ value(targets, block)
            return total

        return self._in_order(self._over_strips(summed))

    def _flat(self, rows: slice, columns: NDArray[np.intp] | None = None) -> Array:
        """Block as (rows * K, M); a view where it can be one."""
        block = self.predictions[rows]
        if columns is not None:
            block = block[:, columns]
        return block.transpose(0, 2, 1).reshape(-1, block.shape[1])

    def _centred(
        self, rows: slice, centre: Float64, columns: NDArray[np.intp] | None = None
    ) -> Float64:
        return np.subtract(self._flat(rows, columns), centre[rows].reshape(-1, 1), dtype=np.float64)

    def _blocks(self, strip: slice, width: int, at_least: int = 1) -> Iterator[slice]:
        step = max(1, at_least, _BLOCK // (width * self.predictions.shape[2]))
        for start in range(strip.start, strip.stop, step):
            yield slice(start, min(start + step, strip.stop))

    def _over_strips(self, work: Callable[[slice], _Part]) -> list[_Part]:
        n = len(self.predictions)
        count = min(_STRIPS, n, 1 + self.predictions.size // _BLOCK)
        edges = [n * strip // count for strip in range(count + 1)]
        strips = [slice(*pair) for pair in pairwise(edges)]
        if min(self.threads, count) == 1:
            return [work(strip) for strip in strips]
        with thread_pool(min(self.threads, count), limit_this_thread) as pool:
            return list(pool.map(work, strips))

    @staticmethod
    def _in_order(parts: list[Float64]) -> Float64:
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total
