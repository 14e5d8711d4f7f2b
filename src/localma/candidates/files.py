"""Models in files and folders: found, told apart by their content, and found again.

A recipe holds a path and a fingerprint. The path is written relative to the saved model, so that
the two move together; the fingerprint says whether the file is still the one that was used.
"""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from localma.candidates.file_state import file_state
from localma.candidates.onnx_graph import onnx_facts
from localma.errors import InvalidInputError

Recipe = dict[str, Any]
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
    ('files.py', 64)
    """

    fields: ClassVar[dict[str, tuple[type, ...]]] = {"path": (str,), "sha256": (str,)}

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

    def recipe(self) -> Recipe:
        """Where it is and what is in it, for the recipe of a candidate."""
        return {"path": str(self.path), "sha256": self.sha256()}


def fingerprint(path: Path) -> str:
    """Sha256 of a file; of a folder, that of the names and fingerprints of all its files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "empty").write_bytes(b"")
    ...     fingerprint(Path(folder) / "empty")[:8]
    'e3b0c442'
    """
    if not path.is_dir():
        beside = _weights_beside(path)
        if not beside:
            return _file_fingerprint(path)
        parts = [_file_fingerprint(file) for file in (path, *beside)]
        return sha256("\n".join(parts).encode()).hexdigest()
    total = sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        inside = file.relative_to(path)
        if any(part.startswith(".") for part in inside.parts):  # .git, .cache and the like
            continue
        total.update(f"{inside.as_posix()}\n{_file_fingerprint(file)}\n".encode())
    return total.hexdigest()


def _weights_beside(path: Path) -> list[Path]:
    """Files with weights that an ONNX file names; they change while it stays the same."""
    if path.suffix.lower() != ".onnx":
        return []
    return [path.parent / name for name in onnx_facts(path).weight_files]


def _file_fingerprint(path: Path) -> str:
    return _digest(str(path), file_state(path))


@lru_cache(maxsize=1024)
def _digest(path: str, state: tuple[int, ...]) -> str:
    # The state is in the key only: a file of a gigabyte is read once, not at every use.
    with open(path, "rb") as file:
        digest = sha256()
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def beside(path: str, folder: Path) -> str:
    """Write a path relative to a folder, with forward slashes; absolute on another drive.

    >>> beside(os.path.abspath("models/north.onnx"), Path("models"))
    'north.onnx'
    """
    try:
        return Path(os.path.relpath(path, os.path.abspath(folder))).as_posix()
    except ValueError:
        return path


def found_beside(path: str, folder: Path) -> str:
    """Read a path that `beside` wrote; a file that was moved is looked for in the folder itself.

    >>> Path(found_beside("files.py", Path(__file__).parent)) == Path(__file__)
    True
    """
    there = Path(os.path.abspath(os.path.join(folder, path)))
    for place in (there, Path(os.path.abspath(folder)) / there.name):
        if place.exists():
            return str(place)
    raise InvalidInputError(
        f"There is no {path!r} seen from {str(folder)!r}, and no {there.name!r} in it: put the "
        "file beside the saved model, or pass the candidate itself by name."
    )
