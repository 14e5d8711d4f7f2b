"""``localma evaluate``, ``weights``, ``explain`` and ``report``: a saved model on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from localma._optional import optional
from localma.cli.app import (
    AsJson,
    ModelFile,
    Seed,
    TableFile,
    Trust,
    check_out,
    typer,
    wrong_call,
)
from localma.cli.showing import (
    note,
    note_cautions,
    number,
    print_json,
    say,
    show_table,
    with_error,
)
from localma.cli.tables import labelled, no_column, read, weights_of
from localma.cli.using import (
    column_types,
    needed,
    open_model,
    unfamiliar,
    unlike,
    warn_of,
    warn_of_unlike,
)
from localma.errors import InvalidInputError
from localma.estimators import LocalMAClassifier, LocalMARegressor
from localma.inspection import evaluate as compare_all
from localma.inspection import explain as explain_row
from localma.inspection import summarize
from localma.persistence import Model

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
    seed: Seed = 0,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Compare with candidates, equal and global weights.

    Example: localma evaluate rent.localma test.csv
    """
    loaded, X, y, given = _labelled(model, test, target, group, trust)
    del given["rows"]
    found = compare_all(loaded, X, y, **given, control=control, random_state=seed)
    _look_at_support(loaded, X)
    if as_json:
        print_json(found)
        note_cautions(found["cautions"])
        return
    doubtful = bool(found["cautions"]) or (found["constant"] or {}).get("is_idle", False)
    if doubtful:
        say(found["sentence"])
    metrics = found["metrics"]
    body = [
        [
            entry["name"],
            with_error(entry["loss"]),
            with_error(entry["to_best"]),
            *(number(entry["metrics"][name]["value"]) for name in metrics),
        ]
        for entry in found["entries"]
    ]
    head = ["", f"mean loss ({found['loss']})", "more than the best", *metrics]
    show_table(f"{found['n_rows']:,} rows of {test.name}", head, body, best=found["best"])
    if found["n_groups"] == 1:
        say("All rows are of one group, which does not say how groups differ: no standard errors.")
    elif found["n_groups"]:
        say(f"Standard errors are at least those between {found['n_groups']:,} groups of rows.")
    if not doubtful:
        say(found["sentence"])
    say(found["control"]["sentence"])


def weights(
    model: ModelFile,
    table: TableFile,
    trust: Trust = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say who is trusted where.

    Example: localma weights rent.localma test.csv
    """
    loaded, X = _opened(model, table, trust)
    found = summarize(loaded, X, control=False, random_state=seed)
    _look_at_support(loaded, X)
    if as_json:
        print_json({part: found[part] for part in ("model", "regions", "importance", "spread")})
        return
    body = [
        [
            each["name"],
            f"{each['global_weight']:.3f}",
            f"{each['mean_weight']:.3f}",
            f"{each['most_trusted']:.0%}",
        ]
        for each in found["model"]["candidates"]
    ]
    head = ["candidate", "global weight", "mean weight", "most trusted in"]
    show_table(f"{found['data']['n_rows']:,} rows of {table.name}", head, body)
    for region in found["regions"]["regions"]:
        say(f"- {region['sentence']} ({region['share']:.0%} of rows)")
    say(found["regions"]["sentence"])


def explain(
    model: ModelFile,
    table: TableFile,
    row: Annotated[int, typer.Option(help="Which row, counted from 0; negative from the end.")],
    trust: Trust = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Explain the prediction of one row.

    Example: localma explain rent.localma test.csv --row 17
    """
    loaded, X = _opened(model, table, trust)
    if not -X.num_rows <= row < X.num_rows:
        raise wrong_call(
            f"--row must be between {-X.num_rows} and {X.num_rows - 1}, since the table has "
            f"{X.num_rows} rows; received {row}."
        )
    told = explain_row(loaded, X, row, random_state=seed)
    _look_at_support(loaded, X)
    if as_json:
        print_json(told)
        return
    body = [
        [
            each["name"],
            _said(each["prediction"]),
            f"{each['weight']:.3f}",
            f"{each['global_weight']:.3f}",
            _said(each["contribution"]),
        ]
        for each in told["candidates"]
    ]
    head = ["candidate", "says", "weight here", "global weight", "contributes"]
    show_table(f"Row {told['row']}: {_said(told['prediction'])}", head, body)
    say(told["sentence"])
    if told["region"]:
        say(told["region"])


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
    seed: Seed = 0,
    trust: Trust = False,
) -> None:
    """Write one page that shows all of it.

    Example: localma report rent.localma test.csv --out report.html
    """
    from localma.report import write  # needs an extra of its own

    check_out(out, model, test)
    loaded, X, y, given = _labelled(model, test, target, group, trust)
    rows = given.pop("rows")
    found = summarize(loaded, X, y, **given, control=control, random_state=seed)
    found["rows"]["index"] = rows[found["rows"]["index"]].tolist()  # as `explain` counts them
    write(found, out, title=title or f"{model.stem} on {test.name}")
    _look_at_support(loaded, X)
    _say_verdicts(found, test)
    say(f"wrote {out}")


def _say_verdicts(found: dict[str, Any], table: Path) -> None:
    """Print what the fit found and, beside it, what these rows say, which may be otherwise."""
    compared = found["comparison"]
    say(found["verdict"])
    if compared is not None and compared["claim"] not in found["verdict"]:
        claim = compared["claim"]
        say(f"On {compared['n_rows']:,} rows of {table.name}: {claim[0].lower()}{claim[1:]}")


def _said(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(value)
    return ", ".join(map(number, value)) if isinstance(value, list) else str(value)


def _opened(model: Path, table: Path, trust: bool) -> tuple[Model, Any]:
    """The model, and the columns of the table that it needs."""
    loaded = open_model(model, trust=trust)
    X = needed(loaded, _some_rows(read(table, column_types(loaded)), table), table)
    warn_of(unfamiliar(loaded, X), X.num_rows)
    return loaded, X


def _look_at_support(model: Model, X: Any) -> None:
    """Say it where many rows are unlike the labelled sample."""
    _, support = model.predict_weights(X, return_support=True)
    warn_of_unlike(model, unlike(support), X.num_rows)


def _labelled(
    model: Path, table: Path, target: str | None, group: str | None, trust: bool
) -> tuple[Model, Any, Any, dict[str, Any]]:
    """The model, its columns of the table, the targets; weights, groups and places of the rows."""
    loaded = open_model(model, trust=trust)
    name = target or loaded.notes_.get("target")
    if name is None:
        raise wrong_call("--target must say which column is the target: the model does not know.")
    types = column_types(loaded)
    if isinstance(loaded, LocalMAClassifier) and loaded.classes_.dtype.kind in "OU":
        types[name] = optional("pyarrow", extra="cli").string()  # "01" is no number here
    for column in {group, loaded.notes_.get("group")} - {None}:
        types[column] = optional("pyarrow", extra="cli").string()
    rows = _some_rows(read(table, types), table)
    if name not in rows.column_names:
        raise wrong_call(f"--target: {no_column(name, rows.column_names, table)}")
    rows, places = labelled(rows, name)
    if isinstance(loaded, LocalMARegressor) and not _is_number(rows[name]):
        raise InvalidInputError(
            f"The target {name!r} must hold numbers, as when the model was fitted; in {table} it "
            f"is of type {rows[name].type}."
        )
    weight = loaded.notes_.get("weight")
    if weight is not None and weight not in rows.column_names:
        raise InvalidInputError(
            f"The model was fitted with the weights of rows in the column {weight!r}, and judges "
            f"by them: {no_column(weight, rows.column_names, table)}"
        )
    grouped = _group(loaded, rows, group)
    if grouped is not None and rows[grouped].null_count:
        raise InvalidInputError(
            f"Every row must belong to a group; {rows[grouped].null_count} rows have nothing in "
            f"{grouped!r}. Fill it in, or name another column by --group."
        )
    given = {
        "sample_weight": None if weight is None else weights_of(rows, weight),
        "groups": None if grouped is None else rows[grouped].to_numpy(),
        "rows": places,
    }
    X = needed(loaded, rows, table)
    warn_of(unfamiliar(loaded, X), X.num_rows)
    return loaded, X, rows[name].to_numpy(), given


def _group(model: Model, rows: Any, asked: str | None) -> str | None:
    """The column of groups: the one asked for, or that of the fit where the table has it."""
    known = rows.column_names
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


def _some_rows(rows: Any, table: Path) -> Any:
    if rows.num_rows == 0:
        raise InvalidInputError(f"{table} has no rows to look at; give a table with some.")
    return rows
