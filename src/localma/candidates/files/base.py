"""What candidates from files share: the file, its options, its batches and its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import narwhals as nw
import numpy as np

from localma._types import AnyArray, Array
from localma.candidates.outputs import Table
from localma.candidates.recipes import FilePath, PathLike, Recipe
from localma.errors import InvalidInputError
from localma.storage.fingerprints import fingerprint
from localma.tables.frames import column_names, dense


class ModelFile:
    """A file, or a folder, that holds a model.

    Parameters
    ----------
    path : the file or folder; kept as an absolute path.
    sha256 : the fingerprint that it must have; None accepts the present content.

    Examples
    --------
    >>> file = ModelFile(__file__)
    >>> file.path.name, len(file.sha256())
    ('base.py', 64)
    """

    def __init__(self, path: PathLike, sha256: str | None = None) -> None:
        # Not resolved, because the name and suffix of a link count, not those of its target.
        self.path = Path(os.path.abspath(path))
        self._sha256 = sha256
        if not self.path.exists():
            raise InvalidInputError(f"There is no file or folder {os.fspath(path)!r}.")
        if sha256 is not None:
            self.check()

    @classmethod
    def of(cls, path: PathLike | ModelFile) -> ModelFile:
        """Return a model file as it is, or make one of a path."""
        if isinstance(path, ModelFile):
            return path
        return cls(path)

    @property
    def label(self) -> str:
        """The name without its suffix, the default name of a candidate."""
        return self.path.stem

    def sha256(self) -> str:
        """Fingerprint of its content, computed once."""
        if self._sha256 is None:
            self._sha256 = fingerprint(self.path)
        return self._sha256

    def check(self) -> Path:
        """Return its path, after checking that its content has not changed."""
        if not self.path.exists():
            raise InvalidInputError(f"The file or folder {str(self.path)!r} no longer exists.")
        recorded, current = self.sha256(), fingerprint(self.path)
        if recorded != current:
            raise InvalidInputError(
                f"{str(self.path)!r} is not the file that was used before: its sha256 was "
                f"{recorded[:12]}... and is {current[:12]}... now. Restore the old file, or make a "
                "new candidate from this one."
            )
        return self.path


class FromFile:
    """A candidate that comes from a file: its name, its origin and the fields of its recipe."""

    file: ModelFile

    @property
    def label(self) -> str:
        """The name of the file without its suffix."""
        return self.file.label

    @property
    def source(self) -> str:
        """The path of the file."""
        return str(self.file.path)

    @property
    def path(self) -> str | None:
        """The path, in a recipe."""
        return self.source

    @property
    def sha256(self) -> str:
        """The fingerprint, in a recipe."""
        return self.file.sha256()


@dataclass(frozen=True, kw_only=True)
class FileRecipe(Recipe):
    """The file or folder of a candidate, in a recipe.

    file_argument : the argument that takes the file; derived : options that follow from the file.
    """

    file_argument: ClassVar[str] = "path"
    derived: ClassVar[tuple[str, ...]] = ()
    path: FilePath
    sha256: str

    def options(self) -> dict[str, Any]:
        """Return the arguments of the candidate, after a check of the file's fingerprint."""
        options = super().options()
        for name in ("path", "sha256", *self.derived):
            del options[name]
        return {self.file_argument: ModelFile(self.path, self.sha256), **options}


Resource = TypeVar("Resource")

_inherited: list[object] = []
"""Resources of a parent process. Closing them after a fork would wait for the parent's threads."""


class PerProcess(Generic[Resource]):
    """Make a resource at its first use in each process.

    Pickles and copies keep only the function that makes it.

    >>> session = PerProcess(list)
    >>> session.get() is session.get()
    True
    """

    def __init__(self, make: Callable[[], Resource]) -> None:
        self.make = make
        self._resource: tuple[int, Resource] | None = None

    def get(self) -> Resource:
        """Return the resource, made now if this process has none."""
        resource, process = self._resource, os.getpid()
        if resource is None or resource[0] != process:
            if resource is not None:
                _inherited.append(resource)
            resource = self._resource = (process, self.make())
        return resource[1]

    def __getstate__(self) -> dict[str, object]:
        return {"make": self.make, "_resource": None}


class RowValues(Protocol):
    """An array or a tensor: n rows that an array of indices selects."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


Key = TypeVar("Key")
Values = TypeVar("Values", bound=RowValues)
Output = TypeVar("Output", Array, AnyArray)


def in_fixed_batches(
    run: Callable[[dict[Key, Values]], Output], feed: dict[Key, Values], size: int | None
) -> Output:
    """Run a network on `size` rows at a time; the last batch is filled up with its last row.

    Parameters
    ----------
    run : from inputs of `size` rows to outputs of `size` rows.
    feed : arrays or tensors of n rows each, by name or position.
    size : number of rows that the network takes; None for any number.

    Examples
    --------
    >>> def three_only(feed):
    ...     assert len(feed["x"]) == 3
    ...     return 2 * feed["x"]
    >>> in_fixed_batches(three_only, {"x": np.arange(4)}, 3).tolist()
    [0, 2, 4, 6]
    """
    n = len(next(iter(feed.values())))
    if size is None or size == n:
        return run(feed)
    outputs = []
    for start in range(0, n, size):
        rows = np.minimum(np.arange(start, start + size), n - 1)
        output = run({key: values[rows] for key, values in feed.items()})
        outputs.append(output[: n - start])
    return np.concatenate(outputs)


def as_objects(X: Table, content: str) -> Sequence[Any] | AnyArray:
    """Return a sequence with one object per row: a list, an array of images, or a Dataset.

    Parameters
    ----------
    X : a list, a Series, an array; a data frame or array of objects with one column; a Dataset or
        an array of numbers, which is returned unchanged.
    content : kind of the objects, and the name of their column in the error.

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
        return X  # type: ignore[return-value]
    values = dense(X)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InvalidInputError(
            f"one column of X must hold the {content}s, but X has shape {values.shape}: pass the "
            f"name of that column, inputs={content!r}."
        )
    return values.tolist()


def checked_count(name: str, count: int, *, least: int) -> int:
    """Check that an option is a whole number.

    >>> checked_count("retries", 3, least=0)
    3
    """
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    if not whole or count < least:
        raise InvalidInputError(
            f"{name} must be a whole number, {least} or more; received {count!r}."
        )
    return int(count)
