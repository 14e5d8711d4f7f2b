"""``localma fit``: from a labelled table with predictions of models to a saved model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, get_args

import pyarrow as pa
from typer import Option

from localma._types import AnyArray, Rows
from localma.candidates import Candidate, Column
from localma.candidates.pool_file import (
    column_candidates,
    input_columns,
    prediction_columns,
)
from localma.checks.cautions import Caution
from localma.cli import terminal
from localma.cli.app import (
    AsJson,
    Seed,
    TableFile,
    TextFlags,
    Trust,
    WrongCallError,
    check_out,
    naming_option,
    option,
)
from localma.cli.tables import check_unique, labelled_rows, read_models, split_names
from localma.dependence import Dependence
from localma.errors import CandidateError, InvalidInputError
from localma.estimators import GATES, LocalMAClassifier, LocalMARegressor
from localma.folds import DEFAULT_FOLDS
from localma.formatting import count
from localma.inspection.summary import Advice
from localma.losses import Loss, get_loss
from localma.model_file import Model, save
from localma.own.shared_error import USE_OWN
from localma.production.options import Missing
from localma.records import Label, plain
from localma.tables.cells import Known
from localma.tables.files import TableReader, open_table
from localma.tables.roles import (
    CLASS_LOSSES,
    FOLLOWS_ROWS,
    TASKS,
    Roles,
    check_weights,
    gate_encoder,
    later_folds,
    target_classes,
    time_order,
)
from localma.tables.sniffing import TableFileError

MAX_CLASSES = 5
"""Classes that are printed."""
Candidates: TypeAlias = dict[str, Candidate]


def fit(
    table: TableFile,
    target: Annotated[str, option("COLUMN", "The column to predict.")],
    out: Annotated[Path, Option(help="The model file to write, such as rent.localma.")],
    *,
    predictions: Annotated[
        list[str] | None,
        option("COLUMNS", "Predictions, separated by commas, or patterns such as 'pred_*'."),
    ] = None,
    models: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="A TOML file of models to run.")
    ] = None,
    features: Annotated[
        list[str] | None,
        option("COLUMNS", "Columns that the gate sees, separated by commas; default: the rest."),
    ] = None,
    loss: Annotated[
        str | None, option("NAME", "The loss to minimise, such as squared_error or poisson.")
    ] = None,
    gate: Annotated[str, option("NAME", f"One of {', '.join(GATES)}.")] = "auto",
    group: Annotated[str | None, option("COLUMN", "The group that each row belongs to.")] = None,
    time: Annotated[
        str | None, option("COLUMN", "Times; the weights are tested on later rows.")
    ] = None,
    weight: Annotated[str | None, option("COLUMN", "The weight or exposure of each row.")] = None,
    positive: Annotated[
        str | None, option("CLASS", "The class whose probability the predictions are.")
    ] = None,
    task: Annotated[str, option("NAME", f"One of {', '.join(TASKS)}.")] = "auto",
    folds: Annotated[
        int | None,
        option("NUMBER", "Folds that test the weights; default: 5, fewer for large tables.", min=2),
    ] = None,
    shuffle: Annotated[
        bool,
        Option("--shuffle", help="Hold out single rows, even if neighbouring rows are alike."),
    ] = False,
    own: Annotated[
        bool, Option("--own", help="Add models that correct what all models get wrong.")
    ] = False,
    text: TextFlags,
    missing: Annotated[
        str,
        option(
            "error|renormalize|nan",
            "If predictions are missing: error to stop, renormalize to use the others in the row.",
        ),
    ] = "error",
    robust: Annotated[
        bool,
        Option("--robust", help="Also fit the weights without each model, in case it fails later."),
    ] = False,
    seed: Seed = 0,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Learn how far to trust each model, row by row.

    Example: localma fit train.csv --target rent --predictions 'pred_*' --out rent.localma
    """
    if (predictions is None) == (models is None):
        raise WrongCallError(
            "Name the columns of predictions with --predictions, or a file of models with "
            "--models; use one of the two."
        )
    _check_choices(gate, missing)
    check_out(out, table, *filter(None, [models]))
    checked_loss = _check_loss(loss, task)
    pool = {} if models is None else read_models(models, trust=trust)
    reader = open_table(table, text.options())
    names = prediction_columns(pool, reader.names)
    names += split_names("--predictions", predictions, reader.names)
    inputs = features and split_names("--features", features, reader.names)
    roles = Roles(target, names, inputs, weight, group, time).resolve(reader.names)
    sample, rows = _read(reader, roles, task)
    n_folds = folds or DEFAULT_FOLDS
    if gate == "auto":
        _check_folds(n_folds, sample, roles)
    classes = target_classes(
        sample[target],
        target,
        task=task,
        loss=getattr(checked_loss, "name", None),
        positive=positive,
        predictions=roles.predictions,
    )
    if gate == "auto" and classes is not None and group is None and time is None:
        _check_folds_of_classes(n_folds, sample[target])
    if models is None:
        pool = column_candidates(roles.predictions, classes, positive)
        if positive is None and classes is not None:
            _note_positive(pool, classes)
    kind = LocalMARegressor if classes is None else LocalMAClassifier
    model = kind(pool, gate=gate, random_state=seed, missing=missing, robust=robust)
    if checked_loss is not None:
        model.loss = checked_loss
    model.cv = folds if time is None else later_folds(sample[time], n_folds)
    model.set_params(folds="shuffled" if shuffle else "auto", own="auto" if own else None)
    with terminal.naming_rows(reader, rows, ", add --missing renormalize"):
        left_out = _fit(model, sample, roles, pool, runs_models=models is not None)
    save(model, out, notes=_notes(reader, roles))
    result = _result(model, sample.num_rows, left_out, out)
    if as_json:
        terminal.print_json(plain(result))
        terminal.note_cautions(model.cautions_)
    else:
        _show(result, reader)


def _check_choices(gate: str, missing: str) -> None:
    if gate not in GATES:
        raise WrongCallError(f"--gate must be one of {', '.join(GATES)}; received {gate!r}.")
    if missing not in get_args(Missing):
        raise WrongCallError(f"--missing must be error, renormalize or nan; received {missing!r}.")


def _check_loss(name: str | None, task: str) -> Loss | None:
    if name is None:
        return None
    with naming_option("--loss: "):
        loss = get_loss(name)
    if task == "regression" and loss.name in CLASS_LOSSES:
        raise WrongCallError(
            f"--loss {name} is for classes, but --task is regression. Leave one of them out, or "
            "use --loss bernoulli for numbers between 0 and 1."
        )
    return loss


def _read(reader: TableReader, roles: Roles, task: str) -> tuple[pa.Table, Rows]:
    """Read the labelled rows, in time order if there is one, and their indices in the file."""
    for parameter in ("target", "weight", "group", "time"):
        check_unique(reader, f"--{parameter}", getattr(roles, parameter))
    for name in roles.predictions:
        check_unique(reader, "--predictions", name)
    numeric = dict.fromkeys(roles.predictions, "--predictions")
    if roles.weight is not None:
        numeric[roles.weight] = "--weight"
    if task == "regression":
        numeric[roles.target] = "--task regression"
    types = dict.fromkeys(numeric, pa.float64())
    if roles.group is not None:
        types[roles.group] = pa.string()
    try:
        table = reader.read(Known(types))
    except TableFileError as error:
        if error.column not in numeric:
            raise
        option = numeric[error.column]
        raise WrongCallError(f"{option} needs numbers. {terminal.plain_message(error)}") from error
    terminal.note_remarks(reader)
    table, rows = labelled_rows(table, roles.target)
    if roles.time is None:
        return table, rows
    order = time_order(table[roles.time], roles.time)
    return table.take(order), rows[order]


def _check_folds(folds: int, table: pa.Table, roles: Roles) -> None:
    """Refuse more folds than rows, groups or times; the first time is never tested."""
    unit, size = "row", table.num_rows
    if roles.group is not None:
        unit, size = "group", len(table[roles.group].unique())
    elif roles.time is not None:
        unit, size = "time", len(table[roles.time].unique())
    max_folds = size - (roles.time is not None)
    if folds <= max_folds:
        return
    remedy = f"Use --folds {max_folds}" if max_folds > 1 else f"Add more {unit}s"
    raise WrongCallError(
        f"--folds: {count(size, unit)} cannot be split into {folds} folds. {remedy}, or a --gate "
        "that needs no folds, such as global."
    )


def _check_folds_of_classes(folds: int, target: pa.ChunkedArray) -> None:
    """Refuse more folds than rows of the most frequent class."""
    label, n_rows = max(
        ((entry["values"], entry["counts"]) for entry in target.value_counts().to_pylist()),
        key=lambda pair: pair[1],
    )
    if folds > n_rows:
        raise WrongCallError(
            f"--folds: {folds} folds need at least {folds} rows of one class; the most frequent "
            f"class, {label!r}, has {n_rows}. Add more rows, use a smaller --folds, or a --gate "
            "that needs no folds, such as global."
        )


def _note_positive(pool: Candidates, classes: AnyArray) -> None:
    """Print which class a single column of probabilities is used for, if it is not the last."""
    for name, column in pool.items():
        if column.classes is not None and column.classes[-1] != classes[-1]:
            terminal.note(
                f"The column {name!r} is used as the probability of {column.classes[-1].item()!r}. "
                "If that is wrong, add --positive."
            )


def _fit(
    model: Model, table: pa.Table, roles: Roles, pool: Candidates, *, runs_models: bool
) -> dict[str, str]:
    """Fit on the columns that gate and candidates use; no others are needed to predict.

    Returns the columns that the gate does not see, and why.
    """
    encoder, left_out = gate_encoder(table, roles)
    columns = {*(encoder.features or ()), *roles.predictions}
    if not encoder.features and left_out and GATES[str(model.gate)]().needs_inputs:
        reasons = "; ".join(f"{name!r}, {reason}" for name, reason in left_out.items())
        raise WrongCallError(
            f"The gate needs at least one column, and all are left out: {reasons}. Add other "
            "columns, or use a --gate that needs none, such as global."
        )
    model.gate_features = encoder
    if runs_models:
        columns |= input_columns(pool, table, (roles.target, roles.weight, roles.group))
    X = table.select([name for name in table.column_names if name in columns])
    weight = None if roles.weight is None else check_weights(table[roles.weight], roles.weight)
    groups = None if roles.group is None else table[roles.group].to_numpy()
    try:
        model.fit(X, table[roles.target].to_numpy(), sample_weight=weight, groups=groups)
    except CandidateError as error:
        candidate = pool.get(error.candidate)
        if not isinstance(candidate, Column) or len(candidate.columns) < 2:
            raise
        if runs_models or error.rows:
            raise
        raise InvalidInputError(
            f"{error} (The names of the columns {', '.join(map(repr, candidate.columns))} suggest "
            "that they are the classes of one model. If each is a model, rename them.)"
        ) from error
    return left_out


def _notes(reader: TableReader, roles: Roles) -> dict[str, str]:
    """Describe the labelled table for commands that use the model."""
    notes = {
        "target": roles.target,
        "table": reader.name,
        "weight": roles.weight,
        "group": roles.group,
        "decimal": reader.decimal,
        "percents": json.dumps(sorted(reader.percents)),
    }
    return {key: text for key, text in notes.items() if text is not None}


@dataclass(frozen=True)
class FitResult:
    """What ``localma fit`` reports."""

    model: str
    task: str
    classes: list[Label] | None
    loss: str
    n_rows: int
    candidates: dict[str, float]
    features: list[str]
    left_out: dict[str, str]
    cautions: tuple[Caution, ...]
    dependence: Dependence | None
    verdict: str | None = None
    gain: Mapping[str, float | None] | None = None


def _result(model: Model, n_rows: int, left_out: dict[str, str], out: Path) -> FitResult:
    task, classes = "regression", None
    if isinstance(model, LocalMAClassifier):
        task, classes = "classification", model.classes_.tolist()
    verdict = gain = None
    if hasattr(model.gate_, "locality_gain_"):
        verdict = model.verdict_.replace(USE_OWN, "Use --own.")
        gain = model.locality_gain_.as_dict()
    return FitResult(
        model=str(out),
        task=task,
        classes=classes,
        loss=model.loss_.name,
        n_rows=n_rows,
        candidates=dict(zip(model.candidate_names_, model.global_weights_.tolist(), strict=True)),
        features=[column.name for column in model.gate_features_.transformer.columns_],
        left_out={
            name: reason.replace(
                FOLLOWS_ROWS, f"{FOLLOWS_ROWS}; to keep it, name the columns with --features"
            )
            for name, reason in left_out.items()
        },
        cautions=tuple(model.cautions_),
        dependence=model.dependence_,
        verdict=verdict,
        gain=gain,
    )


def _show(result: FitResult, reader: TableReader) -> None:
    task = result.task.capitalize()
    if result.classes is not None:
        listed = [str(label) for label in result.classes[:MAX_CLASSES]]
        if len(result.classes) > MAX_CLASSES:
            listed.append("...")
        task += f" ({', '.join(listed)})"
    terminal.say(f"{task}, loss {result.loss}, {result.n_rows:,} labelled rows of {reader.name}.")
    body = [[name, terminal.share(weight)] for name, weight in result.candidates.items()]
    terminal.show_table("", ["candidate", "global weight"], body)
    terminal.say(f"The gate sees {', '.join(result.features) or 'no column'}.")
    for name, reason in result.left_out.items():
        terminal.say(f"The gate does not see {name!r}: {reason}.")
    if result.verdict or result.cautions:
        terminal.say_advice(Advice.of(result.verdict or "", result.cautions), result.cautions)
    terminal.say(f"wrote {result.model}")
