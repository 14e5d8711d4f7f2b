"""Tables that commands read, alone or for a saved model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import pyarrow as pa
from typer import Option

from localma._types import AnyArray, Rows
from localma.candidates import Candidate
from localma.candidates.pool_file import read_pool
from localma.cli.app import OptionGroup, TextFlags, WrongCallError, naming_option, option
from localma.cli.terminal import naming_rows, note, note_remarks
from localma.errors import InvalidInputError, UntrustedFileError
from localma.estimators.regressor import LocalMARegressor
from localma.imports import modules_beside
from localma.model_file import Model, load
from localma.production.tables import (
    count_unfamiliar,
    count_unlike,
    known_columns,
    required_columns,
)
from localma.tables.cells import Known
from localma.tables.files import TableReader, open_table
from localma.tables.roles import check_column, check_weights

Result = TypeVar("Result")
MAX_UNLIKE = 0.1
"""If the share of rows unlike the sample is larger, the commands print a warning."""


def split_names(option: str, texts: Sequence[str] | None, columns: Sequence[str]) -> list[str]:
    """Split column names at commas; the name of a column may itself contain commas.

    >>> split_names("--keep", ["id,city", "rent, net"], ["id", "city", "rent, net"])
    ['id', 'city', 'rent, net']
    """
    names = [
        name.strip()
        for text in texts or ()
        for name in ([text] if text in columns else text.split(","))
        if name.strip()
    ]
    if texts is not None and not names:
        raise WrongCallError(f"{option} names no column; name one, or leave {option} out.")
    return list(dict.fromkeys(names))


def check_unique(reader: TableReader, option: str, name: str | None) -> None:
    """Refuse a column, named by an option, if several columns have its name."""
    if name in reader.repeated:
        raise InvalidInputError(
            f"{option}: {reader.name} has several columns named {name!r}. Rename all but one."
        )


def labelled_rows(table: pa.Table, target: str) -> tuple[pa.Table, Rows]:
    """Select the rows whose target is known, and say how many are left out.

    Returns these rows, at least one, and their indices in the table.
    """
    missing = table[target].is_null(nan_is_null=True).to_numpy()
    if missing.all():
        raise InvalidInputError(
            f"No row has a target: all {len(missing)} values of {target!r} are missing. Name "
            "another column, or fill in the values."
        )
    if missing.any():
        note(f"{missing.sum()} of {len(missing)} rows have no {target!r} and are left out.")
        table = table.filter(~missing)
    return table, np.flatnonzero(~missing)


def open_model(path: Path, *, trust: bool) -> Model:
    """Load a model file. If it is trusted, modules in its folder may be imported."""
    try:
        if not trust:
            return load(path)
        with modules_beside(path.parent):
            return load(path, trust=True)
    except UntrustedFileError as error:
        raise InvalidInputError(
            f"{path} names candidates that run code, or open files or addresses. {error.plain} "
            "Add --trust if you trust it."
        ) from error


def read_models(path: Path, *, trust: bool) -> dict[str, Candidate]:
    """Make the candidates of a TOML file, which the option --models names."""
    try:
        with naming_option("--models: "):
            return read_pool(path, trust=trust)
    except UntrustedFileError as error:
        raise WrongCallError(
            f"--models: {error.plain} Add --trust if you trust the authors of {path.name}."
        ) from error


def note_unfamiliar(counts: Counter[str], n_rows: int) -> None:
    """Print which values are new to the gate, since the support of a row does not name them."""
    for description, count in counts.items():
        note(f"{count:,} of {n_rows:,} rows: {description}.")


def note_unlike(model: Model, n_unlike: int, n_rows: int) -> None:
    """Print that many rows are unlike the labelled sample, if that changes their weights."""
    if n_unlike > MAX_UNLIKE * n_rows and not model.gate_.is_constant:
        note(
            f"{n_unlike:,} of {n_rows:,} rows are unlike the labelled sample: their weights are "
            "close to the global weights."
        )


def note_support(model: Model, X: pa.Table) -> None:
    """Print a warning if many rows are unlike the labelled sample."""
    _, support = model.predict_weights(X, return_support=True)
    note_unlike(model, count_unlike(support), X.num_rows)


def read_rows(
    model_file: Path, table: Path, text: TextFlags, trust: bool
) -> tuple[Model, pa.Table, TableReader]:
    """Load a model, and the columns of a table that it needs."""
    model = open_model(model_file, trust=trust)
    reader = open_table(table, text.options())
    X = read_some(reader, known_columns(model), required_columns(model, reader))
    note_unfamiliar(count_unfamiliar(model, X), X.num_rows)
    return model, X, reader


def read_some(reader: TableReader, known: Known, columns: Sequence[str]) -> pa.Table:
    """Read columns of all rows, at least one."""
    rows = reader.read(known, columns)
    if rows.num_rows == 0:
        raise InvalidInputError(f"{reader.name} has no rows; use a table with at least one.")
    note_remarks(reader)
    return rows


@dataclass(frozen=True)
class LabelFlags(OptionGroup):
    """Options of the commands that evaluate a model on labelled rows."""

    target: Annotated[str | None, option("COLUMN", "The target; default: as in the fit.")] = None
    group: Annotated[
        str | None, option("COLUMN", "The group of each row; default: as in the fit.")
    ] = None
    control: Annotated[bool, Option(help="Whether to fit the control, which takes longest.")] = True


@dataclass(frozen=True)
class LabelledRows:
    """Labelled rows of a file, for a model.

    Attributes
    ----------
    X : the columns that the model needs
    y : (n,) the targets
    rows : (n,) the index of each row in the file
    weight, groups : (n,) or None
    """

    model: Model
    reader: TableReader
    X: pa.Table
    y: AnyArray
    rows: Rows
    weight: AnyArray | None
    groups: AnyArray | None

    def examine(self, function: Callable[..., Result], *, control: bool, seed: int) -> Result:
        """Call a function of `localma.inspection` on these rows; errors name rows of the file."""
        with naming_rows(self.reader, self.rows):
            result = function(
                self.model,
                self.X,
                self.y,
                sample_weight=self.weight,
                groups=self.groups,
                control=control,
                random_state=seed,
            )
        note_support(self.model, self.X)
        return result


def read_labelled(
    model_file: Path, table: Path, labels: LabelFlags, text: TextFlags, trust: bool
) -> LabelledRows:
    """Load a model and the labelled rows of a table."""
    model = open_model(model_file, trust=trust)
    return read_labelled_rows(model, open_table(table, text.options()), labels)


def read_labelled_rows(
    model: Model,
    reader: TableReader,
    labels: LabelFlags,
    further: Mapping[str, pa.DataType | None] | None = None,
) -> LabelledRows:
    """Read the labelled rows of a table.

    further : other columns than those of the model, with their types; None to detect the type.
    """
    further = further or {}
    target = labels.target or model.notes_.get("target")
    if target is None:
        raise WrongCallError("--target: the model file does not name the target; add --target.")
    check_column("target", target, reader.names, reader.name)
    check_unique(reader, "--target", target)
    weight = _weight_column(model, reader)
    group = _group_column(model, reader, labels.group)
    columns = list(dict.fromkeys([*required_columns(model, reader), *further]))
    wanted = [name for name in dict.fromkeys([*columns, target, weight, group]) if name is not None]
    known = known_columns(model, target, group)
    types = {name: kind for name, kind in further.items() if kind is not None}
    table_rows = read_some(reader, replace(known, types={**known.types, **types}), wanted)
    sample, rows = labelled_rows(table_rows, target)
    _check_target(model, sample[target], target, reader)
    X = sample.select(columns)
    note_unfamiliar(count_unfamiliar(model, X), X.num_rows)
    weights = groups = None
    if weight is not None:
        weights = check_weights(sample[weight], weight)
    if group is not None:
        groups = _groups(sample[group], group)
    return LabelledRows(model, reader, X, sample[target].to_numpy(), rows, weights, groups)


def _check_target(model: Model, target: pa.ChunkedArray, name: str, reader: TableReader) -> None:
    """Refuse text instead of numbers, and classes that the model does not have."""
    if isinstance(model, LocalMARegressor):
        if target.to_numpy().dtype.kind not in "biuf":
            raise InvalidInputError(
                f"The target {name!r} must hold numbers, as when the model was fitted; in "
                f"{reader.name} it has the type {target.type}."
            )
        return
    classes = {str(label) for label in model.classes_.tolist()}
    unknown = [label for label in target.unique().to_pylist() if str(label) not in classes]
    if unknown:
        raise InvalidInputError(
            f"The target {name!r} of {reader.name} holds {unknown[0]!r}, which is not one of the "
            f"model's classes {', '.join(sorted(classes))}. Leave those rows out, or fit again."
        )


def _weight_column(model: Model, reader: TableReader) -> str | None:
    """Name the column of weights, if the model was fitted with one."""
    weight: str | None = model.notes_.get("weight")
    if weight is not None and weight not in reader.names:
        raise InvalidInputError(
            f"The model was fitted with the row weights in the column {weight!r}, and is evaluated "
            f"with them. {reader.name} has no such column; add it."
        )
    return weight


def _group_column(model: Model, reader: TableReader, requested: str | None) -> str | None:
    """Name the column of groups: the requested one, or that of the fit if the table has it."""
    if requested is not None:
        check_column("group", requested, reader.names, reader.name)
    fitted: str | None = model.notes_.get("group")
    if requested is None and fitted is not None and fitted not in reader.names:
        note(
            f"The model was fitted with groups, and this table has no column {fitted!r}: standard "
            "errors treat its rows as independent. Use --group to name another column."
        )
        return None
    return requested or fitted


def _groups(column: pa.ChunkedArray, name: str) -> AnyArray:
    if column.null_count:
        raise InvalidInputError(
            f"Every row must belong to a group; {column.null_count} rows have no value in "
            f"{name!r}. Fill it in, or use --group to name another column."
        )
    groups: AnyArray = column.to_numpy()
    return groups
