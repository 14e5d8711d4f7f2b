"""The settings of a service, with safe defaults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from re import fullmatch

from localma.errors import InvalidInputError

TOKEN = "LOCALMA_TOKEN"
"""Environment variable with the token that clients must send."""
NAME = r"[A-Za-z0-9_.-]{1,100}"
"""Names that need no escape in an address."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model is served.

    Parameters
    ----------
    path : path
        The model file.
    name : str, optional
        Name of the model in addresses. By default that of the file, without its ending.
    trust : bool
        Whether to follow recipes of the file that run code, or open files and addresses.
    host : str, default="127.0.0.1"
        Address to listen on.
    port : int, default=8080
        Port to listen on; 0 for any that is free.
    workers : int, default=1
        Number of processes.
    max_body : int, default=8 MiB
        Bytes of a request.
    max_rows : int, default=10,000
        Rows of a request.
    timeout : float, default=30.0
        Seconds for a request, from its first byte to the end of its answer.
    concurrency : int, default=4
        Answers that are computed at once in a process.
    queue : int, default=64
        Requests that wait at once in a process; more are refused with status 429.
    grace : float, default=20.0
        Seconds that requests under way have after SIGTERM.
    reload : float, default=1.0
        Seconds between looks at the file; 0 never looks.
    monitor : path, optional
        Folder for the states of monitors that see every answer. By default there are none.

    Examples
    --------
    >>> Settings(path=Path("models/rent.localma")).name
    'rent'
    """

    path: Path
    name: str = ""
    trust: bool = False
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    max_body: int = 8 * 2**20
    max_rows: int = 10_000
    timeout: float = 30.0
    concurrency: int = 4
    queue: int = 64
    grace: float = 20.0
    reload: float = 1.0
    monitor: Path | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", Path(self.path).stem)
        if not fullmatch(NAME, self.name):
            raise InvalidInputError(
                f"The name of a model may have letters, digits and . _ -; received {self.name!r}."
            )
        for field in ("workers", "max_body", "max_rows", "concurrency"):
            if getattr(self, field) < 1:
                raise InvalidInputError(
                    f"{field} must be 1 or more; received {getattr(self, field)}."
                )
        for field in ("queue", "grace", "reload", "port"):
            if getattr(self, field) < 0:
                raise InvalidInputError(
                    f"{field} must be 0 or more; received {getattr(self, field)}."
                )
        if not self.timeout > 0:
            raise InvalidInputError(f"timeout must be above 0 seconds; received {self.timeout}.")
