"""Tables in files: CSV, Parquet, Arrow and JSON Lines, read and written part by part."""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from csv import reader as split_lines
from pathlib import Path
from typing import Any

from localma._optional import optional
from localma.cli.app import wrong_call
from localma.cli.showing import note
from localma.errors import InvalidInputError

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

LOOKED_AT = 100
"""So many lines of a CSV file say how its numbers are written."""
PART_ROWS = 65_536
PART_BYTES = 16 * 2**20
NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""What stands for a missing value in a CSV file."""

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
        table = csv.read_csv(file, **_csv_options(csv, path, kind, dict(types or {}), None))
        _check_names(table.column_names)
        return table


def types_of_labels(path: Path, column: str) -> Types:
    """The type of a column of labels: words, where a CSV file writes them as 01, 02, ..."""
    arrow = optional("pyarrow", extra="cli")
    kind = format_of(path)
    if kind not in ("csv", "tsv"):
        return {}
    with _clearly(arrow, path, kind):
        lines = _first_lines(path)
    names, *rows = split_lines(lines, delimiter=_delimiter(lines[0], kind))
    place = names.index(column) if column in names else len(names)
    coded = any(re.fullmatch(r"0\d+", field) for row in rows for field in row[place : place + 1])
    return {column: arrow.string()} if coded else {}


def labelled(table: Any, target: str) -> Any:
    """The rows whose target is known, at least one; says how many are left out."""
    missing = table[target].is_null(nan_is_null=True).to_numpy()
    if missing.all():
        raise InvalidInputError(
            f"No row has a target: all {len(missing)} values of {target!r} are missing."
        )
    if missing.any():
        note(f"{missing.sum()} of {len(missing)} rows have no {target!r} and are left out.")
    return table.filter(~missing) if missing.any() else table


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
        yield arrow.Table.from_batches([batch])
    if not some:
        yield schema.empty_table()


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"Columns of a table must have different names; {twice} are there more than once. "
            "Rename them."
        )


def _csv_options(
    csv: Any, path: Path, kind: str, types: dict[str, Any], columns: Sequence[str] | None
) -> dict[str, Any]:
    header, *lines = _first_lines(path)
    delimiter = _delimiter(header, kind)
    names = next(split_lines([header], delimiter=delimiter), [])
    wanted = None if columns is None else [name for name in dict.fromkeys(columns) if name in names]
    return {
        "read_options": csv.ReadOptions(block_size=PART_BYTES),
        "parse_options": csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": csv.ConvertOptions(
            column_types=types,
            null_values=NULLS,
            strings_can_be_null=True,
            include_columns=wanted,
            decimal_point=_decimal_point(lines, delimiter),
        ),
    }


def _delimiter(header: str, kind: str) -> str:
    return "\t" if kind == "tsv" else ";" if "," not in header and ";" in header else ","


def _first_lines(path: Path) -> list[str]:
    """The header and some lines of a text file, packed or not."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig") as file:
        return [str(file.readline()).rstrip("\r\n") for _ in range(1 + LOOKED_AT)]


def _decimal_point(lines: Sequence[str], delimiter: str) -> str:
    """Tell whether numbers are written 12.5 or 12,5; where commas separate, they have points.

    >>> _decimal_point(["ab;12,5", "c,d;3"], ";"), _decimal_point(["ab;12.5"], ";")
    (',', '.')
    """
    fields = (field for line in split_lines(lines, delimiter=delimiter) for field in line)
    with_comma = any(re.fullmatch(r"\s*[+-]?\d*,\d+\s*", field) for field in fields)
    return "," if with_comma and delimiter != "," else "."


def _read_csv(
    arrow: Any, path: Path, types: dict[str, Any], columns: Sequence[str] | None
) -> Iterator[Any]:
    csv = optional("pyarrow.csv", extra="cli")
    stream = arrow.input_stream(str(path), compression="detect")
    reader = csv.open_csv(stream, **_csv_options(csv, path, format_of(path), types, columns))
    yield reader.schema
    yield from reader


def _read_jsonl(
    arrow: Any, path: Path, types: dict[str, Any], columns: Sequence[str] | None
) -> Iterator[Any]:
    reading = optional("pyarrow.json", extra="cli")
    schema = arrow.schema(list(types.items())) if types else None
    reader = reading.open_json(
        arrow.input_stream(str(path), compression="detect"),
        read_options=reading.ReadOptions(block_size=PART_BYTES),
        parse_options=reading.ParseOptions(explicit_schema=schema),
    )
    yield reader.schema
    yield from reader


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
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(descriptor)
    writer = _Writer(kind, temporary)
    try:
        yield writer.write
        writer.close()
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        writer.close()
        os.unlink(temporary)
        raise


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
