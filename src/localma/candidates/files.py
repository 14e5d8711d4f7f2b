"""Models in files and folders: found, told apart by their content, and found again.

A recipe holds a path and a fingerprint. The path is written relative to the saved model, so that
the two move together; the fingerprint says whether the file is still the one that was used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from localma.errors import InvalidInputError
from localma.storage.fingerprints import fingerprint

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
