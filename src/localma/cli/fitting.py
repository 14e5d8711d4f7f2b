"""``localma fit``: from a labelled table with a column per model to a saved model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.candidates import Candidate, Column
from localma.cli.app import (
    AsJson,
    Decimal,
    Encoding,
    Na,
    Seed,
    Sep,
    TableFile,
    Trust,
    check_out,
    text_options,
    typer,
    wrong_call,
)
from localma.cli.messages import plain_words, say_remarks, speaking_of_rows
from localma.cli.pools import read_pool
from localma.cli.roles import Roles, column_candidates
from localma.cli.showing import note_cautions, print_json, say, share, show_table
from localma.cli.tables import check_once, labelled, no_column, split_names, weights_of
from localma.cli.tasks import check_loss, classes_of
from localma.cli.times import FOLLOWS_ROWS, check_times, in_row_order, later_folds
from localma.errors import CandidateError, InvalidInputError
from localma.estimators import GATES, LocalMAClassifier, LocalMARegressor
from localma.folds import DEFAULT_FOLDS
from localma.inspection.display import plain
from localma.losses import Loss
from localma.model_file import Model, save
from localma.tables.cells import Known
from localma.tables.encoder import TableEncoder
from localma.tables.files import TableReader, open_table
from localma.tables.frames import positions_of
from localma.tables.sniffing import TableFileError

Rows = NDArray[np.intp]
CLASSES_SHOWN = 5


def fit(
    train: TableFile,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[Path, typer.Option(help="The file to write, such as rent.localma.")],
    predictions: Annotated[
        list[str] | None,
        typer.Option(help="Columns of predictions, commas between; globs such as 'pred_*'."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A TOML file of models to run."),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(help="Columns that the gate sees, commas between; default: all others."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="What to minimise; see the guide.")] = None,
    gate: Annotated[str, typer.Option(help=f"One of {', '.join(GATES)}.")] = "auto",
    group: Annotated[
        str | None, typer.Option(help="Column that says which rows belong together.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Judge on rows that come later.")] = None,
    weight: Annotated[str | None, typer.Option(help="Weight of each row, or exposure.")] = None,
    positive: Annotated[
        str | None, typer.Option(help="The class whose probability the columns hold.")
    ] = None,
    task: Annotated[
        str, typer.Option(help="regression, classification, or auto: by the target.")
    ] = "auto",
    folds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Folds that judge the weights; default: 5, one where rows abound."
        ),
    ] = None,
    sep: Sep = None,
    encoding: Encoding = None,
    na: Na = None,
    decimal: Decimal = None,
    seed: Seed = 0,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Learn how far to trust each model, row by row.

    Example: localma fit train.csv --target rent --predictions 'pred_*' --out rent.localma
    """
    if (predictions is None) == (models is None):
        raise wrong_call("Give the models as columns, by --predictions, or to run, by --models.")
    if time is not None and group is not None:
        raise wrong_call("Rows are judged by --time or by --group, not by both; leave one out.")
    if gate not in GATES:
        raise wrong_call(f"--gate must be one of {', '.join(GATES)}; received {gate!r}.")
    check_out(out, train, *([] if models is None else [models]))
    minimised = check_loss(loss, task)
    pool = None if models is None else read_pool(models, trust=trust)
    reader = open_table(train, text_options(sep, encoding, na, decimal))
    roles = _roles(reader, pool, target, predictions, features, (weight, group, time))
    table, rows = _read(reader, roles, task)
    if gate == "auto":
        _check_folds(folds or DEFAULT_FOLDS, table, roles)
    columns = roles.matched(table.column_names)
    labels = classes_of(
        table[target], target, task=task, loss=minimised, positive=positive, columns=columns
    )
    if gate == "auto" and labels is not None and group is None and time is None:
        _check_folds_of_classes(folds or DEFAULT_FOLDS, table[target])
    if positive is not None and labels is None:
        raise wrong_call("--positive names a class, and this target holds numbers; leave it out.")
    runs = pool is not None
    if pool is None:
        pool = column_candidates(columns, labels, positive)
    model = _model(labels, pool, loss=minimised, gate=gate, random_state=seed)
    model.cv = folds if time is None else later_folds(table[time], folds or DEFAULT_FOLDS)
    with speaking_of_rows(reader, rows):
        left_out = _fit(model, table, roles, pool, runs=runs)
    save(model, out, notes=_notes(reader, roles))
    report = _report(model, table, left_out, out)
    if as_json:
        print_json(report)
        note_cautions(model.cautions_)
    else:
        _show(report, reader)


def _roles(
    reader: TableReader,
    pool: dict[str, Candidate] | None,
    target: str,
    predictions: list[str] | None,
    features: list[str] | None,
    others: tuple[str | None, str | None, str | None],
) -> Roles:
    """Which column is what; others : weight, group and time."""
    names = reader.names
    held = split_names("--predictions", predictions, names) or columns_of(pool, reader)
    seen = None if features is None else split_names("--features", features, names)
    weight, group, time = others
    roles = Roles(target, held, seen, weight, group, time)
    roles.check(names)
    for option, name in zip(
        ("--target", "--weight", "--group", "--time"), (target, *others), strict=True
    ):
        check_once(reader, option, name)
    for name in roles.matched(names):
        check_once(reader, "--predictions", name)
    return roles


def _read(reader: TableReader, roles: Roles, task: str) -> tuple[Any, Rows]:
    """The labelled rows, in the order of time if there is one, and where they are in the file."""
    arrow = optional("pyarrow", extra="cli")
    numbers = dict.fromkeys(roles.matched(reader.names), "--predictions")
    if roles.weight is not None:
        numbers[roles.weight] = "--weight"
    if task == "regression":
        numbers[roles.target] = "--task regression"
    types = dict.fromkeys(numbers, arrow.float64())
    if roles.group is not None:
        types[roles.group] = arrow.string()
    try:
        table = reader.read(Known(types))
    except TableFileError as error:
        if error.column not in numbers:
            raise
        raise wrong_call(f"{numbers[error.column]} needs numbers. {plain_words(error)}") from error
    say_remarks(reader)
    table, rows = labelled(table, roles.target)
    if roles.time is not None:
        check_times(table[roles.time], roles.time)
        order = optional("pyarrow.compute", extra="cli").sort_indices(table[roles.time])
        table, rows = table.take(order), rows[order.to_numpy()]
    return table, rows


def columns_of(pool: dict[str, Candidate] | None, reader: TableReader) -> list[str]:
    """Columns of a table, and globs over them, that hold predictions of candidates of a pool."""
    held = [c for c in (pool or {}).values() if isinstance(c, Column)]
    globs = [str(c.columns[0]) for c in held if c.is_glob]
    keys = [key for c in held if not c.is_glob for key in c.columns]
    for key in keys:
        if isinstance(key, str) and key not in reader.names:
            raise wrong_call(f"--models: {no_column(key, reader.names, reader.name)}")
        if isinstance(key, int) and not 0 <= key < len(reader.names):
            raise wrong_call(
                f"--models: {reader.name} has no column {key}; it has {len(reader.names)}, "
                "counted from 0."
            )
    return globs + [key if isinstance(key, str) else reader.names[key] for key in keys]


def _notes(reader: TableReader, roles: Roles) -> dict[str, str]:
    """What commands that use the model must know of the labelled table."""
    notes = {
        "target": roles.target,
        "table": reader.name,
        "weight": roles.weight,
        "group": roles.group,
        "decimal": reader.decimal,
        "percents": json.dumps(sorted(reader.percents)),
    }
    return {key: text for key, text in notes.items() if text is not None}


def _check_folds(folds: int, table: Any, roles: Roles) -> None:
    """Refuse more folds than rows, groups or times, of which the first is never judged."""
    by = roles.group or roles.time
    parts = table.num_rows if by is None else len(table[by].unique())
    most = parts - 1 if roles.time is not None else parts
    if folds > most:
        what = "groups" if roles.group else "times" if roles.time else "rows"
        way_out = f"Give --folds {most}" if most > 1 else f"Give more {what}"
        raise wrong_call(
            f"--folds: {parts} {what} cannot be split into {folds} folds. {way_out}, or a --gate "
            "that is not judged, such as global."
        )


def _check_folds_of_classes(folds: int, target: Any) -> None:
    """Refuse more folds than rows of the most frequent class."""
    counts = target.value_counts().to_pylist()
    largest = max(counts, key=lambda each: int(each["counts"]))
    if folds > largest["counts"]:
        raise wrong_call(
            f"--folds: {folds} folds need {folds} rows of some class; the most frequent, "
            f"{largest['values']!r}, has {largest['counts']}. Give more rows, a smaller --folds, "
            "or a --gate that is not judged, such as global."
        )


def _model(labels: Any, pool: dict[str, Candidate], *, loss: Loss | None, **options: Any) -> Model:
    kind: Any = LocalMARegressor if labels is None else LocalMAClassifier
    if loss is not None:
        options["loss"] = loss
    model: Model = kind(pool, **options)
    return model


def _fit(
    model: Model, table: Any, roles: Roles, pool: dict[str, Candidate], *, runs: bool
) -> dict[str, str]:
    """Fit on the columns that gate and candidates really use: no other is needed to predict.

    Gives what the gate could see and does not, and why.
    """
    encoder = _encoder(table, roles)
    seen = [column.name for column in encoder.columns_]
    if not seen and encoder.left_out_ and GATES[str(model.gate)]().needs_inputs:
        reasons = "; ".join(f"{name!r}, {why}" for name, why in encoder.left_out_.items())
        raise wrong_call(
            f"The gate must have some column to see, and each is left out: {reasons}. Give it "
            "others, or a --gate that needs none, such as global."
        )
    model.gate_features = TableEncoder(seen)
    asked = {*seen, *roles.matched(table.column_names)}
    asked |= _inputs(pool, table, roles) if runs else set()
    columns = [name for name in table.column_names if name in asked]
    y = table[roles.target].to_numpy()
    weight = None if roles.weight is None else _weights(table, roles.weight)
    groups = None if roles.group is None else table[roles.group].to_numpy()
    try:
        model.fit(table.select(columns), y, sample_weight=weight, groups=groups)
    except CandidateError as error:
        held = pool.get(error.candidate)
        if runs or error.rows or not isinstance(held, Column) or len(held.columns) < 2:
            raise
        raise InvalidInputError(
            f"{error} (By their names, {', '.join(map(repr, held.columns))} were taken for classes "
            "of one model; rename them where they are models.)"
        ) from error
    return encoder.left_out_


def _encoder(table: Any, roles: Roles) -> TableEncoder:
    """Encode what the gate may see; without --features, no numbers that follow the row order."""
    encoder = TableEncoder(roles.seen_by_gate(table.column_names)).fit(table)
    ordered = in_row_order(table, [column.name for column in encoder.columns_])
    if roles.features is not None or len(ordered) == len(encoder.columns_):
        return encoder  # asked for, or better than no column at all
    encoder.columns_ = [column for column in encoder.columns_ if column.name not in ordered]
    encoder.left_out_ |= dict.fromkeys(ordered, FOLLOWS_ROWS)
    return encoder


def _weights(table: Any, name: str) -> Any:
    try:
        return weights_of(table, name)
    except InvalidInputError as error:
        raise wrong_call(f"--weight: {error}") from error


def _inputs(pool: dict[str, Candidate], table: Any, roles: Roles) -> set[str]:
    """Columns that candidates say they look at; any but the target if one does not say.

    Positions are those in the file. Since the fit sees some of its columns only, they become names.
    """
    running = [c for c in pool.values() if not isinstance(c, Column)]
    known = table.column_names
    for candidate in running:
        if isinstance(candidate.inputs, list):
            try:
                positions = positions_of(table, candidate.inputs)
            except InvalidInputError as error:
                text = error.plain.removeprefix("X ")
                raise wrong_call(
                    f"--models: inputs of {candidate.label!r}: the table {text}"
                ) from error
            candidate.inputs = [known[position] for position in positions]
    stated = [candidate.inputs for candidate in running]
    if all(isinstance(inputs, list) for inputs in stated):
        return {str(key) for inputs in stated if isinstance(inputs, list) for key in inputs}
    return set(known) - {roles.target, roles.weight, roles.group}


def _report(model: Model, table: Any, left_out: dict[str, str], out: Path) -> dict[str, Any]:
    encoder = model.gate_features_.transformer
    judged = hasattr(model.gate_, "locality_gain_")
    regression = isinstance(model, LocalMARegressor)
    return {
        "model": str(out),
        "task": "regression" if regression else "classification",
        "classes": None if regression else plain(model.classes_),
        "loss": model.loss_.name,
        "n_rows": table.num_rows,
        "candidates": dict(
            zip(model.candidate_names_, map(float, model.global_weights_), strict=True)
        ),
        "features": [column.name for column in encoder.columns_],
        "left_out": left_out,
        "cautions": [plain(asdict(caution)) for caution in model.cautions_],
        "verdict": model.verdict_ if judged else None,
        "gain": plain(model.locality_gain_.as_dict()) if judged else None,
    }


def _show(report: dict[str, Any], reader: TableReader) -> None:
    task = report["task"].capitalize()
    if report["classes"] is not None:
        task += f" ({', '.join(map(str, report['classes'][:CLASSES_SHOWN]))}"
        task += ", ...)" if len(report["classes"]) > CLASSES_SHOWN else ")"
    say(f"{task}, loss {report['loss']}, {report['n_rows']:,} labelled rows of {reader.name}.")
    body = [[name, share(weight)] for name, weight in report["candidates"].items()]
    show_table("", ["candidate", "global weight"], body)
    say(f"The gate sees {', '.join(report['features']) or 'no column'}.")
    for name, reason in report["left_out"].items():
        say(f"The gate does not see {name!r}: {reason}.")
    for caution in report["cautions"] if report["verdict"] is None else ():
        say(caution["sentence"])
    if report["verdict"]:
        say(report["verdict"])
    say(f"wrote {report['model']}")
