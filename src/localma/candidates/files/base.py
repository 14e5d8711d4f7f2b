"""What candidates from files share: the file, its network, its batches and its rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from localma._types import Json
from localma.candidates.base import FilePath, Recipe
from localma.candidates.outputs import Table
from localma.errors import InvalidInputError
from localma.storage.fingerprints import fingerprint
from localma.tables.frames import column_names, dense

PathLike = str | os.PathLike[str]


class ModelFile:
    """A file, or a folder, that holds a model.

    Parameters
    ----------
    path : where it is; kept as an absolute path.
    sha256 : the fingerprint that it must have; None takes it as it is at first use.

    Examples
    --------
    >>> file = ModelFile(__file__)
    >>> file.path.name, len(file.sha256())
    ('base.py', 64)
    """

    def __init__(self, path: PathLike, sha256: str | None = None) -> None:
        # Not resolved: a link's own name says what it is, and its suffix is looked at.
        self.path = Path(os.path.abspath(path))
        self._sha256 = sha256
        if not self.path.exists():
            raise InvalidInputError(f"There is no file or folder {os.fspath(path)!r}.")
        if sha256 is not None:
            self.check()

    @property
    def label(self) -> str:
        """The name without its suffix, which is what a candidate is called by default."""
        return self.path.stem

    def sha256(self) -> str:
        """Fingerprint of its content, taken once."""
        if self._sha256 is None:
            self._sha256 = fingerprint(self.path)
        return self._sha256

    def check(self) -> Path:
        """Its path, once it is clear that it is still what it was."""
        if not self.path.exists():
            raise InvalidInputError(f"The file or folder {str(self.path)!r} is no longer there.")
        recorded, found = self.sha256(), fingerprint(self.path)
        if recorded != found:
            raise InvalidInputError(
                f"{str(self.path)!r} is not the file that was used before: its sha256 was "
                f"{recorded[:12]}... and is {found[:12]}... now. Put the old file back, or make "
                "the candidate anew from this one."
            )
        return self.path

    def recipe(self) -> dict[str, Json]:
        """Its fields in the recipe of a candidate."""
        return {"path": str(self.path), "sha256": self.sha256()}


@dataclass(frozen=True, kw_only=True)
class FileRecipe(Recipe):
    """The file or folder of a candidate, in a recipe."""

    path: FilePath
    sha256: str

    def file(self) -> ModelFile:
        """Find the file and check its fingerprint."""
        return ModelFile(self.path, self.sha256)

    def options(self) -> dict[str, Any]:
        """Return all other fields as keyword arguments."""
        options = super().options()
        return {name: options[name] for name in options if name not in ("path", "sha256")}


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


Feed = dict[Any, Any]


def in_fixed_batches(
    run: Callable[[Feed], NDArray[Any]], feed: Feed, n: int, size: int | None
) -> NDArray[Any]:
    """Run a network on n rows, `size` at a time, the last rows filled up by repeating the last.

    Parameters
    ----------
    run : from inputs of `size` rows to outputs of `size` rows.
    feed : arrays or tensors of n rows, by name or position.
    size : rows that the network takes; None if it takes any number.

    Examples
    --------
    >>> def three_only(feed):
    ...     assert len(feed["x"]) == 3
    ...     return 2 * feed["x"]
    >>> in_fixed_batches(three_only, {"x": np.arange(4)}, 4, 3).tolist()
    [0, 2, 4, 6]
    """
    if size is None or size == n:
        return run(feed)
    pieces = []
    for start in range(0, n, size):
        rows = np.minimum(np.arange(start, start + size), n - 1)
        answer = run({key: values[rows] for key, values in feed.items()})
        pieces.append(answer[: n - start])
    return np.concatenate(pieces)


def as_objects(X: Table, what: str) -> Any:
    """One object per row, to be had by its place: a list, an array of images, or a Dataset.

    Parameters
    ----------
    X : a list, a Series, an array; a data frame or array of objects with one column; a Dataset,
        which comes back as it is, and so do arrays of numbers.
    what : what the objects are, and the name of their column in the way out.

    Examples
    --------
    >>> as_objects(np.array([["a text"], ["another"]], dtype=object), "text")
    ['a text', 'another']
    """
    series = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        return series.to_list()
    framed = column_names(X) is not None
    if not framed and not (isinstance(X, np.ndarray) and X.dtype.kind in "OU"):
        return X
    values = dense(X)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InvalidInputError(
            f"one column of X must hold the {what}s, and X has shape {values.shape}: state which, "
            f"inputs={what!r}."
        )
    return values.tolist()
