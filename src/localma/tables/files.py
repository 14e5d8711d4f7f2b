"""Tables read from and written to CSV, Excel, Parquet, Arrow and JSON Lines files."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import sys
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias
from weakref import finalize

import narwhals as nw

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.storage.whole_files import replacing
from localma.tables.cells import BadCellError, Known, TextColumns
from localma.tables.sniffing import (
    MISSING,
    NAMES,
    STANDARD,
    STANDARD_INPUT,
    Layout,
    Remark,
    SourceFile,
    TableFileError,
    TextOptions,
    named_format,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from narwhals.typing import IntoDataFrame
else:
    pa = optional("pyarrow", extra="cli")
    pc = optional("pyarrow.compute", extra="cli")

PathLike: TypeAlias = str | os.PathLike[str]
Cell: TypeAlias = str | float | bool | datetime.date | datetime.datetime | None
"""A cell of a workbook."""

RECORDS_SNIFFED = 10_000
"""Lines of a JSON Lines file that are read to find its columns."""
BLOCK_ROWS = 65_536
BLOCK_BYTES = 16 * 2**20
NOTHING_KNOWN = Known()
EXACT = 2**53
"""Larger whole numbers are not exact in a workbook; they are written as text."""
STARTS_FORMULA = r"^[=+\-@\t\r]"
"""The start of a cell that spreadsheets take for a formula, quoted or not."""
IS_NUMBER = r"^[+-]?\s*[$€£¥]?\s*(\d[\d.,' _]*([eE][+-]?\d+)?|inf|nan)?\s*[%€$£¥]?$"
"""Signed numbers, as tables write them, and a sign alone, which marks a missing value."""
GUARD = "'"
"""In front of a formula, this sign makes a spreadsheet show the text."""
SHEET_ROWS = 1_048_576
"""Rows of a sheet, including the header."""


def read_table(
    path: PathLike,
    *,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    decimal: str | None = None,
) -> pa.Table:
    """Read a table from a file, as `localma fit` reads it.

    The format is that of the content. If the suffix promises another format, the content decides.
    In text files the separator, the header and the type of each column are found from the content.
    `open_table` also returns remarks on how the file was read, and reads large files in blocks.

    Parameters
    ----------
    path : str or path
        A .csv, .tsv, .txt, .xlsx, .parquet, .arrow or .jsonl file; "-" for standard input.
    columns : list of str, optional
        The columns to read. By default, all columns are read.
    separator : str, optional
        The character between columns of a text file.
    encoding : str, optional
        The encoding of a text file, such as "cp1252".
    missing : sequence of str
        Cells that mean a missing value, in addition to the usual ones.
    decimal : {".", ","}, optional
        The decimal mark of numbers such as 1,234, which can be read with either mark.

    Returns
    -------
    pyarrow.Table
        The table.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rents.csv"
    ...     _ = path.write_text("id;rent;share\\n007;1.234,50 €;12%\\n008;99,00 €;-\\n")
    ...     read_table(path).to_pydict()
    {'id': ['007', '008'], 'rent': [1234.5, 99.0], 'share': [0.12, None]}
    """
    options = TextOptions(separator, encoding, tuple(missing), decimal)
    return open_table(path, options).read(columns=columns)


def write_table(table: IntoDataFrame, path: PathLike, *, raw_cells: bool = False) -> None:
    """Write a data frame to a file; its suffix decides the format.

    The file appears under its name when it is complete.

    Parameters
    ----------
    table : data frame of pandas, polars or pyarrow
        The table.
    path : str or path
        A .csv, .tsv, .xlsx, .parquet, .arrow or .jsonl file; "-" for standard output.
    raw_cells : bool, default=False
        By default, texts that a spreadsheet would run as formulas get an apostrophe in front, in
        .csv, .tsv and .xlsx files. If True, they are written unchanged.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "cells.csv"
    ...     write_table(pa.table({"x": [1, 2], "note": ["=1+1", "fine"]}), path)
    ...     print(path.read_text())
    "x","note"
    1,"'=1+1"
    2,"fine"
    <BLANKLINE>
    """
    frame = nw.from_native(table, eager_only=True)
    arrays = [frame[name].to_arrow() for name in frame.columns]
    with writing(path, raw_cells=raw_cells) as write:
        write(pa.table(arrays, names=frame.columns))


def open_table(path: PathLike, options: TextOptions | None = None) -> TableReader:
    """Open a table in a file, or on standard input for the path "-".

    Parameters
    ----------
    path : str or path
        The file.
    options : TextOptions, optional
        Settings of a text file or a workbook that are not to be guessed.

    Returns
    -------
    TableReader
        The open table.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("a,b\\n1,2\\n")
    ...     open_table(path).names
    ['a', 'b']
    """
    path, options = Path(path), options or TextOptions()
    if path != STANDARD:
        return _reader(path, path.name, named_format(path), options)
    # Readers read the beginning twice, so a stream is copied to a temporary file.
    with tempfile.NamedTemporaryFile(prefix="localma-", delete=False) as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    copy = Path(file.name)
    try:
        reader = _reader(copy, STANDARD_INPUT, "csv", options)
    except BaseException:
        copy.unlink()
        raise
    finalize(reader, copy.unlink)
    return reader


def _reader(path: Path, name: str, expected: str, options: TextOptions) -> TableReader:
    source = SourceFile.sniff(path, name, expected)
    reader = READERS[source.format](source, options)
    if source.format != expected and name != STANDARD_INPUT:
        remark = f"{name} is a table in the format {NAMES[source.format]}, despite its name."
        reader.remarks.insert(0, Remark(f"{remark} It is read as such."))
    return reader


class TableReader(ABC):
    """A table in a file, which is read as a whole or block by block.

    Parameters
    ----------
    source : SourceFile
        The file.
    options : TextOptions
        Settings that are not to be guessed.

    Attributes
    ----------
    name : str
        The name of the file in messages.
    names : list of str
        The names of the columns, all different.
    repeated : set of str
        Names that several columns have in the file.
    remarks : list of Remark
        How the file was read. The list grows while it is read.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("a,b\\n1,2\\n3,4\\n")
    ...     open_table(path).read().num_rows
    2
    """

    row_word = "row"  # the unit of `numbers`
    default_decimal = "."

    def __init__(self, source: SourceFile, options: TextOptions) -> None:
        self._source, self._options = source, options
        self.name = source.name
        self.remarks: list[Remark] = []
        with self._clear_errors():
            names = self._open()
        self.names, new_names = _unique_names(names)
        self.repeated = set(new_names)
        self._text_columns = TextColumns(self.remarks, options.decimal, self.default_decimal)
        for name, renamed in new_names.items():
            text = f"{self.name} has several columns named {name!r}. From the second on they are"
            self.remarks.append(Remark(f"{text} called {', '.join(map(repr, renamed))}."))

    def blocks(
        self,
        hints: Known = NOTHING_KNOWN,
        columns: Sequence[str] | None = None,
        as_written: Sequence[str] = (),
    ) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield pairs of tables, for block after block of rows; at least one pair.

        Parameters
        ----------
        hints : Known
            Types of columns that the file does not state.
        columns : list of str, optional
            The columns of the first table. By default, it has all columns.
        as_written : list of str
            The columns of the second table, whose cells are as the file has them.

        Yields
        ------
        values : pyarrow.Table
            The columns with their types.
        texts : pyarrow.Table
            The columns of `as_written`.
        """
        columns = list(self.names if columns is None else columns)
        first_row = 0
        with self._clear_errors():
            for table in self._blocks(hints, list(dict.fromkeys([*columns, *as_written]))):
                values = self._converted(table.select(columns), hints, first_row)
                yield values, table.select(list(as_written))
                first_row += table.num_rows

    def read(self, hints: Known = NOTHING_KNOWN, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows. In a text file, all rows decide the type of a column.

        Parameters
        ----------
        hints : Known
            Types of columns that the file does not state.
        columns : list of str, optional
            The columns to read. By default, all columns are read.

        Returns
        -------
        pyarrow.Table
            The table.
        """
        selected = list(dict.fromkeys(self.names if columns is None else columns))
        with self._clear_errors():
            blocks = list(self._blocks(hints, selected))
            table = pa.concat_tables(blocks, promote_options="default").select(selected)
            return self._converted(table, hints, first_row=0)

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Return the numbers of rows in the file.

        Parameters
        ----------
        rows : sequence of int
            Rows, counted from zero.

        Returns
        -------
        list of int
            Their numbers in the file, in the unit of `row_word`.
        """
        return list(rows)

    @property
    def decimal(self) -> str | None:
        """The decimal mark of the texts that were read, if they decide it."""
        return self._text_columns.decimal

    @property
    def percents(self) -> set[str]:
        """Columns of texts with percent signs, among those that were read."""
        return self._text_columns.percents

    @abstractmethod
    def _open(self) -> list[str]:
        """Open the file, and return the names of its columns."""

    @abstractmethod
    def _blocks(self, hints: Known, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield blocks of rows as the file has them; columns : those that are needed."""

    def _texts_in(self, table: pa.Table, hints: Known) -> list[str]:
        """Names of text columns that hold values of other types."""
        return [
            name
            for name in _string_columns(table)
            if hints.types.get(name, pa.string()) != pa.string()
        ]

    def _converted(self, table: pa.Table, hints: Known, first_row: int) -> pa.Table:
        """Convert texts and exact decimals; first_row : the row of the file that comes first."""
        texts = self._texts_in(table, hints)
        try:
            converted = self._text_columns.convert(table.select(texts), hints)
        except BadCellError as error:
            (number,) = self.numbers([first_row + error.row])
            raise TableFileError(
                f"{error.value!r} in column {error.column!r} of {self.name}, {self.row_word} "
                f"{number}, is not {error.expected}. Correct it, or leave it empty if the value "
                "is missing.",
                setting="missing",
                column=error.column,
                value=error.value,
            ) from error
        for position, column in enumerate(table.schema):
            if column.name in texts:
                table = table.set_column(position, column.name, converted[column.name])
            elif pa.types.is_decimal(column.type):
                floats = table[position].cast(pa.float64())
                table = table.set_column(position, column.name, floats)
        return table

    def _explain(self, error: Exception) -> InvalidInputError | None:
        """Build a clearer error than that of Arrow, if possible."""
        return None

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise self._source.wrong_encoding(error, error.encoding) from error
        except (pa.ArrowException, OSError) as error:
            raise self._explain(error) or InvalidInputError(
                f"{self.name} cannot be read ({error}). Check the file, or write it again."
            ) from error


class TextReader(TableReader):
    """A table in a text file, with a separator between columns."""

    row_word = "line"

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Lines of the file, counted from one."""
        return self._layout.lines_of(rows)

    def _open(self) -> list[str]:
        self._layout = Layout.of(self._source, self._options)
        self.default_decimal = self._layout.default_decimal
        self.remarks.extend(self._layout.remarks)
        return self._layout.names

    def _blocks(self, hints: Known, columns: Sequence[str]) -> Iterator[pa.Table]:
        csv = optional("pyarrow.csv", extra="cli")
        try:
            reader = csv.open_csv(
                self._source.arrow_stream(),
                csv.ReadOptions(
                    block_size=BLOCK_BYTES,
                    column_names=self.names,
                    skip_rows=self._layout.header_lines,
                    encoding=self._layout.encoding,
                ),
                csv.ParseOptions(delimiter=self._layout.separator, newlines_in_values=True),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string()),
                    null_values=[*MISSING, *self._options.missing],
                    strings_can_be_null=True,
                    include_columns=list(columns),
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error):
                raise
            yield pa.schema(dict.fromkeys(columns, pa.string())).empty_table()
        else:
            yield from _tables(reader.schema, reader)

    def _texts_in(self, table: pa.Table, hints: Known) -> list[str]:
        return list(table.column_names)

    def _explain(self, error: Exception) -> InvalidInputError | None:
        return self._layout.explain(error)


class ExcelReader(TableReader):
    """A table in the first sheet of a workbook that is not empty."""

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Rows of the sheet, counted from one."""
        return [self._row_numbers[row] for row in rows]

    def _open(self) -> list[str]:
        calamine = optional("python_calamine", extra="excel")
        with zipfile.ZipFile(self._source.path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > self._source.unpacked_limit:
            raise self._source.out_of_proportion()
        try:
            workbook = calamine.load_workbook(str(self._source.path))
            sheets = [workbook.get_sheet_by_name(title) for title in workbook.sheet_names]
            filled = [sheet for sheet in sheets if sheet.height > 0]
            if not filled:
                raise InvalidInputError(f"{self.name} is an empty workbook. Pass one with a table.")
            header, *rows = filled[0].to_python()
        except calamine.CalamineError as error:
            raise InvalidInputError(
                f"{self.name} is an Excel workbook that cannot be read ({error}). Save it again, "
                "or as CSV."
            ) from error
        if len(filled) > 1:
            title, *ignored = (repr(sheet.name) for sheet in filled)
            text = f"The first sheet of {self.name} is read, {title}, and not {', '.join(ignored)}."
            self.remarks.append(Remark(text))
        first_row = filled[0].start[0] + 2  # below the header, counted from one
        numbered = [(k, row) for k, row in enumerate(rows, first_row) if any(c != "" for c in row)]
        self._row_numbers = [number for number, _ in numbered]
        self._columns = [[row[k] for _, row in numbered] for k in range(len(header))]
        return [_cell_text(cell).strip() for cell in header]

    def _blocks(self, hints: Known, columns: Sequence[str]) -> Iterator[pa.Table]:
        cells = dict(zip(self.names, self._columns, strict=True))
        yield pa.table({name: as_column(cells[name], self._options.missing) for name in columns})

    def _texts_in(self, table: pa.Table, hints: Known) -> list[str]:
        return _string_columns(table)


class JsonReader(TableReader):
    """A table with one JSON object per line."""

    row_word = "line"

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Lines of the file, counted from one."""
        lines = enumerate(self._source.lines("utf-8"), start=1)
        filled = [number for number, line in lines if line.strip()]
        return [filled[row] for row in rows]

    def _open(self) -> list[str]:
        """Look at the first records.

        Arrow would fill a column of `hints` that the file does not have with missing values, and
        it would refuse numbers in a column of texts.
        """
        self._only_texts: dict[str, bool] = {}
        for line in islice(self._source.lines("utf-8"), RECORDS_SNIFFED):
            record = None
            with suppress(ValueError):  # Arrow explains it better
                record = json.loads(line)
            if isinstance(record, dict):
                for name, value in record.items():
                    is_text = value is None or isinstance(value, str)
                    self._only_texts[name] = self._only_texts.get(name, True) and is_text
        return list(self._only_texts)

    def _blocks(self, hints: Known, columns: Sequence[str]) -> Iterator[pa.Table]:
        arrow_json = optional("pyarrow.json", extra="cli")
        hinted = {
            name: kind
            for name, kind in hints.types.items()
            if name in self._only_texts and (kind != pa.string() or self._only_texts[name])
        }
        reader = arrow_json.open_json(
            self._source.arrow_stream(),
            read_options=arrow_json.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=arrow_json.ParseOptions(explicit_schema=pa.schema(hinted)),
        )
        yield from _tables(reader.schema, reader)


class ParquetReader(TableReader):
    """A table in a Parquet file."""

    def _open(self) -> list[str]:
        self._file = optional("pyarrow.parquet", extra="cli").ParquetFile(self._source.path)
        return list(self._file.schema_arrow.names)

    def _blocks(self, hints: Known, columns: Sequence[str]) -> Iterator[pa.Table]:
        batches = self._file.iter_batches(batch_size=BLOCK_ROWS)
        for table in _tables(self._file.schema_arrow, batches):
            yield table.rename_columns(self.names)

    def read_groups(
        self, groups: Sequence[int], hints: Known = NOTHING_KNOWN, columns: Sequence[str] = ()
    ) -> pa.Table:
        """Read columns of some row groups.

        Parameters
        ----------
        groups : sequence of int
            Positions of the row groups.
        hints : Known
            Types of columns that the file does not state.
        columns : list of str
            The columns to read.

        Returns
        -------
        pyarrow.Table
            The columns with their types.
        """
        with self._clear_errors():
            written = self._file.schema_arrow.names
            positions = [written[self.names.index(name)] for name in columns]
            table = self._file.read_row_groups(list(groups), columns=positions)
            table = table.select(positions).rename_columns(list(columns))
            return self._converted(table, hints, first_row=0)


class ArrowReader(TableReader):
    """A table in an Arrow file or stream."""

    def _open(self) -> list[str]:
        source = pa.memory_map(str(self._source.path))
        try:
            self._file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            self._file = pa.ipc.open_stream(source)
        return list(self._file.schema.names)

    def _blocks(self, hints: Known, columns: Sequence[str]) -> Iterator[pa.Table]:
        batches = self._file
        if isinstance(self._file, pa.ipc.RecordBatchFileReader):
            batches = map(self._file.get_batch, range(self._file.num_record_batches))
        for table in _tables(self._file.schema, batches):
            yield table.rename_columns(self.names)


READERS: dict[str, type[TableReader]] = {
    "csv": TextReader,
    "tsv": TextReader,
    "xlsx": ExcelReader,
    "jsonl": JsonReader,
    "parquet": ParquetReader,
    "arrow": ArrowReader,
}


def _unique_names(names: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Number repeated names; return all names, and the new names for each repeated one.

    >>> _unique_names(["a", "b", "a"])
    (['a', 'b', 'a (2)'], {'a': ['a (2)']})
    """
    unique: list[str] = []
    renamed: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for name in names:
        counts[name] += 1
        unique.append(name)
        if counts[name] > 1:
            unique[-1] = f"{name} ({counts[name]})"
            renamed.setdefault(name, []).append(unique[-1])
    return unique, renamed


def _tables(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    empty = True
    for batch in batches:
        empty = False
        yield pa.Table.from_batches([batch])
    if empty:
        yield schema.empty_table()


def _string_columns(table: pa.Table) -> list[str]:
    return [column.name for column in table.schema if pa.types.is_string(column.type)]


def as_column(cells: Sequence[Cell], missing: Sequence[str] = ()) -> pa.Array:
    """Convert cells of a sheet to a column of one Arrow type; cells of mixed types become texts.

    >>> as_column([1.0, "", 3.0]).to_pylist()
    [1, None, 3]
    >>> as_column([1.0, "-"]).to_pylist()
    ['1', '-']
    """
    empty: dict[Cell, None] = dict.fromkeys(["", *missing])
    values = [empty.get(cell, cell) for cell in cells]
    present = [value for value in values if value is not None]
    types = {type(value) for value in present}
    if types <= {float, int}:
        kind = None
        if types and all(map(_is_whole, present)):
            kind = pa.int64()
        return pa.array(values, kind, safe=False)
    if types in ({bool}, {datetime.date}, {datetime.datetime}):
        return pa.array(values)
    if types == {datetime.date, datetime.datetime}:
        return pa.array(values, pa.timestamp("us"))
    return pa.array([None if cell is None else _cell_text(cell) for cell in values], pa.string())


def _is_whole(cell: Cell) -> bool:
    return isinstance(cell, int | float) and float(cell).is_integer() and abs(cell) <= EXACT


def _cell_text(cell: Cell) -> str:
    if isinstance(cell, float) and _is_whole(cell):
        return str(int(cell))
    return str(cell)


@contextmanager
def writing(path: PathLike, *, raw_cells: bool = False) -> Iterator[Callable[[pa.Table], None]]:
    """Open a file for tables that are written one after another; "-" is standard output.

    The value of the context is a function that appends an Arrow table. The file appears under its
    name when the block ends, and not at all after an error. `raw_cells` is that of `write_table`.
    """
    path = Path(path)
    if path == STANDARD:
        with _appending("csv", sys.stdout.buffer, raw_cells) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    named = named_format(path)
    if path.suffix.lower() == ".gz":
        raise InvalidInputError(
            f"Tables are written unpacked; received the name {path.name!r}. Remove .gz from it."
        )
    with replacing(path) as temporary, _appending(named, str(temporary), raw_cells) as write:
        yield write


class _Sink(Protocol):
    """A file of one format to which tables are appended."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


@contextmanager
def _appending(
    kind: str, target: str | IO[bytes], raw_cells: bool
) -> Iterator[Callable[[pa.Table], None]]:
    """Open a file when the columns of the first table are known, and close it at the end."""
    sinks: list[tuple[_Sink, pa.Schema]] = []

    def write(table: pa.Table) -> None:
        if kind in ("csv", "tsv", "xlsx") and not raw_cells:
            table = without_formulas(table)
        if not sinks:
            sinks.append((_open_sink(kind, target, table.schema), table.schema))
        sink, schema = sinks[0]
        if kind == "parquet":
            table = table.cast(schema)
        sink.write_table(table)

    try:
        yield write
    except BaseException:
        for sink, _ in sinks:
            with suppress(OSError):  # a full disk fails again; the first error is the one to report
                sink.close()
        raise
    for sink, _ in sinks:
        sink.close()


def _open_sink(kind: str, target: str | IO[bytes], schema: pa.Schema) -> _Sink:
    if kind == "parquet":
        return optional("pyarrow.parquet", extra="cli").ParquetWriter(target, schema)
    if kind == "arrow":
        return pa.ipc.new_file(target, schema)
    if kind == "xlsx":
        return SheetWriter(str(target))
    if kind == "jsonl":
        return JsonWriter(str(target))
    csv = optional("pyarrow.csv", extra="cli")
    options = csv.WriteOptions(delimiter={"csv": ",", "tsv": "\t"}[kind])
    return csv.CSVWriter(target, schema, write_options=options)


class JsonWriter:
    """A file with one JSON object per line."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115

    def write_table(self, table: pa.Table) -> None:
        """Append the rows of an Arrow table."""
        self._file.writelines(
            json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in table.to_pylist()
        )

    def close(self) -> None:
        """Write the remaining rows, and close the file."""
        self._file.close()


class SheetWriter:
    """A workbook with one sheet, written row by row."""

    def __init__(self, path: str) -> None:
        options = {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "default_date_format": "yyyy-mm-dd",
        }
        self._workbook = optional("xlsxwriter", extra="excel").Workbook(path, options)
        self._sheet = self._workbook.add_worksheet()
        self._time_format = self._workbook.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._row = 0

    def write_table(self, table: pa.Table) -> None:
        """Append the rows of an Arrow table."""
        if self._row == 0:
            self._write_row(table.column_names)
        if self._row + table.num_rows > SHEET_ROWS:
            raise InvalidInputError(
                f"An Excel sheet holds {SHEET_ROWS - 1:,} rows, and the table has more. Write .csv "
                "or .parquet instead."
            )
        for cells in zip(*(column.to_pylist() for column in table.columns), strict=True):
            self._write_row(cells)

    def _write_row(self, cells: Sequence[Cell]) -> None:
        for position, cell in enumerate(cells):
            if cell is not None and cell == cell:  # NaN, too, is an empty cell
                self._write(position, cell)
        self._row += 1

    def _write(self, position: int, cell: Cell) -> None:
        if isinstance(cell, bool):
            self._sheet.write_boolean(self._row, position, cell)
        elif (isinstance(cell, int) and abs(cell) <= EXACT) or (
            isinstance(cell, float) and isfinite(cell)
        ):
            self._sheet.write_number(self._row, position, cell)
        elif isinstance(cell, datetime.datetime):
            moment = cell.replace(tzinfo=None)
            self._sheet.write_datetime(self._row, position, moment, self._time_format)
        elif isinstance(cell, datetime.date):
            self._sheet.write_datetime(self._row, position, cell)
        else:
            self._sheet.write_string(self._row, position, str(cell))

    def close(self) -> None:
        """Write the remaining rows, and close the file."""
        self._workbook.close()


def without_formulas(table: pa.Table) -> pa.Table:
    """Guard texts and column names that a spreadsheet would run as formulas.

    >>> cells = pa.table({"id": ["=1+1", "-5.2", "-", "Eve"], "rent": [-1.0, 2.0, 3.0, 4.0]})
    >>> without_formulas(cells)["id"].to_pylist()
    ["'=1+1", '-5.2', '-', 'Eve']
    """
    names = _guarded(pa.array(table.column_names, pa.string())).to_pylist()
    return pa.table([_guarded(column) for column in table.columns], names=names)


def _guarded(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return cells
    formulas = pc.and_(
        pc.match_substring_regex(cells, STARTS_FORMULA),
        pc.invert(pc.match_substring_regex(cells, IS_NUMBER)),
    )
    if not pc.any(formulas).as_py():
        return cells
    guard, separator = pa.scalar(GUARD, cells.type), pa.scalar("", cells.type)
    return pc.if_else(formulas, pc.binary_join_element_wise(guard, cells, separator), cells)
