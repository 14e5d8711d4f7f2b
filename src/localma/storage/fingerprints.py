"""Fingerprints of files, folders and texts, and paths relative to a saved model.

A path is saved relative to the model, so that both can be moved together. The fingerprint tells
whether the file has changed.
"""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import blake2b, sha256
from importlib.util import find_spec
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from localma._optional import optional
from localma.errors import InvalidInputError

if TYPE_CHECKING:
    from onnx import GraphProto

RECENT_NANOSECONDS = 2 * 10**9
"""The coarsest clock of a common file system ticks every two seconds."""


def file_state(path: Path) -> tuple[int, ...]:
    """Return numbers that differ if the content of a file may have changed.

    A program can set the size and the modification time of a file, but not its inode and the time
    of its last change of any kind. That clock ticks slowly, so a file that changed just now counts
    as different at every call.
    """
    state = path.stat()
    numbers = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    now = time_ns()
    if now - state.st_ctime_ns < RECENT_NANOSECONDS:
        return *numbers, now
    return numbers


def digest(text: str) -> str:
    """Return the digest of a text: 32 characters.

    >>> digest("north")
    'a82fa9f755dd043606f79653f07d170c'
    """
    return blake2b(text.encode(), digest_size=16).hexdigest()


def fingerprint(path: Path) -> str:
    """Return the sha256 of a file; for a folder, of the names and fingerprints of its files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "empty").write_bytes(b"")
    ...     fingerprint(Path(folder) / "empty")[:8]
    'e3b0c442'
    """
    if not path.is_dir():
        fingerprints = [_file_fingerprint(file) for file in (path, *_weights_beside(path))]
        if len(fingerprints) == 1:
            return fingerprints[0]
        return sha256("\n".join(fingerprints).encode()).hexdigest()
    total = sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        relative = file.relative_to(path)
        if any(name.startswith(".") for name in relative.parts):  # .git, .cache and so on
            continue
        total.update(f"{relative.as_posix()}\n{_file_fingerprint(file)}\n".encode())
    return total.hexdigest()


def _weights_beside(path: Path) -> list[Path]:
    """Return the files with weights that an ONNX file names."""
    if path.suffix.lower() != ".onnx":
        return []
    files = [path.parent / name for name in _external_weights(str(path), file_state(path))]
    return [file for file in files if file.is_file()]


@lru_cache(maxsize=1024)
def _external_weights(path: str, state: tuple[int, ...]) -> list[str]:
    graph = onnx_graph(path)
    if graph is None:
        return []
    entries = [entry for tensor in graph.initializer for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location"})


def onnx_graph(path: str) -> GraphProto | None:
    """Read the graph of an ONNX file; None if it is damaged, or if onnx is not installed."""
    if find_spec("onnx") is None:
        return None
    try:
        return optional("onnx", extra="onnx").load(path, load_external_data=False).graph
    except Exception:  # onnxruntime refuses a damaged file later, with a better message
        return None


def _file_fingerprint(path: Path) -> str:
    return _digest(str(path), file_state(path))


@lru_cache(maxsize=1024)
def _digest(path: str, state: tuple[int, ...]) -> str:
    # `state` is only part of the cache key, so that a large file is read once.
    with open(path, "rb") as file:
        digest = sha256()
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def beside(path: str, folder: Path) -> str:
    """Return a path relative to a folder, with forward slashes; absolute on another drive.

    >>> beside(os.path.abspath("models/north.onnx"), Path("models"))
    'north.onnx'
    """
    try:
        return Path(os.path.relpath(path, os.path.abspath(folder))).as_posix()
    except ValueError:
        return path


def found_beside(path: str, folder: Path) -> str:
    """Find a file by its saved path, or in the folder itself if it was moved.

    >>> Path(found_beside("fingerprints.py", Path(__file__).parent)) == Path(__file__)
    True
    """
    saved = Path(os.path.abspath(os.path.join(folder, path)))
    for file in (saved, Path(os.path.abspath(folder)) / saved.name):
        if file.exists():
            return str(file)
    raise InvalidInputError(
        f"There is no file {path!r} relative to {str(folder)!r}, and no {saved.name!r} in it: put "
        "the file next to the saved model, or pass the candidate itself by name."
    )
