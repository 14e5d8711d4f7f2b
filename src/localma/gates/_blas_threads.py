"""BLAS on one thread, for work that has threads of its own and must be the same on any number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np  # noqa: F401  (loads its copy of BLAS)
import scipy.linalg  # noqa: F401  (loads another)
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


class _OneBlasThread:
    """BLAS kept to one thread while anybody needs it so; fits in several threads share this.

    Were each of them to set and restore the number, the last could restore the one of the first.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._threads = 1
        self._limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[int]:
        """Give the number of threads that BLAS had, for the strips to use instead."""
        with self._lock:
            if self._users == 0:
                self._restrict()
            self._users += 1
        try:
            yield self._threads
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._limit.restore_original_limits()

    def _restrict(self) -> None:
        controller = _blas_controller()
        self._threads = max((blas.num_threads for blas in controller.lib_controllers), default=1)
        self._limit = controller.limit(limits=1)


@cache
def _blas_controller() -> Any:
    # Finding the libraries takes milliseconds; both copies are loaded by the imports above.
    return ThreadpoolController().select(user_api="blas")


one_blas_thread = _OneBlasThread()
