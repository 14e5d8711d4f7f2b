"""Cells that a spreadsheet would run as formulas, and how they are kept from running."""

from __future__ import annotations

from typing import Any

from localma._optional import optional

pa: Any = optional("pyarrow", extra="cli")
pc: Any = optional("pyarrow.compute", extra="cli")

STARTS_FORMULA = r"^[=+\-@\t\r]"
"""Spreadsheets take a cell that begins like this for a formula, quoted or not."""
IS_NUMBER = r"^[+-]?\s*[$€£¥]?\s*(\d[\d.,' _]*([eE][+-]?\d+)?|inf|nan)?\s*[%€$£¥]?$"
"""Signed numbers, as tables write them, and a sign alone, which marks a missing value."""
GUARD = "'"
"""Put before such a cell, it makes a spreadsheet show the text."""


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
