"""``localma fit``: from a labelled table with a column per model to a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from sklearn.model_selection import TimeSeriesSplit

from localma._optional import optional
from localma.candidates import Candidate
from localma.cli.app import AsJson, TableFile, Trust, check_folder, typer, wrong_call
from localma.cli.pools import read_pool
from localma.cli.roles import Roles, column_candidates
from localma.cli.showing import print_json, say, show_table
from localma.cli.tables import labelled, read, types_of_labels
from localma.encoding import TableEncoder
from localma.errors import InvalidInputError
from localma.estimators import GATES, LocalMAClassifier, LocalMARegressor
from localma.folds import DEFAULT_FOLDS
from localma.inspection.plain import plain
from localma.losses import get_loss
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
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
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
    check_folder(out)
    if gate not in GATES:
        raise wrong_call(f"--gate must be one of {', '.join(GATES)}; received {gate!r}.")
    roles = Roles(target, predictions or (), _split(features), weight, group, time)
    types = {} if task == "regression" else types_of_labels(train, target)
    if group is not None:
        types = {**types, group: optional("pyarrow", extra="cli").string()}
    table = read(train, types)
    roles.check(table.column_names)
    table = _in_order(labelled(table, target), time)
    if gate == "auto":
        _check_folds(folds or DEFAULT_FOLDS, table, roles)
    labels = _labels(table[target], task, loss)
    pool = None if models is None else read_pool(models, trust=trust)
    if pool is None:
        pool = column_candidates(roles.matched(table.column_names), labels, positive)
    model = _model(labels, pool, loss=loss, gate=gate, random_state=seed)
    model.cv = folds if time is None else TimeSeriesSplit(folds or DEFAULT_FOLDS)
    _fit(model, table, roles, own_columns=models is not None)
    notes = {"target": target, "table": train.name, "weight": weight, "group": group}
    save(model, out, notes={key: name for key, name in notes.items() if name is not None})
    report = _report(model, table, out)
    if as_json:
        print_json(report)
    else:
        _show(report)


def _split(names: list[str] | None) -> list[str] | None:
    if names is None:
        return None
    return [name.strip() for part in names for name in part.split(",") if name.strip()]


def _in_order(table: Any, time: str | None) -> Any:
    return table if time is None else table.sort_by(time)


def _check_folds(folds: int, table: Any, roles: Roles) -> None:
    """Refuse more folds than rows or groups; the first of rows in time is never judged."""
    by_group = roles.group is not None
    parts = len(table[roles.group].unique()) if by_group else table.num_rows
    most = parts - 1 if roles.time is not None else parts
    if folds > most:
        what = "groups" if by_group else "rows"
        way_out = f"Give --folds {most}" if most > 1 else f"Give more {what}"
        raise wrong_call(
            f"--folds: {parts} {what} cannot be split into {folds} folds. {way_out}, or a --gate "
            "that is not judged, such as global."
        )


def _labels(target: Any, task: str, loss: str | None) -> Any:
    """Classes of the target, in order; None for a regression."""
    import pyarrow.types as kinds

    if task not in ("auto", "regression", "classification"):
        raise wrong_call(f"--task must be auto, regression or classification; received {task!r}.")
    kind = target.type
    words = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_dictionary(kind)
    by_target = words or kinds.is_boolean(kind) or loss in LABEL_LOSSES
    if task == "regression" and words:
        raise wrong_call("--task regression needs numbers in the target's column; it holds words.")
    if task == "regression" or (task == "auto" and not by_target):
        return None
    return np.unique(target.to_numpy())


def _model(labels: Any, pool: dict[str, Candidate], *, loss: str | None, **options: Any) -> Model:
    kind: Any = LocalMARegressor if labels is None else LocalMAClassifier
    if loss is not None:
        try:
            options["loss"] = get_loss(loss)
        except InvalidInputError as error:
            raise wrong_call(f"--loss: {error}") from error
    model: Model = kind(pool, **options)
    return model


def _fit(model: Model, table: Any, roles: Roles, *, own_columns: bool) -> None:
    """Fit on a table; candidates that run may look at any column but the target."""
    seen = roles.seen_by_gate(table.column_names)
    model.gate_features = TableEncoder(seen)
    asked = [*seen, *roles.matched(table.column_names)]
    if own_columns:
        asked = [name for name in table.column_names if name != roles.target]
    columns = [name for name in table.column_names if name in asked]
    y = table[roles.target].to_numpy()
    weight = None if roles.weight is None else table[roles.weight].to_numpy()
    if weight is not None and (weight.dtype.kind not in "biuf" or not (weight >= 0).all()):
        raise wrong_call(
            f"--weight needs numbers, zero or more, in every row; {roles.weight!r} has others."
        )
    groups = None if roles.group is None else table[roles.group].to_numpy()
    model.fit(table.select(columns), y, sample_weight=weight, groups=groups)


def _report(model: Model, table: Any, out: Path) -> dict[str, Any]:
    encoder = model.gate_features_.transformer
    judged = hasattr(model.gate_, "locality_gain_")
    gain = model.locality_gain_ if judged else None
    return {
        "model": str(out),
        "n_rows": table.num_rows,
        "candidates": dict(
            zip(model.candidate_names_, map(float, model.global_weights_), strict=True)
        ),
        "features": [column.name for column in encoder.columns_],
        "left_out": encoder.left_out_,
        "verdict": model.verdict_ if judged else None,
        "gain": None
        if gain is None
        else plain({"value": gain.value, "standard_error": gain.standard_error}),
    }


def _show(report: dict[str, Any]) -> None:
    body = [[name, f"{weight:.3f}"] for name, weight in report["candidates"].items()]
    show_table(f"{report['n_rows']:,} labelled rows", ["candidate", "global weight"], body)
    for name, reason in report["left_out"].items():
        say(f"The gate does not see {name!r}: {reason}.")
    if report["verdict"]:
        say(report["verdict"])
    say(f"wrote {report['model']}")
