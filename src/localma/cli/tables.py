"""Tables in files: CSV, Parquet, Arrow and JSON Lines, read and written part by part."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.cli.app import wrong_call
from localma.cli.csv_files import Layout
from localma.cli.showing import note
from localma.errors import InvalidInputError
from localma.frames import missing_column
from localma.whole_files import replacing

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""What the end of a file's name says about it; CSV and JSON Lines may end in .gz as well."""

RECORDS = 10_000
"""So many lines of a JSON Lines file say which columns it has."""
PART_ROWS = 65_536
PART_BYTES = 16 * 2**20

Types = Mapping[str, Any]


def format_of(path: Path) -> str:
    """Tell the format of a file by its name.

    >>> format_of(Path("rents.csv.gz")), format_of(Path("rents.PARQUET"))
    ('csv', 'parquet')
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    found = FORMATS.get(
        (suffixes[-2:-1] if packed else suffixes[-1:] or [""])[0] if suffixes else ""
    )
    if found is None or (packed and found not in ("csv", "tsv", "jsonl")):
        raise wrong_call(
            f"The name of a table must end in {', '.join(FORMATS)} (CSV and JSON Lines also with "
            f".gz); received {path.name!r}."
        )
    return found


def read(path: Path, types: Types | None = None) -> Any:
    """Read a whole table; in a CSV file all rows of a column say together what its type is."""
    arrow = optional("pyarrow", extra="cli")
    kind = format_of(path)
    if kind not in ("csv", "tsv"):
        return arrow.concat_tables(list(parts(path, types)), promote_options="default")
    csv = optional("pyarrow.csv", extra="cli")
    with _clearly(arrow, path, kind), arrow.input_stream(str(path), compression="detect") as file:
        layout = Layout.of(path, kind)
        table = csv.read_csv(
            file, **layout.options(arrow, dict(types or {}), part_bytes=PART_BYTES)
        )
        _check_names(table.column_names)
        return layout.with_numbers(arrow, table, dict(types or {}))


def types_of_labels(path: Path, column: str) -> Types:
    """The type of a column of labels: words, where a CSV file writes them as 01, 02, ..."""
    arrow = optional("pyarrow", extra="cli")
    kind = format_of(path)
    if kind not in ("csv", "tsv"):
        return {}
    with _clearly(arrow, path, kind):
        return {column: arrow.string()} if Layout.of(path, kind).has_codes(column) else {}


def weights_of(table: Any, column: str) -> Any:
    """Weights of the rows, checked: (n,)."""
    weight = table[column].to_numpy()
    if weight.dtype.kind not in "biuf" or not (weight >= 0).all() or not weight.any():
        raise InvalidInputError(
            f"Weights must be numbers, zero or more, in every row, and not all zero; the column "
            f"{column!r} has others. Fill in what is missing, or leave those rows out."
        )
    return weight


def labelled(table: Any, target: str) -> tuple[Any, NDArray[np.intp]]:
    """The rows whose target is known, at least one, and where they stand in the table.

    Says how many are left out.
    """
    missing = table[target].is_null(nan_is_null=True).to_numpy()
    if missing.all():
        raise InvalidInputError(
            f"No row has a target: all {len(missing)} values of {target!r} are missing."
        )
    if missing.any():
        note(f"{missing.sum()} of {len(missing)} rows have no {target!r} and are left out.")
    return table.filter(~missing) if missing.any() else table, np.flatnonzero(~missing)


def parts(
    path: Path, types: Types | None = None, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Tables of some rows each, one after the other; at least one, which may have no rows.

    types : the type of a column, where it is known and the file does not say (CSV, JSON Lines).
    columns : those that are needed, where others are better left alone: in a CSV file that is read
        in parts, a column may look like numbers at first and hold words later.
    """
    arrow = optional("pyarrow", extra="cli")
    kind = format_of(path)
    with _clearly(arrow, path, kind):
        reader = _READERS[kind](arrow, path, dict(types or {}), columns)
        yield from _tables(arrow, reader)


@contextmanager
def _clearly(arrow: Any, path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} must be written in UTF-8, and is not ({error}). Save it as UTF-8."
        ) from error
    except (arrow.ArrowException, OSError) as error:
        of_one_cell = Layout.of(path, kind).of_one_cell(error) if kind in ("csv", "tsv") else None
        if of_one_cell is not None:
            raise of_one_cell from error
        raise InvalidInputError(
            f"{path} must be a table in the format {kind!r}, and cannot be read: {error}. Look at "
            "the file, or give it the right suffix."
        ) from error


def _tables(arrow: Any, batches: Iterator[Any]) -> Iterator[Any]:
    some = False
    schema = next(batches)
    _check_names(schema.names)
    for batch in batches:
        some = True
        yield _without_decimals(arrow, arrow.Table.from_batches([batch]))
    if not some:
        yield schema.empty_table()


def _without_decimals(arrow: Any, table: Any) -> Any:
    """Exact decimals, as databases have them, as floating numbers."""
    for place, field in enumerate(table.schema):
        if arrow.types.is_decimal(field.type):
            table = table.set_column(place, field.name, table[place].cast(arrow.float64()))
    return table


def no_column(name: str, names: Sequence[str], path: Path | None = None) -> str:
    """Say that a table, out of a file, has no such column, with the nearest ones that it has.

    >>> no_column("rents", ["area", "rent"], Path("new.csv"))
    "the table new.csv has no column 'rents'; did you mean 'rent'?"
    """
    said = str(missing_column(name, names)).removeprefix("X ")
    return f"the table {said}" if path is None else f"the table {path.name} {said}"


def check_columns(path: Path, wanted: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a file that lacks a column which is needed."""
    for name in wanted:
        if name not in names:
            said = no_column(name, names, path)
            raise InvalidInputError(said[0].upper() + said[1:])


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"Columns of a table must have different names; {twice} are there more than once. "
            "Rename them."
        )


def _read_csv(
    arrow: Any, path: Path, types: dict[str, Any], columns: Sequence[str] | None
) -> Iterator[Any]:
    csv = optional("pyarrow.csv", extra="cli")
    layout = Layout.of(path, format_of(path))
    check_columns(path, columns or (), layout.names)
    stream = arrow.input_stream(str(path), compression="detect")
    reader = csv.open_csv(stream, **layout.options(arrow, types, columns, part_bytes=PART_BYTES))
    yield reader.schema
    for batch in reader:
        table = layout.with_numbers(arrow, arrow.Table.from_batches([batch]), types)
        yield from table.to_batches()


def _read_jsonl(
    arrow: Any, path: Path, types: dict[str, Any], columns: Sequence[str] | None
) -> Iterator[Any]:
    reading = optional("pyarrow.json", extra="cli")
    stated = _stated(arrow, path, types)
    schema = arrow.schema(list(stated.items())) if stated else None
    reader = reading.open_json(
        arrow.input_stream(str(path), compression="detect"),
        read_options=reading.ReadOptions(block_size=PART_BYTES),
        parse_options=reading.ParseOptions(explicit_schema=schema),
    )
    yield reader.schema
    yield from reader


def _stated(arrow: Any, path: Path, types: dict[str, Any]) -> dict[str, Any]:
    """The types of columns that the file has, and that go with its values.

    Arrow would fill a stated column that is not there with missing values, and refuse a number in
    one of words.
    """
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    seen: dict[str, bool] = {}
    with opened(path, "rt", encoding="utf-8-sig") as file:
        for line in islice(file, RECORDS):
            with suppress(ValueError):  # which Arrow says better
                record = json.loads(line)
                for name, value in record.items() if isinstance(record, dict) else ():
                    words = value is None or isinstance(value, str)
                    seen[name] = seen.get(name, True) and words
    return {
        name: kind
        for name, kind in types.items()
        if name in seen and (kind != arrow.string() or seen[name])
    }


def _read_parquet(
    arrow: Any, path: Path, types: dict[str, Any], columns: Sequence[str] | None
) -> Iterator[Any]:
    file = optional("pyarrow.parquet", extra="cli").ParquetFile(path)
    yield file.schema_arrow
    yield from file.iter_batches(batch_size=PART_ROWS)


def _read_arrow(
    arrow: Any, path: Path, types: dict[str, Any], columns: Sequence[str] | None
) -> Iterator[Any]:
    ipc = optional("pyarrow.ipc", extra="cli")
    with arrow.memory_map(str(path)) as source:
        try:
            file = ipc.open_file(source)
        except arrow.ArrowInvalid:
            stream = ipc.open_stream(source)
            yield stream.schema
            yield from stream
            return
        yield file.schema
        yield from (file.get_batch(k) for k in range(file.num_record_batches))


_READERS = {
    "csv": _read_csv,
    "tsv": _read_csv,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
}


@contextmanager
def writing(path: Path) -> Iterator[Any]:
    """Give a function that writes a table at the end of a file.

    The file appears under its name when all is written, and not at all if anything goes wrong.
    """
    kind = format_of(path)
    if path.suffix.lower() == ".gz":
        raise wrong_call(f"Tables are written unpacked; received {path.name!r}: leave out .gz.")
    with replacing(path) as temporary:
        writer = _Writer(kind, str(temporary))
        try:
            yield writer.write
        except BaseException:
            with suppress(OSError):  # a full disk fails again; the first error is the one to tell
                writer.close()
            raise
        writer.close()


class _Writer:
    """A file of one format, opened when the first table says what its columns are."""

    def __init__(self, kind: str, path: str) -> None:
        self._kind, self._path = kind, path
        self._file: Any = None

    def write(self, table: Any) -> None:
        if self._kind == "jsonl":
            with open(self._path, "a", encoding="utf-8") as file:
                file.writelines(
                    json.dumps(row, default=str, ensure_ascii=False) + "\n"
                    for row in table.to_pylist()
                )
            return
        if self._file is None:
            self._file = self._open(table.schema)
        self._file.write_table(table.cast(self._file.schema) if self._kind == "parquet" else table)

    def _open(self, schema: Any) -> Any:
        if self._kind == "parquet":
            return optional("pyarrow.parquet", extra="cli").ParquetWriter(self._path, schema)
        if self._kind == "arrow":
            return optional("pyarrow.ipc", extra="cli").new_file(self._path, schema)
        csv = optional("pyarrow.csv", extra="cli")
        delimiter = "\t" if self._kind == "tsv" else ","
        options = csv.WriteOptions(delimiter=delimiter)
        return csv.CSVWriter(self._path, schema, write_options=options)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
