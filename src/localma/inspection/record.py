"""Typed records that print as a table and become a dict, JSON or a data frame."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from math import isfinite
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from localma._optional import optional
from localma.wording import number, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Label: TypeAlias = str | int | float | bool
"""A class."""
Output: TypeAlias = Label | list[float] | None
"""A prediction: a number, a list of K numbers, or a label."""
Columns: TypeAlias = "dict[str, list[Output]]"
"""A table: the values of each column by its name."""

LONGEST_COLUMN = 40


def plain(value: Any) -> Any:
    """Turn arrays and records into what JSON can hold; a number that is not finite is None.

    >>> plain({"risk": np.float64(0.5), "error": float("nan"), "n": np.array([1, 2])})
    {'risk': 0.5, 'error': None, 'n': [1, 2]}
    """
    value = _settled(value)
    if isinstance(value, Record):
        return value.to_plain()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _settled(value: Any) -> Any:
    """Plain values, in which records stay records."""
    if value is None or isinstance(value, bool | int | str) or is_dataclass(value):
        return value
    if isinstance(value, Mapping):
        return {str(key): _settled(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _settled(value.tolist())
    if isinstance(value, list | tuple):
        return [_settled(item) for item in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return str(value)


class Record:
    """Base of the frozen dataclasses that `localma.inspection` returns.

    Fields hold plain Python values and other records. A number that does not exist, such as a
    standard error from one row, is None.
    """

    json_names: ClassVar[dict[str, str]] = {}
    """Fields whose name in JSON is not a name in Python."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, _settled(getattr(self, field.name)))

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as plain values that JSON can hold."""
        return {
            self.json_names.get(field.name, field.name): plain(getattr(self, field.name))
            for field in fields(self)  # type: ignore[arg-type]
        }

    def to_plain(self) -> Any:
        """The value that stands for this record inside the dict of another."""
        return self.to_dict()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the record again from `to_dict`."""
        hints = get_type_hints(cls)
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(
            **{name: _built(hints[name], values[cls.json_names.get(name, name)]) for name in names}
        )

    def columns(self) -> Columns:
        """The record as a table."""
        return {
            "field": [str(field.name) for field in fields(self)],  # type: ignore[arg-type]
            "value": [str(value) for value in self.to_dict().values()],
        }

    def notes(self) -> list[str]:
        """Sentences that stand below the table."""
        return []

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """The table of the record as a data frame of pandas or polars."""
        return optional(library, extra=None).DataFrame(self.columns())

    def __str__(self) -> str:
        columns = _texts(self.columns())
        widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
        rows = zip(*columns.values(), strict=True)
        lines = [_line(row, widths.values()) for row in [tuple(columns), *rows]]
        return "\n".join([*lines, *map(printable, self.notes())])

    def _repr_html_(self) -> str:
        columns = _texts(self.columns())
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in zip(*columns.values(), strict=True)
        )
        notes = "".join(f"<p>{escape(printable(note))}</p>" for note in self.notes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}"


class Display(Record):
    """Base of the records that can be drawn with matplotlib."""

    if TYPE_CHECKING:  # so that `get_type_hints` does not need matplotlib
        ax_: Axes
        figure_: Figure

    def _draw_on(self, ax: Axes) -> None:
        """Remember the axes, as the displays of scikit-learn do."""
        object.__setattr__(self, "ax_", ax)
        object.__setattr__(self, "figure_", ax.figure)


def _built(hint: Any, value: Any) -> Any:
    """A value of JSON as the type of its field."""
    if value is None:
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        present = [option for option in arguments if option is not types.NoneType]
        return _built(present[0], value) if len(present) == 1 else value
    if origin is list:
        return [_built(arguments[0], item) for item in value]
    if origin is tuple:
        return tuple(value)
    if origin is dict:
        return {key: _built(arguments[1], item) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        if isinstance(value, list):  # a record with one field, which is a list
            value = {fields(hint)[0].name: value}  # type: ignore[arg-type]
        return hint.from_dict(value)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{name: _built(hints[name], item) for name, item in value.items()})
    return value


def _texts(columns: Columns) -> dict[str, list[str]]:
    """The cells of a table as text."""
    return {
        printable(name): [printable(_text(value)) for value in values]
        for name, values in columns.items()
    }


def _text(value: Output) -> str:
    if value is None:
        return ""
    words = number(value)
    return words if len(words) <= LONGEST_COLUMN else f"{words[: LONGEST_COLUMN - 1]}…"


def _line(cells: Sequence[str], widths: Any) -> str:
    first, *others = [
        cell.ljust(width) if position == 0 else cell.rjust(width)
        for position, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *others]).rstrip()
