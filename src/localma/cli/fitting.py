"""``localma fit``: from a labelled table with a column per model to a saved model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from localma._optional import optional
from localma.candidates import Candidate, Column
from localma.cli.app import AsJson, Seed, TableFile, Trust, check_out, typer, wrong_call
from localma.cli.pools import read_pool
from localma.cli.roles import Roles, column_candidates
from localma.cli.showing import note_cautions, print_json, say, show_table
from localma.cli.tables import labelled, read, types_of_labels, weights_of
from localma.cli.times import check_times, later_folds
from localma.encoding import TableEncoder
from localma.errors import CandidateError, InvalidInputError
from localma.estimators import GATES, LocalMAClassifier, LocalMARegressor
from localma.folds import DEFAULT_FOLDS
from localma.frames import positions_of
from localma.inspection.plain import plain
from localma.losses import Loss, get_loss
from localma.persistence import Model, save

LABEL_LOSSES = ("cross_entropy", "brier")


def fit(
    train: TableFile,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[Path, typer.Option(help="The file to write, such as rent.localma.")],
    predictions: Annotated[
        list[str] | None, typer.Option(help="Columns of predictions; a glob such as 'pred_*'.")
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
    check_out(out, train, *([] if models is None else [models]))
    known_loss = _known_loss(loss)
    if gate not in GATES:
        raise wrong_call(f"--gate must be one of {', '.join(GATES)}; received {gate!r}.")
    pool = None if models is None else read_pool(models, trust=trust)
    types = {} if task == "regression" else types_of_labels(train, target)
    if group is not None:
        types = {**types, group: optional("pyarrow", extra="cli").string()}
    table = read(train, types)
    held = predictions or columns_of(pool, table)
    roles = Roles(target, held, _split(features), weight, group, time)
    roles.check(table.column_names)
    table, _ = labelled(table, target)
    if time is not None:
        check_times(table[time], time)
        table = table.sort_by(time)
    if gate == "auto":
        _check_folds(folds or DEFAULT_FOLDS, table, roles)
    labels = _labels(table[target], target, task, known_loss)
    if positive is not None and labels is None:
        raise wrong_call("--positive names a class, and this target holds numbers; leave it out.")
    runs = pool is not None
    if pool is None:
        pool = column_candidates(roles.matched(table.column_names), labels, positive)
    model = _model(labels, pool, loss=known_loss, gate=gate, random_state=seed)
    model.cv = folds if time is None else later_folds(table[time], folds or DEFAULT_FOLDS)
    left_out = _fit(model, table, roles, pool, runs=runs)
    notes = {"target": target, "table": train.name, "weight": weight, "group": group}
    save(model, out, notes={key: name for key, name in notes.items() if name is not None})
    report = _report(model, table, left_out, out)
    if as_json:
        print_json(report)
        note_cautions(report["cautions"])
    else:
        _show(report)


def _split(names: list[str] | None) -> list[str] | None:
    if names is None:
        return None
    columns = [name.strip() for part in names for name in part.split(",") if name.strip()]
    if not columns:
        raise wrong_call("--features names no column; leave it out for all without another part.")
    return columns


def columns_of(pool: dict[str, Candidate] | None, table: Any) -> list[str]:
    """Columns of a table, and globs over them, that hold predictions of candidates of a pool."""
    held = [c for c in (pool or {}).values() if isinstance(c, Column)]
    globs = [str(c.columns[0]) for c in held if c.is_glob]
    keys = [key for c in held if not c.is_glob for key in c.columns]
    return globs + [str(table.column_names[place]) for place in positions_of(table, keys)]


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


def _labels(target: Any, name: str, task: str, loss: Loss | None) -> Any:
    """Classes of the target, in order; None for a regression."""
    import pyarrow.types as kinds

    if task not in ("auto", "regression", "classification"):
        raise wrong_call(f"--task must be auto, regression or classification; received {task!r}.")
    kind = target.type
    words = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_dictionary(kind)
    by_loss = loss is not None and loss.name in LABEL_LOSSES
    by_target = words or kinds.is_boolean(kind) or by_loss
    if task == "regression" and words:
        raise wrong_call("--task regression needs numbers in the target's column; it holds words.")
    if task == "regression" or (task == "auto" and not by_target):
        return None
    if words and task == "auto":
        _refuse_numbers_with_words(target, name)
    return np.unique(target.to_numpy())


def _refuse_numbers_with_words(target: Any, name: str) -> None:
    """Refuse a target that is a number in most rows: the other cells are mistakes."""
    values = [str(value) for value in target.to_pylist()]
    wrong = [value for value in values if not _reads_as_number(value)]
    if wrong and len(wrong) < len(values) / 2:
        raise wrong_call(
            f"--target: {name!r} holds numbers, but for {len(wrong)} of {len(values)} cells, such "
            f"as {wrong[0]!r}. Mend them, leave them empty, or say --task classification."
        )


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _known_loss(name: str | None) -> Loss | None:
    if name is None:
        return None
    try:
        return get_loss(name)
    except InvalidInputError as error:
        raise wrong_call(f"--loss: {error}") from error


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
    encoder = TableEncoder(roles.seen_by_gate(table.column_names)).fit(table)
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
        if runs or not isinstance(held, Column) or len(held.columns) < 2:
            raise
        raise InvalidInputError(
            f"{error} (By their names, {', '.join(map(repr, held.columns))} were taken for classes "
            "of one model; rename them where they are models.)"
        ) from error
    return encoder.left_out_


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
            places = positions_of(table, candidate.inputs)
            candidate.inputs = [known[place] for place in places]
    stated = [candidate.inputs for candidate in running]
    if all(isinstance(inputs, list) for inputs in stated):
        return {str(key) for inputs in stated if isinstance(inputs, list) for key in inputs}
    return set(known) - {roles.target, roles.weight, roles.group}


def _report(model: Model, table: Any, left_out: dict[str, str], out: Path) -> dict[str, Any]:
    encoder = model.gate_features_.transformer
    judged = hasattr(model.gate_, "locality_gain_")
    return {
        "model": str(out),
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


def _show(report: dict[str, Any]) -> None:
    body = [[name, f"{weight:.3f}"] for name, weight in report["candidates"].items()]
    show_table(f"{report['n_rows']:,} labelled rows", ["candidate", "global weight"], body)
    say(f"The gate sees {', '.join(report['features']) or 'no column'}.")
    for name, reason in report["left_out"].items():
        say(f"The gate does not see {name!r}: {reason}.")
    for caution in report["cautions"] if report["verdict"] is None else ():
        say(caution["sentence"])
    if report["verdict"]:
        say(report["verdict"])
    say(f"wrote {report['model']}")
