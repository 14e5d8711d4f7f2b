"""Things that a process opens for itself: sessions and loaded files, neither pickled nor forked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")

_inherited: list[Any] = []
"""What a parent opened. Its threads are not there after a fork, and closing would wait for them."""


class PerProcess(Generic[Thing]):
    """Make a thing at its first use in each process.

    Pickles and copies keep how it is made and make it again.

    >>> session = PerProcess(list)
    >>> session.get() is session.get()
    True
    """

    def __init__(self, make: Callable[[], Thing]) -> None:
        self.make = make
        self._made: tuple[int, Thing] | None = None

    def get(self) -> Thing:
        """The thing, made now if this process has none."""
        made, process = self._made, os.getpid()
        if made is None or made[0] != process:
            if made is not None:
                _inherited.append(made)
            made = self._made = (process, self.make())
        return made[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self.make, "_made": None}
