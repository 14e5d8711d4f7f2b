"""Tables in files: CSV, Excel, Parquet, Arrow and JSON Lines, read block by block."""

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import IO, Any
from weakref import finalize

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.storage.whole_files import replacing
from localma.tables.cells import BadCellError, Known, TextColumns
from localma.tables.sniffing import (
    NAMES,
    STANDARD,
    Layout,
    Remark,
    TableFileError,
    TextOptions,
    arrow_stream,
    bounded_lines,
    most_unpacked,
    named_format,
    not_encoded,
    opened,
    out_of_proportion,
    real_format,
)

pa: Any = optional("pyarrow", extra="cli")
pc: Any = optional("pyarrow.compute", extra="cli")

RECORDS = 10_000
"""The number of lines of a JSON Lines file that tell its columns."""
PART_ROWS = 65_536
PART_BYTES = 16 * 2**20
NOTHING_KNOWN = Known()
EXACT = 2**53
"""Whole numbers beyond are not exact in a workbook; they are written as text."""


class TableReader(ABC):
    """A table in a file.

    names : of its columns, all different; repeated : names that stand over several columns in the
    file; remarks : what was done to read it, which grows while it is read.
    """

    row_word = "row"
    """What `numbers` counts: lines of text, rows of a sheet, or rows from zero."""

    def __init__(self, path: Path, name: str, names: Sequence[str]) -> None:
        self.path, self.name = path, name
        self._text: TextColumns | None = None
        self.names, self.repeated = _different(names)
        self.remarks: list[Remark] = []
        for repeated in sorted(self.repeated):
            new = [n for n in self.names if n not in names]
            self.remarks.append(
                Remark(
                    f"{name} has several columns named {repeated!r}. From the second on they are "
                    f"called {', '.join(repr(n) for n in new if n.startswith(f'{repeated} ('))}."
                )
            )

    def parts(
        self, known: Known = NOTHING_KNOWN, columns: Sequence[str] | None = None
    ) -> Iterator[Any]:
        """Tables of some rows each, one after the other; at least one, which may have no rows.

        known : types of columns, where the file does not state them; columns : those to read,
        None for all.
        """
        wanted = self.names if columns is None else columns
        for table, _ in self.parts_and_text(known, wanted, ()):
            yield table

    def parts_and_text(
        self, known: Known, columns: Sequence[str], as_written: Sequence[str]
    ) -> Iterator[tuple[Any, Any]]:
        """Tables of some rows each, and further columns of these rows as the file has them."""
        read = list(dict.fromkeys([*columns, *as_written]))
        first = 0
        with self._clearly():
            for table in self._parts(known, read):
                with self._counting_from(first):
                    values = self._converted(table.select(list(columns)), known)
                yield _without_decimals(values), table.select(list(as_written))
                first += table.num_rows

    def read(self, known: Known = NOTHING_KNOWN, columns: Sequence[str] | None = None) -> Any:
        """All rows; those of a column decide together what a text file does not state."""
        wanted = self.names if columns is None else list(dict.fromkeys(columns))
        with self._clearly():
            tables = list(self._parts(known, wanted))
            whole = pa.concat_tables(tables, promote_options="default").select(wanted)
            with self._counting_from(0):
                return _without_decimals(self._converted(whole, known))

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Numbers under which the file shows rows, which are counted from zero."""
        return list(rows)

    @property
    def decimal(self) -> str | None:
        """The decimal mark of the texts, once they are read, if a number told it."""
        return None if self._text is None else self._text.decimal

    @property
    def percents(self) -> set[str]:
        """Columns of texts with percent signs, once they are read."""
        return set() if self._text is None else self._text.percents

    @abstractmethod
    def _parts(self, known: Known, columns: Sequence[str]) -> Iterator[Any]:
        """Tables as the file has them."""

    def _converted(self, table: Any, known: Known) -> Any:
        """Columns of texts as the values that they are known to hold."""
        texts = [
            column.name
            for column in table.schema
            if pa.types.is_string(column.type)
            and known.types.get(column.name, pa.string()) != pa.string()
        ]
        return self._with_converted(table, texts, known, None, ".")

    def _with_converted(
        self, table: Any, texts: Sequence[str], known: Known, decimal: str | None, default: str
    ) -> Any:
        """Some columns of texts as values; decimal : the stated mark; default : of the format."""
        if self._text is None:
            self._text = TextColumns(
                known, self.remarks, stated_decimal=decimal, default_decimal=default
            )
        converted = self._text.convert(table.select(texts))
        for name in texts:
            table = table.set_column(table.column_names.index(name), name, converted[name])
        return table

    def _explained(self, error: Exception) -> Exception | None:
        return None

    @contextmanager
    def _clearly(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise not_encoded(self.name, error.encoding, error) from error
        except (pa.ArrowException, OSError) as error:
            explained = self._explained(error)
            if explained is not None:
                raise explained from error
            raise InvalidInputError(
                f"{self.name} cannot be read ({error}). Look at the file, or write it again."
            ) from error

    @contextmanager
    def _counting_from(self, first: int) -> Iterator[None]:
        try:
            yield
        except BadCellError as error:
            (number,) = self.numbers([first + error.row])
            raise TableFileError(
                f"{error.value!r} in column {error.column!r} of {self.name}, {self.row_word} "
                f"{number}, is not {error.wanted}. Correct it, or leave it empty if the value "
                "is missing.",
                setting="missing",
                column=error.column,
                value=error.value,
            ) from error


class TextReader(TableReader):
    """A table in a text file, with a separator between columns."""

    row_word = "line"

    def __init__(self, path: Path, name: str, layout: Layout, options: TextOptions) -> None:
        super().__init__(path, name, layout.names)
        self._layout, self._options = layout, options
        self.remarks.extend(layout.remarks)

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Lines of the file, counted from one."""
        return self._layout.lines_of(rows)

    def _parts(self, known: Known, columns: Sequence[str]) -> Iterator[Any]:
        csv = optional("pyarrow.csv", extra="cli")
        options = self._layout.arrow_options(self.names, self._options.missing, columns, PART_BYTES)
        try:
            reader = csv.open_csv(arrow_stream(self._layout.path), **options)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error):
                raise
            yield pa.table({column: pa.array([], pa.string()) for column in columns})
            return
        empty = True
        for batch in reader:
            empty = False
            yield pa.Table.from_batches([batch])
        if empty:
            yield reader.schema.empty_table()

    def _converted(self, table: Any, known: Known) -> Any:
        default = self._layout.default_decimal
        return self._with_converted(
            table, table.column_names, known, self._options.decimal, default
        )

    def _explained(self, error: Exception) -> Exception | None:
        return self._layout.explain(error)


class ExcelReader(TableReader):
    """A table in the first sheet of a workbook."""

    def __init__(self, path: Path, name: str, options: TextOptions) -> None:
        self._sheet = read_sheet(path, name)
        super().__init__(path, name, self._sheet.names)
        self.remarks.extend(self._sheet.remarks)
        self._options = options

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Rows of the sheet, counted from one."""
        return [self._sheet.row_numbers[row] for row in rows]

    def _parts(self, known: Known, columns: Sequence[str]) -> Iterator[Any]:
        cells = dict(zip(self.names, self._sheet.columns, strict=True))
        missing = set(self._options.missing)
        table = pa.table(
            {
                column: as_column(["" if cell in missing else cell for cell in cells[column]])
                for column in columns
            }
        )
        yield table

    def _converted(self, table: Any, known: Known) -> Any:
        texts = [f.name for f in table.schema if f.type == pa.string()]
        return self._with_converted(table, texts, known, self._options.decimal, ".")


class JsonReader(TableReader):
    """A table with a JSON object per line."""

    row_word = "line"

    def __init__(self, path: Path, name: str) -> None:
        self._reading = optional("pyarrow.json", extra="cli")
        self._texts = _texts_of_records(path, name)
        super().__init__(path, name, list(self._texts))

    def numbers(self, rows: Sequence[int]) -> list[int]:
        """Lines of the file, counted from one."""
        with opened(self.path, "utf-8") as file:
            lines = enumerate(bounded_lines(file, self.name), start=1)
            filled = [number for number, line in lines if line.strip()]
        return [filled[row] for row in rows]

    def _parts(self, known: Known, columns: Sequence[str]) -> Iterator[Any]:
        stated = {
            name: kind
            for name, kind in known.types.items()
            if name in self._texts and (kind != pa.string() or self._texts[name])
        }
        schema = pa.schema(list(stated.items())) if stated else None
        reader = self._reading.open_json(
            arrow_stream(self.path),
            read_options=self._reading.ReadOptions(block_size=PART_BYTES),
            parse_options=self._reading.ParseOptions(explicit_schema=schema),
        )
        yield from _tables(reader.schema, reader)


class ParquetReader(TableReader):
    """A table in a Parquet file."""

    def __init__(self, path: Path, name: str) -> None:
        parquet = optional("pyarrow.parquet", extra="cli")
        with _readable(name):
            self._file = parquet.ParquetFile(path)
        super().__init__(path, name, self._file.schema_arrow.names)

    def _parts(self, known: Known, columns: Sequence[str]) -> Iterator[Any]:
        batches = self._file.iter_batches(batch_size=PART_ROWS)
        for table in _tables(self._file.schema_arrow, batches):
            yield table.rename_columns(self.names)


class ArrowReader(TableReader):
    """A table in an Arrow file or stream."""

    def __init__(self, path: Path, name: str) -> None:
        with _readable(name):
            source = pa.memory_map(str(path))
            try:
                self._file = pa.ipc.open_file(source)
            except pa.ArrowInvalid:
                source.seek(0)
                self._file = pa.ipc.open_stream(source)
        super().__init__(path, name, self._file.schema.names)

    def _parts(self, known: Known, columns: Sequence[str]) -> Iterator[Any]:
        count = getattr(self._file, "num_record_batches", None)
        batches = self._file
        if count is not None:
            batches = (self._file.get_batch(k) for k in range(count))
        for table in _tables(self._file.schema, batches):
            yield table.rename_columns(self.names)


def open_table(path: Path, options: TextOptions | None = None) -> TableReader:
    """Look at a table in a file, or on standard input for the path "-"."""
    options = options or TextOptions()
    if path != STANDARD:
        return _reader(path, path.name, named_format(path), options)
    copy = _copied(sys.stdin.buffer)
    try:
        reader = _reader(copy, "standard input", "csv", options)
    except BaseException:
        copy.unlink()
        raise
    finalize(reader, copy.unlink)
    return reader


def _reader(path: Path, name: str, named: str, options: TextOptions) -> TableReader:
    real = real_format(path, named, name)
    makers: dict[str, Callable[[], TableReader]] = {
        "xlsx": lambda: ExcelReader(path, name, options),
        "jsonl": lambda: JsonReader(path, name),
        "parquet": lambda: ParquetReader(path, name),
        "arrow": lambda: ArrowReader(path, name),
    }
    if real in makers:
        reader = makers[real]()
    else:
        layout = Layout.of(path, name, tabs=real == "tsv", options=options)
        reader = TextReader(path, name, layout, options)
    if real != named and name != "standard input":
        remark = f"{name} is a table in the format {NAMES[real]}, despite its name."
        reader.remarks.insert(0, Remark(f"{remark} It is read as such."))
    return reader


def read_table(path: Path) -> Any:
    """Read a whole table."""
    return open_table(path).read()


def _copied(stream: IO[bytes]) -> Path:
    """Copy a stream to a temporary file, since readers look at the beginning twice."""
    descriptor, name = tempfile.mkstemp(prefix="localma-")
    with os.fdopen(descriptor, "wb") as copy:
        shutil.copyfileobj(stream, copy)
    return Path(name)


def _different(names: Sequence[str]) -> tuple[list[str], set[str]]:
    """Names that are all different, and those that were there more than once.

    >>> _different(["a", "b", "a"])
    (['a', 'b', 'a (2)'], {'a'})
    """
    repeated = {name for name, count in Counter(names).items() if count > 1}
    taken: Counter[str] = Counter()
    different = []
    for name in names:
        taken[name] += 1
        different.append(name if taken[name] == 1 else f"{name} ({taken[name]})")
    return different, repeated


def _tables(schema: Any, batches: Any) -> Iterator[Any]:
    empty = True
    for batch in batches:
        empty = False
        yield pa.Table.from_batches([batch])
    if empty:
        yield schema.empty_table()


def _without_decimals(table: Any) -> Any:
    """Exact decimals, as databases have them, as floating numbers."""
    for position, column in enumerate(table.schema):
        if pa.types.is_decimal(column.type):
            floats = table[position].cast(pa.float64())
            table = table.set_column(position, column.name, floats)
    return table


def _texts_of_records(path: Path, name: str) -> dict[str, bool]:
    """The columns of the first records, and whether each holds texts alone.

    Arrow would fill a stated column that is not there with missing values, and refuse a number in
    one of texts.
    """
    texts: dict[str, bool] = {}
    try:
        with opened(path, "utf-8") as file:
            for line in islice(bounded_lines(file, name), RECORDS):
                with suppress(ValueError):  # which Arrow says better
                    record = json.loads(line)
                    for key, value in record.items() if isinstance(record, dict) else ():
                        text = value is None or isinstance(value, str)
                        texts[key] = texts.get(key, True) and text
    except UnicodeDecodeError as error:
        raise not_encoded(name, "utf-8", error) from error
    return texts


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(
            f"{name} cannot be read ({error}). Look at the file, or write it again."
        ) from error


@dataclass(frozen=True)
class Sheet:
    """A table in a sheet: names and cells of its columns, and the sheet's numbers of its rows."""

    names: list[str]
    columns: list[list[Any]]
    row_numbers: list[int]
    remarks: list[Remark]


def read_sheet(path: Path, name: str) -> Sheet:
    """Read the first sheet that is not empty; name : what messages call the file."""
    calamine = optional("python_calamine", extra="excel")
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > most_unpacked(path):
            raise out_of_proportion(name)
    try:
        workbook = calamine.load_workbook(str(path))
        sheets = [workbook.get_sheet_by_name(title) for title in workbook.sheet_names]
        filled = [sheet for sheet in sheets if sheet.height > 0]
        header, *rows = filled[0].to_python() if filled else [[]]
    except calamine.CalamineError as error:
        raise InvalidInputError(
            f"{name} is an Excel workbook that cannot be read ({error}). Save it again, or as CSV."
        ) from error
    if not filled:
        raise InvalidInputError(f"{name} is an empty workbook. Give one with a table.")
    remarks = []
    if len(filled) > 1:
        others = ", ".join(repr(sheet.name) for sheet in filled[1:])
        remarks.append(
            Remark(f"Of {name} the first sheet is read, {filled[0].name!r}, and not {others}.")
        )
    first = filled[0].start[0] + 2  # below the header, counted from one
    numbered = [(first + k, row) for k, row in enumerate(rows) if any(cell != "" for cell in row)]
    columns = [[row[k] for _, row in numbered] for k in range(len(header))]
    names = [_text(cell).strip() for cell in header]
    return Sheet(names, columns, [number for number, _ in numbered], remarks)


def as_column(cells: Sequence[Any]) -> Any:
    """A column of cells with one Arrow type; cells of several kinds become texts.

    >>> as_column([1.0, "", 3.0]).to_pylist()
    [1, None, 3]
    >>> as_column([1.0, "-"]).to_pylist()
    ['1', '-']
    """
    values = [None if cell == "" else cell for cell in cells]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {float, int}:
        whole = all(value is None or _is_whole(value) for value in values)
        return pa.array(values, pa.int64() if whole and kinds else None, safe=False)
    if kinds in ({bool}, {datetime.date}, {datetime.datetime}):
        return pa.array(values)
    if kinds == {datetime.date, datetime.datetime}:
        return pa.array(values, pa.timestamp("us"))
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _is_whole(value: float) -> bool:
    return float(value).is_integer() and abs(value) <= EXACT


def _text(cell: Any) -> str:
    if isinstance(cell, float) and _is_whole(cell):
        return str(int(cell))
    return str(cell)


STARTS_FORMULA = r"^[=+\-@\t\r]"
"""Spreadsheets take a cell that begins like this for a formula, quoted or not."""
IS_NUMBER = r"^[+-]?\s*[$€£¥]?\s*(\d[\d.,' _]*([eE][+-]?\d+)?|inf|nan)?\s*[%€$£¥]?$"
"""Signed numbers, as tables write them, and a sign alone, which marks a missing value."""
GUARD = "'"
"""Put before such a cell, it makes a spreadsheet show the text."""
MOST_ROWS = 1_048_576
"""Rows of a sheet, the header included."""


@contextmanager
def writing(path: Path, *, raw_cells: bool = False) -> Iterator[Callable[[Any], None]]:
    """Give a function that writes a table at the end of a file, or of standard output for "-".

    The file appears under its name when all is written, and not at all if anything goes wrong.
    raw_cells : whether texts that a spreadsheet would run as formulas are written as they are.
    """
    if path == STANDARD:
        yield from _to_standard_output(raw_cells)
        return
    kind = named_format(path)
    with replacing(path) as temporary:
        writer = _Writer(kind, str(temporary), raw_cells)
        try:
            yield writer.write
        except BaseException:
            with suppress(OSError):  # a full disk fails again; the first error is the one to tell
                writer.close()
            raise
        writer.close()


def _to_standard_output(raw_cells: bool) -> Iterator[Callable[[Any], None]]:
    writer = _Writer("csv", sys.stdout.buffer, raw_cells)
    try:
        yield writer.write
    finally:
        writer.close()
        sys.stdout.buffer.flush()


class _Writer:
    """A file of one format, opened when the first table tells what its columns are."""

    def __init__(self, kind: str, target: str | IO[bytes], raw_cells: bool) -> None:
        self._kind, self._target = kind, target
        self._guarded = kind in ("csv", "tsv", "xlsx") and not raw_cells
        self._file: Any = None

    def write(self, table: Any) -> None:
        if self._kind == "jsonl":
            with open(str(self._target), "a", encoding="utf-8") as file:
                file.writelines(
                    json.dumps(row, default=str, ensure_ascii=False) + "\n"
                    for row in table.to_pylist()
                )
            return
        if self._guarded:
            table = without_formulas(table)
        if self._file is None:
            self._file = self._open(table.schema)
        self._file.write_table(table.cast(self._file.schema) if self._kind == "parquet" else table)

    def _open(self, schema: Any) -> Any:
        if self._kind == "parquet":
            return optional("pyarrow.parquet", extra="cli").ParquetWriter(self._target, schema)
        if self._kind == "arrow":
            return optional("pyarrow.ipc", extra="cli").new_file(self._target, schema)
        if self._kind == "xlsx":
            return SheetWriter(str(self._target))
        csv = optional("pyarrow.csv", extra="cli")
        delimiter = "\t" if self._kind == "tsv" else ","
        options = csv.WriteOptions(delimiter=delimiter)
        return csv.CSVWriter(self._target, schema, write_options=options)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class SheetWriter:
    """A workbook with one sheet, written row by row."""

    def __init__(self, path: str) -> None:
        writer = optional("xlsxwriter", extra="excel")
        options = {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "default_date_format": "yyyy-mm-dd",
        }
        self._workbook = writer.Workbook(path, options)
        self._sheet = self._workbook.add_worksheet()
        self._times = self._workbook.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._row = 0

    def write_table(self, table: Any) -> None:
        """Write the rows of an Arrow table below those that are there."""
        if self._row == 0:
            self._write_row(table.column_names)
        if self._row + table.num_rows > MOST_ROWS:
            raise InvalidInputError(
                f"An Excel sheet holds {MOST_ROWS - 1:,} rows, and there are more. Write .csv or "
                ".parquet instead."
            )
        columns = [column.to_pylist() for column in table.columns]
        for cells in zip(*columns, strict=True):
            self._write_row(cells)

    def _write_row(self, cells: Sequence[Any]) -> None:
        for position, cell in enumerate(cells):
            self._write(position, cell)
        self._row += 1

    def _write(self, position: int, cell: Any) -> None:
        if cell is None or cell != cell:  # NaN, too, is an empty cell
            return
        exact = isinstance(cell, int) and abs(cell) <= EXACT
        if isinstance(cell, bool):
            self._sheet.write_boolean(self._row, position, cell)
        elif exact or (isinstance(cell, float) and isfinite(cell)):
            self._sheet.write_number(self._row, position, cell)
        elif isinstance(cell, datetime.datetime):
            moment = cell.replace(tzinfo=None)
            self._sheet.write_datetime(self._row, position, moment, self._times)
        elif isinstance(cell, datetime.date):
            self._sheet.write_datetime(self._row, position, cell)
        else:
            self._sheet.write_string(self._row, position, str(cell))

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._workbook.close()


def without_formulas(table: Any) -> Any:
    """Guard the texts of an Arrow table, its column names included, against being run.

    >>> cells = pa.table({"id": ["=1+1", "-5.2", "-", "Eve"], "rent": [-1.0, 2.0, 3.0, 4.0]})
    >>> without_formulas(cells)["id"].to_pylist()
    ["'=1+1", '-5.2', '-', 'Eve']
    """
    columns = [_guarded(column) for column in table.columns]
    return pa.table(columns, names=_guarded(pa.array(table.column_names, pa.string())).to_pylist())


def _guarded(cells: Any) -> Any:
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        return cells
    runs = pc.and_(
        pc.match_substring_regex(cells, STARTS_FORMULA),
        pc.invert(pc.match_substring_regex(cells, IS_NUMBER)),
    )
    if not pc.any(runs).as_py():
        return cells
    guard = pa.scalar(GUARD, cells.type)
    guarded = pc.binary_join_element_wise(guard, cells, pa.scalar("", cells.type))
    return pc.if_else(runs, guarded, cells)
