"""What commands ask of a table: its columns, its labelled rows, their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.cli.app import wrong_call
from localma.cli.showing import note
from localma.errors import InvalidInputError
from localma.tables.files import TableReader
from localma.tables.frames import missing_column


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


def split_names(option: str, names: Sequence[str] | None, columns: Sequence[str]) -> list[str]:
    """Columns that an option names, with commas between; a column's own name may have commas.

    >>> split_names("--keep", ["id,city", "rent, net"], ["id", "city", "rent, net"])
    ['id', 'city', 'rent, net']
    """
    named = [
        name.strip()
        for text in names or ()
        for name in ([text] if text in columns else text.split(","))
        if name.strip()
    ]
    if names is not None and not named:
        raise wrong_call(f"{option} names no column; name one, or leave {option} out.")
    return list(dict.fromkeys(named))


def no_column(name: str, names: Sequence[str], file: str | None = None) -> str:
    """Say that a table, out of a file, has no such column, with the nearest ones that it has.

    >>> no_column("rents", ["area", "rent"], "new.csv")
    "the table new.csv has no column 'rents'; did you mean 'rent'?"
    """
    text = str(missing_column(name, names)).removeprefix("X ")
    return f"the table {text}" if file is None else f"the table {file} {text}"


def check_columns(reader: TableReader, wanted: Sequence[str]) -> None:
    """Refuse a file that lacks a column which is needed."""
    for name in wanted:
        if name not in reader.names:
            text = no_column(name, reader.names, reader.name)
            raise InvalidInputError(text[0].upper() + text[1:])


def check_once(reader: TableReader, option: str, name: str | None) -> None:
    """Refuse a column, named by an option, whose name stands over several columns."""
    if name in reader.repeated:
        raise InvalidInputError(
            f"{option}: {reader.name} has several columns named {name!r}. Rename all but one."
        )
