"""BLAS on one thread, for work that has threads of its own and must be the same on any number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

import numpy as np  # noqa: F401  (loads its copy of BLAS)
import scipy.linalg  # noqa: F401  (loads another)
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

# The number of threads belongs to the whole process in most builds of BLAS, so those who change it
# take turns; all of them use every thread themselves, and lose nothing by it.
_turn = RLock()


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Keep BLAS to one thread; give the number that it had, for one's own threads."""
    with _turn:
        controller = _blas_controller()
        threads = max((blas.num_threads for blas in controller.lib_controllers), default=1)
        with controller.limit(limits=1):
            yield threads


def limit_this_thread() -> None:
    """Keep BLAS to one thread in a new thread; some builds ask for it in each."""
    _blas_controller().limit(limits=1)


@cache
def _blas_controller() -> Any:
    # Finding the libraries takes milliseconds, and the imports above have loaded them all.
    return ThreadpoolController().select(user_api="blas")


def _new_turn() -> None:
    global _turn
    _turn = RLock()


if hasattr(os, "register_at_fork"):
    # A child must not wait for a thread that only its parent has.
    os.register_at_fork(after_in_child=_new_turn)
