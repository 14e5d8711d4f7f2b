"""``localma evaluate``, ``weights``, ``explain`` and ``report``: a saved model on labelled rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from localma._optional import optional
from localma.cli.app import (
    AsJson,
    Decimal,
    Encoding,
    ModelFile,
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
from localma.cli.messages import say_remarks, speaking_of_rows
from localma.cli.showing import (
    column_of,
    note,
    note_cautions,
    number,
    print_json,
    say,
    share,
    show_table,
)
from localma.cli.tables import check_once, labelled, no_column, weights_of
from localma.cli.using import (
    known_columns,
    needed_columns,
    open_model,
    unfamiliar,
    unlike,
    warn_of,
    warn_of_unlike,
)
from localma.errors import InvalidInputError
from localma.estimators import LocalMARegressor
from localma.inspection import ComparisonDisplay, Explanation, Summary, summarize
from localma.inspection import evaluate as compare_all
from localma.inspection import explain as explain_row
from localma.inspection.display import Output
from localma.inspection.explanation import CandidateShare
from localma.model_file import Model
from localma.tables.cells import Known
from localma.tables.files import TableReader, open_table
from localma.tables.sniffing import TextOptions

CLASSES_SHOWN = 5
TargetName = Annotated[
    str | None, typer.Option("--target", help="The target's column; default: as in the fit.")
]
GroupName = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="A column that says which rows belong together, for standard errors between groups; "
        "default: as in the fit.",
    ),
]


def evaluate(
    model: ModelFile,
    test: TableFile,
    target: TargetName = None,
    group: GroupName = None,
    control: Annotated[
        bool, typer.Option(help="Whether to fit the gate over constants, too.")
    ] = True,
    sep: Sep = None,
    encoding: Encoding = None,
    na: Na = None,
    decimal: Decimal = None,
    seed: Seed = 0,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Compare with candidates, equal and global weights.

    Example: localma evaluate rent.localma test.csv
    """
    sample = _labelled(model, test, target, group, trust, text_options(sep, encoding, na, decimal))
    with speaking_of_rows(sample.reader, sample.rows):
        compared = compare_all(
            sample.model, sample.X, sample.y, **sample.options, control=control, random_state=seed
        )
    _look_at_support(sample.model, sample.X)
    if as_json:
        print_json(compared.to_dict())
        note_cautions(compared.cautions)
        return
    _show_comparison(compared, sample.reader)


def _show_comparison(compared: ComparisonDisplay, reader: TableReader) -> None:
    if compared.is_doubtful:
        say(compared.sentence)
    entries, metrics = compared.entries, compared.metrics
    columns = [
        [entry.name for entry in entries],
        column_of([entry.loss for entry in entries]),
        column_of([entry.to_best for entry in entries]),
        *(column_of([e.metrics[name] for e in entries], errors=False) for name in metrics),
    ]
    body = [list(row) for row in zip(*columns, strict=True)]
    head = ["", f"mean loss ({compared.loss})", "more than the best", *metrics]
    show_table(f"{compared.n_rows:,} rows of {reader.name}", head, body, best=compared.best)
    if compared.n_groups == 1:
        say("All rows are of one group, which does not say how groups differ: no standard errors.")
    elif compared.n_groups:
        say(f"Standard errors are at least those between {compared.n_groups:,} groups of rows.")
    if not compared.is_doubtful:
        say(compared.sentence)
    say(compared.control.sentence)


def weights(
    model: ModelFile,
    table: TableFile,
    sep: Sep = None,
    encoding: Encoding = None,
    na: Na = None,
    decimal: Decimal = None,
    trust: Trust = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say who is trusted where.

    Example: localma weights rent.localma test.csv
    """
    loaded, X, reader = _opened(model, table, trust, text_options(sep, encoding, na, decimal))
    with speaking_of_rows(reader):
        found = summarize(loaded, X, control=False, random_state=seed)
    _look_at_support(loaded, X)
    if as_json:
        parts = found.to_dict()
        print_json({name: parts[name] for name in ("model", "regions", "importance", "spread")})
        return
    body = [
        [
            each.name,
            share(each.global_weight),
            share(each.mean_weight),
            f"{each.most_trusted:.0%}",
        ]
        for each in found.model.candidates
    ]
    head = ["candidate", "global weight", "mean weight", "most trusted in"]
    show_table(f"{found.data.n_rows:,} rows of {reader.name}", head, body)
    if found.regions is not None:
        for region in found.regions.regions:
            say(f"- {region.sentence} ({region.share:.0%} of rows)")
        say(found.regions.sentence)


def explain(
    model: ModelFile,
    table: TableFile,
    row: Annotated[int, typer.Option(help="Which row, counted from 0; negative from the end.")],
    sep: Sep = None,
    encoding: Encoding = None,
    na: Na = None,
    decimal: Decimal = None,
    trust: Trust = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Explain the prediction of one row.

    Example: localma explain rent.localma test.csv --row 17
    """
    loaded, X, reader = _opened(model, table, trust, text_options(sep, encoding, na, decimal))
    if not -X.num_rows <= row < X.num_rows:
        raise wrong_call(
            f"--row must be between {-X.num_rows} and {X.num_rows - 1}, since the table has "
            f"{X.num_rows} rows; received {row}."
        )
    with speaking_of_rows(reader):
        explanation = explain_row(loaded, X, row, random_state=seed)
    _look_at_support(loaded, X)
    if as_json:
        print_json(explanation.to_dict())
        return
    _show_explanation(explanation, reader)


def _show_explanation(explanation: Explanation, reader: TableReader) -> None:
    row, chances = explanation.row, explanation.probabilities
    (number_in_file,) = reader.numbers([row])
    where = f"Row {row}"
    if reader.row_word == "line" or number_in_file != row:
        where += f" ({reader.row_word} {number_in_file} of {reader.name})"
    classes = _shown_classes(chances, explanation.prediction)
    heads = [f"p({label})" for label in classes] if classes else ["prediction"]
    body = [
        [
            each.name,
            *_outputs(each, classes),
            share(each.weight),
            share(each.global_weight),
            _contribution(each.contribution, is_share=bool(classes)),
        ]
        for each in explanation.candidates
    ]
    predicted = explanation.prediction
    total = share(chances[str(predicted)]) if chances else _in_words(predicted)
    body.append(["combined", *_outputs(explanation, classes), "1.000", "1.000", total])
    toward = f"contributes to p({predicted})" if classes else "contributes"
    head = ["candidate", *heads, "weight here", "global weight", toward]
    show_table(f"{where}: {_in_words(predicted)}", head, body, best=len(body) - 1)
    say(explanation.sentence)
    if explanation.region:
        say(explanation.region)


def _contribution(contribution: Output, *, is_share: bool) -> str:
    if is_share and isinstance(contribution, float):
        return share(contribution)
    return _in_words(contribution)


def _shown_classes(chances: dict[str, float] | None, predicted: Output) -> list[str]:
    """The classes whose probabilities are shown: all, or the predicted one of many."""
    if chances is None:
        return []
    return list(chances) if len(chances) <= CLASSES_SHOWN else [str(predicted)]


def _outputs(predicted: Explanation | CandidateShare, classes: list[str]) -> list[str]:
    """The prediction, or the probabilities of classes."""
    if predicted.probabilities is None:
        return [_in_words(predicted.prediction)]
    return [share(predicted.probabilities[label]) for label in classes]


def report(
    model: ModelFile,
    test: TableFile,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    target: TargetName = None,
    group: GroupName = None,
    title: Annotated[str | None, typer.Option(help="What the page is called.")] = None,
    control: Annotated[
        bool, typer.Option(help="Whether to fit the gate over constants, too.")
    ] = True,
    sep: Sep = None,
    encoding: Encoding = None,
    na: Na = None,
    decimal: Decimal = None,
    seed: Seed = 0,
    trust: Trust = False,
) -> None:
    """Write one page that shows all of it.

    Example: localma report rent.localma test.csv --out report.html
    """
    from localma.report import write  # needs an extra of its own

    check_out(out, model, test)
    sample = _labelled(model, test, target, group, trust, text_options(sep, encoding, na, decimal))
    with speaking_of_rows(sample.reader, sample.rows):
        found = summarize(
            sample.model, sample.X, sample.y, **sample.options, control=control, random_state=seed
        )
    found = _in_the_file(found, sample.rows)
    write(found, out, title=title or f"{model.stem} on {sample.reader.name}")
    _look_at_support(sample.model, sample.X)
    _say_verdicts(found, sample.reader.name)
    say(f"wrote {out}")


def _in_the_file(found: Summary, rows: NDArray[np.intp]) -> Summary:
    """The summary with rows numbered as in the file, as `explain` counts them."""
    if found.rows is None:
        return found
    return replace(found, rows=replace(found.rows, index=rows[found.rows.index].tolist()))


def _say_verdicts(found: Summary, table: str) -> None:
    """Print what the fit found and, beside it, what these rows say, which may be otherwise."""
    compared = found.comparison
    say(found.verdict)
    if compared is not None and compared.claim not in found.verdict:
        claim = compared.claim
        say(f"On {compared.n_rows:,} rows of {table}: {claim[0].lower()}{claim[1:]}")


def _in_words(value: Output) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(value)
    return ", ".join(map(number, value)) if isinstance(value, list) else str(value)


def _opened(
    model: Path, table: Path, trust: bool, text: TextOptions
) -> tuple[Model, Any, TableReader]:
    """The model, the columns of the table that it needs, and the reader of the table."""
    loaded = open_model(model, trust=trust)
    reader = open_table(table, text)
    columns = needed_columns(loaded, reader)
    X = _some_rows(reader.read(known_columns(loaded), columns), reader)
    say_remarks(reader)
    warn_of(unfamiliar(loaded, X), X.num_rows)
    return loaded, X, reader


def _look_at_support(model: Model, X: Any) -> None:
    """Say it where many rows are unlike the labelled sample."""
    _, support = model.predict_weights(X, return_support=True)
    warn_of_unlike(model, unlike(support), X.num_rows)


@dataclass(frozen=True)
class LabelledRows:
    """Rows of a file with their targets, for a model.

    X : the columns that the model needs; y : (n,); rows : (n,) where they stand in the file;
    weight, groups : (n,) or None.
    """

    model: Model
    reader: TableReader
    X: Any
    y: NDArray[Any]
    rows: NDArray[np.intp]
    weight: Any
    groups: Any

    @property
    def options(self) -> dict[str, Any]:
        """Weights and groups, as the functions that judge take them."""
        return {"sample_weight": self.weight, "groups": self.groups}


def _labelled(
    path: Path, table: Path, target: str | None, group: str | None, trust: bool, text: TextOptions
) -> LabelledRows:
    """A model, and the labelled rows of a table."""
    model = open_model(path, trust=trust)
    reader = open_table(table, text)
    name = target or model.notes_.get("target")
    if name is None:
        raise wrong_call("--target must say which column is the target: the model does not know.")
    if name not in reader.names:
        raise wrong_call(f"--target: {no_column(name, reader.names, reader.name)}")
    check_once(reader, "--target", name)
    columns = needed_columns(model, reader)
    weight = _weight(model, reader)
    grouped = _group(model, reader.names, group)
    read = [column for column in (*columns, name, weight, grouped) if column is not None]
    rows = _some_rows(reader.read(_known(model, name, grouped), read), reader)
    say_remarks(reader)
    rows, places = labelled(rows, name)
    _check_target(model, rows[name], name, reader)
    if grouped is not None and rows[grouped].null_count:
        raise InvalidInputError(
            f"Every row must belong to a group; {rows[grouped].null_count} rows have nothing in "
            f"{grouped!r}. Fill it in, or name another column by --group."
        )
    X = rows.select(columns)
    warn_of(unfamiliar(model, X), X.num_rows)
    return LabelledRows(
        model,
        reader,
        X,
        rows[name].to_numpy(),
        places,
        None if weight is None else weights_of(rows, weight),
        None if grouped is None else rows[grouped].to_numpy(),
    )


def _known(model: Model, target: str, group: str | None) -> Known:
    """What the model knows of columns; "01" is a label if its classes are texts."""
    arrow = optional("pyarrow", extra="cli")
    known = known_columns(model)
    types = dict(known.types)
    if isinstance(model, LocalMARegressor):
        types[target] = arrow.float64()
    elif model.classes_.dtype.kind in "OU":
        types[target] = arrow.string()
    if group is not None:
        types[group] = arrow.string()
    return Known(types, known.decimal, known.percents)


def _check_target(model: Model, target: Any, name: str, reader: TableReader) -> None:
    """Refuse texts as numbers, and labels that the model does not know."""
    if isinstance(model, LocalMARegressor):
        if not _is_number(target):
            raise InvalidInputError(
                f"The target {name!r} must hold numbers, as when the model was fitted; in "
                f"{reader.name} it is of type {target.type}."
            )
        return
    known = {str(label) for label in model.classes_.tolist()}
    strange = [v for v in target.unique().to_pylist() if str(v) not in known]
    if strange:
        raise InvalidInputError(
            f"The target {name!r} of {reader.name} holds {strange[0]!r}, which is not one of the "
            f"model's classes {', '.join(sorted(known))}. Leave those rows out, or fit again."
        )


def _weight(model: Model, reader: TableReader) -> str | None:
    """The column of weights, if the model was fitted with one."""
    weight = model.notes_.get("weight")
    if weight is not None and weight not in reader.names:
        raise InvalidInputError(
            f"The model was fitted with the weights of rows in the column {weight!r}, and judges "
            f"by them: {no_column(weight, reader.names, reader.name)}"
        )
    return weight


def _group(model: Model, known: list[str], asked: str | None) -> str | None:
    """The column of groups: the one asked for, or that of the fit where the table has it."""
    if asked is not None and asked not in known:
        raise wrong_call(f"--group: {no_column(asked, known)}")
    fitted = model.notes_.get("group")
    if asked is None and fitted is not None and fitted not in known:
        note(
            f"The model was fitted by groups, and this table has no column {fitted!r}: standard "
            "errors take its rows for independent. --group names another column."
        )
        return None
    return asked or fitted


def _is_number(column: Any) -> bool:
    return np.asarray(column.to_numpy()).dtype.kind in "biuf"


def _some_rows(rows: Any, reader: TableReader) -> Any:
    if rows.num_rows == 0:
        raise InvalidInputError(f"{reader.name} has no rows to look at; give a table with some.")
    return rows
