"""Excel workbooks: the first sheet with a table is read, a new one is written."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from localma._optional import optional
from localma.errors import InvalidInputError
from localma.tables.remarks import Remark
from localma.tables.unpacking import most_unpacked, out_of_proportion

pa: Any = optional("pyarrow", extra="cli")

MOST_ROWS = 1_048_576
"""Rows of a sheet, the header included."""
EXACT = 2**53
"""Whole numbers beyond are not exact in a workbook; they are written as text."""


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
