"""Fingerprints of files, folders and texts, and paths relative to a saved model.

A path is written relative to the saved model, so that the two move together. The fingerprint
tells whether the file is still the one that was used.
"""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import blake2b, sha256
from importlib.util import find_spec
from pathlib import Path
from time import time_ns

from localma._optional import optional
from localma.errors import InvalidInputError

RECENT_NANOSECONDS = 2 * 10**9
"""The coarsest clock of a common file system ticks every two seconds."""


def file_state(path: Path) -> tuple[int, ...]:
    """Numbers that differ if the content of a file may have changed.

    Anyone can set the size and time of a file. Nobody can set its inode and the time of its last
    change of any kind. That clock ticks slowly, so a file changed just now counts as another one
    at every look.
    """
    state = path.stat()
    numbers = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    now = time_ns()
    return (*numbers, now) if now - state.st_ctime_ns < RECENT_NANOSECONDS else numbers


def digest(text: str) -> str:
    """32 characters that stand for a text.

    >>> digest("north")
    'a82fa9f755dd043606f79653f07d170c'
    """
    return blake2b(text.encode(), digest_size=16).hexdigest()


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
    return _external_weights(str(path), file_state(path))


@lru_cache(maxsize=1024)
def _external_weights(path: str, state: tuple[int, ...]) -> list[Path]:
    if find_spec("onnx") is None:
        return []
    onnx = optional("onnx", extra="onnx")
    try:
        tensors = onnx.load(path, load_external_data=False).graph.initializer
    except Exception:  # onnxruntime refuses a damaged file later, with a better message
        return []
    entries = [entry for tensor in tensors for entry in tensor.external_data]
    names = sorted({entry.value for entry in entries if entry.key == "location"})
    files = [Path(path).parent / name for name in names]
    return [file for file in files if file.is_file()]


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

    >>> Path(found_beside("fingerprints.py", Path(__file__).parent)) == Path(__file__)
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
