"""The base class of the records: tables, JSON and data frames."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from math import isfinite
from typing import Any, ClassVar, Literal, Self

import numpy as np

from localma._optional import optional
from localma._types import Json
from localma.formatting import number, printable, short

Label = str | int | float | bool
"""A class."""
Output = Label | list[float] | None
"""A prediction: a number, a list of K numbers, or a label."""
Columns = dict[str, list[Output]]
"""A table: the values of each column by its name."""

LONGEST_CELL = 40


def plain(value: object) -> Json:
    """Convert arrays and records to values that JSON can hold; NaN and infinity become None.

    >>> plain({"risk": np.float64(0.5), "error": float("nan"), "n": np.array([1, 2])})
    {'risk': 0.5, 'error': None, 'n': [1, 2]}
    """
    return _converted(value, _record_as_json)


def _converted(value: Any, convert_record: Callable[[Any], Any]) -> Any:
    """Convert containers and numbers to plain values, and records with a function."""
    if is_dataclass(value):
        return convert_record(value)
    if isinstance(value, Mapping):
        return {str(key): _converted(item, convert_record) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, str):
        return _converted(value.tolist(), convert_record)
    if isinstance(value, list | tuple):
        return [_converted(item, convert_record) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _record_as_json(record: Any) -> Json:
    if isinstance(record, Record):
        return record.to_plain()
    return {field.name: plain(getattr(record, field.name)) for field in fields(record)}


class Record:
    """Base of the frozen dataclasses that `localma.inspection` returns.

    Fields hold plain Python values and other records. A number that does not exist, such as a
    standard error from one row, is None.

    Examples
    --------
    >>> from localma.inspection.observed import Measured
    >>> loss = Measured(0.5, float("nan"))
    >>> loss.to_dict(), Measured.from_dict(loss.to_dict()) == loss
    ({'value': 0.5, 'standard_error': None}, True)
    >>> loss.columns()
    {'field': ['value', 'standard_error'], 'value': ['0.5', 'None']}
    """

    json_names: ClassVar[dict[str, str]] = {}
    """Fields whose name in JSON is not a valid name in Python."""

    def __post_init__(self) -> None:
        for name in self._field_names():
            value = _converted(getattr(self, name), lambda record: record)
            object.__setattr__(self, name, value)

    @classmethod
    def _field_names(cls) -> list[str]:
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Json]:
        """Convert the record to plain values that JSON can hold.

        Returns
        -------
        dict
            The fields by name.
        """
        return {
            self.json_names.get(name, name): plain(getattr(self, name))
            for name in self._field_names()
        }

    def to_plain(self) -> Json:
        """Convert the record as a field of another record.

        Returns
        -------
        dict or list
            The value of the field.
        """
        return self.to_dict()

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> Self:
        """Restore a record from `to_dict`, or from its JSON.

        Parameters
        ----------
        values : dict
            The fields by name.

        Returns
        -------
        Record
            A record of this class.
        """
        hints = typing.get_type_hints(cls)
        return cls(
            **{
                name: _restored(hints[name], values[cls.json_names.get(name, name)])
                for name in cls._field_names()
                if cls.json_names.get(name, name) in values or not hasattr(cls, name)
            }
        )

    def columns(self) -> Columns:
        """Return the record as a table.

        Returns
        -------
        dict of str to list
            The values of each column by its name.
        """
        return self._columns()

    def notes(self) -> list[str]:
        """Return the sentences that belong below the table.

        Returns
        -------
        list of str
            The sentences, such as the verdict.
        """
        return self._notes()

    def _columns(self) -> Columns:
        values = self.to_dict().values()
        return {"field": [*self._field_names()], "value": [str(value) for value in values]}

    def _notes(self) -> list[str]:
        return []

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """Return the table as a data frame.

        Parameters
        ----------
        library : {"pandas", "polars"}
            The package of the data frame, which must be installed.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            The table.
        """
        return optional(library, extra=None).DataFrame(self.columns())

    def __str__(self) -> str:
        columns = _texts(self.columns())
        widths = [max(map(len, [name, *cells])) for name, cells in columns.items()]
        rows = [tuple(columns), *zip(*columns.values(), strict=True)]
        return "\n".join([_line(row, widths) for row in rows] + [*map(printable, self.notes())])

    def _repr_html_(self) -> str:
        columns = _texts(self.columns())
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in zip(*columns.values(), strict=True)
        )
        notes = "".join(f"<p>{escape(printable(note))}</p>" for note in self.notes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


def _restored(hint: Any, value: Any) -> Any:
    """Convert a JSON value to the type of its field."""
    if value is None:
        return None
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in arguments if option is not types.NoneType]
        if len(options) > 1:
            return value
        return _restored(options[0], value)
    if origin is list:
        return [_restored(arguments[0], item) for item in value]
    if origin is tuple:
        return tuple(value)
    if origin is dict:
        return {key: _restored(arguments[1], item) for key, item in value.items()}
    if not is_dataclass(hint) or not isinstance(hint, type):
        return value
    if issubclass(hint, Record):
        if isinstance(value, list):
            value = {hint._field_names()[0]: value}
        return hint.from_dict(value)
    hints = typing.get_type_hints(hint)
    return hint(**{name: _restored(hints[name], item) for name, item in value.items()})


def _texts(columns: Columns) -> dict[str, list[str]]:
    """Convert the cells of a table to text."""
    return {
        printable(name): [printable(_text(value)) for value in values]
        for name, values in columns.items()
    }


def _text(value: Output) -> str:
    if value is None:
        return ""
    return short(number(value), LONGEST_CELL)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join([cells[0].ljust(widths[0]), *aligned[1:]]).rstrip()
