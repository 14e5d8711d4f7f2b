"""Tables written to files, block by block; no cell runs as a formula."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import IO, Any

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.storage.whole_files import replacing
from localma.tables.formats import STANDARD, named_format

pa: Any = optional("pyarrow", extra="cli")
pc: Any = optional("pyarrow.compute", extra="cli")

STARTS_FORMULA = r"^[=+\-@\t\r]"
"""Spreadsheets take a cell that begins like this for a formula, quoted or not."""
IS_NUMBER = r"^[+-]?\s*[$€£¥]?\s*(\d[\d.,' _]*([eE][+-]?\d+)?|inf|nan)?\s*[%€$£¥]?$"
"""Signed numbers, as tables write them, and a sign alone, which marks a missing value."""
GUARD = "'"
"""Put before such a cell, it makes a spreadsheet show the text."""
MOST_ROWS = 1_048_576
"""Rows of a sheet, the header included."""
EXACT = 2**53
"""Whole numbers beyond are not exact in a workbook; they are written as text."""


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
