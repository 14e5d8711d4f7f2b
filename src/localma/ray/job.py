"""Jobs on Parquet files: blocks of rows, a folder of finished blocks, and marks of attempts."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, TypeAlias

from localma._optional import optional
from localma._types import Json
from localma.errors import CandidateError, InvalidInputError, LocalMAError
from localma.storage.whole_files import remove_abandoned, replacing, write_whole

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa = optional("pyarrow", extra="ray")
    pq = optional("pyarrow.parquet", extra="ray")

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""A Parquet file, a folder of Parquet files, or a list of both."""

BLOCK_ROWS = 262_144
"""Row groups are joined to blocks of at most this size; a larger row group is a block."""
MOST_CRASHES = 3
"""So often a candidate may end the process on the same rows before it counts as failed."""
MANIFEST, ATTEMPTS = "_job.json", ".attempts"
PART = re.compile(r"part-\d{6,}-[0-9a-f]{12}\.parquet")
FORMAT = 1


class BlockError(LocalMAError, RuntimeError):
    """Some blocks of a job failed. The others are finished; the next run continues with these.

    Parameters
    ----------
    message : str
        The blocks, and what failed.
    python_hint : str, optional
        What to do in terms of Python.

    Examples
    --------
    >>> raise BlockError("1 of 3 blocks failed.")
    Traceback (most recent call last):
    ...
    localma.ray.job.BlockError: 1 of 3 blocks failed.
    """


@dataclass(frozen=True)
class Block:
    """Consecutive row groups of one Parquet file.

    Parameters
    ----------
    number : int
        Position in the data set.
    path : str
        The file.
    groups : tuple of int
        The row groups.
    first : int
        The row of the data set that comes first.
    rows : int
        The number of rows.
    name : str
        Name of the file of its results. It follows from the identity of the block.

    Examples
    --------
    >>> Block(0, "a.parquet", (0, 1), 0, 10, "part-000000-0123456789ab.parquet").rows
    10
    """

    number: int
    path: str
    groups: tuple[int, ...]
    first: int
    rows: int
    name: str


def list_files(dataset: Paths) -> list[Path]:
    """List the Parquet files of a data set, those of a folder by name.

    Parameters
    ----------
    dataset : path or list of paths
        Files and folders.

    Returns
    -------
    list of Path
        The files, with absolute paths.
    """
    given = [dataset] if isinstance(dataset, str | os.PathLike) else list(dataset)
    files: list[Path] = []
    for path in map(Path, given):
        found = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        files += [file.absolute() for file in found if file.name[0] != "."]
        if not found or not found[0].is_file():
            raise InvalidInputError(
                f"dataset must name Parquet files, or folders with files *.parquet; received "
                f"{str(path)!r}, where there is none."
            )
    if not files:
        raise InvalidInputError("dataset must name at least one Parquet file; received none.")
    return files


def list_blocks(files: Sequence[Path], block_rows: int = BLOCK_ROWS) -> list[Block]:
    """Cut files into blocks: as many whole row groups as have at most `block_rows` rows."""
    if block_rows < 1:
        raise InvalidInputError(f"block_rows must be 1 or more; received {block_rows!r}.")
    blocks: list[Block] = []
    first = 0
    for file in files:
        stat = file.stat()
        for groups, rows in _joined_groups(file, block_rows):
            identity = json.dumps([str(file), stat.st_size, stat.st_mtime_ns, groups])
            number, digest = len(blocks), sha256(identity.encode()).hexdigest()[:12]
            name = f"part-{number:06d}-{digest}.parquet"
            blocks.append(Block(number, str(file), groups, first, rows, name))
            first += rows
    return blocks


def _joined_groups(file: Path, block_rows: int) -> Iterator[tuple[tuple[int, ...], int]]:
    try:
        footer = pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInputError(f"{file} cannot be read as Parquet: {error}") from error
    groups: list[int] = []
    total = 0
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group).num_rows
        if groups and total + rows > block_rows:
            yield tuple(groups), total
            groups, total = [], 0
        groups.append(group)
        total += rows
    if total:
        yield tuple(groups), total


Failures: TypeAlias = "Counter[tuple[str, str]]"
"""Number of rows, by candidate and reason."""


@dataclass
class Counts:
    """What happened in the rows of a block, or of a job.

    Parameters
    ----------
    rows : int
        The number of rows.
    empty : int
        Rows without any prediction.
    unlike : int
        Rows unlike the labelled sample.
    failed : Counter
        Rows without a prediction, by candidate and reason.
    unfamiliar : Counter
        Rows with new values, by description.

    Examples
    --------
    >>> total = Counts()
    >>> total.add(Counts(rows=3, failed=Counter({("a", "returned NaN"): 1})))
    >>> total.rows, total.failed_rows()
    (3, {'a': 1})
    """

    rows: int = 0
    empty: int = 0
    unlike: int = 0
    failed: Failures = field(default_factory=Counter)
    unfamiliar: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Add the counts of further rows.

        Parameters
        ----------
        other : Counts
            The counts.
        """
        self.rows += other.rows
        self.empty += other.empty
        self.unlike += other.unlike
        self.failed.update(other.failed)
        self.unfamiliar.update(other.unfamiliar)

    def failed_rows(self) -> dict[str, int]:
        """Count the rows without a prediction of each candidate that failed.

        Returns
        -------
        dict
            The number of rows by candidate.
        """
        rows: Counter[str] = Counter()
        for (candidate, _), number in self.failed.items():
            rows[candidate] += number
        return dict(rows)

    def to_json(self) -> str:
        """Write the counts as JSON.

        Returns
        -------
        str
            The text.
        """
        failed = [[*key, number] for key, number in self.failed.items()]
        return json.dumps({**asdict(self), "failed": failed})

    @classmethod
    def from_json(cls, text: str | bytes) -> Counts:
        """Read the counts that `to_json` wrote.

        Parameters
        ----------
        text : str or bytes
            The text.

        Returns
        -------
        Counts
            The counts.
        """
        values = json.loads(text)
        failed = Counter({(name, why): number for name, why, number in values.pop("failed")})
        return cls(failed=failed, unfamiliar=Counter(values.pop("unfamiliar")), **values)


class JobFolder:
    """The folder of a job: its description, one file for each finished block, and attempts.

    All nodes of the cluster must reach it by the same path.

    Parameters
    ----------
    path : path
        The folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def start(self, about: dict[str, Json], blocks: Sequence[Block]) -> list[Block]:
        """Write the description, or compare it with the one there; return the unfinished blocks."""
        manifest = self.path / MANIFEST
        rows = sum(block.rows for block in blocks)
        names = sha256("\n".join(block.name for block in blocks).encode()).hexdigest()
        document = {"format": FORMAT, **about, "blocks": len(blocks), "rows": rows, "of": names}
        self.path.mkdir(parents=True, exist_ok=True)
        if manifest.exists():
            self._check_same(json.loads(manifest.read_text()), json.loads(json.dumps(document)))
        elif any(self.path.iterdir()):
            raise InvalidInputError(
                f"out must be a new or empty folder, or one of the same job; {str(self.path)!r} "
                "has other files."
            )
        else:
            write_whole(manifest, json.dumps(document, indent=1).encode())
        remove_abandoned(self.path)
        rmtree(self.path / ATTEMPTS, ignore_errors=True)
        (self.path / ATTEMPTS).mkdir()
        there = {entry.name for entry in os.scandir(self.path)}
        return [block for block in blocks if block.name not in there]

    def _check_same(self, stored: dict[str, Json], wanted: dict[str, Json]) -> None:
        differing = [key for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]
        if differing:
            names = {"of": "the input files"}
            listed = ", ".join(names.get(key, key) for key in differing)
            raise InvalidInputError(
                f"The folder {str(self.path)!r} holds results of another job, which differs in: "
                f"{listed}. Choose another folder."
            )

    def end(self) -> None:
        """Remove the marks of attempts."""
        rmtree(self.path / ATTEMPTS, ignore_errors=True)

    def write(self, block: Block, table: pa.Table, counts: Counts) -> None:
        """Write the results of a block: the whole file, or none."""
        metadata = {**(table.schema.metadata or {}), b"localma": counts.to_json().encode()}
        with replacing(self.path / block.name) as temporary:
            pq.write_table(table.replace_schema_metadata(metadata), temporary)

    def counts(self, blocks: Sequence[Block]) -> Counts:
        """Add up the counts of finished blocks."""
        total = Counts()
        for block in blocks:
            metadata = pq.read_schema(self.path / block.name).metadata
            total.add(Counts.from_json(metadata[b"localma"]))
        return total

    def keep_state(self, block: Block, content: bytes) -> None:
        """Keep the predictions so far of a block that needs another pass."""
        (self.path / ATTEMPTS).mkdir(exist_ok=True)
        write_whole(self._state_file(block), content)

    def kept_state(self, block: Block) -> bytes:
        """Return what `keep_state` kept; nothing in the first pass."""
        file = self._state_file(block)
        return file.read_bytes() if file.exists() else b""

    def _state_file(self, block: Block) -> Path:
        return self.path / ATTEMPTS / f"{block.name}.npz"

    @contextmanager
    def attempt(self, mark: str, candidate: str, most: int = MOST_CRASHES) -> Iterator[None]:
        """Note on disk that a candidate runs; refuse one that ended its process before.

        A process that is killed, for example because memory ran out, leaves its mark.

        Parameters
        ----------
        mark : what runs, as the name of a file
        candidate : the name of the candidate
        most : the number of killed processes from which on it is refused
        """
        path = self.path / ATTEMPTS / mark
        path.parent.mkdir(exist_ok=True)  # another run may have ended in the meantime
        with open(path, "ab") as file:
            crashes = file.tell()
            if crashes < most:
                file.write(b".")
        if crashes >= most:
            raise CandidateError(
                f"Candidate {candidate!r} ended its process {crashes} times on these rows, usually "
                "because memory ran out.",
                candidate=candidate,
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
