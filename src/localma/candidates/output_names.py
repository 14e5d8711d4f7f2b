"""Names of several outputs: columns of data frames go by name, those of arrays by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localma.candidates.labels import listed
from localma.errors import InvalidInputError
from localma.tables.frames import column_names, dense

Names = tuple[str, ...]


class OutputNames:
    """The order of K outputs, where some data frame names them.

    Parameters
    ----------
    names : K names in their order; None takes those of the first data frame that has some.
    of : whose they are, for the error.
    by_alphabet : whether names that are taken from a data frame are put in alphabetical order.

    Examples
    --------
    >>> import numpy as np
    >>> outputs = OutputNames(("rent", "price"), "y")
    >>> outputs.put_in_order(np.array([[900.0, 3.0]]), ("price", "rent"), "candidate 'a'").tolist()
    [[3.0, 900.0]]
    """

    def __init__(
        self, names: Sequence[str] | None = None, of: str = "", *, by_alphabet: bool = False
    ) -> None:
        self.names: Names | None = None if names is None else tuple(names)
        self.of, self.by_alphabet = of, by_alphabet

    @classmethod
    def of_target(cls, y: Any) -> OutputNames:
        """Those of y, if it is a data frame of several named columns; else none yet."""
        return cls(names_of_outputs(y, "y"), "y")

    def arranged(self, values: Any, of: str) -> Any:
        """Columns of a data frame in this order: (n, K); anything without names as it is.

        values : what somebody said of n rows; of : who, for the error.
        """
        names = names_of_outputs(values, of)
        return values if names is None else self.put_in_order(dense(values), names, of)

    def put_in_order(self, values: Any, names: Names | None, of: str) -> Any:
        """Columns (n, K) with these names in this order, which they set if there is none yet."""
        if names is None:
            return values
        if self.names is None:
            self.names, self.of = tuple(sorted(names)) if self.by_alphabet else names, of
        if sorted(names) != sorted(self.names):
            raise InvalidInputError(
                f"The outputs of {of} are named {listed(names)}, and those of {self.of} "
                f"{listed(self.names)}; named outputs are put together by name: rename the "
                "columns, or give an array, whose columns are taken in the order "
                f"{listed(self.names)}."
            )
        if names == self.names:
            return values
        return values[:, [names.index(name) for name in self.names]]


def names_of_outputs(values: Any, of: str) -> Names | None:
    """Names of a data frame's columns, if there are several, all strings, and somebody's choice.

    >>> names_of_outputs([[1.0, 2.0]], "y") is None
    True
    """
    names = column_names(values)
    if names is None or len(names) < 2 or not all(isinstance(name, str) for name in names):
        return None
    if names in ([f"column_{k}" for k in range(len(names))], [*map(str, range(len(names)))]):
        return None  # those of polars, and of numbers in a file, where nobody gave any
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(
            f"The outputs of {of} must have different names; {twice!r} is there more than once: "
            "rename them, or pass an array."
        )
    return tuple(names)
