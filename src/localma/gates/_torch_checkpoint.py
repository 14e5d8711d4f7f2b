"""The state of a training on disk, so that a process that was killed can continue.

Imported at use: it needs torch.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from localma.errors import FileFormatError
from localma.storage.whole_files import write_whole


@dataclass(frozen=True)
class Checkpoint:
    """One file in a folder, named after everything that determines the training."""

    path: Path

    @classmethod
    def of(
        cls,
        folder: str | os.PathLike[str],
        words: Mapping[str, Any],
        arrays: Iterable[NDArray[Any]],
    ) -> Checkpoint:
        """Name the file: other parameters, data or starts give another one."""
        digest = hashlib.sha256(repr(sorted(words.items())).encode())
        for array in arrays:
            digest.update(f"{array.shape} {array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        Path(folder).mkdir(parents=True, exist_ok=True)
        return cls(Path(folder) / f"{digest.hexdigest()[:24]}.pt")

    def write(self, state: dict[str, Any]) -> None:
        """Replace the file, whole or not at all."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_whole(self.path, buffer.getvalue())

    def read(self) -> dict[str, Any] | None:
        """The state last written; None if there is none. Only tensors and numbers are read."""
        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
        except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, OSError) as error:
            raise FileFormatError(
                f"The checkpoint {self.path} cannot be read ({error}). Delete it, and training "
                "starts again."
            ) from error
        return state
