"""``localma drop`` and ``localma add``: change the candidates of a model file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from typer import Argument, Option

from localma.candidates import Candidate
from localma.candidates.pool_file import (
    column_candidates,
    input_columns,
    prediction_columns,
)
from localma.cli import terminal
from localma.cli.app import (
    AsJson,
    ModelFile,
    TableFile,
    TextFlags,
    Trust,
    WrongCallError,
    check_out,
    naming_option,
    option,
)
from localma.cli.tables import (
    LabelFlags,
    LabelledRows,
    check_unique,
    open_model,
    read_labelled_rows,
    read_models,
    split_names,
)
from localma.estimators.classifier import LocalMAClassifier
from localma.inspection.summary import Advice
from localma.model_file import Model, save
from localma.own.shared_error import USE_OWN
from localma.production.changes import Change
from localma.records import plain
from localma.tables.files import TableReader, open_table
from localma.tables.roles import check_column

Out = Annotated[Path, Option(help="The model file to write, such as rent2.localma.")]


@dataclass(frozen=True)
class ChangeResult:
    """What ``localma drop`` and ``localma add`` report."""

    model: str
    candidates: dict[str, float]
    changes: tuple[Change, ...]
    verdict: str | None


def drop(
    model: ModelFile,
    candidate: Annotated[str, Argument(help="The candidate to leave out.")],
    out: Out,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Leave out a candidate of a model, without labelled rows.

    Example: localma drop rent.localma pred_north --out rent2.localma
    """
    check_out(out, model)
    before = open_model(model, trust=trust)
    _finish(before, before.drop(candidate), out, as_json)


def add(
    model: ModelFile,
    table: TableFile,
    out: Out,
    *,
    predictions: Annotated[
        list[str] | None,
        option("COLUMNS", "The new predictions: a column, or one column for each class."),
    ] = None,
    models: Annotated[
        Path | None,
        Option(exists=True, dir_okay=False, help="A TOML file with the new model to run."),
    ] = None,
    target: Annotated[str | None, option("COLUMN", "The target; default: as in the fit.")] = None,
    group: Annotated[
        str | None, option("COLUMN", "The group of each row; default: as in the fit.")
    ] = None,
    positive: Annotated[
        str | None, option("CLASS", "The class whose probability the predictions are.")
    ] = None,
    text: TextFlags,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Add a candidate to a model, with labelled rows: faster than a new fit.

    Example: localma add rent.localma train.csv --predictions pred_east --out rent2.localma
    """
    if (predictions is None) == (models is None):
        raise WrongCallError(
            "Name the column of new predictions with --predictions, or a file with a new model "
            "with --models; use one of the two."
        )
    check_out(out, model, table, *filter(None, [models]))
    pool = {} if models is None else read_models(models, trust=trust)
    before = open_model(model, trust=trust)
    reader = open_table(table, text.options())
    names = _columns(pool, predictions, reader)
    further: dict[str, pa.DataType | None] = dict.fromkeys(reader.names if pool else ())
    further |= dict.fromkeys(names, pa.float64())
    labels = LabelFlags(target, group)
    rows = read_labelled_rows(before, reader, labels, further)
    if models is None:
        classes = before.classes_ if isinstance(before, LocalMAClassifier) else None
        with naming_option("--predictions: "):
            pool = column_candidates(names, classes, positive)
    if len(pool) != 1:
        raise WrongCallError(
            f"Name one new candidate; received {len(pool)}: {', '.join(map(repr, pool))}. Add "
            "one after the other."
        )
    after = _add(rows, pool, labels, runs_models=models is not None)
    _finish(before, after, out, as_json)


def _columns(
    pool: dict[str, Candidate], predictions: list[str] | None, reader: TableReader
) -> list[str]:
    """List the columns of the table with predictions of the new candidate."""
    names = prediction_columns(pool, reader.names)
    names += split_names("--predictions", predictions, reader.names)
    for name in names:
        check_column("predictions", name, reader.names, reader.name)
        check_unique(reader, "--predictions", name)
    return names


def _add(
    rows: LabelledRows, pool: dict[str, Candidate], labels: LabelFlags, *, runs_models: bool
) -> Model:
    """Add the candidate of a pool, with the columns that it needs."""
    model, X = rows.model, rows.X
    ((name, candidate),) = pool.items()
    if runs_models:
        needed = {str(column) for column in getattr(model, "feature_names_in_", ())}
        hidden = (
            labels.target or model.notes_.get("target"),
            *map(model.notes_.get, ("weight", "group")),
        )
        needed |= input_columns(pool, X, hidden) | set(prediction_columns(pool, X.column_names))
        X = X.select([column for column in X.column_names if column in needed])
    with terminal.naming_rows(rows.reader, rows.rows):
        return model.add(name, candidate, X, rows.y, sample_weight=rows.weight, groups=rows.groups)


def _finish(before: Model, after: Model, out: Path, as_json: bool) -> None:
    """Save the new model, and print what it consists of."""
    save(after, out, notes=before.notes_)
    verdict = None
    if after.gate_.evidence is not None:
        verdict = after.verdict_.replace(USE_OWN, "Fit again with --own.")
    weights = after.global_weights_.tolist()
    candidates = dict(zip(after.candidate_names_, weights, strict=True))
    result = ChangeResult(str(out), candidates, after.changes_, verdict)
    if as_json:
        terminal.print_json(plain(result))
        terminal.note_cautions(after.cautions_)
        return
    body = [[name, terminal.share(weight)] for name, weight in candidates.items()]
    terminal.show_table("", ["candidate", "global weight"], body)
    terminal.say(str(after.changes_[-1]))
    if verdict or after.cautions_:
        terminal.say_advice(Advice.of(verdict or "", after.cautions_), after.cautions_)
    terminal.say(f"wrote {out}")
