"""Arrays that are computed once and stored outside the repository, in folders named by settings.

The cache is the folder LOCALMA_STUDY_CACHE, or ``~/.cache/localma-studies``. An array is written
whole or not at all, so a computation that was stopped continues from the stored arrays. If several
processes need the same array, one computes it and the others wait.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.storage.whole_files import write_whole

Array = NDArray[Any]


def cache_folder() -> Path:
    """Return the folder of the cache."""
    chosen = os.environ.get("LOCALMA_STUDY_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "localma-studies"


def digest_of(texts: list[str]) -> str:
    """Digest of several texts, in their order.

    >>> digest_of(["a", "b"]) == digest_of(["ab"])
    False
    """
    digest = blake2b(digest_size=16)
    for text in texts:
        content = text.encode("utf-8", errors="surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


@contextmanager
def checkpoints(name: str) -> Iterator[Path]:
    """Return a folder for the state of a training; it is removed if the training succeeds."""
    folder = cache_folder() / name
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Create a folder if needed, and wait until no other process works in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Kept:
    """Arrays that depend on the same settings, by name, in one folder of the cache.

    topic : folder in the cache; settings : everything that the arrays depend on, in JSON.
    """

    def __init__(self, topic: str, settings: Mapping[str, Any]) -> None:
        self._settings = json.dumps(dict(settings), sort_keys=True, indent=1)
        key = sha256(self._settings.encode()).hexdigest()[:16]
        self.folder = cache_folder() / f"{topic}-{key}"

    def has(self, name: str) -> bool:
        """Whether an array is stored."""
        return self._file(name).exists()

    def array(self, name: str, make: Callable[[], Array]) -> Array:
        """Read an array; compute it first if it is not stored."""
        if not self.has(name):
            with self._alone():
                if not self.has(name):
                    self._write(name, make())
        return np.load(self._file(name), allow_pickle=False)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _write(self, name: str, array: Array) -> None:
        content = io.BytesIO()
        np.save(content, array, allow_pickle=False)
        write_whole(self._file(name), content.getvalue())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with alone_in(self.folder):
            (self.folder / "settings.json").write_text(self._settings)
            yield
