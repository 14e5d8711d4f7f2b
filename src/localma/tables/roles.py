"""Roles of columns: target, predictions, inputs of the gate, weight, group and time order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Self, TypeAlias

import narwhals as nw
import numpy as np
from narwhals.typing import IntoDataFrame, IntoSeries
from sklearn.model_selection import TimeSeriesSplit

from localma._types import AnyArray, Rows
from localma.errors import InvalidInputError
from localma.tables.encoder import TableEncoder
from localma.tables.frames import missing_column

Label: TypeAlias = str | int | float | bool
"""A class."""
ClassGroups: TypeAlias = dict[str, dict[Label, str]]
"""Columns by model and class."""

TASKS = ("auto", "regression", "classification")
CLASS_LOSSES = ("cross_entropy", "brier")
SEPARATORS = "_-.: "
"""Characters between the name of a model and the name of a class."""
MAX_NUMERIC_CLASSES = 20
"""A target with more distinct whole numbers is not mistaken for classes."""

MIN_ORDERED_ROWS = 20
"""With fewer rows, numbers may be in order by chance."""

FOLLOWS_ROWS = "its values follow the order of the rows, so later rows would lie outside the sample"


class RoleError(InvalidInputError):
    """A table cannot be used in the requested way.

    Parameters
    ----------
    parameter : str
        The parameter that is wrong, such as "target". The message begins with it.
    message : str
        What is wrong, the value received, and what to do.
    cell : str, optional
        A cell that may stand for a missing value.

    Examples
    --------
    >>> try:
    ...     Roles("rent", ["pred_*"]).resolve(["area", "pred_a"])
    ... except RoleError as error:
    ...     print(error)
    target: the table has no column 'rent'; did you mean 'area'?
    """

    def __init__(self, parameter: str, message: str, *, cell: str | None = None) -> None:
        super().__init__(f"{parameter}: {message}")
        self.parameter, self.cell = parameter, cell


@dataclass(frozen=True)
class Roles:
    """The role of each column of a table.

    Parameters
    ----------
    target : str
        The column to predict.
    predictions : sequence of str
        Columns that hold predictions, or globs such as ``"pred_*"``.
    features : sequence of str, optional
        Columns that the gate sees. By default, all columns without another role.
    weight, group, time : str, optional
        Columns with the weight of each row, the group it belongs to, and its time.

    Examples
    --------
    >>> columns = ["area", "pred_a", "pred_b", "rent"]
    >>> roles = Roles("rent", ["pred_*"]).resolve(columns)
    >>> roles.predictions, roles.gate_columns(columns)
    (('pred_a', 'pred_b'), ['area'])
    """

    target: str
    predictions: Sequence[str] = ()
    features: Sequence[str] | None = None
    weight: str | None = None
    group: str | None = None
    time: str | None = None

    def resolve(self, columns: Sequence[str]) -> Self:
        """Check the roles against the columns of a table and expand globs.

        Parameters
        ----------
        columns : sequence of str
            The names of the columns of the table.

        Returns
        -------
        Roles
            The same roles, with the prediction columns by name, in the order of the table.

        Raises
        ------
        RoleError
            If a column is not in the table, or has two roles that exclude each other.
        """
        for parameter in ("target", "weight", "group", "time"):
            name: str | None = getattr(self, parameter)
            if name is not None:
                check_column(parameter, name, columns)
        if self.time is not None and self.group is not None:
            raise RoleError("time", "time and group cannot be combined; leave one out.")
        features = self.features or ()
        for name in features:
            check_column("features", name, columns)
        predictions = self._match_predictions(columns)
        overlap = sorted(set(features) & set(predictions))
        if overlap:
            raise RoleError(
                "features",
                f"the gate does not see predictions, so {overlap} cannot also be features. Name "
                "these columns once.",
            )
        # A glob skips the target. Its exact name must be a mistake.
        if self.target in (*features, *self.predictions):
            raise RoleError(
                "target",
                f"{self.target!r} is the column to predict. It can be neither a feature nor a "
                "prediction.",
            )
        return replace(self, predictions=predictions)

    def gate_columns(self, columns: Sequence[str]) -> list[str]:
        """List the columns that the gate may see.

        Parameters
        ----------
        columns : sequence of str
            The names of the columns of the table.

        Returns
        -------
        list of str
            `features`, or all columns without another role.
        """
        if self.features is not None:
            return list(self.features)
        taken = {self.target, self.weight, self.group, self.time, *self.predictions}
        return [name for name in columns if name not in taken]

    def _match_predictions(self, columns: Sequence[str]) -> tuple[str, ...]:
        matched: set[str] = set()
        for pattern in self.predictions:
            matches = [name for name in columns if name == pattern or fnmatchcase(name, pattern)]
            if not matches:
                check_column("predictions", pattern, columns)
            matched.update(matches)
        return tuple(name for name in columns if name in matched and name != self.target)


def check_column(parameter: str, name: str, columns: Sequence[str], file: str = "") -> None:
    """Refuse a column that a table does not have, and suggest similar ones.

    Parameters
    ----------
    parameter : str
        The parameter that names the column.
    name : str
        The name of the column.
    columns : sequence of str
        The columns of the table.
    file : str
        The name of the file, if the table is in one.

    Examples
    --------
    >>> check_column("target", "rents", ["area", "rent"], "new.csv")
    Traceback (most recent call last):
    localma.tables.roles.RoleError: target: the table new.csv has no column 'rents'; did you ...
    """
    if name not in columns:
        reason = missing_column(name, columns).plain.removeprefix("X ")
        raise RoleError(parameter, " ".join(filter(None, ["the table", file, reason])))


class FittedEncoder(TableEncoder):
    """A `TableEncoder` that is already fitted: neither `clone` nor `fit` changes it.

    Parameters
    ----------
    features : list of str, optional
        The columns that are encoded.

    Examples
    --------
    >>> import polars
    >>> table = polars.DataFrame({"area": [50.0, 60.0, 80.0]})
    >>> encoder = FittedEncoder.of(TableEncoder().fit(table), ["area"])
    >>> encoder.fit(table[:2]) is encoder
    True
    """

    @classmethod
    def of(cls, encoder: TableEncoder, columns: Sequence[str]) -> Self:
        """Keep some columns of a fitted encoder.

        Parameters
        ----------
        encoder : TableEncoder
            The fitted encoder.
        columns : sequence of str
            The columns to keep.

        Returns
        -------
        FittedEncoder
            The encoder of these columns.
        """
        fitted = cls(list(columns))
        fitted.columns_ = [column for column in encoder.columns_ if column.name in columns]
        fitted.left_out_ = {}
        fitted._set_inputs(columns)
        return fitted

    def fit(self, X: IntoDataFrame, y: object = None) -> Self:
        """Return the encoder as it is.

        Parameters
        ----------
        X : data frame
            Not used.
        y : array-like, optional
            Not used.

        Returns
        -------
        FittedEncoder
            The encoder itself.
        """
        return self

    def __sklearn_clone__(self) -> Self:
        return self


def gate_encoder(table: IntoDataFrame, roles: Roles) -> tuple[FittedEncoder, dict[str, str]]:
    """Encode the columns of a table that tell the gate something about new rows.

    Constants, row numbers and texts that are nearly all different are left out. Without
    `roles.features`, so are numbers that follow the order of the rows, unless all columns do.

    Parameters
    ----------
    table : data frame
        The labelled sample.
    roles : Roles
        The roles of its columns, resolved.

    Returns
    -------
    encoder : FittedEncoder
        For `gate_features`. It is not fitted again.
    left_out : dict of str to str
        The columns that the gate does not see, and why.

    Examples
    --------
    >>> import polars
    >>> table = polars.DataFrame({"area": [50, 60, 80], "land": ["cn"] * 3, "rent": [7, 9, 8]})
    >>> encoder, left_out = gate_encoder(table, Roles("rent"))
    >>> encoder.features, left_out
    (['area'], {'land': 'all values are the same'})
    """
    frame = nw.from_native(table, eager_only=True)
    encoder = TableEncoder(roles.gate_columns(frame.columns)).fit(table)
    names = [column.name for column in encoder.columns_]
    left_out = dict(encoder.left_out_)
    ordered = columns_in_row_order(table, names)
    if roles.features is None and len(ordered) < len(names):
        names = [name for name in names if name not in ordered]
        left_out |= dict.fromkeys(ordered, FOLLOWS_ROWS)
    return FittedEncoder.of(encoder, names), left_out


def columns_in_row_order(table: IntoDataFrame, columns: Sequence[str]) -> list[str]:
    """List the numeric columns that rise or fall from row to row, such as a year or an id.

    Parameters
    ----------
    table : data frame
        The labelled sample.
    columns : sequence of str
        The columns to look at.

    Returns
    -------
    list of str
        Those of `columns` that follow the order of the rows.

    Examples
    --------
    >>> import polars
    >>> year = [2015 + row // 10 for row in range(30)]
    >>> table = polars.DataFrame({"year": year, "area": [row % 7 for row in range(30)]})
    >>> columns_in_row_order(table, ["year", "area"])
    ['year']
    """
    frame = nw.from_native(table, eager_only=True)
    numeric = [name for name in columns if frame[name].dtype.is_numeric()]
    return [name for name in numeric if _is_in_order(frame[name].drop_nulls().to_numpy())]


def _is_in_order(column: AnyArray) -> bool:
    values = np.asarray(column, dtype=np.float64)
    steps = np.diff(values[np.isfinite(values)])
    # If there are only two values, later rows will have one of them.
    if len(steps) < MIN_ORDERED_ROWS - 1 or np.count_nonzero(steps) < 2:
        return False
    return bool((steps >= 0).all() or (steps <= 0).all())


@dataclass(frozen=True)
class ClassColumns:
    """The prediction columns of one classifier.

    Parameters
    ----------
    columns : tuple of str
        One column per class, or one column with the probability of the last class.
    classes : list
        The classes, in the order of the columns.

    Examples
    --------
    >>> columns = ClassColumns(("a_no", "a_yes"), ["no", "yes"])
    >>> dict(zip(columns.classes, columns.columns, strict=True))
    {'no': 'a_no', 'yes': 'a_yes'}
    """

    columns: tuple[str, ...]
    classes: list[Label]


def class_columns(
    columns: Sequence[str], classes: Sequence[Label], positive: str | None = None
) -> dict[str, ClassColumns]:
    """Group prediction columns by classifier.

    Columns named ``model_class`` for each class belong to one classifier. With two classes, a
    column may also hold the probability of a single class: of `positive`, or of the class that
    the column is named after, or of the second class.

    Parameters
    ----------
    columns : sequence of str
        The prediction columns.
    classes : sequence
        All classes, in order.
    positive : str, optional
        The class whose probability single columns hold, as text.

    Returns
    -------
    dict of str to ClassColumns
        The columns of each classifier, by its name.

    Examples
    --------
    >>> groups = class_columns(["a_no", "a_yes", "b_no", "b_yes"], ["no", "yes"])
    >>> groups["a"]
    ClassColumns(columns=('a_no', 'a_yes'), classes=['no', 'yes'])
    """
    labels = list(classes)
    last = _positive_class(labels, positive)
    groups = _group_by_class(columns, labels)
    if len(labels) != 2 and not _are_complete(groups, labels):
        raise RoleError("predictions", _missing_class_columns(columns, labels))
    if groups is None:
        return {name: ClassColumns((name,), _ending_with(last, labels)) for name in columns}
    entries: dict[str, ClassColumns] = {}
    for model, group in groups.items():
        if len(group) == len(labels):
            entries[model] = ClassColumns(tuple(group[label] for label in labels), labels)
            continue
        for label, name in group.items():
            if positive is not None:
                label = last
            entries[name] = ClassColumns((name,), _ending_with(label, labels))
    return entries


def _missing_class_columns(columns: Sequence[str], classes: Sequence[Label]) -> str:
    listed = ", ".join(repr(label) for label in classes[:5])
    if len(classes) > 5:
        listed += ", ..."
    return (
        f"the target has the {len(classes)} classes {listed}. Each model needs one column per "
        f"class, named model_class, such as {f'north_{classes[0]}'!r}; received {list(columns)}. "
        "If the target is a number, set the task to regression."
    )


def _ending_with(last: Label, classes: Sequence[Label]) -> list[Label]:
    return sorted(classes, key=lambda label: label == last)


def _positive_class(classes: Sequence[Label], positive: str | None) -> Label:
    if positive is None:
        return classes[-1]
    by_text = {str(label): label for label in classes}
    if isinstance(classes[0], bool):
        by_text |= {text.lower(): label for text, label in by_text.items()}
    if positive not in by_text:
        raise RoleError("positive", f"must be one of {list(classes)}; received {positive!r}.")
    return by_text[positive]


def _group_by_class(columns: Sequence[str], classes: Sequence[Label]) -> ClassGroups | None:
    """Group columns named model_class, or model.class and the like; None if one is not.

    If a model lacks a class, a separator is required: a column "casino" is not named after the
    class "no".
    """
    groups: ClassGroups = {}
    for name in columns:
        suffixes = [x for x in classes if name.endswith(str(x)) and name != str(x)]
        if not suffixes:
            return None
        label = max(suffixes, key=lambda x: len(str(x)))
        model = name.removesuffix(str(label)).rstrip(SEPARATORS)
        groups.setdefault(model, {})[label] = name
    separated = all(
        name.removesuffix(str(label)).endswith(tuple(SEPARATORS))
        for group in groups.values()
        if len(group) != len(classes)
        for label, name in group.items()
    )
    return groups if separated else None


def _are_complete(groups: ClassGroups | None, classes: Sequence[Label]) -> bool:
    return groups is not None and all(len(group) == len(classes) for group in groups.values())


def target_classes(
    target: IntoSeries,
    name: str = "y",
    *,
    task: str = "auto",
    loss: str | None = None,
    positive: str | None = None,
    predictions: Sequence[str] = (),
) -> AnyArray | None:
    """Choose between classification and regression, and list the classes.

    Text and truth values are classes. Numbers are classes only if the task, the loss or the
    positive class says so.

    Parameters
    ----------
    target : series
        The values of the target, none missing.
    name : str
        The name of the target, for error messages.
    task : {"auto", "regression", "classification"}
    loss : str, optional
        The name of the loss, if you have chosen one.
    positive : str, optional
        The positive class of two, if you have chosen one.
    predictions : sequence of str
        The names of the prediction columns.

    Returns
    -------
    array of shape (n_classes,) or None
        The classes in order; None for a regression.

    Raises
    ------
    RoleError
        If numbers may be classes, or if a few cells of a numeric target hold text.

    Examples
    --------
    >>> import polars
    >>> target_classes(polars.Series(["yes", "no", "yes"])).tolist()
    ['no', 'yes']
    >>> target_classes(polars.Series([1.5, 2.5, 4.0])) is None
    True
    """
    if task not in TASKS:
        raise RoleError("task", f"must be one of {', '.join(TASKS)}; received {task!r}.")
    series = nw.from_native(target, series_only=True)
    is_text = series.dtype in (nw.String, nw.Categorical, nw.Enum)
    if task == "regression":
        if is_text:
            raise RoleError("task", f"a regression needs numbers, and {name!r} holds text.")
        if positive is not None:
            raise RoleError("positive", "a regression has no classes; leave it out.")
        return None
    if is_text and task == "auto":
        _refuse_stray_text([str(value) for value in series.to_list()], name)
    classes = np.unique(series.to_numpy())
    if is_text or series.dtype == nw.Boolean or task == "classification" or loss in CLASS_LOSSES:
        return classes
    if positive is not None and len(classes) == 2:
        return classes
    if loss is None and _could_be_classes(classes.tolist(), predictions):
        raise RoleError("task", _ambiguous_task(name, classes.tolist()))
    if positive is not None:
        raise RoleError("positive", f"names a class, but {name!r} holds numbers; leave it out.")
    return None


def _could_be_classes(values: list[float], columns: Sequence[str]) -> bool:
    """Whether numbers may be classes: there are two, or the columns are named after them."""
    if len(values) == 2:
        return True
    if not 2 < len(values) <= MAX_NUMERIC_CLASSES:
        return False
    is_whole = all(float(value).is_integer() for value in values)
    return is_whole and _are_complete(_group_by_class(columns, values), values)


def _ambiguous_task(name: str, values: list[float]) -> str:
    listed = " and ".join(f"{value:g}" for value in values)
    meaning = f"the predictions are probabilities of {values[-1]:g}"
    if len(values) > 2:
        listed = f"{values[0]:g}, {values[1]:g}, ..., {values[-1]:g}"
        meaning = "the predictions are one probability per class"
    return (
        f"the target {name!r} has only the values {listed}. Set the task to classification if "
        f"they are classes: {meaning}, and the default loss is cross_entropy. Set the task to "
        "regression if they are quantities: the predictions are in the same unit, and the default "
        "loss is squared_error."
    )


def _refuse_stray_text(values: Sequence[str], name: str) -> None:
    """Refuse a target that is a number in most rows: the other cells are mistakes."""
    texts = [value for value in values if not _is_number(value)]
    if texts and len(texts) < len(values) / 2:
        raise RoleError(
            "target",
            f"{name!r} holds numbers, except in {len(texts)} of {len(values)} cells, such as "
            f"{texts[0]!r}. Correct these cells or leave them empty. If all values are classes, "
            "set the task to classification.",
            cell=texts[0],
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_weights(weight: IntoSeries, name: str = "weight") -> AnyArray:
    """Check the weights of rows: numbers, zero or more, and not all zero.

    Parameters
    ----------
    weight : series
        The weight of each row.
    name : str
        The name of the column, for the error message.

    Returns
    -------
    array of shape (n,)
        The weights.

    Examples
    --------
    >>> import polars
    >>> check_weights(polars.Series([1.0, 0.0, 2.5])).tolist()
    [1.0, 0.0, 2.5]
    """
    values = nw.from_native(weight, series_only=True).to_numpy()
    if values.dtype.kind not in "biuf" or not (values >= 0).all() or not values.any():
        raise RoleError(
            "weight",
            "weights must be numbers, zero or more, in every row, and not all zero. The column "
            f"{name!r} has other values. Fill in missing weights, or leave those rows out.",
        )
    return values


def time_order(times: IntoSeries, name: str = "time") -> Rows:
    """Order rows by time; rows of the same time keep their order.

    Parameters
    ----------
    times : series
        Dates, times or numbers, none missing.
    name : str
        The name of the column, for error messages.

    Returns
    -------
    array of shape (n,)
        The indices of the rows, the earliest first.

    Examples
    --------
    >>> import polars
    >>> time_order(polars.Series([2024, 2022, 2023])).tolist()
    [1, 2, 0]
    """
    series = nw.from_native(times, series_only=True)
    if not (series.dtype.is_temporal() or series.dtype.is_numeric()):
        raise RoleError(
            "time",
            f"times must be dates such as 2024-05-31, or numbers. The column {name!r} holds other "
            f"values, such as {str(series.drop_nulls()[0])!r}. Convert them to one of these.",
        )
    missing = series.null_count()
    if missing:
        raise RoleError(
            "time",
            f"every row needs a time, and {missing} have none in {name!r}. Fill in these cells, "
            "or leave those rows out.",
        )
    return np.argsort(series.to_numpy(), kind="stable")


def later_folds(times: IntoSeries, folds: int) -> list[tuple[Rows, Rows]]:
    """Split rows so that each fold is tested on later times; equal times stay together.

    Parameters
    ----------
    times : series
        The time of each row.
    folds : int
        The number of folds. There must be more distinct times than folds.

    Returns
    -------
    list of (train, test)
        Indices of rows, for the parameter `cv` of the estimators.

    Examples
    --------
    >>> import polars
    >>> folds = later_folds(polars.Series([1, 1, 2, 3, 3]), 2)
    >>> [(train.tolist(), test.tolist()) for train, test in folds]
    [([0, 1], [2]), ([0, 1, 2], [3, 4])]
    """
    distinct, index = np.unique(
        nw.from_native(times, series_only=True).to_numpy(), return_inverse=True
    )
    if folds >= len(distinct):
        raise RoleError(
            "folds",
            f"{folds} folds need at least {folds + 1} distinct times; received {len(distinct)}. "
            "Choose fewer folds.",
        )
    return [
        (np.flatnonzero(np.isin(index, train)), np.flatnonzero(np.isin(index, test)))
        for train, test in TimeSeriesSplit(folds).split(distinct)
    ]
