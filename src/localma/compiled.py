"""Import of modules that Numba compiles, one at a time, and entries with a cache on disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher
    from numba.core.typing.templates import Signature

_LOGGER = logging.getLogger("localma")

COMPILING = RLock()
"""Held while a module or a loss is compiled: two threads must not import Numba at once.

A fork waits for it, so that no child inherits a half-imported Numba.
"""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=COMPILING.acquire,
        after_in_parent=COMPILING.release,
        after_in_child=COMPILING.release,
    )

_modules: dict[str, ModuleType] = {}


def compiled_module(name: str) -> ModuleType:
    """Import a module that compiles itself, at the first call.

    Make that call before you start threads.
    """
    if name not in _modules:
        with COMPILING:
            if name not in _modules:
                _modules[name] = _announced_import(name)
    return _modules[name]


def _announced_import(name: str) -> ModuleType:
    """Import a module, and log a message if it has to be compiled."""
    from numba.core import event

    class Announcement(event.Listener):
        def on_start(self, _: event.Event) -> None:
            _announce()

        def on_end(self, _: event.Event) -> None:
            """Do nothing: only the start is announced."""

    with event.install_listener("numba:compile", Announcement()):
        return import_module(name)


@cache
def _announce() -> None:
    # A warning, since it explains a wait and must appear without any logging set up.
    _LOGGER.warning("localma compiles its kernel, once on this machine; it takes seconds.")


def entry(
    signature: Signature, **options: Any
) -> Callable[[Callable[..., int | None]], Dispatcher]:
    """Compile a function for one signature, and keep it in Numba's cache on disk if there is one.

    Numba fails if no folder can be written, if the disk is full, or if its files are damaged.
    Predictions must still work, so the function is then compiled for this process only.
    """
    from numba import njit

    def compile_entry(function: Callable[..., int | None]) -> Dispatcher:
        try:
            return njit(signature, cache=True, **options)(function)
        except Exception as error:
            reason = str(error).replace(function.__name__, "kernel")
            _reasons.append(f"{type(error).__name__}: {reason}")
            _warn_of_no_cache()
            return njit(signature, **options)(function)

    return compile_entry


_reasons: list[str] = []


@cache
def _warn_of_no_cache() -> None:
    """Log one message for all entries, with the first reason."""
    _LOGGER.warning(
        "localma cannot use Numba's cache (%s). Every process compiles the kernel again, which "
        "takes seconds. Set NUMBA_CACHE_DIR to a folder that this process may write to.",
        _reasons[0],
    )
