"""What readers of tables say: remarks on what they did, and errors that a setting may avoid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localma.errors import InvalidInputError

Setting = Literal["separator", "encoding", "missing"]
"""A field of `TextOptions`."""


@dataclass(frozen=True)
class Remark:
    """What was done with a column or a file, in sentences, and what would change it.

    stray : a cell that may stand for a missing value; other_decimal : the mark that would have
    given other numbers.
    """

    text: str
    stray: str | None = None
    other_decimal: str | None = None


class TableFileError(InvalidInputError):
    """A file cannot be read as a table the way it is written.

    setting : the field of `TextOptions` that may help; column, value : the cell that it is about,
    if it is about one.
    """

    def __init__(
        self, message: str, *, setting: Setting, column: str | None = None, value: str = ""
    ) -> None:
        super().__init__(message)
        self.setting, self.column, self.value = setting, column, value
