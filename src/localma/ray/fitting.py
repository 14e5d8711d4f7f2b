"""Fits on a data set of the cluster: rows are gathered in memory-mapped arrays."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from localma._optional import optional
from localma._types import AnyArray
from localma.errors import InvalidInputError
from localma.model_file import Model
from localma.progress import bar
from localma.ray.job import MANIFEST, Block, Paths, list_blocks, list_files
from localma.ray.running import connected, quiet
from localma.storage.whole_files import write_whole
from localma.tables.files import ParquetReader, open_table

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = optional("pyarrow", extra="ray")

Fitted = TypeVar("Fitted", bound=Model)
Columns = Mapping[str, Sequence[str] | str]
"""Columns of each array by its name: a list for a matrix, a name for a vector."""
BLOCK_ROWS = 65_536
GATHERED = "gathered.txt"


@dataclass(frozen=True)
class Arrays:
    """Arrays in files, which are read when they are used.

    Parameters
    ----------
    folder : str
        The folder of the files.
    arrays : dict
        From the names of the arrays to the arrays, memory-mapped.

    Examples
    --------
    >>> Arrays("sample", {"y": np.zeros(2)})["y"].tolist()
    [0.0, 0.0]
    """

    folder: str
    arrays: dict[str, AnyArray]

    def __getitem__(self, name: str) -> AnyArray:
        return self.arrays[name]


def fit(
    estimator: Fitted,
    dataset: Any,
    target: str,
    *,
    features: Sequence[str],
    predictions: Sequence[str] | None = None,
    folder: str | os.PathLike[str],
    sample_weight: str | None = None,
    groups: str | None = None,
    dtype: str = "float64",
    address: str | None = None,
    progress: bool | None = None,
) -> Fitted:
    """Fit a model on a data set of a Ray cluster.

    The columns are gathered in memory-mapped arrays in `folder`, in the order of the rows. Then the
    model is fitted on this machine: it equals one fitted on the same arrays, to the bit. A run that
    was stopped continues with the blocks that are not gathered yet.

    Parameters
    ----------
    estimator : LocalMARegressor or LocalMAClassifier
        The estimator.
    dataset : path, list of paths, or ray.data.Dataset
        Parquet files and folders, or a data set. A data set is gathered from its start in each run.
    target : str
        The column to predict.
    features : list of str
        The inputs of the gate and of the candidates.
    predictions : list of str, optional
        Columns with the predictions of the candidates, as `predict_pool` writes them. By default
        the candidates of the estimator run.
    folder : str or path
        The folder of the arrays.
    sample_weight, groups : str, optional
        Columns with weights and groups of the rows.
    dtype : str, default="float64"
        Type of the numbers. "float32" needs half of the space, and larger samples are not copied.
    address : str, optional
        As in `predict`.
    progress : bool, optional
        As in `localma.progress.bar`.

    Returns
    -------
    LocalMARegressor or LocalMAClassifier
        The fitted estimator.

    Examples
    --------
    >>> from localma import LocalMARegressor
    >>> from localma.ray import fit
    >>> model = fit(  # doctest: +SKIP
    ...     LocalMARegressor(), "predictions/", "rent", features=["area", "rooms"],
    ...     predictions=["north", "south"], folder="sample/", address="auto",
    ... )
    """
    columns: dict[str, Sequence[str] | str] = {"X": list(features), "y": target}
    further = {"P": predictions, "sample_weight": sample_weight, "groups": groups}
    columns |= {name: value for name, value in further.items() if value is not None}
    arrays = gather(
        dataset, columns, folder=folder, dtype=dtype, address=address, progress=progress
    ).arrays
    options = {name: arrays[name] for name in ("sample_weight", "groups") if name in arrays}
    estimator.fit(arrays["X"], arrays["y"], predictions=arrays.get("P"), **options)
    return estimator


def gather(
    dataset: Any,
    columns: Columns,
    *,
    folder: str | os.PathLike[str],
    dtype: str = "float64",
    address: str | None = None,
    progress: bool | None = None,
) -> Arrays:
    """Gather columns of a data set in memory-mapped arrays.

    Parameters
    ----------
    dataset : path, list of paths, or ray.data.Dataset
        As in `fit`.
    columns : dict
        The columns of each array: a list of names for a matrix (n, p), a name for a vector (n,).
    folder : str or path
        The folder of the arrays.
    dtype : str
        Type of the numbers. Texts and whole numbers of a vector keep theirs.
    address : str, optional
        As in `predict`.
    progress : bool, optional
        As in `localma.progress.bar`.

    Returns
    -------
    Arrays
        The arrays by name.

    Examples
    --------
    >>> from localma.ray import gather
    >>> arrays = gather("sample.parquet", {"X": ["area"], "y": "rent"},  # doctest: +SKIP
    ...                 folder="sample/", address="auto")
    """
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    if isinstance(dataset, str | os.PathLike | list | tuple):
        return _gather_files(dataset, columns, path, np.dtype(dtype), address, progress)
    return _gather_stream(dataset, columns, path, np.dtype(dtype))


def array_of(table: pa.Table, names: Sequence[str] | str, dtype: np.dtype[Any]) -> AnyArray:
    """Columns of a table as a matrix (n, p), or a column as a vector (n,).

    >>> array_of(pa.table({"a": [1, 2], "b": [0.5, 1.5]}), ["a", "b"], np.dtype("float32")).tolist()
    [[1.0, 0.5], [2.0, 1.5]]
    """
    if isinstance(names, str):
        values = table[names].to_numpy()
        return values.astype(dtype) if values.dtype.kind == "f" else values
    return np.column_stack([table[name].to_numpy().astype(dtype) for name in names])


def _all_names(columns: Columns) -> list[str]:
    listed = [[names] if isinstance(names, str) else names for names in columns.values()]
    return list(dict.fromkeys(name for names in listed for name in names))


# From files: blocks are read by tasks of the cluster, in any order.


def read_arrays(
    blocks: Sequence[Block], columns: Columns, dtype: str, row: dict[str, Any]
) -> dict[str, Any]:
    """Read one block, in a task of the cluster."""
    block = blocks[row["id"]]
    reader = open_table(block.path)
    assert isinstance(reader, ParquetReader)
    table = reader.read_groups(block.groups, columns=_all_names(columns))
    stream = {name: array_of(table, names, np.dtype(dtype)) for name, names in columns.items()}
    return {"id": row["id"], "arrays": packed_arrays(stream)}


def packed_arrays(arrays: Mapping[str, AnyArray]) -> bytes:
    """Arrays as bytes, without pickle."""
    from io import BytesIO

    stream = BytesIO()
    texts = {k: v.astype(str) if v.dtype.kind == "O" else v for k, v in arrays.items()}
    np.savez(stream, allow_pickle=False, **texts)
    return stream.getvalue()


def unpacked_arrays(content: bytes) -> dict[str, AnyArray]:
    """Arrays from `packed_arrays`.

    >>> unpacked_arrays(packed_arrays({"y": np.array([1.0, 2.0])}))["y"].tolist()
    [1.0, 2.0]
    """
    from io import BytesIO

    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _gather_files(
    dataset: Paths,
    columns: Columns,
    folder: Path,
    dtype: np.dtype[Any],
    address: str | None,
    progress: bool | None,
) -> Arrays:
    blocks = list_blocks(list_files(dataset), BLOCK_ROWS)
    n = sum(block.rows for block in blocks)
    if n == 0:
        raise InvalidInputError("dataset must have at least one row; it has none.")
    about = {
        "columns": {name: list(names) if not isinstance(names, str) else names
                    for name, names in columns.items()},
        "dtype": str(dtype),
        "blocks": [block.name for block in blocks],
    }  # fmt: skip
    done = _continue(folder, about)
    pending = [block for block in blocks if block.name not in done]
    targets: dict[str, AnyArray] = {}
    with bar("rows", n, progress=progress) as advance, open(folder / GATHERED, "a") as journal:
        advance(n - sum(block.rows for block in pending))
        for number, arrays in _read_all(pending, columns, dtype, address):
            block = pending[number]
            for name, values in arrays.items():
                if name not in targets:
                    targets[name] = _opened(folder / f"{name}.npy", values, n, blocks, columns)
                targets[name][block.first : block.first + block.rows] = values
                targets[name].flush()  # type: ignore[attr-defined]
            journal.write(f"{block.name}\n")
            journal.flush()
            advance(block.rows)
    targets.clear()
    return Arrays(str(folder), _mapped(folder, columns))


def _continue(folder: Path, about: dict[str, Any]) -> set[str]:
    """Names of the blocks that an earlier run gathered for the same columns."""
    manifest, journal = folder / MANIFEST, folder / GATHERED
    same = False
    with suppress(FileNotFoundError, json.JSONDecodeError):
        same = json.loads(manifest.read_text()) == about
    if not same:
        if any(folder.iterdir()) and not manifest.exists():
            raise InvalidInputError(
                f"folder must be new or empty, or one of a fit; {str(folder)!r} has other files."
            )
        for file in [*folder.glob("*.npy"), journal]:
            file.unlink(missing_ok=True)
        write_whole(manifest, json.dumps(about).encode())
    return set(journal.read_text().split()) if journal.exists() else set()


def _opened(
    path: Path, values: AnyArray, n: int, blocks: Sequence[Block], columns: Columns
) -> AnyArray:
    """Open an array of n rows for writing; make it if it is new."""
    if path.exists():
        opened: AnyArray = np.load(path, mmap_mode="r+")
    else:
        shape = (n, *values.shape[1:])
        dtype = np.dtype("U64") if values.dtype.kind == "U" else values.dtype
        opened = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if opened.dtype.kind == "U" and values.dtype.itemsize > opened.dtype.itemsize:
        raise InvalidInputError("Texts of a column must have at most 64 characters in a fit.")
    return opened


def _read_all(
    blocks: list[Block], columns: Columns, dtype: np.dtype[Any], address: str | None
) -> Iterator[tuple[int, dict[str, AnyArray]]]:
    """Yield the number and the arrays of each block, as they come back."""
    if not blocks:
        return
    with connected(address):
        data = optional("ray.data", extra="ray")
        with quiet(data):
            items = [{"id": number} for number in range(len(blocks))]
            found = data.from_items(items, override_num_blocks=len(blocks)).map(
                partial(read_arrays, blocks, dict(columns), str(dtype))
            )
            for row in found.iter_rows():
                yield int(row["id"]), unpacked_arrays(row["arrays"])


def _mapped(folder: Path, columns: Columns) -> dict[str, AnyArray]:
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r+") for name in columns}


# From a data set of Ray: its rows come in order, and their number is known at the end.


def _gather_stream(dataset: Any, columns: Columns, folder: Path, dtype: np.dtype[Any]) -> Arrays:
    data = optional("ray.data", extra="ray")
    options = dataset.context.execution_options
    was_ordered, options.preserve_order = options.preserve_order, True
    files = {name: open(folder / f"{name}.raw", "wb") for name in columns}  # noqa: SIM115
    last: dict[str, AnyArray] = {}
    n = 0
    try:
        with quiet(data):
            for batch in dataset.iter_batches(batch_format="pyarrow", batch_size=BLOCK_ROWS):
                for name, names in columns.items():
                    last[name] = array_of(batch, names, dtype)
                    last[name].tofile(files[name])
                n += batch.num_rows
    finally:
        options.preserve_order = was_ordered
        for file in files.values():
            file.close()
    if n == 0:
        raise InvalidInputError("dataset must have at least one row; it has none.")
    arrays: dict[str, AnyArray] = {}
    for name, values in last.items():
        shape = (n, *values.shape[1:])
        arrays[name] = np.memmap(folder / f"{name}.raw", values.dtype, "r+", shape=shape)
    logging.getLogger("localma").info("gathered %d rows in %s", n, folder)
    return Arrays(str(folder), arrays)
